"""What tensor, context, pipeline and expert parallelism cost together: what a rank holds, sends and waits for.

Numbers in, numbers out, nothing but Python. Sources: Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3;
Narayanan et al. 2021, arXiv 2104.04473, section 2; Korthikanti et al. 2022, arXiv 2205.05198, section 4); ring
attention (Liu et al. 2023, arXiv 2310.01889); Llama 3 (2024, arXiv 2407.21783, section 3.3); zero-bubble pipelines (Qi
et al. 2023, arXiv 2401.10241). PyTorch's DTensor and its pipeline schedules are what tests count.

What differs between kinds of models are the functions of `singledispatch`: of layers all alike they are here, of layers
that differ in flops_bytes.parallel.stacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, singledispatch
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from flops_bytes.model.flops import ATTENTION, backward_flops, forward_flops, recompute_flops
from flops_bytes.model.shapes import parameters
from flops_bytes.parallel.sharding import overlap, ring_bytes, waiting_seconds

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")


class Trainer(NamedTuple):
    """What a trainer does by habit, which no degree says. How it writes a layer: flops_bytes.parallel.trainers."""

    shares: str  # How layers are shared out to stages: "with-ends" (embedding and head count as one each), "even",
    # or "by-weight" (until a stage has its part of all matrices, the head's among them).
    regathers: bool  # What tensor ranks gather they gather again in the backward pass, and do not keep it.
    keeps_boundaries: bool  # Of a pipeline, what came from other stages and what went to the next stays for a step.
    # With full checkpointing whole layers are computed again, also what no backward pass needs.
    recomputes_whole_layers: bool
    sums_in_float32: bool  # Gradients of a step's micro-batches are summed in float32, whatever the recipe is.
    lags: bool  # What it sends may be free for others only later, where its GPUs lag behind PyTorch.


TRAINERS = {
    "torchtitan": Trainer("with-ends", False, True, False, False, False),  # 9dec370, torchtitan/parallelisms
    "megatron-lm": Trainer("even", True, False, True, True, False),  # 23e00ed, with Transformer Engine 2.11
    # 2411b02: get_block_compute_costs() in src/nanotron/models/llama.py, build_model() in models/base.py
    "nanotron": Trainer("by-weight", True, False, True, True, True),
}


Model = Any  # A Decoder, or a flops_bytes.parallel.stacks.Split, which has the attributes that are read here.


class Layout(NamedTuple):
    """How a model and its batch are split over GPUs; each degree is a number of ranks."""

    data: int = 1  # These ranks split the batch, and ZeRO also shards weights, gradients and state over them.
    tensor: int = 1  # These ranks split each matrix.
    sequence: bool = True  # Sequence parallelism: between matrices the same ranks split the tokens.
    context: int = 1  # These ranks split each sequence.
    pipeline: int = 1  # These ranks split the layers.
    expert: int = 1  # So many of the ranks that hold the same part of an expert's matrices hold different experts.
    zero: int = 1  # ZeRO's stage: 1 shards state over data × context ranks, 2 gradients too, 3 weights too.
    schedule: str = "1f1b"
    micro_batches: int = 1  # A data rank runs so many micro-batches in a step.
    virtual: int = 1  # A pipeline rank has so many stages, with "interleaved" and "zero-bubble".
    trainer: str = "torchtitan"  # One of TRAINERS.
    # How layers are shared out, if not by the trainer's habit: as Trainer.shares, or how many each stage has.
    stages: str | tuple[int, ...] = ""
    replicas: int = 1  # Hybrid sharding: the data × context ranks hold so many copies of what ZeRO shards.
    # Ring attention: keys and values go around the context ranks while attention computes; else they are gathered.
    ring: bool = False
    whole_experts: bool = False  # Tensor ranks hold different experts, too, and share the matrices of none.

    @property
    def habits(self) -> Trainer:
        return TRAINERS[self.trainer]

    @property
    def shares(self) -> str | tuple[int, ...]:
        return self.stages or self.habits.shares

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.context * self.pipeline

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shards: those that hold the same part of the dense weights, or of these a replica."""
        return self.data * self.context // self.replicas

    @property
    def expert_tensor(self) -> int:
        """Ranks that share each expert's matrices."""
        return 1 if self.whole_experts else self.tensor

    @property
    def expert_shards(self) -> int:
        """Ranks over which ZeRO shards experts: those that hold the same part of them."""
        return self.shards * self.tensor // self.expert_tensor // self.expert


