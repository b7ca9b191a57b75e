"""The benchmarks of engines and of early exit run to their end, at tiny size."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from tests.helpers.models import texts
from tests.helpers.programs import run_program
from tests.infer.test_exits import checkpoint_of
from tests.infer.test_export import model_of


def test_engines_are_measured_to_the_end(tmp_path: Path) -> None:
    out = tmp_path / "engines.json"
    flags = ["--shapes", "litebert-mini", "--threads", "1", "--rounds", "1", "--rows", "4"]
    done = run_program("bench.cpu.engines", *flags, "--out", str(out))
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert sorted(report["fastest"]) == ["onnx", "openvino", "torch"]
    batch = report["litebert-mini, 1 threads, 1 x 16"]
    assert set(batch["layers"]) == {"onnx int8 whole", "openvino int8 whole"}
    assert "litebert-mini, 1 threads, 4 rows of 8 to 128" in report
    assert "litebert-mini, 1 threads, 16 x 32, ms: " in done.stderr


def test_exits_are_measured_at_two_batch_sizes(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, "classify", "each")
    model = replace(checkpoint).save(tmp_path / "model")
    rows = zip(texts(40), load(model, device="cpu").classify(texts(40)), strict=True)
    data = tmp_path / "dev.jsonl"
    data.write_text(
        "".join(json.dumps({"text": text, "label": each.label}) + "\n" for text, each in rows)
    )
    flags = ["classify", "--model", str(model), "--data", str(data), "--rounds", "1"]
    done = run_program("bench.cpu.exits", *flags, "--rules", "patience=1", "--precision", "float32")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["onnx"]
    assert [each["criterion"] for each in report["dev"]["rows"]] == ["confidence", "patience"]
    for size in (1, 32):
        saved = report[f"batch {size}"]["patience 1"]["layers_saved"]
        assert saved == pytest.approx(report["dev"]["rows"][1]["layers_saved"])


def test_vectors_are_measured_beside_a_graph_in_the_hub_s_layout(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, ("masked",))
    model = checkpoint.save(tmp_path / "model")
    whole = ExportOptions(whole=True, precision="int8")
    export_folder(checkpoint, tmp_path / "peer", whole)
    pairs = checkpoint_of(tmp_path, "regress", "each").save(tmp_path / "pairs")
    data = tmp_path / "dev.csv"
    rows = zip(texts(20), texts(20, seed=1), strict=True)
    lines = [f'"{first}","{second}",{number % 5}' for number, (first, second) in enumerate(rows)]
    data.write_text("\n".join(["text_a,text_b,score", *lines]) + "\n")
    flags = ["--peer", tmp_path / "peer", "--data", data, "--models", model, "--pairs", pairs]
    done = run_program("bench.cpu.vectors", *flags, "--threshold", "2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    (peer, ours, full, early) = json.loads(done.stdout)["models"].values()
    assert ours["spearman"] == pytest.approx(peer["spearman"], abs=0.1)
    for each in (ours, full, early):
        assert each["texts_per_second"] > 0
        assert each["times_as_fast_as_the_peer"] > 0
