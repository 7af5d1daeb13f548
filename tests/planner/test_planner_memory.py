"""PyTorch's out-of-memory message is explained, as its versions write it, and says what to try first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from flops_bytes.files.out_of_memory import PARTS, PLACES, decode, sizes
from planner import engine
from planner import words as planner_words
from tests.conftest import ROOT

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
allocated memory try setting max_split_size_mb to avoid fragmentation."""
NEIGHBOUR = """CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.81 GiB of which
12.25 MiB is free. Process 12345 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has
99.79 GiB memory in use. Of the allocated memory 99.10 GiB is allocated by PyTorch, and 195.00 MiB is reserved by
PyTorch but unallocated. If reserved but unallocated memory is large try setting
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."""
ROCM = """HIP out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 191.98 GiB of which 398.00 MiB
is free. Of the allocated memory 188.25 GiB is allocated by PyTorch, and 480.10 MiB is reserved by PyTorch but
unallocated. If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True
to avoid fragmentation."""

# Real ones: the wording of each time, with its source.
REAL = {
    # https://github.com/pytorch/pytorch/issues/16417, January 2019, 1.0
    "1.0": """RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity;
    8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)""",
    # https://github.com/pytorch/pytorch/issues/31252, December 2019: what is cached lies beside what is allocated
    "1.3": """WARNING:root:CUDA out of memory. Tried to allocate 1.72 GiB (GPU 0; 10.76 GiB total capacity; 4.01 GiB
    already allocated; 356.00 MiB free; 5.54 GiB cached)  | 1/2538 [00:00<?, ?batch/s]""",
    # https://github.com/CSAILVision/semantic-segmentation-pytorch/issues/151, March 2019
    "1.0, tensors and request": """RuntimeError: CUDA out of memory. Tried to allocate 4.46 GiB (GPU 0; 7.93 GiB total
    capacity; 4.72 GiB already allocated; 2.41 GiB free; 11.21 MiB cached)""",
    # https://github.com/pytorch/pytorch/issues/35901, April 2020, 1.4
    "1.4": """CUDA out of memory. Tried to allocate 10.84 GiB (GPU 0; 23.65 GiB total capacity; 1.06 GiB already
    allocated; 10.26 GiB free; 12.53 GiB reserved in total by PyTorch)""",
    # https://github.com/vllm-project/vllm/issues/783, August 2023: "other processes taking up about 15G"
    "2.0": """torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.63 GiB (GPU 0; 44.56 GiB total
    capacity; 27.91 GiB already allocated; 565.31 MiB free; 27.93 GiB reserved in total by PyTorch) If reserved memory
    is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory
    Management and PYTORCH_CUDA_ALLOC_CONF""",
    # https://github.com/YingqianWang/iPASSR/issues/9, March 2024, Windows: more than the card has
    "2.0, Windows": """torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.73 GiB (GPU 0; 8.00 GiB
    total capacity; 17.20 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch) If reserved
    memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.""",
    # https://github.com/Synthintel0/MyGirlGPT/issues/11, December 2023
    "2.1": """torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacty
    of 4.00 GiB of which 41.56 MiB is free. Including non-PyTorch memory, this process has 3.44 GiB memory in use. Of
    the allocated memory 2.58 GiB is allocated by PyTorch, and 1.90 MiB is reserved by PyTorch but unallocated. If
    reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.""",
    # https://github.com/FoundationVision/GenerateU/issues/10, May 2024: in a container "Process 20398" is this one
    "2.1, container": """torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a
    total capacty of 14.75 GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the allocated
    memory 14.06 GiB is allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated. If reserved but
    unallocated memory is large try setting max_split_size_mb to avoid fragmentation.""",
    # https://github.com/pytorch/pytorch/issues/111363, October 2023: a share is set, and 2.1 does not say so
    "2.1, silent limit": """CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacty of 79.15 GiB of
    which 38.09 GiB is free. Including non-PyTorch memory, this process has 41.06 GiB memory in use. Of the allocated
    memory 39.10 GiB is allocated by PyTorch, and 427.46 MiB is reserved by PyTorch but unallocated. If reserved but
    unallocated memory is large try setting max_split_size_mb to avoid fragmentation.""",
    # https://github.com/murong-xu/CADS/issues/4
    "2.5, a large request": """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a
    total
    capacity of 31.47 GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in
    use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated.
    If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid
    fragmentation.""",
    # https://github.com/lianqi1008/Control-GIC/issues/6, October 2025
    "2.5, above the card": """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.89 GiB. GPU 0 has a
    total
    capacity of 79.14 GiB of which 58.59 GiB is free. Process 4078482 has 11.29 GiB memory in use. Including non-PyTorch
    memory, this process has 9.25 GiB memory in use. Of the allocated memory 8.27 GiB is allocated by PyTorch, and
    500.38 MiB is reserved by PyTorch but unallocated.""",
    # https://github.com/kaito-project/kaito/issues/976, April 2025: pools of CUDA graphs, and a container
    "2.5, graphs": """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 546.00 MiB. GPU 0 has a total
    capacity
    of 15.77 GiB of which 514.19 MiB is free. Process 562167 has 15.25 GiB memory in use. Of the allocated memory
    13.73 GiB is allocated by PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA Graphs), and 736.86 MiB is
    reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.""",
    # https://github.com/awslabs/keys_values/issues/92: the variable's new name, and four processes
    "2.9": """[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 572.00 MiB. GPU 0 has a total
    capacity of 39.49 GiB of which 321.31 MiB is free. Process 3721648 has 414.00 MiB memory in use. Including
    non-PyTorch memory, this process has 37.46 GiB memory in use. Process 1374765 has 414.00 MiB memory in use. Process
    1374763 has 414.00 MiB memory in use. Process 1374764 has 414.00 MiB memory in use. Of the allocated memory
    36.04 GiB is allocated by PyTorch, and 321.37 MiB is reserved by PyTorch but unallocated. If reserved but
    unallocated
    memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.""",
    # https://github.com/pytorch/pytorch/issues/138002, October 2024
    "HIP": """HIP out of memory. Tried to allocate 6.64 GiB. GPU 0 has a total capacity of 19.92 GiB of which 6.22
    GiB is
    free. Of the allocated memory 5.34 GiB is allocated by PyTorch, and 7.10 GiB is reserved by PyTorch but unallocated.
    If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid
    fragmentation.""",
    # https://github.com/ROCm/TheRock/issues/2118, November 2025, 2.9
    "HIP, a share": """torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total
    capacity of
    255.98 GiB of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by
    PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch but
    unallocated. If reserved but unallocated memory is large try setting
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.""",
    # https://github.com/kyuz0/amd-strix-halo-image-video-toolboxes/issues/3: memory that the host shares
    "HIP, shared": """torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total
    capacity of
    128.00 GiB of which 780.24 MiB is free. Of the allocated memory 57.70 GiB is allocated by PyTorch, and 75.82 MiB is
    reserved by PyTorch but unallocated.""",
    # https://github.com/intel/intel-extension-for-pytorch/issues/629, May 2024
    "XPU, extension": """RuntimeError: XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total capacity;
    176.00 MiB already allocated; 176.00 MiB reserved in total by PyTorch)""",
    # https://github.com/intel/intel-extension-for-pytorch/issues/846, July 2025
    "XPU": """torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of
    15.11 GiB. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but
    unallocated. Please use `empty_cache` to release all unoccupied cached memory.""",
    # https://github.com/intel/torch-xpu-ops/issues/3011, March 2026, 2.12
    "XPU, 2.12": """torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.66 GiB. GPU 0 has a total capacity of
    5.65 GiB of which 5.65 GiB is free. Of the allocated memory 195.50 KiB is allocated by PyTorch, and 1.81 MiB is
    reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.""",
}
# https://github.com/Comfy-Org/ComfyUI/issues/7440, March 2025
MAC = """MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: 27.20 GiB).
Tried to
allocate 292.50 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit …"""

