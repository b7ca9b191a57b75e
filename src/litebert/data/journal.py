"""What a build is to write, and which of its shards are finished.

In: corpus, tokenizer, options and the output folder. Out: a plan, equal to another exactly when
their shards are; and a Journal of the finished shards. A corpus is identified by its files'
content, not by their dates.
"""

import shutil
from pathlib import Path
from typing import Any

from litebert.checks import clip
from litebert.data.chunks import CorpusFile
from litebert.data.encode import CorpusPosition, EncoderRecipe, token_dtype
from litebert.data.shards import FORMAT, INDEX_FILE, PARTS, TOKENIZER_FOLDER, VERSION, read_index
from litebert.errors import DataError, LitebertError
from litebert.files import parse_json, read_bytes, remove_leftovers, sha256, write_json
from litebert.text.tokenizer import Tokenizer

_WORK_FOLDER = ".build"
_PLAN_FILE = "plan.json"
QUARANTINE_FILE = "quarantine.jsonl"
Record = dict[str, Any]


def make_plan(
    files: list[CorpusFile], tokenizer: Tokenizer, recipe: EncoderRecipe, shard_tokens: int
) -> Record:
    """The beginning of the index; everything that decides what the shards hold."""
    options = recipe.options
    return {
        "format": FORMAT,
        "version": VERSION,
        "dtype": token_dtype(tokenizer.vocab_size),
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "build": {
            "shard_tokens": shard_tokens,
            "sentences": recipe.sentences,
            "documents": options.documents,
            "field": options.field,
            "bad_rows": options.bad_rows,
            "piece_bytes": options.chunk_bytes,
            "max_row_bytes": options.max_row_bytes,
        },
        "corpus": [_describe(file) for file in files],
    }


def _describe(file: CorpusFile) -> Record:
    try:
        size = Path(file.path).stat().st_size
        return {"file": file.path, "bytes": size, "sha256": sha256(file.path)}
    except OSError as error:
        raise DataError(f"{file.path}: cannot be read ({error.strerror})") from error


def _differences(old: Record, new: Record) -> list[str]:
    """What differs between two plans, in words; empty if the build may resume."""
    before = old | old.get("build", {})
    changes = []
    for key in ("version", "dtype", "tokenizer", "vocab_size", *new["build"]):
        was, value = before.get(key), (new | new["build"])[key]
        # A build that stopped at its first bad row may resume with another policy.
        if was != value and (key, was) != ("bad_rows", "error"):
            changes.append(f"{key}: was {clip(str(was))}, is {clip(str(value))}")
    corpus = old.get("corpus", [])
    if [*map(_content, corpus)] == [*map(_content, new["corpus"])]:
        return sorted(changes)  # the same files, maybe by other paths
    ours = {each["file"]: each for each in new["corpus"]}
    theirs = {each["file"]: each for each in corpus}
    changes += [f"{name} is new" for name in ours.keys() - theirs.keys()]
    changes += [f"{name} is gone" for name in theirs.keys() - ours.keys()]
    for name in ours.keys() & theirs.keys():
        old_bytes, new_bytes = theirs[name]["bytes"], ours[name]["bytes"]
        if (old_bytes, theirs[name]["sha256"]) != (new_bytes, ours[name]["sha256"]):
            changes.append(f"{name} has changed ({old_bytes} bytes before, {new_bytes} now)")
    if not changes and list(ours) != list(theirs):
        changes.append("the files come in another order")
    return sorted(changes)


def _content(file: Record) -> tuple[Any, ...]:
    """What of a corpus file decides its text: its bytes, and how its name says to read them."""
    return file["bytes"], file["sha256"], "".join(Path(file["file"]).suffixes[-2:])


