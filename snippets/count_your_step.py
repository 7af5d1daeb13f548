# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A step of one's own is counted without a GPU: by kind, by line of code, and on a card; then watched as it runs."""

from collections.abc import Callable
from linecache import getline

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flops_bytes.counting.count import count, fit
from flops_bytes.tools.watch import watch


# --8<-- [start:make]
class Block(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, 12, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        hidden = F.gelu(self.up(self.norm2(x)))
        x = x + self.down(hidden)
        return x


def make(block: type[Block] = Block) -> Callable[[], None]:
    V, d = 50_304, 768  # vocabulary, width
    layers = [nn.Embedding(V, d), *(block(d) for _ in range(12)), nn.Linear(d, V)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        tokens = torch.randint(V, (8, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# --8<-- [end:make]


# --8<-- [start:count]
found = count(make)
print(found)
# --8<-- [end:count]
needed_bytes = found.peak_bytes
state_bytes = sum(found.kinds[kind] for kind in ("weights", "optimizer state"))

LINES = {  # what each of the listed lines of this file has in it, for the figure
    "loss": "loss = F.cross_entropy(",
    "backward": "loss.backward(",
    "hidden": "hidden = F.gelu(",
    "logits": "logits = model(",
    "qkv": "q, k, v = self.qkv(",
    "down": "x = x + self.down(",
    "out": "x = x + self.out(",
    "seen": "seen = F.scaled_dot_product_attention(",
}


def bytes_at(start: str) -> int:
    """What the line that begins so made, of what lives at the peak."""
    places = {line: int(line.rpartition(":")[2]) for line in found.lines}
    return next(
        size for line, size in found.lines.items() if getline(__file__, places[line]).lstrip().startswith(start)
    )


line_bytes = {name: bytes_at(start) for name, start in LINES.items()}


# --8<-- [start:card]
for card in ("RTX 4090", "RTX 5090"):
    answer = fit(found, card)
    left = f"{answer.left_bytes / 2**30:.1f} GiB left"
    print(f"{card}: {'fits' if answer.fits else 'does not fit'}, {left}")
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


# --8<-- [start:exercise_1]
class Light(Block):
    """Keeps its input, and computes the rest again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        again = checkpoint(super().forward, x, use_reentrant=False)
        assert isinstance(again, Tensor)
        return again


light = count(lambda: make(Light))
print(light)
# --8<-- [end:exercise_1]
light_bytes = light.peak_bytes
