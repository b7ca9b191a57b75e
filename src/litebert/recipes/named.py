"""The named recipes: the paper's, two for one GPU, and the demo's."""

from dataclasses import replace

from litebert.checks import check_known
from litebert.recipes.optimizer import LAMB_BATCH_SIZE, OPTIMIZERS, OptimizerSpec
from litebert.recipes.pretrain import PretrainRecipe
from litebert.recipes.stages import FractionStages, Stages

NAMED: dict[str, PretrainRecipe] = {
    # ALBERT §4.1 and Google's released flags: 4096 × 512 tokens for 125,000 steps; 20 predictions
    # per example, 40 copies of the data, each masked once; create_pretraining_data.py's examples.
    "paper": PretrainRecipe(
        preset="albert-base-v2",
        overrides=(),
        steps=125_000,
        tokens=None,
        batch_size=Stages.constant(4096),
        sequence_length=Stages.constant(512),
        optimizer=replace(OPTIMIZERS["lamb"], warmup=3_125),
        reference_batch_size=LAMB_BATCH_SIZE,
        order="sop",
        mask_fraction=FractionStages.constant(0.15),
        max_masked=20,
        max_ngram=3,
        copies=40,
        short_probability=0.1,
        one_segment="random",
        cutting="last",
        random_specials=True,
        evaluate_every=5_000,
        save_every=1_000,
        plateau_steps=10_000,
    ),
    # The best found with 60 M tokens: docs/decisions/recipe.md.
    "affordable": PretrainRecipe(),
    # The paper's own post-norm and learned positions, which AlbertModel of transformers has:
    # docs/decisions/plateau.md.
    "affordable-post": PretrainRecipe(
        preset="albert-base-v2",
        overrides=(),
        batch_size=Stages.constant(256),
        mask_fraction=FractionStages.constant(0.15),
        optimizer=OptimizerSpec(name="muon", learning_rate=1e-3),
    ),
    # Minutes on two cores: the small model of `litebert demo`. Attention to neighboring words is
    # learned soon in sequences of 16 tokens, and not within minutes in sequences of 64: so short
    # sequences first, and single words masked, whose neighbors are visible.
    "demo": PretrainRecipe(
        preset="albert-base-v2",
        overrides=(
            ("norm", "pre"),
            ("hidden_size", 128),
            ("num_layers", 3),
            ("num_attention_heads", 4),
            ("ffn_size", 512),
            ("max_positions", 64),
            ("init_std", 0.1),
            ("residual_init", 0.1),
            ("positions", "rotary"),
        ),
        tokens=2_400_000,
        batch_size=Stages(((0, 64), (0.6, 16))),
        sequence_length=Stages(((0, 16), (0.6, 64))),
        depth=Stages(((0, 2), (0.6, 3))),
        mask_fraction=FractionStages.constant(0.15),
        max_ngram=1,
        short_probability=0.0,
        heldout_fraction=0.1,
        evaluate_every=400,
        evaluate_tokens=20_000,
        save_every=400,
        plateau_steps=0,
        dtype="float32",
        compile="off",
        optimizer=OptimizerSpec(name="muon", learning_rate=5e-3),
    ),
}


def named(name: str) -> PretrainRecipe:
    """The recipe called `name`, or a ConfigError that names the known ones."""
    check_known("recipe", name, NAMED)
    return NAMED[name]
