"""Each text of an answer on the page is that of its own number, and moves with no other; a bar is to scale."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from py_mini_racer import MiniRacer

from planner.answer import answer, shown, shown_serving
from planner.meters import shown_meters
from tests.conftest import ROOT

# Of which number of an answer a text is; of all others it is the one of its own name.
BOTH = {
    **{"parameters": "parameters.total", "active": "parameters.active", "total": "memory_bytes.total"},
    **{"card": "gpu_bytes", "headroom": "headroom_bytes", "context": "longest_context", "fewest": "fewest_gpus"},
}
TRAINING = BOTH | {
    **{"trained": "parameters.trained", "micro_batch": "largest_micro_batch", "paged": "paged_bytes"},
    **{"host": "host_bytes.total", "step": "step_seconds", "assumed": "assumed_mfu", "of_peak": "recipe_hfu"},
    **{"flops_token": "flops_a_token.all.model", "flops": "training_flops", "speed": "tokens_per_second"},
    **{"checkpoint": "checkpoint_bytes", "weights": "checkpoint_weights_bytes", "amount": "tokens", "time": "days"},
    **{"sent": "wire.bytes", "sent_in": "wire.seconds", "sent_at": "wire.bytes_per_second"},
    **{
        "waits": "wire.waits_seconds",
        "hidden_from": "wire.tokens",
        "times": "room_ratio",
        "with_room": "with_room_bytes",
    },
    **{"run_speed": "by_mfu.1.tokens_per_second", "run_amount": "by_mfu.1.tokens", "run_time": "by_mfu.1.days"},
    **{f"run_{name}": f"by_mfu.1.{name}" for name in ("mfu", "gpu_hours", "money")},
    **{"steps": "published_mfu"},
}
SERVING = BOTH | {
    **{"token_cache": "token_bytes", "user_cache": "user_bytes", "fit": "users_that_fit", "in_time": "users_in_time"},
    **{"token": "token_seconds", "latency": "latency_seconds", "first": "first_token_seconds"},
    **{"prompts": "with_prompts_seconds", "money": "money_a_million", "reached": "reached_per_second"},
    **{"each": "each_per_second", "alone": "alone_per_second", "all": "tokens_per_second"},
}
METERS = {
    **{"allocated": "allocated_bytes", "reserved": "reserved_bytes", "smi": "smi_bytes"},
    **{"death.asked": "death.asked_bytes", "death.allocated": "death.allocated_bytes"},
    **{"death.free": "death.unallocated_bytes", "mended.0.reserved": "expandable.reserved_bytes"},
}
INSIDE = {"lines": "memory_bytes", "stages": "zero_bytes"}  # each part of the one is that part of the other
OF_FORMAT = {"all": "tokens_per_second", "alone": "alone_per_second", "size": "weights_bytes", "users": "users"}

DEATH = {"asked_bytes": 2**30, "line": "logits", "at": "step 2, backward, layer 3", "allocated_bytes": 5 * 2**30}
METERED = {
    **{"allocated_bytes": 7 * 2**30, "reserved_bytes": (8 * 2**30, 9 * 2**30), "smi_bytes": (10 * 2**30, 11 * 2**30)},
    **{"lives": "dies", "retries": 3, "draws": 5, "death": DEATH | {"unallocated_bytes": 2 * 2**30}},
    **{"expandable": {"lives": "lives", "reserved_bytes": 6 * 2**30}, "emptied": None, "outside": []},
}
TRAIN = {"model": "llama-3-8b", "gpu": "A100 80GB SXM", "gpus": "16", "zero": "3", "tokens": "100B", "price": "$2"}
TRAIN |= {"accumulation": "4", "link": "100 Gb/s", "trained": "all", "context": "8192", "micro_batch": "2"}
SERVE = {"task": "serve", "model": "llama-3-8b", "gpu": "H100 SXM", "gpus": "2", "price": "$2", "latency": "50"}
SERVE |= {"prompt": "1000", "context": "8192"}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All that holds nothing else, with its path."""
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else None
    )
    if items is None:
        yield path, value
    for key, each in items or ():
        yield from leaves(each, (*path, str(key)))


