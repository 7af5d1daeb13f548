# /// script
# requires-python = ">=3.11"
# dependencies = ["einops", "torch>=2.11"]
# ///
"""Dimensions by name: what einops makes visible, what they cost, and in which order einsum works."""

import math
import statistics
import timeit
from collections.abc import Callable
from typing import Any

import torch
from einops import einsum, rearrange, reduce, repeat
from torch import Tensor

from flops_bytes.lessons.measure import get_device, same_storage, time_call
from flops_bytes.lessons.trace import Trace, count_flops, meta

# --8<-- [start:minus_two]
BATCH, SEQ_LEN, NUM_HEADS, D_HEAD = 2, 4, 4, 8
q = torch.randn(BATCH, SEQ_LEN, NUM_HEADS * D_HEAD)
k = torch.randn(BATCH, SEQ_LEN, NUM_HEADS * D_HEAD)
print("one head:  ", tuple((q @ k.transpose(-2, -1)).shape))

q = q.view(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)
k = k.view(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)
by_habit = q @ k.transpose(-2, -1)  # the same line
print("four heads:", tuple(by_habit.shape))
# --8<-- [end:minus_two]


# --8<-- [start:by_name]
NAMES = "batch query heads d_head, batch key heads d_head -> batch heads query key"
by_name = einsum(q, k, NAMES)
print("by name:   ", tuple(by_name.shape))
print("by habit equals by name:", torch.allclose(by_habit, by_name))
# --8<-- [end:by_name]


D_MODEL = NUM_HEADS * D_HEAD
assert torch.allclose(q.transpose(1, 2) @ k.transpose(1, 2).mT, by_name, atol=1e-5)
assert torch.einsum("bqhd,bkhd->bhqk", q, k).equal(by_name)


# --8<-- [start:split]
row = torch.arange(6)  # two heads of three numbers: which belong together?
print("(heads d):", rearrange(row, "(heads d) -> heads d", heads=2).tolist())
print("(d heads):", rearrange(row, "(d heads) -> heads d", heads=2).tolist())
# --8<-- [end:split]


heads_outside = rearrange(row, "(heads d) -> heads d", heads=2).tolist()
heads_inside = rearrange(row, "(d heads) -> heads d", heads=2).tolist()


# --8<-- [start:reduce]
x = torch.randn(2, 3, 32)
for how in ("sum", "mean"):
    reduced = reduce(x, "... hidden -> ...", how)
    print(how, "equals x.mean(-1):", torch.allclose(reduced, x.mean(-1), atol=1e-6))
# --8<-- [end:reduce]


PATTERNS = [  # with names, without
    ("rearrange(x, 'b t (h d) -> b h t d', h=4)", "x.unflatten(2, (4, -1)).transpose(1, 2)"),
    ("rearrange(y, 'b h t d -> b t (h d)')", "y.transpose(1, 2).flatten(2)"),
    ("rearrange(x, 'b t d -> (b t) d')", "x.flatten(0, 1)"),
    ("repeat(x, 'b t d -> b h t d', h=4)", "x[:, None].expand(-1, 4, -1, -1)"),
    ("reduce(x, 'b t d -> b d', 'mean')", "x.mean(1)"),
    ("reduce(x, 'b (t pair) d -> b t d', 'sum', pair=2)", "x.unflatten(1, (-1, 2)).sum(2)"),
    ("einsum(x, w, '... i, i o -> ... o')", "x @ w"),
    ("einsum(q, k, 'b t h d, b s h d -> b h t s')", "q.transpose(1, 2) @ k.permute(0, 2, 3, 1)"),
]
by_names = {"einsum": einsum, "rearrange": rearrange, "reduce": reduce, "repeat": repeat}
operands = {"x": torch.randn(2, 6, 32), "y": torch.randn(2, 4, 6, 8), "w": torch.randn(32, 8), "q": q, "k": k}


def describe_pattern(named: str, unnamed: str) -> dict[str, Any]:
    """Both ways of writing it, and whether the result is a view of its first operand."""
    result: Tensor = eval(named, by_names, operands)
    assert torch.allclose(result, eval(unnamed, {}, operands), atol=1e-5)
    first = operands[named[named.index("(") + 1]]
    return {"named": named, "unnamed": unnamed, "is_view": same_storage(first, result)}


patterns = [describe_pattern(*pair) for pair in PATTERNS]


