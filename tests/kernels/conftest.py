"""Modules that import Triton's kernels are collected where Triton is installed: with a torch made
for GPUs, and in `make test-kernels`, which installs it for the interpreter."""

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("triton")
    else [
        "test_attention_dropout.py",
        "test_fp8_rounding.py",
        "test_fused_norm.py",
        "test_label_loss.py",
        "test_layer.py",
        "test_long_attention.py",
        "test_rotary_attention.py",
        "test_short_attention.py",
    ]
)
