"""A litebert encoder for transformers, with nothing of litebert but this file: `auto_map` in the
config.json beside it names these classes, so that

    AutoModel.from_pretrained(folder, trust_remote_code=True)

works, and so do the Auto classes of the heads below. The layers compute what litebert's
model/layers.py does; parameters have the same names as there.

SPDX-License-Identifier: Apache-2.0
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
}
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_000,
    "embedding_size": 128,
    "embedding_bands": (),
    "embedding_band_factor": 4,
    "hidden_size": 768,
    "num_layers": 12,
    "plan": None,
    "adapter_rank": 0,
    "reversible": False,
    "num_attention_heads": 12,
    "ffn_size": 3072,
    "activation": "gelu_tanh",
    "norm": "post",
    "positions": "learned",
    "rotary_base": 10_000.0,
    "max_positions": 512,
    "num_segments": 2,
    "embedding_dropout": 0.0,
    "attention_dropout": 0.0,
    "attention_output_dropout": 0.0,
    "ffn_dropout": 0.0,
    "classifier_dropout": 0.0,
    "joint_span": False,
    "norm_epsilon": 1e-12,
    "init_std": 0.02,
    "pooler": True,
    "hf_compat": False,
}
"""What a config holds."""
Rotation = tuple[Tensor, Tensor]
"""Cosine and sine, (batch or 1, 1, tokens, half a head)."""


class LitebertConfig(PretrainedConfig):
    """litebert's EncoderConfig, and the plan of its layers. Names of transformers work as well:
    num_hidden_layers, intermediate_size, max_position_embeddings …"""

    model_type = "litebert"
    attribute_map = {  # noqa: RUF012
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ffn_size",
        "hidden_act": "activation",
        "max_position_embeddings": "max_positions",
        "type_vocab_size": "num_segments",
        "layer_norm_eps": "norm_epsilon",
        "initializer_range": "init_std",
    }

    def __init__(self, **settings: Any) -> None:
        """`plan` says for each layer in turn which attention and which feed-forward network it
        applies. The settings of litebert that it follows from are kept beside it."""
        own = {name: settings.pop(name, default) for name, default in DEFAULTS.items()}
        own["embedding_bands"] = list(own["embedding_bands"])
        own["plan"] = own["plan"] or [[0, 0]] * own["num_layers"]
        for name, value in own.items():
            setattr(self, name, value)
        super().__init__(**settings)


class BandedEmbedding(nn.Module):
    """Token embeddings that are narrower from band to band of ids, each mapped to width E."""

    def __init__(self, config: LitebertConfig, padding: int | None) -> None:
        super().__init__()
        size, self.starts = config.embedding_size, config.embedding_bands
        bounds = [0, *self.starts, config.vocab_size]
        widths = [size // config.embedding_band_factor**band for band in range(len(bounds) - 1)]
        self.tables = nn.ModuleList(
            nn.Embedding(end - start, width, padding_idx=padding if width == size else None)
            for start, end, width in zip(bounds[:-1], bounds[1:], widths, strict=True)
        )
        self.maps = nn.ModuleList(nn.Linear(width, size, bias=False) for width in widths[1:])

    def forward(self, token_ids: Tensor) -> Tensor:
        tokens = self.tables[0](token_ids.clamp(max=self.starts[0] - 1))
        ends = [*(start - 1 for start in self.starts[1:]), None]
        bands = zip(self.starts, ends, self.tables[1:], self.maps, strict=True)
        for start, end, table, to_size in bands:
            own = to_size(table(token_ids.clamp(start, end) - start))
            tokens = torch.where((token_ids >= start)[..., None], own, tokens)
        return tokens

    @property
    def weight(self) -> Tensor:
        """The rows of all tokens."""
        weights: list[Any] = [table.weight for table in self.tables]
        first, *narrow = weights
        return torch.cat(
            [first, *(each(rows) for each, rows in zip(self.maps, narrow, strict=True))]
        )


class Embedding(nn.Module):
    """Tokens, positions and segments of width E, summed, normed, mapped to the layers' width."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        size = config.embedding_size
        padding = 0 if config.hf_compat else None
        self.token: nn.Module = (
            BandedEmbedding(config, padding)
            if config.embedding_bands
            else nn.Embedding(config.vocab_size, size, padding_idx=padding)
        )
        is_rotary = config.positions == "rotary"  # then attention rotates by them
        self.position = None if is_rotary else nn.Embedding(config.max_positions, size)
        self.segment = nn.Embedding(config.num_segments, size)
        self.norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.embedding_dropout)
        has_mapping = size != config.hidden_size or config.hf_compat
        self.mapping = nn.Linear(size, config.hidden_size) if has_mapping else nn.Identity()

    def forward(self, tokens: Tensor, segment_ids: Tensor | None, positions: Tensor) -> Tensor:
        segments = self.segment.weight[0] if segment_ids is None else self.segment(segment_ids)
        summed = tokens + segments
        if self.position is not None:
            summed = summed + self.position(positions)
        return self.mapping(self.dropout(self.norm(summed)))


