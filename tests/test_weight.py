"""A page is light, as a host sends it, and so is a first visit, whatever the number of devices with records."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ledger.book import Book
from tests.conftest import NUM_DEVICES, ROOT, Served
from tests.test_site import Page

MAX_BYTES, MAX_COMPRESSED = 250_000, 45_000
MAX_FIRST_VISIT = 120_000
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
    if 'class="planner"' in text:
        fetched.add(root / "assets" / "planner.js")
    return sum(compressed(path.read_bytes()) for path in fetched)


@pytest.fixture(scope="module")
def folders(site: Path, many_devices: Served) -> list[Path]:
    return [site, many_devices.folder]


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_heavy(folders: list[Path], page: str) -> None:
    for folder in folders:
        path = folder / page / "index.html"
        content = path.read_bytes()
        weights = len(content), compressed(content), first_visit(folder, path, content.decode())
        limits = (MAX_BYTES, MAX_COMPRESSED, MAX_FIRST_VISIT)
        over = [f"{weight:,} of {limit:,}" for weight, limit in zip(weights, limits, strict=True) if weight > limit]
        assert over == [], folder


def test_what_other_devices_gave_lies_beside_the_page(many_devices: Served) -> None:
    text = (many_devices.folder / "gradients/index.html").read_text(encoding="utf-8")
    assert text.count("<option") == NUM_DEVICES and "MADE UP" not in text
    assert len(list((many_devices.folder / "gradients/devices").glob("*.json"))) == NUM_DEVICES - 1
