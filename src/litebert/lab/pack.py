"""The results of a study without its weights: its folder in; a small folder, or a .tar.gz, out.

Packed are recipes, numbers, metrics and environments: what tables, plots and a `litebert lab
run` that continues on another machine need. Models, snapshots and vectors stay.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from litebert.errors import ConfigError, DataError
from litebert.files import read_bytes, write_file
from litebert.lab.results import ENVIRONMENT, PRETRAINED, RECIPE, RESULT, STUDY, writing

_STUDY_FILES = (
    STUDY,
    ENVIRONMENT,
    "table.md",
    "table.csv",
    "table.tex",
    "plot.svg",
    "plot.png",
    "report.html",
)
_TIME = 1_577_836_800
"""Of every file in an archive, so that equal results are equal archives."""
_MOST_BYTES = 2**30
"""Of what an archive holds."""


def pack_studies(folders: Sequence[Path], out: Path, *, metrics: bool = True) -> list[Path]:
    """Write the results of studies into the folder OUT, or into the archive OUT.tar.gz; the
    packed files by their names in it. With several studies each has a folder of its own."""
    files: dict[Path, Path] = {}
    by_name = {folder.resolve().name: folder for folder in folders}
    for folder in folders:
        if by_name[folder.resolve().name] != folder:
            raise ConfigError(
                f"{folder} and {by_name[folder.resolve().name]} have the same name, and would be "
                "one folder of the pack; rename one"
            )
        if not (folder / STUDY).is_file():
            raise ConfigError(
                f"{folder} is no folder of a study (it has no {STUDY}); litebert lab run makes one"
            )
        inside = Path(folder.resolve().name) if len(folders) > 1 or _is_archive(out) else Path()
        files |= {inside / name: path for name, path in _results(folder, metrics)}
    if _is_archive(out):
        _write(out.parent, {Path(out.name): _archive(files)})
    else:
        _write(out, {name: path.read_bytes() for name, path in files.items()})
    return list(files)


def unpack_studies(archive: Path, out: Path) -> list[Path]:
    """Write what an archive holds into OUT, without touching finished runs that are there."""
    files = _read_archive(archive)
    if any(name.is_absolute() or ".." in name.parts for name in files):
        raise DataError(f"{archive} holds paths outside of its folder; it is no pack")
    written = [name for name in files if not (out / name).exists()]
    _write(out, {name: files[name] for name in written})
    return written


def _write(out: Path, files: dict[Path, bytes]) -> None:
    for name, content in files.items():
        with writing(out / name):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(out / name, content)


def _read_archive(archive: Path) -> dict[Path, bytes]:
    """Read to its end, where its checksum stands: tarfile alone stops before."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(archive))) as packed:
            raw = packed.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise DataError(f"{archive} holds more than {_MOST_BYTES:,} bytes; it is no pack")
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
            members = [each for each in tar.getmembers() if each.isfile()]
            contents = [(Path(each.name), tar.extractfile(each)) for each in members]
            return {name: content.read() for name, content in contents if content}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{archive} cannot be unpacked: {reason}") from error


def _is_archive(out: Path) -> bool:
    return out.name.endswith(".tar.gz")


def _results(folder: Path, metrics: bool) -> Iterator[tuple[str, Path]]:
    """Files of a study by their path in the pack; of runs the finished ones alone."""
    for name in _STUDY_FILES:
        if (folder / name).is_file():
            yield name, folder / name
    for result in sorted(folder.glob(f"*-seed*/{RESULT}")):
        run = result.parent
        for name in (RECIPE, RESULT):
            if (run / name).is_file():
                yield f"{run.name}/{name}", run / name
        for name in ("metrics.jsonl", ENVIRONMENT) if metrics else (ENVIRONMENT,):
            path = run / PRETRAINED / name
            path = path if path.is_file() else run / name  # of a pack that is continued
            if path.is_file():
                yield f"{run.name}/{name}", path


def _archive(files: dict[Path, Path]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, path in files.items():
            content = path.read_bytes()
            member = tarfile.TarInfo(name.as_posix())
            member.size, member.mtime = len(content), _TIME
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=_TIME)
