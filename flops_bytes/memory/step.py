"""The bytes of a training step of a stack of layers, at each moment at which it can peak. Python alone.

Each kind of layer goes forward and backward once on flops_bytes.memory.tape, and so do the ends: what stands below the
layers, and the norm, the head and the loss above them. Layers alike do alike, so a step is put together of these:
forward, when those below have kept what they keep; backward, when those above have left their gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from flops_bytes.memory.adapters import CONSTANTS, Format, frozen_bytes
from flops_bytes.memory.formulas import RECIPES, state_bytes
from flops_bytes.memory.layers import (
    FAMILIES,
    LLAMA,
    MIXTRAL,
    NO_DROPOUT,
    Adapters,
    LayerContext,
    ModelFamily,
    Ranks,
    forward,
    laid_out,
    norm,
)
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
    apply_saving_output,
    cast,
    flops_of,
    like,
    linear,
    numel,
    reentrant_checkpoint,
    slice_of,
    vector,
)
from flops_bytes.model.shapes import Decoder
from flops_bytes.model.stack import (
    Attention,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Mixer,
    Stack,
    forward_flops,
    parameters,
    stack_of,
)

# The steps of these families were compared with counted ones. Kimi K2 has DeepSeek-V3's architecture.
SUPPORTED: tuple[str, ...] = (
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "glm4_moe",
    "gpt_oss",
    "gemma3_text",
    "olmo2",
    "olmo3",
)
SUPPORTED += ("llama", "mistral", "phi3", "seed_oss", "qwen2_moe", "glm4_moe_lite", "minimax_m2", "dots1", "olmoe")
# The modules of these families save what Llama's and Mixtral's do.
SAME_AS_LLAMA = ("granite", "ministral3", "mixtral", "qwen2", "qwen3")


class StepConfig(NamedTuple):
    """The options of a training step that its tensors' bytes depend on, whatever the model is."""

    seq_len: int
    batch: int = 1
    recipe: str = "bf16_master"
    fused: bool = True
    checkpointing: str = "none"  # One of "none", "selective", "per-op", "full".
    every: int = 1  # With "full", each layer of a number divisible by this is checkpointed.
    reentrant: bool = False  # With "full", it is torch.utils.checkpoint's use_reentrant.
    accumulated: bool = False  # Gradients of an earlier micro-batch are alive when the step begins.
    adapters: Adapters | None = None  # If there are adapters, they alone are trained.
    loss: str = "plain"  # One of "plain", "fused", and what loss_of() knows.
    chunks: int = 1  # Head and loss go forward and backward for one chunk of tokens at a time.
    # Whether attention's probabilities are dropped out, and the results of attention and MLP where the family does
    # that.
    dropout: tuple[bool, bool] = NO_DROPOUT
    matmul_format: Format | None = None  # The layers' linear modules multiply copies in this format.
    # AdamW updates in one kernel ("fused"), over lists of tensors ("foreach"), or each weight as its gradient arrives
    # ("in-backward").
    update: str = "fused"
    # Logits are made of so many last tokens of a sequence (transformers' logits_to_keep), or of all if it is 0.
    logits_to_keep: int = 0
    ranks: Ranks | None = None  # The model is what one of them has of it.

    @property
    def autocast(self) -> bool:
        return self.recipe[:8] == "autocast"

    @property
    def number_bytes(self) -> int:
        """Bytes of a weight, and of an element of the residual stream."""
        return RECIPES[self.recipe].weights

    @property
    def in_backward(self) -> bool:
        """Whether each gradient is freed by the update as soon as it is there."""
        return self.update == "in-backward"

    def canonical(self) -> "StepConfig":
        """One configuration for all under which tensors are the same, so that results are cached once for them."""
        recipe = {"bf16_master": "bf16", "autocast_fp16": "autocast"}.get(self.recipe, self.recipe)
        return self._replace(recipe=recipe, update="in-backward" if self.in_backward else "fused")

    def of_layers(self) -> "StepConfig":
        """The configuration as a layer sees it: what only the loss depends on is left out."""
        return self.canonical()._replace(loss="plain", chunks=1, every=1, logits_to_keep=0)

    def of_end(self) -> "StepConfig":
        """The configuration as norm, head and loss see it, which are never checkpointed."""
        return self.canonical()._replace(
            checkpointing="none", every=1, reentrant=False, matmul_format=None, dropout=NO_DROPOUT
        )


class BytesByLine(NamedTuple):
    """Bytes, and the parts of them that have lines of their own in the answer."""

    total: int
    autocast_copies: int  # 16-bit copies that autocast makes of weights.
    gradients: int  # Gradients of weights alone.
    logits: int

    @property
    def others(self) -> int:
        return self.total - self.autocast_copies - self.gradients - self.logits


NO_BYTES = BytesByLine(0, 0, 0, 0)
LOSS = (0,)  # The loss is one number, whose bytes are left out.


