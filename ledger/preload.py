"""What the fork server loads once for all snippets: torch, and what its optimizers and its FLOP counter would load."""

import torch

if torch.version.cuda is None:  # with CUDA it may ask the driver, and a forked child could not use the GPU then
    import torch._dynamo
