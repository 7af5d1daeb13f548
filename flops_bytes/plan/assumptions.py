"""What stands where nobody says, chosen for the model and the cards: the one answer of every door to the planner.

The form, an address, the command line and Python's plan() ask here. Records of what others measured do not: of these,
what was not said has the default of its option.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flops_bytes.plan.evidence import WITH_ROOM
from flops_bytes.plan.model import Model, Reader, read_shape, refuse_long_context
from flops_bytes.plan.options import read_gpu, read_option, read_options
from flops_bytes.plan.serving import serve
from flops_bytes.plan.training import methods_of, read_format, refuse, train, why_not_derived
from flops_bytes.time.gpus import Gpu

CHOSEN = ("trained", "context", "checkpointing", "zero")  # options that are chosen if they are not given
LARGE_CARD_BYTES = 70 * 2**30  # of a card's memory
# tokens: what people pretrain with on large cards, and finetune with on others
LONG_CONTEXT, SHORT_CONTEXT = 8_192, 2_048


def usual_context(told: Mapping[str, Any], gpu: Gpu) -> int:
    """Tokens of a sequence: of users who are served, or on a large card, more than people finetune with on others."""
    return LONG_CONTEXT if told.get("task") == "serve" or gpu.memory_bytes >= LARGE_CARD_BYTES else SHORT_CONTEXT


def with_usual_choices(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked, with a context, and ZeRO 3 for several cards, if none is given."""
    told = {name: value for name, value in asked.items() if value is not None}
    if told.get("task") != "serve":
        a = {"optimizer": told.get("optimizer")}  # as a page asks that has no field for some (planner.UNASKED_VALUES)
        if not ("zero" in told or a["optimizer"] == "adafactor") and read_option("gpus", told.get("gpus", 1)) > 1:
            told["zero"] = "3"
    if "context" not in told:
        told["context"] = usual_context(told, read_gpu(read_options(told)))
    return told


class CompleteQuestion(NamedTuple):
    """A question of which nothing is left open."""

    asked: dict[str, Any]  # options as they are said
    a: dict[str, Any]  # and read
    model: Model


def complete_question(asked: Mapping[str, Any], given: Mapping[str, Any], reader: Reader) -> CompleteQuestion:
    """The whole question, of which `given` is what somebody said.

    All weights are trained if the plan fits, else the first of LoRA and QLoRA that fits with room, or on paper; every
    layer is checkpointed where the run would have no room otherwise.

    Raises ValueError with a sentence that names the option and the mend.
    """
    told = with_usual_choices(asked)
    a = read_options(told)
    model = reader(told, a)
    positions = model.stack.positions
    if given.get("context") is None and 0 < positions < a["context"]:
        told["context"] = positions
        a["context"] = positions
    refuse_long_context(a, model.stack)
    if a["task"] == "serve":
        return CompleteQuestion(told, a, model)
    gpu = read_gpu(a)
    read_format(a, gpu.peak_flop_per_second)  # or says what else to take
    refuse(a, model, gpu.peak_flop_per_second)
    if why_not_derived(a, model):
        told = {"checkpointing": "full", "trained": "all"} | told
    else:
        told = with_method(told, a["trained"], methods_of(a, model, gpu.memory_bytes))
    return CompleteQuestion(told, read_options(told), model)


def with_method(told: dict[str, Any], trained: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A question with what is trained and what is checkpointed, as the row of its method says, or of the best one."""
    is_told = "trained" in told or "lora" in told
    row = next(each for each in rows if each["trained"] == trained) if is_told else best_method(rows)
    return {"checkpointing": row["checkpointing"]} | told | {"trained": row["trained"]}


def best_method(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All weights if they fit; else of LoRA and QLoRA the first that fits with room, or on paper, or the smallest."""
    fit = [row for row in rows if row["fits"]]
    if not fit:
        return rows[-1]
    roomy = [row for row in fit if row["verdict"] == WITH_ROOM]
    return fit[0] if fit[0]["trained"] == "all" or not roomy else roomy[0]


def plan_with_choices(asked: Mapping[str, Any], given: Mapping[str, Any], reader: Reader) -> dict[str, Any]:
    """What was found, and what was assumed for it, by option."""
    question = complete_question(asked, given, reader)
    return train_or_serve(question.a, question.model) | {"assumed": chosen_options(question.asked, given)}


def chosen_options(question: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen for a question, by option."""
    said = {name: value for name, value in given.items() if value is not None}
    if "lora" in said:
        said["trained"] = ""  # which its rank tells
    return {name: question[name] for name in CHOSEN if name in question and name not in said}


def plan_with_defaults(asked: Mapping[str, Any], reader: Reader = read_shape) -> dict[str, Any]:
    """What training or serving takes: what is not given has the default of its option (OPTIONS), and nothing is chosen.

    Raises ValueError with a sentence that names the option and the mend.
    """
    a = read_options(asked)
    model = reader(asked, a)
    refuse_long_context(a, model.stack)
    return train_or_serve(a, model)


def train_or_serve(a: dict[str, Any], model: Model) -> dict[str, Any]:
    return serve(a, model) if a["task"] == "serve" else train(a, model)
