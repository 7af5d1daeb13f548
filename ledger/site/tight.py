"""Scripts and styles as they are sent: without comments and spaces that part nothing, the theme's styles also without
rules that no page uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rcssmin import cssmin
from rjsmin import jsmin

RULE = re.compile(r"(?:(?<=[{};])|^)([^{};@]+)\{[^{}]*\}")
INSIDE = re.compile(
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)  # of a selector's parentheses, which may be a choice or a no
BETWEEN = re.compile(r",(?![^(]*\))")
CLASS = re.compile(r"\.([A-Za-z_][\w-]*)")
COLOUR = re.compile(r"\[data-md-color-(?:primary|accent|scheme)=[\"']?([\w-]+)[\"']?\]")
EMPTY = re.compile(r"@[\w-]+[^{};]*\{\}")
PICTURE = re.compile(r"(--md-[\w-]+):url\((?:\"[^\"]*\"|'[^']*'|[^)\"']*)\);?")
HIDDEN = "--md-admonition-icon--"  # the book shows none of these
OFF = ("md-annotation", "md-version")  # parts of a page that the theme's script knows, and mkdocs.yml does not turn on
KIND = re.compile(rf"{HIDDEN}([\w-]+):")  # of notes, to each of which the theme gives a colour, and the book does not
TOLD = re.compile(r"""\s(?:class|data-md-color-\w+)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
WORD = re.compile(r"[\w-]{4,}")  # what may be a class in a script that is as short as it can be


class Used:
    """The classes and colours that pages and scripts name; a word that ends in a hyphen is the beginning of some."""

    def __init__(self, pages: Iterable[str], scripts: Iterable[str]) -> None:
        texts = ["".join(match.groups("")) for page in pages for match in TOLD.finditer(page)]
        written = {word for script in scripts for word in WORD.findall(script)}
        self.names = {name for text in texts for name in text.split()} | written
        self.beginnings = tuple(word for word in written if word.endswith("-"))

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.beginnings)


def of_use(style: str, used: Used) -> str:
    """The theme's style without rules for what no page has, without those for writing from right to left, for kinds of
    notes and for parts that are off, and without pictures that nothing shows."""

    kinds = {*KIND.findall(style)}

    def is_used(selector: str) -> bool:
        outside = INSIDE.sub("", selector)
        names = [*CLASS.findall(outside), *COLOUR.findall(outside)]
        is_from_right = selector.strip().startswith("[dir=rtl]")
        return (
            not is_from_right
            and kinds.isdisjoint(names)
            and all(name in used and not name.startswith(OFF) for name in names)
        )

    def kept(rule: re.Match[str]) -> str:
        selectors = [selector for selector in BETWEEN.split(rule[1]) if is_used(selector)]
        return ",".join(selectors) + rule[0][len(rule[1]) :] if selectors else ""

    style = RULE.sub(kept, style)
    while style != (style := EMPTY.sub("", style)):
        pass
    shown = set(re.findall(r"var\((--[\w-]+)", style))
    return PICTURE.sub(lambda found: found[0] if found[1] in shown and HIDDEN not in found[1] else "", style)


def tighten(folder: Path) -> None:
    """The book's own scripts and style in a built site; the theme's are tight, and lose what no page uses."""
    assets = folder / "assets"
    for script in assets.glob("*.js"):
        script.write_text(jsmin(script.read_text(encoding="utf-8")), encoding="utf-8")
    style = assets / "book.css"
    style.write_text(cssmin(style.read_text(encoding="utf-8")), encoding="utf-8")
    if themes := [path for name in ("main", "palette") for path in (assets / "stylesheets").glob(f"{name}.*.css")]:
        pages = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html")))
        used = Used(pages, (path.read_text(encoding="utf-8") for path in sorted(assets.rglob("*.js"))))
        for theme in themes:
            theme.write_text(of_use(theme.read_text(encoding="utf-8"), used), encoding="utf-8")
