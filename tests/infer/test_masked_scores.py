"""litebert evaluate masked: equal to pretraining's held-out evaluation, from shards and from the
text itself, for our folders and Hugging Face's."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litebert
from litebert import cli
from litebert.data.build import BuildOptions, build_shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.errors import ConfigError, DataError
from litebert.infer.masked_scores import MaskedOptions, ratio_interval, score_masked
from litebert.infer.predictor import Predictor
from litebert.testing import tiny_corpus, tiny_tokenizer
from litebert.train.pretrain.evaluate import HeldoutScorer
from tests.helpers.pretraining import CPU


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus(tmp_path_factory.mktemp("text") / "corpus.txt", documents=40)


@pytest.fixture(scope="module")
def shards(text: Path, pretrained: Path) -> Path:
    out = text.parent / "shards"
    build_shards([text], tokenizer=pretrained, out=out)
    return out


@pytest.mark.parametrize("order", ["sop", "none"])
def test_the_scores_are_those_of_the_held_out_evaluation(
    model: Predictor, shards: Path, order: Any
) -> None:
    spec = ExampleSpec(max_length=64, order=order, heldout_fraction=0.4)
    heldout = HeldoutScorer(
        Stream.open(shards, spec, seed=5), CPU, tokens=24 * 30, mask_fraction=0.2
    )
    expected = heldout(model.model, length=24)
    options = MaskedOptions(
        max_length=24,
        tokens=24 * 30,
        order=order,
        mask_fraction=0.2,
        split="heldout",
        heldout_fraction=0.4,
    )
    shares: list[float] = []
    scores = score_masked(model.engine, shards, options, on_progress=shares.append)
    assert scores.model.loss == pytest.approx(expected["masked_loss"], rel=1e-6)
    assert scores.model.accuracy == pytest.approx(expected["masked_accuracy"], rel=1e-9)
    assert scores.model.perplexity == pytest.approx(expected["perplexity"], rel=1e-5)
    assert scores.num_tokens == expected["heldout_tokens"]
    assert shares[-1] == 1


def test_a_text_has_the_scores_of_its_shards(model: Predictor, text: Path, shards: Path) -> None:
    options = MaskedOptions(max_ngram=2, seed=3)
    from_text = score_masked(model.engine, text, options)
    assert from_text == score_masked(model.engine, shards, options)
    assert from_text.options.max_length == 64
    rows = text.with_suffix(".jsonl.gz")
    documents = text.read_text().strip().split("\n\n")
    with gzip.open(rows, "wt") as file:
        file.writelines(json.dumps({"body": each}) + "\n" for each in documents)
    again = score_masked(model.engine, rows, MaskedOptions(max_ngram=2, seed=3, field="body"))
    assert again.model == from_text.model
    assert from_text.num_documents == len(documents)


def test_scores_do_not_depend_on_batches(model: Predictor, shards: Path) -> None:
    whole = score_masked(model.engine, shards, MaskedOptions())
    model.engine.batch_tokens = 100
    small = score_masked(model.engine, shards, MaskedOptions())
    assert small.model.loss == pytest.approx(whole.model.loss, rel=1e-6)
    assert small.num_masked == whole.num_masked
    assert small.intervals["loss"] == pytest.approx(whole.intervals["loss"], rel=1e-5)


def test_the_unigram_model_knows_frequencies_alone(model: Predictor, shards: Path) -> None:
    """Where every token may be masked alone, its loss is near the entropy of the text's tokens."""
    options = MaskedOptions(mask_units="tokens", max_ngram=1, mask_fraction=0.6, tokens=None)
    scores = score_masked(model.engine, shards, options)
    tokens = np.concatenate([np.load(path) for path in shards.glob("*.tokens.npy")])
    shares = np.bincount(tokens) / len(tokens)
    entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    assert scores.unigram.loss == pytest.approx(entropy, rel=0.05)
    assert scores.unigram.accuracy == pytest.approx(shares.max(), rel=0.2)


