"""Does a training fit on so many GPUs, how long does it take, what does it cost? Put together from the formulas."""

# --8<-- [start:setup]
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from flops_bytes.adapters import (
    CONSTANTS,
    FORMATS,
    frozen_weights_bytes,
    quantized_bytes,
    token_flops,
    trained_parameters,
)
from flops_bytes.flops import forward_flops, training_seconds
from flops_bytes.memory import RECIPES, Recipe
from flops_bytes.optimizers import (
    TORCHAO,
    adafactor_state_bytes,
    adafactor_temporary_bytes,
    low_bit_state_bytes,
    muon_flops,
    muon_parameters,
    muon_state_bytes,
    muon_temporary_bytes,
)
from flops_bytes.plan.evidence import WITH_ROOM, judged, verdict
from flops_bytes.plan.options import (
    BASES,
    RANK,
    SPEEDS,
    capacity_source,
    has_dropout,
    longest_context,
    read_gpu,
    read_network,
    read_shape,
    read_text,
    refuse_wide_rank,
    row_name,
)
from flops_bytes.plan.runs import BATCHES, steps_like
from flops_bytes.plan.software import with_software
from flops_bytes.serving import largest
from flops_bytes.shapes import Decoder, parameters, tensors
from flops_bytes.sharding import Overlap, overlap, sent_parts, sharded_bytes, waiting_seconds
from flops_bytes.stack import stack_of
from flops_bytes.stack_layers import Adapters
from flops_bytes.stack_step import family_of, state_lines, step_moments, whole_gradients

# --8<-- [end:setup]

# The one rule for a speed that nobody measured. Both are of steps that compute nothing again: what is computed again is
# added, at the same rate of the kernels.
STEP_MFU = 0.4  # a good step: the median of published steps on H100s, less than that on A100s
RUN_MFU = 0.3  # a whole run, with its evaluations, checkpoints and failures: what most published hours leave of it


# --8<-- [start:memory]
class Setup(NamedTuple):
    """What a GPU has to hold."""

    shape: Decoder
    counts: dict[str, int]  # the shape's parameters by component
    trained: int  # parameters, all of these or those of adapters
    recipe: str
    context: int
    micro_batch: int
    accumulation: int
    fused: bool
    composed: bool
    dropout: bool
    checkpointing: str
    checkpoint_every: int
    loss: str
    chunks: int
    gpus: int
    zero: int
    rank: int  # of adapters; 0: all weights are trained
    lora_on: str
    base: str  # of these, the frozen weights
    eight_bit: bool  # AdamW, whatever is said below
    paged: bool  # moments, which wait in the host's memory where the card has no room
    foreach_update: bool  # AdamW or Adafactor, of all tensors at once
    at_once: bool  # the update, of each gradient as it comes
    muon: bool  # and AdamW for what is no matrix of a layer
    adafactor: bool
    bf16_moments: bool  # AdamW's, whatever the recipe says
    four_bit_moments: bool  # torchao's
    fp8_moments: bool  # torchao's
    offload: bool
    offload_all: bool  # weights and gradients too
    allowance_bytes: int
    sharding_by: str  # the library
    reduce_bucket: int | None  # DeepSpeed's
    reentrant: bool  # checkpointing
    quantized_by: str
    lora_inputs: str
    lora_dropout: str
    qkv_made: str
    layers_in_fp8: bool  # their matmuls, or in fewer bits
    multiplied_in: str  # which of these formats


def peak(setup: Setup) -> tuple[str, dict[str, int]]:
    """The moment of a step at which a GPU holds most, and the bytes that it holds then, by line."""
    at = held_at(setup)
    moment = max(at, key=lambda moment: sum(at[moment].values()))
    return moment, at[moment]


