"""What the form asks of models whose layers differ, and how the answer is written; planner/answer.py says the rest.

Translated to a script of its own, which is fetched when somebody asks for such a model.
"""

from __future__ import annotations

from typing import Any

from flops_bytes.plan.serving import stored_bits
from flops_bytes.plan.stacks import plan
from planner.answer import (
    asked,
    asked_for,
    command,
    duration,
    gib,
    ignored,
    scientific,
    shown,
    shown_runs,
    shown_serving,
)


def answer_any(fields: dict[str, str]) -> dict[str, Any]:
    """As planner.answer.answer(), for all models that the command line knows."""
    options = asked(fields)
    found = plan(**options)
    if options.get("task") == "serve":
        numbers = shown_serving(found)
    else:
        numbers = (shown if "ladder" in found else shown_stack)(found, options.get("pairs", "all"))
    numbers |= asked_for(found, options)
    if "weights" in numbers["chosen"]:
        numbers["chosen"] |= {"weights": str(stored_bits(found))}
    return {"found": found, "shown": numbers, "command": command(options), "ignored": ignored(fields, options)}


def shown_stack(found: dict[str, Any], pairs: str) -> dict[str, Any]:
    """The numbers of an answer about training a model whose layers differ."""
    count = found["parameters"]
    limits = {"micro_batch": "largest_micro_batch", "context": "longest_context", "fewest": "fewest_gpus"}
    known = {name: f"{found[limit]:,}" for name, limit in limits.items() if found.get(limit)}
    return (
        shown_runs(found)
        | known
        | {
            "parameters": f"{count['total']:,}",
            "active": f"{count['active']:,}",
            "predicting": f"{count['predicting']:,}" if "predicting" in count else None,
            "lines": {line: gib(size) for line, size in found["memory_bytes"].items() if size and line != "total"},
            "total": gib(found["memory_bytes"]["total"]),
            "card": gib(found["gpu_bytes"]),
            "headroom": gib(abs(found["headroom_bytes"])),
            "times": f"{found['room_ratio']:.2f}",
            "with_room": gib(found["with_room_bytes"]),
            "host": gib(found["host_bytes"]["total"]) if found.get("host_bytes") else None,
            "stages": {str(stage): gib(size) for stage, size in found["zero_bytes"].items()},
            "cache": gib(found["cache_bytes"]),
            "step_tokens": f"{found['step_tokens']:,}",
            "step": duration(found["step_seconds"]),
            "assumed": f"{100 * found['assumed_mfu']:.0f}" if found["assumed_mfu"] else None,
            "mfu": f"{100 * found['mfu']:.1f}",
            "hfu": f"{100 * found['hfu']:.1f}",
            "tokens": f"{found['tokens']:,}" if found["tokens"] else None,
            "flops_token": scientific(found["flops_a_token"][pairs]["model"]),
            "flops": scientific(found["training_flops"]) if found["training_flops"] else None,
            "ladder": [],
        }
    )
