"""A page as plain Markdown, its numbers filled in: for notebooks, and for whoever reads or quotes it elsewhere.

What a site makes of the page's own blocks stands as text here: outputs and tables of the device that the page shows
first, a figure's description, the titles of folded parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ledger.book import LedgerError
from ledger.site import files
from ledger.site.chapter import FILLED, Block, Chapter, Fence, Formula, Heading, Paragraph, Piece
from ledger.site.fill import Filled, Number, Table, fill
from ledger.site.quote import Source
from ledger.site.variants import Output
from ledger.site.words import printed_on, say
from ledger.text import as_markdown, hide, inert
from ledger.units import Plain

CHAPTER_LINK = re.compile(r"^(?:\.\./)*([\w/-]+)\.(?:md|ipynb)(?=[?#]|$)")
OWN_ID = re.compile(r"(?<=\))\{#[\w-]+\}")  # that a term of the glossary gives itself


class Part(NamedTuple):
    """A stretch of a page: text in Markdown, or a block of its Python."""

    text: str
    is_code: bool = False


def parts(source: Source, language: str, path: Path, site: str) -> Iterator[Part]:
    """The parts of the page at path, in order; its links lead to the site at that address.

    Raises LedgerError for what cannot be filled.
    """
    filled = fill(Chapter.read(path), source, PlainMarkdown(source, language, site, address_of(site, path.stem)))
    if filled.problems:
        raise LedgerError(filled.problems)
    code = iter(filled.code)
    for piece in filled.pieces:
        if isinstance(piece, Fence):
            text = "\n".join(line.text for line in next(code)).strip("\n")
            is_code = piece.language == "python"
            yield Part(text if is_code else f"```{piece.language}\n{text}\n```", is_code)
        elif text := as_markdown(_text(piece, filled)):
            yield Part(text)


def _text(piece: Piece, filled: Filled) -> str:
    match piece:
        case Heading():
            return f"{'#' * piece.level} {piece.text}"
        case Formula():
            return "\n".join(piece.lines)
        case Block() if piece.kind not in FILLED and piece.argument:
            return f"**{OWN_ID.sub('', filled.texts[piece.line])}**"
        case Paragraph():
            return OWN_ID.sub("", filled.texts[piece.line])
    return filled.texts[piece.line]


def markdown(parts: Iterable[Part]) -> str:
    """A whole page as one text."""
    return "\n\n".join(f"```python\n{text}\n```" if is_code else text for text, is_code in parts) + "\n"


def address_of(site: str, name: str) -> str:
    """Where a page stands."""
    return site if name == "index" else f"{site}{name}/"


class PlainMarkdown:
    """Writes what a page quotes as text; the page will stand at that address of the site."""

    def __init__(self, source: Source, language: str, site: str, address: str) -> None:
        self.source, self.language, self.site, self.address = source, language, site, address

    def number(self, number: Number) -> str:
        """What the shown device lacks is another's in a sentence, and that one is named."""
        text = hide(number.text) + ("†" if number.found.stale else "")
        return say(self.language, "aside", text=text, aside=hide(number.elsewhere)) if number.elsewhere else text

    def link(self, address: str) -> str:
        """An address of a page as it can be followed from anywhere."""
        if address.startswith("#"):
            return self.address + address
        if ":" in address.partition("/")[0]:
            return address
        if chapter := CHAPTER_LINK.match(address):
            return address_of(self.site, chapter[1]) + address[chapter.end() :]
        return self.site + files.address(self.source.book, address)

    def text_table(self, table: Table) -> str:
        return "\n\n".join(filter(None, (table.markdown(["---"] * len(table.rows[0])), table.waiting)))

    def table(self, variants: list[tuple[list[str], Table]]) -> str:
        return OWN_ID.sub("", self.text_table(variants[0][1]))

    def output(self, variants: list[tuple[list[str], Output]]) -> str:
        for devices, output in variants:
            where = printed_on(self.source, self.language, devices, len(variants) == 1, output.is_stale)
            return "\n\n".join(filter(None, (inert(where), _fenced(output.text))))
        return ""

    def figure(self, alt: str, draw: Callable[[], object]) -> str:
        return f"*{say(self.language, 'figure', alt=alt)}*"

    def data(self, name: str, find: Callable[[], Plain]) -> str:
        return ""

    def device(self) -> str:
        return ""

    def api(self, text: str) -> str:
        return text


def _fenced(text: str) -> str:
    """A text as a block of code, whatever it holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"


def front_matter(path: Path) -> dict[str, Any]:
    """What a page says of itself above its first line: title, description."""
    text = path.read_text(encoding="utf-8")
    between = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
    return dict(yaml.safe_load(between) or {})
