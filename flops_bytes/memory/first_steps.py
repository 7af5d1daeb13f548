"""A training run from its load to its second step, storage by storage, as the allocator of its GPU sees it.

Two steps, since the optimizer's state is made in the first, in the holes that its backward pass has left: the second is
as all that follow. Where storages lie, and what is reserved for them, flops_bytes.memory.allocator says. Python alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from flops_bytes.memory.adapters import CONSTANTS
from flops_bytes.memory.allocator import MIB, Allocator, OutOfMemory, Settings, downwards
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.layers import ModelFamily
from flops_bytes.memory.passes import LINES, Part, Pass, between_passes, record_pass, trained_numbers
from flops_bytes.memory.step import StepConfig
from flops_bytes.memory.tape import FLOAT32, INT64
from flops_bytes.model.stack import Stack

COMPUTE, GATHER, REDUCE = 0, 1, 2  # streams: what one has freed, no other can have
WORKSPACE = "workspace"  # a line that is taken once and stays
BUCKET_BYTES = 25 * MIB  # torch.nn.parallel.DistributedDataParallel, bucket_cap_mb


class Sharding(NamedTuple):
    """What the GPUs of a group share, as PyTorch's fully_shard does it."""

    gpus: int
    gathers: bool  # Weights are gathered unit by unit: each layer is a unit, and all that is in no layer is one.
    reduces: bool  # A unit's whole gradients are summed over the GPUs, and each keeps its share.
    flat: bool = False  # A unit is one tensor, as in FSDP 1; else each tensor is sharded by itself.
    holds_inputs: bool = False  # FSDP 1's hooks hold inputs of reentrantly checkpointed layers to the pass's end.
    gathered_layer_itemsize: float = 2  # Bytes of a parameter of a layer that is gathered.
    itemsize: int = 2  # Bytes of a parameter that is gathered outside of layers, and of a gradient that is sent.
    share_itemsize: int = 4  # Bytes of a gradient in the share that stays.
    shares_stay: bool = True  # The GPU keeps its share until the update; else the host takes it at once.


class Run(NamedTuple):
    """What is trained, and how. State is what the GPU holds of it."""

    stack: Stack
    family: ModelFamily
    config: StepConfig
    state: Mapping[str, int]  # bytes by line: weights, adapters, master, optimizer
    update_bytes: int  # The update takes these temporaries beside gradients and state.
    lengths: Sequence[Sequence[int]] = ()  # tokens of the sequences of each micro-batch, step by step
    base: str = "as-recipe"
    sharding: Sharding = Sharding(1, gathers=False, reduces=False)
    bucket_bytes: int = 0  # DDP's buckets hold copies of gradients, for the whole run.
    constant_bytes: int = 0  # Bytes that are there all the time, and belong to no tensor that is written here.
    workspace_bytes: int = 0  # of cuBLAS, for each of two threads
    beside: Mapping[str, int] = {}  # The same by moment: bytes that are there then, of no tensor that is written here.


class Steps(NamedTuple):
    """What all storages of a run do, in order."""

    changes: list[tuple[int, int, int]]  # a storage; bytes that it takes or, negative, gives back; its stream
    parts: list[tuple[int, str]]  # from which change on: "step 2, backward, layer 3"
    lines: list[str]  # of each storage
    peaks: dict[str, int]  # the most that is there at each moment of the last step
    ends: list[int]  # after which change a step has ended
    are_alike: bool = True  # so that the last step does what all that follow do


def moment_of_part(part: Part, depth: int) -> str:
    """The moment of flops_bytes.memory.step in which it falls; of a layer between the last and the first its name."""
    if not part.is_backward:
        return "forward"
    if part.name in ("loss", "head", "embedding"):
        return part.name
    if part.name in ("norm", f"layer {depth - 1}"):
        return "last_layer"
    return "first_layer" if part.name == "layer 0" else part.name


def unit_of(name: str) -> str:
    """The unit that a tensor or a part belongs to: its layer, or the root."""
    return name.partition(".")[0] if name[:6] == "layer " else "root"


