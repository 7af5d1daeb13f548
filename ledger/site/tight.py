"""Scripts and styles as they are sent: without comments, and without spaces that part nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TOKEN = re.compile(  # a comment; a text; a pattern, where no number can stand; what a template begins or ends with
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<pattern>(?<=[(,=:?!&|\[{;])\s*/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*)|(?P<sign>[`{}])""",
    re.DOTALL,
)
CHUNK = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{)", re.DOTALL)  # of a template, with what ends it
SPACE = re.compile(r"(?<=[+-]) (?=[+-])|\s*([^\w\s$])(?:(?<=[+-])(?! [+-])\s*|(?<![+-])\s*)|\s+")
LAST = re.compile(r";(?=\})|(?<=[^,\[(]),(?=[)\]}])")  # the sign after a last statement, a last item
PARENTHESES = re.compile(r"(?<![\w$)\]])\(([A-Za-z]\w*)\)=>")  # of a single parameter
STYLE = ((r"/\*.*?\*/", ""), (r"\s*([{};,])\s*", r"\1"), (r":\s+", ":"), (r";}", "}"))
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
    """The theme's style without rules for what no page has, without those for writing from right to left, and without
    pictures that nothing shows."""

    def is_used(selector: str) -> bool:
        outside = INSIDE.sub("", selector)
        names = [*CLASS.findall(outside), *COLOUR.findall(outside)]
        return not selector.strip().startswith("[dir=rtl]") and all(name in used for name in names)

    def kept(rule: re.Match[str]) -> str:
        selectors = [selector for selector in BETWEEN.split(rule[1]) if is_used(selector)]
        return ",".join(selectors) + rule[0][len(rule[1]) :] if selectors else ""

    style = RULE.sub(kept, style)
    while style != (style := EMPTY.sub("", style)):
        pass
    shown = set(re.findall(r"var\((--[\w-]+)", style))
    return PICTURE.sub(lambda found: found[0] if found[1] in shown and HIDDEN not in found[1] else "", style)


def tighten(folder: Path) -> None:
    """The book's own script and style in a built site; the theme's are tight, and lose what no page uses."""
    assets = folder / "assets"
    script, style = assets / "book.js", assets / "book.css"
    script.write_text(tight(script.read_text(encoding="utf-8")), encoding="utf-8")
    text = style.read_text(encoding="utf-8")
    for pattern, short in STYLE:
        text = re.sub(pattern, short, text, flags=re.DOTALL)
    style.write_text(text.strip(), encoding="utf-8")
    if themes := [path for name in ("main", "palette") for path in (assets / "stylesheets").glob(f"{name}.*.css")]:
        pages = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html")))
        used = Used(pages, (path.read_text(encoding="utf-8") for path in sorted(assets.rglob("*.js"))))
        for theme in themes:
            theme.write_text(of_use(theme.read_text(encoding="utf-8"), used), encoding="utf-8")


def tokens(script: str) -> Iterator[tuple[bool, str]]:
    """The parts of a script without its comments: whether one is code, and the part."""
    at, depth, inside = 0, 0, list[int]()  # inside: how deep in braces each template goes on
    while match := TOKEN.search(script, at):
        yield True, script[at : match.start()]
        at, sign = match.end(), match["sign"]
        depth += {"{": 1, "}": -1}.get(sign or "", 0)
        if sign == "`" or (sign == "}" and inside and depth == inside[-1]):
            chunk = CHUNK.match(script, at)
            if not chunk:
                raise ValueError(f"a template does not end: {script[at : at + 60]}")
            at = chunk.end()
            if sign == "}":
                inside.pop()
            if chunk[0].endswith("{"):
                inside.append(depth)
                depth += 1
            yield False, sign + chunk[0]
        elif sign:
            yield True, sign
        elif not match["comment"]:
            yield False, match[0].strip()
    yield True, script[at:]


def tight(script: str) -> str:
    """A script without comments, and without spaces that part nothing."""
    kept: list[list[str]] = []
    code = ""
    for is_code, part in tokens(script):
        if is_code:
            code += part
        else:
            kept.append([code, part])
            code = ""
    kept.append([code, ""])
    spaceless = [(SPACE.sub(lambda match: match[1] or " ", code), part) for code, part in kept]
    return "".join(PARENTHESES.sub(r"\1=>", LAST.sub("", code)) + part for code, part in spaceless).strip()
