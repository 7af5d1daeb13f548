# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""How far one product can go: the best shape and whether it lasts, the fastest data type, the teeth of the waves."""
# Slow: a search over shapes, then seconds of the best ones.

# --8<-- [start:setup]
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from flops_bytes.lessons.measure import divide, get_device, get_peak_flop_per_second, time_call

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_on_gpu = torch.cuda.is_available()
measured_dtype = "bfloat16" if measured_on_gpu else "float32"
predicted_peak_flop_per_second = get_peak_flop_per_second("bfloat16")


def rate_for(m: int, n: int, k: int, seconds: float) -> float:
    """FLOP/s of a product of random matrices, repeated for so many seconds."""
    dtype, device = getattr(torch, measured_dtype), get_device()
    x = torch.randn(m, k, dtype=dtype, device=device)
    w = torch.randn(n, k, dtype=dtype, device=device).t()  # as in nn.Linear
    out = torch.empty(m, n, dtype=dtype, device=device)
    call = time_call(lambda: torch.mm(x, w, out=out), 3, seconds, seconds)
    return 2 * m * n * k / call.median_seconds


# --8<-- [end:setup]


# --8<-- [start:search]
measured_sizes = list(range(1024, 20481, 1024)) if measured_on_gpu else [64, 96, 128, 192, 256, 320, 384]
measured_budget_seconds = 30.0 if measured_on_gpu else 0.7


def search(budget: float) -> dict[tuple[int, int, int], float]:
    """FLOP/s by (m, n, k): random shapes, as many as the seconds allow."""
    shapes = list(itertools.product(measured_sizes, measured_sizes, measured_sizes))
    random.Random(0).shuffle(shapes)
    found, began = {}, time.perf_counter()
    for m, n, k in shapes:
        found[m, n, k] = rate_for(m, n, k, 0.03 if measured_on_gpu else 0.003)
        if time.perf_counter() - began > budget:
            break
    return found


measured_by_shape = search(measured_budget_seconds)
measured_shapes = len(measured_by_shape)
measured_median_flop_per_second = statistics.median(measured_by_shape.values())
print(f"{measured_shapes} shapes, half of them above {measured_median_flop_per_second / 1e12:.4g} TFLOP/s")
# --8<-- [end:search]


# --8<-- [start:held]
NUM_HELD = 3  # of the best shapes
H100_SHARE = 0.803  # of the peak, as mamf-finder found on an H100 SXM

measured_held_for_seconds = 3.0 if measured_on_gpu else 0.1
predicted_best_flop_per_second = divide(predicted_peak_flop_per_second, 1 / H100_SHARE)


class Best(NamedTuple):
    """A shape for a moment, and for seconds."""

    shape: str
    short_flop_per_second: float
    held_flop_per_second: float
    held_to_short_ratio: float
    held_peak_share: float | None


def hold(shape: tuple[int, int, int]) -> Best:
    """The shape's product again, for longer."""
    short, held = measured_by_shape[shape], rate_for(*shape, measured_held_for_seconds)
    name = " × ".join(f"{size:,}" for size in shape)
    return Best(name, short, held, held / short, divide(held, predicted_peak_flop_per_second))


measured_best_shapes = sorted(measured_by_shape, key=lambda shape: -measured_by_shape[shape])[:NUM_HELD]
measured_best = [hold(shape) for shape in measured_best_shapes]
measured_to_predicted_ratio = divide(
    max(best.held_flop_per_second for best in measured_best),
    predicted_best_flop_per_second,
)
for best in measured_best:
    print(f"{best.shape:>24}: {best.short_flop_per_second / 1e12:.4g} TFLOP/s at first,", end=" ")
    print(f"{best.held_flop_per_second / 1e12:.4g} when held")
# --8<-- [end:held]


# --8<-- [start:types]
SIDE = 8192
PREDICTED_SPEED_UP_RATIO = {  # the datasheet's peak over that of bf16, Hopper
    "bfloat16": 1,
    "float16": 1,
    "float16_sums": 1,  # sums in fp16 too: rated twice as fast on a GeForce only
    "float8_tensorwise": 2,  # one scale for each operand
    "float8_rowwise": 2,  # one for each row of x and each column of w
    "int8": 2,
}


