"""The planner as a command: `flops-bytes plan`, or `python -m flops_bytes.plan`."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from flops_bytes import rates
from flops_bytes.plan import parallel, plan, rl
from flops_bytes.plan.fleet import settled
from flops_bytes.plan.options import EXAMPLE, OPTIONS, read_config, read_options
from flops_bytes.plan.table import parallel_table, rl_table, serving_table, stack_table, training_table
from flops_bytes.shapes import SHAPES, model_name, quoted, short

EXAMPLES = """\
flops-bytes plan --model llama-3-8b --gpu "H100 SXM" --gpus 8 --zero 3 --context 8192 --tokens 15T --price '$2.5'
flops-bytes plan --model llama-3.1-405b --gpu "H100 SXM" --gpus 16384 --context 8192 --global-batch 16M --layouts 10
flops-bytes plan --task serve --model llama-3-70b --gpu "H100 SXM" --gpus 2 --context 8192 --weights 8bit

A --model is also one of these, and a --config one of their kinds:
{presets}.

The exit status is 0 if it fits, also if only just, and in serving is in time; 3 if not; 4 if only the least that it
holds is known here, and that fits; 2 if the question has a mistake."""
FITS, MISTAKE, DOES_NOT_FIT, NOT_KNOWN = 0, 2, 3, 4


def answer(asked: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """What was found, and what the planner of layers all alike was asked for it; None if the layers differ.

    What models whose layers differ need is imported when one is asked for, so that all others are answered at once.
    """
    is_alike = not asked.get("config") and model_name(asked.get("model", "gpt2")) in SHAPES
    if rl.is_asked(asked):
        return rl.plan(**(asked if is_alike else alike(asked))), None
    if parallel.is_asked(asked):
        return parallel.plan(**asked) if is_alike else laid_out(asked), None
    if is_alike:
        found = plan(**asked)
        return found, settled(asked, found)
    from flops_bytes.plan import stacks

    found = stacks.plan(**asked)
    return found, stacks.asked_alike(settled(asked, found))


def alike(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """A question about reinforcement learning of a model that has another name, or a configuration."""
    from flops_bytes.plan import stacks

    ours = {name: asked[name] for name in ("task", *rl.RL) if name in asked}
    question = stacks.asked_alike({name: value for name, value in asked.items() if name not in ours})
    if question is None:
        flag = "config" if asked.get("config") else "model"
        raise ValueError(
            f"--{flag}: its layers differ, of which only trainings and serving are planned; leave out --task"
        )
    return {**question, **ours}


def laid_out(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is found for a question about a layout of a model that has another name, or a configuration."""
    from flops_bytes.configs import decoder_of, read_stack
    from flops_bytes.plan import stacks
    from flops_bytes.stack_parallel import Split
    from flops_bytes.stack_step import why_not

    ours = {name: asked[name] for name in parallel.PARALLEL if name in asked}
    rest = {name: value for name, value in asked.items() if name not in ours}
    if (question := stacks.asked_alike(rest)) is not None:
        if "layers" not in asked:
            question.pop("layers", None)
        return parallel.plan(**question, **ours)
    config = stacks.configured(rest) or {}
    split, question = Split(read_stack(config), str(decoder_of(config)["model_type"])), stacks.without_model(rest)
    stacks.refuse(question, split.kind)
    if why := why_not(split.stack, split.kind, str(question.get("recipe", "bf16-master")).replace("-", "_")):
        raise ValueError(f"--{next(iter(ours))}: no layouts are planned, because {why}; leave it out")
    return parallel.plan(split, **question, **ours)


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


def held(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A question with what its config.json holds, since a pipe can be read once; a model's name may stand there too."""
    if not asked.get("config"):
        return dict(asked)
    try:
        return {**asked, "config": read_config(path_or_held(asked["config"]))}
    except ValueError:
        from flops_bytes.presets import known

        name = known(asked["config"])
        if not name:
            raise
        return {option: value for option, value in asked.items() if option != "config"} | {"model": name}


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
    parser.add_argument("--schema", action="store_true", help="print what that JSON holds, as a JSON Schema")
    for name, option in (OPTIONS | parallel.PARALLEL | rl.RL).items():
        if option.kind == "refused":  # another name of what is planned
            continue
        flags = [f"--{name.replace('_', '-')}"]
        flags += [f"--{parallel.DEGREES[name]}-parallel"] if name in parallel.DEGREES else []
        parser.add_argument(*flags, help=option.meaning.replace("%", "%%"), metavar="…")
    told = vars(parser.parse_args(arguments))
    as_json, schema = told.pop("json"), told.pop("schema")
    if schema:
        print(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"), end="")
        return FITS
    asked = {name: value for name, value in told.items() if value is not None} or EXAMPLE
    try:
        once = held(asked)
        found, question = answer(once)
    except ValueError as error:
        print(f"flops-bytes plan: {error}", file=sys.stderr)
        return MISTAKE
    serves = asked.get("task") == "serve"
    if as_json:
        print(json.dumps({"asked": asked, "found": found}, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(*(f"--{name.replace('_', '-')} {short(str(value))}" for name, value in asked.items()))
        table = serving_table if serves else training_table if question is not None else stack_table
        table = parallel_table if "layout" in found else rl_table if "phases" in found else table
        for what, how_much in table(found, settled(once, found)):
            print(f"{what:32}{how_much}")
            timed = what == "a step" and question is not None
            for line, seconds in rates.told(read_options(question or {})) if timed else ():
                print(f"{line:32}{seconds}")
    if found["fits"] is None:
        return NOT_KNOWN
    return FITS if found["fits"] and found.get("in_time", True) else DOES_NOT_FIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
