# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Why an operation is slow: its FLOPs, its bytes or its launch, predicted and then measured."""

# --8<-- [start:setup]
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    GPUS,
    Gpu,
    Timing,
    Trace,
    divide,
    get_device,
    get_memory_usage,
    get_peak_bytes_per_second,
    get_peak_flop_per_second,
    time_call,
)
from torch.utils.flop_counter import FlopCounterMode

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
assert round(thousand_intensity, 1) == round(1024 / 3, 1) == 341.3
# --8<-- [end:count]


# --8<-- [start:bad_input]
try:
    product((1024, 512), (1024, 512), BFLOAT16)
except ValueError as error:
    print("counted:", error)
try:
    torch.ones(1024, 512) @ torch.ones(1024, 512)
except RuntimeError as error:
    print("torch:  ", error)
# --8<-- [end:bad_input]


# --8<-- [start:moved_bytes]
def watch(call: Callable[..., object], *inputs: torch.Tensor) -> Trace:
    """The trace of a call."""
    with Trace() as trace:
        call(*inputs)
    return trace


def moved_bytes(trace: Trace) -> int:
    """Bytes of all operations' inputs and outputs, whatever caches save or waste."""
    return sum(operation.moved_bytes for operation in trace.operations)


# --8<-- [end:moved_bytes]


# --8<-- [start:check]
# shapes without data
x = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")
w = torch.empty_like(x)
moved = {
    "relu": watch(torch.relu, x),
    "gelu": watch(F.gelu, x),
    "dot": watch(torch.dot, x.view(-1), w.view(-1)),
    "matvec": watch(torch.mv, x, w[:, 0]),
    "matmul": watch(torch.mm, x, w),
}
for name, trace in moved.items():
    assert moved_bytes(trace) == works[name].moved_bytes, name

with FlopCounterMode(display=False) as flop_counter:
    torch.mm(x, w)
assert flop_counter.get_total_flops() == works["matmul"].work_flops
print("bytes of all five and FLOPs of the matmul: equal to the formulas")
# --8<-- [end:check]


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


# --8<-- [start:predict]
UNITS = {  # what computes: CUDA cores (in float32), or tensor cores
    "relu": "float32",
    "gelu": "float32",
    "dot": "float32",
    "matvec": "float32",
    "matmul": "bfloat16",
}


Rate = float | None  # per second; None where it is not known


def roofline(work: Work, peak: Rate, bandwidth: Rate) -> float | None:
    """Seconds that the work takes at least; None where a limit is not known."""
    if not peak or not bandwidth:
        return None
    return max(work.work_flops / peak, work.moved_bytes / bandwidth)


def on_h200(name: str) -> float:
    """Predicted seconds by the datasheet of an H200."""
    peak = H200.peak_flop_per_second[UNITS[name]]
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
measured_matmul_side = measured_sides[-1]


def rand(*shape: int) -> torch.Tensor:
    """Random numbers on this device."""
    return torch.randn(*shape, device=get_device(), dtype=dtype)


def clock(call: Callable[[], object]) -> Timing:
    """time_call, with fewer trials on a CPU."""
    trials, seconds = (10, 0.05) if measured_on_gpu else (5, 0.005)
    return time_call(call, min_trials=trials, min_seconds=seconds)


def time_matmul(n: int) -> Timing:
    """A square product, into memory that is there already."""
    a, b, c = rand(n, n), rand(n, n), rand(n, n)
    return clock(lambda: torch.mm(a, b, out=c))


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
    "matmul": time_matmul(measured_matmul_side),
}
for name, timing in measured_timings.items():
    print(f"{name:7}{timing.median_seconds * 1e3:9.3f} ms", end=", ")
    print(f"middle half within {timing.spread:.0%}, {timing.trials} trials")
# --8<-- [end:measure]


# --8<-- [start:roofs]
measured_works = count(measured_side, dtype.itemsize)
measured_works["matmul"] = count(measured_matmul_side, dtype.itemsize)["matmul"]
measured_seconds = {key: t.median_seconds for key, t in measured_timings.items()}

# The datasheet's roof …
predicted_bytes_per_second = get_peak_bytes_per_second()
predicted_flop_per_second = {
    "bfloat16": get_peak_flop_per_second("bfloat16"),
    "float32": get_peak_flop_per_second("float32"),
}
# … and what a copy and a large matmul reach here
measured_copied_bytes = 2 * get_memory_usage(a)  # read and written
measured_matmul_flops = measured_works["matmul"].work_flops
measured_bytes_per_second = measured_copied_bytes / measured_seconds["copy"]
measured_flop_per_second = measured_matmul_flops / measured_seconds["matmul"]
print(f"measured: {measured_flop_per_second / 1e9:,.0f} GFLOP/s", end=" and ")
print(f"{measured_bytes_per_second / 1e9:,.1f} GB/s, so a ridge at", end=" ")
print(f"{measured_flop_per_second / measured_bytes_per_second:.1f} FLOP/B")
# --8<-- [end:roofs]


