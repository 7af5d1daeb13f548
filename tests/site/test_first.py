"""A page opens with the device that its text speaks of, a GPU before a CPU; this machine is a choice beside it, and no
sentence shows a dash for what a device lacks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown
from mkdocs.utils.yaml import yaml_load
from playwright.sync_api import Page, expect

from ledger.book import Book
from ledger.record import LOCAL, Record, local_folder
from ledger.site import makeExtension
from ledger.site.bundle import Texts
from ledger.site.device_files import move
from ledger.site.quote import Quote, Source, open_source
from ledger.snippet import Snippet
from tests.conftest import ROOT, serve

SNIPPET = """\
# --8<-- [start:run]
size_bytes = 64
run_seconds = 0.5
more_seconds = 0.5
# --8<-- [end:run]
"""
FIGURES = """\
def drawing(values, labels):
    return f'<svg><text>{values["it.run_seconds"]}</text></svg>'
def rows(values, labels):
    return [["head", "made"], ["{{ it.run_seconds }}", str(values["it.run_seconds"])]]
"""
PAGE = """\
# Page {#page}

It takes {{ it.run_seconds }}, more takes {{ it.more_seconds }}.

```python
--8<-- "snippets/it.py:run"
```

/// output | it:run
///

/// figure | small.drawing
    alt: A drawing.
A caption with {{ it.more_seconds:.1f }}.
///

/// table | small.rows
///

