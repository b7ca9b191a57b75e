"""litebert export: a checkpoint in, a folder of graphs out, complete or absent."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.checks import shorten
from litebert.config import ModelConfig
from litebert.errors import ConfigError, DataError, MissingExtraError
from litebert.files import encode, to_json, write_folder
from litebert.infer.cpu import weight_limit
from litebert.infer.engines import open_export
from litebert.infer.export.calibrate import measure_ranges
from litebert.infer.export.check import BUILT_IN, ExportReport, compare, compare_whole, read_data
from litebert.infer.export.graph import Quantization
from litebert.infer.export.network import Weights, exported_config, weights_of
from litebert.infer.export.parts import write_parts, write_tensors
from litebert.infer.export.whole import write_whole
from litebert.infer.exported import (
    CONFIG,
    GENERATOR_NOTE,
    SUFFIXES,
    TASK,
    ExportHeader,
    Format,
    Precision,
    Runtime,
    header_text,
)
from litebert.loading import load_checkpoint
from litebert.storage.checkpoint import Checkpoint

_MOST_POINTS = 0.5
"""Points of its score that an export may lose, of 100."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What to write."""

    runtime: Format = "onnx"
    precision: Precision = "float32"
    data: str | None = None
    """File to calibrate on and to compare by; None for built-in texts."""
    force: bool = False
    """Write the folder even if more than half a point is lost."""
    whole: bool = False
    """One ordinary graph for other programs (whole.py)."""

    def __post_init__(self) -> None:
        if self.whole and self.runtime == "web":
            raise ConfigError(
                "--whole writes one graph for other programs, --format web a folder for a browser; "
                "leave one of them out"
            )
        if self.whole and self.runtime != "onnx":
            raise ConfigError("--whole writes ONNX, which OpenVINO reads too; leave --format out")


def export_model(
    model: Path | str, out: Path | str, options: ExportOptions, *, unverified: bool = False
) -> tuple[ExportReport, tuple[str, ...]]:
    """Load a model of any kind, export and check it; what it costs, and notes."""
    if os.path.exists(out):  # not Path.exists, which raises where a name is too long
        raise ConfigError(f"{out} exists; choose another --out or remove it")
    checkpoint, notes = load_checkpoint(model, unverified=unverified)
    report = export_folder(checkpoint, out, options)
    return report, notes + left_out(checkpoint.model.config, whole=options.whole) + report.notes


def left_out(config: ModelConfig, *, whole: bool = False) -> tuple[str, ...]:
    """Notes about what of a model is not exported."""
    notes: tuple[str, ...] = ()
    if config.generator is not None:
        notes += (GENERATOR_NOTE,)
    if whole and any(head.exits != "none" for head in config.heads):
        notes += ("the exits are not exported: one ordinary graph always computes all layers",)
    return notes


def export_folder(
    checkpoint: Checkpoint,
    out: Path | str,
    options: ExportOptions | None = None,
    *,
    source: str = "",
) -> ExportReport:
    """Write the folder and check it before it gets its name; `source` is the sha256 of the
    checkpoint."""
    options = options or ExportOptions()
    data = read_data(checkpoint, options.data)
    reports: list[ExportReport] = []

    def write(folder: Path) -> None:
        if options.whole:
            write_whole(checkpoint, folder, int8=options.precision == "int8")
            report = compare_whole(checkpoint, folder, data)
        elif options.runtime == "web":
            from litebert.infer.export.web import write_web

            web = write_web(checkpoint, folder, int8=options.precision == "int8")
            report = compare(checkpoint, folder, web, data)
        else:
            write_export(checkpoint, folder, options, texts=data.texts, source=source)
            report = compare(checkpoint, folder, open_export(folder, unverified=True), data)
        if not options.force:
            _check_loss(report)
        reports.append(report)

    try:
        write_folder(out, write)
    except OSError as error:
        raise DataError(
            f"{shorten(str(out))} cannot be written ({error.strerror}); choose another --out"
        ) from error
    return reports[0]


def write_export(
    checkpoint: Checkpoint,
    folder: Path,
    options: ExportOptions,
    *,
    texts: Sequence[str] = BUILT_IN,
    source: str = "",
) -> None:
    """Write the files of an engine's folder, which the caller publishes."""
    assert options.runtime != "web"
    config, weights = exported_config(checkpoint.model.config), weights_of(checkpoint)
    quantization = _quantization(checkpoint, options, texts)
    header = ExportHeader(
        runtime=options.runtime,
        precision=options.precision,
        weight_limit=quantization.limit,
        source=source,
        lacks_generator=checkpoint.model.config.generator is not None,
    )
    (folder / CONFIG).write_bytes(encode(header_text(header, config)))
    _write_graphs(folder, config, weights, quantization, options.runtime)
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save(folder, for_huggingface=False)
    if checkpoint.task is not None:
        text = to_json(dict(checkpoint.task), indent=2, ensure_ascii=False)
        (folder / TASK).write_text(text + "\n", encoding="utf-8")


def _write_graphs(
    folder: Path,
    config: ModelConfig,
    weights: Weights,
    quantization: Quantization,
    runtime: Runtime,
) -> None:
    """The graphs and the tensors that they share."""
    for name, values in write_tensors(config, weights, quantization).items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)
    for name, data in write_parts(config, weights, quantization, runtime).items():
        path = folder / f"{name}{SUFFIXES[runtime][0]}"
        if runtime == "onnx":
            path.write_bytes(data)
        else:
            _save_openvino(data, path)


def _save_openvino(data: bytes, path: Path) -> None:
    """An ONNX graph as OpenVINO's two files, .xml and .bin."""
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError(
            "openvino", extra="openvino", purpose="litebert export --format openvino"
        ) from error
    openvino.save_model(openvino.Core().read_model(io.BytesIO(data)), path, compress_to_fp16=False)


def _quantization(
    checkpoint: Checkpoint, options: ExportOptions, texts: Sequence[str]
) -> Quantization:
    """ONNX Runtime measures inputs as they come; OpenVINO computes in int8 only with ranges that
    are known before."""
    if options.precision == "float32":
        return Quantization()
    if options.runtime == "onnx":
        return Quantization(precision="dynamic", limit=weight_limit())
    ranges = measure_ranges(checkpoint, texts)
    return Quantization(precision="static", limit=weight_limit(), ranges=ranges)


def _check_loss(report: ExportReport) -> None:
    if report.before is None or report.after is None:
        return
    lost = 100 * (report.before - report.after)
    if lost > _MOST_POINTS:
        raise DataError(
            f"{report.score} falls by {lost:.1f} points, from {100 * report.before:.1f} to "
            f"{100 * report.after:.1f}, and {_MOST_POINTS} are allowed; export in float32, or add "
            "--force"
        )
