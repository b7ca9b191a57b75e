"""What an engine is: texts or examples in, numbers and predictions out. No torch.

There are three: torch (torch_engine.py), ONNX Runtime and OpenVINO (graph_engine.py). The Predictor
above knows verbs and forms; an engine knows how its model is computed. Texts of similar length
share a batch of at most `batch_tokens` tokens.

A batch goes through an engine in steps: `start` embeds it, `layer` applies one layer of the plan,
`finish` and `head` read the states. Rows between two layers are rows of an array, so that a
scheduler may drop some, or join rows of different depths that the same layer is due for.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from litebert.config import ModelConfig, Pooling
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.batches import Columns, Row
from litebert.infer.verbs import Guess, encode_masked
from litebert.packing import HostBatch
from litebert.shapes import Bool, Float, Int
from litebert.tasks.decode.decode import Outputs
from litebert.tasks.decode.exits import ExitRule
from litebert.tasks.encode.encode import encode_texts
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer
from litebert.threads import Threads

EngineName = Literal["torch", "onnx", "openvino"]
TOKENIZED_TEXTS = 1024
"""Texts that embed tokenizes and sorts by length at a time; a GPU computes meanwhile."""
WORD_START = "▁"
Part = tuple[Any, Int[np.ndarray, " _rows"], Int[np.ndarray, " _rows"]]
"""States of a batch, numbers of some of its rows, and which rows these become."""


class Engine(ABC):
    """A model with its tokenizer. Its methods may be called from several threads at once."""

    name: EngineName
    config: ModelConfig
    tokenizer: Tokenizer
    batch_tokens: int
    """Tokens of a batch, padding included."""
    window_items: int | None = None
    """Inputs worth collecting before a call; None for the default of streaming."""
    tokenizer_threads: int = 1
    is_gpu: bool = False
    lacks_generator: bool = False
    """Whether masks are filled by a generator that this engine does not have."""
    exit_rule: ExitRule | None = None
    """When rows leave early; None for never."""
    threads: Threads | None = None
    """Of the processor, while a method runs; None where a GPU computes."""

    # ---- verbs

    def fill(self, texts: Sequence[str], *, top: int) -> list[list[list[Guess]]]:
        """For each text, for each of its masks, the `top` best guesses, the best first."""
        tokenizer, max_length = self.tokenizer, self.config.encoder.max_positions
        rows = [encode_masked(tokenizer, text, max_length=max_length) for text in texts]
        guesses: list[list[list[Guess]]] = [[] for _ in texts]
        columns = [np.flatnonzero(row == tokenizer.mask_id) for row in rows]
        for numbers, states, _ in self.encode(rows, columns, fills=True):
            counts = np.array([len(columns[number]) for number in numbers.tolist()])
            masked = states[np.nonzero(np.arange(states.shape[1]) < counts[:, None])]
            ids, probabilities = self.guess(masked, min(top, tokenizer.vocab_size))
            for owner, best, values in zip(
                np.repeat(numbers, counts).tolist(),
                ids.tolist(),
                probabilities.tolist(),
                strict=True,
            ):
                guesses[owner].append(self.named(best, values))
        return guesses

    def named(self, ids: Sequence[int], probabilities: Sequence[float]) -> list[Guess]:
        """Guesses with their tokens as texts."""
        tokens = self.tokenizer.tokens
        return [
            Guess(_without_mark(tokens[id]), value)
            for id, value in zip(ids, probabilities, strict=True)
        ]

    def embed(
        self, texts: Sequence[str], *, pooling: Pooling, normalize: bool
    ) -> Float[np.ndarray, "texts hidden"]:
        """One vector per text, in order; of length 1 if `normalize`."""
        vectors = np.zeros((len(texts), self.config.encoder.hidden_size), np.float32)
        self.pool_into(vectors, self._tokenized(texts), pooling)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    @abstractmethod
    def predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        """One prediction per example, in order."""

    # ---- what the verbs need

    @abstractmethod
    def encode(
        self, rows: Sequence[Row], needed: Columns | None, *, fills: bool = False
    ) -> Iterator[tuple[Int[np.ndarray, " _batch"], Any, Any]]:
        """The last states of rows of tokens, or of their `needed` columns, in batches of like
        lengths: the numbers of its rows, their states, and what masks padding. `fills`: by the
        encoder whose head fills masks."""

    @abstractmethod
    def pool_into(
        self,
        vectors: Float[np.ndarray, "texts hidden"],
        stretches: Iterator[tuple[int, list[Row]]],
        pooling: Pooling,
    ) -> None:
        """Write the pooled states of rows of tokens, which come with the number of their first."""

    @abstractmethod
    def hash_weights(self, digest: Any) -> None:
        """Add everything that was learned to a hashlib digest."""

    def release(self) -> None:  # noqa: B027
        """Give back memory that large batches needed. Verbs do so at their end; whoever calls steps
        does it when no row is left."""

    # ---- steps

    @abstractmethod
    def gather(self, parts: Sequence[Part], rows: int, width: int) -> Any:
        """States of `rows` rows of several batches as one array, cut or padded to `width`
        tokens."""

    @abstractmethod
    def guess(
        self, states: Any, top: int
    ) -> tuple[Int[np.ndarray, "masks top"], Float[np.ndarray, "masks top"]]:
        """The `top` best tokens for each finished state (masks, hidden), with their
        probabilities."""

    @abstractmethod
    def pool(
        self, states: Any, mask: Bool[np.ndarray, "rows seq"] | None, pooling: Pooling
    ) -> Float[np.ndarray, "rows hidden"]:
        """The vectors of rows of finished states; `mask` is None where no row is padded."""

    @abstractmethod
    def start(self, batch: HostBatch) -> Any:
        """States after the embedding, (batch, seq, hidden)."""

    @abstractmethod
    def layer(self, number: int, states: Any, batch: HostBatch, *, last: bool = False) -> Any:
        """States after application `number` of the plan; of the `last` one only those that the
        batch's head needs."""

    @abstractmethod
    def finish(self, states: Any) -> Any:
        """States as heads read them, after the final norm of pre-norm."""

    @abstractmethod
    def head(self, batch: HostBatch, states: Any) -> Outputs:
        """What the batch's head computes of finished states."""

    @abstractmethod
    def exit(self, depth: int, batch: HostBatch, states: Any) -> Float[np.ndarray, "rows outputs"]:
        """The logits of the batch's head after `depth` layers, of the finished states of [CLS]."""

    def to_array(self, states: Any) -> Float[np.ndarray, "batch seq hidden"]:
        """States as an array of float32 on the host."""
        array: np.ndarray = np.asarray(states, np.float32)
        return array

    def _tokenized(self, texts: Sequence[str]) -> Iterator[tuple[int, list[Row]]]:
        for start in range(0, len(texts), TOKENIZED_TEXTS):
            rows = encode_texts(
                self.tokenizer,
                texts[start : start + TOKENIZED_TEXTS],
                max_length=self.config.encoder.max_positions,
                num_threads=self.tokenizer_threads,
            )
            yield start, rows


def check_engine(config: ModelConfig, tokenizer: Tokenizer | None, batch_tokens: int) -> Tokenizer:
    """The tokenizer, where it fits the model."""
    if type(batch_tokens) is not int or batch_tokens < 1:
        raise ConfigError(f"batch_tokens is a whole number from 1; got {batch_tokens!r}")
    if tokenizer is None:
        raise CheckpointError(
            "the model has no tokenizer beside it; copy its spiece.model into the folder to "
            "predict from texts"
        )
    if tokenizer.vocab_size > (size := config.encoder.vocab_size):
        raise CheckpointError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {size}; they do not match"
        )
    return tokenizer


def _without_mark(token: str) -> str:
    return token.removeprefix(WORD_START) or token
