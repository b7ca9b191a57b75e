"""The public page: every name is there, documented and typed; nothing else is; nothing is imported
before it is used."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import litebert
from litebert import errors


@pytest.mark.parametrize("name", [name for name in litebert.__all__ if name != "__version__"])
def test_every_name_is_documented(name: str) -> None:
    value = getattr(litebert, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        doc = inspect.getdoc(value)
        assert doc, f"{name} has no docstring"
        assert not doc.startswith(f"{name}("), f"{name} has only the docstring of a dataclass"
        methods = {
            method: member
            for method, member in vars(value).items()
            if inspect.isclass(value) and inspect.isfunction(member) and not method.startswith("_")
        }
        bare = [method for method, member in methods.items() if not inspect.getdoc(member)]
        assert set(bare) <= {"forward"}, f"{name}: {bare} have no docstring"


def test_the_page_lists_what_it_has_and_no_more() -> None:
    assert dir(litebert) == sorted(litebert.__all__)
    names: dict[str, object] = {}
    exec("from litebert import *", names)
    assert set(names) - {"__builtins__"} == set(litebert.__all__)
    with pytest.raises(AttributeError, match=r"litebert has no 'lod'; it has: .*load"):
        litebert.lod  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    """The imports for type checkers name every object, from where it is resolved."""
    assert (Path(litebert.__file__).parent / "py.typed").exists()
    tree = ast.parse(Path(litebert.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == litebert._PAGE
    assert set(typed) | {"__version__"} == set(litebert.__all__)


def test_every_error_is_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.LitebertError)
    }
    assert defined <= set(litebert.__all__)


def test_importing_the_page_imports_nothing_else() -> None:
    program = (
        "import sys; before = set(sys.modules); import litebert; "
        "assert litebert.__version__; dir(litebert); "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "assert not new & {'torch', 'numpy', 'sentencepiece', 'safetensors'}, new; "
        "litebert.PRESETS, litebert.NAMED, litebert.ConfigError, litebert.TextExample; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
