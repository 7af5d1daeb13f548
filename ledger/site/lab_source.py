"""A lab's source in a language: its code is one, and its texts in other languages than English stand beside it.

docs/labs/name.py is the lab in English, in Jupytext's percent format. docs/labs/name.zh.md has its texts in Chinese,
each below a heading whose id is the cell's `slug`; what its comments say stands where those of all code do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from ledger.book import Book, Problem
from ledger.site.comments import ENGLISH, Comments
from ledger.site.includes import Line

CELL = re.compile(r'# %%(?: \[markdown\] slug="(?P<slug>[\w-]+)")?')
HEADING = re.compile(r"(?P<text>#+ .+) \{#(?P<id>[\w-]+)\}")


def sources(book: Book) -> list[Path]:
    """The labs, in English."""
    return sorted((book.docs / "labs").glob("*.py"))


def in_language(source: Path, comments: Comments) -> tuple[str, list[Problem]]:
    """The lab's source in the language of the comments, and what of it has no words there or is left over."""
    text = source.read_text(encoding="utf-8")
    if comments.language == ENGLISH:
        return text, []
    beside = source.with_suffix(f".{comments.language}.md")
    texts: dict[str, tuple[int, list[str]]] = {}
    problems = []
    for number, slug, lines in _texts(beside):
        if slug in texts:
            problems.append(Problem(beside, number, f"{{#{slug}}} stands there twice"))
        texts[slug] = number, lines
    name = str(source.relative_to(comments.book.root))
    written: list[str] = []
    for cell in _cells([Line(line, name, number) for number, line in enumerate(text.splitlines(), start=1)]):
        head, *inside = cell
        match = CELL.fullmatch(head.text)
        if match and (slug := match["slug"]):
            if slug not in texts:
                where = beside.relative_to(comments.book.root)
                problems.append(Problem(source, head.number, f"{where} has no heading {{#{slug}}}"))
            _, lines = texts.pop(slug, (0, []))
            below = [line.text for line in inside if not line.text.startswith("#")]
            written += [head.text, *(f"# {line}".rstrip() for line in lines), *below]
        elif match:
            translated, found = comments.translated(inside, "python", source)
            written += [head.text, *(line.text for line in translated)]
            problems += found
        else:  # what stands above the first cell
            written += [line.text for line in cell]
    problems += [Problem(beside, number, f"no cell has the slug {slug!r}") for slug, (number, _) in texts.items()]
    return "\n".join(written) + "\n", problems


def _cells(lines: list[Line]) -> Iterator[list[Line]]:
    """What stands above the first cell, and each cell from its first line on."""
    starts = [0, *(number for number, line in enumerate(lines) if number and CELL.fullmatch(line.text)), len(lines)]
    return (lines[start:end] for start, end in itertools.pairwise(starts))


def _texts(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Each text of a file by its heading's id, with the heading's line and without the id."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    starts = [(number, match) for number, line in enumerate(lines) if (match := HEADING.fullmatch(line))]
    ends = [*(number for number, _ in starts[1:]), len(lines)]
    for (start, match), end in zip(starts, ends, strict=True):
        inside = "\n".join([match["text"], *lines[start + 1 : end]]).rstrip()
        yield start + 1, match["id"], inside.split("\n")
