"""What nvidia-smi tells: the first visible GPU's state, at rest and while it works, and how several are linked."""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

State = dict[str, float | str]

BUSY_PERCENT = 5  # of the last fraction of a second in which a kernel ran: with more, the card is at work
INTERVAL_MILLISECONDS = 500
STATE = {
    "driver": "driver_version",
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "temperature_celsius": "temperature.gpu",
    "power_limit_watts": "power.limit",
    "load_percent": "utilization.gpu",
    "memory_used_mib": "memory.used",
}
SAMPLE = {
    "time": "timestamp",
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_watts": "power.draw.instant",
    "temperature_celsius": "temperature.gpu",
    "load_percent": "utilization.gpu",
}


def read_gpu_state() -> State | None:
    """Driver, clocks, temperature, power limit and load now; None where nvidia-smi does not tell."""
    if not shutil.which("nvidia-smi"):
        return None
    try:
        asked = subprocess.run(_command(STATE), capture_output=True, text=True, timeout=10, check=True)
        return _parse(asked.stdout.strip().splitlines()[0], STATE) or None
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def read_links() -> list[str] | None:
    """How the visible GPUs are linked, each kind once: "NV18" is 18 NVLinks, "SYS" the way between two processors.

    None where nvidia-smi does not tell.
    """
    try:
        asked = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = {int(number) for number in visible.split(",") if number.isdigit()}
    return parse_links(asked.stdout, numbers) or None


def parse_links(topology: str, visible: set[int]) -> list[str]:
    """The kinds of link in nvidia-smi's matrix between the GPUs of these numbers; between all if there are none."""
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in topology.splitlines()]
    header: list[str] = next((row for row in rows if row and row[0] == "GPU0"), [])
    columns = [name for name in header if re.fullmatch(r"GPU\d+", name)]
    chosen = {f"GPU{number}" for number in visible} or set(columns)
    kinds = set()
    for name, *cells in (row for row in rows if row is not header and row and row[0] in chosen):
        kinds |= {kind for other, kind in zip(columns, cells, strict=False) if other in chosen and other != name}
    return sorted(kinds)


@contextmanager
def watch_gpu() -> Iterator[list[State]]:
    """The GPU's state twice a second for as long as the block runs; the list is filled when it ends.

    One process asks all the while, so that none is started beside what is measured; it ends with the block, or with
    the pipe if this process is killed.
    """
    samples: list[State] = []
    if not shutil.which("nvidia-smi"):
        yield samples
        return
    by_line = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []  # or the last lines may stay in a buffer
    command = [*by_line, *_command(SAMPLE), "-lms", str(INTERVAL_MILLISECONDS)]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0)
    try:
        yield samples
    finally:
        with suppress(ProcessLookupError):
            os.killpg(watcher.pid, signal.SIGKILL)
        assert watcher.stdout
        with watcher.stdout as lines:  # the pipe holds those of ten minutes
            os.set_blocking(lines.fileno(), False)
            text = (lines.read() or b"").decode(errors="replace")
        with suppress(subprocess.TimeoutExpired):
            watcher.wait(timeout=5)  # a driver that hangs does not let go of it
        samples += filter(None, (_parse(line, SAMPLE) for line in text.splitlines()))


def at_work(samples: list[State]) -> State | None:
    """The median clocks, the highest power and temperature of the samples in which the GPU worked; None without any.

    A state that is read after a run is that of an idle card: its clock and power say nothing of what was measured.
    """
    busy = [sample for sample in samples if float(sample.get("load_percent", 0)) > BUSY_PERCENT]
    state: State = {"samples": len(busy)}
    for name, choose in (
        ("sm_clock_mhz", statistics.median),
        ("memory_clock_mhz", statistics.median),
        ("power_watts", max),
        ("temperature_celsius", max),
    ):
        if told := [float(sample[name]) for sample in busy if name in sample]:
            state[name] = choose(told)
    return state if busy else None


def _command(fields: dict[str, str]) -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    query = f"--query-gpu={','.join(fields.values())}"
    return ["nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={visible}"]


def _parse(line: str, fields: dict[str, str]) -> State:
    """What one line tells; "[N/A]" stands where the driver does not."""
    state: State = {}
    for field, text in zip(fields, line.split(", "), strict=False):
        if field == "driver":
            state[field] = text
        elif re.fullmatch(r"-?\d+(\.\d+)?", text):
            state[field] = float(text)
    return state
