"""The bytes of a training step of a stack of layers, at each moment at which it can peak. Python alone.

Each kind of layer goes forward and backward once on flops_bytes.tape, and so do the ends: what stands below the layers,
and the norm, the head and the loss above them. Layers alike do alike, so a step is put together of these: forward, when
those below have kept what they keep; backward, when those above have left their gradients.
"""

# --8<-- [start:setup]
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from flops_bytes.memory import RECIPES, state_bytes
from flops_bytes.sharding import ring_bytes
from flops_bytes.stack import Attention, Delta, Experts, Latent, Layer, Stack, matrices, parameters
from flops_bytes.stack_layers import KINDS, Kind, Way, forward, norm
from flops_bytes.tape import FLOAT32, INT64, Tape, Tensor, cast, like, linear

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
    checkpointing: bool
    accumulated: bool


class Passed(NamedTuple):
    """A layer gone forward and backward, or an end: bytes beside what was there before."""

    forward: int  # the most on the way forward, with its input
    copies: int  # of these autocast's of weights, while the forward pass lasts
    kept_bytes: int  # for the backward pass
    backward: int  # the most on the way back, with what it kept and its result's gradient
    gradients: int  # of weights, that it leaves
    keeps_input: bool


# --8<-- [end:setup]


# --8<-- [start:layer]
def stream(run: Run, d: int) -> int:
    """Bytes of the residual path."""
    return (FLOAT32 if run.autocast else 2) * run.batch * run.seq_len * d


def turned_features(layer: Layer, kind: Kind) -> int:
    """Of a head, those of cosines and sines."""
    mixer = layer.mixer
    whole = mixer.turned if isinstance(mixer, Latent) else mixer.head_dim if isinstance(mixer, Attention) else 0
    return int(whole * kind.turned_share)


@lru_cache(maxsize=256)
def pass_layer(d: int, layer: Layer, run: Run) -> Passed:
    """One layer, forward and backward."""
    tape = Tape(run.accumulated, run.autocast)
    width = FLOAT32 if run.autocast else 2
    features = turned_features(layer, run.kind) // (2 if run.kind.turned in ("chunks", "pairs") else 1)
    turning = outside((1, run.seq_len, features), width), outside((1, run.seq_len, features), width)
    mask = None if run.fused else outside((run.batch, 1, run.seq_len, run.seq_len), width)
    way = Way(tape, run.kind, "layer", turning, mask)

    def make(x: Tensor) -> Tensor:
        tape.enter()
        x = tape.bind(x)  # the loop over layers has a name for what goes into one
        made = tape.recomputed(lambda: forward(way, x, layer), [x]) if run.checkpointing else forward(way, x, layer)
        return tape.leave(made)

    return gone_both_ways(tape, d, run, make)


def outside(shape: Sequence[int], width: int) -> Tensor:
    """A tensor that is there before and after, whose bytes others count."""
    elsewhere = Tape()
    return elsewhere.pin(elsewhere.new(shape, width))


def gone_both_ways(tape: Tape, d: int, run: Run, make: Callable[[Tensor], Tensor]) -> Passed:
    """What is made of the residual path, with a gradient as large as the result.

    It ends as it began: what is alive then beside the gradients of weights and of the input has no name, and is an
    error.
    """
    x = tape.given("x", (run.batch, run.seq_len, d), FLOAT32 if run.autocast else 2)
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
    left = {name: gradient.storage.nbytes for name, gradient in tape.gradients.items()}
    assert tape.live_bytes == sum(left.values()), (
        f"{tape.live_bytes - sum(left.values())} bytes of {tape.live_bytes} have no name"
    )
    return Passed(ahead, with_copies - kept, kept, tape.peak_bytes, sum(left.values()) - left["x"], is_kept)


# --8<-- [end:layer]


# --8<-- [start:ends]
@lru_cache(maxsize=256)
def pass_end(stack: Stack, run: Run) -> Passed:
    tape = Tape(run.accumulated, run.autocast)
    return gone_both_ways(tape, stack.d_model, run, lambda x: above(tape, stack, run, x))


