# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How long one matrix product takes: cold or warm, by which clock, on which data; and how to time it right."""

import math
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.utils.benchmark as benchmark

from flops_bytes.lessons.measure import (
    Timing,
    divide,
    get_device,
    get_memory_usage,
    get_peak_flop_per_second,
    time_call,
    time_trials,
)
from flops_bytes.time.gpus import GPUS

M, K, N = 16384, 32768, 8192  # M × K times K × N
CLAIMED_SECONDS = 20e-6

product_flops = 2 * M * K * N
LEAST_SECONDS = product_flops / GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
claimed_to_peak_ratio = LEAST_SECONDS / CLAIMED_SECONDS
assert claimed_to_peak_ratio > 400


# The whole product on a GPU; a 32nd of each side on a CPU.
measured_scale = 1 if torch.cuda.is_available() else 32
measured_m = M // measured_scale
measured_k = K // measured_scale
measured_n = N // measured_scale
measured_flops = 2 * measured_m * measured_k * measured_n

measured_threads = torch.get_num_threads()
torch.set_num_threads(1)  # on a CPU: fewer threads to disturb; all of them later

generator = torch.Generator(device=get_device()).manual_seed(0)
a = torch.ones(measured_m, measured_k, device=get_device())
b = torch.ones(measured_k, measured_n, device=get_device())
a.normal_(generator=generator)
b.normal_(generator=generator)
half_a, half_b = a.bfloat16(), b.bfloat16()


def synchronize() -> None:
    """Waits until the GPU has done all it was told; a CPU's calls do so anyway."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def wait_and_time(call: Callable[[], Any]) -> float:
    """Seconds of a call by the CPU's clock, stopped when the result is there."""
    synchronize()
    began = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - began


# Nothing has multiplied matrices in this process yet.
measured_calls_seconds = {
    "fp32": [wait_and_time(lambda: a @ b) for _ in range(6)],
    "bf16": [wait_and_time(lambda: half_a @ half_b) for _ in range(6)],
}


def first_over_later(calls: list[float]) -> float:
    """The first call over the median of those after it."""
    return calls[0] / statistics.median(calls[1:])


def mean_over_later(calls: list[float]) -> float:
    """The mean of the first five over that median."""
    return statistics.mean(calls[:5]) / statistics.median(calls[1:])


measured_first_ratio = first_over_later(measured_calls_seconds["bf16"])
measured_mean_of_five_ratio = mean_over_later(measured_calls_seconds["bf16"])


def time_naively(call: Callable[[], Any]) -> float:
    """Seconds until a call returns, whether or not its result is there."""
    synchronize()  # so that only this call is in question
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def multiply() -> torch.Tensor:
    """The product in bf16, warm by now."""
    return half_a @ half_b


measured_naive_seconds = statistics.median(time_naively(multiply) for _ in range(5))
measured_waiting_seconds = statistics.median(wait_and_time(multiply) for _ in range(5))
measured_event_seconds = statistics.median(time_trials(multiply, 5))

predicted_seconds = divide(measured_flops, get_peak_flop_per_second("bfloat16"))
measured_naive_to_peak_ratio = divide(predicted_seconds, measured_naive_seconds)


def summarize(seconds: list[float]) -> Timing:
    """The median, and the interquartile range as a share of it."""
    low, median, high = statistics.quantiles(seconds, n=4)
    return Timing(median, (high - low) / median, len(seconds))


# One call after the other of a smaller product, the first among them.
NUM_TRIALS, GROUP = 396, 11  # the median of an odd number is one of them

measured_side = 2048 if torch.cuda.is_available() else 128
square = torch.ones(measured_side, measured_side, device=get_device())
square.normal_(generator=generator)
measured_trials_seconds = time_trials(lambda: square @ square, NUM_TRIALS)

measured_many = summarize(measured_trials_seconds)
measured_median_seconds = measured_many.median_seconds
measured_mean_ratio = statistics.mean(measured_trials_seconds) / measured_median_seconds
measured_slowest_ratio = max(measured_trials_seconds) / measured_median_seconds


COUNTS, REPETITIONS = (3, 5, 11, 33, 101, 333), 60  # odd: the median is one of them
draw = random.Random(0)  # trials are normal: mean 0, standard deviation σ = 1


