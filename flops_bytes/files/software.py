"""The softwares whose files are read: one TOML file each in this folder, and which of them a table of keys is of."""

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
    "trl",
    "transformers",
    "peft",
)

FEW_KEYS = 8  # of which a mark says enough; of more several do


@cache
def softwares() -> Mapping[str, Any]:
    """Each software's data by its name, the ones whose keys take precedence first."""
    return {name: tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")) for name in NAMES}


def software_of(keys: Mapping[str, Any]) -> str:
    """The software whose marks most of these keys are, or nothing; one that takes over another's keys has those too."""
    own = {name: marks_in(keys, data["known_by"]) for name, data in softwares().items()}
    found = {
        name: own[name] + (own[data["extends"]] if own[name] and "extends" in data else 0)
        for name, data in softwares().items()
    }
    best = max(found, key=lambda name: found[name])
    return best if found[best] > 1 or (found[best] and len(keys) < FEW_KEYS) else ""


def marks_in(keys: Mapping[str, Any], marks: list[str]) -> int:
    """How many marks are keys, or tables that keys lie in."""
    return len([mark for mark in marks if mark in keys or any(key.startswith(f"{mark}.") for key in keys)])
