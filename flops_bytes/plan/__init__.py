"""The planner: does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"""

from collections.abc import Callable, Mapping
from typing import Any

from flops_bytes.plan.defaults import plan_exactly, planned, usual_context
from flops_bytes.plan.evidence import WITH_ROOM, judged
from flops_bytes.plan.options import OPTIONS, named_shape, read_gpu, read_options
from flops_bytes.shapes import SHAPES

__all__ = ["plan", "plan_exactly"]


def plan(**asked: Any) -> dict[str, Any]:
    """What training or serving takes: options of the command line (gpu_memory for --gpu-memory) in, numbers out.

    What is not given is chosen for the model and the cards (flops_bytes.plan.defaults), and stands under `assumed`.
    Raises ValueError with a sentence that names the option and the mend.
    """
    from flops_bytes.plan import parallel, rl  # which are asked for by few, as are models whose layers differ

    told = {name: value for name, value in asked.items() if value is not None}
    if isinstance(told.get("config"), str):
        from flops_bytes.plan.stacks import by_name

        told = by_name(told)
    is_rl = rl.is_asked(told)
    for name in parallel.PARALLEL if is_rl else rl.RL:
        if name in told:
            why = "is not derived for" if is_rl else "belongs to"
            raise ValueError(f"--{name.replace('_', '-')}: it {why} --task rl; leave it out")
    is_alike = not told.get("config") and str(told.get("model", "gpt2")).strip().lower() in SHAPES
    if is_rl:
        return with_verdict(rl.plan(**(told if is_alike else alike(told))), told)
    if parallel.is_asked(told):
        chosen = {} if "context" in told else {"context": context_of_layout(told, is_alike)}
        told = chosen | told

        def laid(asked: Mapping[str, Any]) -> dict[str, Any]:
            return with_verdict(parallel.plan(**asked) if is_alike else laid_out(asked), asked)

        found = laid(told)
        return found | {"assumed": chosen, "remedies": remedies(told, found, laid)}
    if is_alike:
        return planned(told)
    from flops_bytes.plan import stacks

    return stacks.plan(**told)


def context_of_layout(told: Mapping[str, Any], is_alike: bool) -> int:
    """Tokens of a sequence where nobody says: as of any training on such cards, if the model has as many positions."""
    names = ("gpu", "gpu_memory", "gpu_peak", "model", "shape") if is_alike else ("gpu", "gpu_memory", "gpu_peak")
    known: dict[str, Any] = {name: told[name] for name in names if name in told}
    a = read_options(known)
    usual = usual_context(told, read_gpu(a))
    return min(usual, named_shape(a).positions or usual) if is_alike else usual


def with_verdict(found: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """An answer about a layout or GRPO, of which none is known to be published, judged as what it trains."""
    known = {name: value for name, value in told.items() if name in OPTIONS and name not in ("task", "global_batch")}
    family = judged(read_options(known), found["memory_bytes"]["total"], found["gpu_bytes"])
    return found | family | {"kind": "", "assumed": {}}


# What makes a rank of a layout hold less, in order of its cost: the first two change no result and send nothing.
REMEDIES: tuple[tuple[str, str], ...] = (
    ("boundaries", "freed"),
    ("gate", "fused"),
    ("regather", "yes"),
    ("zero", "1"),
    ("zero", "3"),
)
REMEDIES += (("checkpointing", "full"),)


def remedies(
    told: Mapping[str, Any], found: Mapping[str, Any], laid: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Options that make a layout hold less, each beside those before, until it has room; not of a list of layouts."""
    rows: list[dict[str, Any]] = []
    if told.get("layouts") is not None:
        return rows
    asked, last = dict(told), found
    for name, value in REMEDIES:
        if last["verdict"] == WITH_ROOM or asked.get(name) == value:
            continue
        try:
            now = laid(asked | {name: value})
        except ValueError:  # not of this layout
            continue
        needs = now["memory_bytes"]["total"]
        if needs < last["memory_bytes"]["total"]:
            row = {"try": f"--{name} {value}", "needs_bytes": needs, "step_seconds": now["step_seconds"]}
            rows.append(row | {"verdict": now["verdict"]})
            asked, last = asked | {name: value}, now
    return rows


def alike(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """A question about reinforcement learning of a model that has another name, or a configuration."""
    from flops_bytes.plan import rl, stacks

    ours = {name: asked[name] for name in ("task", *rl.RL) if name in asked}
    question = stacks.asked_alike({name: value for name, value in asked.items() if name not in ours})
    if question is None:
        flag = "config" if asked.get("config") else "model"
        raise ValueError(
            f"--{flag}: its layers differ, of which only trainings and serving are planned; leave out --task"
        )
    return {**question, **ours}


def laid_out(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is found for a question about a layout of a model that has another name, or a configuration."""
    from flops_bytes.configs import decoder_of, read_stack
    from flops_bytes.plan import parallel, stacks
    from flops_bytes.stack_parallel import Split
    from flops_bytes.stack_step import why_not

    ours = {name: asked[name] for name in parallel.PARALLEL if name in asked}
    rest = {name: value for name, value in asked.items() if name not in ours}
    if (question := stacks.asked_alike(rest)) is not None:
        if "layers" not in asked:
            question.pop("layers", None)
        return parallel.plan(**question, **ours)
    config = stacks.configured(rest) or {}
    split, question = Split(read_stack(config), str(decoder_of(config)["model_type"])), stacks.without_model(rest)
    stacks.refuse(question, split.kind)
    if question.get("checkpointing") not in (None, "none", "full"):
        told = f"of layouts of a {split.kind}, all layers are computed again or none; give full, or leave it out"
        raise ValueError(f"--checkpointing: {told}")
    if why := why_not(split.stack, split.kind, str(question.get("recipe", "bf16-master")).replace("-", "_")):
        raise ValueError(f"--{next(iter(ours))}: no layouts are planned, because {why}; leave it out")
    return parallel.plan(split, **question, **ours)
