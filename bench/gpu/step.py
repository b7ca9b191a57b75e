"""The real pretraining step on one GPU, checked and then timed, with Hugging Face's compiled model
in the same process.

    # speed, memory and loader, of every shape
    python -m bench.gpu.step --data SHARDS --out DIR
    # a part of it: every combination stands alone
    python -m bench.gpu.step --data SHARDS --shapes base-512 --peers full
    # largest batches; seconds to the first step
    python -m bench.gpu.step --data SHARDS --parts largest start
    python -m bench.gpu.step --tiny  # the same code on a CPU, in seconds

One JSON line for each thing measured, as it comes; a part that fails says so in its line, and the
others go on. With --out also run.json, rows.jsonl and table.md.

Speed: a step is what `litebert pretrain` does (contenders.py): losses, gradients, clipping,
optimizer, log, loader. First its gradient is checked against float32: it may err 1.1 times as much
as plain bfloat16. Times are medians of three blocks. `real` tokens are those of the text;
`positions` count padding too, as rows × length. A packed step does no work for padding, so its real
tokens are what it computes. Model TFLOP/s (model/count.py) credit real tokens alone. `waited` is
the part of the time that the host stood before an empty queue, an upper bound of the GPU's waiting;
`loader_costs` is what a step gets shorter when it reads the same few batches again and again.
Memory: what torch allocated at its peak, and what it had reserved. With --profile each step has a
row more, of what its time goes to: profiling.py. `--seconds` is for all of it: what is not
expected to fit any more is left out, and says so in its row.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bench.common.results import begin
from bench.gpu.cases import CASES, MEMORY, MODES, PARTS, TINY, needs
from bench.gpu.contenders import PEERS, Case, Ours, Theirs
from bench.gpu.meter import GIB, Meter, search
from bench.gpu.profiling import record, summary
from bench.gpu.table import ratios
from litebert.data.stream import Stream
from litebert.kernels.fp8 import linear as fp8
from litebert.model.count import flops_per_token
from litebert.testing import tiny_shards
from litebert.train.folder import environment
from litebert.train.loop import out_of_memory
from litebert.train.pretrain.run import example_spec

WORSE = 1.1


class Bench(Meter):
    """The parts, each of which measures some shapes."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.cases = TINY if options.tiny else CASES

    def speed(self, case: Case, contender: Ours | Theirs, first: float) -> dict[str, Any]:
        """What every contender's row says."""
        times = self.timed(contender)
        flops = flops_per_token(
            contender.encoder, seq=case.length, masked_fraction=0.15, training=True
        )
        return {
            "step_ms": round(1000 * times["step"], 2),
            "real_ktok_s": round(times["real"] / 1000, 1),
            "positions_ktok_s": round(times["positions"] / 1000, 1),
            "model_tflops": round(times["real"] * flops / 1e12, 1),
            "ceiling_tflops": self.ceiling(),
            "build_seconds": round(contender.build_seconds, 2),
            "first_step_seconds": first,
        }

    def ours(self, case: Case, rows: int, microbatch: int) -> dict[str, Any]:
        with self.running(case, rows, microbatch) as run:
            first = self.first(run)
            errors = {} if self.options.no_check else run.check()
            if self.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            self.warm(run)
            run()
            run.fetching = 0.0
            measured = self.speed(case, run, first)
            measured["waited"] = round(run.fetching / self.clock, 4)
            self.profile(run, measured["step_ms"])
            measured |= self.memory() | {"graphs": run.num_recorded, "messages": run.messages}
            if errors:
                measured["errors"] = {name: round(value, 6) for name, value in errors.items()}
                measured["error_ratio"] = round(errors["ours"] / errors["plain"], 3)
                # fp8 errs by its own few bits: tests/kernels/test_fp8_linear.py
                if case.dtype == "bfloat16":
                    measured["is_exact"] = measured["error_ratio"] <= WORSE
            run.without_loader()
            run()
            again = self.timed(run)["real"] / 1000
            return measured | {"loader_costs": round(1 - measured["real_ktok_s"] / again, 4)}

    def profile(self, contender: Ours | Theirs, step_ms: float) -> None:
        """A row of its own, where it is asked for."""
        if self.options.profile:
            kernels = record(contender, is_cuda=self.device == "cuda")
            self.later.append({"part": "profile", **summary(kernels, step_ms=step_ms)})

    def warm(self, run: Ours) -> None:
        """Until no new shape has been recorded for a while."""
        steps, seen, quiet, began = 0, -1, 0, time.monotonic()
        while (
            quiet < (3 if self.options.tiny else 25)
            and steps < 80
            and time.monotonic() - began < 20
        ):
            run()
            quiet = quiet + 1 if run.num_recorded == seen else 0
            seen, steps = run.num_recorded, steps + 1

    def theirs(self, case: Case, rows: int, kind: str) -> dict[str, Any]:
        contender = Theirs(case, rows, kind, data=self.options.data, device=self.device)
        first = self.first(contender)
        for _ in range(3):
            contender()
        measured = self.speed(case, contender, first) | self.memory()
        self.profile(contender, measured["step_ms"])
        return measured | {"loss": round(float(contender.loss), 3)}

    def fits(self, case: Case, rows: int, limit: float, *, steps: int = 0) -> dict[str, Any]:
        """Some steps of `rows` rows at once, within `limit` GiB; unless said how many, until all
        shapes are recorded."""
        if self.device == "cuda" and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(
                min(1.0, limit * GIB / torch.cuda.mem_get_info()[1])
            )
        try:
            with self.running(case, rows, rows) as run:
                for _ in range(steps):
                    run()
                if not steps:
                    self.warm(run)
                self.synchronize()
                return {
                    "fits": run.loop.most_rows is None,
                    **self.memory(),
                    "graphs": run.num_recorded,
                    "messages": run.messages,
                }
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            return {"fits": False}
        finally:
            if self.device == "cuda" and torch.cuda.is_available():
                torch.cuda.set_per_process_memory_fraction(1.0)

    def largest(self, case: Case, shape: str, mode: str, start: int) -> None:
        """The most rows of one forward and backward within the limit."""
        limit = self.options.limit
        name = {"part": "largest", "shape": shape, "mode": mode, "limit_gib": limit}

        def peak(rows: int) -> float | None:
            row = self.attempt(
                lambda: self.fits(case, rows, limit, steps=4),
                needs=needs("largest", shape),
                **name,
                rows=rows,
            )
            if "skipped" in row:
                raise TimeoutError
            return float(row["peak_gib"]) if row.get("fits") else None

        with contextlib.suppress(TimeoutError):
            self.note(**name, largest=search(peak, start, limit))

    def loader(self, case: Case, rows: int) -> dict[str, Any]:
        """Batches from the reader's workers as fast as they come, and nobody trains."""
        recipe, count = case.recipe(rows, rows), 10 if self.options.tiny else 60
        stream = Stream.open(self.options.data, example_spec(recipe), seed=0)
        with stream.read(rows, workers=self.options.workers) as reader:
            list(
                islice(reader, 2 * self.options.workers + 2)
            )  # what was ready before the clock ran
            began = time.monotonic()
            batches = list(islice(reader, count))
            seconds = time.monotonic() - began
        real, positions = (
            sum(batch.num_tokens for batch in batches),
            sum(batch.token_ids.size for batch in batches),
        )
        return {
            "real_ktok_s": round(real / seconds / 1e3, 1),
            "positions_ktok_s": round(positions / seconds / 1e3, 1),
        }

    def running(self, case: Case, rows: int, microbatch: int) -> "Running":
        return Running(
            case,
            rows,
            microbatch,
            data=self.options.data,
            device=self.device,
            workers=self.options.workers,
        )

    def run(self) -> None:
        for part in self.options.parts:
            for name in self.options.shapes or self.cases:
                self.run_part(part, name)

    def run_part(self, part: str, name: str) -> None:
        """One part of one shape."""
        parts: dict[str, Callable[[str, Case], None]] = {
            "speed": self.run_speed,
            "memory": self.run_memory,
            "largest": self.run_largest,
            "loader": self.run_loader,
            "start": self.run_start,
        }
        parts[part](name, self.cases[name])

    def run_speed(self, name: str, case: Case) -> None:
        most, labels = self.options.batches, {"part": "speed", "shape": name}
        for rows, microbatch in case.ours[:most] if not self.options.peers_only else ():
            for mode in self.options.modes or ["all kept"]:
                about = labels | {
                    "who": "litebert",
                    "rows": rows,
                    "microbatch": microbatch,
                    "mode": mode,
                }
                changed = replace(case, **MODES[mode])
                self.attempt(
                    lambda c=changed, r=rows, m=microbatch: self.ours(c, r, m),
                    needs=needs("ours", name),
                    **about,
                )  # type: ignore[misc]
            if case.dtype == "fp8" and self.options.fast_backward:
                fp8.FAST_BACKWARD = True
                about |= {"mode": "all kept", "fast_backward": True}
                self.attempt(
                    lambda r=rows, m=microbatch: self.ours(case, r, m),
                    needs=needs("ours", name),
                    **about,
                )  # type: ignore[misc]
                fp8.FAST_BACKWARD = False
        for rows in self.options.peer_rows or case.theirs[:most]:
            for kind in self.options.peers:
                about = labels | {"who": f"huggingface {kind}", "rows": rows}
                self.attempt(
                    lambda r=rows, k=kind: self.theirs(case, r, k),
                    needs=needs("theirs", name),
                    **about,
                )  # type: ignore[misc]

    def run_memory(self, name: str, case: Case) -> None:
        if name in MEMORY:
            rows, mode, limit = MEMORY[name]
            case = replace(case, **MODES[mode])
            about = {
                "part": "memory",
                "shape": name,
                "rows": rows,
                "mode": mode,
                "limit_gib": limit,
            }
            self.attempt(lambda: self.fits(case, rows, limit), needs=needs("memory", name), **about)

    def run_largest(self, name: str, case: Case) -> None:
        start = 8 if self.options.tiny or "xxlarge" in name else 32 * 512 // case.length
        for mode in self.options.modes or MODES:
            self.largest(replace(case, **MODES[mode]), name, f"{case.dtype}, {mode}", start)

    def run_start(self, name: str, case: Case) -> None:
        """Seconds to the first step in a process of its own, with nothing compiled yet and again
        with what that one left."""
        with tempfile.TemporaryDirectory(prefix="litebert-compiled-") as folder:
            caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
            for cache in ("empty", "there"):
                about = {"part": "start", "shape": name, "cache": cache}
                self.attempt(
                    lambda: self.start(name, os.environ | caches),
                    needs=needs("start", name),
                    **about,
                )

    def start(self, name: str, variables: dict[str, str]) -> dict[str, Any]:
        words = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "bench.gpu.step",
            "--start",
            name,
            "--data",
            self.options.data,
        ]
        words += [
            "--workers",
            str(self.options.workers),
            *(["--tiny"] if self.options.tiny else []),
        ]
        done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measured

    def start_here(self, name: str) -> dict[str, float]:
        case = self.cases[name]
        with self.running(case, *case.ours[0]) as run:
            return {
                "build_seconds": round(run.build_seconds, 2),
                "first_step_seconds": self.first(run),
            }

    def run_loader(self, name: str, case: Case) -> None:
        rows = case.ours[0][0]
        about = {"part": "loader", "shape": name, "rows": rows, "workers": self.options.workers}
        self.attempt(lambda: self.loader(case, rows), needs=needs("loader", name), **about)


