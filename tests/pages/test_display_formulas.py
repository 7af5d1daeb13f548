"""Each display formula of both languages, each row of the page of formulas and of the tables that chapters
end with is what the library or PyTorch counts.

LaTeX is read as it stands and gets drawn values: an exponent, a factor or a letter that is typed wrong changes a side.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import mm_flop

from figures.formulas import DAILY, GROUPS, Daily, Formula
from flops_bytes.memory.allocator import up
from flops_bytes.memory.formulas import RECIPES, activation_bytes, cache_bytes, layer_bytes, logits_bytes, state_bytes
from flops_bytes.memory.optimizers import adafactor_state_bytes, newton_schulz_flops
from flops_bytes.model.flops import backward_flops, forward_flops, palm_flops, six_n_d_flops, training_seconds
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B, Decoder, parameters
from flops_bytes.model.tokens import bits_a_byte, text_tokens
from flops_bytes.parallel.layouts import Layout, bubble
from flops_bytes.parallel.sharding import (
    ddp_payload,
    fsdp_payload,
    fsdp_peak_bytes,
    ring_bytes,
    tokens_to_hide,
    zero_stage_bytes,
)
from flops_bytes.serve.inference import (
    Server,
    decode_bytes,
    decode_flops,
    decode_seconds,
    latent_cache_bytes,
    read_bytes,
)
from tests import latex
from tests.tables import BOOK

DISPLAY = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"\{#([\w-]+)\}\s*$", re.MULTILINE)


class Drawn(dict[str, Any]):
    """The letters of a formula: each is drawn when it is first asked for, and stays."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def __missing__(self, name: str) -> Any:
        if name in latex.FUNCTIONS:
            raise KeyError(name)
        self[name] = self.random.randint(3, 60)
        return self[name]

    def __getattr__(self, name: str) -> Any:
        return self[name]


def llama(v: Drawn) -> Decoder:
    sizes = {"d_model": v.d, "layers": v.L, "heads": v.H, "kv_heads": v.G, "head_dim": v.Q, "d_ff": v.f, "vocab": v.V}
    return replace(LLAMA_3_8B, **sizes)


def gpt2(v: Drawn) -> Decoder:
    v["d"] = v.H * 8
    return replace(
        GPT2_SMALL, layers=v.L, d_model=v.d, heads=v.H, kv_heads=v.H, head_dim=8, d_ff=4 * v.d, vocab=v.V, positions=v.T
    )


def float16(v: Drawn, exponent: int) -> float:
    """The number that these bits are, by PyTorch."""
    v.update(s=v.s % 2, i=exponent, c=15, j=v.j, m=10)
    bits = torch.tensor([v.s << 15 | exponent << 10 | v.j], dtype=torch.int32).to(torch.int16)
    return float(bits.view(torch.float16))


def updated(v: Drawn, make: Callable[..., torch.optim.Optimizer], steps: int = 1, /, **kept: str) -> dict[str, Any]:
    """A weight after the last step, and what the optimizer keeps of it; v has both as they were before."""
    v.update(w=2.0, eta=0.25, varepsilon=1e-8, t=steps, **dict.fromkeys(kept, 0.0))
    v["g_s"] = torch.arange(1.0, steps + 1, dtype=torch.float64) / 2
    weight = torch.tensor([v.w], dtype=torch.float64, requires_grad=True)
    optimizer = make([weight], lr=v.eta)
    after: dict[str, Any] = {}
    for gradient in v.g_s:
        v.update({name.removesuffix("_new"): number for name, number in after.items()}, g=gradient, g_t=gradient)
        weight.grad = gradient[None]
        optimizer.step()
        after = {"w_new": weight.item()}
        after |= {f"{name}_new": optimizer.state[weight][key].item() for name, key in kept.items()}
    return after


def adam(v: Drawn) -> dict[str, Any]:
    v.update(beta_1=0.9, beta_2=0.99)
    after = updated(v, partial(torch.optim.Adam, betas=(0.9, 0.99)), 3, m="exp_avg", v="exp_avg_sq")
    return {"w_new": after["w_new"], "m": after["m_new"], "v": after["v_new"]}  # as the text says: updated before


def decoding(v: Drawn) -> dict[str, Any]:
    shape, server = llama(v), Server(1e3 * v.B, v.P * (1e5 if v.b % 2 else 1))  # the slower of reading and multiplying
    pairs = 4 * v.L * v.H * v.Q
    weights = {"W": read_bytes(shape), "K": cache_bytes(shape, 1), "M": (decode_flops(shape, 1, 1) - pairs) / 2}
    return weights | {"t": decode_seconds(shape, v.b, v.T, server), "B": server.bandwidth, "P": server.peak}


def tiles(v: Drawn) -> int:
    """Waves of tiles, one by one: each of the SMs takes one."""
    v.update(m=1_000 + v.m, p=700 + v.p)
    cut = sum(1 for _ in range(0, v.m, v.x) for _ in range(0, v.p, v.y))
    return len(range(0, cut, v.n_SM))


def relu_layers_peak(v: Drawn) -> int:
    """Up to the last layer's backward: inputs and results, weights, and what comes to them."""
    held = [v.A_layer] * (v.L + 1) + [v.W_layer] * v.L
    return sum([*held, v.A_layer, v.A_layer, v.A_layer, v.W_layer])


def layer_parameters(v: Drawn) -> Any:
    counts = parameters(llama(v))
    return (counts["qkv"] + counts["out"] + counts["mlp"]) // v.L


def gathered(v: Drawn) -> dict[str, Any]:
    v["N"] = v.N + 100
    return {"M_peak": sum(fsdp_peak_bytes(v.N - v.N_0, v.N_0, v.R).values())}


