"""Sets the formulas that pymdownx.arithmatex finds with KaTeX while the page is built.

So formulas stand in the page before any script runs, and no page loads KaTeX itself, only its style sheet.
"""

from __future__ import annotations

import atexit
import html
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from py_mini_racer import JSEvalException, MiniRacer

KATEX = Path(__file__).with_name("katex") / "katex.min.js"


class FormulaError(ValueError):
    """What KaTeX says of a formula that it cannot set."""

    def __init__(self, tex: str, reason: str) -> None:
        super().__init__(f"KaTeX cannot set ${tex}$: {reason}")
        self.tex = tex


class FormulaExtension(Extension):
    """Goes with `pymdownx.arithmatex: {generic: true}`."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(FormulaProcessor(md), "formulas", 15)  # after inline patterns, at 20


def makeExtension(**options: object) -> FormulaExtension:
    return FormulaExtension(**options)


class FormulaProcessor(Treeprocessor):
    def run(self, root: ElementTree.Element) -> None:
        for element in root.iter():
            if element.get("class") == "arithmatex" and element.text:
                tex = html.unescape(element.text.strip())
                element.text = self.md.htmlStash.store(typeset(tex[2:-2].strip(), display=tex.startswith("\\[")))


@cache
def typeset(tex: str, display: bool) -> str:
    """A formula as HTML with MathML inside. Raises FormulaError with KaTeX's own words if it is none."""
    try:
        return str(_katex().call("katex.renderToString", tex, {"displayMode": display, "strict": "error"}))
    except JSEvalException as error:
        reason = str(error).strip().splitlines()[0]
        raise FormulaError(tex, reason) from None


@cache
def _katex() -> MiniRacer:
    context = MiniRacer()
    atexit.register(context.close)  # left to the interpreter's end, V8's threads may hold it up for good
    context.eval(KATEX.read_text(encoding="utf-8"))
    return context
