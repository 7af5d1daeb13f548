"""What a page quotes: parses a placeholder, finds its value in the records, prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ledger.book import Book, LedgerError, Problem
from ledger.record import LOCAL, Record, Records, local_folder
from ledger.snippet import Snippet
from ledger.text import as_said, texts_in
from ledger.units import FORMAT, FORMATS, Plain, format_value, is_device_value, unit_of_path

PLACEHOLDER = re.compile(r"(?P<snippet>[a-z_]\w*)\.(?P<path>[^{}:]*[^{}:\s])\s*(?::(?P<style>[^{}\s]+))?")
INDEX = re.compile(r"[0-9]{1,9}")


class QuoteError(Exception):
    """A placeholder or block that cannot be filled; `where` is the place in a snippet to mend, if it is there."""

    def __init__(self, message: str, where: Problem | None = None) -> None:
        super().__init__(f"{message} ({where})" if where else message)


class BrokenSnippet(QuoteError):
    """What a page quotes of a snippet that is itself to be mended."""


class Quote(NamedTuple):
    """A placeholder: `{{ snippet.path.to.value:style }}`."""

    snippet: str
    path: tuple[str, ...]
    style: str

    @classmethod
    def parse(cls, text: str) -> Quote:
        """The text between the braces, of which a record may have given parts. Raises QuoteError if it is malformed."""
        match = PLACEHOLDER.fullmatch(text.strip())
        if not match:
            raise QuoteError(
                f"malformed placeholder {{{{{as_said(text)}}}}}; "
                "write {{ snippet.value }} or {{ snippet.value:format }}"
            )
        style = match["style"] or ""
        if style and not FORMAT.match(style):
            raise QuoteError(f"unknown format {style!r}; there are {', '.join(FORMATS)} and fixed decimals such as .1f")
        return cls(match["snippet"], tuple(map(as_said, match["path"].split("."))), style)

    @property
    def name(self) -> str:
        return ".".join((self.snippet, *self.path))

    @property
    def is_device_value(self) -> bool:
        return is_device_value(list(self.path))

    def look_up(self, record: Record) -> Plain:
        """The value in a record. Raises KeyError if it is not there."""
        value: Plain = record.values[self.path[0]]
        for part in self.path[1:]:
            if isinstance(value, dict):
                value = value[part]
            elif isinstance(value, list) and INDEX.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            elif value is not None:  # a part of nothing is nothing
                raise KeyError(part)
        return value

    def format(self, value: Plain, language: str) -> str:
        try:
            return format_value(value, unit_of_path(list(self.path)), self.style, language)
        except ValueError as error:
            raise QuoteError(f"{self.name}: {error}") from None


@dataclass(frozen=True)
class Found:
    """A value and the record it stands in; value None and record None where nothing is recorded."""

    value: Plain
    record: Record | None
    stale: bool


@dataclass(frozen=True)
class Source:
    """A book's snippets and records, as its pages look them up."""

    book: Book
    records: Records
    default_device: str  # that the text speaks of
    first_device: str = ""  # that stands first whatever it is: in a preview, this machine

    @cached_property
    def devices(self) -> list[str]:
        """All devices with records, the one that a page shows first in front: GPUs before CPUs, and of each kind the
        default one, this machine, the others."""

        def place(device: str) -> tuple[bool, bool, bool, bool, str]:
            is_gpu = any(record.device["kind"] == "cuda" for record in self.records.by_device[device].values())
            first = device == self.first_device
            return not first, not is_gpu, device != self.default_device, device != LOCAL, device

        return sorted(self.records.by_device, key=place)

    @property
    def shown_device(self) -> str:
        """The device that a page shows before its reader chooses."""
        return self.devices[0] if self.devices else self.default_device

    @cached_property
    def touched(self) -> set[str]:
        """Names of the snippets that were looked up since this was last cleared."""
        return set()

    @cached_property
    def _snippets(self) -> dict[str, Snippet]:
        return {}

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {}

    def name(self, device: str) -> str:
        """What a device calls itself."""
        return str(next(iter(self.records.by_device[device].values())).device["name"])

    def place(self, device: str, snippet: str) -> str:
        """A record's file, and the device's own name."""
        folder = local_folder(self.book) if device == LOCAL else self.book.measurements / device
        return f"{folder.relative_to(self.book.root)}/{snippet}.json of {self.name(device)}"

    def snippet(self, name: str) -> Snippet:
        """The snippet of that name, read once. Raises QuoteError if there is none or it is broken."""
        self.touched.add(name)
        if name not in self._snippets:
            path = self.book.snippet_file(name)
            if not path.is_file():
                raise QuoteError(f"there is no snippet {name!r}; there are {', '.join(self.book.snippet_names())}")
            try:
                self._snippets[name] = Snippet.read(path)
            except LedgerError as error:
                raise BrokenSnippet(str(error)) from None
        return self._snippets[name]

    def file(self, name: str) -> str:
        """Where the snippet of that name lies, from the book's root. Raises QuoteError as `snippet` does."""
        return self.snippet(name).path.relative_to(self.book.root).as_posix()

    def is_stale(self, record: Record) -> bool:
        """Whether a record does not tell what its snippet gives, as it was when the book was opened."""
        snippet = self.snippet(record.snippet)
        if snippet.name not in self._hashes:
            self._hashes[snippet.name] = snippet.hash
        return record.hash != self._hashes[snippet.name]

    def find(self, quote: Quote, device: str | None = None) -> Found:
        """A value on a device (the shown one if None); an exact value from whichever record is freshest.

        Raises QuoteError if the snippet binds no such value, or no record that is fresh holds it.
        """
        problem = self.snippet(quote.snippet).why_not_quotable(quote.path[0])
        if problem:
            raise QuoteError(f"{quote.name} cannot be quoted", problem)
        first = device or self.shown_device
        record, stale = self.freshest(quote.snippet, [first] if quote.is_device_value else [first, *self.devices])
        if record is None:
            return Found(None, None, stale=False)
        try:
            return Found(quote.look_up(record), record, stale)
        except KeyError:
            if stale or (quote.is_device_value and self._is_anywhere(quote)):
                return Found(None, record, stale)  # another size, say, than this device was measured at
        hint = "a value is plain data: numbers, texts, lists and dictionaries of them"
        raise QuoteError(f"{quote.name} is not in the record of {record.device['name']}; {hint}")

    def _is_anywhere(self, quote: Quote) -> bool:
        """Whether some device's record holds the value."""
        return any(value is not None for value in self.on_devices(quote).values())

    def on_devices(self, quote: Quote) -> dict[str, Plain]:
        """The value in each device's record that holds it."""
        found: dict[str, Plain] = {}
        for device in self.devices:
            record = self.records.get(device, quote.snippet)
            with suppress(KeyError):
                if record:
                    found[device] = quote.look_up(record)
        return found

    def instead(self, quote: Quote) -> str | None:
        """The device whose value stands in a sentence where the chosen one lacks it: the default, else the first that
        has it; None if none has, or all have."""
        found = self.on_devices(quote) if quote.is_device_value else {}
        having = [device for device in (self.default_device, *self.devices) if found.get(device) is not None]
        return having[0] if having and {*having} != {*self.devices} else None

    def lacks(self, device: str, quote: Quote) -> bool:
        """Whether a device cannot have the value: its record says None, or is fresh and does not hold it. What has not
        been recorded yet is not lacking: it comes with the next record."""
        found = self.find(quote, device)
        if found.record is None or found.value is not None:
            return False
        return not found.stale or device in self.on_devices(quote)

    def filled_by(self, name: str) -> list[str]:
        """The devices, this machine among them, that have `snippet.value`. Raises QuoteError if it cannot be quoted."""
        quote = Quote.parse(name)
        for device in self.devices or [self.shown_device]:
            self.find(quote, device)
        return [device for device, value in self.on_devices(quote).items() if _is_something(value)]

    def outputs(self, snippet: str, section: str) -> dict[str, Found]:
        """What a section printed, by device; without devices that have no record of it or printed nothing.

        Raises QuoteError if there is no such section, or it printed nothing on any device.
        """
        if section not in self.snippet(snippet).sections:
            raise QuoteError(f"{self.file(snippet)} has no section {section!r}")
        found: dict[str, Found] = {}
        fresh = 0
        for device in self.devices:
            record, stale = self.freshest(snippet, [device])
            fresh += record is not None and not stale
            if record and section in record.outputs:
                found[device] = Found(record.outputs[section], record, stale)
        if fresh and not found:
            raise QuoteError(f"section {section!r} of {self.file(snippet)} prints nothing")
        return found

    def freshest(self, snippet: str, devices: list[str]) -> tuple[Record | None, bool]:
        """The first fresh record among the devices, else the first stale one; and whether it is stale."""
        found = [record for device in devices if (record := self.records.get(device, snippet))]
        fresh = [record for record in found if not self.is_stale(record)]
        return (fresh[0], False) if fresh else (found[0] if found else None, bool(found))


