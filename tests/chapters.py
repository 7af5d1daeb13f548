"""A pytest plugin: every code block runs under pytest-markdown-docs as the site shows it, one session a page.

Blocks are collected by the ledger's own reader (stock collection misses those in notes), with includes expanded as
pymdownx.snippets does, and run in one namespace from the top of a page to its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from markdown import Markdown
from pymdownx.snippets import SnippetExtension
from pytest_markdown_docs._runners import DefaultRunner, register_runner
from pytest_markdown_docs.definitions import FenceTestDefinition

from ledger.book import Book
from ledger.fill.chapter import Chapter, Fence, shown
from ledger.fill.quote import open_source

ROOT = Path(__file__).parent.parent


class Reader:
    """Stands in for markdown-it: the one method that pytest-markdown-docs calls."""

    def parse(self, text: str) -> list[Any]:
        chapter = Chapter.parse(published(text), ROOT / "docs")
        return [
            SimpleNamespace(type="fence", map=[fence.line - 1], info=fence.language, content=expand(fence))
            for fence in chapter.fences
        ]


def published(text: str) -> str:
    """A page as the committed records show it: without what waits for a device."""
    source = open_source(Book(ROOT), default_device="", local=False)
    return shown(text, lambda value: bool(source.filled_by(value)))


def expand(fence: Fence) -> str:
    """A fence's code with its includes in place."""
    return "\n".join(_preprocessor().run(fence.lines)) + "\n"


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


@pytest.hookimpl(tryfirst=True)
def pytest_markdown_docs_markdown_it() -> Reader:
    return Reader()


@register_runner(default=True)
class PageRunner(DefaultRunner):  # type: ignore[misc,unused-ignore]
    """Runs the blocks of a page in one namespace; a page whose blocks equal those of another so far runs once."""

    def __init__(self) -> None:
        self.page: Path | None = None
        self.blocks: list[FenceTestDefinition] = []
        self.namespace: dict[str, Any] = {}
        self.ran = 0  # how many of the page's blocks are in the namespace
        self.failed = False
        self.passed: set[str] = set()

    def runtest(self, test: FenceTestDefinition, args: dict[str, Any], *, asyncio_runner: Any = None) -> None:
        if test.source_path != self.page:
            self.page, self.blocks, self.ran, self.failed = test.source_path, [], 0, False
            self.namespace = {"__name__": "__main__", "__builtins__": __builtins__, **args}
        if self.failed:
            pytest.skip("an earlier block of this page failed")
        self.blocks.append(test)
        chain = hashlib.sha256("\0".join(block.source.strip() for block in self.blocks).encode()).hexdigest()
        if chain in self.passed:
            return
        self.failed = True
        for block in self.blocks[self.ran :]:
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # what it prints is the site's to show
                    exec(compile(block.source, str(block.source_path), "exec", dont_inherit=True), self.namespace)
            except TypeError as error:  # stock code takes a TypeError for its own and runs the block a second time
                raise RuntimeError(f"TypeError: {error}") from error
        self.ran, self.failed = len(self.blocks), False
        self.passed.add(chain)
