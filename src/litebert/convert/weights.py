"""Foreign weights: files and a table of names in, tensors under our names out, or why not.

Names, shapes and dtypes are known at once, values are read on demand: a config is compared with
the shapes that files declare before anything of that size is allocated. Nothing is dropped or
invented: an unknown name, a missing one, another shape or a dtype that float32 does not hold
exactly is refused. Pickled files (.bin) are opened by a child process only; see unpickle.py.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from litebert.checks import shorten
from litebert.config import ModelConfig
from litebert.convert.names import Foreign, Style, foreign_names, num_owners
from litebert.convert.settings import read_object
from litebert.errors import ConversionError
from litebert.files import check_regular, utf8_path
from litebert.model.model import Model, bare_model

_SAFETENSORS = "model.safetensors"
_PICKLED = "pytorch_model.bin"
_UNPICKLE_SECONDS = 600
_EXACT_DTYPES = ("F32", "F16", "BF16")
"""Dtypes that float32 holds without loss."""


@dataclass(frozen=True, kw_only=True)
class StoredWeight:
    """A weight in a file, not yet read."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors spells it: F32, BF16, …"""
    load: Callable[[], Tensor]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A foreign model under our names."""

    config: ModelConfig
    weights: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    """What a user should know: what was left out, assumed or changed."""
    task: Mapping[str, Any] | None = None
    """The task.json of a fine-tuned model of litebert; not validated here."""

    def model(self) -> Model:
        """The model, built around these tensors without a copy."""
        model = bare_model(self.config)
        model.load_state_dict(self.weights, assign=True)
        return model.eval()


@contextmanager
def stored_weights(
    folder: Path, *, allow_pickle: bool = False
) -> Iterator[dict[str, StoredWeight]]:
    """The weights of a Hugging Face folder, in one file or in several with an index."""
    if files := _files(folder, _SAFETENSORS):
        yield _open_safetensors(*files)
    elif files := _files(folder, _PICKLED):
        if not allow_pickle:
            raise ConversionError(
                f"{folder} has its weights in {files[0].name}, a pickle, which can run code of its "
                "author; if you trust them, add --allow-pickle (a child process reads it, tensors "
                "only)"
            )
        with tempfile.TemporaryDirectory(prefix="litebert-") as temporary:
            safe = [Path(temporary) / f"{position}.safetensors" for position in range(len(files))]
            for pickled, target in zip(files, safe, strict=True):
                _unpickle(pickled, target)
            yield _open_safetensors(*safe)
    else:
        raise ConversionError(
            f"{folder} has no {_SAFETENSORS} (nor {_PICKLED}); the folder is not complete"
        )


def rename(
    config: ModelConfig, style: Style, stored: Mapping[str, StoredWeight]
) -> dict[str, Tensor]:
    """The weights that another program stored, under our names in float32."""
    check_layers(config, stored)
    return load_named(config, foreign_names(config, style), stored)


def check_layers(config: ModelConfig, stored: Mapping[str, StoredWeight]) -> None:
    """Refuse a config with more layers than the file can have, before names are made for them."""
    owners = max(num_owners(config.encoder, module) for module in ("attention", "ffn"))
    layers = len(config.encoder.plan()) if config.encoder.adapter_rank else owners
    if layers > len(stored):
        raise ConversionError(
            f"the config asks for {layers} layers of weights, the file has {len(stored)} "
            "weights in all"
        )


def load_named(
    config: ModelConfig, names: Mapping[str, Foreign], stored: Mapping[str, StoredWeight]
) -> dict[str, Tensor]:
    """The weights under our names in float32, all checked before any is read; `names` are
    theirs."""
    _check_names((foreign.name for foreign in names.values()), stored)
    shapes = {name: tuple(tensor.shape) for name, tensor in bare_model(config).state_dict().items()}
    assert shapes.keys() == names.keys(), "the table and the model disagree"
    for ours, foreign in names.items():
        expected = shapes[ours][::-1] if foreign.transposed else shapes[ours]
        weight = stored[foreign.name]
        if weight.shape != expected:
            raise ConversionError(
                f"{foreign.name} has shape {list(weight.shape)}, the config asks for "
                f"{list(expected)}"
            )
        if weight.dtype not in _EXACT_DTYPES:
            raise ConversionError(
                f"{foreign.name} is stored as {weight.dtype}; weights are read from "
                f"{', '.join(_EXACT_DTYPES)}, which float32 holds exactly: cast it first"
            )
    return {ours: _tensor(stored[foreign.name].load(), foreign) for ours, foreign in names.items()}


def _tensor(tensor: Tensor, foreign: Foreign) -> Tensor:
    return (tensor.T if foreign.transposed else tensor).to(torch.float32).contiguous()


def _check_names(expected: Iterable[str], stored: Mapping[str, object]) -> None:
    names = set(expected)
    unknown, missing = sorted(stored.keys() - names), sorted(names - stored.keys())
    if missing:
        hint = f"; {shorten(unknown[0])} is there and has no name here" if unknown else ""
        raise ConversionError(
            f"{len(missing)} weights are missing, the first is {shorten(missing[0])}{hint}"
        )
    if unknown:
        raise ConversionError(
            f"{len(unknown)} weights have no name here, the first is {shorten(unknown[0])}; none "
            "may be dropped"
        )


def _open_safetensors(*paths: Path) -> dict[str, StoredWeight]:
    """The weights of several files; a name in two of them is refused."""
    weights: dict[str, StoredWeight] = {}
    for path in paths:
        try:
            check_regular(path)
            with utf8_path(path) as utf8:
                file: Any = safe_open(utf8, framework="pt")
            for name in file.keys():  # noqa: SIM118
                if name in weights:
                    raise ConversionError(
                        f"{path} holds {shorten(name)} a second time; another file of the folder "
                        "has it too"
                    )
                header = file.get_slice(name)
                weights[name] = StoredWeight(
                    shape=tuple(header.get_shape()),
                    dtype=str(header.get_dtype()),
                    load=lambda file=file, name=name: file.get_tensor(name),  # type: ignore[misc]
                )
        except FileNotFoundError as error:
            raise ConversionError(
                f"{path} is named by the folder's index and is not there"
            ) from error
        except (SafetensorError, OSError) as error:
            raise ConversionError(
                f"{path} cannot be read, it is truncated or damaged: {error}"
            ) from error
    return weights


def _files(folder: Path, name: str) -> list[Path]:
    """The files of the weights called `name`: that file, or those that its index lists."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return []
    weight_map = read_object(index).get("weight_map")
    named = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not named or not all(isinstance(file, str) for file in named):
        raise ConversionError(
            f"{index} should map names of weights to files under 'weight_map'; it does not"
        )
    files = sorted(set(named))
    for file in files:
        if PurePath(file).name != file or file in ("", ".."):
            raise ConversionError(
                f"{index} names the file {shorten(file)}; only files of the same folder are read"
            )
    return [folder / file for file in files]


def _unpickle(source: Path, target: Path) -> None:
    command = [sys.executable, "-I", "-m", "litebert.convert.unpickle"]
    command += [str(source.absolute()), str(target)]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_UNPICKLE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConversionError(
            f"reading {source} took more than {_UNPICKLE_SECONDS} s and was given up"
        ) from error
    if process.returncode:
        reason = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise ConversionError(
            f"{source} cannot be read as a pickle of tensors alone: {reason[0][:300]}"
        )
