"""A heap that gives back what it no longer needs, so that a long build holds no more memory than a
short one.
 glibc raises, as a process goes on, the size from which a block is taken from the system and given
back on its own, and keeps a heap for each thread. With buffers of a mebibyte coming and going, both
make the heap creep: 15 % from half a gigabyte of text to four. Fixed bounds and one heap cost a few
more page faults and keep it level.
"""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)
_BYTES = 2**17


def keep_level() -> None:
    """For this process, from now on; where the C library is another one, nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _BYTES)
        mallopt(_TRIM_THRESHOLD, _BYTES)
