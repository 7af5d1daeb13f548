"""A drawing that takes its colours from the page, so that one SVG serves light and dark.

Classes that docs/overrides/assets/book.css knows: fill-weights, fill-gradients, fill-optimizer, fill-activations,
fill-logits, fill-communication, fill-other, each for what it says; fill-0 … fill-5, the same colours, for series that
mean none of it; ink, muted, faint, paper (fills); stroke-weights …, stroke-0 …, stroke-ink, stroke-muted (lines).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from xml.etree import ElementTree

TEXT_SIZE = 14
UNSAID = {
    "rx": 0,
    "fill-opacity": 1,
    "text-anchor": "start",
    "font-size": TEXT_SIZE,
}  # what an element has that does not say it
FADED, HALF = 0.3, 0.5  # how full pale colours are: a text in ink can be read upon the first, light and dark
TONES = ("ink", "muted", "faint", "paper")
PALE = ("activations", "communication", "gradients", "2", "3")  # colours that a dark text is legible upon
EXPONENTS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
Box = tuple[float, float, float, float]  # x and y of its upper left corner, width, height
DIGITS = str.maketrans(EXPONENTS, "−0123456789")


def text_width(text: str) -> float:
    """Pixels that a text may take in any font: a Chinese character is as wide as high, a capital less, others half."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    capitals = sum(letter.isupper() or letter == "%" for letter in text)
    return 14 * (wide + 0.72 * capitals + 0.565 * (len(text) - wide - capitals))


def upon(colour: str) -> str:
    """The class of a text that stands upon a colour."""
    return "on-pale" if colour.removeprefix("fill-") in PALE else "paper"


class Drawing:
    """An SVG under construction; coordinates in pixels, text at 14.

    What is 340 wide is not scaled down on a phone; at 432 its texts have 11 pixels there.
    """

    def __init__(self, width: float, height: float) -> None:
        self.root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox="", width=f"{width:g}")
        self.root.set("font-size", f"{TEXT_SIZE}")
        self.resize(height)

    def resize(self, height: float) -> None:
        """Gives the drawing another height."""
        self.root.set("viewBox", f"0 0 {self.root.get('width')} {max(height, 1):g}")

    def add(self, tag: str, css: str = "", content: str | None = None, **attributes: float | str) -> None:
        """One element; underscores in attribute names become hyphens, floats are kept to two decimals.

        What holds unsaid is left out.
        """
        element = ElementTree.SubElement(self.root, tag)
        if css:
            element.set("class", css)
        for name, value in ((name.replace("_", "-"), value) for name, value in attributes.items()):
            if value != UNSAID.get(name):
                element.set(name, value if isinstance(value, str) else f"{round(value, 2):g}")
        element.text = content

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, rx: float = 0, fill_opacity: float = 1
    ) -> None:
        self.add("rect", css, x=x, y=y, width=width, height=height, rx=rx, fill_opacity=fill_opacity)

    def rects(self, boxes: Iterable[Box], css: str, **attributes: float | str) -> None:
        """Many rectangles in one path: a quarter of the characters."""
        numbers = ((round(x, 1), round(y, 1), round(width, 2), round(height, 2)) for x, y, width, height in boxes)
        path = "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h-{width:g}z" for x, y, width, height in numbers)
        if path:
            self.add("path", css, None, d=path, **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str = "stroke-ink") -> None:
        self.add("line", css, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, d: str, css: str = "stroke-ink") -> None:
        self.add("path", css, d=d)

    def circle(self, x: float, y: float, r: float, css: str) -> None:
        self.add("circle", css, cx=x, cy=y, r=r)

    def rings(self, places: Iterable[tuple[float, float]], r: float, css: str) -> None:
        """Circles in one path, two half circles each, at whole pixels."""
        path = "".join(f"M{x - r:.0f} {y:.0f}a{r} {r} 0 1 0 {2 * r} 0 {r} {r} 0 1 0-{2 * r} 0" for x, y in places)
        self.add("path", css, d=path)

    def text(
        self, x: float, y: float, text: str, css: str = "ink", anchor: str = "start", size: float = TEXT_SIZE
    ) -> None:
        """Exponents of ten are set as raised digits: the letters ⁻⁰¹²³ are small, and missing in many fonts."""
        if not text:
            return
        plain, *raised = re.split(f"(?<=10)([{EXPONENTS}]+)", text)
        self.add("text", css, plain, x=x, y=y, text_anchor=anchor, font_size=size)
        for index, part in enumerate(part for part in raised if part):
            shift = {"dy": f"{size * (0.4 if index % 2 else -0.4):g}"}
            ElementTree.SubElement(self.root[-1], "tspan", shift).text = part.translate(DIGITS)

    def legend(self, entries: Iterable[tuple[str, str, float]], top: float = 2) -> float:
        """A square for each colour with what it says, from left to right and line by line; returns where these end.

        An entry is a class, its word, and how full the colour is. What is faint has an outline besides.
        """
        x = 0.0
        for css, word, opacity in entries:
            width = 20 + text_width(word)
            if x and x + width > float(self.root.attrib["width"]):
                x, top = 0.0, top + 22
            if css == "faint":
                self.rect(x, top, 14, 14, "stroke-muted")
            self.rect(x, top, 14, 14, css, fill_opacity=opacity)
            self.text(x + 20, top + 12, word)
            x += width + 16
        return top + 22

    def __str__(self) -> str:
        return ElementTree.tostring(self.root, encoding="unicode")
