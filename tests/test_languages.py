"""The two languages of a chapter hold the same headings' ids, code, placeholders, blocks and links, in order."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown

from ledger.book import Book
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.chapter import Chapter
from tests import tables

BOOK = Book(Path(__file__).parent.parent)
NAMES = sorted({path.relative_to(BOOK.docs / path.relative_to(BOOK.docs).parts[0]) for path in BOOK.chapters()})

Item = tuple[int, Any]  # a line, and what stands there


def headings(chapter: Chapter) -> list[Item]:
    return [(heading.line, (heading.level, heading.id)) for heading in chapter.headings]


def fences(chapter: Chapter) -> list[Item]:
    return [(fence.line, (fence.info, tuple(fence.lines))) for fence in chapter.fences]


def placeholders(chapter: Chapter) -> list[Item]:
    """By section of the text, in any order within it: the order of words differs between the languages."""
    starts = [heading.line for heading in chapter.headings]
    found = [(p.line, (sum(start < p.line for start in starts), p.text.strip())) for p in chapter.placeholders]
    return sorted(found, key=lambda item: item[1])


def blocks(chapter: Chapter) -> list[Item]:
    def shape(kind: str, argument: str, options: dict[str, Any]) -> Any:
        if kind == "table" and not argument:
            return kind, tables.shape(options)
        labels = options.get("labels", {})
        return (
            kind,
            argument if kind in ("output", "figure", "table", "data") else "",
            sorted(options),
            sorted(map(str, labels)),
        )

    return [(block.line, shape(block.kind, block.argument, block.options)) for block in chapter.blocks]


def links(chapter: Chapter) -> list[Item]:
    return sorted(((line, target) for line, target in chapter.links), key=lambda item: item[1])


def footnotes(chapter: Chapter) -> list[Item]:
    found = re.compile(r"\[\^([\w-]+)\]")
    notes = [(line, note) for line, text in chapter.paragraphs for note in found.findall(text)]
    return sorted(set(notes), key=lambda item: item[1])


def formulas(chapter: Chapter) -> list[Item]:
    lines = chapter.path.read_text(encoding="utf-8").splitlines()
    return [
        (n + 1, lines[n + 1].strip())
        for n, line in enumerate(lines[:-1])
        if line.strip() == "$$" and lines[n + 1].strip()
    ]


def waiting(chapter: Chapter) -> list[Item]:
    """Parts that wait for a device, each with how much of the page stands before its start and its end."""
    starts = [h.line for h in chapter.headings] + [f.line for f in chapter.fences] + [b.line for b in chapter.blocks]
    bounds = [(part, [sum(start < line for start in starts) for line in part[:2]]) for part in chapter.waiting]
    return [(part.first, (part.value, bound)) for part, bound in bounds]


PARTS: list[Callable[[Chapter], list[Item]]] = [
    headings,
    fences,
    placeholders,
    blocks,
    links,
    footnotes,
    formulas,
    waiting,
]


def differences(english: Path, chinese: Path) -> Iterator[str]:
    """What one page has and the other lacks, as file:line."""
    for path, other in ((english, chinese), (chinese, english)):
        if not path.is_file():
            yield f"{path}: is missing, but {other} is there"
            return
    pair = Chapter.read(english), Chapter.read(chinese)
    for part in PARTS:
        ours, theirs = part(pair[0]), part(pair[1])
        for index in range(max(len(ours), len(theirs))):
            left = ours[index] if index < len(ours) else None
            right = theirs[index] if index < len(theirs) else None
            if left is None or right is None or left[1] != right[1]:
                places = [
                    f"{path}:{item[0]} has {item[1]!r}" if item else f"{path} has no more"
                    for path, item in ((english, left), (chinese, right))
                ]
                yield f"{part.__name__}: {places[0]}, {places[1]}"
                break


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_a_chapter_is_the_same_in_both_languages(name: Path) -> None:
    found = list(differences(BOOK.docs / "en" / name, BOOK.docs / "zh" / name))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NAMES, ids=str)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_heading_has_an_id_of_its_own(name: Path, language: str) -> None:
    chapter = Chapter.read(BOOK.docs / language / name)
    without = [f"{chapter.path}:{heading.line}: {heading.text}" for heading in chapter.headings if heading.id is None]
    assert not without, "\n".join(["write an id behind each, ## Like this {#like-this}", *without])
    ids = [heading.id for heading in chapter.headings]
    assert sorted(set(ids), key=str) == sorted(ids, key=str)


CHANGES = {
    "a heading's id": ("{#page}", "{#seite}", r"headings: .*en/page\.md:1 has .*'page'.*zh/page\.md:1 has .*'seite'"),
    "a placeholder": (
        "It takes {{ good.size_bytes }}.",
        "It takes.",
        r"placeholders: .*en/page\.md:3 has .*zh/page\.md has no more",
    ),
    "a section": ("good.py:count", "good.py", r"fences: .*en/page\.md:5 has .*zh/page\.md:5 has"),
    "a part that waits": (
        "```python",
        "/// recorded | good.size_bytes\nx\n///\n```python",
        r"waiting: .*en/page\.md has no more, .*zh/page\.md:5 has",
    ),
    "an output": ("/// output | good:count\n///\n", "", r"blocks: .*en/page\.md:8 has .*zh/page\.md has no more"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_difference_is_named_with_both_lines(small_book: Book, change: str) -> None:
    english, chinese = (small_book.docs / language / "page.md" for language in ("en", "zh"))
    assert list(differences(english, chinese)) == []
    before, after, message = CHANGES[change]
    chinese.write_text(english.read_text().replace(before, after))
    assert re.search(message, "\n".join(differences(english, chinese)))
    chinese.unlink()
    assert re.search(r"zh/page\.md: is missing, but .*en/page\.md is there", "\n".join(differences(english, chinese)))


TABLE = """\
/// table
    of: good.sizes
    rows:
        small: {label: Few, formula: $n$}
        large: [Many, "`x` × 2", "{{ good.sizes.large.0 }}"]
    columns:
        Size: "{label}"
        Formula: "{formula}"
        "{{ good.size_bytes }}": "{{ good.sizes.{row} }}"
