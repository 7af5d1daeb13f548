"""FLOPs of a decoder's passes, of a training, of the papers' formulas. Numbers in, numbers out, nothing but Python.

Symbols: b sequences of T tokens; L layers of width d; H query heads and G key-value heads of Q features; an MLP of
inner width f; V tokens in the vocabulary. A FLOP is an addition or a multiplication; only matrix products are counted.
"""

from flops_bytes.model.shapes import Decoder, recomputed_matmuls, saves_last

ATTENTION = ("scores", "values")  # the products without parameters


def forward_flops(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    causal: bool = False,
) -> dict[str, int]:
    """FLOPs of a forward pass over `batch` sequences of `seq_len` tokens, by component.

    A product (m × n)(n × p) takes 2mnp. Attention over all T² pairs of tokens; with `causal`, over T(T + 1)/2.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> forward_flops(GPT2_SMALL, seq_len=1_024)["head"]
    79047426048
    >>> sum(forward_flops(GPT2_SMALL, seq_len=1_024).values())
    291648307200
    """
    d, L, wide = shape.d_model, shape.layers, shape.heads * shape.head_dim
    tokens = batch * seq_len
    pairs = batch * (seq_len * (seq_len + 1) // 2 if causal else seq_len**2)
    matrices = (3 if shape.gated else 2) * shape.active_experts
    return {
        "qkv": 2 * tokens * L * d * (wide + 2 * shape.kv_heads * shape.head_dim),
        "scores": 2 * pairs * L * wide,
        "values": 2 * pairs * L * wide,
        "out": 2 * tokens * L * wide * d,
        "mlp": 2 * tokens * L * matrices * d * shape.d_ff,
        "router": 2 * tokens * L * d * shape.experts if shape.experts > 1 else 0,
        "head": 2 * tokens * d * shape.vocab,
    }


def backward_flops(
    shape: Decoder, seq_len: int, batch: int = 1, causal: bool = False, fused: bool = True
) -> dict[str, int]:
    """FLOPs of one backward pass by component: each product needs two, for the gradients of its two factors.

    Fused attention makes its scores again (Dao et al. 2022): three products stand there, two with the values.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> sum(backward_flops(GPT2_SMALL, seq_len=1_024, fused=False).values())  # twice the forward pass
    583296614400
    """
    forward = forward_flops(shape, seq_len, batch, causal)
    return {part: (3 if fused and part == "scores" else 2) * flops for part, flops in forward.items()}


def recompute_flops(
    shape: Decoder,
    seq_len: int,
    batch: int = 1,
    causal: bool = False,
    checkpointing: str = "full",
    fused: bool = True,
    early_stop: bool = False,
    every: int = 1,
) -> dict[str, int]:
    """FLOPs that a step does again to keep fewer activations.

    "full": all layers, or `every` second, or third; "selective": attention's products alone (Korthikanti et al. 2022);
    "per-op": see recomputed_matmuls(); "none". With `early_stop`, as PyTorch has it unless it is told
    set_checkpoint_early_stop(False), the matmul at the end is not made again, whose result nobody needs.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> sum(recompute_flops(GPT2_SMALL, seq_len=1_024).values())  # a forward pass without its head
    212600881152
    """
    forward = forward_flops(shape, seq_len, batch, causal)
    again = dict.fromkeys(forward, 0)
    last = (
        2 * seq_len * batch * shape.layers * shape.active_experts * shape.d_ff * shape.d_model
    )  # the matmul at the end
    if checkpointing == "selective":
        again |= {part: forward[part] for part in ATTENTION if fused or part == "scores" or not early_stop}
    if checkpointing == "full":
        whole = {part: forward[part] for part in ("qkv", *ATTENTION, "out", "mlp", "router")}
        spared = {"mlp": forward["mlp"] - last} if early_stop else {}
        times = -(-shape.layers // every)
        again |= {part: flops // shape.layers * times for part, flops in (whole | spared).items()}
    if checkpointing == "per-op":
        times = 2 * seq_len * batch * shape.layers
        flops = [(each.part, times * each.inputs * each.outputs) for each in recomputed_matmuls(shape)]
        again = {part: sum(of for other, of in flops if other == part) for part in forward}
        if early_stop and not saves_last(shape):
            again["mlp"] -= last
    return again


def six_n_d_flops(parameters: float, tokens: float) -> float:
    """FLOPs of training without attention's: 6ND (Kaplan et al. 2020, whose N leaves the embeddings out).

    >>> six_n_d_flops(parameters=8_000_000_000, tokens=15_000_000_000_000)
    720000000000000000000000
    """
    return 6 * parameters * tokens


def palm_flops(shape: Decoder, parameters: float, tokens: float, seq_len: int) -> float:
    """FLOPs of training: 6N + 12LHQT a token, over all pairs (Chowdhery et al. 2022, appendix B).

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> palm_flops(GPT2_SMALL, parameters=124_439_808, tokens=1, seq_len=1_024)
    859885056
    """
    return (6 * parameters + 12 * shape.layers * shape.heads * shape.head_dim * seq_len) * tokens


def megatron_flops(shape: Decoder, tokens: float, seq_len: int) -> float:
    """FLOPs of training GPT-3's shape (G = H, HQ = d, f = 4d): 72BsLh²(1 + s/6h + V/12Lh) (Korthikanti et al. 2022).

    `tokens` are Bs, those of a step or of a whole training.

    >>> from flops_bytes.model.shapes import gpt2
    >>> round(megatron_flops(gpt2(12_288, layers=96, heads=96), tokens=1, seq_len=2_048))
    1076373430272
    """
    L, h = shape.layers, shape.d_model
    return 72 * tokens * L * h**2 * (1 + seq_len / (6 * h) + shape.vocab / (12 * L * h))


def training_seconds(flops: float, gpus: int, peak_flop_per_second: float, mfu: float) -> float:
    """Seconds for so many FLOPs on so many GPUs, each at the share `mfu` of its peak.

    >>> training_seconds(4e21, gpus=1_000, peak_flop_per_second=1e15, mfu=0.4)
    10000.0
    """
    return flops / (gpus * peak_flop_per_second * mfu)
