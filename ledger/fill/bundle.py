"""What a built site offers to take along: each page's snippets as a zip, and all records."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from ledger.book import Book
from ledger.fill.chapter import INCLUDE
from ledger.snippet import Snippet

LINKED = re.compile(r'href="(?:\.\./)*snippets/(\w+)\.py"')  # where a page says where its numbers come from


def bundle(book: Book, site: Path) -> None:
    """Writes site/downloads/<page>.zip for every page that shows or quotes a snippet, and measurements.zip."""
    downloads = site / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    for source in sorted((book.docs / "en").glob("*.md")):
        page = site / ("" if source.stem == "index" else source.stem) / "index.html"
        if names := snippets_of(source, page):
            _zip(downloads / f"{source.stem}.zip", book.root, with_neighbours(book, names))
    _zip(downloads / "measurements.zip", book.root, sorted(book.measurements.glob("*/[!.]*.json")))


def snippets_of(source: Path, page: Path) -> set[str]:
    """The snippets that a chapter embeds, and those that its built page says its numbers come from."""
    lines = source.read_text(encoding="utf-8").splitlines()
    embedded = {Path(match["path"]).stem for line in lines if (match := INCLUDE.match(line))}
    return embedded | set(LINKED.findall(page.read_text(encoding="utf-8")))


def with_neighbours(book: Book, names: set[str]) -> list[Path]:
    """The files of these snippets, and of the modules and data beside them without which they would not run.

    A file of the same name with another ending, such as a script that starts a snippet on a cluster, comes along.
    """
    snippets = [Snippet.read(path) for name in names if (path := book.snippets / f"{name}.py").is_file()]
    reached = {name for snippet in snippets for name in (snippet.name, *snippet.neighbours)}
    data = {path for snippet in snippets for path in snippet.data}
    return sorted(data.union(*(book.snippets.glob(f"{name}.*") for name in reached)))


def _zip(target: Path, root: Path, files: Iterable[Path]) -> None:
    """The files in one folder, with fixed dates, so that equal contents give equal archives."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = file.name if file.parent.name == "snippets" else str(file.relative_to(root))
            archive.writestr(zipfile.ZipInfo(f"{target.stem}/{name}", (1980, 1, 1, 0, 0, 0)), file.read_bytes())
