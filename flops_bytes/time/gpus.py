# /// ledger
# unhashed = ["GPUS", "LINKS", "NODE_GPUS", "REPORTED", "THIRD_PARTY", "TPUS"] # a record keeps its peak
# ///
"""The table of peaks: what vendors promise of their GPUs. It needs Python alone, so one can plan where torch is not."""

from typing import NamedTuple


class Gpu(NamedTuple):
    """One row of the table of peaks: what a vendor's datasheet promises, always dense (without 2:4 sparsity)."""

    device_names: tuple[str, ...]  # exactly what torch.cuda.get_device_name() returns
    memory_bytes: float  # as the datasheet counts: 80 GB is 80e9
    bandwidth_bytes_per_second: float
    peak_flop_per_second: dict[str, float]  # by data type; "tf32" is float32 on tensor cores
    source: str


def dense(
    float32: float, tf32: float, bfloat16: float, float16: float, float8: float, float4: float = 0
) -> dict[str, float]:
    """Peaks in FLOP/s from those in TFLOP/s; 0 where the GPU has no unit for a type, which is then left out.

    float32 is that of the CUDA cores; all others are tensor cores that add up in float32.
    """
    teraflops = {"float32": float32, "tf32": tf32, "bfloat16": bfloat16, "float16": float16}
    teraflops |= {"float8": float8, "float4": float4}
    return {dtype: float(round(peak * 1e12)) for dtype, peak in teraflops.items() if peak}


NVIDIA = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center"
SHEETS = {
    "V100": "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",
    "T4": f"{NVIDIA}/tesla-t4/t4-tensor-core-product-brief.pdf",
    "A100 40GB": "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf",
    "A100": f"{NVIDIA}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    "H100": "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper",
    "H100 NVL": "https://www.nvidia.com/en-us/data-center/h100/",
    "H200": "https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446",
    "Blackwell": "https://nvdam.widen.net/s/wwnsxrhm2w/blackwell-datasheet-3384703",
    "L4": "https://www.nvidia.com/en-us/data-center/l4/",
    "L40S": "https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
    "RTX": "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf",
    "MI300X": "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf",
}

# fmt: off
GPUS: dict[str, Gpu] = {  # memory, bandwidth, dense(float32, tf32, bfloat16, float16, float8, float4), source
    "V100 16GB SXM": Gpu(("Tesla V100-SXM2-16GB",),
        16e9, 0.900e12, dense(15.7, 0, 0, 125, 0), SHEETS["V100"]),
    "V100 32GB SXM": Gpu(("Tesla V100-SXM2-32GB",),
        32e9, 0.900e12, dense(15.7, 0, 0, 125, 0), SHEETS["V100"]),
    "V100 16GB PCIe": Gpu(("Tesla V100-PCIE-16GB",),
        16e9, 0.900e12, dense(14, 0, 0, 112, 0), SHEETS["V100"]),
    "V100 32GB PCIe": Gpu(("Tesla V100-PCIE-32GB",),
        32e9, 0.900e12, dense(14, 0, 0, 112, 0), SHEETS["V100"]),
    "T4": Gpu(("Tesla T4",),
        16e9, 0.320e12, dense(8.1, 0, 0, 65, 0), SHEETS["T4"]),
    # Old drivers, 460 for one, leave "NVIDIA" out.
    "A100 40GB SXM": Gpu(("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        40e9, 1.555e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100 40GB"]),
    "A100 40GB PCIe": Gpu(("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        40e9, 1.555e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100 40GB"]),
    "A100 80GB SXM": Gpu(("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        80e9, 2.039e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100"]),
    "A100 80GB PCIe": Gpu(("NVIDIA A100 80GB PCIe",),
        80e9, 1.935e12, dense(19.5, 156, 312, 312, 0), SHEETS["A100"]),
    "H100 SXM": Gpu(("NVIDIA H100 80GB HBM3",),
        80e9, 3.350e12, dense(66.9, 494.7, 989.4, 989.4, 1978.9), SHEETS["H100"]),
    "H100 PCIe": Gpu(("NVIDIA H100 PCIe",),
        80e9, 2.039e12, dense(51.2, 378, 756, 756, 1513), SHEETS["H100"]),
    "H100 NVL": Gpu(("NVIDIA H100 NVL",),
        94e9, 3.900e12, dense(60, 417.5, 835.5, 835.5, 1670.5), SHEETS["H100 NVL"]),
    "H200 SXM": Gpu(("NVIDIA H200",),
        141e9, 4.800e12, dense(66.9, 494.7, 989.4, 989.4, 1978.9), SHEETS["H200"]),
    "H200 NVL": Gpu(("NVIDIA H200 NVL",),
        141e9, 4.800e12, dense(60, 417.5, 835.5, 835.5, 1670.5), SHEETS["H200"]),
    "B200": Gpu(("NVIDIA B200",),
        180e9, 7.700e12, dense(75, 1100, 2250, 2250, 4500, 9000), SHEETS["Blackwell"]),
    "GB200": Gpu(("NVIDIA GB200",),
        186e9, 8.000e12, dense(80, 1250, 2500, 2500, 5000, 10000), SHEETS["Blackwell"]),
    "L4": Gpu(("NVIDIA L4",),
        24e9, 0.300e12, dense(30.3, 60, 121, 121, 242.5), SHEETS["L4"]),
    "L40S": Gpu(("NVIDIA L40S",),
        48e9, 0.864e12, dense(91.6, 183, 362.05, 362.05, 733), SHEETS["L40S"]),
    "RTX 4090": Gpu(("NVIDIA GeForce RTX 4090",),
        24e9, 1.008e12, dense(82.6, 82.6, 165.2, 165.2, 330.3), SHEETS["RTX"]),
    "RTX 5090": Gpu(("NVIDIA GeForce RTX 5090",),
        32e9, 1.792e12, dense(104.8, 104.8, 209.5, 209.5, 419, 1676), SHEETS["RTX"]),
    "MI300X": Gpu(("AMD Instinct MI300X",),
        192e9, 5.300e12, dense(163.4, 653.7, 1307.4, 1307.4, 2614.9), SHEETS["MI300X"]),
}
# fmt: on


