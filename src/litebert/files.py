"""The only place that publishes a file or a folder: it is complete under its name, or absent.

In: a target path and what to write. Out: the target. The order makes it safe: temporary sibling
`.NAME.tmp-XXXX` → fsync of every file and folder → rename → fsync of the parent. A process killed
before the rename leaves only the temporary sibling, which nobody reads and `remove_leftovers`
deletes. Folders also get a manifest of sizes and sha256, which `verify_folder` checks.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import IO, Any, Literal

from litebert.checks import shorten
from litebert.errors import CheckpointError, ConfigError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk."""
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Error numbers of a file system without locks."""
MANIFEST = "manifest.json"
MAX_JSON_BYTES = 4 * 2**20
_SIGN_WITHIN = 2**12
"""Bytes in which a file says what wrote it."""
MAX_MANIFEST_BYTES = 16 * 2**20
"""A folder holds tens of files; a larger manifest is not ours, and is not read."""
_SPECIAL = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
"""What a path may be instead of a regular file."""
_MAX_NAME_BYTES = 255
"""Of a file; folders of ours are hardly nested."""
_NPY = b"\x93NUMPY"
_FORMAT, _VERSION = "litebert-folder", 1
_OURS = re.compile(r"\.tmp-([0-9a-f]{4,8}(-old)?|old)$")
"""Ends of temporary names; a user's file that ends otherwise is never removed."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Also as pathlib shortens it, with one slash."""


def check_local(path: Path | str) -> None:
    """Refuse a URL as a target: as a path it would be a local folder called s3:."""
    if _URL.match(os.fspath(path)):
        raise ConfigError(
            f"{path} is a URL, and litebert writes to local disks only; name a local path, and "
            "copy the result from there"
        )


@contextlib.contextmanager
def open_atomic(target: Path | str) -> Iterator[IO[bytes]]:
    """A file to write, which replaces `target` at the end of the block; on an error nothing does. A
    folder, device or pipe in its place is refused with OSError."""
    target = Path(target)
    check_local(target)
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(target))
    remove_leftovers(target.parent, target.name)
    temporary = temporary_path(target)
    try:
        with temporary.open("wb") as file, locked(temporary):
            yield file
            file.close()
            publish(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(target: Path | str, content: bytes | str) -> Path:
    """Replace a small file in one step; text as UTF-8, lone surrogates as their escapes."""
    with open_atomic(target) as file:
        file.write(encode(content) if isinstance(content, str) else content)
    return Path(target)


def write_json(target: Path | str, value: Any, *, indent: int = 2) -> Path:
    """Replace a JSON file in one step; equal values give equal bytes."""
    return write_file(target, to_json(value, indent=indent, ensure_ascii=False) + "\n")


def check_regular(path: Path | str) -> int:
    """The size of a regular file; OSError says what else it is, before it is opened: a pipe would
    wait for ever, and a device may have no end."""
    mode = os.stat(path)
    for test, kind in _SPECIAL:
        if test(mode.st_mode):
            raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return mode.st_size


def check_own(path: Path | str, sign: str, what: str) -> None:
    """Refuse to replace a file that litebert did not write: one that is not empty and does not
    have `sign` near its beginning. `what` it should be, for people."""
    try:
        size = check_regular(path)
        with open(path, "rb") as file:
            is_own = not size or sign.encode() in file.read(_SIGN_WITHIN)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"{path} cannot be replaced: {error.strerror}; name another") from error
    if not is_own:
        raise ConfigError(
            f"{path} exists and is not {what} of litebert; name another file, or remove it"
        )


def read_bytes(path: Path | str) -> bytes:
    """The content of a regular file; OSError says what else it is, as `check_regular` does."""
    check_regular(path)
    return Path(path).read_bytes()


@contextlib.contextmanager
def utf8_path(path: Path) -> Iterator[str]:
    """A path of a file for libraries that open paths in UTF-8 alone."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        yield os.fspath(path)


def to_json(value: Any, **options: Any) -> str:
    """`value` as JSON that every reader accepts: NaN and infinite numbers become null, lone
    surrogates are escaped. `options` are json.dumps'."""
    try:
        text = json.dumps(value, allow_nan=False, **options)
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, **options)
    return text if text.isascii() else encode(text).decode()


