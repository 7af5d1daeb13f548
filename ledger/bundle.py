"""What a built site offers to take along: each page's snippets as a zip, and all records."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

from ledger.book import Book
from ledger.chapter import INCLUDE, Chapter
from ledger.filler import Filler
from ledger.quote import Quote, QuoteError, open_source

TOOLKIT = "accounting"  # the module that snippets import


def bundle(book: Book, site: Path) -> None:
    """Writes site/downloads/<page>.zip for every page that shows or quotes a snippet, and measurements.zip."""
    downloads = site / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    filler = Filler(open_source(book, "", local=False), "en")
    for path in sorted((book.docs / "en").glob("**/*.md")):
        if names := snippets_of(Chapter.read(path), filler):
            files = [book.snippets / f"{name}.py" for name in sorted({*names, TOOLKIT})]
            _zip(downloads / f"{path.stem}.zip", book.root, [file for file in files if file.is_file()])
    _zip(downloads / "measurements.zip", book.root, sorted(book.measurements.glob("*/[!.]*.json")))


def snippets_of(chapter: Chapter, filler: Filler) -> set[str]:
    """The snippets that a chapter embeds, quotes (in its tables too) or prints the output of."""
    names = {
        Path(match["path"]).stem for fence in chapter.fences for line in fence.lines if (match := INCLUDE.match(line))
    }
    names |= {block.argument.partition(":")[0].strip() for block in chapter.blocks if block.kind == "output"}
    filler.source.touched.clear()
    for block in chapter.blocks:
        if block.kind == "table":
            filler.tables(block.argument, block.options.get("labels", {}))
    names |= filler.source.touched
    for placeholder in chapter.placeholders:
        try:
            names.add(Quote.parse(placeholder.text).snippet)
        except QuoteError:
            continue  # `check` reports it
    return names


def _zip(target: Path, root: Path, files: Iterable[Path]) -> None:
    """The files in one folder, with fixed dates, so that equal contents give equal archives."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = file.name if file.parent.name == "snippets" else str(file.relative_to(root))
            archive.writestr(zipfile.ZipInfo(f"{target.stem}/{name}", (1980, 1, 1, 0, 0, 0)), file.read_bytes())
