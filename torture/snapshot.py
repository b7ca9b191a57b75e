"""Torture of snapshots: SIGKILL at random moments, flipped bytes, truncated files. Prints one JSON
object.

A child process saves snapshots one after another and is killed again and again. The law: whatever
it had announced as saved, or something newer, is what `latest` gives back, bit for bit. Then single
bytes are flipped and files cut short: each must be noticed, reported and passed over for the
snapshot before. Exit code 1 if any trial broke the law.

    python -m torture.snapshot  # the campaign: 200 kills, 200 flips, 50 truncations
    python -m torture.snapshot --kills 10 --flips 20 --truncations 10
"""

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.common import results as results_file
from litebert.storage.snapshot import Snapshot, SnapshotStore


def make(step: int, size: int) -> Snapshot:
    """A snapshot whose every value follows from its step, so that a mixture of two would show."""
    ramp = torch.arange(size, dtype=torch.float32) + step
    return Snapshot(
        step=step,
        epoch=step // 7,
        index=step % 7,
        recipe="torture",
        metrics_offset=step * 100,
        model={"weight": ramp, "bias": torch.full((3,), float(step))},
        optimizer={
            "state": {0: {"step": step, "first": ramp * 2, "second": ramp * 3}},
            "param_groups": [{"lr": 1 / (step + 1), "betas": (0.9, 0.999), "params": [0]}],
        },
        random={"cpu": torch.full((16,), step % 256, dtype=torch.uint8)},
        extra={"seconds": step * 0.1},
    )


def same(a: Snapshot, b: Snapshot) -> bool:
    plain = ("step", "epoch", "index", "recipe", "metrics_offset", "extra")
    moments_a, moments_b = a.optimizer["state"][0], b.optimizer["state"][0]
    return (
        all(getattr(a, name) == getattr(b, name) for name in plain)
        and a.optimizer["param_groups"] == b.optimizer["param_groups"]
        and moments_a["step"] == moments_b["step"]
        and all(torch.equal(moments_a[key], moments_b[key]) for key in ("first", "second"))
        and all(torch.equal(a.model[key], b.model[key]) for key in ("weight", "bias"))
        and torch.equal(a.random["cpu"], b.random["cpu"])
    )


def save_forever(folder: str, size: int) -> None:
    """The victim: resume from the latest snapshot; append each step to `announced` once its save
    has returned."""
    torch.set_num_threads(1)
    store = SnapshotStore(folder, keep=2)
    last = store.latest()
    step = 0 if last is None else last.step + 1
    announced = os.open(Path(folder) / "announced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        store.save(make(step, size))
        os.write(announced, f"{step}\n".encode())
        step += 1


def kill_campaign(folder: Path, kills: int, size: int, draw: random.Random) -> dict[str, object]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["litebert.storage.snapshot"])
    store, reports = SnapshotStore(folder), []
    store.report = reports.append
    begin = time.perf_counter()
    store.save(make(0, size))
    save_seconds = time.perf_counter() - begin
    (folder / "announced").write_text("0\n")
    before_rename, after_rename, broken = 0, 0, 0
    for _ in range(kills):
        before = (folder / "announced").stat().st_size
        child = context.Process(target=save_forever, args=(str(folder), size))
        child.start()
        patience = time.perf_counter() + 60
        while (folder / "announced").stat().st_size == before and time.perf_counter() < patience:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 4 * save_seconds))
        child.kill()
        child.join()
        before_rename += any(not path.name.endswith("-old") for path in folder.glob(".*.tmp-*"))
        published = int((folder / "announced").read_text().split()[-1])
        latest = store.latest()
        after_rename += latest is not None and latest.step > published
        broken += (
            latest is None or latest.step < published or not same(latest, make(latest.step, size))
        )
    return {
        "kills": kills,
        "inside_a_save": before_rename + after_rename,
        "of_these_before_the_rename": before_rename,
        "saves": published + 1,
        "save_seconds": round(save_seconds, 4),
        "reported_bad": len(reports),
        "broken": broken + len(reports),
    }


def damage_campaign(
    folder: Path, trials: int, draw: random.Random, damage: Callable[[bytes], bytes]
) -> dict[str, object]:
    """Damage one file of the newest of two snapshots; the older must come back, and the bad one
    must be named."""
    pristine = folder / "pristine"
    for step in (1, 2):
        SnapshotStore(pristine).save(make(step, 5_000))
    names = sorted(path.name for path in (pristine / "step-00000002").iterdir())
    passed = 0
    for trial in range(trials):
        work = folder / f"trial-{trial}"
        shutil.copytree(pristine, work)
        file = work / "step-00000002" / names[trial % len(names)]
        file.write_bytes(damage(file.read_bytes()))
        reports: list[str] = []
        latest = SnapshotStore(work, report=reports.append).latest()
        aside = (work / "step-00000002.bad").is_dir()
        passed += (
            latest is not None and same(latest, make(1, 5_000)) and len(reports) == 1 and aside
        )
        shutil.rmtree(work)
    return {"trials": trials, "detected_and_fell_back": passed, "broken": trials - passed}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--truncations", type=int, default=50)
    parser.add_argument(
        "--size",
        type=int,
        default=1_000_000,
        help="numbers in a tensor; a snapshot is 12 bytes for each",
    )
    parser.add_argument("--seed", type=int, default=0)
    results_file.add_out(parser)
    args = parser.parse_args()
    results_file.begin(args.out)
    draw = random.Random(args.seed)

    def flip(content: bytes) -> bytes:
        position = draw.randrange(len(content))
        changed = content[position] ^ (1 << draw.randrange(8))
        return content[:position] + bytes([changed]) + content[position + 1 :]

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = {
            "sigkill": kill_campaign(folder / "kills", args.kills, args.size, draw),
            "flipped_bytes": damage_campaign(folder / "flips", args.flips, draw, flip),
            "truncations": damage_campaign(
                folder / "truncations",
                args.truncations,
                draw,
                lambda content: content[: draw.randrange(len(content))],
            ),
        }
    seconds = round(time.perf_counter() - begin, 1)
    results_file.publish({"seed": args.seed, "seconds": seconds, **results}, args.out)
    return int(any(result["broken"] for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
