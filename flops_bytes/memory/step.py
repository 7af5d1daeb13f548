"""The bytes of a training step of a stack of layers, at each moment at which it can peak. Python alone.

Each kind of layer goes forward and backward once on flops_bytes.memory.tape, and so do the ends: what stands below the
layers, and the norm, the head and the loss above them. Layers alike do alike, so a step is put together of these:
forward, when those below have kept what they keep; backward, when those above have left their gradients.
"""

# --8<-- [start:setup]
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from flops_bytes.memory.adapters import CONSTANTS, Format, frozen_bytes
from flops_bytes.memory.formulas import RECIPES, state_bytes
from flops_bytes.memory.layers import KINDS, LLAMA, MIXTRAL, NO_DROPOUT, Adapters, Kind, Way, forward, laid_out, norm
from flops_bytes.memory.own_layers import GPT2, OWN_GPT2, OWN_LLAMA, gpt2, own_gpt2, own_llama
from flops_bytes.memory.tape import (
    COPIES,
    FLOAT32,
    GRADIENTS,
    INT64,
    LOGITS,
    OTHERS,
    Like,
    Storage,
    Tape,
    Tensor,
    cast,
    count,
    flops_of,
    keeping,
    like,
    linear,
    part,
    reentered,
    vector,
)
from flops_bytes.model.shapes import Decoder
from flops_bytes.model.stack import (
    Attention,
    Delta,
    Experts,
    Latent,
    Layer,
    Stack,
    forward_flops,
    parameters,
    stack_of,
)

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
LIKE_LLAMA = ("granite", "ministral3", "mixtral", "qwen2", "qwen3")  # whose modules keep what Llama's and Mixtral's do


class StepConfig(NamedTuple):
    """How a training step is kind, config, whatever the model is: what the bytes of its tensors depend on."""

    seq_len: int
    batch: int = 1
    recipe: str = "bf16_master"
    fused: bool = True
    checkpointing: str = "none"  # "none", "selective", "per-op", "full"
    every: int = 1  # with "full": every so many layers, from the first
    reentrant: bool = False  # with "full": torch.utils.checkpoint's use_reentrant
    accumulated: bool = False  # gradients of an earlier batch are there
    adapters: Adapters | None = None  # which are trained alone
    loss: str = "plain"  # or as loss_of() says, or "fused"
    chunks: int = 1  # in which head and loss go forward and backward
    drops: tuple[bool, bool] = NO_DROPOUT  # of attention's probabilities, and behind half a layer, where a kind has it
    few_bits: Format | None = None  # the copies that the layers' linear modules multiply
    update: str = "fused"  # AdamW's: or of all tensors at once, "foreach", or of each gradient as it comes
    answer: int = 0  # the last tokens of a sequence, whose logits alone are made; of all, if 0

    @property
    def autocast(self) -> bool:
        return self.recipe[:8] == "autocast"

    @property
    def number_bytes(self) -> int:
        """Of a weight, and of a number on the residual path."""
        return RECIPES[self.recipe].weights

    @property
    def in_backward(self) -> bool:
        """Each gradient goes as soon as it is there."""
        return self.update == "in-backward"

    def same_tensors(self) -> "StepConfig":
        """Of configurations under which a part does the same, one: what it does is remembered by that."""
        recipe = {"bf16_master": "bf16", "autocast_fp16": "autocast"}.get(self.recipe, self.recipe)
        return self._replace(recipe=recipe, update="in-backward" if self.in_backward else "fused")

    def of_layers(self) -> "StepConfig":
        """Layers do not see the loss."""
        return self.same_tensors()._replace(loss="plain", chunks=1, every=1, answer=0)

    def of_end(self) -> "StepConfig":
        """What stands above the layers is never made again."""
        return self.same_tensors()._replace(
            checkpointing="none", every=1, reentrant=False, few_bits=None, drops=NO_DROPOUT
        )


class Held(NamedTuple):
    """Bytes, and how many of these have lines of their own."""

    total: int
    copies: int  # autocast's, of weights
    gradients: int  # of weights
    logits: int

    @property
    def others(self) -> int:
        return self.total - self.copies - self.gradients - self.logits


NOTHING = Held(0, 0, 0, 0)
LOSS = (0,)  # one number, whose bytes are left out


