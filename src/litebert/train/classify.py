"""Fine-tuning to classify texts (ALBERT §4.1, A.3): a pretrained encoder and labelled token ids in; a classifier out.

A job of the same loop as pretraining, and the run around it. A run of minutes keeps no snapshots: started again, it begins
anew. The weights that were best on dev are the ones kept.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.checkpoint import Checkpoint
from litebert.config import HeadConfig, ModelConfig
from litebert.errors import ConfigError, DataError
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.optim.schedule import rate_at
from litebert.recipes import OptimizerSpec
from litebert.train.folder import RunFolder, environment, write_json
from litebert.train.guard import Guard
from litebert.train.labelled import Labelled, LabelledBatch, collate, epoch_batches
from litebert.train.log import Log
from litebert.train.loop import Loop, State, Stopped
from litebert.train.progress import ProgressSink
from litebert.train.runtime import Runtime
from litebert.train.stop import StopSignal
from litebert.train.working import WorkingCopy

EVALUATION_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class ClassifyRecipe:
    """How a classifier is trained from a pretrained encoder."""

    epochs: int = 2
    """Times that every text is read."""
    batch_size: int = 32
    """Texts in a step."""
    optimizer: OptimizerSpec = field(default=OptimizerSpec(rate=1e-3, warmup=0.1))
    """AdamW with a linear warm-up and decay."""
    dropout: float = 0.1
    """Probability of dropping a value of the pooled state before the last product."""
    evaluations: int = 4
    """Looks at dev, evenly over the run; the best weights are kept."""
    seed: int = 0
    """Seed of the head, the order of texts and dropout."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "evaluations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is a whole number from 1; got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class ClassifySums:
    """Sums over a batch."""

    loss: Float[Tensor, ""]
    correct: Float[Tensor, ""]

    def __add__(self, other: "ClassifySums") -> "ClassifySums":
        return ClassifySums(loss=self.loss + other.loss, correct=self.correct + other.correct)

    def detach(self) -> "ClassifySums":
        return ClassifySums(loss=self.loss.detach(), correct=self.correct)

    def numbers(self) -> dict[str, Tensor]:
        return {"loss": self.loss, "correct": self.correct}