def multiply(name: str) -> Callable[[], torch.Tensor]:
    """A call that multiplies random matrices of this type on tensor cores."""
    x = torch.randn(SIDE, SIDE, device="cuda")
    w = torch.randn(SIDE, SIDE, device="cuda")  # transposed where it is used
    one, ones = torch.ones((), device="cuda"), torch.ones(SIDE, 1, device="cuda")
    scales = {"float8_tensorwise": (one, one), "float8_rowwise": (ones, ones.t())}
    if name in scales:
        a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn).t()
        kind = torch.bfloat16
        return lambda: torch._scaled_mm(a, b, *scales[name], out_dtype=kind, use_fast_accum=True)
    if name == "int8":
        a, b = (20 * x).to(torch.int8), (20 * w).to(torch.int8).t()
        return lambda: torch._int_mm(a, b)
    half = getattr(torch, name.removesuffix("_sums"))
    a, b = x.to(half), w.to(half).t()
    return lambda: a @ b


# --8<-- [end:types]


# --8<-- [start:time_types]
def time_type(name: str) -> float | None:
    """FLOP/s (int8: operations) of the product; None without a GPU or where it lacks the units."""
    if not measured_on_gpu:
        return None
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_fp16_accumulation = matmul.allow_fp16_accumulation, name == "float16_sums"
    try:
        return 2 * SIDE**3 / time_call(multiply(name), 5, 0.6, 1.5).median_seconds
    except (RuntimeError, ValueError):
        return None
    finally:
        matmul.allow_fp16_accumulation = before


measured_types_flop_per_second = {name: time_type(name) for name in PREDICTED_SPEED_UP_RATIO}
measured_speed_up_ratio = {
    name: divide(rate, measured_types_flop_per_second["bfloat16"])
    for name, rate in measured_types_flop_per_second.items()
}
measured_to_datasheet_ratio = {
    name: divide(ratio, PREDICTED_SPEED_UP_RATIO[name]) for name, ratio in measured_speed_up_ratio.items()
}
for name, rate in measured_types_flop_per_second.items():
    print(f"{name:18}", f"{rate / 1e12:.4g} TFLOP/s" if rate else "not here")
# --8<-- [end:time_types]


# --8<-- [start:waves]
TILE_ROWS, TILE_COLUMNS = 128, 256  # one of cuBLAS's large tiles
WAVE_SIDES = list(range(1024, 8193, 128))
WAVE_SUMS = 4096  # k of all of them

predicted_sms = torch.cuda.get_device_properties(0).multi_processor_count if measured_on_gpu else 132


def predict_wave(side: int) -> dict[str, float]:
    """Waves of a square result, and the share of their places that it fills."""
    tiles = math.ceil(side / TILE_ROWS) * math.ceil(side / TILE_COLUMNS)
    waves = math.ceil(tiles / predicted_sms)
    paid = waves * predicted_sms * TILE_ROWS * TILE_COLUMNS
    return {"waves": waves, "filled_share": side**2 / paid}


predicted_waves = {side: predict_wave(side) for side in WAVE_SIDES}
predicted_drops = [  # sides at which one more wave begins, and the filled share falls
    side
    for before, side in itertools.pairwise(WAVE_SIDES)
    if predicted_waves[side]["waves"] > predicted_waves[before]["waves"]
    and predicted_waves[side]["filled_share"] < predicted_waves[before]["filled_share"]
]
print(f"{predicted_sms} SMs, tiles of {TILE_ROWS} × {TILE_COLUMNS}: the rate should fall at")
print(*predicted_drops)
# --8<-- [end:waves]


# --8<-- [start:time_waves]
measured_wave_sides = WAVE_SIDES if measured_on_gpu else []  # a CPU has no SMs
measured_waves_flop_per_second = {side: rate_for(side, side, WAVE_SUMS, 0.06) for side in measured_wave_sides}
measured_fastest_flop_per_second = max(measured_waves_flop_per_second.values(), default=None)
measured_teeth = {
    side: {
        "measured_share": divide(rate, measured_fastest_flop_per_second),  # of the fastest
        "predicted_share": predicted_waves[side]["filled_share"],
    }
    for side, rate in measured_waves_flop_per_second.items()
}


def falls(side: int) -> bool:
    """Whether a side's product runs at a rate lower by more than a hundredth than the one before it."""
    return measured_waves_flop_per_second[side] < 0.99 * measured_waves_flop_per_second[side - 128]


measured_falls = [side for side in measured_wave_sides[1:] if falls(side)]
measured_foreseen = [side for side in measured_falls if side in predicted_drops]
measured_seen_share = divide(len(measured_foreseen), len(predicted_drops)) if measured_on_gpu else None
print("it falls at", *measured_falls if measured_on_gpu else ["no side: there is no GPU here"])
# --8<-- [end:time_waves]
