# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Why an operation is slow: its FLOPs, its bytes or its launch, predicted and then measured."""

# --8<-- [start:setup]
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F

from flops_bytes.gpus import GPUS, Gpu
from flops_bytes.measure import (
    Timing,
    divide,
    get_device,
    get_memory_usage,
    get_peak_bytes_per_second,
    get_peak_flop_per_second,
    time_call,
)
from flops_bytes.trace import Trace, count_flops

# --8<-- [end:setup]


# --8<-- [start:work]
class Work(NamedTuple):
    """What an operation has to do, whatever does it."""

    work_flops: int
    moved_bytes: int  # every input read once, every output written once

    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.work_flops / self.moved_bytes


def elementwise(num_elements: int, flops: int, itemsize: int) -> Work:
    """One tensor read, one written, so many FLOPs for each element."""
    return Work(flops * num_elements, 2 * num_elements * itemsize)


def product(a: tuple[int, int], b: tuple[int, int], itemsize: int) -> Work:
    """(m, n) @ (n, p): m · p sums of n products."""
    (m, n), (rows, p) = a, b
    if rows != n:
        raise ValueError(f"{a} @ {b}: {n} columns meet {rows} rows")
    return Work(2 * m * n * p, itemsize * (m * n + n * p + m * p))


# --8<-- [end:work]


# --8<-- [start:count]
SIDE = 16384  # n, of a square matrix
BFLOAT16 = 2  # bytes of one element
RELU_FLOPS = 1  # for each element: one comparison
GELU_FLOPS = 5  # x · 0.5 · (1 + erf(x · √½)): 3 products, 1 sum, 1 erf


def count(n: int, itemsize: int) -> dict[str, Work]:
    """Five operations on n × n matrices, or on vectors of n² elements."""
    return {
        "relu": elementwise(n * n, RELU_FLOPS, itemsize),
        "gelu": elementwise(n * n, GELU_FLOPS, itemsize),
        "dot": product((1, n * n), (n * n, 1), itemsize),
        "matvec": product((n, n), (n, 1), itemsize),
        "matmul": product((n, n), (n, n), itemsize),
    }


works = count(SIDE, BFLOAT16)
intensities = {name: work.intensity() for name, work in works.items()}
for name, work in works.items():
    print(f"{name:7}{work.work_flops:18,} FLOPs{work.moved_bytes:14,} B", end="")
    print(f"{intensities[name]:10.2f} FLOP/B")
thousand_intensity = count(1024, BFLOAT16)["matmul"].intensity()
# --8<-- [end:count]


# --8<-- [start:moved_bytes]
def moved_bytes(call: Callable[..., object], *inputs: torch.Tensor) -> int:
    """Bytes of all operations' inputs and outputs, whatever caches save or waste."""
    with Trace() as trace:
        call(*inputs)
    return sum(operation.moved_bytes for operation in trace.operations)


# shapes without data
x = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
w = torch.empty_like(x)
moved = {
    "relu": moved_bytes(torch.relu, x),
    "gelu": moved_bytes(F.gelu, x),
    "dot": moved_bytes(torch.dot, x.view(-1), w.view(-1)),
    "matvec": moved_bytes(torch.mv, x, w[:, 0]),
    "matmul": moved_bytes(torch.mm, x, w),
}
assert moved == {name: work.moved_bytes for name, work in works.items()}
assert count_flops(lambda: torch.mm(x, w)) == works["matmul"].work_flops
print("bytes of all five and FLOPs of the matmul: equal to the formulas")
# --8<-- [end:moved_bytes]


# --8<-- [start:ridge]
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")  # rows of gpus.GPUS
H200 = GPUS["H200 SXM"]


def ridge(gpu: Gpu, units: str) -> float:
    """The intensity at which arithmetic takes as long as moving bytes."""
    return gpu.peak_flop_per_second[units] / gpu.bandwidth_bytes_per_second


tensor_ridges = {name: ridge(GPUS[name], "bfloat16") for name in TABLE_GPUS}
cuda_ridges = {name: ridge(GPUS[name], "float32") for name in TABLE_GPUS}
for name in TABLE_GPUS:
    print(f"{name:14} bf16 on tensor cores: {tensor_ridges[name]:4.0f}", end="  ")
    print(f" fp32 on CUDA cores: {cuda_ridges[name]:3.0f}  FLOP/B")

h200_tensor_ridge = tensor_ridges["H200 SXM"]
h200_cuda_ridge = cuda_ridges["H200 SXM"]
ridge_sides = {name: 3 * value for name, value in tensor_ridges.items()}
free_flops = h200_cuda_ridge * 2 * BFLOAT16  # for each element
assert free_flops > GELU_FLOPS
# --8<-- [end:ridge]