class ClassifyJob:
    """What the loop runs."""

    def __init__(self, recipe: ClassifyRecipe, texts: Labelled, runtime: Runtime, *, pad_id: int) -> None:
        self.recipe, self.texts, self.runtime, self.pad_id = recipe, texts, runtime, pad_id
        self.lengths = np.array([len(row) for row in texts.token_ids])
        self.per_epoch = -(-len(texts) // recipe.batch_size)
        self.steps = self.per_epoch * recipe.epochs
        self.seed = recipe.seed
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(self, step: int) -> LabelledBatch:
        epoch, number = divmod(step, self.per_epoch)
        if self._epoch[0] != epoch:
            found = epoch_batches(self.lengths, self.recipe.batch_size, seed=self.seed, epoch=epoch)
            self._epoch = (epoch, found)
        return collate(self.texts, self._epoch[1][number], self.pad_id)

    def counts(self, batch: LabelledBatch) -> dict[str, float]:
        return {"examples": float(len(batch)), "tokens": float(batch.token_ids.numel())}

    def microbatch_rows(self, step: int) -> int:
        return self.recipe.batch_size

    def losses(self, model: Model, microbatch: LabelledBatch, step: int) -> ClassifySums:
        labels = microbatch.labels.to(self.runtime.device)
        logits = classify_logits(model, microbatch, self.runtime.device)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return ClassifySums(loss=loss, correct=(logits.argmax(-1) == labels).sum().float())

    def mean(self, sums: ClassifySums, counts: dict[str, float]) -> Tensor:
        return sums.loss / counts["examples"]

    def rate(self, step: int) -> float:
        return rate_at(self.recipe.optimizer, step, self.steps)

    def describe(self, step: int, sums: dict[str, float], counts: dict[str, float]) -> dict[str, Any]:
        examples = max(counts["examples"], 1)
        return {
            "loss": sums["loss"] / examples,
            "accuracy": sums["correct"] / examples,
            "tokens": int(counts["tokens"]),
        }

    def name(self, batch: LabelledBatch) -> str:
        return f"a batch of {len(batch)} texts"


def classify_logits(model: Model, batch: LabelledBatch, device: torch.device) -> Float[Tensor, "batch labels"]:
    """A logit for each label, in float32."""
    states = model.encoder(batch.token_ids.to(device), None, batch.mask.to(device))
    return model.logits("classify", states).float()


@torch.no_grad()
def probabilities(
    model: Model, texts: Labelled, *, pad_id: int, device: torch.device, pause: Callable[[], None] = lambda: None
) -> Float[np.ndarray, "texts labels"]:
    """Of every label for every text; `pause` is called between batches and may raise."""
    order = np.argsort([len(row) for row in texts.token_ids], kind="stable")
    found = np.zeros((len(texts), len(model.config.heads[0].labels)), np.float32)
    training = model.training
    model.eval()
    try:
        for at in range(0, len(order), EVALUATION_ROWS):
            pause()
            chosen = order[at : at + EVALUATION_ROWS]
            logits = classify_logits(model, collate(texts, chosen, pad_id), device)
            found[chosen] = logits.softmax(-1).cpu().numpy()
    finally:
        model.train(training)
    return found


class Classification:
    """One run: `train()` fine-tunes, keeps the weights best on dev, and writes the run folder."""

    def __init__(
        self,
        recipe: ClassifyRecipe,
        pretrained: Checkpoint,
        labels: tuple[str, ...],
        *,
        train: Labelled,
        dev: Labelled,
        runtime: Runtime,
    ) -> None:
        if pretrained.tokenizer is None or not len(train) or not len(dev):
            raise DataError(
                f"a classifier needs a checkpoint with its tokenizer and texts to train and score on; "
                f"got {len(train)} and {len(dev)} texts"
            )
        self.recipe, self.tokenizer, self.dev, self.runtime = recipe, pretrained.tokenizer, dev, runtime
        runtime.seed(recipe.seed)
        head = HeadConfig(kind="classify", labels=labels, dropout=recipe.dropout)
        self.model = Model(ModelConfig(encoder=pretrained.model.config.encoder, heads=(head,)))
        self.model.encoder.load_state_dict(pretrained.model.encoder.state_dict())
        self.model.to(runtime.device)
        self.optimizer = make_optimizer(self.model.named_parameters(), recipe.optimizer)
        self.job = ClassifyJob(recipe, train, runtime, pad_id=self.tokenizer.pad_id)
        self.every = max(self.job.steps // recipe.evaluations, 1)
        self.start = self._weights()
        self.best, self.kept = -1.0, self.start

    def train(self, out: Path | str, *, progress: bool = True) -> dict[str, Any]:
        """Run from the beginning to the end in the folder `out`; the best score on dev."""
        folder = RunFolder(out)
        folder.hold()
        try:
            recipe = asdict(self.recipe) | {"labels": list(self.model.config.heads[0].labels)}
            write_json(folder.recipe, {"classify": recipe})
            write_json(folder.environment, environment(device=str(self.runtime.device), threads=torch.get_num_threads()))
            folder.write_status("running", step=0, steps=self.job.steps)
            with closing(Log(folder.metrics)) as self.log, ProgressSink(self.job.steps, silent=not progress) as shown:
                self.log.sinks = (shown,)
                state = self._loop().run(self.restore())
            self.model.load_state_dict(self.kept)
            Checkpoint(model=self.model, tokenizer=self.tokenizer).save(folder.final, replace=True)
            folder.write_status(
                "finished", step=state.step, steps=state.step, tokens=state.tokens, seconds=round(state.seconds, 3)
            )
            return {"steps": state.step, "tokens": state.tokens, "seconds": state.seconds, "score": self.best}
        except BaseException as error:
            folder.write_status("stopped", reason=str(error) or type(error).__name__)
            raise
        finally:
            folder.release()

    def _loop(self) -> Loop[Model, LabelledBatch, ClassifySums]:
        return Loop(
            self.job,
            working=WorkingCopy(self.model, torch.float32),
            optimizer=self.optimizer,
            runtime=self.runtime,
            guard=Guard(max_skips=5, max_rollbacks=2),
            log=self.log,
            save=lambda state: None,
            restore=self.restore,
            beside=self.beside,
            max_grad_norm=self.recipe.optimizer.max_grad_norm,
        )

    def restore(self) -> State:
        """Back to the pretrained weights: the beginning is the only snapshot."""
        self.model.load_state_dict(self.start)
        self.optimizer.state.clear()
        self.log.rewind(0)
        return State()

    def beside(self, state: State, stop: StopSignal) -> None:
        """Look at dev a few times and after the last step."""
        last = state.step == self.job.steps
        if not last and (state.step == 0 or state.step % self.every or state.step + self.every > self.job.steps):
            return

        def pause() -> None:
            if stop.wanted:
                raise Stopped

        guessed = self.predict(self.dev, pause=pause).argmax(1)
        score = float(np.mean(guessed == self.dev.labels))
        self.log.write("evaluation", state.step, score=score, tokens=state.tokens, seconds=round(state.seconds, 3))
        if score > self.best:
            self.best, self.kept = score, self._weights()

    def predict(self, texts: Labelled, *, pause: Callable[[], None] = lambda: None) -> Float[np.ndarray, "texts labels"]:
        """Probabilities of every label for every text."""
        return probabilities(self.model, texts, pad_id=self.tokenizer.pad_id, device=self.runtime.device, pause=pause)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
