# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What a GPU's memory holds before your first tensor, the largest one it takes, and the link to it by size."""
# Slow: transfers of all sizes, and a search for the largest tensor that fits.

# --8<-- [start:setup]
import os
import subprocess
from collections.abc import Callable

import torch
import torch.nn.functional as F

from flops_bytes.lessons.measure import divide, time_call

MIB = 2**20
measured_on_gpu = torch.cuda.is_available()
# --8<-- [end:setup]


# --8<-- [start:stock]
HOPPER_WORKSPACE_BYTES = 32 * MIB  # for cuBLAS, from PyTorch's allocator: what its manual advises


def attend() -> object:
    """A first fused attention."""
    q = torch.zeros(1, 8, 1024, 64, dtype=torch.bfloat16, device="cuda")
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def multiply(dtype: torch.dtype) -> object:
    """A first product in this type."""
    x = torch.zeros(8, 8, dtype=dtype, device="cuda")
    return x @ x


FIRSTS: dict[str, Callable[[], object]] = {
    "context": lambda: None,  # asking for the memory creates it
    "tensor": lambda: torch.zeros(8, 8, device="cuda"),
    "product_fp32": lambda: multiply(torch.float32),
    "product_bf16": lambda: multiply(torch.bfloat16),
    "attention": attend,
}


def take_stock(name: str) -> dict[str, int | None]:
    """After this first: bytes taken of the card, and how many of them PyTorch's allocator has."""
    if not measured_on_gpu:
        return {"used_bytes": None, "reserved_bytes": None, "outside_bytes": None}
    FIRSTS[name]()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    return {"used_bytes": total - free, "reserved_bytes": reserved, "outside_bytes": total - free - reserved}


def grown(before: int | None, after: int | None) -> int | None:
    """By how much; None where it was not measured."""
    return None if before is None or after is None else after - before


measured_stock = {name: take_stock(name) for name in FIRSTS}
measured_reserved_bytes = [stock["reserved_bytes"] for stock in measured_stock.values()]
measured_workspace_bytes = grown(*measured_reserved_bytes[1:3])  # by the first product
for name, stock in measured_stock.items():
    used = stock["used_bytes"]
    print(f"{name:13}", f"{used / MIB:,.0f} MiB of the card are taken" if used is not None else "no GPU here")
# --8<-- [end:stock]


# --8<-- [start:largest]
SEGMENT_BYTES = 2 * MIB  # large requests are rounded up to it


def fits(size: int) -> bool:
    """Whether one tensor of so many bytes can be had."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def find_largest() -> dict[str, int | None]:
    """Bytes that are free, and the largest request that is met, by bisection."""
    if not measured_on_gpu:
        return {"free_bytes": None, "met_bytes": None}
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    met, refused = 0, free // SEGMENT_BYTES + 1  # in segments
    while refused - met > 1:
        middle = (met + refused) // 2
        met, refused = (middle, refused) if fits(middle * SEGMENT_BYTES) else (met, middle)
    return {"free_bytes": free, "met_bytes": met * SEGMENT_BYTES}


measured_largest = find_largest()
measured_met_share = divide(measured_largest["met_bytes"], measured_largest["free_bytes"])
print("of what is free, one tensor can have:", f"{measured_met_share:.2%}" if measured_met_share else "no GPU here")
# --8<-- [end:largest]


# --8<-- [start:lanes]
LANE_TRANSFERS = {3: 8e9, 4: 16e9, 5: 32e9}  # a second, by generation of PCI Express; 128 of 130 are payload


def ask_lanes() -> tuple[int | None, int | None]:
    """Generation and number of lanes by nvidia-smi; None for what it does not know."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    options = ["--format=csv,noheader,nounits", f"--id={card}"]
    query = "--query-gpu=pcie.link.gen.max,pcie.link.width.max"
    try:
        said = subprocess.run(["nvidia-smi", query, *options], capture_output=True, text=True).stdout
        generation, lanes = (int(word) for word in said.split(","))
    except (OSError, ValueError):
        return None, None
    return generation, lanes


