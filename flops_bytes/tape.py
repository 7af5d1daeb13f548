"""What autograd keeps and lets go, by bytes: a step in which every tensor is its size. Python alone.

A module is written here as its code stands, operation by operation and name by name; each operation says what it keeps
for the backward pass and what it makes there. Tensors live as long as something holds them, as PyTorch's do: a name, an
operation that kept them, a gradient on its way. So the highest sum is a step's peak.

What each operation keeps stands in PyTorch 2.13's tools/autograd/derivatives.yaml; when it lets go, and in which order
operations go backward, in torch/csrc/autograd/engine.cpp: what was made last goes first, an operation's results are
there beside all that it kept, and where two gradients meet a third is made of them.
"""

# --8<-- [start:tensor]
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from math import prod
from typing import Any

FLOAT32, INT64 = 4, 8  # bytes


class Storage:
    """Bytes that are there as long as this is."""

    __slots__ = ("__weakref__", "size", "tape")

    def __init__(self, tape: Tape, size: int) -> None:
        self.tape, self.size = tape, size
        tape.live += size
        tape.peak = max(tape.peak, tape.live)

    def __del__(self) -> None:
        self.tape.live -= self.size


class Tensor:
    """Sizes, bytes of a number, where they lie, and of which operation it is which result; None without gradient."""

    __slots__ = ("made", "place", "shape", "storage", "width")

    def __init__(
        self, shape: Sequence[int], width: int, storage: Storage, made: Operation | None = None, place: int = 0
    ) -> None:
        self.shape, self.width, self.storage, self.made, self.place = tuple(shape), width, storage, made, place

    def view(self, *shape: int) -> Tensor:
        """As many numbers in another order, where they lie."""
        return Tensor(shape, self.width, self.storage, self.made, self.place)


# --8<-- [end:tensor]


# --8<-- [start:operation]
Gradients = list[Tensor | None]
Backward = Callable[..., Gradients]  # of the gradient of each result; those of the inputs


class Operation:
    """One that was done, and what it keeps."""

    __slots__ = ("again", "backward", "inputs", "kept", "number", "results", "sizes")

    def __init__(self, number: int, inputs: list[tuple[Operation, int] | None], kept: Any, backward: Backward) -> None:
        self.number, self.inputs, self.kept, self.backward = number, inputs, kept, backward
        self.again: Again | None = None
        self.results = 1
        self.sizes: list[tuple[tuple[int, ...], int]] = []  # of the inputs, and their bytes a number


class Leaf(Operation):
    """Where a gradient ends: a weight's, or that of a layer's input."""

    __slots__ = ("gradient", "stays")

    def __init__(self, stays: bool) -> None:
        super().__init__(0, [], None, lambda gradient: [])
        self.gradient: Tensor | None = None
        self.stays = stays  # else it is added to an earlier one


class Stop(Exception):
    """All that the backward pass asks for has been made again."""


