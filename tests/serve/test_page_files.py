"""The page's files: complete, each used, nothing from elsewhere, nothing that its policy refuses;
and its tables and snippets are those of the command line."""

import ast
import csv
import io
import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from litebert.infer.formats import LineWriter, to_dict
from litebert.infer.verbs import Verb
from litebert.tasks.predictions import (
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from tests.helpers.page_service import PAGE

FILES = sorted(PAGE.iterdir())
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))


INDEX = Elements((PAGE / "index.html").read_text())


def run_module(source: str, value: Any) -> Any:
    """What a program with the page's modules writes about `value`."""
    program = f"const value = {json.dumps(value)};\n{source}"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program.replace("page/", f"{PAGE.as_uri()}/")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_file_is_reached_from_the_page_and_every_address_is_a_file() -> None:
    links = [
        value
        for _, attributes in INDEX.all
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert all(link is not None and link.startswith("page/") for link in links)
    reached = {"index.html"}
    waiting = [str(link).removeprefix("page/") for link in links]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            imports = re.findall(r'^import .* from "\./(.+)";$', (PAGE / name).read_text(), re.M)
            waiting += imports if name.endswith(".js") else []
    assert reached == {file.name for file in FILES}


def test_attributes_for_screen_readers_are_those_of_the_standard() -> None:
    standard = {"busy", "controls", "hidden", "label", "labelledby", "pressed", "selected"}
    text = "\n".join(file.read_text() for file in FILES)
    assert set(re.findall(r"\baria-(\w+)", text)) == standard


def test_the_page_has_nothing_that_a_strict_policy_refuses() -> None:
    for tag, attributes in INDEX.all:
        assert tag not in ("style", "iframe", "object", "embed", "base")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert tag != "script" or "src" in attributes


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere_and_texts_are_never_markup(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|\burl\(", text)
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc"
    assert not re.search(markup, text)
    assert not re.search(r"localStorage|sessionStorage|document\.cookie", text), "keeps a key"


@needs_node
def test_scripts_parse(tmp_path: Path) -> None:
    """The panel's imports are all but page.js, which needs a document to run."""
    loads = 'import { Panel } from "page/panel.js"; console.log(JSON.stringify(typeof Panel));'
    assert run_module(loads, None) == "function"
    module = tmp_path / "module.mjs"
    module.write_bytes((PAGE / "page.js").read_bytes())
    subprocess.run(["node", "--check", str(module)], check=True)


CELLS = ["plain", 'a "quoted", cell', "two\nlines", "=1+1", "-2.5", "-", "@x", "\ttab", "+a", "é,;"]
PREDICTIONS: list[tuple[Verb, Prediction, bool]] = [
    ("classify", LabelPrediction(label="good", probabilities={"good": 0.75, "bad": 0.25}), False),
    ("pair", MultiLabelPrediction(probabilities={"=a": 0.7, "b": 0.6, "c": 0.1}), True),
    ("regress", NumberPrediction(value=-1.5), False),
    ("tag", TagPrediction(tags=("O", "B-X"), probabilities=(0.9, 0.8)), False),
    (
        "answer",
        SpanPrediction(
            spans=(Span(text="-x", start=1, end=3, score=-0.5),),
            null_score=0.25,
            null_threshold=None,
        ),
        False,
    ),
]


@needs_node
@pytest.mark.parametrize(
    ("verb", "prediction", "multilabel"), PREDICTIONS, ids=lambda x: str(x)[:8]
)
def test_a_labeled_table_is_the_one_that_predict_writes(
    verb: Verb, prediction: Prediction, multilabel: bool
) -> None:
    result = {key: value for key, value in to_dict(prediction).items() if key != "spans"}
    labels = list(result.get("probabilities", {})) if verb in ("classify", "pair") else []
    inputs = ["label", "text", *(f"column {i}" for i in range(len(CELLS) - 2))]
    writer = LineWriter("x.csv", verb, inputs=inputs, labels=labels, multilabel=multilabel)
    theirs = writer.header() + writer.rows([CELLS], [result])
    ours = run_module(
        'import { labeled, toCsv } from "page/table.js";\n'
        "const [header, rows, results] = value;\n"
        "console.log(JSON.stringify(toCsv(labeled(header, rows, results))));",
        [inputs, [CELLS], [result]],
    )
    assert read_cells(ours) == read_cells(theirs.decode())


def read_cells(text: str) -> list[list[str | float]]:
    """Cells, numbers as numbers: the two languages write 1.0 and 1e-06 differently."""
    return [[as_number(cell) for cell in row] for row in csv.reader(io.StringIO(text, newline=""))]


def as_number(cell: str) -> str | float:
    try:
        return float(cell)
    except ValueError:
        return cell


@needs_node
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_are_read_as_they_were_written(separator: str) -> None:
    header = [f"column {i}" for i in range(len(CELLS))]
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([header, CELLS, ["", *CELLS[1:]]])
    read = run_module(
        'import { parseTable } from "page/table.js";\n'
        'console.log(JSON.stringify(parseTable(value, "a.csv")));',
        "\ufeff" + text.getvalue(),
    )
    assert read == [header, CELLS, ["", *CELLS[1:]]]


@needs_node
def test_tabbed_files_have_no_quoting_and_broken_ones_are_refused() -> None:
    read = run_module(
        'import { decode, parseTable, uniqueNames } from "page/table.js";\n'
        "const tell = (act) => { try { return act(); } catch (error) { return error.message; } };\n"
        "console.log(JSON.stringify([\n"
        '  parseTable(`a\\t"b\\r\\n1\\t2\\n`, "x.tsv"),\n'
        '  tell(() => parseTable(`a,"b`, "x.csv")),\n'
        '  tell(() => parseTable("a\\0", "x.csv")),\n'
        "  tell(() => decode(new Uint8Array([0xe9, 0x20]))),\n"
        "  decode(new Uint8Array([0xff, 0xfe, 0xe9, 0x00])),\n"
        '  uniqueNames(["a", "", "a"]),\n'
        "]));",
        None,
    )
    assert read == [
        [["a", '"b'], ["1", "2"]],
        "A quote in the file is never closed.",
        "The file is binary; expected a .csv or .tsv file.",
        "The file is not UTF-8. Save it as “CSV UTF-8”, then drop it again.",
        "é",
        ["a", "column 2", "a (2)"],
    ]


BODY = {"model": "base", "texts": ['it\'s "so"\n$HOME `x` \\ \U0001f600 \u2028'], "top": 5}


@needs_node
@pytest.mark.parametrize("needs_key", [False, True])
def test_snippets_hold_the_request_whatever_its_text(needs_key: bool) -> None:
    curl, program = run_module(
        'import { asCurl, asPython } from "page/snippets.js";\n'
        "const [url, body, needsKey] = value;\n"
        "const both = [asCurl, asPython].map((write) => write(url, body, needsKey));\n"
        "console.log(JSON.stringify(both));",
        ["http://127.0.0.1:1/v1/fill", BODY, needs_key],
    )
    words = shlex.split(curl)
    assert words[:2] == ["curl", "http://127.0.0.1:1/v1/fill"]
    assert json.loads(words[words.index("-d") + 1]) == BODY
    assert ("Authorization: Bearer $LITEBERT_KEY" in words) == needs_key
    tree = ast.parse(program)
    assigned = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert ast.literal_eval(assigned["body"]) == BODY
    assert ("os.environ['LITEBERT_KEY']" in program) == needs_key


@needs_node
def test_charts_have_few_round_numbers_around_their_values() -> None:
    ticks, layers = run_module(
        'import { layerTicks, ticks } from "page/layers.js";\n'
        "const ranges = value.map(([low, high]) => ticks(low, high));\n"
        "console.log(JSON.stringify([ranges, [1, 6, 12, 24].map(layerTicks)]));",
        [[0, 24], [0, 0.97], [-0.2, 1], [0, 0], [0, 1234.5], [0, 3e-5]],
    )
    assert ticks[0] == [0, 10, 20, 30]
    assert ticks[1] == [0, 0.25, 0.5, 0.75, 1]
    for (low, high), numbers in zip(
        [(0, 24), (0, 0.97), (-0.2, 1), (0, 0), (0, 1234.5), (0, 3e-5)], ticks, strict=True
    ):
        assert numbers[0] <= low <= high <= numbers[-1]
        assert 2 <= len(numbers) <= 5
    assert layers == [
        [1],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 4, 6, 8, 10, 12],
        [1, 3, 6, 9, 12, 15, 18, 21, 24],
    ]


@needs_node
def test_words_are_split_as_python_splits_them_and_offsets_count_characters() -> None:
    text = " a\x1cb\x85c\u3000d\ufeffe\u200bf\n \u2029g "
    words, part = run_module(
        'import { slice, splitWords } from "page/dom.js";\n'
        'console.log(JSON.stringify([splitWords(value), slice("\U0001f600 in 1884.", 5, 9)]));',
        text,
    )
    assert words == text.split()
    assert part == "\U0001f600 in 1884."[5:9]


@needs_node
def test_durations_are_rounded_before_they_are_split() -> None:
    shown = run_module(
        'import { duration } from "page/dom.js";\n'
        "console.log(JSON.stringify(value.map((each) => duration(each))));",
        [4, 999, 1500, 60_000, 119_600, 125_000],
    )
    assert shown == ["4.0 ms", "999 ms", "1.5 s", "1 min 0 s", "2 min 0 s", "2 min 5 s"]


@needs_node
def test_a_refused_row_costs_only_itself_and_a_busy_service_is_waited_for() -> None:
    results, sizes, waited, done = run_module(
        'import { ServiceError } from "page/client.js";\n'
        'import { scoreRows } from "page/scoring.js";\n'
        "const [results, sizes, waited] = [Array(value).fill(null), [], []];\n"
        "let [isBusy, done] = [true, 0];\n"
        "const items = results.map((_, i) => (i === 3 ? null : `row ${i}`));\n"
        "await scoreRows(items, results, {\n"
        "  send: async (batch) => {\n"
        '    if (isBusy) { isBusy = false; throw new ServiceError("", 429, { waitSeconds: 2 }); }\n'
        "    sizes.push(batch.length);\n"
        '    if (batch.includes("row 5")) throw new ServiceError("refused", 422);\n'
        "    return batch;\n"
        "  },\n"
        "  wait: async (seconds) => waited.push(seconds),\n"
        "  onProgress: (numRows) => (done += numRows),\n"
        "});\n"
        "console.log(JSON.stringify([results, sizes, waited, done]));",
        70,
    )
    expected: list[Any] = [f"row {i}" for i in range(70)]
    expected[3], expected[5] = None, {"error": "refused"}
    assert results == expected
    assert (waited, done, max(sizes)) == ([2], 69, 64)
    assert sizes.count(1) == 2, "the refused row and its neighbor"