CASES: dict[str, tuple[str, str, list[list[str]]]] = {  # what is tried first, and the causes with their bytes
    "larger than the card": (NEWEST, "asked", [["asked", "500.0 GiB"]]),
    "a share of the card": (LIMITED, "allowed", [["allowed", "7.0 GiB"]]),
    "another process": (SHARED, "process", [["process", "20.1 GiB"], ["idle", "57.8 MiB"]]),
    "another process, not what is idle": (NEIGHBOUR, "process", [["process", "40.0 GiB"], ["idle", "195.0 MiB"]]),
    "tensors, not what lies beside them": (
        ROCM,
        "held",
        [["held", "188.2 GiB"], ["other", "2.9 GiB"], ["asked", "896.0 MiB"], ["idle", "480.1 MiB"]],
    ),
    "tensors": (FULL, "held", [["held", "90.6 GiB"], ["asked", "1.2 GiB"], ["idle", "120.5 MiB"]]),
    "fragments, long ago": (OLD, "split", [["idle", "757.8 MiB"]]),
}

REAL_SAYS: dict[str, tuple[str, list[str]]] = {  # what is tried first, and the order of the causes
    "1.0": ("free", ["free"]),
    "1.3": ("nothing", ["idle"]),
    "1.0, tensors and request": ("held", ["held", "asked", "idle"]),
    "1.4": ("nothing", ["idle"]),
    "2.0": ("other", ["other", "idle"]),
    "2.0, Windows": ("asked", ["asked"]),
    "2.1": ("held", ["held", "asked", "idle"]),
    "2.1, container": ("held", ["held", "asked", "idle"]),
    "2.1, silent limit": ("free", ["free"]),
    "2.5, a large request": ("asked", ["asked", "idle", "held"]),
    "2.5, above the card": ("asked", ["asked"]),
    "2.5, graphs": ("held", ["held", "idle", "asked"]),
    "2.9": ("held", ["held", "process", "asked", "idle"]),
    "HIP": ("idle", ["idle"]),
    "HIP, a share": ("allowed", ["allowed", "idle"]),
    "HIP, shared": ("other", ["other", "idle"]),
    "XPU, extension": ("rest", ["rest"]),
    "XPU": ("rest", ["rest"]),
    "XPU, 2.12": ("free", ["free"]),
}


