"""A layer of a stack as transformers 5.23 writes it, part by part, for flops_bytes.tape. Python alone.

Each function here is one of models/<kind>/modeling_<kind>.py, with its names as long as it has them; that of experts is
grouped_mm_experts_forward() of integrations/moe.py. Symbols: b sequences of T tokens; width d; H query heads and G
key-value heads of Q features; k experts that a token goes to.
"""

# --8<-- [start:setup]
from collections.abc import Callable
from dataclasses import dataclass

from flops_bytes.stack import Attention, Experts, Latent, Layer
from flops_bytes.tape import (
    FLOAT32,
    INT64,
    Tape,
    Tensor,
    add,
    apply,
    cast,
    copied,
    joined,
    like,
    linear,
    multiply,
    part,
    parts,
    product,
    rows,
    scaled,
    shifted,
    softmax,
    vector,
    weight,
)


@dataclass(frozen=True)
class Kind:
    """How a kind writes what all have."""

    norm: str = (
        "narrow"  # the weights multiply in the input's type; "wide": in float32; "one more": by 1 + w, in float32
    )
    turned: str = "halves"  # "cast": and back to the type; "partly": of the first features; "pairs", "chunks"
    inner: str = "silu"
    joint: bool = False  # queries, keys and values of one matmul, gate and up of another
    first: bool = True  # a norm before each half of a layer
    after: bool = False  # one behind
    router: str = "softmax"
    sinks: bool = False
    turned_share: float = 1.0  # of a head's features
    shared_first: bool = False  # the shared expert goes before the others


KINDS = {
    "qwen3_moe": Kind(),
    "mixtral": Kind(),
    "deepseek_v3": Kind(turned="pairs", router="sigmoid"),
    "kimi_k2": Kind(turned="pairs", router="sigmoid"),
    "glm4_moe": Kind(turned="partly", router="sigmoid", turned_share=0.5),
    "glm4_moe_lite": Kind(turned="pairs", router="sigmoid"),
    "minimax_m2": Kind(turned="partly", router="scores", turned_share=0.5),
    "dots1": Kind(router="sigmoid"),
    "seed_oss": Kind(),
    "olmoe": Kind(),
    "qwen2_moe": Kind(shared_first=True),
    "gpt_oss": Kind(norm="wide", turned="chunks", router="logits", sinks=True),
    "gemma3_text": Kind(norm="one more", inner="gelu", after=True),
    "olmo2": Kind(norm="wide", turned="cast", first=False, after=True),
    "olmo3": Kind(norm="wide", turned="cast", first=False, after=True),
    "smollm3": Kind(),
    "phi3": Kind(turned="partly", joint=True),
    "mistral": Kind(),
    "qwen3": Kind(),
    "llama": Kind(),
}


@dataclass(frozen=True)
class Way:
    """How a step goes through a layer."""

    tape: Tape
    kind: Kind
    name: str  # of the layer
    turning: tuple[Tensor, Tensor]  # cosines and sines
    mask: Tensor | None  # of eager attention


# --8<-- [end:setup]


# --8<-- [start:norm]
def norm(way: Way, x: Tensor, name: str, features: int = 0) -> Tensor:
    """An RMSNorm: in float32, of operations."""
    tape, weights = way.tape, vector(way.tape, (way.name, name), features or x.shape[-1])
    width = x.width
    if way.kind.norm == "one more":
        output = normed(tape, cast(tape, x, FLOAT32))
        output = multiply(tape, output, shifted(tape, cast(tape, weights, FLOAT32)))
        return cast(tape, output, width)
    x = cast(tape, x, FLOAT32)
    variance = mean(tape, squared(tape, x))
    x = multiply(tape, x, apply(tape, shifted(tape, variance), keeps="result", made=3))
    if way.kind.norm == "wide":
        return cast(tape, multiply(tape, weights, x), width)
    return multiply(tape, weights, cast(tape, x, width))


def normed(tape: Tape, x: Tensor) -> Tensor:
    """Gemma's, which has no name for the mean."""
    return multiply(tape, x, apply(tape, shifted(tape, mean(tape, squared(tape, x))), keeps="result", made=3))


def squared(tape: Tape, x: Tensor) -> Tensor:
    """Its backward has x as a power, twice that, and that times the gradient."""
    return apply(tape, x, made=1) if x.made is None else power(tape, x)


