"""What kernels and collectives took on others' GPUs, beside what the roofline, tiles and rings say of them.

A file `<source>.toml` names traces of torch.profiler and tables of nccl-tests: repository, commit, path, and the card.
`--derive CLONES` reads them from `CLONES/<owner>/<name>`, and writes below the line DERIVED: of a trace each matmul
and attention whose shapes were recorded, and each element-wise operation that moves 8 MiB or more; of a table each
size. With `--without-times` it writes what the formulas say alone: so they were asked before the times were known.
Where the bytes of an operation were counted wrong then, `first_roof_us` has what was said of it.
"""

import argparse
import gzip
import hashlib
import io
import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.parallel.sharding import ring_bytes, ring_rate
from flops_bytes.time.gpus import GPUS, LINK_EFFICIENCY, LINKS, Gpu
from flops_bytes.tools.kernels import MIB, Trace, Work, as_trace, by_shape, entries, joined
from flops_bytes.tools.toml import inline
from published.readings import bytes_at, read_file

DERIVED = "# Written by `python -m published.kernel_times`, from these files and formulas. No hand types."
NEEDED = {"repository": ("repository", "commit", "licence")}
TILE = 128  # rows, and columns, of the part of a matmul's result that an SM computes at a time
LEAST_BYTES = 8 * MIB  # moved by an element-wise operation, to be kept
NEAR = 0.25  # off by no more counts as near
SHORT_SECONDS = 10e-6  # predicted: below, what starting a kernel takes decides
LARGE_BYTES = 64 * MIB  # of a collective: below, latency decides, of which the formula knows nothing
ALIGNED = {"float32": 4, "tf32": 4, "bfloat16": 8, "float16": 8, "float8": 16}  # numbers in 16 bytes
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def roof_seconds(work: Work, peak: float, bandwidth: float) -> float:
    """The roofline: arithmetic at the peak, or bytes at the memory's bandwidth, whichever takes longer."""
    arithmetic = 0.0 if work.kind == "element-wise" else work.flops / peak
    return max(arithmetic, work.bytes / bandwidth)


def tiled_flops(batch: int, m: int, n: int, k: int, sms: int) -> int:
    """FLOPs of a matmul in whole tiles and whole waves: what is paid for, if each SM computes a tile at a time."""
    tiles = batch * ceil(m / TILE) * ceil(n / TILE)
    waves = ceil(tiles / sms)
    return 2 * waves * sms * TILE * TILE * k


def tiled_seconds(work: Work, peak: float, bandwidth: float, sms: int) -> float:
    """The roofline, with a matmul's arithmetic in whole tiles and waves."""
    if work.kind != "matmul":
        return roof_seconds(work, peak, bandwidth)
    batch, m, n, k = work.shape
    return roof_seconds(work._replace(flops=tiled_flops(batch, m, n, k, sms)), peak, bandwidth)


def ring_seconds(collective: str, payload_bytes: float, gpus: int, within: float, between: float) -> float:
    """A collective on a ring: the bytes that a GPU sends, at the share of its links' rate that the book assumes."""
    return ring_bytes(payload_bytes, gpus, collective) / (LINK_EFFICIENCY * ring_rate(gpus, within, between))


class Timed(NamedTuple):
    """A row of a source: what was done, what the formulas say of it, and how long it took."""

    source: str
    where: str  # the trace's path, or the table's name
    card: str
    kind: str  # matmul, attention, element-wise, collective
    operation: str
    shape: tuple[int, ...]  # of a collective: bytes, GPUs
    unit: str
    kernel: str  # that took longest
    calls: int
    sms: int  # that the card has; 0 for a collective
    why: str  # what the source, or its network, says of a table that differs
    predicted: dict[str, float]  # seconds by formula: roof, tiled; or ring
    seconds: float | None  # median of the calls, each the sum of its kernels; None where no time was written


def read_source(path: Path) -> dict[str, Any]:
    """A source as its file has it. Raises ValueError with the file and the mend."""
    source = read_file(path, NEEDED)
    for part in (*source.get("traces", []), *source.get("tables", [])):
        if part["card"] not in cards(source):
            raise ValueError(f"{path}: {part['card']} is no card of gpus.py, and not among its own cards")
    return source


def cards(source: Mapping[str, Any]) -> dict[str, Gpu]:
    """The cards that a source can name: the book's, and its own."""
    own = {
        name: Gpu((), 0, each["bandwidth_bytes_per_second"], each["peak_flop_per_second"], each["source"])
        for name, each in source.get("cards", {}).items()
    }
    return GPUS | own


def link_of(card: str) -> float:
    """What a card sends a second over the links of its machine."""
    return next(link.bytes_per_second for link in LINKS.values() if card in link.cards)


