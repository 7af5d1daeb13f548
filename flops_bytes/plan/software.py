"""What a library that shards or quantizes holds beside the formulas, each line traced in its code; numbers in and out.

It also refuses options of such libraries that contradict each other. What stands without an option is PyTorch's
fully_shard, and bitsandbytes since 0.43.2. Paths and lines are those of PyTorch 2.13, DeepSpeed 0.11.2 (4fc181b),
bitsandbytes 0.43.1 and torchao 36027d8.
"""

from collections.abc import Mapping
from typing import Any

from flops_bytes.memory.adapters import CONSTANTS, quantized_bytes
from flops_bytes.memory.step import moment_of
from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.model.stack import Stack, four_bit_parameters

Options = Mapping[str, Any]  # options that are read
Moments = dict[str, dict[str, int]]  # bytes by moment of a step and by line
SHARDERS = ("fsdp2", "fsdp1", "fsdp1-flat", "deepspeed", "deepspeed-overlap")
QUANTIZERS = ("bitsandbytes", "bitsandbytes-0.43.1", "torchao")
REDUCE_BUCKET = 500_000_000  # numbers: deepspeed/runtime/zero/config.py, reduce_bucket_size
SUB_GROUP = 1_000_000_000  # the same, sub_group_size
BACKWARD = ("loss", "head", "last_layer", "first_layer", "embedding")


def refuse_contradictions(a: Options) -> None:
    """Raises ValueError for what contradicts itself."""
    by, base = a["sharding_by"], a["base"]
    if a["reentrant"] == "yes" and a["checkpointing"] != "full":
        raise ValueError("--reentrant: no whole layers are checkpointed; give --checkpointing full, or leave it out")
    if by != "fsdp2" and a["zero"] == "0":
        raise ValueError(f"--sharding-by: nothing is sharded by {by}; give --zero, or leave --sharding-by out")
    if by[:4] == "fsdp" and a["zero"] != "0" and a["gpus"] == 1:
        raise ValueError(
            f"--sharding-by: {by} has no other GPU to share with; give --gpus 2 or more, or leave both out"
        )
    if by == "fsdp1-flat" and base != "as-recipe":
        raise ValueError("--sharding-by: fsdp1-flat has no weights in 4 bits; choose fsdp1, or leave --base out")
    if a["quantized_by"] != "bitsandbytes" and base == "as-recipe":
        raise ValueError(f"--quantized-by: {a['quantized_by']} has nothing in 4 bits; give --base, or leave it out")
    if a["lora_inputs"] == "float32" and (not a["lora"] or a["recipe"] not in ("bf16", "bf16-master")):
        raise ValueError(
            "--lora-inputs: only adapters beside weights of 16 bits, without autocast, cast theirs; leave it out"
        )
    if a["lora_dropout"] == "yes" and not a["lora"]:
        raise ValueError("--lora-dropout: nothing has an adapter; give --lora a rank, or leave --lora-dropout out")
    if a["reduce_bucket"] and not is_deepspeed(a):
        raise ValueError("--reduce-bucket: it is DeepSpeed's; give --sharding-by deepspeed, or leave it out")


def with_libraries(a: Options, stack: Stack, shape: Decoder | None, trained: int, moments: Moments) -> Moments:
    """The moments of a step, a GPU, as the named libraries hold them, of so many `trained` parameters."""
    moments = {moment: dict(lines) for moment, lines in moments.items()}
    if is_deepspeed(a) and a["zero"] != "0":  # as of one GPU, where nothing is sharded
        add_buckets(a, trained, moments)
    if shape is None:  # of which nothing else is asked
        return moments
    if a["quantized_by"] == "torchao":
        shard_constants(a, stack, moments)
    if a["quantized_by"] == "bitsandbytes-0.43.1":
        add_kept_inputs(a, shape, moments)
    if a["sharding_by"] == "fsdp1":
        add_hooked_inputs(a, shape, moments)
    if a["sharding_by"] == "fsdp1-flat":
        add_flat_gradients(a, shape, trained, moments)
    return moments


def add_bytes(moments: Moments, moment: str, line: str, size: int) -> None:
    """Adds bytes to a line, wherever the moment is."""
    for place, lines in moments.items():
        if moment_of(place) == moment:
            lines[line] += size


