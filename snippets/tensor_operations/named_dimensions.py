# /// script
# requires-python = ">=3.11"
# dependencies = ["beartype", "einops", "jaxtyping", "torch>=2.11"]
# ///
"""Dimensions by name: what einops and jaxtyping make visible, what they cost, and in which order einsum works."""
# ruff: noqa: F722 (jaxtyping writes shapes as text where Python expects types)

# --8<-- [start:setup]
import math
import statistics
import timeit
from collections.abc import Callable
from typing import Any

import torch
from beartype import beartype
from einops import einsum, rearrange, reduce, repeat
from jaxtyping import Float, jaxtyped
from torch import Tensor

from flops_bytes.measure import get_device, same_storage, time_call
from flops_bytes.trace import Trace, count_flops, meta

generator = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Tensor:
    """Random normal numbers in float64: equal results agree to many digits."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --8<-- [end:setup]


# --8<-- [start:minus_two]
BATCH, SEQ_LEN, NUM_HEADS, D_HEAD = 2, 4, 4, 8
D_MODEL = NUM_HEADS * D_HEAD

q, k = randn(BATCH, SEQ_LEN, D_MODEL), randn(BATCH, SEQ_LEN, D_MODEL)
scores = q @ k.transpose(-2, -1)
print("one head:  ", tuple(q.shape), "→", tuple(scores.shape))

q_heads = q.view(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)
k_heads = k.view(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)
by_habit = q_heads @ k_heads.transpose(-2, -1)  # the same line
print("four heads:", tuple(q_heads.shape), "→", tuple(by_habit.shape))
# --8<-- [end:minus_two]


# --8<-- [start:by_name]
by_name = einsum(
    q_heads,
    k_heads,
    "batch query heads d_head, batch key heads d_head -> batch heads query key",
)
by_number = q_heads.transpose(1, 2) @ k_heads.transpose(1, 2).transpose(-2, -1)
print("by name:   ", tuple(by_name.shape))
print("by habit equals by name:", torch.allclose(by_habit, by_name))
assert torch.allclose(by_number, by_name)
assert by_habit.shape == by_name.shape and not torch.allclose(by_habit, by_name)
# --8<-- [end:by_name]


# --8<-- [start:sum]
total = torch.zeros_like(by_name)
for d in range(D_HEAD):  # the only name that is not in the result
    for query in range(SEQ_LEN):
        for key in range(SEQ_LEN):
            product = q_heads[:, query, :, d] * k_heads[:, key, :, d]
            total[:, :, query, key] += product
assert torch.allclose(total, by_name)
# --8<-- [end:sum]


# --8<-- [start:dots]
w = randn(D_MODEL, 2)
PROJECTION = "... d_in, d_in d_out -> ... d_out"

for x in (randn(D_MODEL), randn(4, D_MODEL), randn(2, 3, 4, D_MODEL)):
    y = einsum(x, w, PROJECTION)
    print(tuple(x.shape), "→", tuple(y.shape))
    assert torch.allclose(y, x @ w)
# --8<-- [end:dots]


# --8<-- [start:reduce]
x = randn(2, 3, D_MODEL)
claimed = reduce(x, "... hidden -> ...", "sum")  # said to be x.mean(-1)
mean = reduce(x, "... hidden -> ...", "mean")

print("sum equals x.mean(-1): ", torch.allclose(claimed, x.mean(-1)))
print("mean equals x.mean(-1):", torch.allclose(mean, x.mean(-1)))
assert not torch.allclose(claimed, x.mean(-1))
assert torch.allclose(mean, x.mean(-1))
assert torch.allclose(claimed, D_MODEL * mean)
# --8<-- [end:reduce]


# --8<-- [start:split]
row = torch.arange(6)  # two heads of three numbers: which belong together?

heads_outside = rearrange(row, "(heads d) -> heads d", heads=2).tolist()
heads_inside = rearrange(row, "(d heads) -> heads d", heads=2).tolist()
print("(heads d):", heads_outside)
print("(d heads):", heads_inside)
# --8<-- [end:split]


# --8<-- [start:per_head]
x = randn(BATCH, SEQ_LEN, D_MODEL)
w_head = randn(D_HEAD, D_HEAD)

split = rearrange(x, "... (heads d) -> ... heads d", heads=NUM_HEADS)
mapped = einsum(split, w_head, "... d, d d_out -> ... d_out")
merged = rearrange(mapped, "... heads d -> ... (heads d)")
print(tuple(x.shape), "→", tuple(split.shape), "→", tuple(merged.shape))
first_head = x[..., :D_HEAD] @ w_head
assert torch.allclose(merged[..., :D_HEAD], first_head)

shuffled = rearrange(mapped, "... heads d -> ... (d heads)")
assert shuffled.shape == merged.shape and not torch.allclose(shuffled, merged)
# --8<-- [end:per_head]


# --8<-- [start:patterns]
x = randn(2, 6, 32)
PATTERNS = [
    "rearrange(x, 'b s (h d) -> b h s d', h=4)",
    "rearrange(x, 'b s d -> (b s) d')",
    "rearrange(x, 'b s d -> (s b) d')",
    "repeat(x, 'b s d -> b h s d', h=4)",
    "reduce(x, 'b s d -> b d', 'mean')",
    "reduce(x, 'b s d -> b 1 d', 'max')",
    "reduce(x, 'b (s pair) d -> b s d', 'sum', pair=2)",
]
WITHOUT_NAMES = [
    "x.view(2, 6, 4, 8).transpose(1, 2)",
    "x.view(12, 32)",
    "x.transpose(0, 1).reshape(12, 32)",
    "x[:, None].expand(2, 4, 6, 32)",
    "x.mean(1)",
    "x.amax(1, keepdim=True)",
    "x.view(2, 3, 2, 32).sum(2)",
]


def describe(named: str, unnamed: str) -> dict[str, Any]:
    """The shape that both yield, and whether the result is a view of x."""
    y, same = eval(named), eval(unnamed)
    assert torch.allclose(y, same) and same_storage(x, y) == same_storage(x, same)
    shape = " × ".join(map(str, y.shape))
    return {"shape": shape, "is_view": same_storage(x, y)}


patterns = [describe(*pair) for pair in zip(PATTERNS, WITHOUT_NAMES, strict=True)]
num_views = sum(pattern["is_view"] for pattern in patterns)
print(num_views, "of", len(patterns), "are views")
assert repeat(row, "d -> h d", h=2).stride() == (0, 1)  # walked twice, not copied
# --8<-- [end:patterns]


# --8<-- [start:documentation]
def attend(
    q: Float[Tensor, "batch query heads d_head"],
    k: Float[Tensor, "batch key heads d_head"],
) -> Float[Tensor, "batch heads query key"]:
    """Attention scores, by habit: the mistake from above."""
    return q @ k.transpose(-2, -1)


long_q = randn(BATCH, 6, NUM_HEADS, D_HEAD)  # six tokens, four heads
print("promised", (BATCH, NUM_HEADS, 6, 6))
print("returned", tuple(attend(long_q, long_q).shape))
# --8<-- [end:documentation]


# --8<-- [start:complaint]
def complaint(call: Callable[[], object]) -> str:
    """What the checker has to say, without its list of annotations."""
    try:
        call()
    except TypeError as error:
        names = ("batch=", "query=", "heads=", "d_head=", "key=")
        facts = ("Type-check", "The problem", "Actual", "Expected", *names)
        lines = str(error).splitlines()
        return "\n".join(line for line in lines if line.startswith(facts))
    raise AssertionError("the call was expected to fail")


# --8<-- [end:complaint]


# --8<-- [start:checked]
checked = jaxtyped(typechecker=beartype)(attend)  # or as a decorator, above def
print(complaint(lambda: checked(long_q, long_q)))
print(complaint(lambda: checked(long_q, randn(3, 6, NUM_HEADS, D_HEAD))))
# --8<-- [end:checked]


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
print(f"einsum {einsum_flops:,}")
print(f"matmul {matmul_flops:,}")
assert einsum_flops == matmul_flops == by_formula_flops
# --8<-- [end:flops]


# --8<-- [start:trace]
def trace(function: Callable[[], object]) -> list[str]:
    """The copies and products that a call makes; views are left out."""
    with Trace() as run:
        function()
    names = [operation.name.split(".")[0] for operation in run.operations]
    return [name for name in names if name in ("clone", "mm", "bmm")]


einsum_trace = trace(lambda: scores_by_name(full, full))
matmul_trace = trace(lambda: scores_by_number(full, full))
print("einsum:", *einsum_trace)
print("matmul:", *matmul_trace)
assert einsum_trace == matmul_trace == ["clone", "clone", "bmm"]

tall, thin = meta(16, 8), meta(8, 2)  # a projection: nothing to copy
print("projection with einsum:", *trace(lambda: einsum(tall, thin, PROJECTION)))
print("projection with matmul:", *trace(lambda: tall @ thin))
# --8<-- [end:trace]


# --8<-- [start:measure]
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
# --8<-- [end:measure]


# --8<-- [start:overhead]
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
# --8<-- [end:overhead]


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


# --8<-- [start:between]
BETWEEN = {  # what is made on the way, in float32
    "x a": (NUM_TOKENS, RANK),
    "a b": (D_IN, D_OUT),
    "x b": (NUM_TOKENS, D_IN, RANK, D_OUT),  # no common name: no sum
}
between_bytes = {pair: 4 * math.prod(shape) for pair, shape in BETWEEN.items()}
# --8<-- [end:between]


# --8<-- [start:order_time]
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
# --8<-- [end:order_time]


# --8<-- [start:exercise_1]
weights = by_name.softmax(-1)  # batch heads query key
v = randn(BATCH, SEQ_LEN, NUM_HEADS, D_HEAD)

context = einsum(
    weights,
    v,
    "batch heads query key, batch key heads d_head -> batch query heads d_head",
)
output = rearrange(context, "b query heads d_head -> b query (heads d_head)")
by_hand = (weights @ v.transpose(1, 2)).transpose(1, 2).flatten(2)
print(tuple(context.shape), tuple(output.shape))
assert torch.allclose(output, by_hand)
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
IMAGE_SIDE, PATCH_SIDE, CHANNELS = 224, 16, 3  # Dosovitskiy et al., 2020

image = torch.rand(CHANNELS, IMAGE_SIDE, IMAGE_SIDE, generator=generator)
CUT = "c (row h) (column w) -> (row column) (h w c)"
patches = rearrange(image, CUT, h=PATCH_SIDE, w=PATCH_SIDE)
num_patches, patch_numbers = patches.shape
patches_share = same_storage(image, patches)
print(num_patches, "patches of", patch_numbers, "numbers; a view:", patches_share)

# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
WIDTH = 4096  # of a model

hidden = randn(3, WIDTH)
right = hidden * reduce(hidden**2, "... d -> ... 1", "mean").rsqrt()
wrong = hidden * reduce(hidden**2, "... d -> ... 1", "sum").rsqrt()
shrinks_by = math.isqrt(WIDTH)
print("right: rows of length", [round(n) for n in right.norm(dim=-1).tolist()])
print("wrong: rows of length", [round(n) for n in wrong.norm(dim=-1).tolist()])
assert torch.allclose(right, shrinks_by * wrong)
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
@jaxtyped(typechecker=beartype)
def split_heads(
    x: Float[Tensor, "batch seq d_model"],
) -> Float[Tensor, "batch heads seq d_head"]:
    """The wrong split, in the right shape."""
    return rearrange(x, "b s (d h) -> b h s d", h=NUM_HEADS)


accepted = split_heads(q)
meant = rearrange(q, "b s (h d) -> b h s d", h=NUM_HEADS)
print("accepted:", tuple(accepted.shape))
print("right:   ", torch.allclose(accepted, meant))
assert accepted.shape == meant.shape and not torch.allclose(accepted, meant)
# --8<-- [end:exercise_4]
