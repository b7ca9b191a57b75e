"""Training data of the embedded models: what may ship gets in, what scores does not, and sources
are recorded; corpora are mixed by document."""

import csv
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from litebert.errors import ConfigError
from litebert.tasks.registry import open_task
from litebert.tasks.tables.pairs import open_pairs, open_teacher
from tools import model_data, model_facts, tuned_facts
from tools.mix_corpora import documents, mix_one, parse_share
from tools.model_data import SOURCES, WRITERS, Writer, unquoted
from tools.teacher_vectors import directions, normalized, read_texts, rotated_like


def pack(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)


def squad(question: str) -> str:
    answers = [{"text": "whale", "answer_start": 4}]
    paragraphs = [
        {
            "context": "the whale sails",
            "qas": [{"id": f"{question} {number}", "question": question, "answers": answers}],
        }
        for number in range(30)
    ]
    return json.dumps({"data": [{"title": "sea", "paragraphs": paragraphs}]})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    nli = "premise\thypothesis\tlabel\tsource\n"
    nli += "A whale sails.\tAn animal moves.\tentailment\tsnli\n"
    nli += "A whale sails.\tNothing moves.\tcontradiction\tsnli\n"
    nli += "A storm comes.\tThere is weather.\tentailment\tlinginloop\n"
    nli += "A man  is singing!\tSomeone sings.\tentailment\tcad\n"
    for split in ("train", "dev"):
        pack(folder / f"nli/mixed.{split}.tsv.xz", nli)
        words = (
            "# text\n1\tShips\tship\tNOUN\tNNS\t_\n2\tsail\tsail\tVERB\tVBP\t_\n2.1\t_\t_\t_\n\n"
        )
        pack(folder / f"tagging/ud_ewt/en_ewt-ud-{split}.conllu.xz", words * 2)
        phrase = "a warm and funny story of a whale\t1\na cold and empty story of the sea\t0\n"
        pack(folder / f"glue/SST-2/{split}.tsv", "sentence\tlabel\n" + phrase * 12)
    for split in ("train", "dev", "test"):
        rows = "sentence1\tsentence2\tscore\na man is singing\tsome rain\t2.0\n"
        pack(folder / f"glue/STS-B/{split}.tsv", rows)
    for stem in ("squad-train.part", "squad-train.part2", "fairytaleqa.train", "policyqa.dev"):
        pack(folder / f"squad/{stem}.json.xz", squad(f"who sails in {stem}?"))
    pack(folder / "squad/dev-v1.1.json", squad("who scores?"))
    pack(folder / "pairs/banking77.train.tsv.xz", "text\tlabel\nno card\tcard\nmy card?\tcard\n")
    paragraph = "The whale sails far. " * 20
    pack(folder / "corpus/wikipedia-recent.txt.xz", f"{paragraph}\n\n")
    return folder


@pytest.fixture(scope="module")
def tasks(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Writer]]:
    out = tmp_path_factory.mktemp("tasks")
    writers = {part: Writer(out, None) for part in WRITERS}
    for part, writer in writers.items():
        WRITERS[part](data, writer)
    return out, writers


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_ships_has_a_license_and_only_sentiment_an_exception(
    tasks: tuple[Path, dict[str, Writer]],
) -> None:
    out, writers = tasks
    assert {each.part for each in SOURCES if each.license == "none stated"} == {"sentiment"}
    names = {each.name for each in SOURCES}
    assert all(writer.counts.keys() <= names for writer in writers.values())
    assert not [row for row in rows(out / "nli/train.csv") if "storm" in row["premise"]]
    assert [row for row in rows(out / "nli-all/train.csv") if "storm" in row["premise"]]
    assert writers["nli"].counts == {"SNLI": 2, "counterfactually revised SNLI": 1}


