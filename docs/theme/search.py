"""Keeps code and formulas out of the search index, which every first visit loads: prose names what they are about."""

from __future__ import annotations

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

LEFT_OUT = ('<div class="language-python highlight"', '<span class="katex"', '<span class="katex-display"')


class SearchExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.postprocessors.register(SearchPostprocessor(md), "search", 5)  # after raw HTML is back, at 30


def makeExtension(**options: object) -> SearchExtension:
    return SearchExtension(**options)


class SearchPostprocessor(Postprocessor):
    def run(self, text: str) -> str:
        for start in LEFT_OUT:
            text = text.replace(start, f"{start} data-search-exclude")
        return text
