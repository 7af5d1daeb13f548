"""What a built site offers to take along: each page's snippets as a zip, its text, its notebook, and all records."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from ledger.book import Book
from ledger.fill.chapter import INCLUDE
from ledger.fill.check import configured_device
from ledger.fill.llms import CONFIGS, llms
from ledger.fill.notebook import notebook
from ledger.fill.others import move
from ledger.fill.page import Page
from ledger.fill.plain import address_of, front_matter, markdown, parts
from ledger.fill.quote import Source, open_source
from ledger.snippet import Snippet

LINKED = re.compile(r'href="(?:\.\./)*snippets/(\w+)\.py"')  # where a page says where its numbers come from
CODE = ("ledger/**/*.py", "figures/*.py", "mkdocs*.yml")  # what every page's text depends on, besides its own sources
LANGUAGES = {"en": "", "zh": "zh/"}  # and where in the site
SITE = "https://site.invalid/"  # stands for the site's address in what is kept


def bundle(book: Book, site: Path, address: str = "/", local: bool = True) -> None:
    """Adds to a built site what can be taken along; `address` is where it will stand.

    What other devices gave moves out of each page. Beside it lies its text, index.md, and llms.txt lists them. In
    downloads/ are measurements.zip, <page>.zip for every page that shows or quotes a snippet, and
    <page>.<language>.ipynb for every page with Python.
    """
    downloads = site / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    for source in sorted((book.docs / "en").glob("*.md")):
        page = site / ("" if source.stem == "index" else source.stem) / "index.html"
        if names := snippets_of(source, page):
            _zip(downloads / f"{source.stem}.zip", book.root, with_neighbours(book, names))
    _zip(downloads / "measurements.zip", book.root, sorted(book.measurements.glob("*/[!.]*.json")))
    texts = Texts(book, local)
    for language, folder in LANGUAGES.items():
        if (site / folder).is_dir() and (book.root / CONFIGS[language]).is_file():
            (site / folder / "llms.txt").write_text(texts.listed(language).replace(SITE, address), encoding="utf-8")
        for source in sorted((book.docs / language).glob("*.md")):
            place = site / folder / ("" if source.stem == "index" else source.stem)
            if not place.is_dir():
                continue
            move(place / "index.html")
            for suffix, text in texts.of(source, language).items():
                path = place / "index.md" if suffix == "md" else downloads / f"{source.stem}.{language}.{suffix}"
                path.write_text(text.replace(SITE, address), encoding="utf-8")


class Texts:
    """Each page as Markdown and as a notebook; kept in .cache/texts, and made anew when something that it shows has
    changed."""

    def __init__(self, book: Book, local: bool) -> None:
        self.book, self.local = book, local
        self.folder = book.cache / "texts" / ("local" if local else "committed")
        self.common = book.stamp(*CODE)

    @cached_property
    def source(self) -> Source:
        return open_source(self.book, configured_device(self.book), self.local)

    @cached_property
    def device(self) -> str:
        """The name of the device whose numbers they hold, "" if none has any."""
        shown = self.source.shown_device
        return self.source.name(shown) if shown in self.source.records.by_device else ""

    def of(self, path: Path, language: str) -> dict[str, str]:
        """By the ending of its file's name, each form of the page at path: md, and ipynb if it has Python."""
        kept_at = self.folder / language / f"{path.stem}.json"
        try:
            kept = json.loads(kept_at.read_text(encoding="utf-8"))
            if kept["stamp"] == self.stamp(path, kept["snippets"]):
                return dict(kept["texts"])
        except (OSError, ValueError, KeyError, TypeError):  # absent, or of another version
            pass
        texts, snippets = self.make(path, language)
        kept_at.parent.mkdir(parents=True, exist_ok=True)
        kept = {"stamp": self.stamp(path, snippets), "snippets": snippets, "texts": texts}
        kept_at.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
        return texts

    def listed(self, language: str) -> str:
        """llms.txt, which says whose numbers the pages hold."""
        kept_at, task = self.folder / language / "llms.txt", f"llms-{self.folder.name}-{language}"
        stamp = self.common + self.book.stamp(f"docs/{language}/*.md", "measurements/*", ".cache/runs/*")
        if not (kept_at.is_file() and self.book.is_done(task, stamp)):
            (other,) = {*LANGUAGES} - {language}
            text = llms(self.book, language, SITE + LANGUAGES[language], SITE + LANGUAGES[other], self.device)
            kept_at.parent.mkdir(parents=True, exist_ok=True)
            kept_at.write_text(text, encoding="utf-8")
            self.book.set_done(task, stamp)
        return kept_at.read_text(encoding="utf-8")

    def stamp(self, path: Path, snippets: list[str]) -> str:
        """Of all that a page shows: its text, and of each snippet the code and the records."""
        folders = ["snippets", "measurements/*", *([".cache/runs/*"] if self.local else [])]
        files = [f"{folder}/{name}.*" for folder in folders for name in snippets]
        return self.common + self.book.stamp(str(path.relative_to(self.book.root)), *files)

    def make(self, path: Path, language: str) -> tuple[dict[str, str], list[str]]:
        """The page's texts, and the snippets that they depend on."""
        source, site = self.source, SITE + LANGUAGES[language]
        source.touched.clear()
        found = list(parts(Page(source, language), path, site))
        said = {"address": address_of(site, path.stem), "device": self.device}
        said["title"] = str(front_matter(path).get("title", path.stem))
        embedded = embedded_in(path)
        as_notebook = notebook(self.book, found, language, embedded, **said)
        texts = {"md": markdown(found)} | ({"ipynb": as_notebook} if as_notebook else {})
        snippets = source.touched | embedded
        reached = {near for name in snippets for near in source.snippet(name).neighbours}
        return texts, sorted(snippets | reached)


def snippets_of(source: Path, page: Path) -> set[str]:
    """The snippets that a chapter embeds, and those that its built page says its numbers come from."""
    return embedded_in(source) | set(LINKED.findall(page.read_text(encoding="utf-8")))


def embedded_in(source: Path) -> set[str]:
    """The snippets of which a chapter shows a section."""
    lines = source.read_text(encoding="utf-8").splitlines()
    return {Path(match["path"]).stem for line in lines if (match := INCLUDE.match(line))}


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
