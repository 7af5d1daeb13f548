"""Seconds of what a rank of a layout computes itself, at rates of published kernels (flops_bytes.time.rates).

Matmuls have the sizes that tensor and context parallelism leave of them, and run at the rates of such sizes: what is
split into narrow parts runs slower. Passes that are no matmul read and write at the bandwidth of such passes, fused, as
torch.compile and Megatron-LM do; the loss and the update are of single operations.

Whole steps take longer than the rates say, for reasons that plan/step_time.py names. How much longer is known of
published steps without such parallelism (rates.AGREED), and as much is added here: by the middle of eight of ten, and
for a range by both ends.
"""

# --8<-- [start:setup]
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from flops_bytes.model.shapes import Decoder, Matmul, matmuls, recomputed_matmuls, saves_last
from flops_bytes.parallel.layouts import Layout, rank_layers, rank_parameters, tensor_shard
from flops_bytes.time.gpus import GPUS, THIRD_PARTY
from flops_bytes.time.rates import (
    AGREED,
    Widths,
    attention_rates,
    bandwidth,
    family,
    layer_bytes,
    loss_bytes,
    matmul_rate,
    peak_of,
    size_share,
    three,
    update_bytes,
)

# How many times as fast linear layers multiply in float8, by a pair of torchtitan's steps without such parallelism
# (measurements/published/torchtitan.toml, "128 GPUs, FSDP", rows 1 and 2). A test derives it.
FLOAT8 = 1.537
WIDTH = 2  # bytes of a number in 16 bits
# --8<-- [end:setup]


# --8<-- [start:layer]
def covered(shape: object, card: str, recipe: str) -> bool:
    """Whether published rates say how long a rank computes: of layers all alike, in 16 bits, on cards of some steps."""
    return isinstance(shape, Decoder) and shape.experts == 1 and recipe != "fp32" and family(card) in AGREED


def matmul_seconds(card: str, sizes: Iterable[tuple[int, int, int]]) -> float:
    best = matmul_rate(card, peak_of(card)).assumed
    return sum(2 * m * k * n / (best * size_share(card, m, k, n)) for m, k, n in sizes)


@cache  # asked for each rank of each layout with these degrees
def layer_seconds(
    shape: Decoder,
    tensor: int,
    sequence: bool,
    tokens: int,
    seq_len: int,
    card: str,
    checkpointing: str = "none",
    float8: bool = False,
    all_again: bool = False,
) -> dict[str, float]:
    """Of one layer and a micro-batch of so many tokens of a context rank, by line: forward, backward and again."""
    own = tensor_shard(shape, tensor)
    each, faster = matmuls(own), FLOAT8 if float8 else 1.0
    again = {"full": each, "per-op": recomputed_matmuls(own)}.get(checkpointing, [])
    spared = not all_again and (checkpointing == "full" or not saves_last(own))  # backward, its result is not needed
    products = matmul_seconds(card, (size for one in each for size in three(tokens, one)))
    products += matmul_seconds(card, ((tokens, one.inputs, one.outputs) for one in again[: len(again) - spared]))

    pairs = tokens * (seq_len + 1) / 2  # of a query and a key that it may look at
    forward, backward = attention_rates(card, peak_of(card), seq_len, own.heads)
    flops = 4 * pairs * own.heads * own.head_dim
    scores = flops / forward.assumed * (2 if checkpointing in ("full", "selective") else 1)

    # what is as wide as the model is split by sequence parallelism, what is inside the MLP by its matrices
    whole, inside = (layer_bytes(one, Widths(WIDTH, WIDTH), True, True) for one in (own, replace(own, d_model=0)))
    ranks = tensor if sequence else 1
    ahead, back = ((every - inner) / ranks + inner for every, inner in zip(whole, inside, strict=True))
    moved = tokens * (ahead * (2 if checkpointing in ("full", "per-op") else 1) + back)
    return {
        "matmuls": products / faster,
        "attention": scores + 2.5 * flops / backward.assumed,
        "element-wise": moved / bytes_per_second(card),
    }


@cache
def bytes_per_second(card: str) -> float:
    return bandwidth(card, (GPUS | THIRD_PARTY)[card].bandwidth_bytes_per_second).assumed


# --8<-- [end:layer]


# --8<-- [start:rank]
def rank_seconds(
    shape: Decoder,
    layout: Layout,
    rank: int,
    seq_len: int,
    batch: int,
    card: str,
    recipe: str,
    checkpointing: str = "none",
    float8: bool = False,
) -> dict[str, float]:
    """Of a step of a pipeline rank, by line, as the rates have it."""
    tokens, vocab = batch * seq_len // layout.context, -(-shape.vocab // layout.tensor)
    layers = sum(rank_layers(shape.layers, layout, rank))
    split = layout.tensor, layout.sequence
    one = layer_seconds(shape, *split, tokens, seq_len, card, checkpointing, float8, layout.recomputes_whole_layers)
    found = {line: layers * seconds for line, seconds in one.items()}
    if rank == layout.pipeline - 1:
        found["matmuls"] += matmul_seconds(card, three(tokens, Matmul("head", shape.d_model, vocab, False)))
        found["element-wise"] += tokens * loss_bytes(vocab, WIDTH, False) / bytes_per_second(card)
    held = sum(rank_parameters(shape, layout, rank).values()) / (layout.shards if layout.zero else 1)
    update = update_bytes(recipe, True) * held / bytes_per_second(card)
    return {line: layout.micro_batches * seconds for line, seconds in found.items()} | {"update": update}


def longer(card: str) -> tuple[float, float, float]:
    """How many times as long published steps took as the rates say: little, the middle, much, of eight of ten."""
    _, low, high = AGREED[family(card)]
    return 1 / high, 2 / (low + high), 1 / low


def taken(found: Mapping[str, float], times: float) -> dict[str, float]:
    return {line: times * seconds for line, seconds in found.items()}


# --8<-- [end:rank]
