"""Studies as data: every recipe of the catalog is valid, files are read strictly, results are told
with their spread."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert.cli import run as litebert
from litebert.config import PRESETS, ModelConfig
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.lab.catalog import STUDIES, find_study
from litebert.lab.distances import layer_distances
from litebert.lab.plot import plot
from litebert.lab.results import collect
from litebert.lab.run import write_study_file
from litebert.lab.study import Row, Scale, Study, load_study, read_study, write_study
from litebert.lab.table import page, table
from litebert.model.count import count_encoder
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.testing import tiny_shards

TWO = Study(
    name="heads",
    title="Number of heads",
    rows=(
        Row(name="2 heads", settings={"encoder": {"num_attention_heads": 2}}, paper={"Avg": 80.1}),
        Row(name="4 heads", settings={"encoder": {"num_attention_heads": 4}}),
        Row(name="8 heads", settings={"encoder": {"num_attention_heads": 8}}),
    ),
    scales={"cpu": Scale(recipe="demo", settings={"encoder": {"hidden_size": 64}})},
)


def write_results(folder: Path, losses: dict[str, list[float]], *, accuracy: float = 0.3) -> None:
    """Results as finished runs leave them."""
    write_study_file(TWO, "cpu", folder)
    for row, values in losses.items():
        for seed, loss in enumerate(values):
            place = folder / f"{row.replace(' ', '-')}-seed{seed}"
            place.mkdir()
            result = {
                "row": row,
                "seed": seed,
                "scores": {"masked_loss": loss, "masked_accuracy": accuracy},
                "tasks": {"rte": 0.5 + seed / 100},
                "most_frequent_share": 0.05,
                "curve": [[1000, 0.1], [2000, accuracy]],
            }
            (place / "result.json").write_text(json.dumps(result))


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_recipe_of_the_catalog_is_valid_and_rows_differ(name: str) -> None:
    study = STUDIES[name]
    for scale in study.scales:
        recipes = [study.recipe(row, scale).to_dict() for row in study.rows]
        assert all(recipes.count(recipe) == 1 for recipe in recipes), scale
        assert study.recipe(study.rows[0], scale, seed=7).seed == 7


def test_a_study_survives_json() -> None:
    assert read_study(json.loads(json.dumps(write_study(TWO)))) == TWO


def test_settings_of_row_and_scale_are_joined() -> None:
    encoder = TWO.recipe(TWO.rows[2], "cpu").encoder
    assert (encoder.hidden_size, encoder.num_attention_heads) == (64, 8)


def test_a_file_is_a_study(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        question = "Does masking more help?"
        [scales.cpu]
        recipe = "demo"
        seeds = 2
        [[rows]]
        name = "15 %"
        [[rows]]
        name = "30 %"
        settings = { mask_fraction = 0.3, sequence_length = "0:16,0.5:32" }
        """
    )
    study = load_study(path)
    assert (study.name, study.reference.name) == ("mine", "15 %")
    recipe = study.recipe(study.rows[1], "cpu")
    assert str(recipe.sequence_length) == "0:16,0.5:32"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rows]]\nnam = 'a'\n[scales.cpu]", "setting of a row 'nam'; did you mean 'name'"),
        ("qestion = ''\n[[rows]]\nname = 'a'\n[scales.cpu]", "did you mean 'question'"),
        ("[[rows]]\nname = 'a'\n[scales.cpu]\nseed = 1", "did you mean 'seeds'"),
        ("[[rows]]\nname = 'a'\n[scales.gpu]", "no scale 'gpu'"),
        ("[[rows]]\nname='a'\nsettings={learning_rat=1}\n[scales.cpu]", "did you mean 'learn"),
        ("[scales.cpu]", r"a study has rows: \[\[rows\]\]"),
        ("[[rows]]\nname='a'\n[[rows]]\nname='a'\n[scales.cpu]", "rows have names of their own"),
        ("x = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_nearest_name(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_study(tmp_path / "study.toml")


def test_unknown_studies_and_scales_are_named() -> None:
    with pytest.raises(ConfigError, match="there is no study 'sharin'; did you mean 'sharing'"):
        find_study("sharin")
    with pytest.raises(ConfigError, match="has no scale 'paper'; it has cpu"):
        TWO.scale("paper")


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    write_study_file(STUDIES["order"], "cpu", tmp_path)
    with pytest.raises(ConfigError, match="holds study order at scale cpu"):
        write_study_file(STUDIES["order"], "paper", tmp_path)


def test_only_differences_beyond_the_spread_are_marked(tmp_path: Path) -> None:
    write_results(
        tmp_path, {"2 heads": [5.0, 5.1, 5.2], "4 heads": [4.0, 4.1, 4.2], "8 heads": [5.1, 4.9, 5]}
    )
    text = page(TWO, "cpu", collect(TWO, "cpu", tmp_path))
    assert "| 4.100 ± 0.100 ▼ |" in text
    assert text.count("▼ |") == 1  # the third row's seeds overlap with the first's
    assert "▲ |" not in text
    assert "| 80.1 |" in text
    assert "| 51.0 ± 1.0 |" in text


def test_two_seeds_claim_nothing(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1], "4 heads": [4.0, 4.1]})
    assert "▼ |" not in page(TWO, "cpu", collect(TWO, "cpu", tmp_path))


