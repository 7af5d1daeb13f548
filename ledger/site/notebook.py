"""A page as a notebook that runs on its own: its text, its code, and before that what installs the code's needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ledger.book import Book
from ledger.site.plain import Part
from ledger.snippet import Snippet

CHAPTER_LINK = re.compile(r"\]\(\.\./([\w-]+)\.md(#[\w-]+)?\)")  # of a lab
FOOTNOTE = re.compile(r"\[\^([\w-]+)\](:)?")
Cell = dict[str, Any]
INSTALLED = {"torch"}  # wherever this book's code runs; a platform's own build should stay
WORDS = {
    "en": {
        "from": "*From [{title}]({address}), where the numbers in the text were measured on: {device}. "
        "Results that depend on the machine will differ on yours. You need Python 3.11 and torch 2.11, or newer.*",
        "set_up": "*This installs what the code below imports. The book's own packages come from the site that "
        "serves the page.*",
    },
    "zh": {
        "from": "*选自[《{title}》]({address})，正文里的数字在 {device} 上测得。"
        "与机器有关的结果，在你的机器上会有所不同。需要 Python 3.11 和 torch 2.11，或更新的版本。*",
        "set_up": "*先安装下面的代码要用的包。本书自己的包从本页所在的网站安装。*",
    },
}


def at_home(text: str, address: str) -> str:
    """A lab's text, with its links to chapters led to the site in its language, at that address."""
    return CHAPTER_LINK.sub(rf"]({address}\1/\2)", text)


def notebook(
    book: Book, parts: Iterable[Part], language: str, shown: set[Path], wheels: Mapping[str, str], **said: str
) -> str | None:
    """The notebook as JSON, None for a page without Python; `shown` are the files that the page shows or quotes.

    `wheels` are the addresses of the book's packages, `said` the page's title and address and the device's name.
    """
    parts = list(parts)
    code = "\n\n".join(part.text for part in parts if part.is_code)
    if not code:
        return None
    words = WORDS[language]
    cells = [_markdown(words["from"].format(**said))]
    text: list[str] = []
    numbers: dict[str, int] = {}
    installs = set_up(book, code, shown, wheels)
    for part in parts:
        if not part.is_code:
            text.append(FOOTNOTE.sub(lambda match: _footnote(match, numbers), part.text))
            continue
        if text:
            cells.append(_markdown("\n\n".join(text)))
            text = []
        if installs:
            cells += [_markdown(words["set_up"]), *installs]
            installs = []
        cells.append(_code(part.text))
    if text:
        cells.append(_markdown("\n\n".join(text)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def set_up(book: Book, code: str, shown: Iterable[Path], wheels: Mapping[str, str]) -> list[Cell]:
    """Cells that install what a page's code imports, and write what it starts or reads."""
    page = Snippet(book.snippets / "the page itself", code)
    scripts = [path for path in sorted(shown) if path.is_relative_to(book.snippets) and path.suffix == ".py"]
    snippets = [Snippet.read(path) for path in scripts]
    needs = {re.split(r"\W", name)[0]: name for snippet in snippets for name in snippet.dependencies}
    needed = [need for name, need in sorted(needs.items()) if name in page.imports - INSTALLED]
    own = {module.module.partition(".")[0] for module in page.library}
    needed = [*(address for package, address in wheels.items() if package in own), *needed]
    cells = [_code(f"%pip install --quiet {' '.join(map(_quoted, needed))}")] if needed else []
    started = [snippet.path for snippet in snippets if f'find_spec("{snippet.name}")' in code]
    data = {path for snippet in snippets for path in snippet.data if path.is_relative_to(book.snippets)}
    for path in [*started, *sorted(data)]:
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
