"""The JavaScript of a model exported for a browser, in Node: token ids equal ours, and rows leave
early at the same depth. tests/infer/test_web_browser.py runs it in Chromium."""

import base64
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.infer.export.web import tokenizer_settings
from litebert.infer.verbs import encode_masked
from litebert.models.index import default_model
from litebert.packing import assemble
from litebert.tasks.decode.exits import CRITERIA, ExitRule, exit_depths
from litebert.tasks.encode.encode import encode_texts
from litebert.text.normalize import TextRules
from litebert.text.tables import cleanup_tables
from litebert.text.tokenizer import Tokenizer
from tests.helpers.models import tokenizer as tiny_tokenizer
from tests.helpers.web import hard_lines, has_node, run_node

pytestmark = pytest.mark.skipif(not has_node(), reason="needs Node 18 or newer")

ENCODE = """
import { Tokenizer } from "./browser/tokenizer.js";
const model = Uint8Array.from(atob(data.model), (char) => char.charCodeAt(0));
const tokenizer = new Tokenizer(model, data.settings, data.tables);
const masked = (line) => { try { return tokenizer.maskedRow(line, 32); } catch { return null; } };
console.log(JSON.stringify({
  ids: data.lines.map((line) => tokenizer.encode(line)),
  masked: data.masked.map(masked),
  rows: data.pairs.map(([a, b]) => tokenizer.row(a, b, 24)),
}));
"""


def encoded_by_node(folder: Path, tokenizer: Tokenizer, lines: list[str], **data: Any) -> Any:
    facts = {
        "model": base64.b64encode(tokenizer.model).decode(),
        "settings": tokenizer_settings(tokenizer),
        "tables": cleanup_tables(tokenizer.rules),
        "lines": lines,
        "masked": [],
        "pairs": [],
    }
    return run_node(folder / "node", ENCODE, facts | data)


def test_10_000_lines_of_hard_text_get_our_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(default_model().folder)
    lines = hard_lines(10_000, tokenizer)
    masked = [line for line in lines if "[MASK]" in line]
    assert len(masked) > 500
    results = encoded_by_node(tmp_path, tokenizer, lines, masked=masked)
    assert results["ids"] == tokenizer.encode_batch(lines)
    for line, row in zip(masked, results["masked"], strict=True):
        assert row == (ours := encode_masked_or_none(tokenizer, line)), (line, row, ours)


def encode_masked_or_none(tokenizer: Tokenizer, line: str) -> list[int] | None:
    """None where a mask is beyond 32 tokens."""
    try:
        return encode_masked(tokenizer, line, max_length=32).tolist()
    except DataError:
        return None


