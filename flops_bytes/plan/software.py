"""What a library that shards or quantizes holds beside the formulas, each line traced in its code; numbers in and out.

What stands without an option is PyTorch's fully_shard, and bitsandbytes since 0.43.2. Paths and lines are those of
PyTorch 2.13, DeepSpeed 0.11.2 (4fc181b), bitsandbytes 0.43.1 and torchao 36027d8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flops_bytes.adapters import CONSTANTS, FORMATS, Format, adapter_parameters, matrix_adapters, quantized_bytes
from flops_bytes.shapes import matmuls

if TYPE_CHECKING:
    from flops_bytes.plan.training import Setup

Moments = dict[str, dict[str, int]]
SHARDERS = ("fsdp2", "fsdp1", "fsdp1-flat", "deepspeed", "deepspeed-overlap")
QUANTIZERS = ("bitsandbytes", "bitsandbytes-0.43.1", "torchao")
REDUCE_BUCKET = 500_000_000  # numbers: deepspeed/runtime/zero/config.py, reduce_bucket_size
SUB_GROUP = 1_000_000_000  # the same, sub_group_size
BACKWARD = ("loss", "head", "last_layer", "first_layer", "embedding")


def refused(a: dict[str, Any]) -> None:
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
    if a["reduce_bucket"] and by[:9] != "deepspeed":
        raise ValueError("--reduce-bucket: it is DeepSpeed's; give --sharding-by deepspeed, or leave it out")


def with_software(setup: Setup, at: Moments) -> Moments:
    """The moments of a step, a GPU, as the named libraries hold them."""
    at = {moment: dict(lines) for moment, lines in at.items()}
    if setup.quantized_by == "torchao":
        shard_constants(setup, at)
    if setup.quantized_by == "bitsandbytes-0.43.1":
        keep_inputs(setup, at)
    if setup.lora_inputs == "float32" or setup.lora_dropout == "yes":
        keep_inputs_of_adapters(setup, at)
    if setup.qkv_made == "one":
        keep_more(setup, at, joined_values(setup))
    if setup.layers_in_fp8:
        copy_in_float8(setup, at)
    if setup.sharding_by == "fsdp1":
        keep_hooked(setup, at)
    if setup.sharding_by == "fsdp1-flat":
        keep_flat_gradients(setup, at)
    if setup.sharding_by[:9] == "deepspeed":
        buckets = Buckets(setup.zero, setup.gpus, setup.sharding_by, setup.reduce_bucket, setup.recipe, setup.rank)
        hold_buckets(at, buckets, setup.trained)
    return at


def width_of(setup: Setup) -> int:
    """Bytes of an activation, and of a gradient of a weight in its own format."""
    return 4 if setup.recipe == "fp32" else 2


def checkpointed(setup: Setup, layers: int) -> int:
    """Of so many layers from the first, those that are made again whole."""
    return -(-layers // setup.checkpoint_every) if setup.checkpointing == "full" else 0


def keep_hooked(setup: Setup, at: Moments) -> None:
    """FSDP 1 hangs a hook on the input of a unit whose weights are all frozen, and takes it off when the backward pass
    has ended (torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook).

    Under reentrant checkpointing that input is a leaf, which the hook holds, and with it the input's own gradient. So
    at the end there are two rows of the residual path for each such layer: all checkpoints, and as many gradients. The
    first layer's input is in the plan already, and the gradients of its result and, in the end, of its input.
    """
    layers = checkpointed(setup, setup.shape.layers)
    if setup.reentrant and setup.rank and setup.zero == 3 and setup.gpus > 1:
        stream = width_of(setup) * setup.micro_batch * setup.context * setup.shape.d_model
        at["first_layer"]["activations"] += max(0, 2 * layers - 3) * stream
        at["embedding"]["activations"] += (2 * layers - 1) * stream


def keep_flat_gradients(setup: Setup, at: Moments) -> None:
    """FSDP 1 makes one parameter of a layer's weights, frozen ones and adapters together (use_orig_params): its
    gradient is as large as if nothing were frozen, first in pieces, then as one, and matmuls keep inputs for it.

    While micro-batches accumulate without communication (no_sync), a GPU has all of them whole; else its share of those
    that are reduced (torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook).
    """
    if not setup.rank or setup.zero < 2 or setup.gpus == 1:
        return
    counts, shape = setup.counts, setup.shape
    ends = counts["embedding"] + counts["positions"] + counts["head"] + shape.d_model * (1 + shape.norm_shift)
    layers = width_of(setup) * (sum(counts.values()) - ends + adapter_parameters(shape, setup.rank, setup.lora_on))
    share = -(-layers // setup.gpus)
    at["update"]["gradients"] += share
    for moment in ("last_layer", "first_layer", "embedding"):
        at[moment]["reduced"] += 2 * layers // shape.layers
        at[moment]["activations"] += 0 if moment == "embedding" else unneeded_inputs(setup)
        at[moment]["gradients"] += 0 if moment == "last_layer" or setup.accumulation > 1 else share
    if setup.accumulation > 1:
        for moment in ("forward", *BACKWARD):
            at[moment]["gradients"] += layers


class Buckets(NamedTuple):
    """What DeepSpeed's depend on."""

    stage: int  # ZeRO's
    cards: int
    by: str  # "deepspeed", or with its overlap
    numbers: int | None
    format: str  # the recipe
    adapters: int  # the rank; 0: none


