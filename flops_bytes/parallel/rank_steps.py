"""A step of one rank of a layout, storage by storage: its stages' layers, of which tensor ranks have a share each, its
micro-batches in the order of their schedule, and what its trainer keeps beside them.

How a trainer writes a layer and its ends, and what it keeps, flops_bytes.parallel.trainers says. Python alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from flops_bytes.memory.first_steps import COMPUTE, Run, Steps, Writer
from flops_bytes.memory.layers import Ranks
from flops_bytes.memory.passes import Pass, PassTape, ended
from flops_bytes.memory.step import LOSS, StepConfig, prepared
from flops_bytes.memory.tape import FLOAT32, INT64, Storage, Tape, Tensor, numel
from flops_bytes.model.stack import Stack


class Stage(NamedTuple):
    """Consecutive layers of a model, with what stands below and above them; of a tensor rank, its share of each."""

    stack: Stack  # the layers one by one; the vocabulary is this rank's share of it
    has_embedding: bool = True
    has_head: bool = True

    @property
    def ties(self) -> bool:
        """Whether embedding and head are one matrix here."""
        return self.stack.tied and self.has_embedding and self.has_head


class Modules(Protocol):
    """How a trainer writes a model. Passes are cached by it."""

    def __hash__(self) -> int: ...

    def embedding(self, tape: Tape, stage: Stage, config: StepConfig) -> Tensor:
        """What comes to the first layer."""

    def layers(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        """What comes out of the last one."""

    def end(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        """The loss."""


def ranks_of(config: StepConfig) -> Ranks:
    assert config.ranks is not None
    return config.ranks


def token_ranks(config: StepConfig) -> int:
    """Ranks that share the tokens between matrices."""
    ranks = ranks_of(config)
    return ranks.tensor_ranks if ranks.sequence else 1


def own_tokens(config: StepConfig) -> int:
    """Of a sequence, between matrices."""
    return config.seq_len // token_ranks(config)


@lru_cache(maxsize=256)
def record_stage(stage: Stage, modules: Modules, config: StepConfig, buffered: bool, keeps_result: bool) -> Pass:
    """All storages of a micro-batch's pass through a stage, forward and backward. What comes from another stage lies in
    a buffer that stays, if `buffered`; what goes to the next is there until the backward pass, or until it has gone."""
    tape = PassTape(config, False)
    prepared(tape, config)
    if stage.ties and config.chunks == 1:
        tape.tied.append("head")
    shape = (config.batch, own_tokens(config), stage.stack.d_model)
    tape.enter()
    if stage.has_embedding:
        tape.moment = "embedding"
        x = modules.embedding(tape, stage, config)
    else:
        nbytes = 0 if buffered else numel(shape) * config.number_bytes
        x = tape.leaf_over("received", shape, config.number_bytes, Storage(nbytes), True)
    x = modules.layers(tape, stage, config, x)
    result = tape.leave(modules.end(tape, stage, config, x) if stage.has_head else x)
    root = result.grad_fn  # None of an embedding alone, if it is frozen
    if keeps_result:
        tape.keep_to_end(result)
    else:
        tape.forget(result)
    tape.drop_autocast_copies()
    tape.goes_backward = tape.awaits_product = True
    to_loss = tape.new(LOSS, FLOAT32) if stage.has_head else tape.new(shape, 0 if buffered else config.number_bytes)
    if root is not None:
        tape.run_backward(root, to_loss)
    for kept in tape.kept_to_end:
        tape.let_go(kept)
    return ended(tape, not config.accumulated)


@lru_cache(maxsize=256)
def stage_numbers(stage: Stage, modules: Modules, config: StepConfig) -> dict[str, int]:
    """Numbers of each tensor that is trained, by its name."""
    ranks = ranks_of(config)._replace(context_ranks=1)
    one = config._replace(seq_len=token_ranks(config), batch=1, checkpointing="none", accumulated=False, ranks=ranks)
    one = one._replace(chunks=1)
    tape = PassTape(one, False)
    prepared(tape, one)
    x = tape.input_leaf("received", (1, own_tokens(one), stage.stack.d_model), one.number_bytes)
    if stage.has_embedding:
        x = modules.embedding(tape, stage, one)
    x = modules.layers(tape, stage, one, x)
    if stage.has_head:
        modules.end(tape, stage, one, x)
    return {name: leaf.numel for name, leaf in tape.leaves.items() if leaf.numel}


class Turn(NamedTuple):
    """A micro-batch goes through a stage of this rank."""

    micro_batch: int
    stage: int
    is_backward: bool


def turns(warm_up: int, micro_batches: int, ranks: int, stages: int) -> Iterator[Turn]:
    """So many forward, then forward and backward in turns, then the rest backward. Of several stages a rank goes
    through each with as many micro-batches as there are ranks, before it goes through the next (Narayanan et al. 2021,
    section 2.2)."""

    def at(turn: int, is_backward: bool) -> Turn:
        group, within = divmod(turn, ranks * stages)
        stage, place = divmod(within, ranks)
        if stages == 1:
            return Turn(turn, 0, is_backward)
        return Turn(group * ranks + place, stages - 1 - stage if is_backward else stage, is_backward)

    total = micro_batches * stages
    for turn in range(total + warm_up):
        if turn < total:
            yield at(turn, False)
        if turn >= warm_up:
            yield at(turn - warm_up, True)


class RankRun(NamedTuple):
    """What a rank trains, and how."""

    run: Run
    modules: Modules
    stages: tuple[Stage, ...]
    order: tuple[Turn, ...]  # The turns of a step.
    buffers: Mapping[str, int]  # Bytes that are there from the first pass on, by line.
    update_buffers: Sequence[tuple[str, int]]  # These lines and bytes are there only while the update runs.
    buffered: bool = False  # What comes from other stages lies in buffers that stay.
    keeps_result: bool = False  # What goes to the next stage stays until its gradient has come.
    adds: bool = False  # When a pass ends, its gradients are added to wider ones, which are part of the state.


def asked_pass(told: RankRun, stage: Stage, is_first: bool) -> tuple[Stage, Modules, StepConfig, bool, bool]:
    """What record_stage() is asked for a micro-batch: the first of a step leaves gradients, to which others' are
    added."""
    config = told.run.config._replace(accumulated=not (told.adds or is_first or told.run.sharding.reduces))
    return stage, told.modules, config, told.buffered, told.keeps_result and not stage.has_head


def named(name: str, stage: int) -> str:
    """Of a tensor of one of several stages, which number their layers alike."""
    return f"{name} of stage {stage}" if stage and name[:6] == "layer " else name


# The CPU waits when so many launches wait for the GPU. NVIDIA does not say how many; so many were observed.
MOST_QUEUED_LAUNCHES = 1024


class RankWriter(Writer):
    """Writes down what storages of a rank do."""

    def __init__(self, told: RankRun, lags: bool) -> None:
        self.told, self.lags = told, lags
        config = told.run.config

        def numbers_of(config: StepConfig) -> dict[str, int]:
            return {
                named(name, place): numbers
                for place, stage in enumerate(told.stages)
                for name, numbers in stage_numbers(stage, told.modules, config).items()
            }

        trained = numbers_of(config)
        weights = numbers_of(config._replace(adapters=None)) if config.adapters else trained
        self.launches = 0  # that PyTorch has asked for, one for each storage that it takes
        self.lagging: deque[tuple[int, int]] = deque()  # after which launch a storage of what is sent was let go
        super().__init__(told.run, trained, weights)
        self.depth = max(1, told.stages[0].stack.depth)
        self.in_flight: dict[tuple[int, int], tuple[Pass, list[int], list[int]]] = {}

    def load(self) -> None:
        super().load()
        self.take("gradients", self.run.state.get("gradients", 0))

    def start_step(self) -> None:
        super().start_step()
        if self.step == 1:
            for line, nbytes in self.told.buffers.items():
                self.take(line, nbytes)
        self.began: set[int] = set()

    def turn_of(self, turn: Turn) -> None:
        key = (turn.micro_batch, turn.stage)
        if not turn.is_backward:
            is_first = turn.stage not in self.began
            self.began.add(turn.stage)
            found = record_stage(*asked_pass(self.told, self.told.stages[turn.stage], is_first))
            config = self.run.config
            batch = [self.take("batch", INT64 * config.batch * config.seq_len) for _ in range(2)]
            self.in_flight[key] = found, [-1] * len(found.lines), batch
            self.play(found, self.in_flight[key][1], 0, backward_start(found))
            return
        found, here, batch = self.in_flight.pop(key)
        self.play(found, here, backward_start(found), len(found.changes))
        if self.run.sharding.reduces:
            self.end_of_units()
        else:
            left = [here[storage] for storage in found.gradients.values()]
            if self.told.adds:
                batch += left
            else:
                self.gradients |= {named(name, turn.stage): here[at] for name, at in found.gradients.items()}
        for number in batch:
            self.give(number)

    def take(self, line: str, nbytes: int, stream: int = COMPUTE) -> int:
        self.launches += 1
        while self.lagging and self.lagging[0][0] < self.launches - MOST_QUEUED_LAUNCHES:
            super().give(self.lagging.popleft()[1])
        return super().take(line, nbytes, stream)

    def give(self, number: int) -> None:
        if self.lags and number >= 0 and self.lines[number] == "sent":
            self.lagging.append((self.launches, number))
        else:
            super().give(number)

    def catch_up(self) -> None:
        """The GPU has done what PyTorch has asked for."""
        while self.lagging:
            super().give(self.lagging.popleft()[1])

    def finish_step(self) -> None:
        self.catch_up()
        self.mark("update", f"step {self.step}, update")
        numbers = [self.take(line, nbytes) for line, nbytes in self.told.update_buffers]
        super().finish_step()
        for number in numbers:
            self.give(number)


def backward_start(found: Pass) -> int:
    """The first change of the backward pass."""
    return next((part.start for part in found.parts if part.is_backward), len(found.changes))


def rank_steps(told: RankRun, lags: bool = False, times: int = 2) -> Steps:
    """All changes of a rank from its load to the end of so many steps. If the GPU `lags` as far behind
    PyTorch as it can, what is sent is read that much later: until then its bytes are no others' (Tensor.record_stream).
    """
    writer, ends = RankWriter(told, lags), list[int]()
    writer.load()
    for _ in range(times):
        writer.start_step()
        for turn in told.order:
            writer.turn_of(turn)
        writer.finish_step()
        ends.append(len(writer.changes))
    return Steps(writer.changes, writer.parts, writer.lines, writer.peaks, ends)


def lines_at_peak(steps: Steps) -> dict[str, int]:
    """Bytes by line when most are there, in the last step."""
    first = steps.ends[-2] if len(steps.ends) > 1 else 0
    live: dict[str, int] = {}
    total = most = 0
    place = -1
    for turn, (_, nbytes, _) in enumerate(steps.changes):
        total += nbytes
        if turn >= first and total > most:
            most, place = total, turn
    for storage, nbytes, _ in steps.changes[: place + 1]:
        line = steps.lines[storage]
        live[line] = live.get(line, 0) + nbytes
    return {line: nbytes for line, nbytes in live.items() if nbytes}
