"""Studies that train nothing: exact parameters (ALBERT Tables 1, 3, 4), speed (Table 2)."""

from collections.abc import Iterable
from typing import Any

from litebert.lab.study import Row, Scale, Study

_ALBERTS: dict[str, tuple[str, float]] = {
    "bert-base": ("108M", 4.7),
    "bert-large": ("334M", 1.0),
    "albert-base-v2": ("12M", 5.6),
    "albert-large-v2": ("18M", 1.7),
    "albert-xlarge-v2": ("60M", 0.6),
    "albert-xxlarge-v2": ("235M", 0.3),
}
"""The paper's parameters, and its speed relative to bert-large."""
_BASE = {
    ("all", 64): "10M",
    ("all", 256): "16M",
    ("all", 768): "31M",
    ("attention", 128): "64M",
    ("attention", 768): "83M",
    ("ffn", 128): "38M",
    ("ffn", 768): "57M",
    ("none", 64): "87M",
    ("none", 128): "89M",
    ("none", 256): "93M",
}
"""albert-base with other sharing and other embeddings; all, E 128 and none, E 768 are presets."""
_NAMES = {"all": "all", "attention": "attention", "ffn": "feed-forward", "none": "nothing"}


def _preset(name: str) -> dict[str, Any]:
    return {"preset": name, "overrides": {}}


def _counted() -> Iterable[Row]:
    for name, (parameters, _) in _ALBERTS.items():
        yield Row(name=name, settings=_preset(name), paper={"parameters": parameters})
    for (share, size), parameters in _BASE.items():
        shape = {"encoder": {"share": share, "embedding_size": size}}
        yield Row(
            name=f"base, {_NAMES[share]} shared, E {size}",
            settings=_preset("albert-base-v2") | shape,
            paper={"parameters": parameters},
        )


COUNTS = (
    Study(
        name="parameters",
        title="Parameters of every preset",
        question="How many parameters has each model, exactly, and where are they?",
        source="Tables 1, 3 and 4",
        kind="count",
        measures=("smaller", "saved", "embedding", "gradient_bytes", "optimizer_bytes"),
        rows=tuple(_counted()),
        control="bert-large",
        scales={
            name: Scale(recipe="paper", seeds=1, note="counted from shapes; nothing is trained.")
            for name in ("cpu", "gpu-hour", "paper")
        },
    ),
    Study(
        name="speed",
        title="Training speed beside bert-large",
        question="How many tokens a second does each model train on, relative to bert-large?",
        source="Table 2",
        kind="speed",
        measures=("speed", "tokens_per_second", "two_ranks"),
        rows=tuple(
            Row(name=name, settings=_preset(name), paper={"speed": speed})
            for name, (_, speed) in _ALBERTS.items()
        ),
        control="bert-large",
        scales={
            "cpu": Scale(
                recipe="paper",
                settings={
                    "batch_size": 2,
                    "sequence_length": 128,
                    "reference_batch_size": None,
                    "heldout_fraction": 0,
                },
                seeds=1,
                ranks=2,
                note="2 sequences of 128 tokens a step, three steps, the last two timed; two ranks "
                "share the cores, or have a GPU each where there are two.",
            ),
            "gpu-hour": Scale(
                recipe="paper",
                settings={"batch_size": 64, "reference_batch_size": None, "heldout_fraction": 0},
                seeds=1,
                note="64 sequences of 512 tokens a step, the fastest with replayed CUDA graphs.",
            ),
        },
    ),
)
