"""A parquet file's column of text in pieces, by pyarrow (extra `parquet`).
 In: a CorpusFile of kind parquet and the column's name. Out: Pieces whose data are rows. Only that
column is read, some rows at a time. A compressed parquet file, which can only be read from its end,
is unpacked to a temporary file.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, cast

from litebert.data.files import CorpusFile
from litebert.data.pieces import Piece
from litebert.data.unpack import DamagedError, Unpacked
from litebert.errors import DataError, MissingExtraError

BATCH_ROWS = 64


def parquet_pieces(file: CorpusFile, *, field: str, piece_bytes: int) -> Iterator[Piece]:
    """All pieces of `file`."""
    # type: int, int, list[bytes | None], int, str
    number, row, rows, size, damage = 0, 1, [], 0, ""
    with ExitStack() as stack:
        try:
            for batch in _batches(file, field, stack):
                for text in batch:
                    rows.append(text)
                    size += len(text or b"")
                    if size >= piece_bytes or len(rows) >= piece_bytes:
                        yield Piece(
                            path=file.path, kind="parquet", number=number, line=row, data=rows
                        )
                        number, row, rows, size = number + 1, row + len(rows), [], 0
        except DamagedError as error:
            damage = str(error)
    if number == 0 and not rows and not damage:
        damage = "the file is empty"
    yield Piece(path=file.path, kind="parquet", number=number, line=row, data=rows, damage=damage)


def _batches(file: CorpusFile, field: str, stack: ExitStack) -> Iterator[list[bytes | None]]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            "pyarrow", extra="parquet", purpose="reading .parquet files"
        ) from error
    try:
        # Without pre_buffer and with a buffer, a column is read page by page instead of a row group
        # at once.
        table = arrow.parquet.ParquetFile(
            _seekable(file, stack), pre_buffer=False, buffer_size=2**20
        )
        schema = table.schema_arrow
        if field not in schema.names:
            raise DamagedError(
                f"there is no column {field!r}; the file has: {', '.join(schema.names)}"
            )
        for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=[field], use_threads=False):
            yield _as_bytes(batch.column(0), field, arrow)
    except (arrow.ArrowException, OSError) as error:
        raise DamagedError(f"cannot be read further ({str(error).splitlines()[0]})") from error


def _as_bytes(column: Any, field: str, arrow: Any) -> list[bytes | None]:
    """Rows as bytes: whether they are UTF-8 is checked where every kind of file is checked."""
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
        raise DamagedError(f"the column {field!r} holds {kind}, expected text")
    return cast(list[bytes | None], column.to_pylist())


def _seekable(file: CorpusFile, stack: ExitStack) -> IO[bytes]:
    if file.compression == "none":
        try:
            return stack.enter_context(open(file.path, "rb"))
        except OSError as error:
            raise DataError(f"{file.path}: cannot be opened ({error.strerror})") from error
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    with Unpacked(file.path, file.compression) as stream:
        shutil.copyfileobj(cast(IO[bytes], stream), unpacked, 2**20)
    unpacked.seek(0)
    return cast(IO[bytes], unpacked)
