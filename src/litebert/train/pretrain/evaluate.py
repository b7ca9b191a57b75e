"""Evaluation on held-out text: masked-token loss and accuracy, perplexity, both kinds of order
(ALBERT Table 5), and how well replaced tokens are detected; and a watch over training for the
plateau that ALBERT starts on.

The held-out examples and their masks are the same for every seed and step, and for every recipe of
the same length, order and max_ngram: segments are cut alike, and a fixed fraction is masked as BERT
does it (80 % [MASK], 10 % random), whatever training does. So numbers are comparable.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from litebert.data.batch import Batch
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.errors import DataError
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import Losses, detection_scores, losses_of, pretrain_losses
from litebert.objective.masked import needed_states
from litebert.recipes.pretrain import Order, PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer
from litebert.train.loop import BetweenSteps, Evaluated, Event, Incident, stop_check
from litebert.train.pretrain.job import PretrainJob
from litebert.train.run import Run, is_multiple
from litebert.train.runtime import Runtime

_ROWS = 64


class HeldoutScorer:
    """Examples of the held-out documents of a stream, made once for each length."""

    def __init__(
        self, stream: Stream, runtime: Runtime, *, tokens: int, mask_fraction: float = 0.15
    ) -> None:
        self.stream, self.runtime, self.tokens = stream, runtime, tokens
        self.mask_fraction = mask_fraction
        self._batches: dict[tuple[str, int], list[Batch | None]] = {}

    def check(self) -> None:
        """Say before the run, not at its first evaluation, where there is nothing to evaluate
        on."""
        try:
            self._heldout(self.stream.spec.order, self.stream.spec.max_length).num_examples()
        except DataError as error:
            fraction, count = self.stream.spec.heldout_fraction, self.stream.texts.num_documents
            raise DataError(
                f"nothing to evaluate on: of {count:,} documents {fraction:g} are held out, and "
                "that gives no example; "
                "raise --heldout-fraction, or set it to 0 for a run without evaluation"
            ) from error

    def batches(self, order: Order, length: int) -> list[Batch | None]:
        """This rank's share of the held-out examples; every rank has as many items, the last may be
        None."""
        if (order, length) not in self._batches:
            stream = self._heldout(order, length)
            count = min(max(self.tokens // length, 1), stream.num_examples())
            rounds = range(0, count, _ROWS * self.runtime.world_size)
            starts = [start + _ROWS * self.runtime.rank for start in rounds]
            self._batches[order, length] = [
                stream.batch(0, start, min(_ROWS, count - start)) if start < count else None
                for start in starts
            ]
        return self._batches[order, length]

    def _heldout(self, order: Order, length: int) -> Stream:
        spec = ExampleSpec(
            max_length=length,
            order=order,
            short_probability=0.0,
            mask_fraction=self.mask_fraction,
            max_ngram=self.stream.spec.max_ngram,
            heldout_fraction=self.stream.spec.heldout_fraction,
        )
        assert self.stream.folder is not None, "a stream over arrays has no tokenizer"
        return Stream.open(self.stream.folder, spec, split="heldout")

    def __call__(
        self,
        model: Model,
        *,
        length: int,
        depth: int | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Scores of `model`; `pause` is called before each batch, equally often on every rank, and
        may raise."""
        main: Order = self.stream.spec.order
        sums = self._measure(model, main, length, depth, pause)
        scores = {
            "masked_loss": sums["masked"] / sums["num_masked"],
            "masked_accuracy": sums["masked_correct"] / sums["num_masked"],
            "perplexity": math.exp(min(sums["masked"] / sums["num_masked"], 50.0)),
            "heldout_tokens": int(sums["num_tokens"]),
            "sequence_length": length,
        }
        if model.generator is not None:
            scores |= detection_scores(sums, num_tokens=sums["num_tokens"])
        if "order" in model.heads:
            scores["order_loss"] = sums["order"] / sums["num_examples"]
            orders: tuple[Order, ...] = ("sop", "nsp")
            for order in orders:
                counted = sums
                if order != main:
                    try:
                        counted = self._measure(model, order, length, depth, pause)
                    except DataError:  # of a corpus of one document there is no other segment
                        continue
                scores[f"{order}_accuracy"] = counted["order_correct"] / counted["num_examples"]
        return scores

    @torch.no_grad()
    def _measure(
        self, model: Model, order: Order, length: int, depth: int | None, pause: Callable[[], None]
    ) -> dict[str, float]:
        training = model.training
        sums = dict.fromkeys(
            losses_of(model).__dataclass_fields__,
            torch.zeros((), dtype=torch.float64, device=self.runtime.device),
        )
        counts = {"num_masked": 0.0, "num_examples": 0.0, "num_tokens": 0.0}
        model.eval()
        try:
            for batch in self.batches(order, length):
                pause()
                if batch is None:
                    continue
                host = batch.padded(draws=model.generator is not None)
                on_device = DeviceBatch.of(host, self.runtime.device)
                losses = pretrain_losses(model, on_device, depth=depth)
                sums = {name: sums[name] + number for name, number in losses.numbers().items()}
                counts["num_masked"] += batch.num_masked
                counts["num_examples"] += len(batch)
                counts["num_tokens"] += batch.num_tokens
        finally:
            model.train(training)
        return self.runtime.total({name: float(number) for name, number in sums.items()} | counts)


