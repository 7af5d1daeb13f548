"""A snapshot says where the memory went, whatever recorded it; a file that is none ends in one sentence."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.memory.allocator import MIB, Settings
from flops_bytes.tools import snapshot as module
from flops_bytes.tools.snapshot import NotPlain, Snapshot, as_snapshot, follow, line_of, main, plain, read, report
from tests.conftest import ROOT

BASE = 4096 * MIB


def frame(line: int, file: str = "/home/me/model.py", name: str = "forward") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


INSIDE = frame(407, "/usr/lib/python3/site-packages/torch/functional.py", "einsum")
KERNEL = frame(0, "??", "at::native::bmm")


def event(action: str, address: int, size: int, line: int | None = None, **more: Any) -> dict[str, Any]:
    frames = {"frames": [KERNEL, INSIDE, frame(line)]} if line else {}
    return {"action": action, "addr": BASE + address, "size": size, "stream": 0, "time_us": 1, **frames, **more}


def freed(address: int, size: int) -> list[dict[str, Any]]:
    return [event("free_requested", address, size), event("free_completed", address, size)]


def block(size: int, state: str = "inactive", requested: int | None = None, **more: Any) -> dict[str, Any]:
    return {"size": size, "state": state, "requested_size": requested or size, **more}


def segment(address: int, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    size = sum(each["size"] for each in blocks)
    kind = "small" if size == 2 * MIB else "large"
    return {"device": 0, "address": BASE + address, "total_size": size, "stream": 0, "segment_type": kind} | {
        "blocks": list(blocks),
        "is_expandable": False,
        **more,
    }


WEIGHT, INPUT, HIDDEN, WASTE = 0, 100 * MIB, 105 * MIB, 200 * MIB
STEP = {
    # A weight of 30 MiB was there; 5 MiB and 6 MiB come, share a segment, and 5 MiB go; 30 MiB come and go for good.
    "segments": [
        segment(WEIGHT, block(30 * MIB, "active_allocated")),
        segment(INPUT, block(5 * MIB), block(6 * MIB, "active_allocated", 6 * MIB - 100), block(9 * MIB)),
        segment(WASTE, block(30 * MIB)),
        segment(300 * MIB, block(512, "active_allocated", 4), block(2 * MIB - 512)),
    ],
    "device_traces": [
        [
            event("segment_alloc", INPUT, 20 * MIB, 10),
            event("alloc", INPUT, 5 * MIB, 10),
            event("alloc", HIDDEN, 6 * MIB - 100, 20),
            event("segment_alloc", WASTE, 30 * MIB, 30),
            event("alloc", WASTE, 30 * MIB - 1, 30),
            *freed(INPUT, 5 * MIB),
            *freed(WASTE, 30 * MIB - 1),
            event("segment_alloc", 300 * MIB, 2 * MIB),
            event("alloc", 300 * MIB, 4),
            event("snapshot", 0, 36 * MIB),
        ]
    ],
    "allocator_settings": {"expandable_segments": False, "max_split_size": -1, "roundup_power2_divisions": {"1": 0}},
}


def made(found: object = STEP) -> Snapshot:
    return as_snapshot(found, 10_000)


def write(path: Path, found: object = STEP, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(found, protocol))
    return path


def test_the_peaks_are_told_with_their_events() -> None:
    device = follow(made(), 0)
    assert (device.events, device.misfits) == (12, 0)
    assert device.peak_allocated == (71 * MIB, 5), "30 + 5 + 6 + 30"
    assert device.peak_reserved == (82 * MIB, 10), "30 + 20 + 30 + 2"


def test_the_peak_is_told_by_line_outside_torch_by_size_and_block_by_block() -> None:
    found = report(made(), 0, rows=3)
    assert [(row["line"], row["size"] // MIB, row["blocks"]) for row in found["by_line"]] == [
        ("before the first event", 30, 1),
        ("me/model.py:30 forward", 30, 1),
        ("me/model.py:20 forward", 6, 1),
        (None, 5, 1),
    ]
    assert [(row["requested"], row["blocks"]) for row in found["by_size"]][:2] == [(30 * MIB - 1, 1), (30 * MIB, 1)]
    assert [(row["size"] // MIB, row["event"]) for row in found["largest"]] == [(30, 0), (30, 5), (6, 3)]


def test_the_gap_has_its_reasons_at_the_peak_and_at_the_end() -> None:
    found = report(made(), 0)
    assert found["gap_at_peak_allocated"] == {
        "requested": 71 * MIB - 101,
        "rounding": 101,
        "waiting": 0,
        "pieces_small": 0,
        "pieces_large": 9 * MIB,
        "segments": 0,
    }
    assert found["gap_at_end"] == {
        "requested": 36 * MIB - 96,
        "rounding": 608,
        "waiting": 0,
        "pieces_small": 2 * MIB - 512,
        "pieces_large": 14 * MIB,
        "segments": 30 * MIB,
    }
    assert sum(found["gap_at_end"].values()) == 82 * MIB


def test_a_rest_that_is_not_split_off_belongs_to_the_block() -> None:
    steps = [event("segment_alloc", 0, 12 * MIB), event("alloc", 0, 11 * MIB), *freed(0, 11 * MIB)]
    found = {"segments": [segment(0, block(12 * MIB))], "device_traces": [steps]}
    assert follow(made(found), 0).peak_allocated == (12 * MIB, 2)
    before = {"segments": [segment(0, block(12 * MIB))], "device_traces": [freed(0, 11 * MIB)]}
    assert follow(made(before), 0).peak_allocated == (12 * MIB, 0)


def test_a_trace_that_was_cut_off_begins_with_what_was_there() -> None:
    """As max_entries does: its first events are gone, frees of blocks that it never saw come."""
    whole = STEP["device_traces"][0]  # type: ignore[index]
    cut = made({**STEP, "device_traces": [whole[4:]]})
    device = follow(cut, 0)
    assert (device.peak_allocated, device.peak_reserved) == ((71 * MIB, 1), (82 * MIB, 6))
    assert [block.size // MIB for block in device.live(0)] == [30, 5, 6] and device.misfits == 0


def test_what_another_stream_may_still_use_waits() -> None:
    steps = [event("segment_alloc", 0, 30 * MIB), event("alloc", 0, 30 * MIB), event("free_requested", 0, 30 * MIB)]
    for state in ("active_pending_free", "active_awaiting_free"):
        found = {"segments": [segment(0, block(30 * MIB, state))], "device_traces": [steps]}
        gap = follow(made(found), 0).gap(3)
        assert (gap.allocated, gap.waiting, gap.reserved) == (0, 30 * MIB, 30 * MIB)


def test_segments_that_grow_are_counted_by_their_pages() -> None:
    last = segment(0, block(10 * MIB, "active_allocated"), block(30 * MIB), is_expandable=True)
    steps = [
        event("segment_map", 0, 20 * MIB),
        event("alloc", 0, 10 * MIB),
        event("segment_map", 20 * MIB, 60 * MIB),
        event("alloc", 10 * MIB, 70 * MIB),
        *freed(10 * MIB, 70 * MIB),
        event("segment_unmap", 40 * MIB, 40 * MIB),
        event("segment_map", 500 * MIB, 2 * MIB),
        event("segment_unmap", 500 * MIB, 2 * MIB),
    ]
    settings = {"expandable_segments": True}
    found = made({"segments": [last], "device_traces": [steps], "allocator_settings": settings})
    device = follow(found, 0)
    assert found.settings == Settings(expandable_segments=True)
    assert (device.peak_allocated, device.peak_reserved) == ((80 * MIB, 4), (80 * MIB, 3))
    gap = device.gap(9)
    assert (gap.pieces_large, gap.pieces_small, gap.segments, gap.reserved) == (30 * MIB, 0, 0, 40 * MIB)
    assert device.gap(8).pieces_small == 2 * MIB
    assert follow(made({"segments": [last], "device_traces": [steps[6:]]}), 0).peak_reserved == (80 * MIB, 0)


def test_each_device_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = segment(0, block(40 * MIB, "active_allocated"), device=2)
    found = {"segments": [*STEP["segments"], other], "device_traces": [*STEP["device_traces"], [], []]}  # type: ignore[misc]
    assert main([str(write(tmp_path / "two.pickle", found)), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["devices"]
    assert [(each["device"], each["peak_allocated"]["size"] // MIB) for each in told] == [(0, 71), (2, 40)]


def test_an_old_snapshot_without_events_addresses_and_frames_is_read() -> None:
    old = [segment(0, {"size": 4 * MIB, "state": "active_allocated"}, {"size": 16 * MIB, "state": "inactive"})]
    found = report(made(old), 0)
    assert found["peak_allocated"] == {"size": 4 * MIB, "event": 0} and found["events"] == 0
    assert [row["line"] for row in found["by_line"]] == ["before the first event"]
    history = [{"frames": [frame(7)]}]
    told = [segment(0, {"size": 4 * MIB, "state": "active_allocated", "history": history})]
    assert report(made(told), 0)["by_line"][0]["line"] == "me/model.py:7 forward"


def test_events_that_contradict_each_other_are_counted_not_believed() -> None:
    """As where recording was off for a while: an address is given twice, or freed and never given."""
    twice = (
        [event("segment_alloc", 0, 20 * MIB)] * 2 + [event("alloc", 0, 5 * MIB)] * 2 + [event("segment_free", MIB, 2)]
    )
    found = {"segments": [segment(0, block(5 * MIB, "active_allocated"), block(15 * MIB))], "device_traces": [twice]}
    device = follow(made(found), 0)
    assert device.peak_allocated == (5 * MIB, 3) and device.gap(5).reserved == 20 * MIB
    assert device.misfits == 1


def test_an_error_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"action": "oom", "device_free": 5, "size": 40 * MIB, "stream": 0, "frames": []}]
    assert main([str(write(tmp_path / "oom.pickle", {"segments": [], "device_traces": [steps]}))]) == 0
    assert "out of memory at event 1: 40.0 MiB were wanted" in capsys.readouterr().out


def test_frames_of_torch_and_of_packages_that_are_named_are_looked_past() -> None:
    read = made({"segments": [], "device_traces": [[event("alloc", 0, 1, 5)]]}).traces[0][0].frames
    assert line_of(read) == "me/model.py:5 forward"
    assert line_of(read, ("torch", "me")) == "no line of Python, as in the backward pass" == line_of(())
    assert line_of(None) == "before the first event"
    steers = event("alloc", 0, 1) | {"frames": [frame(1, "a/b\x1b[2J.py", "f\n")]}
    assert line_of(made({"segments": [], "device_traces": [[steers]]}).traces[0][0].frames) == "a/b?[2J.py:1 f?"


def test_the_command_prints_a_report(tmp_path: Path) -> None:
    path = write(tmp_path / "step.pickle")
    command = [sys.executable, "-m", "flops_bytes", "snapshot", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "device 0: 12 events",
        "  peak allocated         71.0 MiB  after event 5",
        "  peak reserved          82.0 MiB  after event 10",
        "          30.0 MiB       1 × me/model.py:30 forward",
        "          30.0 MiB event 5: me/model.py:30 forward",
        f"  {'segments that hold nothing':<32}{'0.0 MiB':>16}{'32.0 MiB':>16}{'30.0 MiB':>16}",
    ):
        assert line in done.stdout.splitlines()
    loaded = (
        f"import sys; sys.modules['torch'] = None; from flops_bytes.tools.snapshot import main; main([{str(path)!r}])"
    )
    assert subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_is_read_as_pickle_reads_it(protocol: int) -> None:
    many = [str(index) for index in range(300)]  # more than a byte can name
    values = [None, True, False, 0, 255, 65_535, -1, 2**31, 2**62, -(2**62), 0.5, "x" * 300, "é", b"y", b"z" * 300]
    found = {
        "STEP": STEP,
        "many": [*many, *many],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "values": values,
    }
    if protocol == 2:
        values[-2:] = []  # it has bytes as a call
    assert plain(pickle.dumps(found, protocol)) == found


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def deep() -> bytes:
    """A key of tuples in tuples: hashing it overflows the stack of C."""
    return b"\x80\x04}" + b")" + b"\x85" * 1_000_000 + b"Ns."


def many() -> bytes:
    """A thousand traces of a thousand events are one trace and one event."""
    one = event("alloc", 0, 512)
    trace = [one] * 1000
    return pickle.dumps({"segments": [], "device_traces": [trace] * 1000})


def laughs() -> list[Any]:
    """A list that is short in a file, and as a text longer than any memory."""
    told: list[Any] = ["ha"]
    for _ in range(60):
        told = [told, told]
    return told


HOSTILE = {
    "a size of lists in lists": (
        pickle.dumps({"segments": [{**segment(0), "total_size": laughs()}]}),
        "list is no number",
    ),
    "a class": (pickle.dumps({"segments": [Evil()]}), "asks for a class"),
    "a class by name": (b"cos\nsystem\n.", "asks for a class"),
    "a memo of gigabytes": (b"\x80\x04Nr\xff\xff\xff\x7f.", "no list of segments"),
    "what was not made": (b"\x80\x04h\x07.", "what was not made before"),
    "nested keys": (deep(), "something else than text"),
    "references": (many(), "more entries than the file has bytes"),
    "cut off": (pickle.dumps(STEP)[:-40], "ends"),
    "a length beyond its end": (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "ends too early"),
    "nothing": (b"", "ends"),
    "a text": (b"hello", "asks for a class"),
    "an empty stack": (b"\x80\x04.", "takes what is not there"),
    "a number": (pickle.dumps(7), "no list of segments"),
    "no segments": (pickle.dumps({"device_traces": []}), "no list of segments"),
    "a negative size": (pickle.dumps({"segments": [segment(0, block(-512))]}), "no number of bytes"),
    "a size of text": (pickle.dumps({"segments": [{**segment(0), "total_size": "1"}]}), "no number of bytes"),
    "a size of 2**99": (pickle.dumps({"segments": [{**segment(0), "total_size": 2**99}]}), "no number of bytes"),
    "events in a dict": (pickle.dumps({"segments": [], "device_traces": {"a": 1}}), "no list"),
    "an event of text": (pickle.dumps({"segments": [], "device_traces": [["a"]]}), "without an action"),
    "blocks beyond the segment": (
        pickle.dumps({"segments": [{**segment(0, block(1024)), "total_size": 512}]}),
        "more than it",
    ),
    "a protocol of letters": (pickle.dumps(STEP, 0), "asks for a class"),
    "blocks over each other": (
        pickle.dumps({"segments": [segment(0, block(1024, address=BASE), block(1024, address=BASE + 512))]}),
        "over each other",
    ),
    "only lists": (b"\x80\x04" + b"]" * 4_000_000 + b".", "more at once than any snapshot"),
    "only marks": (b"\x80\x04" + b"(" * 4_000_000 + b".", "more at once than any snapshot"),
    "one list that is remembered a million times": (b"\x80\x04]" + b"\x94" * 1_100_000 + b".", "more at once"),
}


@pytest.mark.parametrize(("data", "why"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_snapshot_ends_in_a_sentence(
    data: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile.pickle"
    path.write_bytes(data)
    began = time.process_time()
    assert main([str(path)]) == 2 and time.process_time() - began < 20
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert str(path) in said.err and why in said.err and "torch.cuda.memory._dump_snapshot()" in said.err


def test_what_cannot_be_read_or_is_too_large_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = tmp_path / "large.pickle"
    with large.open("wb") as file:
        file.truncate(module.LARGEST_FILE_BYTES + 1)
    for path, why in (
        (tmp_path / "none", "name a file of"),
        (tmp_path, "name a file of"),
        (Path("/dev/zero"), "it is a folder or a device"),
        (large, "record fewer events"),
    ):
        assert main([str(path)]) == 2
        said = capsys.readouterr().err
        assert str(path) in said and why in said and said.count("\n") == 1


def test_what_takes_longer_than_ten_seconds_is_said_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.pickle"
    events = [{"action": "alloc", "addr": BASE, "size": 512, "stream": 0, "said": "x" * 2**20} for _ in range(11)]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, protocol=4))
    main([str(path)])
    assert re.match(rf"{path}: 11 MiB take up to 0\.2 minutes and 0\.4 GB to read\n", capsys.readouterr().err)


def test_every_byte_that_is_changed_ends_well() -> None:
    """Either it is a snapshot still, or NotPlain says why not: no other exception."""
    data = bytearray(pickle.dumps(STEP))
    refused = 0
    for at in range(len(data)):
        broken = bytes(data[:at]) + bytes([data[at] ^ 0x15]) + bytes(data[at + 1 :])
        try:
            found = as_snapshot(plain(broken), len(broken))
            for number in range(len(found.traces)):
                report(found, number)
        except NotPlain:
            refused += 1
    assert 0 < refused < len(data)


def test_a_file_is_read_from_its_path(tmp_path: Path) -> None:
    assert read(write(tmp_path / "step.pickle")) == made()


def test_what_is_no_text_no_history_and_no_setting_is_left_out() -> None:
    names = {"filename": laughs(), "line": laughs(), "name": laughs()}
    odd = {**STEP, "allocator_settings": {"roundup_power2_divisions": {"1": []}, "max_split_size": "7"}}
    for told in ([frame(7)], 7, [7], {"0": 1}, [], laughs()):
        odd["segments"] = [segment(0, block(4 * MIB, "active_allocated", history=told, frames=[names]))]
        assert report(made(odd), 0)["by_line"]
        odd["segments"] = [segment(0, block(4 * MIB, "active_allocated", history=told), block(16 * MIB, laughs()))]  # type: ignore[arg-type]
        assert made(odd).settings == Settings() and len(made(odd).segments[0].blocks) == 1
    assert Settings(4) == made({"segments": [], "allocator_settings": {"roundup_power2_divisions": {"1": 4}}}).settings
