"""GLUE's files as they are in the wild: every task reads, whatever its files' oddities, and
whatever is wrong is told."""

import gzip
from pathlib import Path

import pytest

from litebert.errors import ConfigError, DataError
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.examples import TextExample
from litebert.tasks.registry import BENCHMARKS, OWN, TableOptions, open_task
from litebert.tasks.task import TaskData
from litebert.testing import TINY_SPLITS, tiny_task

NLI_HEADER = "index\tsentence1\tsentence2\tlabel\n"


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def texts(data: TaskData, split: str) -> list[tuple[str, str, str | None, str | float | None]]:
    actual = data.splits[split]
    assert all(isinstance(example, TextExample) for example in actual)
    return [
        (example.key, example.first, example.second, example.label)
        for example in actual
        if isinstance(example, TextExample)
    ]


@pytest.mark.parametrize("name", GLUE)
def test_every_task_reads_from_its_folder_and_from_the_parent(tmp_path: Path, name: str) -> None:
    parent = tiny_task(tmp_path, name)
    data = open_task(name, parent)
    counts = {"test": TINY_SPLITS["test"]} if name == "diagnostic" else TINY_SPLITS
    assert {split: len(examples) for split, examples in data.splits.items()} == counts
    assert data.notes == ()
    own = open_task(name, parent / GLUE[name].folders[0])
    assert own == data
    assert all(
        example.label is None for example in data.splits["test"] if isinstance(example, TextExample)
    )
    for split in set(counts) - {"test"}:
        labels = [label for _, _, _, label in texts(data, split)]
        known = (
            all(isinstance(label, float) for label in labels)
            if name == "stsb"
            else set(labels) == set(data.task.labels)
        )
        assert known


def test_cola_has_no_header_in_train_and_dev_but_one_in_test(tmp_path: Path) -> None:
    write(tmp_path / "CoLA/train.tsv", "gj04\t1\t\tIt's here.\nbc01\t0\t*\tHere it's.\n")
    write(tmp_path / "CoLA/test.tsv", "index\tsentence\n0\tIs it?\n7\tIt is.")
    data = open_task("cola", tmp_path)
    assert texts(data, "train") == [("0", "It's here.", None, "1"), ("1", "Here it's.", None, "0")]
    assert [example.slice for example in data.splits["train"]] == ["gj04", "bc01"]
    assert texts(data, "test") == [("0", "Is it?", None, None), ("7", "It is.", None, None)]
    assert [example.where for example in data.splits["train"]] == ["train.tsv:1", "train.tsv:2"]


def test_mrpc_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    row = '1\t11\t22\tHe said : " no " .\t" No , " he said .\r\n'
    write(
        tmp_path / "dev.tsv",
        b"\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n" + row.encode(),
    )
    assert texts(open_task("mrpc", tmp_path), "dev") == [
        ("0", 'He said : " no " .', '" No , " he said .', "1")
    ]


def test_quotes_are_characters_and_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    """A csv reader would join the first two rows; str.splitlines would cut the third in two."""
    rows = [
        '0\t"One\ttwo"\tentailment',
        '1\tthree "\t"four\tnot_entailment',
        "2\tfi\u2028ve\tsi\x85x\x0b\tentailment",
    ]
    write(tmp_path / "dev.tsv", NLI_HEADER + "\n".join(rows) + "\n")
    assert texts(open_task("rte", tmp_path), "dev") == [
        ("0", '"One', 'two"', "entailment"),
        ("1", 'three "', '"four', "not_entailment"),
        ("2", "fi\u2028ve", "si\x85x\x0b", "entailment"),
    ]


def test_stsb_has_ten_columns_and_numbers(tmp_path: Path) -> None:
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    )
    write(
        tmp_path / "train.tsv",
        header + "5\tmain-news\tMSR\t2012\t0\tnone\tnone\tA b.\tC d.\t3.800\n",
    )
    data = open_task("stsb", tmp_path)
    assert texts(data, "train") == [("5", "A b.", "C d.", 3.8)]
    assert data.splits["train"][0].slice == "main-news"
    assert data.task.head == "regress"


