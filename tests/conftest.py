"""Shapes in public signatures are checked here, and only here: jaxtyping's hook with beartype."""

import signal

import pytest
import torch
from jaxtyping import install_import_hook

pytest.register_assert_rewrite("tests.helpers")
# before anything imports the modules it watches
install_import_hook(
    [
        "litebert.api",
        "litebert.convert",
        "litebert.demo",
        "litebert.files",
        "litebert.infer.engine",
        "litebert.infer.files",
        "litebert.infer.formats",
        "litebert.infer.output",
        "litebert.infer.streaming",
        "litebert.infer.verbs",
        "litebert.loading",
        "litebert.model",
        "litebert.packing",
        "litebert.storage.difference",
        "litebert.storage.int8",
        "litebert.storage.snapshot",
    ],
    "beartype.beartype",
)

# tiny tensors gain nothing from more, and two test processes share the cores
torch.set_num_threads(1)
# a background job of a script ignores it, and processes that tests start would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
