"""What is measured on frozen models: worked examples where the answer is known, and baselines that
learn what a grammar's words have in common."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig, ModelConfig
from litebert.data.plan import is_heldout
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.files import write_json
from litebert.lab import baselines, probes, vectors
from litebert.lab.causal import causal_layer, next_token_loss
from litebert.lab.measure import half_depth_scores
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.scores.linear import LinearProbe, logistic, ridge
from litebert.testing import tiny_recipe, tiny_shards, tiny_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.run import model_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("probes") / "tiny", documents=80)


@pytest.fixture(scope="module")
def run(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with an untrained model."""
    folder = tmp_path_factory.mktemp("run")
    recipe = tiny_recipe()
    torch.manual_seed(0)
    tokenizer = Tokenizer.load(shards / "tokenizer")
    model = Model(model_config(recipe, vocab_size=tokenizer.vocab_size))
    Checkpoint(model=model, tokenizer=tokenizer).save(folder / "final")
    write_json(folder / "recipe.json", recipe.to_dict())
    return folder


def test_a_linear_probe_equals_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(200, 6)) * [1, 10, 100, 1, 1, 1]
    inputs = torch.tensor(rows, dtype=torch.float32)
    labels = (rows[:, 0] + rows[:, 1] / 10 > 0).astype(int) + (rows[:, 2] > 50)
    scaled = StandardScaler().fit_transform(rows)
    truth = LogisticRegression(tol=1e-8, max_iter=1000).fit(scaled, labels)
    probe = LinearProbe.fit(inputs, logistic(labels.tolist(), 3))
    ours = probe.outputs(inputs).softmax(1)
    assert np.abs(ours.numpy() - truth.predict_proba(scaled)).max() < 5e-3
    numbers = rows[:, 0] * 2 + 3
    regression = LinearProbe.fit(inputs, ridge(numbers.tolist()))
    expected = Ridge(alpha=1.0).fit(scaled, numbers).predict(scaled)
    assert np.abs(regression.outputs(inputs)[:, 0].numpy() - expected).max() < 5e-3


def test_probes_of_an_untrained_model(
    run: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", str(run), "--data", str(shards), "--device", "cpu"]
    probes.main([*words, "--measure", "order", "gap", "rows", "distances"])
    numbers = json.loads(capsys.readouterr().out)
    assert abs(numbers["gap"]) < 0.5  # nothing was learned, so nothing by heart
    assert 0 <= numbers["sop_probe"] <= 1
    assert 0 <= numbers["nsp_probe"] <= 1
    assert len(numbers["distances"]["l2"]) == 2
    assert 0.2 < numbers["touched"] <= 1


def test_rows_touched_are_the_tokens_of_a_batch(run: Path, shards: Path) -> None:
    model = Checkpoint.load(run / "final").model
    few = probes.Subject(model, shards, tiny_recipe(), CPU)
    stream = few.stream("train", "sop", mask_fraction=0.001)
    batch = stream.batch(0, 0, 8)
    ids = set(batch.token_ids[batch.mask].tolist()) | set(batch.masked_labels.tolist())
    assert probes.touched_rows(few) == pytest.approx(len(ids) / model.config.encoder.vocab_size)


def test_a_causal_layer_sees_no_later_token(shards: Path) -> None:
    torch.manual_seed(1)
    for positions in ("learned", "rotary"):
        config = model_config(tiny_recipe(encoder={"positions": positions}), vocab_size=50).encoder
        model = Model(ModelConfig(encoder=config, heads=(HeadConfig(kind="masked"),))).eval()
        model.encoder.layer = causal_layer
        ids = torch.randint(5, 50, (2, 12))
        other = ids.clone()
        other[:, 8:] = 5
        before, after = (model.encoder(token_ids=each) for each in (ids, other))
        assert torch.allclose(before[:, :8], after[:, :8], atol=1e-6)
        assert not torch.allclose(before[:, 8:], after[:, 8:], atol=1e-3)
        assert next_token_loss(model, ids).item() > 0


@pytest.mark.parametrize("method", ["word2vec", "glove", "doc2vec", "causal"])
def test_baselines_learn_the_worlds_of_the_grammar(
    method: str, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_BATCH", 256)
    steps = {"causal": 60}.get(method, 700)
    recipe = tiny_recipe(steps=steps, learning_rate=1e-2)
    write_json(tmp_path / "recipe.json", recipe.to_dict())
    words = ["--recipe", str(tmp_path / "recipe.json"), "--data", str(shards), "--device", "cpu"]
    words = ["--method", method, *words, "--out", str(tmp_path / "run")]
    baselines.main(words)
    task = tiny_task(tmp_path / "task", "sst2", scale=4)
    embed = vectors.open_vectors(tmp_path / "run", CPU)
    assert vectors.score_frozen("sst2", task, embed) > 0.8  # labels follow from the world
    record = json.loads((tmp_path / "run" / "method.json").read_text())
    assert record["method"] == method
    assert (record.get("next_token_accuracy", 0) > 0.1) == (method == "causal")
    before = (tmp_path / "run" / "final").stat().st_mtime_ns
    baselines.main(words)  # trained already
    assert (tmp_path / "run" / "final").stat().st_mtime_ns == before


def test_an_encoder_is_scored_by_its_frozen_states(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [f"{name}={tiny_task(tmp_path / name, name)}" for name in ("rte", "stsb")]
    vectors.main(["--model", str(run), "--tasks", *tasks, "--device", "cpu"])
    record = json.loads(capsys.readouterr().out)
    assert set(record["scores"]) == set(record["majority"]) == {"rte", "stsb"}
    assert record["majority"]["rte"] >= 0.5
    assert record["majority"]["stsb"] == 0
    embed = vectors.open_vectors(run, CPU)
    data = tiny_task(tmp_path / "squad", "squad1")
    with pytest.raises(ConfigError, match="squad1 is not scored by frozen vectors"):
        vectors.score_frozen("squad1", data, embed)


def test_glove_refuses_counts_that_do_not_fit(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_GLOVE_BYTES", 1000)
    corpus = baselines.Corpus(shards, CPU)
    assert len(corpus.tokens) == Shards.open(shards).index["tokens"]
    assert corpus.num_documents == 80
    with pytest.raises(ConfigError, match="do not fit; build the shards with at most 15 tokens"):
        baselines.glove(tiny_recipe(), corpus)


def test_baselines_read_what_the_encoder_reads(shards: Path) -> None:
    whole, cut = baselines.Corpus(shards, CPU), baselines.Corpus(shards, CPU, 0.2)
    aside = is_heldout(np.arange(80), 0.2)
    assert set(cut.documents.tolist()) == set(np.flatnonzero(~aside).tolist())
    assert len(cut.tokens) + len(cut.heldout) == len(whole.tokens)
    recipe = tiny_recipe(steps=1)
    read = recipe.tokens_in(1)
    assert read < len(whole.tokens)
    few = baselines.glove(recipe, whole)["token"]
    whole.tokens, whole.documents = whole.tokens[:read], whole.documents[:read]
    assert torch.equal(few, baselines.glove(recipe, whole)["token"])


def test_scores_at_half_depth_lie_on_the_curves() -> None:
    exits = {
        "rte": {
            "depths": [0.5, 0.6, 0.7, 0.8],
            "curves": {"patience": [[4.0, 0.8], [1.0, 0.5], [3.0, 0.74]]},
        }
    }
    assert half_depth_scores(exits) == {
        "exit_full": 0.8,
        "exit_fixed": 0.6,
        "exit_patience": pytest.approx(0.62),
    }
