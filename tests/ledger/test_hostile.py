"""A record from elsewhere, whatever it holds, ends in a named error or is shown harmlessly."""

from __future__ import annotations

import html
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown

from ledger.__main__ import main
from ledger.book import Book, LedgerError
from ledger.record import MAX_RECORD_BYTES, Record, Records
from ledger.site import makeExtension
from ledger.site.check import check
from ledger.site.plain import markdown, parts
from ledger.site.quote import open_source
from ledger.snippet import Snippet
from ledger.text import Text, hide, inert, link
from tests.conftest import ROOT

SCRIPT = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
OVERRIDE = "\u202egnp.exe"


def good(book: Book) -> Path:
    (path,) = book.measurements.glob("*/good.json")
    return path


def change(path: Path, part: str, value: Any) -> None:
    """Sets `part` of a record, such as device.name."""
    record = json.loads(path.read_text())
    *folders, last = part.split(".")
    place = record
    for folder in folders:
        place = place[folder]
    place[last] = value
    path.write_text(json.dumps(record))


REFUSED: dict[str, tuple[str, Any, str]] = {
    "markup in a value": ("values.text", SCRIPT, "values.text: a text with '<'"),
    "markup in a value's key": ("values.sizes", {SCRIPT: 1}, "values.sizes: a text with '<'"),
    "markup in a list": ("values.texts", ["fine", SCRIPT], r"values.texts.1: a text with '<'"),
    "a link in a value": ("values.text", "[x](javascript:alert(1))", r"values.text: a text with '\]\('"),
    "a placeholder in a value": ("values.text", "{{ good.size_bytes }}", "values.text: a text with '{{'"),
    "a direction override in a name": ("device.name", OVERRIDE, r"device.name: a text with the character U\+202E"),
    "one in a version": ("software.torch", OVERRIDE, r"software.torch: a text with the character U\+202E"),
    "one in an output": ("outputs.count", OVERRIDE, r"outputs.count: a text with the character U\+202E"),
    "one in a key": ("values", {OVERRIDE: 1}, r"values: a text with the character U\+202E"),
    "a terminal's command": ("device.name", "\x1b[2J", r"device.name: a text with the character U\+001B"),
    "half a character": ("outputs.count", "\ud800", r"outputs.count: a text with the character U\+D800"),
    "a long version": ("software.torch", "2" * 101, "software holds more than short texts"),
    "a version that is none": ("software.cuda", {"a": 1}, "software holds more than short texts"),
    "a private character": ("values.text", "\ue02a", r"values.text: a text with the character U\+E02A"),
    "an id with a space": ("device.id", "a nvidia-h200", "device.id is 'a nvidia-h200'"),
    "an id with a line's end": ("device.id", "nvidia-h200\n", r"device.id is 'nvidia-h200\\n'"),
    "an id that leads elsewhere": ("device.id", "..%2f", r"device.id is '\.\.%2f'"),
    "an id with markup": ("device.id", "<img src=x>", "device.id is '<img src=x>'"),
    "a long id": ("device.id", "a" * 101, "device.id is missing or no short text"),
    "the id of local runs": ("device.id", "this-machine", "device.id is 'this-machine'"),
    "a character of width zero": ("device.name", "H\u200b200", r"device.name: a text with the character U\+200B"),
    "a private character of another plane": ("device.name", "\U000f0000", r"device.name: .* U\+F0000"),
    "a tag": ("outputs.count", "x\U000e0041", r"outputs.count: .* U\+E0041"),
    "a blank letter": ("device.name", "\u3164", r"device.name: .* U\+3164"),
    "a name of spaces": ("device.name", "   ", "device.name is missing or no short text"),
    "a run of less than no time": ("seconds", -5e9, "'seconds' is -5e\\+09: no time that a snippet runs"),
    "a run of centuries": ("seconds", 1e300, "'seconds' is 1e\\+300: no time that a snippet runs"),
    "a day that has not come": ("measured_at", "9999-12-31", "'measured_at' is '9999-12-31', when nothing can"),
    "a day before all": ("measured_at", "1970-01-01T00:00:00+00:00", "'measured_at' is '1970-.*, when nothing can"),
    "a time that is a yes": ("values.measured_seconds", True, "measured_seconds is True, no number of seconds"),
    "a time in words": ("values.measured_seconds", "fast", "measured_seconds is 'fast', no number of seconds"),
    "a time of nothing": ("values.measured_seconds", 0, "measured_seconds is 0, which nothing measures"),
    **{
        f"nothing of {unit}": (f"values.measured_{unit}", 0, f"measured_{unit} is 0, which nothing measures")
        for unit in ("flop_per_second", "bytes_per_second", "tokens_per_second")
    },
    "a time without end": ("values.measured_seconds", 1e300, r"measured_seconds is 1e\+300, more than there is"),
    "a negative time within": ("values.measured_all", {"seconds": [1.0, -2.0]}, "seconds.1 is -2, less than nothing"),
    "more bytes than there are": ("values.size_bytes", 1e30, r"size_bytes is 1e\+30, more than there is"),
    "a number without end": ("values.size_bytes", 10**400, "none that can be calculated with"),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_what_no_page_should_show_is_refused(small_book: Book, attack: str) -> None:
    path = good(small_book)
    change(path, *REFUSED[attack][:2])
    with pytest.raises(LedgerError, match=r"good\.json: .*" + REFUSED[attack][2]):
        Record.read(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"measured_seconds": 0.5', '"measured_seconds": 1e999', "1e999 is no number of JSON, or none that can"),
        ('"measured_seconds": 0.5', '"measured_seconds": -Infinity', "-Infinity is no number of JSON"),
        ('"seconds": ', '"seconds": 1e999, "x": ', "1e999 is no number"),
        ('"size_bytes": 32', f'"size_bytes": {"9" * 5000}', "9{20} is no number of JSON, or none that can"),
        ('"size_bytes": 32', '"size_bytes": 32, "size_bytes": 33', "'size_bytes' stands in it twice"),
        ('"format": 1', '"format": 1, "format": 1', "'format' stands in it twice"),
        ('"size_bytes": 32', f'"size_bytes": {"[" * 21}{"]" * 21}', "nested more than 20 deep"),
        ('"size_bytes": 32', f'"size_bytes": {"[" * 900}{"]" * 900}', "nested more than 20 deep"),
        ('"size_bytes": 32', f'"size_bytes": {"[" * 99999}{"]" * 99999}', "not a record"),
        ('"good"', '"good\u0000"', "not a record"),
    ],
)
def test_what_json_lets_through_is_refused(small_book: Book, old: str, new: str, message: str) -> None:
    path = good(small_book)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LedgerError, match=rf"good\.json.*: .*{message}"):
        Record.read(path)


