"""The bytes of a training step at each moment at which it can peak. Numbers in, numbers out, nothing but Python.

The moments follow PyTorch's order: a forward pass that keeps activations, the loss, a backward pass that lets them go
and makes gradients, from the head down to the embedding, and AdamW. What each holds was found by counting whole steps
on meta tensors (flops_bytes.counter), which a test holds these bytes to; single lines name their sources.
"""

from typing import NamedTuple

from flops_bytes.adapters import CONSTANTS, adapter_parameters, frozen_weights_bytes, matrix_adapters
from flops_bytes.memory import RECIPES, Recipe, layer_bytes, softmax_bytes, state_bytes
from flops_bytes.shapes import Decoder, parameters, saves_last


# --8<-- [start:step]
class Step(NamedTuple):
    """How a step is run."""

    shape: Decoder
    seq_len: int
    batch: int
    recipe: Recipe
    tokens: int  # of all sequences
    wide: int  # features of all queries of a token
    narrow: int  # of its keys
    width: int  # bytes of an activation
    row: int  # of one feature of all tokens
    wide_row: int  # the same in float32
    rows: int  # of as many as the model is wide
    each: int  # of one feature on the residual path, which autocast leaves in float32 (PyTorch's list of what it casts)
    stream: int  # of the residual path
    more: int  # than `rows`
    inner_rows: int  # of those inside an MLP, or inside a token's experts
    cast: int  # bytes of the copy that autocast makes of a weight; 0 without autocast
    fused: bool  # attention
    checkpointing: str
    every: int  # with "full": every so many layers, from the first
    again: bool  # whether layers are made again, whole or but for what "per-op" keeps
    inside: str  # checkpointing of the layer that goes backward: one that has been made again is as with "none"
    composed: bool  # layers, of PyTorch's operations, as in transformers
    spelled: bool  # RMSNorms, of such operations
    dropout: bool
    loss: str
    chunks: int  # of the tokens, in which head and loss go forward and backward
    accumulated: bool  # gradients of an earlier batch are there
    foreach: bool  # AdamW, not fused
    in_backward: bool  # the update: of each gradient as soon as it is there, which then goes
    rank: int  # of adapters; 0: all weights are trained
    adapted: str  # the matrices beside which adapters stand; "all" without them
    inputs: int  # matrices that are trained, or adapted, of those of queries, keys and values
    four_bit: bool  # the frozen matrices
    trained: Recipe  # of what is trained
    scores: int  # numbers
    softmax: int  # bytes of a probability as softmax makes it


class Weights(NamedTuple):
    """Numbers of parameters that are trained, or bytes of copies in 16 bits."""

    total: int
    layers: int  # the matrices of all layers
    layer: int  # those of one
    down: int  # of these, the MLP's last, of all experts
    mlp: int  # all of the MLP's
    behind: int  # of a layer, all that comes behind its scores: attention's output and the MLP
    narrow: int  # its values', or its keys' if they are trained
    head: int  # the head's, which is the embedding's if they are tied


class Kept(NamedTuple):
    """Bytes of activations."""

    checkpointed: int  # that autograd keeps of a layer, as it is checkpointed
    whole: int  # of one that is not
    ends: int  # of all that is no layer, once the loss is there
    in_mlp: int  # of the layer that goes backward, with the gradients on their way through its MLP
    in_scores: int  # the same through its scores
    in_norms: tuple[int, int, int, int]  # the same through norms, of its MLP, keys, queries, attention; 0 if in one
    behind_mlp: int  # the same when its MLP has gone backward, but for a last gradient; 0 of adapters
    in_routing: tuple[int, int]  # the same where its experts' results are weighted, and above them; 0 if it has none
    made_scores: int  # what it holds at them in the forward pass; 0 if this book's is fused
    remade: int  # and when it has been made again
    unpacked: int  # in its MLP, where a matrix of 4 bits is unpacked, or at the MLP's end
    unpacked_last: int  # the same at its last matrix, if this has an adapter; else 0
    in_up: int  # where the adapter's result is added to that of its MLP's other half; 0 if it has none
    rotary: int  # cosines and sines
    hidden: int  # one more of these where chunks wait for each other: the head's input, or its gradient
    mask: int  # of dropout behind the embedding, and of eager attention, where something is made again with it
    causal: int  # of eager attention as transformers makes it for all layers, until the last has gone forward
    first: int  # what the first layer keeps less, since nothing below it is trained
    spared: int  # of copies of weights, the same
    copies: Weights  # that are made of weights, in bytes
    cast: int  # that autocast makes of a chunk


# --8<-- [end:step]


