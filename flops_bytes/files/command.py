"""`flops-bytes FILE …`: what was read of the files, key by key, and the planner's answer to it; and `flops-bytes plan`,
whose options a software may run."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap
from typing import Any, TextIO

from flops_bytes.files.content import Content, content_of, message_words
from flops_bytes.files.formats import line_of
from flops_bytes.files.interpret import Part
from flops_bytes.files.out_of_memory import PARTS, decode
from flops_bytes.files.run import SMALL, Row, Run, flags, problems_of, read_run, rows_of, shown
from flops_bytes.files.run_by import read, run_by, software_named
from flops_bytes.files.software import sentences, softwares
from flops_bytes.files.write import NOT_WRITTEN, REMOVED, change_of, lines_of, sayable
from flops_bytes.plan import plan
from flops_bytes.plan.__main__ import main as run_plan
from flops_bytes.plan.options import OPTIONS
from flops_bytes.plan.parallel import DEGREES, PARALLEL
from flops_bytes.plan.ways import TRIED

MISTAKE = 2
MOST_FILES = 20
UNINDENTED = ("file", "run by", "config", "implied", "card")  # sentences
WIDEST = 60  # characters of a key and its value
USAGE = """usage: flops-bytes FILE … [options of flops-bytes plan]

Each FILE is known by what it holds: a training's configuration (transformers, TRL, accelerate, DeepSpeed,
LLaMA-Factory, axolotl, torchtitan), a model's config.json, an out-of-memory message or a log that holds one.
Several are one run. A memory snapshot, a trace and a training script go to the commands that are theirs."""


def main(arguments: list[str]) -> int:
    """Prints what is read and the answer; the exit status is that of the planner, 2 for a file that cannot be read."""
    paths, rest = split_arguments(arguments)
    try:
        if len(paths) > MOST_FILES:
            raise ValueError(f"{len(paths)} files are no run; give {MOST_FILES} or fewer")
        contents = [content_of(path) for path in paths]
        own = [each for each in contents if each.kind not in ("table", "message")]
        if own:
            return hand_over(own, contents, rest)
        return answer(contents, rest)
    except ValueError as error:
        print(f"flops-bytes: {error}", file=sys.stderr)
        return MISTAKE


def plan_options(arguments: list[str]) -> int:
    """`flops-bytes plan`: the planner, or with --run-by its answer to the same as a software runs it."""
    written, rest = without_run_by(arguments)
    if written is None or {"-h", "--help", "--schema"} & {*arguments}:
        return run_plan(arguments)
    try:
        return answer_as_run_by(software_named(written), rest)
    except ValueError as error:
        print(f"flops-bytes plan: {error}", file=sys.stderr)
        return MISTAKE


def without_run_by(arguments: list[str]) -> tuple[str | None, list[str]]:
    """What is said with --run-by, and the other arguments."""
    for n, each in enumerate(arguments):
        flag, is_joined, value = each.partition("=")
        if flag == "--run-by":
            end = n + (1 if is_joined else 2)
            return value if is_joined else "".join(arguments[n + 1 : end]), arguments[:n] + arguments[end:]
    return None, arguments


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The files, and the options behind them."""
    first = next((n for n, each in enumerate(arguments) if each.startswith("-") and each != "-"), len(arguments))
    return arguments[:first], arguments[first:]


def hand_over(own: list[Content], contents: list[Content], rest: list[str]) -> int:
    """Runs the command that reads a file."""
    if len(contents) > 1:
        others = [each.path for each in contents if each is not own[0]]
        raise ValueError(f"{own[0].path}: flops-bytes {own[0].kind} reads it alone; give {', '.join(others)} apart")
    print(f"as read: {own[0].path}: flops-bytes {own[0].kind} {own[0].path}", flush=True)
    return command_of(own[0].kind)([own[0].path, *rest])


def command_of(kind: str) -> Callable[[list[str]], int]:
    """The command that reads a file, imported when it is asked for: counting needs torch, the others do not."""
    match kind:
        case "snapshot":
            from flops_bytes.tools.snapshot import main as run
        case "trace":
            from flops_bytes.tools.kernels import main as run
        case _:
            from flops_bytes.counting.command import main as run
    return run


