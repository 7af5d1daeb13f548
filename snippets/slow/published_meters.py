# /// script
# requires-python = ">=3.11"
# [tool.ledger]
# data = [
#     "measurements/published/*.toml",
#     "measurements/published/layouts/*.*",
#     "measurements/published/layouts/tables/*",
# ]
# ///
"""Each published reading of memory beside what the planner says of its own meter: allocated, reserved or nvidia-smi.

All is counted, in Python alone: a run's first steps, storage by storage, through PyTorch's allocator as rules.
"""

# --8<-- [start:setup]
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from flops_bytes.plan.meters import DIES
from flops_bytes.time.layouts import LAUNCHED_LAYER_SECONDS
from published.meters import FLAT_BYTES, Metered, ask_all, lives_of, read_lengths
from published.ranks import (
    NODE_GPUS,
    SOURCES,
    Ratio,
    Run,
    ask_runs,
    choices,
    fits_at_first,
    ratios,
    ratios_at_first,
    read_runs,
    speeds,
)
from published.readings import (
    NEAR,
    WHY,
    Compared,
    at_first,
    by_source,
    compare,
    errors,
    far_groups,
    is_far,
    nearest_ratio,
    predict,
    read_all,
    read_head,
    today,
)

FAST = 20  # percent of the peak that a run's matmuls reached, by its own MFU
FOLDERS = (above / "measurements" / "published" for above in Path(__file__).parents)
FOLDER = next(folder for folder in FOLDERS if folder.is_dir())
_processes = os.cpu_count() or 1  # that share the questions
# --8<-- [end:setup]


# --8<-- [start:ask]
compared = [each for each in compare(read_all(FOLDER)) if each.reading.kind == "memory"]
heads = {path.stem: read_head(path) for path in FOLDER.glob("*.toml")}
lengths_of = read_lengths(FOLDER)
metered = list(ask_all(compared, lengths_of, _processes))
asked_readings, asked_sources = len(metered), len(by_source(metered))
print(f"{asked_readings} readings of {asked_sources} sources, each by its own meter")
# --8<-- [end:ask]


# --8<-- [start:meters]
METERS = {"allocated": "allocated", "active": "allocated", "reserved": "reserved", "smi": "smi", "memory": "unsaid"}


def meter_of(each: Metered) -> str:
    """The meter of a reading; of what is reserved, whether sequences are of one length."""
    meter = METERS[each.reading.what.split("_")[0]]
    return "drawn" if meter == "reserved" and lengths_of[each.reading.source] else meter


def by_tensors(each: Metered) -> float:
    """The ratio by tensors alone, and a gigabyte beside them where the meter shows all of the card."""
    return nearest_ratio(predict(each.reading, FLAT_BYTES), each.reading.value)


def at_first_sight(each: Metered) -> float:
    """The ratio when its meter was asked for the first time."""
    assert each.reading.metered
    return nearest_ratio(each.reading.metered, each.reading.value)


def off(found: Iterable[Metered], ratio: Callable[[Metered], float]) -> dict[str, float]:
    """Over readings, not over sources: a meter has few of them."""
    errors = [abs(ratio(each) - 1) for each in found]
    return {
        "median_error_share": statistics.median(errors),
        "within_share": sum(error <= NEAR for error in errors) / len(errors),
    }


meters: dict[str, dict[str, Any]] = {}
for meter in ("allocated", "reserved", "drawn", "smi", "unsaid"):
    of_meter = [each for each in metered if meter_of(each) == meter]
    meters[meter] = {"readings": len(of_meter), "sources": len(by_source(of_meter))}
    meters[meter] |= {"flat": off(of_meter, by_tensors), "first": off(of_meter, at_first_sight)}
    meters[meter] |= {"now": off(of_meter, today)}
    print(meter, meters[meter])
whole = {"readings": asked_readings, "sources": asked_sources, "flat": off(metered, by_tensors)}
whole |= {"first": off(metered, at_first_sight), "now": off(metered, today)}
print("together", whole)
# --8<-- [end:meters]


# --8<-- [start:moved]
were_far = [each for each in metered if is_far(by_tensors(each))]
were_far_readings = len(were_far)
near_now_readings = sum(not is_far(today(each)) for each in were_far)
newly_far_readings = sum(is_far(today(each)) and not is_far(by_tensors(each)) for each in metered)
now = errors(metered)
print(f"of {were_far_readings} that were far off {near_now_readings} are near, and {newly_far_readings} became far")
print(f"median error over sources {now['median_error_share']:.1%}, near {now['within_share']:.0%}")
# --8<-- [end:moved]


