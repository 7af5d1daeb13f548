"""Does a training fit on so many GPUs, how long does it take, what does it cost? Put together from the formulas."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from flops_bytes.memory.adapters import CONSTANTS, FORMATS, quantized_bytes
from flops_bytes.memory.formulas import RECIPES, Recipe, state_bytes
from flops_bytes.memory.layers import Adapters, ModelFamily
from flops_bytes.memory.optimizers import (
    TORCHAO,
    adafactor_state_bytes,
    adafactor_temporary_bytes,
    low_bit_state_bytes,
    muon_flops,
    muon_parameters,
    muon_state_bytes,
    muon_temporary_bytes,
)
from flops_bytes.memory.step import (
    StepConfig,
    moment_of,
    step_bytes,
    token_flops,
    trained_parameters,
    unsupported_reason,
)
from flops_bytes.model.flops import training_seconds
from flops_bytes.model.shapes import Decoder, tensors
from flops_bytes.model.stack import Attention, Experts, Stack, forward_flops, four_bit_parameters, parameters
from flops_bytes.parallel.sharding import Overlap, overlap, sent_parts, sharded_moments, waiting_seconds
from flops_bytes.plan.allowance import outside_bytes
from flops_bytes.plan.evidence import WITH_ROOM, judge_fit
from flops_bytes.plan.model import Model, parameter_totals
from flops_bytes.plan.options import BASES, RANK, SPEEDS, capacity_source, read_gpu, read_network, read_text
from flops_bytes.plan.published_runs import BATCHES, steps_like
from flops_bytes.plan.software import (
    Moments,
    Options,
    gathers_weights,
    is_deepspeed,
    with_libraries,
)
from flops_bytes.serve.inference import largest

# The one rule for a speed that nobody measured. Both are of steps that compute nothing again: what is computed again is
# added, at the same rate of the kernels.
STEP_MFU = 0.4  # a good step: the median of published steps on H100s, less than that on A100s
RUN_MFU = 0.3  # a whole run, with its evaluations, checkpoints and failures: what most published hours leave of it


# What is asked is a dict of options that are read (flops_bytes.plan.options), by convention `a`.
def adapters_of_options(a: Options) -> Adapters | None:
    if not a["lora"]:
        return None
    return Adapters(
        a["lora"],
        a["lora_on"],
        a["base"] in CONSTANTS,
        in_float32=a["lora_inputs"] == "float32",
        drops_out_inputs=a["lora_dropout"] == "yes",
    )


def step_config(a: Options, model: Model) -> StepConfig:
    """How the step is run that is asked for."""
    return StepConfig(
        seq_len=a["context"],
        batch=a["micro_batch"],
        recipe=recipe_name(a),
        fused=a["attention"] == "fused",
        checkpointing=a["checkpointing"],
        every=a["checkpoint_every"],
        reentrant=a["reentrant"] == "yes",
        accumulated=a["accumulation"] > 1,
        adapters=adapters_of_options(a),
        loss="plain" if a["loss"] == "chunked" else a["loss"],
        chunks=a["chunks"],
        dropout=model.dropout if a["dropout"] is None else (a["dropout"] > 0, a["dropout"] > 0),
        matmul_format=FORMATS[a["matmuls"]] if a["matmuls"] != "as-recipe" else None,
        update=a["update"] if a["optimizer"] == "adamw" or a["update"] == "in-backward" else "fused",
    )


def model_family(a: Options, model: Model) -> ModelFamily:
    """How its layers are written."""
    return replace(model.family, fused_qkv=True) if a["qkv_made"] == "one" else model.family


def recipe_name(a: Options) -> str:
    recipe: str = a["recipe"].replace("-", "_")
    return recipe


def trained_recipe(a: Options) -> Recipe:
    """Bytes of what is trained: adapters in float32."""
    return RECIPES["fp32" if a["lora"] else recipe_name(a)]


def is_sharded(a: Options) -> bool:
    """Whether GPUs share more than the batch."""
    return bool(a["zero"] != "0" and a["gpus"] > 1)


def why_not_derived(a: Options, model: Model) -> str:
    """Why the bytes of what is asked are not derived; nothing if they are."""
    if model.is_own or not model.name:
        return ""
    return unsupported_reason(model.stack, model.name, recipe_name(a), gathers_weights(a))


def count_trained(a: Options, model: Model) -> int:
    """Parameters that are trained: all, or those of adapters alone."""
    return trained_parameters(model.stack, model_family(a, model), step_config(a, model))


def peak_memory(a: Options, model: Model) -> tuple[str, dict[str, int]]:
    """The moment of a step at which a GPU holds most, and the bytes that it holds then, by line."""
    moments = bytes_by_moment(a, model)
    moment = max(moments, key=lambda moment: sum(moments[moment].values()))
    return moment_of(moment), moments[moment]


def needed_bytes(a: Options, model: Model) -> int:
    return sum(peak_memory(a, model)[1].values())


def bytes_by_moment(a: Options, model: Model, logits_to_keep: int = 0) -> Moments:
    """The bytes that a GPU holds at each moment of a step, by line: with the logits of so many last tokens, or all."""
    stack, zero, gpus = model.stack, int(a["zero"]), a["gpus"]
    config = step_config(a, model)._replace(logits_to_keep=logits_to_keep)
    family = model_family(a, model)
    trained = trained_parameters(stack, family, config)
    moments = step_bytes(stack, family, config, a["base"])
    if gathers_weights(a) and config.autocast:
        # what is gathered is cast before, the embedding too: so the residual path, and all else, is in 16 bits
        cast_moments = step_bytes(stack, family, config._replace(recipe="bf16_master"), a["base"])
        cast_lines = ("activations", "layer", "logits", "temporaries")
        moments = {
            moment: lines | {line: cast_moments[moment][line] for line in cast_lines}
            for moment, lines in moments.items()
        }
    if a["optimizer"] == "muon" or a["optimizer"] == "adafactor":
        moments = with_other_optimizer(a, model, trained, moments)
    elif a["optimizer"] != "adamw":  # paged moments wait in the host's memory
        state_size = 0 if is_paged(a) else optimizer_state_bytes(a, model, trained)
        moments = {moment: lines | {"optimizer": state_size} for moment, lines in moments.items()}
    moments = sharded_moments(stack, moments, recipe_name(a), gpus, zero, a["base"], trained if a["lora"] else 0)
    if a["sharding_by"] != "fsdp2" or a["quantized_by"] != "bitsandbytes":
        moments = with_libraries(a, stack, model.decoder, trained, moments)
    if a["optimizer"] == "muon" and is_sharded(a):  # a matrix is whole on the GPU that updates it
        matrix_bytes = muon_temporary_bytes(dense_decoder(model), trained_recipe(a).optimizer // 2)
        moments["update"]["temporaries"] = max(matrix_bytes, moments["update"]["temporaries"])
    if a["offload"] != "no":
        moments = with_offload(a, stack, trained, moments)
    allowance = outside_bytes(a)
    return {moment: lines | {"allowance": allowance} for moment, lines in moments.items()}


def limits_without_activations(a: Options, stack: Stack) -> dict[str, Any]:
    """What a GPU holds at least, without activations, where these are not derived: what limits() says, as far as that
    goes."""
    lines_by_stage = {stage: state_bytes_of_stage(a, stack, stage) for stage in range(4)}
    unknown = dict.fromkeys(("peaks_at", "largest_micro_batch", "longest_context", "fewest_gpus"))
    stage_totals = {stage: sum(lines_by_stage[stage].values()) for stage in zero_stages(a)}
    lines = lines_by_stage[int(a["zero"])]
    return unknown | {"memory_bytes": lines, "zero_bytes": stage_totals, "paged_bytes": 0, "host_bytes": {}}


def state_bytes_of_stage(a: Options, stack: Stack, zero: int) -> dict[str, int]:
    """The bytes of a GPU without activations, by ZeRO's stage: the optimizer's state and master weights are cut from 1
    on, gradients from 2 on, weights from 3 on (Rajbhandari et al. 2020)."""
    whole_bytes = state_bytes(sum(parameters(stack).values()), RECIPES[recipe_name(a)])
    first_stage = {"optimizer": 1, "master": 1, "gradients": 2, "weights": 3}
    shares = {part: -(-size // a["gpus"]) if zero >= first_stage[part] else size for part, size in whole_bytes.items()}
    return shares | {"allowance": outside_bytes(a)}


def with_offload(a: Options, stack: Stack, trained: int, moments: Moments) -> Moments:
    """The moments of a step without what lies in the host's memory, where the update runs too: master weights and
    moments, and with "all" weights and gradients, which are gathered and reduced on the card.

    No gradients are cast on the card (torchao's CPUOffloadOptimizer copies them as they are); DeepSpeed's stages 2 and
    3 keep none there once they are reduced (stage_1_and_2.py, async_inplace_copy_grad_to_fp32_buffer_from_gpu;
    stage3.py, partition_grads). Constants of 4-bit weights, which bitsandbytes does not shard, are taken to stay there.
    """
    left_on_card = {"master": 0, "optimizer": 0}
    if leaves_gradients(a):
        left_on_card |= {"gradients": 0}
    if a["offload"] == "all":
        is_whole = a["base"] in CONSTANTS and a["quantized_by"] != "torchao"
        constants = quantized_bytes(four_bit_parameters(stack), 0, 64, CONSTANTS[a["base"]]) if is_whole else 0
        left_on_card |= {"weights": constants} | ({"adapters": 0} if a["lora"] else {})
    gradient_bytes = 0 if a["update"] == "in-backward" else trained_recipe(a).gradients * trained
    shards = a["gpus"] if int(a["zero"]) > 1 else 1
    at_update = {"gradients": -(-gradient_bytes // shards), "temporaries": 0} if gradient_bytes else {}
    return {
        moment: lines | (at_update if moment == "update" else {}) | left_on_card for moment, lines in moments.items()
    }


def leaves_gradients(a: Options) -> bool:
    """Whether gradients go to the host as soon as they are reduced."""
    return bool(a["offload"] == "all" or (a["offload"] != "no" and has_float32_gradients(a)))


def has_float32_gradients(a: Options) -> bool:
    """Whether the host has them so, and the card none, once they are reduced: DeepSpeed's stages 2 and 3."""
    return is_deepspeed(a) and int(a["zero"]) > 1


def host_bytes(a: Options, model: Model) -> dict[str, int]:
    """What the memory of a host has to hold of its GPUs, by line: nothing without offload.

    The update runs there, so it has moments, what they are added to (master weights, or else a copy of what is
    trained) and the gradients of these: in float32 if DeepSpeed shards them. With "all" it has all weights too.
    Without ZeRO each GPU's process holds all of it. Buffers, and what pinned memory rounds up, come on top.
    """
    if a["offload"] == "no":
        return {}
    recipe, trained, weights = trained_recipe(a), count_trained(a, model), 0
    shards, gpus = a["gpus"] if a["zero"] != "0" else 1, min(a["gpus"], a["node_gpus"])
    if a["offload"] == "all":
        lines = bytes_by_moment({**a, "offload": "no"}, model)["update"]
        weights = shards * (lines["weights"] + lines["adapters"] if a["lora"] else lines["weights"])
    parts = {
        "weights": weights or (0 if recipe.master else recipe.weights * trained),
        "master": recipe.master * trained,
        "optimizer": optimizer_state_bytes(a, model, trained),
        "gradients": (4 if has_float32_gradients(a) else recipe.gradients) * trained,
    }
    lines = {line: gpus * -(-size // shards) for line, size in parts.items() if size}
    return lines | {"total": sum(lines.values())}


def is_paged(a: Options) -> bool:
    """Whether moments wait in the host's memory where the card has no room (bitsandbytes)."""
    return bool(a["optimizer"][:5] == "paged")


def is_eight_bit(a: Options) -> bool:
    return bool(a["optimizer"][-4:] == "8bit")


def dense_decoder(model: Model) -> Decoder:
    """Of layers that are all alike, which refuse() has seen to."""
    shape = model.decoder
    assert shape is not None
    return shape


def with_other_optimizer(a: Options, model: Model, trained: int, moments: Moments) -> Moments:
    """The moments of a step with the state of Muon or Adafactor, and its update, if that holds more than the casts of
    gradients before.

    Both go through the matrices one by one; but Adafactor's foreach has estimates of all tensors at once, and AdamW's
    the roots of all that Muon leaves to it.
    """
    recipe, update, shape = trained_recipe(a), moments["update"], dense_decoder(model)
    itemsize = recipe.optimizer // 2
    gradient_bytes = (recipe.master or recipe.gradients) * trained
    if a["optimizer"] == "muon":
        root_bytes = itemsize * (trained - muon_parameters(shape)) if a["update"] == "foreach" else 0
        temporary_bytes = max(muon_temporary_bytes(shape, itemsize), root_bytes)
    elif a["update"] == "foreach":
        temporary_bytes = itemsize * trained
    else:
        two_layers = replace(shape, layers=min(shape.layers, 2))  # each layer has one like it before it, or none
        temporary_bytes = adafactor_temporary_bytes(tensors(two_layers, not model.is_own), itemsize)
    if gradient_bytes + temporary_bytes > update["gradients"] + update["temporaries"]:
        update = update | {"gradients": gradient_bytes, "temporaries": temporary_bytes}
    state_size = optimizer_state_bytes(a, model, trained)
    return {moment: lines | {"optimizer": state_size} for moment, lines in (moments | {"update": update}).items()}


def sum_over_tensors(shape: Decoder, count: Callable[[list[tuple[int, ...]]], int]) -> int:
    """The sum of what is counted of each tensor; of a layer once, since all are alike."""
    of_one_layer = count(tensors(replace(shape, layers=1)))
    return of_one_layer + (shape.layers - 1) * (count(tensors(replace(shape, layers=2))) - of_one_layer)


def optimizer_state_bytes(a: Options, model: Model, trained: int) -> int:
    """Bytes of AdamW's two moments, of Muon's one, or of Adafactor's means; in 8 bits AdamW's, in blocks as
    bitsandbytes has them since 0.44.

    Its paged moments are in float32 if not in 8 bits. Transformers leaves those of embeddings in float32.
    """
    stack, recipe = model.stack, trained_recipe(a)
    if a["optimizer"] == "muon":
        return muon_state_bytes(dense_decoder(model), trained, recipe.optimizer // 2)
    if a["optimizer"] == "adafactor":
        return sum_over_tensors(dense_decoder(model), lambda sizes: adafactor_state_bytes(sizes, recipe.optimizer // 2))
    if a["optimizer"] == "adamw-bf16":
        return 4 * trained
    if a["optimizer"] == "adamw-4bit" or a["optimizer"] == "adamw-fp8":
        bits, block_size = TORCHAO[a["optimizer"]]
        shape, itemsize = model.decoder, RECIPES[recipe_name(a)].master or RECIPES[recipe_name(a)].weights
        if shape is None or shape.experts > 1 or a["lora"]:  # as of one tensor
            return low_bit_state_bytes([trained // block_size * block_size], bits, block_size, itemsize)
        return sum_over_tensors(
            shape, lambda sizes: low_bit_state_bytes([prod(one) for one in sizes], bits, block_size, itemsize)
        )
    if not is_eight_bit(a):
        return (RECIPES["fp32"] if is_paged(a) else recipe).optimizer * trained
    counts = parameters(stack)
    embedding_numbers = 0 if a["lora"] or model.is_own else counts["embedding"] + counts.get("positions", 0)
    return 8 * embedding_numbers + quantized_bytes(2 * (trained - embedding_numbers), 8, 256)


def flops_a_token(a: Options, model: Model, causal: bool) -> dict[str, float]:
    """FLOPs a token: the model's, the device's, those again."""
    is_known = not why_not_derived(a, model)
    return token_flops(model.stack, model_family(a, model) if is_known else None, step_config(a, model), causal)


def sent_bytes(a: Options, model: Model) -> dict[str, float]:
    """Bytes that a GPU sends in a step: of gradients that are reduced, of weights that are gathered."""
    if a["gpus"] == 1:
        return {"reduced": 0, "gathered": 0}
    trained = count_trained(a, model) if a["lora"] else 0
    return sent_parts(model.stack, recipe_name(a), a["gpus"], int(a["zero"]), a["accumulation"], trained, a["base"])


class Timing(NamedTuple):
    """What a step's time is made of."""

    zero: int
    accumulation: int
    backward_share: float  # the share of its matmuls in the backward pass
    peak_tokens_per_second: float  # at an MFU of 1
    recompute_factor: float  # how many times the FLOPs of a step that computes nothing again
    muon_seconds: float  # of Muon's matmuls at an MFU of 1, which no token shares
    network: dict[str, Any] | None
    sent_bytes: dict[str, float]
    step_tokens: int


def communication_overlap(timing: Timing, matmul_seconds: float) -> Overlap:
    """What of a step's communication its matmuls can hide: all bytes at the network's rate, without latency."""
    if not timing.network:
        return Overlap([], 0.0)
    bytes_per_second = timing.network["bytes_per_second"]
    seconds = {part: size / bytes_per_second for part, size in timing.sent_bytes.items()}
    return overlap(
        seconds["reduced"], seconds["gathered"], matmul_seconds, timing.zero, timing.accumulation, timing.backward_share
    )


def compute_seconds(timing: Timing, mfu: float) -> float:
    """Of a step's matmuls, those that are computed again among them: `mfu` is what a step without these would reach.

    Of one model on as many A100s, with 40 or 80 GB, published steps that compute again reach 0.74 to 0.89 of the MFU of
    those that do not, in six pairs: about what the FLOPs say.
    """
    return timing.recompute_factor * timing.step_tokens / (mfu * timing.peak_tokens_per_second)


def assumed_seconds(timing: Timing, mfu: float) -> float:
    """Of a step at an assumed MFU: its matmuls, what communication takes longer than those that it runs beside, Muon.

    What an optimizer in the host's memory takes, the way there and back and the update, is not in it: nothing here says
    how fast a host is.
    """
    matmul_seconds = compute_seconds(timing, mfu)
    return matmul_seconds + waiting_seconds(communication_overlap(timing, matmul_seconds)) + timing.muon_seconds / mfu


def wire(
    timing: Timing, step_seconds: float, matmul_seconds: float, tokens: int, is_told: bool
) -> dict[str, Any] | None:
    """What a GPU sends in a step, how long that takes, and from how many of a micro-batch's `tokens` matmuls hide it.

    A step whose speed was told has its waits in it, and how long these are is not known.
    """
    if not timing.network:
        return None
    size_bytes = sum(timing.sent_bytes.values())
    seconds, overlapped = size_bytes / timing.network["bytes_per_second"], communication_overlap(timing, matmul_seconds)
    waits_seconds = 0.0 if is_told else waiting_seconds(overlapped)
    return timing.network | {
        "bytes": size_bytes,
        "seconds": seconds,
        "hidden": not waits_seconds and seconds <= step_seconds,
        "waits_seconds": waits_seconds,
        "tokens": tokens * max([sending / beside if beside else 0 for sending, beside in overlapped.pairs]),
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


def published_mfu(a: dict[str, Any], has_experts: bool) -> dict[str, Any] | None:
    """What published steps of this kind reached, eight of ten of them; None of adapters, of experts and of fp8, of
    which no such MFU was found."""
    if a["lora"] or has_experts or a["matmuls"] != "as-recipe":
        return None
    gpu = a["gpu"] or ""
    cards, steps = steps_like(gpu, a["checkpointing"] in ("per-op", "full"))
    return {"cards": cards, "readings": steps.readings, "low": steps.low, "high": steps.high}


def costs_by_mfu(
    a: dict[str, Any], tokens: int | None, tokens_per_second_at: Callable[[float], float]
) -> list[dict[str, Any]]:
    """What a training takes at the MFU of a good step, and at that of a whole run, by the tokens a second there."""
    speeds = [(mfu, tokens_per_second_at(mfu)) for mfu in (STEP_MFU, RUN_MFU)]
    return [{"mfu": mfu, "tokens_per_second": speed} | cost(a, tokens, speed) for mfu, speed in speeds]


def large_batch(step_tokens: int) -> dict[str, Any] | None:
    """Of a step with more tokens than the largest dense model had: which published runs had as many."""
    usual = min(BATCHES.values())
    if step_tokens <= usual:
        return None
    as_large = [name for name, tokens in BATCHES.items() if tokens >= step_tokens]
    return {"usual": usual, "largest": max(BATCHES.values()), "as_large": as_large}


def zero_stages(a: Options) -> list[int]:
    """Of ZeRO, those that can be asked for."""
    return [] if a["gpus"] == 1 or a["optimizer"] == "adafactor" else list(range(4))


def judge_method(a: dict[str, Any], model: Model, memory_bytes: float) -> dict[str, Any]:
    """What a method needs, and whether that fits; with every layer checkpointed, where it has no room otherwise."""
    needs_bytes = needed_bytes(a, model)
    method = {"trained": a["trained"], "checkpointing": a["checkpointing"], "needs_bytes": needs_bytes}
    method |= judge_fit(a, needs_bytes, memory_bytes)
    if method["verdict"] == WITH_ROOM or a["checkpointing"] == "full":
        return method
    return judge_method(a | {"checkpointing": "full"}, model, memory_bytes)


def methods_of(a: dict[str, Any], model: Model, memory_bytes: float) -> list[dict[str, Any]]:
    """All weights, LoRA and QLoRA, each as far as it needs checkpointing."""
    return [judge_method(each, model, memory_bytes) for each in method_options(a)]


def method_options(a: dict[str, Any]) -> list[dict[str, Any]]:
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


FASTER_FORMATS = {"float32": ("tf32",), "bfloat16": ("float8", "float4"), "float16": ("float8", "float4")}


def recipe_format(recipe: str) -> str:
    return {"fp32": "float32", "autocast_fp16": "float16"}.get(recipe, "bfloat16")


def card_format(peaks: dict[str, float], recipe: str, frozen: bool) -> str:
    """The recipe's format; but 16 bits beside a float32 master, or frozen, are those that the card has units for:
    float16 on a V100 or T4, with the loss scaled."""
    dtype = recipe_format(recipe)
    is_free = recipe == "bf16_master" or (frozen and recipe == "bf16")
    cast = is_free and dtype not in peaks and "float16" in peaks
    return "float16" if cast else dtype


def measured_format(peaks: dict[str, float], dtype: str, flop_per_second: float) -> str:
    """The format by whose peak a rate that somebody measured is judged: the recipe's, or the first faster one whose
    peak is as high; the fastest if none is."""
    formats = [dtype] + [faster for faster in FASTER_FORMATS[dtype] if faster in peaks]
    return next((each for each in formats if flop_per_second <= peaks[each]), formats[-1])


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


def refuse_low_precision(a: Options, is_counted: bool, peaks: Mapping[str, float]) -> None:
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
        or (a["recipe"][:4] != "bf16" and not (a["recipe"] == "autocast" and gathers_weights(a)))
    ):
        counted = "all weights of dense models with a gated MLP, in 16 bits or gathered so by --zero 3"
        raise ValueError(f"--matmuls: {low} is counted for {counted}, not with in-backward; choose as-recipe")
    if form.keeps_copies and a["checkpointing"] == "per-op":
        raise ValueError(f"--checkpointing: per-op is counted for matmuls that keep 16 bits, not {low}; choose full")


def refuse_optimizer(a: Options, shape: Decoder | None) -> None:
    """Raises ValueError for what Muon and Adafactor are not counted with."""
    is_other = a["lora"] or a["offload"] != "no" or (a["optimizer"] == "adafactor" and a["zero"] != "0")
    if is_other or shape is None or shape.experts > 1:
        raise ValueError(f"--optimizer: {a['optimizer']} is counted for whole dense models alone; choose adamw")


def refuse_library(a: Options, model: Model) -> None:
    """Raises ValueError for what other libraries hold beside layers that differ, which is not derived."""
    is_alike, mixers = model.decoder is not None, [layer.mixer for layer, _ in model.stack.layers]
    plain = [isinstance(mixer, Attention) and not (mixer.gated or mixer.norms_over_heads) for mixer in mixers]
    others = {
        "sharding-by": not is_alike and (a["sharding_by"] == "fsdp1" or a["sharding_by"] == "fsdp1-flat"),
        "quantized-by": not is_alike and a["quantized_by"] != "bitsandbytes",
        "qkv-made": a["qkv_made"] == "one" and not all(plain),
    }
    for name, is_so in others.items():
        if is_so:
            why = f"what a training step of a {model.name} holds with it is not derived"
            raise ValueError(f"--{name}: {why}; leave it out")


def refuse(a: Options, model: Model, peaks: Mapping[str, float]) -> None:
    """Raises ValueError for what is not derived of a model's step, and for what cannot be."""
    mlps = [layer.mlp for layer, _ in model.stack.layers]
    has_experts = any([isinstance(mlp, Experts) for mlp in mlps])
    if a["sharding_by"] != "fsdp2" or a["quantized_by"] != "bitsandbytes" or a["qkv_made"] == "one":
        refuse_library(a, model)
    if a["optimizer"] == "muon" or a["optimizer"] == "adafactor":
        refuse_optimizer(a, model.decoder)
    if a["offload"] == "all" and (int(a["zero"]) < 3 or a["gpus"] == 1):
        raise ValueError(
            "--offload: all is of weights that are gathered from the host's memory; give --zero 3 and GPUs"
        )
    if a["update"] == "in-backward":
        refuse_in_backward(a, has_experts)
    if a["matmuls"] != "as-recipe":
        refuse_low_precision(
            a, not has_experts and all([mlp.gated or (model.is_own and not mlp.biases) for mlp in mlps]), peaks
        )
    if a["lora"] and a["lora"] > max(model.stack.d_model, RANK):  # the usual one is nobody's mistake
        wide = f"a rank of {a['lora']:,} is more than the model is wide, {model.stack.d_model:,}"
        raise ValueError(f"--lora: {wide}; give at most that")


def low_precision_rate(
    forward: Mapping[str, int], flop_per_second_at_16_bits: float, flop_per_second_at_8_bits: float
) -> tuple[float, float]:
    """The share of the model's FLOPs that the layers' matrices have, and FLOP/s where these are at the peak of fp8, or
    of fewer bits, and attention and the head at that of 16 bits."""
    matrices = sum([flops for part, flops in forward.items() if part not in ("scores", "values", "head", "router")])
    share = matrices / sum(forward.values())
    return share, 1 / (share / flop_per_second_at_8_bits + (1 - share) / flop_per_second_at_16_bits)


def read_format(a: dict[str, Any], peaks: dict[str, float]) -> str:
    """What matmuls are in. Raises ValueError where the card has no units for it."""
    dtype = card_format(peaks, recipe_name(a), bool(a["lora"]))
    if dtype not in peaks:
        other = {"float32": "bf16-master", "float16": "autocast", "bfloat16": "autocast-fp16"}[dtype]
        raise ValueError(f"--recipe: {a['gpu']} multiplies no {dtype}; choose --recipe {other}, or another --gpu")
    return dtype


def limits(a: Options, model: Model, memory_bytes: float) -> dict[str, Any]:
    """What a GPU holds, and what would fit."""
    if why_not_derived(a, model):
        return limits_without_activations(a, model.stack)

    def missing_bytes(**change: Any) -> float:
        return needed_bytes({**a, **change}, model) - memory_bytes

    moment, lines = peak_memory(a, model)
    too_few = largest(lambda gpus: 0.5 - missing_bytes(gpus=gpus), 2**20)  # half a byte: bytes are whole
    fewest_gpus = 1 if missing_bytes(gpus=1, zero="0") <= 0 else 1 + too_few
    paged_bytes = optimizer_state_bytes(a, model, count_trained(a, model)) if is_paged(a) else 0
    return {
        "memory_bytes": lines,
        "paged_bytes": paged_bytes // (a["gpus"] if a["zero"] != "0" else 1),
        "host_bytes": host_bytes(a, model),
        "peaks_at": moment,
        "largest_micro_batch": largest(lambda size: missing_bytes(micro_batch=size), 2**40),
        "longest_context": largest(lambda length: missing_bytes(context=length), model.stack.positions or 2**40),
        "fewest_gpus": fewest_gpus if fewest_gpus <= 2**20 else None,
        "zero_bytes": {stage: needed_bytes({**a, "zero": str(stage)}, model) for stage in zero_stages(a)},
    }


def low_precision_rates(a: Options, model: Model, peaks: Mapping[str, float], dtype: str) -> tuple[float, float]:
    """The share of a model's FLOPs that are in fewer bits than the recipe's, and FLOP/s at the peaks of both."""
    if a["matmuls"] == "as-recipe":
        return 0.0, peaks[dtype]
    part_flops = forward_flops(model.stack, a["context"], causal=a["pairs"] == "causal")
    return low_precision_rate(part_flops, peaks[dtype], peaks[FORMATS[a["matmuls"]].peak])


def step_timing(a: Options, model: Model, flops: Mapping[str, float], flop_per_second: float, peak: float) -> Timing:
    """What a step's time is made of, from the FLOPs of a token, at an MFU of 1."""
    forward = sum(forward_flops(model.stack, a["context"], causal=a["pairs"] == "causal").values()) / a["context"]
    muon_seconds = 0.0
    if a["optimizer"] == "muon":  # each matrix on one of the GPUs, where state is shared
        muon_seconds = muon_flops(dense_decoder(model)) / peak / (a["gpus"] if a["zero"] != "0" else 1)
    return Timing(
        zero=int(a["zero"]),
        accumulation=a["accumulation"],
        backward_share=1 - forward / flops["device"],
        peak_tokens_per_second=1 / training_seconds(flops["model"], a["gpus"], flop_per_second, mfu=1),
        recompute_factor=flops["device"] / (flops["device"] - flops["again"]),
        muon_seconds=muon_seconds,
        network=read_network(a),
        sent_bytes=sent_bytes(a, model),
        step_tokens=a["gpus"] * a["micro_batch"] * a["accumulation"] * a["context"],
    )


def told_step_seconds(a: Options, timing: Timing) -> float:
    """Seconds of a step, from the one of SPEEDS that was given."""
    if a["step_seconds"]:
        return float(a["step_seconds"])
    tokens_per_second: float = a["tokens_per_second"] or a["mfu"] * timing.peak_tokens_per_second
    return timing.step_tokens / tokens_per_second


def train(a: dict[str, Any], model: Model) -> dict[str, Any]:
    """What training takes, from options that are read; at least, of a kind whose steps are not derived."""
    stack, gpu = model.stack, read_gpu(a)
    peaks = gpu.peak_flop_per_second
    dtype = read_format(a, peaks)
    refuse(a, model, peaks)
    why, counts = why_not_derived(a, model), parameters(stack)
    trained = sum(counts.values()) if why else count_trained(a, model)
    memory = limits(a, model, gpu.memory_bytes)
    needs_bytes = sum(memory["memory_bytes"].values())

    flops_by_pairs = {name: flops_a_token(a, model, name == "causal") for name in ("all", "causal")}
    flops = flops_by_pairs[a["pairs"]]
    share, flop_per_second = low_precision_rates(a, model, peaks, dtype)
    timing = step_timing(a, model, flops, flop_per_second, peaks[dtype])
    step_tokens = timing.step_tokens
    speed_option = next((name for name in SPEEDS if a[name]), None)
    if speed_option:  # What was measured has all waits in it.
        step_seconds = matmul_seconds = told_step_seconds(a, timing)
    else:
        step_seconds, matmul_seconds = assumed_seconds(timing, STEP_MFU), compute_seconds(timing, STEP_MFU)
    tokens_per_second = step_tokens / step_seconds
    mfu = tokens_per_second / timing.peak_tokens_per_second
    recipe_hfu = mfu * flops["device"] / flops["model"]  # of that of the recipe's format
    is_measured = speed_option in ("tokens_per_second", "step_seconds") and a["matmuls"] == "as-recipe"
    matmul_format = measured_format(peaks, dtype, recipe_hfu * peaks[dtype]) if is_measured else dtype
    peak_ratio = peaks[dtype] / peaks[matmul_format]
    mfu, hfu = peak_ratio * mfu, peak_ratio * recipe_hfu
    if hfu > 1:
        option = (speed_option or "mfu").replace("_", "-")
        of_fastest = f", {hfu:.3g} times that of {matmul_format}" if matmul_format != dtype else ""
        raise ValueError(f"--{option}: the GPUs would do {recipe_hfu:.3g} times their peak{of_fastest}; check it")
    text = read_text(a, stack.vocab)
    asked_tokens = text["tokens"] if text else a["tokens"]
    costs = cost(a, asked_tokens, tokens_per_second)
    tokens = costs["tokens"]
    if a["matmuls"] != "as-recipe":
        low_precision: dict[str, Any] = {"format": "fp4" if a["matmuls"] == "nvfp4" else "fp8"}
        mfu_of_16_bits = mfu * flop_per_second / peaks[dtype]
        low_precision |= {"share": share, "flop_per_second": flop_per_second, "mfu_of_16_bits": mfu_of_16_bits}
        costs |= {"fp8": low_precision}

    def tokens_per_second_at(mfu: float) -> float:
        return step_tokens / assumed_seconds(timing, mfu)

    verdicts, recipe = judge_fit(a, needs_bytes, gpu.memory_bytes), trained_recipe(a)
    if len(stack.layers) > 1:  # of which none were published
        verdicts |= {"kind": ""}
    if why and needs_bytes <= gpu.memory_bytes:
        verdicts |= {"fits": None, "verdict": None}
    return (
        memory
        | {
            "parameters": counts | parameter_totals(stack) | {"trained": trained},
            "trained": a["trained"],
            "memory_bytes": memory["memory_bytes"] | {"total": needs_bytes},
            "gpu_bytes": gpu.memory_bytes,
            "gpu_bytes_are": capacity_source(a),
            "headroom_bytes": gpu.memory_bytes - needs_bytes,
            "meters": None,  # which flops_bytes.plan.meters reads of a simulated run
            "flops_a_token": flops_by_pairs,
            "step_tokens": step_tokens,
            "accumulation": a["accumulation"],
            "large_batch": large_batch(step_tokens),
            "step_seconds": step_seconds,
            "tokens_per_second": tokens_per_second,
            "mfu": mfu,
            "mfu_is_assumed": not speed_option,
            "assumed_mfu": None if speed_option else STEP_MFU,
            "hfu": hfu,
            "recipe_format": recipe_format(recipe_name(a)),
            "matmul_format": matmul_format,
            "recipe_hfu": recipe_hfu,
            "published_mfu": published_mfu(a, any([isinstance(layer.mlp, Experts) for layer, _ in stack.layers])),
            "by_mfu": [] if speed_option else costs_by_mfu(a, asked_tokens, tokens_per_second_at),
            "wire": wire(timing, step_seconds, matmul_seconds, a["micro_batch"] * a["context"], bool(speed_option)),
            "text": text,
            "training_flops": flops["model"] * tokens if tokens else None,
            "currency": a["currency"],
            "checkpoint_bytes": (recipe.weights + recipe.master) * trained + optimizer_state_bytes(a, model, trained),
            "checkpoint_weights_bytes": 2 * sum(counts.values()),
            "estimated": uncounted_parts(a, model, why),
        }
        | verdicts
        | costs
    )


def uncounted_parts(a: Options, model: Model, why: str) -> list[str]:
    """What of an answer was not counted on steps of PyTorch's."""
    layers = [layer for layer, _ in model.stack.layers]
    has_experts = any([isinstance(layer.mlp, Experts) for layer in layers])
    mixers = [layer.mixer for layer in layers if isinstance(layer.mixer, Attention)]
    has_biases_or_norms = any([mixer.head_norms or (mixer.biases and not mixer.out_bias) for mixer in mixers])
    taken_as_one = a["lora"] is not None or has_experts or len(layers) > 1  # whose tensors are taken as one
    estimated = {
        f"activations: not derived ({why})": bool(why),
        "sharding": a["gpus"] > 1,
        "8-bit state": is_eight_bit(a),
        "offload": a["offload"] != "no" or is_paged(a),
        "experts": has_experts and model.family.dequantizes_each_expert,
        "experts: all of a layer on each GPU": has_experts and a["gpus"] > 1,
        "experts: without adapters": has_experts and bool(a["lora"]),
        "queries' biases or norms": has_biases_or_norms and (model.is_own or model.name in UNCOUNTED),
        "state in few bits": (a["optimizer"] == "adamw-4bit" or a["optimizer"] == "adamw-fp8") and taken_as_one,
        "fp8 copies": a["matmuls"] != "as-recipe",
    }
    return [name for name, is_so in estimated.items() if is_so]


UNCOUNTED = ("qwen2", "qwen3")  # kinds whose steps are derived as those of a Llama with these
