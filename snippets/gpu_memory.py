# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What tensors take on a GPU: requested, allocated, reserved, and over a step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from flops_bytes.lessons.measure import divide, get_device, get_memory_usage
from flops_bytes.lessons.trace import Trace
from flops_bytes.memory.outside import outside_lines
from flops_bytes.plan import plan, settled_question
from flops_bytes.plan.meters import runs_of
from flops_bytes.time.gpus import GPUS, REPORTED, THIRD_PARTY

MIB = 2**20


# --8<-- [start:message]
wanted, capacity, free = 35.60, 79.33, 26.16  # GiB, from the message
in_use, allocated, unused = 53.16, 11.97, 40.69

print(f"free or unused: {free + unused:.2f} GiB, wanted in one piece: {wanted:.2f} GiB")
print(f"reserved by PyTorch: {allocated + unused:.2f} GiB")
print(f"outside PyTorch's allocator: {in_use - allocated - unused:.2f} GiB")
print(f"other processes, or rounding: {capacity - free - in_use:.2f} GiB")
# --8<-- [end:message]


# --8<-- [start:retry]
def backward(model: nn.Module, loss: Callable[[Tensor], Tensor], batch: Tensor, parts: int = 1) -> None:
    """Makes the gradients of a batch's mean loss, in twice as many parts each time that they do not fit."""
    model.zero_grad()  # a pass that failed may have left some
    try:
        for part in batch.chunk(parts):
            (loss(part) * len(part) / len(batch)).backward()
        return
    except torch.OutOfMemoryError:
        if parts >= len(batch):
            raise
    backward(model, loss, batch, 2 * parts)  # after the except: what the failed pass made is free now


# --8<-- [end:retry]


def few(part: Tensor) -> Tensor:
    if len(part) > 2:
        raise torch.OutOfMemoryError
    made: Tensor = layer(part)
    return made.square().mean()


layer, samples = nn.Linear(3, 1), torch.arange(15.0).view(5, 3)
gradient = torch.autograd.grad(layer(samples).square().mean(), layer.weight)[0]
backward(layer, few, samples)
assert layer.weight.grad is not None
torch.testing.assert_close(layer.weight.grad, gradient)


born: list[ref[Tensor]] = []  # does not keep a tensor alive


def fail() -> None:
    activation = torch.zeros(8)
    born.append(ref(activation))
    raise torch.OutOfMemoryError


try:
    fail()
except torch.OutOfMemoryError:
    held_in_except = born[0]() is not None
held_after_except = born[0]() is not None
print("alive in the except:", held_in_except, "- after it:", held_after_except)
assert held_in_except and not held_after_except


ROWS = {  # of the table of peaks
    "t4": "T4",
    "a10g": "A10G",
    "rtx_4090": "RTX 4090",
    "a100_40": "A100 40GB SXM",
    "l40s": "L40S",
    "a100_80": "A100 80GB SXM",
    "h100": "H100 SXM",
    "h200": "H200 SXM",
}
CAPACITIES = {  # GB by the label, GiB by PyTorch's messages
    card: {"label_gb": round((GPUS | THIRD_PARTY)[row].memory_bytes / 1e9), "reported_gib": REPORTED[row].gib}
    for card, row in ROWS.items()
}
reported_bytes = {card: round(size["reported_gib"] * 2**30) for card, size in CAPACITIES.items()}
reported_to_label_ratio = {card: reported_bytes[card] / (size["label_gb"] * 1e9) for card, size in CAPACITIES.items()}


# --8<-- [start:where]
x = torch.zeros(4, 8)  # in the CPU's memory, unless told otherwise
moved = x.to(get_device())  # copied to the GPU, if there is one
made = torch.zeros(4, 8, device=get_device())  # made there: no copy
shape_only = torch.zeros(4, 8, device="meta")  # a shape without data
print(x.device.type, shape_only.device, moved.device == made.device)
# --8<-- [end:where]


assert torch.device("cuda") != torch.device("cuda:0")  # so compare two tensors
assert x.to("cpu") is x  # already there: nothing is copied
try:
    x + shape_only
    raise AssertionError("two devices were expected to fail")
except RuntimeError as error:
    print(str(error).splitlines()[0])
assert (torch.tensor(2.0) * shape_only).is_meta  # but a CPU's scalar goes with all


