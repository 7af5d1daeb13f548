"""The planner: does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from flops_bytes.plan.assumptions import CompleteQuestion, complete_question, usual_context
from flops_bytes.plan.evidence import judge_fit
from flops_bytes.plan.fleet import settled
from flops_bytes.plan.meters import judged_by_meters, lengths_of, read_meters, settings_of, step_on_card
from flops_bytes.plan.options import OPTIONS, read_gpu, read_options

__all__ = ["plan", "plan_exactly"]
MODELS = ("model", "config", "shape")  # the ways to say one
MOST_LAYERS = 256  # whose steps are gone through, a second for 126


def plan(*, meters: Any = True, find: Any = False, tell: Any = None, **asked: Any) -> dict[str, Any]:
    """What training or serving takes: options of the command line (gpu_memory for --gpu-memory) in, numbers out.

    What is not given is chosen for the model and the cards (flops_bytes.plan.assumptions), and stands under `assumed`.
    With `meters` a training's step goes through a simulated allocator, which takes a part of a second: what will be
    allocated, reserved, and shown by nvidia-smi, and whether the run lives. With `find` the ways to train that
    fit stand under `ways`, the fastest first, of what is not given (flops_bytes.plan.ways, of many GPUs rank_ways); of
    a layout the answer is that of the first. `tell` is called with how far that search is.
    Raises ValueError with a sentence that names the option and the mend.

    >>> from flops_bytes import plan
    >>> answer = plan(model="gpt2", gpu="H100 SXM", recipe="bf16", meters=False)
    >>> answer["memory_bytes"]["weights"], answer["memory_bytes"]["optimizer"]
    (248879616, 497759232)
    >>> answer["fits"]
    True
    """
    from flops_bytes.plan import parallel, rl, stacks

    told = {name: value for name, value in asked.items() if value is not None}
    check_allocator(told)
    if isinstance(told.get("config"), str):
        told = stacks.with_config_or_name(told)
    is_rl = rl.is_asked(told)
    for name in parallel.PARALLEL if is_rl else rl.RL:
        if name in told:
            why = "is not derived for" if is_rl else "belongs to"
            raise ValueError(f"--{name.replace('_', '-')}: it {why} --task rl; leave it out")
    if find and (is_rl or told.get("task") == "serve"):
        raise ValueError("--find: it is of trainings; leave it out")
    if is_rl:
        return with_verdict(rl.plan_grpo(stacks.read_model, **stored(told)), told)
    if parallel.is_asked(told):
        return layout_answer(told, bool(meters), bool(find), tell)
    answer = stacks.plan_model(**told)
    answer |= ways_of(told, answer, bool(meters), tell) if find else {}
    return with_meters(told, answer) if meters else answer


def layout_answer(told: Mapping[str, Any], meters: bool, find: bool, tell: Any) -> dict[str, Any]:
    """What a layout takes that somebody asked about; with `find`, of the fastest that has what was asked."""
    from flops_bytes.plan import parallel, rank_ways, stacks

    assumed: dict[str, Any] = {} if "context" in told else {"context": context_of_layout(told)}
    found: dict[str, Any] = {}
    if find:
        found["ways"] = rank_ways.layout_rows({**assumed, **told}, stacks.read_model, meters, tell)
        assumed |= found["ways"][0]["options"] if found["ways"] else {}
    asked = {**assumed, **told}
    answer = with_verdict(parallel.plan_layouts(None, stacks.read_model, meters=meters, **asked), asked)
    return answer | {"assumed": assumed} | found


def ways_of(told: Mapping[str, Any], answer: Mapping[str, Any], meters: bool, tell: Any) -> dict[str, Any]:
    """The ways to train that fit, as rows of an answer; with `meters` those that live, by the simulated allocator. Of
    many GPUs also why no layout is planned, where none is.

    Raises ValueError where a step's bytes are not derived.
    """
    from flops_bytes.plan import rank_ways, stacks
    from flops_bytes.plan.ways import find_ways, living_ways, way_row

    if answer["peaks_at"] is None:
        raise ValueError("--find: what a step of this model holds is not derived; leave it out")
    question, said, why = settled_question(told, answer), settled(told, answer), None
    lives = meters and question.model.stack.depth <= MOST_LAYERS
    if question.a["gpus"] > 1:
        try:
            return {"ways": rank_ways.rows_on_ranks(question, said, stacks.read_model, lives, tell), "no_layouts": None}
        except ValueError as error:
            why = str(error).partition(";")[0]
    ways = living_ways(question, said) if lives else find_ways(question, said)
    return {"ways": [way_row(way, said) for way in ways], "no_layouts": why}


def with_meters(told: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with what three meters will show, where a step's bytes are derived, and its layers are not too many."""
    if answer.get("peaks_at") is None:
        return answer
    question = settled_question(told, answer)
    if question.model.stack.depth > MOST_LAYERS:
        return answer
    return judged_by_meters(answer, read_meters(step_on_card(question.a, question.model, answer["gpu_bytes"])))


def check_allocator(asked: Mapping[str, Any]) -> None:
    """Raises ValueError for options that only the allocator's steps hang on, and that cannot be read."""
    told = {name: asked.get(name) for name in ("lengths", "alloc_conf")}
    a = {name: None if text is None else str(text) for name, text in told.items()}
    lengths_of(a)
    settings_of(a)


def settled_question(told: Mapping[str, Any], answer: Mapping[str, Any]) -> CompleteQuestion:
    """The question that an answer is of, of which nothing is left open."""
    from flops_bytes.plan import stacks

    asked = settled(told, answer)
    return complete_question(stored(asked), asked, stacks.read_model)


def plan_exactly(**asked: Any) -> dict[str, Any]:
    """What training or serving takes: what is not given has the default of its option (OPTIONS), and nothing is chosen.

    Raises ValueError with a sentence that names the option and the mend.

    >>> plan_exactly(model="gpt2", gpu="T4")["parameters"]["total"]
    124439808
    """
    from flops_bytes.plan import stacks

    check_allocator(asked)
    return stacks.plan_model_exactly(**asked)


def stored(told: Mapping[str, Any]) -> dict[str, Any]:
    """A question with the bits in which a checkpoint stores its weights."""
    from flops_bytes.plan import stacks

    return stacks.as_stored(told, stacks.config_of_question(told) or {})[0]


def context_of_layout(told: Mapping[str, Any]) -> int:
    """Tokens of a sequence where nobody says: as of any training on such cards, if the model has as many positions."""
    from flops_bytes.plan import stacks

    known = {name: told[name] for name in ("gpu", "gpu_memory", "gpu_peak", *MODELS) if name in told}
    a = read_options(known)
    usual = usual_context(told, read_gpu(a))
    return min(usual, stacks.read_model(known, a).stack.positions or usual)


def with_verdict(answer: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """An answer about a layout or GRPO, of which none is known to be published, judged as what it trains."""
    known = {name: value for name, value in told.items() if name in OPTIONS and name not in ("task", "global_batch")}
    verdicts = judge_fit(read_options(known), answer["memory_bytes"]["total"], answer["gpu_bytes"])
    judged = answer | verdicts | {"kind": "", "assumed": {}}
    return judged_by_meters(judged, answer["meters"]) if answer.get("meters") else judged


class Planner(ModuleType):
    """This module, which can be called as its function: once it is imported, flops_bytes.plan is the module."""

    def __call__(self, **asked: Any) -> dict[str, Any]:
        return plan(**asked)


sys.modules[__name__].__class__ = Planner
