"""A mix of corpora for pretraining that fits where files are limited in size: text files and the
share of each in; compressed parts and a record of what is in them out.

    python -m tools.mix_corpora OUT wikipedia.00.txt.xz books.00.txt.xz=0.3 dialogues.txt.xz=2 \\
        [--max-megabytes 42]

A share is the fraction of a file's documents, chosen by a hash of their first line: the same ones
every time, and those of 0.3 are among those of 0.5. A share above 1 repeats all documents as often
as its whole part says. A file with share 1 is copied as it is if it is .xz already. OUT gets
PART.txt.xz for each and mix.json: documents, megabytes of text and of files. With --max-megabytes
a mix that is larger is refused, with its size.
"""

import argparse
import hashlib
import json
import lzma
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError
from litebert.files import open_atomic, write_json

PRESET = 6
"""Of xz."""


def documents(path: Path) -> Iterator[str]:
    """Stretches of text between blank lines, each with its line feeds."""
    opened = lzma.open if path.suffix == ".xz" else open
    lines: list[str] = []
    with opened(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line)
            elif lines:
                yield "".join(lines)
                lines = []
    if lines:
        yield "".join(lines)


def is_chosen(document: str, share: float) -> bool:
    first = document.partition("\n")[0]
    digest = hashlib.sha256(first.encode("utf-8", errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def parse_share(text: str) -> tuple[Path, float]:
    name, equals, share = text.rpartition("=")
    try:
        value = float(share) if equals else 1.0
    except ValueError:
        name, equals, value = text, "", 1.0
    if not value > 0:
        raise ConfigError(f"a share is a number above 0; got {text}")
    return Path(name if equals else text), value


def mix_one(source: Path, share: float, out: Path) -> dict[str, Any]:
    """Write one part; what is in it."""
    target = out / f"{source.name.removesuffix('.xz').removesuffix('.txt')}.txt.xz"
    count, size = 0, 0
    is_copied = share == 1 and source.suffix == ".xz"
    with open_atomic(target) as raw, ExitStack() as stack:
        copy = None
        if is_copied:
            raw.write(source.read_bytes())
        else:
            copy = stack.enter_context(lzma.open(raw, "wt", encoding="utf-8", preset=PRESET))
        for document in documents(source):
            times = int(share) if share >= 1 else int(is_chosen(document, share))
            count += times
            size += times * len(document.encode())
            if copy:
                copy.write(f"{document}\n" * times)
    return {
        "file": target.name,
        "share": share,
        "documents": count,
        "megabytes": round(size / 1e6, 1),
        "compressed_megabytes": round(target.stat().st_size / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="+", metavar="FILE[=SHARE]")
    parser.add_argument("--max-megabytes", type=float, help="of compressed files together")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time")
    args = parser.parse_args()
    chosen = [parse_share(part) for part in args.parts]
    args.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(mix_one, source, share, args.out) for source, share in chosen]
        parts = [run.result() for run in runs]
    total = round(sum(part["compressed_megabytes"] for part in parts), 2)
    record = {"parts": parts, "compressed_megabytes": total}
    write_json(args.out / "mix.json", record, indent=1)
    print(json.dumps(record, indent=1))
    if args.max_megabytes is not None and total > args.max_megabytes:
        raise SystemExit(f"the mix has {total} MB, {args.max_megabytes:g} fit; lower some shares")


if __name__ == "__main__":
    main()
