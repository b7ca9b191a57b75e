"""Every embedded model can be exported, in int8, and answers nearly as in float32."""

from pathlib import Path

import pytest

from litebert.infer.export.folder import ExportOptions, export_model
from litebert.infer.predictor import load
from litebert.models.index import embedded_models


@pytest.mark.parametrize("name", [model.name for model in embedded_models()])
def test_an_embedded_model_is_exported(tmp_path: Path, name: str) -> None:
    report, notes = export_model(name, tmp_path / "out", ExportOptions(precision="int8"))
    assert notes == ()
    assert report.least_cosine > 0.995
    assert report.ratio < 0.3
    assert load(tmp_path / "out").verbs == load(name, engine="torch").verbs