def test_a_record_that_is_too_large_is_refused_before_it_is_read(small_book: Book) -> None:
    path = good(small_book)
    change(path, "values.text", "x" * (MAX_RECORD_BYTES - len(path.read_bytes()) - 100))
    assert Record.read(path).values["text"]
    change(path, "values.text", "x" * MAX_RECORD_BYTES)
    with pytest.raises(LedgerError, match=r"good\.json: larger than 1048576 bytes"):
        Record.read(path)


def test_as_many_keys_as_a_record_can_hold_are_read_in_a_moment(small_book: Book) -> None:
    path = good(small_book)
    change(path, "values.many", {str(number): number for number in range(100_000)})
    with pytest.raises(LedgerError, match="larger than"):
        Record.read(path)
    change(path, "values.many", {str(number): number for number in range(50_000)})
    began = time.perf_counter()
    assert len(Record.read(path).values["many"]) == 50_000  # type: ignore[arg-type]
    assert time.perf_counter() - began < 10


def test_a_record_that_is_a_link_is_refused(small_book: Book) -> None:
    path = good(small_book)
    elsewhere = path.rename(small_book.root / "good.json")
    path.symlink_to(elsewhere)
    with pytest.raises(LedgerError, match=r"good\.json: a link, not a file"):
        Records.load(small_book)


