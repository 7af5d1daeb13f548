"""A layer of a stack as transformers 5.23 writes it, part by part, for flops_bytes.memory.tape. Python alone.

Each function here is one of models/<kind>/modeling_<kind>.py, with its names as long as it has them; that of experts is
grouped_mm_experts_forward() of integrations/moe.py. Symbols: b sequences of T tokens; width d; H query heads and G
key-value heads of Q features; k experts that a token goes to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from flops_bytes.memory.adapters import Format
from flops_bytes.memory.tape import (
    FLOAT32,
    INT64,
    Like,
    Tape,
    Tensor,
    adapter_matmul,
    add,
    add_scalar,
    apply_saving_input,
    apply_saving_output,
    attention_matmul,
    cast,
    concatenate,
    contiguous,
    dequantized_linear,
    dequantized_matmul,
    dropout,
    index_select,
    is_remembered,
    like,
    linear,
    low_precision_linear,
    multiply,
    multiply_scalar,
    numel,
    passed_on,
    reordered,
    slice_of,
    softmax,
    split,
    vector,
    weight,
    weight_matmul,
)
from flops_bytes.model.stack import Attention, Dense, Experts, LatentAttention, Layer


@dataclass(frozen=True)
class ModelFamily:
    """How a family of models (llama, gemma3_text, …) writes the layer that all of them have."""

    # An RMSNorm multiplies by its weights in the input's type ("scale"), in float32 ("scale_fp32"), or by 1 + w in
    # float32 ("one_plus_scale_fp32"). "kernel" is all of it in one kernel, and "layer_norm" is LayerNorm's kernel.
    norm_kind: str = "scale"
    # How rotary embeddings are applied: by "halves"; by halves in float32 and back ("cast"); to the first features
    # alone ("partly"); in "pairs" or "chunks"; as "complex" numbers in float32.
    rope: str = "halves"
    fused_qkv: bool = False  # One matmul makes queries, keys and values, so the values keep its whole result alive.
    fused_gate_up: bool = False  # One matmul makes the MLP's gate and up.
    norms_before: bool = True  # Attention and MLP are normed before.
    norms_after: bool = False  # Their results are normed too.
    routed_by: str = "softmax"
    has_sinks: bool = False
    rotary_share: float = 1.0  # Rotary embeddings take this share of a head's features (partial_rotary_factor).
    # Experts in 4 bits are dequantized one at a time: each was a module in the transformers that could train them.
    dequantizes_each_expert: bool = False
    shared_first: bool = False  # The shared expert runs before the others.
    # Layers with a window have other RoPE parameters, so they have cosines and sines of their own.
    rope_per_window: bool = False
    # Dropout behind attention and MLP is called "inside" of them, or by the layer, "beside" their result.
    dropout_place: str = ""
    # The layer is forward() of this file, or the function of own_layers.py that has this name.
    code: str = "transformers"


LLAMA, MIXTRAL = ModelFamily(), ModelFamily(routed_by="scores", dequantizes_each_expert=True)
FAMILIES = {
    "qwen3_moe": ModelFamily(),
    "mixtral": MIXTRAL,
    "deepseek_v3": ModelFamily(rope="pairs", routed_by="sigmoid"),
    "deepseek_v2": ModelFamily(rope="complex", routed_by="wide softmax"),
    "kimi_k2": ModelFamily(rope="pairs", routed_by="sigmoid"),
    "glm4_moe": ModelFamily(rope="partly", routed_by="sigmoid", rotary_share=0.5),
    "glm4_moe_lite": ModelFamily(rope="pairs", routed_by="sigmoid"),
    "minimax_m2": ModelFamily(rope="partly", routed_by="scores", rotary_share=0.5),
    "dots1": ModelFamily(routed_by="sigmoid"),
    "seed_oss": ModelFamily(dropout_place="inside"),
    "olmoe": ModelFamily(),
    "qwen2_moe": ModelFamily(shared_first=True),
    "gpt_oss": ModelFamily(norm_kind="scale_fp32", rope="chunks", routed_by="logits", has_sinks=True),
    "gemma3_text": ModelFamily(norm_kind="one_plus_scale_fp32", norms_after=True, rope_per_window=True),
    "olmo2": ModelFamily(norm_kind="scale_fp32", rope="cast", norms_before=False, norms_after=True),
    "olmo3": ModelFamily(
        norm_kind="scale_fp32", rope="cast", norms_before=False, norms_after=True, rope_per_window=True
    ),
    "smollm3": ModelFamily(),
    "phi3": ModelFamily(rope="partly", fused_qkv=True, fused_gate_up=True, dropout_place="beside"),
    "mistral": ModelFamily(),
    "qwen3": ModelFamily(),
    "llama": LLAMA,
}


# The matrices of a layer that get adapters, by what they are called here; a router and experts have none, which
# transformers holds as parameters and not as linear modules.
QUERY_VALUE = ("q", "v", "qkv", "q_b", "kv_b")
ATTENTION = (*QUERY_VALUE, "k", "out", "q_a", "kv_a")
ADAPTED = {"query-value": QUERY_VALUE, "attention": ATTENTION, "all": (*ATTENTION, "gate", "up", "down", "gate_up")}


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters: their rank, the matrices that get one, and whether the frozen matrices are in 4 bits."""

    rank: int
    target_modules: str = "all"  # One of ADAPTED's keys.
    four_bit: bool = False
    in_float32: bool = False  # Adapters multiply in float32, as peft's do without autocast.
    drops_out_inputs: bool = False