# --8<-- [start:tokens]
D_MODEL = 8192


def tokens_at(intensity: float, d: int) -> float:
    """The b at which (b, d) @ (d, d) in bf16 has that intensity.

    b · d / (2 · b + d) = intensity, solved for b.
    """
    return intensity * d / (d - 2 * intensity)


weight = (D_MODEL, D_MODEL)
ridge_tokens = {gpu: tokens_at(tensor_ridges[gpu], D_MODEL) for gpu in TABLE_GPUS}
for name, tokens in ridge_tokens.items():
    print(f"{name:14}{tokens:6.1f} tokens")
    below = product((int(tokens), D_MODEL), weight, BFLOAT16)
    above = product((int(tokens) + 1, D_MODEL), weight, BFLOAT16)
    assert below.intensity() < tensor_ridges[name] < above.intensity()
# --8<-- [end:tokens]


# --8<-- [start:predict]
VECTOR = ("relu", "gelu", "dot", "matvec")  # on CUDA cores, in float32
PEAKS = ("bfloat16", "float32")
Rate = float | None  # per second; None where it is not known


def roofline(work: Work, peak: Rate, bandwidth: Rate) -> float | None:
    """Seconds that the work takes at least; None where a limit is not known."""
    if not peak or not bandwidth:
        return None
    return max(work.work_flops / peak, work.moved_bytes / bandwidth)


def on_h200(name: str) -> float:
    """Predicted seconds by the datasheet of an H200."""
    peak = H200.peak_flop_per_second["float32" if name in VECTOR else "bfloat16"]
    return roofline(works[name], peak, H200.bandwidth_bytes_per_second) or 0.0


H200_SECONDS = {name: on_h200(name) for name in works}
flops_ratio = works["matmul"].work_flops // works["relu"].work_flops
h200_time_ratio = H200_SECONDS["matmul"] / H200_SECONDS["relu"]
print(f"matmul over relu: {flops_ratio:,} × the FLOPs", end=", ")
print(f"{h200_time_ratio:.1f} × the time")
assert H200_SECONDS["gelu"] == H200_SECONDS["relu"]
# --8<-- [end:predict]


# --8<-- [start:prepare]
torch.set_num_threads(1)  # on a CPU: one core, and the roof of one core
measured_on_gpu = torch.cuda.is_available()
dtype = torch.bfloat16 if measured_on_gpu else torch.float32
measured_side = SIDE if measured_on_gpu else 4096  # 64 MiB: a large L3 may hold it
measured_sides = [2**k for k in (range(5, 15) if measured_on_gpu else range(3, 11))]


def rand(*shape: int) -> torch.Tensor:
    """Random numbers on this device."""
    return torch.randn(*shape, device=get_device(), dtype=dtype)


def clock(call: Callable[[], object]) -> Timing:
    """time_call, with fewer trials on a CPU."""
    trials, seconds = (10, 0.05) if measured_on_gpu else (5, 0.005)
    return time_call(call, min_trials=trials, min_seconds=seconds)


# --8<-- [end:prepare]


# --8<-- [start:measure]
a, b = rand(measured_side, measured_side), rand(measured_side, measured_side)
v = rand(measured_side)
measured_timings = {
    "copy": clock(lambda: b.copy_(a)),
    "relu": clock(lambda: torch.clamp_min(a, 0, out=b)),  # max(x, 0)
    "gelu": clock(lambda: torch.ops.aten.gelu.out(a, out=b)),
    "dot": clock(lambda: torch.dot(a.view(-1), b.view(-1))),
    "matvec": clock(lambda: torch.mv(a, v)),
}
for name, timing in measured_timings.items():
    print(f"{name:7}{timing.median_seconds * 1e3:9.3f} ms")
# --8<-- [end:measure]


# --8<-- [start:sweep]
def time_matmul(n: int) -> Timing:
    """A square product, into memory that is there already."""
    a, b, c = rand(n, n), rand(n, n), rand(n, n)
    return clock(lambda: torch.mm(a, b, out=c))


measured_matmuls = {n: time_matmul(n) for n in measured_sides}
for n, timing in measured_matmuls.items():
    seconds = timing.median_seconds
    print(f"n = {n:<6}{seconds * 1e6:10,.1f} µs{2e-9 * n**3 / seconds:12,.1f} GFLOP/s")
# --8<-- [end:sweep]


