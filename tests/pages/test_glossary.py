"""The glossary holds every term in both languages and leads to its explanation; a page marks a term once, in prose."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown
from playwright.sync_api import Browser, Page, expect

from ledger.book import Book
from ledger.site.chapter import Chapter
from ledger.site.terms import Entry, read
from tests.conftest import ROOT

BOOK = Book(ROOT)
GLOSSARY = {language: BOOK.docs / language / "glossary.md" for language in ("en", "zh")}
ENTRIES = {language: read(path) for language, path in GLOSSARY.items()}


# The page


@pytest.mark.parametrize("language", ENTRIES)
def test_every_line_is_an_entry_with_names_of_its_own(language: str) -> None:
    entries = ENTRIES[language]
    lines = [line for line in GLOSSARY[language].read_text(encoding="utf-8").splitlines() if line.startswith(":")]
    assert [entry.line for entry in entries] == [line.removeprefix(":   ") for line in lines]
    for names in ([entry.id for entry in entries], [name.lower() for entry in entries for name in set(entry.names)]):
        assert sorted(set(names)) == sorted(names)


def test_every_term_stands_in_both_languages() -> None:
    english, chinese = ENTRIES["en"], ENTRIES["zh"]
    assert [(e.id, e.term, e.other) for e in english] == [(e.id, e.other, e.term) for e in chinese]
    assert [(e.id, e.page, e.place) for e in english] == [(e.id, e.page, e.place) for e in chinese]


@pytest.mark.parametrize("language", ENTRIES)
def test_every_term_leads_to_a_place_that_is_there_on_a_page_that_names_it(language: str) -> None:
    wrong = []
    for entry in ENTRIES[language]:
        path = BOOK.docs / language / f"{entry.page}.md"
        if entry.place not in {heading.id for heading in Chapter.read(path).headings}:
            wrong.append(f"{entry.id}: {path} has no heading {{#{entry.place}}}")
        text = " ".join(path.read_text(encoding="utf-8").lower().split())
        bare = re.sub(r"\s*[(（].*?[)）]", "", entry.term.lower())  # for those in parentheses, which have no names
        if not any(name in text for name in re.split(", |，", bare)):
            wrong.append(f"{entry.id}: {path} never says {bare}")
    assert wrong == []


# One word for one thing, of several that were in use; a pattern leaves out where the word is right in another sense.
RATHER = {
    "读数(?<!位读数)": "实测值",
    "走环": "环形算法",
    "打分": "参考模型前向、算对数概率、算分数",
    "脊点": "拐点",
    "残差流(?<!也译作残差流)": "残差通路",
    "退出状态": "退出码",
    "存盘": "保存",
    "速查单": "速查表",
    "延迟": "时延",
    "每词元时延": "每 token 时延",
    "混合切分": "混合分片",
    "硬件浮点利用率": "硬件算力利用率",
    "本设备": "所选设备",
    "批次": "一批、批量",
    "虚设": "fake 进程组模拟",
    "切口": "切分点",
    "逐块数出": "统计",
    "别人公布": "公开",
    "布局": "切法（并行的）、排列（内存里的）",
    "采样阶段": "rollout 阶段",
    "每卡时": "每卡每小时",
    "派活": "提交 kernel",
    "(?<!受带宽限制，)受限于带宽": "受带宽限制",
    "(?<!受算力限制，)受限于计算": "受算力限制",
    "全切分数据并行": "完全分片数据并行",
    "从前(?![往面向])": "此前",
}


def test_chinese_says_one_thing_by_one_word() -> None:
    pages = [*(BOOK.docs / "zh").glob("*.md"), *(BOOK.docs / "labs").glob("*.zh.md")]
    wrong = []
    for path in pages:
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        wrong += [
            f"{path}:{number}: {word[0]}; rather {right}"
            for number, line in lines
            if not line.startswith("tags: ")  # by which people may look for it
            for pattern, right in RATHER.items()
            for word in re.finditer(pattern, line)
        ]
    assert wrong == []


def test_chinese_writes_four_digits_without_a_comma() -> None:
    """As what is filled in is written: 8192, and 131,072."""
    wrong = [
        f"{path}:{line}: {number[0]}"
        for path in (BOOK.docs / "zh").glob("*.md")
        for line, text in Chapter.read(path).paragraphs
        for number in re.finditer(r"(?<![\d,.])\d,\d{3}(?![\d,])", re.sub(r"“[^”]*”|`[^`]*`", "", text))
    ]
    assert wrong == []


# What is marked

SMALL = """# Glossary {#glossary}

