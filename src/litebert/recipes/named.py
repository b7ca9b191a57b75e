"""The named recipes: the paper's, those that one device can afford, and the demo's."""

from litebert.checks import check_known
from litebert.recipes.optimizer import OptimizerSpec
from litebert.recipes.pretrain import PretrainRecipe
from litebert.recipes.stages import Stages

NAMED: dict[str, PretrainRecipe] = {
    # ALBERT §4.1 and Google's released flags: 4096 × 512 tokens for 125,000 steps; 20 predictions
    # in an example, and 40 copies of the data, each masked once.
    "paper": PretrainRecipe(
        overrides=(),
        steps=125_000,
        tokens=None,
        batch_size=Stages.constant(4096),
        rate_batch_size=4096,
        sequence_length=Stages.constant(512),
        max_masked=20,
        copies=40,
        evaluate_every=5_000,
        save_every=1_000,
        plateau_steps=10_000,
        optimizer=OptimizerSpec(
            name="lamb",
            rate=1.76e-3,
            betas=(0.9, 0.999),
            epsilon=1e-6,
            weight_decay=0.01,
            bias_correction=False,
            warmup=3_125,
            decay="reference",
        ),
    ),
    # Measured to leave the plateau within 12 M tokens and to reach a loss of 4.5 with 60 M:
    # docs/decisions/plateau.md.
    "affordable": PretrainRecipe(),
    # The paper's own post-norm, which needs half the rate.
    "affordable-post": PretrainRecipe(
        overrides=(), optimizer=OptimizerSpec(name="muon", rate=1e-3)
    ),
    # Minutes on two cores: the small shape of `litebert demo`. Among 16 tokens a word's neighbors
    # are soon found, among 64 not within minutes; so short sequences first, and whole words one at
    # a time, whose neighbors can be seen.
    "demo": PretrainRecipe(
        overrides=(
            ("norm", "pre"),
            ("hidden_size", 128),
            ("num_layers", 3),
            ("num_attention_heads", 4),
            ("ffn_size", 512),
            ("max_positions", 64),
            ("init_std", 0.1),
            ("residual_init", 0.1),
            ("position_init", "sinusoidal"),
        ),
        tokens=2_400_000,
        batch_size=Stages(((0, 64), (0.6, 16))),
        sequence_length=Stages(((0, 16), (0.6, 64))),
        depth=Stages(((0, 2), (0.6, 3))),
        max_ngram=1,
        short_probability=0.0,
        heldout_fraction=0.1,
        evaluate_every=400,
        evaluate_tokens=20_000,
        save_every=400,
        plateau_steps=0,
        dtype="float32",
        compile="off",
        optimizer=OptimizerSpec(name="muon", rate=5e-3),
    ),
}


def named(name: str) -> PretrainRecipe:
    """The recipe called `name`, or a ConfigError that names the known ones."""
    check_known("recipe", name, NAMED)
    return NAMED[name]
