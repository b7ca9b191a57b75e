"""What a study costs on this machine, before it runs: a recipe in; FLOPs, bytes and, with a
measured speed, seconds out.

Estimates. Time is FLOPs divided by a speed that was measured here, of stored runs or of a probe of
seconds; evaluation, fine-tuning and the start of processes are in it only with stored runs. Memory
is counted from shapes: weights, gradients and moments in float32, activations of one microbatch,
logits of its masked tokens.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from litebert.config import EncoderConfig, preset
from litebert.errors import LitebertError
from litebert.files import read_json
from litebert.lab.results import RESULT
from litebert.lab.study import Study
from litebert.model.count import TRAINING_BYTES, activation_bytes, count_encoder, flops_per_token
from litebert.recipes import PretrainRecipe, named

_PROCESS_BYTES = 1.5 * 2**30
"""Of a process with torch in it: libraries, the device's context, buffers."""
_FREE_SHARE = 0.9
_PROBE_SECONDS = 1.0
_USUAL: dict[str, tuple[EncoderConfig, int]] = {
    "cpu": (named("demo").encoder, 64),
    "gpu-hour": (preset("litebert-small"), 128),
}
"""The model that most studies of a scale train, and its sequence length."""


def training_flops(recipe: PretrainRecipe) -> float:
    return recipe.tokens_in(recipe.total_steps) * flops_per_token(
        recipe.encoder,
        seq=max(recipe.sequence_length.values),
        masked_fraction=max(recipe.mask_fraction.values),
        training=True,
    )


def training_bytes(recipe: PretrainRecipe) -> float:
    """Of a pretraining run, on its device."""
    encoder, length = recipe.encoder, max(recipe.sequence_length.values)
    width = 4 if recipe.dtype == "float32" else 2
    tokens = min(recipe.microbatch_tokens, length * max(recipe.batch_size.values))
    saved = activation_bytes(
        encoder,
        batch=max(tokens // length, 1),
        seq=length,
        checkpoint_every=recipe.checkpoint_every,
        width=width,
    )
    logits = 2 * 4 * max(recipe.mask_fraction.values) * tokens * encoder.vocab_size
    weights = TRAINING_BYTES * sum(count_encoder(encoder).values())
    return _PROCESS_BYTES + weights + saved + logits


def study_flops(study: Study, scale: str) -> float:
    """Of all pretraining runs of a study; 0 where nothing is trained."""
    if study.kind != "pretrain":
        return 0.0
    trained = [row for row in study.rows if not row.members]
    return study.scale(scale).seeds * sum(
        training_flops(study.recipe(row, scale)) for row in trained
    )


def study_bytes(study: Study, scale: str) -> float:
    """Of the largest run."""
    if study.kind == "count":
        return 0.0
    ranks = study.scale(scale).ranks
    trained = [row for row in study.rows if not row.members]
    return ranks * max(training_bytes(study.recipe(row, scale)) for row in trained)


def stored_rate(folder: Path) -> float | None:
    """Seconds per FLOP of the finished runs in a study's folder, all that follows pretraining
    included; None where none has been timed."""
    flops = seconds = 0.0
    for path in folder.glob(f"*-seed*/{RESULT}"):
        try:
            result = read_json(path)
        except LitebertError:
            continue
        if result.get("flops") and result.get("wall_seconds"):
            flops, seconds = flops + result["flops"], seconds + result["wall_seconds"]
    return seconds / flops if flops else None


def describe_costs(
    studies: Iterable[Study], runs: Path, *, device: str, probe: bool, scales: Iterable[str]
) -> dict[tuple[str, str], dict[str, float | str]]:
    """By study and scale: FLOPs of pretraining, bytes of the largest run, and seconds where a speed
    is known, with where it is known from: runs (of this study, finished) or probe."""
    costs: dict[tuple[str, str], dict[str, float | str]] = {}
    speeds: dict[str, float] = {}
    for study in studies:
        for scale in study.scales.keys() & set(scales):
            flops = study_flops(study, scale)
            cost: dict[str, float | str] = {
                "flops": flops,
                "memory_bytes": study_bytes(study, scale),
            }
            own, rate = study.scale(scale), stored_rate(runs / f"{study.name}-{scale}")
            if own.minutes is not None:  # FLOPs follow from it, and are not known before
                seconds = 60 * own.minutes * own.seeds * len(study.rows)
                cost |= {"seconds": seconds, "timed_by": "set"}
            elif flops and rate is not None:
                cost |= {"seconds": flops * rate, "timed_by": "runs"}
            elif flops and probe:
                # the paper's models would take minutes to probe on a CPU
                usual = "cpu" if scale == "cpu" else "gpu-hour"
                if usual not in speeds:
                    shape, length = _USUAL[usual]
                    speeds[usual] = probe_speed(shape, length=length, device=device)
                cost |= {"seconds": flops / speeds[usual], "timed_by": "probe"}
            costs[study.name, scale] = cost
    return costs


def probe_speed(encoder: EncoderConfig, *, length: int, device: str) -> float:
    """FLOPs a second of training steps of this encoder on random tokens, measured for about a
    second: forward, backward, masked tokens; no optimizer, no data."""
    import torch  # the catalog is listed without

    from litebert.config import HeadConfig, ModelConfig
    from litebert.model.model import Model

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = 256 if device.startswith("cuda") else 8
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),))).to(device)
    ids = torch.randint(5, encoder.vocab_size, (rows, length), device=device)
    masked = torch.arange(0, rows * length, 7, device=device)

    def step() -> None:
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=device != "cpu"):
            states = model.encoder(token_ids=ids)
            logits = model.masked_logits(states, masked)
            loss = torch.nn.functional.cross_entropy(logits, ids.flatten()[masked])
        loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    step()
    began, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - began < _PROBE_SECONDS:
        step()
        steps += 1
    seconds = time.monotonic() - began
    per_token = flops_per_token(encoder, seq=length, masked_fraction=1 / 7, training=True)
    return steps * rows * length * per_token / seconds


def device_memory(device: str) -> float:
    """Bytes that are free on a device, less a tenth."""
    if device != "cpu":
        import torch

        if torch.cuda.is_available():
            free, _ = torch.cuda.mem_get_info(None if device == "auto" else device)
            return _FREE_SHARE * free
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        number = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return _FREE_SHARE * 1024 * int(number)
    except (OSError, StopIteration, ValueError):
        return _FREE_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