def test_one_part_keeps_the_sources_of_the_others(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("tag", "nli"):
        words = ["model_data", str(data), str(tmp_path), "--part", part]
        monkeypatch.setattr("sys.argv", words)
        model_data.main()
    record = json.loads((tmp_path / "sources.json").read_text())
    assert [row["name"] for row in record["tag"]] == ["UD English EWT"]
    assert "SNLI" in [row["name"] for row in record["nli"]]


def test_no_text_of_sts_b_is_trained_on(tasks: tuple[Path, dict[str, Writer]]) -> None:
    out, _ = tasks
    texts = [text for row in rows(out / "similarity/train.csv") for text in row.values()]
    assert "A whale sails." in texts
    assert not [text for text in texts if "singing" in text]
    assert "singing" not in (out / "similarity/texts.txt").read_text()
    assert rows(out / "similarity/dev.csv")[0]["text_a"] == "a man is singing"


def test_every_table_is_read_as_its_task(tasks: tuple[Path, dict[str, Writer]]) -> None:
    out, _ = tasks
    for task, part in (("pair", "nli"), ("answer", "answer"), ("tag", "tag")):
        assert open_task(task, out / part).splits["train"]
    sentiment = open_task("classify", out / "sentiment")
    assert sentiment.task.labels == ("negative", "positive")
    longest = max(len(example.first.split()) for example in sentiment.splits["train"])  # type: ignore[union-attr]
    assert longest >= 60
    units = open_pairs(out / "similarity/train.csv").train
    assert max(np.diff(units.bounds)) == 3  # with a hard negative
    assert "d0" in (out / "retrieval/squad/qrels/test.tsv").read_text()


def test_a_mix_takes_whole_documents_and_a_larger_share_includes_a_smaller(tmp_path: Path) -> None:
    text = "\n".join(f"document {number}\nits text\n" for number in range(200))
    source = tmp_path / "sea.txt.xz"
    pack(source, text)
    chosen = {}
    for share in (0.3, 0.6, 1.0, 2.0):
        out = tmp_path / str(share)
        out.mkdir()
        part = mix_one(source, share, out)
        chosen[share] = list(documents(out / "sea.txt.xz"))
        assert part["documents"] == len(chosen[share])
    assert 30 < len(chosen[0.3]) < 90
    assert set(chosen[0.3]) < set(chosen[0.6]) < set(chosen[1.0])
    assert len(chosen[2.0]) == 2 * len(chosen[1.0]) == 400
    assert parse_share("a.txt.xz=0.5") == (Path("a.txt.xz"), 0.5)
    assert parse_share("a=b.txt") == (Path("a=b.txt"), 1.0)
    with pytest.raises(ConfigError, match=r"a share is a number above 0; got a\.txt=0"):
        parse_share("a.txt=0")


def test_fewer_directions_keep_cosines_where_vectors_have_no_more() -> None:
    draw = np.random.default_rng(0)
    vectors = normalized(draw.normal(size=(50, 4)) @ draw.normal(size=(4, 16)))
    small = normalized(vectors @ directions(vectors, 4).T)
    assert small.shape == (50, 4)
    np.testing.assert_allclose(small @ small.T, vectors @ vectors.T, atol=1e-6)


def test_a_rotation_keeps_cosines_and_finds_the_student() -> None:
    draw = np.random.default_rng(0)
    teacher = normalized(draw.normal(size=(60, 6)))
    hidden, _ = np.linalg.qr(draw.normal(size=(20, 6)))
    student = 3 * teacher @ hidden.T + draw.normal(size=20)  # longer, and away from the origin
    turned = rotated_like(teacher, student[:40])
    assert turned.shape == (60, 20)
    np.testing.assert_allclose(turned @ turned.T, teacher @ teacher.T, atol=1e-12)
    centered = normalized(student - student.mean(0))
    other, _ = np.linalg.qr(draw.normal(size=(20, 6)))
    assert (turned * centered).sum() > 0.95 * 60 > (teacher @ other.T * centered).sum()


def test_a_teacher_reads_lines_as_the_run_does(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("one\u2028still one\ntwo\x0cstill two\nthree\x85\n", encoding="utf-8")
    np.save(tmp_path / "vectors.npy", np.ones((len(read_texts(texts)), 2), np.float32))
    assert len(open_teacher(tmp_path / "vectors.npy", texts).texts) == 3


def test_facts_of_a_card_come_from_the_records(tmp_path: Path) -> None:
    stored = {
        "task": "classify",
        "num_examples": 872,
        "scores": {"accuracy": 0.885, "matthews": None},
        "intervals": {"accuracy": [0.86, 0.91]},
        "calibration": {"error": 0.021, "bins": []},
    }
    (tmp_path / "scores.json").write_text(json.dumps(stored))
    result = {"score": 0.887, "scores": {"accuracy": 0.887}, "dev_examples": 872}
    accuracy, error = tuned_facts.scores(tmp_path / "scores.json", [result])
    assert accuracy == {
        "task": "classify",
        "score": "accuracy",
        "value": 88.5,
        "split": "dev",
        "note": "as stored, 872 examples; 95 % interval 86.0 to 91.0; 88.7 before",
    }
    assert (error["score"], error["value"]) == ("calibration error", 2.1)
    assert set(tuned_facts.SUMMARIES) == set(tuned_facts.LIMITS)


def test_facts_of_a_pretrained_model_come_from_its_legs() -> None:
    leg = {"leg": "leg-1", "kept_step": 500, "steps": 600}
    pretraining = {"gpu_minutes": 8.6, "device": "H200", "tokens": 10, "steps": 600, "flops": 1e18}
    recipe = {
        "preset": "litebert-small",
        "objective": "rtd",
        "order": "none",
        "mask_fraction": 0.2,
        "optimizer": {"name": "muon", "learning_rate": 5e-3},
    }
    parts = [
        {"file": "wikipedia.00.txt.xz", "documents": 10, "megabytes": 2.0},
        {"file": "wikipedia.01.txt.xz", "documents": 5, "megabytes": 1.0},
        {"file": "wikipedia-recent.txt.xz", "documents": 7, "megabytes": 3.0},
    ]
    mixes = [{"parts": parts[:2]}, {"parts": parts[1:]}]  # a file that two legs read counts once
    facts = model_facts.pretrained_facts(
        "small", [], pretraining | {"legs": [leg]}, [recipe], mixes, None, is_cased=True
    )
    assert facts["summary"].startswith("litebert-small, pretrained by litebert from scratch in 9 m")
    assert [each["note"] for each in facts["data"]] == ["15 documents, 3 MB", "7 documents, 3 MB"]
    assert facts["recipe"]["objective"] == "replaced tokens, masked at 0.2"
    assert facts["recipe"]["legs"] == "leg-1, step 500 of 600"
    assert facts["limits"][0].startswith("English. It knows")
    assert facts["scores"] == []


def test_quotes_of_a_copied_field_are_taken_off() -> None:
    assert unquoted('"he said ""yes"""') == 'he said "yes"'
    assert unquoted('"yes" and "no"') == '"yes" and "no"'