def rotary_tables(config: LitebertConfig, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """Cosine and sine of every position and pair of numbers i, i + size/2 of a head: it is rotated
    by position · base^(−2i/size) radians (Su et al. 2021)."""
    size = config.hidden_size // config.num_attention_heads
    dtype = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(0, size, 2, dtype=dtype, device=positions.device)
    angles = positions[..., None] * config.rotary_base ** (-pairs / size)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, rotation: Rotation | None) -> Tensor:
    """Queries or keys, rotated."""
    if rotation is None:
        return heads
    cos, sin = rotation
    first, second = heads.to(cos.dtype).chunk(2, -1)
    rotated = first * cos - second * sin, second * cos + first * sin
    return torch.cat(rotated, -1).to(heads.dtype)


class LowRank(nn.Module):
    """The update of a matrix, as a matmul of two of a low rank."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))


class Adapters(nn.Module):
    """The updates that one application of a shared layer adds to its matrices."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        size, ffn_size, rank = config.hidden_size, config.ffn_size, config.adapter_rank
        self.query, self.key, self.value, self.output = (LowRank(size, size, rank) for _ in "qkvo")
        self.inner, self.outer = LowRank(size, ffn_size, rank), LowRank(ffn_size, size, rank)


def linear(module: nn.Module, adapters: Adapters | None, name: str, x: Tensor) -> Tensor:
    """The linear layer `name` of a module, with its update where there is one."""
    mapped = getattr(module, name)(x)
    return mapped if adapters is None else mapped + getattr(adapters, name)(x)


class Attention(nn.Module):
    """Self-attention over the real tokens of each row; see `residual` for its norm."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.weight_dropout = config.attention_dropout
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.attention_output_dropout)
        self.is_pre_norm = config.norm == "pre"

    def forward(
        self, x: Tensor, mask: Tensor | None, rotation: Rotation | None, adapters: Adapters | None
    ) -> Tensor:
        """What is added to the residual, before dropout."""
        return linear(self, adapters, "output", self.attend(x, mask, rotation, adapters))

    def attend(
        self, x: Tensor, mask: Tensor | None, rotation: Rotation | None, adapters: Adapters | None
    ) -> Tensor:
        names = ("query", "key", "value")
        query, key, value = (self.heads(linear(self, adapters, name, x)) for name in names)
        query, key = rotate(query, rotation), rotate(key, rotation)
        dropout = self.weight_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return out.transpose(1, 2).flatten(2)

    def weights(
        self,
        states: Tensor,
        mask: Tensor | None,
        rotation: Rotation | None,
        adapters: Adapters | None,
    ) -> Tensor:
        """The softmax that values are weighed with, for `output_attentions`; without dropout."""
        x = self.norm(states) if self.is_pre_norm else states
        query, key = (self.heads(linear(self, adapters, name, x)) for name in ("query", "key"))
        scores = rotate(query, rotation) @ rotate(key, rotation).mT * query.shape[-1] ** -0.5
        return (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(-1)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """H → ffn_size → H with an activation between; see `residual` for its norm."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.ffn_size)
        self.activation = ACTIVATIONS[config.activation]
        self.outer = nn.Linear(config.ffn_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(0.0 if config.hf_compat else config.ffn_dropout)
        self.is_pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, adapters: Adapters | None) -> Tensor:
        """What is added to the residual, before dropout."""
        return linear(self, adapters, "outer", self.activation(linear(self, adapters, "inner", x)))


