"""Laws of reversible layers: the gradients are autograd's, nothing is saved per layer, and what is
recomputed is what was computed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import PRESETS
from litebert.errors import ConfigError
from litebert.model.encoder import Encoder
from litebert.model.positions import Needed, Packing
from litebert.model.reversible import halves_of
from tests.model.test_encoder import ids, make

CONFIG = replace(PRESETS["tiny"], norm="pre", reversible=True, init_std=0.1)
SWITCHES: list[dict[str, Any]] = [
    {},
    {"share": "none"},
    {"num_groups": 3, "share": "ffn"},
    {"num_layers": 2, "layers_per_group": 2, "cycle": "reversed"},
    {"num_layers": 4, "unshared_ends": 1},
    {"adapter_rank": 3},
    {"positions": "rotary"},
    {"attention_dropout": 0.3, "ffn_dropout": 0.2, "attention_output_dropout": 0.2},
]
MASK = torch.tensor([[True] * 9, [True] * 6 + [False] * 3])
NEEDED = Needed(places=torch.tensor([[0, 3], [9, 14]]))
Gradients = tuple[Tensor, dict[str, Tensor]]


def naive(encoder: Encoder, needed: Needed | None) -> Tensor:
    """The equations written out, with autograd through all of them."""
    states = encoder.embedding(ids())
    wide = torch.promote_types(states.dtype, torch.float32)
    first = second = states.to(wide)
    for number, application in enumerate(encoder.plan, start=1):
        chosen = needed if number == len(encoder.plan) else None
        modules = encoder.modules_of(application)
        rotate = encoder.rotation(states)
        attention, feed_forward = halves_of(modules, MASK[:, None, None, :], chosen, rotate)
        before = first if chosen is None else chosen.of(first)
        first, at_chosen = before + attention.update(second), second
        at_chosen = second if chosen is None else chosen.of(second)
        second = at_chosen + feed_forward.update(first)
    final: Tensor = encoder.norm(((first + second) / 2).to(states.dtype))
    return final


def gradients(encoder: Encoder, needed: Needed | None, *, by_hand: bool = False) -> Gradients:
    encoder.zero_grad()
    torch.manual_seed(3)
    states = (
        naive(encoder, needed) if by_hand else encoder(token_ids=ids(), mask=MASK, needed=needed)
    )
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(states.shape, generator=generator, dtype=torch.float64)
    (states * weights.to(states.dtype)).sum().backward()
    named = encoder.named_parameters()
    return states.detach(), {name: each.grad for name, each in named if each.grad is not None}


def error(found: Gradients, truth: Gradients) -> float:
    """Relative, of all gradients as one vector."""
    assert found[1].keys() == truth[1].keys()
    pairs = [(found[1][name].double(), truth[1][name].double()) for name in truth[1]]
    difference = sum((one - other).square().sum() for one, other in pairs)
    size = sum(other.square().sum() for _, other in pairs)
    return float((difference / size) ** 0.5)


@pytest.mark.parametrize("needed", [None, NEEDED], ids=["all", "needed"])
@pytest.mark.parametrize("changes", SWITCHES)
def test_gradients_are_autograds(changes: dict[str, Any], needed: Needed | None) -> None:
    encoder = make(replace(CONFIG, **changes)).double()
    ours, truth = gradients(encoder, needed), gradients(encoder, needed, by_hand=True)
    torch.testing.assert_close(ours[0], truth[0], rtol=0, atol=1e-12)
    assert error(ours, truth) < 1e-12


@pytest.mark.parametrize(
    ("dtype", "depth", "factor"), [(torch.float32, 12, 1.5), (torch.bfloat16, 48, 1.1)]
)
@pytest.mark.parametrize("share", ["all", "none"])
def test_gradients_err_as_those_that_save_activations(
    dtype: torch.dtype, depth: int, factor: float, share: Any
) -> None:
    """The truth is the float64 run of the same rounded weights. In float32 the error of the
    recomputed streams shows; in bfloat16 that of the layers hides it."""
    encoder = make(replace(CONFIG, num_layers=depth, share=share, residual_init=0.3)).to(dtype)
    ours, saving = gradients(encoder, None), gradients(encoder, None, by_hand=True)
    truth = gradients(encoder.double(), None, by_hand=True)
    assert error(ours, truth) < factor * error(saving, truth)


def test_inputs_are_reconstructed_in_bfloat16() -> None:
    """After 24 bfloat16 layers and back the streams are the embedding again, to float32."""
    encoder = make(replace(CONFIG, num_layers=24, share="none")).bfloat16()
    halves = [half for each in encoder.plan for half in halves_of(encoder.modules_of(each), None)]
    with torch.no_grad():
        start = encoder.embedding(ids()).float()
        first = second = start
        for half in halves:
            first, second = second, first + half.update(second)
        assert (first - start).abs().max() > 0.1
        for half in reversed(halves):
            first, second = second - half.update(first), first
    for stream in (first, second):
        torch.testing.assert_close(stream, start, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", SWITCHES)
def test_forward_is_the_last_of_all_states(changes: dict[str, Any]) -> None:
    encoder = make(replace(CONFIG, **changes)).double().eval()
    states = encoder.all_states(token_ids=ids(), mask=MASK)
    every = encoder(token_ids=ids(), mask=MASK)
    assert torch.equal(states[-1], every)
    chosen = encoder(token_ids=ids(), mask=MASK, needed=NEEDED)
    torch.testing.assert_close(chosen, every.flatten(0, 1)[NEEDED.places], rtol=0, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(encoder(token_ids=ids(), mask=MASK), every)
    assert torch.equal(
        encoder(token_ids=ids(), mask=MASK, depth=1),
        encoder.norm(states[len(encoder.plan) // encoder.config.num_layers]),
    )


def test_it_is_another_model_than_the_plain_one() -> None:
    plain, reversible = make(replace(CONFIG, reversible=False)), make(CONFIG)
    assert plain.state_dict().keys() == reversible.state_dict().keys()
    assert not torch.allclose(plain(token_ids=ids()), reversible(token_ids=ids()), atol=0.01)


def test_attention_weights_are_of_the_stream_that_attention_reads() -> None:
    encoder = make(CONFIG).eval()
    attention, feed_forward = halves_of(encoder.modules_of(encoder.plan[0]), None)
    first = encoder.embedding(ids())
    second = first + feed_forward.update(first + attention.update(first))
    weights = encoder.attention_weights(token_ids=ids())
    module = encoder.modules_of(encoder.plan[1])[0]
    torch.testing.assert_close(weights[1], module.weights(second, None))


def test_packed_rows_are_the_rows_alone() -> None:
    encoder = make(CONFIG).double().eval()
    rows = [ids(1, 5), ids(1, 9)]
    bounds = torch.tensor([0, 5, 14], dtype=torch.int32)
    packed = encoder(
        token_ids=torch.cat(rows, 1),
        mask=Packing(bounds=bounds, longest=9),
        positions=torch.cat([torch.arange(5), torch.arange(9)])[None],
    )
    for row, states in zip(rows, packed.split([5, 9], 1), strict=True):
        torch.testing.assert_close(states, encoder(token_ids=row), rtol=0, atol=1e-12)


def saved_bytes(encoder: Encoder) -> int:
    """Of the tensors that the layers save for backward, weights apart."""
    sizes: dict[int, int] = {}
    states = encoder.embedding(ids())

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states = encoder.run(encoder.plan, states, None)
    assert states.requires_grad
    weights = {each.untyped_storage().data_ptr() for each in encoder.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in weights)


def test_two_streams_are_saved_at_any_depth() -> None:
    streams = 2 * ids().numel() * CONFIG.hidden_size * 4
    assert {saved_bytes(make(replace(CONFIG, num_layers=n))) for n in (1, 3, 24)} == {streams}


def test_a_parameter_gets_its_gradient_once() -> None:
    """What torch's DistributedDataParallel builds on: however often a layer is applied, its
    gradient is accumulated when it is complete."""
    encoder, calls = make(CONFIG), []
    for name, parameter in encoder.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: calls.append(name))  # type: ignore[misc]
    encoder(token_ids=ids()).sum().backward()
    assert sorted(calls) == sorted(set(calls))
    assert {name for name in calls if "attentions" in name} == {
        name for name, _ in encoder.named_parameters() if "attentions" in name
    }


def test_frozen_layers_pass_gradients_on() -> None:
    encoder = make(CONFIG).double()
    truth = gradients(encoder, None)[1]
    encoder.feed_forwards.requires_grad_(False)
    actual = gradients(encoder, None)[1]
    assert actual.keys() == {name for name in truth if "feed_forwards" not in name}
    torch.testing.assert_close(
        actual["embedding.token.weight"], truth["embedding.token.weight"], rtol=0, atol=1e-12
    )


def test_what_reversible_layers_exclude_is_refused() -> None:
    with pytest.raises(ConfigError, match="reversible layers are pre-norm, so norm is pre; got po"):
        replace(CONFIG, norm="post")
    with pytest.raises(ConfigError, match="checkpoint_every is then 0, got 2"):
        Encoder(CONFIG, checkpoint_every=2)
