"""Fine-tuning of embeddings as frozen data: named values in; a checked recipe out."""

from dataclasses import dataclass, field, replace
from typing import get_args

from litebert.checks import check_choice, check_number, check_type, check_whole, shorten
from litebert.config import MAX_DROPOUT, Pooling
from litebert.errors import ConfigError
from litebert.recipes.optimizer import LIMIT, OPTIMIZERS, OptimizerName, OptimizerSpec
from litebert.recipes.pretrain import DType
from litebert.recipes.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class EmbedRecipe(Recipe):
    """How an encoder learns that the vectors of related texts are close."""

    epochs: float | None = 1.0
    """Length of the run in passes over the examples, instead of steps."""
    steps: int | None = None
    """Length of the run in optimizer steps, instead of epochs."""
    batch_size: int = 128
    """Examples (pairs, triplets, texts) per step. The positives of the others in a batch are an
    example's negatives, so that results depend on it."""
    max_length: int = 128
    """Tokens per text with [CLS] and [SEP]; longer texts are truncated in training."""
    pooling: Pooling = "mean"
    """A text's vector: mean of all tokens' states, or cls. Saved with the model."""
    normalize: bool = True
    """Whether the model's vectors have length 1 unless the user says otherwise. Saved with the
    model; training compares by cosine either way."""
    temperature: float = 0.05
    """Cosines are divided by it before the softmax over the batch (contrastive learning)."""
    symmetric: bool = False
    """Also choose each positive's anchor among the batch's anchors; the loss is the mean of the two
    directions."""
    matryoshka: tuple[int, ...] = ()
    """Sizes of vectors, in addition to the full one, that are trained as well: the loss is summed
    over the first so many numbers of each vector."""
    optimizer: OptimizerSpec = field(
        default=OptimizerSpec(learning_rate=5e-5, betas=(0.9, 0.999), warmup=0.1)
    )
    """The optimizer, its constants and its learning-rate schedule."""
    encoder_dropout: float = 0.1
    """Dropout probability in the encoder. Texts alone need it: two passes of a text differ in
    nothing else."""
    seed: int = 0
    """Seed of the order of examples and dropout."""
    evaluations: int = 10
    """Evaluations on dev, evenly spaced over the run; the best checkpoint is kept."""
    microbatch_tokens: int = 16_384
    """Tokens per forward and backward, at most. Gradients are those of the whole batch all the same
    (GradCache); only the draws of dropout depend on it."""
    save_every: int = 500
    """Steps between snapshots; 0 for only when interrupted."""
    keep_snapshots: int = 2
    """Number of snapshots to keep during the run; a finished run needs none."""
    dtype: DType = "auto"
    """Precision of the layers: auto is bfloat16 on GPUs that support it, float32 elsewhere."""
    checkpoint_every: int = 0
    """Gradient checkpointing: save the activations of every n-th layer and recompute the others; 0
    for none."""
    max_skips: int = 5
    """Consecutive steps with a non-finite loss or gradient that are skipped before the run rolls
    back."""
    max_rollbacks: int = 2
    """Rollbacks to the last snapshot before the run stops as diverged."""
    spike_factor: float = 0.0
    """Skip steps whose gradient norm is this many times its running median; 0 disables the rule."""

    practical = frozenset(
        {
            "save_every",
            "keep_snapshots",
            "checkpoint_every",
            "max_skips",
            "max_rollbacks",
            "spike_factor",
        }
    )
    budgets = ("epochs", "steps")

    def __post_init__(self) -> None:
        check_type(self, "optimizer", OptimizerSpec, "an OptimizerSpec")
        check_choice(self, "pooling", get_args(Pooling))
        check_choice(self, "dtype", get_args(DType))
        for name in ("normalize", "symmetric"):
            check_type(self, name, bool, "true or false")
        check_number(self, "epochs", 0.001, 1e6, optional=True)
        check_whole(self, "steps", 1, LIMIT, optional=True)
        check_whole(self, "batch_size", 1, 2**31)
        check_whole(self, "max_length", 5, 2**20)
        check_number(self, "temperature", 1e-4, 100)
        object.__setattr__(self, "matryoshka", tuple(self.matryoshka))
        if any(type(size) is not int or size < 1 for size in self.matryoshka):
            raise ConfigError(
                f"matryoshka is sizes of vectors from 1; got {shorten(self.matryoshka)}"
            )
        check_number(self, "encoder_dropout", 0, MAX_DROPOUT)
        check_whole(self, "seed", 0, 2**63 - 1)
        check_whole(self, "evaluations", 1, 2**31)
        check_whole(self, "microbatch_tokens", self.max_length, 2**31)
        check_whole(self, "keep_snapshots", 1, 10_000)
        for name in ("save_every", "checkpoint_every", "max_skips", "max_rollbacks"):
            check_whole(self, name, 0, LIMIT)
        check_number(self, "spike_factor", 0, 1e9)
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError(
                f"a run has steps or epochs, the other none; got steps {self.steps}, epochs "
                f"{self.epochs}"
            )

    def default_optimizer(self, name: OptimizerName) -> OptimizerSpec:
        """The optimizer's own constants, with this recipe's learning rate and schedule."""
        spec = self.optimizer
        return replace(
            OPTIMIZERS[name],
            learning_rate=spec.learning_rate,
            betas=spec.betas,
            warmup=spec.warmup,
            schedule=spec.schedule,
            max_grad_norm=spec.max_grad_norm,
        )

    def total_steps(self, num_units: int) -> int:
        """Optimizer steps over that many examples."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(round(self.epochs * -(-num_units // self.batch_size)), 1)
