# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/torchtitan.toml", "measurements/published/kernels/*.toml"]
# ///
"""Is it arithmetic or memory that takes the time: predicted for an H100, beside kernels that others timed on one."""

from collections.abc import Callable, Iterable
from functools import cache
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from flops_bytes.lessons.measure import (
    Timing,
    divide,
    get_device,
    get_memory_usage,
    get_peak_bytes_per_second,
    get_peak_flop_per_second,
    time_call,
)
from flops_bytes.lessons.trace import Trace, count_flops
from flops_bytes.time.gpus import GPUS, Gpu
from flops_bytes.time.roofline import BFLOAT16, Work, elementwise, matmul
from published.kernel_times import Timed, read_rows, reason
from published.kernel_times import read_source as read_kernels
from published.readings import read_source
from published.step_times import Rated, is_compiled, rate_reading

FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())


# --8<-- [start:ridge]
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")
H100 = GPUS["H100 SXM"]


def ridge(gpu: Gpu, units: str = "bfloat16") -> float:
    """FLOPs a byte at which arithmetic takes as long as moving the bytes."""
    return gpu.peak_flop_per_second[units] / gpu.bandwidth_bytes_per_second


for name in TABLE_GPUS:
    tensor, other = ridge(GPUS[name]), ridge(GPUS[name], "float32")
    print(f"{name:14} matmuls in bf16: {tensor:4.0f}   all else, in fp32: {other:3.0f}")
# --8<-- [end:ridge]

tensor_ridges = {name: ridge(GPUS[name]) for name in TABLE_GPUS}
other_ridges = {name: ridge(GPUS[name], "float32") for name in TABLE_GPUS}
h100_ridge, h100_other_ridge = tensor_ridges["H100 SXM"], other_ridges["H100 SXM"]


# --8<-- [start:work]
SIDE = 16384  # n, of a square matrix
print(f"ReLU    {elementwise(SIDE * SIDE, flops=1).intensity():8,.2f} FLOP/B")
print(f"matmul  {matmul(SIDE, SIDE, SIDE).intensity():8,.2f} FLOP/B")
# --8<-- [end:work]


# --8<-- [start:count]
RELU_FLOPS = 1  # for each element: one comparison
GELU_FLOPS = 5  # x · 0.5 · (1 + erf(x · √½)): 3 products, 1 sum, 1 erf


def count(n: int, itemsize: int) -> dict[str, Work]:
    """Five operations on n × n matrices, or on vectors of n² elements."""
    return {
        "relu": elementwise(n * n, RELU_FLOPS, itemsize),
        "gelu": elementwise(n * n, GELU_FLOPS, itemsize),
        "dot": matmul(1, n * n, 1, itemsize),
        "matvec": matmul(n, n, 1, itemsize),
        "matmul": matmul(n, n, n, itemsize),
    }


works = count(SIDE, BFLOAT16)
intensities = {name: work.intensity() for name, work in works.items()}
for name, work in works.items():
    print(f"{name:7}{work.work_flops:18,} FLOPs{work.moved_bytes:14,} B", end="")
    print(f"{intensities[name]:10.2f} FLOP/B")
thousand_intensity = matmul(1000, 1000, 1000).intensity()
# --8<-- [end:count]


# --8<-- [start:moved_bytes]
def moved_bytes(call: Callable[..., object], *inputs: torch.Tensor) -> int:
    """Bytes of all operations' inputs and outputs, whatever caches save or waste."""
    with Trace() as trace:
        call(*inputs)
    return sum(operation.moved_bytes for operation in trace.operations)


x = torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device="meta")  # a shape without data
# --8<-- [end:moved_bytes]
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


VECTOR = ("relu", "gelu", "dot", "matvec")  # without tensor cores, in float32
PEAKS = ("bfloat16", "float32")
Rate = float | None  # per second; None where it is not known


def roofline(work: Work, peak: Rate, bandwidth: Rate) -> float | None:
    """Seconds that the work takes at least; None where a limit is not known."""
    if not peak or not bandwidth:
        return None
    return max(work.work_flops / peak, work.moved_bytes / bandwidth)


# --8<-- [start:predict]
def on_h100(work: Work, units: str = "bfloat16") -> float:
    """Seconds that the work takes at least: the longer of arithmetic and bytes."""
    arithmetic = work.work_flops / H100.peak_flop_per_second[units]
    moving = work.moved_bytes / H100.bandwidth_bytes_per_second
    return max(arithmetic, moving)


