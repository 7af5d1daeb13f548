"""A training step's time without an MFU: its matmuls, attention and element-wise passes at rates that others published.

The rule, fitted to no step:
- A matmul (m × k)(k × n) runs at the rate of its card's large matmuls times the share of it that a table by size says:
  the row nearest in the logarithms of m, k and n, over the table's fastest. Assumed is the rate that the card sustains
  in a stress test, or the median of what sources have found; high the largest of all, low the least,
  less 5 %, by which the cards of one node differ, for the slowest sets the pace. A card without a row has its peak
  times the shares that others reach. In eager mode a matmul whose tensors have rows of no multiple of 16 bytes, as the
  head's of GPT-2's vocabulary, reaches a share of that; torch.compile pads them.
- Attention, causal and fused, runs at the rate of FlashAttention 2 or of cuDNN, as published of a family's cards.
- What is neither moves bytes, at the rates of published passes that no cache holds. In eager mode each operation reads
  its inputs and writes its results. Compiled, what stands between two matmuls is one kernel a pass.
Each is low, assumed and high. plan/step_time.py makes a step of them. The rule stood before a published step was asked
(measurements/published/rates/first.json); added since are the rate that is sustained, and the first FlashAttention.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from math import log
from statistics import median
from typing import NamedTuple

from flops_bytes.memory.formulas import RECIPES
from flops_bytes.model.shapes import Decoder, Matmul, matmuls, recomputed_matmuls, saves_last
from flops_bytes.time.gpus import GPUS, THIRD_PARTY
from flops_bytes.time.rate_table import ATTENTION, BANDWIDTH, BEST, SIZED, SUSTAINED, UNALIGNED

# "on the same 8-GPU node you can see 5%+ MAMF spread": stas00/ml-engineering, compute/accelerator/README.md at 744d01e
SLOWEST_CARD_SHARE = 0.95
ALIGNED_NUMBERS = 8  # of 16 bits, in 16 bytes
# Shares of the peak that FlashAttention 2 reaches: arXiv 2307.08691, abstract, on A100s; 2407.08608, abstract, on H100.
FLASH_2 = {"A100": (0.50, 0.73), "H100": (0.35, 0.35)}
FLASH_1 = (0.25, 0.40)  # the first FlashAttention's on A100s: arXiv 2307.08691, abstract
# What the rates said of published steps, over what these took, by family: how many, what a tenth lay below and a tenth
# above. A test derives them (published/step_times.py).
AGREED = {"A100": (184, 0.78, 0.97), "H100": (74, 0.60, 0.80)}
CARD_FAMILIES = {  # whose tables are asked: of sizes, of attention
    "A100": ("A100", "A800"),
    "H100": ("H100", "H200", "H800", "H20"),
    "B200": ("B200", "GB200", "B300"),
}
CARD_WITH_RATES = {  # whose matmul units a card has, with the same peak
    "A100 40GB SXM": "A100 80GB SXM",
    "A800 80GB SXM": "A100 80GB SXM",
    "A100 40GB PCIe": "A100 80GB PCIe",
    "H200 SXM": "H100 SXM",
    "H800 SXM": "H100 SXM",
    "V100 16GB SXM": "V100 32GB SXM",
}
SIZE_TABLES = {"A100": "A100 80GB PCIe", "H100": "H100 SXM", "B200": "B200"}


class Range(NamedTuple):
    """Low, assumed and high: seconds, or a rate."""

    low: float
    assumed: float
    high: float

    def seconds(self, work: float) -> "Range":
        """Of so much work at these rates: the highest rate takes the least."""
        return Range(work / self.high, work / self.assumed, work / self.low)

    def times(self, factor: float) -> "Range":
        return Range(*(factor * each for each in self))


def sum_ranges(ranges: Iterable[Range]) -> Range:
    return Range(*map(sum, zip(*ranges, strict=True)))


def spread(values: Iterable[float]) -> Range:
    """The least, the median and the largest."""
    ordered = sorted(values)
    return Range(ordered[0], median(ordered), ordered[-1])


def card_family(card: str) -> str:
    return next((name for name, cards in CARD_FAMILIES.items() if card.startswith(cards)), "")


def card_peak(card: str) -> float:
    """In 16 bits."""
    peaks = (GPUS | THIRD_PARTY)[card].peak_flop_per_second
    return peaks.get("bfloat16", peaks.get("float16", 0))


def matmul_rate(card: str, peak: float) -> Range:
    """FLOP/s of a card's large matmuls."""
    same_cards = {card, CARD_WITH_RATES.get(card, card)} | {
        one for one, other in CARD_WITH_RATES.items() if other == card
    }
    sustained = [1e9 * rate for one, rate in SUSTAINED.items() if one in same_cards]
    fastest = [1e9 * rate for one in same_cards for rate in BEST.get(one, {}).values()]
    if sustained or fastest:
        low, assumed, high = spread(sustained + fastest)
        return Range(SLOWEST_CARD_SHARE * low, sustained[0] if sustained else assumed, high)
    shares = [1e9 * rate / card_peak(other) for other, rates in BEST.items() for rate in rates.values()]
    shares += [1e9 * rate / card_peak(other) for other, rate in SUSTAINED.items()]
    return spread(shares).times(peak)


