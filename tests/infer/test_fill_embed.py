"""fill and embed: equal to a plain reference, whatever the batch, the order and the form of the
input."""

from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.errors import ConfigError, DataError
from litebert.infer import streaming
from litebert.infer.predictor import Predictor, load
from litebert.infer.verbs import encode_masked
from tests.helpers.models import SENTENCES, texts


def states(model: Predictor, text: str) -> torch.Tensor:
    """The last states of one text alone, without padding."""
    ids = model.tokenizer.pair(text, max_length=64, truncate="first").token_ids
    with torch.no_grad():
        last: torch.Tensor = model.model.encoder(token_ids=torch.tensor([ids]))[0]
    return last


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_vector_is_the_mean_or_the_first_of_the_last_states(
    model: Predictor, pooling: str
) -> None:
    inputs = texts(40)
    vectors = model.embed(inputs, pooling=pooling)
    expected = np.stack(
        [
            (s.mean(0) if pooling == "mean" else s[0]).numpy()
            for s in (states(model, each) for each in inputs)
        ]
    )
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=2e-6)


def test_vectors_do_not_depend_on_batch_order_or_form(
    model: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = texts(50)
    together = model.embed(inputs)
    for tokens in (1, 100, 100_000):
        model.engine.batch_tokens = tokens
        np.testing.assert_allclose(model.embed(inputs[::-1]), together[::-1], atol=2e-6)
    np.testing.assert_array_equal(
        np.stack(list(model.embed(iter(inputs)))), model.embed(inputs)
    )  # bit for bit
    np.testing.assert_allclose(model.embed(inputs[0]), together[0], atol=2e-6)
    assert model.embed(inputs[0]).shape == (32,)
    monkeypatch.setattr(streaming, "WINDOW_ITEMS", 7)
    np.testing.assert_allclose(np.stack(list(model.embed(iter(inputs)))), together, atol=2e-6)


def test_normalized_vectors_have_length_one(model: Predictor) -> None:
    inputs = texts(5)
    unit = model.embed(inputs, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    plain = model.embed(inputs)
    np.testing.assert_allclose(
        unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6
    )


def test_nothing_has_no_vectors(model: Predictor) -> None:
    assert model.embed([]).shape == (0, 32)
    assert list(model.embed(iter([]))) == []


def test_embed_refuses_what_is_no_text_and_no_pooling(model: Predictor) -> None:
    with pytest.raises(ConfigError, match="expected a text for embed; got int: 3"):
        model.embed(["a", 3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="pooling is one of mean, cls; got 'max'"):
        model.embed("a", pooling="max")  # type: ignore[call-overload]


def test_a_mask_stands_where_a_word_would(model: Predictor) -> None:
    """With the word itself instead of the mask, every other token is the same."""
    tokenizer = model.tokenizer
    word = tokenizer.tokens.index("▁whale")
    dropped = "\u0301", "\u0301 sails", "\x01.", "\x01 🐋"
    for before in ("", "the ", "first the goat "):
        for after in ("", ".", " sails", " 中", "中", " [MASK] .", " .", *dropped, "ﷺ"):
            row = encode_masked(tokenizer, f"{before}[MASK]{after}", max_length=64)
            if "[MASK]" in after:
                assert (row == tokenizer.mask_id).sum() == 2
                continue
            full = tokenizer.pair(f"{before}whale{after}").token_ids
            expected = [tokenizer.mask_id if id == word else id for id in full]
            assert row.tolist() == expected, (before, after)


def test_guesses_are_the_head_s_softmax(model: Predictor) -> None:
    inputs = [sentence.replace("the", "[MASK]", 1) for sentence in SENTENCES[:30]] + ["[MASK]"]
    for text, (guesses,) in zip(inputs, model.fill(inputs, top=3), strict=True):
        row = encode_masked(model.tokenizer, text, max_length=64)
        with torch.no_grad():
            last = model.model.encoder(token_ids=torch.tensor(row)[None])
            expected = (
                model.model.masked_logits(last, torch.tensor(np.flatnonzero(row == 4)))[0]
                .softmax(-1)
                .topk(3)
            )
        names = [model.tokenizer.tokens[i].removeprefix("▁") or "▁" for i in expected.indices]
        assert [guess.token for guess in guesses] == names
        np.testing.assert_allclose([p for _, p in guesses], expected.values, atol=1e-6)


def test_every_mask_has_a_list_of_guesses(model: Predictor) -> None:
    """One shape whatever the number of masks: text, mask, guess."""
    one, three = model.fill(["the [MASK] sails", "[MASK] [MASK][MASK]"], top=2)
    assert [len(mask) for mask in one] == [2]
    assert [len(mask) for mask in three] == [2, 2, 2]
    single = model.fill("the [MASK] sails", top=2)
    assert [[guess.token for guess in mask] for mask in single] == [
        [guess.token for guess in mask] for mask in one
    ]
    (guesses,) = model.fill("the [MASK] sails", top=1000)
    assert len(guesses) == model.tokenizer.vocab_size
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)


def test_fill_says_what_is_wrong_with_a_text(model: Predictor) -> None:
    with pytest.raises(
        DataError,
        match=r"there is no \[MASK\] in the text 'the whale'; write it where a word is to be found",
    ):
        model.fill("the whale")
    with pytest.raises(
        DataError,
        match=r"a \[MASK\] is token 71 of the text .*, the model reads 64; shorten what comes",
    ):
        model.fill("the " * 69 + "[MASK]")
    with pytest.raises(ConfigError, match="top is a whole number from 1; got 0"):
        model.fill("[MASK]", top=0)
    assert model.fill("[MASK]" + " the" * 100)  # what lies behind the mask is cut


def test_a_stream_answers_before_it_ends(pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "WINDOW_ITEMS", 2)
    model = load(pretrained)

    def endless() -> object:
        while True:
            yield "the [MASK]"

    answers = model.fill(endless(), top=1)  # type: ignore[call-overload]
    assert len([next(answers) for _ in range(5)]) == 5
