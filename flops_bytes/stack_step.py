"""The bytes of a training step of a stack of layers, at each moment at which it can peak. Python alone.

Each kind of layer goes forward and backward once on flops_bytes.tape, and so do the ends: what stands below the layers,
and the norm, the head and the loss above them. Layers alike do alike, so a step is put together of these: forward, when
those below have kept what they keep; backward, when those above have left their gradients.
"""

# --8<-- [start:setup]
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from flops_bytes.adapters import CONSTANTS, Format, quantized_bytes
from flops_bytes.memory import RECIPES, state_bytes
from flops_bytes.sharding import gathered_width, ring_bytes
from flops_bytes.stack import Attention, Delta, Experts, Latent, Layer, Stack, matrices, parameters
from flops_bytes.stack_layers import KINDS, NO_DROPOUT, Adapters, Kind, Way, forward, laid_out, norm
from flops_bytes.tape import FLOAT32, INT64, Like, Tape, Tensor, cast, count, keeping, like, linear, part, vector

# kinds that were counted; a Kimi K2 is a DeepSeek-V3 to its makers
DERIVED: tuple[str, ...] = (
    "qwen3_moe",
    "deepseek_v3",
    "kimi_k2",
    "glm4_moe",
    "gpt_oss",
    "gemma3_text",
    "olmo2",
    "olmo3",
)
DERIVED += ("llama", "mistral", "phi3", "seed_oss", "qwen2_moe", "glm4_moe_lite", "minimax_m2", "dots1", "olmoe")


class Run(NamedTuple):
    """How a step is run."""

    kind: Kind
    batch: int
    seq_len: int
    autocast: bool
    fused: bool
    checkpointing: str  # "none", "selective", "per-op", "full"
    accumulated: bool  # gradients of an earlier batch are there
    adapters: Adapters | None = None
    loss: str = "plain"  # or as loss_of() says, or "fused"
    chunks: int = 1  # in which head and loss go forward and backward
    number_bytes: int = 2  # of a weight, and of a number on the residual path
    every: int = 1  # with "full": every so many layers, from the first
    enters: bool = False  # with "full": reentrant checkpointing
    drops: tuple[bool, bool] = NO_DROPOUT  # of attention's probabilities, and behind half a layer
    few_bits: Format | None = None  # the copies that the layers' linear modules multiply
    in_backward: bool = False  # the update: each gradient goes as soon as it is there


class Passed(NamedTuple):
    """A layer gone forward and backward, or an end: bytes beside what was there before."""

    forward: int  # the most on the way forward, with its input
    copies: int  # of these autocast's of weights, while the forward pass lasts
    kept_bytes: int  # for the backward pass
    backward: int  # the most on the way back, with what it kept and its result's gradient
    gradients: int  # of weights, that it leaves
    keeps_input: bool
    trained: int  # parameters
    again: dict[str, int]  # FLOPs of matrices that it computes a second time, and how often attention's products
    stays: int  # until the step has ended: what the function that computes a loss in chunks has names for
    head_is_view: bool  # the gradient of a tied head, to which so none is added in place


class Alike(NamedTuple):
    """Layers that do alike."""

    layer: Layer
    times: int
    once: Passed  # one of them
    kinds: int  # of attention that these and those below have
    remade: int  # of these, those that are made again with their mask


# --8<-- [end:setup]


# --8<-- [start:layer]
def stream(run: Run, d: int) -> int:
    """Bytes of the residual path."""
    return run.number_bytes * run.batch * run.seq_len * d


def turned_features(layer: Layer, kind: Kind) -> int:
    """Of a head, those of cosines and sines."""
    mixer = layer.mixer
    whole = mixer.turned if isinstance(mixer, Latent) else mixer.head_dim if isinstance(mixer, Attention) else 0
    return int(whole * kind.turned_share)