# --8<-- [start:roofs]
measured_copy = measured_timings["copy"]  # reads a and writes b
measured_bytes_per_second = 2 * get_memory_usage(a) / measured_copy.median_seconds


def rate_of(n: int) -> float:
    """FLOP/s of a square product."""
    return 2 * n**3 / measured_matmuls[n].median_seconds


measured_best_side = max(measured_sides, key=rate_of)
measured_flop_per_second = rate_of(measured_best_side)
measured_ridge = measured_flop_per_second / measured_bytes_per_second
print(f"{measured_flop_per_second / 1e9:,.0f} GFLOP/s, ", end="")
print(f"{measured_bytes_per_second / 1e9:,.1f} GB/s: ridge {measured_ridge:.1f} FLOP/B")

predicted_bytes_per_second = get_peak_bytes_per_second()
predicted_flop_per_second = {d: get_peak_flop_per_second(d) for d in PEAKS}
# --8<-- [end:roofs]


# --8<-- [start:compare]
def compare(work: Work, seconds: float, units: str) -> dict[str, float | None]:
    """A measurement beside both roofs."""
    sheet = roofline(work, predicted_flop_per_second[units], predicted_bytes_per_second)
    roof = roofline(work, measured_flop_per_second, measured_bytes_per_second)
    return {
        "intensity": work.intensity(),
        "rate_flop_per_second": work.work_flops / seconds,
        "median_seconds": seconds,
        "sheet_seconds": sheet,  # predicted by the datasheet
        "roof_seconds": roof,  # predicted by the measured roof
        "sheet_ratio": divide(seconds, sheet),
        "roof_ratio": divide(seconds, roof),
    }


measured_points = {
    name: compare(work, measured_timings[name].median_seconds, "float32")
    for name, work in count(measured_side, dtype.itemsize).items()
    if name in VECTOR
}
measured_sweep = {
    n: compare(count(n, dtype.itemsize)["matmul"], timing.median_seconds, "bfloat16")
    for n, timing in measured_matmuls.items()
}
measured_largest = measured_sweep[measured_sides[-1]]
for name, point in measured_points.items():
    print(f"{name:7}{point['roof_ratio']:6.2f} × the time by the measured roof")
# --8<-- [end:compare]


# --8<-- [start:floor]
SMALL_SIDES = (1, 8, 16, 24, 32)
CALLS = 100


def in_a_row(n: int) -> float:
    """Seconds of one of a hundred products, called one after the other."""
    a, b, c = rand(n, n), rand(n, n), rand(n, n)
    hundred = clock(lambda: [torch.mm(a, b, out=c) for _ in range(CALLS)])
    return hundred.median_seconds / CALLS


# in turns, so that all sides meet the same machine
measured_rounds = [[in_a_row(n) for n in SMALL_SIDES] for _ in range(7)]
measured_middle = map(median, zip(*measured_rounds, strict=True))
measured_small_seconds = dict(zip(SMALL_SIDES, measured_middle, strict=True))
measured_call_seconds = measured_small_seconds[1]  # one multiplication, and the call
# --8<-- [end:floor]


# --8<-- [start:third]
def third_limit(n: int) -> dict[str, float]:
    """A small product, which a cache holds: its arithmetic, the max and the sum."""
    work = 2 * n**3 / measured_flop_per_second
    largest, total = max(measured_call_seconds, work), measured_call_seconds + work
    return {
        "work_seconds": work,
        "max_seconds": largest,
        "sum_seconds": total,
        "max_ratio": measured_small_seconds[n] / largest,
        "sum_ratio": measured_small_seconds[n] / total,
    }


measured_third_limit = {n: third_limit(n) for n in SMALL_SIDES[1:]}
for n, row in measured_third_limit.items():
    print(f"n = {n:<4}over max {row['max_ratio']:.2f}, over sum {row['sum_ratio']:.2f}")
# --8<-- [end:third]


# --8<-- [start:chain]
def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh (Hendrycks and Gimpel), one operation after the other."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


with Trace() as chain:
    gelu_chain(x)
chain_operations = len(chain.operations)
chain_bytes = moved_bytes(gelu_chain, x)
fused_bytes = works["gelu"].moved_bytes
fusion_bytes_ratio = chain_bytes / fused_bytes
print(f"{chain_operations} operations move {chain_bytes:,} B")
print(f"one would move {fused_bytes:,} B, 1 / {fusion_bytes_ratio:.0f} of it")
assert chain_operations == 9 and fusion_bytes_ratio == 11
# --8<-- [end:chain]


