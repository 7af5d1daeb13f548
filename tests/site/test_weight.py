"""A page is light, as a host sends it, and so is a first visit, whatever the number of devices with records."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ledger.book import Book
from tests.conftest import NUM_DEVICES, PUBLISHED, ROOT, Served, heaviest
from tests.site.test_site import Page

MAX_BYTES, MAX_COMPRESSED = 250_000, 50_000
MAX_FIRST_VISIT = {"en": 150_000, "zh": 136_000}  # a second at a megabit a second, and a little; English has a font
PAGES = [
    f"{language}{'' if path.stem == 'index' else f'{path.stem}/'}"
    for language in ("", "zh/")
    for path in sorted((Book(ROOT).docs / "en").glob("*.md"))
]


def compressed(content: bytes) -> int:
    return min(len(gzip.compress(content)), len(content))


def first_visit(folder: Path, page: Path, text: str) -> int:
    """What a browser fetches that has nothing of the site yet."""
    fetched = {page, *((page.parent / link).resolve() for link in Page(text).loads if "#" not in link)}
    root = folder / "zh" if page.is_relative_to(folder / "zh") else folder
    if "<math" in text:
        fetched.add(root / "math" / "math.woff2")
    if root == folder:  # English: who has no such font gets one
        faces = ["regular", "bold", *(["italic"] if "<em>" in text else [])]
        fetched |= {root / "text" / f"{face}.woff2" for face in faces}
    if 'class="planner"' in text:
        fetched.add(root / "assets" / "planner.js")
    return sum(compressed(path.read_bytes()) for path in fetched)


def over(folder: Path, page: str) -> list[str]:
    """The limits that a page does not keep."""
    path = folder / page / "index.html"
    content = path.read_bytes()
    weights = len(content), compressed(content), first_visit(folder, path, content.decode())
    limits = (MAX_BYTES, MAX_COMPRESSED, MAX_FIRST_VISIT["zh" if page.startswith("zh/") else "en"])
    return [f"{weight:,} of {limit:,}" for weight, limit in zip(weights, limits, strict=True) if weight > limit]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_heavy(site: Path, page: str) -> None:
    assert over(site, page) == []


def test_ten_devices_make_no_page_heavy(site: Path, many_devices: Served) -> None:
    """The heaviest pages are among those with ten devices, and no page grows by more than these have room for."""
    there = [page for page in PAGES if (many_devices.folder / page / "index.html").is_file()]
    assert len(there) >= 2 * len(heaviest(site))
    assert {page: found for page in there if (found := over(many_devices.folder, page))} == {}


def test_what_other_devices_gave_lies_beside_the_page(many_devices: Served) -> None:
    """Of each device but the first that has a record of the page's; one may have recorded another snippet alone."""
    text = (many_devices.folder / "gradients/index.html").read_text(encoding="utf-8")
    assert text.count("<option") == NUM_DEVICES and "MADE UP" not in text
    having = {path.parent.name for path in many_devices.folder.parent.glob("measurements/*/gradients.json")}
    beside = {path.stem for path in (many_devices.folder / "gradients/devices").glob("*.json")}
    assert len(having) > 2 and beside == having - {PUBLISHED}