class LayerMemory(NamedTuple):
    """What a layer, or the head with the loss, takes when it goes forward and backward: bytes beside what was alive
    before."""

    forward: BytesByLine  # The peak of its forward pass, with its input.
    autocast_copies: int  # 16-bit copies that autocast makes of its weights, and frees when the forward pass ends.
    saved_for_backward: BytesByLine  # What stays alive for its backward pass.
    # The peak of each moment of its backward pass, with what it saved and its result's gradient.
    backward: dict[str, BytesByLine]
    gradients: int  # The gradients of its weights, which it leaves.
    keeps_input: bool
    trained_parameters: int  # Parameters that are trained: with adapters only theirs.
    # FLOPs of matmuls with weights that it computes twice, and how often it repeats attention's matmuls.
    recomputed_matmuls: dict[str, int]
    gradient_matmuls: dict[str, int]  # The same of matmuls that make gradients.
    kept_to_end: BytesByLine  # What the chunked loss has names for until the step ends.
    head_is_view: bool  # A tied head's gradient is a view, so the embedding's cannot be added to it in place.


class LayerRun(NamedTuple):
    """Consecutive equal layers, which take the same bytes each."""

    layer: Layer
    times: int
    memory: LayerMemory  # What one of these layers takes.
    attention_kinds: int  # So many kinds of attention occur in these layers and those below: each has its own mask.
    recomputed_masks: int  # So many of these kinds are recomputed, which keeps their masks alive.


def residual_bytes(config: StepConfig, d: int) -> int:
    """Bytes of the residual stream."""
    return config.number_bytes * config.batch * config.seq_len * d


def rotary_features(layer: Layer, family: ModelFamily) -> int:
    """Features of a head that rotary embeddings rotate, which is the width of cosines and sines."""
    mixer = layer.mixer
    whole = (
        mixer.rope_dim if isinstance(mixer, LatentAttention) else mixer.head_dim if isinstance(mixer, Attention) else 0
    )
    return int(whole * family.rotary_share)


def rotary_itemsize(family: ModelFamily, config: StepConfig) -> int:
    """Of cosines and sines."""
    return FLOAT32 if family.rope in ("cast", "complex") else config.number_bytes


@lru_cache(maxsize=256)
def layer_memory(
    d: int, layer: Layer, family: ModelFamily, config: StepConfig, is_lowest: bool = False, is_checkpointed: bool = True
) -> LayerMemory:
    """Runs one layer forward and backward, and recomputes it if it `is_checkpointed`. Below the lowest layer with
    adapters nothing needs a gradient."""
    tape = tape_of(config)
    itemsize = config.number_bytes
    features = rotary_features(layer, family) // (2 if family.rope in ("chunks", "pairs") else 1)
    rope_itemsize = rotary_itemsize(family, config)
    cos_sin = (
        external_tensor((1, config.seq_len, features), rope_itemsize),
        external_tensor((1, config.seq_len, features), rope_itemsize),
    )
    mask = None if config.fused else external_tensor((config.batch, 1, config.seq_len, config.seq_len), itemsize)
    context = layer_context(tape, family, config, "layer", cos_sin, mask, layer.mixer)
    # Reentrant checkpointing needs an input with a gradient (enable_input_require_grads).
    has_gradient = not (is_lowest and tape.weights_frozen) or config.reentrant
    return forward_and_backward(
        tape, d, config, lambda x: layer_forward(context, x, layer, config, is_checkpointed), has_gradient
    )


def layer_forward(context: LayerContext, x: Tensor, layer: Layer, config: StepConfig, is_checkpointed: bool) -> Tensor:
    """Runs one layer as the loop over layers calls it, which has a name for a layer's input. It is checkpointed if
    layers are and it is one of those."""
    tape, recomputes = context.tape, is_checkpointed and config.checkpointing in ("full", "per-op")
    go = {"own_llama": own_llama, "own_gpt2": own_gpt2, "gpt2": gpt2}.get(context.family.code, forward)
    tape.enter()
    x = tape.bind(x)
    others = [*context.cos_sin, *([] if context.mask is None else [context.mask])]
    if config.reentrant and recomputes:
        return tape.leave(reentrant_checkpoint(tape, lambda x: go(context, x, layer), x, others))
    if recomputes:
        return tape.leave(tape.checkpoint(lambda: go(context, x, layer), [x, *others]))
    return tape.leave(go(context, x, layer))


def layer_context(
    tape: Tape,
    family: ModelFamily,
    config: StepConfig,
    name: str,
    cos_sin: tuple[Tensor, Tensor],
    mask: Tensor | None = None,
    mixer: Mixer | None = None,
) -> LayerContext:
    return LayerContext(
        tape=tape,
        family=family,
        name=name,
        cos_sin=cos_sin,
        mask=mask,
        attention=attention_of(mixer, config) if mixer else "",
        adapters=config.adapters,
        dropout=config.dropout,
        recomputes_attention=config.checkpointing == "selective",
        matmul_format=config.matmul_format,
        ranks=config.ranks,
    )


def attention_of(mixer: Mixer, config: StepConfig) -> str:
    """By what a layer's attention is computed: "fused", "math", "eager". Of PyTorch's kernels one alone takes float32,
    and that one no keys that several queries share (can_use_mem_efficient_attention() in ATen's
    transformers/cuda/sdp_utils.cpp). Of a layer with a window transformers repeats the keys itself."""
    if not config.fused:
        return "eager"
    is_grouped = isinstance(mixer, Attention) and mixer.kv_heads < mixer.heads and not 0 < mixer.window < config.seq_len
    return "math" if config.recipe == "fp32" and is_grouped else "fused"


