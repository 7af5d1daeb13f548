# /// script
# requires-python = ">=3.11"
# ///
"""The table of peaks: read across, freed of sparsity, derived from units and clocks, matched by exact name."""

from typing import NamedTuple

from flops_bytes.memory.outside import middle_bytes, outside_lines
from flops_bytes.time.gpus import (
    BESIDE_TENSORS_SHARE,
    GPUS,
    LINKS,
    REPORTED,
    THIRD_PARTY,
    Gpu,
    capacity_bytes,
)

NUM_ROWS = 21
assert len(GPUS) == NUM_ROWS, "the table has grown: read this page again"


# --8<-- [start:row]
NAME, N, D, MFU = "RTX 4090", 1.2e9, 1e9, 0.4  # parameters, tokens, and an assumed share of the peak
CARD = GPUS[NAME]

outside_bytes = middle_bytes(outside_lines(NAME, gpus=1, node_gpus=1))  # CUDA context, kernels
room_bytes = capacity_bytes(NAME, CARD) - outside_bytes  # for PyTorch's tensors
state_bytes = {"all_bf16": 8 * N, "fp32": 16 * N}  # weights, gradients, AdamW
train_hours = 6 * N * D / (CARD.peak_flop_per_second["bfloat16"] * MFU) / 3600
ridge_flops_a_byte = CARD.peak_flop_per_second["bfloat16"] / CARD.bandwidth_bytes_per_second
decode_ms = 2 * N / CARD.bandwidth_bytes_per_second * 1e3  # weights in bf16, read once a token

print(f"{room_bytes / 1e9:.1f} GB for tensors, {state_bytes['all_bf16'] / 1e9:.1f} of them for the state")
print(f"{train_hours:.0f} hours, {ridge_flops_a_byte:.0f} FLOPs a byte, {decode_ms:.1f} ms a token")
# --8<-- [end:row]


def in_teraflops(gpu: Gpu) -> dict[str, float]:
    """Its peaks in TFLOP/s."""
    return {dtype: peak / 1e12 for dtype, peak in gpu.peak_flop_per_second.items()}


def ridge(gpu: Gpu) -> float:
    """FLOP a byte in 16 bits: below it, memory is what a kernel waits for."""
    return gpu.peak_flop_per_second["float16"] / gpu.bandwidth_bytes_per_second


NAMES = list(GPUS)  # in the table's order
PEAK_TERAFLOPS = {name: in_teraflops(gpu) for name, gpu in GPUS.items()}
MEMORY_GB = {name: gpu.memory_bytes / 1e9 for name, gpu in GPUS.items()}
BANDWIDTH = {name: gpu.bandwidth_bytes_per_second / 1e12 for name, gpu in GPUS.items()}
RIDGE = {name: ridge(gpu) for name, gpu in GPUS.items()}
SOURCES = {name: gpu.source for name, gpu in GPUS.items()}


def of_others(name: str, gpu: Gpu) -> dict[str, float | str | None]:
    """The row of a card whose maker's sheet we did not open; None for what its source does not say."""
    peaks = in_teraflops(gpu)
    one_way = next((link.bytes_per_second / 1e9 for link in LINKS.values() if name in link.cards), None)
    return {
        "memory_gb": gpu.memory_bytes / 1e9,
        "bandwidth": gpu.bandwidth_bytes_per_second / 1e12,
        "bfloat16": peaks["bfloat16"],
        "float8": peaks.get("float8"),
        "reported_gib": REPORTED[name].gib if name in REPORTED else None,
        "link_gb": one_way,
        "source": gpu.source,
    }


OTHERS = {name: of_others(name, gpu) for name, gpu in THIRD_PARTY.items()}


LINKED = {link: [name for name in row.cards if name in GPUS] for link, row in LINKS.items()}
LINK_NAMES = [link for link, names in LINKED.items() if names]  # networks have no cards of their own
ONE_WAY_GB = {link: LINKS[link].bytes_per_second / 1e9 for link in LINK_NAMES}
BOTH_WAYS_GB = {link: 2 * one_way for link, one_way in ONE_WAY_GB.items()}  # what is printed
memory_to_link_ratio = GPUS["H100 SXM"].bandwidth_bytes_per_second / LINKS["NVLink 4"].bytes_per_second
NETWORK_GB = LINKS["400 Gb/s"].bytes_per_second / 1e9  # of a network card
assert ONE_WAY_GB["NVLink 4"] == 9 * NETWORK_GB


REPORTED_GIB = {name: REPORTED[name].gib for name in GPUS if name in REPORTED}
REPORTED_SOURCES = {name: REPORTED[name].source for name in REPORTED_GIB}
reported_to_label_ratio = {name: gib * 2**30 / GPUS[name].memory_bytes for name, gib in REPORTED_GIB.items()}
least_to_label_ratio, most_to_label_ratio = min(reported_to_label_ratio.values()), max(reported_to_label_ratio.values())