# To plan with: cards of which we opened no sheet of their maker's, linked all the same where it is public; else who
# printed the figures, which says so. What no source gives is left out.
# fmt: off
THIRD_PARTY: dict[str, Gpu] = {
    "A800 80GB SXM": Gpu((),  # an A100 whose links are slower, it says
        80e9, 2.039e12, dense(19.5, 156, 312, 312, 0), "https://aiwiki.ai/wiki/nvidia_a800"),
    "H800 SXM": Gpu((),  # an H100 whose links and float64 are slower, it says
        80e9, 3.350e12, dense(66.9, 494.7, 989.4, 989.4, 1978.9), "https://aiwiki.ai/wiki/nvidia_h800"),
    # NVIDIA has no public sheet of it: from Ant Group, which runs them; float32 and tf32 from
    # https://zangshuxian.com/new/674733024499207168
    "H20": Gpu((),
        96e9, 4.000e12, dense(44, 74, 148, 148, 296), "https://lmsys.org/blog/2025-09-26-sglang-ant-group"),
    "L20": Gpu((),  # bfloat16 from volcengine/verl, verl/utils/flops_counter.py at 02cf355
        48e9, 0.864e12, dense(59.35, 0, 119.5, 119.5, 0), "https://www.topcpu.net/en/gpu-c/a40-pcie-vs-l20"),
    "A10G": Gpu((),  # AWS's G5
        24e9, 0.600e12, dense(35, 35, 70, 70, 0),
        "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf"),
    "RTX 3090": Gpu((),  # appendix A; its 142 in float16 add up in float16: half of them in float32
        24e9, 0.936e12, dense(35.6, 0, 71, 71, 0),
        "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"),
    "RTX 4090 D": Gpu((),
        24e9, 1.008e12, dense(73.5, 73.5, 147.1, 147.1, 294.2), "https://hmc-tech.com/gpu/nvidia-geforce-rtx-4090-d"),
    # The Workstation Edition; bandwidth from hardware-corner.net; float4: half of NVIDIA's 4,000 "AI TOPS"
    "RTX PRO 6000": Gpu((),
        96e9, 1.792e12, dense(126, 251.9, 503.8, 503.8, 1007.6, 2000),
        "https://hmc-tech.com/gpu/nvidia-rtx-pro-6000-blackwell-vs-amd-radeon-pro-duo-polaris"),
    "B300": Gpu((),  # in an HGX; copies of NVIDIA's own table have "up to 2.3 TB" for eight
        288e9, 8.000e12, dense(75, 1125, 2250, 2250, 4500, 13125), "https://glennklockwood.com/garden/processors/B300"),
    "MI325X": Gpu((),
        256e9, 6.000e12, dense(163.4, 653.7, 1307.4, 1307.4, 2614.9), "https://awesomeagents.ai/hardware/amd-mi325x"),
}
# fmt: on


TPU_PAGES = "https://docs.cloud.google.com/tpu/docs"
TPUS: dict[str, Gpu] = {  # to plan with: they have no CUDA name, and are sold by their bfloat16 alone
    "TPU v4": Gpu((), 32 * 2**30, 1.200e12, dense(0, 0, 275, 0, 0), f"{TPU_PAGES}/v4"),
    "TPU v5e": Gpu((), 16e9, 0.819e12, dense(0, 0, 197, 0, 0), f"{TPU_PAGES}/v5e"),  # or 800 GiB/s, by its version
    "TPU v5p": Gpu((), 95e9, 2.765e12, dense(0, 0, 459, 0, 0), f"{TPU_PAGES}/v5p"),
    "TPU v6e": Gpu((), 32e9, 1.638e12, dense(0, 0, 918, 0, 0), f"{TPU_PAGES}/v6e"),
}


