# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A whole training step, predicted line by line from what was timed alone, then run, then compared."""

# --8<-- [start:setup]
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from accounting import Trace, get_device, time_call
from formulas import (
    Decoder,
    backward_flops,
    forward_flops,
    parameters,
    peak_bytes,
    training_seconds,
)
from gpus import GPUS
from models import GPT2_SMALL, LLAMA_3_8B, build, fused, gpt2, loss
from torch import Tensor

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
device = get_device()
# --8<-- [end:setup]


# --8<-- [start:memory]
BATCH, CONTEXT = 16, 1_024
TOLERANCE = 0.01  # of the formula, against the count
# autocast, fused attention, fused AdamW
moments = peak_bytes(GPT2_SMALL, CONTEXT, BATCH)
moment_bytes = {moment: sum(lines.values()) for moment, lines in moments.items()}
peak_at = max(moment_bytes, key=lambda moment: moment_bytes[moment])
peak_lines_bytes = {line: size for line, size in moments[peak_at].items() if size}
logits_share = peak_lines_bytes["logits"] / moment_bytes[peak_at]
for moment, size in moment_bytes.items():
    print(f"{moment:12}{size / 2**30:7.2f} GiB")
print(f"at the peak, {peak_at}:")
for line, size in peak_lines_bytes.items():
    print(f"{line:12}{size / 2**30:7.2f} GiB")
# --8<-- [end:memory]


# --8<-- [start:fits]
CARDS = ("RTX 4090", "H100 SXM", "H200 SXM")
RESERVED_BYTES = 2 * 2**30  # the CUDA context, workspaces, rounding, fragments


def peak(shape: Decoder, seq_len: int, batch: int, **choices: Any) -> int:
    at = peak_bytes(shape, seq_len, batch, **choices)
    return max(sum(lines.values()) for lines in at.values())


def largest_batch(room: float, **choices: Any) -> int:
    """The largest b of GPT-2 small that fits, by bisection; 0 if b = 1 does not."""

    def fits(b: int) -> bool:
        return peak(GPT2_SMALL, CONTEXT, b, **choices) <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# --8<-- [end:fits]


# --8<-- [start:batches]
WAYS: dict[str, dict[str, Any]] = {
    "eager": {"fused": False},
    "fused": {},
    "chunked": {"chunks": 16},
    "full": {"chunks": 16, "checkpointing": "full"},
}
room_bytes = {card: GPUS[card].memory_bytes - RESERVED_BYTES for card in CARDS}


def largest_batches(**choices: Any) -> dict[str, int]:
    return {card: largest_batch(room, **choices) for card, room in room_bytes.items()}


largest = {way: largest_batches(**choices) for way, choices in WAYS.items()}
largest_unchunked = largest_batches(checkpointing="full")
for way, batches in largest.items():
    print(f"{way:8}", batches)
# --8<-- [end:batches]


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
print(f"{predicted_step_flops / 1e9:.4g} GFLOPs a step, {measured_batch * measured_len:,} tokens")
# --8<-- [end:step]


# --8<-- [start:alone]
def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device).requires_grad_()


def alone(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    cold: bool = False,
) -> float:
    """Seconds of a function and its backward pass, on tensors of its own.

    `cold`: these are not in the cache.
    """
    gradient = torch.ones_like(function(*inputs))
    wanted = [tensor for tensor in inputs if tensor.requires_grad]

    def once() -> None:
        torch.autograd.grad(function(*inputs), wanted, gradient)

    return time_call(once, 5, 0.05, flush_l2=cold).median_seconds


# --8<-- [end:alone]


# --8<-- [start:products]
measured_width, measured_inner = SHAPE.d_model, SHAPE.d_ff
measured_vocab, measured_layers = SHAPE.vocab, SHAPE.layers
measured_tokens = measured_batch * measured_len
measured_matrices = {  # rows, columns, how often
    "qkv": (measured_width, 3 * measured_width, measured_layers),
    "out": (measured_width, measured_width, measured_layers),
    "up": (measured_width, measured_inner, measured_layers),
    "down": (measured_inner, measured_width, measured_layers),
    "head": (measured_width, measured_vocab, 1),
}


