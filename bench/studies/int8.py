"""What 8 bits cost a real model: masked loss, distance from float32 and bytes, by how many weights
share a scale.

    # prints one JSON object
    python -m bench.studies.int8 --model DIR --data SHARDS [--tokens 50000]

The same held-out examples for every way of storing (all documents of --data, which the model must
not have been trained on). `divergence` is the mean Kullback-Leibler divergence in nats from what
float32 predicts at the masked tokens, and `agreement` how often both guess the same piece: they
tell ways apart long before the loss does. `loss_deviation` is what chance makes of `loss_change`:
the standard error of the mean difference, token by token.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bench.common.results import add_out, begin, publish
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective.masked import needed_states
from litebert.storage import int8
from litebert.storage.checkpoint import Checkpoint

ROWS = 16
WHOLE = 2**20
"""A group that holds any row."""
Weights = dict[str, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder of a checkpoint with a masked head")
    parser.add_argument(
        "--data",
        required=True,
        help="folder written by `litebert data build` with the model's tokenizer",
    )
    parser.add_argument("--tokens", type=int, default=50_000, help="of text, about")
    parser.add_argument("--seq", type=int, default=128, help="tokens of an example")
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    model = Checkpoint.load(options.model).model
    stream = Stream.open(
        options.data, ExampleSpec(max_length=options.seq, short_probability=0.0), split="all"
    )
    count = max(options.tokens // options.seq // ROWS, 1)
    batches = [
        DeviceBatch.of(stream.batch(0, start * ROWS, ROWS).padded()) for start in range(count)
    ]
    exact = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    stored = {name: way(exact) for name, way in WAYS.items()}
    measures: dict[str, list[Tensor]] = {name: [] for name in WAYS}
    # all ways of a batch before the next: a batch's predictions take the room of the whole model
    for batch in batches:
        truth = predictions(model, batch, exact)
        for name, (weights, _) in stored.items():
            measures[name].append(
                compare(
                    truth, predictions(model, batch, weights), batch.head_inputs["masked_labels"]
                )
            )
    report = {
        name: summary(torch.cat(measures[name], 1)) | distance(exact, weights) | {"bytes": size}
        for name, (weights, size) in stored.items()
    }
    masked = sum(len(batch.head_inputs["masked_labels"]) for batch in batches)
    tokens = count * ROWS * options.seq
    publish({"masked": masked, "tokens": tokens, "ways": report}, options.out)


@torch.inference_mode()
def predictions(model: Model, batch: DeviceBatch, weights: Weights) -> Tensor:
    """Logarithms of probabilities at the masked tokens."""
    model.load_state_dict(weights)
    states = needed_states(model, batch)
    return model.masked_logits(states[:, None], batch.head_inputs["masked"]).log_softmax(-1)


def compare(truth: Tensor, actual: Tensor, labels: Tensor) -> Tensor:
    """For each masked token: its loss, the loss in float32, divergence, whether it is right, and
    whether both say the same."""
    best = actual.argmax(1)
    return torch.stack(
        [
            -actual.gather(1, labels[:, None])[:, 0],
            -truth.gather(1, labels[:, None])[:, 0],
            (truth.exp() * (truth - actual)).sum(1),
            (best == labels).float(),
            (best == truth.argmax(1)).float(),
        ]
    ).double()


def summary(measures: Tensor) -> dict[str, float]:
    loss, before, divergence, right, agree = measures
    change = loss - before
    return {
        "masked_loss": round(loss.mean().item(), 5),
        "loss_change": round(change.mean().item(), 6),
        "loss_deviation": round(change.std().item() / len(change) ** 0.5, 6),
        "masked_accuracy": round(right.mean().item(), 5),
        "agreement": round(agree.mean().item(), 5),
        "divergence": float(f"{divergence.mean().item():.3g}"),
    }


def distance(exact: Weights, weights: Weights) -> dict[str, float]:
    """Of all weights, the length of what was lost in parts of their own."""
    lost = sum((exact[name] - weights[name]).double().square().sum().item() for name in exact)
    total = sum(part.double().square().sum().item() for part in exact.values())
    return {"weights_lost": float(f"{(lost / total) ** 0.5:.3g}")}


def in_float(dtype: torch.dtype) -> Callable[[Weights], tuple[Weights, int]]:
    def way(exact: Weights) -> tuple[Weights, int]:
        stored = {name: tensor.to(dtype) for name, tensor in exact.items()}
        return {name: tensor.float() for name, tensor in stored.items()}, file_bytes(stored)

    return way


def in_groups(size: int) -> Callable[[Weights], tuple[Weights, int]]:
    def way(exact: Weights) -> tuple[Weights, int]:
        stored = int8.pack(exact, size)
        return int8.unpack(stored, size), file_bytes(stored)

    return way


def by_tensor(exact: Weights) -> tuple[Weights, int]:
    """One scale for a whole matrix: a matrix as a single row."""
    stored: Weights = {}
    weights: Weights = {}
    for name, tensor in exact.items():
        if int8.is_quantized(tuple(tensor.shape)):
            stored[name], stored[name + int8.SCALES] = numbers, scales = int8.quantize(
                tensor.reshape(1, -1), tensor.numel()
            )
            weights[name] = int8.dequantize(numbers, scales, tensor.numel()).view_as(tensor)
        else:
            stored[name] = weights[name] = tensor
    return weights, file_bytes(stored)


def file_bytes(stored: Mapping[str, Tensor]) -> int:
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        save_file(
            {name: tensor.contiguous() for name, tensor in stored.items()}, Path(folder) / "weights"
        )
        return (Path(folder) / "weights").stat().st_size


WAYS: dict[str, Callable[[Weights], tuple[Weights, Any]]] = {
    "float32": in_float(torch.float32),
    "float16": in_float(torch.float16),
    "int8 by tensor": by_tensor,
    "int8 by row": in_groups(WHOLE),
    **{f"int8 by {size}": in_groups(size) for size in (128, 64, 32)},
}


if __name__ == "__main__":
    main()
