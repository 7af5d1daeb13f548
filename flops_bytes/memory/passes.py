"""A forward pass over all layers of a model on one tape, and what its storages did when it has gone backward too.

flops_bytes.memory.step goes through one layer of each kind and multiplies; this goes through all of them, for whoever
wants to know what follows what. Python alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from flops_bytes.memory.layers import ModelFamily
from flops_bytes.memory.step import (
    LOSS,
    StepConfig,
    in_chunks,
    last_norm,
    layer_context,
    layer_forward,
    mask_bytes,
    norm_head_and_loss,
    prepared,
    rotary_bytes,
    rotary_features,
    rotary_itemsize,
    tape_of,
)
from flops_bytes.memory.tape import (
    COPIES,
    FLOAT32,
    GRADIENTS,
    LOGITS,
    OTHERS,
    SENT,
    Operation,
    Storage,
    Tape,
    Tensor,
    add,
    dropout,
    like,
    vector,
)
from flops_bytes.model.stack import Attention, Layer, Stack

LINES = {  # as answers name them
    OTHERS: "activations",
    COPIES: "copies",
    GRADIENTS: "gradients",
    LOGITS: "logits",
    SENT: "sent",
}


def each_layer(stack: Stack) -> list[Layer]:
    """The layers from the first to the last."""
    return [layer for layer, times in stack.layers for _ in range(times)]


def forward_step(tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig) -> tuple[Operation, Tensor | None]:
    """The forward pass: the operation that the backward pass begins with; of a loss in chunks, which goes both ways
    with the head before that, what the head sees."""
    tape.enter()
    tape.moment = "embedding"
    if stack.tied and config.chunks == 1:
        tape.tied.append("head")
    x = embedded(tape, stack, family, config)
    cos_sin: dict[int, tuple[Tensor, Tensor]] = {}
    masks: dict[int, Tensor] = {}
    for place, layer in enumerate(each_layer(stack)):
        tape.moment = f"layer {place}"
        window = layer.mixer.window if isinstance(layer.mixer, Attention) else 0
        rope_window = window if family.rope_per_window else 0
        if rope_window not in cos_sin:
            cos_sin[rope_window] = tables(tape, stack, family, config)
        if window not in masks:
            masks[window] = eager_mask(tape, family, config)
        mask = None if config.fused else masks[window]
        context = layer_context(tape, family, config.of_layers(), tape.moment, cos_sin[rope_window], mask, layer.mixer)
        x = layer_forward(context, x, layer, config.of_layers(), place % config.every == 0)
    x, hidden = tape.leave(x), None
    if config.chunks > 1:
        tape.moment = "norm"
        result = hidden = tape.keep_to_end(last_norm(tape, family, config.of_end(), x))
    else:
        result = norm_head_and_loss(tape, stack, family, config.of_end(), x)
        tape.forget(result)
    tape.drop_autocast_copies()
    assert result.grad_fn is not None
    return result.grad_fn, hidden


def backward_step(tape: Tape, stack: Stack, config: StepConfig, root: Operation, hidden: Tensor | None) -> None:
    """The backward pass after that, at whose end all goes of which somebody has kept the name."""
    gradient = (
        tape.new(LOSS, FLOAT32) if hidden is None else in_chunks(tape, stack, config.of_end(), hidden, config.chunks)
    )
    tape.run_backward(root, gradient)
    for x in tape.kept_to_end:
        tape.let_go(x)


def embedded(tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig) -> Tensor:
    """What comes to the first layer, of which transformers has names until the last has gone forward."""
    shape, itemsize = (config.batch, config.seq_len, stack.d_model), config.number_bytes
    table = vector(tape, "head" if stack.tied else "embedding", (stack.vocab, stack.d_model))
    x = tape.apply([table], shape, itemsize, [], [like(table)])
    is_own = family.code[:3] == "own"
    if config.adapters is not None and config.reentrant:  # enable_input_require_grads
        x = tape.leaf_over("x", x.shape, itemsize, x.storage, True)
    if not stack.positions:
        return x if is_own else tape.bind(x)
    places = vector(tape, "positions", (stack.positions, stack.d_model))
    y = tape.apply([places], shape[1:], itemsize, [], [like(places)])
    x = add(tape, *[each if is_own else tape.bind(each) for each in (x, y)])
    return dropout(tape, x) if config.dropout[1] else x


def tables(tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig) -> tuple[Tensor, Tensor]:
    """Cosines and sines, which have names while layers go forward; of complex numbers they are one table."""
    size, itemsize = rotary_bytes(stack, family, config), rotary_itemsize(family, config)
    features = max(rotary_features(layer, family) for layer, _ in stack.layers)
    shape = (1, config.seq_len, features // (2 if family.rope in ("chunks", "pairs") else 1))
    # Transformers makes the angles by a matmul, the first of a pass, so cuBLAS takes its workspace here.
    if family.code[:3] != "own":
        tape.count_matmul("matrices", 0)
    if family.rope == "complex":
        both = tape.bind(tape.tensor(shape, itemsize, Storage(size)))
        return both, both
    return tape.bind(tape.tensor(shape, itemsize, Storage(size // 2))), tape.bind(
        tape.tensor(shape, itemsize, Storage(size // 2))
    )


def eager_mask(tape: Tape, family: ModelFamily, config: StepConfig) -> Tensor:
    """Named as the tables are; of fused attention, and of this book's modules, it has no bytes."""
    shape = (config.batch, 1, config.seq_len, config.seq_len)
    return tape.bind(tape.tensor(shape, config.number_bytes, Storage(mask_bytes(family, config))))


