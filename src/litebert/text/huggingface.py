"""A tokenizer in, tokenizer.json and tokenizer_config.json out: the same tokenizer for Hugging Face's libraries."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer


def dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def tokenizer_json(tokenizer: "Tokenizer") -> dict[str, Any]:
    return {}


def tokenizer_config(tokenizer: "Tokenizer") -> dict[str, Any]:
    rules = tokenizer.rules
    return {
        "do_lower_case": rules.lowercase,
        "keep_accents": rules.keep_accents,
        "split_digit_commas": rules.split_digit_commas,
    }


def rules_in(config: dict[str, Any]) -> dict[str, Any]:
    """The switches of `TextRules` that a tokenizer_config.json names, under our field names."""
    names = {"do_lower_case": "lowercase", "keep_accents": "keep_accents", "split_digit_commas": "split_digit_commas"}
    return {ours: config[theirs] for theirs, ours in names.items() if theirs in config}