FULL_CARDS = {  # GiB of the card, held by the process, held by its tensors, in messages of cards full of tensors
    "hahnyuan/PB-LLM/issues/3": (79.33, 79.27, 74.53),  # A800
    "vllm-project/compressed-tensors/pull/587": (79.18, 78.09, 75.31),
    "ali-vilab/VACE/issues/56": (93.00, 91.91, 86.10),  # H100 NVL
    "ArcInstitute/evo2/issues/190": (22.03, 20.78, 18.66),  # L4
    "Wan-Video/Wan2.1/issues/465": (31.37, 31.34, 30.74),  # RTX 5090
    "siliconflow/onediff/pull/1041": (31.51, 31.31, 28.34),
    "stepfun-ai/Step-Video-T2V/issues/8": (44.42, 44.29, 43.88),  # L40S
    "Soul-AILab/SoulX-FlashTalk/issues/5": (23.52, 21.61, 21.16),  # RTX 4090
    "meta-llama/llama/issues/918": (15.77, 15.49, 14.66),  # V100
    "DINGYANB/MTVCrafter/issues/21": (44.43, 44.40, 43.94),  # RTX 6000 Ada
    "pinokiofactory/flux-webui/issues/11": (23.61, 22.69, 21.72),  # RTX 4090
    "qingze-bai/VSmTrans/issues/3": (15.70, 15.48, 14.81),
    "DengKaiCQ/VGGT-Long/issues/6": (15.61, 15.51, 15.01),  # RTX A4000
}
beside_tensors_bytes = {
    message: round((held - tensors) * 2**30) for message, (card, held, tensors) in FULL_CARDS.items()
}
beside_tensors_share = {message: (held - tensors) / card for message, (card, held, tensors) in FULL_CARDS.items()}
least_beside_bytes, most_beside_bytes = min(beside_tensors_bytes.values()), max(beside_tensors_bytes.values())
least_beside_share, most_beside_share = min(beside_tensors_share.values()), max(beside_tensors_share.values())
median_beside_bytes = sorted(beside_tensors_bytes.values())[len(FULL_CARDS) // 2]
num_full_cards = len(FULL_CARDS)
tight_share = BESIDE_TENSORS_SHARE
assert all(tensors > 0.8 * card for card, held, tensors in FULL_CARDS.values())
assert outside_bytes < median_beside_bytes and most_beside_share < tight_share


h100 = PEAK_TERAFLOPS["H100 SXM"]
a100 = PEAK_TERAFLOPS["A100 80GB SXM"]

bf16_over_fp32_ratio = h100["bfloat16"] / h100["float32"]
h100_over_a100_ratio = {
    "bfloat16": h100["bfloat16"] / a100["bfloat16"],
    "float32": h100["float32"] / a100["float32"],
    "misread": 1979 / a100["bfloat16"],  # with sparsity over without
}
H100S = ("H100 SXM", "H100 PCIe", "H100 NVL")
h100_fp32 = {name: PEAK_TERAFLOPS[name]["float32"] for name in H100S}
with_float8 = [name for name, peaks in PEAK_TERAFLOPS.items() if "float8" in peaks]

assert bf16_over_fp32_ratio < 100  # "orders of magnitude", in the plural
assert max(h100_over_a100_ratio.values()) < 10  # "H100 ≫ A100": not even one
assert 67.5 not in h100_fp32.values()
assert not all("H100" in name for name in with_float8)  # "fp8 is the H100's alone"


class Printed(NamedTuple):
    """A datasheet's 16-bit tensor core line, in TFLOP/s; 0 where it says nothing."""

    dense: float
    sparse: float


PRINTED = {
    "V100 16GB SXM": Printed(125, 0),  # older than 2:4 sparsity
    "A100 80GB SXM": Printed(312, 624),
    "H100 SXM": Printed(0, 1979),  # "* With sparsity", below the table
    "H100 NVL": Printed(0, 1671),
    "H200 SXM": Printed(0, 1979),
    "B200": Printed(0, 4500),
    "L4": Printed(0, 242),
    "L40S": Printed(362.05, 733),
    "RTX 4090": Printed(165.2, 330.4),
    "MI300X": Printed(1307.4, 2614.9),
}
only_sparse = [name for name, printed in PRINTED.items() if not printed.dense]

for name, (dense_peak, sparse_peak) in PRINTED.items():
    peak = PEAK_TERAFLOPS[name]["float16"]
    assert dense_peak in (0, peak)
    assert sparse_peak == 0 or abs(sparse_peak / 2 / peak - 1) < 0.013


class Derivation(NamedTuple):
    """Units and clocks of a GPU, from its maker's papers."""

    processors: int  # streaming multiprocessors (NVIDIA), compute units (AMD)
    cores: int  # CUDA cores of one, each of which does one FMA a clock
    core_mhz: int
    tensor_cores: int  # of one processor
    fma: dict[str, int]  # that one tensor core does in a clock
    tensor_mhz: int
    source: str

    def teraflops(self, dtype: str) -> float:
        """Processors × units × FMA a clock × 2 (a product, a sum) × clock."""
        if dtype == "float32":
            return self.processors * self.cores * 2 * self.core_mhz / 1e6
        fma = self.tensor_cores * self.fma[dtype]
        return self.processors * fma * 2 * self.tensor_mhz / 1e6

    def peaks(self) -> dict[str, float]:
        """Of every type that it has units for."""
        return {dtype: self.teraflops(dtype) for dtype in ("float32", *self.fma)}


def rates(bfloat16: int, float8: bool = True) -> dict[str, int]:
    """FMA a clock of a tensor core: half as many in TF32, twice as many in float8."""
    fma = {"tf32": bfloat16 // 2, "bfloat16": bfloat16, "float16": bfloat16}
    return fma | ({"float8": bfloat16 * 2} if float8 else {})


VOLTA = {"float16": 64}  # the first two generations know fp16 alone
AMPERE = rates(256, float8=False)

# fmt: off
DERIVED = {
    "V100 16GB SXM":  Derivation(80, 64, 1530, 8, VOLTA, 1530, "Volta paper"),
    "V100 16GB PCIe": Derivation(80, 64, 1380, 8, VOLTA, 1380, "product brief"),
    "T4":             Derivation(40, 64, 1590, 8, VOLTA, 1590, "product brief"),
    "A100 80GB SXM":  Derivation(108, 64, 1410, 4, AMPERE, 1410, "A100 paper"),
    "H100 SXM":       Derivation(132, 128, 1980, 4, rates(512), 1830, "H100 paper"),
    "H100 PCIe":      Derivation(114, 128, 1755, 4, rates(512), 1620, "H100 paper"),
    "H200 SXM":       Derivation(132, 128, 1980, 4, rates(512), 1830, "as H100 SXM"),
    "L4":             Derivation(58, 128, 2040, 4, rates(128), 2040, "product brief"),
    "L40S":           Derivation(142, 128, 2520, 4, rates(128), 2520, "product brief"),
    "RTX 4090":       Derivation(128, 128, 2520, 4, rates(64), 2520, "Ada paper"),
    "RTX 5090":       Derivation(170, 128, 2407, 4, rates(64), 2407, "RTX paper"),
    "MI300X":         Derivation(304, 128, 2100, 4, rates(256), 2100, "CDNA 3 paper"),
}
# fmt: on
DERIVED_NAMES = list(DERIVED)


derived_teraflops = {name: derivation.peaks() for name, derivation in DERIVED.items()}
derived_to_table_ratio = {
    name: {dtype: peak / PEAK_TERAFLOPS[name][dtype] for dtype, peak in peaks.items()}
    for name, peaks in derived_teraflops.items()
}
outliers = [
    f"{name} {dtype}"
    for name, ratios in derived_to_table_ratio.items()
    for dtype, ratio in ratios.items()
    if abs(ratio - 1) > 0.01
]
num_derived = sum(map(len, derived_teraflops.values()))

assert outliers == ["L40S bfloat16", "L40S float16"]


# --8<-- [start:exercise_1]
NANOGPT_SHARE = 1.04  # pull request 464: an H100 held against an A100's peak
TORCHTITAN_SHARE = 1.52  # pull request 4779: an MI350X against the same
MI350X_TERAFLOPS = 2300  # dense bf16: AMD's page, as that pull request cites it
A100_PEAK = GPUS["A100 80GB SXM"].peak_flop_per_second["bfloat16"]

h100_share = NANOGPT_SHARE * A100_PEAK / GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
mi350x_share = TORCHTITAN_SHARE * A100_PEAK / (MI350X_TERAFLOPS * 1e12)
print(f"{h100_share:.1%}, {mi350x_share:.1%}")
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_3]
MIG_PROCESSORS = 16  # of an H200's 1g.18gb slice, as `nvidia-smi mig -lgip` lists it

slice_teraflops = MIG_PROCESSORS * 4 * 512 * 2 * 1830 / 1e6
whole_to_slice_ratio = GPUS["H200 SXM"].peak_flop_per_second["bfloat16"] / 1e12 / slice_teraflops
print(f"{slice_teraflops:.1f} TFLOP/s; the whole card {whole_to_slice_ratio:.2f} times")
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
CLOCK_MHZ = 1500  # under load, a power limit can hold the clock down

throttled_teraflops = 132 * 4 * 512 * 2 * CLOCK_MHZ / 1e6
throttled_share = throttled_teraflops / (GPUS["H200 SXM"].peak_flop_per_second["bfloat16"] / 1e12)
print(f"{throttled_teraflops:.0f} TFLOP/s, {throttled_share:.1%} of the table's")
# --8<-- [end:exercise_4]
