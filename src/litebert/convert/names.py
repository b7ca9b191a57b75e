"""One reversible table of names: ours, Hugging Face's Albert, Hugging Face's Bert, Google's
TensorFlow.
 A model's config in; for each of our parameters its name in the other world out, and whether it
lies there transposed. A row names a part; its kind says which parameters the part has and how each
world spells them. `{k}` counts owners as our lists do; where two indices are needed, `{g}` is the
group and `{i}` the layer within it.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from litebert.config import SHARED, EncoderConfig, HeadKind, ModelConfig
from litebert.errors import ConversionError

Style = Literal["albert", "bert", "google"]
STYLES: tuple[Style, ...] = ("albert", "bert", "google")
WORLDS = {
    "albert": "Hugging Face's Albert",
    "bert": "Hugging Face's Bert",
    "google": "Google's ALBERT",
}


class Foreign(NamedTuple):
    """A parameter in another world."""

    name: str
    transposed: bool = False


class Row(NamedTuple):
    """A part of the model under each world's name; None where a world has no such part."""

    kind: str
    ours: str
    albert: str | None
    bert: str | None
    google: str | None


# kind → for each of our parameters its suffix in ours, in Hugging Face's two, in Google's; and
# whether Google transposes
SUFFIXES: dict[str, tuple[tuple[str, str, str, bool], ...]] = {
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

_A = "encoder.albert_layer_groups.{g}.albert_layers.{i}"
_B = "encoder.layer.{k}"
_G = "bert/encoder/transformer/group_{g}/inner_group_{i}"

_E = "embeddings"

EMBEDDING = (
    Row(
        "embedding",
        "token",
        f"{_E}.word_embeddings",
        f"{_E}.word_embeddings",
        f"bert/{_E}/word_embeddings",
    ),
    Row(
        "embedding",
        "position",
        f"{_E}.position_embeddings",
        f"{_E}.position_embeddings",
        f"bert/{_E}/position_embeddings",
    ),
    Row(
        "embedding",
        "segment",
        f"{_E}.token_type_embeddings",
        f"{_E}.token_type_embeddings",
        f"bert/{_E}/token_type_embeddings",
    ),
    Row("norm", "norm", f"{_E}.LayerNorm", f"{_E}.LayerNorm", f"bert/{_E}/LayerNorm"),
)
MAPPING = Row(
    "dense",
    "mapping",
    "encoder.embedding_hidden_mapping_in",
    None,
    "bert/encoder/embedding_hidden_mapping_in",
)
ATTENTION = (
    Row(
        "dense",
        "query",
        f"{_A}.attention.query",
        f"{_B}.attention.self.query",
        f"{_G}/attention_1/self/query",
    ),
    Row(
        "dense",
        "key",
        f"{_A}.attention.key",
        f"{_B}.attention.self.key",
        f"{_G}/attention_1/self/key",
    ),
    Row(
        "dense",
        "value",
        f"{_A}.attention.value",
        f"{_B}.attention.self.value",
        f"{_G}/attention_1/self/value",
    ),
    Row(
        "dense",
        "output",
        f"{_A}.attention.dense",
        f"{_B}.attention.output.dense",
        f"{_G}/attention_1/output/dense",
    ),
    Row(
        "norm",
        "norm",
        f"{_A}.attention.LayerNorm",
        f"{_B}.attention.output.LayerNorm",
        f"{_G}/LayerNorm",
    ),
)
FEED_FORWARD = (
    Row(
        "dense", "inner", f"{_A}.ffn", f"{_B}.intermediate.dense", f"{_G}/ffn_1/intermediate/dense"
    ),
    Row(
        "dense",
        "outer",
        f"{_A}.ffn_output",
        f"{_B}.output.dense",
        f"{_G}/ffn_1/intermediate/output/dense",
    ),
    Row(
        "norm", "norm", f"{_A}.full_layer_layer_norm", f"{_B}.output.LayerNorm", f"{_G}/LayerNorm_1"
    ),
)
FINAL_NORM = Row("norm", "norm", None, None, None)
POOLER = Row("dense", "pooler", "pooler", "pooler.dense", "bert/pooler/dense")

HEADS: dict[HeadKind, tuple[Row, ...]] = {
    "masked": (
        Row(
            "dense",
            "dense",
            "predictions.dense",
            "cls.predictions.transform.dense",
            "cls/predictions/transform/dense",
        ),
        Row(
            "norm",
            "norm",
            "predictions.LayerNorm",
            "cls.predictions.transform.LayerNorm",
            "cls/predictions/transform/LayerNorm",
        ),
        Row(
            "vector",
            "bias",
            "predictions.bias",
            "cls.predictions.bias",
            "cls/predictions/output_bias",
        ),
    ),
    "order": (
        Row(
            "output",
            "output",
            "sop_classifier.classifier",
            "cls.seq_relationship",
            "cls/seq_relationship/",
        ),
    ),
    "classify": (Row("output", "output", "classifier", "classifier", ""),),
    "regress": (Row("output", "output", "classifier", "classifier", ""),),
    "choose": (Row("output", "output", "classifier", "classifier", ""),),
    "tag": (Row("output", "output", "classifier", "classifier", None),),
    "span": (Row("output", "output", "qa_outputs", "qa_outputs", "cls/squad/"),),
    "joint_span": (
        Row("dense", "start", None, None, "start_logits/dense"),
        Row("dense", "end_dense", None, None, "end_logits/dense_0"),
        Row("norm", "end_norm", None, None, "end_logits/LayerNorm"),
        Row("dense", "end", None, None, "end_logits/dense_1"),
        Row("dense", "answer_dense", None, None, "answer_class/dense_0"),
        Row("product", "answer", None, None, "answer_class/dense_1"),
    ),
}
"""The parts of each head. classify, regress and choose share a name abroad; a config or a flag must
tell them apart."""

DECODERS = {"albert": "predictions.decoder", "bert": "cls.predictions.decoder"}
"""Where Hugging Face's masked head keeps a second name for the token embedding and for its own
bias."""


def foreign_names(config: ModelConfig, style: Style) -> dict[str, Foreign]:
    """Each of our parameters with its name in `style`; ConversionError where that world has no
    place for it.

    Hugging Face's prefix of the encoder (`albert.`, `bert.`), which only classes with heads have,
    is left out.
    """
    names: dict[str, Foreign] = {}
    for row, stem, indices in _rows(config):
        theirs: str | None = getattr(row, style)
        if theirs is None:
            raise ConversionError(
                f"{WORLDS[style]} has no place for {stem}, so this model cannot be expressed there"
            )
        for ours, huggingface, google, transposed in SUFFIXES[row.kind]:
            suffix = google if style == "google" else huggingface
            names[stem + ours] = Foreign(
                theirs.format(**indices) + suffix, transposed and style == "google"
            )
    return names


def _rows(config: ModelConfig) -> Iterator[tuple[Row, str, dict[str, int]]]:
    """The rows of a model with this config: (row, our name of the part, indices)."""
    encoder = config.encoder
    for row in (*EMBEDDING, MAPPING) if encoder.has_mapping else EMBEDDING:
        yield row, f"encoder.embedding.{row.ours}", {}
    for part, name, rows in (
        ("attention", "attentions", ATTENTION),
        ("ffn", "feed_forwards", FEED_FORWARD),
    ):
        for k in range(num_owners(encoder, part)):
            g, i = divmod(k, encoder.layers_per_group)
            for row in rows:
                yield row, f"encoder.{name}.{k}.{row.ours}", {"k": k, "g": g, "i": i}
    if encoder.norm == "pre":
        yield FINAL_NORM, "encoder.norm", {}
    if encoder.pooler:
        yield POOLER, "encoder.pooler", {}
    for head in config.heads:
        for row in HEADS[head.kind]:
            yield row, f"heads.{head.kind}.{row.ours}", {}


def num_owners(encoder: EncoderConfig, part: str) -> int:
    """How many parameter sets `part` (attention or ffn) has."""
    visits = encoder.num_groups if part in SHARED[encoder.share] else encoder.num_layers
    return visits * encoder.layers_per_group
