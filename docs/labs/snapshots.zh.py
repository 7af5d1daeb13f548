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
# # 实验：拆开一份显存快照
#
# 一步训练的显存用到哪里去了？这里逐条跟踪一份快照，找出占满显存的那行代码，再把各块送进分配器的规则。它与
# [《显存快照》](../snapshots.md)配套，怎样记录快照见那一页。
#
# 快照出自本书的训练脚本：autocast 下的 GPT-2 small，16 条 1024 个词元的序列，上限 15.5 GiB，第二步中止。记录用的是
# PyTorch 自己的 CUDA 分配器，**没有 GPU**：下面换成了一套替代 CUDA 的库，只给地址，不做计算。所以大小与显卡上的相同，
# 时间则没有。
#
# 这个笔记本从头到尾可以直接运行，不需要 GPU。要用到本书的库，那一页的笔记本第一个单元格会安装它。把 `path` 换成自己的文件，多数单元格照样能用。

# %%
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from flops_bytes.allocator import Settings, reserved
from flops_bytes.snapshot import follow, line_of, read
from flops_bytes.step_memory import write_snapshot

GIB = 2**30
path = write_snapshot("out_of_memory", Path(mkdtemp()) / "step.pickle")
snapshot = read(path)
(trace,) = snapshot.traces
print(f"{len(snapshot.segments)} segments at the end, {len(trace):,} events before")

# %% [markdown] slug="events"
# ## 事件
#
# 一条事件有动作、地址和大小。张量释放时有两条：先是 Python 释放，再是分配器收回，后者要等别的流不再使用它。其中有多少次要找 CUDA？

# %%
for action, times in Counter(event.action for event in trace).most_common():
    print(f"{action:16}{times:6,}")

# %% [markdown] slug="allocated"
# ## 逐条累加已分配的字节
#
# 申请就加，释放就减。结果比 PyTorch 所说的已分配略小，因为申请要向上取整。最多的时刻在哪里？

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
# ## 是哪些代码行占着
#
# 每一块都知道申请时正在执行哪些函数。取 PyTorch 之外最内层的一行。没有代码行的来自反向传播，反向传播不执行 Python。

# %%
at_peak = device.live(peak_at)
by_line: Counter[str] = Counter()
for block in at_peak:
    by_line[line_of(block.frames)] += block.size
for line, size in by_line.most_common(6):
    print(f"{size / GIB:6.2f} GiB  {line}")

# %% [markdown] slug="lineless"
# ## 没有代码行，但有大小
#
# 没有代码行的最大几块，与一块有代码行的一样大。那是哪个张量？用这一步的已知量去除。

# %%
batch, seq_len, vocab = 16, 1024, 50_304
for block in sorted(at_peak, key=lambda block: -block.size)[:3]:
    per_logit = block.requested / (batch * seq_len * vocab)
    print(f"{block.requested:,} B are {per_logit:.0f} B a logit: {line_of(block.frames)}")
    assert per_logit == 4, "float32"

# %% [markdown] slug="failure"
# ## 申请为什么失败
#
# 在报错的时刻，把空闲的加起来。上限之内剩下的不够，每个空洞也都不够大。

# %%
(failed, wanted), *_ = device.errors
gap = device.gap(failed)
print(f"wanted {wanted / GIB:.2f} GiB; allocated {gap.allocated / GIB:.2f}, reserved {gap.reserved / GIB:.2f}")
print(f"free in pieces: {(gap.pieces_small + gap.pieces_large) / GIB:.2f} GiB; in empty segments: {gap.segments}")
assert wanted > 15.5 * GIB - gap.reserved

# %% [markdown] slug="rules"
# ## 同样的块，按规则来放
#
# 把大小和顺序交给分配器的规则，不设上限，直到报错为止。规则会说出到那时要预留多少，以及可扩展的段会有什么不同。


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
# ## 换成自己的
#
# 另一份快照是同样的一步，损失分八块计算。现在排在最前的是哪几行？再给自己的训练步记录一份，放到这里来读。

# %%
mended = follow(read(write_snapshot("mended", path.with_name("mended.pickle"))), 0)
by_line = Counter()
for block in mended.live(mended.peak_allocated.event):
    by_line[line_of(block.frames)] += block.size
print(f"{mended.peak_allocated.size / GIB:.2f} GiB at the peak")
for line, size in by_line.most_common(4):
    print(f"{size / GIB:6.2f} GiB  {line}")