print(f"ReLU    {on_h100(elementwise(SIDE * SIDE, flops=1), 'float32') * 1e3:8.3f} ms")
print(f"matmul  {on_h100(matmul(SIDE, SIDE, SIDE)) * 1e3:8.3f} ms")
# --8<-- [end:predict]


H100_SECONDS = {name: on_h100(work, "float32" if name in VECTOR else "bfloat16") for name, work in works.items()}
flops_ratio = works["matmul"].work_flops // works["relu"].work_flops
h100_time_ratio = H100_SECONDS["matmul"] / H100_SECONDS["relu"]
ridge_side = 3 * h100_ridge  # of square matrices
# 132 SMs, 32 banks of 4 bytes in each, a read in each of 1.83e9 cycles a second
ON_CHIP_BYTES_PER_SECOND = 132 * 32 * 4 * 1.83e9
free_flops = h100_other_ridge * 2 * BFLOAT16  # for each element
assert H100_SECONDS["gelu"] == H100_SECONDS["relu"] and free_flops > GELU_FLOPS


# --8<-- [start:tokens]
D_MODEL, D_FF = 4096, 14336  # Llama 3 8B: the matrix from d to f features in the MLP


def tokens_at(intensity: float, d: int, f: int, itemsize: int = BFLOAT16) -> float:
    """The m at which (m, d) @ (d, f) has that intensity, with weights of so many bytes.

    1 / intensity = itemsize / (2 · m) + 1 / d + 1 / f, solved for m.
    """
    return itemsize / 2 / (1 / intensity - 1 / d - 1 / f)


ridge_tokens = {gpu: tokens_at(ridge(GPUS[gpu]), D_MODEL, D_FF) for gpu in TABLE_GPUS}
for gpu, tokens in ridge_tokens.items():
    print(f"{gpu:14} {tokens:4.0f} tokens at once")
# --8<-- [end:tokens]

PREFILL, TRAINING = 2048, 2 * 8192  # tokens


class AtOnce(NamedTuple):
    """So many tokens times that matrix, on an H100."""

    intensity: float
    counted_flops: int
    moved_bytes: int
    arithmetic_seconds: float
    bytes_seconds: float
    roof_seconds: float


def at_once(tokens: int) -> AtOnce:
    """By its arithmetic, by its bytes, and the longer of both."""
    work = matmul(tokens, D_MODEL, D_FF)
    arithmetic = work.work_flops / H100.peak_flop_per_second["bfloat16"]
    moving = work.moved_bytes / H100.bandwidth_bytes_per_second
    return AtOnce(work.intensity(), *work, arithmetic, moving, max(arithmetic, moving))


FULL = ceil(ridge_tokens["H100 SXM"])
AT_ONCE = {tokens: at_once(tokens) for tokens in (1, 64, FULL, PREFILL, TRAINING)}
assert at_once(FULL - 1).intensity < h100_ridge < at_once(FULL).intensity


class Kernel(NamedTuple):
    """A kernel of a published trace, beside its roof."""

    card: str
    kind: str  # matmul, attention, element-wise
    operation: str
    shape: tuple[int, ...]
    unit: str  # data type
    laid_out: str  # contiguous or strided, by an element-wise kernel's name
    why: str  # what may keep it from its roof, said without its time
    calls: int
    counted_flops: int
    moved_bytes: int
    intensity: float
    rate_flop_per_second: float
    rate_bytes_per_second: float
    taken_seconds: float  # median of the calls
    roof_seconds: float
    roof_share: float


LAID_OUT = {"vectorized_elementwise": "contiguous", "elementwise_kernel": "strided"}  # PyTorch's names


def as_kernel(row: Timed, work: dict[str, Any]) -> Kernel:
    """One FLOP for each number that an element-wise operation writes."""
    flops, moved = work.get("flops", row.shape[-1]), work["bytes"]
    taken, roof = row.seconds or 0.0, row.predicted["roof"]
    laid_out = next((text for start, text in LAID_OUT.items() if row.kernel.startswith(start)), "")
    name = row.operation.removeprefix("_scaled_dot_product_")
    what = row.card, row.kind, name, row.shape, row.unit, laid_out, reason(row), row.calls
    return Kernel(*what, flops, moved, flops / moved, flops / taken, moved / taken, taken, roof, roof / taken)


