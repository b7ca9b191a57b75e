"""Made run folders for tests and for looking at reports: curves that look like training, and a few
that do not.

`python -m tests.helpers.run_folders FOLDER` writes a handful of them.
"""

import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.recipes import NAMED, PretrainRecipe, Stages

TEXT = """
    [CLS] ▁the ▁congress ▁of ▁the ▁united ▁states ▁has ▁approved ▁the ▁treaty ▁with ▁spain , ▁and
    ▁our ▁commerce ▁with ▁that ▁nation ▁is ▁now ▁un molest ed . [SEP] ▁i ▁recommend ▁to ▁your
    ▁early ▁attention ▁the ▁state ▁of ▁the ▁public ▁debt . [SEP]
""".split()  # noqa: SIM905 — a sentence reads better than a list
MASKED = (2, 9, 12, 16, 24, 31)


def examples(skill: float) -> list[dict[str, Any]]:
    """Two examples whose guesses are right in the first `skill` part of their masks, and close in
    the next one."""
    truth = [TEXT[position] for position in MASKED]
    others = ["▁country", "▁war", "▁of", "s", "▁government"]
    guesses = []
    for i, piece in enumerate(truth):
        right = i < skill * len(truth)
        close = not right and i < skill * len(truth) + 2
        names = (
            [piece, *others[:4]]
            if right
            else [others[0], others[1], piece, *others[2:4]]
            if close
            else others
        )
        guesses.append(
            [
                [name, chance]
                for name, chance in zip(names, (0.61, 0.17, 0.08, 0.03, 0.004), strict=True)
            ]
        )
    pieces = ["[MASK]" if position in MASKED else piece for position, piece in enumerate(TEXT)]
    one = {"pieces": pieces, "masked": list(MASKED), "truth": truth, "guesses": guesses}
    return [one, one]


def records(
    steps: int,
    *,
    seed: int = 0,
    plateau: float = 0.15,
    floor: float = 3.2,
    every: int = 1,
    evaluations: int = 12,
) -> list[dict[str, Any]]:
    """A pretraining run's metrics: a plateau at 7, then a fall toward `floor`; sequence length
    grows at three quarters."""
    draw, made, tokens, seconds = random.Random(seed), [], 0, 0.0
    for step in range(0, steps, every):
        part = step / steps
        length = 128 if part < 0.75 else 512
        fall = 1 / (1 + math.exp(-(part - plateau) * 25)) if plateau < 1 else 0.0
        loss = (
            7.1
            + 3.2 * math.exp(-part * 80)
            - (7.1 - floor) * fall * (1 - 0.5 * math.exp(-4 * part))
        )
        noisy = loss + draw.gauss(0, 0.12)
        tokens += 32 * length * every
        seconds += every * length / 128 * (0.3 + 0.05 * draw.random())
        order = 0.69 - 0.4 * fall * part
        record = {
            "loss": noisy + order,
            "masked_loss": noisy,
            "masked_accuracy": max(0.0, 0.62 * (10.3 - noisy) / 8),
            "order_loss": order,
            "order_accuracy": min(1.0, 0.5 + 0.42 * fall * part + draw.gauss(0, 0.03)),
            "norm": math.exp(draw.gauss(0, 0.35)) * (0.4 + 4 * math.exp(-part * 30)),
            "rate": 5e-4 * min(part / 0.06, (1 - part) / 0.94),
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "sequence_length": length,
            "batch_size": 32,
            "depth": 12,
        }
        made.append({"kind": "step", "step": step, **record})
        if evaluations and (step // every + 1) % max(1, steps // every // evaluations) == 0:
            held = loss + 0.06
            measures = {
                "masked_loss": held,
                "masked_accuracy": max(0.0, 0.6 * (10.3 - held) / 8),
                "perplexity": math.exp(held),
                "sop_accuracy": 0.5 + 0.4 * fall * part,
                "nsp_accuracy": 0.5 + 0.3 * fall * math.sqrt(part),
            }
            made.append({"kind": "evaluation", "step": step + every, **measures})
            made.append(
                {"kind": "examples", "step": step + every, "examples": examples(part * fall)}
            )
    return made


def make_run(
    folder: Path,
    lines: list[dict[str, Any]],
    *,
    state: str | None = "finished",
    recipe: PretrainRecipe | dict[str, Any] | None = NAMED["demo"],
    environment: dict[str, Any] | None = None,
) -> Path:
    """Write a folder as a run does; what is None is left out."""
    folder.mkdir(parents=True)
    if recipe is not None:
        (folder / "recipe.json").write_text(
            json.dumps(recipe.to_dict() if isinstance(recipe, PretrainRecipe) else recipe),
            encoding="utf-8",
        )
    where = environment or {
        "litebert": "0.1.0",
        "python": "3.11.9",
        "cores": 2,
        "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    }
    (folder / "environment.json").write_text(json.dumps(where), encoding="utf-8")
    if state is not None:
        (folder / "status.json").write_text(
            json.dumps({"state": state, "pid": 1, "time": 0.0}), encoding="utf-8"
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def finetuning(steps: int) -> list[dict[str, Any]]:
    """A fine-tuning run's metrics, with measures of its own."""
    draw, made = random.Random(1), []
    for step in range(steps):
        loss = 0.7 * math.exp(-2 * step / steps) * math.exp(draw.gauss(0, 0.1))
        made.append(
            {
                "kind": "step",
                "step": step,
                "loss": loss,
                "norm": 1.0 + draw.random(),
                "rate": 2e-5,
                "tokens": 4096 * (step + 1),
                "seconds": step * 0.1 + 0.1,
            }
        )
        if step % 50 == 49:
            values = {
                "loss": loss + 0.1,
                "accuracy": 0.9 - 0.4 * math.exp(-step / 60),
                "f1": 0.88 - 0.3 * math.exp(-step / 60),
                "matthews": 0.4,
            }
            made.append(
                {"kind": "evaluation", "step": step + 1, "score": values["accuracy"], **values}
            )
    return made


def lasting(name: str, steps: int) -> PretrainRecipe:
    """A named recipe over so many steps."""
    return replace(NAMED[name], steps=steps, tokens=None, batch_size=Stages.constant(32), seed=1)


def main(folder: Path) -> None:
    """Runs to look at."""
    eventful = records(7324, seed=1)
    eventful[400:400] = [
        {
            "kind": "event",
            "step": 390,
            "event": "skip",
            "message": "loss nan and gradient norm nan of examples 12, 98: not stepped on",
        },
        {
            "kind": "event",
            "step": 2000,
            "event": "plateau",
            "message": "the loss has not left the entropy of single tokens",
        },
        {
            "kind": "event",
            "step": 5200,
            "event": "memory",
            "message": "out of memory; microbatches of 16 rows now",
        },
    ]
    make_run(folder / "affordable-pre-norm-seed-0", eventful, recipe=lasting("affordable", 7324))
    make_run(
        folder / "post-norm",
        records(7324, seed=2, plateau=0.4, floor=4.1),
        recipe=lasting("affordable-post", 7324),
    )
    make_run(
        folder / "stuck",
        records(4000, seed=3, plateau=2.0),
        state="diverged",
        recipe=NAMED["paper"],
    )
    make_run(
        folder / "half-way",
        records(7324, seed=4, floor=2.9)[:4000],
        state="running",
        recipe=lasting("affordable", 7324),
    )
    make_run(folder / "long", records(125_000, seed=5, evaluations=250), recipe=NAMED["paper"])
    make_run(folder / "sst2", finetuning(600), recipe={"task": "sst2", "rate": 2e-5, "epochs": 3})
    make_run(folder / "begun", [], state="running")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
