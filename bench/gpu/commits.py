"""Does a change cost speed? Pretraining steps of two checkouts, alternately on one device, as a
ratio.

    python -m bench.gpu.commits --old ../before/src --new src --data SHARDS --cases 512:64 128:256

A run of `litebert pretrain` is started for each checkout and case, all at once, and stopped
(SIGSTOP) as soon as it is warm. Then they run in turns, a few seconds each, and the time of a step
is read from their metrics.jsonl: the steps in which a turn begins or ends are left out. Only
the command line and metrics.jsonl are used, so the two checkouts may differ in anything else.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Contender:
    """One run of `litebert pretrain` that can be stopped and continued."""

    name: str
    case: str
    process: "subprocess.Popen[bytes]"
    metrics: Path

    def steps(self) -> list[float]:
        """Seconds of training at the end of each step so far."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return [record["seconds"] for record in records if record["kind"] == "step"]

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def turn(self, seconds: float) -> float:
        """Let it run this long; seconds a step."""
        before = len(self.steps())
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} {self.case} ended: see its output above")
        inner = self.steps()[before + 1 :]
        if len(inner) < 2:
            raise SystemExit(f"{self.name} {self.case} made under 3 steps: raise --seconds")
        return (inner[-1] - inner[0]) / (len(inner) - 1)


def start(name: str, source: Path, case: str, args: argparse.Namespace, out: Path) -> Contender:
    length, batch = case.split(":")
    flags = f"--recipe affordable --sequence-length {length} --batch-size {batch} --steps 1000000"
    flags += " --evaluate-every 0 --heldout-fraction 0 --save-every 0"
    command = [sys.executable, "-m", "litebert.cli", "pretrain", *flags.split()]
    command += ["--data", args.data, "--out", str(out), "--device", args.device, *args.flags]
    path = os.pathsep.join([str(source.resolve()), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=None if args.verbose else subprocess.DEVNULL,
        start_new_session=True,
    )
    return Contender(name, case, process, out / "metrics.jsonl")


def warm_up(contenders: list[Contender], steps: int, limit: float) -> None:
    """Run all at once until each has made `steps` steps, and stop each there."""
    running, began = list(contenders), time.monotonic()
    while running:
        time.sleep(0.5)
        for contender in list(running):
            if contender.process.poll() is not None:
                raise SystemExit(f"{contender.name} {contender.case} ended; --verbose shows why")
            if len(contender.steps()) >= steps:
                contender.signal(signal.SIGSTOP)
                running.remove(contender)
        if time.monotonic() - began > limit:
            raise SystemExit(f"not warm after {limit:g} seconds: {[c.name for c in running]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", type=Path, required=True, help="src folder of the old checkout")
    parser.add_argument("--new", type=Path, required=True, help="src folder of the new checkout")
    parser.add_argument("--data", required=True, help="folder of shards that both can read")
    parser.add_argument("--cases", nargs="+", default=["512:64", "128:256"], help="LENGTH:BATCH")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--warm", type=int, default=60, help="steps before timing")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds to get warm in")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="for pretrain")
    parser.add_argument("--verbose", action="store_true", help="show what the runs print")
    args = parser.parse_args()
    sources = {"old": args.old, "new": args.new}
    with tempfile.TemporaryDirectory() as folder:
        contenders = [
            start(name, source, case, args, Path(folder) / f"{name}-{case.replace(':', 'x')}")
            for case in args.cases
            for name, source in sources.items()
        ]
        try:
            warm_up(contenders, args.warm, args.limit)
            for case in args.cases:
                pair = {c.name: c for c in contenders if c.case == case}
                turns: dict[str, list[float]] = {"old": [], "new": []}
                for repeat in range(args.repeats):
                    for name in ("old", "new") if repeat % 2 == 0 else ("new", "old"):
                        turns[name].append(pair[name].turn(args.seconds))
                ratios = [old / new for old, new in zip(turns["old"], turns["new"], strict=True)]
                row = {
                    "case": case,
                    "old_step_ms": [round(1000 * seconds, 3) for seconds in turns["old"]],
                    "new_step_ms": [round(1000 * seconds, 3) for seconds in turns["new"]],
                    "speed_ratio_median": round(statistics.median(ratios), 4),
                    "speed_ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
                }
                print(json.dumps(row), flush=True)
        finally:
            for contender in contenders:
                contender.signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
