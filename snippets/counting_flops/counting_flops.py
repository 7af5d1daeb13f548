# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""How many floating-point operations a product takes: derived, counted, then held against the clock."""

from collections import Counter
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flops_bytes.lessons.measure import get_device
from flops_bytes.lessons.trace import count_flops
from flops_bytes.time.gpus import GPUS


class Scalar:
    """A number; all of its kind together keep count of what is done to them."""

    performed: ClassVar[Counter[str]] = Counter()

    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: "Scalar") -> "Scalar":
        Scalar.performed["additions"] += 1
        return Scalar(self.value + other.value)

    def __mul__(self, other: "Scalar") -> "Scalar":
        Scalar.performed["multiplications"] += 1
        return Scalar(self.value * other.value)


def to_scalars(matrix: np.ndarray) -> np.ndarray:
    return np.array([[Scalar(int(entry)) for entry in row] for row in matrix])


# --8<-- [start:textbook]
def textbook(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of a (m × n) and b (n × p): row times column, added up."""
    return np.array([[reduce(add, row * column) for column in b.T] for row in a])


ROWS, INNER, COLUMNS = 4, 6, 5  # m, n, p

a = np.arange(ROWS * INNER).reshape(ROWS, INNER)
b = np.arange(INNER * COLUMNS).reshape(INNER, COLUMNS)
product = textbook(to_scalars(a), to_scalars(b))
performed = dict(Scalar.performed)
performed_flops = sum(performed.values())
convention_flops = 2 * ROWS * INNER * COLUMNS
print(performed, "together", performed_flops, "convention", convention_flops)
assert [[entry.value for entry in row] for row in product] == (a @ b).tolist()
assert performed_flops == ROWS * COLUMNS * (2 * INNER - 1)

GPT2_WIDTH = 768  # n of most products in GPT-2 small
convention_ratio = 2 * GPT2_WIDTH / (2 * GPT2_WIDTH - 1)
# --8<-- [end:textbook]


# --8<-- [start:counter]
m, n, p = 16_384, 32_768, 8_192

x = torch.empty(m, n, device="meta")  # a shape without data
w = torch.empty(n, p, device="meta")
counted_flops = count_flops(lambda: x @ w)
product_flops = 2 * m * n * p
print(f"counted {counted_flops:,}, 2mnp {product_flops:,}")
# --8<-- [end:counter]
assert counted_flops == product_flops


# --8<-- [start:linear_model]
model_parameters = w.numel()
per_point_flops = count_flops(lambda: x[:1] @ w)
claimed_flops = 2 * model_parameters
print(f"one point: {per_point_flops:,}   all {m:,}: {counted_flops:,}")
# --8<-- [end:linear_model]
assert per_point_flops == claimed_flops
assert counted_flops == 2 * m * model_parameters != claimed_flops


# --8<-- [start:blind]
side = 1024
X, v = torch.empty(side, side, device="meta"), torch.empty(side, device="meta")
calls = {  # and what each performs at the least; of the last three, one operation a result
    "X @ X": (lambda: X @ X, 2 * side**3),
    "the same as a sum": (lambda: (X[:, :, None] * X).sum(1), 2 * side**3),
    "X @ v[:, None]": (lambda: X @ v[:, None], 2 * side**2),  # v as a matrix of one column
    "X @ v": (lambda: X @ v, 2 * side**2),
    "F.gelu(X)": (lambda: F.gelu(X), side**2),
    "F.softmax(X, -1)": (lambda: F.softmax(X, -1), side**2),
    "F.layer_norm": (lambda: F.layer_norm(X, (side,)), side**2),
}
for name, (call, least) in calls.items():
    print(f"{name:17} counted {count_flops(call):13,} of {least:13,}")
# --8<-- [end:blind]
assert (X[:, :, None] * X).sum(1).shape == (X @ X).shape


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
assert math_flops == causal_flops == attention_flops
assert measured_default_flops in (0, attention_flops)
# --8<-- [end:attention]


HELD_AS = {  # TF32 is fp32 in memory
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
}


def at_peak(name: str, dtype: torch.dtype) -> dict[str, float]:
    """The matmul from above on an H100: counted, its matrices weighed, its least time."""
    left, right = torch.empty_like(x, dtype=dtype), torch.empty_like(w, dtype=dtype)
    flops = count_flops(lambda: left @ right)
    peak = GPUS["H100 SXM"].peak_flop_per_second[name]  # dense, by its datasheet
    return {
        "counted_flops": flops,
        "held_bytes": dtype.itemsize * (m * n + n * p + m * p),
        "peak_flop_per_second": peak,
        "least_seconds": flops / peak,
    }


AT_PEAK = {name: at_peak(name, dtype) for name, dtype in HELD_AS.items()}
for name, found in AT_PEAK.items():
    print(f"{name:9}at least {found['least_seconds']:.5f} s")


TENSOR_TYPES = {  # the GPU, and its 16-bit type: V100 has no bfloat16
    "V100 32GB SXM": "float16",
    "A100 80GB SXM": "bfloat16",
    "H100 SXM": "bfloat16",
    "B200": "bfloat16",
}


def units(name: str, dtype: str) -> dict[str, float]:
    """Peaks of the tensor cores and of all other units, and how they compare."""
    peaks = GPUS[name].peak_flop_per_second
    return {
        "tensor_flop_per_second": peaks[dtype],
        "other_flop_per_second": peaks["float32"],
        "peaks_ratio": peaks[dtype] / peaks["float32"],
    }


UNITS = {name: units(name, dtype) for name, dtype in TENSOR_TYPES.items()}
print({name: round(found["peaks_ratio"], 1) for name, found in UNITS.items()})


PUBLISHED = {  # of a training step of a BERT layer: Ivanov et al., table 1
    "matmuls": {"flops_share": 0.9980, "time_share": 0.610},
    "norms": {"flops_share": 0.0017, "time_share": 0.255},
    "element_wise": {"flops_share": 0.0003, "time_share": 0.135},
}


def time_per_flop(kind: str) -> float:
    """A kind's share of the time over its share of the FLOPs."""
    return PUBLISHED[kind]["time_share"] / PUBLISHED[kind]["flops_share"]


per_flop_ratio = {k: time_per_flop(k) / time_per_flop("matmuls") for k in PUBLISHED}
print({kind: round(ratio) for kind, ratio in per_flop_ratio.items()})


# --8<-- [start:exercise_1]
BATCH, CONTEXT = 8, 1024

q, k = torch.empty(2, BATCH, HEADS, CONTEXT, HEAD_DIM, device="meta")
wide_q, wide_k = torch.empty(2, BATCH, 1, CONTEXT, HEADS * HEAD_DIM, device="meta")
scores_flops = count_flops(lambda: q @ k.mT)
one_head_flops = count_flops(lambda: wide_q @ wide_k.mT)
print(f"{HEADS} heads of {HEAD_DIM}: {scores_flops:,}")
print(f"1 head of {HEADS * HEAD_DIM}: {one_head_flops:,}")
# --8<-- [end:exercise_1]
assert scores_flops == 2 * BATCH * HEADS * CONTEXT * HEAD_DIM * CONTEXT
assert scores_flops == one_head_flops


# --8<-- [start:exercise_2]
LARGE = 8192

A, u = torch.empty(LARGE, LARGE, device="meta"), torch.empty(LARGE, 1, device="meta")
left_first_flops = count_flops(lambda: (A @ A) @ u)
right_first_flops = count_flops(lambda: A @ (A @ u))
order_ratio = left_first_flops / right_first_flops
print(f"(AA)u {left_first_flops:,}, A(Au) {right_first_flops:,}: {order_ratio}")
# --8<-- [end:exercise_2]
assert order_ratio == (LARGE + 1) / 2


# --8<-- [start:exercise_5]
thin, flat = torch.empty(10, 2, device="meta"), torch.empty(2, 10, device="meta")
wide = torch.empty(10, 60, device="meta")
small_first_flops = count_flops(lambda: (thin @ flat) @ wide)
large_first_flops = count_flops(lambda: thin @ (flat @ wide))
print((thin @ flat).numel(), (flat @ wide).numel(), "elements on the way")
print(small_first_flops, large_first_flops, "FLOPs")
# --8<-- [end:exercise_5]
assert small_first_flops == 2 * 10 * 10 * (2 + 60)
assert large_first_flops == 2 * 2 * 60 * (10 + 10)
