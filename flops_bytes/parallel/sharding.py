"""What several GPUs cost: bytes that a rank holds, bytes on the wire, seconds that they take. Python alone.

Sources: ZeRO, arXiv:1910.02054 (stages, 2Ψ and 3Ψ); Patarasuk and Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002 (the
ring); PyTorch 2.13 for what DDP, ZeroRedundancyOptimizer and FSDP2 do, which a count on real ranks confirms.
"""

from collections.abc import Mapping
from math import ceil, prod
from typing import Any, NamedTuple

from flops_bytes.memory.adapters import CONSTANTS, quantized_bytes
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import moment_of
from flops_bytes.model.stack import Stack, four_bit_parameters, largest_layer_parameters, parameters

WEIGHT_BYTES = GRADIENT_BYTES = 4  # float32
STATE_BYTES = 8  # AdamW's two moments
STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def zero_stage_bytes(parameters: float, ranks: int, stage: int) -> dict[str, float]:
    """Bytes that one of n ranks holds, by what they are; a higher stage shards more.

    Stage 0 shards nothing, 1 the optimizer's state, 2 also gradients, 3 also weights.

    >>> zero_stage_bytes(1_000_000, ranks=4, stage=2)
    {'state': 2000000.0, 'gradients': 1000000.0, 'weights': 4000000.0}
    """
    return {
        "state": STATE_BYTES * parameters / (ranks if stage >= 1 else 1),
        "gradients": GRADIENT_BYTES * parameters / (ranks if stage >= 2 else 1),
        "weights": WEIGHT_BYTES * parameters / (ranks if stage >= 3 else 1),
    }


def shard_numbers(shape: tuple[int, ...], ranks: int) -> int:
    """What a rank holds of a tensor cut along its first dimension, padded.

    >>> shard_numbers((50_257, 768), ranks=8)  # of 6,283 rows: the last rank's are padded
    4825344
    """
    rows, *rest = shape
    return ceil(rows / ranks) * prod(rest)


def group_numbers(shapes: Mapping[str, tuple[int, ...]], ranks: int) -> tuple[int, int]:
    """Numbers, padded, of all blocks, and of all else: the root's group of FSDP2."""
    blocks = others = 0
    for name, shape in shapes.items():
        padded = ranks * shard_numbers(shape, ranks)
        blocks += padded if "blocks." in name else 0
        others += 0 if "blocks." in name else padded
    return blocks, others


ROUNDS = {"allreduce": 2, "allgather": 1, "reduce_scatter": 1}


def ring_bytes(payload_bytes: float, ranks: int, collective: str) -> float:
    """Bytes that each rank sends, and receives, on a ring of n.

    The payload is the whole tensor: what is reduced, or what is there once gathered.

    >>> ring_bytes(4 * 124_439_808, ranks=8, collective="allreduce")
    871078656.0
    """
    return ROUNDS[collective] * payload_bytes * (ranks - 1) / ranks


def ddp_payload(numbers: int) -> dict[str, int]:
    """Bytes handed to the collectives of a step of DDP, gradients in float32.

    >>> ddp_payload(124_439_808)
    {'allreduce': 497759232}
    """
    return {"allreduce": GRADIENT_BYTES * numbers}


def zero_payload(numbers: int) -> dict[str, int]:
    """Bytes handed to the collectives of a step with ZeroRedundancyOptimizer: a rank broadcasts what it has updated.

    >>> zero_payload(124_439_808)
    {'allreduce': 497759232, 'broadcast': 497759232}
    """
    return ddp_payload(numbers) | {"broadcast": WEIGHT_BYTES * numbers}


def fsdp_payload(
    blocks: int,
    root: int,
    reshard: bool = True,
    gather_bytes: int = WEIGHT_BYTES,
    reduce_bytes: int = GRADIENT_BYTES,
) -> dict[str, int]:
    """Bytes handed to the collectives of a step of FSDP2; `blocks` and `root` are the padded numbers of its groups.

    The root's group is gathered once: it is not resharded between forward and backward. With `reshard`, blocks are
    gathered twice. A number is gathered in `gather_bytes` and reduced in `reduce_bytes`.

    >>> fsdp_payload(blocks=85_054_464, root=39_385_344)
    {'allgather': 837977088, 'reduce_scatter': 497759232}
    """
    gathered = (2 if reshard else 1) * blocks + root
    return {
        "allgather": gather_bytes * gathered,
        "reduce_scatter": reduce_bytes * (blocks + root),
    }


