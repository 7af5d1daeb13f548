"""A layer of a stack as transformers 5.23 writes it, part by part, for flops_bytes.memory.tape. Python alone.

Each function here is one of models/<kind>/modeling_<kind>.py, with its names as long as it has them; that of experts is
grouped_mm_experts_forward() of integrations/moe.py. Symbols: b sequences of T tokens; width d; H query heads and G
key-value heads of Q features; k experts that a token goes to.
"""

# --8<-- [start:setup]
from dataclasses import dataclass

from flops_bytes.memory.adapters import Format
from flops_bytes.memory.tape import (
    FLOAT32,
    INT64,
    Like,
    Tape,
    Tensor,
    add,
    apply,
    cast,
    copied,
    count,
    dropped,
    is_remembered,
    joined,
    keeping,
    like,
    linear,
    linear_in_few_bits,
    multiplied,
    multiply,
    packed,
    packed_linear,
    part,
    parts,
    product,
    reordered,
    rows,
    same,
    scaled,
    shifted,
    small,
    vector,
    weight,
)
from flops_bytes.model.stack import Attention, Experts, Latent, Layer


@dataclass(frozen=True)
class Kind:
    """How a kind writes what all have."""

    norm_kind: str = (
        "narrow"  # the weights multiply in the input's type; "wide": in float32; "one more": by 1 + w, in float32;
        # "kernel": all of it in one kernel; "shifted": LayerNorm's, with a second vector
    )
    turned: str = "halves"  # "cast": and back to the type; "partly": of the first features; "pairs", "chunks"
    joint_heads: bool = False  # queries, keys and values of one matmul, whose whole result the values keep
    joint_gate: bool = False  # gate and up of one
    norms_before: bool = True  # each half of a layer
    after: bool = False  # one behind
    routed_by: str = "softmax"
    has_sinks: bool = False
    turned_share: float = 1.0  # of a head's features
    unpacked_apart: bool = False  # experts in 4 bits, one by one: each was a module when there were such runs
    shared_first: bool = False  # the shared expert goes before the others
    turned_apart: bool = False  # layers of a window have cosines and sines of their own
    drops_where: str = ""  # behind half a layer: "inside" of it, or "beside" what it has made
    code: str = "transformers"  # whose layer it is: this file's; or of own_layers, by its function's name


LLAMA, MIXTRAL = Kind(), Kind(routed_by="scores", unpacked_apart=True)
KINDS = {
    "qwen3_moe": Kind(),
    "mixtral": MIXTRAL,
    "deepseek_v3": Kind(turned="pairs", routed_by="sigmoid"),
    "kimi_k2": Kind(turned="pairs", routed_by="sigmoid"),
    "glm4_moe": Kind(turned="partly", routed_by="sigmoid", turned_share=0.5),
    "glm4_moe_lite": Kind(turned="pairs", routed_by="sigmoid"),
    "minimax_m2": Kind(turned="partly", routed_by="scores", turned_share=0.5),
    "dots1": Kind(routed_by="sigmoid"),
    "seed_oss": Kind(drops_where="inside"),
    "olmoe": Kind(),
    "qwen2_moe": Kind(shared_first=True),
    "gpt_oss": Kind(norm_kind="wide", turned="chunks", routed_by="logits", has_sinks=True),
    "gemma3_text": Kind(norm_kind="one more", after=True, turned_apart=True),
    "olmo2": Kind(norm_kind="wide", turned="cast", norms_before=False, after=True),
    "olmo3": Kind(norm_kind="wide", turned="cast", norms_before=False, after=True, turned_apart=True),
    "smollm3": Kind(),
    "phi3": Kind(turned="partly", joint_heads=True, joint_gate=True, drops_where="beside"),
    "mistral": Kind(),
    "qwen3": Kind(),
    "llama": LLAMA,
}


# The matrices of a layer that get adapters, by what they are called here; a router and experts have none, which
# transformers holds as parameters and not as linear modules.
QUERY_VALUE = ("q", "v", "qkv", "q_b", "kv_b")
ATTENTION = (*QUERY_VALUE, "k", "out", "q_a", "kv_a")
ADAPTED = {"query-value": QUERY_VALUE, "attention": ATTENTION, "all": (*ATTENTION, "gate", "up", "down", "gate_up")}


