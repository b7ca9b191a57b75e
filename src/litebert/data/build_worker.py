"""A process that encodes parcels for another one: recipe in, then parcel after parcel in and
Encoded out, until the end.
 It is started by name, not forked, so that it holds nothing of its parent's memory; and it ends by
itself when its parent does, even if that was killed, because then its connection ends.
"""

import gc
import signal
from multiprocessing.connection import Connection

from litebert.data.encode import Encoder
from litebert.data.heap import keep_level


def serve(descriptor: int) -> None:
    """Answer on the connection behind `descriptor`."""
    # Whether to stop is the parent's to decide: a Ctrl-C, or a job's SIGTERM, often reaches the
    # whole family.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_level()
    # There are no cycles in this work, but tens of thousands of strings to visit again and again.
    gc.disable()
    connection = Connection(descriptor)
    try:
        encoder = Encoder(connection.recv())
        while True:
            connection.send(encoder(connection.recv()))
    except (EOFError, ConnectionError):
        return