MOST_IN_FLIGHT = 1024  # micro-batches, each of which is gone through
MOST_HELD_LAYERS = 512  # of a rank, layer by layer: some seconds


def refuse(shape: Model, layout: Layout, seq_len: int) -> None:
    """Raises ValueError with a sentence for a layout that cannot be."""
    if layout.schedule not in SCHEDULES:
        raise ValueError(f"schedule: {layout.schedule} is none of {', '.join(SCHEDULES)}")
    for name in ("data", "tensor", "context", "pipeline", "expert", "micro_batches", "virtual"):
        if getattr(layout, name) < 1:
            raise ValueError(f"{name}: at least 1, not {getattr(layout, name)}")
    if layout.zero not in range(4):
        raise ValueError(f"zero: 0 to 3, not {layout.zero}")
    if shape.heads % layout.tensor or shape.d_ff % layout.tensor:
        shared = f"{shape.heads} heads and {shape.d_ff} features"
        raise ValueError(f"tensor: {layout.tensor} ranks cannot share {shared}; choose a number that divides both")
    if shape.kv_heads % layout.tensor and layout.tensor % shape.kv_heads:
        shared = f"{shape.kv_heads} key-value heads"
        raise ValueError(f"tensor: {layout.tensor} ranks cannot share {shared}; choose a divisor or a multiple of them")
    split = (layout.tensor if layout.sequence else 1) * 2 * layout.context if layout.context > 1 else layout.tensor
    if layout.tensor * layout.context > 1 and seq_len % split:
        raise ValueError(f"tokens: {seq_len} cannot be cut into {split} equal parts; give a multiple of {split}")
    if layout.virtual > 1 and layout.schedule not in ("interleaved", "zero-bubble"):
        raise ValueError(f"virtual: {layout.schedule} gives a rank one stage; choose interleaved")
    if layout.virtual > 1 and layout.pipeline == 1:
        raise ValueError("virtual: without a pipeline a rank has one stage; choose 1, or more pipeline ranks")
    if layout.schedule == "gpipe" and layout.pipeline > 1 and layout.micro_batches > MOST_IN_FLIGHT:
        raise ValueError(f"micro_batches: gpipe keeps all in flight; give at most {MOST_IN_FLIGHT}, or choose 1f1b")
    stages = layout.pipeline * layout.virtual
    if isinstance(layout.shares, tuple):
        if (len(layout.shares), sum(layout.shares)) != (stages, shape.layers):
            told = f"{len(layout.shares)} stages of {sum(layout.shares)} layers"
            raise ValueError(f"stages: {told} are not {stages} of {shape.layers}; give as many")
    elif stages > shape.layers + 2 * (layout.shares == "with-ends"):
        raise ValueError(f"pipeline: {shape.layers} layers do not fill {stages} stages; choose fewer")
    if (held := -(-shape.layers // layout.pipeline)) > MOST_HELD_LAYERS:
        raise ValueError(
            f"pipeline: a rank's step is gone through with {MOST_HELD_LAYERS} layers, not {held}; choose more"
        )
    if layout.schedule in ("interleaved", "zero-bubble") and layout.micro_batches % layout.pipeline:
        ranks = f"the pipeline ranks; give a multiple of {layout.pipeline}"
        raise ValueError(f"micro_batches: {layout.schedule} goes in turns of {ranks}")
    copied = layout.data * layout.context
    if layout.replicas < 1 or copied % layout.replicas or (layout.replicas > 1 and not layout.zero):
        shared = f"{copied} ranks of the data with zero {layout.zero}"
        raise ValueError(f"replicas: {layout.replicas} cannot share {shared}; choose a divisor, and zero 1, 2 or 3")
    if layout.whole_experts and layout.tensor > 1 and not layout.sequence:
        raise ValueError("whole_experts: tensor ranks have the same tokens; share these too, with sequence yes")
    all_ranks = layout.shards * layout.tensor
    expert_ranks = all_ranks // layout.expert_tensor
    if shape.experts % layout.expert or expert_ranks % layout.expert:
        among = "data and tensors" if layout.whole_experts else "the data"
        shared = f"{shape.experts} experts within {expert_ranks} ranks of {among}"
        mend = "choose a number that divides both"
        if layout.sequence and not (shape.experts % layout.expert or all_ranks % layout.expert):
            mend += f", or --etp 1, so that whole experts lie on {all_ranks} ranks of data and tensors"
        raise ValueError(f"expert: {layout.expert} ranks cannot share {shared}; {mend}")


@cache
def stage_layers(layers: int, stages: int, shares: str | tuple[int, ...] = "with-ends", head: float = 0.0) -> list[int]:
    """Layers of each stage, as Trainer.shares has it; the head is as heavy as so many layers."""
    if isinstance(shares, tuple):
        return list(shares)
    if shares == "by-weight":
        each, weighs = [0] * stages, 0.0
        stage = 0
        for _ in range(layers):
            each[stage] += 1
            weighs += 1
            stage += stage < stages - 1 and weighs > (layers + head) * (stage + 1) / stages
        return each
    ends = shares == "with-ends"
    slots, left = divmod(layers + 2 * ends, stages)
    each = [slots + (stage < left) for stage in range(stages)]
    each[0] -= ends
    each[-1] -= ends
    return each


def stages_of(shape: Model, layout: Layout) -> list[int]:
    """Layers of each stage of a layout."""
    head = head_layers(shape) if layout.shares == "by-weight" else 0.0
    return stage_layers(shape.layers, layout.pipeline * layout.virtual, layout.shares, head)


@singledispatch
def head_layers(shape: Model) -> float:
    """Of how many layers the matrices have as many numbers as the head's."""
    counts = parameters(shape)
    return float(shape.vocab * shape.d_model * shape.layers / (counts["qkv"] + counts["out"] + counts["mlp"]))


def rank_layers(shape: Model, layout: Layout, rank: int) -> list[int]:
    """Layers of each of a pipeline rank's stages: of interleaved ones, every so many."""
    return stages_of(shape, layout)[rank :: layout.pipeline]


def stage_indices(shape: Model, layout: Layout) -> list[range]:
    """Which layers, from 0, each stage has."""
    last = list(accumulate(stages_of(shape, layout)))
    return [range(first, end) for first, end in zip([0, *last], last, strict=False)]


@singledispatch
def stage_kinds(shape: Model, layout: Layout, rank: int) -> list[dict[Any, int]]:
    """Of each of a pipeline rank's stages its layers, as models of one kind of layer, with how many there are."""
    return [{shape: number} for number in rank_layers(shape, layout, rank)]


def rank_kinds(shape: Model, layout: Layout, rank: int) -> dict[Any, int]:
    """Of all stages of a pipeline rank its kinds of layers, with how many there are."""
    return kinds_by_rank(shape, layout.pipeline, layout.virtual, layout.trainer, layout.stages)[rank]


@lru_cache(maxsize=128)  # Bytes and seconds of each rank ask for this again.
def kinds_by_rank(
    shape: Model, pipeline: int, virtual: int, trainer: str, stages: str | tuple[int, ...]
) -> list[dict[Any, int]]:
    found = []
    layout = Layout(pipeline=pipeline, virtual=virtual, trainer=trainer, stages=stages)
    for rank in range(pipeline):
        kinds: dict[Any, int] = {}
        for stage in stage_kinds(shape, layout, rank):
            for kind, number in stage.items():
                kinds[kind] = kinds.get(kind, 0) + number
        found.append(kinds)
    return found


def distinct_ranks(shape: Model, layout: Layout) -> list[int]:
    """Pipeline ranks that differ: without those that have an earlier rank's layers, and neither end of the model.

    These compute and send as much, and hold no more: of a schedule no later rank has more micro-batches in flight.
    """
    first: dict[Any, int] = {}
    last = layout.pipeline - 1
    for rank in range(layout.pipeline):
        kinds = rank_kinds(shape, layout, rank)
        first.setdefault((rank == 0, rank == last, frozenset(kinds.items())), rank)
    return list(first.values())


def warm_up(layout: Layout, rank: int) -> int:
    """Passes forward of this rank before its first one backward, but for the one right before it.

    Without a pipeline each goes backward before the next. GPipe sends all forward first. 1F1B starts backward passes
    as soon as it can, so rank r waits for p − r − 1.
    Interleaved, a rank goes 2(p − r − 1) + (v − 1)p times forward before it takes turns (Megatron-LM's warm-up).
    Zero-bubble, each rank has as many whose weights' gradients are not computed as the first rank has of 1F1B: what
    these need is counted as if it were all that the forward pass kept (Qi et al. 2023, ZB-H1).
    """
    p, m, v = layout.pipeline, layout.micro_batches, layout.virtual
    if p == 1 and v == 1:
        return 0
    if layout.schedule == "gpipe":
        return m - 1
    if layout.schedule == "1f1b":
        return min(m, p - rank) - 1
    if layout.schedule == "zero-bubble":
        return min(m, p) * v - 1
    return min(m * v - 1, 2 * (p - rank - 1) + (v - 1) * p)


def in_flight(layout: Layout, rank: int) -> int:
    """Micro-batches, times stages of this rank, that have gone forward and not yet backward, at most."""
    return warm_up(layout, rank) + 1


def bubble(layout: Layout) -> float:
    """Of a step, the share in which a pipeline rank has nothing to do: all stages take as long, sending takes no time.

    (p − 1)/(vm + p − 1): with m micro-batches and v stages a rank, the first rank waits as long as p − 1 of its
    passes take for the last one to come back. Narayanan et al. 2021 give it as a share of the work, (p − 1)/(vm).

    Zero-bubble, gradients of weights fill two thirds of it, if they take as long as those of inputs and as a forward
    pass: (p − 1)(F + B − W) is left (Qi et al. 2023, section 2, ZB-H1), which PyTorch's schedule has with v stages too.
    """
    waits = (layout.pipeline - 1) / (3 if layout.schedule == "zero-bubble" else 1)
    return waits / (layout.virtual * layout.micro_batches + waits)


@singledispatch
def rank_parameters(shape: Model, layout: Layout, rank: int) -> dict[str, int]:
    """Parameters of a pipeline rank before ZeRO shards them: of experts, and of all else.

    Tensor parallelism cuts matrices, their first ones by outputs, the last ones by inputs, embedding and head by the
    vocabulary; norms, the router and the biases behind sums stay whole. Fewer key-value heads than ranks are repeated.
    A tied head is a matrix of its own where it lies on another rank than the embedding.
    """
    t, p = layout.tensor, layout.pipeline
    counts, layers = parameters(shape), sum(rank_layers(shape, layout, rank))
    wide, narrow = shape.heads * shape.head_dim, max(shape.kv_heads, t) * shape.head_dim
    biased = max(int(shape.biases), shape.qkv_biases)
    qkv = (shape.d_model + biased) * (wide + 2 * narrow) // t
    last_biases = shape.d_model * shape.biases
    out = wide // t * shape.d_model + last_biases
    of_mlp = t if shape.experts == 1 else layout.expert_tensor
    mlp = (counts["mlp"] // shape.layers - shape.experts * last_biases) // of_mlp + shape.experts * last_biases
    router, norm = counts["router"] // shape.layers, shape.d_model * (1 + shape.norm_shift)
    dense = layers * (qkv + out + router + (counts["norms"] - norm) // shape.layers)
    vocab = ceil(shape.vocab / t) * shape.d_model
    ends = (vocab + counts["positions"] if rank == 0 else 0) + (norm if rank == p - 1 else 0)
    ends += vocab if rank == p - 1 and not (shape.tied and rank == 0) else 0
    if shape.experts == 1:
        return {"experts": 0, "dense": dense + layers * mlp + ends}
    return {"experts": layers * mlp // layout.expert, "dense": dense + ends}


def tensor_shard(shape: Model, tensor: int) -> Model:
    """The layer that one tensor rank has: its share of the heads and of the MLP's inner features."""
    return replace(
        shape, heads=shape.heads // tensor, kv_heads=max(1, shape.kv_heads // tensor), d_ff=shape.d_ff // tensor
    )


def state_bytes(held: dict[str, int], layout: Layout, weights: int, gradients: int, state: int) -> dict[str, int]:
    """Bytes that stay on a rank, from bytes a parameter: `state` is the optimizer's, with a master copy."""
    ranks = {"dense": layout.shards, "experts": layout.expert_shards}

    def bytes_of(width: int, from_stage: int) -> int:
        return sum(-(-width * held[part] // (ranks[part] if layout.zero >= from_stage else 1)) for part in held)

    return {"weights": bytes_of(weights, 3), "gradients": bytes_of(gradients, 2), "state": bytes_of(state, 1)}


class Sent(NamedTuple):
    """Bytes that a GPU sends in a step, by what sends them, and over which group of ranks."""

    tensor: float
    context: float
    pipeline: float
    expert: float
    data: float
    replicas: float = 0.0


@singledispatch
def layer_sent_bytes(shape: Model, layout: Layout, tokens: int, checkpointing: str, width: int) -> dict[str, float]:
    """Bytes that a GPU sends for one layer and micro-batch of so many tokens, which it has of its context's rank.

    Of experts, tensor ranks gather the copies of tokens that came to them, k of each token, so that each of them
    multiplies all of these by its part: Megatron-LM's MoEAlltoAllTokenDispatcher, dispatch_postprocess(), in
    megatron/core/transformer/moe/token_dispatcher.py at d98e8a6. Where experts are whole, they gather none.
    """
    row, copies = width * tokens * shape.d_model, shape.active_experts if shape.experts > 1 else 0
    pairs = 2 * width * tokens * max(1, shape.kv_heads // layout.tensor) * shape.head_dim
    gathered = (0 if layout.whole_experts else copies) if copies else 1
    return sent_by_parts(layout, row, row * gathered, pairs, row * copies, checkpointing)


def sent_by_parts(
    layout: Layout,
    mixer: float,
    mlp: float,
    pairs: float,
    routed: float,
    checkpointing: str,
    scattered: float | None = None,
) -> dict[str, float]:
    """The same from bytes of a rank's tokens: what the mixer gathers before it (and scatters behind it, if that is not
    as much), what the MLP gathers and scatters, keys and values, and the copies of tokens that go to experts.
    """
    t, c, e, again = layout.tensor, layout.context, layout.expert, checkpointing == "full"
    # forward and backward each gather and scatter; what is computed again stops before its last reduce-scatter
    more = 1 if layout.habits.regathers and layout.sequence else 0
    half = (mixer + (mixer if scattered is None else scattered)) / 2
    repeated = half + mlp * (1 if layout.habits.recomputes_whole_layers else 0.5) if again else 0
    rounds = (half + mlp) * 2 + repeated + more * (mixer + mlp) / 2
    found = {"tensor": rounds * ring_bytes(1.0, t, "allreduce") if t > 1 else 0.0}
    found["context"] = (3 + again) * ring_bytes(pairs * c, c, "allgather") if c > 1 else 0.0
    own = routed / t if layout.sequence else routed
    found["expert"] = 2 * (2 + again) * own * (e - 1) / e
    return found


def sent(
    shape: Model,
    layout: Layout,
    rank: int,
    seq_len: int,
    batch: int = 1,
    checkpointing: str = "none",
    width: int = 2,
    reduced_itemsize: int = 4,
    adapters: AdapterTraffic | None = None,
) -> Sent:
    """Of one step of a pipeline rank in the middle of its data.

    tensor: a layer all-reduces its tokens' features after attention and after the MLP, and their gradients before each;
    sequence parallelism cuts each all-reduce into a reduce-scatter and an all-gather of as many bytes. Full
    checkpointing repeats the forward pass's, but for the last; experts' copies of tokens count k times. context: keys
    and values go around, and in the backward pass once more with their gradients. pipeline: a stage's result, and its
    gradient. expert: tokens go to their experts and back, forward and backward. data: gradients are reduced and weights
    gathered, as ZeRO's stage has it; of `adapters` beside frozen weights, theirs alone. What tensor ranks send of the
    few features between an adapter's two matrices is left out.
    """
    t, m = layout.tensor, layout.micro_batches
    features = width * (batch * seq_len // layout.context) * shape.d_model
    within = sent_within_layers(shape, layout, rank, seq_len, batch, checkpointing, width)
    # each stage sends a result on and a gradient back, but for the first stage of all, and the last
    crossings = 2 * layout.virtual - (rank in (0, layout.pipeline - 1))
    part = features // t if layout.sequence else features
    in_pipeline = m * crossings * part if layout.pipeline > 1 else 0.0

    in_data = data_sent(shape, layout, rank, width, reduced_itemsize, adapters)
    return Sent(within["tensor"], within["context"], in_pipeline, within["expert"], sum(in_data[:2]), in_data.copies)


def sent_within_layers(
    shape: Model, layout: Layout, rank: int, seq_len: int, batch: int, checkpointing: str, width: int = 2
) -> dict[str, float]:
    """Bytes that tensor, context and expert parallelism send in all layers of a pipeline rank, in a step."""
    tokens = batch * seq_len // layout.context
    found = dict.fromkeys(("tensor", "context", "expert"), 0.0)
    for kind, number in rank_kinds(shape, layout, rank).items():
        each = layer_sent_bytes(kind, layout, tokens, checkpointing, width)
        found = {name: size + layout.micro_batches * number * each[name] for name, size in found.items()}
    return found


class AdapterTraffic(NamedTuple):
    """What ZeRO sends of adapters and of the frozen weights beside them."""

    numbers: Sequence[int]  # of each pipeline rank, before ZeRO shards them
    gathered_itemsize: float  # bytes of a frozen parameter that is gathered


class DataSent(NamedTuple):
    """Bytes that ZeRO sends."""

    reduced: float  # of gradients
    gathered: float  # of weights
    copies: float  # of gradients between replicas


def data_sent(
    shape: Model,
    layout: Layout,
    rank: int,
    width: int = 2,
    reduced_itemsize: int = 4,
    adapters: AdapterTraffic | None = None,
) -> DataSent:
    """What ZeRO sends in a step of a pipeline rank. Stages 0 and 1 send once a step, 2 and 3 once a micro-batch.
    Hybrid sharding reduces a rank's shard between replicas, as often. Adapters' numbers are in float32."""
    held, groups = rank_parameters(shape, layout, rank), {"dense": layout.shards, "experts": layout.expert_shards}
    times = layout.micro_batches if layout.zero > 1 else 1
    gathers = 2 * times if layout.zero == 3 else 1
    gathered_itemsize: float = width
    trained = gathered = held
    if adapters:
        trained, reduced_itemsize, gathered_itemsize = {"dense": adapters.numbers[rank]}, 4, adapters.gathered_itemsize
    if adapters and layout.zero < 3:
        gathered, gathered_itemsize = trained, 4
    reduced = copies = of_weights = 0.0
    for part, numbers in trained.items():
        gradient_bytes = times * reduced_itemsize * numbers
        reduced += ring_bytes(gradient_bytes, groups[part], "reduce_scatter" if layout.zero else "allreduce")
        copies += ring_bytes(gradient_bytes / groups[part], layout.replicas, "allreduce")
    for part, numbers in gathered.items():
        of_weights += ring_bytes(gathers * gathered_itemsize * numbers, groups[part], "allgather") if layout.zero else 0
    return DataSent(reduced, of_weights, copies)


def once_a_step(layout: Layout) -> Layout:
    """The layout by how often ZeRO sends: of stage 3 a pipeline gathers and reduces once a step, as stage 1 does.

    Its stages keep what they gathered until the step ends: torchtitan's `reshard_after_forward=False`, in
    torchtitan/parallelisms/parallelize_llama.py at 9dec370, and Llama 3 (section 3.3.2).
    """
    return layout._replace(zero=1) if layout.zero == 3 and layout.pipeline > 1 else layout


def group_rate(inner: int, ranks: int, within: float, between: float, node_gpus: int = 8) -> float:
    """Bytes a second that a GPU sends to its group: of so many ranks, each `inner` ranks from the next.

    Inside a node all go over `within`. Else a node has several of the group, each with a network card, and so many
    rings cross it beside each other.
    """
    if inner * ranks <= node_gpus:
        return within
    beside = max(1, node_gpus // inner)
    return min(within, between * beside)


def neighbour_rate(inner: int, ranks: int, within: float, between: float, node_gpus: int = 8) -> float:
    """The same of what goes to the group's next rank alone: over nodes, what the GPU's own network card sends."""
    return within if inner * ranks <= node_gpus else min(within, between)


def scatter_rate(inner: int, ranks: int, within: float, between: float, node_gpus: int = 8) -> float:
    """The same of an all-to-all, where each rank gets other bytes: what leaves a node goes by the GPU's own card.

    One rank, though it stand alone in its node, sends nothing.
    """
    if ranks == 1 or inner * ranks <= node_gpus:
        return within
    away = (ranks - max(1, node_gpus // inner)) / (ranks - 1)
    return min(within, between / away)


def rates(
    layout: Layout, within: float, between: float, node_gpus: int = 8, between_tensor: float | None = None
) -> Sent:
    """The rate of each group, tensor innermost, then context, data and pipeline. Of tensor ranks in several nodes it
    can be another than of all: a collective over more nodes can be slower."""
    t, c, d, p = layout.tensor, layout.context, layout.data, layout.pipeline
    return Sent(
        tensor=group_rate(1, t, within, between_tensor or between, node_gpus),
        context=(neighbour_rate if layout.ring else group_rate)(t, c, within, between, node_gpus),
        pipeline=neighbour_rate(t * c * d, p, within, between, node_gpus),
        expert=scatter_rate(layout.expert_tensor, layout.expert, within, between, node_gpus),
        data=group_rate(t, layout.shards, within, between, node_gpus),
        replicas=group_rate(t * layout.shards, layout.replicas, within, between, node_gpus),
    )


class Flops(NamedTuple):
    """Of a pipeline rank and micro-batch, of all its tensor and context ranks together."""

    total: float  # Forward, backward and recomputation.
    backward: float  # The backward part, with recomputation.
    attention: float  # Attention's scores and values, in all passes.
    of_weights: float  # Of the backward part, gradients of weights.

    def with_adapters(self, tokens: int, numbers: int, repeats: bool) -> Flops:
        """The same where weights are frozen, beside which so many numbers of adapters multiply, forward and backward;
        what is computed again repeats theirs."""
        forward = 2 * tokens * numbers
        behind = self.backward - self.of_weights + (2 + repeats) * forward
        return Flops(self.total - self.backward + forward + behind, behind, self.attention, forward)

    def share(self, part: float) -> float:
        """Of all passes; of a rank that has the embedding alone, and computes nothing, none."""
        return part / self.total if self.total else 0.0


@singledispatch
def rank_flops(
    shape: Model, layout: Layout, rank: int, seq_len: int, batch: int, causal: bool, checkpointing: str
) -> Flops:
    """FLOPs of the layers of a pipeline rank, and on the last one of the head."""
    forward = forward_flops(shape, seq_len, batch, causal)
    back = backward_flops(shape, seq_len, batch, causal)
    again = recompute_flops(
        shape, seq_len, batch, causal, checkpointing, early_stop=not layout.habits.recomputes_whole_layers
    )
    share = sum(rank_layers(shape, layout, rank)) / shape.layers
    ends = rank == layout.pipeline - 1
    first, *behind = (share * (sum(of.values()) - of["head"]) + ends * of["head"] for of in (forward, back, again))
    scores = sum(each[part] for each in (forward, back, again) for part in ATTENTION)
    weights = first - share * sum(forward[part] for part in ATTENTION)
    return Flops(first + sum(behind), sum(behind), share * scores, weights)


@singledispatch
def totals(shape: Model) -> tuple[int, int]:
    """Parameters of the whole model, and those that a token passes through."""
    return sum(parameters(shape).values()), sum(parameters(shape, active=True).values())


@singledispatch
def model_flops(shape: Model, seq_len: int, causal: bool) -> float:
    """FLOPs of training on one sequence, nothing computed again, as an MFU counts them."""
    forward = sum(forward_flops(shape, seq_len, 1, causal).values())
    return forward + sum(backward_flops(shape, seq_len, 1, causal, fused=False).values())


@singledispatch
def left_out(shape: Model) -> list[str]:
    """What a kind of model has that its layouts are planned without."""
    return []


def step_seconds(
    shape: Model,
    layout: Layout,
    seq_len: int,
    flop_per_second: float,
    rate: Sent,
    batch: int = 1,
    checkpointing: str = "none",
    itemsize: int = 2,
    attention_flop_per_second: float | None = None,
    computed: Callable[[int], Mapping[str, float]] | None = None,
    hides_tensor: bool = False,
    adapters: AdapterTraffic | None = None,
) -> dict[str, float]:
    """Seconds of a step by line, at the FLOP/s that a GPU's matmuls reach; latency and all that is no matmul left out.
    Numbers that are sent have `itemsize` bytes, but for gradients, which data_sent() says. Attention runs at the same
    rate if it has none of its own. `computed` gives a pipeline rank's own seconds instead, by line, and an "update"
    after all passes.

    The fullest pipeline rank sets the pace. What tensor, context and expert parallelism send stands between matmuls
    that need it, so nothing hides it here, but for `hides_tensor`, and a ring's turns, which attention hides. Sharding
    the data hides behind matmuls as overlap() has it, the micro-batches of a pipeline as those of accumulation.
    """
    found: dict[str, float] = {}
    slower = flop_per_second / (attention_flop_per_second or flop_per_second) - 1
    for rank in distinct_ranks(shape, layout):
        flops = rank_flops(shape, layout, rank, seq_len, batch, True, checkpointing)
        if adapters:
            numbers = layout.tensor * adapters.numbers[rank]
            flops = flops.with_adapters(batch * seq_len, numbers, checkpointing == "full")
        work = layout.micro_batches * (flops.total + slower * flops.attention)
        at_one_rate = {"matmuls": work / (layout.tensor * layout.context) / flop_per_second}
        own = dict(computed(rank)) if computed else at_one_rate
        update = {line: own.pop(line) for line in ("update",) if line in own}
        within = sent_within_layers(shape, layout, rank, seq_len, batch, checkpointing, itemsize)
        between = {name: size / getattr(rate, name) for name, size in within.items()}
        if layout.ring:
            scores = own.get("attention", flops.share(flops.attention) * own["matmuls"])
            between["context"] = max(0.0, between["context"] - scores)
        if hides_tensor:
            between["tensor"] = exposed_seconds(between["tensor"], own["matmuls"], layout.tensor)
        passes = sum(own.values())
        idle = (passes + sum(between.values())) * bubble(layout) / (1 - bubble(layout))
        in_data = data_sent(shape, layout, rank, itemsize, adapters=adapters)
        reduced = in_data.reduced / rate.data + in_data.copies / (rate.replicas or rate.data)
        hidden = passes, layout.zero, layout.micro_batches, flops.share(flops.backward)
        data = waiting_seconds(overlap(reduced, in_data.gathered / rate.data, *hidden))
        lines = own | between | {"bubble": idle, "data": data} | update
        found = max(found, lines, key=lambda of: sum(of.values()))
    return found


def exposed_seconds(sending: float, matmuls: float, ranks: int) -> float:
    """Exposed seconds of tensor parallelism's communication if it is cut into a piece a rank, sent during the others.

    The last piece has nothing left to hide behind, and what takes longer than the matmuls shows too: PyTorch's
    `_pipelined_all_gather_and_consume` and `_pipelined_produce_and_all2all` (torch/distributed/_symmetric_memory), and
    Megatron-LM's `--tp-comm-overlap`.
    """
    return max(sending / ranks, sending - matmuls)


def powers_of_two(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]


def possible_layouts(
    shape: Model, gpus: int, seq_len: int, sequences: int, node_gpus: int = 8, fixed: Mapping[str, int] | None = None
) -> Iterator[Layout]:
    """Layouts of a step of so many sequences on so many GPUs, one sequence a micro-batch: powers of 2, or as `fixed`.

    Tensor parallelism stays inside a node. ZeRO is of stage 1, which gathers weights once a step, or of 3; in a
    pipeline, whose weights stay gathered, of 2 too.
    """

    def tried(name: str, sizes: list[int]) -> list[int]:
        return [fixed[name]] if fixed and name in fixed else sizes

    for tensor in tried("tensor", powers_of_two(min(node_gpus, shape.heads))):
        for context in tried("context", powers_of_two(max(1, seq_len // 4096))):
            for pipeline in tried("pipeline", powers_of_two(shape.layers)):
                data, left = divmod(gpus, tensor * context * pipeline)
                if left or not data or sequences % data:
                    continue
                for zero in tried("zero", [1, 2, 3] if pipeline > 1 else [1, 3]):
                    found = Layout(data, tensor, True, context, pipeline, 1, zero, micro_batches=sequences // data)
                    try:
                        refuse(shape, found, seq_len)
                    except ValueError:
                        continue
                    yield found
