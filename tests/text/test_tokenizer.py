"""The tokenizer: ids are SentencePiece's on cleaned text, places are exact, and what is damaged is
refused."""

import contextlib
import io
import json
import time
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.errors import ConfigError, DataError
from litebert.text.normalize import TextRules, clean
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import Splits, starts_word
from tests.helpers.text import made_lines

WORDS = [
    "in",
    "2010,",
    "19982004,",
    "the",
    "Café",
    "ﬁ",
    "½",
    "e\u0301t",
    "“blue”",
    "☃☃",
    "–",
    "£5",
    "7,500",
    "red-haired",
    "xyzzy",
]
ODD = st.characters() | st.sampled_from(
    "a \t\n\v\x1c\x00\xa0\u2028\u0301\u0327ﬁ½¨İΣ한각\u200b\u00ad▁,0☃"
)
TEXTS = (
    st.text(ODD)
    | st.lists(st.sampled_from(WORDS)).map(" ".join)
    | st.lists(st.text(ODD) | st.sampled_from(WORDS)).map("".join)
)


def reference_pieces(processor: sentencepiece.SentencePieceProcessor, cleaned: str) -> list[str]:
    """The reference's `encode_pieces`, with the ▁ that it means to take off taken off."""
    actual = []
    for token in processor.Encode(cleaned, out_type=str):
        if (
            len(token) > 1
            and token[-1] == ","
            and token[-2].isdigit()
            and processor.PieceToId(token) != processor.unk_id()
        ):
            parts = processor.Encode(token[:-1].replace("▁", ""), out_type=str)
            if not token.startswith("▁"):
                parts = [part for part in (parts[0].removeprefix("▁"), *parts[1:]) if part]
            actual += [*parts, ","]
        else:
            actual.append(token)
    return actual


@given(TEXTS)
@settings(deadline=None)
@example("\v a\x1cb")
@example("20\x0110\x7f, the\t2010,\n2010,")
@example("20\u00ad10\u200d, the\u200b2010,")
@example("In 2010, x ΑΣ ΑΣ. 2010,2010, 31998,")
def test_ids_are_the_references(tokenizer: Tokenizer, text: str) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = reference_pieces(processor, clean(text, tokenizer.rules))
    ids = [processor.PieceToId(token) for token in expected]
    assert tokenizer.encode(text) == ids
    for beside in ("", "sea " * 1000):  # text by text, and as a list
        flat, bounds = tokenizer.encode_flat(["in 2010,", text, beside, text])
        assert flat[bounds[1] : bounds[2]].tolist() == flat[bounds[3] :].tolist() == ids
        assert tokenizer.encode_batch([beside, text])[1] == ids


