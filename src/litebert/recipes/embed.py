"""Fine-tuning of embeddings as frozen data: named values in; a checked recipe out."""

from dataclasses import dataclass, field

from litebert.checks import check_number, shorten
from litebert.config import Pooling
from litebert.errors import ConfigError
from litebert.recipes.optimizer import OptimizerSpec
from litebert.recipes.pretrain import DType
from litebert.recipes.recipe import EpochsRecipe


@dataclass(frozen=True, kw_only=True)
class EmbedRecipe(EpochsRecipe):
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
    """Precision of the layers: auto is bfloat16 on GPUs that support it, float32 elsewhere. On a
    processor with bfloat16 instructions (see `litebert doctor`) bfloat16 is faster."""
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

    def __post_init__(self) -> None:
        self._check_common()
        check_number(self, "temperature", 1e-4, 100)
        object.__setattr__(self, "matryoshka", tuple(self.matryoshka))
        if any(type(size) is not int or size < 1 for size in self.matryoshka):
            raise ConfigError(
                f"matryoshka is sizes of vectors from 1; got {shorten(self.matryoshka)}"
            )
