"""The bench of the step on a GPU works before it meets one: all of its code at tiny size on a CPU,
and its arithmetic."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.common.peers import huggingface_settings
from bench.gpu.cases import CASES, MEMORY, MODES, NEEDS, TINY, needs
from bench.gpu.contenders import Theirs
from bench.gpu.meter import Meter, search
from bench.gpu.step import arguments
from bench.gpu.table import ratios, table
from litebert.testing import tiny_shards
from tests.helpers.programs import run_program


def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    words = ["--tiny", "--batches", "1", "--parts", "speed", "memory", "loader", "largest"]
    words += ["--profile", "--out", str(tmp_path)]
    done = run_program("bench.gpu.step", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert done.stdout.splitlines()[: len(rows)] == [
        json.dumps(row, ensure_ascii=False) for row in rows
    ]
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["packages"]["torch"]
    assert record["command"].startswith("python -m bench.gpu.step --tiny")
    speed = {(row["shape"], row["who"]): row for row in rows if row["part"] == "speed"}
    assert list(speed) == [
        ("tiny", w) for w in ("litebert", "huggingface padded", "huggingface full")
    ] + [("tiny-fp8", "litebert")]
    plain, fp8 = speed["tiny", "litebert"], speed["tiny-fp8", "litebert"]
    assert plain["is_exact"]
    assert plain["errors"]["ours"] == pytest.approx(
        plain["errors"]["plain"]
    )  # on a CPU they are the same pass
    assert 1 < fp8["error_ratio"] < 10
    for row in speed.values():
        assert 0 < row["real_ktok_s"] <= row["positions_ktok_s"]
    assert (
        speed["tiny", "huggingface full"]["real_ktok_s"]
        == speed["tiny", "huggingface full"]["positions_ktok_s"]
    )
    assert 0 <= plain["waited"] < 1
    profiles = [row for row in rows if row["part"] == "profile"]
    assert [(row["shape"], row["who"]) for row in profiles] == list(speed)
    assert all(row["timed_ms"] == speed[row["shape"], row["who"]]["step_ms"] for row in profiles)
    assert next(row for row in rows if row["part"] == "memory")["fits"]
    assert [row["largest"] for row in rows if "largest" in row] == [32] * 6
    assert "| tiny | litebert | 8 | 8 | all kept |" in (tmp_path / "table.md").read_text()


def test_a_part_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    words = [
        "--data",
        str(tmp_path / "nowhere"),
        "--shapes",
        "base-512",
        "--parts",
        "loader",
        "memory",
    ]
    done = run_program("bench.gpu.step", *words)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [row["part"] for row in rows] == ["environment", "loader", "memory"]
    assert all("failed" in row for row in rows[1:])


@pytest.mark.parametrize(
    ("fixed", "a_row", "limit"), [(2.0, 0.11, 24), (4.0, 1.3, 24), (0.5, 0.01, 9), (2.0, 0.7, 24)]
)
@pytest.mark.parametrize("bend", [0.0, 1e-3])
def test_the_largest_batch_is_found_in_few_tries(
    fixed: float, a_row: float, limit: float, bend: float
) -> None:
    """By a memory that grows with rows, straight or a little bent."""
    tried: list[int] = []

    def peak(rows: int) -> float | None:
        tried.append(rows)
        needs = fixed + a_row * rows * (1 + bend * rows)
        return needs if needs <= limit else None

    best, most = (
        search(peak, 8, limit),
        next(rows for rows in range(10_000, 0, -1) if peak(rows) is not None),
    )
    tries = tried[: tried.index(10_000)]
    assert best in tries
    assert peak(best) is not None
    assert len(tries) <= 6
    assert best >= (0.9 * most - 8 if not bend else 0.8 * most - 8)


def test_nothing_fits_a_limit_of_nothing() -> None:
    assert search(lambda rows: None, 8, 1.0) == 0


def test_the_page_says_what_was_too_many() -> None:
    name = {"part": "largest", "shape": "base-512", "mode": "all kept", "limit_gib": 22.0}
    tries = [
        name | {"rows": rows, "fits": fits}
        for rows, fits in ((64, True), (232, False), (144, True), (176, False))
    ]
    other = name | {"mode": "recompute", "rows": 8, "fits": False}
    assert "| base-512 | all kept | 22.0 | 144 | 176 |" in table(
        [*tries, other, name | {"largest": 144}]
    )


def test_ratios_take_the_best_of_each_side_and_no_step_that_errs() -> None:
    def row(shape: str, who: str, real: float, positions: float, **more: Any) -> dict[str, Any]:
        return {
            "part": "speed",
            "shape": shape,
            "who": who,
            "real_ktok_s": real,
            "positions_ktok_s": positions,
            **more,
        }

    rows = [
        row("xxlarge-512", "litebert", 40.0, 50.0, is_exact=True),
        row("xxlarge-512", "litebert", 90.0, 99.0, is_exact=False),
        row("xxlarge-512-fp8", "litebert", 60.0, 75.0),
        row("xxlarge-512-fp8", "litebert", 70.0, 90.0, fast_backward=True),
        row("xxlarge-512", "huggingface padded", 20.0, 25.0),
        row("xxlarge-512", "huggingface padded", 16.0, 20.0),
        row("xxlarge-512", "huggingface full", 32.0, 32.0),
        {
            "part": "speed",
            "shape": "xxlarge-512",
            "who": "huggingface full",
            "failed": "out of memory",
        },
    ]
    plain, fp8 = ratios(rows)
    assert plain["× huggingface padded"] == 2.0
    assert plain["× huggingface full"] == 1.25
    assert plain["× huggingface full, padding counted"] == 1.56
    assert plain["× best of Hugging Face"] == 1.25
    assert fp8["× huggingface padded"] == 3.0
    assert fp8["× huggingface full"] == fp8["× best of Hugging Face"] == 1.88
    assert "× best of Hugging Face" not in next(ratios(rows[:1]))


@pytest.mark.parametrize(("kind", "strides"), [("padded", (576, 576, 24, 1)), ("full", None)])
def test_the_compiled_peer_asks_for_attention_that_fused_kernels_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, strides: tuple[int, ...] | None
) -> None:
    """A mask's last stride is 1, which memory-efficient attention and cuDNN ask for; without a mask
    there is really none."""
    seen: list[tuple[int, ...] | None] = []

    def look(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        for node in graph.graph.nodes:
            if node.target is torch.nn.functional.scaled_dot_product_attention:
                mask = node.kwargs["attn_mask"]
                seen.append(None if mask is None else mask.meta["example_value"].stride())
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=look))
    case = replace(TINY["tiny"], compile="on")
    Theirs(case, 4, kind, data=str(tiny_shards(tmp_path, documents=40)), device="cpu")()
    assert seen == [strides] * case.recipe(4, 4).encoder.num_layers


def test_what_no_longer_fits_the_time_is_left_out_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    meter = Meter(arguments(["--tiny", "--seconds", "60"]))
    meter.attempt(lambda: {"found": 1}, needs=10, part="memory")
    meter.attempt(lambda: {"found": 2}, needs=100, part="memory")
    usual = torch._dynamo.config.recompile_limit
    torch._dynamo.config.recompile_limit = 99  # as a run might leave it
    meter.attempt(
        lambda: {"found": 3, "limit": torch._dynamo.config.recompile_limit}, part="memory"
    )
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["found"], third["found"], third["limit"]) == (1, 3, usual)
    assert second == {"part": "memory", "skipped": second["skipped"]}
    assert second["skipped"].startswith("takes about 100 s, and ")


def test_every_row_has_an_expected_time() -> None:
    assert all(needs(part, shape) > 0 for part in NEEDS for shape in (*CASES, *TINY))


def test_every_case_is_a_recipe_that_a_gpu_reads_packed() -> None:
    for case in CASES.values():
        for rows, microbatch in case.ours:
            recipe = case.recipe(rows, microbatch)
            assert rows % microbatch == 0
            assert not recipe.encoder.attention_dropout
            assert huggingface_settings(recipe.encoder)["hidden_act"] == "gelu_new"
    assert MEMORY.keys() <= CASES.keys() | TINY.keys()
    for _, mode, _ in MEMORY.values():
        assert replace(CASES["base-512"], **MODES[mode]).recipe(64, 64) != CASES["base-512"].recipe(
            64, 64
        )