class Part(NamedTuple):
    """What is gone through from a change on."""

    start: int  # the change's place
    is_backward: bool
    name: str  # "embedding", "layer 3", "norm", "head" or "loss"


class Pass(NamedTuple):
    """What the storages of a pass forward and backward do, in order."""

    changes: list[tuple[int, int]]  # a storage, and bytes that it takes or, negative, gives back
    parts: list[Part]
    lines: list[int]  # of each storage: one of the tape's
    gradients: dict[str, int]  # the storages of weights' gradients, by the weight's name, which the pass leaves
    arrivals: list[tuple[int, str]]  # before which change a gradient was there that the update takes at once, and whose
    products: list[int]  # after which change the first product's result was there: forward, and backward


class PassTape(Tape):
    """A tape that writes down which storages come and go."""

    def __init__(self, config: StepConfig, holds_inputs: bool) -> None:
        super().__init__(config.accumulated or config.in_backward, config.autocast, config.number_bytes)
        self.updates_at_once = config.in_backward
        self.changes: list[tuple[int, int]] = []
        self.parts: list[Part] = []
        self.storages: list[Storage] = []  # that there have been
        self.arrivals: list[tuple[int, str]] = []
        self.products: list[int] = []
        self.goes_backward, self.awaits_product = False, True
        self.holds_inputs = holds_inputs  # and their gradients, of what reentrant checkpointing makes again
        self.held: list[Storage] = []
        self.is_product = False  # what is made next is the result of a product

    def write(self, storage: Storage, nbytes: int) -> None:
        if not self.parts or self.parts[-1].name != self.moment or self.parts[-1].is_backward != self.goes_backward:
            self.parts.append(Part(len(self.changes), self.goes_backward, self.moment))
        self.changes.append((storage.number, nbytes))

    def hold(self, storage: Storage) -> None:
        is_new = storage.use_count == 0 and storage.nbytes > 0 and not self.stopped_early
        super().hold(storage)
        if is_new:
            storage.number = len(self.storages)
            self.storages.append(storage)
            self.write(storage, storage.nbytes)

    def drop(self, storage: Storage) -> None:
        super().drop(storage)
        if storage.use_count == 0 and storage.nbytes > 0 and not self.stopped_early:
            self.write(storage, -storage.nbytes)

    def count_matmul(self, part: str, amount: int) -> None:
        super().count_matmul(part, amount)
        self.is_product = self.awaits_product

    def tensor(self, shape: Sequence[int], itemsize: int, storage: Storage) -> Tensor:
        made = super().tensor(shape, itemsize, storage)
        if self.is_product:
            self.is_product = self.awaits_product = False
            self.products.append(len(self.changes))
        return made

    def backward_step(self, operation: Operation, gradients: list[Tensor | None]) -> list[Tensor | None]:
        if self.awaits_product and operation.matmul_flops and operation.matmul_part != "fused":
            self.is_product = True
        if operation.recompute_fn is None or not self.holds_inputs:
            return super().backward_step(operation, gradients)
        self.keep(operation.saved[0])
        found = super().backward_step(operation, gradients)
        for one in found:
            if one is not None:
                self.keep(one.storage)
        return found

    def keep(self, storage: Storage) -> None:
        """It stays until the pass ends."""
        self.hold(storage)
        self.held.append(storage)

    def accumulate_into_leaf(self, leaf: Operation, gradient: Tensor | None) -> None:
        if self.updates_at_once and leaf.numel:
            self.arrivals.append((len(self.changes), leaf.leaf_name))
        super().accumulate_into_leaf(leaf, gradient)


