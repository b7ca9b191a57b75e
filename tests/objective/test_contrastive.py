"""Losses of text vectors: worked examples, what is no negative, equality with the definition."""

import math

import pytest
import torch
from torch import Tensor

from litebert.objective.contrastive import (
    contrastive_loss,
    cosine_loss,
    distillation_loss,
    matryoshka_loss,
)


def vectors(count: int, size: int = 6) -> Tensor:
    torch.manual_seed(count)
    return torch.randn(count, size, dtype=torch.float64)


def loss(rows: Tensor, texts: list[int], anchors: list[int], *, symmetric: bool = False) -> float:
    return contrastive_loss(
        rows,
        torch.tensor(texts),
        torch.tensor(anchors),
        temperature=0.5,
        symmetric=symmetric,
    ).item()


def cosine(rows: Tensor, one: int, other: int) -> float:
    return torch.cosine_similarity(rows[one], rows[other], dim=0).item()


def term(rows: Tensor, query: int, right: int, wrong: list[int]) -> float:
    """−log of the softmax, from its definition."""
    scores = {each: math.exp(cosine(rows, query, each) / 0.5) for each in [right, *wrong]}
    return -math.log(scores[right] / sum(scores.values()))


def test_two_orthogonal_pairs_by_hand() -> None:
    rows = torch.tensor([[1.0, 0], [2, 0], [0, 3], [0, 1]], dtype=torch.float64)
    # cosines 1 and 0, divided by 0.5: −log(e² / (e² + 1)) for both
    assert loss(rows, [0, 1, 2, 3], [0, 2]) == pytest.approx(math.log1p(math.exp(-2)), abs=1e-12)


def test_hard_negatives_are_candidates_of_every_anchor() -> None:
    rows = vectors(5)  # anchor, positive, hard negative; anchor, positive
    expected = (term(rows, 0, 1, [4, 2]) + term(rows, 3, 4, [1, 2])) / 2
    assert loss(rows, [0, 1, 2, 3, 4], [0, 3]) == pytest.approx(expected, abs=1e-12)


def test_symmetric_also_chooses_the_anchor() -> None:
    rows = vectors(5)
    forward = (term(rows, 0, 1, [4, 2]) + term(rows, 3, 4, [1, 2])) / 2
    backward = (term(rows, 1, 0, [3]) + term(rows, 4, 3, [0])) / 2
    result = loss(rows, [0, 1, 2, 3, 4], [0, 3], symmetric=True)
    assert result == pytest.approx((forward + backward) / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        pytest.param([0, 1, 2, 1], [[], []], id="equal positives"),
        pytest.param([0, 1, 0, 3], [[], []], id="equal anchors"),
        pytest.param([0, 1, 2, 0], [[], [1]], id="a positive equals the anchor"),
        pytest.param([0, 1, 1, 3], [[3], []], id="an anchor equals the positive"),
    ],
)
def test_equal_texts_are_no_negatives(texts: list[int], wrong: list[list[int]]) -> None:
    rows = vectors(4)
    expected = (term(rows, 0, 1, wrong[0]) + term(rows, 2, 3, wrong[1])) / 2
    assert loss(rows, texts, [0, 2]) == pytest.approx(expected, abs=1e-12)


def test_a_hard_negative_that_equals_the_positive_is_none() -> None:
    rows = vectors(3)
    assert loss(rows, [0, 1, 1], [0]) == 0
    assert loss(rows, [0, 1, 2], [0]) == pytest.approx(term(rows, 0, 1, [2]), abs=1e-12)


def test_texts_read_twice_are_their_own_positives() -> None:
    rows = vectors(4)
    expected = (term(rows, 0, 1, [3]) + term(rows, 2, 3, [1])) / 2
    assert loss(rows, [7, 7, 9, 9], [0, 2]) == pytest.approx(expected, abs=1e-12)
    assert loss(rows, [7, 7, 9, 9], [0, 2], symmetric=True) > 0


def test_cosines_learn_scores() -> None:
    rows = torch.tensor([[1.0, 0], [2, 0], [0, 1], [1, 0]])
    assert cosine_loss(rows, torch.tensor([1.0, 0.0])).item() == pytest.approx(0)
    assert cosine_loss(rows, torch.tensor([0.5, 1.0])).item() == pytest.approx((0.25 + 1) / 2)


def test_a_teacher_of_the_same_width_is_learned_by_direction() -> None:
    teacher = vectors(3)
    assert distillation_loss(5 * teacher, teacher).item() == pytest.approx(0, abs=1e-12)
    assert distillation_loss(-teacher, teacher).item() == pytest.approx(2)


def test_a_teacher_of_another_width_is_learned_by_its_cosines() -> None:
    teacher = vectors(3, 4)
    wider = torch.cat([teacher, torch.zeros(3, 2, dtype=torch.float64)], 1)
    assert distillation_loss(wider, teacher).item() == pytest.approx(0, abs=1e-12)
    assert distillation_loss(vectors(3, 6), teacher).item() > 0.01


def test_matryoshka_sums_over_prefixes() -> None:
    rows = vectors(4)

    def one(prefix: Tensor) -> Tensor:
        return (prefix * prefix.shape[1]).sum()

    expected = one(rows) + one(rows[:, :2]) + one(rows[:, :3])
    assert torch.equal(matryoshka_loss(one, rows, [3, 2, 6]), expected)
