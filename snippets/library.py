# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Four functions of the library, each asked once."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from flops_bytes import count, fit, kernels, plan
from flops_bytes.tools.snapshot import read, report
from flops_bytes_data.step_memory import write_snapshot

# --8<-- [start:plan]
answer = plan(model="llama-3-8b", gpu="H100 SXM", gpus=8, tokens="100B", price="$2.5")
print(answer["verdict"])
print(f"{answer['memory_bytes']['total'] / 2**30:.1f} GiB on each card")
print(f"{answer['days']:.1f} days, {answer['money']:,.0f} $")
# --8<-- [end:plan]
named = {*answer}  # on the page, which names parts of each answer


# --8<-- [start:count]
def make() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(4_096, 16_384), nn.GELU(), nn.Linear(16_384, 4_096)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.randn(8_192, 4_096, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


counted = count(make)
print(f"{counted.peak_bytes / 2**30:.2f} GiB at the peak")
print(f"{sum(counted.flops.values()):.3g} FLOPs")
print("fits an RTX 4090:", fit(counted, "RTX 4090").fits)
# --8<-- [end:count]

folder = TemporaryDirectory()

# --8<-- [start:snapshot]
file = write_snapshot("out_of_memory", Path(folder.name) / "step.pickle")  # or a file of your own run
found = report(read(file), 0)
print(f"{found['peak_allocated']['size'] / 2**20:,.0f} MiB allocated at the peak")
for row in found["by_line"][:3]:
    print(f"{row['size'] / 2**20:8,.0f} MiB  {row['line']}")
# --8<-- [end:snapshot]

# --8<-- [start:trace]
EVENTS = [  # a file of torch.profiler has thousands of these
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 40, "args": {"device": 0, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "ts": 70, "dur": 20, "args": {"device": 0, "stream": 20}},
]
trace_file = Path(folder.name) / "trace.json"
trace_file.write_text(json.dumps({"traceEvents": EVENTS}))
seen = kernels.report(kernels.read(trace_file), 0)
times = [seen[f"{name}_seconds"] * 1e6 for name in ("span", "busy", "exposed_communication")]
print("{:.0f} µs, {:.0f} busy, {:.0f} of them communication alone".format(*times))
# --8<-- [end:trace]
assert {"fits", "headroom_bytes", "largest_micro_batch", "longest_context", "fewest_gpus"} <= named
assert {"step_seconds", "tokens_per_second", "mfu"} <= named
assert {"peak_reserved", "by_size", "largest", "gap_at_peak_allocated", "out_of_memory"} <= found.keys()
assert {"kinds", "gaps", "longest", "operations"} <= seen.keys()
assert {"moment", "line", "moments", "kinds", "lines"} <= {*counted._fields}
assert {"left_bytes", "step_seconds", "days"} <= {*fit(counted, "RTX 4090")._fields}
del answer, seen, found, EVENTS