def external_tensor(shape: Sequence[int], itemsize: int) -> Tensor:
    """A tensor that is alive before and after, whose bytes are counted elsewhere."""
    elsewhere = Tape()
    return elsewhere.pin(elsewhere.new(shape, itemsize))


def tape_of(config: StepConfig) -> Tape:
    return prepared(Tape(config.accumulated or config.in_backward, config.autocast, config.number_bytes), config)


def prepared(tape: Tape, config: StepConfig) -> Tape:
    """One on which nothing is yet."""
    tape.weights_frozen = config.adapters is not None
    tape.keeps_products = config.checkpointing == "per-op"
    return tape


def residual_input(tape: Tape, d: int, config: StepConfig, has_gradient: bool = True) -> Tensor:
    """The residual stream that enters a layer, or the last norm."""
    shape, itemsize = (config.batch, config.seq_len, d), config.number_bytes
    return tape.input_leaf("x", shape, itemsize) if has_gradient else tape.new(shape, itemsize)


def forward_and_backward(
    tape: Tape, d: int, config: StepConfig, make: Callable[[Tensor], Tensor], has_gradient: bool = True
) -> LayerMemory:
    """Runs `make` on the residual stream, and back from a gradient as large as its result."""
    x = residual_input(tape, d, config, has_gradient)
    result = make(x)
    root, of = result.grad_fn, like(result)
    assert root is not None
    tape.forget(result)
    forward = end_forward(tape, x, root.moment)
    tape.run_backward(root, tape.new(of.shape, of.itemsize))
    return collect_memory(tape, forward)


class ForwardMemory(NamedTuple):
    """What a part leaves when its forward pass ends."""

    forward: BytesByLine
    autocast_copies: int
    saved_for_backward: BytesByLine
    keeps_input: bool


def end_forward(tape: Tape, x: Tensor, moment: str) -> ForwardMemory:
    """The forward pass ends, and with it autocast's context: the peak starts anew."""
    tape.note_peak()
    forward = bytes_by_line(tape.peak_bytes, tape.peak_lines)
    is_kept, with_copies = x.storage.use_count > 0, tape.live_bytes
    tape.drop_autocast_copies()
    tape.moments, tape.moment, tape.line, tape.peak_bytes = {}, moment, OTHERS, 0
    return ForwardMemory(
        forward, with_copies - tape.live_bytes, bytes_by_line(tape.live_bytes, tape.live_lines), is_kept
    )


def bytes_by_line(total: int, lines: Sequence[int]) -> BytesByLine:
    return BytesByLine(total, lines[COPIES], lines[GRADIENTS], lines[LOGITS])


def collect_memory(tape: Tape, forward: ForwardMemory) -> LayerMemory:
    """What a part leaves when its backward pass ends."""
    tape.begin("end")
    stays = bytes_kept_to_end(tape)
    left = weight_gradient_bytes(tape, stays.total)
    of_head = tape.gradients.get("head")
    is_view = of_head is not None and of_head.is_view
    backward = {moment: bytes_by_line(peak, lines) for moment, (peak, lines) in tape.moments.items()}
    return LayerMemory(
        forward.forward,
        forward.autocast_copies,
        forward.saved_for_backward,
        backward,
        left,
        forward.keeps_input,
        trained_on_tape(tape),
        tape.recomputed_matmuls,
        tape.gradient_matmuls,
        stays,
        is_view,
    )


def bytes_kept_to_end(tape: Tape) -> BytesByLine:
    """The tensors that have names until the step ends."""
    lines = [0, 0, 0, 0, 0]
    for x in tape.kept_to_end:
        lines[x.storage.line] = lines[x.storage.line] + x.storage.nbytes
    return bytes_by_line(sum(lines), lines)


def weight_gradient_bytes(tape: Tape, stays: int) -> int:
    """Bytes of weights' gradients that a part leaves. It ends as it began: what is alive beside these, the gradient of
    what came from below, and what `stays` has no name, and is an error."""
    left = sum(gradient.storage.nbytes for gradient in tape.gradients.values())
    assert tape.live_bytes == left + stays, f"{tape.live_bytes - left - stays} bytes of {tape.live_bytes} have no name"
    return left - (tape.gradients["x"].storage.nbytes if "x" in tape.gradients else 0)


def trained_on_tape(tape: Tape) -> int:
    return sum(leaf.numel for leaf in tape.leaves.values())


@lru_cache(maxsize=256)
def end_memory(stack: Stack, family: ModelFamily, config: StepConfig) -> LayerMemory:
    tape = tape_of(config)
    if stack.tied and config.chunks == 1:
        tape.tied.append("head")
    if config.chunks > 1:
        return chunked_loss_memory(tape, stack, family, config)
    return forward_and_backward(
        tape, stack.d_model, config, lambda x: norm_head_and_loss(tape, stack, family, config, x)
    )


def last_norm(tape: Tape, family: ModelFamily, config: StepConfig, x: Tensor) -> Tensor:
    nothing = external_tensor((0,), 1)
    return norm(layer_context(tape, family, config, "end", (nothing, nothing)), x, "norm")


