"""A record is carried over a change of code only if a fresh run confirms it, keeps what was measured and says so."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.__main__ import main
from ledger.book import Book
from ledger.record import Record, is_stale
from ledger.snippet import Snippet

SOURCE = """\
# --8<-- [start:count]
size_bytes = 4 * 8
steepest = 3.0000001
rows = [{"share": 0.1234567, "measured_seconds": 0.25}, {"share": 0.5}]
print("steepest", steepest)
# --8<-- [end:count]
measured_seconds = 0.5
measured_on_gpu = {"a": 1}
by_case = {"first": {"measured_ratio": 2.0}}
measured_by_side = {"128": 1.0}
# --8<-- [start:bytes]
print(4 * 8, "bytes")
# --8<-- [end:bytes]
"""
STEEPEST = ("--counted", "good.steepest")  # which another machine gave otherwise
RENAMED = {"renamed": {"steepest": "measured_steepest"}, "rounded": {}}
Carry = Callable[..., tuple[int, str]]


@pytest.fixture
def path(small_book: Book) -> Path:
    """The record of another device, which measured other numbers than a run here gives."""
    snippet = small_book.snippets / "good.py"
    snippet.write_text(SOURCE)
    (own,) = small_book.measurements.glob("*/good.json")
    data = json.loads(own.read_text())
    data["device"] = {"id": "far-gpu", "kind": "cuda", "name": "Far GPU"}
    data["measured_at"] = "2026-01-01T00:00:00+00:00"
    data["hash"] = Snippet.read(snippet).hash
    data["outputs"] = {"count": "steepest 3.0000002", "bytes": "32 bytes"}
    shares = [{"share": 0.1234567, "measured_seconds": 0.001}, {"share": 0.5}]
    data["values"] = {
        "size_bytes": 32,
        "steepest": 3.0000002,
        "rows": shares,
        "measured_seconds": 0.002,
        "measured_on_gpu": None,
        "by_case": {"first": {"measured_ratio": 4.0}},
        "measured_by_side": {"8192": 0.1},
    }
    own.unlink()
    path = small_book.measurements / "far-gpu" / "good.json"
    path.parent.mkdir()
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def carry(small_book: Book, path: Path, capsys: pytest.CaptureFixture[str]) -> Carry:
    def edit_and_carry(old: str, new: str, *options: str) -> tuple[int, str]:
        snippet = small_book.snippets / "good.py"
        assert old in snippet.read_text()
        snippet.write_text(snippet.read_text().replace(old, new))
        assert is_stale(Record.read(path), Snippet.read(snippet))
        code = main(["--root", str(small_book.root), "carry", "good", *options])
        assert is_stale(Record.read(path), Snippet.read(snippet)) == bool(code)
        return code, "".join(capsys.readouterr())

    return edit_and_carry


def without(record: Record, *names: str) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in names}


def test_a_renamed_value_keeps_what_was_measured(carry: Carry, path: Path) -> None:
    before = Record.read(path)
    renames = ("--rename", "good.steepest=measured_steepest")
    assert carry("steepest =", "steepest = measured_steepest =", *renames)[0] == 1  # two names now
    assert carry("steepest = measured_steepest =", "measured_steepest =", *renames)[0] == 1  # the old name is used
    code, said = carry('"steepest", steepest', '"steepest", measured_steepest', *renames)
    assert (code, said) == (0, "good: carried, far-gpu\n")
    after = Record.read(path)
    assert without(after, "hash", "values", "carried") == without(before, "hash", "values", "carried")
    assert after.values == {
        "measured_steepest" if name == "steepest" else name: value for name, value in before.values.items()
    }
    (note,) = after.carried
    assert {**note, **RENAMED} == note and note["measured_hash"] == before.hash
    assert Record.read(path).measured_at == before.measured_at < note["at"]


def test_a_record_is_carried_twice_and_only_where_it_is_stale(carry: Carry, path: Path, small_book: Book) -> None:
    renames = ("--rename", "good.steepest=measured_steepest")
    (small_book.snippets / "good.py").write_text(SOURCE.replace(", steepest)", ", 3.0)"))
    assert carry("steepest =", "measured_steepest =", *renames)[0] == 0
    assert carry("0.5\n", "1 / 2\n")[0] == 0
    first, second = Record.read(path).carried
    assert (first["renamed"], second["renamed"]) == ({"steepest": "measured_steepest"}, {})
    before = path.read_bytes()
    assert main(["--root", str(small_book.root), "carry", "good"]) == 0
    assert path.read_bytes() == before


def test_a_rounded_value_is_the_one_that_the_code_gives_now(carry: Carry, path: Path) -> None:
    code, said = carry("3.0000001", "round(3.0000001, 3)", "--round", "good.steepest=.4f")
    assert code == 0, said
    assert Record.read(path).values["steepest"] == 3.0


def test_values_in_lists_are_found_by_a_star(carry: Carry, path: Path, small_book: Book) -> None:
    (small_book.snippets / "good.py").write_text(SOURCE.replace("3.0000001", "3.0000002"))
    options = ("--round", "good.rows.*.share=.2g", "--rename", "good.rows.0.measured_seconds=best_seconds")
    code, said = carry('0.1234567, "measured_seconds"', '0.12, "best_seconds"', *options)
    assert code == 0, said
    assert Record.read(path).values["rows"] == [{"share": 0.12, "best_seconds": 0.001}, {"share": 0.5}]


SAME = ("3.0000001", "3.0000002")
REFUSED: dict[str, tuple[tuple[str, str], tuple[str, ...], str]] = {
    "an exact value that moved": (("4 * 8", "4 * 9"), (), "size_bytes: 32 there, 36 here"),
    "an exact value of another device": (("0.5\n", "1 / 2\n"), (), "steepest: 3.0000002 there, 3.0000001 here"),
    "rounded to another": (
        ("3.0000001", "3.0001"),
        ("--round", "good.steepest=.3f"),
        "steepest: 3.0 there, 3.0001 here",
    ),
    "a value renamed in silence": (
        ("measured_seconds = ", "best_seconds = "),
        (),
        "best_seconds: only here",
    ),
    "a value in a list renamed in silence": (
        ('"measured_seconds":', '"best_seconds":'),
        (),
        "rows.0.measured_seconds: only there",
    ),
    "a case renamed in silence": (('"first"', '"other"'), (), "by_case.other: only here"),
    "a device value of another kind": (("= 0.5\n", '= "soon"\n'), (), "measured_seconds: a number there, a str here"),
    "a value that is gone": (("size_bytes = 4 * 8\n", ""), (), "size_bytes: 32 there, nothing here"),
    "a section that prints no more": (
        ('print("steepest", steepest)', "pass"),
        (),
        "sections that print: bytes, count there, bytes here",
    ),
    "other words": (
        ('print("steepest"', 'print("slowest"'),
        (),
        "section 'count' prints other words: slowest, steepest",
    ),
    "nothing to rename": (SAME, ("--rename", "good.flattest=x"), "there is no value 'flattest'"),
    "a name that is taken": (SAME, ("--rename", "good.steepest=rows"), "there is a 'rows' already"),
    "another snippet's name": (SAME, ("--rename", "steepest=x"), "'steepest=x' is not of the form snippet.value="),
    "a snippet not named": (SAME, ("--rename", "other.x=y"), "'other' is not among the snippets to be carried: good"),
    "a device without records": (SAME, ("--device", "near-gpu"), "near-gpu: there are: far-gpu"),
    "a format that is none": (SAME, ("--round", "good.steepest=three"), "Invalid format specifier"),
}


def test_where_kinds_of_devices_differed_before_they_may_differ_still(
    small_book: Book, path: Path, carry: Carry
) -> None:
    near = json.loads(path.read_text())
    near["device"] = {"id": "near-cpu", "kind": Record.read(path).device["kind"], "name": "Near"}
    near["values"]["by_case"] = {"first": {"measured_ratio": 2.0}, "last": {"measured_ratio": 1.0}}
    near["outputs"] |= {"count": "slope 3.0000002"}
    beside = small_book.measurements / "near-cpu" / "good.json"
    beside.parent.mkdir()
    beside.write_text(json.dumps(near))
    both = '"first": {"measured_ratio": 2.0}', '"first": {"measured_ratio": 2.0}, "last": {"measured_ratio": 2.5}'
    code, told = carry(*both, *STEEPEST, "--device", "far-gpu")
    assert code and "by_case.last: only here" in told, "that was another GPU, and tells nothing of this machine's kind"
    near["device"]["kind"] = "cpu"
    beside.write_text(json.dumps(near))
    code, told = carry('print("steepest"', 'print("slope"', *STEEPEST)
    assert code == 0, told
    assert Record.read(path).values["by_case"] == {"first": {"measured_ratio": 4.0}}
    assert Record.read(path).outputs["count"] == "steepest 3.0000002"


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_change_of_what_is_measured_is_refused(carry: Carry, path: Path, mistake: str) -> None:
    (old, new), options, message = REFUSED[mistake]
    before = path.read_bytes()
    code, said = carry(old, new, *options)
    assert code == 1 and message in said, said
    assert path.read_bytes() == before


NOTE = {"at": "2026-01-01T00:00:00+00:00", "measured_hash": "0" * 64, "confirmed_on": "x", "renamed": {}, "rounded": {}}
BAD_NOTES = {
    "a text": ("yes", "no object of at, measured_hash"),
    "a key too many": ({**NOTE, "by": "me"}, "no object of at, measured_hash"),
    "no date": ({**NOTE, "at": "soon"}, "'at' is no date"),
    "no hash": ({**NOTE, "measured_hash": "0"}, "'measured_hash' is no SHA-256"),
    "renamed what": ({**NOTE, "renamed": ["a"]}, "'renamed' is a list"),
    "renamed to a number": ({**NOTE, "renamed": {"a": 1}}, "holds more than short texts"),
    "a long device": ({**NOTE, "confirmed_on": "x" * 101}, "holds more than short texts"),
}


@pytest.mark.parametrize("mistake", BAD_NOTES)
def test_a_bad_note_is_refused(path: Path, small_book: Book, mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    note, message = BAD_NOTES[mistake]
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"carried": [NOTE]}))
    assert Record.read(path).carried == [NOTE]
    path.write_text(json.dumps(data | {"carried": [NOTE, note]}))
    assert main(["--root", str(small_book.root), "carry", "good"]) == 1
    assert f"good.json: carried.1: {message}" in capsys.readouterr().err


def test_a_section_that_prints_no_more_is_named(carry: Carry, path: Path) -> None:
    path.write_text(path.read_text().replace("3.0000002,", "3.0000001,"))
    assert carry('print("steepest", steepest)', "pass", "--silent", "good.count") == (0, "good: carried, far-gpu\n")
    record = Record.read(path)
    assert record.outputs == {"bytes": "32 bytes"} and record.carried[-1]["renamed"] == {"count": "prints no more"}


def test_a_section_that_printed_nothing_cannot_fall_silent(carry: Carry) -> None:
    code, said = carry("4 * 8", "8 * 4", "--silent", "good.nosuch")
    assert code == 1 and "section 'nosuch' printed nothing there" in said


def test_an_exact_value_may_be_counted_anew_where_it_is_named(carry: Carry, path: Path) -> None:
    assert carry("4 * 8", "4 * 9")[0] == 1
    code, said = carry("size_bytes = 4 * 9", "logits_bytes = 5\nsize_bytes = 4 * 9", "--counted", "good.size_bytes")
    assert code == 1 and "logits_bytes" in said
    both = ("--counted", "good.size_bytes", "--counted", "good.logits_bytes", *STEEPEST)
    code, said = carry("4 * 9", "7 * 4", *both)
    assert code == 1 and "section 'bytes' prints other numbers, though it uses nothing that was measured" in said
    assert carry("7 * 4", "2 * 14", *both, "--printed", "good.bytes") == (0, "good: carried, far-gpu\n")
    record = Record.read(path)
    assert record.outputs == {"count": "steepest 3.0000002", "bytes": "28 bytes"}, (
        "other numbers stand beside a measured one"
    )
    assert (record.values["size_bytes"], record.values["logits_bytes"]) == (28, 5)
    assert record.values["measured_seconds"] == 0.002  # the device's own
    assert record.carried[-1]["renamed"] == {
        **{name: "counted anew" for name in ("size_bytes", "logits_bytes", "steepest")},
        "bytes": "printed anew",
    }


def test_what_a_device_measures_is_not_counted_anew(carry: Carry) -> None:
    code, said = carry("4 * 8", "8 * 4", "--counted", "good.measured_seconds")
    assert code == 1 and "value 'measured_seconds' depends on the device, which alone can tell it" in said
    code, said = carry("8 * 4", "2 * 16", "--counted", "good.rows")  # one of its values does
    assert code == 1 and "value 'rows' depends on the device" in said
    code, said = carry("2 * 16", "32", "--counted", "good.nosuch")
    assert code == 1 and "there is no value 'nosuch' here" in said


def test_what_a_section_prints_may_be_taken_from_here(carry: Carry, path: Path) -> None:
    assert carry('print("steepest"', 'print("the new", "steepest"')[0] == 1
    code, said = carry('"the new"', '"another"', "--printed", "good.nosuch")
    assert code == 1 and "section 'nosuch' prints nothing here" in said
    assert carry('"another"', '"the other"', "--printed", "good.count", *STEEPEST)[0] == 0
    assert Record.read(path).outputs["count"] == "the other steepest 3.0000001"


def test_what_a_record_of_this_very_code_prints_wrongly_may_be_taken_from_here(path: Path, small_book: Book) -> None:
    path.write_text(path.read_text().replace("32 bytes", "40 bytes"))
    arguments = ["--root", str(small_book.root), "carry", "good"]
    assert main(arguments) == 0 and Record.read(path).outputs["bytes"] == "40 bytes", "nothing is stale"
    assert main([*arguments, "--printed", "good.bytes", *STEEPEST]) == 0
    assert Record.read(path).outputs["bytes"] == "32 bytes"


def test_a_new_snippet_that_measures_nothing_is_counted_for_a_device_far_away(
    path: Path, small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    snippet = small_book.snippets / "new.py"
    snippet.write_text("# --8<-- [start:sum]\nsize_bytes = {'a': [4 * 8]}\nprint(32)\n# --8<-- [end:sum]\n")
    arguments = ["--root", str(small_book.root), "carry", "new"]
    assert main(arguments) == 0 and capsys.readouterr().out == "new: counted for far-gpu\n"
    record = Record.read(path.with_name("new.json"))
    assert (record.values, record.outputs) == ({"size_bytes": {"a": [32]}}, {"sum": "32"})
    assert record.device == Record.read(path).device and record.hash == Snippet.read(snippet).hash
    assert record.is_counted_elsewhere and not Record.read(path).is_counted_elsewhere
    (note,) = record.carried
    assert note["renamed"] == {"*": "counted elsewhere"} and note["confirmed_on"] != "far-gpu"
    assert main(arguments) == 0 and capsys.readouterr().out == "new: no record is stale\n"


def test_what_a_new_snippet_measures_the_device_alone_records(
    path: Path, small_book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_book.snippets / "new.py").write_text("by_side = [{'bytes': 4}, {'measured_ratio': 2.0}]\n")
    assert main(["--root", str(small_book.root), "carry", "new"]) == 1
    assert (
        "far-gpu alone can record it: by_side.1.measured_ratio depends on the device; split" in capsys.readouterr().err
    )
    assert not path.with_name("new.json").exists()


def test_a_value_that_is_gone_is_named(carry: Carry, path: Path) -> None:
    assert carry('by_case = {"first": {"measured_ratio": 2.0}}\n', "", *STEEPEST)[0] == 1
    code, said = carry("4 * 8", "8 * 4", "--gone", "good.steepest")
    assert code == 1 and "value 'steepest' is not gone" in said
    code, said = carry("8 * 4", "4 * 8", "--gone", "good.nosuch")
    assert code == 1 and "value 'nosuch' was not there" in said
    assert carry("4 * 8", "8 * 4", "--gone", "good.by_case", *STEEPEST)[0] == 0
    assert "by_case" not in Record.read(path).values


def test_a_value_that_nobody_had_can_be_gone(carry: Carry, path: Path) -> None:
    record = Record.read(path)
    dataclasses.replace(record, values={**record.values, "measured_there": None}).write(path)
    assert carry("4 * 8", "8 * 4", "--gone", "good.measured_there", *STEEPEST)[0] == 0
    assert "measured_there" not in Record.read(path).values


# A snippet that has another name


@pytest.fixture
def rename(small_book: Book, path: Path, capsys: pytest.CaptureFixture[str]) -> Carry:
    """Gives the snippet another name and a change, and carries its record."""

    def rename_and_carry(old: str, new: str, *options: str) -> tuple[int, str]:
        (was := small_book.snippets / "good.py").unlink()
        was.with_name("better.py").write_text(SOURCE.replace(", steepest)", ", 3.0)").replace(old, new))
        code = main(["--root", str(small_book.root), "carry", "better", "--was", "good", *options])
        return code, "".join(capsys.readouterr())

    return rename_and_carry


RENAMES = ("--rename", "better.steepest=measured_steepest")


def test_a_renamed_snippets_record_gets_its_name_and_keeps_what_was_measured(
    rename: Carry, path: Path, small_book: Book
) -> None:
    before = Record.read(path)
    code, said = rename("steepest =", "measured_steepest =", *RENAMES)
    assert (code, said) == (0, "better: carried, far-gpu\n")
    after = Record.read(path.with_name("better.json"))
    assert not path.exists() and after.snippet == "better"
    assert without(after, "snippet", "hash", "values", "carried") == without(
        before, "snippet", "hash", "values", "carried"
    )
    assert not is_stale(after, Snippet.read(small_book.snippet_file("better")))
    (note,) = after.carried
    assert note["renamed"] == {"good.py": "better.py", "steepest": "measured_steepest"}
    assert main(["--root", str(small_book.root), "status"]) == 0


def test_a_renamed_snippet_that_gives_other_values_keeps_its_record(rename: Carry, path: Path) -> None:
    before = path.read_bytes()
    code, said = rename("4 * 8", "4 * 9", *RENAMES)
    assert code == 1 and "size_bytes: 32 there, 36 here" in said
    assert path.read_bytes() == before and not path.with_name("better.json").exists()


def test_no_record_is_written_over(rename: Carry, path: Path) -> None:
    (beside := path.with_name("better.json")).write_bytes(path.read_bytes())
    code, said = rename("steepest =", "measured_steepest =", *RENAMES)
    assert code == 1 and "better.json: stands beside the one of 'good'; remove one of them" in said
    assert beside.read_bytes() == path.read_bytes()


def test_the_old_name_is_no_snippets_and_one_snippets(
    small_book: Book, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_book.snippets / "better.py").write_text(SOURCE)
    for names, was, message in (
        (["better"], "good", "'good' is a snippet still"),
        (["better", "good"], "old", "--was is for one snippet"),
    ):
        assert main(["--root", str(small_book.root), "carry", *names, "--was", was]) == 1
        assert message in capsys.readouterr().err
    assert main(["--root", str(small_book.root), "carry", "better", "--was", "old"]) == 0
    assert capsys.readouterr().out == "better: no record is called old\n"
