"""What is wrong with a chapter is reported by file and line before anything is built."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from markdown import Markdown

from ledger.__main__ import main
from ledger.book import Book, LedgerError
from ledger.record import Record
from ledger.run import run
from ledger.site import makeExtension
from ledger.site.chapter import KINDS, Chapter
from ledger.site.check import check
from ledger.snippet import Snippet
from tests.conftest import GOOD_PAGE

FIGURES = """\
def bad(values, labels):
    return labels["title"]
def broken(values, labels):
    return 1 / 0
def fine(values, labels):
    return [["head"], ["cell"]]
def rows(values, labels):
    return [["head"], ["{{ good.nothing }}"]]
"""


def reported(book: Book, page: str) -> str:
    path = book.docs / "en" / "page.md"
    path.write_text(page)
    return "\n".join(str(problem) for problem in check(book) if problem.path == path)


def test_a_good_book_has_no_problem(small_book: Book) -> None:
    assert check(small_book) == []


COLUMNS = '\n    columns:\n        A: "{row}"\n        B: "{{ good.sizes.{row} }}"'
TABLES = {
    "no rows": (COLUMNS.removeprefix("\n"), r"a table needs rows:, or of:"),
    "no columns": ("    rows: [small]", r"a table needs columns:"),
    "unknown option": (f"    row: [small]{COLUMNS}", r"a table has of:, rows: and columns:, not row:"),
    "labels": (
        f"    labels: {{a: b}}\n    rows: [small]{COLUMNS}",
        r"a table has of:, rows: and columns:, not labels:",
    ),
    "rows a text": (f"    rows: small{COLUMNS}", r"rows: is a list or a mapping, not 'small'"),
    "columns a text": ("    rows: [small]\n    columns: A", r"columns: is a list or a mapping, not 'A'"),
    "columns a list of texts": (
        "    rows: [small]\n    columns: [A]",
        r"columns: is a mapping or a list of .*, not 'A'",
    ),
    "a column without a template": ("    rows: [small]\n    columns:\n        A:", r"column 'A' has no template"),
    "a template that YAML reads as a number": ("    rows: [small]\n    columns: {A: 1}", r"YAML reads column 'A' as 1"),
    "a header that YAML reads as a number": (
        "    rows: [small]\n    columns: {1: a}",
        r"YAML reads a column's header as 1",
    ),
    "a row that YAML reads as true": (f"    rows: [on]{COLUMNS}", r"YAML reads a row's key as True"),
    "a label that YAML reads as false": (f"    rows: {{small: no}}{COLUMNS}", r"YAML reads row 'small' as False"),
    "a row without a label": (f"    rows:\n        small:{COLUMNS}", r"YAML reads row 'small' as None"),
    "a row twice": (f"    rows: [small, small]{COLUMNS}", r"row 'small' stands there twice"),
    "a label that stands nowhere": (
        f"    rows: {{small: Few}}{COLUMNS}",
        r"row 'small' has a text 'label' that no column",
    ),
    "a text called as a row is": (f"    rows: {{small: {{row: x}}}}{COLUMNS}", r"row 'small' has a text 'row' that no"),
    "too few cells": (f"    rows: {{small: [a]}}{COLUMNS}", r"row 'small' has 1 cells; there are 2 columns"),
    "an unknown field": (
        '    rows: [small]\n    columns: {A: "{label}"}',
        r"row 'small', column 'A': there is no \{label\}; there are \{row\}$",
    ),
    "a row that no record has": (f"    rows: [huge]{COLUMNS}", r"good\.sizes\.huge is not in the record"),
    "a row that the value lacks": (
        '    of: good.sizes\n    rows: [huge]\n    columns: {A: "{row}"}',
        r"good\.sizes\.huge is not in the record",
    ),
    "a value that no snippet binds": (f"    of: good.nothing{COLUMNS}", r"good\.nothing cannot be quoted"),
    "a value that is one number": (f"    of: good.size_bytes{COLUMNS}", r"of: good\.size_bytes is one int; rows are"),
    "a part that is not there": (
        '    of: good.sizes\n    rows: [large]\n    columns: {A: "{item.2}"}',
        r"row 'large', column 'A': there is no \{item\.2\} in \[2, 3\]",
    ),
    "a whole list": (
        '    of: good.sizes\n    rows: [large]\n    columns: {A: "{item}"}',
        r"row 'large', column 'A': \{item\} is a list, neither a text nor a number",
    ),
    "another format": (
        '    of: good.sizes\n    rows: [small]\n    columns: {A: "{item:short}"}',
        r"row 'small', column 'A': \{item:short\}: the one format here is full",
    ),
    "a format of a text": ('    rows: [small]\n    columns: {A: "{row:full}"}', r".*: the one format here is full"),
}

PAGE_MISTAKES = {
    "unknown snippet": ("a\n\n{{ nosuch.x }}", r"page\.md:3: there is no snippet 'nosuch'; there are good"),
    "unknown value": (
        "{{ good.nothing }}",
        r"page\.md:1: good\.nothing cannot be quoted .*binds no top-level name 'nothing'",
    ),
    "unknown part": ("{{ good.sizes.huge }}", r"page\.md:1: good\.sizes\.huge is not in the record"),
    "index out of range": ("{{ good.sizes.large.2 }}", r"page\.md:1: good\.sizes\.large\.2 is not in the record"),
    "a whole dictionary": ("{{ good.sizes }}", r"page\.md:1: good\.sizes: a page prints single values, not a dict"),
    "unknown format": ("{{ good.size_bytes:furlongs }}", r"page\.md:1: unknown format 'furlongs'; there are short"),
    "no value": ("{{ good }}", r"page\.md:1: malformed placeholder"),
    "empty": ("x\n{{ }}", r"page\.md:2: malformed placeholder"),
    "unclosed": ("It is {{ good.size_bytes } wide", r"page\.md:1: placeholder without its closing"),
    "in math": ("so $n = {{ good.size_bytes }}$", r"page\.md:1: placeholder in math"),
    "in display math": ("$$\nx = {{ good.size_bytes }}\n$$", r"page\.md:2: placeholder in math"),
    "in a heading": ("## {{ good.size_bytes }} {#x}", r"page\.md:1: placeholder in a heading"),
    "in raw HTML": ("<div>\n<p>{{ good.size_bytes }}</p>\n</div>", r"page\.md:2: placeholder in raw HTML"),
    "in a tag": ('an <a title="{{ good.size_bytes }}">x</a>', r"page\.md:1: placeholder in raw HTML"),
    "in an alternative text": ("![{{ good.size_bytes }}](x.png)", r"page\.md:1: placeholder in an alternative text"),
    "in a link's address": ("[x](a?b={{ good.size_bytes }})", r"page\.md:1: placeholder in a link's address"),
    "in the front matter": ("---\ntitle: {{ good.size_bytes }}\n---\n", r"page\.md:2: placeholder in the front matter"),
    "block's title": ("/// note | {{ good.nothing }}\n///", r"page\.md:1: good\.nothing cannot be quoted"),
    "no such section": (
        '```python\n--8<-- "snippets/good.py:nosuch"\n```',
        r"page\.md:2: snippets/good\.py has no section 'nosuch'",
    ),
    "no such file": (
        '```python\n--8<-- "snippets/nosuch.py:a"\n```',
        r"page\.md:2: there is no file snippets/nosuch\.py",
    ),
    "space after include": ('```python\n--8<-- "snippets/good.py:count" \n```', r"page\.md:2: malformed include"),
    "fence unclosed": ("text\n```python\nx = 1\n", r"page\.md:2: this code block is never closed"),
    "output of nothing": ("/// output | good:nosuch\n///", r"page\.md:1: snippets/good\.py has no section 'nosuch'"),
    "figure without alt": ("/// figure | good.bad\n///", r"page\.md:1: a figure needs alt:"),
    "figure without labels": ("/// figure | good.bad\n    alt: x\n///", r"page\.md:1: the block's labels lack 'title'"),
    "no SVG": (
        "/// figure | good.bad\n    alt: x\n    labels: {title: x}\n///",
        r"page\.md:1: figures\.good\.bad returned no SVG",
    ),
    "figure raises": ("/// figure | good.broken\n    alt: x\n///", r"page\.md:1: good\.py:4: ZeroDivisionError"),
    "no figure": (
        "/// figure | good.nosuch\n    alt: x\n///",
        r"page\.md:1: figures/good\.py has no function 'nosuch'",
    ),
    "table's cell": ("/// table | good.rows\n///", r"page\.md:1: good\.nothing cannot be quoted"),
    "options a list": ("/// table | good.fine\n    - a\n///", r"page\.md:2: the block's options are no mapping"),
    "options a word": ("/// tip\n    alt\n///", r"page\.md:2: the block's options are no mapping"),
    "options a number": ("/// tip\n    3\n///", r"page\.md:2: the block's options are no mapping"),
    "options false": ("/// tip\n    no\n///", r"page\.md:2: the block's options are no mapping"),
    "label that YAML reads as false": (
        "/// table | good.fine\n    labels: {title: no}\n///",
        r"page\.md:1: YAML reads a label or alt: as False, which is no text; write it in quotes",
    ),
    "label without a text": ("/// table | good.fine\n    labels:\n        title:\n///", r"page\.md:1: .* as None"),
    "label's name that YAML reads as true": (
        "/// table | good.fine\n    labels: {on: x}\n///",
        r"page\.md:1: .* as True",
    ),
    "alt that is none": ("/// figure | good.bad\n    alt: 3\n///", r"page\.md:1: YAML reads a label or alt: as 3"),
    "misspelt block": (
        "a\n\n/// figur | good.bad\n    alt: x\n///",
        r"page\.md:3: there is no block 'figur'; there are",
    ),
    "malformed block": ("/// figure: good.bad\n///", r"page\.md:1: malformed block"),
    "raised index": ("{{ good.sizes.large.² }}", r"page\.md:1: good\.sizes\.large\.² is not in the record"),
    "endless index": (f"{{{{ good.sizes.large.{'9' * 5000} }}}}", r"page\.md:1: good\.sizes\.large\.9+ is not"),
    **{
        f"table: {mistake}": (f"a\n\n/// table\n{options}\n///", rf"page\.md:3: {message}")
        for mistake, (options, message) in TABLES.items()
    },
    "table with a function too": (
        "/// table | good.fine\n    rows: [a]\n///",
        r"page\.md:1: figures\.good\.fine makes this table; rows: is for a block without a function",
    ),
    "a column twice": (
        '/// table\n    rows: [small]\n    columns:\n        A: "{row}"\n        A: "{row}"\n///',
        r"page\.md:2: the block's options are not YAML: 'A' stands there twice",
    ),
    "options no YAML": ("/// table | good.fine\n    labels: [\n///", r"page\.md:2: the block's options are not YAML"),
}


@pytest.mark.parametrize("mistake", PAGE_MISTAKES)
def test_a_mistake_is_reported_at_its_line(small_book: Book, mistake: str) -> None:
    (small_book.root / "figures" / "good.py").write_text(FIGURES)
    page, message = PAGE_MISTAKES[mistake]
    found = reported(small_book, page)
    assert re.search(message, found), found
    assert len(found.splitlines()) == 1, found


SENTENCES = {
    "in prose": ("a\n\nIt took {{ gpu.x_seconds }}.", "page.md:3: gpu.x_seconds"),
    "in an answer": ("/// details | Answer\nIt took {{ gpu.x_seconds }}.\n///", "page.md:2: gpu.x_seconds"),
    "in a caption": ("/// table | good.fine\nIt took {{ gpu.x_seconds }}.\n///", "page.md:2: gpu.x_seconds"),
    "in a list": ("- It\n- took {{ gpu.sizes_bytes.0 }}.", "page.md:2: gpu.sizes_bytes.0"),
    "in a table": ("| a |\n|---|\n| {{ gpu.x_seconds }} |", ""),
    "not recorded yet": ("It took {{ later.x_seconds }}.", ""),
    "new in a stale record": ("It took {{ gpu.y_seconds }}.", ""),
    "in a part that waits": ("/// recorded | gpu.x_seconds\n{{ gpu.x_seconds }}\n///", ""),
    "in a part that is filled": (
        "/// recorded | good.size_bytes\n{{ gpu.x_seconds }}\n///",
        "page.md:2: gpu.x_seconds",
    ),
}


@pytest.mark.parametrize("place", SENTENCES)
def test_a_sentence_around_what_the_default_device_lacks_is_reported(small_book: Book, place: str) -> None:
    (good,) = small_book.measurements.glob("*/good.json")
    (small_book.root / "mkdocs.yml").write_text(f"  default_device: {good.parent.name}  # the first\n")
    (small_book.root / "figures" / "good.py").write_text(FIGURES)
    (small_book.snippets / "later.py").write_text("x_seconds = 1.0\n")
    path = small_book.snippets / "gpu.py"
    path.write_text("x_seconds = None\nsizes_bytes = [None, 1]\n")
    record = Record.of(Snippet.read(path), run(Snippet.read(path)))
    record.write(good.with_name("gpu.json"))
    path.write_text(path.read_text() + "y_seconds = 1.0\n")
    page, message = SENTENCES[place]
    found = reported(small_book, page)
    assert found.count("\n") == 0
    assert found.endswith(
        f"{message} would be a dash in a sentence: {record.device['name']} has no such value" if message else ""
    )
    assert bool(found) == bool(message)


def test_a_build_names_all_that_it_cannot_fill_by_what_stands_there(small_book: Book) -> None:
    page = "It is {{ good.nothing }}.\n\n/// output | good:nosuch\n///\n"
    with pytest.raises(LedgerError) as raised:
        Markdown(extensions=[makeExtension(root=str(small_book.root), local=False)]).convert(page)
    first, second = sorted(map(str, raised.value.problems), reverse=True)
    assert "docs/en: It is {{ good.nothing }}.: good.nothing cannot be quoted" in first
    assert second.endswith("/// output | good:nosuch: snippets/good.py has no section 'nosuch'")


def test_a_block_that_is_not_filled_stops_a_build(small_book: Book) -> None:
    """The reader knows blocks at the start of a line alone, Python-Markdown knows them in a list."""
    page = "- a\n\n    /// output | good:count\n    ///\n"
    with pytest.raises(LedgerError, match=r"/// output \| good:count stands where nothing is filled in"):
        Markdown(extensions=[makeExtension(root=str(small_book.root), local=False)]).convert(page)


def test_braces_in_code_are_left_alone(small_book: Book) -> None:
    assert reported(small_book, "`{{ good.nothing }}` and\n\n```jinja\n{{ nosuch.x }}\n```\n") == ""


def test_every_problem_is_reported_at_once(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    (small_book.docs / "en" / "page.md").write_text("{{ a.b }}\n\n{{ good.nothing }}")
    (small_book.docs / "zh" / "page.md").write_text(GOOD_PAGE + "\n{{ good.size_bytes:x }}")
    (small_book.snippets / "worse.py").write_text("x_bytes = 1\nx_bytes = 2\n")
    assert main(["--root", str(small_book.root), "check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r".*/", "", line.split(": ")[0]) for line in lines[:-1]] == [
        "worse.py:1",
        "page.md:1",
        "page.md:3",
        "page.md:11",
    ]
    assert lines[-1] == "4 to mend"


def test_the_book_has_no_problem(book: Book) -> None:
    assert [str(problem) for problem in check(book, local=False)] == []


def test_a_record_that_cannot_be_read_is_reported(small_book: Book) -> None:
    (path,) = small_book.measurements.glob("*/good.json")
    whole = path.read_text()
    break_record: dict[str, Callable[[], object]] = {
        r"good\.json:\d+: not a record, or a truncated one": lambda: path.write_text(whole[: len(whole) // 2]),
        r"good\.json:1: not a record: a JSON list": lambda: path.write_text("[]"),
        r"gone\.json: there is no snippet 'gone'; remove this record": lambda: path.with_name("gone.json").write_text(
            whole
        ),
    }
    for message, act in break_record.items():
        act()
        found = "\n".join(map(str, check(small_book)))
        assert re.search(message, found), found
        path.write_text(whole)


def test_paths_are_relative_to_where_one_stands(small_book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small_book.root)
    assert reported(small_book, "{{ a.b }}").startswith(str(Path("docs/en/page.md:1:")))


def test_a_broken_snippet_is_reported_once_however_often_it_is_quoted(small_book: Book) -> None:
    path = small_book.snippets / "good.py"
    path.write_text(path.read_text().replace("# --8<-- [end:count]\n", ""))
    (problem,) = check(small_book)
    assert "good.py" in str(problem) and "never closed" in str(problem)


def test_a_page_that_is_no_text_is_reported_at_its_line(small_book: Book) -> None:
    path = small_book.docs / "en" / "page.md"
    path.write_bytes(b"# Page {#page}\n\nna\xefve\n")
    assert re.search(r"page\.md:3: not UTF-8: the byte 0xEF$", "\n".join(map(str, check(small_book))))


@pytest.mark.parametrize("sign", ["{{ ", "![", "](", "{{ a.b" + " " * 50])
def test_many_openings_that_do_not_close_are_read_in_a_moment(sign: str) -> None:
    began = time.perf_counter()
    chapter = Chapter.parse(sign * 20_000, Path("page.md"))
    assert len(chapter.all_problems()) == (20_000 if "{{" in sign else 0)
    assert time.perf_counter() - began < 5


def test_the_kinds_of_blocks_are_those_that_a_build_knows(book: Book) -> None:
    text = (
        (book.root / "mkdocs.yml")
        .read_text(encoding="utf-8")
        .partition("markdown_extensions:\n")[2]
        .partition("\n\n")[0]
    )
    known = yaml.safe_load(text.replace("!ENV", ""))
    names = [name for name in known if "blocks" in name or name == "ledger.site.minutes"]
    ours = makeExtension(root=str(book.root), local=False)
    markdown = Markdown(extensions=[*names, ours], extension_configs={name: known[name] for name in names})
    assert {*markdown.parser.blockprocessors["blocks"].blocks, "recorded"} == KINDS  # type: ignore[attr-defined]
