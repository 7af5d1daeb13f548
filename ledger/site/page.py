"""What stands on one page in one language: its numbers on every device, and where each of them comes from."""

from __future__ import annotations

import html
import importlib.util
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from ledger.book import Problem
from ledger.record import LOCAL, Record
from ledger.site.chapter import INCLUDE, Chapter, targets
from ledger.site.quote import Found, Quote, QuoteError, Source, Values
from ledger.site.tables import Table
from ledger.snippet import Snippet
from ledger.text import as_html, as_said, hide, is_hidden
from ledger.units import DASH, format_value

T = TypeVar("T")

WORDS = {
    "en": {
        "printed": "Printed on {devices}",
        "stale": "the code has changed since",
        "aside": "{text} ({aside})",
        "comma": ", ",
        "and": ", ",
        "none": "not measured yet",
        "absent": "not measured on this device",
        "elsewhere": "Numbers marked ‡ come from another device.",
        "waiting": "No device here has: {names}.",
        "separator": "; ",
        "device": "Numbers from",
        "default": "The text speaks of {device}.",
        "provenance": "Where these numbers come from",
        "repeat": "Repeat them with ",
        "local": "this machine, {name}",
        "columns": ["Snippet", "Device", "Measured", "Software", "Widest spread"],
        "line": "line {line}",
        "trials": "{spread} of {trials} trials",
        "exact": "the same on every device",
    },
    "zh": {
        "printed": "{devices} 上的输出",
        "stale": "此后代码有改动",
        "aside": "{text}（{aside}）",
        "comma": "，",
        "and": "、",
        "none": "尚未实测",
        "absent": "未在此设备上实测",
        "elsewhere": "带 ‡ 的数字来自另一台设备。",
        "waiting": "这里的设备上都没有：{names}。",
        "separator": "；",
        "device": "数字来自",
        "default": "正文以 {device} 为准。",
        "provenance": "这些数字从何而来",
        "repeat": "重新测量：",
        "local": "本机，{name}",
        "columns": ["代码", "设备", "测量时间", "软件版本", "最大离散程度"],
        "line": "第 {line} 行",
        "trials": "{spread}（{trials} 次）",
        "exact": "在所有设备上相同",
    },
}


