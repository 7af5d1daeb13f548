"""The ranks of a distributed step, counted one by one without a GPU: `flops-bytes count --world`, `count_ranks()`.

The contract: a script is run as torchrun would start it, once for each rank that is asked for, in a process of its own.
Its process groups are PyTorch's fake ones, of any size, which send nothing. What ranks hand each other beside tensors
that have no memory is really handed over: objects, and numbers that are known; a rank that waits for those of another
has that other run too. In a collective of known numbers each rank is taken to have what this one has.

FSDP 2, tensor, sequence, pipeline and expert parallelism are PyTorch's own code. DistributedDataParallel has its
buckets in C++, which look into memory: a stand-in makes the same buckets. FSDP 1 resizes storages where nobody looks,
and is refused.
"""

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from flops_bytes.counting.count import count
from flops_bytes.counting.counted import Counted
from flops_bytes.counting.fake_group import Mailbox, World, fake_group
from flops_bytes.counting.step_trace import Uncountable
from flops_bytes.memory.simulated import path_of_rank
from flops_bytes.plan.fleet import USUAL_NODE_GPUS


def run_rank(pipe: Connection, step: Callable[[], Any], world: World, rank: int, options: dict[str, Any]) -> None:
    """Counts one rank, in a process of its own."""
    torch.set_num_threads(1)
    mailbox = Mailbox(pipe)
    if path := options.get("snapshot"):
        options |= {"snapshot": path_of_rank(path, rank)}
    try:
        found: Any = count(step, place=lambda trace: fake_group(world, rank, mailbox, trace), **options)
    except (Uncountable, ValueError) as error:
        found = str(error)
    pipe.send(("end", found, None))


class Job:
    """The processes of a job's ranks that run, what they have handed each other, and what has been counted."""

    def __init__(self, step: Callable[[], Any], world: World, options: dict[str, Any]) -> None:
        self.told = step, world, options
        self.found: dict[int, Counted] = {}
        self.pipes: dict[int, Connection] = {}
        self.processes: dict[int, Any] = {}
        self.mail: dict[tuple[Any, ...], bytes] = {}
        self.waiting: dict[int, tuple[tuple[Any, ...], int]] = {}  # for which mail, of which rank

    def start(self, rank: int) -> None:
        """Of those that have not been started."""
        if rank not in self.processes:
            kind: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            step, world, options = self.told
            self.pipes[rank], there = kind.Pipe()
            process = kind.Process(target=run_rank, args=(there, step, world, rank, options), daemon=True)
            process.start()
            there.close()
            self.processes[rank] = process

    def hear(self) -> None:
        """What ranks say next, and answers to those that wait. Raises Uncountable."""
        ready = wait(list(self.pipes.values()))
        for rank, pipe in [(rank, pipe) for rank, pipe in self.pipes.items() if pipe in ready]:
            try:
                what, content, more = pipe.recv()
            except EOFError:
                raise Uncountable(f"rank {rank} ended without an answer") from None
            if what == "put":
                self.mail[content] = more
            elif what == "get":
                self.waiting[rank] = content, more
                self.start(more)
            elif isinstance(content, str):
                raise Uncountable(f"rank {rank}: {content}")
            else:
                self.found[rank] = content
                self.pipes.pop(rank)
        all_wait = self.waiting.keys() == self.pipes.keys()
        in_vain = all_wait and all(address not in self.mail for address, _ in self.waiting.values())
        for rank, (address, source) in list(self.waiting.items()):
            if address in self.mail or source in self.found or in_vain:
                self.pipes[rank].send_bytes(self.mail.get(address, b""))
                self.waiting.pop(rank)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()


def count_ranks(
    step: Callable[[], Any],
    world: int,
    ranks: Sequence[int] | None = None,
    *,
    node: int = USUAL_NODE_GPUS,
    **options: Any,
) -> dict[int, Counted]:
    """Steps of a job of so many ranks, by rank.

    `step` is as count() has it, and `options` are count()'s. Without `ranks`, rank 0 is counted and those that do
    something else than it, which are the other stages of its pipeline. A `snapshot` is written of each rank, as
    step.rank0.pickle for step.pickle. Raises Uncountable, with the line.

    >>> import torch
    >>> import torch.distributed as dist
    >>> from flops_bytes import count_ranks
    >>> def step():
    ...     dist.init_process_group()
    ...     matrix = torch.ones(1_024, 1_024, device="cuda")
    ...     dist.all_reduce(matrix @ matrix)
    ...
    >>> found = count_ranks(step, 64)
    >>> [(each.handed_bytes, each.sent_bytes) for each in found[0].sent]
    [(4194304, 8257536)]
    """
    asked = {0} if ranks is None else set(ranks)
    if not asked or min(asked) < 0 or max(asked) >= world:
        raise ValueError(f"ranks {', '.join(map(str, sorted(asked)))}: of {world} ranks there are 0 to {world - 1}")
    job = Job(step, World(world, node), options)
    try:
        while not asked <= job.found.keys():
            for rank in sorted(asked):
                job.start(rank)
            job.hear()
            if ranks is None:
                asked |= {peer for found in job.found.values() for peer in found.peers}
    finally:
        job.end()
    return {rank: job.found[rank] for rank in sorted(asked)}
