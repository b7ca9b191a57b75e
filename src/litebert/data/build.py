"""The build: corpus and tokenizer in, a folder of shards out, whatever interrupts it.

The corpus is cut into parcels, a runner encodes them, an assembler writes shards and keeps a
journal. Around that, this module refuses other builds in the folder, checks the space on the disk,
and writes the index last. (docs/data.md)
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from litebert.checks import check_number, shorten
from litebert.data.bad_rows import check_share
from litebert.data.chunks import CorpusFile, find_files
from litebert.data.corpus import CorpusOptions
from litebert.data.encode import EncoderRecipe
from litebert.data.journal import QUARANTINE_FILE, Journal, Record, make_plan
from litebert.data.runners import RUNNERS, open_runner
from litebert.data.shard_writer import Assembler, BuildProgress
from litebert.data.shards import INDEX_FILE, TOKENIZER_FOLDER, Shards
from litebert.errors import ConfigError, DataError
from litebert.files import DISK_FULL, Lock, check_local, open_atomic, publish, write_json
from litebert.text.tokenizer import Tokenizer

SHARD_TOKENS = 64_000_000
_COUNTS = ("documents", "sentences", "tokens", "unknown", "text_bytes", "cut_lines", "bad_rows")
_TEXT_BYTES = {"none": 1.0, "gzip": 3.0, "xz": 4.5, "bzip2": 4.5, "zstd": 4.0}
"""Text in a byte of a file, about; for the check of the disk only."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Only `max_bad_rows`, `workers`, `runner` and `overwrite` may differ when a build is started
    again."""

    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    max_bad_rows: float = 0.1
    """Largest share of bad rows, among them and the sentences; fewer than ten are always left
    out."""
    split: Literal["rules", "lines"] = "rules"
    """How sentences are found: by rules, or each line of a document is one."""
    shard_tokens: int = SHARD_TOKENS
    """Tokens after which a shard ends, at the next end of a document."""
    workers: int = 1
    """Processes that encode, beside the one that reads and writes; 1: that one does it all."""
    runner: Literal["processes", "ray"] = "processes"
    """Where the processes run: on this machine, or on a Ray cluster."""
    overwrite: bool = False
    """Replace the shards of another build in the same folder."""

    def __post_init__(self) -> None:
        if self.shard_tokens < 1:
            raise ConfigError(f"shard_tokens is {self.shard_tokens}, expected 1 or more")
        if self.split not in ("rules", "lines"):
            raise ConfigError(f"split is {shorten(self.split)}, expected rules or lines")
        check_number(self, "max_bad_rows", 0, 1)
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}, expected 1 or more")
        if self.runner not in RUNNERS:
            raise ConfigError(
                f"runner is {shorten(self.runner)}, expected one of {', '.join(RUNNERS)}"
            )


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build wrote."""

    out: str
    documents: int
    sentences: int
    tokens: int
    unknown: int
    """Tokens that are the unknown token."""
    text_bytes: int
    cut_lines: int
    """Times that a line longer than a chunk was cut."""
    bad_rows: int
    bad: list[str]
    """The first bad rows of this start, with file and line."""
    shards: int
    shards_reused: int
    """Shards that an earlier start had finished."""
    encoded_bytes: int
    """Text encoded by this start."""
    seconds: float


