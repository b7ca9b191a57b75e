"""The studies that come with litebert: tables and figures of the ALBERT paper (Lan et al., ICLR
2020), and questions that it left open.

At the scale `paper` a study is the paper's own recipe. At `gpu-hour` and `cpu` widths are smaller
and every row is trained on the same few tokens: trends can be compared, numbers cannot.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from litebert.checks import check_known
from litebert.lab.study import Row, Scale, Study

_TASKS = ("cola", "mrpc", "rte", "stsb", "sst2")
_PAPER_TASKS = ("squad1", "squad2", "mnli", "sst2", "race")
_SMALL_NOTE = (
    "litebert-small (12 layers of width 384, pre-norm, rotary positions), 60 M tokens in sequences "
    "of 128. The paper: albert-base, 262 G tokens in sequences of 512."
)
_CPU_NOTE = "the demo's model (3 layers of width 128), 1.5 M tokens in short sequences."
_SMALL = {
    "preset": "litebert-small",
    "tokens": 60_000_000,
    "batch_size": 128,
    "learning_rate": 5e-3,
    "heldout_fraction": 0.03,
    "save_every": 0,
}


def _scales(
    *,
    gpu: Mapping[str, Any] | None = None,
    cpu: Mapping[str, Any] | None = None,
    tasks: tuple[str, ...] = (),
    preset: str = "albert-base-v2",
    note: str = _SMALL_NOTE,
) -> dict[str, Scale]:
    """The three scales, with changes to the small ones."""
    return {
        "cpu": Scale(
            recipe="demo", settings={"tokens": 1_500_000} | dict(cpu or {}), seeds=2, note=_CPU_NOTE
        ),
        "gpu-hour": Scale(
            recipe="affordable", settings=_SMALL | dict(gpu or {}), tasks=tasks, note=note
        ),
        "paper": Scale(
            recipe="paper",
            settings={"preset": preset},
            seeds=1,
            tasks=_PAPER_TASKS,
            note=f"{preset}, the paper's recipe: for a cluster.",
        ),
    }


def _cells(text: str) -> dict[str, float]:
    """The paper's cells: SQuAD 1.1 F1, SQuAD 2.0 F1, MNLI, SST-2, RACE, average."""
    names = ("SQuAD 1.1", "SQuAD 2.0", "MNLI", "SST-2", "RACE", "Avg")
    return dict(zip(names, map(float, text.split()), strict=True))


def _encoder(**settings: Any) -> dict[str, Any]:
    return {"encoder": settings}


_EMBEDDING_CELLS = {
    ("none", 64): "89.9 80.1 82.9 91.5 66.7 81.3",
    ("none", 128): "89.9 80.3 83.7 91.5 67.9 81.7",
    ("none", 256): "90.2 80.3 84.1 91.9 67.3 81.8",
    ("none", 768): "90.4 80.4 84.5 92.8 68.2 82.3",
    ("all", 64): "88.7 77.5 80.8 89.4 63.5 79.0",
    ("all", 128): "89.3 80.0 81.6 90.3 64.0 80.1",
    ("all", 256): "88.8 79.1 81.5 90.3 63.4 79.6",
    ("all", 768): "88.6 79.2 82.0 90.6 63.3 79.8",
}


