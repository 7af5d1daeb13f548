"""What the fork server loads once for all snippets: the code of a run, torch, and what torch itself loads later."""

import gc

import torch

import ledger.execute  # noqa: F401

if torch.version.cuda is None:  # with CUDA it may ask the driver, and a forked child could not use the GPU then
    import torch._dynamo

gc.collect()
gc.freeze()  # else a child's first collection would copy all of torch's pages
