"""A model exported for a browser, in Chromium without network: onnxruntime-web is installed as a
user installs it, then every verb gives what Python gives, rows leave at the same depth, and 10,000
lines of hard text get the same token ids."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.export.web import write_web
from litebert.infer.predictor import Predictor, load
from litebert.loading import load_checkpoint
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import EmbedCard
from tests.helpers.browser import Browser, open_browser
from tests.helpers.models import texts
from tests.helpers.web import hard_lines, serve, task_model
from tests.infer.test_export import PLANS, model_of

pytestmark = pytest.mark.system

OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
MASKED = ["the [MASK] sails", "a [MASK] and a [MASK] or the [MASK] whale", "[MASK]"]
PROBE = """<!doctype html><script type="importmap">{ "imports": { "onnxruntime-web":
"./node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs" } }</script>
<script type="module">import * as litebert from "./litebert.js";
window.litebert = litebert;</script>
"""
ROUNDING, INT8_ROUNDING = 2e-5, 1e-2
"""Of probabilities and of vectors of length 1, against ONNX Runtime in Python. In int8 a last bit
may move an input to the next of 256 steps; the tests' wild weights show it more than real ones."""


class Site(NamedTuple):
    folder: Path
    url: str
    browser: Browser

    def export(self, checkpoint: Checkpoint, name: str, *, int8: bool = False) -> Predictor:
        """Write a model; what comes back computes its graphs in Python, each text alone."""
        precision: Any = "int8" if int8 else "float32"
        options = ExportOptions(runtime="web", precision=precision, force=True)
        export_folder(checkpoint, self.folder / name, options)
        (self.folder / f"{name}-python").mkdir()
        engine = write_web(checkpoint, self.folder / f"{name}-python", int8=int8)
        engine.batch_tokens = 1
        return Predictor(engine, task=checkpoint.task)

    def run(self, name: str, call: str, options: dict[str, Any] | None = None) -> Any:
        """What an expression of `model` gives."""
        code = f"""litebert.load({json.dumps(name)}, {json.dumps(options or {})})
            .then(async (model) => JSON.stringify(await ({call}),
            (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value))"""
        return json.loads(self.browser.run(code))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The exported embedded model, with npm's packages, served and opened."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("web")
    checkpoint, _ = load_checkpoint("base")
    options = ExportOptions(runtime="web", precision="int8")
    export_folder(checkpoint, folder / "site", options)
    install = ["npm", "install", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder / "site", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "site" / "probe.html").write_text(PROBE)
    with (
        serve(folder / "site") as url,
        open_browser(folder / "profile", OFFLINE) as browser,
    ):
        yield Site(folder / "site", url, browser)


@pytest.fixture
def probe(site: Site) -> Iterator[Site]:
    """A page with nothing but litebert.js."""
    site.browser.complaints.clear()
    site.browser.open(f"{site.url}probe.html")
    site.browser.wait("window.litebert !== undefined")
    yield site
    loaded = site.browser.run("performance.getEntriesByType('resource').map((each) => each.name)")
    assert all(address.startswith(site.url) for address in loaded)
    assert site.browser.complaints == []


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("int8", [False, True])
def test_every_plan_computes_what_python_computes(
    probe: Site, tmp_path: Path, plan: str, int8: bool
) -> None:
    checkpoint = model_of(tmp_path, ("masked", "classify"), **PLANS[plan])
    name, tolerance = f"{plan}-{int8}".replace(" ", "-"), INT8_ROUNDING if int8 else ROUNDING
    python = probe.export(checkpoint, name, int8=int8)
    inputs, few = texts(6), MASKED
    calls = f"""{{
        fill: await model.fill({json.dumps(few)}, {{ top: 3 }}),
        embed: await model.embed({json.dumps(inputs)}, {{ normalize: true }}),
        first: await model.embed({json.dumps(inputs[0])}, {{ normalize: true, pooling: "cls" }}),
        classify: await model.classify({json.dumps(inputs)}),
        pair: await model.pair({json.dumps(inputs[:3])}, {json.dumps(inputs[3:])}),
    }}"""
    results = probe.run(name, calls)
    vectors = python.embed(inputs, normalize=True)
    np.testing.assert_allclose(results["embed"], vectors, atol=tolerance)
    first = python.embed(inputs[0], normalize=True, pooling="cls")
    np.testing.assert_allclose(results["first"], first, atol=tolerance)
    for verb, ours in (
        ("classify", python.classify(inputs)),
        ("pair", python.pair(inputs[:3], inputs[3:])),
    ):
        for theirs, mine in zip(results[verb], ours, strict=True):
            assert theirs["probabilities"] == pytest.approx(mine.probabilities, abs=tolerance)
    for theirs, guesses in zip(results["fill"], python.fill(few, top=3), strict=True):
        for row, expected in zip(theirs, guesses, strict=True):
            probabilities = [each.probability for each in expected]
            assert [each["probability"] for each in row] == pytest.approx(
                probabilities, abs=tolerance
            )
            if not int8:
                assert [each["token"] for each in row] == [each.token for each in expected]


