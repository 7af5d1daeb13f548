"""The shape of a decoder and its parameters; shapes that people train, by name or by their config.json."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder-only transformer, from which all counts follow.

    GPT2_SMALL, LLAMA_3_8B and others below are shapes that people train.

    >>> shape = Decoder(layers=2, d_model=64, heads=4, kv_heads=2, head_dim=16, d_ff=256, vocab=1_000)
    >>> sum(parameters(shape).values())
    251200
    """

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


def parameters(shape: Decoder, active: bool = False) -> dict[str, int]:
    """Parameters by component; with `active`, those that one token passes through, of experts a few.

    >>> sum(parameters(GPT2_SMALL).values())
    124439808
    >>> sum(parameters(MIXTRAL_8X7B).values()), sum(parameters(MIXTRAL_8X7B, active=True).values())
    (46702792704, 12879925248)
    """
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


class Matmul(NamedTuple):
    """One of a layer."""

    part: str  # of forward_flops()
    inputs: int
    outputs: int
    biased: bool


def matmuls(shape: Decoder) -> list[Matmul]:
    """The matmuls of a dense layer with its weights, in their order; a GPT-2 makes queries, keys and values in one.

    >>> [(each.inputs, each.outputs) for each in matmuls(GPT2_SMALL)]
    [(768, 2304), (768, 768), (768, 3072), (3072, 768)]
    """
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


def recomputed_matmuls(shape: Decoder) -> list[Matmul]:
    """Those that checkpointing per operation makes again, as torchtitan's SelectiveAC does: every second mm.

    It keeps the others' results and attention's, and all of an addmm, which a linear layer with a bias is.
    """
    without = [each for each in matmuls(shape) if not each.biased]
    return [each for number, each in enumerate(without) if number % 2 == 1]


def saves_last(shape: Decoder) -> bool:
    """Whether it keeps the result of a layer's last matmul, which no backward pass asks for."""
    return shape.biases or len([each for each in matmuls(shape) if not each.biased]) % 2 == 1


def gpt2(d_model: int, layers: int, heads: int) -> Decoder:
    """The shape of a GPT-2: tied embeddings, learned positions, biases, an MLP of 4d, 50,257 tokens.

    >>> sum(parameters(gpt2(d_model=1_600, layers=48, heads=25)).values())  # GPT-2 XL
    1557611200
    """
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
    """The shape of a Llama 3: 8 key-value heads, a gated MLP, RoPE, 128,256 tokens.

    >>> sum(parameters(llama(8_192, layers=80, heads=64, d_ff=28_672)).values())  # Llama 3 70B
    70553706496
    """
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