def test_digit_commas_are_cut(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.tokens
    assert {"▁2010,", "2010,"} <= {tokens[index] for index in tokenizer.splits}
    assert [tokens[i] for i in tokenizer.encode("In 2010, the")][-2:] == [",", "▁the"]
    assert tokenizer.splits.keys().isdisjoint(tokenizer.encode("In 2010, 2004,1998, 1998,2010,"))
    kept = Tokenizer(tokenizer.model, TextRules(split_digit_commas=False))
    assert [tokens[i] for i in kept.encode("In 2010, the")] == ["▁in", "▁2010,", "▁the"]


@given(
    st.lists(TEXTS, max_size=6),
    st.sampled_from(
        [
            TextRules(),
            TextRules(lowercase=False),
            TextRules(keep_accents=True),
            TextRules(keep_accents=True, dotless_i=True),
        ]
    ),
)
@settings(deadline=None)
@example(["I\u0307I İI\u0307\u0301 ıi"], TextRules(keep_accents=True, dotless_i=True))
@example(["I\u0307I İI\u0307\u0301 ıi"], TextRules(dotless_i=True))
@example(["I\u0323\u0307I Ị\u0307 I\u0302\u0307 Į\u0301"], TextRules(dotless_i=True))
@example(
    ["I\u0323\u0307I Ị\u0307 I\u0302\u0307 Į\u0301"], TextRules(keep_accents=True, dotless_i=True)
)
@example(
    ["abc¨", "e\u0301\u0327", " ½ ", "☃ ☃a☃", "한국 각", "a\u200bb \x01 c\x00", "▁▁a▁", "İ"],
    TextRules(),
)
@example(["İİ e\u0301 한"], TextRules(keep_accents=True))
def test_offsets(tokenizer: Tokenizer, texts: list[str], rules: TextRules) -> None:
    tokenizer = Tokenizer(tokenizer.model, rules)
    tokens = tokenizer.encode_with_offsets(texts)
    assert (
        [row.ids for row in tokens]
        == tokenizer.encode_batch(texts)
        == [tokenizer.encode(text) for text in texts]
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    for text, row in zip(texts, tokens, strict=True):
        starts, ends = row.offsets.T
        assert (starts <= ends).all()
        assert ((starts >= 0) & (ends <= len(text))).all()
        assert (np.diff(starts) >= 0).all()
        assert (np.diff(ends) >= 0).all()
        for index, (start, end) in zip(row.ids, row.offsets.tolist(), strict=True):
            surface = tokenizer.tokens[index].strip("▁")
            slice_ = processor.Normalize(clean(text[start:end], rules)).replace("▁", "")
            if index != tokenizer.unk_id and not _is_cut_inside(row.offsets, start, end):
                assert slice_ == surface
            elif index != tokenizer.unk_id:
                assert surface in slice_


def _is_cut_inside(offsets: np.ndarray, start: int, end: int) -> bool:
    """Whether another token shares a character of this place: one raw character that became several
    tokens."""
    starts, ends = offsets.T
    return int(((starts < end) & (ends > start)).sum()) > 1


def test_offsets_worked_example(tokenizer: Tokenizer) -> None:
    text = "  The  OLD\tCafe\u0301 (½) “a”."
    row = tokenizer.encode_with_offsets([text])[0]
    places = [text[start:end] for start, end in row.offsets]
    actual = [
        pair for pair in zip((tokenizer.tokens[i] for i in row.ids), places, strict=True) if pair[1]
    ]
    assert actual[:4] == [("▁the", "The"), ("▁old", "OLD"), ("▁cafe", "Cafe\u0301"), ("(", "(")]
    assert [place for _, place in actual[4:]] == ["½", "½", "½", ")", "“", "a", "”", "."]


def test_pairs(tokenizer: Tokenizer) -> None:
    a, b = tokenizer.encode_batch(["the old sailor", "sold two horses"])
    pair = tokenizer.pair("the old sailor", "sold two horses", offsets=True)
    assert pair.token_ids == [2, *a, 3, *b, 3]
    assert pair.segment_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert pair.offsets is not None
    assert pair.offsets.tolist()[:2] == [[0, 0], [0, 3]]
    assert pair.offsets.tolist()[len(a) + 2] == [0, 4]
    assert tokenizer.pair("the old sailor").token_ids == [2, *a, 3]
    assert tokenizer.pair("the old sailor").segment_ids == [0] * (len(a) + 2)
    assert (
        tokenizer.pairs(["the old sailor"] * 2, ["sold two horses"] * 2)[1].token_ids
        == pair.token_ids
    )
    assert (
        tokenizer.pairs([]) == tokenizer.encode_batch([]) == tokenizer.encode_with_offsets([]) == []
    )


@pytest.mark.parametrize(
    ("truncate", "kept"), [("longest", (2, 2)), ("first", (1, 3)), ("second", (3, 1))]
)
def test_truncation(tokenizer: Tokenizer, truncate: str, kept: tuple[int, int]) -> None:
    a, b = tokenizer.encode_batch(["the old sailor", "sold two horses"])
    example = tokenizer.pair("the old sailor", "sold two horses", max_length=7, truncate=truncate)  # type: ignore[arg-type]
    assert example.token_ids == [2, *a[: kept[0]], 3, *b[: kept[1]], 3]


def test_what_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(
        DataError,
        match=r"text has 12 tokens.*reads at most 8; shorten it, or pass truncate=\"longest\"",
    ):
        tokenizer.pair("the the the the the the the the the the", max_length=8)
    with pytest.raises(DataError, match="cutting the second text alone does not suffice"):
        tokenizer.pair("the the the the the the the the", "the", max_length=8, truncate="second")
    with pytest.raises(ConfigError, match="max_length is 3, but 3 special tokens"):
        tokenizer.pair("the", "the", max_length=3)
    with pytest.raises(ConfigError, match="there is only one text"):
        tokenizer.pair("the", max_length=9, truncate="second")
    with pytest.raises(ConfigError, match="truncate is 'both', expected one of error, longest"):
        tokenizer.pair("the", max_length=9, truncate="both")  # type: ignore[arg-type]


def test_word_starts() -> None:
    alone = ["▁the", "<", "<unk>", ".", "(", "5", "'", "é", "n't", "€", "–"]
    inner = ["ing", "a", "...", "a.b", "S"]
    assert all(map(starts_word, alone))
    assert not any(map(starts_word, inner))


def test_tables(tokenizer: Tokenizer) -> None:
    ids = (
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    )
    assert ids == (0, 1, 2, 3, 4)
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert tokenizer.tokens[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert (
        len(tokenizer.tokens)
        == len(tokenizer.scores)
        == len(tokenizer.word_starts)
        == tokenizer.vocab_size
        == 150
    )
    assert tokenizer.word_starts[:5].all()
    assert not tokenizer.word_starts[tokenizer.tokens.index("haired")]


def test_decode_gives_the_cleaned_text(tokenizer: Tokenizer) -> None:
    for line in made_lines(20, seed=7):
        assert tokenizer.decode(tokenizer.pair(line).token_ids) == clean(line, tokenizer.rules)
    with pytest.raises(DataError, match="token id 150 is outside of the vocabulary of 150 tokens"):
        tokenizer.decode([5, 150])


@pytest.mark.parametrize(
    "rules", [TextRules(), TextRules(lowercase=False, keep_accents=True, split_digit_commas=False)]
)
def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path, rules: TextRules) -> None:
    saved = Tokenizer(tokenizer.model, rules)
    saved.save(tmp_path / "t")
    loaded = Tokenizer.load(tmp_path / "t")
    assert (loaded.rules, loaded.model, loaded.fingerprint) == (
        rules,
        tokenizer.model,
        saved.fingerprint,
    )
    assert (loaded.fingerprint == tokenizer.fingerprint) == (rules == TextRules())
    assert Tokenizer.load(tmp_path / "t" / "spiece.model").rules == TextRules()


def test_a_folder_that_cannot_be_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataError, match=r"cannot be written to .*file.*; give another folder, or make room"
    ):
        tokenizer.save(tmp_path / "file")


def test_damaged_files_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no tokenizer at .*expected spiece.model in a folder"):
        Tokenizer.load(tmp_path)
    file = tmp_path / "spiece.model"
    for size in range(0, len(tokenizer.model), max(1, len(tokenizer.model) // 150)):
        file.write_bytes(tokenizer.model[:size])
        with pytest.raises(
            DataError, match=r"spiece.model cannot be read as a SentencePiece model"
        ):
            Tokenizer.load(tmp_path)
    file.write_text("This is not a model at all.")
    with pytest.raises(DataError, match="cannot be read as a SentencePiece model"):
        Tokenizer.load(file)
    file.write_bytes(tokenizer.model.replace(b"[MASK]", b"[MOSK]"))
    with pytest.raises(DataError, match=r"has no special token \[MASK\], expected all of <pad>"):
        Tokenizer.load(file)
    file.write_bytes(tokenizer.model)
    (tmp_path / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(DataError, match="expected a JSON object, mend or delete it"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"keep_accents": "yes"}))
    with pytest.raises(DataError, match="keep_accents is 'yes', expected true or false"):
        Tokenizer.load(tmp_path)


def test_random_damage_never_escapes_as_another_error(tokenizer: Tokenizer) -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        model = bytearray(tokenizer.model)
        for at in draw.integers(0, len(model), draw.choice([1, 3, 40])):
            model[at] = draw.integers(256)
        with contextlib.suppress(DataError):
            Tokenizer(bytes(model)).encode_with_offsets(["The OLD ½ ☃ 2010, é"])


def test_other_kinds_of_model_are_refused(tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(made_lines(200)),
        model_writer=model,
        model_type="bpe",
        vocab_size=90,
        minloglevel=2,
    )
    with pytest.raises(DataError, match="is a bpe model, litebert reads plain unigram models"):
        Tokenizer(model.getvalue())


def test_time_is_linear_in_the_number_of_splits() -> None:
    """In seconds of CPU time; each replacement on its own would take minutes."""
    rows = [[9] * 2_000_000, [4, 9, 4], [4]]
    began = time.process_time()
    Splits({9: [1, 2]}, vocab_size=10).apply_to_lists(rows)
    assert time.process_time() - began < 30
    assert rows == [[1, 2] * 2_000_000, [4, 1, 2, 4], [4]]
