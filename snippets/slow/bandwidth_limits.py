# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""Bytes a second by how many are touched, and how: copied, written, read, added up; the caches show as steps."""
# Slow: four ways to touch memory, at all sizes up to 8 GiB.

# --8<-- [start:setup]
from collections.abc import Callable
from pathlib import Path

import torch

from flops_bytes.lessons.measure import divide, get_device, get_peak_bytes_per_second, time_call

torch.set_num_threads(1)  # on a CPU: one core, and the bandwidth of one core
measured_on_gpu = torch.cuda.is_available()
# --8<-- [end:setup]


# --8<-- [start:predict]
PASSES = {"fill": 1, "read": 1, "copy": 2, "triad": 3}  # buffers that each way reads or writes


def get_caches() -> dict[str, int]:
    """Bytes of this device's caches, by name; none where the system does not say."""
    if measured_on_gpu:
        return {"L2": torch.cuda.get_device_properties(0).L2_cache_size}
    found = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):  # Linux
        if (cache / "type").read_text().strip() != "Instruction":
            level, size = (cache / "level").read_text().strip(), (cache / "size").read_text().strip()
            found[f"L{level}"] = int(size.removesuffix("K")) * 1024
    return found


predicted_caches_bytes = get_caches()
predicted_bytes_per_second = get_peak_bytes_per_second()
print("caches, in KiB:", {level: size // 1024 for level, size in predicted_caches_bytes.items()})
# --8<-- [end:predict]


# --8<-- [start:ways]
def ways(size: int) -> dict[str, Callable[[], object]]:
    """The four ways to touch buffers of this size, in bytes."""
    x, y, z = (torch.randn(size // 4, device=get_device()) for _ in range(3))
    return {
        "fill": lambda: y.fill_(1),
        "read": lambda: x.sum(),
        "copy": lambda: z.copy_(x),
        "triad": lambda: torch.add(x, y, alpha=3, out=z),  # as in STREAM
    }


def repeat(call: Callable[[], object], times: int) -> Callable[[], object]:
    """So many calls as one; on a GPU a CUDA graph, so that Python does not count."""

    def run() -> None:
        for _ in range(times):
            call()

    if not measured_on_gpu:
        return run
    call()  # libraries are loaded before the recording begins
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


# --8<-- [end:ways]


# --8<-- [start:measure]
def largest_power() -> int:
    """Of the largest buffers, in bytes: three of them fit, and 8 GiB are enough."""
    if not measured_on_gpu:
        return 26
    return min(33, (torch.cuda.mem_get_info()[0] // 4).bit_length() - 1)


measured_sizes = [2**power for power in range(12, largest_power() + 1)]  # bytes, from 4 KiB


def rates(size: int) -> dict[str, float]:
    """Bytes a second of each way, at one size of the buffers."""
    times = max(1, min(200, (2**30 if measured_on_gpu else 2**20) // size))
    found = {}
    for name, call in ways(size).items():
        timing = time_call(repeat(call, times), 3, 0.03 if measured_on_gpu else 0.004, 0.1)
        found[name] = times * PASSES[name] * size / timing.median_seconds
    return found


measured_by_size = {size: rates(size) for size in measured_sizes}
measured_ways_bytes_per_second = {
    name: {size: by_name[name] for size, by_name in measured_by_size.items()} for name in PASSES
}
# --8<-- [end:measure]


# --8<-- [start:compare]
measured_memory_bytes_per_second = {  # of the largest buffers
    name: by_size[measured_sizes[-1]] for name, by_size in measured_ways_bytes_per_second.items()
}
measured_top_bytes_per_second = {
    name: max(by_size.values()) for name, by_size in measured_ways_bytes_per_second.items()
}
measured_cache_ratio = {
    name: measured_top_bytes_per_second[name] / rate for name, rate in measured_memory_bytes_per_second.items()
}
measured_datasheet_share = {
    name: divide(rate, predicted_bytes_per_second) for name, rate in measured_memory_bytes_per_second.items()
}
for name, rate in measured_memory_bytes_per_second.items():
    top = measured_top_bytes_per_second[name]
    print(f"{name:6}{rate / 1e9:9,.1f} GB/s from memory,{top / 1e9:9,.1f} GB/s at best")
# --8<-- [end:compare]
