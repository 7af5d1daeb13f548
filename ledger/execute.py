"""The child's side of a run: executes one snippet in this (fresh) process and reports what came of it.

Needs the standard library and, for the provenance, torch.
"""

from __future__ import annotations

import ast
import codeop
import json
import math
import multiprocessing
import os
import sys
import time
import traceback
import types
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ledger.device import describe_device, describe_peak, describe_software
from ledger.process_tree import run_and_end_all
from ledger.snippet import PACKAGES, Snippet, find_root
from ledger.units import Plain, unit_of

MAX_VALUE_BYTES = 64 * 1024  # of one value as JSON; what is larger belongs on no page
MAX_ERROR_LENGTH = 8_000  # of an error's text: its first and last half


def execute(path: Path, mark: str, report: Connection, output: Connection, errors: Connection) -> None:
    """Runs the snippet at path; its report, one JSON object, goes to `report`, what it prints to the other two.

    The report holds values, device, software and seconds, or an error with its line and section.
    In the output, `mark` followed by a section's name and a newline says where a section's output begins.
    Whatever the snippet has started ends with it.
    """
    run_and_end_all(partial(_execute, path, mark, report, output, errors))


def tell_device(report: Connection) -> None:
    """Sends what describe_device() says."""
    report.send(describe_device())


def _execute(path: Path, mark: str, report: Connection, output: Connection, errors: Connection) -> None:
    multiprocessing.set_start_method("fork", force=True)  # DataLoader's workers
    sys.dont_write_bytecode = True  # a compiled module knows its source's size and second: an edit can keep both
    sys.excepthook = sys.__excepthook__
    for stream, descriptor in ((output, 1), (errors, 2)):
        os.dup2(stream.fileno(), descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    report.send_bytes(json.dumps(_run(Snippet.read(path), mark)).encode())
    sys.stdout.flush()
    sys.stderr.flush()


def _run(snippet: Snippet, mark: str) -> dict[str, Any]:
    if snippet.too_old:
        return {"missing": snippet.too_old, "line": 0}
    main = types.ModuleType("__main__")
    main.__file__ = str(snippet.path)
    sys.modules["__main__"] = main
    sys.argv = [str(snippet.path)]
    _find_library(snippet.path)

    compiler = codeop.Compile()  # carries `from __future__` on to the statements that follow
    section: str | None = None
    process = os.getpid()
    began = time.perf_counter()
    for statement in snippet.tree.body:
        inside = snippet.section_at(statement.lineno)
        if inside != section:
            section = inside
            print(f"{mark}{section or ''}", flush=True)
        try:
            exec(compiler(ast.Module([statement], []), str(snippet.path), "exec"), main.__dict__)  # type: ignore[arg-type]
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in PACKAGES:
                return _error(error, snippet, statement, section)
            return {"missing": error.name, "line": statement.lineno}
        except BaseException as error:
            return _error(error, snippet, statement, section)
        if os.getpid() != process:  # a fork that the snippet did not end: the values are its parent's to report
            os._exit(0)
    seconds = time.perf_counter() - began
    sys.stdout.flush()

    values, problems = _collect(snippet, main.__dict__)
    if problems:
        return {"problems": problems}
    device = describe_device() | ({"peak": peak} if (peak := describe_peak()) else {})
    return {"values": values, "device": device, "software": describe_software(), "seconds": round(seconds, 3)}


def _find_library(path: Path) -> None:
    """Lets a snippet, and the processes that it starts, import what lies beside it and the library of its checkout."""
    root = find_root(path)
    sys.path[:0] = [str(path.parent), *([str(root)] if root else [])]
    paths = [str(root) if root else "", os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _error(error: BaseException, snippet: Snippet, statement: ast.stmt, section: str | None) -> dict[str, Any]:
    """The error with the line of the snippet it came from, and the traceback from the snippet's first line on."""
    if isinstance(error, SystemExit):
        error = RuntimeError(f"the snippet called exit({error.code!r})")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(snippet.path)]
    shown = frames[frames.index(own[0]) :] if own else []
    text = "".join([*traceback.format_list(shown), *traceback.format_exception_only(error)])
    if len(text) > MAX_ERROR_LENGTH:
        half = MAX_ERROR_LENGTH // 2
        text = f"{text[:half]} [… {len(text) - MAX_ERROR_LENGTH} characters …] {text[-half:]}"
    return {"error": text, "line": (own[-1].lineno if own else None) or statement.lineno, "section": section}


def _collect(snippet: Snippet, namespace: dict[str, Any]) -> tuple[dict[str, Plain], list[tuple[int, str]]]:
    """The values to record, and (line, message) for names that carry a unit but cannot be recorded.

    A name without a unit that holds no plain data (a tensor, a function) is left out silently.
    """
    values: dict[str, Plain] = {}
    problems: list[tuple[int, str]] = []
    for name, binding in snippet.bindings.items():
        if name not in namespace or snippet.why_not_quotable(name):
            continue
        try:
            value = to_plain(namespace[name])
            if len(json.dumps(value)) > MAX_VALUE_BYTES:
                raise ValueError(f"takes more than {MAX_VALUE_BYTES} bytes as JSON")
            values[name] = value
        except (ValueError, RecursionError) as error:  # a list may hold itself
            if unit_of(name) and not callable(namespace[name]):
                problems.append((binding.line, f"the value of {name!r} {error}"))
    return values, problems


def to_plain(value: Any) -> Plain:
    """Value as plain data: NamedTuples become dictionaries, tuples lists, keys text. Raises ValueError for others."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > sys.float_info.max:
            raise ValueError("is an int beyond the largest float; only what can be calculated with is recorded")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"is {value}; only finite numbers are recorded")
        return float(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        plain = {str(key): to_plain(item) for key, item in value.items()}
        if len(plain) < len(value):
            raise ValueError("has two keys that are the same as text")
        return plain
    raise ValueError(f"is a {type(value).__name__}, not plain data; convert it, e.g. with int(), float() or .tolist()")
