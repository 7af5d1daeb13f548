# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""From a file of tokens to batches: types, files, windows, memory, speed."""

# --8<-- [start:setup]
import math
import mmap
import statistics
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)

from flops_bytes.gpus import GPUS
from flops_bytes.measure import get_device

warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
torch.set_num_threads(1)  # on a CPU; the workers below need the others

VOCAB_SIZE, BATCH, SEQ_LEN = 50257, 32, 1024  # GPT-2's vocabulary and window

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)


def message_of(call: Callable[[], object]) -> str:
    """What the error of a call says that has to fail."""
    try:
        call()
    except (OSError, ValueError, RuntimeError, IndexError) as error:
        text = str(error).splitlines()[0].replace(f"{folder}/", "")
        return textwrap.fill(f"{type(error).__name__}: {text}", width=80)
    raise AssertionError("the call was expected to fail")


# --8<-- [end:setup]


# --8<-- [start:sizes]
LLAMA_TOKENS = 1.4e12  # Touvron et al. 2023
DTYPES = ("uint16", "int32", "int64")
LLAMA_3_VOCAB_SIZE = 128_256  # Grattafiori et al. 2024

corpus_bytes = {name: LLAMA_TOKENS * np.dtype(name).itemsize for name in DTYPES}
largest_id = {name: int(np.iinfo(name).max) for name in DTYPES}
for name in DTYPES:
    print(f"{name:7}{corpus_bytes[name] / 1e12:5.1f} TB, ids to {largest_id[name]:,}")

last_id = np.array([LLAMA_3_VOCAB_SIZE - 1])
wrapped_id = int(last_id.astype(np.uint16)[0])  # the upper bits are dropped
print(f"token {last_id[0]} in uint16: {wrapped_id}")
assert wrapped_id == (LLAMA_3_VOCAB_SIZE - 1) % 2**16
# --8<-- [end:sizes]


# --8<-- [start:not_npy]
ten = np.arange(10, dtype=np.uint16)
ten.tofile(folder / "data.npy")  # the wrong line: bytes alone, whatever the name
print(message_of(lambda: np.load(folder / "data.npy")))
print("read as int32:", np.memmap(folder / "data.npy", dtype=np.int32, mode="r"))

np.save(folder / "saved.npy", ten)
raw_bytes = (folder / "data.npy").stat().st_size
npy_bytes = (folder / "saved.npy").stat().st_size
header_bytes = npy_bytes - raw_bytes
print("tofile:", raw_bytes, "bytes, np.save:", npy_bytes, "bytes")
assert np.array_equal(np.load(folder / "saved.npy"), ten)
# --8<-- [end:not_npy]


# --8<-- [start:writable]
tokens = np.memmap(folder / "data.npy", dtype=np.uint16)  # no mode
tokens[0] = 999  # a slip
tokens.flush()
print("mode", tokens.mode)
print("on disk:", np.fromfile(folder / "data.npy", np.uint16))

read_only = np.memmap(folder / "data.npy", dtype=np.uint16, mode="r")
print(message_of(lambda: read_only.__setitem__(0, 0)))
# --8<-- [end:writable]


# --8<-- [start:windows]
LENGTH, WINDOW = 10, 4
generator = torch.Generator().manual_seed(0)
starts = torch.randint(LENGTH - WINDOW, (1000,), generator=generator).unique().tolist()
inputs_seen = sorted({start + i for start in starts for i in range(WINDOW)})
targets_seen = [token + 1 for token in inputs_seen]
print("windows begin at", starts)
print("inputs alone reach      ", inputs_seen)
print("targets, one to the right", targets_seen)
assert inputs_seen[-1] == LENGTH - 2 and targets_seen[-1] == LENGTH - 1
# --8<-- [end:windows]


