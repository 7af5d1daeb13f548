"""A training step of your own, counted without a GPU.

flops-bytes count train.py                     runs the script, its main part too, until two steps are taken
flops-bytes count train.py:step                runs the script up to its end, but not as main, then calls step()
flops-bytes count train.py -- --batch-size 8   gives the script arguments
flops-bytes count train.py --world 64          runs it as torchrun would on 64 ranks, and counts those that differ
"""

import argparse
import inspect
import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flops_bytes.counting.count import Fit, asked_of, count, fit
from flops_bytes.counting.counted import Counted, sized, span, table, told
from flops_bytes.counting.step_trace import StepCounted, Uncountable
from flops_bytes.memory.simulated import path_of_rank
from flops_bytes.plan.fleet import USUAL_NODE_GPUS
from flops_bytes.plan.options import read_gpu
from flops_bytes.plan.table import gib

FITS, MISTAKE, DOES_NOT_FIT = 0, 2, 3
SCHEMA = Path(__file__).with_name("schema.json")


def on_card(found: Counted, answer: Fit, gpu: str, tokens: str | None) -> Iterator[tuple[str, str]]:
    """Whether it fits, and how long it takes."""
    verdict = "fits, {} left" if answer.fits else "does not fit, {} are missing"
    outside = f"with {sized(answer.outside_bytes)} outside PyTorch it {verdict.format(gib(abs(answer.left_bytes)))}"
    yield gpu, f"{sized(answer.card_bytes)}; {outside}"
    if answer.tight:
        yield "  but only just", f"beside tensors, a process can hold up to {sized(answer.beside_bytes)}"
    if answer.smi_bytes:
        yield "nvidia-smi will show", span(answer.smi_bytes)
    for mfu, seconds in answer.step_seconds.items():
        days = f", {answer.days[mfu]:,.4g} days" if answer.days else ""
        yield f"at an MFU of {mfu:.0%}", f"{seconds:.4g} s a step{days}"
    if tokens and not found.tokens:
        yield "  days", "not known: no embedding looks tokens up in this step, so they cannot be counted"


