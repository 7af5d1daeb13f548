# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""A loader that works while the step runs: the longer of the two times, not their sum."""

import statistics
import time
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from flops_bytes.time.gpus import GPUS

warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)


BATCH, SEQ_LEN, NUM_BATCHES = 32, 1024, 24


class Packed(IterableDataset[Tensor]):
    """Batches out of compressed shards: making one takes a while."""

    def __init__(self) -> None:
        tokens = np.random.default_rng(0).integers(50257, size=2**19, dtype=np.uint16)
        self.shard = zlib.compress(tokens.tobytes(), level=1)

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(NUM_BATCHES):
            tokens = np.frombuffer(zlib.decompress(self.shard), dtype=np.uint16)
            rows = tokens[: BATCH * SEQ_LEN].reshape(BATCH, SEQ_LEN)
            yield torch.from_numpy(rows.astype(np.int64))


source = Packed()


def loop_seconds(num_workers: int, work_seconds: float) -> float:
    """The median step of a training loop: wait for a batch, then for the GPU."""
    loader = iter(DataLoader(source, batch_size=None, num_workers=num_workers))
    next(loader)  # for the first batch, the worker has to start
    steps = []
    for _ in range(NUM_BATCHES - 1):
        began = time.perf_counter()
        next(loader)
        time.sleep(work_seconds)  # for the GPU's work, which takes no core of the CPU
        steps.append(time.perf_counter() - began)
    return statistics.median(steps)


# --8<-- [start:measure]
def compare(share: float) -> dict[str, float]:
    """A loop whose work takes this share of the loading, in turn and overlapped."""
    work = share * measured_load_seconds
    return {
        "work_seconds": work,
        "predicted_sum_seconds": measured_load_seconds + work,
        "sum_seconds": loop_seconds(num_workers=0, work_seconds=work),
        "predicted_max_seconds": max(measured_load_seconds, work),
        "max_seconds": loop_seconds(num_workers=1, work_seconds=work),
    }


measured_load_seconds = loop_seconds(num_workers=0, work_seconds=0)
SHARES = {"half": 0.5, "equal": 1, "double": 2}
measured_loops = {name: compare(share) for name, share in SHARES.items()}
# --8<-- [end:measure]


needed_rate = 0.4 * GPUS["H100 SXM"].peak_flop_per_second["bfloat16"] / (6 * 124_439_808)  # GPT-2 small
LINK_BYTES_PER_SECOND = 16 * 32e9 / 8 * 128 / 130  # PCI Express 5, 16 lanes, one way
IMAGE_SHAPE = 256, 3, 224, 224

token_batch_bytes = 2 * BATCH * SEQ_LEN * torch.int64.itemsize  # inputs and targets
image_batch_bytes = torch.Size(IMAGE_SHAPE).numel() * torch.float32.itemsize
predicted_tokens_seconds = token_batch_bytes / LINK_BYTES_PER_SECOND
predicted_images_seconds = image_batch_bytes / LINK_BYTES_PER_SECOND
link_share = predicted_tokens_seconds / (BATCH * SEQ_LEN / needed_rate)
assert link_share < 1e-3
