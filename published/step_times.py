"""Published steps beside their time from rates: `python -m published.step_times measurements/published`."""

import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.plan.options import SPEEDS, read_options
from flops_bytes.plan.step_time import step_time
from flops_bytes.time.rates import Range
from published.readings import A_GPU, MOST, Reading, asked, by_source, errors, read_all

# FlashAttention 2 came on 2023-07-17. llm-foundry's rows of 40 GB cards stood there on 2023-05-03 (300cc5c), most of
# those of 80 GB came by 2023-10-19 (b2a43a1), when either could be installed.
FLASH = {("llm-foundry", "a100_40gb"): (1,), ("llm-foundry", "a100_80gb"): (1, 2)}


class Rated(NamedTuple):
    """A published step, and what the rates say of it."""

    reading: Reading
    seconds: float  # published
    said: Range
    gpus: int

    @property
    def ratio(self) -> float:
        """Assumed over published."""
        return self.said.assumed / self.seconds


def is_compiled(reading: Reading) -> bool:
    """By what the source says of a row; where it says nothing, PyTorch runs in eager mode."""
    return "torch.compile" in reading.about.get("memory_missing", "") or "compile" in str(
        reading.about.get("label", "")
    )


def flash_of(reading: Reading) -> tuple[int, ...]:
    """Which FlashAttention a step can have had, by its date."""
    return FLASH.get((reading.source, reading.found.get("gpu", "")), (2,))


def published_seconds(reading: Reading, a: dict[str, Any]) -> float:
    tokens = a["gpus"] * a["micro_batch"] * a["accumulation"] * a["context"]
    if reading.what == "step_seconds":
        return reading.value
    return float(tokens / (reading.value * (a["gpus"] if reading.what == A_GPU else 1)))


def rate_reading(reading: Reading) -> Rated | None:
    """None where no published rates say it. Of settings that are not said: all that they can be, the median assumed."""
    if reading.kind != "rate" or reading.what == "run_seconds" or "missing" in reading.about:
        return None
    settings = {name: value for name, value in reading.settings.items() if name not in SPEEDS}
    questions = list(asked(settings))
    if len(questions) > MOST:
        return None
    try:
        options = [read_options(question) for question in questions]
        said = [step_time(a, is_compiled(reading), flash).seconds for a in options for flash in flash_of(reading)]
    except ValueError:
        return None
    low, high = min(each.low for each in said), max(each.high for each in said)
    assumed = statistics.median(each.assumed for each in said)
    return Rated(reading, published_seconds(reading, options[0]), Range(low, assumed, high), options[0]["gpus"])


def rated(folder: Path) -> list[Rated]:
    return [found for reading in read_all(folder) if (found := rate_reading(reading))]


def figures(found: Iterable[Rated]) -> dict[str, Any]:
    """The median error over sources, and over all: the share near, the worst, the intervals that hold their reading."""
    every = list(found)
    said = errors(every, lambda each: each.ratio)
    return {
        "steps": said["readings"],
        "sources": said["sources"],
        "median_error_share": said["median_error_share"],
        "median_ratio": statistics.median(each.ratio for each in every),
        "low_ratio": said["low_ratio"],
        "high_ratio": said["high_ratio"],
        "within_share": said["within_share"],
        "held_share": sum(each.said.low <= each.seconds <= each.said.high for each in every) / len(every),
        "width_share": statistics.median((each.said.high - each.said.low) / each.said.assumed for each in every),
    }


def told(found: list[Rated]) -> Iterator[str]:
    for each in found:
        low, assumed, high = (second / each.seconds for second in each.said)
        of = each.reading
        name = f"{of.source:20} {of.table:28} {of.row:3}"
        yield f"{name} {each.gpus:4} GPUs {each.seconds:9.3f} s  {assumed:.3f} ({low:.3f} to {high:.3f})"
    nodes = {"one card": range(1, 2), "one node": range(2, 9), "more": range(9, 10**6)}
    kinds = dict(sorted(by_source(found).items()))
    kinds |= {name: [each for each in found if each.gpus in of] for name, of in nodes.items()} | {"all": found}
    for name, steps in kinds.items():
        if steps:
            said = figures(steps)
            shown = ", ".join(f"{key} {value:.3f}" for key, value in said.items() if isinstance(value, float))
            yield f"{name}: {said['steps']} steps, {shown}"


if __name__ == "__main__":
    print(*told(rated(Path(sys.argv[1]))), sep="\n")
