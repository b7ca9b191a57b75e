"""Who takes part in bench/gpu/step.py: our own pretraining run, and Hugging Face's
AlbertForPreTraining. Cases in; steps out.

Ours is what `litebert pretrain` does: Pretraining's job, working copy, optimizer and CUDA graphs
in the loop, batches of real shards from the reader's worker processes. Theirs is compiled as a
whole, with SDPA, bfloat16 and fused AdamW; its batches, the same ones, lie on the device already,
and nobody waits for its loss.

Without an `attention_mask` transformers 5.17 compiles a mask of nothing but True, broadcast along
the keys (stride 0), which no fused kernel of SDPA takes: attention is then float32 matmuls that
keep all probabilities, 0.75 GiB a layer at 64 × 512, and a step takes twice the time
(huggingface/transformers issue 48925, mended by 5.22). That is `usual`, what one gets. `full` asks
for the same SDPA under a name for which transformers makes no mask; with a mask, as in `padded`,
the strides are ordinary and a fused kernel reads it.
"""

import copy
import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.common.peers import huggingface_settings
from bench.gpu.table import FILLED
from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.data.stream import Position, Stream
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.packing import IGNORED
from litebert.recipes import FractionStages, PretrainRecipe, Stages
from litebert.text.tokenizer import Tokenizer
from litebert.train.graphs import WARM
from litebert.train.loop import Guard, Loop, State
from litebert.train.pretrain.run import Pretraining, example_spec
from litebert.train.runtime import Runtime, StopSignal

RECENT = 8
"""Batches that are read again where the loader is left out, and that the peer reads."""
PEERS = ("padded", "full", "usual", "autocast")
"""The same rows with their mask, in bfloat16; rows filled up, without a mask: its best case; these
as transformers 5.17 attends to them by itself; float32 weights with autocast."""
MASKLESS = "sdpa_without_mask"
"""transformers' own SDPA, by a name that its table of masks does not have."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape of the step."""

    preset: str
    length: int
    ours: tuple[tuple[int, int], ...]
    """(rows in a step, rows in a microbatch), the likeliest to be fastest first."""
    theirs: tuple[int, ...]
    dtype: str = "bfloat16"
    checkpoint_every: int = 0
    recompute: bool = False
    overrides: tuple[tuple[str, Any], ...] = (("norm", "pre"),)
    compile: str = "auto"

    def recipe(self, rows: int, microbatch: int) -> PretrainRecipe:
        """The affordable recipe with 15 % masks, without evaluations and snapshots."""
        return PretrainRecipe(
            preset=self.preset,
            overrides=self.overrides,
            steps=1_000_000,
            tokens=None,
            batch_size=Stages.constant(rows),
            microbatch_tokens=microbatch * self.length,
            sequence_length=Stages.constant(self.length),
            mask_fraction=FractionStages.constant(0.15),
            dtype=self.dtype,  # type: ignore[arg-type]
            compile=self.compile,  # type: ignore[arg-type]
            checkpoint_every=self.checkpoint_every,
            recompute=self.recompute,
            heldout_fraction=0.0,
            evaluate_every=0,
            save_every=0,
            plateau_steps=0,
        )


