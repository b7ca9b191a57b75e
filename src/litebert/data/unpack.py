"""Compressed files as a stream of plain bytes, in bounded memory, that says when the file is
damaged.

In: a path and its compression. Out: Unpacked, with an exact `read`. What is readable before the
damage is delivered first; then `read` raises DamagedError. A file that unpacks to far more than
text ever does is taken for a bomb.
"""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any

from litebert.errors import DataError, MissingExtraError
from litebert.files import check_regular

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
BOMB_BYTES = 64 * 2**20
"""What any file may unpack to, whatever its own size."""
_BOMB_RATIO = 200
"""Text shrinks 2 to 20 times; beyond this much, after BOMB_BYTES, a file is refused."""


def compression_of(path: str | os.PathLike[str]) -> tuple[str, str]:
    """A file's compression by its name, and its format's suffix (.tsv of a.TSV.gz)."""
    stem, last = os.path.splitext(os.path.basename(path).lower())
    if last in COMPRESSIONS:
        return COMPRESSIONS[last], os.path.splitext(stem)[1]
    return "none", last


class DamagedError(Exception):
    """The file cannot be read further; the message says why, without the file's name."""


class Unpacked:
    """The plain bytes of a file."""

    def __init__(self, path: str, compression: str) -> None:
        try:
            check_regular(path)
            self._raw = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by __exit__
        except OSError as error:
            raise DataError(f"{path}: cannot be opened ({error.strerror or error})") from error
        try:
            self._read_some = _unpack(self._raw, compression)
        except MissingExtraError:
            self._raw.close()
            raise
        self._packed = compression != "none"
        self._packed_bytes = os.fstat(self._raw.fileno()).st_size
        self._delivered = 0
        self._damage: DamagedError | None = None

    def __enter__(self) -> "Unpacked":
        return self

    def __exit__(self, *reason: object) -> None:
        self._raw.close()

    @property
    def packed_offset(self) -> int:
        """How far into the file itself the reading is."""
        return self._raw.tell()

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, fewer at the end. Damage is raised once all before it is
        delivered."""
        parts: list[bytes] = []
        missing = size
        while missing and not self._damage:
            try:
                chunk = self._read_some(missing)
            # OSError: also a bad gzip header or checksum; EOFError: an end before the end mark
            except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                self._damage = DamagedError(
                    f"cannot be read further ({str(error) or type(error).__name__})"
                )
                break
            if not chunk:
                break
            parts.append(chunk)
            missing -= len(chunk)
        self._delivered += size - missing
        if self._packed and self._delivered > max(BOMB_BYTES, _BOMB_RATIO * self._packed_bytes):
            self._damage = DamagedError(
                f"unpacks to more than {_BOMB_RATIO} times its {self._packed_bytes} bytes, which "
                "text does not; unpack it yourself if it is right"
            )
        if self._damage and not parts:
            raise self._damage
        return b"".join(parts)


def _unpack(raw: io.FileIO, compression: str) -> Callable[[int], bytes]:
    """Reads at most so many bytes, in one go: more would drop what came before damage."""
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw).read1
    if compression == "xz":
        return _Streams(raw, lzma.LZMADecompressor).read
    if compression == "bzip2":
        return _Streams(raw, bz2.BZ2Decompressor).read
    return _ZstdFile(raw).read if compression == "zstd" else raw.read


class _Streams:
    """Streams of xz or bzip2, in turn. Python's own files take damage or padding for the end."""

    BITE = 8192

    def __init__(self, raw: io.FileIO, begin: Callable[[], Any]) -> None:
        self._raw = raw
        self._begin = begin
        self._stream: Any = begin()

    def read(self, size: int) -> bytes:
        chunk = b""
        while not chunk:
            packed = b""
            if self._stream.eof:
                packed = self._after_padding(self._stream.unused_data)
                if not packed:
                    return b""
                self._stream = self._begin()
            elif self._stream.needs_input:
                packed = self._raw.read(self.BITE) or b""
                if not packed:
                    raise EOFError("the file ends inside a stream")
            chunk = self._stream.decompress(packed, size)
        return chunk

    def _after_padding(self, packed: bytes) -> bytes:
        """Where the next stream begins, past zeros; empty at the end of the file."""
        packed = packed.lstrip(b"\0")
        while not packed:
            more = self._raw.read(self.BITE)
            if not more:
                break
            packed = more.lstrip(b"\0")
        return packed


class _ZstdFile:
    """Zstandard frames, in turn. The package's own reader takes a truncated file for whole."""

    # A frame's smallest unit unpacks to 128 KiB out of 4 bytes, so the input is fed in small bites
    # to bound the output.
    BITE = 2048

    def __init__(self, raw: io.FileIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError(
                "zstandard", extra="zstd", purpose="reading .zst files"
            ) from error
        self._input = io.BufferedReader(raw, 2**18)
        # 128 MiB, what `zstd --long` uses
        self._context = zstandard.ZstdDecompressor(max_window_size=2**27)
        self._error: type[Exception] = zstandard.ZstdError
        self._frame: Any = None
        self._ready = b""
        self._damage: OSError | None = None

    def read(self, size: int) -> bytes:
        while not self._ready:
            if self._damage:
                raise self._damage
            bite = self._input.read(self.BITE)
            if not bite:
                if self._frame is not None:
                    raise EOFError("the file ends inside a zstd frame")
                return b""
            parts: list[bytes] = []
            try:
                while bite:
                    frame = self._frame = self._frame or self._context.decompressobj()
                    parts.append(frame.decompress(bite))
                    bite = b""
                    if frame.eof:
                        bite, self._frame = frame.unused_data, None
            except self._error as error:
                # raised when what the bite held before it was delivered
                self._damage = OSError(str(error))
            self._ready = b"".join(parts)
        chunk, self._ready = self._ready[:size], self._ready[size:]
        return chunk
