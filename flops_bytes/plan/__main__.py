"""The planner as a command: `flops-bytes plan`, or `python -m flops_bytes.plan`."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from flops_bytes import rates
from flops_bytes.plan import parallel, plan, rl
from flops_bytes.plan.defaults import completed, with_usual
from flops_bytes.plan.options import EXAMPLE, OPTIONS, read_config, read_options
from flops_bytes.plan.table import brief, parallel_table, rl_table, serving_table, stack_table, training_table
from flops_bytes.shapes import SHAPES, quoted, short

EXAMPLES = """\
flops-bytes plan --model qwen3-8b --gpu "RTX 4090"
flops-bytes plan --model llama-3-8b --gpu "H100 SXM" --gpus 8 --context 8192 --tokens 15T --price '$2.5' --explain
flops-bytes plan --model llama-3.1-405b --gpu "H100 SXM" --gpus 16384 --context 8192 --global-batch 16M --layouts 10
flops-bytes plan --task serve --model llama-3-70b --gpu "H100 SXM" --gpus 2 --context 8192 --weights 8bit

A --model is also one of these, and a --config one of their kinds:
{presets}.

The exit status is 0 if it fits with room or on paper, and in serving is in time; 3 if it does not fit; 4 if only the
least that it holds is known here, and that fits; 2 if the question has a mistake."""
FITS, MISTAKE, DOES_NOT_FIT, NOT_KNOWN = 0, 2, 3, 4


def rates_of(asked: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What published rates of kernels say of a step of layers that are all alike; of others nothing is known."""
    config = asked.get("config")
    if not config and str(asked.get("model") or "gpt2").strip().lower() in SHAPES:
        return rates.told(read_options(completed(asked, asked)))
    from flops_bytes.plan import stacks

    question = stacks.asked_alike(with_usual(asked))
    return [] if question is None else rates.told(read_options(completed(question, asked)))


def names() -> str:
    """The models that have a name beside those of shapes.py, in lines."""
    from flops_bytes.presets import PRESETS

    return "\n".join(wrap(", ".join(PRESETS), 119, break_on_hyphens=False))


def path_or_held(config: str) -> Any:
    """A path as it is, or what a config.json holds, if that was written in its place."""
    if not config.lstrip().startswith("{"):
        return config
    try:
        return json.loads(config)
    except (RecursionError, ValueError) as error:
        why = f"{quoted(config)} cannot be read as JSON ({short(str(error))})"
        raise ValueError(f"--config: {why}; give a config.json, or what it holds") from None


def main(arguments: list[str]) -> int:
    """Prints the answer as a table, or as JSON; returns the exit status."""
    description = "Does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"
    parser = argparse.ArgumentParser(
        prog="flops-bytes plan",
        description=description,
        epilog=EXAMPLES.format(presets=names()) if {"-h", "--help"} & {*arguments} else "",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--explain", action="store_true", help="print every line of the answer, not the dozen")
    parser.add_argument("--schema", action="store_true", help="print what that JSON holds, as a JSON Schema")
    for name, option in (OPTIONS | parallel.PARALLEL | rl.RL).items():
        if option.kind == "refused":  # another name of what is planned
            continue
        flags = [f"--{name.replace('_', '-')}"]
        flags += [f"--{parallel.DEGREES[name]}-parallel"] if name in parallel.DEGREES else []
        parser.add_argument(*flags, help=option.meaning.replace("%", "%%"), metavar="…")
    told = vars(parser.parse_args(arguments))
    as_json, explain, schema = (told.pop(name) for name in ("json", "explain", "schema"))
    if schema:
        print(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"), end="")
        return FITS
    asked = {name: value for name, value in told.items() if value is not None} or EXAMPLE
    try:  # a pipe can be read once
        once = {**asked, "config": read_config(path_or_held(asked["config"]))} if asked.get("config") else asked
        found = plan(**once)
        if as_json:
            print(json.dumps({"asked": asked, "found": found}, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            for line in answer(found, once, explain):
                print(line)
    except ValueError as error:
        print(f"flops-bytes plan: {error}", file=sys.stderr)
        return MISTAKE
    if found["fits"] is None:
        return NOT_KNOWN
    return FITS if found["fits"] and found.get("in_time", True) else DOES_NOT_FIT


def answer(found: dict[str, Any], asked: Mapping[str, Any], explain: bool) -> Iterator[str]:
    """The lines of an answer: a dozen, or all of them."""
    own = parallel_table if "layout" in found else rl_table if "phases" in found else None
    if own is None:
        yield from brief(found, asked)
        if not explain:
            yield "--explain prints every line, --json the same for programs."
            return
        yield ""
        own = serving_table if "users" in found else training_table if "methods" in found else stack_table
    else:
        yield " ".join(f"--{name.replace('_', '-')} {short(str(value))}" for name, value in asked.items())
    for what, how_much in own(found):
        yield f"{what:32}{how_much}"
        for line, seconds in rates_of(asked) if what == "a step" and "methods" in found else ():
            yield f"{line:32}{seconds}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
