"""litebert convert: a model folder or checkpoint in; a litebert or Hugging Face folder out."""

import json as jsonlib
import sys
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.flags import Json
from litebert.config import Activation
from litebert.convert.folder import Conversion, Options, Target, convert_folder

Source = Annotated[str, Positional, arg(metavar="SOURCE")]
TargetFolder = Annotated[str, Positional, arg(metavar="TARGET")]


def convert(
    source: Source,
    target: TargetFolder,
    /,
    *,
    to: Target | None = None,
    activation: Activation | None = None,
    head: Literal["classify", "regress", "choose"] | None = None,
    allow_pickle: bool = False,
    hf_compat: bool = False,
    json: Json = False,
) -> None:
    """Convert weights from and to Hugging Face, and from Google's checkpoints; the source's kind is
    recognised.

    Args:
        source: A litebert folder, a Hugging Face folder, or a TensorFlow checkpoint (its prefix or
            its folder).
        target: The folder to write; absent or empty.
        to: What to write; by default Hugging Face's from a litebert folder, and litebert's from all
            others.
        activation: Overrules what the source's config says: gelu_tanh is what Google trained ALBERT
            with.
        head: What the output of a fine-tuned Google checkpoint is; a single output counts as
            regress.
        allow_pickle: Read pytorch_model.bin, in a child process and tensors only. Files in
            safetensors need no such trust.
        hf_compat: Train on as Hugging Face would, without feed-forward dropout and with one in the
            order head.
    """
    options = Options(
        allow_pickle=allow_pickle, activation=activation, head=head, hf_compat=hf_compat
    )
    done = convert_folder(source, target, to=to, options=options)
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    if json:
        print(jsonlib.dumps(_report(done), ensure_ascii=False))
    else:
        heads = ", ".join(head.kind for head in done.config.heads) or "no head"
        tokenizer = "with its tokenizer" if done.has_tokenizer else "without a tokenizer"
        print(
            f"{done.folder}: {done.num_parameters:,} parameters ({heads}), {done.source} to "
            f"{done.target}, {tokenizer}"
        )


def _report(done: Conversion) -> dict[str, object]:
    return {
        "source": done.source,
        "target": done.target,
        "folder": str(done.folder),
        "parameters": done.num_parameters,
        "tokenizer": done.has_tokenizer,
        "config": done.config.to_dict(),
        "notes": list(done.notes),
    }