# --8<-- [start:rules]
# In brackets their names in PyTorch's c10/core/AllocatorConfig.h
MIN_BLOCK_BYTES = 512  # requests round up to a multiple (kMinBlockSize)
SMALL_BYTES = 1 * MIB  # the largest small request (kSmallSize)
SMALL_SEGMENT_BYTES = 2 * MIB  # small ones share segments (kSmallBuffer)
LARGE_SEGMENT_BYTES = 20 * MIB  # larger ones too (large_segment_size)
OWN_SEGMENT_BYTES = 10 * MIB  # from here: one of its own (kMinLargeAlloc)
SEGMENT_STEP_BYTES = 2 * MIB  # rounded up to a multiple (kRoundLarge)


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def segment_size(block: int) -> int:
    """What CUDA is asked for when no free block is large enough."""
    if block <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return round_up(block, SEGMENT_STEP_BYTES)


for requested in (4 * 4 * 8, 4 * 32 * 32, 4 * 1_000 * 1_000, 4 * 12_288 * 49_152):
    rounded = round_up(requested, MIN_BLOCK_BYTES)
    print(f"{requested:13,} B requested, block {rounded:13,} B, segment {segment_size(rounded):13,} B")
# --8<-- [end:rules]


pair_bytes = 2 * get_memory_usage(torch.empty(32, 32, device="meta"))
lone_bytes = get_memory_usage(torch.empty(4, 8, device="meta"))
pair_allocated_bytes = 2 * round_up(pair_bytes // 2, MIN_BLOCK_BYTES)
lone_allocated_bytes = round_up(lone_bytes, MIN_BLOCK_BYTES)
print("two 32 × 32:", pair_bytes, "requested,", pair_allocated_bytes, "allocated")
print("one 4 × 8:  ", lone_bytes, "requested,", lone_allocated_bytes, "allocated")


# --8<-- [start:allocator]
@dataclass(eq=False)
class Block:
    size: int
    requested: int = 0  # 0 while it is free


class Allocator:
    """PyTorch's caching allocator in small: one stream, default settings."""

    def __init__(self, capacity: int = 10**15) -> None:
        self.capacity = capacity
        self.segments: list[list[Block]] = []  # each a row of blocks
        self.peaks = self.counts()

    def counts(self) -> dict[str, int]:
        blocks = [block for segment in self.segments for block in segment]
        return {
            "requested_bytes": sum(block.requested for block in blocks),
            "allocated_bytes": sum(block.size for block in blocks if block.requested),
            "reserved_bytes": sum(block.size for block in blocks),
        }

    def malloc(self, requested: int) -> Block:
        """The smallest free block that is large enough, else a new segment's."""
        size = round_up(requested, MIN_BLOCK_BYTES)
        is_small = size <= SMALL_BYTES
        fits = [
            (block.size, i, j)
            for i, segment in enumerate(self.segments)
            for j, block in enumerate(segment)
            if not block.requested and block.size >= size
            if is_small == (sum(b.size for b in segment) == SMALL_SEGMENT_BYTES)
        ]
        if not fits:
            self._reserve(segment_size(size))
        _, i, j = min(fits, default=(0, -1, 0))
        block = self.segments[i][j]
        rest = block.size - size
        if rest > (0 if is_small else SMALL_BYTES):  # else it is handed out whole
            block.size = size
            self.segments[i].insert(j + 1, Block(rest))
        block.requested = requested
        now = self.counts()
        self.peaks = {name: max(peak, now[name]) for name, peak in self.peaks.items()}
        return block

    def _reserve(self, size: int) -> None:
        """A new segment; where there is no room, after giving back the empty ones."""
        if self.counts()["reserved_bytes"] + size > self.capacity:
            self.empty_cache()
        _, allocated, reserved = self.counts().values()
        if reserved + size > self.capacity:
            gaps = f"{(reserved - allocated) // MIB} MiB reserved but unallocated"
            raise MemoryError(f"Tried to allocate {size // MIB} MiB, with {gaps}")
        self.segments.append([Block(size)])

    def free(self, block: Block) -> None:
        """Marks a block as free and merges it with free neighbours."""
        block.requested = 0
        for segment in self.segments:
            for left, right in reversed(list(pairwise(segment))):
                if not left.requested and not right.requested:
                    left.size += right.size
                    segment.remove(right)

    def empty_cache(self) -> None:
        """Gives back the segments that hold nothing."""
        self.segments = [row for row in self.segments if any(b.requested for b in row)]


def predict(*requests: int) -> dict[str, int]:
    """The three counts after these requests, in an empty allocator."""
    allocator = Allocator()
    for request in requests:
        allocator.malloc(request)
    return allocator.counts()


# --8<-- [end:allocator]


CASES: dict[str, list[int]] = {  # so many tensors, float32, of this shape
    "scalar": [1],
    "small": [1, 4, 8],
    "pair": [2, 32, 32],
    "vectors": [100, 1000],
    "square": [1, 1000, 1000],
    "whole": [1, 1024, 2816],
    "gpt3": [1, 12288, 49152],  # a feed-forward matrix of GPT-3
}


requests = {
    name: predict(*n * [4 * prod(shape)])  # four bytes an element
    for name, (n, *shape) in CASES.items()
}
for name, counts in requests.items():
    print(f"{name:8}", *(f"{count:>13,}" for count in counts.values()))


# --8<-- [start:peak]
def peak_of(step: Callable[[], object]) -> int:
    """The most bytes that a step needs on the GPU, with what was there before."""
    torch.cuda.reset_peak_memory_stats()  # else the peak is that of the process
    step()
    return torch.cuda.max_memory_allocated()


# --8<-- [end:peak]


# --8<-- [start:fragment]
NUM_TENSORS, TENSOR_BYTES, NEXT_BYTES = 10, 4 * MIB, 12 * MIB
card = Allocator(capacity=40 * MIB)
blocks = [card.malloc(TENSOR_BYTES) for _ in range(NUM_TENSORS)]
for block in blocks[::2]:
    card.free(block)
card.empty_cache()  # finds no empty segment
try:
    card.malloc(NEXT_BYTES)
except MemoryError as error:
    print(error)
# --8<-- [end:fragment]

fragmented = card.counts()  # as before: a request that fails leaves nothing
fragmented_unused_bytes = fragmented["reserved_bytes"] - fragmented["allocated_bytes"]
in_use_blocks = [[(b.size, b.requested > 0) for b in row] for row in card.segments]
assert fragmented_unused_bytes > NEXT_BYTES and len(card.segments) == 2


# --8<-- [start:meters]
RUN: dict[str, Any] = {"model": "gpt2", "gpu": "RTX 4090"}
RUN |= {"micro_batch": 8, "context": 1024, "trained": "all"}
RUN |= {"recipe": "autocast", "checkpointing": "none"}

meters = plan(**RUN)["meters"]
print(f"allocated   {meters['allocated_bytes'] / 2**30:6.2f} GiB")
for meter in ("reserved", "smi"):
    low, high = meters[f"{meter}_bytes"]
    print(f"{meter:12}{low / 2**30:6.2f} to {high / 2**30:.2f} GiB")
# --8<-- [end:meters]


# --8<-- [start:first_steps]
Change = tuple[int, int]  # a storage, and the bytes that it takes or, negative, gives back


def follow(changes: Iterable[Change]) -> tuple[Allocator, list[dict[str, int]]]:
    """An allocator through which all of them went, and its counts after each."""
    allocator, held, counts = Allocator(), dict[int, Block](), []
    for storage, change in changes:
        if change > 0:
            held[storage] = allocator.malloc(change)
        else:
            allocator.free(held.pop(storage))
        counts.append(allocator.counts())
    return allocator, counts


question = settled_question(RUN, plan(**RUN))
(steps,) = runs_of(question.a, question.model)  # loads the model, and takes two steps
changes_of_run = [(storage, change) for storage, change, _stream in steps.changes]
after = follow(changes_of_run)[1]
heights = [each["allocated_bytes"] for each in after]
peak = heights.index(max(heights))
at_peak = follow(changes_of_run[: peak + 1])[0]

for segment in at_peak.segments:
    size, gaps = sum(block.size for block in segment), [block.size for block in segment if not block.requested]
    if sum(gaps) > 10 * MIB:
        print(f"of {size // MIB:5} MiB {sum(gaps) // MIB:5} are free, at most {max(gaps) // MIB:5} in one piece")
# --8<-- [end:first_steps]
assert after[peak]["reserved_bytes"] == meters["reserved_bytes"][0] == meters["reserved_bytes"][1]
assert abs(after[peak]["allocated_bytes"] / meters["allocated_bytes"] - 1) < 0.001


GPT2_BATCH, GPT2_CONTEXT = RUN["micro_batch"], RUN["context"]
_starts = {part: start for start, part in steps.parts}
first, second = _starts["step 1, forward, embedding"], _starts["step 2, forward, embedding"]
step_counts = {"first": after[first:second], "second": after[second:]}
peaks_bytes = {
    step: {count: max(each[f"{count}_bytes"] for each in of_step) for count in ("allocated", "reserved")}
    for step, of_step in step_counts.items()
}
growth_bytes = {count: peaks_bytes["second"][count] - peaks_bytes["first"][count] for count in peaks_bytes["first"]}
between_bytes = after[second - 1]["allocated_bytes"]
forward_bytes = after[_starts["step 2, backward, loss"] - 1]["allocated_bytes"]
logits_gradient_bytes = steps.changes[peak][1]  # what is asked for at the peak
unused_bytes = {"pieces": 0, "whole": 0}
for segment in at_peak.segments:
    gaps = [block.size for block in segment if not block.requested]
    unused_bytes["whole" if len(gaps) == len(segment) else "pieces"] += sum(gaps)
broken = max(at_peak.segments, key=lambda segment: sum(block.size for block in segment if not block.requested))
broken_bytes = {
    "segment": sum(block.size for block in broken),
    "used": sum(block.size for block in broken if block.requested),
    "largest": max(block.size for block in broken if not block.requested),
}
_moments_first = sorted(steps.changes, key=lambda change: steps.lines[change[0]] != "optimizer")
resumed_bytes = follow((storage, change) for storage, change, _ in _moments_first)[0].peaks["reserved_bytes"]
assert broken_bytes["segment"] >= logits_gradient_bytes > broken_bytes["largest"]
assert unused_bytes["whole"] == 0 and growth_bytes["reserved"] > 1.5 * growth_bytes["allocated"] > 0

_PIECES = 60  # of a step, in the figure
_KIND_OF = {"weights": "weights", "optimizer": "optimizer", "gradients": "gradients", "logits": "logits"}


def draw_steps(after: list[dict[str, int]]) -> dict[str, list[int]]:
    """Bytes in use by kind, where they are most in each piece of a step, and the most that is reserved in it."""
    held = dict.fromkeys([*_KIND_OF.values(), "activations"], 0)
    stacks = []
    for storage, change, _ in steps.changes:
        held[_KIND_OF.get(steps.lines[storage], "activations")] += change
        stacks.append(dict(held))
    pieces: dict[str, list[int]] = {kind: [] for kind in [*held, "reserved"]}
    for start, end in ((first, second), (second, len(stacks))):
        cuts = [start + n * (end - start) // _PIECES for n in range(_PIECES + 1)]
        for a, b in pairwise(cuts):
            highest = max(stacks[a:b], key=lambda stack: sum(stack.values()))
            for kind, size in highest.items():
                pieces[kind].append(size)
            pieces["reserved"].append(max(each["reserved_bytes"] for each in after[a:b]))
    return pieces


gpt2_steps_bytes = draw_steps(after)
del changes_of_run, after, heights  # all of them would be in the record


OUTSIDE_CARDS = {"t4": "T4", "rtx_4090": "RTX 4090", "a100_80": "A100 80GB SXM", "h100": "H100 SXM"}
outside_bytes = {
    card: {
        line.name: {"low": line.low_bytes, "high": line.high_bytes} for line in outside_lines(row, gpus=8, node_gpus=8)
    }
    for card, row in OUTSIDE_CARDS.items()
}


# --8<-- [start:step]
NUM_LAYERS, BATCH, WIDTH = 4, 2048, 1024
weight_bytes = WIDTH * WIDTH * 4  # W, float32
activation_bytes = BATCH * WIDTH * 4  # A


def step(device: str, batch: int = BATCH) -> None:
    """Forward and backward, from nothing to gradients."""
    empty = partial(torch.empty, device=device)
    h = empty((batch, WIDTH))
    weights = [empty((WIDTH, WIDTH), requires_grad=True) for _ in range(NUM_LAYERS)]
    for weight in weights:
        h = torch.relu(h @ weight)
    torch.autograd.grad(h, weights, torch.ones_like(h))


with Trace() as step_trace:
    step("meta")
kept_bytes = 2 * NUM_LAYERS * weight_bytes + (NUM_LAYERS + 1) * activation_bytes
print("what is kept:", kept_bytes // MIB, "MiB; the peak:", step_trace.peak_bytes // MIB, "MiB")
# --8<-- [end:step]

peak_bytes = (NUM_LAYERS + 4) * activation_bytes + (NUM_LAYERS + 1) * weight_bytes


KINDS = ("weights", "activations", "temporary", "gradients")


def predict_changes(w: int, a: int) -> list[tuple[str, int]]:
    """Bytes that come and go in a step; w is a weight, a an activation."""
    changes = [("activations", a)] + [("weights", w)] * NUM_LAYERS  # first the input
    for _ in range(NUM_LAYERS):  # the product, its relu, and the product goes
        changes += [("temporary", a), ("activations", a), ("temporary", -a)]
    changes += [("temporary", a)]  # ones_like: where backward starts from
    for layer in reversed(range(NUM_LAYERS)):
        changes += [("temporary", a)]  # the gradient, back through relu
        if layer < NUM_LAYERS - 1:  # the one that came in, and relu's output
            changes += [("temporary", -a), ("activations", -a)]
        changes += [("gradients", w)]
        if layer > 0:  # the network's input needs no gradient
            changes += [("temporary", a)]
        changes += [("temporary", -a)]
    return changes


def levels(changes: Iterable[int]) -> list[int]:
    """Bytes in use after each allocation."""
    changes = list(changes)
    pairs = zip(accumulate(changes), changes, strict=True)
    return [level for level, change in pairs if change > 0]


changes = predict_changes(weight_bytes, activation_bytes)
counted_bytes = levels(change for _, change in step_trace.changes)
print(len(counted_bytes), "allocations, peak", step_trace.peak_bytes // MIB, "MiB")
assert counted_bytes == levels(change for _, change in changes)  # each as predicted
assert step_trace.peak_bytes == peak_bytes


step_peaks = follow(step_trace.changes)[0].peaks
for name, peak in step_peaks.items():
    print(f"{name:16}{peak // MIB:4} MiB")


# --8<-- [start:measure]
def get_counts(moment: str = "current") -> dict[str, int]:
    """The allocator's three counts now, or at their "peak"."""
    stats = torch.cuda.memory_stats()  # empty until something is done on the GPU
    return {count: stats.get(f"{count}.all.{moment}", 0) for count in step_peaks}


def measure(make: Callable[[], object]) -> dict[str, int] | None:
    """What the result of make() adds to each count; None without CUDA or room."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.empty_cache()
    before = get_counts()
    try:
        _made, after = make(), get_counts()  # read while what was made is alive
    except torch.OutOfMemoryError:
        return None
    return {count: after[count] - before[count] for count in before}


def make_case(number: int, *shape: int) -> list[torch.Tensor]:
    return [torch.empty(shape, device="cuda") for _ in range(number)]


def make_gaps() -> list[torch.Tensor]:
    """Ten tensors, every other one dropped, the cache emptied."""
    tensors = make_case(NUM_TENSORS, TENSOR_BYTES // 4)
    del tensors[::2]
    torch.cuda.empty_cache()
    return tensors


cases = {name: partial(make_case, *case) for name, case in CASES.items()}
measured_requests = {name: measure(case) for name, case in cases.items()}
measured_fragmented = measure(make_gaps)
# --8<-- [end:measure]


# --8<-- [start:history]
def record_history() -> dict[str, Any]:
    """A step in the allocator's own words; empty without CUDA."""
    if not torch.cuda.is_available():
        return {}
    step("cuda")  # the first product also takes a workspace for cuBLAS
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    start = get_counts()
    torch.cuda.reset_peak_memory_stats()  # from here on, not since the process began
    record = torch.cuda.memory._record_memory_history
    record(enabled="all", context=None, stacks="python")
    step("cuda")
    torch.cuda.synchronize()
    (trace, *_) = torch.cuda.memory._snapshot()["device_traces"]  # of the first GPU
    record(enabled=None)

    signs = {"alloc": 1, "free_completed": -1}
    changes = [signs[e["action"]] * e["size"] for e in trace if e["action"] in signs]
    ours, peaks = {weight_bytes, activation_bytes}, get_counts("peak")
    other = (change for change in changes if change > 0 and change not in ours)
    return {
        "timeline_bytes": levels(change for change in changes if abs(change) in ours),
        "other_bytes": sum(other),
        "peaks": {count: peaks[count] - start[count] for count in peaks},
    }


measured_step = record_history() or None
measured_peaks = measured_step and measured_step["peaks"]
measured_peaks_ratio = measured_peaks and {
    count: divide(peak, step_peaks[count]) for count, peak in measured_peaks.items()
}
# --8<-- [end:history]


PATHS_BYTES_PER_SECOND = {
    "cpu": 12 * 8 * 4.8e9,  # 12 channels of 8 bytes, DDR5 at 4.8e9 transfers
    "link": 16 * 32e9 / 8 * 128 / 130,  # 16 lanes of PCI Express 5
    "gpu": GPUS["H200 SXM"].bandwidth_bytes_per_second,
}
MATRIX_BYTES = 4 * 12288 * 49152  # of GPT-3
for name, rate in PATHS_BYTES_PER_SECOND.items():
    print(f"{name:5}{rate / 1e9:7.1f} GB/s{MATRIX_BYTES / rate * 1e3:7.2f} ms")
gpu_to_link_ratio = PATHS_BYTES_PER_SECOND["gpu"] / PATHS_BYTES_PER_SECOND["link"]


def send_pageable(batch: Tensor) -> Tensor:
    return batch.to("cuda")  # the driver copies it to pinned memory, piece by piece


def send_pinned_in_line(batch: Tensor) -> Tensor:
    return batch.pin_memory().to("cuda", non_blocking=True)  # your loop copies it


def send_pinned_ahead(dataset: Dataset[Tensor]) -> Iterator[Tensor]:
    loader = DataLoader(dataset, batch_size=8, num_workers=4, pin_memory=True)
    for batch in loader:  # a thread of the loader has copied it
        yield batch.to("cuda", non_blocking=True)


# --8<-- [start:exercise_1]
NUM_LOSSES = 1000

losses = predict(*NUM_LOSSES * [4])  # a scalar is a tensor too
losses_bytes_ratio = losses["allocated_bytes"] / losses["requested_bytes"]
assert losses["allocated_bytes"] == NUM_LOSSES * MIN_BLOCK_BYTES
print(losses)
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
REPORTED_BYTES = 20 * MIB  # "Tried to allocate 20.00 MiB"


def reported(tensor: int) -> int:
    return segment_size(round_up(tensor, MIN_BLOCK_BYTES))


sharing_bytes = [SMALL_BYTES + 1, OWN_SEGMENT_BYTES - MIN_BLOCK_BYTES]
alone_bytes = [18 * MIB + 1, 20 * MIB]
for smallest, largest in (sharing_bytes, alone_bytes):
    assert reported(smallest) == reported(largest) == REPORTED_BYTES
    assert reported(smallest - 1) != REPORTED_BYTES != reported(largest + 1)
    print(f"a tensor of {smallest:,} to {largest:,} bytes")
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
tidy = Allocator(capacity=40 * MIB)
tidy_blocks = [tidy.malloc(TENSOR_BYTES) for _ in range(NUM_TENSORS)]
for block in tidy_blocks[: NUM_TENSORS // 2]:  # not every other one
    tidy.free(block)
tidy.malloc(NEXT_BYTES)  # neighbours have become one block

tidy_counts = tidy.counts()
assert tidy_counts["reserved_bytes"] == 40 * MIB
print(tidy_counts)
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
TURNS_BYTES = [12 * MIB, 14 * MIB, 16 * MIB]


def take_turns(capacity: int) -> int:
    """The peak of reserved bytes when each is freed before the next is asked for."""
    allocator = Allocator(capacity)
    for size in TURNS_BYTES:
        allocator.free(allocator.malloc(size))
    return allocator.peaks["reserved_bytes"]


roomy_reserved_bytes = take_turns(capacity=10**15)
tight_reserved_bytes = take_turns(capacity=16 * MIB)
assert (roomy_reserved_bytes, tight_reserved_bytes) == (42 * MIB, 16 * MIB)
print(roomy_reserved_bytes // MIB, "MiB, or", tight_reserved_bytes // MIB)
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
SMALL_BATCH = 256

with Trace() as small_trace:
    step("meta", SMALL_BATCH)

small_activation_bytes = 4 * SMALL_BATCH * WIDTH
all_weights_bytes = 2 * NUM_LAYERS * weight_bytes  # and their gradients
small_kept_bytes = all_weights_bytes + (NUM_LAYERS + 1) * small_activation_bytes
small_peak_bytes = all_weights_bytes + 4 * small_activation_bytes
assert small_peak_bytes == small_trace.peak_bytes < small_kept_bytes
print(small_peak_bytes // MIB, "MiB at the peak,", small_kept_bytes // MIB, "MiB kept")
# --8<-- [end:exercise_5]