class Passed(NamedTuple):
    """A layer gone forward and backward, or an end: bytes beside what was there before."""

    forward: Held  # the most on the way forward, with its input
    copies: int  # autocast's of weights, that stay while the forward pass lasts
    waits: Held  # for the backward pass
    backward: dict[str, Held]  # the most on the way back by moment, with what it kept and its result's gradient
    gradients: int  # of weights, that it leaves
    keeps_input: bool
    trained: int  # parameters
    again: dict[str, int]  # FLOPs of matrices that it computes a second time, and how often attention's products
    gradient_flops: dict[str, int]  # the same of products that make gradients
    stays: Held  # until the step has ended: what the function that computes a loss in chunks has names for
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
def stream(config: StepConfig, d: int) -> int:
    """Bytes of the residual path."""
    return config.number_bytes * config.batch * config.seq_len * d


def turned_features(layer: Layer, kind: Kind) -> int:
    """Of a head, those of cosines and sines."""
    mixer = layer.mixer
    whole = mixer.turned if isinstance(mixer, Latent) else mixer.head_dim if isinstance(mixer, Attention) else 0
    return int(whole * kind.turned_share)


@lru_cache(maxsize=256)
def pass_layer(
    d: int, layer: Layer, kind: Kind, config: StepConfig, is_lowest: bool = False, is_again: bool = True
) -> Passed:
    """One layer, forward and backward, made again if layers are and it is one of those; below the lowest of frozen
    weights nothing needs a gradient."""
    tape = tape_of(config)
    width = config.number_bytes
    features = turned_features(layer, kind) // (2 if kind.turned in ("chunks", "pairs") else 1)
    of_turning = FLOAT32 if kind.turned == "cast" else width
    turning = outside((1, config.seq_len, features), of_turning), outside((1, config.seq_len, features), of_turning)
    mask = None if config.fused else outside((config.batch, 1, config.seq_len, config.seq_len), width)
    way = way_of(tape, kind, config, "layer", turning, mask)
    # reentrant checkpointing needs an input with a gradient (enable_input_require_grads)
    has_gradient = not (is_lowest and tape.frozen) or config.reentrant
    return gone_both_ways(tape, d, config, lambda x: layer_forward(way, x, layer, config, is_again), has_gradient)


def layer_forward(way: Way, x: Tensor, layer: Layer, config: StepConfig, is_again: bool) -> Tensor:
    """One layer, as the loop over layers calls it, which has a name for what goes into one; to be made again, if layers
    are and it is one of those."""
    tape, again = way.tape, is_again and config.checkpointing in ("full", "per-op")
    go = {"own_llama": own_llama, "own_gpt2": own_gpt2, "gpt2": gpt2}.get(way.kind.code, forward)
    tape.enter()
    x = tape.bind(x)
    others = [*way.turning, *([] if way.mask is None else [way.mask])]
    if config.reentrant and again:
        return tape.leave(reentered(tape, lambda x: go(way, x, layer), x, others))
    if again:
        return tape.leave(tape.recomputed(lambda: go(way, x, layer), [x, *others]))
    return tape.leave(go(way, x, layer))


def way_of(
    tape: Tape, kind: Kind, config: StepConfig, name: str, turning: tuple[Tensor, Tensor], mask: Tensor | None
) -> Way:
    return Way(
        tape=tape,
        kind=kind,
        name=name,
        turning=turning,
        mask=mask,
        adapters=config.adapters,
        drops=config.drops,
        attends_again=config.checkpointing == "selective",
        multiplies=config.few_bits,
    )


def outside(shape: Sequence[int], width: int) -> Tensor:
    """A tensor that is there before and after, whose bytes others count."""
    elsewhere = Tape()
    return elsewhere.pin(elsewhere.new(shape, width))


def tape_of(config: StepConfig) -> Tape:
    return prepared(Tape(config.accumulated or config.in_backward, config.autocast, config.number_bytes), config)


def prepared(tape: Tape, config: StepConfig) -> Tape:
    """One on which nothing is yet."""
    tape.frozen = config.adapters is not None
    tape.keeps_products = config.checkpointing == "per-op"
    return tape


def residual(tape: Tape, d: int, config: StepConfig, has_gradient: bool = True) -> Tensor:
    """What comes to a layer, or to the last norm, from below."""
    shape, width = (config.batch, config.seq_len, d), config.number_bytes
    return tape.given("x", shape, width) if has_gradient else tape.new(shape, width)


