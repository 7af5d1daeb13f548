"""Shows a function as its source has it: `/// api | flops_bytes.count.count` becomes its signature and its docstring.

griffe reads the source without running it; mkdocstrings, which is made on it, would bring a plugin and a style of its
own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from ledger.book import LedgerError, Problem

BLOCK = re.compile(r"^/// api \| (?P<module>[\w.]+)\.(?P<name>\w+)\n///$", re.M)


class ApiExtension(Extension):
    """Option: root, the book's."""

    def __init__(self, **options: Any) -> None:
        self.config = {"root": [".", "the book's root"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        root = Path(self.getConfig("root")).resolve()
        md.preprocessors.register(ApiPreprocessor(md, root), "api", 32.5)  # after the fill, before code is set


def makeExtension(**options: Any) -> ApiExtension:
    return ApiExtension(**options)


class ApiPreprocessor(Preprocessor):
    def __init__(self, md: Markdown, root: Path) -> None:
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        text = BLOCK.sub(lambda block: described(self.root, block["module"], block["name"]), "\n".join(lines))
        return text.split("\n")


def described(root: Path, module: str, name: str) -> str:
    """A function as Markdown: its signature as code, the paragraphs of its docstring.

    Raises LedgerError if there is no such function, or nothing is said of it.
    """
    path = root / f"{module.replace('.', '/')}.py"
    path = path if path.is_file() else path.with_suffix("") / "__init__.py"
    found = None
    if path.is_file():
        found = griffe.visit(module, path, path.read_text(encoding="utf-8")).members.get(name)
    if not isinstance(found, griffe.Function) or not found.docstring:
        raise LedgerError([Problem(path, 0, f"/// api | {module}.{name}: there is no such function with a docstring")])
    return f"`{found.signature()}`\n\n{found.docstring.value}"
