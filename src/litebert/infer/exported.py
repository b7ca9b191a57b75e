"""A folder that `litebert export` wrote: which graphs and tensors it has, for which runtime and
processor. A folder in, checked, out. No torch.

Nothing in it is trusted: sizes are bounded by the config, a graph may not read other files, and
all bytes are compared with manifest.json, those of a graph again when it is first run.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from litebert.checks import check_choice, check_type, clip, shorten
from litebert.config import EXPORT_FORMAT, EncoderConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import MANIFEST, check_regular, load_npy, read_json, sha256, verify_folder
from litebert.infer.cpu import weight_limit
from litebert.infer.onnx_bytes import reads_other_files
from litebert.infer.plan import adapter_shapes, graph_names
from litebert.model.count import count_encoder, count_head
from litebert.text.tokenizer import MODEL_FILE, Tokenizer

CONFIG, TASK = "config.json", "task.json"
VERSION = 3
TABLE, SCALES = "token_table", "token_scales"
Runtime = Literal["onnx", "openvino"]
Format = Literal["onnx", "openvino", "web"]
"""What is written: for a runtime's engine, or for a browser (export/web.py)."""
Precision = Literal["float32", "int8"]
SUFFIXES: dict[str, tuple[str, ...]] = {"onnx": (".onnx",), "openvino": (".xml", ".bin")}
GENERATOR_NOTE = (
    "the generator, which fills masks, is not exported; fill with the checkpoint and --engine torch"
)
_OVERHEAD_BYTES = 16 * 2**20
"""Of a graph beside its weights, at most."""


