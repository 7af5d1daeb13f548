"""A step that runs is counted as it would be without memory, and what was read of it is a source that can be taken."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flops_bytes.counting.count import count
from flops_bytes.counting.step_trace import StepTrace
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.time.gpus import GPUS
from flops_bytes.tools.watch import Measured, mfu, reading, watch
from published import readings as published
from published.readings import read_source

THREAD = "https://github.com/some/body/pull/1"


def make() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 100))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        words = torch.randint(100, (8, 32))
        F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def watched(steps: int) -> watch:
    step = make()
    with watch("cpu") as seen:
        for _ in range(steps):
            step()
    return seen


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own: models that other tests have left are not seen."""
    gc.collect()
    there, everything = gc.get_objects(), gc.get_objects
    known = {id(each) for each in there}  # which no other object gets while it is in this list
    monkeypatch.setattr(gc, "get_objects", lambda: [x for x in everything() if there and id(x) not in known])


@pytest.mark.usefixtures("alone")
def test_a_step_that_runs_takes_what_was_counted_without_memory() -> None:
    with watch("cpu") as seen:
        step = make()
        step()
        step()
    found = count(make)
    assert (seen.counted.peak_bytes - seen.live_bytes, seen.counted.moment) == (found.peak_bytes, found.moment)
    assert (seen.counted.flops, seen.counted.tokens) == (found.flops, found.tokens)
    for kind in ("weights", "optimizer state", "gradients", "activations"):
        assert seen.counted.kinds[kind] == found.kinds[kind]


def test_the_profiler_saw_as_much() -> None:
    seen = watched(3)
    assert seen.counted.peak_bytes == pytest.approx(seen.measured.peak_bytes, rel=0.01)
    assert seen.measured.reserved_bytes is seen.measured.workspace_bytes is seen.measured.mfu is None
    assert "known on CUDA alone" in str(seen)


@pytest.mark.usefixtures("alone")
def test_one_step_of_a_model_that_was_there_before_counts_its_weights_and_state() -> None:
    step, other = make(), torch.ones(100_000)
    step()
    with watch("cpu") as seen:
        step()
    assert seen.counted.kinds["there before"] >= other.nbytes
    kinds = count(make).kinds
    assert {name: seen.counted.kinds[name] for name in ("weights", "optimizer state")} == {
        name: kinds[name] for name in ("weights", "optimizer state")
    }
    assert seen.measured.watched and "slowed by the count" in str(seen)


@pytest.mark.parametrize(("steps", "free"), [(1, 0), (3, 0), (4, 1), (6, 3)])
def test_the_time_is_that_of_steps_that_were_not_watched(steps: int, free: int) -> None:
    measured = watched(steps).measured
    assert measured.watched is not bool(free)
    assert len(measured.step_seconds) == (free or 1 if steps < 4 else free)