class Writer:
    """Writes down what storages do."""

    def __init__(self, run: Run, trained: Mapping[str, int], weights: Mapping[str, int]) -> None:
        self.run, self.depth = run, run.stack.depth
        self.changes: list[tuple[int, int, int]] = []
        self.parts: list[tuple[int, str]] = []
        self.lines: list[str] = []
        self.sizes: list[int] = []
        self.streams: list[int] = []
        self.live_bytes = 0
        self.peaks: dict[str, int] = {}
        self.moment = ""
        self.step = 0
        self.passes: dict[tuple[int, int], Pass] = {}  # by tokens, and whether gradients are there already
        self.between: dict[int, tuple[int, int, list[Pass]]] = {}  # shortest, longest, and both passes, if these tell
        self.trained, self.weights = trained, weights  # numbers of tensors, by their names
        self.total = sum(self.trained.values())
        self.has_state = False
        self.workspaces = 0  # that are there
        self.gradients: dict[str, int] = {}  # storages, by the tensor's name
        self.shards: dict[str, int] = {}  # storages of what is left of a unit's gradients, by the unit
        self.gathered: dict[str, list[int]] = {}  # storages by unit
        self.gathered_sizes: dict[str, list[int]] = {}  # bytes of these, by unit
        for name, numbers in weights.items():
            unit, sharding = unit_of(name), run.sharding
            width = sharding.itemsize if unit == "root" else sharding.gathered_layer_itemsize
            self.gathered_sizes.setdefault(unit, []).append(int(width * numbers))
        self.waiting: list[int] = []  # storages of what another stream still reads
        self.sent = -1  # the storage of gradients that are being reduced
        self.beside: list[int] = []  # storages of what is there, and the run says no more of it

    def take(self, line: str, nbytes: int, stream: int = COMPUTE) -> int:
        """The number of a new storage, or -1 for nothing."""
        if nbytes <= 0:
            return -1
        number = len(self.sizes)
        self.lines.append(line)
        self.sizes.append(nbytes)
        self.streams.append(stream)
        self.changes.append((number, nbytes, stream))
        self.live_bytes += nbytes
        if self.live_bytes > self.peaks.get(self.moment, 0):
            self.peaks[self.moment] = self.live_bytes
        return number

    def give(self, number: int) -> None:
        if number >= 0:
            self.changes.append((number, -self.sizes[number], self.streams[number]))
            self.live_bytes -= self.sizes[number]

    def mark(self, moment: str, told: str) -> None:
        """A moment begins."""
        self.parts.append((len(self.changes), told))
        self.moment = moment
        self.peaks[moment] = max(self.peaks.get(moment, 0), self.live_bytes)

    def keep_beside(self, nbytes: int) -> None:
        """As many bytes are there from now on, of which the run says no more: pieces come, and the last ones go."""
        there = sum([self.sizes[number] for number in self.beside])
        while self.beside and there - self.sizes[self.beside[-1]] >= nbytes:
            there -= self.sizes[self.beside[-1]]
            self.give(self.beside.pop())
        if there < nbytes:
            self.beside.append(self.take("beside", nbytes - there))

    def bytes_beside(self, part: Part) -> int:
        """What a layer has of it grows from layer to layer, from nothing to what the moments say."""
        beside, depth = self.run.beside, self.depth
        ahead, last, first = (beside.get(moment, 0) for moment in ("forward", "last_layer", "first_layer"))
        if part.name[:6] == "layer ":
            layer = int(part.name[6:])
            if not part.is_backward:
                return ahead * (layer + 1) // depth
            return last + (first - last) * (depth - 1 - layer) // max(1, depth - 1)
        if not part.is_backward:
            return 0 if part.name == "embedding" else ahead
        return beside.get({"norm": "last_layer"}.get(part.name, part.name), 0)

    # What is there all the time

    def load(self) -> None:
        run = self.run
        self.mark("load", "load")
        self.load_weights()
        for line in ("adapters", "master"):
            self.split(line, run.state.get(line, 0))
        for nbytes in self.buckets():
            self.take("reduced", nbytes)
        self.take("beside", run.constant_bytes)

    def buckets(self) -> Iterator[int]:
        """Bytes of each bucket: gradients of whole tensors, the last ones first, until it is full."""
        least, held = MIB, 0  # The first is full earlier.
        for numbers in reversed([*self.trained.values()]):
            held += self.run.bucket_bytes * numbers // self.total
            if held >= least:
                yield held
                least, held = BUCKET_BYTES, 0
        yield held

    def load_weights(self) -> None:
        """Tensor by tensor; what becomes 4 bits is there in the recipe's format before."""
        run, state, whole = self.run, self.run.state.get("weights", 0), self.weights
        packed = {name for name, numbers in whole.items() if self.is_packed(name, numbers)}
        width = RECIPES[run.config.recipe].weights
        total = sum(whole.values())
        in_few_bits = sum([whole[name] for name in packed])
        packed_bytes = max(0, state - width * (total - in_few_bits) // run.sharding.gpus) if packed else 0
        for name, numbers in whole.items():
            if name in packed:
                wide = self.take("weights", width * numbers) if run.sharding.gpus == 1 else -1
                of_tensor = packed_bytes * numbers // in_few_bits
                codes = min(of_tensor, numbers // 2 // run.sharding.gpus)
                self.take("weights", codes)
                self.take("weights", of_tensor - codes)
                self.give(wide)
            else:
                self.take("weights", (state - packed_bytes) * numbers // (total - in_few_bits))

    def is_packed(self, name: str, numbers: int) -> bool:
        is_matrix = numbers >= 64 * self.run.stack.d_model and "router" not in name
        return self.run.base in CONSTANTS and name[:6] == "layer " and is_matrix

    def split(self, line: str, nbytes: int, pieces: int = 1) -> list[int]:
        """Bytes that belong to what is trained, in so many tensors for each of its."""
        return [
            self.take(line, nbytes * numbers // self.total // pieces)
            for numbers in self.trained.values()
            for _ in range(pieces)
        ]

    # A pass

    def go(self, seq_len: int, is_first: bool) -> None:
        """A micro-batch forward and backward: the first of its step, or one whose gradients are added."""
        run = self.run
        reduces = run.sharding.reduces
        found = self.pass_of(seq_len, int(not is_first and not reduces))
        batch = [self.take("batch", INT64 * run.config.batch * seq_len) for _ in range(2)]
        here: list[int] = [-1] * len(found.lines)
        self.play(found, here, 0, len(found.changes))
        if reduces:
            self.end_of_units()
        elif is_first:
            self.gradients = {name: here[storage] for name, storage in found.gradients.items()}
        for number in batch:
            self.give(number)

    def play(self, found: Pass, here: list[int], start: int, end: int) -> None:
        """Changes of a pass, from one to before another; `here` are the numbers of its storages."""
        run = self.run
        whole = {storage: name for name, storage in found.gradients.items()} if run.sharding.reduces else {}
        unit, part, arrival = "", 0, 0
        while part < len(found.parts) and found.parts[part].start < start:
            part += 1
        for place in range(start, end):
            storage, nbytes = found.changes[place]
            while part < len(found.parts) and found.parts[part].start == place:
                unit = self.turn(found.parts[part], unit)
                part += 1
            while arrival < len(found.arrivals) and found.arrivals[arrival][0] == place:
                self.make_state_of(found.arrivals[arrival][1])
                arrival += 1
            if self.workspaces < len(found.products) and found.products[self.workspaces] == place:
                self.take(WORKSPACE, run.workspace_bytes)
                self.workspaces += 1
            if nbytes > 0:
                here[storage] = self.take(LINES[found.lines[storage]], nbytes)
                if storage in whole:
                    self.gradients[whole[storage]] = here[storage]
            else:
                self.give(here[storage])

    def pass_of(self, seq_len: int, accumulated: int) -> Pass:
        """As it was recorded; of a length between the shortest and the longest as these two say, if they do."""
        between = self.between.get(accumulated)
        if between is None:
            lengths = [length for micro_batches in self.run.lengths for length in micro_batches]
            low, high = min(lengths), max(lengths)
            ends = [self.recorded(low, accumulated), self.recorded(high, accumulated)]
            if high > low + 1:
                middle = (low + high) // 2
                says = between_passes(ends[0], ends[1], middle - low, high - low)
                ends = ends if says == self.recorded(middle, accumulated) else []
            between = (low, high, ends)
            self.between[accumulated] = between
        low, high, ends = between
        if seq_len in (low, high) or not ends:
            return self.recorded(seq_len, accumulated)
        found = between_passes(ends[0], ends[1], seq_len - low, high - low)
        return self.recorded(seq_len, accumulated) if found is None else found

    def recorded(self, seq_len: int, accumulated: int) -> Pass:
        run = self.run
        if (seq_len, accumulated) not in self.passes:
            config = run.config._replace(seq_len=seq_len, accumulated=accumulated > 0)
            self.passes[seq_len, accumulated] = record_pass(run.stack, run.family, config, run.sharding.holds_inputs)
        return self.passes[seq_len, accumulated]

    def turn(self, part: Part, unit: str) -> str:
        """Another part begins: its unit."""
        direction = "backward" if part.is_backward else "forward"
        self.mark(moment_of_part(part, self.depth), f"step {self.step}, {direction}, {part.name}")
        self.keep_beside(self.bytes_beside(part))
        now = unit_of(part.name)
        if now == unit:
            return unit
        if self.run.sharding.gathers:
            self.gather(now)
        if unit != "root" and unit:
            is_last = unit == f"layer {self.depth - 1}"
            if part.is_backward or not is_last:
                self.free_unit(unit)
            if part.is_backward and self.run.sharding.reduces:
                self.reduce(unit)
        if part.is_backward and now != "root" and now != "layer 0" and self.run.sharding.gathers:
            self.gather(f"layer {int(now[6:]) - 1}")
        return now

    # Sharding

    def gather(self, unit: str) -> None:
        """Gathers a unit's weights, into the tensors that are multiplied; as one tensor, these are its pieces."""
        if unit in self.gathered:
            return
        sharding = self.run.sharding
        sizes = self.gathered_sizes[unit]
        if sharding.flat:
            while len(self.waiting) > 1:
                self.give(self.waiting.pop(0))
            self.gathered[unit] = [self.take("gathered", sum(sizes), GATHER)]
            return
        received = self.take("gathered", sum(sizes), GATHER)
        for number in self.waiting:
            self.give(number)
        self.gathered[unit] = [self.take("gathered", size) for size in sizes]
        self.waiting = [received]

    def free_unit(self, unit: str) -> None:
        for number in self.gathered.pop(unit, []):
            if self.run.sharding.flat:
                self.waiting.append(number)
            else:
                self.give(number)

    def reduce(self, unit: str) -> None:
        """The gradients of a unit are copied into one tensor, and of their sum a share stays."""
        mine = [name for name in self.gradients if unit_of(name) == unit]
        if not mine:
            return
        numbers, run = sum([self.trained[name] for name in mine]), self.run
        width = FLOAT32 if run.config.adapters else run.sharding.itemsize
        self.give(self.sent)
        self.sent = self.take("reduced", width * numbers)
        for name in mine:
            self.give(self.gradients.pop(name))
        share = self.take("gradients", -(-run.sharding.share_itemsize * numbers // run.sharding.gpus), REDUCE)
        if unit in self.shards or not run.sharding.shares_stay:
            self.give(share)
        else:
            self.shards[unit] = share

    def end_of_units(self) -> None:
        """The backward pass has ended, and with it what was gathered and sent."""
        for unit in list(self.gathered):
            self.free_unit(unit)
        for unit in ("layer 0", "root"):
            self.reduce(unit)
        for number in [*self.waiting, self.sent]:
            self.give(number)
        self.waiting, self.sent = [], -1

    # Between steps

    def start_step(self) -> None:
        self.step += 1
        self.peaks = {}

    def make_state_of(self, name: str) -> None:
        """The moments of one tensor, when it is updated for the first time."""
        if self.has_state:
            return
        share = self.run.state.get("optimizer", 0) * self.trained[name] // self.total
        for _ in range(2):
            self.take("optimizer", share // 2)

    def finish_step(self) -> None:
        run = self.run
        self.mark("update", f"step {self.step}, update")
        self.keep_beside(run.beside.get("update", 0))
        recipe = RECIPES["fp32" if run.config.adapters else run.config.recipe]
        casts: list[int] = []
        if not run.config.in_backward:
            if recipe.master and run.state.get("master", 0):
                shards = run.sharding.gpus if run.sharding.reduces else 1
                for name, numbers in self.trained.items():
                    casts.append(self.take("gradients", -(-recipe.master * numbers // shards)))
                    self.give(self.gradients.get(name, -1))
                self.gradients = {}
            if not self.has_state:
                self.split("optimizer", run.state.get("optimizer", 0), 2)
        if run.config.update == "foreach":
            pieces = self.split("temporaries", run.update_bytes)
        else:
            pieces = [self.take("temporaries", run.update_bytes)]
        for number in [*pieces, *casts, *self.gradients.values(), *self.shards.values()]:
            self.give(number)
        self.gradients, self.shards = {}, {}
        self.has_state = True


def written(run: Run) -> Steps:
    """All changes of a run. Not for a kind that flops_bytes.memory.step does not derive."""
    trained = trained_numbers(run.stack, run.family, run.config)
    whole = run.config._replace(adapters=None)
    weights = trained_numbers(run.stack, run.family, whole) if run.config.adapters else trained
    writer, ends = Writer(run, trained, weights), list[int]()
    writer.load()
    for micro_batches in run.lengths:
        writer.start_step()
        for place, seq_len in enumerate(micro_batches):
            writer.go(seq_len, place == 0)
        writer.finish_step()
        ends.append(len(writer.changes))
    return Steps(writer.changes, writer.parts, writer.lines, writer.peaks, ends)


class Replay(NamedTuple):
    """What an allocator does with the steps of a run."""

    allocated_bytes: int  # the most that was; of a run that died, what was there then
    reserved_bytes: int  # the same
    retries: int  # in the last step, or in all that differ: how often what lay free was given back, to ask for more
    died_at: int = -1  # the change that there was no room for


def replay(
    steps: Steps,
    settings: Settings,
    capacity_bytes: int | None = None,
    place: Callable[[int], int] | None = None,
    has_workspaces: bool = True,
    empties_cache: bool = False,
) -> Replay:
    """The steps through an allocator of so many bytes, or of as many as it takes; with cuBLAS's workspaces or
    without; with torch.cuda.empty_cache() after each step or without."""
    allocator = Allocator(settings, place or downwards(), capacity_bytes)
    addresses = [0] * len(steps.lines)
    last = steps.ends[-2] if steps.are_alike and len(steps.ends) > 1 else 0
    turn = earlier = ended = 0
    for storage, nbytes, stream in steps.changes:
        if turn == last:
            earlier = allocator.retries
        if turn == steps.ends[ended]:
            ended += 1
            if empties_cache:
                allocator.empty_cache()
        if nbytes < 0:
            allocator.free(addresses[storage])
        elif has_workspaces or steps.lines[storage] != WORKSPACE:
            try:
                addresses[storage] = allocator.allocate(nbytes, stream)
            except OutOfMemory:
                return Replay(allocator.allocated_bytes, allocator.reserved_bytes, allocator.retries, turn)
        turn += 1  # noqa: SIM113 (on a page enumerate() takes as long as the allocator)
    return Replay(allocator.peak_allocated_bytes, allocator.peak_reserved_bytes, allocator.retries - earlier)
