"""One small vocabulary for all tests of the tokenizer."""

import pytest

from litebert.text.tokenizer import Tokenizer
from litebert.text.train import VocabularyConfig, train_tokenizer
from tests.helpers.text import made_lines


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer(made_lines(), VocabularyConfig(vocab_size=150))[0]