def test_a_folder_with_a_records_name_is_named(small_book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(small_book)
    path.unlink()
    path.mkdir()
    assert main(["--root", str(small_book.root), "status"]) == 1
    assert re.search(r"good\.json: cannot be read: Is a directory", capsys.readouterr().err)


@pytest.mark.parametrize("part", ["device.name", "software.torch", "software.cuda", "outputs.count"])
def test_markup_is_shown_as_text(small_book: Book, part: str) -> None:
    path = good(small_book)
    change(path, part, SCRIPT)
    extension = makeExtension(root=str(small_book.root), default_device=path.parent.name)
    page = Markdown(extensions=[extension]).convert("{{ good.measured_seconds }}\n\n/// output | good:count\n///\n")
    assert "&lt;script&gt;alert(1)" in page
    for tag in ("script", "img"):
        assert f"<{tag}" not in page


# Texts in tables, drawings and Markdown

TEXTS = [  # that a record may hold, each of which Markdown or HTML would read as something else
    "**x**{onclick=alert(3) style=position:fixed;inset:0}",
    "*x*{: onclick=alert(3) }",
    "__x__ _y_ `z`",
    "$x$ and \\(y\\)",
    "![x][page] [x][page]",
    "[^1]",
    "a | b || c",
    "&lt;img src=x onerror=alert(1)&gt;",
    "\\*x\\*",
    "x\n\n# y\n\n- z",
    "~~x~~ ^y^",
    "}} {",
]
HEADS = ["- x", "+ x", "# x", "1. x", "=== x", "/// note", ": x"]
EVIL_FIGURES = """\
from ledger.text import link

def cells(values, labels):
    texts = values["good.texts"]
    keys = list(values["good.keys"])
    quotes = [f"{{{{ good.texts.{n} }}}}" for n in range(len(texts))]
    return [["head", "joined", "code", "quoted", "key"]] + [
        [text, ", ".join(["a", text]), f"`{text}`", quote, f"{key}: {{{{ good.keys.{key} }}}}"]
        for text, quote, key in zip(texts, quotes, keys)
    ]

def drawn(values, labels):
    from figures.svg import Drawing
    drawing = Drawing(100, 100)
    for text in values["good.texts"]:
        drawing.text(0, 0, text)
    return str(drawing)

def linked(values, labels):
    return [["head"], [link("source", values["good.texts"][0])]]

def linked_itself(values, labels):
    return [["head"], [f"[source]({values['good.texts'][0]})"]]
"""
EVIL_PAGE = """\
# Page {#page}

| a |
|---|
| {{ good.texts.0 }} |

/// table | evil.cells
///

/// figure | evil.drawn
    alt: what is drawn
///

[page]: https://example.org
[^1]: A note.
"""
EXTENSIONS = ["attr_list", "footnotes", "tables", "def_list", "pymdownx.superfences", "pymdownx.inlinehilite"]
EXTENSIONS += ["pymdownx.arithmatex", "pymdownx.blocks.admonition"]


def hold(book: Book, texts: list[str]) -> Path:
    """A record that holds these texts, as values and as keys."""
    for name in ("good.py", "evil.py"):
        (book.root / "figures" / name).write_text(EVIL_FIGURES)
    svg = ROOT / "figures" / "svg.py"
    (book.root / "figures" / "svg.py").write_text(svg.read_text())
    snippet = book.snippets / "good.py"
    snippet.write_text(f"{snippet.read_text()}texts = []\nkeys = {{}}\n")
    path = good(book)
    change(path, "hash", Snippet.read(snippet).hash)
    change(path, "values.texts", texts)
    change(path, "values.keys", {text.replace(".", ""): n for n, text in enumerate(texts)})
    return path


def as_page(book: Book, text: str) -> str:
    extension = makeExtension(root=str(book.root), default_device=good(book).parent.name)
    return Markdown(extensions=[*EXTENSIONS, extension]).convert(text)


def elements(page: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)


def test_a_text_in_a_table_or_drawing_is_shown_as_it_is(small_book: Book) -> None:
    hold(small_book, TEXTS + HEADS)
    page = as_page(small_book, EVIL_PAGE)
    for tag in ("strong", "em", "img", "h2", "sup", "script"):
        before_provenance = page.partition('<details class="provenance"')[0]
        assert f"<{tag}" not in before_provenance
    assert not re.search(r"<[^<>'\"]*(?:(?:'[^']*'|\"[^\"]*\")[^<>'\"]*)*\bonclick=", page.replace(page_data(page), ""))
    rows = [elements(row, "td") for row in elements(elements(page, "table")[1], "tr")][1:]
    drawn = [html.unescape(text) for text in elements(page, "text")]
    assert drawn == TEXTS + HEADS
    for text, row in zip(TEXTS + HEADS, rows, strict=True):
        said = [html.unescape(re.sub(r"<[^<>]*>", "", cell)) for cell in row]
        key = text.replace(".", "")
        assert said[:4] == [text, f"a, {text}", text, text]
        assert said[4] == f"{key}: {(TEXTS + HEADS).index(text)}"


def page_data(page: str) -> str:
    return re.search(r"<div hidden id='ledger-data' data-json='[^']*'></div>", page)[0]  # type: ignore[index]


def test_a_text_in_markdown_is_shown_as_it_is(small_book: Book) -> None:
    """As another reader of Markdown, such as a notebook's, shows it."""
    texts = TEXTS + HEADS
    hold(small_book, texts)
    path = small_book.docs / "en" / "page.md"
    path.write_text(
        "".join(f"{{{{ good.texts.{n} }}}}\n\n" for n in range(len(texts))) + "/// table | evil.cells\n///\n"
    )
    source = open_source(small_book, good(small_book).parent.name, local=False)
    written = markdown(parts(source, "en", path, "https://example.org/"))
    assert "onclick" in written and "{" not in re.sub("`[^`]*`", "", written)
    shown = Markdown(extensions=["attr_list", "footnotes", "tables", "pymdownx.tilde"]).convert(written)
    plain = [text.replace("\n", " ") for text in texts]
    assert [html.unescape(text) for text in elements(shown, "p")] == plain
    rows = [elements(row, "td") for row in elements(shown, "tr")][1:]
    assert [[html.unescape(cell) for cell in row[:2]] for row in rows] == [[text, f"a, {text}"] for text in plain]
    assert {*re.findall(r"<(\w+)", shown)} == {"p", "table", "thead", "tbody", "tr", "th", "td", "code"}


def test_a_devices_name_is_shown_as_it_is_in_markdown(small_book: Book) -> None:
    path = good(small_book)
    change(path, "device.name", "**x**{onclick=alert(3)} [a][b]")
    change(path, "outputs.count", "```\n\n# a heading\n\n````")
    source = open_source(small_book, path.parent.name, local=False)
    page = small_book.docs / "en" / "page.md"
    page.write_text("/// output | good:count\n///\n")
    written = markdown(parts(source, "en", page, "https://example.org/"))
    shown = Markdown(extensions=["attr_list", "pymdownx.superfences"]).convert(written)
    assert "on **x**{onclick=alert(3)} [a][b]</p>" in html.unescape(shown)
    assert not re.search("<(strong|h1|a)", shown)
    assert "\n# a heading\n\n````\n</code>" in shown.replace("<span></span>", "")


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "javascript:name", "data:text/html,x", " https://x.org", "https://x.org/ y", "//x"],
)
def test_a_link_leads_to_http_alone(small_book: Book, address: str) -> None:
    hold(small_book, [address])
    for name, message in (("linked", "a page links to http and https alone"), ("linked_itself", "links to .* itself")):
        path = small_book.docs / "en" / "page.md"
        path.write_text(f"# Page {{#page}}\n\n/// table | evil.{name}\n///\n")
        found = "\n".join(map(str, check(small_book)))
        if name == "linked" or ":" in address:
            assert re.search(rf"page\.md:3: .*{message}", found), found
            with pytest.raises(LedgerError, match=message):
                as_page(small_book, path.read_text())
        if name == "linked":
            assert good(small_book).parent.name in found