def norm_head_and_loss(tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig, x: Tensor) -> Tensor:
    """The last norm, the head, and the loss: ForCausalLMLoss of loss/loss_utils.py, torch.compile's or Liger's; or that
    of this book's modules, which has no names for what the head sees and makes."""
    tape.enter()
    tape.moment = "norm"
    x = tape.bind(x)
    hidden = last_norm(tape, family, config, x)
    tape.forget(x)
    if config.loss == "fused":
        tape.moment = "loss"
        return tape.leave(fused_loss(tape, stack, hidden))
    is_named = config.loss == "plain" and family.code[:3] != "own"
    hidden = tape.bind(hidden) if is_named else hidden
    if config.logits_to_keep:
        hidden = slice_of(tape, hidden, (config.batch, config.logits_to_keep, stack.d_model))
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
        return shifted_loss(tape, tape.keep_to_end(cast(tape, logits, FLOAT32)))
    if loss == "logits-held":
        tape.enter()
        wide = tape.bind(cast(tape, tape.keep_to_end(logits), FLOAT32))
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
    before = slice_of(tape, logits, (batch, tokens - 1, vocab))
    before = tape.bind(laid_out(tape, before) if batch > 1 else before)
    if not tape.autocast:
        return tape.leave(log_softmax(tape, before))
    wide = tape.bind(cast(tape, apply_saving_output(tape, before), FLOAT32))
    return tape.leave(tape.apply([wide], LOSS, FLOAT32, [wide], [like(wide)]))


def compiled_loss(tape: Tape, logits: Tensor) -> Tensor:
    """Cross entropy in one kernel (torch.compile): it keeps the logits as they are, and two numbers a row."""
    rows = tape.bind(tape.new((2, *logits.shape[:-1]), FLOAT32))
    result = tape.apply([logits], LOSS, FLOAT32, [logits, rows], [like(logits)])
    tape.let_go(rows)
    return result


def fused_loss(tape: Tape, stack: Stack, hidden: Tensor) -> Tensor:
    """Liger's fused linear cross entropy: forward it makes all gradients, chunk by chunk, and backward hands them on.

    Under autocast a second chunk finds the head's gradient of the first in 16 bits beside its own.
    """
    tape.enter()
    hidden = tape.bind(hidden)
    tokens, d = numel(hidden.shape[:-1]), stack.d_model
    of_hidden, losses = tape.bind(tape.new(hidden.shape, hidden.itemsize)), tape.bind(tape.new((tokens,), FLOAT32))
    table = tape.bind(vector(tape, "head", (stack.vocab, d)))
    is_trained = table.grad_fn is not None
    of_table = [tape.bind(tape.new(table.shape, table.itemsize))] if is_trained else []
    rows = liger_rows(tokens, stack.vocab, d)
    tape.count_matmul("matrices", (3 if is_trained else 2) * flops_of(hidden, (stack.vocab,)))
    for turn in range(2 if tape.autocast else 1):
        chunk_of_fused(tape, (rows, stack.vocab, d), hidden.itemsize, is_trained, turn)
    inputs = [hidden, table] if is_trained else [hidden]
    saved = [of_hidden, *of_table]
    makes = [Like(each.shape, each.itemsize, saved_index=place) for place, each in enumerate(saved)]
    made = tape.record(inputs, saved, makes)
    tape.let_go(losses)
    return tape.leave(tape.finish(made, inputs, tape.new(LOSS, FLOAT32)))