# --8<-- [start:token_file]
class TokenFile:
    """Tokens in a .npy file, read-only, of which only what is touched is read."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        # as a plain array: np.memmap makes an object of its own for every slice
        self.tokens: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r"))
        found = f"{path} holds {self.tokens.dtype} of shape {self.tokens.shape}"
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise ValueError(f"{found}; expected one row of integers")
        if np.iinfo(self.tokens.dtype).max < vocab_size - 1:
            raise ValueError(f"{found}, too narrow for a vocabulary of {vocab_size}")
        self.path, self.vocab_size = path, vocab_size

    def __len__(self) -> int:
        return len(self.tokens)


# --8<-- [end:token_file]


# --8<-- [start:get_batch]
Pair = tuple[Tensor, Tensor]


def get_batch(file: TokenFile, size: int, seq_len: int, draw: torch.Generator) -> Pair:
    """Random windows, and the same one token on; int64, (size, seq_len) each."""
    num_windows = len(file) - seq_len  # each of seq_len + 1 tokens
    if num_windows < 1:
        raise ValueError(f"{file.path} has {len(file)} tokens, no window of {seq_len}")
    starts = torch.randint(num_windows, (size,), generator=draw).tolist()
    rows = np.stack([file.tokens[start : start + seq_len + 1] for start in starts])
    if rows.min() < 0 or rows.max() >= file.vocab_size:
        raise ValueError(f"{file.path} does not fit a vocabulary of {file.vocab_size}")
    batch = torch.from_numpy(rows.astype(np.int64))
    return batch[:, :-1], batch[:, 1:]


small = TokenFile(folder / "saved.npy", vocab_size=10)
inputs, targets = get_batch(small, 1000, WINDOW, generator)
print("inputs ", inputs[0].tolist())
print("targets", targets[0].tolist())
assert inputs.unique().tolist() == list(range(9))
assert targets.unique().tolist() == list(range(1, 10))  # the last token too
# --8<-- [end:get_batch]


# --8<-- [start:refused]
def open_saved(array: NDArray[Any], vocab_size: int = 10) -> TokenFile:
    """A token file of this array."""
    np.save(folder / "try.npy", array)
    return TokenFile(folder / "try.npy", vocab_size)


print(message_of(lambda: open_saved(np.zeros(10))))
print(message_of(lambda: open_saved(ten, vocab_size=LLAMA_3_VOCAB_SIZE)))
print(message_of(lambda: get_batch(small, 2, 10, generator)))
print(message_of(lambda: get_batch(open_saved(ten + 5), 64, 4, generator)))

ids = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
logits = torch.randn(4, 10, generator=generator)
print("embedding, int32 ids:", tuple(torch.nn.Embedding(10, 8)(ids).shape))
print(message_of(lambda: torch.nn.functional.cross_entropy(logits, ids)))
# --8<-- [end:refused]


# --8<-- [start:corpus]
CORPUS_TOKENS = 2**25


def write_corpus() -> None:
    """The same random tokens twice: raw, and as .npy."""
    rng = np.random.default_rng(0)
    array = rng.integers(VOCAB_SIZE, size=CORPUS_TOKENS, dtype=np.uint16)
    array.tofile(folder / "corpus.bin")
    np.save(folder / "corpus.npy", array)


write_corpus()
corpus_file_bytes = (folder / "corpus.bin").stat().st_size
corpus = TokenFile(folder / "corpus.npy", VOCAB_SIZE)
print(f"{len(corpus):,} tokens, {corpus_file_bytes:,} bytes")
# --8<-- [end:corpus]


# --8<-- [start:resident]
def get_resident(kind: str = "VmRSS") -> int | None:
    """Bytes of this process in memory now; "RssFile": pages of files.

    None where Linux does not tell.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    line = next((line for line in lines if line.startswith(f"{kind}:")), None)
    return int(line.split()[1]) * 1024 if line else None


def grown(kind: str, before: int | None) -> int | None:
    """How many bytes have come since."""
    now = get_resident(kind)
    return None if now is None or before is None else now - before


def measure_resident(action: Callable[[], Any]) -> dict[str, int | None]:
    """By how many bytes action() makes the process grow, its result kept."""
    before, before_file = get_resident(), get_resident("RssFile")
    result = action()
    growth = {
        "resident_bytes": grown("VmRSS", before),
        "file_bytes": grown("RssFile", before_file),
    }
    del result
    return growth


# --8<-- [end:resident]


# --8<-- [start:touch]
NUM_WINDOWS = 8


