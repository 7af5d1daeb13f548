# /// script
# requires-python = ">=3.11"
# dependencies = ["beartype", "einops", "jaxtyping", "torch>=2.11"]
# ///
"""What a line of tensor code allocates, what broadcasting repeats, and which mistakes names of dimensions catch."""
# ruff: noqa: F722, F821 (jaxtyping writes shapes as text where Python expects types)

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from beartype import beartype
from einops import einsum, rearrange, reduce
from jaxtyping import Float, jaxtyped
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from flops_bytes.lessons.measure import get_memory_usage
from flops_bytes.lessons.trace import Trace, meta

generator = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    """Random normal numbers in float64: equal results agree to many digits."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --8<-- [start:value_loss]
predictions, targets = meta(65536, 1), meta(65536)  # shapes without numbers

with Trace() as trace:
    loss = ((predictions - targets) ** 2).mean()
print(f"asks for {trace.peak_bytes / 2**30:.1f} GiB")
# --8<-- [end:value_loss]


def evaluate(code: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """What an expression of these tensors yields."""
    libraries = {"torch": torch, "F": F, "math": math, "einsum": einsum}
    result: torch.Tensor = eval(code, libraries, tensors)
    return result


def count(code: str, tensors: dict[str, torch.Tensor]) -> Trace:
    """The trace of an expression."""
    with Trace() as trace:
        evaluate(code, tensors)
    return trace


def allocated_bytes(trace: Trace) -> int:
    """All that its operations took, whether or not it still lives."""
    return sum(operation.taken_bytes for operation in trace.operations)


SIDE = 8192  # of a square float32 matrix


def matrices(device: str) -> dict[str, torch.Tensor]:
    """Four square matrices and a row; on "meta", shapes without memory."""
    square = {name: torch.rand(SIDE, SIDE, device=device) for name in "abcd"}
    return {**square, "row": torch.rand(SIDE, device=device)}


on_meta = matrices("meta")
matrix_bytes = get_memory_usage(on_meta["a"])


OPERATIONS = [
    "a.pow(2)",
    "a.rsqrt()",
    "a + b",
    "a + row",
    "a.tril()",
    "a @ b",
    "a.t() @ b",
    "a > 0",
    "a.bfloat16()",
    "a.sum(-1)",
    "a.float()",
    "a.t()",
    "a.add_(b)",
    "torch.add(a, b, out=c)",
]


def describe_operation(code: str) -> dict[str, Any]:
    """What one operation takes, and what its result would by elements × size."""
    return {
        "code": code,
        "allocated_bytes": allocated_bytes(count(code, on_meta)),
        "result_bytes": get_memory_usage(evaluate(code, on_meta)),
    }


operations = [describe_operation(code) for code in OPERATIONS]
assert all(op["allocated_bytes"] in (0, op["result_bytes"]) for op in operations)


def taken_on_cpu(code: str, tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of all that an expression allocates on a CPU, inside kernels too, by PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        evaluate(code, tensors)
    assert run.profiler is not None
    events = run.profiler.kineto_results.events()
    return sum(max(event.nbytes(), 0) for event in events if event.name() == "[memory]")


os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler says no more than we ask
INSIDE = [
    "a + b",
    "a + h",
    "F.mse_loss(a, b)",
    "F.binary_cross_entropy_with_logits(a, b)",
    "a.logsumexp(-1)",
    "a.sort().values",
]
small = {"a": torch.rand(1024, 1024), "b": torch.rand(1024, 1024), "h": torch.rand(1024, 1024).bfloat16()}
small_bytes = get_memory_usage(small["a"])
inside: list[dict[str, Any]] = [
    {
        "code": code,
        "result_bytes": get_memory_usage(evaluate(code, small)),
        "traced_bytes": allocated_bytes(count(code, {name: t.to("meta") for name, t in small.items()})),
        "taken_bytes": small_bytes * round(taken_on_cpu(code, small) / small_bytes),  # to whole matrices
    }
    for code in INSIDE
]


# --8<-- [start:in_place]
h = torch.zeros(3)
old = h  # a second name for the same tensor

h += 1  # h.add_(1): written over the old numbers
print("h += 1       h", h.tolist(), " old", old.tolist())

h = h + 1  # a new tensor, which takes the name h
print("h = h + 1    h", h.tolist(), " old", old.tolist())
# --8<-- [end:in_place]


w = torch.ones(3, requires_grad=True)
y = w.exp()  # the gradient of exp is exp, so autograd keeps y …
y.add_(1)  # … which is now something else
try:
    y.sum().backward()
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)
else:
    raise AssertionError("autograd should have noticed")

y = w.exp()
y.data.add_(1)  # through .data it does not see it
y.sum().backward()
assert w.grad is not None
unseen_gradient, right_gradient = round(w.grad[0].item(), 2), round(math.e, 2)


# --8<-- [start:three_terms]
a, b, c = (meta(8192, 8192) for _ in range(3))  # shapes without numbers

with Trace() as trace:
    result = a * b + c
for operation in trace.operations:
    taken, alive = operation.taken_bytes / 2**20, operation.live_bytes / 2**20
    print(f"{operation.name}: takes {taken:.0f} MiB, then {alive:.0f} MiB live")
print(f"peak: {trace.peak_bytes / 2**20:.0f} MiB")
# --8<-- [end:three_terms]


RMS_NORM = "a * (a.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * row"
BY_HAND = {  # new matrices alive at once
    "a * b + c": 2,
    "a * b + c + d": 2,
    "a * b + c * d": 3,
    RMS_NORM: 2,
    "(a * b).add_(c)": 1,
    "torch.addcmul(c, a, b)": 1,  # c + a * b in one operation
    "a.mul_(b).add_(c)": 0,
}
ALIVE = {  # by name, after each operation
    "a * b + c": [["a * b"], ["a * b", "… + c"]],
    "a * b + c + d": [["a * b"], ["a * b", "… + c"], ["… + c", "… + d"]],
    "a * b + c * d": [["a * b"], ["a * b", "c * d"], ["a * b", "c * d", "… + …"]],
    "(a * b).add_(c)": [["a * b"], ["a * b"]],
}


def describe_expression(code: str) -> dict[str, Any]:
    """What an expression takes in all, at its peak, and after each operation."""
    trace = count(code, on_meta)
    return {
        "code": code,
        "allocated_bytes": allocated_bytes(trace),
        "peak_bytes": trace.peak_bytes,
        "live_bytes": [operation.live_bytes for operation in trace.operations],
    }


assert trace.peak_bytes == 2 * matrix_bytes  # of a * b + c
expressions = [describe_expression(code) for code in BY_HAND]
for row, (code, by_hand) in zip(expressions, BY_HAND.items(), strict=True):
    assert row["peak_bytes"] == by_hand * matrix_bytes
    if code in ALIVE:
        assert row["live_bytes"] == [len(names) * matrix_bytes for names in ALIVE[code]]


# --8<-- [start:measure]
Make = Callable[[str], dict[str, torch.Tensor]]  # makes the tensors on a device


def measure_peak(code: str, make: Make) -> int | None:
    """Bytes by which an expression raises the GPU's peak; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    tensors = make("cuda")
    evaluate(code, tensors)  # so that libraries have what they keep
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    evaluate(code, tensors)
    return torch.cuda.max_memory_allocated() - before


