"""The search finds the right page first, for what people type, with the site's own index, worker and script."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jieba
import pytest
from playwright.sync_api import Page, expect

from tests.conftest import ROOT

ASKED = tomllib.loads((Path(__file__).with_name("search.toml")).read_text(encoding="utf-8"))
WORDS = ROOT / "docs" / "words.zh.txt"
SEARCH = """async (typed) => {  // as the theme asks its worker, which main.html has wrapped
  const { base, search } = JSON.parse(document.getElementById("__config").textContent);
  const address = new URL(base + "/", location), worker = new Worker(new URL(search, address).href);
  const index = await (await fetch(new URL("search/search_index.json", address))).json();
  const answered = (message) => new Promise((done) => {
    worker.addEventListener("message", ({ data }) => done(data.data), { once: true });
    worker.postMessage(message);
  });
  await answered({ type: 0, data: { ...index, options: { suggest: true } } });
  const found = {};
  for (const each of typed) {
    const { items } = await answered({ type: 2, data: each });
    found[each] = items.map(([{ location }]) => location.replace(/\\/?(#.*)?$/, ""));
  }
  return found;
}"""


@pytest.mark.parametrize("language", ASKED)
@pytest.mark.usefixtures("site")
def test_the_right_page_stands_first(page: Page, address: str, language: str) -> None:
    page.goto(address + ("zh/" if language == "zh" else "") + "sheet/")
    found = page.evaluate(SEARCH, list(ASKED[language]))
    wrong = {typed: pages[:3] for typed, pages in found.items() if not set(pages[:1]) & set(ASKED[language][typed])}
    assert wrong == {}


@pytest.mark.usefixtures("site")
def test_a_question_without_spaces_is_answered_as_it_is_typed(page: Page, address: str) -> None:
    page.goto(address + "zh/sheet/")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("为什么是6ND", delay=20)
    first = page.locator(".md-search-result__item").first
    expect(first).to_contain_text("梯度", timeout=30_000)
    expect(first.locator(".md-tags").first).to_be_hidden()  # words to find a page by are not words to read


def test_pages_are_searched_without_the_character_that_ends_a_word() -> None:
    (end,) = re.findall(r'const END = "(.)"', (ROOT / "docs/overrides/assets/search.js").read_text(encoding="utf-8"))
    assert not [str(path) for path in (ROOT / "docs").rglob("*.md") if end in path.read_text(encoding="utf-8")]


def test_the_dictionary_holds_what_is_said_and_would_be_cut_apart() -> None:
    words = [line.split()[0] for line in WORDS.read_text(encoding="utf-8").splitlines()]
    pages = (path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "zh").glob("*.md"))
    said = {run for page in pages for run in re.findall("[一-龥]+", page)}
    plain, own = jieba.Tokenizer(), jieba.Tokenizer()
    with WORDS.open(encoding="utf-8") as lines:
        own.load_userdict(lines)
    for word in words:
        cut = [run for run in said if word in run and word not in plain.cut(run)]
        assert cut, f"no page says {word}, or jieba knows it"
        assert any(word in own.cut(run) for run in cut), f"{word} is cut apart as before"
