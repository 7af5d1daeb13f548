# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A whole training step, predicted line by line from what was timed alone, then run, then compared."""

import statistics
import time
from bisect import bisect_right
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, build, gpt2, loss
from flops_bytes.lessons.steps import (
    Step,
    device,
    matrices,
    predict_lines,
    step_seconds,
    time_products,
)
from flops_bytes.memory.outside import middle_bytes, outside_lines
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.flops import backward_flops, forward_flops, training_seconds
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.plan import plan
from flops_bytes.time.gpus import GPUS, capacity_bytes

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb


# --8<-- [start:memory]
BATCH, CONTEXT = 16, 1_024
moments = decoder_moments(GPT2_SMALL, CONTEXT, BATCH)  # autocast, fused attention, fused AdamW
for line, size in moments["loss"].items():
    if size > 2**20:
        print(f"{line:12}{size / 2**30:6.2f} GiB")
print(f"{'together':12}{sum(moments['loss'].values()) / 2**30:6.2f} GiB")
# --8<-- [end:memory]

moment_bytes = {moment: sum(lines.values()) for moment, lines in moments.items()}
peak_at = max(moment_bytes, key=lambda moment: moment_bytes[moment])
assert peak_at == "loss"
peak_lines_bytes = {line: size for line, size in moments[peak_at].items() if size}
logits_share = peak_lines_bytes["logits"] / moment_bytes[peak_at]


# --8<-- [start:batches]
CARDS = ("RTX 4090", "H100 SXM", "H200 SXM")
has_bytes = {card: capacity_bytes(card, GPUS[card]) for card in CARDS}
outside_bytes = {  # CUDA context, kernels
    card: middle_bytes(outside_lines(card, gpus=1, node_gpus=1)) for card in CARDS
}
room_bytes = {card: has_bytes[card] - outside_bytes[card] for card in CARDS}


def peak(shape: Decoder, seq_len: int, batch: int, **choices: Any) -> int:
    moments = decoder_moments(shape, seq_len, batch, **choices)
    return max(sum(lines.values()) for lines in moments.values())


def largest_batch(card: str, **choices: Any) -> int:
    """Of GPT-2 small, by bisection: how many of the batches from 1 on fit."""

    def needs(batch: int) -> int:
        return peak(GPT2_SMALL, CONTEXT, batch, **choices)

    return bisect_right(range(1, 4_096), room_bytes[card], key=needs)


print("fused attention:        ", largest_batch("RTX 4090"))
print("and the loss in chunks: ", largest_batch("RTX 4090", chunks=16))
# --8<-- [end:batches]

WAYS: dict[str, dict[str, Any]] = {
    "eager": {"fused": False},
    "fused": {},
    "chunked": {"chunks": 16},
    "full": {"chunks": 16, "checkpointing": "full"},
}
largest = {way: {card: largest_batch(card, **choices) for card in CARDS} for way, choices in WAYS.items()}
SAME: dict[str, Any] = {"model": "gpt2", "gpu": "RTX 4090", "context": CONTEXT, "trained": "all", "update": "fused"}
SAME |= {"recipe": "autocast", "checkpointing": "none"}


def meters(batch: int) -> dict[str, Any]:
    """What becomes of the run by the allocator's rules: it lives, if it never has to give back what lies free."""
    return dict(plan(**SAME, micro_batch=batch)["meters"])


paper_batch = largest["fused"]["RTX 4090"]
living_batch = next(batch for batch in range(paper_batch, 0, -1) if meters(batch)["lives"] == "lives")
assert meters(paper_batch)["death"]["at"].startswith("step 2"), "the page says so"
largest_unchunked = {card: largest_batch(card, checkpointing="full") for card in CARDS}


# --8<-- [start:step]
measured_on_gpu = torch.cuda.is_available()
SHAPE = GPT2_SMALL if measured_on_gpu else replace(gpt2(256, 2, 4), vocab=4_096)
measured_len, measured_batch = (1_024, 16) if measured_on_gpu else (128, 4)
measured_sizes = {
    "layers": SHAPE.layers,
    "width": SHAPE.d_model,
    "vocabulary": SHAPE.vocab,
    "context": measured_len,
    "batch": measured_batch,
}
measured_dtype = "bfloat16" if measured_on_gpu else "float32"  # of the products
dtype = getattr(torch, measured_dtype)
predicted_step_flops = sum(
    sum(flops(SHAPE, measured_len, measured_batch).values())
    for flops in (forward_flops, partial(backward_flops, fused=False))
)
print(f"{predicted_step_flops / 1e9:.4g} GFLOPs a step", end=", ")
print(f"{measured_batch * measured_len:,} tokens")
# --8<-- [end:step]


