"""Every folder of results is in the index, and every program that it names exists."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INDEX = (ROOT / "results" / "README.md").read_text()


def test_every_study_is_in_the_index() -> None:
    studies = {path.name for path in (ROOT / "results").iterdir() if path.is_dir()}
    assert studies == set(re.findall(r"^\| \[([\w-]+)", INDEX, re.M))


@pytest.mark.parametrize("folder", ["bench", "torture", "tools"])
def test_every_program_is_in_its_readme(folder: str) -> None:
    page = (ROOT / folder / "README.md").read_text()
    paths = [path for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py"]
    assert [path.stem for path in paths if f"{path.stem}`" not in page] == []
    named = set(re.findall(rf"`({folder}(?:\.\w+)+)`", page))
    assert [name for name in named if find_spec(name) is None] == []


@pytest.mark.parametrize("page", ["bench/README.md", "results/README.md", "tools/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []
