"""One pretraining step on the CPU, ours against Hugging Face's AlbertForPreTraining, in the same
run. Prints JSON.

    python -m bench.cpu.pretrain_step [--threads 1] [--rounds 5]

H 256, 6 layers, 32 × 128 tokens, 30,000 pieces, 15 % masked, float32: forward, backward, clip and
AdamW, both with the same batch (made by our stream rules: 19 masked tokens a row, none padded).
Theirs runs with SDPA and plain AdamW, with fused AdamW, and with torch.compile and fused AdamW; the
ratio to each is printed. Contenders take turns, round after round; the figure is the median, by the
process's CPU time, which a busy machine disturbs least, and by the clock.
"""

import argparse
import sys
from collections.abc import Callable

import numpy as np
import torch
import transformers
from torch import Tensor

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.data.batch import Batch
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.optim.groups import make_optimizer
from litebert.packing import IGNORED
from litebert.recipes import OptimizerSpec
from litebert.train.compile import compile_model
from litebert.train.runtime import Runtime

VOCAB, ROWS, SEQ, MASKED = 30_000, 32, 128, 19
SHAPE = {"vocab_size": VOCAB, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4}
RATE, CLIP = 5e-4, 1.0
Step = Callable[[], float]
EAGER, FUSED, COMPILED = (
    "huggingface",
    "huggingface, fused AdamW",
    "huggingface, compiled, fused AdamW",
)
PAIRS = {"litebert": (EAGER, FUSED, COMPILED), "litebert, compiled": (COMPILED,)}
"""Ratios to print: ours as it runs on a CPU against each of theirs, and compiled against
compiled."""


def make_batch() -> Batch:
    draw = np.random.default_rng(0)
    places = np.sort(
        np.stack([draw.choice(np.arange(1, SEQ - 1), MASKED, replace=False) for _ in range(ROWS)]),
        axis=1,
    )
    token_ids = draw.integers(5, VOCAB, (ROWS, SEQ)).astype(np.int32)
    positions = (np.arange(ROWS)[:, None] * SEQ + places).reshape(-1)
    labels = token_ids.reshape(-1)[positions].copy()
    token_ids.reshape(-1)[positions] = 4
    return Batch(
        token_ids=token_ids,
        segment_ids=np.repeat((np.arange(SEQ) >= SEQ // 2)[None], ROWS, 0).astype(np.uint8),
        mask=np.ones((ROWS, SEQ), bool),
        masked_positions=positions,
        masked_labels=labels,
        order_labels=draw.integers(0, 2, ROWS).astype(np.int32),
        indices=np.arange(ROWS),
    )


def ours(batch: Batch, *, compiled: bool) -> Step:
    """As train/loop.py takes it, whole batch at once: batch to tensors, losses, gradients, clip,
    AdamW."""
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, num_layers=6, ffn_size=1024, max_positions=SEQ)
    model = Model(
        ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"), HeadConfig(kind="order")))
    ).train()
    runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)
    compile_model(model, "on" if compiled else "off", runtime, print)
    optimizer = make_optimizer(model.named_parameters(), OptimizerSpec(learning_rate=RATE))

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        losses = pretrain_losses(model, DeviceBatch.of(batch.padded()))
        loss = losses.mean(num_masked=batch.num_masked, num_examples=len(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def theirs(batch: Batch, *, fused: bool, compiled: bool) -> Step:
    torch.manual_seed(0)
    config = transformers.AlbertConfig(
        **SHAPE,
        num_hidden_layers=6,
        intermediate_size=1024,
        max_position_embeddings=SEQ,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = transformers.AlbertForPreTraining(config).train()
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=fused
    )
    tensors = DeviceBatch.of(batch.padded())
    labels = torch.full((ROWS * SEQ,), IGNORED)
    labels[batch.masked_positions] = torch.from_numpy(batch.masked_labels).long()
    inputs: dict[str, Tensor] = {
        "input_ids": tensors.token_ids,
        "token_type_ids": tensors.segment_ids,
        "labels": labels.view(ROWS, SEQ),
        "sentence_order_label": tensors.head_inputs["order_labels"],
    }

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss: Tensor = call(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    add_out(parser)
    args = parser.parse_args()
    begin(args.out, threads=args.threads)
    torch.set_num_threads(args.threads)
    batch = make_batch()
    contenders: dict[str, Step] = {
        "litebert": ours(batch, compiled=False),
        "litebert, compiled": ours(batch, compiled=True),
        EAGER: theirs(batch, fused=False, compiled=False),
        FUSED: theirs(batch, fused=True, compiled=False),
        COMPILED: theirs(batch, fused=True, compiled=True),
    }
    losses = {name: step() for name, step in contenders.items()}
    times = in_turns(contenders, args.rounds)
    tokens = ROWS * SEQ
    table = {
        name: {
            "tokens_per_cpu_second": round(tokens / each.cpu_seconds),
            "tokens_per_second": round(tokens / each.seconds),
            "first_loss": round(losses[name], 3),
        }
        for name, each in times.items()
    }
    ratios = {
        f"{mine} / {peer}": {
            unit: round(table[mine][unit] / table[peer][unit], 2)
            for unit in ("tokens_per_cpu_second", "tokens_per_second")
        }
        for mine, peers in PAIRS.items()
        for peer in peers
    }
    about = {
        "threads": args.threads,
        "rounds": args.rounds,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "masked_tokens": batch.num_masked,
    }
    publish(about | {"ratios": ratios, "steps": table}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
