# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/kernels/*.toml"]
# ///
"""What several GPUs cost: bytes a rank, bytes sent, the time that takes by formula and by others' logs."""

# --8<-- [start:setup]
import tempfile

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import P2POp
from torch.multiprocessing.spawn import start_processes

from flops_bytes.lessons.models import GPT2_SMALL, LLAMA_3_8B, build
from flops_bytes.parallel.sharding import (
    LINK_BYTES_PER_SECOND,
    STAGES,
    ddp_payload,
    fsdp_payload,
    fsdp_peak_bytes,
    group_numbers,
    ring_bytes,
    ring_rate,
    tokens_to_hide,
    zero_stage_bytes,
)
from flops_bytes.time.gpus import GPUS, LINK_EFFICIENCY

# --8<-- [end:setup]
# isort: split
# --8<-- [start:setup_published]
from collections.abc import Iterable
from pathlib import Path

from published.kernel_times import LARGE_BYTES, NEAR, Timed, compared, read_all

FOLDERS = (above / "measurements" / "published" / "kernels" for above in Path(__file__).parents)
_collectives = [row for row in read_all(next(filter(Path.is_dir, FOLDERS))) if row.kind == "collective"]
# --8<-- [end:setup_published]


# --8<-- [start:stages]
N = 8_030_261_248  # parameters of Llama 3 8B


def on_a_rank(stage: int, ranks: int) -> float:
    """Bytes of weights, gradients and AdamW's state in fp32; stage 0 is DDP."""
    state = 8 * N / (ranks if stage >= 1 else 1)
    gradients = 4 * N / (ranks if stage >= 2 else 1)
    weights = 4 * N / (ranks if stage >= 3 else 1)
    return weights + gradients + state


for stage, name in enumerate(("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3, FSDP")):
    print(f"{name:13}", *(f"{on_a_rank(stage, ranks) / 2**30:6.1f} GiB on {ranks}" for ranks in (8, 64)))
# --8<-- [end:stages]
replicated_bytes, sharded_bytes = on_a_rank(0, 64), on_a_rank(3, 8)
CARD_BYTES = GPUS["H100 SXM"].memory_bytes


# --8<-- [start:numbers]
def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


gpt2 = build(GPT2_SMALL)
gpt2_parameters = sum(weight.numel() for weight in gpt2.parameters())
ddp_bytes = ddp_payload(gpt2_parameters)
fsdp_bytes = {n: fsdp_payload(*group_numbers(shapes_of(gpt2), n)) for n in (2, 4)}
print("DDP       ", ddp_bytes)
for ranks, handed in fsdp_bytes.items():
    print(f"FSDP2, {ranks}  ", handed)
# --8<-- [end:numbers]
rank_bytes = {  # what rank 0 of 2 should hold after a step
    "zero_1": sum(zero_stage_bytes(gpt2_parameters, 2, 1).values()),
    "fsdp": sum(zero_stage_bytes(gpt2_parameters, 2, 3).values()),
}


# --8<-- [start:ring]
sent_bytes = {}
for ranks in (2, 4, 8, 64):
    sent_bytes[ranks] = ring_bytes(ddp_bytes["allreduce"], ranks, "allreduce")
    print(f"{ranks:2} ranks: each sends {sent_bytes[ranks] / 2**20:.1f} MiB")
# --8<-- [end:ring]


