# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
#
# [tool.ledger]
# slow = true # seven ways to take one step, three of them compiled
# ///
"""One step of GPT-2, rung by rung from fp32 to a compiled step in bf16: its time, its share of the peak, its memory."""

# --8<-- [start:setup]
import gc
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from accounting import divide, get_device, get_peak_flop_per_second, time_call
from formulas import backward_flops, forward_flops, peak_bytes
from models import GPT2_SMALL, build, eager, fused, gpt2, loss

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


# --8<-- [start:climb]
def climb(rung: Rung) -> dict[str, Any]:
    """Seconds of a step, its MFU, its peak in bytes beside the formula's; None where this device has none."""
    shape = replace(LADDER_SHAPE, vocab=-(-LADDER_SHAPE.vocab // 128) * 128) if rung.padded else LADDER_SHAPE
    torch.set_float32_matmul_precision(rung.precision)
    before = torch.cuda.memory_allocated() if measured_on_gpu else 0
    model = build(shape, fused if rung.fused_attention else eager, device=get_device().type)
    optimizer = torch.optim.AdamW(model.parameters(), fused=rung.fused_optimizer, foreach=not rung.fused_optimizer)
    text = torch.randint(LADDER_SHAPE.vocab, (measured_batch, measured_context + 1), device=get_device())
    compute = torch.compile(loss) if rung.compiled and measured_on_gpu else loss

    def step() -> None:
        with torch.autocast(get_device().type, torch.bfloat16, enabled=rung.autocast):
            value = compute(model, text[:, :-1], text[:, 1:])
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = time_call(step, 5, min_seconds=1.0 if measured_on_gpu else 0.01).median_seconds
    if measured_on_gpu:
        torch.cuda.reset_peak_memory_stats()
        step()
    peak = torch.cuda.max_memory_allocated() - before if measured_on_gpu else None
    moments = peak_bytes(
        shape,
        measured_context,
        measured_batch,
        "autocast" if rung.autocast else "fp32",
        fused=rung.fused_attention,
        foreach=not rung.fused_optimizer,
    )
    flops = sum(forward_flops(shape, measured_context, measured_batch).values())
    flops += sum(backward_flops(shape, measured_context, measured_batch, fused=False).values())
    return {
        "seconds": seconds,
        "mfu": divide(flops / seconds, get_peak_flop_per_second("bfloat16")),
        "peak_bytes": peak,
        "formula_bytes": None if rung.compiled else max(sum(lines.values()) for lines in moments.values()),
    }


# --8<-- [end:climb]


# --8<-- [start:measure]
measured_rungs = {}
for name, rung in RUNGS.items():
    measured_rungs[name] = climb(rung)
    torch.compiler.reset()
    gc.collect()
    print(f"{name:10}{measured_rungs[name]['seconds'] * 1e3:9.2f} ms")
torch.set_float32_matmul_precision("highest")
measured_best_mfu = measured_rungs["optimizer"]["mfu"]
# --8<-- [end:measure]
