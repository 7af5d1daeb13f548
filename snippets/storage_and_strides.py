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
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

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
print(x)
print("shape", tuple(x.shape), "strides", x.stride(), "offset", x.storage_offset())

strip = x.as_strided(size=(16,), stride=(1,), storage_offset=0)
print("position 6 holds", strip[6].item(), "and x[1, 2] is", x[1, 2].item())
# --8<-- [end:tensor]


# --8<-- [start:index]
ROW, COLUMN = 1, 2  # which element to look for

num_elements = x.numel()
storage_bytes = x.untyped_storage().nbytes()
position = x.storage_offset() + ROW * x.stride(0) + COLUMN * x.stride(1)
assert strip[position] == x[ROW, COLUMN] == 6
# --8<-- [end:index]


# --8<-- [start:numpy]
array = np.asarray(x)  # the same memory, in NumPy's hands
print("PyTorch, in elements:", x.stride())
print("NumPy, in bytes:     ", array.strides)
assert array.strides == tuple(step * x.element_size() for step in x.stride())
# --8<-- [end:numpy]


# --8<-- [start:views]
VIEWS = {  # as text, so that what is shown is what ran
    "row": "x[1]",
    "column": "x[:, 1]",
    "transpose": "x.t()",
    "slice": "x[::2, ::2]",
    "expand": "x[1].expand(2, 4)",
}

views = {name: eval(code) for name, code in VIEWS.items()}
offsets = {name: view.storage_offset() for name, view in views.items()}
shapes = {name: str(tuple(view.shape)) for name, view in views.items()}
strides = {name: str(view.stride()) for name, view in views.items()}
paths = {name: view.flatten().int().tolist() for name, view in views.items()}
matrix = {"offset": x.storage_offset(), "shape": str(tuple(x.shape)), "strides": str(x.stride())}
for name, code in VIEWS.items():
    print(f"{code:18}strides {strides[name]:7}path", *paths[name])
assert paths["row"] == [4, 5, 6, 7] and paths["column"] == [1, 5, 9, 13]
# --8<-- [end:views]


# --8<-- [start:write]
z = x.clone()  # a storage of its own, so that x stays as it is
z.t()[2, 1] = -1  # row 2, column 1 of the transpose …
print(z)  # … is row 1, column 2 of z
# --8<-- [end:write]