def residual(module: Attention | FeedForward, states: Tensor, read: Tensor, *shared: Any) -> Tensor:
    """x + f(LN(r)) for pre-norm, LN(x + f(r)) for post-norm; f reads r, which is x unless layers
    are reversible."""
    if module.is_pre_norm:
        normed = module.norm(read.to(module.norm.weight.dtype))
        return states + module.dropout(module(normed, *shared))
    return module.norm(states + module.dropout(module(read, *shared)))


def apply_layer(
    attention: Attention,
    feed_forward: FeedForward,
    mask: Tensor | None,
    rotation: Rotation | None,
    adapters: Adapters | None,
    *streams: Tensor,
) -> tuple[Tensor, ...]:
    """The states after a layer; of a reversible one, two streams (Gomez et al. 2017)."""
    first = residual(attention, streams[0], streams[-1], mask, rotation, adapters)
    if len(streams) == 1:
        return (residual(feed_forward, first, first, adapters),)
    return first, residual(feed_forward, streams[1], first, adapters)


class LitebertPreTrainedModel(PreTrainedModel):
    config_class = LitebertConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # losses are means over the batch, as the Trainer then expects
    _supports_sdpa = True
    _no_split_modules = ["Attention", "FeedForward"]  # noqa: RUF012
    # a checkpoint may hold other heads than the class that loads it
    _keys_to_ignore_on_load_unexpected = [r"^(masked|order|span|joint_span|output)\."]  # noqa: RUF012

    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.init_std
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(bias := getattr(module, "bias", None), Tensor):
            nn.init.zeros_(bias)

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.embedding.token

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.embedding.token = value


class LitebertModel(LitebertPreTrainedModel):
    """The encoder: last states, and the pooled state of the first token if there is a pooler."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__(config)
        attentions, feed_forwards = (1 + max(owners) for owners in zip(*config.plan, strict=True))
        self.embedding = Embedding(config)
        self.attentions = nn.ModuleList(Attention(config) for _ in range(attentions))
        self.feed_forwards = nn.ModuleList(FeedForward(config) for _ in range(feed_forwards))
        self.adapters = nn.ModuleList(Adapters(config) for _ in config.plan if config.adapter_rank)
        size, epsilon = config.hidden_size, config.norm_epsilon
        self.norm = nn.LayerNorm(size, eps=epsilon) if config.norm == "pre" else nn.Identity()
        self.pooler = nn.Linear(size, size) if config.pooler else None
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """`inputs_embeds` are token embeddings, of width E."""
        tokens = self.embedding.token(input_ids) if inputs_embeds is None else inputs_embeds
        length, limit = tokens.shape[1], self.config.max_positions
        if length > limit and position_ids is None:
            raise ValueError(f"the input has {length} tokens, the model reads at most {limit}")
        if position_ids is None:
            position_ids = torch.arange(length, device=tokens.device)
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        states = self.embedding(tokens, token_type_ids, position_ids)
        rotation = None
        if self.config.positions == "rotary":
            rotation = rotary_tables(self.config, position_ids.view(-1, 1, length), states.dtype)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        all_states, all_weights, dtype = [states], [], states.dtype
        streams: tuple[Tensor, ...] = (states,)
        if self.config.reversible:
            streams = (states.to(torch.promote_types(dtype, torch.float32)),) * 2
        for number, (attention, feed_forward) in enumerate(self.config.plan):
            layer = self.attentions[attention], self.feed_forwards[feed_forward]
            shared: Any = mask, rotation, self.adapters[number] if self.adapters else None
            if output_attentions:
                all_weights.append(layer[0].weights(streams[-1].to(dtype), *shared))
            if self.gradient_checkpointing and self.training:
                streams = self._gradient_checkpointing_func(apply_layer, *layer, *shared, *streams)
            else:
                streams = apply_layer(*layer, *shared, *streams)
            states = (streams[0] if len(streams) == 1 else (streams[0] + streams[1]) / 2).to(dtype)
            if output_hidden_states:
                all_states.append(states)
        states = all_states[-1] = self.norm(states)
        output = BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=None if self.pooler is None else torch.tanh(self.pooler(states[:, 0])),
            hidden_states=tuple(all_states) if output_hidden_states else None,
            attentions=tuple(all_weights) or None,
        )
        return_dict = self.config.return_dict if return_dict is None else return_dict
        return output if return_dict else output.to_tuple()


class MaskedHead(nn.Module):
    """H → E, activation, norm, then a matmul with the token embedding, and a bias per token."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, states: Tensor, embedding: nn.Embedding) -> Tensor:
        states = self.norm(self.activation(self.dense(states)))
        return F.linear(states, embedding.weight, self.bias)


