"""Recipes: complete descriptions of runs as frozen data. No torch."""

from litebert.recipes.named import NAMED, named
from litebert.recipes.optimizer import Decay, OptimizerName, OptimizerSpec
from litebert.recipes.pretrain import PRACTICAL, PretrainRecipe, difference
from litebert.recipes.stages import Stages

__all__ = [
    "NAMED",
    "PRACTICAL",
    "Decay",
    "OptimizerName",
    "OptimizerSpec",
    "PretrainRecipe",
    "Stages",
    "difference",
    "named",
]