class Again:
    """A layer that is made again: how, and the operations that will ask (torch.utils.checkpoint, not reentrant)."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make, self.made = make, False
        self.asking: list[Operation] = []


# --8<-- [end:operation]


# --8<-- [start:tape]
class Tape:
    """Bytes that are there now, and the most that there were."""

    def __init__(self, accumulated: bool = False, autocast: bool = False) -> None:
        self.live = self.peak = self.number = 0
        self.accumulated, self.autocast = accumulated, autocast
        self.copies: dict[object, Tensor] = {}  # autocast's, of weights, as long as its context lasts
        self.leaves: dict[object, Leaf] = {}
        self.forgetting: Again | None = None
        self.asking: list[Operation] = []  # for what is made again now

    def new(self, shape: Sequence[int], width: int) -> Tensor:
        return Tensor(shape, width, Storage(self, prod(shape) * width))

    def leaf(self, name: object, shape: Sequence[int], width: int, held: bool = True) -> Tensor:
        """A weight, which is held elsewhere, or an input, which is held here; its gradient is held here."""
        leaf = self.leaves.setdefault(name, Leaf(not held or not self.accumulated))
        return Tensor(shape, width, Storage(self, 0 if held else prod(shape) * width), leaf)

    def note(
        self, result: Tensor | tuple[Sequence[int], int], inputs: Sequence[Tensor], kept: Any, backward: Backward
    ) -> Tensor:
        """A result, with the operation that made it, if one of its inputs has a gradient.

        Inputs are kept before the result is there, which is why some give its sizes alone.
        """
        edges = [(each.made, each.place) if each.made is not None else None for each in inputs]
        if not any(edges):
            return result if isinstance(result, Tensor) else self.new(*result)
        operation = self.keep(edges, kept, backward)
        operation.sizes = [(each.shape, each.width) for each in inputs]
        result = result if isinstance(result, Tensor) else self.new(*result)
        result.made, result.place = operation, 0
        return result

    def keep(self, edges: list[tuple[Operation, int] | None], kept: Any, backward: Backward) -> Operation:
        self.number += 1
        operation = Operation(self.number, edges, kept, backward)
        if kept is not None and self.forgetting is not None:
            operation.kept, operation.again = None, self.forgetting
            self.forgetting.asking.append(operation)
        elif kept is not None and self.asking:
            self.asking.pop().kept = kept
            if not self.asking:
                raise Stop
        return operation

    def backward(self, root: Operation, gradient: list[Tensor]) -> None:
        """From an operation down to leaves, the last that was made first."""
        waiting = edges_into(root)
        arrived: dict[Operation, Gradients] = {root: [gradient.pop()]}
        ready = [(-root.number, root)]
        while ready:
            operation = heappop(ready)[1]
            found = self.gone(operation, arrived)
            for number, edge in enumerate(operation.inputs):
                if edge is None:
                    continue
                below, place = edge
                one, found[number] = found[number], None
                if one is not None:
                    there = arrived.setdefault(below, [None] * below.results)
                    before, there[place] = there[place], None
                    there[place] = one if before is None else self.new(one.shape, one.width)
                    before = None
                one = None
                waiting[below] -= 1
                if not waiting[below] and below in arrived:
                    if isinstance(below, Leaf):
                        (own,) = arrived.pop(below)
                        below.gradient = own if below.stays else None
                        own = None
                    else:
                        heappush(ready, (-below.number, below))

    def gone(self, operation: Operation, arrived: dict[Operation, Gradients]) -> Gradients:
        """One goes backward: what it makes is there beside what it kept, which then goes."""
        if operation.again is not None and not operation.again.made:
            self.make_again(operation.again)
        gradients = arrived.pop(operation)
        found = operation.backward(*gradients)
        if operation.again is not None:
            operation.kept = None  # what was made again goes when it has been asked for
        for number, (shape, width) in enumerate(operation.sizes):
            if (one := found[number]) is not None:
                found[number] = None
                found[number] = fitted(self, one, shape, width)
        one = None
        operation.kept = operation.again = None
        return found

    def make_again(self, again: Again) -> None:
        """To the last that will be asked for; autocast makes its copies again."""
        copies, self.copies, self.asking = self.copies, {}, again.asking[::-1]
        again.asking, again.made = [], True
        with suppress(Stop):
            again.make()
        self.copies = copies

    def checkpointed(self, make: Callable[[list[Tensor]], Tensor], x: list[Tensor]) -> Tensor:
        """A layer of which the input alone is kept."""
        self.forgetting = Again(lambda: make(x))
        result = make(x)
        self.forgetting = None
        return result


def edges_into(root: Operation) -> dict[Operation, int]:
    """Of all operations below, how often each is an input."""
    found: dict[Operation, int] = {}
    below = [root]
    while below:
        for edge in below.pop().inputs:
            if edge is not None:
                if edge[0] not in found:
                    below.append(edge[0])
                found[edge[0]] = found.get(edge[0], 0) + 1
    return found


# --8<-- [end:tape]


# --8<-- [start:alike]
def fitted(tape: Tape, gradient: Tensor, shape: tuple[int, ...], width: int) -> Tensor:
    """A gradient summed to its input's sizes, and cast to its type (engine.cpp's validate_outputs)."""
    if prod(gradient.shape) != prod(shape):
        gradient = tape.new(shape, gradient.width)
    return gradient if gradient.width == width else tape.new(shape, width)


def sized(shape: tuple[int, ...], width: int) -> Tensor:
    """A tensor's sizes, without what lies there."""
    return Tensor(shape, width, None)  # type: ignore[arg-type]


def like(x: Tensor) -> Tensor:
    return sized(x.shape, x.width)


def cast(tape: Tape, x: Tensor, width: int) -> Tensor:
    """To another type."""
    if x.width == width:
        return x
    of = like(x)
    return tape.note(tape.new(x.shape, width), [x], None, lambda g: [tape.new(of.shape, of.width)])


def copied(tape: Tape, x: Tensor, forward: bool = True) -> Tensor:
    """In another order in memory; or, not `forward`, so that the gradient alone is copied."""
    of = like(x)
    result = tape.new(x.shape, x.width) if forward else x.view(*x.shape)
    return tape.note(result, [x], None, lambda g: [tape.new(of.shape, of.width)])


def scaled(tape: Tape, x: Tensor) -> Tensor:
    """Times, plus or minus a number; both ways a tensor is made."""
    of = like(x)
    return tape.note(tape.new(x.shape, x.width), [x], None, lambda g: [tape.new(of.shape, of.width)])


def shifted(tape: Tape, x: Tensor) -> Tensor:
    """Plus a number, whose gradient is the same."""
    return tape.note(tape.new(x.shape, x.width), [x], None, lambda g: [g])