def read_rows(path: Path) -> list[Timed]:
    """A source's rows as they were derived. Raises ValueError where there is none."""
    source = read_source(path)
    derived = source.get("derived")
    if not derived:
        raise ValueError(f"{path}: nothing was derived: run python -m published.kernel_times --derive CLONES")
    rows = [
        _operation(path.stem, source["traces"][each["trace"]], derived["sms"][each["trace"]], each)
        for each in derived.get("operations", [])
    ]
    tables = (*source.get("traces", []), *source.get("tables", []))
    for each in derived.get("collectives", []):
        rows += _collectives(path.stem, next(t for t in tables if t.get("name") == each["table"]), each)
    return rows


def _operation(stem: str, trace: Mapping[str, Any], sms: int, each: Mapping[str, Any]) -> Timed:
    took = each["us"] / 1e6 if "us" in each else None
    said = {
        formula: each[f"{formula}_us"] / 1e6 for formula in ("roof", "tiled", "first_roof") if f"{formula}_us" in each
    }
    shape, card = tuple(each["shape"]), trace["card"]
    what = each["kind"], each["op"], shape, each["unit"], each["kernel"], each["calls"], sms, ""
    return Timed(stem, trace["path"], card, *what, said, took)


def _collectives(stem: str, table: Mapping[str, Any], each: Mapping[str, Any]) -> Iterator[Timed]:
    times = each.get("us", [None] * len(each["bytes"]))
    for size, said, took in zip(each["bytes"], each["ring_us"], times, strict=True):
        what = "collective", each["collective"], (size, table["gpus"]), "", "", 1, 0, table.get("why", "")
        seconds = None if took is None else took / 1e6
        yield Timed(stem, table["name"], table["card"], *what, {"ring": said / 1e6}, seconds)


