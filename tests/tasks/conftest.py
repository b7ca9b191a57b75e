"""One vocabulary of the tiny corpus for all tests of tasks."""

import pytest

from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))
