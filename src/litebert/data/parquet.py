"""Parquet files, by pyarrow (extra `parquet`): a path in, rows or one column of text out.

Some rows are read at a time, page by page. A compressed file is unpacked to a temporary file
first, since Parquet is read from its end. DamagedError where the file cannot be read further.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, cast

from litebert.checks import list_names, shorten
from litebert.data.chunks import Chunk, CorpusFile
from litebert.data.unpack import DamagedError, Unpacked
from litebert.errors import DataError, MissingExtraError
from litebert.files import check_regular

_BATCH_ROWS = 64


def parquet_rows(path: str, compression: str) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """All rows of a table; an error in place of a row with text that is not UTF-8."""
    for batch in _batches(path, compression):
        try:
            yield from batch.to_pylist()
        except UnicodeDecodeError:
            for index in range(batch.num_rows):
                try:
                    yield batch.slice(index, 1).to_pylist()[0]
                except UnicodeDecodeError as error:
                    yield error


def parquet_chunks(file: CorpusFile, *, field: str, chunk_bytes: int) -> Iterator[Chunk]:
    """The column `field` of a corpus file, in chunks whose data are rows."""
    rows: list[bytes | None] = []
    number, first_row, size, damage = 0, 1, 0, ""
    try:
        for batch in _batches(file.path, file.compression, field):
            for text in _as_bytes(batch.column(0), field):
                rows.append(text)
                size += len(text or b"")
                if size >= chunk_bytes or len(rows) >= chunk_bytes:
                    yield Chunk(
                        path=file.path, kind="parquet", number=number, line=first_row, data=rows
                    )
                    number, first_row, rows, size = number + 1, first_row + len(rows), [], 0
    except DamagedError as error:
        damage = str(error)
    if number == 0 and not rows and not damage:
        damage = "the file is empty"
    yield Chunk(
        path=file.path, kind="parquet", number=number, line=first_row, data=rows, damage=damage
    )


def _batches(path: str, compression: str, column: str | None = None) -> Iterator[Any]:
    """Batches of all columns, or of one."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            "pyarrow", extra="parquet", purpose="reading .parquet files"
        ) from error
    with ExitStack() as stack:
        try:
            # without pre_buffer and with a buffer, page by page instead of a row group at once
            table = arrow.parquet.ParquetFile(
                _seekable(path, compression, stack), pre_buffer=False, buffer_size=2**20
            )
            names = table.schema_arrow.names
            if column is None:
                _check_unique(path, names)
            elif column not in names:
                raise DamagedError(
                    f"there is no column {shorten(column)}; the file has: {list_names(names)}"
                )
            yield from table.iter_batches(
                batch_size=_BATCH_ROWS,
                columns=None if column is None else [column],
                use_threads=False,
            )
        except (arrow.ArrowException, OSError) as error:
            raise DamagedError(f"cannot be read further ({str(error).splitlines()[0]})") from error


def _check_unique(path: str, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path} names the column {shorten(twice[0])} more than once; give each column a name "
            "of its own"
        )


def _as_bytes(column: Any, field: str) -> list[bytes | None]:
    """Texts as bytes: UTF-8 is checked where every kind of file is checked."""
    import pyarrow as arrow

    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if arrow.types.is_large_string(kind):
        column = column.cast(arrow.large_binary())
    elif arrow.types.is_string(kind) or arrow.types.is_string_view(kind):
        column = column.cast(arrow.binary())
    elif not any(
        test(kind)
        for test in (arrow.types.is_binary, arrow.types.is_large_binary, arrow.types.is_binary_view)
    ):
        raise DamagedError(f"the column {shorten(field)} holds {kind}, expected text")
    return cast(list[bytes | None], column.to_pylist())


def _seekable(path: str, compression: str, stack: ExitStack) -> IO[bytes]:
    if compression == "none":
        try:
            check_regular(path)
            return stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise DataError(f"{path}: cannot be opened ({error.strerror})") from error
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    with Unpacked(path, compression) as stream:
        shutil.copyfileobj(cast(IO[bytes], stream), unpacked, 2**20)
    unpacked.seek(0)
    return cast(IO[bytes], unpacked)
