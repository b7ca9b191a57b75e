"""A tokenizer in, tokenizer.json and tokenizer_config.json out: the same ids in Hugging Face's
libraries.

The JSON is built by hand, from what is known here, so that neither of those libraries is needed.
Our clean-up, SentencePiece's own normalizer and its unigram search all have a counterpart there;
docs/tokenizer.md names the texts on which they differ.
"""

import base64
import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from litebert.text.normalize import CAPITALS_BELOW
from litebert.text.vocabulary import SPACE

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer

_RULE_NAMES = {
    "do_lower_case": "lowercase",
    "keep_accents": "keep_accents",
    "split_digit_commas": "split_digit_commas",
    "dotless_i": "dotless_i",
}
# The model there has no means to cut a token afterwards; a token that never wins comes to the same,
# bar numbers like 1,234.
_NEVER = -100.0


def dumps(value: dict[str, Any]) -> str:
    """As these libraries write JSON."""
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def rules_in(config: dict[str, Any]) -> dict[str, Any]:
    """The switches of `TextRules` that a tokenizer_config.json names, under our field names."""
    if not isinstance(config, dict):
        raise ValueError(f"it holds a {type(config).__name__}")
    return {ours: config[theirs] for theirs, ours in _RULE_NAMES.items() if theirs in config}


def tokenizer_config(tokenizer: "Tokenizer") -> dict[str, Any]:
    """What transformers reads beside tokenizer.json, and where `TextRules` are kept."""
    return {
        # AlbertTokenizer would build its own pipeline in place of ours
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": tokenizer.tokens[tokenizer.pad_id],
        "unk_token": tokenizer.tokens[tokenizer.unk_id],
        "cls_token": tokenizer.tokens[tokenizer.cls_id],
        "sep_token": tokenizer.tokens[tokenizer.sep_id],
        "mask_token": tokenizer.tokens[tokenizer.mask_id],
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{theirs: getattr(tokenizer.rules, ours) for theirs, ours in _RULE_NAMES.items()},
    }


def tokenizer_json(tokenizer: "Tokenizer") -> dict[str, Any]:
    """The whole tokenizer.json, version 1.0."""
    crosses_spaces = any(SPACE in token[1:] for token in tokenizer.tokens)
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "first" if tokenizer.description.add_prefix else "never",
        "split": not crosses_spaces,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(tokenizer, index) for index in sorted(tokenizer.special_ids)],
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer))},
        "pre_tokenizer": metaspace,
        "post_processor": _post_processor(tokenizer),
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [
                [token, _NEVER if index in tokenizer.splits else score]
                for index, (token, score) in enumerate(
                    zip(tokenizer.tokens, tokenizer.scores, strict=True)
                )
            ],
            "byte_fallback": False,
        },
    }


def _added_token(tokenizer: "Tokenizer", index: int) -> dict[str, Any]:
    return {
        "id": index,
        "content": tokenizer.tokens[index],
        "single_word": False,
        # takes the space before it, so that "of [MASK] is" and "of[MASK] is" agree
        "lstrip": index == tokenizer.mask_id,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _normalizers(tokenizer: "Tokenizer") -> Iterable[dict[str, Any]]:
    rules, description = tokenizer.rules, tokenizer.description
    yield _replace(_whitespace() + "+", " ")
    if rules.lowers_dotless:
        # as normalize._lower_turkic; a dot behind more than three marks is not seen
        capital, low = f"[İ{CAPITALS_BELOW}]", _marks(below=True)
        behind = "|".join(capital + low * count for count in range(4))
        yield _replace("İ", "I\u0307")
        yield _replace(f"I(?={_marks()})", "İ")
        yield _replace(f"(?<={behind})\u0307", "")
        yield _replace("İ", "i")
        yield _replace("I", "ı")
    if not rules.keep_accents:
        yield {"type": "NFKD"}
        # theirs drops other characters than the reference's unicodedata.combining
        yield _replace(_marks(), "")
    if rules.lowercase:
        # theirs lowers letter by letter; in Python a sigma at the end of a word looks different
        yield _replace(r"(?<=\p{L})Σ(?!\p{L})", "ς")
        yield {"type": "Lowercase"}
    if not rules.keep_accents and tokenizer.normalized("\u1112\u1161\u11ab").endswith("한"):
        # SentencePiece's table puts together what NFKD took apart: Hangul, the two-part vowels of
        # Indic scripts. Their reader of the same table looks at so few bytes at a time that it does
        # not.
        yield {"type": "NFC"}
    if description.charsmap:
        table = base64.b64encode(description.charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": table}
    if description.collapse_spaces:
        yield _replace(" {2,}", " ")
        # a space on the left becomes the prefix
        yield {"type": "Strip", "strip_left": False, "strip_right": True}


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _post_processor(tokenizer: "Tokenizer") -> dict[str, Any]:
    cls, sep = tokenizer.tokens[tokenizer.cls_id], tokenizer.tokens[tokenizer.sep_id]
    single = [_special(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}, _special(sep, 0)]
    special = {
        token: {"id": token, "ids": [tokenizer.tokens.index(token)], "tokens": [token]}
        for token in (cls, sep)
    }
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}, _special(sep, 1)]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _special(token: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": segment}}


@cache
def _marks(*, below: bool = False) -> str:
    """Combining marks; `below`: those that are not above a letter."""
    others = (0, 230) if below else (0,)
    return _character_class(
        code for code in range(0x300, 0x20000) if unicodedata.combining(chr(code)) not in others
    )


@cache
def _whitespace() -> str:
    return _character_class(code for code in range(0x3001) if chr(code).isspace())


def _character_class(codes: Iterable[int]) -> str:
    """A regular expression for these characters, as ranges: [0x61, 0x62, 0x64] ->
    "[\\x{61}-\\x{62}\\x{64}-\\x{64}]"."""
    ranges = (f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in code_ranges(codes))
    return "[" + "".join(ranges) + "]"


def code_ranges(codes: Iterable[int]) -> list[list[int]]:
    """The first and last of consecutive codes: [1, 2, 4] -> [[1, 2], [4, 4]]."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges
