"""The bench of vocabularies at tiny size: hidden words are the same for every vocabulary, and
scores are what they say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.studies.hidden_words import hidden_words, make_windows, score, views
from litebert.config import EncoderConfig, HeadConfig, ModelConfig, preset
from litebert.model.model import Model
from litebert.testing import SHAPE, tiny_corpus, tiny_documents, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tests.helpers.programs import run_program

TEXTS = [" ".join(sentences) for sentences in tiny_documents()]


@pytest.fixture
def tokenizers(tmp_path: Path) -> list[Tokenizer]:
    return [
        Tokenizer.load(tiny_tokenizer(tmp_path / str(size), vocab_size=size)) for size in (96, 40)
    ]


def model_of(tokenizer: Tokenizer) -> Model:
    torch.manual_seed(0)
    encoder = (
        preset("albert-base-v2").to_dict()
        | dict(SHAPE)
        | {"vocab_size": tokenizer.vocab_size, "init_std": 0.5}
    )
    return Model(
        ModelConfig(encoder=EncoderConfig.from_dict(encoder), heads=(HeadConfig(kind="masked"),))
    ).eval()


def test_every_view_hides_the_same_words_and_shows_the_rest(tokenizers: list[Tokenizer]) -> None:
    windows = make_windows(
        TEXTS, [(each, 60) for each in tokenizers], words=8, count=20, rng=np.random.default_rng(0)
    )
    assert len(windows) == 20
    for tokenizer in tokenizers:
        for view in views(windows, tokenizer):
            window = windows[view.word // 2]
            full = view.token_ids.copy()
            for position, label in zip(view.places, view.labels, strict=True):
                assert full[position] == tokenizer.mask_id
                full[position] = label
            if view.first == 0:
                assert tokenizer.decode(full) == tokenizer.decode(
                    tokenizer.encode(f"{window.a} {window.b}")
                )
                assert tokenizer.decode(view.labels) == tokenizer.decode(
                    tokenizer.encode(" ".join(hidden_words(window)))
                )
            else:
                assert view.token_ids.count(tokenizer.mask_id) >= 2, "the other word stays hidden"


def test_a_model_that_knows_nothing_pays_the_vocabulary_for_each_piece(
    tokenizers: list[Tokenizer],
) -> None:
    windows = make_windows(
        TEXTS, [(each, 60) for each in tokenizers], words=8, count=10, rng=np.random.default_rng(0)
    )
    for tokenizer in tokenizers:
        model = model_of(tokenizer)
        scores = score(model, tokenizer, windows)
        single = scores.pieces == 1
        assert np.array_equal(scores.at_once[single], scores.in_turn[single])
        torch.nn.init.zeros_(model.encoder.embedding.token.weight)
        scores = score(model, tokenizer, windows)
        np.testing.assert_allclose(
            scores.at_once, scores.pieces * np.log(tokenizer.vocab_size), rtol=1e-5
        )
        np.testing.assert_allclose(scores.in_turn, scores.at_once, rtol=1e-5)
    assert scores.pieces.max() > 1


def test_pieces_in_turn_are_asked_with_those_before_them_shown(tokenizers: list[Tokenizer]) -> None:
    tokenizer = tokenizers[1]
    scores = score(
        model_of(tokenizer),
        tokenizer,
        make_windows(TEXTS, [(tokenizer, 60)], words=8, count=10, rng=np.random.default_rng(0)),
    )
    assert not np.allclose(scores.in_turn[scores.pieces > 1], scores.at_once[scores.pieces > 1])


def test_the_bench_runs_and_spends_equal_compute(tmp_path: Path) -> None:
    corpus = tiny_corpus(tmp_path / "corpus.txt", documents=60)
    folders = [tiny_tokenizer(tmp_path / str(size), vocab_size=size) for size in (96, 40)]
    flags = ["--steps", "8", "--words", "8", "--windows", "10", "--seeds", "0"]
    flags += ["--data", corpus, "--out", tmp_path / "out", "--tokenizers", *folders]
    done = run_program("bench.studies.vocabulary", *flags, warnings="error")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "vocabulary.json").read_text())
    large, small = result["runs"]
    assert large["steps"] == 8 > small["steps"]
    assert small["flops_counted"] == pytest.approx(large["flops_counted"], rel=0.5 / small["steps"])
    assert small["sequence_length"] > large["sequence_length"]
    assert result["against_the_first"]["8"].keys() == {"40"}
