"""A Python-Markdown extension that fills a chapter with measured numbers, outputs, figures and tables.

Works in any generator that uses Python-Markdown. Mistakes raise LedgerError; `python -m ledger check` finds them
beforehand and names their lines, which Python-Markdown does not know.
"""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from xml.etree import ElementTree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block, type_any, type_string

from ledger.book import Book, LedgerError, Problem
from ledger.quote import Found, Quote, QuoteError, Source, Values, open_source

WORDS = {
    "en": {"printed": "Printed on {device}", "stale": "the code has changed since", "none": "not measured yet"},
    "zh": {"printed": "在 {device} 上的输出", "stale": "代码在此之后有改动", "none": "尚未实测"},
}


class FillExtension(Extension):
    """Options: root, default_device, language ("en", "zh"), local (whether local runs are shown)."""

    def __init__(self, **options: Any) -> None:
        self.config = {
            "root": [".", "the book's root"],
            "default_device": ["", "the device that the text speaks of"],
            "language": ["en", "en or zh"],
            "local": [True, "whether runs on this machine are shown too"],
        }
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        filler = Filler(
            open_source(
                Book(Path(self.getConfig("root")).resolve()), self.getConfig("default_device"), self.getConfig("local")
            ),
            self.getConfig("language"),
        )
        md.inlinePatterns.register(PlaceholderProcessor(md, filler), "ledger-placeholder", 185)
        BlocksOfLedger(filler=[filler, "what fills the blocks"]).extendMarkdown(md)


def makeExtension(**options: Any) -> FillExtension:  # the name that Python-Markdown looks for
    return FillExtension(**options)


class Filler:
    """Turns quotes into the elements of a page, in its language."""

    def __init__(self, source: Source, language: str) -> None:
        self.source, self.language, self.words = source, language, WORDS[language]

    def number(self, text: str) -> ElementTree.Element:
        """A placeholder's text as `<data class="exact|measured" value=… data-quote=…>formatted</data>`."""
        quote = Quote.parse(text)
        found = self.source.find(quote)
        element = ElementTree.Element("data", {"data-quote": quote.name})
        classes = ["measured" if quote.is_device_value else "exact"]
        if found.value is None:
            classes.append("absent")
            element.set("title", self.words["none"])
        if found.stale:
            classes.append("stale")
            element.set("title", self.words["stale"])
        element.set("class", " ".join(classes))
        element.set("value", "" if found.value is None else str(found.value))
        element.text = AtomicString(quote.format(found.value, self.language))
        return element

    def output(self, argument: str) -> tuple[str, str]:
        """What a section printed, and where: `snippet:section`."""
        snippet, _, section = argument.partition(":")
        found: Found = self.source.output(snippet.strip(), section.strip())
        if found.record is None or found.value is None:
            return "", self.words["none"]
        device = found.record.device["name"]
        where = self.words["printed"].format(device=device) + (f" ({self.words['stale']})" if found.stale else "")
        return str(found.value), where

    def drawing(self, name: str, labels: dict[str, str]) -> str:
        """A figure's SVG. Raises QuoteError if there is no such function or it does not return an SVG."""
        svg = call_figure(self.source, name, labels)
        if not isinstance(svg, str) or not svg.startswith("<svg"):
            raise QuoteError(f"figures.{name} returned no SVG")
        return svg

    def rows(self, name: str, labels: dict[str, str]) -> list[list[str]]:
        """A table's rows of Markdown cells, the header first. Raises QuoteError if they are none."""
        rows = call_figure(self.source, name, labels)
        if not isinstance(rows, list) or len({len(row) for row in rows}) != 1:
            raise QuoteError(f"figures.{name} returned no rows of one length")
        return [[str(cell) for cell in row] for row in rows]


class Labels(dict[str, str]):
    """A page's words for a figure; a missing one is an error that names it."""

    def __missing__(self, key: str) -> str:
        raise QuoteError(f"the block's labels lack {key!r}")


def call_figure(source: Source, name: str, labels: dict[str, str]) -> Any:
    """Calls figures/<module>.py's function for `module.function`."""
    module_name, _, function_name = name.partition(".")
    path = source.book.root / "figures" / f"{module_name}.py"
    if not path.is_file():
        raise QuoteError(f"there is no figures/{module_name}.py")
    function = getattr(_import_figures(path, path.stat().st_mtime_ns), function_name, None)
    if not callable(function):
        raise QuoteError(f"figures/{module_name}.py has no function {function_name!r}")
    return function(Values(source), Labels(labels))


