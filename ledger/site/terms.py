"""Marks where a page first speaks of a term of the glossary: a link to its entry there, whose line is the tooltip.

The glossary page itself is what the terms are read from. A term with parentheses would be ambiguous without them and is
never marked; nor is one on the page that explains it, or one that a page first names in a link or in bold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

ENTRY = re.compile(
    r"^\[(?P<term>.+)\]\((?P<page>[\w-]+)\.md#(?P<place>[\w-]+)\)\{#(?P<id>[\w-]+)\} · (?P<other>.+)\n"
    r":   (?P<line>.+)$",
    re.M,
)
PROSE = {"p", "li"}
EXPLAINS = {"a", "strong", "em"}
SKIPPED = {"code", "data", "span", "figure"}
SKIPPED_CLASSES = {"footnote", "admonition-title", "table-waiting"}


class Entry(NamedTuple):
    term: str  # in the page's language
    page: str  # that explains it
    place: str  # its heading there
    id: str
    other: str  # the term in the other language
    line: str

    @property
    def names(self) -> list[str]:
        """What running text calls it, in either language."""
        return [name for name in re.split(", |，", f"{self.term}, {self.other}") if not re.search("[(（]", name)]

    @property
    def tooltip(self) -> str:
        """The line; in Chinese the term's English name stands before it."""
        english = re.split(r",| \(", self.other)[0] if self.other.isascii() else self.term
        return (english + "：" if english != self.term else "") + self.line.replace("`", "")


def read(glossary: Path) -> list[Entry]:
    return [Entry(**match.groupdict()) for match in ENTRY.finditer(glossary.read_text(encoding="utf-8"))]


class TermExtension(Extension):
    """Option: glossary, the page in the language of the others."""

    def __init__(self, **options: Any) -> None:
        self.config = {"glossary": ["docs/en/glossary.md", "where the terms are"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        processor = TermProcessor(md, read(Path(self.getConfig("glossary"))))
        md.treeprocessors.register(processor, "terms", 2)  # after ids are set, before links are resolved


def makeExtension(**options: Any) -> TermExtension:
    return TermExtension(**options)


class TermProcessor(Treeprocessor):
    def __init__(self, md: Markdown, entries: list[Entry]) -> None:
        super().__init__(md)
        self.entries = entries
        self.by_name = {name.lower(): entry for entry in entries for name in entry.names}
        self.pattern = pattern({name for entry in entries for name in entry.names})
        self.seen: set[Entry] = set()

    def run(self, root: Element) -> None:
        page = next((heading.get("id") for heading in root.iter("h1")), None)
        self.seen = {entry for entry in self.entries if page in (entry.page, "glossary")}
        self.walk(root, prose=False)

    def walk(self, element: Element, prose: bool) -> None:
        """Marks the new terms of an element in the order of reading: its text, then each child and what follows it."""
        prose = prose or element.tag in PROSE
        children = list(element)
        element[:] = []
        if prose:
            element.text = self.mark(element, element.text)
        for child in children:
            element.append(child)
            if child.tag in EXPLAINS:
                self.seen |= {entry for _, entry in self.found("".join(child.itertext()))}
            elif child.tag not in SKIPPED and not SKIPPED_CLASSES & set(child.get("class", "").split()):
                self.walk(child, prose)
            if prose:
                child.tail = self.mark(element, child.tail)

    def mark(self, parent: Element, text: str | None) -> str | None:
        """Appends to parent a link for each new term, with the text up to the next; returns the text before them."""
        before, rest = text, 0
        for match, entry in self.found(text or ""):
            if entry in self.seen:
                continue
            self.seen.add(entry)
            link = Element("a", {"class": "term", "href": f"glossary.md#{entry.id}", "title": entry.tooltip})
            link.text, link.tail = match[0], match.string[match.end() :]
            if rest:
                parent[-1].tail = match.string[rest : match.start()]
            else:
                before = match.string[: match.start()]
            parent.append(link)
            rest = match.end()
        return before

    def found(self, text: str) -> Iterator[tuple[re.Match[str], Entry]]:
        for match in self.pattern.finditer(text):
            yield match, self.by_name[(match["english"] or match["chinese"]).lower()]


def pattern(names: Iterable[str]) -> re.Pattern[str]:
    """The longest name at a place: an English one as a word or its plural, a Chinese one but at a title's start."""
    longest = sorted(names, key=len, reverse=True)
    english, chinese = (
        "|".join(spelled(name) for name in longest if name.isascii() is ascii) for ascii in (True, False)
    )
    return re.compile(rf"(?a:(?<![\w-])(?i:(?P<english>{english}))(?:e?s)?(?![\w-]))|(?<!《)(?P<chinese>{chinese})")


def spelled(name: str) -> str:
    """A name in capitals or lower case, but for words with a capital inside: ZeRO is no zero."""
    words = (
        rf"(?-i:{re.escape(word)})" if re.search("[A-Z]", word[1:]) else re.escape(word) for word in name.split(" ")
    )
    return r"\ ".join(words)
