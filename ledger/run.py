"""Runs one snippet in a fresh process and returns its values and what each of its sections printed."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import secrets
import selectors
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from ledger.book import Book, LedgerError, Problem
from ledger.execute import execute, tell_device
from ledger.snippet import Snippet
from ledger.units import Plain

MAX_OUTPUT_BYTES = 256 * 1024
MAX_REPORT_BYTES = 4 * 1024 * 1024
PATIENCE_SECONDS = 10.0  # until what was asked to end is killed


class MissingImport(Exception):
    """The snippet needs a module that is not installed here."""


@dataclass(frozen=True)
class Run:
    """What came of running a snippet."""

    values: dict[str, Plain]
    outputs: dict[str, str]  # by section, what it printed to standard output
    warnings: str  # what went to standard error
    device: dict[str, Any]
    software: dict[str, Any]
    seconds: float


def start_server() -> multiprocessing.context.ForkServerContext:
    """Starts, unless it runs already, a server with torch loaded that forks for every run.

    A fork takes 20 ms where a new interpreter needs seconds. The server runs no operation and touches no GPU, so a
    child starts as clean as a new interpreter.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ledger.preload"])
    multiprocessing.forkserver.ensure_running()
    return context


def run(snippet: Snippet, time_limit: float | None = None) -> Run:
    """Runs a snippet.

    Raises LedgerError, naming file and line, if it raises, outlasts time_limit (seconds; default: its own), prints
    more than MAX_OUTPUT_BYTES or holds a value that cannot be recorded; MissingImport if a module is not installed.
    """
    time_limit = snippet.time_limit if time_limit is None else time_limit
    mark = f"\0{secrets.token_hex(8)}:"
    context = start_server()
    ends = [context.Pipe(duplex=False) for _ in range(3)]
    child = context.Process(target=execute, args=(snippet.path.resolve(), mark, *(writer for _, writer in ends)))
    _start(child)
    for _, writer in ends:
        writer.close()
    report, output, errors = (reader for reader, _ in ends)
    try:
        raw, printed, warnings = _collect(snippet, (report, output, errors), mark.encode(), time_limit)
    finally:
        _end(child)
        for reader, _ in ends:
            reader.close()

    outputs = _by_section(printed.decode(errors="replace"), mark)
    if not raw:
        raise LedgerError([Problem(snippet.path, 0, f"the process died without a report (exit code {child.exitcode})")])
    result = parse(snippet, raw)
    if "missing" in result:
        raise MissingImport(result["missing"])
    if "error" in result:
        where = f" in section {result['section']!r}" if result["section"] else ""
        message = f"the snippet raised{where}:\n{_indent(result['error'])}"
        raise LedgerError([Problem(snippet.path, result["line"], message)])
    if "problems" in result:
        raise LedgerError(Problem(snippet.path, line, message) for line, message in result["problems"])
    if child.exitcode:  # whoever kills the process above it may have left others that ran beside what was measured
        message = f"the process that watched over it was ended (exit code {child.exitcode}); end only what you started"
        raise LedgerError([Problem(snippet.path, 0, message)])
    return Run(outputs=outputs, warnings=warnings.decode(errors="replace"), **result)


def ask_device() -> dict[str, Any]:
    """What describe_device() says, asked in another process: a CUDA context in this one would be measured too."""
    context = start_server()
    reader, writer = context.Pipe(duplex=False)
    with reader:
        child = context.Process(target=tell_device, args=(writer,))
        _start(child)
        writer.close()
        device: dict[str, Any] = reader.recv()
        child.join()
    return device


def _collect(
    snippet: Snippet, readers: tuple[Connection, Connection, Connection], mark: bytes, time_limit: float
) -> tuple[bytes, bytes, bytes]:
    """Everything the child wrote to report, output and errors, until it closes its report or breaks a limit."""
    report, *streams = readers
    received = {reader: bytearray() for reader in readers}
    deadline = time.monotonic() + time_limit
    with selectors.DefaultSelector() as selector:
        for stream in readers:
            selector.register(stream, selectors.EVENT_READ)
        while report in (key.fileobj for key in selector.get_map().values()):
            left = deadline - time.monotonic()
            events = selector.select(timeout=left) if left > 0 else []
            if not events:
                where = _where(snippet, received[readers[1]], mark)
                raise LedgerError([Problem(snippet.path, 0, f"did not end within {time_limit:g} seconds{where}")])
            for key, _ in events:
                reader: Connection = key.fileobj  # type: ignore[assignment,unused-ignore]
                chunk = os.read(reader.fileno(), 65536)
                received[reader] += chunk
                if not chunk:
                    selector.unregister(reader)
                if reader is not report and len(received[reader]) > MAX_OUTPUT_BYTES:
                    where = _where(snippet, received[readers[1]], mark)
                    raise LedgerError([Problem(snippet.path, 0, f"printed more than {MAX_OUTPUT_BYTES} bytes{where}")])
                if reader is report and len(received[report]) > MAX_REPORT_BYTES:
                    message = f"its values, or its error, take more than {MAX_REPORT_BYTES} bytes"
                    raise LedgerError([Problem(snippet.path, 0, message)])
    for reader in streams:  # what is still in the pipes; a grandchild may hold them open
        os.set_blocking(reader.fileno(), False)
        with suppress(BlockingIOError):
            while chunk := os.read(reader.fileno(), 65536):
                received[reader] += chunk
    raw, printed, warnings = (bytes(received[reader]) for reader in readers)
    return raw, printed, warnings


def _start(child: ForkServerProcess) -> None:
    try:
        child.start()
    except (ConnectionError, EOFError):  # the server is just ending, which a snippet can bring about: ask a new one
        time.sleep(1)
        child.start()


def _end(child: ForkServerProcess) -> None:
    """Ends a run's process, which ends all that it has started; one that does not, since it was stopped, is killed."""
    child.terminate()
    child.join(PATIENCE_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()


def parse(snippet: Snippet, raw: bytes) -> dict[str, Any]:
    """What the child reported: its length, which a Connection puts before it, and a JSON object."""
    (length,) = struct.unpack("!i", raw[:4]) if len(raw) >= 4 else (-1,)
    try:
        result = json.loads(raw[4:]) if length == len(raw) - 4 else None
    except ValueError:
        result = None
    if not isinstance(result, dict):
        message = "its report is not whole, or not the only one; a snippet's processes must not outlive it"
        raise LedgerError([Problem(snippet.path, 0, message)])
    return result


def _where(snippet: Snippet, printed: bytes | bytearray, mark: bytes) -> str:
    """The section that runs now, as an error says it: the last one whose whole name was printed after a mark."""
    _, found, rest = printed.rpartition(mark)
    name = rest[:100].partition(b"\n")[0].decode(errors="replace") if found else ""
    return f" (now in section {name!r})" if name in snippet.sections else ""


def _by_section(printed: str, mark: str) -> dict[str, str]:
    """What was printed, cut at the marks; a section that is entered twice has its output joined."""
    outputs: dict[str, str] = {}
    for piece in printed.split(mark)[1:]:
        name, _, text = piece.partition("\n")
        outputs[name] = outputs.get(name, "") + text
    return {name: text.rstrip() for name, text in outputs.items() if name and text.strip()}


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def resolve(book: Book, names: list[str]) -> list[Snippet]:
    """The named snippets, read and checked; all problems of all of them in one error."""
    read, problems = [], []
    for name in names:
        try:
            read.append(Snippet.read(book.snippet_file(name)))
        except LedgerError as error:
            problems += error.problems
    if problems:
        raise LedgerError(problems)
    return read
