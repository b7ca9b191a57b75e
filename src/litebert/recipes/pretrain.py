"""A pretraining run as frozen data: named values in; a checked recipe, its JSON, its fingerprint
and its number of steps out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from litebert.checks import check_number, check_type, check_whole, is_number, shorten
from litebert.config import (
    DROPOUTS,
    SIZE_LIMITS,
    EncoderConfig,
    GeneratorConfig,
    Tie,
    current_settings,
    generator_of,
    preset,
)
from litebert.errors import ConfigError
from litebert.recipes.optimizer import (
    LAMB_BATCH_SIZE,
    LIMIT,
    OPTIMIZERS,
    OptimizerName,
    OptimizerSpec,
)
from litebert.recipes.recipe import Recipe
from litebert.recipes.stages import FractionStages, Stages

Objective = Literal["masked", "rtd"]
Order = Literal["sop", "nsp", "none"]
OneSegment = Literal["drop", "random"]
Cutting = Literal["even", "last"]
DType = Literal["auto", "float32", "bfloat16"]
PretrainDType = Literal["auto", "float32", "bfloat16", "fp8"]
Compile = Literal["auto", "on", "off"]


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe(Recipe):
    """What a run learns from its data, and how. The defaults are the recipe `affordable`."""

    preset: str = "litebert-base"
    """Named shape of the encoder (litebert info lists them); the vocabulary size is the
    tokenizer's."""
    overrides: tuple[tuple[str, int | float | bool | str], ...] = (("norm", "pre"),)
    """Encoder settings that differ from the preset, such as norm=post num_layers=6."""
    steps: int | None = None
    """Length of the run in optimizer steps, instead of tokens."""
    tokens: int | None = 60_000_000
    """Length of the run in tokens, padding included, instead of steps."""
    batch_size: Stages = field(default=Stages.constant(128))
    """Sequences per step, over all ranks and microbatches; a number or stages."""
    sequence_length: Stages = field(default=Stages.constant(128))
    """Tokens per example with [CLS] and [SEP]; a number or stages."""
    depth: Stages | None = None
    """Layers applied, as stages that end at the encoder's num_layers (ALBERT §A.1); none for all
    layers from the start."""
    extend_positions: bool = True
    """Extrapolate position embeddings that a longer stage uses for the first time from the trained
    ones; sinusoidal and rotary ones need no such step."""
    optimizer: OptimizerSpec = field(
        default=replace(OPTIMIZERS["muon"], learning_rate=4e-3, weight_decay=0.3)
    )
    """The optimizer, its constants and its learning-rate schedule."""
    reference_batch_size: int | None = None
    """Batch size, in sequences, that learning_rate is stated for; at n times as many it is √n times
    as high. none for the same learning rate at every batch size."""
    seed: int = 0
    """Seed of weights, order of examples, masks and dropout."""
    objective: Objective = "masked"
    """First objective: masked (predict masked tokens) or rtd (replaced-token detection, ELECTRA: a
    generator fills the masks, the encoder finds what it filled wrongly)."""
    generator_size: int | None = None
    """With rtd: width of the generator's states, a multiple of the encoder's head size; none for a
    third of the encoder's heads."""
    generator_layers: int | None = None
    """With rtd: layers of the generator; none for as many as the encoder has."""
    generator_tie: Tie = "embeddings"
    """With rtd: what the generator shares with the encoder: embeddings (its tables), all (it is the
    encoder's first layers) or none."""
    detection_weight: float = 50.0
    """With rtd: weight of a token's mean detection loss beside the generator's mean loss."""
    order: Order = "sop"
    """Second objective: sop (swapped segments), nsp (segment of another document) or none."""
    mask_fraction: FractionStages = field(default=FractionStages.constant(0.35))
    """Fraction of an example's tokens to predict; a number or stages."""
    mask_share: float = 0.8
    """Fraction of the tokens to predict that become [MASK]."""
    random_share: float = 0.1
    """Fraction of the tokens to predict that become a random token; those left over stay as they
    are."""
    max_masked: int | None = None
    """Tokens to predict per example, at most; none for no limit (Google's release: 20)."""
    max_ngram: int = 3
    """Longest n-gram of whole words masked together; n is drawn in proportion to 1/n (ALBERT
    §4.1)."""
    copies: int | None = None
    """Static masking: epoch e repeats the cuts, swaps and masks of epoch e mod copies (Google's
    release: 40). none for dynamic masking, new in every epoch."""
    short_probability: float = 0.1
    """Probability that an example is shorter, its length drawn evenly from 2 tokens up."""
    one_segment: OneSegment = "drop"
    """A last sentence alone in its document: drop it, or (Google's release) pair it with a random
    segment of another document, labeled as swapped."""
    cutting: Cutting = "even"
    """How segments are cut to length: even cuts both alike, so that lengths do not reveal the
    order; last cuts the end only (nearest to Google's release)."""
    random_specials: bool = False
    """Whether a random replacement of a masked token may be a special token, as in Google's
    release."""
    heldout_fraction: float = 0.01
    """Fraction of documents held out for evaluation; 0 for none."""
    evaluate_every: int = 500
    """Steps between evaluations on held-out documents; 0 for only at the end."""
    evaluate_tokens: int = 1_000_000
    """Tokens per evaluation, at most."""
    evaluate_mask_fraction: float = 0.15
    """Fraction of an example's tokens to predict in evaluation, whatever training does: 80 % become
    [MASK], 10 % random, without max_masked."""
    save_every: int = 500
    """Steps between snapshots; 0 for only when interrupted and at the end."""
    keep_snapshots: int = 2
    """Number of snapshots to keep; older ones are deleted."""
    microbatch_tokens: int = 32_768
    """Tokens per forward and backward on one device, at most. It affects memory, not results."""
    dtype: PretrainDType = "auto"
    """Precision of the layers: auto is bfloat16 on GPUs that support it, float32 elsewhere; fp8 is
    bfloat16 with the large matmuls in 8-bit floats."""
    compile: Compile = "auto"
    """torch.compile; auto uses it where it pays."""
    checkpoint_every: int = 0
    """Gradient checkpointing: save the activations of every n-th layer and recompute the others; 0
    for none."""
    recompute: bool = False
    """Recompute norms and activations of compiled layers in the backward pass: less memory, a
    little slower."""
    max_skips: int = 5
    """Consecutive steps with a non-finite loss or gradient that are skipped before the run rolls
    back."""
    max_rollbacks: int = 2
    """Rollbacks to the last snapshot before the run stops as diverged."""
    spike_factor: float = 0.0
    """Skip steps whose gradient norm is this many times its running median; 0 disables the rule."""
    plateau_steps: int = 2_000
    """Steps after which the run warns that the masked-token loss is still at unigram entropy; 0
    disables the warning."""
    plateau_margin: float = 0.3
    """Nats below unigram entropy at which the plateau counts as left."""

    practical = Recipe.practical | {
        "microbatch_tokens",
        "evaluate_every",
        "evaluate_tokens",
        "compile",
        "recompute",
        "plateau_steps",
        "plateau_margin",
    }
    budgets = ("steps", "tokens")

    def __post_init__(self) -> None:
        if is_number(self.mask_fraction):  # a plain number, as recipes had before stages
            number = float(self.mask_fraction)  # type: ignore[arg-type]
            object.__setattr__(self, "mask_fraction", FractionStages.constant(number))
        self._check_common()
        check_whole(self, "generator_size", 1, SIZE_LIMITS["hidden_size"], optional=True)
        check_whole(self, "generator_layers", 1, SIZE_LIMITS["num_layers"], optional=True)
        check_number(self, "detection_weight", 0, 1e6)
        check_whole(self, "tokens", 1, LIMIT, optional=True)
        check_whole(self, "microbatch_tokens", 1, 2**31)
        check_whole(self, "max_masked", 1, 2**20, optional=True)
        check_whole(self, "max_ngram", 1, 64)
        check_whole(self, "copies", 1, LIMIT, optional=True)
        check_whole(self, "evaluate_tokens", 1, LIMIT)
        check_whole(self, "reference_batch_size", 1, LIMIT, optional=True)
        for name in ("evaluate_every", "plateau_steps"):
            check_whole(self, name, 0, LIMIT)
        for name in ("mask_share", "random_share", "short_probability"):
            check_number(self, name, 0, 1)
        check_number(self, "evaluate_mask_fraction", 0.001, 0.9)
        check_number(self, "heldout_fraction", 0, 0.5)
        check_number(self, "plateau_margin", 0, 100)
        for name in ("batch_size", "sequence_length") + (() if self.depth is None else ("depth",)):
            check_type(self, name, Stages, "stages, as in 128 or 0:128,0.5:512")
        example = "a fraction or stages of it, as in 0.15 or 0:0.35,0.8:0.15"
        check_type(self, "mask_fraction", FractionStages, example)
        check_type(self, "preset", str, "the name of a preset")
        pairs = self.overrides
        if not isinstance(pairs, tuple) or not all(
            isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in pairs
        ):
            raise ConfigError(f"overrides are (setting, value) pairs; got {shorten(pairs)}")
        if len(dict(pairs)) < len(pairs):
            raise ConfigError(f"overrides name each setting once; got {shorten(pairs)}")
        self._check_together()

    def _check_together(self) -> None:
        if (self.steps is None) == (self.tokens is None):
            raise ConfigError(
                f"a budget is steps or tokens, the other none; got steps {self.steps}, tokens "
                f"{self.tokens}"
            )
        self._check_warmup(self.total_steps)
        encoder, longest = self.encoder, max(self.sequence_length.values)
        if min(self.sequence_length.values) < 5:
            raise ConfigError(
                f"sequence_length is at least 5, [CLS] a [SEP] b [SEP]; got {self.sequence_length}"
            )
        if longest > encoder.max_positions:
            raise ConfigError(
                f"sequence_length reaches {longest}, the encoder reads at most "
                f"{encoder.max_positions}"
            )
        if self.microbatch_tokens < longest:
            raise ConfigError(
                f"microbatch_tokens is {self.microbatch_tokens}, too few for one sequence of "
                f"{longest}"
            )
        if any(not 0.001 <= fraction <= 0.9 for fraction in self.mask_fraction.values):
            raise ConfigError(
                f"mask_fraction is a number from 0.001 to 0.9; got {self.mask_fraction}"
            )
        check_shares(self.mask_share, self.random_share)
        if self.order != "none" and not encoder.pooler:
            raise ConfigError(
                f"order {self.order} is predicted from the pooled state, and the encoder has no "
                "pooler; use --encoder pooler=true, or --order none"
            )
        if encoder.reversible and self.checkpoint_every:
            raise ConfigError(
                "reversible layers save no activations that checkpointing could recompute; "
                f"checkpoint_every is then 0, got {self.checkpoint_every}"
            )
        if self.objective == "rtd":
            self.generator(encoder)
        if self.depth is not None and (
            max(self.depth.values) > encoder.num_layers
            or self.depth.values[-1] != encoder.num_layers
        ):
            raise ConfigError(
                f"depth ends at the encoder's {encoder.num_layers} layers, and none is more; got "
                f"{self.depth}"
            )

    @property
    def encoder(self) -> EncoderConfig:
        """The preset with the overrides applied."""
        overrides = current_settings(dict(self.overrides))
        return EncoderConfig.from_dict(preset(self.preset).to_dict() | overrides)

    def generator(self, encoder: EncoderConfig) -> GeneratorConfig | None:
        """The generator of this encoder; None where no tokens are replaced."""
        if self.objective == "masked":
            return None
        return generator_of(
            encoder,
            size=self.generator_size,
            layers=self.generator_layers,
            tie=self.generator_tie,
        )

    def changed(self, settings: Mapping[str, Any]) -> "PretrainRecipe":
        """As `Recipe.changed`. `encoder` adds to the overrides, of which another preset keeps only
        the norm; another learning rate holds for every batch size."""
        own = dict(settings)
        overrides = current_settings(dict(own.pop("overrides", self.overrides)))
        if "preset" in settings and "overrides" not in settings:
            overrides = {name: value for name, value in overrides.items() if name == "norm"}
        encoder = current_settings(dict(own.pop("encoder", {})))
        if "vocab_size" in encoder:
            raise ConfigError(
                "the vocabulary is that of the data's tokenizer; leave vocab_size out"
            )
        own["overrides"] = tuple((overrides | encoder).items())
        if "learning_rate" in own:
            own.setdefault("reference_batch_size", None)
        elif own.get("optimizer", self.optimizer.name) != self.optimizer.name:
            stated = LAMB_BATCH_SIZE if own["optimizer"] == "lamb" else None
            own.setdefault("reference_batch_size", stated)
        return super().changed(own)

    def default_optimizer(self, name: OptimizerName) -> OptimizerSpec:
        return OPTIMIZERS[name]

    @property
    def total_steps(self) -> int:
        """Optimizer steps in the run: `steps`, or as many as it takes to read `tokens`."""
        if self.steps is not None:
            return self.steps
        assert self.tokens is not None
        low, high = 1, self.tokens  # a step reads at least one token
        while low < high:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if self.tokens_in(middle) >= self.tokens else (middle + 1, high)
            )
        return low

    def tokens_in(self, steps: int) -> int:
        """Tokens read by a run of `steps` steps."""
        starts = {
            start
            for stages in (self.batch_size, self.sequence_length)
            for start in stages.starts(steps)
        }
        bounds = [*sorted(start for start in starts if start < steps), steps]
        return sum(
            (end - start) * self.batch_size.at(start, steps) * self.sequence_length.at(start, steps)
            for start, end in pairwise(bounds)
        )


def check_shares(mask_share: float, random_share: float) -> None:
    """Refuse shares of [MASK] and of random tokens that are more than everything."""
    if mask_share + random_share > 1 + 1e-9:
        raise ConfigError(
            "mask_share and random_share are fractions of the same tokens, at most 1 together; got "
            f"{mask_share:g} and {random_share:g}"
        )


def with_shape(settings: Mapping[str, Any], encoder: EncoderConfig) -> dict[str, Any]:
    """`settings` of a recipe and, unless they name a preset, the shape of a checkpoint's encoder: a
    preset and what differs from it. The vocabulary is the data's; the pooler and dropout are the
    run's own, since fine-tuned checkpoints have those of their task."""
    if "preset" in settings:
        return dict(settings)
    preset_name = "albert-base-v2"
    base = preset(preset_name).to_dict()
    overrides = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in encoder.to_dict().items()
        if name not in ("vocab_size", "pooler", *DROPOUTS) and value != base[name]
    }
    overrides |= current_settings(dict(settings.get("overrides", ())))
    return {**settings, "preset": preset_name, "overrides": overrides}
