"""An ONNX file's bytes in; whether it reads other files, out. No onnx, and the weights, which are
nearly all of the file, are not searched."""

from collections.abc import Iterator

from litebert.protobuf import read_fields

_REFERENCE = b"location"
"""In the entry that names another file, whatever else the entry is made of."""
_WEIGHTS = {(): 7, (7,): 5, (7, 5): 9}
"""The path of fields to the bytes of weights: graph, initializers, raw_data."""


def reads_other_files(model: bytes) -> bool:
    """Whether anything but the weights may name another file."""
    try:
        return any(_REFERENCE in model[part] for part in _around_weights(model))
    except ValueError:  # damaged, which the runtime will say
        return _REFERENCE in model


def _around_weights(model: bytes) -> Iterator[slice]:
    messages: list[tuple[tuple[int, ...], int, int]] = [((), 0, len(model))]
    while messages:
        path, begin, end = messages.pop()
        for number, value in read_fields(model, begin, end):
            if not isinstance(value, slice):
                continue
            if number != _WEIGHTS[path]:
                yield value
            elif (*path, number) in _WEIGHTS:
                messages.append(((*path, number), value.start, value.stop))
