"""The shape of a decoder and its parameters; shapes that people train, by name or by their config.json."""

# --8<-- [start:shape]
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder-only transformer, from which all counts follow."""

    layers: int  # L
    d_model: int  # d
    heads: int  # H, of queries
    kv_heads: int  # G, of keys and values
    head_dim: int  # Q
    d_ff: int  # f
    vocab: int  # V
    positions: int = 0  # learned position embeddings; 0: positions are rotated in, without parameters
    tied: bool = False  # the head is the embedding's matrix
    gated: bool = True  # three matrices in the MLP (SwiGLU) instead of two
    biases: bool = False  # of all linear layers but head and router
    norm_shift: bool = False  # LayerNorm's second vector; RMSNorm has none
    experts: int = 1  # MLPs a layer
    active_experts: int = 1  # of these, how many a token goes through
    qkv_biases: bool = False  # of queries, keys and values alone (Qwen 2)
    head_norms: bool = False  # an RMSNorm of each head's queries and keys (Qwen 3)


# --8<-- [end:shape]


# --8<-- [start:parameters]
def parameters(shape: Decoder, active: bool = False) -> dict[str, int]:
    """Parameters by component; with `active`, those that one token passes through."""
    d, f, L, V = shape.d_model, shape.d_ff, shape.layers, shape.vocab
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    bias, norm, matrices = int(shape.biases), d * (1 + shape.norm_shift), 2 + shape.gated
    expert = matrices * d * f + bias * ((matrices - 1) * f + d)
    return {
        "embedding": V * d,
        "positions": shape.positions * d,
        "qkv": L * (d + max(bias, shape.qkv_biases)) * (wide + 2 * narrow),
        "out": L * (wide + bias) * d,
        "mlp": L * expert * (shape.active_experts if active else shape.experts),
        "router": L * d * shape.experts if shape.experts > 1 else 0,
        "norms": L * (2 * norm + 2 * shape.head_dim * shape.head_norms) + norm,
        "head": 0 if shape.tied else V * d,
    }


# --8<-- [end:parameters]


# --8<-- [start:matmuls]
class Matmul(NamedTuple):
    """One of a layer."""

    part: str  # of forward_flops()
    inputs: int
    outputs: int
    biased: bool


def matmuls(shape: Decoder) -> list[Matmul]:
    """Those of a dense layer with its weights, in their order; a GPT-2 makes queries, keys and values in one."""
    d, f, wide, narrow = shape.d_model, shape.d_ff, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = (wide + 2 * narrow,) if shape.positions else (wide, narrow, narrow)
    qkv = [Matmul("qkv", d, outputs, shape.biases or shape.qkv_biases) for outputs in sizes]
    ups = [Matmul("mlp", d, f, shape.biases) for _ in range(2 if shape.gated else 1)]
    return [*qkv, Matmul("out", wide, d, shape.biases), *ups, Matmul("mlp", f, d, shape.biases)]


def tensors(shape: Decoder, composed: bool = False) -> list[tuple[int, ...]]:
    """Sizes of a dense model's parameters in their order, which is that of this book's modules, or of transformers'.

    A GPT-2's matrices are turned round in transformers; nothing here asks which way.
    """
    d, last = shape.d_model, [(shape.vocab, shape.d_model)]
    norm: list[tuple[int, ...]] = [(d,)] * (1 + shape.norm_shift)
    matrices: dict[str, list[tuple[int, ...]]] = {"qkv": [], "out": [], "mlp": []}
    for each in matmuls(shape):
        matrices[each.part] += [(each.outputs, each.inputs)] + [(each.outputs,)] * each.biased
    heads = [(shape.head_dim,)] * (2 * shape.head_norms)
    attention, mlp = [*matrices["qkv"], *matrices["out"], *heads], matrices["mlp"]
    if not composed:
        layer = [*norm, *norm, *attention, *mlp]
    else:
        layer = [*norm, *attention, *norm, *mlp] if shape.norm_shift else [*attention, *mlp, *norm, *norm]
    positions = [(shape.positions, d)] if shape.positions else []
    return [*last, *positions, *layer * shape.layers, *norm, *([] if shape.tied else last)]


def repeated(shape: Decoder) -> list[Matmul]:
    """Those that checkpointing per operation makes again, as torchtitan's SelectiveAC does: every second mm.

    It keeps the others' results and attention's, and all of an addmm, which a linear layer with a bias is.
    """
    without = [each for each in matmuls(shape) if not each.biased]
    return [each for number, each in enumerate(without) if number % 2 == 1]


def saves_last(shape: Decoder) -> bool:
    """Whether it keeps the result of a layer's last matmul, which no backward pass asks for."""
    return shape.biases or len([each for each in matmuls(shape) if not each.biased]) % 2 == 1