def derive(path: Path, clones: Path, times: bool = True) -> int:
    """Reads a source's traces and tables from a clone at its commit, and writes their rows; how many."""
    source = read_source(path)
    clone, hashes = clones / source["repository"], {}
    before = {_key(each): each for each in source.get("derived", {}).get("operations", [])}
    operations: list[dict[str, Any]] = []
    collectives: list[dict[str, Any]] = []
    sms = []
    for number, trace in enumerate(source.get("traces", [])):
        data = bytes_at(clone, source["commit"], trace["path"])
        hashes[trace["path"]] = hashlib.sha256(data).hexdigest()
        data = gzip.decompress(data) if trace["path"].endswith(".gz") else data
        found = as_trace(entries(io.BytesIO(data)))
        sms.append(found.card(found.kernels[0].device)[1])
        if "collective" in trace:
            collectives.append(_of_trace(trace, found, data))
        else:
            operations += _operations(number, found, cards(source)[trace["card"]])
    for table in source.get("tables", []):
        data = bytes_at(clone, source["commit"], table["path"])
        hashes[table["path"]] = hashlib.sha256(data).hexdigest()
        collectives.append(_of_table(path, table, data.decode("utf-8")))
    for each in operations:
        was = before.get(_key(each), each)
        first = was.get("first_roof_us", was["roof_us"])
        each |= {"first_roof_us": first} if first != each["roof_us"] else {}
    for each in (*operations, *collectives):
        each |= {} if times else {"us": None}
    write(path, hashes, sms, operations, collectives)
    return len(read_rows(path))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes a row of a trace another than the rest."""
    return row["trace"], row["op"], tuple(row["shape"]), row["unit"], row["kernel"], row["calls"]


def _operations(number: int, found: Trace, gpu: Gpu) -> Iterator[dict[str, Any]]:
    device = found.kernels[0].device
    sms = found.card(device)[1]
    for row in sorted(by_shape(joined(found, device)), key=lambda row: (row.work, row.operation, row.unit)):
        work = row.work
        peak = gpu.peak_flop_per_second.get(row.unit, 0.0)
        if work.bytes < LEAST_BYTES if work.kind == "element-wise" else not peak:
            continue
        yield {
            "trace": number,
            "kind": work.kind,
            "op": row.operation.removeprefix("aten::"),
            "shape": list(work.shape),
            "unit": row.unit,
            "flops": None if work.kind == "element-wise" else work.flops,
            "bytes": work.bytes,
            "kernel": short(row.kernel),
            "calls": row.calls,
            "roof_us": rounded(roof_seconds(work, peak, gpu.bandwidth_bytes_per_second)),
            "tiled_us": rounded(tiled_seconds(work, peak, gpu.bandwidth_bytes_per_second, sms))
            if work.kind == "matmul"
            else None,
            "us": rounded(row.median_seconds),
        }


def _of_table(path: Path, table: Mapping[str, Any], text: str) -> dict[str, Any]:
    low, high = table["lines"]
    lines = text.split("\n")[low - 1 : high]
    found = [match for line in lines if (match := re.search(table["pattern"], line))]
    if len(found) != table["count"]:
        raise ValueError(f"{path}: {table['name']}: {len(found)} rows are found, not {table['count']}")
    sizes = [int(m["bytes"]) * UNITS.get(m.groupdict().get("unit") or "", 1) for m in found]
    sent = [ring_bytes(size, table["gpus"], table["collective"]) for size in sizes]
    told = [match.groupdict() for match in found]
    took = [
        float(each["us"]) / 1e6 if each.get("us") else bytes_ / (float(each["busbw"]) * 1e9)
        for each, bytes_ in zip(told, sent, strict=True)
    ]
    return _sized(table, sizes, took)


def _of_trace(trace: Mapping[str, Any], found: Trace, data: bytes) -> dict[str, Any]:
    """Collectives of a trace: each launch lies within an operation record_param_comms, which says how many numbers."""
    calls = []
    for key, event in entries(io.BytesIO(data)):
        args = (event.get("args") or {}) if key == "traceEvents" and type(event) is dict else {}
        if args.get("Collective name") == trace["collective"] and args.get("dtype") == "Float":
            start = round(event["ts"] * 1000)
            calls.append((start, start + round(event["dur"] * 1000), 4 * args["In msg nelems"]))
    times: dict[int, list[int]] = {}
    for kernel in found.kernels:
        launch = found.launches.get(kernel.correlation)
        if kernel.kind == "collective" and launch:
            sizes = [size for start, end, size in calls if start <= launch.start <= end]
            for size in sizes[:1]:
                times.setdefault(size, []).append(kernel.end - kernel.start)
    sizes = sorted(times)
    return _sized(trace, sizes, [statistics.median(times[size]) / 1e9 for size in sizes])


def _sized(table: Mapping[str, Any], sizes: list[int], took: list[float]) -> dict[str, Any]:
    within, between = link_of(table["card"]), table.get("between_bytes_per_second", 0.0)
    name = table["collective"]
    said = [ring_seconds(name, size, table["gpus"], within, between) for size in sizes]
    return {
        "table": table["name"],
        "collective": name,
        "bytes": sizes,
        "ring_us": [rounded(each) for each in said],
        "us": [rounded(each) for each in took],
    }


def rounded(seconds: float) -> float:
    """Microseconds, to four digits."""
    return float(f"{seconds * 1e6:.4g}")


def short(kernel: str) -> str:
    """The part of a kernel's name that says which it is."""
    named = re.search(r"cutlass::Kernel2?<(?:cutlass_)?(\w+)", kernel)
    tiled = re.match(r"(\w{4}).*?_((?:MT|tilesize)\d+x\d+x\d+)", kernel)
    plain = re.sub(r"^void |at::native::|\(anonymous namespace\)::", "", kernel)
    return (named[1] if named else f"{tiled[1]}_{tiled[2]}" if tiled else plain)[:48]


