"""A worker process: makes every n-th batch of a stream and sends it. Started by reader.py; ends
when its pipe does."""

import contextlib
import signal
from multiprocessing.connection import Connection

from litebert.data.stream import Stream
from litebert.errors import LitebertError


def main(file_descriptor: int) -> None:
    # the parent decides when to stop, saves, and then closes the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe = Connection(file_descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        serve(pipe)


def serve(pipe: Connection) -> None:
    folder, spec, seed, split, pad_multiple = pipe.recv()
    part, position, number, count = pipe.recv()
    try:
        stream = Stream.open(folder, spec, seed=seed, split=split, pad_multiple=pad_multiple)
        position = stream.locate(position.after(number * part.batch_size))
        while True:
            batch, following = part.make(stream, position)
            stream.prepare(following.epoch + 1)
            pipe.send((batch, following))
            position = stream.locate(following.after((count - 1) * part.batch_size))
    except LitebertError as error:
        pipe.send(error)
