"""Shapes in public signatures are checked here, and only here: jaxtyping's hook with beartype. And
every test is offline."""

import atexit
import importlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

EVERY_TYPE = """
    api commands convert demo doctor files kernels.gate loading model models packing
    storage.difference storage.int8 storage.snapshot
    tasks.benchmarks tasks.decode tasks.encode tasks.heads tasks.scores tasks.tables.split
    text.normalize text.offsets text.sentence_words text.sentences
"""
SHAPES = """
    config data infer lab objective optim recipes report serve storage.checkpoint text.tokenizer
    text.vocabulary threads train.evaluate train.finetune train.folder train.learner train.log
    train.loop train.pretrain train.run
"""
"""Where only arrays are checked: many tests of these pass a wrong option on purpose."""


def check_types(names: str, typechecker: str) -> None:
    install_import_hook([f"litebert.{name}" for name in names.split()], typechecker)


# exports that are made on first use go where pytest puts everything
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="litebert-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

offline = str(Path(__file__).parent / "helpers" / "offline")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [offline, os.environ.get("PYTHONPATH")]))

pytest.register_assert_rewrite("tests.helpers")
importlib.import_module("tests.helpers.offline.sitecustomize")
importlib.import_module("tests.helpers.typecheck")  # the second hook names it
# before anything imports the modules it watches; on a GPU tests compile, and Dynamo cannot trace
# the checks
if not torch.cuda.is_available():
    check_types(EVERY_TYPE, "beartype.beartype")
    check_types(SHAPES, "tests.helpers.typecheck.shapes")

# tiny tensors gain nothing from more, and two test processes share the cores
torch.set_num_threads(1)
# a background job of a script ignores it, and processes that tests start would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
