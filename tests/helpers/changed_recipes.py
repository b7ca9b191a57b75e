"""A recipe of each kind in which every setting has a value that is not its default; the docstrings
of settings."""

import ast
import inspect
from itertools import pairwise

from litebert.recipes import FinetuneRecipe, FractionStages, OptimizerSpec, PretrainRecipe, Stages
from litebert.recipes.class_weights import ClassWeights

PRETRAIN = PretrainRecipe(
    preset="tiny",
    overrides=(("num_layers", 4), ("norm", "pre"), ("ffn_dropout", 0.1)),
    steps=100,
    tokens=None,
    batch_size=Stages.parse("0:8,50:16"),
    reference_batch_size=8,
    microbatch_tokens=256,
    sequence_length=Stages.parse("0:16,0.5:32"),
    extend_positions=False,
    depth=Stages.parse("0:2,0.1:4"),
    optimizer=OptimizerSpec(
        name="lamb",
        learning_rate=1 / 3,
        betas=(0.8, 0.95),
        momentum=0.9,
        epsilon=1e-7,
        weight_decay=0.1,
        bias_correction=False,
        norm_clamp=(0.0, 10.0),
        warmup=7,
        schedule="stable",
        decay_power=2.0,
        decay_end=0.1,
        decay_fraction=0.3,
        max_grad_norm=0.5,
    ),
    seed=2**40 + 1,
    objective="rtd",
    generator_size=16,
    generator_layers=2,
    generator_tie="none",
    detection_weight=20.0,
    order="nsp",
    mask_fraction=FractionStages.parse("0:0.35,0.8:0.2"),
    mask_share=0.85,
    random_share=0.0,
    evaluate_mask_fraction=0.25,
    max_masked=20,
    max_ngram=1,
    copies=3,
    short_probability=0.0,
    one_segment="random",
    cutting="last",
    random_specials=True,
    heldout_fraction=0.1,
    evaluate_every=0,
    evaluate_tokens=1_000,
    save_every=10,
    keep_snapshots=5,
    dtype="float32",
    compile="off",
    checkpoint_every=2,
    recompute=True,
    max_skips=1,
    max_rollbacks=0,
    spike_factor=10.0,
    plateau_steps=0,
    plateau_margin=0.5,
)
FINETUNE = FinetuneRecipe(
    task="rte",
    steps=70,
    batch_size=5,
    max_length=64,
    class_weights=ClassWeights("balanced"),
    optimizer=OptimizerSpec(
        name="lamb", learning_rate=1e-3, betas=(0.8, 0.9), norm_clamp=(0.0, 10.0), warmup=7
    ),
    encoder_dropout=0.2,
    head_dropout=0.0,
    exits="each",
    exit_distillation=0.5,
    exit_temperature=1.0,
    seed=3,
    random_weights=True,
    calibrate=True,
    evaluations=2,
    patience=0,
    retries=0,
    stride=32,
    max_question=16,
    max_answer=8,
    beam=2,
    null_search="train",
    microbatch_tokens=1_000,
    evaluate_tokens=500,
    save_every=0,
    keep_snapshots=1,
    dtype="float32",
    compile="on",
    checkpoint_every=2,
    max_skips=1,
    max_rollbacks=0,
    spike_factor=10.0,
)


def docstrings(settings: type) -> dict[str, str]:
    """The docstring under each field of a settings class, on one line."""
    body = ast.parse(inspect.getsource(settings)).body[0].body  # type: ignore[attr-defined]
    return {
        node.target.id: " ".join(after.value.value.split())
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr)
    }
