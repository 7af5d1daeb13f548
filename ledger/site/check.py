"""Reads every source of the book and reports what is wrong, with file and line, before a page is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger.book import Book, LedgerError, Problem
from ledger.site import files
from ledger.site.chapter import INCLUDE, Chapter, Waiting
from ledger.site.page import Page, place_of
from ledger.site.quote import BrokenSnippet, Quote, QuoteError, Source, open_source
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
    for path in sorted(book.library.rglob("*.py")):
        problems += (problem for problem in Snippet.parse(path).all_problems if problem not in problems)
    try:
        source = open_source(book, default_device or configured_device(book), local)
    except LedgerError as error:
        return problems + error.problems
    chapters = []
    for path in book.chapters():
        try:
            chapters.append(Chapter.read(path))
        except LedgerError as error:
            problems += error.problems
    hidden = {chapter.path: list(_hidden(chapter, source)) for chapter in chapters}
    unseen = {
        (chapter.path, heading.id): part
        for chapter in chapters
        for part in hidden[chapter.path]
        for heading in chapter.headings
        if part.holds(heading.line)
    }
    for chapter in chapters:
        problems += chapter.all_problems()
        problems += _check_chapter(chapter, Page(source, chapter.path.relative_to(book.docs).parts[0]))
        problems += _check_links(chapter, hidden[chapter.path], unseen)
        for line, link in chapter.links:
            problems += _attempt(chapter.path, line, lambda link=link: files.address(book, link))
    return problems


def configured_device(book: Book) -> str:
    """The default_device of mkdocs.yml, "" if there is none."""
    config = book.root / "mkdocs.yml"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    found = re.search(r"^ *default_device: *(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _hidden(chapter: Chapter, source: Source) -> Iterator[Waiting]:
    """The parts of a page that no device has filled yet."""
    for part in chapter.waiting:
        with suppress(QuoteError):  # reported at its line
            if not source.filled_by(part.value):
                yield part


def _check_links(
    chapter: Chapter, hidden: list[Waiting], unseen: dict[tuple[Path, str | None], Waiting]
) -> Iterator[Problem]:
    """Links from what a page shows to headings that are not shown."""
    for line, address in chapter.links:
        page, _, place = address.partition("#")
        part = unseen.get((chapter.path.parent / page if page else chapter.path, place))
        if part and not any(own.holds(line) for own in hidden):
            yield Problem(chapter.path, line, f"{address} is not shown before a device has {part.value}")


def _check_chapter(chapter: Chapter, page: Page) -> Iterator[Problem]:
    source = page.source
    for part in chapter.waiting:
        yield from _attempt(chapter.path, part.first, lambda value=part.value: source.filled_by(value))
    for placeholder in chapter.placeholders:
        yield from _attempt(chapter.path, placeholder.line, lambda text=placeholder.text: _check_number(text, page))
    yield from _check_sentences(chapter, source)
    for fence in chapter.fences:
        for offset, line in enumerate(fence.lines, start=1):
            if include := INCLUDE.match(line):
                yield from _check_include(
                    chapter.path, fence.line + offset, include["path"], include["section"], source
                )
    for block in chapter.blocks:
        if block.kind == "output":
            yield from _attempt(chapter.path, block.line, lambda argument=block.argument: page.outputs(argument))
        if block.kind == "data":
            yield from _attempt(chapter.path, block.line, lambda argument=block.argument: page.data(argument))
        if block.kind in ("figure", "table"):
            yield from _check_drawing(chapter.path, block.line, block.kind, block.argument, block.options, page)


def _check_sentences(chapter: Chapter, source: Source) -> Iterator[Problem]:
    """Dashes outside tables: values that the default device lacks; in a part that waits, the first that filled it."""
    for placeholder in chapter.placeholders:
        devices = [source.default_device]
        with suppress(QuoteError):  # reported by itself
            quote = Quote.parse(placeholder.text)
            for part in chapter.waiting:
                if part.holds(placeholder.line):
                    filled = source.filled_by(part.value)
                    devices = devices if devices[0] in filled else filled[:1]
            if not placeholder.in_table and any(source.lacks(device, quote) for device in devices if device):
                message = f"{quote.name} would be a dash in a sentence: {source.name(devices[0])} has no such value"
                yield Problem(chapter.path, placeholder.line, message)


def _check_include(path: Path, line: int, target: str, section: str | None, source: Source) -> Iterator[Problem]:
    file = source.book.root / target
    if not file.is_file():
        yield Problem(path, line, f"there is no file {target}")
    elif section and file.suffix == ".py":
        with suppress(LedgerError):  # reported once, at its own line
            script = Snippet.parse(file)
            if section not in script.sections and not script.all_problems:
                yield Problem(path, line, f"{target} has no section {section!r}")


def _check_drawing(
    path: Path, line: int, kind: str, name: str, options: dict[str, Any], page: Page
) -> Iterator[Problem]:
    labels = options.get("labels", {})
    if not isinstance(labels, dict):
        yield Problem(path, line, "the block's labels are no mapping")
        return
    texts = {**labels, "alt": options.get("alt") or ""}
    if wrong := [said for pair in texts.items() for said in pair if not isinstance(said, str)]:
        yield Problem(path, line, f"YAML reads a label or alt: as {wrong[0]!r}, which is no text; write it in quotes")
        return
    if kind == "figure":
        if not options.get("alt"):
            yield Problem(path, line, "a figure needs alt:, what it shows in words")
            return
        yield from _attempt(path, line, lambda: page.drawings(name, labels))
        return
    tables: list[tuple[list[str], list[list[str]]]] = []
    yield from _attempt(path, line, lambda: tables.extend(page.tables(name, options)))
    cells = " ".join(dict.fromkeys(cell for _, rows in tables for row in rows for cell in row))
    for placeholder in Chapter(path, paragraphs=[(line, cells)]).placeholders:
        yield from _attempt(path, line, lambda text=placeholder.text: _check_number(text, page))


def _check_number(text: str, page: Page) -> None:
    """Raises QuoteError for a placeholder that cannot be filled, from whichever record."""
    page.number(text)
    page.check_everywhere(text)


def _attempt(path: Path, line: int, action: object) -> Iterator[Problem]:
    """The problem that an action meets, at the line it was made for."""
    try:
        action()  # type: ignore[operator]
    except BrokenSnippet:
        return  # reported once, at its own line
    except QuoteError as error:
        yield Problem(path, line, str(error))
    except Exception as error:  # of a figure's module, as it is imported, or of what it returned
        yield Problem(path, line, f"{place_of(error)}{type(error).__name__}: {error}")
