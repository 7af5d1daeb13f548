"""The command `flops-bytes`, or `python -m flops_bytes`."""

import os
import sys

from flops_bytes.check.__main__ import main as check
from flops_bytes.plan.__main__ import main as plan
from flops_bytes.published import main as published


def count(arguments: list[str]) -> int:
    """Needs torch, so it is imported when it is asked for."""
    from flops_bytes.count import main as count

    return count(arguments)


COMMANDS = {"plan": plan, "count": count, "check": check, "published": published}
USAGE = """usage: flops-bytes plan [options]
       flops-bytes count FILE[:FUNCTION] [options] [-- the script's own]
       flops-bytes check [--seed N] [--draws M]
       flops-bytes published FOLDER [options]

  plan        does a model fit on so many GPUs, how long does it train, what does it cost, how many users does it serve?
  count       what does a training script of your own take? Counted as it runs without memory; needs torch
  check       is that right? Steps drawn at random are planned and counted; in a checkout of the book
  published   what others measured on their GPUs, beside what plan says of it

flops-bytes plan --help lists the options."""


def main() -> int:
    """Runs the command that is named first; the exit status is its own, 2 where none is named."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command and command[0] in COMMANDS:
        try:
            return COMMANDS[command[0]](arguments)
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    asked = command in (["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