class Journal:
    """The finished shards of a build, as recorded in its work folder."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out / _WORK_FOLDER

    def begin(self, plan: Record, *, overwrite: bool) -> None:
        """Prepare the work folder for `plan`; refuse files of another plan, unless `overwrite`."""
        wrong = self.obstacles(plan)
        if not wrong:
            self._check_foreign(plan)
        if wrong and not overwrite:
            more = [f"and {len(wrong) - 5} more"] if len(wrong) > 5 else []
            shown = "; ".join([*(clip(each, 300) for each in wrong[:5]), *more])
            raise DataError(
                f"{self.out} holds shards of another build ({shown}); name another folder, or pass "
                "--overwrite"
            )
        if wrong:
            self._clear(plan)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (INDEX_FILE, QUARANTINE_FILE):
            remove_leftovers(self.out, name)
        remove_leftovers(self.folder)
        for leftover in self.folder.glob("*.tmp"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        write_json(self.folder / _PLAN_FILE, plan, indent=1)
        index = self.out / INDEX_FILE
        # a finished build that lost a shard: its records go back, and the index until it is true
        if index.exists():
            for number, record in enumerate(read_index(self.out)["shards"]):
                self.write(number, record)
            index.unlink()

    def obstacles(self, plan: Record) -> list[str]:
        """Why the folder's content does not belong to `plan`; empty if it does."""
        for path in (self.out / INDEX_FILE, self.folder / _PLAN_FILE):
            if path.exists():
                try:
                    return _differences(parse_json(read_bytes(path)), plan)
                except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                    return [f"{path.name} cannot be read: {type(error).__name__}"]
        return ["shards without an index"] if any(self.out.glob("[0-9]*.*.npy")) else []

    def has_tokenizer(self, plan: Record) -> bool:
        """Whether the folder's tokenizer is the plan's, which is then left as it is."""
        try:
            tokenizer = Tokenizer.load(self.out / TOKENIZER_FOLDER)
        except LitebertError:
            return False
        return bool(tokenizer.fingerprint == plan["tokenizer"])

    def _check_foreign(self, plan: Record) -> None:
        """Refuse to replace what no build wrote, where none has begun: --overwrite is about
        shards."""
        if (self.out / INDEX_FILE).exists() or (self.folder / _PLAN_FILE).exists():
            return
        names = [name for name in (TOKENIZER_FOLDER, QUARANTINE_FILE) if (self.out / name).exists()]
        if TOKENIZER_FOLDER in names and self.has_tokenizer(plan):
            names.remove(TOKENIZER_FOLDER)
        if names:
            raise DataError(
                f"{self.out} holds {' and '.join(names)}, which no build wrote and this one would "
                "replace; name another folder, or move that away"
            )

    def _clear(self, plan: Record) -> None:
        """Remove what builds write; other files stay. The index goes first, and arrays that show a
        killed process's work late."""
        (self.out / INDEX_FILE).unlink(missing_ok=True)
        (self.out / QUARANTINE_FILE).unlink(missing_ok=True)
        if not self.has_tokenizer(plan):
            shutil.rmtree(self.out / TOKENIZER_FOLDER, ignore_errors=True)
        for array_name in PARTS:
            for path in self.out.glob(f"[0-9]*.{array_name}.npy"):
                path.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def find(self, number: int, start: CorpusPosition) -> Record | None:
        """The record of shard `number`, if it begins at `start` and its files are as recorded."""
        try:
            record: Record = parse_json(read_bytes(self.folder / f"{shard_name(number)}.json"))
            is_complete = tuple(record["start"]) == start and all(
                sha256(self.out / f"{record['name']}.{array_name}.npy") == digest
                for array_name, digest in record["sha256"].items()
            )
            # Bad rows that were kept must still be there to be gathered when the build ends.
            has_bad_rows = not record["quarantined"] or self.quarantine(number).exists()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if is_complete and has_bad_rows else None

    def write(self, number: int, record: Record) -> None:
        """Record a shard whose files are published."""
        write_json(self.folder / f"{shard_name(number)}.json", record, indent=1)

    def quarantine(self, number: int) -> Path:
        """Where the bad rows of a shard are kept until the build ends."""
        return self.folder / f"{shard_name(number)}.quarantine.jsonl"

    def end(self) -> None:
        """Remove the work folder, after the index is written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def shard_name(number: int) -> str:
    return f"{number:05d}"