@cache
def published() -> tuple[Kernel, ...]:
    """The kernels of all published traces, without copies from and to the CPU."""
    found = []
    for path in sorted((FOLDER / "kernels").glob("*.toml")):
        rows = [row for row in read_rows(path) if row.kind != "collective"]
        works = read_kernels(path)["derived"].get("operations", [])
        found += [as_kernel(*pair) for pair in zip(rows, works, strict=True)]
    return tuple(each for each in found if each.why != "a copy from or to the host")


@cache
def of_h100s() -> list[Kernel]:
    """Of matmuls those in bf16."""
    mine = [each for each in published() if each.card == "H100 SXM"]
    return [each for each in mine if each.unit == "bfloat16" or each.kind == "element-wise"]


def drawn_as(kernel: Kernel) -> str:
    """Element-wise kernels by how their tensors lie; one that converts data types counts as contiguous."""
    return kernel.kind if kernel.kind != "element-wise" else kernel.laid_out or "contiguous"


KERNELS = {  # of the figures
    kind: [each for each in of_h100s() if drawn_as(each) == kind]
    for kind in ("contiguous", "strided", "matmul", "attention")
}
PICKED: dict[str, tuple[Any, ...]] = {  # the largest of their kind, and those that show something
    "mul": ("mul", 944_713_824),
    "add": ("add", 19_268_352),
    "gelu": ("gelu", 77_073_408),
    "strided": ("add", 9_158_656),
    "cached": ("add", 5_309_440),
    "wide": ("addmm", 25_089, 768, 3072),
    "square": ("addmm", 5185, 1024, 1024),
    "thin": ("addmm", 788, 768, 3072),
    "odd": ("bmm", 3137, 64, 3137),
    "small": ("addmm", 141, 512, 512),
    "attention": ("flash_attention", 559, 559, 64),
}


def pick(operation: str, *end: int) -> Kernel:
    """The kernel of an operation whose shape ends so."""
    (found,) = (each for each in of_h100s() if each.operation == operation and each.shape[-len(end) :] == end)
    return found


SHOWN = {name: pick(*what) for name, what in PICKED.items()}
# of mul: a multiplication alone takes the place of two FLOPs
ARITHMETIC_SECONDS = 2 * SHOWN["mul"].counted_flops / H100.peak_flop_per_second["float32"]
trace_flops_ratio = SHOWN["wide"].counted_flops / SHOWN["mul"].counted_flops
TRACE_TIME_RATIO = SHOWN["mul"].taken_seconds / SHOWN["wide"].taken_seconds
for name, shown in SHOWN.items():
    print(f"{name:10}{shown.intensity:8.2f} FLOP/B {shown.taken_seconds * 1e6:8.1f} µs {shown.roof_share:5.2f} of roof")


LONG_SECONDS, SHORT_SECONDS = 10e-6, 2e-6  # at the roof
FUNCTIONS = ("gelu", "silu", "sigmoid")  # erf or an exponential for each number


class Group(NamedTuple):
    """What kernels of one kind reach of their roofs."""

    kernels: int
    low_share: float
    median_share: float
    high_share: float


def group(kernels: Iterable[Kernel]) -> Group:
    """Of those that take 10 µs or more at their roofs."""
    shares = sorted(each.roof_share for each in kernels if each.roof_seconds >= LONG_SECONDS)
    return Group(len(shares), shares[0], median(shares), shares[-1])


def laid_out(how: str) -> list[Kernel]:
    return [each for each in of_h100s() if each.laid_out == how]


def matmuls(why: str) -> list[Kernel]:
    return [each for each in of_h100s() if each.kind == "matmul" and each.why == why]


GROUPS = {
    "plain": group(each for each in laid_out("contiguous") if each.operation not in FUNCTIONS),
    "functions": group(each for each in laid_out("contiguous") if each.operation in FUNCTIONS),
    "strided": group(laid_out("strided")),
    "matmuls": group(matmuls("")),
    "odd": group(matmuls("rows that begin at no multiple of 16 bytes")),
}
for name, reached in GROUPS.items():
    print(f"{name:10}{reached.kernels:3} kernels {reached.low_share:.2f} to {reached.high_share:.2f} of their roofs")