class Ours:
    """A real run, step by step."""

    def __init__(
        self, case: Case, rows: int, microbatch: int, *, data: str, device: str, workers: int
    ) -> None:
        began = time.monotonic()
        self.messages: list[str] = []
        self.microbatch = microbatch
        self.runtime = Runtime.start(device=device, dtype=case.dtype)  # type: ignore[arg-type]
        run = Pretraining(
            case.recipe(rows, microbatch),
            data,
            self.runtime,
            workers=workers,
            say=self.messages.append,
        )
        self.training = run
        self.encoder = run.learner.model.encoder.config
        self.fetching = 0.0
        self.recent: list[Batch] = []
        self._fetch = run.feed._fetch
        run.feed._fetch = self._timed_fetch  # type: ignore[method-assign]
        self.loop: Loop[Any, Any] = Loop(
            run.learner,
            runtime=self.runtime,
            guard=Guard(max_skips=5, max_rollbacks=0),
            max_grad_norm=run.recipe.optimizer.max_grad_norm,
        )
        run.learner.working.model.train()
        self.state, self.stop = State(), StopSignal()
        self.build_seconds = time.monotonic() - began

    def __call__(self) -> tuple[int, int]:
        """A step; its real tokens and its positions."""
        self.state = self.loop.step(self.state, self.stop)
        batch = self.training.feed.last
        return batch.num_tokens, batch.token_ids.size

    @property
    def num_recorded(self) -> int:
        return 0 if self.training.graphs is None else len(self.training.graphs.recorded)

    def _timed_fetch(self, step: int) -> tuple[Batch, Position, Position]:
        """With workers, all the time that this takes is spent before an empty queue."""
        began = time.monotonic()
        fetched = self._fetch(step)
        self.fetching += time.monotonic() - began
        self.recent = [*self.recent[1 - RECENT :], fetched[0]]
        return fetched

    def without_loader(self) -> None:
        """From now on read the last batches over and over."""
        last = list(self.recent)
        self.training.feed._fetch = lambda step: (last[step % len(last)], Position(), Position())  # type: ignore[method-assign]

    def check(self) -> dict[str, float]:
        """Relative errors of a microbatch's gradient, against the same rounded weights in float32:
        ours as it runs (replayed, where graphs are recorded), and that of plain, padded, uncompiled
        bfloat16."""
        working, batch = (
            self.training.learner.working,
            self.training.feed.last.rows(0, self.microbatch),
        )
        counts = self.training.job.counts(batch)
        for _ in range(WARM + 2):
            working.clear()
            self.loop.forward_backward(batch, self.state.step, counts)
        ours = _flat([parameter.grad for parameter in working.model.parameters()])
        working.clear()
        truth: Model = copy.deepcopy(self.training.learner.model)
        truth.encoder.checkpoint_every = 1
        with torch.no_grad():
            for exact, rounded in zip(truth.parameters(), working.model.parameters(), strict=True):
                exact.copy_(rounded)
        plain = copy.deepcopy(truth).bfloat16()
        exact_gradient = self._gradient(truth, batch, counts)
        errors = {"ours": ours, "plain": self._gradient(plain, batch, counts)}
        return {
            name: float((gradient - exact_gradient).norm() / exact_gradient.norm())
            for name, gradient in errors.items()
        }

    def _gradient(self, model: Model, batch: Batch, counts: dict[str, float]) -> Tensor:
        losses = pretrain_losses(model, DeviceBatch.of(batch.padded(), self.runtime.device))
        total = losses.mean(num_masked=counts["masked"], num_examples=counts["examples"])
        return _flat(list(torch.autograd.grad(total, list(model.parameters()), allow_unused=True)))

    def close(self) -> None:
        self.training.feed.close()


class Theirs:
    """transformers' AlbertForPreTraining with the same sizes, on the same batches."""

    def __init__(self, case: Case, rows: int, kind: str, *, data: str, device: str) -> None:
        import transformers

        began = time.monotonic()
        recipe = case.recipe(rows, rows)
        stream = Stream.open(data, example_spec(recipe), seed=recipe.seed)
        with stream.read(rows) as reader:
            batches = list(islice(reader, RECENT))
        vocab_size = Tokenizer.load(Shards.open(data).tokenizer_folder).vocab_size
        self.encoder = replace(recipe.encoder, vocab_size=vocab_size)
        torch.manual_seed(0)
        settings = huggingface_settings(self.encoder)
        transformers.AttentionInterface.register(
            MASKLESS, transformers.AttentionInterface()["sdpa"]
        )
        attention = MASKLESS if kind == "full" else "sdpa"
        model = transformers.AlbertForPreTraining(
            transformers.AlbertConfig(**settings, attn_implementation=attention)
        )
        model.train().to(device, torch.float32 if kind == "autocast" else torch.bfloat16)
        self.parameters = list(model.parameters())
        self.call = model if case.compile == "off" else torch.compile(model, dynamic=False)
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.autocast = torch.autocast(
            torch.device(device).type, torch.bfloat16, enabled=kind == "autocast"
        )
        whole = [filled(batch, vocab_size) if kind in FILLED else batch for batch in batches]
        self.inputs = [
            huggingface_inputs(batch, device, masked=kind not in FILLED) for batch in whole
        ]
        self.sizes = [(batch.num_tokens, batch.token_ids.size) for batch in whole]
        self.done = 0
        self.build_seconds = time.monotonic() - began

    def __call__(self) -> tuple[int, int]:
        place = self.done % len(self.inputs)
        self.done += 1
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss: Tensor = self.call(**self.inputs[place]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.loss = loss.detach()
        return self.sizes[place]


def huggingface_inputs(batch: Batch, device: str, *, masked: bool) -> dict[str, Tensor]:
    labels = np.full(batch.token_ids.size, IGNORED, np.int64)
    labels[batch.masked_positions] = batch.masked_labels
    arrays = {
        "input_ids": batch.token_ids.astype(np.int64),
        "token_type_ids": batch.segment_ids.astype(np.int64),
        "labels": labels.reshape(batch.token_ids.shape),
        "sentence_order_label": batch.order_labels.astype(np.int64),
    }
    if masked:  # also where all rows happen to be full: one compilation for all batches
        arrays["attention_mask"] = batch.mask.astype(np.int64)
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def filled(batch: Batch, vocab_size: int) -> Batch:
    """The same batch with tokens in place of padding: speed does not ask which."""
    others = np.random.default_rng(0).integers(5, vocab_size, batch.token_ids.shape)
    return replace(
        batch,
        token_ids=np.where(batch.mask, batch.token_ids, others).astype(np.int32),
        mask=np.ones_like(batch.mask),
    )


def _flat(gradients: list[Tensor | None]) -> Tensor:
    return torch.cat(
        [gradient.double().flatten() for gradient in gradients if gradient is not None]
    )
