"""What holds of fine-tuning and predicting on a GPU: packed and replayed passes err no more than
plain ones, each replay drops other values, and answers in bfloat16 come in order. Where there is no
GPU, what does not need one runs on the CPU.

Shape checks stand in the way of compiling: run it with --noconftest.
"""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.infer.continuous import Continuous
from litebert.infer.layers import read_layers
from litebert.infer.predictor import Predictor
from litebert.infer.torch_engine import TorchEngine
from litebert.infer.verbs import text_example
from litebert.kernels.gate import Gate
from litebert.model.batch import DeviceBatch
from litebert.model.layers import apply_layer
from litebert.model.model import Model
from litebert.recipes import EmbedRecipe, FinetuneRecipe, OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.exits import ExitRule
from litebert.tasks.registry import open_task
from litebert.tasks.tables.pairs import open_pairs
from litebert.tasks.task import Task, TaskCard, TaskData
from litebert.testing import tiny_documents, tiny_task, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.embed_run import EmbedTuning
from litebert.train.finetune.job import FinetuneJob
from litebert.train.finetune.prepare import Prepared, prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.graphs import WARM, Graphs
from litebert.train.runtime import Runtime

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = {
    "embedding_size": 64,
    "hidden_size": 256,
    "num_layers": 4,
    "num_attention_heads": 4,
    "ffn_size": 1024,
}
TASKS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("sst2", "stsb", "race", "squad1", "squad2", "tag")),
    ("sst2", {"exits": "each"}),
    ("sst2", {"class_weights": {"0": 0.5, "1": 2.0}}),
]
"""One for each head, and what changes a loss."""


def made(folder: Path, name: str, **changes: Any) -> tuple[FinetuneRecipe, Prepared, Checkpoint]:
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, vocab_size=tokenizer.vocab_size, max_positions=128)
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "max_length": 64,
        "head_dropout": 0.0,
        "stride": 16,
    }
    recipe = FinetuneRecipe(
        task=name, **settings | changes, optimizer=OptimizerSpec(learning_rate=1e-4, warmup=0.1)
    )
    data: TaskData = open_task(name, tiny_task(folder / name, name, scale=2))
    return (
        recipe,
        prepare(recipe, data, tokenizer),
        Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer),
    )


def flat(model: Model) -> torch.Tensor:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([gradient.double().flatten() for gradient in gradients])


def plain_gradient(
    model: Model, job: FinetuneJob, batch: Any, counts: dict[str, float]
) -> torch.Tensor:
    model.zero_grad()
    job.mean(job.compute(model, DeviceBatch.of(batch.padded(), "cuda")), counts).backward()  # type: ignore[no-untyped-call]
    return flat(model)


