"""Encoder settings of earlier releases in; the same by today's names out, and back for
fingerprints."""

from collections.abc import Mapping
from typing import Any

ROTARY_BASE = 10_000.0
"""Su et al.'s."""

_OF_POSITION_INIT = {"normal": "learned", "sinusoidal": "sinusoidal"}
"""Values of `positions` by those of its first name, position_init."""
_LATER_DEFAULTS: dict[str, Any] = {
    "cycle": "forward",
    "unshared_ends": 0,
    "adapter_rank": 0,
    "rotary_base": ROTARY_BASE,
    "reversible": False,
    "embedding_bands": (),
    "embedding_band_factor": 4,
}
"""Settings that the first configs did not have, with what every encoder did then."""


def current_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings by the names of this release; `position_init` is now `positions`."""
    if "position_init" not in data or "positions" in data:
        return dict(data)
    return {
        "positions" if name == "position_init" else name: (
            _OF_POSITION_INIT.get(str(value), value) if name == "position_init" else value
        )
        for name, value in data.items()
    }


def first_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings as the first configs had them, which fingerprints hash: by their first
    names, and later ones only where they differ from what every encoder did then."""
    first = {positions: init for init, positions in _OF_POSITION_INIT.items()}
    return {
        "position_init" if name == "positions" and str(value) in first else name: (
            first.get(str(value), value) if name == "positions" else value
        )
        for name, value in data.items()
        if not (name in _LATER_DEFAULTS and value == _LATER_DEFAULTS[name])
    }
