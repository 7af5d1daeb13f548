"""A page as plain Markdown, its numbers filled in: for notebooks, and for whoever reads or quotes it elsewhere.

What a site makes of the page's own blocks stands as text here: outputs and tables of the device that the page shows
first, a figure's description, the titles of folded parts.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ledger.site import files
from ledger.site.chapter import INCLUDE, INLINE, Block, Fence, shown
from ledger.site.page import Page, unfilled
from ledger.site.quote import Quote
from ledger.snippet import Snippet
from ledger.text import as_markdown, hide, inert
from ledger.units import DASH

MARKER = re.compile(r"^\s*#\s*-+8<-+")  # of a section inside of one that is shown
CHAPTER_LINK = re.compile(r"^(?:\.\./)*([\w/-]+)\.(?:md|ipynb)(?=#|$)")
OWN_ID = re.compile(r"(?<=\))\{#[\w-]+\}")  # that a term of the glossary gives itself
ROW_RULE = re.compile(r"^\|[\s:|-]+\|$")

WORDS = {"en": {"figure": "Figure: {alt}"}, "zh": {"figure": "图：{alt}"}}


class Part(NamedTuple):
    """A stretch of a page: text in Markdown, or a block of its Python."""

    text: str
    is_code: bool = False


def parts(page: Page, path: Path, site: str) -> Iterator[Part]:
    """The parts of the page at path, in order; its links lead to the site at that address.

    Raises QuoteError for what cannot be filled.
    """
    source = page.source
    text = shown(path.read_text(encoding="utf-8"), lambda value: bool(source.filled_by(value)))
    page.begin(text)
    chapter, plain = page.chapter, PlainPage(page, site, address_of(site, path.stem))
    titles = {block.line for block in chapter.blocks}
    found: list[tuple[int, Callable[[], Part | str]]] = [
        *((heading.line, partial(str, f"{'#' * heading.level} {heading.text}")) for heading in chapter.headings),
        *((first, partial("\n".join, lines)) for first, lines in chapter.formulas),
        *((fence.line, partial(plain.code, fence)) for fence in chapter.fences),
        *((block.line, partial(plain.block, block)) for block in chapter.blocks),
        *((first, partial(plain.paragraph, text)) for first, text in chapter.paragraphs if first not in titles),
    ]
    for _, make in sorted(found, key=lambda entry: entry[0]):
        made = make()
        if (part := Part(as_markdown(made)) if isinstance(made, str) else made).text:
            yield part


def markdown(parts: Iterable[Part]) -> str:
    """A whole page as one text."""
    return "\n\n".join(f"```python\n{text}\n```" if is_code else text for text, is_code in parts) + "\n"


def address_of(site: str, name: str) -> str:
    """Where a page stands."""
    return site if name == "index" else f"{site}{name}/"


class PlainPage:
    """Writes the parts of one page as text."""

    def __init__(self, page: Page, site: str, address: str) -> None:
        self.page, self.site, self.address = page, site, address

    def code(self, fence: Fence) -> Part:
        """A block of code with its includes in place."""
        lines: list[str] = []
        for line in fence.lines:
            include = INCLUDE.match(line)
            lines += self.included(include["path"], include["section"]) if include else [line]
        code = "\n".join(lines).strip("\n")
        return Part(code, True) if fence.language == "python" else Part(f"```{fence.language}\n{code}\n```")

    def included(self, path: str, section: str | None) -> list[str]:
        file = self.page.source.book.root / path
        lines = file.read_text(encoding="utf-8").splitlines()
        if section:
            region = Snippet.parse(file).sections[section]
            lines = lines[region.first_line - 1 : region.last_line]
        return textwrap.dedent("\n".join(line for line in lines if not MARKER.match(line))).splitlines()

    def paragraph(self, text: str) -> str:
        """Prose, a list or a table, with its numbers, and links that lead to the site."""
        if text.lstrip().startswith("|"):
            return self.table([_cells(line) for line in text.splitlines() if not ROW_RULE.match(line.strip())])
        return self.filled(text)

    def filled(self, text: str, in_table: bool = False) -> str:
        """With its numbers; in a sentence what the shown device lacks is another's, which is named."""

        def fill(match: re.Match[str]) -> str:
            if match.lastgroup == "placeholder":
                number = self.page.number(match[0][2:-2])
                device = "" if in_table else self.page.complete(number)
                text = hide(str(number.text)) + ("†" if "stale" in number.get("class", "") else "")
                return str(self.page.words["aside"]).format(text=text, aside=hide(device)) if device else text
            return f"]({self.absolute(match[0][2:-1])})" if match.lastgroup == "target" else match[0]

        return OWN_ID.sub("", INLINE.sub(fill, text))

    def absolute(self, link: str) -> str:
        """A link of a page as it can be followed from anywhere."""
        if link.startswith("#"):
            return self.address + link
        if ":" in link.partition("/")[0]:
            return link
        if chapter := CHAPTER_LINK.match(link):
            return address_of(self.site, chapter[1]) + link[chapter.end() :]
        return self.site + files.address(self.page.source.book, link)

    def block(self, block: Block) -> str:
        if block.kind == "output":
            variants = self.page.outputs(block.argument)
            return "\n\n".join(f"{inert(where)}\n\n{_fenced(text)}" for _, text, where in variants[:1])
        if block.kind == "table":
            _, rows, waiting = self.page.shown_tables(block.argument, block.options)[0]
            return "\n\n".join(filter(None, (self.table(rows, trimmed=True), waiting)))
        if block.kind == "figure":
            return "*" + WORDS[self.page.language]["figure"].format(alt=block.options["alt"]) + "*"
        return f"**{self.filled(block.argument)}**" if block.argument and block.kind != "data" else ""

    def table(self, rows: list[list[str]], trimmed: bool = False) -> str:
        """Rows of Markdown cells, the header first, without those that no device fills."""
        waiting = ""
        if not trimmed:
            hidden = unfilled([[self.is_empty(cell) for cell in row] for row in rows[1:]])
            waiting = self.page.waiting_line(
                [[self.filled(cell, in_table=True) for cell in row] for row in rows], hidden
            )
            rows = [
                [cell for c, cell in enumerate(row) if c not in hidden[1]]
                for r, row in enumerate(rows, start=-1)
                if r not in hidden[0]
            ]
        header, *body = [f"| {' | '.join(self.filled(cell, in_table=True) for cell in row)} |" for row in rows]
        table = "\n".join([header, "|" + "---|" * len(rows[0]), *body]) if body else ""
        return "\n\n".join(filter(None, (table, waiting)))

    def is_empty(self, cell: str) -> bool | None:
        quotes = [Quote.parse(match[0][2:-2]) for match in INLINE.finditer(cell) if match.lastgroup == "placeholder"]
        if quotes:
            return not any(map(self.page.is_on_a_device, quotes))
        return None if not cell else cell == DASH


def _fenced(text: str) -> str:
    """A text as a block of code, whatever it holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}text\n{text}\n{ticks}"


def _cells(row: str) -> list[str]:
    """The cells of a line of a table; a bar inside of code or a formula separates none."""
    hidden = INLINE.sub(lambda match: "x" * len(match[0]), row.strip().removeprefix("|").removesuffix("|"))
    text, cells, start = row.strip().removeprefix("|").removesuffix("|"), [], 0
    for bar in [index for index, sign in enumerate(hidden) if sign == "|"] + [len(text)]:
        cells.append(text[start:bar].strip())
        start = bar + 1
    return cells


def front_matter(path: Path) -> dict[str, Any]:
    """What a page says of itself above its first line: title, description."""
    text = path.read_text(encoding="utf-8")
    between = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
    return dict(yaml.safe_load(between) or {})
