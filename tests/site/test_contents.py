"""In a real browser: a click in a page's contents brings its section to the top and marks it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.usefixtures("site")
TOP = 120  # pixels, of which the header takes about half
LANDED = "([place, top]) => Math.abs(document.querySelector(place).getBoundingClientRect().y - top / 2) < top / 2 + 5"


@pytest.mark.parametrize("path", ["fp8/", "zh/traces/"])
def test_a_click_in_the_contents_leads_to_the_section(page: Page, address: str, path: str) -> None:
    page.goto(address + path)
    contents = page.locator(".md-sidebar--secondary .md-nav__link")
    places = contents.evaluate_all("links => links.map((link) => link.hash)")  # the theme makes addresses whole
    assert len(places) > 4
    for number, place in enumerate(places[:-2]):  # below the last ones a page may have too little to scroll
        contents.nth(number).click()
        page.wait_for_function(LANDED, arg=[place, TOP])
        page.wait_for_timeout(100)  # and stays there
        assert page.evaluate(LANDED, [place, TOP]), place
        expect(contents.nth(number)).to_contain_class("md-nav__link--active")
