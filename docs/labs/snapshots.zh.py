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
# # 实验：逐块分析一份显存快照
#
# 一步训练的显存用到哪里去了？在这里，你将逐个事件地跟踪一份显存快照（memory snapshot），找出占满显存的那行代码，再按分配器的规则推算这些块会占多少显存。本实验与[《显存快照》](../snapshots.md)一章配套，怎样记录快照，请看那一章。
#
# 这份快照来自本书的训练脚本，用 autocast 训练 GPT-2 small，每批 16 条序列，每条 1024 个词元，显存上限是 15.5 GiB，到第二步因为爆显存而中断。记录时用的是 PyTorch 自己的 CUDA 分配器，**没有用 GPU**。PyTorch 所调用的 CUDA 换成了一套替代品，它只给出地址，不做计算。所以申请的大小和顺序都出自 PyTorch，只是没有时间信息。
#
# 这个笔记本可以原样从头运行到尾，不需要 GPU，但需要本书的库，《显存快照》那一页的笔记本在第一个单元格里安装它。也可以把 `path` 换成你自己的文件，大部分单元格照样能运行。

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
# ## 快照里的事件
#
# 每个事件都有动作、地址和大小。释放一个张量有两个事件，先是 Python 释放它，等到其他流（stream）都不再使用它，分配器才把它收回。这些事件里，向 CUDA 申请显存的有多少次？

# %%
for action, times in Counter(event.action for event in trace).most_common():
    print(f"{action:16}{times:6,}")

# %% [markdown] slug="allocated"
# ## 逐个事件累加已分配的字节数
#
# 遇到申请就加，遇到释放就减。得到的结果比 PyTorch 所说的“已分配”略小，因为 PyTorch 会把申请的大小向上取整。占用最多的是哪一刻？

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
# ## 峰值时，各行代码占多少
#
# 快照为每个块记下了申请它时正在执行的函数，我们取其中 PyTorch 以外最内层的那一行。没有代码行的块是反向传播申请的，这里的反向传播不执行 Python 代码。

# %%
at_peak = device.live(peak_at)
by_line: Counter[str] = Counter()
for block in at_peak:
    by_line[line_of(block.frames)] += block.size
for line, size in by_line.most_common(6):
    print(f"{size / GIB:6.2f} GiB  {line}")

# %% [markdown] slug="lineless"
# ## 没有代码行的块，从大小看出是什么
#
# 没有代码行的块里，最大的几个与某个有代码行的块一样大。它们是什么张量？把它们的字节数除以这一步的几个已知量，就能看出来。

# %%
batch, seq_len, vocab = 16, 1024, 50_304
for block in sorted(at_peak, key=lambda block: -block.size)[:3]:
    per_logit = block.requested / (batch * seq_len * vocab)
    print(f"{block.requested:,} B are {per_logit:.0f} B a logit: {line_of(block.frames)}")
    assert per_logit == 4, "float32"

# %% [markdown] slug="failure"
# ## 申请为什么失败
#
# 把报错那一刻空闲的显存加起来。上限以内还没有预留的部分，不够这次申请。已经预留的部分里，也没有一块空闲的显存放得下它。

# %%
(failed, wanted), *_ = device.errors
gap = device.gap(failed)
print(f"wanted {wanted / GIB:.2f} GiB; allocated {gap.allocated / GIB:.2f}, reserved {gap.reserved / GIB:.2f}")
print(f"free in pieces: {(gap.pieces_small + gap.pieces_large) / GIB:.2f} GiB; in empty segments: {gap.segments}")
assert wanted > 15.5 * GIB - gap.reserved

# %% [markdown] slug="rules"
# ## 把同样的块按规则推算一遍
#
# 只用报错之前各个块的大小和顺序，按分配器的规则推算，不设上限。这样就能知道，到报错那一刻一共要预留多少，换成可扩展的段（expandable segments）又会有什么不同。


# %%
def changes(until: int) -> list[tuple[int, int]]:
    """依次列出各个存储占用的字节数，归还的记为负。"""
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
# ## 换成你自己的快照
#
# 另一份快照记录的是同样的训练步，只是损失分八块计算。现在占得最多的是哪几行？看完以后，再为你自己的训练步记录一份快照，放到这里来读。

# %%
mended = follow(read(write_snapshot("mended", path.with_name("mended.pickle"))), 0)
by_line = Counter()
for block in mended.live(mended.peak_allocated.event):
    by_line[line_of(block.frames)] += block.size
print(f"{mended.peak_allocated.size / GIB:.2f} GiB at the peak")
for line, size in by_line.most_common(4):
    print(f"{size / GIB:6.2f} GiB  {line}")
