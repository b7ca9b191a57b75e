"""What an export costs: an exported folder and the checkpoint it came from in; its size, how near
its vectors are to float32's, and scores before and after, out."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.config import POOLED_HEADS, Pooling
from litebert.errors import DataError, MissingExtraError
from litebert.infer.cpu import processor
from litebert.infer.engine import Engine
from litebert.infer.export.whole import EXACT, FOLDER
from litebert.infer.torch_engine import TorchEngine
from litebert.packing import HostBatch, budget_batches
from litebert.shapes import Float
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.decode import Batches, Outputs, Query, decode
from litebert.tasks.encode.encode import encode, encode_texts
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
    only,
)
from litebert.tasks.predictions import Prediction
from litebert.tasks.registry import BENCHMARKS, label_names, open_task_as, predict_as
from litebert.tasks.scores.score import score
from litebert.tasks.scores.vectors import SIMILARITY, score_similarity
from litebert.tasks.tables.columns import find_columns
from litebert.tasks.tables.pairs import open_scored_pairs
from litebert.tasks.tables.rows import read_rows
from litebert.tasks.task import EmbedCard, Task, TaskCard, is_embed_card
from litebert.text.tokenizer import Tokenizer

BUILT_IN = (
    "A short one.",
    "The committee met twice in the spring, and decided nothing until the winter had passed.",
    "Is there anything in this drawer that belongs to you?",
    "Prices rose by 4 % in March, after a fall of 1.5 % in the month before.",
    "The film is slow, but its last half hour is worth the wait: nobody who sees it will forget "
    "the house by the sea, the two brothers, or the letter that comes too late.",
    "To open the file, choose a folder, then the name; the program asks before it replaces one.",
    "She had been walking since the morning. The road went uphill between stone walls, and where "
    "it turned she could see the whole valley, the river, and the smoke of the town behind it.",
    "no",
)
"""Texts to compare by where no others are given."""


_BATCH_TOKENS = 2048
"""Padded tokens in a batch of a whole graph."""
_FEW_NUMBERS = 16
"""Fewer than these have a cosine that says little: one number's is 1 whatever its error."""
_MOST_TEXTS = 512
"""Texts of a file that ranges are measured on and vectors compared by."""


@dataclass(frozen=True, kw_only=True)
class CheckData:
    """What an export is calibrated on and compared by."""

    texts: Sequence[str]
    task: Task | None = None
    examples: Sequence[TaskExample] = ()
    """Of dev, or pairs of texts, to be scored."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """An export beside the float32 model."""

    num_bytes: int
    """Of the folder."""
    ratio: float
    """Of its graphs and tensors, to the weights in float32; with --whole of model.onnx."""
    texts: int
    cosine: float
    """Between the two vectors of a text, on average: of [CLS] where heads pool, else the mean."""
    least_cosine: float
    score: str | None = None
    """Name of the score that is compared; None without labeled data."""
    before: float | None = None
    after: float | None = None
    graphs: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each of the ordinary graphs (--whole)."""
    examples: int = 0
    """That were scored."""
    notes: tuple[str, ...] = ()
    """How the data were read."""


def read_data(checkpoint: Checkpoint, data: str | None) -> CheckData:
    """The texts and labeled examples of a file or a benchmark's folder; built-in texts without."""
    if data is None:
        return CheckData(texts=BUILT_IN)
    if checkpoint.task is None or is_embed_card(checkpoint.task):
        if not Path(data).is_file():
            raise DataError(f"{data}: no such file; expected a file with texts")
        texts = _read_texts(data)
        if checkpoint.task is not None:
            with contextlib.suppress(DataError):  # texts without scores
                pairs, notes = open_scored_pairs(data)
                return CheckData(texts=texts, task=SIMILARITY, examples=pairs, notes=notes)
        return CheckData(texts=texts)
    card = TaskCard.from_dict(checkpoint.task)
    is_benchmark = card.task.name in BENCHMARKS and Path(data).is_dir()
    name = card.task.name if is_benchmark else card.task.kind
    opened = open_task_as(card, name, data, ("dev",))
    examples = opened.splits["dev"]
    texts = [text for example in examples[:_MOST_TEXTS] for text in _texts_of(example)]
    return CheckData(
        texts=texts[:_MOST_TEXTS], task=opened.task, examples=examples, notes=opened.notes
    )


