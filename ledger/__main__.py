"""Runs the book's snippets, keeps records of what they measure, and checks the chapters that quote them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from ledger.book import Book, LedgerError, Problem, explain
from ledger.carry import TAKEN, Allowed, carry
from ledger.compare import compare, disagreements
from ledger.judge import judge
from ledger.measure import Measurement, read_or_none
from ledger.record import Records, is_stale
from ledger.run import resolve
from ledger.snippet import SLOW_TIME_LIMIT_SECONDS, TIME_LIMIT_SECONDS

MAX_TIME_LIMIT_SECONDS = 7 * 24 * 3600  # the system cannot wait for as long as it likes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ledger", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the book's root (default: here)")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("run", "run absent or stale snippets on this machine, into .cache/, for the pages built here"),
        ("record", "measure absent or stale snippets on this machine, into measurements/<device>/, to be committed"),
    ):
        command = commands.add_parser(name, help=help_text, description=help_text)
        help_names = "names without .py (default: all that are not slow)"
        command.add_argument("snippets", nargs="*", metavar="snippet", help=help_names)
        command.add_argument("--slow", action="store_true", help="where none is named: the slow ones alone")
        help_measuring = "where none is named: not those whose values are the same on every machine, which carry counts"
        command.add_argument("--measuring", action="store_true", help=help_measuring)
        command.add_argument("--force", action="store_true", help="also what is fresh")
        help_limit = f"for one snippet ({TIME_LIMIT_SECONDS:g}, or {SLOW_TIME_LIMIT_SECONDS:g} for a slow one)"
        command.add_argument("--time-limit", type=_seconds, metavar="SECONDS", help=help_limit)
        if name == "run":
            command.add_argument("--watch", action="store_true", help="go on: run each snippet again when it changes")
    help_text = "carry committed records over a change of code that cannot change what was measured; a run confirms it"
    carry_command = commands.add_parser("carry", help=help_text, description=help_text)
    carry_command.add_argument("snippets", nargs="+", metavar="snippet", help="names without .py")
    carry_command.add_argument("--device", help="a folder of measurements/ (default: all of them)")
    for name, metavar, help_text in (
        ("rename", "snippet.value=new", "the value has a new name; a * in its path is any key"),
        ("silent", "snippet.section", "the section prints no more, and nothing quotes what it printed"),
        ("counted", "snippet.value", "the exact value, of changed code or new, is taken from the run here"),
        ("printed", "snippet.section", "what the section prints, of exact values alone, is taken from the run here"),
        ("gone", "snippet.value", "the value is gone"),
        ("round", "snippet.value=.3g", "the value, with all it holds, has fewer digits, as format() would write it"),
    ):
        carry_command.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=help_text)
    help_text = "the snippet had another name: its records get the new one"
    carry_command.add_argument("--was", metavar="old_name", help=help_text)
    carry_command.add_argument("--time-limit", type=_seconds, metavar="SECONDS", help="for one snippet")
    help_text = "report what is wrong with snippets, records and chapters, as file:line"
    check = commands.add_parser("check", help=help_text, description=help_text)
    check.add_argument("--committed", action="store_true", help="look at committed records alone, not at local runs")
    help_text = "set this machine's values beside a published device's"
    compare_command = commands.add_parser("compare", help=help_text, description=help_text)
    compare_command.add_argument("device", nargs="?", help="a folder of measurements/ (default: the only one)")
    help_text = "add to a built site what can be taken along: snippets, records, notebooks, texts"
    bundle = commands.add_parser("bundle", help=help_text, description=help_text)
    bundle.add_argument("site", type=Path, help="the folder of the built site")
    bundle.add_argument("--address", default="/", help="where the site will stand, for links that lead back to it")
    bundle.add_argument("--language", action="append", choices=["en", "zh"], help="leave the other one to a run beside")
    bundle.add_argument("--committed", action="store_true", help="look at committed records alone, not at local runs")
    help_text = "bind a built site into a book to take along, PDF and EPUB, in its downloads/"
    bind = commands.add_parser("bind", help=help_text, description=help_text)
    bind.add_argument("site", type=Path, help="the folder of the built site")
    bind.add_argument("--language", choices=["en", "zh"], default="en")
    help_text = "copy a built site into a folder that works when opened from the disk, and zip it into its downloads/"
    offline = commands.add_parser("offline", help=help_text, description=help_text)
    offline.add_argument("site", type=Path, help="the folder of the built site")
    offline.add_argument("folder", type=Path, help="where the copy goes; what is there is replaced")
    help_text = "write a page's figure as an SVG that stands alone, such as the README's"
    picture = commands.add_parser("picture", help=help_text, description=help_text)
    picture.add_argument("figure", help="as the page names it, such as count_your_step.picture")
    picture.add_argument("file", type=Path, help="where it goes, such as .github/step.svg")
    help_text = "judge records of another machine: are they valid, fresh, exact, plausible? (exit status 1: not all)"
    judge_command = commands.add_parser("judge", help=help_text, description=help_text)
    judge_command.add_argument("folder", type=Path, help="of one device's records, called as the device")
    help_text = "list every device's records (fresh, stale or absent), and timings that this machine no longer confirms"
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
            "carry": _carry,
            "compare": _compare,
            "check": _check,
            "bundle": _bundle,
            "bind": _bind,
            "offline": _offline,
            "picture": _picture,
            "judge": _judge,
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
    except OSError as error:
        print(explain(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _seconds(text: str) -> float:
    """A time limit as it was written; argparse names the option."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= MAX_TIME_LIMIT_SECONDS:  # NaN is neither
        mend = f"give seconds above 0, up to {MAX_TIME_LIMIT_SECONDS} (a week)"
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no time limit; {mend}")
    return seconds


