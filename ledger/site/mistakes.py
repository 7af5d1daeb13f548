"""Ends a build that meets a mistake in the book's sources with its file and line, where a traceback would stand.

An MkDocs hook, for whoever writes with a live preview: the mistake is there whatever generator builds the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from pymdownx.snippets import SnippetMissingError

from ledger.book import Book, LedgerError
from ledger.site.check import check
from ledger.site.math import FormulaError

NAMED = (LedgerError, SnippetMissingError)  # whose own words are enough
options: dict[str, object] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    options.update(config.mdx_configs["ledger.site"])
    return config


def on_build_error(error: Exception) -> None:
    """Raises Abort with all that the check finds, else with the error's own words; leaves alone what is no mistake of
    the book's sources."""
    book = Book(Path(str(options.get("root", "."))).resolve())
    problems = check(book, str(options.get("default_device", "")), local=bool(options.get("local", True)))
    if problems:
        raise Abort("\n".join(map(str, problems))) from None
    if isinstance(error, FormulaError):
        raise Abort("\n".join(f"{place}: {error}" for place in _places(book, error.tex)) or str(error)) from None
    if isinstance(error, NAMED):
        raise Abort(str(error)) from None


def _places(book: Book, tex: str) -> Iterator[str]:
    """The files and lines at which the pages have a formula: an element of a page knows no line."""
    for path in sorted(book.docs.glob("*/*.md")):
        before, found, _ = path.read_text(encoding="utf-8").partition(tex)
        if found:
            yield f"{path.relative_to(book.root)}:{before.count(chr(10)) + 1}"
