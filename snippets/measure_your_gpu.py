# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a number of this book is: exact or of a device, predicted or measured, and when two of them differ."""

# --8<-- [start:setup]
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons.measure import get_device, time_call

# --8<-- [end:setup]


# --8<-- [start:tensor]
SIDE = 32
x = torch.zeros(SIDE, SIDE)  # float32, 4 bytes an element
tensor_bytes = x.numel() * x.element_size()
print(f"{tensor_bytes:,} bytes")
# --8<-- [end:tensor]


# --8<-- [start:count]
N = 1024  # rows and columns


def matmul_flops_of(side: int) -> int:
    """FLOPs of a product of two square matrices, counted on shapes without numbers."""
    shape = torch.empty(side, side, device="meta")
    with FlopCounterMode(display=False) as counter:
        _ = shape @ shape
    return int(counter.get_total_flops())


matmul_flops = matmul_flops_of(N)
assert matmul_flops == 2 * N**3
print(f"{matmul_flops:,} FLOPs")
# --8<-- [end:count]


# --8<-- [start:product]
torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
a, b = torch.randn(2, N, N, device=get_device())
# --8<-- [end:product]


# --8<-- [start:again]
measured_again = [time_call(lambda: a @ b) for _ in range(3)]
medians_seconds = [timing.median_seconds for timing in measured_again]
measured_apart_ratio = max(medians_seconds) / min(medians_seconds)

for timing in measured_again:
    milliseconds = timing.median_seconds * 1e3
    print(f"{milliseconds:.3g} ms, spread {timing.spread:.1%}, {timing.trials} trials")
# --8<-- [end:again]


# --8<-- [start:rounds]
ROUNDS, CALLS = 8, 5


def seconds_of(function: Callable[[], Any]) -> float:
    """Seconds of one call by the wall clock; a GPU works on its own, so wait for it."""
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    if use_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def rounds_won(first: Callable[[], Any], second: Callable[[], Any]) -> int:
    """In how many rounds the first had the smaller median; they begin alternately."""
    won = 0
    for number in range(ROUNDS):
        order = (first, second) if number % 2 == 0 else (second, first)
        seconds = {f: [seconds_of(f) for _ in range(CALLS)] for f in order}
        won += statistics.median(seconds[first]) < statistics.median(seconds[second])
    return won


half_a, half_b = torch.randn(2, N // 2, N // 2, device=get_device())
measured_equal_won = rounds_won(lambda: half_a @ half_b, lambda: half_a @ half_b)
measured_half_won = rounds_won(
    lambda: half_a @ half_b,
    lambda: half_a @ half_b @ half_b,
)
chance_share = 2 * 0.5**ROUNDS  # that one of two equal things wins all rounds
print("won against an equal:", measured_equal_won, " against two:", measured_half_won)
# --8<-- [end:rounds]


half_flops = matmul_flops_of(N // 2)
flops_ratio = matmul_flops / half_flops
assert flops_ratio == 8

half_seconds = time_call(lambda: half_a @ half_b).median_seconds
predicted_seconds = half_seconds * flops_ratio
full_seconds = statistics.median(medians_seconds)
measured_to_predicted_ratio = full_seconds / predicted_seconds


prefix_ratio = {prefix: 1024**n / 1000**n for n, prefix in enumerate("MGT", start=2)}


# --8<-- [start:exercise_2]
CHANCE_SHARE = 0.001  # one in a thousand
strict_rounds = math.ceil(1 - math.log2(CHANCE_SHARE))
strict_chance_share = 2 * 0.5**strict_rounds
assert strict_chance_share <= CHANCE_SHARE < 2 * strict_chance_share
print(f"{strict_rounds} rounds: {strict_chance_share:.2%}")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
PRINTED = 2.147e9  # "2.147 GFLOPS"
TOOK_SECONDS = 0.040
IMPLIED_FLOP_PER_SECOND = matmul_flops / TOOK_SECONDS

assert abs(matmul_flops / PRINTED - 1) < 0.001  # it is the count
assert IMPLIED_FLOP_PER_SECOND > 20 * PRINTED  # and not the speed
print(f"{matmul_flops / 1e9:.3f} GFLOPs, {IMPLIED_FLOP_PER_SECOND / 1e9:.1f} GFLOP/s")
# --8<-- [end:exercise_3]