def faster_than_roof() -> dict[str, float]:
    """Kernels that took 5 % less than their roof allows, on whatever card."""
    found = [each for each in published() if each.roof_share > 1.05]
    assert {each.card for each in found} == {"A100 40GB SXM"}
    moved = [each.moved_bytes for each in found]
    most = max(each.roof_share for each in found)
    return {"kernels": len(found), "most_ratio": most, "least_bytes": min(moved), "most_bytes": max(moved)}


def on_amd(operation: str) -> list[float]:
    """Shares of the roof of an MI300X, of contiguous tensors from 67 million numbers on."""
    mine = [each for each in published() if each.card == "MI300X" and each.operation == operation]
    return sorted(each.roof_share for each in mine if each.laid_out == "contiguous" and each.counted_flops > 67e6)


def short_matmuls() -> dict[str, float]:
    """What matmuls take that take less than 2 µs at their roof."""
    mine = [each for each in of_h100s() if each.kind == "matmul" and each.roof_seconds < SHORT_SECONDS]
    taken = [each.taken_seconds for each in mine]
    return {"kernels": len(taken), "least_seconds": min(taken), "most_seconds": max(taken)}


FASTER = faster_than_roof()
AMD = {operation: on_amd(operation) for operation in ("add", "silu")}
SHORTEST = short_matmuls()
(DECODED,) = (each for each in published() if each.card == "B200" and each.shape[1] == 1)


# --8<-- [start:chain]
def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh (Hendrycks and Gimpel), one operation after the other."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


with Trace() as chain:
    gelu_chain(x)
chain_operations = len(chain.operations)
chain_bytes = moved_bytes(gelu_chain, x)
fused_bytes = moved_bytes(F.gelu, x)
fusion_bytes_ratio = chain_bytes / fused_bytes
print(f"{chain_operations} operations move {chain_bytes:,} B")
print(f"one would move {fused_bytes:,} B, 1 / {fusion_bytes_ratio:.0f} of it")
# --8<-- [end:chain]
assert chain_operations == 9 and fusion_bytes_ratio == 11


# --8<-- [start:launch]
# AMD-AGI/TraceLens at 171dd74, BERT-small on an H100, medians of 61 launches
LAUNCH_SECONDS = 54e-6  # t_0, from one launch to the next
HIDDEN_SIDE = (LAUNCH_SECONDS * H100.peak_flop_per_second["bfloat16"] / 2) ** (1 / 3)
print(f"a square matmul in bf16 takes longer from n = {HIDDEN_SIDE:.0f} on")
# --8<-- [end:launch]


TITAN_BYTES_PER_SECOND = 2.4e12  # of torchtitan's H100s, by the source; rate_reading takes the 3.35e12 of 80 GB cards
SLOWER_RATIO = H100.bandwidth_bytes_per_second / TITAN_BYTES_PER_SECOND


class Compiled(NamedTuple):
    """What torch.compile saves of a published step: as published, and by the bytes of all lines but matmuls."""

    eager_seconds: float
    compiled_seconds: float
    saved_seconds: float
    by_bytes_low_seconds: float
    by_bytes_seconds: float
    by_bytes_high_seconds: float


def compare_compiled(eager: Rated, compiled: Rated) -> Compiled:
    """Two rows that differ by torch.compile alone."""
    said = [SLOWER_RATIO * (before - after) for before, after in zip(eager.said, compiled.said, strict=True)]
    return Compiled(eager.seconds, compiled.seconds, eager.seconds - compiled.seconds, *said)


def find_pairs() -> dict[str, Compiled]:
    """torchtitan's Llama 3 8B, by GPUs: without torch.compile, and with it."""
    rated = [each for each in map(rate_reading, read_source(FOLDER / "torchtitan.toml")[1]) if each]
    return {
        str(gpus): compare_compiled(*sorted((each for each in rated if each.gpus == gpus), key=compiled_last))
        for gpus in (8, 128)
    }


def compiled_last(each: Rated) -> bool:
    return is_compiled(each.reading)


