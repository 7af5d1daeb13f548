"""What a built site offers to take along: each page's snippets as a zip, its text, its notebook, and all records."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ledger.book import Book
from ledger.site.check import configured_device
from ledger.site.comments import FOLDER
from ledger.site.device_files import move
from ledger.site.files import copy
from ledger.site.includes import embedded_in
from ledger.site.llms import CONFIGS, llms
from ledger.site.notebook import at_home, notebook
from ledger.site.plain import address_of, front_matter, markdown, parts
from ledger.site.quote import Source, open_source
from ledger.site.tight import tighten
from ledger.site.wheel import build_wheels, wheel_names
from ledger.snippet import Snippet
from ledger.text import inert

CODE = ("ledger/**/*.py", "figures/*.py", "mkdocs*.yml")  # what every page's text depends on, besides its own sources
LANGUAGES = {"en": "", "zh": "zh/"}  # and where in the site
NAME = "flops-and-bytes"  # of what holds all of the book
SKILL = Path(__file__).with_name("skill.md")  # with which an assistant answers by the book's own commands
SITE = "https://site.invalid/"  # stands for the site's address in what is kept


def bundle(
    book: Book, site: Path, address: str = "/", local: bool = True, languages: Collection[str] = tuple(LANGUAGES)
) -> None:
    """Adds to a built site what can be taken along of these languages; `address` is where it will stand.

    The book's files that pages link to lie where they lie in the checkout, below the language's front page.
    What other devices gave moves out of each page. A lab's notebook leads back to the chapters. Beside a page lies
    its text, index.md, and llms.txt lists them. In downloads/ are <page>.<language>.ipynb for every page with Python
    and, with English, what has no language: the packages' wheels, measurements.zip, and <page>.zip for every page that
    shows or quotes a snippet; SKILL.md lies beside llms.txt.
    """
    downloads = site / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    if "en" in languages:
        _zip(downloads / "measurements.zip", book.root, sorted(book.measurements.glob("*/[!.]*.json")))
        build_wheels(book, downloads)
    texts = Texts(book, local)
    if "en" in languages and (library := texts.wheels.get(book.library.name)):
        wheel = library.replace(SITE, address)
        told = SKILL.read_text(encoding="utf-8").format(site=address, wheel=wheel, device=texts.device)
        (site / "SKILL.md").write_text(told, encoding="utf-8")
    for language, folder in ((language, LANGUAGES[language]) for language in languages):
        if (site / folder).is_dir() and (book.root / CONFIGS[language]).is_file():
            (site / folder / "llms.txt").write_text(texts.listed(language).replace(SITE, address), encoding="utf-8")
        if (site / folder).is_dir():
            copy(book, site / folder)
        if (site / folder / "assets" / "book.js").is_file():
            tighten(site / folder)
        for lab in (site / folder / "labs").glob("*/*.ipynb"):
            lab.write_text(at_home(lab.read_text(encoding="utf-8"), address + folder), encoding="utf-8")
        for source in sorted((book.docs / language).glob("*.md")):
            place = site / folder / ("" if source.stem == "index" else source.stem)
            if not place.is_dir():
                continue
            move(place / "index.html")
            made = texts.of(source, language)
            for suffix, text in made.texts.items():
                path = place / "index.md" if suffix == "md" else downloads / f"{source.stem}.{language}.{suffix}"
                path.write_text(text.replace(SITE, address), encoding="utf-8")
            if language == "en" and made.files:
                _zip(downloads / f"{source.stem}.zip", book.root, [book.root / name for name in made.files])


class Taken(NamedTuple):
    """What a reader can take along of a page."""

    texts: dict[str, str]  # by the ending of its file's name: md, and ipynb if the page has Python
    files: list[str]  # below the book's root, with which the page's code runs: snippets, the library, data


class Texts:
    """Each page as Markdown and as a notebook; kept in .cache/texts, and made anew when something that it shows has
    changed."""

    def __init__(self, book: Book, local: bool) -> None:
        self.book, self.local = book, local
        self.folder = book.cache / "texts" / ("local" if local else "committed")
        self.common = book.stamp(*CODE)
        self.wheels = {package: f"{SITE}downloads/{name}" for package, name in wheel_names(book).items()}

    @cached_property
    def source(self) -> Source:
        return open_source(self.book, configured_device(self.book), self.local)

    @cached_property
    def device(self) -> str:
        """The name of the device whose numbers they hold, in Markdown; "" if none has any."""
        shown = self.source.shown_device
        return inert(self.source.name(shown)) if shown in self.source.records.by_device else ""

    def of(self, path: Path, language: str) -> Taken:
        """Of the page at path."""
        kept_at = self.folder / language / f"{path.stem}.json"
        try:
            stamp, *kept = json.loads(kept_at.read_text(encoding="utf-8"))
            taken = Taken(*kept)
            if stamp == self.stamp(path, taken.files):
                return taken
        except (OSError, ValueError, TypeError):  # absent, or of another version
            pass
        taken = self.make(path, language)
        kept_at.parent.mkdir(parents=True, exist_ok=True)
        kept = [self.stamp(path, taken.files), *taken]
        kept_at.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
        return taken

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

    def stamp(self, path: Path, files: list[str]) -> str:
        """Of all that a page shows: its text, and of each snippet the code, the records and what its comments say."""
        folders = ["snippets/**", "measurements/*", *([".cache/runs/*"] if self.local else [])]
        folders.append(f"docs/{path.parent.name}/{FOLDER}/**")
        shown = [f"{folder}/{name}.*" for folder in folders for name in sorted({Path(name).stem for name in files})]
        return f"{self.common}{self.wheels}{self.book.stamp(str(path.relative_to(self.book.root)), *files, *shown)}"

    def make(self, path: Path, language: str) -> Taken:
        source, site = self.source, SITE + LANGUAGES[language]
        source.touched.clear()
        found = list(parts(source, language, path, site))
        said = {"address": address_of(site, path.stem), "device": self.device}
        said["title"] = str(front_matter(path).get("title", path.stem))
        embedded = embedded_in(path)
        shown = {self.book.root / file for file in embedded} | {self.book.snippet_file(name) for name in source.touched}
        as_notebook = notebook(self.book, found, language, shown, self.wheels, **said)
        texts = {"md": markdown(found)} | ({"ipynb": as_notebook} if as_notebook else {})
        return Taken(texts, with_library(self.book, shown))


def with_library(book: Book, shown: Iterable[Path]) -> list[str]:
    """These files, the modules of the library without which they would not run, and the data that both read.

    A file of the same name with another ending, such as a script that starts a module on a cluster, comes along.
    """
    scripts = [Snippet.parse(path) for path in shown if path.suffix == ".py" and path.is_file()]
    reached = {module.path: module for script in scripts for module in (script, *script.library)}
    beside = {other for path in reached for other in path.parent.glob(f"{path.stem}.*")}
    data = {path for script in reached.values() for path in script.own_data}
    return sorted(str(path.relative_to(book.root)) for path in {*shown, *beside, *data} if path.is_file())


def _zip(target: Path, root: Path, files: Iterable[Path]) -> None:
    """The files in one folder, with fixed dates, so that equal contents give equal archives.

    Snippets lie beside the library, which they import, and beside their data.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            name = file.name if file.is_relative_to(root / "snippets") else str(file.relative_to(root))
            archive.writestr(zipfile.ZipInfo(f"{target.stem}/{name}", (1980, 1, 1, 0, 0, 0)), file.read_bytes())
