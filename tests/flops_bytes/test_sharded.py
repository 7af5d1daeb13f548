"""The sharded trainer, as the script for Slurm starts it, loses no checkpoint when killed, and goes on elsewhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.draw import ALL, SEED

KILLS = int(os.environ.get("KILLS", "2" if ALL else "1"))  # of a rank and of all in turn; each starts torchrun
STEPS, REPORT = 40, 2
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
ENVIRONMENT |= {"PER_NODE": "2", "PORT": "0", "RESTARTS": "0"}  # of the script for Slurm, which runs its `python`
ENVIRONMENT["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def options(folder: Path) -> list[str]:
    return [
        *(f"--steps={STEPS}", f"--report={REPORT}", "--pieces=4", "--batch=2", "--timeout=20"),
        *("--checkpoints", str(folder)),
    ]


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Two ranks, as the script for Slurm starts them where there is none."""
    script = ROOT / "flops_bytes" / "lessons" / "train_sharded.slurm"
    quiet = subprocess.DEVNULL
    return subprocess.Popen(["bash", str(script), *options(folder)], env=ENVIRONMENT, stdout=quiet, stderr=quiet)


def processes(folder: Path) -> list[int]:
    """All that run with this folder among their arguments, dead ones aside."""
    found = []
    for told in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in told.read_text(errors="replace"):
                found.append(int(told.parent.name))
        except OSError:
            continue
    return found


def whole(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("step-*/.metadata"))


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], list[float]]]:
    """The trainer's main, for a run on one rank of a CPU that needs no process of its own."""
    from flops_bytes.lessons.train_sharded import main  # seconds, in the one process that asks

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    yield main
    torch.set_num_threads(threads)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes where Linux tells of them")
def test_no_kill_loses_a_checkpoint_or_leaves_a_process(
    tmp_path: Path, run_here: Callable[[list[str]], list[float]]
) -> None:
    folder, rng = tmp_path / "killed", random.Random(16)
    begin = random.Random(SEED).randrange(2)
    for number in range(begin, begin + KILLS):
        before = whole(folder)
        run = start(folder)
        until = time.monotonic() + 600
        while whole(folder) in ([], before) and run.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        saved = whole(folder)
        assert saved and saved != before, "it went on and saved"
        time.sleep(rng.uniform(0, 0.3))
        one_rank = max(processes(folder))  # torchrun was there first
        victims = [one_rank] if number % 2 == 0 else processes(folder)  # or all at once
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        run.wait()
        until = time.monotonic() + 600
        while processes(folder) and time.monotonic() < until:
            time.sleep(0.05)
        assert processes(folder) == [], "a process was left"
        assert whole(folder)[-1] >= saved[-1], "a checkpoint that was saved is gone"
    assert whole(folder)[-1] < f"step-{STEPS:08}", "it was killed in the middle"
    went_on = run_here(options(folder))  # on one rank
    assert len(went_on) <= STEPS - REPORT, "it went on where it was"
    never_stopped = run_here(options(tmp_path / "whole"))
    assert len(never_stopped) == STEPS
    assert went_on[-1] == pytest.approx(never_stopped[-1], abs=2e-3)  # sums in another order


def test_pieces_are_dealt_evenly_or_not_at_all(run_here: Callable[[list[str]], list[float]]) -> None:
    with pytest.raises(ValueError, match="0 pieces cannot be dealt to 1 ranks"):
        run_here(["--pieces=0"])


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, run_here: Callable[[list[str]], list[float]]) -> None:
    short = ["--steps=2", "--report=2", "--pieces=4", "--batch=2", "--checkpoints", str(tmp_path)]
    assert len(run_here(short)) == 2
    assert run_here(short) == [], "its own goes on, and there is nothing left to do"
    with pytest.raises(ValueError, match="has width 64, this run 32"):
        run_here([*short, "--width=32"])
