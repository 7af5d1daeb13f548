"""Makes pages light: code without spans that nothing needs, code and formulas left out of the search index.

A third of a page's elements would be spans of names and brackets in the colour of all code, a sixth the lines of code
to which no number leads; neighbours of one colour share a span. Every search loads the index, and prose names what its
code is about. And in a table's cell a product stays in one line, and code breaks where its words end.
"""

from __future__ import annotations

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

PLAIN_SPAN = re.compile(r'<span class="(?:n|p|o|w|kc|sa|fm|vm)">([^<]*)</span>')
ONE_COLOUR = {"kn": "k", "s1": "s2", "si": "s2", "mf": "mi", "bp": "nb", "nn": "nf", "nc": "nf", "ne": "nf", "sd": "c1"}
SPAN = re.compile(rf'<span class="({"|".join(ONE_COLOUR)})">')
COLOURS = "|".join(dict.fromkeys(ONE_COLOUR.values()))
NEIGHBOURS = re.compile(rf'<span class="({COLOURS})">([^<]*)</span>((?: *<span class="\1">[^<]*</span>)+)')
TAG = re.compile(r"<[^>]*>")
LINE = re.compile(r'<span id="(__span-\d+-\d+)">(.*?\n)</span>')
PRODUCT = re.compile(r"<td>[\d, ×]+</td>")  # where a phone would set each factor into its own line
CODE_CELL = re.compile(r"<t[dh][^>]*>(?:(?!</t[dh]>).)*<code>.*?</t[dh]>", re.S)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
WORD_END = re.compile(r"(?<=[ _=.,:/])(?=[\w\"&])|(?<=[a-z])(?=[A-Z][a-z])")
LED_TO = re.compile(r"#(__span-\d+-\d+)")
NOT_SEARCHED = ('<div class="language-python highlight"', "<math")


class LightenExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.postprocessors.register(LightenPostprocessor(md), "lighten", 5)  # after raw HTML is back, at 30


def makeExtension(**options: object) -> LightenExtension:
    return LightenExtension(**options)


class LightenPostprocessor(Postprocessor):
    def run(self, text: str) -> str:
        text = PLAIN_SPAN.sub(r"\1", text)
        text = SPAN.sub(lambda span: f'<span class="{ONE_COLOUR[span[1]]}">', text)
        text = NEIGHBOURS.sub(lambda span: f'<span class="{span[1]}">{span[2]}{TAG.sub("", span[3])}</span>', text)
        led_to = {*LED_TO.findall(text)}
        text = LINE.sub(lambda line: line[0] if line[1] in led_to else line[2], text)
        text = PRODUCT.sub(lambda cell: cell[0].replace(" × ", "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"), text)
        text = CODE_CELL.sub(lambda cell: CODE.sub(lambda code: WORD_END.sub("<wbr>", code[0]), cell[0]), text)
        for start in NOT_SEARCHED:
            text = text.replace(start, f"{start} data-search-exclude")
        return text
