# /// script
# requires-python = ">=3.11"
# dependencies = ["beartype", "einops", "jaxtyping", "torch>=2.11"]
# ///
"""What a line of tensor code allocates, what broadcasting repeats, and which mistakes names of dimensions catch."""
# ruff: noqa: F722, F821 (jaxtyping writes shapes as text where Python expects types)

# --8<-- [start:setup]
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from beartype import beartype
from einops import einsum, rearrange, reduce
from jaxtyping import Float, jaxtyped
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from flops_bytes.measure import get_memory_usage, same_storage
from flops_bytes.trace import Trace, meta


def message_of(call: Callable[[], object]) -> str:
    """What the error of a call says that has to fail."""
    try:
        call()
    except (RuntimeError, TypeError) as error:
        message = str(error).split(" Hint")[0].replace("Backward0", "")  # which torch 2.11 adds to an operation
        return textwrap.fill(f"{type(error).__name__}: {message}", width=80)
    raise AssertionError("the call was expected to fail")


generator = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    """Random normal numbers in float64: equal results agree to many digits."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --8<-- [end:setup]


# --8<-- [start:element_wise]
x = torch.tensor([1.0, 4.0, 9.0])

for code in ("x.pow(2)", "x.sqrt()", "x.rsqrt()", "x + x", "x * 2", "x / 0.5"):
    y = eval(code)
    numbers = "".join(f"{number:9.4g}" for number in y.tolist())
    print(f"{code:10}{numbers}   memory of its own: {not same_storage(x, y)}")
    assert y.shape == x.shape and not same_storage(x, y)
assert torch.allclose(x.rsqrt(), 1 / x.sqrt())
# --8<-- [end:element_wise]


# --8<-- [start:count]
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


# --8<-- [end:count]


# --8<-- [start:matrices]
SIDE = 8192  # of a square float32 matrix


def matrices(device: str) -> dict[str, torch.Tensor]:
    """Four square matrices and a row; on "meta", shapes without memory."""
    square = {name: torch.rand(SIDE, SIDE, device=device) for name in "abcd"}
    return {**square, "row": torch.rand(SIDE, device=device)}


on_meta = matrices("meta")
matrix_bytes = get_memory_usage(on_meta["a"])
# --8<-- [end:matrices]


# --8<-- [start:operations]
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
num_allocating = sum(op["allocated_bytes"] > 0 for op in operations)
print(num_allocating, "of", len(operations), "take memory, as much as the result")
assert all(op["allocated_bytes"] in (0, op["result_bytes"]) for op in operations)
# --8<-- [end:operations]


# --8<-- [start:inside]
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
for row in inside:
    print(f"{row['taken_bytes'] / 2**20:6.2f} MiB  {row['code']}")
# --8<-- [end:inside]


# --8<-- [start:in_place]
h = torch.zeros(3)
old = h  # a second name for the same tensor

h += 1  # h.add_(1): written over the old numbers
print("h += 1       h", h.tolist(), " old", old.tolist())

h = h + 1  # a new tensor, which takes the name h
print("h = h + 1    h", h.tolist(), " old", old.tolist())
# --8<-- [end:in_place]


# --8<-- [start:autograd]
w = torch.ones(3, requires_grad=True)
y = w.exp()  # the gradient of exp is exp, so autograd keeps y …
y.add_(1)  # … which is now something else
print(message_of(lambda: y.sum().backward()))

y = w.exp()
y.data.add_(1)  # through .data it does not see it
y.sum().backward()
assert w.grad is not None
unseen_gradient, right_gradient = round(w.grad[0].item(), 2), round(math.e, 2)
print("gradient of exp at 1, after y.data.add_(1):", unseen_gradient)
# --8<-- [end:autograd]


# --8<-- [start:three_terms]
a, b, c = (meta(8192, 8192) for _ in range(3))  # shapes without numbers

with Trace() as trace:
    result = a * b + c
for operation in trace.operations:
    taken, alive = operation.taken_bytes / 2**20, operation.live_bytes / 2**20
    print(f"{operation.name}: takes {taken:.0f} MiB, then {alive:.0f} MiB live")
print(f"peak: {trace.peak_bytes / 2**20:.0f} MiB")
# --8<-- [end:three_terms]


# --8<-- [start:expressions]
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
# --8<-- [end:expressions]


# --8<-- [start:describe]
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
    print(f"{row['peak_bytes'] / matrix_bytes:.0f}  {row['code']}")
    assert row["peak_bytes"] == by_hand * matrix_bytes
    if code in ALIVE:
        assert row["live_bytes"] == [len(names) * matrix_bytes for names in ALIVE[code]]
# --8<-- [end:describe]


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
print("a * b + c on the GPU:", measured_expressions[0])
# --8<-- [end:measure]


# --8<-- [start:broadcasting]
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
for (one, other), shape in zip(PAIRS, broadcasts, strict=True):
    print(f"{one!s:15} with {other!s:11} → {shape or 'an error'}")
# --8<-- [end:broadcasting]


# --8<-- [start:silent]
predictions = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])  # 5 × 1
targets = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])  # 5

wrong, right = predictions - targets, predictions[:, 0] - targets
print("predictions       ", tuple(wrong.shape), "loss", wrong.pow(2).mean().item())
print("predictions[:, 0] ", tuple(right.shape), "  loss", right.pow(2).mean().item())
# --8<-- [end:silent]


# --8<-- [start:trap]
wrong_loss, right_loss = wrong.pow(2).mean().item(), right.pow(2).mean().item()
differences, column, vector = wrong.tolist(), predictions[:, 0].tolist(), targets.tolist()
assert wrong_loss == 4 and right_loss == 0

NUM_VALUES = 8 * 8192  # a value for each token of 8 sequences
pair = {"column": meta(NUM_VALUES, 1), "vector": meta(NUM_VALUES)}
trap_inputs_bytes = sum(map(get_memory_usage, pair.values()))
trap_difference_bytes = allocated_bytes(count("column - vector", pair))
trap_peak_bytes = count("((column - vector) ** 2).mean()", pair).peak_bytes
meant_peak_bytes = count("((column[:, 0] - vector) ** 2).mean()", pair).peak_bytes
# --8<-- [end:trap]


# --8<-- [start:batched]
BATCH, NUM_HEADS, SEQ_LEN, D_IN, D_OUT = 4, 8, 16, 32, 2

x = randn(BATCH, NUM_HEADS, SEQ_LEN, D_IN)
w = randn(D_IN, D_OUT)
y = x @ w
print(tuple(x.shape), "@", tuple(w.shape), "→", tuple(y.shape))

for sequence in range(BATCH):
    for head in range(NUM_HEADS):  # one small matmul for each leading index …
        assert torch.allclose(y[sequence, head], x[sequence, head] @ w)
rows = x.view(-1, D_IN)  # … or a single one, all rows below each other
print(tuple(rows.shape), "@", tuple(w.shape), "→", tuple((rows @ w).shape))
assert torch.allclose(y, (rows @ w).view(y.shape))
# --8<-- [end:batched]


# --8<-- [start:trace]
def multiply(x_shape: Sequence[int], w_shape: Sequence[int]) -> Trace:
    """The trace of a product of float32 tensors of these shapes."""
    x, w = (torch.empty(*shape, device="meta") for shape in (x_shape, w_shape))
    return count("x @ w", {"x": x, "w": w})


LEFT = [BATCH, NUM_HEADS, SEQ_LEN, D_IN]
shared_weight = multiply(LEFT, [D_IN, D_OUT])
for name, _, taken, _ in shared_weight.operations:
    print(f"{name:22}{taken:6,} B")
transposed = {"x": meta(BATCH, SEQ_LEN, NUM_HEADS, D_IN), "w": meta(D_IN, D_OUT)}
transposed_bytes = allocated_bytes(count("x.transpose(1, 2) @ w", transposed))
transposed_copied_bytes = transposed_bytes - allocated_bytes(shared_weight)
assert transposed_copied_bytes == get_memory_usage(transposed["x"])
# --8<-- [end:trace]


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


# --8<-- [start:decode_bytes]
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
for name, _, taken, _ in broadcast.operations:
    print(f"{name:22}{taken:12,} B")

few = {"query": randn(2, 4, 1, 8), "keys": randn(2, 1, 6, 8)}
as_rows = evaluate(ROWS, few).transpose(1, 2)
assert torch.allclose(evaluate(BROADCAST, few), as_rows)
assert broadcast_bytes == HEADS * keys_bytes + rows_bytes
assert (broadcast.peak_bytes, heads_as_rows.peak_bytes) == (broadcast_bytes, rows_bytes)
# --8<-- [end:decode_bytes]


# --8<-- [start:weight_per_head]
weight_per_head = multiply(LEFT, [NUM_HEADS, D_IN, D_OUT])
for name, _, taken, _ in weight_per_head.operations:
    print(f"{name:22}{taken:6,} B")
weight_per_head_bytes = NUM_HEADS * D_IN * D_OUT * 4
extra_bytes = allocated_bytes(weight_per_head) - allocated_bytes(shared_weight)
assert extra_bytes == BATCH * weight_per_head_bytes
# --8<-- [end:weight_per_head]


# --8<-- [start:products]
WEIGHTS = [
    [D_IN, D_OUT],
    [1, 1, D_IN, D_OUT],
    [BATCH, NUM_HEADS, D_IN, D_OUT],
    [NUM_HEADS, D_IN, D_OUT],
    [BATCH, 1, D_IN, D_OUT],
]


def describe_product(w_shape: list[int]) -> dict[str, Any]:
    """What a product takes for its result, and what for copies of its factors."""
    trace = multiply(LEFT, w_shape)
    result_bytes = BATCH * NUM_HEADS * SEQ_LEN * D_OUT * 4
    return {
        "w": " × ".join(map(str, w_shape)),
        "w_bytes": math.prod(w_shape) * 4,
        "result_bytes": result_bytes,
        "copied_bytes": allocated_bytes(trace) - result_bytes,
    }


products = [describe_product(w_shape) for w_shape in WEIGHTS]
for product in products:
    print(f"{product['w']:15}{product['copied_bytes']:6,} B copied")
assert [p["copied_bytes"] > 0 for p in products] == [False] * 3 + [True] * 2
# --8<-- [end:products]


# --8<-- [start:masks]
NUM_POSITIONS, D_HEAD = 5, 4

everything = torch.ones(NUM_POSITIONS, NUM_POSITIONS, dtype=torch.bool)
tril, triu = everything.tril(), everything.triu()
print(tril.int())
print(triu.int())
# --8<-- [end:masks]


# --8<-- [start:attend]
def attention(tokens: torch.Tensor, may_see: torch.Tensor) -> torch.Tensor:
    """Self-attention; may_see[i, j] says whether query i may see key j."""
    scores = tokens @ tokens.T / math.sqrt(tokens.size(-1))  # rows: queries, columns: keys
    return scores.masked_fill(~may_see, -math.inf).softmax(-1) @ tokens


tokens = randn(NUM_POSITIONS, D_HEAD)
edited = tokens.clone()
edited[-1] += 1  # another last token: nobody before it may notice


def who_notices(may_see: torch.Tensor) -> list[bool]:
    """For each position, whether its output changes with the last token."""
    before, after = attention(tokens, may_see), attention(edited, may_see)
    return [not torch.allclose(*pair) for pair in zip(before, after, strict=True)]


noticed_with_tril, noticed_with_triu = who_notices(tril), who_notices(triu)
print("tril:", noticed_with_tril)
print("triu:", noticed_with_triu)
# --8<-- [end:attend]


# --8<-- [start:mask_bytes]
tril_mask, triu_mask = tril.int().tolist(), triu.int().tolist()
hidden_keys = everything.triu(diagonal=1)  # True: may not be seen
assert hidden_keys.equal(~tril) and triu.equal(tril.T)
assert noticed_with_tril == [False] * (NUM_POSITIONS - 1) + [True]
assert noticed_with_triu == [True] * NUM_POSITIONS

mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device="meta").tril()
hidden = mask.bfloat16().repeat(SEQUENCES, HEADS, 1, 1)
bool_mask_bytes = get_memory_usage(mask)
float_mask_bytes = get_memory_usage(mask.float())
repeated_mask_bytes = get_memory_usage(mask.expand(hidden.shape).contiguous())

masking = count("s.masked_fill_(mask, 0)", {"s": hidden, "mask": mask})
assert allocated_bytes(masking) == 0  # broadcast over sequences and heads
print(f"bool {bool_mask_bytes:,}, float32 {float_mask_bytes:,}")
print(f"bool for each sequence and head {repeated_mask_bytes:,}")
# --8<-- [end:mask_bytes]


# --8<-- [start:decode_by_name]
with Trace() as named:
    result = einsum(query, keys[:, 0], "batch heads query d, batch key d -> batch heads query key")
print(f"einsum: {named.peak_bytes / 2**20:.0f} MiB")
# --8<-- [end:decode_by_name]


# --8<-- [start:decode_by_name_bytes]
BY_NAME = "einsum(query, keys[:, 0], 'b heads query d, b key d -> b heads query key')"
by_name_bytes = allocated_bytes(count(BY_NAME, decode("meta")))
assert torch.allclose(evaluate(BROADCAST, few), evaluate(BY_NAME, few))
assert named.peak_bytes == by_name_bytes == rows_bytes
# --8<-- [end:decode_by_name_bytes]


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


# --8<-- [start:catches]
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
for name, caught in catches.items():
    print(f"{name:9}", caught)
# --8<-- [end:catches]


# --8<-- [start:exercise_1]
five_operations = count("a * b + c * d - a / b", on_meta)
five_operations_peak_bytes = five_operations.peak_bytes
print([op.live_bytes // matrix_bytes for op in five_operations.operations])
assert allocated_bytes(five_operations) == 5 * matrix_bytes
assert five_operations_peak_bytes == 3 * matrix_bytes
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
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
print("by hand", [alive // matrix_bytes for alive in gelu_by_hand["live_bytes"]])
print("fused  ", [alive // matrix_bytes for alive in gelu_fused["live_bytes"]])
assert gelu_by_hand["peak_bytes"] == 3 * gelu_fused["peak_bytes"]
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
misread = attention(tokens, hidden_keys)  # what to hide, taken for what to show
print(misread[-1].tolist())
assert misread[-1].isnan().all() and not attention(tokens, tril).isnan().any()
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
# One new token, the last of NUM_POSITIONS, asks about all positions so far.
one_row = torch.ones(1, NUM_POSITIONS, dtype=torch.bool)
unshifted, shifted = one_row.tril(), one_row.tril(diagonal=NUM_POSITIONS - 1)
print("tril():           ", unshifted.int().tolist())
print("tril(diagonal=4): ", shifted.int().tolist())
assert shifted.equal(tril[-1:]) and not unshifted.equal(tril[-1:])
# --8<-- [end:exercise_4]
