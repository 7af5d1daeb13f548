"""Layers of this book's modules, and of transformers' GPT-2, for flops_bytes.memory.tape. Python alone.

Each function here is one of LlamaBlock, GPT2Block and eager() in flops_bytes/lessons/models.py, or of GPT2Block of
transformers 5.23 (models/gpt2/modeling_gpt2.py), whose names it has as long as they have them. What a shape has that
no module of this book has (experts, norms of heads) is put in as transformers does it, with its norms in one kernel.
"""

from flops_bytes.memory.layers import (
    LayerContext,
    ModelFamily,
    attend,
    batched_matmul,
    by_token,
    dropout_within,
    eager_attention,
    gathered,
    gathered_for,
    laid_out,
    layer_linear,
    mixture,
    norm,
    repeat_interleave,
    scattered,
    scattered_from,
)
from flops_bytes.memory.tape import (
    FLOAT32,
    Tensor,
    add,
    add_scalar,
    apply_saving_input,
    apply_saving_output,
    cast,
    concatenate,
    dropout,
    multiply,
    multiply_scalar,
    reordered,
    softmax,
    split,
)
from flops_bytes.model.stack import Attention, Dense, Experts, Layer

GPT2 = ModelFamily(norm_kind="layer_norm", dropout_place="inside", code="gpt2")
OWN_LLAMA = ModelFamily(norm_kind="kernel", routed_by="scores", dequantizes_each_expert=True, code="own_llama")
OWN_GPT2 = ModelFamily(norm_kind="layer_norm", code="own_gpt2")


def linear_module(context: LayerContext, x: Tensor, part_of: str, which: str, outputs: int, biased: bool) -> Tensor:
    """A linear module, whose call has a name for its input until it ends."""
    tape = context.tape
    tape.enter()
    return tape.leave(layer_linear(context, tape.bind(x), part_of, which, outputs, biased))


def own_llama(context: LayerContext, x: Tensor, layer: Layer) -> Tensor:
    """LlamaBlock.forward()."""
    tape, name, mixer = context.tape, context.name, layer.mixer
    assert isinstance(mixer, Attention)
    d = x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    h = tape.bind(gathered(context, norm(context, x, "first")))
    if context.family.fused_qkv:
        q, k, v = fused_qkv(context, h, mixer, True)
    else:
        q = tape.bind(heads_of(context, h, "q", mixer.heads, mixer))
        k = tape.bind(heads_of(context, h, "k", mixer.kv_heads, mixer))
        v = tape.bind(heads_of(context, h, "v", mixer.kv_heads, mixer))
    heads = tape.bind(own_attend(context, rotate(context, q), rotate(context, k), v))
    heads = flatten_heads(context, heads)
    out = scattered(context, linear_module(context, heads, name, "out", d, mixer.out_bias))
    y = tape.bind(add(tape, x, out))
    h2 = tape.bind(gathered_for(layer.mlp, context, norm(context, y, "second")))
    tape.forget(h)
    change = tape.bind(scattered_from(layer.mlp, context, own_mlp(context, h2, layer)))
    return tape.leave(add(tape, y, change))


def heads_of(context: LayerContext, x: Tensor, which: str, heads: int, mixer: Attention) -> Tensor:
    """Queries, keys or values by head."""
    tape, (batch, tokens, _) = context.tape, x.shape
    made = linear_module(context, x, context.name, which, heads * mixer.head_dim, mixer.biases)
    by_head = reordered(tape, made) if which != "v" or context.attention != "fused" else made
    by_head = tape.view(by_head, (batch, heads, tokens, mixer.head_dim))
    return norm(context, by_head, f"{which}_norm", mixer.head_dim) if mixer.head_norms and which != "v" else by_head


def rotate(context: LayerContext, x: Tensor) -> Tensor:
    """x · cos + (−right, left) · sin, of two halves that chunk() gives."""
    tape, (cosines, sines) = context.tape, context.cos_sin
    half = x.shape[-1] // 2
    tape.enter()
    x = tape.bind(x)
    left, right = [tape.bind(each) for each in split(tape, x, (half, x.shape[-1] - half))]
    one = tape.bind(multiply(tape, x, cosines))
    return tape.leave(add(tape, one, multiply(tape, concatenate(tape, [multiply_scalar(tape, right), left]), sines)))


def flatten_heads(context: LayerContext, heads: Tensor) -> Tensor:
    """heads.transpose(1, 2).flatten(2), which copies what a matmul makes, and nothing that a kernel does."""
    if context.attention == "fused":
        return heads
    batch, many, tokens, features = heads.shape
    return context.tape.view(laid_out(context.tape, heads), (batch, tokens, many * features))


def own_gpt2(context: LayerContext, x: Tensor, layer: Layer) -> Tensor:
    """GPT2Block.forward() of this book."""
    tape, name, mixer = context.tape, context.name, layer.mixer
    assert isinstance(mixer, Attention)
    d = x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    q, k, v = fused_qkv(context, gathered(context, norm(context, x, "first")), mixer, True)
    attended = flatten_heads(context, own_attend(context, q, k, v))
    out = scattered(context, linear_module(context, attended, name, "out", d, mixer.out_bias))
    y = tape.bind(add(tape, x, dropout(tape, out) if context.dropout[1] else out))
    change = scattered(context, own_mlp(context, gathered(context, norm(context, y, "second")), layer))
    change = tape.bind(dropout(tape, change) if context.dropout[1] else change)
    return tape.leave(add(tape, y, change))


