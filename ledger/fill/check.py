"""Reads every source of the book and reports what is wrong, with file and line, before a page is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledger.book import Book, LedgerError, Problem
from ledger.fill.chapter import INCLUDE, Chapter
from ledger.fill.page import Page
from ledger.fill.quote import BrokenSnippet, QuoteError, Source, open_source
from ledger.snippet import Snippet


def check(book: Book, default_device: str = "", local: bool = True) -> list[Problem]:
    """Every problem of the book's snippets, records and chapters."""
    problems: list[Problem] = []
    for name in book.snippet_names():
        try:
            Snippet.read(book.snippets / f"{name}.py")
        except LedgerError as error:
            problems += (problem for problem in error.problems if problem not in problems)
    try:
        source = open_source(book, default_device, local)
    except LedgerError as error:
        return problems + error.problems
    for path in book.chapters():
        chapter = Chapter.read(path)
        problems += chapter.all_problems()
        problems += _check_chapter(chapter, Page(source, path.relative_to(book.docs).parts[0]))
    return problems


def _check_chapter(chapter: Chapter, page: Page) -> Iterator[Problem]:
    source = page.source
    for placeholder in chapter.placeholders:
        yield from _attempt(chapter.path, placeholder.line, lambda text=placeholder.text: page.number(text))
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


def _check_include(path: Path, line: int, target: str, section: str | None, source: Source) -> Iterator[Problem]:
    file = source.book.root / target
    if not file.is_file():
        yield Problem(path, line, f"there is no file {target}")
    elif section and file.parent == source.book.snippets:
        try:
            if section not in source.snippet(file.stem).sections:
                yield Problem(path, line, f"{target} has no section {section!r}")
        except BrokenSnippet:
            return


def _check_drawing(
    path: Path, line: int, kind: str, name: str, options: dict[str, object], page: Page
) -> Iterator[Problem]:
    labels = options.get("labels", {})
    if not isinstance(labels, dict):
        yield Problem(path, line, "the block's labels are no mapping")
        return
    if kind == "figure":
        if not options.get("alt"):
            yield Problem(path, line, "a figure needs alt:, what it shows in words")
            return
        yield from _attempt(path, line, lambda: page.drawings(name, labels))
        return
    tables: list[tuple[list[str], list[list[str]]]] = []
    yield from _attempt(path, line, lambda: tables.extend(page.tables(name, labels)))
    cells = " ".join(dict.fromkeys(cell for _, rows in tables for row in rows for cell in row))
    for placeholder in Chapter(path, paragraphs=[(line, cells)]).placeholders:
        yield from _attempt(path, line, lambda text=placeholder.text: page.number(text))


def _attempt(path: Path, line: int, action: object) -> Iterator[Problem]:
    """The problem that an action meets, at the line it was made for."""
    try:
        action()  # type: ignore[operator]
    except BrokenSnippet:
        return  # reported once, at its own line
    except QuoteError as error:
        yield Problem(path, line, str(error))
    except Exception as error:  # a figure's own mistake
        tail = error.__traceback__
        while tail and tail.tb_next:
            tail = tail.tb_next
        where = f"{Path(tail.tb_frame.f_code.co_filename).name}:{tail.tb_lineno}: " if tail else ""
        yield Problem(path, line, f"{where}{type(error).__name__}: {error}")