class HeldoutEvaluation:
    """A subscriber: scores held-out text where that is due and keeps the best checkpoint."""

    def __init__(
        self,
        run: Run[Batch, Losses],
        job: PretrainJob,
        heldout: HeldoutScorer | None,
        tokenizer: Tokenizer,
    ) -> None:
        self.run, self.job, self.heldout, self.tokenizer = run, job, heldout, tokenizer
        self.evaluated = -1
        self.best: float | None = None
        self.best_shape: tuple[int, int | None] = (0, None)
        """Length and depth that the best loss was measured at."""
        self.scores: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BetweenSteps) or self.heldout is None:
            return
        step, recipe = event.state.step, self.job.recipe
        is_due = event.is_last or is_multiple(step, recipe.evaluate_every)
        if is_due and step != self.evaluated:
            self._evaluate(self.heldout, event)

    def _evaluate(self, heldout: HeldoutScorer, event: BetweenSteps) -> None:
        state, run, model = event.state, self.run, self.run.learner.working.model
        last = max(state.step - 1, 0)
        length, depth = shape = self.job.feed.at(last)[0], self.job.depth(last)
        pause = stop_check(run.runtime, event.stop)
        scores = heldout(model, length=length, depth=depth, pause=pause)
        self.evaluated, self.scores, examples = state.step, scores, None
        if event.is_last and run.runtime.is_main:
            batch = heldout.batches(self.job.recipe.order, length)[0]
            assert batch is not None, "the first rank has the first batch"
            examples = filled_masks(model.filler, batch, self.tokenizer)
        run.emit(Evaluated(state=state, scores=scores, examples=examples))
        # losses of different lengths or depths are not comparable, nor are those of detection over
        # time: it becomes harder as the generator becomes better
        if self.best is None or shape != self.best_shape or scores["masked_loss"] < self.best:
            self.best, self.best_shape = scores["masked_loss"], shape
            if run.runtime.is_main:
                checkpoint = Checkpoint(model=run.learner.model, tokenizer=self.tokenizer)
                failure = run.write_checkpoint(checkpoint, run.folder.best)
                if failure:
                    run.emit(Incident(step=state.step, kind="snapshot", message=failure))

    def state_dict(self) -> dict[str, Any]:
        return {
            "evaluated": self.evaluated,
            "best": self.best,
            "best_shape": list(self.best_shape),
            "scores": self.scores,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.evaluated, self.best, self.scores = state["evaluated"], state["best"], state["scores"]
        # of 0.1.0's first snapshots the depth is that of the last evaluation
        before = self.job.depth(max(self.evaluated - 1, 0))
        length, depth = state.get("best_shape", (state.get("best_length", 0), before))
        self.best_shape = (length, depth)


@torch.no_grad()
def filled_masks(
    model: Model, batch: Batch, tokenizer: Tokenizer, *, count: int = 6, top: int = 5
) -> list[dict[str, Any]]:
    """The first `count` examples, each with its tokens, masked positions, true tokens and the
    model's best guesses."""
    device = next(model.parameters()).device
    batch = batch.rows(0, count)
    training = model.training
    model.eval()
    tensors = DeviceBatch.of(batch.padded(), device)
    states = needed_states(model, tensors)
    logits = model.masked_logits(states[:, None], tensors.head_inputs["masked"])
    best = logits.float().softmax(-1).topk(top)
    model.train(training)
    rows = zip(batch.token_ids, batch.mask, strict=True)
    pieces = [[tokenizer.tokens[i] for i in row[real]] for row, real in rows]
    examples: list[dict[str, Any]] = [
        {"pieces": each, "masked": [], "truth": [], "guesses": []} for each in pieces
    ]
    width = batch.token_ids.shape[1]
    for position, label, values, ids in zip(
        batch.masked_positions.tolist(),
        batch.masked_labels.tolist(),
        best.values.tolist(),
        best.indices.tolist(),
        strict=True,
    ):
        example = examples[position // width]
        example["masked"].append(position % width)
        example["truth"].append(tokenizer.tokens[label])
        example["guesses"].append(
            [[tokenizer.tokens[i], round(value, 4)] for i, value in zip(ids, values, strict=True)]
        )
    return examples


class PlateauWatch:
    """Warns, once each `steps` steps, while the loss is near the entropy of single tokens (about 7
    for 30,000 of them): that of a model which predicts frequencies and ignores its input. The
    entropy is counted from the masked tokens themselves."""

    def __init__(self, recipe: PretrainRecipe, *, vocab_size: int) -> None:
        self.counts = np.zeros(vocab_size, np.int64)
        self.steps, self.margin = recipe.plateau_steps, recipe.plateau_margin
        self.advice = _advice(recipe)
        self.average: float | None = None
        self.left = self.steps == 0

    @property
    def entropy(self) -> float:
        """Of the labels seen so far, in nats; with the Miller–Madow correction for the tokens seen
        too seldom."""
        seen = self.counts[self.counts > 0]
        total = int(seen.sum())
        shares = seen / total
        return float(-(shares * np.log(shares)).sum() + (len(seen) - 1) / (2 * total))

    def state_dict(self) -> dict[str, Any]:
        """What a snapshot keeps; the counts only as long as they are needed."""
        return {
            "left": self.left,
            "average": self.average,
            "counts": None if self.left else self.counts.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.left, self.average = state["left"] or self.steps == 0, state["average"]
        if not self.left:
            self.counts = np.array(state["counts"], np.int64)

    def see(self, step: int, labels: np.ndarray, loss: float) -> str | None:
        """After `step`; a sentence where something must be said."""
        if self.left:
            return None
        self.counts += np.bincount(labels, minlength=len(self.counts))
        self.average = loss if self.average is None else 0.98 * self.average + 0.02 * loss
        if (step + 1) % self.steps:
            return None
        entropy = self.entropy
        self.left = self.average < entropy - self.margin
        if self.left:
            return None
        return (
            f"the masked-token loss is {self.average:.2f}, the entropy of single tokens "
            f"{entropy:.2f}: after {step + 1:,} "
            f"steps the model still predicts frequencies and looks at nothing; try {self.advice}"
        )


def _advice(recipe: PretrainRecipe) -> str:
    """What leaves the plateau sooner (docs/decisions/plateau.md) and the run does not do yet."""
    is_pre_norm = recipe.encoder.norm == "pre"
    ideas = {
        f"muon (--optimizer muon --learning-rate {'2e-3' if is_pre_norm else '1e-3'})": (
            recipe.optimizer.name == "muon"
        ),
        "a smaller batch (--batch-size 256)": recipe.batch_size.values[0] <= 256,
        "the pre-norm model (--encoder norm=pre)": is_pre_norm,
        "a lower learning rate": False,
    }
    missing = ", ".join(idea for idea, is_done in ideas.items() if not is_done)
    return f"{missing} or a longer warm-up; see docs/pretrain.md"