@lru_cache(maxsize=256)
def pass_layer(d: int, layer: Layer, run: Run, is_lowest: bool = False, is_again: bool = True) -> Passed:
    """One layer, forward and backward, made again if layers are and it is one of those; below the lowest of frozen
    weights nothing needs a gradient."""
    tape = tape_of(run)
    width = run.number_bytes
    features = turned_features(layer, run.kind) // (2 if run.kind.turned in ("chunks", "pairs") else 1)
    of_turning = FLOAT32 if run.kind.turned == "cast" else width
    turning = outside((1, run.seq_len, features), of_turning), outside((1, run.seq_len, features), of_turning)
    mask = None if run.fused else outside((run.batch, 1, run.seq_len, run.seq_len), width)
    selective = run.checkpointing == "selective"
    way = Way(tape, run.kind, "layer", turning, mask, run.adapters, run.drops, selective, run.few_bits)
    again = is_again and run.checkpointing in ("full", "per-op")

    def make(x: Tensor) -> Tensor:
        tape.enter()
        x = tape.bind(x)  # the loop over layers has a name for what goes into one
        if again and run.enters:
            made = tape.reentered(lambda x: forward(way, x, layer), x)
        elif again:
            made = tape.recomputed(lambda: forward(way, x, layer), [x])
        else:
            made = forward(way, x, layer)
        return tape.leave(made)

    # reentrant checkpointing needs an input with a gradient (enable_input_require_grads)
    return gone_both_ways(tape, d, run, make, not (is_lowest and tape.frozen) or run.enters)


def outside(shape: Sequence[int], width: int) -> Tensor:
    """A tensor that is there before and after, whose bytes others count."""
    elsewhere = Tape()
    return elsewhere.pin(elsewhere.new(shape, width))


def tape_of(run: Run) -> Tape:
    tape = Tape(run.accumulated or run.in_backward, run.autocast, run.number_bytes)
    tape.frozen = run.adapters is not None
    tape.keeps_products = run.checkpointing == "per-op"
    return tape


def residual(tape: Tape, d: int, run: Run, has_gradient: bool = True) -> Tensor:
    """What comes to a layer, or to the last norm, from below."""
    shape, width = (run.batch, run.seq_len, d), run.number_bytes
    return tape.given("x", shape, width) if has_gradient else tape.new(shape, width)


def gone_both_ways(tape: Tape, d: int, run: Run, make: Callable[[Tensor], Tensor], has_gradient: bool = True) -> Passed:
    """What is made of the residual path, with a gradient as large as the result."""
    x = residual(tape, d, run, has_gradient)
    result = make(x)
    ahead, root, of = tape.peak_bytes, result.made, like(result)
    assert root is not None
    tape.forget(result)
    is_kept = x.storage.holders > 0
    with_copies = tape.live_bytes
    tape.forget_copies()
    kept = tape.live_bytes
    tape.peak_bytes = 0
    tape.run_backward(root, tape.new(of.shape, of.width))
    return passed(tape, ahead, with_copies - kept, kept, is_kept)


def passed(tape: Tape, ahead: int, copies: int, kept: int, keeps_input: bool) -> Passed:
    """What a part has left that has gone backward."""
    stays = sum(x.storage.nbytes for x in tape.staying)
    left = weights_left(tape, stays)
    of_head = tape.gradients.get("head")
    is_view = of_head is not None and of_head.is_view
    return Passed(ahead, copies, kept, tape.peak_bytes, left, keeps_input, trained_by(tape), tape.again, stays, is_view)


def weights_left(tape: Tape, stays: int) -> int:
    """Bytes of weights' gradients that a part leaves. It ends as it began: what is alive beside these, the gradient of
    what came from below, and what `stays` has no name, and is an error."""
    left = sum(gradient.storage.nbytes for gradient in tape.gradients.values())
    assert tape.live_bytes == left + stays, f"{tape.live_bytes - left - stays} bytes of {tape.live_bytes} have no name"
    return left - (tape.gradients["x"].storage.nbytes if "x" in tape.gradients else 0)