def changed(value: Any, path: tuple[str, ...]) -> Any:
    """The same with one number three times as large."""
    if not path:
        return 3 * value or 3
    key = path[0]
    if isinstance(value, Mapping):
        return {each: changed(of, path[1:]) if str(each) == key else of for each, of in value.items()}
    return type(value)(changed(of, path[1:]) if str(n) == key else of for n, of in enumerate(value))


def moved(found: dict[str, Any], show: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, set[str]]:
    """By each text the numbers that it moves with."""
    before, by = dict(leaves(show(found))), dict[str, set[str]]()
    for path, value in leaves(found):
        if isinstance(value, int | float) and not isinstance(value, bool):
            after = dict(leaves(show(changed(copy.deepcopy(found), path))))
            for name in before.keys() | after.keys():
                if before.get(name) != after.get(name):
                    by.setdefault(".".join(name), set()).add(".".join(path))
    return by


def own(text: str, names: Mapping[str, str]) -> str:
    """Of which number a text should be."""
    first, _, part = text.partition(".")
    if first in INSIDE:
        return f"{INSIDE[first]}.{part}"
    if first == "formats":
        row, _, name = part.partition(".")
        return f"formats.{row}.{OF_FORMAT[name]}"
    return names.get(text) or names.get(first, first)


@pytest.mark.parametrize(
    ("found", "show", "names"),
    [
        (answer(TRAIN)["found"], lambda found: shown(found, "all"), TRAINING),
        (answer(TRAIN | {"offload": "yes"})["found"], lambda found: shown(found, "all"), TRAINING),
        (answer(SERVE)["found"], shown_serving, SERVING),
        (METERED, shown_meters, METERS),
    ],
    ids=["training", "offload", "serving", "meters"],
)
def test_a_text_moves_with_its_own_number_alone(
    found: dict[str, Any], show: Callable[[dict[str, Any]], dict[str, Any]], names: dict[str, str]
) -> None:
    by = moved(found, show)
    assert len(by) >= len(METERS)
    for text, numbers in by.items():
        wanted = own(text, names)
        assert all(number == wanted or number.startswith(f"{wanted}.") for number in numbers), f"{text}: {numbers}"


# What form.js draws with, made of plain objects.
DRAWN = """
const gib = String, PARTS = ["weights", "optimizer", "other"];
const element = (tag, told, ...children) => ({ tag, ...told, children: children.filter(Boolean) });
class Drawn { words = { parts: { weights: "weights", optimizer: "optimizer" } }; write() {} METHODS }
const drawn = new Drawn().bar(new Map([["memory_bytes", new Map(LINES)], ["gpu_bytes", CARD]]), {});
JSON.stringify(drawn.children[0].children.map(({ style }) => style));
"""


@pytest.mark.parametrize(
    ("card", "styles"),
    [
        (320, ["width:12.5%", "width:37.5%", "width:0%", "left:100%"]),
        (80, ["width:25%", "width:75%", "width:0%", "left:50%"]),
    ],
)
def test_a_bar_has_its_parts_to_scale_and_its_mark_where_the_card_ends(card: int, styles: list[str]) -> None:
    script = (ROOT / "planner" / "form.js").read_text(encoding="utf-8")
    (methods,) = re.findall(r"^  part\(line\).*?^  }\n", script, re.MULTILINE | re.DOTALL)
    lines = '[["weights", 40n], ["optimizer", 120n], ["total", 160n]]'
    found = MiniRacer().eval(DRAWN.replace("METHODS", methods).replace("LINES", lines).replace("CARD", f"{card}n"))
    assert json.loads(str(found)) == styles
