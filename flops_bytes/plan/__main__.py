"""The planner as a command: `flops-bytes plan`, or `python -m flops_bytes.plan`."""

import argparse
import json
import sys
from pathlib import Path

from flops_bytes import rates
from flops_bytes.plan import plan
from flops_bytes.plan.options import EXAMPLE, OPTIONS, read_options
from flops_bytes.plan.table import serving_table, training_table
from flops_bytes.shapes import short

EXAMPLES = """\
flops-bytes plan --model llama-3-8b --gpu "H100 SXM" --gpus 8 --zero 3 --context 8192 --tokens 15T --price '$2.5'
flops-bytes plan --task serve --model llama-3-70b --gpu "H100 SXM" --gpus 2 --context 8192 --weights 8bit

The exit status is 0 if it fits, also if only just, and in serving is in time; 3 if not; 2 if the question has a
mistake."""
FITS, MISTAKE, DOES_NOT_FIT = 0, 2, 3


def main(arguments: list[str]) -> int:
    """Prints the answer as a table, or as JSON; returns the exit status."""
    description = "Does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"
    parser = argparse.ArgumentParser(
        prog="flops-bytes plan",
        description=description,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--schema", action="store_true", help="print what that JSON holds, as a JSON Schema")
    for name, option in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=option.meaning.replace("%", "%%"), metavar="…")
    told = vars(parser.parse_args(arguments))
    as_json, schema = told.pop("json"), told.pop("schema")
    if schema:
        print(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"), end="")
        return FITS
    asked = {name: value for name, value in told.items() if value is not None} or EXAMPLE
    try:
        found = plan(**asked)
    except ValueError as error:
        print(f"flops-bytes plan: {error}", file=sys.stderr)
        return MISTAKE
    serves = asked.get("task") == "serve"
    if as_json:
        print(json.dumps({"asked": asked, "found": found}, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(*(f"--{name.replace('_', '-')} {short(str(value))}" for name, value in asked.items()))
        for what, how_much in (serving_table if serves else training_table)(found, asked):
            print(f"{what:32}{how_much}")
            for line, seconds in rates.told(read_options(asked)) if what == "a step" else ():
                print(f"{line:32}{seconds}")
    return FITS if found["fits"] and found.get("in_time", True) else DOES_NOT_FIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