@needs_gpu
@pytest.mark.parametrize(("name", "changes"), TASKS)
def test_packed_and_replayed_passes_err_no_more_than_plain_ones(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    """The truth is the same weights in float64; the plain pass is padded bfloat16."""
    recipe, prepared, source = made(tmp_path, name, **changes)
    training = Finetuning(recipe, prepared, source, Runtime.start(), say=pytest.fail)
    job, rounded = training.job, training.learner.working.model
    assert job.pack
    truth = copy.deepcopy(rounded).double()
    truth.encoder.layer = apply_layer
    graphs = Graphs(job, rounded, pytest.fail)
    errors: dict[str, list[float]] = {"plain": [], "packed": [], "replayed": []}
    batch = job.batch(0)
    counts = job.counts(batch)
    for _ in range(WARM + 3):
        exact, plain = (plain_gradient(model, job, batch, counts) for model in (truth, rounded))
        rounded.zero_grad()
        job.mean(job.losses(rounded, batch, 0), counts).backward()  # type: ignore[no-untyped-call]
        packed = flat(rounded)
        rounded.zero_grad()
        graphs(batch, 0, counts)
        for way, gradient in (("plain", plain), ("packed", packed), ("replayed", flat(rounded))):
            errors[way].append(float((gradient - exact).norm() / exact.norm()))
    assert len(graphs.recorded) == 1
    means = {way: float(np.mean(values)) for way, values in errors.items()}
    assert means["packed"] <= 1.25 * means["plain"], means  # one batch: the error itself is drawn
    assert means["replayed"] == pytest.approx(means["packed"], rel=0.05), means


needs_kernels = pytest.mark.skipif(
    not (torch.cuda.is_available() and Gate.detect("cuda", torch.bfloat16).attention),
    reason="attention drops weights in our own kernels alone",
)


@needs_gpu
@pytest.mark.parametrize(
    "where", ["head_dropout", pytest.param("encoder_dropout", marks=needs_kernels)]
)
def test_each_replay_drops_other_values_and_a_seed_drops_the_same(
    tmp_path: Path, where: str
) -> None:
    recipe, prepared, source = made(tmp_path, "sst2", **{where: 0.5})
    training = Finetuning(recipe, prepared, source, Runtime.start(), say=pytest.fail)
    job, runtime = training.job, training.runtime
    assert job.pack
    graphs = Graphs(job, training.learner.working.model, pytest.fail)
    batch = job.batch(0)

    def loss(seed: int) -> float:
        runtime.seed(seed)
        return float(graphs(batch, 0, job.counts(batch)).loss)

    for seed in range(WARM):
        loss(seed)
    assert not graphs.recorded
    loss(WARM)
    assert graphs.recorded  # a recording may draw, too
    actual = [loss(seed) for seed in range(6)]
    assert len(set(actual)) == 6, "two replays with other seeds drop other values"
    assert [loss(seed) for seed in range(6)] == actual, "the same seed drops the same"
    runtime.seed(0)
    one, other = (float(graphs(batch, 0, job.counts(batch)).loss) for _ in range(2))
    assert one != other, "the generator moves on with each replay"


@needs_gpu
@pytest.mark.parametrize("dropout", [0.0, pytest.param(0.1, marks=needs_kernels)])
@pytest.mark.parametrize("compile", ["auto", "on", "off"])
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_a_run_learns(tmp_path: Path, compile: Any, dropout: float) -> None:
    settings = {
        "compile": compile,
        "epochs": 6,
        "head_dropout": 0.1,
        "encoder_dropout": dropout,
        "patience": 0,
    }
    recipe, prepared, source = made(tmp_path, "sst2", **settings)
    training = Finetuning(recipe, prepared, source, Runtime.start(), say=pytest.fail)
    result = training.train(tmp_path / "run", progress=False)
    assert result.steps == training.job.length
    assert (training.graphs is None) == (compile == "off")
    assert training.graphs is None or (training.graphs.recorded and training.graphs.is_on)


@needs_gpu
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_packed_vectors_are_the_padded_ones_in_order(tmp_path: Path, pooling: Any) -> None:
    texts = [
        " ".join(sentences[: 1 + number % 5])
        for number, sentences in enumerate(tiny_documents(300))
    ]
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path))
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, vocab_size=tokenizer.vocab_size, max_positions=128)
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),)))
    truth = Predictor(
        TorchEngine(Checkpoint(model=copy.deepcopy(model), tokenizer=tokenizer))
    ).embed(texts, pooling=pooling)

    def error(**settings: Any) -> float:
        checkpoint = Checkpoint(model=copy.deepcopy(model), tokenizer=tokenizer)
        actual = Predictor(
            TorchEngine(checkpoint, device="cuda", batch_tokens=2000, **settings)
        ).embed(texts, pooling=pooling)
        return float(np.linalg.norm(actual - truth) / np.linalg.norm(truth))

    assert error(dtype="float32") < 5e-3  # TF32 or not
    assert error() < 0.03
    assert error(compile=True) < 0.03


