"""What a training step holds, moment by moment: a step in which every tensor is its size. Python alone.

A module is written here as its code stands, operation by operation and name by name; each operation says what it keeps
for the backward pass and what it makes there. How long a tensor lives is said, not left to Python's reference counts:

- A result is *loose*: it goes as soon as an operation has used it, as a temporary does in Python.
- `tape.bind(x)` keeps it until the function that named it ends, or until `tape.forget(x)`, which stands for Python's
  `del x`, and for a name that is bound to something else. A function names its arguments too, which may be loose.
- A function with names begins with `tape.enter()` and ends with `return tape.leave(result)`, which lets its names go.
  What somebody else has named stays.

What each operation keeps stands in PyTorch 2.13's tools/autograd/derivatives.yaml; when it lets go, and in which order
operations go backward, in torch/csrc/autograd/engine.cpp: what was made last goes first, and an operation's results are
there beside all that it kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flops_bytes.memory.adapters import Format

FLOAT32, INT64 = 4, 8  # bytes
# The lines of the answer that a storage can belong to.
OTHERS = 0  # It is of no other line; the answer calls these bytes activations.
COPIES = 1  # Autocast made it from a weight.
GRADIENTS = 2  # It is a weight's gradient.
LOGITS = 3
SENT = 4  # Another rank may still read it when PyTorch no longer needs it.
Shape = tuple[int, ...]


class Storage:
    """Bytes that are there as long as something holds them, of a line of the answer."""

    def __init__(self, nbytes: int, line: int = OTHERS) -> None:
        self.nbytes, self.line = nbytes, line
        self.use_count = 0
        self.number = -1  # of those that a tape writes down


class Tensor:
    """A shape, the bytes of an element, the storage, and the operation that made it: PyTorch's grad_fn, which is None
    if the tensor needs no gradient."""

    def __init__(self, shape: Shape, itemsize: int, storage: Storage) -> None:
        self.shape, self.itemsize, self.storage = shape, itemsize, storage
        self.grad_fn: Operation | None = None
        self.output_nr = 0  # This tensor is the operation's result of that number, as PyTorch counts them.
        self.named = False  # A name keeps it alive; without one, the first operation that uses it frees it.
        self.pinned = False  # It outlives the function that made it, as autocast's copies of weights do.
        self.is_held = True
        self.owner = 0  # The function at this depth of frames frees it when it ends.
        self.is_view = False  # A view holds its base too, so nothing may be added to this gradient in place.


class Like:
    """The gradient that an operation makes for one input: a new tensor of this size, or the gradient that came in
    (`passes_on`), or the saved tensor of number `saved_index`. With `as_view` it is a view of a tensor of another
    shape."""

    def __init__(
        self, shape: Shape, itemsize: int, passes_on: bool = False, saved_index: int = -1, as_view: bool = False
    ) -> None:
        self.shape, self.itemsize = shape, itemsize
        self.passes_on, self.saved_index, self.as_view = passes_on, saved_index, as_view

    def total_bytes(self) -> int:
        return numel(self.shape) * self.itemsize


def numel(shape: Sequence[int]) -> int:
    """Elements of a tensor of this shape."""
    found = 1
    for size in shape:
        found *= size
    return found


Edge = tuple["Operation", int]  # the operation whose result an input is, and the place among its results


class Operation:
    """A node of the autograd graph: what it saves for its backward, and the gradients that its backward makes."""

    def __init__(
        self, number: int, inputs: Sequence[Tensor], input_gradients: Sequence[Like | None], temporary_bytes: int
    ) -> None:
        self.number = number
        self.edges: list[Edge | None] = [None if x.grad_fn is None else (x.grad_fn, x.output_nr) for x in inputs]
        self.input_sizes = [Like(x.shape, x.itemsize) for x in inputs]
        self.input_gradients = input_gradients  # An input that gets no gradient has None here.
        self.temporary_bytes = temporary_bytes  # The backward kernel allocates these beside its gradients.
        # A matmul has a key of Tape.gradient_matmuls, and the FLOPs of each gradient that it makes.
        self.matmul_part, self.matmul_flops = "", 0
        self.saved: list[Storage] = []
        self.num_outputs = 1
        self.region: Region | None = None  # Checkpointing recomputes this operation with the region.
        self.moment, self.line = "", OTHERS  # Its gradients are made in this moment, and count in this line.
        self.leaf_name = ""  # Only a leaf, where gradients end, has a name.
        self.numel = 0  # Only a weight's leaf has elements, so that only its gradient counts as a weight's.
        # A leaf's gradient is kept, unless it is added to an earlier batch's, or the update takes it at once.
        self.keeps_gradient = False
        # Reentrant checkpointing runs this again in its backward.
        self.recompute_fn: Callable[[Tensor], Tensor] | None = None
        self.backward_fn: Callable[[Tape, Operation, Tensor], Tensor] | None = None  # This replaces the usual backward.


class Region:
    """A checkpointed part: only its inputs are saved, and it is recomputed when the backward pass needs what its
    operations would have saved (torch.utils.checkpoint with use_reentrant=False)."""

    def __init__(self, forward: Callable[[], Tensor], inputs: list[Storage]) -> None:
        self.forward, self.inputs = forward, inputs
        self.awaiting_saved: list[Operation] = []  # These will need, in this order, what they did not save.
        self.backward_left = 0  # When none of them is left, the region's inputs are freed.
        self.is_recomputed = False
        # Checkpointing per operation keeps these, so that their matmuls are not repeated.
        self.kept_results: list[Storage] = []


class Tape:
    """Bytes that are there now, and the most that there were."""

    def __init__(self, has_earlier_gradients: bool = False, autocast: bool = False, itemsize: int = 2) -> None:
        self.live_bytes, self.peak_bytes, self.number = 0, 0, 0
        self.line, self.live_lines = OTHERS, [0, 0, 0, 0, 0]  # New storages count in this line.
        # Lines are copied when a peak has passed, since a copy at each new maximum would be slow.
        self.peak_lines, self.is_peak = [0, 0, 0, 0, 0], False
        self.moment = ""
        # A moment that has passed has its peak here, and the lines of that peak.
        self.moments: dict[str, tuple[int, list[int]]] = {}
        self.has_earlier_gradients, self.autocast = has_earlier_gradients, autocast
        self.itemsize = itemsize  # Weights and the residual stream have elements of this many bytes.
        # Checkpointing per operation keeps attention's result and every other matmul's, as torchtitan does.
        self.keeps_products = False
        self.grad_enabled = True  # When it is off nothing is saved, as under torch.no_grad().
        self.weights_frozen = False  # With LoRA adapters alone are trained, so weights get no gradients.
        self.frames: list[list[Tensor]] = [[]]  # Each running function has here the tensors that its end frees.
        # Autocast casts a weight once, and keeps the copy until its context ends.
        self.autocast_copies: dict[str, Tensor] = {}
        self.leaves: dict[str, Operation] = {}
        self.named_leaves = 0  # Leaves are numbered downwards from -1, which tells them from operations.
        self.kept_to_end: list[Tensor] = []  # A caller has names for these, so they live until the step ends.
        self.tied: list[str] = []  # The gradients of these leaves wait for those of another use of the same weight.
        self.gradients: dict[str, Tensor] = {}  # The backward pass leaves these gradients, by leaf.
        self.region_without_saving: Region | None = None
        self.region: Region | None = None  # The operations that run now belong to it, in its first pass or recomputed.
        self.plain_matmuls = 0  # Every other one of these is kept, so the region counts them.
        self.awaiting_saved: list[Operation] = []  # The next of them to get its saved tensors stands last.
        self.is_recomputing = False  # The forward pass of a region is being repeated.
        # Matmuls with weights count in FLOPs. Attention's count in how often they run, since their FLOPs depend on the
        # mask.
        self.recomputed_matmuls = {"matrices": 0, "scores": 0, "values": 0}
        # The matmuls that make gradients are counted in the same way.
        self.gradient_matmuls = {"matrices": 0, "scores": 0, "values": 0}
        self.layer_frame = 0  # A layer's own function has this depth of frames.
        self.outer_frames = 0  # Recomputing began at this depth; an early stop ends the functions above it.
        self.stopped_early = False  # All that was needed is recomputed, so what follows takes no bytes.

    # Bytes

    def hold(self, storage: Storage) -> None:
        if self.stopped_early:
            return
        if storage.use_count == 0:
            self.live_bytes += storage.nbytes
            if storage.line != OTHERS:
                self.add_to(storage.line, storage.nbytes)
            if self.live_bytes > self.peak_bytes:
                self.peak_bytes, self.is_peak = self.live_bytes, True
        storage.use_count += 1

    def drop(self, storage: Storage) -> None:
        if self.stopped_early:
            return
        storage.use_count -= 1
        if storage.use_count == 0:
            if self.is_peak:
                self.note_peak()
            self.live_bytes -= storage.nbytes
            if storage.line != OTHERS:
                self.add_to(storage.line, -storage.nbytes)

    def add_to(self, line: int, nbytes: int) -> None:
        self.live_lines[line] = self.live_lines[line] + nbytes

    def note_peak(self) -> None:
        if self.is_peak:
            self.peak_lines, self.is_peak = list(self.live_lines), False

    def begin(self, moment: str) -> None:
        """A moment begins, with a peak of its own. The bytes that are alive now are the least that its peak can be."""
        self.note_peak()
        before = self.moments.get(self.moment)
        if before is None or before[0] < self.peak_bytes:
            self.moments[self.moment] = (self.peak_bytes, self.peak_lines)
        self.moment, self.peak_bytes, self.is_peak = moment, self.live_bytes, True

    def of_line(self, storage: Storage, line: int) -> None:
        """The storage counts in another line from now on."""
        self.note_peak()
        self.add_to(storage.line, -storage.nbytes)
        self.add_to(line, storage.nbytes)
        storage.line = line

    # Tensors and names

    def tensor(self, shape: Sequence[int], itemsize: int, storage: Storage) -> Tensor:
        """A tensor over a storage, whose bytes count from its first tensor on."""
        self.hold(storage)
        made = Tensor(tuple(shape), itemsize, storage)
        self.frame(made)
        return made

    def frame(self, x: Tensor) -> None:
        x.owner = len(self.frames)
        self.frames[-1].append(x)

    def new(self, shape: Sequence[int], itemsize: int) -> Tensor:
        return self.tensor(shape, itemsize, Storage(numel(shape) * itemsize, self.line))

    def view(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The same storage in another shape."""
        made = self.tensor(shape, x.itemsize, x.storage)
        made.grad_fn, made.output_nr = x.grad_fn, x.output_nr
        self.consume(x)
        return made

    def bind(self, x: Tensor) -> Tensor:
        """Gives the tensor a name in this function, at whose end it is freed, unless a caller has a name for it too."""
        if not x.named:
            x.named = True
            self.frame(x)
        return x

    def bind_in(self, x: Tensor, frame: int) -> Tensor:
        """Gives the tensor a name in the function at depth `frame`, which gets it as a second result."""
        x.named, x.owner = True, frame
        self.frames[frame - 1].append(x)
        return x

    def pin(self, x: Tensor) -> Tensor:
        """The tensor lives until let_go() frees it, whatever function ends."""
        x.named, x.pinned = True, True
        return x

    def keep_to_end(self, x: Tensor) -> Tensor:
        """The tensor lives until the step ends, and counts among what it leaves."""
        self.kept_to_end.append(x)
        return self.pin(x)

    def forget(self, x: Tensor) -> None:
        """This function's name is deleted, or bound to something else."""
        if x.owner == len(self.frames):
            self.let_go(x)

    def let_go(self, x: Tensor) -> None:
        if x.is_held:
            x.is_held = False
            self.drop(x.storage)

    def consume(self, x: Tensor) -> None:
        """An operation has used the tensor, which frees it if it has no name."""
        if not x.named:
            self.let_go(x)

    def enter(self) -> None:
        self.frames.append([])

    def leave(self, result: Tensor) -> Tensor:
        """A function ends, and lets its names go; its result is loose."""
        self.end([result])
        return result

    def leave_both(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a function with two results."""
        self.end([one, other])
        return one, other

    def end(self, results: Sequence[Tensor]) -> None:
        """A function ends: its names go, and its caller gets the results, loose unless it has names for them."""
        frame, names = len(self.frames), self.frames.pop()
        for x in results:
            if x.owner == frame:
                x.named = x.pinned
                self.frame(x)
        self.let_go_of(names, frame)

    def let_go_of(self, names: Sequence[Tensor], frame: int) -> None:
        for x in names:
            if x.owner == frame and not x.pinned:
                self.let_go(x)

    def leaf(self, name: str, shape: Sequence[int], itemsize: int) -> Tensor:
        """A weight, whose bytes are counted elsewhere; its gradient is held here."""
        made = self.leaf_over(name, shape, itemsize, Storage(0), not self.has_earlier_gradients or name in self.tied)
        self.leaves[name].numel = numel(shape)
        return made

    def input_leaf(self, name: str, shape: Sequence[int], itemsize: int) -> Tensor:
        """An input with a gradient; both are held here."""
        return self.leaf_over(name, shape, itemsize, Storage(numel(shape) * itemsize), True)

    def leaf_over(
        self, name: str, shape: Sequence[int], itemsize: int, storage: Storage, keeps_gradient: bool
    ) -> Tensor:
        if name not in self.leaves:
            self.named_leaves += 1
            made = Operation(-self.named_leaves, [], [], 0)
            made.leaf_name, made.keeps_gradient = name, keeps_gradient
            self.leaves[name] = made
        found = self.tensor(shape, itemsize, storage)
        found.grad_fn = self.leaves[name]
        return found

    # Operations

    def apply(
        self,
        inputs: Sequence[Tensor],
        shape: Sequence[int],
        itemsize: int,
        saved: Sequence[Tensor],
        input_gradients: Sequence[Like | None],
        temporary_bytes: int = 0,
    ) -> Tensor:
        """A new result, with the operation that made it. What it keeps of its inputs is kept before the result is
        there; `temporary_bytes` are alive beside the gradients that it makes."""
        made = self.record(inputs, saved, input_gradients, temporary_bytes)
        return self.finish(made, inputs, self.new(shape, itemsize))

    def record_product(
        self,
        inputs: Sequence[Tensor],
        saved: Sequence[Tensor],
        input_gradients: Sequence[Like | None],
        part: str,
        flops: int,
        temporary_bytes: int = 0,
    ) -> Operation | None:
        """The operation that multiplies the first two inputs."""
        made = self.record(inputs, saved, input_gradients, temporary_bytes)
        if made is not None:
            made.matmul_part = part
            made.matmul_flops = flops
        return made

    def record(
        self,
        inputs: Sequence[Tensor],
        saved: Sequence[Tensor],
        input_gradients: Sequence[Like | None],
        temporary_bytes: int = 0,
    ) -> Operation | None:
        """The operation, if one of its inputs has a gradient."""
        if not self.grad_enabled or all(x.grad_fn is None for x in inputs):
            return None
        self.number += 1
        made = Operation(self.number, inputs, input_gradients, temporary_bytes)
        made.moment, made.line = self.moment, self.line
        if saved:
            self.save(made, [x.storage for x in saved])
        return made

    def save(self, made: Operation, saved: Sequence[Storage]) -> None:
        """Saves tensors for an operation's backward. In the first pass of a checkpointed region nothing is saved; when
        the region is recomputed, they are saved for the operation of the first pass."""
        if self.region_without_saving is not None:
            made.region = self.region_without_saving
            made.region.awaiting_saved.append(made)
            made.region.backward_left += 1
            return
        asker = self.awaiting_saved.pop() if self.awaiting_saved else made
        for storage in saved:
            self.hold(storage)
            asker.saved.append(storage)
        if asker.number != made.number and not self.awaiting_saved:
            self.stop()

    def stop(self) -> None:
        """The functions that make a region again end here, as an exception ends them (torch.utils.checkpoint's early
        stop): their names go, and what they still do takes no bytes."""
        for frame in range(self.outer_frames + 1, len(self.frames) + 1):
            self.let_go_of(self.frames[frame - 1], frame)
        self.drop_autocast_copies()
        self.stopped_early = True

    def matmul_result(self, shape: Sequence[int], itemsize: int, remembered: bool, part: str, amount: int) -> Tensor:
        """The result of a matmul. Checkpointing per operation keeps one that is `remembered`, so that recomputing takes
        it from the region instead of multiplying again."""
        region = self.region
        is_kept = region is not None and remembered and self.keeps_products and not self.stopped_early
        if not is_kept or self.region_without_saving is not None:
            self.count_matmul(part, amount)
        if region is None or not is_kept:
            return self.new(shape, itemsize)
        if self.region_without_saving is None:
            storage = region.kept_results.pop()
            found = self.tensor(shape, itemsize, storage)
            self.drop(storage)
            return found
        made = self.new(shape, itemsize)
        self.hold(made.storage)
        region.kept_results.append(made.storage)
        return made

    def count_matmul(self, part: str, amount: int) -> None:
        """Counts a matmul that runs a second time: the FLOPs of one with weights, or how often one of attention's
        runs."""
        if self.is_recomputing and not self.stopped_early:
            self.recomputed_matmuls[part] = self.recomputed_matmuls[part] + amount

    def finish(self, made: Operation | None, inputs: Sequence[Tensor], result: Tensor) -> Tensor:
        """The result of an operation, whose inputs go unless they have names."""
        if made is not None:
            self.set_grad_fn(made, result)
        for x in inputs:
            self.consume(x)
        return result

    def set_grad_fn(self, made: Operation, result: Tensor) -> Tensor:
        result.grad_fn, result.output_nr = made, 0
        return result

    # Backward

    def run_backward(self, root: Operation, gradient: Tensor) -> None:
        """From an operation down to leaves, what was made last goes first. The gradient is loose.

        A leaf's gradient is done with when the last of its uses has gone backward.
        """
        below = operations_below(root)
        uses: dict[int, int] = {}
        for operation in below:
            for edge in operation.edges:
                if edge is not None:
                    uses[edge[0].number] = uses.get(edge[0].number, 0) + 1
        arrived: dict[int, list[Tensor | None]] = {root.number: [gradient]}
        self.enter()
        for operation in below:
            if operation.moment != self.moment:
                self.begin(operation.moment)
            self.line = operation.line
            found = self.backward_step(operation, arrived[operation.number])
            for edge, one in zip(operation.edges, found, strict=True):
                if edge is None or one is None:
                    continue
                to, place = edge
                if to.number not in arrived:
                    arrived[to.number] = [None] * to.num_outputs
                there = arrived[to.number]
                there[place] = self.accumulate(there[place], one)
                uses[to.number] -= 1
                if to.leaf_name and uses[to.number] == 0:
                    self.accumulate_into_leaf(to, there[0])
        self.line = OTHERS
        self.end([])

    def accumulate(self, before: Tensor | None, one: Tensor) -> Tensor:
        """Where two gradients meet, the second is added to the first in place, if nothing else holds that; else a third
        is made of them (InputBuffer::accumulate in torch/csrc/autograd/input_buffer.cpp)."""
        if before is None:
            return one
        if before.storage.use_count == 1 and not before.is_view:
            self.let_go(one)
            return before
        both = self.new(one.shape, one.itemsize)
        self.let_go(before)
        self.let_go(one)
        return both

    def accumulate_into_leaf(self, leaf: Operation, gradient: Tensor | None) -> None:
        """A leaf's gradient stays, or is added to one that is there and goes."""
        if gradient is not None and leaf.keeps_gradient and leaf.leaf_name not in self.gradients:
            self.gradients[leaf.leaf_name] = self.pin(gradient)
            if leaf.numel:
                self.of_line(gradient.storage, GRADIENTS)
        elif gradient is not None:
            self.let_go(gradient)

    def pop_gradient(self, name: str) -> Tensor:
        """The gradient of a leaf, which is forgotten."""
        found = self.gradients[name]
        self.gradients = {one: each for one, each in self.gradients.items() if one != name}
        self.leaves = {one: each for one, each in self.leaves.items() if one != name}
        return found

    def let_go_gradients(self, names: Sequence[str]) -> None:
        """Frees the gradients of leaves that are slices of a tensor, once they are joined."""
        for name in names:
            self.let_go(self.gradients[name])
        self.gradients = {name: each for name, each in self.gradients.items() if name not in names}

    def backward_step(self, operation: Operation, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Runs an operation's backward. Its gradients are alive beside what it saved, which is freed afterwards."""
        region = operation.region
        if operation.backward_fn is not None:
            gradient = gradients[0]
            assert gradient is not None
            return [operation.backward_fn(self, operation, gradient)]
        if region is not None and not region.is_recomputed:
            self.recompute(region)
        if operation.matmul_flops:
            made_of = sum([operation.matmul_flops for edge in operation.edges[:2] if edge is not None])
            self.gradient_matmuls[operation.matmul_part] = self.gradient_matmuls[operation.matmul_part] + made_of
        temporary = Storage(operation.temporary_bytes, operation.line)
        self.hold(temporary)
        found: list[Tensor | None] = [None for _ in operation.edges]
        places = list(range(len(operation.edges)))
        # PyTorch writes a product's backward by its inputs' names, sorted: mat2 and self; but mat1, mat2 and self.
        for place in reversed(places) if operation.matmul_flops and len(places) == 2 else places:
            made, edge = operation.input_gradients[place], operation.edges[place]
            if made is None or edge is None:
                continue
            if made.passes_on:
                came = gradients[0]
                assert came is not None
                found[place] = self.tensor(made.shape, came.itemsize, came.storage)
            elif made.saved_index >= 0:
                found[place] = self.tensor(made.shape, made.itemsize, operation.saved[made.saved_index])
            else:
                fresh = self.new(made.shape, made.itemsize)
                fresh.is_view = made.as_view
                found[place] = fresh
        self.drop(temporary)
        if region is not None:
            self.release_saved(operation)  # A recomputed tensor is freed once it has been unpacked.
        fitted = [
            None if one is None else self.validated(one, size)
            for one, size in zip(found, operation.input_sizes, strict=True)
        ]
        for one in gradients:
            if one is not None:
                self.let_go(one)
        self.release_saved(operation)
        if region is not None:
            operation.region = None
            region.backward_left -= 1
            if region.backward_left == 0:
                for storage in (*region.inputs, *region.kept_results):
                    self.drop(storage)
        return fitted

    def validated(self, gradient: Tensor, size: Like) -> Tensor:
        """A gradient summed to its input's shape, and cast to its type (engine.cpp's validate_outputs)."""
        if numel(gradient.shape) != numel(size.shape):
            summed = self.new(size.shape, gradient.itemsize)
            self.let_go(gradient)
            gradient = summed
        if gradient.itemsize != size.itemsize:
            narrow = self.new(size.shape, size.itemsize)
            self.let_go(gradient)
            gradient = narrow
        return gradient

    def release_saved(self, operation: Operation) -> None:
        for storage in operation.saved:
            self.drop(storage)
        operation.saved = []

    def recompute(self, region: Region) -> None:
        """Recomputes a region up to the last tensor that its backward needs. Autocast casts the weights again."""
        copies = self.swap_autocast_copies({})
        self.awaiting_saved, self.outer_frames = list(reversed(region.awaiting_saved)), len(self.frames)
        region.is_recomputed, region.kept_results = True, list(reversed(region.kept_results))
        self.region = region
        self.plain_matmuls, self.is_recomputing = 0, True
        self.enter()
        region.forward()
        self.end([])
        self.region = None
        self.stopped_early, self.is_recomputing = False, False
        self.autocast_copies = copies

    def swap_autocast_copies(self, copies: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replaces autocast's copies, and gives those that were there."""
        before, self.autocast_copies = self.autocast_copies, copies
        return before

    def drop_autocast_copies(self) -> None:
        """Autocast's context ends."""
        for copy in self.autocast_copies.values():
            self.let_go(copy)
        self.autocast_copies = {}

    def checkpoint(self, make: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Tensor:
        """Runs a part of which only the inputs are saved (torch.utils.checkpoint, use_reentrant=False)."""
        region = Region(make, [x.storage for x in inputs])
        for storage in region.inputs:
            self.hold(storage)
        self.region_without_saving, self.region, self.plain_matmuls = region, region, 0
        result = make()
        self.region_without_saving, self.region = None, None
        return result


def reentrant_checkpoint(tape: Tape, make: Callable[[Tensor], Tensor], x: Tensor, others: Sequence[Tensor]) -> Tensor:
    """Runs a part under torch.utils.checkpoint with use_reentrant=True: without gradients, so that nothing is saved
    but its inputs, `others` among them."""
    tape.grad_enabled = False
    result = make(x)
    tape.grad_enabled = True
    tape.number += 1
    made = Operation(tape.number, [x], [like(x)], 0)
    made.moment = tape.moment
    made.recompute_fn = make
    made.backward_fn = reentrant_backward
    for each in (x, *others):
        tape.hold(each.storage)
        made.saved.append(each.storage)
    return tape.set_grad_fn(made, result)


def reentrant_backward(tape: Tape, operation: Operation, gradient: Tensor) -> Tensor:
    """The backward of reentrant checkpointing: the part runs again, from its input as a new leaf, and then backward.
    CheckpointFunction.backward() has names for the result and its gradient until it ends."""
    assert operation.recompute_fn is not None
    size, copies, name = operation.input_sizes[0], tape.swap_autocast_copies({}), f"input {operation.number}"
    tape.enter()
    x = tape.bind(tape.leaf_over(name, size.shape, size.itemsize, operation.saved[0], True))
    tape.is_recomputing = True
    result = tape.bind(operation.recompute_fn(x))
    tape.is_recomputing = False
    tape.drop_autocast_copies()
    tape.swap_autocast_copies(copies)
    assert result.grad_fn is not None
    tape.run_backward(result.grad_fn, tape.tensor(gradient.shape, gradient.itemsize, gradient.storage))
    found = tape.pop_gradient(name)
    tape.end([])
    tape.let_go(gradient)
    tape.release_saved(operation)
    return found


def operations_below(root: Operation) -> list[Operation]:
    """The operations that a gradient of this one's result reaches, without leaves: what was made last comes first."""
    found = {root.number: root}
    waiting = [root]
    while waiting:
        for edge in waiting.pop().edges:
            if edge is not None and not edge[0].leaf_name and edge[0].number not in found:
                found[edge[0].number] = edge[0]
                waiting.append(edge[0])
    return [found[number] for number in reversed(sorted(found))]


def like(x: Tensor) -> Like:
    """The input's gradient is a new tensor of its size."""
    return Like(x.shape, x.itemsize)


def passed_on(x: Tensor) -> Like:
    """The input's gradient is the one that came in, unchanged."""
    return Like(x.shape, x.itemsize, passes_on=True)


def cast(tape: Tape, x: Tensor, itemsize: int) -> Tensor:
    """To another type."""
    return x if x.itemsize == itemsize else tape.apply([x], x.shape, itemsize, [], [like(x)])


def contiguous(tape: Tape, x: Tensor) -> Tensor:
    """In another order in memory, and so is its gradient."""
    return tape.apply([x], x.shape, x.itemsize, [], [like(x)])


def reordered(tape: Tape, x: Tensor) -> Tensor:
    """A view in another order, whose gradient is copied."""
    made = tape.record([x], [], [like(x)])
    return tape.finish(made, [x], tape.tensor(x.shape, x.itemsize, x.storage))


def multiply_scalar(tape: Tape, x: Tensor) -> Tensor:
    """Multiplies by a number: result and gradient are each a new tensor."""
    return tape.apply([x], x.shape, x.itemsize, [], [like(x)])


def add_scalar(tape: Tape, x: Tensor) -> Tensor:
    """Adds a number, so that the gradient passes through unchanged."""
    return tape.apply([x], x.shape, x.itemsize, [], [passed_on(x)])


def add(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    shape, itemsize = larger(x, y), max(x.itemsize, y.itemsize)
    of_both = Like(shape, itemsize, passes_on=True)
    return tape.apply([x, y], shape, itemsize, [], [of_both, of_both])


def larger(x: Tensor, y: Tensor) -> Shape:
    of_x, of_y = (numel(x.shape), len(x.shape)), (numel(y.shape), len(y.shape))
    return x.shape if of_x >= of_y else y.shape


def multiply(tape: Tape, x: Tensor, y: Tensor) -> Tensor:
    """An elementwise product, which saves each factor if the other needs a gradient."""
    shape, itemsize = larger(x, y), max(x.itemsize, y.itemsize)
    return tape.apply([x, y], shape, itemsize, saved_factors(x, y), [Like(shape, itemsize), Like(shape, itemsize)])


def saved_factors(x: Tensor, y: Tensor) -> list[Tensor]:
    """The factors that a product saves: each is needed for the other's gradient."""
    of_y, of_x = [x] if y.grad_fn is not None else [], [y] if x.grad_fn is not None else []
    return of_y + of_x


def apply_saving_input(tape: Tape, x: Tensor, temporaries: int = 0) -> Tensor:
    """A function of each number, such as SiLU, that keeps its input; its backward has so many more of that size."""
    return tape.apply([x], x.shape, x.itemsize, [x], [like(x)], temporaries * like(x).total_bytes())


def apply_saving_output(tape: Tape, x: Tensor, temporaries: int = 0) -> Tensor:
    """A function of each number that keeps its result."""
    result = tape.new(x.shape, x.itemsize)
    made = tape.record([x], [result], [like(x)], temporaries * like(x).total_bytes())
    return tape.finish(made, [x], result)


def softmax(tape: Tape, x: Tensor) -> Tensor:
    """Keeps its result. Backward, CUDA's kernel multiplies it by its gradient first, into a tensor of its own
    (softmax_backward_cuda_out in aten/src/ATen/native/cuda/SoftMax.cu)."""
    return apply_saving_output(tape, x, temporaries=1)


def dropout(tape: Tape, x: Tensor) -> Tensor:
    """Dropout, which keeps a byte a number."""
    result, mask = tape.new(x.shape, x.itemsize), tape.new(x.shape, 1)
    made = tape.record([x], [mask], [like(x)])
    tape.let_go(mask)
    return tape.finish(made, [x], result)


def slice_of(tape: Tape, x: Tensor, shape: Sequence[int]) -> Tensor:
    """A slice, which is a view. Its gradient is as large as all of x, zero outside the slice."""
    made = tape.record([x], [], [like(x)])
    return tape.finish(made, [x], tape.tensor(shape, x.itemsize, x.storage))


def split(tape: Tape, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """torch.split along the last dimension: views, whose gradients are joined in one tensor."""
    made = tape.record([x], [], [like(x)])
    found = [tape.tensor((*x.shape[:-1], size), x.itemsize, x.storage) for size in sizes]
    for place, one in enumerate(found):
        one.grad_fn, one.output_nr = made, place
    if made is not None:
        made.num_outputs = len(sizes)
    tape.consume(x)
    return found


def concatenate(tape: Tape, inputs: Sequence[Tensor]) -> Tensor:
    """Along the last dimension; their gradients are views of one."""
    shape = (*inputs[0].shape[:-1], sum(x.shape[-1] for x in inputs))
    return tape.apply(inputs, shape, max(x.itemsize for x in inputs), [], [passed_on(x) for x in inputs])


def weight(tape: Tape, name: str, shape: Sequence[int]) -> Tensor:
    """As autocast takes it: in 16 bits, cast once if it is trained, and for each use if it is frozen."""
    found = vector(tape, name, shape)
    if not tape.autocast:
        return found
    return cast_weight(tape, found) if tape.weights_frozen else autocast_copy(tape, name, found)


def cast_weight(tape: Tape, x: Tensor) -> Tensor:
    made = tape.record([x], [], [like(x)])
    return tape.finish(made, [x], tape.tensor(x.shape, 2, Storage(2 * numel(x.shape), COPIES)))


def autocast_input(tape: Tape, x: Tensor) -> Tensor:
    """As autocast casts it: anew for each matmul, but once if it has no past, which the input of a part has that
    reentrant checkpointing makes again."""
    if not tape.autocast:
        return x
    if x.itemsize == FLOAT32 and x.grad_fn is not None and x.grad_fn.leaf_name[:5] == "input":
        return autocast_copy(tape, x.grad_fn.leaf_name, x)
    return cast(tape, x, 2)


def autocast_copy(tape: Tape, name: str, x: Tensor) -> Tensor:
    """Autocast's 16-bit copy of a weight, which is made once in a context."""
    if name not in tape.autocast_copies:
        tape.autocast_copies[name] = tape.pin(cast_weight(tape, x))
    return tape.autocast_copies[name]


def vector(tape: Tape, name: str, shape: Sequence[int]) -> Tensor:
    itemsize = tape.itemsize
    return tape.tensor(shape, itemsize, Storage(0)) if tape.weights_frozen else tape.leaf(name, shape, itemsize)


def linear(tape: Tape, x: Tensor, name: str, outputs: int, biased: bool = False) -> Tensor:
    """A matmul with a matrix of weights: it keeps its input."""
    x = autocast_input(tape, x)
    matrix = weight(tape, name, (outputs, x.shape[-1]))
    inputs = [x, matrix, weight(tape, f"{name}.bias", (outputs,))] if biased else [x, matrix]
    return weight_matmul(tape, inputs, (*x.shape[:-1], outputs), is_remembered(tape, biased))


def is_remembered(tape: Tape, biased: bool = False) -> bool:
    """Whether checkpointing per operation keeps a matmul's result: as torchtitan does, but of every second `mm`, which
    a linear layer is that adds no biases."""
    if biased:
        return True
    tape.plain_matmuls += 1
    return tape.plain_matmuls % 2 == 1


def attention_matmul(tape: Tape, x: Tensor, y: Tensor, shape: Sequence[int], part: str) -> Tensor:
    """One of attention's two matmuls, whose factors both need gradients."""
    made = tape.record_product([x, y], saved_factors(x, y), [like(x), like(y)], part, 1)
    return tape.finish(made, [x, y], tape.matmul_result(shape, x.itemsize, True, part, 1))


def weight_matmul(tape: Tape, inputs: Sequence[Tensor], shape: Sequence[int], remembered: bool) -> Tensor:
    """A matmul of the first two, plus biases, with a matrix of weights, or one for each expert."""
    x, y = inputs[0], inputs[1]
    # The matmul flattens batch and tokens, so the gradient is a view.
    of_x = Like(x.shape, x.itemsize, as_view=len(x.shape) > 2)
    of_y = Like(y.shape, y.itemsize, as_view=True)  # The matrix is transposed, so its gradient is a view too.
    flops, makes = flops_of(x, shape), [of_x, of_y, *[like(each) for each in inputs[2:]]]
    made = tape.record_product(inputs, saved_factors(x, y), makes, "matrices", flops)
    return tape.finish(made, inputs, tape.matmul_result(shape, x.itemsize, remembered, "matrices", flops))


def flops_of(x: Tensor, shape: Sequence[int]) -> int:
    """FLOPs of a product of x, (…, K), with a matrix whose rows or columns are shape[-1]."""
    return 2 * numel(x.shape) * shape[-1]


def dequantized_linear(tape: Tape, x: Tensor, outputs: int) -> Tensor:
    """A matmul with a frozen matrix in few bits."""
    x = autocast_input(tape, x)
    matrix = Like((outputs, x.shape[-1]), x.itemsize)
    return dequantized_matmul(tape, x, (*x.shape[:-1], outputs), matrix, is_remembered(tape))


def dequantized_matmul(tape: Tape, x: Tensor, shape: Sequence[int], matrix: Like, remembered: bool) -> Tensor:
    """A matmul whose matrix is dequantized for it, forward and backward (bitsandbytes)."""
    tape.enter()
    unpacked = tape.bind(tape.new(matrix.shape, matrix.itemsize))
    flops = flops_of(x, shape)
    made = tape.record_product([x], [], [like(x)], "matrices", flops, matrix.total_bytes())
    result = tape.matmul_result(shape, x.itemsize, remembered, "matrices", flops)
    result = tape.finish(made, [x], result)
    tape.forget(unpacked)
    return tape.leave(result)


def low_precision_linear(tape: Tape, x: Tensor, name: str, outputs: int, form: Format, biased: bool = False) -> Tensor:
    """A matmul of copies in few bits, each made in one kernel. Its factors are kept in 16 bits and copied again, as
    torchao's function does, which has names for all four copies until it ends; or the copies are kept."""
    matrix = weight(tape, name, (outputs, x.shape[-1]))
    of_x, of_matrix, of_result = numel(x.shape), numel(matrix.shape), numel(x.shape[:-1]) * outputs
    turned = 2 * of_result + (0 if form.peak == "float4" else of_x + of_matrix)
    tape.enter()
    copies = [tape.bind(tape.new((form.bits * numbers // 32,), 1)) for numbers in (of_x, of_matrix)]
    kept = copies if form.keeps_copies else [x, matrix]
    shape = (*x.shape[:-1], outputs)
    flops, temporary = flops_of(x, shape), form.bits * turned // 32
    # An autograd.Function saves its tensors after it has run, so recomputing stops only after its result is made.
    result = tape.matmul_result(shape, x.itemsize, is_remembered(tape), "matrices", flops)
    made = tape.record_product([x, matrix], kept, [like(x), like(matrix)], "matrices", flops, temporary)
    result = tape.leave(tape.finish(made, [x, matrix], result))
    return add(tape, result, weight(tape, f"{name}.bias", (outputs,))) if biased else result


def adapter_matmul(tape: Tape, x: Tensor, matrix: Tensor) -> Tensor:
    """A matmul with one of an adapter's matrices, which autocast casts, once if it is the weight itself."""
    x = autocast_input(tape, x)
    if tape.autocast and matrix.itemsize == FLOAT32 and matrix.grad_fn is not None:
        matrix = autocast_copy(tape, matrix.grad_fn.leaf_name, matrix)
    return weight_matmul(tape, [x, matrix], (*x.shape[:-1], matrix.shape[0]), is_remembered(tape))


def index_select(tape: Tape, x: Tensor, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """Rows by their indices, in another order or several times. Backward they are added into zeros, of which PyTorch
    makes a copy."""
    made = tape.record([x], [indices], [like(x)], like(x).total_bytes())
    return tape.finish(made, [x, indices], tape.new(shape, x.itemsize))
