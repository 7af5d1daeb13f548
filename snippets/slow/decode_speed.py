# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Prefill and decoding, timed under the bound of what a step reads."""
# Slow: steps that read all weights of a model, for one user and for many.

# --8<-- [start:setup]
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flops_bytes.lessons.generate import Cached
from flops_bytes.lessons.measure import divide, get_device, get_peak_bytes_per_second, time_call
from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_2_1B, LLAMA_3_8B, Model, build
from flops_bytes.model.shapes import Decoder
from flops_bytes.serve.inference import (
    Server,
    decode_bytes,
    decode_seconds,
    equal_tokens,
    prefill_flops,
    prefill_seconds,
)

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_on_gpu = torch.cuda.is_available()
device = get_device()
# --8<-- [end:setup]


# --8<-- [start:model]
# on a CPU two layers, still larger than its caches
SHAPE = LLAMA_3_8B if measured_on_gpu else replace(LLAMA_3_2_1B, layers=2, vocab=4_096)
dtype = torch.bfloat16 if measured_on_gpu else torch.float32
measured_bits, measured_width = 8 * dtype.itemsize, dtype.itemsize
measured_context = 1_024 if measured_on_gpu else 128  # tokens that each user has


@torch.no_grad()
def random_model(shape: Decoder) -> Model:
    made = build(shape, dtype=dtype).to_empty(device=device)
    for weight in made.parameters():
        weight.normal_(std=0.02)
    return made


model = random_model(SHAPE)
measured_weight_bytes = round(decode_bytes(SHAPE, 1, 0, measured_bits))
print(f"a step reads {measured_weight_bytes / 1e9:.2f} GB of weights")
# --8<-- [end:model]


# --8<-- [start:rates]
@torch.no_grad()
def seconds(function: Callable[[], Any]) -> float:
    return time_call(function, 3, 0.2).median_seconds


# a matrix of its own, as large as the weights, read once
measured_numbers = measured_weight_bytes // measured_width
matrix = torch.randn(measured_numbers, dtype=dtype, device=device).view(-1, 2_048)
vector, block = matrix[0].clone(), matrix[:2_048].clone()
predicted_bytes_per_second = matrix.nbytes / seconds(partial(torch.mv, matrix, vector))
predicted_flop_per_second = 2 * 2_048**3 / seconds(partial(torch.mm, block, block))
measured_rates = predicted_bytes_per_second, predicted_flop_per_second
del matrix
print(f"reads {predicted_bytes_per_second / 1e9:.1f} GB/s, ", end="")
print(f"multiplies {predicted_flop_per_second / 1e9:.0f} GFLOP/s")


def server() -> Server:
    return Server(*measured_rates, measured_bits, measured_width)


# --8<-- [end:rates]


# --8<-- [start:step]
def at(users: int, context: int, model: Model = model) -> Callable[[], Tensor]:
    """A decoding step of so many users: each one's token number `context`."""
    cached = Cached(model, context)
    token = torch.zeros(users, 1, dtype=torch.int64, device=device)
    with torch.no_grad():
        cached.feed(token)  # makes room
    for cache in cached.caches:
        cache.keys.normal_()
        cache.values.normal_()

    def step() -> Tensor:
        cached.length = context - 1
        for cache in cached.caches:
            cache.length = context - 1
        return cached.feed(token)

    return step


# --8<-- [end:step]


# --8<-- [start:graph]
@torch.no_grad()
def replay(step: Callable[[], Tensor]) -> Callable[[], object]:
    """On a GPU, the step's kernels as a CUDA graph, which Python launches as one."""
    if not measured_on_gpu:
        return step
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replayed() -> object:
        graph.replay()
        return step  # keeps alive what the graph reads

    return replayed


def step_seconds(users: int, context: int) -> float:
    return seconds(replay(at(users, context)))


def bound(users: int, context: int) -> float:
    return decode_seconds(SHAPE, users, context, server())


# --8<-- [end:graph]


