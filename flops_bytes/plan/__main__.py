"""The planner as a command.

flops-bytes plan --model llama-3-8b --gpu "H100 SXM" --gpus 8 --zero 3 --context 8192 --tokens 15T --price 2.5
flops-bytes plan --task serve --model llama-3-70b --gpu "H100 SXM" --gpus 2 --context 8192 --weights 8bit
"""

import argparse
import sys

from flops_bytes.plan import plan
from flops_bytes.plan.options import EXAMPLE, OPTIONS
from flops_bytes.plan.table import serving_table, training_table


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    for name, option in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=option.meaning.replace("%", "%%"), metavar="…")
    asked = vars(parser.parse_args(arguments)) if arguments else EXAMPLE
    print(*(f"--{name.replace('_', '-')} {short(str(value))}" for name, value in asked.items() if value is not None))
    try:
        found = plan(**asked)
    except ValueError as error:
        sys.exit(f"plan.py: {error}")
    for what, how_much in training_table(found) if "step_tokens" in found else serving_table(found):
        print(f"{what:32}{how_much}")


if __name__ == "__main__":
    main(sys.argv[1:])
