"""A config.json of Hugging Face as a stack of layers: which kinds are read, and which key says what.

A family says what its layers are made of; what a configuration leaves out is what transformers takes. A key that is not
read and whose name speaks of a shape is refused by its name, so that a newer kind is not taken for an older one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from flops_bytes.model.shapes import MOST_LAYERS, estimate, other_than_decoder, quoted, too_deep, unknown
from flops_bytes.model.stack import (
    Attention,
    Dense,
    Experts,
    GatedDelta,
    LatentAttention,
    Layer,
    Mixer,
    Stack,
    layer_counts,
)

SHAPES_WORDS = (  # in the name of a key that may change what is counted
    "expert", "head", "layer", "dim", "size", "rank", "lora", "window", "linear", "conv", "mamba", "ssm", "mlp", "bias",
    "kv", "index", "moe", "mtp", "nextn", "ffn", "state", "share", "gate", "altup", "per_layer", "residual", "cross",
)  # fmt: skip
HARMLESS = {  # keys with such a word that change nothing of it
    "_sliding_window_pattern", "_num_mtp_layers", "mtp_share_layers", "mtp_loss_scaling_factor",
    "vocab_size_per_layer_input",
    "indexer_rope_interleave", "index_share_for_mtp_iteration", "num_local_experts", "moe_norm_min",
    "moe_router_dtype", "moe_use_aux_free", "activation_situ_linear_beta", "attn_output_gate", "aux_loss_alpha",
    "cache_implementation", "chunk_size_feed_forward",
    "decoder_start_token_id", "ep_size", "fuse_qkv", "head_dim_scale", "image_token_index", "layer_norm_eps",
    "layernorm_epsilon", "layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta",
    "mlp_intermediate_size", "rotary_dim", "shared_moe_mode", "clip_qkv",
    "logits_to_keep", "mamba_ssm_dtype", "max_window_layers", "moe_renormalize",
    "moe_router_activation_func", "moe_router_load_balancing_type", "num_expert_group", "no_rope_layer_interval",
    "no_rope_layers", "output_gate_type", "output_hidden_states", "pretraining_tp", "qk_head_dim", "qk_layernorm",
    "query_pre_attn_scalar", "residual_dropout", "residual_multiplier", "router_aux_loss_coef", "vision_config",
    "sliding_window_pattern", "swiglu_limit", "swiglu_alpha", "use_routing_bias", "use_sliding_window",
    "num_key_value_heads", "mlp_bias", "experts_per_token", "moe_layer_freq", "num_key_value_groups", "use_mtp",
    "initial_context_length", "mtp_transformer_layers", "use_bidirectional_attention", "layer_types", "sliding_window",
    "topk_group", "n_group", "shared_expert_gate", "num_mtp_modules", "mtp_use_dedicated_embeddings",
    "partial_rotary_factor", "head_dim", "use_cache", "moe_token_drop_policy", "mlp_layer_types", "attention_bias",
}  # fmt: skip


class Config:
    """What a configuration says, by key, and which keys were asked for."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.config, self.defaults, self.asked = config, defaults, set[str]()
        self.kind = config.get("model_type")

    def get(self, *keys: str) -> Any:
        """The value of the first of these keys that is there and not null; null if one is there; else the library's."""
        self.asked |= set(keys)
        said = [self.config[key] for key in keys if key in self.config]
        for value in said:
            if isinstance(value, list) and len(value) > MOST_LAYERS:
                raise ValueError(too_deep(len(value)))
        if said:
            return next((value for value in said if value is not None), None)
        return next((self.defaults[key] for key in keys if key in self.defaults), None)

    def size(self, *keys: str) -> int:
        value = self.get(*keys)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**9:
            key = next((key for key in keys if key in self.config), " or ".join(keys))
            needs = f"a {self.kind} needs a whole number above 0 there"
            raise ValueError(f"--config: {key} = {quoted(value)}; {needs}")
        return value

    def optional(self, *keys: str) -> int:
        """A size, or 0 where it is null, 0 or left out."""
        return self.size(*keys) if self.get(*keys) else 0

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise ValueError(f"--config: {key} = {quoted(value)}; write true or false")
        return value

    def listed(self, key: str, length: int) -> list[Any] | None:
        """A list with an entry a layer."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < length:
            raise ValueError(f"--config: {key} = {quoted(value)}; it needs an entry for each of {length} layers")
        return value[:length]

    def unread(self) -> list[str]:
        """Keys that may change the shape and were not asked for."""
        rest = (key for key in self.config if key not in self.asked and key not in HARMLESS)
        said = (key for key in rest if self.config[key] not in (None, False, 0, "", [], {}))
        return [key for key in said if any(word in key for word in SHAPES_WORDS) and not key.endswith("token_id")]


FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
INDEXED, SHARED = (
    "indexed_attention",
    "shared",
)  # to tokens that an indexer chooses, the layer's own or an earlier one's
Types = Callable[[Config, int], list[str]]


def all_full(of: Config, layers: int) -> list[str]:
    return [FULL] * layers


def all_alike(of: Config, layers: int) -> list[str]:
    """A window in all layers, if there is one (Mistral)."""
    return [SLIDING if of.get("sliding_window") else FULL] * layers


def if_used(of: Config, layers: int) -> list[str]:
    """A window in all layers if use_sliding_window says so (Qwen 3 MoE)."""
    return all_alike(of, layers) if of.get("use_sliding_window") else all_full(of, layers)


def upper(of: Config, layers: int) -> list[str]:
    """A window from max_window_layers on, if use_sliding_window says so (Qwen 2 and 3)."""
    used = of.get("use_sliding_window") and of.get("sliding_window")
    first = of.optional("max_window_layers") if used else layers
    return [SLIDING if index >= first else FULL for index in range(layers)]


def alternate(of: Config, layers: int) -> list[str]:
    """A window in every other layer below max_window_layers, if use_sliding_window says so (Qwen 2 MoE)."""
    most = of.optional("max_window_layers") if of.get("use_sliding_window") else 0
    return [SLIDING if index < most and index % 2 == 0 else FULL for index in range(layers)]


def full_attention_every(period: int, other: str, of: Config, layers: int) -> list[str]:
    """Every `period`-th layer attends to all tokens, the layers between are of the `other` kind."""
    return [other if (index + 1) % period else FULL for index in range(layers)]


def gemma(of: Config, layers: int) -> list[str]:
    return full_attention_every(of.size("sliding_window_pattern"), SLIDING, of, layers)


def gemma4(of: Config, layers: int) -> list[str]:
    """The last one sees everything, whatever is listed."""
    return [*full_attention_every(6, SLIDING, of, layers)[:-1], FULL]


def exaone(of: Config, layers: int) -> list[str]:
    """None where there is no window; its makers write LLLG for a period of 4."""
    said = of.get("sliding_window_pattern")
    period = len(said) if isinstance(said, str) and said else of.size("sliding_window_pattern")
    return full_attention_every(period, SLIDING, of, layers) if of.get("sliding_window") else all_full(of, layers)


def above(of: Config, layers: int) -> list[str]:
    """A window from max_window_layers on, if there is one (dots.llm1)."""
    first = of.optional("max_window_layers") if of.get("sliding_window") else layers
    return [SLIDING if index >= first else FULL for index in range(layers)]


def indexed(of: Config, layers: int) -> list[str]:
    """Which layers have an indexer of their own: all of DeepSeek-V3.2, and as GLM-5.2 lists them or says by rule."""
    listed, pattern = of.listed("indexer_types", layers), of.get("index_topk_pattern")
    if listed is None and isinstance(pattern, str) and len(pattern) == layers:  # such as FFSS
        listed = list(pattern)
    listed = listed or of.listed("index_topk_pattern", layers)
    often, offset = of.size("index_topk_freq"), of.optional("index_skip_topk_offset")
    by_rule = ["shared" if max(index - offset + 1, 0) % often else "full" for index in range(layers)]
    return [INDEXED if one in ("full", "F") else SHARED for one in listed or by_rule]


def qwen_next(of: Config, layers: int) -> list[str]:
    return full_attention_every(of.size("full_attention_interval"), LINEAR, of, layers)


def layers_with_rope(of: Config, layers: int) -> list[bool]:
    """Of each layer, whether it knows positions (Llama 4, SmolLM 3)."""
    said = of.listed("no_rope_layers", layers) if of.get("no_rope_layers") else None
    interval = of.size("no_rope_layer_interval")
    return [bool(one) for one in said or [(index + 1) % interval for index in range(layers)]]


def llama4(of: Config, layers: int) -> list[str]:
    return [CHUNKED if one else FULL for one in layers_with_rope(of, layers)]


def smollm3(of: Config, layers: int) -> list[str]:
    windowed = of.get("use_sliding_window") and of.get("sliding_window")
    return [SLIDING if windowed and not one else FULL for one in layers_with_rope(of, layers)]


def kimi_linear(of: Config, layers: int) -> list[str]:
    """As its checkpoint lists layers, from 1 on."""
    said = of.get("linear_attn_config") or {}
    full, linear = said.get("full_attn_layers"), said.get("kda_layers")
    if full is None or linear is None:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(layers)]
    if sorted([*full, *linear]) != list(range(1, layers + 1)):
        raise ValueError(f"--config: linear_attn_config does not list each of {layers} layers once")
    return [FULL if index + 1 in full else LINEAR for index in range(layers)]


def types_of(of: Config, by_rule: Types, layers: int) -> list[str]:
    """The kind of each layer: as listed, else by the family's rule."""
    types = of.listed("layer_types", layers) or by_rule(of, layers)
    for kind in types:
        if kind not in (FULL, SLIDING, CHUNKED, LINEAR):
            raise ValueError(
                f"--config: layer_types has {quoted(kind)}, which is not counted here; "
                + estimate(of.config, ["layer_types"])
            )
    return types


