"""Signals sent to a run that goes on every time, for the torture of pretraining and of fine-tuning.
Counts come back."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.helpers.launch import finish, is_moving, state

Begin = Callable[[Path], "subprocess.Popen[str]"]
"""Starts the command, or goes on with it, in a folder."""
Same = Callable[[Path, Path], bool]


def chain(
    begin: Begin,
    last: Begin,
    same: Same,
    out: Path,
    whole: Path,
    kinds: list[signal.Signals],
    draw: random.Random,
    most: float,
) -> Counter[str]:
    """Send each signal within `most` seconds of a run's being on its way, let the last one finish,
    compare."""
    found: Counter[str] = Counter()
    for kind in kinds:
        process = begin(out)
        if not is_moving(process, out):
            found["finished before its signal"] += 1
            break
        time.sleep(draw.uniform(0, most))
        process.send_signal(kind)
        code = finish(process)
        if code == 0:
            found["finished before its signal"] += 1
            break
        if kind == signal.SIGKILL:
            found["killed"] += 1
        else:
            found[
                "saved"
                if code == 75 and state(out) == "interrupted"
                else f"exit {code}, {state(out)}"
            ] += 1
    code = finish(last(out), 300)
    found["equal" if code == 0 and same(out, whole) else "broken"] += 1
    return found


def campaign(
    begin: Begin,
    last: Begin,
    same: Same,
    folder: Path,
    name: str,
    count: int,
    draw: random.Random,
    *,
    most: float,
) -> dict[str, int]:
    """Chains of up to ten signals until `count` have been sent; the undisturbed run is
    folder/whole."""
    soft = [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
    total: Counter[str] = Counter()
    done = 0
    while done < count:
        kinds = [
            signal.SIGKILL if name == "kills" else draw.choice(soft)
            for _ in range(min(10, count - done))
        ]
        found = chain(
            begin, last, same, folder / f"{name}-{done}", folder / "whole", kinds, draw, most
        )
        done += (
            sum(found.values())
            - found["finished before its signal"]
            - found["equal"]
            - found["broken"]
        )
        total += found
        print(name, done, dict(total), file=sys.stderr, flush=True)
    return dict(total)
