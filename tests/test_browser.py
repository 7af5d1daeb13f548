"""In a real browser: switches, search, formulas, copy buttons, a phone's width; no error, no request elsewhere."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PAGES = ["", "two-questions/", "how-numbers-are-made/", "storage-and-strides/"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def server(site: Path, address: str) -> Iterator[None]:
    """Serves the site at the address it was built for: instant navigation works at that one alone."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", urlparse(address).port or 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install Debian's package chromium")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that fails its test on any error in the console and any request to another host."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    mistakes: list[str] = []
    page.on("console", lambda message: mistakes.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("response", lambda r: mistakes.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else mistakes.append(r.url))
    yield page
    context.close()
    assert mistakes == []


def test_the_language_switch_keeps_the_page(page: Page, address: str) -> None:
    page.goto(address + "storage-and-strides/")
    page.get_by_role("link", name="中文").click()
    expect(page).to_have_url(address + "zh/storage-and-strides/")
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    page.get_by_role("link", name="English").click()
    expect(page).to_have_url(address + "storage-and-strides/")


@pytest.mark.parametrize(("path", "word", "expected"), [("", "stride", "strides"), ("zh/", "步幅", "步幅")])
def test_search_finds_a_word_of_its_language(page: Page, address: str, path: str, word: str, expected: str) -> None:
    page.goto(address + path + "two-questions/")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially(word, delay=20)
    result = page.locator(".md-search-result__item").first
    expect(result).to_contain_text(expected, ignore_case=True, timeout=10_000)


@pytest.mark.parametrize("path", PAGES)
def test_formulas_are_set_without_a_script(browser: Browser, address: str, path: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + path)
    assert page.locator(".katex math").count() > 0
    assert page.locator("data.exact").count() > 3
    assert "—" not in page.locator("data.exact").all_inner_texts()
    context.close()


def test_a_copy_button_copies_the_code_as_it_stands_in_the_snippet(page: Page, address: str) -> None:
    page.goto(address + "storage-and-strides/")
    page.locator(".md-clipboard, .md-code__button").locator("visible=true").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert (
        copied.strip()
        and copied.strip() in (Path(__file__).parent.parent / "snippets/storage_and_strides.py").read_text()
    )


def test_dark_and_light_follow_the_switch(page: Page, address: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(address + "two-questions/")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.locator("label[for^=__palette]:visible").first.click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert page.evaluate(background) != light


@pytest.mark.parametrize("language", ["", "zh/"])
@pytest.mark.parametrize("path", PAGES)
def test_a_phone_shows_the_page_without_scrolling_sideways(page: Page, address: str, language: str, path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(address + language + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["", "zh/"])
@pytest.mark.parametrize("path", PAGES)
def test_no_accessibility_violation(
    page: Page, address: str, path: str, language: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(address + language + path)
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {v['help']}: {[node['html'][:150] for node in v['nodes'][:3]]}" for v in found] == []