def unaligned_rate(card: str, aligned: Range, padded: tuple[bool, bool, bool]) -> Range:
    """FLOP/s of a matmul whose rows begin at no multiple of 16 bytes, by that of one whose rows do; `padded` says for
    the lowest, the assumed and the highest whether torch.compile makes the one of the other."""
    shares = spread(UNALIGNED.get(card_family(card)) or [share for found in UNALIGNED.values() for share in found])
    return Range(*(rate if whole else rate * share for rate, share, whole in zip(aligned, shares, padded, strict=True)))


@cache  # asked of the same sizes by each step of a model
def size_share(card: str, m: int, k: int, n: int) -> float:
    """What a matmul of this size reaches of the fastest of its family's table; of the A100's, if it has none."""
    rows = SIZED[SIZE_TABLES.get(card_family(card), SIZE_TABLES["A100"])]
    sides = log(m), log(k), log(n)
    nearest = min(rows, key=lambda row: sum(abs(side - log(row[column])) for column, side in enumerate(sides)))
    return nearest[3] / max(row[3] for row in rows)


def pass_bandwidth(card: str, nominal: float) -> Range:
    """Bytes a second of element-wise passes: the shares of their nominal bandwidth that a family's cards reach."""
    shares = {
        name: [1e9 * rate / GPUS[name].bandwidth_bytes_per_second for rate in rates]
        for name, rates in BANDWIDTH.items()
    }
    near_shares = [
        share
        for name, rates in shares.items()
        if name == card or card_family(name) == card_family(card) != ""
        for share in rates
    ]
    return spread(near_shares or [share for rates in shares.values() for share in rates]).times(nominal)


def attention_rates(card: str, peak: float, tokens: int, heads: int, flash: int = 2) -> tuple[Range, Range]:
    """FLOP/s of causal attention, forward and backward; half of the pairs are counted.

    An A100's lie within FlashAttention 2's own shares, or where SimuMax has them, with as many tokens and heads. On an
    H100 PyTorch's attention is FlashAttention 2 by itself, and cuDNN where that is asked for: the high end. `flash` = 1
    is the first FlashAttention, of before July 2023.
    """
    family = card_family(card)
    if flash == 1:
        both = 2 * [Range(FLASH_1[0], sum(FLASH_1) / 2, FLASH_1[1]).times(peak)]
    elif family == "A100":
        row = nearest_attention("A100 80GB PCIe", tokens, heads)
        low, high = FLASH_2["A100"]
        measured = [1e9 * rate / card_peak("A100 80GB PCIe") for rate in row]
        both = [Range(min(low, share), share, max(high, share)).times(peak) for share in measured]
    elif family == "H100":
        row = nearest_attention("H200 SXM", tokens, heads)
        low, usual = FLASH_2["H100"]
        both = [Range(low, usual, max(usual, 1e9 * rate / card_peak("H200 SXM"))).times(peak) for rate in row]
    else:
        both = 2 * [spread([share for shares in FLASH_2.values() for share in shares]).times(peak)]
    return both[0], both[1]


def nearest_attention(card: str, tokens: int, heads: int) -> tuple[int, int]:
    """GFLOP/s forward and backward of the row with nearly as many tokens and heads."""
    far = [abs(log(tokens / row[0])) + abs(log(heads / row[1])) for row in ATTENTION[card]]
    row = ATTENTION[card][far.index(min(far))]
    return row[2], row[3]


def linear_products(tokens: int, matrix: Matmul) -> list[tuple[int, int, int]]:
    """A linear layer's products (m × k)(k × n): forward, the input's gradient, the weights'."""
    return [
        (tokens, matrix.inputs, matrix.outputs),
        (tokens, matrix.outputs, matrix.inputs),
        (matrix.inputs, tokens, matrix.outputs),
    ]


class Product(NamedTuple):
    """A matmul of a micro-batch."""

    line: str  # "matmuls" or "recomputation"
    repeats: int
    size: tuple[int, int, int]  # (m × k)(k × n)
    is_aligned: bool  # rows of all its tensors, in 16 bits, begin at multiples of 16 bytes

    @property
    def flops(self) -> int:
        m, k, n = self.size
        return self.repeats * 2 * m * k * n


def is_aligned(matrix: Matmul) -> bool:
    """Of a linear layer's products: rows of what it reads and writes are as long as its inputs, or its outputs."""
    return matrix.inputs % ALIGNED_NUMBERS == 0 == matrix.outputs % ALIGNED_NUMBERS


