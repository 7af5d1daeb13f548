"""What a step reserves, counted without a GPU, beside what somebody's card reserved, and beside PyTorch's allocator.

The model of CS336 and the trainer's steps are the snippet's, as the page on snapshots has them.
"""

from __future__ import annotations

import gzip
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.counting.count import count
from flops_bytes.memory.allocator import MIB, downwards, reserved
from flops_bytes.memory.formulas import activation_bytes
from flops_bytes.model.shapes import parameters
from flops_bytes.tools.snapshot import follow, line_of, read
from flops_bytes_data import step_memory
from published.replay import Replayed, one_ahead, read_histories
from tests.conftest import ROOT

FILE = ROOT / "measurements" / "published" / "snapshots" / "cs336-a2-systems.json.gz"
SNIPPET = ROOT / "snippets" / "slow" / "reserved_steps.py"
DEFINED: dict[str, Any] = {"__name__": "reserved_steps"}  # what stands before the first count
exec(compile(SNIPPET.read_text(encoding="utf-8").partition("# --8<-- [start:one]")[0], SNIPPET, "exec"), DEFINED)
counted, foreseen, kept_by_hand = (DEFINED[name] for name in ("counted", "foreseen", "kept_by_hand"))
SHAPE, BATCH, WORKSPACE_BYTES, IN_ONE = (DEFINED[name] for name in ("SHAPE", "BATCH", "WORKSPACE_BYTES", "IN_ONE"))


SNAPSHOTS = {
    (128, False): "memory_files/memory_ctx128_forward.pickle",
    (256, False): "memory_files/memory_ctx256_forward_.pickle",
    (512, False): "memory_files/memory_ctx512_forward_.pickle",
    (128, True): "memory_files/memory_ctx128_fullstep.pickle",
    (256, True): "memory_files/memory_ctx256_fullstep_.pickle",
    (512, True): "memory_files/memory_ctx512_fullstep_.pickle",
}


@cache
def recorded(seq_len: int, whole: bool) -> Replayed:
    return one_ahead(read_histories(FILE)[SNAPSHOTS[seq_len, whole]])


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("seq_len", "whole"), SNAPSHOTS)
def test_a_step_that_is_counted_reserves_as_much_as_on_the_card(seq_len: int, whole: bool) -> None:
    """Not counted: what reductions take for a moment, and when a freed block's rest had been split off before."""
    ours, theirs = counted(seq_len, whole, True), recorded(seq_len, whole)
    assert ours.peak_allocated_bytes == pytest.approx(theirs.peak_allocated_bytes, rel=1e-4)
    assert ours.peak_reserved_bytes == pytest.approx(theirs.peak_reserved_bytes, rel=2e-3)
    if not whole and seq_len > 128:
        assert ours.peak_allocated_bytes == theirs.peak_allocated_bytes, "to the byte"


def test_without_the_workspaces_of_cublas_that_is_what_is_missing() -> None:
    difference = counted(512, False, True).peak_allocated_bytes - counted(512, False, False).peak_allocated_bytes
    assert difference == WORKSPACE_BYTES
    found = read_histories(FILE)[SNAPSHOTS[512, True]]
    sizes = [step.size for step in found.steps if step.action == "alloc"]
    assert sizes.count(WORKSPACE_BYTES) >= 1


@pytest.mark.parametrize("part", IN_ONE)
def test_each_part_that_is_written_by_hand_keeps_what_its_formula_says(part: str) -> None:
    """Changed alone, with all else as it was."""
    by_hand, in_one = (counted(256, False, False, parts, 2).requested_bytes for parts in ((), (part,)))
    assert by_hand - in_one == kept_by_hand(256, 2, 5)[part]


@pytest.mark.parametrize(("seq_len", "planned_ratio"), [(128, 0.921), (256, 0.865), (512, 0.780)])
def test_these_parts_are_the_lines_that_the_plan_of_a_forward_pass_lacked(seq_len: int, planned_ratio: float) -> None:
    """The plan has a layer whose norms, SiLU and softmax keep what PyTorch's own do."""
    kept = activation_bytes(SHAPE, seq_len, BATCH, width=4, fused=False)
    planned = 4 * sum(parameters(SHAPE).values()) + sum(kept.values())
    theirs = recorded(seq_len, False).peak_allocated_bytes
    assert planned / theirs == pytest.approx(planned_ratio, abs=0.001)
    named = sum(kept_by_hand(seq_len, SHAPE.layers, 2 * SHAPE.layers + 1).values())
    assert 0.99 < (planned + named) / theirs < 1


