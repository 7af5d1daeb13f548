"""Reading times: in `/// map`, each item of a list says how long what its first link leads to takes to read.

A page, or a section of it, as it opens: 230 English words or 400 Chinese characters a minute, 25 seconds a table or
figure, ten lines of code a minute; what is folded is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from ledger.site.chapter import BLOCK_END, BLOCK_START, INLINE, Chapter, Fence, Paragraph, rows_of
from ledger.site.chapter import Block as Filled
from ledger.site.includes import shown_lines

FOLDS = ("details", "question")
WORD, CHARACTER = re.compile(r"[\w’'-]+"), re.compile(r"[\u4e00-\u9fff]")
WORDS, CHARACTERS, LINES = 230, 400, 10  # a minute
SECONDS = 25  # a table or figure
SAID = {"en": "{} min", "zh": "{} 分钟"}


class MinutesExtension(BlocksExtension):  # type: ignore[misc]
    """Options: root, language ("en", "zh")."""

    def __init__(self, **options: Any) -> None:
        self.config = {"root": [".", "the book's root"], "language": ["en", "en or zh"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        pages = Path(self.getConfig("root")).resolve() / "docs" / self.getConfig("language")
        md.treeprocessors.register(MinutesProcessor(md, pages), "minutes", 3)  # before links are resolved
        super().extendMarkdown(md)

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:
        block_mgr.register(MapBlock, {})


def makeExtension(**options: Any) -> MinutesExtension:
    return MinutesExtension(**options)


class MapBlock(Block):  # type: ignore[misc]
    NAME = "map"

    def on_create(self, parent: Element) -> Element:
        return SubElement(parent, "div", {"class": "map"})


class MinutesProcessor(Treeprocessor):
    def __init__(self, md: Markdown, pages: Path) -> None:
        super().__init__(md)
        self.pages = pages

    def run(self, root: Element) -> None:
        read = cache(Chapter.read)  # of one page, several links lead to sections
        for item in root.iterfind(".//div[@class='map']//li"):
            link = next(item.iter("a"), None)
            path, _, place = (link.get("href", "") if link is not None else "").partition("#")
            if link is not None and (self.pages / path).suffix == ".md" and (self.pages / path).is_file():
                time = minutes(read(self.pages / path), place)
                said = Element("small")
                said.text, said.tail = SAID[self.pages.name].format(time), link.tail
                link.tail = " "
                parent = next(each for each in item.iter() if link in each)
                parent.insert([*parent].index(link) + 1, said)


def minutes(page: Chapter, place: str = "") -> int:
    """How long the page takes, or its section that has this id; one at least."""
    first, last = 0, len(page.lines) + 1
    heads = [heading for heading in page.headings if not place or heading.id == place]
    if place and heads:
        first = heads[0].line
        last = next((each.line for each in page.headings if each.line > first and each.level <= heads[0].level), last)
    folded = {*folded_lines(page.lines)}
    pieces = [piece for piece in page.pieces if first <= piece.line < last and piece.line not in folded]
    return max(1, round(sum(seconds(piece, page) for piece in pieces) / 60))


def seconds(piece: object, page: Chapter) -> float:
    match piece:
        case Paragraph() if rows_of(piece):
            return SECONDS
        case Paragraph():
            text = INLINE.sub(lambda match: "x" if match.lastgroup != "target" else "]", piece.text)
            characters = len(CHARACTER.findall(text))
            return 60 * (characters / CHARACTERS + len(WORD.findall(CHARACTER.sub(" ", text))) / WORDS)
        case Filled(kind="table" | "figure"):
            return SECONDS
        case Fence(language="python"):
            root = next(folder for folder in page.path.parents if (folder / "docs").is_dir())
            return 60 / LINES * sum(len(shown_lines(line, root)) for line in piece.lines)
    return 0


def folded_lines(lines: list[str]) -> Iterator[int]:
    """Numbers of the lines in parts that are closed when the page opens."""
    opened: list[tuple[int, str]] = []  # blocks, each with its slashes and kind; a line of so many closes the last such
    for number, line in enumerate(lines, start=1):
        slashes = len(line.strip())
        if BLOCK_END.match(line) and slashes in (of for of, _ in opened):
            while opened.pop()[0] != slashes:
                pass
        elif block := BLOCK_START.match(line):
            opened.append((len(block["slashes"]), block["kind"]))
        if any(kind in FOLDS for _, kind in opened):
            yield number