@pytest.mark.parametrize("forwards", [1, 2])
def test_several_optimizers_make_one_step(forwards: int) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    both = [torch.optim.AdamW(each.parameters()) for each in model]
    with watch("cpu") as seen:
        for _ in range(5):
            for turn, optimizer in enumerate(both):
                if turn < forwards:
                    model(torch.ones(4, 8)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    assert len(seen.trace.step()) == 2 and len(seen.measured.step_seconds) == 2
    assert seen.counted.flops == {"matmul": forwards * 5 * 2 * 4 * 8 * 8}


class Words(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4) @ torch.ones(4, 4)


def test_a_loaders_workers_are_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    here, see = os.getpid(), StepTrace.see

    def only_here(*values: Any) -> None:
        assert os.getpid() == here
        see(*values)

    monkeypatch.setattr(StepTrace, "see", only_here)
    with watch("cpu") as seen:
        for x in torch.utils.data.DataLoader(Words(), num_workers=1, multiprocessing_context="fork"):
            model(x).sum().backward()
            optimizer.step()
    assert seen.counted.flops == {"matmul": 2 * 2 * 4 * 4}


def test_lines_are_told_and_nothing_is_left_behind() -> None:
    before = torch.UntypedStorage.resize_
    seen = watched(3)
    assert all(line.startswith("test_watch.py:") for line in seen.lines())
    with pytest.raises(ZeroDivisionError), watch("cpu"):
        torch.ones(1)
        _ = 1 / 0
    assert torch.UntypedStorage.resize_ is before


MEASURED = Measured(
    peak_bytes=2_000_000,
    free_peak_bytes=1_900_000,
    reserved_bytes=4_000_000,
    workspace_bytes=0,
    beside_bytes=0,
    step_seconds=[0.25, 0.2, 0.3],
    watched=False,
    device="NVIDIA H100 80GB HBM3",
    mfu=0.1,
)


def written(folder: Path, seen: watch, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Path:
    monkeypatch.setattr("flops_bytes.tools.watch.get_gpu", lambda: GPUS["H100 SXM"])
    seen.measured = MEASURED
    seen.write(path := folder / "mine.toml", **settings)
    if "thread" in settings:
        published.extract(path, folder)
    return path


def test_a_reading_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, watched(2), monkeypatch, thread=THREAD)
    _, readings = read_source(path)
    assert {each.what: each.value for each in readings} == {
        "allocated_bytes": 1_900_000,
        "reserved_bytes": 4_000_000,
        "step_seconds": 0.25,
    }
    assert all("of its own" in published.missing(each) for each in readings)
    text = path.read_text()
    published.write(path, {}, readings)
    assert path.read_text() == text


def test_the_planner_stands_beside_a_reading_that_says_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"model": "gpt2", "micro_batch": 8, "context": 1024}
    path = written(tmp_path, watched(2), monkeypatch, thread=THREAD, **options)
    (each, *_) = published.compare(read_source(path)[1])
    lines = plan(gpu="H100 SXM", **options)["memory_bytes"]
    assert each.said == (lines["total"] - lines["allowance"],) * 2


def test_a_reading_without_its_address_is_no_source_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, watched(2), monkeypatch)
    with pytest.raises(ValueError, match="it says no thread"):
        read_source(path)


def test_nothing_is_said_of_who_or_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path, watched(2), monkeypatch, thread=THREAD).read_text()
    assert "/" not in text.replace(THREAD, "").replace("measurements/published", "")


def test_a_cpu_gives_no_reading(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="known on CUDA alone"):
        watched(2).write(tmp_path / "mine.toml")
    assert not list(tmp_path.iterdir())


def test_mfu_is_of_the_flops_that_a_step_needs() -> None:
    found = count(make)._replace(flops={"matmul": 10**12}, again_flops=2 * 10**11, flops_dtype="bfloat16")
    assert mfu(found, 0.01, GPUS["H100 SXM"]) == pytest.approx(8e11 / 0.01 / 989.4e12, rel=1e-3)
    assert mfu(found, 0.01, None) is None


def test_attention_counts_on_a_cpu_too() -> None:
    q = torch.randn(2, 4, 64, 32, requires_grad=True)
    with watch("cpu") as seen:
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert seen.counted.flops == {"attention": 7 * 2 * 2 * 4 * 64 * 64 * 32}
    assert "no optimizer worked" in str(seen)


def test_what_was_seen_before_an_error_is_kept() -> None:
    step = make()
    with pytest.raises(KeyboardInterrupt), watch("cpu") as seen:
        for _ in range(5):
            step()
        raise KeyboardInterrupt
    assert "the block ended by KeyboardInterrupt" in str(seen)
    assert seen.counted.flops == watched(5).counted.flops


def test_a_block_in_which_nothing_ran_is_refused() -> None:
    with pytest.raises(ValueError, match="no operation ran"), watch("cpu"):
        pass


def test_one_step_is_told_as_the_first() -> None:
    assert "only the first step was whole" in str(watched(1))
    assert "note" not in str(watched(4))


def test_lines_are_data(tmp_path: Path) -> None:
    text = reading(watched(2).counted, MEASURED, "mine", THREAD, {}, {'a "b".py:1': [1, 2]})
    assert json.dumps('a "b".py:1') in text