def _is_something(value: Plain) -> bool:
    """Whether it is not None, nor made of None alone."""
    if isinstance(value, dict | list):
        return any(map(_is_something, value.values() if isinstance(value, dict) else value))
    return value is not None


class Values(Mapping[str, Any]):
    """What a figure or table is made from: `values["snippet.path"]`, on one device; a text in it is inert."""

    def __init__(self, source: Source, device: str | None = None) -> None:
        self._source, self._device = source, device
        self._measured: list[Any] = []  # device values that were looked up

    def __getitem__(self, name: str) -> Any:
        quote = Quote.parse(name)
        value = self._source.find(quote, self._device).value
        if quote.is_device_value:
            self._measured.append(value)
        return texts_in(value)

    @property
    def whose(self) -> str:
        """Whose records they stand in."""
        return f"with the values of {self._device or self._source.shown_device or 'no device'}"

    @property
    def are_absent(self) -> bool:
        """Whether the device has none of the measurements that were looked up."""
        return bool(self._measured) and all(value is None for value in self._measured)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("values are looked up by name")

    def __len__(self) -> int:
        raise TypeError("values are looked up by name")


def open_source(book: Book, default_device: str, local: bool, first_device: str = "") -> Source:
    """A book's records and snippets as they are now; read again only after one of their files has changed.

    Raises LedgerError naming every invalid record.
    """
    folders = [*sorted(book.measurements.glob("*/")), *([local_folder(book)] if local else [])]
    records = [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("[!.]*"))]
    listed = []
    for path in (*book.code(), *records):
        with suppress(FileNotFoundError):  # taken away meanwhile
            listed.append((str(path), path.stat().st_mtime_ns, path.stat().st_size))
    stamp = hash(tuple(listed))
    return _open_source(book, default_device, local, first_device, stamp)


@lru_cache(maxsize=8)
def _open_source(book: Book, default_device: str, local: bool, first_device: str, stamp: int) -> Source:
    return Source(book, Records.load(book, local), default_device, first_device)
