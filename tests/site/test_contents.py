"""In a real browser: a click in a page's contents brings its section to the top and marks it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.usefixtures("site")
TOP = 120  # pixels, of which the header takes about half


@pytest.mark.parametrize("path", ["muon/", "zh/traces/"])
def test_a_click_in_the_contents_leads_to_the_section(page: Page, address: str, path: str) -> None:
    page.goto(address + path)
    links = page.locator(".md-sidebar--secondary .md-nav__link[href^='#']")
    places = [str(link.get_attribute("href")) for link in links.all()]
    assert len(places) > 4
    for place in places[:-2]:  # below the last ones a page may have too little to scroll
        page.locator(f".md-sidebar--secondary .md-nav__link[href='{place}']").first.click()
        page.wait_for_function("place => document.querySelector(place).getBoundingClientRect().y < 120", arg=place)
        assert -5 < page.locator(place).evaluate("heading => heading.getBoundingClientRect().y") < TOP
        marked = page.locator(".md-sidebar--secondary .md-nav__link--active").last
        expect(marked).to_have_attribute("href", place)
