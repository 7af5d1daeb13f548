"""A Python-Markdown extension that fills a chapter with measured numbers, outputs, figures and tables.

Works in any generator that uses Python-Markdown. Mistakes raise LedgerError; `python -m ledger check` finds them
beforehand and names their lines, which Python-Markdown does not know.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block, type_any, type_string

from ledger.book import Book, LedgerError, Problem
from ledger.site.chapter import PLACEHOLDER, shown
from ledger.site.page import Page, unfilled
from ledger.site.quote import QuoteError, open_source
from ledger.site.tables import OPTIONS as TABLE_OPTIONS
from ledger.text import as_html
from ledger.units import DASH

T = TypeVar("T")
DEVICE_PLACE = "device-place"


class FillExtension(Extension):
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
        self.page: Page
        self.invalid: LedgerError | None = None

    def extendMarkdown(self, md: Markdown) -> None:
        book = Book(Path(self.getConfig("root")).resolve())
        try:
            named = self.getConfig("default_device"), self.getConfig("local"), self.getConfig("first_device")
            source = open_source(book, *named)
        except LedgerError as error:  # told with the first page: a generator shows more than it when no extension loads
            self.invalid = error
            md.registerExtension(self)
            return
        self.page = Page(source, self.getConfig("language"), md.htmlStash.store)
        md.registerExtension(self)
        md.preprocessors.register(SourceReader(md, self.page), "ledger-source", 33)  # before includes, at 32
        md.inlinePatterns.register(PlaceholderProcessor(md, self.page), "ledger-placeholder", 185)  # after code, at 190
        md.treeprocessors.register(PageFrame(md, self.page), "ledger-page", 1)  # when all else is in place
        md.postprocessors.register(TextWriter(md), "ledger-texts", 1)  # when nothing more is read as markup
        BlocksOfLedger(page=[self.page, "what fills the blocks"]).extendMarkdown(md)

    def reset(self) -> None:
        if self.invalid:
            raise self.invalid
        self.page.begin("")


def _or_fail(page: Page, what: str, make: Callable[[], T]) -> T:
    """What `make` makes; a QuoteError becomes one that names the book, since the line is not known here."""
    try:
        return make()
    except QuoteError as error:
        raise LedgerError([Problem(page.source.book.docs, 0, f"{what}{error}")]) from None


class SourceReader(Preprocessor):
    """Takes out what waits for a device (`//// recorded | snippet.value`), and hands on the page as it was written, so
    that it is known which code blocks hold which lines."""

    def __init__(self, md: Markdown, page: Page) -> None:
        super().__init__(md)
        self.page = page

    def run(self, lines: list[str]) -> list[str]:
        def is_filled(value: str) -> bool:
            return bool(_or_fail(self.page, "recorded: ", lambda: self.page.source.filled_by(value)))

        text = shown("\n".join(lines), is_filled)
        self.page.begin(text)
        return text.split("\n")


class PlaceholderProcessor(InlineProcessor):
    """`{{ snippet.value:format }}` in prose, lists and tables; code and math are taken out before it."""

    def __init__(self, md: Markdown, page: Page) -> None:
        super().__init__(PLACEHOLDER, md)
        self.page = page

    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element, int, int]:
        return _or_fail(self.page, "", lambda: self.page.number(m[0][2:-2])), m.start(0), m.end(0)


class TextWriter(Postprocessor):
    """Writes the texts of records that stand in tables, whose signs were hidden from Markdown."""

    def run(self, text: str) -> str:
        return as_html(text)


class PageFrame(Treeprocessor):
    """Adds to a page that quotes numbers: the device, below its title or where `/// device` stands; at its end, where
    they come from."""

    def __init__(self, md: Markdown, page: Page) -> None:
        super().__init__(md)
        self.page = page

    def run(self, root: ElementTree.Element) -> None:
        _or_fail(self.page, "", lambda: self.frame(root))

    def frame(self, root: ElementTree.Element) -> None:
        if any([self.trim(parent, child) for parent in list(root.iter()) for child in list(parent)]):
            left = {element.get("data-quote") for element in root.iter("data")}
            self.page.quoted = {key: quote for key, quote in self.page.quoted.items() if key in left}
        if not self.page.quoted and not self.page.printed:
            return
        completed = [self.page.complete(element) for element in in_sentences(root)]
        line = self.page.device_line(is_completed=any(completed))
        chosen = next((element for element in root if element.get("class") == DEVICE_PLACE), None)
        if chosen is None:
            title = next((index for index, element in enumerate(root) if element.tag == "h1"), -1)
            root.insert(title + 1, line)
        else:
            root[list(root).index(chosen)] = line
        root.append(self.page.provenance())
        SubElement(root, "p").text = self.md.htmlStash.store(self.page.page_data())

    def trim(self, parent: ElementTree.Element, table: ElementTree.Element) -> bool:
        """Takes out of a table that is written as text what no device fills, and says so below it."""
        if table.tag != "table" or not any(True for _ in table.iter("data")) or parent.get("class") == "table-frame":
            return False
        header, *body = (list(row) for row in table.iter("tr"))
        hidden = unfilled([[self.is_empty(cell) for cell in row] for row in body])
        texts = [["".join(cell.itertext()) for cell in row] for row in (header, *body)]
        if not (line := self.page.waiting_line(texts, hidden)):
            return False
        for index, row in enumerate(list(table.iter("tr")), start=-1):
            for column in hidden[1]:
                row.remove((header, *body)[index + 1][column])
            if index in hidden[0]:
                table[-1].remove(row)
        note = ElementTree.Element("p", {"class": "table-waiting"})
        note.text = AtomicString(line)
        note.tail, table.tail = table.tail, None
        place = list(parent).index(table)
        parent.insert(place + 1, note)
        if len(hidden[0]) == len(body):
            parent.remove(table)
        return True

    def is_empty(self, cell: ElementTree.Element) -> bool | None:
        quotes = [self.page.quoted[element.get("data-quote", "")] for element in cell.iter("data")]
        text = "".join(cell.itertext()).strip()
        return not any(map(self.page.is_on_a_device, quotes)) if quotes else None if not text else text == DASH


def in_sentences(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The numbers in it that stand in no table."""
    for child in element:
        if child.tag == "data":
            yield child
        elif child.tag != "table":
            yield from in_sentences(child)


