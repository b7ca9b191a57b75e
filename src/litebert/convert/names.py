"""One reversible table of names: ours, Hugging Face's Albert, Hugging Face's Bert, Google's
TensorFlow.

A model's config in; for each of our parameters its foreign name out, and whether it is stored
transposed. A row names a module; its kind gives the module's parameters and how each side spells
them. `{k}` counts owners of parameters as our lists do; where two indices are needed, `{g}` is the
group and `{i}` the layer within it.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from litebert.config import EncoderConfig, HeadKind, ModelConfig

Style = Literal["albert", "bert", "google"]


class Foreign(NamedTuple):
    """A parameter's foreign name."""

    name: str
    transposed: bool = False


class _Row(NamedTuple):
    """A module of the model under each name; None where a side has no such module."""

    kind: str
    ours: str
    albert: str | None
    bert: str | None
    google: str | None


# kind → each parameter's suffix in ours, in Hugging Face's, in Google's; is that transposed?
_SUFFIXES: dict[str, tuple[tuple[str, str, str, bool], ...]] = {
    "embedding": ((".weight", ".weight", "", False),),
    "dense": ((".weight", ".weight", "/kernel", True), (".bias", ".bias", "/bias", False)),
    "product": ((".weight", ".weight", "/kernel", True),),
    "norm": ((".weight", ".weight", "/gamma", False), (".bias", ".bias", "/beta", False)),
    "output": (
        (".weight", ".weight", "output_weights", False),
        (".bias", ".bias", "output_bias", False),
    ),
    "vector": (("", "", "", False),),
}


def _embedding(kind: str, ours: str, theirs: str) -> _Row:
    name = f"embeddings.{theirs}"
    return _Row(kind, ours, name, name, f"bert/embeddings/{theirs}")


def _output(albert: str, bert: str, google: str | None) -> tuple[_Row]:
    return (_Row("output", "output", albert, bert, google),)


_A = "encoder.albert_layer_groups.{g}.albert_layers.{i}"
_B = "encoder.layer.{k}"
_G = "bert/encoder/transformer/group_{g}/inner_group_{i}"
_AA, _BA, _GA = f"{_A}.attention", f"{_B}.attention", f"{_G}/attention_1"

_EMBEDDING = (
    _embedding("embedding", "token", "word_embeddings"),
    _embedding("embedding", "position", "position_embeddings"),
    _embedding("embedding", "segment", "token_type_embeddings"),
    _embedding("norm", "norm", "LayerNorm"),
)
_MAPPING = "embedding_hidden_mapping_in"
MAPPING = _Row("dense", "mapping", f"encoder.{_MAPPING}", None, f"bert/encoder/{_MAPPING}")
_ATTENTION = (
    _Row("dense", "query", f"{_AA}.query", f"{_BA}.self.query", f"{_GA}/self/query"),
    _Row("dense", "key", f"{_AA}.key", f"{_BA}.self.key", f"{_GA}/self/key"),
    _Row("dense", "value", f"{_AA}.value", f"{_BA}.self.value", f"{_GA}/self/value"),
    _Row("dense", "output", f"{_AA}.dense", f"{_BA}.output.dense", f"{_GA}/output/dense"),
    _Row("norm", "norm", f"{_AA}.LayerNorm", f"{_BA}.output.LayerNorm", f"{_G}/LayerNorm"),
)
_INNER = f"{_G}/ffn_1/intermediate"
_FEED_FORWARD = (
    _Row("dense", "inner", f"{_A}.ffn", f"{_B}.intermediate.dense", f"{_INNER}/dense"),
    _Row("dense", "outer", f"{_A}.ffn_output", f"{_B}.output.dense", f"{_INNER}/output/dense"),
    _Row(
        "norm", "norm", f"{_A}.full_layer_layer_norm", f"{_B}.output.LayerNorm", f"{_G}/LayerNorm_1"
    ),
)
_POOLER = _Row("dense", "pooler", "pooler", "pooler.dense", "bert/pooler/dense")