# --8<-- [start:compare]
class Point(NamedTuple):
    """One measurement beside both roofs."""

    intensity: float
    rate_flop_per_second: float
    median_seconds: float
    sheet_seconds: float | None  # predicted by the datasheet
    roof_seconds: float | None  # predicted by the measured roof
    sheet_ratio: float | None  # measured over predicted
    roof_ratio: float | None


def compare(work: Work, seconds: float, units: str) -> Point:
    """Where a measurement lies."""
    peak = predicted_flop_per_second[units]
    sheet = roofline(work, peak, predicted_bytes_per_second)
    roof = roofline(work, measured_flop_per_second, measured_bytes_per_second)
    return Point(
        intensity=work.intensity(),
        rate_flop_per_second=work.work_flops / seconds,
        median_seconds=seconds,
        sheet_seconds=sheet,
        roof_seconds=roof,
        sheet_ratio=divide(seconds, sheet),
        roof_ratio=divide(seconds, roof),
    )


def compare_named(name: str) -> Point:
    """One of the five operations."""
    return compare(measured_works[name], measured_seconds[name], UNITS[name])


measured_points = {name: compare_named(name) for name in UNITS}
for name, point in measured_points.items():
    print(f"{name:7}{point.roof_ratio:6.2f} × the time by the measured roof")
# --8<-- [end:compare]


# --8<-- [start:sweep]
def time_side(n: int) -> Point:
    """The product of two n × n matrices beside both roofs."""
    work = count(n, dtype.itemsize)["matmul"]
    return compare(work, time_matmul(n).median_seconds, UNITS["matmul"])


measured_sweep = {n: time_side(n) for n in measured_sides}
for n, point in measured_sweep.items():
    print(f"n = {n:<6}{point.median_seconds * 1e6:10,.1f} µs", end="")
    print(f"{point.rate_flop_per_second / 1e9:12,.1f} GFLOP/s")
# --8<-- [end:sweep]


# --8<-- [start:floor]
measured_smallest_side = measured_sides[0]
measured_floor_seconds = measured_sweep[measured_smallest_side].median_seconds
measured_floor_flops = measured_floor_seconds * measured_flop_per_second
measured_floor_side = round((measured_floor_flops / 2) ** (1 / 3))  # 2 · n³
print(f"the floor: {measured_floor_seconds * 1e6:.1f} µs", end=", ")
print(f"as long as n = {measured_floor_side} takes on the roof")
# --8<-- [end:floor]


# --8<-- [start:launch]
LAUNCHES = 100

small = rand(measured_smallest_side, measured_smallest_side)
result = torch.empty_like(small)


def launch_many() -> None:
    """Many small products, one after the other."""
    for _ in range(LAUNCHES):
        torch.mm(small, small, out=result)