KNOWN = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral")
# These keys of a config.json change the architecture: Decoder describes it only if they hold one of these values.
UNSUPPORTED_UNLESS = {
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


def abbreviated(text: str) -> str:
    """What somebody wrote, as a message repeats it: its beginning, and the mark that closes it."""
    return text if len(text) <= 80 else f"{text[:60]}…{text[-1:]}"


def quoted(value: Any) -> str:
    """A value as a message repeats it."""
    return abbreviated(repr(value))


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
MOST_LAYERS = 10_000  # that a configuration may say: more is a slip, or no decoder's


SILENT: tuple[str, ...] = (  # keys that change neither a shape nor a byte of a decoder, whatever its kind
    "architectures", "attention_multiplier", "auto_map", "aux_loss_alpha", "beta_fast", "beta_slow",
    "chunk_size_feed_forward", "dtype", "embedding_multiplier", "final_logit_softcapping", "attn_logit_softcapping",
    "finetuning_task", "hidden_act", "hidden_activation", "activation_function", "id2label", "initializer_range",
    "initializer_factor", "is_decoder", "is_encoder_decoder", "keys_to_ignore_at_inference", "label2id",
    "logits_scaling", "logit_scale", "max_position_embeddings", "max_sequence_length", "max_seq_len", "model_type",
    "n_group", "name_or_path", "norm_topk_prob", "num_logits_to_keep", "original_max_position_embeddings",
    "output_attentions", "output_hidden_states", "output_router_logits", "pretraining_tp", "problem_type",
    "pruned_heads", "query_pre_attn_scalar", "residual_multiplier", "return_dict", "rope_interleave",
    "rope_parameters", "rope_ratio", "rope_scaling", "rope_theta", "routed_scaling_factor", "scale_emb",
    "scoring_func", "seq_aux", "seq_length", "task_specific_params", "tie_encoder_decoder", "time_step_floor",
    "time_step_limit", "time_step_max", "time_step_min", "tokenizer_class", "topk_group", "topk_method", "torch_dtype",
    "torchscript", "transformers_version", "unsloth_version", "use_cache", "use_return_dict", "_name_or_path",
    "_attn_implementation_autoset", "attn_implementation", "_attn_implementation", "use_flash_attn",
)  # fmt: skip
ENDINGS = ("token_id", "token_ids", "token_index", "dropout", "_prob", "pdrop", "_eps", "_epsilon", "_std", "_coef")
REASONS = {  # what a key is about that is not understood, by words in its name: the first that has one
    "what reads images or sound": ("vision", "image", "audio", "video", "speech", "mel_"),
    "how weights are stored": ("quant",),
    "layers that predict further tokens": ("mtp", "nextn", "predict"),
    "layers with a state or a convolution": (
        *("mamba", "ssm", "conv", "state", "time_step", "linear_", "rwkv", "lru", "delta", "kda", "expand"),
    ),
    "experts, which are most of the weights": (
        "expert",
        "moe",
        "router",
        "topk",
        "top_k",
        "sparse",
        "n_dense",
        "k_dense",
    ),
    "attention, and the keys and values that are kept": (
        *("attn", "attention", "head", "kv", "lora", "window", "index", "rope", "qk", "sink", "cross", "rotary"),
    ),
    "the MLP": ("mlp", "ff", "inner", "intermediate", "gate", "act"),
    "which layers there are": ("layer", "block", "depth", "pattern"),
    "embedding and head": ("vocab", "embed", "tie_", "position"),
}
OTHERS, OF_KIND = (
    "what is not known",
    "the kind, which tells whether the MLP is gated, and which biases and norms there are",
)
MOST_NAMED = 30  # keys


def reason(key: str) -> str:
    """What a key is about, by its name."""
    return next((told for told, marks in REASONS.items() if any(mark in key for mark in marks)), OTHERS)


def says_nothing(key: str, value: Any) -> bool:
    """Whether a key is one of those that change neither a shape nor a byte, or its value that of what is not there."""
    return key in SILENT or any(key.endswith(ending) for ending in ENDINGS) or value in (None, False, 0, "", [], {})


def named(keys: Iterable[str]) -> str:
    """Keys by what they are about, as a message has them."""
    groups: dict[str, list[str]] = {}
    for number, key in enumerate(keys):
        if number < MOST_NAMED:
            written = abbreviated(quoted(key)[1:-1])
            groups[reason(key)] = [*groups.get(reason(key), []), written]
    return " | ".join(f"{told}: {', '.join(names)}" for told, names in groups.items())


def guessed(config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A --shape of the sizes that a configuration has under names that many use, and the keys that it leaves out.

    It is no answer: such a shape was 3 to 40 times off where experts, states or convolutions are among what it leaves
    out. It is empty where a size is missing.
    """
    of = config.get("text_config") or config
    if not isinstance(of, Mapping):
        of = config
    numbers = {key: size for key, size in of.items() if isinstance(size, int) and not isinstance(size, bool) and size}
    sizes = {field: next((numbers[key] for key in keys if key in numbers), None) for field, keys in SIZES.items()}
    if not sizes["active_experts"]:
        sizes["experts"] = None
    read = [key for field, keys in SIZES.items() for key in keys if sizes[field] and numbers.get(key) == sizes[field]]
    if not sizes["kv_heads"]:
        sizes["kv_heads"] = 1 if of.get("multi_query") else sizes["heads"]
    if of.get("model_type") in UNGATED and sizes["d_model"] and not sizes["d_ff"]:  # what they take if none is said
        sizes["d_ff"] = 4 * sizes["d_model"]
    if sizes["d_model"] and sizes["heads"] and not sizes["head_dim"]:
        sizes["head_dim"] = sizes["d_model"] // sizes["heads"]
    if sizes["d_model"] and sizes["d_ff"] and "routed_expert_hidden_size" in numbers:  # as many parameters
        sizes["d_ff"] = sizes["d_ff"] * numbers["routed_expert_hidden_size"] // sizes["d_model"]
    written = [f"{field}={size}" for field, size in sizes.items() if size]
    if of.get("tie_word_embeddings", config.get("tie_word_embeddings")):
        written.append("tied=yes")
    if of.get("model_type") in UNGATED:
        written += ["gated=no", "biases=yes", "norm_shift=yes"]
    if of.get("add_qkv_bias") is True or of.get("qkv_bias") is True:
        written.append("qkv_biases=yes")
    is_whole = all(sizes[field] for field in ("layers", "d_model", "heads", "d_ff", "vocab"))
    read += ["tie_word_embeddings", "multi_query", "text_config", "add_qkv_bias", "qkv_bias"]
    beside = [key for key in config if key not in of]
    lacking = [key for key in [*of, *beside] if key not in read and not says_nothing(key, of.get(key, config.get(key)))]
    return " ".join(written) if is_whole else "", lacking


def estimate(config: Mapping[str, Any], unread: list[str] | None = None) -> str:
    """What is not understood of a configuration, and a guess to start from, if all sizes are there.

    `unread`: of a kind that is read, the keys that are not.
    """
    shape, lacking = guessed(config)
    told = f"not understood: {named(unread) if unread else named_of_kind(lacking)}"
    beside = [key for key in lacking if key not in (unread or lacking)]
    without = (
        f"these and {', '.join(abbreviated(quoted(key)[1:-1]) for key in beside[:MOST_NAMED])}" if beside else "these"
    )
    return f"{told}; a guess, without {without}: --shape '{shape}'" if shape else told


def named_of_kind(keys: list[str]) -> str:
    """The same of a kind that is not known, of which these are only what its configuration says."""
    return " | ".join([f"{OF_KIND}: model_type", *([named(keys)] if keys else [])])


ENCODERS = (  # kinds by the beginning of their names, whose configurations do not say so
    *("albert", "bert", "big_bird", "camembert", "clip", "convnext", "deberta", "dinov", "distilbert", "electra"),
    *("ernie_m", "esm", "flaubert", "hubert", "longformer", "modernbert", "mpnet", "nomic_bert", "roberta", "siglip"),
    *("swin", "vit", "wav2vec2", "xlm-roberta", "xlnet"),
)


def other_than_decoder(config: Mapping[str, Any]) -> str:
    """What a configuration describes, if that is an encoder, with or without a decoder; else nothing."""
    kind, made = str(config.get("model_type")), config.get("architectures")
    if config.get("is_encoder_decoder") is True or ("encoder_layers" in config and "decoder_layers" in config):
        return "an encoder and a decoder"
    masked = isinstance(made, list) and any("ForMaskedLM" in str(name) for name in made)
    if masked or "type_vocab_size" in config or any(kind.startswith(name) for name in ENCODERS):
        return "" if config.get("is_decoder") is True else "an encoder"
    return ""


def unknown(config: Mapping[str, Any]) -> str:
    """Why a configuration of such a kind has no answer."""
    kind = quoted(config.get("model_type"))
    if other := other_than_decoder(config):
        return (
            f"--config: model_type {kind} is {other}; decoders alone are planned: count its step by flops-bytes count"
        )
    return f"--config: model_type {kind} is not known; {estimate(config)}"


def too_deep(layers: int) -> str:
    return f"--config: it says {layers} layers, and {MOST_LAYERS} are the most that are read; mend it"


def decoder_from_config(config: Mapping[str, Any], context: int) -> Decoder:
    """The shape that a Hugging Face configuration describes (config.json of a decoder), to be run at so many tokens.

    Raises ValueError, by name, for what is missing and what Decoder cannot say.
    """
    kind = config.get("model_type")
    if kind not in KNOWN or other_than_decoder(config):
        raise ValueError(unknown(config))
    for key, harmless in UNSUPPORTED_UNLESS.items():
        if config.get(key) not in (None, *harmless):
            raise ValueError(f"--config: {key} = {quoted(config[key])} is not counted here; {estimate(config, [key])}")

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

    if (
        isinstance(depth := config.get("n_layer" if kind == "gpt2" else "num_hidden_layers"), int)
        and depth > MOST_LAYERS
    ):
        raise ValueError(too_deep(depth))
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
