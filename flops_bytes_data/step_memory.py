# /// ledger
# data = ["step_memory.json", "step_memory.out_of_memory.pickle.gz", "step_memory.mended.pickle.gz"]
# ///
"""A step of the trainer with its options, and what PyTorch's own allocator did under it, without a card.

The allocator was that of PyTorch's CUDA build. Below it, in place of CUDA's libraries, lay one that hands out addresses
and computes nothing, so sizes, order and reserved bytes are a card's own, and no time is. On a real card the same runs
are recorded by `python -m flops_bytes_data.step_memory FOLDER`.
"""

import gzip
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flops_bytes.lessons.measure import get_device
from flops_bytes.lessons.models import Model, again, chunked_backward, loss
from flops_bytes.lessons.train import make
from flops_bytes.model.shapes import GPT2_SMALL
from flops_bytes.tools.snapshot import plain

SHAPE = replace(GPT2_SMALL, vocab=50_304)  # padded, as the trainer has it


class Run(NamedTuple):
    """How a step is run."""

    batch: int = 16  # sequences of 1,024 tokens
    precision: str = "autocast"  # weights in float32; "fp32", or "bf16": weights too
    checkpointing: bool = False  # of each block
    fused: bool = True  # AdamW in one kernel, or with foreach
    chunks: int = 1  # of the loss


def backward(model: Model, x: Tensor, y: Tensor, run: Run) -> None:
    with torch.autocast("cuda", torch.bfloat16, enabled=run.precision == "autocast"):
        if run.chunks > 1:
            chunked_backward(model, x, y, run.chunks)
            return
        error = loss(model, x, y)
    error.backward()


def trainer(run: Run) -> Callable[[], None]:
    """A step of GPT-2 small on tokens that were drawn."""
    model, optimizer = make(SHAPE, seed=0)
    if run.precision == "bf16":
        model.to(torch.bfloat16)
    if run.checkpointing:
        for block in model.blocks:
            block.forward = again(block.forward)
    if not run.fused:
        optimizer = torch.optim.AdamW(optimizer.param_groups, foreach=True)

    def step() -> None:
        windows = torch.randint(SHAPE.vocab, (run.batch, SHAPE.positions + 1)).to(get_device())
        backward(model, windows[:, :-1], windows[:, 1:], run)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


RUNS = {
    "first": Run(),
    "half": Run(batch=8),
    "quarter": Run(batch=4),
    "foreach": Run(fused=False),
    "chunks": Run(chunks=8),
    "checkpointing": Run(checkpointing=True),
    "twice": Run(batch=32, checkpointing=True, chunks=8),
    "bf16": Run(precision="bf16"),
    "fp32": Run(batch=8, precision="fp32"),
    "fp32_foreach": Run(batch=8, precision="fp32", checkpointing=True, fused=False),
}


STEPS = 2  # the second is the first that finds AdamW's state
LIMIT_BYTES = 15 * 2**30 + 2**29  # of a card with 16 GiB, beside a CUDA context
SNAPSHOTS = {"out_of_memory": ("first", LIMIT_BYTES), "mended": ("chunks", LIMIT_BYTES)}  # the run, on so many bytes
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def record(run: Run, limit_bytes: int | None, path: Path | None) -> dict[str, Any]:
    """Takes the steps on this process's card: the highest counts, and the message if they do not fit."""
    if limit_bytes:
        share = limit_bytes / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
    if path:
        torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    told = ""
    try:
        step = trainer(run)
        for _ in range(STEPS):
            step()
    except torch.OutOfMemoryError as error:
        told = str(error)
    if path:
        torch.cuda.memory._dump_snapshot(str(path))
    stats = torch.cuda.memory_stats()
    return {name: stats[f"{name}.all.peak"] for name in COUNTS} | {"message": told}


