"""A training step that runs, counted beside what the allocator and the clock say: `watch()`.

    from flops_bytes.tools.watch import watch

    with watch() as seen:
        for batch in loader:        # your loop, with a break after ten steps or so; or one step alone
            ...
            optimizer.step()
    print(seen)
    seen.write("reading.toml")

A step ends where an optimizer works that has already worked in it, so that several in turn make one step. The first
warms up and the second is counted, operation by operation, which slows it. The third is let pass, and from the fourth
on nothing is in the way: their memory and their time are what the step has without being watched. Of fewer steps the
last is counted, and its time is that of a step that was slowed, which is said.

What the card's allocator had at most, and what it had reserved, are known on CUDA alone. On a CPU, PyTorch's profiler
says what its allocator had at most.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _get_current_dispatch_mode

from flops_bytes.counting.count import peak_of
from flops_bytes.counting.counted import Counted, sized, summed, table, told
from flops_bytes.counting.step_trace import StepTrace
from flops_bytes.lessons.measure import divide, get_gpu
from flops_bytes.time.gpus import GPUS, Gpu
from flops_bytes.tools.toml import inline

PEAK, NOW = "allocated_bytes.all.peak", "allocated_bytes.all.current"


class High(NamedTuple):
    """The most that there was while a line's operations ran."""

    counted_bytes: int
    allocated_bytes: int


def had(what: str) -> int:
    """One of the allocator's numbers: what is allocated or reserved now, or was at most."""
    return int(torch.cuda.memory_stats().get(what, 0))


