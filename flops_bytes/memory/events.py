"""A whole training step on one tape, every layer gone through: what is allocated, freed and multiplied, in order.

flops_bytes.memory.step goes through one layer of each kind and multiplies; this goes through all of them, for whoever
wants to know what follows what: a curve of memory over a step, a snapshot, the blocks that an allocator hands out. What
both say of bytes and FLOPs is held together by a test. Python alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import FrameType
from typing import NamedTuple

from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.layers import ModelFamily
from flops_bytes.memory.passes import LINES, backward_step, each_layer, forward_step
from flops_bytes.memory.step import (
    StepConfig,
    prepared,
    step_bytes,
    step_moments,
    trained_parameters,
)
from flops_bytes.memory.tape import Like, Operation, Storage, Tape, Tensor
from flops_bytes.model.stack import Stack

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
        is_tapes = isinstance(frame.f_locals.get("self"), Tape) or frame.f_code is backward_step.__code__
        if not is_tapes and frame.f_code.co_name[0] != "<":
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
        self.moved[storage.number] = LINES[line]

    def hold(self, storage: Storage) -> None:
        is_new = storage.use_count == 0 and not self.stopped_early
        super().hold(storage)
        if is_new:
            storage.number = len(self.storages)
            self.storages.append(storage)
            self.write(len(self.storages) - 1, storage.nbytes, 0, LINES[storage.line])

    def drop(self, storage: Storage) -> None:
        super().drop(storage)
        if storage.use_count == 0 and not self.stopped_early:
            self.write(storage.number, -storage.nbytes, 0, LINES[storage.line])

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
    of_batch = {
        f"layer {place}": {
            part: config.batch * each for part, each in layer.mixer.mixing_flops(config.seq_len, causal).items()
        }
        for place, layer in enumerate(each_layer(stack))
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
    root, hidden = forward_step(tape, stack, family, config)
    tape.phase = "backward"
    backward_step(tape, stack, config, root, hidden)
    if config.accumulated or config.in_backward:  # gradients are added, or updated
        for x in tape.gradients.values():
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
