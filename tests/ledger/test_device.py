"""A record says which machine it is from, also where the driver tells little; a folder is named after its device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.__main__ import main
from ledger.book import Book
from ledger.device import describe_device, describe_software, machine_key, slug
from ledger.gpu import at_work, parse_links, read_gpu_state, read_links, watch_gpu
from ledger.processor import describe, name_processor
from ledger.record import Record
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("Intel(R) Xeon(R) CPU @ 2.80GHz", "intel-xeon-2-80ghz"),
        ("../../etc/passwd", "etc-passwd"),
        ("<script>", "script"),
        ("", "unknown"),
    ],
)
def test_a_folder_is_named_after_the_device(name: str, folder: str) -> None:
    assert slug(name) == folder


AMD = """\
processor\t: {0}
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
physical id\t: {1}
core id\t\t: {2}
flags\t\t: fpu sse4_2 avx avx2 avx512f
"""
INTEL = """\
processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
physical id\t: 0
core id\t\t: 0
flags\t\t: sse4_2 avx avx2 avx512f amx_tile
"""
ARM = """\
processor\t: {0}
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""
PROCESSORS = {
    "AMD EPYC, family 25 model 17, 4 cores, AVX-512": "\n".join(
        AMD.format(n, socket, core)
        for n, (socket, core) in enumerate([(s, c) for s in (0, 1) for c in (0, 1)] * 2)  # two threads a core
    ),
    "AMD EPYC, family 25 model 17, 1 core, AVX2": AMD.format(0, 0, 0).replace(" avx512f", ""),
    "AMD EPYC, family 25 model 1, 1 core, AVX-512": AMD.format(0, 0, 0).replace(": 17", ": 1"),
    "Intel Xeon Platinum 8481C @ 2.70GHz, family 6 model 143, 1 core, AMX": INTEL,
    "aarch64, implementer 0x41 part 0xd40, 2 cores, SVE": "\n".join(ARM.format(n) for n in (0, 1)),
    "": "not what Linux writes",
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_is_named_by_its_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert describe(PROCESSORS[name]) == name


def test_a_machine_that_tells_little_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path, **options: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", unreadable)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert name_processor.__wrapped__() == "arm, 8 cores"


def pretend_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts an nvidia-smi of our own first on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


SWITCHED = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNV18\tPIX\t0-55\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNODE\t0-55\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tSYS\t56-111\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""
BRIDGED = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tNV4\tSYS\tSYS\t0-15
GPU1\tNV4\t X \tSYS\tSYS\t0-15
GPU2\tSYS\tSYS\t X \tNV4\t16-31
GPU3\tSYS\tSYS\tNV4\t X \t16-31
"""
ALONE = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-15\t0\n"


@pytest.mark.parametrize(
    ("topology", "visible", "links"),
    [
        (SWITCHED, set(), ["NV18"]),
        (BRIDGED, set(), ["NV4", "SYS"]),
        (BRIDGED, {0, 1}, ["NV4"]),
        (BRIDGED, {1, 2}, ["SYS"]),
        (ALONE, set(), []),
        ("no devices were found", set(), []),
        ("", set(), []),
    ],
)
def test_how_gpus_are_linked(topology: str, visible: set[int], links: list[str]) -> None:
    assert parse_links(topology, visible) == links


def test_several_gpus_are_another_device_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "topology").write_text(BRIDGED)
    pretend_driver(tmp_path, monkeypatch, f"cat {tmp_path / 'topology'}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert read_links() == ["NV4"]
    told = {"name": "NVIDIA H200", "total_memory": 1, "major": 9, "minor": 0, "multi_processor_count": 132, "uuid": "a"}
    properties = SimpleNamespace(**told)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: properties)
    found = {}
    for count in (1, 2):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        found[count] = describe_device()
    assert found[1]["id"] == "nvidia-h200" and "gpus" not in found[1]
    assert found[2]["id"] == "2-x-nvidia-h200"
    assert (found[2]["gpus"], found[2]["links"]) == (2, ["NV4"])
    assert found[1]["host"] == name_processor()
    properties.uuid = "b"
    assert describe_device()["card"] != found[2]["card"] == found[1]["card"]


def test_what_chooses_kernels_on_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cudnn" not in describe_software()
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.backends.cudnn.version", lambda: 91501)
    monkeypatch.setattr("ledger.device.metadata.version", {"triton": "3.6.0"}.__getitem__)
    assert (describe_software()["cudnn"], describe_software()["triton"]) == ("91501", "3.6.0")


WATCHED = """\
case "$*" in *-lms*) while true; do echo '{sample}'; {then}; done ;; esac
echo '{at_once}'"""


def test_what_a_driver_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_driver(tmp_path, monkeypatch, "echo '580.1, 1980, 2619, 41, 700.00, 0, 4'")
    state = read_gpu_state()
    assert state is not None
    assert (state["driver"], state["sm_clock_mhz"], state["power_limit_watts"]) == ("580.1", 1980, 700)


def test_a_driver_that_tells_no_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_driver(tmp_path, monkeypatch, "echo '580.1, [N/A], [N/A], [Unknown Error], [N/A], 3, 4'")
    assert read_gpu_state() == {"driver": "580.1", "load_percent": 3, "memory_used_mib": 4}


@pytest.mark.parametrize("script", ["exit 9", "echo", "echo 'no devices were found' >&2; exit 6"])
def test_a_driver_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    pretend_driver(tmp_path, monkeypatch, script)
    assert read_gpu_state() is None


def test_a_busy_card_and_a_wide_spread_are_told(
    small_book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_once, every_tenth = "580.1, 210, 405, 41, 700.00, 93, 4", "2026/11/21 10:00:00.000, 1755, 2619, 690.5, 66, 99"
    pretend_driver(tmp_path, monkeypatch, WATCHED.format(at_once=at_once, sample=every_tenth, then="sleep 0.1"))
    noisy = (
        "import time\ntime.sleep(1)\nx = {'median_seconds': 1.0, 'spread': 0.2, 'trials': 9}\nmfu = {'bf16': 1.05}\n"
    )
    (small_book.snippets / "noisy.py").write_text(noisy)
    assert main(["--root", str(small_book.root), "record", "noisy"]) == 0
    told = capsys.readouterr().err
    assert "the GPU is busy (93 % load)" in told
    assert "noisy: the widest spread is 20.0% of its median" in told
    assert "noisy: mfu.bf16 is over 1; the clock was 1755" in told
    (path,) = small_book.measurements.glob("*/noisy.json")
    device = Record.read(path).device
    assert (device["before"]["driver"], device["before"]["sm_clock_mhz"]) == ("580.1", 210)
    assert device["before"]["temperature_celsius"] == 41
    assert device["during"].pop("samples") > 1
    work = {"sm_clock_mhz": 1755, "memory_clock_mhz": 2619, "power_watts": 690.5, "temperature_celsius": 66}
    assert device["during"] == work


def test_of_a_gpu_at_work_the_clock_is_typical_and_the_power_the_highest() -> None:
    loads = {1: (210, 70, 30), 90: (1500, 600, 60), 91: (1600, 710, 64), 92: (1980, 650, 65), 5: (1980, 900, 99)}
    samples = [
        {"load_percent": load, "sm_clock_mhz": clock, "power_watts": power, "temperature_celsius": temperature}
        for load, (clock, power, temperature) in loads.items()
    ]
    assert at_work([dict(sample) for sample in samples]) == {
        "samples": 3,
        "sm_clock_mhz": 1600,
        "power_watts": 710,
        "temperature_celsius": 65,
    }
    assert at_work([dict(samples[0])]) is None, "an idle card tells nothing of what was measured"
    assert at_work([{"load_percent": 50.0}]) == {"samples": 1}


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("then", ["sleep 0.1", "trap '' TERM INT; sleep 60", "exit 1", "setsid sleep 6 & exit 1"])
def test_what_watches_the_gpu_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    pid = tmp_path / "pid"
    sample = "2026/11/21 10:00:00.000, 1755, 2619, 690.5, 66, 99"
    script = f"echo $$ > {pid}\n" + WATCHED.format(at_once="", sample=sample, then=then)
    pretend_driver(tmp_path, monkeypatch, script)
    with pytest.raises(KeyError), watch_gpu() as samples:
        until = time.monotonic() + 300
        while not pid.exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        began = time.monotonic()
        raise KeyError
    assert time.monotonic() - began < 30  # of the minute that it would sleep
    assert not is_running(int(pid.read_text()))
    assert samples and samples[0]["power_watts"] == 690.5


def test_what_watches_the_gpu_ends_with_a_killed_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    script = f"echo $$ > {pid}.new; mv {pid}.new {pid}\n" + WATCHED.format(at_once="", sample="1", then="sleep 0.1")
    pretend_driver(tmp_path, monkeypatch, script)
    code = "import time; from ledger.gpu import watch_gpu\nwith watch_gpu(): time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as recorder:
        until = time.monotonic() + 300
        while not pid.exists() and time.monotonic() < until:
            time.sleep(0.05)
        recorder.send_signal(signal.SIGKILL)
    watcher = int(pid.read_text())
    until = time.monotonic() + 300
    while is_running(watcher) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(watcher)


def test_local_runs_are_kept_apart_by_what_they_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_key()
    assert machine_key() == here
    for setting, value in (("CUDA_VISIBLE_DEVICES", "7"), ("NVIDIA_TF32_OVERRIDE", "0")):
        with monkeypatch.context() as patch:
            patch.setenv(setting, value)
            assert machine_key() != here
    with monkeypatch.context() as patch:
        patch.setattr("ledger.device.name_processor", lambda: "AMD EPYC, family 26 model 2")
        assert machine_key() != here
    assert machine_key() == here


def test_no_record_names_its_host_or_user(small_book: Book) -> None:
    import getpass
    import platform

    (path,) = small_book.measurements.glob("*/good.json")
    text = path.read_text()
    assert platform.node() not in text or len(platform.node()) < 4
    assert f'"{getpass.getuser()}"' not in text and str(small_book.root) not in text