| run | more |
|---|---|
| {{ it.run_seconds }} | {{ it.more_seconds }} |
"""
DEFAULT = "the-default"
SECONDS = {DEFAULT: 0.5, LOCAL: 7.0}
SCRIPT = ROOT / "docs" / "overrides" / "assets" / "book.js"
HEAD = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script src="/book.js"></script>'


def make_book(root: Path, kinds: Mapping[str, str], lacking: str = "") -> Book:
    """One snippet with a record of each device, by its kind; the lacking one has no more_seconds."""
    book = Book(root)
    for folder in (book.snippets, book.docs / "en", book.docs / "zh", root / "figures"):
        folder.mkdir(parents=True)
    (book.snippets / "it.py").write_text(SNIPPET)
    (root / "figures" / "small.py").write_text(FIGURES)
    (root / "mkdocs.yml").write_text(f"  default_device: {DEFAULT}\n")
    for language in ("en", "zh"):
        (book.docs / language / "page.md").write_text(PAGE)
    for device, kind in kinds.items():
        name = "here" if device == LOCAL else device
        seconds = SECONDS.get(device, 3.0)
        Record(
            snippet="it",
            hash=Snippet.read(book.snippets / "it.py").hash,
            measured_at="2026-01-01T00:00:00+00:00",
            seconds=1.0,
            device={"id": name, "kind": kind, "name": f"Name of {name}"},
            software={"torch": "2.13.0", "python": "3.11.2"},
            values={
                "size_bytes": 64,
                "run_seconds": seconds,
                "more_seconds": None if device == lacking else 2 * seconds,
            },
            outputs={"run": f"output of {device}"},
        ).write((local_folder(book) if device == LOCAL else book.measurements / device) / "it.json")
    return book


def source_of(book: Book, first_device: str = "") -> Source:
    return open_source(book, DEFAULT, local=True, first_device=first_device)


def convert(book: Book, language: str = "en", first_device: str = "") -> str:
    ours = makeExtension(root=str(book.root), default_device=DEFAULT, language=language, first_device=first_device)
    return Markdown(extensions=["tables", "pymdownx.superfences", ours]).convert(PAGE)


@pytest.mark.parametrize(
    ("kinds", "order"),
    [
        ({DEFAULT: "cpu", LOCAL: "cpu", "another": "cpu"}, [DEFAULT, LOCAL, "another"]),
        ({DEFAULT: "cuda", LOCAL: "cuda", "another": "cuda"}, [DEFAULT, LOCAL, "another"]),
        ({DEFAULT: "cpu", LOCAL: "cuda"}, [LOCAL, DEFAULT]),
        ({DEFAULT: "cuda", LOCAL: "cpu"}, [DEFAULT, LOCAL]),
        ({DEFAULT: "cuda", LOCAL: "cpu", "gpu-b": "cuda", "gpu-a": "cuda", "a-cpu": "cpu"},
         [DEFAULT, "gpu-a", "gpu-b", LOCAL, "a-cpu"]),
        ({DEFAULT: "cpu", LOCAL: "cpu", "gpu": "cuda"}, ["gpu", DEFAULT, LOCAL]),
        ({LOCAL: "cpu", "another": "cpu"}, [LOCAL, "another"]),
    ],
)  # fmt: skip
def test_a_gpu_stands_before_a_cpu_and_among_equals_the_default_before_this_machine(
    tmp_path: Path, kinds: dict[str, str], order: list[str]
) -> None:
    source = source_of(make_book(tmp_path, kinds))
    assert source.devices == order
    assert source.shown_device == order[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_of_a_page_opens_with_the_default(tmp_path: Path, language: str) -> None:
    book = make_book(tmp_path, {LOCAL: "cpu", DEFAULT: "cpu"})
    page = convert(book, language)
    shown = re.sub(r'<template class="variant".*?</template>|<div hidden.*', "", page, flags=re.DOTALL)
    assert re.findall(r"<data[^>]*>([^<]*)<", shown) == ["500 ms", "1.00 s", "1.0", "500 ms", "500 ms", "1.00 s"]
    assert re.findall(r"<svg[^>]*><text>([^<]*)|<code>(output[^<]*)", shown) == [
        ("", f"output of {DEFAULT}"),
        ("0.5", ""),
    ]
    assert re.findall('<option value="([^"]*)"', page) == [DEFAULT, LOCAL]
    assert re.search(rf'class="device-note" data-default="{DEFAULT}" hidden="hidden"', page)
    texts = Texts(book, local=True)
    taken = texts.of(book.docs / language / "page.md", language)
    assert texts.device == "Name of the-default"
    for text in taken.texts.values():
        assert "500 ms" in text and f"output of {DEFAULT}" in text and "7.00 s" not in text and LOCAL not in text


def test_an_exact_value_is_the_shown_devices_unless_another_is_fresher(tmp_path: Path) -> None:
    book = make_book(tmp_path, {LOCAL: "cpu", DEFAULT: "cpu"})

    def teller() -> Any:
        found = source_of(book).find(Quote.parse("it.size_bytes"))
        return found.record and found.record.device["id"]

    assert teller() == DEFAULT
    path = local_folder(book) / "it.json"
    told = json.loads(path.read_text())
    (book.snippets / "it.py").write_text(SNIPPET.replace("64", "65"))
    assert teller() == DEFAULT
    told["hash"] = Snippet.read(book.snippets / "it.py").hash
    path.write_text(json.dumps(told))
    assert teller() == "here"


# A preview


def test_a_preview_opens_with_this_machine(tmp_path: Path) -> None:
    """Whose new numbers a writer waits for, whatever has been published."""
    book = make_book(tmp_path, {DEFAULT: "cuda", LOCAL: "cpu", "gpu": "cuda"})
    assert source_of(book, first_device=LOCAL).devices == [LOCAL, DEFAULT, "gpu"]
    page = convert(book, first_device=LOCAL)
    assert re.findall(r"<data[^>]*>([^<]*)<", page)[:2] == ["7.00 s", "14.0 s"]
    assert re.search(
        rf'class="device-note" data-default="{DEFAULT}">The text describes the numbers from Name of the-default\.', page
    )


@pytest.mark.parametrize("config", ["mkdocs.yml", "mkdocs.zh.yml"])
def test_the_command_for_a_preview_says_so_and_only_it(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    def first() -> object:
        with (ROOT / config).open(encoding="utf-8") as file:
            return yaml_load(file)["markdown_extensions"]["ledger.site"]["first_device"]

    def run_by(target: str) -> list[str]:
        told = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [line for line in told.replace("\\\n", "").splitlines() if "mkdocs" in line]

    monkeypatch.delenv("FIRST_DEVICE", raising=False)
    assert first() == ""
    monkeypatch.setenv("FIRST_DEVICE", LOCAL)
    assert first() == LOCAL
    assert any(f"FIRST_DEVICE={LOCAL}" in line for line in run_by("serve"))
    assert run_by("site") and not any("FIRST_DEVICE" in line for line in run_by("site"))


# What a device lacks


@pytest.mark.parametrize(
    ("language", "title", "note"),
    [
        ("en", "not measured on this device", "Numbers marked ‡ come from another device."),
        ("zh", "未在此设备上实测", "带 ‡ 的数字来自其他设备。"),
    ],
)
def test_a_sentence_shows_anothers_number_marked_and_a_table_a_dash(
    tmp_path: Path, language: str, title: str, note: str
) -> None:
    book = make_book(tmp_path, {DEFAULT: "cpu", LOCAL: "cuda", "another": "cuda"}, lacking=LOCAL)
    page = convert(book, language)
    marked = re.findall(r'<data class="measured elsewhere" [^>]*title="([^"]*)" value="1.0">([^<]*)<', page)
    assert marked == [(title, "1.00 s"), (title, "1.0")]
    assert re.findall(r'<data class="measured absent" [^>]*>([^<]*)<', page) == ["—"]
    assert f'<span class="elsewhere-note">{note}</span>' in page
    text = Texts(book, local=True).of(book.docs / language / "page.md", language).texts["md"]
    named = {"en": "1.00 s (Name of the-default)", "zh": "1.00 s（Name of the-default）"}[language]
    assert named in text and "| 7.00 s | — |" in text


def test_what_no_device_has_stays_a_dash(tmp_path: Path) -> None:
    page = convert(make_book(tmp_path, {DEFAULT: "cpu"}, lacking=DEFAULT))
    assert re.findall(r'<data class="measured absent" [^>]*>([^<]*)<', page) == ["—"] * 2
    assert "elsewhere" not in page


# In a browser


@pytest.fixture(scope="module", params=["whole", "moved"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page in both languages, in a site that was built here: as the generator makes it, and with what other devices
    gave moved out of it."""
    root = tmp_path_factory.mktemp("first")
    book = make_book(root, {DEFAULT: "cpu", LOCAL: "cpu"}, lacking=LOCAL)
    site = root / "site"
    for language, folder in (("en", site), ("zh", site / "zh")):
        folder.mkdir()
        (folder / "index.html").write_text(HEAD + convert(book, language), encoding="utf-8")
        if request.param == "moved":
            move(folder / "index.html")
    (site / "book.js").write_text(SCRIPT.read_text(encoding="utf-8"))
    with serve(site) as url:
        yield url


