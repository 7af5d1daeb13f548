"""Layers of this book's modules, and of transformers' GPT-2, for flops_bytes.memory.tape. Python alone.

Each function here is one of LlamaBlock, GPT2Block and eager() in flops_bytes/lessons/models.py, or of GPT2Block of
transformers 5.23 (models/gpt2/modeling_gpt2.py), whose names it has as long as they have them. What a shape has that
no module of this book has (experts, norms of heads) is put in as transformers does it, with its norms in one kernel.
"""

# --8<-- [start:setup]
from flops_bytes.memory.layers import (
    Kind,
    Way,
    attend,
    batched,
    by_token,
    in_one,
    inside,
    laid_out,
    layer_linear,
    mixture,
    norm,
)
from flops_bytes.memory.tape import (
    FLOAT32,
    Tape,
    Tensor,
    add,
    apply,
    cast,
    dropped,
    joined,
    keeping,
    like,
    multiply,
    parts,
    reordered,
    scaled,
    shifted,
)
from flops_bytes.model.stack import Attention, Dense, Experts, Layer

GPT2 = Kind(norm_kind="shifted", drops_where="inside", code="gpt2")
OWN_LLAMA = Kind(norm_kind="kernel", routed_by="scores", unpacked_apart=True, code="own_llama")
OWN_GPT2 = Kind(norm_kind="shifted", code="own_gpt2")
# --8<-- [end:setup]


# --8<-- [start:own]
def matrix(way: Way, x: Tensor, part_of: str, which: str, outputs: int, biased: bool) -> Tensor:
    """A linear module, whose call has a name for its input until it ends."""
    tape = way.tape
    tape.enter()
    return tape.leave(layer_linear(way, tape.bind(x), part_of, which, outputs, biased))


