# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""What the bits of a floating-point number mean, which numbers a format holds, and what a tensor of them weighs."""

import math
import mmap
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from flops_bytes.lessons.measure import divide, get_device, get_memory_usage

# --8<-- [start:failures]
large = torch.tensor(300.0, dtype=torch.float16)
print("300 squared in fp16:", large.square().item())

small = torch.tensor(1e-8, dtype=torch.float16)
print("1e-8 stored in fp16:", small.item())

weight = torch.ones((), dtype=torch.bfloat16)
for _ in range(1000):
    weight += 1e-3
print("1 and 1,000 steps of 0.001 in bf16:", weight.item())
# --8<-- [end:failures]


# --8<-- [start:finfo]
DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
for name, dtype in DTYPES.items():
    info = torch.finfo(dtype)
    print(f"{name:9}max {info.max:<11.4g}smallest normal {info.smallest_normal:<11.4g}", end="")
    print(f"eps {info.eps:<10.4g}resolution {info.resolution:g}")
# --8<-- [end:finfo]


# --8<-- [start:tf32]
print("convolutions may use TF32:", torch.backends.cudnn.allow_tf32)
print("fp32 matmuls:", torch.get_float32_matmul_precision(), end="")
torch.set_float32_matmul_precision("high")
print(", now:", torch.get_float32_matmul_precision())
# --8<-- [end:tf32]
torch.set_float32_matmul_precision("highest")


# --8<-- [start:fields]
FIELDS = {"fp32": (torch.uint32, 8), "fp16": (torch.uint16, 5), "bf16": (torch.uint16, 8)}
for number in (0.5, 1e-8):
    for name, (integer, k) in FIELDS.items():
        stored = torch.tensor(number, dtype=DTYPES[name])
        bits = f"{stored.view(integer).item():0{8 * stored.itemsize}b}"  # the same memory, read as an integer
        print(f"{name}  {bits[0]} {bits[1 : 1 + k]:8} {bits[1 + k :]:23}  {stored.item()}")
# --8<-- [end:fields]


# --8<-- [start:trap]
stored = torch.tensor(1e-8, dtype=torch.bfloat16)
print(stored == 1e-8, stored.item())
# --8<-- [end:trap]


# --8<-- [start:overflow]
x = torch.full((8,), 300.0, dtype=torch.float16)
for name, values in {"fp16": x, "bf16": x.bfloat16(), "fp32": x.float()}.items():
    print(f"{name}  {values.square().mean().sqrt().item()}")
# --8<-- [end:overflow]


FACTOR, TINY, STEP_SIZE, STEPS = 300, 1e-8, 1e-3, 1000

squares = {name: (x.to(DTYPES[name])[0] ** 2).item() for name in ("bf16", "fp32")}
assert squares == {"bf16": 90112, "fp32": 90000}
assert large == FACTOR and large.square().isinf() and small == 0
assert torch.nn.functional.rms_norm(x, x.shape).isfinite().all()  # squares in fp32

kept, infinite = torch.tensor([65519.0, 65520.0]).half().tolist()  # 65,504 + half a step of 32
assert kept == torch.finfo(torch.float16).max and infinite == math.inf


# --8<-- [start:loss_scaling]
def gradient(scale: int) -> float:
    """d loss / d weight = 1e-4 · 1e-4, by a backward pass in fp16."""
    weight = torch.ones((), dtype=torch.float16, requires_grad=True)
    loss = weight * 1e-4 * 1e-4
    (scaled,) = torch.autograd.grad(loss * scale, weight)
    return scaled.float().item() / scale  # divided again, in higher precision


print("fp16:", gradient(scale=1), " scaled by 2^15:", gradient(scale=2**15))
# --8<-- [end:loss_scaling]

plain_gradient, scaled_gradient = gradient(scale=1), gradient(scale=2**15)
assert plain_gradient == 0
assert math.isclose(scaled_gradient, TINY, rel_tol=torch.finfo(torch.float16).eps)


# --8<-- [start:resolution]
for name in ("fp64", "fp32", "fp16", "bf16"):
    total = torch.ones((), dtype=DTYPES[name])
    for _ in range(1000):
        total += 1e-3
    print(f"{name}  {total.item()}")
# --8<-- [end:resolution]


# --8<-- [start:directions]
for step in (0.003, -0.003):
    weight = torch.ones((), dtype=torch.bfloat16)
    for _ in range(10):
        weight += step
    print(f"ten steps of {step}: {weight.item()}")
# --8<-- [end:directions]


SMALL_STEP = 0.003