class Running:
    """An Ours that is closed whatever happens."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.make = lambda: Ours(*args, **settings)

    def __enter__(self) -> Ours:
        self.run = self.make()
        return self.run

    def __exit__(self, *_: object) -> None:
        self.run.close()
        del self.run


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of shards; --tiny makes its own")
    parser.add_argument("--shapes", nargs="+", choices=[*CASES, *TINY], help="all, unless given")
    parser.add_argument("--peers", nargs="*", default=["padded", "full"], choices=PEERS)
    parser.add_argument(
        "--peer-rows",
        nargs="+",
        type=int,
        help="its batch sizes, in place of those that belong to the shape",
    )
    parser.add_argument("--peers-only", action="store_true", help="leave our own steps out")
    parser.add_argument("--parts", nargs="+", default=["speed", "memory", "loader"], choices=PARTS)
    parser.add_argument("--steps", type=int, default=20, help="in a timed block, at most")
    parser.add_argument("--batches", type=int, default=2, help="batch sizes tried on each side")
    parser.add_argument("--workers", type=int, default=12, help="processes that make batches")
    parser.add_argument(
        "--limit", type=float, default=24.0, help="GiB that the largest batch has to fit"
    )
    parser.add_argument(
        "--fast-backward",
        action="store_true",
        help="time fp8 with fewer bits in backward's sums too",
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        help="of keeping states: all for the largest batch, 'all kept' for time, unless given",
    )
    parser.add_argument("--no-check", action="store_true", help="time only")
    parser.add_argument(
        "--profile", action="store_true", help="also say what each step's time goes to"
    )
    parser.add_argument(
        "--seconds", type=float, help="for all of it; what does not fit is left out"
    )
    parser.add_argument("--out", type=Path, help="folder for run.json, rows.jsonl and table.md")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if not options.tiny and not options.data:
        parser.error("--data is the folder of shards")
    return options


def main(words: list[str] | None = None) -> int:
    return conduct(arguments(words), Bench, words or sys.argv[1:])


def conduct(options: argparse.Namespace, kind: type[Bench], words: list[str]) -> int:
    """All that the options ask for, with what is true of all rows around it."""
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        if options.start:
            print(json.dumps(kind(options).start_here(options.start)))
            return 0
        if options.tiny:
            options.data = str(tiny_shards(Path(folder), documents=200))
            options.workers, options.steps = min(options.workers, 1), min(options.steps, 3)
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        begin(options.out, arguments=words, device=device, cuda=torch.version.cuda)
        bench = kind(options)
        here = environment(device=device, cuda=torch.version.cuda, arguments=words)
        bench.note(part="environment", **here)
        bench.run()
        for ratio in ratios(bench.rows):
            print(
                json.dumps(
                    {key: value for key, value in ratio.items() if key != "ours"},
                    ensure_ascii=False,
                ),
                flush=True,
            )
    return int(any("failed" in row or row.get("is_exact") is False for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