def compare_peaks(code: str, counted: int, make: Make = matrices) -> dict[str, Any]:
    """The allocator's peak, and its ratio to the counted one."""
    peak_bytes = measure_peak(code, make)
    ratio = peak_bytes / counted if peak_bytes is not None and counted else None
    return {"peak_bytes": peak_bytes, "to_counted_ratio": ratio}


measured_operations = [compare_peaks(o["code"], o["allocated_bytes"]) for o in operations]
measured_expressions = [compare_peaks(e["code"], e["peak_bytes"]) for e in expressions]
# --8<-- [end:measure]


def shape_of(*shapes: Sequence[int]) -> list[int] | None:
    """The shape that these shapes broadcast to; None if they do not."""
    try:
        return list(torch.broadcast_shapes(*map(tuple, shapes)))
    except RuntimeError:
        return None


PAIRS = [
    [[4, 8, 16, 32], [32]],
    [[4, 8, 16, 32], [8, 1, 32]],
    [[5, 1], [5]],
    [[16, 32], [16]],
]
broadcasts = [shape_of(*pair) for pair in PAIRS]


# --8<-- [start:silent]
predictions = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])  # 5 × 1
targets = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])  # 5

wrong, right = predictions - targets, predictions[:, 0] - targets
print("predictions       ", tuple(wrong.shape), "loss", wrong.pow(2).mean().item())
print("predictions[:, 0] ", tuple(right.shape), "  loss", right.pow(2).mean().item())
# --8<-- [end:silent]


wrong_loss, right_loss = wrong.pow(2).mean().item(), right.pow(2).mean().item()
differences, column, vector = wrong.tolist(), predictions[:, 0].tolist(), targets.tolist()
assert wrong_loss == 4 and right_loss == 0

