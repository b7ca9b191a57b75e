"""The torch engine: a model on a device; texts or examples in, numbers and predictions out.

The Predictor above it knows verbs and forms, and no torch. Texts of similar length share a batch of
at most `batch_tokens` tokens; on a GPU in bfloat16 rows are packed without padding.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.config import Pooling
from litebert.data.batch import Batch
from litebert.errors import ConfigError
from litebert.infer.batches import FIRST, Columns, Row
from litebert.infer.engine import Engine, EngineName, Part, check_engine
from litebert.infer.exits import predict_early
from litebert.infer.rows import Encoded, encode_rows
from litebert.infer.streaming import GPU_WINDOW_ITEMS
from litebert.infer.verbs import DType, Guess
from litebert.kernels.compile import compile_for_inference
from litebert.kernels.gate import Gate, can_pack, parse
from litebert.model.batch import DeviceBatch
from litebert.model.encoder import broadcast
from litebert.model.heads import POOLINGS
from litebert.objective.masked import needed_states
from litebert.packing import HostBatch
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.decode import Outputs
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads import heads
from litebert.tasks.heads.head import to_numpy
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard
from litebert.threads import choose_threads

_TOKENIZER_THREADS = 8
"""Enough for the tokenizer to keep up with a GPU."""
_LOGIT_ROWS = 2048
"""Masked tokens whose logits over the vocabulary are in memory at a time."""


def _computing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Runs without gradients, with the engine's number of threads: the process keeps its own."""

    @functools.wraps(method)
    def run(self: "TorchEngine", *args: Any, **options: Any) -> Any:
        before = torch.get_num_threads()
        count = before if self.threads is None else self.threads.count
        if count == before:
            with torch.inference_mode():
                return method(self, *args, **options)
        torch.set_num_threads(count)
        try:
            with torch.inference_mode():
                return method(self, *args, **options)
        finally:
            torch.set_num_threads(before)

    return run


