"""What is promised shows in its docstring how it is called, by an example that gives what it says: an exact count."""

from __future__ import annotations

import doctest
from importlib import import_module
from types import FunctionType, ModuleType

import pytest

import flops_bytes

MODULES = (
    "counting.count",
    "counting.ranks",
    "memory.adapters",
    "memory.allocator",
    "memory.formulas",
    "memory.optimizers",
    "model.config",
    "model.flops",
    "model.shapes",
    "model.stack",
    "model.tokens",
    "parallel.sharding",
    "plan",
    "serve.inference",
    "tools.watch",
)
FORMULAS = ("memory.adapters", "memory.optimizers", "model.flops", "model.tokens")  # with an example of each


def imported(name: str) -> ModuleType:
    return import_module(f"flops_bytes.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name: str) -> None:
    failed, attempted = doctest.testmod(imported(name))
    assert attempted and not failed


def test_whatever_is_promised_has_an_example() -> None:
    """But for two modules, whose docstrings are a part of what they print: the page on the library has theirs."""
    named = [getattr(flops_bytes, name) for name in flops_bytes.__all__ if name not in flops_bytes.MODULES]
    named += [getattr(imported("plan"), name) for name in imported("plan").__all__]
    named += [
        each
        for module in map(imported, FORMULAS)
        for each in vars(module).values()
        if isinstance(each, FunctionType) and each.__module__ == module.__name__
    ]
    assert len(named) > 25
    assert [each.__name__ for each in named if ">>> " not in (each.__doc__ or "")] == []
