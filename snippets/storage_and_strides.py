# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""Where a tensor's elements lie in memory, and what follows: which operations share, fail, copy, and at what speed."""

# --8<-- [start:setup]
import io
import textwrap
from collections.abc import Callable

import numpy as np
import torch

from flops_bytes.measure import (
    Timing,
    divide,
    get_allocated_bytes,
    get_device,
    get_memory_usage,
    get_peak_bytes_per_second,
    same_storage,
    time_call,
)


def message_of(call: Callable[[], object]) -> str:
    """What the error of a call says that has to fail."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return textwrap.fill(f"{type(error).__name__}: {error}", width=80)
    raise AssertionError("the call was expected to fail")


# --8<-- [end:setup]


# --8<-- [start:tensor]
# Each element holds its own position in memory.
x = torch.arange(16, dtype=torch.float32).view(4, 4)

num_elements = x.numel()
storage_bytes = x.untyped_storage().nbytes()
print(x)
print("shape", tuple(x.shape), "strides", x.stride(), "offset", x.storage_offset())
print(num_elements, "elements in a storage of", storage_bytes, "bytes")
# --8<-- [end:tensor]


# --8<-- [start:index]
ROW, COLUMN = 1, 2  # which element to look for

position = x.storage_offset() + ROW * x.stride(0) + COLUMN * x.stride(1)
strip = x.as_strided(size=(16,), stride=(1,), storage_offset=0)
print("position", position, "of the strip holds", strip[position].item())
assert strip[position] == x[ROW, COLUMN] == 6
# --8<-- [end:index]


# --8<-- [start:numpy]
array = np.asarray(x)  # the same memory, in NumPy's hands
print("PyTorch, in elements:", x.stride())
print("NumPy, in bytes:     ", array.strides)
assert array.strides == tuple(step * x.element_size() for step in x.stride())
# --8<-- [end:numpy]


# --8<-- [start:views]
VIEWS = {  # as text, so that what is printed is what ran
    "row": "x[1]",
    "column": "x[:, 1]",
    "transpose": "x.t()",
    "slice": "x[::2, ::2]",
    "expand": "x[1].expand(2, 4)",
}

views = {name: eval(code) for name, code in VIEWS.items()}
strides = {name: str(view.stride()) for name, view in views.items()}
paths = {name: view.flatten().int().tolist() for name, view in views.items()}
for name, code in VIEWS.items():
    print(f"{code:18}strides {strides[name]:7}path", *paths[name])
assert paths["row"] == [4, 5, 6, 7] and paths["column"] == [1, 5, 9, 13]
# --8<-- [end:views]


# --8<-- [start:write]
z = x.clone()  # a storage of its own, so that x stays as it is
z.t()[2, 1] = -1  # row 2, column 1 of the transpose …
print(z)
assert z[1, 2] == -1  # … is row 1, column 2 of z
# --8<-- [end:write]


# --8<-- [start:share]
print("x and its row:  ", same_storage(x, x[1]))
print("x and its clone:", same_storage(x, x.clone()))
assert x.data_ptr() != x[1].data_ptr()  # the row begins elsewhere in the storage
# --8<-- [end:share]


# --8<-- [start:refuse]
def same_address(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The usual test, not a safe one: do both storages begin at one address?"""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


empty = torch.empty(0), torch.empty(0)  # two tensors of no memory, and two more
meta = torch.empty(3, device="meta"), torch.empty(3, device="meta")
print("empty:", same_address(*empty), "and on meta:", same_address(*meta))
print(message_of(lambda: same_storage(*empty)))
print(message_of(lambda: same_storage(*meta)))

slices = torch.from_numpy(array), torch.from_numpy(array[1:])  # NumPy's, taken in twice
assert slices[0][1, 0] == slices[1][0, 0] and not same_storage(*slices)
# --8<-- [end:refuse]


# --8<-- [start:contiguity]
y = x.t()  # strides (1, 4)
print("y is contiguous:", y.is_contiguous())
print("y.view(16) fails:")
print(message_of(lambda: y.view(16)))

