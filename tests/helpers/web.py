"""For models exported for a browser: hard texts, JavaScript in Node, a server of static files."""

import json
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from litebert.config import ModelConfig
from litebert.infer.export.web import PAGE
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import Task, TaskCard
from litebert.text.tokenizer import Tokenizer
from tests.helpers.models import LABELS
from tests.infer.test_export import model_of

_ODD = """
    [MASK] [MASK] [MASK] [MASK] [CLS] <unk> ▁ ﬁ ½ Ça İ I\u0307 ı ΑΣ Σ ς ΌΣΟΣ Σ. aΣ\u0301 e\u0301
    \u0301 \u0345 ʰ \u0378 ß ẞ ŉ Ǆ 한국어 각 日本語 中文 Ａ ２０１０, 2010, 1,234 a, … № ™ ﷺ ำ
    \u0f77 👩\u200d👩\u200d👧 🇫🇷 \U0001d6ba \U0002f800 `` '' — £
"""
_SPACES = ("\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\t", "\r\n", "  ")
_CONTROLS = ("\x00", "\x01", "\xad", "\u200b", "\ufeff", "\ufe0f", "\ud800", "\udfff", "\ue000")
ODD = (*_ODD.split(), *_SPACES, *_CONTROLS, "\ufffd", "\U0010ffff")


def hard_lines(count: int, tokenizer: Tokenizer, *, seed: int = 0) -> list[str]:
    """Words of the vocabulary, odd characters and characters from all of Unicode, mixed."""
    draw = random.Random(seed)
    words = [token.replace("▁", " ") for token in tokenizer.tokens if len(token) > 1]

    def part() -> str:
        kind = draw.random()
        if kind < 0.4:
            word = draw.choice(words)
            return word.upper() if kind < 0.1 else word
        if kind < 0.7:
            return draw.choice(ODD)
        code = draw.randrange(0x110000 if kind < 0.8 else 0x3000 if kind < 0.9 else 0x80)
        return chr(code) if code not in range(0xD800, 0xE000) else " "

    def line() -> str:
        return "".join(part() + " " * (draw.random() < 0.4) for _ in range(draw.randint(1, 14)))

    # JavaScript reads the two halves of a pair as one character
    return [line().replace("\ud800\udfff", "\ud800 \udfff") for _ in range(count)]


def has_node() -> bool:
    """Whether Node runs modules here."""
    node = shutil.which("node")
    if node is None:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    return version.startswith("v") and int(version[1:].split(".")[0]) >= 18


def run_node(folder: Path, code: str, data: Any) -> Any:
    """What a module prints as JSON, after it has read `data`. `folder` is new; the package's own
    JavaScript is in `browser`."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PAGE, folder / "browser", dirs_exist_ok=True)
    (folder / "data.json").write_text(json.dumps(data))
    head = 'import { readFileSync } from "node:fs";\n'
    head += 'const data = JSON.parse(readFileSync("data.json", "utf-8"));\n'
    (folder / "main.mjs").write_text(head + code)
    done = subprocess.run(["node", "main.mjs"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address of a folder of static files."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def task_model(
    folder: Path,
    *heads: Any,
    kind: Any,
    exits: Any = "none",
    card: Any = None,
    **encoder: Any,
) -> Checkpoint:
    """A model of random weights that was fine-tuned for a kind of task; the first head answers."""
    base = model_of(folder, heads, **encoder)
    chosen = [replace(base.model.config.heads[0], exits=exits), *base.model.config.heads[1:]]
    torch.manual_seed(1)
    model = Model(ModelConfig(encoder=base.model.config.encoder, heads=tuple(chosen))).eval()
    labels = LABELS if kind in ("classify", "pair") else ()
    task = Task(name=kind, kind=kind, scores=("accuracy",), labels=labels, head=heads[0])
    settings = {"max_length": 48} | (card or {})
    task_card = TaskCard(task=task, **settings)
    return Checkpoint(model=model, tokenizer=base.tokenizer, task=task_card.to_dict())
