"""litebert: ALBERT ("A Lite BERT", Lan et al., ICLR 2020) from raw text to predictions.

The public page: everything that a program needs is a name here. Names are resolved when first used
(PEP 562), so that `import litebert` is instant and imports no torch.

- Predict: `load` a model and use its verbs (`Predictor`); predictions and examples are typed.
- Train: `pretrain`, `finetune` and `evaluate`, with recipes as frozen dataclasses.
- Build: `Encoder` and `Model` are torch modules, described by `EncoderConfig` and `ModelConfig`.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from litebert.api import RunResult, evaluate, finetune, pretrain
    from litebert.config import PRESETS, EncoderConfig, GeneratorConfig, HeadConfig, ModelConfig
    from litebert.errors import (
        CheckpointError,
        ConfigError,
        ConversionError,
        DataError,
        DivergedError,
        InterruptedRunError,
        LitebertError,
        MissingExtraError,
    )
    from litebert.infer.blimp import BlimpScores
    from litebert.infer.masked_scores import MaskedOptions, MaskedScores
    from litebert.infer.predictor import Predictor, load
    from litebert.infer.vector_scores import RetrievalScores
    from litebert.infer.verbs import Guess
    from litebert.model.encoder import Encoder
    from litebert.model.model import Model, ModelOutput
    from litebert.recipes import (
        NAMED,
        EmbedRecipe,
        FinetuneRecipe,
        FractionStages,
        OptimizerSpec,
        PretrainRecipe,
        Stages,
    )
    from litebert.storage.checkpoint import Checkpoint
    from litebert.tasks.examples import (
        Answer,
        AnswerExample,
        ChoiceExample,
        TagExample,
        TextExample,
    )
    from litebert.tasks.predictions import (
        ChoicePrediction,
        LabelPrediction,
        MultiLabelPrediction,
        NumberPrediction,
        Prediction,
        Span,
        SpanPrediction,
        TagPrediction,
    )
    from litebert.tasks.scores.evaluation import Evaluation
    from litebert.tasks.scores.vectors import SimilarityScores
    from litebert.tasks.tables.columns import TableOptions
    from litebert.text.tokenizer import Tokenizer

_MODULES = {
    "litebert.api": ("RunResult", "evaluate", "finetune", "pretrain"),
    "litebert.config": (
        "PRESETS",
        "EncoderConfig",
        "GeneratorConfig",
        "HeadConfig",
        "ModelConfig",
    ),
    "litebert.errors": (
        "CheckpointError",
        "ConfigError",
        "ConversionError",
        "DataError",
        "DivergedError",
        "InterruptedRunError",
        "LitebertError",
        "MissingExtraError",
    ),
    "litebert.infer.blimp": ("BlimpScores",),
    "litebert.infer.masked_scores": ("MaskedOptions", "MaskedScores"),
    "litebert.infer.predictor": ("Predictor", "load"),
    "litebert.infer.vector_scores": ("RetrievalScores",),
    "litebert.infer.verbs": ("Guess",),
    "litebert.model.encoder": ("Encoder",),
    "litebert.model.model": ("Model", "ModelOutput"),
    "litebert.recipes": (
        "NAMED",
        "EmbedRecipe",
        "FinetuneRecipe",
        "FractionStages",
        "OptimizerSpec",
        "PretrainRecipe",
        "Stages",
    ),
    "litebert.storage.checkpoint": ("Checkpoint",),
    "litebert.tasks.examples": (
        "Answer",
        "AnswerExample",
        "ChoiceExample",
        "TagExample",
        "TextExample",
    ),
    "litebert.tasks.predictions": (
        "ChoicePrediction",
        "LabelPrediction",
        "MultiLabelPrediction",
        "NumberPrediction",
        "Prediction",
        "Span",
        "SpanPrediction",
        "TagPrediction",
    ),
    "litebert.tasks.scores.evaluation": ("Evaluation",),
    "litebert.tasks.scores.vectors": ("SimilarityScores",),
    "litebert.tasks.tables.columns": ("TableOptions",),
    "litebert.text.tokenizer": ("Tokenizer",),
}
_PAGE = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "NAMED",
    "PRESETS",
    "Answer",
    "AnswerExample",
    "BlimpScores",
    "Checkpoint",
    "CheckpointError",
    "ChoiceExample",
    "ChoicePrediction",
    "ConfigError",
    "ConversionError",
    "DataError",
    "DivergedError",
    "EmbedRecipe",
    "Encoder",
    "EncoderConfig",
    "Evaluation",
    "FinetuneRecipe",
    "FractionStages",
    "GeneratorConfig",
    "Guess",
    "HeadConfig",
    "InterruptedRunError",
    "LabelPrediction",
    "LitebertError",
    "MaskedOptions",
    "MaskedScores",
    "MissingExtraError",
    "Model",
    "ModelConfig",
    "ModelOutput",
    "MultiLabelPrediction",
    "NumberPrediction",
    "OptimizerSpec",
    "Prediction",
    "Predictor",
    "PretrainRecipe",
    "RetrievalScores",
    "RunResult",
    "SimilarityScores",
    "Span",
    "SpanPrediction",
    "Stages",
    "TableOptions",
    "TagExample",
    "TagPrediction",
    "TextExample",
    "Tokenizer",
    "__version__",
    "evaluate",
    "finetune",
    "load",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name not in _PAGE:
        raise AttributeError(f"litebert has no {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_PAGE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