# --8<-- [start:peak]
def peak_bytes(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    recipe: str = "autocast",
    fused: bool = True,
    checkpointing: str = "none",
    chunks: int = 1,
    accumulated: bool = False,
    foreach: bool = False,
    counts: dict[str, int] | None = None,
    composed: bool = False,
    dropout: bool = False,
    loss: str = "plain",
    every: int = 1,
    rank: int = 0,
    adapted: str = "all",
    base: str = "as-recipe",
    in_backward: bool = False,
) -> dict[str, dict[str, int]]:
    """Bytes of tensors by line, at each moment at which a step can peak; the peak is the largest sum.

    Head and loss go forward and backward in `chunks` of the tokens; gradients of an earlier batch can be there already
    (`accumulated`); AdamW makes a temporary of all weights (`foreach`), or none if fused, or updates each weight within
    the backward pass (`in_backward`), in dense models without autocast, chunks or an earlier batch. `counts` is what
    parameters() says of the shape, if that is known. Layers are `composed` of operations and have `dropout` as
    layer_bytes() says; full checkpointing can be of `every` second layer, or third. For `loss` see logits_at_loss().
    Adapters of a `rank` are trained in float32 beside frozen weights without gradients, whose matrices can have fewer
    bits (`base`).
    """
    width, tokens = 4 if recipe == "fp32" else 2, batch * seq_len
    rows, each = width * tokens * shape.d_model, RECIPES[recipe].weights * tokens
    step = Step(
        shape=shape,
        seq_len=seq_len,
        batch=batch,
        recipe=RECIPES[recipe],
        tokens=tokens,
        wide=shape.heads * shape.head_dim,
        narrow=shape.kv_heads * shape.head_dim,
        width=width,
        row=width * tokens,
        wide_row=4 * tokens,
        rows=rows,
        each=each,
        stream=each * shape.d_model,
        more=each * shape.d_model - rows,
        inner_rows=width * tokens * shape.d_ff * shape.active_experts,
        cast=2 if recipe in ("autocast", "autocast_fp16") else 0,
        fused=fused,
        checkpointing=checkpointing,
        every=every,
        again=checkpointing in ("full", "per-op"),
        inside="selective" if checkpointing == "selective" else "none",
        composed=composed,
        spelled=composed and not shape.norm_shift,
        dropout=dropout,
        loss=loss,
        chunks=chunks,
        accumulated=accumulated,
        foreach=foreach,
        in_backward=in_backward,
        rank=rank,
        adapted=adapted,
        inputs=2 if adapted == "query-value" else 3,
        four_bit=base in CONSTANTS,
        trained=RECIPES["fp32" if rank else recipe],
        scores=batch * shape.heads * seq_len**2,
        softmax=softmax_bytes(shape, width, composed, recipe in ("autocast", "autocast_fp16")),
    )
    counts = counts or parameters(shape)
    whole = weigh(shape, counts)
    weights = weigh_adapters(step) if rank else whole
    kept = keep(step, copies_of(step, whole, weights), counts["qkv"] // shape.layers)
    at = {
        "forward": at_forward(step, weights, kept),
        "loss": at_loss(step, weights, kept),
        "head": at_head(step, weights, kept),
        "last_layer": at_last_layer(step, weights, kept),
        "first_layer": at_layer(step, weights, kept, others=0),
        "embedding": at_embedding(step, weights, kept),
        "update": at_update(step, weights),
    }
    state = state_bytes(weights.total, step.trained)  # Rajbhandari et al. 2020, section 3.1
    if rank:
        state |= {"adapters": state["weights"], "weights": frozen_weights_bytes(counts, step.recipe.weights, base)}
    state |= {"batch": 16 * tokens}  # tokens and targets, as int64
    return {moment: state | held for moment, held in at.items()}


# --8<-- [end:peak]


# --8<-- [start:sizes]
def weigh(shape: Decoder, counts: dict[str, int]) -> Weights:
    """What parameters() says, by who uses it when."""
    matrices = counts["qkv"] + counts["out"] + counts["mlp"] + counts["router"]
    return Weights(
        total=sum(counts.values()),
        layers=matrices,
        layer=matrices // shape.layers,
        down=shape.experts * shape.d_model * shape.d_ff,
        mlp=counts["mlp"] // shape.layers,
        behind=(counts["mlp"] + counts["out"]) // shape.layers,
        narrow=shape.d_model * shape.kv_heads * shape.head_dim,
        head=shape.vocab * shape.d_model,
    )


def weigh_adapters(step: Step) -> Weights:
    """The same of adapters, which only layers have."""
    shape, rank = step.shape, step.rank
    mlp = rank * (shape.d_model + shape.d_ff) * (step.adapted == "all")
    total = adapter_parameters(shape, rank, step.adapted)
    out = 0 if step.adapted == "query-value" else rank * (step.wide + shape.d_model)
    whole = (3 if shape.gated else 2) * mlp * shape.experts
    narrow = rank * (shape.d_model + step.narrow)
    return Weights(total, total, total // shape.layers, mlp * shape.experts, whole, out + whole, narrow, head=0)


def copies_of(step: Step, whole: Weights, trained: Weights) -> Weights:
    """Bytes of copies in 16 bits: of all matrices by autocast, but of packed ones; of adapters, which are float32."""
    cast, adapters = step.cast, 2 if step.rank and step.width == 2 else 0
    packed = 0 if step.four_bit else cast
    return Weights(
        total=0,
        layers=packed * whole.layers + adapters * trained.layers,
        layer=packed * whole.layer + adapters * trained.layer,
        down=packed * whole.down + adapters * trained.down,
        mlp=packed * whole.mlp + adapters * trained.mlp,
        behind=packed * whole.behind + adapters * trained.behind,
        narrow=packed * whole.narrow + adapters * trained.narrow,
        head=cast * whole.head,
    )


def keep(step: Step, copies: Weights, qkv: int) -> Kept:
    """What layer_bytes() says, with its two ends, and what autocast, dropout, composed layers and adapters add to it.

    Of the first layer above a frozen embedding, neither its first norm nor what makes queries, keys and values needs
    anything, but for their adapters.
    """
    shape = step.shape
    hidden = step.stream if step.chunks > 1 else 0
    rotary = 0 if shape.positions else 2 * step.recipe.weights * step.seq_len * shape.head_dim
    copied = step.wide_row * shape.d_model if step.spelled else 0
    mask = step.tokens * shape.d_model if step.dropout and shape.norm_shift else 0
    causal = step.each * step.seq_len if step.composed and not step.fused else 0
    mask += 0 if step.checkpointing == "none" else causal
    checkpointed, whole = kept_of_layer(step, step.checkpointing), kept_of_layer(step, "none")
    # the last norm's input and what it makes of it, the head's input
    both = 2 * step.rows + (2 if hidden else 1) * step.more + step.wide_row * (1 + shape.norm_shift)
    ends = rotary + both + copied + mask
    ours = not (step.fused or step.composed)
    made_scores, remade = (made_scores_bytes(step, kept) if ours else 0 for kept in (not step.again, True))
    attended = remade + step.stream + turned_bytes(step) if step.inside == "selective" else 0
    if step.spelled and not (step.fused or step.inside == "selective"):
        remade = made_result_bytes(step)
        made_scores = 0 if step.again else remade
    turned = turned_forward(step) if step.spelled else 0
    remade, made_scores = max(remade, turned), max(made_scores, 0 if step.again else turned)
    if step.checkpointing == "per-op":  # has kept results of matmuls behind them
        remade += step.row * (shape.d_ff + shape.d_model * shape.biases * (1 + step.dropout))
    before = before_remade(step) + left_of_layer(step) if step.again else 0
    in_up, unpacked_last = 0, 0
    names, product = names_in_mlp(step), step.row * shape.d_ff if step.adapted != "all" else 0
    matrix = step.width * shape.d_model * shape.d_ff if step.four_bit else 0
    if not step.again:  # at its last matrix, or where an adapter's result is added to another matrix's
        added = 3 * step.rows if step.rank and step.adapted == "all" else 0
        unpacked = checkpointed + names + max(matrix + product + step.rows, added)
    elif step.four_bit:  # beside it up's result, the last but one
        unpacked = whole + names + product - step.row * shape.d_ff + matrix
        if step.adapted == "all":  # whose adapter has multiplied nothing yet
            unpacked_last = before + unpacked + step.row * (shape.d_ff + shape.d_model - step.rank)
    else:
        unpacked = whole + product + names
        if (
            step.dropout and shape.norm_shift
        ):  # whose result is the last, or its input, with a name for GELU's in float32
            last = step.tokens * (4 * shape.d_ff + shape.d_model) if step.cast and step.composed else 0
            unpacked += max(last, 2 * step.rows)
    if step.rank and step.adapted == "all":
        in_up = (before + whole if step.again else checkpointed) + names + step.row * shape.d_ff
    # "per-op" keeps the product of which scores are made
    product = step.row * shape.heads * step.seq_len if step.checkpointing == "per-op" and not step.fused else 0
    left, first, spared = left_of_layer(step), 0, 0
    if step.rank:
        ends -= (step.stream if copied else 0) + (0 if hidden or step.loss == "fused" else step.rows)
        first = step.wide_row + (
            0 if step.again and not (copied and step.recipe.weights < 4) else copied or step.stream
        )
        spared = 0 if step.four_bit else step.cast * qkv
        # and its adapters there need no copy of their first matrix
        spared += 2 * step.rank * shape.d_model * step.inputs if step.width == 2 else 0
        first += queries_for_keys(step)
        if step.adapted == "query-value":  # nor does their norm
            first += step.wide_row * (step.narrow + shape.kv_heads) * shape.head_norms
    return Kept(
        checkpointed=checkpointed,
        whole=whole,
        ends=ends,
        in_mlp=mlp_bytes(step) + left,
        in_scores=max(0 if step.fused else scores_bytes(step), attended, turned_back(step)) + left,
        in_norms=norms_bytes(step, left),
        behind_mlp=behind_mlp_bytes(step) + left if not step.rank else 0,
        in_routing=routed_bytes(step, sum(one_layer(step, step.inside).values()) + left + step.stream),
        made_scores=made_scores + product,
        remade=before + remade if step.again else 0,
        unpacked=before + unpacked,
        unpacked_last=unpacked_last,
        in_up=in_up,
        rotary=rotary,
        hidden=hidden,
        mask=mask,
        causal=causal if step.checkpointing == "none" else 0,
        first=first,
        spared=spared,
        copies=copies,
        cast=step.rows // step.chunks if step.cast and hidden else 0,
    )


def kept_of_layer(step: Step, checkpointing: str) -> int:
    """Of one layer, with what autocast adds."""
    kept = sum(one_layer(step, checkpointing).values())
    if checkpointing in ("full", "per-op"):
        return kept + step.more
    product = 0 if step.adapted == "all" else step.inner_rows
    return kept + cast_bytes(step) + beside_frozen(step) - product


def queries_for_keys(step: Step) -> int:
    """Bytes of the queries, which eager attention keeps for the gradient of keys: above a frozen embedding the first
    layer's have none, if no adapter stands beside them."""
    return step.row * step.wide if step.adapted == "query-value" and not step.fused and step.inside == "none" else 0


def named_queries(step: Step) -> int:
    """The same where a name holds them until the scores are made."""
    return 0 if step.composed or step.cast else queries_for_keys(step)


def queries_again(step: Step) -> int:
    """The same where transformers' attention is made again."""
    selective = step.composed and step.inside == "selective" and (step.batch > 1 or step.cast > 0)
    return step.row * step.wide if step.adapted == "query-value" and not step.fused and selective else 0


def beside_frozen(step: Step) -> int:
    """What a layer whose matrices are frozen keeps more, all but the input of its last: `rank` features of a token
    between an adapter's two matrices; less by the inputs of matrices that have none, and norms before their weights.
    """
    shape, adapted = step.shape, step.adapted
    if not step.rank:
        return 0
    each = step.cast and shape.gated  # has a cast of its own
    inputs = {"query-value": 3 if each else 1, "attention": 2 if each else 1, "all": 0}[adapted]
    unused = inputs * shape.d_model
    normed = 0
    if step.spelled:
        normed = 2 * step.stream
        normed += step.row * (step.wide + step.narrow) * shape.head_norms
    return step.row * (step.rank * matrix_adapters(shape, adapted) - unused) - normed - unused_result(step)


def unused_result(step: Step) -> int:
    """Attention's result, if neither its matrix has an adapter that keeps it nor a kernel does."""
    return step.row * step.wide if step.adapted == "query-value" and not (step.fused and step.inside == "none") else 0


def kept_of_layers(step: Step, kept: Kept, layers: int) -> int:
    """Of so many layers from the first, of which every one is checkpointed, or each second or third."""
    checkpointed = -(-layers // step.every)
    first = kept.first if layers and not step.again else 0
    return checkpointed * kept.checkpointed + (layers - checkpointed) * kept.whole - first


def cast_bytes(step: Step) -> int:
    """What a layer keeps more under autocast; nothing without it."""
    if not step.cast:
        return 0
    shape = step.shape
    # a gated layer's norms: each matrix after them has a cast of its own, three more than one for each norm
    casts = 3 * step.rows * shape.gated
    return 2 * step.more + casts + turned_bytes(step)  # of two norms the inputs


def turned_bytes(step: Step) -> int:
    """What queries and keys take more where attention is made again from them: autocast turns them in float32."""
    if not step.cast or step.shape.positions or step.inside != "selective":
        return 0
    return step.row * (step.wide + step.narrow)


def turned_copies(step: Step) -> int:
    """Queries and keys in float32, for which this book's attention has names until it ends, and autocast's copies."""
    if not step.cast or step.shape.positions or step.composed:
        return 0
    return 2 * step.each * step.wide


def left_of_layer(step: Step) -> int:
    """Beside a layer that has been made again: its input, where its first norm keeps a float32 copy in its place; and
    with "per-op" the result of its last matmul, which was kept though nobody asks for it but a dropout behind it."""
    shape = step.shape
    copied = step.again and step.spelled and step.recipe.weights == 2
    last = step.checkpointing == "per-op" and saves_last(shape) and not (step.dropout and shape.norm_shift)
    return step.rows * (int(copied) + int(last))


def one_layer(step: Step, checkpointing: str) -> dict[str, int]:
    """What autograd keeps of one layer."""
    return layer_bytes(
        step.shape,
        seq_len=step.seq_len,
        batch=step.batch,
        width=step.width,
        fused=step.fused,
        checkpointing=checkpointing,
        composed=step.composed,
        dropout=step.dropout,
        autocast=step.cast > 0,
    )


def mlp_bytes(step: Step) -> int:
    """Of the layer that goes backward, in its MLP: what it kept, and the gradients of its inner features.

    Composed GELU's product has gradients of its two factors beside its own; under autocast these three are in float32,
    and one is cast, with the factors still there unless they were made again. Beside the stream's gradient there is
    dropout's, its mask gone, or autocast's copy, where GELU is one operation.
    """
    shape, kept = step.shape, one_layer(step, step.inside)
    dropped = kept.get("masks", 0) // 2
    beside = step.rows if (dropped or step.cast) and not (step.composed or shape.gated) else 0
    inside = sum(kept.values()) + cast_bytes(step) + beside_frozen(step)
    routed = step.row * shape.active_experts * shape.d_model if shape.experts > 1 else 0  # their results have gone
    return inside + step.stream + inner_gradients(step) + beside - dropped - routed


def norms_bytes(step: Step, left: int) -> tuple[int, int, int, int]:
    """Of the layer that goes backward, at an RMSNorm that is composed of operations: in float32 its input and five
    gradients of their results. Before attention's, queries and keys have one for each head in some models. Of a norm in
    one kernel the last moment alone, before it.
    """
    shape, kept = step.shape, one_layer(step, step.inside)
    if not step.spelled:  # the gradients of what makes queries, keys and values
        products = 2 * shape.d_model + step.wide if shape.gated else step.wide + 2 * step.narrow + shape.d_model
        return 0, 0, 0, kept["norms"] // 2 + step.more + kept["qkv_input"] + step.stream + left + step.row * products
    norm, before, wide = step.wide_row * shape.d_model, before_heads(step), 6 * step.wide_row
    # without a copy, its input has one gradient, with what the residual path brings
    first = 6 * norm + left + (step.stream if step.recipe.weights < 4 else 0)
    attention = sum(kept[part] for part in ("qkv", "scores", "out_input")) + turned_bytes(step)
    attention += step.row * step.rank * (step.inputs - 2) - unused_result(step)  # of the matrix behind it an adapter's
    # gradients of the residual path and of the norm's result; of values, and then of keys, what their matrix kept alone
    alone = step.rows * (step.cast > 0) + step.row * step.rank
    of_heads = step.wide_row + (0 if step.rank else step.row)
    back = before + 2 * step.stream + left - alone - of_heads * step.narrow
    keys = back + wide * step.narrow + step.each * step.wide
    queries = back + (wide - of_heads) * step.wide - alone * (step.inputs - 2)
    return before + attention + first, keys * shape.head_norms, queries * shape.head_norms, first


def behind_mlp_bytes(step: Step) -> int:
    """Of the layer that goes backward, when its MLP's input has its gradient: all that it kept before; and without
    autocast, under which that is cast, as many gradients of it as its first matrices, and one of theirs."""
    kept, inputs = one_layer(step, step.inside), 2 if step.shape.gated else 1
    before = sum(kept.values()) - kept["mlp"] - kept.get("masks", 0) // 2
    inputs *= step.rows
    if step.cast:
        return before + cast_bytes(step) - inputs + 2 * step.stream
    return before + step.stream + inputs + step.row * step.shape.d_ff


def routed_bytes(step: Step, held: int) -> tuple[int, int]:
    """Of the layer that goes backward, where its experts' results are weighted: the gradient of the weighted ones, and
    those of both factors, in float32, and one cast; and where the gradients of gate and up are made, of both in one."""
    shape = step.shape
    if shape.experts == 1:
        return 0, 0
    cast = 0 if step.again else step.row  # what was made again has gone by then
    results = (12 * step.tokens + cast) * shape.active_experts * shape.d_model
    return held + results, held - 2 * step.inner_rows


def inner_gradients(step: Step) -> int:
    """Of the inner features of an MLP, at the most."""
    composed = step.composed and not step.shape.gated
    if composed and step.cast:
        return (10 if step.again else 12) * step.tokens * step.shape.d_ff
    return step.inner_rows * (2 if step.shape.gated or composed else 1)


def made_mlp_bytes(step: Step) -> int:
    """In the forward pass, when an MLP's inner features are all made; beside them the layer's input, its sum with
    attention's, a gated MLP's norm, and names."""
    made = inner_gradients(step) + step.inner_rows
    made += dropped_width(step) * step.scores if step.composed and not step.fused else 0  # a name for probabilities
    return made + named(step) + (2 if step.shape.gated else 1) * step.stream


def scores_bytes(step: Step) -> int:
    """The same at its scores, where attention is eager: these, their softmax and their gradients.

    Dropout's mask has another two moments: its own product goes backward, with the gradients of its result and of the
    values beside it, and it goes backward itself.
    """
    shape, made, numbers = step.shape, step.softmax, step.scores
    scores = 3 * made * numbers
    cast = step.cast > 0 and step.inside == "selective"  # of queries and keys
    if step.composed and step.batch == 1 and not cast and (shape.kv_heads in (1, shape.heads)):
        # of one sequence transformers' need no copies, so its values are there beside their gradient
        once = shape.kv_heads == 1 and step.inside == "none"
        scores += step.row * (step.wide - step.narrow if once else step.wide * (step.inside == "selective"))
        copies = 0
    elif step.inside == "selective":  # queries, keys and values once kept, once made
        of_one = step.composed and step.batch == 1 and not cast
        copies = step.row * 2 * step.narrow if of_one else one_layer(step, step.inside)["qkv"]
    else:
        copies = 0
    if step.dropout:
        product = numbers * (made + 1 + 2 * step.width) + 2 * step.row * step.wide
        scores = max(scores, product, numbers * (made + 1 + 2 * dropped_width(step)))
    if step.inside == "selective":
        scores = max(scores, made_again_bytes(step)) + turned_bytes(step)
    scores += copies
    return before_scores(step) + step.stream + scores


def made_again_bytes(step: Step) -> int:
    """Where transformers' attention is made again, at softmax or dropout: the gradient of its result waits, and keys
    that were repeated before autocast cast them have a name."""
    shape, cast = step.shape, step.cast > 0
    if not step.composed:
        return 0
    repeated_keys = step.wide_row * step.wide if cast and 1 < shape.kv_heads < shape.heads else 0
    dropped = 1 + dropped_width(step) + (step.width if step.softmax != step.width else 0)
    numbers = step.softmax + (dropped if step.dropout else step.recipe.weights)
    return step.row * step.wide + repeated_keys + numbers * step.scores


def turned_forward(step: Step) -> int:
    """Of transformers' layer in its forward pass, where queries or keys are turned, under autocast in float32: three
    tensors of one, beside both as they came, and under autocast the norm's result. "per-op" has kept attention's."""
    wide, narrow = step.wide, step.narrow
    came = (step.each if step.shape.head_norms else step.row) * (wide + narrow) + step.row * narrow
    named = (step.stream if step.cast else 0) + step.row * wide * (step.checkpointing == "per-op")
    return before_heads(step) + came + step.each * max(3 * wide, wide + 3 * narrow) + named


def turned_back(step: Step) -> int:
    """Of the layer that goes backward, at attention's kernel, or where two matrices behind it give its result's
    gradient; and where autocast turned queries in float32, of whose gradient there are four tensors, or keys."""
    wide, narrow, held = step.wide, step.narrow, 0
    if step.fused:
        summed = (5 if step.inside == "none" else 4) * wide + 2 * narrow
        held = max(4 * wide + 4 * narrow, summed if step.rank and step.adapted != "query-value" else 0)
        held = step.row * held + one_layer(step, "none")["scores"] + 2 * turned_bytes(step)
    if step.cast and step.spelled:  # without norms of heads two of the four are cast
        turned = 8 * wide + 3 * narrow if step.shape.head_norms else max(6 * wide + 2 * narrow, 2 * wide + 7 * narrow)
        held = max(held, step.row * turned)
    return before_heads(step) + step.stream + held


def before_scores(step: Step) -> int:
    """Of the layer when it comes to its scores."""
    return before_heads(step) + one_layer(step, "none")["qkv"]


def before_heads(step: Step) -> int:
    """The same without queries, keys and values: of two norms one, and the heads', all of which keep nothing before
    their weights if these are frozen; the inputs of three matrices, of which autocast casts each; and adapters'."""
    kept, shape = one_layer(step, "none"), step.shape
    norms = kept["norms"] - step.rows - step.wide_row * (1 + shape.norm_shift + shape.d_model * step.spelled)
    if step.rank and step.spelled:
        norms -= step.stream + step.row * (step.wide + step.narrow) * shape.head_norms
    casts = (step.inputs - 1) * step.rows * (step.cast > 0 and shape.gated)
    return norms + step.more + kept["qkv_input"] + casts + step.row * step.rank * step.inputs


def dropped_width(step: Step) -> int:
    """Of one as dropout leaves it: transformers has cast it before, to its queries' type or GPT-2's values'."""
    if not step.composed:
        return step.softmax
    return step.width if step.shape.norm_shift else step.recipe.weights


def made_scores_bytes(step: Step, kept: bool) -> int:
    """The same on the way forward, in this book's code: transformers' holds less there than on the way back.

    Most is held at softmax, at dropout, or at the product behind, with its result; what is not `kept` goes on the way,
    but for what has a name: scores, mask, queries, keys and values as they came; in Llama what these are made of, and
    queries and keys before autocast casts them.
    """
    made, gpt2 = step.softmax, step.shape.positions > 0
    masked = step.width if gpt2 else step.recipe.weights  # as its queries are
    normed, result = step.rows, step.row * step.wide
    dropout = 1 + made if step.dropout else 0
    cast = step.width if step.width != made else 0
    numbers = max(made if made != masked else 0, dropout or cast)
    names = masked * step.seq_len**2 + step.row * (step.wide + 2 * step.narrow) + turned_copies(step)
    if kept:
        numbers = max(numbers, dropout + cast)
    elif gpt2:
        names -= normed
    if step.cast and not gpt2 and step.inside == "none":
        names += step.stream - (0 if kept else 3 * normed + 2 * result)
    names += result if kept or not dropout else 0
    return before_scores(step) + (masked + made + numbers) * step.scores + names


def named_probabilities(step: Step) -> int:
    """What dropout has left of probabilities, for which transformers has a name until the layer ends, where autograd
    keeps a copy alone."""
    left = dropped_width(step)
    if step.fused or not (step.composed and step.dropout and left != step.width) or step.inside == "selective":
        return 0
    return left * step.scores


def made_result_bytes(step: Step) -> int:
    """Of transformers' layer in its forward pass, when what eager attention has made is copied into another order.

    Names hold queries, keys and values as they came, where batched matmuls or autocast have made copies of them, and
    keys that were repeated before they were cast; what dropout has left; and what autocast has cast for all three.
    """
    shape, each = step.shape, step.each
    repeats, many = 1 < shape.kv_heads < shape.heads, step.batch > 1  # one head is a view for all
    copied = many or step.cast > 0
    names = each * (step.wide * copied + step.narrow * (copied or repeats) + step.wide * (repeats and step.cast > 0))
    names += step.row * step.narrow * (many or repeats) + named_probabilities(step) + (step.stream if step.cast else 0)
    made = one_layer(step, "none")["scores"] + 2 * step.row * step.wide
    return before_scores(step) + made + names


def names_in_mlp(step: Step) -> int:
    """What a layer on its way forward has names for in its MLP, beside all that it keeps: queries and keys before they
    are turned, values and results of eager attention, of which copies are kept; in transformers' the sum of which a
    norm keeps one, or GPT-2's attention's result; and the MLP's input, where autocast or no adapter keeps it."""
    shape = step.shape
    turned = step.row * (step.wide + step.narrow) * (not shape.positions)
    if (
        step.inside == "selective"
    ):  # its inputs are kept as they came, its result by its matrix, as fused kernels make it
        is_kept = step.fused and step.adapted != "query-value"
        attended = 0 if is_kept else step.row * step.wide
    else:
        attended = 0 if step.fused else step.row * (step.wide + step.narrow) * (2 if shape.positions else 1)
    summed = step.rows * (step.recipe.weights < 4 or shape.norm_shift)
    names = summed + named_probabilities(step) if step.composed else turned + attended
    if step.adapted != "all" and (not step.cast or (step.four_bit and step.again)):
        names += step.rows
    return names + (step.stream if step.cast and (step.composed or shape.gated) else 0)


def before_remade(step: Step) -> int:
    """Beside a layer that is made again the gradient of its result, and autocast's copy of that; or its product's,
    where the last matrix is frozen and in 4 bits, since autograd has kept nothing that is asked for by then."""
    if step.four_bit and step.adapted != "all":
        return step.stream + step.row * step.shape.d_ff
    return step.stream + (step.rows if step.cast else 0)


def named(step: Step) -> int:
    """What a layer's code still has names for when it comes to its last matrix: queries, keys, values, what attention
    and the second norm made; in transformers' the latter."""
    if step.composed:
        return step.stream
    return step.stream + step.row * (step.wide + 2 * step.narrow + (0 if step.fused else step.wide))


# --8<-- [end:sizes]


# --8<-- [start:moments]
def held(
    gradients: int = 0, copies: int = 0, activations: int = 0, layer: int = 0, logits: int = 0, temporaries: int = 0
) -> dict[str, int]:
    """A moment's lines: beside the state, that is all there is."""
    return {
        "gradients": gradients,
        "copies": copies,  # of weights, by autocast
        "activations": activations,  # of the layers that wait
        "layer": layer,  # of the one that goes backward
        "logits": logits,
        "temporaries": temporaries,
    }


def logits_of(step: Step) -> int:
    """Numbers of a chunk's logits."""
    if step.loss == "fused":
        return liger_chunk(step.shape, step.tokens) * step.shape.vocab
    return -(-step.tokens // step.chunks) * step.shape.vocab


def liger_chunk(shape: Decoder, tokens: int) -> int:
    """Tokens of a chunk of Liger's fused linear cross entropy: its logits are about as large as the head's input."""
    least, size = -(-tokens // -(-shape.vocab // shape.d_model)), 1
    while size < least:
        size *= 2
    return min(size, tokens)


def kept_logits(step: Step) -> int:
    """Bytes of the logits as the head has made them, or in float32, where a name still holds them when the loss goes
    backward."""
    return {"logits-held": step.width, "float32-held": 4}.get(step.loss, 0) * logits_of(step)


def judged_logits(step: Step) -> int:
    """Those that the loss takes: where it shifts them, not each sequence's last."""
    last = step.batch * step.shape.vocab
    return logits_of(step) - (last if step.loss in ("float32-held", "shifted", "as-logits") else 0)


def logits_forward(step: Step) -> int:
    """Bytes of logits when the forward pass has ended: in float32, with their log-probabilities, beside those kept.

    "float32-held" and "shifted" have copied all but each sequence's last before, and of the latter's a name still holds
    the model's own. "as-logits" has three of these, in their own width, and autocast's float32 copy of the last. Of one
    sequence alone these need no copy.
    """
    wide = {"compiled": step.width, "fused": step.width, "shifted": 12 + step.width % 4}
    wide |= {"as-logits": 3 * step.width + 2 * step.cast}
    if step.batch == 1:
        wide |= {"as-logits": 2 * (step.width + step.cast), "shifted": 8 + step.width % 4, "float32-held": 4}
    # transformers has a name for its logits until its loss is there; but for autocast, what follows holds more
    named_too = step.cast if step.composed and step.loss == "plain" else 0
    return wide.get(step.loss, 8 + named_too) * judged_logits(step) + kept_logits(step)


def logits_at_loss(step: Step) -> int:
    """Bytes of logits when the loss goes backward.

    "plain": log-probabilities, their gradient, the logits', all in float32 (logits_bytes()), "logits-held" and
    "float32-held": the logits beside these; "as-logits": these three in the logits' width, of which autocast casts the
    log-probabilities (LossNLL.cpp asks for log_softmax in the logits' type, but nll_loss it makes in float32).
    "compiled": torch.compile makes one kernel of the loss, which keeps the logits, and one of its gradients, the
    logits' alone. "fused" has made all gradients in the forward pass.
    """
    if step.loss == "fused":
        return 0
    wide = {"compiled": 2 * step.width, "as-logits": 3 * step.width + 2 * step.cast}
    return judged_logits(step) * wide.get(step.loss, 12) + kept_logits(step)


def named_hidden(step: Step, kept: Kept) -> int:
    """The head's input, for which transformers has a name until its loss is there, though the head keeps a cast."""
    return step.stream if step.cast and step.composed and step.loss == "plain" and not kept.hidden else 0


def copies_kept(step: Step, kept: Kept, layers: int) -> int:
    """Those of so many layers from the first, to their backward pass."""
    spared = kept.spared if layers and not step.again else 0
    return kept.copies.layer * (layers - (-(-layers // step.every) if step.again else 0)) - spared


def cached_copies(step: Step, layers: int) -> int:
    """Autocast's of adapters in the first layers that will be made again, to the end of the forward pass; or those that
    the first layer alone has no other need of.

    It keeps those of a matrix in float32, as adapters behind a norm are; others are cast to their input's 16 bits.
    """
    if not (step.cast and step.rank):
        return 0
    if not step.again:
        return 2 * step.rank * step.shape.d_model * step.inputs
    made = [step.wide, *([step.narrow] * (step.inputs - 1))]
    if step.adapted == "all":
        made += [step.shape.d_ff] * (2 if step.shape.gated else 1)
    return step.cast * step.rank * sum(step.shape.d_model + width for width in made) * -(-layers // step.every)


def earlier(step: Step, weights: Weights) -> int:
    """Gradients that an earlier batch has left: all, or none."""
    return step.trained.gradients * weights.total if step.accumulated else 0


def tied_waits(step: Step, weights: Weights, kept: Kept) -> int:
    """A tied head's gradient, which waits for the embedding's where an earlier batch has left one."""
    return step.trained.gradients * weights.head if step.shape.tied and step.accumulated and not kept.hidden else 0


def waiting(step: Step, weights: Weights, kept: Kept) -> int:
    """What the gradient of an MLP's last matrix takes more, until it is added to an earlier batch's, or is cast.

    By then its product's gradient is there, but not yet those of a gate's two factors, and in the end neither its own
    input nor autocast's copy. A frozen one has no gradient; in 4 bits it is unpacked then, or cast.
    """
    later = inner_gradients(step) - step.inner_rows
    if step.rank:
        unpacked = step.width * step.shape.d_model * step.shape.d_ff if step.four_bit else kept.copies.down
        backward = (
            unpacked + (step.rows if step.cast else 0) - later - (0 if step.adapted == "all" else step.inner_rows)
        )
        # its adapter's gradients are there, in 16 bits still
        narrow = 2 * weights.down if step.width == 2 else 0
        backward += narrow if step.accumulated else -narrow
        forward = unpacked + named(step) - later - step.inner_rows if step.again and not step.four_bit else 0
        return max(0, backward, forward)
    cast, gradient = step.cast * weights.down, step.trained.gradients * weights.down
    added = gradient if step.accumulated else 0
    made = (cast or added) + cast - later
    in_float32 = cast + added - later - step.inner_rows
    in_float32 += step.inner_rows if step.cast and step.composed and not step.shape.gated else 0  # its product's is too
    return max(0, made if step.accumulated else 0, in_float32)


def head_gradient(step: Step, weights: Weights, kept: Kept) -> int:
    """Gradients at the head: an earlier batch's, or what an earlier chunk has left of the head's."""
    return earlier(step, weights) or (step.trained.gradients * weights.head if kept.hidden else 0)


def fused_gradients(step: Step, weights: Weights, kept: Kept) -> int:
    """Those that a fused loss makes in the forward pass: of the head's input, and of the head."""
    return step.stream + step.trained.gradients * weights.head if step.loss == "fused" else 0


def fused_casts(step: Step, kept: Kept) -> int:
    """Under autocast a fused loss takes its input in float32, and casts the head's transpose beside the head."""
    return step.stream - step.rows + kept.copies.head if step.loss == "fused" else 0


def at_forward(step: Step, weights: Weights, kept: Kept) -> dict[str, int]:
    """The forward pass has ended, of chunks that of the layers: logits in float32, and their log-probabilities; or, if
    that holds more, its last layer is at its scores or in its MLP.

    A fused loss has a chunk's logits, in the width of activations, and beside them the gradients that it makes.
    """
    # a frozen weight is cast each time
    copies = copies_kept(step, kept, step.shape.layers) if step.rank else kept.copies.layers
    copies += 0 if kept.hidden or (step.rank and step.loss == "fused") else kept.copies.head
    end = held(
        gradients=earlier(step, weights),
        copies=copies + cached_copies(step, step.shape.layers),
        activations=kept_of_layers(step, kept, step.shape.layers) + kept.ends + named_hidden(step, kept),
        logits=0 if kept.hidden else logits_forward(step),
        temporaries=fused_gradients(step, weights, kept) + fused_casts(step, kept),
    )
    own, inside = as_checkpointed(step, kept, step.shape.layers - 1)
    down = kept.copies.down
    mlp = made_mlp_bytes(own) if own.again else inside.unpacked
    in_mlp = inside_forward(step, weights, kept, own, mlp, down * own.again)
    at_scores = inside.made_scores
    if step.rank and step.shape.layers == 1:
        at_scores += named_queries(step)
    moments = [end, inside_forward(step, weights, kept, own, at_scores, kept.copies.behind), in_mlp]
    if inside.causal:
        result = step.stream + step.rows
        if step.shape.positions:  # whose embeddings have names, and GELU's product where a cast is kept of it
            result += step.stream + step.stream // step.batch + 2 * step.cast * step.tokens * step.shape.d_ff
        moments.append(inside_forward(step, weights, kept, own, kept.whole + result, later=0))
        if not step.shape.norm_shift:  # the norm above it, of operations in float32, while the mask has a name
            norm = 12 * step.tokens * step.shape.d_model
            moments.append(inside_forward(step, weights, kept, own, kept.checkpointed + norm, later=0))
    if not own.again:
        moments.append(inside_forward(step, weights, kept, own, inside.in_up, later=down))
    return most(moments)


def as_checkpointed(step: Step, kept: Kept, below: int) -> tuple[Step, Kept]:
    """How the layer above so many is gone through: of every second or third alone, others are not made again."""
    if below % step.every == 0:
        return step, kept
    own = step._replace(checkpointing="none", again=False)
    return own, keep(own, kept.copies, qkv=0)


def inside_forward(step: Step, weights: Weights, kept: Kept, last: Step, layer: int, later: int) -> dict[str, int]:
    """The last layer goes forward, as this is checkpointed; some of its copies are made later."""
    before = step.shape.layers - 1
    own = 0 if last.again else kept.copies.layer - later - (0 if before else kept.spared)  # cast each time, if frozen
    # what enters the first layer has a name until the last has gone forward, in this book's code until that one has;
    # what enters the last has one too; and autograd keeps neither where transformers' norm makes a copy of it
    copied = step.spelled and step.recipe.weights < 4
    names = int((kept.first > 0 or copied) and not step.again and (step.composed or not before))
    names += int(copied and before > 0 and not last.again)
    return held(
        gradients=earlier(step, weights),
        copies=copies_kept(step, kept, before) + cached_copies(step, before) + own
        if step.rank
        else kept.copies.layers - later,
        activations=kept_of_layers(step, kept, before) + kept.rotary + kept.mask + kept.causal + names * step.stream,
        layer=layer - (0 if before or last.again else kept.first),
    )


def most(moments: list[dict[str, int]]) -> dict[str, int]:
    """The moment that holds most."""
    return max(moments, key=lambda lines: sum(lines.values()))


def at_loss(step: Step, weights: Weights, kept: Kept) -> dict[str, int]:
    """The backward pass begins: see logits_at_loss()."""
    temporaries = gone_backward(step, kept) + kept.cast + fused_gradients(step, weights, kept)
    return above_layers(step, weights, kept, logits_at_loss(step), temporaries)


def above_layers(step: Step, weights: Weights, kept: Kept, logits: int, temporaries: int) -> dict[str, int]:
    """No layer has gone backward."""
    return held(
        gradients=head_gradient(step, weights, kept),
        copies=kept.copies.head + copies_kept(step, kept, step.shape.layers),  # layers made again have let go of theirs
        activations=kept_of_layers(step, kept, step.shape.layers) + kept.ends,
        logits=logits,
        temporaries=temporaries,
    )


def gone_backward(step: Step, kept: Kept) -> int:
    """The gradients of chunks before this one: before the last whole one, or, if that holds more, before the rest."""
    chunk = -(-step.tokens // step.chunks)
    rest = step.tokens % chunk
    before_rest = kept.hidden // step.tokens * chunk - 12 * step.shape.vocab * (chunk - rest) if rest else 0
    return kept.hidden // step.tokens * (step.tokens // chunk - 1) * chunk + max(0, before_rest)


def at_head(step: Step, weights: Weights, kept: Kept) -> dict[str, int]:
    """The head's gradient is made, of the logits'; under autocast it is then cast, when these and a copy have gone."""
    logits = step.width * logits_of(step)
    made = max(step.width * weights.head, 2 * step.cast * weights.head - logits) + kept.hidden + kept.cast
    made += 0 if kept.hidden else step.rows  # of its input, which one node makes with it
    return above_layers(
        step,
        weights,
        kept,
        logits=0 if step.loss == "fused" else logits + kept_logits(step),
        temporaries=fused_gradients(step, weights, kept) or made,
    )


def at_layer(step: Step, weights: Weights, kept: Kept, others: int) -> dict[str, int]:
    """Where a layer holds most when it goes backward, `others` wait: in its MLP, at its scores, or made again before.

    Of each moment the layer's bytes, numbers of its gradients that are made, bytes of its copies that have gone, and
    what waits. What does not occur has no bytes.
    """
    copies, (own, inside) = kept.copies, as_checkpointed(step, kept, others)
    weighted, gated = inside.in_routing
    of_mlp, of_keys, of_queries, of_attention = inside.in_norms
    first, spared, back, narrow = (
        (0, 0, 0, copies.narrow) if others else (kept.first, kept.spared, kept.rotary * (not own.again), copies.narrow)
    )
    if first:  # above a frozen embedding no gradient comes to the layer's input, nor to keys that have no adapter
        back, narrow = back + 2 * step.stream, 0  # and `spared` has the matrices' copies
        if step.adapted == "query-value":
            of_keys, back = 0, back - step.wide_row * (step.narrow + step.shape.kv_heads)
    moments = [
        (inside.in_mlp, weights.down, copies.down, waiting(own, weights, inside)),
        (inside.behind_mlp, weights.mlp, copies.mlp, step.cast * weights.down),
        (of_mlp, weights.mlp, copies.mlp, 0),
        (of_keys - back, weights.behind + weights.narrow, copies.behind + narrow, 0),
        (of_queries - back, weights.behind + (step.inputs - 1) * weights.narrow, copies.behind + 2 * narrow, 0),
        (inside.in_scores - (step.stream + queries_again(own) if first else 0), weights.behind, copies.behind, 0),
        (inside.remade + (named_queries(own) if first else 0), 0, copies.behind, 0),
        (inside.unpacked_last, 0, 0, 0),
        (weighted, 0, 0, 0),
    ]
    if weighted:
        added = step.trained.gradients * (weights.mlp - weights.down) * step.accumulated
        moments.append((gated, weights.mlp, copies.mlp, added))
    if others or not step.rank:
        moments.append((of_attention, weights.layer, copies.layer, 0))
    if own.again:
        moments.append((inside.unpacked, 0, copies.down if step.four_bit else 0, 0))
        moments.append((inside.in_up, 0, copies.down, 0))
    moments = [moment for moment in moments if moment[0] > 0]
    before = weights.head + (step.shape.layers - 1 - others) * weights.layer
    if step.in_backward:  # at each matmul its own matrix's; a tied head's waits for the embedding's
        before = weights.head * step.shape.tied
        moments = [(layer, 0, gone, waits) for layer, _, gone, waits in moments]
        # most at the MLP's last, with the gradient of its input
        down = inside.in_mlp - inner_gradients(own) + step.inner_rows
        moments.append((down, step.shape.d_model * step.shape.d_ff, 0, 0))
    left, each = earlier(step, weights), step.trained.gradients
    layer, made, gone, waits = max(
        moments, key=lambda moment: moment[0] + (0 if left else each * moment[1]) - moment[2] + moment[3]
    )
    return held(
        gradients=left or each * (before + made),
        copies=copies_kept(step, kept, others) + copies.layer - spared - gone,
        activations=kept_of_layers(step, kept, others) + kept.rotary + kept.mask,
        layer=layer - first,
        logits=kept_logits(step),
        temporaries=2 * kept.hidden + tied_waits(step, weights, kept) + waits,
    )


def at_last_layer(step: Step, weights: Weights, kept: Kept) -> dict[str, int]:
    """The last layer goes backward and all others wait; or, if that holds more, the one below it does, or the norm
    above it."""
    layers = step.shape.layers
    # of the layer below the last the input alone may have been kept, and the gradients of the last be larger
    last = most([at_layer(step, weights, kept, layers - 1), at_layer(step, weights, kept, max(layers - 2, 0))])
    if not step.spelled:
        return last
    wide = step.wide_row * step.shape.d_model
    norm = held(
        gradients=earlier(step, weights)
        or step.trained.gradients * weights.head * (step.shape.tied or not step.in_backward),
        copies=copies_kept(step, kept, layers),
        activations=kept_of_layers(step, kept, layers) + kept.rotary + kept.mask,
        layer=6 * wide,  # composed of operations, it has its input and five gradients of their results, in float32
        logits=kept_logits(step),
        temporaries=2 * kept.hidden + tied_waits(step, weights, kept),
    )
    return most([last, norm])


def at_embedding(step: Step, weights: Weights, kept: Kept) -> dict[str, int]:
    """All gradients are there, and the embedding's once more, before it is added to what there is.

    A tied matrix has two gradients, the head's and the embedding's, and autograd makes their sum: a third, where the
    head's is a view of what its matmul has made, else in place (flops_bytes.trace); after chunks or an earlier batch
    one is there already.
    """
    tied = step.shape.tied
    third = tied and not kept.hidden and not step.cast and step.loss != "fused"
    again = (1 + third if tied and not kept.hidden else 0) + step.accumulated or tied
    summed = step.trained.gradients * weights.head * again
    positions = 0
    if step.accumulated and not step.rank and step.shape.positions:  # those of positions come before, of all sequences
        table = step.trained.gradients * step.shape.positions * step.shape.d_model
        positions = step.stream + (step.stream // step.batch if step.batch > 1 else 0) + table
        positions += tied_waits(step, weights, kept)
    # when a tied one's sum is made, the gradient of its rows has gone
    one = step.trained.gradients * weights.head * third
    lines = held(
        gradients=step.trained.gradients * (weights.head if step.in_backward else weights.total),
        logits=kept_logits(step),
        temporaries=2 * kept.hidden + max(step.stream + summed - one, summed, positions),
    )
    if not step.in_backward:
        return lines
    table = step.shape.positions * step.shape.d_model  # has gone by then
    before = step.trained.gradients * (table + weights.head * tied)
    return most([lines, held(gradients=before, logits=kept_logits(step), temporaries=step.stream)])


def at_update(step: Step, weights: Weights) -> dict[str, int]:
    """AdamW: of `foreach`, one temporary of all weights, the roots of the second moments (_multi_tensor_adamw).

    With master weights, their gradients in float32 take the place of the others, one by one: the last that waits.
    """
    if step.in_backward:
        return held()
    shape, recipe = step.shape, step.trained
    behind = 0 if shape.tied else weights.head
    table = 2 * shape.positions * shape.d_model  # of positions, behind the embedding
    # the head, an MLP, the embedding, or that table
    last = max(behind, weights.down - behind, weights.head + max(weights.head, table) - weights.total)
    waits = 0 if step.foreach or not recipe.master else last
    return held(
        gradients=(recipe.master or recipe.gradients) * weights.total + recipe.gradients * waits,
        temporaries=recipe.optimizer // 2 * weights.total if step.foreach else 0,
    )


# --8<-- [end:moments]
