"""What a rank of a layout holds: its step through flops_bytes.parallel.rank_steps, of its share of the model.

`rank_run` says what the rank does, for whoever sends it through an allocator. `held_bytes` is the most that it holds,
from stages of a layer or two of each kind: of layers alike each adds as much. Python alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from flops_bytes.memory.adapters import CONSTANTS, quantized_bytes
from flops_bytes.memory.first_steps import Run, Sharding, Steps, moment_of_part
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.layers import FAMILIES, Adapters, ModelFamily, Ranks
from flops_bytes.memory.step import StepConfig, family_of
from flops_bytes.memory.tape import INT64
from flops_bytes.model.stack import (
    Attention,
    Experts,
    LatentAttention,
    Layer,
    Mixer,
    Stack,
    four_bit_parameters,
    matrices,
    stack_of,
)
from flops_bytes.parallel.layouts import (
    AdapterTraffic,
    Layout,
    Model,
    in_flight,
    rank_kinds,
    rank_parameters,
    stage_indices,
    state_bytes,
    warm_up,
)
from flops_bytes.parallel.rank_steps import (
    Modules,
    RankRun,
    Stage,
    Turn,
    asked_pass,
    rank_steps,
    record_stage,
    stage_numbers,
    turns,
)
from flops_bytes.parallel.sharding import gathered_itemsize
from flops_bytes.parallel.stacks import Split, in_order
from flops_bytes.parallel.trainers import modules_of


class RankStep(NamedTuple):
    """The options of a step that a rank's bytes depend on, beside its layout."""

    seq_len: int
    batch: int = 1
    recipe: str = "bf16_master"
    checkpointing: str = "none"
    loss: str = "plain"
    workspace_bytes: int = 0
    chunks: int = 1  # of head and loss
    adapters: Adapters | None = None  # which alone are trained then, in float32
    base: str = "as-recipe"  # what the weights beside them are frozen in


