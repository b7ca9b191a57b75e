"""Bad task files by the thousand: the readers must end with examples or one clear error, quickly,
in bounded memory.

    python -m torture.fuzz_tasks --generated 5000 --out fuzz.json

As fuzz_corpus.py, for tables (CSV, TSV, JSONL, Parquet) and SQuAD's JSON: good files of every kind
of task and compression, damaged at random; and handmade ones. Each is read with bad rows refused
and with bad rows left out.
"""

import csv
import io
import itertools
import json
import random
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as arrow
import pyarrow.parquet

from litebert.errors import DataError
from litebert.tasks.registry import OWN, TableOptions, open_task
from litebert.testing.files import OWN as MAKERS
from litebert.testing.files import article
from torture.harness import PACKS, damage, fuzz_command

KINDS = (".csv", ".tsv", ".jsonl", ".parquet", ".json")


def main() -> None:
    fuzz_command(__doc__, generated, handmade, read_task)


def read_task(path: str) -> str:
    """A file's name says which task it is: f.classify.csv."""
    name = next((name for name in OWN if f".{name}." in path), "classify")
    outcomes = []
    for policy in ("error", "skip"):
        try:
            open_task(name, path, options=TableOptions(bad_rows=policy, dev_fraction=0))
            outcomes.append("")
        except DataError as error:
            outcomes.append(f"DataError: {error}")
        except Exception:
            return f"Traceback: {traceback.format_exc()}"
    if outcomes[0] and path.split("/")[-1][:1] not in outcomes[0]:
        return f"Traceback: {outcomes[0]} does not name the file"
    return outcomes[0] or (
        "Traceback: only without bad rows: " + outcomes[1] if outcomes[1] else "read"
    )


def good(task: str, kind: str, draw: random.Random) -> bytes:
    if kind == ".json":
        return json.dumps(
            {"data": [article(draw, number, has_null=True) for number in range(draw.randint(1, 5))]}
        ).encode()
    rows = [MAKERS[task](draw) for _ in range(draw.randint(2, 30))]
    if kind == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    if kind == ".parquet":
        packed = io.BytesIO()
        arrow.parquet.write_table(arrow.Table.from_pylist(rows), packed, row_group_size=7)
        return packed.getvalue()
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), delimiter="\t" if kind == ".tsv" else ",")
    table.writeheader()
    table.writerows({name: _flat(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _flat(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def generated(count: int, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Good files, packed before or after some damage."""
    for _ in range(count):
        kind, packing = draw.choice(KINDS), draw.choice(list(PACKS))
        task = "answer" if kind == ".json" else draw.choice(OWN)
        data = good(task, kind, draw)
        inside = draw.random() < 0.5
        data = PACKS[packing](damage(data, draw)) if inside else damage(PACKS[packing](data), draw)
        yield f".{task}{kind}{packing}", data


def handmade() -> Iterator[tuple[str, bytes]]:
    """What really comes along, in every kind of file and wrapping."""
    header = b"text,label\n"
    contents = [
        b"",
        b"\n" * 1000,
        header,
        header + b"a\0b,x\nc,y\n",
        b"\xef\xbb\xbf" + header + b"a,x\nb,y\n",
        (header + b"a,x\nb,y\n").decode().encode("utf-16"),
        header + "é,x\nb,y\n".encode("cp1252"),
        header + b"a,x\r\nb,y\r\n",
        header.replace(b"\n", b"\r") + b"a,x\rb,y\r",
        header + b'"' + b"a,x\n" * 1_000_000,  # a quote that is never closed
        header + b"a" * 40_000_000 + b",x\nb,y\n",
        header + b"," * 3_000_000 + b"\n",
        b"," * 1_000_000 + b"\n" + b"," * 1_000_000,
        b"[" * 200_000 + b"]" * 200_000,
        b'{"text": ' + b"9" * 100_000 + b', "label": 1}\n' + b'{"text": "\\ud83d", "label": NaN}\n',
        b'{"text": "a", "label": 1e999}\n{"text": "b", "label": -1e999}\n' * 9,
        (
            b'{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 1, "question": "", '
            b'"answers": '
            b'[{"text": "a"}]}]}]}]}'
        ),
        b'{"data": {"paragraphs": 3}}',
    ]
    for content, kind, packing in itertools.product(contents, KINDS, PACKS):
        task = "answer" if kind == ".json" else "classify"
        yield f".{task}{kind}{packing}", PACKS[packing](content)


if __name__ == "__main__":
    main()