class BlocksOfLedger(BlocksExtension):  # type: ignore[misc]
    """The blocks `output`, `figure`, `table`, `data` and `device`."""

    def __init__(self, **config: Any) -> None:
        self.config = config
        super().__init__()

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:
        for block in (OutputBlock, FigureBlock, TableBlock, DataBlock, DeviceBlock):
            block_mgr.register(block, self.getConfigs())


class LedgerBlock(Block):  # type: ignore[misc]
    """What they have in common: an argument that says what stands there, and a variant for each device.

    Where devices differ, each variant stands in an element that lists its devices; all but the shown one wait in a
    template, where a browser neither styles nor lays them out: a page costs the same with many devices as with one.
    """

    ARGUMENT: bool | None = True

    @property
    def page(self) -> Page:
        page: Page = self.config["page"]
        return page

    def on_create(self, parent: ElementTree.Element) -> ElementTree.Element:
        element: ElementTree.Element = _or_fail(
            self.page, f"/// {' | '.join(filter(None, (self.NAME, self.argument)))}: ", lambda: self.build(parent)
        )
        return element

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        raise NotImplementedError

    def variant(self, parent: ElementTree.Element, devices: list[str], index: int, css: str) -> ElementTree.Element:
        if index:
            parent = SubElement(parent, "template", {"class": "variant", "data-search-exclude": ""})
        return SubElement(parent, "div", {"class": css, "data-devices": " ".join(devices)})

    def raw(self, markup: str) -> str:
        return str(self.md.htmlStash.store(markup))