def attention(
    of: Config, kind: str, biases: str = "", out_bias: str = "", norms: str = "", sinks: bool = False, **more: bool
) -> Attention:
    """Softmax attention; by which keys it has biases, and how queries and keys are normed."""
    heads = of.size("num_attention_heads")
    head_dim = of.optional("head_dim")
    if not head_dim:
        if of.size("hidden_size") % heads:
            raise ValueError(
                f"--config: {heads} heads do not share {of.size('hidden_size')} features evenly; mend one of the two"
            )
        head_dim = of.size("hidden_size") // heads
    kv_heads = of.optional("num_key_value_heads") or heads
    if heads % kv_heads:
        uneven = f"{kv_heads} key-value heads do not share {heads} heads evenly"
        raise ValueError(f"--config: {uneven}; give a number that divides {heads}")
    window_key = {FULL: 0, SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}[kind]
    return Attention(
        heads,
        kv_heads,
        head_dim,
        window=of.size(window_key) if isinstance(window_key, str) else 0,
        chunked=kind == CHUNKED,
        biases=of.flag(biases) if biases else False,
        out_bias=of.flag(out_bias) if out_bias else False,
        head_norms=norms == "head" or (norms == "use_qk_norm" and of.flag("use_qk_norm")),
        norms_over_heads=norms == "wide",
        sinks=sinks,
        **more,
    )