# --8<-- [start:one]
predicted_one_seconds = bound(1, measured_context)
one_seconds = step_seconds(1, measured_context)
measured_one_ratio = one_seconds / predicted_one_seconds
measured_precision = measured_bits, measured_width
measured_one_bytes = decode_bytes(SHAPE, 1, measured_context, *measured_precision)
one_bytes_per_second = measured_one_bytes / one_seconds
sheet_bytes_per_second = get_peak_bytes_per_second()
measured_sheet_share = divide(one_bytes_per_second, sheet_bytes_per_second)
measured_bandwidth_share = one_bytes_per_second / predicted_bytes_per_second
print(f"predicted {predicted_one_seconds * 1e3:7.2f} ms a token")
print(f"measured  {one_seconds * 1e3:7.2f} ms, {measured_one_ratio:.2f} of it")
print(f"MBU {measured_bandwidth_share:.0%} of the measured bandwidth")
# --8<-- [end:one]


# --8<-- [start:prefill]
prompt = torch.randint(SHAPE.vocab, (1, measured_context), device=device)
predicted_prefill_seconds = prefill_seconds(SHAPE, measured_context, server())
whole_seconds = seconds(lambda: Cached(model, measured_context).feed(prompt))
measured_prefill_ratio = whole_seconds / predicted_prefill_seconds
prefill_flop_per_second = prefill_flops(SHAPE, measured_context) / whole_seconds
measured_phase_ratio = one_seconds * measured_context / whole_seconds
print(f"prefill of {measured_context} tokens {whole_seconds * 1e3:8.1f} ms, ", end="")
print(f"{measured_prefill_ratio:.2f} of the bound")
print(f"one by one they would take {measured_phase_ratio:.1f} times as long")
# --8<-- [end:prefill]


# --8<-- [start:cached]
# as many bytes as the weights
measured_equal_tokens = int(equal_tokens(SHAPE, measured_bits, measured_width))
measured_contexts = [
    measured_context,
    measured_equal_tokens // 4,
    measured_equal_tokens,
]
predicted_context_seconds = {T: bound(1, T) for T in measured_contexts}
context_seconds = {T: step_seconds(1, T) for T in measured_contexts}
measured_context_ratio = {T: context_seconds[T] / bound(1, T) for T in context_seconds}
for T, taken in context_seconds.items():
    times = measured_context_ratio[T]
    print(f"{T:7,} tokens {taken * 1e3:8.1f} ms, {times:.2f} of the bound")
# --8<-- [end:cached]


# --8<-- [start:sweep]
def try_users(users: int) -> float | None:
    """Seconds of a step; None where the caches do not fit."""
    try:
        return step_seconds(users, measured_context)
    except torch.OutOfMemoryError:
        return None


measured_users = [2**n for n in range(10 if measured_on_gpu else 7)]
sweep_seconds = {users: try_users(users) for users in measured_users}
predicted_sweep_seconds = {b: bound(b, measured_context) for b in measured_users}
sweep_per_second = {b: divide(b, taken) for b, taken in sweep_seconds.items()}
predicted_sweep_per_second = {b: b / s for b, s in predicted_sweep_seconds.items()}
measured_sweep_ratio = {}
for users, found in sweep_seconds.items():
    measured_sweep_ratio[users] = divide(found, predicted_sweep_seconds[users])
for users, rate in sweep_per_second.items():
    told = f"{rate:8.1f} tokens/s, bound {predicted_sweep_per_second[users]:8.1f}" if rate else "do not fit"
    print(f"{users:4} users {told}")
# --8<-- [end:sweep]


# --8<-- [start:graphs]
def compare(step: Callable[[], Tensor], read_bytes: float) -> dict[str, float] | None:
    """Seconds of a step by Python and from a graph, and by the bound; None on a CPU."""
    if not measured_on_gpu:
        return None
    eager, graph = seconds(step), seconds(replay(step))
    predicted = read_bytes / predicted_bytes_per_second
    return {
        "eager_seconds": eager,
        "graph_seconds": graph,
        "bound_seconds": predicted,
        "eager_ratio": eager / predicted,
        "graph_ratio": graph / predicted,
    }


measured_graphs = {
    "llama": compare(at(1, measured_context), measured_one_bytes),
    "gpt2": None,
}
if measured_on_gpu:
    small = at(1, measured_context, random_model(GPT2_SMALL))
    measured_small_bytes = decode_bytes(GPT2_SMALL, 1, measured_context)
    measured_graphs["gpt2"] = compare(small, measured_small_bytes)
print("eager and graph:", measured_graphs["llama"] or "no graphs here")
# --8<-- [end:graphs]