def only(text: str) -> dict[str, Any]:
    found = decode(text)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("message", "first", "causes"), CASES.values(), ids=CASES)
def test_causes_stand_in_the_order_of_their_bytes(message: str, first: str, causes: list[list[str]]) -> None:
    assert (only(message)["first"], only(message)["causes"]) == (first, causes)


@pytest.mark.parametrize("name", REAL)
def test_every_wording_since_1_0_is_read(name: str) -> None:
    found = only(REAL[name])
    assert (found["first"], [cause for cause, _ in found["causes"]]) == REAL_SAYS[name]
    assert found["gpu"] == "0" and {"asked", "total", "held", "idle"} <= dict(found["rows"]).keys()


def test_what_was_cached_lay_beside_what_was_allocated() -> None:
    """Up to 1.3: "cached" is what is reserved less what is allocated, so that the parts add up to the card."""
    for name in ("1.0", "1.3", "1.0, tensors and request"):
        found = sizes(REAL[name])
        assert "reserved" not in found and found["held"] + found["idle"] + found["free"] <= found["total"]
    assert dict(only(REAL["1.3"])["rows"]).items() >= {"held": "4.0 GiB", "idle": "5.5 GiB"}.items()


def test_processes_are_told_apart() -> None:
    """Those that a message names, this one among them, and in a container this one by another's number."""
    rows = dict(only(SHARED)["rows"])
    assert (rows["process"], rows["own"], rows["other"]) == ("20.1 GiB", "1.2 GiB", "13.8 MiB")
    assert only(SHARED)["processes"] == "3652628"
    four = only(REAL["2.9"])
    assert four["processes"] == "3721648, 1374765, 1374763, 1374764" and dict(four["rows"])["process"] == "1.6 GiB"
    own = only(REAL["2.1, container"])
    assert own["processes"] == "" and "process" not in dict(own["rows"])
    assert dict(only(REAL["2.5, graphs"])["rows"]).items() >= {"own": "819.6 MiB", "other": "18.3 MiB"}.items()
    # As a container's GPU with a second process was reported in 2024, 2.1.
    two = only("""Tried to allocate 448.00 MiB. GPU 1 has a total capacty of 79.10 GiB of which 364.31 MiB is free.
    Process
    175080 has 1.46 GiB memory in use. Process 175356 has 77.26 GiB memory in use. Of the allocated memory 72.12 GiB is
    allocated by PyTorch, and 3.78 GiB is reserved by PyTorch but unallocated.""")
    assert two["processes"] == "175080"
    assert dict(two["rows"]).items() >= {"process": "1.5 GiB", "own": "1.4 GiB"}.items()
    # A process that another container has is nobody here: it is not taken for this one.
    other = only(SHARED.replace("Including non-PyTorch\nmemory, this process has 27.40 GiB memory in use. ", ""))
    assert (other["processes"], other["first"]) == ("3652628", "process")


