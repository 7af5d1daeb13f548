# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slug="lab-snapshots"
# # Lab: take a memory snapshot apart
#
# Where did the memory of a training step go? Here you follow a snapshot event by event, find the line that fills the
# card, and send its blocks through the allocator's rules. It is the companion of
# [Memory snapshots](../snapshots.md), which says how to record one.
#
# The snapshot is of this book's trainer: GPT-2 small under autocast, 16 sequences of 1,024 tokens, stopped in its
# second step at a limit of 15.5 GiB. It was recorded with PyTorch's own CUDA allocator and **no GPU**: below it lay a
# replacement for CUDA that hands out addresses and computes nothing. So sizes and order are PyTorch's, and there are no
# times.
#
# The notebook runs from top to bottom as it is, without a GPU. It needs this book's library, which the first cell of
# that page's notebook installs. Put a file of your own in place of `path`, and most cells still run.

# %%
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from flops_bytes.memory.allocator import Settings, reserved
from flops_bytes.tools.snapshot import follow, line_of, read
from flops_bytes_data.step_memory import write_snapshot

GIB = 2**30
path = write_snapshot("out_of_memory", Path(mkdtemp()) / "step.pickle")
snapshot = read(path)
(trace,) = snapshot.traces
print(f"{len(snapshot.segments)} segments at the end, {len(trace):,} events before")

# %% [markdown] slug="events"
# ## The events
#
# An event has an action, an address and a size. A tensor that goes makes two: it is freed by Python, and then by the
# allocator, once no other stream uses it. How often does CUDA itself come into it?

# %%
for action, times in Counter(event.action for event in trace).most_common():
    print(f"{action:16}{times:6,}")

# %% [markdown] slug="allocated"
# ## What is allocated, event by event
#
# Add up requests, subtract frees. The sum is a little below what PyTorch calls allocated: it rounds
# requests up. Where is the most?

# %%
living: dict[int, int] = {}
requested, peak, peak_at = 0, 0, 0
for number, event in enumerate(trace, start=1):
    if event.action == "alloc":
        living[event.address] = event.size
        requested += event.size
    elif event.action == "free_requested":
        requested -= living.pop(event.address)
    if requested > peak:
        peak, peak_at = requested, number
print(f"{peak / GIB:.2f} GiB after event {peak_at:,}")

device = follow(snapshot, 0)
assert peak_at == device.peak_allocated.event
assert 0 <= device.peak_allocated.size - peak < 2**24

# %% [markdown] slug="lines"
# ## Which lines hold it
#
# A block knows which functions were running when it was requested. Take the innermost line outside of PyTorch. What has
# no line was made by the backward pass, which runs no Python.

# %%
at_peak = device.live(peak_at)
by_line: Counter[str] = Counter()
for block in at_peak:
    by_line[line_of(block.frames)] += block.size
for line, size in by_line.most_common(6):
    print(f"{size / GIB:6.2f} GiB  {line}")

# %% [markdown] slug="lineless"
# ## What has no line has a size
#
# The largest blocks without a line are as large as one that has a line. Which tensor is that? Divide by what you know
# of the step.

# %%
batch, seq_len, vocab = 16, 1024, 50_304
for block in sorted(at_peak, key=lambda block: -block.size)[:3]:
    per_logit = block.requested / (batch * seq_len * vocab)
    print(f"{block.requested:,} B are {per_logit:.0f} B a logit: {line_of(block.frames)}")
    assert per_logit == 4, "float32"

# %% [markdown] slug="failure"
# ## Why the request failed
#
# At the error, add up what was free. The limit left room for less than the request, and so did each hole.

# %%
(failed, wanted), *_ = device.errors
gap = device.gap(failed)
print(f"wanted {wanted / GIB:.2f} GiB; allocated {gap.allocated / GIB:.2f}, reserved {gap.reserved / GIB:.2f}")
print(f"free in pieces: {(gap.pieces_small + gap.pieces_large) / GIB:.2f} GiB; in empty segments: {gap.segments}")
assert wanted > 15.5 * GIB - gap.reserved

# %% [markdown] slug="rules"
# ## The same blocks, by the rules
#
# Give sizes and order to the allocator's rules, without a limit, up to the error. They say how much would have been
# reserved by then, and what growing segments would change.


# %%
def changes(until: int) -> list[tuple[int, int]]:
    """A storage, and the bytes that it took or, negative, gave back, in order."""
    found = []
    for number, block in enumerate(device.blocks):
        found.append((block.born, number, block.requested))
        found.append((int(min(block.died, until)), number, -block.requested))
    return [(number, change) for event, number, change in sorted(found) if event < until]


for name, settings in {"default": Settings(), "growing": Settings(expandable_segments=True)}.items():
    found = reserved(changes(failed), settings)
    print(
        f"{name:8} allocated {found.peak_allocated_bytes / GIB:.2f}, reserved {found.peak_reserved_bytes / GIB:.2f} GiB"
    )
    assert found.peak_allocated_bytes <= found.peak_reserved_bytes

# %% [markdown] slug="your-own"
# ## Your own
#
# The other snapshot is of the same step with its loss in eight chunks. Which lines are on top now? Then record one of
# your own step, and read it here.

# %%
mended = follow(read(write_snapshot("mended", path.with_name("mended.pickle"))), 0)
by_line = Counter()
for block in mended.live(mended.peak_allocated.event):
    by_line[line_of(block.frames)] += block.size
print(f"{mended.peak_allocated.size / GIB:.2f} GiB at the peak")
for line, size in by_line.most_common(4):
    print(f"{size / GIB:6.2f} GiB  {line}")