NUM_VALUES = 8 * 8192  # a value for each token of 8 sequences
pair = {"column": meta(NUM_VALUES, 1), "vector": meta(NUM_VALUES)}
trap_inputs_bytes = sum(map(get_memory_usage, pair.values()))
trap_difference_bytes = allocated_bytes(count("column - vector", pair))
trap_peak_bytes = count("((column - vector) ** 2).mean()", pair).peak_bytes
meant_peak_bytes = count("((column[:, 0] - vector) ** 2).mean()", pair).peak_bytes


# --8<-- [start:batched]
x, w = torch.randn(4, 8, 16, 32), torch.randn(32, 2)  # the leading dimensions are 4 and 8
y = x @ w
print(tuple(x.shape), "@", tuple(w.shape), "→", tuple(y.shape))
print("each pair of indices is one matmul:", torch.allclose(y[1, 3], x[1, 3] @ w, atol=1e-5))
# --8<-- [end:batched]


# --8<-- [start:decode]
SEQUENCES, HEADS, CONTEXT, D_KEY = 8, 32, 8192, 128
query = meta(SEQUENCES, HEADS, 1, D_KEY, dtype=torch.bfloat16)  # of one new token
keys = meta(SEQUENCES, 1, CONTEXT, D_KEY, dtype=torch.bfloat16)  # all heads share them

with Trace() as broadcast:
    result = query @ keys.mT
with Trace() as heads_as_rows:
    result = query.transpose(1, 2) @ keys.mT
print(f"leading dimensions broadcast: {broadcast.peak_bytes / 2**20:3.0f} MiB")
print(f"heads as rows of one matrix:  {heads_as_rows.peak_bytes / 2**20:3.0f} MiB")
# --8<-- [end:decode]


BROADCAST, ROWS = "query @ keys.mT", "query.transpose(1, 2) @ keys.mT"


def decode(device: str) -> dict[str, torch.Tensor]:
    """One new query per head; all heads of a sequence share their keys."""
    return {name: torch.rand(t.shape, device=device).bfloat16() for name, t in (("query", query), ("keys", keys))}


keys_bytes = get_memory_usage(keys)
broadcast_bytes = allocated_bytes(count(BROADCAST, decode("meta")))
rows_bytes = allocated_bytes(count(ROWS, decode("meta")))
measured_decode = [
    compare_peaks(BROADCAST, broadcast_bytes, decode),
    compare_peaks(ROWS, rows_bytes, decode),
]

few = {"query": randn(2, 4, 1, 8), "keys": randn(2, 1, 6, 8)}
as_rows = evaluate(ROWS, few).transpose(1, 2)
assert torch.allclose(evaluate(BROADCAST, few), as_rows)
assert broadcast_bytes == HEADS * keys_bytes + rows_bytes
assert (broadcast.peak_bytes, heads_as_rows.peak_bytes) == (broadcast_bytes, rows_bytes)


# --8<-- [start:attend]
def attention(tokens: torch.Tensor, may_see: torch.Tensor) -> torch.Tensor:
    """Self-attention; may_see[i, j] says whether query i may see key j."""
    scores = tokens @ tokens.T / math.sqrt(tokens.size(-1))  # rows: queries, columns: keys
    return scores.masked_fill(~may_see, -math.inf).softmax(-1) @ tokens


tokens = torch.randn(5, 4)
edited = tokens.clone()
edited[-1] += 1  # another last token: nobody before it may notice

everything = torch.ones(5, 5, dtype=torch.bool)
for name, may_see in {"tril": everything.tril(), "triu": everything.triu()}.items():
    change = (attention(edited, may_see) - attention(tokens, may_see)).abs().amax(-1)
    print(name, (change > 1e-6).tolist())
# --8<-- [end:attend]


tril_mask, triu_mask = everything.tril().int().tolist(), everything.triu().int().tolist()
hidden_keys = everything.triu(diagonal=1)  # True: may not be seen
assert hidden_keys.equal(~everything.tril()) and everything.triu().equal(everything.tril().T)

mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device="meta").tril()
hidden = mask.bfloat16().repeat(SEQUENCES, HEADS, 1, 1)
bool_mask_bytes = get_memory_usage(mask)
float_mask_bytes = get_memory_usage(mask.float())
repeated_mask_bytes = get_memory_usage(mask.expand(hidden.shape).contiguous())

masking = count("s.masked_fill_(mask, 0)", {"s": hidden, "mask": mask})
assert allocated_bytes(masking) == 0  # broadcast over sequences and heads


# --8<-- [start:decode_by_name]
SHARED = "batch heads query d, batch key d -> batch heads query key"
with Trace() as named:
    result = einsum(query, keys[:, 0], SHARED)
print(f"einsum: {named.peak_bytes / 2**20:.0f} MiB")
# --8<-- [end:decode_by_name]


