"""Links, files and programs that the pages name exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / folder / "README.md" for folder in ("bench", "torture", "tools", "results")),
]
FOLDERS = [ROOT / folder for folder in ("", "src", "src/litebert", "docs", "tests")]


def headings(page: Path) -> set[str]:
    """Anchors of a page, as GitHub spells them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        wrong_anchor = anchor and target.is_file() and anchor not in headings(target)
        if "://" not in link and (not target.exists() or wrong_anchor):
            yield link
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|md))\b", text):
        if not any((folder / name).exists() for folder in FOLDERS):
            yield name
    for module in re.findall(r"python -m ((?:bench|torture|tools)\.[\w.]+)", text):
        if not (ROOT / module.replace(".", "/")).with_suffix(".py").exists():
            yield module


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.exists()], ids=lambda page: page.name
)
def test_what_a_page_names_exists(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](no.md) `tests/no.py`\n`python -m bench.no`\n")
    assert list(broken(page)) == ["#two", "no.md", "tests/no.py", "bench.no"]


def test_the_tree_of_the_readme_names_every_module() -> None:
    tree = (ROOT / "README.md").read_text().split("\nsrc/litebert/\n")[1].split("\nbench/")[0]
    modules = {
        path.name
        for path in (ROOT / "src" / "litebert").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    names = re.findall(r"(?:^| ) (\w+/|\w+\.py) ", tree, re.M)
    assert sorted(name.removesuffix("/") for name in names) == sorted(modules - {"__init__.py"})
