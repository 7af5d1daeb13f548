"""What tensor, context, pipeline and expert parallelism cost models whose layers differ: experts, latents, windows.

The layers are those of flops_bytes.model.stack, what they keep is what flops_bytes.memory.step derives, which is of
transformers' modules. How they are split is Megatron-LM's way, at 003b4ce:
- Latent attention (core/transformer/multi_latent_attention.py): matrices that make latents are whole on each tensor
  rank and take its own tokens; latents are gathered, and what expands them is cut by heads.
- Experts (core/transformer/moe): tensor ranks cut each expert's matrices, or hold different experts, whole; expert
  ranks hold different experts.
Not counted: layers that predict further tokens, float8, passes of two directions that hide what experts send
(DeepSeek-V3, arXiv 2412.19437, sections 2.2, 3.2.1 and 3.3), and experts that get more tokens than others.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, gcd
from typing import Any

from flops_bytes.model.stack import (
    Attention,
    Experts,
    LatentAttention,
    Layer,
    Stack,
    backward_flops,
    forward_flops,
    matrices,
    mtp_parameters,
    parameters,
)
from flops_bytes.parallel import layouts as parallel
from flops_bytes.parallel.layouts import Flops, Layout


@dataclass(frozen=True)
class Split:
    """A stack, of a kind of flops_bytes.memory.layers, as what is split; or one of its layers."""

    stack: Stack
    kind: str

    @property
    def layers(self) -> int:
        return self.stack.depth

    @property
    def d_model(self) -> int:
        return self.stack.d_model

    @property
    def vocab(self) -> int:
        return self.stack.vocab

    @property
    def tied(self) -> bool:
        return self.stack.tied

    @property
    def heads(self) -> int:
        """That tensor ranks can share in all layers."""
        return gcd(*(mixer.heads for mixer in self.mixers()))

    @property
    def kv_heads(self) -> int:
        """The same; latents are expanded to all heads."""
        return gcd(*(mixer.kv_heads if isinstance(mixer, Attention) else mixer.heads for mixer in self.mixers()))

    @property
    def d_ff(self) -> int:
        """Of inner features, what tensor ranks can share in all MLPs."""
        return gcd(*(width for layer, _ in self.stack.layers for width in widths(layer)))

    @property
    def experts(self) -> int:
        """That expert ranks can share in all layers that have some."""
        return gcd(*(layer.mlp.experts for layer, _ in self.stack.layers if isinstance(layer.mlp, Experts))) or 1

    def mixers(self) -> Iterator[Attention | LatentAttention]:
        for mixer, _ in self.stack.mixers():
            assert isinstance(mixer, Attention | LatentAttention)  # of others no step is derived
            yield mixer

    def one(self) -> Layer:
        (layer, _), *_ = self.stack.layers
        return layer


def widths(layer: Layer) -> tuple[int, ...]:
    mlp = layer.mlp
    return (mlp.d_ff, mlp.shared_d_ff) if isinstance(mlp, Experts) else (mlp.d_ff,)


@cache
def in_order(stack: Stack) -> list[Layer]:
    """Its layers one by one: those with another MLP come first, as in DeepSeek-V3; windows and none take turns."""
    each = [(turn, layer, at) for turn, (layer, times) in enumerate(stack.layers) for at in range(times)]
    if len({layer.mlp for layer, _ in stack.layers}) == 1:
        times = dict(stack.layers)
        each.sort(key=lambda one: ((one[2] + 0.5) / times[one[1]], one[0]))
    return [layer for _, layer, _ in each]


@parallel.stage_kinds.register
def _(shape: Split, layout: Layout, rank: int) -> list[dict[Any, int]]:
    order = in_order(shape.stack)
    alone = {layer: replace(shape, stack=replace(shape.stack, layers=((layer, 1),))) for layer, _ in shape.stack.layers}
    found = []
    for stage in parallel.stage_indices(shape, layout)[rank :: layout.pipeline]:
        layers = Counter(order[at] for at in stage)
        found.append({alone[layer]: times for layer, times in layers.items()})
    return found


def whole_parameters(layer: Layer, d: int) -> int:
    """Of a layer, those that each tensor rank has all of: norms, the router, and what makes latents."""
    mixer, found = layer.mixer, layer.norms * d + layer.mixer.vectors()
    found += sum(matrix.parameters() for matrix in layer.mlp.matrices(d) if matrix.part == "router")
    if isinstance(mixer, LatentAttention):
        latents = (d, mixer.q_lora_rank), (d, mixer.kv_lora_rank + mixer.rope_dim)
        found += sum(matrix.parameters() for matrix in mixer.matrices(d) if (matrix.inputs, matrix.outputs) in latents)
    return found


@cache  # asked for each rank of each layout with these degrees
def layer_parameters(shape: Split, tensor: int, expert_ranks: int) -> tuple[int, int]:
    """Of its layer, what a rank has of the experts, which so many ranks share, and of all else."""
    layer = replace(shape.one(), mixer=shape.one().mixer.with_shared_heads(tensor))
    every = matrices(shape.stack, layer)
    experts = sum(matrix.parameters() for matrix in every if matrix.part == "experts")
    total = sum(matrix.parameters() for matrix in every) + layer.norms * shape.d_model + layer.mixer.vectors()
    whole = whole_parameters(layer, shape.d_model)
    return ceil(experts / expert_ranks), whole + ceil((total - experts - whole) / tensor)


@parallel.head_layers.register
def _(shape: Split) -> float:
    """Of how many layers the matrices have as many numbers as the head's."""
    counts = parameters(shape.stack)
    ends = sum(counts.get(part, 0) for part in ("embedding", "head", "positions", "norms"))
    return float(shape.vocab * shape.d_model * shape.layers / (sum(counts.values()) - ends))


