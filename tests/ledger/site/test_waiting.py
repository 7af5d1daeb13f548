"""What waits for a device is not shown before one has filled it; it is checked, and its code runs, all the same."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from markdown import Markdown

from ledger.book import Book, LedgerError
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.chapter import Chapter
from ledger.site.check import check
from ledger.snippet import Snippet
from tests.chapters import Reader, Session, repeats_the_english, waiting

SNIPPET = """\
# --8<-- [start:count]
measured_bytes = None
measured_parts = {"small": None, "large": [None, None]}
large_bytes = 8
# --8<-- [end:count]
"""
PAGE = """\
# Page {#page}

First.
////// recorded | gpu.VALUE
## Below {#below}

Second: {{ gpu.large_bytes }}.

//// details | Deeper
```python
--8<-- "snippets/gpu.py:count"
```
////
//////
Third, after `//// recorded | nothing`.

```markdown
//// recorded | nothing.at_all
```
"""


@pytest.fixture
def book(small_book: Book) -> Book:
    """A book with a snippet whose values no device has."""
    (small_book.snippets / "gpu.py").write_text(SNIPPET)
    record(small_book, "poor", {"measured_bytes": None, "measured_parts": {"small": None, "large": [None, None]}})
    return small_book


def record(book: Book, device: str, values: dict[str, Any]) -> None:
    """Writes a device's record of the snippet."""
    (good,) = book.measurements.glob("*/good.json")
    of_good = Record.read(good)
    dataclasses.replace(
        of_good,
        snippet="gpu",
        hash=Snippet.read(book.snippets / "gpu.py").hash,
        device={**of_good.device, "id": device},
        values={"large_bytes": 8, **values},
        outputs={},
    ).write(book.measurements / device / "gpu.json")


def show(book: Book, page: str) -> str:
    extensions = ["toc", "attr_list", "pymdownx.superfences", "pymdownx.blocks.details"]
    return Markdown(extensions=[*extensions, makeExtension(root=str(book.root), local=False)]).convert(page)


def problems(book: Book, page: str, other: str = "") -> str:
    path = book.docs / "en" / "page.md"
    path.write_text(page)
    (book.docs / "en" / "other.md").write_text(other or "# Other {#other}\n")
    return "\n".join(str(problem) for problem in check(book) if problem.path.parent == path.parent)


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ("measured_bytes", {"measured_bytes": 0}),
        ("measured_parts", {"measured_parts": {"small": None, "large": [None, 3]}}),
        ("measured_parts.large.1", {"measured_parts": {"small": None, "large": [None, 3]}}),
    ],
)
def test_a_part_is_shown_once_a_device_has_its_value(book: Book, value: str, recorded: dict[str, Any]) -> None:
    page = PAGE.replace("VALUE", value)
    before = show(book, page)
    assert "First" in before and "Third" in before and "recorded | nothing.at_all" in before
    assert not re.search("Second|below|Deeper|8<|//////", before)
    record(book, "rich", recorded)
    after = show(book, page)
    assert 'id="below"' in after and "Second" in after and "<details>" in after and "//////" not in after
    assert show(book, page.replace("//////", "/////")) == after


def test_code_is_collected_whether_it_is_shown_or_waits(monkeypatch: pytest.MonkeyPatch, book: Book) -> None:
    monkeypatch.setattr("tests.chapters.ROOT", book.root)
    monkeypatch.setattr("tests.chapters.expand", lambda fence: "")
    page = PAGE.replace("VALUE", "measured_bytes")
    assert [(fence.map, fence.info) for fence in Reader().parse(page)] == [([9], "python"), ([16], "markdown")]
    chapter = Chapter.parse(page, book.docs / "en" / "page.md")
    assert [part.holds(10) for part in waiting(chapter)] == [True]
    record(book, "rich", {"measured_bytes": 1})
    assert waiting(chapter) == []


BLOCKS = """\
# Page {#page}

```python
import pathlib
shown = [1]
```
//// recorded | gpu.measured_bytes
```python
hidden, shown = shown + [2], None
```
////
```python
assert shown == [1]
beside = sorted(path.name for path in pathlib.Path.cwd().iterdir())
```
//// recorded | gpu.measured_bytes
```python
assert hidden == [1, 2] and beside == []
```
////
```python
hidden
```
"""