def test_a_number_that_the_driver_does_not_know_counts_for_nothing() -> None:
    """Under WSL each process has 2^34 GiB (vLLM's issue 7655)."""
    unknown = """Tried to allocate 34.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 0 bytes is free.
    Process 12
    has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in
    use.
    Of the allocated memory 3.35 GiB is allocated by PyTorch, and 125.23 MiB is reserved by PyTorch but unallocated."""
    found = only(unknown)
    assert found["first"] == "held" and found["processes"] == "" and "own" not in dict(found["rows"])


def test_messages_that_are_pasted_together_are_kept_apart() -> None:
    pasted = f"[rank3]: {SHARED}\n[rank1]: {FULL}\n[rank3]: {SHARED}"
    assert decode(pasted) == [only(SHARED), only(FULL)]
    assert [each["gpu"] for each in decode(pasted)] == ["3", "1"]
    cut = SHARED[: SHARED.index("Of the")]
    assert decode(f"{cut}\n{FULL}") == [only(cut), only(FULL)] and only(cut)["first"] == "cut", (
        "what one lacks is not taken from the next"
    )
    assert [each["gpus"] for each in decode(pasted)] == [["3"], ["1"]]


def test_ranks_that_say_the_same_are_answered_once() -> None:
    """But for the GPU and a twentieth of it; one that fails for another reason is answered by itself."""
    ranks = [
        f"[rank{n}]: " + FULL.replace("GPU 1", f"GPU {n}").replace("90.63", f"{90.63 - n / 10:.2f}") for n in range(8)
    ]
    one = only("\n".join(ranks))
    assert one["gpu"] == "0" and one["gpus"] == [str(n) for n in range(8)] and ["held", "90.6 GiB"] in one["rows"]
    assert [each["gpus"] for each in decode("\n".join([*ranks, SHARED]))] == [one["gpus"], ["3"]]
    far = FULL.replace("GPU 1", "GPU 2").replace("90.63", "85.63")
    assert [each["gpus"] for each in decode(f"{FULL} {far}")] == [["1"], ["2"]]


