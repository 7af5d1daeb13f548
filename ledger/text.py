"""Texts of records within Markdown and HTML: they are shown as they are, and nothing takes a character for markup.

A record may come from elsewhere. What a figure or table gets of it has stand-ins, of Unicode's private use, for the
signs that Markdown could mind: figures may join and cut such texts as they like. What is written in the end shows the
signs themselves, as HTML or Markdown spells them. `link` makes the only links whose address a record gives.
"""

from __future__ import annotations

import html
import re
import string
from typing import Any
from urllib.parse import quote

FIRST = 0xE000  # what stands for the sign of code n is the character FIRST + n; a record may hold none of these
STAND_INS = {ord(sign): FIRST + ord(sign) for sign in string.punctuation + "\n\t"}
SIGNS = {stand_in: sign for sign, stand_in in STAND_INS.items()}
CODE_SIGNS = SIGNS | {FIRST + ord("`"): "'", FIRST + ord("|"): "\\|", FIRST + ord("\n"): " "}  # code ends nowhere in it
HIDDEN = f"[{''.join(map(chr, SIGNS))}]"
MINDED = re.compile(
    r"""[\\`*{}\[\]()<>|~$&^!:"'\n\t]  # wherever it stands
    | (?<![^\W_])_ | _(?![^\W_])  # but not within a word
    | ^\s*(?:[^\w\s]+ | \d+\.)  # at the start of a line""",
    re.VERBOSE | re.ASCII,
)
CODE = r"(?<!`)(?P<ticks>`+)(?!`)[^`\n]+(?P=ticks)(?!`)"  # its backticks are the page's: those of a text are hidden
TO_WRITE = re.compile(rf"{CODE}|{HIDDEN}")
ALWAYS = "\\`*_{}[]<>|~$&^"  # what Markdown minds within a line
ADDRESS = re.compile(r"https?://\S+", re.ASCII | re.IGNORECASE)
URL_SIGNS = "/:?#@!&+,;=%~.-"


class Text(str):
    """A text of a record as a figure or table gets it: written, it holds stand-ins; it equals what the record says."""

    def __new__(cls, said: str) -> Text:
        return super().__new__(cls, hide(said))

    def __eq__(self, other: object) -> bool:
        return as_said(self) == as_said(other) if isinstance(other, str) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(as_said(self))


def texts_in(value: Any) -> Any:
    """A value of a record with every text in it, keys too, as a Text."""
    if isinstance(value, dict):
        return {Text(key): texts_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [texts_in(item) for item in value]
    return Text(value) if isinstance(value, str) else value


def hide(said: str) -> str:
    """A text with stand-ins for all signs that Markdown would mind."""
    return MINDED.sub(lambda match: match[0].translate(STAND_INS), said)


def is_hidden(text: str) -> bool:
    """Whether it holds stand-ins: something in it comes from a record."""
    return bool(re.search(HIDDEN, text))


def as_said(text: str) -> str:
    """What a record said, before its signs were hidden."""
    return str.translate(text, SIGNS)


def as_html(markup: str) -> str:
    """HTML whose stand-ins are written as the signs' entities."""
    return re.sub(HIDDEN, lambda match: html.escape(as_said(match[0])), markup)


def as_markdown(text: str) -> str:
    """Markdown whose stand-ins are written as signs where these mean nothing, else as their entities, which are
    never markup; in code, which knows no entities, as signs."""

    def write(match: re.Match[str]) -> str:
        if match["ticks"]:
            said = match[0].strip("`").translate(CODE_SIGNS)
            return f"{match['ticks']}{said}{match['ticks']}"
        sign = as_said(match[0])
        if sign in "\n\t":
            return " "
        before, after = (
            text[text.rfind("\n", 0, match.start()) + 1 : match.start()],
            text[match.end() : match.end() + 1],
        )
        starts = re.fullmatch(r"[\s\d]*", before) and not after.isalnum()
        return f"&#{ord(sign)};" if sign in ALWAYS or starts else sign

    return TO_WRITE.sub(write, text) if is_hidden(text) else text


def inert(said: str) -> str:
    """A text of a record as Markdown that shows it, whatever it says."""
    return as_markdown(hide(said))


def link(shown: str, address: str) -> str:
    """A Markdown link to an address that a record gives. Raises ValueError if it is not one of http or https."""
    said = as_said(address)
    if not ADDRESS.fullmatch(said):
        raise ValueError(f"a page links to http and https alone, not to {said[:100]!r}")
    return f"[{shown}]({quote(said, safe=URL_SIGNS)})"
