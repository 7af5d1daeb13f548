"""The command `flops-bytes`, or `python -m flops_bytes`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from flops_bytes.model.shapes import quoted


def find(command: str) -> Callable[[list[str]], int]:
    """What runs a command, imported when it is asked for: the planner answers at once, and counting needs torch."""
    match command:
        case "plan":
            from flops_bytes.files.command import plan_options as run
        case "count":
            from flops_bytes.counting.command import main as run
        case "check":
            from flops_bytes.counting.check.__main__ import main as run
        case "snapshot":
            from flops_bytes.tools.snapshot import main as run
        case "compare":
            from flops_bytes.tools.compare import main as run
        case _:
            from flops_bytes.tools.kernels import main as run
    return run


COMMANDS = ("plan", "count", "check", "snapshot", "compare", "trace")
USAGE = """usage: flops-bytes FILE … [options of plan]
       flops-bytes plan [options]
       flops-bytes count FILE[:FUNCTION] [options] [-- the script's own]
       flops-bytes check [--seed N] [--draws M]
       flops-bytes snapshot FILE [options]
       flops-bytes compare FILE FILE [options]
       flops-bytes trace FILE [options]

  FILE        a training's configuration, a model's config.json, an out-of-memory message: read, and planned
  plan        does a model fit on so many GPUs, how long does it train, what does it cost, how many users does it serve?
  count       what does a training script of your own take? Counted as it runs without memory; needs torch
  check       is that right? Steps drawn at random are planned and counted; in a checkout of the book
  snapshot    a file of torch.cuda.memory._dump_snapshot(): where the memory went, and what lies free
  compare     two such files, planned and counted ones too (--snapshot): what the one holds and the other does not
  trace       a file of torch.profiler's export_chrome_trace(): what the GPU was doing, and what it waited for

flops-bytes plan --help lists a dozen options, --help all the rest too."""


def is_file(word: str) -> bool:
    """Whether a word is a file, or written as one."""
    path = Path(word)
    return path.is_file() or path.is_fifo() or path.suffix.lower() in (".yaml", ".yml", ".json", ".toml", ".pickle")


def main() -> int:
    """Runs the command that is named first, or reads a file; the exit status is its own, 2 where neither is named."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command and command[0] in COMMANDS:
        if arguments[:1] == [""]:
            empty = "what follows it is empty; give it a value or leave it out"
            print(f"flops-bytes {command[0]}: {empty}", file=sys.stderr)
            return 2
        try:
            run = find(command[0])
        except ModuleNotFoundError as missing:
            print(f"flops-bytes {command[0]}: it needs {missing.name}; pip install {missing.name}", file=sys.stderr)
            return 2
        return run_to_the_end(run, arguments)
    if command and is_file(command[0]):
        from flops_bytes.files.command import main as read

        try:
            return run_to_the_end(read, sys.argv[1:])
        except ModuleNotFoundError as missing:  # of who counts a script
            print(f"flops-bytes: it needs {missing.name}; pip install {missing.name}", file=sys.stderr)
            return 2
    asked = command in (["-h"], ["--help"])
    if command and not asked:
        print(f"flops-bytes: {quoted(command[0])} is no command; choose {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def run_to_the_end(run: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return run(arguments)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
