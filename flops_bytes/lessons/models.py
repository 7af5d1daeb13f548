"""GPT-2 and Llama 3 as short modules, from one description of their shapes.

Fused attention and no dropout, as models are trained now; the eager attention is there for contrast.
Each has as many parameters as transformers' model of the same configuration, and with its weights the same logits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flops_bytes.model.shapes import GPT2_LARGE as GPT2_LARGE
from flops_bytes.model.shapes import GPT2_MEDIUM as GPT2_MEDIUM
from flops_bytes.model.shapes import GPT2_SMALL as GPT2_SMALL
from flops_bytes.model.shapes import GPT2_XL as GPT2_XL
from flops_bytes.model.shapes import LLAMA_3_1_405B as LLAMA_3_1_405B
from flops_bytes.model.shapes import LLAMA_3_2_1B as LLAMA_3_2_1B
from flops_bytes.model.shapes import LLAMA_3_8B as LLAMA_3_8B
from flops_bytes.model.shapes import LLAMA_3_70B as LLAMA_3_70B
from flops_bytes.model.shapes import Decoder
from flops_bytes.model.shapes import gpt2 as gpt2
from flops_bytes.model.shapes import llama as llama

# q (b, H, T, Q), k and v (b, G, T, Q) → (b, H, T, Q)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention by the kernel that PyTorch chooses.

    On meta it is a mathematical one, which keeps T × T tensors.
    """
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The flash kernel by its name, which on meta keeps no T × T tensor either.

    16-bit on a GPU, anything on meta.
    """
    kernel = torch.ops.aten._scaled_dot_product_flash_attention
    output: Tensor = kernel(q, k, v, 0.0, True)[0]
    return output


def flash_each(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With as many keys as queries: as many FLOPs; torch 2.11 can count no others."""
    groups = q.shape[1] // k.shape[1]
    return flash(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention spelled out: two products, and the T × T scores between them."""
    groups = q.shape[1] // k.shape[1]  # query heads to a key
    q = q.contiguous()
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    T = q.shape[2]
    future = torch.full((T, T), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    scores: Tensor = q @ k.mT / q.shape[3] ** 0.5 + future  # (b, H, T, T)
    return scores.softmax(-1) @ v


class GPT2Block(nn.Module):
    def __init__(self, shape: Decoder, attend: Attend) -> None:
        super().__init__()
        self.shape, self.attend = shape, attend
        d, f = shape.d_model, shape.d_ff
        self.attention_norm, self.mlp_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x: Tensor) -> Tensor:
        """(b, T, d) → (b, T, d)."""
        sizes = (3, self.shape.heads, self.shape.head_dim)
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, sizes)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (b, H, T, Q)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        inner = F.gelu(self.up(self.mlp_norm(x)), approximate="tanh")
        change: Tensor = self.down(inner)
        return x + change


class GPT2(nn.Module):
    def __init__(self, shape: Decoder, attend: Attend = fused) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.d_model)
        self.positions = nn.Embedding(shape.positions, shape.d_model)
        blocks = (GPT2Block(shape, attend) for _ in range(shape.layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(shape.d_model)
        self.head = nn.Linear(shape.d_model, shape.vocab, bias=False)
        self.head.weight = self.embedding.weight  # tied: one matrix in two places

    def hidden(self, tokens: Tensor) -> Tensor:
        """Tokens (b, T) → what the head sees of them, (b, T, d)."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        normed: Tensor = self.norm(x)
        return normed

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (b, T) → logits (b, T, V)."""
        logits: Tensor = self.head(self.hidden(tokens))
        return logits


class NormOnMeta(torch.autograd.Function):
    """RMSNorm where tensors have no data.

    It makes and keeps what a GPU's one kernel does, without the numbers. PyTorch 2.13
    has that kernel on GPUs alone. Elsewhere it takes the norm to pieces, which keep
    float32 copies.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        scale = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        context.save_for_backward(x, weight, scale)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta:
            return super().forward(x)
        on_meta: Callable[..., Tensor] = NormOnMeta.apply
        return on_meta(x, self.weight)


ROTARY_BASE = 500_000.0  # of Llama 3


def rotary(seq_len: int, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (T, Q), of the angles by which positions turn."""
    pairs = torch.arange(0, head_dim, 2, device=like.device) / head_dim
    angles = torch.arange(seq_len, device=like.device)[:, None] / ROTARY_BASE**pairs
    angles = angles.repeat(1, 2)  # feature i is paired with feature i + Q/2
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, shape: Decoder, attend: Attend) -> None:
        super().__init__()
        self.shape, self.attend = shape, attend
        d, f = shape.d_model, shape.d_ff
        wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.attention_norm, self.mlp_norm = RMSNorm(d, eps=1e-5), RMSNorm(d, eps=1e-5)
        self.q = nn.Linear(d, wide, bias=False)
        self.k, self.v = (nn.Linear(d, narrow, bias=False) for _ in range(2))
        self.out = nn.Linear(wide, d, bias=False)
        self.gate, self.up = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False)
        self.down = nn.Linear(f, d, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(b, T, d) → (b, T, d)."""
        h = self.attention_norm(x)
        parts, sizes = (self.q, self.k, self.v), (-1, self.shape.head_dim)
        q, k, v = (part(h).unflatten(-1, sizes).transpose(1, 2) for part in parts)
        heads = self.attend(rotate(q, cos, sin), rotate(k, cos, sin), v)  # (b, H, T, Q)
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        h = self.mlp_norm(x)
        change: Tensor = self.down(F.silu(self.gate(h)) * self.up(h))
        return x + change


class Llama(nn.Module):
    def __init__(self, shape: Decoder, attend: Attend = fused) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.d_model)
        blocks = (LlamaBlock(shape, attend) for _ in range(shape.layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = RMSNorm(shape.d_model, eps=1e-5)
        self.head = nn.Linear(shape.d_model, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def hidden(self, tokens: Tensor) -> Tensor:
        """Tokens (b, T) → what the head sees of them, (b, T, d)."""
        x = self.embedding(tokens)
        cos, sin = rotary(tokens.shape[1], self.shape.head_dim, x)
        for block in self.blocks:
            x = block(x, cos, sin)
        normed: Tensor = self.norm(x)
        return normed

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (b, T) → logits (b, T, V)."""
        logits: Tensor = self.head(self.hidden(tokens))
        return logits


Model = GPT2 | Llama


def build(
    shape: Decoder,
    attend: Attend = fused,
    dtype: torch.dtype | None = None,
    device: str = "meta",
) -> Model:
    """The model of a shape: learned positions make it a GPT-2.

    On meta it takes no memory.
    """
    with torch.device(device):
        model = GPT2(shape, attend) if shape.positions else Llama(shape, attend)
    # from PyTorch's N(0, 1), softmax's gradients fall below the smallest normal number,
    # and on some CPUs products of such numbers take many times as long
    nn.init.normal_(model.embedding.weight, std=0.02)
    return model.to(dtype)


def again(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keeps only its inputs: of an `attend` (selective checkpointing), or of a block's
    forward (full).
    """
    return partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)


def loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the next token, in float32; both (b, T)."""
    return F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


def chunked_backward(
    model: Model,
    tokens: Tensor,
    targets: Tensor,
    chunks: int,
) -> Tensor:
    """The loss, and its gradients added to .grad.

    The head and its backward pass, for one chunk of tokens at a time.
    """
    hidden = model.hidden(tokens).flatten(0, 1)
    pieces = [piece.detach().requires_grad_() for piece in hidden.chunk(chunks)]
    losses = []
    for piece, words in zip(pieces, targets.flatten().chunk(chunks), strict=True):
        part = F.cross_entropy(model.head(piece).float(), words, reduction="sum")
        part = part / targets.numel()
        part.backward()
        losses.append(part.detach())
    gradient = torch.cat([piece.grad for piece in pieces if piece.grad is not None])
    del piece, pieces, part  # they hold the same gradients
    hidden.backward(gradient)
    return torch.stack(losses).sum()
