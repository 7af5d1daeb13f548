"""PyTorch's out-of-memory message is explained, as its versions write it, and says what to try first."""

from __future__ import annotations

import pytest
from out_of_memory import decode

# Raised by 2.11.0 with PyTorch's own allocator.
NEWEST = """CUDA out of memory. Tried to allocate 500.00 GiB. GPU 0 has a total capacity of 140.40 GiB of which
134.89 GiB is free. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 0 bytes is reserved by
PyTorch but unallocated. If reserved but unallocated memory is large try setting
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory
Management (https://docs.pytorch.org/docs/stable/notes/cuda.html)"""
LIMITED = NEWEST.replace("500.00", "5.00").replace("free. Of", "free. 7.02 GiB allowed; Of")
# As CUDACachingAllocator.cpp writes it since 2.1, whose first releases misspelled the capacity.
SHARED = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 3 has a total capacty of
47.53 GiB of which 16.88 MiB is free. Process 3652628 has 20.10 GiB memory in use. Including non-PyTorch
memory, this process has 27.40 GiB memory in use. Of the allocated memory 26.10 GiB is allocated by
PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), and 57.79 MiB is reserved by
PyTorch but unallocated. If reserved …"""
FULL = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 1 has a total capacity of
93.02 GiB of which 1.18 GiB is free. Including non-PyTorch memory, this process has 91.82 GiB memory in
use. Of the allocated memory 90.63 GiB is allocated by PyTorch, and 120.54 MiB is reserved by PyTorch
but unallocated."""
# As it was up to 2.0.
OLD = """RuntimeError: CUDA out of memory. Tried to allocate 376.00 MiB (GPU 0; 3.95 GiB total capacity; 1.72 GiB
already allocated; 354.88 MiB free; 2.46 GiB reserved in total by PyTorch) If reserved memory is >>
allocated memory try …"""

CASES = {
    "larger than the card": (NEWEST, "one_tensor", {"asked": "500.0 GiB", "free": "134.9 GiB", "held": "5.0 GiB"}),
    "a share of the card": (LIMITED, "fraction", {"asked": "5.0 GiB", "allowed": "7.0 GiB"}),
    "other processes": (
        SHARED,
        "others",
        {"total": "47.5 GiB", "graphs": "1.5 GiB", "idle": "57.8 MiB", "other": "21.4 GiB"},
    ),
    "tensors": (FULL, "tensors", {"held": "90.6 GiB", "other": "1.1 GiB"}),
    "fragments, long ago": (OLD, "fragments", {"idle": "757.8 MiB", "held": "1.7 GiB", "other": "1.1 GiB"}),
}


@pytest.mark.parametrize(("message", "first", "numbers"), CASES.values(), ids=CASES)
def test_a_message_is_explained(message: str, first: str, numbers: dict[str, str]) -> None:
    found = decode(message)
    assert found is not None and found["first"] == first
    assert numbers.items() <= dict(found["rows"]).items()


@pytest.mark.parametrize("text", ["", "out of memory", NEWEST[60:], "CUDA error: out of memory"])
def test_another_text_is_not(text: str) -> None:
    assert decode(text) is None
