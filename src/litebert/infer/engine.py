"""The torch engine: a model on a device; texts or examples in, numbers and predictions out.

The Predictor above it knows verbs and forms, and no torch. Texts of similar length share a batch of
at most `batch_tokens` tokens; on a GPU in bfloat16 rows are packed without padding.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.errors import CheckpointError, ConfigError
from litebert.infer.rows import Encoded, encode_rows
from litebert.infer.streaming import GPU_WINDOW_ITEMS
from litebert.infer.verbs import Guess, Pooling, Precision, encode_masked, encode_texts
from litebert.kernels.compile import compile_for_inference
from litebert.kernels.gate import Gate, parse
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads import heads
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard

TOKENIZED_TEXTS = 1024
"""Texts that embed tokenizes and sorts by length at a time; the GPU computes meanwhile."""
TOKENIZER_THREADS = 8
"""Enough for the tokenizer to keep up with a GPU."""
WORD_START = "▁"


class TorchEngine:
    """A model with its tokenizer, on a device. Its methods run without gradients."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device | str = "cpu",
        batch_tokens: int | None = None,
        dtype: str = "auto",
        compile: bool = False,
        kernels: str = "on",
    ) -> None:
        """`device` may be auto: a GPU where there is one. `kernels` may switch GPU kernels off:
        "off", or "attention=off,norm=off"."""
        if batch_tokens is not None and batch_tokens < 1:
            raise ConfigError(f"batch_tokens is at least 1; got {batch_tokens}")
        if checkpoint.tokenizer is None:
            raise CheckpointError(
                "the model has no tokenizer beside it; copy its spiece.model into the folder to "
                "predict from texts"
            )
        self.device = _find_device(device)
        self.tokenizer = checkpoint.tokenizer
        self.batch_tokens = batch_tokens or heads.default_batch_tokens(self.device)
        """Tokens of a batch, padding included."""
        self.window_items = GPU_WINDOW_ITEMS if self.device.type == "cuda" else None
        """Inputs worth collecting before a call; None for the default of streaming."""
        precision = _find_dtype(dtype, self.device)
        self.model = checkpoint.model.to(self.device, precision).eval()
        self.config = self.model.config
        Gate.detect(self.device, precision, config=self.config.encoder, off=parse(kernels)).apply(
            self.model
        )
        if self.tokenizer.vocab_size > (size := self.config.encoder.vocab_size):
            raise CheckpointError(
                f"the tokenizer has {self.tokenizer.vocab_size} tokens, the model {size}; they do "
                "not match"
            )
        if compile:
            compile_for_inference(self.model, partial(print, file=sys.stderr))

    @torch.inference_mode()
    def fill(self, texts: Sequence[str], *, top: int) -> list[list[list[Guess]]]:
        """For each text, for each of its masks, the `top` best guesses, the best first."""
        tokenizer, max_length = self.tokenizer, self.config.encoder.max_positions
        rows = [encode_masked(tokenizer, text, max_length=max_length) for text in texts]
        guesses: list[list[list[Guess]]] = [[] for _ in texts]
        for numbers, states, _ in self._encode(rows):
            width = states.shape[1]
            columns = [np.flatnonzero(rows[i] == tokenizer.mask_id) for i in numbers.tolist()]
            flat = np.concatenate([row * width + masks for row, masks in enumerate(columns)])
            owners = np.repeat(numbers, [len(masks) for masks in columns])
            # Some models have embedding rows beyond the vocabulary, which stand for no token.
            logits = self.model.masked_logits(states, torch.from_numpy(flat).to(self.device))[
                :, : tokenizer.vocab_size
            ]
            best = logits.float().softmax(-1).topk(min(top, tokenizer.vocab_size))
            for owner, ids, values in zip(
                owners.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
            ):
                guesses[owner].append(
                    [
                        Guess(_without_mark(tokenizer.tokens[i]), value)
                        for i, value in zip(ids, values, strict=True)
                    ]
                )
        return guesses

    @torch.inference_mode()
    def embed(
        self, texts: Sequence[str], *, pooling: Pooling, normalize: bool
    ) -> Float[np.ndarray, "texts hidden"]:
        """One vector per text, in order; of length 1 if `normalize`."""
        max_length = self.config.encoder.max_positions
        vectors = np.zeros((len(texts), self.config.encoder.hidden_size), np.float32)
        copies = _DeviceToHost(vectors, self.device)
        is_cuda = self.device.type == "cuda"
        threads = min(TOKENIZER_THREADS, os.cpu_count() or 1) if is_cuda else 1
        for start in range(0, len(texts), TOKENIZED_TEXTS):
            stretch = texts[start : start + TOKENIZED_TEXTS]
            rows = encode_texts(self.tokenizer, stretch, max_length=max_length, num_threads=threads)
            for numbers, states, mask in self._encode(rows, first_only=pooling == "cls"):
                copies.add(start + numbers, _POOLINGS[pooling](states, mask).float())
        copies.finish()
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    @torch.inference_mode()
    def predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        """One prediction per example, in order."""
        return heads.predict(
            self.model,
            card,
            examples,
            self.tokenizer,
            device=self.device,
            batch_tokens=self.batch_tokens,
        )

    def hash_weights(self, digest: Any) -> None:
        """Add the name and the bytes of every weight to a hashlib digest."""
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)

    def _encode(self, rows: Sequence[np.ndarray], *, first_only: bool = False) -> Iterator[Encoded]:
        return encode_rows(
            self.model,
            rows,
            pad_id=self.tokenizer.pad_id,
            batch_tokens=self.batch_tokens,
            device=self.device,
            first_only=first_only,
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


def _mean(states: Tensor, mask: Tensor | None) -> Tensor:
    """Over every real token, [CLS] and [SEP] included, as sentence-transformers does."""
    if mask is None:
        return states.mean(1)
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


_POOLINGS: dict[Pooling, Callable[[Tensor, Tensor | None], Tensor]] = {
    "mean": _mean,
    "cls": lambda states, mask: states[:, 0],
}


def _without_mark(token: str) -> str:
    return token.removeprefix(WORD_START) or token


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
    if name not in get_args(Precision):
        raise ConfigError(f"dtype is one of {', '.join(get_args(Precision))}; got {name!r}")
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    is_bfloat16 = name == "bfloat16" or (name == "auto" and has_bfloat16)
    return torch.bfloat16 if is_bfloat16 else torch.float32
