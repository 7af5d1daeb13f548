"""A record from elsewhere, whatever it holds, ends in a named error or is shown harmlessly."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from markdown import Markdown

from ledger.__main__ import main
from ledger.book import Book, LedgerError
from ledger.fill import makeExtension
from ledger.record import MAX_RECORD_BYTES, Record, Records

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