def trained_by(tape: Tape) -> int:
    return sum(leaf.numbers for leaf in tape.leaves.values())


# --8<-- [end:layer]


# --8<-- [start:ends]
@lru_cache(maxsize=256)
def pass_end(stack: Stack, run: Run) -> Passed:
    tape = tape_of(run)
    if stack.tied and run.chunks == 1:
        tape.tied.append("head")
    if run.chunks > 1:
        return gone_in_chunks(tape, stack, run)
    return gone_both_ways(tape, stack.d_model, run, lambda x: above(tape, stack, run, x))


def last_norm(tape: Tape, run: Run, x: Tensor) -> Tensor:
    nothing = outside((0,), 1)
    return norm(Way(tape, run.kind, "end", (nothing, nothing), None), x, "norm")


def above(tape: Tape, stack: Stack, run: Run, x: Tensor) -> Tensor:
    """The last norm, the head, and the loss: ForCausalLMLoss of loss/loss_utils.py, torch.compile's or Liger's."""
    tape.enter()
    x = tape.bind(x)
    hidden = last_norm(tape, run, x)
    tape.forget(x)
    if run.loss == "fused":
        return tape.leave(fused_loss(tape, stack, hidden))
    if run.loss != "plain":
        return tape.leave(loss_of(tape, run.loss, linear(tape, hidden, "head", stack.vocab)))
    logits = tape.bind(linear(tape, tape.bind(hidden), "head", stack.vocab))
    wide = tape.bind(cast(tape, logits, FLOAT32))
    return tape.leave(log_softmax(tape, wide))


def loss_of(tape: Tape, loss: str, logits: Tensor) -> Tensor:
    """Another than the plain one, of the model's own logits. Some had names for these, or for them in float32, until
    the backward pass had ended; or, as transformers 4.46 to 4.48, compared all but the last with what comes next."""
    if loss == "compiled":
        return compiled_loss(tape, logits)
    if loss == "as-logits":
        return shifted_loss(tape, logits)
    if loss == "float32-held":
        return shifted_loss(tape, tape.stay(cast(tape, logits, FLOAT32)))
    tape.enter()
    if loss == "logits-held":
        wide = tape.bind(cast(tape, tape.stay(logits), FLOAT32))
        return tape.leave(log_softmax(tape, wide))
    logits = tape.bind(logits)
    return tape.leave(shifted_loss(tape, cast(tape, logits, FLOAT32)))


def shifted_loss(tape: Tape, logits: Tensor) -> Tensor:
    """Of all tokens but each sequence's last, which are copied where there are several sequences. Under autocast the
    probabilities are made as the logits are, and then in float32."""
    batch, tokens, vocab = logits.shape
    tape.enter()
    logits = tape.bind(logits)
    before = part(tape, logits, (batch, tokens - 1, vocab))
    before = tape.bind(laid_out(tape, before) if batch > 1 else before)
    if not tape.autocast:
        return tape.leave(log_softmax(tape, before))
    wide = tape.bind(cast(tape, keeping(tape, before), FLOAT32))
    return tape.leave(tape.note([wide], (1,), FLOAT32, [wide], [like(wide)]))


def compiled_loss(tape: Tape, logits: Tensor) -> Tensor:
    """Cross entropy in one kernel (torch.compile): it keeps the logits as they are, and two numbers a row."""
    rows = tape.bind(tape.new((2, *logits.shape[:-1]), FLOAT32))
    result = tape.note([logits], (1,), FLOAT32, [logits, rows], [like(logits)])
    tape.let_go(rows)
    return result