# --8<-- [start:sources]
def describe(source: str, found: Sequence[Compared]) -> dict[str, Any]:
    """A source: where it stands, its cards and meters, and how far off it is."""
    head = heads[source]
    if "thread" in head:
        name, link = "/".join(head["thread"].split("/")[3:5]) + "#" + head["thread"].split("/")[-1], head["thread"]
    else:
        name, link = head["repository"], f"https://github.com/{head['repository']}/tree/{head['commit']}"
    told = [each for each in metered if each.reading.source == source]
    known = {"file": source, "name": name, "link": link}
    known |= {"at": head.get("commit", "")[:7] or head["when"], "card": head["card"]}
    known |= {"readings": len(found), "asked": len(told)}
    shown = {each.reading.what.split("_")[0] for each in found}
    known |= {"meters": sorted("unsaid" if meter == "memory" else meter for meter in shown)}
    if told:
        error = errors(told)
        known |= {"error_share": error["median_error_share"], "within_share": error["within_share"]}
        known |= {"low_ratio": error["low_ratio"], "high_ratio": error["high_ratio"]}
        known |= {"today_ratios": [round(today(each), 4) for each in told]}
        known |= {"first_ratios": [round(at_first(each), 4) for each in told if each.reading.first]}
    return known


described = [describe(source, found) for source, found in by_source(compared).items()]
sources = sorted(described, key=lambda source: -source.get("error_share", -1))  # the worst first
for source in sources:
    print(f"{source['name']:40} {source['asked']:3} of {source['readings']:3}", source.get("error_share", ""))
# --8<-- [end:sources]


# --8<-- [start:far]
far: list[dict[str, Any]] = []
for origin, known, group in far_groups(metered, heads):
    assert known, (origin, [each.reading for each in group])  # each has its sentence in its source's file, under `far`
    ends = errors(group)
    far.append(
        {"source": next(each["name"] for each in sources if each["file"] == origin)}
        | {key: known[key] for key in ("why", "en", "zh")}
        | {"readings": len(group), "low_ratio": ends["low_ratio"], "high_ratio": ends["high_ratio"]}
    )
far.sort(key=lambda each: -each["readings"])
far_readings = sum(each["readings"] for each in far)
far_by_why = {why: sum(each["readings"] for each in far if each["why"] == why) for why in WHY}
print(f"{far_readings} are far off: {far_by_why}")
# --8<-- [end:far]


# --8<-- [start:lives]
lives: dict[str, dict[str, Any]] = {}
for name, table in (("liger", "Liger's loss"), ("scenarios", "scenarios")):
    of_table = [each for each in lives_of(FOLDER / "fms-acceleration.toml", _processes) if each.reading.table == table]
    lives[name] = {
        "runs": len(of_table),
        "lived": sum(each.lived for each in of_table),
        "died": sum(not each.lived for each in of_table),
    }
    for rule in ("by_tensors", "by_allocator"):
        wrong = [each for each in of_table if getattr(each, rule) != each.lived]
        lives[name][rule] = {
            "right": len(of_table) - len(wrong),
            "missed_deaths": sum(not each.lived for each in wrong),
            "false_deaths": sum(each.lived for each in wrong),
        }
    print(name, lives[name])
rows_alive = {(each.reading.source, each.reading.table, each.reading.row): each.lives for each in metered}
alive_runs, false_deaths = len(rows_alive), sum(each == DIES for each in rows_alive.values())
print(f"of {alive_runs} published runs, which all lived, {false_deaths} would die")
# --8<-- [end:lives]


# --8<-- [start:ranks]
asked_runs = ask_runs(list(read_runs(FOLDER)), _processes)


def of_layouts(run: Run) -> str:
    """A row of the table: the source, and of the largest how many ranks its pipeline has."""
    degree = run.row.settings["pp"]
    return f"{run.row.source}_{min(degree, 4)}" if run.row.source == "ultra-scale" else run.row.source


def how_far(of_readings: Sequence[float]) -> dict[str, Any]:
    """How far these ratios are off."""
    each = [abs(ratio - 1) for ratio in of_readings]
    near = sum(one <= NEAR for one in each) / len(each)
    return {"readings": len(each), "median_error_share": statistics.median(each), "within_share": near}


def by_row(of_runs: Sequence[Ratio]) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for run, ratio in of_runs:
        rows.setdefault(of_layouts(run), []).append(ratio)
    return rows


ratios_now, ratios_first = ratios(asked_runs), ratios_at_first(FOLDER, asked_runs)
layouts: dict[str, dict[str, Any]] = {}
for meter in ("reserved", "allocated"):
    now_by, first_by = by_row(ratios_now[meter]), by_row(ratios_first[meter])
    for row in now_by:
        layouts[f"{row}_{meter}".replace("-", "_")] = {"first": how_far(first_by[row]), "now": how_far(now_by[row])}
