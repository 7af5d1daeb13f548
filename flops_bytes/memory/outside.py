"""What nvidia-smi shows of a training process beside what PyTorch's allocator has reserved: lines with sources.

Each line has a lowest and a highest count. Where nobody has published a reading of a card, a line rests on others'
readings, and says so. What no line counts: kernels of torch.compile and of libraries of others, a desktop on the card.
CUDA loads kernels when they are first called, since 11.7; before, all of PyTorch's stood in the context: 1 GB and more
(pytorch/pytorch, issue 107667, 28 August 2023).
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from flops_bytes.memory.allocator import MIB, up
from flops_bytes.memory.chips import CHIPS, Chip, threads_of

GITHUB = "https://github.com"
SOURCES = {  # what the lines rest on; as of November 2026
    "record": "measurements/nvidia-h200/link_and_context.json",  # driver 580.159, CUDA 13.0, PyTorch 2.11
    "a100-contexts": f"{GITHUB}/awslabs/keys_values/issues/92",  # CUDA 12.8; of 39.49 GiB; three ranks' bare contexts
    "a100-training": f"{GITHUB}/pico-lm/pico-train/issues/50",  # 30 May 2025
    "a100-coser": f"{GITHUB}/TianheWu/CoSeR/issues/10",  # 10 January 2025; forward only
    "t4-catvton": f"{GITHUB}/Zheng-Chong/CatVTON/issues/133",  # 25 November 2025; forward only
    "t4-koalpaca": f"{GITHUB}/Beomi/KoAlpaca/issues/112",  # 29 December 2025
    "4090-phidias": f"{GITHUB}/3DTopia/Phidias-Diffusion/issues/8",  # 10 August 2025; forward only
    "4090-torchchat": f"{GITHUB}/pytorch/torchchat/issues/1341",  # PyTorch 2.6 with CUDA 12.1; forward only
    "4090-flux": f"{GITHUB}/pinokiofactory/flux-webui/issues/11",  # 12 August 2024; forward only
    "5090-crafter": f"{GITHUB}/TrajectoryCrafter/TrajectoryCrafter/issues/20",  # 2 April 2025; forward only
    "5090-wan": f"{GITHUB}/Wan-Video/Wan2.1/issues/465",  # 3 July 2025; forward only
    "nccl": f"{GITHUB}/NVIDIA/nccl/tree/dbc86fd06e8b0c4517b95d8958a09ccacf9520c9",  # v2.28.9-1; 2.30.7 has these sizes
    "nccl-a100": f"{GITHUB}/NVIDIA/nccl/issues/964",  # 16 August 2023
    "nccl-all-to-all": f"{GITHUB}/NVIDIA/nccl/issues/1685",  # 16 April 2025
}


class Outside(NamedTuple):
    """A line: bytes of one GPU, between these two."""

    name: str
    low_bytes: int
    high_bytes: int
    rests_on: str  # a key of SOURCES
    assumed_of: str = ""  # the cards whose readings stand in for this card's; "" where the source is about the card


def middle_bytes(lines: Sequence[Outside]) -> int:
    """Of all lines, halfway between the sum of the lows and that of the highs."""
    return sum([line.low_bytes + line.high_bytes for line in lines]) // 2


# A bare context grows with the threads that the card can hold, about 2,000 bytes for each: 2,043 and 1,963 here.
CONTEXTS = [
    ("H200 SXM", 552402944, "record"),
    ("A100 40GB SXM", 414 * MIB, "a100-contexts"),
]


class OutOfMemoryReading(NamedTuple):
    """What PyTorch's message said of a process that had multiplied, in the hundredths that it prints."""

    gpu: str
    process_gib_hundredths: int  # What the process had, with its context.
    allocated_gib_hundredths: int
    cached_mib_hundredths: int  # "Reserved by PyTorch but unallocated".
    rests_on: str