# --8<-- [end:matmuls]


# --8<-- [start:shapes]
def gpt2(d_model: int, layers: int, heads: int) -> Decoder:
    return Decoder(
        layers=layers,
        d_model=d_model,
        heads=heads,
        kv_heads=heads,
        head_dim=d_model // heads,
        d_ff=4 * d_model,
        vocab=50_257,
        positions=1_024,
        tied=True,
        gated=False,
        biases=True,
        norm_shift=True,
    )


def llama(d_model: int, layers: int, heads: int, d_ff: int, head_dim: int = 128, tied: bool = False) -> Decoder:
    return Decoder(
        layers=layers,
        d_model=d_model,
        heads=heads,
        kv_heads=8,
        head_dim=head_dim,
        d_ff=d_ff,
        vocab=128_256,
        tied=tied,
    )


GPT2_SMALL = gpt2(768, 12, 12)
GPT2_MEDIUM = gpt2(1_024, 24, 16)
GPT2_LARGE = gpt2(1_280, 36, 20)
GPT2_XL = gpt2(1_600, 48, 25)
LLAMA_3_8B = llama(4_096, 32, 32, 14_336)
LLAMA_3_70B = llama(8_192, 80, 64, 28_672)
LLAMA_3_1_405B = llama(16_384, 126, 128, 53_248)
LLAMA_3_2_1B = llama(2_048, 16, 32, 8_192, head_dim=64, tied=True)
MISTRAL_7B = replace(llama(4_096, 32, 32, 14_336), vocab=32_000)
MIXTRAL_8X7B = replace(MISTRAL_7B, experts=8, active_experts=2)

SHAPES = {
    "gpt2": GPT2_SMALL,
    "gpt2-medium": GPT2_MEDIUM,
    "gpt2-large": GPT2_LARGE,
    "gpt2-xl": GPT2_XL,
    "llama-3-8b": LLAMA_3_8B,
    "llama-3-70b": LLAMA_3_70B,
    "llama-3.1-405b": LLAMA_3_1_405B,
    "llama-3.2-1b": LLAMA_3_2_1B,
    "mistral-7b": MISTRAL_7B,
    "mixtral-8x7b": MIXTRAL_8X7B,
}
# --8<-- [end:shapes]


# --8<-- [start:names]
ALIKE = {  # models of the same shape, by their later names
    "llama-3.1-8b": "llama-3-8b",
    "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b",
    "deepseek-r1": "deepseek-v3",
}
VARIANTS: tuple[str, ...] = ("-instruct", "-thinking", "-base", "-chat", "-hf", "-it", "-pt", "-2507", "-v0.1", "-v0.2")


def model_name(written: str) -> str:
    """A model as it is called here, from how people call it, or from its repository on Hugging Face or the address."""
    path = written.strip().lower().replace(" ", "-").split("huggingface.co/")[-1].split("/")
    name = path[1] if len(path) > 1 else path[0]
    name = name.replace("meta-llama-", "llama-").replace("gpt-2", "gpt2").replace("-instruct-", "-")
    while ending := next((variant for variant in VARIANTS if name.endswith(variant)), ""):
        name = name[: len(name) - len(ending)]
    return ALIKE.get(name, name)


