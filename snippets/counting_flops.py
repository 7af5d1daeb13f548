# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""How many floating-point operations a product takes: derived, counted, then held against the clock."""

# --8<-- [start:setup]
from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

# accounting.py, the book's toolkit, lies beside this file
from accounting import (
    GPUS,
    Timing,
    count_flops,
    get_device,
    get_gpu,
    get_memory_usage,
    get_peak_flop_per_second,
    time_call,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

# --8<-- [end:setup]


# --8<-- [start:scalar]
class Scalar:
    """A number; all of its kind together keep count of what is done to them."""

    performed: ClassVar[Counter[str]] = Counter()

    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: "Scalar") -> "Scalar":
        Scalar.performed["additions"] += 1
        return Scalar(self.value + other.value)

    def __sub__(self, other: "Scalar") -> "Scalar":
        Scalar.performed["additions"] += 1  # costs what an addition costs
        return Scalar(self.value - other.value)

    def __mul__(self, other: "Scalar") -> "Scalar":
        Scalar.performed["multiplications"] += 1
        return Scalar(self.value * other.value)


# --8<-- [end:scalar]


# --8<-- [start:textbook]
def textbook(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of a (m × n) and b (n × p): row times column, added up."""
    return np.array([[reduce(add, row * column) for column in b.T] for row in a])


def to_scalars(matrix: np.ndarray) -> np.ndarray:
    return np.array([[Scalar(int(entry)) for entry in row] for row in matrix])


def count_operations(
    product: Callable[..., np.ndarray],
    a: np.ndarray,
    b: np.ndarray,
) -> dict[str, int]:
    """Operations of a product of two integer matrices, whose result is checked."""
    Scalar.performed.clear()
    result = product(to_scalars(a), to_scalars(b))
    assert [[entry.value for entry in row] for row in result] == (a @ b).tolist()
    return dict(Scalar.performed)


ROWS, INNER, COLUMNS = 4, 6, 5  # m, n, p

a = np.arange(ROWS * INNER).reshape(ROWS, INNER)
b = np.arange(INNER * COLUMNS).reshape(INNER, COLUMNS)
performed = count_operations(textbook, a, b)
performed_flops = sum(performed.values())
convention_flops = 2 * ROWS * INNER * COLUMNS
print(performed, "together", performed_flops, "convention", convention_flops)
assert performed_flops == ROWS * COLUMNS * (2 * INNER - 1)
# --8<-- [end:textbook]


# --8<-- [start:convention]
GPT2_WIDTH = 768  # n of most products in GPT-2 small

convention_ratio = 2 * GPT2_WIDTH / (2 * GPT2_WIDTH - 1)
print(f"2mnp over m·p·(2n − 1) at n = {GPT2_WIDTH}: {convention_ratio:.5f}")
# --8<-- [end:convention]


# --8<-- [start:strassen]
def strassen(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two n × n matrices, n a power of two (Strassen, 1969)."""
    if len(a) == 1:
        return textbook(a, b)
    h = len(a) // 2
    a11, a12, a21, a22 = a[:h, :h], a[:h, h:], a[h:, :h], a[h:, h:]
    b11, b12, b21, b22 = b[:h, :h], b[:h, h:], b[h:, :h], b[h:, h:]
    p1, p2 = strassen(a11 + a22, b11 + b22), strassen(a21 + a22, b11)
    p3, p4 = strassen(a11, b12 - b22), strassen(a22, b21 - b11)
    p5, p6 = strassen(a11 + a12, b22), strassen(a21 - a11, b11 + b12)
    p7 = strassen(a12 - a22, b21 + b22)
    return np.block([[p1 + p4 - p5 + p7, p3 + p5], [p2 + p4, p1 - p2 + p3 + p6]])


square = np.arange(64).reshape(8, 8)
by_algorithm = {
    "textbook": count_operations(textbook, square, square),
    "strassen": count_operations(strassen, square, square),
}
for algorithm, count in by_algorithm.items():
    print(f"{algorithm:9}", count, "together", sum(count.values()))
# --8<-- [end:strassen]


# --8<-- [start:strassen_flops]
def strassen_flops(n: int, levels: int) -> int:
    """Operations on n × n matrices: so many levels of Strassen, below them the textbook."""
    if levels == 0:
        return n * n * (2 * n - 1)
    h = n // 2  # 7 products and 18 sums of quarters
    return 7 * strassen_flops(h, levels - 1) + 18 * h * h


LARGE = 8192  # as large as the products of the chapters on speed

assert strassen_flops(8, levels=3) == sum(by_algorithm["strassen"].values())
one_level_ratio = strassen_flops(LARGE, levels=1) / strassen_flops(LARGE, levels=0)
all_levels_ratio = strassen_flops(LARGE, levels=13) / strassen_flops(LARGE, levels=0)
print(f"n = {LARGE}, as a share of the textbook's count:")
print(f"one level {one_level_ratio:.3f}, all 13 levels {all_levels_ratio:.3f}")
# --8<-- [end:strassen_flops]


# --8<-- [start:counter]
M, N, P = 16_384, 32_768, 8_192

x = torch.empty(M, N, device="meta")  # a shape without data
w = torch.empty(N, P, device="meta")
counted_flops = count_flops(lambda: x @ w)
print(f"counted {counted_flops:,}, 2mnp {2 * M * N * P:,}")
assert counted_flops == 2 * M * N * P
# --8<-- [end:counter]


# --8<-- [start:wrong_size]
claims = {
    "2mn": 2 * M * N,
    "2np": 2 * N * P,
    "2(mn + np)": 2 * (M * N + N * P),
    "2mnp": 2 * M * N * P,
}
right = [claim for claim, claimed in claims.items() if claimed == counted_flops]
for claim, claimed in claims.items():
    print(f"{claim:11}{claimed:21,}  {'right' if claim in right else 'wrong'}")
assert right == ["2mnp"]
# --8<-- [end:wrong_size]


# --8<-- [start:linear_model]
model_parameters = w.numel()
per_point_flops = count_flops(lambda: x[:1] @ w)
claimed_flops = 2 * model_parameters
print(f"one point: {per_point_flops:,}   all {M:,}: {counted_flops:,}")
assert per_point_flops == claimed_flops
assert counted_flops == 2 * M * model_parameters != claimed_flops
# --8<-- [end:linear_model]


# --8<-- [start:mismatch]
def mismatch(device: torch.device | str) -> str:
    """What PyTorch says of 2 × 3 times 4 × 5."""
    try:
        torch.empty(2, 3, device=device) @ torch.empty(4, 5, device=device)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    raise AssertionError("3 columns cannot meet 4 rows")


print(mismatch(get_device()))
print(mismatch("meta"))
# --8<-- [end:mismatch]


# --8<-- [start:blind]
SIDE = 1024
OPERATIONS = {  # what is counted, and what has to be done at the least
    "X @ X": SIDE**2 * (2 * SIDE - 1),
    "F.linear(X, X, v)": SIDE**2 * (2 * SIDE - 1) + SIDE**2,  # the bias
    "F.conv1d(X[None], X[:, :, None])": SIDE**2 * (2 * SIDE - 1),
    "(X[:, :, None] * X).sum(1)": SIDE**2 * (2 * SIDE - 1),  # X @ X as a sum
    "X @ v": SIDE * (2 * SIDE - 1),
    "v @ v": 2 * SIDE - 1,
    "X + X": SIDE**2,  # element-wise: one for each result, from here on
    "X.exp()": SIDE**2,
    "F.gelu(X)": SIDE**2,
    "F.softmax(X, dim=-1)": SIDE**2,
    "F.layer_norm(X, (SIDE,))": SIDE**2,
}

X, v = torch.empty(SIDE, SIDE, device="meta"), torch.empty(SIDE, device="meta")
codes, needed_flops = list(OPERATIONS), list(OPERATIONS.values())
seen_flops = [count_flops(partial(eval, code, globals())) for code in codes]
for code, seen, needed in zip(codes, seen_flops, needed_flops, strict=True):
    print(f"{code:33}{seen:14,} of{needed:14,}")
assert seen_flops == [2 * SIDE**3] * 3 + [0] * 8
# --8<-- [end:blind]


# --8<-- [start:attention]
HEADS, SEQ_LEN, HEAD_DIM = 12, 256, 64  # one layer of GPT-2 small


def attend(device: torch.device | str, is_causal: bool = False) -> torch.Tensor:
    """Attention over random tokens, by whichever kernel PyTorch chooses."""
    q, k, v = torch.randn(3, 1, HEADS, SEQ_LEN, HEAD_DIM, device=device)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


# queries by keys, then weights by values
attention_flops = 2 * (2 * HEADS * SEQ_LEN * SEQ_LEN * HEAD_DIM)
with sdpa_kernel(SDPBackend.MATH):
    math_flops = count_flops(lambda: attend("meta"))
    causal_flops = count_flops(lambda: attend("meta", is_causal=True))
measured_default_flops = count_flops(lambda: attend(get_device()))
print(f"formula           {attention_flops:,}")
print(f"MATH kernel       {math_flops:,}, with a causal mask {causal_flops:,}")
print(f"default on {get_device().type:6} {measured_default_flops:,}")
assert math_flops == causal_flops == attention_flops
assert measured_default_flops in (0, attention_flops)
# --8<-- [end:attention]


# --8<-- [start:precision]
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16)


