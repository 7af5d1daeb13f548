"""Rates of kernels that others published: read from their files at a commit, checked, and put into the rule's table.

A file `measurements/published/rates/<source>.toml` is as those one folder higher: where a source stands, which lines
hold its rows, and what each was measured on; every row of a table, or none. `python -m published.rates
FOLDER --extract CLONES` reads the rows anew from CLONES/owner/name, `--table` writes flops_bytes/time/rate_table.py.

Of matmuls whose rows begin at no multiple of 16 bytes, published traces and this book's own sweep of shapes tell what
they reach of the nearest ones whose rows do.
"""

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.time import rate_table
from flops_bytes.time.gpus import GPUS
from flops_bytes.time.rates import card_family
from published.kernel_times import ALIGNED, group_of, read_rows
from published.readings import matches, read_head, rows_of, with_found

EXTRACTED = "# Written by `python -m published.rates`, from the files above. No hand types what follows."
RATES = {  # a pattern's group: what its unit is in FLOP/s or bytes/s
    "flop_per_second": 1.0,
    "tflop_per_second": 1e12,
    "gigabytes_per_second": 1e9,
    "tflop_on_vectors": 8e12,  # a float32 times a number in place: 8 bytes for one FLOP
}
KINDS = ("matmul", "best", "sustained", "attention", "elementwise")
LARGE = 2**25  # numbers of a tensor that no cache holds


class Rate(NamedTuple):
    """One row of a source."""

    source: str
    table: str
    what: str  # one of KINDS; "best": the fastest matmul that the source found
    gpu: str
    per_second: float  # FLOP/s or bytes/s
    found: Mapping[str, Any]  # its size and settings

    def size(self, *names: str) -> tuple[int, ...]:
        return tuple(int(self.found[name]) for name in names)


def read_rates(path: Path) -> list[Rate]:
    """The rows of a source as they were extracted. Raises ValueError with the file and the mend."""
    source = read_head(path)
    found = []
    for table in source["tables"]:
        rows, extracted = rows_of(table), source.get("extracted", {}).get("rows", {}).get(table["name"], [])
        if len(rows) != len(extracted):
            raise ValueError(f"{path}: {table['name']}: {len(extracted)} rows, {len(rows)} have settings; --extract")
        for row, words in zip(rows, extracted, strict=True):
            told = with_found(table, row, dict(zip(names_of(source, table), words, strict=True)))
            if told["what"] not in KINDS:
                raise ValueError(f"{path}: {table['name']}: {told['what']!r} is none of {', '.join(KINDS)}")
            found.append(Rate(path.stem, table["name"], told["what"], str(told.get("gpu", "")), rate(told), told))
    return found


def rate(told: Mapping[str, Any]) -> float:
    """What a row says, in FLOP/s or bytes/s."""
    if "share" in told:
        return float(told["share"]) * float(told["peak"])
    name = next(name for name in RATES if name in told)
    return float(told[name]) * RATES[name]


