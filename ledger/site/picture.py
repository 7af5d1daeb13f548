"""A page's figure as an SVG that stands alone, with the style sheet's colours in it, light and dark."""

import re
from collections.abc import Iterator
from html import escape

from ledger.book import Book, LedgerError, Problem
from ledger.site.chapter import Block, Chapter
from ledger.site.check import configured_device
from ledger.site.quote import open_source
from ledger.site.variants import drawings

RULE = re.compile(r"^svg [^\n]*\}", re.MULTILINE)
SCHEME = re.compile(r"^\[data-md-color-scheme=[^{]*\{(.*?)\n\}", re.DOTALL | re.MULTILINE)
COLOUR = re.compile(r"--(?:book|md-default)-[a-z-]+: [^;]+;")


def picture(book: Book, name: str) -> str:
    """The English page's drawing of the committed records, on the default device. Raises LedgerError."""
    page, block = found_in(book, name)
    device = configured_device(book)
    for devices, svg in drawings(open_source(book, device, local=False), "en", name, block.options.get("labels", {})):
        if device in devices and svg:
            head, rest = svg.split(">", 1)
            font = "svg { background: var(--md-default-bg-color); font-family: Georgia, serif; }"
            style = "\n".join([*colours(book), font, *RULE.findall(style_sheet(book))])
            return f"{head}><title>{escape(block.options['alt'])}</title><style>\n{style}\n</style>{rest}\n"
    raise LedgerError([Problem(page.path, block.line, f"{device} has no values for figures.{name}")])


def found_in(book: Book, name: str) -> tuple[Chapter, Block]:
    """The page and the block that show a figure."""
    for path in book.chapters():
        page = Chapter.read(path)
        for block in page.blocks:
            if (block.kind, block.argument) == ("figure", name) and path.parent.name == "en":
                return page, block
    raise LedgerError([Problem(book.root / "docs" / "en", 0, f"no page shows the figure {name}")])


def style_sheet(book: Book) -> str:
    return (book.root / "docs" / "overrides" / "assets" / "book.css").read_text(encoding="utf-8")


def colours(book: Book) -> Iterator[str]:
    """The variables that drawings take their colours from; the sheet has those of both schemes, then the dark ones."""
    both, dark, *_ = SCHEME.findall(style_sheet(book))
    yield f"svg {{ {' '.join(COLOUR.findall(both))} }}"
    yield f"@media (prefers-color-scheme: dark) {{ svg {{ {' '.join(COLOUR.findall(dark))} }} }}"