def in_a_process(case: str, limit_bytes: int | None, path: Path | None) -> dict[str, Any]:
    """The same in a process of its own, whose allocator is empty."""
    command = [sys.executable, "-m", "flops_bytes_data.step_memory", case, str(limit_bytes or 0), str(path or "")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


BEFORE_OURS = re.compile(r".*?/(?=flops_bytes(?:_data)?/)")  # the folders of a machine, of the book's own modules


def slim(path: Path) -> bytes:
    """A snapshot with what its readers take: Python's frames, without folders of the machine; no times."""
    found: Any = plain(path.read_bytes())
    lines: dict[tuple[str, int, str], dict[str, Any]] = {}
    stacks: dict[tuple[int, ...], list[dict[str, Any]]] = {}

    def frames(told: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        of_python = [each for each in told or () if each["filename"].endswith(".py")]
        stack = []
        for each in of_python:
            name = BEFORE_OURS.sub("", each["filename"].rpartition("/site-packages/")[2])
            line = {"filename": name, "line": each["line"], "name": each["name"]}
            stack.append(lines.setdefault((name, each["line"], each["name"]), line))
        return stacks.setdefault(tuple(map(id, stack)), stack)

    def kept(told: dict[str, Any], names: str) -> dict[str, Any]:
        return {name: told[name] for name in names.split() if name in told}

    def block(told: dict[str, Any]) -> dict[str, Any]:
        taken = told["state"].startswith("active")
        more = {"frames": frames(told.get("frames"))} if taken else {}
        return kept(told, "address size requested_size state") | more

    def event(told: dict[str, Any]) -> dict[str, Any]:
        new = told["action"] in ("alloc", "segment_alloc", "oom")
        return kept(told, "action addr device_free size stream") | ({"frames": frames(told["frames"])} if new else {})

    def segment(told: dict[str, Any]) -> dict[str, Any]:
        names = "device address total_size stream segment_type is_expandable"
        return kept(told, names) | {"blocks": list(map(block, told["blocks"]))}

    slimmed = {
        "segments": list(map(segment, found["segments"])),
        "device_traces": [list(map(event, found["device_traces"][0]))],
        "allocator_settings": found["allocator_settings"],
    }
    return gzip.compress(pickle.dumps(slimmed, 4), 9, mtime=0)


def record_all(folder: Path) -> None:
    """Writes what recorded() and write_snapshot() read."""
    counts = {}
    for case in RUNS:
        counts[case] = in_a_process(case, None, None)
        print(case, counts[case], flush=True)
    with TemporaryDirectory() as temporary:
        for name, (case, limit_bytes) in SNAPSHOTS.items():
            path = Path(temporary) / "step.pickle"
            counts[name] = in_a_process(case, limit_bytes, path)
            (folder / f"step_memory.{name}.pickle.gz").write_bytes(slim(path))
            print(name, counts[name], flush=True)
    told = {"torch": str(torch.__version__).partition("+")[0], "counts": counts}
    (folder / "step_memory.json").write_text(json.dumps(told, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """python -m flops_bytes_data.step_memory FOLDER: the counts and snapshots of all runs on this machine's card."""
    if len(arguments) == 1:
        record_all(Path(arguments[0]))
        return 0
    if len(arguments) == 3:
        case, limit_bytes, path = arguments
        print(json.dumps(record(RUNS[case], int(limit_bytes), Path(path) if path else None)))
        return 0
    print(main.__doc__, file=sys.stderr)
    return 2


FOLDER = Path(__file__).parent


def recorded() -> dict[str, Any]:
    """Of each run its highest counts, and of which PyTorch."""
    found: dict[str, Any] = json.loads(FOLDER.joinpath("step_memory.json").read_text(encoding="utf-8"))
    return found


def write_snapshot(name: str, path: Path) -> Path:
    """A recorded snapshot as a file of torch.cuda.memory._dump_snapshot()."""
    path.write_bytes(gzip.decompress(FOLDER.joinpath(f"step_memory.{name}.pickle.gz").read_bytes()))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
