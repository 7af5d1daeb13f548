# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Where a tensor's elements lie in memory, and what follows: which operations share, fail, copy, and at what speed."""

import gc
import io
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from flops_bytes.lessons.measure import (
    Timing,
    divide,
    get_allocated_bytes,
    get_device,
    get_peak_bytes_per_second,
    same_storage,
    time_call,
)

# --8<-- [start:logits]
BATCH, SEQ_LEN, VOCAB_SIZE = 8, 1024, 50257  # GPT-2's vocabulary
logits = torch.empty(BATCH, SEQ_LEN, VOCAB_SIZE, dtype=torch.bfloat16, device="meta")

last = logits[:, -1]
print("reports", last.nbytes, "bytes, holds", last.untyped_storage().nbytes())
last = logits[:, -1].clone()
print("reports", last.nbytes, "bytes, holds", last.untyped_storage().nbytes())
# --8<-- [end:logits]


NUM_BATCHES = 100

last_reported_bytes = last.nbytes
last_held_bytes = logits[:, -1].untyped_storage().nbytes()
list_bytes = {"views": NUM_BATCHES * last_held_bytes, "clones": NUM_BATCHES * last_reported_bytes}
assert last.untyped_storage().nbytes() == last_reported_bytes == logits[:, -1].nbytes


# --8<-- [start:tensor]
# Each element holds its own position in memory.
x = torch.arange(16, dtype=torch.float32).view(4, 4)
print(x)
print("shape", tuple(x.shape), "strides", x.stride(), "offset", x.storage_offset())

strip = x.as_strided(size=(16,), stride=(1,), storage_offset=0)
print("position 6 holds", strip[6].item(), "and x[1, 2] is", x[1, 2].item())
# --8<-- [end:tensor]


ROW, COLUMN = 1, 2  # which element to look for

num_elements = x.numel()
storage_bytes = x.untyped_storage().nbytes()
position = x.storage_offset() + ROW * x.stride(0) + COLUMN * x.stride(1)
assert strip[position] == x[ROW, COLUMN] == 6


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
assert paths["row"] == [4, 5, 6, 7] and paths["column"] == [1, 5, 9, 13]
# --8<-- [end:views]


# --8<-- [start:write]
x.t()[2, 1] = -1  # row 2, column 1 of the transpose …
print(x)  # … is row 1, column 2 of x
# --8<-- [end:write]


x[1, 2] = 6  # as it was


# --8<-- [start:share]
def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


print("x and its row: ", share(x, x[1]))
print("x and its clone:", share(x, x.clone()))
# --8<-- [end:share]


# What the page's table of operations says.
SHARING = [
    "x[1]",
    "x[:, 1]",
    "x[::2, ::2]",
    "x[None]",
    "x.narrow(0, 1, 2)",
    "x.squeeze()",
    "x.unsqueeze(0)",
    "x.diagonal()",
    "x.t()",
    "x.transpose(0, 1)",
    "x.mT",
    "x.movedim(0, 1)",
    "x.view(2, 2, 4).permute(2, 0, 1)",
    "x.view(2, 8)",
    "x.view(torch.int32)",
    "x.unfold(0, 2, 1)",
    "x.split(2)[1]",
    "x.chunk(2)[1]",
    "x.unbind()[1]",
    "x.detach()",
    "torch.as_tensor(x)",
    "torch.from_numpy(x.numpy())",
    "x.reshape(2, 8)",
    "x.flatten()",
    "x.contiguous()",
    "x.float()",
    "x[0].expand(100, 4)",
]
COPYING = [
    "x[0].repeat(100, 1)",
    "x.t().reshape(2, 8)",
    "x.t().flatten()",
    "x.t().contiguous()",
    "x.t().clone()",
    "x[[0, 2]]",
    "x[x > 7]",
    "x.index_select(0, torch.tensor([0, 2]))",
    "x.gather(0, torch.zeros(1, 4, dtype=torch.int64))",
    "x.flip(0)",
    "x.roll(1, 0)",
    "torch.cat([x, x])",
    "torch.stack([x, x])",
    "torch.tensor(x.tolist())",
    "torch.tensor(x.numpy())",
    "x.bfloat16()",
]
assert x.contiguous() is x is x.float()  # nothing to do, nothing done
assert all(same_storage(x, eval(code)) for code in SHARING)
assert not any(same_storage(x, eval(code)) for code in COPYING)
masked = x.clone()
masked[masked > 7].zero_()  # fills a copy
assert masked.equal(x)
masked[masked > 7] = 0  # writes into the tensor itself
assert masked.max() == 7


