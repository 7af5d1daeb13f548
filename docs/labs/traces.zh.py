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
# # 实验：录一份 trace，再拆开来看
#
# 一步训练里，每个运算各做了什么？在这里，你将给本书的训练程序录一份性能剖析记录（trace），用文件里的形状数出 FLOPs，再看时间花在哪里。本实验与[《性能剖析》](../traces.md)一章配套。
#
# 这个笔记本可以原样从头运行到尾。有 GPU 就读 kernel，没有就读 CPU 上的运算，两者的事件格式相同。它需要本书的库，《性能剖析》那一页的笔记本在第一个单元格里安装它。打印出来的时间，是运行它的那台机器的。

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
# ## 记录一步
#
# 第一步不记录，第二步用来预热剖析器，第三步才算数。

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
# ## 由形状得到 FLOPs
#
# 线性层的每次矩阵乘法，都是一个带形状的 `aten::mm` 或 `aten::addmm`。加起来应当是每个矩阵参数、每个词元 6 FLOPs，其中前向 2，反向 4。

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
# 运算会嵌套，例如 `aten::linear` 会调用 `aten::addmm`。减去内层运算的时间，每段时间就只算一次。哪些运算自身用时最多？在 CPU 上，这就是计算本身，在 GPU 上则只是启动。

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
# 本书的库读同一个文件，给出在忙、空闲和尚未启动的时间。没有 GPU，就没有 kernel 可读。

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
# ## 换成你自己的
#
# 上下文加长到四倍，哪一项的比例会变？词表加大到十倍呢？改第一个单元格里的常数，再运行一遍，断言在各种取值下都成立。然后把 `step` 换成你自己的一步训练。