def test_words_are_masked_whole_and_tokens_alone(model: Predictor, tmp_path: Path) -> None:
    """A word of many tokens is more than the budget, unless its tokens are masked alone."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["qzxjkvqzxj goat"] * 20))
    size = len(model.tokenizer.encode("qzxjkvqzxj"))
    assert size > 4  # a tenth of 40
    settings = {"max_ngram": 1, "max_length": 40, "mask_fraction": 0.1}
    words = score_masked(model.engine, text, MaskedOptions(**settings))
    tokens = score_masked(model.engine, text, MaskedOptions(**settings, mask_units="tokens"))
    # whole words: the short one, and what a cut leaves of the long one
    assert words.unigram.loss < tokens.unigram.loss
    assert score_masked(model.engine, text, MaskedOptions(**settings, seed=1)).model != words.model


def test_the_interval_is_that_of_a_bootstrap_over_documents() -> None:
    draw = np.random.default_rng(0)
    counts = draw.integers(5, 60, 300).astype(float)
    sums = counts * draw.normal(3.0, 0.6, 300)
    resampled = draw.integers(0, 300, (4000, 300))
    ratios = sums[resampled].sum(1) / counts[resampled].sum(1)
    expected = np.quantile(ratios, [0.025, 0.975])
    assert ratio_interval(sums, counts) == pytest.approx(expected, abs=0.01)
    assert np.ptp(expected) > 0.1


def test_the_command_prints_a_table_or_json_for_a_hugging_face_folder_too(
    pretrained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign"
    assert cli.run(["convert", str(pretrained), str(foreign), "--to", "huggingface"]) == 0
    capsys.readouterr()
    flags = ["--data", str(text), "--device", "cpu", "--max-ngram", "1", "--max-length", "32"]
    results = []
    for folder in (pretrained, foreign):
        assert cli.run(["evaluate", "masked", "--model", str(folder), *flags, "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    ours, theirs = results
    assert ours["scores"] == pytest.approx(theirs["scores"], rel=1e-5)
    assert ours["options"]["max_ngram"] == 1
    low, high = ours["intervals"]["loss"]
    assert low < ours["scores"]["loss"] < high
    python = litebert.evaluate(
        "masked", model=pretrained, data=text, device="cpu", max_ngram=1, max_length=32
    )
    assert python.to_dict() == {k: v for k, v in ours.items() if k not in ("model", "data")}

    assert cli.run(["evaluate", "masked", "--model", str(pretrained), *flags]) == 0
    shown = capsys.readouterr().out
    assert f"{ours['num_masked']:,} masked tokens (single words)" in shown
    assert f"{ours['scores']['loss']:.3f}" in shown
    assert f"{ours['baselines']['unigram']['perplexity']:.1f}" in shown
    assert "95 % interval" in shown


def test_bad_rows_can_be_skipped_and_are_noted(model: Predictor, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    good = json.dumps({"text": "the captain sails the ship . the goat sleeps ."})
    rows.write_text(f"{good}\nnot json\n{good}\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: the row is not JSON"):
        score_masked(model.engine, rows, MaskedOptions())
    scores = score_masked(model.engine, rows, MaskedOptions(bad_rows="skip"))
    assert scores.num_documents == 2
    assert [note for note in scores.notes if "rows.jsonl, line 2" in note]


def test_damaged_shards_are_not_scored(model: Predictor, shards: Path, tmp_path: Path) -> None:
    shutil.copytree(shards, tmp_path / "shards")
    damaged = tmp_path / "shards" / "00000.sentences.npy"
    damaged.write_bytes(damaged.read_bytes().replace(b"\0\x01", b"\x01\0"))
    with pytest.raises(DataError, match=r"sentences\.npy does not have the sha256"):
        score_masked(model.engine, tmp_path / "shards", MaskedOptions())


def test_wrong_settings_and_foreign_shards_are_refused(
    model: Predictor, classifier: Path, pretrained: Path, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="max_length is 65, the model reads at most 64 tokens"):
        score_masked(model.engine, text, MaskedOptions(max_length=65))
    with pytest.raises(ConfigError, match="tokens is at least 1; got 0"):
        MaskedOptions(tokens=0)
    with pytest.raises(ConfigError, match="mask_units is words or tokens; got 'letters'"):
        MaskedOptions(mask_units="letters")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no setting 'max_ngrams'; did you mean 'max_ngram'"):
        litebert.evaluate("masked", model=pretrained, data=text, max_ngrams=1)
    with pytest.raises(ConfigError, match="this model has no masked head"):
        litebert.evaluate("masked", model=classifier, data=text)
    other = tiny_tokenizer(tmp_path / "tokenizer", vocab_size=80)
    build_shards(
        [text], tokenizer=other, out=tmp_path / "shards", options=BuildOptions(split="lines")
    )
    with pytest.raises(DataError, match="hold tokens of another vocabulary"):
        score_masked(model.engine, tmp_path / "shards", MaskedOptions())
