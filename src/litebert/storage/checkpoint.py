"""Checkpoints, to predict from: a model (and its tokenizer) in, a folder of config.json and
model.safetensors out; and the inverse.

Written atomically, verified when read, no pickle. Weights are stored exactly, as int8 with scales
(int8.py), or as a low-rank difference to another checkpoint (difference.py); config.json says
which. Names, dtypes and shapes are compared with config.json before anything is allocated.
Snapshots, to resume from, are in snapshot.py.
"""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from litebert.checks import shorten
from litebert.config import EncoderConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import (
    MANIFEST,
    check_regular,
    encode,
    read_bytes,
    read_json,
    utf8_path,
    verify_folder,
    write_folder,
)
from litebert.model.count import count_model
from litebert.model.model import Model, bare_model
from litebert.models.index import find_embedded
from litebert.storage import difference, int8
from litebert.storage.difference import Difference, Ranks, StoredDifference
from litebert.storage.int8 import Shape
from litebert.text.tokenizer import CONFIG_FILE, MODEL_FILE, Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TASK = "task.json"
FORMAT = "litebert"
VERSION = 1
Storage = Literal["exact", "bfloat16", "int8"]
"""How weights are stored: unchanged, all rounded to bfloat16, or matrices as int8."""
_FLOATS = ("F32", "F16", "BF16", "F64")
"""How weights may be stored, where config.json names no dtype."""
_MAX_GROUP_SIZE = 2**20
_IDENTITY = (WEIGHTS, MODEL_FILE, CONFIG_FILE)
"""Files whose bytes distinguish a base from any other checkpoint."""
_DROPOUTS = ("embedding_dropout", "attention_dropout", "attention_output_dropout", "ffn_dropout")
_FREE = (*_DROPOUTS, "pooler")
"""Settings in which an encoder may differ from its base."""
_Expected = Mapping[str, tuple[str | None, Shape]]
"""For each tensor of a file its dtype, None for any, and its shape."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model to predict from, with the tokenizer it was trained on if there is one."""

    model: Model
    tokenizer: Tokenizer | None = None
    task: Mapping[str, Any] | None = None
    """A TaskCard as a dictionary if the model is fine-tuned; not validated here."""

    def save(
        self, folder: Path | str, *, replace: bool = False, weights: Storage | Difference = "exact"
    ) -> Path:
        """Write the folder atomically. "bfloat16" weights take half the space, "int8" about a
        quarter, without tokenizer.json; a Difference takes a fraction of that and is loaded with
        its base."""
        if not isinstance(weights, Difference) and weights not in get_args(Storage):
            raise ConfigError(
                f"weights is one of {', '.join(get_args(Storage))}, or a Difference; got "
                f"{shorten(weights)}"
            )
        return write_folder(
            folder, lambda temporary: self.write(temporary, weights=weights), replace=replace
        )

    def write(self, folder: Path, *, weights: Storage | Difference = "exact") -> None:
        """Write the files into a folder that the caller publishes."""
        header: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in self.model.state_dict().items()
        }
        if weights != "exact":
            for name, tensor in tensors.items():
                if not tensor.isfinite().all():
                    raise CheckpointError(
                        f"{name} holds numbers that are not finite; was the run healthy?"
                    )
        if weights == "int8":
            header["weights"] = {"kind": "int8", "group_size": int8.GROUP_SIZE}
            tensors = int8.pack(tensors, int8.GROUP_SIZE)
        elif weights == "bfloat16":
            tensors = {name: tensor.bfloat16() for name, tensor in tensors.items()}
        elif isinstance(weights, Difference):
            stored, base = self._base(weights)
            header["weights"] = stored.to_dict()
            floats = {name: tensor.float() for name, tensor in tensors.items()}
            tensors = difference.pack(floats, base.model.state_dict(), stored)
        write_model(folder, header | self.model.config.to_dict(), tensors)
        if self.tokenizer is not None and not isinstance(weights, Difference):
            self.tokenizer.save(folder, for_huggingface=weights == "exact")
        write_task(folder, self.task)

    @classmethod
    def load(
        cls, folder: Path | str, *, dtype: torch.dtype = torch.float32, unverified: bool = False
    ) -> "Checkpoint":
        """Read and verify a folder; CheckpointError says what is wrong. `unverified`: without
        comparing the files with manifest.json, which may be missing."""
        folder = Path(folder)
        config, stored = _read_header(folder)
        if not unverified:
            if not (folder / MANIFEST).exists():
                raise CheckpointError(
                    f"{folder} has no {MANIFEST}, so its files cannot be verified; copy the folder "
                    "again with it, or add --unverified if you trust the files (in Python "
                    "unverified=True)"
                )
            verify_folder(folder)
        if isinstance(stored, StoredDifference):
            base = cls.load(_find_base(folder, stored), unverified=unverified)
            weights = _read_difference(folder / WEIGHTS, config, stored, base.model)
            tokenizer = base.tokenizer
        else:
            weights = _read_weights(folder / WEIGHTS, config, stored)
            tokenizer = Tokenizer.load(folder) if (folder / MODEL_FILE).exists() else None
        weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        check_finite(weights, str(folder))
        model = bare_model(config)
        model.load_state_dict(weights, assign=True)
        return cls(model=model.eval(), tokenizer=tokenizer, task=read_task(folder))

    def _base(self, weights: Difference) -> tuple[StoredDifference, "Checkpoint"]:
        """The base that this model was fine-tuned from; CheckpointError where it cannot be."""
        embedded = None if Path(weights.base).is_dir() else find_embedded(str(weights.base))
        folder = embedded.folder if embedded else Path(weights.base)
        if is_difference(folder):
            raise CheckpointError(
                f"{folder} is stored as a difference itself; take the model that it is based on"
            )
        base = Checkpoint.load(folder)
        _check_base(self.model.config.encoder, base.model.config.encoder)
        if self.tokenizer and (
            base.tokenizer is None or base.tokenizer.fingerprint != self.tokenizer.fingerprint
        ):
            raise CheckpointError(
                f"{folder} has another vocabulary than the model; a base is what the model was "
                "fine-tuned from"
            )
        stored = StoredDifference(
            base=folder.resolve().name,
            sha256=_identity(folder),
            rank=weights.rank,
            token_rank=weights.token_rank,
            group_size=weights.group_size,
        )
        return stored, base


