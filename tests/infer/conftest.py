"""Models of a few thousand random weights, with every head, as folders and as predictors."""

from pathlib import Path

import pytest

from litebert.infer.predictor import Predictor, load
from tests.helpers.models import save_model


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that fills and embeds."""
    return save_model(tmp_path_factory.mktemp("pretrained") / "model", "masked", "order")


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a classify head and no card."""
    return save_model(tmp_path_factory.mktemp("classifier") / "model", "classify")


@pytest.fixture
def model(pretrained: Path) -> Predictor:
    return load(pretrained, device="cpu")


@pytest.fixture
def labeller(classifier: Path) -> Predictor:
    return load(classifier, device="cpu")