def own_llama(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """LlamaBlock.forward()."""
    tape, name, mixer = way.tape, way.name, layer.mixer
    assert isinstance(mixer, Attention)
    d = x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    h = tape.bind(norm(way, x, "first"))
    if way.kind.joint_heads:
        q, k, v = joint_heads(way, h, mixer, True)
    else:
        q = tape.bind(heads_of(way, h, "q", mixer.heads, mixer))
        k = tape.bind(heads_of(way, h, "k", mixer.kv_heads, mixer))
        v = tape.bind(heads_of(way, h, "v", mixer.kv_heads, mixer))
    heads = tape.bind(own_attend(way, rotate(way, q), rotate(way, k), v))
    y = tape.bind(add(tape, x, matrix(way, flat(way, heads), name, "out", d, mixer.out_bias)))
    h2 = tape.bind(norm(way, y, "second"))
    tape.forget(h)
    change = tape.bind(own_mlp(way, h2, layer))
    return tape.leave(add(tape, y, change))


def heads_of(way: Way, x: Tensor, which: str, heads: int, mixer: Attention) -> Tensor:
    """Queries, keys or values by head."""
    tape, (batch, tokens, _) = way.tape, x.shape
    made = matrix(way, x, way.name, which, heads * mixer.head_dim, mixer.biases)
    by_head = reordered(tape, made) if which != "v" or way.mask is not None else made
    by_head = tape.view(by_head, (batch, heads, tokens, mixer.head_dim))
    return norm(way, by_head, f"{which}_norm", mixer.head_dim) if mixer.head_norms and which != "v" else by_head


def rotate(way: Way, x: Tensor) -> Tensor:
    """x · cos + (−right, left) · sin, of two halves that chunk() gives."""
    tape, (cosines, sines) = way.tape, way.turning
    half = x.shape[-1] // 2
    tape.enter()
    x = tape.bind(x)
    left, right = [tape.bind(each) for each in parts(tape, x, (half, x.shape[-1] - half))]
    one = tape.bind(multiply(tape, x, cosines))
    return tape.leave(add(tape, one, multiply(tape, joined(tape, [scaled(tape, right), left]), sines)))


def flat(way: Way, heads: Tensor) -> Tensor:
    """heads.transpose(1, 2).flatten(2), which copies what eager attention makes, and nothing that a kernel does."""
    if way.mask is None:
        return heads
    batch, many, tokens, features = heads.shape
    return way.tape.view(laid_out(way.tape, heads), (batch, tokens, many * features))


def own_gpt2(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """GPT2Block.forward() of this book."""
    tape, name, mixer = way.tape, way.name, layer.mixer
    assert isinstance(mixer, Attention)
    d = x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    q, k, v = joint_heads(way, norm(way, x, "first"), mixer, True)
    out = matrix(way, flat(way, own_attend(way, q, k, v)), name, "out", d, mixer.out_bias)
    y = tape.bind(add(tape, x, dropped(tape, out) if way.drops[1] else out))
    change = own_mlp(way, norm(way, y, "second"), layer)
    change = tape.bind(dropped(tape, change) if way.drops[1] else change)
    return tape.leave(add(tape, y, change))


def joint_heads(way: Way, x: Tensor, mixer: Attention, is_own: bool) -> list[Tensor]:
    """Queries, keys and values of one matmul, named: views of its result, of which this book's has a name too."""
    tape, (batch, tokens, _) = way.tape, x.shape
    sizes = [mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim]
    made = matrix(way, x, way.name, "qkv", sum(sizes), mixer.biases)
    of_each = parts(tape, reordered(tape, tape.bind(made)) if is_own else made, sizes)
    found = []
    for each, heads in zip(of_each, (mixer.heads, mixer.kv_heads, mixer.kv_heads), strict=True):
        turned = each if is_own or way.mask is None else reordered(tape, each)
        found.append(tape.bind(tape.view(turned, (batch, heads, tokens, mixer.head_dim))))
    return found


def own_mlp(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """The MLP, with the names that a block has in it."""
    tape, mlp, name, d = way.tape, layer.mlp, f"{way.name}.mlp", x.shape[-1]
    if isinstance(mlp, Experts):
        return mixture(way, x, mlp)
    if mlp.gated:
        gate = tape.bind(apply(tape, matrix(way, x, name, "gate", mlp.d_ff, mlp.biases)))
        inner = multiply(tape, gate, matrix(way, x, name, "up", mlp.d_ff, mlp.biases))
        tape.forget(gate)
        return matrix(way, inner, name, "down", d, mlp.biases)
    inner = tape.bind(apply(tape, matrix(way, x, name, "up", mlp.d_ff, mlp.biases)))
    return matrix(way, inner, name, "down", d, mlp.biases)


def own_attend(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a block attends with: a kernel, or eager(), to which its arguments belong alone; made again, if so."""
    tape = way.tape
    if way.mask is not None and not way.attends_again:
        return own_eager(way, q, k, v)
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    if way.attends_again:
        make = in_one if way.mask is None else own_eager
        return tape.leave(tape.recomputed(lambda: make(way, q, k, v), [q, k, v]))
    return tape.leave(in_one(way, q, k, v))


def own_eager(way: Way, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """eager() of flops_bytes.lessons.models: a mask of its own, and copies of keys and values, once a query head."""
    tape, (batch, heads, tokens, _) = way.tape, q.shape
    of_scores = batch, heads, tokens, tokens
    tape.enter()
    q, k, v = [tape.bind(each) for each in (q, k, v)]
    rows = tape.bind(laid_out(tape, q))
    tape.forget(q)
    keys, values = tape.bind(own_repeated(tape, k, heads)), tape.bind(own_repeated(tape, v, heads))
    tape.forget(k)
    tape.forget(v)
    full = tape.bind(tape.new((tokens, tokens), rows.width))
    future = tape.bind(tape.new((tokens, tokens), rows.width))
    tape.forget(full)
    products = batched(tape, rows, keys, of_scores, (False, False), "scores")
    scores = tape.bind(add(tape, scaled(tape, products), future))
    made = keeping(tape, cast(tape, scores, FLOAT32) if tape.autocast else scores)
    made = dropped(tape, made) if way.drops[0] else made
    return tape.leave(batched(tape, made, values, (*of_scores[:3], v.shape[-1]), (False, False), "values"))


def own_repeated(tape: Tape, x: Tensor, heads: int) -> Tensor:
    """repeat_interleave(), which copies one head alone too."""
    return tape.note([x], (x.shape[0], heads, *x.shape[2:]), x.width, [], [like(x)])


# --8<-- [end:own]


# --8<-- [start:gpt2]
def gpt2(way: Way, x: Tensor, layer: Layer) -> Tensor:
    """GPT2Block.forward() of transformers."""
    tape, mixer, mlp = way.tape, layer.mixer, layer.mlp
    assert isinstance(mixer, Attention) and isinstance(mlp, Dense)
    tape.enter()
    tape.layer_frame = len(tape.frames)
    x = tape.bind(x)
    h = tape.bind(norm(way, x, "first"))
    attended = tape.bind(gpt2_attention(way, h, mixer))
    y = tape.bind(add(tape, attended, x))
    tape.forget(x)
    h2 = tape.bind(norm(way, y, "second"))
    tape.forget(h)
    made = tape.bind(gpt2_mlp(way, h2, mlp))
    return tape.leave(add(tape, y, made))


def gpt2_attention(way: Way, x: Tensor, mixer: Attention) -> Tensor:
    """GPT2Attention.forward()."""
    tape, d = way.tape, x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    q, k, v = joint_heads(way, x, mixer, False)
    result = tape.bind(attend(way, q, k, v))
    if way.mask is not None:
        in_order = tape.bind(by_token(tape, result))
        tape.forget(result)
        result = in_order
    out = matrix(way, result, way.name, "out", d, mixer.out_bias)
    tape.forget(result)
    return tape.leave(inside(way, out))


def gpt2_mlp(way: Way, x: Tensor, mlp: Dense) -> Tensor:
    """GPT2MLP.forward()."""
    tape, name, d = way.tape, f"{way.name}.mlp", x.shape[-1]
    tape.enter()
    x = tape.bind(x)
    up = tape.bind(matrix(way, x, name, "up", mlp.d_ff, mlp.biases))
    inner = tape.bind(gelu_new(way, up))
    tape.forget(up)
    change = tape.bind(matrix(way, inner, name, "down", d, mlp.biases))
    tape.forget(inner)
    return tape.leave(inside(way, change))


def gelu_new(way: Way, x: Tensor) -> Tensor:
    """NewGELUActivation.forward(): x/2 · (1 + tanh(…x³…)), whose power autocast makes in float32."""
    tape = way.tape
    tape.enter()
    x = tape.bind(x)
    half = scaled(tape, x)
    power = apply(tape, cast(tape, x, FLOAT32) if tape.autocast else x, temporaries=2)
    inner = keeping(tape, scaled(tape, add(tape, x, scaled(tape, power))))
    return tape.leave(multiply(tape, half, shifted(tape, inner)))


# --8<-- [end:gpt2]