def test_mnli_has_two_devs_and_two_tests_with_other_columns(tmp_path: Path) -> None:
    write(
        tmp_path / "train.tsv",
        "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tfiction\ta\tb\tneutral\tneutral\n",
    )
    labels = "label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"
    dev = (
        f"index\tgenre\tsentence1\tsentence2\t{labels}\n"
        "0\ttravel\tc\td\tneutral\t\t\t\t\tentailment\n"
    )
    write(tmp_path / "dev_matched.tsv", dev)
    write(tmp_path / "dev_mismatched.tsv", dev.replace("travel", "letters"))
    write(tmp_path / "test_matched.tsv", "index\tsentence1\tsentence2\n0\te\tf\n")
    write(tmp_path / "test_mismatched.tsv", "index\tsentence1\tsentence2\n0\tg\th\n")
    data = open_task("mnli", tmp_path)
    assert list(data.splits) == ["train", "dev", "dev_mismatched", "test", "test_mismatched"]
    assert texts(data, "dev_mismatched") == [("0", "c", "d", "entailment")]
    assert [
        example.slice for example in (*data.splits["train"], *data.splits["dev_mismatched"])
    ] == ["fiction", "letters"]
    assert list(open_task("mnli", tmp_path, splits=["dev_mismatched"]).splits) == ["dev_mismatched"]


def test_the_diagnostic_set_with_its_labels(tmp_path: Path) -> None:
    header = (
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\t"
        "Premise\tHypothesis\tLabel\n"
    )
    write(
        tmp_path / "diagnostic-full.tsv",
        header + "Quantifiers\t\t\t\tNews\tAll.\tSome.\tentailment\n",
    )
    data = open_task("diagnostic", tmp_path)
    assert texts(data, "test") == [("0", "All.", "Some.", "entailment")]
    assert data.splits["test"][0].slice == "News"


@pytest.mark.parametrize("filler", ["", "-1"])
def test_labels_of_test_that_are_filled_in(tmp_path: Path, filler: str) -> None:
    write(tmp_path / "test.tsv", NLI_HEADER + f"0\ta\tb\t{filler}\n")
    assert texts(open_task("rte", tmp_path), "test") == [("0", "a", "b", None)]