PROJECTION = "... d_in, d_in d_out -> ... d_out"


# --8<-- [start:flops]
SEQUENCES, TOKENS, HEADS, D_KEY = 8, 2048, 16, 128
SCORES = "batch query heads d, batch key heads d -> batch heads query key"


def scores_by_name(q: Tensor, k: Tensor) -> Tensor:
    """Attention scores with einsum."""
    return einsum(q, k, SCORES)


def scores_by_number(q: Tensor, k: Tensor) -> Tensor:
    """Attention scores with matmul."""
    return q.transpose(1, 2) @ k.permute(0, 2, 3, 1)


full = meta(SEQUENCES, TOKENS, HEADS, D_KEY)
einsum_flops = count_flops(lambda: scores_by_name(full, full))
matmul_flops = count_flops(lambda: scores_by_number(full, full))
by_formula_flops = 2 * SEQUENCES * HEADS * TOKENS * TOKENS * D_KEY
assert einsum_flops == matmul_flops == by_formula_flops
# --8<-- [end:flops]


def trace(function: Callable[[], object]) -> list[str]:
    """The copies and products that a call makes; views are left out."""
    with Trace() as run:
        function()
    names = [operation.name.split(".")[0] for operation in run.operations]
    return [name for name in names if name in ("clone", "mm", "bmm")]


einsum_trace = trace(lambda: scores_by_name(full, full))
matmul_trace = trace(lambda: scores_by_number(full, full))
assert einsum_trace == matmul_trace == ["clone", "clone", "bmm"]


Call = Callable[[], Any]


