"""The planner: does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"""

from collections.abc import Mapping
from typing import Any

from flops_bytes.plan.fleet import in_time
from flops_bytes.plan.options import read_options
from flops_bytes.plan.serving import serve
from flops_bytes.plan.training import train


def plan(**asked: Any) -> dict[str, Any]:
    """What training or serving takes: options of the command line (gpu_memory for --gpu-memory) in, numbers out.

    Raises ValueError with a sentence that names the option and the mend.
    """
    return in_time(asked, planned)


def planned(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a number of GPUs that is known."""
    a = read_options(asked)
    return serve(a) if a["task"] == "serve" else train(a)