READINGS = [
    OutOfMemoryReading("A100 40GB SXM", 3745, 3693, 3452, "a100-training"),
    OutOfMemoryReading("A100 40GB SXM", 1425, 1287, 91201, "a100-coser"),
    OutOfMemoryReading("T4", 411, 372, 26421, "t4-catvton"),
    OutOfMemoryReading("T4", 1451, 1423, 16749, "t4-koalpaca"),
    OutOfMemoryReading("RTX 4090", 1456, 1386, 21320, "4090-phidias"),
    OutOfMemoryReading("RTX 4090", 2280, 2210, 22214, "4090-torchchat"),
    OutOfMemoryReading("RTX 4090", 2269, 2172, 52054, "4090-flux"),
    OutOfMemoryReading("RTX 5090", 2689, 2595, 34386, "5090-crafter"),
    OutOfMemoryReading("RTX 5090", 3134, 3074, 1941, "5090-wan"),
]
ROUNDED_BYTES = 2**30 // 100  # two numbers to a hundredth of a GiB: each can be off by half of it
RECORDED_BYTES = 726466560  # of the H200: after a tensor, products in two types and attention


def same_chip(one: str, other: str) -> bool:
    """Whether two names are of one chip, whatever its memory and its slot."""
    return one == other or any(one.startswith(stem) and other.startswith(stem) for stem in ("A100 ", "H200 "))


