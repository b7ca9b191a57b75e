"""Shapes in public signatures are checked here, and only here: jaxtyping's hook with beartype."""

import pytest
import torch
from jaxtyping import install_import_hook

pytest.register_assert_rewrite("tests.helpers")
# before anything imports the modules it watches
install_import_hook(["litebert.model", "litebert.packing"], "beartype.beartype")

torch.set_num_threads(
    1
)  # tiny tensors gain nothing from more, and two test processes share the cores
