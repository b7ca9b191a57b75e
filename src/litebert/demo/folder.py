"""The folder of a demo: where each station writes, and what to do with earlier work.

demo.json records what a demo was made from. The same again resumes: finished stations are kept.
Other text or other settings start over: the folders that the demo wrote are removed, and anything
else is left alone.
"""

import shutil
from pathlib import Path
from typing import Any, Literal

from litebert.errors import ConfigError
from litebert.files import parse_json, read_bytes, remove_leftovers, write_json

_KEYS = {"litebert", "corpus", "recipe"}
"""Of what every demo.json says."""
Claim = Literal["new", "again", "over"]


class DemoFolder:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.about = self.path / "demo.json"
        self.text = self.path / "text"
        self.tokenizer = self.path / "tokenizer"
        self.shards = self.path / "shards"
        self.pretrain = self.path / "pretrain"
        self.finetune = self.path / "finetune"

    def claim(self, identity: dict[str, Any]) -> Claim:
        """Take the folder: new, the same demo again, or over another one."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; --out takes a folder")
        remove_leftovers(self.path, self.about.name)
        before = self._read()
        if before == identity:
            return "again"
        if before is None and self.path.exists() and any(self.path.iterdir()):
            raise ConfigError(
                f"{self.path} is not empty and holds no demo; choose another --out, or empty it"
            )
        for folder in (self.text, self.tokenizer, self.shards, self.pretrain, self.finetune):
            shutil.rmtree(folder, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.about, identity)
        return "new" if before is None else "over"

    def _read(self) -> dict[str, Any] | None:
        """What an earlier demo was made from; None where demo.json is absent or another's."""
        try:
            identity = parse_json(read_bytes(self.about))
        except (OSError, ValueError):
            return None
        is_ours = isinstance(identity, dict) and identity.keys() >= _KEYS
        return identity if is_ours else None
