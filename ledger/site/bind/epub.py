"""Chapters as an EPUB 3: a zip of XHTML files, a style sheet and what lists them."""

from __future__ import annotations

import re
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

STYLE = Path(__file__).with_name("epub.css")
COLOUR = re.compile(r"(--[\w-]+):\s*(#\w+)")
VARIABLE = re.compile(r"var\((--[\w-]+)\)")
DRAWN = re.compile(r"svg [.\[][^{}]*\{[^}]*\}")  # a rule of drawings
CONTAINER = """\
<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
PACKAGE = """\
<?xml version="1.0" encoding="UTF-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="{language}">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">urn:uuid:{identifier}</dc:identifier>
<dc:title>{title}</dc:title>
<dc:language>{language}</dc:language>
<dc:description>{description}</dc:description>
<dc:source>{address}</dc:source>
<dc:rights>{licence}</dc:rights>
<meta property="dcterms:modified">{date:%Y-%m-%dT%H:%M:%SZ}</meta>
</metadata>
<manifest>
<item id="contents" href="contents.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="style" href="book.css" media-type="text/css"/>
<item id="font" href="math.woff2" media-type="font/woff2"/>
<item id="cover" href="cover.png" media-type="image/png" properties="cover-image"/>
{items}
</manifest>
<spine>
<itemref idref="contents"/>
{order}
</spine>
</package>
"""
PAGE = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="{language}"
xml:lang="{language}">
<head><title>{title}</title><link rel="stylesheet" href="book.css"/></head>
<body>
{body}
</body>
</html>
"""


def write_epub(
    path: Path, told: Mapping[str, Any], chapters: list[dict[str, Any]], cover: bytes, style: str, font: bytes
) -> None:
    """`told` is what the title page says; a chapter has its name, title, part, sections and xhtml; colours are those of
    the site's `style`."""
    said = {name: escape(text) if isinstance(text, str) else text for name, text in told.items()}
    items = "\n".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"{_properties(chapter["xhtml"])}/>'
        for chapter in chapters
        for name in [chapter["name"]]
    )
    order = "\n".join(f'<itemref idref="{chapter["name"]}"/>' for chapter in chapters)
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, told["address"])
    files: dict[str, str | bytes] = {
        "META-INF/container.xml": CONTAINER,
        "book/book.opf": PACKAGE.format(**said, identifier=identifier, items=items, order=order),
        "book/contents.xhtml": PAGE.format(
            title=said["title"],
            language=told["language"],
            body=f'<nav epub:type="toc"><h1>{said["contents"]}</h1>{_parts(chapters)}</nav>',
        ),
        "book/book.css": _style(style),
        "book/cover.png": cover,
        "book/math.woff2": font,
    }
    for chapter in chapters:
        title = escape(chapter["title"])
        text = PAGE.format(title=title, language=told["language"], body=chapter["xhtml"])
        files[f"book/{chapter['name']}.xhtml"] = text
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)  # first, and as it is
        for name, content in files.items():
            archive.writestr(name, content)


def _properties(xhtml: str) -> str:
    """Of a file, what not every reader can show."""
    has = {"mathml": "<math", "svg": "<svg"}
    found = [name for name, sign in has.items() if sign in xhtml]
    return f' properties="{" ".join(found)}"' if found else ""


def _style(style: str) -> str:
    """The book's style sheet and the site's rules for drawings, with colours in place of their names, which few readers
    know."""
    colours: dict[str, str] = {}
    for name, colour in COLOUR.findall(style):
        colours.setdefault(name, colour)  # the first scheme is the light one
    own = "\n".join([STYLE.read_text(encoding="utf-8"), *DRAWN.findall(style)])
    return VARIABLE.sub(lambda match: colours[match[1]], own)


def _parts(chapters: list[dict[str, Any]]) -> str:
    """The contents: parts, their chapters, and the sections of these."""
    found = []
    for part, inside in groupby(chapters, key=lambda chapter: chapter["part"]):
        entries = [_entry(chapter["name"], chapter["name"], chapter["title"], _sections(chapter)) for chapter in inside]
        found += [f"<li><span>{escape(part)}</span>{_listed(entries)}</li>"] if part else entries
    return _listed(found)


def _sections(chapter: dict[str, Any]) -> str:
    return _listed(_entry(chapter["name"], section["id"], section["title"]) for section in chapter["sections"])


def _entry(name: str, place: str, title: str, inside: str = "") -> str:
    return f'<li><a href="{name}.xhtml#{place}">{escape(title)}</a>{inside}</li>'


def _listed(entries: Iterable[str]) -> str:
    inside = "".join(entries)
    return f"<ol>{inside}</ol>" if inside else ""