def build_shards(
    corpus: Iterable[str | os.PathLike[str]],
    *,
    tokenizer: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: BuildOptions | None = None,
    watch: Callable[[BuildProgress], None] | None = None,
) -> BuildReport:
    """Build `corpus` in the folder `out`, or resume; `watch` is called for each parcel."""
    began = time.monotonic()
    options = options or BuildOptions()
    own = os.path.abspath(Path(out) / QUARANTINE_FILE)  # where `out` lies inside the corpus
    files = [file for file in find_files(corpus) if os.path.abspath(file.path) != own]
    loaded = Tokenizer.load(Path(tokenizer))
    recipe = EncoderRecipe(
        model=loaded.model, rules=loaded.rules, options=options.corpus, split=options.split
    )
    check_local(Path(out))
    folder = _make_folder(out)
    journal = Journal(folder)
    with _alone(folder), _disk_errors(folder):
        signs = [_sign(file) for file in files]
        plan = make_plan(files, loaded, recipe, options.shard_tokens)
        assembler = Assembler(
            files,
            options.corpus,
            journal,
            shard_tokens=options.shard_tokens,
            dtype=plan["dtype"],
            watch=watch,
        )
        complete = _is_complete(journal, plan)
        if not complete:
            journal.begin(plan, overwrite=options.overwrite)
            _check_space(folder, files)
            with open_runner(options.runner, recipe, options.workers) as run:
                records = list(assembler.shards(run))
            _check_unchanged(files, signs)
            totals = {key: sum(record[key] for record in records) for key in _COUNTS}
            check_share(
                totals["bad_rows"],
                totals["sentences"],
                options.max_bad_rows,
                first=next(iter(assembler.noted), "of an earlier start"),
                unit="rows and sentences",
                mend="convert a file in another encoding to UTF-8",
            )
            if not journal.has_tokenizer(plan):
                loaded.save(journal.folder / "tokenizer.tmp")
                publish(journal.folder / "tokenizer.tmp", folder / TOKENIZER_FOLDER)
            _gather_quarantine(journal, len(records))
            write_json(folder / INDEX_FILE, _index(plan, records, totals), indent=1)
        journal.end()
    index = Shards.open(folder).index
    return BuildReport(
        out=str(folder),
        **{key: index[key] for key in _COUNTS},
        bad=assembler.noted,
        shards=len(index["shards"]),
        shards_reused=len(index["shards"]) if complete else assembler.num_reused,
        encoded_bytes=assembler.encoded_bytes,
        seconds=time.monotonic() - began,
    )


def _is_complete(journal: Journal, plan: Record) -> bool:
    """Whether the build is finished; every byte is verified."""
    if not (journal.out / INDEX_FILE).exists() or journal.obstacles(plan):
        return False
    try:
        Shards.open(journal.out, verify=True).tokenizer()
    except DataError:
        return False
    return True


def _index(plan: Record, records: list[Record], totals: dict[str, int]) -> Record:
    if not totals["tokens"]:
        raise DataError(
            f"there is no text in {len(plan['corpus'])} files, with {totals['bad_rows']} bad rows; "
            "name other files"
        )
    documents: Counter[str] = Counter()
    for record in records:
        documents.update(record["documents_by_file"])
    corpus = [
        each | {"documents": documents[str(number)]} for number, each in enumerate(plan["corpus"])
    ]
    filled = [record for record in records if record["tokens"]]
    return plan | {"corpus": corpus, **totals, "shards": filled}


def _check_space(folder: Path, files: list[CorpusFile]) -> None:
    # Two bytes a token, which stands for about four bytes of text; and the bounds.
    needed = sum(0.6 * os.path.getsize(file.path) * _TEXT_BYTES[file.compression] for file in files)
    missing = needed - sum(path.stat().st_size for path in folder.glob("*.npy"))
    free = shutil.disk_usage(folder).free
    if free < missing:
        raise DataError(
            f"the shards need about {missing / 1e9:.3f} GB more, {folder} has {free / 1e9:.3f} GB "
            "free; make room, or name a folder on another disk"
        )


def _sign(file: CorpusFile) -> tuple[int, int]:
    try:
        stat = os.stat(file.path)
    except OSError as error:
        raise DataError(f"{file.path}: cannot be read ({error.strerror})") from error
    return stat.st_size, stat.st_mtime_ns


def _check_unchanged(files: list[CorpusFile], signs: list[tuple[int, int]]) -> None:
    changed = [file.path for file, sign in zip(files, signs, strict=True) if _sign(file) != sign]
    if changed:
        raise DataError(
            f"{changed[0]} changed while it was read; start again when it is at rest, with "
            "--overwrite"
        )


def _gather_quarantine(journal: Journal, count: int) -> None:
    final = journal.out / QUARANTINE_FILE
    final.unlink(missing_ok=True)
    parts = [path for number in range(count) if (path := journal.quarantine(number)).exists()]
    if parts:
        with open_atomic(final) as joined:
            for path in parts:
                with path.open("rb") as shard_file:
                    shutil.copyfileobj(shard_file, joined)


def _make_folder(out: str | os.PathLike[str]) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the shards cannot be written to {folder} ({error.strerror}); name another folder"
        ) from error
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder itself, which leaves no file behind."""
    try:
        lock = Lock(folder)
    except OSError as error:
        raise DataError(
            f"another build is at work in {folder}; wait for it, or name another folder"
        ) from error
    with lock:
        yield


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise DataError(
                f"{error.filename or folder} cannot be read or written ({error.strerror or error});"
                " mend that, or name another folder"
            ) from error
        raise DataError(
            f"no space left in {folder}; finished shards are kept: make room, then the same "
            "command resumes"
        ) from error
