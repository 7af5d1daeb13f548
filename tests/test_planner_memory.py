"""PyTorch's out-of-memory message is explained, as its versions write it, and says what to try first."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from planner.out_of_memory import decode, sizes

# Raised by 2.11.0 with PyTorch's own allocator.
NEWEST = """CUDA out of memory. Tried to allocate 500.00 GiB. GPU 0 has a total capacity of 140.40 GiB of which
134.89 GiB is free. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 0 bytes is reserved by
PyTorch but unallocated. If reserved but unallocated memory is large try setting
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory
Management (https://docs.pytorch.org/docs/stable/notes/cuda.html)"""
LIMITED = NEWEST.replace("500.00", "5.00").replace("free. Of", "free. 7.02 GiB allowed; Of")
# As CUDACachingAllocator.cpp writes it since 2.1, whose first releases misspelled the capacity.
SHARED = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 3 has a total capacty of
47.53 GiB of which 16.88 MiB is free. Process 3652628 has 20.10 GiB memory in use. Including non-PyTorch
memory, this process has 27.40 GiB memory in use. Of the allocated memory 26.10 GiB is allocated by
PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), and 57.79 MiB is reserved by
PyTorch but unallocated. If reserved …"""
FULL = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 1 has a total capacity of
93.02 GiB of which 1.18 GiB is free. Including non-PyTorch memory, this process has 91.82 GiB memory in
use. Of the allocated memory 90.63 GiB is allocated by PyTorch, and 120.54 MiB is reserved by PyTorch
but unallocated."""
# As it was up to 2.0.
OLD = """RuntimeError: CUDA out of memory. Tried to allocate 376.00 MiB (GPU 0; 3.95 GiB total capacity; 1.72 GiB
already allocated; 354.88 MiB free; 2.46 GiB reserved in total by PyTorch) If reserved memory is >>
allocated memory try …"""

CASES = {
    "larger than the card": (NEWEST, "one_tensor", {"asked": "500.0 GiB", "free": "134.9 GiB", "held": "5.0 GiB"}),
    "a share of the card": (LIMITED, "fraction", {"asked": "5.0 GiB", "allowed": "7.0 GiB"}),
    "other processes": (
        SHARED,
        "others",
        {"total": "47.5 GiB", "graphs": "1.5 GiB", "idle": "57.8 MiB", "other": "21.4 GiB"},
    ),
    "tensors": (FULL, "tensors", {"held": "90.6 GiB", "other": "1.1 GiB"}),
    "fragments, long ago": (OLD, "fragments", {"idle": "757.8 MiB", "held": "1.7 GiB", "other": "1.1 GiB"}),
}


@pytest.mark.parametrize(("message", "first", "numbers"), CASES.values(), ids=CASES)
def test_a_message_is_explained(message: str, first: str, numbers: dict[str, str]) -> None:
    found = decode(message)
    assert found is not None and found["first"] == first
    assert numbers.items() <= dict(found["rows"]).items()


@pytest.mark.parametrize("text", ["", "out of memory", NEWEST[60:], "CUDA error: out of memory"])
def test_another_text_is_not(text: str) -> None:
    assert decode(text) is None


UNITS = {"bytes": 1, "KiB": 1_024, "MiB": 1_024**2, "GiB": 1_024**3}


