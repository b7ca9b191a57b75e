"""The real command line in processes of their own, one or several ranks, for tests and torture."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FLAGS = [
    *(
        "--preset",
        "tiny",
        "--encoder",
        "norm=pre",
        "--steps",
        "12",
        "--batch-size",
        "0:4,4:8",
        "--depth",
        "0:1,7:3",
    ),
    *(
        "--sequence-length",
        "0:16,6:24",
        "--save-every",
        "4",
        "--evaluate-every",
        "5",
        "--heldout-fraction",
        "0.1",
    ),
    *(
        "--learning-rate",
        "2e-3",
        "--warmup",
        "0",
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--microbatch-tokens",
        "64",
    ),
]
HANGS = 900.0
"""Seconds after which a process is taken for hanging; a busy machine never takes so long."""
TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--monitor-interval",
    "0.1",
]


def start(
    shards: Path, out: Path, *flags: str, ranks: int = 1, restarts: int = 0, workers: int = 0
) -> "subprocess.Popen[str]":
    """`litebert pretrain` as a process of its own; its messages go to OUT.log."""
    command = [
        "pretrain",
        "--data",
        str(shards),
        "--out",
        str(out),
        *FLAGS,
        *flags,
        "--workers",
        str(workers),
    ]
    return start_command(command, out, ranks=ranks, restarts=restarts)


def start_command(
    args: list[str], out: Path, *, ranks: int = 1, restarts: int = 0
) -> "subprocess.Popen[str]":
    """Any command as a process of its own; its messages go to OUT.log."""
    how = ["-m"] if ranks == 1 else [*TORCHRUN, "--max-restarts", str(restarts), "-m"]
    quiet = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }
    with out.with_name(out.name + ".log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, *how, "litebert.cli", *args],
            stdout=log,
            stderr=log,
            env=os.environ | quiet,
            text=True,
            start_new_session=True,
        )


def ranks_of(parent: int) -> dict[int, int]:
    """The processes of each rank that torchrun `parent` has started."""
    actual = {}
    for task in Path("/proc").glob("[0-9]*"):
        try:
            status = (task / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) != parent:
                continue
            environment = dict(
                item.split("=", 1)
                for item in (task / "environ").read_text().split("\0")
                if "=" in item
            )
            if "RANK" in environment:
                actual[int(environment["RANK"])] = int(task.name)
        except (OSError, ValueError):
            continue
    return actual


def wait_for_step(
    out: Path, step: int, process: "subprocess.Popen[str]", seconds: float = HANGS
) -> bool:
    """Until metrics hold so many steps; False where the process ended before."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if num_steps(out) >= step:
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    raise TimeoutError(f"step {step} was not reached in {seconds} s; see {out}.log")


def is_moving(process: "subprocess.Popen[str]", out: Path, seconds: float = HANGS) -> bool:
    """Wait until the run of this very process takes steps (what a killed one wrote is cut away when
    it begins); whether."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            if json.loads((out / "status.json").read_text())["pid"] == process.pid:
                return wait_for_step(out, num_steps(out) + 1, process)
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    return False


def num_steps(out: Path) -> int:
    try:
        return (out / "metrics.jsonl").read_bytes().count(b'"kind": "step"')
    except FileNotFoundError:
        return 0


def state(out: Path) -> str:
    try:
        return str(json.loads((out / "status.json").read_text())["state"])
    except FileNotFoundError:
        return "none"


def finish(process: "subprocess.Popen[str]", seconds: float = HANGS) -> int:
    """The exit code; a process that hangs is ended with its group, and told."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