def _embedding_rows() -> Iterable[Row]:
    for (share, size), cells in _EMBEDDING_CELLS.items():
        name = "not shared" if share == "none" else "all shared"
        yield Row(
            name=f"{name}, E = H/{768 // size}",
            settings=_encoder(share=share, embedding_size=size),
            at={
                "gpu-hour": _encoder(embedding_size=size // 2),
                "cpu": _encoder(embedding_size=128 * size // 768 // 2 * 2 or 2),
            },
            paper={"E": size, **_cells(cells)},
        )


_SHARING_CELLS = {
    (768, "all"): "88.6 79.2 82.0 90.6 63.3 79.8",
    (768, "attention"): "89.9 80.0 84.0 91.4 67.7 81.6",
    (768, "ffn"): "89.2 78.2 81.5 90.8 62.6 79.5",
    (768, "none"): "90.4 80.4 84.5 92.8 68.2 82.3",
    (128, "all"): "89.3 80.0 82.0 90.3 64.0 80.1",
    (128, "attention"): "89.9 80.7 83.4 91.9 67.6 81.7",
    (128, "ffn"): "88.9 78.6 82.3 91.7 64.4 80.2",
    (128, "none"): "89.9 80.3 83.2 91.5 67.9 81.6",
}
_SHARED_NAMES = {
    "all": "all shared",
    "attention": "attention shared",
    "ffn": "feed-forward shared",
    "none": "nothing shared",
}


def _sharing_rows() -> Iterable[Row]:
    for (size, share), cells in _SHARING_CELLS.items():
        where = "E = H" if size == 768 else "E = H/6"
        yield Row(
            name=f"{where}, {_SHARED_NAMES[share]}",
            settings=_encoder(share=share, embedding_size=size),
            at={
                "gpu-hour": _encoder(embedding_size=384 if size == 768 else 64),
                "cpu": _encoder(embedding_size=128 if size == 768 else 22),
            },
            paper=_cells(cells),
        )


_DEPTH_CELLS = {
    1: "31.1 50.1 66.4 80.8 40.1 52.9",
    3: "79.8 64.4 77.7 86.7 54.0 71.2",
    6: "86.4 73.8 81.2 88.9 60.9 77.2",
    12: "89.8 80.7 83.3 91.7 66.7 81.5",
    24: "90.3 81.8 83.3 91.5 68.7 82.1",
    48: "90.0 81.8 83.4 91.9 66.9 81.8",
}
_WIDTH_CELLS = {
    1024: "79.8 64.4 77.7 86.7 54.0 71.2",
    2048: "83.3 69.1 79.7 88.6 58.2 74.6",
    4096: "85.0 71.0 80.3 90.4 60.4 76.3",
    6144: "84.7 67.8 78.1 89.1 56.0 74.0",
}


def _width_row(size: int, cells: str) -> Row:
    gpu, cpu = size * 256 // 1024, size * 64 // 1024
    return Row(
        name=f"{size // 1024} × width",
        settings=_encoder(hidden_size=size, num_attention_heads=size // 64, ffn_size=4 * size),
        at={
            "gpu-hour": _encoder(hidden_size=gpu, num_attention_heads=gpu // 64, ffn_size=4 * gpu),
            "cpu": _encoder(hidden_size=cpu, num_attention_heads=cpu // 32, ffn_size=4 * cpu),
        },
        paper={"H": size, **_cells(cells)},
    )


_ALBERTS: dict[str, dict[str, float | str]] = {
    "bert-base": {"parameters": "108M", "Avg": 82.3, "speed": 4.7},
    "bert-large": {"parameters": "334M", "Avg": 85.2, "speed": 1.0},
    "albert-base-v2": {"parameters": "12M", "Avg": 80.1, "speed": 5.6},
    "albert-large-v2": {"parameters": "18M", "Avg": 82.4, "speed": 1.7},
    "albert-xlarge-v2": {"parameters": "60M", "Avg": 85.5, "speed": 0.6},
    "albert-xxlarge-v2": {"parameters": "235M", "Avg": 88.7, "speed": 0.3},
}
_EXACT = {"cpu": Scale(recipe="paper", seeds=1), "paper": Scale(recipe="paper", seeds=1)}
_ORDER_LENGTH = {"sequence_length": 64, "batch_size": 256}


def _dropout(probability: float) -> dict[str, Any]:
    names = ("embedding_dropout", "attention_output_dropout", "ffn_dropout", "attention_dropout")
    return {"encoder": dict.fromkeys(names, probability)}


_CATALOG = (
    Study(
        name="parameters",
        title="Parameters of every preset",
        question="How many parameters has each model, exactly, and where are they?",
        source="Tables 1, 3 and 4",
        kind="count",
        measures=("smaller", "embedding", "update_bytes"),
        rows=tuple(
            Row(
                name=name,
                settings={"preset": name, "overrides": {}},
                paper={"parameters": cells["parameters"]},
            )
            for name, cells in _ALBERTS.items()
        ),
        control="bert-large",
        scales=_EXACT,
    ),
    Study(
        name="speed",
        title="Training speed beside bert-large",
        question="How many tokens a second does each model train on, relative to bert-large?",
        source="Table 2",
        kind="speed",
        measures=("speed", "tokens_per_second"),
        rows=tuple(
            Row(
                name=name,
                settings={"preset": name, "overrides": {}},
                paper={"speed": cells["speed"]},
            )
            for name, cells in _ALBERTS.items()
        ),
        control="bert-large",
        scales={
            "gpu-hour": Scale(
                recipe="paper",
                settings={"batch_size": 64, "reference_batch_size": None},
                seeds=1,
                note="64 sequences of 512 tokens a step, three steps, the last two timed.",
            )
        },
    ),
    Study(
        name="embedding",
        title="Embedding size, shared and not",
        question="How narrow may the embedding be, with and without shared layers?",
        source="Table 3",
        measures=("masked_accuracy", "masked_loss", "sop_accuracy"),
        rows=tuple(_embedding_rows()),
        control="all shared, E = H/6",
        scales=_scales(tasks=_TASKS),
    ),
    Study(
        name="sharing",
        title="What sharing parameters across layers costs",
        question="What is lost by sharing attention, feed-forward or both, at two embedding sizes?",
        source="Table 4",
        measures=("masked_accuracy", "masked_loss", "gap", "sop_accuracy"),
        rows=tuple(_sharing_rows()),
        control="E = H/6, all shared",
        scales=_scales(tasks=_TASKS),
    ),
    Study(
        name="order",
        title="Sentence-order prediction, next-sentence prediction, or neither",
        question="What does each second objective teach, and what does it cost?",
        source="Table 5",
        measures=("sop_accuracy", "nsp_accuracy", "masked_accuracy", "masked_loss"),
        rows=(
            Row(
                name="none",
                settings={"order": "none"},
                paper={
                    "MLM": 54.9,
                    "NSP": 52.4,
                    "SOP": 53.3,
                    **_cells("88.6 78.1 81.5 89.9 61.7 79.0"),
                },
            ),
            Row(
                name="nsp",
                settings={"order": "nsp"},
                paper={
                    "MLM": 54.5,
                    "NSP": 90.5,
                    "SOP": 52.0,
                    **_cells("88.4 77.2 81.6 91.1 62.3 79.2"),
                },
            ),
            Row(
                name="sop",
                settings={"order": "sop"},
                paper={
                    "MLM": 54.0,
                    "NSP": 78.9,
                    "SOP": 86.5,
                    **_cells("89.3 80.0 82.0 90.3 64.0 80.1"),
                },
            ),
        ),
        control="none",
        scales=_scales(
            gpu=_ORDER_LENGTH | {"tokens": 200_000_000},
            tasks=_TASKS,
            note=_SMALL_NOTE.replace("60 M", "200 M").replace("of 128", "of 64"),
        ),
    ),
    Study(
        name="depth",
        title="Number of layers, all shared",
        question="How far does applying the same layer more often help?",
        source="Table 11",
        measures=("masked_accuracy", "masked_loss", "seconds"),
        rows=tuple(
            Row(
                name=f"{depth} layers",
                settings=_encoder(num_layers=depth) | {"depth": None},
                paper=_cells(cells),
            )
            for depth, cells in _DEPTH_CELLS.items()
        ),
        control="12 layers",
        scales=_scales(
            gpu={"preset": "litebert-mini"},
            preset="albert-large-v2",
            note=_SMALL_NOTE.replace("small", "mini").replace("384", "256"),
        ),
    ),
    Study(
        name="width",
        title="Width of three shared layers",
        question="How far does a wider layer help?",
        source="Table 12",
        measures=("masked_accuracy", "masked_loss", "seconds"),
        rows=tuple(_width_row(size, cells) for size, cells in _WIDTH_CELLS.items()),
        control="1 × width",
        scales=_scales(
            gpu={"preset": "litebert-mini", "encoder": {"num_layers": 3}},
            cpu={"encoder": {"num_layers": 3}},
            preset="albert-large-v2",
        ),
    ),
    Study(
        name="dropout",
        title="Dropout in pretraining",
        question="Does a shared encoder gain from training without dropout?",
        source="Table 8 and Figure 2",
        chart="curves",
        measures=("masked_accuracy", "masked_loss", "gap"),
        rows=(
            Row(name="no dropout", settings=_dropout(0.0), paper={"MNLI": 90.4, "Avg": 90.7}),
            Row(name="dropout 0.1", settings=_dropout(0.1), paper={"MNLI": 90.0, "Avg": 90.4}),
        ),
        scales=_scales(preset="albert-xxlarge-v2"),
    ),
    Study(
        name="degradation",
        title="Twice the width without sharing",
        question="Does a BERT of twice the width get worse, as bert-xlarge did?",
        source="the first version of the paper: bert-large RACE 73.9, bert-xlarge 54.3",
        measures=("masked_accuracy", "masked_loss", "gap"),
        rows=(
            Row(name="width 1", settings=_encoder(share="none"), paper={"RACE": 73.9}),
            Row(
                name="width 2",
                settings=_encoder(
                    share="none", hidden_size=2048, embedding_size=2048, ffn_size=8192
                ),
                at={
                    "gpu-hour": _encoder(
                        hidden_size=768, num_attention_heads=12, ffn_size=3072, embedding_size=128
                    ),
                    "cpu": _encoder(hidden_size=256, ffn_size=1024, embedding_size=128),
                },
                paper={"RACE": 54.3},
            ),
        ),
        scales=_scales(preset="bert-large"),
    ),
    Study(
        name="oscillation",
        title="How far each layer moves the states",
        question="Do the states of a shared encoder settle, as at a fixed point, or keep moving?",
        source="Figure 1",
        chart="distances",
        measures=("masked_accuracy", "masked_loss"),
        rows=(
            Row(name="all shared", settings=_encoder(share="all")),
            Row(name="nothing shared", settings=_encoder(share="none")),
        ),
        scales=_scales(preset="albert-large-v2"),
    ),
    Study(
        name="positions",
        title="Learned, sinusoidal and rotary positions",
        question="How much does a shared encoder gain from rotary positions?",
        measures=("masked_loss", "masked_accuracy"),
        rows=(
            Row(name="learned", settings=_encoder(positions="learned")),
            Row(name="sinusoidal", settings=_encoder(positions="sinusoidal")),
            Row(name="rotary", settings=_encoder(positions="rotary")),
        ),
        scales=_scales(),
    ),
    Study(
        name="masking",
        title="How much to mask, and in what spans",
        question="Which share of tokens, and n-grams of which length, teach most?",
        measures=("masked_loss", "masked_accuracy"),
        rows=(
            *(
                Row(name=f"{share} %, n-grams", settings={"mask_fraction": share / 100})
                for share in (15, 25, 35, 50)
            ),
            Row(name="35 %, single words", settings={"mask_fraction": 0.35, "max_ngram": 1}),
        ),
        control="15 %, n-grams",
        scales=_scales(cpu={"max_ngram": 3}),
    ),
    Study(
        name="plans",
        title="Ways to share a layer",
        question="Which way of sharing gains most for the parameters that it adds?",
        measures=("masked_loss", "masked_accuracy", "seconds"),
        rows=(
            Row(name="all shared"),
            Row(name="sequence of two groups", settings=_encoder(num_groups=2)),
            Row(
                name="cycle of two layers",
                settings=_encoder(layers_per_group=2, num_layers=6),
                at={"cpu": _encoder(num_layers=2)},
            ),
            Row(
                name="reversed cycle of two layers",
                settings=_encoder(layers_per_group=2, num_layers=6, cycle="reversed"),
                at={"cpu": _encoder(num_layers=2)},
            ),
            Row(name="unshared ends", settings=_encoder(unshared_ends=1)),
            Row(name="adapters of rank 32", settings=_encoder(adapter_rank=32)),
            Row(name="nothing shared", settings=_encoder(share="none")),
        ),
        scales=_scales(cpu={"depth": None, "encoder": {"num_layers": 4}}),
    ),
    Study(
        name="objective",
        title="Masked tokens or replaced tokens",
        question="Which objective makes the better model for fine-tuning, at equal time?",
        measures=("seconds", "sop_accuracy"),
        rows=(
            Row(name="masked tokens"),
            Row(
                name="replaced tokens",
                settings={"objective": "rtd", "mask_fraction": 0.2, "learning_rate": 3e-3},
                at={"gpu-hour": {"tokens": 42_000_000}},
            ),
        ),
        scales=_scales(tasks=_TASKS),
    ),
    Study(
        name="optimizer",
        title="LAMB, AdamW, Muon",
        question="Which optimizer learns most from the same tokens?",
        measures=("masked_loss", "masked_accuracy", "seconds"),
        rows=(
            Row(name="Muon"),
            Row(name="AdamW", settings={"optimizer": "adamw", "learning_rate": 1e-3}),
            Row(name="LAMB", settings={"optimizer": "lamb", "learning_rate": 2.5e-3}),
        ),
        scales={name: scale for name, scale in _scales().items() if name != "paper"},
    ),
)

STUDIES: dict[str, Study] = {study.name: study for study in _CATALOG}
"""By name."""


def find_study(name: str) -> Study:
    """The study of that name; ConfigError names the known ones."""
    check_known("study", name, STUDIES)
    return STUDIES[name]
