"""What the fork server loads once for all snippets: torch, what its optimizers and its FLOP counter load, and ourselves."""

import torch

import ledger.execute

if torch.version.cuda is None:  # with CUDA it may ask the driver, and a forked child could not use the GPU then
    import torch._dynamo
