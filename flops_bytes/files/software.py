"""The softwares whose files are read: one TOML file each in this folder."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAMES = (
    "config",
    "accelerate",
    "deepspeed",
    "torchtitan",
    "llama_factory",
    "axolotl",
    "ms_swift",
    "torchtune",
    "nanotron",
    "megatron",
    "trl",
    "transformers",
    "peft",
)


@cache
def softwares() -> Mapping[str, Any]:
    """Each software's data by its name, the ones whose keys take precedence first."""
    return {name: loaded(name) for name in NAMES}


@cache
def sentences() -> Mapping[str, str]:
    """What is said of files that were read, in English."""
    return loaded("words")


def loaded(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
