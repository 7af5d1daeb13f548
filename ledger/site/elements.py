"""Writes a page's numbers, outputs, drawings and tables as elements; in its text a mark stands for each.

Where devices differ, each variant stands in an element that lists its devices; all but the shown one wait in a
template, where a browser neither styles nor lays them out: a page costs the same with many devices as with one.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from ledger.site.chapter import BLOCK_START, FILLED, Block, Fence, Paragraph
from ledger.site.comments import ENGLISH
from ledger.site.fill import Filled, Number, Table
from ledger.site.quote import Quote, Source
from ledger.site.variants import Output
from ledger.site.words import printed_on, say
from ledger.text import as_said
from ledger.units import Plain

# A cell of one number, marked or typed, with a factor or unit behind it; it may be a link, or have a note
NUMBER = re.compile(
    r"\[?(?:\{\{(?P<mark>\d+)\}\}|[−+]?\d[\d.,]*)(?: ?(?:%|×|B|[kMGT]i?B))?(?:\]\([^)]*\))?(?: ?[✓?]| ?\[\^[\w-]+\])*"
)
NOTE = "/" * 9  # of the block below a table: blocks around it have fewer slashes


class Elements:
    """Of one page in one language."""

    def __init__(self, source: Source, language: str, stash: Callable[[str], str] = str) -> None:
        """`stash` keeps raw HTML out of Markdown's way and returns what stands for it."""
        self.source, self.language, self.stash, self.say = source, language, stash, partial(say, language)
        self.numbers: list[Number] = []  # each at the place that its mark names
        self.blocks: list[Element] = []  # likewise
        self.quoted: dict[str, Quote] = {}  # by what the element's data-quote says, as they are put in place
        self.device_place: Element | None = None

    # Marks

    def number(self, number: Number) -> str:
        self.numbers.append(number)
        return f"{{{{{len(self.numbers) - 1}}}}}"

    def block(self, element: Element) -> str:
        self.blocks.append(element)
        return str(len(self.blocks) - 1)

    def link(self, address: str) -> str:
        return address

    def text_table(self, table: Table) -> str:
        text = table.markdown(table.rule)
        if table.waiting:
            note = Element("p", {"class": "table-waiting"})
            note.text = table.waiting
            text += f"\n\n{NOTE} table | {self.block(note)}\n{NOTE}"
        return text

    def marked(self, filled: Filled) -> list[str]:
        """The page's lines with a mark for each number and block."""
        lines = ["" if number in filled.hidden else line for number, line in enumerate(filled.page.lines, start=1)]
        code = iter(reversed(filled.code))
        for piece in reversed(filled.pieces):
            first, text = piece.line - 1, filled.texts.get(piece.line, "")
            match piece:
                case Fence():
                    shown = next(code)
                    if self.language != ENGLISH:  # where nothing else includes what its comments say
                        lines[first + 1 : first + 1 + len(piece.lines)] = [line.text for line in shown]
                case Paragraph():
                    lines[first : first + piece.text.count("\n") + 1] = text.split("\n")
                case Block() if text:
                    start = BLOCK_START.match(lines[first])
                    assert start
                    last = piece.last if piece.kind in FILLED else piece.line
                    lines[first:last] = f"{start['slashes']} {piece.kind} | {text}".split("\n")
        return lines

    # What stands for them

    def element(self, mark: int) -> Element:
        """A number as `<data class="exact|measured" value=… data-quote=…>formatted</data>`."""
        number = self.numbers[mark]
        quote, found = number.quote, number.found
        key = quote.name + (f":{quote.style}" if quote.style else "")
        self.quoted[key] = quote
        marks = {"absent": found.value is None, "elsewhere": bool(number.elsewhere), "stale": found.stale}
        classes = ["measured" if quote.is_device_value else "exact", *(name for name, is_so in marks.items() if is_so)]
        element = Element("data", {"data-quote": key, "class": " ".join(classes)})
        element.set("value", "" if found.value is None else str(machine_value(found.value)))
        if found.value is None or number.elsewhere:
            element.set("title", self.say("absent" if found.record else "none"))
        element.text = AtomicString(number.text)  # an entity's & passes as it is
        return element

    def output(self, variants: list[tuple[list[str], Output]]) -> str:
        block = Element("div", {"class": "output"})
        for index, (devices, output) in enumerate(variants):
            element = _variant(block, devices, index, "output-variant")
            where = printed_on(self.source, self.language, devices, len(variants) == 1, output.is_stale)
            if where:
                SubElement(element, "p", {"class": "output-where"}).text = AtomicString(where)
            markup = f'<pre tabindex="0"><code>{html.escape(output.text, quote=False)}</code></pre>'
            SubElement(element, "div").text = self.stash(markup)
        if not variants:
            SubElement(block, "p", {"class": "output-where"}).text = AtomicString(self.say("none"))
        return self.block(block)

    def figure(self, alt: str, draw: Callable[[], list[tuple[list[str], str]]]) -> str:
        figure = Element("figure", {"class": "drawing"})
        described = f'<svg role="img" aria-label="{html.escape(alt)}"'
        for index, (devices, svg) in enumerate(draw()):
            frame = _variant(figure, devices, index, "drawing-frame")
            if not svg:
                SubElement(frame, "p", {"class": "output-where"}).text = AtomicString(self.say("absent"))
                continue
            frame.set("data-search-exclude", "")
            frame.text = self.stash(svg.replace("<svg", described, 1))
        SubElement(figure, "figcaption")
        return self.block(figure)

    def table(self, variants: list[tuple[list[str], Table]]) -> str:
        figure = Element("figure", {"class": "table"})
        for index, (devices, table) in enumerate(variants):
            frame = _variant(figure, devices, index, "table-frame")
            frame.set("tabindex", "0")
            header, *body = table.rows
            if body:
                self._rows(SubElement(frame, "table"), header, body)
            if table.waiting:
                SubElement(frame, "p", {"class": "table-waiting"}).text = table.waiting
        SubElement(figure, "figcaption")
        return self.block(figure)

    def _rows(self, table: Element, header: list[str], body: list[list[str]]) -> None:
        """Head and rows; a column of numbers stands at the right, as one that a page writes with `--:` does."""
        right = [
            {"style": "text-align: right;"} if all(map(self._is_number, column)) else {}
            for column in zip(*body, strict=True)
        ]
        row = SubElement(SubElement(table, "thead"), "tr")
        for cell, side in zip(header, right, strict=True):
            SubElement(row, "th" if cell else "td", {"scope": "col", **side} if cell else side).text = cell
        rows = SubElement(table, "tbody")
        for cells in body:
            row = SubElement(rows, "tr")
            for cell, side in zip(cells, right, strict=True):
                SubElement(row, "td", side).text = cell

    def _is_number(self, cell: str) -> bool:
        """Whether a cell has one number, with what may stand around it, or none."""
        found = NUMBER.fullmatch(as_said(cell).strip())
        return cell in ("", "—") or bool(
            found and not (found["mark"] and isinstance(self.numbers[int(found["mark"])].found.value, str))
        )

    def data(self, name: str, find: Callable[[], Plain]) -> str:
        """A value, whole, for a script of the page."""
        block = Element("div", {"hidden": "hidden"})
        block.text = self.stash(data_element(f"data-{name}", find()))
        return self.block(block)

    def device(self) -> str:
        """Where the line stands that names the device, on a page that does not begin with measurements."""
        self.device_place = Element("div", {"class": "device-place"})
        return self.block(self.device_place)

    def api(self, text: str) -> str:
        """Markdown, which the block that stands there holds."""
        return f"{self.block(Element('div', {'class': 'api'}))}\n\n{text}\n"


def _variant(parent: Element, devices: list[str], index: int, css: str) -> Element:
    if index:
        parent = SubElement(parent, "template", {"class": "variant", "data-search-exclude": ""})
    return SubElement(parent, "div", {"class": css, "data-devices": " ".join(devices)})


def machine_value(value: Plain) -> Plain:
    """What a number's attribute says: the digits that mean something. All of them stand in the record."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def data_element(name: str, data: Any) -> str:
    """Data for a script, as JSON in an attribute: neither the search index nor a theme that runs the scripts of a page
    which it loads (a script element of any type, Material's does) takes it for something else."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    quoted = text.replace("&", "&amp;").replace("'", "&#39;").replace("<", "&lt;")
    return f"<div hidden id='{html.escape(name)}' data-json='{quoted}'></div>"