def write(
    path: Path, hashes: Mapping[str, str], sms: Iterable[int], operations: Iterable[Any], collectives: Iterable[Any]
) -> None:
    """Writes below DERIVED, a line a row; all above it stays as it is."""
    above = path.read_text(encoding="utf-8").partition(DERIVED)[0].rstrip()
    lines = [above, "", DERIVED, "[derived]", f"sms = {list(sms)}"]
    for name, rows in (("operations", operations), ("collectives", collectives)):
        told = [{key: value for key, value in row.items() if value is not None} for row in rows]
        lines += [f"{name} = [", *(f"    {inline(row)}," for row in told), "]"] if told else []
    lines += ["", "[derived.sha256]", *(f"{json.dumps(name)} = {json.dumps(each)}" for name, each in hashes.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def group_of(row: Timed) -> str:
    """The kind of a row, and whether it is too small for its formulas."""
    if row.kind == "collective":
        return row.kind if row.shape[0] >= LARGE_BYTES else "collective, small"
    return row.kind if row.predicted["roof"] >= SHORT_SECONDS else f"{row.kind}, short"


def tile_of(kernel: str) -> tuple[int, int] | None:
    """Rows and columns of a matmul's tile, where its kernel's name says them."""
    found = re.search(r"(?:gemm_|gemm_(?:relu_)?bf16_|tilesize|_MT)(\d+)x(\d+)", kernel)
    return (int(found[1]), int(found[2])) if found else None


def reason(row: Timed) -> str:
    """Why a formula may be wrong of a row, by what stands there without its time; the first that is so."""
    if row.why:
        return row.why
    if row.kind == "collective":
        return f"fewer than {LARGE_BYTES // MIB} MiB: latency" if row.shape[0] < LARGE_BYTES else ""
    if re.match("Memcpy (HtoD|DtoH)", row.kernel):
        return "a copy from or to the host"
    if row.predicted["roof"] < SHORT_SECONDS:
        return "predicted to take less than 10 µs"
    if row.kind == "attention":
        return "attention: exponentials beside matmuls"
    if row.kind == "element-wise":
        return "not contiguous, by its kernel's name" if row.kernel.startswith("elementwise_kernel") else ""
    batch, m, n, k = row.shape
    if batch * ceil(m / TILE) * ceil(n / TILE) < row.sms:
        return f"fewer tiles of {TILE} × {TILE} than SMs"
    if any(each % ALIGNED[row.unit] for each in (n, k)):
        return "rows that begin at no multiple of 16 bytes"
    tile = tile_of(row.kernel)
    return "another tile, by its kernel's name" if tile and tile != (TILE, TILE) else ""


def compared(rows: Iterable[Timed]) -> dict[tuple[str, str], dict[str, Any]]:
    """Predicted over measured by kind and formula: how many, the median, the ends, how many are near."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for formula, said in row.predicted.items():
            if row.seconds and formula != "first_roof":
                ratios.setdefault((group_of(row), formula), []).append(said / row.seconds)
    return {
        key: {
            "rows": len(found),
            "median_ratio": statistics.median(found),
            "low_ratio": min(found),
            "high_ratio": max(found),
            "near": sum(abs(each - 1) <= NEAR for each in found),
        }
        for key, found in sorted(ratios.items())
    }


def ratio(row: Timed) -> float:
    """Predicted over measured, by the formula that says most: tiles for a matmul."""
    assert row.seconds
    return row.predicted.get("tiled", row.predicted.get("roof", row.predicted.get("ring", 0.0))) / row.seconds


def is_far(row: Timed) -> bool:
    return bool(row.seconds) and abs(ratio(row) - 1) > NEAR


def reasons(rows: Iterable[Timed]) -> dict[tuple[str, str], tuple[int, int]]:
    """By kind and reason: how many rows are far off, of how many."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        far, all_ = found.get((row.kind, reason(row)), (0, 0))
        found[row.kind, reason(row)] = far + is_far(row), all_ + 1
    return dict(sorted(found.items()))


def read_all(folder: Path) -> list[Timed]:
    """The rows of every source in a folder. Raises ValueError if there is none."""
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise ValueError(f"{folder}: no source (<source>.toml) stands there")
    return [row for path in paths for row in read_rows(path)]


def told(rows: Iterable[Timed], every: bool = False) -> Iterator[str]:
    """Predicted over measured, as lines of a terminal; `every` row too."""
    rows = list(rows)
    for row in rows if every else []:
        ratios = " ".join(
            f"{name} {said / row.seconds:6.2f}" if row.seconds else f"{name} {said * 1e6:.4g} µs"
            for name, said in row.predicted.items()
        )
        shape = " × ".join(map(str, row.shape))
        yield f"{row.card:14} {row.operation:20} {shape:34} {row.unit:9} {ratios}  {row.kernel}"
    yield f"{'predicted over measured':28}{'formula':9}{'rows':>6}{'median':>9}{'lowest':>9}{'highest':>9}  within 25 %"
    for (group, formula), found in compared(rows).items():
        ratios = "".join(f"{found[name]:9.2f}" for name in ("median_ratio", "low_ratio", "high_ratio"))
        yield f"{group:28}{formula:9}{found['rows']:6}{ratios}  {found['near']}"
    yield f"farther off, by the last formula of a row: {sum(1 for row in rows if is_far(row))} of {len(rows)}"
    for (kind, why), (far, all_) in reasons(rows).items():
        yield f"  {kind:14}{far:5} of {all_:4}  {why or 'nothing else is known'}"


def main(arguments: list[str]) -> int:
    """Prints what was predicted over what was measured, by kind; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m published.kernel_times", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="of the sources: measurements/published/kernels of a checkout")
    parser.add_argument("--derive", type=Path, metavar="CLONES", help="reads the sources' files from CLONES/OWNER/NAME")
    parser.add_argument("--without-times", action="store_true", help="writes what the formulas say, and no time")
    parser.add_argument("--rows", action="store_true", help="prints every row")
    options = parser.parse_args(arguments)
    try:
        for path in sorted(options.folder.glob("*.toml")) if options.derive else []:
            print(path.stem, derive(path, options.derive, not options.without_times))
        for line in told(read_all(options.folder), options.rows):
            print(line)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
