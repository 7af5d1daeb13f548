"""The planner as a command: `flops-bytes plan`, or `python -m flops_bytes.plan`."""

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from flops_bytes.plan import plan, settled_question, step_time, stored
from flops_bytes.plan.assumptions import complete_question
from flops_bytes.plan.fleet import settled
from flops_bytes.plan.help import parser
from flops_bytes.plan.meters import most_that_lives
from flops_bytes.plan.options import EXAMPLE, parse_config, unreadable
from flops_bytes.plan.table import brief, in_words, parallel_table, rl_table, serving_table, training_table, way_lines

EXAMPLES = """\
flops-bytes plan --model qwen3-8b --gpu "RTX 4090"
flops-bytes plan --model llama-3-8b --gpu "H100 SXM" --gpus 8 --context 8192 --tokens 15T --price '$2.5' --explain
flops-bytes plan --model llama-3.1-405b --gpu "H100 SXM" --gpus 16384 --context 8192 --global-batch 16M --find
flops-bytes plan --task serve --model llama-3-70b --gpu "H100 SXM" --gpus 2 --context 8192 --weights 8bit

The exit status is 0 if it fits with room or on paper, and in serving is in time; 3 if it does not fit; 4 if only the
least that it holds is known here, and that fits; 2 if the question has a mistake."""
PRESET_NAMES = """

A --model is also one of these, and a --config one of their kinds:
{presets}."""
FITS, MISTAKE, DOES_NOT_FIT, NOT_KNOWN = 0, 2, 3, 4


