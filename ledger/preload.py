"""What the fork server loads once for all snippets: the code of a run, torch, and what torch itself loads later."""

import gc
import sys
from types import TracebackType

import torch

import ledger.execute  # noqa: F401

if torch.version.cuda is None:  # with CUDA it may ask the driver, and a forked child could not use the GPU then
    import torch._dynamo


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Nothing, if the runner was killed while it asked for a run: nobody waits for it."""
    if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _tell  # of this server and its forks; a snippet gets Python's own back
gc.collect()
gc.freeze()  # else a child's first collection would copy all of torch's pages