# --8<-- [end:names]


# --8<-- [start:config]
KNOWN = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral")
UNCOUNTED = {  # keys under which a decoder is another one than Decoder describes, unless they hold one of these values
    "add_cross_attention": (False,),
    "kv_lora_rank": (),
    "n_routed_experts": (),
    "num_experts": (),
    "partial_rotary_factor": (1, 1.0),
    "quantization_config": (),
}


def window(config: Mapping[str, Any]) -> int | None:
    """Tokens that a token attends to, where these are not all before it."""
    used = config.get("use_sliding_window", config.get("model_type") in ("mistral", "mixtral"))
    return (config.get("sliding_window") or None) if used else None


def short(text: str) -> str:
    """What somebody wrote, as a message repeats it: its beginning, and the mark that closes it."""
    return text if len(text) <= 80 else f"{text[:60]}…{text[-1:]}"


def quoted(value: Any) -> str:
    """A value as a message repeats it."""
    return short(repr(value))


SIZES = {  # fields of Decoder, and under which keys a configuration has them
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "d_model": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_kv_heads"),
    "head_dim": ("head_dim", "kv_channels", "v_head_dim"),
    "d_ff": (
        *("moe_intermediate_size", "moe_inter_dim", "intermediate_size", "inter_dim", "ffn_hidden_size"),
        *("ffn_dim", "n_inner"),
    ),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active_experts": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "n_activated_experts"),
}
UNGATED = ("bloom", "falcon", "gpt_neo", "gpt_neox", "gptj", "opt", "phi", "starcoder2")  # two matrices with biases
UNSAID = (  # keys of what no field says: other attention, other layers between, other towers, other formats
    "kv_lora_rank", "sliding_window", "layer_types", "attention_bias", "add_cross_attention",
    "full_attention_interval", "linear_num_key_heads", "attn_layer_period", "hybrid_override_pattern",
    "state_size", "mamba_d_state", "n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size",
    "intermediate_size_mlp", "attn_res_block_size", "linear_attn_config",
    "first_k_dense_replace", "n_dense_layers", "index_topk", "mlp_only_layers", "moe_layer_freq",
    "interleave_moe_layer_step", "num_nextn_predict_layers", "num_kv_shared_layers", "hidden_size_per_layer_input",
    "ssm_cfg", "vision_config", "audio_config", "quantization_config",
)  # fmt: skip
EVERY_LAYER = ("moe_layer_freq", "interleave_moe_layer_step")  # at 1 these say nothing


def estimate(config: Mapping[str, Any]) -> str:
    """What to ask instead of a configuration that is not read here: its sizes, and what they leave out."""
    of = config.get("text_config") or config
    if not isinstance(of, Mapping):
        of = config
    numbers = {key: size for key, size in of.items() if isinstance(size, int) and not isinstance(size, bool) and size}
    sizes = {field: next((numbers[key] for key in keys if key in numbers), None) for field, keys in SIZES.items()}
    if not sizes["kv_heads"]:
        sizes["kv_heads"] = 1 if of.get("multi_query") else sizes["heads"]
    if of.get("model_type") in UNGATED and sizes["d_model"] and not sizes["d_ff"]:  # what they take if none is said
        sizes["d_ff"] = 4 * sizes["d_model"]
    if sizes["d_model"] and sizes["heads"] and not sizes["head_dim"]:
        sizes["head_dim"] = sizes["d_model"] // sizes["heads"]
    if not sizes["active_experts"]:
        sizes["experts"] = None
    if sizes["d_model"] and sizes["d_ff"] and "routed_expert_hidden_size" in numbers:  # as many parameters
        sizes["d_ff"] = sizes["d_ff"] * numbers["routed_expert_hidden_size"] // sizes["d_model"]
    written = [f"{field}={size}" for field, size in sizes.items() if size]
    if of.get("tie_word_embeddings", config.get("tie_word_embeddings")):
        written.append("tied=yes")
    if of.get("model_type") in UNGATED:
        written += ["gated=no", "biases=yes", "norm_shift=yes"]
    lacking = [field for field in ("layers", "d_model", "heads", "d_ff", "vocab") if not sizes[field]]
    unsaid = [key for key in UNSAID if of.get(key, config.get(key)) not in (None, False, 0, [], {})]
    unsaid = [key for key in unsaid if key not in EVERY_LAYER or of.get(key, config.get(key)) != 1]
    if "tie_word_embeddings" not in of and "tie_word_embeddings" not in config:
        unsaid.append("tie_word_embeddings")
    left_out = f"; left out: {', '.join(unsaid)}" if unsaid else ""
    left_out += f"; to be added: {', '.join(lacking)}" if lacking else ""
    return f"estimate it by --shape '{' '.join(written)}'{left_out}"


