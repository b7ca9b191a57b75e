"""An ONNX file's bytes in; whether it reads other files, out. No onnx, and the weights, which are
nearly all of the file, are not searched."""

from collections.abc import Iterator

_REFERENCE = b"location"
"""In the entry that names another file, whatever else the entry is made of."""
_WEIGHTS = {(): 7, (7,): 5, (7, 5): 9}
"""The path of fields to the bytes of weights: graph, initializers, raw_data."""


def reads_other_files(model: bytes) -> bool:
    """Whether anything but the weights may name another file."""
    try:
        return any(_REFERENCE in model[start:stop] for start, stop in _around_weights(model))
    except (IndexError, ValueError):  # damaged, which the runtime will say
        return _REFERENCE in model


def _around_weights(model: bytes) -> Iterator[tuple[int, int]]:
    messages: list[tuple[tuple[int, ...], int, int]] = [((), 0, len(model))]
    while messages:
        path, begin, end = messages.pop()
        for number, start, stop in _fields(model, begin, end):
            if number != _WEIGHTS[path]:
                yield start, stop
            elif (*path, number) in _WEIGHTS:
                messages.append(((*path, number), start, stop))


def _fields(model: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number of each field of a protobuf message, and where its value starts and stops."""
    while at < end:
        key, at = _varint(model, at)
        kind, start = key & 7, at
        if kind == 0:
            _, at = _varint(model, at)
        elif kind == 2:
            size, start = _varint(model, at)
            at = start + size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("cut off")
        yield key >> 3, start, at


def _varint(model: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = model[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number of more than 64 bits")