def replay_many() -> Timing | None:
    """The same, recorded as a CUDA graph and launched at once; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_many()
    return clock(graph.replay)


measured_row, measured_graph = clock(launch_many), replay_many()
measured_launch_seconds = {
    "alone": measured_floor_seconds,
    "in_a_row": measured_row.median_seconds / LAUNCHES,
    "graph": measured_graph.median_seconds / LAUNCHES if measured_graph else None,
}
for name, each in measured_launch_seconds.items():
    print(f"{name:10}", f"{each * 1e6:6.2f} µs" if each else "not on a CPU")
# --8<-- [end:launch]


# --8<-- [start:chain]
def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh (Hendrycks and Gimpel), one operation after the other."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


chain = watch(gelu_chain, x)
chain_operations = len(chain.operations)
chain_bytes = moved_bytes(chain)
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
    try:
        return clock(lambda: compiled(features))
    except RuntimeError:  # no Triton, or no C compiler for it
        return None


measured_eager = clock(lambda: gelu_chain(features))
measured_compiled = time_compiled()
measured_written = clock(lambda: F.gelu(features, approximate="tanh"))
measured_chain_seconds = {
    "eager": measured_eager.median_seconds,
    "compiled": measured_compiled.median_seconds if measured_compiled else None,
    "written": measured_written.median_seconds,
}
for name, took in measured_chain_seconds.items():
    print(f"{name:9}", f"{took * 1e3:8.3f} ms" if took else "not on this device")
# --8<-- [end:fusion]


# --8<-- [start:speed_up]
PASSES = {"eager": 22, "compiled": 2, "written": 2}  # tensors read or written
assert PASSES["eager"] * get_memory_usage(x) == chain_bytes


def speed_up(name: str) -> dict[str, float | None]:
    """One way to compute the chain: predicted, measured, against eager."""
    moved_bytes = PASSES[name] * get_memory_usage(features)
    predicted = divide(moved_bytes, predicted_bytes_per_second)
    seconds = measured_chain_seconds[name]
    return {
        "sheet_seconds": predicted,
        "sheet_ratio": divide(seconds, predicted),
        "speed_up_ratio": divide(measured_chain_seconds["eager"], seconds),
    }


measured_speed_ups = {name: speed_up(name) for name in PASSES}
# --8<-- [end:speed_up]


# --8<-- [start:exercise_1]
D_MODEL = 8192


def batch_at(intensity: float, d: int) -> float:
    """The b at which (b, d) @ (d, d) in bf16 has that intensity.

    b · d / (2 · b + d) = intensity, solved for b.
    """
    return intensity * d / (d - 2 * intensity)


weight = (D_MODEL, D_MODEL)
ridge_batches = {gpu: batch_at(tensor_ridges[gpu], D_MODEL) for gpu in TABLE_GPUS}
for name, rows in ridge_batches.items():
    print(f"{name:14}{rows:6.1f} rows")
    below = product((int(rows), D_MODEL), weight, BFLOAT16)
    above = product((int(rows) + 1, D_MODEL), weight, BFLOAT16)
    assert below.intensity() < tensor_ridges[name] < above.intensity()
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
float32_ridge_side = 6 * h200_cuda_ridge  # n / 6 FLOP/B: twice the bytes
bfloat16_ridge_side = 3 * h200_tensor_ridge
print(f"compute-bound from n = {float32_ridge_side:.0f}", end=" ")
print(f"in fp32, from {bfloat16_ridge_side:.0f} in bf16")

FLOAT32 = 4  # bytes of one element
N = 512  # between the two
peaks, bandwidth = H200.peak_flop_per_second, H200.bandwidth_bytes_per_second
in_float32 = count(N, FLOAT32)["matmul"].work_flops / peaks["float32"]
in_bfloat16 = count(N, BFLOAT16)["matmul"].moved_bytes / bandwidth
compute_bound_slower_ratio = in_float32 / in_bfloat16
print(f"n = {N}: the compute-bound one takes", end=" ")
print(f"{compute_bound_slower_ratio:.1f} times as long")
assert float32_ridge_side < N < bfloat16_ridge_side
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
EPILOGUE_SIDES = (1024, 4096, SIDE)
relu_to_matmul_share = {n: 2 * h200_tensor_ridge / n for n in EPILOGUE_SIDES}
print({n: f"{share:.1%}" for n, share in relu_to_matmul_share.items()})

direct = H200_SECONDS["relu"] / H200_SECONDS["matmul"]
assert abs(relu_to_matmul_share[SIDE] - direct) < 1e-9
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
POINTS = 16384
output = torch.empty(POINTS, 1, device="meta")
target = torch.empty(POINTS, device="meta")

wrong_bytes = moved_bytes(watch(torch.sub, output, target))
right_bytes = moved_bytes(watch(torch.sub, output.squeeze(1), target))
wrong_ratio = wrong_bytes / right_bytes
print(tuple((output - target).shape), f"{wrong_bytes:,} B", end=", ")
print(f"{wrong_ratio:,.0f} times the {right_bytes:,} B of the right one")
assert (output - target).shape == (POINTS, POINTS)
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
TOKENS, WIDTH = 8192, 4096  # rows of the input, and its columns

up = product((TOKENS, WIDTH), (WIDTH, 4 * WIDTH), BFLOAT16)
down = product((TOKENS, 4 * WIDTH), (4 * WIDTH, WIDTH), BFLOAT16)
gelu = elementwise(TOKENS * 4 * WIDTH, GELU_FLOPS, BFLOAT16)
assert min(up.intensity(), down.intensity()) > h200_tensor_ridge

# every kernel on its roof
product_time = (up.work_flops + down.work_flops) / peaks["bfloat16"]
gelu_time = gelu.moved_bytes / bandwidth
fused_layer_share = product_time / (product_time + gelu_time)
chain_time = fusion_bytes_ratio * gelu_time
eager_layer_share = product_time / (product_time + chain_time)
print(f"of the peak: {fused_layer_share:.0%} with one GELU kernel,", end=" ")
print(f"{eager_layer_share:.0%} with the chain")
# --8<-- [end:exercise_5]
