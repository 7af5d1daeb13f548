# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""One of two ranks is killed, or stopped: how long the other waits, and what is left."""

# --8<-- [start:setup]
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from flops_bytes.lessons.train_sharded import main, whole

# --8<-- [end:setup]


# --8<-- [start:start]
TIMEOUT = 5  # seconds that a rank waits for another
Run = subprocess.Popen[str]


def start(ranks: int, folder: Path, *options: str) -> Run:
    """torchrun with so many ranks of the trainer, which saves often."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    toy = ["--steps=4000", "--report=2", f"--timeout={TIMEOUT}"]
    command = [*launcher, f"--nproc-per-node={ranks}", "-m", main.__module__]
    command += [*toy, *options, "--checkpoints", str(folder)]
    hidden = {"CUDA_VISIBLE_DEVICES": ""}  # any machine has two CPUs' worth of ranks
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, text=True, env=os.environ | hidden)


def ranks_of(run: Run) -> dict[int, int]:
    """The process of each rank, as Linux tells of torchrun's children."""
    found = {}
    for children in Path(f"/proc/{run.pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            told = Path(f"/proc/{child}/environ").read_text().split("\0")
            variables = dict(line.split("=", 1) for line in told if "=" in line)
            if "RANK" in variables:
                found[int(variables["RANK"])] = child
    return found


# --8<-- [end:start]


# --8<-- [start:lose]
def wait_for_checkpoint(folder: Path, after: Path | None = None) -> Path:
    """The newest whole checkpoint, once there is one that was not there before."""
    while not (found := whole(folder)) or found[-1] == after:
        time.sleep(0.01)
    return found[-1]


def ended(process: int) -> bool:
    """Whether a process is gone, or is dead and nobody has asked how it ended."""
    try:
        return ") Z " in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True


def lose(folder: Path, how: signal.Signals) -> float:
    """Seconds from a signal to rank 1 until rank 0 has ended."""
    run = start(2, folder)
    wait_for_checkpoint(folder)
    processes = ranks_of(run)
    began = time.perf_counter()
    os.kill(processes[1], how)
    while not ended(processes[0]):
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    with suppress(ProcessLookupError):
        os.kill(processes[1], signal.SIGKILL)  # one that was stopped
    run.wait()
    return seconds


# --8<-- [end:lose]


# --8<-- [start:measure]
with tempfile.TemporaryDirectory() as _temporary:
    folder = Path(_temporary)
    killed_seconds = lose(folder / "killed", signal.SIGKILL)
    stopped_seconds = lose(folder / "stopped", signal.SIGSTOP)
    newest = whole(folder / "killed")[-1]
    again = start(1, folder / "killed")
    went_on = wait_for_checkpoint(folder / "killed", after=newest)
    again.terminate()
    again.wait()
    goes_on = went_on.name > newest.name
assert goes_on
print(f"killed: the other rank ended after {killed_seconds:.1f} s")
print(f"stopped: after {stopped_seconds:.1f} s, with a timeout of {TIMEOUT} s")
# --8<-- [end:measure]
