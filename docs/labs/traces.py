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
# # Lab: record a trace and take it apart
#
# What does one training step do, operation by operation? Here you record a trace of this book's trainer, count its
# FLOPs from the shapes in the file, and see where the time goes. It is the companion of [Traces](../traces.md).
#
# The notebook runs from top to bottom as it is. On a GPU it reads kernels, without one the CPU's operations; the events
# have the same form. It needs this book's library, which the first cell of that page's notebook installs. The times are
# those of the machine that ran it.

# %%
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch.profiler import profile, schedule

from flops_bytes.lessons.measure import get_device
from flops_bytes.lessons.models import gpt2, loss
from flops_bytes.lessons.train import make
from flops_bytes.tools.kernels import read, report, work_of

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCAB = 4, 256, 4, 128, 8, 1024
shape = replace(gpt2(WIDTH, LAYERS, HEADS), vocab=VOCAB, positions=CONTEXT)
model, optimizer = make(shape, seed=0)
tokens = torch.randint(VOCAB, (BATCH, CONTEXT + 1), device=get_device())


def step() -> None:
    loss(model, tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()


# %% [markdown] slug="record"
# ## Record one step
#
# One step is left alone, one warms the profiler up, one counts.

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
# ## FLOPs from shapes
#
# Each matmul of a linear layer is an `aten::mm` or an `aten::addmm` with its shapes. Their sum should be six FLOPs for
# each weight of a matrix and each token: two forward, four backward.

# %%
linear = [event for event in events if event["name"] in ("aten::mm", "aten::addmm")]
works = [work_of(event["name"], event["args"]) for event in linear]
recorded = sum(work.flops for work in works if work)
weights = 12 * LAYERS * WIDTH**2 + VOCAB * WIDTH
print(f"{len(linear)} matmuls, {recorded:,} FLOPs; by formula {6 * weights * BATCH * CONTEXT:,}")
assert recorded == 6 * weights * BATCH * CONTEXT

# %% [markdown] slug="time"
# ## Where the time goes
#
# Operations hold each other: `aten::linear` calls `aten::addmm`. So a duration counts once if we subtract that of what
# an operation called. Which take the most time of their own? On a CPU this is the work itself, on a GPU only its
# launch.

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
# ## Kernels, if there is a GPU
#
# The library reads the same file: busy, idle, not launched yet. Without a GPU there is no kernel to read.

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
# ## Your own
#
# Which share changes when the context is four times as long, which with a vocabulary ten times as large? Change the
# constants in the first cell and run it again; the assertion holds for all of them. Then put a step of your own in
# place of `step`.