def gone_both_ways(
    tape: Tape, d: int, config: StepConfig, make: Callable[[Tensor], Tensor], has_gradient: bool = True
) -> Passed:
    """What is made of the residual path, with a gradient as large as the result."""
    x = residual(tape, d, config, has_gradient)
    result = make(x)
    root, of = result.made, like(result)
    assert root is not None
    tape.forget(result)
    half = gone_forward(tape, x, root.moment)
    tape.run_backward(root, tape.new(of.shape, of.width))
    return passed(tape, half)


class Half(NamedTuple):
    """What a part has left that has gone forward."""

    forward: Held
    copies: int
    waits: Held
    keeps_input: bool


def gone_forward(tape: Tape, x: Tensor, moment: str) -> Half:
    """The backward pass begins, without autocast's context."""
    tape.note_peak()
    ahead = held(tape.peak_bytes, tape.peak_lines)
    is_kept, with_copies = x.storage.holders > 0, tape.live_bytes
    tape.forget_copies()
    tape.moments, tape.moment, tape.line, tape.peak_bytes = {}, moment, OTHERS, 0
    return Half(ahead, with_copies - tape.live_bytes, held(tape.live_bytes, tape.live_lines), is_kept)


def held(total: int, lines: Sequence[int]) -> Held:
    return Held(total, lines[COPIES], lines[GRADIENTS], lines[LOGITS])


def passed(tape: Tape, half: Half) -> Passed:
    """What a part has left that has gone backward."""
    tape.begin("end")
    stays = staying(tape)
    left = weights_left(tape, stays.total)
    of_head = tape.gradients.get("head")
    is_view = of_head is not None and of_head.is_view
    backward = {moment: held(peak, lines) for moment, (peak, lines) in tape.moments.items()}
    return Passed(
        half.forward,
        half.copies,
        half.waits,
        backward,
        left,
        half.keeps_input,
        trained_by(tape),
        tape.again,
        tape.backward,
        stays,
        is_view,
    )


def staying(tape: Tape) -> Held:
    """What has names until the step has ended."""
    lines = [0, 0, 0, 0]
    for x in tape.staying:
        lines[x.storage.line] = lines[x.storage.line] + x.storage.nbytes
    return held(sum(lines), lines)


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
def pass_end(stack: Stack, kind: Kind, config: StepConfig) -> Passed:
    tape = tape_of(config)
    if stack.tied and config.chunks == 1:
        tape.tied.append("head")
    if config.chunks > 1:
        return gone_in_chunks(tape, stack, kind, config)
    return gone_both_ways(tape, stack.d_model, config, lambda x: above(tape, stack, kind, config, x))


def last_norm(tape: Tape, kind: Kind, config: StepConfig, x: Tensor) -> Tensor:
    nothing = outside((0,), 1)
    return norm(way_of(tape, kind, config, "end", (nothing, nothing), None), x, "norm")


def above(tape: Tape, stack: Stack, kind: Kind, config: StepConfig, x: Tensor) -> Tensor:
    """The last norm, the head, and the loss: ForCausalLMLoss of loss/loss_utils.py, torch.compile's or Liger's; or that
    of this book's modules, which has no names for what the head sees and makes."""
    tape.enter()
    tape.moment = "norm"
    x = tape.bind(x)
    hidden = last_norm(tape, kind, config, x)
    tape.forget(x)
    if config.loss == "fused":
        tape.moment = "loss"
        return tape.leave(fused_loss(tape, stack, hidden))
    is_named = config.loss == "plain" and kind.code[:3] != "own"
    hidden = tape.bind(hidden) if is_named else hidden
    if config.answer:
        hidden = part(tape, hidden, (config.batch, config.answer, stack.d_model))
    logits = logits_of(tape, stack, hidden)
    if config.loss != "plain":
        return tape.leave(loss_of(tape, config.loss, logits))
    wide = tape.bind(cast(tape, tape.bind(logits) if is_named else logits, FLOAT32))
    return tape.leave(log_softmax(tape, wide))


def logits_of(tape: Tape, stack: Stack, hidden: Tensor) -> Tensor:
    """What the head makes; from here on everything is as large as logits are."""
    tape.moment = "head"
    logits = linear(tape, hidden, "head", stack.vocab)
    tape.of_line(logits.storage, LOGITS)
    tape.moment, tape.line = "loss", LOGITS
    return logits


