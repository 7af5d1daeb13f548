# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""From a file of tokens to batches: windows, and how many tokens a second."""

import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
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

from flops_bytes.time.gpus import GPUS

warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
torch.set_num_threads(1)  # on a CPU; the workers below need the others

VOCAB_SIZE, BATCH, SEQ_LEN = 50257, 32, 1024  # GPT-2's vocabulary and window
CORPUS_TOKENS = 2**25

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)


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


# --8<-- [end:get_batch]


# --8<-- [start:windows]
np.save("ten.npy", np.arange(10, dtype=np.uint16))
ten = TokenFile(Path("ten.npy"), vocab_size=10)
inputs, targets = get_batch(ten, size=2, seq_len=4, draw=torch.Generator().manual_seed(0))
print(inputs)
print(targets)
# --8<-- [end:windows]


LENGTH, WINDOW = len(ten), inputs.shape[1]
many_inputs, many_targets = get_batch(ten, 1000, WINDOW, torch.Generator().manual_seed(0))
assert many_inputs.unique().tolist() == list(range(9))
assert many_targets.unique().tolist() == list(range(1, 10))  # the last token too
Path("ten.npy").unlink()


rng = np.random.default_rng(0)
tokens = rng.integers(VOCAB_SIZE, size=CORPUS_TOKENS, dtype=np.uint16)
np.save(folder / "corpus.npy", tokens)
corpus = TokenFile(folder / "corpus.npy", VOCAB_SIZE)


# --8<-- [start:needed]
MFU, PARAMETERS = 0.4, 124_439_808  # of a good step; GPT-2 small
needed_rate = MFU * GPUS["H100 SXM"].peak_flop_per_second["bfloat16"] / (6 * PARAMETERS)
# --8<-- [end:needed]


class Windows(Dataset[Pair]):
    """Every window of a token file with its targets, by the place where it begins."""

    def __init__(self, file: TokenFile, seq_len: int) -> None:
        self.file, self.seq_len = file, seq_len

    def __len__(self) -> int:
        return len(self.file) - self.seq_len

    def __getitem__(self, start: int) -> Pair:
        row = self.file.tokens[start : start + self.seq_len + 1].astype(np.int64)
        return torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])


def make_loader(batches: int, num_workers: int) -> DataLoader[Pair]:
    """Random windows of the corpus; the draw is made here, not in the workers."""
    windows, draw = Windows(corpus, SEQ_LEN), torch.Generator().manual_seed(0)
    drawn = RandomSampler(windows, True, batches * BATCH, generator=draw)
    return DataLoader(windows, BATCH, sampler=drawn, num_workers=num_workers)


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
temporary.cleanup()  # the files are no longer needed


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
# --8<-- [end:exercise_twins]


assert distinct == {"one_seed": 3, "seed_per_worker": 6}


# --8<-- [start:exercise_epoch]
starts = torch.randint(10_000, (10_000,), generator=torch.Generator().manual_seed(0))
print(f"formula {(1 - 1 / 10_000) ** 10_000:.1%}, drawn {1 - len(set(starts.tolist())) / 10_000:.1%}")
# --8<-- [end:exercise_epoch]


num_windows = CORPUS_TOKENS - SEQ_LEN
epoch_unseen_share = (1 - 1 / num_windows) ** num_windows
assert abs(epoch_unseen_share - math.exp(-1)) < 1e-6