class Page:
    """Looks up what a page quotes and remembers it, so that the page can say at its end where it is from."""

    def __init__(self, source: Source, language: str, stash: Callable[[str], str] = str) -> None:
        """`stash` keeps raw HTML out of Markdown's way and returns what stands for it."""
        self.source, self.language, self.stash = source, language, stash
        self.words: dict[str, Any] = WORDS[language]
        self.begin("")

    def begin(self, text: str) -> None:
        """Forgets the page before; `text` is the new one's Markdown."""
        self.chapter = Chapter.parse(text, self.source.book.docs)
        self.quoted: dict[str, Quote] = {}  # by what the element's data-quote says
        self.printed: list[str] = []  # snippets whose output is shown
        self.anchors: dict[tuple[str, int], str] | None = None  # by a snippet's name and line

    # What stands in the text

    def number(self, text: str) -> Element:
        """A placeholder's text as `<data class="exact|measured" value=… data-quote=…>formatted</data>`."""
        quote = Quote.parse(text)
        key = quote.name + (f":{quote.style}" if quote.style else "")
        self.quoted[key] = quote
        element = Element("data", {"data-quote": key})
        self._write(element, quote, self.source.find(quote))
        return element

    def complete(self, element: Element) -> str:
        """Makes a sentence's number that the shown device lacks another's, marked; returns that one's name, else ""."""
        quote = self.quoted[element.get("data-quote", "")]
        device = self.source.instead(quote) if "absent" in element.get("class", "").split() else None
        if not device:
            return ""
        self._write(element, quote, self.source.find(quote, device), is_elsewhere=True)
        return self.source.name(device)

    def _write(self, element: Element, quote: Quote, found: Found, is_elsewhere: bool = False) -> None:
        classes = ["measured" if quote.is_device_value else "exact"]
        if found.value is None:
            classes.append("absent")
            element.set("title", self.words["none" if found.record is None else "absent"])
        if is_elsewhere:
            classes.append("elsewhere")
            element.set("title", self.words["absent"])
        if found.stale:
            classes.append("stale")
        element.set("class", " ".join(classes))
        element.set("value", "" if found.value is None else str(found.value))
        text = quote.format(found.value, self.language)
        element.text = AtomicString(
            hide(text) if isinstance(found.value, str) else text
        )  # an entity's & passes as it is

    def check_everywhere(self, text: str) -> None:
        """Raises QuoteError if a record on any device holds what a placeholder of this page cannot print."""
        quote = Quote.parse(text)
        for device, value in self.source.on_devices(quote).items():
            try:
                quote.format(value, self.language)
            except QuoteError as error:
                raise QuoteError(f"{error}, as the record {self.source.place(device, quote.snippet)} has it") from None

    def outputs(self, argument: str) -> list[tuple[list[str], str, str]]:
        """(devices, text, where it was printed) for what a section printed: `snippet:section`."""
        snippet, _, section = (part.strip() for part in argument.partition(":"))
        by_device = self.source.outputs(snippet, section)
        self.printed.append(snippet)
        grouped = _group({device: (str(found.value), found.stale) for device, found in by_device.items()})
        return [(devices, text, self._where(devices, stale)) for devices, (text, stale) in grouped]

    def _where(self, devices: list[str], stale: bool) -> str:
        names = self.words["and"].join(dict.fromkeys(self.source.name(device) for device in devices))
        return self._perhaps_stale(str(self.words["printed"]).format(devices=names), stale)

    def _perhaps_stale(self, text: str, stale: bool) -> str:
        return str(self.words["aside"]).format(text=text, aside=self.words["stale"]) if stale else text

    def drawings(self, name: str, labels: dict[str, str]) -> list[tuple[list[str], str]]:
        """(devices, SVG) for each way a figure looks; no SVG for devices that have none of its measurements.

        Raises QuoteError if there is no such figure or it is no SVG.
        """

        def draw(device: str | None) -> str:
            values = Values(self.source, device)
            svg: Any = call_figure(self.source, name, {"language": self.language, **labels}, values)
            if device and values.are_absent:
                return ""
            if not isinstance(svg, str) or not svg.startswith("<svg"):
                raise QuoteError(f"figures.{name} returned no SVG")
            return as_html(svg)

        return self._on_each_device(draw)

    def tables(self, name: str, options: dict[str, Any]) -> list[tuple[list[str], list[list[str]]]]:
        """(devices, rows of Markdown cells, the header first) for each way a table looks; may raise QuoteError."""
        data = Table.parse(name, options)  # None: the function of that name makes it
        labels = {"language": self.language, **options.get("labels", {})}

        def make(device: str | None) -> list[list[str]]:
            values = Values(self.source, device)
            rows = data.filled(values) if data else call_figure(self.source, name, labels, values)
            if not isinstance(rows, list) or not rows or len({len(row) for row in rows}) != 1:
                raise QuoteError(f"figures.{name} returned no rows of one length")
            table = [[str(cell) for cell in row] for row in rows]
            for where in (where for row in table for cell in row for where in targets(cell)):
                if is_hidden(where):
                    raise QuoteError(f"{name or 'a cell'} links to {as_said(where)} itself; ledger.text.link() may")
            return table

        return self._on_each_device(make)

    def shown_tables(self, name: str, options: dict[str, Any]) -> list[tuple[list[str], list[list[str]], str]]:
        """As `tables`, without the rows and columns that no device fills; with a line that names these, "" if none."""
        variants = self.tables(name, options)
        shown = []
        for devices, rows in variants:
            alike = [other for _, other in variants if (len(other), len(other[0])) == (len(rows), len(rows[0]))]
            empty = [
                [self._is_empty([table[r][c] for table in alike]) for c in range(len(rows[0]))]
                for r in range(len(rows))
            ]
            hidden = unfilled(empty[1:])
            left = [
                [cell for c, cell in enumerate(row) if c not in hidden[1]]
                for r, row in enumerate(rows, start=-1)
                if r not in hidden[0]
            ]
            shown.append((devices, left, self.waiting_line(rows, hidden)))
        return shown

    def _is_empty(self, cells: list[str]) -> bool | None:
        """Whether a cell, as it looks on each device, is filled on none; None if nothing stands in it."""
        chapter = Chapter(self.source.book.docs, paragraphs=[(0, "\n\n".join(cells))])
        quotes = [Quote.parse(placeholder.text) for placeholder in chapter.placeholders]
        if quotes:
            return not any(map(self.is_on_a_device, quotes))
        return None if not any(cells) else all(cell in (DASH, "") for cell in cells)

    def is_on_a_device(self, quote: Quote) -> bool:
        return any(self.source.find(quote, device).value is not None for device in self.source.devices)

    def waiting_line(self, rows: list[list[str]], hidden: tuple[set[int], set[int]]) -> str:
        """What says that rows and columns are not shown: the header stands first, a row's name in its first cell."""
        names = [rows[r + 1][0] for r in sorted(hidden[0])]
        if len(hidden[0]) < len(rows) - 1:
            names = [rows[0][c] for c in sorted(hidden[1])] + names
        return (
            str(self.words["waiting"]).format(names=self.words["separator"].join(dict.fromkeys(names))) if names else ""
        )

    def data(self, name: str) -> str:
        """A value, whole, for a script of the page. Raises QuoteError if it is no exact value."""
        quote = Quote.parse(name)
        if quote.is_device_value:
            raise QuoteError(f"{name} depends on the device; only exact values are given to scripts")
        return data_element(f"data-{name}", self.source.find(quote).value)

    def _on_each_device(self, make: Callable[[str | None], T]) -> list[tuple[list[str], T]]:
        devices = self.source.devices
        return _group({device: make(device) for device in devices}) if devices else [([], make(None))]

    # Where it comes from

    def label(self, device: str) -> str:
        """A device's name for readers."""
        name = self.source.name(device)
        return str(self.words["local"]).format(name=name) if device == LOCAL else name

    def device_line(self, is_completed: bool = False) -> Element:
        """The line below a title: whose numbers these are, if others complete them, and a choice where there is one."""
        line = Element("div", {"class": "device-line", "data-search-exclude": ""})
        label = SubElement(line, "label")
        SubElement(label, "span").text = self.words["device"]
        select = SubElement(label, "select", {"id": "device-choice", "autocomplete": "off"})
        for device in self.source.devices:
            SubElement(select, "option", {"value": device}).text = AtomicString(self.label(device))
        if self.source.default_device in self.source.devices:
            default = self.label(self.source.default_device)
            note = SubElement(line, "span", {"class": "device-note", "data-default": self.source.default_device})
            note.text = AtomicString(self.words["default"].format(device=default))
            if self.source.shown_device == self.source.default_device:
                note.set("hidden", "hidden")
        if any(map(self.source.instead, self.quoted.values())):
            elsewhere = SubElement(line, "span", {"class": "elsewhere-note"})
            elsewhere.text = self.words["elsewhere"]
            if not is_completed:
                elsewhere.set("hidden", "hidden")
        return line

    def provenance(self) -> Element:
        """Every snippet of the page with its records, and the line that made each number."""
        details = Element("details", {"class": "provenance", "id": "provenance", "data-search-exclude": ""})
        SubElement(details, "summary").text = self.words["provenance"]
        snippets = list(dict.fromkeys([*(quote.snippet for quote in self.quoted.values()), *self.printed]))
        frame = SubElement(details, "div", {"class": "table-frame", "tabindex": "0"})
        table = SubElement(frame, "table")
        row = SubElement(SubElement(table, "thead"), "tr")
        for column in self.words["columns"]:
            SubElement(row, "th", {"scope": "col"}).text = column
        body = SubElement(table, "tbody")
        for snippet in snippets:
            recorded = {device for device in self.source.devices if self.source.records.get(device, snippet)}
            for device in self.source.devices:
                if found := self.source.freshest(snippet, [device])[0]:
                    is_extra = device != self.source.shown_device and self.source.shown_device in recorded
                    row = SubElement(body, "tr", {"data-device": device} if is_extra else {})
                    source = SubElement(SubElement(row, "td"), "a", {"href": self.source.file(snippet)})
                    source.text = AtomicString(f"{snippet}.py")
                    self._record_link(SubElement(row, "td"), device, snippet)
                    for fact in self._facts(found, device):
                        SubElement(row, "td").text = AtomicString(fact)
        SubElement(details, "div").text = self.stash(self._lines())
        repeat = SubElement(details, "p")
        repeat.text = self.words["repeat"]
        SubElement(repeat, "code").text = AtomicString(f"python -m ledger record --force {' '.join(snippets)}")
        return details

    def _lines(self) -> str:
        """Each value with the line that made it, as raw HTML: it links to lines of code, which are raw HTML too, so
        that a generator which checks links cannot find their anchors."""
        items = []
        for key, quote in self.quoted.items():
            place, anchor = self._place(quote)
            where = f'<a href="{anchor}">{html.escape(place)}</a>' if anchor else f"<span>{html.escape(place)}</span>"
            items.append(f"<li><code>{html.escape(key)}</code> {where}</li>")
        return f'<ul class="provenance-values">{"".join(items)}</ul>'

    def _record_link(self, cell: Element, device: str, snippet: str) -> None:
        if device == LOCAL:
            cell.text = AtomicString(self.label(device))
        else:
            SubElement(cell, "a", {"href": f"measurements/{device}/{snippet}.json"}).text = AtomicString(
                self.label(device)
            )

    def _facts(self, record: Record, device: str) -> list[str]:
        """When, with what versions and with what spread a record was measured."""
        software = [f"torch {record.software['torch']}", f"Python {record.software['python']}"]
        if record.software.get("cuda"):
            software.append(f"CUDA {record.software['cuda']}")
        software += [f"{name}={value}" for name, value in record.software.get("environment", {}).items()]
        widest = record.largest_spread()
        spread = "—"
        if widest:
            spread = self.words["trials"].format(
                spread=format_value(widest[0], "share", language=self.language), trials=widest[1]
            )
        stale = self.source.is_stale(record)
        return [self._perhaps_stale(record.measured_at[:10], stale), self.words["comma"].join(software), spread]

    def _place(self, quote: Quote) -> tuple[str, str]:
        """The line that binds a value, and its anchor on this page if the page shows it."""
        file = self.source.file(quote.snippet)
        line = self.source.snippet(quote.snippet).bindings[quote.path[0]].line
        place = self.words["comma"].join((file, self.words["line"].format(line=line)))
        if self.anchors is None:
            self.anchors = self._find_anchors()
        return place, self.anchors.get((file, line), "")

    def _find_anchors(self) -> dict[tuple[str, int], str]:
        """Where the page first shows a line of a file."""
        anchors: dict[tuple[str, int], str] = {}
        for number, fence in enumerate(self.chapter.fences):
            shown = 0
            for text in fence.lines:
                include = INCLUDE.match(text)
                if not include:
                    shown += 1
                    continue
                for line in self._included(include["path"], include["section"]):
                    shown += 1
                    anchors.setdefault((include["path"], line), f"#__span-{number}-{shown}")
        return anchors

    def _included(self, path: str, section: str | None) -> list[int]:
        """The lines of a file that a block of code shows: a section's, or all, without markers."""
        snippet = Snippet.parse(self.source.book.root / path)
        lines = snippet.source.splitlines()
        first, last = 1, len(lines)
        if section:
            first, last = snippet.sections[section].first_line, snippet.sections[section].last_line
        return [number for number in range(first, last + 1) if "8<" not in lines[number - 1]]

    def page_data(self) -> str:
        """What the page's script needs to show another device: every device value's text on every device."""
        quotes: dict[str, Any] = {}
        for key, quote in self.quoted.items():
            place, anchor = self._place(quote)
            entry: dict[str, Any] = {"at": [place, anchor], "snippet": quote.snippet}
            if quote.is_device_value:
                found = {device: self.source.find(quote, device) for device in self.source.devices}
                entry["on"] = {
                    device: [quote.format(f.value, self.language), f.value, f.stale]
                    for device, f in found.items()
                    if f.record
                }
                if instead := self.source.instead(quote):
                    entry["instead"] = instead
            quotes[key] = entry
        records = {
            snippet: {
                device: " · ".join([self.label(device), *self._facts(record, device)])
                for device in self.source.devices
                if (record := self.source.freshest(snippet, [device])[0])
            }
            for snippet in {quote.snippet for quote in self.quoted.values() if quote.is_device_value}
        }
        words = {key: self.words[key] for key in ("absent", "exact", "stale")}
        data = {"quotes": quotes, "records": records, "words": words}
        return data_element("ledger-data", data)


