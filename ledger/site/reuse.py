"""Takes from the last build what has not changed: a page is converted again only if something that it shows changed.

An MkDocs hook, for speed alone: a generator that knows no hooks makes the same pages. What is published is built
without it.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from functools import cache, partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import CountHandler

from ledger.book import Book
from ledger.site import files as book_files
from ledger.site.chapter import INCLUDE
from ledger.site.comments import FOLDER
from ledger.site.quote import Source, open_source

# What every page depends on, besides its own text and the snippets that it names.
CODE = (
    "mkdocs*.yml",
    "pyproject.toml",
    "ledger/**/*.py",
    "figures/*.py",
    "planner/*.*",
    "docs/*/glossary.md",
)
RENDERED = ("content", "toc", "_title_from_render", "present_anchor_ids")
last_build: Reuse | None = None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    global last_build
    last_build = Reuse(config, files) if config.mdx_configs["ledger.site"].get("local", True) else None
    return files


def on_pre_page(page: Page, config: MkDocsConfig, files: Files) -> Page:
    if last_build and is_ours(page):
        page.render = partial(last_build.render, page)  # type: ignore[method-assign]
    return page


class Reuse:
    """The pages of the last build in one language, a file each."""

    def __init__(self, config: MkDocsConfig, files: Files) -> None:
        options = config.mdx_configs["ledger.site"]
        book = Book(Path(options.get("root", ".")).resolve())
        first = options.get("first_device", "")
        self.source: Source = open_source(book, options["default_device"], local=True, first_device=first)
        self.book, self.records = book, self.source.records.by_device
        self.folder: Path = book.cache / "pages" / "-".join(filter(None, (options["language"], first)))
        comments = book.docs / options["language"] / FOLDER
        self.comments = {path.stem: path for path in (comments / book.snippets.name).rglob("*.yml")}
        self.common = digest(
            config.mdx_configs,
            sorted(file.src_uri for file in files),
            [(device, self.source.name(device)) for device in self.source.devices],
            book_files.listed(book),
            *(path.read_bytes() for path in book.code() if path.is_file() and not self.is_snippet(path)),
            *(path.read_bytes() for each in book.packages for path in sorted((comments / each.name).rglob("*.yml"))),
            code_at_start(book.root),
            code(book.root),
        )
        search: Any = config.plugins["material/search"]
        self.index = search.search_index
        self.index.add_entry_from_context = self.add_to_index
        self.taken: dict[str, dict[str, Any]] = {}  # from the last build, by page

    def is_snippet(self, path: Path) -> bool:
        return path.suffix == ".py" and path.is_relative_to(self.book.snippets)

    def key(self, page: Page, snippets: set[str]) -> str:
        """Of all that a page shows: its text, and of each snippet the code and the records."""
        shown = [
            (self.book.snippet_file(name).read_bytes(), *(self.records[device].get(name) for device in self.records))
            for name in sorted(snippets)
        ] + [self.comments[name].read_bytes() for name in sorted(snippets & self.comments.keys())]
        return digest(self.common, page.file.src_uri, page.markdown if is_ours(page) else page.content, shown)

    def path(self, page: Page) -> Path:
        return self.folder / f"{page.file.src_uri.replace('/', '+')}.pickle"

    def kept(self, page: Page) -> dict[str, Any]:
        """What the last build made of a page that has not changed since; empty if it has."""
        try:
            kept: dict[str, Any] = pickle.loads(self.path(page).read_bytes())
            return kept if kept["key"] == self.key(page, kept["snippets"]) else {}
        except Exception:  # absent, of another version, of a snippet that is gone
            return {}

    def render(self, page: Page, config: MkDocsConfig, files: Files) -> None:
        """What Page.render does, or what it did."""
        if kept := self.kept(page):
            self.taken[page.file.src_uri] = kept
            for name in RENDERED:
                setattr(page, name, kept[name])
            links = {files.get_file_from_path(path): anchors for path, anchors in kept["links"].items()}
            page.links_to_anchors = {file: anchors for file, anchors in links.items() if file}
            return
        self.source.touched.clear()
        logging.getLogger("mkdocs").addHandler(warnings := CountHandler(level=logging.WARNING))
        try:
            Page.render(page, config, files)
        finally:
            logging.getLogger("mkdocs").removeHandler(warnings)
        if not warnings.get_counts():  # else the next build has to warn again
            lines = (page.markdown or "").splitlines()
            if "/// map" in lines:
                return  # it says of other pages how long they are
            shown = {Path(match["path"]) for line in lines if (match := INCLUDE.match(line))}
            included = {path.stem for path in shown if self.is_snippet(self.book.root / path)}
            page.meta["reuse"] = included | self.source.touched

    def add_to_index(self, page: Page) -> None:
        """What the search plugin's index does for a page, or what it did; then the page is kept for the next build."""
        if kept := self.taken.get(page.file.src_uri) if is_ours(page) else self.kept(page):
            self.index.entries += kept["entries"]
            return
        before = len(self.index.entries)
        type(self.index).add_entry_from_context(self.index, page)
        snippets = page.meta.pop("reuse", None if is_ours(page) else set())
        if snippets is None:
            return
        kept = {name: getattr(page, name) for name in RENDERED} | {
            "key": self.key(page, snippets),
            "snippets": snippets,
            "links": {file.src_uri: anchors for file, anchors in (page.links_to_anchors or {}).items()},
            "entries": self.index.entries[before:],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path(page).write_bytes(pickle.dumps(kept))


def is_ours(page: Page) -> bool:
    """Whether it is Markdown: of a notebook, which a plugin converts, only what search knows of it is kept."""
    return page.file.src_uri.endswith(".md")


def code(root: Path) -> str:
    return digest(*(path.read_bytes() for pattern in CODE for path in sorted(root.glob(pattern))))


@cache
def code_at_start(root: Path) -> str:
    """What runs. In a live preview the files may say something else by now, and both are in a page's key."""
    return code(root)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
