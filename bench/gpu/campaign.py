"""Everything that is to be measured on a GPU, in one process, the most important first, within some
seconds.

    python -m bench.gpu.campaign --data SHARDS --tasks GLUE --tokenizer DIR --out DIR --seconds 420
    # a second visit, for what the first left out
    python -m bench.gpu.campaign … --only tasks start largest
    python -m bench.gpu.campaign --tiny  # the same code on a CPU

The parts are those of step.py and tasks.py; flags of the former go through (`--batches 2`,
`--peers padded full`). What is not expected to end in time is left out, says so in its row, and
shorter things after it still have their turn. Each row is written when it is known. Unless told
otherwise: one batch size on each side, Hugging Face without a mask (no work for one), and every
step profiled.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.gpu import step

PLAN = (
    ("speed", "base-512"),
    ("speed", "base-128"),
    ("speed", "xxlarge-512"),
    ("speed", "xxlarge-512-fp8"),
    ("memory", "base-512"),
    ("loader", "base-128"),
    ("speed", "large-512"),
    ("memory", "xxlarge-512"),
    ("tasks", "epoch"),
    ("tasks", "embed"),
    ("start", "base-512"),
    ("largest", "base-512"),
    ("largest", "xxlarge-512"),
)
TINY = tuple(dict.fromkeys((part, name if part == "tasks" else "tiny") for part, name in PLAN))
NEEDS = {
    "setting": 15,
    "epoch ours": 20,
    "epoch theirs": 150,
    "embed ours-compiled": 35,
    "embed": 12,
    "ratio": 0,
}
"""Seconds, by how the thing's name begins; the longest beginning counts."""
USUAL = ["--batches", "1", "--peers", "full", "--profile"]


class Campaign(step.Bench):
    """The parts of the step, and those of the tasks."""

    def run(self) -> None:
        options = self.options
        for part, name in TINY if options.tiny else PLAN:
            if part not in options.only or (
                options.shapes and part != "tasks" and name not in options.shapes
            ):
                continue
            if part == "tasks":
                self.run_tasks(name)
            else:
                self.run_part(part, name)

    def run_tasks(self, part: str) -> None:
        """Fine-tuning or inference; where the data cannot be had, a row says so."""
        from bench.gpu import tasks

        if "setting" not in self.__dict__:
            self.attempt(
                lambda: {"sentences": len(self.setting.texts)},
                needs=needs("setting"),
                part="tasks",
                what="setting",
            )
        if "setting" in self.__dict__:
            for what, work in tasks.WORK[part](self.setting, self.words):
                self.attempt(
                    lambda work=work, what=what: renamed(what, work),
                    needs=needs(what),
                    part="tasks",
                    what=what,
                )  # type: ignore[misc]

    @cached_property
    def words(self) -> argparse.Namespace:
        """What tasks.py would have been told."""
        options = self.options
        return argparse.Namespace(
            data=options.tasks,
            tokenizer=options.tokenizer,
            preset="albert-base-v2",
            ways=["ours", "theirs"],
            batch_size=8 if options.tiny else 32,
            most_steps=options.most_steps,
            texts=options.texts,
            rounds=1 if options.tiny else 2,
            tiny=options.tiny,
        )

    @cached_property
    def setting(self) -> Any:
        from bench.gpu import tasks

        self.folder = tempfile.TemporaryDirectory(prefix="litebert-bench-")
        return tasks.make_setting(self.words, Path(self.folder.name))


def needs(what: str) -> float:
    """Seconds that one of the tasks is expected to take."""
    return NEEDS[max((name for name in NEEDS if what.startswith(name)), key=len)]


def renamed(what: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was found; `seconds` of a row are those that measuring took, and here they are an
    epoch's, or a ratio of them."""
    sign = "×" if what.startswith("ratio") else "epoch"
    return {
        f"{sign}_{name}" if name in ("seconds", "per_step") else name: value
        for name, value in work().items()
    }


def arguments(words: list[str]) -> argparse.Namespace:
    parts = tuple(dict.fromkeys(part for part, _ in PLAN))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", help="folder of GLUE, or of SST-2")
    parser.add_argument("--tokenizer", help="ALBERT's spiece.model, or a folder with one")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument(
        "--most-steps", type=int, default=700, help="of an epoch; a whole one is then scaled up"
    )
    parser.add_argument("--texts", type=int, default=8_000, help="to embed")
    own, others = parser.parse_known_args(words)
    options = step.arguments(USUAL + others)
    if "tasks" in own.only and not options.tiny and not (own.tasks and own.tokenizer):
        parser.error(
            "--tasks and --tokenizer say what to fine-tune on; or leave tasks out with --only"
        )
    return argparse.Namespace(**vars(options) | vars(own))


def main() -> int:
    words = sys.argv[1:]
    return step.conduct(arguments(words), Campaign, words)


if __name__ == "__main__":
    sys.exit(main())
