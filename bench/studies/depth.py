"""Activation memory and step time against depth: layers that save their activations, gradient
checkpointing, and reversible layers.

    python -m bench.studies.depth --out results/STUDY [--device cuda] [--hidden 768] [--rounds 5]

One shared pre-norm layer, applied 3 to 48 times; the step is forward and backward of the layers
with a plain sum as loss. Memory is the peak of what a step allocates: on a GPU the allocator's, on
a CPU that of all tensors that the step's operators return. `saved` is what autograd saves in the
forward pass. Checkpointing recomputes single layers, or stretches of about √depth layers, whose
memory grows as the root of the depth. Times are medians of contenders in turns: of the process on
a CPU, by the clock on a GPU.

`errors` has the relative error of all gradients against a float64 run of the same weights.
"""

import argparse
import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.common.results import begin, publish
from litebert.config import EncoderConfig
from litebert.model.encoder import Encoder

DEPTHS = (3, 6, 12, 24, 48)
SHAPE = EncoderConfig(norm="pre", vocab_size=1000, pooler=False, residual_init=0.3)
MIB = 2**20


class Allocations(TorchDispatchMode):
    """The most bytes at once of all tensors that operators return."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for each in tree_leaves(outputs):
            if isinstance(each, Tensor):
                self.add(each.untyped_storage())
        return outputs

    def add(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.alive:
            self.alive.add(storage._cdata)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.remove, storage._cdata, storage.nbytes())

    def remove(self, key: int, size: int) -> None:
        self.alive.discard(key)
        self.now -= size


def contenders(config: EncoderConfig, depth: int) -> dict[str, Encoder]:
    """Encoders with the same weights."""
    plain = replace(config, num_layers=depth)
    encoders = {
        "plain": lambda: Encoder(plain),
        "checkpointed, every layer": lambda: Encoder(plain, checkpoint_every=1),
        "checkpointed, √depth": lambda: Encoder(plain, checkpoint_every=round(depth**0.5)),
        "reversible": lambda: Encoder(replace(plain, reversible=True)),
    }
    built = {}
    for name, build in encoders.items():
        torch.manual_seed(0)
        built[name] = build()
    return built


def step(encoder: Encoder, token_ids: Tensor) -> None:
    encoder.zero_grad()
    encoder(token_ids=token_ids).float().square().sum().backward()


def saved_bytes(encoder: Encoder, token_ids: Tensor) -> int:
    """Of the tensors that autograd saves in the forward pass, weights apart."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states = encoder(token_ids=token_ids)
    weights = {each.untyped_storage().data_ptr() for each in encoder.parameters()}
    del states
    return sum(size for pointer, size in sizes.items() if pointer not in weights)


def peak_bytes(encoder: Encoder, token_ids: Tensor) -> int:
    """Most that a step has allocated at once."""
    if not token_ids.is_cuda:
        with Allocations() as allocations:
            step(encoder, token_ids)
        return allocations.peak
    step(encoder, token_ids)
    encoder.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(encoder, token_ids)
    return torch.cuda.max_memory_allocated() - before


def seconds(call: Callable[[], None], *, is_cuda: bool) -> float:
    clock = time.perf_counter if is_cuda else time.process_time
    start = clock()
    call()
    if is_cuda:
        torch.cuda.synchronize()
    return clock() - start


def measure(config: EncoderConfig, token_ids: Tensor, dtype: torch.dtype, rounds: int) -> list[Any]:
    """A row for each depth and contender."""
    rows = []
    for depth in DEPTHS:
        encoders = {
            name: encoder.to(token_ids.device, dtype)
            for name, encoder in contenders(config, depth).items()
        }
        times: dict[str, list[float]] = {name: [] for name in encoders}
        for number in range(rounds + 1):
            for name, encoder in encoders.items():
                taken = seconds(
                    lambda each=encoder: step(each, token_ids), is_cuda=token_ids.is_cuda
                )  # type: ignore[misc]
                times[name] += [taken] if number else []  # the first round warms up
        for name, encoder in encoders.items():
            encoder.zero_grad()
            rows.append(
                {
                    "depth": depth,
                    "layers": name,
                    "peak_mib": round(peak_bytes(encoder, token_ids) / MIB, 2),
                    "saved_mib": round(saved_bytes(encoder, token_ids) / MIB, 2),
                    "seconds": round(statistics.median(times[name]), 4),
                }
            )
    return rows


def errors(config: EncoderConfig, token_ids: Tensor) -> list[Any]:
    """A row for each depth and precision: the relative error of plain and reversible gradients."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for depth in DEPTHS:
            row: dict[str, Any] = {"depth": depth, "dtype": str(dtype).removeprefix("torch.")}
            for name, encoder in contenders(config, depth).items():
                if name.startswith("checkpointed"):
                    continue
                encoder.to(token_ids.device, dtype)
                actual = gradients(encoder, token_ids)
                truth = gradients(encoder.double(), token_ids)
                row[name] = float(f"{(actual - truth).norm() / truth.norm():.2g}")
            rows.append(row)
    return rows


def gradients(encoder: Encoder, token_ids: Tensor) -> Tensor:
    step(encoder, token_ids)
    return torch.cat(
        [each.grad.double().flatten() for each in encoder.parameters() if each.grad is not None]
    )


def draw(figures: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    figure, (memory, clock) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    rows = figures["rows"]
    for name in dict.fromkeys(row["layers"] for row in rows):
        own = [row for row in rows if row["layers"] == name]
        depths = [row["depth"] for row in own]
        memory.plot(depths, [row["peak_mib"] for row in own], marker="o", label=name)
        clock.plot(depths, [row["seconds"] for row in own], marker="o", label=name)
    # in logarithms depth, its root and a constant are lines of slope 1, 1/2 and 0
    memory.set(xscale="log", yscale="log", ylabel="peak memory of a step, MiB")
    clock.set(ylim=(0, None), ylabel=figures["clock"])
    for axes in (memory, clock):
        axes.set_xlabel("layers applied")
        axes.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS], minor=False)
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.grid(alpha=0.3, which="both")
    plain_numbers = ticker.FuncFormatter(lambda value, _: f"{value:g}")
    memory.yaxis.set_major_formatter(plain_numbers)
    memory.yaxis.set_minor_formatter(plain_numbers)
    memory.yaxis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
    memory.legend()
    figure.suptitle(figures["about"])
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for depth.json, depth.png and run.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    begin(args.out, device=args.device)
    config = replace(
        SHAPE,
        hidden_size=args.hidden,
        ffn_size=4 * args.hidden,
        num_attention_heads=max(args.hidden // 64, 1),
        max_positions=args.seq,
    )
    is_cuda = args.device.startswith("cuda")
    dtype = torch.bfloat16 if is_cuda else torch.float32
    generator = torch.Generator().manual_seed(1)
    token_ids = torch.randint(5, 1000, (args.batch, args.seq), generator=generator)
    token_ids = token_ids.to(args.device)
    machine = torch.cuda.get_device_name() if is_cuda else "CPU"
    figures = {
        "about": f"{machine}, {str(dtype).removeprefix('torch.')}, one shared layer, "
        f"H {args.hidden}, {args.batch} × {args.seq} tokens",
        "clock": "seconds of a step" if is_cuda else "CPU seconds of a step",
        "rows": measure(config, token_ids, dtype, args.rounds),
        "errors": errors(config, token_ids[:1]),
    }
    publish(figures, None if args.out is None else args.out / "depth.json")
    if args.out is not None:
        draw(figures, args.out / "depth.png")


if __name__ == "__main__":
    main()