def square_matmul(
    side: int,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Callable[[], torch.Tensor]:
    """A product of two random matrices of side × side, ready to be called."""
    left, right = torch.randn(2, side, side, device=device).to(dtype)
    return lambda: left @ right


def three_matrices_bytes(side: int, dtype: torch.dtype) -> int:
    """Bytes of both factors and the result."""
    return 3 * get_memory_usage(torch.empty(side, side, dtype=dtype, device="meta"))


precision_flops = [count_flops(square_matmul(LARGE, dtype, "meta")) for dtype in PRECISIONS]
precision_bytes = [three_matrices_bytes(LARGE, dtype) for dtype in PRECISIONS]
for dtype, flops, held in zip(PRECISIONS, precision_flops, precision_bytes, strict=True):
    print(f"{dtype!s:15}{flops:,} FLOPs, {held:,} bytes")
assert len(set(precision_flops)) == 1 and len(set(precision_bytes)) == 3
# --8<-- [end:precision]


# --8<-- [start:clock]
measured_side = LARGE if torch.cuda.is_available() else 512


def clock(dtype: torch.dtype) -> Timing:
    """Seconds of a product of measured_side × measured_side on this device."""
    return time_call(square_matmul(measured_side, dtype, get_device()), min_seconds=0.05)


measured_flops = 2 * measured_side**3
measured_precision = {str(dtype)[6:]: clock(dtype) for dtype in PRECISIONS}  # "torch."
measured_rates = {
    name: {"rate_flop_per_second": measured_flops / timing.median_seconds}
    for name, timing in measured_precision.items()
}
for name, timing in measured_precision.items():
    rate = measured_rates[name]["rate_flop_per_second"]
    milliseconds = timing.median_seconds * 1e3
    print(f"{name:9}{measured_flops:,} FLOPs in {milliseconds:.3f} ms: {rate:.2e} FLOP/s")
# --8<-- [end:clock]


# --8<-- [start:crossing]
WIDTHS = (16, 64, 256, 1024, 4096)  # n of a layer relu(x @ w), with w of n × n
BF16_SIZE = 2  # bytes
TABLE_GPUS = ("A100 80GB SXM", "H100 SXM", "H200 SXM")  # rows of gpus.GPUS

count_ratio = {n: 1 / (2 * n) for n in WIDTHS}  # relu over the product before it
equal_operations = 2 * GPT2_WIDTH  # element-wise ones that match one product
crossing_width = {
    name: BF16_SIZE * GPUS[name].peak_flop_per_second["bfloat16"] / GPUS[name].bandwidth_bytes_per_second
    for name in TABLE_GPUS
}
for gpu_name, n in crossing_width.items():
    print(f"{gpu_name:14}relu takes as long as the product up to n = {n:.0f}")
# --8<-- [end:crossing]


# --8<-- [start:predict]
def predict_time_ratio(n: int, size: int, dtype: str) -> float | None:
    """Time of relu over that of the product, as its bytes or its FLOPs hold it up."""
    gpu, peak = get_gpu(), get_peak_flop_per_second(dtype)
    if gpu is None or peak is None:
        return None
    bytes_seconds = 2 * n * size / gpu.bandwidth_bytes_per_second  # per row, of both
    flops_seconds = 2 * n * n / peak  # per row, of the product
    return bytes_seconds / max(bytes_seconds, flops_seconds)


predicted_time_ratio = {n: predict_time_ratio(n, BF16_SIZE, "bfloat16") for n in WIDTHS}
# --8<-- [end:predict]


# --8<-- [start:layer]
measured_rows = 2**18 if torch.cuda.is_available() else 512
measured_dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32


def measure_time_ratio(n: int) -> float | None:
    """Time of relu over that of the product; None where a CPU would take too long."""
    if not torch.cuda.is_available() and n > 1024:
        return None
    x = torch.randn(measured_rows, n, device=get_device(), dtype=measured_dtype)
    w = torch.randn(n, n, device=get_device(), dtype=measured_dtype)
    product = time_call(lambda: x @ w, min_trials=10, min_seconds=0.02)
    relu = time_call(lambda: F.relu(x), min_trials=10, min_seconds=0.02)
    return relu.median_seconds / product.median_seconds


measured_time_ratio = {n: measure_time_ratio(n) for n in WIDTHS}
for n, ratio in measured_time_ratio.items():
    by_time = "—" if ratio is None else f"{ratio:.4f}"
    print(f"n = {n:4}  relu / product by count {count_ratio[n]:.5f}, by time {by_time}")
# --8<-- [end:layer]


# --8<-- [start:exercise_1]
BATCH, CONTEXT = 8, 1024

q, k = torch.empty(2, BATCH, HEADS, CONTEXT, HEAD_DIM, device="meta")
wide_q, wide_k = torch.empty(2, BATCH, 1, CONTEXT, HEADS * HEAD_DIM, device="meta")
scores_flops = count_flops(lambda: q @ k.mT)
one_head_flops = count_flops(lambda: wide_q @ wide_k.mT)
print(f"{HEADS} heads of {HEAD_DIM}: {scores_flops:,}")
print(f"1 head of {HEADS * HEAD_DIM}: {one_head_flops:,}")
assert scores_flops == 2 * BATCH * HEADS * CONTEXT * HEAD_DIM * CONTEXT
assert scores_flops == one_head_flops
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
A, u = torch.empty(LARGE, LARGE, device="meta"), torch.empty(LARGE, 1, device="meta")
left_first_flops = count_flops(lambda: (A @ A) @ u)
right_first_flops = count_flops(lambda: A @ (A @ u))
order_ratio = left_first_flops / right_first_flops
print(f"(AA)u {left_first_flops:,}, A(Au) {right_first_flops:,}: {order_ratio}")
assert order_ratio == (LARGE + 1) / 2
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def wins(n: int, levels: int) -> bool:
    return strassen_flops(n, levels) < strassen_flops(n, levels=0)


powers = range(1, 14)
one_level_from = next(2**k for k in powers if wins(2**k, levels=1))
all_levels_from = next(2**k for k in powers if wins(2**k, levels=k))
print(f"one level wins from n = {one_level_from}, all levels from {all_levels_from}")
assert (one_level_from, all_levels_from) == (16, 1024)
# --8<-- [end:exercise_3]
