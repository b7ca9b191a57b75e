"""litebert export: a model in; a folder of graphs for ONNX Runtime, OpenVINO or a browser out."""

from dataclasses import asdict
from typing import Annotated

import tyro

from litebert.commands.marks import AnyModel, Json, Unverified, note
from litebert.files import to_json
from litebert.infer.exported import Format, Precision
from litebert.terminal import write_line


def export(
    *,
    model: AnyModel,
    out: str,
    runtime: Annotated[Format, tyro.conf.arg(name="format")] = "onnx",
    int8: bool = False,
    whole: bool = False,
    data: str | None = None,
    force: bool = False,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Export a model for ONNX Runtime, OpenVINO or a browser: one layer's graph, applied as often
    as the model has layers. `litebert.load` and every verb take a folder of the first two as
    --model, and answer without torch; one for a browser holds a page and a module of JavaScript.

    Args:
        out: The folder to write.
        runtime: What reads it: an engine of litebert, or a browser with onnxruntime-web.
        data: File or folder to check the export by. The dev split of the model's own task, read as
            litebert evaluate reads it, gives the score before and after, and so do scored pairs for
            a model tuned for embeddings; other models are compared by any texts. int8 for OpenVINO
            also measures the ranges of its inputs there. Without it built-in texts are compared.
        force: Write the folder even if its score falls by more than half a point.
        whole: Write one ordinary graph for other programs instead, as onnx/model.onnx in the
            Hub's layout; with --int8 also one for each kind of processor.
        int8: Store weights in 8 bits and compute with them; faster, and a quarter of the size.
    """
    from litebert.infer.export.folder import ExportOptions, export_model

    precision: Precision = "int8" if int8 else "float32"
    options = ExportOptions(
        runtime=runtime, precision=precision, data=data, force=force, whole=whole
    )
    report, notes = export_model(model, out, options, unverified=unverified)
    note(*notes)
    if json:
        write_line(to_json({"model": model, "out": out} | asdict(report), ensure_ascii=False))
        return
    if whole:
        for name, size in report.graphs.items():
            ratio = report.ratio * size / report.graphs["model.onnx"]
            write_line(
                f"{out}/onnx/{name}: {size / 1e6:.1f} MB, {ratio:.2f} of the float32 weights"
            )
    else:
        write_line(
            f"{out}: {report.num_bytes / 1e6:.1f} MB, {runtime}, {precision}; graphs and tensors "
            f"are {report.ratio:.2f} of the float32 weights"
        )
    write_line(
        f"cosine to float32: {report.cosine:.5f} on average, {report.least_cosine:.5f} at least, "
        f"over {report.texts} {'built-in texts' if data is None else 'texts of ' + data}"
    )
    if report.before is not None and report.after is not None:
        write_line(
            f"{report.score}: {100 * report.before:.1f} before, {100 * report.after:.1f} after, "
            f"over {report.examples:,} examples"
        )
    elif data is None:
        write_line("no score was compared: --data FILE gives texts with labels")
    if runtime == "web":
        write_line(f"next: npm install in {out}, then serve it over http; its README.md says how")
