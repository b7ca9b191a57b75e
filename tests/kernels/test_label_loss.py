"""Losses over a vocabulary by our own kernels are cross entropy, and err no more than torch's; the
truth is float64."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.kernels import cross_entropy as labeled
from litebert.kernels.cross_entropy import cross_entropy as label_loss
from litebert.packing import IGNORED
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HALF,
    HAS_GPU,
    quiet,
)

pytestmark = quiet
WIDTHS = [1024, 2048 + 8, 30_000 if HAS_GPU else 3 * 2048 + 100]


@pytest.fixture(autouse=True, params=[1, 3] if HAS_GPU else [1])
def stages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(labeled.LOSS, "stages", request.param)


def draw(rows: int, width: int, *, size: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits that 16 bits hold, and labels, every third of which is none."""
    torch.manual_seed(0)
    logits, labels = (size * torch.randn(rows, width)).bfloat16(), torch.randint(width, (rows,))
    labels[::3] = IGNORED
    return logits.to(DEVICE), labels.to(DEVICE)


def plain(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """What a processor does, in the logits' own arithmetic or in float32."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide, labels, reduction="sum"), (
        logits.argmax(-1) == labels
    ).sum().float()


def outcome(
    way: object, logits: Tensor, labels: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    leaf = logits.to(dtype, copy=True).requires_grad_()
    loss, correct = way(leaf, labels)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(loss / 7, leaf)
    return loss.detach(), correct.detach(), gradient


def relative(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", [0.1, 3.0, 60.0])
def test_losses_and_gradients_err_no_more(width: int, size: float) -> None:
    logits, labels = draw(5, width, size=size)
    truth = outcome(plain, logits, labels, torch.float64)
    theirs, ours = (outcome(way, logits, labels, HALF) for way in (plain, label_loss))
    assert ours[0].dtype == ours[1].dtype == torch.float32
    assert relative(ours[0], truth[0]) <= max(1.1 * relative(theirs[0], truth[0]), 1e-6)
    assert relative(ours[2], truth[2]) <= 1.1 * relative(theirs[2], truth[2])
    assert ours[2].dtype == HALF
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("label", [0, 5, 2047, 2048, 3000])
def test_a_guess_is_the_first_of_the_largest(label: int) -> None:
    logits = torch.zeros(1, 4096, device=DEVICE, dtype=HALF)
    labels = torch.tensor([label], device=DEVICE)
    assert label_loss(logits, labels)[1] == (label == 0)
    logits[0, label] = 1.0
    assert label_loss(logits, labels)[1] == 1
    logits[0, 4000] = 1.0
    assert label_loss(logits, labels)[1] == 1, "the same logit comes later"
    logits[0, 4000] = 2.0
    assert label_loss(logits, labels)[1] == 0


def test_without_labels_there_is_no_loss() -> None:
    logits, labels = draw(4, 1024)
    labels[:] = IGNORED
    loss, correct, gradient = outcome(label_loss, logits, labels, HALF)
    assert (float(loss), float(correct)) == (0, 0)
    assert not gradient.any()
    assert [float(number) for number in label_loss(logits[:0], labels[:0])] == [0, 0]


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_is_not_finite_is_seen(number: float) -> None:
    logits, labels = draw(2, 1024)
    logits[1, 3] = number
    assert not label_loss(logits.to(HALF), labels)[0].isfinite()


def test_torch_takes_them_for_operators_of_its_own() -> None:
    """Schema, and shapes without data: torch's own checks."""
    logits, labels = draw(3, 1024)
    logits = logits.to(HALF)
    torch.library.opcheck(labeled._losses, (logits, labels))
    torch.library.opcheck(
        labeled._gradient,
        (logits, labels, torch.zeros(3, device=DEVICE), torch.ones((), device=DEVICE)),
    )


# in a process of its own: what checks shapes under pytest stands in the way of a tracer
PROGRAM = """
import torch
from litebert.objective import masked
device = "cuda" if torch.cuda.is_available() else "cpu"
def gradient(sums, rows):
    logits = (3 * torch.linspace(-9, 9, rows * 1024).sin()).view(rows, 1024)
    logits = logits.to(device).requires_grad_()
    labels = torch.arange(rows, device=device)
    for tensor in (logits, labels):
        torch._dynamo.mark_dynamic(tensor, 0)
    loss, correct = sums(logits, labels)
    return torch.autograd.grad(loss / rows, logits)[0], loss, correct
backend = "inductor" if device == "cuda" else "aot_eager"
compiled = torch.compile(masked._fused_sums, fullgraph=True, backend=backend)
for rows in (4, 9):
    for mine, other in zip(gradient(compiled, rows), gradient(masked._fused_sums, rows)):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
"""


def test_a_compiled_loss_is_the_plain_one() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