class WatchTrace(StepTrace):
    """A trace of tensors that have memory: those of one kind of device, from the start on."""

    def __init__(self, kind: str) -> None:
        super().__init__(None)
        self.kind = kind
        self.process = os.getpid()  # a loader's workers inherit the mode, but neither the card nor the step
        self.turns: dict[int, dict[str, High]] = {}  # by line
        self.over = False
        self.began: list[int] = []  # ns, of turns

    def hold(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == self.kind:
            super().hold(storage)

    def hold_all(self) -> None:
        """What is there before."""
        self.line = "before"
        found = [each for each in gc.get_objects() if issubclass(type(each), Tensor) and is_plain(each)]
        found += [each.grad for each in found if each.is_leaf and each.grad is not None and is_plain(each.grad)]
        for each in found:
            self.hold(each.untyped_storage())
        self.name(found, "there before")  # until an optimizer says more

    def end_turn(self, worker: int) -> None:
        self.began.append(time.time_ns())
        super().end_turn(worker)

    def end_step(self) -> None:
        self.over = True

    def highs(self) -> dict[str, High]:
        """Of the step that counts, by line."""
        found: dict[str, High] = {}
        for turn in self.step():
            for line, high in self.turns.get(turn, {}).items():
                found[line] = High(*map(max, high, found.get(line, high)))
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.over or os.getpid() != self.process:
            return func(*args, **(kwargs or {}))
        if self.kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        counted = self.live_bytes
        result = super().__torch_dispatch__(func, types, args, kwargs)
        lines, now = self.turns.setdefault(len(self.workers), {}), had(PEAK) if self.kind == "cuda" else 0
        before = lines.get(self.line, High(0, 0))
        counted = max(counted, self.live_bytes)
        lines[self.line] = High(max(before.counted_bytes, counted), max(before.allocated_bytes, now))
        return result


def workspaces() -> int:
    """Bytes that cuBLAS has for itself; it gives them back, and takes them anew when it is used."""
    before = had(NOW)
    if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
        clear()
    return before - had(NOW)


def is_plain(x: Tensor) -> bool:
    """Whether it has a storage of its own."""
    return type(x) in (Tensor, torch.nn.Parameter) and x.layout == torch.strided


class Measured(NamedTuple):
    """What a device said of the same steps; None where it cannot."""

    peak_bytes: int | None  # of the step that was counted: what tensors had allocated, at most
    free_peak_bytes: int | None  # of the steps that nobody watched
    reserved_bytes: int | None
    workspace_bytes: int | None  # what cuBLAS had of that for itself
    beside_bytes: int | None  # allocated when it began, and held by no tensor that Python knows
    step_seconds: list[float]
    watched: bool  # whether these are of steps that were slowed by being counted
    device: str  # as CUDA names it; "CPU"
    mfu: float | None


class Clock:
    """When steps end: by the GPU's own clock, where there is one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.ends: list[Any] = []

    def end(self) -> None:
        if self.kind == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.ends.append(event)
        else:
            self.ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """From each end to the next."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
        pairs = zip(self.ends, self.ends[1:], strict=False)
        return [start.elapsed_time(end) / 1e3 if self.kind == "cuda" else end - start for start, end in pairs]


class watch:  # in small letters, like torch.no_grad
    """Counts the second step in a `with` block, and measures those from the fourth on.

    `device` is "cuda" where there is one, unless it is said. After the block, `counted` and `measured` are there,
    `rows()` and print() show them side by side, and `write()` writes a reading.

    >>> layer = torch.nn.Linear(64, 64, bias=False)
    >>> optimizer = torch.optim.SGD(layer.parameters())
    >>> with watch("cpu") as seen:
    ...     for _ in range(4):
    ...         layer(torch.ones(8, 64)).sum().backward()
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    ...
    >>> seen.counted.weights, sum(seen.counted.flops.values())
    ({'all': 4096, 'trained': 4096}, 131072)
    """

    counted: Counted
    measured: Measured

    def __init__(self, device: str | None = None) -> None:
        self.kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.trace = WatchTrace(self.kind)
        self.calls = 0  # of optimizers, since the trace ended
        self.clock, self.free = Clock(self.kind), Clock(self.kind)
        self.hooks: list[Any] = []
        self.profile: Any = None
        self.is_traced = False
        self.highest: int | None = None
        self.notes: list[str] = []  # what the reader should know of this block

    def __enter__(self) -> Self:
        gc.collect()
        if self.kind == "cuda":
            torch.cuda.synchronize()
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self.trace.before_update),
            optimizers.register_optimizer_step_post_hook(self.after_update),
        ]
        if self.kind == "cpu":
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
            with quiet():
                self.profile.__enter__()
        self.trace.hold_all()
        self.live_bytes = self.trace.live_bytes
        self.beside = had(NOW) - self.live_bytes if self.kind == "cuda" else None
        torch.compiler.set_stance("force_eager")
        self.clock.end()
        self.trace.began.append(time.time_ns())
        self.trace.__enter__()
        self.is_traced = True
        return self

    def after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """An optimizer has worked; after the last of the counted step, nothing is traced any more."""
        trace = self.trace
        if self.is_traced:
            trace.after_update(optimizer)
            if trace.over and _get_current_dispatch_mode() is trace:
                self.clock.end()
                self.untrace()
            return
        self.calls += 1
        updates = len(trace.step())
        if self.calls % updates == 0:
            if self.calls == updates and self.kind == "cuda":
                torch.cuda.reset_peak_memory_stats()
            self.free.end()

    def untrace(self) -> None:
        """Ends the counting, and reads what was measured meanwhile."""
        self.trace.__exit__(None, None, None)
        self.is_traced = False
        torch.compiler.set_stance("default")
        if self.kind == "cuda":
            self.highest = max((high.allocated_bytes for high in self.trace.highs().values()), default=0)
            torch.cuda.reset_peak_memory_stats()
        if self.profile:
            with quiet():
                self.profile.__exit__(None, None, None)
            self.highest = self.live_bytes + most_allocated(self.profile, self.trace.began[self.trace.step().start])
            self.profile = None

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        if self.is_traced:
            self.clock.end()
            self.untrace()
            if not self.trace.workers:
                self.trace.look()
        if error:
            self.notes.append(f"the block ended by {error.__name__}; what is told here is of the steps before")
        elif not self.trace.operations:
            raise ValueError("watch: no operation ran in the block, so there is nothing to count")
        self.counted = summed(self.trace)
        watched = len(self.free.ends) < 2
        cuda = self.kind == "cuda"
        free_peak, reserved = (had(PEAK), had("reserved_bytes.all.peak")) if cuda else (None, None)
        seconds = (self.clock if watched else self.free).seconds()
        gpu = get_gpu() if cuda else None
        self.measured = Measured(
            peak_bytes=self.highest,
            free_peak_bytes=None if watched else free_peak,
            reserved_bytes=reserved,
            workspace_bytes=workspaces() if cuda else None,
            beside_bytes=self.beside,
            step_seconds=seconds,
            watched=watched,
            device=torch.cuda.get_device_name() if cuda else "CPU",
            mfu=None if watched else mfu(self.counted, statistics.median(seconds), gpu),
        )

    def rows(self, most: int = 8) -> list[tuple[str, str]]:
        """What was counted and measured, in lines."""
        found, said = self.counted, self.measured
        rows = list(table(found, 0))
        if said.peak_bytes:
            meter = "allocated" if self.kind == "cuda" else "allocated, by the profiler"
            rows.append((f"peak, {meter}", beside(found.peak_bytes, said.peak_bytes)))
        if said.free_peak_bytes:
            rows.append(("  of steps not watched", beside(found.peak_bytes, said.free_peak_bytes)))
        if said.workspace_bytes:
            both = found.peak_bytes + said.workspace_bytes
            share = f"counted with them {both / (said.free_peak_bytes or said.peak_bytes or both):.4f}"
            rows.append(("  workspaces of cuBLAS in it", f"{sized(said.workspace_bytes)}; {share}"))
        if said.beside_bytes:
            rows.append(("  held by no tensor before", sized(said.beside_bytes)))
        rows.append(("reserved", sized(said.reserved_bytes) if said.reserved_bytes else "known on CUDA alone"))
        seconds, number = statistics.median(said.step_seconds), len(said.step_seconds)
        slowed = " slowed by the count: watch five or more for their own time" if said.watched else ""
        rows.append(("a step", f"{seconds:.4g} s, {number} of them{slowed}"))
        if said.mfu is not None:
            rows.append(("MFU", f"{said.mfu:.1%} of the peak of {found.flops_dtype}"))
        rows += [("note", note) for note in self.notes]
        rows.append(
            ("the most that lived meanwhile", "by line, counted" + (" / allocated" if said.reserved_bytes else ""))
        )
        highs = sorted(self.trace.highs().items(), key=lambda each: -each[1].counted_bytes)
        for line, high in highs[:most]:
            sizes = [high.counted_bytes] + ([high.allocated_bytes] if high.allocated_bytes else [])
            rows.append((f"  {' / '.join(map(sized, sizes))}", line))
        return rows

    def __str__(self) -> str:
        return told(self.rows())

    def write(self, path: str | Path, thread: str = "", **settings: Any) -> None:
        """Writes a reading, as measurements/published has them.

        `thread` is the address of the pull request or issue that brings it; with it, a checkout's
        `python -m published FOLDER --extract FOLDER` makes the file a source. `settings` are options of the planner,
        such as model="gpt2", micro_batch=12, which say the same run in its words, so that what it plans can stand
        beside it; without them the reading stands alone. Nothing is written of the machine but its card's name and
        versions. Raises ValueError without a GPU.
        """
        path = Path(path)
        path.write_text(
            reading(self.counted, self.measured, path.stem, thread, settings, self.lines()), encoding="utf-8"
        )

    def lines(self) -> dict[str, list[int]]:
        """The most that lived while a line's operations ran: counted, allocated."""
        return {line: list(high) for line, high in self.trace.highs().items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the profiler's own library writes to standard error when it starts and stops."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def beside(counted: int, measured: int) -> str:
    return f"{sized(measured)}, counted are {counted / measured:.4f} of it"


def mfu(found: Counted, seconds: float, gpu: Gpu | None) -> float | None:
    """By the FLOPs that a step needs, without those made again, and the dense peak of most of them."""
    return divide(divide(found.useful_flops, seconds), peak_of(gpu, found.flops_dtype) if gpu else None)


def most_allocated(profile: Any, since: int) -> int:
    """The most that the profiler saw allocated from a time (ns) on, less what was there when it began."""
    events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        live += event.nbytes()
        if event.start_ns() >= since:
            most = max(most, live)
    return most


def reading(
    found: Counted, said: Measured, name: str, thread: str, settings: dict[str, Any], lines: dict[str, list[int]]
) -> str:
    """The file of one reading."""
    if not said.reserved_bytes:
        raise ValueError("no reading: allocated and reserved are known on CUDA alone; print() shows what a CPU said")
    gpu = get_gpu()
    parameters = found.weights.get("all", 0)
    words = f", {found.tokens:,} tokens a step" if found.tokens else ""
    asked = dict(settings) or {"missing": f"a script of its own: {parameters:,} parameters{words}"}
    if gpu:
        asked["gpu"] = next(name for name, each in GPUS.items() if each == gpu)
    row = {
        "allocated_bytes": str(said.free_peak_bytes or said.peak_bytes),
        "reserved_bytes": str(said.reserved_bytes),
        "step_seconds": "" if said.watched else f"{statistics.median(said.step_seconds):.6g}",
    }
    own = {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "parameters": parameters,
        "tokens": found.tokens,
        "peak_bytes": found.peak_bytes,
        "allocated_bytes": said.peak_bytes,
        "flops": sum(found.flops.values()),
        "again_flops": found.again_flops,
        "flops_dtype": found.flops_dtype,
    }
    return (
        "\n".join(
            [
                "# Written by flops_bytes.watch: a step of a script of one's own, counted beside what its card said.",
                "# - Meter: torch.cuda.memory_stats(), peaks over steps that were not watched.",
                f"thread = {json.dumps(thread)} # the pull request or issue that brings it",
                f"when = {json.dumps(datetime.now(UTC).strftime('%Y-%m-%d'))}",
                f"card = {json.dumps(said.device)}",
                "",
                "[[tables]]",
                f"name = {json.dumps(name)}",
                f"settings = {inline(asked)}",
                f"rows = [{inline({key: value for key, value in row.items() if value})}]",
                "",
                "[counted]",
                *(f"{key} = {json.dumps(value)}" for key, value in own.items()),
                "",
                "[counted.lines] # the most that lived while a line ran: counted, allocated",
                *(f"{json.dumps(line)} = {json.dumps(sizes)}" for line, sizes in lines.items()),
            ]
        )
        + "\n"
    )
