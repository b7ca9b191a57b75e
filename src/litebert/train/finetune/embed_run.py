"""Fine-tuning of embeddings: a pretrained encoder and related texts in; a run folder with metrics
and the checkpoint that is best on dev out.

The loop is that of pretraining. Dev is scored pairs; without them the last weights are the result.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from litebert.config import ModelConfig
from litebert.errors import ConfigError
from litebert.files import write_json
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.packing import budget_batches
from litebert.recipes.embed import EmbedRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode_texts
from litebert.tasks.examples import TextExample
from litebert.tasks.scores.vectors import score_similarity
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.pairs import (
    EmbedData,
    open_pairs,
    open_scored_pairs,
    open_teacher,
)
from litebert.tasks.task import EmbedCard
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.embed_job import EmbedBatch, EmbedJob, EmbedSums, pooled
from litebert.train.finetune.evaluation import BestCheckpoint
from litebert.train.finetune.prepare import (
    UNKNOWN_SAMPLE,
    fingerprint,
    tokenizer_of,
    unknown_in_texts,
)
from litebert.train.finetune.run import RESULT, read_result, result_of
from litebert.train.folder import stored_threads
from litebert.train.learner import Learner, WorkingCopy
from litebert.train.loop import BetweenSteps, Evaluated, Event, State, stop_check
from litebert.train.run import Run, RunResult, Say, to_stderr
from litebert.train.runtime import Place, Runtime


def run_embed_finetuning(
    model: Path | str,
    data: Any,
    out: Path | str,
    *,
    recipe: EmbedRecipe | None = None,
    settings: Mapping[str, Any] | None = None,
    dev: Any = None,
    teacher: Path | str | None = None,
    texts: Path | str | None = None,
    table: TableOptions | None = None,
    tensorboard: bool = False,
    unverified: bool = False,
    progress: bool = True,
    **place: Unpack[Place],
) -> RunResult:
    """`litebert.finetune` of the task embed: by the `recipe`, or EmbedRecipe's own values, changed
    by `settings`. `dev` is scored pairs, by default the dev of `data`; a `teacher` has a row of
    vectors for each line of `texts`. `unverified` does not compare the model's files with its
    manifest."""
    recipe = (recipe or EmbedRecipe()).changed(dict(settings or {}))
    if (teacher is None) != (texts is None):
        raise ConfigError("a teacher needs --teacher VECTORS.npy and --texts TEXTS.txt")
    if (teacher is None) == (data is None):
        raise ConfigError(
            "embed learns from --data, or from --teacher with --texts; give one of the two"
        )
    if table is not None and table.bad_rows == "quarantine" and table.quarantine is None:
        table = replace(table, quarantine=str(Path(out) / "quarantine.jsonl"))
    if teacher is None or texts is None:
        examples = open_pairs(data, dev, table)
    else:
        examples = EmbedData(train=open_teacher(teacher, texts), dev=None)
        if dev is not None:
            pairs, dev_notes = open_scored_pairs(dev)
            examples = replace(examples, dev=pairs, notes=dev_notes)
    source, loading_notes = load_checkpoint(model, unverified=unverified)
    sample = examples.train.texts[:: max(1, len(examples.train.texts) // UNKNOWN_SAMPLE)]
    unknown = unknown_in_texts(sample, tokenizer_of(source, "this checkpoint"))
    notes = (*examples.notes, *loading_notes, *unknown)
    for note in notes if progress else ():
        to_stderr(f"note: {note}")
    stored = stored_threads(out)
    with Runtime.joined(dtype=recipe.dtype, stored_threads=stored, **place) as runtime:
        tuning = EmbedTuning(recipe, examples, source, runtime)
        result = tuning.train(out, tensorboard=tensorboard, progress=progress)
        return replace(result, notes=notes)


class EmbedTuning:
    """One run, ready to go: `train()` runs or resumes it to its end."""

    def __init__(
        self,
        recipe: EmbedRecipe,
        data: EmbedData,
        source: Checkpoint,
        runtime: Runtime,
        *,
        say: Say = to_stderr,
    ) -> None:
        if runtime.world_size > 1:
            raise ConfigError(
                "finetune embed runs in one process, since every text of a batch is compared with "
                "every other; start it without torchrun"
            )
        self.recipe, self.data, self.runtime = recipe, data, runtime
        self.tokenizer = tokenizer_of(source, "this checkpoint")
        model = _starting_model(source, recipe)
        self.card = EmbedCard(
            pooling=recipe.pooling, normalize=recipe.normalize, dimensions=recipe.matryoshka
        )
        self.card.check_fits(model.config)
        limit = model.config.encoder.max_positions
        if recipe.max_length > limit:
            raise ConfigError(
                f"max_length is {recipe.max_length}, the model reads at most {limit} tokens; lower "
                "it"
            )
        working = WorkingCopy.on(runtime, model, say)
        self.job = EmbedJob(recipe, data.train, self.tokenizer, runtime)
        self.learner: Learner[EmbedBatch, EmbedSums] = Learner(
            job=self.job,
            model=model,
            working=working,
            optimizer=make_optimizer(model.named_parameters(), recipe.optimizer),
        )
        inputs = {
            "tokenizer": self.tokenizer.fingerprint,
            "model": fingerprint(source.model),
            "train": data.train.fingerprint,
            "dev": None if data.dev is None else _fingerprint(data.dev),
        }
        self.run = Run(recipe, inputs, self.learner, runtime, say=say)
        self.best = BestCheckpoint(self.run)
        self.evaluation = _Evaluation(self)
        self.run.subscribers = [self.evaluation, self.best, self.run.save_if_due]
        self.run.stateful = {"own": self.evaluation, "best": self.best}

    def train(
        self, out: Path | str, *, tensorboard: bool = False, progress: bool = True
    ) -> RunResult:
        """Run to the end in the folder `out`, resuming where an earlier process stopped."""
        return self.run.execute(
            out,
            lambda state: self._finish(self.run.steps(state)),
            finished=lambda: read_result(self.run.folder.path),
            tensorboard=tensorboard,
            progress=progress,
        )

    def scores(self, pause: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Of dev, with the model as it is."""
        assert self.data.dev is not None
        model, dev = self.learner.working.model, self.data.dev
        texts = [*(pair.first for pair in dev), *(pair.second or "" for pair in dev)]
        vectors = _vectors(model, texts, self.tokenizer, self.recipe, self.runtime, pause)
        return score_similarity(dev, vectors, samples=0).scores

    def _finish(self, state: State) -> RunResult:
        """The best checkpoint becomes the final one; its scores are written."""
        path, dev = self.run.folder.path, self.data.dev
        result = {
            "task": "embed",
            "score": None if dev is None else self.best.score,
            "scores": self.evaluation.best_scores,
            "best_step": self.best.step,
            "steps": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 3),
            "seed": self.recipe.seed,
            "train_examples": len(self.data.train),
            "dev_examples": 0 if dev is None else len(dev),
        }
        with self.best.becoming_final():
            write_json(path / RESULT, result)
        self.run.write_status("finished", state, steps=state.step)
        return result_of(path, result)


