# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""One step of GPT-2, rung by rung from fp32 to a compiled step in bf16: time, share of the peak, memory."""
# Slow: seven ways to take one step, three of them compiled.

# --8<-- [start:setup]
import gc
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from flops_bytes.lessons.measure import divide, get_device, get_peak_flop_per_second, time_call
from flops_bytes.lessons.models import GPT2_SMALL, build, eager, fused, gpt2, loss
from flops_bytes.lessons.steps import Step, predict_lines, step_seconds, time_products
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.flops import forward_flops

measured_on_gpu = torch.cuda.is_available()
LADDER_SHAPE = GPT2_SMALL if measured_on_gpu else replace(gpt2(32, 1, 2), vocab=255)
measured_context, measured_batch = (1_024, 8) if measured_on_gpu else (16, 2)
# --8<-- [end:setup]


# --8<-- [start:rungs]
class Rung(NamedTuple):
    """What a step does; each rung changes one thing of the one before."""

    precision: str = "highest"  # of float32 products; "high" is TF32
    autocast: bool = False
    fused_attention: bool = False
    compiled: bool = False
    padded: bool = False  # the vocabulary, to a multiple of 128
    fused_optimizer: bool = False


RUNGS = {
    "fp32": Rung(),
    "tf32": Rung("high"),
    "bf16": Rung("high", True),
    "attention": Rung("high", True, True),
    "compile": Rung("high", True, True, True),
    "padded": Rung("high", True, True, True, True),
    "optimizer": Rung("high", True, True, True, True, True),
}
# --8<-- [end:rungs]


# --8<-- [start:predict]
def describe(rung: Rung) -> Step:
    vocab = -(-LADDER_SHAPE.vocab // 128) * 128 if rung.padded else LADDER_SHAPE.vocab
    return Step(
        replace(LADDER_SHAPE, vocab=vocab),
        measured_context,
        measured_batch,
        torch.bfloat16 if rung.autocast else torch.float32,
        fused if rung.fused_attention else eager,
        rung.fused_optimizer,
    )


def predict(rung: Rung) -> dict[str, float]:
    """Seconds of each line, and of the whole step, before any step has run."""
    step, compiled = describe(rung), rung.compiled and measured_on_gpu
    torch.set_float32_matmul_precision(rung.precision)
    lines = predict_lines(step, time_products(step), compiled)
    whole = sum(lines.values()) if compiled else step_seconds(step, lines)
    return lines | {"step": whole}


predicted_rungs_seconds = {name: predict(rung) for name, rung in RUNGS.items()}
# --8<-- [end:predict]


# --8<-- [start:climb]
def climb(name: str) -> dict[str, Any]:
    """A step's time, MFU and peak, and predictions; None where this device has none."""
    rung, step = RUNGS[name], describe(RUNGS[name])
    torch.set_float32_matmul_precision(rung.precision)
    before = torch.cuda.memory_allocated() if measured_on_gpu else 0
    model = build(step.shape, step.attend, device=get_device().type)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        fused=step.fused_optimizer,
        foreach=not step.fused_optimizer,
    )
    sizes = (step.batch, step.seq_len + 1)
    text = torch.randint(LADDER_SHAPE.vocab, sizes, device=get_device())
    compute = torch.compile(loss) if rung.compiled and measured_on_gpu else loss

    def run() -> None:
        with torch.autocast(get_device().type, torch.bfloat16, enabled=rung.autocast):
            value = compute(model, text[:, :-1], text[:, 1:])
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    min_seconds = 1.0 if measured_on_gpu else 0.01
    seconds = time_call(run, 5, min_seconds).median_seconds
    if measured_on_gpu:
        torch.cuda.reset_peak_memory_stats()
        run()
    peak = torch.cuda.max_memory_allocated() - before if measured_on_gpu else None
    return {
        "seconds": seconds,
        "ratio": seconds / predicted_rungs_seconds[name]["step"],
        "mfu": divide(count(step) / seconds, get_peak_flop_per_second("bfloat16")),
        "peak_bytes": peak,
        "formula_bytes": None if rung.compiled else formula(step),
    }


# --8<-- [end:climb]


# --8<-- [start:formulas]
def count(step: Step) -> int:
    """FLOPs of a step, attention's over all pairs."""
    forward = forward_flops(step.shape, step.seq_len, step.batch)
    return 3 * sum(forward.values())


def formula(step: Step) -> int:
    """Bytes of the largest of the step's moments."""
    moments = decoder_moments(
        step.shape,
        step.seq_len,
        step.batch,
        "autocast" if step.autocast else "fp32",
        fused=step.attend is fused,
        update="fused" if step.fused_optimizer else "foreach",
    )
    return max(sum(lines.values()) for lines in moments.values())


# --8<-- [end:formulas]


# --8<-- [start:measure]
measured_rungs = {}
for name in RUNGS:
    measured_rungs[name] = climb(name)
    torch.compiler.reset()
    gc.collect()
    predicted_ms = 1e3 * predicted_rungs_seconds[name]["step"]
    measured_ms = 1e3 * measured_rungs[name]["seconds"]
    print(f"{name:10}{predicted_ms:9.2f} ms predicted, {measured_ms:9.2f} ms measured")
torch.set_float32_matmul_precision("highest")
measured_best_mfu = measured_rungs["optimizer"]["mfu"]
# --8<-- [end:measure]
