# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""When does a rank of a pipeline have nothing to do? PyTorch's own schedules, played without processes."""

# --8<-- [start:orders]
from types import SimpleNamespace
from typing import Any

from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from flops_bytes.parallel.layouts import Layout, bubble

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
Pass = tuple[bool, int, int]  # whether forward, the stage, the micro-batch


def order(layout: Layout) -> list[list[Pass]]:
    """The passes of each rank, in the order in which PyTorch's schedule has them."""
    p, v = layout.pipeline, layout.virtual
    stages = [
        SimpleNamespace(
            **{"num_stages": p * v, "group_size": p, "group_rank": 0, "stage_index": p * chunk},
            **{"is_first": chunk == 0, "is_last": False, "has_backward": True},
        )
        for chunk in range(v)
    ]
    schedule: Any = SCHEDULES[layout.schedule]
    made = schedule(stages if layout.schedule == "interleaved" else stages[0], layout.micro_batches)
    found = []
    for actions in made.pipeline_order.values():
        kinds = [(action.computation_type.name, action.stage_index) for action in actions if action]
        works = [kind for kind in kinds if kind[0] in ("FORWARD", "FULL_BACKWARD")]
        # numbered here: PyTorch 2.13 counts those of 1F1B's last rank from 1
        found.append([(name == "FORWARD", at, works[:n].count((name, at))) for n, (name, at) in enumerate(works)])
    return found


# --8<-- [end:orders]


# --8<-- [start:played]
def play(layout: Layout, forward: int = 1, backward: int = 2) -> list[list[tuple[int, *Pass]]]:
    """When each pass starts, if it starts as soon as its rank is free and the stage before has handed over."""
    last = layout.pipeline * layout.virtual - 1
    todo, ended, played = order(layout), dict[Pass, int](), [list[tuple[int, *Pass]]() for _ in range(layout.pipeline)]
    free = [0] * layout.pipeline
    while any(todo):
        for rank, waiting in enumerate(todo):
            if not waiting:
                continue
            is_forward, stage, batch = waiting[0]
            needs = (True, stage - 1, batch) if is_forward else (stage == last, stage + (stage < last), batch)
            if needs not in ended and not (is_forward and stage == 0):
                continue
            start = max(free[rank], ended.get(needs, 0))
            played[rank].append((start, *waiting[0]))
            free[rank] = ended[waiting.pop(0)] = start + (forward if is_forward else backward)
    return played


def idle_share(layout: Layout) -> float:
    """Of a step, how long a rank has nothing to do."""
    played = play(layout)
    steps = max(start + (1 if is_forward else 2) for passes in played for start, is_forward, *_ in passes)
    return 1 - 3 * layout.micro_batches * layout.virtual / steps


LAYOUTS = {
    "gpipe": Layout(pipeline=4, micro_batches=4, schedule="gpipe"),
    "1f1b": Layout(pipeline=4, micro_batches=4),
    "1f1b_8": Layout(pipeline=4, micro_batches=8),
    "1f1b_16": Layout(pipeline=4, micro_batches=16),
    "interleaved": Layout(pipeline=4, micro_batches=8, virtual=2, schedule="interleaved"),
}
counted_share = {name: round(idle_share(layout), 12) for name, layout in LAYOUTS.items()}
formula_share = {name: round(bubble(layout), 12) for name, layout in LAYOUTS.items()}
assert counted_share == formula_share
# --8<-- [end:played]


# --8<-- [start:kept]
def most_kept(passes: list[tuple[int, *Pass]]) -> int:
    """Forward passes whose activations a rank keeps at once, at most."""
    kept = [sum(1 if is_forward else -1 for _, is_forward, *_ in passes[: n + 1]) for n in range(len(passes))]
    return max(kept)


in_flight = {name: [most_kept(passes) for passes in play(layout)] for name, layout in LAYOUTS.items()}
for name, kept in in_flight.items():
    print(f"{name:12} idle {counted_share[name]:.1%}, kept at once by rank {kept}")
# --8<-- [end:kept]


# --8<-- [start:drawn]
starts = {  # for the drawings; a stage that holds half as many layers takes half as long
    name: [list(map(list, passes)) for passes in play(layout, 2 // layout.virtual, 4 // layout.virtual)]
    for name, layout in LAYOUTS.items()
}
# --8<-- [end:drawn]


# --8<-- [start:exercise_bubble]
TENTH = 0.1


def enough(virtual: int) -> int:
    """Micro-batches, in multiples of 8 if interleaved, with which eight ranks idle for no more than that share."""
    layout = Layout(pipeline=8, virtual=virtual)
    return next(
        m for m in range(8, 1000, 1 if virtual == 1 else 8) if bubble(layout._replace(micro_batches=m)) <= TENTH
    )


needed = {virtual: enough(virtual) for virtual in (1, 2)}
print(needed)
assert needed == {1: 63, 2: 32}
# --8<-- [end:exercise_bubble]
