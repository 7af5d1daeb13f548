"""The planner's page: its form, and its script, for which the snippets' own Python is translated to JavaScript.

`<div data-planner="full"></div>` in a page becomes the form, `short` the few fields of the front page. The script is
written where the theme's files lie, and a page that has a form fetches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from docs.theme.translate import RUNTIME, translate

PLANNER = Path(__file__).parent.parent / "planner"
SNIPPETS = Path(__file__).parent.parent.parent / "snippets"
COMMENT = re.compile(r"^\s*/\*.*?\*/\n|(?<=[;{,]) // .*$", re.DOTALL | re.MULTILINE)


def engine(folders: Iterable[Path] = (PLANNER, SNIPPETS), wanted: dict[str, list[str]] | None = None) -> str:
    """The planner in JavaScript: answer(), and what Python gives it to stand on."""
    return RUNTIME.read_text(encoding="utf-8") + translate(list(folders), wanted or {"page": ["answer"]})
