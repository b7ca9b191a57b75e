"""A tuned embedding model within the rank of its stored difference: a run of `litebert finetune
embed`, its texts and its teacher's vectors in; a checkpoint whose change to the base has exactly
that rank out, so that storing it loses nothing but int8.

    python -m tools.fit_difference RUN OUT --base base --texts texts.txt --teacher vectors.npy \\
        [--rank 48] [--steps 240]

Cutting a change to its largest singular directions loses what the others did together. Here the cut
change goes on learning as two factors for each matrix (LoRA: Hu et al. 2021), beside biases and
norms, by 1 − cosine to the teacher's vectors, which have the model's width (tools/teacher_vectors
--like). Layers compute in bfloat16 where the processor has it.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.infer.cpu import has_bfloat16
from litebert.loading import load_checkpoint
from litebert.storage.difference import Ranks
from litebert.storage.int8 import is_quantized
from litebert.tasks.encode.encode import encode_texts
from tools.teacher_vectors import read_texts

WINDOW = 2048
"""Texts that are sorted by length before they are cut into batches."""


class Change(torch.nn.Module):
    """Weights as a fixed base and a change that is learned: factors of matrices, all of the
    rest."""

    def __init__(self, base: dict[str, Tensor], tuned: dict[str, Tensor], ranks: Ranks) -> None:
        super().__init__()
        self._base, self._names = base, list(tuned)
        factors: dict[str, tuple[Tensor, Tensor] | Tensor] = {}
        for name, weight in tuned.items():
            if is_quantized(tuple(weight.shape)):
                rank = ranks.of(name, tuple(weight.shape))
                left, sizes, right = torch.linalg.svd(weight - base[name], full_matrices=False)
                root = sizes[:rank].sqrt()
                factors[name] = left[:, :rank] * root, root[:, None] * right[:rank]
            else:
                factors[name] = weight - base[name]
        self._learned = torch.nn.ParameterDict()
        for name, each in factors.items():
            for side, tensor in enumerate(each if isinstance(each, tuple) else (each,)):
                self._learned[self._key(name, side)] = torch.nn.Parameter(tensor.clone())

    def weights(self) -> dict[str, Tensor]:
        """All weights, by name."""
        return {name: self._base[name] + self._change(name) for name in self._names}

    def _change(self, name: str) -> Tensor:
        left: Tensor = self._learned[self._key(name, 0)]
        if self._key(name, 1) not in self._learned:
            return left
        return left @ self._learned[self._key(name, 1)]

    def _key(self, name: str, side: int) -> str:
        return f"{name.replace('.', '-')}-{side}"


def batches(lengths: np.ndarray, size: int, steps: int) -> Iterator[np.ndarray]:
    """Numbers of texts of like lengths, in an order that a seed decides."""
    draw = np.random.default_rng(0)
    num_batches = 0
    while num_batches < steps:
        order = draw.permutation(len(lengths))
        for start in range(0, len(order) - size + 1, WINDOW):
            window = order[start : start + WINDOW]
            window = window[np.argsort(lengths[window], kind="stable")]
            cuts = [window[at : at + size] for at in range(0, len(window) - size + 1, size)]
            for number in draw.permutation(len(cuts)):
                if num_batches == steps:
                    return
                num_batches += 1
                yield cuts[number]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", default="base", help="name or folder of the base")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=48)
    parser.add_argument("--token-rank", type=int, default=4)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=96)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source, _ = load_checkpoint(args.run)
    before, _ = load_checkpoint(args.base)
    assert source.tokenizer is not None
    model = source.model.train()
    base, tuned = before.model.state_dict(), model.state_dict()
    ranks = Ranks(rank=args.rank, token_rank=args.token_rank)
    change = Change({name: base[name] for name in tuned}, tuned, ranks)
    texts, teacher = read_texts(args.texts), np.load(args.teacher, mmap_mode="r")
    rows = encode_texts(source.tokenizer, texts, max_length=args.max_length)
    lengths = np.array([len(row) for row in rows])
    optimizer = torch.optim.AdamW(change.parameters(), lr=args.learning_rate, weight_decay=0.0)
    warm = max(1, args.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, 1 - step / args.steps)
    )
    losses, tokens, began = [], 0, time.monotonic()
    for step, chosen in enumerate(batches(lengths, args.batch_size, args.steps)):
        width = int(lengths[chosen].max())
        mask = torch.from_numpy(np.arange(width) < lengths[chosen][:, None])
        token_ids = torch.full(mask.shape, source.tokenizer.pad_id)
        token_ids[mask] = torch.from_numpy(np.concatenate([rows[n] for n in chosen])).long()
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16()):
            weights = {
                name.removeprefix("encoder."): each for name, each in change.weights().items()
            }
            inputs = {"token_ids": token_ids, "mask": mask}
            states = torch.func.functional_call(model.encoder, weights, kwargs=inputs)
        states = states.float() * mask[..., None]
        vectors = F.normalize(states.sum(1) / mask.sum(1, keepdim=True), dim=-1)
        target = F.normalize(torch.from_numpy(teacher[chosen].astype(np.float32)), dim=-1)
        loss = (1 - (vectors * target).sum(-1)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(change.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        tokens += int(lengths[chosen].sum())
        if step % 20 == 19:
            print(f"step {step + 1}: loss {np.mean(losses[-20:]):.4f}", flush=True)
    model.load_state_dict({name: weight.detach() for name, weight in change.weights().items()})
    model.eval()
    source.save(args.out)
    report = {"steps": args.steps, "tokens": tokens, "rank": args.rank}
    report |= {"seconds": round(time.monotonic() - began, 1), "loss": float(np.mean(losses[-20:]))}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
