"""The planner's check as a command: `flops-bytes check`, from a checkout of the book."""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.counting.check.draw import NOT_COUNTED, NOT_TOGETHER, all_values, draw, unknown_options, values
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape, read_options

WITHIN, BEYOND, MISTAKE = 0, 1, 2
TOLERANCE = 0.01  # of bytes; FLOPs have to be equal
EVERY = 10  # of so many draws one is counted by PyTorch's memory tracker too
NEEDED = ("torch", "transformers")


class Checked(NamedTuple):
    """One draw: what was asked, and what was planned and counted, or why it was refused."""

    asked: dict[str, Any]
    refused: str = ""
    planned_bytes: int = 0
    counted_bytes: int = 0
    tracked_bytes: int = 0  # by PyTorch's tracker; 0 where it was not asked
    planned_flops: int = 0
    counted_flops: int = 0  # 0 where no counter knows them

    @property
    def ratio(self) -> float:
        return self.planned_bytes / self.counted_bytes

    @property
    def is_right(self) -> bool:
        """Within a per cent of both counters' bytes, and equal in FLOPs."""
        counters = [counted for counted in (self.counted_bytes, self.tracked_bytes) if counted]
        near = all(abs(self.planned_bytes / counted - 1) <= TOLERANCE for counted in counters)
        return near and self.counted_flops in (0, self.planned_flops)


def check(asked: dict[str, Any], tracker: bool = False) -> Checked:
    """A step planned and counted, with PyTorch's tracker too if it is asked."""
    from flops_bytes.counting.check.count import Uncountable, count

    try:
        found, a = plan(**{"gpu": "H100 SXM"} | asked), read_options(asked)
        shape = named_shape(a)
        counted = count(a, shape)
        # with chunks the tracker goes on counting gradients that the allocator has got back
        tracked = count(a, shape, tracker=True).peak_bytes if tracker and a["chunks"] == 1 else 0
    except (Uncountable, ValueError) as refusal:
        return Checked(asked, refused=str(refusal))
    memory, tokens = found["memory_bytes"], a["context"] * a["micro_batch"] * a["accumulation"]
    flops = round(found["flops_a_token"]["all"]["device"] * tokens)
    planned = memory["total"] - memory["allowance"]
    return Checked(asked, "", planned, counted.peak_bytes, tracked, flops, counted.flops)


def check_draws(seed: int, draws: int) -> Iterator[Checked]:
    """So many draws, the same for the same seed."""
    chance = random.Random(seed)
    for turn in range(draws):
        yield check(draw(chance), tracker=turn % EVERY == 0)


def told(asked: dict[str, Any]) -> str:
    """What was asked, as the planner's command takes it; a configuration as what its file holds."""
    written = {name: json.dumps(value) if name == "config" else str(value) for name, value in asked.items()}
    return " ".join(f"--{name.replace('_', '-')} {written[name]!r}" for name in asked if asked[name] is not None)


def line(found: Checked) -> str:
    """A draw in a line."""
    if found.refused:
        return f"refused: {found.refused}; {told(found.asked)}"
    ratios = f"{found.ratio:.4f}  {found.planned_bytes:,} B planned, {found.counted_bytes:,} B counted"
    if found.tracked_bytes:
        ratios += f", {found.tracked_bytes:,} B by PyTorch's tracker"
    if found.counted_flops not in (0, found.planned_flops):
        ratios += f", FLOPs {found.planned_flops / found.counted_flops:.6f}"
    return f"{ratios}; {told(found.asked)}"


def summary(found: list[Checked]) -> Iterator[str]:
    """How many, how far off, what did not occur, and what is not counted at all."""
    counted = [each for each in found if not each.refused]
    yield f"{len(found)} drawn, {len(found) - len(counted)} refused, {len(counted)} counted"
    if counted:
        ratios = sorted(each.ratio for each in counted)
        equal, unknown = (
            sum(each.counted_flops == flops for each, flops in zip(counted, of, strict=True))
            for of in ([each.planned_flops for each in counted], [0] * len(counted))
        )
        yield f"planned bytes over counted: {ratios[0]:.4f} to {ratios[-1]:.4f}"
        yield f"FLOPs equal in {equal}, not known to PyTorch's counter in {unknown} (experts)"
    missed = all_values() - {value for each in counted for value in values(each.asked)}
    if missed:
        yield f"not counted once: {', '.join(sorted(f'{name} {value}' for name, value in missed))}"
    for name, others in NOT_TOGETHER.items():
        yield f"not drawn together: {name} and {others}"
    for reason, names in NOT_COUNTED.items():
        yield f"not drawn: {', '.join(names)} ({reason})"


def mistake(draws: int) -> str:
    """What keeps it from drawing, with the mend; nothing if nothing does."""
    if draws < 1:
        return "--draws: give 1 or more"
    if not (Path(__file__).parents[3] / "pyproject.toml").exists():
        return "it needs a checkout of the book, whose environment has what it counts; see the book's repository"
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        return f"it needs {' and '.join(missing)}; in a checkout `make` installs what it needs"
    if unknown := unknown_options():
        return f"--{unknown[0].replace('_', '-')} is a new option; say in counting/check/draw.py how it is drawn"
    return ""


def main(arguments: list[str]) -> int:
    """Prints each draw as it is counted, and what came of all; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="flops-bytes check",
        description="Draws training steps at random, plans them, and counts each as PyTorch runs it without memory.",
        epilog="The exit status is 0 if all are within 1 % in bytes and equal in FLOPs; 1 if not; 2 after a mistake.",
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws: the same seed draws the same")
    parser.add_argument("--draws", type=int, default=100, help="how many; of each tenth PyTorch's tracker is asked too")
    asked = parser.parse_args(arguments)
    if wrong := mistake(asked.draws):
        print(f"flops-bytes check: {wrong}", file=sys.stderr)
        return MISTAKE
    found = []
    for each in check_draws(asked.seed, asked.draws):
        found.append(each)
        print(line(each), flush=True)
    print(*summary(found), sep="\n")
    return WITHIN if all(each.refused or each.is_right for each in found) else BEYOND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