class Reported(NamedTuple):
    """The memory that CUDA reports of a card: total_memory of torch.cuda.get_device_properties()."""

    gib: float  # as PyTorch's messages print it, to a hundredth
    source: str


# From users' messages on Linux, the lower where two are common: drivers, ECC and virtual machines differ. A message
# that does not say which card of a name it is of stands for each that the name can mean.
GITHUB = "https://github.com"
REPORTED: dict[str, Reported] = {
    "V100 16GB SXM": Reported(15.77, f"{GITHUB}/meta-llama/llama/issues/918"),
    "V100 16GB PCIe": Reported(15.77, f"{GITHUB}/meta-llama/llama/issues/918"),
    "V100 32GB SXM": Reported(31.74, f"{GITHUB}/liucongg/ChatGLM-Finetuning/issues/73"),
    "V100 32GB PCIe": Reported(31.74, f"{GITHUB}/liucongg/ChatGLM-Finetuning/issues/73"),
    "T4": Reported(14.56, f"{GITHUB}/Zheng-Chong/CatVTON/issues/133"),  # 14.75 with older drivers
    "A100 40GB SXM": Reported(39.50, f"{GITHUB}/TianheWu/CoSeR/issues/10"),
    "A100 40GB PCIe": Reported(39.50, f"{GITHUB}/TianheWu/CoSeR/issues/10"),
    "A100 80GB SXM": Reported(79.25, f"{GITHUB}/HiDream-ai/VAREdit/issues/6"),
    "A100 80GB PCIe": Reported(79.25, f"{GITHUB}/HiDream-ai/VAREdit/issues/6"),
    "H100 SXM": Reported(79.11, f"{GITHUB}/vllm-project/vllm/issues/27508"),
    "H100 NVL": Reported(93.00, f"{GITHUB}/ali-vilab/VACE/issues/56"),
    "H200 SXM": Reported(139.81, f"{GITHUB}/vllm-project/vllm/issues/34553"),
    "B200": Reported(178.35, f"{GITHUB}/pytorch/ao/pull/4002"),
    "L4": Reported(22.03, f"{GITHUB}/ArcInstitute/evo2/issues/190"),
    "L40S": Reported(44.42, f"{GITHUB}/stepfun-ai/Step-Video-T2V/issues/8"),
    "RTX 4090": Reported(23.64, f"{GITHUB}/ali-vilab/VGen/issues/104"),  # from 23.52 to 23.68
    "RTX 4090 D": Reported(
        23.52, f"{GITHUB}/fsy2004/MetaWingman/blob/da700ee/docs/architecture/training-run-report-2026-08-17.md"
    ),
    "RTX 5090": Reported(31.37, f"{GITHUB}/Wan-Video/Wan2.1/issues/465"),
    "MI300X": Reported(191.45, f"{GITHUB}/verl-project/verl/issues/2848"),
    "A800 80GB SXM": Reported(79.33, f"{GITHUB}/hahnyuan/PB-LLM/issues/3"),
    "H20": Reported(95.1, f"{GITHUB}/RightNow-AI/AutoMegaKernel/pull/3"),  # "~95.1 GiB"
    "L20": Reported(44.53, f"{GITHUB}/Tencent-Hunyuan/HunyuanCustom/issues/36"),
    "A10G": Reported(22.20, f"{GITHUB}/XavierXiao/Dreambooth-Stable-Diffusion/issues/18"),
    "RTX 3090": Reported(23.70, f"{GITHUB}/GaoLii/DSP/issues/10"),
    "RTX PRO 6000": Reported(94.97, f"{GITHUB}/antirez/ds4/issues/431"),
}


def capacity_bytes(name: str, gpu: Gpu) -> int:
    """What tensors, and all that lies beside them, can fill of a card: as reported, or else by its sheet."""
    return int(REPORTED[name].gib * 2**30) if name in REPORTED else int(gpu.memory_bytes)


# What a process holds beside its tensors: what flops_bytes.memory.outside counts, and memory that PyTorch's allocator
# has reserved and cannot use. In 13 messages of full cards (snippets/hardware.py) that is 1 to 10 % of the card.
BESIDE_TENSORS_SHARE = 0.1  # at most


class Link(NamedTuple):
    """What GPUs send over, and the cards of a machine that are linked so."""

    bytes_per_second: float  # of one GPU, in one direction: half of what is advertised
    cards: tuple[str, ...] = ()


