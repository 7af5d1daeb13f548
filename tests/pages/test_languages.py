"""Both languages of a page hold the same ids, code, blocks, formulas in order, and quote and link the same things."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import material
import pytest
from markdown import Markdown

from ledger.book import Book
from ledger.record import Record
from ledger.site import makeExtension
from ledger.site.chapter import INLINE, Chapter, Paragraph, rows_of
from ledger.site.comments import without
from tests import tables
from tests.conftest import ROOT

BOOK = Book(ROOT)
NAMES = sorted({path.relative_to(BOOK.docs / path.relative_to(BOOK.docs).parts[0]) for path in BOOK.chapters()})

Item = tuple[int, Any]  # a line, and what stands there


def headings(chapter: Chapter) -> list[Item]:
    return [(heading.line, (heading.level, heading.id)) for heading in chapter.headings]


def fences(chapter: Chapter) -> list[Item]:
    """Code alone: what its comments say is in the page's language."""
    return [(fence.line, (fence.info, tuple(without(fence.lines, fence.language)))) for fence in chapter.fences]


def once(found: Iterable[tuple[int, str]]) -> list[Item]:
    """Each where it first stands, in any order: which sentence says it, and how often, is the language's own."""
    first: dict[str, int] = {}
    for line, text in found:
        first.setdefault(text, line)
    return [(first[text], text) for text in sorted(first)]


def placeholders(chapter: Chapter) -> list[Item]:
    return once((line, text.strip()) for line, text in chapter.placeholders)


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
    return once(chapter.links)


def footnotes(chapter: Chapter) -> list[Item]:
    found = re.compile(r"\[\^([\w-]+)\]")
    return once((line, note) for line, text in chapter.paragraphs for note in found.findall(text))


def formulas(chapter: Chapter) -> list[Item]:
    """Display formulas with all their lines; the words of \\text are a language's own."""
    text = chapter.path.read_text(encoding="utf-8")
    found = re.finditer(r"^\$\$\s*(.+?)\s*\$\$$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, each.start()) + 1, re.sub(r"\\text\{[^{}]*\}", r"\\text", each[1])) for each in found]


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


# What stands elsewhere in a row or column of the other language's table.
MOVED = {("evidence.md", "GPU"), ("traces.md", "GPU")}
CAPITALS = re.compile(r"(?<![A-Za-z])[A-Za-z0-9-]*[A-Z0-9]{2,}[A-Za-z0-9-]*?(?=s?(?![A-Za-z0-9-]))")


def alike_in(table: list[list[str]]) -> dict[tuple[str, int, str], set[int]]:
    """Where in each row, and in each column, what both languages write alike stands: names in capitals, code,
    formulas, values, links, footnotes."""
    found: dict[tuple[str, int, str], set[int]] = {}
    for r, row in enumerate(table):
        for c, cell in enumerate(row):
            notes = re.findall(r"\[\^[\w-]+\]|\]\([^)]*\)", cell)
            text = re.sub(r"\[\^[\w-]+\]|\]\([^)]*\)", " ", cell)
            whole = [match[0] for match in INLINE.finditer(text) if match.lastgroup != "escape"]
            names = [word for word in CAPITALS.findall(INLINE.sub(" ", text)) if not word.isdigit()]
            for word in [*notes, *whole, *names]:
                found.setdefault(("row", r, word), set()).add(c)
                found.setdefault(("column", c, word), set()).add(r)
    return found


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_what_is_written_alike_stands_in_the_same_cell(name: Path) -> None:
    chapters = [Chapter.read(BOOK.docs / language / name) for language in ("en", "zh")]
    tables_of = [
        [rows for piece in chapter.pieces if isinstance(piece, Paragraph) and (rows := rows_of(piece))]
        for chapter in chapters
    ]
    for ours, theirs in zip(*tables_of, strict=True):
        english, chinese = alike_in(ours), alike_in(theirs)
        for place in english.keys() & chinese.keys():
            one, other = english[place], chinese[place]
            assert one <= other or other <= one or (str(name), place[2]) in MOVED, f"docs/*/{name}: {place}"


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
    "a link": ("It takes", "[It](https://of.another/) takes", r"links: .*en/page\.md has no more, .*zh/page\.md:3 has"),
    "a formula": (
        "```python",
        "$$\nx = 1\n$$\n\n```python",
        r"formulas: .*en/page\.md has no more, .*zh/page\.md:5 has",
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


def test_how_often_and_where_a_page_quotes_and_links_is_its_own(small_book: Book) -> None:
    english, chinese = (small_book.docs / language / "page.md" for language in ("en", "zh"))
    text = english.read_text().replace("It takes", "[It](https://of.one/) and [it](https://of.two/) takes")
    english.write_text(text)
    again = "{{ good.size_bytes }}: [two](https://of.two/), [one](https://of.one/), [two](https://of.two/).\n\n"
    chinese.write_text(text.replace("```python", f"{again}```python", 1).replace("It takes {{", "It {{", 1))
    assert chinese.read_text() != text and list(differences(english, chinese)) == []


def test_what_the_ledger_writes_in_chinese_has_chinese_punctuation(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    record = Record.read(path)
    other = dataclasses.replace(record, device={**record.device, "id": "other", "name": "Other, 2 cores"})
    other.write(small_book.measurements / "other" / path.name)
    snippet = small_book.snippets / "good.py"
    snippet.write_text(snippet.read_text() + "more_bytes = 1\n")
    page = (small_book.docs / "zh" / "page.md").read_text()
    html = Markdown(extensions=[makeExtension(root=str(small_book.root), local=False, language="zh")]).convert(page)
    name = record.device["name"].split(",")[0]
    names = f"{name}、Other" if path.parent.name < "other" else f"Other、{name}"
    assert f"{names} 上的输出（此后代码有改动）" in html
    assert "snippets/good.py，第 2 行" in html
    assert f"{record.measured_at[:10]}（此后代码有改动）" in html


def test_the_themes_chinese_is_said_as_the_book_says_it() -> None:
    """The theme's own for the link past the header is 跳转至, "jump to"; a word of ours needs a key of the theme's."""
    folders = [BOOK.docs / "overrides", Path(material.__file__).parent / "templates"]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folders))
    said = '{% import "partials/language.html" as lang with context %}{{ lang.t(key) }}'

    def word(key: str, language: str) -> str:
        return environment.from_string(said).render(config={"theme": {"language": language}}, key=key)

    assert word("action.skip", "zh") == "跳到正文" and word("action.skip", "en") == "Skip to content"
    assert word("clipboard.copy", "zh") == "复制"  # the theme's
    own = re.findall(
        r'^  "([\w.]+)": "', (folders[0] / "partials/language.html").read_text(encoding="utf-8"), re.MULTILINE
    )
    theirs = (folders[1] / "partials/languages/zh.html").read_text(encoding="utf-8")
    assert len(own) > 10 and [key for key in own if f'"{key}": ' not in theirs] == []
    assert [key for key in own if word(key, "zh") == word(key, "en")] == []
