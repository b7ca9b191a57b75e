"""One snapshot: everything a run needs to go on as if it had never stopped. In: live objects. Out:
files, and back.
 model.safetensors       parameters and buffers optimizer.safetensors   moments, in their own dtype
random.safetensors      states of torch's generators snapshot.json           step, place in the
data, fingerprint of the recipe, the optimizer's other values
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from litebert.errors import CheckpointError
from litebert.storage.snapshot.tree import flatten, unflatten

FORMAT = "litebert-snapshot"
VERSION = 1
TENSOR_FILES = ("model", "optimizer", "random")
KERNELS = ("foreach", "fused", "capturable", "differentiable")
"""Settings of a torch optimizer that belong to the machine, not to the run."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a run resumes from."""

    step: int
    """Updates done; the next one has this number."""
    epoch: int
    """Epoch of the next example."""
    index: int
    """Index of the next example in its epoch. Since randomness is counted, this is the whole place
    in the data."""
    recipe: str
    """Fingerprint of the recipe."""
    metrics_offset: int = 0
    """Bytes of metrics.jsonl that belong to the steps done; what follows was written by a step that
    is redone."""
    model: Mapping[str, Tensor]
    """Parameters and buffers by name."""
    optimizer: Mapping[str, Any]
    """The optimizer's state_dict."""
    random: Mapping[str, Tensor] = field(default_factory=dict)
    """States of torch's generators by device."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other plain values the loop carries: tokens read, seconds, best score, skipped steps."""

    @classmethod
    def capture(cls, model: torch.nn.Module, optimizer: Optimizer, **where: Any) -> "Snapshot":
        """Of a live run, sharing its tensors: write it before the next step. `where` are the other
        fields."""
        return cls(
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            random=random_states(),
            **where,
        )

    def restore(self, model: torch.nn.Module, optimizer: Optimizer) -> None:
        """Put the state into a model and an optimizer made by the same recipe, and torch's
        generators back."""
        _check_model(self.model, model.state_dict())
        current = optimizer.state_dict()
        _check_groups(self.optimizer["param_groups"], current["param_groups"])
        model.load_state_dict(dict(self.model))
        groups = [
            saved | {key: group[key] for key in KERNELS if key in group}
            for saved, group in zip(
                self.optimizer["param_groups"], current["param_groups"], strict=True
            )
        ]
        optimizer.load_state_dict({"state": self.optimizer["state"], "param_groups": groups})
        restore_random_states(self.random)

    def num_bytes(self) -> int:
        """About how much disk this takes."""
        tensors: dict[str, Tensor] = {}
        flatten([self.model, self.optimizer, self.random], tensors)
        return sum(tensor.nbytes + 256 for tensor in tensors.values()) + 2**16

    def write(self, folder: Path) -> None:
        """The files of this snapshot, into a folder that the caller publishes."""
        moments: dict[str, Tensor] = {}
        about = {
            "format": FORMAT,
            "version": VERSION,
            "step": self.step,
            "epoch": self.epoch,
            "index": self.index,
            "recipe": self.recipe,
            "metrics_offset": self.metrics_offset,
            "extra": flatten(self.extra, {}),
            "optimizer": flatten(self.optimizer, moments),
        }
        for name, tensors in zip(TENSOR_FILES, (self.model, moments, self.random), strict=True):
            _save_tensors(folder / f"{name}.safetensors", tensors)
        (folder / "snapshot.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Snapshot":
        """From a folder that was verified; CheckpointError if it holds something else."""
        try:
            about = json.loads((folder / "snapshot.json").read_text(encoding="utf-8"))
            if (about.pop("format"), about.pop("version")) != (FORMAT, VERSION):
                raise ValueError("it is of another format or version")
            # Cloned, since safetensors may hand out memory that is the file's.
            model, moments, random = (
                {
                    key: tensor.clone()
                    for key, tensor in load_file(folder / f"{name}.safetensors").items()
                }
                for name in TENSOR_FILES
            )
            optimizer, extra = (
                unflatten(about.pop("optimizer"), moments),
                unflatten(about.pop("extra"), {}),
            )
            return cls(model=model, random=random, optimizer=optimizer, extra=extra, **about)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            SafetensorError,
        ) as error:
            raise CheckpointError(
                f"{folder} is not a snapshot that this litebert reads: {error}"
            ) from error


def random_states() -> dict[str, Tensor]:
    """States of torch's generators: cpu, cuda:0, cuda:1, … Nothing else is drawn from: data are
    counted."""
    states = {"cpu": torch.get_rng_state()}
    # Asking wakes the device up, which a run on the CPU need not do.
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states |= {
            f"cuda:{i}": torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())
        }
    return states


def restore_random_states(states: Mapping[str, Tensor]) -> None:
    """The inverse of `random_states`; devices that this machine does not have are passed over."""
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available() and torch.device(device).index < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, device)


def _save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    owned: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        # safetensors refuses two names for one memory; each gets its own copy in the file.
        pointer = plain.untyped_storage().data_ptr()
        owned[name] = (
            plain.clone()
            if pointer in seen or plain.nbytes != plain.untyped_storage().nbytes()
            else plain
        )
        seen.add(pointer)
    try:
        save_file(owned, file)
    except SafetensorError as error:
        # It hides the number of the system's error in its text; a full disk must be told from a
        # bug.
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), str(error)) if number else error) from error


def _check_model(saved: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> None:
    for name in sorted(saved.keys() | current.keys()):
        pair = [tensors.get(name) for tensors in (saved, current)]
        then, now = ("absent" if t is None else f"{t.dtype} {list(t.shape)}" for t in pair)
        if then != now:
            raise CheckpointError(
                f"the snapshot is of another model: {name} is {then} in it, {now} here"
            )


def _check_groups(saved: list[dict[str, Any]], current: list[dict[str, Any]]) -> None:
    then, now = (
        [group.get("param_names", len(group["params"])) for group in groups]
        for groups in (saved, current)
    )
    if then != now:
        raise CheckpointError(
            "the snapshot's optimizer has other parameters or another order of them than this one"
        )