def alike_ranks(world: int, counted: list[int]) -> dict[int, list[int]]:
    """Which ranks each of those that were counted stands for: with the first alone, all; with the stages of its
    pipeline, which lie equally far apart, those of each stage. Empty if they do not.
    """
    count, apart = len(counted), counted[1] - counted[0] if len(counted) > 1 else world
    if counted != list(range(0, count * apart, apart)) or world % (count * apart):
        return {}
    found: dict[int, list[int]] = {rank: [] for rank in counted}
    for rank in range(world):
        found[counted[rank // apart % count]].append(rank)
    return found


def in_short(ranks: list[int]) -> str:
    """As 0-7, 64-71."""
    starts = [rank for rank in ranks if rank - 1 not in ranks]
    ends = [rank for rank in ranks if rank + 1 not in ranks]
    told = [f"{start}-{end}" if start < end else f"{start}" for start, end in zip(starts, ends, strict=True)]
    return ", ".join(told if len(told) < 4 else [*told[:2], "…", told[-1]])


def rank_table(found: dict[int, Counted], alike: dict[int, list[int]]) -> Iterator[str]:
    """A column a rank: what it holds at its peak, computes and sends; of lines, those that differ."""
    rows: dict[str, list[str]] = {"rank": [str(rank) for rank in found]}
    if any(len(ranks) > 1 for ranks in alike.values()):
        rows["stands for"] = [in_short(alike[rank]) for rank in found]
    counted = list(found.values())
    rows["peak"] = [sized(each.peak_bytes) for each in counted]
    for kind in dict.fromkeys(kind for each in counted for kind in each.kinds):
        rows[f"  {kind}"] = [sized(each.kinds.get(kind, 0)) for each in counted]
    rows["FLOPs"] = [f"{sum(each.flops.values()):.4g}" for each in counted]
    sums = [Counter[str]() for _ in counted]
    for total, each in zip(sums, counted, strict=True):
        for sent in each.sent:
            total[f"  {sent.collective}, {sent.group}"] += sent.sent_bytes
    rows["sent"] = [sized(total.total()) for total in sums]
    for what in dict.fromkeys(what for total in sums for what, size in total.most_common() if size):
        rows[what] = [sized(total[what]) for total in sums]
    width = max(map(len, rows))
    widths = [max(len(row[column]) for row in rows.values()) for column in range(len(found))]
    for what, row in rows.items():
        yield f"{what:{width}}  " + "  ".join(f"{each:>{wide}}" for each, wide in zip(row, widths, strict=True))


def named(step: str | Path) -> tuple[Path, str]:
    """A file and, after a colon, a function of it: train.py:step."""
    path, colon, name = str(step).partition(".py:")
    return Path(path + ".py" * bool(colon)), name


def script(path: Path, name: str, arguments: list[str]) -> Callable[[], Any]:
    """What runs a script, or loads it and gives a function of it. Raises Uncountable where there is none."""
    if not path.is_file():
        raise Uncountable(f"{path}: there is no such file")

    def run() -> Any:
        with (
            patch.object(sys, "argv", [str(path), *arguments]),
            patch.object(sys, "path", [str(path.parent), *sys.path]),
        ):
            names = runpy.run_path(str(path), run_name="__main__" if not name else path.stem)
        if not name:
            raise StepCounted
        if not callable(names.get(name)):
            raise Uncountable(f"{path.name} has no function {name}; it has {', '.join(functions(names, path))}")
        return names[name]

    return run


def functions(names: dict[str, Any], path: Path) -> list[str]:
    """The functions that a script defines itself."""
    own = [key for key, value in names.items() if inspect.isfunction(value) and value.__module__ == path.stem]
    return own or ["none"]


def main(arguments: list[str]) -> int:
    """Prints what the step takes; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="flops-bytes count",
        description=__doc__,
        epilog="The exit status is 0 if it is counted and fits, 3 if it does not fit, 2 if it cannot be counted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "script", help="a file, or a function of it: train.py, train.py:step", metavar="FILE[:FUNCTION]"
    )
    parser.add_argument("--world", type=int, help="ranks of the job, such as 64; the script is run as by torchrun")
    parser.add_argument("--ranks", type=numbers, help="which to count, such as 0,7,63; else those that differ")
    parser.add_argument("--node", type=int, default=USUAL_NODE_GPUS, help="ranks of a node, 8 unless told")
    parser.add_argument("--gpu", help="a row of the table of peaks, such as 'H100 SXM'")
    parser.add_argument("--gpu-memory", help="of a card that the table has not, such as 80GB; with --gpu-peak")
    parser.add_argument("--gpu-peak", help="its FLOP/s of the type that the step multiplies in, dense, such as 989T")
    parser.add_argument("--tokens", help="to train on, such as 15T")
    parser.add_argument("--item", type=float, help="what .item() answers where it decides what runs, such as 1")
    parser.add_argument("--imbalance", type=float, default=1, help="times an even share for the first expert, 1 to 2")
    parser.add_argument("--json", action="store_true", help="prints one JSON object: bytes, FLOPs, seconds, days")
    parser.add_argument("--schema", action="store_true", help="prints the JSON schema of what --json prints")
    parser.add_argument(
        "--snapshot", metavar="PATH", help="writes a memory snapshot, which pytorch.org/memory_viz opens"
    )
    parser.add_argument("--lines", type=int, default=8, help="how many lines of code are listed")
    own, theirs = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :])
        if "--" in arguments
        else (arguments, [])
    )
    if "--schema" in own:
        print(SCHEMA.read_text(encoding="utf-8"), end="")
        return FITS
    asked = parser.parse_args(own)
    try:
        run, gpu, card, options = read(asked, theirs)
        with redirect_stdout(sys.stderr) if asked.json else nullcontext():
            if asked.world:
                from flops_bytes.counting.ranks import count_ranks  # a second, which one rank alone need not wait

                found = count_ranks(run, asked.world, asked.ranks, node=asked.node, **options)
            else:
                found = {0: count(run, **options)}
        several = {"gpus": asked.world, "node_gpus": asked.node} if asked.world else {}
        answers = {
            rank: fit(each, asked.gpu, asked.tokens, **card, **several) if gpu else None for rank, each in found.items()
        }
        alike = {} if asked.ranks or not asked.world else alike_ranks(asked.world, list(found))
        shown = list(tell(asked, found, alike, gpu, answers))
    except (Uncountable, ValueError) as error:
        print(f"flops-bytes count: {error}", file=sys.stderr)
        return MISTAKE
    if asked.json:
        ranks = {rank: plain(each, gpu, answers[rank]) for rank, each in found.items()}
        whole = {"world": asked.world, "alike": alike, "ranks": ranks} if asked.world else ranks[0]
        print(json.dumps(whole, indent=2))
    else:
        print("\n".join(shown))
    return FITS if all(not each or each.fits for each in answers.values()) else DOES_NOT_FIT


def numbers(text: str) -> list[int]:
    """Ranks, as in 0,7,63."""
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of numbers, such as 0,7,63") from None


def read(asked: argparse.Namespace, theirs: list[str]) -> tuple[Callable[[], Any], str | None, Any, dict[str, Any]]:
    """What runs, the card's name, what is told of it, and count()'s options. Raises ValueError, Uncountable."""
    path, name = named(asked.script)
    if asked.ranks and not asked.world:
        raise ValueError("--ranks: of how many? Give --world too, such as --world 64")
    if asked.world is not None and (asked.world < 1 or asked.node < 1):
        raise ValueError("--world and --node: give 1 or more")
    if not 1 <= asked.imbalance <= 2:
        raise ValueError("--imbalance: give 1 to 2, of an even share")
    card = {"gpu_memory": asked.gpu_memory, "gpu_peak": asked.gpu_peak}
    gpu = asked.gpu or (f"{asked.gpu_memory or ''} card".strip() if any(card.values()) else None)
    memory = read_gpu(asked_of(gpu=asked.gpu, **card)).memory_bytes if gpu else 80e9
    options = {"memory_bytes": memory, "item": asked.item, "imbalance": asked.imbalance, "snapshot": asked.snapshot}
    return script(path.resolve(), name, theirs), gpu, card, options


def tell(
    asked: argparse.Namespace,
    found: dict[int, Counted],
    alike: dict[int, list[int]],
    gpu: str | None,
    answers: dict[int, Fit | None],
) -> Iterator[str]:
    """All that is printed: a table of the ranks, if there are several, and the one that holds most."""
    most = max(found, key=lambda rank: found[rank].peak_bytes)
    if len(found) > 1:
        yield from rank_table(found, alike)
        yield f"\nrank {most}, which holds most"
    elif asked.world:
        same = f"; {in_short(alike[most])} do the same, on parts that are no larger" if alike else ""
        yield f"rank {most} of {asked.world}{same}"
    yield told(table(found[most], asked.lines))
    if asked.snapshot:
        names = [path_of_rank(asked.snapshot, rank) for rank in found] if asked.world else [asked.snapshot]
        yield told([("snapshot", ", ".join(map(str, names)))])
    if (answer := answers[most]) and gpu:
        yield told(on_card(found[most], answer, gpu, asked.tokens))


def plain(found: Counted, gpu: str | None, answer: Fit | None) -> dict[str, Any]:
    """As JSON has it."""
    told = found._asdict() | {"sent": [each._asdict() for each in found.sent]}
    return told | ({"gpu": gpu, "fit": answer._asdict()} if answer else {})
