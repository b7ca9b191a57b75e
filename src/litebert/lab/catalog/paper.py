"""Tables and figures of the ALBERT paper whose rows are trained."""

from collections.abc import Iterable
from typing import Any

from litebert.lab.catalog.parts import (
    CPU_NOTE,
    MINI_NOTE,
    SMALL_NOTE,
    cells,
    encoder,
    scales,
)
from litebert.lab.study import Row, Study

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
    for (share, size), numbers in _EMBEDDING_CELLS.items():
        name = "not shared" if share == "none" else "all shared"
        yield Row(
            name=f"{name}, E = H/{768 // size}",
            settings=encoder(share=share, embedding_size=size),
            at={
                "gpu-hour": encoder(embedding_size=size // 2),
                "cpu": encoder(embedding_size=128 * size // 768 // 2 * 2 or 2),
            },
            paper={"E": size, **cells(numbers)},
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
    for (size, share), numbers in _SHARING_CELLS.items():
        where = "E = H" if size == 768 else "E = H/6"
        yield Row(
            name=f"{where}, {_SHARED_NAMES[share]}",
            settings=encoder(share=share, embedding_size=size),
            at={
                "gpu-hour": encoder(embedding_size=384 if size == 768 else 64),
                "cpu": encoder(embedding_size=128 if size == 768 else 22),
            },
            paper=cells(numbers),
        )
    for groups in (2, 3):
        yield Row(
            name=f"E = H/6, {groups} groups",
            settings=encoder(num_groups=groups, embedding_size=128),
            at={"gpu-hour": encoder(embedding_size=64), "cpu": encoder(embedding_size=22)},
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


def _width_row(size: int, numbers: str) -> Row:
    gpu, cpu = size * 256 // 1024, size * 64 // 1024
    return Row(
        name=f"{size // 1024} × width",
        settings=encoder(
            num_layers=3, hidden_size=size, num_attention_heads=size // 64, ffn_size=4 * size
        ),
        at={
            "gpu-hour": encoder(hidden_size=gpu, num_attention_heads=gpu // 64, ffn_size=4 * gpu),
            "cpu": encoder(hidden_size=cpu, num_attention_heads=cpu // 32, ffn_size=4 * cpu),
        },
        paper={"H": size, **cells(numbers)},
    )


def _depth_rows() -> Iterable[Row]:
    """As in the paper, each deeper network starts from the weights of the one before it."""
    start = ""
    for depth, numbers in _DEPTH_CELLS.items():
        name = f"{depth} layers"
        settings = encoder(num_layers=depth) | {"depth": None}
        yield Row(name=name, settings=settings, start=start, paper=cells(numbers))
        start = name


_ORDER_CELLS = {
    "none": (54.9, 52.4, 53.3, "88.6 78.1 81.5 89.9 61.7 79.0"),
    "nsp": (54.5, 90.5, 52.0, "88.4 77.2 81.6 91.1 62.3 79.2"),
    "sop": (54.0, 78.9, 86.5, "89.3 80.0 82.0 90.3 64.0 80.1"),
}


def _order_rows() -> Iterable[Row]:
    for order, (masked, nsp, sop, numbers) in _ORDER_CELLS.items():
        own = {"MLM": masked, "NSP": nsp, "SOP": sop}
        yield Row(name=order, settings={"order": order}, paper=own | cells(numbers))


_STARTS = "Each row but the first starts from the weights of the one before."
_ORDER_LENGTH = {"sequence_length": 64, "batch_size": 256}


def _dropout(probability: float) -> dict[str, Any]:
    names = ("embedding_dropout", "attention_output_dropout", "ffn_dropout", "attention_dropout")
    return {"encoder": dict.fromkeys(names, probability)}


_CHECKPOINTS = ("first checkpoint", "second checkpoint", "third checkpoint")

PAPER = (
    Study(
        name="embedding",
        title="Embedding size, shared and not",
        question="How narrow may the embedding be, with and without shared layers?",
        source="Table 3",
        measures=("masked_accuracy", "masked_loss", "sop_accuracy", "touched"),
        probes=("rows",),
        interaction=(
            "all shared, E = H/1",
            "all shared, E = H/6",
            "not shared, E = H/1",
            "not shared, E = H/6",
        ),
        rows=tuple(_embedding_rows()),
        control="all shared, E = H/6",
        scales=scales(),
    ),
    Study(
        name="sharing",
        title="What sharing parameters across layers costs",
        question="What is lost by sharing attention, feed-forward or both, at two embedding sizes?",
        source="Table 4",
        measures=("masked_accuracy", "masked_loss", "gap", "sop_accuracy"),
        probes=("gap",),
        interaction=(
            "E = H, nothing shared",
            "E = H, all shared",
            "E = H/6, nothing shared",
            "E = H/6, all shared",
        ),
        rows=tuple(_sharing_rows()),
        control="E = H/6, all shared",
        scales=scales(
            cpu={"depth": None, "encoder": {"num_layers": 6}},
            cpu_note=CPU_NOTE.replace("3 layers", "6 layers"),
        ),
    ),
    Study(
        name="order",
        title="Sentence-order prediction, next-sentence prediction, or neither",
        question="What does each second objective teach, and what does it cost?",
        source="Table 5",
        measures=(
            "sop_accuracy",
            "nsp_accuracy",
            "sop_probe",
            "nsp_probe",
            "masked_accuracy",
            "masked_loss",
        ),
        probes=("order",),
        rows=tuple(_order_rows()),
        control="none",
        scales=scales(
            gpu=_ORDER_LENGTH | {"tokens": 200_000_000},
            note=SMALL_NOTE.replace("60 M", "200 M").replace("of 128", "of 64"),
        ),
    ),
    Study(
        name="depth",
        title="Number of layers, all shared",
        question="How far does applying the same layer more often help?",
        source="Table 11",
        measures=("masked_accuracy", "masked_loss", "seconds"),
        rows=tuple(_depth_rows()),
        control="12 layers",
        scales=scales(
            gpu={"preset": "litebert-mini"},
            preset="albert-large-v2",
            note=f"{MINI_NOTE} {_STARTS}",
            cpu_note=f"{CPU_NOTE} {_STARTS}",
        ),
    ),
    Study(
        name="width",
        title="Width of three shared layers",
        question="How far does a wider layer help?",
        source="Table 12",
        measures=("masked_accuracy", "masked_loss", "seconds"),
        rows=tuple(_width_row(size, numbers) for size, numbers in _WIDTH_CELLS.items()),
        control="1 × width",
        scales=scales(
            gpu={"preset": "litebert-mini"},
            preset="albert-large-v2",
            note=MINI_NOTE.replace("12 layers", "3 layers").replace(
                "of width 256", "of 1 to 6 × 256"
            ),
            cpu_note=CPU_NOTE.replace("of width 128", "of 1 to 6 × 64"),
            paper_note="albert-large-v2 with 3 layers, the paper's recipe: for a cluster.",
        ),
    ),
    Study(
        name="dropout",
        title="Dropout in pretraining",
        question="Does a shared encoder gain from training without dropout?",
        source="Table 8 and Figure 2",
        chart="curves",
        probes=("gap",),
        measures=("masked_accuracy", "masked_loss", "gap"),
        rows=(
            Row(
                name="no dropout",
                settings=_dropout(0.0),
                paper=cells("94.8 89.9 90.4 96.5 86.1 90.7"),
            ),
            Row(
                name="dropout 0.1",
                settings=_dropout(0.1),
                paper=cells("94.7 89.6 90.0 96.3 85.7 90.4"),
            ),
        ),
        scales=scales(
            preset="albert-xxlarge-v2",
            note=SMALL_NOTE.replace("262 G tokens in", "about 1 M steps of"),
            paper_note="albert-xxlarge-v2, the paper's recipe of 125,000 steps: for a cluster. The "
            "paper's rows had about 1 M steps.",
        ),
    ),
    Study(
        name="degradation",
        title="Twice the width without sharing",
        question="Does a BERT of twice the width get worse, as bert-xlarge did?",
        source="the first version of the paper: bert-large RACE 73.9, bert-xlarge 54.3",
        probes=("gap",),
        measures=("masked_accuracy", "masked_loss", "gap"),
        rows=(
            Row(name="width 1", settings=encoder(share="none"), paper={"RACE": 73.9}),
            Row(
                name="width 2",
                settings=encoder(
                    share="none", hidden_size=2048, embedding_size=2048, ffn_size=8192
                ),
                at={
                    "gpu-hour": encoder(
                        hidden_size=768, num_attention_heads=12, ffn_size=3072, embedding_size=128
                    ),
                    "cpu": encoder(hidden_size=256, ffn_size=1024, embedding_size=128),
                },
                paper={"RACE": 54.3},
            ),
        ),
        scales=scales(
            preset="bert-large",
            note="in place of bert-large and bert-xlarge: 12 unshared layers of width 384 and of "
            "width 768, pre-norm, rotary positions, 60 M tokens in sequences of 128.",
            cpu_note="in place of bert-large and bert-xlarge: 3 unshared layers of width 128 and "
            "of width 256, 1.5 M tokens in short sequences.",
        ),
    ),
    Study(
        name="oscillation",
        title="How far each layer moves the states",
        question="Do the states of a shared encoder settle, as at a fixed point, or keep moving?",
        source="Figure 1",
        chart="distances",
        probes=("distances",),
        measures=("masked_accuracy", "masked_loss"),
        rows=(
            Row(name="all shared", settings=encoder(share="all")),
            Row(name="nothing shared", settings=encoder(share="none")),
        ),
        scales=scales(preset="albert-large-v2", tasks=()),
    ),
    Study(
        name="data",
        title="More text",
        question="Does a second corpus help, on held-out text of both and downstream?",
        source="Table 7",
        measures=("text_loss", "text_accuracy", "masked_loss", "masked_accuracy"),
        rows=(
            Row(name="one corpus", paper=cells("89.3 80.0 81.6 90.3 64.0 80.1")),
            Row(
                name="with more text",
                data="more",
                paper=cells("88.8 79.1 82.4 92.8 66.0 80.8"),
            ),
        ),
        scales=scales(
            note=f"{SMALL_NOTE} Both rows read as many tokens. Their own held-out texts differ: "
            "only the columns of --text and of tasks compare.",
            cpu_note=f"{CPU_NOTE} Only the columns of --text and of tasks compare.",
            paper_note="albert-base-v2, the paper's recipe. Only the columns of --text and of "
            "tasks compare.",
        ),
    ),
    Study(
        name="deep-wide",
        title="More layers for a wide model",
        question="Does a wide shared model gain from twice the layers?",
        source="Table 13",
        measures=("masked_accuracy", "masked_loss", "seconds"),
        rows=(
            Row(
                name="1 × depth",
                settings=encoder(num_layers=12) | {"depth": None},
                at={"cpu": encoder(num_layers=3)},
                paper=cells("94.0 88.3 87.8 95.4 82.5 88.7"),
            ),
            Row(
                name="2 × depth",
                settings=encoder(num_layers=24) | {"depth": None},
                at={"cpu": encoder(num_layers=6)},
                paper=cells("94.1 88.1 88.0 95.2 82.3 88.7"),
            ),
        ),
        scales=scales(
            gpu={"preset": "litebert-base", "learning_rate": 4e-3},
            cpu={"encoder": {"hidden_size": 256, "num_attention_heads": 8, "ffn_size": 1024}},
            preset="albert-xxlarge-v2",
            note=SMALL_NOTE.replace("small (12 layers of width 384", "base (12 or 24 of width 768"),
            cpu_note=CPU_NOTE.replace("3 layers of width 128", "3 or 6 layers of width 256"),
        ),
    ),
    Study(
        name="equal-time",
        title="Equal training time",
        question="At equal time, is a wide shared model better than a narrow unshared one?",
        source="Table 6",
        measures=("masked_accuracy", "masked_loss", "seconds", "tokens"),
        rows=(
            Row(
                name="nothing shared",
                settings=encoder(share="none"),
                at={"paper": {"preset": "bert-large", "overrides": {}}},
                paper=cells("93.5 86.9 87.8 94.6 77.3 87.2"),
            ),
            Row(
                name="all shared, wider",
                at={
                    "cpu": encoder(hidden_size=256, num_attention_heads=8, ffn_size=1024),
                    "gpu-hour": {"preset": "litebert-base", "learning_rate": 4e-3},
                    "paper": {"preset": "albert-xxlarge-v2", "overrides": {}},
                },
                paper=cells("94.0 88.3 87.8 95.4 82.5 88.7"),
            ),
        ),
        scales=scales(
            minutes=(2.0, 2.0, 2040.0),
            note="12 unshared layers of width 384, and 12 shared ones of width 768, pre-norm, "
            "rotary positions, both trained for 2 minutes; run one at a time.",
            cpu_note="3 unshared layers of width 128, and 3 shared ones of width 256, both trained "
            "for 2 minutes; run one at a time.",
            paper_note="bert-large and albert-xxlarge-v2, both trained for 34 hours.",
        ),
    ),
    Study(
        name="ensemble",
        title="Ensembles of checkpoints and seeds",
        question="What is gained by averaging models of different pretraining steps and seeds?",
        source="Tables 9 and 10 (RACE: one model 86.5, the ensemble 89.4)",
        measures=("masked_accuracy", "masked_loss"),
        rows=(
            Row(name="first checkpoint", at={"gpu-hour": {"tokens": 40_000_000}}),
            Row(
                name="second checkpoint",
                start="first checkpoint",
                at={"gpu-hour": {"tokens": 20_000_000}, "cpu": {"tokens": 750_000}},
            ),
            Row(
                name="third checkpoint",
                start="second checkpoint",
                at={"gpu-hour": {"tokens": 20_000_000}, "cpu": {"tokens": 750_000}},
                paper={"RACE": 86.5},
            ),
            Row(name="three checkpoints of a seed", members=_CHECKPOINTS),
            Row(name="all seeds of the third", members=_CHECKPOINTS[2:], together="all"),
            Row(
                name="all checkpoints and seeds",
                members=_CHECKPOINTS,
                together="all",
                paper={"RACE": 89.4},
            ),
        ),
        control="third checkpoint",
        scales=scales(
            note=SMALL_NOTE.replace("60 M tokens", "40, 60 and 80 M tokens")
            + " A checkpoint starts from the one before; ensembles average all members.",
        ),
    ),
)