def _read_texts(data: str) -> list[str]:
    """The texts of a file: of a table the columns that hold some, by their names, else all."""
    rows = [row for _, row in islice(read_rows(data), _MOST_TEXTS)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with contextlib.suppress(DataError):
        columns, _ = find_columns("regress", names)
        names = [name for name in (columns.text, columns.second) if name is not None]
    cells = (row.get(name) for row in rows for name in names)
    texts = [each for each in cells if isinstance(each, str) and each.strip()]
    if not texts:
        raise DataError(f"{data} holds no text to compare by")
    return texts[:_MOST_TEXTS]


def compare(checkpoint: Checkpoint, folder: Path, engine: Engine, data: CheckData) -> ExportReport:
    """The report; `engine` runs the folder's graphs."""
    config = checkpoint.model.config
    files = [path for path in folder.iterdir() if path.is_file()]
    graphs = [path for path in files if path.suffix in (".onnx", ".xml", ".bin", ".npy")]
    weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
    pooling: Pooling = "cls" if any(head.kind in POOLED_HEADS for head in config.heads) else "mean"
    if checkpoint.task is not None and is_embed_card(checkpoint.task):
        pooling = EmbedCard.from_dict(checkpoint.task).pooling
    engines = TorchEngine(checkpoint), engine
    exact, theirs = (
        each.embed(data.texts, pooling=pooling, normalize=True).astype(np.float64)
        for each in engines
    )
    cosines = (exact * theirs).sum(1)
    report = ExportReport(
        num_bytes=sum(path.stat().st_size for path in files),
        ratio=sum(path.stat().st_size for path in graphs) / weights,
        texts=len(data.texts),
        cosine=float(cosines.mean()),
        least_cosine=float(cosines.min()),
    )
    if data.task is None or checkpoint.task is None:
        return report
    before, after = (_score(each, checkpoint.task, data) for each in engines)
    return _scored(report, data, before, after)


def compare_whole(checkpoint: Checkpoint, folder: Path, data: CheckData) -> ExportReport:
    """The report of one ordinary graph, or of the worst of those that this processor computes
    exactly: cosines of what they give, logits or the last states, and the lowest score."""
    ours = TorchEngine(checkpoint)
    limit = checkpoint.model.config.encoder.max_positions
    rows = encode_texts(ours.tokenizer, data.texts, max_length=limit)
    files = {path.name: path for path in sorted((folder / FOLDER).iterdir())}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    graphs = [
        WholeGraph(files[name], ours.tokenizer, max_length=limit)
        for name in EXACT[processor()]
        if name in files
    ]
    exact = [_exact(checkpoint, row) for row in rows]
    cosines = [_cosines(graph, rows, exact) for graph in graphs]
    weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
    report = ExportReport(
        num_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        ratio=sizes["model.onnx"] / weights,
        texts=len(rows),
        cosine=min(float(each.mean()) for each in cosines),
        least_cosine=min(float(each.min()) for each in cosines),
        graphs=sizes,
    )
    if data.task is None or checkpoint.task is None:
        return report
    before = _score(ours, checkpoint.task, data)
    after = min(_score(graph, checkpoint.task, data) for graph in graphs)
    return _scored(report, data, before, after)


class WholeGraph:
    """One ordinary graph, which plain onnxruntime runs."""

    def __init__(self, path: Path, tokenizer: Tokenizer, *, max_length: int = 512) -> None:
        """`max_length`: tokens of a text that is embedded."""
        try:
            import onnxruntime
        except ImportError as error:
            purpose = "the check of litebert export --whole"
            raise MissingExtraError("onnxruntime", extra="onnx", purpose=purpose) from error

        self.name = path.name
        self._tokenizer, self._max_length = tokenizer, max_length
        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, batch: HostBatch) -> dict[str, np.ndarray]:
        token_ids = batch.arrays["token_ids"].astype(np.int64)
        zeros = np.zeros_like(token_ids)
        inputs = {
            "input_ids": token_ids,
            "attention_mask": batch.arrays.get("mask", zeros + 1).astype(np.int64),
            "token_type_ids": batch.arrays.get("segment_ids", zeros).astype(np.int64),
        }
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))

    def predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        inputs = encode(card, examples, self._tokenizer)
        plan = budget_batches(inputs.lengths, tokens=_BATCH_TOKENS, sizes=inputs.num_rows)

        def batches() -> Batches:
            for units in plan:
                batch = inputs.batch(units).padded()
                yield units, batch, Outputs(logits=self._logits(batch))

        return decode(Query(card=card, inputs=inputs, examples=examples, batches=batches()))

    def embed(
        self, texts: Sequence[str], *, pooling: Pooling, normalize: bool = False
    ) -> Float[np.ndarray, "texts hidden"]:
        assert not normalize
        rows = encode_texts(self._tokenizer, texts, max_length=self._max_length)
        states = (self._states(row) for row in rows)
        return np.stack([each[0] if pooling == "cls" else each.mean(0) for each in states])

    def _states(self, row: np.ndarray) -> np.ndarray:
        batch = HostBatch(arrays={"token_ids": row[None]}, longest=len(row))
        states: np.ndarray = self.run(batch)["last_hidden_state"][0]
        return states

    def _logits(self, batch: HostBatch) -> np.ndarray:
        """As the batch's head gives them."""
        outputs = self.run(batch)
        if batch.head == "span":
            return np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
        logits = outputs["logits"]
        if batch.head == "tag":
            logits = logits.reshape(-1, logits.shape[2])[batch.arrays["words"]]
        return logits