class OutputBlock(LedgerBlock):
    """`/// output | snippet:section`: what a section printed."""

    NAME = "output"

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        block = SubElement(parent, "div", {"class": "output"})
        for index, (devices, text, where) in enumerate(self.page.outputs(self.argument)):
            element = self.variant(block, devices, index, "output-variant")
            SubElement(element, "p", {"class": "output-where"}).text = AtomicString(where)
            markup = f'<pre tabindex="0"><code>{html.escape(text, quote=False)}</code></pre>'
            SubElement(element, "div").text = self.raw(markup)
        if not len(block):
            SubElement(block, "p", {"class": "output-where"}).text = AtomicString(self.page.words["none"])
        return block


class FigureBlock(LedgerBlock):
    """`/// figure | module.function`: a drawing made from values; the content is its caption."""

    NAME = "figure"
    OPTIONS: ClassVar[dict[str, Any]] = {"alt": ("", type_string), "labels": ({}, type_any)}

    def on_validate(self, parent: ElementTree.Element) -> bool:
        return bool(self.options["alt"])

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        figure = SubElement(parent, "figure", {"class": "drawing"})
        described = f'<svg role="img" aria-label="{html.escape(self.options["alt"])}"'
        for index, (devices, svg) in enumerate(self.page.drawings(self.argument, self.options["labels"])):
            frame = self.variant(figure, devices, index, "drawing-frame")
            if not svg:
                SubElement(frame, "p", {"class": "output-where"}).text = AtomicString(self.page.words["absent"])
                continue
            frame.set("tabindex", "0")
            frame.set("data-search-exclude", "")
            frame.text = self.raw(svg.replace("<svg", described, 1))
        SubElement(figure, "figcaption")
        return figure

    def on_add(self, block: ElementTree.Element) -> ElementTree.Element:
        return block[-1]


class TableBlock(LedgerBlock):
    """`/// table` with its rows and columns, or `/// table | module.function`; the content is the caption."""

    NAME = "table"
    ARGUMENT = None  # there may be one
    OPTIONS: ClassVar[dict[str, Any]] = {name: (None, type_any) for name in ("labels", *TABLE_OPTIONS)}

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        figure = SubElement(parent, "figure", {"class": "table"})
        given = {name: said for name, said in self.options.items() if name in self.OPTIONS and said is not None}
        tables = self.page.shown_tables(self.argument or "", given)
        for index, (devices, (header, *body), waiting) in enumerate(tables):
            frame = self.variant(figure, devices, index, "table-frame")
            frame.set("tabindex", "0")
            if body:
                self.fill(SubElement(frame, "table"), header, body)
            if waiting:
                SubElement(frame, "p", {"class": "table-waiting"}).text = waiting
        SubElement(figure, "figcaption")
        return figure

    def fill(self, table: ElementTree.Element, header: list[str], body: list[list[str]]) -> None:
        row = SubElement(SubElement(table, "thead"), "tr")
        for cell in header:
            SubElement(row, "th" if cell else "td", {"scope": "col"} if cell else {}).text = cell
        rows = SubElement(table, "tbody")
        for cells in body:
            row = SubElement(rows, "tr")
            for cell in cells:
                SubElement(row, "td").text = cell

    def on_add(self, block: ElementTree.Element) -> ElementTree.Element:
        return block[-1]


class DataBlock(LedgerBlock):
    """`/// data | snippet.value`: an exact value as JSON, for a script of the page."""

    NAME = "data"

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        block = SubElement(parent, "div", {"hidden": "hidden"})
        block.text = self.raw(self.page.data(self.argument))
        return block


class DeviceBlock(LedgerBlock):
    """`/// device`: where the line stands that names the device, on a page that does not begin with measurements."""

    NAME = "device"
    ARGUMENT = False

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        return SubElement(parent, "div", {"class": DEVICE_PLACE})
