"""Reversible layers (Gomez et al. 2017, RevNet; Kitaev et al. 2020, Reformer): training saves the
activations of no layer, since each layer's inputs follow from its outputs.

States in, states out, over the modules of pre-norm layers. There are two streams, which both start
as the embedding and end as their mean:

    y₁ = x₁ + Attention(LN(x₂))        x₂ = y₂ − FeedForward(LN(y₁))
    y₂ = x₂ + FeedForward(LN(y₁))      x₁ = y₁ − Attention(LN(x₂))

It is another model than the plain one: attention reads one stream and writes into the other. The
streams are float32 at least. In bfloat16 a difference would not undo a sum, and the error would
grow with every layer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from litebert.model.layers import Attention, Chosen, FeedForward, Layer, Modules, States
from litebert.model.positions import KeyMask, Needed, Packing, Rotation

_Streams = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Half:
    """One of a layer's two sublayers: streams (a, b) → (b, a + update(b))."""

    module: Attention | FeedForward
    function: Callable[[Tensor], Tensor]
    """From the normed stream to what is added."""
    parameters: tuple[nn.Parameter, ...]
    """Those that are trained."""

    def update(self, stream: Tensor) -> Tensor:
        """What is added to the other stream, in the precision of the layer."""
        normed = self.module.norm(stream.to(self.module.norm.weight.dtype))
        updated: Tensor = self.module.dropout(self.function(normed))
        return updated


@dataclass(frozen=True)
class Reversible:
    """A stack of reversible layers."""

    draws: bool
    """Whether layers draw random numbers in training: recomputing must draw the same again."""

    def run(
        self,
        layer: Layer,
        modules: Sequence[Modules],
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
    ) -> Chosen:
        """The last states; `layer` is not asked. At needed positions alone no layer has an inverse,
        so the last one saves its activations."""
        last = modules[-1:] if needed is not None else ()
        halves = [
            half
            for each in modules[: len(modules) - len(last)]
            for half in halves_of(each, mask, rotate=rotate)
        ]
        streams = _start(states)
        if halves and torch.is_grad_enabled():
            parameters = dict.fromkeys(each for half in halves for each in half.parameters)
            streams = _Function.apply(self.draws, halves, *streams, *parameters)  # type: ignore[no-untyped-call]
        else:
            streams = _forward(halves, streams)
        for each in last:
            attention, feed_forward = halves_of(each, mask, needed, rotate)
            assert needed is not None
            first = needed.of(streams[0]) + attention.update(streams[1])
            streams = first, needed.of(streams[1]) + feed_forward.update(first)
        return _mean(streams, states.dtype)

    def walk(
        self,
        layer: Layer,
        modules: Sequence[Modules],
        states: States,
        mask: KeyMask | Packing | None,
        rotate: Rotation | None = None,
    ) -> Iterator[tuple[States, States]]:
        """Of each layer: the states that its attention reads, and the states after it."""
        streams = _start(states)
        for each in modules:
            read = streams[1].to(states.dtype)
            streams = _forward(halves_of(each, mask, rotate=rotate), streams)
            yield read, _mean(streams, states.dtype)


def halves_of(
    modules: Modules,
    mask: KeyMask | Packing | None,
    needed: Needed | None = None,
    rotate: Rotation | None = None,
) -> tuple[Half, Half]:
    """A layer's attention and its feed-forward, as functions of a stream alone."""
    attention, feed_forward, adapters = modules

    def half(module: Attention | FeedForward, function: Callable[[Tensor], Tensor]) -> Half:
        updates = [getattr(adapters, name, None) for name, _ in module.named_children()]
        owners = [module, *(update for update in updates if update is not None)]
        parameters = (each for owner in owners for each in owner.parameters())
        return Half(
            module=module,
            function=function,
            parameters=tuple(each for each in parameters if each.requires_grad),
        )

    return (
        half(
            attention,
            partial(attention.compute, mask=mask, needed=needed, rotate=rotate, adapters=adapters),
        ),
        half(feed_forward, partial(feed_forward.compute, adapters=adapters)),
    )


class _Function(torch.autograd.Function):
    """apply(draws, halves, first stream, second stream, *parameters) saves the last streams."""

    @staticmethod
    def forward(
        ctx: Any, draws: bool, halves: Sequence[Half], first: Tensor, second: Tensor, *_: Tensor
    ) -> _Streams:
        ctx.halves, ctx.random_states = halves, []
        for half in halves:
            ctx.random_states.append(_random_state(first.device) if draws else None)
            first, second = second, first + half.update(second)
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        (first, second), (of_first, of_second) = ctx.saved_tensors, gradients
        sums: dict[nn.Parameter, Tensor] = {}
        for half, random_state in zip(
            reversed(ctx.halves), reversed(ctx.random_states), strict=True
        ):
            # (first, second) is (b, a + update(b))
            read = first.detach().requires_grad_()
            with torch.enable_grad(), _repeating(random_state, first.device):
                update = half.update(read)
            of_read, *of_parameters = torch.autograd.grad(
                update, (read, *half.parameters), of_second.to(update.dtype)
            )
            first, second = second - update.detach(), first
            of_first, of_second = of_second, of_first + of_read
            for parameter, gradient in zip(half.parameters, of_parameters, strict=True):
                sums[parameter] = sums[parameter] + gradient if parameter in sums else gradient
            del update, read
        parameters = dict.fromkeys(each for half in ctx.halves for each in half.parameters)
        return None, None, of_first, of_second, *(sums[each] for each in parameters)


def _forward(halves: Sequence[Half], streams: _Streams) -> _Streams:
    first, second = streams
    for half in halves:
        first, second = second, first + half.update(second)
    return first, second


def _start(states: States) -> _Streams:
    stream = states.to(torch.promote_types(states.dtype, torch.float32))
    return stream, stream


def _mean(streams: _Streams, dtype: torch.dtype) -> Chosen:
    return ((streams[0] + streams[1]) / 2).to(dtype)


# random numbers of dropout: those of the forward pass are drawn again


def _random_state(device: torch.device) -> Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


@contextmanager
def _repeating(random_state: Tensor | None, device: torch.device) -> Iterator[None]:
    """Draw from `random_state` on; afterwards continue as if nothing had been drawn."""
    if random_state is None:
        yield
        return
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if is_cuda else []):
        if is_cuda:
            torch.cuda.set_rng_state(random_state, device)
        else:
            torch.set_rng_state(random_state)
        yield