def test_a_pages_code_runs_with_its_files_alone_and_what_is_shown_needs_nothing_that_waits(
    monkeypatch: pytest.MonkeyPatch, book: Book
) -> None:
    monkeypatch.setattr("tests.chapters.ROOT", book.root)
    monkeypatch.setattr("tests.chapters.expand", lambda fence: "\n".join(fence.lines))
    page = book.docs / "en" / "page.md"
    page.write_text(BLOCKS)
    session = Session(page)
    told = [session.run("\n".join(fence.lines), fence.line) for fence in Chapter.read(page).fences]
    session.end()
    assert told[:-1] == [""] * 4
    assert "page.md:21" in told[-1] and "name 'hidden' is not defined" in told[-1]
    assert session.failed


def test_chinese_code_that_differs_is_collected(monkeypatch: pytest.MonkeyPatch, book: Book) -> None:
    monkeypatch.setattr("tests.chapters.ROOT", book.root)
    english, chinese = (book.docs / language / "page.md" for language in ("en", "zh"))
    page = PAGE.replace("VALUE", "measured_bytes")
    english.write_text(page)
    chinese.write_text(page.replace("First", "先"))
    assert repeats_the_english(chinese) and not repeats_the_english(english)
    for old, new in ((":count", ""), ("////// recorded | gpu.measured_bytes", "")):
        chinese.write_text(page.replace(old, new))
        assert not repeats_the_english(chinese), old
    english.unlink()
    assert not repeats_the_english(chinese)


MISTAKES = {
    "placeholder": ("{{ gpu.large_bytes }}", "{{ gpu.nothing }}", r"page\.md:7: gpu\.nothing cannot be quoted"),
    "section": ("gpu.py:count", "gpu.py:nosuch", r"page\.md:11: snippets/gpu\.py has no section 'nosuch'"),
    "figure": ("Second", "/// figure | gpu.x\n    alt: x\n///\n\n", r"page\.md:7: there is no figures/gpu\.py"),
    "value": ("gpu.VALUE", "gpu.nothing", r"page\.md:4: gpu\.nothing cannot be quoted"),
    "part of a value": (
        "gpu.VALUE",
        "gpu.measured_parts.x",
        r"page\.md:4: gpu\.measured_parts\.x is not in the record",
    ),
    "no value": ("gpu.VALUE", "gpu", r"page\.md:4: malformed"),
    "never closed": ("//////\n", "\n", r"page\.md:4: this part that waits for a device is never closed"),
    "slashes": (
        "//////",
        "////",
        r"page\.md:9: the part that waits since line 4 needs more slashes than what it holds",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_hidden_is_checked(book: Book, mistake: str) -> None:
    assert problems(book, PAGE.replace("VALUE", "measured_bytes")) == ""
    before, after, message = MISTAKES[mistake]
    found = problems(book, PAGE.replace(before, after).replace("VALUE", "measured_bytes"))
    assert re.search(message, found), found
    assert len(found.splitlines()) == 1, found


def test_a_part_that_waits_for_nothing_stops_the_build(book: Book) -> None:
    with pytest.raises(LedgerError, match=r"recorded \| gpu\.nothing: gpu\.nothing cannot be quoted"):
        show(book, PAGE.replace("VALUE", "nothing"))


def test_a_link_to_a_heading_that_is_not_shown_is_named(book: Book) -> None:
    page = PAGE.replace("VALUE", "measured_bytes")
    inside, outside = page.replace("Second", "[b](#below)"), page.replace("First", "[b](#below) [p](#page)")
    message = "page.md#below is not shown before a device has gpu.measured_bytes"
    assert problems(book, inside) == ""
    assert re.search(r"page\.md:3: #below is not shown before", problems(book, outside))
    assert re.search(r"other\.md:2: " + re.escape(message), problems(book, page, "a\n[b](page.md#below)\n"))
    record(book, "rich", {"measured_bytes": 1})
    assert problems(book, outside, "a\n[b](page.md#below)\n") == ""
