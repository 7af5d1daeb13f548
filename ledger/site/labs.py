"""Labs: notebooks kept as plain Python in docs/labs/, written for readers to take along, shown as pages of the book.

What they say in other languages than English stands beside them: ledger.site.lab_source.

mkdocs-jupyter finds the notebooks and runs them. Its own renderer adds 574 kB of styles to a page, names another host
and leaves formulas, links and the headings' ids as they are, so the renderer here takes its place.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import mkdocs_jupyter.plugin
import nbformat
from markdown import Markdown
from markdown.extensions import Extension
from nbclient import NotebookClient
from traitlets.config import Config

from ledger.book import Book, LedgerError
from ledger.site.comments import Comments, without
from ledger.site.lab_source import in_language, sources
from ledger.site.notebook import at_home

SECONDS = 120  # for one cell


class LabExtension(Extension):
    """Options: root, language ("en", "zh"), outputs.

    Both languages have the same cells but for comments: builds that share a folder for outputs run each lab once. What
    lies there is as old as the folder, which should be no older than the libraries that the labs import.
    """

    def __init__(self, **options: Any) -> None:
        self.config = {
            "root": [".", "the book's root"],
            "language": ["en", "en or zh"],
            "outputs": ["", "a folder for what the cells print, of the builds that run them together"],
        }
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        book, language = Book(Path(self.getConfig("root"))), self.getConfig("language")
        comments = Comments(book, language)
        for lab in sources(book):
            source, problems = in_language(lab, comments)
            if problems:
                raise LedgerError(problems)
            write_notebook(source, book.docs / language / "labs" / f"{lab.stem.replace('_', '-')}.ipynb")
        plugin: Any = mkdocs_jupyter.plugin
        if plugin.convert.nb2html.__module__ == "mkdocs_jupyter.nbconvert2":
            # The first to come is what MkDocs tries its configuration on: complete, and no page's own.
            plugin.convert.nb2html = render = Renderer(md, self.getConfig("outputs"))
            plugin._get_nb_toc_tokens = render.contents


def makeExtension(**options: Any) -> LabExtension:
    return LabExtension(**options)


def write_notebook(source: str, target: Path) -> None:
    """A lab as a notebook without outputs; left alone if it has not changed, so that a live preview rests.

    It is the same for every site, and other builds of this checkout may be reading it.
    """
    text = as_notebook(source)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target.with_name(f".{target.name}.{os.getpid()}")
        written.write_text(text, encoding="utf-8")
        written.replace(target)


@cache
def as_notebook(source: str) -> str:
    """MkDocs asks for each page, since each is converted by extensions of its own."""
    notebook = jupytext.reads(source, fmt="py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # jupytext draws new ones each time
    notebook.metadata.pop("jupytext", None)
    return str(nbformat.writes(notebook)) + "\n"  # type: ignore[no-untyped-call]


class Renderer:
    """What mkdocs-jupyter calls to make a page of a notebook."""

    def __init__(self, md: Markdown, outputs: str = "") -> None:
        self.md, self.outputs = md, outputs

    def __call__(
        self, path: str, execute: bool = False, kernel_name: str = "", allow_errors: bool = False, **_: object
    ) -> str:
        """The notebook as HTML, with the book's own Markdown. Raises CellExecutionError if a cell fails."""
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        if execute:
            options: dict[str, Any] = {
                "kernel_name": kernel_name or "python3",
                "allow_errors": allow_errors,
                "timeout": SECONDS,
            }
            with run_once(notebook, self.outputs) as has_run, tempfile.TemporaryDirectory() as folder:
                if not has_run:  # a kernel on TCP can be overheard, and warns of it
                    private = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
                    NotebookClient(notebook, config=private, **options).execute()
        text = "\n\n".join(part for cell in notebook.cells for part in parts(cell))
        page = self.md.reset().convert(at_home(text, "../../"))
        return page.replace('href="glossary.md', 'href="../../glossary/')  # where ledger.site.terms leads

    def contents(self, path: str, depth: int) -> tuple[list[dict[str, Any]], str | None]:
        """The headings of the notebook rendered last, and its title."""
        tokens: list[dict[str, Any]] = self.md.toc_tokens  # type: ignore[attr-defined]
        return tokens, next((token["name"] for token in tokens if token["level"] == 1), None)


@contextmanager
def run_once(notebook: Any, folder: str) -> Iterator[bool]:
    """Whether the cells hold what they printed in another build that shares the folder, which is waited for.

    Else the caller runs them, and what they print is kept there; without a folder it is not.
    """
    if not folder:
        yield False
        return
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    key = hashlib.sha256(repr([without(cell.source.split("\n"), "python") for cell in cells]).encode()).hexdigest()
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / f"{key}.json").open("a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        if text := kept.read():
            for cell, outputs in zip(cells, json.loads(text), strict=True):
                cell.outputs = list(map(nbformat.from_dict, outputs))
        yield bool(text)
        if not text:
            json.dump([cell.outputs for cell in cells], kept)


def parts(cell: Any) -> Iterator[str]:
    """A cell as Markdown: its text, or its code and what that printed."""
    if cell.cell_type == "markdown":
        heading, _, rest = cell.source.partition("\n")
        yield f"{heading} {{#{cell.metadata.slug}}}\n{rest}" if "slug" in cell.metadata else cell.source
    elif cell.cell_type == "code":
        yield f"```python\n{cell.source}\n```"
        if printed := "".join(output.text for output in cell.outputs if output.get("name") == "stdout"):
            yield f'<div class="output"><pre tabindex="0"><code>{html.escape(printed, quote=False)}</code></pre></div>'
