"""What the form asks of all models that the command knows: their configurations, and what differs in their layers.

Translated to a script of its own, which is fetched when somebody asks for a model that planner/answer.py does not know.
"""

from __future__ import annotations

from typing import Any

from flops_bytes.plan.assumptions import CompleteQuestion, complete_question
from flops_bytes.plan.fleet import has_deadline, settled
from flops_bytes.plan.stacks import as_stored, config_of_question, plan_model, read_model
from flops_bytes.plan.training import why_not_derived
from planner.answer import asked, freed, written
from planner.meters import shown_ways, unpressed, with_meters


def answer_any(fields: dict[str, str]) -> dict[str, Any]:
    """As planner.answer.answer(), for all models."""
    options = asked(fields)
    return written(fields, options, plan_model(**options))


def recomputing_any(fields: dict[str, str]) -> dict[str, str] | None:
    """As planner.answer.recomputing(); None where a step's bytes are not derived."""
    options = asked(fields)
    if has_deadline(options):
        options = settled(options, plan_model(**options))
    question = complete_any(options)
    return None if why_not_derived(question.a, question.model) else freed(question)


def metered_any(fields: dict[str, str], found: dict[str, Any]) -> dict[str, Any] | None:
    """As planner.meters.metered(); None where a step's bytes are not derived."""
    if found.get("peaks_at") is None:
        return None
    return with_meters(fields, found, complete_any(settled(asked(fields), found)))


def listed_any(fields: dict[str, str], found: dict[str, Any]) -> list[dict[str, Any]]:
    """As planner.meters.listed(); nothing where a step's bytes are not derived."""
    said = unpressed(fields, found)
    return [] if found.get("peaks_at") is None else shown_ways(complete_any(said), said)


def complete_any(options: dict[str, Any]) -> CompleteQuestion:
    """A question of which nothing is left open."""
    return complete_question(as_stored(options, config_of_question(options) or {})[0], options, read_model)