def map_and_touch(starts: Iterable[int], length: int = SEQ_LEN + 1) -> NDArray[Any]:
    """The raw file as if it were an array, of which these windows have been read."""
    mapped = np.memmap(folder / "corpus.bin", dtype=np.uint16, mode="r")
    for start in starts:
        mapped[start : start + length].max()
    return mapped


measured_page_bytes = mmap.PAGESIZE
window_bytes = (SEQ_LEN + 1) * 2  # uint16; it begins anywhere in a page
predicted_window_bytes = window_bytes + measured_page_bytes - 1  # on average
predicted_touched_bytes = NUM_WINDOWS * predicted_window_bytes

# in tokens: each begins elsewhere in its page
shift = measured_page_bytes // NUM_WINDOWS // 2
spread_out = [i * (CORPUS_TOKENS // NUM_WINDOWS + shift) for i in range(NUM_WINDOWS)]
measured_resident = {
    "mapped": measure_resident(lambda: map_and_touch([])),
    "windows": measure_resident(lambda: map_and_touch(spread_out)),
    "whole": measure_resident(lambda: map_and_touch([0], CORPUS_TOKENS)),
    "copy": measure_resident(lambda: np.array(map_and_touch([]))),
}
measured_touched_bytes = measured_resident["windows"]["resident_bytes"]
measured_touched_ratio = (measured_touched_bytes or 0) / predicted_touched_bytes or None
measured_unit_bytes = (measured_touched_bytes or 0) // NUM_WINDOWS or None
for name, growth in measured_resident.items():
    print(f"{name:8}", growth)
# --8<-- [end:touch]


# --8<-- [start:needed]
MFU, PARAMETERS = 0.5, 124_439_808  # GPT-2 small
PEAK_FLOP_PER_SECOND = GPUS["H100 SXM"].peak_flop_per_second["bfloat16"]
NEEDED_TOKENS_PER_SECOND = MFU * PEAK_FLOP_PER_SECOND / (6 * PARAMETERS)
print(f"one H100 asks for {NEEDED_TOKENS_PER_SECOND:,.0f} tokens per second")
# --8<-- [end:needed]


# --8<-- [start:dataset]
class Windows(Dataset[Pair]):
    """Every window of a token file with its targets, by the place where it begins."""

    def __init__(self, file: TokenFile, seq_len: int) -> None:
        self.file, self.seq_len = file, seq_len

    def __len__(self) -> int:
        return len(self.file) - self.seq_len

    def __getitem__(self, start: int) -> Pair:
        row = self.file.tokens[start : start + self.seq_len + 1].astype(np.int64)
        return torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])


def make_loader(batches: int, num_workers: int, pin: bool = False) -> DataLoader[Pair]:
    """Random windows of the corpus; the draw is made here, not in the workers."""
    windows, draw = Windows(corpus, SEQ_LEN), torch.Generator().manual_seed(0)
    drawn = RandomSampler(windows, True, batches * BATCH, generator=draw)
    options: dict[str, Any] = {"num_workers": num_workers, "pin_memory": pin}
    return DataLoader(windows, BATCH, sampler=drawn, **options)


first_inputs, first_targets = next(iter(make_loader(1, num_workers=0)))
print(tuple(first_inputs.shape), first_inputs.dtype)
assert torch.equal(first_inputs[:, 1:], first_targets[:, :-1])
# --8<-- [end:dataset]


# --8<-- [start:measure]
NUM_BATCHES, ROUNDS = 100, 5


def time_batches(make: Callable[[], Iterator[Any]]) -> dict[str, float]:
    """Seconds to the first batch, tokens per second after it: medians of all rounds."""
    first, rates = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        batches = make()
        next(batches)
        first.append(time.perf_counter() - began)
        began = time.perf_counter()
        count = sum(1 for _ in batches)
        rates.append(count * BATCH * SEQ_LEN / (time.perf_counter() - began))
    found = {"first_seconds": statistics.median(first)}
    return found | {"tokens_per_second": statistics.median(rates)}


