# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a tensor costs on a GPU: as requested, as allocated, as reserved, over time, and on its way there."""

# --8<-- [start:setup]
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch

# accounting.py, the book's toolkit, lies beside this file
from accounting import Timing, Trace, divide, get_device, get_memory_usage, time_call

MIB, GIB = 2**20, 2**30


def show(what: str, value: object) -> None:
    """A line of output; without a GPU it says so."""
    print(f"{what}:", "not measured, no CUDA GPU here" if value is None else value)


def in_mib(sizes: Mapping[str, int]) -> str:
    """Several counts on one line."""
    return ", ".join(f"{name.removesuffix('_bytes')} {size // MIB} MiB" for name, size in sizes.items())


# --8<-- [end:setup]


# --8<-- [start:where]
x = torch.zeros(4, 8)  # on the CPU, unless told otherwise
moved = x.to(get_device())  # copied to the GPU, if there is one
made = torch.zeros(4, 8, device=get_device())  # made there: nothing to copy
shape_only = torch.zeros(4, 8, device="meta")  # a shape without memory

for name, tensor in {"x": x, "moved": moved, "made": made, "shape_only": shape_only}.items():
    print(f"{name:11}{tensor.device}")
assert x.to("cpu") is x  # already there: nothing is copied
del moved, made, tensor  # the last name gone, the memory goes back
# --8<-- [end:where]


# --8<-- [start:properties]
def describe_gpu() -> dict[str, int | str | None]:
    """The first GPU, as CUDA describes it; every entry None without one."""
    if not torch.cuda.is_available():
        return dict.fromkeys(("name", "total_bytes", "free_bytes", "multiprocessors"))
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    return {
        "name": properties.name,
        "total_bytes": total,
        "free_bytes": free,
        "multiprocessors": properties.multi_processor_count,
    }


measured_gpu = describe_gpu()
show("GPU", measured_gpu["name"] and measured_gpu)
# --8<-- [end:properties]


# --8<-- [start:measure]
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def get_counts(moment: str = "current") -> dict[str, int]:
    """The allocator's three counts now, or at their "peak"."""
    stats = torch.cuda.memory_stats()  # empty as long as nothing was done on the GPU
    return {count: stats.get(f"{count}.all.{moment}", 0) for count in COUNTS}


def measure(make: Callable[[], object]) -> dict[str, int | None]:
    """What the result of make() adds to each count; None without CUDA or where it does not fit."""
    if not torch.cuda.is_available():
        return dict.fromkeys(COUNTS)
    torch.cuda.empty_cache()
    before = get_counts()
    try:
        _made, after = make(), get_counts()  # read while what was made is alive
    except torch.OutOfMemoryError:
        return dict.fromkeys(COUNTS)
    return {count: after[count] - before[count] for count in COUNTS}


# --8<-- [end:measure]


# --8<-- [start:claim]
def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, device="cuda")


pair_bytes = 2 * get_memory_usage(torch.zeros(32, 32, device="meta"))
lone_bytes = get_memory_usage(torch.zeros(4, 8, device="meta"))
measured_pair = measure(lambda: [zeros(32, 32), zeros(32, 32)])
measured_lone = measure(lambda: zeros(4, 8))
print("two 32 × 32, elements × size:", pair_bytes)
show("allocated", measured_pair["allocated_bytes"])
print("one 4 × 8, elements × size:", lone_bytes)
show("allocated", measured_lone["allocated_bytes"])
# --8<-- [end:claim]


# --8<-- [start:rules]
# c10/core/AllocatorConfig.h of PyTorch; in brackets their names there
MIN_BLOCK_BYTES = 512  # every request is rounded up to a multiple of it (kMinBlockSize)
SMALL_BYTES = 1 * MIB  # the largest small request (kSmallSize)
SMALL_SEGMENT_BYTES = 2 * MIB  # small requests share segments of this size (kSmallBuffer)
LARGE_SEGMENT_BYTES = 20 * MIB  # larger ones these (large_segment_size)
OWN_SEGMENT_BYTES = 10 * MIB  # from here on a request gets its own segment (kMinLargeAlloc)
SEGMENT_STEP_BYTES = 2 * MIB  # rounded up to a multiple of this (kRoundLarge)


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def block_size(requested: int) -> int:
    """What a request takes, unless the rest of its block is too small to be split off."""
    return round_up(requested, MIN_BLOCK_BYTES)


