"""The README's numbers are the results', and what it shows of a terminal is what the commands
print."""

import subprocess
from pathlib import Path

from bench.studies import benchmarks
from tests.helpers.programs import ROOT, run_program
from tools import model_table

MODEL = "results/2026-11-16_model"


def tool(name: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    return run_program(f"tools.{name}", *flags)


def test_terminal_blocks_are_true() -> None:
    done = tool("readme", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_that_is_not_true_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo whale 0.50\nwhale 0.51\n$ echo 2.00\n2.00\n```\n")
    assert tool("readme", str(page), "--check").returncode == 0  # a last digit is no lie
    page.write_text(
        page.read_text().replace("whale 0.51", "whale 0.61").replace("\n2.00", "\nship")
    )
    done = tool("readme", str(page), "--check")
    assert done.returncode == 1
    assert "the page has   whale 0.61\nit is now      whale 0.50" in done.stdout
    assert "the page has   ship" in done.stdout
    assert tool("readme", str(page)).returncode == 0
    assert page.read_text() == "```console\n$ echo whale 0.50\nwhale 0.50\n$ echo 2.00\n2.00\n```\n"


def test_the_table_of_scores_is_that_of_the_results(tmp_path: Path) -> None:
    assert tool("model_table", MODEL, "--readme", "README.md", "--check").returncode == 0
    page = tmp_path / "README.md"
    page.write_text((ROOT / "README.md").read_text().replace("BERT-Mini", "BERT-Maxi"))
    assert tool("model_table", MODEL, "--readme", str(page), "--check").returncode == 1


def test_tables_say_what_a_run_began_with() -> None:
    start = "starts from a model fine-tuned on nli-all"
    rows, pretraining = model_table.read(ROOT / MODEL)
    begun = rows | {run: rows[run] | {"note": start} for run in ("rte", "mrpc")}
    record = benchmarks.table(list(begun.values()))
    assert record.count(f"| {start}; median of 5 seeds, ") == 2
    shown = model_table.table({"base": (begun, pretraining)})
    assert shown.endswith(f"\n`base`, MRPC, RTE: {start}.\n")


def test_every_pretrained_model_has_a_row() -> None:
    one = model_table.read(ROOT / MODEL)
    shown = model_table.table({"base": one, "small": one}).splitlines()
    assert [line.split("`")[1] for line in shown if "litebert `" in line] == ["base", "small"]
    assert sum("majority baseline" in line for line in shown) == 1
    done = tool("model_table", f"small={MODEL}", "--check")
    assert done.returncode == 2
    assert "embedded, and without results: base; add NAME=RESULTS" in done.stderr
