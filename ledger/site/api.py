"""Shows a function as its source has it: `/// api | flops_bytes.count.count` becomes its signature and its docstring.

griffe reads the source without running it; mkdocstrings, which is made on it, would bring a plugin and a style of its
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import griffe
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block

from ledger.book import LedgerError, Problem


class ApiExtension(BlocksExtension):  # type: ignore[misc]
    """Option: root, the book's."""

    def __init__(self, **options: Any) -> None:
        self.config = {"root": [".", "the book's root"]}
        super().__init__(**options)

    def extendMarkdownBlocks(self, md: Any, block_mgr: Any) -> None:
        block_mgr.register(ApiBlock, {"root": Path(self.getConfig("root")).resolve()})


def makeExtension(**options: Any) -> ApiExtension:
    return ApiExtension(**options)


class ApiBlock(Block):  # type: ignore[misc]
    NAME = "api"
    ARGUMENT = True

    def on_create(self, parent: Element) -> Element:
        found = SubElement(parent, "div", {"class": "api"})
        module, _, name = self.argument.rpartition(".")
        self.md.parser.parseChunk(found, described(self.config["root"], module, name))
        return found


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
