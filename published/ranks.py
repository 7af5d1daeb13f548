"""Published tables of runs with tensor, pipeline and data parallelism, beside what the planner says of each run.

`python -m published.ranks measurements/published` prints how far the two are apart; `--first` keeps what is said of
rows of which nothing was said yet, and never changes what was kept; `--extract CLONES` reads the rows again.

A source in measurements/published/layouts/tables is a head, which says where it is from, how its runs were set, and
what no option of the planner expresses; and its rows, in columns of the source's own. Of two sources the rows with an
odd number were left out while the planner was built, and asked once, at the end: `<source>-kept`.
"""

import argparse
import csv
import gzip
import io
import json
import multiprocessing
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flops_bytes.parallel.layouts import stage_layers
from flops_bytes.plan.meters import DIES, LIFE, Reading, one_way
from flops_bytes.plan.parallel import plan_layouts, rank_on_card, read_question
from flops_bytes.plan.rank_ways import Candidate, in_order
from flops_bytes.plan.stacks import read_model
from published.layouts import GIB, Row, nearer, published_seconds

NEAR = 0.15  # off by no more counts as near
MIB = 2**20
MFU_FLOORS = (30, 20, 10)  # percent
NODE_GPUS = 8  # of all sources
KEPT = "-kept"  # behind the name of a source: its rows that were left for the end
METERS: dict[str, Callable[[Any], int]] = {
    "allocated": lambda reading: reading.allocated_bytes,
    "reserved": lambda reading: reading.reserved_bytes[0],
}


Cells = Mapping[str, str]


class Run(NamedTuple):
    """A published run: how it was set, how it ended, and what was read."""

    row: Row
    number: str  # in its source
    ended: str  # empty if it ran, else why it did not: memory, other, unclear
    memory: Mapping[str, Sequence[tuple[int, float]]]  # by meter: bytes of a GPU of this pipeline rank
    mfu_percent: float | None
    old_engine: bool = False  # of its pipeline, before it was mended


def read_cells(folder: Path, source: str) -> list[dict[str, str]]:
    """The rows of a source as they are written there."""
    path = folder / "layouts" / "tables" / f"{source}.csv"
    packed = path.with_name(f"{path.name}.gz")
    text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def read_head(folder: Path, source: str) -> dict[str, Any]:
    """What is said of all rows of a source."""
    return tomllib.loads((folder / "layouts" / "tables" / f"{source}.toml").read_text(encoding="utf-8"))


def read_runs(folder: Path) -> Iterator[Run]:
    """All rows of all sources, from measurements/published."""
    for source in SOURCES:
        name, rows = source.removesuffix(KEPT), read_cells(folder, source)
        head = read_head(folder, name) | {"source": source, "gathered_by_nodes": gathered_by_nodes(rows)}
        yield from (RUN_OF[name](head, place, cells) for place, cells in enumerate(rows))