@dataclass(frozen=True)
class Adapters:
    """LoRA's: of which rank, beside which matrices, and whether what is frozen is in 4 bits."""

    rank: int
    beside: str = "all"  # as ADAPTED says
    four_bit: bool = False
    in_float32: bool = False  # they multiply their matrix's input in their own format, as peft's without autocast
    drops_inputs: bool = False


NO_DROPOUT = (False, False)


@dataclass(frozen=True)
class Way:
    """How a step goes through a layer."""

    tape: Tape
    kind: Kind
    name: str  # of the layer
    turning: tuple[Tensor, Tensor]  # cosines and sines
    mask: Tensor | None  # of eager attention
    adapters: Adapters | None = None  # beside weights that are frozen
    drops: tuple[bool, bool] = NO_DROPOUT  # of attention's probabilities, and behind half a layer
    attends_again: bool = False  # attention is made again (selective checkpointing)
    multiplies: Format | None = None  # the copies of its factors that a linear layer multiplies


# --8<-- [end:setup]


# --8<-- [start:linear]
def layer_linear(way: Way, x: Tensor, part_of: str, which: str, outputs: int, biased: bool = False) -> Tensor:
    """A matrix of a layer, with an adapter beside it if it has one: W·x + up·(down·x), the last two in float32 and cast
    to what they multiply (Hu et al. 2021)."""
    tape, adapters, name = way.tape, way.adapters, f"{part_of}.{which}"
    if adapters is None or which not in ADAPTED[adapters.beside]:
        return held_linear(way, x, name, outputs, biased)
    if adapters.in_float32 and not tape.autocast:
        return wide_adapter(way, x, name, outputs, biased)
    tape.enter()
    x = tape.bind(x)
    down = tape.bind(cast(tape, tape.leaf(f"{name}.down", (adapters.rank, x.shape[-1]), FLOAT32), x.width))
    up = tape.bind(cast(tape, tape.leaf(f"{name}.up", (outputs, adapters.rank), FLOAT32), x.width))
    own = held_linear(way, x, name, outputs, biased)
    return tape.leave(
        add(tape, own, small(tape, small(tape, dropped(tape, x) if adapters.drops_inputs else x, down), up))
    )


def wide_adapter(way: Way, x: Tensor, name: str, outputs: int, biased: bool) -> Tensor:
    """The same as peft writes it (tuners/lora/layer.py, Linear.forward): its input is cast, and its result last."""
    tape, adapters = way.tape, way.adapters
    assert adapters is not None
    tape.enter()
    own = tape.bind(held_linear(way, tape.bind(x), name, outputs, biased))
    wide = tape.bind(cast(tape, x, FLOAT32))
    down = tape.leaf(f"{name}.down", (adapters.rank, x.shape[-1]), FLOAT32)
    up = tape.leaf(f"{name}.up", (outputs, adapters.rank), FLOAT32)
    made = small(tape, small(tape, dropped(tape, wide) if adapters.drops_inputs else wide, down), up)
    both = tape.bind(add(tape, own, scaled(tape, made)))
    tape.forget(own)
    return tape.leave(cast(tape, both, x.width))


def held_linear(way: Way, x: Tensor, name: str, outputs: int, biased: bool = False) -> Tensor:
    """A matrix as it is held."""
    if way.adapters is not None and way.adapters.four_bit:
        return packed_linear(way.tape, x, outputs)
    if way.multiplies:
        return linear_in_few_bits(way.tape, x, name, outputs, way.multiplies, biased)
    return linear(way.tape, x, name, outputs, biased)


# --8<-- [end:linear]


