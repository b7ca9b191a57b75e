"""Where encoding runs: in this process, in several processes, or on a Ray cluster. The result is
the same.

In: parcels. Out: (parcel, Encoded) in the same order. At most two parcels a worker are under way,
so memory does not depend on the size of the corpus; and since parcels and order do not depend on
the workers, neither do the shards.
"""

import contextlib
import ctypes
import gc
import queue
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import cast

from litebert.cluster import connected_ray
from litebert.data.encode import Encoded, EncoderRecipe, Parcel, ParcelEncoder
from litebert.errors import LitebertError
from litebert.threads import worker_environment

_Ask = Callable[[Parcel], Encoded]
Run = Callable[[Iterator[Parcel]], Generator[tuple[Parcel, Encoded], None, None]]
RUNNERS = ("processes", "ray")
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)
_BYTES = 2**17


@contextlib.contextmanager
def open_runner(name: str, recipe: EncoderRecipe, workers: int) -> Iterator[Run]:
    """A function that encodes a stream of parcels; one worker of `processes` is this process."""
    if name == "processes" and workers == 1:
        encoder = ParcelEncoder(recipe)
        yield lambda parcels: ((parcel, encoder(parcel)) for parcel in parcels)
        return
    with _processes(recipe, workers) if name == "processes" else _ray(recipe, workers) as asks:
        yield lambda parcels: _in_order(parcels, asks)


def _in_order(
    parcels: Iterator[Parcel], asks: list[_Ask]
) -> Generator[tuple[Parcel, Encoded], None, None]:
    """A thread for each worker calls it and mostly waits; results are in the parcels' order."""
    idle: queue.SimpleQueue[_Ask] = queue.SimpleQueue()
    for ask in asks:
        idle.put(ask)

    def answer(parcel: Parcel) -> Encoded:
        ask = idle.get()
        try:
            return ask(parcel)
        finally:
            idle.put(ask)

    pool = ThreadPoolExecutor(len(asks), thread_name_prefix="litebert-build")
    pending: deque[tuple[Parcel, Future[Encoded]]] = deque()
    try:
        for parcel in parcels:
            pending.append((parcel, pool.submit(answer, parcel)))
            if len(pending) >= 2 * len(asks):
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    finally:
        # the next pass over the corpus calls the same workers, which must have answered
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _processes(recipe: EncoderRecipe, workers: int) -> Iterator[list[_Ask]]:
    children = []
    try:
        for _ in range(workers):
            children.append(_Child(recipe))
        yield [child.ask for child in children]
    finally:
        for child in children:
            child.end()


class _Child:
    """A worker process and the connection to it."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):  # a parcel in few bites: each bite wakes the other side
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
        with theirs:
            number = theirs.fileno()
            code = f"from litebert.data.runners import _run_worker; _run_worker({number})"
            # A process group of its own: Ctrl-C at the terminal is for the parent alone.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                pass_fds=[number],
                process_group=0,
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
            )
        self._connection = Connection(ours.detach())
        self._recipe: EncoderRecipe | None = recipe

    def ask(self, parcel: Parcel) -> Encoded:
        try:
            if self._recipe:
                self._connection.send(self._recipe)
                self._recipe = None
            self._connection.send(parcel)
            return cast(Encoded, self._connection.recv())
        except (EOFError, OSError) as error:
            code = self._process.wait()
            how = f"ended with code {code}"
            if code < 0:
                how = f"was killed by signal {-code}, often for want of memory"
            raise LitebertError(
                f"a worker process {how}; finished shards are kept, the same command resumes"
            ) from error

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


@contextlib.contextmanager
def _ray(recipe: EncoderRecipe, workers: int) -> Iterator[list[_Ask]]:
    with connected_ray(num_cpus=workers) as ray:
        remote = ray.remote(num_cpus=1)(ParcelEncoder)
        actors = [remote.remote(recipe) for _ in range(workers)]

        def asking(actor: object) -> _Ask:
            def ask(parcel: Parcel) -> Encoded:
                try:
                    return cast(Encoded, ray.get(actor.__call__.remote(parcel)))  # type: ignore[operator]
                except ray.exceptions.RayError as error:
                    reason = str(error).splitlines()[0]
                    raise LitebertError(
                        f"a Ray worker failed ({reason}); finished shards are kept, the same "
                        "command resumes"
                    ) from error

            return ask

        yield [asking(actor) for actor in actors]


def _run_worker(descriptor: int) -> None:
    """A worker process: recipe, then parcels in, and Encoded out, until the connection ends, also
    because its parent was killed. It is not forked, so it holds nothing of its parent's memory."""
    # The parent decides when to stop; Ctrl-C, or a job's SIGTERM, often reaches all processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    bound_heap()
    # This work makes no cycles, and tens of thousands of strings for a collector to visit.
    gc.disable()
    connection = Connection(descriptor)
    try:
        encoder = ParcelEncoder(connection.recv())
        while True:
            connection.send(encoder(connection.recv()))
    except (EOFError, ConnectionError):
        return


def bound_heap() -> None:
    """Keep the heap of this process level. By itself glibc raises the size from which a block goes
    back to the system, and keeps a heap for each thread: from half a gigabyte of text to four the
    heap grows by 15 %. Fixed bounds and one heap cost a few page faults. Nothing without glibc."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _BYTES)
        mallopt(_TRIM_THRESHOLD, _BYTES)
