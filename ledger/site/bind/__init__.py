"""A built site as a book to take along: PDF and EPUB, in its downloads/, from the pages as they stand there.

Chromium prints the PDF: it sets MathML in the book's own styles, the tests need it anyhow, and it writes outline, links
and tags. WeasyPrint sets no MathML. pandoc reads formulas and tables into a model of its own, and drops the colours of
code and drawings. What Chromium cannot do, page numbers in the contents, takes a second printing. An EPUB holds the
same chapters as files, since HTML, MathML and SVG are what it is made of.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import sync_playwright

from ledger.book import LedgerError, Problem
from ledger.site.bind.epub import write_epub
from ledger.site.bind.pdf import write_pdf
from ledger.site.bundle import LANGUAGES, NAME

HERE = Path(__file__).parent
MAX_BYTES = 20_000_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
COUNTED = ("math", "svg", "figure", "table", "pre")  # formulas, drawings, captions, tables, code
ARTICLE = re.compile(r"<article class=\"md-content__inner.*</article>", re.DOTALL)
NOT_SHOWN = re.compile(r"<details class=\"provenance\".*?</details>|<template\b.*?</template>", re.DOTALL)
FONT = re.compile(r"url\([^)]*math\.woff2\W*\)")
EMPTY = '<!doctype html><html lang="{language}"><body class="md-typeset" data-md-color-scheme="default"></body>'
WORDS = {
    "en": {
        "contents": "Contents",
        "device": "Measured numbers are those of {device}, where nothing else is said.",
        "online": "Online, with the planner, the code of each page and the numbers of other devices:",
        "licence": "Text CC BY 4.0, code MIT.",
    },
    "zh": {
        "contents": "目录",
        "device": "实测数字未另作说明的，都来自 {device}。",
        "online": "在线版有规划器、每页的代码和其他设备的数字：",
        "licence": "文字采用 CC BY 4.0 许可，代码采用 MIT 许可。",
    },
}


def bind(site: Path, language: str) -> list[Path]:
    """Makes the language's PDF and EPUB of a built site, and returns where they lie.

    A formula, drawing, table or block of code of a page that the book lacks is an error, and so is a link within the
    book that leads nowhere.
    """
    if CHROMIUM is None:
        raise LedgerError([Problem(site, 0, "a book needs Chromium: install Debian's package chromium")])
    home = site / LANGUAGES[language]
    epub, pdf = (site / "downloads" / f"{NAME}.{language}.{ending}" for ending in ("epub", "pdf"))
    style = (site / "assets" / "book.css").read_text(encoding="utf-8")
    font = (site / "math" / "math.woff2").read_bytes()
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page()
        page.set_content(EMPTY.format(language=language))
        page.add_script_tag(path=HERE / "gather.js")
        told = page.evaluate("begin", (home / "index.html").read_text(encoding="utf-8"))
        pages = [(home / chapter["path"] / "index.html").read_text(encoding="utf-8") for chapter in told["chapters"]]
        if lost := page.evaluate("gather", pages):
            nowhere = [Problem(home / path / "index.html", 0, f"leads nowhere: {link}") for path, link in lost]
            raise LedgerError(nowhere)
        there = sum((tags(NOT_SHOWN.sub("", ARTICLE.findall(text)[0])) for text in pages), Counter())
        told |= {name: text.format(**told) for name, text in WORDS[language].items()}
        told |= {"language": language, "date": datetime.now(UTC)}
        for theme in (site / "assets" / "stylesheets").glob("main.*.css"):
            page.add_style_tag(content=theme.read_text(encoding="utf-8"))
        page.add_style_tag(content=FONT.sub(f"url(data:font/woff2;base64,{b64encode(font).decode()})", style))
        page.add_style_tag(path=HERE / "pdf.css")
        page.evaluate("open_with", {**told, "date": f"{told['date']:%Y-%m-%d}"})
        write_epub(epub, told, page.evaluate("files"), page.locator(".title-page").screenshot(), style, font)
        page.evaluate("lay")
        page.emulate_media(media="print")
        laid = Counter({kind: page.evaluate("count", kind) for kind in COUNTED})
        write_pdf(pdf, told, page)
    problems = [Problem(epub, 0, lack) for lack in lacking(there, in_epub(epub))]
    problems += [Problem(pdf, 0, lack) for lack in lacking(there, laid)]
    problems += [Problem(path, 0, "more than 20 MB") for path in (epub, pdf) if path.stat().st_size > MAX_BYTES]
    if problems:
        raise LedgerError(problems)
    return [epub, pdf]


def tags(text: str) -> Counter[str]:
    """How many formulas, drawings and so on this HTML has."""
    return Counter(re.findall(rf"<({'|'.join(COUNTED)})\b", text))


def in_epub(path: Path) -> Counter[str]:
    with zipfile.ZipFile(path) as archive:
        files = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".xhtml")]
    return sum(map(tags, files), Counter())


def lacking(there: Counter[str], found: Counter[str]) -> list[str]:
    return [f"{found[kind]} <{kind}> of {there[kind]}" for kind in COUNTED if found[kind] != there[kind]]
