"""Public files of each software, as keys and values, and how a test asks what they say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from flops_bytes.files.content import Content, content_of
from flops_bytes.files.interpret import Reading, interpret
from flops_bytes.files.run import facts_beside, parts_of
from flops_bytes.files.software import softwares

FOLDER = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = {
    f"{path.stem}: {case['name']}": case
    for path in sorted(FOLDER.glob("*.toml"))
    for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
}


def name_of(case: dict[str, Any]) -> str:
    """The file's own name."""
    return str(case["name"]).rpartition("/")[2]


def content(folder: Path, text: str, name: str) -> Content:
    """A file as the command reads it."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return content_of(str(path))


def read(*contents: Content) -> Reading:
    """What files ask for together."""
    parts, config = parts_of([*contents], softwares())
    return interpret(parts, softwares(), facts_beside(parts, config))


def warned(reading: Reading) -> list[str]:
    return [said.key for said in reading.said if said.kind in ("not planned", "unknown")]