[view](views.md#views){#view} · 视图
:   Another walk.

[batch](data.md#batch){#batch} · 批（数据的）
:   Samples.

[weight (of a model)](models.md#weight){#weight} · 权重
:   A number.

[view cache](views.md#cache){#cache} · 视图缓存
:   For `view`.

[SoME, SoME views](some.md#some){#some} · SoME
:   A name.
"""
UNMARKED = {  # with how often a line of prose below is marked then
    "code": ("`view`", 1),
    "a code block": ("```\nview\n```", 1),
    "a formula": ("$view$ and\n\n$$\nview\n$$", 1),
    "a heading": ("## A view", 1),
    "a table": ("| a |\n|---|\n| view |", 1),
    "a title": ("/// note | A view\na\n///", 1),
    "another word": ("Review the viewer, non-view.", 1),
    "raw HTML": ("<p>view</p>", 1),
    "a note": ("a[^n]\n\n[^n]: a batch", 1),
    "a link": ("[the view](#x)", 0),
    "bold": ("A **view**.", 0),
    "italics": ("A *view*.", 0),
    "a view before it": ("Views and", 1),
    "its own page": ("# Views {#views}", 0),
    "the glossary": ("# Glossary {#glossary}", 0),
}


@pytest.fixture
def markdown(tmp_path: Path) -> Markdown:
    path = tmp_path / "glossary.md"
    path.write_text(SMALL, encoding="utf-8")
    names = [
        "attr_list",
        "footnotes",
        "tables",
        "toc",
        "pymdownx.superfences",
        "pymdownx.arithmatex",
        "pymdownx.blocks.admonition",
    ]
    options: dict[str, dict[str, Any]] = {
        "pymdownx.arithmatex": {"generic": True},
        "ledger.site.terms": {"glossary": str(path)},
    }
    return Markdown(extensions=[*names, "ledger.site.terms"], extension_configs=options)


def marked(html: str) -> list[tuple[str, ...]]:
    return re.findall(r'<a class="term" href="glossary\.md#([^"]*)" title="([^"]*)">([^<]*)</a>', html)


@pytest.mark.parametrize("place", UNMARKED)
def test_a_term_is_left_alone_in(markdown: Markdown, place: str) -> None:
    text, times = UNMARKED[place]
    html = markdown.convert(f"{text}\n\nThen a view, a weight, and a view.\n")
    assert [id for id, _, _ in marked(html)] == ["view"] * times
    if times and place != "a view before it":
        assert '<p>Then a <a class="term" href="glossary.md#view"' in html


def test_a_term_is_found_in_every_form(markdown: Markdown) -> None:
    html = markdown.convert("- Batches of *some* views\n  and a View cache.\n")
    assert marked(html) == [
        ("batch", "Samples.", "Batches"),
        ("view", "Another walk.", "views"),
        ("cache", "For view.", "View cache"),
    ]
    html = markdown.convert("Some of SOME, and then Views of some: SoME Views.")
    assert [text for _, _, text in marked(html)] == ["Views", "SoME Views"], "a capital inside is no common word"
    html = markdown.convert("《视图》里，视图缓存与视图，权重和批。Batch 也是。")
    assert [text for _, _, text in marked(html)] == ["视图缓存", "视图", "权重", "Batch"]
    assert re.sub("<[^>]*>", "", html) == "《视图》里，视图缓存与视图，权重和批。Batch 也是。"


def test_a_chinese_term_tells_its_english_name() -> None:
    entry = Entry("视图", "views", "strides", "view", "view (of a tensor), views", "一种 `走法`。")
    assert entry.tooltip == "view：一种 走法。"


# The site


class Marks(HTMLParser):
    """The terms that a page marks, and what each stands inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.found: list[tuple[str, list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("class") == "term":
            self.found.append((attributes["href"] or "", list(self.inside)))
        if tag not in ("meta", "link", "input", "img", "br", "hr", "path", "wbr"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass


def test_a_page_marks_a_term_once_and_in_prose_alone(site: Path) -> None:
    not_prose = {"a", "code", "pre", "data", "table", "figure", "svg", "h1", "h2", "h3", "nav", "form"}
    pages = {path: Marks(path.read_text(encoding="utf-8")).found for path in site.rglob("index.html")}
    wrong = []
    for path, found in pages.items():
        wrong += [f"{path}: {href} in {not_prose & set(inside)}" for href, inside in found if not_prose & set(inside)]
        wrong += [f"{path}: {href} {times} times" for href, times in Counter(h for h, _ in found).items() if times > 1]
    assert wrong == []
    assert sum(map(len, pages.values())) > 5 * len(pages)


@pytest.mark.parametrize("language", ENTRIES)
def test_the_search_index_knows_a_line_from_the_glossary_alone(site: Path, language: str) -> None:
    index = json.loads((site / ("" if language == "en" else language) / "search/search_index.json").read_text())
    texts = [entry["text"] for entry in index["docs"] if not entry["location"].startswith("glossary/")]
    written = [
        path.read_text(encoding="utf-8") for path in (BOOK.docs / language).glob("*.md") if path.stem != "glossary"
    ]
    searched, source = (re.sub(r"[\s\u200b]+", "", "".join(parts)) for parts in (texts, written))
    lines = {re.sub(r"\s+", "", entry.line) for entry in ENTRIES[language]}
    assert [line for line in lines if line in searched and line not in source] == []


# The card


@pytest.mark.usefixtures("site")
def test_a_card_opens_by_mouse_and_by_key(page: Page, address: str) -> None:
    page.goto(address + "two-questions/")
    term, card = page.locator("a.term").nth(1), page.get_by_role("tooltip")
    line = term.get_attribute("title") or ""
    term.hover()
    expect(card).to_have_text(line)
    expect(term).to_have_attribute("title", "")  # else the browser says it a second time
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    expect(term).to_have_attribute("title", line)
    page.mouse.move(0, 0)
    page.locator("a.term").first.focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if term.evaluate("term => term === document.activeElement"):
            break
    expect(card).to_have_text(line)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/glossary/#[\w-]+$"))


@pytest.mark.usefixtures("site")
def test_a_first_tap_opens_the_card_a_second_follows_the_link(browser: Browser, address: str) -> None:
    with browser.new_context(has_touch=True) as context:
        page = context.new_page()
        page.goto(address + "zh/two-questions/")
        term = page.locator("a.term").first
        line = term.get_attribute("title") or ""
        term.tap()
        expect(page.get_by_role("tooltip")).to_have_text(line)
        expect(page).to_have_url(address + "zh/two-questions/")
        term.tap()
        expect(page).to_have_url(re.compile(r"/zh/glossary/#[\w-]+$"))
        expect(page.get_by_role("tooltip")).to_have_count(0)