def context_line(gpu: str) -> Outside:
    """The CUDA context: as read of this chip; else by threads, between those that were read; else between all cards."""
    for name, nbytes, source in CONTEXTS:
        if same_chip(gpu, name):
            return Outside("context", nbytes, nbytes, source)
    chips = [CHIPS[gpu]] if gpu in CHIPS else list(CHIPS.values())
    scaled = [nbytes * threads_of(chip) // threads_of(CHIPS[name]) for name, nbytes, _ in CONTEXTS for chip in chips]
    return Outside("context", min(scaled), max(scaled), "record", "H200 and A100, by threads")


def kernels_read() -> list[Outside]:
    """What each card had beside its context, under the cards' names: a process that had multiplied, less a context."""
    bare = CONTEXTS[0][1]
    lines = [Outside("H200 SXM", RECORDED_BYTES - bare, RECORDED_BYTES - bare, "record")]
    for reading in READINGS:
        not_allocated = (reading.process_gib_hundredths - reading.allocated_gib_hundredths) * 2**30
        beside = (not_allocated - reading.cached_mib_hundredths * MIB) // 100
        context = context_line(reading.gpu)
        low = max(0, beside - ROUNDED_BYTES - context.high_bytes)
        lines.append(Outside(reading.gpu, low, beside + ROUNDED_BYTES - context.low_bytes, reading.rests_on))
    return lines


def kernels_line(gpu: str) -> Outside:
    """The kernels that a step has loaded, cuBLAS's and attention's too: as read of this chip; else of one of its
    compute capability, for which the same are compiled; else between all that were read."""
    lines = kernels_read()
    alike = [line for line in lines if gpu in CHIPS and CHIPS[line.name].capability == CHIPS[gpu].capability]
    own = [line for line in alike if same_chip(gpu, line.name)]
    read = own or alike or lines
    assumed = "" if own else alike[0].name if alike else "H200, A100, T4, RTX 4090 and 5090"
    low, high = min(line.low_bytes for line in read), max(line.high_bytes for line in read)
    return Outside("kernels", low, high, read[0].rests_on, assumed)


# NCCL's code: src/init.cc (sizes), src/include/device.h, src/transport/p2p.cc, net.cc and nvls.cc, src/channel.cc.
STEPS = 8  # NCCL_STEPS
SIMPLE_BYTES = 4 * MIB  # NCCL_BUFFSIZE
LL_BYTES = 8 * 512 * STEPS * 16  # lines a thread, threads, steps, bytes of a line
LL128_BYTES = 120 * 640 * STEPS * 8  # elements a thread, threads, steps, bytes of an element
HEAD_BYTES = 4096  # of either end: ncclSendMem, ncclRecvMem
PAGE_BYTES = 2 * MIB  # of CUDA's virtual memory, which NCCL takes where it can: the least of each allocation
SEND_BYTES = up(HEAD_BYTES, PAGE_BYTES)
RECEIVE_BYTES = up(HEAD_BYTES + LL_BYTES + LL128_BYTES + SIMPLE_BYTES, PAGE_BYTES)
PAIR_BYTES = SEND_BYTES + RECEIVE_BYTES  # to one GPU of the node and from one; on A100 its halves are equal
NET_BYTES = up(LL128_BYTES + SIMPLE_BYTES, PAGE_BYTES)  # to another node, or from it; LL's lie in the host's memory
NVLS_CHUNK_BYTES = 128 * 1024  # NCCL_NVLS_CHUNKSIZE
NVLS_HEADS = 32  # at most: NCCL_MAX_NVLS_ARITY
TABLES = 3  # allocations for each channel: peers twice, and the ring's ranks
TREE_PEERS = 3  # in other nodes: a parent and two children
FAR_CHANNELS = (2, 4)  # for a peer in another node: 2; in 2.30 one for each 14 GB/s of its network card
FAR_STEPS, FAR_CHUNK_BYTES = 16, 128 * 1024  # NCCL_SHARED_STEPS, NCCL_P2P_NET_CHUNKSIZE
MOST_CHANNELS = 16  # between nodes: two for each of eight network cards (NVIDIA/nccl, issue 1453)
# Each group of two GPUs took 544 MiB (issue 964): 24 pairs, 288 MiB, and this, which nobody explained: tables, and
# NCCL's kernels. Four took 144 MiB more: 6 MiB of a tree's end in each channel.
REST_BYTES = (544 - 24 * 12) * MIB
# 3.28 GB more were read after a first all-to-all, where 7 peers and 32 channels make 2.625 GiB (issue 1685): if GB
# are GiB there, a quarter more.
ALL_TO_ALL_PERCENT = 125


def power_up(n: int) -> int:
    """The smallest power of two that is not below it."""
    power = 1
    while power < n:
        power *= 2
    return power


def linked(chip: Chip) -> bool:
    """Whether NVLink joins a node's GPUs; else they may meet in the host's memory, and so may nodes."""
    return chip.node_channels[0] > 2


def node_channels(chip: Chip, local: int, nodes: int, cards: int) -> tuple[int, int]:
    """Channels of a communicator, the fewest and the most. Between nodes two for each network card that its GPUs of a
    node have, twice as many from Hopper on while they are few: NVIDIA/nccl, issues 1453 (8 GPUs) and 1189 (2)."""
    if nodes == 1:
        return chip.node_channels
    channels = 2 * min(local, cards)
    if chip.capability >= 90 and linked(chip):
        channels *= 2
    return min(channels, MOST_CHANNELS), min(channels, MOST_CHANNELS)


def tables_bytes(chip: Chip, channels: int) -> int:
    """What a communicator takes before it connects anyone: each a page, however small."""
    nvls = chip.nvls + 1 if chip.nvls else 0  # peers of NVLS in each channel, and its credits
    return (TABLES * power_up(channels) + 2 + nvls) * PAGE_BYTES


def collective_bytes(chip: Chip, ranks: int, local: int, cards: int) -> tuple[int, int]:
    """Of a communicator that gathers and reduces: at least its rings; at most trees and NVLS too, which reductions of
    other sizes connect when they first need them. `local` ranks are in each node."""
    nodes = -(-ranks // local)
    fewest, most = node_channels(chip, local, nodes, cards)
    out = -(-most // local) if nodes > 1 else 0  # channels in which this GPU sends to another node
    inside = (most - out) * PAIR_BYTES if local > 1 else 0
    low = tables_bytes(chip, fewest)
    if linked(chip):
        low += ((fewest - out) * PAIR_BYTES if local > 1 else 0) + out * 2 * NET_BYTES
    high = max(tables_bytes(chip, most), REST_BYTES) + inside + out * 2 * NET_BYTES
    if ranks > 2:
        high += inside + out * 2 * TREE_PEERS * NET_BYTES  # a chain in the node runs the other way than its ring
    if chip.nvls and local > 1:
        high += chip.nvls * 2 * STEPS * NVLS_CHUNK_BYTES * min(local, NVLS_HEADS) + out * 2 * TREE_PEERS * NET_BYTES
    return low, high


def pairs_bytes(chip: Chip, peers: int, local: int, nodes: int, cards: int) -> tuple[int, int]:
    """Of a communicator that sends to so many others and receives from them: each of the node has its own channels,
    all of them, or as few as a peer in another node has."""
    channels = power_up(node_channels(chip, local, nodes, cards)[1])
    fewest, most = (channels, channels) if nodes == 1 else FAR_CHANNELS
    near = min(peers, local - 1) * PAIR_BYTES
    shared = 0 if nodes == 1 else 2 * channels * FAR_STEPS * FAR_CHUNK_BYTES  # both ways, for all such peers
    low = shared + tables_bytes(chip, channels)
    high = shared + max(tables_bytes(chip, channels), REST_BYTES)
    if linked(chip):
        low += near * min(channels, fewest)
    return low, high + near * min(channels, most) * ALL_TO_ALL_PERCENT // 100


class Groups(NamedTuple):
    """How many ranks each group of a GPU has, beside those that split the batch."""

    tensor_ranks: int = 1
    context_ranks: int = 1
    pipeline_ranks: int = 1
    expert_ranks: int = 1
    replicas: int = 1  # Of hybrid sharding: copies of what ZeRO shards.


NO_GROUPS = Groups()


def nccl_lines(
    gpu: str, gpus: int, node_gpus: int, network_cards: int = 0, groups: Groups = NO_GROUPS
) -> list[Outside]:
    """A line for each communicator of a GPU: ranks of a tensor group lie side by side, then those of the context group
    and all those of the data group, of which context and expert groups are parts, then replicas, then stages. Each
    communicator has buffers of its own."""
    tensor, pipeline, expert = groups.tensor_ranks, groups.pipeline_ranks, groups.expert_ranks
    data = gpus // (tensor * pipeline * groups.replicas)
    cards = network_cards or node_gpus
    chips = [CHIPS[gpu]] if gpu in CHIPS else list(CHIPS.values())
    lines: list[Outside] = []

    def local(ranks: int, inner: int) -> int:
        """So many ranks of a group are in each node, if each is `inner` ranks from the next."""
        return max(1, min(ranks, node_gpus // inner))

    def add(name: str, found: list[tuple[int, int]], source: str) -> None:
        low, high = min(low for low, _ in found), max(high for _, high in found)
        lines.append(Outside(name, low, high, source, "" if gpu in CHIPS else "all cards"))

    def collectives(name: str, ranks: int, inner: int) -> None:
        add(name, [collective_bytes(chip, ranks, local(ranks, inner), cards) for chip in chips], "nccl")

    if data > 1:
        collectives("nccl_data", data, tensor)
    if tensor > 1:
        collectives("nccl_tensor", tensor, 1)
    if groups.context_ranks > 1:
        collectives("nccl_context", groups.context_ranks, tensor)
    if groups.replicas > 1:
        collectives("nccl_replicas", groups.replicas, tensor * data)
    if pipeline > 1:
        near = local(pipeline, tensor * data * groups.replicas)
        nodes, peers = -(-pipeline // near), min(2, pipeline - 1)
        add("nccl_pipeline", [pairs_bytes(chip, peers, near, nodes, cards) for chip in chips], "nccl")
    if expert > 1:
        near = local(expert, tensor)
        nodes = -(-expert // near)
        add("nccl_expert", [pairs_bytes(chip, expert - 1, near, nodes, cards) for chip in chips], "nccl-all-to-all")
    return lines


@cache
def outside_lines(
    gpu: str, gpus: int, node_gpus: int, network_cards: int = 0, groups: Groups = NO_GROUPS
) -> list[Outside]:
    """Bytes of one GPU beside PyTorch's allocator, line by line; the sum of the lows and of the highs is what
    nvidia-smi shows beside the reserved bytes. `network_cards` of a node: 0 is one for each GPU."""
    lines = [context_line(gpu), kernels_line(gpu)]
    return lines + nccl_lines(gpu, gpus, node_gpus, network_cards, groups)
