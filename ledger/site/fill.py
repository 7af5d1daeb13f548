"""A page is filled once: read from top to bottom, all that it quotes looked up, and hidden what no device fills.

A writer says how each thing is written: as elements of a built page (elements.py), or as plain Markdown (plain.py).
What cannot be filled is a problem with its line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from ledger.book import LedgerError, Problem
from ledger.site.api import described
from ledger.site.chapter import FILLED, INLINE, Block, Chapter, Fence, Paragraph, Piece, Waiting, inline, rows_of
from ledger.site.comments import Comments
from ledger.site.includes import Line, shown_lines
from ledger.site.quote import BrokenSnippet, Found, Quote, QuoteError, Source
from ledger.site.variants import Output, Rows, drawings, outputs, place_of, tables
from ledger.site.words import say
from ledger.text import hide
from ledger.units import DASH, Plain


class Number(NamedTuple):
    """A value as it stands at a place of a page."""

    line: int
    quote: Quote
    found: Found
    text: str  # as it is printed; what a record says has its signs hidden
    is_anywhere: bool = False  # whether any device has it
    in_table: bool = False
    elsewhere: str = ""  # in a sentence: the device whose number it is, because the one that is shown lacks it


class Table(NamedTuple):
    """A table without the rows and columns that no device fills."""

    rows: Rows  # the header first, and nothing else if nothing is left
    waiting: str  # the line that names what is not shown, "" if all is
    rule: list[str]  # what stands below the header's cells, of a table that is written as text

    def markdown(self, rule: list[str]) -> str:
        """What is left of it as text."""
        header, *body = (f"| {' | '.join(cells)} |" for cells in self.rows)
        return "\n".join((header, f"|{'|'.join(rule)}|", *body)) if body else ""


class Write(Protocol):
    """How the parts of a page are written."""

    language: str

    def number(self, number: Number) -> str: ...

    def link(self, address: str) -> str: ...

    def text_table(self, table: Table) -> str: ...

    def table(self, variants: list[tuple[list[str], Table]]) -> str: ...

    def output(self, variants: list[tuple[list[str], Output]]) -> str: ...

    def figure(self, alt: str, draw: Callable[[], list[tuple[list[str], str]]]) -> str: ...

    def data(self, name: str, find: Callable[[], Plain]) -> str: ...

    def device(self) -> str: ...

    def api(self, text: str) -> str: ...


@dataclass
class Filled:
    """What a page says once it is filled."""

    page: Chapter
    texts: dict[int, str] = field(default_factory=dict)  # of each paragraph, and of each block, by its first line
    hidden: set[int] = field(default_factory=set)  # lines that are not shown before a device has filled a value
    numbers: list[Number] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)  # snippets whose output is shown
    code: list[list[Line]] = field(default_factory=list)  # of each block of code, in order
    problems: list[Problem] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        """What the page consists of, without what is hidden."""
        return [piece for piece in self.page.pieces if piece.line not in self.hidden]


def fill(page: Chapter, source: Source, write: Write, whole: bool = False, comments: Comments | None = None) -> Filled:
    """The page with all that it quotes in place; `whole` also fills what is hidden, for its problems.

    `comments` are those of the page's language, where the caller asks which of them pages show.
    """
    filler = _Filler(page, source, write, comments or Comments(source.book, write.language))
    filled = filler.filled
    filled.problems += page.all_problems()
    filled.hidden = page.hidden(filler.is_filled)
    for piece in page.pieces if whole else filled.pieces:
        filler.fill(piece)
    filled.problems = sorted(dict.fromkeys(filled.problems), key=lambda problem: problem.line)
    return filled


class _Filler:
    def __init__(self, page: Chapter, source: Source, write: Write, comments: Comments) -> None:
        self.source, self.write, self.filled, self.comments = source, write, Filled(page), comments
        self.found: dict[str, Number] = {}  # by what stands between the braces

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Keeps the problem that is met, with its line."""
        path = self.filled.page.path
        try:
            yield
        except (BrokenSnippet, LedgerError) as error:  # each has a place of its own
            self.filled.problems += error.problems
        except QuoteError as error:
            self.filled.problems.append(Problem(path, line, str(error)))
        except Exception as error:  # of a figure's module, as it is imported, or of what it returned
            self.filled.problems.append(Problem(path, line, f"{place_of(error)}{type(error).__name__}: {error}"))

    def is_filled(self, part: Waiting) -> bool:
        with self.at(part.first):
            return bool(self.source.filled_by(part.value))
        return True

    def fill(self, piece: Piece) -> None:
        match piece:
            case Fence():
                self.filled.code.append(self.code(piece))
            case Block():
                with self.at(piece.line):
                    self.filled.texts[piece.line] = self.block(piece)
            case Paragraph():
                rows = rows_of(piece)
                self.filled.texts[piece.line] = self.text_table(piece, rows) if rows else self.prose(piece)

    def code(self, fence: Fence) -> list[Line]:
        """What a block shows, its comments in the page's language."""
        shown: list[Line] = []
        for line, text in enumerate(fence.lines, start=fence.line + 1):
            with self.at(line):
                lines = shown_lines(text, self.source.book.root)
                shown += (each if each.file else each._replace(number=line) for each in lines)
        with self.at(fence.line):
            shown, problems = self.comments.translated(shown, fence.language, self.filled.page.path)
            self.filled.problems += problems
        return shown

    # Numbers

    def prose(self, paragraph: Paragraph, in_table: bool = False) -> str:
        """A text with its numbers and links."""
        if "{{" not in paragraph.text and "](" not in paragraph.text:
            return paragraph.text
        written, rest = "", 0
        for line, match in inline(paragraph):
            text = match[0]
            if match.lastgroup == "placeholder":
                number = self.number(line, text[2:-2], in_table)
                text = self.write.number(number) if number else text
            elif match.lastgroup == "target":
                text = f"]({self.write.link(text[2:-1])})"
            written += paragraph.text[rest : match.start()] + text
            rest = match.end()
        return written + paragraph.text[rest:]

    def number(self, line: int, text: str, in_table: bool) -> Number | None:
        """A placeholder's value, None if it has none; in a sentence another's number for what the device lacks."""
        number = self.look_up(line, text)
        if number is None:
            return None
        number = number._replace(line=line, in_table=in_table)
        device = None if in_table or number.found.value is not None else self.source.instead(number.quote)
        if device:
            found = self.source.find(number.quote, device)
            number = self.of(line, number.quote, found)._replace(elsewhere=self.source.name(device))
        self.filled.numbers.append(number)
        return number

    def look_up(self, line: int, text: str) -> Number | None:
        """What the shown device has; a problem if any device's record has what cannot be printed."""
        if text not in self.found:
            with self.at(line):
                quote = Quote.parse(text)
                number = self.of(line, quote, self.source.find(quote))
                values = self.source.on_devices(quote)
                for device, value in values.items():
                    try:
                        quote.format(value, self.write.language)
                    except QuoteError as error:
                        where = self.source.place(device, quote.snippet)
                        raise QuoteError(f"{error}, as the record {where} has it") from None
                is_anywhere = any(value is not None for value in values.values())
                self.found[text] = number._replace(is_anywhere=is_anywhere)
        return self.found.get(text)

    def of(self, line: int, quote: Quote, found: Found) -> Number:
        text = quote.format(found.value, self.write.language)
        return Number(line, quote, found, hide(text) if isinstance(found.value, str) else text)

    # Tables

    def text_table(self, paragraph: Paragraph, rows: Rows) -> str:
        """One that the page writes as text."""
        header, rule, *body = rows
        lines = [paragraph.line, *range(paragraph.line + 2, paragraph.line + 2 + len(body))]
        table = self.trimmed([header, *body], [[header, *body]], lines, rule)
        return textwrap.indent(self.write.text_table(table), paragraph.text[: paragraph.text.index("|")])

    def table(self, block: Block) -> str:
        """One of a block, on each device; a cell is filled if it is on any device."""
        variants = tables(self.source, self.write.language, block.argument, block.options)
        alike: dict[tuple[int, int], list[Rows]] = {}
        for _, rows in variants:
            alike.setdefault((len(rows), len(rows[0])), []).append(rows)
        filled = []
        for devices, rows in variants:
            tables_alike = alike[len(rows), len(rows[0])]
            filled.append((devices, self.trimmed(rows, tables_alike, [block.line] * len(rows))))
        return self.write.table(filled)

    def trimmed(self, rows: Rows, alike: list[Rows], lines: list[int], rule: Sequence[str] = ()) -> Table:
        """A table without what no device fills, as its rows stand in all tables of the same shape."""
        empty = [
            [self.is_empty(lines[r], [table[r][c] for table in alike]) for c in range(len(rows[r]))]
            for r in range(1, len(rows))
        ]
        hidden_rows, hidden_columns = unfilled(empty)
        names = [rows[0][c] for c in sorted(hidden_columns) if len(hidden_rows) < len(empty)]
        names += [rows[r + 1][0] for r in sorted(hidden_rows)]
        left = [
            [self.cell(line, cell) for c, cell in enumerate(row) if c not in hidden_columns]
            for r, (line, row) in enumerate(zip(lines, rows, strict=True), start=-1)
            if r not in hidden_rows
        ]
        said = say(self.write.language, "separator").join(dict.fromkeys(self.cell(lines[0], name) for name in names))
        waiting = say(self.write.language, "waiting", names=said) if said else ""
        return Table(left, waiting, [sign for c, sign in enumerate(rule) if c not in hidden_columns])

    def cell(self, line: int, text: str) -> str:
        return self.prose(Paragraph(line, text), in_table=True)

    def is_empty(self, line: int, cells: list[str]) -> bool | None:
        """Whether a cell, as it looks on each device, is filled on none; None if nothing stands in it."""
        quoted = [
            match[0][2:-2]
            for cell in dict.fromkeys(cells)
            if "{{" in cell
            for match in INLINE.finditer(cell)
            if match.lastgroup == "placeholder"
        ]
        if quoted:
            numbers = [self.look_up(line, text) for text in quoted]  # of all, for what may be wrong with any
            return not any(number is None or number.is_anywhere for number in numbers)
        return None if not any(cells) else all(cell in (DASH, "") for cell in cells)

    # Blocks

    def block(self, block: Block) -> str:
        if block.kind not in FILLED:
            return self.prose(Paragraph(block.line, block.argument))
        if wrong := wrong_options(block):
            raise QuoteError(wrong)
        match block.kind:
            case "output":
                found = outputs(self.source, block.argument)
                self.filled.printed.append(block.argument.partition(":")[0].strip())
                return self.write.output(found)
            case "figure":
                labels = block.options.get("labels", {})
                draw = partial(drawings, self.source, self.write.language, block.argument, labels)
                return self.write.figure(block.options["alt"], draw)
            case "table":
                return self.table(block)
            case "data":
                return self.write.data(block.argument, partial(self.data, block.argument))
            case "api":
                text, problems = described(self.comments, block.argument, self.filled.page.path)
                self.filled.problems += problems
                return self.write.api(text)
        return self.write.device()

    def data(self, name: str) -> Plain:
        """A value, whole. Raises QuoteError if it is no exact one."""
        quote = Quote.parse(name)
        if quote.is_device_value:
            raise QuoteError(f"{name} depends on the device; only exact values are given to scripts")
        return self.source.find(quote).value


def wrong_options(block: Block) -> str:
    """What is wrong with the options of a figure or table, "" if nothing is."""
    labels = block.options.get("labels", {})
    if not isinstance(labels, dict):
        return "the block's labels are no mapping"
    texts = {**labels, "alt": block.options.get("alt") or ""}
    if wrong := [said for pair in texts.items() for said in pair if not isinstance(said, str)]:
        return f"YAML reads a label or alt: as {wrong[0]!r}, which is no text; write it in quotes"
    if block.kind == "figure" and not block.options.get("alt"):
        return "a figure needs alt:, what it shows in words"
    return ""


def unfilled(empty: list[list[bool | None]]) -> tuple[set[int], set[int]]:
    """The rows and columns of a table's body that hold nothing behind or below their names.

    A cell is empty (True), filled (False) or has nothing to be filled with (None).
    """

    def is_hidden(cells: list[bool | None]) -> bool:
        return any(cells) and False not in cells

    columns = list(zip(*empty, strict=True))
    return (
        {r for r, row in enumerate(empty) if is_hidden(row[1:])},
        {c for c, column in enumerate(columns) if c and is_hidden(list(column))},
    )
