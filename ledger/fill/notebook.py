"""A page as a notebook that runs on its own: its text, its code, and before that the files that the code imports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ledger.book import Book
from ledger.fill.plain import Part
from ledger.snippet import Snippet

FOOTNOTE = re.compile(r"\[\^([\w-]+)\](:)?")
Cell = dict[str, Any]
INSTALLED = {"torch"}  # wherever this book's code runs; a platform's own build should stay
WORDS = {
    "en": {
        "from": "*From [{title}]({address}), where the numbers in the text were measured on: {device}. "
        "What your machine prints differs where it depends on the machine. Needs Python 3.11 and torch 2.11 or newer.*",
        "files": "*What the code below imports: the next cells write the book's own files beside this notebook.*",
    },
    "zh": {
        "from": "*选自[《{title}》]({address})，正文里的数字测自 {device}；与机器有关的结果，在你的机器上会有所不同。"
        "需要 Python 3.11 和 torch 2.11，或更新的版本。*",
        "files": "*下面的代码要用到书里的几个文件：先由以下几格把它们写在这份笔记本旁边。*",
    },
}


def notebook(book: Book, parts: Iterable[Part], language: str, names: set[str], **said: str) -> str | None:
    """The notebook as JSON, None for a page without Python; `names` are the snippets that the page shows.

    `said` is the page's title and address and the device's name.
    """
    parts = list(parts)
    code = "\n\n".join(part.text for part in parts if part.is_code)
    if not code:
        return None
    words = WORDS[language]
    cells = [_markdown(words["from"].format(**said))]
    text: list[str] = []
    numbers: dict[str, int] = {}
    files = files_for(book, code, names)
    for part in parts:
        if not part.is_code:
            text.append(FOOTNOTE.sub(lambda match: _footnote(match, numbers), part.text))
            continue
        if text:
            cells.append(_markdown("\n\n".join(text)))
            text = []
        if files:
            cells += [_markdown(words["files"]), *files]
            files = []
        cells.append(_code(part.text))
    if text:
        cells.append(_markdown("\n\n".join(text)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def files_for(book: Book, code: str, names: set[str]) -> list[Cell]:
    """Cells that install and write what a page's code imports."""
    page = Snippet(book.snippets / "the page itself", code)
    shown = [Snippet.read(book.snippets / f"{name}.py") for name in sorted(names)]
    itself = {name for name in names if f'find_spec("{name}")' in code}  # a page whose code starts its own snippet
    neighbours = [Snippet.read(book.snippets / f"{name}.py") for name in sorted(page.neighbours | itself)]
    imported = set().union(*(snippet.imports for snippet in (page, *neighbours)))
    needs = {re.split(r"\W", name)[0]: name for each in (*shown, *neighbours) for name in each.dependencies}
    needed = [need for name, need in sorted(needs.items()) if name in imported - INSTALLED]
    cells = [_code(f"%pip install --quiet {' '.join(map(_quoted, needed))}")] if needed else []
    data = {path for snippet in (*shown, *neighbours) for path in snippet.data}
    for path in [*(snippet.path for snippet in neighbours), *sorted(data)]:
        written = f"%%writefile {path.name}\n{path.read_text(encoding='utf-8').rstrip()}"
        cells.append(_code(written, jupyter={"source_hidden": True}))
    return cells


def _markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, **metadata: Any) -> Cell:
    source = text.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": source}


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"\W", requirement) else requirement


def _footnote(match: re.Match[str], numbers: dict[str, int]) -> str:
    """A number, in the order in which footnotes are met: notebooks know none."""
    return f"<sup>{numbers.setdefault(match[1], len(numbers) + 1)}</sup>{' ' if match[2] else ''}"