def test_a_link_keeps_its_address_and_ends_with_it(small_book: Book) -> None:
    address = "https://example.org/a_(b)?c=d&e={f}#g"
    hold(small_book, [address])
    page = as_page(small_book, "/// table | evil.linked\n///\n")
    assert '<a href="https://example.org/a_%28b%29?c=d&amp;e=%7Bf%7D#g">source</a>' in page
    assert link("x", "https://example.org/a-b_c.html") == "[x](https://example.org/a-b_c.html)"


def test_a_hidden_text_equals_what_the_record_says() -> None:
    text = Text("x * y_z")
    found: dict[str, int] = {text: 1}
    assert text == "x * y_z" and text != "x * y" and found["x * y_z"] == 1
    assert text in ("x * y_z",) and {"x * y_z": 1}[text] == 1
    assert f"{text}" == "".join([text]) == hide("x * y_z") != "x * y_z"
    assert inert("NVIDIA H100 80GB HBM3, 2.13 (R) a_b-c") == "NVIDIA H100 80GB HBM3, 2.13 (R) a_b-c"


# What lies below measurements/


def test_the_folder_of_local_runs_is_no_committed_one(small_book: Book) -> None:
    path = good(small_book)
    path.parent.rename(path.parent.with_name("this-machine"))
    for local in (True, False):
        with pytest.raises(LedgerError, match="measurements/this-machine: no device's folder"):
            Records.load(small_book, local)