def loss_of(tape: Tape, loss: str, logits: Tensor) -> Tensor:
    """Another than the plain one, of the model's own logits. Some had names for these, or for them in float32, until
    the backward pass had ended; or, as transformers 4.46 to 4.48, compared all but the last with what comes next."""
    if loss == "as-logits":
        return shifted_loss(tape, logits)
    if loss == "float32-held":
        return shifted_loss(tape, tape.stay(cast(tape, logits, FLOAT32)))
    if loss == "logits-held":
        tape.enter()
        wide = tape.bind(cast(tape, tape.stay(logits), FLOAT32))
        return tape.leave(log_softmax(tape, wide))
    if loss == "shifted":
        tape.enter()
        logits = tape.bind(logits)
        return tape.leave(shifted_loss(tape, cast(tape, logits, FLOAT32)))
    return compiled_loss(tape, logits)


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
    return tape.leave(tape.note([wide], LOSS, FLOAT32, [wide], [like(wide)]))


def compiled_loss(tape: Tape, logits: Tensor) -> Tensor:
    """Cross entropy in one kernel (torch.compile): it keeps the logits as they are, and two numbers a row."""
    rows = tape.bind(tape.new((2, *logits.shape[:-1]), FLOAT32))
    result = tape.note([logits], LOSS, FLOAT32, [logits, rows], [like(logits)])
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
    rows = liger_rows(tokens, stack.vocab, d)
    tape.multiplied("matrices", (3 if is_trained else 2) * flops_of(hidden, (stack.vocab,)))
    for turn in range(2 if tape.autocast else 1):
        chunk_of_fused(tape, (rows, stack.vocab, d), hidden.width, is_trained, turn)
    inputs = [hidden, table] if is_trained else [hidden]
    saved = [of_hidden, *of_table]
    makes = [Like(each.shape, each.width, saved=place) for place, each in enumerate(saved)]
    made = tape.record(inputs, saved, makes)
    tape.let_go(losses)
    return tape.leave(tape.done(made, inputs, tape.new(LOSS, FLOAT32)))


