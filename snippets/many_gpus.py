# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# [tool.ledger]
# data = ["measurements/published/kernels/*.toml"]
# ///
"""What several GPUs cost: bytes a rank, bytes sent, the time that takes by formula and by others' logs."""

# --8<-- [start:setup]
from torch import nn

from flops_bytes.gpus import GPUS, REACHED
from flops_bytes.models import GPT2_SMALL, LLAMA_3_8B, build
from flops_bytes.sharding import (
    LINK_BYTES_PER_SECOND,
    STAGES,
    ddp_payload,
    fsdp_payload,
    fsdp_peak_bytes,
    group_numbers,
    ring_bytes,
    ring_rate,
    stage_bytes,
    tokens_to_hide,
)

# --8<-- [end:setup]
# isort: split
# --8<-- [start:setup_published]
from collections.abc import Iterable
from pathlib import Path

from flops_bytes.published.kernel_times import LARGE_BYTES, NEAR, Timed, compared, link_of, read_all

FOLDERS = (above / "measurements" / "published" / "kernels" for above in Path(__file__).parents)
_collectives = [row for row in read_all(next(filter(Path.is_dir, FOLDERS))) if row.kind == "collective"]
# --8<-- [end:setup_published]


# --8<-- [start:stages]
llama = build(LLAMA_3_8B)
llama_parameters = sum(weight.numel() for weight in llama.parameters())


def all_stages(ranks: int) -> dict[str, dict[str, float]]:
    """Bytes of Llama 3 8B on a rank, by stage and by what they are."""
    sizes = {}
    for stage, name in enumerate(STAGES):
        sizes[name] = stage_bytes(llama_parameters, ranks, stage)
    return sizes


parts_bytes = {ranks: all_stages(ranks) for ranks in (8, 64)}
for ranks, stages in parts_bytes.items():
    for name, parts in stages.items():
        print(f"{ranks:2} ranks, {name:7}{sum(parts.values()) / 2**30:7.1f} GiB each")
replicated_bytes = sum(parts_bytes[64]["DDP"].values())
CARD_BYTES = GPUS["H100 SXM"].memory_bytes
sharded_bytes = sum(parts_bytes[8]["ZeRO-3"].values())
# --8<-- [end:stages]


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
padding_bytes = fsdp_bytes[4]["reduce_scatter"] - ddp_bytes["allreduce"]
rank_bytes = {  # what rank 0 of 2 should hold after a step
    "zero_1": sum(stage_bytes(gpt2_parameters, 2, 1).values()),
    "fsdp": sum(stage_bytes(gpt2_parameters, 2, 3).values()),
}
# --8<-- [end:numbers]


# --8<-- [start:ring]
sent_bytes = {}
for ranks in (2, 4, 8, 64):
    sent_bytes[ranks] = ring_bytes(ddp_bytes["allreduce"], ranks, "allreduce")
    print(f"{ranks:2} ranks: each sends {sent_bytes[ranks] / 2**20:.1f} MiB")
# --8<-- [end:ring]


# --8<-- [start:peak]
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
CARDS_BYTES_PER_SECOND = {"four": 50e9, "two": 25e9}  # a network card for each GPU
PLAIN = ("a100", "a100_gather", "a100_scatter", "a100_again")  # NVSwitch adds up on the other cards (SHARP)


def table(name: str) -> list[Timed]:
    return [row for row in _collectives if (row.source, row.where) == TABLES[name]]


def near(rows: Iterable[Timed]) -> dict[str, float]:
    """Ring over measured, of large messages: how many, their median, how many are within 25 %."""
    return compared(rows)["collective", "ring"]


def reached(row: Timed) -> float:
    """What the link could do in less time: the ring's time at the full rate, over the time it took."""
    assert row.seconds
    return REACHED * row.predicted["ring"] / row.seconds


def nominal(name: str) -> float:
    """What the links of a GPU carry a second: NVLink's, or with machines the slower level."""
    row = table(name)[0]
    return ring_rate(row.shape[1], link_of(row.card), CARDS_BYTES_PER_SECOND.get(name, 0.0))


def largest_seconds(name: str) -> float:
    """The time of the largest message."""
    return max(table(name), key=lambda row: row.shape[0]).seconds or 0.0


