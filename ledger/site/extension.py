"""A Python-Markdown extension that fills a chapter with measured numbers, outputs, figures and tables.

Works in any generator that uses Python-Markdown. Mistakes raise LedgerError; `python -m ledger check` finds them
beforehand and names their lines, which in a built page begin after its front matter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

from markdown import Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from ledger.book import Book, LedgerError, Problem
from ledger.site import files
from ledger.site.chapter import FILLED, PLACEHOLDER, Chapter
from ledger.site.elements import Elements
from ledger.site.fill import Filled, fill
from ledger.site.provenance import Provenance
from ledger.site.quote import Source, open_source
from ledger.text import as_html

MARK = re.compile(r"\{\{(\d+)\}\}")


class FillExtension(BlocksExtension):  # type: ignore[misc]
    """Options: root, default_device, first_device, language ("en", "zh"), local (whether local runs are shown)."""

    def __init__(self, **options: Any) -> None:
        self.config = {
            "root": [".", "the book's root"],
            "default_device": ["", "the device that the text speaks of"],
            "first_device": ["", "the device that stands first, whatever it is"],
            "language": ["en", "en or zh"],
            "local": [True, "whether runs on this machine are shown too"],
        }
        super().__init__(**options)
        self.invalid: LedgerError | None = None

    def extendMarkdown(self, md: Markdown) -> None:
        book = Book(Path(self.getConfig("root")).resolve())
        md.registerExtension(self)
        try:
            named = self.getConfig("default_device"), self.getConfig("local"), self.getConfig("first_device")
            self.page = PageFiller(md, open_source(book, *named), self.getConfig("language"))
        except LedgerError as error:  # told with the first page: a generator shows more than it when no extension loads
            self.invalid = error
            return
        md.preprocessors.register(self.page, "ledger-fill", 33)  # before includes, at 32
        md.inlinePatterns.register(NumberProcessor(self.page), "ledger-number", 185)  # after code, at 190
        md.treeprocessors.register(PageFrame(self.page), "ledger-page", 1)  # when all else is in place
        md.postprocessors.register(TextWriter(md), "ledger-texts", 1)  # when nothing more is read as markup
        files.register(md, book)
        super().extendMarkdown(md)

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:
        for kind in FILLED:
            block_mgr.register(type(kind, (FilledBlock,), {"NAME": kind}), {"page": self.page})
        block_mgr.register(OnlyBlock, {"page": self.page})

    def reset(self) -> None:
        if self.invalid:
            raise self.invalid


class PageFiller(Preprocessor):
    """Fills the page that is being converted; keeps what was filled in, and the elements that stand for it."""

    md: Markdown

    def __init__(self, md: Markdown, source: Source, language: str) -> None:
        super().__init__(md)
        self.source, self.language = source, language
        self.filled: Filled
        self.elements: Elements

    def run(self, lines: list[str]) -> list[str]:
        page = Chapter.parse("\n".join(lines), self.source.book.docs / self.language)
        self.elements = Elements(self.source, self.language, self.md.htmlStash.store)
        self.filled = fill(page, self.source, self.elements)
        if self.filled.problems:
            raise LedgerError(map(self.without_line, self.filled.problems))
        return self.elements.marked(self.filled)

    def without_line(self, problem: Problem) -> Problem:
        """One of the page with its line's text: what stood above, front matter say, is not known here."""
        path, line, message = problem
        is_mine = path == self.filled.page.path
        return Problem(path, 0, f"{self.filled.page.lines[line - 1].strip()}: {message}") if is_mine else problem

    def unseen(self, what: str) -> LedgerError:
        """For what Python-Markdown finds where the fill finds nothing: in a list, say."""
        return LedgerError([Problem(self.filled.page.path, 0, f"{what} stands where nothing is filled in")])


class NumberProcessor(InlineProcessor):
    """Puts a number where its mark is; code and math are taken out before."""

    def __init__(self, page: PageFiller) -> None:
        super().__init__(PLACEHOLDER, page.md)
        self.page = page

    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element, int, int]:
        mark = MARK.fullmatch(m[0])
        if not mark:
            raise self.page.unseen(m[0])
        return self.page.elements.element(int(mark[1])), m.start(0), m.end(0)


class FilledBlock(Block):  # type: ignore[misc]
    """Puts an output, figure, table … where its mark is; the content of a figure or table is its caption."""

    ARGUMENT = True

    def on_create(self, parent: ElementTree.Element) -> ElementTree.Element:
        page: PageFiller = self.config["page"]
        if not self.argument.isdecimal():
            raise page.unseen(f"/// {self.NAME} | {self.argument}")
        element = page.elements.blocks[int(self.argument)]
        parent.append(element)
        return element

    def on_add(self, block: ElementTree.Element) -> ElementTree.Element:
        return block[-1] if block.tag == "figure" else block


class OnlyBlock(Block):  # type: ignore[misc]
    """What is true of one device alone, `/// only | nvidia-h200`: hidden where another one's numbers stand."""

    NAME = "only"
    ARGUMENT = True

    def on_create(self, parent: ElementTree.Element) -> ElementTree.Element:
        page: PageFiller = self.config["page"]
        shown = {"hidden": "hidden"} if page.source.shown_device != self.argument else {}
        return SubElement(parent, "div", {"data-only": self.argument} | shown)


class PageFrame(Treeprocessor):
    """Adds to a page that quotes numbers: the device, below its title or where `/// device` stands, unless all numbers
    are the same on each; at its end, where they come from."""

    def __init__(self, page: PageFiller) -> None:
        super().__init__(page.md)
        self.page = page

    def run(self, root: ElementTree.Element) -> None:
        page, elements = self.page, self.page.elements
        if not elements.quoted and not page.filled.printed:
            return
        provenance = Provenance(page.source, page.language, page.filled, elements.quoted)
        line, children = provenance.device_line(), list(root)
        varies = provenance.varies() or any(next(block.iter("template"), None) is not None for block in elements.blocks)
        if elements.device_place in children:
            root[children.index(elements.device_place)] = line
        elif varies:
            title = next((index for index, element in enumerate(children) if element.tag == "h1"), -1)
            root.insert(title + 1, line)
        root.append(provenance.details(elements.stash, varies))
        SubElement(root, "p").text = elements.stash(provenance.data())


class TextWriter(Postprocessor):
    """Writes the texts of records that stand in tables, whose signs were hidden from Markdown, and a comma between
    footnotes that follow each other: ²³ would be another number."""

    def run(self, text: str) -> str:
        return as_html(text).replace('</sup><sup id="fnref', '</sup><sup>, </sup><sup id="fnref')
