"""Files that are whole under their name or absent: written aside, forced to the disk, renamed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def publish(temporary: Path, final: Path) -> None:
    """Give a finished file its name; what it holds reaches the disk before the name does."""
    sync(temporary)
    temporary.replace(final)
    sync(final.parent)


def publish_json(value: Any, temporary: Path, final: Path) -> None:
    """The same for a value that is written as JSON, always with the same bytes."""
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    publish(temporary, final)


def sync(path: Path) -> None:
    """Force a file or a folder's list of names to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path | str) -> str:
    """Of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
