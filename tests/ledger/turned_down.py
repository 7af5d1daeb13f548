"""Exact values do not move when the CPU's vector units are turned down: other kernels sum in another order.

`make exact` runs it, in a pytest of its own: the units are turned down before torch is loaded, for all that it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.book import Book
from ledger.compare import moved
from ledger.environment import CHANGE_RESULTS
from ledger.record import Records, is_stale
from ledger.run import run
from ledger.snippet import Snippet
from tests.conftest import ROOT

BOOK = Book(ROOT)
FAST = [name for name, path in BOOK.snippet_files().items() if not Snippet.read(path).is_slow]
TURNED_DOWN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
PATIENCE = 3  # times as long as a snippet may take elsewhere


@pytest.fixture(scope="module", autouse=True)
def turned_down() -> Iterator[None]:
    """What snippets run in from here on: the server that forks for them starts with the first."""
    assert TURNED_DOWN.keys() <= CHANGE_RESULTS, "a record made like this would not say so"
    with pytest.MonkeyPatch.context() as patch:
        for variable, setting in TURNED_DOWN.items():
            assert variable not in os.environ
            patch.setenv(variable, setting)
        yield


def test_the_units_are_turned_down(write_snippet: Callable[[str], Path]) -> None:
    source = "import torch\nunits, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()\n"
    assert run(Snippet.read(write_snippet(source))).values == {"units": "DEFAULT", "threads": 1}


@pytest.mark.parametrize("name", FAST)
def test_exact_values_are_those_of_every_fresh_record(name: str) -> None:
    snippet = Snippet.read(BOOK.snippet_file(name))
    now = run(snippet, PATIENCE * snippet.time_limit).values
    found = {device: of.get(name) for device, of in Records.load(BOOK, local=False).by_device.items()}
    fresh = {device: record for device, record in found.items() if record and not is_stale(record, snippet)}
    assert fresh, f"no record to compare with: python -m ledger record {name}"
    lines = [f"{name}.{line} ({device})" for device, record in fresh.items() for line in moved(record.values, now)]
    assert not lines, "\n".join(lines)
