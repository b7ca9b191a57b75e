"""Recipes: complete descriptions of runs as frozen data. No torch."""

from litebert.recipes.embed import EmbedRecipe
from litebert.recipes.finetune import TABLE_14, FinetuneRecipe, paper_recipe
from litebert.recipes.named import NAMED, named
from litebert.recipes.optimizer import OPTIMIZERS, OptimizerName, OptimizerSpec, Schedule
from litebert.recipes.pretrain import PretrainRecipe
from litebert.recipes.recipe import (
    RENAMED,
    RENAMED_ENCODER,
    Recipe,
    current_names,
    difference,
)
from litebert.recipes.stages import FractionStages, Stages

__all__ = [
    "NAMED",
    "OPTIMIZERS",
    "RENAMED",
    "RENAMED_ENCODER",
    "TABLE_14",
    "EmbedRecipe",
    "FinetuneRecipe",
    "FractionStages",
    "OptimizerName",
    "OptimizerSpec",
    "PretrainRecipe",
    "Recipe",
    "Schedule",
    "Stages",
    "current_names",
    "difference",
    "named",
    "paper_recipe",
]
