"""The built site is whole: strict, nothing unfilled, no broken link, no request to another host, every block shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest

from ledger.book import Book
from ledger.site.chapter import Chapter
from tests.chapters import published
from tests.conftest import ROOT

BOOK = Book(ROOT)
CHAPTERS = [(path.relative_to(BOOK.docs).parts[0], path.stem, path) for path in BOOK.chapters()]


class Page(HTMLParser):
    """What a page links to, loads, names and says outside of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.prose = ""
        self.titles: list[str] = []
        self.python_blocks = 0
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag not in ("meta", "link", "input", "img", "br", "hr", "path", "wbr"):
            self._inside.append(tag)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        self.titles += [attributes["title"]] if "title" in attributes else []
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loads.append(attributes["href"])
        if tag in ("script", "img", "iframe", "source", "video", "audio") and attributes.get("src"):
            self.loads.append(attributes["src"])
        if "language-python" in attributes.get("class", "").split() and tag == "div":
            self.python_blocks += 1

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"code", "script", "style", "annotation"} & set(self._inside):
            self.prose += data


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def built(site: Path, language: str, stem: str) -> Path:
    folder = site if language == "en" else site / language
    return folder / "index.html" if stem == "index" else folder / stem / "index.html"


def test_every_chapter_is_built(site: Path) -> None:
    assert [str(path) for language, stem, path in CHAPTERS if not built(site, language, stem).is_file()] == []


def test_nothing_is_left_unfilled(pages: dict[Path, Page]) -> None:
    left = [
        f"{path}: {sign}"
        for path, page in pages.items()
        for sign in ("{{", "}}", "8<", "///", "[^")
        if sign in page.prose
    ]
    assert left == []


def test_no_title_on_a_chinese_page_is_english(site: Path, pages: dict[Path, Page]) -> None:
    titles = Counter(title for path, page in pages.items() if path.is_relative_to(site / "zh") for title in page.titles)
    assert [title for title in titles if re.fullmatch(r"[A-Z][a-z]+( \w+)+", title)] == []
    assert titles["本节链接"] > 100 and titles["返回正文（注 3）"] > 10


@pytest.mark.parametrize(
    ("language", "stem", "path"), CHAPTERS, ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_every_code_block_of_the_source_is_shown(
    site: Path, pages: dict[Path, Page], language: str, stem: str, path: Path
) -> None:
    chapter = Chapter.parse(published(path.read_text(encoding="utf-8")), path)
    collected = sum(fence.language == "python" for fence in chapter.fences)
    assert pages[built(site, language, stem)].python_blocks == collected


def test_no_link_and_no_anchor_is_broken(site: Path, pages: dict[Path, Page], address: str) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if path.name == "404.html" and not link.startswith(("/", "http")):
                continue
            location, anchor = urldefrag(link.replace(address, "/", 1))
            if urlparse(location).scheme:
                continue
            location = location.partition("?")[0]  # a plan's options, a search's words
            start = site if location.startswith("/") else path.parent
            target = start / unquote(location).lstrip("/") if location else path
            target = (target / "index.html" if target.is_dir() else target).resolve()
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].ids | {"__search"}):
                broken.append(f"{path.relative_to(site)} → {link}")
    assert broken == []


def test_no_page_asks_another_host(site: Path, pages: dict[Path, Page], address: str) -> None:
    asked = [
        f"{path}: {url}"
        for path, page in pages.items()
        for url in page.loads
        if urlparse(url.removeprefix(address)).netloc
    ]
    for style in site.rglob("*.css"):
        asked += [
            f"{style}: {url}"
            for url in re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", style.read_text(encoding="utf-8"))
        ]
    assert asked == []


def test_both_languages_point_at_each_other(site: Path, address: str) -> None:
    for language, stem, _ in CHAPTERS:
        text = built(site, language, stem).read_text(encoding="utf-8")
        tail = "" if stem == "index" else f"{stem}/"
        for code, target in (("en", f"{address}{tail}"), ("zh-Hans", f"{address}zh/{tail}")):
            assert f'hreflang="{code}" href="{target}"' in text, (language, stem, code)


def test_each_language_has_a_search_index_of_its_own(site: Path) -> None:
    english, chinese = (json.loads((site / path / "search/search_index.json").read_text()) for path in ("", "zh"))
    assert (english["config"]["lang"], chinese["config"]["lang"]) == (["en"], ["zh"])
    texts = ["".join(entry["title"] + entry["text"] for entry in index["docs"]) for index in (english, chinese)]
    assert "步\u200b幅" not in texts[1], "the dictionary cuts the book's own terms apart"
    assert "练习" in texts[1] and "练习" not in texts[0]  # the glossary names terms in both
    assert not any("__span" in text or "ledger-data" in text for text in texts), "code and data are no text to search"


def test_no_sentence_of_the_book_shows_a_dash(site: Path) -> None:
    """As it is published: where the default has no number, another device has, or the part waits."""
    found = []
    for path in sorted(site.rglob("index.html")):
        article = path.read_text(encoding="utf-8").partition("<article")[2]
        sentences = re.sub(r"<(table|template)\b.*?</\1>", "", article, flags=re.DOTALL)
        found += [
            f"{path.relative_to(site)}: {number}" for number in re.findall(r"<data [^>]*\babsent\b[^>]*>", sentences)
        ]
    assert found == []