def numbers(page: Page) -> list[str]:
    return page.locator("data.measured:visible").all_inner_texts()


def choose(page: Page, device: str) -> None:
    page.select_option("#device-choice", device)
    expect(page.locator("#device-choice")).to_have_attribute("data-shown", device)


OPENED = ["500 ms", "1.00 s", "1.0", "500 ms", "500 ms", "1.00 s"]
CHOSEN = ["7.00 s", "1.00 s", "1.0", "7.00 s", "7.00 s", "—"]


def test_this_machine_is_a_choice_that_is_kept_and_says_of_whom_the_text_speaks(page: Page, address: str) -> None:
    page.goto(address)
    assert numbers(page) == OPENED
    expect(page.locator(".device-note")).to_be_hidden()
    choose(page, LOCAL)
    chinese, english = f"{address}zh/", address
    steps: list[Callable[[], object]] = [
        page.reload,
        partial(page.goto, chinese),
        partial(page.goto, english),
        page.go_back,
    ]
    for go_on in steps:
        assert numbers(page) == CHOSEN
        expect(page.locator(".device-note")).to_be_visible()
        expect(page.locator(".device-note")).to_contain_text("Name of the-default")
        go_on()
        expect(page.locator("#device-choice")).to_have_attribute("data-shown", LOCAL)
    choose(page, DEFAULT)
    assert numbers(page) == OPENED
    expect(page.locator(".device-note")).to_be_hidden()


def test_what_this_machine_lacks_is_marked_in_a_sentence_and_told_by_its_card(page: Page, address: str) -> None:
    page.goto(address)
    for device, marked, absent in ((LOCAL, ["1.00 s", "1.0"], ["—"]), (DEFAULT, [], [])):
        choose(page, device)
        assert page.locator("data.elsewhere").all_inner_texts() == marked
        assert page.locator("data.absent").all_inner_texts() == absent
        expect(page.locator(".elsewhere-note")).to_be_visible(visible=bool(marked))
    choose(page, LOCAL)
    page.locator("data.elsewhere").first.click()
    expect(page.locator(".provenance-card")).to_contain_text("Name of the-default · 2026-01-01")
    page.keyboard.press("Escape")
    page.locator("data.measured").first.click()
    expect(page.locator(".provenance-card")).to_contain_text("this machine, Name of here")


def test_the_defaults_number_stands_in_a_sentence_where_another_device_is_first(tmp_path: Path) -> None:
    """It stays in the page when the rest of what the default gave moves out of it, its record too."""
    book = make_book(tmp_path, {LOCAL: "cuda", DEFAULT: "cpu", "another": "cuda"}, lacking="another")
    page = tmp_path / "index.html"
    page.write_text(convert(book), encoding="utf-8")
    move(page)
    (data,) = re.findall(r"id='ledger-data' data-json='([^']*)'", page.read_text(encoding="utf-8"))
    told = json.loads(data.replace("&quot;", '"'))
    assert told["quotes"]["it.more_seconds"]["instead"] == DEFAULT
    assert {*told["quotes"]["it.more_seconds"]["on"]} == {*told["records"]["it"]} == {LOCAL, DEFAULT}
    assert {*told["quotes"]["it.run_seconds"]["on"]} == {LOCAL}