class ModelWithHead(LitebertPreTrainedModel):
    """An encoder and a head; subclasses say what the head reads and what its loss is."""

    needs_pooler = False
    output_class: Any = SequenceClassifierOutput

    def __init__(self, config: LitebertConfig) -> None:
        # an encoder that was trained without a pooler gets a new one
        config.pooler = config.pooler or self.needs_pooler
        super().__init__(config)
        self.encoder = LitebertModel(config)
        self.add_head(config)
        self.post_init()

    def add_head(self, config: LitebertConfig) -> None:
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = nn.Linear(config.hidden_size, self.width(config))

    def width(self, config: LitebertConfig) -> int:
        return int(config.num_labels)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **options: Any,
    ) -> Any:
        encoded = self.encode(input_ids, attention_mask, token_type_ids, **options)
        logits = self.logits(encoded)
        loss = None if labels is None else self.loss(logits, labels)
        return self.result(self.output_class, encoded, return_dict, loss=loss, logits=logits)

    def encode(self, *args: Any, **options: Any) -> BaseModelOutputWithPooling:
        return self.encoder(*args, **options, return_dict=True)

    def logits(self, encoded: BaseModelOutputWithPooling) -> Tensor:
        """Of the pooled state, or of every state."""
        states = encoded.pooler_output if self.needs_pooler else encoded.last_hidden_state
        return self.output(self.dropout(states))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy; nothing is predicted where a label is -100."""
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())

    def result(
        self, output_class: Any, encoded: Any, return_dict: bool | None, **values: Any
    ) -> Any:
        output = output_class(
            **values, hidden_states=encoded.hidden_states, attentions=encoded.attentions
        )
        return_dict = self.config.return_dict if return_dict is None else return_dict
        return output if return_dict else output.to_tuple()


class LitebertForMaskedLM(ModelWithHead):
    """Logits over the vocabulary at every token, by the transposed token embedding."""

    output_class = MaskedLMOutput

    def add_head(self, config: LitebertConfig) -> None:
        self.masked = MaskedHead(config)

    def logits(self, encoded: BaseModelOutputWithPooling) -> Tensor:
        return self.masked(encoded.last_hidden_state, self.encoder.embedding.token)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """New tokens get a bias of zero."""
        embedding = super().resize_token_embeddings(*args, **kwargs)
        more = embedding.num_embeddings - len(self.masked.bias)
        self.masked.bias = nn.Parameter(F.pad(self.masked.bias.detach(), (0, more)))
        return embedding


@dataclass
class LitebertForPreTrainingOutput(ModelOutput):
    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    sop_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class LitebertForPreTraining(LitebertForMaskedLM):
    """Masked tokens, and whether the segments stand in order (0) or swapped (1)."""

    needs_pooler = True

    def add_head(self, config: LitebertConfig) -> None:
        super().add_head(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.order = nn.Linear(config.hidden_size, 2)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        sentence_order_label: Tensor | None = None,
        return_dict: bool | None = None,
        **options: Any,
    ) -> Any:
        encoded = self.encode(input_ids, attention_mask, token_type_ids, **options)
        logits = self.logits(encoded)
        order = self.order(self.dropout(encoded.pooler_output))
        loss = None
        if labels is not None and sentence_order_label is not None:
            loss = self.loss(logits, labels) + self.loss(order, sentence_order_label)
        values = {"loss": loss, "prediction_logits": logits, "sop_logits": order}
        return self.result(LitebertForPreTrainingOutput, encoded, return_dict, **values)


class LitebertForSequenceClassification(ModelWithHead):
    """A logit for each label, or with one label a number."""

    needs_pooler = True

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.config.problem_type is None:
            kind = "multi" if labels.is_floating_point() else "single"
            is_number = self.config.num_labels == 1
            self.config.problem_type = "regression" if is_number else f"{kind}_label_classification"
        if self.config.problem_type == "regression":
            return F.mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))
        if self.config.problem_type == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return super().loss(logits, labels)


class LitebertForTokenClassification(ModelWithHead):
    """A logit for each label at each token."""

    output_class = TokenClassifierOutput


class LitebertForMultipleChoice(ModelWithHead):
    """A logit for each option; inputs are (questions, options, tokens)."""

    needs_pooler = True
    output_class = MultipleChoiceModelOutput

    def width(self, config: LitebertConfig) -> int:
        return 1

    def encode(self, *inputs: Any, **options: Any) -> BaseModelOutputWithPooling:
        """Pooled states of (questions, options)."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        options = dict(zip(names, inputs, strict=True)) | options
        tensors = {name: each for name, each in options.items() if isinstance(each, Tensor)}
        flat = {name: tensor.flatten(0, 1) for name, tensor in tensors.items()}
        encoded = super().encode(**options | flat)
        shape = next(iter(tensors.values())).shape[:2]
        encoded.pooler_output = encoded.pooler_output.unflatten(0, shape)
        return encoded

    def logits(self, encoded: BaseModelOutputWithPooling) -> Tensor:
        return super().logits(encoded).flatten(1)


