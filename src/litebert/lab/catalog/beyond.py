"""Questions that the paper left open."""

from litebert.lab.catalog.parts import SMALL_NOTE, encoder, scales
from litebert.lab.study import Row, Study

BEYOND = (
    Study(
        name="positions",
        title="Learned, sinusoidal and rotary positions",
        question="How much does a shared encoder gain from rotary positions?",
        rows=(
            Row(name="learned", settings=encoder(positions="learned")),
            Row(name="sinusoidal", settings=encoder(positions="sinusoidal")),
            Row(name="rotary", settings=encoder(positions="rotary")),
        ),
        scales=scales(tasks=()),
    ),
    Study(
        name="masking",
        title="How much to mask, and in what spans",
        question="Which share of tokens, and n-grams of which length, teach most?",
        rows=(
            *(
                Row(name=f"{share} %, n-grams", settings={"mask_fraction": share / 100})
                for share in (15, 25, 35, 50)
            ),
            Row(name="35 %, single words", settings={"mask_fraction": 0.35, "max_ngram": 1}),
            Row(
                name="35 %, [MASK] alone",
                settings={"mask_fraction": 0.35, "mask_share": 1.0, "random_share": 0.0},
            ),
        ),
        control="15 %, n-grams",
        scales=scales(cpu={"max_ngram": 3}, tasks=()),
    ),
    Study(
        name="plans",
        title="Ways to share a layer",
        question="Which way of sharing gains most for the parameters that it adds?",
        measures=("masked_loss", "masked_accuracy", "seconds"),
        rows=(
            Row(name="all shared"),
            Row(name="sequence of two groups", settings=encoder(num_groups=2)),
            Row(
                name="cycle of two layers",
                settings=encoder(layers_per_group=2, num_layers=6),
                at={"cpu": encoder(num_layers=2)},
            ),
            Row(
                name="reversed cycle of two layers",
                settings=encoder(layers_per_group=2, num_layers=6, cycle="reversed"),
                at={"cpu": encoder(num_layers=2)},
            ),
            Row(name="unshared ends", settings=encoder(unshared_ends=1)),
            Row(name="adapters of rank 32", settings=encoder(adapter_rank=32)),
            Row(name="nothing shared", settings=encoder(share="none")),
        ),
        scales=scales(cpu={"depth": None, "encoder": {"num_layers": 4}}, tasks=()),
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
        scales=scales(),
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
        scales={name: scale for name, scale in scales(tasks=()).items() if name != "paper"},
    ),
    Study(
        name="exits",
        title="Early exits by criterion",
        question="What do fewer layers cost, where all are shared and where none is?",
        chart="exits",
        measures=(
            "exit_full",
            "exit_fixed",
            "exit_patience",
            "exit_confidence",
            "exit_cumulative",
        ),
        rows=(
            Row(name="all shared"),
            Row(name="nothing shared", settings=encoder(share="none")),
        ),
        scales=scales(
            tasks=("cola", "mrpc", "rte", "sst2"),
            paper_tasks=("mnli", "sst2"),
            finetune={"exits": "each"},
        ),
    ),
    Study(
        name="agreement",
        title="Grammar, shared and not",
        question="Does a shared encoder know subject–verb agreement as well as an unshared one?",
        probes=("blimp",),
        measures=("agreement", "blimp", "masked_accuracy", "masked_loss"),
        rows=(
            Row(name="all shared"),
            Row(name="attention shared", settings=encoder(share="attention")),
            Row(name="feed-forward shared", settings=encoder(share="ffn")),
            Row(name="nothing shared", settings=encoder(share="none")),
        ),
        scales=scales(pairs=50, tasks=(), paper_tasks=()),
    ),
    Study(
        name="baselines",
        title="Before masked encoders",
        question="What do word and document vectors, and a causal model, reach on the same tasks?",
        source="none; CoVe, ELMo and XLNet of its related work are left out",
        probes=("vectors",),
        measures=("frozen", "masked_accuracy"),
        rows=(
            Row(name="masked model"),
            Row(name="causal language model", method="causal"),
            Row(name="word2vec", method="word2vec"),
            Row(name="doc2vec", method="doc2vec"),
            Row(name="GloVe-like", method="glove"),
        ),
        scales=scales(
            paper_tasks=("mnli", "sst2"),
            note=f"{SMALL_NOTE} Baselines have vectors of the same width, or the same layers, and "
            "read as many tokens. Frozen: a linear model of mean vectors.",
        ),
    ),
)