@lru_cache(maxsize=None)
def _import_figures(path: Path, modified: int) -> ModuleType:
    """The module at path, loaded again after the file has changed (a live preview lives long)."""
    root = str(path.parent.parent)
    if root not in sys.path:
        sys.path.insert(0, root)  # figures import figures.svg
    spec = importlib.util.spec_from_file_location(f"figures.{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PlaceholderProcessor(InlineProcessor):
    """`{{ snippet.value:format }}` in prose, lists and tables; code and math are taken out before it."""

    def __init__(self, md: Markdown, filler: Filler) -> None:
        super().__init__(r"\{\{(.*?)\}\}", md)
        self.filler = filler

    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element, int, int]:
        try:
            return self.filler.number(m[1]), m.start(0), m.end(0)
        except QuoteError as error:
            raise LedgerError([Problem(self.filler.source.book.docs, 0, str(error))]) from None


class BlocksOfLedger(BlocksExtension):  # type: ignore[misc]
    """The blocks `output`, `figure` and `table`."""

    def __init__(self, **config: Any) -> None:
        self.config = config
        super().__init__()

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:
        for block in (OutputBlock, FigureBlock, TableBlock):
            block_mgr.register(block, self.getConfigs())


class LedgerBlock(Block):  # type: ignore[misc]
    """What the three have in common: an argument that says what stands there, and errors that say so."""

    ARGUMENT = True

    @property
    def filler(self) -> Filler:
        filler: Filler = self.config["filler"]
        return filler

    def on_create(self, parent: ElementTree.Element) -> ElementTree.Element:
        try:
            return self.build(parent)
        except QuoteError as error:
            message = f"/// {self.NAME} | {self.argument}: {error}"
            raise LedgerError([Problem(self.filler.source.book.docs, 0, message)]) from None

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        raise NotImplementedError


class OutputBlock(LedgerBlock):
    """`/// output | snippet:section`: what a section printed."""

    NAME = "output"

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        text, where = self.filler.output(self.argument)
        block = ElementTree.SubElement(
            parent, "div", {"class": "output", "data-output": self.argument.replace(" ", "")}
        )
        ElementTree.SubElement(block, "p", {"class": "output-where"}).text = AtomicString(where)
        if text:
            markup = f'<pre tabindex="0"><code>{html.escape(text, quote=False)}</code></pre>'
            ElementTree.SubElement(block, "div").text = self.md.htmlStash.store(markup)
        return block


class FigureBlock(LedgerBlock):
    """`/// figure | module.function`: a drawing made from values; the content is its caption."""

    NAME = "figure"
    OPTIONS: ClassVar[dict[str, Any]] = {"alt": ("", type_string), "labels": ({}, type_any)}

    def on_validate(self, parent: ElementTree.Element) -> bool:
        return bool(self.options["alt"])

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        svg = self.filler.drawing(self.argument, self.options["labels"])
        described = svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(self.options["alt"])}"', 1)
        figure = ElementTree.SubElement(parent, "figure", {"class": "drawing", "data-figure": self.argument})
        frame = ElementTree.SubElement(
            figure, "div", {"class": "drawing-frame", "tabindex": "0", "data-search-exclude": ""}
        )
        frame.text = self.md.htmlStash.store(described)
        ElementTree.SubElement(figure, "figcaption")
        return figure

    def on_add(self, block: ElementTree.Element) -> ElementTree.Element:
        return block[-1]


class TableBlock(LedgerBlock):
    """`/// table | module.function`: rows made from values; the content is the caption."""

    NAME = "table"
    OPTIONS: ClassVar[dict[str, Any]] = {"labels": ({}, type_any)}

    def build(self, parent: ElementTree.Element) -> ElementTree.Element:
        header, *body = self.filler.rows(self.argument, self.options["labels"])
        figure = ElementTree.SubElement(parent, "figure", {"class": "table", "data-table": self.argument})
        frame = ElementTree.SubElement(figure, "div", {"class": "table-frame", "tabindex": "0"})
        table = ElementTree.SubElement(frame, "table")
        row = ElementTree.SubElement(ElementTree.SubElement(table, "thead"), "tr")
        for cell in header:
            ElementTree.SubElement(row, "th", {"scope": "col"}).text = cell
        rows = ElementTree.SubElement(table, "tbody")
        for cells in body:
            row = ElementTree.SubElement(rows, "tr")
            for cell in cells:
                ElementTree.SubElement(row, "td").text = cell
        ElementTree.SubElement(figure, "figcaption")
        return figure

    def on_add(self, block: ElementTree.Element) -> ElementTree.Element:
        return block[-1]
