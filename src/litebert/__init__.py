"""litebert: ALBERT ("A Lite BERT", Lan et al., ICLR 2020) from raw text to a served model.
 The public page. Names are resolved when first used (PEP 562), so that `import litebert` does not
import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from litebert.config import PRESETS, EncoderConfig, HeadConfig, ModelConfig
    from litebert.infer.predictor import Predictor, load
    from litebert.model.encoder import Encoder
    from litebert.model.model import Model
    from litebert.storage.checkpoint import Checkpoint
    from litebert.text.tokenizer import Tokenizer

_PAGE = {
    "Checkpoint": "litebert.storage.checkpoint",
    "Encoder": "litebert.model.encoder",
    "EncoderConfig": "litebert.config",
    "HeadConfig": "litebert.config",
    "Model": "litebert.model.model",
    "ModelConfig": "litebert.config",
    "PRESETS": "litebert.config",
    "Predictor": "litebert.infer.predictor",
    "Tokenizer": "litebert.text.tokenizer",
    "load": "litebert.infer.predictor",
}

__all__ = [
    "PRESETS",
    "Checkpoint",
    "Encoder",
    "EncoderConfig",
    "HeadConfig",
    "Model",
    "ModelConfig",
    "Predictor",
    "Tokenizer",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _PAGE:
        raise AttributeError(f"litebert has no {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_PAGE[name]), name)


def __dir__() -> list[str]:
    return __all__
