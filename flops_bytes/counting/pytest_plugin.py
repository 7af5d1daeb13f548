"""A test that a job's step stays within a memory budget: pytest's fixture `memory_budget`.

    def test_a_rank_stays_below_40_gib(memory_budget):
        step = memory_budget("train.py", "--batch-size", "8", world=64)
        assert step.peak_bytes < 40 * 2**30

Installing the library makes it known to pytest. Nothing is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flops_bytes.counting.counted import Counted


@pytest.fixture
def memory_budget(request: pytest.FixtureRequest) -> Callable[..., Counted]:
    """Counts a step without a GPU: of a script with its arguments, or of a function as count() has it.

    With `world` it counts the ranks of a job, and answers with the one that holds most, of `ranks` if these are given.
    Further options are count()'s. A test that fails shows what was counted, by line of code. Raises Uncountable, which
    fails the test with the line and its cause.
    """
    from flops_bytes.counting.command import named, script
    from flops_bytes.counting.count import count
    from flops_bytes.counting.ranks import count_ranks

    def counted(
        step: str | Path | Callable[[], Any],
        *arguments: str,
        world: int | None = None,
        ranks: Sequence[int] | None = None,
        **options: Any,
    ) -> Counted:
        if not callable(step):
            path, name = named(step)
            step = script(path.resolve(), name, list(arguments))
        ranked = count_ranks(step, world, ranks, **options) if world else {0: count(step, **options)}
        found = max(ranked.values(), key=lambda found: found.peak_bytes)
        request.node.add_report_section("call", "memory", str(found))
        return found

    return counted