@parallel.rank_parameters.register
def _(shape: Split, layout: Layout, rank: int) -> dict[str, int]:
    d, t, p = shape.d_model, layout.tensor, layout.pipeline
    held = {"experts": 0, "dense": d if rank == p - 1 else 0}  # the last norm
    for kind, times in parallel.rank_kinds(shape, layout, rank).items():
        experts, dense = layer_parameters(kind, t, layout.expert_tensor * layout.expert)
        held["experts"] += times * experts
        held["dense"] += times * dense
    vocab = ceil(shape.vocab / t) * d
    held["dense"] += vocab * ((rank == 0) + (rank == p - 1 and not (shape.tied and rank == 0)))
    return held


def gathered_features(layer: Layer, d: int, whole_experts: bool) -> tuple[int, int]:
    """Features of a token that tensor ranks gather before the mixer and before the MLP."""
    mixer, mlp = layer.mixer, layer.mlp
    before = d
    if isinstance(mixer, LatentAttention):
        before = (mixer.q_lora_rank or d) + mixer.kv_lora_rank + mixer.rope_dim
    if not isinstance(mlp, Experts):
        return before, d
    return before, (0 if whole_experts else mlp.active * d) + (d if mlp.shared_d_ff else 0)


def mixer_kv_features(mixer: object, tensor: int) -> int:
    """Of a mixer whose heads are a tensor rank's; latents are expanded to keys and values of its heads."""
    if isinstance(mixer, LatentAttention):
        return mixer.heads // tensor * (mixer.nope_dim + mixer.rope_dim + mixer.v_head_dim)
    assert isinstance(mixer, Attention)
    return 2 * mixer.kv_heads // tensor * mixer.head_dim


@parallel.layer_sent_bytes.register
def _(shape: Split, layout: Layout, tokens: int, checkpointing: str, width: int) -> dict[str, float]:
    layer, t, row = shape.one(), layout.tensor, width * tokens
    mixer, mlp = gathered_features(layer, shape.d_model, layout.whole_experts)
    own = mixer_kv_features(layer.mixer.with_shared_heads(t), t)
    routed = layer.mlp.active * shape.d_model if isinstance(layer.mlp, Experts) else 0
    return parallel.sent_by_parts(
        layout, row * mixer, row * mlp, row * own, row * routed, checkpointing, row * shape.d_model
    )


@parallel.rank_flops.register
def _(shape: Split, layout: Layout, rank: int, seq_len: int, batch: int, causal: bool, checkpointing: str) -> Flops:
    kinds = parallel.rank_kinds(shape, layout, rank)
    stack = replace(shape.stack, layers=tuple((kind.one(), times) for kind, times in kinds.items()))
    forward, back = forward_flops(stack, seq_len, batch, causal), backward_flops(stack, seq_len, batch, causal)
    again = {part: flops for part, flops in forward.items() if checkpointing == "full" and part != "head"}
    if rank != layout.pipeline - 1:
        forward, back = forward | {"head": 0}, back | {"head": 0}
    behind = sum(back.values()) + sum(again.values())
    scores, *others = (sum(of.get(part, 0) for part in ("scores", "values")) for of in (forward, back, again))
    weights = sum(forward.values()) - scores
    return Flops(sum(forward.values()) + behind, behind, scores + sum(others), weights)


@parallel.totals.register
def _(shape: Split) -> tuple[int, int]:
    total, active = (sum(parameters(shape.stack, active=only).values()) for only in (False, True))
    return total, active


@parallel.model_flops.register
def _(shape: Split, seq_len: int, causal: bool) -> float:
    return 3 * sum(forward_flops(shape.stack, seq_len, 1, causal).values())


@parallel.left_out.register
def _(shape: Split) -> list[str]:
    """What a layout's numbers are without."""
    predicting = mtp_parameters(shape.stack)
    further = f"{predicting:,} parameters of layers that predict further tokens"
    experts = any(isinstance(layer.mlp, Experts) for layer, _ in shape.stack.layers)
    return [further] * bool(predicting) + [
        "float8",
        "sending once to a machine, or hidden behind another micro-batch",
    ] * experts
