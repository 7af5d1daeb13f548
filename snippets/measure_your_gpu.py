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
answer = fit(found, card)
needed_bytes, moment = found.peak_bytes, found.moment
largest_bytes, in_line = max((size, line) for line, size in found.lines.items())
left_bytes, card_bytes = answer.left_bytes, answer.card_bytes
print(f"{card}: {'fits' if answer.fits else 'does not fit'}")
# --8<-- [end:card]


# --8<-- [start:watch]
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())

with watch() as seen:
    for _ in range(8):
        x = torch.randn(512, 64, device=device)
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
# --8<-- [end:watch]


# --8<-- [start:exercise]
def with_half() -> Callable[[], None]:
    """The same step with four sequences in place of eight."""
    whole, draw = make(), torch.randint

    def step() -> None:
        torch.randint = lambda high, size, **named: draw(high, (size[0] // 2, *size[1:]), **named)
        whole()
        torch.randint = draw

    return step
# --8<-- [end:exercise]
