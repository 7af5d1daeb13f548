"""A copy of the site, opened from a folder with the network cut, answers the planner and the search, and leads on."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from playwright.sync_api import Browser, expect

from ledger.site.offline import offline
from tests.conftest import mistakes_of
from tests.draw import drawn
from tests.site.test_site import Page


@pytest.fixture(scope="module")
def folder(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("disk") / "a folder"
    offline(site, target).unlink()
    return target


LANGUAGES = [("", "padding", "fits on paper"), ("zh/", "显存", "理论上放得下")]


@pytest.mark.parametrize("language, asked, answer", drawn(LANGUAGES, 1))
def test_planner_search_and_devices_work_from_a_folder(
    folder: Path, browser: Browser, language: str, asked: str, answer: str
) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    mistakes = mistakes_of(page, f"{folder.as_uri()}/")
    page.goto((folder / language / "index.html").as_uri())
    page.locator("[name=gpus]").fill("2")
    expect(page.locator(".planner-verdict")).to_contain_text(answer, ignore_case=True)
    for model in ("gpt2", "qwen3-0.6b"):  # which the first script knows, and another
        page.goto(f"{(folder / language / 'plan' / 'index.html').as_uri()}?model={model}&gpu=H100+SXM&gpus=1")
        expect(page.locator(".planner-meters b")).to_have_text([re.compile("[GM]iB")] * 3)
    page.goto((folder / language / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").fill(asked)
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/index.html?h=*")
    page.locator(".language-switch").click()
    expect(page.locator("html")).to_have_attribute("lang", "en" if language else "zh")
    page.goto((folder / language / "inference" / "index.html").as_uri())
    choice = page.locator("#device-choice")
    choice.select_option(index=1)
    expect(choice).to_have_attribute("data-shown", str(choice.input_value()))
    context.close()
    assert mistakes == []


def test_every_link_within_the_folder_leads_to_a_file(folder: Path) -> None:
    pages = drawn(sorted(folder.rglob("*.html")), 12)
    found = {path: Page(path.read_text(encoding="utf-8")) for path in pages}
    links = {(path, link) for path, page in found.items() for link in (*page.links, *page.loads)}
    places = {(path, unquote(urlparse(link).path)) for path, link in links if not urlparse(link).scheme}
    assert len(places) > 100
    assert {(path, place) for path, place in places if place and not (path.parent / place).is_file()} == set()
