"""Studies as data: every recipe of the catalog is valid, files are read strictly, results are told
with their spread."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from litebert.cli import run as litebert
from litebert.config import PRESETS, ModelConfig
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.lab.catalog import STUDIES, find_study
from litebert.lab.measure import half_depth_scores, measure
from litebert.lab.plot import plot
from litebert.lab.probes import Subject, layer_distances
from litebert.lab.results import RowResult, collect
from litebert.lab.run import open_study, write_study_file
from litebert.lab.study import Row, Scale, Study, load_study, read_study, with_tokens
from litebert.lab.table import page, table
from litebert.model.count import count_encoder
from litebert.model.model import Model
from litebert.testing import tiny_recipe, tiny_shards

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
        rows = [
            (study.recipe(row, scale).to_json(), row.start, row.data, row.method, *row.members)
            for row in study.rows
        ]
        trained = [each for each, row in zip(rows, study.rows, strict=True) if not row.members]
        assert len(set(trained)) == len(trained), scale
        assert study.recipe(study.rows[0], scale, seed=7).seed == 7


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("depth", [(layers, 1024) for layers in (1, 3, 6, 12, 24, 48)]),
        ("width", [(3, width) for width in (1024, 2048, 4096, 6144)]),
        ("deep-wide", [(12, 4096), (24, 4096)]),
        ("degradation", [(24, 1024), (24, 2048)]),
        ("oscillation", [(24, 1024), (24, 1024)]),
    ],
)
def test_shapes_of_the_paper(name: str, shapes: list[tuple[int, int]]) -> None:
    """Tables 11, 12 and 13, bert-large and bert-xlarge, Figure 1."""
    encoders = [STUDIES[name].recipe(row, "paper").encoder for row in STUDIES[name].rows]
    assert [(each.num_layers, each.hidden_size) for each in encoders] == shapes
    if name == "degradation":
        assert encoders == [PRESETS["bert-large"], PRESETS["bert-xlarge"]]
    if name == "width":
        millions = [round(sum(count_encoder(each).values()) / 1e6) for each in encoders]
        assert millions == [18, 59, 223, 496]  # printed as 18M, 60M, 225M and 499M


def test_a_study_survives_json() -> None:
    assert read_study(json.loads(json.dumps(asdict(TWO)))) == TWO


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


def test_names_of_any_script_have_folders_of_their_own() -> None:
    names = ("Größe 2", "größe 3", "深い", "浅い", "½ × width")
    slugs = [Row(name=name).slug for name in names]
    assert slugs == ["größe-2", "größe-3", "深い", "浅い", "½-width"]


SAME_FOLDER = "[[rows]]\nname='lr 1e-3'\n[[rows]]\nname='lr: 1e_3'\nsettings={seed=1}\n[scales.cpu]"


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
        (SAME_FOLDER, "'lr 1e-3' and 'lr: 1e_3' would have the same folder, lr-1e-3-seed0"),
        ("probes=['gap', 'gab']\n[[rows]]\nname='a'\n[scales.cpu]", "probe 'gab'; did you mean"),
        ("interaction=['a']\n[[rows]]\nname='a'\n[scales.cpu]", "an interaction names four rows"),
        ("[[rows]]\nname='a'\nstart='a'\n[scales.cpu]", "needs the trained row 'a', which comes"),
        ("[[rows]]\nname='a'\nmethod='lstm'\n[scales.cpu]", "method is one of encoder, word2vec"),
        ("[[rows]]\nname='a'\nmembers=['b']\n[scales.cpu]", "row 'b'"),
        ("[[rows]]\nname='a'\ndata='less'\n[scales.cpu]", "data is one of"),
        ("[[rows]]\nsettings={}\n[scales.cpu]", "each row has a name; got {'settings': {}}"),
        ("[[rows]]\nname=3\n[scales.cpu]", "setting of a row name is a text; got 3"),
        ("[[rows]]\nname='a'\nsettings=3\n[scales.cpu]", "settings is a table; got 3"),
        ("[[rows]]\nname='a'\nsettings={encoder=3}\n[scales.cpu]", "encoder is a table of its"),
        (
            "[[rows]]\nname='a'\nat={cpu=3}\n[scales.cpu]",
            "row at is a table, each a table; got {'cpu': 3}",
        ),
        ("[[rows]]\nname='a'\nmembers=3\n[scales.cpu]", "members is a list, each a text; got 3"),
        ("[[rows]]\nname='a'\n[scales.cpu]\nseeds='x'", "seeds is a whole number; got 'x'"),
        ("[[rows]]\nname='a'\n[scales.cpu]\nminutes='x'", "minutes is a number; got 'x'"),
        (
            "[[rows]]\nname='a'\n[scales.cpu]\nfinetune={epochs=[3]}",
            r"finetune is a table, each a text or a number; got {'epochs': \[3\]}",
        ),
        ("[[rows]]\nname='a'\n[scales.cpu]\nfinetune={exitz='each'}", "did you mean 'exits'"),
        ("[[rows]]\nname='a'\n[scales.cpu]\ntasks=['colla']", "did you mean 'cola'"),
        ("[[rows]]\nname='a'\n[scales.cpu]\nseeds=0", "seeds is a whole number from 1 .* got 0"),
        ("[[rows]]\nname='a'\n[scales.cpu]\nranks=0", "ranks is a whole number from 1 .* got 0"),
        ("[[rows]]\nname='a'\n[scales.cpu]\npairs=0", "pairs is a whole number from 1 .* got 0"),
        ("[[rows]]\nname='a'\n[scales.cpu]\nminutes=-3", "minutes is a number from 0.001 .* -3"),
        (
            "measures='gap'\n[[rows]]\nname='a'\n[scales.cpu]",
            "measures is a list, each a text; got 'gap'",
        ),
        ("rows=[3]\n[scales.cpu]", "a setting of a row is name = value; got 3"),
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


def test_runs_of_another_length_keep_their_ratios() -> None:
    def lengths(study: Study) -> list[int | None]:
        return [study.recipe(row, "gpu-hour").tokens for row in study.rows[:3]]

    study = STUDIES["ensemble"]
    assert lengths(study) == [40_000_000, 20_000_000, 20_000_000]
    short = with_tokens(study, "gpu-hour", 6_000_000)  # a tenth of the scale's 60 M
    assert lengths(short) == [4_000_000, 2_000_000, 2_000_000]
    assert short.scales["gpu-hour"].note.endswith("Here with 0.1 × the tokens: 6,000,000 a run.")
    assert short.scales["cpu"] == study.scales["cpu"]
    paper = with_tokens(STUDIES["sharing"], "paper", 1_000_000)  # whose budget is steps
    shortened = paper.recipe(paper.rows[0], "paper")
    assert shortened.tokens == 1_000_000
    assert shortened.optimizer.warmup == 3125 / 125_000  # the share of the paper's warm-up


def test_runs_of_a_set_time_have_no_length_to_choose() -> None:
    with pytest.raises(ConfigError, match=r"equal-time gives each run its time \(2 min.*leave it"):
        with_tokens(STUDIES["equal-time"], "cpu", 1_000_000)


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    write_study_file(STUDIES["order"], "cpu", tmp_path)
    with pytest.raises(ConfigError, match="holds study order at scale cpu"):
        write_study_file(STUDIES["order"], "paper", tmp_path)
    with pytest.raises(ConfigError, match="holds study order at scale cpu"):
        write_study_file(STUDIES["sharing"], "cpu", tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"encoder": {"num_attention_heads": 1}}},
        {"at": {"cpu": {"learning_rate": 1e-3}}},
        {"start": "2 heads"},
        {"data": "more"},
        {"method": "causal"},
        {"members": ("2 heads",)},
    ],
)
def test_a_row_that_is_trained_otherwise_needs_another_folder(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    write_study_file(TWO, "cpu", tmp_path)
    rows = (TWO.rows[0], replace(TWO.rows[1], **changes), TWO.rows[2])
    with pytest.raises(ConfigError, match="holds study heads at scale cpu with other settings"):
        write_study_file(replace(TWO, rows=rows), "cpu", tmp_path)


def test_a_folder_takes_more_rows_and_seeds(tmp_path: Path) -> None:
    write_study_file(TWO, "cpu", tmp_path)
    scale = replace(TWO.scales["cpu"], seeds=5, note="five seeds")
    one = Row(name="1 head", settings={"encoder": {"num_attention_heads": 1}}, paper={"Avg": 1.0})
    rows = (one, replace(TWO.rows[0], paper={}, at={"paper": {"steps": 1}}), *TWO.rows[1:])
    study = replace(TWO, rows=rows, scales={"cpu": scale})
    write_study_file(study, "cpu", tmp_path)
    assert open_study(tmp_path) == (study, "cpu")


@pytest.mark.parametrize("text", ["{}", '{"study": {}}', "[]", '{"study": 3, "scale": "cpu"}'])
def test_a_file_that_holds_no_study(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(ConfigError, match=r"is no folder of a study|a study has rows"):
        open_study(tmp_path)


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


def test_seconds_beside_other_runs_do_not_compare(tmp_path: Path) -> None:
    study = replace(TWO, measures=("masked_loss", "seconds"))
    write_results(tmp_path, {"2 heads": [5.0], "4 heads": [4.0]})
    path = tmp_path / "4-heads-seed0" / "result.json"
    result = json.loads(path.read_text())
    result["scores"]["seconds"] = 7.0
    for is_shared in (False, True):
        path.write_text(json.dumps(result | {"is_shared": is_shared}))
        text = page(study, "cpu", collect(study, "cpu", tmp_path))
        assert ("other runs were on the device at the same time" in text) == is_shared


def test_two_seeds_claim_nothing(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1], "4 heads": [4.0, 4.1]})
    assert "▼ |" not in page(TWO, "cpu", collect(TWO, "cpu", tmp_path))


def test_a_row_that_learned_nothing_says_so(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [7.0, 7.0, 7.0]}, accuracy=0.14)
    rows = collect(TWO, "cpu", tmp_path)
    assert "not learned" in table(TWO, rows)
    with pytest.raises(ConfigError, match="no row of study heads has learned"):
        plot(TWO, rows, tmp_path)
    assert litebert(["report", str(tmp_path)]) == 0
    html = (tmp_path / "report.html").read_text()
    assert "not learned" in html
    assert "no row of study heads has learned; there is nothing to draw" in html


def test_numbers_of_a_run_come_from_what_its_commands_left(tmp_path: Path) -> None:
    def write(name: str, value: object) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(json.dumps(value) + "\n")

    step = {"kind": "step", "step": 3, "tokens": 2_000_000, "seconds": 1.5, "masked_loss": 3.0}
    heldout = {"kind": "evaluation", "step": 4, "tokens": 2_000_000, "masked_loss": 3.5}
    heldout |= {"masked_accuracy": 0.4, "sop_accuracy": 0.6}
    metrics = json.dumps(step) + "\n" + json.dumps(heldout) + "\n"
    (tmp_path / "pretrain").mkdir()
    (tmp_path / "pretrain" / "metrics.jsonl").write_text(metrics)
    write("pretrain/final/config.json", {"encoder": PRESETS["tiny"].to_dict()})
    write("probes.json", {"gap": 0.1, "touched": 0.2, "distances": {"l2": [1.0], "cosine": [0.5]}})
    terms = {"subject_verb_agreement": {"accuracy": 0.7}, "island_effects": {"accuracy": 0.5}}
    write("blimp.json", {"overall": {"accuracy": 0.6}, "terms": terms})
    write("text.json", {"scores": {"loss": 3.7, "accuracy": 0.35}})
    majority = {"rte": 0.5, "sst2": 0.5}
    write("vectors.json", {"scores": {"rte": 0.5, "sst2": 0.7}, "majority": majority})
    write("pretrain/method.json", {"method": "causal", "next_token_accuracy": 0.2})
    curves = {"patience": [{"threshold": 1, "mean_depth": 1.0, "score": 0.5}]}
    depths = [{"accuracy": 0.5}, {"accuracy": 0.6}]
    write("rte/result.json", {"score": 0.6, "depth_scores": depths, "exit_curves": curves})

    result = measure(TWO, tmp_path, row="2 heads", seed=1, frequent=0.05)
    expected = {"masked_loss": 3.5, "masked_accuracy": 0.4, "sop_accuracy": 0.6, "gap": 0.1}
    expected |= {"touched": 0.2, "blimp": 0.6, "agreement": 0.7, "text_loss": 3.7}
    expected |= {"text_accuracy": 0.35, "exit_full": 0.6, "exit_fixed": 0.5, "exit_patience": 0.5}
    assert result["scores"] == expected | {"frozen": 0.6, "tokens": 2.0, "seconds": 1.5}
    assert result["tasks"] == {"rte": 0.6, "rte (frozen)": 0.5, "sst2 (frozen)": 0.7}
    assert (result["majority"], result["next_token_accuracy"]) == (0.5, 0.2)
    assert result["curve"] == [[2_000_000, 0.4]]
    assert result["distances"] == {"l2": [1.0], "cosine": [0.5]}
    assert result["parameters"] == sum(count_encoder(PRESETS["tiny"]).values())


def test_a_criterion_without_thresholds_has_no_score() -> None:
    exits = {"rte": {"depths": [0.5, 0.6], "curves": {"patience": [], "confidence": [[1, 0.5]]}}}
    scores = half_depth_scores(exits)
    assert scores == {"exit_full": 0.6, "exit_fixed": 0.5, "exit_confidence": 0.5}


def test_speeds_come_with_the_ratio_of_two_ranks(tmp_path: Path) -> None:
    study = STUDIES["speed"]
    write_study_file(study, "cpu", tmp_path)
    for name, one, two in (("bert-large", 100, 120), ("albert-large-v2", 170, 310)):
        folder = tmp_path / f"{name}-seed0"
        folder.mkdir()
        for file, speed in (("speed.json", one), ("speed_ranks.json", two)):
            (folder / file).write_text(json.dumps({"tokens_per_second": speed}))
        result = measure(study, folder, row=name, seed=0, frequent=0.0)
        (folder / "result.json").write_text(json.dumps(result))
    text = page(study, "cpu", collect(study, "cpu", tmp_path))
    assert "“1.7 × faster than BERT-large” (albert-large): 1.7 × on this device" in text
    assert "Two ranks train albert-large at 1.82 × the speed of one, bert-large at 1.20 ×" in text


@pytest.mark.parametrize(
    ("losses", "verdict"), [([4.0, 4.1, 4.2], "decided"), ([4.0, 4.1, 4.8], "undecided")]
)
def test_an_interaction_counts_where_all_seeds_agree(
    losses: list[float], verdict: str, tmp_path: Path
) -> None:
    names = ("2 heads", "4 heads", "2 heads", "8 heads")
    study = replace(TWO, interaction=names)
    write_results(tmp_path, {"2 heads": [5.0] * 3, "4 heads": losses, "8 heads": [4.5] * 3})
    text = page(study, "cpu", collect(study, "cpu", tmp_path))
    assert "(“2 heads” − “4 heads”) − (“2 heads” − “8 heads”) is" in text
    assert f"; {verdict}" in text


def test_an_interaction_compares_equal_seeds(tmp_path: Path) -> None:
    study = replace(TWO, interaction=("2 heads", "4 heads", "2 heads", "8 heads"))
    write_results(
        tmp_path, {"2 heads": [5.0, 6.0, 7.0], "4 heads": [4.0, 5.0, 6.0], "8 heads": [3.0] * 3}
    )
    (tmp_path / "4-heads-seed0" / "result.json").unlink()  # it failed
    text = page(study, "cpu", collect(study, "cpu", tmp_path))
    assert "is -2.50 ± 0.71; undecided" in text  # 1 - 3 and 1 - 4, of seeds 1 and 2


def test_exits_and_counts_are_drawn(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0]})
    path = tmp_path / "2-heads-seed0" / "result.json"
    points = [[1.0, 0.5], [2.0, 0.6], [3.0, 0.6]]
    exits = {"rte": {"depths": [0.5, 0.6, 0.6], "curves": {"patience": points}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"exits": exits}))
    study = replace(TWO, chart="exits")
    assert all(
        each.stat().st_size > 5_000 for each in plot(study, collect(TWO, "cpu", tmp_path), tmp_path)
    )
    counted = STUDIES["parameters"]
    rows = collect(counted, "cpu", tmp_path)
    assert all(each.stat().st_size > 5_000 for each in plot(counted, rows, tmp_path))
    with pytest.raises(ConfigError, match="no finished run with exits to draw"):
        plot(study, rows[:0], tmp_path)


@pytest.mark.parametrize(
    ("changes", "learned"),
    [
        ({"next_token_accuracy": 0.3}, True),
        ({"next_token_accuracy": 0.1}, False),
        ({"majority": 0.6}, True),
        ({"majority": 0.7}, False),
    ],
)
def test_a_baseline_that_learned_nothing_says_so(
    changes: dict[str, float], learned: bool, tmp_path: Path
) -> None:
    study = replace(TWO, measures=("frozen",))
    write_results(tmp_path, {"2 heads": [5.0]})
    path = tmp_path / "2-heads-seed0" / "result.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"scores": {"frozen": 0.7}} | changes)
    )
    (row,) = collect(study, "cpu", tmp_path)
    assert row.cells["frozen"].learned == learned


def test_an_ensemble_of_what_learned_nothing_says_so(tmp_path: Path) -> None:
    both = Row(name="8 heads", members=("2 heads", "4 heads"))
    study = replace(TWO, rows=(*TWO.rows[:2], both))
    write_results(tmp_path, {"2 heads": [7.0], "4 heads": [7.0]}, accuracy=0.1)
    (tmp_path / "8-heads-seed0").mkdir()
    result = {"row": "8 heads", "seed": 0, "scores": {}, "tasks": {"rte": 0.6}, "curve": []}
    result |= {"members": ["a", "b"], "parameters": 7}
    (tmp_path / "8-heads-seed0" / "result.json").write_text(json.dumps(result))
    rows = collect(study, "cpu", tmp_path)
    assert rows[2].parameters == 7
    assert not rows[2].cells["rte"].learned


def test_csv_and_latex_have_the_same_cells(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2]})
    rows = collect(TWO, "cpu", tmp_path)
    assert table(TWO, rows, form="csv").splitlines()[1].startswith("2 heads,")
    latex = table(TWO, rows, form="latex")
    assert r"5.100 $\pm$ 0.100" in latex
    assert r"masked accuracy, \%" in latex


def test_signs_of_a_table_in_a_name_stay_in_its_cell() -> None:
    row = Row(name="a|b_c^{2} ~ 5 $\\")
    study, rows = replace(TWO, rows=(row,)), [RowResult(row=row, parameters=1, seeds=1)]
    assert r"| a\|b_c^{2} ~ 5 $\ | 1 |" in table(study, rows)
    latex = r"a|b\_c\textasciicircum{}\{2\} \textasciitilde{} 5 \$\textbackslash{} & 1 \\"
    assert latex in table(study, rows, form="latex")


def test_a_study_without_runs_says_how_to_make_some(tmp_path: Path) -> None:
    write_study_file(TWO, "cpu", tmp_path)
    with pytest.raises(ConfigError, match="no finished run yet; litebert lab run"):
        collect(TWO, "cpu", tmp_path)


def test_points_and_curves_are_drawn(tmp_path: Path) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2], "4 heads": [4.0, 4.1, 4.2]})
    rows = collect(TWO, "cpu", tmp_path)
    for path in plot(TWO, rows, tmp_path):
        assert path.stat().st_size > 5_000


@pytest.mark.parametrize("chart", ["points", "curves", "distances", "exits"])
def test_no_picture_shows_a_row_that_learned_nothing(
    chart: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def keep(figure: Figure, *args: object, **options: object) -> None:
        seen.extend(str(text.get_text()) for text in figure.findobj(Text))

    monkeypatch.setattr(Figure, "savefig", keep)
    study = replace(TWO, chart=chart, measures=("masked_loss", "seconds"))
    write_results(tmp_path, {"2 heads": [5.0], "4 heads": [7.0]})
    curve = {"patience": [[1.0, 0.5], [2.0, 0.6]]}
    exits = {"rte": {"depths": [0.5, 0.6], "curves": curve}}
    for row, accuracy in (("2-heads", 0.3), ("4-heads", 0.1)):
        path = tmp_path / f"{row}-seed0" / "result.json"
        result = json.loads(path.read_text()) | {"exits": exits}
        result |= {"distances": {"l2": [1.0, 2.0], "cosine": [0.5, 0.6]}}
        result["scores"] |= {"masked_accuracy": accuracy, "seconds": 9.0}
        path.write_text(json.dumps(result))
    plot(study, collect(study, "cpu", tmp_path), tmp_path)
    assert "not learned, left out: 4 heads" in seen
    assert "4 heads" not in seen
    assert "2 heads" in seen


def test_a_study_is_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path, {"2 heads": [5.0, 5.1, 5.2], "4 heads": [4.0, 4.1, 4.2]})
    assert litebert(["report", str(tmp_path)]) == 0
    assert str(tmp_path / "report.html") in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "Number of heads" in page
    assert "4.100 ± 0.100 ▼" in page
    assert "data:image/svg+xml;base64," in page
    assert "http://" not in page.split("base64,")[0]


def test_a_page_needs_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write_results(tmp_path, {"2 heads": [5.0]})
    assert litebert(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "5.000" in page
    assert "drawing a study needs the package &#x27;matplotlib&#x27;" in page


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
    assert "“18 × fewer parameters than BERT-large” (albert-large): 18.9 × by exact" in text
    assert "“About 10 % of BERT-base's parameters” (albert-base): 10.7 %" in text
    assert "“Over 80 % saved by sharing all layers” (albert-base, E 128): 87.0 %" in text
    assert "exchanges 71 MB of gradients and keeps 141 MB of moments; bert-large 1,338" in text


@pytest.mark.parametrize("reversible", [False, True])
def test_distances_are_of_every_application(tmp_path: Path, reversible: bool) -> None:
    shards = tiny_shards(tmp_path / "tiny")
    shape = {"num_layers": 2, "layers_per_group": 2, "max_positions": 16, "norm": "pre"}
    config = replace(PRESETS["tiny"], reversible=reversible, **shape)  # type: ignore[arg-type]
    model = Model(ModelConfig(encoder=config)).eval()
    distances = layer_distances(Subject(model, shards, tiny_recipe(), torch.device("cpu")))
    assert [len(values) for values in distances.values()] == [4, 4]
    tokens = torch.tensor(Shards.open(shards).arrays(0).tokens[: 64 * 16].astype("int64"))
    states = model.encoder.all_states(token_ids=tokens.view(64, 16))
    expected = (states[2] - states[1]).norm(dim=-1).mean().detach()
    assert distances["l2"][1] == pytest.approx(float(expected), rel=1e-5)
