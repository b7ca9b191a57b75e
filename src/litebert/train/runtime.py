"""Where a run happens: rank, device, dtype, what ranks exchange, and signals. Environment in, one
Runtime out.

Gradients are summed over ranks by hand, once a step, after the last microbatch: an ALBERT has few
of them (sharing), a rank that runs out of memory can try again alone, and nothing hangs in the
middle of a backward pass.
"""

import hashlib
import math
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from litebert.checks import is_number, shorten
from litebert.config import EncoderConfig
from litebert.errors import ConfigError, DivergedError, InterruptedRunError
from litebert.kernels.gate import Gate, parse
from litebert.recipes.pretrain import PretrainDType
from litebert.threads import Threads, choose_threads

FP8_CAPABILITY = (8, 9)
"""GPUs of Ada (8.9), Hopper (9.0) and later multiply in 8-bit floats. A CPU does so too, slowly:
enough for tests."""


class Place(TypedDict, total=False):
    """Where a run computes, and for how long; as the flags of these names."""

    device: str
    kernels: str
    threads: int | None
    minutes: float | None


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """This process among its ranks."""

    rank: int
    """Which of the processes this is, from 0."""
    world_size: int
    """How many processes train together."""
    device: torch.device
    dtype: torch.dtype
    """Of the layers; weights and optimizer stay in float32."""
    fp8: bool = False
    """Whether the layers' large matmuls are in 8 bits."""
    kernels_off: frozenset[str] = frozenset()
    threads: Threads | None = None
    """Of the CPU that computes; None on a GPU, unless they were requested."""
    deadline: float | None = None
    """When a run saves and stops, on the monotonic clock; None for never."""

    @classmethod
    def start(
        cls,
        *,
        device: str = "auto",
        dtype: PretrainDType = "auto",
        kernels: str = "on",
        threads: int | None = None,
        stored_threads: int | None = None,
        minutes: float | None = None,
    ) -> "Runtime":
        """Join the ranks that torchrun started, or be alone. `stored_threads` is the number that a
        run which may resume began with: another would round differently. A run saves and stops
        after `minutes` from now."""
        if minutes is not None and not (is_number(minutes) and 0 < minutes < math.inf):
            raise ConfigError(f"minutes is a number above 0, or none for no limit; got {minutes}")
        deadline = None if minutes is None else time.monotonic() + 60 * minutes
        kernels_off = parse(kernels)
        rank, world_size, local = (
            int(os.environ.get(key, default)) for key, default in _TORCHRUN.items()
        )
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        cuda = device.startswith("cuda")
        if cuda and not torch.cuda.is_available():
            raise ConfigError(
                f"device is {shorten(device)}, and torch sees no GPU here; use --device cpu, or "
                "see litebert doctor"
            )
        if device == "cuda" and local >= (count := torch.cuda.device_count()):
            raise ConfigError(
                f"rank {rank} wants cuda:{local}, and the GPUs that torch sees here are {count}; "
                "start as many processes as there are GPUs, or use --device cpu"
            )
        try:
            target = torch.device(f"cuda:{local}" if device == "cuda" else device)
            if cuda:
                torch.cuda.set_device(target)
        except RuntimeError as error:
            raise ConfigError(
                f"there is no device {shorten(device)} here: {str(error).splitlines()[0]}; see "
                "litebert doctor"
            ) from error
        if world_size > 1 and not dist.is_initialized():
            _join("nccl" if cuda else "gloo", rank, world_size)
        if dtype == "fp8":
            check_fp8(target)
        chosen = None
        if threads is not None or not cuda:
            limit = torch.get_num_threads()
            chosen = choose_threads(threads, stored=stored_threads, limit=limit)
            torch.set_num_threads(chosen.count)
        names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "fp8": torch.bfloat16}
        # GPUs that only emulate it are slower with it than in float32
        has_bfloat16 = cuda and torch.cuda.is_bf16_supported(including_emulation=False)
        auto = torch.bfloat16 if has_bfloat16 else torch.float32
        return cls(
            rank=rank,
            world_size=world_size,
            device=target,
            dtype=names.get(dtype, auto),
            fp8=dtype == "fp8",
            kernels_off=kernels_off,
            threads=chosen,
            deadline=deadline,
        )

    def gate(self, config: EncoderConfig) -> Gate:
        return Gate.detect(
            self.device, self.dtype, config=config, quantizes=self.fp8, off=self.kernels_off
        )

    @classmethod
    @contextmanager
    def joined(cls, **options: Any) -> "Iterator[Runtime]":
        """As `start`; at the end leave the ranks and restore the number of threads."""
        before = torch.get_num_threads()
        runtime = cls.start(**options)
        try:
            yield runtime
        except (InterruptedRunError, DivergedError):
            # every rank is here; after any other error the others may be waiting for this one
            runtime.close()
            raise
        finally:
            torch.set_num_threads(before)
        runtime.close()

    @property
    def is_main(self) -> bool:
        """Whether this rank writes: one does."""
        return self.rank == 0

    def facts(self) -> dict[str, Any]:
        """What rounding depends on here, for environment.json."""
        is_cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if is_cuda else str(self.device),
            "dtype": str(self.dtype),
            "world_size": self.world_size,
            "threads": torch.get_num_threads(),
        }

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sums of `numbers` over all ranks."""
        if self.world_size == 1:
            return dict(numbers)
        summed = torch.tensor(list(numbers.values()), dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return dict(zip(numbers, summed.tolist(), strict=True))

    def broadcast(self, number: float) -> float:
        """The number that the first rank has."""
        return self.total({"number": number if self.is_main else 0.0})["number"]

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over ranks, in one exchange."""
        if self.world_size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, parts, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world_size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def seed(self, *parts: int) -> None:
        """Seed torch for a stretch of work named by `parts` and this rank: counted, not carried, so
        resuming is exact."""
        digest = hashlib.sha256(repr((*parts, self.rank)).encode()).digest()
        seed = int.from_bytes(digest[:8], "little") >> 1
        # torch.manual_seed formats a stack trace at each call
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)

    def synchronize(self) -> None:
        """Until the device has done what it was asked, so that a clock means something."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def is_main_rank() -> bool:
    """Whether this process prints results: one of those that torchrun started does."""
    return os.environ.get("RANK", "0") == "0"


class StopSignal:
    """While entered, the first SIGTERM or SIGINT sets `wanted`, which the loop reads, and a second
    SIGINT raises KeyboardInterrupt at once. After the deadline it is set too."""

    def __init__(self, deadline: float | None = None) -> None:
        self._wanted, self._deadline = False, deadline
        self._before: dict[int, Any] = {}

    @property
    def wanted(self) -> bool:
        """Whether the run should save and end."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._wanted = True
        return self._wanted

    @wanted.setter
    def wanted(self, value: bool) -> None:
        self._wanted = value

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.getsignal(number)  # first: `_receive` reads it
            signal.signal(number, self._receive)
        return self

    def __exit__(self, *reason: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if self.wanted and number == signal.SIGINT and callable(before):
            before(number, frame)  # the command line's own, or Python's: KeyboardInterrupt
        self.wanted = True


def check_fp8(device: torch.device) -> None:
    """Whether `device` can multiply in 8-bit floats, said before anything is built."""
    if device.type == "cpu":
        return
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    if capability < FP8_CAPABILITY:
        what = (
            f"a GPU of compute capability {'.'.join(map(str, capability))}"
            if device.type == "cuda"
            else repr(str(device))
        )
        raise ConfigError(
            f"dtype fp8 needs a GPU of compute capability 8.9 or more, and this is {what}; use "
            "--dtype bfloat16"
        )


def _join(backend: str, rank: int, world_size: int) -> None:
    """Meet the other ranks. Under a number of its own for each restart: torchrun keeps one store
    for all of them, and ranks that read the addresses of killed ones there wait for those (torch
    2.13, rendezvous.py)."""
    store, rank, world_size = next(iter(rendezvous("env://", rank, world_size, timeout=_PATIENCE)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"litebert-{attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=_PATIENCE
    )


_PATIENCE = timedelta(minutes=10)
"""How long a rank waits for another, as for one that evaluates or saves."""
_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
