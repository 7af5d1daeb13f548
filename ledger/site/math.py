"""Sets the formulas that pymdownx.arithmatex finds while the page is built: KaTeX translates them to MathML.

So formulas stand in the page before any script runs, browsers draw them and screen readers read them. KaTeX's own
drawing, in HTML, would weigh four times as much.
"""

from __future__ import annotations

import atexit
import html
import re
import unicodedata
from contextlib import suppress
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from py_mini_racer import JSEvalException, MiniRacer

DRAWN = {  # what KaTeX means, as browsers draw it
    "<mo>^</mo>": "<mo>\N{MODIFIER LETTER CIRCUMFLEX ACCENT}</mo>",
    "<mo>\N{FUNCTION APPLICATION}</mo><mo": "<mo",  # before a bracket; else a space
    "<mo>\N{FUNCTION APPLICATION}</mo>": '<mspace width="0.17em"></mspace>',
    '<mo stretchy="false">\N{PARALLEL TO}</mo>': '<mo stretchy="false" lspace="0" rspace="0">\N{PARALLEL TO}</mo>',
}
CLOSING = re.compile(r"[,.;:!?)\]’”，。；：！？、）》]+")  # what no line begins with
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
                display = tex.startswith("\\[")
                element.text = self.md.htmlStash.store(typeset(tex[2:-2].strip(), display))
                # To a browser a formula is like a picture: it may end a line and leave the comma behind it to the next
                if not display and (closing := CLOSING.match(element.tail or "")):
                    element.text += closing[0]
                    element.tail = (element.tail or "")[closing.end() :]


@cache
def typeset(tex: str, display: bool) -> str:
    """A formula as MathML. Raises FormulaError with KaTeX's own words if it is none."""
    options = {"displayMode": display, "strict": "error", "output": "mathml"}
    try:
        formula = lighten(str(_katex().call("katex.renderToString", tex, options)))
    except JSEvalException as error:
        reason = str(error).strip().splitlines()[0]
        raise FormulaError(tex, reason) from None
    if alphabet := re.search(r'mathvariant="(?!normal)([\w-]+)"', formula):
        raise FormulaError(tex, f"browsers know no letters in {alphabet[1]} but by characters of their own")
    return formula


def lighten(markup: str) -> str:
    """KaTeX's MathML without the formula's source, which no browser shows, and with what browsers draw: they know of no
    alphabets but by their characters."""
    (formula,) = re.findall(r"<math.*</math>", markup, re.DOTALL)
    formula = re.sub(r"<annotation.*?</annotation>|</?semantics>| xmlns=\"[^\"]*\"", "", formula, flags=re.DOTALL)
    formula = re.sub(r'(?:<mi mathvariant="normal">[A-Za-z]</mi>){2,}', _word, formula)
    formula = re.sub(r'<m[io] mathvariant="(double-struck|sans-serif)">(\w)</m[io]>', _letter, formula)
    return re.sub("|".join(map(re.escape, DRAWN)), lambda match: DRAWN[match[0]], formula)


def _word(match: re.Match[str]) -> str:
    return f"<mi>{''.join(re.findall('>(.)<', match[0]))}</mi>"  # more than one letter: upright by itself


def _letter(match: re.Match[str]) -> str:
    name = f"{match[1].upper()} CAPITAL {match[2]}"
    for start in ("", "MATHEMATICAL "):  # ℝ had its place before 𝔼
        with suppress(KeyError):
            return f"<mi>{unicodedata.lookup(start + name)}</mi>"
    return match[0]


@cache
def _katex() -> MiniRacer:
    context = MiniRacer()
    atexit.register(context.close)  # left to the interpreter's end, V8's threads may hold it up for good
    context.eval(KATEX.read_text(encoding="utf-8"))
    return context