class _Evaluation:
    """A subscriber: scores dev where that is due, and keeps the best checkpoint; without dev, the
    last."""

    def __init__(self, tuning: EmbedTuning) -> None:
        self.tuning = tuning
        self.every = -(-tuning.job.steps // tuning.recipe.evaluations)
        self.evaluated = -1
        self.best_scores: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BetweenSteps) or event.state.step in (0, self.evaluated):
            return
        has_dev = self.tuning.data.dev is not None
        if event.is_last or (has_dev and event.state.step % self.every == 0):
            self._evaluate(event, has_dev=has_dev)

    def _evaluate(self, event: BetweenSteps, *, has_dev: bool) -> None:
        tuning, state = self.tuning, event.state
        scores = {}
        if has_dev:
            scores = tuning.scores(stop_check(tuning.runtime, event.stop))
            tuning.run.emit(Evaluated(state=state, scores={"score": scores["spearman"], **scores}))
        self.evaluated = state.step
        score = scores.get("spearman", 0.0)
        if tuning.best.is_better(score):
            self.best_scores = scores
            tuning.best.offer(score, state.step, tuning.tokenizer, tuning.card.to_dict())

    def state_dict(self) -> dict[str, Any]:
        # a best checkpoint that is not on the disk is lost with this process, so its step is
        # evaluated again
        evaluated = self.evaluated if self.tuning.best.is_written else -1
        return {"evaluated": evaluated, "best_scores": self.best_scores}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.evaluated, self.best_scores = state["evaluated"], dict(state["best_scores"])


def _starting_model(source: Checkpoint, recipe: EmbedRecipe) -> Model:
    """The source's encoder with the recipe's dropout; no pooler, no heads."""
    encoder = replace(
        source.model.config.encoder.with_dropout(recipe.encoder_dropout),
        pooler=False,
    )
    model = Model(ModelConfig(encoder=encoder), checkpoint_every=recipe.checkpoint_every)
    weights = source.model.encoder.state_dict().items()
    model.encoder.load_state_dict(
        {name: tensor for name, tensor in weights if not name.startswith("pooler.")}
    )
    return model


@torch.no_grad()
def _vectors(
    model: Model,
    texts: list[str],
    tokenizer: Tokenizer,
    recipe: EmbedRecipe,
    runtime: Runtime,
    pause: Callable[[], None],
) -> np.ndarray:
    """Of texts as they are read in inference, as long as the model reads them."""
    rows = encode_texts(tokenizer, texts, max_length=model.config.encoder.max_positions)
    lengths = np.array([len(row) for row in rows], np.int64)
    vectors = np.zeros((len(rows), model.config.encoder.hidden_size), np.float32)
    was_training = model.training
    model.eval()
    try:
        most = max(recipe.microbatch_tokens, int(lengths.max()))
        for numbers in budget_batches(lengths, tokens=most):
            pause()
            chosen = [rows[number] for number in numbers.tolist()]
            states = pooled(
                model, chosen, recipe.pooling, pad_id=tokenizer.pad_id, device=runtime.device
            )
            vectors[numbers] = states.float().cpu().numpy()
    finally:
        model.train(was_training)
    return vectors


def _fingerprint(pairs: Sequence[TextExample]) -> str:
    facts = [(pair.first, pair.second, pair.label) for pair in pairs]
    return hashlib.sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()