NO_DROPOUT = (False, False)


class Ranks(NamedTuple):
    """GPUs that share what a layer multiplies; its heads and features are those of one of them."""

    tensor_ranks: int = 1  # They share each matrix,
    sequence: bool = True  # and between matrices the tokens.
    context_ranks: int = 1  # They share each sequence, of which a layer has its part,
    ring: bool = False  # and keys and values go around; else they are gathered.
    expert_ranks: int = 1  # They hold different experts,
    whole_experts: bool = False  # and so do tensor ranks, which share the matrices of none.


@dataclass(frozen=True)
class LayerContext:
    """What a layer's functions need beside their inputs: the tape, the family, and the options of the step."""

    tape: Tape
    family: ModelFamily
    name: str  # Weights' names begin with it.
    cos_sin: tuple[Tensor, Tensor]  # Cosines and sines are made once for all layers.
    mask: Tensor | None  # Only eager attention is given a mask.
    attention: str = "fused"  # By one kernel; "math": by PyTorch's own operations; "eager": by the module's.
    adapters: Adapters | None = None  # With adapters all other weights are frozen.
    # Whether attention's probabilities are dropped out, and the results of attention and MLP.
    dropout: tuple[bool, bool] = NO_DROPOUT
    recomputes_attention: bool = False  # Selective checkpointing recomputes attention alone.
    matmul_format: Format | None = None  # Linear layers multiply copies of their factors in this format.
    ranks: Ranks | None = None


def gathered(context: LayerContext, x: Tensor) -> Tensor:
    """Of a part of the tokens all of them, before a matrix that tensor ranks share. Collectives go over the first
    dimension, so that the pieces are copied behind each other (torch/distributed/_functional_collectives.py)."""
    tape, ranks = context.tape, context.ranks
    if isinstance(ranks, Ranks) and ranks.tensor_ranks > 1 and ranks.sequence:
        shape = (x.shape[0], x.shape[1] * ranks.tensor_ranks, x.shape[2])
        tape.enter()
        x = tape.bind(x)
        made = tape.record([x], [], [like(x)], like(x).total_bytes() * ranks.tensor_ranks)
        tape.bind(tape.new(shape, x.itemsize))
        return tape.leave(tape.finish(made, [x], tape.new(shape, x.itemsize)))
    return x


