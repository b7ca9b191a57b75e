"""Importing this skips a module where Triton's kernels cannot run: they need a GPU, or the
interpreter on a CPU (TRITON_INTERPRET=1 before the start, where triton is installed)."""

import os

import pytest
import torch

pytest.importorskip("triton")
HAS_GPU = torch.cuda.is_available()
if not HAS_GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

DEVICE = "cuda" if HAS_GPU else "cpu"
HALF = torch.bfloat16 if HAS_GPU else torch.float16
"""The interpreter cuts the last bits off where a number becomes bfloat16, and multiplies its bits
as if they were integers."""
quiet = pytest.mark.filterwarnings(
    "ignore:.*encountered in:RuntimeWarning"
)  # the interpreter computes with numpy
