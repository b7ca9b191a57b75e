"""What studies of the catalog have in common: scales, tasks, and the paper's cells as data."""

from collections.abc import Mapping
from typing import Any

from litebert.lab.study import Scale

_TASKS = ("cola", "mrpc", "rte", "stsb", "sst2")
"""Those of GLUE whose train split is small or at hand."""
_PAPER_TASKS = ("squad1", "squad2", "mnli", "sst2", "race")
SMALL_NOTE = (
    "litebert-small (12 layers of width 384, pre-norm, rotary positions), 60 M tokens in sequences "
    "of 128. The paper: albert-base, 262 G tokens in sequences of 512."
)
MINI_NOTE = SMALL_NOTE.replace("small", "mini").replace("384", "256")
CPU_NOTE = "the demo's model (3 layers of width 128), 1.5 M tokens in short sequences."
_SMALL = {
    "preset": "litebert-small",
    "tokens": 60_000_000,
    "batch_size": 128,
    "learning_rate": 5e-3,
    "heldout_fraction": 0.03,
    "save_every": 0,
}


def scales(
    *,
    gpu: Mapping[str, Any] | None = None,
    cpu: Mapping[str, Any] | None = None,
    tasks: tuple[str, ...] = _TASKS,
    paper_tasks: tuple[str, ...] = _PAPER_TASKS,
    finetune: Mapping[str, str | float] | None = None,
    pairs: int | None = None,
    minutes: tuple[float | None, float | None, float | None] = (None, None, None),
    preset: str = "albert-base-v2",
    note: str = SMALL_NOTE,
    cpu_note: str = CPU_NOTE,
    paper_note: str = "",
) -> dict[str, Scale]:
    """The three scales, with changes to the small ones; `pairs` and `minutes` (cpu, gpu-hour,
    paper) as in Scale."""
    own = dict(finetune or {})
    return {
        "cpu": Scale(
            recipe="demo",
            settings={"tokens": 1_500_000} | dict(cpu or {}),
            seeds=2,
            tasks=tuple(task for task in tasks if task != "sst2"),
            finetune=own,
            minutes=minutes[0],
            pairs=pairs,
            note=cpu_note,
        ),
        "gpu-hour": Scale(
            recipe="affordable",
            settings=_SMALL | dict(gpu or {}),
            tasks=tasks,
            finetune=own,
            minutes=minutes[1],
            note=note.replace("albert-base", preset.removesuffix("-v2")),
        ),
        "paper": Scale(
            recipe="paper",
            settings={"preset": preset},
            seeds=1,
            tasks=paper_tasks,
            finetune=own,
            minutes=minutes[2],
            note=paper_note or f"{preset}, the paper's recipe: for a cluster.",
        ),
    }


def cells(text: str) -> dict[str, float]:
    """The paper's cells: SQuAD 1.1 F1, SQuAD 2.0 F1, MNLI, SST-2, RACE, average."""
    names = ("SQuAD 1.1", "SQuAD 2.0", "MNLI", "SST-2", "RACE", "Avg")
    return dict(zip(names, map(float, text.split()), strict=True))


def encoder(**settings: Any) -> dict[str, Any]:
    """Settings of the encoder, as a row has them."""
    return {"encoder": settings}
