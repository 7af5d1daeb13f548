# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""One matrix product: its FLOPs and bytes, which are the same everywhere, and its speed, which is not."""

# --8<-- [start:setup]
import torch
from torch.utils.flop_counter import FlopCounterMode

from flops_bytes.lessons.measure import get_device, get_memory_usage, time_call

# --8<-- [end:setup]


# --8<-- [start:matmul]
N = 1024  # rows and columns of both matrices, in float32
a, b = torch.randn(2, N, N, device=get_device())
with FlopCounterMode(display=False) as counter:
    c = a @ b
matmul_flops = counter.get_total_flops()
assert matmul_flops == 2 * N * N * N  # the formula, with m = n = p
matmul_bytes = sum(map(get_memory_usage, (a, b, c)))
measured_matmul = time_call(lambda: a @ b)
matmul_flop_per_second = matmul_flops / measured_matmul.median_seconds
print(f"{matmul_flops:,} FLOPs, {matmul_bytes:,} bytes, {matmul_flop_per_second:.3g} FLOP/s")
# --8<-- [end:matmul]