def answer(contents: list[Content], rest: list[str]) -> int:
    """Says what was read, and plans it."""
    given, tables = options_in(rest), [each for each in contents if each.kind == "table"]
    out = sys.stderr if "--json" in rest else sys.stdout  # which is for programs
    for line in [line for each in contents if each.kind == "message" for line in message_lines(each)]:
        print(line, file=out)
    if not tables and not rest:
        return 0
    run = read_run(contents, softwares(), given)
    refused = list(problems_of(run, given, softwares()))
    return answer_run(run, run if tables else None, list(rows_of(run, softwares())), refused, given, rest)


def answer_as_run_by(software: str, rest: list[str]) -> int:
    """The same of options without files, as a software runs them."""
    given = options_in(rest)
    run, empty = run_by(software, given)
    rows = list(rows_of(run, softwares()))
    rows[0] = rows[0]._replace(sentence="run by")
    refused = [row for row in problems_of(run, given, softwares()) if row.sentence in ("refused", "refusal")]
    return answer_run(run, empty, rows, refused, given, rest)


def answer_run(
    run: Run, written: Run | None, rows: list[Row], refused: list[Row], given: Mapping[str, Any], rest: list[str]
) -> int:
    """Says what was read of a run, what it takes, and as the files that are written what changes."""
    as_json = "--json" in rest
    out = sys.stderr if as_json else sys.stdout  # which is for programs
    for line in reading_lines(rows):
        print(line, file=out)
    if refused:
        raise ValueError("\n             ".join([sentence(row) for row in refused]))

    def where(name: str) -> str:
        each = next((each for each in run.reading.said if name in each.options and each.file), None)
        return f"{each.file}, {place(line_of(run.texts[each.file], each.key))}{shown(each)}: " if each else ""

    asked, status = planned(run.asked, given, [each for each in rest if each != "--find" or as_json], out, where)
    if not as_json and written and status != MISTAKE:
        for line in written_lines(written, asked, given, "--find" in rest):
            print(line)
    return status


def options_in(rest: list[str]) -> dict[str, Any]:
    """The planner's options behind the files, as plan() takes them."""
    found: dict[str, Any] = {}
    short = {f"{word}_parallel": name for name, word in DEGREES.items()}
    for n, each in enumerate(rest):
        name, is_joined, value = each.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        name = short.get(name, name)
        if each.startswith("--") and (name in OPTIONS or name in PARALLEL):
            found[name] = value if is_joined else rest[n + 1] if n + 1 < len(rest) else ""
    return found


# What was read


def reading_lines(rows: list[Row]) -> Iterator[str]:
    """What is said of the files, key by key, what belongs to one indented and in columns."""
    width = min(max([len(row.key) for row in rows if row.means] or [0]), WIDEST)
    before = ""
    for row in rows:
        if row.sentence == "default" != before:
            yield sentences()["defaults"]
        before = row.sentence
        text = sentence(row._replace(key=f"{row.key:{width}}") if row.means and row.key else row)
        if row.sentence in ("option", "default"):
            yield f"  {text}"
        else:
            yield from [text] if row.sentence in UNINDENTED else indented(text)
    yield ""


def sentence(row: Row) -> str:
    """What a row says, in words."""
    told = sentences()
    taken = told["taken"].format(why=row.why) if row.why and row.means else row.why
    return told[row.sentence].format(**row._asdict(), place=place(row.line), taken=taken)


def place(line: int) -> str:
    return sentences()["place"].format(line=line) if line else ""


