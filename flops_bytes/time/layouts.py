"""Seconds of what a rank of a layout computes itself, at rates of published kernels (flops_bytes.time.rates).

Matmuls have the sizes that tensor and context parallelism leave of them, and run at the rates of such sizes: what is
split into narrow parts runs slower. Passes that are no matmul read and write at the bandwidth of such passes, fused, as
torch.compile and Megatron-LM do; the loss and the update are of single operations.

Whole steps take longer than the rates say, for reasons that plan/step_time.py names. How much longer is known of
published steps without such parallelism (rates.AGREED), and as much is added here: by the middle of eight of ten, and
for a range by both ends.
"""

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
    card_family,
    card_peak,
    layer_moved_bytes,
    linear_products,
    loss_moved_bytes,
    matmul_rate,
    pass_bandwidth,
    size_share,
    update_moved_bytes,
)

# How many times as fast linear layers multiply in float8, by a pair of torchtitan's steps without such parallelism
# (measurements/published/torchtitan.toml, "128 GPUs, FSDP", rows 1 and 2). A test derives it.
FLOAT8_SPEEDUP = 1.537
# Operations of a layer, forward and backward, that PyTorch launches one by one if nothing fuses them: those of
# transformers' Llama, which a test counts. And seconds from a launch to the next, in AMD-AGI/TraceLens's trace of
# BERT-small on an H100 (171dd74; snippets/roofline.py).
LAYER_OPERATIONS = 108
LAUNCH_SECONDS = 54e-6
LAUNCHED_LAYER_SECONDS = LAYER_OPERATIONS * LAUNCH_SECONDS
ITEMSIZE = 2  # bytes of a number in 16 bits


def has_rates(shape: object, card: str, recipe: str) -> bool:
    """Whether published rates say how long a rank computes: of layers all alike, in 16 bits, on cards of some steps."""
    return isinstance(shape, Decoder) and shape.experts == 1 and recipe != "fp32" and card_family(card) in AGREED


def assumed_matmul_seconds(card: str, sizes: Iterable[tuple[int, int, int]]) -> float:
    large_rate = matmul_rate(card, card_peak(card)).assumed
    return sum(2 * m * k * n / (large_rate * size_share(card, m, k, n)) for m, k, n in sizes)


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
    recomputes_whole_layers: bool = False,
) -> dict[str, float]:
    """Of one layer and a micro-batch of so many tokens of a context rank, by line: forward, backward and again."""
    shard = tensor_shard(shape, tensor)
    matrices, float8_speedup = matmuls(shard), FLOAT8_SPEEDUP if float8 else 1.0
    recomputed = {"full": matrices, "per-op": recomputed_matmuls(shard)}.get(checkpointing, [])
    # no backward pass needs the last one's result
    spared = not recomputes_whole_layers and (checkpointing == "full" or not saves_last(shard))
    matmul_time = assumed_matmul_seconds(
        card, (size for matrix in matrices for size in linear_products(tokens, matrix))
    )
    matmul_time += assumed_matmul_seconds(
        card, ((tokens, matrix.inputs, matrix.outputs) for matrix in recomputed[: len(recomputed) - spared])
    )

    pairs = tokens * (seq_len + 1) / 2  # of a query and a key that it may look at
    forward, backward = attention_rates(card, card_peak(card), seq_len, shard.heads)
    flops = 4 * pairs * shard.heads * shard.head_dim
    attention_time = flops / forward.assumed * (2 if checkpointing in ("full", "selective") else 1)

    # what is as wide as the model is split by sequence parallelism, what is inside the MLP by its matrices
    layer_bytes, mlp_bytes = (
        layer_moved_bytes(part, Widths(ITEMSIZE, ITEMSIZE), True, True) for part in (shard, replace(shard, d_model=0))
    )
    ranks = tensor if sequence else 1
    forward_bytes, backward_bytes = (
        (of_layer - of_mlp) / ranks + of_mlp for of_layer, of_mlp in zip(layer_bytes, mlp_bytes, strict=True)
    )
    moved_bytes = tokens * (forward_bytes * (2 if checkpointing in ("full", "per-op") else 1) + backward_bytes)
    return {
        "matmuls": matmul_time / float8_speedup,
        "attention": attention_time + 2.5 * flops / backward.assumed,
        "element-wise": moved_bytes / pass_bytes_per_second(card),
    }


@cache
def pass_bytes_per_second(card: str) -> float:
    return pass_bandwidth(card, (GPUS | THIRD_PARTY)[card].bandwidth_bytes_per_second).assumed


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
    layers = sum(rank_layers(shape, layout, rank))
    split = layout.tensor, layout.sequence
    layer_time = layer_seconds(
        shape, *split, tokens, seq_len, card, checkpointing, float8, layout.habits.recomputes_whole_layers
    )
    by_line = {line: layers * seconds for line, seconds in layer_time.items()}
    if rank == layout.pipeline - 1:
        by_line["matmuls"] += assumed_matmul_seconds(
            card, linear_products(tokens, Matmul("head", shape.d_model, vocab, False))
        )
        by_line["element-wise"] += tokens * loss_moved_bytes(vocab, ITEMSIZE, False) / pass_bytes_per_second(card)
    updated_parameters = sum(rank_parameters(shape, layout, rank).values()) / (layout.shards if layout.zero else 1)
    update_seconds = update_moved_bytes(recipe, True) * updated_parameters / pass_bytes_per_second(card)
    return {line: layout.micro_batches * seconds for line, seconds in by_line.items()} | {"update": update_seconds}


def slowdowns(card: str) -> tuple[float, float, float]:
    """How many times as long published steps took as the rates say: little, the middle, much, of eight of ten."""
    _, low, high = AGREED[card_family(card)]
    return 1 / high, 2 / (low + high), 1 / low


def slowed(seconds_by_line: Mapping[str, float], slowdown: float) -> dict[str, float]:
    return {line: slowdown * seconds for line, seconds in seconds_by_line.items()}
