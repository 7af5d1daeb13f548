"""What three meters will show of a training step: allocated, reserved, and nvidia-smi; and whether the run lives."""

# --8<-- [start:meters]
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flops_bytes.memory.allocator import Settings, downwards, upwards
from flops_bytes.memory.first_steps import MIB, Replay, Run, Sharding, Steps, replay, written
from flops_bytes.memory.step import moment_of
from flops_bytes.parallel.sharding import gathered_width
from flops_bytes.plan.model import Model
from flops_bytes.plan.software import Moments, gathers_weights, is_deepspeed
from flops_bytes.plan.training import bytes_by_moment, model_family, recipe_name, step_config, trained_recipe

STATE = ("weights", "adapters", "master", "optimizer")
# What a formula may be off a moment that is gone through, before it counts as something that has no place there.
NEAR_BYTES = 4 * MIB


def run_of(a: Mapping[str, Any], model: Model, lengths: Sequence[Sequence[int]], moments: Moments) -> Run:
    """The run that is asked for, whose state, and what its libraries hold, the moments say."""
    config, at_update = step_config(a, model), moments["update"]
    if gathers_weights(a) and config.autocast:  # what is gathered is cast before
        config = config._replace(recipe="bf16_master")
    recipe, zero = recipe_name(a), int(a["zero"])
    shares = a["gpus"] > 1 and not is_deepspeed(a)
    sharding = Sharding(
        a["gpus"] if zero else 1,
        gathers=shares and zero == 3,
        reduces=a["gpus"] > 1 and zero > 1,
        flat=a["sharding_by"][:5] == "fsdp1",
        holds_inputs=a["sharding_by"] == "fsdp1" and bool(a["lora"]) and gathers_weights(a),
        gathered_layer_bytes=gathered_width(recipe, a["base"]),
        width=4 if recipe == "fp32" else 2,
        share_width=trained_recipe(a).gradients,
    )
    return Run(
        model.stack,
        model_family(a, model),
        config,
        {line: at_update.get(line, 0) for line in STATE},
        at_update["temporaries"],
        lengths,
        a["base"],
        sharding,
        at_update.get("reduced", 0) if a["gpus"] > 1 and zero == 0 else 0,
        workspace_bytes(a["gpu"]),
    )


def workspace_bytes(gpu: str | None) -> int:
    """Of cuBLAS, for each thread that multiplies (aten/src/ATen/cuda/CublasHandlePool.cpp, at 2.13): 32 MiB on Hopper
    and Blackwell, else 4,096 KiB twice and 16 KiB eight times."""
    is_new = any([name in str(gpu) for name in ("H100", "H200", "H800", "H20", "B200", "B300", "GB", "RTX 50")])
    return 32 * MIB if is_new else 8320 * 1024


def with_beside(run: Run, moments: Moments) -> Steps:
    """The steps, with what the moments say more than they hold: what a library keeps, of which no more is known."""
    steps = written(run)
    asked: dict[str, int] = {}
    for place, lines in moments.items():
        asked[moment_of(place)] = max(asked.get(moment_of(place), 0), sum(lines.values()))
    beside = {moment: max(0, size - steps.peaks.get(moment, 0)) for moment, size in asked.items()}
    if max(beside.values()) <= NEAR_BYTES:
        return steps
    constant = min(beside.values())
    return written(
        run._replace(
            constant_bytes=constant, beside={moment: size - constant for moment, size in beside.items()}
        )
    )


def fixed_lengths(a: Mapping[str, Any]) -> list[list[int]]:
    """Two steps of sequences of one length, as where they are packed; more than two micro-batches do as two."""
    return [[a["context"]] * min(a["accumulation"], 2)] * 2


# --8<-- [end:meters]
