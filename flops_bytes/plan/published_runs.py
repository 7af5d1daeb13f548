"""What others have published of their runs: the MFU that a step reached, the tokens of the largest steps."""

from collections.abc import Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """A run, its MFU, and where that is said."""

    name: str
    percent: str  # its MFU as its source says it
    mfu: float  # the same as a number
    source: str


MOSAIC = (
    "https://github.com/mosaicml/llm-foundry/blob/8c8dd48f72168c5d51e2f7b151595892a8fba43d/scripts/train/benchmarking"
)
TITAN = "https://github.com/pytorch/torchtitan/blob/b5bcd76c66d0acb1a08b176d9639425bc55e0b2a/benchmarks"
RUNS = (
    Run("MPT 30B, 8 × H100, 8k", "29.9", 0.299, f"{MOSAIC}/README.md"),
    Run("Llama 3.1 8B, 128 × H100", "33", 0.33, f"{TITAN}/llama3_h100_202412_torchtitan.md"),
    Run("OLMo 2 32B, H100", "38", 0.38, "https://allenai.org/blog/olmo2-32B"),
    Run("Llama 3.1 405B, 16,384 × H100", "38–41", 0.395, "https://arxiv.org/abs/2407.21783, table 4"),
    Run("MPT 70B, 512 × H100", "41.25", 0.4125, f"{MOSAIC}/README.md"),
    Run("PaLM 540B, 6,144 × TPU v4", "46.2", 0.462, "https://arxiv.org/abs/2204.02311, table 3"),
    Run("MPT 70B, 64 × A100", "53.3", 0.533, f"{MOSAIC}/README.md"),
)


def runs_nearest(mfu: float, shares: Sequence[float]) -> list[Run]:
    """Those whose MFU is nearer to one share than to any other."""
    return [run for run in RUNS if min(shares, key=lambda share: abs(share - run.mfu)) == mfu]


class Steps(NamedTuple):
    """Published steps of one kind: how many, and the MFU that all but a tenth exceeded, and that a tenth did."""

    readings: int
    low: float
    high: float


# Every MFU of measurements/published whose settings can be asked, by card and by whether whole products are computed
# again; a test derives them. Size is no kind of its own: below a billion parameters the median is 0.06 lower on A100s
# and 0.05 on H100s, less than either kind is wide.
STEPS = {
    "A100": {"kept": Steps(91, 0.44, 0.60), "again": Steps(56, 0.44, 0.56)},
    "H100": {"kept": Steps(41, 0.35, 0.44), "again": Steps(29, 0.29, 0.43)},
    "A100, H100": {"kept": Steps(132, 0.39, 0.58), "again": Steps(85, 0.36, 0.55)},  # what stands for any other card
}
CARD_WITH_STEPS = {"A800": "A100", "H800": "H100", "H200": "H100"}  # cards with the same units for matmuls


def steps_like(gpu: str, recomputes: bool) -> tuple[str, Steps]:
    """On which cards published steps of a kind ran, and what they reached; if none on this card, all of them."""
    card = CARD_WITH_STEPS.get(gpu[:4], gpu[:4])
    card = card if card in STEPS else "A100, H100"
    return card, STEPS[card]["again" if recomputes else "kept"]


BATCHES = {  # tokens of a step; no larger ones were found
    "Llama 3.1 405B": 2**24,  # "16M": arXiv 2407.21783, table 4
    "DeepSeek-V3": 15_360 * 4_096,  # arXiv 2412.19437, section 4.2
    "MiniMax-01": 2**27,  # "128M": arXiv 2501.08313, section 4.2
}