def fused_qkv(context: LayerContext, x: Tensor, mixer: Attention, is_own: bool) -> list[Tensor]:
    """Queries, keys and values of one matmul, named: views of its result, of which this book's has a name too."""
    tape, (batch, tokens, _) = context.tape, x.shape
    sizes = [mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim]
    made = linear_module(context, x, context.name, "qkv", sum(sizes), mixer.biases)
    of_each = split(tape, reordered(tape, tape.bind(made)) if is_own else made, sizes)
    found = []
    for each, heads in zip(of_each, (mixer.heads, mixer.kv_heads, mixer.kv_heads), strict=True):
        turned = each if is_own or context.attention == "fused" else reordered(tape, each)
        found.append(tape.bind(tape.view(turned, (batch, heads, tokens, mixer.head_dim))))
    return found


def own_mlp(context: LayerContext, x: Tensor, layer: Layer) -> Tensor:
    """The MLP, with the names that a block has in it."""
    tape, mlp, name, d = context.tape, layer.mlp, f"{context.name}.mlp", x.shape[-1]
    if isinstance(mlp, Experts):
        return mixture(context, x, mlp)
    if mlp.gated:
        gate = tape.bind(apply_saving_input(tape, linear_module(context, x, name, "gate", mlp.d_ff, mlp.biases)))
        inner = multiply(tape, gate, linear_module(context, x, name, "up", mlp.d_ff, mlp.biases))
        tape.forget(gate)
        return linear_module(context, inner, name, "down", d, mlp.biases)
    inner = tape.bind(apply_saving_input(tape, linear_module(context, x, name, "up", mlp.d_ff, mlp.biases)))
    return linear_module(context, inner, name, "down", d, mlp.biases)


def own_attend(context: LayerContext, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a block attends with: a kernel, or eager(), to which its arguments belong alone; made again, if so."""
    tape = context.tape
    if context.attention == "eager" and not context.recomputes_attention:
        return own_eager(context, q, k, v)
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    return tape.leave(attend(context, q, k, v, own_eager))


def own_eager(context: LayerContext, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """eager() of flops_bytes.lessons.models: a mask of its own, and copies of keys and values, once a query head."""
    tape, (batch, heads, tokens, _) = context.tape, q.shape
    of_scores = batch, heads, tokens, tokens
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    rows = tape.bind(laid_out(tape, q))
    tape.forget(q)
    keys, values = tape.bind(repeat_interleave(tape, k, heads)), tape.bind(repeat_interleave(tape, v, heads))
    tape.forget(k)
    tape.forget(v)
    full = tape.bind(tape.new((tokens, tokens), rows.itemsize))
    future = tape.bind(tape.new((tokens, tokens), rows.itemsize))
    tape.forget(full)
    products = batched_matmul(tape, rows, keys, of_scores, (False, False), "scores")
    scores = tape.bind(add(tape, multiply_scalar(tape, products), future))
    made = softmax(tape, cast(tape, scores, FLOAT32) if tape.autocast else scores)
    made = dropout(tape, made) if context.dropout[0] else made
    return tape.leave(batched_matmul(tape, made, values, (*of_scores[:3], v.shape[-1]), (False, False), "values"))


def gpt2(context: LayerContext, x: Tensor, layer: Layer) -> Tensor:
    """GPT2Block.forward() of transformers."""
    tape, mixer, mlp = context.tape, layer.mixer, layer.mlp
    assert isinstance(mixer, Attention) and isinstance(mlp, Dense)
    tape.enter()
    tape.layer_frame = len(tape.frames)
    x = tape.bind(x)
    h = tape.bind(norm(context, x, "first"))
    attended = tape.bind(gpt2_attention(context, h, mixer))
    y = tape.bind(add(tape, attended, x))
    tape.forget(x)
    h2 = tape.bind(norm(context, y, "second"))
    tape.forget(h)
    made = tape.bind(gpt2_mlp(context, h2, mlp))
    return tape.leave(add(tape, y, made))


def gpt2_attention(context: LayerContext, x: Tensor, mixer: Attention) -> Tensor:
    """GPT2Attention.forward()."""
    tape, d = context.tape, x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    q, k, v = fused_qkv(context, x, mixer, False)
    result = tape.bind(attend(context, q, k, v, eager_attention))
    if context.attention != "fused":
        in_order = tape.bind(by_token(tape, result))
        tape.forget(result)
        result = in_order
    out = linear_module(context, result, context.name, "out", d, mixer.out_bias)
    tape.forget(result)
    return tape.leave(dropout_within(context, out))


def gpt2_mlp(context: LayerContext, x: Tensor, mlp: Dense) -> Tensor:
    """GPT2MLP.forward()."""
    tape, name, d = context.tape, f"{context.name}.mlp", x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    up = tape.bind(linear_module(context, x, name, "up", mlp.d_ff, mlp.biases))
    inner = tape.bind(gelu_new(context, up))
    tape.forget(up)
    change = tape.bind(linear_module(context, inner, name, "down", d, mlp.biases))
    tape.forget(inner)
    return tape.leave(dropout_within(context, change))


def gelu_new(context: LayerContext, x: Tensor) -> Tensor:
    """NewGELUActivation.forward(): x/2 · (1 + tanh(…x³…)), whose power autocast makes in float32."""
    tape = context.tape
    tape.enter()
    x = tape.bind(x)
    half = multiply_scalar(tape, x)
    power = apply_saving_input(tape, cast(tape, x, FLOAT32) if tape.autocast else x, temporaries=2)
    inner = apply_saving_output(tape, multiply_scalar(tape, add(tape, x, multiply_scalar(tape, power))))
    return tape.leave(multiply(tape, half, add_scalar(tape, inner)))