def names_of(source: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    names: list[str] = source["extracted"]["columns"][table["name"]]
    return names


def read_folder(folder: Path) -> list[Rate]:
    return [rate for path in sorted(folder.glob("*.toml")) for rate in read_rates(path)]


def extract(path: Path, clones: Path) -> int:
    """Reads a source's rows at its commit from `clones/<owner>/<name>` and writes them below EXTRACTED; how many."""
    source = read_head(path)
    texts: dict[str, str] = {}
    columns, rows = {}, {}
    for table in source["tables"]:
        found = [groups for _, _, groups in matches(path, source, table, clones, texts)]
        columns[table["name"]] = list(found[0])
        rows[table["name"]] = [list(groups.values()) for groups in found]
    above = path.read_text(encoding="utf-8").partition(EXTRACTED)[0].rstrip()
    lines = [
        above,
        "",
        EXTRACTED,
        "[extracted.columns]",
        *(f"{json.dumps(n)} = {json.dumps(c)}" for n, c in columns.items()),
    ]
    lines += ["", "[extracted.sha256]"]
    lines += [
        f"{json.dumps(where)} = {json.dumps(hashlib.sha256(texts[where].encode()).hexdigest())}" for where in texts
    ]
    lines += ["", "[extracted.rows]"]
    for name, each in rows.items():
        lines += [f"{json.dumps(name)} = [", *(f"    {json.dumps(words)}," for words in each), "]"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(map(len, rows.values()))


CARDS = {  # as ml-engineering names them; others are no row of the table of peaks
    "NVIDIA A100 SXM": "A100 80GB SXM",
    "NVIDIA A100 PCIe": "A100 80GB PCIe",
    "NVIDIA H100 SXM": "H100 SXM",
    "NVIDIA B200 SXM": "B200",
    "NVIDIA GB200 SXM": "GB200",
    "AMD MI300X": "MI300X",
}


def tabled(rates: list[Rate]) -> dict[str, Any]:
    """What the rule of rates.py asks: rows of 16 bits, of cards whose peaks are known."""
    sized: dict[str, list[tuple[int, ...]]] = {}
    best: dict[str, dict[str, int]] = {}
    sustained: dict[str, int] = {}
    bandwidth: dict[str, list[int]] = {}
    attention: dict[str, list[tuple[int, ...]]] = {}
    for each in rates:
        gpu = CARDS.get(str(each.found.get("card")), each.gpu)
        sixteen = each.found.get("dtype", "bfloat16") in ("bfloat16", "float16")
        if gpu not in GPUS or not sixteen:
            continue
        tera = round(each.per_second / 1e9)
        if each.what in ("matmul", "best") and each.found.get("b", "1") == "1":
            known = best.setdefault(gpu, {})
            known[each.source] = max(tera, known.get(each.source, 0))
        if each.what == "matmul" and "k" in each.found and each.found.get("b") == "1":
            sized.setdefault(gpu, []).append((*each.size("m", "k", "n"), tera))
        if each.what == "sustained":
            sustained[gpu] = tera
        if each.what == "elementwise" and is_large(each):
            bandwidth.setdefault(gpu, []).append(tera)
        if each.what == "attention" and each.found.get("causal") and each.found["head_dim"] == "128":
            done = 0.5 if each.found["pairs"] == "all" else 1
            back = each.found.get("backward_tflop_per_second")
            rows = attention.setdefault(gpu, [])
            size = each.size("tokens", "heads")
            if back:
                rows.append((*size, tera, round(1e3 * float(back))))
            elif each.found["pass"] == "forward":
                rows.append((*size, round(done * tera), 0))
            else:
                at = next(number for number, row in enumerate(rows) if row[:2] == size and not row[3])
                rows[at] = (*rows[at][:3], round(done * tera))
    return {"SIZED": sized, "BEST": best, "SUSTAINED": sustained, "ATTENTION": attention, "BANDWIDTH": bandwidth}


def is_large(each: Rate) -> bool:
    """Whether its tensor is too large for a cache; a source that gives no size says that it is."""
    return "rows" not in each.found or int(each.found["rows"]) * int(each.found["columns"]) >= LARGE


class Speed(NamedTuple):
    """Of a matmul."""

    where: str  # the trace or the record
    card: str
    unit: str
    shape: tuple[int, ...]  # how many at once, rows, columns, length of the sums
    flop_per_second: float

    def is_aligned(self) -> bool:
        return all(length % ALIGNED[self.unit] == 0 for length in self.shape[2:])

    def distance(self, other: "Speed") -> float:
        return sum(abs(log(mine / its)) for mine, its in zip(self.shape, other.shape, strict=True))


def matmul_speeds(measurements: Path) -> Iterator[Speed]:
    """On matmul units, those of published traces that took longer than their launch; and those of this book's sweep."""
    for path in sorted((measurements / "published" / "kernels").glob("*.toml")):
        for row in read_rows(path):
            if group_of(row) == "matmul" and row.seconds and row.unit in ALIGNED and row.unit != "float32":
                batch, m, n, k = row.shape
                yield Speed(row.where, row.card, row.unit, row.shape, 2 * batch * m * n * k / row.seconds)
    sweep = json.loads((measurements / "nvidia-h200" / "mfu.json").read_text(encoding="utf-8"))["values"]
    for name, shape in sweep["SHAPES"].items():
        yield Speed("mfu", "H200 SXM", "bfloat16", (1, *shape), sweep["shape_flop_per_second"][name])


NEAR = 0.2  # in logarithms, over all sides


def unaligned_shares(speeds: Iterable[Speed]) -> dict[str, list[float]]:
    """By family of cards what matmuls with unaligned rows reach of the nearest aligned one, where one is near."""
    speeds, shares = list(speeds), dict[str, list[float]]()
    aligned = [each for each in speeds if each.is_aligned()]
    for each in speeds:
        if each.is_aligned():
            continue
        near = [other for other in aligned if other[:3] == each[:3] and each.distance(other) <= NEAR]
        if near:
            share = each.flop_per_second / min(near, key=each.distance).flop_per_second
            shares.setdefault(card_family(each.card), []).append(round(share, 3))
    return {family: sorted(found) for family, found in sorted(shares.items())}


WHAT = {
    "SIZED": "matmuls: m, k, n and GFLOP/s",
    "BEST": "the fastest matmul of each source, GFLOP/s",
    "SUSTAINED": "large matmuls one after the other for minutes, GFLOP/s",
    "ATTENTION": "causal attention, heads of 128 features: tokens, heads, GFLOP/s forward and backward",
    "BANDWIDTH": "element-wise passes over tensors larger than a cache: GB/s of what is read and written",
    "UNALIGNED": "matmuls whose rows begin at no multiple of 16 bytes, over those whose rows do",
}


def rate_module(rates: list[Rate], measurements: Path) -> str:
    """The text of flops_bytes/time/rate_table.py."""
    lines = [
        '"""Published rates of kernels by card, in 16 bits; measurements/published/rates has their sources."""',
        "",
        "# Written by `python -m published.rates FOLDER --table`. No hand types what follows.",
        "# ruff: noqa: E501",
        "# fmt: off",
    ]
    for name, of in (tabled(rates) | {"UNALIGNED": unaligned_shares(matmul_speeds(measurements))}).items():
        lines.append(f"{name} = {{  # {WHAT[name]}")
        lines += [f"    {json.dumps(gpu)}: {rows!r},".replace("'", '"') for gpu, rows in of.items()]
        lines.append("}")
    return "\n".join([*lines, "# fmt: on"]) + "\n"


def main(arguments: list[str]) -> int:
    """The exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(prog="python -m published.rates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="measurements/published/rates")
    parser.add_argument("--extract", type=Path, metavar="CLONES")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    try:
        for path in sorted(options.folder.glob("*.toml")) if options.extract else []:
            print(f"{path.stem}: {extract(path, options.extract)} rows")
        rates = read_folder(options.folder)
    except (OSError, ValueError, KeyError, tomllib.TOMLDecodeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if options.table:
        path = Path(rate_table.__file__)
        path.write_text(rate_module(rates, options.folder.parents[1]), encoding="utf-8")
    print(f"{len(rates)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
