"""A step that nobody ran is a snapshot that PyTorch's viewers open: with the peak that was counted, or planned."""

from __future__ import annotations

import pickle
import pickletools
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.cuda import _memory_viz

from flops_bytes.counting.command import main as count_main
from flops_bytes.counting.command import script
from flops_bytes.counting.count import count
from flops_bytes.counting.counted import Counted
from flops_bytes.memory.allocator import MIB
from flops_bytes.memory.simulated import Change, snapshot_of
from flops_bytes.model.shapes import GPT2_SMALL, tensors
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import main as plan_main
from flops_bytes.tools.compare import peak_of
from flops_bytes.tools.snapshot import follow, line_of, read
from flops_bytes.tools.snapshot import main as snapshot_main

SCRIPT = """import torch
from torch import nn
model = nn.Sequential(nn.Linear(1000, 3000), nn.GELU(), nn.Linear(3000, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def main():
    for turn in range(9):
        x = torch.ones(500, 1000, device="cuda")
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
main()
"""
QUESTION = {"model": "gpt2", "gpu": "RTX 4090", "recipe": "autocast", "accumulation": "2", "micro_batch": "2"}
WORDS = [word for name, value in QUESTION.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("simulated")


@pytest.fixture(scope="module")
def found(folder: Path) -> Counted:
    (path := folder / "train.py").write_text(SCRIPT)
    return count(script(path, "", []), snapshot=folder / "counted.pickle")


@pytest.fixture(scope="module", params=["counted", "planned"])
def file(request: pytest.FixtureRequest, folder: Path, found: Counted) -> Path:
    path = folder / f"{request.param}.pickle"
    if request.param == "planned":
        assert plan_main([*WORDS, "--snapshot", str(path)]) == 0
    return path


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    return found


# What the viewer unpickles: torch/utils/viz/MemoryViz.js at c842a93
OPCODES = {"PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "NONE", "NEWTRUE", "NEWFALSE"}
OPCODES |= {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "MEMOIZE", "BINPUT"}
OPCODES |= {"LONG_BINPUT", "BINGET", "LONG_BINGET", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "LIST", "DICT"}
OPCODES |= {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
EXACT = 2**53  # whole numbers of JavaScript lie below


def test_the_viewer_reads_the_pickle(file: Path) -> None:
    seen: list[tuple[str, Any]] = [(code.name, argument) for code, argument, _ in pickletools.genops(file.read_bytes())]
    assert {name for name, _ in seen} <= OPCODES and ("PROTO", 4) in seen
    assert max(number for name, number in seen if name == "LONG1") < EXACT


def test_the_viewer_finds_each_block_in_its_segment_at_every_event(file: Path) -> None:
    """It goes from the end back to the beginning, where nothing is there."""
    snapshot = loaded(file)
    segments = {each["address"]: each["total_size"] for each in snapshot["segments"]}
    blocks: dict[int, int] = {}
    for each in snapshot["segments"]:
        addresses = [block["address"] for block in each["blocks"]] + [each["address"] + each["total_size"]]
        assert addresses[0] == each["address"], "it adds sizes up"
        assert [b - a for a, b in pairwise(addresses)] == [block["size"] for block in each["blocks"]]
        assert each["frames"] and each["user_metadata"]
        active = [block for block in each["blocks"] if block["state"] == "active_allocated"]
        assert all(block["frames"] and block["requested_size"] <= block["size"] for block in active)
        blocks |= {block["address"]: block["requested_size"] for block in active}
    events = snapshot["device_traces"][0]
    for event in reversed(events):
        assert event["frames"] and event["stream"] == 0 and type(event["user_metadata"]) is dict
        at, size = event["addr"], event["size"]
        match event["action"]:
            case "segment_alloc":
                assert segments.pop(at) == size
            case "free_completed":
                blocks[at] = size
            case "free_requested":
                assert blocks[at] == size
            case "alloc":
                assert blocks.pop(at) == size
            case other:
                raise AssertionError(other)
        assert all(any(start <= b < start + segments[start] for start in segments) for b in (at,) if b in blocks)
    assert not blocks and not segments
    assert [event["time_us"] for event in events] == list(range(len(events)))
    for event, following in pairwise(events):  # which the viewer makes one
        pair = event["action"], event["addr"]
        assert pair[0] != "free_requested" or (following["action"], following["addr"]) == ("free_completed", pair[1])


def test_the_viewer_knows_a_category_for_what_has_none(file: Path) -> None:
    """It stops otherwise, by a slip in its annotate_snapshot()."""
    categories = {event["category"] for event in loaded(file)["device_traces"][0]}
    assert {"unknown", "weights", "gradients", "activations"} <= categories
    assert len(categories) <= 10, "its colours"


def test_pytorchs_own_functions_read_it(file: Path) -> None:
    snapshot = loaded(file)
    reserved = sum(each["total_size"] for each in snapshot["segments"])
    assert f"total_reserved: {_memory_viz.Bytes(reserved)}" in _memory_viz.segsum(snapshot)
    assert "cudaMalloc" in _memory_viz.trace(snapshot)
    assert "weights" not in _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "base64" in _memory_viz.trace_plot(snapshot)


def test_the_peak_is_the_counted_or_the_planned_one(file: Path, found: Counted) -> None:
    """What is requested; allocated are blocks of whole 512 bytes, and rests below a MiB that stay with a block."""
    planned = sum(plan(**QUESTION, allowance=1)["memory_bytes"].values()) // 2 - 1  # lines, and their total
    peak = peak_of(file)
    assert peak.requested == (planned if file.stem == "planned" else found.peak_bytes)
    assert peak.requested < peak.allocated < 1.05 * peak.requested and not follow(read(file), 0).misfits


def test_it_says_that_it_is_simulated(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, command = loaded(file), "count" if file.stem == "counted" else "plan --model gpt2"
    assert snapshot["allocator_settings"]["simulated"].startswith(f"flops-bytes {command}")
    blocks = [block for each in snapshot["segments"] for block in each["blocks"] if "user_metadata" in block]
    told = [each["user_metadata"]["simulated"] for each in (*snapshot["device_traces"][0], *blocks)]
    assert set(told) == {snapshot["allocator_settings"]["simulated"]}
    assert snapshot_main([str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"simulated by flops-bytes {command}")


def test_a_counted_block_says_which_line_made_it_and_when(folder: Path, found: Counted) -> None:
    device = follow(read(folder / "counted.pickle"), 0)
    live = {(line_of(block.frames).partition("/")[2], block.requested, block.said) for block in device.blocks}
    wide, bytes_of_weight = 4 * 500 * 3000, 4 * 3000 * 1000
    assert ("train.py:3 <module>", bytes_of_weight, "weights, forward, step 1") in live
    assert ("train.py:8 main", wide, "activations, forward, step 2") in live
    assert ("train.py:8 main", bytes_of_weight, "gradients, backward, step 2") in live
    assert ("train.py:9 main", bytes_of_weight, "optimizer state, update, step 1") in live
    names = [(frame.file.rpartition("/torch/")[2], frame.function) for frame in device.blocks[-1].frames or ()]
    assert ("optim/adam.py", "step") in names and names[-1][1] == "<module>"
    assert not any("flops_bytes/" in file or "_pytest/" in file for file, _ in names)
    stacks = {block.frames for block in device.blocks if block.requested == wide and "backward, step 2" in block.said}
    files = [[frame.file.rpartition("/torch/")[2] for frame in stack or ()] for stack in stacks]
    assert {stack[0] for stack in files} == {"nn/modules/linear.py", "nn/modules/activation.py"}
    assert all("nn/modules/container.py" in stack for stack in files)


def test_a_counted_file_ends_where_the_step_does(folder: Path, found: Counted) -> None:
    """Though a function that is left then lets its tensors go."""
    device = follow(read(folder / "counted.pickle"), 0)
    assert ("train.py:7 main", 4 * 500 * 1000) in {
        (line_of(block.frames).partition("/")[2], block.requested) for block in device.live(device.events)
    }


def test_moments_are_noted_as_the_profiler_notes_them(file: Path) -> None:
    notes = loaded(file)["external_annotations"]
    spans = list(zip(notes[::2], notes[1::2], strict=True))
    assert all((a["stage"], b["stage"], a["name"]) == ("START", "END", b["name"]) for a, b in spans)
    assert all(before["time_us"] == after["time_us"] for (_, before), (after, _) in pairwise(spans))
    steps, before = ((", step 1", ", step 2"), []) if file.stem == "counted" else (("",), ["before the step"])
    moments = [f"{moment}{step}" for step in steps for moment in ("forward", "backward", "update")]
    assert [a["name"] for a, _ in spans] == [*before, *moments]


def test_a_plan_has_a_block_for_each_tensor(folder: Path) -> None:
    path = folder / "tensors.pickle"
    assert plan_main([*WORDS, "--snapshot", str(path)]) == 0
    peak, numbers = peak_of(path), list(map(prod, tensors(GPT2_SMALL)))
    for kind, copies in (("weights", 1), ("optimizer", 2), ("gradients", 1)):
        held = sorted(b.requested for b in peak.blocks if b.said == f"{kind}, before the step")
        assert held == sorted(4 * n for n in numbers * copies), kind


def test_a_storage_that_grows_gets_its_new_block_before_the_old_one_goes() -> None:
    steps = [Change(7, MIB, "forward", "weights"), Change(7, MIB, "forward", "weights")]
    events = snapshot_of([*steps, Change(7, -2 * MIB, "update", "")], "a test")["device_traces"][0]
    told = [(event["action"], event["size"] // MIB) for event in events if "segment" not in event["action"]]
    freed = [("free_requested", 1), ("free_completed", 1)]
    assert told == [("alloc", 1), ("alloc", 2), *freed, ("free_requested", 2), ("free_completed", 2)]
    assert {event["category"] for event in events} == {"unknown", "weights"}, "of what it was when it came"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpus", "8"], "without --gpus 8, --zero 3"),
        (["--trained", "all", "--optimizer", "adamw-8bit"], "without --optimizer adamw-8bit"),
        (["--task", "serve"], "a training step of one GPU"),
        (["--gpus", "8", "--tp", "2"], "a training step of one GPU"),
        (["--model", "gemma-2-9b"], "it shows activations, and those of a gemma2 are not derived"),
        (["--micro-batch", "1M"], "more than there are addresses for"),
        (["--snapshot", "/nowhere/step.pickle"], "no file in a folder that exists"),
    ],
)
def test_what_is_no_step_of_one_gpu_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    path = folder / "refused.pickle"
    assert plan_main(["--model", "llama-3-8b", "--gpu", "H100 SXM", "--snapshot", str(path), *more]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("flops-bytes plan: --snapshot: ") and said in err and not out and not path.exists()


def test_the_command_counts_into_a_file_or_says_at_once_that_it_cannot(
    folder: Path, found: Counted, capsys: pytest.CaptureFixture[str]
) -> None:
    path, train = folder / "again.pickle", str(folder / "train.py")
    assert count_main([train, "--snapshot", str(path)]) == 0
    assert path.read_bytes() == (folder / "counted.pickle").read_bytes() and "peak" in capsys.readouterr().out
    (folder / "never.py").write_text("raise SystemExit('it ran')")
    assert count_main([str(folder / "never.py"), "--snapshot", str(folder)]) == 2
    assert "no file in a folder that exists" in capsys.readouterr().err


def test_who_asks_for_no_file_keeps_no_frames(folder: Path, found: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flops_bytes.counting.step_trace.frames_of", None)
    assert count(script(folder / "train.py", "", [])) == found


def test_what_goes_at_once_goes_the_largest_first(tmp_path: Path) -> None:
    widths = range(65, 85, 2)  # so that no weight has as many bytes as another's copy
    copies = [2 * 64 * width for width in widths]

    def step() -> None:
        layers = nn.Sequential(*(nn.Linear(64, width, bias=False) for width in widths))
        with torch.autocast("cuda", torch.bfloat16):
            for layer in layers:  # whose copies autocast keeps until it ends
                layer(torch.ones(1, 64))

    count(step, snapshot=tmp_path / "step.pickle")
    (events,) = pickle.loads((tmp_path / "step.pickle").read_bytes())["device_traces"]
    freed = [event["size"] for event in events if event["action"] == "free_completed" and event["size"] in copies]
    assert freed == copies[::-1] * 2