def walk(dtype: torch.dtype, step: float, steps: int) -> float:
    """Where a number ends that starts at 1 and takes all steps, one after the other."""
    total = torch.ones((), dtype=dtype)
    for _ in range(steps):
        total += step
    return total.item()


walked = {name: walk(DTYPES[name], STEP_SIZE, STEPS) for name in ("fp64", "fp32", "fp16", "bf16")}
walked_up, walked_down = (walk(torch.bfloat16, step, 10) for step in (SMALL_STEP, -SMALL_STEP))


def grid(start: float, steps: int) -> list[float]:
    """bf16 numbers beside 1, one after the other: above it, or below it if steps < 0."""
    numbers, towards = [torch.tensor(start, dtype=torch.bfloat16)], float(steps > 0) * 2
    for _ in range(abs(steps)):
        end = torch.tensor(towards, dtype=torch.bfloat16)
        numbers.append(torch.nextafter(numbers[-1], end))
    return [number.item() for number in numbers]


near_one = sorted({*grid(1.0, -4), *grid(1.0, 2)})
step_down, step_up = 1 - grid(1.0, -1)[1], grid(1.0, 1)[1] - 1
lost_up, lost_down = step_up / 2, step_down / 2

one = torch.ones((), dtype=torch.bfloat16)
assert (step_up, step_down) == (2**-7, 2**-8)
assert one + lost_up == one == one - lost_down  # halfway: to 1, whose last bit is 0
assert one + 1.02 * lost_up > one > one - 1.02 * lost_down
assert walked["bf16"] == walked_up == 1 and walked_down == 1 - 10 * step_down

weights = torch.arange(2**7, 2**8) / 2**7  # all bf16 numbers from 1 up to 2
for steps in (weights * step_up, -weights * step_up):  # eps of the weight, either way
    assert ((weights + 0.249 * steps).bfloat16() == weights).all()
    assert ((weights + 0.501 * steps).bfloat16() != weights).all()


class Format(NamedTuple):
    """A floating-point format: the widths of its fields in bits, beside the sign."""

    exponent_bits: int  # k
    fraction_bits: int  # m
    reserved: int  # how many patterns, from the top, mean infinity or NaN
    dtype: torch.dtype
    packed: int = 1  # numbers in one element of dtype

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits


FORMATS = {
    "fp64": Format(11, 52, 2**52, torch.float64),  # the topmost exponent is reserved
    "fp32": Format(8, 23, 2**23, torch.float32),
    "fp16": Format(5, 10, 2**10, torch.float16),
    "bf16": Format(8, 7, 2**7, torch.bfloat16),
    "fp8_e4m3": Format(4, 3, 1, torch.float8_e4m3fn),  # one NaN a sign, no infinity
    "fp8_e5m2": Format(5, 2, 2**2, torch.float8_e5m2),
    "fp4_e2m1": Format(2, 1, 0, torch.float4_e2m1fn_x2, packed=2),  # neither
}
for fmt in FORMATS.values():
    assert fmt.bits * fmt.packed == 8 * fmt.dtype.itemsize


def decode(pattern: int, fmt: Format) -> float:
    """The finite number that a pattern of bits means (IEEE 754-2019, section 3.4)."""
    k, m = fmt.exponent_bits, fmt.fraction_bits
    bias: int = 2 ** (k - 1) - 1
    sign = -1 if pattern >> (k + m) else 1
    exponent = (pattern >> m) % 2**k
    fraction: float = (pattern % 2**m) / 2**m  # f / 2^m
    leading = 0 if exponent == 0 else 1  # 0: subnormal, or zero itself; 1: normal
    scale: float = 2.0 ** (max(exponent, 1) - bias)
    return sign * scale * (leading + fraction)


by_hand = decode(0b0_01100_0100000000, FORMATS["fp16"])
assert by_hand == 2**-3 * 1.25


INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def all_numbers(fmt: Format) -> list[float]:
    """The numbers from zero to the largest, in the order of patterns, by PyTorch."""
    patterns = torch.arange(2 ** (fmt.bits - 1) - fmt.reserved)
    integers = patterns.to(INTEGERS[fmt.dtype.itemsize])
    return integers.view(fmt.dtype).double().tolist()


for name in ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2"):
    fmt = FORMATS[name]
    numbers = all_numbers(fmt)
    assert numbers == [decode(pattern, fmt) for pattern in range(len(numbers))]
    assert numbers == sorted(numbers)  # patterns in order are numbers in order