def held_at(setup: Setup) -> dict[str, dict[str, int]]:
    """The bytes that a GPU holds at each moment of a step, by line."""
    in_4_bits, is_adamw = setup.base in CONSTANTS, not (setup.muon or setup.adafactor)
    is_adamw = is_adamw and not (setup.eight_bit or setup.paged or setup.offload)
    is_adamw = is_adamw and not (setup.bf16_moments or setup.four_bit_moments or setup.fp8_moments)
    adapters = Adapters(setup.rank, setup.lora_on, in_4_bits) if setup.rank else None

    def moments(recipe: str) -> dict[str, dict[str, int]]:
        at = step_moments(
            stack_of(setup.shape),
            family_of(setup.shape, setup.composed),
            seq_len=setup.context,
            trained=setup.trained,
            batch=setup.micro_batch,
            recipe=recipe,
            fused=setup.fused,
            checkpointing=setup.checkpointing,
            accumulated=setup.accumulation > 1,
            adapters=adapters,
            loss=setup.loss,
            chunks=setup.chunks,
            every=setup.checkpoint_every,
            drops=(setup.dropout, setup.dropout),
            update="in-backward" if setup.at_once else "foreach" if setup.foreach_update and is_adamw else "fused",
        )
        frozen = frozen_weights_bytes(setup.counts, RECIPES[recipe].weights, setup.base) if setup.rank else None
        state = state_lines(setup.trained, recipe, frozen, setup.context * setup.micro_batch)
        return {moment: state | whole_gradients(lines) for moment, lines in at.items()}

    at = moments(setup.recipe)
    if setup.zero == 3 and setup.gpus > 1 and setup.recipe[:8] == "autocast":
        # what is gathered is cast before, the embedding too: so the residual path, and all else, is in 16 bits
        cast = moments("bf16_master")
        kept = ("activations", "layer", "logits", "temporaries")
        at = {moment: lines | {line: cast[moment][line] for line in kept} for moment, lines in at.items()}
    if setup.eight_bit or setup.bf16_moments or setup.four_bit_moments or setup.fp8_moments:
        at = {moment: lines | {"optimizer": moments_bytes(setup)} for moment, lines in at.items()}
    elif setup.muon or setup.adafactor:
        at = with_update(setup, at)
    at = sharded_bytes(
        setup.shape,
        at,
        recipe=setup.recipe,
        gpus=setup.gpus,
        zero=setup.zero,
        frozen=setup.rank > 0,
        counts=setup.counts,
        base=setup.base,
    )
    if (
        setup.sharding_by != "fsdp2"
        or setup.quantized_by != "bitsandbytes"
        or setup.lora_inputs == "float32"
        or setup.lora_dropout == "yes"
        or setup.qkv_made == "one"
        or setup.layers_in_fp8
    ):
        at = with_software(setup, at)
    if setup.muon and setup.zero and setup.gpus > 1:
        at["update"]["temporaries"] = max(
            muon_temporary_bytes(setup.shape, width_of_moments(setup)), at["update"]["temporaries"]
        )
    if setup.offload:
        at = with_host(setup, at)
    instead = {"optimizer": 0} if setup.paged else {}
    if setup.zero == 0 and setup.gpus > 1:  # the buckets of PyTorch's DDP, into which gradients are copied
        instead["reduced"] = RECIPES["fp32" if setup.rank else setup.recipe].gradients * setup.trained
    return {moment: lines | instead | {"allowance": setup.allowance_bytes} for moment, lines in at.items()}


