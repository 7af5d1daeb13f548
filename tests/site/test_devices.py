"""The reader chooses a device: numbers, outputs, figures and tables follow, and the choice is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ledger.book import Book
from ledger.record import Record, Records
from ledger.site import makeExtension
from tests.conftest import MADE_UP, MADE_UP_NAME, PUBLISHED, ROOT, Served

CHAPTER = "storage-and-strides/"


@pytest.fixture(scope="module")
def address(many_devices: Served) -> str:
    return many_devices.url


def choose(page: Page, device: str) -> None:
    page.select_option("#device-choice", device)
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", device)


def measured(page: Page) -> list[str]:
    return page.locator("data.measured:visible").all_inner_texts()


def exact(page: Page) -> list[str]:
    return page.locator("data.exact:visible").all_inner_texts()


@pytest.mark.parametrize("language", ["", "zh/"])
def test_numbers_outputs_and_notes_follow_the_choice(page: Page, address: str, language: str) -> None:
    page.goto(address + language + CHAPTER)
    page.add_style_tag(content="* { content-visibility: visible !important }")  # what is out of sight has no inner text
    before, same = measured(page), exact(page)
    expect(page.locator("#device-choice")).to_have_value(PUBLISHED)
    expect(page.locator(".device-note")).to_be_hidden()
    assert "MADE UP" not in page.locator("article").inner_text()
    choose(page, MADE_UP)
    assert measured(page) != before and exact(page) == same
    expect(page.locator(".device-note")).to_be_visible()
    assert page.locator(".output-variant:visible").count() == page.locator(".output").locator("visible=true").count()
    assert "MADE UP" in page.locator("article").inner_text()
    choose(page, PUBLISHED)
    assert measured(page) == before


def test_the_choice_survives_reload_navigation_back_and_the_other_language(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    choose(page, MADE_UP)
    chosen = measured(page)
    page.reload()
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", MADE_UP)
    assert measured(page) == chosen
    page.locator(".md-nav--primary").get_by_role("link", name="Gradients").click()
    expect(page.locator("h1")).to_contain_text("Gradients")
    expect(page.locator("#device-choice")).to_have_value(MADE_UP)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Storage")
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", MADE_UP)
    assert measured(page) == chosen
    page.get_by_role("link", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", MADE_UP)
    assert measured(page) == chosen


def test_the_keyboard_alone_can_choose(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    page.get_by_label("Numbers from").focus()
    page.keyboard.type("MADE")
    page.keyboard.press("Enter")
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", MADE_UP)
    assert "MADE UP" in page.locator("article").inner_text()


def test_what_a_device_lacks_says_so(page: Page, address: str) -> None:
    page.goto(address + "measure-your-gpu/")
    page.evaluate(f"localStorage.setItem('flops-and-bytes.device', '{MADE_UP}')")
    page.goto(address + CHAPTER)
    page.goto(address + "measure-your-gpu/")
    expect(page.locator("#device-choice")).to_have_value(MADE_UP)
    absent = page.locator("data.measured.absent").first
    expect(absent).to_have_text("—")
    expect(absent).to_have_attribute("title", "not measured on this device")


def test_a_number_tells_where_it_is_from_and_leads_to_its_line(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    number = page.locator("article p data.exact").first
    number.click()
    card = page.locator(".provenance-card")
    expect(card).to_contain_text("snippets/")
    card.locator("a").click()
    expect(page).to_have_url(re.compile(r"#__span-\d+-\d+$"))
    line = page.locator(f'pre [id="{page.url.partition("#")[2]}"]')  # :target is lost where the theme swaps the page
    expect(line).to_be_visible()
    quoted = (number.get_attribute("data-quote") or "").split(".")[1]
    assert quoted in line.inner_text()
    measured_number = page.locator("data.measured:not(.absent):visible").first
    measured_number.hover()
    record = Record.read(ROOT / "measurements" / PUBLISHED / "storage_and_strides.json")
    expect(card).to_contain_text(record.measured_at[:10])
    expect(card).to_contain_text(record.software["torch"])
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)
    for distance in (300, -300):  # the number leaves the mouse, and comes back
        page.evaluate(f"scrollBy(0, {distance})")
        page.wait_for_timeout(300)
    expect(card).to_have_count(0)


def test_every_number_of_a_page_is_listed_with_its_line(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    page.locator("#provenance > summary").click()
    listed = page.locator(".provenance-values code").all_inner_texts()
    quoted = page.evaluate("[...document.querySelectorAll('article data[data-quote]')].map((e) => e.dataset.quote)")
    assert {".".join(re.split(r"[.:]", name)[:2]) for name in quoted} == set(listed)
    expect(page.locator("#provenance")).to_contain_text("python -m ledger record --force storage_and_strides")


def test_markup_in_a_devices_name_stays_text(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    choose(page, MADE_UP)
    page.locator("#provenance > summary").click()
    expect(page.locator("#provenance")).to_contain_text(MADE_UP_NAME)
    assert page.locator("article b", has_text="no measurement").count() == 0


@pytest.mark.fresh
def test_another_device_is_fetched_when_it_is_chosen_and_once(page: Page, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(Path(request.url).name))
    page.goto(address + CHAPTER, wait_until="networkidle")
    assert MADE_UP_NAME not in page.locator("#provenance table").inner_text() and f"{MADE_UP}.json" not in asked
    for device in (MADE_UP, PUBLISHED, MADE_UP):
        choose(page, device)
    assert asked.count(f"{MADE_UP}.json") == 1
    page.locator("#provenance > summary").click()
    assert page.locator("#provenance tr", has_text=MADE_UP_NAME).count() > 0


def test_without_a_connection_the_page_stays_as_it_is(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    before = measured(page)
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('offline')) }")
    page.select_option("#device-choice", MADE_UP)
    expect(page.locator("#device-choice")).to_have_value(PUBLISHED)
    assert measured(page) == before


def test_without_a_script_the_default_device_stands(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + CHAPTER)
    assert page.locator("#device-choice").input_value() == PUBLISHED
    assert "MADE UP" not in page.locator("article").inner_text()
    assert page.locator("data.measured:not(.absent):visible").count() > 0
    context.close()


def test_the_published_default_is_a_gpu_as_soon_as_one_is_recorded() -> None:
    records = Records.load(Book(ROOT), local=False)
    kinds = {device: next(iter(found.values())).device["kind"] for device, found in records.by_device.items()}
    assert PUBLISHED in kinds
    assert kinds[PUBLISHED] == "cuda" or "cuda" not in kinds.values()


def test_the_extension_alone_needs_no_generator() -> None:
    from markdown import Markdown

    extension = makeExtension(root=str(ROOT), default_device=PUBLISHED, local=False)
    page = Markdown(extensions=[extension]).convert("It is {{ storage_and_strides.storage_bytes }}.")
    assert 'data-quote="storage_and_strides.storage_bytes" value="64">64 B</data>' in page.replace('class="exact" ', "")
