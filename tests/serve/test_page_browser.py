"""The page in Chromium, against a service with invented predictions: every verb, by keyboard too;
tables; keys; errors; narrow windows. Nothing that it is sent becomes markup."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.browser import CONTROL, Browser, open_browser
from tests.helpers.page_service import MODELS, Service, page_service
from tests.helpers.serving import Running

pytestmark = pytest.mark.system


class Page(NamedTuple):
    browser: Browser
    service: Service

    def show(self, verb: str) -> None:
        self.browser.open("about:blank")
        self.browser.open(f"{self.service.url}#{verb}")
        self.browser.wait(f"document.querySelector('#panel-{verb}:not([hidden])') !== null")

    def click(self, selector: str, number: int = 0) -> None:
        self.browser.run(f"document.querySelectorAll({selector!r})[{number}].click()")

    def type(self, selector: str, text: str) -> None:
        self.browser.run(f"document.querySelector({selector!r}).select()")
        self.browser.write(text)

    def text(self, selector: str) -> str:
        found = f"document.querySelector({selector!r})"
        return str(self.browser.run(f"{found} === null ? '' : {found}.innerText"))

    def wait_for(self, selector: str, text: str) -> None:
        found = f"document.querySelector({selector!r})?.innerText"
        self.browser.wait(f"({found} ?? '').includes({json.dumps(text)})")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    browser.look(width=1280)
    browser.complaints.clear()
    with page_service() as service:
        yield Page(browser, service)
        assert browser.complaints == []
        browser.open("about:blank")


SHOWN = {
    "fill": "Mask 2",
    "embed": "Closest: 1 and",
    "classify": "negative",
    "pair": "neutral",
    "regress": "5.100",
    "choose": "on foot",
    "answer": "1884",
    "tag": "Ada Lovelace",
    "layers": "the text leaves after layer 4 of 12",
}


@pytest.mark.parametrize("verb", SHOWN)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_each_verb_answers_its_example_and_fits_the_window(
    page: Page, verb: str, width: int, dark: bool
) -> None:
    page.browser.look(width=width, dark=dark)
    page.show(verb)
    page.click(f"#panel-{verb} .examples button:last-of-type")
    page.wait_for(f"#panel-{verb} .result", SHOWN[verb])
    assert re.search(r"^\w+ · [\d.]+ m?s$", page.text(f"#panel-{verb} .status"))
    assert page.browser.run("document.documentElement.scrollWidth") <= width
    body = page.browser.run("getComputedStyle(document.body).backgroundColor")
    assert body == ("rgb(18, 20, 25)" if dark else "rgb(247, 247, 245)")


def test_a_real_service_answers_every_tab_with_its_own_policy(
    browser: Browser, running: Running
) -> None:
    browser.look(width=390)
    browser.complaints.clear()
    browser.open(f"{running.url}/")
    browser.wait("document.querySelector('[role=tab]') !== null")
    verbs = browser.run("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)")
    assert len(verbs) == 9
    for verb in [name.removeprefix("tab-") for name in verbs]:
        browser.run(f"document.getElementById('tab-{verb}').click()")
        browser.run(f"document.querySelector('#panel-{verb} .examples button').click()")
        status = f"document.querySelector('#panel-{verb} .status')"
        # the tiny model reads 64 tokens: where the page offers to cut the example, accept
        cut = f"{status}.querySelector('button')?.click()"
        browser.wait(f"{cut}, {status}.innerText.startsWith('tiny · ')")
        assert not browser.run(f"document.querySelector('#panel-{verb} .result').hidden")
    assert browser.complaints == []


def test_a_tab_for_each_verb_and_a_model_for_each_tab(page: Page) -> None:
    page.show("fill")
    tabs = "[...document.querySelectorAll('[role=tab]')].map((tab) => tab.innerText)"
    assert page.browser.run(tabs) == [
        "Fill", "Similarity", "Classify", "Pair", "Regress", "Choose", "Answer", "Tag",
        "Layers",
    ]  # fmt: skip
    models = "[...document.querySelector('#panel-classify select').options].map((o) => o.value)"
    able = [name for name, facts in MODELS.items() if "classify" in facts["verbs"]]
    assert page.browser.run(models) == able
    page.show("classify")
    assert page.text("#panel-classify .facts") == "onnx, 512 tokens, exits"


def test_layers_are_drawn_and_the_depth_of_leaving_is_marked(page: Page) -> None:
    page.show("layers")
    panel = "document.querySelector('#panel-layers')"
    models = f"[...{panel}.querySelector('select').options].map((option) => option.value)"
    assert page.browser.run(models) == ["reviews", "base", "entailment"], "exits come first"
    page.type("#panel-layers textarea", "a good one")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-layers .answer", "positive")
    assert page.service.requests == [("layers", {"model": "reviews", "texts": ["a good one"]})]
    rows = f"[...{panel}.querySelectorAll('.depth')].map((row) => row.innerText.split('\\n'))"
    depths = page.browser.run(rows)
    assert [row[0] for row in depths] == [str(depth) for depth in range(1, 13)]
    marked = {row[0]: row[1] for row in depths if "leaves by" in row[1]}
    assert list(marked) == ["4", "6"]
    assert "leaves by patience" in marked["6"]
    drawn = f"[...{panel}.querySelectorAll('svg')].map((each) => each.ariaLabel)"
    assert page.browser.run(drawn) == [
        "L2 distance by layer, from 24.00 to 7.67",
        "Cosine by layer, from 0.50 to 0.97",
    ]
    dots = (
        f"[...{panel}.querySelectorAll('svg')].map((each) => each.querySelectorAll('.dot').length)"
    )
    assert page.browser.run(dots) == [12, 12]
    page.click("#panel-layers summary")
    assert "12\t7.667\t0.9747" in page.text("#panel-layers table")


def test_a_result_leads_to_its_layers(page: Page) -> None:
    page.show("pair")
    page.click("#panel-pair .examples button")
    page.wait_for("#panel-pair .answer", "neutral")
    page.click("#panel-pair .result .link")
    page.wait_for("#panel-layers:not([hidden]) .result", "As in Figure 1")
    assert not page.browser.run("document.querySelector('#panel-layers .answer') !== null")
    (_, body), (verb, asked) = page.service.requests
    assert (verb, asked) == ("layers", {"model": "entailment", "pairs": body["pairs"]})
    assert page.browser.run("document.activeElement.id") == "tab-layers"


def test_tabs_of_a_phone_scroll_to_the_chosen_one(page: Page) -> None:
    page.browser.look(width=390)
    page.show("layers")
    right = "document.getElementById('tab-layers').getBoundingClientRect().right"
    page.browser.wait(f"{right} <= 390 - 32")


def test_the_keyboard_is_enough(page: Page) -> None:
    page.show("classify")
    page.browser.run("document.getElementById('tab-classify').focus()")
    page.browser.press("ArrowLeft")
    page.browser.press("ArrowRight")
    assert page.browser.run("document.activeElement.id") == "tab-classify"
    for _ in range(4):  # past the three examples
        page.browser.press("Tab")
    assert page.browser.run("document.activeElement.tagName") == "TEXTAREA"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.browser.run(outline) == "solid"
    page.browser.write("a good one")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-classify .answer", "positive")
    assert page.service.requests == [("classify", {"model": "reviews", "texts": ["a good one"]})]


def test_a_request_is_cancelled_by_escape(page: Page) -> None:
    page.show("classify")
    page.service.gate.clear()
    page.type("#panel-classify textarea", "good")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-classify .actions .primary", "Cancel")
    page.browser.press("Escape")
    page.wait_for("#panel-classify .status", "Cancelled.")
    assert page.text("#panel-classify .actions .primary") == "Send"


def test_a_guess_is_inserted_and_the_mask_put_back(page: Page) -> None:
    page.show("fill")
    page.type("#panel-fill textarea", "From the [MASK] to the [MASK].")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-fill .result", "Mask 2")
    page.click("#panel-fill section:nth-of-type(2) .bar", 1)
    page.wait_for("#panel-fill .result", "The mask")
    assert page.browser.run("document.querySelector('#panel-fill textarea').value") == (
        "From the [MASK] to the lake."
    )
    page.click("#panel-fill .bar", 3)
    page.wait_for("#panel-fill mark", "<i>valley</i>")
    assert page.text("#panel-fill .passage") == "From the <i>valley</i> to the lake."
    page.click("#panel-fill .result button")
    page.wait_for("#panel-fill .result", "The mask")
    assert [body["texts"] for _, body in page.service.requests] == [
        ["From the [MASK] to the [MASK]."],
        ["From the [MASK] to the lake."],
        ["From the [MASK] to the lake."],
    ]


def test_what_comes_from_outside_is_text(page: Page) -> None:
    evil = "<img src=x onerror=alert(1)><b>1884</b>"
    page.show("answer")
    page.type("#panel-answer .field:nth-of-type(1) textarea", "When?")
    page.type("#panel-answer .field:nth-of-type(2) textarea", "\U0001f600" + evil)
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-answer mark", "1884")
    assert page.text("#panel-answer .passage") == "\U0001f600" + evil
    page.show("classify")
    page.browser.run("document.querySelector('#panel-classify select').value = 'topics'")
    page.type("#panel-classify textarea", evil)
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-classify .answer", "<b>law</b>, science")
    assert page.browser.run("document.querySelectorAll('main img, main b').length") == 0


def test_no_answer_is_said(page: Page) -> None:
    page.show("answer")
    page.type("#panel-answer .field:nth-of-type(1) textarea", "When?")
    page.type("#panel-answer .field:nth-of-type(2) textarea", "Nobody knows.")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-answer .answer", "The text does not say.")
    assert page.browser.run("document.querySelector('#panel-answer mark') === null")


@pytest.mark.parametrize(
    ("status", "message", "shown"),
    [
        (429, "the queue is full", "The service is busy. The queue is full. Try again in 0 s."),
        (413, "", "The request is larger than the service accepts."),
        (500, "", "The service failed."),
        (422, "texts[0] is empty", "Texts[0] is empty."),
    ],
)
def test_refusals_are_sentences(page: Page, status: int, message: str, shown: str) -> None:
    page.show("regress")
    page.service.failures = [(status, message)]
    page.type("#panel-regress textarea", "a text")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-regress .error", shown)


def test_missing_input_is_said_without_a_request(page: Page) -> None:
    page.show("fill")
    page.type("#panel-fill textarea", "no mask here")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-fill .error", "Put [MASK] where a word is to be guessed.")
    assert page.service.requests == []


def test_a_text_that_is_too_long_is_cut_only_when_asked(page: Page) -> None:
    page.show("classify")
    page.type("#panel-classify textarea", "good, too long")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-classify .error", "has 700 tokens, the model reads 512.")
    page.click("#panel-classify .status button")
    page.wait_for("#panel-classify .answer", "positive")
    assert [body.get("truncate") for _, body in page.service.requests] == [None, True]


def test_texts_that_are_compared_are_cut_when_asked(page: Page) -> None:
    page.show("embed")
    page.type("#panel-embed textarea", "one\ntwo, too long")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-embed .error", "has 700 tokens, the model reads 512.")
    page.click("#panel-embed .status button")
    page.wait_for("#panel-embed .result", "Cosine similarity: ")
    assert page.service.requests[-1][1]["truncate"] is True


def test_a_service_that_is_gone_is_said(page: Page) -> None:
    page.show("regress")
    page.browser.run("globalThis.fetch = () => Promise.reject(new TypeError('gone'))")
    page.type("#panel-regress textarea", "a text")
    page.browser.press("Enter", CONTROL)
    page.wait_for("#panel-regress .error", "The service does not answer.")


def test_a_key_is_asked_for_until_it_is_right_and_never_stored(page: Page) -> None:
    page.service.key = "s3cret"
    page.browser.open(page.service.url)
    for key, title in (("wrong", "asks for a key"), ("s3cret", "did not accept this key")):
        page.wait_for("#key-title", title)
        page.browser.wait("document.activeElement.id === 'key'")
        page.browser.write(key)
        page.browser.press("Enter")
    page.browser.wait("document.querySelector('#panel-fill:not([hidden])') !== null")
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert page.browser.run(stored) == '[{},{},""]'
    page.browser.run("navigator.clipboard.writeText = async (text) => { globalThis.copied = text }")
    page.type("#panel-fill textarea", "a [MASK]")
    page.click("#panel-fill .actions .link")
    copied = page.browser.wait("globalThis.copied")
    assert "$LITEBERT_KEY" in copied
    assert "s3cret" not in copied


def open_table(page: Page, path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    page.show("classify")
    page.browser.choose_file("#panel-classify input[type=file]", path)
    page.wait_for("#panel-classify .file .status", path.name)


def test_a_table_is_scored_and_downloaded(page: Page, tmp_path: Path) -> None:
    rows = [f'{i},"{"good" if i % 3 else "dull"}, row {i}"' for i in range(150)]
    rows[7], rows[9] = "7,", "9,refuse this"
    open_table(page, tmp_path / "reviews.csv", "\n".join(["id,text", *rows]))
    assert page.text("#panel-classify .file .status") == "reviews.csv: 150 rows."
    page.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click("#panel-classify .file .primary")
    page.wait_for("#panel-classify .file .status", "Left out: 1 row with an empty text.")
    page.click("#panel-classify a[download]")
    saved = tmp_path / "reviews.labeled.csv"
    while not saved.exists():  # Chromium renames a download when it is complete
        page.browser.run("new Promise((resolve) => setTimeout(resolve, 20))")
    with saved.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [row["id"] for row in table] == [str(i) for i in range(150)]
    for i, row in enumerate(table):
        expected = {7: "", 9: ""}.get(i, "positive" if i % 3 else "negative")
        assert row["label"] == expected
    assert table[9]["error"] == "This row is refused, as a test."
    status = page.text("#panel-classify .file .status")
    assert "Refused: 1 row; the column “error” says why." in status


def test_a_table_of_pairs_is_regressed_as_pairs(page: Page) -> None:
    page.show("regress")
    page.browser.run(
        "const transfer = new DataTransfer();"
        "transfer.items.add(new File(['sentence1,sentence2\\na,bc\\nd,'], 'pairs.csv'));"
        "document.body.dispatchEvent("
        "  new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true}));"
    )
    page.wait_for("#panel-regress .file .status", "pairs.csv: 2 rows.")
    page.click("#panel-regress .file .primary")
    page.wait_for("#panel-regress .file .status", "Left out: 1 row with an empty text.")
    page.browser.run(
        "document.querySelectorAll('#panel-regress .choices select')[1].selectedIndex = 0"
    )
    page.click("#panel-regress .file .actions button")
    page.wait_for("#panel-regress .file .status", "Scored 2 rows")
    assert [body for _, body in page.service.requests] == [
        {"model": "stars", "pairs": [["a", "bc"]]},
        {"model": "stars", "texts": ["a", "d"]},
    ]


def test_a_table_can_be_cancelled(page: Page, tmp_path: Path) -> None:
    open_table(page, tmp_path / "a.csv", "text\n" + "good\n" * 200)
    page.service.gate.clear()
    page.click("#panel-classify .file .actions button")
    page.browser.wait(
        "!document.querySelectorAll('#panel-classify .file .actions button')[1].hidden"
    )
    page.click("#panel-classify .file .actions button", 1)
    page.wait_for("#panel-classify .file .status", "Cancelled.")
    page.service.gate.set()
    start = "document.querySelector('#panel-classify .file .actions button')"
    assert not page.browser.run(f"{start}.disabled")


def test_a_table_is_dropped_anywhere(page: Page) -> None:
    page.show("fill")
    page.browser.run(
        "const transfer = new DataTransfer();"
        "transfer.items.add(new File(['a;text\\n1;good'], 'dropped.csv'));"
        "document.body.dispatchEvent("
        "  new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true}));"
    )
    page.wait_for("#panel-classify .file .status", "dropped.csv: 1 row.")
    column = "document.querySelector('#panel-classify .choices select').selectedOptions[0].text"
    assert page.browser.run(column) == "text"
