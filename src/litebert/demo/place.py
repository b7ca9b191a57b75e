"""The folder of a demo: where each station writes, and what to do with what is there already. A
path in; a folder out.
 demo.json says what a demo was made from. The same again: each station takes over what is finished.
Other text or other settings: the folders that the demo made are removed, and it starts over.
Anything else that is there is left alone.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from litebert.errors import ConfigError
from litebert.files import write_json

Found = Literal["new", "again", "over"]


class DemoFolder:
    """The places of a demo."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.about = self.path / "demo.json"
        self.text = self.path / "text"
        self.tokenizer = self.path / "tokenizer"
        self.shards = self.path / "shards"
        self.pretrain = self.path / "pretrain"
        self.finetune = self.path / "finetune"

    def claim(self, identity: dict[str, Any]) -> Found:
        """Make the folder ours: new, the same demo again, or another one that gives way."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; --out takes a folder")
        there = self._read()
        if there == identity:
            return "again"
        if there is None and self.path.exists() and any(self.path.iterdir()):
            raise ConfigError(
                f"{self.path} is not empty and holds no demo; choose another --out, or empty it"
            )
        for made in (self.text, self.tokenizer, self.shards, self.pretrain, self.finetune):
            shutil.rmtree(made, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.about, identity)
        return "new" if there is None else "over"

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.about.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
