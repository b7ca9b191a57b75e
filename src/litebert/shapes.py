"""The shapes of arrays in signatures: jaxtyping's names, without its import where nobody checks.

jaxtyping takes a tenth of a second to import, which is much of what a verb with an exported model
takes in all. Type checkers and tests (which import jaxtyping first) see the real names; else
`Float[np.ndarray, "rows"]` is np.ndarray.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int, Num, UInt8
else:

    class _Unchecked:
        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Int = Num = UInt8 = _Unchecked

__all__ = ["Bool", "Float", "Int", "Num", "UInt8"]