def liger_rows(tokens: int, vocab: int, d: int) -> int:
    """Tokens of a chunk, whose logits are about as large as all that the head sees."""
    size = 1
    while size < -(-tokens // -(-vocab // d)):
        size *= 2
    return min(size, tokens)


def chunk_of_fused(tape: Tape, sizes: tuple[int, int, int], itemsize: int, is_trained: bool, turn: int) -> None:
    """The logits of some rows, which their gradient takes the place of; under autocast with the copies that it makes,
    of which the head's stays until its context ends."""
    rows, vocab, d = sizes
    tape.enter()
    logits = Storage(rows * vocab * (2 if tape.autocast else itemsize), LOGITS)
    if not tape.autocast:
        tape.tensor((rows, vocab), itemsize, logits)
        tape.end([])
        return
    pieces = [tape.bind(tape.new(shape, 2)) for shape in ((rows, d), (vocab, d))]
    tape.bind(tape.tensor((rows, vocab), 2, logits))
    for piece in pieces:
        tape.forget(piece)
    if is_trained and turn == 0:
        tape.autocast_copies["fused"] = tape.pin(tape.new((vocab, d), 2))
    if not is_trained:
        tape.bind(tape.new((vocab, d), 2))
    tape.new((rows, d), 2)
    tape.end([])


def chunked_loss_memory(tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig) -> LayerMemory:
    """The last norm, head and loss, these for some tokens at a time, forward and backward."""
    x = residual_input(tape, stack.d_model, config)
    tape.moment = "norm"
    hidden = tape.keep_to_end(last_norm(tape, family, config, x))
    root = hidden.grad_fn
    assert root is not None
    forward = end_forward(tape, x, "loss")
    tape.run_backward(root, in_chunks(tape, stack, config, hidden, most=4))
    return collect_memory(tape, forward)


def in_chunks(
    tape: Tape,
    stack: Stack,
    config: StepConfig,
    hidden: Tensor,
    most: int,
    loss: Callable[[Tape, Tensor], Tensor] | None = None,
) -> Tensor:
    """The gradient of what the head sees, from head and loss forward and backward for some tokens at a time
    (models.chunked_backward), where both have names until the step has ended.

    Of more than `most` pieces (4 at least) the first two and the last two run. Those between are like them, so only
    their gradients are allocated.
    """
    shape, tokens = hidden.shape, numel(hidden.shape[:-1])
    size = -(-tokens // config.chunks)
    several, skipped = -(-tokens // size), tape.pin(tape.new((0,), 1))
    turns = list(range(several)) if several <= most else [0, 1, several - 2, several - 1]
    for n in turns:
        rows = min(size, tokens - n * size)
        if several > most and n == several - 2:
            skipped = tape.pin(tape.new(((several - 4) * size, stack.d_model), hidden.itemsize))
        tape.begin("loss")
        tape.enter()
        piece = tape.leaf_over(f"piece {n}", (rows, stack.d_model), hidden.itemsize, hidden.storage, True)
        logits = logits_of(tape, stack, piece)
        lost = log_softmax(tape, tape.bind(cast(tape, logits, FLOAT32))) if loss is None else loss(tape, logits)
        lowest = lost.grad_fn
        assert lowest is not None
        tape.end([])
        tape.drop_autocast_copies()
        tape.line = OTHERS
        tape.run_backward(lowest, tape.new(LOSS, FLOAT32))
    gradient = tape.keep_to_end(tape.new(shape, hidden.itemsize))
    tape.let_go_gradients([f"piece {n}" for n in turns])
    tape.let_go(skipped)
    return tape.tensor(shape, gradient.itemsize, gradient.storage)


def log_softmax(tape: Tape, x: Tensor) -> Tensor:
    """log_softmax with the loss: both save the log-probabilities, one storage. Backward, the loss makes a gradient of
    them and log_softmax one of the logits."""
    result, loss = tape.bind(tape.new(x.shape, x.itemsize)), tape.new(LOSS, FLOAT32)
    made = tape.record([x], [result], [like(x)], like(x).total_bytes())
    tape.forget(result)
    return tape.finish(made, [x], loss)


@lru_cache(maxsize=256)
def step_moments(stack: Stack, family: ModelFamily, config: StepConfig) -> dict[str, dict[str, int]]:
    """Bytes by line at each moment at which a step can peak, beside the state that is alive all the time.

    Which of the places of a moment holds most depends on what is shared with other GPUs: so each is there, numbered.
    """
    config = config._replace(chunks=min(config.chunks, config.batch * config.seq_len))
    adapters, batch, seq_len = config.adapters, config.batch, config.seq_len
    accumulated, trained = config.accumulated, trained_parameters(stack, family, config)
    recipe, update = config.recipe, config.update
    bytes_a_parameter, d = RECIPES["fp32" if adapters else recipe], stack.d_model
    runs = layer_runs(stack, family, config)
    end = end_memory(stack, family, config.of_end())
    residual = residual_bytes(config, d)
    # A recomputed region saves its mask, so the mask stays alive.
    kinds, recomputed_masks = runs[-1].attention_kinds, runs[-1].recomputed_masks
    table, mask = rotary_bytes(stack, family, config), mask_bytes(family, config)
    # Dropout of the embedding's result saves a mask.
    dropout_mask = batch * seq_len * d if config.dropout[1] and stack.positions else 0
    tables, masks = (kinds if family.rope_per_window else 1) * table + dropout_mask, kinds * mask
    kept = sum(alike.times * alike.memory.saved_for_backward.others for alike in runs)
    kept_copies = sum(alike.times * alike.memory.saved_for_backward.autocast_copies for alike in runs)
    copies = sum(alike.times * alike.memory.autocast_copies for alike in runs)
    earlier = bytes_a_parameter.gradients * trained if accumulated else 0
    head = 0 if adapters else bytes_a_parameter.gradients * stack.vocab * d

    def at(
        gradients: int, copies: int, activations: int, part: BytesByLine, layer: bool, temporaries: int
    ) -> dict[str, int]:
        """A moment's lines, with those of the part that goes now: a layer, or an end."""
        return {
            "gradients": gradients + part.gradients,
            "copies": copies + part.autocast_copies,
            "activations": activations,
            "layer": part.others if layer else 0,
            "logits": part.logits,
            "temporaries": temporaries,
        }

    def at_end(part: BytesByLine, copies: int) -> dict[str, int]:
        """No layer goes: what the end kept waits as the layers' activations do."""
        waits = min(end.saved_for_backward.others, part.others)
        around = kept + tables + recomputed_masks * mask + waits
        return at(earlier, kept_copies + copies, around, part, False, part.others - waits)

    # The model has a name for the embedding's result until the last layer has run.
    named = embedding_output_bytes(stack, family, config, runs[0].memory.keeps_input)
    below, made_copies, ahead = 0, 0, []
    for run in runs:
        one, times = run.memory, run.times
        each_kept = one.saved_for_backward.others
        below += (times - 1) * each_kept
        made_copies += (times - 1) * (one.saved_for_backward.autocast_copies + one.autocast_copies)
        ahead.append(at(earlier, made_copies, below + named + tables + masks, one.forward, True, 0))
        below += each_kept
        made_copies += one.saved_for_backward.autocast_copies + one.autocast_copies
    found = numbered("forward", [*ahead, at_end(end.forward, copies)])
    # A tied head's gradient waits for the embedding's, unless the loss is in chunks, which accumulates it at once.
    is_summed = stack.tied and config.chunks == 1
    waits = head if is_summed and accumulated else 0
    for moment in ("loss", "head"):
        found[moment] = at_end(end.backward.get(moment, NO_BYTES), 0)
    above = at_end(end.backward.get("norm", NO_BYTES), 0)
    made_gradients, left_saved, left_copies, highest = earlier or end.gradients, kept, kept_copies, []
    for run in reversed(runs):  # Masks and tables of one kind of layer are freed with the last layer that uses them.
        one, times = run.memory, run.times
        for turn in sorted({0, times - 1}):
            fewer = 1 if turn == 0 else times - 1
            left_saved -= fewer * one.saved_for_backward.others
            left_copies -= fewer * one.saved_for_backward.autocast_copies
            around = (
                left_saved
                + (run.attention_kinds if family.rope_per_window else 1) * table
                + dropout_mask
                + run.recomputed_masks * mask
            )
            # An update in backward leaves no gradient of a layer.
            gradients = made_gradients + (0 if accumulated else turn * one.gradients)
            lines = at(gradients, left_copies, around, one.backward[""], True, waits + end.kept_to_end.others)
            highest.append(lines | {"logits": end.kept_to_end.logits})
        made_gradients += 0 if accumulated else times * one.gradients
    # While a layer between goes backward, gradients of the one above are reduced, as in the first; with adapters none
    # are.
    between = highest[1:-1]
    found |= numbered("last_layer", [highest[0], above, *(between if adapters else [])])
    found |= numbered("first_layer", [highest[-1], *([] if adapters else between)])
    # The sum of both gradients of a tied matrix is a third tensor, unless it is made in place.
    third = is_summed and end.head_is_view
    summed = head * ((is_summed + third + accumulated) or stack.tied)
    again = 0 if adapters else max(residual + summed - head * third, summed)  # A frozen embedding gets no gradient.
    positions = 0 if adapters else bytes_a_parameter.gradients * stack.positions * d
    if positions and accumulated:  # The positions' gradients come first, summed over all sequences.
        again = max(again, residual + (residual // batch if batch > 1 else 0) + positions + waits)
    whole = head if config.in_backward else bytes_a_parameter.gradients * trained
    found["embedding"] = at(
        whole, 0, 0, end.kept_to_end._replace(total=end.kept_to_end.logits), False, end.kept_to_end.others + again
    )
    if config.in_backward and positions:
        of_table = at(positions + head * stack.tied, 0, 0, NO_BYTES, False, residual)
        found |= numbered("embedding", [found["embedding"], of_table])
    # Gradients are cast for master weights one by one, so the last one waits beside all casts.
    waiting, roots = (
        bytes_a_parameter.gradients * waiting_parameters(stack, trained) if bytes_a_parameter.master else 0,
        0,
    )
    if update == "foreach":  # The square roots of all second moments are alive at once.
        roots = bytes_a_parameter.optimizer // 2 * trained
        waiting, roots = (waiting, 0) if waiting >= roots else (0, roots)
    whole = 0 if config.in_backward else (bytes_a_parameter.master or bytes_a_parameter.gradients) * trained
    found["update"] = at(whole + waiting, 0, 0, NO_BYTES, False, roots)
    return found


def state_lines(trained: int, recipe: str, frozen: int | None, tokens: int) -> dict[str, int]:
    """Bytes that are alive all the time: state and the batch (tokens and targets, as int64). Adapters are trained in
    float32, beside so many bytes of `frozen` weights."""
    if frozen is None:
        return state_bytes(trained, RECIPES[recipe]) | {"batch": 2 * INT64 * tokens}
    state = state_bytes(trained, RECIPES["fp32"])
    return state | {"adapters": state["weights"], "weights": frozen, "batch": 2 * INT64 * tokens}


def step_bytes(
    stack: Stack, family: ModelFamily, config: StepConfig, base: str = "as-recipe"
) -> dict[str, dict[str, int]]:
    """All bytes of a step by line, at each moment at which it can peak; frozen matrices are held as `base` says."""
    trained = trained_parameters(stack, family, config)
    frozen = frozen_bytes(stack, RECIPES[config.recipe].weights, base) if config.adapters else None
    state = state_lines(trained, config.recipe, frozen, config.batch * config.seq_len)
    return {moment: state | lines for moment, lines in step_moments(stack, family, config).items()}


def family_of(stack: Stack, composed: bool) -> ModelFamily:
    """How a decoder of layers all alike is written: as this book has it, or as transformers. A norm has a second vector
    where the stack says so."""
    (layer, _), *_ = stack.layers
    has_experts = isinstance(layer.mlp, Experts)
    own, theirs = (OWN_GPT2, GPT2) if stack.positions else (OWN_LLAMA, MIXTRAL if has_experts else LLAMA)
    has_module = (has_experts or layer.mlp.gated != bool(stack.positions)) and not (has_experts and stack.positions)
    # A shape that transformers has no module for is written as this book's.
    family = theirs if composed and has_module else own
    if stack.norm_shift:
        return replace(family, norm_kind="layer_norm")
    return replace(family, norm_kind="kernel") if family.norm_kind == "layer_norm" else family


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
    config = StepConfig(seq_len, batch, recipe, fused, checkpointing, adapters=adapters, dropout=(dropout, dropout))
    stack = stack_of(shape)
    found: dict[str, dict[str, int]] = {}
    for place, lines in step_bytes(stack, family_of(stack, composed), config._replace(**told), base).items():
        moment = moment_of(place)
        found[moment] = max(found.get(moment, lines), lines, key=lambda lines: sum(lines.values()))
    return found


def mask_bytes(family: ModelFamily, config: StepConfig) -> int:
    """Eager attention's, which transformers makes once for all layers; this book's makes one whenever it attends."""
    is_own = family.code[:3] == "own"
    return 0 if config.fused or is_own else config.number_bytes * config.batch * config.seq_len**2


def embedding_output_bytes(stack: Stack, family: ModelFamily, config: StepConfig, keeps_input: bool) -> int:
    """Bytes of the embedding's result, for which transformers has a name while layers run, though nothing saves it; in
    GPT-2 there is one of words and one of positions."""
    path = residual_bytes(config, stack.d_model)
    if family.code == "gpt2":
        return path + path // config.batch
    return 0 if keeps_input or stack.depth == 1 or family.code != "transformers" else path


def waiting_parameters(stack: Stack, total: int) -> int:
    """An update with master weights casts gradients one by one. This is its largest surplus on the way: parameters of
    the tensor that is cast (the head, an MLP's last matrix, the embedding or the positions), less those behind it."""
    table = stack.vocab * stack.d_model
    behind = 0 if stack.tied else table
    of_positions = 2 * stack.positions * stack.d_model
    return max(behind, last_matrix_parameters(stack) - behind, table + max(table, of_positions) - total)


@lru_cache(maxsize=256)
def layer_runs(stack: Stack, family: ModelFamily, config: StepConfig) -> list[LayerRun]:
    """Runs of equal layers, and what one layer of each takes. With adapters the lowest layer is a run of its own, since
    nothing below it needs a gradient."""
    found: list[LayerRun] = []
    windows: list[int] = []
    recomputed_windows: list[int] = []
    for layer, times, is_checkpointed in runs_of_equal_layers(stack, config):
        window = layer.mixer.window if isinstance(layer.mixer, Attention) else 0
        if window not in windows:
            windows.append(window)
        if (
            window not in recomputed_windows
            and config.checkpointing != "none"
            and (is_checkpointed or config.checkpointing != "full")
        ):
            recomputed_windows.append(window)
        is_lowest = config.adapters is not None and not found
        once = layer_memory(stack.d_model, layer, family, config.of_layers(), is_lowest, is_checkpointed)
        found.append(LayerRun(layer, times, once, len(windows), len(recomputed_windows)))
    return found


def trained_in(runs: list[LayerRun]) -> int:
    """Parameters that are trained in these layers."""
    return sum(alike.times * alike.memory.trained_parameters for alike in runs)


def runs_of_equal_layers(stack: Stack, config: StepConfig) -> list[tuple[Layer, int, bool]]:
    """Runs of equal layers: a layer, how many there are, and whether they are checkpointed."""
    each: list[tuple[Layer, int]] = list(stack.layers)
    if config.every > 1:
        each = [(layer, 1) for layer, times in each for _ in range(times)]
    elif config.adapters is not None and each[0][1] > 1:
        each = [(each[0][0], 1), (each[0][0], each[0][1] - 1), *each[1:]]
    return [(layer, times, place % config.every == 0) for place, (layer, times) in enumerate(each)]


def recomputed_flops(stack: Stack, family: ModelFamily, config: StepConfig, causal: bool) -> int:
    """FLOPs of one sequence that a step recomputes, to save less."""
    return sum(
        flops_by_tape(alike, alike.memory.recomputed_matmuls, config, causal)
        for alike in layer_runs(stack, family, config)
    )


def flops_by_tape(run: LayerRun, counted: dict[str, int], config: StepConfig, causal: bool) -> int:
    """Of one sequence, in all layers that do alike, from what the tape has counted in one of them for the batch."""
    return run.times * (counted["matrices"] // config.batch) + attended_flops(run, counted, config, causal)


def attended_flops(run: LayerRun, counted: dict[str, int], config: StepConfig, causal: bool) -> int:
    """The part of scores, and of their products with values."""
    mixing = run.layer.mixer.mixing_flops(config.seq_len, causal)
    return run.times * (counted["scores"] * mixing["scores"] + counted["values"] * mixing["values"])


def attention_backward_flops(run: LayerRun, config: StepConfig, causal: bool) -> int:
    """Of one sequence, in all layers that do alike. A kernel makes all gradients, and its scores once more; without one
    nothing makes the gradient of a frozen key in the lowest layer."""
    is_fused = attention_of(run.layer.mixer, config) == "fused"
    return attended_flops(run, {"scores": 3, "values": 2} if is_fused else run.memory.gradient_matmuls, config, causal)


def token_flops(stack: Stack, family: ModelFamily | None, config: StepConfig, causal: bool) -> dict[str, float]:
    """FLOPs of training on one token: the model's own, the device's, and what of these it does again.

    The model's are those of forward and backward pass alone, by which MFU is measured. With adapters, frozen weights
    need no gradients, nor does what stands below the lowest adapter: the tape says which products make some. Of a kind
    whose layers are not derived (None), layers that are computed again go forward once more.
    """
    seq_len = config.seq_len
    forward = forward_flops(stack, seq_len, causal=causal)
    once, attended = sum(forward.values()), forward.get("scores", 0) + forward.get("values", 0)
    # Attention's kernel recomputes its scores in the backward pass.
    rerun = sum(
        times * layer.mixer.mixing_flops(seq_len, causal).get("scores", 0)
        for layer, times in stack.layers
        if attention_of(layer.mixer, config) == "fused"
    )
    if family is None:
        again = once - forward["head"] if config.checkpointing == "full" else 0
        model, device = 3 * once, 3 * once + rerun
    elif config.adapters is None:
        again = recomputed_flops(stack, family, config, causal)
        model, device = 3 * once, 3 * once + rerun
    else:
        again = recomputed_flops(stack, family, config, causal)
        runs = layer_runs(stack, family, config)
        adapted = once + 2 * seq_len * trained_in(runs) + forward["head"]
        of_matrices = sum(alike.times * (alike.memory.gradient_matmuls["matrices"] // config.batch) for alike in runs)
        of_attention = sum(attention_backward_flops(alike, config, causal) for alike in runs)
        model, device = adapted + of_matrices + 2 * attended, adapted + of_matrices + of_attention
    return {"model": model / seq_len, "device": (device + again) / seq_len, "again": again / seq_len}


def trained_parameters(stack: Stack, family: ModelFamily, config: StepConfig) -> int:
    """All, or those of LoRA alone: (inputs + outputs) times the rank for each matrix that gets an adapter."""
    return trained_in(layer_runs(stack, family, config)) if config.adapters else sum(parameters(stack).values())


def kept_bytes(stack: Stack, kind: str, seq_len: int, batch: int = 1, checkpointing: str = "none") -> dict[str, int]:
    """Bytes that autograd keeps of the whole model in bf16, when the loss has been computed."""
    family, config = FAMILIES[kind], StepConfig(seq_len, batch, "bf16", checkpointing=checkpointing)
    layers = [(times, layer_memory(stack.d_model, layer, family, config)) for layer, times in stack.layers]
    return {
        "layers": sum(times * once.saved_for_backward.total for times, once in layers),
        "rotary": (layer_runs(stack, family, config)[-1].attention_kinds if family.rope_per_window else 1)
        * rotary_bytes(stack, family, config),
        "ends": end_memory(stack, family, config).saved_for_backward.total,
    }


def numbered(moment: str, places: list[dict[str, int]]) -> dict[str, dict[str, int]]:
    """The places of a moment: the first by its name alone, the others with a number behind it."""
    return {f"{moment} {place}" if place else moment: lines for place, lines in enumerate(places)}


def moment_of(place: str) -> str:
    """The name of a moment without its number."""
    return place.partition(" ")[0]


def last_matrix_parameters(stack: Stack) -> int:
    """Parameters of the last layer's last matrix, of all experts, less those of shared experts, which stand behind."""
    mlp = stack.layers[-1][0].mlp
    if isinstance(mlp, Experts):
        return stack.d_model * (mlp.d_ff * mlp.experts - 3 * mlp.shared_d_ff)
    return stack.d_model * mlp.d_ff


def rotary_bytes(stack: Stack, family: ModelFamily, config: StepConfig) -> int:
    """Bytes of cosines and sines."""
    if stack.positions:
        return 0
    features = max(rotary_features(layer, family) for layer, _ in stack.layers)
    share = 2 if family.rope in ("chunks", "complex") else 1
    return 2 * rotary_itemsize(family, config) * config.seq_len * features // share


def unsupported_reason(stack: Stack, kind: str, recipe: str, gathered: bool = False) -> str:
    """Why the bytes of such a step are not derived, or an empty text if they are. Gathered weights are cast before,
    where autocast would cast them."""
    if any(isinstance(mixer, GatedDelta) for mixer, _ in stack.mixers()):
        return f"what linear attention keeps, as of a {kind}, depends on its kernels"
    if kind == "llama4_text":
        return f"transformers' {kind} runs all experts on each token, which those who train it do not"
    if any(isinstance(mixer, LatentAttention) and mixer.index_topk for mixer, _ in stack.mixers()):
        return f"transformers' {kind} trains no indexer"
    if kind not in SUPPORTED and kind not in SAME_AS_LLAMA:
        return f"those of a {kind} are not derived"
    in_16_bits = recipe[:4] == "bf16" or (recipe[:8] == "autocast" and gathered)
    if not in_16_bits and kind != "mixtral" and any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers):
        return "experts multiply as their weights are, and PyTorch's grouped matmul takes 16 bits alone"
    return ""