///
"""
WORDS = {"Few": "少", "Many": "多", "Size": "大小", "Formula:": "公式:"}
TABLE_CHANGES = {
    "the value of its rows": ("of: good.sizes\n", "of: good.others\n"),
    "a row's key": ("small:", "tiny:"),
    "a formula": ("$n$", "$m$"),
    "code": ("`x`", "`y`"),
    "a number": ("× 2", "× 3"),
    "a value in a cell": ("large.0", "large.1"),
    "a template": (".{row}", ".small"),
    "a value in a header": ("good.size_bytes", "good.sizes.small"),
}


@pytest.mark.parametrize("change", TABLE_CHANGES)
def test_a_tables_words_alone_differ(small_book: Book, change: str) -> None:
    english, chinese = (small_book.docs / language / "page.md" for language in ("en", "zh"))
    english.write_text(TABLE)
    translated = TABLE
    for word, other in WORDS.items():
        translated = translated.replace(word, other)
    chinese.write_text(translated)
    assert list(differences(english, chinese)) == []
    before, after = TABLE_CHANGES[change]
    assert before in translated
    chinese.write_text(translated.replace(before, after))
    (found,) = differences(english, chinese)
    assert re.search(r"blocks: .*en/page\.md:1 has .*zh/page\.md:1 has", found)


def test_what_the_ledger_writes_in_chinese_has_chinese_punctuation(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    record = Record.read(path)
    other = dataclasses.replace(record, device={**record.device, "id": "other", "name": "Other"})
    other.write(small_book.measurements / "other" / path.name)
    snippet = small_book.snippets / "good.py"
    snippet.write_text(snippet.read_text() + "more_bytes = 1\n")
    page = (small_book.docs / "zh" / "page.md").read_text()
    html = Markdown(extensions=[makeExtension(root=str(small_book.root), local=False, language="zh")]).convert(page)
    names = f"{record.device['name']}、Other" if path.parent.name < "other" else f"Other、{record.device['name']}"
    assert f"{names} 上的输出（此后代码有改动）" in html
    assert "snippets/good.py，第 2 行" in html
    assert f"{record.measured_at[:10]}（此后代码有改动）" in html
