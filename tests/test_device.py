"""A record says which machine it is from, also where the driver tells little; a folder is named after its device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger.__main__ import main
from ledger.book import Book
from ledger.device import machine_key, read_gpu_state, slug
from ledger.record import Record


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("Intel(R) Xeon(R) CPU @ 2.80GHz", "intel-xeon"),
        ("../../etc/passwd", "etc-passwd"),
        ("<script>", "script"),
        ("", "unknown"),
    ],
)
def test_a_folder_is_named_after_the_device(name: str, folder: str) -> None:
    assert slug(name) == folder


def pretend_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts an nvidia-smi of our own first on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


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
    pretend_driver(tmp_path, monkeypatch, "echo '580.1, 1980, 2619, 41, 700.00, 93, 4'")
    noisy = "x = {'median_seconds': 1.0, 'spread': 0.2, 'trials': 9}\nmfu = {'bf16': 1.05}\n"
    (small_book.snippets / "noisy.py").write_text(noisy)
    assert main(["--root", str(small_book.root), "record", "noisy"]) == 0
    told = capsys.readouterr().err
    assert "the GPU is busy (93 % load)" in told
    assert "noisy: the widest spread is 20.0% of its median" in told
    assert "noisy: mfu.bf16 is over 1; the clock was 1980" in told
    (path,) = small_book.measurements.glob("*/noisy.json")
    assert Record.read(path).device["before"]["temperature_celsius"] == 41


def test_local_runs_are_kept_apart_by_what_they_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_key()
    assert machine_key() == here
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert machine_key() != here


def test_no_record_names_its_host_or_user(small_book: Book) -> None:
    import getpass
    import platform

    (path,) = small_book.measurements.glob("*/good.json")
    text = path.read_text()
    assert platform.node() not in text or len(platform.node()) < 4
    assert f'"{getpass.getuser()}"' not in text and str(small_book.root) not in text