blocks = y.view(2, 2, 4)  # the same y, no more contiguous than before
print("y.view(2, 2, 4) works: strides", blocks.stride())
assert same_storage(x, blocks)
# --8<-- [end:contiguity]


# --8<-- [start:merge]
def can_merge(a: torch.Tensor, dim: int) -> bool:
    """Whether dimensions dim and dim + 1, both larger than 1, fit into one."""
    return a.stride(dim) == a.stride(dim + 1) * a.size(dim + 1)


def can_view_flat(a: torch.Tensor) -> bool:
    """Whether PyTorch itself views a as one dimension."""
    try:
        return a.view(-1).dim() == 1
    except RuntimeError:
        return False


print("           strides  contiguous  merges")
for code in ("x", "x.t()", "x[::2]", "x[:, :2]", "x[:, ::2]"):
    a = eval(code)
    print(f"{code:11}{a.stride()}   {a.is_contiguous()!s:12}{can_merge(a, 0)}")
    assert can_merge(a, 0) == can_view_flat(a)
# --8<-- [end:merge]


# --8<-- [start:reshape]
evens = x[:, ::2]  # not contiguous, but a single stride of 2 reaches all of it
flat, detour = evens.reshape(8), evens.contiguous().view(8)
print("evens.reshape(8) shares:          ", same_storage(x, flat))
print("evens.contiguous().view(8) shares:", same_storage(x, detour))
print("x.t().reshape(16) shares:         ", same_storage(x, x.t().reshape(16)))
assert flat.equal(detour)

assert x.contiguous() is x  # nothing to do, nothing done
assert x.t().clone().stride() == (1, 4)  # the order is copied too
# --8<-- [end:reshape]


# --8<-- [start:expand]
one = torch.ones(1)
thousand = one.expand(1000)

expand_reported_bytes = get_memory_usage(thousand)  # elements × size
expand_held_bytes = thousand.untyped_storage().nbytes()
print("strides", thousand.stride())
print("reports", expand_reported_bytes, "bytes, holds", expand_held_bytes)
print(message_of(lambda: thousand.add_(1)))
# --8<-- [end:expand]


# --8<-- [start:keeps_alive]
def first_row() -> torch.Tensor:
    """One row of a large matrix, which nobody needs afterwards."""
    matrix = torch.zeros(1000, 1000, device=get_device())
    return matrix[0]  # the name `matrix` ends here; its storage does not


row_view, row_clone = first_row(), first_row().clone()

row_reported_bytes = get_memory_usage(row_view)  # elements × size
row_held_bytes = row_view.untyped_storage().nbytes()
clone_held_bytes = row_clone.untyped_storage().nbytes()
print("the view holds", row_held_bytes, "bytes, its clone", clone_held_bytes)
print("each reports", row_reported_bytes)
assert row_reported_bytes == get_memory_usage(row_clone)
# --8<-- [end:keeps_alive]


# --8<-- [start:allocator]
def allocated_by(make: Callable[[], torch.Tensor]) -> int | None:
    """GPU memory that make() leaves taken while its result lives; None on a CPU."""
    before = get_allocated_bytes()
    made = make()
    after = get_allocated_bytes()
    del made
    return None if before is None or after is None else after - before


measured_view_bytes = allocated_by(first_row)
measured_clone_bytes = allocated_by(lambda: first_row().clone())
# --8<-- [end:allocator]


# --8<-- [start:operations]
OPERATIONS = [
    "x[1]",
    "x[:, 1]",
    "x[::2, ::2]",
    "x.t()",
    "x.view(2, 2, 4).permute(2, 0, 1)",
    "x.view(2, 8)",
    "x.reshape(2, 8)",
    "x.flatten()",
    "x.contiguous()",
    "x[0].expand(100, 4)",
    "x[0].repeat(100, 1)",
    "x.t().reshape(2, 8)",
    "x.t().flatten()",
    "x.t().contiguous()",
    "x.t().clone()",
]


