"""What is promised shows in its docstring how it is called, by an example that gives what it says: an exact count."""

from __future__ import annotations

import doctest
from types import FunctionType, ModuleType

import pytest

import flops_bytes
import flops_bytes.plan as planner
from flops_bytes.counting import count, ranks
from flops_bytes.memory import adapters, allocator, formulas, optimizers
from flops_bytes.model import config, flops, shapes, stack, tokens
from flops_bytes.parallel import sharding
from flops_bytes.serve import inference
from flops_bytes.tools import watch

EACH = (adapters, flops, optimizers, tokens)  # whose functions have an example each
SOME = (allocator, config, count, formulas, inference, planner, ranks, shapes, sharding, stack, watch)


@pytest.mark.parametrize("module", (*EACH, *SOME), ids=lambda module: module.__name__)
def test_examples_give_what_they_say(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted and not failed


def test_whatever_is_promised_has_an_example() -> None:
    """But for two modules, whose docstrings are a part of what they print: the page on the library has theirs."""
    named = [getattr(flops_bytes, name) for name in flops_bytes.__all__ if name not in flops_bytes.MODULES]
    named += [planner.plan, planner.plan_exactly]
    named += [
        each
        for module in EACH
        for each in vars(module).values()
        if isinstance(each, FunctionType) and each.__module__ == module.__name__
    ]
    assert len(named) > 25
    assert [each.__name__ for each in named if ">>> " not in (each.__doc__ or "")] == []
