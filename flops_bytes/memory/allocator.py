"""PyTorch's caching allocator for CUDA, as rules: where a tensor lies, and how many bytes are reserved for all of them.

Source: pytorch/pytorch at 001074d, c10/cuda/CUDACachingAllocator.cpp. A test holds the defaults to what was recorded of
others' runs, whose lock files name PyTorch 2.6.0 and 2.9.1. No record holds the settings, only what follows by hand.
Left out, as what they do hangs on more than requests and frees: garbage_collection_threshold (on a memory fraction and
the ages of blocks), private pools of CUDA graphs, tensors that another stream still uses when they are freed.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MIB = 2**20
MIN_BLOCK_BYTES = 512  # kMinBlockSize: a request is rounded up to a multiple of it
SMALL_BYTES = MIB  # kSmallSize: the largest request of the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 * MIB  # kLargeBuffer
OWN_SEGMENT_BYTES = 10 * MIB  # kMinLargeAlloc: from here on a request has a segment of its own size
SEGMENT_STEP_BYTES = 2 * MIB  # kRoundLarge: of which that size is a multiple
ADDRESS_BYTES = 2**40  # of a segment that can grow: enough; PyTorch takes 9/8 of the card's memory


def up(size: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `size`."""
    return -(-size // step) * step


def segment_bytes(block_bytes: int) -> int:
    """Bytes of the segment that is asked of CUDA for a block, if no free one is large enough.

    A small block, of 1 MiB at most, gets 2 MiB; one below 10 MiB gets 20 MiB; a larger one its own, in steps of 2 MiB
    (c10/cuda/CUDACachingAllocator.cpp).

    >>> [segment_bytes(size) // MIB for size in (512, 3 * MIB, 33 * MIB)]
    [2, 20, 34]
    """
    if block_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    return LARGE_SEGMENT_BYTES if block_bytes < OWN_SEGMENT_BYTES else up(block_bytes, SEGMENT_STEP_BYTES)


@dataclass(frozen=True)
class Settings:
    """PYTORCH_ALLOC_CONF, as far as it is stated here. Raises ValueError for what PyTorch refuses."""

    roundup_power2_divisions: int = (
        0  # pieces between two powers of two, to which a request is rounded up; a power of 2
    )
    max_split_size_bytes: int | None = None  # a free block of so many bytes or more is not split: max_split_size_mb MiB
    expandable_segments: bool = False

    def __post_init__(self) -> None:
        divisions, limit = self.roundup_power2_divisions, self.max_split_size_bytes
        if divisions < 0 or divisions & (divisions - 1):
            raise ValueError(f"roundup_power2_divisions={divisions}: it is a power of two, or 0 for none")
        if limit is not None and limit <= LARGE_SEGMENT_BYTES:
            raise ValueError(f"max_split_size_bytes={limit}: it is above {LARGE_SEGMENT_BYTES}, 20 MiB")
        if limit is not None and self.expandable_segments:
            raise ValueError("max_split_size_bytes with expandable_segments: what both do together is not stated here")

    def block_bytes(self, size: int) -> int:
        """Bytes of a block for a request of `size` bytes."""
        divisions = self.roundup_power2_divisions
        if divisions > 1 and size > MIN_BLOCK_BYTES * divisions:
            return up(size, (1 << (size.bit_length() - 1)) // divisions)
        return max(MIN_BLOCK_BYTES, up(size, MIN_BLOCK_BYTES))

    def splits(self, found: int, wanted: int, small: bool) -> bool:
        """Whether the rest of a block of `found` bytes becomes a free block, once `wanted` bytes of it are taken."""
        if small or self.expandable_segments:
            return found - wanted >= MIN_BLOCK_BYTES
        limit = self.max_split_size_bytes
        return found - wanted > SMALL_BYTES and (limit is None or wanted < limit)

    def fits(self, found: int, wanted: int) -> bool:
        """Whether a free block that is large enough may be taken."""
        limit = self.max_split_size_bytes
        if limit is None:
            return True
        return found < limit if wanted < limit else found < wanted + LARGE_SEGMENT_BYTES


class Pool(NamedTuple):
    """Blocks are shared only within one: small or large ones, of one stream."""

    small: bool
    stream: int


class FreeLists:
    """What a pool has that is not taken."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self.ready: list[tuple[int, int]] = []  # (size, address): the best fit comes first
        self.unmapped: list[int] = []  # addresses


class Block:
    """A piece of a segment, which lies at an address, between its neighbours in it."""

    def __init__(
        self,
        pool: FreeLists,
        segment: int,
        address: int,
        size: int,
        mapped: bool = True,
        before: "Block | None" = None,
        after: "Block | None" = None,
    ) -> None:
        self.pool, self.segment, self.address, self.nbytes = pool, segment, address, size
        self.taken, self.requested = False, 0  # bytes
        self.mapped = mapped  # False: addresses without memory, in a segment that can grow
        self.before, self.after = before, after

    def cut(self, size: int) -> "Block":
        """Keeps the first `size` bytes; what is left becomes the block behind it."""
        rest = Block(
            self.pool,
            self.segment,
            self.address + size,
            self.nbytes - size,
            mapped=self.mapped,
            before=self,
            after=self.after,
        )
        if rest.after:
            rest.after.before = rest
        self.nbytes, self.after = size, rest
        return rest


class OutOfMemory(Exception):
    """A request that the capacity cannot hold, though all that lay free was given back first."""


class Allocator:
    """Gives addresses to requests as PyTorch's does, on one device. Sizes and addresses are in bytes.

    place: the address of a segment of so many bytes, which CUDA chooses; by default each lies above all before.
    capacity_bytes: what all segments may have together, as after torch.cuda.set_per_process_memory_fraction.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        place: Callable[[int], int] | None = None,
        capacity_bytes: int | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.capacity_bytes = capacity_bytes
        self.requested_bytes = self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.retries = 0  # num_alloc_retries: how often the cache was emptied, to ask CUDA again
        self.segments: dict[int, int] = {}  # bytes by address; of those that can grow, the bytes that they have
        self._blocks: dict[int, Block] = {}  # by address: taken, free, or without memory
        self._small: dict[int, FreeLists] = {}  # by stream
        self._large: dict[int, FreeLists] = {}
        self._growing: set[int] = set()  # segments
        self.place = place or upwards()

    def allocate(self, size: int, stream: int = 0) -> int:
        """The address of a block for `size` bytes, above 0. Raises ValueError; OutOfMemory with a capacity."""
        if size <= 0:
            raise ValueError(f"{size} bytes: an empty tensor asks for nothing")
        wanted = self.settings.block_bytes(size)
        pool = self._lists(wanted <= SMALL_BYTES, stream)
        block = self._best(pool, wanted)
        return self._take(self._drop(block) if block else self._reserve(pool, wanted), wanted, size)

    def allocate_at(self, address: int, size: int) -> bool:
        """Takes the free block that begins there, whether or not the rules would: False if none is large enough."""
        block, wanted = self._blocks.get(address), self.settings.block_bytes(size)
        if not block or block.taken or not block.mapped or block.nbytes < wanted:
            return False
        self._take(self._drop(block), wanted, size)
        return True

    def foresee(self, size: int, stream: int = 0) -> tuple[int, int] | None:
        """The address that a request would get now, and the bytes that are free there; None: CUDA would be asked."""
        wanted = self.settings.block_bytes(size)
        block = self._best(self._lists(wanted <= SMALL_BYTES, stream), wanted)
        return (block.address, block.nbytes) if block else None

    def free_at(self, address: int) -> int:
        """The bytes of the free block that begins there; 0 if none does."""
        block = self._blocks.get(address)
        return block.nbytes if block and block.mapped and not block.taken else 0

    def empty_segments(self) -> set[int]:
        """The segments that hold nothing, but for those that grow."""
        return {at for at, size in self.segments.items() if self.free_at(at) == size} - self._growing

    def free(self, address: int) -> None:
        """Gives back the block that lies there. Raises KeyError if none is taken there."""
        block = self._blocks[address]
        if not block.taken:
            raise KeyError(address)
        self.requested_bytes -= block.requested
        self.allocated_bytes -= block.nbytes
        block.taken, block.requested = False, 0
        self._keep(block)

    def empty_cache(self) -> list[int]:
        """Gives back to CUDA all segments that hold nothing: their addresses. Those that can grow give back pages."""
        whole = sorted(self.empty_segments())
        for segment in whole:
            self.release(segment)
        for block in [x for x in self._blocks.values() if x.segment in self._growing and x.mapped and not x.taken]:
            self._unmap(block)
        return whole

    def add_segment(self, address: int, size: int, pool: Pool, taken: Mapping[int, tuple[int, int]]) -> None:
        """A segment as it was found, with the blocks that were `taken` of it: by address, bytes requested and had.

        A block that had no more than 0 bytes has what the rules give it, of what lies before the next one.
        Raises ValueError if blocks lie over each other or outside the segment.
        """
        pieces, here = [], address  # bytes, and those requested: 0 of what is free
        ends = [*sorted(taken), address + size][1:]
        for (at, (requested, had)), end in zip(sorted(taken.items()), ends, strict=False):
            bytes_had, room = had or self.settings.block_bytes(requested), end - at
            if at < here or bytes_had > room:
                raise ValueError(f"{bytes_had} bytes at {at} lie over another block, or outside their segment")
            if not had and not self.settings.splits(room, bytes_had, pool.small):
                bytes_had = room
            pieces += [(at - here, 0), (bytes_had, requested)]
            here = at + bytes_had
        pieces.append((address + size - here, 0))
        block, blocks = self._segment(address, size, self._lists(pool.small, pool.stream)), []
        for length, requested in (piece for piece in pieces if piece[0]):
            rest = block.cut(length) if length < block.nbytes else None
            block.taken = bool(requested)
            blocks.append((block, requested))
            block = rest or block
        for block, requested in blocks:
            if requested:
                self._took(block, requested)
            else:
                self._keep(block)

    def release(self, segment: int) -> None:
        """Gives a segment back to CUDA. Raises KeyError if there is none, or if something of it is taken."""
        block = self._blocks[segment]
        if block.taken or block.nbytes != self.segments[segment]:
            raise KeyError(segment)
        self._drop(block)
        self.reserved_bytes -= self.segments.pop(segment)

    def blocks(self, segment: int) -> Iterator[Block]:
        """The blocks of a segment that have memory, by address. Raises KeyError if there is no such segment."""
        block: Block | None = self._blocks[segment]
        while block:
            if block.mapped:
                yield block
            block = block.after

    def _lists(self, small: bool, stream: int) -> FreeLists:
        pools = self._small if small else self._large
        if stream not in pools:
            pools[stream] = FreeLists(small)
        return pools[stream]

    def _take(self, block: Block, wanted: int, size: int) -> int:
        """A block that is in no list any more, or what is needed of it."""
        if self.settings.splits(block.nbytes, wanted, block.pool.small):
            rest, block.taken = block.cut(wanted), True
            self._keep(rest)
        return self._took(block, size)

    def _took(self, block: Block, size: int) -> int:
        block.taken, block.requested = True, size
        self._blocks[block.address] = block
        self.requested_bytes += size
        self.allocated_bytes += block.nbytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block.address

    def _keep(self, block: Block) -> None:
        """Merges a block with its neighbours that are as free as it is, and lists it."""
        before, after = block.before, block.after
        if before and not before.taken and before.mapped == block.mapped:
            self._blocks.pop(block.address, None)
            self._drop(before)
            block.address, block.nbytes, block.before = before.address, before.nbytes + block.nbytes, before.before
        if after and not after.taken and after.mapped == block.mapped:
            self._drop(after)
            block.nbytes, block.after = block.nbytes + after.nbytes, after.after
        self._blocks[block.address] = block
        if block.before:
            block.before.after = block
        if block.after:
            block.after.before = block
        if block.mapped:
            insort(block.pool.ready, (block.nbytes, block.address))
        else:
            insort(block.pool.unmapped, block.address)

    def _drop(self, block: Block) -> Block:
        """Out of its list."""
        if block.mapped:
            block.pool.ready.pop(bisect_left(block.pool.ready, (block.nbytes, block.address)))
        else:
            block.pool.unmapped.remove(block.address)
        return self._blocks.pop(block.address)

    def _best(self, pool: FreeLists, wanted: int) -> Block | None:
        """The smallest free block that is large enough; of equally large ones, that at the lowest address."""
        free = pool.ready
        at = bisect_left(free, (wanted, 0))
        if at == len(free):
            return None
        if self._growing:
            while at + 1 < len(free) and self._could_have(free[at + 1]) < self._could_have(free[at]):
                at += 1  # one that can grow counts with the addresses behind it
        return self._blocks[free[at][1]] if self.settings.fits(free[at][0], wanted) else None

    def _could_have(self, free: tuple[int, int]) -> int:
        after = self._blocks[free[1]].after
        return free[0] + (after.nbytes if after and not after.mapped else 0)

    def _reserve(self, pool: FreeLists, wanted: int) -> Block:
        """A block of memory that is new from CUDA, in no list."""
        size = segment_bytes(wanted)
        if not self._has_room(size) and not (self._release_oversize(pool, wanted) and self._has_room(size)):
            self.empty_cache()
            self.retries += 1
            if not self._has_room(size):
                raise OutOfMemory(f"{size} bytes beside {self.reserved_bytes} reserved, of {self.capacity_bytes}")
        if self.settings.expandable_segments:
            return self._grow(pool, wanted)
        return self._segment(self.place(size), size, pool)

    def _has_room(self, size: int) -> bool:
        return self.capacity_bytes is None or self.reserved_bytes + size <= self.capacity_bytes

    def _segment(self, address: int, size: int, pool: FreeLists) -> Block:
        self.segments[address] = 0
        self._count(address, size)
        return Block(pool, address, address, size)

    def _count(self, segment: int, size: int) -> None:
        self.segments[segment] += size
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _release_oversize(self, pool: FreeLists, wanted: int) -> bool:
        """With max_split_size: the smallest free segment that is large enough goes, or the largest until they are."""
        limit, free = self.settings.max_split_size_bytes, pool.ready
        if limit is None:
            return False
        wanted = max(wanted, limit)
        at = bisect_left(free, (wanted, 0))
        if at < len(free):
            self.release(free[at][1])
            return True
        released = 0
        while free and released < wanted and free[-1][0] >= limit:
            released += free[-1][0]
            self.release(free[-1][1])
        return released >= wanted

    def _grow(self, pool: FreeLists, wanted: int) -> Block:
        """A block at the lowest addresses that have room, to which pages are added as needed, in no list."""
        rooms = (self._room(at, wanted) for at in pool.unmapped)
        first = next((block for block in rooms if block), None)
        if first is None:
            address = self.place(ADDRESS_BYTES)
            self.segments[address] = 0
            self._growing.add(address)
            first = Block(pool, address, address, ADDRESS_BYTES, mapped=False)
            self._keep(first)
        block = first if first.mapped else self._map(first, wanted)
        while block.nbytes < wanted:
            assert block.after  # addresses without memory, as _room() saw
            block = self._map(block.after, min(wanted - block.nbytes, block.after.nbytes))
        return self._drop(block)

    def _room(self, address: int, wanted: int) -> Block | None:
        """Where a block could begin, if addresses without memory and what is free beside them are enough."""
        block: Block | None = self._blocks[address]
        assert block
        if block.before and not block.before.taken:
            block = block.before
        first, room = block, 0
        while block and not block.taken and room < wanted:
            room, block = room + block.nbytes, block.after
        return first if room >= wanted else None

    def _map(self, block: Block, size: int) -> Block:
        """Gives whole pages of memory to the first addresses of a block that has none."""
        size = min(up(size, _page(block.pool)), block.nbytes)
        self._drop(block)
        rest = block.cut(size) if size < block.nbytes else None
        block.mapped = True
        self._count(block.segment, size)
        if rest:
            self._keep(rest)
        self._keep(block)
        return block

    def _unmap(self, block: Block) -> None:
        """Gives back the whole pages of a free block."""
        start, page = block.segment, _page(block.pool)
        begin = start + up(block.address - start, page)
        end = start + (block.address + block.nbytes - start) // page * page
        if end <= begin:
            return
        pieces = [self._drop(block)]
        if end < block.address + block.nbytes:
            pieces.append(block.cut(end - block.address))
        if begin > block.address:
            pieces.append(block)
            block = block.cut(begin - block.address)
            pieces[0] = block
        block.mapped = False
        self._count(block.segment, begin - end)
        for piece in pieces[1:]:
            self._keep(piece)
        self._keep(block)
        if block.nbytes == ADDRESS_BYTES:
            self._drop(block)
            self._growing.remove(block.segment)
            del self.segments[block.segment]


def _page(pool: FreeLists) -> int:
    return SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES


def downwards() -> Callable[[int], int]:
    """Places each new segment below all before, as CUDA mostly does."""
    lowest = 2**47

    def place(size: int) -> int:
        nonlocal lowest
        lowest -= up(size, SEGMENT_STEP_BYTES)
        return lowest

    return place


def upwards() -> Callable[[int], int]:
    """Places each new segment above all before."""
    highest = SEGMENT_STEP_BYTES

    def place(size: int) -> int:
        nonlocal highest
        highest += up(size, SEGMENT_STEP_BYTES)
        return highest - up(size, SEGMENT_STEP_BYTES)

    return place


def reserved(
    changes: Iterable[tuple[int, int]],
    settings: Settings | None = None,
    capacity_bytes: int | None = None,
    place: Callable[[int], int] | None = None,
) -> Allocator:
    """An allocator through which a step's storages went: peak_reserved_bytes and peak_allocated_bytes are its peaks.

    changes: in order, a storage and the bytes that it took or, negative, gave back: Trace.changes of lessons/trace.py.
    A storage that is resized gets a new block before its old one is freed, as on CUDA.
    Raises OutOfMemory with a capacity; ValueError for a storage that gives back more than it has.

    >>> steps = reserved([(1, 3 * MIB), (2, 40 * MIB), (1, -3 * MIB), (3, 5 * MIB)])
    >>> steps.peak_allocated_bytes // MIB, steps.peak_reserved_bytes // MIB
    (45, 60)
    """
    allocator = Allocator(settings, place, capacity_bytes)
    held: dict[int, tuple[int, int]] = {}  # address and bytes, by storage
    for storage, change in changes:
        address, had = held.pop(storage, (0, 0))
        if (size := had + change) < 0:
            raise ValueError(f"storage {storage} gives back {-change} bytes and has {had}")
        if size:
            held[storage] = allocator.allocate(size), size
        if had:
            allocator.free(address)
    return allocator