def indented(text: str) -> list[str]:
    return wrap(text, 118, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


# The answer


def planned(
    asked: dict[str, Any], given: Mapping[str, Any], rest: list[str], out: TextIO, where: Callable[[str], str]
) -> tuple[dict[str, Any], int]:
    """What was asked in the end, and the answer's exit status: options of few bytes that the planner does not derive
    are left out, which is said."""
    asked = dict(asked)
    while True:
        try:
            plan(meters=False, **{**asked, **given})
            break
        except ValueError as error:
            name = str(error).partition(":")[0].removeprefix("--").replace("-", "_")
            if name not in asked or (name not in SMALL and not where(name)):
                break  # which the planner says itself
            if name not in SMALL:
                raise ValueError(where(name) + str(error)) from None
            print(f"left out: {flags({name: asked.pop(name)}, None)}; {str(error).partition(': ')[2]}\n", file=out)
    as_text = {name: json.dumps(value, default=str) if name == "config" else value for name, value in asked.items()}
    return asked, run_plan([*(f"--{name.replace('_', '-')}={value}" for name, value in as_text.items()), *rest])


# Written down

MOST_WAYS = 5
FREED = (*TRIED, "checkpoint_every", "lora", "base", "lora_on", "lora_dropout")  # what files say and --find may change


def written_lines(run: Run, asked: Mapping[str, Any], given: Mapping[str, Any], find: bool) -> Iterator[str]:
    """The options behind the files as their own lines; and of each way that fits the lines that ask for it."""
    own = sayable([Part("", name, {}) for name in softwares()], softwares())
    changed = {name: read(name, value) for name, value in given.items() if name in own and name not in NOT_WRITTEN}
    if lines := list(change_lines(run, changed)):
        yield ""
        yield sentences()["asked" if not run.parts or run.parts[0].held else "written"]
        yield from lines
    if find:
        yield ""
        yield sentences()["ways"]
        for n, way in enumerate(plan(find=True, meters=True, **freed(run, asked, given))["ways"][:MOST_WAYS], start=1):
            options = with_accumulation(way["options"], {**asked, **given})
            yield sentences()["way"].format(
                n=n,
                means=flags(options, None) or sentences()["as it is"],
                needs=f"{way['needs_bytes'] / 2**30:,.1f} GiB",
                verdict=way["verdict"],
                speed=f"{way['tokens_per_second']:,.0f}",
            )
            yield from change_lines(run, {**changed, **options})


def freed(run: Run, asked: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The question of what else fits: what files say of it is open, but for the sequences of a step, and for options
    that their softwares have no key for."""
    question = {name: value for name, value in asked.items() if name not in FREED}
    own = sayable(run.parts, softwares())
    question |= {name: asked.get(name, OPTIONS[name].default) for name in TRIED if name not in own}
    if {"micro_batch", "accumulation"} & given.keys() or "context" not in asked:
        kept = {name: asked[name] for name in ("micro_batch", "accumulation") if name in asked}
        return {**question, **kept, **given}
    gpus = read("gpus", {**asked, **given}.get("gpus", 1))
    sequences = asked.get("micro_batch", 1) * asked.get("accumulation", 1) * gpus
    return {"global_batch": sequences * asked["context"], **question, **given}


def with_accumulation(options: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A way's options with the micro-batches that its step has, if the files have as many sequences in one."""
    if "micro_batch" not in options or "accumulation" in options:
        return dict(options)
    sequences = int(asked.get("micro_batch", 1)) * int(asked.get("accumulation", 1))
    return {**options, "accumulation": max(sequences // options["micro_batch"], 1)}


def change_lines(run: Run, changed: Mapping[str, Any]) -> Iterator[str]:
    """The lines to change in each file so that it asks for these options, to copy; and what no line says."""
    change, told = change_of(run.parts, softwares(), run.more, changed), sentences()
    for file in dict.fromkeys([edit.file for edit in change.edits]):
        mine = [edit for edit in change.edits if edit.file == file]
        yield f"   {told['lines'].format(file=file)}"
        yield from (f"     {line}" for line in lines_of(run.formats[file], mine))
        if removed := [edit.key for edit in mine if edit.value == REMOVED]:
            yield f"     # {told['taken out'].format(key=', '.join(removed))}"
    for name, options in (("cannot", change.unsaid), ("beside", change.beside)):
        if options:
            yield from indented(f" {told[name].format(means=flags(options, None))}")


# Messages


def message_lines(content: Content) -> Iterator[str]:
    """A message's advice, causes and numbers, in the words of the page."""
    words = message_words()
    for one in decode(content.text):
        gpus = ", ".join(gpu for gpu in one["gpus"] if gpu)
        yield f"as read: {content.path}: a message of memory that ran out{f', of GPU {gpus}' if gpus else ''}"
        advice = words["first"][one["first"]].format(**one)
        yield from wrap(advice, 118, initial_indent="  ", subsequent_indent="  ")
        if one["at"]:
            before, what, _ = words["at"][one["at"]]
            yield from wrap(f"{before}{what}.", 118, initial_indent="  ", subsequent_indent="  ")
        rows = dict(one["rows"])
        for name in [name for name in PARTS if name in rows]:
            yield f"    {rows[name]:>12}  {words['parts'][name].format(**one)}"
        if one["first"] == "serve":
            length = f" --context {one['length']}" if one.get("length") else ""
            yield f"  What fits: flops-bytes plan --task serve --model … --gpu …{length}"
        yield ""