class TorchEngine(Engine):
    """A model with its tokenizer, on a device. Its methods run without gradients."""

    name: EngineName = "torch"

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device | str = "cpu",
        batch_tokens: int | None = None,
        dtype: str = "auto",
        compile: bool = False,
        kernels: str = "on",
        threads: int | None = None,
    ) -> None:
        """`device` may be auto: a GPU where there is one. `kernels` may switch GPU kernels off:
        "off", or "attention=off,norm=off". `threads` on a CPU: None for as many as are free."""
        self.device = _find_device(device)
        self.batch_tokens = (
            heads.default_batch_tokens(self.device) if batch_tokens is None else batch_tokens
        )
        config = checkpoint.model.config
        self.tokenizer = check_engine(config, checkpoint.tokenizer, self.batch_tokens)
        if threads is not None or self.device.type == "cpu":
            self.threads = choose_threads(threads, limit=torch.get_num_threads())
        self.is_gpu = self.device.type == "cuda"
        if self.is_gpu:
            self.window_items = GPU_WINDOW_ITEMS
            self.tokenizer_threads = min(_TOKENIZER_THREADS, os.cpu_count() or 1)
        precision = _find_dtype(dtype, self.device)
        self.model = checkpoint.model.to(self.device, precision).eval()
        self.config = self.model.config
        self.filler = self.model.filler
        """What fills masks: the model, or its generator."""
        for part in {self.model, self.filler}:
            encoder = part.config.encoder
            Gate.detect(self.device, precision, config=encoder, off=parse(kernels)).apply(part)
        if compile:
            compile_for_inference(self.model, partial(print, file=sys.stderr))

    @_computing
    def fill(self, texts: Sequence[str], *, top: int) -> list[list[list[Guess]]]:
        return super().fill(texts, top=top)

    @_computing
    def embed(
        self, texts: Sequence[str], *, pooling: Pooling, normalize: bool
    ) -> Float[np.ndarray, "texts hidden"]:
        return super().embed(texts, pooling=pooling, normalize=normalize)

    def pool_into(
        self,
        vectors: Float[np.ndarray, "texts hidden"],
        stretches: Iterator[tuple[int, list[Row]]],
        pooling: Pooling,
    ) -> None:
        copies = _DeviceToHost(vectors, self.device)
        for start, rows in stretches:
            needed = [FIRST] * len(rows) if pooling == "cls" else None
            for numbers, states, mask in self.encode(rows, needed):
                copies.add(start + numbers, POOLINGS[pooling](states, mask).float())
        copies.finish()

    @_computing
    def masked_losses(
        self, batch: Batch
    ) -> tuple[Float[np.ndarray, " num_masked"], Bool[np.ndarray, " num_masked"]]:
        """Of each masked token of pretraining examples its loss in nats, and whether it is the
        likeliest."""
        longest = batch.token_ids.shape[1]
        if can_pack(self.filler, longest):
            most = int(np.bincount(batch.masked_positions // longest).max())
            host = batch.packed(most_masked=most, fraction=1.0)
        else:
            host = batch.padded()
        tensors = DeviceBatch.of(host, self.device)
        inputs = {
            name: tensors.head_inputs[name][: batch.num_masked]
            for name in ("masked", "masked_labels")
        }
        states = needed_states(self.filler, tensors)[inputs["masked"]]
        return self._losses(states, inputs["masked_labels"])

    @_computing
    def token_losses(
        self,
        rows: Sequence[np.ndarray],
        columns: Int[np.ndarray, " rows"],
        labels: Int[np.ndarray, " rows"],
    ) -> Float[np.ndarray, " rows"]:
        """The loss in nats of the label of each row at its column."""
        losses = np.zeros(len(rows), np.float32)
        for numbers, states, _ in self.encode(rows, columns[:, None], fills=True):
            wanted = torch.from_numpy(labels[numbers]).to(self.device)
            losses[numbers] = self._losses(states[:, 0], wanted)[0]
        return losses

    def _losses(self, states: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Losses of tokens, and whether each is the likeliest; few at a time, since logits are
        wide."""
        losses, correct = [], []
        for start in range(0, len(labels), _LOGIT_ROWS):
            few, truth = states[start : start + _LOGIT_ROWS], labels[start : start + _LOGIT_ROWS]
            logits = self.filler.masked_logits(few[:, None]).float()
            losses.append(F.cross_entropy(logits, truth, reduction="none"))
            correct.append(logits.argmax(-1) == truth)
        return torch.cat(losses).cpu().numpy(), torch.cat(correct).cpu().numpy()

    @_computing
    def predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        """One prediction per example, in order."""
        if self.exit_rule is not None:
            return predict_early(self, self.exit_rule, card, examples)
        return heads.predict(
            self.model,
            card,
            examples,
            self.tokenizer,
            device=self.device,
            batch_tokens=self.batch_tokens,
        )

    @_computing
    def gather(self, parts: Sequence[Part], rows: int, width: int) -> Tensor:
        first, _, _ = parts[0]
        gathered: Tensor = first.new_zeros(rows, width, first.shape[2])
        for states, sources, targets in parts:
            chosen = states[torch.from_numpy(sources).to(self.device), :width]
            gathered[torch.from_numpy(targets).to(self.device), : states.shape[1]] = chosen
        return gathered

    @_computing
    def guess(
        self, states: Float[Tensor, "masks hidden"], top: int
    ) -> tuple[Int[np.ndarray, "masks top"], Float[np.ndarray, "masks top"]]:
        # Some models have embedding rows beyond the vocabulary, which stand for no token.
        logits = self.filler.masked_logits(states[:, None])[:, : self.tokenizer.vocab_size]
        best = logits.float().softmax(-1).topk(top)
        return best.indices.cpu().numpy(), best.values.cpu().numpy()

    @_computing
    def pool(
        self,
        states: Float[Tensor, "rows seq hidden"],
        mask: Bool[np.ndarray, "rows seq"] | None,
        pooling: Pooling,
    ) -> Float[np.ndarray, "rows hidden"]:
        on_device = None if mask is None else torch.from_numpy(mask).to(self.device)
        return to_numpy(POOLINGS[pooling](states, on_device))

    @_computing
    def start(self, batch: HostBatch) -> Tensor:
        on_device = DeviceBatch.of(batch, self.device)
        states: Tensor = self.model.encoder.embedding(
            on_device.token_ids, on_device.segment_ids, on_device.positions
        )
        return states

    @_computing
    def layer(self, number: int, states: Tensor, batch: HostBatch, *, last: bool = False) -> Tensor:
        on_device, encoder = DeviceBatch.of(batch, self.device), self.model.encoder
        rotate = encoder.rotation(states, on_device.mask, on_device.positions)
        chosen = on_device.needed if last else None
        return encoder.run(
            [encoder.plan[number]], states, broadcast(on_device.mask), chosen, rotate
        )

    @_computing
    def finish(self, states: Tensor) -> Tensor:
        final: Tensor = self.model.encoder.norm(states)
        return final

    @_computing
    def head(self, batch: HostBatch, states: Tensor) -> Outputs:
        assert batch.head is not None
        outputs = heads.HEADS[batch.head].outputs(
            self.model, DeviceBatch.of(batch, self.device), states
        )
        if outputs.ends is not None:  # called while spans are decoded, after this
            outputs = replace(outputs, ends=torch.inference_mode()(outputs.ends))
        return outputs

    @_computing
    def exit(
        self, depth: int, batch: HostBatch, states: Tensor
    ) -> Float[np.ndarray, "rows outputs"]:
        assert batch.head is not None
        return to_numpy(self.model.exit_logits(batch.head, depth, states))

    def to_array(self, states: Tensor) -> Float[np.ndarray, "batch seq hidden"]:
        return to_numpy(states)

    def hash_weights(self, digest: Any) -> None:
        """Add the name and the bytes of every weight to a hashlib digest."""
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)

    def encode(
        self, rows: Sequence[Row], needed: Columns | None, *, fills: bool = False
    ) -> Iterator[Encoded]:
        return encode_rows(
            self.filler if fills else self.model,
            rows,
            needed,
            pad_id=self.tokenizer.pad_id,
            batch_tokens=self.batch_tokens,
            device=self.device,
        )


class _DeviceToHost:
    """Copies rows from a device into rows of an array. A GPU's go through pinned memory, and are
    waited for once, at the end."""

    def __init__(self, target: Float[np.ndarray, "texts hidden"], device: torch.device) -> None:
        self._target, self._is_cuda = target, device.type == "cuda"
        self._pending: list[tuple[np.ndarray, Tensor]] = []

    def add(self, rows: Int[np.ndarray, " batch"], vectors: Float[Tensor, "batch hidden"]) -> None:
        if not self._is_cuda:
            self._target[rows] = vectors.numpy()
            return
        pinned = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        self._pending.append((rows, pinned.copy_(vectors, non_blocking=True)))

    def finish(self) -> None:
        if self._pending:
            torch.cuda.current_stream().synchronize()
        for rows, pinned in self._pending:
            self._target[rows] = pinned.numpy()


def _find_device(name: torch.device | str) -> torch.device:
    """The device of that name; ConfigError where this machine has none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"there is no device {str(name)!r} here: {str(error).splitlines()[0]}; see litebert "
            "doctor"
        ) from error
    return device


def _find_dtype(name: str, device: torch.device) -> torch.dtype:
    if name not in get_args(DType):
        raise ConfigError(f"dtype is one of {', '.join(get_args(DType))}; got {name!r}")
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    is_bfloat16 = name == "bfloat16" or (name == "auto" and has_bfloat16)
    return torch.bfloat16 if is_bfloat16 else torch.float32
