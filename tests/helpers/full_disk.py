"""A disk that takes no file beyond some bytes, without root: this process's own limit."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(limit: int = 0) -> Iterator[None]:
    """Writing beyond `limit` bytes of a file raises OSError meanwhile (EFBIG in place of ENOSPC).
    Nothing may be printed: pytest keeps that in files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
