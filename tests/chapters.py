"""A pytest plugin: every code block of a page runs once, under pytest-markdown-docs, as in the page's notebook.

Blocks are collected by the ledger's own reader (stock collection misses those in notes), with includes expanded as
pymdownx.snippets does. A page has a process and an empty folder of its own, with the files that its notebook writes
there, the library and nothing else of the book; its blocks share one namespace, from the top of the page to its end.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Generator
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from markdown import Markdown
from pymdownx.snippets import SnippetExtension
from pytest_markdown_docs._runners import DefaultRunner, register_runner
from pytest_markdown_docs.definitions import FenceTestDefinition
from pytest_markdown_docs.plugin import MarkdownDocstringCodeModule

from ledger.book import Book
from ledger.run import start_server
from ledger.site.chapter import Chapter, Fence, Waiting
from ledger.site.comments import without
from ledger.site.includes import embedded_in
from ledger.site.notebook import set_up
from ledger.site.quote import Source, open_source
from ledger.site.wheel import build_wheels
from tests.blocks import run_blocks
from tests.conftest import ROOT

OWN = ROOT  # of the library, also where a test has another book at ROOT
WRITE_FILE = "%%writefile "
SECONDS = 600  # for one block, which takes 15 at most; other processes may want the cores much more


class Reader:
    """Stands in for markdown-it: the one method that pytest-markdown-docs calls."""

    def parse(self, text: str) -> list[Any]:
        return [
            SimpleNamespace(type="fence", map=[fence.line - 1], info=fence.language, content=expand(fence))
            for fence in Chapter.parse(text, ROOT / "docs").fences
        ]


def waiting(chapter: Chapter) -> list[Waiting]:
    """The parts of a page that the committed records do not show: what they wait for has no device yet."""
    source = _source(ROOT, Book(ROOT).stamp("measurements/*/*.json") + Book(ROOT).code_stamp())
    return [part for part in chapter.waiting if not source.filled_by(part.value)]


def published(text: str) -> str:
    """A page as the committed records show it: without what waits for a device."""
    source = _source(ROOT, Book(ROOT).stamp("measurements/*/*.json") + Book(ROOT).code_stamp())
    chapter = Chapter.parse(text, ROOT / "docs")
    hidden = chapter.hidden(lambda part: bool(source.filled_by(part.value)))
    return "\n".join("" if number in hidden else line for number, line in enumerate(chapter.lines, start=1))


@lru_cache(maxsize=4)
def _source(root: Path, stamp: str) -> Source:
    return open_source(Book(root), default_device="", local=False)


def expand(fence: Fence) -> str:
    """A fence's code with its includes in place; what is no Python, such as a page within a page, stays as it is."""
    return "\n".join(_preprocessor().run(fence.lines) if fence.language == "python" else fence.lines) + "\n"


@cache
def _preprocessor() -> Any:
    """The snippets preprocessor with the site's own options."""

    class Loader(yaml.SafeLoader):
        """Reads mkdocs.yml without acting on its !tags."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    options = config["markdown_extensions"]["pymdownx.snippets"]
    extension = SnippetExtension(**options)
    md = Markdown(extensions=[extension])
    return md.preprocessors["snippet"]


# What is collected


@pytest.hookimpl(tryfirst=True)
def pytest_markdown_docs_markdown_it() -> Reader:
    return Reader()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Pages alone: test_examples.py runs docstrings, and to look for them here walks all modules of all libraries."""
    found = yield
    return [collector for collector in found if not isinstance(collector, MarkdownDocstringCodeModule)]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A Chinese page whose code, but for comments, is the English page's: it runs there."""
    return True if repeats_the_english(collection_path) else None


def repeats_the_english(path: Path) -> bool:
    english = path.parent.parent / "en" / path.name
    return (
        path.suffix == ".md"
        and path.parent.name == "zh"
        and english.is_file()
        and python_of(english) == python_of(path)
    )


def python_of(path: Path) -> list[tuple[list[str], list[str]]]:
    """Each block of Python of a page without its comments, and the values that its parts of the page wait for."""
    chapter = Chapter.read(path)
    return [
        (without(fence.lines, fence.language), [part.value for part in chapter.waiting if part.holds(fence.line)])
        for fence in chapter.fences
        if fence.language == "python"
    ]


# How it is run


class Session:
    """A process in which a page's blocks run, in a folder with what its notebook brings and nothing else.

    Pages that are no chapter run at the book's root.
    """

    def __init__(self, page: Path) -> None:
        self.page = page
        self.folder = tempfile.TemporaryDirectory(prefix=f"{page.stem}-")
        self.hidden = waiting(Chapter.read(page))
        self.failed = False
        is_chapter = page.is_relative_to(Book(ROOT).docs)
        if is_chapter:
            write_files(page, Path(self.folder.name))
        context = start_server()
        self.pipe, theirs = context.Pipe()
        where = self.folder.name if is_chapter else str(ROOT)
        self.process = context.Process(target=run_blocks, args=(where, str(library()) if is_chapter else "", theirs))
        self.process.start()
        theirs.close()

    def run(self, source: str, line: int) -> str:
        """What went wrong with a block, "" if nothing did.

        One that waits for a device sees all that stands above it; what is shown sees nothing of those.
        """
        self.pipe.send((source, f"{self.page}:{line}", any(part.holds(line) for part in self.hidden)))
        try:
            said = str(self.pipe.recv()) if self.pipe.poll(SECONDS) else f"not done after {SECONDS} s"
        except EOFError:
            said = "the process died"
        self.failed = self.failed or bool(said)
        return said

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.folder.cleanup()


@cache
def library() -> Path:
    """A folder with the book's packages, as their wheels hold them: what first cells of notebooks install."""
    folder = Path(tempfile.mkdtemp(prefix="library-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for wheel in build_wheels(Book(OWN), folder).values():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if ".dist-info/" not in name])
        wheel.unlink()
    return folder


def write_files(page: Path, folder: Path) -> None:
    """The files of the book that a page's notebook writes beside itself."""
    chapter = Chapter.read(page)
    code = "\n\n".join(expand(fence) for fence in chapter.fences if fence.language == "python")
    for cell in set_up(Book(ROOT), code, {ROOT / path for path in embedded_in(page)}, wheels={}):
        first, _, text = "".join(cell["source"]).partition("\n")
        if first.startswith(WRITE_FILE):
            (folder / first.removeprefix(WRITE_FILE)).write_text(text + "\n", encoding="utf-8")


class BlockError(Exception):
    """What a block raised, as its process tells it."""


@register_runner(default=True)
class PageRunner(DefaultRunner):  # type: ignore[misc,unused-ignore]
    """Runs the blocks of a page in one session, one page after the other."""

    session: Session | None = None

    def runtest(self, test: FenceTestDefinition, args: dict[str, Any], *, asyncio_runner: Any = None) -> None:
        if self.session is None or self.session.page != test.source_path:
            self.end()
            self.session = Session(test.source_path)
        if self.session.failed:
            pytest.skip("an earlier block of this page failed")
        if said := self.session.run(test.source, test.start_line):
            raise BlockError(said)

    def end(self) -> None:
        if self.session is not None:
            self.session.end()
            self.session = None

    def repr_failure(
        self, test: FenceTestDefinition, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str:
        if isinstance(excinfo.value, BlockError):
            return f"{test.source_path}:{test.start_line}: this block fails\n{excinfo.value}"
        return str(super().repr_failure(test, excinfo, style))


def pytest_sessionfinish() -> None:
    from pytest_markdown_docs._runners import get_runner

    runner = get_runner(None)
    if isinstance(runner, PageRunner):
        runner.end()