def power(tape: Tape, x: Tensor) -> Tensor:
    of = like(x)

    def backward(gradient: Tensor) -> list[Tensor | None]:
        one = tape.new(of.shape, of.width)
        two = tape.new(of.shape, of.width)
        return [tape.new(of.shape, of.width) if one and two else None]

    return tape.note((x.shape, x.width), [x], [x.storage], backward)


def mean(tape: Tape, x: Tensor) -> Tensor:
    """Over features."""
    of = like(x)
    return tape.note(tape.new((*x.shape[:-1], 1), x.width), [x], None, lambda g: [tape.new(of.shape, of.width)])


# --8<-- [end:norm]


# --8<-- [start:turn]
def turn(way: Way, x: Tensor) -> Tensor:
    """apply_rotary_pos_emb(), of queries or of keys: (b, H, T, Q)."""
    tape, (cosines, sines) = way.tape, way.turning
    half = (*x.shape[:-1], x.shape[-1] // 2)
    if way.kind.turned == "chunks":
        first, second = parts(tape, x, half[-1], half[-1])
        one = add(tape, multiply(tape, first, cosines), scaled(tape, multiply(tape, second, sines)))
        other = add(tape, multiply(tape, second, cosines), multiply(tape, first, sines))
        return joined(tape, one, other)
    if way.kind.turned == "pairs":
        one, other = part(tape, x, *half), part(tape, x, *half)
        return joined(
            tape,
            minus(tape, multiply(tape, one, cosines), multiply(tape, other, sines)),
            add(tape, multiply(tape, other, cosines), multiply(tape, one, sines)),
        )
    if way.kind.turned == "partly":
        wide = int(x.shape[-1] * way.kind.turned_share)
        before = x.shape[:-1]
        turned, rest = part(tape, x, *before, wide), part(tape, x, *before, x.shape[-1] - wide)
        return joined(tape, turned_halves(way, turned), rest)
    turned = turned_halves(way, x)
    return cast(tape, turned, x.width) if way.kind.turned == "cast" else turned


def minus(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """The second has a gradient of its own."""
    of = like(y)
    return tape.note(tape.new(x.shape, x.width), [x, y], None, lambda g: [g, tape.new(of.shape, of.width)])


def turned_halves(way: Way, x: Tensor) -> Tensor:
    tape, (cosines, sines) = way.tape, way.turning
    one = multiply(tape, x, cosines)
    return add(tape, one, multiply(tape, rotated(tape, x), sines))


def rotated(tape: Tape, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    first, second = part(tape, x, *half), part(tape, x, *half)
    return joined(tape, scaled(tape, second), first)


# --8<-- [end:turn]


# --8<-- [start:attend]
def attend(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of (b, H, T, Q), (b, G, T, Q) and (b, G, T, values): (b, T, H · values)."""
    return in_one(way, q, k, v) if way.mask is None else eager(way, q, k, v)


def in_one(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One kernel, which keeps a float32 a row of scores."""
    tape = way.tape
    q, k, v = (cast(tape, each, 2) if tape.autocast else each for each in (q, k, v))
    batch, heads, tokens, _ = q.shape
    result = tape.new((batch, tokens, heads * v.shape[-1]), q.width)
    sums = tape.new((batch, heads, tokens), FLOAT32)
    of = [like(each) for each in (q, k, v)]
    kept = [each.storage for each in (q, k, v, result, sums)]
    sums = None  # type: ignore[assignment]
    result = tape.note(result, [q, k, v], kept, lambda g: [tape.new(one.shape, one.width) for one in of])
    # as queries lie, so does what is made of them: those that were joined, head by head
    return copied(tape, result) if way.kind.turned in ("chunks", "partly") else result


def eager(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """eager_attention_forward(): T × T scores a head, and keys and values once a query head."""
    tape = way.tape
    batch, heads, tokens, _ = q.shape
    keys, values = repeated(tape, k, heads), repeated(tape, v, heads)
    scores = scaled(tape, matmul(tape, q, keys, (batch, heads, tokens, tokens)))
    assert way.mask is not None
    scores = add(tape, scores, way.mask)
    if way.kind.sinks:
        sinks = vector(tape, (way.name, "sinks"), heads)
        column = tape.note(
            Tensor((batch, heads, tokens, 1), sinks.width, sinks.storage), [sinks], None, summed(tape, sinks)
        )
        both = joined(tape, scores, column)
        both = add(tape, both, largest(tape, both))
        probabilities = softmax(tape, both)
        both = None  # type: ignore[assignment]
        scores = part(tape, probabilities, batch, heads, tokens, tokens)
        scores = cast(tape, scores, values.width)
        result = matmul(tape, scores, values, (batch, heads, tokens, v.shape[-1]))
    else:
        scores = cast(tape, softmax(tape, cast(tape, scores, FLOAT32)), q.width)
        result = matmul(tape, scores, values, (batch, heads, tokens, v.shape[-1]))
    return copied(tape, result).view(batch, tokens, heads * v.shape[-1])


def summed(tape: Tape, x: Tensor) -> Callable[[Tensor], list[Tensor | None]]:
    of = like(x)
    return lambda g: [tape.new(of.shape, of.width)]


def largest(tape: Tape, x: Tensor) -> Tensor:
    """Of each row, without the gradient that a row's largest has, as large as the scores."""
    of, result = like(x), tape.new((*x.shape[:-1], 1), x.width)
    places = tape.new(result.shape, INT64)

    def backward(gradient: Tensor) -> list[Tensor | None]:
        zeros = tape.new(of.shape, of.width)
        return [tape.new(of.shape, of.width) if zeros else None]

    return tape.note(result, [x], [places.storage], backward)


def repeated(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """repeat_kv()."""
    batch, own, tokens, features = x.shape
    if heads == own:
        return x
    of, result = like(x), tape.new((batch, heads, tokens, features), x.width)
    return tape.note(result, [x], None, lambda g: [tape.new(of.shape, of.width)])


def matmul(tape: Tape, x: Tensor, y: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Of two with four dimensions, in 16 bits under autocast."""
    if tape.autocast:
        x, y = cast(tape, x, 2), cast(tape, y, 2)
    return product(tape, x, y, (shape, x.width))


# --8<-- [end:attend]


# --8<-- [start:attention]
def attention(way: Way, x: Tensor, mixer: Attention) -> Tensor:
    """Of queries, keys and values; with what a kind has beside these."""
    tape, name = way.tape, way.name
    batch, tokens, d = x.shape
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    heads = {"q": (batch, mixer.heads, tokens, mixer.head_dim), "k": (batch, mixer.kv_heads, tokens, mixer.head_dim)}

    def query(which: str, features: int) -> Tensor:
        made = linear(tape, x, (name, which), features, mixer.biases)
        if mixer.head_norms:
            made = norm(way, copied(tape, made, forward=False).view(*heads[which]), f"{which}_norm", mixer.head_dim)
        if mixer.wide_norms:
            made = norm(way, made, f"{which}_norm")
        return made.view(*heads[which]) if mixer.head_norms else copied(tape, made, forward=False).view(*heads[which])

    if way.kind.joint:
        qkv = linear(tape, x, (name, "qkv"), wide + 2 * narrow, mixer.biases)
        q = part(tape, qkv, *heads["q"])
        k, v = part(tape, qkv, *heads["k"]), part(tape, qkv, *heads["k"])
    else:
        q, k = query("q", wide), query("k", narrow)
        v = linear(tape, x, (name, "v"), narrow, mixer.biases).view(*heads["k"])
    q, k = turn(way, q), turn(way, k)
    if mixer.gated:
        raise NotImplementedError
    result = attend(way, q, k, v)
    return linear(tape, result, (name, "out"), d, mixer.out_bias)


def latent(way: Way, x: Tensor, mixer: Latent) -> Tensor:
    """DeepseekV3Attention: keys are put together in a new tensor, of what is expanded and what all heads share."""
    tape, name = way.tape, way.name
    batch, tokens, d = x.shape
    features = mixer.unturned + mixer.turned
    heads = batch, mixer.heads, tokens
    if mixer.query_rank:
        q = linear(tape, x, (name, "q_a"), mixer.query_rank, mixer.biases)
        q = linear(tape, norm(way, q, "q_norm"), (name, "q_b"), mixer.heads * features)
    else:
        q = linear(tape, x, (name, "q"), mixer.heads * features)
    q = copied(tape, q, forward=False).view(*heads, features)
    unturned, turned = parts(tape, q, mixer.unturned, mixer.turned)
    compressed = linear(tape, x, (name, "kv_a"), mixer.rank + mixer.turned, mixer.biases)
    small, key = parts(tape, compressed, mixer.rank, mixer.turned)
    small = norm(way, small, "kv_norm")
    turned, key = turn(way, turned), turn(way, key.view(batch, 1, tokens, mixer.turned))
    queries = joined(tape, unturned, turned)
    keys, values = expanded(way, small, key, mixer)
    result = attend(way, queries, keys, values)
    return linear(tape, result, (name, "out"), d, mixer.biases)


def expanded(way: Way, small: Tensor, key: Tensor, mixer: Latent) -> tuple[Tensor, Tensor]:
    """expand_kv()."""
    tape = way.tape
    batch, _, tokens, _ = key.shape
    heads, features = (batch, mixer.heads, tokens), mixer.unturned + mixer.value_dim
    both = linear(tape, small, (way.name, "kv_b"), mixer.heads * features)
    both = copied(tape, both, forward=False).view(*heads, features)
    unturned, values = parts(tape, both, mixer.unturned, mixer.value_dim)
    keys = tape.new((*heads, mixer.unturned + mixer.turned), both.width)
    of_unturned, of_key, whole = like(unturned), like(key), like(keys)

    def backward(gradient: Tensor) -> list[Tensor | None]:
        shared = (*of_unturned.shape[:-1], of_key.shape[-1])
        first = tape.new(whole.shape, whole.width)
        copy = tape.new(shared, of_key.width)
        second = tape.new(whole.shape, whole.width)
        own = tape.new(of_unturned.shape, of_unturned.width)
        return [own, tape.new(of_key.shape, of_key.width) if first and copy and second else None]

    return tape.note(keys, [unturned, key], None, backward), values


# --8<-- [end:attention]


# --8<-- [start:mlp]
def dense(way: Way, x: Tensor, inner: int, name: str, biases: bool = False) -> Tensor:
    """down(act(gate(x)) · up(x))."""
    tape, d = way.tape, x.shape[-1]
    if way.kind.joint:
        up = linear(tape, x, (way.name, name, "gate_up"), 2 * inner)
        gate, up = parts(tape, up, inner, inner)
        up = multiply(tape, up, apply(tape, gate))
        return linear(tape, up, (way.name, name, "down"), d)
    gate = apply(tape, linear(tape, x, (way.name, name, "gate"), inner, biases))
    product_of_both = multiply(tape, gate, linear(tape, x, (way.name, name, "up"), inner, biases))
    gate = None  # type: ignore[assignment]
    return linear(tape, product_of_both, (way.name, name, "down"), d, biases)


def routed(way: Way, x: Tensor, mlp: Experts) -> tuple[Tensor, Tensor]:
    """Of each token its experts, and their shares: of (b · T, d), twice (b · T, k)."""
    tape, tokens, name = way.tape, x.shape[0], (way.name, "router")
    chosen = tokens, mlp.active
    if way.kind.router == "logits":  # GptOssTopKRouter
        logits = linear(tape, x, name, mlp.experts, mlp.router_bias)
        experts = tape.new(chosen, INT64)
        return experts, softmax(tape, rows(tape, logits, experts, *chosen))
    if way.kind.router in ("softmax", "scores"):  # Qwen3MoeTopKRouter; MiniMaxM2TopKRouter, whose shares stay wide
        logits = linear(tape, x, name, mlp.experts, mlp.router_bias)
        probabilities = softmax(tape, cast(tape, logits, FLOAT32))
        experts = tape.new(chosen, INT64)
        shares = rows(tape, probabilities, experts, *chosen)
        return experts, scaled(tape, shares) if way.kind.router == "scores" else cast(tape, shares, logits.width)
    matrix = vector(tape, name, mlp.experts, x.shape[-1])  # DeepseekV3TopkRouter: in float32
    of_float32 = cast(tape, x, FLOAT32)
    logits = product(tape, of_float32, cast(tape, matrix, FLOAT32), ((tokens, mlp.experts), FLOAT32))
    of_float32 = None  # type: ignore[assignment]
    scores = softmax(tape, logits)
    experts = tape.new(chosen, INT64)
    return experts, scaled(tape, rows(tape, scores, experts, *chosen))


def experts(way: Way, x: Tensor, chosen: Tensor, shares: Tensor, mlp: Experts) -> Tensor:
    """grouped_mm_experts_forward(): each token stands there once for each of its experts, sorted by these."""
    tape, (tokens, d), inner = way.tape, x.shape, mlp.d_ff
    there = tokens * mlp.active
    sorted_experts, order = tape.new((there,), INT64), tape.new((there,), INT64)
    which = tape.new((there,), INT64)
    selected = rows(tape, x, which, there, d)
    which = None  # type: ignore[assignment]
    shares = rows(tape, shares, order, there)
    biases = biases_of(way, "gate_up", mlp, 2 * inner, sorted_experts)
    made = grouped(way, selected, "gate_up", mlp.experts, 2 * inner, biases)
    made = gated(way, made, inner)
    biases = biases_of(way, "down", mlp, d, sorted_experts)
    made = grouped(way, made, "down", mlp.experts, d, biases)
    weighted = multiply(tape, made, shares.view(there, 1))
    back = tape.new((there,), INT64)
    weighted = rows(tape, weighted, back, there, d)
    return cast(tape, added_up(tape, weighted, tokens), x.width)


def biases_of(way: Way, name: str, mlp: Experts, outputs: int, chosen: Tensor) -> Tensor | None:
    """Those of each token's expert."""
    if not mlp.biases:
        return None
    table = weight(way.tape, (way.name, name, "bias"), mlp.experts, outputs)
    return rows(way.tape, table, chosen, chosen.shape[0], outputs)


def grouped(way: Way, x: Tensor, name: str, experts: int, outputs: int, biases: Tensor | None) -> Tensor:
    """_grouped_linear(): all experts' matrices, of which each multiplies its tokens; biases are added in place."""
    tape, there = way.tape, x.shape[0]
    matrix = weight(tape, (way.name, name), experts, x.shape[-1], outputs)
    result = product(tape, x, matrix, ((there, outputs), x.width))
    if biases is None:
        return result
    return tape.note(result.view(there, outputs), [result, biases], None, lambda g: [g, g])


def gated(way: Way, both: Tensor, inner: int) -> Tensor:
    """_apply_gate(); gpt-oss's clamps both halves, and adds 1 to one."""
    tape, there = way.tape, both.shape[0]
    if way.kind.router != "logits":
        gate, up = parts(tape, both, inner, inner)
        return multiply(tape, apply(tape, gate), up)
    gate, up = part(tape, both, there, inner), part(tape, both, there, inner)
    gate, up = clamped(tape, gate), clamped(tape, up)
    glu = multiply(tape, gate, apply(tape, scaled(tape, gate), keeps="result"))
    return multiply(tape, shifted(tape, up), glu)


def clamped(tape: Tape, x: Tensor) -> Tensor:
    """Its backward has a mask of bytes, and a zero for what is beyond."""
    of = like(x)

    def backward(gradient: Tensor) -> list[Tensor | None]:
        mask = tape.new(of.shape, 1)
        return [tape.new(of.shape, of.width) if mask else None]

    return tape.note((x.shape, x.width), [x], [x.storage], backward)


def added_up(tape: Tape, x: Tensor, tokens: int) -> Tensor:
    """The results of a token's experts; backward each has a gradient of its own."""
    of = like(x)
    return tape.note(tape.new((tokens, x.shape[-1]), x.width), [x], None, lambda g: [tape.new(of.shape, of.width)])


def mixture(way: Way, x: Tensor, mlp: Experts) -> Tensor:
    """The router, the experts, and a shared one."""
    tape, (batch, tokens, d) = way.tape, x.shape
    flat = x.view(batch * tokens, d)
    shared = dense(way, flat, mlp.shared_d_ff, "shared") if way.kind.shared_first else None
    chosen, shares = routed(way, flat, mlp)
    result = experts(way, flat, chosen, shares, mlp)
    if mlp.shared_d_ff:
        shared = shared or dense(way, flat, mlp.shared_d_ff, "shared")
        if mlp.shared_gate:
            gate = apply(tape, linear(tape, flat, (way.name, "shared_gate"), 1), keeps="result")
            shared = multiply(tape, gate, shared)
        result = add(tape, result, shared)
    return result.view(batch, tokens, d)


# --8<-- [end:mlp]


# --8<-- [start:layer]
def forward(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """A layer: (b, T, d) → (b, T, d)."""
    tape, kind = way.tape, way.kind
    residual = x
    x = norm(way, x, "first") if kind.first else x
    mixer = layer.mixer
    x = latent(way, x, mixer) if isinstance(mixer, Latent) else attention(way, x, mixer)  # type: ignore[arg-type]
    x = norm(way, x, "behind_first") if kind.after else x
    x = add(tape, residual, x)
    residual = x
    x = norm(way, x, "second") if kind.first else x
    x = mixture(way, x, layer.mlp) if isinstance(layer.mlp, Experts) else dense(way, x, layer.mlp.d_ff, "mlp")
    x = norm(way, x, "behind_second") if kind.after else x
    return add(tape, residual, x)


# --8<-- [end:layer]