CASES: list[tuple[str, str, str, float, dict[str, Any]]] = [
    ("classify", "each", "confidence", 0.5, {}),
    ("classify", "one", "cumulative", 0.6, {"norm": "pre"}),
    ("multilabel", "each", "patience", 1.0, {"norm": "pre", "positions": "rotary"}),
    ("regress", "each", "patience", 1.0, {"share": "attention"}),
]


@pytest.mark.parametrize(("head", "exits", "criterion", "threshold", "encoder"), CASES)
def test_rows_leave_at_the_same_depth(
    probe: Site,
    tmp_path: Path,
    head: Any,
    exits: str,
    criterion: str,
    threshold: float,
    encoder: dict[str, Any],
) -> None:
    kind = "regress" if head == "regress" else "classify"
    stored = {criterion: {"threshold": threshold, "tolerance": 0.8 if kind == "regress" else 0.0}}
    card = {"exits": stored, "temperature": 2.0 if head == "classify" else 1.0}
    checkpoint = task_model(tmp_path, head, kind=kind, exits=exits, card=card, **encoder)
    name = f"exits-{head}-{exits}"
    python = probe.export(checkpoint, name)
    inputs = texts(16)
    verb = getattr(python, kind)
    full = probe.run(name, f"model.{kind}({json.dumps(inputs)})")
    assert numbers(full) == pytest.approx(numbers(verb(inputs)), abs=ROUNDING)
    python.leave_early(criterion)
    early = probe.run(name, f"model.{kind}({json.dumps(inputs)})", {"exit": criterion})
    ours = verb(inputs)
    assert numbers(early) == pytest.approx(numbers(ours), abs=ROUNDING)
    assert numbers(early) != pytest.approx(numbers(full), abs=1e-3)
    if kind == "classify":
        depths = [each["depth"] for each in early]
        assert depths == [each.depth for each in ours]
        assert len({*depths}) > 1


def test_vectors_are_made_as_the_model_was_tuned(probe: Site, tmp_path: Path) -> None:
    tuned = EmbedCard(pooling="cls", dimensions=(16,)).to_dict()
    checkpoint = replace(model_of(tmp_path, ("masked",)), task=tuned)
    python = probe.export(checkpoint, "tuned")
    inputs = texts(4)
    calls = f"""{{
        all: await model.embed({json.dumps(inputs)}),
        few: await model.embed({json.dumps(inputs)}, {{ dimensions: 16 }}),
        raw: await model.embed({json.dumps(inputs)}, {{ normalize: false, pooling: "mean" }}),
    }}"""
    results = probe.run("tuned", calls)
    np.testing.assert_allclose(results["all"], python.embed(inputs), atol=ROUNDING)
    np.testing.assert_allclose(results["few"], python.embed(inputs, dimensions=16), atol=ROUNDING)
    raw = python.embed(inputs, normalize=False, pooling="mean")
    np.testing.assert_allclose(results["raw"], raw, atol=ROUNDING)


def test_a_released_model_answers_no_more(probe: Site) -> None:
    code = """litebert.load(".").then(async (model) => {
        const running = model.embed("the sea");
        await model.release();
        const vector = await running;
        return vector.length + " " + await model.embed("the sea").catch((error) => error.message);
    })"""
    assert probe.browser.run(code) == "768 this model was released; load it again"


def numbers(results: list[Any]) -> list[float]:
    if isinstance(results[0], float | int):
        return results
    every = [
        each["probabilities"] if isinstance(each, dict) else each.probabilities for each in results
    ]
    return [value for probabilities in every for value in probabilities.values()]


def test_10_000_lines_of_hard_text_get_our_ids(probe: Site) -> None:
    tokenizer = load("base", engine="torch", device="cpu").tokenizer
    lines = hard_lines(10_000, tokenizer, seed=4)
    rows = [[line, ids] for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True)]
    (probe.folder / "lines.json").write_text(json.dumps(rows))
    wrong = """fetch("lines.json").then((each) => each.json()).then((rows) => rows.filter(
        ([line, ids]) => model.tokenizer.encode(line).join() !== ids.join()).slice(0, 5))"""
    assert probe.run(".", wrong) == []