def check_finite(weights: Mapping[str, Tensor], source: str) -> None:
    """Refuse weights that are NaN or infinite: everything computed from them would be too."""
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            raise CheckpointError(
                f"{source}: {count:,} of {tensor.numel():,} numbers of {name} are NaN or infinite; "
                "the run that wrote them diverged, or the file is damaged; take an earlier "
                "checkpoint"
            )


def write_model(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write config.json and model.safetensors into a folder that the caller publishes."""
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / CONFIG).write_bytes(encode(text + "\n"))
    save_tensors(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    # safetensors makes the file readable by its owner alone
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)


def save_tensors(
    tensors: dict[str, Tensor], file: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a file of tensors that share no memory; OSError where the system refuses."""
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        # the system's error number is only in its text, and a full disk is not a bug
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), str(error)) if number else error) from error


def write_task(folder: Path, task: Mapping[str, Any] | None) -> None:
    """Write the task of a fine-tuned model into a folder that the caller publishes."""
    if task is not None:
        text = json.dumps(dict(task), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / TASK).write_bytes(encode(text + "\n"))


def read_task(folder: Path) -> dict[str, Any] | None:
    """The task of a fine-tuned model; None where its folder has none."""
    return read_json(folder / TASK) if (folder / TASK).exists() else None


def read_config(folder: Path) -> ModelConfig:
    """The config of a checkpoint folder."""
    return _read_header(folder)[0]


def is_difference(folder: Path) -> bool:
    """Whether a checkpoint folder needs its base to be loaded."""
    return isinstance(_read_header(folder)[1], StoredDifference)


def _read_header(folder: Path) -> tuple[ModelConfig, int | StoredDifference | None]:
    """The config of a checkpoint folder, and how its weights are stored: the group size of int8
    weights, a difference, or None for exact weights."""
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a folder; expected a checkpoint with {CONFIG} and {WEIGHTS}"
        )
    data = read_json(folder / CONFIG)
    kind, version = data.pop("format", None), data.pop("version", None)
    if kind != FORMAT:
        raise CheckpointError(
            f"{folder / CONFIG} is not of a litebert checkpoint; if the folder is Hugging Face's "
            f"or Google's, convert it first: litebert convert {folder} TARGET"
        )
    if version != VERSION:
        raise CheckpointError(
            f"{folder / CONFIG} has version {shorten(version)}, this litebert reads {VERSION}; "
            "update litebert"
        )
    try:
        stored = _read_storage(data.pop("weights")) if "weights" in data else None
        return ModelConfig.from_dict(data), stored
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error


def _read_storage(data: Any) -> int | StoredDifference:
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "difference":
        return StoredDifference.from_dict(data)
    size = data["group_size"] if kind == "int8" and data.keys() == {"kind", "group_size"} else None
    if type(size) is not int or not 1 <= size <= _MAX_GROUP_SIZE:
        raise ConfigError(
            f"weights is of kind int8, with a group_size from 1 to {_MAX_GROUP_SIZE}; got "
            f"{shorten(data)}; update litebert"
        )
    return size