@pytest.mark.parametrize("unit", UNITS)
def test_every_number_is_read_in_its_unit(unit: str) -> None:
    """Each number of a message is another one, so that none stands for its neighbour."""
    newest = f"""Tried to allocate 3.25 {unit}. GPU 0 has a total capacity of 4.25 {unit} of which 5.25 {unit} is free.
    6.25 {unit} allowed; Of the allocated memory 7.25 {unit} is allocated by PyTorch, with 8.25 {unit} allocated in
    private pools, and 9.25 {unit} is reserved by PyTorch but unallocated."""
    names = ("asked", "total", "free", "allowed", "held", "graphs", "idle")
    assert sizes(newest) == {name: int((3.25 + n) * UNITS[unit]) for n, name in enumerate(names)}
    old = f"""Tried to allocate 3.25 {unit} (GPU 0; 4.25 {unit} total capacity; 5.25 {unit} already allocated;
    6.25 {unit} free; 9.25 {unit} reserved in total by PyTorch)"""
    expected = {name: int((3.25 + n) * UNITS[unit]) for n, name in enumerate(("asked", "total", "held", "free"))}
    expected["reserved"] = int(9.25 * UNITS[unit])
    assert sizes(old) == expected | {"idle": expected["reserved"] - expected["held"]}
    assert sizes(old.replace("9.25", "2"))["idle"] == 0, "less is reserved than held: nothing is idle"


def message(total: int, free: int, held: int, idle: int, allowed: str = "") -> str:
    """Eight GiB are asked for on a card of so many GiB."""
    return f"""Tried to allocate 8 GiB. GPU 0 has a total capacity of {total} GiB of which {free} GiB is free.
    {allowed} Of the allocated memory {held} GiB is allocated by PyTorch, and {idle} GiB is reserved by PyTorch but
    unallocated."""


FIRST = {  # on both sides of each threshold
    "larger than the card": (message(7, 0, 7, 0), "one_tensor"),
    "as large as the card": (message(8, 0, 8, 0), "tensors"),
    "free, and not allowed": (message(40, 8, 32, 0, "20 GiB allowed;"), "fraction"),
    "not free, and not allowed": (message(40, 7, 33, 0, "20 GiB allowed;"), "tensors"),
    "free, and allowed": (message(40, 8, 32, 0), "tensors"),
    "as much idle as asked for": (message(40, 0, 32, 8), "fragments"),
    "less idle than asked for": (message(40, 0, 33, 7), "tensors"),
    "as much elsewhere as asked for": (message(40, 0, 32, 0), "others"),
    "less elsewhere than asked for": (message(40, 0, 33, 0), "tensors"),
    "more idle than elsewhere": (message(40, 0, 16, 8), "fragments"),
}


@pytest.mark.parametrize(("text", "first"), FIRST.values(), ids=FIRST)
def test_what_to_try_first_changes_at_its_threshold(text: str, first: str) -> None:
    found = decode(text)
    assert found is not None and found["first"] == first


def test_what_a_context_takes_is_nobody_elses() -> None:
    """Two GiB beside PyTorch are other processes', if less was asked for; less may be the context and libraries."""
    for elsewhere, first in ((2_048, "others"), (2_047, "tensors")):
        text = f"""Tried to allocate 1 MiB. GPU 0 has a total capacity of 40 GiB of which 0 bytes is free. Of the
        allocated memory {40 * 1_024 - elsewhere} MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but
        unallocated."""
        found = decode(text)
        assert found is not None and found["first"] == first
    rows = dict(decode(message(40, 50, 33, 0))["rows"])  # type: ignore[index]
    assert rows["other"] == "0.0 MiB", "another process freed some meanwhile"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_answer_has_words(language: str) -> None:
    folder = Path(__file__).parent.parent / "planner"
    words = yaml.safe_load((folder / f"{language}.yml").read_text(encoding="utf-8"))["memory"]
    assert set(words["first"]) == {first for _, first in FIRST.values()}
    rows = ("asked", "total", "free", "held", "graphs", "idle", "other", "allowed")
    assert tuple(words["rows"]) == rows
    marks = {  # what each advice has to name
        "fraction": "set_per_process_memory_fraction",
        "fragments": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "others": "nvidia-smi",
    }
    assert all(mark in words["first"][name] for name, mark in marks.items())
    assert "set_per_process_memory_fraction" in words["rows"]["allowed"]
    for name, mark in marks.items():
        assert [other for other, text in words["first"].items() if mark in text] == [name]
