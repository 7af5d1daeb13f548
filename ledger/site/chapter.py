"""A chapter's source, read line by line: headings, fences, blocks, and placeholders with the place they stand in.

Python-Markdown keeps no line numbers, and its extensions cannot name the line of a mistake; this reader can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ledger.book import LedgerError, Problem

FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})\s*(?P<info>.*?)\s*$")
INCLUDE = re.compile(r'^\s*-+8<-+[ \t]+"(?P<path>[^":]+)(?::(?P<section>[a-z][a-z0-9_]*))?"$')
HEADING = re.compile(r"^(?P<level>#{1,6})\s+(?P<text>.*?)(?:\s*\{[^{}]*#(?P<id>[\w-]+)[^{}]*\})?\s*$")
BLOCK_START = re.compile(r"^(?P<slashes>/{3,})\s*(?P<kind>[\w-]+)\s*(?:\|\s*(?P<argument>.*?))?\s*$")
FILLED = ("output", "figure", "table", "data", "device", "api")  # blocks that stand for what is filled in
KINDS = {  # of blocks, as mkdocs.yml's extensions know them
    *(*FILLED, "recorded", "only", "details", "question", "tab"),
    *("admonition", "note", "tip", "warning", "takeaway", "map"),
}
BLOCK_END = re.compile(r"^/{3,}\s*$")
HTML_BLOCK = re.compile(
    r"^\s{0,3}<(?:!--|/?(?:form|div|p|table|section|figure|details|ul|ol|pre|script|style|h[1-6])\b)"
)
ROW_RULE = re.compile(r"^\|[\s:|-]+\|$")  # between a table's header and its body
PLACEHOLDER = r"\{\{(?:(?!\{\{|\}\}).)*+\}\}"  # ends at the next pair of braces: many that do not close cost no time
INLINE = re.compile(
    r"""(?P<escape>\\.)
    | (?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))
    | (?P<math>\$(?!\s)(?:[^$\\]|\\.)+?(?<!\s)\$(?!\d))
    | (?P<placeholder>"""
    + PLACEHOLDER
    + r""")
    | (?P<alternative>!\[[^\[\]]*\])
    | (?P<target>\]\([^)\]]*\))
    | (?P<html><[a-zA-Z/!][^<>]*>)
    | (?P<unclosed>\{\{)""",
    re.X | re.S,
)
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, where it is built in
FORBIDDEN = {"math": "math", "alternative": "an alternative text", "target": "a link's address", "html": "raw HTML"}


class Loader(SAFE_LOADER):  # type: ignore[misc]
    """Refuses a mapping that has a key twice; YAML would keep the last, and a row or column would be gone unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [str(key.value) for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(problem=f"{twice[0]!r} stands there twice")
        return dict(super().construct_mapping(node, deep))


class Heading(NamedTuple):
    line: int
    level: int
    text: str
    id: str | None


class Fence(NamedTuple):
    line: int  # of its opening ticks
    info: str  # what follows them
    lines: list[str]

    @property
    def language(self) -> str:
        return re.split(r"[\s{]", self.info.removeprefix("{").strip().removeprefix("."), maxsplit=1)[0]


class Block(NamedTuple):
    line: int
    kind: str
    argument: str
    options: dict[str, Any]
    last: int  # line of its options


class Formula(NamedTuple):
    line: int
    lines: list[str]  # all from $$ to $$


class Paragraph(NamedTuple):
    line: int  # the first one
    text: str


class Waiting(NamedTuple):
    """A part that a page shows once a device has filled a value: `//// recorded | snippet.value` to `////`."""

    first: int  # the line of its opening slashes
    last: int  # of its closing ones
    slashes: int
    value: str

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


Piece = Heading | Fence | Block | Formula | Paragraph


@dataclass
class Chapter:
    """One Markdown page."""

    path: Path
    lines: list[str] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    formulas: list[Formula] = field(default_factory=list)
    paragraphs: list[Paragraph] = field(default_factory=list)  # prose, lists, tables, and titles of blocks
    problems: list[Problem] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Chapter:
        """The page at path. Raises LedgerError if it is no text."""
        read = path.read_bytes()
        try:
            return cls.parse(read.decode("utf-8"), path)
        except UnicodeDecodeError as error:
            line = 1 + read.count(b"\n", 0, error.start)
            raise LedgerError([Problem(path, line, f"not UTF-8: the byte 0x{read[error.start]:02X}")]) from None

    @classmethod
    def parse(cls, text: str, path: Path) -> Chapter:
        chapter = cls(path, text.splitlines())
        chapter._read()
        return chapter

    @cached_property
    def pieces(self) -> list[Piece]:
        """What it consists of, from its first line to its last; a block's title belongs to the block."""
        titled = {block.line for block in self.blocks}
        prose = (paragraph for paragraph in self.paragraphs if paragraph.line not in titled)
        pieces: Iterable[Piece] = (*self.headings, *self.fences, *self.blocks, *self.formulas, *prose)
        return sorted(pieces, key=lambda piece: piece.line)

    @property
    def placeholders(self) -> list[tuple[int, str]]:
        """Line and text of each that will be filled; what stands where none may stand is among the problems."""
        return [(line, match[0][2:-2]) for line, match in self._inline if match.lastgroup == "placeholder"]

    @property
    def links(self) -> list[tuple[int, str]]:
        """Line and address of each inline link."""
        return [(line, match[0][2:-1].split(" ")[0]) for line, match in self._inline if match.lastgroup == "target"]

    def hidden(self, is_filled: Callable[[Waiting], bool]) -> set[int]:
        """The lines that are not shown: parts whose value is not filled, and the marks of the others."""
        gone: set[int] = set()
        for part in self.waiting:
            gone.update((part.first, part.last) if is_filled(part) else range(part.first, part.last + 1))
        return gone

    def all_problems(self) -> list[Problem]:
        """What is wrong with the page as a text, before any record is read."""
        found = list(self.problems)
        for line, match in self._inline:
            kind = match.lastgroup or ""
            if kind == "unclosed":
                found.append(Problem(self.path, line, "placeholder without its closing }} on the same paragraph"))
            elif kind in FORBIDDEN and "{{" in match[0]:
                message = f"placeholder in {FORBIDDEN[kind]}, where none is filled: {match[0]}"
                found.append(Problem(self.path, line, message))
        return sorted(found, key=lambda problem: problem.line)

    @cached_property
    def _inline(self) -> list[tuple[int, re.Match[str]]]:
        return [found for paragraph in self.paragraphs for found in inline(paragraph)]

    def _read(self) -> None:
        lines, number = self.lines, self._skip_front_matter()
        paragraph: list[str] = []
        first = 0
        opened: list[Waiting] = []

        def end_paragraph() -> None:
            if paragraph:
                self.paragraphs.append(Paragraph(first, "\n".join(paragraph)))
                paragraph.clear()

        while number < len(lines):
            line = lines[number]
            number += 1  # now the number of `line`, counted from 1
            if fence := FENCE.match(line):
                end_paragraph()
                number = self._read_fence(number, fence)
            elif line.strip() == "$$":
                end_paragraph()
                number = self._read_math(number)
            elif heading := HEADING.match(line):
                end_paragraph()
                self.headings.append(Heading(number, len(heading["level"]), heading["text"], heading["id"]))
                self._leave_unfilled(number, [line], "a heading")
            elif block := BLOCK_START.match(line):
                end_paragraph()
                slashes = len(block["slashes"])
                if block["kind"] not in KINDS:
                    self._problem(number, f"there is no block {block['kind']!r}; there are {', '.join(sorted(KINDS))}")
                if opened and slashes >= opened[-1].slashes:
                    outer = f"the part that waits since line {opened[-1].first}"
                    self._problem(number, f"{outer} needs more slashes than what it holds")
                if block["kind"] == "recorded":
                    opened.append(Waiting(number, len(lines), slashes, block["argument"] or ""))
                    continue
                number = self._read_block(number, block)
            elif HTML_BLOCK.match(line):
                end_paragraph()
                number = self._read_html(number)
            elif not line.strip() or BLOCK_END.match(line):
                end_paragraph()
                if opened and line.strip() == "/" * opened[-1].slashes:
                    self.waiting.append(opened.pop()._replace(last=number))
            else:
                if line.startswith("///"):
                    self._problem(number, "malformed block; write /// kind | argument")
                if not paragraph:
                    first = number
                paragraph.append(line)
        end_paragraph()
        for part in opened:
            self._problem(part.first, "this part that waits for a device is never closed")
        self.waiting = sorted([*self.waiting, *opened])

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, message))

    def _skip_front_matter(self) -> int:
        if self.lines and self.lines[0].strip() == "---":
            for number, line in enumerate(self.lines[1:], start=2):
                if "{{" in line:
                    self._problem(number, "placeholder in the front matter")
                if line.strip() == "---":
                    return number
        return 0

    def _read_fence(self, start: int, fence: re.Match[str]) -> int:
        closing = re.compile(rf"^\s*{re.escape(fence['ticks'][0])}{{{len(fence['ticks'])},}}\s*$")
        content = self._until(start, lambda line: bool(closing.match(line)), "this code block is never closed")
        self.fences.append(Fence(start, fence["info"], content))
        for number, line in enumerate(content, start=start + 1):
            if "8<" in line and not INCLUDE.match(line):
                mend = 'write --8<-- "snippets/name.py:section", nothing after it'
                self._problem(number, f"malformed include; {mend}: {line.strip()}")
        return start + len(content) + 1

    def _read_math(self, start: int) -> int:
        content = self._until(start, lambda line: line.strip() == "$$", "this formula's $$ is never closed")
        self._leave_unfilled(start + 1, content, "math")
        self.formulas.append(Formula(start, self.lines[start - 1 : start + len(content) + 1]))
        return start + len(content) + 1

    def _read_html(self, start: int) -> int:
        content = self._until(start - 1, lambda line: not line.strip())
        self._leave_unfilled(start, content, "raw HTML")
        return start - 1 + len(content)

    def _until(self, start: int, is_end: Callable[[str], bool], otherwise: str = "") -> list[str]:
        """The lines after that number, up to the end; if there is none, the problem is another."""
        number = next((n for n in range(start, len(self.lines)) if is_end(self.lines[n])), None)
        if number is None and otherwise:
            self._problem(start, otherwise)
        return self.lines[start:number]

    def _leave_unfilled(self, first: int, lines: list[str], where: str) -> None:
        for number, line in enumerate(lines, start=first):
            if "{{" in line:
                self._problem(number, f"placeholder in {where}, where none is filled")

    def _read_block(self, start: int, block: re.Match[str]) -> int:
        options = self._until(start, lambda line: not line.startswith("    "))
        try:
            parsed = yaml.load("\n".join(options), Loader)
        except yaml.YAMLError as error:
            self._problem(start + 1, f"the block's options are not YAML: {getattr(error, 'problem', error)}")
            return start + len(options)  # without a block: what it lacks is not told too
        if not isinstance(parsed, dict | None):
            self._problem(start + 1, "the block's options are no mapping")
            return start + len(options)
        last, argument = start + len(options), block["argument"] or ""
        self.blocks.append(Block(start, block["kind"], argument, parsed or {}, last))
        if argument and block["kind"] not in (*FILLED, "only"):  # whose arguments are names, and no text
            self.paragraphs.append(Paragraph(start, argument))
        return last


def inline(paragraph: Paragraph) -> Iterator[tuple[int, re.Match[str]]]:
    """What stands in a paragraph beside plain text, each with its line."""
    line, counted = paragraph.line, 0
    for match in INLINE.finditer(paragraph.text):
        line, counted = line + paragraph.text.count("\n", counted, match.start()), match.start()
        yield line, match


def rows_of(paragraph: Paragraph) -> list[list[str]]:
    """The cells of a table that is written as text, row by row, its rule the second; none if it is no table."""
    lines = paragraph.text.splitlines()
    if not (lines[0].lstrip().startswith("|") and len(lines) > 1 and ROW_RULE.match(lines[1].strip())):
        return []
    header, *others = map(_cells, lines)
    return [header, *([*row, *[""] * len(header)][: len(header)] for row in others)]


def _cells(row: str) -> list[str]:
    """The cells of a line of a table; a bar inside of code or a formula separates none."""
    text = row.strip().removeprefix("|").removesuffix("|")
    masked = INLINE.sub(lambda match: "x" * len(match[0]), text)
    cells, start = [], 0
    for bar in [index for index, sign in enumerate(masked) if sign == "|"] + [len(text)]:
        cells.append(text[start:bar].strip())
        start = bar + 1
    return cells


def targets(text: str) -> list[str]:
    """What stands between the brackets of each inline link."""
    return [match[0][2:-1] for match in INLINE.finditer(text) if match.lastgroup == "target"]