def rates_lines(asked: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What published rates of kernels say of a step of layers that are all alike; of others nothing is known."""
    from flops_bytes.plan import stacks

    question = complete_question(stored(asked), asked, stacks.read_model)
    shape = question.model.decoder
    return [] if shape is None else step_time.step_time_lines(question.a, shape)


LIMITS = {"largest micro batch": "micro_batch", "longest context": "context"}  # lines of a table, and whose they are


def living_lines(what: str, found: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of what fits on paper as much as lives when it has been through the allocator."""
    name, on_paper = LIMITS.get(what, ""), found.get(what.replace(" ", "_"))
    if name and on_paper and found["meters"] and on_paper < MOST_TRIED:
        question = settled_question(asked, found)
        lives = most_that_lives(question.a, question.model, name, on_paper, found["gpu_bytes"])
        yield "  that lives", f"{lives:,}" if lives else "less than half of it"


def preset_names() -> str:
    """The models that have a name beside those of shapes.py, in lines."""
    from flops_bytes.model.presets import PRESETS

    return "\n".join(wrap(", ".join(PRESETS), 119, break_on_hyphens=False))


UNREAD, GUESS = "; not understood: ", "; a guess, "


def unread(message: str) -> dict[str, list[str]]:
    """The keys of a configuration that were not understood, by what they are about."""
    groups = message.partition(UNREAD)[2].partition(GUESS)[0].split(" | ")
    return {about: keys.split(", ") for about, _, keys in (group.partition(": ") for group in groups)}


def in_lines(message: str) -> str:
    """A message; of a configuration that is not understood, a line for each thing that its keys are about."""
    if UNREAD not in message:
        return message
    why, guess = message.partition(UNREAD)[0], message.partition(GUESS)[2]
    lines = [f"  {about}: {', '.join(keys)}" for about, keys in unread(message).items()]
    shape = [f"A guess, which may be many times off, {guess}"] if guess else []
    return "\n".join([f"{why}. No answer, for it is not understood:", *lines, *shape])


MOST_BYTES = 2**24  # of a config.json
TOLD_EVERY_SECONDS = 0.1  # how far a search is
MOST_TRIED = 2**24  # sequences or tokens with which a step goes through the allocator


def load_or_parse_config(config: str) -> Mapping[str, Any]:
    """What a config.json holds, from its path, or from what it holds, if that was written in its place."""
    return parse_config(config if config.lstrip("\ufeff \n\t").startswith("{") else read_file(config), config)


def read_file(path: str) -> str:
    """What a file or a pipe holds, nothing if nobody writes to it; raises ValueError for a device, and for too much."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # which waits for no writer
        with open(number, "rb") as file:
            mode = os.fstat(number).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise OSError("it is no file")
            os.set_blocking(number, True)
            held = file.read(MOST_BYTES + 1)
        if len(held) > MOST_BYTES:
            raise OSError(f"it has more than {MOST_BYTES:,} bytes")
        return held.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(unreadable(path, error)) from None


def with_config(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A question with what its config.json holds, since a pipe can be read once; a model's name may stand there too."""
    if not asked.get("config"):
        return dict(asked)
    from flops_bytes.plan.stacks import with_config_or_name

    return with_config_or_name(asked, load_or_parse_config)


def write_step(path: str, asked: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Writes the step that was planned as a memory snapshot. Raises ValueError for what is no step of one GPU."""
    from flops_bytes.memory.simulated import write_snapshot
    from flops_bytes.plan.snapshot import planned_changes

    if "peaks_at" not in found:
        raise ValueError("--snapshot: it shows a training step of one GPU; leave out the options of a layout or a task")
    question = settled_question(asked, found)
    write_snapshot(path, planned_changes(question.a, question.model), f"flops-bytes plan {in_words(asked)}")


def main(arguments: list[str]) -> int:
    """Prints the answer as a table, or as JSON; returns the exit status."""
    told = vars(parser(all_options=False).parse_args(arguments))
    if helped := told.pop("help"):
        everything = helped == "all"
        parser(everything, EXAMPLES + (PRESET_NAMES.format(presets=preset_names()) if everything else "")).print_help()
        return FITS
    as_json, explain, schema, path = (told.pop(name) for name in ("json", "explain", "schema", "snapshot"))
    find, run_by = told.pop("find"), told.pop("run_by")
    if schema:
        print(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"), end="")
        return FITS
    asked = {name: value for name, value in told.items() if value is not None} or EXAMPLE
    try:
        if run_by:  # which flops_bytes.files takes out, where a question has no files
            raise ValueError("--run-by: the files say it; leave it out")
        once = with_config(asked)
        with progress() as tell:
            found = plan(find=find, tell=tell, **once)
        if path:
            write_step(path, once, found)
        if as_json:
            print(json.dumps({"asked": asked, "found": found}, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            for line in answer_lines(found, settled(once, found), explain):
                print(line)
    except ValueError as error:
        print(f"flops-bytes plan: {in_lines(str(error))}", file=sys.stderr)
        if as_json and UNREAD in str(error):
            print(json.dumps({"asked": asked, "not_understood": unread(str(error))}, indent=2, ensure_ascii=False))
        return MISTAKE
    if found["fits"] is None:
        return NOT_KNOWN
    return FITS if found["fits"] and found.get("in_time", True) else DOES_NOT_FIT


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None] | None]:
    """What tells a terminal how far a search is that takes longer than a second, and takes it away in the end."""
    if not sys.stderr.isatty():
        yield None
        return
    next_at, width = time.monotonic() + 1, 0

    def tell(how_far: str) -> None:
        nonlocal next_at, width
        if (now := time.monotonic()) > next_at:
            print(f"\r{how_far:{width}}", end="", file=sys.stderr, flush=True)
            next_at, width = now + TOLD_EVERY_SECONDS, max(width, len(how_far))

    try:
        yield tell
    finally:
        print(f"\r{'':{width}}\r" if width else "", end="", file=sys.stderr, flush=True)


def answer_lines(found: dict[str, Any], asked: Mapping[str, Any], explain: bool) -> Iterator[str]:
    """The lines of an answer: a dozen, or all of them."""
    own = parallel_table if "layout" in found else rl_table if "phases" in found else None
    if own is None:
        yield from brief(found, asked)
        if not explain:
            finds = (
                "" if "ways" in found or not found.get("peaks_at") else "--find lists what fits, the fastest first; "
            )
            yield f"{finds}--explain prints every line, --json the same for programs."
            return
        yield ""
        own = serving_table if "users" in found else training_table
    else:
        yield in_words(asked)
    for what, how_much in own(found):
        yield f"{what:32}{how_much}"
        beside = rates_lines(asked) if what == "a step" and "peaks_at" in found else living_lines(what, found, asked)
        for line, more in beside:
            yield f"{line:32}{more}"
    if own is parallel_table and "ways" in found:
        yield from way_lines(found["ways"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