def shared_layer(layer: Layer, layout: Layout) -> Layer:
    """What a tensor and expert rank has of a layer."""
    t, mlp = layout.tensor, layer.mlp
    mixer: Mixer = layer.mixer.with_shared_heads(t)
    if isinstance(mixer, Attention):
        mixer = replace(mixer, heads=mixer.heads // t, kv_heads=mixer.kv_heads // t)
    elif isinstance(mixer, LatentAttention):
        mixer = replace(mixer, heads=mixer.heads // t)
    if isinstance(mlp, Experts):
        shared = mlp.shared_d_ff // t
        return replace(
            layer,
            mixer=mixer,
            mlp=replace(
                mlp, experts=mlp.experts // layout.expert, d_ff=mlp.d_ff // layout.expert_tensor, shared_d_ff=shared
            ),
        )
    return replace(layer, mixer=mixer, mlp=replace(mlp, d_ff=mlp.d_ff // t))


def whole_stack(shape: Model) -> Stack:
    return shape.stack if isinstance(shape, Split) else stack_of(shape)


def family_of_shape(shape: Model) -> ModelFamily:
    return FAMILIES[shape.kind] if isinstance(shape, Split) else family_of(stack_of(shape), composed=False)


@lru_cache(maxsize=256)
def rank_stages(shape: Model, layout: Layout, rank: int) -> tuple[Stage, ...]:
    """The stages of a pipeline rank; each has what a tensor rank has of its layers."""
    stack, number = whole_stack(shape), layout.pipeline * layout.virtual
    order, indices = in_order(stack), stage_indices(shape, layout)
    vocab, found = ceil(stack.vocab / layout.tensor), []
    for place in range(rank, number, layout.pipeline):
        layers = tuple((shared_layer(order[index], layout), 1) for index in indices[place])
        found.append(Stage(replace(stack, layers=layers, vocab=vocab), place == 0, place == number - 1))
    return tuple(found)


MORE_TURNS = 2  # of a schedule, so many micro-batches beyond those in flight do as all do


def ranks_of_layout(layout: Layout) -> Ranks:
    """What the layers of a rank know of the others."""
    return Ranks(layout.tensor, layout.sequence, layout.context, layout.ring, layout.expert, layout.whole_experts)


def sums_gathered(layout: Layout) -> bool:
    """Whether a pipeline's stages keep the weights that they gathered until a step ends, and add gradients up whole, in
    float32."""
    return layout.zero == 3 and layout.shards > 1 and layout.pipeline > 1


def config_of(layout: Layout, step: RankStep) -> StepConfig:
    """The options of a micro-batch's passes on a rank."""
    gathers = layout.zero == 3 and layout.shards > 1
    of_tape = "bf16_master" if gathers and step.recipe[:8] == "autocast" else step.recipe
    if (layout.habits.sums_in_float32 or sums_gathered(layout)) and of_tape == "bf16_master":
        of_tape = "bf16"  # Sums in float32 are not cast.
    tokens = step.seq_len // layout.context
    return StepConfig(
        tokens,
        step.batch,
        of_tape,
        checkpointing=step.checkpointing,
        adapters=step.adapters,
        loss="plain" if step.loss == "chunked" else step.loss,
        chunks=min(step.chunks, step.batch * tokens),
        ranks=ranks_of_layout(layout),
    )


def trained_numbers(shape: Model, layout: Layout, rank: int, step: RankStep) -> int:
    """Parameters of a pipeline rank that are trained, before ZeRO shards them: all, or those of adapters."""
    if step.adapters is None:
        return sum(rank_parameters(shape, layout, rank).values())
    modules, config = modules_of(layout.trainer, family_of_shape(shape), step.loss), config_of(layout, step)
    layers = Counter(
        (stage.stack, layer) for stage in rank_stages(shape, layout, rank) for layer, _ in stage.stack.layers
    )
    return sum(
        times * sum(stage_numbers(Stage(replace(stack, layers=((layer, 1),)), False, False), modules, config).values())
        for (stack, layer), times in layers.items()
    )


def adapters_of(shape: Model, layout: Layout, step: RankStep) -> AdapterTraffic | None:
    """What of a layout's ranks is trained beside frozen weights, if so."""
    if step.adapters is None:
        return None
    alike = layout._replace(
        data=1, context=1, zero=0, schedule="1f1b", micro_batches=layout.pipeline, replicas=1, ring=False
    )
    numbers = numbers_of_ranks(shape, alike, RankStep(layout.tensor, recipe=step.recipe, adapters=step.adapters))
    return AdapterTraffic(numbers, gathered_itemsize(step.recipe, step.base))


@lru_cache(maxsize=1024)  # asked for each layout of a list with these degrees
def numbers_of_ranks(shape: Model, layout: Layout, step: RankStep) -> tuple[int, ...]:
    return tuple(trained_numbers(shape, layout, rank, step) for rank in range(layout.pipeline))


def frozen_bytes_of(stages: Iterable[Stage], numbers: int, shards: int, step: RankStep) -> int:
    """Of so many frozen numbers, of which a rank has a part in so many; constants of 4 bits stay whole, as
    bitsandbytes' do."""
    packed = sum(four_bit_parameters(stage.stack) for stage in stages) if step.base in CONSTANTS else 0
    constants = quantized_bytes(packed, 0, 64, CONSTANTS.get(step.base, 0))
    return -(-(RECIPES[step.recipe].weights * (numbers - packed) + packed // 2) // shards) + constants


def state_lines(shape: Model, layout: Layout, rank: int, step: RankStep) -> dict[str, int]:
    """Bytes that are there all the time, by line."""
    in_float32 = step.adapters and not layout.habits.sums_in_float32
    recipe, held = RECIPES["fp32" if in_float32 else step.recipe], rank_parameters(shape, layout, rank)
    trained = {"dense": trained_numbers(shape, layout, rank, step), "experts": 0} if step.adapters else held
    gradients = 4 if layout.habits.sums_in_float32 else recipe.gradients
    state = state_bytes(trained, layout, recipe.weights, gradients, recipe.master + recipe.optimizer)
    optimizer = state["state"] * recipe.optimizer // max(1, recipe.master + recipe.optimizer)
    lines = {"weights": state["weights"], "master": state["state"] - optimizer, "optimizer": optimizer}
    if step.adapters:
        shards = layout.shards if layout.zero == 3 else 1
        frozen = frozen_bytes_of(rank_stages(shape, layout, rank), sum(held.values()), shards, step)
        lines |= {"adapters": state["weights"], "weights": frozen}
    if layout.habits.sums_in_float32:
        lines["gradients"] = state["gradients"]
    return lines


def rank_run(shape: Model, layout: Layout, rank: int, step: RankStep) -> RankRun:
    """What a rank of a pipeline does in a step; all ranks of its other groups do the same."""
    stages, habits, config = rank_stages(shape, layout, rank), layout.habits, config_of(layout, step)
    recipe, in_pipeline = RECIPES[step.recipe], layout.pipeline > 1
    adds = habits.sums_in_float32 or (sums_gathered(layout) and not step.adapters)
    numbers = sum(rank_parameters(shape, layout, rank).values())
    itemsize = 4 if step.recipe == "fp32" else 2
    sharding = Sharding(
        layout.shards,
        gathers=layout.zero == 3 and layout.shards > 1 and not in_pipeline,
        reduces=layout.zero > 1 and layout.shards > 1 and not in_pipeline and not habits.sums_in_float32,
        gathered_layer_itemsize=gathered_itemsize(step.recipe, step.base),
        itemsize=itemsize,
        share_itemsize=RECIPES["fp32"].gradients if step.adapters else recipe.gradients,
    )
    own = step.batch * config.seq_len * stages[0].stack.d_model * config.number_bytes
    part = own // layout.tensor if layout.sequence else own
    passes = layout.micro_batches * layout.virtual
    buffers = kept_by_trainer(layout, own, numbers, itemsize)
    if layout.trainer == "megatron-lm" and not step.adapters:
        buffers["empty gradients"] = itemsize * numbers_of_shapes(stages)
    if in_pipeline and habits.keeps_boundaries:
        buffers["boundaries"] = part * passes * ((rank > 0) + (rank < layout.pipeline - 1))
    if sums_gathered(layout):
        buffers["gathered"] = frozen_bytes_of(stages, numbers, 1, step) if step.adapters else itemsize * numbers
        buffers["gradients"] = 0 if step.adapters else 4 * numbers
    waits = warm_up(layout, rank)
    fewest = -(-(waits + 1 + MORE_TURNS) // layout.virtual)
    each = layout.pipeline if layout.virtual > 1 else 1
    micro_batches = min(layout.micro_batches, -(-fewest // each) * each)
    run = Run(
        stages[0].stack,
        family_of_shape(shape),
        config,
        state_lines(shape, layout, rank, step),
        0,
        base=step.base,
        sharding=sharding,
        workspace_bytes=step.workspace_bytes,
    )
    return RankRun(
        run,
        modules_of(layout.trainer, family_of_shape(shape), step.loss),
        stages,
        tuple(turns(waits, micro_batches, layout.pipeline, layout.virtual)),
        buffers,
        gathered_by_update(layout, numbers, recipe.weights),
        buffered=in_pipeline and habits.keeps_boundaries,
        keeps_result=habits.keeps_boundaries,
        adds=adds,
    )


def numbers_of_shapes(stages: Iterable[Stage]) -> int:
    """Of all matrices of the layers, those of one shape once: Transformer Engine gives autograd an empty gradient of
    each (get_dummy_wgrad)."""
    shapes = {
        (
            matrix.inputs,
            (1 + (matrix.part in ("mlp", "experts") and matrix.inputs == stage.stack.d_model)) * matrix.outputs,
        )
        for stage in stages
        for layer, _ in stage.stack.layers
        for matrix in matrices(stage.stack, layer)
        if matrix.part != "router"
    }
    return sum(inputs * outputs for inputs, outputs in shapes)


def kept_by_trainer(layout: Layout, own: int, numbers: int, width: int) -> dict[str, int]:
    """Buffers that a trainer has for good, once it has made them. nanotron: two that it gathers into, of tokens and of
    their gradients (MemoryBuffer), and without ZeRO the buckets of PyTorch's DDP. Megatron-LM: one that the head's
    product gathers into (GlobalMemoryBuffer)."""
    found: dict[str, int] = {}
    if layout.trainer == "nanotron":
        found = {"gathered tokens": own, "gathered gradients": own} if layout.tensor > 1 else {}
        if layout.data > 1 and layout.zero == 0:
            found["reduced"] = width * numbers
    if layout.trainer == "megatron-lm" and layout.tensor > 1:
        found["gathered tokens"] = own
    return found


MOST_PIECES = 1024  # in which a buffer is gone through: of more ranks, several ranks' parts are one


def gathered_by_update(layout: Layout, numbers: int, width: int) -> list[tuple[str, int]]:
    """What the update gathers new weights into. nanotron: a buffer for each rank's part, one for its own, and NCCL's
    for all (all_gather_coalesced() in src/nanotron/distributed.py, and ProcessGroupNCCL's allgather of a list). Others
    gather into the weights themselves."""
    if layout.trainer != "nanotron" or layout.zero == 0 or layout.shards == 1:
        return []
    pieces = min(layout.shards, MOST_PIECES)
    share = -(-width * numbers // pieces)
    return [("gathered", share)] * (pieces + 1) + [("gathered", width * numbers)]


def steps_of_rank(shape: Model, layout: Layout, rank: int, step: RankStep, lags: bool = False) -> Steps:
    return rank_steps(rank_run(shape, layout, rank, step), lags)


def layer_activation_bytes(
    shape: Model, layout: Layout, seq_len: int, batch: int = 1, checkpointing: str = "none", recipe: str = "bf16_master"
) -> int:
    """Bytes that a layer keeps on a rank of one micro-batch, of a model whose layers are all alike: what a second one
    keeps beside the first."""
    alone = layout._replace(
        data=1, pipeline=1, micro_batches=1, virtual=1, schedule="1f1b", zero=0, stages="", replicas=1
    )
    (stage,) = rank_stages(shape, alone._replace(expert=1), 0)
    layer = shared_layer(stage.stack.layers[0][0], layout._replace(tensor=1))
    told = rank_run(shape, alone, 0, RankStep(seq_len, batch, recipe, checkpointing))
    one, two = (
        outlines(2, *asked_pass(told, Stage(replace(stage.stack, layers=((layer, 1),) * n), False, False), True))[0]
        for n in (1, 2)
    )
    return two.left - one.left


def rank_activation_bytes(shape: Model, layout: Layout, rank: int, seq_len: int) -> int:
    """Bytes that all layers of a pipeline rank keep when most of its micro-batches are in flight."""
    kept = 0
    for kind, number in rank_kinds(shape, layout, rank).items():
        each = layer_activation_bytes(kind, layout, seq_len)
        kept += ceil(in_flight(layout, rank) * number / layout.virtual) * each
    return kept


def of_layers(moment: str) -> str:
    """One name for all layers between the last and the first."""
    return "layer" if moment[:6] == "layer " else moment


class Outline(NamedTuple):
    """Of a pass in one direction."""

    peaks: dict[str, int]  # the most that it adds, at each moment
    left: int  # what it leaves, or negative what it frees
    gradients: int  # of what it leaves


@lru_cache(maxsize=1024)
def outlines(
    depth: int, stage: Stage, modules: Modules, config: StepConfig, buffered: bool, keeps_result: bool
) -> tuple[Outline, Outline]:
    """Of a stage's pass forward, and backward beside what the forward pass left. Moments are those of so many
    layers."""
    found = record_stage(stage, modules, config, buffered, keeps_result)
    of_weights = set(found.gradients.values())
    both = [Outline({}, 0, 0), Outline({}, 0, 0)]
    ends = [*[part.start for part in found.parts[1:]], len(found.changes)]
    for part, end in zip(found.parts, ends, strict=True):
        peaks, live, gradients = both[part.is_backward]
        moment = of_layers(moment_of_part(part, depth))
        peaks[moment] = max(peaks.get(moment, live), live)
        for storage, nbytes in found.changes[part.start : end]:
            live += nbytes
            gradients += nbytes * (storage in of_weights)
            if live > peaks[moment]:
                peaks[moment] = live
        both[part.is_backward] = Outline(peaks, live, gradients)
    return both[0], both[1]


def peaks_of_turns(told: RankRun) -> dict[str, int]:
    """The most at each moment of a step, beside what is there for good, of a rank that gathers and reduces nothing on
    the way: its passes add up, and are gone through once for all micro-batches."""
    config, live, peaks = told.run.config, 0, dict[str, int]()
    batch_bytes, depth = 2 * INT64 * config.batch * config.seq_len, max(1, told.stages[0].stack.depth)
    known: dict[tuple[int, bool], tuple[Outline, Outline]] = {}
    waiting: dict[tuple[int, int], Outline] = {}
    began: set[int] = set()
    for turn in told.order:
        if turn.is_backward:
            outline = waiting.pop((turn.micro_batch, turn.stage))
        else:
            is_first = turn.stage not in began
            began.add(turn.stage)
            if (turn.stage, is_first) not in known:
                known[turn.stage, is_first] = outlines(depth, *asked_pass(told, told.stages[turn.stage], is_first))
            outline, waiting[turn.micro_batch, turn.stage] = known[turn.stage, is_first]
            live += batch_bytes
        for moment, most in outline.peaks.items():
            peaks[moment] = max(peaks.get(moment, 0), live + most)
        live += outline.left - turn.is_backward * (batch_bytes + told.adds * outline.gradients)
    peaks["update"] = live
    recipe = RECIPES["fp32" if config.adapters else config.recipe]
    if recipe.master and not told.adds:
        for stage in told.stages:
            for name, numbers in stage_numbers(stage, told.modules, config).items():
                live += recipe.master * numbers
                # The ends are cast before or after the layers, which grow otherwise than they do.
                moment = f"update of {'layers' if name[:6] == 'layer ' else name}"
                peaks[moment] = max(peaks.get(moment, 0), live)
                live -= recipe.gradients * numbers
    return peaks


@lru_cache(maxsize=4096)
def peaks_of_stages(
    stages: tuple[Stage, ...],
    modules: Modules,
    config: StepConfig,
    family: ModelFamily,
    sharding: Sharding,
    order: tuple[Turn, ...],
    habits: tuple[bool, bool, bool],
) -> dict[str, int]:
    """The peaks of a rank's step by moment, beside its state, cached for all ranks whose stages are alike."""
    has_master = RECIPES["fp32" if config.adapters else config.recipe].master > 0
    run = Run(stages[0].stack, family, config, {"master": int(has_master)}, 0, sharding=sharding)
    told = RankRun(run, modules, stages, order, {}, [], *habits)
    if not (sharding.gathers or sharding.reduces):
        return peaks_of_turns(told)
    found: dict[str, int] = {}
    for moment, size in rank_steps(told, times=1).peaks.items():
        found[of_layers(moment)] = max(found.get(of_layers(moment), 0), size)
    return found


def peaks_of(told: RankRun, stages: tuple[Stage, ...]) -> dict[str, int]:
    run, habits = told.run, (told.buffered, told.keeps_result, told.adds)
    return peaks_of_stages(stages, told.modules, run.config, run.family, run.sharding, told.order, habits)


FEW_LAYERS = 3  # layers: the last, the first, and one between, around which others are gathered


def held_bytes(shape: Model, layout: Layout, rank: int, step: RankStep) -> int:
    """The most that a rank holds. Stages of few layers of each kind are gone through, and of one more, which says what
    each more adds: of kinds of which as many are left, all together."""
    told = rank_run(shape, layout, rank, step)
    left = {
        (place, kind): times - FEW_LAYERS
        for place, stage in enumerate(told.stages)
        for kind, times in Counter(layer for layer, _ in stage.stack.layers).items()
    }

    def peaks(more: Collection[tuple[int, Layer]]) -> dict[str, int]:
        few = []
        for place, stage in enumerate(told.stages):
            kinds = Counter(layer for layer, _ in stage.stack.layers)
            layers = [kind for kind in kinds for _ in range(min(kinds[kind], FEW_LAYERS) + ((place, kind) in more))]
            few.append(stage._replace(stack=replace(stage.stack, layers=tuple((layer, 1) for layer in layers))))
        return peaks_of(told, tuple(few))

    least = peaks(())
    most, done = dict(least), 0
    for level in sorted({times for times in left.values() if times > 0}):
        with_more = peaks([key for key, times in left.items() if times >= level])
        most = {at: size + (level - done) * (with_more[at] - least[at]) for at, size in most.items()}
        done = level
    beside_update = sum(nbytes for _, nbytes in told.update_buffers)
    most = {at: size + beside_update * (at[:6] == "update") for at, size in most.items()}
    return max(most.values()) + sum(told.run.state.values()) + sum(told.buffers.values()) + 2 * step.workspace_bytes