def describe(code: str) -> dict[str, bool | int | str]:
    """What an expression of x yields: view or copy, its order, its bytes."""
    y = eval(code)
    return {
        "code": code,
        "shares": same_storage(x, y),
        "strides": str(y.stride()),
        "contiguous": y.is_contiguous(),
        "reported_bytes": get_memory_usage(y),
        "held_bytes": y.untyped_storage().nbytes(),
    }


operations = [describe(code) for code in OPERATIONS]
num_views = sum(operation["shares"] is True for operation in operations)
print(num_views, "of", len(operations), "share the storage of x")
# --8<-- [end:operations]


# --8<-- [start:predict]
# A square float32 matrix, smaller on a CPU, is read once and written once.
measured_side = 16384 if torch.cuda.is_available() else 2048
measured_moved_bytes = 2 * measured_side**2 * 4

predicted_bytes_per_second = get_peak_bytes_per_second()  # None without a datasheet
predicted_copy_seconds = divide(measured_moved_bytes, predicted_bytes_per_second)
print(f"to read and to write: {measured_moved_bytes:,} bytes, in either order")
# --8<-- [end:predict]


# --8<-- [start:measure]
torch.set_num_threads(1)  # on a CPU a transposed copy has no more
source = torch.rand(measured_side, measured_side, device=get_device())
target = torch.empty_like(source)

measured_copies = {
    # reads along rows, writes along rows
    "contiguous": time_call(lambda: target.copy_(source)),
    # reads down columns, writes along rows
    "transposed": time_call(lambda: target.copy_(source.t())),
    # reads down columns, writes down columns
    "both_transposed": time_call(lambda: target.t().copy_(source.t())),
}
for name, timing in measured_copies.items():
    print(f"{name:16}{timing.median_seconds * 1e3:8.3f} ms", end=", ")
    print(f"middle half within {timing.spread:.0%}, {timing.trials} trials")
# --8<-- [end:measure]


# --8<-- [start:compare]
def compare(timing: Timing) -> dict[str, float | None]:
    """A copy's rate, and its time over that of the first and over the prediction."""
    seconds = timing.median_seconds
    rate = measured_moved_bytes / seconds
    return {
        "rate_bytes_per_second": rate,
        "to_contiguous_ratio": seconds / measured_contiguous_seconds,
        "to_predicted_ratio": divide(seconds, predicted_copy_seconds),
        "peak_share": divide(rate, predicted_bytes_per_second),
    }


measured_contiguous_seconds = measured_copies["contiguous"].median_seconds
measured_transposed_seconds = measured_copies["transposed"].median_seconds
measured_slowdown_ratio = measured_transposed_seconds / measured_contiguous_seconds
measured_rates = {name: compare(t) for name, t in measured_copies.items()}
print(f"transposed takes {measured_slowdown_ratio:.2f} times as long")
# --8<-- [end:compare]


# --8<-- [start:cause]
def time_both(side: int) -> dict[str, float]:
    """Seconds an element of a copy in order and of a transposed one."""
    source = torch.rand(side, side, device=get_device())
    target = torch.empty_like(source)
    order = time_call(lambda: target.copy_(source), 10, 0.05).median_seconds
    transposed = time_call(lambda: target.copy_(source.t()), 10, 0.05).median_seconds
    return {"order": order / side**2, "transposed": transposed / side**2}


# in the cache; rows of 2,000 elements; rows of a power of two
measured_causes = {side: time_both(side) for side in (480, 2_000, 2_048)}
measured_in_cache = measured_causes[480]
measured_in_cache_ratio = measured_in_cache["transposed"] / measured_in_cache["order"]
for side, seconds in measured_causes.items():
    each = (f"{name} {1e9 * t:.2f} ns" for name, t in seconds.items())
    print(f"{side:5}:", *each, f"ratio {seconds['transposed'] / seconds['order']:.1f}")
# --8<-- [end:cause]


