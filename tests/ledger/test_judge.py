"""Records that come from another machine are judged before anybody commits them: valid, fresh, exact, plausible."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.time.gpus import GPUS
from ledger.__main__ import main
from ledger.book import Book
from ledger.compare import leaves
from ledger.judge import expectations
from ledger.measure import read_or_none
from ledger.snippet import Snippet
from tests.conftest import ROOT

BROUGHT = "far-gpu"
EXPECTED = f'[{BROUGHT}]\n"good.measured_seconds" = [0.001, 0.01]\n"good.sizes.large.0" = [2, 2]\n"gone.x" = [1, 2]\n'
Judge = Callable[[], tuple[int, str]]


@pytest.fixture
def folder(small_book: Book, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another device's records of all that is not slow, outside of the book."""
    (small_book.snippets / "slow").mkdir()
    (small_book.snippets / "slow" / "long.py").write_text("x = 1\n")
    (small_book.measurements / "expected.toml").write_text(EXPECTED)
    (own,) = small_book.measurements.glob("*/good.json")
    record = json.loads(own.read_text())
    record["device"] = {"id": BROUGHT, "kind": "cuda", "name": "Far GPU"}
    record["values"] |= {"measured_seconds": 0.002}
    folder = tmp_path_factory.mktemp("brought") / BROUGHT
    folder.mkdir()
    (folder / "good.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def judge(small_book: Book, folder: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    def ask() -> tuple[int, str]:
        code = main(["--root", str(small_book.root), "judge", str(folder)])
        return code, capsys.readouterr().out

    return ask


def change(path: Path, **changes: Any) -> None:
    record = json.loads(path.read_text())
    for key, value in changes.items():
        record[key] = {**record[key], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(record))


def test_good_records_are_described_and_nothing_is_wrong(judge: Judge, folder: Path) -> None:
    change(folder / "good.json", values={"measured_on_gpu": {"a": None}})
    code, said = judge()
    assert code == 0, said
    record, count, *expected = said.splitlines()
    assert re.fullmatch(r"good +\d+\.\d s +without measured_on_gpu\.a", record)
    assert re.fullmatch(r"1 records, \d s; slow ones not recorded: long", count)
    assert [line.split(maxsplit=1) for line in expected] == [
        ["good.measured_seconds", "2.00 ms (expected 1.00 ms to 10.0 ms)"],
        ["good.sizes.large.0", "2 (expected 2 to 2)"],
    ]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "exact values that are others": ({"values": {"size_bytes": 33}}, r"not exact: good\.size_bytes: 32 there, 33 here"),
    "other code": ({"hash": "0" * 64}, "stale: good was measured with other code"),
    "what cannot be": ({"values": {"mfu": 1.5}}, r"invalid: .*good\.json: mfu is 1\.50: more than 1\.2 times"),
    "a stand-in": ({"device": {"before": {"driver": "stand-in"}}}, r"invalid: .*good\.json: rehearsed on a stand-in"),
    "another device": ({"device": {"id": "near-gpu"}}, r"invalid: .*comes from 'near-gpu' but lies in 'far-gpu'"),
    "what nobody expects": (
        {"values": {"measured_seconds": 0.5}},
        r"not expected: good\.measured_seconds is 500 ms \(expected 1\.00 ms to 10\.0 ms\)",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_a_line_and_a_status(judge: Judge, folder: Path, mistake: str) -> None:
    changes, message = WRONG[mistake]
    change(folder / "good.json", **changes)
    code, said = judge()
    problems = [line for line in said.splitlines() if re.match(message, line)]
    assert code == 1 and len(problems) == 1, said


def test_a_clock_above_the_datasheets_is_told_and_no_mistake(judge: Judge, folder: Path) -> None:
    change(folder / "good.json", values={"measured_mfu": 1.1})
    code, said = judge()
    assert code == 0 and "over the peak, which a clock above the datasheet's may explain: good.measured_mfu" in said


def test_a_snippet_without_a_record_is_absent(judge: Judge, small_book: Book) -> None:
    (small_book.snippets / "other.py").write_text("x = 1\n")
    code, said = judge()
    assert code == 1 and "absent: other" in said.splitlines() and "absent: long" not in said


def test_a_record_of_no_snippet_is_refused(judge: Judge, folder: Path) -> None:
    shutil.copy(folder / "good.json", folder / "nosuch.json")
    code, said = judge()
    assert code == 1 and re.search(r"(?m)^invalid: .*nosuch\.json: there is no snippet 'nosuch'", said)


def test_a_folder_without_records_is_named(judge: Judge, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.json").unlink()
    assert judge()[0] == 1
    (folder / "good.json").write_text("{}")
    assert "invalid: " in judge()[1]


def test_what_is_expected_are_values_of_the_book(book: Book) -> None:
    names = [name for bounds in expectations(book).values() for name in bounds]
    assert names
    for name in names:
        snippet, value, *_ = name.split(".")
        assert Snippet.read(book.snippet_file(snippet)).why_not_quotable(value) is None, name


EXPECTED_HERE = expectations(Book(ROOT))
FAR_APART = {"storage_and_strides.measured_slowdown_ratio", "timing.measured_calls_seconds.bf16.0"}  # by what else runs


@pytest.mark.parametrize("device", EXPECTED_HERE)
def test_bounds_are_around_what_was_measured_and_below_the_sheet(device: str) -> None:
    book = Book(ROOT)
    card = {"nvidia-h200": "H200 SXM", "nvidia-h100-80gb-hbm3": "H100 SXM"}[device]
    for name, (low, high) in EXPECTED_HERE[device].items():
        snippet, *path = name.split(".")
        assert 0 < low < high and (high <= 5 * low or name in FAR_APART), name
        record = read_or_none(book.measurements / device / f"{snippet}.json")
        if record:
            value = dict(leaves([], record.values))[tuple(path)]
            assert low / 1.1 <= value <= high and (high <= 5 * value or name in FAR_APART), name
        if name.endswith("_bytes_per_second") and "link" not in name:
            assert high < GPUS[card].bandwidth_bytes_per_second, name
        elif "flop_per_second" in name:
            peaks = GPUS[card].peak_flop_per_second
            assert high < peaks.get(path[-1], peaks["bfloat16"]), name
