# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How far off the planner is where adapters alone are trained: LoRA beside all matrices of a layer, or some."""
# Slow: whole steps on meta.

# --8<-- [start:setup]
from itertools import product

import torch
from torch import Tensor, nn

from flops_bytes.counting.counter import on_cuda
from flops_bytes.lessons.models import again, build, loss
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.adapters import ADAPTED
from flops_bytes.model.shapes import SHAPES
from flops_bytes.plan import plan_exactly as plan

# --8<-- [end:setup]


# --8<-- [start:adapter]
class Adapted(nn.Module):
    """A frozen matrix and beside it two trained ones, of `rank` rows and `rank` columns (Hu et al. 2021)."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False, device="meta")
        self.up = nn.Linear(rank, frozen.out_features, bias=False, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.frozen(x) + self.up(self.down(x))
        return both


# --8<-- [end:adapter]


# --8<-- [start:count]
MODEL, RANK, CONTEXT, BATCH = "llama-3.2-1b", 16, 2_048, 2
MATRICES = {"query-value": ("q", "v"), "attention": ("q", "k", "v", "out")}
MATRICES["all"] = (*MATRICES["attention"], "gate", "up", "down")


def count_step(adapted: str, checkpointing: str) -> tuple[int, int]:
    """Trained parameters, and the bytes at the peak of a forward and a backward pass, with AdamW's state beside."""
    model = build(SHAPES[MODEL], on_cuda).requires_grad_(False)
    for block in model.blocks:
        for name in MATRICES[adapted]:
            setattr(block, name, Adapted(getattr(block, name), RANK))
        if checkpointing == "full":
            block.forward = again(block.forward)
    tokens = torch.zeros(BATCH, CONTEXT, dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    moments = [torch.zeros_like(parameter) for parameter in trained for _ in range(2)]
    with Trace() as trace:
        for tensor in (*model.parameters(), *moments, tokens, targets):
            trace.hold(tensor.untyped_storage())
        loss(model, tokens, targets).backward()
    return sum(parameter.numel() for parameter in trained), trace.peak_bytes


# --8<-- [end:count]


# --8<-- [start:compare]
def planned_ratio(adapted: str, checkpointing: str) -> float:
    asked = {"model": MODEL, "recipe": "fp32", "context": CONTEXT, "micro_batch": BATCH}
    found = plan(gpu="H100 SXM", lora=RANK, lora_on=adapted, checkpointing=checkpointing, **asked)
    trained, counted = count_step(adapted, checkpointing)
    assert found["parameters"]["trained"] == trained
    return float((found["memory_bytes"]["total"] - found["memory_bytes"]["allowance"]) / counted)


ratios = {f"{adapted}, {kind}": planned_ratio(adapted, kind) for adapted, kind in product(ADAPTED, ("none", "full"))}
num_steps = len(ratios)
largest_error_share = max(abs(ratio - 1) for ratio in ratios.values())
for name, ratio in ratios.items():
    print(f"{ratio:.4f}  {name}")
assert largest_error_share < 0.02
# --8<-- [end:compare]