# --8<-- [start:operations]
OPERATIONS = [
    "x[1]",
    "x[:, 1]",
    "x[::2, ::2]",
    "x.t()",
    "x.view(2, 2, 4).permute(2, 0, 1)",
    "x.view(2, 8)",
    "x.unfold(0, 2, 1)",
    "x.split(2)[1]",
    "x.detach()",
    "x.reshape(2, 8)",
    "x.flatten()",
    "x.contiguous()",
    "x.float()",
    "x[0].expand(100, 4)",
    "x[0].repeat(100, 1)",
    "x.t().reshape(2, 8)",
    "x.t().flatten()",
    "x.t().contiguous()",
    "x.t().clone()",
    "x[[0, 2]]",
    "x[x > 7]",
    "torch.cat([x, x])",
    "x.bfloat16()",
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


# --8<-- [start:logits]
BATCH, SEQ_LEN, VOCAB_SIZE = 8, 1024, 50257  # GPT-2's vocabulary
NUM_BATCHES = 100

logits = torch.empty(BATCH, SEQ_LEN, VOCAB_SIZE, dtype=torch.bfloat16, device="meta")
last_reported_bytes = get_memory_usage(logits[:, -1])
last_held_bytes = logits[:, -1].untyped_storage().nbytes()
list_bytes = {"views": NUM_BATCHES * last_held_bytes, "clones": NUM_BATCHES * last_reported_bytes}
assert logits[:, -1].clone().untyped_storage().nbytes() == last_reported_bytes
# --8<-- [end:logits]


# --8<-- [start:keeps_alive]
def first_row() -> torch.Tensor:
    """One row of a large matrix, which nobody needs afterwards."""
    large = torch.zeros(1000, 1000, device=get_device())
    return large[0]  # the name `large` ends here; its storage does not


for row in (first_row(), first_row().clone()):
    shown = row.numel() * row.element_size()
    print("reports", shown, "bytes, holds", row.untyped_storage().nbytes())
# --8<-- [end:keeps_alive]


# --8<-- [start:held]
row_view, row_clone = first_row(), first_row().clone()

row_reported_bytes = get_memory_usage(row_view)  # elements × size
row_held_bytes = row_view.untyped_storage().nbytes()
clone_held_bytes = row_clone.untyped_storage().nbytes()
assert row_reported_bytes == get_memory_usage(row_clone) == clone_held_bytes
# --8<-- [end:held]


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


# --8<-- [start:share]
def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


print("the row begins where x does:", x[1].data_ptr() == x.data_ptr())
print("x and its row share memory: ", share(x, x[1]))
print("x and its clone do:         ", share(x, x.clone()))
# --8<-- [end:share]


# --8<-- [start:refuse]
empty = torch.empty(0), torch.empty(0)  # two tensors of no memory, and two more
meta = torch.empty(3, device="meta"), torch.empty(3, device="meta")
print("empty:", share(*empty), "and on meta:", share(*meta))
print(message_of(lambda: same_storage(*empty)))
print(message_of(lambda: same_storage(*meta)))

slices = torch.from_numpy(array), torch.from_numpy(array[1:])  # NumPy's, taken in twice
assert slices[0][1, 0] == slices[1][0, 0] and not same_storage(*slices)
# --8<-- [end:refuse]


# --8<-- [start:contiguity]
y = x.t()  # strides (1, 4)
print("contiguous:", y.is_contiguous())
print("y.view(2, 2, 4) works, with strides", y.view(2, 2, 4).stride())
print("y.view(16) fails:")
print(message_of(lambda: y.view(16)))
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


def describe_merge(code: str) -> dict[str, bool | str]:
    """Whether the two dimensions of an expression of x merge, and what the condition compares."""
    a = eval(code)
    assert can_merge(a, 0) == can_view_flat(a)
    sign = "=" if can_merge(a, 0) else "≠"
    return {
        "strides": str(a.stride()),
        "contiguous": a.is_contiguous(),
        "compares": f"{a.stride(0)} {sign} {a.stride(1)} · {a.size(1)}",
        "merges": can_merge(a, 0),
    }


MERGES = ["x", "x.t()", "x[::2]", "x[:, :2]", "x[:, ::2]"]
merges = [describe_merge(code) for code in MERGES]
print(sum(merge["merges"] is True for merge in merges), "of", len(merges), "merge")
# --8<-- [end:merge]


# --8<-- [start:reshape]
evens = x[:, ::2]  # not contiguous, but a single stride of 2 reaches all of it
print("evens.reshape(8) shares:          ", share(x, evens.reshape(8)))
print("evens.contiguous().view(8) shares:", share(x, evens.contiguous().view(8)))
print("x.t().reshape(16) shares:         ", share(x, x.t().reshape(16)))
# --8<-- [end:reshape]


# --8<-- [start:kept]
assert evens.reshape(8).equal(evens.contiguous().view(8))
assert x.contiguous() is x  # nothing to do, nothing done
assert x.t().clone().stride() == (1, 4)  # the order is copied too
assert x.t().clone(memory_format=torch.contiguous_format).stride() == (4, 1)
assert evens.clone().stride() == (2, 1)  # evens has gaps, its clone has none
# --8<-- [end:kept]


# --8<-- [start:expand]
thousand = torch.ones(1).expand(1000)
print("strides", thousand.stride())
print(message_of(lambda: thousand.add_(1)))
# --8<-- [end:expand]


# --8<-- [start:expanded]
expand_reported_bytes = get_memory_usage(thousand)  # elements × size
expand_held_bytes = thousand.untyped_storage().nbytes()
assert thousand.add(1).stride() == (1,)  # a sum of its own is no longer expanded
# --8<-- [end:expanded]


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
    # both in one order: PyTorch reads and writes along rows again
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


# --8<-- [start:sectors]
# PyTorch issue 113560: 32768 × 8192 in float8, without and with torch.compile
REPORTED_EAGER_SECONDS, REPORTED_COMPILED_SECONDS = 1.98e-3, 223.82e-6
SECTOR_BYTES = 32  # what a GPU fetches at once (CUDA C++ Best Practices Guide)

# a sector for each element read, the writes in order; over one read, one write
bounds_ratio = {size: (SECTOR_BYTES / size + 1) / 2 for size in (1, 2, 4)}
float8_reported_ratio = REPORTED_EAGER_SECONDS / REPORTED_COMPILED_SECONDS
print(f"reported {float8_reported_ratio:.2f}, bounds by element size", bounds_ratio)
assert bounds_ratio[4] < float8_reported_ratio < bounds_ratio[1]
# --8<-- [end:sectors]


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
NUM_HEADS, HEAD_DIM = 12, 64
D_MODEL = NUM_HEADS * HEAD_DIM


def split(tokens: torch.Tensor) -> torch.Tensor:
    """(batch, tokens, features) to (batch, heads, tokens, features of a head)."""
    return tokens.view(*tokens.shape[:2], NUM_HEADS, HEAD_DIM).transpose(1, 2)


def merge_copies(heads: torch.Tensor) -> bool:
    """Whether merging the heads again has to copy them."""
    tokens_first = heads.transpose(1, 2)
    copies = not can_merge(tokens_first, 2)
    assert copies != same_storage(heads, tokens_first.flatten(2))
    return copies


q = split(torch.randn(1, 128, D_MODEL, dtype=torch.bfloat16))
for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
    with torch.no_grad(), sdpa_kernel(kernel):
        attended = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    print(f"{kernel.name:16}", attended.stride(), "copies:", merge_copies(attended))

on_meta = split(torch.empty(BATCH, SEQ_LEN, D_MODEL, dtype=torch.bfloat16, device="meta"))
flash = torch.ops.aten._scaled_dot_product_flash_attention(on_meta, on_meta, on_meta)[0]
assert can_merge(flash.transpose(1, 2), 2)  # laid out by the GPU's kernel, as PyTorch describes it

merge_moved_bytes = 2 * get_memory_usage(on_meta)  # read and written, if copied
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
# Llama 3 8B: 32 query heads share 8 heads of keys; one sequence, one layer
keys = torch.empty(1, 8, 8192, 128, dtype=torch.bfloat16, device="meta")
expanded = keys[:, :, None].expand(1, 8, 4, 8192, 128)
repeated = expanded.reshape(1, 32, 8192, 128)

keys_bytes = expanded.untyped_storage().nbytes()  # that of the 8 heads, still
repeated_bytes = repeated.untyped_storage().nbytes()
print("strides", expanded.stride(), "can merge:", can_merge(expanded, 1))
print("expanded holds", keys_bytes, "bytes, repeated", repeated_bytes)
# --8<-- [end:exercise_6]
