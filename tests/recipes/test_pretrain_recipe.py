"""Recipes round-trip exactly, count their steps, refuse what cannot run, and tell two runs
apart."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import ConfigError
from litebert.recipes import (
    NAMED,
    OPTIMIZERS,
    FinetuneRecipe,
    FractionStages,
    OptimizerSpec,
    PretrainRecipe,
    Stages,
    difference,
    named,
)
from tests.helpers.changed_recipes import PRETRAIN as OTHER
from tests.helpers.changed_recipes import docstrings


def test_other_really_differs_everywhere() -> None:
    default = PretrainRecipe()
    assert not [
        f.name for f in fields(default) if getattr(default, f.name) == getattr(OTHER, f.name)
    ]
    assert not [
        f.name
        for f in fields(OptimizerSpec)
        if getattr(default.optimizer, f.name) == getattr(OTHER.optimizer, f.name)
    ]


@pytest.mark.parametrize("recipe", [OTHER, *NAMED.values()], ids=["other", *NAMED])
def test_json_round_trip_is_exact(recipe: PretrainRecipe) -> None:
    again = PretrainRecipe.from_json(recipe.to_json())
    assert again == recipe
    assert again.to_json() == recipe.to_json()
    assert again.fingerprint == recipe.fingerprint
    assert hash(again) == hash(recipe)


def test_every_setting_has_a_docstring() -> None:
    for cls in (PretrainRecipe, FinetuneRecipe, OptimizerSpec):
        assert {each.name for each in fields(cls)} == docstrings(cls).keys()


def test_difference_names_what_changed() -> None:
    now = replace(
        OTHER,
        seed=1,
        overrides=(("num_layers", 4), ("norm", "post")),
        optimizer=replace(OTHER.optimizer, learning_rate=0.1, norm_clamp=None),
    )
    assert difference(OTHER, now) == [
        "overrides.norm: pre in the run, post now",
        "overrides.ffn_dropout: 0.1 in the run, none now",
        "optimizer.learning_rate: 0.3333333333333333 in the run, 0.1 now",
        "optimizer.norm_clamp: [0.0, 10.0] in the run, none now",
        f"seed: {2**40 + 1} in the run, 1 now",
    ]
    assert difference(OTHER, OTHER) == []


@pytest.mark.parametrize("name", [f.name for f in fields(PretrainRecipe)])
def test_difference_and_fingerprint_agree_on_what_is_practical(name: str) -> None:
    """Each setting alone: either both see it, or it is practical and neither does."""
    value: Any = getattr(OTHER, name)
    one = {
        "preset": "albert-large-v2",
        "overrides": (),
        "steps": 5,
        "tokens": None,
        "depth": Stages.parse("0:3,0.5:12"),
    }
    base = PretrainRecipe()
    changes: dict[str, Any] = {name: one.get(name, value)}
    if name in ("steps", "tokens"):
        changes = {"steps": 5, "tokens": None}
    now = replace(base, **changes)
    assert bool(difference(base, now)) == (name not in PretrainRecipe.practical)
    assert (base.fingerprint != now.fingerprint) == (name not in PretrainRecipe.practical)


def test_budget_in_tokens_becomes_steps() -> None:
    recipe = PretrainRecipe(tokens=128 * 128 * 10)
    assert recipe.total_steps == 10
    assert replace(recipe, tokens=128 * 128 * 10 + 1).total_steps == 11
    assert replace(recipe, tokens=1).total_steps == 1
    assert replace(recipe, tokens=None, steps=7).total_steps == 7


def test_budget_counts_every_stage() -> None:
    recipe = PretrainRecipe(
        tokens=1_000_000,
        batch_size=Stages.parse("0:8,20:16,40:64"),
        sequence_length=Stages.parse("0:32,0.25:128"),
    )
    steps = recipe.total_steps

    def counted(total: int) -> int:
        return sum(
            recipe.batch_size.at(i, total) * recipe.sequence_length.at(i, total)
            for i in range(total)
        )

    assert recipe.tokens_in(steps) == counted(steps) >= 1_000_000
    assert counted(steps - 1) < 1_000_000


def test_paper_recipe_is_the_paper() -> None:
    paper = named("paper")
    assert (paper.total_steps, str(paper.batch_size), str(paper.sequence_length)) == (
        125_000,
        "4096",
        "512",
    )
    spec = paper.optimizer
    assert (spec.name, spec.learning_rate, spec.betas, spec.epsilon) == (
        "lamb",
        1.76e-3,
        (0.9, 0.999),
        1e-6,
    )
    assert (spec.weight_decay, spec.warmup, spec.bias_correction, spec.norm_clamp) == (
        0.01,
        3_125,
        False,
        None,
    )
    assert paper.encoder.norm == "post"
    assert (paper.one_segment, paper.cutting, paper.random_specials) == ("random", "last", True)
    presets = {name: recipe.preset for name, recipe in NAMED.items()}
    assert presets.pop("affordable") == "litebert-base"
    assert set(presets.values()) == {"albert-base-v2"}


def test_named_recipes_stand_for_their_models() -> None:
    assert named("affordable").encoder.norm == "pre"
    assert named("affordable-post").encoder.norm == "post"
    assert (named("demo").encoder.hidden_size, named("demo").encoder.num_layers) == (128, 3)
    with pytest.raises(ConfigError, match="there is no recipe 'papr'; did you mean 'paper'"):
        named("papr")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 5}, "a budget is steps or tokens, the other none; got steps 5, tokens 60000000"),
        ({"tokens": None}, "a budget is steps or tokens"),
        ({"tokens": None, "steps": 0}, "steps is a whole number from 1"),
        ({"tokens": 1.5}, "tokens is a whole number from 1 to .*, or none; got 1.5"),
        ({"preset": "albert-bse-v2"}, "there is no preset 'albert-bse-v2'; did you mean"),
        ({"preset": None}, "preset is the name of a preset; got None"),
        ({"overrides": (("depth", 3),)}, "there is no EncoderConfig setting 'depth'"),
        ({"overrides": (("norm", "pre"), ("norm", "post"))}, "overrides name each setting once"),
        ({"overrides": ("norm",)}, r"overrides are \(setting, value\) pairs"),
        (
            {"sequence_length": Stages.constant(1024)},
            "sequence_length reaches 1024, the encoder reads at most 512",
        ),
        ({"sequence_length": Stages.constant(4)}, "sequence_length is at least 5"),
        (
            {"sequence_length": 128},
            "sequence_length is stages, as in 128 or 0:128,0.5:512; got 128",
        ),
        ({"extend_positions": "yes"}, "extend_positions is true or false; got 'yes'"),
        ({"microbatch_tokens": 127}, "microbatch_tokens is 127, too few for one sequence of 128"),
        (
            {"depth": Stages.parse("0:3,0.5:6")},
            "depth ends at the encoder's 12 layers, and none is more; got 0:3,0.5:6",
        ),
        (
            {"depth": Stages.parse("0:24,0.5:12")},
            "depth ends at the encoder's 12 layers, and none is more",
        ),
        (
            {"overrides": (("pooler", False),)},
            "order sop is predicted from the pooled state, and the encoder has no pooler; "
            "use --encoder pooler=true, or --order none",
        ),
        (
            {"overrides": (("reversible", True),), "checkpoint_every": 2},
            "reversible layers save no activations that checkpointing could recompute; "
            "checkpoint_every is then 0, got 2",
        ),
        ({"order": "son"}, "order is one of sop, nsp, none; got 'son'"),
        ({"objective": "electra"}, "objective is one of masked, rtd; got 'electra'"),
        ({"generator_tie": "half"}, "generator_tie is one of embeddings, all, none; got 'half'"),
        ({"generator_layers": 0}, "generator_layers is a whole number from 1 to 1000, or none"),
        ({"detection_weight": -1}, "detection_weight is a number from 0 to 1e.06; got -1"),
        (
            {"objective": "rtd", "generator_size": 100},
            "generator_size is a multiple of the encoder's head size, 64; got 100",
        ),
        (
            {"objective": "rtd", "generator_size": 64, "generator_tie": "all"},
            "a generator with tie = all has the encoder's hidden_size, 768; got 64",
        ),
        (
            {"objective": "rtd", "generator_layers": 13, "generator_tie": "all"},
            "tie = all is the encoder's first layers, at most 12; got 13",
        ),
        (
            {
                "objective": "rtd",
                "generator_layers": 4,
                "generator_tie": "all",
                "overrides": (("unshared_ends", 1),),
            },
            "fewer layers share differently; choose 12 layers, or tie = embeddings",
        ),
        ({"copies": 0}, "copies is a whole number from 1 to .*, or none; got 0"),
        ({"dtype": "float16"}, "dtype is one of auto, float32, bfloat16"),
        (
            {"mask_fraction": FractionStages.parse("0:0.95,0.8:0.15")},
            "mask_fraction is a number from 0.001 to 0.9; got 0:0.95,0.8:0.15",
        ),
        ({"mask_fraction": 1.5}, "the value of a stage is a fraction from 0 to 1; got 1.5"),
        ({"mask_fraction": "15%"}, "mask_fraction is a fraction or stages of it, .*; got '15%'"),
        ({"mask_share": 1.1}, "mask_share is a number from 0 to 1; got 1.1"),
        ({"random_share": -0.1}, "random_share is a number from 0 to 1; got -0.1"),
        (
            {"mask_share": 0.8, "random_share": 0.3},
            "mask_share and random_share are fractions of the same tokens, at most 1 together; "
            "got 0.8 and 0.3",
        ),
        ({"evaluate_mask_fraction": 0}, "evaluate_mask_fraction is a number from 0.001 to 0.9"),
        ({"keep_snapshots": 0}, "keep_snapshots is a whole number from 1"),
        ({"seed": -1}, "seed is a whole number from 0"),
        ({"max_skips": True}, "max_skips is a whole number"),
        ({"optimizer": {}}, "optimizer is an OptimizerSpec"),
        (
            {"tokens": None, "steps": 5, "optimizer": OptimizerSpec(warmup=6)},
            "warm-up takes 6 steps, the run has 5",
        ),
        (
            {"tokens": 5_000_000, "optimizer": OptimizerSpec(warmup=1000)},
            "warm-up takes 1000 steps, the run has 306; shorten the warm-up, as with --warmup 0.1, "
            "or lengthen the run",
        ),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainRecipe(**changes)


def test_the_papers_warm_up_is_refused_in_a_short_run() -> None:
    with pytest.raises(ConfigError, match="warm-up takes 3125 steps, the run has 239"):
        named("paper").changed({"tokens": 500_000_000})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "adam"}, "name is one of lamb, adamw, muon; got 'adam'"),
        ({"learning_rate": float("nan")}, "learning_rate is a number from 0 to 100; got nan"),
        ({"betas": (0.9,)}, "betas are two numbers"),
        ({"betas": (0.9, 1.0)}, "betas are two numbers from 0 to below 1"),
        ({"norm_clamp": (0.0, 10.0)}, "norm_clamp belongs to lamb"),
        (
            {"name": "lamb", "norm_clamp": (3.0, 1.0)},
            "norm_clamp is a lower and an upper bound, or none",
        ),
        ({"warmup": 1.5}, "warmup is a number of steps or a fraction of the run below 1; got 1.5"),
        ({"warmup": -1}, "warmup is a whole number from 0"),
        ({"bias_correction": 1}, "bias_correction is true or false; got 1"),
        (
            {"schedule": "expo"},
            "schedule is one of reference, polynomial, linear, cosine, constant, stable",
        ),
    ],
)
def test_wrong_optimizers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OptimizerSpec(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a recipe is one JSON object; this is not JSON"),
        ("[]", r"recipe is a JSON object; got \[\]"),
        ('{"sead": 1}', "there is no recipe setting 'sead'; did you mean 'seed'"),
        ('{"optimizer": {"learning-rate": 1}}', "there is no optimizer setting 'learning-rate'"),
        (
            '{"optimizer": {"learning_rate": 1, "rate": 1}}',
            "there is no optimizer setting 'rate'",
        ),
        ('{"optimizer": 3}', "optimizer is a JSON object; got 3"),
        ('{"overrides": [["norm", "pre"]]}', "overrides is a JSON object"),
        ('{"batch_size": "0:a"}', "stages are a number"),
        ('{"mask_fraction": "15%"}', r"stages are a number \(0.15\) or .*; got '15%'"),
    ],
)
def test_wrong_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainRecipe.from_json(text)


def test_json_may_state_plain_numbers_and_leave_settings_out() -> None:
    recipe = PretrainRecipe.from_json(
        json.dumps({"batch_size": 64, "mask_fraction": 0.2, "optimizer": {"learning_rate": 1e-3}})
    )
    assert recipe == PretrainRecipe(
        batch_size=Stages.constant(64),
        mask_fraction=FractionStages.constant(0.2),
        optimizer=OptimizerSpec(learning_rate=1e-3),
    )
    assert recipe.to_dict()["mask_fraction"] == 0.2
    assert replace(PretrainRecipe(), mask_fraction=0.2).mask_fraction == recipe.mask_fraction  # type: ignore[arg-type]


OLD_SETTINGS = {
    "rate_batch_size": 8,
    "optimizer": {"name": "lamb", "rate": 0.5, "decay": "cosine"},
    "overrides": {"norm": "pre", "position_init": "sinusoidal"},
}


def test_settings_are_read_by_their_old_names_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"recipe": OLD_SETTINGS}))
    notes: list[str] = []
    recipe = PretrainRecipe.load(path, note=notes.append)
    assert recipe == PretrainRecipe(
        reference_batch_size=8,
        optimizer=OptimizerSpec(name="lamb", learning_rate=0.5, schedule="cosine"),
        overrides=(("norm", "pre"), ("positions", "sinusoidal")),
    )
    assert recipe.encoder.positions == "sinusoidal"
    assert notes == [
        f"{path} is of an earlier release: rate is now learning_rate, decay is now schedule, "
        "rate_batch_size is now reference_batch_size, position_init is now positions"
    ]
    notes.clear()
    path.write_text(recipe.to_json())
    assert PretrainRecipe.load(path, note=notes.append) == recipe
    assert notes == []


FIRST_AFFORDABLE = replace(
    named("affordable-post"), overrides=(("norm", "pre"),), optimizer=OPTIMIZERS["muon"]
)
"""The recipe `affordable` of the first release."""
FIRST_DEMO = named("demo").changed({"encoder": {"positions": "sinusoidal"}})


@pytest.mark.parametrize(
    ("recipe", "fingerprint"),
    [
        (FIRST_AFFORDABLE, "a8ec0dd7ba102f672346fbd5615ff49b4283ff7fda2bdb59358509ac2c493b38"),
        (FIRST_DEMO, "1e9a2d4465b92695f675e272a72089b1f83142e2d94d7073430728ce724ad24e"),
        (
            replace(named("paper"), one_segment="drop", cutting="even", random_specials=False),
            "5ff621c2fa967bcc77473f7dd6215e7f992a0d48d7518f099081411af1889668",
        ),
    ],
    ids=["affordable", "demo", "paper"],
)
def test_fingerprints_are_those_of_the_first_release(
    recipe: PretrainRecipe, fingerprint: str
) -> None:
    """Snapshots hold them: a run of 0.1.0 is known again, whatever was renamed or added since."""
    assert recipe.fingerprint == fingerprint


def test_overrides_by_an_old_name_are_the_same_recipe() -> None:
    recipe = PretrainRecipe()
    old, new = (
        recipe.changed({"encoder": {name: "sinusoidal"}}) for name in ("position_init", "positions")
    )
    assert old == new
    again = new.changed({"encoder": {"position_init": "normal", "num_layers": 2}})
    assert again.encoder.positions == "learned"
    written = replace(recipe, overrides=(("position_init", "sinusoidal"),))
    assert written.encoder == replace(new, overrides=(("positions", "sinusoidal"),)).encoder
    rotary = recipe.changed({"encoder": {"positions": "rotary"}})
    assert len({recipe.fingerprint, new.fingerprint, rotary.fingerprint}) == 3


def test_another_optimizer_brings_its_own_defaults() -> None:
    usual = named("affordable")
    lamb = usual.changed({"optimizer": "lamb"})
    reference = replace(named("paper").optimizer, warmup=0.025)
    assert (lamb.optimizer, lamb.reference_batch_size) == (reference, 4096)
    assert replace(lamb, optimizer=usual.optimizer, reference_batch_size=None) == usual
    stated = usual.changed(
        {"optimizer": "lamb", "learning_rate": 1e-3, "bias_correction": True, "schedule": "cosine"}
    )
    assert stated.optimizer == replace(
        reference, learning_rate=1e-3, bias_correction=True, schedule="cosine"
    )
    assert stated.reference_batch_size is None
    assert usual.changed({"optimizer": "muon"}) == usual
    back = named("paper").changed({"optimizer": "adamw"})
    assert back.optimizer == OPTIMIZERS["adamw"]
    assert back.reference_batch_size is None


def test_a_budget_replaces_the_other() -> None:
    usual = named("affordable")
    assert usual.changed({"steps": 7}) == replace(usual, steps=7, tokens=None)
    assert usual.changed({"tokens": 7}) == replace(usual, tokens=7)
    with pytest.raises(ConfigError, match="a budget is steps or tokens"):
        usual.changed({"steps": 7, "tokens": 7})


def test_another_preset_keeps_the_norm_alone() -> None:
    assert dict(named("demo").changed({"preset": "albert-large-v2", "depth": None}).overrides) == {
        "norm": "pre"
    }
    wider = named("affordable").changed({"encoder": {"num_layers": 6}})
    assert dict(wider.overrides) == {"norm": "pre", "num_layers": 6}


def test_no_torch() -> None:
    code = "import litebert.recipes, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
