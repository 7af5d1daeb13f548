"""What three meters will show of a training, as the page says it once the answer stands there.

Translated to the script that is fetched after the first answer, since a step goes through an allocator for it.
"""

from __future__ import annotations

from typing import Any

from flops_bytes.plan.assumptions import CompleteQuestion, complete_question
from flops_bytes.plan.fleet import settled
from flops_bytes.plan.meters import judged_by_meters, read_meters, step_on_card
from flops_bytes.plan.model import read_named
from flops_bytes.plan.ways import living_ways, way_row
from planner.answer import asked, gib, written


def metered(fields: dict[str, str], found: dict[str, Any]) -> dict[str, Any]:
    """An answer to a training again, with its verdict after the allocator and what is shown of the meters: of the few
    models that are known to planner/answer.py."""
    return with_meters(fields, found, complete_named(settled(asked(fields), found)))


def listed(fields: dict[str, str], found: dict[str, Any]) -> list[dict[str, Any]]:
    """What else fits and lives, the fastest first; of the same models."""
    said = unpressed(fields, found)
    return shown_ways(complete_named(said), said)


def complete_named(options: dict[str, Any]) -> CompleteQuestion:
    """A question of which nothing is left open."""
    return complete_question(options, options, read_named)


def with_meters(fields: dict[str, str], found: dict[str, Any], question: CompleteQuestion) -> dict[str, Any]:
    """The same of a question that is complete."""
    options = asked(fields)
    meters = read_meters(step_on_card(question.a, question.model, found["gpu_bytes"]))
    answer = written(fields, options, judged_by_meters(found, meters))
    return answer | {"meters": shown_meters(meters)}


def unpressed(fields: dict[str, str], found: dict[str, Any]) -> dict[str, Any]:
    """What somebody said: without fields that a press on a way that fits filled in, so that others are listed too."""
    pressed = fields.get("pressed", "").split(" ")
    return {name: value for name, value in settled(asked(fields), found).items() if name not in pressed}


def shown_ways(question: CompleteQuestion, said: dict[str, Any]) -> list[dict[str, Any]]:
    """What fits, the fastest first: the fields to fill in, and what comes of it; nothing, if all was said."""
    return [
        {
            "options": row["options"],
            "gives_up": row["gives_up"],
            "needs": gib(row["needs_bytes"]),
            "verdict": row["verdict"],
            "speed": f"{row['tokens_per_second']:,.0f}",
        }
        for row in [way_row(way, said) for way in living_ways(question, said)]
        if row["options"]
    ]


def shown_meters(meters: dict[str, Any]) -> dict[str, Any]:
    """The numbers of meters as text, and the words that a language says, by their names."""
    death = meters["death"]
    return {
        "allocated": gib(meters["allocated_bytes"]),
        "reserved": between(*meters["reserved_bytes"]),
        "smi": between(*meters["smi_bytes"]),
        "lives": meters["lives"],
        "retries": f"{meters['retries']:,}",
        "draws": meters["draws"],
        "death": shown_death(death) if death else None,
        "mended": [
            {"by": by, "lives": meters[by]["lives"], "reserved": gib(meters[by]["reserved_bytes"])}
            for by in ("expandable", "emptied")
            if meters[by]
        ],
        "outside": [
            {
                "line": line["line"],
                "size": between(*line["bytes"]),
                "source": line["source"],
                "assumed_of": line["assumed_of"],
            }
            for line in meters["outside"]
        ],
    }


def between(low: float, high: float) -> str:
    """Between which it lies, where the two differ as they are written."""
    low_text, high_text = gib(low), gib(high)
    if low_text == high_text:
        return high_text
    return f"{low_text[:-4]}–{high_text}" if low_text[-4:] == high_text[-4:] else f"{low_text}–{high_text}"


def shown_death(death: dict[str, Any]) -> dict[str, Any]:
    """Where a run finds no block: "step 1, backward, layer 3" in its parts."""
    at = death["at"].split(", ")
    part, _, layer = at[-1].partition(" ")
    return {
        "asked": gib(death["asked_bytes"]),
        "line": death["line"],
        "step": at[0].partition(" ")[2],
        "pass": at[1] if len(at) > 1 else part,
        "part": part,
        "layer": layer,
        "allocated": gib(death["allocated_bytes"]),
        "free": gib(death["unallocated_bytes"]),
    }