def test_broken_lines_of_qqp_are_left_out_and_counted(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(
        tmp_path / "train.tsv",
        header + "1\t2\t3\tWhy?\tHow?\t0\n4\t5\tcut off\n6\t7\t8\tWho?\tWhat?\t1\n",
    )
    data = open_task("qqp", tmp_path)
    assert texts(data, "train") == [("1", "Why?", "How?", "0"), ("6", "Who?", "What?", "1")]
    assert data.notes == (
        f"1 bad row was left out; the first: {tmp_path}/train.tsv, line 3: the row has 3 fields, "
        "the header names 6; the separators do not fit",
    )


@pytest.mark.parametrize("bad_rows", ["skip", "quarantine"])
def test_bad_rows_are_left_out_and_kept(tmp_path: Path, bad_rows: str) -> None:
    rows = (
        "0\ta\tb\tentailment\n1\tc\td\tperhaps\n2\te\n3\tf\tg\xff\tentailment\n"
        "4\th\ti\tnot_entailment\n"
    )
    write(tmp_path / "dev.tsv", (NLI_HEADER + rows).encode("latin-1"))
    kept = tmp_path / "kept.jsonl"
    data = open_task("rte", tmp_path, options=TableOptions(bad_rows=bad_rows, quarantine=str(kept)))  # type: ignore[arg-type]
    assert [key for key, *_ in texts(data, "dev")] == ["0", "4"]
    assert data.notes[0].startswith("3 bad rows were left out")
    assert kept.exists() == (bad_rows == "quarantine")
    if kept.exists():
        assert [line.split('"reason": "')[1][:12] for line in kept.read_text().splitlines()] == [
            "the label is", "the row has ", "byte 0xff at",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"dev\.tsv, line 1: the file is empty"),
        (NLI_HEADER, r"dev\.tsv: there is no usable example for dev of rte"),
        (
            "Quality\t#1 String\n1\tx\n",
            r"no column 'sentence1', which rte has; the file has: Quality, #1 String; is it GLUE's",
        ),
        (
            NLI_HEADER + "0\ta\tb\t-\n",
            r"line 2: the label is '-', rte has: entailment, not_entailment; .*--bad-rows skip",
        ),
        (
            NLI_HEADER + "0\ta\n",
            r"line 2: the row has 2 fields, the header names 4; the separators do not fit",
        ),
        ("a\ta\n1\t2\n", r"the header names the column 'a' more than once"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "dev.tsv", text)
    with pytest.raises(DataError, match=message):
        open_task("rte", tmp_path)


def test_a_score_that_is_no_number(tmp_path: Path) -> None:
    write(tmp_path / "dev.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\tnan\n")
    with pytest.raises(DataError, match="line 2: the score is 'nan', expected a number"):
        open_task("stsb", tmp_path)


def test_missing_splits_are_named_with_what_was_looked_for(tmp_path: Path) -> None:
    parent = tiny_task(tmp_path, "rte")
    (parent / "RTE/train.tsv").unlink()
    assert list(open_task("rte", parent).splits) == ["dev", "test"]
    with pytest.raises(
        DataError,
        match=r"holds no train \(train.tsv\) of rte, .* RTE, rte; there is: dev, test; --split-dev",
    ):
        open_task("rte", parent, splits=["train", "dev"])
    with pytest.raises(DataError, match=r"holds no train \(train.tsv\); dev \(dev_matched.tsv\)"):
        open_task("mnli", parent)
    with pytest.raises(DataError, match="rte has no split 'valid'; it has: train, dev, test"):
        open_task("rte", parent, splits=["valid"])
    with pytest.raises(
        DataError, match="nowhere: no such file or folder; expected the data of rte"
    ):
        open_task("rte", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="there is no task 'sst-2'; did you mean 'sst2'"):
        open_task("sst-2", parent)


def test_a_file_may_be_given_itself_and_be_compressed(tmp_path: Path) -> None:
    parent = tiny_task(tmp_path, "rte")
    data = open_task("rte", parent)
    assert open_task("rte", parent / "RTE/test.tsv").splits == {"test": data.splits["test"]}
    odd = (parent / "RTE/dev.tsv").rename(tmp_path / "mine.tsv")
    as_test = open_task("rte", odd, splits=["dev"])
    assert texts(as_test, "dev") == texts(data, "dev")
    write(parent / "RTE/dev.tsv.gz", gzip.compress(odd.read_bytes()))
    assert texts(open_task("rte", parent), "dev") == texts(data, "dev")


def test_dev_alone_is_cut_once_and_no_text_stands_on_both_sides(tmp_path: Path) -> None:
    parent = tiny_task(tmp_path, "qnli", scale=20)
    (parent / "QNLI/train.tsv").unlink()
    # many premises stand in several pairs, as in MNLI
    rows = [
        f"{number}\tpremise {number // 3}\thypothesis {number}\tentailment" for number in range(300)
    ]
    write(parent / "QNLI/dev.tsv", "index\tquestion\tsentence\tlabel\n" + "\n".join(rows))
    options = TableOptions(split_dev=0.2)
    data = open_task("qnli", parent, options=options)
    train, dev = texts(data, "train"), texts(data, "dev")
    assert len(dev) == 60
    assert len(train) == 240
    assert not {first for _, first, _, _ in train} & {first for _, first, _, _ in dev}
    assert (
        "240 examples to train on and 60 to score on (seed 0); the score is not the official one"
        in data.notes[0]
    )
    assert (
        open_task("qnli", parent, options=options, splits=["dev"]).splits["dev"]
        == data.splits["dev"]
    )
    other = open_task("qnli", parent, options=TableOptions(split_dev=0.2, cut_seed=1))
    assert texts(other, "dev") != dev


def test_split_dev_leaves_a_benchmark_with_train_alone(tmp_path: Path) -> None:
    parent = tiny_task(tmp_path, "rte")
    assert open_task("rte", parent, options=TableOptions(split_dev=0.2)) == open_task("rte", parent)


def test_all_names_are_known() -> None:
    names = "cola sst2 mrpc stsb qqp mnli qnli rte wnli diagnostic squad1 squad2 race"
    assert list(BENCHMARKS) == names.split()
    assert OWN == ("classify", "pair", "regress", "choose", "answer", "tag")
    assert all(name == benchmark.task.name for name, benchmark in BENCHMARKS.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bad_rows": "ignore"}, "bad_rows is one of error, skip, quarantine; got 'ignore'"),
        ({"level": "low"}, "level is one of all, middle, high"),
        ({"dev_fraction": 1.0}, "dev_fraction is a number from 0 to 0.9"),
        ({"split_dev": 0.0}, "split_dev is a number from 0.01 to 0.9, or none"),
        ({"dev_fraction": 0.5, "test_fraction": 0.5}, "leave less than 5 % to train on"),
        ({"labels": ("a", "a")}, "labels are named twice; got a, a"),
        ({"cut_seed": -1}, "cut_seed is a whole number from 0"),
    ],
)
def test_options_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableOptions(**change)  # type: ignore[arg-type]
