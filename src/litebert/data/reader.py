"""Batches one after another, made here or prefetched by worker processes. In: a stream, a position.
Out: batches.

With workers, batch k is made by worker k mod workers and taken from it in turn: the order is that
of workers=0, and each worker is at most a batch ahead. Workers are fresh interpreters that import
numpy and no torch (0.3 s to start; nothing is forked, and the caller's script is not imported
again). A worker ends when its pipe does: when the reader is closed, and also when the parent is
killed.
"""

import contextlib
import itertools
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple

from litebert.data.batch import Batch
from litebert.data.stream import Position, Stream
from litebert.errors import ConfigError, LitebertError
from litebert.threads import worker_environment

_PREFETCHED = 2
"""Batches prefetched from the workers' pipes."""


class _Share(NamedTuple):
    """The rows of every global batch that one rank reads."""

    batch_size: int
    rank: int
    num_ranks: int

    def make(self, stream: Stream, position: Position) -> tuple[Batch, Position]:
        """This rank's rows of the batch at `position`, and where the next batch begins."""
        rows = self.batch_size // self.num_ranks
        batch = stream.batch(position.epoch, position.index + self.rank * rows, rows)
        return batch, stream.locate(position.after(self.batch_size))


class Reader:
    """An endless iterator of batches; a snapshot stores `position`, where the next one begins."""

    def __init__(
        self,
        stream: Stream,
        batch_size: int,
        position: Position = Position(),  # noqa: B008 (immutable)
        *,
        rank: int = 0,
        num_ranks: int = 1,
        workers: int = 0,
    ) -> None:
        if batch_size < 1 or batch_size % num_ranks or not 0 <= rank < num_ranks:
            raise ConfigError(
                f"a batch is divided evenly among ranks; got batch_size {batch_size} for rank "
                f"{rank} of {num_ranks}"
            )
        self.position = position
        self._stream, self._share = stream, _Share(batch_size, rank, num_ranks)
        self._workers = _Workers(stream, self._share, self.position, workers) if workers else None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._workers is not None:
            batch, self.position = self._workers.take()
        else:
            batch, self.position = self._share.make(self._stream, self.position)
        return batch

    def close(self) -> None:
        """End the workers; also done at the end of a `with` block, and when collected."""
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


_Made = tuple[Batch, Position] | LitebertError
_Process = subprocess.Popen[bytes]


class _Workers:
    """Processes that make batches, and a thread that takes them in turn."""

    def __init__(self, stream: Stream, share: _Share, position: Position, count: int) -> None:
        if stream.folder is None:
            raise ConfigError(
                "workers read shards from a folder; open the stream with Stream.open, or use "
                "workers=0"
            )
        processes, pipes = [], []
        for number in range(count):
            ours, theirs = Pipe()
            end = theirs.fileno()
            code = f"from {__name__} import _run_worker; _run_worker({end})"
            command = [sys.executable, "-P", "-c", code]
            processes.append(subprocess.Popen(command, pass_fds=[end], env=worker_environment()))
            theirs.close()
            ours.send((str(stream.folder), stream.spec, stream.seed, stream.split))
            ours.send((share, position, number, count))
            pipes.append(ours)
        self._ready: Queue[_Made] = Queue(_PREFETCHED)
        stop = Event()
        # thread and clean-up do not know this object: a forgotten reader ends its workers
        thread = Thread(target=_collect, args=(processes, pipes, self._ready, stop), daemon=True)
        self.close = weakref.finalize(self, _end, processes, pipes, self._ready, stop, thread)
        """End the workers; safe to call twice, and called at the interpreter's exit."""
        thread.start()

    def take(self) -> tuple[Batch, Position]:
        item = self._ready.get()
        if isinstance(item, LitebertError):
            self.close()
            raise item
        return item


def _collect(
    processes: list[_Process], pipes: list[Connection], ready: Queue[_Made], stop: Event
) -> None:
    """Take batches out of the workers' pipes, in turn, until `stop` is set or a worker ends."""
    for process, pipe in itertools.cycle(zip(processes, pipes, strict=True)):
        try:
            item = pipe.recv()
        except (EOFError, OSError):
            item = LitebertError(
                f"a data worker ended with status {process.wait()}; its own message is above"
            )
        if not stop.is_set():
            ready.put(item)
        if stop.is_set() or isinstance(item, LitebertError):
            return


def _end(
    processes: list[_Process],
    pipes: list[Connection],
    ready: Queue[_Made],
    stop: Event,
    thread: Thread,
) -> None:
    stop.set()
    for process in processes:
        process.kill()
        process.wait()
    while thread.is_alive():
        with contextlib.suppress(Empty):  # it may be waiting for room
            ready.get(timeout=0.01)
        thread.join(timeout=0.01)
    for pipe in pipes:
        pipe.close()


def _run_worker(file_descriptor: int) -> None:
    """A worker process: make every n-th batch of a stream and send it, until the pipe ends."""
    # the parent decides when to stop, saves, and then closes the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe = Connection(file_descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        _serve(pipe)


def _serve(pipe: Connection) -> None:
    folder, spec, seed, split = pipe.recv()
    share, position, number, count = pipe.recv()
    try:
        stream = Stream.open(folder, spec, seed=seed, split=split)
        position = stream.locate(position.after(number * share.batch_size))
        while True:
            batch, following = share.make(stream, position)
            stream.prepare(following.epoch + 1)
            pipe.send((batch, following))
            position = stream.locate(following.after((count - 1) * share.batch_size))
    except LitebertError as error:
        pipe.send(error)
