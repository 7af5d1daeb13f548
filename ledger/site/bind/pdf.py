"""Chapters as a PDF: the browser prints them, at first to learn the pages that the contents name."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pikepdf
from playwright.sync_api import Page


def write_pdf(path: Path, told: Mapping[str, Any], page: Page) -> None:
    """What the page holds; `told` says of the book what its title page says."""
    with pikepdf.open(io.BytesIO(page.pdf(prefer_css_page_size=True, print_background=True))) as pdf:
        pages = places(pdf)
    page.evaluate("number", pages)
    printed = page.pdf(prefer_css_page_size=True, print_background=True, outline=True, tagged=True)
    with pikepdf.open(io.BytesIO(printed)) as pdf:
        assert places(pdf) == pages, "the numbers in the contents moved what they number"
        with pdf.open_metadata() as metadata:
            metadata["dc:title"] = told["title"]
            metadata["dc:description"] = told["description"]
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        pdf.save(path, object_stream_mode=pikepdf.ObjectStreamMode.generate)  # a third of the size, with so many tags


def places(pdf: pikepdf.Pdf) -> dict[str, int]:
    """The number of the page on which each place is that a link leads to."""
    numbers: dict[object, int] = {page.objgen: number for number, page in enumerate(pdf.pages, 1)}
    return {name.removeprefix("/"): numbers[place[0].objgen] for name, place in pdf.Root.Dests.items()}
