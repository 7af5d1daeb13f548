"""A device name, taken whole, finds one row of the table of peaks or none; the peaks are dense and fit together."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from flops_bytes.lessons.measure import get_gpu, get_peak_flop_per_second
from flops_bytes.time.gpus import GPUS
from ledger.record import Record
from tests.conftest import ROOT

NAMES = [name for gpu in GPUS.values() for name in gpu.device_names]
HARDWARE: dict[str, Any] = runpy.run_path(str(ROOT / "snippets" / "hardware.py"))
DERIVED, PRINTED = HARDWARE["DERIVED"], HARDWARE["PRINTED"]
ROWS = pytest.mark.parametrize("row", GPUS)

# Sheets that do not fit themselves: of the larger peak over the smaller, by how much it is not 2.
UNEVEN = {
    ("L40S", "bfloat16", "float8"): 0.013,  # 362.05 and 733
    ("L40S", "tf32", "bfloat16"): 0.011,  # 183 and 362.05
    ("L4", "tf32", "bfloat16"): 0.009,  # 60 and 121, half of 120 and 242
    ("B200", "tf32", "bfloat16"): 0.023,  # 1,100 and 2,250, half of 2.2 and 4.5 petaflops
}
SUBSTRINGS = {  # a device that is in no row, and the row that a part of its name would find
    "NVIDIA GH200 480GB": "H200 SXM",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX 4090",
    "NVIDIA GeForce RTX 4090 D": "RTX 4090",
    "NVIDIA L40": "L40S",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "H100 SXM",
    "NVIDIA A100-SXM4-80GB MIG 3g.40gb": "A100 80GB SXM",
    "NVIDIA H100": "H100 PCIe",
    "nvidia h200": "H200 SXM",
}


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with a GPU, whose name the test then sets."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return monkeypatch


def test_the_table_needs_python_alone() -> None:
    code = "import sys; sys.modules['torch'] = None; from flops_bytes.time.gpus import GPUS; print(len(GPUS))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"{len(GPUS)}\n", done.stderr


def test_a_device_name_stands_in_one_row_alone() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert all(gpu.device_names for gpu in GPUS.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_device_name_finds_its_row(as_device: pytest.MonkeyPatch, name: str) -> None:
    as_device.setattr(torch.cuda, "get_device_name", lambda: name)
    gpu = get_gpu()
    assert gpu is not None and name in gpu.device_names
    assert get_peak_flop_per_second("float16") == gpu.peak_flop_per_second["float16"]


@pytest.mark.parametrize("name", SUBSTRINGS)
def test_a_part_of_a_name_finds_nothing(as_device: pytest.MonkeyPatch, name: str) -> None:
    as_device.setattr(torch.cuda, "get_device_name", lambda: name)
    assert SUBSTRINGS[name] in GPUS
    assert get_gpu() is None
    assert get_peak_flop_per_second("bfloat16") is None


def test_an_unknown_type_has_no_peak(as_device: pytest.MonkeyPatch) -> None:
    as_device.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    assert get_peak_flop_per_second("bfloat16") is None


def test_without_a_gpu_there_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert get_gpu() is None


@ROWS
def test_a_row_is_whole(row: str) -> None:
    gpu = GPUS[row]
    assert {"float32", "float16"} <= gpu.peak_flop_per_second.keys()
    assert gpu.source.startswith("https://") and (
        "nvidia" in gpu.source or "nvdam" in gpu.source or "amd" in gpu.source
    )
    assert 10e9 < gpu.memory_bytes < 1e12, "bytes, not gigabytes"
    assert 0.1e12 < gpu.bandwidth_bytes_per_second < 10e12, "bytes a second, not gigabytes"
    assert all(1e12 < peak <= 10e15 for peak in gpu.peak_flop_per_second.values()), "FLOP/s, not TFLOP/s"


@ROWS
def test_half_the_bits_double_the_peak(row: str) -> None:
    """A figure with sparsity among dense ones would be off by another factor of two."""
    peaks = GPUS[row].peak_flop_per_second
    assert peaks.get("bfloat16") in (None, peaks["float16"])
    for wide, narrow in (("tf32", "bfloat16"), ("bfloat16", "float8")):
        if wide in peaks and narrow in peaks:
            off = abs(peaks[narrow] / peaks[wide] / 2 - 1)
            assert off < UNEVEN.get((row, wide, narrow), 0.003), (
                f"{narrow} is {peaks[narrow] / peaks[wide]:.3f} × {wide}"
            )
    assert peaks["float32"] <= peaks.get("tf32", peaks["float16"])


@pytest.mark.parametrize(("row", "dtype"), [(row, dtype) for row, d in DERIVED.items() for dtype in d.peaks()])
def test_a_peak_follows_from_units_and_clock(row: str, dtype: str) -> None:
    off = abs(DERIVED[row].teraflops(dtype) * 1e12 / GPUS[row].peak_flop_per_second[dtype] - 1)
    assert off < (0.013 if (row, dtype) in {("L40S", "bfloat16"), ("L40S", "float16")} else 0.01)


@pytest.mark.parametrize("row", PRINTED)
def test_the_table_is_half_of_what_a_sheet_prints_with_sparsity(row: str) -> None:
    peak = GPUS[row].peak_flop_per_second["float16"] / 1e12
    assert PRINTED[row].dense in (0, peak)
    assert PRINTED[row].sparse in (0, pytest.approx(2 * peak, rel=0.013))


def contradictions(device: dict[str, Any]) -> list[str]:
    """Where what a record says of its card differs from the row of the card's name. CUDA counts up to a tenth more or
    less memory than a sheet's round number."""
    gpu = next((gpu for gpu in GPUS.values() if device["name"] in gpu.device_names), None)
    if device["kind"] != "cuda" or gpu is None:
        return []
    peak = {"flop_per_second": gpu.peak_flop_per_second, "bytes_per_second": gpu.bandwidth_bytes_per_second}
    memory = abs(device.get("memory_bytes", gpu.memory_bytes) / gpu.memory_bytes - 1) > 0.1
    return ["memory"] * memory + ["peak"] * (device.get("peak", peak) != peak)


@pytest.mark.parametrize("path", sorted(ROOT.glob("measurements/*/*.json")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_committed_record_fits_the_row_of_its_card(path: Path) -> None:
    assert contradictions(Record.read(path).device) == []


def test_a_cards_name_with_anothers_memory_or_peak_is_noticed() -> None:
    h100 = GPUS["H100 SXM"]
    device = {
        "kind": "cuda",
        "name": h100.device_names[0],
        "memory_bytes": 79.1 * 2**30,
        "peak": {"flop_per_second": h100.peak_flop_per_second, "bytes_per_second": h100.bandwidth_bytes_per_second},
    }
    assert contradictions(device) == contradictions({key: device[key] for key in ("kind", "name")}) == []
    assert contradictions(device | {"memory_bytes": 141e9}) == ["memory"]
    assert contradictions(device | {"peak": {"flop_per_second": {}, "bytes_per_second": 4.8e12}}) == ["peak"]