def encode(x: float, fmt: Format) -> int:
    """The pattern of the number nearest to x; of two as near, the one ending in 0."""
    if fmt.packed == 1:
        stored = torch.tensor(x, dtype=fmt.dtype)
        integer = stored.view(INTEGERS[fmt.dtype.itemsize])
        return int(integer.item()) & ((1 << fmt.bits) - 1)
    sign_bit = 1 << (fmt.bits - 1)  # fp4, to which PyTorch converts nothing: try all
    patterns = range(sign_bit - fmt.reserved)
    misses = [(abs(decode(pattern, fmt) - abs(x)), pattern % 2) for pattern in patterns]
    nearest = misses.index(min(misses))
    return nearest + (sign_bit if x < 0 else 0)


def fields_of(x: float, fmt: Format) -> str:
    """Sign, exponent and fraction of x as it is stored, with a space between."""
    digits = f"{encode(x, fmt):0{fmt.bits}b}"
    end = 1 + fmt.exponent_bits
    return f"{digits[0]} {digits[1:end]} {digits[end:]}"


def limits_of(fmt: Format) -> dict[str, int | float]:
    """The ends of a format and its step at 1, all of them read off bit patterns."""
    bias: int = 2 ** (fmt.exponent_bits - 1) - 1
    one = bias << fmt.fraction_bits  # exponent field = bias, fraction 0
    eps = decode(one + 1, fmt) - decode(one, fmt)
    return {
        "bits": fmt.bits,
        "exponent_bits": fmt.exponent_bits,
        "fraction_bits": fmt.fraction_bits,
        "largest": decode(2 ** (fmt.bits - 1) - 1 - fmt.reserved, fmt),
        "smallest_normal": decode(1 << fmt.fraction_bits, fmt),  # exponent field 1
        "smallest_subnormal": decode(1, fmt),
        "eps": eps,
        "error_share": eps / 2,  # of rounding a normal number, relative to it
    }


limits = {name: limits_of(fmt) for name, fmt in FORMATS.items()}
lost_share = {name: limit["eps"] / 4 for name, limit in limits.items()}  # of a normal weight: a smaller update is lost

assert limits["bf16"]["smallest_normal"] == limits["fp32"]["smallest_normal"]
coarsest, finest = (limits[name]["smallest_subnormal"] for name in ("bf16", "fp32"))
assert coarsest == 2**16 * finest

for name, dtype in DTYPES.items():
    info, ours = torch.finfo(dtype), limits[name]
    assert info.max == ours["largest"]
    assert info.smallest_normal == ours["smallest_normal"]
    assert info.eps == ours["eps"]
assert limits["bf16"]["error_share"] == lost_up > STEP_SIZE  # why each sum rounded back


third_fields = {name: fields_of(1 / 3, fmt) for name, fmt in FORMATS.items()}
third_stored = {name: decode(encode(1 / 3, fmt), fmt) for name, fmt in FORMATS.items()}
for name, number in third_stored.items():
    is_normal = number >= limits[name]["smallest_normal"]
    assert abs(3 * Fraction(number) - 1) <= limits[name]["error_share"] or not is_normal
assert third_stored["fp4_e2m1"] < limits["fp4_e2m1"]["smallest_normal"]


BATCH, FEATURES = 256, 64

generator = torch.Generator().manual_seed(0)
rule = torch.randn(FEATURES, generator=generator)


Batch = tuple[torch.Tensor, torch.Tensor]


def draw_batch() -> Batch:
    """Inputs, and targets that follow a linear rule with noise."""
    inputs = torch.randn(BATCH, FEATURES, generator=generator)
    return inputs, inputs @ rule + torch.randn(BATCH, generator=generator)


def gradient_of(batch: Batch, dtype: torch.dtype) -> torch.Tensor:
    """Of half the mean squared error of a linear model whose weights are 0."""
    inputs, targets = (tensor.to(dtype) for tensor in batch)
    return (inputs.T @ -targets / BATCH).float()


def relative_change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((after - before).norm() / before.norm())


batch, next_batch = draw_batch(), draw_batch()
in_fp32 = gradient_of(batch, torch.float32)
measured_batch_share = relative_change(in_fp32, gradient_of(next_batch, torch.float32))
measured_bf16_share = relative_change(in_fp32, gradient_of(batch, torch.bfloat16))
measured_noise_ratio = measured_batch_share / measured_bf16_share
assert measured_noise_ratio > 50


fnuz_largest = torch.finfo(torch.float8_e4m3fnuz).max  # the E4M3 of AMD's MI300X


# --8<-- [start:tensor_bytes]
x = torch.zeros(4, 8)
print(x.numel() * x.element_size(), "bytes, or x.nbytes:", x.nbytes)

