"""Exports of checkpoints, made on first use: a checkpoint's folder in, an exported folder out.

They lie in $XDG_CACHE_HOME/litebert/exports (by default ~/.cache), under a name that depends on
every byte of the checkpoint. Before an export is used both are verified, but for the checkpoint of
an embedded model; a damaged export is written again. The least recently used go first. torch is
imported only to export.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from litebert import __version__
from litebert.errors import CheckpointError, ConfigError
from litebert.files import (
    MANIFEST,
    has_manifest,
    remove_folder,
    sha256,
    verify_folder,
    write_folder,
)
from litebert.infer.exported import VERSION, Runtime
from litebert.models.index import ROOT

MOST_FOLDERS = 16
MOST_BYTES = 4 * 2**30
"""Of all exports that are kept."""


def _cache_folder() -> Path:
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise ConfigError(
            "this user has no home folder to keep exports in; set XDG_CACHE_HOME, or take --engine "
            "torch"
        ) from error
    return Path(home) / "litebert" / "exports"


def cached_export(
    folder: Path, runtime: Runtime, *, unverified: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """The float32 export of a checkpoint, verified, and notes; made now if it is not there yet."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder} is no folder, and --engine {runtime} exports folders; convert it first, or "
            "take --engine torch"
        )
    source = identity(folder, unverified=unverified)
    key = hashlib.sha256(f"{VERSION} {__version__} {runtime} {source}".encode()).hexdigest()
    target = _cache_folder() / f"{folder.resolve().name}-{runtime}-{key[:16]}"
    if _is_whole(target):
        if not unverified and has_manifest(folder) and folder.parent != ROOT:
            verify_folder(folder)
        return target, ()
    notes = _export(folder, target, runtime, source, unverified=unverified)
    size = sum(path.stat().st_size for path in target.iterdir())
    _trim(target.parent, keep=target)
    return target, (
        *notes,
        f"exported once for {runtime}: {target} ({size / 1e6:.0f} MB); --engine torch does without",
    )


def _is_whole(target: Path) -> bool:
    """Whether an export is there and undamaged; a damaged one is removed."""
    try:
        if not target.exists():
            return False
        try:
            verify_folder(target)
        except CheckpointError:
            remove_folder(target)
            return False
    except OSError as error:
        raise _unusable(target, error) from error
    with contextlib.suppress(OSError):  # a cache that may be read alone
        os.utime(target)
    return True


def identity(folder: Path, *, unverified: bool = False) -> str:
    """A sha256 that another checkpoint does not have: of the manifest, which names the sha256 of
    every file, or of the files themselves where there is none or it is not to be trusted."""
    if has_manifest(folder) and not unverified:
        return sha256(folder / MANIFEST)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def _trim(root: Path, *, keep: Path) -> None:
    """Remove the least recently used exports beyond MOST_FOLDERS and MOST_BYTES."""
    folders: list[tuple[float, int, Path]] = []
    for path in root.iterdir():
        with contextlib.suppress(OSError):  # another process trims too
            if path.is_dir() and not path.name.startswith("."):
                size = sum(each.stat().st_size for each in path.iterdir())
                folders.append((path.stat().st_mtime, size, path))
    total = 0
    for number, (_, size, path) in enumerate(sorted(folders, reverse=True)):
        total += size
        if path != keep and (number >= MOST_FOLDERS or total > MOST_BYTES):
            shutil.rmtree(path, ignore_errors=True)


def _export(
    folder: Path, target: Path, runtime: Runtime, source: str, *, unverified: bool
) -> tuple[str, ...]:
    notes: list[str] = []

    def write(temporary: Path) -> None:
        # torch is imported once there is a folder to write into
        from litebert.infer.export.folder import ExportOptions, write_export
        from litebert.loading import load_checkpoint

        checkpoint, loading = load_checkpoint(folder, unverified=unverified)
        notes.extend(loading)
        write_export(checkpoint, temporary, ExportOptions(runtime=runtime), source=source)

    try:
        write_folder(target, write, replace=True)  # another process may have been faster
    except OSError as error:
        raise _unusable(target, error) from error
    return tuple(notes)


def _unusable(target: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{target} cannot be written ({error.strerror}); make room there, set XDG_CACHE_HOME, or "
        "take --engine torch"
    )