_of_all = {
    when: how_far([ratio for run, ratio in each["reserved"] if run.row.source == "ultra-scale"])
    for when, each in (("first", ratios_first), ("now", ratios_now))
}
layouts["ultra_scale"] = _of_all
intervals: dict[str, dict[str, float]] = {}  # of what nanotron reserves, over what was read: its middle ends
for tensor in (2, 8, 32):
    both_ends = [
        [end / read for end in said.rank_bytes["reserved"][rank]]
        for run, said in asked_runs
        if run.row.source == "ultra-scale" and run.row.settings["tp"] == tensor
        for rank, read in run.memory["reserved"]
        if not said.refused
    ]
    low, high = (statistics.median(ends) for ends in zip(*both_ends, strict=True))
    intervals[str(tensor)] = {"low_ratio": low, "high_ratio": high}
fast_runs = how_far([ratio for run, ratio in ratios_now["seconds"] if (run.mfu_percent or 0) > FAST])
step_kinds: dict[str, dict[str, Any]] = {}
for kind, of_kind in speeds(each for each in asked_runs if each[0].row.source == "ultra-scale").items():
    step_kinds[kind.replace(" ", "_")] = how_far([ratio for _, ratio in of_kind]) | {
        "ratio": statistics.median(ratio for _, ratio in of_kind),
        "as_long_share": sum(ratio <= 1 for _, ratio in of_kind) / len(of_kind),
    }
steps_by_source: dict[str, dict[str, Any]] = {}
for _source in SOURCES:
    _of_source = [said for run, said in asked_runs if run.row.source == _source]
    _found = [ratio for run, ratio in ratios_now["seconds"] if run.row.source == _source]
    steps_by_source[_source.replace("-", "_")] = how_far(_found) | {
        "ratio": statistics.median(_found),
        "rows": len(_of_source),
        "refused": sum(bool(said.refused) for said in _of_source),
    }
LAUNCHING_SECONDS = LAUNCHED_LAYER_SECONDS
BUS_BYTES_PER_SECOND = {  # of all-reduces that the runs measured on so many nodes
    str(nodes): statistics.median(
        run.row.settings["bus_bandwidth"]
        for run, _ in asked_runs
        if "bus_bandwidth" in run.row.settings and run.row.settings["gpus"] == nodes * NODE_GPUS
    )
    for nodes in (2, 8, 64)
}
OLD_ENGINE_SECONDS = statistics.median(  # that it took longer, a micro-batch
    ((said.published_seconds or 0) - said.seconds) / run.row.settings["micro_batches"]
    for run, said in asked_runs
    if run.old_engine and said.published_seconds
)
_chosen = choices([(run, said) for run, said in asked_runs if run.row.source == "ultra-scale"])
best_layouts = {
    "groups": len(_chosen),
    "layouts": sum(each.layouts for each in _chosen),
    "planned_share": statistics.median(each.planned_speed for each in _chosen),
    "middle_share": statistics.median(each.middle_speed for each in _chosen),
    "found_fastest": sum(each.planned_speed == 1 for each in _chosen),
    "below_half": sum(each.planned_speed < 0.5 for each in _chosen),
}

_crossing = [
    (run.number, run.ended or "ran")
    for run, said in asked_runs
    if run.row.source == "ultra-scale" and run.ended in ("", "memory") and not said.refused
]


def crossed(fits: dict[str, bool]) -> dict[str, dict[str, int]]:
    """Of the runs that ran, and of those that crashed for memory, how many are said to fit, by their number."""
    told = {ended: {"fits": 0, "dies": 0} for ended in ("ran", "memory")}
    for number, ended in _crossing:
        told[ended]["fits" if fits.get(number) else "dies"] += 1
    return told


crashes = {
    "now": crossed({run.number: said.lives != DIES for run, said in asked_runs if run.row.source == "ultra-scale"}),
    "first": crossed(
        {number: fits for (source, number), fits in fits_at_first(FOLDER).items() if source == "ultra-scale"}
    ),
}
crashed_otherwise = sum(run.ended in ("other", "unclear") for run, _ in asked_runs)
for row, far_now in layouts.items():
    of_row = far_now["now"]
    print(f"{row:24}{of_row['readings']:4} {of_row['median_error_share']:.1%}, {of_row['within_share']:.0%}")
print(crashes, fast_runs, step_kinds, OLD_ENGINE_SECONDS, best_layouts)
# --8<-- [end:ranks]
