# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a call costs that does next to nothing: to queue it, to run it, to wait for it, to replay it from a graph."""
# Slow: thousands of calls that do next to nothing.

# --8<-- [start:setup]
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from flops_bytes.lessons.measure import divide, get_device, time_call

torch.set_num_threads(1)  # on a CPU: fewer threads to disturb
measured_on_gpu = torch.cuda.is_available()


def synchronize() -> None:
    """Waits until the GPU has done all it was told; a CPU's calls do so anyway."""
    if measured_on_gpu:
        torch.cuda.synchronize()


# --8<-- [end:setup]


# --8<-- [start:calls]
SMALL = 32

device = get_device()
vector = torch.zeros(SMALL, device=device)
matrix = torch.zeros(SMALL, SMALL, device=device)
out = torch.empty_like(matrix)

CALLS: dict[str, Callable[[], Any]] = {
    "empty": lambda: torch.empty(SMALL, device=device),  # no kernel
    "add": lambda: vector.add_(1),
    "product": lambda: torch.mm(matrix, matrix, out=out),
}
# --8<-- [end:calls]


# --8<-- [start:clocks]
ROUNDS, IN_A_ROUND = 50, 100  # fewer in a round than the queue holds


def each(call: Callable[[], Any], wait_each: bool, wait_last: bool) -> float:
    """Median seconds of one call by the CPU's clock."""
    found = []
    for _ in range(ROUNDS):
        synchronize()
        began = time.perf_counter()
        for _ in range(IN_A_ROUND):
            call()
            if wait_each:
                synchronize()
        if wait_last:
            synchronize()
        found.append((time.perf_counter() - began) / IN_A_ROUND)
    return statistics.median(found)


measured_queued_seconds = {name: each(call, wait_each=False, wait_last=False) for name, call in CALLS.items()}
measured_in_a_row_seconds = {name: each(call, wait_each=False, wait_last=True) for name, call in CALLS.items()}
measured_waiting_seconds = {name: each(call, wait_each=True, wait_last=False) for name, call in CALLS.items()}
for name in CALLS:
    print(f"{name:8} queued in {measured_queued_seconds[name] * 1e6:6.2f} µs,", end=" ")
    print(f"in a row {measured_in_a_row_seconds[name] * 1e6:6.2f} µs,", end=" ")
    print(f"with a wait {measured_waiting_seconds[name] * 1e6:6.2f} µs")
# --8<-- [end:clocks]


# --8<-- [start:graph]
NODES = (1, 10, 100, 1000)


def replay_seconds(call: Callable[[], Any]) -> dict[int, float] | None:
    """Seconds to replay a graph of so many calls; None on a CPU, which has no graphs."""
    if not measured_on_gpu:
        return None
    found = {}
    for nodes in NODES:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                call()
        found[nodes] = time_call(graph.replay, 10, 0.1, 0.5).median_seconds
    return found


measured_replays = {name: replay_seconds(CALLS[name]) for name in ("add", "product")}
# --8<-- [end:graph]


# --8<-- [start:line]
class Line(NamedTuple):
    """A replay of n calls as start + n · node, from the shortest graph and the longest."""

    start_seconds: float
    node_seconds: float
    hundred_to_predicted_ratio: float  # of 100 calls, which the line has not seen


def fit(replays: dict[int, float]) -> Line:
    """The line through the first and the last point, tried on one between."""
    first, last = NODES[0], NODES[-1]
    node = (replays[last] - replays[first]) / (last - first)
    start = replays[first] - first * node
    return Line(start, node, replays[100] / (start + 100 * node))


measured_lines = {name: fit(replays) if replays else None for name, replays in measured_replays.items()}
predicted_in_a_row_seconds = {  # the slower of two who work at once: Python queues, the GPU runs
    name: max(measured_queued_seconds[name], line.node_seconds) if line else None
    for name, line in measured_lines.items()
}
measured_in_a_row_ratio = {
    name: divide(measured_in_a_row_seconds[name], predicted) for name, predicted in predicted_in_a_row_seconds.items()
}
measured_graph_ratio = {
    name: divide(measured_in_a_row_seconds[name], line and line.node_seconds) for name, line in measured_lines.items()
}
for name, line in measured_lines.items():
    print(f"{name:8}", f"a node of a graph: {line.node_seconds * 1e6:.2f} µs" if line else "no graph here")
# --8<-- [end:line]