def with_host(setup: Setup, at: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The moments of a step without what lies in the host's memory, where the update runs too: master weights and
    moments, and of `offload_all` weights and gradients, which are gathered and reduced on the card.

    No gradients are cast on the card (torchao's CPUOffloadOptimizer copies them as they are); DeepSpeed's stages 2 and
    3 keep none there once they are reduced (stage_1_and_2.py, async_inplace_copy_grad_to_fp32_buffer_from_gpu;
    stage3.py, partition_grads). Constants of 4-bit weights, which bitsandbytes does not shard, are taken to stay there.
    """
    each = RECIPES["fp32" if setup.rank else setup.recipe]
    gone: dict[str, int] = {}
    if setup.sharding_by != "fsdp2" and setup.sharding_by[:9] == "deepspeed" and setup.zero > 1:
        gone |= {"gradients": 0}
    if setup.offload_all and setup.zero == 3 and setup.gpus > 1:
        whole = 0
        if setup.base in CONSTANTS and setup.quantized_by != "torchao":
            matrices = setup.counts["qkv"] + setup.counts["out"] + setup.counts["mlp"]
            whole = quantized_bytes(matrices, 0, 64, CONSTANTS[setup.base])
        gone |= without_weights(whole, setup.rank > 0)
    update = 0 if setup.at_once else each.gradients * setup.trained
    return without_state(at, update, setup.gpus if setup.zero > 1 else 1, gone)


def without_weights(constants: int, has_adapters: bool) -> dict[str, int]:
    """What of weights and gradients is left on the card, where the host has them."""
    return {"gradients": 0, "weights": constants} | ({"adapters": 0} if has_adapters else {})


def without_state(
    at: dict[str, dict[str, int]], update: int, cut: int, gone: dict[str, int]
) -> dict[str, dict[str, int]]:
    """The moments of a step whose update runs in the host: of so many bytes of gradients that it waits for, `cut` GPUs
    have a share each."""
    there = {"gradients": -(-update // cut), "temporaries": 0} if update else {}
    left = {"master": 0, "optimizer": 0} | gone
    return {moment: lines | (there if moment == "update" else {}) | left for moment, lines in at.items()}


def host_bytes(setup: Setup, gpus: int) -> dict[str, int]:
    """What the memory of a host with so many GPUs has to hold of them, by line: nothing without offload.

    The update runs there, so it has moments, what they are added to (master weights, or else a copy of what is
    trained) and the gradients of these: in float32 if DeepSpeed shards them. Of `offload_all` it has all weights too.
    Without ZeRO each GPU's process holds all of it. Buffers, and what pinned memory rounds up, come on top.
    """
    if not setup.offload:
        return {}
    each, weights = RECIPES["fp32" if setup.rank else setup.recipe], 0
    shards = setup.gpus if setup.zero else 1
    in_float32 = setup.sharding_by != "fsdp2" and setup.sharding_by[:9] == "deepspeed" and setup.zero > 1
    if setup.offload_all:
        lines = held_at(setup._replace(offload=False, offload_all=False))["update"]
        weights = shards * (lines["weights"] + lines["adapters"] if setup.rank else lines["weights"])
    return on_host(each, setup.trained, moments_bytes(setup), weights, in_float32, gpus, shards)


def on_host(
    each: Recipe, trained: int, moments: int, weights: int, in_float32: bool, gpus: int, shards: int
) -> dict[str, int]:
    """The same of so many trained parameters, bytes of `moments`, and of `weights` if all of these lie there."""
    parts = {
        "weights": weights or (0 if each.master else each.weights * trained),
        "master": each.master * trained,
        "optimizer": moments,
        "gradients": (4 if in_float32 else each.gradients) * trained,
    }
    lines = {line: gpus * -(-size // shards) for line, size in parts.items() if size}
    return lines | {"total": sum(lines.values())}


def width_of_moments(setup: Setup) -> int:
    """Bytes of a number of the recipe's moments."""
    return RECIPES[setup.recipe].optimizer // 2


def with_update(setup: Setup, at: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The moments of a step with the state of such an optimizer, and its update, if that holds more than the casts of
    gradients before.

    Both go through the matrices one by one; but Adafactor's foreach has estimates of all tensors at once, and AdamW's
    the roots of all that Muon leaves to it.
    """
    each, update = RECIPES[setup.recipe], at["update"]
    width = each.optimizer // 2
    held = (each.master or each.gradients) * setup.trained
    if setup.muon:
        roots = width * (setup.trained - muon_parameters(setup.shape)) if setup.foreach_update else 0
        extra = max(muon_temporary_bytes(setup.shape, width), roots)
    elif setup.foreach_update:
        extra = width * setup.trained
    else:
        two = replace(setup.shape, layers=min(setup.shape.layers, 2))  # each layer has one like it before it, or none
        extra = adafactor_temporary_bytes(tensors(two, setup.composed), width)
    if held + extra > update["gradients"] + update["temporaries"]:
        update = update | {"gradients": held, "temporaries": extra}
    return {moment: lines | {"optimizer": moments_bytes(setup)} for moment, lines in (at | {"update": update}).items()}


def of_tensors(shape: Decoder, counted: Callable[[list[tuple[int, ...]]], int]) -> int:
    """The sum of what is counted of each tensor; of a layer once, since all are alike."""
    one = counted(tensors(replace(shape, layers=1)))
    return one + (shape.layers - 1) * (counted(tensors(replace(shape, layers=2))) - one)


def moments_bytes(setup: Setup) -> int:
    """Bytes of AdamW's two moments, of Muon's one, or of Adafactor's means; in 8 bits AdamW's, in blocks as
    bitsandbytes has them since 0.44.

    Its paged moments are in float32 if not in 8 bits. Transformers leaves those of embeddings in float32.
    """
    if (setup.muon or setup.adafactor) and not setup.eight_bit:
        width = RECIPES[setup.recipe].optimizer // 2
        if setup.muon:
            return muon_state_bytes(setup.shape, setup.trained, width)
        return of_tensors(setup.shape, lambda sizes: adafactor_state_bytes(sizes, width))
    if setup.bf16_moments:
        return 4 * setup.trained
    if setup.four_bit_moments or setup.fp8_moments:  # of adapters and experts as of one tensor
        bits, block = TORCHAO["adamw-4bit" if setup.four_bit_moments else "adamw-fp8"]
        alike = setup.rank or setup.shape.experts > 1
        width = RECIPES[setup.recipe].master or RECIPES[setup.recipe].weights
        if alike:
            return low_bit_state_bytes([setup.trained // block * block], bits, block, width)
        return of_tensors(
            setup.shape, lambda sizes: low_bit_state_bytes([prod(each) for each in sizes], bits, block, width)
        )
    if not setup.eight_bit:
        each = RECIPES["fp32" if setup.rank or setup.paged else setup.recipe]
        return each.optimizer * setup.trained
    counts, theirs = setup.counts, setup.composed and not setup.rank
    wide = counts["embedding"] + counts["positions"] if theirs else 0
    return 8 * wide + quantized_bytes(2 * (setup.trained - wide), 8, 256)


def needed_bytes(setup: Setup) -> int:
    return sum(peak(setup)[1].values())


# --8<-- [end:memory]


# --8<-- [start:work]
def work(setup: Setup, causal: bool, checkpointing: str) -> dict[str, float]:
    """FLOPs a token: the model's, the device's, those again."""
    return token_flops(
        setup.shape,
        seq_len=setup.context,
        causal=causal,
        fused=setup.fused,
        checkpointing=checkpointing,
        rank=setup.rank,
        adapted=setup.lora_on,
        every=setup.checkpoint_every,
        # a mask behind the last matmul is made again too; and what torchao's function keeps, it keeps when it has ended
        early_stop=not (
            setup.layers_in_fp8 or (setup.dropout and setup.shape.norm_shift and checkpointing != "selective")
        ),
    )


def sent(setup: Setup) -> dict[str, float]:
    """Bytes that a GPU sends in a step: of gradients that are reduced, of weights that are gathered."""
    if setup.gpus == 1:
        return {"reduced": 0, "gathered": 0}
    return sent_parts(
        setup.shape,
        recipe=setup.recipe,
        gpus=setup.gpus,
        zero=setup.zero,
        accumulation=setup.accumulation,
        rank=setup.rank,
        adapted=setup.lora_on,
        counts=setup.counts,
        base=setup.base,
    )


def sent_bytes(setup: Setup) -> float:
    return sum(sent(setup).values())


# --8<-- [end:work]


# --8<-- [start:time]
class Timing(NamedTuple):
    """What a step's time is made of."""

    setup: Setup
    backward: float  # the share of these in the backward pass
    at_the_peak: float  # tokens a second at an MFU of 1
    again: float  # how many times the FLOPs of a step that computes nothing again
    updating: float  # seconds of Muon's matmuls at an MFU of 1, which no token shares
    network: dict[str, Any] | None
    step_tokens: int


def communication(timing: Timing, matmuls: float) -> Overlap:
    """What of a step's communication its matmuls can hide: all bytes at the network's rate, without latency."""
    if not timing.network:
        return Overlap([], 0.0)
    setup, rate = timing.setup, timing.network["bytes_per_second"]
    seconds = {part: size / rate for part, size in sent(setup).items()}
    return overlap(seconds["reduced"], seconds["gathered"], matmuls, setup.zero, setup.accumulation, timing.backward)


def matmul_seconds(timing: Timing, mfu: float) -> float:
    """Of a step's matmuls, those that are computed again among them: `mfu` is what a step without these would reach.

    Of one model on as many A100s, with 40 or 80 GB, published steps that compute again reach 0.74 to 0.89 of the MFU of
    those that do not, in six pairs: about what the FLOPs say.
    """
    return timing.again * timing.step_tokens / (mfu * timing.at_the_peak)


def assumed_seconds(timing: Timing, mfu: float) -> float:
    """Of a step at an assumed MFU: its matmuls, what communication takes longer than those that it runs beside, Muon.

    What an optimizer in the host's memory takes, the way there and back and the update, is not in it: nothing here says
    how fast a host is.
    """
    matmuls = matmul_seconds(timing, mfu)
    return matmuls + waiting_seconds(communication(timing, matmuls)) + timing.updating / mfu


def wire(timing: Timing, step_seconds: float, matmuls: float) -> dict[str, Any] | None:
    """What a GPU sends in a step, how long that takes, and from how many tokens of a micro-batch matmuls hide it."""
    if not timing.network:
        return None
    setup, seconds = timing.setup, sent_bytes(timing.setup) / timing.network["bytes_per_second"]
    pairs, waits = communication(timing, matmuls).pairs, max(0.0, step_seconds - matmuls)  # a sum of fractions
    return timing.network | {
        "bytes": sent_bytes(setup),
        "seconds": seconds,
        "hidden": not waits and seconds <= step_seconds,
        "waits_seconds": waits,
        "tokens": setup.micro_batch * setup.context * max([sent / beside if beside else 0 for sent, beside in pairs]),
    }


def cost(a: dict[str, Any], tokens: int | None, tokens_per_second: float) -> dict[str, Any]:
    """Tokens, days, GPU-hours and money at a speed. `tokens` is None where --days tells how many."""
    tokens = int(a["days"] * 86_400 * tokens_per_second) if a["days"] else tokens
    seconds = tokens / tokens_per_second if tokens else None
    gpu_hours = a["gpus"] * seconds / 3_600 if seconds else None
    return {
        "tokens": tokens,
        "days": seconds and seconds / 86_400,
        "gpu_hours": gpu_hours,
        "money": gpu_hours * a["price"] if gpu_hours and a["price"] else None,
    }


def published_mfu(a: dict[str, Any]) -> dict[str, Any] | None:
    """What published steps of this kind reached, eight of ten of them; None of adapters and of fp8, of which no
    such MFU was found."""
    if a["lora"] or a["matmuls"] != "as-recipe":
        return None
    gpu = row_name(a["gpu"]) if a["gpu"] else ""
    cards, steps = steps_like(gpu, a["checkpointing"] in ("per-op", "full"))
    return {"cards": cards, "readings": steps.readings, "low": steps.low, "high": steps.high}


def booked(a: dict[str, Any], tokens: int | None, speed_at: Callable[[float], float]) -> list[dict[str, Any]]:
    """What a training takes at the MFU of a good step, and at that of a whole run, by the tokens a second there."""
    speeds = [(mfu, speed_at(mfu)) for mfu in (STEP_MFU, RUN_MFU)]
    return [{"mfu": mfu, "tokens_per_second": speed} | cost(a, tokens, speed) for mfu, speed in speeds]


def large_batch(step_tokens: int) -> dict[str, Any] | None:
    """Of a step with more tokens than the largest dense model had: which published runs had as many."""
    usual = min(BATCHES.values())
    if step_tokens <= usual:
        return None
    as_large = [name for name, tokens in BATCHES.items() if tokens >= step_tokens]
    return {"usual": usual, "largest": max(BATCHES.values()), "as_large": as_large}


# --8<-- [end:time]


# --8<-- [start:ladder]
def ladder(setup: Setup, memory_bytes: float, room: float, causal: bool, matmuls: float) -> Iterator[dict[str, Any]]:
    """What to try in order of cost, each beside those before: the bytes it frees, and what it costs.

    What frees nothing is left out, until something else has moved the peak to where it does.
    """
    done = work(setup, causal, setup.checkpointing)
    again, a_flop = done["again"], matmuls / done["device"]
    width = 4 if setup.recipe == "fp32" else 2
    rungs: list[tuple[str, dict[str, Any], float]] = [  # its name, what it changes, seconds a step
        ("fused attention", {"fused": True}, 0),
        ("loss in 8 chunks", {} if setup.loss == "fused" else {"loss": "plain", "chunks": max(8, setup.chunks)}, 0),
        ("micro-batches of 1", {"micro_batch": 1, "accumulation": setup.accumulation * setup.micro_batch}, 0),
    ]
    if setup.at_once:  # which leaves no gradients to add to
        rungs = rungs[:1]
    for kind in ("full",) if setup.checkpointing in ("per-op", "full") or setup.layers_in_fp8 else ("per-op", "full"):
        before, again = again, work(setup._replace(checkpoint_every=1), causal, kind)["again"]
        change: dict[str, Any] = {"checkpointing": kind, "checkpoint_every": 1}
        rungs.append((f"{kind} checkpointing", change, max(0, a_flop * (again - before))))
    for stage in range(setup.zero + 1, 4 if setup.gpus > 1 and not setup.adafactor else 0):
        rungs.append((f"ZeRO {stage}", {"zero": stage}, 0))
    # of which there is less
    if not (setup.paged or setup.adafactor or setup.bf16_moments or setup.four_bit_moments or setup.fp8_moments):
        rungs.append(("8-bit AdamW", {"eight_bit": True}, 0))
    if not (setup.muon or setup.adafactor or setup.at_once):
        rungs.append(("state in the host's memory", {"offload": True}, 0))
    swapped = 2 * width * setup.trained / setup.gpus
    now = needed_bytes(setup)
    while rungs:
        tries = [(rung, needed_bytes(setup._replace(**rung[1]))) for rung in rungs]
        found = next(((rung, needs) for rung, needs in tries if needs < now), None)
        if not found:
            break
        (name, changed, seconds), needs = found
        rungs = [rung for rung in rungs if rung[0] != name]
        tried = setup._replace(**changed)
        moved = max(0, sent_bytes(tried) - sent_bytes(setup)) + (swapped if tried.offload else 0)
        yield {
            "try": name,
            "frees_bytes": now - needs,
            "needs_bytes": needs,
            "verdict": verdict(needs, room * needs, memory_bytes),
            "adds_seconds_a_step": seconds,
            "moves_bytes_a_step": moved,
        }
        setup, now = tried, needs


# --8<-- [end:ladder]


# --8<-- [start:methods]
Needed = Callable[[dict[str, Any]], int]  # bytes of a GPU for a question


def way(a: dict[str, Any], needed: Needed, memory_bytes: float) -> dict[str, Any]:
    """What a method needs, and whether that fits; with every layer checkpointed, where it has no room otherwise."""
    needs = needed(a)
    found = {"trained": a["trained"], "checkpointing": a["checkpointing"], "needs_bytes": needs}
    found |= judged(a, needs, memory_bytes)
    if found["verdict"] == WITH_ROOM or a["checkpointing"] == "full":
        return found
    return way(a | {"checkpointing": "full"}, needed, memory_bytes)


def methods(a: dict[str, Any], needed: Needed, memory_bytes: float) -> list[dict[str, Any]]:
    """All weights, LoRA and QLoRA, each as far as it needs checkpointing."""
    return [way(each, needed, memory_bytes) for each in ways(a)]


def methods_of(a: dict[str, Any], shape: Decoder, peaks: dict[str, float], memory_bytes: float) -> list[dict[str, Any]]:
    """The same of a model whose layers are all alike."""
    return methods(a, lambda each: needed_bytes(read_setup(each, shape, peaks)), memory_bytes)


def ways(a: dict[str, Any]) -> list[dict[str, Any]]:
    """A question asked of all weights, of LoRA and of QLoRA.

    Where something is asked of one of them alone, such as Muon, or of the software that one of them is run with, the
    others are left out.
    """
    if (
        (a["sharding_by"] == "fsdp2" and a["quantized_by"] == "bitsandbytes" and a["qkv_made"] == "apart")
        and (a["lora_inputs"] != "float32" and a["lora_dropout"] == "no")
        and (a["matmuls"] == "as-recipe" and a["update"] != "in-backward")
        and not (a["optimizer"] == "muon" or a["optimizer"] == "adafactor")
    ):
        four_bits = a["trained"] if a["trained"] in BASES else "qlora-double"
        adapted = a | {"lora": a["lora"] or RANK}
        return [
            a | {"trained": "all", "lora": None, "base": "as-recipe"},
            adapted | {"trained": "lora", "base": "as-recipe"},
            adapted | {"trained": four_bits, "base": BASES[four_bits]},
        ]
    return [a]


# --8<-- [end:methods]


# --8<-- [start:formats]
FASTER = {"float32": ("tf32",), "bfloat16": ("float8", "float4"), "float16": ("float8", "float4")}


def recipe_format(recipe: str) -> str:
    return {"fp32": "float32", "autocast_fp16": "float16"}.get(recipe, "bfloat16")


def card_format(peaks: dict[str, float], recipe: str, frozen: bool) -> str:
    """The recipe's format; but 16 bits beside a float32 master, or frozen, are those that the card has units for:
    float16 on a V100 or T4, with the loss scaled."""
    dtype = recipe_format(recipe)
    either = recipe == "bf16_master" or (frozen and recipe == "bf16")
    cast = either and dtype not in peaks and "float16" in peaks
    return "float16" if cast else dtype


def told_format(peaks: dict[str, float], dtype: str, flop_per_second: float) -> str:
    """The format by whose peak a rate that somebody measured is judged: the recipe's, or the first faster one whose
    peak is as high; the fastest if none is."""
    formats = [dtype] + [faster for faster in FASTER[dtype] if faster in peaks]
    return next((each for each in formats if flop_per_second <= peaks[each]), formats[-1])


# --8<-- [end:formats]


# --8<-- [start:plan]
def refuse_in_backward(a: Mapping[str, Any], has_experts: bool) -> None:
    """Raises ValueError for what an update within the backward pass cannot do, or is not counted with."""
    if a["accumulation"] > 1 or a["chunks"] > 1:
        several = "accumulation" if a["accumulation"] > 1 else "chunks"
        raise ValueError(
            f"--update: in-backward leaves no gradient to which another could be added; leave --{several} out"
        )
    if (
        a["lora"]
        or a["gpus"] > 1
        or a["offload"] != "no"
        or has_experts
        or a["recipe"] not in ("fp32", "bf16")
        or a["optimizer"][-5:] not in ("adamw", "-8bit")
    ):
        counted = "one GPU, AdamW, and all weights of a dense model, with --recipe fp32 or bf16"
        raise ValueError(f"--update: in-backward is counted for {counted}; choose fused")


def refuse_fp8(a: Mapping[str, Any], is_counted: bool, peaks: Mapping[str, float]) -> None:
    """Raises ValueError for what matmuls in few bits cannot do, or are not counted with."""
    low, form = a["matmuls"], FORMATS[a["matmuls"]]
    needs = "float8" if low[:3] == "fp8" else "float4"  # cards with units for blocks of 32 have them for 4 bits
    if needs not in peaks:
        lacks = "float8" if needs == "float8" else low
        raise ValueError(f"--matmuls: {a['gpu'] or 'such a GPU'} multiplies no {lacks}; choose as-recipe")
    if (
        a["lora"]
        or not is_counted
        or a["update"] == "in-backward"
        or (a["recipe"][:4] != "bf16" and not (a["recipe"] == "autocast" and a["gpus"] > 1 and a["zero"] == "3"))
    ):
        counted = "all weights of dense models with a gated MLP, in 16 bits or gathered so by --zero 3"
        raise ValueError(f"--matmuls: {low} is counted for {counted}, not with in-backward; choose as-recipe")
    if form.keeps_copies and a["checkpointing"] == "per-op":
        raise ValueError(f"--checkpointing: per-op is counted for matmuls that keep 16 bits, not {low}; choose full")


def fp8_rate(forward: Mapping[str, int], at_16_bits: float, at_8_bits: float) -> tuple[float, float]:
    """The share of the model's FLOPs that the layers' matrices have, and FLOP/s where these are at the peak of fp8, or
    of fewer bits, and attention and the head at that of 16 bits."""
    matrices = sum([flops for part, flops in forward.items() if part not in ("scores", "values", "head", "router")])
    share = matrices / sum(forward.values())
    return share, 1 / (share / at_8_bits + (1 - share) / at_16_bits)


def read_format(a: dict[str, Any], peaks: dict[str, float]) -> str:
    """What matmuls are in. Raises ValueError where the card has no units for it."""
    dtype = card_format(peaks, a["recipe"].replace("-", "_"), bool(a["lora"]))
    if dtype not in peaks:
        other = {"float32": "bf16-master", "float16": "autocast", "bfloat16": "autocast-fp16"}[dtype]
        raise ValueError(f"--recipe: {a['gpu']} multiplies no {dtype}; choose --recipe {other}, or another --gpu")
    return dtype


def read_setup(a: dict[str, Any], shape: Decoder, peaks: dict[str, float]) -> Setup:
    """What a GPU with such peaks has to hold. Raises ValueError for what cannot be."""
    recipe, zero = a["recipe"].replace("-", "_"), int(a["zero"])
    if (a["optimizer"] == "muon" or a["optimizer"] == "adafactor") and (
        a["lora"] or (zero and a["optimizer"] == "adafactor") or a["offload"] != "no" or shape.experts > 1
    ):
        raise ValueError(f"--optimizer: {a['optimizer']} is counted for whole dense models alone; choose adamw")
    if a["offload"] == "all" and (zero < 3 or a["gpus"] == 1):
        raise ValueError(
            "--offload: all is of weights that are gathered from the host's memory; give --zero 3 and GPUs"
        )
    if a["update"] == "in-backward":
        refuse_in_backward(a, shape.experts > 1)
    if a["matmuls"] != "as-recipe":
        is_plain = shape.gated or not (shape.biases or a["layers"] == "composed")
        refuse_fp8(a, shape.experts == 1 and is_plain, peaks)
    refuse_wide_rank(a["lora"], shape.d_model)
    counts = parameters(shape)
    trained = trained_parameters(shape, a["lora"] or 0, a["lora_on"], counts)
    same = ("context", "micro_batch", "accumulation", "checkpointing", "checkpoint_every", "gpus", "lora_on")
    return Setup(
        shape=shape,
        counts=counts,
        trained=trained,
        recipe=recipe,
        zero=zero,
        fused=a["attention"] == "fused",
        composed=a["layers"] == "composed",
        dropout=has_dropout(a, shape),
        loss="plain" if a["loss"] == "chunked" else a["loss"],
        chunks=a["chunks"],
        rank=a["lora"] or 0,
        base=a["base"],
        eight_bit=a["optimizer"][-4:] == "8bit",
        paged=a["optimizer"][:5] == "paged",
        foreach_update=a["update"] == "foreach",
        at_once=a["update"] == "in-backward",
        muon=a["optimizer"] == "muon",
        adafactor=a["optimizer"] == "adafactor",
        bf16_moments=a["optimizer"] == "adamw-bf16",
        four_bit_moments=a["optimizer"] == "adamw-4bit",
        fp8_moments=a["optimizer"] == "adamw-fp8",
        offload=a["offload"] != "no",
        offload_all=a["offload"] == "all",
        allowance_bytes=a["allowance"],
        sharding_by=a["sharding_by"],
        reduce_bucket=a["reduce_bucket"],
        reentrant=a["reentrant"] == "yes",
        quantized_by=a["quantized_by"],
        lora_inputs=a["lora_inputs"],
        lora_dropout=a["lora_dropout"],
        qkv_made=a["qkv_made"],
        layers_in_fp8=a["matmuls"] != "as-recipe",
        multiplied_in=a["matmuls"],
        **{name: a[name] for name in same},
    )


def train(a: dict[str, Any]) -> dict[str, Any]:
    """What training takes, from options that are read."""
    shape, gpu = read_shape(a), read_gpu(a)
    peaks = gpu.peak_flop_per_second
    setup, dtype = read_setup(a, shape, peaks), read_format(a, peaks)
    recipe, counts, trained = setup.recipe, setup.counts, setup.trained

    def missing(**change: Any) -> float:
        return needed_bytes(setup._replace(**change)) - gpu.memory_bytes

    moment, lines = peak(setup)
    needs_bytes = sum(lines.values())
    too_few = largest(lambda gpus: 0.5 - missing(gpus=gpus), 2**20)  # half a byte: bytes are whole
    alone = missing(gpus=1, zero=0, sharding_by="fsdp2", reduce_bucket=None)  # without anything that shards
    fewest_gpus = 1 if alone <= 0 else 1 + too_few
    stages = range(4 if setup.gpus > 1 and not setup.adafactor else 0)
    every_stage = {stage: needed_bytes(setup._replace(zero=stage)) for stage in stages}

    pairs = {name: work(setup, name == "causal", setup.checkpointing) for name in ("all", "causal")}
    flops = pairs[a["pairs"]]
    step_tokens = setup.gpus * setup.micro_batch * setup.accumulation * setup.context
    forward = sum(forward_flops(shape, setup.context, causal=a["pairs"] == "causal").values()) / setup.context
    rate = peaks[dtype]
    if setup.layers_in_fp8:
        low = peaks[FORMATS[setup.multiplied_in].peak]
        each_part = forward_flops(shape, setup.context, causal=a["pairs"] == "causal")
        share, rate = fp8_rate(each_part, peaks[dtype], low)
    timing = Timing(
        setup=setup,
        backward=1 - forward / flops["device"],
        at_the_peak=1 / training_seconds(flops["model"], setup.gpus, rate, mfu=1),
        again=flops["device"] / (flops["device"] - flops["again"]),
        network=read_network(a),
        step_tokens=step_tokens,
        # each matrix on one of the GPUs, where state is shared
        updating=muon_flops(shape) / peaks[dtype] / (setup.gpus if setup.zero else 1) if setup.muon else 0.0,
    )
    told = next((name for name in SPEEDS if a[name]), None)
    if told:  # what was measured has all waits in it
        speed = a[told]
        step_seconds: float = {"step_seconds": speed, "tokens_per_second": step_tokens / speed}.get(
            told, step_tokens / (speed * timing.at_the_peak)
        )
        matmuls = step_seconds
    else:
        step_seconds, matmuls = assumed_seconds(timing, STEP_MFU), matmul_seconds(timing, STEP_MFU)
    tokens_per_second = step_tokens / step_seconds
    mfu = tokens_per_second / timing.at_the_peak
    of_peak = mfu * flops["device"] / flops["model"]  # of that of the recipe's format
    measured = told in ("tokens_per_second", "step_seconds") and not setup.layers_in_fp8
    multiplied_in = told_format(peaks, dtype, of_peak * peaks[dtype]) if measured else dtype
    slower = peaks[dtype] / peaks[multiplied_in]
    mfu, hfu = slower * mfu, slower * of_peak
    if hfu > 1:
        option = (told or "mfu").replace("_", "-")
        of_fastest = f", {hfu:.3g} times that of {multiplied_in}" if multiplied_in != dtype else ""
        raise ValueError(f"--{option}: the GPUs would do {of_peak:.3g} times their peak{of_fastest}; check it")
    text = read_text(a, shape.vocab)
    to_train_on = text["tokens"] if text else a["tokens"]
    costs = cost(a, to_train_on, tokens_per_second)
    tokens = costs["tokens"]

    said = judged(a, needs_bytes, gpu.memory_bytes)
    active, total = parameters(shape, active=True), sum(counts.values())
    each = RECIPES["fp32" if setup.rank else recipe]
    optimizer_bytes = moments_bytes(setup)
    estimated = {
        "sharding": setup.gpus > 1,
        "8-bit state": setup.eight_bit,
        "offload": setup.offload or setup.paged,
        "experts": shape.experts > 1,
        "queries' biases or norms": shape.qkv_biases or shape.head_norms,
    }
    if setup.four_bit_moments or setup.fp8_moments:
        estimated |= {"state in few bits": setup.rank > 0 or shape.experts > 1}
    if setup.layers_in_fp8:
        estimated |= {"fp8 copies": True}
        of_format: dict[str, Any] = {"format": "fp4" if setup.multiplied_in == "nvfp4" else "fp8"}
        of_format |= {"share": share, "flop_per_second": rate, "mfu_of_16_bits": mfu * rate / peaks[dtype]}
        costs |= {"fp8": of_format}
    return (
        {
            "parameters": counts | {"total": total, "active": sum(active.values()), "trained": trained},
            "trained": a["trained"],
            "memory_bytes": lines | {"total": needs_bytes},
            "paged_bytes": moments_bytes(setup) // (setup.gpus if setup.zero else 1) if setup.paged else 0,
            "host_bytes": host_bytes(setup, min(setup.gpus, a["node_gpus"])),
            "peaks_at": moment,
            "gpu_bytes": gpu.memory_bytes,
            "gpu_bytes_are": capacity_source(a),
            "headroom_bytes": gpu.memory_bytes - needs_bytes,
            "largest_micro_batch": largest(lambda size: missing(micro_batch=size), 2**40),
            "longest_context": largest(lambda length: missing(context=length), longest_context(a, shape)),
            "fewest_gpus": fewest_gpus if fewest_gpus <= 2**20 else None,
            "zero_bytes": every_stage,
            "flops_a_token": pairs,
            "step_tokens": step_tokens,
            "accumulation": setup.accumulation,
            "large_batch": large_batch(step_tokens),
            "step_seconds": step_seconds,
            "tokens_per_second": tokens_per_second,
            "mfu": mfu,
            "mfu_is_assumed": not told,
            "assumed_mfu": None if told else STEP_MFU,
            "hfu": hfu,
            "recipe_format": recipe_format(recipe),
            "matmul_format": multiplied_in,
            "recipe_hfu": of_peak,
            "published_mfu": published_mfu(a),
            "by_mfu": [] if told else booked(a, to_train_on, lambda mfu: step_tokens / assumed_seconds(timing, mfu)),
            "wire": wire(timing, step_seconds - (0 if told else timing.updating / STEP_MFU), matmuls),
            "text": text,
            "training_flops": flops["model"] * tokens if tokens else None,
            "currency": a["currency"],
            "checkpoint_bytes": each.weights * trained + each.master * trained + optimizer_bytes,
            "checkpoint_weights_bytes": 2 * total,
            "ladder": list(ladder(setup, gpu.memory_bytes, said["room_ratio"], a["pairs"] == "causal", matmuls)),
            "methods": methods_of(a, shape, peaks, gpu.memory_bytes),
            "estimated": [name for name, is_so in estimated.items() if is_so],
        }
        | said
        | costs
    )


# --8<-- [end:plan]