def gathered_by_nodes(rows: Iterable[Cells]) -> dict[int, float]:
    """Bytes a second of an all-gather over so many nodes: the middle of what rows on as many have measured."""
    found: dict[int, list[float]] = {}
    for cells in rows:
        if cells.get("allgather_gb_s"):
            gpus = int(cells["dp"]) * int(cells["tp"]) * int(cells["pp"])
            found.setdefault(gpus // NODE_GPUS, []).append(float(cells["allgather_gb_s"]) * 1e9)
    return {nodes: median(each) for nodes, each in found.items()}


def ultra_scale(head: Mapping[str, Any], place: int, cells: Cells) -> Run:
    told = [f"{name}={cells[name]}" for name in ("kv_heads", "vocab") if cells[name]]
    degrees = {name: int(cells[name]) for name in ("tp", "pp", "zero")}
    shape = " ".join([head["models"][cells["model"]], *told])
    settings = head["settings"] | degrees | {"shape": shape} | told_stages(cells, shape)
    settings |= {"gpus": int(cells["dp"]) * degrees["tp"] * degrees["pp"]}
    settings |= {"micro_batch": int(cells["mbs"]), "micro_batches": int(cells["gradacc"])}
    if settings["gpus"] > NODE_GPUS and cells["allreduce_gb_s"]:
        settings |= {"bus_bandwidth": float(cells["allreduce_gb_s"]) * 1e9}
    if degrees["tp"] > NODE_GPUS:
        settings |= {"tp_bandwidth": head["gathered_by_nodes"][degrees["tp"] // NODE_GPUS]}
    label = f"{cells['model']}, DP {cells['dp']}, PP {cells['pp']}, TP {cells['tp']}, ZeRO {cells['zero']}"
    return Run(
        named(head["source"], label, settings, {"tokens_per_second_a_gpu": cells["tokens_per_second_per_gpu"]}),
        str(place),
        cells["cause"],
        {"reserved": [(0, float(cells["reserved_gib"]) * GIB)] if cells["reserved_gib"] else []},
        float(cells["mfu_percent"]) if cells["mfu_percent"] else None,
        degrees["pp"] > 1 and cells["after_pipeline_fix"] == "False",
    )


def told_stages(cells: Cells, shape: str) -> dict[str, str]:
    """Where a row's first stage has fewer layers than nanotron's code fills it with, by its own parameters: some of the
    runs filled no stage beyond its part, where it had that exactly."""
    size = {
        name: int(told)
        for name, told in (part.split("=") for part in shape.split() if part.partition("=")[2].isdigit())
    }
    layers, d, pp = size["layers"], size["d_model"], int(cells["pp"])
    of_layer = 4 * d * d + 3 * d * size["d_ff"]
    head = size["vocab"] * d / of_layer
    if pp == 1 or not cells["local_parameters"]:
        return {}
    number, unit = float(cells["local_parameters"][:-1]), {"K": 1e3, "M": 1e6, "G": 1e9}[cells["local_parameters"][-1]]
    first = round((number * unit * int(cells["tp"]) - size["vocab"] * d) / of_layer)
    by_weight = stage_layers(layers, pp, "by-weight", head)
    if first == by_weight[0]:
        return {}
    others = stage_layers(layers - first, pp - 1, "by-weight", head)
    return {"stages": ",".join(str(each) for each in (first, *others))}


def simumax(head: Mapping[str, Any], place: int, cells: Cells) -> Run:
    model, degrees = head["models"][cells["model"]], {name: int(cells[name]) for name in ("tp", "cp", "ep", "pp")}
    settings = head["settings"] | degrees
    settings |= {"context": int(cells["context"]), "micro_batches": int(cells["micro_batches"])}
    if "config" in model:
        settings |= {"config": model["config"] | {"num_hidden_layers": int(cells["layers"])}}
    else:
        padded = ceil(model["vocab"] / (128 * degrees["tp"])) * 128 * degrees["tp"]
        settings |= {"shape": f"{model['shape']} layers={cells['layers']} vocab={padded}"}
    a_stage = settings["gpus"] // degrees["pp"]
    memory = {
        meter: [(gpu // a_stage, float(mib) * MIB) for gpu, mib in enumerate(cells[f"{meter}_mib"].split())]
        for meter in ("allocated", "reserved")
    }
    seconds = {"seconds": str(float(cells["milliseconds"]) / 1e3)}
    return Run(named(head["source"], cells["case"], settings, seconds), cells["row"], "", memory, None)


def megatron_bridge(head: Mapping[str, Any], place: int, cells: Cells) -> Run:
    number = {name: first_number(text) for name, text in cells.items()}
    degrees = {name: number[name] or 1 for name in ("tp", "pp", "cp", "ep")}
    virtual = {"schedule": "interleaved", "virtual_stages": number["vp"]} if (number["vp"] or 1) > 1 else {}
    name = cells["model"].partition(" (")[0]
    settings = (
        head["settings"] | degrees | (virtual if degrees["pp"] > 1 else {}) | head["kinds"].get(cells["kind"], {})
    )
    settings |= head["models"].get(name, {"model": name})
    settings |= {"gpu": head["cards"].get(cells["system"], cells["system"].removeprefix("DGX-"))}
    precision = cells["precision"].partition(" ")[0]
    settings |= {"linear": head["precisions"].get(precision, precision), "zero": 3 if number["fsdp"] else 1}
    settings |= {"gpus": number["gpus"], "context": number["length"], "micro_batch": number["mbs"]}
    settings |= {"global_batch": (number["gbs"] or 0) * (number["length"] or 0)}
    label = f"{cells['container']}, {cells['kind']}, {cells['system']}, {cells['model']}, {cells['precision']}"
    readings = {"tokens_per_second_a_gpu": str(number["tokens_per_second_a_gpu"])}
    return Run(named(head["source"], label, settings, readings), f"{cells['file']} {cells['row']}", "", {}, None)


def first_number(cell: str) -> int | None:
    """Of a cell with two, the one that is not in parentheses."""
    found = re.match(r"\d+", cell)
    return int(found[0]) if found else None


def named(source: str, label: str, settings: Mapping[str, Any], readings: Mapping[str, str]) -> Row:
    return Row(source, label, settings, False, "model", "all", {what: said for what, said in readings.items() if said})


RUN_OF: dict[str, Callable[[Mapping[str, Any], int, Cells], Run]] = {
    "ultra-scale": ultra_scale,
    "simumax-b200": simumax,
    "megatron-bridge": megatron_bridge,
}
SOURCES = (*RUN_OF, *(f"{name}{KEPT}" for name in ("simumax-b200", "megatron-bridge")))


Ratio = tuple[Run, float]  # planned over published


class Said(NamedTuple):
    """What the planner says of a run."""

    rank_bytes: Mapping[str, Mapping[int, tuple[int, int]]]  # by meter and pipeline rank, between which it lies
    needs_bytes: Sequence[int]  # tensors of each pipeline rank when it holds most
    seconds: float  # of a step
    seconds_are_least: bool  # because launches may set the pace
    lives: str  # the fullest rank, with what lies beside the tensors
    published_seconds: float | None
    refused: str  # the planner's sentence, if it plans no such run


def ask(run: Run) -> Said:
    """What is said today: of the ranks that were read, and whether the fullest lives."""
    settings = run.row.settings
    try:
        question = read_question(settings, reader=read_model)
        answer = plan_layouts(None, read_model, meters=False, **settings)
    except ValueError as error:
        return Said({}, (), 0.0, False, "", None, str(error).partition(";")[0])
    layout, beside = question.layout, answer["memory_bytes"]["allowance"]

    def readings(rank: int) -> list[Reading]:
        job = rank_on_card(question, layout, question.a["checkpointing"], rank)
        return [one_way(each, job.settings, job.capacity_bytes) for each in job.runs]

    asked = {rank for meter in run.memory.values() for rank, _ in meter} | {answer["fullest_rank"]}
    found = {rank: readings(rank) for rank in asked}
    by_meter = {
        meter: {
            rank: (min(of(each) for each in each_way), max(of(each) for each in each_way))
            for rank, each_way in found.items()
        }
        for meter, of in METERS.items()
    }
    best = min((each.lives for each in found[answer["fullest_rank"]]), key=LIFE.index)
    return Said(
        by_meter,
        [rank["needs_bytes"] - beside for rank in answer["ranks"]],
        answer["step_seconds"],
        answer["seconds_are_least"],
        best,
        published_seconds(run.row, answer) if run.row.readings else None,
        "",
    )


def ask_runs(runs: Sequence[Run], processes: int) -> list[tuple[Run, Said]]:
    """The same of many, which so many processes share."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return list(zip(runs, pool.map(ask, runs, chunksize=8), strict=True))


def kept(run: Run, said: Said, on: str) -> dict[str, Any]:
    """A line of what was said first."""
    line: dict[str, Any] = {"source": run.row.source, "row": run.number, "on": on}
    if said.refused:
        return line | {"refused": said.refused}
    line |= {"rank_bytes": said.needs_bytes, "seconds": said.seconds, "fits": said.lives != DIES}
    if run.row.source.endswith(KEPT) and any(run.memory.values()):
        line |= {
            "meters": {meter: {str(rank): each for rank, each in of.items()} for meter, of in said.rank_bytes.items()}
        }
    return line


def read_first(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()] if path.exists() else []


def first_lines(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What was said first, by source and row."""
    lines = read_first(folder / "layouts" / "tables" / "first.jsonl.gz")
    return {(line["source"], line["row"]): line for line in lines}


def fits_at_first(folder: Path) -> dict[tuple[str, str], bool]:
    return {key: line["fits"] for key, line in first_lines(folder).items() if "fits" in line}


def ratios_at_first(folder: Path, asked: Iterable[tuple[Run, Said]]) -> dict[str, list[Ratio]]:
    """What was said first over what was read, of what is planned today; of rows that were not left for the end,
    tensors stood for each meter then."""
    lines, found = first_lines(folder), dict[str, list[Ratio]]()
    for run, said in asked:
        line = lines[run.row.source, run.number]
        if said.refused or "refused" in line:
            continue
        for meter, readings in run.memory.items():
            by_rank = line["meters"][meter] if "meters" in line else {}
            for rank, read in readings:
                planned = nearer(by_rank[str(rank)], read) if by_rank else line["rank_bytes"][rank]
                found.setdefault(meter, []).append((run, planned / read))
        if said.published_seconds:
            found.setdefault("seconds", []).append((run, line["seconds"] / said.published_seconds))
    return found


def keep_first(path: Path, asked: Iterable[tuple[Run, Said]]) -> int:
    """Adds what is said of rows of which nothing is kept, after what is, and says of how many."""
    lines = read_first(path)
    known, today = {(line["source"], line["row"]) for line in lines}, datetime.now(UTC).date().isoformat()
    new = [kept(run, said, today) for run, said in asked if (run.row.source, run.number) not in known]
    if new:
        text = "".join(f"{json.dumps(line)}\n" for line in lines + new)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(new)


FEWEST_LAYOUTS = 3  # from which somebody chose


class Choice(NamedTuple):
    """Of layouts that ran one model with one batch on as many GPUs: the speed of the fastest is one."""

    layouts: int
    planned_speed: float  # of the one that the planner calls fastest; of several, the slowest
    middle_speed: float  # of a layout in the middle


def choices(asked: Iterable[tuple[Run, Said]]) -> list[Choice]:
    """Of each model, batch and number of GPUs of which a source ran several layouts, and of which one fits."""
    same: dict[tuple[object, ...], list[tuple[Candidate, float]]] = {}
    for run, said in asked:
        settings = run.row.settings
        if said.published_seconds and "shape" in settings and "micro_batch" in settings:
            data = settings["gpus"] // (settings["tp"] * settings["pp"])
            sequences = data * settings["micro_batch"] * settings["micro_batches"]
            key = run.row.source, settings["shape"], settings["gpus"], sequences
            question = read_question(settings, reader=read_model)
            candidate = Candidate(question, question.layout, question.a["checkpointing"], said.seconds)
            same.setdefault(key, []).append((candidate, said.published_seconds))
    found = [choice(each) for each in same.values() if len(each) >= FEWEST_LAYOUTS]
    return [each for each in found if each]


def choice(runs: Sequence[tuple[Candidate, float]]) -> Choice | None:
    """What the planner's search puts first, from each layout and its published seconds."""
    first = next(in_order([candidate for candidate, _ in runs], lives=False), None)
    if not first:
        return None
    fastest = min(published for _, published in runs)
    taken = max(published for candidate, published in runs if candidate == first.candidate)
    return Choice(len(runs), fastest / taken, median(fastest / published for _, published in runs))


def ratios(asked: Iterable[tuple[Run, Said]]) -> dict[str, list[Ratio]]:
    """By meter, and of seconds."""
    found: dict[str, list[Ratio]] = {}
    for run, said in asked:
        if said.refused:
            continue
        for meter, readings in run.memory.items():
            near = ((nearer(said.rank_bytes[meter][rank], read), read) for rank, read in readings)
            found.setdefault(meter, []).extend((run, planned / read) for planned, read in near)
        if said.published_seconds:
            found.setdefault("seconds", []).append((run, said.seconds / said.published_seconds))
    return found


def kind_of_speed(run: Run, said: Said) -> str:
    """Why a planned step may be too short; of several reasons the first."""
    if run.old_engine:
        return "old engine"
    if said.seconds_are_least:
        return "launches"
    return "tensor across nodes" if run.row.settings["tp"] > NODE_GPUS else "others"


def speeds(asked: Iterable[tuple[Run, Said]]) -> dict[str, list[Ratio]]:
    """Ratios of seconds by kind."""
    found: dict[str, list[Ratio]] = {}
    for run, said in asked:
        if said.published_seconds:
            found.setdefault(kind_of_speed(run, said), []).append((run, said.seconds / said.published_seconds))
    return found


def groups(found: Sequence[Ratio]) -> Iterator[tuple[str, list[float]]]:
    """All, by degree of pipeline and tensor parallelism, and by the least MFU."""
    yield "all", [ratio for _, ratio in found]
    for degree in ("pp", "tp"):
        for size in sorted({run.row.settings[degree] for run, _ in found}):
            yield f"{degree} {size}", [ratio for run, ratio in found if run.row.settings[degree] == size]
    for floor in MFU_FLOORS:
        if above := [ratio for run, ratio in found if (run.mfu_percent or 0) > floor]:
            yield f"MFU over {floor} %", above


def table(source: str, asked: Sequence[tuple[Run, Said]]) -> Iterator[str]:
    """What is printed of a source."""
    ended = Counter(run.ended or "ran" for run, _ in asked)
    yield f"{source}: {len(asked)} rows; " + ", ".join(f"{why} {count}" for why, count in ended.most_common())
    for sentence, count in Counter(said.refused for _, said in asked if said.refused).most_common():
        yield f"  refused {count}: {sentence}"
    for what, found in ratios(asked).items():
        yield f"  {what:<14}{'readings':>9}{'planned/read':>14}{'median error':>14}{f'within {NEAR:.0%}':>13}"
        for name, values in groups(found):
            errors = [abs(value - 1) for value in values]
            near = sum(error <= NEAR for error in errors) / len(errors)
            yield f"    {name:<12}{len(values):>9}{median(values):>14.3f}{median(errors):>14.1%}{near:>13.1%}"
    for kind, of_kind in speeds(asked).items():
        values = [ratio for _, ratio in of_kind]
        errors = [abs(value - 1) for value in values]
        held = sum(value <= 1 + NEAR for value in values) / len(values)
        told = f"{len(values):>6}{median(values):>14.3f}{median(errors):>14.1%}"
        yield f"  seconds, {kind:<20}{told}; no floor of {1 - held:.0%}"
    both = Counter((run.ended or "ran", said.lives != DIES) for run, said in asked if not said.refused)
    yield f"  {'':<22}{'fits':>8}{'does not':>10}"
    for ending, words in (("ran", "ran"), ("memory", "crashed for memory")):
        yield f"    {words:<20}{both[ending, True]:>8}{both[ending, False]:>10}"


def extract_simumax(head: Mapping[str, Any], clone: Path, first: int) -> Iterator[dict[str, Any]]:
    """Every other row, from the index 0 or 1 on."""
    rows = json.loads((clone / head["path"]).read_text(encoding="utf-8"))["rows"]
    for index, row in list(enumerate(rows))[first::2]:
        is_own = row.get("memory_source_case", row["case"]) == row["case"]
        gpus = [row["peak_memory_by_rank_mb"][str(rank)] for rank in range(8)] if is_own else []
        degree = {name: int(size) for name, size in re.findall(r"(tp|cp|ep|pp)(\d+)", row["parallel"])}
        length = re.search(r"_seq(\d+)_", row["case"])
        yield {
            "row": index,
            "case": row["case"],
            "model": row["model"],
            "layers": row["layer_num"],
            **{name: degree.get(name, 1) for name in ("tp", "cp", "ep", "pp")},
            "micro_batches": row["mbc"],
            "context": length[1] if length else 4096,
            "milliseconds": row["real_ms"],
            "allocated_mib": " ".join(f"{gpu['max_allocated_mb']:.2f}" for gpu in gpus),
            "reserved_mib": " ".join(f"{gpu['max_reserved_mb']:g}" for gpu in gpus),
        }


COLUMNS = {  # of Megatron-Bridge's tables, without spaces
    "System": "system", "Model": "model", "#-GPUs": "gpus", "Precision": "precision", "GBS": "gbs", "MBS": "mbs",
    "SequenceLength": "length", "FSDP": "fsdp", "TP": "tp", "PP": "pp", "CP": "cp", "VP": "vp", "EP": "ep", "GA": "ga",
    "Tokens/sec/GPU": "tokens_per_second_a_gpu", "ModelTFLOP/sec/GPU": "teraflops",
}  # fmt: skip


def extract_bridge(head: Mapping[str, Any], clone: Path, first: int) -> Iterator[dict[str, Any]]:
    """Every other row of each file, from the number 0 or 1 on."""
    for name in head["paths"]:
        place = dict.fromkeys(("file", "row", "container", "kind", *COLUMNS.values()), "")
        row, columns = 0, list[str]()
        for line in (clone / name).read_text(encoding="utf-8").splitlines():
            if found := re.match(r"#+ (?:([\d.]+) NeMo Container|(\S+) Performance$|System: (.+)|Model: (.+))", line):
                told = dict(zip(("container", "kind", "system", "model"), found.groups(), strict=True))
                place |= {what: said for what, said in told.items() if said}
            if not line.startswith("|"):
                columns = []
            elif not columns:
                columns = [COLUMNS[cell.replace(" ", "")] for cell in line.strip().strip("|").split("|")]
            elif not re.match(r"\|[ :]*-", line):
                if row % 2 == first:
                    cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
                    yield place | {"file": Path(name).stem, "row": row} | dict(zip(columns, cells, strict=True))
                row += 1


EXTRACTS = {"simumax-b200": extract_simumax, "megatron-bridge": extract_bridge}


def extract(folder: Path, clones: Path) -> None:
    """Writes the rows of these sources, from clones at the commit of their heads."""
    for source, read in EXTRACTS.items():
        head = read_head(folder, source)
        for first, half in enumerate((source, f"{source}{KEPT}")):
            rows = list(read(head, clones / head["repository"], first))
            path = folder / "layouts" / "tables" / f"{half}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def main(arguments: list[str]) -> int:
    """Prints each source's readings beside what the planner says; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m published.ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the sources: measurements/published of a checkout")
    parser.add_argument("--first", action="store_true", help="keep what is said of what was not asked yet")
    parser.add_argument("--extract", type=Path, metavar="CLONES", help="read the rows again, from <owner>/<name> here")
    options = parser.parse_args(arguments)
    try:
        if options.extract:
            extract(options.folder, options.extract)
        asked = ask_runs(list(read_runs(options.folder)), os.cpu_count() or 1)
        if options.first:
            keep_first(options.folder / "layouts" / "tables" / "first.jsonl.gz", asked)
    except (OSError, ValueError) as error:
        print(f"python -m published.ranks: {error}", file=sys.stderr)
        return 2
    for source in SOURCES:
        print("\n".join(table(source, [each for each in asked if each[0].row.source == source])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