def link_rate(generation: int | None, lanes: int | None) -> float | None:
    """Bytes a second, one way."""
    transfers = LANE_TRANSFERS.get(generation or 0)
    return lanes * transfers * 128 / 130 / 8 if lanes and transfers else None


measured_generation, measured_lanes = ask_lanes()
predicted_link_bytes_per_second = link_rate(measured_generation, measured_lanes)
print("PCIe generation, lanes, bytes a second:", measured_generation, measured_lanes, predicted_link_bytes_per_second)
# --8<-- [end:lanes]


# --8<-- [start:transfers]
measured_sizes = [2**power for power in range(12, 31 if measured_on_gpu else 25, 2)]  # bytes


def make_ways(size: int) -> dict[str, Callable[[], object]]:
    """The ways that bytes can go; without a GPU, from memory to memory alone."""
    pageable, other = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    if not measured_on_gpu:
        return {"host": lambda: other.copy_(pageable)}
    pinned, back = pageable.pin_memory(), other.pin_memory()
    there, too = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()

    def both() -> None:
        with torch.cuda.stream(side):
            back.copy_(too, non_blocking=True)
        there.copy_(pinned, non_blocking=True)

    return {
        "host": lambda: other.copy_(pageable),
        "pageable_there": lambda: there.copy_(pageable),
        "pinned_there": lambda: there.copy_(pinned, non_blocking=True),
        "in_line_there": lambda: there.copy_(pageable.pin_memory(), non_blocking=True),
        "pinned_back": lambda: back.copy_(there, non_blocking=True),
        "both": both,  # twice the bytes
    }


def time_ways(size: int) -> dict[str, float]:
    """Seconds of each way, until the bytes have arrived."""

    def arrive(call: Callable[[], object]) -> float:
        def call_and_wait() -> None:
            call()
            if measured_on_gpu:
                torch.cuda.synchronize()

        least = 0.05 if measured_on_gpu else 0.005
        return time_call(call_and_wait, 3, least, 4 * least).median_seconds

    return {name: arrive(call) for name, call in make_ways(size).items()}


measured_by_size = {size: time_ways(size) for size in measured_sizes}
# --8<-- [end:transfers]


# --8<-- [start:rates]
WAYS = ("host", "pageable_there", "pinned_there", "in_line_there", "pinned_back", "both")


def rate(way: str, size: int) -> float | None:
    """Bytes a second of one way at one size; None where there is no such way."""
    moved = 2 * size if way == "both" else size
    return divide(moved, measured_by_size[size].get(way))


def half_size(way: str) -> float | None:
    """Bytes at which t = start + N / B takes twice N / B: the smallest transfer is all start."""
    top = rate(way, measured_sizes[-1])
    return top and top * measured_by_size[measured_sizes[0]][way]


def add(copy: float | None, link: float | None) -> float | None:
    """Seconds of one after the other; None where one of them is not known."""
    return copy + link if copy and link else None


measured_ways_bytes_per_second = {way: {size: rate(way, size) for size in measured_sizes} for way in WAYS}
measured_top_bytes_per_second = {way: rate(way, measured_sizes[-1]) for way in WAYS}
measured_link_share = {
    way: divide(top, predicted_link_bytes_per_second) for way, top in measured_top_bytes_per_second.items()
}
measured_both_ratio = divide(measured_top_bytes_per_second["both"], measured_top_bytes_per_second["pinned_there"])
predicted_half_bytes = {way: half_size(way) for way in WAYS}
measured_largest_seconds = {way: measured_by_size[measured_sizes[-1]].get(way) for way in WAYS}
predicted_link_seconds = divide(measured_sizes[-1], predicted_link_bytes_per_second)
predicted_in_line_seconds = add(measured_largest_seconds["host"], measured_largest_seconds["pinned_there"])
measured_in_line_ratio = divide(measured_largest_seconds["in_line_there"], measured_largest_seconds["pageable_there"])
for way, top in measured_top_bytes_per_second.items():
    print(f"{way:15}", f"{top / 1e9:.1f} GB/s" if top else "no GPU here")
# --8<-- [end:rates]
