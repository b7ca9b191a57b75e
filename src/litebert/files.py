"""Folders that are whole or absent, and that can tell when they were damaged.
 In: a target path and a function that writes files into a folder it is given. Out: that folder
under its final name. The order is what makes it safe: temporary sibling → files → manifest of sizes
and sha256 → fsync of every file and folder → rename → fsync of the parent. A process ended anywhere
before the rename leaves only a temporary sibling, which nobody reads; after it, everything the name
promises is on the disk.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from litebert.errors import CheckpointError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What writing says where there is no room."""
MANIFEST = "manifest.json"
FORMAT = "litebert-folder"
VERSION = 1
MAX_MANIFEST_BYTES = (
    16 * 2**20
)  # a folder holds tens of files: more than this is not ours, and is not read


def write_folder(
    target: Path | str, write: Callable[[Path], None], *, replace: bool = False
) -> Path:
    """Publish at `target` what `write` puts into the folder it is given; on any error nothing
    appears there.

    With `replace` an existing folder gives way in one step where the system can exchange two names
    (Linux).
    """
    target = Path(target)
    if target.exists() and not replace:
        raise CheckpointError(f"{target} exists already; choose another name or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        write(temporary)
        (temporary / MANIFEST).write_bytes(_manifest_bytes(_describe(temporary)))
        for path in sorted(temporary.rglob("*")):
            _sync(path)
        _sync(temporary)
        _publish(temporary, target)
        _sync(target.parent)
    finally:
        # On failure the half-written folder; after an exchange the one replaced, once the new name
        # is on the disk.
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def verify_folder(path: Path | str) -> tuple[str, ...]:
    """Names of the files `path` was published with, every byte of them checked; CheckpointError
    says what is wrong.

    Files that came later, such as a user's notes, are not in the manifest and are neither checked
    nor returned.
    """
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is not a folder; expected one written by litebert, with a {MANIFEST}"
        )
    files = _read_manifest(path)
    for name, (size, digest) in files.items():
        file = path / name
        try:
            found = file.stat().st_size
            if found != size:
                raise CheckpointError(
                    f"{file} has {found} bytes, {MANIFEST} says {size}; the file is damaged"
                )
            if _digest(file) != digest:
                raise CheckpointError(
                    f"{file} does not have the sha256 that {MANIFEST} says; the file is damaged"
                )
        except OSError as error:
            reason = (
                "is missing"
                if isinstance(error, FileNotFoundError)
                else f"cannot be read ({error.strerror})"
            )
            raise CheckpointError(
                f"{file} {reason}, {MANIFEST} lists it; the folder is damaged"
            ) from error
    return tuple(files)


def remove_leftovers(folder: Path | str) -> list[Path]:
    """Delete what killed writers left in `folder`; only for the one process that writes there."""
    leftovers = sorted(Path(folder).glob(".*.tmp-*"))
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)
    return leftovers


def _describe(folder: Path) -> dict[str, tuple[int, str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, _digest(path)) for path in files
    }


def _digest(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _manifest_bytes(files: dict[str, tuple[int, str]]) -> bytes:
    entries = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "files": entries}, indent=1, sort_keys=True
    )
    return text.encode() + b"\n"


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    file = folder / MANIFEST
    try:
        if file.stat().st_size > MAX_MANIFEST_BYTES:
            raise CheckpointError(
                f"{file} is larger than {MAX_MANIFEST_BYTES} bytes; litebert did not write it"
            )
        raw = file.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{folder} has no readable {MANIFEST} ({error.strerror}); it is not complete"
        ) from error
    try:
        read: dict[str, Any] = json.loads(raw)
        files = {
            str(name): (int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in read["files"].items()
        }
        # The manifest has no sum of its own: since its text follows from its content, one changed
        # byte shows.
        intact = (
            read["format"] == FORMAT
            and read["version"] == VERSION
            and _manifest_bytes(files) == raw
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged or of another kind: {error}") from error
    if not intact:
        raise CheckpointError(f"{file} is damaged, or was written by another version of litebert")
    for name in files:
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise CheckpointError(
                f"{file} names {name!r}, outside of its folder; do not trust this folder"
            )
    return files


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)  # an empty or absent target is simply taken
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(temporary, target):
            # Without an exchange there is an instant in which only the two hidden names exist.
            aside = temporary.with_name(temporary.name + "-old")
            target.rename(aside)
            temporary.rename(target)
            shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step by Linux's renameat2; False where that does not exist."""
    with contextlib.suppress(OSError, AttributeError):
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        at_cwd, exchange = -100, 2
        return bool(
            renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0
        )
    return False
