"""The book's files that pages link to: snippets, packages, records. The built site has them where the checkout has.

A page links to one as if the folder lay beside it: `[the text](snippets/slow/tokens.py)`. No generator finds
it there, so it is handed a link to the front page, which each knows how to write from any page, with the file behind.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markdown import Markdown
from markdown.postprocessors import Postprocessor
from markdown.treeprocessors import Treeprocessor

from ledger.book import Book, LedgerError, Problem
from ledger.site.quote import QuoteError
from ledger.snippet import PACKAGES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

FOLDERS = ("snippets", *PACKAGES, "measurements")
LINK = re.compile(rf"(?P<up>(?:\.\./)*)(?P<path>(?:{'|'.join(FOLDERS)})/[^#?]+)")
QUERY = "?file-of-the-book="
HANDED_ON = re.compile(rf'(?<= href=")(?P<up>(?:\.\./)*)(?:\./|index\.md)?{re.escape(QUERY)}')


def listed(book: Book) -> list[str]:
    """Those files, from the book's root."""
    paths = [path for folder in FOLDERS for path in (book.root / folder).rglob("*.*") if path.is_file()]
    names = sorted(path.relative_to(book.root).as_posix() for path in paths)
    return [name for name in names if "/." not in name and "/__pycache__/" not in name]


def copy(book: Book, site: Path) -> None:
    """Puts them into a built site, or into its half in one language."""
    for name in listed(book):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(book.root / name, site / name)


def address(book: Book, link: str) -> str:
    """A page's link as it leads to the file; other links as they are. A snippet is found by its name, in any folder.

    Raises QuoteError if there is no such file.
    """
    found = LINK.fullmatch(link)
    if not found:
        return link
    path = book.root / found["path"]
    if path.parent == book.snippets and path.suffix == ".py":
        path = book.snippet_file(path.stem)
    if not path.is_file():
        raise QuoteError(f"there is no file {found['path']}")
    return found["up"] + path.relative_to(book.root).as_posix()


def register(md: Markdown, book: Book) -> None:
    """Lets the pages that md converts link to the book's files."""
    md.treeprocessors.register(FileLinks(md, book), "ledger-files", 0.5)  # before MkDocs, at 0
    md.postprocessors.register(FileAddresses(md), "ledger-files", 2)


class FileLinks(Treeprocessor):
    """Writes a link to a file of the book as one to the front page, beside which the file's folder will lie."""

    def __init__(self, md: Markdown, book: Book) -> None:
        super().__init__(md)
        self.book = book

    def run(self, root: ElementTree.Element) -> None:
        for element in root.iter("a"):
            link = element.get("href", "")
            try:
                led = address(self.book, link)
            except QuoteError as error:
                raise LedgerError([Problem(self.book.docs, 0, str(error))]) from None
            if found := LINK.fullmatch(led):
                element.set("href", f"{found['up']}index.md{QUERY}{found['path']}")


class FileAddresses(Postprocessor):
    """Takes the front page out again, which stands there as the generator has written it: `../?file-of-the-book=…`."""

    def run(self, text: str) -> str:
        return HANDED_ON.sub(r"\g<up>", text)


def on_post_build(config: MkDocsConfig) -> None:
    """Of MkDocs, as a hook: a live preview, which nobody bundles, has the files too."""
    options = config.mdx_configs["ledger.site"]
    copy(Book(Path(options.get("root", ".")).resolve()), Path(config.site_dir))
    mend_search(Path(config.site_dir))


RUN_TOGETHER, KEPT_APART = "e=e+s+o.id}", 'e=e+s+"\\t"+o.id+"\\t"}'  # lunr's name of a state, and the mended one


def mend_search(site: Path) -> None:
    """Keeps apart what lunr, the theme's search, takes for one state of its automaton: it names a state by letters and
    numbers that run together, and where two get one name, a query that meets them finds nothing. Raises LedgerError if
    the theme's script has no such name."""
    for path in site.glob("assets/javascripts/workers/search.*.js"):
        script = path.read_text(encoding="utf-8")
        if RUN_TOGETHER not in script:
            raise LedgerError([Problem(path, 0, "the theme's search names its states in another way; see mend_search")])
        path.write_text(script.replace(RUN_TOGETHER, KEPT_APART), encoding="utf-8")