def encode(text: str) -> bytes:
    """UTF-8, with the escapes of lone surrogates, which have none: \\ud800, as in JSON."""
    return text.encode(errors="backslashreplace")


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text says; ValueError where it says none, or nests too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; CheckpointError where there is none."""
    try:
        if check_regular(path) > MAX_JSON_BYTES:
            raise CheckpointError(f"{path} is larger than {MAX_JSON_BYTES} bytes; it is no config")
        data = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent} has no {path.name}; expected a model folder with {path.name} in it"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} should hold a JSON object, it holds a {type(data).__name__}")
    return data


def load_npy(path: Path | str, mmap_mode: Literal["r", "c"] | None = None) -> Any:
    """The numpy array of a .npy file; ValueError where it is none or damaged. Never pickled."""
    import numpy as np

    check_regular(path)
    with open(path, "rb") as file:
        if file.read(len(_NPY)) != _NPY:  # numpy would open a zip archive, too
            raise ValueError("it is no .npy file")
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (SyntaxError, EOFError, TypeError, OverflowError, TokenError) as error:
        raise ValueError(f"its header is damaged: {error}") from error


def publish(temporary: Path, target: Path) -> None:
    """Rename a finished file or folder to `target`; its content reaches the disk first."""
    for path in sorted(temporary.rglob("*")) if temporary.is_dir() else ():
        _sync(path)
    _sync(temporary)
    _rename(temporary, target)
    _sync(target.parent)


def write_folder(
    target: Path | str, write: Callable[[Path], None], *, replace: bool = False
) -> Path:
    """Publish at `target` the files that `write` puts into the folder it is called with, or nothing
    on an error. With `replace` an existing folder is exchanged in one step (on Linux)."""
    target = Path(target)
    check_local(target)
    if target.exists() and not replace:
        raise CheckpointError(f"{target} exists already; choose another name or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent, target.name)
    temporary = temporary_path(target)
    temporary.mkdir()
    try:
        with locked(temporary):
            write(temporary)
            (temporary / MANIFEST).write_bytes(_manifest_bytes(_describe(temporary)))
            publish(temporary, target)
    finally:
        # on failure the unfinished folder; after an exchange the one replaced
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def verify_folder(path: Path | str) -> dict[str, str]:
    """The files that `path` was published with, by name their sha256, after checking every byte of
    them; what came later is neither checked nor returned."""
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is not a folder; expected one written by litebert, with a {MANIFEST}"
        )
    files = _read_manifest(path)
    for name, (size, digest) in files.items():
        file = path / name
        try:
            actual = check_regular(file)
            if actual != size:
                raise CheckpointError(
                    f"{file} has {actual} bytes, {MANIFEST} says {size}; the file is damaged"
                )
            if sha256(file) != digest:
                raise CheckpointError(
                    f"{file} does not have the sha256 that {MANIFEST} says; the file is damaged"
                )
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            reason = "is missing" if absent else f"cannot be read ({error.strerror})"
            raise CheckpointError(
                f"{file} {reason}, {MANIFEST} lists it; the folder is damaged"
            ) from error
    return {name: digest for name, (_, digest) in files.items()}


def has_manifest(path: Path | str) -> bool:
    """Whether a folder has a manifest of ours, be it damaged, and not another program's."""
    file = Path(path) / MANIFEST
    if not file.exists():
        return False
    try:
        content = read_json(file)
    except CheckpointError:
        return True
    return content.get("format") == _FORMAT or "sha256" in str(content.get("files"))


def remove_folder(path: Path) -> None:
    """Delete a published folder; a process killed meanwhile leaves no half of it under its name."""
    doomed = path.with_name(temporary_path(path).name + "-old")
    path.rename(doomed)
    shutil.rmtree(doomed)


def remove_leftovers(folder: Path | str, name: str | None = None) -> list[Path]:
    """Delete what killed writers of `name`, or of anything, left; a living one holds a lock."""
    pattern = f".{'*' if name is None else glob.escape(name)}.tmp-*"
    leftovers = [path for path in sorted(Path(folder).glob(pattern)) if _OURS.search(path.name)]
    leftovers = [path for path in leftovers if path.is_symlink() or not _is_locked(path)]
    for leftover in leftovers:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
    return leftovers


def sha256(path: Path | str) -> str:
    """Of a file's bytes, in hexadecimal."""
    check_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Lock:
    """An exclusive lock on an existing file or folder; OSError where another process holds it. The
    system drops it however the process ends. A file system may have none (Lustre without flock):
    then nothing is held, and nobody is kept out."""

    def __init__(self, path: Path | str) -> None:
        self._descriptor: int | None = os.open(
            path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if error.errno not in _NO_LOCKS:
                raise

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *reason: object) -> None:
        self.release()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def locked(temporary: Path) -> Iterator[None]:
    """Keep `remove_leftovers` of other processes away from what this one is writing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a folder that may not be read
            stack.enter_context(Lock(temporary))
        yield


def _is_locked(path: Path) -> bool:
    """Whether a living process may be writing `path`."""
    try:
        with Lock(path) as lock:
            return not lock.is_held
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK


def temporary_path(target: Path) -> Path:
    """A new name beside `target` for what `publish` will rename to it."""
    return target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")


def _describe(folder: Path) -> dict[str, tuple[int, str]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, sha256(path)) for path in files
    }


def _manifest_bytes(files: dict[str, tuple[int, str]]) -> bytes:
    entries = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    text = json.dumps(
        {"format": _FORMAT, "version": _VERSION, "files": entries}, indent=1, sort_keys=True
    )
    return text.encode() + b"\n"


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    file = folder / MANIFEST
    try:
        if check_regular(file) > MAX_MANIFEST_BYTES:
            raise CheckpointError(
                f"{file} is larger than {MAX_MANIFEST_BYTES} bytes; litebert did not write it"
            )
        raw = file.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{folder} has no readable {MANIFEST} ({error.strerror}); it is not complete"
        ) from error
    try:
        content: dict[str, Any] = parse_json(raw)
        files = {
            str(name): (int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in content["files"].items()
        }
        # the manifest has no sum: its text follows from its content, so a changed byte shows
        intact = (
            content["format"] == _FORMAT
            and content["version"] == _VERSION
            and _manifest_bytes(files) == raw
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} is damaged or of another kind: {error}") from error
    if not intact:
        raise CheckpointError(f"{file} is damaged, or was written by another version of litebert")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CheckpointError(
                f"{file} names {shorten(name)}, outside of its folder; do not trust this folder"
            )
        if not _is_name(name):
            raise CheckpointError(
                f"{file} names {shorten(name)}, which no file is called; do not trust this folder"
            )
    return files


def _is_name(name: str) -> bool:
    try:
        return "\0" not in name and len(os.fsencode(name)) <= _MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(temporary: Path, target: Path) -> None:
    """Rename; a folder that is in the way ends up under the temporary name, or is removed."""
    try:
        temporary.replace(target)
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
