"""Runs the book's snippets, keeps records of what they measure, and checks the chapters that quote them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ledger.book import Book, LedgerError, Problem
from ledger.compare import compare
from ledger.device import ask_device, read_gpu_state
from ledger.record import Record, Records, is_stale, local_folder
from ledger.run import MissingImport, resolve, run, start_server
from ledger.snippet import Snippet

WIDE_SPREAD = 0.05  # of a median: more than that is worth a warning
BUSY_PERCENT = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ledger", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the book's root (default: here)")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("run", "run absent or stale snippets on this machine, into .cache/, for the pages built here"),
        ("record", "measure absent or stale snippets on this machine, into measurements/<device>/, to be committed"),
    ):
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.add_argument("snippets", nargs="*", metavar="snippet", help="names without .py (default: all)")
        command.add_argument("--force", action="store_true", help="also what is fresh")
        command.add_argument("--time-limit", type=float, default=120, metavar="SECONDS", help="for one snippet (120)")
        if name == "run":
            command.add_argument("--watch", action="store_true", help="go on: run each snippet again when it changes")
    help_text = "report what is wrong with snippets, records and chapters, as file:line"
    check = commands.add_parser("check", help=help_text, description=help_text)
    check.add_argument("--committed", action="store_true", help="look at committed records alone, not at local runs")
    help_text = "set this machine's values beside a published device's"
    compare_command = commands.add_parser("compare", help=help_text, description=help_text)
    compare_command.add_argument("device", nargs="?", help="a folder of measurements/ (default: the only one)")
    help_text = "add the snippets' and records' archives to a built site"
    bundle = commands.add_parser("bundle", help=help_text, description=help_text)
    bundle.add_argument("site", type=Path, help="the folder of the built site")
    help_text = "list every device's records: fresh, stale or absent"
    commands.add_parser("status", help=help_text, description=help_text)
    help_text = "print what a section of a snippet prints on this machine, such as the answer to an exercise"
    show = commands.add_parser("show", help=help_text, description=help_text)
    show.add_argument("section", metavar="snippet:section", help="for example storage_and_strides:exercise_1")
    options = parser.parse_args(arguments)
    book = Book(options.root.resolve())
    try:
        actions = {
            "run": _run,
            "record": _record,
            "compare": _compare,
            "check": _check,
            "bundle": _bundle,
            "status": _status,
            "show": _show,
        }
        return actions[options.command](book, options)
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _run(book: Book, options: argparse.Namespace) -> int:
    if options.watch:
        start_server()  # it will be wanted at once
    seen = _times(book)
    failed = _measure(book, options, local_folder(book))
    again = argparse.Namespace(**{**vars(options), "force": False})
    while options.watch:
        time.sleep(0.2)
        try:
            now = _times(book)
        except FileNotFoundError:  # an editor is just replacing a file
            continue
        if now != seen:
            seen = now
            failed = _measure(book, again, local_folder(book), failed)
    return 1 if failed else 0


def _times(book: Book) -> dict[str, int]:
    """When each snippet was last written."""
    return {path.name: path.stat().st_mtime_ns for path in book.snippets.glob("*.py")}


def _record(book: Book, options: argparse.Namespace) -> int:
    state = read_gpu_state() or {}
    if float(state.get("load_percent", 0)) > BUSY_PERCENT:
        print(f"the GPU is busy ({state['load_percent']:g} % load): what is measured now will be off", file=sys.stderr)
    return 1 if _measure(book, options, book.measurements / ask_device()["id"]) else 0


def _measure(
    book: Book, options: argparse.Namespace, folder: Path, gave_up: dict[str, str] | None = None
) -> dict[str, str]:
    """Runs what is absent or stale in folder, record by record; returns the hashes of those that failed.

    What is in `gave_up` with its present hash is not tried again.
    """
    failed: dict[str, str] = {}
    todo: list[Snippet] = []
    skipped = False
    everything = not options.snippets and not options.force

    def stamp() -> str:
        return book.stamp("snippets/*.py", str(folder.relative_to(book.root) / "*.json"))

    if everything and book.is_done(f"{folder.name}.measured", stamp()):
        return failed
    for name in options.snippets or book.snippet_names():
        try:
            (snippet,) = resolve(book.snippets, [name])
        except LedgerError as error:
            if (gave_up or {}).get(name) != str(error):
                print(error, file=sys.stderr)
            failed[name] = str(error)
            continue
        if (gave_up or {}).get(name) == snippet.hash:
            failed[name] = snippet.hash
        elif options.force or is_stale(_read_or_none(folder / f"{name}.json"), snippet):
            todo.append(snippet)
    for snippet in _with_progress(todo):
        try:
            before = read_gpu_state()
            result = run(snippet, options.time_limit)
            after = read_gpu_state()
        except MissingImport as error:
            print(f"{snippet.name}: skipped, needs {error}, which is not installed", file=sys.stderr)
            skipped = True
            continue
        except LedgerError as error:
            print(error, file=sys.stderr)
            failed[snippet.name] = snippet.hash
            continue
        if result.warnings:
            print(f"{snippet.name} wrote to standard error:\n{result.warnings.rstrip()}", file=sys.stderr)
        record = Record.of(snippet, result, {"before": before, "after": after})
        record.write(folder / f"{snippet.name}.json")
        for name in record.over_peak():
            clock = (after or {}).get("sm_clock_mhz", "unknown")
            print(
                f"{snippet.name}: {name} is over 1; the clock was {clock} MHz: above the datasheet's?", file=sys.stderr
            )
        widest = record.largest_spread()
        if options.command == "record" and widest and widest[0] > WIDE_SPREAD:
            message = f"{snippet.name}: the widest spread is {widest[0]:.1%} of its median; was the machine idle?"
            print(message, file=sys.stderr)
    if everything and not failed and not skipped:
        book.set_done(f"{folder.name}.measured", stamp())
    return failed


def _read_or_none(path: Path) -> Record | None:
    """The record at path; None if there is none or it is no longer readable, so that it is measured again."""
    try:
        return Record.read(path)
    except (FileNotFoundError, LedgerError):
        return None


def _with_progress(snippets: list[Snippet]) -> Iterator[Snippet]:
    """The snippets one by one, with a line on a terminal that says which is running."""
    began = time.monotonic()
    for number, snippet in enumerate(snippets, start=1):
        if sys.stderr.isatty():
            elapsed = time.monotonic() - began
            print(
                f"\r\033[K[{number}/{len(snippets)}] {elapsed:.0f} s  {snippet.name}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        yield snippet
    if snippets and sys.stderr.isatty():
        print(f"\r\033[K{len(snippets)} snippets in {time.monotonic() - began:.1f} s", file=sys.stderr)


def _compare(book: Book, options: argparse.Namespace) -> int:
    for line in compare(book, options.device):
        print(line)
    return 0


def _check(book: Book, options: argparse.Namespace) -> int:
    what = "checked-committed" if options.committed else "checked"
    sources = ("snippets/*.py", "figures/*.py", "ledger/*.py", "docs/??/**/*.md", "measurements/*/*.json")
    stamp = book.stamp(*sources, *(() if options.committed else (".cache/runs/*/*.json",)))
    if book.is_done(what, stamp):
        return 0
    from ledger.check import check  # needs Markdown, which a machine that only records lacks

    problems = check(book, local=not options.committed)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} to mend", file=sys.stderr)
        return 1
    book.set_done(what, stamp)
    return 0


def _bundle(book: Book, options: argparse.Namespace) -> int:
    from ledger.bundle import bundle

    bundle(book, options.site)
    return 0


def _status(book: Book, options: argparse.Namespace) -> int:
    snippets = resolve(book.snippets, book.snippet_names())
    for device, records in Records.load(book).by_device.items():
        print(device)
        for snippet in snippets:
            record = records.get(snippet.name)
            state = "absent" if record is None else "stale" if is_stale(record, snippet) else "fresh"
            print(f"  {state:7}{snippet.name}{f'  {record.measured_at[:10]}' if record else ''}")
    return 0


def _show(book: Book, options: argparse.Namespace) -> int:
    name, _, section = options.section.partition(":")
    (snippet,) = resolve(book.snippets, [name])
    run_one = argparse.Namespace(command="run", snippets=[name], force=False, time_limit=120)
    if _measure(book, run_one, local_folder(book)):
        return 1
    record = _read_or_none(local_folder(book) / f"{name}.json")
    outputs = record.outputs if record else {}
    if section not in outputs:
        printing = ", ".join(outputs) or "none"
        raise LedgerError([Problem(snippet.path, 0, f"no section {section!r} prints anything; these do: {printing}")])
    print(outputs[section])
    return 0


if __name__ == "__main__":
    sys.exit(main())