@lru_cache(maxsize=8)
def record_pass(stack: Stack, family: ModelFamily, config: StepConfig, holds_inputs: bool = False) -> Pass:
    """All storages of a pass over so many sequences of one length; weights and the batch are not among them.

    With `accumulated` gradients of an earlier pass are there, to which those of this one are added.
    """
    config = config._replace(chunks=min(config.chunks, config.batch * config.seq_len))
    tape = PassTape(config, holds_inputs)
    prepared(tape, config)
    root, hidden = forward_step(tape, stack, family, config)
    tape.goes_backward = tape.awaits_product = True
    backward_step(tape, stack, config, root, hidden)
    return ended(tape, not (config.accumulated or config.in_backward))


def ended(tape: PassTape, stays: bool) -> Pass:
    """The pass whose tape has gone backward: gradients of weights stay, or have been added to earlier ones."""
    left = {name: x for name, x in tape.gradients.items() if stays and tape.leaves[name].numel}
    for name, x in tape.gradients.items():
        if name not in left:
            tape.let_go(x)
    for storage in tape.held:
        tape.drop(storage)
    return Pass(
        tape.changes,
        tape.parts,
        [storage.line for storage in tape.storages],
        {name: x.storage.number for name, x in left.items()},
        tape.arrivals,
        tape.products,
    )


def between_passes(short: Pass, long: Pass, more: int, most: int) -> Pass | None:
    """The pass of a length that is `more` tokens above the short one's, of `most` that the long one's is, where each
    storage grows by as many bytes for each token; None where some do not, or both passes differ otherwise."""
    if short._replace(changes=[]) != long._replace(changes=[]) or len(short.changes) != len(long.changes):
        return None
    changes: list[tuple[int, int]] = []
    for (storage, least), (other, largest) in zip(short.changes, long.changes, strict=True):
        if storage != other or (largest - least) % most:
            return None
        changes.append((storage, least + (largest - least) // most * more))
    return short._replace(changes=changes)


def trained_numbers(stack: Stack, family: ModelFamily, config: StepConfig) -> dict[str, int]:
    """Numbers of each tensor that is trained, by its name, in the model's order."""
    one = config._replace(seq_len=1, batch=1, chunks=1, checkpointing="none", loss="plain", update="fused")
    one = one._replace(reentrant=False, every=1, accumulated=False, logits_to_keep=0)
    tape = tape_of(one)
    forward_step(tape, stack, family, one)
    return {name: leaf.numel for name, leaf in tape.leaves.items() if leaf.numel}