def add(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    return tape.note((larger(x, y), max(x.width, y.width)), [x, y], None, lambda g: [g, g])


def larger(x: Tensor, y: Tensor) -> tuple[int, ...]:
    return max(x.shape, y.shape, key=lambda shape: (prod(shape), len(shape)))


def multiply(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """Each keeps the other, if it has a gradient itself."""
    needed = [x.made is not None, y.made is not None]
    shape, width = larger(x, y), max(x.width, y.width)

    def backward(gradient: Tensor) -> Gradients:
        return [tape.new(shape, width) if each else None for each in needed]

    kept = [each.storage for each, asks in ((x, needed[1]), (y, needed[0])) if asks]
    return tape.note((shape, width), [x, y], kept, backward)


def apply(tape: Tape, x: Tensor, keeps: str = "input", made: int = 1) -> Tensor:
    """A function of each number, such as SiLU, that keeps its input or its result; its backward makes so many."""
    of = like(x)
    result = tape.new(x.shape, x.width) if keeps == "result" else None
    kept = [x.storage if result is None else result.storage]

    def backward(gradient: Tensor) -> Gradients:
        return [[tape.new(of.shape, of.width) for _ in range(made)][-1]]

    return tape.note(result or (x.shape, x.width), [x], kept, backward)


def part(tape: Tape, x: Tensor, *shape: int) -> Tensor:
    """A slice: its gradient stands among zeros."""
    of = like(x)
    return tape.note(x.view(*shape), [x], None, lambda g: [tape.new(of.shape, of.width)])


def parts(tape: Tape, x: Tensor, *sizes: int) -> list[Tensor]:
    """All of the last dimension: the gradients are joined."""
    of, before = like(x), x.shape[:-1]
    first = tape.note(x.view(*before, sizes[0]), [x], None, lambda *gradients: [tape.new(of.shape, of.width)])
    if first.made is not x.made and first.made is not None:
        first.made.results = len(sizes)
    rest = [Tensor((*before, size), x.width, x.storage, first.made, place) for place, size in enumerate(sizes) if place]
    return [first, *rest]


def joined(tape: Tape, *inputs: Tensor) -> Tensor:
    """Along the last dimension; their gradients are views of one."""
    of = [like(each) for each in inputs]
    shape = (*inputs[0].shape[:-1], sum(each.shape[-1] for each in inputs))
    result = tape.new(shape, max(each.width for each in inputs))
    return tape.note(result, inputs, None, lambda g: [Tensor(one.shape, g.width, g.storage) for one in of])


# --8<-- [end:alike]


# --8<-- [start:matmul]
def weight(tape: Tape, name: object, *shape: int) -> Tensor:
    """As autocast takes it: in 16 bits, cast once."""
    found = tape.leaf(name, shape, FLOAT32 if tape.autocast else 2)
    if not tape.autocast:
        return found
    if name not in tape.copies:
        tape.copies[name] = cast(tape, found, 2)
    return tape.copies[name]


def vector(tape: Tape, name: object, *shape: int) -> Tensor:
    return tape.leaf(name, shape, FLOAT32 if tape.autocast else 2)


def linear(tape: Tape, x: Tensor, name: object, outputs: int, biased: bool = False) -> Tensor:
    """A matmul with a matrix of weights: it keeps its input."""
    x = cast(tape, x, 2) if tape.autocast else x
    matrix = weight(tape, name, outputs, x.shape[-1])
    sizes = (*x.shape[:-1], outputs), x.width
    return product(tape, x, matrix, sizes, [weight(tape, (name, "bias"), outputs)] if biased else [])


def product(
    tape: Tape, x: Tensor, y: Tensor, sizes: tuple[Sequence[int], int], biases: Sequence[Tensor] = ()
) -> Tensor:
    """Of two that both may have gradients, plus biases."""
    of = [like(each) for each in (x, y, *biases)]
    needed = [each.made is not None for each in (x, y, *biases)]
    kept = [each.storage for each, asks in ((x, needed[1]), (y, needed[0])) if asks]

    def backward(gradient: Tensor) -> Gradients:
        return [tape.new(one.shape, one.width) if asks else None for one, asks in zip(of, needed, strict=True)]

    return tape.note(sizes, [x, y, *biases], kept, backward)


# --8<-- [end:matmul]


# --8<-- [start:rows]
def rows(tape: Tape, x: Tensor, indices: Tensor, *shape: int) -> Tensor:
    """By their numbers, in another order or several times; their gradients are put among zeros, of which a copy is
    made."""
    of = like(x)

    def backward(gradient: Tensor) -> Gradients:
        zeros = tape.new(of.shape, of.width)
        return [tape.new(of.shape, of.width) if zeros else None]

    return tape.note((shape, x.width), [x], [indices.storage], backward)


def softmax(tape: Tape, x: Tensor) -> Tensor:
    """Keeps its result."""
    return apply(tape, x, keeps="result")


# --8<-- [end:rows]
