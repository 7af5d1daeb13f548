"""What training a neural network costs, in bytes and FLOPs: counters, clocks, formulas, models, a planner.

What stands in __all__ is promised, and imported when it is asked for: to plan needs no torch. All else may move.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flops_bytes.counting.count import count, fit
    from flops_bytes.counting.ranks import count_ranks
    from flops_bytes.model.config import read_stack
    from flops_bytes.model.stack import Stack
    from flops_bytes.plan import plan
    from flops_bytes.tools import kernels, snapshot
    from flops_bytes.tools.watch import watch

__all__ = ["Stack", "count", "count_ranks", "fit", "kernels", "plan", "read_stack", "snapshot", "watch"]
MODULES = {"kernels": "tools.kernels", "plan": "plan", "snapshot": "tools.snapshot"}  # these are promised whole
PLACES = {
    "Stack": "model.stack",
    "count": "counting.count",
    "count_ranks": "counting.ranks",
    "fit": "counting.count",
    "read_stack": "model.config",
    "watch": "tools.watch",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"flops_bytes.{MODULES[name]}")
    if name in PLACES:
        return getattr(import_module(f"flops_bytes.{PLACES[name]}"), name)
    raise AttributeError(f"module 'flops_bytes' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