NOMINAL_BYTES_PER_SECOND = {name: nominal(name) for name in TABLES}
reached_share = {name: {row.shape[0]: reached(row) for row in table(name)} for name in TABLES}
LATENCY_SECONDS = {name: min(row.seconds or 0.0 for row in table(name)) for name in TABLES}
SENT_BYTES_PER_SECOND = {  # of the largest message, on the bus: what a ring would send
    name: ring_bytes(row.shape[0], row.shape[1], row.operation) / (row.seconds or 1.0)
    for name in TABLES
    for row in (max(table(name), key=lambda row: row.shape[0]),)
}
NEAR_PERCENT = round(100 * NEAR)
large = near(_collectives)  # all tables, as they stand in the sources
large_plain = near(row for name in PLAIN for row in table(name))
slower_ratio = largest_seconds("four") / largest_seconds("b200")
waiting_ratio = [
    round((row.seconds or 0.0) / row.predicted["ring"])
    for row in _collectives
    if row.source == "holistic-trace-analysis"
]
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
    hiding_tokens[link] = tokens_to_hide(MFU * PEAK, REACHED * rate, RANKS[link])
    print(f"{link:9}{REACHED * rate / 1e9:5.0f} GB/s{hiding_tokens[link]:8,.0f} tokens a GPU")
# --8<-- [end:hide]


# --8<-- [start:step]
block_bytes = {  # of one block's weights in bf16, which FSDP2 gathers at a time
    name: 2 * group_numbers(shapes_of(model), 1)[0] // len(model.blocks)
    for name, model in (("gpt2", gpt2), ("llama", llama))
}


def seconds_of_a_step(link: str, tokens: int) -> dict[str, float]:
    """FSDP2's step of Llama 3 8B on H100s: its matmuls, and what is sent, if nothing overlaps."""
    n = RANKS[link]
    blocks, root = group_numbers(shapes_of(llama), n)
    handed = fsdp_payload(blocks, root, gather_bytes=2, reduce_bytes=4)
    sent = sum(ring_bytes(size, n, name) for name, size in handed.items())
    matmuls = 6 * llama_parameters * tokens / (MFU * PEAK)
    return {"sent_bytes": sent, "wire": sent / (REACHED * LINKS[link]), "matmuls": matmuls}


TOKENS = {"node": 8192, "each": 8192, "short": 1024, "shared": 8192}  # on a GPU
STEP_SECONDS = {
    "node": seconds_of_a_step("NVLink", TOKENS["node"]),
    "each": seconds_of_a_step("400 Gb/s", TOKENS["each"]),
    "short": seconds_of_a_step("400 Gb/s", TOKENS["short"]),
    "shared": seconds_of_a_step("shared", TOKENS["shared"]),
}
# --8<-- [end:step]


# --8<-- [start:traces]
SPAN_SECONDS = {"deepseek": 129.012e-3, "recommender": 464.594e-3}
COMMUNICATION_SECONDS = {"deepseek": 113.030e-3, "recommender": 163.535e-3}
EXPOSED_SECONDS = {"deepseek": 4.162e-3, "recommender": 87.921e-3}

hidden_share = {name: 1 - EXPOSED_SECONDS[name] / COMMUNICATION_SECONDS[name] for name in SPAN_SECONDS}
exposed_share = {name: EXPOSED_SECONDS[name] / SPAN_SECONDS[name] for name in SPAN_SECONDS}
# --8<-- [end:traces]


# --8<-- [start:exercise_1]
HALF = 0.5 * GPUS["H100 SXM"].memory_bytes
smallest: dict[str, int | None] = {}
for name in STAGES:
    sizes = {n: sum(all_stages(n)[name].values()) for n in range(1, 1_025)}
    smallest[name] = next((n for n in sizes if sizes[n] <= HALF), None)
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
    backward_tokens[link] = tokens_to_hide(MFU * PEAK, REACHED * rate, RANKS[link], **moved)
    print(f"{link:9}{backward_tokens[link]:8,.0f} tokens a GPU")
    assert abs(backward_tokens[link] / hiding_tokens[link] - 1.5) < 1e-9
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
hidden = {name: COMMUNICATION_SECONDS[name] - EXPOSED_SECONDS[name] for name in SPAN_SECONDS}
serial_ratio = {name: 1 + hidden[name] / SPAN_SECONDS[name] for name in SPAN_SECONDS}
print({name: f"{ratio:.2f}" for name, ratio in serial_ratio.items()})
assert serial_ratio["deepseek"] > 1.8 > 1.2 > serial_ratio["recommender"]
# --8<-- [end:exercise_4]