def test_a_pipe_is_not_waited_for(small_book: Book) -> None:
    os.mkfifo(good(small_book).with_name("more.txt"))
    with pytest.raises(LedgerError, match=r"more\.txt: neither a file nor a folder"):
        Records.load(small_book)
    path = good(small_book)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LedgerError, match=r"good\.json: neither a file nor a folder"):
        Record.read(path)


def test_a_linked_folder_is_refused(small_book: Book) -> None:
    folder = good(small_book).parent
    elsewhere = folder.rename(small_book.root / "elsewhere")
    folder.symlink_to(elsewhere)
    with pytest.raises(LedgerError, match=rf"measurements/{folder.name}: a link, not a folder"):
        Records.load(small_book)


@pytest.mark.parametrize("part", ["size_bytes", "measured_seconds"])
@pytest.mark.parametrize("place", ["It takes {{ good.PART }}.", "/// table | evil.quoted\n///"])
def test_what_no_page_can_print_is_named_on_any_device(small_book: Book, part: str, place: str) -> None:
    path = good(small_book)
    (small_book.root / "figures" / "evil.py").write_text(
        f"def quoted(values, labels):\n    return [['head'], ['{{{{ good.{part} }}}}']]\n"
    )
    other = small_book.measurements / "other-gpu" / "good.json"
    other.parent.mkdir()
    other.write_text(path.read_text())
    change(other, "device.id", "other-gpu")
    change(other, "device.name", "Other GPU")
    change(other, f"values.{part}", [1, 2])
    (small_book.docs / "en" / "page.md").write_text(f"# Page {{#page}}\n\n{place.replace('PART', part)}\n")
    found = check(small_book, path.parent.name, local=False)
    (problem,) = (problem for problem in found if problem.path.parent.name == "en")
    assert re.search(
        rf"page\.md:3: good\.{part}: a page prints single values, not a list; .*"
        r"the record measurements/other-gpu/good\.json of Other GPU",
        str(problem),
    )