def test_answers_of_any_depth_are_those_of_a_direct_call_on_a_cpu(tmp_path: Path) -> None:
    """Texts come at different ticks, and leave at exits; masks are filled beside them."""
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path))
    torch.manual_seed(0)
    size = {"vocab_size": tokenizer.vocab_size, "max_positions": 128, "init_std": 0.1}
    labels = ("no", "yes")
    heads = (
        HeadConfig(kind="masked"),
        HeadConfig(kind="classify", labels=labels, exits="each"),
    )
    model = Model(ModelConfig(encoder=EncoderConfig(**SHAPE, **size), heads=heads))
    scored: Any = {"scores": ("accuracy",), "head": "classify"}
    task = Task(name="classify", kind="classify", labels=labels, **scored)
    card = TaskCard(task=task, max_length=64)

    def predictor(device: str) -> Predictor:
        checkpoint = Checkpoint(model=copy.deepcopy(model), tokenizer=tokenizer)
        engine = TorchEngine(checkpoint, device=device, dtype="float32")
        engine.exit_rule = ExitRule(criterion="patience", threshold=1.0)
        return Predictor(engine, task=card.to_dict())

    usual, other = predictor("cpu"), predictor(DEVICE)
    texts = [sentences[0] for sentences in tiny_documents(24)]
    masked = [f"the [MASK] {text}" for text in texts[:8]]
    continuous, results = Continuous(other), {}
    waiting = [("classify", text_example(text)) for text in texts]
    waiting += [("fill", text) for text in masked]
    for ticket, (verb, item) in enumerate(waiting):
        continuous.admit(verb, item, ticket, top=3)
        results |= dict(continuous.tick()) if ticket % 3 == 0 else {}
    while len(continuous):
        results |= dict(continuous.tick())

    def values(predictions: Any, guesses: Any) -> list[Any]:
        numbers = [[*each.probabilities.values(), each.depth] for each in predictions]
        return [numbers, [[guess.probability for guess in mask] for (mask,) in guesses]]

    expected = values(usual.classify(texts), usual.fill(masked, top=3))
    assert len({depth for *_, depth in expected[0]}) > 1
    layers, more = (read_layers(each, [text_example(t) for t in texts]) for each in (usual, other))
    for actual in (
        values([results[n] for n in range(24)], [results[n] for n in range(24, 32)]),
        values(other.classify(texts), other.fill(masked, top=3)),
    ):
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
    for mine, theirs in zip(more, layers, strict=True):
        np.testing.assert_allclose([mine.l2, mine.cosine], [theirs.l2, theirs.cosine], rtol=1e-2)


@pytest.mark.parametrize("words", [4, 200], ids=["short rows", "long rows"])
def test_the_passes_of_a_batch_in_parts_drop_the_same(tmp_path: Path, words: int) -> None:
    """Vectors are computed without gradients first, and again with them: only where both passes
    drop the same are the gradients those of all vectors at once."""
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path))
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, vocab_size=tokenizer.vocab_size)
    source = Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer)
    text = " ".join(sentence for sentences in tiny_documents(64) for sentence in sentences).split()
    parts = [" ".join(text[start : start + words]) for start in range(0, 16 * 8, 8)]
    pairs = [{"anchor": a, "positive": b} for a, b in zip(parts[::2], parts[1::2], strict=True)]
    recipe = EmbedRecipe(epochs=None, steps=4, batch_size=8, max_length=400, encoder_dropout=0.1)
    tuning = EmbedTuning(recipe, open_pairs(pairs), source, Runtime.start(), say=pytest.fail)
    job, model = tuning.job, tuning.learner.working.model.train()
    batch = job.batch(0)
    microbatches = [batch.rows(start, start + 2) for start in range(0, 8, 2)]
    for each in microbatches:
        job.mean(job.losses(model, each, 0), job.counts(batch)).backward()  # type: ignore[no-untyped-call]
    actual = flat(model)
    model.zero_grad()
    vectors = torch.cat([job._vectors(model, each, 0) for each in microbatches])
    job.loss(vectors, batch.units).backward()  # type: ignore[no-untyped-call]
    expected = flat(model)
    assert (actual - expected).norm() < (3e-2 if DEVICE == "cuda" else 1e-5) * expected.norm()