# --8<-- [start:keeps_alive]
def first_row() -> torch.Tensor:
    """One row of a large matrix, which nobody needs afterwards."""
    large = torch.zeros(1000, 1000)
    return large[0]  # the name `large` ends here; its storage does not


for row in (first_row(), first_row().clone()):
    print("reports", row.nbytes, "bytes, holds", row.untyped_storage().nbytes())
# --8<-- [end:keeps_alive]


# --8<-- [start:find]
kept = [first_row() for _ in range(3)]

for t in gc.get_objects():  # all objects of this process
    if issubclass(type(t), torch.Tensor):
        held = t.untyped_storage().nbytes()
        if held - t.nbytes > 2**20:
            print(tuple(t.shape), "reports", t.nbytes, "bytes, holds", held)
# --8<-- [end:find]
del kept


row_reported_bytes = first_row().nbytes  # elements × size
row_held_bytes = first_row().untyped_storage().nbytes()


# --8<-- [start:allocator]
def allocated_by(make: Callable[[], torch.Tensor]) -> int | None:
    """GPU memory that make() leaves taken while its result lives; None on a CPU."""
    before = get_allocated_bytes()
    made = make()
    after = get_allocated_bytes()
    del made
    return None if before is None or after is None else after - before


measured_view_bytes = allocated_by(lambda: torch.zeros(1000, 1000, device=get_device())[0])
measured_clone_bytes = allocated_by(lambda: torch.zeros(1000, 1000, device=get_device())[0].clone())
# --8<-- [end:allocator]


# --8<-- [start:contiguity]
y = x.t()  # strides (1, 4)
print("contiguous:", y.is_contiguous())
print("y.view(2, 2, 4) has strides", y.view(2, 2, 4).stride())
try:
    y.view(16)
except RuntimeError as error:
    print("y.view(16):", error)
# --8<-- [end:contiguity]


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


# --8<-- [start:reshape]
evens = x[:, ::2]  # not contiguous, but a single stride of 2 reaches all of it
print("evens.reshape(8) shares:          ", share(x, evens.reshape(8)))
print("evens.contiguous().view(8) shares:", share(x, evens.contiguous().view(8)))
print("x.t().reshape(16) shares:         ", share(x, x.t().reshape(16)))
# --8<-- [end:reshape]


assert evens.reshape(8).equal(evens.contiguous().view(8))
assert x.t().clone().stride() == (1, 4)  # the order is copied too
assert x.t().clone(memory_format=torch.contiguous_format).stride() == (4, 1)
assert evens.clone().stride() == (2, 1)  # evens has gaps, its clone has none


# --8<-- [start:expand]
thousand = torch.ones(1).expand(1000)
print("strides", thousand.stride())
print("reports", thousand.nbytes, "bytes, holds", thousand.untyped_storage().nbytes())
try:
    thousand.add_(1)
except RuntimeError as error:
    print("add_:", error)
# --8<-- [end:expand]


expand_reported_bytes = thousand.nbytes  # elements × size
expand_held_bytes = thousand.untyped_storage().nbytes()
assert thousand.add(1).stride() == (1,)  # a sum of its own is no longer expanded


leaf = torch.nn.Parameter(torch.ones(4, 4))
ERRORS = {  # an expression, and a part of what PyTorch says of it
    "merge": {"code": "x.t().view(16)", "says": "view size is not compatible with input tensor's size and stride"},
    "expand": {"code": "thousand.add_(1)", "says": "more than one element of the written-to tensor"},
    "overlap": {
        "code": "strip[1:].copy_(strip[:-1])",
        "says": "some elements of the input tensor and the written-to tensor",
    },
    "leaf": {"code": "leaf[0].add_(1)", "says": "a view of a leaf Variable that requires grad"},
    "step": {"code": "x[::-1]", "says": "step must be greater than zero"},
    "numpy": {"code": "torch.from_numpy(x.numpy()[::-1])", "says": "stride in the given numpy array is negative"},
}


