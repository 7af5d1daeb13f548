"""On one rank of a CPU, the sharded trainer makes the losses of the trainer for one card, and ends cleanly."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import nn

from flops_bytes.ranks import ddp, join, leave

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def losses(trainer: str) -> list[float]:
    """Of a toy run on the CPU, a step each, as the trainer prints them."""
    command = [sys.executable, "-m", f"flops_bytes.{trainer}", "--steps=8", "--report=1", "--rate=0.01"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+),", done.stdout, re.M)]


def test_one_rank_repeats_the_losses_of_one_card() -> None:
    one_card = losses("train")
    assert len(one_card) == 8
    assert losses("train_sharded") == pytest.approx(one_card, abs=2e-3)  # sums in another order


def test_what_holds_a_group_is_gone_once_a_rank_has_left_it() -> None:
    """Else the group outlives the call, and its thread may abort the process at its end."""
    gc.disable()
    try:
        join("gloo")
        shared, _ = ddp(nn.Linear(2, 2))  # type: ignore[arg-type]
        group_is_held, cycle = weakref.ref(shared), [shared]
        cycle.append(cycle)  # type: ignore[arg-type]
        del shared, _, cycle
        assert group_is_held()
        leave()
        assert not group_is_held() and not dist.is_initialized()
    finally:
        gc.enable()
