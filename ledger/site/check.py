"""Reads every source of the book and reports what is wrong, with file and line, before a page is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import yaml

from ledger.book import Book, LedgerError, Problem
from ledger.site import files
from ledger.site.chapter import Chapter, Waiting
from ledger.site.comments import Comments
from ledger.site.elements import Elements
from ledger.site.fill import Filled, fill
from ledger.site.lab_source import in_language, sources
from ledger.site.llms import CONFIGS, navigation
from ledger.site.plain import front_matter
from ledger.site.quote import QuoteError, Source, open_source
from ledger.snippet import Snippet


def check(book: Book, default_device: str = "", local: bool = True) -> list[Problem]:
    """Every problem of the book's snippets, records and chapters; the default device is the one of mkdocs.yml unless
    another is given."""
    problems: list[Problem] = []
    for snippet in book.snippet_files().values():
        try:
            Snippet.read(snippet)
        except LedgerError as error:
            problems += (problem for problem in error.problems if problem not in problems)
    for path in sorted(path for package in book.packages for path in package.rglob("*.py")):
        problems += (problem for problem in Snippet.parse(path).all_problems if problem not in problems)
    try:
        source = open_source(book, default_device or configured_device(book), local)
    except LedgerError as error:
        return problems + error.problems
    pages = []
    comments = {path.name: Comments(book, path.name) for path in sorted(book.docs.glob("??"))}
    for path in book.chapters():
        try:
            page = Chapter.read(path)
        except LedgerError as error:
            problems += error.problems
            continue
        problems += _listed(book, path)
        problems += _devices(page, source)
        language = path.relative_to(book.docs).parts[0]
        pages.append(fill(page, source, Elements(source, language), whole=True, comments=comments[language]))
    unseen = {
        (filled.page.path, heading.id): part
        for filled in pages
        for part in _waiting(filled)
        for heading in filled.page.headings
        if part.holds(heading.line)
    }
    for filled in pages:
        found = [*filled.problems, *_dashes(filled, source), *_links(filled, unseen), *_files(filled, book)]
        problems += [problem for problem in sorted(found, key=lambda each: each.line) if problem not in problems]
    for each in comments.values():
        problems += (problem for lab in sources(book) for problem in in_language(lab, each)[1])
        problems += (problem for problem in each.unshown() if problem not in problems)
    return problems


def _listed(book: Book, path: Path) -> Iterator[Problem]:
    """What the list of pages says of each, which stands above its first line, and whether it is in that list."""
    language, *_ = path.relative_to(book.docs).parts
    nav = navigation(book, language) if language in CONFIGS else []
    if not nav:
        return
    try:
        said = front_matter(path)
    except yaml.YAMLError as error:
        yield Problem(path, 1, f"what stands between --- and --- is not YAML: {getattr(error, 'problem', error)}")
        return
    missing = [name for name in ("title", "description") if not said.get(name)]
    if missing:
        yield Problem(path, 1, f"no {' and no '.join(missing)}; write it above the first line, between --- and ---")
    if path.name not in (page for _, pages in nav for page in pages):
        yield Problem(path, 1, f"not in nav of {CONFIGS[language]}")


def _devices(page: Chapter, source: Source) -> Iterator[Problem]:
    """Parts for one device that nobody has recorded."""
    for block in page.blocks:
        if block.kind == "only" and block.argument not in source.devices:
            known = ", ".join(source.devices)
            yield Problem(page.path, block.line, f"there is no device {block.argument!r}; there are {known}")


def configured_device(book: Book) -> str:
    """The default_device of mkdocs.yml, "" if there is none."""
    config = book.root / "mkdocs.yml"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    found = re.search(r"^ *default_device: *(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _waiting(filled: Filled) -> Iterator[Waiting]:
    """The parts of a page that no device has filled yet."""
    return (part for part in filled.page.waiting if {*range(part.first, part.last + 1)} <= filled.hidden)


def _links(filled: Filled, unseen: dict[tuple[Path, str | None], Waiting]) -> Iterator[Problem]:
    """Links from what a page shows to headings that are not shown."""
    path = filled.page.path
    for line, address in filled.page.links:
        page, _, place = address.partition("#")
        part = unseen.get((path.parent / page if page else path, place))
        if part and line not in filled.hidden:
            yield Problem(path, line, f"{address} is not shown before a device has {part.value}")


def _files(filled: Filled, book: Book) -> Iterator[Problem]:
    """Links to files of the book that are not there."""
    for line, address in filled.page.links:
        try:
            files.address(book, address)
        except QuoteError as error:
            yield Problem(filled.page.path, line, str(error))


def _dashes(filled: Filled, source: Source) -> Iterator[Problem]:
    """Dashes outside tables: values that the default device lacks; in a part that waits, the first that filled it."""
    for number in (number for number in filled.numbers if not number.in_table):
        devices = [source.default_device]
        with suppress(QuoteError):  # reported by itself
            for part in filled.page.waiting:
                if part.holds(number.line):
                    having = source.filled_by(part.value)
                    devices = devices if devices[0] in having else having[:1]
            if any(source.lacks(device, number.quote) for device in devices if device):
                name = number.quote.name
                message = f"{name} would be a dash in a sentence: {source.name(devices[0])} has no such value"
                yield Problem(filled.page.path, number.line, message)
