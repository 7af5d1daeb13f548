# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""The peak of a training step at full size, counted without memory, beside the one that the formula predicts."""

# --8<-- [start:setup]
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from flops_bytes.counting.counter import counted_peak
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, Attend, build, chunked_backward, eager, flash, loss
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.adapters import quantized_bytes
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.shapes import parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.parallel.sharding import sharded_moments, wire_bytes

# --8<-- [end:setup]


# --8<-- [start:compare]
MODELS = {"gpt2": (GPT2_SMALL, 1_024, 4), "llama": (LLAMA_3_8B, 8_192, 1)}  # and T, b
CHOICES: dict[str, dict[str, Any]] = {
    "fp32": {"recipe": "fp32"},
    "bf16": {"recipe": "bf16"},
    "bf16_master": {"recipe": "bf16_master"},
    "eager": {"recipe": "bf16", "fused": False},
    "selective": {"recipe": "bf16", "fused": False, "checkpointing": "selective"},
    "full": {"recipe": "bf16", "checkpointing": "full"},
    "chunked": {"recipe": "bf16", "chunks": 16},
    "accumulated": {"recipe": "bf16", "accumulated": True},
}


def compare(model: str, choice: str, batch: int | None = None) -> dict[str, Any]:
    """The predicted moment and bytes of the peak, the counted bytes, their ratio."""
    shape, seq_len, usual = MODELS[model]
    options = {"seq_len": seq_len, "batch": batch or usual} | CHOICES[choice]
    moments = decoder_moments(shape, update="foreach", **options)
    at = {moment: sum(lines.values()) for moment, lines in moments.items()}
    moment = max(at, key=lambda name: at[name])
    counted = counted_peak(shape, **options)
    return {
        "moment": moment,
        "formula_bytes": at[moment],
        "counted_bytes": counted,
        "ratio": counted / at[moment],
    }


# --8<-- [end:compare]


# --8<-- [start:one]
one = compare("gpt2", "bf16")
print(f"formula {one['formula_bytes']:,} B, at the {one['moment']}")
print(f"counted {one['counted_bytes']:,} B")
assert abs(one["ratio"] - 1) < 0.01
# --8<-- [end:one]


# --8<-- [start:table]
if __name__ == "__main__":
    peaks = {model: {choice: compare(model, choice) for choice in CHOICES} for model in MODELS}
    for model, rows in peaks.items():
        for choice, row in rows.items():
            print(f"{model:6}{choice:12}{row['counted_bytes'] / 2**30:9.2f} GiB, over the formula {row['ratio']:.4f}")
            assert abs(row["ratio"] - 1) < 0.01
# --8<-- [end:table]


# --8<-- [start:remedy]
CASES = {"gpt2": (GPT2_SMALL, 1_024, 8), "llama": (LLAMA_3_8B, 8_192, 2)}  # and T, b
CHUNKS = 8
MATMULS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]  # with weights


def forget(model: Any, keep: str) -> None:
    """Checkpoints each layer, which keeps its `inputs`, or the results of its `matmuls` too."""
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if keep == "matmuls":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, MATMULS)
    for block in model.blocks:
        block.forward = partial(checkpoint, block.forward, **options)


def free(weight: torch.Tensor) -> None:
    weight.grad = None