def simulate(count: int) -> list[float]:
    """The median of so many trials, found anew again and again."""
    trials = ([draw.gauss() for _ in range(count)] for _ in range(REPETITIONS))
    return [round(statistics.median(each), 3) for each in trials]


simulated_medians = {count: simulate(count) for count in COUNTS}
formula_errors = {count: 1.25 / math.sqrt(count) for count in COUNTS}


# --8<-- [start:needed]
def trials_needed(spread: float, error: float = 0.005) -> int:
    """Trials until the median's standard error is this share of the median."""
    return math.ceil((1.25 * spread / 1.349 / error) ** 2)


for spread in (0.01, 0.02, 0.05, 0.2):
    print(f"spread {spread:4.0%}: {trials_needed(spread)} trials")
# --8<-- [end:needed]


TOLERANCE = 0.005  # the standard error that time_call asks for, as a share
SPREADS = [0.01, 0.02, 0.05, 0.2]  # interquartile range / median
needed = [trials_needed(spread) for spread in SPREADS]
assert Timing(1.0, 0.05, trials_needed(0.05)).standard_error <= TOLERANCE
assert Timing(1.0, 0.05, trials_needed(0.05) - 1).standard_error > TOLERANCE


# --8<-- [start:check_rule]
def medians_of_groups(seconds: list[float]) -> list[float]:
    """The median of each GROUP consecutive trials."""
    starts = range(0, len(seconds), GROUP)
    return [statistics.median(seconds[i : i + GROUP]) for i in starts]


measured_groups = summarize(medians_of_groups(measured_trials_seconds))
measured_error_share = measured_groups.spread / 1.349
predicted_error_share = measured_many._replace(trials=GROUP).standard_error
measured_rule_ratio = divide(measured_error_share, predicted_error_share)
# --8<-- [end:check_rule]


def time_with_benchmark(x: torch.Tensor, y: torch.Tensor, threads: int) -> float:
    """Median seconds of x @ y by PyTorch's own timer."""
    timer = benchmark.Timer("x @ y", globals={"x": x, "y": y}, num_threads=threads)
    median: float = timer.blocked_autorange(min_run_time=0.1).median
    return median


measured_ours = time_call(multiply, min_trials=5, min_seconds=0.1)
measured_theirs_seconds = time_with_benchmark(half_a, half_b, threads=1)
measured_agreement_ratio = measured_theirs_seconds / measured_ours.median_seconds


left, right = torch.rand(512, 1024), torch.rand(1024, 256)  # on the CPU, always
measured_one_seconds = time_with_benchmark(left, right, threads=1)
measured_all_seconds = time_with_benchmark(left, right, measured_threads)
measured_threads_ratio = measured_one_seconds / measured_all_seconds


def read_clock_and_power(call: Callable[[], Any]) -> list[float | None]:
    """MHz and watts while the GPU repeats call(), by nvidia-smi; None: unknown."""
    if not torch.cuda.is_available():
        return [None, None]
    query = "--query-gpu=clocks.sm,power.draw.instant"
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={card}"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while process.poll() is None:  # busy until the reading is there
            wait_and_time(call)
        return [float(text) for text in process.communicate()[0].split(",")]
    except (OSError, ValueError):  # no such program, or no such field
        return [None, None]


class OnData(NamedTuple):
    """The product on one kind of data, and the GPU's state during the bf16 one."""

    fp32: Timing
    bf16: Timing
    clock_mhz: float | None
    power_watts: float | None


def fill(x: torch.Tensor, content: str) -> None:
    """Overwrites x with zeros, ones or normal random numbers."""
    if content == "random":
        x.normal_(generator=generator)
    else:
        x.fill_({"zeros": 0, "ones": 1}[content])


def time_on(left: str, right: str) -> OnData:
    """The product in both data types, on matrices filled so."""
    fill(a, left)
    fill(b, right)
    half_a.copy_(a)
    half_b.copy_(b)
    least = 0.4 if torch.cuda.is_available() else 0.03  # seconds of each
    fp32 = time_call(lambda: a @ b, 4, least, 2 * least)
    bf16 = time_call(multiply, 4, least, 2 * least)
    clock, power = read_clock_and_power(multiply)
    return OnData(fp32, bf16, clock, power)