def seconds_alone(v: Drawn) -> Any:
    """Of matmuls and AdamW: fused, it reads weight, gradient and two moments and writes three of them, in float32."""
    return training_seconds(six_n_d_flops(v.N, v.b * v.T), 1, v.P, 1) + (4 + 3) * 4 * v.N / v.B


def casts(v: Drawn) -> Any:
    tokens, quantized = v.b * v.T, (v.b * v.T * v.d, v.d * v.f, v.b * v.T * v.f)
    return 3 * 2 * tokens * v.d * v.f / v.P + v.e_cast * sum(quantized) / v.B


def grpo(v: Drawn) -> int:
    """A copy without the last token, one with it, and three of a chunk of rows, in float32."""
    return sum(4 * v.V * rows for rows in (v.b * (v.T + 1), v.b * v.T, *[v.n_chunk] * 3))


def ordered(v: Drawn) -> list[int]:
    """(x a) b and x (a b)."""
    first = matmul(v.T, v.d_in, v.r) + matmul(v.T, v.r, v.d_out)
    return [first, matmul(v.d_in, v.r, v.d_out) + matmul(v.T, v.d_in, v.d_out)]


def fused_step(v: Drawn) -> Any:
    """Forward and backward, where fused attention makes its scores again."""
    v["C"] = sum(forward_flops(llama(v), v.T).values())
    return v.C + sum(backward_flops(llama(v), v.T).values())


def decoded(v: Drawn) -> Any:
    v.update(W=read_bytes(llama(v)), K=cache_bytes(llama(v), 1))
    return decode_bytes(llama(v), 1, v.T) / v.B


def composed_norms(v: Drawn) -> Any:
    """What RMSNorms of several operations keep more: two of a layer, and the last."""
    kept = [sum(layer_bytes(llama(v), v.T, v.b, composed=composed).values()) for composed in (False, True)]
    return v.L * (kept[1] - kept[0]) + (kept[1] - kept[0]) // 2


def kept_by_matmuls(v: Drawn) -> Any:
    """A layer's activations without statistics."""
    return v.L * (sum(layer_bytes(llama(v), v.T, v.b).values()) - v.b * v.T * (4 * v.H + 8) - 24)


def sent_tensor(v: Drawn) -> dict[str, Any]:
    sent = 2 * ring_bytes(2 * v.d, v.R, "allreduce") / v.B
    return {"N_layer": layer_parameters(v), "t_sent": sent, "t_matmuls": 2 * layer_parameters(v) / v.R / v.P / v.MFU}


def sent_experts(v: Drawn) -> dict[str, Any]:
    there_and_back = 2 * 2 * v.k * v.d * (v.R - 1) / v.R / v.B
    return {"t_sent": there_and_back, "t_matmuls": v.k * 3 * 2 * v.d * v.f / (v.MFU * v.P)}


def strided(v: Drawn) -> int:
    v.update(i=2, j=3)
    return int(torch.arange(10_000).as_strided((4, 4), (v.s_0, v.s_1), v.o)[2, 3])


def all_logits_bytes(v: Drawn) -> Any:
    """What is left of a step's state at the beginning of its backward pass, and three times the logits: one is in A."""
    recipe = RECIPES["bf16"]
    return (recipe.weights + recipe.optimizer) * v.N + v.A + sum(logits_bytes(llama(v), v.b * v.T).values()) * 2 // 3


