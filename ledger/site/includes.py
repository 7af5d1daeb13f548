"""What a block of code shows: its own lines, and those of files in the place of its includes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from ledger.book import LedgerError
from ledger.site.chapter import INCLUDE
from ledger.site.quote import QuoteError
from ledger.snippet import Snippet

MARKER = re.compile(r"^\s*#\s*-+8<-+")  # of a section inside of one that is shown


class Line(NamedTuple):
    text: str
    file: str = ""  # that it is included from, "" if it is the page's own
    number: int = 0  # there


def shown_lines(text: str, root: Path) -> list[Line]:
    """A line of a block of code, or the lines that it includes.

    Raises QuoteError if there are none, LedgerError if that is because a snippet is to be mended.
    """
    include = INCLUDE.match(text)
    if not include:
        return [Line(text)]
    file, section = include["path"], include["section"]
    if not (root / file).is_file():
        raise QuoteError(f"there is no file {file}")
    snippet = Snippet.parse(root / file)
    texts = snippet.source.splitlines()
    first, last = 1, len(texts)
    if section:
        if section not in snippet.sections:
            broken = snippet.all_problems
            raise LedgerError(broken) if broken else QuoteError(f"{file} has no section {section!r}")
        first, last = snippet.sections[section].first_line, snippet.sections[section].last_line
    numbers = [number for number in range(first, last + 1) if not MARKER.match(texts[number - 1])]
    dedented = textwrap.dedent("\n".join(texts[number - 1] for number in numbers)).split("\n")
    return [
        Line(text, file, number) for text, number in zip(dedented, numbers, strict=False)
    ]  # of no line, one is left


def embedded_in(page: Path) -> set[str]:
    """The files of which a page shows a section."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return {match["path"] for line in lines if (match := INCLUDE.match(line))}
