"""litebert convert: a model folder or checkpoint in; a litebert or Hugging Face folder out."""

from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.marks import Json, Unverified, note
from litebert.config import Activation
from litebert.convert.folder import ConvertOptions, Target, convert_folder
from litebert.files import to_json
from litebert.loading import find_checkpoint
from litebert.storage.checkpoint import Storage
from litebert.terminal import write_line


def convert(
    source: Annotated[str, Positional, arg(metavar="SOURCE")],
    target: Annotated[str, Positional, arg(metavar="TARGET")],
    /,
    *,
    to: Target | None = None,
    activation: Activation | None = None,
    weights: Storage | None = None,
    head: Literal["classify", "regress", "choose"] | None = None,
    allow_pickle: bool = False,
    hf_compat: bool = False,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Convert weights from and to Hugging Face, and from Google's checkpoints; the source's kind is
    recognized.

    Args:
        source: A litebert folder, the folder of a run, a Hugging Face folder, a TensorFlow
            checkpoint (its prefix or its folder), or the name of an embedded model.
        target: The folder to write; absent or empty.
        to: Format to write; by default huggingface from a litebert folder, litebert from all
            others. A model that transformers has no class for gets a modeling file, which loads
            with trust_remote_code=True.
        activation: Replaces the source's own: Google trained ALBERT with gelu_tanh.
        weights: Store a litebert folder's weights exactly, in bfloat16 (half the space) or as int8
            matrices (a quarter); a litebert source may then become another litebert folder.
        head: Task of a fine-tuned Google checkpoint; a single output is taken for regress.
        allow_pickle: Read pytorch_model.bin, in a child process and tensors only. safetensors files
            need no such trust.
        hf_compat: Keep Hugging Face's dropout for further training: none after the feed-forward,
            one in the order head.
    """
    options = ConvertOptions(
        allow_pickle=allow_pickle,
        activation=activation,
        weights=weights,
        head=head,
        hf_compat=hf_compat,
        unverified=unverified,
    )
    conversion = convert_folder(find_checkpoint(source), target, to=to, options=options)
    note(*conversion.notes)
    if json:
        facts = {
            "source": conversion.source,
            "target": conversion.target,
            "folder": str(conversion.folder),
            "parameters": conversion.num_parameters,
            "tokenizer": conversion.has_tokenizer,
            "config": conversion.config.to_dict(),
            "notes": list(conversion.notes),
        }
        write_line(to_json(facts, ensure_ascii=False))
    else:
        heads = ", ".join(head.kind for head in conversion.config.heads) or "no head"
        tokenizer = "with its tokenizer" if conversion.has_tokenizer else "without a tokenizer"
        write_line(
            f"{conversion.folder}: {conversion.num_parameters:,} parameters ({heads}), "
            f"{conversion.source} to {conversion.target}, {tokenizer}"
        )
