"""The chip of each card: its multiprocessors, what NCCL opens between such chips, and the workspace of its cuBLAS."""

from typing import NamedTuple

from flops_bytes.memory.allocator import MIB


class Chip(NamedTuple):
    """What bytes outside of tensors follow from. How channels and NVLS count: NCCL, in outside.py."""

    multiprocessors: int
    capability: int  # CUDA's compute capability, ten times
    node_channels: tuple[int, int] = (2, 2)  # of NCCL, the fewest and the most
    nvls: int = 0  # channels of NVLS in a node


THREADS = {70: 2048, 75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}  # that a multiprocessor
# can hold, by capability: CUDA C++ programming guide, technical specifications
V100, PCIE_V100 = Chip(80, 70, (12, 12)), Chip(80, 70)  # NVLink: two channels a link, of which it has six
A100, PCIE_A100 = Chip(108, 80, (24, 24)), Chip(108, 80)  # twelve links, 24: NVIDIA/nccl, issue 1225
H100, PCIE_H100 = Chip(132, 90, (24, 24), 16), Chip(132, 90)  # 23 and more, with NVLS: NVIDIA/nccl, issue 1259
B200 = Chip(148, 100, (24, 32), 24)  # no log of its channels found: from H100's to what NCCL rounds them up to
CHIPS = {  # multiprocessors: NVIDIA's white papers of each architecture; H20: RightNow-AI/AutoMegaKernel, pull 3
    "V100 16GB SXM": V100,
    "V100 32GB SXM": V100,
    "V100 16GB PCIe": PCIE_V100,
    "V100 32GB PCIe": PCIE_V100,
    "T4": Chip(40, 75),
    "A100 40GB SXM": A100,
    "A100 80GB SXM": A100,
    "A100 40GB PCIe": PCIE_A100,
    "A100 80GB PCIe": PCIE_A100,
    "A800 80GB SXM": Chip(108, 80, (16, 16)),  # eight links
    "H100 SXM": H100,
    "H200 SXM": H100,
    "H800 SXM": Chip(132, 90, (16, 16), 16),  # NVIDIA/nccl, issue 892
    "H20": Chip(78, 90, (24, 24), 16),
    "H100 PCIe": Chip(114, 90),
    "H100 NVL": PCIE_H100,
    "H200 NVL": PCIE_H100,
    "B200": B200,
    "GB200": B200,
    "L4": Chip(58, 89),
    "L40S": Chip(142, 89),
    "L20": Chip(92, 89),  # https://www.topcpu.net/en/gpu-c/a40-pcie-vs-l20
    "A10G": Chip(80, 86),
    "RTX 3090": Chip(82, 86),
    "RTX 4090": Chip(128, 89),
    "RTX 4090 D": Chip(114, 89),
    "RTX 5090": Chip(170, 120),
    "RTX PRO 6000": Chip(188, 120),
}

# What PyTorch gives cuBLAS for each thread that multiplies: aten/src/ATen/cuda/CublasHandlePool.cpp, at 2.13
WORKSPACE_BYTES = 2 * 4096 * 1024 + 8 * 16 * 1024
HOPPER_WORKSPACE_BYTES = 32 * MIB
MI300_WORKSPACE_BYTES = 128 * MIB
AMD = ("MI300X", "MI325X")


def threads_of(chip: Chip) -> int:
    """Threads that the whole card can hold."""
    return chip.multiprocessors * THREADS[chip.capability]


def workspace_bytes(gpu: str) -> int:
    """Bytes of cuBLAS's workspace, in PyTorch's allocator, for each thread that multiplies.

    A card without a row is taken for one of Hopper or later, whose workspace is the larger one of NVIDIA's.
    """
    if gpu in AMD:
        return MI300_WORKSPACE_BYTES
    is_older = gpu in CHIPS and CHIPS[gpu].capability < 90
    return WORKSPACE_BYTES if is_older else HOPPER_WORKSPACE_BYTES