SETTINGS = {  # the variable by the name that a message gives it; none where its version had none
    "CUDA": (NEWEST, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    "HIP": (ROCM, "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"),
    "unified": (REAL["2.9"], "PYTORCH_ALLOC_CONF=expandable_segments:True"),
    "2.1": (REAL["2.1"], "split"),
    "2.0": (OLD, "split"),
    "1.4": (REAL["1.4"], "nothing"),
    "HIP, cut off": (ROCM.partition(" If reserved")[0], "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"),
    "1.0": (REAL["1.0"], "nothing"),
    "XPU": (REAL["XPU"], "nothing"),
    "cut off": (FULL, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
}


@pytest.mark.parametrize(("message", "setting"), SETTINGS.values(), ids=SETTINGS)
def test_the_variable_has_the_name_that_the_message_gives(message: str, setting: str) -> None:
    assert only(message)["setting"] == setting


def test_the_new_name_is_said_to_fail_in_one_version() -> None:
    fragments = REAL["HIP"].replace("HIP", "CUDA").replace("PYTORCH_CUDA_", "PYTORCH_")
    assert (only(fragments)["first"], only(fragments)["setting"]) == (
        "unified",
        "PYTORCH_ALLOC_CONF=expandable_segments:True",
    )
    for language in ("en", "zh"):
        said, others = words(language)["first"]["unified"], words(language)["first"]["idle"]
        assert "2.9.1" in said and "PYTORCH_CUDA_ALLOC_CONF" in said and "2.9.1" not in others
        chapter = (ROOT / "docs" / language / "gpu-memory.md").read_text(encoding="utf-8")
        assert "PYTORCH_ALLOC_CONF=expandable_segments:True" in chapter and "2.9.1" in chapter


def test_the_chapters_message_is_answered_as_the_chapter_does() -> None:
    """Fragments: the process that it names is the failing one itself, and half a GiB of it lies beside PyTorch's."""
    chapter = (ROOT / "docs" / "en" / "gpu-memory.md").read_text(encoding="utf-8")
    found = only(chapter[: chapter.index("## ")])
    assert (found["first"], found["causes"], found["processes"]) == ("idle", [["idle", "40.7 GiB"]], "")
    assert dict(found["rows"])["own"] == "512.0 MiB"


XLA = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes."
)


@pytest.mark.parametrize("text", ["", "out of memory", NEWEST[60:], MAC, XLA])
def test_another_text_is_not(text: str) -> None:
    assert decode(text) == []


# https://github.com/hiyouga/LLaMA-Factory: as torch_npu writes it
NPU = """RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity; 50.10 GiB already
allocated; 50.10 GiB current active; 1.20 GiB free; 58.90 GiB reserved in total by PyTorch) If reserved memory is >>
allocated memory try setting max_split_size_mb to avoid fragmentation."""
# c10/cuda/CUDAMallocAsyncAllocator.cpp; ComfyUI has it by default, so https://github.com/2noise/ChatTTS/issues/9 too
ASYNC = """torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 15.20 GiB
Requested               : 512.00 MiB
Device limit            : 15.99 GiB
Free (according to CUDA): 0 bytes
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB"""
# https://github.com/karpathy/nanochat/issues/443
SHORTENED = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 4 has a total capacity of
79.11 GiB of which 1.07 GiB is free. ... 73.15 GiB is allocated by PyTorch ..."""
HIP_SPLIT = """torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB (GPU 0; 23.98 GiB total
capacity; 12.00 GiB already allocated; 1.20 GiB free; 21.50 GiB reserved in total by PyTorch) If reserved memory is >>
allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and
PYTORCH_HIP_ALLOC_CONF"""
OTHER_WORDS: dict[str, tuple[str, str, list[str]]] = {  # what is tried first, and the causes in their order
    "NPU": (NPU, "split", ["idle"]),
    "HIP of old": (HIP_SPLIT, "split", ["idle"]),
    "cudaMallocAsync": (ASYNC, "held", ["held", "asked"]),
    "shortened by hand": (SHORTENED, "held", ["held", "unsaid", "asked"]),
    "shortened, much unsaid": (SHORTENED.replace("73.15", "13.15"), "unsaid", ["unsaid"]),
    "cut off": ("CUDA out of memory. Tried to allocate 112.00 MiB. GPU", "cut", []),
    "cut off after the card": (SHORTENED.partition(" ...")[0], "cut", []),
    "cut off, above the card": (SHORTENED.partition(" ...")[0].replace("1.96", "101.96"), "asked", ["asked"]),
    "a limit of cudaMallocAsync": (
        ASYNC.replace("17179869184.00", "8.00").replace("0 bytes", "7.50 GiB").replace("15.20", "7.90"),
        "allowed",
        ["allowed"],
    ),
}


@pytest.mark.parametrize("name", OTHER_WORDS)
def test_messages_in_other_words_are_read(name: str) -> None:
    message, first, causes = OTHER_WORDS[name]
    found = only(message)
    assert (found["first"], [cause for cause, _ in found["causes"]]) == (first, causes)
    assert {cause for cause in causes} <= dict(found["rows"]).keys()


def test_a_card_has_its_makers_variable_and_tool() -> None:
    told = {
        maker: only(text) for maker, text in {"NPU": NPU, "HIP": HIP_SPLIT, "CUDA": FULL, "XPU": REAL["XPU"]}.items()
    }
    assert {maker: one["smi"].partition("-")[0] for maker, one in told.items()} == {
        "NPU": "npu",
        "HIP": "rocm",
        "CUDA": "nvidia",
        "XPU": "xpu",
    }
    assert all(one["variable"] == f"PYTORCH_{maker}_ALLOC_CONF" for maker, one in told.items())
    assert only(NPU)["gpu"] == "3" and only(REAL["HIP, a share"])["smi"] == "rocm-smi"


BARE = {
    "bare": "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at",
    "bare, HIP": "RuntimeError: HIP error: out of memory",
    "bare, cuBLAS": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "serve, vLLM": """ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV
    cache is needed, which is larger than the available KV cache memory (0.71 GiB). Based on the available memory, the
    estimated maximum model length is 5808. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`""",
    "serve, vLLM of old": """ValueError: The model's max seq len (32768) is larger than the maximum number of tokens
    that can be stored in KV cache (5808). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`""",
    "serve, SGLang": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
}


@pytest.mark.parametrize("name", BARE)
def test_what_names_no_numbers_is_told_as_what_it_is(name: str) -> None:
    found = only(BARE[name])
    assert found["first"] == name.partition(",")[0] and found["rows"] == found["causes"] == found["gpus"] == []
    assert found.get("length", "5808") == ("" if "SGLang" in name else "5808")
    assert found["smi"] == ("rocm-smi" if "HIP" in name else "nvidia-smi")


TRACEBACKS = {
    "loss": """ File "/opt/transformers/loss/loss_utils.py", line 54, in ForCausalLMLoss
    logits = logits.float()""",
    "load": """ File "/opt/transformers/modeling_utils.py", line 751, in _load_state_dict_into_meta_model
    param = param.to(casting_dtype)""",
    "optimizer": """ File "/opt/accelerate/optimizer.py", line 178, in step
    self.optimizer.step(closure)
  File "/opt/torch/optim/adamw.py", line 98, in _init_group
    state["exp_avg_sq"] = torch.zeros_like(p)""",
    "backward": """ File "/opt/torch/_tensor.py", line 626, in backward
    torch.autograd.backward(""",
    "": """ File "/opt/transformers/models/qwen2/modeling_qwen2.py", line 51, in forward
    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))""",
}


@pytest.mark.parametrize("at", TRACEBACKS)
def test_a_traceback_says_where_memory_ran_out(at: str) -> None:
    """By its last line that tells: a loss before the backward pass has gone by."""
    assert only(f"Traceback:\n {TRACEBACKS[at]}\n{FULL}")["at"] == at
    assert only(f"Traceback:\n {TRACEBACKS['load']} {TRACEBACKS[at]}\n{FULL}")["at"] == (at or "load")
    assert only(FULL)["at"] == ""


UNITS = {"bytes": 1, "KiB": 1_024, "MiB": 1_024**2, "GiB": 1_024**3}


@pytest.mark.parametrize("unit", UNITS)
def test_every_number_is_read_in_its_unit(unit: str) -> None:
    """Each number of a message is another one, so that none stands for its neighbour."""
    newest = f"""Tried to allocate 3.25 {unit}. GPU 0 has a total capacity of 4.25 {unit} of which 5.25 {unit} is free.
    Including non-PyTorch memory, this process has 6.25 {unit} memory in use. 7.25 {unit} allowed; Of the allocated
    memory
    8.25 {unit} is allocated by PyTorch, with 9.25 {unit} allocated in private pools, and 10.25 {unit} is reserved by
    PyTorch but unallocated."""
    names = ("asked", "total", "free", "this", "allowed", "held", "graphs", "idle")
    assert sizes(newest) == {name: int((3.25 + n) * UNITS[unit]) for n, name in enumerate(names)}
    old = f"""Tried to allocate 3.25 {unit} (GPU 0; 4.25 {unit} total capacity; 5.25 {unit} already allocated;
    6.25 {unit} free; 9.25 {unit} reserved in total by PyTorch)"""
    expected = {name: int((3.25 + n) * UNITS[unit]) for n, name in enumerate(("asked", "total", "held", "free"))}
    oldest = old.replace("9.25", "2.25").replace("reserved in total by PyTorch", "cached")
    assert sizes(oldest) == expected | {"idle": int(2.25 * UNITS[unit])}
    expected["reserved"] = int(9.25 * UNITS[unit])
    assert sizes(old) == expected | {"idle": expected["reserved"] - expected["held"]}
    assert sizes(old.replace("9.25", "2"))["idle"] == 0, "less is reserved than held: nothing is idle"


def message(total: int, free: int, held: int, idle: int, more: str = "", asked: str = "8 GiB") -> str:
    """So much is asked for on a card of so many GiB."""
    return f"""Tried to allocate {asked}. GPU 0 has a total capacity of {total} GiB of which {free} GiB is free.
    {more} Of the allocated memory {held} GiB is allocated by PyTorch, and {idle} GiB is reserved by PyTorch but
    unallocated."""


FIRST = {  # on both sides of each threshold
    "larger than the card": (message(7, 0, 7, 0), ["asked"]),
    "as large as the card": (message(8, 0, 6, 0), ["asked", "held", "other"]),
    "free, and not allowed": (message(40, 8, 32, 0, "20 GiB allowed;"), ["allowed"]),
    "free in pieces, and not allowed": (message(40, 8, 12, 8, "20 GiB allowed;"), ["allowed", "idle"]),
    "not free, and not allowed": (message(40, 7, 33, 0, "20 GiB allowed;"), ["held", "asked"]),
    "a twentieth more is free than asked for": (message(40, 10, 20, 10), ["free"]),
    "less of it is free": (message(40, 9, 20, 11), ["idle"]),
    "tensors, request and context fill 19 twentieths": (message(40, 0, 28, 2), ["other", "idle"]),
    "they fill more": (message(40, 0, 29, 2), ["held", "other", "asked", "idle"]),
    "more idle than elsewhere": (message(40, 0, 16, 13), ["idle", "other"]),
    "more elsewhere than idle": (message(40, 0, 16, 11), ["other", "idle"]),
    "named elsewhere": (message(40, 0, 16, 2, "Process 7 has 10 GiB memory in use."), ["other", "process", "idle"]),
    "in this process": (
        message(40, 0, 16, 2, "Including non-PyTorch memory, this process has 40 GiB memory in use."),
        ["own", "idle"],
    ),
}


@pytest.mark.parametrize(("text", "causes"), FIRST.values(), ids=FIRST)
def test_causes_change_at_their_thresholds(text: str, causes: list[str]) -> None:
    assert [name for name, _ in only(text)["causes"]] == causes


def test_what_a_context_takes_is_no_cause() -> None:
    """Two GiB beside PyTorch are looked for; less may be the context and libraries."""
    for elsewhere, causes in ((2_048, ["idle", "other"]), (2_047, ["idle"])):
        text = f"""Tried to allocate 1 MiB. GPU 0 has a total capacity of 40 GiB of which 0 bytes is free. Of the
        allocated memory 20 GiB is allocated by PyTorch, and {20 * 1_024 - elsewhere} MiB is reserved by PyTorch but
        unallocated."""
        assert [name for name, _ in only(text)["causes"]] == causes
    rows = dict(only(message(40, 50, 33, 0))["rows"])
    assert rows["other"] == "0.0 MiB", "another process freed some meanwhile"


def words(language: str) -> dict[str, Any]:
    found: dict[str, Any] = planner_words(language)["memory"]
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_answer_has_words(language: str) -> None:
    said = words(language)
    assert tuple(said["parts"]) == PARTS
    firsts = {"idle", "own", "process", "other", "unsaid", "held", "free", "rest", "asked", "allowed"}
    assert said["first"].keys() == firsts | {"unified", "split", "nothing", "cut", "bare", "serve"}
    assert said["at"].keys() == {*PLACES} and {len(told) for told in said["at"].values()} == {3}
    assert len(said["to"]["order"]) == 2 and {"plan", "serve"} < said["to"].keys()
    causes = {name for text, _ in FIRST.values() for name, _ in only(text)["causes"]} | {"rest"}
    assert causes <= said["parts"].keys() & firsts
    marks = {  # what each advice has to name, and no other
        "set_per_process_memory_fraction": {"allowed", "free"},
        "{setting}": {"idle", "unified"},
        "{smi}": {"process", "other", "free", "unsaid", "bare"},
        "{variable}": {"split"},
        "nvidia": set(),
        "{processes}": {"process"},
        "max_split_size_mb": {"split"},
        "{share}": {"asked"},
    }
    for mark, named in marks.items():
        assert {name for name, text in said["first"].items() if mark in text} == named
    assert "set_per_process_memory_fraction" in said["parts"]["allowed"] and "{processes}" in said["parts"]["process"]
    assert "MPS" in said["mps"] and "CUDA" in said["mps"]


def test_the_page_reads_them_as_python_does() -> None:
    texts = [message for message, *_ in CASES.values()] + [*REAL.values(), MAC, ROCM, f"{SHARED} {FULL} {SHARED}", ""]
    texts += [text for text, _ in FIRST.values()] + [text for text, *_ in OTHER_WORDS.values()] + [*BARE.values(), XLA]
    texts += [f"{before} {FULL}" for before in TRACEBACKS.values()]
    context = MiniRacer()
    context.eval(engine(wanted={"flops_bytes.files.out_of_memory": ["decode"]}))
    for text in texts:
        assert context.eval(f"$repr(decode({json.dumps(text)}))") == repr(decode(text))
    context.close()


@pytest.mark.parametrize(("more", "answers"), [(3.9, 1), (4.1, 2)])
def test_two_cards_are_alike_if_a_twentieth_or_less_is_between_them(more: float, answers: int) -> None:
    text = "CUDA out of memory. Tried to allocate 10.00 GiB (GPU {}; 80.00 GiB total capacity; {:.2f} GiB already"
    text += " allocated; 1.00 GiB free; {:.2f} GiB reserved in total by PyTorch)"
    both = "\n".join(text.format(gpu, held, held + 2) for gpu, held in ((0, 70), (1, 70 + more)))
    assert len(decode(both)) == answers