def hold_buckets(at: Moments, of: Buckets, trained: int) -> None:
    """DeepSpeed copies gradients into a bucket before it reduces them, however few there are.

    Stages 1 and 2 make one for each backward pass, or two to overlap (stage_1_and_2.py, backward, ipg_buffer); stage 3
    has one for good, and the gradients of its share (stage3.py, _setup_for_real_optimizer). When the optimizer steps,
    these are copied flat, and the copy is cast to float32: all in stages 1 and 2 (step), a group of parameters at a
    time in stage 3 (_prepare_fp32_grad_for_sub_group).
    """
    width, share = 4 if of.format == "fp32" else 2, -(-trained // of.cards)
    buckets = 2 if of.by == "deepspeed-overlap" and of.stage < 3 else 1
    for moment, lines in at.items():
        held = of.stage == 3 or moment in BACKWARD
        lines["reduced"] = buckets * (of.numbers or REDUCE_BUCKET) * width if held else 0
    if of.adapters or of.format != "bf16_master":
        return
    if of.stage == 3:
        for lines in at.values():
            lines["gradients"] = width * share
    at["update"]["gradients"] = width * share + (4 + width) * (min(share, SUB_GROUP) if of.stage == 3 else share)


def keep_inputs(setup: Setup, at: Moments) -> None:
    """Until its version 0.43.2 bitsandbytes kept the input of each matmul with weights in 4 bits, which no gradient
    asks for (bitsandbytes/autograd/_functions.py, MatMul4Bit.forward: ctx.tensors = (A, B)).

    Not as tensors that autograd saves: so they stay until the graph goes, when the backward pass has ended. And a layer
    that is to be made again keeps them all the same, unless checkpointing is reentrant, which runs it without autograd.
    """
    shape, layers = setup.shape, setup.shape.layers
    row = width_of(setup) * setup.micro_batch * setup.context
    product = row * shape.d_ff * shape.active_experts  # of an MLP's two halves, or what is behind GELU
    norms = 5 if has_casts(setup) else 2
    each = row * (norms * shape.d_model + shape.heads * shape.head_dim) + product
    inside = unneeded_inputs(setup) + product
    waits = 0 if setup.lora_on == "all" else inside
    made_again = layers if setup.checkpointing == "per-op" else checkpointed(setup, layers)
    again = 0 if setup.reentrant else each
    whole = waits * (layers - made_again) + again * made_again  # beside what autograd keeps
    for moment in ("forward", "loss", "head"):
        at[moment]["activations"] += whole
    own = 0 if made_again and again else inside - (0 if made_again else waits)  # the layer's that goes backward
    at["last_layer"]["activations"] += whole + own
    ended = 0 if setup.reentrant else each * layers
    at["first_layer"]["activations"] += max(inside, ended - each + inside)
    at["embedding"]["activations"] += ended


def keep_more(setup: Setup, at: Moments, layer: int, first: int = 0) -> None:
    """So many bytes more of each layer, until it has gone backward; of the first so many fewer."""
    waits = setup.shape.layers - checkpointed(setup, setup.shape.layers)
    fewer = 0 if setup.checkpointing == "full" else first
    for moment in ("forward", "loss", "head"):
        at[moment]["activations"] += layer * waits - fewer
    others = max(waits - 1, 0)
    at["last_layer"]["activations"] += layer * others - (fewer if others else 0)
    at["last_layer"]["layer"] += layer - (0 if others else fewer)
    at["first_layer"]["layer"] += layer - first


def keep_inputs_of_adapters(setup: Setup, at: Moments) -> None:
    """See adapters_inputs(). Those in float32 have no copy in 16 bits; in the first layer, below which nothing is
    trained, that of a first matrix is kept neither way, and no mask of the input."""
    first = 0
    if setup.lora_dropout == "yes":
        first += setup.micro_batch * setup.context * setup.shape.d_model * of_qkv(setup)
    if setup.lora_inputs == "float32":
        first += 2 * setup.rank * setup.shape.d_model * of_qkv(setup)
        for lines in at.values():
            lines["copies"] = 0
    keep_more(setup, at, adapters_inputs(setup), first)


def of_qkv(setup: Setup) -> int:
    """Adapters of queries, keys and values, by the matmuls that make them."""
    return 1 if setup.qkv_made == "one" else 2 if setup.lora_on == "query-value" else 3


def adapters_inputs(setup: Setup) -> int:
    """Bytes of a layer's inputs to adapters, beyond those in 16 bits that several of them share.

    Adapters of peft are in float32, and without autocast each casts its matrix's input (tuners/lora/layer.py, forward,
    x.to(lora_A.weight.dtype)); what is between its two matrices is float32 too. And each has a dropout of its own, of
    which it keeps the result, and a byte a feature of the mask; but one for queries, keys and values of one matmul.
    """
    shape, adapted, wide = setup.shape, setup.lora_on, setup.lora_inputs == "float32"
    d, attended, inner = shape.d_model, shape.heads * shape.head_dim, shape.d_ff * shape.active_experts
    made, shared = of_qkv(setup) * d, d
    if adapted != "query-value":  # a fused kernel keeps its own result
        made, shared = made + attended, shared + (0 if setup.fused else attended)
    if adapted == "all":
        made, shared = made + (2 if shape.gated else 1) * d + inner, shared + d + inner
    width = width_of(setup)
    between = (4 - width) * setup.rank * matrix_adapters(shape, adapted) if wide else 0
    each = (4 if wide else width) + (1 if setup.lora_dropout == "yes" else 0)
    return setup.micro_batch * setup.context * (each * made - width * shared + between)


def joined_values(setup: Setup) -> int:
    """Bytes of queries and keys before they are turned, which a layer keeps with its values where one matmul has made
    all three: the fused kernel is given a part of its result (LitGPT's lit_gpt/model.py, CausalSelfAttention)."""
    shape = setup.shape
    turned = (shape.heads + shape.kv_heads) * shape.head_dim if setup.fused and not shape.positions else 0
    return width_of(setup) * setup.micro_batch * setup.context * turned


def copy_in_float8(setup: Setup, at: Moments) -> None:
    """What a layer that goes backward holds more in its MLP's last matmul: copies in few bits of the result's gradient,
    twice, of the matrix and of the input, beside both gradients in 16 bits.

    torchao's function has names for all four until it ends (torchao/float8/float8_linear.py at 024fe94); each is taken
    to be made in one kernel, as by torch.compile. There a gated MLP's inner features have one gradient, not yet two.
    nanochat turns round what it has kept, and NVFP4's copies are kept turned round.
    """
    form, shape, tokens = FORMATS[setup.multiplied_in], setup.shape, setup.micro_batch * setup.context
    matrix, inner = shape.d_model * shape.d_ff, tokens * shape.d_ff
    turned = 2 * tokens * shape.d_model + (0 if form.peak == "float4" else matrix + inner)
    copies = form.bits * turned // 32
    before = 2 * (matrix if setup.accumulation > 1 else 0) - (2 * inner if shape.gated else 0)
    if form.keeps_copies:
        keep_more(setup, at, kept_copies(setup, form))
    for moment in ("last_layer", "first_layer"):
        at[moment]["temporaries"] += max(0, before + copies) - max(0, before)


def kept_copies(setup: Setup, form: Format) -> int:
    """Bytes that a layer keeps more if each matmul keeps a copy of its input and of its matrix in few bits, and nothing
    else in 16 bits that only matmuls ask for: both norms' results, the last matmul's input, and attention's result
    where attention is eager.
    """
    shape, tokens = setup.shape, setup.micro_batch * setup.context
    made = matmuls(shape)
    copies = sum([tokens * each.inputs + each.inputs * each.outputs for each in made])
    attended = 0 if setup.fused else shape.heads * shape.head_dim
    return form.bits * copies // 32 - 2 * tokens * (2 * shape.d_model + shape.d_ff + attended)


def has_casts(setup: Setup) -> bool:
    """Whether every matrix has a cast of its input of its own, as under autocast."""
    return setup.recipe[:8] == "autocast" and not (setup.zero == 3 and setup.gpus > 1) and setup.shape.gated


def unneeded_inputs(setup: Setup) -> int:
    """Bytes of inputs of a layer's frozen matmuls that neither an adapter nor fused attention keeps, but of the last.

    These are the second norm's result; under autocast, where every matrix has a cast of its own, one for each.
    """
    shape = setup.shape
    if setup.lora_on == "all":
        return 0
    casts = 2 + (setup.lora_on == "query-value") if has_casts(setup) else 1
    attended = 0 if setup.fused or setup.lora_on == "attention" else shape.heads * shape.head_dim
    return width_of(setup) * setup.micro_batch * setup.context * (casts * shape.d_model + attended)


def shard_constants(setup: Setup, at: Moments) -> None:
    """torchao's 4-bit weights are cut with their constants (nf4_tensor.py, _INNER_TENSOR_NAMES_FOR_SHARDING), which are
    gathered with them; bitsandbytes' are no parameters, so that each GPU has all of them."""
    if setup.zero < 3 or setup.gpus == 1:
        return
    matrices = setup.counts["qkv"] + setup.counts["out"] + setup.counts["mlp"]
    constants = quantized_bytes(matrices, 0, 64, CONSTANTS[setup.base])
    for moment, lines in at.items():
        lines["weights"] -= constants - -(-constants // setup.gpus)
        lines["gathered"] += 0 if moment == "update" else 2 * constants // setup.shape.layers
