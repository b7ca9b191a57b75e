"""Weights that lie in files: where they are in; names, shapes and types out at once, values only
when asked for.
 Looking before loading is what makes a hostile or mistaken folder harmless: a config is compared
with the shapes that files declare before anything of that size exists. Pickled files (.bin) are
opened by a child process only; see unpickle.py.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from litebert.errors import CheckpointError, ConversionError
from litebert.files import read_json

SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
UNPICKLE_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One weight, not yet read."""

    shape: tuple[int, ...]
    dtype: str
    """As the file spells it: F32, BF16, …"""
    load: Callable[[], Tensor]


@contextmanager
def stored_weights(folder: Path, *, allow_pickle: bool = False) -> Iterator[dict[str, Stored]]:
    """The weights of a Hugging Face folder, in one file or in several with an index."""
    if files := _files(folder, SAFETENSORS):
        yield open_safetensors(*files)
    elif files := _files(folder, PICKLED):
        if not allow_pickle:
            raise ConversionError(
                f"{folder} has its weights in {files[0].name}, a pickle, which can run code of its "
                "author; "
                "if you trust them, add --allow-pickle (a child process reads it, tensors only)"
            )
        with tempfile.TemporaryDirectory(prefix="litebert-") as temporary:
            safe = [Path(temporary) / f"{position}.safetensors" for position in range(len(files))]
            for pickled, target in zip(files, safe, strict=True):
                _unpickle(pickled, target)
            yield open_safetensors(*safe)
    else:
        raise ConversionError(
            f"{folder} has no {SAFETENSORS} (nor {PICKLED}); the folder is not complete"
        )


def open_safetensors(*paths: Path) -> dict[str, Stored]:
    """What safetensors files hold; a name in two of them is refused."""
    found: dict[str, Stored] = {}
    for path in paths:
        try:
            file: Any = safe_open(path, framework="pt")
            for name in file.keys():  # noqa: SIM118
                if name in found:
                    raise ConversionError(
                        f"{path} holds {name!r} a second time; another file of the folder has it "
                        "too"
                    )
                part = file.get_slice(name)
                found[name] = Stored(
                    shape=tuple(part.get_shape()),
                    dtype=str(part.get_dtype()),
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
    return found


def _files(folder: Path, name: str) -> list[Path]:
    """The files that hold the weights under `name`: itself, or those its index lists."""
    if (folder / name).is_file():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.is_file():
        return []
    try:
        places = read_json(index).get("weight_map")
    except CheckpointError as error:
        raise ConversionError(str(error)) from error
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(place, str) for place in places.values())
    ):
        raise ConversionError(
            f"{index} should map names of weights to files under 'weight_map'; it does not"
        )
    files = sorted(set(places.values()))
    for file in files:
        if PurePath(file).name != file or file in ("", ".."):
            raise ConversionError(
                f"{index} names the file {file!r}; only files of the same folder are read"
            )
    return [folder / file for file in files]


def _unpickle(source: Path, target: Path) -> None:
    command = [
        sys.executable,
        "-I",
        "-m",
        "litebert.convert.unpickle",
        str(source.absolute()),
        str(target),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=UNPICKLE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConversionError(
            f"reading {source} took more than {UNPICKLE_SECONDS} s and was given up"
        ) from error
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ConversionError(
            f"{source} cannot be read as a pickle of tensors alone: {reason[0][:300]}"
        )