def segment_size(block: int) -> int:
    """What CUDA is asked for, when no free block is large enough."""
    if block <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return round_up(block, SEGMENT_STEP_BYTES)


# --8<-- [end:rules]


# --8<-- [start:luck]
pair_allocated_bytes = 2 * block_size(pair_bytes // 2)
lone_allocated_bytes = block_size(lone_bytes)
print("two 32 × 32:", pair_bytes, "requested,", pair_allocated_bytes, "allocated")
print("one 4 × 8:  ", lone_bytes, "requested,", lone_allocated_bytes, "allocated")
assert pair_allocated_bytes == pair_bytes  # by luck: 4,096 is a multiple of 512
assert lone_allocated_bytes != lone_bytes  # the same check, the next shape
# --8<-- [end:luck]


# --8<-- [start:allocator]
@dataclass(eq=False)
class Block:
    size: int
    requested: int = 0  # 0 while it is free


class Allocator:
    """PyTorch's caching allocator in small: one stream, default settings (CUDACachingAllocator.cpp)."""

    def __init__(self, capacity: int = 10**15) -> None:
        self.capacity = capacity
        self.small: list[list[Block]] = []  # segments, each a row of blocks
        self.large: list[list[Block]] = []
        self.peaks = dict.fromkeys(COUNTS, 0)

    def counts(self) -> dict[str, int]:
        blocks = [block for segment in self.small + self.large for block in segment]
        used = [block for block in blocks if block.requested]
        return {
            "requested_bytes": sum(block.requested for block in used),
            "allocated_bytes": sum(block.size for block in used),
            "reserved_bytes": sum(block.size for block in blocks),
        }

    def malloc(self, requested: int) -> Block:
        """The smallest free block that is large enough, else a new segment. Raises MemoryError."""
        size = block_size(requested)
        pool = self.small if size <= SMALL_BYTES else self.large
        fits = [
            (block.size, i, j)
            for i, segment in enumerate(pool)
            for j, block in enumerate(segment)
            if not block.requested and block.size >= size
        ]
        if not fits:
            self._reserve(pool, segment_size(size))
        _, i, j = min(fits) if fits else (0, len(pool) - 1, 0)
        block, rest = pool[i][j], pool[i][j].size - size
        if rest > SMALL_BYTES or (pool is self.small and rest > 0):  # else it is handed out whole
            block.size = size
            pool[i].insert(j + 1, Block(rest))
        block.requested = requested
        self.peaks = {name: max(self.peaks[name], now) for name, now in self.counts().items()}
        return block

    def _reserve(self, pool: list[list[Block]], size: int) -> None:
        """Asks CUDA for a segment; if it has none, gives back the empty ones and asks again."""
        if self.counts()["reserved_bytes"] + size > self.capacity:
            self.empty_cache()
        _, allocated, reserved = self.counts().values()
        if reserved + size > self.capacity:
            sizes = [b // MIB for b in (size, self.capacity, allocated, reserved - allocated)]
            raise MemoryError(
                "Tried to allocate {} MiB; {} MiB allowed, {} MiB allocated, {} MiB reserved but unallocated".format(
                    *sizes
                )
            )
        pool.append([Block(size)])

    def free(self, block: Block) -> None:
        """Marks a block as free and merges it with free neighbours; CUDA gets nothing back."""
        block.requested = 0
        for segment in self.small + self.large:
            for left, right in reversed(list(pairwise(segment))):
                if not left.requested and not right.requested:
                    left.size += right.size
                    segment.remove(right)

    def empty_cache(self) -> None:
        """Gives back the segments that hold nothing."""
        for pool in (self.small, self.large):
            pool[:] = [segment for segment in pool if any(block.requested for block in segment)]


# --8<-- [end:allocator]


# --8<-- [start:requests]
SHAPES = {
    "1": (1,),
    "4x8": (4, 8),
    "32x32": (32, 32),
    "1000x1000": (1000, 1000),
    "1024x2816": (1024, 2816),
    "12288x49152": (12288, 49152),  # a feed-forward matrix of GPT-3
}


def predict(*requests: int) -> dict[str, int]:
    """The three counts after these requests, in an allocator that was empty."""
    allocator = Allocator()
    for request in requests:
        allocator.malloc(request)
    return allocator.counts()


def empty(shape: tuple[int, ...], device: str = "cuda") -> torch.Tensor:
    return torch.empty(shape, device=device)


requests = {name: predict(get_memory_usage(empty(shape, device="meta"))) for name, shape in SHAPES.items()}
measured_requests = {name: measure(partial(empty, shape)) for name, shape in SHAPES.items()}
for name, counts in requests.items():
    print(f"{name:12}", *(f"{count:>13,}" for count in counts.values()))
# --8<-- [end:requests]


# --8<-- [start:fragment]
NUM_TENSORS, TENSOR_BYTES, NEXT_BYTES = 10, 4 * MIB, 12 * MIB

card = Allocator(capacity=40 * MIB)
blocks = [card.malloc(TENSOR_BYTES) for _ in range(NUM_TENSORS)]
for block in blocks[::2]:
    card.free(block)
card.empty_cache()  # finds no empty segment

fragmented = card.counts()
fragmented_unused_bytes = fragmented["reserved_bytes"] - fragmented["allocated_bytes"]
fragmented_segments = [[[b.size, b.requested > 0] for b in segment] for segment in card.large]
print(in_mib(fragmented))
try:
    card.malloc(NEXT_BYTES)
    raise AssertionError("this request was expected to fail")
except MemoryError as error:
    print(error)
# --8<-- [end:fragment]


# --8<-- [start:fragment_gpu]
def make_gaps() -> list[torch.Tensor]:
    """The same on the GPU: ten tensors, every other one dropped, the cache emptied."""
    tensors = [empty((TENSOR_BYTES // 4,)) for _ in range(NUM_TENSORS)]
    del tensors[::2]
    torch.cuda.empty_cache()
    return tensors


measured_fragmented = measure(make_gaps)
show("reserved by the real allocator", measured_fragmented["reserved_bytes"])
# --8<-- [end:fragment_gpu]


# --8<-- [start:layers]
NUM_VECTORS, VECTOR = 100, 1000  # a hundred vectors of a thousand float32


def look_from_outside() -> dict[str, int | None]:
    """All counts with the vectors in memory, and what the card as a whole has in use."""
    if not torch.cuda.is_available():
        return dict.fromkeys((*COUNTS, "used_bytes", "outside_bytes"))
    torch.cuda.empty_cache()
    _vectors, counts = [zeros(VECTOR) for _ in range(NUM_VECTORS)], get_counts()
    free, total = torch.cuda.mem_get_info()
    used = total - free
    return {**counts, "used_bytes": used, "outside_bytes": used - counts["reserved_bytes"]}


layers = predict(*[4 * VECTOR] * NUM_VECTORS)
measured_layers = look_from_outside()
print(layers)
show("used on the whole card", measured_layers["used_bytes"])
# --8<-- [end:layers]


# --8<-- [start:oom]
def oom_message(call: Callable[[], object]) -> str:
    """What PyTorch says of a request that cannot be met."""
    try:
        call()
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError("the request was expected to fail")


def ask_for_too_much() -> str | None:
    """A tensor of one GiB more than the card has."""
    if not torch.cuda.is_available():
        return None
    _, total = torch.cuda.mem_get_info()
    return oom_message(lambda: empty(((total + GIB) // 4,)))


def ask_between_gaps() -> str | None:
    """The fragmented state, with no more memory allowed than is reserved then."""
    if not torch.cuda.is_available():
        return None
    _gaps, (_, total) = make_gaps(), torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        return oom_message(lambda: empty((NEXT_BYTES // 4,)))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


measured_too_much_message = ask_for_too_much()
measured_gaps_message = ask_between_gaps()
for message in (measured_too_much_message, measured_gaps_message):
    print(textwrap.fill(message or "not measured, no CUDA GPU here", width=88), end="\n\n")
# --8<-- [end:oom]


# --8<-- [start:step]
NUM_LAYERS, BATCH, WIDTH = 4, 2048, 1024
weight_bytes = WIDTH * WIDTH * 4  # float32
activation_bytes = BATCH * WIDTH * 4


def step(device: str) -> None:
    """Forward and backward through a small network, from nothing to gradients."""
    x = empty((BATCH, WIDTH), device)
    weights = [empty((WIDTH, WIDTH), device).requires_grad_() for _ in range(NUM_LAYERS)]
    h = x
    for weight in weights:
        h = torch.relu(h @ weight)
    torch.autograd.grad(h, weights, torch.ones_like(h))


print("one weight:    ", weight_bytes // MIB, "MiB")
print("one activation:", activation_bytes // MIB, "MiB")
# --8<-- [end:step]


# --8<-- [start:predict_changes]
KINDS = ("weights", "activations", "temporary", "gradients")


def predict_changes(w: int, a: int) -> list[tuple[str, int]]:
    """Each allocation (+) and release (-) of a step, in bytes; w is a weight, a an activation."""
    changes = [("activations", a)] + [("weights", w)] * NUM_LAYERS  # first the input
    for _ in range(NUM_LAYERS):  # the product h @ weight, its relu, and the product is let go
        changes += [("temporary", a), ("activations", a), ("temporary", -a)]
    changes += [("temporary", a)]  # ones_like: the gradient that backward starts from
    for layer in reversed(range(NUM_LAYERS)):
        changes += [("temporary", a)]  # the gradient, back through relu
        if layer < NUM_LAYERS - 1:  # the gradient that came in, and relu's output
            changes += [("temporary", -a), ("activations", -a)]
        changes += [("gradients", w)]
        if layer > 0:  # the first layer's input needs no gradient
            changes += [("temporary", a)]
        changes += [("temporary", -a)]
    return changes


# --8<-- [end:predict_changes]


# --8<-- [start:predict_levels]
def levels(changes: Iterable[int]) -> list[int]:
    """Bytes in use after each allocation."""
    changes = list(changes)
    pairs = zip(accumulate(changes), changes, strict=True)
    return [level for level, change in pairs if change > 0]


changes = predict_changes(weight_bytes, activation_bytes)
timeline = [
    {kind: sum(size for name, size in changes[: i + 1] if name == kind) for kind in KINDS}
    for i, (_, change) in enumerate(changes)
    if change > 0
]
timeline_bytes = levels(change for _, change in changes)
peak_bytes = max(timeline_bytes)
kept_bytes = 2 * NUM_LAYERS * weight_bytes + (NUM_LAYERS + 1) * activation_bytes
print("weights, gradients, input, activations:", kept_bytes // MIB, "MiB")
print("peak:", peak_bytes // MIB, "MiB")
print(in_mib(timeline[timeline_bytes.index(peak_bytes)]))
assert peak_bytes == (NUM_LAYERS + 4) * activation_bytes + (NUM_LAYERS + 1) * weight_bytes
assert weight_bytes <= activation_bytes  # else it comes later, when gradients have piled up
# --8<-- [end:predict_levels]


# --8<-- [start:recorder]
with Trace() as step_trace:
    step("meta")

counted_bytes = levels(change for _, change in step_trace.changes)
print(len(counted_bytes), "allocations, peak", max(counted_bytes) // MIB, "MiB")
assert counted_bytes == timeline_bytes
# --8<-- [end:recorder]


# --8<-- [start:history]
def record_history() -> dict[str, Any]:
    """One step in the allocator's own words; every entry None without CUDA."""
    if not torch.cuda.is_available():
        return dict.fromkeys(("timeline_bytes", "other_bytes", "left_bytes", "peaks"))
    before = get_counts()
    step("cuda")  # the first matmul also takes a workspace for cuBLAS, which may stay
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    start = get_counts()
    torch.cuda.reset_peak_memory_stats()  # from here on, not since the process began
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python")
    step("cuda")
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)

    signs = {"alloc": 1, "free_completed": -1}
    changes = [signs[e["action"]] * e["size"] for e in trace if e["action"] in signs]
    ours = {weight_bytes, activation_bytes}
    peaks = get_counts("peak")
    return {
        "timeline_bytes": levels(change for change in changes if abs(change) in ours),
        "other_bytes": sum(change for change in changes if change > 0 and change not in ours),
        "left_bytes": start["allocated_bytes"] - before["allocated_bytes"],
        "peaks": {count: peaks[count] - start[count] for count in COUNTS},
    }


measured_step = record_history()
show("left after the first step", measured_step["left_bytes"])
show("allocated in the second, not by tensors of ours", measured_step["other_bytes"])
# --8<-- [end:history]


# --8<-- [start:peaks]
def replay(changes: Iterable[tuple[int, int]]) -> dict[str, int]:
    """The peaks of the three counts when these changes reach an empty allocator."""
    allocator = Allocator()
    held: dict[int, Block] = {}
    for storage, change in changes:
        if change > 0:
            held[storage] = allocator.malloc(change)
        else:
            allocator.free(held.pop(storage))
    return allocator.peaks


step_peaks = replay(step_trace.changes)
measured_peaks = measured_step["peaks"] or dict.fromkeys(COUNTS)
measured_peaks_ratio = {count: divide(measured_peaks[count], step_peaks[count]) for count in COUNTS}
print(in_mib(step_peaks))
# --8<-- [end:peaks]


# --8<-- [start:link]
# 16 lanes, each 16e9 (PCIe 4) or 32e9 (PCIe 5) bits a second, 128 of every 130 payload
LINK_BYTES_PER_SECOND = {
    "NVIDIA A100-SXM4-80GB": 16 * 16e9 * 128 / 130 / 8,
    "NVIDIA H100 80GB HBM3": 16 * 32e9 * 128 / 130 / 8,
    "NVIDIA H200": 16 * 32e9 * 128 / 130 / 8,
}
measured_transfer_bytes = 256 * MIB if torch.cuda.is_available() else 16 * MIB
predicted_bytes_per_second = LINK_BYTES_PER_SECOND.get(str(measured_gpu["name"]))
predicted_transfer_seconds = divide(measured_transfer_bytes, predicted_bytes_per_second)
print("predicted seconds:", predicted_transfer_seconds)
# --8<-- [end:link]


# --8<-- [start:in_line]
def in_line_over_pageable(copy: float, link: float) -> float:
    """First copy all, then send all; against sending piece by piece while the copying goes on."""
    return (copy + link) / max(copy, link)


COPY_TIMES = [2.0**power for power in range(-6, 7)]  # the link's time being 1
in_line_ratios = [in_line_over_pageable(copy, 1) for copy in COPY_TIMES]
worst_in_line_ratio = max(in_line_ratios)
print(*(f"{ratio:.2f}" for ratio in in_line_ratios))
assert min(in_line_ratios) > 1  # "pin it, and it goes faster" fails whatever the two speeds are
assert worst_in_line_ratio == in_line_over_pageable(1, 1) == 2
# --8<-- [end:in_line]


# --8<-- [start:transfer]
source = torch.rand(measured_transfer_bytes // 4)  # ordinary memory: pageable
pinned = torch.empty_like(source, pin_memory=torch.cuda.is_available())


def time_transfer(transfer: Callable[[], torch.Tensor]) -> Timing | None:
    """Seconds until the data is there; None without CUDA."""

    def transfer_and_wait() -> None:
        transfer()
        torch.cuda.synchronize()  # or the next trial would pin while this one is being sent

    return time_call(transfer_and_wait) if torch.cuda.is_available() else None


def time_first_pin() -> float | None:
    """Seconds to pin memory that was never pinned before; afterwards PyTorch caches it."""
    if not torch.cuda.is_available():
        return None
    began = time.perf_counter()
    source.pin_memory()
    return time.perf_counter() - began


measured_first_pin_seconds = time_first_pin()
measured_host_copy = time_call(lambda: pinned.copy_(source))  # within the CPU's memory
measured_transfers = {
    "pageable": time_transfer(lambda: source.to("cuda")),
    "pinned_ahead": time_transfer(lambda: pinned.to("cuda", non_blocking=True)),
    "pinned_in_line": time_transfer(lambda: source.pin_memory().to("cuda", non_blocking=True)),
}
print(f"copy within the CPU's memory: {measured_host_copy.median_seconds * 1e3:.2f} ms")
for name, timing in measured_transfers.items():
    show(name, timing and f"{timing.median_seconds * 1e3:.2f} ms")
# --8<-- [end:transfer]


# --8<-- [start:compare]
def rate(timing: Timing | None) -> float | None:
    return divide(measured_transfer_bytes, timing and timing.median_seconds)


def relative(a: Timing | None, b: Timing | None) -> float | None:
    """How many times as long a takes as b."""
    return divide(a and a.median_seconds, b and b.median_seconds)


measured_rates = {
    name: {
        "bytes_per_second": rate(timing),
        "link_share": divide(rate(timing), predicted_bytes_per_second),
        "to_pageable_ratio": relative(timing, measured_transfers["pageable"]),
    }
    for name, timing in measured_transfers.items()
}


def add(a: Timing, b: Timing | None) -> float | None:
    """Seconds of a and then b."""
    return a.median_seconds + b.median_seconds if b else None


predicted_in_line_seconds = add(measured_host_copy, measured_transfers["pinned_ahead"])
measured_in_line = measured_transfers["pinned_in_line"]
measured_in_line_ratio = divide(measured_in_line and measured_in_line.median_seconds, predicted_in_line_seconds)
show("in line, copy + link would take, in seconds", predicted_in_line_seconds)
show("it takes so many times that", measured_in_line_ratio)
# --8<-- [end:compare]


# --8<-- [start:exercise_1]
NUM_LOSSES = 1000

losses = predict(*[4] * NUM_LOSSES)  # a scalar is a tensor too
losses_bytes_ratio = losses["allocated_bytes"] / losses["requested_bytes"]
print(losses)
assert losses["allocated_bytes"] == NUM_LOSSES * MIN_BLOCK_BYTES
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
def address(tensor: torch.Tensor) -> int:
    """Where the storage lies: equal for views of one."""
    return tensor.untyped_storage().data_ptr()


saved: dict[int, torch.Tensor] = {}  # what autograd keeps, by address


def keep(tensor: torch.Tensor) -> torch.Tensor:
    saved[address(tensor)] = tensor
    return tensor


batch, target = torch.ones(2, 4), torch.zeros(2)
matrices = [torch.ones(*shape, requires_grad=True) for shape in ((4, 4), (4, 4), (4, 1))]
with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
    outputs = (batch @ matrices[0] @ matrices[1] @ matrices[2]).squeeze(-1)
    loss = torch.nn.functional.mse_loss(outputs, target)

weights = {address(matrix) for matrix in matrices}
activations = [tensor for where, tensor in saved.items() if where not in weights]
saved_sizes_bytes = sorted(tensor.untyped_storage().nbytes() for tensor in activations)
saved_bytes = sum(saved_sizes_bytes)
saved_allocated_bytes = predict(*saved_sizes_bytes)["allocated_bytes"]
print(saved_sizes_bytes, "sum", saved_bytes, "allocated", saved_allocated_bytes)
assert (saved_bytes, saved_allocated_bytes) == (112, 5 * 512)
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
REPORTED_BYTES = 20 * MIB  # "Tried to allocate 20.00 MiB"


def reporting(low: int, high: int) -> list[int]:
    """The smallest and the largest block in this range that would be reported so."""
    blocks = range(low, high + 1, MIN_BLOCK_BYTES)
    matching = [block for block in blocks if segment_size(block) == REPORTED_BYTES]
    return [matching[0], matching[-1]]


sharing_bytes = reporting(MIN_BLOCK_BYTES, OWN_SEGMENT_BYTES - MIN_BLOCK_BYTES)
alone_bytes = reporting(OWN_SEGMENT_BYTES, 32 * MIB)
print("in a shared segment:", *sharing_bytes)
print("in one of its own:  ", *alone_bytes)
assert sharing_bytes == [SMALL_BYTES + MIN_BLOCK_BYTES, OWN_SEGMENT_BYTES - MIN_BLOCK_BYTES]
assert alone_bytes == [18 * MIB + MIN_BLOCK_BYTES, 20 * MIB]
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
tidy_card = Allocator(capacity=40 * MIB)
tidy_blocks = [tidy_card.malloc(TENSOR_BYTES) for _ in range(NUM_TENSORS)]
for block in tidy_blocks[: NUM_TENSORS // 2]:  # the first half, not every other one
    tidy_card.free(block)
tidy_card.malloc(NEXT_BYTES)  # those freed are neighbours and have become one block

tidy = tidy_card.counts()
print(in_mib(tidy))
assert tidy["reserved_bytes"] == fragmented["reserved_bytes"]
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
CHAIN_BYTES = 64 * MIB


def chain(device: str) -> torch.Tensor:
    x = torch.empty(CHAIN_BYTES, dtype=torch.uint8, device=device)
    return (x + 1) * 2 + 3


def chain_in_place(device: str) -> torch.Tensor:
    x = torch.empty(CHAIN_BYTES, dtype=torch.uint8, device=device)
    return (x + 1).mul_(2).add_(3)


def count_peak(function: Callable[[str], torch.Tensor]) -> int:
    with Trace() as trace:
        function("meta")
    return replay(trace.changes)["allocated_bytes"]


chain_peaks_bytes = {f.__name__: count_peak(f) for f in (chain, chain_in_place)}
print(in_mib(chain_peaks_bytes))
assert list(chain_peaks_bytes.values()) == [3 * CHAIN_BYTES, 2 * CHAIN_BYTES]
# --8<-- [end:exercise_5]