def _find_base(folder: Path, stored: StoredDifference) -> Path:
    """The base of a difference: the folder beside it, or an embedded model."""
    embedded = find_embedded(stored.base)
    candidates = dict.fromkeys(
        [folder.resolve().parent / stored.base, *([embedded.folder] if embedded else [])]
    )
    for base in candidates:
        is_same = (base / CONFIG).exists() and _identity(base) == stored.sha256
        if is_same and not is_difference(base):
            return base
    others = " and ".join(f"{base} is another" for base in candidates if base.exists())
    raise CheckpointError(
        f"{folder} is stored as its difference to {stored.base} with sha256 "
        f"{stored.sha256[:12]}…, and {others or 'there is no such model'}; put the base that it "
        "was made from beside it, or save it again"
    )


def _identity(folder: Path) -> str:
    """The sha256 of a checkpoint's weights and vocabulary, as stored."""
    digest = hashlib.sha256()
    try:
        for path in (folder / name for name in _IDENTITY):
            digest.update(read_bytes(path) if path.exists() else b"")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    return digest.hexdigest()


def _check_base(encoder: EncoderConfig, base: EncoderConfig) -> None:
    """Refuse a base of another shape."""
    alike = replace(encoder, **{name: getattr(base, name) for name in _FREE}).to_dict()
    for name, value in base.to_dict().items():
        if alike[name] != value:
            raise CheckpointError(
                f"the encoder has {name} {shorten(getattr(encoder, name))}, its base has "
                f"{shorten(getattr(base, name))}; a difference needs the model that was fine-tuned"
            )


def _read_weights(path: Path, config: ModelConfig, group_size: int | None) -> dict[str, Tensor]:
    """The weights of a file; int8 weights (`group_size` is not None) are returned as float32."""

    def expect(shapes: Mapping[str, Shape]) -> _Expected:
        # the count first, so that no config makes us build a large model
        count, scales = count_model(config), () if group_size is None else int8.SCALES
        weights = {name: shape for name, shape in shapes.items() if not name.endswith(scales)}
        stored = sum(map(math.prod, weights.values()))
        if count != stored:
            raise CheckpointError(
                f"{CONFIG} asks for {count:,} parameters, {WEIGHTS} has {stored:,}; they do "
                "not belong together"
            )
        expected = _shapes(bare_model(config))
        if group_size is None:
            return {name: (None, shape) for name, shape in expected.items()}
        return {**int8.layout(expected, group_size)}

    tensors = _read_tensors(path, expect)
    return tensors if group_size is None else int8.unpack(tensors, group_size)


def _read_difference(
    path: Path, config: ModelConfig, ranks: Ranks, base: Model
) -> dict[str, Tensor]:
    """The weights that a stored difference and its base add up to, in float32."""
    _check_base(config.encoder, base.config.encoder)
    weights, shapes = base.state_dict(), _shapes(bare_model(config))
    layouts = difference.layout(shapes, _shapes(base), ranks)

    def expect(stored: Mapping[str, Shape]) -> _Expected:
        # of each weight all tensors, or none where the base has it
        return {
            tensor: entry
            for name, layout in layouts.items()
            if name not in weights or layout.keys() & stored.keys()
            for tensor, entry in layout.items()
        }

    return difference.unpack(_read_tensors(path, expect), weights, shapes, ranks)


def _read_tensors(
    path: Path, expect: Callable[[Mapping[str, Shape]], _Expected]
) -> dict[str, Tensor]:
    """All tensors of a file, which must be what `expect` returns for the shapes in its header."""
    if not path.exists():
        raise CheckpointError(f"{path.parent} has no {path.name}; the checkpoint is not complete")
    try:
        check_regular(path)
        with utf8_path(path) as name, safe_open(name, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(each.get_shape()) for name, each in slices.items()}
            expected = expect(shapes)
            _check_names(shapes.keys(), expected.keys())
            for name, (dtype, shape) in expected.items():
                if shapes[name] != shape:
                    raise CheckpointError(
                        f"{path}: {name} has shape {shapes[name]}, {CONFIG} asks for {shape}"
                    )
                if (actual := slices[name].get_dtype()) not in ([dtype] if dtype else _FLOATS):
                    wanted = dtype or f"one of {', '.join(_FLOATS)}"
                    raise CheckpointError(
                        f"{path}: {name} is stored as {actual}, {CONFIG} asks for {wanted}"
                    )
            return {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read, it is truncated or damaged: {error}"
        ) from error


def _check_names(names: Collection[str], expected: Collection[str]) -> None:
    unknown, missing = sorted(set(names) - set(expected)), sorted(set(expected) - set(names))
    if unknown:
        raise CheckpointError(
            f"{len(unknown)} weights have no name here, the first is {shorten(unknown[0])}"
        )
    if missing:
        raise CheckpointError(
            f"{len(missing)} weights are missing, the first is {shorten(missing[0])}"
        )


def _shapes(model: Model) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