measured_data = {
    "zeros": time_on("zeros", "zeros"),
    "ones": time_on("ones", "ones"),
    "mixed": time_on("ones", "random"),
    "random": time_on("random", "random"),
}
REPORTED_ZEROS_RATIO = 295 / 257  # TFLOP/s on an A100, Horace He, 2024
measured_zeros_seconds = measured_data["zeros"].bf16.median_seconds
measured_random_seconds = measured_data["random"].bf16.median_seconds
measured_on_zeros_ratio = measured_random_seconds / measured_zeros_seconds


PASSES = 50

measured_elements = 2**22 if torch.cuda.is_available() else 2**17
buffer = torch.zeros(measured_elements, device=get_device())
measured_buffer_bytes = get_memory_usage(buffer)


def make_passes(passes: int) -> Callable[[], Any]:
    """A call that reads and writes the whole buffer so many times.

    On a GPU it is a graph: Python would launch the passes more slowly than they run.
    """

    def add_to_buffer() -> None:
        for _ in range(passes):
            buffer.add_(1)

    if not torch.cuda.is_available():
        return add_to_buffer
    add_to_buffer()  # loads the kernel, which a graph may not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_to_buffer()
    return graph.replay


measured_flushed = time_call(make_passes(1), min_seconds=0.05, flush_l2=True)
# Nothing is flushed: each trial leaves the buffer in the cache for the next.
measured_passes = time_call(make_passes(PASSES), min_seconds=0.05)

measured_flushed_seconds = measured_flushed.median_seconds
measured_resident_seconds = measured_passes.median_seconds / PASSES
measured_flush_ratio = measured_flushed_seconds / measured_resident_seconds


# --8<-- [start:exercise_1]
FIVE_MS = [106.0, 11.1, 11.0, 11.2, 11.1]  # made up; the first call is cold

five_mean, five_median = statistics.mean(FIVE_MS), statistics.median(FIVE_MS)
calls_needed = math.ceil((FIVE_MS[0] - five_median) / (0.01 * five_median))
print(f"mean {five_mean:.2f} ms, median {five_median} ms, {calls_needed} calls")
# --8<-- [end:exercise_1]


def mean_of(calls: int) -> float:
    """The mean after so many calls, if all but the first take the median."""
    return (FIVE_MS[0] + (calls - 1) * five_median) / calls


assert mean_of(calls_needed) <= 1.01 * five_median < mean_of(calls_needed - 1)


# --8<-- [start:exercise_2]
SPREAD, DIFFERENCE = 0.02, 0.01  # of each kernel; between the two

# Two medians err by √2 as much as one; two standard errors are to fit in.
tolerable_share = DIFFERENCE / (2 * math.sqrt(2))
per_kernel = trials_needed(SPREAD, tolerable_share)
print(per_kernel, "trials of each")
# --8<-- [end:exercise_2]


assert Timing(1.0, SPREAD, per_kernel).standard_error <= tolerable_share


# --8<-- [start:exercise_3]
DRIFTING = [100 + call for call in range(20)]  # the clock falls, call by call


def apparent_slowdown(a: list[int], b: list[int]) -> float:
    """How much slower b seems than a, though both are the same kernel."""
    return statistics.median(b) / statistics.median(a) - 1


in_turn_share = apparent_slowdown(DRIFTING[:10], DRIFTING[10:])
alternating_share = apparent_slowdown(DRIFTING[::2], DRIFTING[1::2])
mirrored_share = apparent_slowdown(  # ABBA ABBA …
    [*DRIFTING[0::4], *DRIFTING[3::4]],
    [*DRIFTING[1::4], *DRIFTING[2::4]],
)
print(f"in turn {in_turn_share:.1%}")
print(f"alternating {alternating_share:.1%}")
print(f"mirrored {mirrored_share:.1%}")
# --8<-- [end:exercise_3]


assert in_turn_share > 10 * alternating_share > mirrored_share == 0


# --8<-- [start:exercise_4]
RESOLUTION_SECONDS = 0.5e-6  # of a CUDA event

SHORTEST_SECONDS = RESOLUTION_SECONDS / 0.005
print(f"{SHORTEST_SECONDS * 1e6:.0f} µs")
# --8<-- [end:exercise_4]
assert math.isclose(SHORTEST_SECONDS, RESOLUTION_SECONDS / TOLERANCE)
