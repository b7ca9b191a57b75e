"""A complete description of a fine-tuning run, as frozen data. In: named values. Out: a checked
recipe. No torch here.
 The paper's values for each task, and how they are scaled to a smaller model and to other data,
stand in table14.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from litebert.checks import check_choice, check_number, check_type, check_whole
from litebert.config import MAX_DROPOUT
from litebert.errors import ConfigError
from litebert.recipes.optimizer import LIMIT, OptimizerSpec
from litebert.recipes.plain import Recipe, known_settings, plain_settings
from litebert.recipes.pretrain import Compile, DType

NullSearch = Literal["dev", "train"]

PRACTICAL = frozenset(
    {
        "microbatch_tokens",
        "evaluate_tokens",
        "save_every",
        "keep_snapshots",
        "checkpoint_every",
        "compile",
    }
    | {"max_skips", "max_rollbacks", "spike_factor"}
)
"""Settings that a resumed run may change."""


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe(Recipe):
    """What a run learns from a task's examples, and how."""

    task: str
    """Name of the task: sst2, squad2, race …, or classify, pair, regress, choose, answer, tag for
    one's own files."""
    epochs: float | None = None
    """Times that every example is read; or none, and steps decides."""
    steps: int | None = None
    """Optimizer updates; or none, and epochs decides."""
    batch_size: int = 32
    """Texts, questions with all their options, or windows in a step, over all ranks and
    microbatches."""
    max_length: int = 512
    """Tokens in an input with [CLS] and [SEP]; longer texts are cut, longer contexts of questions
    read in windows."""
    optimizer: OptimizerSpec = field(
        default=OptimizerSpec(rate=2e-5, betas=(0.9, 0.999), warmup=0.1)
    )
    """The optimizer, its constants and the course of the rate."""
    encoder_dropout: float = 0.0
    """Probability of dropping a value at each of the encoder's places for it (the paper's ALBERT
    DR)."""
    head_dropout: float = 0.1
    """Probability of dropping a value before the head's last product (the paper's classifier
    DR)."""
    seed: int = 0
    """Seed of the head, the order of examples and dropout."""
    random_weights: bool = False
    """Forget what was pretrained and keep the shape alone: shows what pretraining is worth."""
    evaluations: int = 10
    """Looks at dev, evenly over the run; the best weights are kept."""
    patience: int = 5
    """Looks at dev in a row without a better score after which the run ends; 0 for never."""
    retries: int = 2
    """New beginnings, each with a third of the rate and twice the warm-up, where a run never left
    chance."""
    stride: int = 128
    """Tokens from one window of a long context to the next."""
    max_question: int = 64
    """Tokens of a question, at most."""
    max_answer: int = 30
    """Tokens of an answer, at most."""
    beam: int = 5
    """Starts of an answer, and ends for each, that the joint head looks at."""
    null_search: NullSearch = "dev"
    """Where the threshold for "no answer" is searched: on dev (the paper), or on a part of train
    kept aside for it."""
    microbatch_tokens: int = 16_384
    """Tokens in one forward and backward on one device, at most; memory, not results, depends on
    it."""
    evaluate_tokens: int | None = None
    """Tokens in one batch of an evaluation; none for what suits the device."""
    save_every: int = 500
    """Steps between snapshots; 0 for only when interrupted."""
    keep_snapshots: int = 2
    """Snapshots kept while the run goes on; a finished run needs none."""
    dtype: DType = "auto"
    """Arithmetic of the layers: auto takes bfloat16 where the device is made for it, float32
    elsewhere."""
    compile: Compile = "auto"
    """torch.compile on a GPU: auto uses it in runs that are long enough to pay for it; off also
    records no CUDA graphs."""
    checkpoint_every: int = 0
    """Gradient checkpointing: keep the states of every n-th layer and compute the others again; 0
    keeps all."""
    max_skips: int = 5
    """Steps in a row with a loss or gradient that is not finite that are left out before the run
    goes back."""
    max_rollbacks: int = 2
    """Returns to the last snapshot before the run counts as diverged."""
    spike_factor: float = 0.0
    """A gradient norm this many times its running median counts as not finite; 0 for no such
    rule."""

    practical = PRACTICAL
    budgets = ("epochs", "steps")

    def __post_init__(self) -> None:
        check_type(self, "task", str, "the name of a task")
        check_type(self, "optimizer", OptimizerSpec, "an OptimizerSpec")
        check_type(self, "random_weights", bool, "true or false")
        check_choice(self, "null_search", get_args(NullSearch))
        check_choice(self, "dtype", get_args(DType))
        check_choice(self, "compile", get_args(Compile))
        check_number(self, "epochs", 0.001, 1e6, optional=True)
        check_whole(self, "steps", 1, LIMIT, optional=True)
        check_whole(self, "seed", 0, 2**63 - 1)
        check_whole(self, "keep_snapshots", 1, 10_000)
        for name in ("batch_size", "evaluations", "stride", "max_question", "max_answer", "beam"):
            check_whole(self, name, 1, 2**31)
        check_whole(self, "max_length", 5, 2**20)
        check_whole(self, "retries", 0, 100)
        for name in ("patience", "save_every", "checkpoint_every", "max_skips", "max_rollbacks"):
            check_whole(self, name, 0, LIMIT)
        for name in ("encoder_dropout", "head_dropout"):
            check_number(self, name, 0, MAX_DROPOUT)
        check_whole(self, "microbatch_tokens", self.max_length, 2**31)
        check_whole(self, "evaluate_tokens", 1, 2**31, optional=True)
        check_number(self, "spike_factor", 0, 1e9)
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError(
                f"a run has steps or epochs, the other none; got steps {self.steps}, epochs "
                f"{self.epochs}"
            )
        if self.steps is not None and self.optimizer.warmup_steps(self.steps) > self.steps:
            raise ConfigError(
                f"warm-up takes {self.optimizer.warmup} steps, the run has {self.steps}; shorten "
                "the warm-up"
            )

    def total_steps(self, num_units: int) -> int:
        """Optimizer updates over so many texts, questions or windows."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(round(self.epochs * -(-num_units // self.batch_size)), 1)

    def to_dict(self) -> dict[str, Any]:
        return plain_settings(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "FinetuneRecipe":
        return cls(**known_settings("recipe", cls, data))