# Half of what each card's sheet (SHEETS) says of both directions: NVLink 300, 600, 900 and 1,800 GB/s, PCIe 32, 64 and
# 128 GB/s; MI300X: seven links of 128. H800, 400 for 900: DeepSeek-AI, arXiv 2505.09343, 4.1. A800, 400 for 600,
# as its workstation card: https://www.nvidia.com/en-us/design-visualization/a800/. H20, 900: Ant Group, as above.
# B300: https://www.nvidia.com/en-us/data-center/hgx/
# Left out: the NVLink bridges that join two PCIe cards (A100, H100, RTX 3090), or up to four (H200 NVL).
LINKS = {
    "NVLink 2": Link(150e9, ("V100 16GB SXM", "V100 32GB SXM")),
    "NVLink 3": Link(300e9, ("A100 40GB SXM", "A100 80GB SXM")),
    "NVLink 4": Link(450e9, ("H100 SXM", "H200 SXM", "H20")),
    "NVLink 5": Link(900e9, ("B200", "GB200", "B300")),
    "NVLink of A800, H800": Link(200e9, ("A800 80GB SXM", "H800 SXM")),
    "Infinity Fabric": Link(448e9, ("MI300X", "MI325X")),
    "PCIe 3": Link(16e9, ("V100 16GB PCIe", "V100 32GB PCIe", "T4")),
    "PCIe 4": Link(
        32e9, ("A100 40GB PCIe", "A100 80GB PCIe", "L4", "L40S", "L20", "A10G", "RTX 3090", "RTX 4090", "RTX 4090 D")
    ),
    "PCIe 5": Link(64e9, ("H100 PCIe", "H100 NVL", "H200 NVL", "RTX 5090", "RTX PRO 6000")),
    "100 Gb/s": Link(12.5e9),
    "200 Gb/s": Link(25e9),
    "400 Gb/s": Link(50e9),  # of a network card, one for each GPU: an assumption where nobody says
    "800 Gb/s": Link(100e9),
}

# GPUs that the links of a node join, where these are not 8: a rack of GB200 is one NVLink domain of 72,
# https://www.nvidia.com/en-us/data-center/gb200-nvl72/
NODE_GPUS = {"GB200": 72}


# The share of a link's rate that a collective of many bytes reaches: an assumption. NCCL's authors reckon with an
# overhead of about 20 % on NVLink (https://github.com/NVIDIA/nccl-tests/issues/212). What is published below lies
# between 0.65 and 0.95; where PCIe leads through the host's memory, down to 0.44.
LINK_EFFICIENCY = 0.8


class Collective(NamedTuple):
    """A rate that others have published, in nccl-tests' "busbw": bytes that each GPU of a ring sends a second."""

    what: str
    gpu: str
    gpus: int  # at most 8 in a node, with a network card of 400 Gb/s each
    bytes_per_second: float
    source: str


ENGINEERING = "https://github.com/stas00/ml-engineering/blob/744d01e18b79512572f64a6bbd8b5f4a725203a7/network/README.md"
PLAYBOOK = "https://huggingface.co/spaces/HuggingFaceTB/smol-training-playbook"
COLLECTIVES: tuple[
    Collective, ...
] = (  # on rings; that NVSwitch adds up itself makes an all-reduce in a node faster, 480 for 367
    Collective("all-gather", "H200 SXM", 8, 361.4e9, ENGINEERING),
    Collective("reduce-scatter", "H200 SXM", 8, 362.9e9, ENGINEERING),
    Collective("all-reduce", "H200 SXM", 8, 367.2e9, ENGINEERING),
    Collective("all-reduce", "B200", 8, 682.2e9, ENGINEERING),
    Collective("all-reduce", "H200 SXM", 32, 364.87e9, ENGINEERING),
    Collective("all-reduce", "B200", 32, 381.8e9, ENGINEERING),
    Collective("all-reduce", "H100 SXM", 128, 320e9, PLAYBOOK),  # 320 to 350 from 3 nodes to 16
    # The issue does not name the network: 360 on 4 nodes, then 345, 320, 300, 280 and 260, each on twice as many
    Collective("reduce-scatter", "H100 SXM", 32, 360e9, "https://github.com/NVIDIA/nccl/issues/1229"),
    Collective("reduce-scatter", "H100 SXM", 1024, 260e9, "https://github.com/NVIDIA/nccl/issues/1229"),
    # With a driver that lets the cards read each other's memory; the 5090s go through the host's
    Collective("all-reduce", "RTX 4090", 4, 25.95e9, "https://github.com/tinygrad/open-gpu-kernel-modules/issues/36"),
    Collective("all-reduce", "RTX 5090", 8, 28e9, "https://github.com/NVIDIA/nccl/issues/1639"),
)
