"""A whole training step on one tape, every layer gone through: what is allocated, freed and multiplied, in order.

flops_bytes.memory.step goes through one layer of each kind and multiplies; this goes through all of them, for whoever
wants to know what follows what: a curve of memory over a step, a snapshot, the blocks that an allocator hands out. What
both say of bytes and FLOPs is held together by a test. Python alone.
"""

# --8<-- [start:event]
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import FrameType
from typing import NamedTuple

from flops_bytes.memory.formulas import RECIPES
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
    step_bytes,
    step_moments,
    trained_parameters,
)
from flops_bytes.memory.tape import (
    COPIES,
    FLOAT32,
    GRADIENTS,
    LOGITS,
    OTHERS,
    Like,
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

LINES = {OTHERS: "activations", COPIES: "copies", GRADIENTS: "gradients", LOGITS: "logits"}
Frame = tuple[str, str, int]


class Event(NamedTuple):
    """Bytes that are allocated, or freed if there are fewer than 0; or FLOPs of a product.

    `storage` is a number that an allocation and its end have in common. `phase` is "forward", "backward" or "update",
    `part` what is gone through: "embedding", "layer 3", "norm", "head" or "loss". `frames` are the functions that asked
    for it, the innermost first, as (name, file, line).
    """

    phase: str
    part: str
    line: str  # of the answer: weights, gradients, optimizer, activations, logits …
    storage: int = -1
    nbytes: int = 0
    flops: int = 0
    frames: tuple[Frame, ...] = ()


def frames_above(frame: FrameType | None) -> tuple[Frame, ...]:
    """The functions that are being called, but for the tape's own."""
    found = []
    while frame is not None and frame.f_code.co_name != "step_events":
        if not isinstance(frame.f_locals.get("self"), Tape) and frame.f_code.co_name[0] != "<":
            found.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


class WrittenTape(Tape):
    """A tape that writes down what happens on it. `mixing` is, of each part, FLOPs of each of attention's products."""

    def __init__(self, config: StepConfig, mixing: Mapping[str, Mapping[str, int]]) -> None:
        super().__init__(config.accumulated or config.in_backward, config.autocast, config.number_bytes)
        self.mixing = mixing
        self.events: list[Event] = []
        self.storages: list[Storage] = []  # that there have been
        self.numbers: dict[int, int] = {}  # of those that are there, by their id
        self.moved: dict[int, str] = {}  # storages that belong to another line than they were made for
        self.phase = "forward"
        self.backward_of: tuple[Frame, ...] = ()  # where the operation was called that now goes backward
        self.called: dict[int, tuple[Frame, ...]] = {}  # the same of each operation, by its number

    def write(self, storage: int, nbytes: int, flops: int, line: str) -> None:
        frames = () if self.is_recomputing else self.backward_of
        frames = frames or frames_above(sys._getframe(2))
        self.events.append(Event(self.phase, self.moment, line, storage, nbytes, flops, frames))

    def allocate(self, line: str, nbytes: int) -> int:
        """What no operation makes."""
        number = len(self.storages)
        self.storages.append(Storage(nbytes))
        self.moved[number] = line
        self.write(number, nbytes, 0, line)
        return number

    def free(self, storage: int) -> None:
        """The same, when it goes."""
        self.write(storage, -self.storages[storage].nbytes, 0, "")

    def of_line(self, storage: Storage, line: int) -> None:
        super().of_line(storage, line)
        self.moved[self.numbers[id(storage)]] = LINES[line]

    def hold(self, storage: Storage) -> None:
        is_new = storage.use_count == 0 and not self.stopped_early
        super().hold(storage)
        if is_new:
            self.numbers[id(storage)] = len(self.storages)
            self.storages.append(storage)
            self.write(len(self.storages) - 1, storage.nbytes, 0, LINES[storage.line])

    def drop(self, storage: Storage) -> None:
        super().drop(storage)
        if storage.use_count == 0 and not self.stopped_early:
            self.write(self.numbers.pop(id(storage)), -storage.nbytes, 0, LINES[storage.line])

    def record(
        self,
        inputs: Sequence[Tensor],
        saved: Sequence[Tensor],
        input_gradients: Sequence[Like | None],
        temporary_bytes: int = 0,
    ) -> Operation | None:
        made = super().record(inputs, saved, input_gradients, temporary_bytes)
        if made is not None:
            self.called[made.number] = frames_above(sys._getframe(1))
        return made

    def count_matmul(self, part: str, amount: int) -> None:
        super().count_matmul(part, amount)
        flops = amount if part == "matrices" else amount * self.mixing[self.moment][part]
        if flops and not self.stopped_early:
            self.write(-1, 0, flops, part)

    def backward_step(self, operation: Operation, gradients: list[Tensor | None]) -> list[Tensor | None]:
        around, self.backward_of = self.backward_of, self.called.get(operation.number, ())
        found = super().backward_step(operation, gradients)
        if operation.matmul_part == "fused":  # which makes its scores again
            self.count_matmul("scores", 3)
            self.count_matmul("values", 2)
        elif operation.matmul_flops:
            for edge in operation.edges[:2]:
                self.count_matmul(operation.matmul_part, operation.matmul_flops if edge is not None else 0)
        self.backward_of = around
        return found


# --8<-- [end:event]


# --8<-- [start:step]
def live_bytes(events: Sequence[Event]) -> list[int]:
    """Bytes that are there after each event."""
    return list(accumulate(event.nbytes for event in events))


def step_events(
    stack: Stack, family: ModelFamily, config: StepConfig, base: str = "as-recipe", causal: bool = False
) -> list[Event]:
    """All that happens in a step after the first, in order. What is there all the time is allocated at the beginning
    and stays; the update is taken as a whole, whose most is known (step_moments).

    FLOPs are those of the step's sequences, of attention over all pairs of tokens, or the `causal` ones alone; frozen
    matrices are held as `base` says. Of one GPU without others. Not for a kind that unsupported_reason() names.
    """
    config = config._replace(chunks=min(config.chunks, config.batch * config.seq_len))
    layers = [layer for layer, times in stack.layers for _ in range(times)]
    names = [f"layer {place}" for place in range(len(layers))]
    of_batch = {
        name: {part: config.batch * each for part, each in layer.mixer.mixing_flops(config.seq_len, causal).items()}
        for name, layer in zip(names, layers, strict=True)
    }
    tape = WrittenTape(config, of_batch)
    prepared(tape, config)
    tape.moment = "state"
    trained, each = trained_parameters(stack, family, config), RECIPES["fp32" if config.adapters else config.recipe]
    at_update = step_moments(stack, family, config)["update"]
    for line, nbytes in step_bytes(stack, family, config, base)["update"].items():
        if nbytes and line not in at_update:
            tape.allocate(line, nbytes)
    earlier = tape.allocate("gradients", each.gradients * trained) if config.accumulated else -1
    root, hidden = forward_step(tape, stack, family, config, layers)
    tape.phase = "backward"
    gradient = (
        tape.new(LOSS, FLOAT32) if hidden is None else in_chunks(tape, stack, config.of_end(), hidden, config.chunks)
    )
    tape.run_backward(root, gradient)
    gone = list(tape.gradients.values()) if config.accumulated or config.in_backward else []  # added, or updated
    for x in (*tape.kept_to_end, *gone):
        tape.let_go(x)
    tape.phase = tape.moment = "update"
    there = tape.live_bytes + (each.gradients * trained if config.accumulated else 0)
    temporaries = tape.allocate("temporaries", sum(at_update.values()) - there)
    tape.free(temporaries)
    for x in tape.gradients.values():
        tape.let_go(x)
    if config.accumulated:
        tape.free(earlier)
    assert not tape.live_bytes, f"{tape.live_bytes} bytes stay when a step has ended"
    return [event._replace(line=tape.moved.get(event.storage, event.line)) for event in tape.events]


def forward_step(
    tape: Tape, stack: Stack, family: ModelFamily, config: StepConfig, layers: Sequence[Layer]
) -> tuple[Operation, Tensor | None]:
    """The forward pass: the operation that the backward pass begins with; of a loss in chunks, which goes both ways
    with the head before that, what the head sees."""
    tape.enter()
    tape.moment = "embedding"
    if stack.tied and config.chunks == 1:
        tape.tied.append("head")
    x = embedded(tape, stack, family, config)
    cos_sin: dict[int, tuple[Tensor, Tensor]] = {}
    masks: dict[int, Tensor] = {}
    for place, layer in enumerate(layers):
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
    """Cosines and sines, which have names while layers go forward."""
    size, itemsize = rotary_bytes(stack, family, config) // 2, FLOAT32 if family.rope == "cast" else config.number_bytes
    features = max(rotary_features(layer, family) for layer, _ in stack.layers)
    shape = (1, config.seq_len, features // (2 if family.rope in ("chunks", "pairs") else 1))
    return tape.bind(tape.tensor(shape, itemsize, Storage(size))), tape.bind(
        tape.tensor(shape, itemsize, Storage(size))
    )


def eager_mask(tape: Tape, family: ModelFamily, config: StepConfig) -> Tensor:
    """Named as the tables are; of fused attention, and of this book's modules, it has no bytes."""
    shape = (config.batch, 1, config.seq_len, config.seq_len)
    return tape.bind(tape.tensor(shape, config.number_bytes, Storage(mask_bytes(family, config))))


# --8<-- [end:step]