def kept_bytes(v: Drawn) -> dict[str, Any]:
    kept = activation_bytes(llama(v), v.T, v.b)
    named = kept["layers"] + kept["log_probabilities"] - 4 + 2 * kept["head_input"]  # the last norm keeps as much again
    return {"A_layer": kept["layers"] // v.L, "A": named}


def without_statistics(v: Drawn) -> Any:
    """Of eager attention with dropout: all but what norms keep of each token."""
    kept = layer_bytes(gpt2(v), v.T, v.b, fused=False, dropout=True)
    return sum(kept.values()) - 2 * 4 * 2 * v.b * v.T


def matmul(rows: int, inner: int, columns: int) -> int:
    """FLOPs of a product of these sides, by PyTorch's own formula."""
    return int(mm_flop((rows, inner), (inner, columns)))


def half_attention(v: Drawn) -> dict[str, Any]:
    """The context where attention's FLOPs, as many for each pair, are as many as those of the weights."""
    return {"T_half": 2 * v.M / (4 * v.L * v.H * v.Q)}


def multiplied(v: Drawn) -> int:
    flops = forward_flops(llama(v), v.T)
    v["M"] = (sum(flops.values()) - flops["scores"] - flops["values"]) // (2 * v.T)
    return sum(flops.values())


def interleaved(v: Drawn) -> float:
    v["m"] = v.m * v.p  # as its order asks
    return bubble(Layout(pipeline=v.p, micro_batches=v.m, virtual=v.v, schedule="interleaved"))


def quadratic(v: Drawn) -> dict[str, Any]:
    v.update(c_i=torch.tensor([1, 50]), w_i=torch.tensor([v.a, v.b]), w_i_star=torch.tensor([v.x, v.y]))
    return {"c": (1, 50), "ell": float((v.w_i - v.w_i_star) ** 2 @ v.c_i / 2)}


def l40s(v: Drawn) -> float:
    """An L40S's: 142 SMs of 4 tensor cores with 128 FMA a clock, 2,520 MHz."""
    v.update(n_SM=142, c=4, q=128, nu=2520e6)
    return 366.4e12 if abs(142 * 4 * 128 * 2 * 2520e6 / 366.4e12 - 1) < 1e-4 else 0.0


State = dict[str, Any]
Said = Callable[[Drawn], Any]  # the formula's value, or what it calls by name on its left
# fmt: off
DISPLAYED: dict[str, list[Said]] = {
    "activations.md#block": [lambda v: {"A_layer": sum(layer_bytes(llama(v), v.T, v.b).values())}],
    "activations.md#variants": [without_statistics],
    "activations.md#logits": [kept_bytes],
    "activations.md#step": [all_logits_bytes],
    "activations.md#fits": [lambda v: {"capacity": 6 * v.N + v.b * (v.A_1 + 2 * 4 * v.T * v.V)}],
    "compute-for-memory.md#four-thirds": [
        lambda v: {"C_none": six_n_d_flops(v.N, v.D), "C_full": six_n_d_flops(v.N, v.D) + 2 * v.N * v.D}],
    "counting-flops.md#count-or-speed": [lambda v: {"t": training_seconds(v.C, 1, v.P, 1)}],
    "counting-flops.md#matmul": [lambda v: [(v.m * v.p * (v.n + v.n - 1), matmul(v.m, v.n, v.p))]],
    "counting-flops.md#linear-model": [lambda v: v.m * matmul(1, v.n, v.p)],
    "counting-flops.md#model": [lambda v: sum(forward_flops(gpt2(v), v.T).values())],
    "counting-flops.md#order": [ordered],
    "experts.md#sends": [sent_experts],
    "fp8.md#speed": [lambda v: {"t": casts(v)}],
    "gpt2-parameters.md#llama": [lambda v: {"N": sum(parameters(llama(v)).values())}],
    "gpu-memory.md#luck": [lambda v: {"requested": 512 * v.n + 1, "allocated": up(512 * v.n + 1, 512)}],
    "gpu-memory.md#peak": [relu_layers_peak],
    "gradients.md#count": [lambda v: {"C_fwd": v.L * v.C, "C_bwd": (2 * v.L - 1) * v.C}],
    "grpo.md#logits": [lambda v: grpo(v) * v.setdefault("bytes", 1)],
    "inference.md#bound": [decoding],
    "many-gpus.md#wire": [
        lambda v: {f"S_{name}": ring_bytes(v.S, v.R, name.replace("all_r", "allr").replace("all_g", "allg"))
                   for name in ("all_reduce", "all_gather", "reduce_scatter")}],
    "many-gpus.md#gathered": [gathered],
    "many-gpus.md#hidden": [lambda v: {"b": 1, "T": tokens_to_hide(v.MFU * v.P, v.B, v.R)}],
    "mfu.md#mfu": [lambda v: {"t": training_seconds(v.C, 1, v.P, v.MFU)}],
    "mfu.md#peak": [lambda v: {"P": l40s(v)}],
    "mfu.md#tiles": [lambda v: {"w": tiles(v)}],
    "mixed-precision.md#speed": [lambda v: {"t": seconds_alone(v)}],
    "number-formats.md#fields": [lambda v: {"x": float16(v, 17)}, lambda v: {"x": float16(v, 0)}],
    "one-card.md#day": [lambda v: {
        "FLOP_s_reached": v.n * v.m / v.p, "达到的_FLOP_s": v.n * v.m / v.p, "FLOPs_a_token": v.m, "词元计算量": v.m,
        "tokens": v.n, "词元数": v.n, "second": v.p, "秒": v.p}],
    "optimizers.md#traffic": [lambda v: {"t": (4 + 3) * 4 * v.N / v.B}],
    "optimizers.md#muon-flops": [lambda v: newton_schulz_flops(v.setdefault("m", 5), v.setdefault("n", 70))],
    "optimizers.md#sgd": [lambda v: updated(v, torch.optim.SGD), quadratic],
    "optimizers.md#momentum": [
        lambda v: {"mu": 0.9} | updated(v, partial(torch.optim.SGD, momentum=0.9), 3, u="momentum_buffer")],
    "optimizers.md#adagrad": [lambda v: updated(v, partial(torch.optim.Adagrad, eps=1e-8), 3)],
    "optimizers.md#rmsprop": [
        lambda v: {"alpha": 0.9} | updated(v, partial(torch.optim.RMSprop, alpha=0.9), 3, v="square_avg")],
    "optimizers.md#adam": [adam],
    "parallelism.md#tensor": [sent_tensor],
    "parallelism.md#context": [lambda v: {
        "T": v.R * 2 * (2 * 2 * v.G * v.Q / v.B) / (2 * 2 * v.H * v.Q / (v.MFU * v.P)) }],
    "parallelism.md#pipeline": [interleaved],
    "roofline.md#work": [
        lambda v: {"C": v.I * v.S},
        lambda v: {"I": matmul(v.m, v.n, v.p) / (2 * (v.m * v.n + v.n * v.p + v.m * v.p))}],
    "roofline.md#ridge": [
        lambda v: {"t": sorted((v.C / v.P, v.S / v.B))[1]}, lambda v: {"B": v.S / v.t, "P": v.I * v.S / v.t}],
    "roofline.md#tokens": [lambda v: {"B": 1e9, "P": 1e9 / (1 / v.m + 1 / v.d + 1 / v.f)}],
    "roofline.md#launch": [lambda v: {"t": sorted((v.C / v.P, v.S / v.B, v.t_0))[2]}],
    "storage-and-strides.md#strides": [lambda v: {"p": strided(v)}],
    "storage-and-strides.md#contiguity": [
        lambda v: {"s_0": torch.empty(v.n_0, v.n_1).stride()[0], "s_1": torch.empty(v.n_0, v.n_1).stride()[1]}],
    "storage-and-strides.md#bandwidth": [lambda v: {"t": (v.n * v.e + v.n * v.e) / v.B}],
    "tensor-operations.md#einsum": [lambda v: v.b * v.H * matmul(v.T_q, v.Q, v.T_k)],
    "timing.md#how-many": [lambda v: (torch.pi / 2) ** 0.5 * v.sigma / v.n**0.5],
    "tokens.md#bill": [lambda v: {"C": v.C_1 * text_tokens(v.S, v.beta)}],
    "tokens.md#bits": [lambda v: {"bits_a_byte": bits_a_byte(v.loss, v.beta)}],
    "training-loop.md#overlap": [lambda v: {"t": sorted((v.l, v.w))[1]}],
    "training-loop.md#needed": [lambda v: {"r": v.n / training_seconds(six_n_d_flops(v.N, v.n), 1, v.P, v.MFU)}],
    "training-loop.md#scale": [lambda v: {"x_i": torch.tensor([v.a, v.b]), "w_i": torch.tensor([v.c, v.e]),
                                          "y": v.a * v.c + v.b * v.e}],
    "transformer-flops.md#components": [multiplied],
    "transformer-flops.md#contexts": [half_attention],
    "two-questions.md#how-long": [lambda v: {"t": training_seconds(six_n_d_flops(v.N, v.D), v.R, v.P, v.MFU)}],
}
# Rows of the page of formulas that are no display formula of a chapter, by their value.
ROWS: dict[str, Said] = {
    "elements": lambda v: v.n * v.e,
    "view": lambda v: v.n_storage * v.e,
    "chain": lambda v: v.n * v.e + v.n * v.e,
    "rounded": lambda v: sum(up(v.setdefault("r", 700), 512) for _ in range(100)),
    "attention": lambda v: matmul(v.T, v.d, v.T) + matmul(v.T, v.T, v.d),
    "two_layers": lambda v: 2 * v.C_fwd,
    "transformer": lambda v: six_n_d_flops(v.N, v.D),
    "gpt3": lambda v: six_n_d_flops(v.N, v.D),
    "rate": lambda v: training_seconds(v.C, 1, v.F, 1),
    "run": lambda v: v.R * v.setdefault("t", training_seconds(six_n_d_flops(v.N, v.D), v.R, v.P, v.MFU)),
    "waves": lambda v: 1 / (tiles(v) * v.n_SM * v.x * v.y / (v.m * v.p)),
    "fusion": lambda v: v.S_chain / v.S_fused,
    "order": lambda v: ordered(v)[1] / ordered(v)[0],
    "link": lambda v: v.n * v.e / v.B_link,
    "in_line": lambda v: v.t_copy + v.t_link,
    "median": lambda v: (torch.pi / 2) ** 0.5 * v.sigma / v.k**0.5,
    "adamw": lambda v: sum(state_bytes(1, RECIPES["fp32"]).values()),
    "master": lambda v: sum(state_bytes(1, RECIPES["bf16_master"]).values()),
    "bf16": lambda v: sum(state_bytes(1, RECIPES["bf16"]).values()),
    "largest": lambda v: v.R * v.M_GPU / sum(state_bytes(1, RECIPES["fp32"]).values()),
    "gradients": lambda v: state_bytes(v.N, RECIPES["fp32"])["gradients"],
    "state": lambda v: state_bytes(v.N, RECIPES["fp32"])["optimizer"],
    "foreach": lambda v: state_bytes(v.N, RECIPES["fp32"])["optimizer"] // 2,  # the roots of the second moments
    "checkpoint": lambda v: (six_n_d_flops(1, 1) + 2) / six_n_d_flops(1, 1),
    "checkpoint_time": lambda v: v.C_done / (v.C_none / v.t_none),
    "file": lambda v: sum(state_bytes(v.N, RECIPES["fp32"]).values()) - 4 * v.N + 4 * v.k + 8 * v.n + v.s_rng,
    "scaling": lambda v: v.x,
    "scale": lambda v: (v.d * v.sigma_w**2) ** 0.5,
    "gpt2_small": lambda v: sum(parameters(gpt2(v)).values()),
    "gpt2_xl": lambda v: sum(parameters(gpt2(v)).values()),
    "fused_step": fused_step,
    "palm": lambda v: palm_flops(llama(v), v.M, v.T, v.T),
    "crossing": lambda v: 2 * v.M * v.setdefault("T_half", half_attention(v)["T_half"]),
    "composed": composed_norms,
    "step_time": lambda v: sum(v.setdefault("t_i", [1.5, 2.5])),
    "run_time": lambda v: training_seconds(3 * v.C / v.T * v.D, 1, v.P, v.MFU),
    "added": lambda v: parameters(llama(v))["embedding"] * v.V_new // v.V - parameters(llama(v))["embedding"],
    "text_tokens": lambda v: text_tokens(v.S, v.beta),
    "bits": lambda v: bits_a_byte(v.ell, v.beta),
    "stage_1": lambda v: sum(zero_stage_bytes(v.N, v.R, 1).values()),
    "stage_3": lambda v: sum(zero_stage_bytes(v.N, v.R, 3).values()),
    "reduced": lambda v: ddp_payload(v.N)["allreduce"],
    "sharded": lambda v: fsdp_payload(v.setdefault("N", 900) - v.N_0, v.N_0)["allgather"],
    "cache": lambda v: cache_bytes(llama(v), 1),
    "latent_cache": lambda v: latent_cache_bytes(v.L, v.c, v.r, 1),
    "decode": decoded,
    "scoring": grpo,
    "trains": lambda v: six_n_d_flops(v.N, v.D),
    "attends": lambda v: palm_flops(llama(v), 0, 1, v.T),
    "logged": lambda v: six_n_d_flops(v.N, v.b * v.T) / (v.t * v.R * v.P),
    "stored": lambda v: sum(state_bytes(v.N, RECIPES["fp32"]).values()),
    "keeps": kept_by_matmuls,
    "scores": lambda v: sum(logits_bytes(llama(v), v.b * v.T).values()),
    "hides": lambda v: sorted((v.t_matmuls, v.t_sent))[1],
    "remembers": lambda v: cache_bytes(llama(v), 1),
    "decodes": decoded,
}
# fmt: on

# What chapters say again in tables for looking up: of formulas with the same letters one after the other.


def over_width(is_llama: bool, softmax_bytes: int = 2, dropout: bool = False) -> Said:
    """What a layer keeps of a token with eager attention, over the model's width; norms' statistics aside."""

    def said(v: Drawn) -> Any:
        v.update(H=4 * v.H, d=4 * v.H * 8)
        like_8b = replace(LLAMA_3_8B, d_model=v.d, heads=v.H, kv_heads=v.H // 4, head_dim=8, d_ff=28 * v.H)
        kept = layer_bytes(like_8b if is_llama else gpt2(v), v.T, 1, fused=False, dropout=dropout)
        statistics = 2 * 4 * (1 if is_llama else 2) * v.T
        return (sum(kept.values()) - statistics + (softmax_bytes - 2) * v.H * v.T**2) / v.T / v.d

    return said


def drafted(v: Drawn) -> Any:
    """Tokens of a round of k drafts, each right with the chance a, over the time of the drafts and one check."""
    v.update(a=1 / v.a, c=1 / v.c)
    return sum(v.a**n for n in range(v.k + 1)) / (v.k * v.c + 1)


def attending(v: Drawn, passes: int, seen: float = 1) -> Any:
    """FLOPs of a token: of matrices and of pairs, so many passes of both."""
    return passes * (2 * v.M + seen * 2 * 2 * v.L * v.H * v.Q * v.T)


def causally(v: Drawn) -> Any:
    return 3 * 2 * v.M + 3 * 2 * 2 * v.L * v.H * v.Q * sum(range(1, v.T + 1)) / v.T


# fmt: off
LOOKED_UP: dict[str, list[Said]] = {
    "activations.md H T d": [over_width(False), over_width(True), over_width(False, 6), over_width(True, 6),
                             over_width(False, 2, True)],
    "compute-for-memory.md T V b": [lambda v: sum(logits_bytes(llama(v), v.b * v.T).values())],
    "compute-for-memory.md N w": 3 * [lambda v: v.w * v.N],
    "counting-flops.md T d": [lambda v: matmul(v.T, v.d, v.T) + matmul(v.T, v.T, v.d)],
    "experts.md H L M Q T": [lambda v: attending(v, 3)],
    "gradients.md D N": [lambda v: six_n_d_flops(v.N, v.D)],
    "number-formats.md e n": [lambda v: v.n * v.e],
    "storage-and-strides.md n_d_1 s_d_1": 2 * [lambda v: v.s_d_1 * v.n_d_1],
    "tensor-operations.md e n": [
        lambda v: v.n * v.e, lambda v: v.n * v.e, lambda v: 2 * v.n * v.e, lambda v: v.n * v.e],
    "tokens.md e loss": [lambda v: v.e**v.loss],
    "training-loop.md n_in sigma_w": [lambda v: v.sigma_w * v.n_in**0.5],
    "two-questions.md D N": [lambda v: six_n_d_flops(v.N, v.D)],
    "two-questions.md C MFU P": [lambda v: training_seconds(v.C, 1, v.P, v.MFU) / 3600],
    "two-questions.md C MFU P R": [lambda v: training_seconds(v.C, v.R, v.P, v.MFU) / 86_400],
    "two-questions.md C MFU P n": [lambda v: training_seconds(v.C, v.n, v.P, v.MFU) / 86_400],
    "two-questions.md D r": [lambda v: v.D / v.r / 86_400],
    "compute-for-memory.md H T b": [lambda v: v.b * v.H * v.T * v.T * 2],
    "compute-for-memory.md T V b d n w": [
        lambda v: sum(logits_bytes(llama(v), v.b * v.T).values()) / v.n + v.w * v.V * v.d],
    "compute-for-memory.md T b d": 2 * [lambda v: v.b * v.T * v.d * 2],
    "compute-for-memory.md N n w": [lambda v: 3 * ring_bytes(v.w * v.N, v.n, "allgather")],
    "experts.md E d f": [lambda v: v.E * (v.d * v.f + v.d * v.f + v.f * v.d)],
    "experts.md d f k": [lambda v: v.k * (v.d * v.f + v.d * v.f + v.f * v.d),
                         lambda v: v.k * (2 * v.d + 4 * 2 * v.f + 2 * v.d + 2 + 3 * 8)],
    "experts.md d f": [lambda v: v.d * v.f + v.d * v.f + v.f * v.d],
    "experts.md E d": [lambda v: v.d * v.E],
    "experts.md E R d f": [lambda v: 2 * 3 * v.d * v.f * v.E / v.R],
    "experts.md R d k": [lambda v: ring_bytes(2 * v.k * v.d, v.R, "allgather")],
    "fp8.md b n s": [lambda v: (v.n * v.b + 8 * v.s) / v.n],
    "fp8.md r w": [lambda v: v.r + v.r + v.w],
    "fp8.md c r": [lambda v: 1 / ((1 - v.setdefault("c", 0.7)) + v.c * (1 / v.r))],
    "fp8.md B P P_16": [lambda v: v.B * (6 / v.P_16 - 6 / v.P)],
    "fp8.md e_cast g": [lambda v: v.e_cast / v.g],
    "gpt2-parameters.md H d": 2 * [lambda v: v.d / v.H],
    "gpu-memory.md A_layer L W_layer": [lambda v: 6 * v.A_layer + (v.L + v.L - 1) * v.W_layer,
                                        lambda v: 4 * v.A_layer + (v.L + v.L) * v.W_layer],
    "gradients.md L T d": [lambda v: 6 * v.L * matmul(v.T, v.d, v.T), lambda v: 7 * v.L * matmul(v.T, v.d, v.T)],
    "grpo.md K N T T_p b": [lambda v: 16 * v.N + v.b * v.K * v.T_p + v.b * v.K * v.T],
    "grpo.md N T V b": [lambda v: 16 * v.N + 2 * 4 * v.b * v.T * v.V,
                        lambda v: (16 + 4) * v.N + 3 * 4 * v.b * v.T * v.V],
    "grpo.md T V": [lambda v: 4 * 4 * v.T * v.V],
    "inference.md G L Q": [lambda v: cache_bytes(llama(v), 1, 1)],
    "inference.md H L M P Q T V d": [
        lambda v: (2 * v.T * v.M - matmul(v.T, v.d, v.V) + v.L * v.H * (2 * matmul(v.T, v.Q, v.T)) / 2) / v.P],
    "inference.md B W": [lambda v: v.W / v.B],
    "inference.md b t": [lambda v: v.b / v.t, lambda v: v.b * 3600 / 1e6 / v.t],
    "inference.md K W": [lambda v: v.W / v.K],
    "inference.md B H K L M P Q": [lambda v: 2 * v.M / v.P / (v.K / v.B - 4 * v.L * v.H * v.Q / v.P)],
    "inference.md K T": [lambda v: v.T * v.K],
    "inference.md a c k": [drafted],
    "many-gpus.md N R": [lambda v: (2 + 2) * v.N + (4 + 8) * v.N / v.R, lambda v: 2 * v.N + (2 + 4 + 8) * v.N / v.R,
                         lambda v: (2 + 2 + 4 + 8) * v.N / v.R],
    "many-gpus.md N r": [lambda v: v.r * v.N],
    "many-gpus.md N N_0 g r": [lambda v: sum(fsdp_payload(v.N - v.N_0, v.N_0, True, v.g, v.r).values())],
    "many-gpus.md B MFU P R g": [lambda v: tokens_to_hide(v.MFU * v.P, v.B, v.R, v.g)],
    "many-gpus.md B MFU P R g r": [lambda v: tokens_to_hide(v.MFU * v.P, v.B, v.R, v.g + v.r, 4)],
    "mfu.md H L M Q T": [lambda v: attending(v, 3), causally],
    "mfu.md MFU P": [lambda v: v.P * v.MFU],
    "mfu.md MFU P P_new": [lambda v: v.MFU * v.P / v.P_new],
    "mfu.md P m n p t": [lambda v: matmul(v.m, v.n, v.p) / v.t / v.P],
    "mfu.md m n_SM p w x y": [lambda v: v.m * v.p / (v.w * v.n_SM * v.x * v.y)],
    "number-formats.md c m": [lambda v: 2**v.c * (2 - 2**-v.m), lambda v: 2**(1 - v.c) * 2**-v.m],
    "optimizers.md B N": [lambda v: (16 + 4) * 4 * v.N / v.B, lambda v: (3 + 2) * 4 * v.N / v.B,
                          lambda v: (2 + 1) * 4 * v.N / v.B],
    "optimizers.md m n": [lambda v: adafactor_state_bytes([(v.m, v.n)]), lambda v: 4 * v.m * v.n],
    "optimizers.md eta g mu": [lambda v: v.eta * v.g / (1 - v.mu)],
    "parallelism.md R T d": [lambda v: 4 * ring_bytes(2 * v.T * v.d, v.R, "allreduce"),
                             lambda v: 10 * ring_bytes(2 * v.T * v.d, v.R, "allgather")],
    "parallelism.md T d": [lambda v: 4 * ring_bytes(2 * v.T * v.d, 8, "allreduce"), lambda v: 2 * 2 * v.T * v.d],
    "parallelism.md G Q R T": [lambda v: 3 * ring_bytes(2 * 2 * v.T * v.G * v.Q, v.R, "allgather")],
    "parallelism.md G Q T": [lambda v: 3 * ring_bytes(2 * 2 * v.T * v.G * v.Q, 4, "allgather"),
                             lambda v: 2 * 2 * v.T * v.G * v.Q],
    "parallelism.md R v": [lambda v: v.R * v.v],
    "parallelism.md R T d k": [lambda v: 4 * ring_bytes(2 * v.k * v.T * v.d, v.R, "allgather")],
    "parallelism.md m p": [lambda v: bubble(Layout(pipeline=v.p, micro_batches=v.m, schedule="gpipe"))],
    "parallelism.md p r": [lambda v: v.p - v.r],
    "parallelism.md p r v": [lambda v: (v.v - 1) * v.p + 2 * (v.p - v.r) - 1],
    "parallelism.md m p v": [lambda v: (v.p - 1) / (3 * v.v * v.m + v.p - 1)],
    "roofline.md e m n p": [lambda v: matmul(v.m, v.n, v.p) / v.e / (v.m * v.n + v.n * v.p + v.m * v.p)],
    "roofline.md e m": [lambda v: matmul(v.m, 70, 80) / (v.e * 70 * 80)],
    "roofline.md G H": [lambda v: v.H / v.G],
    "roofline.md P t_0": [lambda v: (v.t_0 * v.P / 2) ** (1 / 3)],
    "roofline.md B_link P": [lambda v: v.P / v.B_link],
    "tensor-operations.md e m": [lambda v: v.m * v.m * v.e],
    "timing.md k m n t": [lambda v: matmul(v.m, v.k, v.n) / v.t],
    "timing.md e n t": [lambda v: (v.n * v.e + v.n * v.e) / v.t],
    "tokens.md T c": [lambda v: v.T * v.c],
    "tokens.md H L M Q T": [lambda v: attending(v, 3)],
    "tokens.md S beta": [
        lambda v: v.S / v.beta, lambda v: 2 * v.S / v.beta, lambda v: 4 * v.S / v.beta],
    "tokens.md V d": [lambda v: 2 * v.V * v.d, lambda v: v.V * v.d, lambda v: matmul(1, v.d, v.V),
                      lambda v: 3 * matmul(1, v.d, v.V)],
    "tokens.md S beta loss": [lambda v: bits_a_byte(v.loss, v.beta) * v.S],
    "traces.md P k m n t": [lambda v: matmul(v.m, v.k, v.n) / v.t / v.P],
    "traces.md B S n": [lambda v: ring_bytes(v.S, v.n, "allreduce") / v.B],
    "training-loop.md k l w": [lambda v: sorted((v.l / v.k, v.w))[1]],
    "training-loop.md l w": [lambda v: v.l + v.w],
    "training-loop.md T n": [lambda v: len(range(v.setdefault("n", 70) - v.T))],
    "transformer-flops.md H L M Q T": [lambda v: attending(v, 3), causally,
                                       lambda v: attending(v, 3) + v.L * v.H * matmul(1, v.Q, v.T),
                                       lambda v: attending(v, 1)],
    "transformer-flops.md E G H L Q V d f k": [
        lambda v: v.L * (2 * v.d * v.H * v.Q + 2 * v.d * v.G * v.Q + v.k * 3 * v.d * v.f + v.d * v.E) + v.V * v.d],
    "transformer-flops.md E d": [lambda v: v.d * v.E],
    "transformer-flops.md T T_half": [lambda v: v.T / v.T_half / (v.T / v.T_half + 1)],
    "transformer-flops.md C MFU P": [lambda v: training_seconds(v.C, 1, v.P, v.MFU) / 3600],
    "two-questions.md D H L Q T": [lambda v: v.D * 3 * v.L * v.H * 2 * matmul(1, v.Q, v.T)],
    "two-questions.md N P R r": [lambda v: six_n_d_flops(v.N, v.r) / (v.R * v.P)],
    "two-questions.md N s": 2 * [lambda v: v.s * v.N],
    "two-questions.md N R s": [lambda v: v.s * v.N / v.R],
    "two-questions.md N memory s": [lambda v: v.s * v.N / v.memory],
}
# fmt: on
BOUNDS = {  # all others say that their sides are equal
    "activations.md#fits": "≤",
    "counting-flops.md#count-or-speed": "≥",
    "counting-flops.md#matmul": "≈",
    "inference.md#bound": "≥",
    "many-gpus.md#hidden": "≥",
    "parallelism.md#context": "≥",
}
ABOUT = {"timing.md#how-many": 0.003, "mfu.md#peak": 1e-4}  # how far sides may differ


def displayed(language: str) -> dict[str, list[str]]:
    """The display formulas of a language by page and heading."""
    found: dict[str, list[str]] = {}
    for path in sorted((BOOK.docs / language).glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for match in DISPLAY.finditer(text):
            heading = HEADING.findall(text[: match.start()])[-1]
            found.setdefault(f"{path.name}#{heading}", []).append(match[1].strip())
    return found


PAGES = {language: displayed(language) for language in ("en", "zh")}
CASES = [
    (language, name, number)
    for language, found in PAGES.items()
    for name, formulas in found.items()
    for number in range(len(formulas))
    if name != "gradients.md#two-products"
]


def holds(tex: str, said: Said, seed: int, about: float = 1e-9) -> bool:
    """Whether each side of a formula is what is said of it, and something was compared."""
    drawn, compared = Drawn(seed), 0
    wanted = said(drawn)
    outputs = wanted if isinstance(wanted, dict) else {}
    values = {**drawn, **outputs}  # a letter that nobody drew is in no formula
    results = iter(wanted if isinstance(wanted, list) else [wanted])
    for line in latex.lines(tex):
        sides = [side for side in line.sides if side.strip()]
        name = latex.name_of(sides[0])
        is_defined = bool(name) and name not in values
        found = [latex.value(side, values) for side in sides[is_defined or line.relations in ("←", ":") :]]
        if is_defined:
            values[name] = found[0]
            continue
        if line.relations == "←":
            expected = outputs[f"{name}_new"]
            values[name] = found[0]
        else:
            expected = found.pop(0) if outputs else next(results)
        compared += len(found)
        both = isinstance(expected, tuple) and len(found) == len(expected)
        for one, other in zip(found, expected if both else [expected] * len(found), strict=True):
            if one != (other if isinstance(other, tuple) else pytest.approx(other, rel=about)):
                return False
    return compared > 0


@pytest.mark.parametrize(("language", "name", "number"), CASES)
def test_a_display_formula_says_what_is_counted(language: str, name: str, number: int) -> None:
    tex = PAGES[language][name][number]
    assert all(holds(tex, DISPLAYED[name][number], seed, ABOUT.get(name, 1e-9)) for seed in range(3)), tex
    relations = {relation for line in latex.lines(tex) for relation in line.relations}
    assert relations - {"=", "←", ":"} == {*BOUNDS.get(name, "")}


def slips(tex: str) -> Iterator[str]:
    """A formula with one number raised, one sign turned, one letter another."""
    for match in re.finditer(
        r"(?!.*&:)(?:\d+|(?<=[\w)}] )[-+]|\\max|(?<![A-Za-z\\])[bdfGHLMNPQTV](?![A-Za-z]*\}))", tex
    ):
        other = {"+": "-", "-": "+", r"\max": r"\min", "P": "B", "d": "f"}.get(match[0], "d")
        yield tex[: match.start()] + (str(int(match[0]) + 1) if match[0].isdigit() else other) + tex[match.end() :]


@pytest.mark.parametrize("case", CASES[: len(CASES) // 2], ids=lambda case: f"{case[1]}-{case[2]}")
def test_a_slip_of_the_keyboard_is_found(case: tuple[str, str, int]) -> None:
    language, name, number = case
    for slip in slips(PAGES[language][name][number]):
        try:
            found = all(holds(slip, DISPLAYED[name][number], seed, ABOUT.get(name, 1e-9)) for seed in range(3))
        except (NameError, ValueError, KeyError, ZeroDivisionError):
            continue
        assert not found, slip


FORMULAS: list[Formula | Daily] = [*(formula for group in GROUPS.values() for formula in group), *DAILY]


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_a_row_says_what_is_counted_or_what_a_chapter_displays(formula: Formula | Daily) -> None:
    line = next(latex.lines(formula.tex))
    sides = [side for side in line.sides if not latex.name_of(side)]
    for seed in range(3):
        values = Drawn(seed)
        if formula.name in ROWS:
            wanted = [ROWS[formula.name](values)]
        else:
            wanted = [latex.value(side, values) for side in same_letters(sides[-1])]
        for side in sides:
            found = pytest.approx(latex.value(side, values), rel=ABOUT.get(formula.derived_at, 1e-9))
            assert any(found == each for each in wanted), side


def letters(side: str) -> set[str]:
    return {*re.findall(r"[A-Za-z_]\w*", latex.Reader(side).code())} - {*latex.FUNCTIONS}


def same_letters(side: str) -> list[str]:
    """Sides of display formulas with the same letters."""
    displayed = [tex for name, formulas in PAGES["en"].items() if name in DISPLAYED for tex in formulas]
    sides = [other for tex in displayed for line in latex.lines(tex) for other in line.sides if other.strip()]
    return [other for other in sides if letters(other) == letters(side)]


WORDS_OR_SUMS = re.compile(r"\\leftarrow|\\sum|\\text\{[^{}]*[^\w{}]|[\u4e00-\u9fff]")
INLINE = re.compile(r"(?<![\\$])\$([^$]+)\$")


def looked_up(language: str) -> dict[str, list[str]]:
    """Sides of formulas with more letters than one in the tables for looking up, by page and letters; but for updates
    and what ends beside a word."""
    found: dict[str, list[str]] = {}
    for path in sorted((BOOK.docs / language).glob("*.md")):
        _, _, text = path.read_text(encoding="utf-8").partition("{#look-up}\n")
        rows = [line for line in re.split(r"^## ", text, flags=re.MULTILINE)[0].splitlines() if line.startswith("|")]
        for tex in INLINE.findall("\n".join(rows).replace("{,}", "")):
            with suppress(ValueError):
                for line in latex.lines(tex):
                    sides = [side for side in line.sides if side.strip() and not WORDS_OR_SUMS.search(tex)]
                    for side in [side for side in sides if len(letters(side)) > 1]:
                        found.setdefault(f"{path.name} {' '.join(sorted(letters(side)))}", []).append(side)
    return found


def says(side: str, said: Said) -> bool:
    for seed in range(3):
        values = Drawn(seed)
        wanted = said(values)
        if latex.value(side, values) != pytest.approx(wanted, rel=1e-9):
            return False
    return True


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_looked_up_is_what_a_chapter_displays_or_what_is_counted(language: str) -> None:
    found = looked_up(language)
    assert {*LOOKED_UP} <= {*found}
    for name, sides in found.items():
        said = [*LOOKED_UP.get(name, [])]
        for side in sides:
            shown = [partial(latex.value, other) for other in same_letters(side)]
            if not any(says(side, each) for each in shown):
                assert said and says(side, said.pop(0)), f"docs/{language}/{name}: {side}"
        assert not said, f"docs/{language}/{name}: {len(said)} more are said"


def test_what_is_said_of_a_formula_is_on_a_page() -> None:
    said = {name: len(formulas) for name, formulas in DISPLAYED.items()} | {"gradients.md#two-products": 1}
    assert said == {name: len(formulas) for name, formulas in PAGES["en"].items()}
    assert set(ROWS) <= {formula.name for formula in FORMULAS}


def test_a_gradient_is_summed_over_the_index_that_it_lacks() -> None:
    """The three sums of a matmul and its backward pass, beside autograd's."""
    x, w, dy = (torch.randn(sizes, dtype=torch.float64, requires_grad=True) for sizes in ((4, 3), (3, 5), (4, 5)))
    (y := x @ w).backward(dy)
    tensors: dict[str, Any] = {"Y": y, "X": x, "W": w, "dY": dy, "dW": w.grad, "dX": x.grad}
    for language in ("en", "zh"):
        (tex,) = PAGES[language]["gradients.md#two-products"]
        tex = re.sub(r"\\mathrm\{d\}|\\mathsf|\s|\\,", lambda match: "d" if "{" in match[0] else "", tex)
        sums = re.findall(r"(\w+)_\{(\w+)\}=\\sum_(\w)(\w+)_\{(\w+)\}(\w+)_\{(\w+)\}", tex)
        products = re.findall(r"=\((\w+)(\^\{T\})?(\w+)(\^\{T\})?\)_\{(\w+)\}", tex)
        assert [each[0] for each in sums] == ["Y", "dW", "dX"] and len(products) == 2
        for left, indices, index, one, its, other, others in sums:
            assert index in its and index in others and index not in indices
            found = torch.einsum(f"{its},{others}->{indices}", tensors[one], tensors[other])
            assert torch.allclose(found, tensors[left])
        for (one, turned, other, others, indices), (left, its, *_) in zip(products, sums[1:], strict=True):
            product = (tensors[one].T if turned else tensors[one]) @ (tensors[other].T if others else tensors[other])
            assert torch.allclose(product, tensors[left]) and indices == its
