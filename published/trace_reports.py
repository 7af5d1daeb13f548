"""What traces of others' GPUs say, as `flops-bytes trace` prints it: `python -m published.trace_reports`.

A file `<source>.json` names traces of torch.profiler: repository, commit, licence, and of each its path, its card and
what ran. `--derive CLONES` reads them from `CLONES/<owner>/<name>`, and writes beside each its hash and its report.
Of a trace whose licence is not stated, no name of a kernel is kept (`"names": false`).
"""

import argparse
import gzip
import hashlib
import io
import json
import sys
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from flops_bytes.tools.kernels import Trace, as_trace, covered, entries, report
from published.readings import bytes_at

ROWS = 5  # kernels and operations that a report names
NAMED = ("longest", "other")  # parts of a report that hold names of kernels
SETTINGS = ("record_shapes", "with_stack")  # what the profiler was asked, where the file says it


def report_of(data: bytes, about: Mapping[str, Any]) -> dict[str, Any]:
    """What the trace in a file says of its first device, and what `flops-bytes trace` does not print."""
    found = list(entries(io.BytesIO(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)))
    trace = as_trace(found)
    told = report(trace, trace.kernels[0].device, about.get("gpu"), ROWS)
    told |= {key: [] for key in NAMED if not about.get("names", True)}
    told["settings"] = {key: bool(value) for key, value in found if key in SETTINGS}
    return told | {"most_launched": most_launched(trace), "collective_blocks": collective_blocks(trace, found)}


def most_launched(trace: Trace) -> dict[str, Any]:
    """The kernels that one call started, as of a graph: how many, from the first to the last, and how long some ran."""
    number, times = Counter(each.correlation for each in trace.kernels if each.correlation).most_common(1)[0]
    own = [each for each in trace.kernels if each.correlation == number]
    span = max(each.end for each in own) - own[0].start
    return {"kernels": times, "span_seconds": span / 1e9, "busy_seconds": covered(own) / 1e9}


def collective_blocks(trace: Trace, found: list[tuple[str, Any]]) -> int:
    """The most blocks of a collective's kernel: no more SMs than these hold it. 0 where the trace does not say it."""
    names = {each.name for each in trace.kernels if each.kind == "collective"}
    blocks = 0
    for key, event in found:
        if key == "traceEvents" and event.get("cat") == "kernel" and event["name"][:300] in names:
            blocks = max(blocks, prod(event["args"].get("grid", (0,))))
    return blocks


def derive(path: Path, clones: Path) -> int:
    """Reads a source's traces from a clone at its commit, and writes their reports; how many."""
    source = json.loads(path.read_text(encoding="utf-8"))
    for about in source["traces"]:
        data = bytes_at(clones / source["repository"], source["commit"], about["path"])
        about |= {"sha256": hashlib.sha256(data).hexdigest(), "report": report_of(data, about)}
    path.write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")
    return len(source["traces"])


def read_reports(folder: Path) -> dict[str, dict[str, Any]]:
    """The traces of all sources in a folder, by their names. Raises ValueError where there is none."""
    sources = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if not sources:
        raise ValueError(f"{folder}: no source (<source>.json) stands there")
    return {about["name"]: about for source in sources for about in source["traces"]}


def main(arguments: list[str]) -> int:
    """Prints how busy each GPU was; the exit status is 2 after a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m published.trace_reports", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="of the sources: measurements/published/traces of a checkout")
    parser.add_argument("--derive", type=Path, metavar="CLONES", help="reads the sources' files from CLONES/OWNER/NAME")
    options = parser.parse_args(arguments)
    try:
        for path in sorted(options.folder.glob("*.json")) if options.derive else []:
            print(path.stem, derive(path, options.derive))
        for name, about in read_reports(options.folder).items():
            span, busy = about["report"]["span_seconds"], about["report"]["busy_seconds"]
            print(f"{name:18}{about['card']:16}{busy / span:6.1%} of {span * 1e3:10,.3f} ms")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
