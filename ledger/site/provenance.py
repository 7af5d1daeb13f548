"""Where a page's numbers come from: the line below its title, the list at its end, and what its script needs."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from ledger.record import LOCAL, Record
from ledger.site.api import EXAMPLE
from ledger.site.chapter import Block, Fence
from ledger.site.elements import data_element, machine_value
from ledger.site.fill import Filled
from ledger.site.quote import Quote, Source
from ledger.site.words import WORDS, label, perhaps_stale, say
from ledger.units import DASH, format_value


class Provenance:
    """Of a page's numbers, by what their elements' data-quote says, and of the outputs that it shows."""

    def __init__(self, source: Source, language: str, filled: Filled, quoted: dict[str, Quote]) -> None:
        self.source, self.language, self.filled, self.quoted = source, language, filled, quoted
        self.say, self.label = partial(say, language), partial(label, source, language)
        self.snippets = list(dict.fromkeys([*(quote.snippet for quote in quoted.values()), *filled.printed]))
        self.records = {
            snippet: {device: found for device in source.devices if (found := source.freshest(snippet, [device])[0])}
            for snippet in self.snippets
        }

    def varies(self) -> bool:
        """Whether another device would show another number."""
        return any(len(self._texts(quote)) > 1 for quote in self.quoted.values() if quote.is_device_value)

    def _texts(self, quote: Quote) -> set[str]:
        """What devices say of a value, of those that have a record of it."""
        found = [self.source.find(quote, device) for device in self.source.devices]
        return {quote.format(each.value, self.language) for each in found if each.record}

    def device_line(self) -> Element:
        """The line below a title: whose numbers these are, if others complete them, and a choice where there is one."""
        line = Element("div", {"class": "device-line", "data-search-exclude": ""})
        choice = SubElement(line, "label")
        SubElement(choice, "span").text = self.say("device")
        select = SubElement(choice, "select", {"id": "device-choice", "autocomplete": "off"})
        for device in self.source.devices:
            SubElement(select, "option", {"value": device}).text = AtomicString(self.label(device))
        if self.source.default_device in self.source.devices:
            default = self.label(self.source.default_device)
            note = SubElement(line, "span", {"class": "device-note", "data-default": self.source.default_device})
            note.text = AtomicString(self.say("default", device=default))
            if self.source.shown_device == self.source.default_device:
                note.set("hidden", "hidden")
        if any(map(self.source.instead, self.quoted.values())):
            elsewhere = SubElement(line, "span", {"class": "elsewhere-note"})
            elsewhere.text = self.say("elsewhere")
            if not any(number.elsewhere for number in self.filled.numbers):
                elsewhere.set("hidden", "hidden")
        return line

    def details(self, stash: Callable[[str], str], varies: bool) -> Element:
        """Every snippet of the page with its records, and the line that made each number; `stash` keeps raw HTML.

        Where no number varies between devices, one record of each snippet says it for all.
        """
        details = Element("details", {"class": "provenance", "id": "provenance", "data-search-exclude": ""})
        SubElement(details, "summary").text = self.say("provenance")
        frame = SubElement(details, "div", {"class": "table-frame", "tabindex": "0"})
        table = SubElement(frame, "table")
        row = SubElement(SubElement(table, "thead"), "tr")
        for column in WORDS[self.language]["columns"]:
            SubElement(row, "th", {"scope": "col"}).text = column
        body = SubElement(table, "tbody")
        for snippet, records in self.records.items():
            for device, record in records.items():
                is_extra = device != self.source.shown_device and self.source.shown_device in records
                if is_extra and not varies:
                    continue
                row = SubElement(body, "tr", {"data-device": device} if is_extra else {})
                source = SubElement(SubElement(row, "td"), "a", {"href": f"snippets/{snippet}.py"})
                source.text = AtomicString(f"{snippet}.py")
                label = self.say("exact") if record.is_counted_elsewhere else self.label(device)
                self._record_link(SubElement(row, "td"), device, snippet, label)
                for fact in self._facts(record):
                    SubElement(row, "td").text = AtomicString(fact)
        SubElement(details, "div").text = stash(self._lines())
        repeat = SubElement(details, "p")
        repeat.text = self.say("repeat")
        SubElement(repeat, "code").text = AtomicString(f"python -m ledger record --force {' '.join(self.snippets)}")
        return details

    def _record_link(self, cell: Element, device: str, snippet: str, label: str) -> None:
        if device == LOCAL:
            cell.text = AtomicString(label)
        else:
            link = SubElement(cell, "a", {"href": f"measurements/{device}/{snippet}.json"})
            link.text = AtomicString(label)

    def _facts(self, record: Record) -> list[str]:
        """When, with what versions and with what spread a record was measured."""
        software = [f"torch {record.software['torch']}", f"Python {record.software['python']}"]
        for key, name in (("cuda", "CUDA"), ("cudnn", "cuDNN"), ("triton", "Triton")):
            if version := record.software.get(key):
                software.append(f"{name} {version}")
        software += [f"{name}={value}" for name, value in record.software.get("environment", {}).items()]
        spread = DASH
        if widest := record.largest_spread:
            share = format_value(widest[0], "share", language=self.language)
            spread = self.say("trials", spread=share, trials=widest[1])
        date = perhaps_stale(self.language, record.measured_at[:10], self.source.is_stale(record))
        return [date, self.say("comma").join(software), spread]

    def _lines(self) -> str:
        """Each line that made values, with these, as raw HTML: it links to lines of code, which are raw HTML too, so
        that a generator which checks links cannot find their anchors. The card at a number looks its line up here."""
        made: dict[str, dict[str, None]] = {}
        for quote in self.quoted.values():
            place, anchor = self._place(quote)
            where = f'<a href="{anchor}">{html.escape(place)}</a>' if anchor else f"<span>{html.escape(place)}</span>"
            made.setdefault(where, {})[f"<code>{quote.snippet}.{quote.path[0]}</code>"] = None
        items = (f"<li>{where} {' '.join(values)}</li>" for where, values in made.items())
        return f'<ul class="provenance-values">{"".join(items)}</ul>'

    def _place(self, quote: Quote) -> tuple[str, str]:
        """The line that binds a value, and its anchor on this page if the page shows it."""
        file, line = f"snippets/{quote.snippet}.py", self.source.snippet(quote.snippet).bindings[quote.path[0]].line
        return self.say("comma").join((file, self.say("line", line=line))), self._anchors.get((file, line), "")

    @cached_property
    def _anchors(self) -> dict[tuple[str, int], str]:
        """Where the page first shows a line of a file."""
        anchors: dict[tuple[str, int], str] = {}
        number, code = 0, iter(self.filled.code)  # highlighted blocks are numbered from the top of the page
        for piece in self.filled.pieces:
            if isinstance(piece, Fence):
                for shown, line in enumerate(next(code), start=1):
                    if line.file:
                        anchors.setdefault((line.file, line.number), f"#__span-{number}-{shown}")
                number += 1
            elif isinstance(piece, Block) and EXAMPLE in self.filled.texts[piece.line]:
                number += 1
        return anchors

    def data(self) -> str:
        """What the page's script needs to show another device: every device value's text on every device."""
        varying = {key: quote for key, quote in self.quoted.items() if quote.is_device_value}
        quotes: dict[str, Any] = {}
        for key, quote in varying.items():
            found = {device: self.source.find(quote, device) for device in self.source.devices}
            on = {
                device: [quote.format(f.value, self.language), machine_value(f.value), *([True] if f.stale else [])]
                for device, f in found.items()
                if f.record
            }
            quotes[key] = {"on": on}
            if instead := self.source.instead(quote):
                quotes[key]["instead"] = instead
        measured = {quote.snippet for quote in varying.values()}
        records = {
            snippet: {
                device: " · ".join([self.label(device), *self._facts(record)]) for device, record in found.items()
            }
            for snippet, found in self.records.items()
            if snippet in measured
        }
        words = {key: self.say(key) for key in ("absent", "exact", "stale")}
        return data_element("ledger-data", {"quotes": quotes, "records": records, "words": words})