def from_config(config: Mapping[str, Any], context: int) -> Decoder:
    """The shape that a Hugging Face configuration describes (config.json of a decoder), to be run at so many tokens.

    Raises ValueError, by name, for what is missing and what Decoder cannot say.
    """
    kind = config.get("model_type")
    if kind not in KNOWN:
        raise ValueError(f"--config: model_type {quoted(kind)} is not known; {estimate(config)}")
    for key, harmless in UNCOUNTED.items():
        if config.get(key) not in (None, *harmless):
            raise ValueError(f"--config: {key} = {quoted(config[key])} is not counted here; {estimate(config)}")

    def size(key: str, default: int | None = None) -> int:
        value = config.get(key) if config.get(key) is not None else default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**9:
            raise ValueError(f"--config: {key} = {quoted(value)}; a {kind} needs a whole number above 0 there")
        return value

    def flag(key: str, default: bool) -> bool:
        value = config.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"--config: {key} = {quoted(value)}; write true or false")
        return value

    d, heads = (
        (size("n_embd"), size("n_head")) if kind == "gpt2" else (size("hidden_size"), size("num_attention_heads"))
    )
    if d % heads and config.get("head_dim") is None:
        raise ValueError(f"--config: {heads} heads do not share {d} features evenly; mend one of the two")
    if kind == "gpt2":
        shape = replace(gpt2(d, size("n_layer"), heads), vocab=size("vocab_size"), positions=size("n_positions"))
        return replace(shape, d_ff=size("n_inner", 4 * d), tied=flag("tie_word_embeddings", True))

    if window(config) and context > (most := size("sliding_window")):
        raise ValueError(f"--config: sliding_window = {most} is not counted here; ask for --context {most} or less")
    biased = flag("attention_bias", False)
    if biased and not (kind == "llama" and flag("mlp_bias", False)):
        raise ValueError("--config: attention_bias = true is counted here for a llama with mlp_bias = true alone")
    if flag("mlp_bias", False) and not biased:
        raise ValueError("--config: mlp_bias = true is counted here with attention_bias = true alone")
    experts = kind == "mixtral"
    return Decoder(
        layers=size("num_hidden_layers"),
        d_model=d,
        heads=heads,
        kv_heads=size("num_key_value_heads", heads if kind == "llama" else None),
        head_dim=size("head_dim", None if kind == "qwen3" else d // heads),
        d_ff=size("intermediate_size"),
        vocab=size("vocab_size"),
        tied=flag("tie_word_embeddings", False),
        biases=biased,
        qkv_biases=kind == "qwen2",
        head_norms=kind == "qwen3",
        experts=size("num_local_experts") if experts else 1,
        active_experts=size("num_experts_per_tok") if experts else 1,
    )


# --8<-- [end:config]
