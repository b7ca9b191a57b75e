"""A tiny model with every head, served for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.infer.predictor import Predictor, load
from litebert.serve.models import Models, ServedModel
from tests.helpers.models import save_model
from tests.helpers.serving import Running, serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heads = ("masked", "classify", "regress", "choose", "span", "tag")
    return save_model(tmp_path_factory.mktemp("served") / "model", *heads)


@pytest.fixture(scope="session")
def predictor(folder: Path) -> Predictor:
    return load(folder, device="cpu", threads=1)


@pytest.fixture
def models(predictor: Predictor) -> Models:
    return Models([ServedModel("tiny", predictor)])


@pytest.fixture(scope="module")
def running(predictor: Predictor) -> Iterator[Running]:
    with serving(Models([ServedModel("tiny", predictor)])) as service:
        yield service