def test_the_embedded_model_answers_as_in_python(probe: Site, tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    checkpoint, _ = load_checkpoint("base")
    python = Predictor(write_web(checkpoint, tmp_path / "python", int8=True))
    sentence = "She opened the [MASK] and walked into the room."
    ((theirs,), (ours,)) = (
        probe.run(".", f"model.fill({json.dumps(sentence)}, {{ top: 3 }})"),
        python.fill(sentence, top=3),
    )
    assert [each["token"] for each in theirs] == [each.token for each in ours]
    assert theirs[0]["token"] == "door"
    assert theirs[0]["probability"] == pytest.approx(ours[0].probability, abs=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("model.classify('x')", "this model cannot classify; it can fill and embed"),
        ("model.fill('no mask')", r"there is no \[MASK\] in the text; write it where"),
        ("model.fill('the '.repeat(600) + '[MASK]')", r"a \[MASK\] is token 602 of the text"),
        ("model.fill('[MASK]', {top: 0})", "top is a whole number from 1; got 0"),
        ("model.embed(' ')", "the text for embed is empty; write what is to be read"),
        ("model.embed([3])", "expected a text for embed; got number"),
        ("model.embed('x', {pooling: 'max'})", "pooling is one of mean, cls; got max"),
        ("model.embed('x', {dimensions: 3})", "not trained for vectors of 3; it has: 768"),
        ("litebert.load('.', {exit: 'confidence'})", "this model has no exits, so every text"),
        ("litebert.load('nowhere')", r"manifest.json cannot be fetched \(status 404\)"),
    ],
)
def test_errors_say_what_to_do(probe: Site, call: str, message: str) -> None:
    caught = f"(async () => {call})().then(() => 'none', (error) => error.message)"
    assert re.search(message, probe.run(".", caught))


def test_a_file_that_was_exchanged_is_refused(probe: Site) -> None:
    shutil.copytree(
        probe.folder, probe.folder / "bad", ignore=shutil.ignore_patterns("node_modules")
    )
    graph = probe.folder / "bad" / "layer-0.onnx"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    caught = "litebert.load('bad').then(() => 'none', (error) => error.message)"
    message = probe.run(".", caught)
    assert message.startswith("layer-0.onnx is not the file that manifest.json lists; reload")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_answers_and_fits_the_window(site: Site, width: int, dark: bool) -> None:
    browser = site.browser
    browser.complaints.clear()
    browser.look(width=width, dark=dark)
    browser.open("about:blank")
    browser.open(site.url)
    browser.wait("document.querySelector('[role=tab]') !== null")
    assert browser.run("document.getElementById('facts').innerText").startswith("12 layers, int8")
    for verb, shown in (("fill", "door"), ("embed", "Someone plays an instrument.")):
        browser.run(f"document.getElementById('tab-{verb}').click()")
        browser.run("document.getElementById('form').requestSubmit()")
        browser.wait(f"document.getElementById('result').innerText.includes({json.dumps(shown)})")
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.run("document.getElementById('tab-fill').click()")
    browser.run("document.getElementById('first').value = 'no mask'")
    browser.run("document.getElementById('form').requestSubmit()")
    notice = "document.getElementById('notice').innerText"
    assert "there is no [MASK]" in browser.wait(notice)
    body = browser.run("getComputedStyle(document.body).backgroundColor")
    assert body == ("rgb(18, 20, 25)" if dark else "rgb(247, 247, 245)")
    assert browser.complaints == []


def test_the_page_lets_rows_leave_early(site: Site, tmp_path: Path) -> None:
    card = {"exits": {"confidence": {"threshold": 0.5, "tolerance": 0.0}}}
    checkpoint = task_model(tmp_path, "classify", kind="classify", exits="each", card=card)
    python = site.export(checkpoint, "early")
    python.leave_early("confidence")
    (site.folder / "early" / "node_modules").symlink_to(site.folder / "node_modules")
    browser = site.browser
    browser.complaints.clear()
    browser.open(f"{site.url}early/")
    browser.wait("document.querySelector('[role=tab][aria-selected=true]') !== null")
    tab = "document.querySelector('[role=tab][aria-selected=true]').innerText"
    assert browser.run(tab) == "Classify"
    browser.run("document.getElementById('exit').value = 'confidence'")
    browser.run("document.getElementById('exit').dispatchEvent(new Event('change'))")
    browser.wait("!document.getElementById('exit').disabled")
    for text in texts(4):
        browser.run(f"document.getElementById('first').value = {json.dumps(text)}")
        browser.run("document.getElementById('form').requestSubmit()")
        depth = python.classify(text).depth
        shown = f"answered after {depth} of 4 layers"
        browser.wait(f"document.getElementById('result').innerText.includes({json.dumps(shown)})")
    assert browser.complaints == []
    # where another choice cannot be loaded, the page goes on with what it has
    (site.folder / "early").rename(site.folder / "gone")
    browser.run("document.getElementById('exit').value = ''")
    browser.run("document.getElementById('exit').dispatchEvent(new Event('change'))")
    browser.wait("!document.getElementById('notice').hidden")
    browser.wait("document.getElementById('exit').value === 'confidence'")
    browser.run("document.getElementById('result').replaceChildren()")
    browser.run("document.getElementById('form').requestSubmit()")
    browser.wait(f"document.getElementById('result').innerText.includes({json.dumps(shown)})")


def test_the_page_says_what_is_missing(site: Site, tmp_path: Path) -> None:
    """Where npm install was forgotten."""
    for path in site.folder.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    with serve(tmp_path) as url:
        site.browser.open(url)
        notice = site.browser.wait("document.getElementById('notice')?.innerText")
    assert "onnxruntime-web cannot be imported: run npm install in the exported folder" in notice