def latent(of: Config, kind: str) -> LatentAttention:
    of.get("num_key_value_heads", "head_dim")  # as many as queries; of what is turned
    return LatentAttention(
        heads=of.size("num_attention_heads"),
        q_lora_rank=of.optional("q_lora_rank"),
        kv_lora_rank=of.size("kv_lora_rank"),
        nope_dim=of.size("qk_nope_head_dim"),
        rope_dim=of.size("qk_rope_head_dim"),
        v_head_dim=of.size("v_head_dim"),
        biases=of.flag("attention_bias"),
    )


def indexed_latent(of: Config, kind: str) -> LatentAttention:
    """Latents, of which a token sees those alone that an indexer chooses."""
    one = replace(latent(of, kind), index_topk=of.size("index_topk"))
    own, heads, dim = kind == INDEXED, of.size("index_n_heads"), of.size("index_head_dim")
    return replace(one, index_heads=heads, index_dim=dim) if own else one


def gemma4_attention(of: Config, kind: str) -> Attention:
    """Layers that see everything have heads of their own size, and may make values of keys."""
    one = attention(of, kind, "attention_bias", "attention_bias", "head")
    joint, said = of.flag("attention_k_eq_v"), of.get("per_layer_config")
    layers = list(said.values()) if isinstance(said, Mapping) else []  # as transformers writes it
    own = layers[0] if layers and isinstance(layers[0], Mapping) else {}
    features = own.get("head_dim") or of.size("global_head_dim")
    kv_heads = own.get("num_key_value_heads") or of.optional("num_global_key_value_heads")
    if kind != FULL:
        return one
    return replace(one, head_dim=features, kv_heads=kv_heads if joint and kv_heads else one.kv_heads, k_eq_v=joint)