def time_products(cold: bool = False) -> dict[str, float]:
    seconds = {}
    for name, (rows, columns, times) in measured_matrices.items():
        inputs = random(measured_tokens, rows, dtype=dtype), random(columns, rows, dtype=dtype)
        seconds[name] = times * alone(F.linear, *inputs, cold=cold)
    return seconds


product_seconds = time_products()
for name, (rows, columns, times) in measured_matrices.items():
    rate = 6 * measured_tokens * rows * columns * times / product_seconds[name]
    print(f"{name:5}{rate / 1e9:11,.1f} GFLOP/s")
# --8<-- [end:products]


# --8<-- [start:others]
def norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, (measured_width,), scale, shift)


def cross_entropy(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), words)


x, words = random(measured_tokens, measured_width), torch.randint(measured_vocab, (measured_tokens,), device=device)
queries = [random(measured_batch, SHAPE.heads, measured_len, SHAPE.head_dim, dtype=dtype) for _ in range(3)]
attention_seconds = measured_layers * alone(fused, *queries)
norms_seconds = (2 * measured_layers + 1) * alone(norm, x, random(measured_width), random(measured_width))
gelu_seconds = measured_layers * alone(
    partial(F.gelu, approximate="tanh"), random(measured_tokens, measured_inner, dtype=dtype)
)
loss_seconds = alone(cross_entropy, random(measured_tokens, measured_vocab, dtype=dtype))
embedding_seconds = alone(lambda table: F.embedding(words, table), random(measured_vocab, measured_width))
# --8<-- [end:others]


# --8<-- [start:bytes]
model = build(SHAPE, device=device.type)
weights = [torch.randn_like(weight) for weight in model.parameters()]
for weight in weights:
    weight.grad = torch.randn_like(weight)
update = torch.optim.AdamW(weights, fused=True).step
optimizer_seconds = time_call(update, 5, 0.05).median_seconds

copy_seconds = time_call(lambda: torch.neg(x.detach()), 5, 0.05).median_seconds
bytes_per_second = 2 * x.nbytes / copy_seconds
# sums of the residual path, forward and backward: two read, one written
predicted_added_bytes = (2 + 2) * measured_layers * 3 * x.nbytes
# heads side by side, there and back; the gradients of q, k, v
predicted_copied_bytes = measured_layers * (2 + 2 + 6) * measured_tokens * measured_width * dtype.itemsize
# autocast's copies of the matrices, and their gradients
predicted_numbers = sum(rows * columns * times for rows, columns, times in measured_matrices.values())
predicted_cast_bytes = 2 * (4 + 2) * predicted_numbers if measured_on_gpu else 0
elementwise_seconds = (predicted_added_bytes + predicted_copied_bytes + predicted_cast_bytes) / bytes_per_second
# --8<-- [end:bytes]


# --8<-- [start:launches]
meta_model = build(SHAPE)
meta_words = torch.zeros(measured_batch, measured_len, dtype=torch.int64, device="meta")
with Trace() as trace:
    loss(meta_model, meta_words, meta_words).backward()
# they make no tensor, yet cost a call
measured_views = sum(operation.taken_bytes == 0 for operation in trace.operations)
tiny = random(1)
launch_seconds = time_call(lambda: tiny.view(1), 20, 0.02).median_seconds
# a GPU works on meanwhile
views_seconds = 0.0 if measured_on_gpu else measured_views * launch_seconds
print(f"{len(trace.operations)} operations, {measured_views} of them make nothing")
# --8<-- [end:launches]


# --8<-- [start:predict]
predicted_lines_seconds = {
    "products": sum(product_seconds.values()),
    "attention": attention_seconds,
    "norms": norms_seconds,
    "gelu": gelu_seconds,
    "loss": loss_seconds,
    "embedding": embedding_seconds,
    "elementwise": elementwise_seconds,
    "optimizer": optimizer_seconds,
    "views": views_seconds,
}
predicted_step_seconds = sum(predicted_lines_seconds.values())
predicted_products_share = predicted_lines_seconds["products"] / predicted_step_seconds
for line, seconds in predicted_lines_seconds.items():
    print(f"{line:12}{seconds * 1e3:9.2f} ms")