# --8<-- [start:norm]
def norm(way: Way, x: Tensor, name: str, features: int = 0) -> Tensor:
    """An RMSNorm: in float32, of operations."""
    tape, weights, width = way.tape, vector(way.tape, f"{way.name}.{name}", (features or x.shape[-1],)), x.width
    if way.kind.norm_kind in ("kernel", "shifted"):
        return norm_in_one(way, x, name, weights)
    tape.enter()
    if way.kind.norm_kind == "one more":
        x = tape.bind(x)
        output = multiply(tape, normed(tape, cast(tape, x, FLOAT32)), shifted(tape, cast(tape, weights, FLOAT32)))
        return tape.leave(cast(tape, output, width))
    x = tape.bind(cast(tape, x, FLOAT32))
    variance = tape.bind(mean(tape, squared(tape, x)))
    narrow = tape.bind(multiply(tape, x, keeping(tape, shifted(tape, variance), temporaries=2)))
    tape.forget(x)
    if way.kind.norm_kind == "wide":
        return tape.leave(cast(tape, multiply(tape, weights, narrow), width))
    return tape.leave(multiply(tape, weights, cast(tape, narrow, width)))


def norm_in_one(way: Way, x: Tensor, name: str, weights: Tensor) -> Tensor:
    """A norm in one kernel, which keeps its input, and a float32 a row: the scale; of LayerNorm the mean too."""
    tape, is_shifted = way.tape, way.kind.norm_kind == "shifted"
    inputs = [x, weights, vector(tape, f"{way.name}.{name}.shift", weights.shape)] if is_shifted else [x, weights]
    tape.enter()
    inputs[0] = tape.bind(x)
    statistics = tape.bind(tape.new((2 if is_shifted else 1, count(x.shape[:-1])), FLOAT32))
    return tape.leave(tape.note(inputs, x.shape, x.width, [x, statistics], [like(each) for each in inputs]))


def normed(tape: Tape, x: Tensor) -> Tensor:
    """Gemma's, which has no name for the mean."""
    tape.enter()
    x = tape.bind(x)
    return tape.leave(multiply(tape, x, keeping(tape, shifted(tape, mean(tape, squared(tape, x))), temporaries=2)))


def squared(tape: Tape, x: Tensor) -> Tensor:
    """Its backward has x as a power, twice that, and that times the gradient."""
    return apply(tape, x, temporaries=2)


def mean(tape: Tape, x: Tensor) -> Tensor:
    """Over features."""
    return tape.note([x], (*x.shape[:-1], 1), x.width, [], [like(x)])


# --8<-- [end:norm]


# --8<-- [start:turn]
def turn(way: Way, x: Tensor) -> Tensor:
    """apply_rotary_pos_emb(), of queries or of keys: (b, H, T, Q)."""
    tape, (cosines, sines) = way.tape, way.turning
    before, half = x.shape[:-1], x.shape[-1] // 2
    tape.enter()
    x = tape.bind(x)
    if way.kind.turned == "chunks":
        first, second = [tape.bind(each) for each in parts(tape, x, (half, half))]
        one = tape.bind(add(tape, multiply(tape, first, cosines), scaled(tape, multiply(tape, second, sines))))
        other = add(tape, multiply(tape, second, cosines), multiply(tape, first, sines))
        return tape.leave(joined(tape, [one, other]))
    if way.kind.turned == "pairs":
        one, other = tape.bind(part(tape, x, (*before, half))), tape.bind(part(tape, x, (*before, half)))
        return tape.leave(
            joined(
                tape,
                [
                    minus(tape, multiply(tape, one, cosines), multiply(tape, other, sines)),
                    add(tape, multiply(tape, other, cosines), multiply(tape, one, sines)),
                ],
            )
        )
    if way.kind.turned == "partly":
        wide = int(x.shape[-1] * way.kind.turned_share)
        turned = tape.bind(part(tape, x, (*before, wide)))
        rest = tape.bind(part(tape, x, (*before, x.shape[-1] - wide)))
        return tape.leave(joined(tape, [turned_halves(way, turned), rest]))
    turned = turned_halves(way, x)
    return tape.leave(cast(tape, turned, x.width) if way.kind.turned == "cast" else turned)