matrix_shape = (12288, 4 * 12288)  # GPT-3 175B: width, and width of a feed-forward layer
y = torch.empty(matrix_shape, dtype=torch.bfloat16, device="meta")  # no memory
print(f"{y.nbytes:,} bytes, {y.nbytes / 2**30:.2f} GiB")
# --8<-- [end:tensor_bytes]


D_MODEL = 12288  # GPT-3 175B: Brown et al., 2020, table 2.1
D_FF = 4 * D_MODEL  # its section 2.1


def matrix_in(fmt: Format) -> torch.Tensor:
    """The first feed-forward matrix of a GPT-3 layer: a size, no memory."""
    return torch.empty(D_MODEL, D_FF // fmt.packed, dtype=fmt.dtype, device="meta")


matrix_bytes = {name: get_memory_usage(matrix_in(fmt)) for name, fmt in FORMATS.items()}
assert matrix_bytes["fp32"] == D_MODEL * D_FF * 4 == 2.25 * 2**30


# --8<-- [start:measure]
def bytes_in_use() -> int | None:
    """Bytes in tensors on the GPU; without one, this process's bytes in RAM (Linux)."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated()
    statm = Path("/proc/self/statm")  # its second number: pages in RAM
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else None


measured_before = bytes_in_use() or 0
matrix = torch.ones(D_MODEL, D_FF, dtype=torch.float8_e4m3fn, device=get_device())
measured_after = bytes_in_use()
measured_written_bytes = measured_after and measured_after - measured_before
measured_written_ratio = divide(measured_written_bytes, matrix_bytes["fp8_e4m3"])
print("predicted", matrix_bytes["fp8_e4m3"], "measured", measured_written_bytes)
del matrix
# --8<-- [end:measure]


# --8<-- [start:ways]
print(torch.empty(4, 8).dtype)  # zeros, ones and randn too
print(torch.tensor([0.5, 1e-8]).dtype)
print(torch.tensor([50256, 11, 198]).dtype)
print(torch.tensor([True, False]).dtype)
print(torch.from_numpy(np.zeros(3)).dtype)
# --8<-- [end:ways]


float_bytes, integer_bytes = torch.tensor([0.5]).element_size(), torch.tensor([50256]).element_size()


# --8<-- [start:exercise_1]
patterns = torch.tensor([0b0_01100_01, 0b1_00000_01], dtype=torch.uint8)
print(patterns.view(torch.float8_e5m2).float().tolist())
# --8<-- [end:exercise_1]


assert decode(0b0_01100_01, FORMATS["fp8_e5m2"]) == by_hand == 0.15625
assert decode(0b1_00000_01, FORMATS["fp8_e5m2"]) == -(2.0**-14) / 4


# --8<-- [start:exercise_2]
def last_count(dtype: torch.dtype) -> int:
    """The number at which counting by ones comes to a stand."""
    count = torch.ones((), dtype=dtype)
    while count + 1 > count:
        count = 2 * count
    return int(count)


last_counts = {name: last_count(DTYPES[name]) for name in ("fp64", "fp32", "fp16", "bf16")}
print(last_counts)
# --8<-- [end:exercise_2]


assert all(last == 2 ** (FORMATS[name].fraction_bits + 1) for name, last in last_counts.items())


# --8<-- [start:exercise_3]
NARROW = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
least = {name: torch.finfo(DTYPES[name]).smallest_normal for name in NARROW}
scale_powers = {name: math.ceil(math.log2(least[name] / 1e-8)) for name in NARROW}
print(scale_powers)

fp16_overflows_from = 65520 / 2 ** scale_powers["fp16"]
print("with this scale, fp16 is infinite from gradients of", fp16_overflows_from)
# --8<-- [end:exercise_3]


assert 2 ** scale_powers["fp16"] * TINY >= limits["fp16"]["smallest_normal"]
assert 2 ** (scale_powers["fp16"] - 1) * TINY < limits["fp16"]["smallest_normal"]
assert scale_powers["bf16"] < 0  # already there, with room to spare


# --8<-- [start:exercise_4]
BLOCK, SCALE_BITS = 32, 8  # MXFP4: OCP Microscaling Formats, 2023

mxfp4_bits = 4 + SCALE_BITS / BLOCK
mxfp4_matrix_bytes = 12288 * 49152 * (4 * BLOCK + SCALE_BITS) // BLOCK // 8
bf16_to_mxfp4_ratio = 12288 * 49152 * 2 / mxfp4_matrix_bytes
print(f"{mxfp4_bits} bits a number, {mxfp4_matrix_bytes:,} bytes; bf16: {bf16_to_mxfp4_ratio:.2f} times as much")
# --8<-- [end:exercise_4]