print(f"predicted   {predicted_step_seconds * 1e3:9.2f} ms")
# --8<-- [end:predict]


# --8<-- [start:run]
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
text = torch.randint(measured_vocab, (measured_batch, measured_len + 1), device=device)


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
measured_spread_share = (measured_runs_seconds[-2] - measured_runs_seconds[1]) / measured_step_seconds
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
cold_seconds = sum(time_products(cold=True).values())
warm_seconds = predicted_lines_seconds["products"]
measured_cold_ratio = cold_seconds / warm_seconds
with_cold_seconds = predicted_step_seconds - warm_seconds + cold_seconds
measured_to_cold_ratio = measured_step_seconds / with_cold_seconds
print(f"cold products take {measured_cold_ratio:.3f} of the time of warm ones")
print(f"measured / predicted with cold products {measured_to_cold_ratio:.3f}")
# --8<-- [end:name]


# --8<-- [start:cost]
TOKENS = 10e9
DOLLARS_PER_HOUR = 3.0  # of one H100: an input, put in your own
MFU = 0.4
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
token_flops = (sum(forward_flops(GPT2_SMALL, CONTEXT).values()) * 3) / CONTEXT
run_flops = token_flops * TOKENS
run_hours = training_seconds(run_flops, 1, PEAK, MFU) / 3600
run_dollars = run_hours * DOLLARS_PER_HOUR
print(f"{run_flops:.3g} FLOPs, {run_hours:.1f} hours of one H100")
print(f"{run_dollars:.0f} dollars")
# --8<-- [end:cost]


# --8<-- [start:others_measured]
# milliseconds an iteration, without compile and with it, by nanoGPT's README
COMPILE_RATIO = 250 / 135
# 10 billion tokens, GPT-2 124M
OTHERS_GPUS, OTHERS_MINUTES = 8, {"H100 SXM": 45, "A100 80GB SXM": 90}
others_mfu = {}
for card, minutes in OTHERS_MINUTES.items():
    rate = OTHERS_GPUS * GPUS[card].peak_flop_per_second["bfloat16"]
    others_mfu[card] = run_flops / (rate * minutes * 60)
    print(f"{card:14}{others_mfu[card]:7.1%}")
assert all(0.3 < share < 0.7 for share in others_mfu.values())
# --8<-- [end:others_measured]


# --8<-- [start:exercise_1]
llama_choices: dict[str, Any] = {
    "recipe": "bf16_master",
    "chunks": 16,
    "checkpointing": "full",
}
llama_update = peak_bytes(LLAMA_3_8B, 8_192, **llama_choices)["update"]
llama_count = sum(parameters(LLAMA_3_8B).values())
llama_state_bytes = (sum(llama_update.values()) - llama_update["batch"]) // llama_count
llama_peak_bytes = peak(LLAMA_3_8B, 8_192, 1, **llama_choices)
llama_fits = {card: llama_peak_bytes <= room for card, room in room_bytes.items()}
print(f"Llama 3 8B: {llama_peak_bytes / 2**30:.1f} GiB")
for card, holds in llama_fits.items():
    print(f"{card:10}{'fits' if holds else 'does not fit'}")
assert llama_state_bytes == 18 and not any(llama_fits.values())
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
accumulated_bytes = peak(GPT2_SMALL, CONTEXT, BATCH, accumulated=True)
extra_bytes = accumulated_bytes - moment_bytes[peak_at]
print(f"accumulating: {extra_bytes:,} B more")
assert extra_bytes == moments["update"]["gradients"]
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
padded = replace(GPT2_SMALL, vocab=50_304)
flops = [sum(forward_flops(s, CONTEXT).values()) for s in (GPT2_SMALL, padded)]
padded_share = flops[1] / flops[0] - 1
padded_bytes = peak(padded, CONTEXT, BATCH) - moment_bytes[peak_at]
print(f"padding costs {padded_share:.3%} FLOPs and {padded_bytes / 2**20:.1f} MiB")
assert 0 < padded_share < 1e-3
# --8<-- [end:exercise_3]