def minus(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """The second has a gradient of its own."""
    return tape.note([x, y], x.shape, x.width, [], [same(x), like(y)])


def turned_halves(way: Way, x: Tensor) -> Tensor:
    tape, (cosines, sines) = way.tape, way.turning
    tape.enter()
    x = tape.bind(x)
    one = tape.bind(multiply(tape, x, cosines))
    return tape.leave(add(tape, one, multiply(tape, rotated(tape, x), sines)))


def rotated(tape: Tape, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    tape.enter()
    x = tape.bind(x)
    first, second = tape.bind(part(tape, x, half)), tape.bind(part(tape, x, half))
    return tape.leave(joined(tape, [scaled(tape, second), first]))


# --8<-- [end:turn]


# --8<-- [start:attend]
def attend(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of (b, H, T, Q), (b, G, T, Q) and (b, G, T, values): (b, T, H · values)."""
    make = in_one if way.mask is None else eager
    if not way.attends_again:
        return make(way, q, k, v)
    tape = way.tape
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    kept = [q, k, v, *([] if way.mask is None else [way.mask])]
    return tape.leave(tape.recomputed(lambda: make(way, q, k, v), kept))


def in_one(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One kernel, which keeps a float32 a row of scores."""
    tape = way.tape
    tape.enter()
    inputs = [tape.bind(cast(tape, each, 2) if tape.autocast else each) for each in (q, k, v)]
    batch, heads, tokens, _ = q.shape
    result = tape.result((batch, tokens, heads * v.shape[-1]), inputs[0].width, True, "scores", 1)
    sums = tape.bind(tape.result((batch, heads, tokens), FLOAT32, True, "values", 1))
    unasked = sum(
        like(each).total_bytes() for each in inputs if each.made is None
    )  # the kernel makes all three gradients
    made = tape.record(inputs, [*inputs, result, sums], [like(each) for each in inputs], unasked)
    if made is not None:
        made.factor_of = "fused"
    tape.forget(sums)
    result = tape.done(made, inputs, result)
    # as queries lie, so does what is made of them: those that were joined, head by head
    return tape.leave(copied(tape, result) if way.kind.turned in ("chunks", "partly") else result)


def eager(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """eager_attention_forward(): T × T scores a head, and keys and values once a query head."""
    tape, mask = way.tape, way.mask
    assert mask is not None
    batch, heads, tokens, _ = q.shape
    of_scores = batch, heads, tokens, tokens
    several = batch > 1 and heads > 1
    by_tokens = way.kind.turned in ("halves", "cast")  # queries and keys still lie so; what was joined lies by heads
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    keys, values = tape.bind(repeated(tape, k, heads)), tape.bind(repeated(tape, v, heads))
    apart = several and by_tokens, several and (k.shape[1] == 1 or (k.shape[1] == heads and by_tokens))
    scores = tape.bind(scaled(tape, batched(tape, q, keys, of_scores, apart, "scores")))
    masked = tape.bind(add(tape, scores, mask))
    tape.forget(scores)
    if way.kind.has_sinks:
        joined_scores = tape.bind(joined(tape, [masked, sink_column(way, masked)]))
        both = tape.bind(add(tape, joined_scores, largest(tape, joined_scores)))
        tape.forget(joined_scores)
        probabilities = tape.bind(keeping(tape, both))
        tape.forget(both)
        own = part(tape, probabilities, of_scores)
        tape.forget(masked)
        shares = cast(tape, dropped(tape, own) if way.drops[0] else own, values.width)
    else:
        is_wide = way.kind.code != "gpt2" or tape.autocast
        shares = cast(
            tape,
            keeping(tape, cast(tape, masked, FLOAT32) if is_wide else masked),
            (q if way.kind.code != "gpt2" else v).width,
        )
        tape.forget(masked)
        shares = dropped(tape, shares) if way.drops[0] else shares
    apart = False, several and v.shape[1] in (1, heads)
    shares = tape.bind(shares) if way.attends_again else tape.bind_in(shares, tape.layer_frame)
    result = batched(tape, shares, values, (batch, heads, tokens, v.shape[-1]), apart, "values")
    return tape.leave(result if way.kind.code == "gpt2" else by_token(tape, result))


def by_token(tape: Tape, x: Tensor) -> Tensor:
    """Of (b, H, T, Q) a copy in which each token's heads lie beside each other: (b, T, H · Q)."""
    batch, heads, tokens, features = x.shape
    made = copied(tape, x) if batch > 1 and heads > 1 else laid_out(tape, x)
    return tape.view(made, (batch, tokens, heads * features))


def sink_column(way: Way, scores: Tensor) -> Tensor:
    """One learned score a head, beside those of each row: a view of the weights."""
    tape, heads = way.tape, scores.shape[1]
    sinks = vector(tape, f"{way.name}.sinks", (heads,))
    made = tape.record([sinks], [], [like(sinks)])
    return tape.done(made, [sinks], tape.tensor((*scores.shape[:-1], 1), sinks.width, sinks.storage))


def largest(tape: Tape, x: Tensor) -> Tensor:
    """Of each row, without the gradient that a row's largest has, as large as the scores."""
    rows_of = (*x.shape[:-1], 1)
    result, places = tape.new(rows_of, x.width), tape.new(rows_of, INT64)
    made = tape.record([x], [places], [like(x)], like(x).total_bytes())
    return tape.done(made, [x, places], result)


def repeated(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """repeat_kv(), which copies nothing of one head alone."""
    batch, own, tokens, features = x.shape
    if heads == own:
        return x
    shape = batch, heads, tokens, features
    made = tape.record([x], [], [Like(shape, x.width, same=True)])  # of which the sum is the gradient
    result = tape.tensor(shape, x.width, x.storage) if own == 1 else tape.new(shape, x.width)
    return tape.done(made, [x], result)


def batched(tape: Tape, x: Tensor, y: Tensor, shape: tuple[int, ...], apart: tuple[bool, bool], part_of: str) -> Tensor:
    """A matmul of two with four dimensions, in 16 bits under autocast. It takes all heads of all sequences in one row:
    of what does not lie so a copy is made."""
    if tape.autocast:
        x, y = cast(tape, x, 2), cast(tape, y, 2)
    x, y = laid_out(tape, x) if apart[0] else x, laid_out(tape, y) if apart[1] else y
    return product(tape, x, y, shape, part_of)


def laid_out(tape: Tape, x: Tensor) -> Tensor:
    """A copy in another order, whose gradient is a view of that of the copy."""
    return tape.note([x], x.shape, x.width, [], [same(x)])


# --8<-- [end:attend]


# --8<-- [start:attention]
def attention(way: Way, x: Tensor, mixer: Attention) -> Tensor:
    """Of queries, keys and values; with what a kind has beside these."""
    tape, name = way.tape, way.name
    batch, tokens, d = x.shape
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    of_queries = batch, mixer.heads, tokens, mixer.head_dim
    of_keys = batch, mixer.kv_heads, tokens, mixer.head_dim
    tape.enter()
    x = tape.bind(x)
    if way.kind.joint_heads:
        qkv = tape.bind(layer_linear(way, x, name, "qkv", wide + 2 * narrow, mixer.biases))
        straight_q, straight_k = part(tape, qkv, of_queries), part(tape, qkv, of_keys)
        v = tape.bind(part(tape, qkv, of_keys))
    else:
        straight_q = query(way, x, "q", mixer, of_queries)
        straight_k = query(way, x, "k", mixer, of_keys)
        v = tape.bind(tape.view(layer_linear(way, x, name, "v", narrow, mixer.biases), of_keys))
    straight_q, straight_k = tape.bind(straight_q), tape.bind(straight_k)
    q, k = tape.bind(turn(way, straight_q)), tape.bind(turn(way, straight_k))
    tape.forget(straight_q)
    tape.forget(straight_k)
    result = attend(way, q, k, v)
    return tape.leave(inside(way, layer_linear(way, result, name, "out", d, mixer.out_bias)))


def inside(way: Way, x: Tensor) -> Tensor:
    """What half a layer has made, of kinds that have dropout in it."""
    return dropped(way.tape, x) if way.drops[1] and way.kind.drops_where == "inside" else x


def query(way: Way, x: Tensor, which: str, mixer: Attention, heads: tuple[int, ...]) -> Tensor:
    """Queries or keys, by head, with the norms that they have."""
    tape = way.tape
    tape.enter()
    x = tape.bind(x)
    made = tape.bind(layer_linear(way, x, way.name, which, heads[1] * mixer.head_dim, mixer.biases))
    if mixer.head_norms:
        by_head = tape.view(reordered(tape, made), heads)
        return tape.leave(norm(way, by_head, f"{which}_norm", mixer.head_dim))
    if mixer.wide_norms:
        made = norm(way, made, f"{which}_norm")
    return tape.leave(tape.view(reordered(tape, made), heads))


def latent(way: Way, x: Tensor, mixer: Latent) -> Tensor:
    """DeepseekV3Attention: keys are put together in a new tensor, of what is expanded and what all heads share."""
    tape, name = way.tape, way.name
    batch, tokens, d = x.shape
    features = mixer.unturned + mixer.turned
    tape.enter()
    x = tape.bind(x)
    if mixer.query_rank:
        small_q = tape.bind(layer_linear(way, x, name, "q_a", mixer.query_rank, mixer.biases))
        q = layer_linear(way, norm(way, small_q, "q_norm"), name, "q_b", mixer.heads * features)
        tape.forget(small_q)
    else:
        q = layer_linear(way, x, name, "q", mixer.heads * features)
    q = tape.bind(tape.view(reordered(tape, q), (batch, mixer.heads, tokens, features)))
    unturned, straight = [tape.bind(each) for each in parts(tape, q, (mixer.unturned, mixer.turned))]
    compressed = tape.bind(layer_linear(way, x, name, "kv_a", mixer.rank + mixer.turned, mixer.biases))
    raw, straight_key = [tape.bind(each) for each in parts(tape, compressed, (mixer.rank, mixer.turned))]
    narrow = tape.bind(norm(way, raw, "kv_norm"))
    turned = tape.bind(turn(way, straight))
    key = tape.bind(turn(way, tape.view(straight_key, (batch, 1, tokens, mixer.turned))))
    queries = tape.bind(joined(tape, [unturned, turned]))
    keys, values = [tape.bind(each) for each in expanded(way, narrow, key, mixer)]
    result = attend(way, queries, keys, values)
    return tape.leave(layer_linear(way, result, name, "out", d, mixer.biases))


def expanded(way: Way, compressed: Tensor, key: Tensor, mixer: Latent) -> tuple[Tensor, Tensor]:
    """expand_kv(). Backward has zeros as large as the keys twice, and a copy of what all heads share."""
    tape = way.tape
    batch, _, tokens, _ = key.shape
    heads = batch, mixer.heads, tokens
    features = mixer.unturned + mixer.value_dim
    tape.enter()
    both = reordered(tape, layer_linear(way, compressed, way.name, "kv_b", mixer.heads * features))
    both = tape.bind(tape.view(both, (*heads, features)))
    unturned, values = [tape.bind(each) for each in parts(tape, both, (mixer.unturned, mixer.value_dim))]
    whole = Like((*heads, mixer.unturned + mixer.turned), both.width)
    zeros, shared = whole.total_bytes(), Like((*heads, mixer.turned), key.width).total_bytes()
    keys = tape.note([unturned, key], whole.shape, whole.width, [], [like(unturned), like(key)], 2 * zeros + shared)
    return tape.leave_both(keys, values)


# --8<-- [end:attention]


# --8<-- [start:mlp]
def dense(way: Way, x: Tensor, inner: int, name: str, biases: bool = False) -> Tensor:
    """down(act(gate(x)) · up(x))."""
    tape, d, name = way.tape, x.shape[-1], f"{way.name}.{name}"
    tape.enter()
    x = tape.bind(x)
    if way.kind.joint_gate:
        both = tape.bind(layer_linear(way, x, name, "gate_up", 2 * inner))
        gate, up = [tape.bind(each) for each in parts(tape, both, (inner, inner))]
        return tape.leave(layer_linear(way, multiply(tape, up, apply(tape, gate)), name, "down", d))
    gate = tape.bind(apply(tape, layer_linear(way, x, name, "gate", inner, biases)))
    product_of_both = multiply(tape, gate, layer_linear(way, x, name, "up", inner, biases))
    tape.forget(gate)
    return tape.leave(inside(way, layer_linear(way, product_of_both, name, "down", d, biases)))


def routed(way: Way, x: Tensor, mlp: Experts) -> tuple[Tensor, Tensor]:
    """Of each token its experts, and their shares: of (b · T, d), twice (b · T, k)."""
    tape, tokens, name = way.tape, x.shape[0], f"{way.name}.router"
    chosen = tokens, mlp.active
    tape.enter()
    x = tape.bind(x)
    if way.kind.routed_by == "logits":  # GptOssTopKRouter
        logits = tape.bind(linear(tape, x, name, mlp.experts, mlp.router_bias))
        experts = tape.bind(tape.new(chosen, INT64))
        return tape.leave_both(experts, keeping(tape, rows(tape, logits, experts, chosen)))
    if way.kind.routed_by in ("softmax", "scores"):  # Qwen3MoeTopKRouter; MiniMaxM2TopKRouter, whose shares stay wide
        logits = tape.bind(linear(tape, x, name, mlp.experts, mlp.router_bias))
        probabilities = tape.bind(keeping(tape, cast(tape, logits, FLOAT32)))
        experts = tape.bind(tape.new(chosen, INT64))
        shares = tape.bind(rows(tape, probabilities, experts, chosen))
        wide = way.kind.routed_by == "scores"
        return tape.leave_both(experts, scaled(tape, shares) if wide else cast(tape, shares, logits.width))
    matrix = vector(tape, name, (mlp.experts, x.shape[-1]))  # DeepseekV3TopkRouter: in float32
    of_float32 = cast(tape, x, FLOAT32)
    both = [of_float32, cast(tape, matrix, FLOAT32)]
    logits = tape.bind(multiplied(tape, both, (tokens, mlp.experts), is_remembered(tape)))
    scores = tape.bind(keeping(tape, logits))
    experts = tape.bind(tape.new(chosen, INT64))
    return tape.leave_both(experts, scaled(tape, rows(tape, scores, experts, chosen)))


def experts(way: Way, x: Tensor, chosen: Tensor, shares: Tensor, mlp: Experts) -> Tensor:
    """grouped_mm_experts_forward(): each token stands there once for each of its experts, sorted by these."""
    tape, (tokens, d), inner = way.tape, x.shape, mlp.d_ff
    there = tokens * mlp.active
    tape.enter()
    x, chosen, shares = [tape.bind(each) for each in (x, chosen, shares)]
    sorted_experts, order = tape.bind(tape.new((there,), INT64)), tape.bind(tape.new((there,), INT64))
    selected = tape.bind(rows(tape, x, tape.new((there,), INT64), (there, d)))
    sorted_shares = tape.bind(rows(tape, shares, order, (there,)))
    biases = biases_of(way, "gate_up", mlp, 2 * inner, sorted_experts)
    both = tape.bind(grouped(way, selected, "gate_up", mlp.experts, 2 * inner, biases))
    made = tape.bind(gated(way, both, inner))
    tape.forget(both)
    below = biases_of(way, "down", mlp, d, sorted_experts)
    for each in biases:
        tape.forget(each)
    down = tape.bind(grouped(way, made, "down", mlp.experts, d, below))
    tape.forget(made)
    weighted = tape.bind(multiply(tape, down, tape.view(sorted_shares, (there, 1))))
    back = tape.bind(tape.new((there,), INT64))
    in_order = tape.bind(rows(tape, weighted, back, (there, d)))
    tape.forget(weighted)
    return tape.leave(cast(tape, added_up(tape, in_order, tokens), x.width))


def biases_of(way: Way, name: str, mlp: Experts, outputs: int, chosen: Tensor) -> list[Tensor]:
    """Those of each token's expert, named; none where experts have none."""
    if not mlp.biases:
        return []
    table = weight(way.tape, f"{way.name}.{name}.bias", (mlp.experts, outputs))
    return [way.tape.bind(rows(way.tape, table, chosen, (chosen.shape[0], outputs)))]


def grouped(way: Way, x: Tensor, name: str, experts: int, outputs: int, biases: list[Tensor]) -> Tensor:
    """_grouped_linear(): all experts' matrices, of which each multiplies its tokens; biases are added in place."""
    tape, there = way.tape, x.shape[0]
    if way.adapters is not None and way.adapters.four_bit:
        many = 1 if way.kind.unpacked_apart else experts
        result = packed(tape, x, (there, outputs), Like((many, x.shape[-1], outputs), x.width), False)
    else:
        matrix = weight(tape, f"{way.name}.{name}", (experts, x.shape[-1], outputs))
        result = multiplied(tape, [x, matrix], (there, outputs), False)
    for each in biases:
        made = tape.record([result, each], [], [same(result), same(each)])
        result = tape.done(made, [result, each], tape.tensor(result.shape, result.width, result.storage))
    return result


def gated(way: Way, both: Tensor, inner: int) -> Tensor:
    """_apply_gate(); gpt-oss's clamps both halves, and adds 1 to one."""
    tape, there = way.tape, both.shape[0]
    tape.enter()
    if way.kind.routed_by != "logits":
        gate, up = [tape.bind(each) for each in parts(tape, both, (inner, inner))]
        return tape.leave(multiply(tape, apply(tape, gate), up))
    halves = part(tape, both, (there, inner)), part(tape, both, (there, inner))
    gate, up = [tape.bind(clamped(tape, each)) for each in halves]
    glu = tape.bind(multiply(tape, gate, keeping(tape, scaled(tape, gate))))
    return tape.leave(multiply(tape, shifted(tape, up), glu))


def clamped(tape: Tape, x: Tensor) -> Tensor:
    """Its backward has a mask of bytes, and a zero for what is beyond."""
    return tape.note([x], x.shape, x.width, [x], [like(x)], count(x.shape))


def added_up(tape: Tape, x: Tensor, tokens: int) -> Tensor:
    """The results of a token's experts; backward each has a gradient of its own."""
    return tape.note([x], (tokens, x.shape[-1]), x.width, [], [like(x)])


def mixture(way: Way, x: Tensor, mlp: Experts) -> Tensor:
    """The router, the experts, and a shared one."""
    tape, (batch, tokens, d) = way.tape, x.shape
    tape.enter()
    x = tape.bind(x)
    flat = tape.bind(tape.view(x, (batch * tokens, d)))
    shared = [tape.bind(dense(way, flat, mlp.shared_d_ff, "shared"))] if way.kind.shared_first else []
    chosen, shares = [tape.bind(each) for each in routed(way, flat, mlp)]
    result = tape.bind(experts(way, flat, chosen, shares, mlp))
    if mlp.shared_d_ff:
        own = shared[0] if shared else tape.bind(dense(way, flat, mlp.shared_d_ff, "shared"))
        if mlp.shared_gate:
            gate = tape.bind(keeping(tape, held_linear(way, flat, f"{way.name}.shared_gate", 1)))
            weighed = tape.bind(multiply(tape, gate, own))
            tape.forget(own)
            own = weighed
        result = add(tape, result, own)
    return tape.leave(tape.view(result, (batch, tokens, d)))


# --8<-- [end:mlp]


# --8<-- [start:layer]
def forward(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """A layer: (b, T, d) → (b, T, d)."""
    tape, kind = way.tape, way.kind
    tape.enter()
    tape.layer_frame = len(tape.frames)
    x = tape.bind(x)
    normed_x = tape.bind(norm(way, x, "first") if kind.norms_before else x)
    mixer = layer.mixer
    mixed = latent(way, normed_x, mixer) if isinstance(mixer, Latent) else attention(way, normed_x, mixer)  # type: ignore[arg-type]
    if kind.norms_before:
        tape.forget(normed_x)
    residual = tape.bind(add(tape, x, behind(way, mixed, "behind_first")))
    tape.forget(mixed)
    tape.forget(x)
    normed_x = tape.bind(norm(way, residual, "second") if kind.norms_before else residual)
    mlp = layer.mlp
    if isinstance(mlp, Experts):
        made = mixture(way, normed_x, mlp)
    else:
        made = dense(way, normed_x, mlp.d_ff, "mlp", mlp.biases)
    if kind.norms_before:
        tape.forget(normed_x)
    return tape.leave(add(tape, residual, behind(way, made, "behind_second")))


def behind(way: Way, x: Tensor, name: str) -> Tensor:
    """The norm or the dropout behind half a layer, of kinds that have one. The layer has a name for what comes to
    dropout until it has added what comes out."""
    tape = way.tape
    if way.kind.drops_where == "beside" and way.drops[1]:
        return dropped(tape, tape.bind(x))  # which forward() forgets
    tape.enter()
    x = tape.bind(x)
    return tape.leave(norm(way, x, name) if way.kind.after else x)


# --8<-- [end:layer]