class JointSpanHead(nn.Module):
    """Where an answer starts; where it ends, given that start; and whether there is none."""

    def __init__(self, config: LitebertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_dense = nn.Linear(2 * size, size)
        self.end_norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.end = nn.Linear(size, 1)
        self.answer_dense = nn.Linear(2 * size, size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.answer = nn.Linear(size, 1, bias=False)

    def forward(
        self, states: Tensor, mask: Tensor | None, start_positions: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`start_positions`: the true starts in training; None for the likeliest."""
        hidden = torch.zeros_like(states[..., 0], dtype=torch.bool) if mask is None else mask == 0
        lowest = torch.finfo(states.dtype).min
        start = self.start(states)[..., 0].masked_fill(hidden, lowest)
        starts = start.argmax(-1) if start_positions is None else start_positions.flatten()
        starts = starts.clamp(max=states.shape[1] - 1)[:, None, None]
        at_start = states.gather(1, starts.expand(-1, -1, states.shape[2]))
        inner = torch.tanh(self.end_dense(torch.cat([states, at_start.expand_as(states)], -1)))
        end = self.end(self.end_norm(inner))[..., 0].masked_fill(hidden, lowest)
        expected = (start.softmax(-1)[..., None] * states).sum(1)
        inner = torch.tanh(self.answer_dense(torch.cat([expected, states[:, 0]], -1)))
        return start, end, self.answer(self.dropout(inner))[:, 0]


@dataclass
class LitebertForQuestionAnsweringOutput(QuestionAnsweringModelOutput):
    unanswerable_logits: Tensor | None = None


class LitebertForQuestionAnswering(ModelWithHead):
    """Two logits at each token: the answer starts here, the answer ends here. With
    `config.joint_span` the end depends on the start (the likeliest, in training the true one), and
    there is a logit for there being no answer, whose label is a start at token 0."""

    def add_head(self, config: LitebertConfig) -> None:
        if config.joint_span:
            self.joint_span = JointSpanHead(config)
        else:  # not `output`, which the class for sequences would take for its own head
            self.dropout = nn.Dropout(config.classifier_dropout)
            self.span = nn.Linear(config.hidden_size, 2)

    def logits(self, encoded: BaseModelOutputWithPooling) -> Tensor:
        return self.span(self.dropout(encoded.last_hidden_state))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        return_dict: bool | None = None,
        **options: Any,
    ) -> Any:
        encoded = self.encode(input_ids, attention_mask, token_type_ids, **options)
        loss = unanswerable = None
        if self.config.joint_span:
            states: Any = encoded.last_hidden_state
            start, end, unanswerable = self.joint_span(states, attention_mask, start_positions)
        else:
            start, end = self.logits(encoded).unbind(-1)
        if start_positions is not None and end_positions is not None:
            loss = (self.loss(start, start_positions) + self.loss(end, end_positions)) / 2
            if unanswerable is not None:
                is_null = (start_positions.flatten() == 0).to(unanswerable.dtype)
                null_loss = F.binary_cross_entropy_with_logits(unanswerable, is_null)
                loss = loss + null_loss / 2
        values = {"loss": loss, "start_logits": start, "end_logits": end}
        values["unanswerable_logits"] = unanswerable
        return self.result(LitebertForQuestionAnsweringOutput, encoded, return_dict, **values)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """An answer beyond the end of a truncated input is left out."""
        length = logits.shape[1]
        return F.cross_entropy(logits, labels.flatten().clamp(0, length), ignore_index=length)
