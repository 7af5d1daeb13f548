"""Answers and what the command prints of them without its allocator: for tests that ask nothing of the meters."""

from __future__ import annotations

from functools import partial
from typing import Any

from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import answer_lines
from flops_bytes.plan.fleet import settled

plan_without_meters = partial(plan, meters=False)


def lines_of(**asked: Any) -> str:
    """All lines of an answer, as with --explain."""
    found = plan_without_meters(**asked)
    return "".join(f"{line}\n" for line in answer_lines(found, settled(asked, found), explain=True))