RULES = [
    TextRules(keep_accents=True),
    TextRules(lowercase=False),
    TextRules(keep_accents=True, dotless_i=True, split_digit_commas=False),
    TextRules(dotless_i=True),
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_every_rule_of_the_clean_up_is_followed(tmp_path: Path, rules: TextRules) -> None:
    tokenizer = Tokenizer(tiny_tokenizer(tmp_path).model, rules)
    assert asdict(rules) == tokenizer_settings(tokenizer)["rules"]
    lines = hard_lines(1_000, tokenizer, seed=1)
    assert encoded_by_node(tmp_path, tokenizer, lines)["ids"] == tokenizer.encode_batch(lines)


def test_a_model_with_symbols_and_a_suffix_gets_our_ids(tmp_path: Path) -> None:
    """User-defined symbols, ▁ behind words, no collapsing, other normalizations."""
    import io

    import sentencepiece

    variants: list[dict[str, Any]] = [
        {"user_defined_symbols": ["(", "-", "ea", "é", "<sep>"]},
        {"treat_whitespace_as_suffix": True, "normalization_rule_name": "identity"},
        {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
        {"normalization_rule_name": "nfkc_cf"},
    ]
    text = ["the ship-yard (by the sea) sails home, 1884, é", "a whale, a captain and a goat"] * 50
    for number, settings in enumerate(variants):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            vocab_size=70,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            hard_vocab_limit=False,
            minloglevel=2,
            **settings,
        )
        tokenizer = Tokenizer(model.getvalue())
        lines = [*hard_lines(1_000, tokenizer, seed=2), "the<sep>sea-side -- (é)", "  a  b  "]
        results = encoded_by_node(tmp_path / str(number), tokenizer, lines)
        assert results["ids"] == tokenizer.encode_batch(lines), settings


def test_rows_are_cut_as_ours_are(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    lines = hard_lines(200, tokenizer, seed=3)
    pairs = [[a, b] for a, b in zip(lines[:100], lines[100:], strict=True)]
    rows = encoded_by_node(tmp_path, tokenizer, [], pairs=pairs + [[a, None] for a in lines])[
        "rows"
    ]
    for (a, b), row in zip(pairs, rows, strict=False):
        ours = tokenizer.pair(a, b, max_length=24, truncate="longest")
        assert (row["ids"], row["segments"]) == (ours.token_ids, ours.segment_ids)
    singles = encode_texts(tokenizer, lines, max_length=24)
    assert [row["ids"] for row in rows[100:]] == [row.tolist() for row in singles]
    assert rows[100]["segments"] == assemble(rows[100]["ids"][1:-1], cls_id=2, sep_id=3)[1]


LEAVE = """
import { leaving } from "./browser/exits.js";
const depths = data.cases.map(({ rule, logits }) => logits[0].map((_, row) => {
  const leaves = leaving(rule);
  for (const [at, depth] of logits.entries()) {
    if (at === logits.length - 1 || leaves(Float32Array.from(depth[row]))) return at + 1;
  }
}));
console.log(JSON.stringify(depths));
"""


REFUSED = """
import { makeRule } from "./browser/exits.js";
import { load } from "./browser/litebert.js";
const task = { head: "classify", exits: {}, exit_tolerance: 0, label_threshold: 0.5 };
const messages = [];
for (const [head, criterion, threshold] of data.rules) {
  try {
    makeRule({ ...task, head }, criterion, threshold);
    messages.push("");
  } catch (error) {
    messages.push(error.message);
  }
}
await load(".", { threshold: 0.5 }).catch((error) => messages.push(error.message));
console.log(JSON.stringify(messages));
"""


def test_thresholds_are_checked_as_ours(tmp_path: Path) -> None:
    rules = [
        ("classify", "patience", 0),
        ("classify", "confidence", 95),
        ("classify", "cumulative", "0.5"),
        ("regress", "patience", 1),
        ("classify", "patience", 1),
    ]
    messages = run_node(tmp_path / "node", REFUSED, {"rules": rules})
    assert messages == [
        "the threshold of patience is depths, at least 1; got 0",
        "the threshold of confidence is from 0 to 1; got 95",
        "the threshold of cumulative is from 0 to 1; got 0.5",
        "the model has no tolerance within which numbers count as the same",
        "",
        "a threshold is of an exit, and none is given; got 0.5",
    ]


def test_rows_leave_at_our_depth(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    heads: Any = (("classify", 3), ("multilabel", 3), ("regress", 1), ("classify", 1))
    thresholds = {"patience": (1.0, 2.0), "confidence": (0.55, 0.8), "cumulative": (0.5, 0.9)}
    cases, expected = [], []
    for head, outputs in heads:
        logits = draw.normal(size=(6, 40, outputs)).cumsum(0).astype(np.float32)
        for criterion in CRITERIA if head != "regress" else ("patience",):
            for threshold in thresholds[criterion]:
                rule = ExitRule(
                    criterion=criterion,
                    threshold=threshold,
                    tolerance=0.7 if head == "regress" else 0.0,
                    label_threshold=0.4,
                )
                expected.append(exit_depths(rule, head, logits).tolist())
                theirs = {
                    "criterion": criterion,
                    "threshold": threshold,
                    "tolerance": rule.tolerance,
                    "labelThreshold": rule.label_threshold,
                    "head": head,
                }
                cases.append({"rule": theirs, "logits": logits.tolist()})
    assert run_node(tmp_path / "node", LEAVE, {"cases": cases}) == expected
    assert len({depth for case in expected for depth in case}) == 6
