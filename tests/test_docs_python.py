"""The programs of docs/python.md, run as they stand there."""

import re
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.testing import tiny_shards

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def test_the_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_shards(tmp_path / "made", documents=200).rename(tmp_path / "mine")
    (tmp_path / "data").mkdir()
    (tmp_path / "mine").rename(tmp_path / "data" / "mine")
    code = [line for line in PROGRAMS[0].splitlines() if line and not line.startswith("#")]
    assert len(code) <= 20, "training from Python takes twenty lines"
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(program, names)
    assert names["model"].verbs == ("embed", "classify")
    assert names["scores"].num_examples == 4
    assert names["stars"].checkpoint.is_dir()
    assert isinstance(names["recipe"], litebert.PretrainRecipe)