# --8<-- [start:by_hand]
def ring_all_reduce(tensor: Tensor) -> int:
    """Sums a tensor over all ranks, in place; returns the bytes that this rank sent."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces, sent = tensor.chunk(ranks), 0  # the ranks must divide its length
    for done in range(2 * (ranks - 1)):  # rounds: first reduce-scatter, then all-gather
        give, take = pieces[(rank - done) % ranks], pieces[(rank - done - 1) % ranks]
        arrived = torch.empty_like(take)
        to_next = P2POp(dist.isend, give, (rank + 1) % ranks)
        from_last = P2POp(dist.irecv, arrived, (rank - 1) % ranks)
        for work in dist.batch_isend_irecv([to_next, from_last]):
            work.wait()
        take.copy_(take + arrived if done < ranks - 1 else arrived)
        sent += give.nbytes
    return sent


def on_each(rank: int, ranks: int, folder: str) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    ours = torch.arange(8.0) + 10 * rank
    theirs = ours.clone()
    sent = ring_all_reduce(ours)
    dist.all_reduce(theirs)  # by gloo
    assert ours.equal(theirs) and sent == 2 * (ranks - 1) * ours.nbytes // ranks
    if rank == 0:
        print(f"{ours.tolist()}, {sent} bytes sent for {ours.nbytes}", flush=True)
    dist.destroy_process_group()


with tempfile.TemporaryDirectory() as folder:
    start_processes(on_each, (4, folder), nprocs=4, start_method="fork")
# --8<-- [end:by_hand]
del folder


# --8<-- [start:peak]
llama = build(LLAMA_3_8B)
peaks = {n: fsdp_peak_bytes(*group_numbers(shapes_of(llama), n), n) for n in (8, 64)}
peak_bytes = {ranks: sum(lines.values()) for ranks, lines in peaks.items()}
whole_share = {ranks: peaks[ranks]["whole"] / peak_bytes[ranks] for ranks in peaks}
for ranks, lines in peaks.items():
    told = "".join(f"{name} {size / 2**30:.2f}, " for name, size in lines.items())
    print(f"{ranks:2} ranks: {told}in all {peak_bytes[ranks] / 2**30:.2f} GiB")
# --8<-- [end:peak]


# --8<-- [start:published]
SIZES_BYTES = {"small": 2**20, "block": 2**24, "large": LARGE_BYTES}
TABLES = {  # of nccl-tests and the like: the source's file, and the table's name there
    "a100": ("superbenchmark", "all-reduce, 8 A100"),
    "a100_gather": ("superbenchmark", "all-gather, 8 A100"),
    "a100_scatter": ("superbenchmark", "reduce-scatter, 8 A100"),
    "a100_again": ("ml-engineering", "all-reduce, 8 A100"),
    "b200": ("ml-engineering", "all-reduce, 8 B200"),
    "h200": ("ml-engineering", "all-reduce, 8 H200"),
    "four": ("ml-engineering", "all-reduce, 4 × 8 B200"),
    "two": ("create-a3mega", "all-reduce, 2 × 8 H100"),
}
PLAIN = ("a100", "a100_gather", "a100_scatter", "a100_again")  # NVSwitch adds up on the other cards (SHARP)


def table(name: str) -> list[Timed]:
    return [row for row in _collectives if (row.source, row.where) == TABLES[name]]


def near(rows: Iterable[Timed]) -> dict[str, float]:
    """Ring over measured, of large messages: how many, their median, how many are within 25 %."""
    return compared(rows)["collective", "ring"]


def reached(row: Timed) -> float:
    """What the link could do in less time: the ring's time at the full rate, over the time it took."""
    assert row.seconds
    return LINK_EFFICIENCY * row.predicted["ring"] / row.seconds


reached_share = {name: {row.shape[0]: reached(row) for row in table(name)} for name in TABLES}
LATENCY_SECONDS = {name: min(row.seconds or 0.0 for row in table(name)) for name in TABLES}
SENT_BYTES_PER_SECOND = {  # of the largest message, on the bus: what a ring would send
    name: ring_bytes(row.shape[0], row.shape[1], row.operation) / (row.seconds or 1.0)
    for name in TABLES
    for row in (max(table(name), key=lambda row: row.shape[0]),)
}
NEAR_PERCENT = round(100 * NEAR)
large_plain = near(row for name in PLAIN for row in table(name))
for name in TABLES:
    print(f"{name:13}{SENT_BYTES_PER_SECOND[name] / 1e9:5.0f} GB/s, {LATENCY_SECONDS[name] * 1e6:4.0f} µs")
# --8<-- [end:published]


# --8<-- [start:levels]
def all_reduce_rates(nodes: int, card_bytes_per_second: float) -> dict[str, float]:
    """What an all-reduce of machines with 8 GPUs and 8 network cards can reach on the bus.

    On eight rings, each out by a card of its own; or in two levels, an eighth by each card.
    """
    rings = 8 * card_bytes_per_second
    once, between = (ring_bytes(1.0, n, "allreduce") for n in (8 * nodes, nodes))
    return {"rings": rings, "levels": rings * once / between}