BY_NAME = "einsum(query, keys[:, 0], 'b heads query d, b key d -> b heads query key')"
by_name_bytes = allocated_bytes(count(BY_NAME, decode("meta")))
assert torch.allclose(evaluate(BROADCAST, few), evaluate(BY_NAME, few))
assert named.peak_bytes == by_name_bytes == rows_bytes


# --8<-- [start:squared_error]
@jaxtyped(typechecker=beartype)
def squared_error(predictions: Float[Tensor, "n"], targets: Float[Tensor, "n"]) -> Float[Tensor, ""]:
    return (predictions - targets).pow(2).mean()


print("loss of two vectors:", squared_error(predictions[:, 0], targets).item())
try:
    squared_error(predictions, targets)  # a column and a vector
except TypeError as error:
    print(*str(error).splitlines()[1:4], sep="\n")
# --8<-- [end:squared_error]


def difference(predictions: Float[Tensor, "n"], targets: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """What a loss squares."""
    return predictions - targets


def scores(
    q: Float[Tensor, "batch query heads d_head"],
    k: Float[Tensor, "batch key heads d_head"],
) -> Float[Tensor, "batch heads query key"]:
    """Attention scores with −2 where tokens were before the split."""
    return q @ k.transpose(-2, -1)


def split_heads(x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch heads tokens d_head"]:
    """Heads from every fourth feature instead of from neighbours."""
    return rearrange(x, "b t (d h) -> b h t d", h=4)


def rms_norm(x: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "tokens d_model"]:
    """A sum where the mean belongs."""
    return x * reduce(x**2, "t d -> t 1", "sum").rsqrt()


def is_caught(function: Callable[..., Tensor], *inputs: Tensor) -> bool:
    """Whether a call fails."""
    try:
        function(*inputs)
    except (RuntimeError, TypeError):
        return True
    return False


MISTAKES: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "batches": (scores, [randn(2, 6, 4, 8), randn(3, 6, 4, 8)]),
    "column": (difference, [predictions, targets]),
    "position": (scores, [randn(2, 6, 4, 8), randn(2, 6, 4, 8)]),
    "square": (scores, [randn(2, 4, 4, 8), randn(2, 4, 4, 8)]),
    "split": (split_heads, [randn(2, 6, 32)]),
    "sum": (rms_norm, [randn(6, 32)]),
}
catches = {
    name: {
        "pytorch": is_caught(function, *inputs),
        "checker": is_caught(jaxtyped(typechecker=beartype)(function), *inputs),
    }
    for name, (function, inputs) in MISTAKES.items()
}


# --8<-- [start:exercise_1]
a, b, c, d = (meta(8192, 8192) for _ in range(4))
with Trace() as trace:
    result = a * b + c * d - a / b
print([operation.live_bytes // a.nbytes for operation in trace.operations])
# --8<-- [end:exercise_1]


five_operations_peak_bytes = trace.peak_bytes
assert allocated_bytes(trace) == 5 * matrix_bytes


# --8<-- [start:exercise_2]
with Trace() as written_out:
    result = 0.5 * a * (1 + torch.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a.pow(3))))
with Trace() as fused:
    result = F.gelu(a, approximate="tanh")
for trace in (written_out, fused):
    print([operation.live_bytes // a.nbytes for operation in trace.operations])
# --8<-- [end:exercise_2]


# Hendrycks and Gimpel, 2016: GELU, approximated with tanh
INNER = "math.sqrt(2 / math.pi) * (a + 0.044715 * a.pow(3))"
GELU = f"0.5 * a * (1 + torch.tanh({INNER}))"
FUSED = "F.gelu(a, approximate='tanh')"

gelu_by_hand, gelu_fused = map(describe_expression, (GELU, FUSED))
measured_gelu = [
    compare_peaks(GELU, gelu_by_hand["peak_bytes"]),
    compare_peaks(FUSED, gelu_fused["peak_bytes"]),
]
sample = {"a": randn(100)}
assert torch.allclose(evaluate(GELU, sample), evaluate(FUSED, sample))
assert gelu_by_hand["peak_bytes"] == 3 * gelu_fused["peak_bytes"]
assert (written_out.peak_bytes, fused.peak_bytes) == (gelu_by_hand["peak_bytes"], gelu_fused["peak_bytes"])


# --8<-- [start:exercise_3]
misread = attention(tokens, everything.triu(diagonal=1))  # what to hide, taken for what to show
print(misread[-1].tolist())
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
NUM_POSITIONS = 5
one_row = torch.ones(1, NUM_POSITIONS, dtype=torch.bool)  # one new token, the last, and all positions so far
print("tril():           ", one_row.tril().int().tolist())
print("tril(diagonal=4): ", one_row.tril(diagonal=NUM_POSITIONS - 1).int().tolist())
# --8<-- [end:exercise_4]