@pytest.mark.drawn(1)
@pytest.mark.parametrize("case", ["quarter", "bf16"])
def test_the_trainers_step_reserves_what_pytorchs_own_allocator_did(case: str) -> None:
    """One of few gaps between segments, and one of many."""
    theirs = step_memory.recorded()["counts"][case]
    ours = foreseen(step_memory.RUNS[case])
    assert ours.peak_allocated_bytes == pytest.approx(theirs["allocated_bytes"], rel=1e-3)
    assert ours.peak_reserved_bytes == pytest.approx(theirs["reserved_bytes"], rel=1e-3)
    least, most = count(lambda: step_memory.trainer(step_memory.RUNS[case])).reserved_bytes or (0, 0)
    assert least < theirs["reserved_bytes"] == pytest.approx(most, rel=1e-3)


def test_equal_blocks_are_told_apart_by_where_cuda_puts_segments() -> None:
    """Of two free blocks the one at the lower address is taken: the older one, or that of the newer segment."""
    sizes = [(1, 40), (1, -40), (2, 30), (3, 10), (4, 30), (2, -30), (4, -30), (5, 25), (3, -10), (6, 40)]
    changes = [(storage, size * MIB) for storage, size in sizes]
    assert reserved(changes).peak_reserved_bytes == 110 * MIB, "25 MiB lie in the first segment, and 40 find no room"
    assert reserved(changes, place=downwards()).peak_reserved_bytes == 70 * MIB, "they lie in the second, below it"
    places = downwards()
    assert places(3 * MIB) - places(MIB) == 2 * MIB, "each below the last, in steps of 2 MiB"


@pytest.mark.parametrize("name", step_memory.SNAPSHOTS)
def test_a_snapshot_says_what_was_counted_beside_it(name: str, tmp_path: Path) -> None:
    told = step_memory.recorded()["counts"][name]
    device = follow(read(step_memory.write_snapshot(name, tmp_path / "step.pickle")), 0)
    assert device.misfits == 0
    assert device.peak_allocated.size == told["allocated_bytes"]
    assert device.peak_reserved.size == told["reserved_bytes"]
    assert bool(device.errors) == bool(told["message"]) == (name == "out_of_memory")
    lines = {line_of(block.frames) for block in device.blocks}
    assert any("models.py" in line for line in lines) and all(
        "/tmp" not in line and "site-" not in line for line in lines
    )


def test_a_snapshot_is_kept_without_folders_and_times(tmp_path: Path) -> None:
    def frame(name: str, line: int) -> dict[str, Any]:
        return {"filename": name, "line": line, "name": "forward"}

    frames = [
        frame("/home/me/env/lib/site-packages/torch/nn/functional.py", 7),
        frame("/home/me/book/flops_bytes/lessons/models.py", 9),
        frame("/home/me/book/flops_bytes_data/step_memory.py", 11),
        {"filename": "??", "line": 0, "name": "at::bmm"},
    ]
    block = {"address": 512, "size": 1024, "requested_size": 600, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "address": 512, "total_size": 1024, "stream": 0, "segment_type": "small"}
    event = {"action": "alloc", "addr": 512, "size": 600, "stream": 0, "time_us": 5, "frames": frames}
    freed = {"action": "free_requested", "addr": 512, "size": 600, "stream": 0, "time_us": 6, "frames": frames}
    whole = {
        "segments": [segment | {"is_expandable": False, "blocks": [block]}],
        "device_traces": [[event, freed]],
        "allocator_settings": {"expandable_segments": False},
    }
    (path := tmp_path / "whole.pickle").write_bytes(pickle.dumps(whole, 4))
    (small := tmp_path / "small.pickle").write_bytes(gzip.decompress(step_memory.slim(path)))
    first, second = read(path), read(small)
    assert [each[:4] for each in second.traces[0]] == [each[:4] for each in first.traces[0]]
    names = [(each.file, each.line) for each in second.traces[0][0].frames]
    own = [("flops_bytes/lessons/models.py", 9), ("flops_bytes_data/step_memory.py", 11)]
    assert names == [("torch/nn/functional.py", 7), *own]
    assert second.segments[0].blocks[0].frames == second.traces[0][0].frames and second.traces[0][1].frames == ()
    assert [word for word in (b"time_us", b"/home", b"at::bmm") if word in small.read_bytes()] == []


def test_what_was_recorded_is_small_and_names_its_pytorch() -> None:
    files = sorted(Path(step_memory.__file__).parent.glob("step_memory.*.gz"))
    assert [path.name.split(".")[1] for path in files] == sorted(step_memory.SNAPSHOTS)
    assert sum(path.stat().st_size for path in files) < 60_000
    told = step_memory.recorded()
    assert {*told["counts"]} == {*step_memory.RUNS, *step_memory.SNAPSHOTS} and "H200" not in json.dumps(told)


def test_a_command_that_is_none_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert step_memory.main([]) == 2 and "FOLDER" in capsys.readouterr().err
