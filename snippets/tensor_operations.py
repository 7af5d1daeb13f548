# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What tensor operations allocate: one by one, inside an expression, and in a product that broadcasts."""

# --8<-- [start:setup]
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from flops_bytes.measure import get_memory_usage, same_storage
from flops_bytes.trace import Trace


def message_of(call: Callable[[], object]) -> str:
    """What the error of a call says that has to fail."""
    try:
        call()
    except (RuntimeError, TypeError) as error:
        message = str(error).split(" Hint")[0]
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


# --8<-- [start:in_place]
h = torch.zeros(3)
old = h  # a second name for the same tensor

h += 1  # h.add_(1): written over the old numbers
print("h += 1       h", h.tolist(), " old", old.tolist())
assert same_storage(h, old)

h = h + 1  # a new tensor, which takes the name h
print("h = h + 1    h", h.tolist(), " old", old.tolist())
assert not same_storage(h, old)
# --8<-- [end:in_place]


# --8<-- [start:autograd]
w = torch.ones(3, requires_grad=True)
y = w.exp()  # the gradient of exp is exp, so autograd keeps y …
y.add_(1)  # … which is now something else
print(message_of(lambda: y.sum().backward()))
# --8<-- [end:autograd]


# --8<-- [start:count]
def evaluate(code: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """What an expression of these tensors yields."""
    libraries = {"torch": torch, "F": F, "math": math}
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


# --8<-- [start:three_terms]
SIDE = 8192  # of a square float32 matrix


def matrices(device: str) -> dict[str, torch.Tensor]:
    """Four square matrices and a row; on "meta", shapes without memory."""
    square = {name: torch.rand(SIDE, SIDE, device=device) for name in "abcd"}
    return {**square, "row": torch.rand(SIDE, device=device)}


on_meta = matrices("meta")
matrix_bytes = get_memory_usage(on_meta["a"])
three_terms = count("a * b + c", on_meta)
three_terms_peak_bytes = three_terms.peak_bytes
for name, _, taken, alive in three_terms.operations:
    print(f"{name}: +{taken / 2**20:.0f} MiB, {alive / 2**20:.0f} MiB alive")
assert three_terms_peak_bytes == 2 * matrix_bytes
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
# --8<-- [end:expressions]


# --8<-- [start:describe]
def describe(code: str) -> dict[str, Any]:
    """What an expression takes in all, at its peak, and after each operation."""
    trace = count(code, on_meta)
    return {
        "code": code,
        "allocated_bytes": allocated_bytes(trace),
        "peak_bytes": trace.peak_bytes,
        "live_bytes": [operation.live_bytes for operation in trace.operations],
    }


expressions = [describe(code) for code in BY_HAND]
for row, by_hand in zip(expressions, BY_HAND.values(), strict=True):
    print(f"{row['peak_bytes'] / matrix_bytes:.0f}  {row['code']}")
    assert row["peak_bytes"] == by_hand * matrix_bytes
# --8<-- [end:describe]


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


# --8<-- [start:masks]
NUM_POSITIONS, D_HEAD = 5, 4

everything = torch.ones(NUM_POSITIONS, NUM_POSITIONS, dtype=torch.bool)
tril, triu = everything.tril(), everything.triu()
tril_mask, triu_mask = tril.int().tolist(), triu.int().tolist()
print(tril.int())
print(triu.int())
hidden_keys = everything.triu(diagonal=1)  # True: may not be seen
assert hidden_keys.equal(~tril) and triu.equal(tril.T)
# --8<-- [end:masks]


# --8<-- [start:attend]
def attend(tokens: torch.Tensor, may_see: torch.Tensor) -> torch.Tensor:
    """Self-attention; may_see[i, j] says whether query i may see key j."""
    scores = tokens @ tokens.T / math.sqrt(D_HEAD)  # rows: queries, columns: keys
    return scores.masked_fill(~may_see, -math.inf).softmax(-1) @ tokens


tokens = randn(NUM_POSITIONS, D_HEAD)
edited = tokens.clone()
edited[-1] += 1  # another last token: nobody before it may notice


def who_notices(may_see: torch.Tensor) -> list[bool]:
    """For each position, whether its output changes with the last token."""
    before, after = attend(tokens, may_see), attend(edited, may_see)
    return [not torch.allclose(*pair) for pair in zip(before, after, strict=True)]


noticed_with_tril, noticed_with_triu = who_notices(tril), who_notices(triu)
print("tril:", noticed_with_tril)
print("triu:", noticed_with_triu)
assert noticed_with_tril == [False] * (NUM_POSITIONS - 1) + [True]
assert noticed_with_triu == [True] * NUM_POSITIONS
# --8<-- [end:attend]


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
wrong_loss, right_loss = wrong.pow(2).mean().item(), right.pow(2).mean().item()
print("predictions       ", tuple(wrong.shape), "loss", wrong_loss)
print("predictions[:, 0] ", tuple(right.shape), "  loss", right_loss)
assert wrong_loss == 4 and right_loss == 0
# --8<-- [end:silent]


# --8<-- [start:batched]
BATCH, NUM_HEADS, SEQ_LEN, D_IN, D_OUT = 4, 8, 16, 32, 2

x = randn(BATCH, NUM_HEADS, SEQ_LEN, D_IN)
w = randn(D_IN, D_OUT)
y = x @ w
print(tuple(x.shape), "@", tuple(w.shape), "→", tuple(y.shape))

for b in range(BATCH):
    for n in range(NUM_HEADS):  # one small product for each leading index …
        assert torch.allclose(y[b, n], x[b, n] @ w)
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
# --8<-- [end:trace]


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


def compare(code: str, counted: int, make: Make = matrices) -> dict[str, Any]:
    """The allocator's peak, and its ratio to the counted one."""
    peak_bytes = measure_peak(code, make)
    ratio = peak_bytes / counted if peak_bytes is not None and counted else None
    return {"peak_bytes": peak_bytes, "to_counted_ratio": ratio}


measured_operations = [compare(o["code"], o["allocated_bytes"]) for o in operations]
measured_expressions = [compare(e["code"], e["peak_bytes"]) for e in expressions]
print("a * b + c on the GPU:", measured_expressions[0])
# --8<-- [end:measure]


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

gelu_by_hand, gelu_fused = describe(GELU), describe(FUSED)
measured_gelu = [
    compare(GELU, gelu_by_hand["peak_bytes"]),
    compare(FUSED, gelu_fused["peak_bytes"]),
]
sample = {"a": randn(100)}
assert torch.allclose(evaluate(GELU, sample), evaluate(FUSED, sample))
print("by hand", [alive // matrix_bytes for alive in gelu_by_hand["live_bytes"]])
print("fused  ", [alive // matrix_bytes for alive in gelu_fused["live_bytes"]])
assert gelu_by_hand["peak_bytes"] == 3 * gelu_fused["peak_bytes"]
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
misread = attend(tokens, hidden_keys)  # what to hide, taken for what to show
print(misread[-1].tolist())
assert misread[-1].isnan().all() and not attend(tokens, tril).isnan().any()
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
# One new token, the last of NUM_POSITIONS, asks about all positions so far.
one_row = torch.ones(1, NUM_POSITIONS, dtype=torch.bool)
unshifted, shifted = one_row.tril(), one_row.tril(diagonal=NUM_POSITIONS - 1)
print("tril():           ", unshifted.int().tolist())
print("tril(diagonal=4): ", shifted.int().tolist())
assert shifted.equal(tril[-1:]) and not unshifted.equal(tril[-1:])
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
CONTEXT, SEQUENCES, HEADS = 8192, 8, 32

mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device="meta").tril()
scores = mask.bfloat16().repeat(SEQUENCES, HEADS, 1, 1)
bool_mask_bytes = get_memory_usage(mask)
float_mask_bytes = get_memory_usage(mask.float())
repeated_mask_bytes = get_memory_usage(mask.expand(scores.shape).contiguous())

masking = count("s.masked_fill_(mask, 0)", {"s": scores, "mask": mask})
assert allocated_bytes(masking) == 0  # broadcast over sequences and heads
print(f"bool {bool_mask_bytes:,}, float32 {float_mask_bytes:,}")
print(f"bool for each sequence and head {repeated_mask_bytes:,}")
# --8<-- [end:exercise_5]


# --8<-- [start:exercise_6]
D_KEY = 128
QUERY, KEYS = (SEQUENCES, HEADS, 1, D_KEY), (SEQUENCES, 1, CONTEXT, D_KEY)
BROADCAST = "query @ keys.mT"
ROWS = "query.transpose(1, 2) @ keys.mT"  # heads as rows of one matrix


def decode(device: str) -> dict[str, torch.Tensor]:
    """One new query per head; all heads of a sequence share their keys."""
    return {
        "query": torch.rand(QUERY, device=device).bfloat16(),
        "keys": torch.rand(KEYS, device=device).bfloat16(),
    }


keys_bytes = get_memory_usage(decode("meta")["keys"])
broadcast_bytes = allocated_bytes(count(BROADCAST, decode("meta")))
rows_bytes = allocated_bytes(count(ROWS, decode("meta")))
measured_decode = [
    compare(BROADCAST, broadcast_bytes, decode),
    compare(ROWS, rows_bytes, decode),
]
print(f"keys          {keys_bytes:11,}")
print(f"broadcast     {broadcast_bytes:11,}")
print(f"heads as rows {rows_bytes:11,}")

few = {"query": randn(2, 4, 1, 8), "keys": randn(2, 1, 6, 8)}
as_rows = evaluate(ROWS, few).transpose(1, 2)
assert torch.allclose(evaluate(BROADCAST, few), as_rows)
assert broadcast_bytes == HEADS * keys_bytes + rows_bytes
# --8<-- [end:exercise_6]