def _exact(checkpoint: Checkpoint, row: np.ndarray) -> dict[str, np.ndarray]:
    """What torch computes, by the names of the graph's outputs."""
    with torch.inference_mode():
        ids = torch.from_numpy(row.astype(np.int64))[None]
        output = checkpoint.model(token_ids=ids, segment_ids=torch.zeros_like(ids))
    results = {"last_hidden_state": output.states.numpy()}
    for kind, logits in output.logits.items():
        if kind == "span":
            results |= {
                "start_logits": logits[..., 0].numpy(),
                "end_logits": logits[..., 1].numpy(),
            }
        elif isinstance(logits, torch.Tensor) and kind not in ("masked", "order"):
            results["logits"] = logits.numpy()
    return results


def _cosines(
    graph: WholeGraph, rows: Sequence[np.ndarray], exact: Sequence[dict[str, np.ndarray]]
) -> np.ndarray:
    """Of each text; of all texts together where each gives but a few numbers."""
    pairs: list[tuple[np.ndarray, ...]] = []
    for row, expected in zip(rows, exact, strict=True):
        outputs = graph.run(HostBatch(arrays={"token_ids": row[None]}, longest=len(row)))
        pairs.append(
            tuple(
                np.concatenate([results[name].ravel() for name in outputs]).astype(np.float64)
                for results in (outputs, expected)
            )
        )
    if max(len(theirs) for theirs, _ in pairs) < _FEW_NUMBERS:
        pairs = [tuple(np.concatenate(each) for each in zip(*pairs, strict=True))]
    return np.array(
        [
            theirs @ ours / max(np.linalg.norm(theirs) * np.linalg.norm(ours), 1e-30)
            for theirs, ours in pairs
        ]
    )


def _scored(report: ExportReport, data: CheckData, before: float, after: float) -> ExportReport:
    assert data.task is not None
    return replace(
        report,
        score=data.task.scores[0],
        before=before,
        after=after,
        examples=len(data.examples),
        notes=data.notes,
    )


def _score(engine: Engine | WholeGraph, task: Mapping[str, Any], data: CheckData) -> float:
    assert data.task is not None
    if is_embed_card(task):
        pairs, pooling = only(data.examples, TextExample), EmbedCard.from_dict(task).pooling
        texts = [*(pair.first for pair in pairs), *(pair.second or "" for pair in pairs)]
        vectors = engine.embed(texts, pooling=pooling, normalize=False)
        return score_similarity(pairs, vectors, samples=0).scores[data.task.scores[0]]
    card = TaskCard.from_dict(task)
    label_of = label_names(card, data.task)
    predictions = predict_as(label_of, lambda rows: engine.predict(card, rows), data.examples)
    return score(data.task, data.examples, predictions)[data.task.scores[0]]


def _texts_of(example: Any) -> tuple[str, ...]:
    if isinstance(example, AnswerExample | ChoiceExample):
        return example.question, example.context
    if isinstance(example, TagExample):
        return (" ".join(example.words),)
    return (example.first,) if example.second is None else (example.first, example.second)