def fused_loss(tape: Tape, stack: Stack, hidden: Tensor) -> Tensor:
    """Liger's fused linear cross entropy: forward it makes all gradients, chunk by chunk, and backward hands them on.

    Under autocast a second chunk finds the head's gradient of the first in 16 bits beside its own.
    """
    tape.enter()
    hidden = tape.bind(hidden)
    tokens, d = count(hidden.shape[:-1]), stack.d_model
    of_hidden, losses = tape.bind(tape.new(hidden.shape, hidden.width)), tape.bind(tape.new((tokens,), FLOAT32))
    table = tape.bind(vector(tape, "head", (stack.vocab, d)))
    is_trained = table.made is not None
    of_table = [tape.bind(tape.new(table.shape, table.width))] if is_trained else []
    increase, size = -(-stack.vocab // d), 1
    while size < -(-tokens // increase):
        size *= 2
    rows = min(size, tokens)
    for turn in range(2 if tape.autocast else 1):
        chunk_of_fused(tape, (rows, stack.vocab, d), hidden.width, is_trained, turn)
    inputs = [hidden, table] if is_trained else [hidden]
    saved = [of_hidden, *of_table]
    makes = [Like(each.shape, each.width, saved=place) for place, each in enumerate(saved)]
    made = tape.record(inputs, saved, makes)
    tape.let_go(losses)
    return tape.leave(tape.done(made, inputs, tape.new((1,), FLOAT32)))


def chunk_of_fused(tape: Tape, sizes: tuple[int, int, int], width: int, is_trained: bool, turn: int) -> None:
    """The logits of some rows, which their gradient takes the place of; under autocast with the copies that it makes,
    of which the head's stays until its context ends."""
    rows, vocab, d = sizes
    tape.enter()
    if not tape.autocast:
        tape.new((rows, vocab), width)
        tape.end([])
        return
    pieces = [tape.bind(tape.new(shape, 2)) for shape in ((rows, d), (vocab, d))]
    tape.bind(tape.new((rows, vocab), 2))
    for piece in pieces:
        tape.forget(piece)
    if is_trained and turn == 0:
        tape.copies["fused"] = tape.pin(tape.new((vocab, d), 2))
    if not is_trained:
        tape.bind(tape.new((vocab, d), 2))
    tape.new((rows, d), 2)
    tape.end([])


def gone_in_chunks(tape: Tape, stack: Stack, run: Run) -> Passed:
    """Head and loss forward and backward for some tokens at a time, then the last norm (models.chunked_backward).

    What the head saw, and all of its gradient, have names there until the step has ended.
    """
    x = residual(tape, stack.d_model, run)
    hidden = tape.stay(last_norm(tape, run, x))
    ahead, root, shape, tokens = tape.peak_bytes, hidden.made, hidden.shape, count(hidden.shape[:-1])
    assert root is not None
    is_kept = x.storage.holders > 0
    with_copies = tape.live_bytes
    tape.forget_copies()
    kept, size = tape.live_bytes, -(-tokens // run.chunks)
    tape.peak_bytes = 0
    pieces = [min(size, tokens - n * size) for n in range(-(-tokens // size))]
    for n, rows in enumerate(pieces):
        tape.enter()
        piece = tape.leaf_over(f"piece {n}", (rows, stack.d_model), hidden.width, hidden.storage, True)
        wide = tape.bind(cast(tape, linear(tape, piece, "head", stack.vocab), FLOAT32))
        lost = log_softmax(tape, wide)
        lowest = lost.made
        assert lowest is not None
        tape.end([])
        tape.forget_copies()
        tape.run_backward(lowest, tape.new((1,), FLOAT32))
    gradient = tape.stay(tape.new(shape, hidden.width))
    tape.let_go_gradients([f"piece {n}" for n in range(len(pieces))])
    tape.run_backward(root, tape.tensor(shape, gradient.width, gradient.storage))
    return passed(tape, ahead, with_copies - kept, kept, is_kept)


def log_softmax(tape: Tape, x: Tensor) -> Tensor:
    """It keeps its result, of which the loss keeps the same; backward the loss makes a gradient of it, and it one."""
    result, loss = tape.bind(tape.new(x.shape, x.width)), tape.new((1,), FLOAT32)
    made = tape.record([x], [result], [like(x)], like(x).total_bytes())
    tape.forget(result)
    return tape.done(made, [x], loss)


# --8<-- [end:ends]


# --8<-- [start:step]
def step_bytes(
    stack: Stack,
    kind: str,
    seq_len: int,
    batch: int = 1,
    recipe: str = "bf16_master",
    fused: bool = True,
    checkpointing: str = "none",
    accumulated: bool = False,
    adapters: Adapters | None = None,
    base: str = "as-recipe",
    loss: str = "plain",
    chunks: int = 1,
    every: int = 1,
    reentrant: bool = False,
    drops: tuple[bool, bool] = NO_DROPOUT,
    few_bits: Format | None = None,
    update: str = "fused",
) -> dict[str, dict[str, int]]:
    """Bytes of tensors by line, at each moment at which a step can peak, as flops_bytes.peak.peak_bytes() has them.

    With `adapters` all else is frozen, and its matrices are held as `base` says. Full checkpointing can be of `every`
    second layer, or third; `drops` says where there is dropout, of what a kind has: in attention, behind half a layer.
    AdamW's `update` is "fused", of all tensors at once ("foreach"), or of each gradient as it comes ("in-backward").
    """
    run = Run(
        kind=KINDS[kind],
        batch=batch,
        seq_len=seq_len,
        autocast=recipe.startswith("autocast"),
        fused=fused,
        checkpointing=checkpointing,
        accumulated=accumulated,
        adapters=adapters,
        loss=loss,
        chunks=min(chunks, batch * seq_len),
        number_bytes=RECIPES[recipe].weights,
        every=every,
        enters=reentrant,
        drops=drops,
        few_bits=few_bits,
        in_backward=update == "in-backward",
    )
    each, d = RECIPES["fp32" if adapters else recipe], stack.d_model
    gone = passes(stack, run)
    end = pass_end(stack, run)
    total = trained_in(gone) if adapters else sum(parameters(stack).values())
    path = stream(run, d)
    kinds, remade = gone[-1].kinds, gone[-1].remade  # what is made again with its mask keeps it
    table, mask = rotary_bytes(stack, run), 0 if run.fused else batch * seq_len**2 * run.number_bytes
    apart = run.kind.turned_apart  # tables, as masks are
    tables, masks = (kinds if apart else 1) * table, kinds * mask
    kept = sum(alike.times * alike.once.kept_bytes for alike in gone)
    copies = sum(alike.times * alike.once.copies for alike in gone)
    earlier = each.gradients * total if accumulated else 0
    head = 0 if adapters else each.gradients * stack.vocab * d
    state = state_bytes(total, each) | {"batch": 2 * INT64 * batch * seq_len, "gradients": 0}
    if adapters:
        width = RECIPES[recipe].weights
        state |= {"weights": frozen_bytes(stack, width, base), "adapters": each.weights * total}

    def at(
        activations: int, layer: int = 0, logits: int = 0, gradients: int = 0, temporaries: int = 0
    ) -> dict[str, int]:
        own = {"gradients": gradients, "activations": activations, "layer": layer, "logits": logits}
        return state | own | {"temporaries": temporaries}

    # the embedding's result has a name until the last layer has gone forward
    named = 0 if gone[0].once.keeps_input or stack.depth == 1 else path
    below, ahead = 0, []
    for alike in gone:
        one, times = alike.once, alike.times
        below += times * one.kept_bytes - one.kept_bytes + (times - 1) * one.copies
        ahead.append(at(below + named + tables + masks, one.forward, gradients=earlier))
        below += one.kept_bytes + one.copies
    ended = at(kept + copies + tables + remade * mask, logits=end.forward, gradients=earlier)
    found = {"forward": most([*ahead, ended])}
    # a tied head's gradient waits for the embedding's; in chunks it is there
    is_summed = stack.tied and run.chunks == 1
    waits = head if is_summed and accumulated else 0
    found["loss"] = at(kept + tables + remade * mask, logits=end.backward, gradients=earlier)
    made, left, highest = earlier or end.gradients, kept, []
    for alike in reversed(gone):  # what layers of another kind had to themselves has gone with the last of them
        one, times = alike.once, alike.times
        for turn in sorted({0, times - 1}):
            left -= one.kept_bytes if turn == 0 else (times - 1) * one.kept_bytes
            around = left + (alike.kinds if apart else 1) * table + alike.remade * mask + end.stays
            gradients = made + (0 if accumulated else turn * one.gradients)  # in-backward, a layer leaves none
            highest.append(at(around, one.backward, gradients=gradients, temporaries=waits))
        made += 0 if accumulated else times * one.gradients
    found["last_layer"] = most(highest[:1])
    found["first_layer"] = most(highest[1:] or highest)
    third = is_summed and end.head_is_view  # tensor, which their sum is; else it is made in place
    summed = head * ((is_summed + third + accumulated) or stack.tied)
    again = 0 if adapters else max(path + summed - head * third, summed)  # a frozen embedding gets no gradient
    left_over = (head if is_summed else 0) if run.in_backward else each.gradients * total
    found["embedding"] = at(end.stays, gradients=left_over, temporaries=again)
    # master weights' gradients take the place of the others one by one: the last that waits
    head_parameters = 0 if stack.tied else stack.vocab * d
    last = max(head_parameters, widest(stack) - head_parameters) if each.master else 0
    roots = each.optimizer // 2 * total if update == "foreach" else 0  # of all second moments
    held = 0 if run.in_backward else (each.master or each.gradients) * total
    casts = each.gradients * last
    found["update"] = at(
        0, gradients=held + (casts if casts >= roots else 0), temporaries=roots if roots > casts else 0
    )
    return found


def passes(stack: Stack, run: Run) -> list[Alike]:
    """Each kind of layer gone both ways. The lowest is apart where all below it is frozen."""
    found: list[Alike] = []
    reaches: list[int] = []
    remade: list[int] = []
    for layer, times, is_again in pieces(stack, run):
        reach = layer.mixer.reach if isinstance(layer.mixer, Attention) else 0
        if reach not in reaches:
            reaches.append(reach)
        if reach not in remade and run.checkpointing != "none" and (is_again or run.checkpointing != "full"):
            remade.append(reach)
        is_lowest = run.adapters is not None and not found
        once = pass_layer(stack.d_model, layer, run, is_lowest, is_again)
        found.append(Alike(layer, times, once, len(reaches), len(remade)))
    return found


def trained_in(gone: list[Alike]) -> int:
    """Parameters."""
    return sum(alike.times * alike.once.trained for alike in gone)


def pieces(stack: Stack, run: Run) -> list[tuple[Layer, int, bool]]:
    """Layers that do alike, how many, and whether they are of those that are made again."""
    each: list[tuple[Layer, int]] = list(stack.layers)
    if run.every > 1:
        each = [(layer, 1) for layer, times in each for _ in range(times)]
    elif run.adapters is not None and each[0][1] > 1:
        each = [(each[0][0], 1), (each[0][0], each[0][1] - 1), *each[1:]]
    return [(layer, times, place % run.every == 0) for place, (layer, times) in enumerate(each)]


def again_flops(
    stack: Stack,
    kind: str,
    seq_len: int,
    causal: bool,
    fused: bool = True,
    checkpointing: str = "none",
    every: int = 1,
    reentrant: bool = False,
    adapters: Adapters | None = None,
    few_bits: Format | None = None,
    drops: tuple[bool, bool] = NO_DROPOUT,
) -> int:
    """FLOPs of one sequence that a step does a second time, to keep less."""
    run = Run(KINDS[kind], 1, seq_len, False, fused, checkpointing, False, adapters)
    run = run._replace(every=every, enters=reentrant, few_bits=few_bits, drops=drops)
    found = 0
    for alike in passes(stack, run):
        one, times, mixing = alike.once, alike.times, alike.layer.mixer.mixing_flops(seq_len, causal)
        attended = one.again["scores"] * mixing.get("scores", 0) + one.again["values"] * mixing.get("values", 0)
        found += times * (one.again["matrices"] + attended)
    return found


def adapter_parameters(stack: Stack, kind: str, adapters: Adapters) -> int:
    """Parameters of LoRA: (inputs + outputs) times the rank for each matrix that gets one."""
    run = Run(KINDS[kind], 1, 1, False, True, "none", False, adapters)
    return trained_in(passes(stack, run))


def packed_parameters(stack: Stack) -> int:
    """Of the matrices that a base in 4 bits packs: all of the layers' but routers."""
    return sum(
        times * matrix.there * matrix.inputs * matrix.outputs
        for layer, times in stack.layers
        for matrix in matrices(stack, layer)
        if matrix.part != "router"
    )


def frozen_bytes(stack: Stack, width: int, base: str) -> int:
    """Bytes of frozen weights: in 4 bits those of packed_parameters(), the rest in the recipe's format."""
    packed = packed_parameters(stack) if base in CONSTANTS else 0
    rest = sum(parameters(stack).values()) - packed
    return width * rest + quantized_bytes(packed, 4, 64, CONSTANTS.get(base, 0))


def kept_bytes(
    stack: Stack, kind: str, seq_len: int, batch: int = 1, fused: bool = True, checkpointing: str = "none"
) -> dict[str, int]:
    """Bytes that autograd keeps of the whole model in bf16, when the loss has been computed."""
    run = Run(KINDS[kind], batch, seq_len, False, fused, checkpointing, False)
    return {
        "layers": sum(times * pass_layer(stack.d_model, layer, run).kept_bytes for layer, times in stack.layers),
        "rotary": (passes(stack, run)[-1].kinds if run.kind.turned_apart else 1) * rotary_bytes(stack, run),
        "ends": pass_end(stack, run).kept_bytes,
    }


def most(moments: list[dict[str, int]]) -> dict[str, int]:
    """The moment that holds most."""
    return max(moments, key=lambda lines: sum(lines.values()))


def widest(stack: Stack) -> int:
    """Parameters of the last layer's last matrix, of all experts, less those of shared experts, which stand behind."""
    mlp = stack.layers[-1][0].mlp
    if isinstance(mlp, Experts):
        return stack.d_model * (mlp.d_ff * mlp.experts - 3 * mlp.shared_d_ff)
    return stack.d_model * mlp.d_ff


def rotary_bytes(stack: Stack, run: Run) -> int:
    """Cosines and sines."""
    features = max(turned_features(layer, run.kind) for layer, _ in stack.layers)
    share = 2 if run.kind.turned == "chunks" else 1
    width = FLOAT32 if run.kind.turned == "cast" else run.number_bytes
    return 2 * width * run.seq_len * features // share


# --8<-- [end:step]


# --8<-- [start:derived]
def why_not(stack: Stack, kind: str, recipe: str, gathered: bool = False) -> str:
    """Why such a step's bytes are not derived; nothing if they are. Weights that are gathered are cast before, where
    autocast would cast them."""
    if any(isinstance(mixer, Delta) for mixer, _ in stack.mixers()):
        return f"what linear attention keeps, as of a {kind}, depends on its kernels"
    if kind == "llama4_text":
        return f"transformers' {kind} runs all experts on each token, which those who train it do not"
    if any(isinstance(mixer, Latent) and mixer.most for mixer, _ in stack.mixers()):
        return f"transformers' {kind} trains no indexer"
    if kind not in DERIVED:
        return f"those of a {kind} are not derived"
    in_16_bits = recipe[:4] == "bf16" or (recipe[:8] == "autocast" and gathered)
    if not in_16_bits and any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers):
        return "experts multiply as their weights are, and PyTorch's grouped matmul takes 16 bits alone"
    return ""


# --8<-- [end:derived]


# --8<-- [start:sharded]
def layer_parameters(stack: Stack) -> int:
    """Of the fullest layer, which is gathered as a whole: with all of its experts."""
    d = stack.d_model
    return max(
        sum(matrix.parameters() for matrix in matrices(stack, layer)) + layer.norms * d + layer.mixer.vectors()
        for layer, _ in stack.layers
    )


def sharded(
    stack: Stack, at: dict[str, dict[str, int]], recipe: str, gpus: int, zero: int, base: str = "", frozen: bool = False
) -> dict[str, dict[str, int]]:
    """What step_bytes() gives, a GPU, when ZeRO's stage splits it, as flops_bytes.sharding.sharded_bytes() says.

    A layer's gradients are whole where it goes backward, which step_bytes() has, and where they are reduced, while the
    one below it goes backward. Of adapters' small gradients none is said to be reduced; frozen weights are gathered as
    their `base` holds them, without the constants of 4 bits, which stay whole.
    """
    counts, width = parameters(stack), 4 if recipe == "fp32" else 2
    ends, head = counts["embedding"] + counts["head"], stack.vocab * stack.d_model
    layer = layer_parameters(stack)
    split = ("master", "optimizer", "gradients", "weights", "adapters")[: 0 if gpus == 1 else (0, 2, 3, 5)[zero]]
    whole = quantized_bytes(packed_parameters(stack), 0, 64, CONSTANTS[base]) if base in CONSTANTS else 0
    reduced = {"last_layer": head, "first_layer": head + layer, "embedding": ends + layer}
    found = {}
    for moment, lines in at.items():
        found[moment] = {line: -(-size // gpus) if line in split else size for line, size in lines.items()}
        found[moment]["reduced"] = width * reduced.get(moment, 0) if "gradients" in split and not frozen else 0
        gathered = width * ends + int(2 * layer * gathered_width(recipe, base))
        if "weights" in split:
            found[moment]["weights"] = -(-(lines["weights"] - whole) // gpus) + whole
        found[moment]["gathered"] = gathered if "weights" in split and moment != "update" else 0
        if zero == 0 and gpus > 1:  # the buckets of PyTorch's DDP, into which gradients are copied
            found[moment]["reduced"] = (
                lines["gradients"] if frozen else RECIPES[recipe].gradients * sum(counts.values())
            )
    return found


def sent_bytes(
    stack: Stack, recipe: str, gpus: int, zero: int, accumulation: int = 1, adapters: int = 0, base: str = ""
) -> dict[str, float]:
    """Bytes that a GPU sends in a step of gradients and of weights, as flops_bytes.sharding.sent_parts() says."""
    counts, each = parameters(stack), RECIPES["fp32" if adapters else recipe]
    width, total = 4 if recipe == "fp32" else 2, sum(counts.values())
    trained = adapters or total
    if zero == 0:
        return {"reduced": ring_bytes(each.gradients * trained, gpus, "allreduce"), "gathered": 0.0}
    reduced = trained * (each.gradients if adapters or zero == 1 else width) * (accumulation if zero > 1 else 1)
    gathered: float = each.weights * trained
    if zero == 3:
        ends = counts["embedding"] + counts["head"]
        gathered = accumulation * (2 * (total - ends) * gathered_width(recipe, base) + width * ends)
    return {
        "reduced": ring_bytes(reduced, gpus, "reduce_scatter"),
        "gathered": ring_bytes(gathered, gpus, "allgather"),
    }


# --8<-- [end:sharded]
