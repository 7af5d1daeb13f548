"""Greedy generation with a cache of keys and values, for the book's GPT-2 and Llama."""

import torch
import torch.nn.functional as F
from torch import Tensor

from flops_bytes.lessons.models import GPT2, Model, fused, rotary


# --8<-- [start:cache]
class Cache:
    """One layer's keys and values, called in place of its attention."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0  # in tokens
        self.keys = self.values = torch.empty(0)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Of a prompt, or of one token after it: q (b, H, T, Q), k, v (b, G, T, Q)."""
        start, self.length = self.length, self.length + k.shape[2]
        if not start:
            room = (*k.shape[:2], self.capacity, k.shape[3])
            self.keys, self.values = k.new_empty(room), v.new_empty(room)
        self.keys[:, :, start : self.length] = k
        self.values[:, :, start : self.length] = v
        if not start:
            return fused(q, k, v)
        k, v = self.keys[:, :, : self.length], self.values[:, :, : self.length]
        group = q.unflatten(1, (k.shape[1], -1)).squeeze(3)  # (b, G, H/G, Q)
        return F.scaled_dot_product_attention(group, k, v).flatten(1, 2).unsqueeze(2)


# --8<-- [end:cache]


# --8<-- [start:feed]
class Cached:
    """A model that remembers the keys and values of the tokens it was fed."""

    def __init__(self, model: Model, capacity: int) -> None:
        self.model, self.length = model, 0
        self.caches = [Cache(capacity) for _ in model.blocks]
        self.turns: tuple[Tensor, ...] = ()
        if not isinstance(model, GPT2):
            like = model.embedding.weight
            self.turns = rotary(capacity, model.shape.head_dim, like)

    def feed(self, tokens: Tensor) -> Tensor:
        """A prompt (b, T), or a token after it (b, 1) → its last logits, (b, V)."""
        start, self.length = self.length, self.length + tokens.shape[1]
        x = self.model.embedding(tokens)
        if isinstance(self.model, GPT2):
            x = x + self.model.positions.weight[start : self.length]
        turns = [table[start : self.length] for table in self.turns]
        for block, cache in zip(self.model.blocks, self.caches, strict=True):
            block.attend, attend = cache, block.attend  # type: ignore[assignment]
            x = block(x, *turns)
            block.attend = attend
        logits: Tensor = self.model.head(self.model.norm(x[:, -1]))
        return logits


# --8<-- [end:feed]


# --8<-- [start:generate]
@torch.no_grad()
def generate(model: Model, prompt: Tensor, count: int) -> Tensor:
    """The prompt (b, T) and `count` tokens after it, each the likeliest one."""
    cached = Cached(model, prompt.shape[1] + count)
    tokens = [prompt]
    for _ in range(count):
        logits = cached.feed(tokens[-1])  # prefill first, then decoding
        tokens.append(logits.argmax(-1, keepdim=True))
    return torch.cat(tokens, dim=1)


# --8<-- [end:generate]
