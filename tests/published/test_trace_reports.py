"""What traces of others' GPUs say is committed with its source, and agrees with what else the book keeps of them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.tools.kernels import as_trace, kind_of
from published.kernel_times import read_all
from published.trace_reports import collective_blocks, derive, main, most_launched, read_reports
from tests.conftest import ROOT
from tests.flops_bytes.test_kernels import GEMM, Event, kernel, launch
from tests.published.test_published import commit, git

FOLDER = ROOT / "measurements" / "published"
SOURCES = sorted((FOLDER / "traces").glob("*.json"))
REDUCE = "ncclDevKernel_AllReduce"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_source_says_where_its_traces_stand(path: Path) -> None:
    source = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]) and source["licence"]
    for about in source["traces"]:
        assert re.fullmatch(r"[0-9a-f]{64}", about["sha256"]) and about["path"] and about["card"] and about["what"]
        report = about["report"]
        assert 0 < report["busy_seconds"] <= report["span_seconds"]
        assert report["exposed_communication_seconds"] <= report["communication_seconds"] <= report["span_seconds"]
    if source["licence"] == "none stated":
        assert "longest" in source["traces"][0]["report"]
        assert not any(about["report"][part] for about in source["traces"] for part in ("longest", "other"))


def test_an_operation_takes_what_its_row_among_the_kernels_says() -> None:
    rows = {
        (row.where, f"aten::{row.operation}", row.shape, row.calls): row.seconds for row in read_all(FOLDER / "kernels")
    }
    both = 0
    for about in read_reports(FOLDER / "traces").values():
        for each in about["report"]["operations"]:
            said = rows.get((about["path"], each["operation"], tuple(each["shape"]), each["calls"]))
            if said:
                assert said == pytest.approx(each["median_seconds"], rel=1e-3)
                both += 1
    assert both > 20


# Made-up traces


def events(*found: Event) -> list[tuple[str, Any]]:
    return [("traceEvents", each) for each in found]


def gridded(event: Event, *grid: int) -> Event:
    return event | {"args": event["args"] | {"grid": list(grid)}}


def test_the_kernels_of_one_call_are_counted_from_the_first_to_the_last() -> None:
    trace = as_trace(events(launch(0, 5, 3), kernel(GEMM, 10, 10, 3), kernel(GEMM, 25, 15, 3), kernel(GEMM, 50, 5, 4)))
    assert most_launched(trace) == {"kernels": 2, "span_seconds": 30e-6, "busy_seconds": 25e-6}


def test_only_a_collectives_blocks_count() -> None:
    found = events(
        gridded(kernel(GEMM, 0, 10), 90, 2, 1),
        gridded(kernel(REDUCE, 5, 10), 8, 3, 1),
        gridded(kernel(REDUCE, 30, 10), 20, 1, 1),
        kernel(REDUCE, 50, 10),  # without a grid
    )
    assert kind_of(REDUCE) == "collective" and collective_blocks(as_trace(found), found) == 24
    assert collective_blocks(as_trace(found[:1]), found[:1]) == 0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    clone = tmp_path / "clones" / "some" / "body"
    clone.mkdir(parents=True)
    git(clone, "init", "--quiet")
    made = [kernel(GEMM, 0, 40, 1), kernel(GEMM, 50, 30, 2), kernel(REDUCE, 60, 30, 3, stream=20)]
    (clone / "step.json").write_text(json.dumps({"record_shapes": 1, "with_stack": 0, "traceEvents": made}))
    about = {"path": "step.json", "card": "H100 SXM", "what": "a step"}
    traces = [about | {"name": "named"}, about | {"name": "silent", "names": False}]
    path = tmp_path / "traces" / "source.json"
    path.parent.mkdir()
    path.write_text(
        json.dumps({"repository": "some/body", "commit": commit(clone), "licence": "MIT", "traces": traces})
    )
    return path


def test_a_report_is_written_beside_its_trace(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clones = source.parent.parent / "clones"
    assert main([str(source.parent), "--derive", str(clones)]) == 0
    assert "88.9% of      0.090 ms" in capsys.readouterr().out
    found = read_reports(source.parent)
    data = (clones / "some" / "body" / "step.json").read_bytes()
    assert [about["sha256"] for about in found.values()] == [hashlib.sha256(data).hexdigest()] * 2
    named, silent = found["named"]["report"], found["silent"]["report"]
    assert named["settings"] == {"record_shapes": True, "with_stack": False}
    assert named["exposed_communication_seconds"] == 10e-6
    assert named["longest"] and silent["longest"] == silent["other"] == []
    before = source.read_bytes()
    assert derive(source, clones) == 2 and source.read_bytes() == before


def test_what_is_not_there_is_said(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty := tmp_path / "empty").mkdir()
    assert main([str(empty)]) == 2
    assert "no source" in capsys.readouterr().err
    source.write_text(source.read_text().replace("step.json", "other.json"))
    assert main([str(source.parent), "--derive", str(tmp_path / "clones")]) == 2
    assert "no other.json" in capsys.readouterr().err
