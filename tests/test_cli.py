"""The command line's surface: every command with its flags (command_line.txt), instant help, errors
in one sentence with the promised exit code, JSON.

After a change of flags: python tests/test_cli.py > tests/command_line.txt
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from litebert import cli, doctor
from litebert.config import PRESETS


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "litebert.cli", *args], capture_output=True, text=True
    )


def surface() -> str:
    """Every command with its arguments and flags, as help shows them."""
    lines = []
    for name in cli.COMMANDS:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            assert cli.run([*name.split(), "--help"]) == 0
        flags = re.findall(r"^  (\S+(?: \S+)*)(?:  | *$)", shown.getvalue(), flags=re.MULTILINE)
        lines += [f"litebert {name}", *(f"    {flag}" for flag in flags if flag != "-h, --help")]
    return "\n".join(lines) + "\n"


def test_commands_and_flags_are_those_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that goes, or changes its type, breaks somebody's script: it shows here first."""
    monkeypatch.setenv("COLUMNS", "100")
    assert surface() == (Path(__file__).parent / "command_line.txt").read_text()


def test_the_docs_name_no_flag_that_a_command_does_not_have() -> None:
    root = Path(__file__).parent
    flags: dict[str, set[str]] = {}
    for line in (root / "command_line.txt").read_text().splitlines():
        if line.startswith("litebert "):
            current = flags.setdefault(line.removeprefix("litebert "), {"--help"})
        current |= set(re.findall(r"--[\w-]+", line))
    names = "|".join(sorted(flags, key=len, reverse=True))
    pages = [root.parent / "README.md", *(root.parent / "docs").rglob("*.md")]
    actual = 0
    for page in pages:
        text = page.read_text().replace("\\\n", " ")
        for name, rest in re.findall(
            rf"litebert (?:-m litebert.cli )?({names})\b([^`\n#|]*)", text
        ):
            unknown = set(re.findall(r"(?<![\w-])--[\w-]+", rest)) - flags[name]
            assert not unknown, f"{page.name}: litebert {name}{rest}"
            actual += 1
    assert actual > 30


def test_every_command_in_the_table_loads_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.COMMANDS:
        assert cli.run([*name.split(), "--help"]) == 0, name
        shown = capsys.readouterr().out
        assert f"usage: litebert {name}" in shown
        assert not any(words in shown for words in ("None", "unset by default", "{fixed}")), name


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"litebert {name}" in shown for name in cli.COMMANDS)


def test_help_and_errors_of_usage_import_neither_torch_nor_tyro() -> None:
    program = (
        "import sys, litebert.cli as c; c.run(['--help']); c.run(['x']); "
        "print({'torch', 'tyro'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("set()\n"), done


def test_info_of_a_preset_imports_no_torch() -> None:
    program = (
        "import sys, litebert.cli as c; c.run(['info', 'tiny', '--json']); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("False\n"), done


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (
            ["inf"],
            2,
            "litebert: there is no command 'inf'; did you mean 'info'? litebert --help lists them",
        ),
        (["data"], 2, "litebert data: choose one of: data build, data show"),
        (["info", "albert-huge"], 2, "litebert info: there is no preset 'albert-huge'; "),
        (
            ["info", "tiny", "--seq", "0"],
            2,
            "litebert info: seq and batch are at least 1; got 0 and 1",
        ),
        (["info", "--nonsense"], 2, "Unrecognized options: --nonsense"),
        (
            ["report", "x" * 300],
            2,
            f"litebert report: the path '{'x' * 59}… (",
        ),
    ],
)
def test_wrong_usage_is_answered_in_one_sentence(args: list[str], code: int, message: str) -> None:
    done = run(*args)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_runner_is_read_by_its_old_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--tokenizer", "nowhere", "--out", str(tmp_path), "--engine", "processes"]
    assert cli.run(["data", "build", str(tmp_path / "nowhere.txt"), *flags]) == 3
    assert capsys.readouterr().err.startswith("note: --engine is now --runner; ")