COMPILED = find_pairs()
COMPILED_RATIO = {gpus: each.by_bytes_seconds / each.saved_seconds for gpus, each in COMPILED.items()}
OTHER_CARD_SECONDS = COMPILED["8"].by_bytes_seconds / SLOWER_RATIO  # if they were cards of 80 GB
COMPILED_SHARE = COMPILED["8"].saved_seconds / COMPILED["8"].eager_seconds
for gpus, pair in COMPILED.items():
    print(f"{gpus:4} GPUs: {pair.saved_seconds * 1e3:.0f} ms saved, {pair.by_bytes_seconds * 1e3:.0f} by bytes")


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


def time_matmul(n: int) -> Timing:
    """A square product, into memory that is there already."""
    a, b, c = rand(n, n), rand(n, n), rand(n, n)
    return clock(lambda: torch.mm(a, b, out=c))


measured_matmuls = {n: time_matmul(n) for n in measured_sides}
for n, timing in measured_matmuls.items():
    seconds = timing.median_seconds
    print(f"n = {n:<6}{seconds * 1e6:10,.1f} µs{2e-9 * n**3 / seconds:12,.1f} GFLOP/s")


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


# --8<-- [start:exercise_1]
EPILOGUE_WIDTHS = (1024, 4096, SIDE)
equal_width = 2 * ridge(H100)
relu_to_matmul_share = {n: equal_width / n for n in EPILOGUE_WIDTHS}
print({n: f"{share:.1%}" for n, share in relu_to_matmul_share.items()}, f"equal at {equal_width:.0f}")
# --8<-- [end:exercise_1]
direct = H100_SECONDS["relu"] / H100_SECONDS["matmul"]
assert abs(relu_to_matmul_share[SIDE] - direct) < 1e-9


# --8<-- [start:exercise_2]
POINTS = 16384
output = torch.empty(POINTS, 1, device="meta")
target = torch.empty(POINTS, device="meta")
wrong_bytes = moved_bytes(torch.sub, output, target)
right_bytes = moved_bytes(torch.sub, output.squeeze(1), target)
wrong_ratio = wrong_bytes / right_bytes
print(tuple((output - target).shape), f"{wrong_bytes:,} B, not {right_bytes:,} B")
# --8<-- [end:exercise_2]
assert (output - target).shape == (POINTS, POINTS)


# --8<-- [start:exercise_3]
TOKENS, WIDTH = 8192, 4096  # rows of the input, and its columns

up, down = matmul(TOKENS, WIDTH, 4 * WIDTH), matmul(TOKENS, 4 * WIDTH, WIDTH)
gelu = elementwise(TOKENS * 4 * WIDTH, flops=5)

# every kernel on its roof
matmul_time = on_h100(up) + on_h100(down)
gelu_time = on_h100(gelu, "float32")
fused_layer_share = matmul_time / (matmul_time + gelu_time)
eager_layer_share = matmul_time / (matmul_time + fusion_bytes_ratio * gelu_time)
print(f"of the peak: fused {fused_layer_share:.0%}, the chain {eager_layer_share:.0%}")
# --8<-- [end:exercise_3]
assert min(up.intensity(), down.intensity()) > h100_ridge


# --8<-- [start:exercise_4]
eight_bit_tokens = tokens_at(ridge(H100), D_MODEL, D_FF, itemsize=1)
print(f"{eight_bit_tokens:.0f} tokens instead of {ridge_tokens['H100 SXM']:.0f}")
# --8<-- [end:exercise_4]
rows = round(eight_bit_tokens)
weight_bytes, features_bytes = D_MODEL * D_FF, BFLOAT16 * rows * (D_MODEL + D_FF)
reached_intensity = 2 * rows * D_MODEL * D_FF / (weight_bytes + features_bytes)
assert abs(reached_intensity / h100_ridge - 1) < 0.01


# --8<-- [start:exercise_5]
HEADS, KEY_VALUE_HEADS, HEAD_FEATURES = 32, 8, 128  # Llama 3 8B
CACHED = 4096  # tokens, of one sequence

cache_flops = 2 * 2 * HEADS * HEAD_FEATURES * CACHED  # scores, and the sum of the values
cache_bytes = 2 * BFLOAT16 * KEY_VALUE_HEADS * HEAD_FEATURES * CACHED  # keys and values
cache_intensity = cache_flops / cache_bytes
print(f"{cache_intensity:.0f} FLOP/B")
# --8<-- [end:exercise_5]
assert cache_intensity == HEADS / KEY_VALUE_HEADS
