"""The sharded trainer, killed at any moment, loses no saved checkpoint and leaves no process; it goes on elsewhere."""

from __future__ import annotations

import os
import random
import re
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


def command(ranks: int, folder: Path) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    options = [f"--steps={STEPS}", f"--report={REPORT}", "--pieces=4", "--batch=2", "--timeout=20"]
    return [
        sys.executable,
        *launcher,
        "-m",
        "flops_bytes.lessons.train_sharded",
        *options,
        "--checkpoints",
        str(folder),
    ]


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


def last_loss(text: str) -> float:
    return float(re.findall(rf"^step {STEPS}: loss (\S+),", text, re.M)[-1])


def finish(ranks: int, folder: Path) -> str:
    done = subprocess.run(command(ranks, folder), capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes where Linux tells of them")
def test_no_kill_loses_a_checkpoint_or_leaves_a_process(tmp_path: Path) -> None:
    folder, rng = tmp_path / "killed", random.Random(16)
    begin = random.Random(SEED).randrange(2)
    for number in range(begin, begin + KILLS):
        before = whole(folder)
        quiet = subprocess.DEVNULL
        run = subprocess.Popen(command(2, folder), env=ENVIRONMENT, stdout=quiet, stderr=quiet)
        until = time.monotonic() + 600
        while whole(folder) in ([], before) and time.monotonic() < until:
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
    went_on = finish(1, folder)
    first = int(re.findall(r"^step (\d+)", went_on, re.M)[0])
    assert first > REPORT, "it went on where it was"
    never_stopped = finish(1, tmp_path / "whole")
    assert last_loss(went_on) == pytest.approx(last_loss(never_stopped), abs=2e-3)  # sums in another order


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], list[float]]]:
    """The trainer's main, for a run on one rank of a CPU that needs no process of its own."""
    from flops_bytes.lessons.train_sharded import main  # seconds, in the one process that asks

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    yield main
    torch.set_num_threads(threads)


def test_pieces_are_dealt_evenly_or_not_at_all(run_here: Callable[[list[str]], list[float]]) -> None:
    with pytest.raises(ValueError, match="0 pieces cannot be dealt to 1 ranks"):
        run_here(["--pieces=0"])


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, run_here: Callable[[list[str]], list[float]]) -> None:
    short = ["--steps=2", "--report=2", "--pieces=4", "--batch=2", "--checkpoints", str(tmp_path)]
    assert len(run_here(short)) == 2
    assert run_here(short) == [], "its own goes on, and there is nothing left to do"
    with pytest.raises(ValueError, match="has width 64, this run 32"):
        run_here([*short, "--width=32"])


def test_the_slurm_script_runs_without_slurm(tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"PER_NODE": "2", "PORT": "0", "RESTARTS": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    run = [
        "bash",
        str(ROOT / "flops_bytes" / "lessons" / "train_sharded.slurm"),
        "--steps=2",
        "--report=2",
        "--checkpoints",
        str(tmp_path),
    ]
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert whole(tmp_path) == ["step-00000002"]
