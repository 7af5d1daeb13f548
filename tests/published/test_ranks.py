"""Published tables of layouts are whole, hold no row that is left for later, and keep what was said of them first."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from statistics import median

from published.ranks import (
    KEPT,
    NODE_GPUS,
    Run,
    Said,
    ask,
    choices,
    extract,
    keep_first,
    kept,
    ratios_at_first,
    read_cells,
    read_first,
    read_head,
    read_runs,
    speeds,
    table,
)
from tests.conftest import ROOT

FOLDER = ROOT / "measurements" / "published"
TABLES = FOLDER / "layouts" / "tables"
RUNS = list(read_runs(FOLDER))
NEEDED = {"gpu", "gpus", "context", "recipe", "trainer", "tp", "pp", "zero"}


def name(run: Run) -> tuple[str, str]:
    return run.row.source, run.number


def test_each_row_says_what_the_command_needs_and_how_it_ended() -> None:
    assert Counter(run.row.source for run in RUNS) == {
        "ultra-scale": 1601,
        "simumax-b200": 22,
        "megatron-bridge": 139,
        "simumax-b200-kept": 21,
        "megatron-bridge-kept": 139,
    }
    assert len({name(run) for run in RUNS}) == len(RUNS)
    for run in RUNS:
        assert run.row.settings.keys() >= NEEDED
        assert run.row.settings.keys() & {"shape", "config", "model"}
        assert bool(run.row.readings) == (not run.ended), run
    reads_memory = [run for run in RUNS if run.row.source == "ultra-scale" and run.memory["reserved"]]
    assert len(reads_memory) == sum(not run.ended for run in RUNS if run.row.source == "ultra-scale") == 860
    assert Counter(run.ended for run in RUNS if run.ended) == {"memory": 550, "other": 189, "unclear": 2}
    for source in ("ultra-scale", "simumax-b200", "megatron-bridge"):
        assert read_head(FOLDER, source).keys() >= {"repository", "commit", "licence", "retrieved", "settings"}


def test_of_two_sources_every_other_row_was_left_for_the_end() -> None:
    for source in ("simumax-b200", "megatron-bridge"):
        for odd, half in enumerate((source, f"{source}{KEPT}")):
            assert all(int(cells["row"]) % 2 == odd for cells in read_cells(FOLDER, half))


def test_rows_left_for_the_end_are_extracted_apart(tmp_path: Path) -> None:
    folder, clones = tmp_path / "published", tmp_path / "clones"
    (folder / "layouts" / "tables").mkdir(parents=True)
    for source in ("simumax-b200", "megatron-bridge"):
        path = Path("layouts") / "tables" / f"{source}.toml"
        (folder / path).write_text((FOLDER / path).read_text(encoding="utf-8"), encoding="utf-8")
    gpu = {"max_allocated_mb": 1.0, "max_reserved_mb": 2.0}
    own = {"model": "llama3-70b", "parallel": "tp2pp4", "layer_num": 12, "mbc": 4, "real_ms": 1.0}
    own |= {"peak_memory_by_rank_mb": {str(rank): gpu for rank in range(8)}}
    rows = [{"case": f"case {index}"} | own for index in range(3)]
    write(clones, "MooreThreads/SimuMax/docs/b200/b200_release_v1.2_summary.json", json.dumps({"rows": rows}))
    head = "| Model | #-GPUs | TP | PP |\n|---|---:|---|---|\n"
    page = f"## 1.0 NeMo Container\n\n{head}| even | 8 | 1 | 1 |\n| odd | 8 | 1 | 1 |\n\n{head}| last | 8 | 1 | 1 |\n"
    for file in ("performance-summary.md", "performance-summary-archive.md"):
        write(clones, f"NVIDIA-NeMo/Megatron-Bridge/docs/{file}", page)
    extract(folder, clones)
    assert [row["case"] for row in read_cells(folder, f"simumax-b200{KEPT}")] == ["case 1"]
    assert [row["model"] for row in read_cells(folder, f"megatron-bridge{KEPT}")] == ["odd", "odd"]
    cells = read_cells(folder, "simumax-b200")
    assert [row["case"] for row in cells] == ["case 0", "case 2"]
    assert (cells[0]["tp"], cells[0]["pp"]) == ("2", "4")
    assert [(row["model"], row["row"], row["container"]) for row in read_cells(folder, "megatron-bridge")[:2]] == [
        ("even", "0", "1.0"),
        ("last", "2", "1.0"),
    ]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_of_each_row_it_is_kept_what_was_said_first() -> None:
    lines = read_first(TABLES / "first.jsonl.gz")
    assert [(line["source"], line["row"]) for line in lines] == [name(run) for run in RUNS]
    kept_readings = [
        ratio
        for run, ratio in ratios_at_first(FOLDER, [(run, ask(run)) for run in RUNS if run.number == "5"])["allocated"]
        if run.row.source == f"simumax-b200{KEPT}"
    ]
    assert len(kept_readings) == 8 and all(0.9 < ratio < 1.1 for ratio in kept_readings)  # by their own meter
    for line, run in zip(lines, RUNS, strict=True):
        assert "refused" in line or (len(line["rank_bytes"]) == run.row.settings["pp"] and line["seconds"] > 0)


def test_what_was_said_first_stays_and_what_is_missing_is_added(tmp_path: Path) -> None:
    path, drawn = tmp_path / "first.jsonl.gz", random.Random(0).sample(RUNS, 10)
    asked = [(run, ask(run)) for run in drawn]
    assert keep_first(path, asked[:6]) == 6
    other = [(run, said._replace(seconds=1.0, refused="")) for run, said in asked]
    assert keep_first(path, other[:6] + asked[6:]) == 4
    assert [line | {"on": ""} for line in read_first(path)] == [kept(run, ask(run), "") for run in drawn]
    written = path.read_bytes()
    assert keep_first(path, other) == 0
    assert path.read_bytes() == written


def test_ratios_are_of_the_rank_that_was_read() -> None:
    run = next(run for run in RUNS if run.row.settings["pp"] == 2 and run.memory.get("reserved"))
    (_, read), *_ = run.memory["reserved"]
    twice = {meter: {0: (0, int(2 * read)), 1: (0, 0)} for meter in ("allocated", "reserved")}
    twice["reserved"][0] = (int(2 * read), int(3 * read))
    lines = list(table("one", [(run, Said(twice, [0, 0], 3.0, False, "lives", 2.0, ""))]))
    told = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("    all")}
    assert told == {"all": ["1", "1.500", "50.0%", "0.0%"]}  # of seconds, which come after
    assert any(line.split()[:3] == ["all", "1", "2.000"] for line in lines)
    assert any(line.split() == ["ran", "1", "0"] for line in lines)


def test_what_the_planner_would_choose_is_compared_with_the_fastest_of_its_group() -> None:
    runs = [run for run in RUNS if run.row.source == "ultra-scale" and not run.ended]
    run = runs[0]
    other = next(each for each in runs if each.row.settings["shape"] != run.row.settings["shape"])

    def said(planned: float, published: float) -> Said:
        return Said({}, [], planned, False, "lives", published, "")

    two = [(run, said(1.0, 4.0)), (run, said(1.0, 5.0)), (other, said(0.5, 1.0))]
    assert choices(two) == []  # two layouts are no choice, and another model's is none of them
    (found,) = choices([*two, (run, said(2.0, 2.0))])
    assert found == (3, 2 / 5, 2 / 4)


def test_why_a_step_may_be_planned_too_short_is_told_before_it_is_compared() -> None:
    ran = [run for run in RUNS if run.row.source == "ultra-scale" and not run.ended]
    old = next(run for run in ran if run.old_engine)
    split, near = (
        next(run for run in ran if not run.old_engine and (run.row.settings["tp"] > NODE_GPUS) == across)
        for across in (True, False)
    )

    def said(least: bool) -> Said:
        return Said({}, [], 3.0, least, "lives", 2.0, "")

    found = speeds([(old, said(True)), (split, said(True)), (split, said(False)), (near, said(False))])
    assert {kind: len(each) for kind, each in found.items()} == {
        "old engine": 1,
        "launches": 1,
        "tensor across nodes": 1,
        "others": 1,
    }
    assert all(ratio == 3.0 / 2.0 for each in found.values() for _, ratio in each)


def test_rows_of_several_nodes_are_planned_with_their_own_bandwidth() -> None:
    for run, cells in zip(RUNS, read_cells(FOLDER, "ultra-scale"), strict=False):
        told = run.row.settings.get("bus_bandwidth")
        assert told == (
            float(cells["allreduce_gb_s"]) * 1e9
            if cells["allreduce_gb_s"] and int(cells["dp"]) * int(cells["tp"]) * int(cells["pp"]) > NODE_GPUS
            else None
        )


def test_tensor_ranks_in_several_nodes_gather_as_rows_on_so_many_nodes_measured() -> None:
    rows = read_cells(FOLDER, "ultra-scale")
    measured = [
        float(cells["allgather_gb_s"]) * 1e9
        for cells in rows
        if cells["allgather_gb_s"] and int(cells["dp"]) * int(cells["tp"]) * int(cells["pp"]) == 4 * NODE_GPUS
    ]
    for run, cells in zip(RUNS, rows, strict=False):
        told = run.row.settings.get("tp_bandwidth")
        assert (told is None) == (int(cells["tp"]) <= NODE_GPUS)
        assert int(cells["tp"]) != 4 * NODE_GPUS or told == median(measured)
