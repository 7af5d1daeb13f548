"""A planned step's time without an MFU: what the rates of kernels that others published say of its options.

Matmuls, attention and passes are as flops_bytes.time.rates has them. Communication is the bytes that a GPU sends at
LINK_EFFICIENCY of its link; hidden wholly, beside matmuls, or not at all. LEFT_OUT says what is not in it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flops_bytes.memory.formulas import RECIPES
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.parallel.sharding import overlap, sent_parts, waiting_seconds
from flops_bytes.plan.options import has_dropout, named_shape, read_gpu, read_network
from flops_bytes.time.gpus import TPUS
from flops_bytes.time.rates import (
    AGREED,
    Range,
    Widths,
    attention_rates,
    card_family,
    layer_moved_bytes,
    loss_moved_bytes,
    matmul_products,
    matmul_seconds,
    pass_bandwidth,
    sum_ranges,
    update_moved_bytes,
)

LEFT_OUT = (
    "data loading",
    "launches and waits between GPUs",
    "copies of FSDP's buffers",
    "clipping of gradients",
    "clocks under load",
)


class StepTime(NamedTuple):
    """Seconds of a step, line by line, and their sum."""

    lines: Mapping[str, Range]

    @property
    def seconds(self) -> Range:
        return sum_ranges(self.lines.values())


def why_no_rates(a: Mapping[str, Any], shape: Decoder) -> str:
    """Why no published rates say a step's time; nothing, if they do."""
    reasons = {
        "adapters": bool(a["lora"]),
        "experts": shape.experts > 1,
        "matmuls in float32": a["recipe"] == "fp32",
        "matmuls in fp8": a["matmuls"] != "as-recipe",
        "eager attention": a["attention"] == "eager",
        "8-bit or paged moments": a["optimizer"] not in ("adamw", "muon", "adafactor"),
        "Muon": a["optimizer"] == "muon",
        "Adafactor": a["optimizer"] == "adafactor",
        "state in the host's memory": a["offload"] != "no",
        "a card without a name": not a["gpu"],
        "TPUs": a["gpu"] in TPUS,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def step_time(
    a: Mapping[str, Any], compiled: bool | None = None, flash: int = 2, shape: Decoder | None = None
) -> StepTime:
    """What the rates say of a step, from options that are read; `compiled` is True or False where that is known; with
    None, the low end is compiled, and assumed and high are eager. The shape is theirs, if none is given.

    Raises ValueError for what no published rate covers.
    """
    shape = shape or named_shape(a)
    if why := why_no_rates(a, shape):
        raise ValueError(f"no published rates: {why}")
    gpu, card = read_gpu(a), a["gpu"]
    peak = gpu.peak_flop_per_second.get("bfloat16") or gpu.peak_flop_per_second["float16"]
    zero, gpus, recipe = int(a["zero"]), a["gpus"], a["recipe"].replace("-", "_")
    tokens, micro_batches = a["micro_batch"] * a["context"], a["accumulation"]
    # Reentrant checkpointing runs a layer to its end. So does dropout of GPT-2's, whose mask is behind the last matmul.
    masks_end = has_dropout(a, shape) and shape.norm_shift and a["checkpointing"] != "selective"
    early_stop = a["reentrant"] == "no" and not masks_end
    sizes = matmul_products(shape, tokens, a["checkpointing"], a["checkpoint_every"], early_stop)
    lines = {line: each.times(micro_batches) for line, each in matmul_seconds(card, peak, sizes, compiled).items()}
    forward, backward = (each.times(micro_batches) for each in attention_seconds(a, shape, card, peak, flash))
    recomputed_share = {"full": -(-shape.layers // a["checkpoint_every"]) / shape.layers, "selective": 1.0}.get(
        a["checkpointing"], 0.0
    )
    lines["attention"] = sum_ranges([forward, backward])
    lines["recomputation"] = sum_ranges([lines["recomputation"], forward.times(recomputed_share)])
    for line, each in moved_bytes(a, shape, recipe, compiled).items():
        lines[line] = bytes_seconds(pass_bandwidth(card, gpu.bandwidth_bytes_per_second), each)
    busy_seconds = sum_ranges(lines.values()).assumed
    lines["communication"] = network_wait(a, shape, recipe, zero, gpus, busy_seconds)
    return StepTime(lines)


def attention_seconds(a: Mapping[str, Any], shape: Decoder, card: str, peak: float, flash: int) -> tuple[Range, Range]:
    """Of a micro-batch, forward and backward; a backward pass makes the scores again: five products for two."""
    features, length = shape.heads * shape.head_dim, a["context"]
    flops = 4 * shape.layers * a["micro_batch"] * length * (length + 1) // 2 * features
    forward, backward = attention_rates(card, peak, length, shape.heads, flash)
    return forward.seconds(flops), backward.seconds(2.5 * flops)


def bytes_seconds(rate: Range, moved: Range) -> Range:
    """The fewest bytes at the highest rate, and the other way round."""
    return Range(moved.low / rate.high, moved.assumed / rate.assumed, moved.high / rate.low)


def moved_bytes(a: Mapping[str, Any], shape: Decoder, recipe: str, compiled: bool | None) -> dict[str, Range]:
    """Bytes of a GPU's step by line: compiled, as it is assumed, in eager mode."""
    counts = parameters(shape)
    zero, gpus, micro_batches = int(a["zero"]), a["gpus"], a["accumulation"]
    tokens: int = a["micro_batch"] * a["context"] * micro_batches
    autocast = recipe[:8] == "autocast" and not (zero == 3 and gpus > 1)
    widths = Widths(2, 4 if autocast else 2)
    matrix_parameters = counts["qkv"] + counts["out"] + counts["mlp"] + shape.vocab * shape.d_model
    recomputed_layers = {"full": -(-shape.layers // a["checkpoint_every"]), "per-op": shape.layers}.get(
        a["checkpointing"], 0
    )

    def activations(fused: bool) -> tuple[float, float]:
        forward, backward = layer_moved_bytes(shape, widths, fused, a["layers"] == "composed")
        end_bytes = 4 * widths.residual * shape.d_model  # the embedding, there and back
        return tokens * (shape.layers * (forward + backward) + end_bytes), tokens * recomputed_layers * forward

    def loss(fused: bool) -> float:
        return tokens * loss_moved_bytes(shape.vocab, widths.result, fused)

    fused = {True: (True,) * 3, False: (False,) * 3, None: (True, False, False)}[compiled]
    parameter_count = sum(counts.values())
    recipe_bytes = RECIPES[recipe]
    weight_bytes = 12 * matrix_parameters * micro_batches if autocast else 0  # cast to 16 bits, their gradients back
    # zeros, into which the embedding's gradients are added
    weight_bytes += 2 * shape.vocab * shape.d_model * micro_batches
    # gradients, added up over micro-batches
    weight_bytes += 3 * recipe_bytes.gradients * parameter_count // (gpus if zero > 1 else 1) * (micro_batches - 1)
    update_bytes = update_moved_bytes(recipe, a["update"] == "foreach") * parameter_count / (gpus if zero else 1)
    activation_bytes = [activations(each) for each in fused]
    return {
        "element-wise": Range(*(passed + weight_bytes for passed, _ in activation_bytes)),
        "recomputed element-wise": Range(*(repeats for _, repeats in activation_bytes)),
        "loss": Range(*(loss(each or a["loss"] == "compiled") for each in fused)),
        "update": Range(*3 * (update_bytes,)),
    }


def network_wait(a: Mapping[str, Any], shape: Decoder, recipe: str, zero: int, gpus: int, busy_seconds: float) -> Range:
    """Seconds that a step waits for its network: none, what its own work does not hide, all."""
    network = read_network(a) if gpus > 1 else None
    if not network:
        return Range(0, 0, 0)
    parts = sent_parts(stack_of(shape), recipe=recipe, gpus=gpus, zero=zero, accumulation=a["accumulation"])
    seconds = {part: size / network["bytes_per_second"] for part, size in parts.items()}
    waits_seconds = waiting_seconds(
        overlap(seconds["reduced"], seconds["gathered"], busy_seconds, zero, a["accumulation"], 2 / 3)
    )
    return Range(0, waits_seconds, sum(seconds.values()))


def step_time_lines(a: Mapping[str, Any], shape: Decoder) -> Iterator[tuple[str, str]]:
    """A step's time from rates as lines of a terminal, from options that are read."""
    try:
        time = step_time(a, shape=shape)
    except ValueError as error:
        yield "  by published rates", str(error)
        return
    low, assumed, high = time.seconds
    yield "  by published rates", f"{assumed:.4g} s, between {low:.4g} and {high:.4g} s"
    parts = sorted(((each.assumed, line) for line, each in time.lines.items() if each.assumed), reverse=True)
    yield "    of these", ", ".join(f"{line} {seconds:.3g}" for seconds, line in parts)
    yield "    not in it", ", ".join(LEFT_OUT)
    if (family := card_family(a["gpu"])) in AGREED:
        readings, least, most = AGREED[family]
        agreement = f"the rates said {least:.2f} to {most:.2f} of what they took"
        yield "    published steps", f"{agreement}, eight of ten of {readings} on {family}"