BUS_BYTES_PER_SECOND = {"two": all_reduce_rates(2, 25e9), "four": all_reduce_rates(4, 50e9)}
print(BUS_BYTES_PER_SECOND)
# --8<-- [end:levels]


# --8<-- [start:hide]
PEAK = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
MFU = 0.4
WITHIN, BETWEEN = LINK_BYTES_PER_SECOND.values()
RANKS = {"NVLink": 8, "400 Gb/s": 64, "shared": 64}  # one machine, eight, eight with one card
LINKS = {
    "NVLink": ring_rate(8, WITHIN, BETWEEN),
    "400 Gb/s": ring_rate(64, WITHIN, BETWEEN),  # a network card for each of eight GPUs
    "shared": ring_rate(64, WITHIN, BETWEEN, network_cards=1),  # one for all eight
}
hiding_tokens = {}
for link, rate in LINKS.items():
    hiding_tokens[link] = tokens_to_hide(MFU * PEAK, LINK_EFFICIENCY * rate, RANKS[link])
    print(f"{link:9}{LINK_EFFICIENCY * rate / 1e9:5.0f} GB/s{hiding_tokens[link]:8,.0f} tokens a GPU")
# --8<-- [end:hide]


# --8<-- [start:step]
def seconds_of_a_step(link: str, tokens: int) -> dict[str, float]:
    """FSDP2's step of Llama 3 8B on H100s: its matmuls, and what is sent, if nothing overlaps."""
    n = RANKS[link]
    blocks, root = group_numbers(shapes_of(llama), n)
    handed = fsdp_payload(blocks, root, gather_bytes=2, reduce_bytes=4)
    sent = sum(ring_bytes(size, n, name) for name, size in handed.items())
    matmuls = 6 * N * tokens / (MFU * PEAK)
    return {"sent_bytes": sent, "wire": sent / (LINK_EFFICIENCY * LINKS[link]), "matmuls": matmuls}


TOKENS = {"node": 8192, "each": 8192, "short": 1024, "shared": 8192}  # on a GPU
STEP_SECONDS = {
    "node": seconds_of_a_step("NVLink", TOKENS["node"]),
    "each": seconds_of_a_step("400 Gb/s", TOKENS["each"]),
    "short": seconds_of_a_step("400 Gb/s", TOKENS["short"]),
    "shared": seconds_of_a_step("shared", TOKENS["shared"]),
}
# --8<-- [end:step]


COMMUNICATION_SECONDS = {"deepseek": 113.030e-3, "recommender": 163.535e-3}  # of two traces, with what is exposed of it
EXPOSED_SECONDS = {"deepseek": 4.162e-3, "recommender": 87.921e-3}
hidden_share = {name: 1 - EXPOSED_SECONDS[name] / COMMUNICATION_SECONDS[name] for name in EXPOSED_SECONDS}


# --8<-- [start:exercise_1]
HALF = 0.5 * GPUS["H100 SXM"].memory_bytes
smallest = {
    name: next((ranks for ranks in range(1, 1_025) if on_a_rank(stage, ranks) <= HALF), None)
    for stage, name in enumerate(STAGES)
}
print(smallest)
assert smallest == {"DDP": None, "ZeRO-1": None, "ZeRO-2": 13, "ZeRO-3": 4}
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
NODES, CARDS = 4, 8  # machines, network cards in each
gradients_bytes = 4 * gpt2_parameters
rings = ring_bytes(gradients_bytes, 8 * NODES, "allreduce") / CARDS  # a ring a card
levels = ring_bytes(gradients_bytes / CARDS, NODES, "allreduce")
between_share = levels / rings
print(f"a network card sends {levels / 2**20:.1f} MiB, not {rings / 2**20:.1f}")
assert 0.75 < between_share < 0.8
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
backward_tokens = {}
for link, rate in LINKS.items():
    moved = {"bytes_a_parameter": 2 + 4, "flops_a_parameter": 4}
    backward_tokens[link] = tokens_to_hide(MFU * PEAK, LINK_EFFICIENCY * rate, RANKS[link], **moved)
    print(f"{link:9}{backward_tokens[link]:8,.0f} tokens a GPU")
    assert abs(backward_tokens[link] / hiding_tokens[link] - 1.5) < 1e-9
# --8<-- [end:exercise_3]