def test_a_row_that_learned_nothing_says_so(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [7.0, 7.0, 7.0]}, accuracy=0.14)
    rows = collect(TWO, "cpu", tmp_path)
    assert "not learned" in table(TWO, rows)
    with pytest.raises(ConfigError, match="no row of study heads has learned"):
        plot(TWO, rows, tmp_path)


def test_csv_and_latex_have_the_same_cells(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2]})
    rows = collect(TWO, "cpu", tmp_path)
    assert table(TWO, rows, form="csv").splitlines()[1].startswith("2 heads,")
    latex = table(TWO, rows, form="latex")
    assert r"5.100 $\pm$ 0.100" in latex
    assert r"masked accuracy, \%" in latex


def test_a_study_without_runs_says_how_to_make_some(tmp_path: Path) -> None:
    write_study_file(TWO, "cpu", tmp_path)
    with pytest.raises(ConfigError, match="no finished run yet; litebert lab run"):
        collect(TWO, "cpu", tmp_path)


def test_points_and_curves_are_drawn(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2], "4 heads": [4.0, 4.1, 4.2]})
    rows = collect(TWO, "cpu", tmp_path)
    for path in plot(TWO, rows, tmp_path):
        assert path.stat().st_size > 5_000


def test_a_study_is_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2], "4 heads": [4.0, 4.1, 4.2]})
    assert litebert(["report", str(tmp_path)]) == 0
    assert str(tmp_path / "report.html") in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "Number of heads" in page
    assert "4.100 ± 0.100 ▼" in page
    assert "data:image/svg+xml;base64," in page
    assert "http://" not in page.split("base64,")[0]


def test_counted_parameters_equal_the_presets(tmp_path: Path) -> None:
    study = STUDIES["parameters"]
    write_study_file(study, "paper", tmp_path)
    rows = {row.row.name: row for row in collect(study, "paper", tmp_path)}
    assert rows["albert-base-v2"].parameters == sum(
        count_encoder(PRESETS["albert-base-v2"]).values()
    )
    ratio = rows["bert-large"].parameters / rows["albert-large-v2"].parameters
    assert rows["albert-large-v2"].cells["smaller"].mean == pytest.approx(ratio)
    text = page(study, "paper", list(rows.values()))
    assert "| 18.9 |" in text
    assert "18.9 by exact count" in text
    assert "10.7 % of bert-base" in text


@pytest.mark.parametrize("reversible", [False, True])
def test_distances_are_of_every_application(tmp_path: Path, reversible: bool) -> None:
    shards = tiny_shards(tmp_path / "tiny")
    shape = {"num_layers": 2, "layers_per_group": 2, "max_positions": 16, "norm": "pre"}
    config = replace(PRESETS["tiny"], reversible=reversible, **shape)  # type: ignore[arg-type]
    model = Model(ModelConfig(encoder=config)).eval()
    Checkpoint(model=model).save(tmp_path / "model")
    distances = layer_distances(tmp_path / "model", shards)
    assert [len(values) for values in distances.values()] == [4, 4]
    tokens = torch.tensor(Shards.open(shards).arrays(0).tokens[: 64 * 16].astype("int64"))
    states = model.encoder.all_states(token_ids=tokens.view(64, 16))
    expected = (states[2] - states[1]).norm(dim=-1).mean().detach()
    assert distances["l2"][1] == pytest.approx(float(expected), rel=1e-5)