def message(code: str) -> str:
    """What the error says that an expression raises."""
    try:
        eval(code)
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError(f"{code} raises no error")


assert all(error["says"] in message(error["code"]) for error in ERRORS.values())


# A square float32 matrix, smaller on a CPU, is read once and written once.
measured_side = 16384 if torch.cuda.is_available() else 2048
measured_moved_bytes = 2 * measured_side**2 * 4

predicted_bytes_per_second = get_peak_bytes_per_second()  # None without a datasheet
predicted_copy_seconds = divide(measured_moved_bytes, predicted_bytes_per_second)


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
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
cube = torch.arange(24).view(2, 3, 4)
turned = cube.permute(2, 0, 1)
print(cube.stride(), turned.stride())
print(cube[1, 2, 3].item(), turned[3, 1, 2].item())
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
print(x.as_strided(size=(4,), stride=(5,), storage_offset=0).tolist())
print(x.as_strided(size=(4,), stride=(3,), storage_offset=3).tolist())
# --8<-- [end:exercise_2]


assert x.as_strided((4,), (5,), 0).tolist() == [x[i, i].item() for i in range(4)]
assert x.as_strided((4,), (3,), 3).tolist() == [x[i, 3 - i].item() for i in range(4)]


# --8<-- [start:exercise_3]
NUM_HEADS, HEAD_DIM = 12, 64

q = torch.randn(1, 128, NUM_HEADS * HEAD_DIM, dtype=torch.bfloat16)
q = q.view(1, 128, NUM_HEADS, HEAD_DIM).transpose(1, 2)
for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
    with torch.no_grad(), sdpa_kernel(kernel):
        attended = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    merged = attended.transpose(1, 2).flatten(2)
    print(f"{kernel.name:16}", attended.stride(), "copies:", not share(attended, merged))
# --8<-- [end:exercise_3]


on_meta = torch.empty(BATCH, SEQ_LEN, NUM_HEADS, HEAD_DIM, dtype=torch.bfloat16, device="meta").transpose(1, 2)
flash = torch.ops.aten._scaled_dot_product_flash_attention(on_meta, on_meta, on_meta)[0]
assert can_merge(flash.transpose(1, 2), 2)  # laid out by the GPU's kernel, as PyTorch describes it

merge_moved_bytes = 2 * on_meta.nbytes  # read and written, if copied


# --8<-- [start:exercise_4]
for row in (first_row(), first_row().clone()):
    file = io.BytesIO()
    torch.save(row, file)
    print(f"{row.nbytes:,} bytes make a file of {file.getbuffer().nbytes / 1e3:,.0f} kB")
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
NUM_TOKENS, WINDOW, NUM_WINDOWS = 1_000_000, 1024, 64

corpus = torch.zeros(NUM_TOKENS, dtype=torch.int64)
windows = corpus.unfold(0, WINDOW, 1)  # each window begins one token later
batch = windows[torch.arange(NUM_WINDOWS)]  # indices have no stride: a copy
for tensor in (windows, batch):
    print(tensor.stride(), "reports", tensor.nbytes, "bytes, holds", tensor.untyped_storage().nbytes())
# --8<-- [end:exercise_5]


windows_reported_bytes = windows.nbytes
windows_held_bytes = windows.untyped_storage().nbytes()
batch_held_bytes = batch.untyped_storage().nbytes()
assert windows.shape == (NUM_TOKENS - WINDOW + 1, WINDOW)


# --8<-- [start:exercise_6]
# Llama 3 8B: 32 query heads share 8 heads of keys; one sequence, one layer
keys = torch.empty(1, 8, 8192, 128, dtype=torch.bfloat16, device="meta")
expanded = keys[:, :, None].expand(1, 8, 4, 8192, 128)
repeated = expanded.reshape(1, 32, 8192, 128)
print("strides", expanded.stride())
for tensor in (keys, expanded, repeated):
    print(tuple(tensor.shape), "holds", tensor.untyped_storage().nbytes(), "bytes")
# --8<-- [end:exercise_6]


keys_bytes = expanded.untyped_storage().nbytes()  # that of the 8 heads, still
repeated_bytes = repeated.untyped_storage().nbytes()