_A, _B, _G = "predictions", "cls.predictions.transform", "cls/predictions/transform"
HEADS: dict[HeadKind, tuple[_Row, ...]] = {
    "masked": (
        _Row("dense", "dense", f"{_A}.dense", f"{_B}.dense", f"{_G}/dense"),
        _Row("norm", "norm", f"{_A}.LayerNorm", f"{_B}.LayerNorm", f"{_G}/LayerNorm"),
        _Row("vector", "bias", f"{_A}.bias", "cls.predictions.bias", "cls/predictions/output_bias"),
    ),
    "order": _output("sop_classifier.classifier", "cls.seq_relationship", "cls/seq_relationship/"),
    "classify": _output("classifier", "classifier", ""),
    "multilabel": _output("classifier", "classifier", None),
    "regress": _output("classifier", "classifier", ""),
    "choose": _output("classifier", "classifier", ""),
    "tag": _output("classifier", "classifier", None),
    "span": _output("qa_outputs", "qa_outputs", "cls/squad/"),
    "joint_span": (
        _Row("dense", "start", None, None, "start_logits/dense"),
        _Row("dense", "end_dense", None, None, "end_logits/dense_0"),
        _Row("norm", "end_norm", None, None, "end_logits/LayerNorm"),
        _Row("dense", "end", None, None, "end_logits/dense_1"),
        _Row("dense", "answer_dense", None, None, "answer_class/dense_0"),
        _Row("product", "answer", None, None, "answer_class/dense_1"),
    ),
}
"""The modules of each head. classify, multilabel, regress and choose share their foreign names; a
config or a flag must tell them apart."""

DECODERS = {"albert": "predictions.decoder", "bert": "cls.predictions.decoder"}
"""Second name of the token embedding and of the bias in Hugging Face's masked head."""


def foreign_names(config: ModelConfig, style: Style) -> dict[str, Foreign]:
    """Each of our parameters with its name in `style`, without the prefix of classes with heads
    (`albert.`, `bert.`). The model is one that can be expressed there (`why_custom`)."""
    assert config.encoder.norm == "post"
    assert config.encoder.positions != "rotary"
    names: dict[str, Foreign] = {}
    for row, stem, indices in _rows(config):
        theirs: str | None = getattr(row, style)
        assert theirs is not None, f"{style} has no {stem}"
        for ours, huggingface, google, transposed in _SUFFIXES[row.kind]:
            suffix = google if style == "google" else huggingface
            names[stem + ours] = Foreign(
                theirs.format(**indices) + suffix, transposed and style == "google"
            )
    return names


def _rows(config: ModelConfig) -> Iterator[tuple[_Row, str, dict[str, int]]]:
    """The rows of a model with this config: (row, our name of the module, indices)."""
    encoder = config.encoder
    for row in (*_EMBEDDING, MAPPING) if encoder.has_mapping else _EMBEDDING:
        yield row, f"encoder.embedding.{row.ours}", {}
    for module, name, rows in (
        ("attention", "attentions", _ATTENTION),
        ("ffn", "feed_forwards", _FEED_FORWARD),
    ):
        for k in range(num_owners(encoder, module)):
            g, i = divmod(k, encoder.layers_per_group)
            for row in rows:
                yield row, f"encoder.{name}.{k}.{row.ours}", {"k": k, "g": g, "i": i}
    if encoder.pooler:
        yield _POOLER, "encoder.pooler", {}
    for head in config.heads:
        for row in HEADS[head.kind]:
            yield row, f"heads.{head.kind}.{row.ours}", {}


def num_owners(encoder: EncoderConfig, module: str) -> int:
    """Number of parameter sets of `module`, attention or ffn."""
    column = ("attention", "ffn").index(module)
    return 1 + max(owners[column] for owners in encoder.plan())
