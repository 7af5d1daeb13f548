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

# %% [markdown] slug="lab-traces"
# # 实验：录一份 trace，逐项分析
#
# 训练一步，PyTorch 执行了哪些算子，时间又花在哪里？本实验为本书的训练程序录一份性能剖析记录（trace），由文件里的形状算出 FLOPs，再统计各个算子的用时，与[《性能剖析》](../traces.md)一章配套。
#
# 这个笔记本不用改动，就能从头运行到尾。有 GPU 时读的是 kernel，没有 GPU 时读的是 CPU 上的算子，两者的事件格式相同。运行它需要本书的库，《性能剖析》那一页的笔记本在第一个单元格里会安装。打印出来的时间只反映运行它的那台机器。

# %%
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch.profiler import profile, schedule

from flops_bytes.kernels import read, report, work_of
from flops_bytes.measure import get_device
from flops_bytes.models import gpt2, loss
from flops_bytes.train import make

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCAB = 4, 256, 4, 128, 8, 1024
shape = replace(gpt2(WIDTH, LAYERS, HEADS), vocab=VOCAB, positions=CONTEXT)
model, optimizer = make(shape, seed=0)
tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1), device=get_device())


def step() -> None:
    loss(model, tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()


# %% [markdown] slug="record"
# ## 录一步训练
#
# 第一步跳过，第二步用来预热 profiler，第三步才写进文件。

# %%
path = Path(mkdtemp()) / "step.json"
with profile(
    schedule=schedule(wait=1, warmup=1, active=1, repeat=1),
    record_shapes=True,
    on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
) as recording:
    for _ in range(3):
        step()
        recording.step()

events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
for category, times in Counter(event["cat"] for event in events).most_common():
    print(f"{category:20}{times:6,}")

# %% [markdown] slug="flops"
# ## 由形状算出 FLOPs
#
# 线性层的每次矩阵乘法，在文件里是一个 `aten::mm` 或 `aten::addmm`，并且记了形状。它们的 FLOPs 加起来，应当等于矩阵的参数个数乘以词元数再乘以 6，其中前向占 2，反向占 4。

# %%
linear = [event for event in events if event["name"] in ("aten::mm", "aten::addmm")]
works = [work_of(event["name"], event["args"]) for event in linear]
recorded = sum(work.flops for work in works if work)
weights = 12 * LAYERS * WIDTH**2 + VOCAB * WIDTH
print(f"{len(linear)} matmuls, {recorded:,} FLOPs; by formula {6 * weights * BATCH * CONTEXT:,}")
assert recorded == 6 * weights * BATCH * CONTEXT

# %% [markdown] slug="time"
# ## 时间花在哪里
#
# 算子会嵌套，例如 `aten::linear` 会调用 `aten::addmm`。从每个算子的用时里减去它所调用的算子的用时，每段时间就只算一次。这样算下来，哪些算子用时最多？在 CPU 上，这是计算本身的用时，在 GPU 上则只是启动 kernel 的用时。

# %%
own: Counter[str] = Counter()
running: dict[int, list[dict]] = {}
for event in sorted((e for e in events if e["cat"] == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
    stack = running.setdefault(event["tid"], [])
    while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
        stack.pop()
    if stack:
        own[stack[-1]["name"]] -= event["dur"]
    own[event["name"]] += event["dur"]
    stack.append(event)
total = sum(own.values())
for name, spent in own.most_common(8):
    print(f"{spent / total:6.1%}  {name}")

# %% [markdown] slug="kernels"
# ## 如果有 GPU，看看 kernel
#
# 本书的库读的是同一个文件，由它算出忙碌、空闲和尚未启动的时间。没有 GPU 的话，文件里就没有 kernel。

# %%
trace = read(path)
if trace.kernels:
    found = report(trace, trace.kernels[0].device)
    idle, waited = found["gaps"]["seconds"], found["gaps"]["launching_seconds"]
    print(f"span {found['span_seconds'] * 1e3:.2f} ms, busy {found['busy_seconds'] / found['span_seconds']:.1%}")
    print(f"idle {idle * 1e3:.2f} ms, of which {waited * 1e3:.2f} ms were not launched yet")
else:
    print("no kernels: this machine has no GPU that PyTorch sees")

# %% [markdown] slug="your-own"
# ## 换成你自己的训练步
#
# 如果上下文长度变成四倍，哪个算子的时间占比会变？词表变成十倍呢？改动第一个单元格里的常数，再运行一遍就知道了，换成这些取值，断言仍然成立。然后把 `step` 换成你自己的一步训练。
