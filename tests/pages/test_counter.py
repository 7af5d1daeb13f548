"""What *Counting FLOPs* says of operators without a formula is so in the version of PyTorch that it names."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from tests.conftest import ROOT

PAGE = (ROOT / "docs/en/counting-flops.md").read_text(encoding="utf-8")
SAID = set(re.findall(r"[Ii]n torch (\d+\.\d+)", PAGE))
of_that_version = pytest.mark.skipif(
    {".".join(torch.__version__.split(".")[:2])} != SAID, reason=f"the page speaks of torch {SAID}"
)


@torch.library.custom_op("counted_as_zero::multiply", mutates_args=())
def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def grouped() -> torch.Tensor:
    experts, tokens = torch.randn(2, 16, 16, dtype=torch.bfloat16), torch.randn(8, 16, dtype=torch.bfloat16)
    return torch._grouped_mm(tokens, experts, offs=torch.tensor([4, 8], dtype=torch.int32))


def flex() -> object:
    q = torch.randn(1, 2, 128, 64)
    return flex_attention(q, q, q)


def scanned() -> object:
    return scan(lambda sums, x: (sums @ x, sums @ x), torch.eye(4), torch.randn(5, 4, 4))


@of_that_version
@pytest.mark.parametrize("run", [lambda: multiply(torch.eye(4), torch.eye(4)), grouped], ids=["custom_op", "grouped"])
def test_an_ordinary_operator_without_a_formula_runs_and_counts_as_zero(run: Callable[[], torch.Tensor]) -> None:
    with FlopCounterMode(display=False) as counter:
        result = run()
    assert counter.get_total_flops() == 0 < result.abs().sum()


@of_that_version
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("run", [flex, scanned])
def test_a_higher_order_operator_raises_though_it_runs_without_the_counter(run: Callable[[], object]) -> None:
    assert run() is not None
    with FlopCounterMode(display=False), pytest.raises(TypeError):
        run()


@of_that_version
def test_flex_attention_raises_although_there_is_a_formula() -> None:
    assert torch.ops.higher_order.flex_attention in flop_registry
