"""The logits that GRPO holds at once, in the order of TRL 0.17: two copies while it scores, three while it trains."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

ANSWERS, TOKENS, VOCAB = 4, 64, 20_000
ONE_COPY = 4 * ANSWERS * TOKENS * VOCAB


def log_probabilities(hidden: Tensor, head: Tensor, ids: Tensor) -> Tensor:
    logits = (hidden @ head.T)[:, :-1]
    logits = logits / 0.9
    chosen = logits.gather(-1, ids[..., None])[..., 0]
    return chosen - torch.stack([torch.logsumexp(sequence, -1) for sequence in logits])


@pytest.mark.parametrize(("trains", "copies"), [(False, 2), (True, 3)])
def test_so_many_copies_are_there_at_once(trains: bool, copies: int) -> None:
    """By PyTorch's own allocator: a tracer's dispatch makes it copy where it else works in place."""
    hidden = torch.randn(ANSWERS, TOKENS + 1, 8, requires_grad=trains)
    head = torch.randn(VOCAB, 8, requires_grad=trains)
    ids = torch.randint(VOCAB, (ANSWERS, TOKENS))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with torch.set_grad_enabled(trains):
            found = log_probabilities(hidden, head, ids)
        if trains:
            found.sum().backward()
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    assert peak / ONE_COPY == pytest.approx(copies, rel=0.02)