def is_deepspeed(a: Options) -> bool:
    return bool(a["sharding_by"] != "fsdp2" and a["sharding_by"][:9] == "deepspeed")


def activation_itemsize(a: Options) -> int:
    """Bytes of an activation, and of a gradient of a weight in its own format."""
    return 4 if a["recipe"] == "fp32" else 2


def feature_bytes(a: Options) -> int:
    """Bytes of one feature of all tokens."""
    row_bytes: int = activation_itemsize(a) * a["micro_batch"] * a["context"]
    return row_bytes


def gathers_weights(a: Options) -> bool:
    """Whether weights are sharded, and gathered to be multiplied."""
    return bool(a["zero"] == "3" and a["gpus"] > 1)


def checkpointed_layers(a: Options, layers: int) -> int:
    """Of so many layers from the first, those that are made again whole."""
    return -(-layers // a["checkpoint_every"]) if a["checkpointing"] == "full" else 0


def add_hooked_inputs(a: Options, shape: Decoder, moments: Moments) -> None:
    """FSDP 1 hangs a hook on the input of a unit whose weights are all frozen, and takes it off when the backward pass
    has ended (torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook).

    Under reentrant checkpointing that input is a leaf, which the hook holds, and with it the input's own gradient. So
    at the end there are two rows of the residual path for each such layer: all checkpoints, and as many gradients. The
    first layer's input is in the plan already, and the gradients of its result and, in the end, of its input.
    """
    layers = checkpointed_layers(a, shape.layers)
    if a["reentrant"] == "yes" and a["lora"] and gathers_weights(a):
        residual_bytes = feature_bytes(a) * shape.d_model
        add_bytes(moments, "first_layer", "activations", max(0, 2 * layers - 3) * residual_bytes)
        add_bytes(moments, "embedding", "activations", (2 * layers - 1) * residual_bytes)


def add_flat_gradients(a: Options, shape: Decoder, trained: int, moments: Moments) -> None:
    """FSDP 1 makes one parameter of a layer's weights, frozen ones and adapters together (use_orig_params): its
    gradient is as large as if nothing were frozen, first in pieces, then as one, and matmuls keep inputs for it.

    While micro-batches accumulate without communication (no_sync), a GPU has all of them whole; else its share of those
    that are reduced (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook).
    """
    if not a["lora"] or int(a["zero"]) < 2 or a["gpus"] == 1:
        return
    counts, accumulates = parameters(shape), a["accumulation"] > 1
    end_parameters = counts["embedding"] + counts["positions"] + counts["head"] + shape.d_model * (1 + shape.norm_shift)
    layer_gradient_bytes = activation_itemsize(a) * (sum(counts.values()) - end_parameters + trained)
    share_bytes = -(-layer_gradient_bytes // a["gpus"])
    add_bytes(moments, "update", "gradients", share_bytes)
    for moment in ("last_layer", "first_layer", "embedding"):
        add_bytes(moments, moment, "reduced", 2 * layer_gradient_bytes // shape.layers)
        add_bytes(moments, moment, "activations", 0 if moment == "embedding" else unneeded_inputs(a, shape))
        add_bytes(moments, moment, "gradients", 0 if moment == "last_layer" or accumulates else share_bytes)
    if accumulates:
        for moment in ("forward", *BACKWARD):
            add_bytes(moments, moment, "gradients", layer_gradient_bytes)


def add_buckets(a: Options, trained: int, moments: Moments) -> None:
    """DeepSpeed copies gradients into a bucket before it reduces them, however few there are.

    Stages 1 and 2 make one for each backward pass, or two to overlap (stage_1_and_2.py, backward, ipg_buffer); stage 3
    has one for good, and the gradients of its share (stage3.py, _setup_for_real_optimizer). When the optimizer steps,
    these are copied flat, and the copy is cast to float32: all in stages 1 and 2 (step), a group of parameters at a
    time in stage 3 (_prepare_fp32_grad_for_sub_group).
    """
    stage, itemsize, share_numbers = int(a["zero"]), activation_itemsize(a), -(-trained // a["gpus"])
    buckets = 2 if a["sharding_by"] == "deepspeed-overlap" and stage < 3 else 1
    for moment, lines in moments.items():
        has_bucket = stage == 3 or moment_of(moment) in BACKWARD
        lines["reduced"] = buckets * (a["reduce_bucket"] or REDUCE_BUCKET) * itemsize if has_bucket else 0
    if a["lora"] or a["recipe"] != "bf16-master":
        return
    if stage == 3:
        for lines in moments.values():
            lines["gradients"] = itemsize * share_numbers
    moments["update"]["gradients"] = itemsize * share_numbers + (4 + itemsize) * (
        min(share_numbers, SUB_GROUP) if stage == 3 else share_numbers
    )


def add_kept_inputs(a: Options, shape: Decoder, moments: Moments) -> None:
    """Until its version 0.43.2 bitsandbytes kept the input of each matmul with weights in 4 bits, which no gradient
    asks for (bitsandbytes/autograd/_functions.py, MatMul4Bit.forward: ctx.tensors = (A, B)).

    Not as tensors that autograd saves: so they stay until the graph goes, when the backward pass has ended. And a layer
    that is to be made again keeps them all the same, unless checkpointing is reentrant, which runs it without autograd.
    """
    layers, row_bytes = shape.layers, feature_bytes(a)
    product_bytes = row_bytes * shape.d_ff * shape.active_experts  # of an MLP's two halves, or what is behind GELU
    norms = 5 if has_casts(a, shape) else 2
    layer_bytes = row_bytes * (norms * shape.d_model + shape.heads * shape.head_dim) + product_bytes
    mlp_bytes = unneeded_inputs(a, shape) + product_bytes
    waiting_bytes = 0 if a["lora_on"] == "all" else mlp_bytes
    recomputed_layers = layers if a["checkpointing"] == "per-op" else checkpointed_layers(a, layers)
    again_bytes = 0 if a["reentrant"] == "yes" else layer_bytes
    # beside what autograd keeps
    all_layers_bytes = waiting_bytes * (layers - recomputed_layers) + again_bytes * recomputed_layers
    for moment in ("forward", "loss", "head"):
        add_bytes(moments, moment, "activations", all_layers_bytes)
    # the layer's that goes backward
    own_bytes = 0 if recomputed_layers and again_bytes else mlp_bytes - (0 if recomputed_layers else waiting_bytes)
    add_bytes(moments, "last_layer", "activations", all_layers_bytes + own_bytes)
    ended_bytes = 0 if a["reentrant"] == "yes" else layer_bytes * layers
    add_bytes(moments, "first_layer", "activations", max(mlp_bytes, ended_bytes - layer_bytes + mlp_bytes))
    add_bytes(moments, "embedding", "activations", ended_bytes)


def has_casts(a: Options, shape: Decoder) -> bool:
    """Whether every matrix has a cast of its input of its own, as under autocast."""
    return a["recipe"][:8] == "autocast" and not gathers_weights(a) and shape.gated


def unneeded_inputs(a: Options, shape: Decoder) -> int:
    """Bytes of inputs of a layer's frozen matmuls that neither an adapter nor fused attention keeps, but of the last.

    These are the second norm's result; under autocast, where every matrix has a cast of its own, one for each.
    """
    if a["lora_on"] == "all":
        return 0
    casts = 2 + (a["lora_on"] == "query-value") if has_casts(a, shape) else 1
    attended_features = 0 if a["attention"] == "fused" or a["lora_on"] == "attention" else shape.heads * shape.head_dim
    return feature_bytes(a) * (casts * shape.d_model + attended_features)


def shard_constants(a: Options, stack: Stack, moments: Moments) -> None:
    """torchao's 4-bit weights are cut with their constants (nf4_tensor.py, _INNER_TENSOR_NAMES_FOR_SHARDING), which are
    gathered with them; bitsandbytes' are no parameters, so that each GPU has all of them."""
    if not gathers_weights(a):
        return
    constants = quantized_bytes(four_bit_parameters(stack), 0, 64, CONSTANTS[a["base"]])
    for moment, lines in moments.items():
        lines["weights"] -= constants - -(-constants // a["gpus"])
        lines["gathered"] += 0 if moment == "update" else 2 * constants // stack.depth
