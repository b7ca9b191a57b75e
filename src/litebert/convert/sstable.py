"""The table file under a TensorFlow checkpoint: the bytes of an .index file in, its sorted keys and
values out.
 The layout is LevelDB's. Blocks of key-value pairs lie one after another, each followed by one byte
that names its compression and by a masked CRC-32C; an index block lists them; the last 48 bytes say
where the index block is. Within a block a key is written as (length shared with the key before it,
the rest), lengths as base-128 numbers. Every length is checked against what is there before
anything is sliced: the file may be damaged, or written to harm.
"""

from collections.abc import Iterator

from litebert.convert.crc32c import crc32c, masked
from litebert.convert.wire import read_varint
from litebert.errors import ConversionError

FOOTER_SIZE = 48
TRAILER_SIZE = 5
MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
COMPRESSIONS = {0: "none", 1: "snappy"}


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All keys and values of a table, in their order."""
    if len(data) < FOOTER_SIZE or data[-len(MAGIC) :] != MAGIC:
        raise ConversionError(
            f"a checkpoint index ends in {FOOTER_SIZE} bytes with a signature; "
            f"these {len(data)} bytes do not: the file is truncated or of another kind"
        )
    footer = data[-FOOTER_SIZE:]
    meta_handle, position = _block_handle(footer, 0)
    index_handle, _ = _block_handle(footer, position)
    _block(data, meta_handle)  # holds nothing here, but its checksum counts
    table: dict[bytes, bytes] = {}
    for _, handle in _pairs(_block(data, index_handle)):
        table.update(_pairs(_block(data, _block_handle(handle, 0)[0])))
    return table


def _block_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    """The contents of a block, after its checksum and compression have been looked at."""
    offset, size = handle
    end = offset + size
    if end + TRAILER_SIZE > len(data):
        raise ConversionError(
            f"a block of the checkpoint index ends at byte {end}, the file has {len(data)}: damaged"
        )
    stored = int.from_bytes(data[end + 1 : end + TRAILER_SIZE], "little")
    if masked(crc32c(data[offset : end + 1])) != stored:
        raise ConversionError(
            f"the block at byte {offset} of the checkpoint index fails its checksum: damaged"
        )
    if data[end] != 0:
        name = COMPRESSIONS.get(data[end], f"number {data[end]}")
        raise ConversionError(
            f"the checkpoint index is compressed ({name}); TensorFlow's own writer never "
            "compresses it, "
            "write the checkpoint again with tf.compat.v1.train.Saver"
        )
    return data[offset:end]


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of one block; its end is an array of restart points, which only a binary
    search needs."""
    if len(block) < 4:
        raise ConversionError("a block of the checkpoint index is empty: damaged")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key = b""
    position = 0
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        value_size, position = read_varint(block, position)
        if shared > len(key) or position + unshared + value_size > end:
            raise ConversionError("a key of the checkpoint index runs past its block: damaged")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + value_size]
        position += value_size
    if position != end:
        raise ConversionError("a block of the checkpoint index does not end where it says: damaged")