def remedied_peak(
    name: str,
    attend: Attend = flash,
    chunks: int = 1,
    pieces: int = 1,
    keep: str = "everything",
    in_backward: bool = False,
) -> int:
    """Bytes of weights, AdamW's moments and all that forward and backward make, in bf16, at their peak.

    Fused AdamW works in place and takes no bytes, so it need not run here.
    """
    shape, seq_len, batch = CASES[name]
    model = build(shape, attend, torch.bfloat16)
    weights: list[torch.Tensor] = list(model.parameters())
    moments = [torch.zeros_like(weight) for weight in weights for _ in range(2)]
    tokens = torch.zeros(batch // pieces, seq_len, dtype=torch.int64, device="meta")
    targets = torch.zeros_like(tokens)
    if keep != "everything":
        forget(model, keep)
    if in_backward:
        for weight in weights:
            if weight is not model.head.weight:  # each chunk adds to this one, which is updated at the end
                weight.register_post_accumulate_grad_hook(free)
    with Trace() as trace:
        for tensor in (*weights, *moments, tokens, targets):
            trace.hold(tensor.untyped_storage())
        for _ in range(min(pieces, 2)):  # each further piece is as the second
            if chunks > 1:
                chunked_backward(model, tokens, targets, chunks)
            else:
                loss(model, tokens, targets).backward()
    return trace.peak_bytes


# --8<-- [end:remedy]


# --8<-- [start:remedies]
def climb(name: str) -> dict[str, int]:
    """The peak of a step with each remedy, beside those before."""
    alone: dict[str, Any] = {"chunks": CHUNKS, "pieces": CASES[name][2]}  # each sequence
    return {
        "eager": remedied_peak(name, attend=eager),
        "fused": remedied_peak(name),
        "chunked": remedied_peak(name, chunks=CHUNKS),
        "accumulated": remedied_peak(name, **alone),
        "products": remedied_peak(name, keep="matmuls", **alone),
        "full": remedied_peak(name, keep="inputs", **alone),
    }


def steps_down(peaks: dict[str, int]) -> dict[str, int]:
    return {after: peaks[before] - peaks[after] for before, after in pairwise(peaks)}


if __name__ == "__main__":
    needs_bytes = {name: climb(name) for name in CASES}
    frees_bytes = {name: steps_down(peaks) for name, peaks in needs_bytes.items()}
    # with all sequences at once, and layer inputs alone
    whole_bytes = {name: remedied_peak(name, chunks=CHUNKS, keep="inputs") for name in CASES}
    for name, rungs in needs_bytes.items():
        for rung, size in rungs.items():
            print(f"{name:6}{rung:12}{size / 2**30:9.2f} GiB")
# --8<-- [end:remedies]


# --8<-- [start:state]
NUM_GPUS = 8
NUMBERS = {name: sum(parameters(shape).values()) for name, (shape, _, _) in CASES.items()}
state_bytes = {name: 8 * number for name, number in NUMBERS.items()}
crossing_bytes = {name: 2 * number for name, number in NUMBERS.items()}  # each way
sent_bytes = {
    name: int(wire_bytes(stack_of(shape), "bf16", NUM_GPUS, zero=3, accumulation=batch))
    for name, (shape, _, batch) in CASES.items()
}


def sharded_peak(name: str) -> int:
    """By formula: what one of the GPUs holds, each with sequences one after the other."""
    shape, seq_len, _ = CASES[name]
    at = decoder_moments(shape, seq_len, 1, "bf16", checkpointing="full", chunks=CHUNKS, accumulated=True)
    sharded = sharded_moments(stack_of(shape), at, "bf16", NUM_GPUS, zero=3)
    return max(sum(lines.values()) for lines in sharded.values())


if __name__ == "__main__":
    least, moments_bytes = needs_bytes["llama"]["full"], 4 * NUMBERS["llama"]
    state_needs_bytes = {
        "eight_bit": least - moments_bytes + quantized_bytes(2 * NUMBERS["llama"], 8, 256),
        "in_backward": remedied_peak("llama", chunks=CHUNKS, keep="inputs", in_backward=True),
        "host": least - moments_bytes,
        "sharded": sharded_peak("llama"),
    }
    state_frees_bytes = {
        remedy: (whole_bytes["llama"] if remedy == "in_backward" else least) - size  # which excludes accumulation
        for remedy, size in state_needs_bytes.items()
    }
    for remedy, size in state_needs_bytes.items():
        print(f"llama {remedy:12}{size / 2**30:9.2f} GiB")
# --8<-- [end:state]