def scattered(context: LayerContext, x: Tensor) -> Tensor:
    """The sum of all tensor ranks' results, of a part of the tokens."""
    tape, ranks = context.tape, context.ranks
    if isinstance(ranks, Ranks) and ranks.tensor_ranks > 1 and ranks.sequence:
        tape.enter()
        x = tape.bind(x)
        made = tape.record([x], [], [like(x)], like(x).total_bytes())
        tape.bind(tape.new(x.shape, x.itemsize))
        shape = (x.shape[0], x.shape[1] // ranks.tensor_ranks, x.shape[2])
        return tape.leave(tape.finish(made, [x], tape.new(shape, x.itemsize)))
    return x


def takes_own_tokens(context: LayerContext, mlp: Dense | Experts) -> bool:
    """Whether a tensor rank has whole experts, and gathers no tokens for them but those that are sent to it."""
    return isinstance(context.ranks, Ranks) and context.ranks.whole_experts and isinstance(mlp, Experts)


def gathered_for(mlp: Dense | Experts, context: LayerContext, x: Tensor) -> Tensor:
    return x if takes_own_tokens(context, mlp) else gathered(context, x)


def scattered_from(mlp: Dense | Experts, context: LayerContext, x: Tensor) -> Tensor:
    return x if takes_own_tokens(context, mlp) else scattered(context, x)


def layer_linear(
    context: LayerContext, x: Tensor, part_of: str, which: str, outputs: int, biased: bool = False
) -> Tensor:
    """A matrix of a layer, with an adapter beside it if it has one: W·x + up·(down·x), the last two in float32 and cast
    to what they multiply (Hu et al. 2021)."""
    tape, adapters, name = context.tape, context.adapters, f"{part_of}.{which}"
    if adapters is None or which not in ADAPTED[adapters.target_modules]:
        return base_linear(context, x, name, outputs, biased)
    if adapters.in_float32 and not tape.autocast:
        return float32_adapter(context, x, name, outputs, biased)
    tape.enter()
    x = tape.bind(x)
    down = tape.bind(cast(tape, tape.leaf(f"{name}.down", (adapters.rank, x.shape[-1]), FLOAT32), x.itemsize))
    up = tape.bind(cast(tape, tape.leaf(f"{name}.up", (outputs, adapters.rank), FLOAT32), x.itemsize))
    own = base_linear(context, x, name, outputs, biased)
    return tape.leave(
        add(
            tape,
            own,
            adapter_matmul(tape, adapter_matmul(tape, dropout(tape, x) if adapters.drops_out_inputs else x, down), up),
        )
    )


def float32_adapter(context: LayerContext, x: Tensor, name: str, outputs: int, biased: bool) -> Tensor:
    """The same as peft writes it (tuners/lora/layer.py, Linear.forward): its input is cast, and its result last."""
    tape, adapters = context.tape, context.adapters
    assert adapters is not None
    tape.enter()
    own = tape.bind(base_linear(context, tape.bind(x), name, outputs, biased))
    wide = tape.bind(cast(tape, x, FLOAT32))
    down = tape.leaf(f"{name}.down", (adapters.rank, x.shape[-1]), FLOAT32)
    up = tape.leaf(f"{name}.up", (outputs, adapters.rank), FLOAT32)
    made = adapter_matmul(
        tape, adapter_matmul(tape, dropout(tape, wide) if adapters.drops_out_inputs else wide, down), up
    )
    both = tape.bind(add(tape, own, multiply_scalar(tape, made)))
    tape.forget(own)
    return tape.leave(cast(tape, both, x.itemsize))


def base_linear(context: LayerContext, x: Tensor, name: str, outputs: int, biased: bool = False) -> Tensor:
    """A linear layer without its adapter: dequantized from 4 bits, in fewer bits, or plain (peft's base_layer)."""
    if context.adapters is not None and context.adapters.four_bit:
        return dequantized_linear(context.tape, x, outputs)
    if context.matmul_format:
        return low_precision_linear(context.tape, x, name, outputs, context.matmul_format, biased)
    return linear(context.tape, x, name, outputs, biased)


def norm(context: LayerContext, x: Tensor, name: str, features: int = 0) -> Tensor:
    """An RMSNorm: in float32, of operations."""
    tape, weights, itemsize = (
        context.tape,
        vector(context.tape, f"{context.name}.{name}", (features or x.shape[-1],)),
        x.itemsize,
    )
    if context.family.norm_kind in ("kernel", "layer_norm"):
        return fused_norm(context, x, name, weights)
    tape.enter()
    if context.family.norm_kind == "one_plus_scale_fp32":
        x = tape.bind(x)
        output = multiply(tape, normed(tape, cast(tape, x, FLOAT32)), add_scalar(tape, cast(tape, weights, FLOAT32)))
        return tape.leave(cast(tape, output, itemsize))
    x = tape.bind(cast(tape, x, FLOAT32))
    variance = tape.bind(mean(tape, squared(tape, x)))
    narrow = tape.bind(multiply(tape, x, apply_saving_output(tape, add_scalar(tape, variance), temporaries=2)))
    tape.forget(x)
    if context.family.norm_kind == "scale_fp32":
        return tape.leave(cast(tape, multiply(tape, weights, narrow), itemsize))
    return tape.leave(multiply(tape, weights, cast(tape, narrow, itemsize)))


def fused_norm(context: LayerContext, x: Tensor, name: str, weights: Tensor) -> Tensor:
    """A norm in one kernel, which keeps its input, and a float32 a row: the scale; of LayerNorm the mean too."""
    tape, is_shifted = context.tape, context.family.norm_kind == "layer_norm"
    inputs = [x, weights, vector(tape, f"{context.name}.{name}.shift", weights.shape)] if is_shifted else [x, weights]
    tape.enter()
    inputs[0] = tape.bind(x)
    statistics = tape.bind(tape.new((2 if is_shifted else 1, numel(x.shape[:-1])), FLOAT32))
    return tape.leave(tape.apply(inputs, x.shape, x.itemsize, [x, statistics], [like(each) for each in inputs]))


def normed(tape: Tape, x: Tensor) -> Tensor:
    """Gemma's RMSNorm, whose code has no name for the mean."""
    tape.enter()
    x = tape.bind(x)
    return tape.leave(
        multiply(tape, x, apply_saving_output(tape, add_scalar(tape, mean(tape, squared(tape, x))), temporaries=2))
    )


def squared(tape: Tape, x: Tensor) -> Tensor:
    """x². Backward, PyTorch makes a power of x, twice that, and its product with the gradient."""
    return apply_saving_input(tape, x, temporaries=2)


def mean(tape: Tape, x: Tensor) -> Tensor:
    """Over features."""
    return tape.apply([x], (*x.shape[:-1], 1), x.itemsize, [], [like(x)])


def apply_rotary(context: LayerContext, x: Tensor) -> Tensor:
    """apply_rotary_pos_emb(), of queries or of keys: (b, H, T, Q)."""
    tape, (cosines, sines) = context.tape, context.cos_sin
    before, half = x.shape[:-1], x.shape[-1] // 2
    tape.enter()
    x = tape.bind(x)
    if context.family.rope == "chunks":
        first, second = [tape.bind(each) for each in split(tape, x, (half, half))]
        one = tape.bind(add(tape, multiply(tape, first, cosines), multiply_scalar(tape, multiply(tape, second, sines))))
        other = add(tape, multiply(tape, second, cosines), multiply(tape, first, sines))
        return tape.leave(concatenate(tape, [one, other]))
    if context.family.rope == "pairs":
        one, other = tape.bind(slice_of(tape, x, (*before, half))), tape.bind(slice_of(tape, x, (*before, half)))
        return tape.leave(
            concatenate(
                tape,
                [
                    subtract(tape, multiply(tape, one, cosines), multiply(tape, other, sines)),
                    add(tape, multiply(tape, other, cosines), multiply(tape, one, sines)),
                ],
            )
        )
    if context.family.rope == "partly":
        wide = int(x.shape[-1] * context.family.rotary_share)
        turned = tape.bind(slice_of(tape, x, (*before, wide)))
        rest = tape.bind(slice_of(tape, x, (*before, x.shape[-1] - wide)))
        return tape.leave(concatenate(tape, [apply_rotary_halves(context, turned), rest]))
    if context.family.rope == "complex":
        return tape.leave(cast(tape, multiply(tape, cast(tape, x, FLOAT32), cosines), x.itemsize))
    turned = apply_rotary_halves(context, x)
    return tape.leave(cast(tape, turned, x.itemsize) if context.family.rope == "cast" else turned)


def subtract(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """x − y: the gradient of x passes through, that of y is a new tensor."""
    return tape.apply([x, y], x.shape, x.itemsize, [], [passed_on(x), like(y)])


def apply_rotary_halves(context: LayerContext, x: Tensor) -> Tensor:
    tape, (cosines, sines) = context.tape, context.cos_sin
    tape.enter()
    x = tape.bind(x)
    one = tape.bind(multiply(tape, x, cosines))
    return tape.leave(add(tape, one, multiply(tape, rotate_half(tape, x), sines)))


def rotate_half(tape: Tape, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    tape.enter()
    x = tape.bind(x)
    first, second = tape.bind(slice_of(tape, x, half)), tape.bind(slice_of(tape, x, half))
    return tape.leave(concatenate(tape, [multiply_scalar(tape, second), first]))


def attend(context: LayerContext, q: Tensor, k: Tensor, v: Tensor, eager: Callable[..., Tensor]) -> Tensor:
    """Attention of queries (b, H, T, Q), keys (b, G, T, Q) and values (b, G, T, v): (b, T, H · v)."""
    make = math_attention if context.attention == "math" else fused_attention if context.mask is None else eager
    if not context.recomputes_attention:
        return make(context, q, k, v)
    tape = context.tape
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    kept = [q, k, v, *([] if context.mask is None else [context.mask])]
    return tape.leave(tape.checkpoint(lambda: make(context, q, k, v), kept))


def fused_attention(context: LayerContext, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Flash attention: one kernel, which saves its inputs, its result and a float32 for each row of scores."""
    tape = context.tape
    tape.enter()
    inputs = [tape.bind(cast(tape, each, 2) if tape.autocast else each) for each in (q, k, v)]
    batch, heads, tokens, _ = q.shape
    result = tape.matmul_result((batch, tokens, heads * v.shape[-1]), inputs[0].itemsize, True, "scores", 1)
    sums = tape.bind(tape.matmul_result((batch, heads, tokens), FLOAT32, True, "values", 1))
    # The kernel makes all three gradients, even those that nobody needs.
    unasked = sum(like(each).total_bytes() for each in inputs if each.grad_fn is None)
    if isinstance(context.ranks, Ranks):
        of_others = bytes_of_others(context.ranks, inputs[1], inputs[2])
        tape.bind(tape.new((of_others,), 1))
        unasked += 2 * of_others
    made = tape.record(inputs, [*inputs, result, sums], [like(each) for each in inputs], unasked)
    if made is not None:
        made.matmul_part = "fused"
    tape.forget(sums)
    result = tape.finish(made, inputs, result)
    # The result has the queries' layout in memory, which after a join is head by head, so several are copied.
    by_heads = context.family.rope in ("chunks", "partly") and heads > 1
    return tape.leave(contiguous(tape, result) if by_heads else result)


def bytes_of_others(ranks: Ranks, k: Tensor, v: Tensor) -> int:
    """Of keys and values of a sequence's other parts, which are there while a rank attends: all, or in a ring those
    that are there and those that arrive. Backward there are as many gradients."""
    times = 0 if ranks.context_ranks == 1 else 2 if ranks.ring else ranks.context_ranks - 1
    return times * (like(k).total_bytes() + like(v).total_bytes())


def math_attention(context: LayerContext, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's attention without a kernel: _scaled_dot_product_attention_math() in ATen's attention.cpp. Queries and
    keys are scaled before they are multiplied, and the mask is added to the scores in place."""
    tape, (batch, heads, tokens, _) = context.tape, q.shape
    of_scores = batch, heads, tokens, tokens
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    scaled_q = tape.bind(multiply_scalar(tape, q))
    tape.bind(tape.new((tokens, tokens), q.itemsize))  # The mask.
    keys, values = tape.bind(repeat_interleave(tape, k, heads)), tape.bind(repeat_interleave(tape, v, heads))
    by_tokens = batch > 1 and heads > 1 and context.family.rope not in ("chunks", "partly")
    scores = batched_matmul(tape, scaled_q, multiply_scalar(tape, keys), of_scores, (by_tokens, False), "scores")
    made = softmax(tape, tape.bind(scores))
    tape.new(of_scores, 1)  # _safe_softmax() looks for rows without a score.
    tape.forget(scores)
    made = dropout(tape, made) if context.dropout[0] else made
    result = batched_matmul(tape, made, values, (batch, heads, tokens, v.shape[-1]), (False, False), "values")
    return tape.leave(result if context.family.code != "transformers" else by_token(tape, result))


def repeat_interleave(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """A copy, of one head too, in which each key-value head stands once for each of its query heads."""
    return tape.apply([x], (x.shape[0], heads, *x.shape[2:]), x.itemsize, [], [like(x)])


def shares_of(context: LayerContext, masked: Tensor, itemsize: int, in_float32: bool) -> Tensor:
    """Masked scores as the shares of values that they stand for; the scores are forgotten on the way."""
    tape = context.tape
    wide = cast(tape, masked, FLOAT32) if in_float32 or tape.autocast else masked
    shares = cast(tape, softmax(tape, wide), itemsize)
    tape.forget(masked)
    return dropout(tape, shares) if context.dropout[0] else shares


def shares_beside_sinks(context: LayerContext, masked: Tensor, itemsize: int) -> Tensor:
    """The same where each head has a sink, whose column takes a share that no value gets: gpt-oss."""
    tape = context.tape
    joined_scores = tape.bind(concatenate(tape, [masked, sink_column(context, masked)]))
    below_zero = tape.bind(add(tape, joined_scores, largest(tape, joined_scores)))
    tape.forget(joined_scores)
    probabilities = tape.bind(softmax(tape, below_zero))
    tape.forget(below_zero)
    own = slice_of(tape, probabilities, masked.shape)
    tape.forget(masked)
    return cast(tape, dropout(tape, own) if context.dropout[0] else own, itemsize)


def eager_attention(context: LayerContext, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """eager_attention_forward(): T × T scores a head, and keys and values once a query head."""
    tape, mask = context.tape, context.mask
    assert mask is not None
    batch, heads, tokens, _ = q.shape
    of_scores = batch, heads, tokens, tokens
    has_rows_to_join = batch > 1 and heads > 1
    # Queries and keys lie token by token, unless they were joined.
    by_tokens = context.family.rope in ("halves", "cast")
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    keys, values = tape.bind(repeat_kv(tape, k, heads)), tape.bind(repeat_kv(tape, v, heads))
    copies_queries = has_rows_to_join and by_tokens
    copies_keys = has_rows_to_join and (k.shape[1] == 1 or (k.shape[1] == heads and by_tokens))
    product = batched_matmul(tape, q, keys, of_scores, (copies_queries, copies_keys), "scores")
    scores = tape.bind(multiply_scalar(tape, product))
    masked = tape.bind(add(tape, scores, mask))
    tape.forget(scores)
    is_gpt2 = context.family.code == "gpt2"
    if context.family.has_sinks:
        shares = shares_beside_sinks(context, masked, values.itemsize)
    else:
        shares = shares_of(context, masked, (v if is_gpt2 else q).itemsize, in_float32=not is_gpt2)
    copies_values = has_rows_to_join and v.shape[1] in (1, heads)
    shares = tape.bind(shares) if context.recomputes_attention else tape.bind_in(shares, tape.layer_frame)
    result = batched_matmul(tape, shares, values, (batch, heads, tokens, v.shape[-1]), (False, copies_values), "values")
    return tape.leave(result if is_gpt2 else by_token(tape, result))


def by_token(tape: Tape, x: Tensor) -> Tensor:
    """Of (b, H, T, Q) a copy in which each token's heads lie beside each other: (b, T, H · Q)."""
    batch, heads, tokens, features = x.shape
    made = contiguous(tape, x) if batch > 1 and heads > 1 else laid_out(tape, x)
    return tape.view(made, (batch, tokens, heads * features))


def sink_column(context: LayerContext, scores: Tensor) -> Tensor:
    """One learned score a head, beside those of each row: a view of the weights."""
    tape, heads = context.tape, scores.shape[1]
    sinks = vector(tape, f"{context.name}.sinks", (heads,))
    made = tape.record([sinks], [], [like(sinks)])
    return tape.finish(made, [sinks], tape.tensor((*scores.shape[:-1], 1), sinks.itemsize, sinks.storage))


def largest(tape: Tape, x: Tensor) -> Tensor:
    """The largest score of each row. Backward, its gradient is as large as the scores, and so is a temporary."""
    rows_of = (*x.shape[:-1], 1)
    result, places = tape.new(rows_of, x.itemsize), tape.new(rows_of, INT64)
    made = tape.record([x], [places], [like(x)], like(x).total_bytes())
    return tape.finish(made, [x, places], result)


def repeat_kv(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """repeat_kv(): each key-value head once for each of its query heads. A single head is only expanded, a view."""
    batch, own, tokens, features = x.shape
    if heads == own:
        return x
    shape = batch, heads, tokens, features
    made = tape.record([x], [], [Like(shape, x.itemsize, passes_on=True)])  # The copies' gradients are summed.
    result = tape.tensor(shape, x.itemsize, x.storage) if own == 1 else tape.new(shape, x.itemsize)
    return tape.finish(made, [x], result)


def batched_matmul(
    tape: Tape, x: Tensor, y: Tensor, shape: tuple[int, ...], apart: tuple[bool, bool], part_of: str
) -> Tensor:
    """A matmul of two with four dimensions, in 16 bits under autocast. It takes all heads of all sequences in one row:
    of what does not lie so a copy is made."""
    if tape.autocast:
        x, y = cast(tape, x, 2), cast(tape, y, 2)
    x, y = laid_out(tape, x) if apart[0] else x, laid_out(tape, y) if apart[1] else y
    return attention_matmul(tape, x, y, shape, part_of)


def laid_out(tape: Tape, x: Tensor) -> Tensor:
    """A copy in another order, whose gradient is a view of that of the copy."""
    return tape.apply([x], x.shape, x.itemsize, [], [passed_on(x)])


def attention(context: LayerContext, x: Tensor, mixer: Attention) -> Tensor:
    """Attention with its four linear layers, with norms of queries and keys where the family has them."""
    tape, name = context.tape, context.name
    batch, tokens, d = x.shape
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    of_queries = batch, mixer.heads, tokens, mixer.head_dim
    of_keys = batch, mixer.kv_heads, tokens, mixer.head_dim
    tape.enter()
    x = tape.bind(x)
    if context.family.fused_qkv:
        qkv = tape.bind(layer_linear(context, x, name, "qkv", wide + 2 * narrow, mixer.biases))
        straight_q, straight_k = slice_of(tape, qkv, of_queries), slice_of(tape, qkv, of_keys)
        v = tape.bind(slice_of(tape, qkv, of_keys))
    else:
        straight_q = query(context, x, "q", mixer, of_queries)
        straight_k = query(context, x, "k", mixer, of_keys)
        v = tape.bind(tape.view(layer_linear(context, x, name, "v", narrow, mixer.biases), of_keys))
    straight_q, straight_k = tape.bind(straight_q), tape.bind(straight_k)
    q, k = tape.bind(apply_rotary(context, straight_q)), tape.bind(apply_rotary(context, straight_k))
    tape.forget(straight_q)
    tape.forget(straight_k)
    result = attend(context, q, k, v, eager_attention)
    return tape.leave(dropout_within(context, layer_linear(context, result, name, "out", d, mixer.out_bias)))


def dropout_within(context: LayerContext, x: Tensor) -> Tensor:
    """Dropout of a result of attention or MLP, in families that call it there."""
    return dropout(context.tape, x) if context.dropout[1] and context.family.dropout_place == "inside" else x


def query(context: LayerContext, x: Tensor, which: str, mixer: Attention, heads: tuple[int, ...]) -> Tensor:
    """Queries or keys, by head, with the norms that they have."""
    tape = context.tape
    tape.enter()
    x = tape.bind(x)
    made = tape.bind(layer_linear(context, x, context.name, which, heads[1] * mixer.head_dim, mixer.biases))
    if mixer.head_norms:
        by_head = tape.view(reordered(tape, made), heads)
        return tape.leave(norm(context, by_head, f"{which}_norm", mixer.head_dim))
    if mixer.norms_over_heads:
        made = norm(context, made, f"{which}_norm")
    return tape.leave(tape.view(reordered(tape, made), heads))


def latent_attention(context: LayerContext, x: Tensor, mixer: LatentAttention) -> Tensor:
    """DeepseekV3Attention: keys are put together in a new tensor, of what is expanded and what all heads share."""
    tape, name = context.tape, context.name
    batch, tokens, d = x.shape
    features = mixer.nope_dim + mixer.rope_dim
    tape.enter()
    x = tape.bind(x)
    if mixer.q_lora_rank:
        small_q = tape.bind(layer_linear(context, x, name, "q_a", mixer.q_lora_rank, mixer.biases))
        q = layer_linear(context, norm(context, small_q, "q_norm"), name, "q_b", mixer.heads * features)
        tape.forget(small_q)
    else:
        q = layer_linear(context, x, name, "q", mixer.heads * features)
    q = tape.bind(tape.view(reordered(tape, q), (batch, mixer.heads, tokens, features)))
    unturned, straight = [tape.bind(each) for each in split(tape, q, (mixer.nope_dim, mixer.rope_dim))]
    compressed = tape.bind(layer_linear(context, x, name, "kv_a", mixer.kv_lora_rank + mixer.rope_dim, mixer.biases))
    raw, straight_key = [tape.bind(each) for each in split(tape, compressed, (mixer.kv_lora_rank, mixer.rope_dim))]
    narrow = tape.bind(norm(context, raw, "kv_norm"))
    turned = tape.bind(apply_rotary(context, straight))
    key = tape.bind(apply_rotary(context, tape.view(straight_key, (batch, 1, tokens, mixer.rope_dim))))
    queries = tape.bind(concatenate(tape, [unturned, turned]))
    keys, values = [tape.bind(each) for each in expand_latent(context, narrow, key, mixer)]
    result = attend(context, queries, keys, values, eager_attention)
    return tape.leave(layer_linear(context, result, name, "out", d, mixer.biases))


def expand_latent(
    context: LayerContext, compressed: Tensor, key: Tensor, mixer: LatentAttention
) -> tuple[Tensor, Tensor]:
    """expand_kv(). Backward has zeros as large as the keys twice, and a copy of what all heads share."""
    tape = context.tape
    batch, _, tokens, _ = key.shape
    heads = batch, mixer.heads, tokens
    features = mixer.nope_dim + mixer.v_head_dim
    tape.enter()
    both = reordered(tape, layer_linear(context, compressed, context.name, "kv_b", mixer.heads * features))
    both = tape.bind(tape.view(both, (*heads, features)))
    unturned, values = [tape.bind(each) for each in split(tape, both, (mixer.nope_dim, mixer.v_head_dim))]
    whole = Like((*heads, mixer.nope_dim + mixer.rope_dim), both.itemsize)
    zeros, shared = whole.total_bytes(), Like((*heads, mixer.rope_dim), key.itemsize).total_bytes()
    keys = tape.apply([unturned, key], whole.shape, whole.itemsize, [], [like(unturned), like(key)], 2 * zeros + shared)
    return tape.leave_both(keys, values)


def dense(context: LayerContext, x: Tensor, inner: int, name: str, biases: bool = False) -> Tensor:
    """down(act(gate(x)) · up(x))."""
    tape, d, name = context.tape, x.shape[-1], f"{context.name}.{name}"
    tape.enter()
    x = tape.bind(x)
    if context.family.fused_gate_up:
        both = tape.bind(layer_linear(context, x, name, "gate_up", 2 * inner))
        gate, up = [tape.bind(each) for each in split(tape, both, (inner, inner))]
        return tape.leave(layer_linear(context, multiply(tape, up, apply_saving_input(tape, gate)), name, "down", d))
    gate = tape.bind(apply_saving_input(tape, layer_linear(context, x, name, "gate", inner, biases)))
    product_of_both = multiply(tape, gate, layer_linear(context, x, name, "up", inner, biases))
    tape.forget(gate)
    return tape.leave(dropout_within(context, layer_linear(context, product_of_both, name, "down", d, biases)))


def route(context: LayerContext, x: Tensor, mlp: Experts) -> tuple[Tensor, Tensor]:
    """The router: of tokens (b · T, d) the indices of their experts and the weights of these, (b · T, k) each."""
    tape, tokens, name = context.tape, x.shape[0], f"{context.name}.router"
    chosen = tokens, mlp.active
    tape.enter()
    x = tape.bind(x)
    if context.family.routed_by == "logits":  # GptOssTopKRouter
        logits = tape.bind(linear(tape, x, name, mlp.experts, mlp.router_bias))
        experts = tape.bind(tape.new(chosen, INT64))
        return tape.leave_both(experts, softmax(tape, index_select(tape, logits, experts, chosen)))
    # Qwen3MoeTopKRouter; MiniMaxM2TopKRouter, whose shares stay wide
    if context.family.routed_by in ("softmax", "scores"):
        logits = tape.bind(linear(tape, x, name, mlp.experts, mlp.router_bias))
        wide = context.family.routed_by == "scores"
        of_float32 = cast(tape, logits, FLOAT32)
        scores = tape.bind(apply_saving_output(tape, of_float32) if wide else softmax(tape, of_float32))
        experts = tape.bind(tape.new(chosen, INT64))
        shares = tape.bind(index_select(tape, scores, experts, chosen))
        return tape.leave_both(experts, multiply_scalar(tape, shares) if wide else cast(tape, shares, logits.itemsize))
    matrix = vector(tape, name, (mlp.experts, x.shape[-1]))  # DeepseekV2TopkRouter, DeepseekV3TopkRouter: in float32
    of_float32 = cast(tape, x, FLOAT32)
    both = [of_float32, cast(tape, matrix, FLOAT32)]
    logits = tape.bind(weight_matmul(tape, both, (tokens, mlp.experts), is_remembered(tape)))
    is_softmax = context.family.routed_by == "wide softmax"
    scores = tape.bind(softmax(tape, logits) if is_softmax else apply_saving_output(tape, logits))
    experts = tape.bind(tape.new(chosen, INT64))
    return tape.leave_both(experts, multiply_scalar(tape, index_select(tape, scores, experts, chosen)))


def experts(context: LayerContext, x: Tensor, chosen: Tensor, shares: Tensor, mlp: Experts) -> Tensor:
    """grouped_mm_experts_forward(): each token stands there once for each of its experts, sorted by these."""
    tape, (tokens, d), inner = context.tape, x.shape, mlp.d_ff
    copies = tokens * mlp.active
    tape.enter()
    x, chosen, shares = [tape.bind(each) for each in (x, chosen, shares)]
    sorted_experts, order = tape.bind(tape.new((copies,), INT64)), tape.bind(tape.new((copies,), INT64))
    selected = tape.bind(index_select(tape, x, tape.new((copies,), INT64), (copies, d)))
    sorted_shares = tape.bind(index_select(tape, shares, order, (copies,)))
    biases = biases_of(context, "gate_up", mlp, 2 * inner, sorted_experts)
    both = tape.bind(grouped_matmul(context, selected, "gate_up", mlp.experts, 2 * inner, biases))
    made = tape.bind(gated(context, both, inner))
    tape.forget(both)
    below = biases_of(context, "down", mlp, d, sorted_experts)
    for each in biases:
        tape.forget(each)
    down = tape.bind(grouped_matmul(context, made, "down", mlp.experts, d, below))
    tape.forget(made)
    weighted = tape.bind(multiply(tape, down, tape.view(sorted_shares, (copies, 1))))
    back = tape.bind(tape.new((copies,), INT64))
    in_order = tape.bind(index_select(tape, weighted, back, (copies, d)))
    tape.forget(weighted)
    return tape.leave(cast(tape, sum_over_experts(tape, in_order, tokens), x.itemsize))


def biases_of(context: LayerContext, name: str, mlp: Experts, outputs: int, chosen: Tensor) -> list[Tensor]:
    """The biases of each token's expert, named; an empty list if experts have none."""
    if not mlp.biases:
        return []
    table = weight(context.tape, f"{context.name}.{name}.bias", (mlp.experts, outputs))
    return [context.tape.bind(index_select(context.tape, table, chosen, (chosen.shape[0], outputs)))]


def grouped_matmul(
    context: LayerContext, x: Tensor, name: str, experts: int, outputs: int, biases: list[Tensor]
) -> Tensor:
    """_grouped_linear(): all experts' matrices, of which each multiplies its tokens; biases are added in place."""
    tape, copies = context.tape, x.shape[0]
    if context.adapters is not None and context.adapters.four_bit:
        many = 1 if context.family.dequantizes_each_expert else experts
        result = dequantized_matmul(tape, x, (copies, outputs), Like((many, x.shape[-1], outputs), x.itemsize), False)
    else:
        matrix = weight(tape, f"{context.name}.{name}", (experts, x.shape[-1], outputs))
        result = weight_matmul(tape, [x, matrix], (copies, outputs), False)
    for each in biases:
        made = tape.record([result, each], [], [passed_on(result), passed_on(each)])
        result = tape.finish(made, [result, each], tape.tensor(result.shape, result.itemsize, result.storage))
    return result


def gated(context: LayerContext, both: Tensor, inner: int) -> Tensor:
    """_apply_gate(); gpt-oss's clamps both halves, and adds 1 to one."""
    tape, copies = context.tape, both.shape[0]
    tape.enter()
    if context.family.routed_by != "logits":
        gate, up = [tape.bind(each) for each in split(tape, both, (inner, inner))]
        return tape.leave(multiply(tape, apply_saving_input(tape, gate), up))
    halves = slice_of(tape, both, (copies, inner)), slice_of(tape, both, (copies, inner))
    gate, up = [tape.bind(clamp(tape, each)) for each in halves]
    glu = tape.bind(multiply(tape, gate, apply_saving_output(tape, multiply_scalar(tape, gate))))
    return tape.leave(multiply(tape, add_scalar(tape, up), glu))


def clamp(tape: Tape, x: Tensor) -> Tensor:
    """torch.clamp. Backward, PyTorch makes a mask of a byte an element."""
    return tape.apply([x], x.shape, x.itemsize, [x], [like(x)], numel(x.shape))


def sum_over_experts(tape: Tape, x: Tensor, tokens: int) -> Tensor:
    """The results of a token's experts; backward each has a gradient of its own."""
    return tape.apply([x], (tokens, x.shape[-1]), x.itemsize, [], [like(x)])


def shared_expert(context: LayerContext, x: Tensor, flat: Tensor, mlp: Experts) -> Tensor:
    """The expert that all tokens go to, whose matrices tensor ranks share in any case."""
    if not takes_own_tokens(context, mlp):
        return dense(context, flat, mlp.shared_d_ff, "shared")
    own = scattered(context, dense(context, gathered(context, x), mlp.shared_d_ff, "shared"))
    return context.tape.view(own, flat.shape)


def mixture(context: LayerContext, x: Tensor, mlp: Experts) -> Tensor:
    """The router, the experts, and a shared one."""
    tape, (batch, tokens, d) = context.tape, x.shape
    tape.enter()
    x = tape.bind(x)
    flat = tape.bind(tape.view(x, (batch * tokens, d)))
    shared = [tape.bind(shared_expert(context, x, flat, mlp))] if context.family.shared_first else []
    chosen, shares = [tape.bind(each) for each in route(context, flat, mlp)]
    result = tape.bind(experts(context, flat, chosen, shares, mlp))
    if mlp.shared_d_ff:
        own = shared[0] if shared else tape.bind(shared_expert(context, x, flat, mlp))
        if mlp.shared_gate:
            gate = tape.bind(apply_saving_output(tape, base_linear(context, flat, f"{context.name}.shared_gate", 1)))
            weighed = tape.bind(multiply(tape, gate, own))
            tape.forget(own)
            own = weighed
        result = add(tape, result, own)
    return tape.leave(tape.view(result, (batch, tokens, d)))


def forward(context: LayerContext, x: Tensor, layer: Layer) -> Tensor:
    """A layer: (b, T, d) → (b, T, d)."""
    tape, kind = context.tape, context.family
    tape.enter()
    tape.layer_frame = len(tape.frames)
    x = tape.bind(x)
    normed_x = tape.bind(norm(context, x, "first") if kind.norms_before else x)
    mixer, whole = layer.mixer, gathered(context, normed_x)
    if isinstance(mixer, LatentAttention):
        mixed = latent_attention(context, whole, mixer)
    else:
        assert isinstance(mixer, Attention)
        mixed = attention(context, whole, mixer)
    mixed = scattered(context, mixed)
    if kind.norms_before:
        tape.forget(normed_x)
    residual = tape.bind(add(tape, x, norm_or_dropout_after(context, mixed, "behind_first")))
    tape.forget(mixed)
    tape.forget(x)
    normed_x = tape.bind(norm(context, residual, "second") if kind.norms_before else residual)
    mlp, whole = layer.mlp, gathered_for(layer.mlp, context, normed_x)
    if isinstance(mlp, Experts):
        made = mixture(context, whole, mlp)
    else:
        made = dense(context, whole, mlp.d_ff, "mlp", mlp.biases)
    made = scattered_from(mlp, context, made)
    if kind.norms_before:
        tape.forget(normed_x)
    return tape.leave(add(tape, residual, norm_or_dropout_after(context, made, "behind_second")))


def norm_or_dropout_after(context: LayerContext, x: Tensor, name: str) -> Tensor:
    """The norm or the dropout behind half a layer, of kinds that have one. The layer has a name for what comes to
    dropout until it has added what comes out."""
    tape = context.tape
    if context.family.dropout_place == "beside" and context.dropout[1]:
        return dropout(tape, tape.bind(x))  # forward() forgets it.
    tape.enter()
    x = tape.bind(x)
    return tape.leave(norm(context, x, name) if context.family.norms_after else x)