def above(tape: Tape, stack: Stack, run: Run, x: Tensor) -> Tensor:
    """The last norm, the head, and the loss: ForCausalLMLoss of loss/loss_utils.py."""
    nothing = outside((0,), 1)
    tape.enter()
    x = tape.bind(x)
    hidden = tape.bind(norm(Way(tape, run.kind, "end", (nothing, nothing), None), x, "norm"))
    tape.forget(x)
    if stack.tied:
        tape.tied.append("head")
    logits = tape.bind(linear(tape, hidden, "head", stack.vocab))
    wide = tape.bind(cast(tape, logits, FLOAT32))
    return tape.leave(log_softmax(tape, wide))


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
) -> dict[str, dict[str, int]]:
    """Bytes of tensors by line, at each moment at which a step can peak, as flops_bytes.peak.peak_bytes() has them."""
    run = Run(KINDS[kind], batch, seq_len, recipe.startswith("autocast"), fused, checkpointing == "full", accumulated)
    each, d = RECIPES[recipe], stack.d_model
    total = sum(parameters(stack).values())
    passed = [(pass_layer(d, layer, run), times) for layer, times in stack.layers]
    end = pass_end(stack, run)
    path = stream(run, d)
    tables = rotary_bytes(stack, run)
    kept = sum(times * one.kept_bytes for one, times in passed)
    copies = sum(times * one.copies for one, times in passed)
    earlier = each.gradients * total if accumulated else 0
    head = each.gradients * stack.vocab * d
    masks = 0 if run.fused else (2 if varies(stack) else 1) * batch * seq_len**2 * (FLOAT32 if run.autocast else 2)
    state = state_bytes(total, each) | {"batch": 2 * INT64 * batch * seq_len, "gradients": 0}

    def at(
        activations: int, layer: int = 0, logits: int = 0, gradients: int = 0, temporaries: int = 0
    ) -> dict[str, int]:
        own = {"gradients": gradients, "activations": activations, "layer": layer, "logits": logits}
        return state | own | {"temporaries": temporaries}

    # the embedding's result has a name until the last layer has gone forward
    named = 0 if passed[0][0].keeps_input or stack.depth == 1 else path
    below, ahead = 0, []
    for one, times in passed:
        below += times * one.kept_bytes - one.kept_bytes + (times - 1) * one.copies
        ahead.append(at(below + named + tables + masks, one.forward, gradients=earlier))
        below += one.kept_bytes + one.copies
    ended = at(kept + copies + tables, logits=end.forward, gradients=earlier)
    found = {"forward": most([*ahead, ended])}
    kept_masks = masks if run.checkpointing else 0
    waits = head if stack.tied and accumulated else 0  # a tied head's gradient, for the embedding's
    found["loss"] = at(kept + tables + kept_masks, logits=end.backward, gradients=earlier)
    made, left, highest = earlier or end.gradients, kept, []
    for one, times in reversed(passed):
        for turn in sorted({0, times - 1}):
            left -= one.kept_bytes if turn == 0 else (times - 1) * one.kept_bytes
            is_first = left == 0 and varies(stack)  # what the layers of the other kind were masked by has gone
            around = left + tables + (kept_masks // 2 if is_first else kept_masks)
            gradients = made + (0 if accumulated else turn * one.gradients)
            highest.append(at(around, one.backward, gradients=gradients, temporaries=waits))
        made += 0 if accumulated else times * one.gradients
    found["last_layer"] = most(highest[:1])
    found["first_layer"] = most(highest[1:] or highest)
    summed = head * ((2 * stack.tied + accumulated) or stack.tied)
    again = max(path + summed - head * stack.tied, summed)
    found["embedding"] = at(0, gradients=each.gradients * total, temporaries=again)
    # master weights' gradients take the place of the others one by one: the last that waits
    behind = 0 if stack.tied else stack.vocab * d
    last = max(behind, widest(stack) - behind) if each.master else 0
    found["update"] = at(0, gradients=(each.master or each.gradients) * total + each.gradients * last)
    return found


def kept_bytes(
    stack: Stack, kind: str, seq_len: int, batch: int = 1, fused: bool = True, checkpointing: str = "none"
) -> dict[str, int]:
    """Bytes that autograd keeps of the whole model in bf16, when the loss has been computed."""
    run = Run(KINDS[kind], batch, seq_len, False, fused, checkpointing == "full", False)
    return {
        "layers": sum(times * pass_layer(stack.d_model, layer, run).kept_bytes for layer, times in stack.layers),
        "rotary": rotary_bytes(stack, run),
        "ends": pass_end(stack, run).kept_bytes,
    }


def most(moments: list[dict[str, int]]) -> dict[str, int]:
    """The moment that holds most."""
    return max(moments, key=lambda lines: sum(lines.values()))


def widest(stack: Stack) -> int:
    """Parameters of the last layer's last matrix, of all experts."""
    mlp = stack.layers[-1][0].mlp
    return stack.d_model * mlp.d_ff * (mlp.experts if isinstance(mlp, Experts) else 1)


def varies(stack: Stack) -> bool:
    """Whether windows and none stand beside each other."""
    return len({mixer.reach for mixer, _ in stack.mixers() if isinstance(mixer, Attention)}) > 1


def rotary_bytes(stack: Stack, run: Run) -> int:
    """Cosines and sines, of each kind of attention."""
    kinds = 2 if run.kind.norm == "one more" and varies(stack) else 1
    features = max(turned_features(layer, run.kind) for layer, _ in stack.layers)
    share = 2 if run.kind.turned == "chunks" else 1
    return kinds * 2 * (FLOAT32 if run.autocast else 2) * run.seq_len * features // share


# --8<-- [end:step]


# --8<-- [start:derived]
def why_not(stack: Stack, kind: str, recipe: str) -> str:
    """Why such a step's bytes are not derived; nothing if they are."""
    if any(isinstance(mixer, Delta) for mixer, _ in stack.mixers()):
        return f"what linear attention keeps, as of a {kind}, depends on its kernels"
    if kind == "llama4_text":
        return f"transformers' {kind} runs all experts on each token, which those who train it do not"
    if any(isinstance(mixer, Latent) and mixer.most for mixer, _ in stack.mixers()):
        return f"transformers' {kind} trains no indexer"
    if kind not in DERIVED:
        return f"those of a {kind} are not derived"
    if recipe == "fp32":
        return f"those of a {kind} with weights and matmuls in float32 are not derived"
    if recipe.startswith("autocast") and any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers):
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
    stack: Stack, at: dict[str, dict[str, int]], recipe: str, gpus: int, zero: int
) -> dict[str, dict[str, int]]:
    """What step_bytes() gives, a GPU, when ZeRO's stage splits it, as flops_bytes.sharding.sharded_bytes() says.

    A layer's gradients are whole where it goes backward, which step_bytes() has, and where they are reduced, while the
    one below it goes backward.
    """
    counts, width = parameters(stack), 4 if recipe == "fp32" else 2
    ends, head = counts["embedding"] + counts["head"], stack.vocab * stack.d_model
    layer = layer_parameters(stack)
    split = ("master", "optimizer", "gradients", "weights")[: 0 if gpus == 1 else (0, 2, 3, 4)[zero]]
    reduced = {"last_layer": head, "first_layer": head + layer, "embedding": ends + layer}
    found = {}
    for moment, lines in at.items():
        found[moment] = {line: -(-size // gpus) if line in split else size for line, size in lines.items()}
        found[moment]["reduced"] = width * reduced.get(moment, 0) if "gradients" in split else 0
        gathered = width * (ends + 2 * layer)
        found[moment]["gathered"] = gathered if "weights" in split and moment != "update" else 0
        if zero == 0 and gpus > 1:  # the buckets of PyTorch's DDP, into which gradients are copied
            found[moment]["reduced"] = RECIPES[recipe].gradients * sum(counts.values())
    return found


def sent_bytes(stack: Stack, recipe: str, gpus: int, zero: int, accumulation: int = 1) -> dict[str, float]:
    """Bytes that a GPU sends in a step of gradients and of weights, as flops_bytes.sharding.sent_parts() says."""
    counts, each = parameters(stack), RECIPES[recipe]
    width, total = 4 if recipe == "fp32" else 2, sum(counts.values())
    if zero == 0:
        return {"reduced": ring_bytes(each.gradients * total, gpus, "allreduce"), "gathered": 0.0}
    reduced = total * (each.gradients if zero == 1 else width) * (accumulation if zero > 1 else 1)
    gathered = each.weights * total
    if zero == 3:
        ends = counts["embedding"] + counts["head"]
        gathered = accumulation * width * (2 * (total - ends) + ends)
    return {
        "reduced": ring_bytes(reduced, gpus, "reduce_scatter"),
        "gathered": ring_bytes(gathered, gpus, "allgather"),
    }


# --8<-- [end:sharded]
