"""The fixture `memory_budget`, as a reader's tests have it."""

from pathlib import Path

import pytest

import flops_bytes.counting.ranks  # noqa: F401  # before pytester looks which modules there are

pytest_plugins = "pytester"

SCRIPT = """
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

if "RANK" in os.environ:
    dist.init_process_group("nccl")
model = torch.nn.Linear(1024, int(sys.argv[1]), device="cuda")
if dist.is_initialized():
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(2):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""
TESTS = """
def test_alone(memory_budget):
    assert memory_budget("train.py", "4096").peak_bytes > 32 * 2**20

def test_each_of_eight_ranks(memory_budget):
    step = memory_budget("train.py", "4096", world=8)
    assert 4 * 2**20 < step.peak_bytes < 40 * 2**20 and step.sent

def test_more_than_was_agreed(memory_budget):
    assert memory_budget("train.py", "8192").peak_bytes < 40 * 2**20

def test_of_a_function(memory_budget):
    import torch

    def step():
        x = torch.ones(256, 256, requires_grad=True)
        (x @ x).sum().backward()
    assert memory_budget(step).peak_bytes > 2**18

def test_a_script_that_cannot_be_counted(memory_budget):
    memory_budget("train.py", "many")
"""


def test_a_job_that_takes_more_fails(pytester: pytest.Pytester) -> None:
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-p", "flops_bytes.counting.pytest_plugin", "-p", "no:flops-bytes", "-n", "0")
    done.assert_outcomes(passed=3, failed=2)
    done.stdout.fnmatch_lines(
        ["*assert 1* < *", "*MiB *train.py:15", "*Uncountable: train.py:10: ValueError: invalid literal*"]
    )