def fsdp_peak_bytes(
    blocks: int, root: int, ranks: int, gather_bytes: int = 2, reduce_bytes: int = 4
) -> dict[str, float]:
    """FSDP2's bytes a rank when the root's gradients are reduced, without activations.

    Weights and state are in float32. The root's gradients are there twice, whole: as
    they were made, in the type of the products, and as they are sent.

    >>> fsdp_peak_bytes(blocks=85_054_464, root=39_385_344, ranks=8)
    {'state': 186659712.0, 'gradients': 42527232.0, 'whole': 236312064}
    """
    return {
        "state": (WEIGHT_BYTES + STATE_BYTES) * (blocks + root) / ranks,
        "gradients": GRADIENT_BYTES * blocks / ranks,
        "whole": (gather_bytes + reduce_bytes) * root,
    }


class Wire(NamedTuple):
    """What a collective's time is made of."""

    latency_seconds: float
    bytes_per_second: float  # of one rank, in one direction

    def seconds(self, sent_bytes: float) -> float:
        """The time in which a rank sends that many bytes."""
        return self.latency_seconds + sent_bytes / self.bytes_per_second


def fit(seconds: Mapping[int, float]) -> Wire:
    """Latency and bandwidth from times by bytes sent, both positive.

    Noise only ever slows: the fastest message tells the latency, the highest rate the
    bandwidth.
    """
    highest = max(size / time for size, time in seconds.items())
    return Wire(min(seconds.values()), highest)


def ring_rate(
    gpus: int,
    within: float,
    between: float = 50e9,
    node_gpus: int = 8,
    network_cards: int = 8,
) -> float:
    """Bytes a second that each GPU of a collective can send: the slower of two levels.

    A node's GPUs have `within` each, its network cards `between` each. NCCL lays as many
    rings as a node has network cards, each of them through all GPUs and out by one
    card, and cuts the tensor into as many parts. So all rings go over each GPU's link,
    and over the network cards together. A node that is not full has its part of them.
    """
    if gpus <= node_gpus:
        return within
    smallest = gpus % node_gpus or node_gpus
    return min(within, between * network_cards * smallest / node_gpus)


LINK_BYTES_PER_SECOND = {  # of one GPU, in one direction
    "NVLink": 450e9,  # H100 SXM: 900 GB/s in both directions together
    "400 Gb/s": 400e9 / 8,
}


def tokens_to_hide(
    flop_per_second: float,
    bytes_per_second: float,
    ranks: int,
    bytes_a_parameter: int = 2,
    flops_a_parameter: int = 2,
) -> float:
    """Tokens a rank with which products take as long as the wire; latency left out.

    By default FSDP's forward pass: 2 FLOPs a parameter and token, 2 bytes gathered.
    The number of parameters cancels out. Backward there are 4 FLOPs, and other bytes.
    """
    wire = bytes_a_parameter * (ranks - 1) / ranks / bytes_per_second
    return wire * flop_per_second / flops_a_parameter