@dataclass(frozen=True, kw_only=True)
class ExportHeader:
    """What config.json says beside the model's shape."""

    runtime: Runtime
    precision: Precision
    weight_limit: int = 127
    """Largest int8 weight: 64 where products of bytes may saturate, else 127."""
    source: str = ""
    """sha256 of the checkpoint that was exported."""
    lacks_generator: bool = False
    """Whether the checkpoint has a generator, which fills masks; it is never exported."""

    def __post_init__(self) -> None:
        check_choice(self, "runtime", get_args(Runtime))
        check_choice(self, "precision", get_args(Precision))
        check_choice(self, "weight_limit", (64, 127))
        check_type(self, "source", str, "a string")
        check_type(self, "lacks_generator", bool, "true or false")

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if not self.lacks_generator:  # earlier versions do not know it
            del data["lacks_generator"]
        return data


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An exported model, its files checked."""

    folder: Path
    header: ExportHeader
    config: ModelConfig
    tensors: Mapping[str, np.ndarray]
    """Inputs of graphs, mapped from their files."""
    tokenizer: Tokenizer | None
    task: Mapping[str, Any] | None
    sums: Mapping[str, str] = field(default_factory=dict)
    """By name of a file its sha256 when it was verified; empty if unverified."""

    def graph(self, name: str) -> Path:
        """The file of a graph, as it was verified, and not larger than the model's weights could
        make it."""
        path = self.folder / f"{name}{SUFFIXES[self.header.runtime][0]}"
        for suffix in SUFFIXES[self.header.runtime]:
            file = path.with_suffix(suffix)
            self._check_size(file)
            if self.sums and sha256(file) != self.sums.get(file.name):
                raise CheckpointError(
                    f"{file} has changed since the export was loaded; load it again, and put "
                    "another export into a folder of its own"
                )
        return path

    def read_graph(self, name: str) -> bytes:
        """The bytes of an ONNX graph that reads no other file."""
        path = self.graph(name)
        data = path.read_bytes()
        if reads_other_files(data):
            raise CheckpointError(
                f"{path} keeps weights in another file, which an export of litebert never does; "
                "do not trust this folder"
            )
        return data

    def _check_size(self, path: Path) -> None:
        try:
            size = check_regular(path)
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read ({error.strerror}); the export is not complete, write it "
                "again with litebert export"
            ) from error
        if size > (limit := _most_bytes(self.config)):
            raise CheckpointError(
                f"{path} has {size:,} bytes, the model of {CONFIG} at most {limit:,}; they do not "
                "belong together"
            )


def is_export(folder: Path | str) -> bool:
    """Whether a folder says that it is one of ours."""
    path = Path(folder) / CONFIG
    # not Path.is_file, which raises where a name is too long
    return os.path.isfile(path) and read_json(path).get("format") == EXPORT_FORMAT


def _read_header(folder: Path) -> tuple[ExportHeader, ModelConfig]:
    """What config.json says."""
    data = dict(read_json(folder / CONFIG))
    kind, version, header = (data.pop(name, None) for name in ("format", "version", "export"))
    if kind != EXPORT_FORMAT:
        raise CheckpointError(f"{folder} is no exported model; write one with litebert export")
    if version != VERSION:
        raise CheckpointError(
            f"{folder} is an export of version {shorten(version)}, this litebert reads {VERSION}; "
            "export the model again"
        )
    try:
        if not isinstance(header, Mapping):
            raise ConfigError(f"export is an object; got {shorten(header)}")
        return ExportHeader(**header), ModelConfig.from_dict(data)
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG} is damaged: {clip(str(error), 500)}") from error


def read_export(folder: Path | str, *, unverified: bool = False) -> Exported:
    """A folder that this processor can run; CheckpointError says what is wrong with it."""
    folder = Path(folder)
    header, config = _read_header(folder)
    sums: dict[str, str] = {}
    if not unverified:
        if not (folder / MANIFEST).exists():
            raise CheckpointError(
                f"{folder} has no {MANIFEST}, so its files cannot be verified; export the model "
                "again, or load it with unverified=True (--unverified)"
            )
        sums = verify_folder(folder)
    if header.precision == "int8" and header.weight_limit > weight_limit():
        raise CheckpointError(
            f"{folder} is int8 for processors with VNNI, and this one has none: its sums would "
            "saturate; export the model again on this machine, or in float32"
        )
    return Exported(
        folder=folder,
        header=header,
        config=config,
        tensors=_read_tensors(folder, config.encoder, header),
        tokenizer=Tokenizer.load(folder) if (folder / MODEL_FILE).exists() else None,
        task=read_json(folder / TASK) if (folder / TASK).exists() else None,
        sums=sums,
    )


def header_text(header: ExportHeader, config: ModelConfig) -> str:
    """The text of config.json."""
    data = {
        "format": EXPORT_FORMAT,
        "version": VERSION,
        "export": header.to_dict(),
    } | config.to_dict()
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _read_tensors(
    folder: Path, config: EncoderConfig, header: ExportHeader
) -> dict[str, np.ndarray]:
    """Mapped, so that only rows that are read take memory."""
    is_int8 = header.precision == "int8"
    kinds: dict[str, tuple[type, tuple[int, ...]]] = {
        TABLE: (np.int8 if is_int8 else np.float32, (config.vocab_size, config.embedding_size))
    }
    if is_int8:
        kinds[SCALES] = (np.float32, (config.vocab_size, 1))
    kinds |= {name: (np.float32, shape) for name, shape in adapter_shapes(config).items()}
    tensors = {}
    for name, (dtype, shape) in kinds.items():
        path = folder / f"{name}.npy"
        try:
            # copy-on-write: OpenVINO shares an array only if it may be written
            tensors[name] = load_npy(path, "c")
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read: {error}; export the model again"
            ) from error
        actual = tensors[name].dtype, tensors[name].shape
        if actual != (np.dtype(dtype), shape) or not tensors[name].flags.c_contiguous:
            raise CheckpointError(
                f"{path} holds {actual[0]} of shape {actual[1]}, {CONFIG} asks for "
                f"{np.dtype(dtype)} of shape {shape}; they do not belong together"
            )
    return tensors


def _most_bytes(config: ModelConfig) -> int:
    parameters = sum(count_encoder(config.encoder).values())
    parameters += sum(count_head(config.encoder, head) for head in config.heads)
    return 4 * parameters + _OVERHEAD_BYTES * len(graph_names(config))