def test_version() -> None:
    assert run("--version").stdout == f"litebert {cli.__version__}\n"


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["info", "albert-base-v2", "--seq", "128", "--batch", "4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["preset"] == "albert-base-v2"
    assert facts["parameters"]["encoder"] == 11_683_584
    assert facts["flops_per_token"]["seq"] == 128
    assert facts["bytes"]["weights_float32"] == 4 * 11_683_584
    assert cli.run(["info", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(PRESETS)


def test_info_counts_switches(capsys: pytest.CaptureFixture[str]) -> None:
    def parameters(*settings: str) -> dict[str, int]:
        assert cli.run(["info", "albert-base-v2", "--json", "--encoder", *settings]) == 0
        counts: dict[str, int] = json.loads(capsys.readouterr().out)["parameters"]
        return counts

    plain = parameters("norm=pre")
    assert parameters("norm=pre", "reversible=true")["encoder"] == plain["encoder"]
    adapted = parameters("norm=pre", "adapter_rank=8")
    assert adapted["encoder"] - plain["encoder"] == 12 * 8 * (10 * 768 + 2 * 3072)
    assert adapted["encoder.adapters"] == adapted["encoder"] - plain["encoder"]
    ends = parameters("norm=pre", "unshared_ends=1")
    assert ends["encoder.ffn"] == 3 * plain["encoder.ffn"]
    bands = parameters("norm=pre", "embedding_bands=4000,16000")
    saved = 12_000 * 96 + 14_000 * 120 - 128 * (32 + 8)
    assert bands["encoder.embedding"] == plain["encoder.embedding"] - saved
    assert cli.run(["info", "tiny", "--encoder", "norm=pre", "reversible=true"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("tiny norm=pre reversible=True ")
    assert "checkpointed" not in shown
    assert cli.run(["info", "tiny", "--encoder", "reversible=true"]) == 2
    assert "reversible layers are pre-norm" in capsys.readouterr().err


def test_info_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["info", "albert-xxlarge-v1"]) == 0
    assert "222,595,584" in capsys.readouterr().out
    assert cli.run(["info"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in PRESETS)


def test_info_writes_sizes_without_an_exponent(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["info", "tiny", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)["bytes"]["activations_float32"]
    batch = round(1010 * 2**20 / one)
    assert cli.run(["info", "tiny", "--batch", str(batch)]) == 0
    assert re.search(r"10[01]\d MiB", capsys.readouterr().out)


def test_doctor_looks_at_the_disk_of_a_folder_that_is_not_there_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "runs" / "mine", "runs/mine"):
        assert cli.run(["doctor", "--json", "--folder", str(folder)]) == 0
        assert any(
            finding["name"] == "disk" for finding in json.loads(capsys.readouterr().out)["findings"]
        )


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.run(["doctor", "--json"]) == 0
    findings = {
        finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]
    }
    assert findings["torch"]["good"]
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.run(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "litebert[ray]" in shown


@pytest.mark.parametrize("features", [{"avx512f", "avx512_bf16"}, {"amx_bf16"}, {"avx2"}])
def test_doctor_says_where_bfloat16_trains_faster_than_float32(
    features: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("litebert.infer.cpu.cpu_features", lambda: frozenset(features))
    (gpu,) = (each for each in doctor.examine(tmp_path) if each.name == "gpu")
    assert ("--dtype bfloat16" in gpu.advice) == (features != {"avx2"})


def test_doctor_looks_for_every_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - {"all", "bench", "dev"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.run(["doctor", "--json"]) == 0
    assert set(re.findall(r"litebert\[(\w+)\]", capsys.readouterr().out)) == extras


def test_an_interrupt_that_c_code_turns_into_an_error_is_still_75() -> None:
    program = """
import os, signal, litebert.cli as cli
def run(args):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise ValueError("could not determine the shape")
cli.run = run
cli.main([])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (75, "")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    print(surface(), end="")
