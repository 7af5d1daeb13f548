"""Two steps are compared block by block: what is alike is alike whoever made it, and the rest is told by line."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.__main__ import find
from flops_bytes.counting.count import count
from flops_bytes.memory.allocator import MIB
from flops_bytes.memory.simulated import Change, write_snapshot
from flops_bytes.tools.compare import Held, alone, compare, main, peak_of
from flops_bytes_data import step_memory

FOLDER = Path(step_memory.__file__).parent


def changes(*sizes: int, line: int = 1) -> list[Change]:
    return [Change(n, size, "forward", "activations", (("f", "own/a.py", line),)) for n, size in enumerate(sizes)]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return step_memory.write_snapshot("mended", tmp_path / "recorded.pickle")


def test_a_counted_step_lacks_of_a_recorded_one_the_workspaces_alone(tmp_path: Path, recorded: Path) -> None:
    """The trainer's step, as PyTorch's allocator had it: those of cuBLAS and cuBLASLt are no tensors."""
    count(lambda: step_memory.trainer(step_memory.RUNS["chunks"]), snapshot=tmp_path / "counted.pickle")
    found = compare((peak_of(tmp_path / "counted.pickle"), peak_of(recorded)))
    counted, run = found["sides"]
    assert counted["alone"] == 0 and counted["blocks"] == 903 and found["alike"] == counted["requested"]
    assert [row["requested"] / MIB for row in run["alone_by_line"]] == [33, 32]
    assert found["more"] == run["alone"] == 65 * MIB


def test_a_planned_step_is_beside_it_to_the_hundredth(tmp_path: Path, recorded: Path) -> None:
    asked = "layers=12 d_model=768 heads=12 head_dim=64 d_ff=3072 vocab=50304 positions=1024 biases=yes gated=no"
    words = ["--shape", f"{asked} norm_shift=yes tied=yes", "--gpu", "RTX 4090", "--micro-batch", "16", "--context"]
    words += ["1024", "--recipe", "autocast", "--checkpointing", "none", "--loss", "chunked", "--snapshot"]
    path = tmp_path / "plan.pickle"
    assert find("plan")([*words, str(path)]) == 0
    planned, run = compare((peak_of(path), peak_of(recorded)))["sides"]
    assert planned["alone"] < 0.001 * planned["requested"] and run["alone"] - 65 * MIB < 0.01 * run["requested"]


def test_blocks_of_the_same_size_are_alike_and_lines_decide_which_is_left() -> None:
    ours = [Held(5, "a", ""), Held(5, "b", ""), Held(5, "a", ""), Held(7, "a", "")]
    assert alone(ours, [Held(5, "a", "other")]) == [Held(5, "b", ""), Held(5, "a", ""), Held(7, "a", "")]
    assert alone(ours, [Held(5, "b", "")]) == [Held(5, "a", ""), Held(5, "a", ""), Held(7, "a", "")]
    assert alone(ours, [Held(5, "b", ""), Held(5, "c", "")]) == [Held(5, "a", ""), Held(7, "a", "")]
    assert alone(ours, [Held(5, "c", "")] * 9) == [Held(7, "a", "")]


def test_what_each_holds_alone_is_told_by_line_the_most_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.pickle", tmp_path / "b.pickle"
    write_snapshot(first, changes(4 * MIB, 4 * MIB, 100), "a test")
    other = [*changes(9 * MIB, 9 * MIB, MIB, line=2), *changes(6 * MIB, line=3)]
    write_snapshot(second, [each._replace(storage=n) for n, each in enumerate(other)], "another")
    assert main([str(first), str(second), "--json", "--rows", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["alike"], found["more"]) == (0, 17 * MIB - 100)
    row = {
        "line": "own/a.py:1 f",
        "said": "activations, forward",
        "requested": 8 * MIB + 100,
        "blocks": 3,
        "each": None,
    }
    assert found["sides"][0]["alone_by_line"] == [row]
    row |= {"line": "own/a.py:2 f", "requested": 19 * MIB}
    rest = {"line": None, "said": "", "requested": 6 * MIB, "blocks": 1, "each": None}
    assert found["sides"][1]["alone_by_line"] == [row, rest]
    assert main([str(first), str(second)]) == 0
    out = capsys.readouterr().out
    assert "A  a.pickle: simulated by a test\n   peak 8.0 MiB in 3 blocks" in out and "B holds 17.0 MiB more" in out
    assert "3 × own/a.py:2 f (activations, forward)" in out


def test_memory_that_was_wanted_is_said(tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = step_memory.write_snapshot("out_of_memory", tmp_path / "failed.pickle")
    assert main([str(recorded), str(failed)]) == 0
    out = capsys.readouterr().out
    assert "A  recorded.pickle: recorded" in out and "out of memory: 3,144.0 MiB were wanted besides" in out
    assert "2 × 3,144.0 MiB no line of Python" in out.partition("B alone")[2]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (None, "No such file"),
        (b"PK", "no snapshot that can be read"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}, 4), "nothing is allocated in it"),
        (gzip.compress(b""), "no snapshot that can be read"),
    ],
    ids=["missing", "zip", "nothing allocated", "gzip"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_is_none_ends_in_a_sentence_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], held: bytes | None, said: str, place: int
) -> None:
    write_snapshot(good := tmp_path / "good.pickle", changes(MIB), "a test")
    bad = tmp_path / "bad.pickle"
    if held is not None:
        bad.write_bytes(held)
    files: list[Any] = [good]
    files.insert(place, bad)
    assert main(list(map(str, files))) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"flops-bytes compare: {bad}: ") and said in err and err.count("\n") == 1 and not out
