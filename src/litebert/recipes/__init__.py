"""Recipes: complete descriptions of runs as frozen data. No torch."""

from litebert.recipes.finetune import FinetuneRecipe
from litebert.recipes.named import NAMED, named
from litebert.recipes.optimizer import Decay, OptimizerName, OptimizerSpec
from litebert.recipes.plain import Recipe, difference
from litebert.recipes.pretrain import PRACTICAL, PretrainRecipe
from litebert.recipes.stages import Stages
from litebert.recipes.table14 import TABLE_14, paper_recipe

__all__ = [
    "NAMED",
    "PRACTICAL",
    "TABLE_14",
    "Decay",
    "FinetuneRecipe",
    "OptimizerName",
    "OptimizerSpec",
    "PretrainRecipe",
    "Recipe",
    "Stages",
    "difference",
    "named",
    "paper_recipe",
]