# --8<-- [start:exercise_1]
cube = torch.arange(24).view(2, 3, 4)
turned = cube.permute(2, 0, 1)
print(cube.stride(), turned.stride(), cube[1, 2, 3].item())
assert cube.stride() == (12, 4, 1) and turned.stride() == (1, 12, 4)
assert cube[1, 2, 3] == turned[3, 1, 2] == 1 * 12 + 2 * 4 + 3 * 1
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
diagonal = x.as_strided(size=(4,), stride=(5,), storage_offset=0)
antidiagonal = x.as_strided(size=(4,), stride=(3,), storage_offset=3)
print(diagonal.tolist(), antidiagonal.tolist())
assert diagonal.tolist() == [x[i, i].item() for i in range(4)]
assert antidiagonal.tolist() == [x[i, 3 - i].item() for i in range(4)]
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
BATCH, SEQ_LEN, NUM_HEADS, HEAD_DIM = 8, 1024, 12, 64
D_MODEL = NUM_HEADS * HEAD_DIM

tokens = torch.zeros(BATCH, SEQ_LEN, D_MODEL, dtype=torch.bfloat16)
split = tokens.view(BATCH, SEQ_LEN, NUM_HEADS, HEAD_DIM).transpose(1, 2)
assert same_storage(tokens, split)

heads = torch.zeros(BATCH, NUM_HEADS, SEQ_LEN, HEAD_DIM, dtype=torch.bfloat16)
tokens_first = heads.transpose(1, 2)
merged = tokens_first.reshape(BATCH, SEQ_LEN, D_MODEL)
assert not can_merge(tokens_first, 2) and not same_storage(heads, merged)

merge_moved_bytes = 2 * get_memory_usage(merged)
print("splitting moves 0 bytes, merging", merge_moved_bytes)
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
def saved_bytes(a: torch.Tensor) -> int:
    """Size of the file that torch.save makes of a."""
    file = io.BytesIO()
    torch.save(a, file)
    return file.getbuffer().nbytes


print(f"file of the view:  {saved_bytes(row_view) / 1e3:5,.0f} kB")
print(f"file of its clone: {saved_bytes(row_clone) / 1e3:5,.0f} kB")
assert row_held_bytes < saved_bytes(row_view) < row_held_bytes + 4000
assert clone_held_bytes < saved_bytes(row_clone) < clone_held_bytes + 4000
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
NUM_TOKENS, WINDOW, NUM_WINDOWS = 1_000_000, 1024, 64

corpus = torch.zeros(NUM_TOKENS, dtype=torch.int64)
windows = corpus.unfold(0, WINDOW, 1)  # each window begins one token later
assert windows.shape == (NUM_TOKENS - WINDOW + 1, WINDOW)
assert windows.stride() == (1, 1)

windows_reported_bytes = get_memory_usage(windows)
windows_held_bytes = windows.untyped_storage().nbytes()
batch = windows[torch.arange(NUM_WINDOWS)]  # indices have no stride: a copy
batch_held_bytes = batch.untyped_storage().nbytes()
print("windows report", windows_reported_bytes, "bytes, hold", windows_held_bytes)
print("a batch holds", batch_held_bytes)
assert not same_storage(windows, batch)
# --8<-- [end:exercise_5]


# --8<-- [start:exercise_6]
# PyTorch issue 113560: 32768 × 8192 in float8, without and with torch.compile
REPORTED_EAGER_SECONDS, REPORTED_COMPILED_SECONDS = 1.98e-3, 223.82e-6
SECTOR_BYTES = 32  # what a GPU fetches at once (CUDA C++ Best Practices Guide)

float8_moved_bytes = 2 * 32768 * 8192
float8_eager_bytes_per_second = float8_moved_bytes / REPORTED_EAGER_SECONDS
float8_compiled_bytes_per_second = float8_moved_bytes / REPORTED_COMPILED_SECONDS
float8_reported_ratio = REPORTED_EAGER_SECONDS / REPORTED_COMPILED_SECONDS

# a sector for each element read, the writes in order; over one read, one write
bounds_ratio = {size: (SECTOR_BYTES / size + 1) / 2 for size in (1, 2, 4)}
print(f"reported {float8_reported_ratio:.2f}, bounds by element size", bounds_ratio)
assert bounds_ratio[4] < float8_reported_ratio < bounds_ratio[1]
# --8<-- [end:exercise_6]