def draw_from(way: str) -> Iterator[Pair]:
    """Batches of get_batch; the file is mapped anew, its pages not yet touched."""
    file = TokenFile(folder / "corpus.npy", VOCAB_SIZE)
    if way == "memmap":
        file.tokens = np.load(folder / "corpus.npy", mmap_mode="r")
    elif way == "touched":
        file.tokens.max()
    elif way == "in_memory":
        file.tokens = np.array(file.tokens)
    draw = torch.Generator().manual_seed(0)
    for _ in range(NUM_BATCHES):
        yield get_batch(file, BATCH, SEQ_LEN, draw)


SOURCES: dict[str, Callable[[], Iterator[Any]]] = {
    "memmap": lambda: draw_from("memmap"),
    "plain": lambda: draw_from("plain"),
    "touched": lambda: draw_from("touched"),
    "in_memory": lambda: draw_from("in_memory"),
    "loader_0": lambda: iter(make_loader(NUM_BATCHES, 0)),
    "loader_2": lambda: iter(make_loader(NUM_BATCHES, 2)),
}
measured_loading = {name: time_batches(make) for name, make in SOURCES.items()}
measured_rates = {n: t["tokens_per_second"] for n, t in measured_loading.items()}
needed = NEEDED_TOKENS_PER_SECOND
measured_supply_ratio = {n: rate / needed for n, rate in measured_rates.items()}
for name, rate in measured_rates.items():
    print(f"{name:11}{rate / 1e6:6.1f} million tokens per second")
# --8<-- [end:measure]


# --8<-- [start:pin]
def deliver(way: str) -> Iterator[Pair]:
    """Batches of a loader with two workers, on the GPU."""
    device = get_device()
    for pair in make_loader(NUM_BATCHES, num_workers=2, pin=way == "in_loader"):
        x, y = pair
        if way == "in_line":  # the wrong line: pinned where the training loop waits
            x, y = x.pin_memory(), y.pin_memory()
        ahead = way != "pageable"
        yield x.to(device, non_blocking=ahead), y.to(device, non_blocking=ahead)
        torch.cuda.synchronize()


def time_delivery(way: str) -> dict[str, float] | None:
    """Rate of a way to the GPU; None without one."""
    return time_batches(lambda: deliver(way)) if torch.cuda.is_available() else None


WAYS = ("pageable", "in_line", "in_loader")
measured_delivery = {way: time_delivery(way) for way in WAYS}
for way, delivered in measured_delivery.items():
    print(f"{way:10}", delivered and round(delivered["tokens_per_second"]))
temporary.cleanup()  # the files are no longer needed
# --8<-- [end:pin]


# --8<-- [start:exercise_twins]
class Stream(IterableDataset[int]):
    """Random starts from a generator that every worker gets a copy of."""

    def __init__(self, per_worker: bool) -> None:
        self.per_worker = per_worker

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        seed = info.id if info and self.per_worker else 0
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield int(torch.randint(1_000_000, (), generator=generator))


def first_starts(per_worker: bool) -> list[int]:
    """The first six starts of two workers, which take turns."""
    loader = DataLoader(Stream(per_worker), batch_size=None, num_workers=2)
    return [int(start) for start in islice(loader, 6)]


one_seed, two_seeds = first_starts(per_worker=False), first_starts(per_worker=True)
distinct = {"one_seed": len(set(one_seed)), "seed_per_worker": len(set(two_seeds))}
print(distinct)
assert distinct == {"one_seed": 3, "seed_per_worker": 6}
# --8<-- [end:exercise_twins]


# --8<-- [start:exercise_epoch]
def unseen_share(n: int) -> float:
    """Share of n windows never drawn, if n are drawn with replacement."""
    return (1 - 1 / n) ** n


epoch_unseen_share = unseen_share(CORPUS_TOKENS - SEQ_LEN)
drawn = torch.randint(10_000, (10_000,), generator=generator)
measured_unseen_share = 1 - len(set(drawn.tolist())) / 10_000
print(f"formula {epoch_unseen_share:.1%}, drawn {measured_unseen_share:.1%}")
assert abs(epoch_unseen_share - math.exp(-1)) < 1e-6
assert abs(measured_unseen_share - math.exp(-1)) < 0.02
# --8<-- [end:exercise_epoch]