def make(gpu_shape: tuple[int, ...], cpu_shape: tuple[int, ...]) -> Tensor:
    """Random numbers: bfloat16 on a GPU, float32 and fewer on a CPU."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    shape = gpu_shape if torch.cuda.is_available() else cpu_shape
    return torch.randn(shape, device=get_device(), dtype=dtype)


def take_turns(one: Call, other: Call) -> list[float]:
    """Seconds of two calls: five alternating rounds, the middle one of each."""
    min_seconds = 0.2 if torch.cuda.is_available() else 0.03
    seconds: list[list[float]] = [[], []]
    for _ in range(5):
        seconds[0].append(time_call(one, 5, min_seconds).median_seconds)
        seconds[1].append(time_call(other, 5, min_seconds).median_seconds)
    return [statistics.median(column) for column in seconds]


def compare(by_number: Call, by_name: Call) -> dict[str, float]:
    """Seconds of a product without and with names, and their ratio."""
    matmul, named = take_turns(by_number, by_name)
    return {
        "matmul_seconds": matmul,
        "einsum_seconds": named,
        "einsum_to_matmul_ratio": named / matmul,
    }


torch.set_num_threads(1)  # on a CPU: steadier than many
queries = make((SEQUENCES, TOKENS, HEADS, D_KEY), (1, 512, 8, 64))
inputs, weight = make((16384, 4096), (512, 512)), make((4096, 4096), (512, 512))
new, past = make((8, 32, 1, 128), (4, 16, 1, 64)), make((8, 8192, 128), (4, 1024, 64))
measured_queries_shape = " × ".join(map(str, queries.shape))
measured_inputs_shape = " × ".join(map(str, inputs.shape))
measured_new_shape = " × ".join(map(str, new.shape))
measured_past_shape = " × ".join(map(str, past.shape))
SHARED = "batch heads q d, batch key d -> batch heads q key"

measured_products = {
    "scores": compare(
        lambda: scores_by_number(queries, queries),
        lambda: scores_by_name(queries, queries),
    ),
    "projection": compare(
        lambda: inputs @ weight,
        lambda: einsum(inputs, weight, PROJECTION),
    ),
    "shared": compare(
        lambda: new @ past[:, None].mT,
        lambda: einsum(new, past, SHARED),
    ),
}
measured_saved_ratio = 1 / measured_products["shared"]["einsum_to_matmul_ratio"]
assert trace(lambda: new @ past[:, None].mT) == ["clone", "bmm"]
assert trace(lambda: einsum(new, past, SHARED)) == ["bmm"]


def overhead(unnamed: Call, named: Call) -> dict[str, float]:
    """Seconds of two calls on tensors so small that Python is all the work.

    The least of 20 rounds in turn: what comes on top is other programs' doing.
    """
    rounds = [
        [timeit.timeit(call, number=50) / 50 for call in (unnamed, named)]
        for _ in range(20)  # in turn
    ]
    unnamed_seconds, named_seconds = map(min, zip(*rounds, strict=True))
    return {
        "unnamed_seconds": unnamed_seconds,
        "named_seconds": named_seconds,
        "added_seconds": named_seconds - unnamed_seconds,
    }


tiny, tiny_w = torch.ones(2, 6, 32), torch.ones(32, 2)
measured_overhead = {
    "rearrange": overhead(
        lambda: tiny.view(2, 6, 4, 8).transpose(1, 2),
        lambda: rearrange(tiny, "b s (h d) -> b h s d", h=4),
    ),
    "reduce": overhead(
        lambda: tiny.mean(-1),
        lambda: reduce(tiny, "... d -> ...", "mean"),
    ),
    "einsum": overhead(
        lambda: tiny @ tiny_w,
        lambda: einsum(tiny, tiny_w, PROJECTION),
    ),
}


# --8<-- [start:order]
NUM_TOKENS, D_IN, RANK, D_OUT = 8192, 4096, 16, 4096  # thin factors, as in LoRA

x, a, b = meta(NUM_TOKENS, D_IN), meta(D_IN, RANK), meta(RANK, D_OUT)
INPUTS_FIRST = "t d_in, d_in rank, rank d_out -> t d_out"
WEIGHTS_FIRST = "d_in rank, rank d_out, t d_in -> t d_out"
with torch.backends.opt_einsum.flags(enabled=False):  # whether installed or not
    inputs_first_flops = count_flops(lambda: einsum(x, a, b, INPUTS_FIRST))
    weights_first_flops = count_flops(lambda: einsum(a, b, x, WEIGHTS_FIRST))
order_ratio = weights_first_flops / inputs_first_flops
print(f"(x a) b {inputs_first_flops:15,}")
print(f"x (a b) {weights_first_flops:15,}  {order_ratio:.1f} times as many")
assert inputs_first_flops == 2 * NUM_TOKENS * RANK * (D_IN + D_OUT)
assert weights_first_flops == 2 * D_IN * D_OUT * (RANK + NUM_TOKENS)
# --8<-- [end:order]


BETWEEN = {  # what is made on the way, in float32
    "x a": (NUM_TOKENS, RANK),
    "a b": (D_IN, D_OUT),
    "x b": (NUM_TOKENS, D_IN, RANK, D_OUT),  # no common name: no sum
}
between_bytes = {pair: 4 * math.prod(shape) for pair, shape in BETWEEN.items()}


tokens = make((NUM_TOKENS, D_IN), (512, 512))
down, up = make((D_IN, RANK), (512, 8)), make((RANK, D_OUT), (8, 512))
measured_order_sizes = [*tokens.shape, *up.shape]  # tokens, d_in, rank, d_out


def inputs_first() -> Tensor:
    """(x a) b, on this device."""
    return (tokens @ down) @ up


def weights_first() -> Tensor:
    """x (a b), on this device."""
    return tokens @ (down @ up)


predicted_order_ratio = count_flops(weights_first) / count_flops(inputs_first)
measured_order_seconds = take_turns(inputs_first, weights_first)
measured_order_ratio = measured_order_seconds[1] / measured_order_seconds[0]


# --8<-- [start:exercise_1]
weights = by_name.softmax(-1)  # batch heads query key
v = torch.randn(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)

CONTEXT = "batch heads query key, batch key heads d_head -> batch query heads d_head"
context = einsum(weights, v, CONTEXT)
output = rearrange(context, "b query heads d_head -> b query (heads d_head)")
print(tuple(context.shape), tuple(output.shape))
# --8<-- [end:exercise_1]


assert torch.allclose(output, (weights @ v.transpose(1, 2)).transpose(1, 2).flatten(2), atol=1e-5)


# --8<-- [start:exercise_2]
IMAGE_SIDE, PATCH_SIDE, CHANNELS = 224, 16, 3

image = torch.rand(CHANNELS, IMAGE_SIDE, IMAGE_SIDE)
CUT = "c (row h) (column w) -> (row column) (h w c)"
patches = rearrange(image, CUT, h=PATCH_SIDE, w=PATCH_SIDE)
print(tuple(patches.shape), "a view:", same_storage(image, patches))
# --8<-- [end:exercise_2]


num_patches, patch_numbers = patches.shape
