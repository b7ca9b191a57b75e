"""Rows of a Parquet file, by pyarrow (extra `parquet`), some at a time."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Any, cast

from litebert.data.unpack import DamagedError, Unpacked
from litebert.errors import DataError, MissingExtraError
from litebert.tasks.tables.bad_rows import BadRows, Place
from litebert.tasks.tables.rows import compression_of

BATCH_ROWS = 64


def parquet_rows(path: str, bad: BadRows) -> Iterator[tuple[Place, dict[str, Any]]]:
    """All rows of `path`. A compressed file, which can only be read from its end, is unpacked to a
    temporary file."""
    number = 0
    with ExitStack() as stack:
        try:
            for batch in _batches(path, stack):
                for row in _rows(batch):
                    number += 1
                    place = Place(path, number, "row")
                    if isinstance(row, UnicodeDecodeError):
                        bad.add(place, f"a text is not UTF-8 ({row.reason})", row.object)
                    else:
                        yield place, row
        except DamagedError as error:
            bad.add(Place(path, number + 1, "row"), str(error))


def _rows(batch: Any) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """The rows of a batch; where a text is broken, one by one, to find which."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for index in range(batch.num_rows):
            try:
                yield batch.slice(index, 1).to_pylist()[0]
            except UnicodeDecodeError as error:
                yield error


def _batches(path: str, stack: ExitStack) -> Iterator[Any]:
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
            _seekable(path, stack), pre_buffer=False, buffer_size=2**20
        )
        _expect_names(path, table.schema_arrow.names)
        yield from table.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
    except (arrow.ArrowException, OSError) as error:
        raise DamagedError(f"cannot be read further ({str(error).splitlines()[0]})") from error


def _expect_names(path: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path} names the column {twice[0]!r} more than once; give each column a name of its "
            "own"
        )


def _seekable(path: str, stack: ExitStack) -> IO[bytes]:
    compression = compression_of(path)[0]
    if compression == "none":
        try:
            return stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise DataError(f"{path}: cannot be opened ({error.strerror})") from error
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    with Unpacked(path, compression) as stream:
        shutil.copyfileobj(cast(IO[bytes], stream), unpacked, 2**20)
    unpacked.seek(0)
    return cast(IO[bytes], unpacked)