def matmul_products(shape: Decoder, tokens: int, checkpointing: str, every: int, early_stop: bool) -> Iterator[Product]:
    """Each product of a micro-batch."""
    matrices = matmuls(shape)
    for each in matrices:
        for size in linear_products(tokens, each):
            yield Product("matmuls", shape.layers, size, is_aligned(each))
    head = Matmul("head", shape.d_model, shape.vocab, False)
    for size in linear_products(tokens, head):
        yield Product("matmuls", 1, size, is_aligned(head))
    recomputed = {"full": matrices, "per-op": recomputed_matmuls(shape)}.get(checkpointing, [])
    spared = early_stop and (checkpointing == "full" or not saves_last(shape))
    for each in recomputed[: len(recomputed) - spared]:
        yield Product("recomputation", -(-shape.layers // every), (tokens, each.inputs, each.outputs), is_aligned(each))


def matmul_seconds(
    card: str, peak: float, products: Iterable[Product], compiled: bool | None = None
) -> dict[str, Range]:
    """By line; `compiled` by torch.compile, or None: the highest rate is."""
    large_rate = matmul_rate(card, peak)
    padded = bool(compiled), bool(compiled), compiled is not False
    by_line: dict[str, list[Range]] = {"matmuls": [], "recomputation": []}
    for each in products:
        rate = large_rate.times(size_share(card, *each.size))
        rate = rate if each.is_aligned else unaligned_rate(card, rate, padded)
        by_line[each.line].append(rate.seconds(each.flops))
    return {line: sum_ranges(each) if each else Range(0, 0, 0) for line, each in by_line.items()}


class Widths(NamedTuple):
    """Bytes of a number: of the matmuls' results, of the residual path."""

    result: int
    residual: int


def layer_moved_bytes(shape: Decoder, widths: Widths, compiled: bool, composed: bool) -> tuple[float, float]:
    """Bytes that a token moves in a layer beside matmuls and attention: forward, backward."""
    w, p = widths
    d, f = shape.d_model, shape.d_ff
    bias_bytes = w * sum(each.outputs for each in matmuls(shape) if each.biased)  # read for the biases' gradients
    if shape.positions:  # queries, keys and values are one matmul's, and so must their gradients be
        bias_bytes += 2 * w * (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    rotary_features = (shape.heads + shape.kv_heads) * shape.head_dim if not shape.positions else 0
    norm_readers = (1 if shape.positions else 3) + (2 if shape.gated else 1)  # matmuls that read a norm's result
    summed_bytes = (norm_readers - 2) * (w if compiled else 3 * w) * d  # their gradients are added up
    if compiled:
        # a norm with the sum before it; backward its input's gradient, the sum, and its weights', which read again
        forward = 2 * (2 * p + 2 * w) * d + (3 if shape.gated else 2) * w * f + 2 * w * rotary_features
        backward = 2 * (3 * w + 4 * p) * d + (5 if shape.gated else 3) * w * f + 2 * w * rotary_features
        return forward, backward + summed_bytes + bias_bytes
    norm_bytes = 2 * p, 5 * p
    if composed:  # to float32, squared, averaged, scaled, back, times the weights: Llama's of PyTorch's operations
        norm_bytes = 6 * w + 24, 13 * w + 60
    cast_bytes = 4 + 2 if p > w else 0
    forward = 2 * (norm_bytes[0] + (2 * p + w)) * d + norm_readers * cast_bytes * d
    backward = 2 * (norm_bytes[1] + 3 * p + cast_bytes) * d + norm_readers * cast_bytes * d + summed_bytes
    mlp_factors = (5, 9) if shape.gated else (2, 3)  # SiLU and the product of the two; GELU
    rotary_bytes = 2 * (w + 4) + 8  # to float32, turned, back
    forward += mlp_factors[0] * w * f + rotary_bytes * rotary_features
    return forward, backward + mlp_factors[1] * w * f + rotary_bytes * rotary_features + bias_bytes


def loss_moved_bytes(vocab: int, w: int, compiled: bool) -> int:
    """Of a token's cross entropy in float32: logits cast, log-softmax, both backward; compiled, in registers."""
    return 4 * w * vocab if compiled else (2 * w + 40) * vocab


def update_moved_bytes(recipe: str, foreach: bool) -> int:
    """Of a parameter's AdamW: weight, gradient and moments are read, all but the gradient written; or foreach."""
    bytes_of = RECIPES[recipe]
    weight_bytes, moment_bytes = bytes_of.master or bytes_of.weights, bytes_of.optimizer // 2
    if foreach:  # decay 2, first moment 3, second 2 and 3, its root 2, divided 2, plus epsilon 2, the step 4
        return 6 * weight_bytes + 14 * moment_bytes
    return 2 * weight_bytes + bytes_of.gradients + 4 * moment_bytes + (bytes_of.weights if bytes_of.master else 0)