# --8<-- [start:fusion]
measured_chain_side = SIDE if measured_on_gpu else 2048
features = rand(measured_chain_side, measured_chain_side)


def time_compiled() -> Timing | None:
    """The chain through torch.compile; None on a CPU, or where it fails."""
    if not torch.cuda.is_available():
        return None
    compiled = torch.compile(gelu_chain)
    with suppress(RuntimeError):  # no Triton, or no C compiler for it
        return clock(lambda: compiled(features))
    return None


written = torch.ops.aten.gelu.out  # F.gelu, into memory that is there already
there = torch.empty_like(features)
measured_in_cache_side = 4096 if measured_on_gpu else 256
measured_tiles = (measured_chain_side / measured_in_cache_side) ** 2
tile = rand(measured_in_cache_side, measured_in_cache_side)
tile_there = torch.empty_like(tile)


def per_tile() -> float:
    """Seconds without memory: a piece that stays in a cache, as often as it fits."""
    one = clock(lambda: written(tile, approximate="tanh", out=tile_there))
    return one.median_seconds * measured_tiles


measured_eager, measured_compiled = clock(lambda: gelu_chain(features)), time_compiled()
measured_written = clock(lambda: F.gelu(features, approximate="tanh"))
measured_there = clock(lambda: written(features, approximate="tanh", out=there))
measured_chain_seconds = {
    "eager": measured_eager.median_seconds,
    "compiled": measured_compiled.median_seconds if measured_compiled else None,
    "written": measured_written.median_seconds,
    "there": measured_there.median_seconds,
    "cached": per_tile(),
}
for name, took in measured_chain_seconds.items():
    print(f"{name:9}", f"{took * 1e3:8.3f} ms" if took else "not on this device")
# --8<-- [end:fusion]


# --8<-- [start:speed_up]
PASSES = {"eager": 22, "compiled": 2, "written": 2, "there": 2, "cached": 0}
assert PASSES["eager"] * get_memory_usage(x) == chain_bytes


def speed_up(name: str) -> dict[str, float | None]:
    """One way to compute the chain: by its bytes at a copy's rate, and measured."""
    moved_bytes = PASSES[name] * get_memory_usage(features)
    predicted = moved_bytes / measured_bytes_per_second
    seconds = measured_chain_seconds[name]
    return {
        "predicted_seconds": predicted or None,
        "bytes_ratio": divide(seconds, predicted),
        "speed_up_ratio": divide(measured_chain_seconds["eager"], seconds),
    }


measured_speed_ups = {name: speed_up(name) for name in PASSES}
# --8<-- [end:speed_up]


# --8<-- [start:exercise_1]
EPILOGUE_SIDES = (1024, 4096, SIDE)
relu_to_matmul_share = {n: 2 * h200_tensor_ridge / n for n in EPILOGUE_SIDES}
print({n: f"{share:.1%}" for n, share in relu_to_matmul_share.items()})

direct = H200_SECONDS["relu"] / H200_SECONDS["matmul"]
assert abs(relu_to_matmul_share[SIDE] - direct) < 1e-9
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
POINTS = 16384
output = torch.empty(POINTS, 1, device="meta")
target = torch.empty(POINTS, device="meta")
wrong_bytes = moved_bytes(torch.sub, output, target)
right_bytes = moved_bytes(torch.sub, output.squeeze(1), target)
wrong_ratio = wrong_bytes / right_bytes
print(tuple((output - target).shape), f"{wrong_bytes:,} B, not {right_bytes:,} B")
assert (output - target).shape == (POINTS, POINTS)
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
TOKENS, WIDTH = 8192, 4096  # rows of the input, and its columns

up = product((TOKENS, WIDTH), (WIDTH, 4 * WIDTH), BFLOAT16)
down = product((TOKENS, 4 * WIDTH), (4 * WIDTH, WIDTH), BFLOAT16)
gelu = elementwise(TOKENS * 4 * WIDTH, GELU_FLOPS, BFLOAT16)
assert min(up.intensity(), down.intensity()) > h200_tensor_ridge

# every kernel on its roof
product_time = (up.work_flops + down.work_flops) / H200.peak_flop_per_second["bfloat16"]
gelu_time = gelu.moved_bytes / H200.bandwidth_bytes_per_second
fused_layer_share = product_time / (product_time + gelu_time)
chain_time = fusion_bytes_ratio * gelu_time
eager_layer_share = product_time / (product_time + chain_time)
print(f"of the peak: fused {fused_layer_share:.0%}, the chain {eager_layer_share:.0%}")
# --8<-- [end:exercise_3]
