"""Gradients whose shares the host keeps do not stay on the card, in a run's first steps as on paper."""

from __future__ import annotations

from typing import Any

import pytest

from flops_bytes.plan import stacks
from flops_bytes.plan.meters import runs_of
from flops_bytes.plan.options import read_options

SHAPE = "layers=4 d_model=512 heads=8 kv_heads=8 head_dim=64 d_ff=1536 vocab=8000"
SHARED: dict[str, Any] = {"shape": SHAPE, "gpu": "H100 SXM", "gpus": 2, "zero": 3, "recipe": "bf16", "context": 512}


@pytest.mark.parametrize(("offload", "stay"), [("no", True), ("yes", True), ("all", False)])
@pytest.mark.parametrize("software", ["fsdp1", "fsdp2"])
def test_shares_that_the_host_keeps_are_gone_when_the_update_begins(offload: str, stay: bool, software: str) -> None:
    a = read_options(SHARED | {"offload": offload, "sharding_by": software})
    (steps,) = runs_of(a, stacks.read_model(SHARED, a), ())
    (begins, _) = next(part for part in steps.parts if part[1] == "step 2, update")
    live = 0
    for storage, nbytes, _ in steps.changes[:begins]:
        live += nbytes if steps.lines[storage] == "gradients" else 0
    assert (live > 0) == stay