def _run(book: Book, options: argparse.Namespace) -> int:
    measurement = Measurement.here(book, options.snippets, **_how(options))
    if options.watch:
        measurement.watch()
    failed = measurement.run()
    for snippet in resolve(book, options.snippets) if options.snippets else []:
        record = read_or_none(measurement.folder / f"{snippet.name}.json")
        for section, text in record.outputs.items() if record else ():
            print(f"{snippet.name}:{section}\n{text}\n")
    return 1 if failed else 0


def _record(book: Book, options: argparse.Namespace) -> int:
    return 1 if Measurement.published(book, options.snippets, **_how(options)).run() else 0


def _how(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("force", "slow", "measuring", "time_limit")}


def _compare(book: Book, options: argparse.Namespace) -> int:
    for line in compare(book, options.device):
        print(line)
    return 0


def _carry(book: Book, options: argparse.Namespace) -> int:
    taken = {option: getattr(options, option) for option in TAKEN}
    try:
        allowed = Allowed.read(options.rename, options.round, options.was, **taken)
    except ValueError as error:
        raise LedgerError([Problem(book.snippets, 0, str(error))]) from None
    for line in carry(book, options.snippets, allowed, options.device, options.time_limit):
        print(line, flush=True)
    return 0


def _check(book: Book, options: argparse.Namespace) -> int:
    what = "checked-committed" if options.committed else "checked"
    sources = (
        "figures/*.py",
        "ledger/**/*.py",
        "docs/??/**/*.md",
        "measurements/*/*.json",
        "mkdocs.yml",
    )
    stamp = book.code_stamp() + book.stamp(*sources, *(() if options.committed else (".cache/runs/*/*.json",)))
    if book.is_done(what, stamp):
        return 0
    from ledger.site.check import check  # needs Markdown, which a machine that only records lacks

    problems = check(book, local=not options.committed)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} to mend", file=sys.stderr)
        return 1
    book.set_done(what, stamp)
    return 0


def _bundle(book: Book, options: argparse.Namespace) -> int:
    from ledger.site.bundle import LANGUAGES, bundle

    bundle(book, options.site, options.address, not options.committed, options.language or LANGUAGES)
    return 0


def _bind(book: Book, options: argparse.Namespace) -> int:
    from ledger.site.bind import bind

    for path in bind(options.site, options.language):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _offline(book: Book, options: argparse.Namespace) -> int:
    from ledger.site.offline import offline

    path = offline(options.site, options.folder)
    print(f"{options.folder}/index.html, and {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _picture(book: Book, options: argparse.Namespace) -> int:
    from ledger.site.picture import picture

    options.file.write_text(picture(book, options.figure), encoding="utf-8")
    return 0


def _judge(book: Book, options: argparse.Namespace) -> int:
    told, problems = judge(book, options.folder)
    print(*told, *problems, sep="\n")
    return 1 if problems else 0


def _status(book: Book, options: argparse.Namespace) -> int:
    snippets = resolve(book, book.snippet_names())
    records = Records.load(book)
    for device, found in records.by_device.items():
        print(device)
        for snippet in snippets:
            record = found.get(snippet.name)
            state = "absent" if record is None else "stale" if is_stale(record, snippet) else "fresh"
            date, slow = f"  {record.measured_at[:10]}" if record else "", "  slow" if snippet.is_slow else ""
            print(f"  {state:7}{snippet.name}{date}{slow}")
    for line in disagreements(records):
        print(line)
    return 0


def _show(book: Book, options: argparse.Namespace) -> int:
    name, _, section = options.section.partition(":")
    (snippet,) = resolve(book, [name])
    here = Measurement.here(book, [name])
    if here.run():
        return 1
    record = read_or_none(here.folder / f"{name}.json")
    outputs = record.outputs if record else {}
    if section not in outputs:
        printing = ", ".join(outputs) or "none"
        raise LedgerError([Problem(snippet.path, 0, f"no section {section!r} prints anything; these do: {printing}")])
    print(outputs[section])
    return 0


if __name__ == "__main__":
    sys.exit(main())
