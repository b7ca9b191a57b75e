"""Layer by layer: distances are those of the encoder's own walk, answers at the last depth are
those of predict, and a text leaves where the early exit leaves; on every engine."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from litebert.errors import ConfigError
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.layers import read_layers
from litebert.infer.predictor import Predictor, load
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode_texts
from litebert.tasks.examples import TextExample
from tests.helpers.models import texts
from tests.infer.test_exits import CALIBRATED, checkpoint_of
from tests.infer.test_export import model_of

ENGINES = ("torch", "onnx", "openvino")
ROWS = [TextExample(key=str(n), first=text) for n, text in enumerate(texts(9))]


def opened(folder: Path, checkpoint: Checkpoint, engine: Any, **options: Any) -> Predictor:
    if engine == "torch":
        return load(checkpoint.save(folder / "model"), device="cpu", engine=engine, **options)
    export_folder(checkpoint, folder / "out", ExportOptions(runtime=engine))
    return load(folder / "out", engine=engine, **options)


def walked(checkpoint: Checkpoint, text: str) -> tuple[list[float], list[float]]:
    """L2 and cosine of each layer, by the plain encoder, without padding."""
    assert checkpoint.tokenizer is not None
    (row,) = encode_texts(checkpoint.tokenizer, [text], max_length=64)
    encoder = checkpoint.model.encoder
    l2, cosine = [], []
    with torch.inference_mode():
        before = encoder.embedding(torch.tensor(row.tolist())[None])
        for _, after in encoder.walk(before):
            l2.append(float((after - before).norm(dim=-1).mean()))
            cosine.append(float(F.cosine_similarity(after, before, dim=-1).mean()))
            before = after
    return l2, cosine


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("encoder", [{}, {"norm": "pre", "positions": "rotary"}], ids=str)
def test_distances_are_those_of_the_encoder(
    tmp_path: Path, engine: str, encoder: dict[str, Any]
) -> None:
    checkpoint = model_of(tmp_path, ("masked",), **encoder)
    predictor = opened(tmp_path, checkpoint, engine, batch_tokens=128)
    for row, reading in zip(ROWS, read_layers(predictor, ROWS), strict=True):
        l2, cosine = walked(checkpoint, row.first)
        assert reading.l2 == pytest.approx(l2, rel=1e-4)
        assert reading.cosine == pytest.approx(cosine, abs=1e-5)
        assert reading.to_dict()["exits"] is None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("exits", ["each", "one"])
def test_a_text_leaves_where_the_early_exit_leaves(tmp_path: Path, engine: str, exits: str) -> None:
    checkpoint = checkpoint_of(tmp_path, "classify", exits)
    predictor = opened(tmp_path, checkpoint, engine, batch_tokens=128)
    full = list(predictor.predict(ROWS))
    first = [reading.answers[0] for reading in read_layers(predictor, ROWS)]
    sure = sorted(max(answer.probabilities.values()) for answer in first)  # type: ignore[union-attr]
    predictor.leave_early("confidence", sure[len(sure) // 2] - 1e-5)
    readings = read_layers(predictor, ROWS)
    early = list(predictor.predict(ROWS))
    depths = []
    for reading, last, left in zip(readings, full, early, strict=True):
        assert len(reading.answers) == len(reading.l2) == 4
        assert reading.leaves is not None
        leave = reading.leaves["confidence"]
        assert leave.depth == left.depth  # type: ignore[union-attr]
        depths.append(leave.depth)
        for depth, expected in ((4, last), (leave.depth, left)):
            answer = reading.answers[depth - 1]
            assert answer.probabilities == pytest.approx(expected.probabilities, abs=1e-4)  # type: ignore[union-attr]
    assert len(set(depths)) > 1


def test_the_rule_in_use_is_named_beside_the_calibrated_one(tmp_path: Path) -> None:
    predictor = opened(tmp_path, checkpoint_of(tmp_path, "classify", "one"), "torch")
    predictor.leave_early("patience", 2.0)
    (reading,) = read_layers(predictor, ROWS[:1])
    leaves = reading.to_dict()["exits"]["leaves"]
    thresholds = {criterion: leave["threshold"] for criterion, leave in leaves.items()}
    assert thresholds == {"confidence": CALIBRATED["confidence"]["threshold"], "patience": 2.0}


def test_pairs_need_a_head_that_reads_them(tmp_path: Path) -> None:
    predictor = opened(tmp_path, model_of(tmp_path, ("masked",)), "torch")
    with pytest.raises(ConfigError, match="no head that reads pairs; send single texts"):
        read_layers(predictor, [TextExample(key="", first="a", second="b")])


def test_reversible_layers_are_not_read_one_by_one(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, ("masked",), reversible=True, norm="pre")
    predictor = opened(tmp_path, checkpoint, "torch")
    with pytest.raises(ConfigError, match="reversible layers carry two streams of states"):
        read_layers(predictor, ROWS[:1])
