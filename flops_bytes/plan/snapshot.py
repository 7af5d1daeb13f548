"""A planned step of one GPU, change by change: what --snapshot writes for PyTorch's viewer before anything has run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flops_bytes.memory.events import Event, step_events
from flops_bytes.memory.layers import ModelFamily
from flops_bytes.memory.simulated import Change
from flops_bytes.memory.step import StepConfig, step_bytes
from flops_bytes.model.stack import Stack
from flops_bytes.plan.model import Model
from flops_bytes.plan.options import OPTIONS
from flops_bytes.plan.training import bytes_by_moment, model_family, step_config, why_not_derived

BESIDE = ("gpus", "zero", "optimizer", "offload", "quantized_by", "sharding_by")  # what they do is no event of a step
MOMENTS = {"optimizer": 2}  # of AdamW, each a tensor


def planned_changes(a: Mapping[str, Any], model: Model) -> Iterator[Change]:
    """A step after the first, of what is asked. Raises ValueError where it is not written event by event."""
    if why := why_not_derived(a, model):
        raise ValueError(f"--snapshot: it shows activations, and {why}; leave it out")
    stack, config, family = model.stack, step_config(a, model), model_family(a, model)
    derived = step_bytes(stack, family, config, a["base"])
    asked = bytes_by_moment({**a, "allowance": 0}, model)
    if any(sum(asked[moment].values()) != sum(lines.values()) for moment, lines in derived.items()):
        more = [f"--{name.replace('_', '-')} {a[name]}" for name in BESIDE if a[name] != OPTIONS[name].default]
        raise ValueError(
            f"--snapshot: it shows one GPU by itself with AdamW, without {', '.join(more)}; leave them out"
        )
    code = step_bytes.__code__
    of_state = ((code.co_name, code.co_filename, code.co_firstlineno),)
    for event in by_tensor(step_events(stack, family, config, a["base"]), stack, family, config):
        if event.nbytes:
            is_state = event.part == "state"
            moment, part = "before the step" if is_state else event.phase, event.part if not is_state else ""
            yield Change(event.storage, event.nbytes, moment, event.line, event.frames or of_state, part)


def by_tensor(events: Sequence[Event], stack: Stack, family: ModelFamily, config: StepConfig) -> Iterator[Event]:
    """The events, with a storage for each tensor of what is there all the time, where step_events() has one of all.

    How large tensors are, the gradients say that a step leaves. Frozen weights in 4 bits stay one.
    """
    alone = config._replace(accumulated=False, update="fused")
    of_trained, of_all = (gradient_bytes(stack, family, each) for each in (alone, alone._replace(adapters=None)))
    number, shares = 1 + max(event.storage for event in events), dict[int, list[int]]()
    for event in events:
        if event.part == "state" and event.nbytes:
            sizes, pieces = of_all if event.line == "weights" else of_trained, MOMENTS.get(event.line, 1)
            if not 2 * event.nbytes % (pieces * sum(sizes)):  # all tensors of one width, 4, 2 or 1 bytes
                shares[event.storage] = [event.nbytes * size // sum(sizes) // pieces for size in sizes * pieces]
        sign = 1 if event.nbytes > 0 else -1
        for place, share in enumerate(shares.get(event.storage, [abs(event.nbytes)])):
            yield event._replace(storage=event.storage + place * number, nbytes=sign * share)


def gradient_bytes(stack: Stack, family: ModelFamily, config: StepConfig) -> list[int]:
    """Of each tensor that is trained, in the order in which gradients come."""
    there: dict[int, Event] = {}
    for event in step_events(stack, family, config):
        if event.phase == "update":
            break
        if event.nbytes > 0:
            there[event.storage] = event
        elif event.nbytes < 0:
            del there[event.storage]
    return [event.nbytes for event in there.values() if event.line == "gradients"]
