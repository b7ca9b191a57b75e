"""A fine-tuning run as frozen data: named values in; a checked recipe out.

`paper_recipe` scales ALBERT's Table 14 to another model and other data. The table is for xxlarge,
4096 wide, and the full train sets:

learning rate  × 4096 / hidden size: Adam's change of a sum of n terms grows with n.
steps          as many epochs as in the paper; a run of fewer than 800 steps, the paper's shortest,
               is lengthened up to those, but to no more than 10 epochs.
warm-up        the same fraction of the run.
batch size     at most a fiftieth of the examples, but at least 8.
max length     at most the encoder's max_positions.

With the paper's number of examples, steps, warm-up and batch size are the paper's to the digit.
"""

from dataclasses import dataclass, field
from typing import Literal

from litebert.checks import check_known, check_number, check_type, check_whole
from litebert.config import MAX_DROPOUT, Exits
from litebert.recipes.class_weights import ClassWeights
from litebert.recipes.optimizer import LIMIT, OptimizerSpec
from litebert.recipes.pretrain import Compile, DType
from litebert.recipes.recipe import EpochsRecipe, Recipe

NullSearch = Literal["dev", "train"]


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe(EpochsRecipe):
    """What a run learns from a task's examples, and how."""

    task: str
    """Name of the task: sst2, squad2, race …, or classify, pair, regress, choose, answer, tag for
    your own files."""
    epochs: float | None = None
    """Length of the run in passes over the examples, instead of steps."""
    steps: int | None = None
    """Length of the run in optimizer steps, instead of epochs."""
    batch_size: int = 32
    """Examples per step (for answer: windows), over all ranks and microbatches."""
    max_length: int = 512
    """Tokens per input with [CLS] and [SEP]; longer texts are truncated, longer contexts of
    questions are split into windows."""
    optimizer: OptimizerSpec = field(
        default=OptimizerSpec(learning_rate=2e-5, betas=(0.9, 0.999), warmup=0.1)
    )
    """The optimizer, its constants and its learning-rate schedule."""
    encoder_dropout: float = 0.0
    """Dropout probability in the encoder (the paper's ALBERT DR)."""
    head_dropout: float = 0.1
    """Dropout probability before the head's last linear layer (the paper's classifier DR)."""
    class_weights: ClassWeights = field(default=ClassWeights())
    """Weight of each label's examples in the loss: none; balanced, the inverse of its frequency in
    train; or LABEL=WEIGHT …, 1 for the others. The checkpoint is then selected by macro F1."""
    exits: Exits = "none"
    """Train heads that answer after fewer layers (classify, pair, regress): one for all depths, or
    each with a head and pooler of its own. A depth's loss weighs as much as it is deep."""
    exit_distillation: float = 1.0
    """With exits: weight of each earlier depth's distance to the last depth's answer, beside its
    own loss; 0 for none."""
    exit_temperature: float = 2.0
    """With exits: temperature at which that distance compares probabilities."""
    calibrate: bool = False
    """Keep a tenth of train aside (at most 10,000 examples) and choose on it the temperature at
    which probabilities are those of being right (classify and pair with one label)."""
    seed: int = 0
    """Seed of the head, the order of examples and dropout."""
    random_weights: bool = False
    """Start from random weights instead of the model's: a baseline that shows what pretraining
    contributes."""
    evaluations: int = 10
    """Evaluations on dev, evenly spaced over the run; the best checkpoint is kept."""
    patience: int = 5
    """Stop after this many evaluations without improvement; 0 for never."""
    retries: int = 2
    """Restarts of a run that never beats the majority baseline, each with a third of the learning
    rate and twice the warm-up."""
    stride: int = 128
    """Tokens between the starts of two windows of a long context."""
    max_question: int = 64
    """Tokens per question, at most."""
    max_answer: int = 30
    """Tokens per answer, at most."""
    beam: int = 5
    """Beam size of the joint span head: starts of an answer, and ends for each."""
    null_search: NullSearch = "dev"
    """Where the threshold for "no answer" is tuned: on dev (the paper), or on a tenth of train that
    is held out for it."""
    microbatch_tokens: int = 16_384
    """Tokens per forward and backward on one device, at most. It affects memory, not results."""
    evaluate_tokens: int | None = None
    """Tokens per batch of an evaluation; none for a size that suits the device."""
    save_every: int = 500
    """Steps between snapshots; 0 for only when interrupted."""
    keep_snapshots: int = 2
    """Number of snapshots to keep during the run; a finished run needs none."""
    dtype: DType = "auto"
    """Precision of the layers: auto is bfloat16 on GPUs that support it, float32 elsewhere. On a
    processor with bfloat16 instructions (see `litebert doctor`) bfloat16 is faster."""
    compile: Compile = "auto"
    """torch.compile on a GPU: auto uses it in runs that are long enough to gain from it; off also
    disables CUDA graphs."""
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

    practical = Recipe.practical | {"microbatch_tokens", "evaluate_tokens", "compile"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_weights", ClassWeights.of(self.class_weights))
        self._check_common()
        check_type(self, "task", str, "the name of a task")
        check_number(self, "exit_distillation", 0, 1e6)
        check_number(self, "exit_temperature", 0.01, 100)
        for name in ("stride", "max_question", "max_answer", "beam"):
            check_whole(self, name, 1, 2**31)
        check_whole(self, "retries", 0, 100)
        check_whole(self, "patience", 0, LIMIT)
        check_number(self, "head_dropout", 0, MAX_DROPOUT)
        check_whole(self, "evaluate_tokens", 1, 2**31, optional=True)


_XXLARGE = 4096
_SHORTEST = 800
_MOST_EPOCHS = 10
_LEAST_BATCH, _LEAST_BATCHES = 8, 50
_SAME = 0.02
"""Relative difference in examples up to which a train set counts as the paper's: SQuAD's questions
are counted in two ways."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row of Table 14."""

    learning_rate: float
    batch_size: int
    dropout: float = 0.0
    """The encoder's (ALBERT DR); the classifier's is 0.1 in every row."""
    steps: int
    warmup: int
    max_length: int = 512
    examples: int
    """Size of the task's official train set."""


TABLE_14: dict[str, _Row] = {
    "cola": _Row(learning_rate=1e-5, batch_size=16, steps=5336, warmup=320, examples=8_551),
    "stsb": _Row(learning_rate=2e-5, batch_size=16, steps=3598, warmup=214, examples=5_749),
    "sst2": _Row(learning_rate=1e-5, batch_size=32, steps=20935, warmup=1256, examples=67_349),
    "mnli": _Row(learning_rate=3e-5, batch_size=128, steps=10000, warmup=1000, examples=392_702),
    "qnli": _Row(learning_rate=1e-5, batch_size=32, steps=33112, warmup=1986, examples=104_743),
    "qqp": _Row(
        learning_rate=5e-5, batch_size=128, dropout=0.1, steps=14000, warmup=1000, examples=363_846
    ),
    "rte": _Row(
        learning_rate=3e-5, batch_size=32, dropout=0.1, steps=800, warmup=200, examples=2_490
    ),
    "mrpc": _Row(learning_rate=2e-5, batch_size=32, steps=800, warmup=200, examples=3_668),
    "wnli": _Row(
        learning_rate=2e-5, batch_size=16, dropout=0.1, steps=2000, warmup=250, examples=635
    ),
    "squad1": _Row(
        learning_rate=5e-5, batch_size=48, steps=3649, warmup=365, max_length=384, examples=87_599
    ),
    "squad2": _Row(learning_rate=3e-5, batch_size=48, steps=8144, warmup=814, examples=130_319),
    # The release's values for the v2 models: with the table's 2e-5 and dropout 0.1 they diverge.
    "race": _Row(learning_rate=1e-5, batch_size=32, steps=12000, warmup=1000, examples=87_866),
}
LIKE = {
    "classify": "sst2",
    "pair": "mrpc",
    "regress": "stsb",
    "choose": "race",
    "answer": "squad1",
    "tag": "sst2",
}
"""The task whose row your own files use."""
FROM_MNLI = ("rte", "stsb", "mrpc")
"""Tasks that the paper starts from a model fine-tuned on MNLI (footnote 4)."""


def paper_recipe(
    task: str, *, num_examples: int, hidden_size: int, max_positions: int, has_null: bool = False
) -> FinetuneRecipe:
    """Table 14 for this task, model and number of training examples."""
    name = "squad2" if task == "answer" and has_null else LIKE.get(task, task)
    check_known("task with a recipe", name, TABLE_14)
    row = TABLE_14[name]
    steps, batch_size, warmup = row.steps, row.batch_size, row.warmup
    if abs(num_examples / row.examples - 1) > _SAME:
        batch_size = min(batch_size, max(num_examples // _LEAST_BATCHES, _LEAST_BATCH))
        epochs = row.steps * row.batch_size / row.examples
        epochs = max(epochs, min(_SHORTEST * batch_size / max(num_examples, 1), _MOST_EPOCHS))
        steps = max(round(epochs * num_examples / batch_size), 1)
        warmup = round(row.warmup * steps / row.steps)
    return FinetuneRecipe(
        task=task,
        steps=steps,
        batch_size=batch_size,
        max_length=min(row.max_length, max_positions),
        encoder_dropout=row.dropout,
        optimizer=OptimizerSpec(
            learning_rate=row.learning_rate * _XXLARGE / hidden_size,
            betas=(0.9, 0.999),
            warmup=warmup,
        ),
    )
