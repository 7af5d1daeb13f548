# /// script
# requires-python = ">=3.11"
# dependencies = ["accelerate", "torch>=2.11"]
# ///
"""What other estimators say of a step's memory, beside the planner and the count: each asked as its authors show it."""
# Slow: whole steps on meta, each counted twice.

# --8<-- [start:setup]
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from torch.distributed._tools.mem_tracker import MemTracker

from flops_bytes.counting.counter import counted_peak, prepare, update_fused
from flops_bytes.lessons.models import build, loss
from flops_bytes.model.shapes import SHAPES, parameters
from flops_bytes.plan import plan_exactly as plan

# --8<-- [end:setup]


# --8<-- [start:steps]
class Step(NamedTuple):
    model: str
    recipe: str
    attention: str
    checkpointing: str
    context: int
    micro_batch: int


STEPS = {
    "gpt2": Step("gpt2", "fp32", "fused", "none", 1_024, 8),
    "gpt2-medium": Step("gpt2-medium", "bf16-master", "fused", "full", 1_024, 16),
    "llama": Step("llama-3.2-1b", "bf16-master", "fused", "none", 2_048, 2),
    "eager": Step("llama-3.2-1b", "bf16", "eager", "none", 1_024, 4),
}


def ask_count(step: Step) -> int:
    recipe, fused = step.recipe.replace("-", "_"), step.attention == "fused"
    sizes = (step.context, step.micro_batch, recipe, fused, step.checkpointing)
    return counted_peak(SHAPES[step.model], *sizes, foreach=False)


def ask_plan(step: Step) -> int:
    found = plan(gpu="H100 SXM", **step._asdict())["memory_bytes"]
    return int(found["total"] - found["allowance"])


# --8<-- [end:steps]


# --8<-- [start:tracker]
def ask_tracker(step: Step) -> int:
    """PyTorch's own tracker runs the step, on meta too; it needs the model's code and a step's time."""
    recipe, fused = step.recipe.replace("-", "_"), step.attention == "fused"
    model, masters, optimizer = prepare(SHAPES[step.model], recipe, fused, step.checkpointing)
    tokens = torch.zeros(step.micro_batch, step.context, dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, *masters, tokens, targets)
    with tracker:
        loss(model, tokens, targets).backward()
        if recipe == "bf16_master":
            for weight, master in zip(model.parameters(), masters, strict=True):
                master.grad, weight.grad = weight.grad.float(), None
        update_fused(masters, optimizer)
    return int(tracker.get_tracker_snapshot("peak")[torch.device("meta")]["Total"])


# --8<-- [end:tracker]


# --8<-- [start:deepspeed]
def ask_deepspeed(step: Step) -> int:
    """estimate_zero2_model_states_mem_needs(total_params, 1, 1, cpu_offload=False) of DeepSpeed 0.19.8.

    Its lines on one GPU. Weights, both gradients and state of fp16 training; no activations, logits or recipe.
    """
    total_params = sum(parameters(SHAPES[step.model]).values())
    return 2 * total_params + 18 * total_params


# --8<-- [end:deepspeed]


# --8<-- [start:accelerate]
def ask_accelerate(step: Step) -> int:
    """What `accelerate estimate-memory` shows for training with Adam, from the same two functions, of our model."""
    total_bytes, _ = calculate_maximum_sizes(build(SHAPES[step.model]))
    usage = estimate_training_usage(total_bytes, "float32" if step.recipe == "fp32" else "bfloat16")
    return int(max(usage.values()))


# --8<-- [end:accelerate]


# --8<-- [start:eleuther]
def ask_eleuther(step: Step) -> int:
    """calc_transformer_mem.py of EleutherAI's cookbook at 069ae2e, its lines for one GPU without ZeRO."""
    shape = SHAPES[step.model]
    h, L, s, b = shape.d_model, shape.layers, step.context, step.micro_batch
    kv, linears = shape.kv_heads / shape.heads, 3 if shape.gated else 2
    params = 2 * shape.vocab * h + h * s + 8 * h * L + 2 * h
    params += int(2 * (1 + kv) * L * h * h) + linears * L * h * shape.d_ff
    states = (4 if step.recipe == "fp32" else 2) + 4 + 12  # weights, gradients, optimizer
    scores = 0 if step.checkpointing == "full" else 5 * shape.heads * s / h
    return int(params * states + s * b * h * L * (34 + scores))


# --8<-- [end:eleuther]


# --8<-- [start:compare]
ESTIMATORS: dict[str, Callable[[Step], int]] = {
    "plan": ask_plan,
    "tracker": ask_tracker,
    "eleuther": ask_eleuther,
    "deepspeed": ask_deepspeed,
    "accelerate": ask_accelerate,
}
counted_bytes = {name: ask_count(step) for name, step in STEPS.items()}
said_bytes = {tool: {name: ask(step) for name, step in STEPS.items()} for tool, ask in ESTIMATORS.items()}
said_ratio: dict[str, Any] = {
    tool: {name: size / counted_bytes[name] for name, size in said.items()} for tool, said in said_bytes.items()
}
print("counted    ", *(f"{size / 2**30:9.2f} GiB" for size in counted_bytes.values()))
for tool, ratios in said_ratio.items():
    print(f"{tool:11}", *(f"{ratio:13.4f}" for ratio in ratios.values()))
# --8<-- [end:compare]
