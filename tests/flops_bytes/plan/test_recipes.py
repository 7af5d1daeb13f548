"""What torchtitan, torchtune, nanochat and LLaMA-Factory ship can be planned, or the list says what of it cannot."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan import rl
from flops_bytes.plan.options import OPTIONS

REPOSITORIES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))[
    "repositories"
]
RECIPES: dict[str, dict[str, Any]] = {
    f"{repository['name']} {recipe['at']}": repository["settings"] | recipe
    for repository in REPOSITORIES
    for recipe in repository["recipes"]
}
ASKED = {name: recipe for name, recipe in RECIPES.items() if "refused" not in recipe}


def question(recipe: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name not in ("at", "beside")}


@pytest.mark.parametrize("name", ASKED)
def test_a_recipe_is_planned(name: str) -> None:
    asked = question(ASKED[name])
    found = rl.plan_grpo(**asked) if asked.get("task") == "rl" else plan(**asked)
    assert found["memory_bytes"]["total"] > found["memory_bytes"]["allowance"] > 0
    assert (found["fits"] is None) == ASKED[name].get("beside", "").startswith("what it takes at least")


def test_the_list_has_every_kind_of_recipe() -> None:
    """Of each repository, and each value of the options that say an optimizer or a format; none stands in it twice."""
    assert len(RECIPES) == sum(len(repository["recipes"]) for repository in REPOSITORIES)
    planned = Counter(name.partition(" ")[0] for name in ASKED)
    assert len(planned) == len(REPOSITORIES) == 4 and sum(planned.values()) >= 50 and min(planned.values()) >= 4
    for option in ("matmuls", "offload"):
        assert {recipe.get(option, OPTIONS[option].default) for recipe in ASKED.values()} == {*OPTIONS[option].kind}
    used = {recipe.get("optimizer", "adamw") for recipe in ASKED.values()}
    assert used == {"adamw", "adamw-bf16", "muon", "paged-adamw", "paged-adamw-8bit"}  # those that these recipes have
    assert all(recipe["refused"] for name, recipe in RECIPES.items() if name not in ASKED)