def liger_rows(tokens: int, vocab: int, d: int) -> int:
    """Tokens of a chunk, whose logits are about as large as all that the head sees."""
    size = 1
    while size < -(-tokens // -(-vocab // d)):
        size *= 2
    return min(size, tokens)


def chunk_of_fused(tape: Tape, sizes: tuple[int, int, int], width: int, is_trained: bool, turn: int) -> None:
    """The logits of some rows, which their gradient takes the place of; under autocast with the copies that it makes,
    of which the head's stays until its context ends."""
    rows, vocab, d = sizes
    tape.enter()
    logits = Storage(rows * vocab * (2 if tape.autocast else width), LOGITS)
    if not tape.autocast:
        tape.tensor((rows, vocab), width, logits)
        tape.end([])
        return
    pieces = [tape.bind(tape.new(shape, 2)) for shape in ((rows, d), (vocab, d))]
    tape.bind(tape.tensor((rows, vocab), 2, logits))
    for piece in pieces:
        tape.forget(piece)
    if is_trained and turn == 0:
        tape.copies["fused"] = tape.pin(tape.new((vocab, d), 2))
    if not is_trained:
        tape.bind(tape.new((vocab, d), 2))
    tape.new((rows, d), 2)
    tape.end([])


def gone_in_chunks(tape: Tape, stack: Stack, kind: Kind, config: StepConfig) -> Passed:
    """The last norm, head and loss, these for some tokens at a time, forward and backward."""
    x = residual(tape, stack.d_model, config)
    tape.moment = "norm"
    hidden = tape.stay(last_norm(tape, kind, config, x))
    root = hidden.made
    assert root is not None
    half = gone_forward(tape, x, "loss")
    tape.run_backward(root, in_chunks(tape, stack, config, hidden, most=4))
    return passed(tape, half)


def in_chunks(tape: Tape, stack: Stack, config: StepConfig, hidden: Tensor, most: int) -> Tensor:
    """The gradient of what the head sees, from head and loss forward and backward for some tokens at a time
    (models.chunked_backward), where both have names until the step has ended.

    Of more than `most` pieces (4 at least) the first and the last two go; of those between, which do alike, only
    gradients are left.
    """
    shape, tokens = hidden.shape, count(hidden.shape[:-1])
    size = -(-tokens // config.chunks)
    several, skipped = -(-tokens // size), tape.pin(tape.new((0,), 1))
    turns = list(range(several)) if several <= most else [0, 1, several - 2, several - 1]
    for n in turns:
        rows = min(size, tokens - n * size)
        if several > most and n == several - 2:
            skipped = tape.pin(tape.new(((several - 4) * size, stack.d_model), hidden.width))
        tape.begin("loss")
        tape.enter()
        piece = tape.leaf_over(f"piece {n}", (rows, stack.d_model), hidden.width, hidden.storage, True)
        wide = tape.bind(cast(tape, logits_of(tape, stack, piece), FLOAT32))
        lost = log_softmax(tape, wide)
        lowest = lost.made
        assert lowest is not None
        tape.end([])
        tape.forget_copies()
        tape.line = OTHERS
        tape.run_backward(lowest, tape.new(LOSS, FLOAT32))
    gradient = tape.stay(tape.new(shape, hidden.width))
    tape.let_go_gradients([f"piece {n}" for n in turns])
    tape.let_go(skipped)
    return tape.tensor(shape, gradient.width, gradient.storage)


def log_softmax(tape: Tape, x: Tensor) -> Tensor:
    """It keeps its result, of which the loss keeps the same; backward the loss makes a gradient of it, and it one."""
    result, loss = tape.bind(tape.new(x.shape, x.width)), tape.new(LOSS, FLOAT32)
    made = tape.record([x], [result], [like(x)], like(x).total_bytes())
    tape.forget(result)
    return tape.done(made, [x], loss)


# --8<-- [end:ends]


# --8<-- [start:step]
@lru_cache(maxsize=256)
def step_moments(stack: Stack, kind: Kind, config: StepConfig) -> dict[str, dict[str, int]]:
    """Bytes by line that are there beside what is there all the time, at each moment at which a step can peak.

    Which of the places of a moment holds most depends on what is shared with other GPUs: so each is there, numbered.
    """
    config = config._replace(chunks=min(config.chunks, config.batch * config.seq_len))
    adapters, batch, seq_len = config.adapters, config.batch, config.seq_len
    accumulated, trained = config.accumulated, trained_parameters(stack, kind, config)
    recipe, update = config.recipe, config.update
    each, d = RECIPES["fp32" if adapters else recipe], stack.d_model
    gone = passes(stack, kind, config)
    end = pass_end(stack, kind, config.of_end())
    path = stream(config, d)
    kinds, remade = gone[-1].kinds, gone[-1].remade  # what is made again with its mask keeps it
    table, mask = rotary_bytes(stack, kind, config), mask_bytes(kind, config)
    dropped = batch * seq_len * d if config.drops[1] and stack.positions else 0  # a mask behind the embedding
    tables, masks = (kinds if kind.turned_apart else 1) * table + dropped, kinds * mask
    kept = sum(alike.times * alike.once.waits.others for alike in gone)
    kept_copies = sum(alike.times * alike.once.waits.copies for alike in gone)
    copies = sum(alike.times * alike.once.copies for alike in gone)
    earlier = each.gradients * trained if accumulated else 0
    head = 0 if adapters else each.gradients * stack.vocab * d

    def at(gradients: int, copies: int, activations: int, part: Held, layer: bool, temporaries: int) -> dict[str, int]:
        """A moment's lines, with those of the part that goes now: a layer, or an end."""
        return {
            "gradients": gradients + part.gradients,
            "copies": copies + part.copies,
            "activations": activations,
            "layer": part.others if layer else 0,
            "logits": part.logits,
            "temporaries": temporaries,
        }

    def at_end(part: Held, copies: int) -> dict[str, int]:
        """No layer goes: what the end kept waits as the layers' activations do."""
        waits = min(end.waits.others, part.others)
        around = kept + tables + remade * mask + waits
        return at(earlier, kept_copies + copies, around, part, False, part.others - waits)

    # what the embedding makes has names until the last layer has gone forward
    named = named_bytes(stack, kind, config, gone[0].once.keeps_input)
    below, made_copies, ahead = 0, 0, []
    for alike in gone:
        one, times = alike.once, alike.times
        each_kept = one.waits.others
        below += (times - 1) * each_kept
        made_copies += (times - 1) * (one.waits.copies + one.copies)
        ahead.append(at(earlier, made_copies, below + named + tables + masks, one.forward, True, 0))
        below += each_kept
        made_copies += one.waits.copies + one.copies
    found = numbered("forward", [*ahead, at_end(end.forward, copies)])
    # a tied head's gradient waits for the embedding's; in chunks it is there
    is_summed = stack.tied and config.chunks == 1
    waits = head if is_summed and accumulated else 0
    for moment in ("loss", "head"):
        found[moment] = at_end(end.backward.get(moment, NOTHING), 0)
    above = at_end(end.backward.get("norm", NOTHING), 0)
    made, left, left_copies, highest = earlier or end.gradients, kept, kept_copies, []
    for alike in reversed(gone):  # what layers of another kind had to themselves has gone with the last of them
        one, times = alike.once, alike.times
        for turn in sorted({0, times - 1}):
            fewer = 1 if turn == 0 else times - 1
            left -= fewer * one.waits.others
            left_copies -= fewer * one.waits.copies
            around = left + (alike.kinds if kind.turned_apart else 1) * table + dropped + alike.remade * mask
            gradients = made + (0 if accumulated else turn * one.gradients)  # in-backward, a layer leaves none
            lines = at(gradients, left_copies, around, one.backward[""], True, waits + end.stays.others)
            highest.append(lines | {"logits": end.stays.logits})
        made += 0 if accumulated else times * one.gradients
    # in layers between the gradients of one above are reduced, as in the first, where any are
    between = highest[1:-1]
    found |= numbered("last_layer", [highest[0], above, *(between if adapters else [])])
    found |= numbered("first_layer", [highest[-1], *([] if adapters else between)])
    third = is_summed and end.head_is_view  # tensor, which their sum is; else it is made in place
    summed = head * ((is_summed + third + accumulated) or stack.tied)
    again = 0 if adapters else max(path + summed - head * third, summed)  # a frozen embedding gets no gradient
    positions = 0 if adapters else each.gradients * stack.positions * d
    if positions and accumulated:  # those of positions come before, of all sequences
        again = max(again, path + (path // batch if batch > 1 else 0) + positions + waits)
    whole = head if config.in_backward else each.gradients * trained
    found["embedding"] = at(whole, 0, 0, end.stays._replace(total=end.stays.logits), False, end.stays.others + again)
    if config.in_backward and positions:
        of_table = at(positions + head * stack.tied, 0, 0, NOTHING, False, path)
        found |= numbered("embedding", [found["embedding"], of_table])
    # master weights' gradients take the place of the others one by one: the last that waits
    waiting, roots = each.gradients * last_parameters(stack, trained) if each.master else 0, 0
    if update == "foreach":  # of all second moments
        roots = each.optimizer // 2 * trained
        waiting, roots = (waiting, 0) if waiting >= roots else (0, roots)
    whole = 0 if config.in_backward else (each.master or each.gradients) * trained
    found["update"] = at(whole + waiting, 0, 0, NOTHING, False, roots)
    return found


def state_lines(trained: int, recipe: str, frozen: int | None, tokens: int) -> dict[str, int]:
    """Bytes that are there all the time: state and the batch (tokens and targets, as int64). Adapters are trained in
    float32, beside so many bytes of `frozen` weights."""
    if frozen is None:
        return state_bytes(trained, RECIPES[recipe]) | {"batch": 2 * INT64 * tokens}
    state = state_bytes(trained, RECIPES["fp32"])
    return state | {"adapters": state["weights"], "weights": frozen, "batch": 2 * INT64 * tokens}


def step_bytes(stack: Stack, kind: Kind, config: StepConfig, base: str = "as-recipe") -> dict[str, dict[str, int]]:
    """All bytes of a step by line, at each moment at which it can peak; frozen matrices are held as `base` says."""
    trained = trained_parameters(stack, kind, config)
    frozen = frozen_bytes(stack, RECIPES[config.recipe].weights, base) if config.adapters else None
    state = state_lines(trained, config.recipe, frozen, config.batch * config.seq_len)
    return {moment: state | lines for moment, lines in step_moments(stack, kind, config).items()}


def family_of(stack: Stack, composed: bool) -> Kind:
    """How a decoder of layers all alike is written: as this book has it, or as transformers. A norm has a second vector
    where the stack says so."""
    (layer, _), *_ = stack.layers
    has_experts = isinstance(layer.mlp, Experts)
    own, theirs = (OWN_GPT2, GPT2) if stack.positions else (OWN_LLAMA, MIXTRAL if has_experts else LLAMA)
    has_module = (has_experts or layer.mlp.gated != bool(stack.positions)) and not (has_experts and stack.positions)
    kind = theirs if composed and has_module else own  # what transformers has no module of is as this book's
    if stack.norm_shift:
        return replace(kind, norm_kind="shifted")
    return replace(kind, norm_kind="kernel") if kind.norm_kind == "shifted" else kind


def decoder_moments(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    recipe: str = "autocast",
    fused: bool = True,
    checkpointing: str = "none",
    composed: bool = False,
    dropout: bool = False,
    rank: int = 0,
    adapted: str = "all",
    base: str = "as-recipe",
    **told: Any,
) -> dict[str, dict[str, int]]:
    """All bytes of a step by line, at each moment at which it can peak, of a decoder whose layers are all alike.

    Layers are this book's modules, or `composed` of operations as in transformers. With a `rank` adapters are trained
    beside the matrices that are `adapted`, and the frozen ones are held as `base` says. What else can be `told` are
    fields of StepConfig: chunks, accumulated, loss, every, update and more.
    """
    adapters = Adapters(rank, adapted, base in CONSTANTS) if rank else None
    config = StepConfig(seq_len, batch, recipe, fused, checkpointing, adapters=adapters, drops=(dropout, dropout))
    stack = stack_of(shape)
    found: dict[str, dict[str, int]] = {}
    for place, lines in step_bytes(stack, family_of(stack, composed), config._replace(**told), base).items():
        moment = moment_of(place)
        found[moment] = max(found.get(moment, lines), lines, key=lambda lines: sum(lines.values()))
    return found


def mask_bytes(kind: Kind, config: StepConfig) -> int:
    """Eager attention's, which transformers makes once for all layers; this book's makes one whenever it attends."""
    is_own = kind.code[:3] == "own"
    return 0 if config.fused or is_own else config.number_bytes * config.batch * config.seq_len**2


def named_bytes(stack: Stack, kind: Kind, config: StepConfig, keeps_input: bool) -> int:
    """What transformers has names for while layers go forward, and nothing keeps: the embedding's result, in GPT-2 that
    of words and that of positions."""
    path = stream(config, stack.d_model)
    if kind.code == "gpt2":
        return path + path // config.batch
    return 0 if keeps_input or stack.depth == 1 or kind.code != "transformers" else path


def last_parameters(stack: Stack, total: int) -> int:
    """Of the tensor at whose cast an update with master weights holds most, less what stands behind it: the head, an
    MLP's last matrix, the embedding, or the table of positions."""
    table = stack.vocab * stack.d_model
    behind = 0 if stack.tied else table
    of_positions = 2 * stack.positions * stack.d_model
    return max(behind, widest(stack) - behind, table + max(table, of_positions) - total)


@lru_cache(maxsize=256)
def passes(stack: Stack, kind: Kind, config: StepConfig) -> list[Alike]:
    """Each kind of layer gone both ways. The lowest is apart where all below it is frozen."""
    found: list[Alike] = []
    reaches: list[int] = []
    remade: list[int] = []
    for layer, times, is_again in pieces(stack, kind, config):
        reach = layer.mixer.reach if isinstance(layer.mixer, Attention) else 0
        if reach not in reaches:
            reaches.append(reach)
        if reach not in remade and config.checkpointing != "none" and (is_again or config.checkpointing != "full"):
            remade.append(reach)
        is_lowest = config.adapters is not None and not found
        once = pass_layer(stack.d_model, layer, kind, config.of_layers(), is_lowest, is_again)
        found.append(Alike(layer, times, once, len(reaches), len(remade)))
    return found


def trained_in(gone: list[Alike]) -> int:
    """Parameters."""
    return sum(alike.times * alike.once.trained for alike in gone)


def pieces(stack: Stack, kind: Kind, config: StepConfig) -> list[tuple[Layer, int, bool]]:
    """Layers that do alike, how many, and whether they are of those that are made again."""
    each: list[tuple[Layer, int]] = list(stack.layers)
    if config.every > 1:
        each = [(layer, 1) for layer, times in each for _ in range(times)]
    elif config.adapters is not None and each[0][1] > 1:
        each = [(each[0][0], 1), (each[0][0], each[0][1] - 1), *each[1:]]
    return [(layer, times, place % config.every == 0) for place, (layer, times) in enumerate(each)]


def again_flops(stack: Stack, kind: Kind, config: StepConfig, causal: bool) -> int:
    """FLOPs of one sequence that a step does a second time, to keep less."""
    return sum(flops_by_tape(alike, alike.once.again, config, causal) for alike in passes(stack, kind, config))


def flops_by_tape(alike: Alike, counted: dict[str, int], config: StepConfig, causal: bool) -> int:
    """Of one sequence, in all layers that do alike, from what the tape has counted in one of them for the batch."""
    mixing = alike.layer.mixer.mixing_flops(config.seq_len, causal)
    attended = counted["scores"] * mixing["scores"] + counted["values"] * mixing["values"]
    return alike.times * (counted["matrices"] // config.batch + attended)


def token_flops(stack: Stack, kind: Kind | None, config: StepConfig, causal: bool) -> dict[str, float]:
    """FLOPs of training on one token: the model's own, the device's, and what of these it does again.

    The model's are those of forward and backward pass alone, by which MFU is measured. With adapters, frozen weights
    need no gradients, nor does what stands below the lowest adapter: the tape says which products make some. Of a kind
    whose layers are not derived (None), layers that are computed again go forward once more.
    """
    seq_len = config.seq_len
    forward = forward_flops(stack, seq_len, causal=causal)
    once, attended = sum(forward.values()), forward.get("scores", 0) + forward.get("values", 0)
    rerun = forward.get("scores", 0) if config.fused else 0  # fused attention makes its scores again
    if kind is None:
        again = once - forward["head"] if config.checkpointing == "full" else 0
        model, device = 3 * once, 3 * once + rerun
    elif config.adapters is None:
        again = again_flops(stack, kind, config, causal)
        model, device = 3 * once, 3 * once + rerun
    else:
        again = again_flops(stack, kind, config, causal)
        gone = passes(stack, kind, config)
        adapted = once + 2 * seq_len * trained_in(gone) + forward["head"]
        of_matrices = sum(alike.times * (alike.once.gradient_flops["matrices"] // config.batch) for alike in gone)
        model, device = adapted + of_matrices + 2 * attended, adapted + of_matrices + 2 * attended + rerun
        if not config.fused:  # a frozen key needs no gradient in the lowest layer
            device = adapted + sum(flops_by_tape(alike, alike.once.gradient_flops, config, causal) for alike in gone)
    return {"model": model / seq_len, "device": (device + again) / seq_len, "again": again / seq_len}


def trained_parameters(stack: Stack, kind: Kind, config: StepConfig) -> int:
    """All, or those of LoRA alone: (inputs + outputs) times the rank for each matrix that gets an adapter."""
    return trained_in(passes(stack, kind, config)) if config.adapters else sum(parameters(stack).values())


def kept_bytes(
    stack: Stack, kind: str, seq_len: int, batch: int = 1, fused: bool = True, checkpointing: str = "none"
) -> dict[str, int]:
    """Bytes that autograd keeps of the whole model in bf16, when the loss has been computed."""
    of, config = KINDS[kind], StepConfig(seq_len, batch, "bf16", fused, checkpointing)
    layers = [(times, pass_layer(stack.d_model, layer, of, config)) for layer, times in stack.layers]
    return {
        "layers": sum(times * once.waits.total for times, once in layers),
        "rotary": (passes(stack, of, config)[-1].kinds if of.turned_apart else 1) * rotary_bytes(stack, of, config),
        "ends": pass_end(stack, of, config).waits.total,
    }


def numbered(moment: str, places: list[dict[str, int]]) -> dict[str, dict[str, int]]:
    """The places of a moment: the first by its name alone, the others with a number behind it."""
    return {f"{moment} {place}" if place else moment: lines for place, lines in enumerate(places)}


def moment_of(place: str) -> str:
    """The name of a moment without its number."""
    return place.partition(" ")[0]


def widest(stack: Stack) -> int:
    """Parameters of the last layer's last matrix, of all experts, less those of shared experts, which stand behind."""
    mlp = stack.layers[-1][0].mlp
    if isinstance(mlp, Experts):
        return stack.d_model * (mlp.d_ff * mlp.experts - 3 * mlp.shared_d_ff)
    return stack.d_model * mlp.d_ff


def rotary_bytes(stack: Stack, kind: Kind, config: StepConfig) -> int:
    """Cosines and sines."""
    if stack.positions:
        return 0
    features = max(turned_features(layer, kind) for layer, _ in stack.layers)
    share = 2 if kind.turned == "chunks" else 1
    width = FLOAT32 if kind.turned == "cast" else config.number_bytes
    return 2 * width * config.seq_len * features // share


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
    if kind not in DERIVED and kind not in LIKE_LLAMA:
        return f"those of a {kind} are not derived"
    in_16_bits = recipe[:4] == "bf16" or (recipe[:8] == "autocast" and gathered)
    if not in_16_bits and kind != "mixtral" and any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers):
        return "experts multiply as their weights are, and PyTorch's grouped matmul takes 16 bits alone"
    return ""


# --8<-- [end:derived]
