# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A step of one's own is counted without a GPU: by kind, by line of code, and on a card; then watched as it runs."""

# --8<-- [start:setup]
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from flops_bytes.count import count, fit
from flops_bytes.watch import watch

# --8<-- [end:setup]


# --8<-- [start:make]
def make() -> Callable[[], None]:
    V, d = 50_304, 768  # vocabulary, width
    layers = [nn.TransformerEncoderLayer(d, 12, 4 * d, batch_first=True) for _ in range(12)]
    model = nn.Sequential(nn.Embedding(V, d), *layers, nn.Linear(d, V)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        words = torch.randint(V, (8, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# --8<-- [end:make]


# --8<-- [start:count]
found = count(make)
print(found)
# --8<-- [end:count]


# --8<-- [start:card]
card = "RTX 4090"
needed_bytes, moment = found.peak_bytes, found.moment
largest_bytes, in_line = max((size, line) for line, size in found.lines.items())
card_bytes, left_bytes, fits = fit(found, card)[:3]
print(f"{card}: {'fits' if fits else 'does not fit'}")
# --8<-- [end:card]


# --8<-- [start:watch]
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())

with watch() as seen:
    for _ in range(8):
        x = torch.randn(512, 64, device=device)
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
# --8<-- [end:watch]


# --8<-- [start:others]
COUNTED_BYTES = {  # peaks of steps of other people's code, none of whose files was changed, with torch 2.13
    "nanogpt": 13_300_377_176,  # karpathy/nanoGPT at 3adf61e
    "nanochat": 16_944_714_740,  # karpathy/nanochat at 92d63d4
    "trainer": 3_151_303_096,  # transformers 5.23.0
    "torchtune": 27_890_660_454,  # pytorch/torchtune at bd2a0fc
    "torchtitan": 2_715_393_312,  # pytorch/torchtitan at b5bcd76
    "lora": 4_550_890_072,  # huggingface/peft at 5d602fd
    "vit": 8_874_275_016,  # lucidrains/vit-pytorch at 69d24fe
    "unet": 7_841_780_036,  # milesial/Pytorch-UNet at 21d7850
}
# The same step with CUDA's own allocator of torch 2.11, over a driver that computes nothing: counted there, the most
# that it had allocated in steps that were not watched, and the workspaces of cuBLAS in it.
ALLOCATED = {
    "nanogpt": (13_300_377_176, 13_378_023_424, 67_108_864),
    "gpt2": (13_425_385_992, 13_522_917_888, 68_157_440),
    "lora": (4_550_889_832, 4_620_101_632, 67_108_864),
    "trainer": (3_155_399_100, 3_247_697_920, 67_108_864),
    "vit": (8_874_274_440, 9_032_862_208, 68_157_440),
}
allocated = {
    key: {
        "counted_bytes": counted,
        "allocated_bytes": most,
        "workspace_bytes": beside,
        "counted_share": counted / most,
        "with_workspaces_share": (counted + beside) / most,
    }
    for key, (counted, most, beside) in ALLOCATED.items()
}
# --8<-- [end:others]
