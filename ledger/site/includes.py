"""What a block of code shows: its own lines, and those of files in the place of its includes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ledger.book import LedgerError
from ledger.site.chapter import INCLUDE, Fence
from ledger.snippet import Snippet

MARKER = re.compile(r"^\s*#\s*-+8<-+")  # of a section inside of one that is shown


class Line(NamedTuple):
    text: str
    file: str = ""  # that it is included from
    number: int = 0  # there


def expanded(fence: Fence, root: Path) -> list[Line]:
    """The lines of a block of code with its includes in place. Raises LedgerError or KeyError for what is not there."""
    lines: list[Line] = []
    for text in fence.lines:
        include = INCLUDE.match(text)
        lines += _included(root, include["path"], include["section"]) if include else [Line(text)]
    return lines


def _included(root: Path, file: str, section: str | None) -> list[Line]:
    snippet = Snippet.parse(root / file)
    texts = snippet.source.splitlines()
    first, last = 1, len(texts)
    if section:
        first, last = snippet.sections[section].first_line, snippet.sections[section].last_line
    numbers = [number for number in range(first, last + 1) if not MARKER.match(texts[number - 1])]
    dedented = textwrap.dedent("\n".join(texts[number - 1] for number in numbers)).split("\n")
    return [Line(text, file, number) for text, number in zip(dedented, numbers, strict=True)]


def missing(fence: Fence, root: Path) -> Iterator[tuple[int, str]]:
    """Line and message for each include of what is not there; a snippet that is itself to be mended says so itself."""
    for number, text in enumerate(fence.lines, start=fence.line + 1):
        include = INCLUDE.match(text)
        if not include:
            continue
        file, section = root / include["path"], include["section"]
        if not file.is_file():
            yield number, f"there is no file {include['path']}"
        elif section and file.suffix == ".py":
            try:
                script = Snippet.parse(file)
                if section not in script.sections and not script.all_problems:
                    yield number, f"{include['path']} has no section {section!r}"
            except LedgerError:  # reported once, at its own line
                continue


def embedded_in(page: Path) -> set[str]:
    """The files of which a page shows a section."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return {match["path"] for line in lines if (match := INCLUDE.match(line))}