def gated_delta(of: Config, kind: str) -> Mixer:
    """Three of four layers of Qwen3-Next; the fourth has attention whose result a gate closes."""
    if kind != LINEAR:
        return attention(of, kind, "attention_bias", "attention_bias", "head", gated=True)
    return GatedDelta(
        key_heads=of.size("linear_num_key_heads"),
        value_heads=of.size("linear_num_value_heads"),
        key_dim=of.size("linear_key_head_dim"),
        value_dim=of.size("linear_value_head_dim"),
        conv_kernel_size=of.size("linear_conv_kernel_dim"),
    )


def kimi_delta(of: Config, kind: str) -> Mixer:
    if kind != LINEAR:
        return latent(of, kind)
    said = of.get("linear_attn_config") or {}
    if said.get("use_full_rank_gate"):  # Kimi K3's, a matrix instead of two
        raise ValueError(
            f"--config: use_full_rank_gate = True is not counted here; {estimate(of.config, ['linear_attn_config'])}"
        )
    own = {
        "linear_num_heads": "num_heads",
        "linear_head_dim": "head_dim",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    heads, dim, kernel_size = (said.get(name) or of.size(key) for key, name in own.items())
    return GatedDelta(heads, heads, dim, dim, kernel_size, decay_per_feature=True)


Mlp = Callable[[Config, int, int], Dense | Experts]  # of a layer by its number, and of how many


def dense(of: Config, index: int, layers: int, biases: str = "", gated: bool = True, learning: str = "") -> Dense:
    """An MLP; of one activation, `learning`, two numbers are parameters."""
    learned = 2 if learning and of.get("hidden_act") == learning else 0
    return Dense(of.size("intermediate_size"), of.flag(biases) if biases else False, gated, learned)


def mixtral(of: Config, index: int, layers: int, **more: bool) -> Experts:
    """Experts in all layers, whose width is intermediate_size."""
    routed = routed_to(of)
    return Experts(*routed, of.size("intermediate_size"), **more)


def routed_to(of: Config) -> tuple[int, int]:
    """Experts of a layer, and to how many of these a token goes."""
    experts = of.size("num_local_experts", "num_experts", "n_routed_experts")
    active = of.size("num_experts_per_tok", "num_experts_per_token")
    if active > experts:
        raise ValueError(f"--config: num_experts_per_tok = {active}, of {experts} experts; give {experts} or fewer")
    return experts, active


def qwen_moe(of: Config, index: int, layers: int, shared: bool = False) -> Dense | Experts:
    """Experts in each decoder_sparse_step-th layer that mlp_only_layers does not list."""
    skipped, step = of.get("mlp_only_layers") or [], of.size("decoder_sparse_step")
    if index in skipped or (index + 1) % step:
        return dense(of, index, layers)
    of.get("intermediate_size")
    beside = of.optional("shared_expert_intermediate_size") if shared else 0
    return Experts(*routed_to(of), of.size("moe_intermediate_size"), beside, shared_gate=beside > 0)


def deepseek(of: Config, index: int, layers: int) -> Dense | Experts:
    """Experts and shared ones, but in the first few layers."""
    if of.get("moe_layer_freq") not in (None, 1):
        raise ValueError(f"--config: moe_layer_freq = {quoted(of.get('moe_layer_freq'))} is not counted here; 1 is")
    sparse = index >= of.optional("first_k_dense_replace")
    if listed := of.listed("mlp_layer_types", layers):
        sparse = listed[index] == "sparse"
    if not sparse:
        return dense(of, index, layers)
    of.get("intermediate_size")
    width = of.size("moe_intermediate_size")
    return Experts(*routed_to(of), width, width * of.optional("n_shared_experts", "num_shared_experts"))


def llama4_moe(of: Config, index: int, layers: int) -> Dense | Experts:
    """A shared expert as wide as the others; the layers between have a wider MLP."""
    step, listed = of.size("interleave_moe_layer_step"), of.get("moe_layers")
    wide = of.size("intermediate_size_mlp")
    if (index in listed) if listed is not None else (index + 1) % step == 0:
        return Experts(*routed_to(of), of.size("intermediate_size"), of.size("intermediate_size"))
    return Dense(wide)


def ernie(of: Config, index: int, layers: int) -> Dense | Experts:
    """Experts from one layer to another, every so many; the router adds a number to each expert's score."""
    last = layers - 1 if of.get("moe_layer_end_index") == -1 else of.optional("moe_layer_end_index")
    first, period = of.optional("moe_layer_start_index"), of.size("moe_layer_interval")
    if not first <= index <= last or (index + 1) % period:
        return dense(of, index, layers)
    of.get("intermediate_size")
    if of.flag("use_bias"):
        raise ValueError(f"--config: use_bias = True is not counted here; {estimate(of.config, ['use_bias'])}")
    width = of.size("moe_intermediate_size")
    shared = width * of.optional("moe_num_shared_experts")
    return Experts(of.size("moe_num_experts"), of.size("moe_k"), width, shared, router_bias=True)


def gemma4_mlp(of: Config, index: int, layers: int) -> Dense | Experts:
    """Experts beside an MLP for all tokens, or this alone."""
    if of.optional("hidden_size_per_layer_input"):  # Gemma 4 E2B's and E4B's
        said = f"hidden_size_per_layer_input = {of.get('hidden_size_per_layer_input')}"
        raise ValueError(
            f"--config: {said} is not counted here; {estimate(of.config, ['hidden_size_per_layer_input'])}"
        )
    if not of.flag("enable_moe_block"):
        of.get("num_experts", "top_k_experts", "moe_intermediate_size")  # of which it makes none
        return dense(of, index, layers)
    experts, active = of.size("num_experts"), of.size("top_k_experts")
    return Experts(experts, active, of.size("moe_intermediate_size"), of.size("intermediate_size"), router_scales=True)


class Family(NamedTuple):
    """What the layers of a kind are made of."""

    mixer: Callable[[Config, str], Mixer] = attention
    mlp: Mlp = dense
    types: Types = all_full
    norms: int = 2
    defaults: Mapping[str, Any] = {}
    of_experts: int = 0  # norms that a layer with experts has beside these
    by_list: bool = True  # by layer_types, if they are there


NO_BIAS = {"attention_bias": False}
UPPER = {"max_window_layers": 28, "sliding_window": 4_096}
WITH_OUT = partial(attention, biases="attention_bias", out_bias="attention_bias")
LLAMA = Family(WITH_OUT, partial(dense, biases="mlp_bias"), defaults={"mlp_bias": False} | NO_BIAS)
MISTRAL = Family(types=all_alike, defaults={"sliding_window": 4_096, "num_key_value_heads": 8})
QWEN_3 = Family(
    partial(WITH_OUT, norms="head"),
    types=upper,
    defaults={"head_dim": 128, "num_key_value_heads": 32} | UPPER | NO_BIAS,
)
QWEN_NEXT = Family(gated_delta, partial(qwen_moe, shared=True), qwen_next)
OF_NEXT = {
    "decoder_sparse_step": 1, "full_attention_interval": 4, "head_dim": 256, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "shared_expert_intermediate_size": 512, "num_key_value_heads": 2,
} | NO_BIAS  # fmt: skip
RANK = {"q_lora_rank": 1_536}
DEEPSEEK = Family(
    latent,
    deepseek,
    defaults={"first_k_dense_replace": 3, "n_shared_experts": 1, "num_nextn_predict_layers": 1} | RANK | NO_BIAS,
)
SPARSE = Family(
    indexed_latent,
    deepseek,
    indexed,
    defaults=dict(DEEPSEEK.defaults)
    | {"index_topk": 2_048, "index_head_dim": 128, "index_n_heads": 64, "index_topk_freq": 1}
    | {"index_skip_topk_offset": 2, "num_nextn_predict_layers": 0},
    by_list=False,
)
OLMO = partial(WITH_OUT, norms="wide")
GEMMA = {"tie_word_embeddings": True, "head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4_096} | NO_BIAS
FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "granite": LLAMA,
    "arcee": LLAMA._replace(mlp=partial(dense, biases="mlp_bias", gated=False)),
    "apertus": Family(
        partial(WITH_OUT, norms="head"),
        partial(dense, gated=False, learning="xielu"),
        defaults={"hidden_act": "xielu"} | NO_BIAS,
    ),
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "ministral3": Family(types=all_alike, defaults={"head_dim": 128, "num_key_value_heads": 8}),
    "mixtral": Family(mlp=mixtral, types=all_alike, defaults={"num_key_value_heads": 8}),
    "seed_oss": Family(
        partial(attention, biases="attention_bias", out_bias="attention_out_bias"),
        partial(dense, biases="mlp_bias"),
        defaults={"attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "head_dim": 128}
        | {"num_key_value_heads": 8},
    ),
    "qwen2": Family(
        partial(attention, biases="qkv_bias"),
        types=upper,
        defaults={"qkv_bias": True, "num_key_value_heads": 32} | UPPER,
    ),
    "qwen2_moe": Family(
        partial(attention, biases="qkv_bias"),
        partial(qwen_moe, shared=True),
        types=alternate,
        defaults={"qkv_bias": True, "decoder_sparse_step": 1, "num_key_value_heads": 16}
        | {"shared_expert_intermediate_size": 5_632}
        | UPPER,
    ),
    "qwen3": QWEN_3,
    "qwen3_moe": Family(
        partial(WITH_OUT, norms="head"),
        qwen_moe,
        if_used,
        defaults={"decoder_sparse_step": 1, "num_key_value_heads": 4, "sliding_window": 4_096} | NO_BIAS,
    ),
    "qwen3_next": QWEN_NEXT._replace(defaults=OF_NEXT),
    "qwen3_5_text": QWEN_NEXT._replace(mlp=dense, defaults=OF_NEXT | {"num_key_value_heads": 4}),
    "qwen3_5_moe_text": QWEN_NEXT._replace(defaults=OF_NEXT),
    "deepseek_v2": DEEPSEEK._replace(defaults={"first_k_dense_replace": 0, "n_shared_experts": 2} | RANK | NO_BIAS),
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK._replace(defaults={"first_k_dense_replace": 1, "n_shared_experts": 1} | RANK | NO_BIAS),
    "deepseek_v32": SPARSE,
    "glm_moe_dsa": SPARSE._replace(defaults=dict(SPARSE.defaults) | {"q_lora_rank": 2_048, "index_n_heads": 32}),
    "dots1": Family(
        partial(WITH_OUT, norms="head"),
        deepseek,
        above,
        defaults={"first_k_dense_replace": 0, "sliding_window": 4_096, "max_window_layers": 62}
        | {"num_key_value_heads": 32}
        | NO_BIAS,
    ),
    "ernie4_5_moe": Family(
        partial(attention, biases="use_bias", out_bias="use_bias"),
        ernie,
        defaults={"use_bias": False, "num_key_value_heads": 4, "tie_word_embeddings": True, "moe_num_shared_experts": 2}
        | {"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1, "moe_k": 6},
    ),
    "glm4_moe_lite": DEEPSEEK._replace(
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1, "q_lora_rank": 768} | NO_BIAS
    ),
    "kimi_linear": DEEPSEEK._replace(
        mixer=kimi_delta,
        types=kimi_linear,
        defaults={"first_k_dense_replace": 1, "num_shared_experts": 1}
        | {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
        | NO_BIAS,
    ),
    "glm4": Family(
        partial(attention, biases="attention_bias"),
        norms=4,
        defaults={"attention_bias": True, "head_dim": 128, "num_key_value_heads": 2},
    ),
    "glm4_moe": Family(
        partial(attention, biases="attention_bias", norms="use_qk_norm"),
        deepseek,
        defaults={
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "num_nextn_predict_layers": 1,
            "use_qk_norm": False,
            "num_key_value_heads": 8,
        }
        | NO_BIAS,
    ),
    "gpt_oss": Family(
        partial(WITH_OUT, sinks=True),
        partial(mixtral, biases=True, router_bias=True),
        partial(full_attention_every, 2, SLIDING),
        defaults={"attention_bias": True, "head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
    ),
    "gemma": Family(WITH_OUT, defaults=GEMMA | {"num_key_value_heads": 16}),
    "gemma2": Family(
        WITH_OUT, types=partial(full_attention_every, 2, SLIDING), norms=4, defaults=GEMMA | {"vocab_size": 256_000}
    ),
    "gemma3_text": Family(
        partial(WITH_OUT, norms="head"),
        types=gemma,
        norms=4,
        defaults=GEMMA
        | {"vocab_size": 262_208, "sliding_window_pattern": 6, "num_attention_heads": 8, "num_hidden_layers": 26}
        | {"hidden_size": 2_304, "intermediate_size": 9_216},
    ),
    "gemma4_text": Family(
        gemma4_attention,
        gemma4_mlp,
        gemma4,
        norms=4,
        defaults=GEMMA
        | {"vocab_size": 262_144, "sliding_window": 512, "global_head_dim": 512, "attention_k_eq_v": False}
        | {"enable_moe_block": False, "hidden_size_per_layer_input": 256},
        of_experts=3,
    ),
    "exaone4": Family(
        partial(attention, norms="head"),
        types=exaone,
        defaults={"sliding_window": 4_096, "sliding_window_pattern": 4, "num_key_value_heads": 32},
    ),
    "llama4_text": Family(
        WITH_OUT,
        llama4_moe,
        llama4,
        defaults={"attention_chunk_size": 8_192, "interleave_moe_layer_step": 1, "no_rope_layer_interval": 4}
        | {"head_dim": 128, "intermediate_size_mlp": 16_384, "num_key_value_heads": 8}
        | NO_BIAS,
    ),
    "minimax_m2": Family(
        partial(attention, norms="wide"), mixtral, defaults={"head_dim": 128, "num_key_value_heads": 8}
    ),
    "olmo2": Family(OLMO, defaults=NO_BIAS),
    "olmo3": Family(
        OLMO, types=partial(full_attention_every, 4, SLIDING), defaults={"sliding_window": 4_096} | NO_BIAS
    ),
    "olmoe": Family(OLMO, mixtral, defaults=NO_BIAS),
    "phi3": Family(types=all_alike),
    "smollm3": Family(
        WITH_OUT,
        partial(dense, biases="mlp_bias"),
        smollm3,
        defaults={"mlp_bias": False, "no_rope_layer_interval": 4, "tie_word_embeddings": True, "num_key_value_heads": 4}
        | NO_BIAS,
    ),
}


WRAPPED = {  # kinds with more than a decoder, and that of the decoder in it
    "gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral", "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text", "gemma4": "gemma4_text", "exaone4_5": "exaone4", "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2", "kimi_k25": "kimi_k2", "qwen3_vl_moe": "qwen3_moe", "qwen3_vl": "qwen3",
}  # fmt: skip
RENAMED = {
    "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe", "qwen2_5_vl_text": "qwen2", "qwen2_vl_text": "qwen2",
    "exaone4_5_text": "exaone4",
}  # fmt: skip


def decoder_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder's own part of a configuration: all of it, or what stands under text_config."""
    text, outer = config.get("text_config"), str(config.get("model_type"))
    if not isinstance(text, Mapping):
        return {**config, "model_type": WRAPPED[outer], "vision_config": None} if outer in WRAPPED else config
    kind = text.get("model_type") or WRAPPED.get(outer, outer)
    own = {"model_type": RENAMED.get(str(kind), kind)}
    if "tie_word_embeddings" in config:
        own["tie_word_embeddings"] = config["tie_word_embeddings"]
    return own | {key: value for key, value in text.items() if key != "model_type"}


def left_out(config: Mapping[str, Any]) -> list[str]:
    """Keys of what stands beside the decoder: said, not counted."""
    return [key for key in ("vision_config", "audio_config") if config.get(key)]


METHODS = {"fp8": 8, "fbgemm_fp8": 8, "eetq": 8, "mxfp4": 4, "nvfp4": 4}  # whose name says the bits
UNPACKED = ("fp8", "mxfp4", "nvfp4")  # which transformers turns into 16 bits before it trains
ALWAYS_WIDE = ("head", "embed", "norm", "gate", "router", "vision", "visual", "audio", "projector")


def quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a configuration says of how its weights are stored; empty if nothing."""
    for of in (config, decoder_of(config)):
        for key in ("quantization_config", "compression_config"):
            if isinstance(said := of.get(key), Mapping) and said:
                return said
    return {}


def bits_of(said: Mapping[str, Any]) -> int | None:
    """Bits in which matrices are stored, by what transformers and engines write; None if that is not understood."""
    if said.get("load_in_4bit") or said.get("_load_in_4bit"):  # bitsandbytes
        return 4
    if said.get("load_in_8bit") or said.get("_load_in_8bit"):
        return 8
    groups = said.get("config_groups")  # compressed-tensors, and NVIDIA's ModelOpt
    if isinstance(groups, Mapping):
        weights = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        return planned_bits([one.get("num_bits") for one in weights if isinstance(one, Mapping)])
    algorithm = str(said.get("quant_algo") or said.get("quant_method")).lower()
    if algorithm in METHODS:
        return METHODS[algorithm]
    return planned_bits([said[key] for key in ("bits", "w_bit", "num_bits") if key in said])  # GPTQ, AWQ, AutoRound


def is_unpacked(said: Mapping[str, Any]) -> bool:
    """Whether weights that are stored so are in 16 bits again in a training."""
    return str(said.get("quant_algo") or said.get("quant_method")).lower() in UNPACKED


def planned_bits(said: list[Any]) -> int | None:
    """The one number of bits, if it is one that is planned with."""
    return next((bits for bits in (4, 8, 16) if said and all(each == bits for each in said)), None)


def is_partly(said: Mapping[str, Any]) -> bool:
    """Whether it leaves more in 16 bits than embedding, head, norms, routers and towers."""
    listed: list[Any] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        names = said.get(key)
        listed += names if isinstance(names, list) else []
    return any(not any(part in str(name) for part in ALWAYS_WIDE) for name in listed)


def is_read(config: Mapping[str, Any]) -> bool:
    """Whether the kind of a configuration is one of these; what is no word is none."""
    kind = decoder_of(config).get("model_type")
    return isinstance(kind, str) and kind in FAMILIES


def read_stack(config: Mapping[str, Any]) -> Stack:
    """The decoder that a Hugging Face configuration (config.json, as a dictionary) describes.

    Raises ValueError, by key, for what is missing and for what would change its shape and is not known here.

    >>> from flops_bytes.model.stack import parameters
    >>> config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256}
    >>> config |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    >>> sum(parameters(read_stack(config)).values())
    8030261248
    """
    own = decoder_of(config)
    kind = own.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES or other_than_decoder(config):
        raise ValueError(unknown(config))
    family = FAMILIES[kind]
    of = Config(own, {"tie_word_embeddings": False} | dict(family.defaults))
    depth = of.size("num_hidden_layers")
    if depth > MOST_LAYERS:
        raise ValueError(too_deep(depth))
    types = types_of(of, family.types, depth) if family.by_list else family.types(of, depth)
    mlps = [family.mlp(of, index, depth) for index in range(depth)]
    norms = [family.norms + family.of_experts * isinstance(mlp, Experts) for mlp in mlps]
    layers = [Layer(family.mixer(of, types[index]), mlps[index], norms[index]) for index in range(depth)]
    stack = Stack(
        of.size("hidden_size"),
        of.size("vocab_size"),
        layer_counts(layers),
        tied=of.flag("tie_word_embeddings"),
        mtp_layers=of.optional("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    )
    if unread := of.unread():
        why = f"{quoted(unread[0])[1:-1]} = {quoted(own[unread[0]])} is not counted here"
        raise ValueError(f"--config: {why}; {estimate(config, unread)}")
    return stack