def sharded_moments(
    stack: Stack,
    at: dict[str, dict[str, int]],
    recipe: str,
    gpus: int,
    zero: int,
    base: str = "as-recipe",
    trained: int = 0,
) -> dict[str, dict[str, int]]:
    """What step_bytes() gives, a GPU, when ZeRO's stage splits it: 1 moments and master, 2 gradients, 3 weights too.

    Layers are gathered and their gradients reduced one by one: one in use, one on its way. Embedding and head stay
    gathered from the forward pass to the backward pass's end, and so do their gradients (PyTorch's fully_shard).
    Where so many parameters of adapters are `trained`, no gradients are reduced but theirs, which are small. A `base`
    in 4 bits is gathered so; its constants, which are no parameters to bitsandbytes, stay whole. Without sharding all
    gradients are copied into the buckets of PyTorch's DDP.
    """
    if gpus == 1:
        return {moment: lines | {"reduced": 0, "gathered": 0} for moment, lines in at.items()}
    counts, width = parameters(stack), 4 if recipe == "fp32" else 2
    ends, head, layer = ends_of(counts), stack.vocab * stack.d_model, largest_layer_parameters(stack)
    whole = quantized_bytes(four_bit_parameters(stack), 0, 64, CONSTANTS[base]) if base in CONSTANTS else 0
    split = ("master", "optimizer", "gradients", "weights", "adapters")[: (0, 2, 3, 5)[zero]]
    reduced = {"head": head, "last_layer": head + layer, "first_layer": head + layer, "embedding": ends + layer}
    buckets = RECIPES["fp32"].gradients * trained or RECIPES[recipe].gradients * sum(counts.values())
    gathered = width * ends + int(2 * layer * gathered_itemsize(recipe, base))
    found = {}
    for moment, lines in at.items():
        of_gpu = {line: -(-size // gpus) if line in split else size for line, size in lines.items()}
        of_gpu["reduced"] = (
            width * reduced.get(moment_of(moment), 0) if zero > 1 and not trained else 0 if zero else buckets
        )
        of_gpu["gathered"] = gathered if zero == 3 and moment != "update" else 0
        if zero and moment == "update":
            of_gpu["temporaries"] = -(-lines["temporaries"] // gpus)  # foreach AdamW's, of its share
        if zero == 3:
            of_gpu["weights"] = -(-(lines["weights"] - whole) // gpus) + whole
            of_gpu["copies"] = 0  # what is gathered is cast already
        found[moment] = of_gpu
    return found


def ends_of(counts: Mapping[str, int]) -> int:
    """Of parameters(), those of the embedding, the table of positions and the head."""
    return counts["embedding"] + counts["head"] + counts.get("positions", 0)


def gathered_itemsize(recipe: str, base: str) -> float:
    """Bytes of a parameter of a layer that is gathered: half a byte in 4 bits, without its constants."""
    return 0.5 if base in CONSTANTS else 4 if recipe == "fp32" else 2


def sent_parts(
    stack: Stack, recipe: str, gpus: int, zero: int, accumulation: int = 1, trained: int = 0, base: str = "as-recipe"
) -> dict[str, float]:
    """Bytes that a GPU sends in a step, and receives, on a ring, of gradients and of weights (Rajbhandari et al. 2020,
    section 7).

    Gradients are summed once a step, or, if they are sharded, once a micro-batch. Stages 1 and 2 then gather the new
    weights; stage 3 gathers all of them twice a micro-batch, embedding and head once (PyTorch's fully_shard). Of
    adapters so many parameters are `trained`, in float32.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> from flops_bytes.model.stack import stack_of
    >>> sent_parts(stack_of(LLAMA_3_8B), "bf16", gpus=8, zero=1)
    {'reduced': 14052957184.0, 'gathered': 14052957184.0}
    """
    counts, width = parameters(stack), 4 if recipe == "fp32" else 2
    total, each = sum(counts.values()), RECIPES["fp32" if trained else recipe]
    numbers = trained or total
    if zero == 0:
        return {"reduced": ring_bytes(each.gradients * numbers, gpus, "allreduce"), "gathered": 0}
    reduced = numbers * (each.gradients if trained or zero == 1 else width)
    times = accumulation if zero > 1 else 1
    gathered: float = each.weights * numbers
    if zero == 3:
        ends = ends_of(counts)
        gathered = accumulation * (2 * (total - ends) * gathered_itemsize(recipe, base) + width * ends)
    return {
        "reduced": ring_bytes(times * reduced, gpus, "reduce_scatter"),
        "gathered": ring_bytes(gathered, gpus, "allgather"),
    }


def wire_bytes(stack: Stack, recipe: str, gpus: int, zero: int, accumulation: int = 1, **more: Any) -> float:
    """All bytes that a GPU sends in a step; the arguments are those of sent_parts().

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> from flops_bytes.model.stack import stack_of
    >>> wire_bytes(stack_of(LLAMA_3_8B), "bf16", gpus=8, zero=3)
    40320193536.0
    """
    return sum(sent_parts(stack, recipe, gpus, zero, accumulation, **more).values())


class Overlap(NamedTuple):
    """Seconds of a step's communication: pairs of what is sent and the matmuls beside it, and what is sent alone."""

    pairs: list[tuple[float, float]]
    alone: float


def waiting_seconds(found: Overlap) -> float:
    """Seconds of a step in which no matmul runs."""
    return sum([max(0.0, sent - matmuls) for sent, matmuls in found.pairs]) + found.alone


def overlap(reduced: float, gathered: float, matmuls: float, zero: int, accumulation: int, backward: float) -> Overlap:
    """What of a step's communication its matmuls can hide, from the seconds of each.

    Stage 3 gathers a layer while another is multiplied, half of all in forward passes; in backward passes, a share
    `backward` of the matmuls, it also reduces gradients. So does stage 2, stage 1 and no sharding in the last
    micro-batch's alone (`no_sync`). A pass waits at its end for what it sends. Stages 1 and 2 gather the new weights
    after the update.
    """
    back = backward * matmuls
    if zero == 3:
        return Overlap([(gathered / 2, matmuls - back), (gathered / 2 + reduced, back)], 0.0)
    return Overlap([(reduced, back if zero == 2 else back / accumulation)], gathered)