# --8<-- [start:products]
STEP = Step(SHAPE, measured_len, measured_batch, dtype)
measured_tokens = STEP.tokens
product_seconds = time_products(STEP)
for name, (rows, columns, times) in matrices(SHAPE).items():
    rate = 6 * measured_tokens * rows * columns * times / product_seconds[name]
    print(f"{name:5}{rate / 1e9:11,.1f} GFLOP/s")
# --8<-- [end:products]


# --8<-- [start:predict]
predicted_lines_seconds = predict_lines(STEP, product_seconds)
predicted_step_seconds = step_seconds(STEP, predicted_lines_seconds)
predicted_products_share = predicted_lines_seconds["products"] / predicted_step_seconds
for line, seconds in predicted_lines_seconds.items():
    print(f"{line:12}{seconds * 1e3:9.2f} ms")
print(f"predicted   {predicted_step_seconds * 1e3:9.2f} ms")
# --8<-- [end:predict]


# --8<-- [start:run]
model = build(SHAPE, device=device.type)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
text = torch.randint(SHAPE.vocab, (measured_batch, measured_len + 1), device=device)


def step() -> float:
    """Its seconds."""
    began = time.perf_counter()
    with torch.autocast(device.type, torch.bfloat16, enabled=measured_on_gpu):
        value = loss(model, text[:, :-1], text[:, 1:])
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    if measured_on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


measured_runs_seconds = sorted([step() for _ in range(7)][2:])  # two to warm up
measured_step_seconds = statistics.median(measured_runs_seconds)
spread_seconds = measured_runs_seconds[-2] - measured_runs_seconds[1]
measured_spread_share = spread_seconds / measured_step_seconds
print(f"measured    {measured_step_seconds * 1e3:9.2f} ms")
print(f"the middle three within {measured_spread_share:.1%}")
# --8<-- [end:run]


# --8<-- [start:ledger]
measured_to_predicted_ratio = measured_step_seconds / predicted_step_seconds
measured_residual = measured_step_seconds - predicted_step_seconds  # of either sign
measured_tokens_per_second = measured_tokens / measured_step_seconds
measured_flop_per_second = predicted_step_flops / measured_step_seconds
print(f"residual    {measured_residual * 1e3:9.2f} ms")
print(f"of the step {measured_residual / measured_step_seconds:9.1%}")
print(f"measured / predicted {measured_to_predicted_ratio:.3f}")
# --8<-- [end:ledger]


# --8<-- [start:name]
cold_seconds = sum(time_products(STEP, cold=True).values())
warm_seconds = predicted_lines_seconds["products"]
measured_cold_ratio = cold_seconds / warm_seconds
with_cold_seconds = predicted_step_seconds - warm_seconds + cold_seconds
measured_to_cold_ratio = measured_step_seconds / with_cold_seconds
print(f"cold products take {measured_cold_ratio:.3f} of the time of warm ones")
print(f"measured / predicted with cold products {measured_to_cold_ratio:.3f}")
# --8<-- [end:name]


# --8<-- [start:cost]
TOKENS = 10e9
DOLLARS_PER_HOUR = 2.5  # of one H100: an input, put in your own
MFU = 0.4
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
token_flops = (sum(forward_flops(GPT2_SMALL, CONTEXT).values()) * 3) / CONTEXT
run_flops = token_flops * TOKENS
run_hours = training_seconds(run_flops, 1, PEAK, MFU) / 3600
run_dollars = run_hours * DOLLARS_PER_HOUR
print(f"{run_flops:.3g} FLOPs, {run_hours:.1f} hours of one H100")
print(f"{run_dollars:.0f} dollars")
# --8<-- [end:cost]


# --8<-- [start:exercise_1]
llama_choices: dict[str, Any] = {
    "recipe": "bf16_master",
    "chunks": 16,
    "checkpointing": "full",
}
llama_update = decoder_moments(LLAMA_3_8B, 8_192, **llama_choices)["update"]
llama_count = sum(parameters(LLAMA_3_8B).values())
llama_state_bytes = (sum(llama_update.values()) - llama_update["batch"]) // llama_count
llama_peak_bytes = peak(LLAMA_3_8B, 8_192, 1, **llama_choices)
llama_fits = {card: llama_peak_bytes <= room for card, room in room_bytes.items()}
print(f"Llama 3 8B: {llama_peak_bytes / 2**30:.1f} GiB")
for card, holds in llama_fits.items():
    print(f"{card:10}{'fits' if holds else 'does not fit'}")
llama_left_bytes = room_bytes["H200 SXM"] - llama_peak_bytes
assert llama_state_bytes == 18 and [card for card, holds in llama_fits.items() if holds] == ["H200 SXM"]
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
extra_bytes = peak(GPT2_SMALL, CONTEXT, BATCH, accumulated=True) - peak(GPT2_SMALL, CONTEXT, BATCH)
print(f"accumulating: {extra_bytes:,} B more")
assert extra_bytes == moments["update"]["gradients"]
# --8<-- [end:exercise_2]
