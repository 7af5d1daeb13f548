"""Tables of TOML in one line, as readings of a run are written: Python reads TOML and does not write it."""

import json
import re
from collections.abc import Mapping
from typing import Any


def inline(table: Mapping[str, Any]) -> str:
    """A table of TOML in one line."""
    texts = {name: inline(value) if isinstance(value, Mapping) else json.dumps(value) for name, value in table.items()}
    return "{ " + ", ".join(f"{key(name)} = {text}" for name, text in texts.items()) + " }"


def key(name: str) -> str:
    """A name as TOML has it: in quotes where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