def data_element(name: str, data: Any) -> str:
    """Data for a script, as JSON in an attribute: neither the search index nor a theme that runs the scripts of a page
    which it loads (a script element of any type, Material's does) takes it for something else."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    quoted = text.replace("&", "&amp;").replace("'", "&#39;").replace("<", "&lt;")
    return f"<div hidden id='{html.escape(name)}' data-json='{quoted}'></div>"


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


def _group(by_device: dict[str, T]) -> list[tuple[list[str], T]]:
    """Devices with equal content together, in order of their first."""
    groups: list[tuple[list[str], T]] = []
    for device, content in by_device.items():
        for devices, seen in groups:
            if seen == content:
                devices.append(device)
                break
        else:
            groups.append(([device], content))
    return groups


class Labels(dict[str, str]):
    """A page's words for a figure; a missing one is an error that names it. A text of a record may be their key."""

    def __getitem__(self, key: str) -> str:
        return super().__getitem__(as_said(key))

    def __missing__(self, key: str) -> str:
        raise QuoteError(f"the block's labels lack {key!r}")


def call_figure(source: Source, name: str, labels: dict[str, str], values: Values) -> Any:
    """Calls figures/<module>.py's function for `module.function`, with the values of a device."""
    module_name, _, function_name = name.partition(".")
    path = source.book.root / "figures" / f"{module_name}.py"
    if not path.is_file():
        raise QuoteError(f"there is no figures/{module_name}.py")
    try:
        function = getattr(_import_figures(path, path.stat().st_mtime_ns), function_name, None)
    except SyntaxError as error:
        where = Problem(Path(error.filename or path), error.lineno or 0, f"not Python: {error.msg}")
        raise QuoteError(f"figures.{name} cannot be drawn", where) from None
    if not callable(function):
        raise QuoteError(f"figures/{module_name}.py has no function {function_name!r}")
    try:
        return function(values, Labels(labels))
    except QuoteError:
        raise
    except Exception as error:  # a mistake of its own, or of a record that holds what it does not expect
        raise QuoteError(f"{place_of(error)}{type(error).__name__}: {error}, {values.whose}") from None


def place_of(error: Exception) -> str:
    """The file and line that raised it."""
    tail = error.__traceback__
    while tail and tail.tb_next:
        tail = tail.tb_next
    return f"{Path(tail.tb_frame.f_code.co_filename).name}:{tail.tb_lineno}: " if tail else ""


@cache
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
