"""litebert evaluate blimp: pseudo-log-likelihoods equal those of one masked copy at a time;
accuracies and intervals by paradigm, term and field."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import litebert
from litebert import cli
from litebert.errors import ConfigError, DataError
from litebert.infer.blimp import mean_accuracy, pseudo_log_likelihoods, score_blimp
from litebert.infer.predictor import Predictor
from tests.helpers.models import SENTENCES


def plain_sum(model: Predictor, text: str, *, within_word: bool = False) -> float:
    tokenizer, total = model.tokenizer, 0.0
    ids = tokenizer.pair(text).token_ids
    for place in range(1, len(ids) - 1):
        copy = list(ids)
        copy[place] = tokenizer.mask_id
        later = place + 1
        while within_word and later < len(ids) - 1 and not tokenizer.word_starts[ids[later]]:
            copy[later] = tokenizer.mask_id
            later += 1
        with torch.no_grad():
            states = model.model.encoder(token_ids=torch.tensor([copy]))
            logits = model.model.masked_logits(states, torch.tensor([place]))[0]
        total += float(logits.double().log_softmax(-1)[ids[place]])
    return total


@pytest.mark.parametrize("within_word", [False, True])
@pytest.mark.parametrize("batch_tokens", [1, 64, 2048])
def test_sums_equal_one_masked_copy_at_a_time(
    model: Predictor, within_word: bool, batch_tokens: int
) -> None:
    sentences = [*SENTENCES[:6], "unseen whaling captains", "the"]
    model.engine.batch_tokens = batch_tokens
    sums = pseudo_log_likelihoods(model.engine, sentences, within_word=within_word)
    expected = [plain_sum(model, each, within_word=within_word) for each in sentences]
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    if within_word:
        assert not np.allclose(sums, pseudo_log_likelihoods(model.engine, sentences))


def write_pairs(folder: Path, model: Predictor) -> dict[str, list[bool]]:
    """Three paradigms, two of one term; for each pair whether the model prefers the first."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    correct: dict[str, list[bool]] = {}
    for name, term, field in (("b", "y", "syntax"), ("a", "x", "syntax"), ("c", "x", "semantics")):
        lines = []
        for sentence in SENTENCES[:5]:
            words = sentence.split()
            other = " ".join(draw.permutation(words))
            sums = pseudo_log_likelihoods(model.engine, [sentence, other])
            correct.setdefault(name, []).append(bool(sums[0] > sums[1]))
            row = {"sentence_good": sentence, "sentence_bad": other, "UID": name}
            lines.append(json.dumps(row | {"linguistics_term": term, "field": field}) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return correct


def test_scores_by_paradigm_term_and_field(
    model: Predictor, pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    correct = write_pairs(tmp_path / "pairs", model)
    shares = {name: np.mean(each) for name, each in correct.items()}
    counted: list[int] = []
    scores = score_blimp(model.engine, tmp_path / "pairs", on_progress=counted.append)
    assert {name: each.accuracy for name, each in scores.paradigms.items()} == shares
    assert scores.terms["x"].accuracy == pytest.approx((shares["a"] + shares["c"]) / 2)
    assert scores.fields["syntax"].accuracy == pytest.approx((shares["a"] + shares["b"]) / 2)
    assert scores.overall.accuracy == pytest.approx(np.mean(list(shares.values())))
    assert (scores.overall.num_pairs, scores.terms["x"].num_pairs, counted[-1]) == (15, 10, 15)

    # one table with other names of columns
    table = tmp_path / "pairs.tsv"
    lines = ["paradigm\tterm\tfield\tgood\tbad"]
    for file in sorted((tmp_path / "pairs").iterdir()):
        for row in map(json.loads, file.read_text().splitlines()):
            cells = ("UID", "linguistics_term", "field", "sentence_good", "sentence_bad")
            lines.append("\t".join(row[cell] for cell in cells))
    table.write_text("\n".join(lines) + "\n")
    assert score_blimp(model.engine, table) == scores

    flags = ["--model", str(pretrained), "--data", str(tmp_path / "pairs"), "--device", "cpu"]
    assert cli.run(["evaluate", "blimp", *flags, "--limit", "2", "--json"]) == 0
    limited = json.loads(capsys.readouterr().out)
    assert {name: each["num_pairs"] for name, each in limited["paradigms"].items()} == {
        "a": 2,
        "b": 2,
        "c": 2,
    }
    assert limited["paradigms"]["a"]["accuracy"] == np.mean(correct["a"][:2])
    python = litebert.evaluate(
        "blimp", model=pretrained, data=tmp_path / "pairs", limit=2, device="cpu"
    )
    assert python.to_dict() == {k: v for k, v in limited.items() if k not in ("model", "data")}
    assert cli.run(["evaluate", "blimp", *flags, "--within-word"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("accuracy", "overall", "semantics", "syntax"))


def test_intervals_are_wilson_s_and_narrow_with_more_paradigms() -> None:
    for right, total in ((0, 20), (13, 20), (20, 20)):
        paradigm = [number < right for number in range(total)]
        expected = binomtest(right, total).proportion_ci(method="wilson")
        assert mean_accuracy([paradigm]).interval == pytest.approx(tuple(expected), abs=1e-6)
    # of equal paradigms the mean is one of all their pairs; of unequal ones it varies less
    ten, thirty = [True, False] * 5, [True, False] * 15
    assert mean_accuracy([ten] * 3).interval == pytest.approx(mean_accuracy([thirty]).interval)
    mixed = mean_accuracy([[True] * 10, [False] * 10, ten])
    assert np.ptp(mixed.interval) < np.ptp(mean_accuracy([thirty]).interval)
    # each paradigm counts alike
    assert mean_accuracy([[True] * 90, [False] * 10]).accuracy == 0.5


def test_what_is_no_minimal_pair_is_refused(model: Predictor, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="limit is at least 1; got 0"):
        score_blimp(model.engine, tmp_path, limit=0)
    with pytest.raises(DataError, match="there are no minimal pairs in"):
        score_blimp(model.engine, tmp_path)
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"good": "the goat sleeps", "worse": "goat the"}) + "\n")
    wanted = r"one\.jsonl, line 1: there is no text in sentence_bad or bad; the columns are good, w"
    with pytest.raises(DataError, match=wanted):
        score_blimp(model.engine, file)
    with pytest.raises(DataError, match="holds no minimal pair"):
        score_blimp(model.engine, file, bad_rows="skip")
    with file.open("a") as more:
        more.write(json.dumps({"good": "the goat sleeps", "bad": "goat the sleeps the"}) + "\n")
    scores = score_blimp(model.engine, file, bad_rows="skip")
    assert scores.overall.num_pairs == 1
    assert list(scores.paradigms) == ["one"]
    assert "1 bad row was left out" in scores.notes[0]
    file.write_text(json.dumps({"good": "the goat " * 40, "bad": "goat"}) + "\n")
    with pytest.raises(DataError, match="the model reads at most 64"):
        score_blimp(model.engine, file)
