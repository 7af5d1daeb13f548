"""The planner for models whose layers differ: experts, latents, windows, linear attention. And the way to it by name.

What a training step holds is derived for the kinds of flops_bytes.stack_step, as transformers writes them. Of others an
answer says what weights, gradients and the optimizer's state take at least, and never that it fits. A model whose
layers are all alike goes to the planner as it is.
"""

# --8<-- [start:setup]
from collections.abc import Callable, Mapping
from math import gcd
from typing import Any

from flops_bytes.adapters import CONSTANTS, FORMATS, Format, quantized_bytes
from flops_bytes.configs import (
    bits_of,
    decoder_of,
    is_partly,
    is_read,
    is_unpacked,
    left_out,
    quantization,
    read_stack,
)
from flops_bytes.flops import training_seconds
from flops_bytes.memory import RECIPES, state_bytes
from flops_bytes.optimizers import TORCHAO, low_bit_state_bytes
from flops_bytes.plan.defaults import answered as answered_alike
from flops_bytes.plan.defaults import assumed, with_method, with_usual
from flops_bytes.plan.defaults import plan_exactly as plan_alike
from flops_bytes.plan.evidence import judged
from flops_bytes.plan.fleet import in_time
from flops_bytes.plan.options import (
    OPTIONS,
    SPEEDS,
    batched_tokens,
    capacity_source,
    read,
    read_config,
    read_gpu,
    read_options,
    read_text,
    refuse_wide_rank,
)
from flops_bytes.plan.serving import BITS, ENGINES_REACH, MOST_GPUS, WIDTHS, served
from flops_bytes.plan.software import Buckets, hold_buckets
from flops_bytes.plan.training import (
    STEP_MFU,
    booked,
    card_format,
    cost,
    fp8_rate,
    methods,
    on_host,
    refuse_fp8,
    refuse_in_backward,
    without_state,
    without_weights,
)
from flops_bytes.presets import PRESETS, known, preset_of
from flops_bytes.serving import Server, largest
from flops_bytes.shapes import KNOWN, SHAPES, Decoder, from_config, quoted
from flops_bytes.stack import (
    Attention,
    Delta,
    Dense,
    Experts,
    Latent,
    Stack,
    backward_flops,
    cache_bytes,
    decode_bytes,
    decode_flops,
    forward_flops,
    parameters,
    predicting_parameters,
    prefill_flops,
    read_parameters,
    shared,
    weights_bytes,
)
from flops_bytes.stack_layers import Adapters
from flops_bytes.stack_step import (
    DERIVED,
    adapter_parameters,
    again_flops,
    packed_parameters,
    sent_bytes,
    sharded,
    step_bytes,
    why_not,
)

# --8<-- [end:setup]


# --8<-- [start:way]
def plan(**asked: Any) -> dict[str, Any]:
    """As flops_bytes.plan.plan(), for all models that are known by name and all kinds of config.json that are read.

    Raises ValueError with a sentence that names the option or the configuration's key, and the mend.
    """
    return in_time(asked, lambda each: answered(with_usual(each), each))


def plan_exactly(**asked: Any) -> dict[str, Any]:
    """The same as plan(), but nothing is chosen: what is not given has the default of its option."""
    return answered(asked, None)


def answered(asked: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is found about a model. `given` is what somebody said, where the rest is chosen."""
    config, serves = configured(asked) or {}, asked.get("task") == "serve"
    beside = [f"{key}: left out" for key in left_out(config)] + as_stored(asked, config)[1]
    if (question := asked_alike(asked)) is not None:
        found = plan_alike(**question) if given is None else answered_alike(question, given)
        found = beyond_window(found, asked)
        is_in_one = asked.get("config") and decoder_of(config).get("model_type") == "phi3"
        return found | {"estimated": [*found["estimated"], *([IN_ONE] if is_in_one else []), *beside]}
    stack, rest = read_stack(config), as_stored(without_model(asked), config)[0]
    kind = str(decoder_of(config)["model_type"])
    if given is not None and not serves:
        rest = chosen(rest, stack, kind, decoder_of(config))
    refuse(rest, kind)
    a = read_options(rest)
    a |= {"drops": drops_of(a, decoder_of(config))}
    found = serve(a, stack, beside) if serves else train(a, stack, kind, beside)
    return found if given is None else found | {"assumed": assumed(rest, given)}


def chosen(told: Mapping[str, Any], stack: Stack, kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What is trained and what is checkpointed, where nobody says: as flops_bytes.plan.defaults.completed() has it."""
    rest = {name: value for name, value in told.items() if value is not None}
    refuse(rest, kind)
    a = read_options(rest)
    a |= {"drops": drops_of(a, config)}
    if why_of(a, stack, kind):
        return {"checkpointing": "full", "trained": "all"} | rest
    return with_method(rest, a["trained"], methods_of(a, stack, kind, read_gpu(a).memory_bytes))


def beyond_window(found: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What was found up to a window, within which layers are all alike, with a longest context that may lie beyond."""
    reach = reach_of(asked)
    if not reach or found["longest_context"] < reach:
        return found
    same = {"users": found["users"]} if "users" in found else {"accumulation": found["accumulation"]}
    same = found.get("assumed", {}) | same
    try:
        more = answered({**asked, "global_batch": None, **same, "context": reach + 1}, None)
    except ValueError:  # what was asked beside is not derived there
        more = {}
    return found | {"longest_context": max(reach, more.get("longest_context", 0))}


def reach_of(asked: Mapping[str, Any]) -> int:
    """Tokens that a window shows, if all layers of a model have the same one; else 0."""
    name = preset_of(str(asked.get("model") or ""))
    config = read_config(asked["config"]) if asked.get("config") else PRESETS[name].config if name in PRESETS else {}
    if not decoder_of(config).get("sliding_window") or not is_read(config):
        return 0
    (layer, _), *others = read_stack(config).layers
    return layer.mixer.reach if isinstance(layer.mixer, Attention) and not others else 0


def by_name(asked: Mapping[str, Any], reader: Callable[[str], Mapping[str, Any]] = read_config) -> dict[str, Any]:
    """A question with what its config.json holds; a model's name may stand there too, but a file may have that name."""
    try:
        return {**asked, "config": reader(asked["config"])}
    except ValueError:
        name = known(asked["config"])
        if not name:
            raise
        return {option: value for option, value in asked.items() if option != "config"} | {"model": name}


def asked_alike(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the planner of layers all alike is asked for the same model; None if its layers differ."""
    config = configured(asked)
    rest = as_stored(without_model(asked), config or {})[0]
    if config is None:
        return dict(asked) if not asked.get("model") else {**asked, "model": preset_of(str(asked["model"]))}
    own, of_library = unquantized(decoder_of(config)), bool(asked.get("config"))
    if is_alike(own, asked):  # a configuration is of transformers' modules, a name of this book's
        modules = {} if asked.get("task") == "serve" else {"layers": "composed" if of_library else "fused"}
        return modules | rest | {"config": own}
    decoder = alike(read_stack(config), context_of(asked))
    if decoder and of_library and own["model_type"] in LLAMAS:
        return rest | {"config": as_llama(decoder) | {"attention_dropout": own.get("attention_dropout")}}
    return rest | {"shape": written(decoder)} if decoder and not of_library else None


def context_of(asked: Mapping[str, Any]) -> int:
    length: int = read("context", asked.get("context") or OPTIONS["context"].default)
    return length


def is_alike(config: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a configuration is one that the planner of layers all alike reads as it is, or refuses for good."""
    return config.get("model_type") in KNOWN and of_known(config, asked)


def of_known(config: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Of a kind that is known there: not where only a stack can say its shape, as of a context beyond its window."""
    try:
        from_config(config, context_of(asked))
    except ValueError:
        try:
            return alike(read_stack(config), context_of(asked)) is not None
        except ValueError:
            return True
    return True


# Whose modules keep what a Llama's do; that of Phi 3 makes queries, keys and values in one matmul, as gate and up,
# and was counted to hold up to 2 % more.
LLAMAS = ("granite", "ministral3", "phi3", "smollm3")
IN_ONE = "activations of matmuls in one"
QUANTIZED = "quantization_config"
PARTLY = f"{QUANTIZED}: what it leaves in 16 bits is taken to have as few as the rest"


def as_stored(asked: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A question with the bits in which a checkpoint stores its weights, where it says no others, and what is said.

    Served are weights as they are stored. Trained they have the recipe's format, but the frozen ones of LoRA, if these
    bits can be planned.
    """
    told, said = dict(asked), quantization(config)
    if not said:
        return told, []
    bits, serves = bits_of(said), told.get("task") == "serve"
    if serves and not told.get("weights"):
        if bits is None:
            raise ValueError(
                f"--weights: quantization_config = {quoted(dict(said))} is not understood; say 16bit, 8bit or 4bit"
            )
        more = [PARTLY] if is_partly(said) else []
        return told | {"weights": f"{bits}bit"}, [f"{QUANTIZED}: weights in {bits} bits", *more]
    if serves:
        return told, []
    is_base = f"{bits}bit" in OPTIONS["base"].kind and not is_unpacked(said)
    if told.get("lora") and not told.get("base") and is_base:
        return told | {"base": f"{bits}bit"}, [f"{QUANTIZED}: a frozen base in {bits} bits"]
    return told, [f"{QUANTIZED}: left out; weights are held as the recipe says"]


def as_llama(shape: Decoder) -> dict[str, Any]:
    """The configuration of a Llama of this shape."""
    return {
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.d_model,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.d_ff,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
    }


def unquantized(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as of weights in 16 bits or more: how a checkpoint stores them changes no shape."""
    return {key: value for key, value in config.items() if key != QUANTIZED}


def without_model(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name not in ("model", "config")}


def configured(asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The configuration of a model that is named here, or of a kind that is read here and not in shapes.py."""
    given = [name for name in ("model", "config", "shape") if asked.get(name)]
    if len(given) != 1:
        return None  # which the planner refuses
    if asked.get("config"):
        config = read_config(asked["config"])
        is_known = QUANTIZED not in config and is_alike(config, asked)
        return config if is_read(config) and not is_known else None
    name = known(str(asked.get("model") or ""))
    if name in PRESETS:
        return PRESETS[name].config
    if asked.get("model") and not name:
        mend = f"choose {', '.join([*SHAPES, *PRESETS])}, or give --config or --shape"
        raise ValueError(f"--model: {quoted(asked['model'])} is not known; {mend}")
    return None


def alike(stack: Stack, context: int) -> Decoder | None:
    """The same as a decoder of layers all alike, if it is one for so many tokens."""
    (layer, layers), *others = stack.layers
    mixer, mlp = layer.mixer, layer.mlp
    if others or stack.predicting or layer.norms != 2:
        return None
    if not isinstance(mixer, Attention) or not isinstance(mlp, Dense):
        return None
    if 0 < mixer.reach < context or mixer.gated or mixer.wide_norms or mixer.sinks or mixer.out_bias or mlp.biases:
        return None
    if not mlp.gated or mlp.learned:
        return None
    return Decoder(
        layers=layers,
        d_model=stack.d_model,
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        head_dim=mixer.head_dim,
        d_ff=mlp.d_ff,
        vocab=stack.vocab,
        tied=stack.tied,
        qkv_biases=mixer.biases,
        head_norms=mixer.head_norms,
    )


def written(shape: Decoder) -> str:
    """As --shape takes it."""
    fields = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocab")
    flags = ("tied", "qkv_biases", "head_norms")
    told = [f"{name}={getattr(shape, name)}" for name in fields]
    return " ".join(told + [f"{name}={'yes' if getattr(shape, name) else 'no'}" for name in flags])


# --8<-- [end:way]


# --8<-- [start:refuse]
MOST_CHUNKS = 256  # each goes forward and backward on the tape
# Options that say what a training step holds:
HELD: tuple[str, ...] = ("trained", "lora", "lora_on", "base", "chunks", "optimizer", "loss", "layers", "offload")
HELD += ("dropout", "checkpointing", "checkpoint_every")
HELD += ("update", "reentrant", "sharding_by", "reduce_bucket", "quantized_by", "lora_inputs", "lora_dropout")
HELD += ("qkv_made", "matmuls")
# Of these, what is not derived, though a kind's step is: how other libraries do what is asked.
OF_LIBRARIES = ("quantized_by", "qkv_made")


def refuse(told: Mapping[str, Any], kind: str) -> None:
    """Options that say what a training step holds, where that is not derived."""
    for name in HELD:
        value = told.get(name)
        if value is None or value == OPTIONS[name].default or (name == "trained" and value == "all"):
            continue
        if name == "checkpointing" and value == "full":
            continue
        is_other = name in OF_LIBRARIES or (name == "layers" and value == "fused")
        is_other = is_other or str(value)[:4] == "fsdp"  # FSDP 1 in its kinds
        is_other = is_other or (name == "optimizer" and str(value)[:5] not in ("adamw", "paged"))
        if kind in DERIVED and not is_other:
            continue
        why = f"what a training step of a {kind} holds with it is not derived"
        raise ValueError(f"--{name.replace('_', '-')}: {why}; leave it out")
    if read("chunks", told.get("chunks") or 1) > MOST_CHUNKS:
        raise ValueError(f"--chunks: more than {MOST_CHUNKS} are not planned of a {kind}; give fewer")


def refuse_together(a: Mapping[str, Any], stack: Stack, peaks: Mapping[str, float]) -> None:
    """What is not derived of options that are, together."""
    has_experts = any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers)
    if a["offload"] == "all" and (a["zero"] != "3" or a["gpus"] == 1):
        raise ValueError(
            "--offload: all is of weights that are gathered from the host's memory; give --zero 3 and GPUs"
        )
    if a["update"] == "in-backward":
        refuse_in_backward(a, has_experts)
    if a["matmuls"] != "as-recipe":
        refuse_fp8(a, not has_experts, peaks)


def drops_of(a: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether there is dropout in attention, and behind half a layer: as was asked, or as a configuration says."""
    if a["dropout"] is not None:
        return (a["dropout"] > 0, a["dropout"] > 0)
    behind = config.get("residual_dropout") or config.get("resid_pdrop")
    return (bool(config.get("attention_dropout")), bool(behind))


# --8<-- [end:refuse]


# --8<-- [start:serving]
def shares(stack: Stack) -> list[int]:
    """Numbers of GPUs that can share each layer: all have as many heads."""
    heads = 0
    for mixer, _ in stack.mixers():
        heads = gcd(heads, mixer.value_heads if isinstance(mixer, Delta) else mixer.heads)
    return [gpus for gpus in range(1, min(heads, MOST_GPUS) + 1) if heads % gpus == 0]


def forward_bytes(stack: Stack, tokens: int, gpus: int = 1) -> int:
    """As flops_bytes.serving.forward_bytes(), where most are there: in the widest MLP."""
    inner = 3 * max(layer.mlp.inner() for layer, _ in stack.layers)
    return 2 * tokens * (2 * stack.d_model + inner // gpus)


def decode_seconds(stack: Stack, users: int, context: int, server: Server) -> float:
    """The bound of a step, by its bytes or FLOPs; of latents as if what expands them were absorbed."""
    moved = decode_bytes(stack, users, context, server.bits, server.width, server.end_bits)
    return max(moved / server.bandwidth, decode_flops(stack, users, context) / server.peak)


def prefill_seconds(stack: Stack, prompt: int, server: Server) -> float:
    """The bound of a prefill: its FLOPs, or the weights where the prompt is short."""
    ends = stack.vocab * stack.d_model * ((server.end_bits or server.bits) - server.bits)
    read = (read_parameters(stack, prompt) * server.bits + ends) / 8
    return max(read / server.bandwidth, prefill_flops(stack, prompt) / server.peak)


def token_seconds(stack: Stack, users: int, context: int, server: Server, prompt: int) -> float:
    """The bound of a token, with its share of the prefills that all users wait for."""
    step = decode_seconds(stack, users, context, server)
    if not 0 < prompt < context:
        return step
    return step + users * prefill_seconds(stack, prompt, server) / (context - prompt)


def users_that_fit(stack: Stack, memory_bytes: float, server: Server, context: int) -> int:
    """Beside the weights."""
    room = memory_bytes - weights_bytes(stack, server.bits, server.end_bits)
    return max(0, int(room / cache_bytes(stack, context, server.width)))


def planned(
    stack: Stack, memory_bytes: float, server: Server, context: int, seconds: float | None, prompt: int
) -> dict[str, Any]:
    """How many users fit, and how many of these get a token in time."""
    fit = in_time = users_that_fit(stack, memory_bytes, server, context)
    if seconds:
        in_time = largest(lambda users: token_seconds(stack, users, context, server, prompt) - seconds, 2**40)
    return {"fit": fit, "in_time": in_time, "users": min(fit, in_time)}


def serve(a: Mapping[str, Any], stack: Stack, beside: list[str]) -> dict[str, Any]:
    """What serving takes, from options that are read; the fields are those of flops_bytes.plan.serving.serve()."""
    gpu, gpus, context, width = read_gpu(a), a["gpus"], a["context"], WIDTHS[a["cache"]]
    if not gpu.bandwidth_bytes_per_second:
        raise ValueError("--gpu-bandwidth: serving waits for memory; give its bytes a second, such as 3.35TB")
    if gpus not in shares(stack):
        could = ", ".join(str(number) for number in shares(stack))
        raise ValueError(f"--gpus: {gpus} do not share the heads evenly; choose {could}")
    if (a["prompt"] or 1) > context:
        raise ValueError(f"--prompt: it is longer than the context of {context}; ask for so many tokens or fewer")
    whole = shared(stack, gpus)
    peak = max(gpu.peak_flop_per_second.get(dtype, 0) for dtype in ("bfloat16", "float16"))
    server = Server(gpus * gpu.bandwidth_bytes_per_second, gpus * peak, BITS[a["weights"]], width, end_bits=16)
    free = gpu.memory_bytes - int(gpu.memory_bytes * a["gpu_memory_utilization"])
    activations = forward_bytes(stack, batched_tokens(a, gpu.memory_bytes), gpus)
    room = gpu.memory_bytes - free - a["allowance"] - activations  # of one GPU
    seconds, prompt = a["latency"] / 1_000 if a["latency"] else None, a["prompt"] or context
    most = planned(whole, gpus * room, server, context, seconds, prompt)
    users = a["users"] or max(most["users"], 1)
    each_seconds = token_seconds(whole, users, context, server, prompt)
    lines = {
        "weights": int(weights_bytes(whole, server.bits, server.end_bits) / gpus),
        "cache": users * cache_bytes(whole, context, width) // gpus,
        "activations": activations,
        "allowance": a["allowance"],
        "kept_free": free,
    }
    needs_bytes, rate = sum(lines.values()), users / each_seconds

    def holds(number: int) -> bool:
        each = room + activations - forward_bytes(stack, batched_tokens(a, gpu.memory_bytes), number)
        return users_that_fit(shared(stack, number), number * each, server, context) >= (a["users"] or 1)

    def missing(tokens: int) -> float:
        left = gpus * room - weights_bytes(whole, server.bits, server.end_bits)
        return float(users * cache_bytes(whole, tokens, width) - left)

    estimated = {
        "wire": gpus > 1,
        "experts": any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers),
        "latents on each GPU, absorbed": any(isinstance(mixer, Latent) for mixer, _ in stack.mixers()),
    }
    return {
        "parameters": totals(stack),
        "memory_bytes": lines | {"total": needs_bytes},
        "gpu_bytes": gpu.memory_bytes,
        "gpu_bytes_are": capacity_source(a),
        "headroom_bytes": gpu.memory_bytes - needs_bytes,
        "in_time": not seconds or each_seconds <= seconds,
        "latency_seconds": seconds,
        "token_bytes": cache_bytes(whole, context, width) - cache_bytes(whole, context - 1, width),
        "user_bytes": cache_bytes(whole, context, width),
        "users": users,
        "users_that_fit": most["fit"],
        "users_in_time": most["in_time"] if seconds else None,
        "longest_context": largest(missing, 2**40),
        "fewest_gpus": next((number for number in shares(stack) if holds(number)), None),
        "token_seconds": decode_seconds(whole, users, context, server),
        "with_prompts_seconds": each_seconds if prompt < context else None,
        "each_per_second": 1 / each_seconds,
        "reached_per_second": [share / each_seconds for share in ENGINES_REACH],
        "alone_per_second": 1 / decode_seconds(whole, 1, context, server),
        "tokens_per_second": rate,
        "first_token_seconds": prefill_seconds(whole, prompt, server),
        "money_a_million": 1e6 * gpus * a["price"] / (3_600 * rate) if a["price"] else None,
        "currency": a["currency"],
        "formats": formats(whole, gpus * room, server, context, seconds, prompt),
        "estimated": [name for name, is_so in estimated.items() if is_so] + beside,
    } | served(needs_bytes, free, gpu.memory_bytes)


def totals(stack: Stack) -> dict[str, int]:
    """All parameters, and those that a token passes through; of layers that predict further tokens apart."""
    further = {"predicting": predicting_parameters(stack)} if stack.predicting else {}
    total, active = (sum(parameters(stack, active=only).values()) for only in (False, True))
    return {"total": total, "active": active} | further


def formats(
    stack: Stack, memory_bytes: float, server: Server, context: int, seconds: float | None, prompt: int
) -> list[dict[str, Any]]:
    """The most users, and how fast, with weights and cache in more or fewer bits."""
    rows = []
    for weights, bits in BITS.items():
        for cache, width in WIDTHS.items():
            other = server._replace(bits=bits, width=width)
            users = planned(stack, memory_bytes, other, context, seconds, prompt)["users"]
            rate = users / token_seconds(stack, max(users, 1), context, other, prompt)
            row = {"weights": weights, "cache": cache, "users": users, "tokens_per_second": rate}
            row["weights_bytes"] = int(weights_bytes(stack, bits, other.end_bits))
            row["alone_per_second"] = 1 / decode_seconds(stack, 1, context, other)
            rows.append(row)
    return rows


# --8<-- [end:serving]


# --8<-- [start:training]
def held_bytes(total: int, recipe: str, gpus: int, zero: int) -> dict[str, int]:
    """What a GPU holds from step to step, by ZeRO's stage: the optimizer's state and master weights are cut from 1 on,
    gradients from 2 on, weights from 3 on (Rajbhandari et al. 2020).
    """
    first = {"optimizer": 1, "master": 1, "gradients": 2, "weights": 3}
    held = state_bytes(total, RECIPES[recipe])
    return {part: -(-size // gpus) if zero >= first[part] else size for part, size in held.items()}


MIXING = ("scores", "values", "index", "state")  # FLOPs of what has no weights


def token_flops(
    stack: Stack, seq_len: int, causal: bool, fused: bool, again: int, adapters: int = 0
) -> dict[str, float]:
    """FLOPs of training on one token of so many: the model's own, the device's, and what of these it does again, which
    is told of all tokens.

    Where so many parameters of adapters alone are trained, frozen weights need no gradients.
    """
    forward = forward_flops(stack, seq_len, causal=causal)
    once = sum(forward.values())
    own = 2 * adapters * seq_len
    spared = sum(flops for part, flops in forward.items() if part not in MIXING) - 3 * own if adapters else 0
    device = once + sum(backward_flops(stack, seq_len, 1, causal, fused).values()) - spared + again
    return {"model": (3 * once - spared) / seq_len, "device": device / seq_len, "again": again / seq_len}


def least(a: Mapping[str, Any], total: int) -> dict[str, Any]:
    """What a GPU holds of so many parameters, without activations."""
    recipe, gpus = a["recipe"].replace("-", "_"), a["gpus"]
    stages = {stage: held_bytes(total, recipe, gpus, stage) for stage in range(4)}
    lines = stages[int(a["zero"])] | {"allowance": a["allowance"]}
    by_stage = {stage: sum(held.values()) for stage, held in stages.items()} if gpus > 1 else {}
    return {"memory_bytes": lines | {"total": sum(lines.values())}, "zero_bytes": by_stage}


def why_of(a: Mapping[str, Any], stack: Stack, kind: str) -> str:
    """Why the bytes of what is asked are not derived; nothing if they are."""
    return why_not(stack, kind, a["recipe"].replace("-", "_"), a["zero"] == "3" and a["gpus"] > 1)


def again_of(a: Mapping[str, Any], stack: Stack, kind: str, causal: bool) -> int:
    """FLOPs of a sequence that are done again; of layers that are not derived, all but the head's."""
    if why_of(a, stack, kind):
        forward = forward_flops(stack, a["context"], causal=causal)
        return sum(forward.values()) - forward["head"] if a["checkpointing"] == "full" else 0
    return again_flops(
        stack,
        kind,
        a["context"],
        causal,
        fused=a["attention"] == "fused",
        checkpointing=a["checkpointing"],
        every=a["checkpoint_every"],
        reentrant=a["reentrant"] == "yes",
        adapters=adapters_of(a),
        few_bits=few_bits_of(a),
        drops=a["drops"],
    )


def few_bits_of(a: Mapping[str, Any]) -> Format | None:
    return FORMATS[a["matmuls"]] if a["matmuls"] != "as-recipe" else None


def adapters_of(a: Mapping[str, Any]) -> Adapters | None:
    if not a["lora"]:
        return None
    four_bit, in_float32 = a["base"] in CONSTANTS, a["lora_inputs"] == "float32"
    return Adapters(a["lora"], a["lora_on"], four_bit, in_float32, a["lora_dropout"] == "yes")


def trained_of(a: Mapping[str, Any], stack: Stack, kind: str) -> int:
    adapters = adapters_of(a)
    return adapter_parameters(stack, kind, adapters) if adapters else sum(parameters(stack).values())


def two_moments_bytes(a: Mapping[str, Any], stack: Stack, trained: int) -> int:
    """Bytes of AdamW's two moments; in 8 bits as bitsandbytes has them, where transformers leaves those of the
    embedding in float32; torchao's as of one tensor."""
    if a["optimizer"] == "adamw-bf16":
        return 4 * trained
    if a["optimizer"] == "adamw-4bit" or a["optimizer"] == "adamw-fp8":
        bits, block = TORCHAO[a["optimizer"]]
        return low_bit_state_bytes([trained // block * block], bits, block, 4)
    if a["optimizer"][-4:] != "8bit":
        is_wide = a["lora"] or a["optimizer"][:5] == "paged"
        return RECIPES["fp32" if is_wide else a["recipe"].replace("-", "_")].optimizer * trained
    wide = 0 if a["lora"] else parameters(stack)["embedding"]
    return 8 * wide + quantized_bytes(2 * (trained - wide), 8, 256)


def peak(a: Mapping[str, Any], stack: Stack, kind: str) -> tuple[str, dict[str, int]]:
    """The moment of a step at which a GPU holds most, and the bytes that it holds then, by line."""
    recipe, zero, adapters = a["recipe"].replace("-", "_"), int(a["zero"]), adapters_of(a)
    told: dict[str, Any] = {
        "seq_len": a["context"],
        "batch": a["micro_batch"],
        "fused": a["attention"] == "fused",
        "checkpointing": a["checkpointing"],
        "accumulated": a["accumulation"] > 1,
        "adapters": adapters,
        "base": a["base"],
        "loss": "plain" if a["loss"] == "chunked" else a["loss"],
        "chunks": a["chunks"],
        "every": a["checkpoint_every"],
        "reentrant": a["reentrant"] == "yes",
        "drops": a["drops"],
        "few_bits": few_bits_of(a),
        "update": a["update"] if a["optimizer"] == "adamw" or a["update"] == "in-backward" else "fused",
    }
    at = step_bytes(stack, kind, recipe=recipe, **told)
    if zero == 3 and a["gpus"] > 1 and recipe.startswith("autocast"):
        # what is gathered is cast before, the embedding too: so the residual path, and all else, is in 16 bits
        cast = step_bytes(stack, kind, recipe="bf16_master", **told)
        kept = ("made", "copies", "activations", "layer", "logits", "temporaries")
        at = {moment: lines | {line: cast[moment][line] for line in kept} for moment, lines in at.items()}
    if a["optimizer"] != "adamw":
        paged = a["optimizer"][:5] == "paged"
        state = 0 if paged else two_moments_bytes(a, stack, trained_of(a, stack, kind))
        at = {moment: lines | {"optimizer": state} for moment, lines in at.items()}
    at = sharded(stack, at, recipe, a["gpus"], zero, a["base"], adapters is not None)
    if a["sharding_by"] != "fsdp2":
        of = Buckets(zero, a["gpus"], a["sharding_by"], a["reduce_bucket"], recipe, a["lora"] or 0)
        hold_buckets(at, of, trained_of(a, stack, kind))
    if a["offload"] != "no":
        at = with_host(a, stack, kind, at)
    at = {moment: lines | {"allowance": a["allowance"]} for moment, lines in at.items()}
    moment = max(at, key=lambda moment: sum(at[moment].values()))
    return moment, at[moment]


def with_host(
    a: Mapping[str, Any], stack: Stack, kind: str, at: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """As flops_bytes.plan.training.with_host() has it."""
    gone: dict[str, int] = {"gradients": 0} if has_float32_gradients(a) else {}
    if a["offload"] == "all":
        is_packed = a["base"] in CONSTANTS
        whole = quantized_bytes(packed_parameters(stack), 0, 64, CONSTANTS[a["base"]]) if is_packed else 0
        gone |= without_weights(whole, bool(a["lora"]))
    each, zero = RECIPES["fp32" if a["lora"] else a["recipe"].replace("-", "_")], int(a["zero"])
    update = 0 if a["update"] == "in-backward" else each.gradients * trained_of(a, stack, kind)
    return without_state(at, update, a["gpus"] if zero > 1 else 1, gone)


def has_float32_gradients(a: Mapping[str, Any]) -> bool:
    """Whether the host has them so, and the card none, once they are reduced: DeepSpeed's stages 2 and 3."""
    return a["sharding_by"] != "fsdp2" and a["zero"] in ("2", "3")


def host_bytes(a: Mapping[str, Any], stack: Stack, kind: str) -> dict[str, int]:
    """What the memory of a host has to hold of its GPUs, as flops_bytes.plan.training.host_bytes() has it."""
    if a["offload"] == "no":
        return {}
    each, trained = RECIPES["fp32" if a["lora"] else a["recipe"].replace("-", "_")], trained_of(a, stack, kind)
    shards, weights = a["gpus"] if a["zero"] != "0" else 1, 0
    if a["offload"] == "all":
        lines = peak({**a, "offload": "no"}, stack, kind)[1]
        weights = shards * (lines["weights"] + lines.get("adapters", 0))
    moments = two_moments_bytes(a, stack, trained)
    in_float32 = has_float32_gradients(a)
    return on_host(each, trained, moments, weights, in_float32, min(a["gpus"], a["node_gpus"]), shards)


def methods_of(a: Mapping[str, Any], stack: Stack, kind: str, memory_bytes: float) -> list[dict[str, Any]]:
    return methods(dict(a), lambda each: sum(peak(each, stack, kind)[1].values()), memory_bytes)


def most_held(a: Mapping[str, Any], stack: Stack, kind: str, memory_bytes: float) -> dict[str, Any]:
    """What a GPU holds, and what would fit."""

    def needs(**change: Any) -> int:
        return sum(peak({**a, **change}, stack, kind)[1].values())

    def missing(**change: Any) -> float:
        return needs(**change) - memory_bytes

    refuse_wide_rank(a["lora"], stack.d_model)
    moment, lines = peak(a, stack, kind)
    too_few = largest(lambda gpus: 0.5 - missing(gpus=gpus), 2**20)  # half a byte: bytes are whole
    alone = missing(gpus=1, zero="0", sharding_by="fsdp2", reduce_bucket=None)  # without anything that shards
    fewest = 1 if alone <= 0 else 1 + too_few
    adapted = trained_of(a, stack, kind) if a["lora"] else 0
    recipe, zero = a["recipe"].replace("-", "_"), int(a["zero"])
    sent = sent_bytes(stack, recipe, a["gpus"], zero, a["accumulation"], adapted, a["base"])
    return {
        "memory_bytes": lines | {"total": sum(lines.values())},
        "peaks_at": moment,
        "host_bytes": host_bytes(a, stack, kind),
        "largest_micro_batch": largest(lambda size: missing(micro_batch=size), 2**40),
        "longest_context": largest(lambda length: missing(context=length), 2**40),
        "fewest_gpus": fewest if fewest <= 2**20 else None,
        "zero_bytes": {stage: needs(zero=str(stage)) for stage in range(4)} if a["gpus"] > 1 else {},
        "sent_bytes": sent if a["gpus"] > 1 else {"reduced": 0, "gathered": 0},
        "methods": methods_of(a, stack, kind, memory_bytes),
    }


def derived(a: Mapping[str, Any], stack: Stack, kind: str, memory_bytes: float) -> tuple[str, dict[str, Any]]:
    """What a GPU holds; and why only at least, if so."""
    if why := why_of(a, stack, kind):
        return why, least(a, sum(parameters(stack).values()))
    return "", most_held(a, stack, kind, memory_bytes)


def train(a: Mapping[str, Any], stack: Stack, kind: str, beside: list[str]) -> dict[str, Any]:
    """What training takes, or takes at least, and how long, from options that are read."""
    gpu, gpus, recipe = read_gpu(a), a["gpus"], a["recipe"].replace("-", "_")
    peaks = gpu.peak_flop_per_second
    dtype = card_format(peaks, recipe, frozen=bool(a["lora"]))
    if dtype not in peaks:
        other = {"float32": "bf16-master", "float16": "autocast", "bfloat16": "autocast-fp16"}[dtype]
        raise ValueError(f"--recipe: {a['gpu']} multiplies no {dtype}; choose --recipe {other}, or another --gpu")
    refuse_together(a, stack, peaks)
    counts = parameters(stack)
    total = sum(counts.values())
    why, held = derived(a, stack, kind, gpu.memory_bytes)
    needs_bytes = held["memory_bytes"]["total"]
    fused = a["attention"] == "fused"
    trained = total if why else trained_of(a, stack, kind)
    adapters = trained if a["lora"] and not why else 0
    flops = {
        name: token_flops(
            stack, a["context"], name == "causal", fused, again_of(a, stack, kind, name == "causal"), adapters
        )
        for name in ("all", "causal")
    }
    own = flops[a["pairs"]]
    step_tokens = gpus * a["micro_batch"] * a["accumulation"] * a["context"]
    rate = peaks[dtype]
    if a["matmuls"] != "as-recipe":
        forward = forward_flops(stack, a["context"], causal=a["pairs"] == "causal")
        _, rate = fp8_rate(forward, peaks[dtype], peaks[FORMATS[a["matmuls"]].peak])
    at_the_peak = 1 / training_seconds(own["model"], gpus, rate, mfu=1)  # tokens a second
    told = next((name for name in SPEEDS if a[name]), None)
    kept = (own["device"] - own["again"]) / own["device"]  # an assumed MFU is of steps that compute nothing again
    rates = {"step_seconds": step_tokens / (a["step_seconds"] or 1), "tokens_per_second": a["tokens_per_second"]}
    rates |= {"mfu": (a["mfu"] or 0) * at_the_peak}
    tokens_per_second = rates[told] if told else STEP_MFU * kept * at_the_peak
    mfu = tokens_per_second / at_the_peak
    hfu = mfu * own["device"] / own["model"]
    if hfu > 1 and told:
        raise ValueError(f"--{told.replace('_', '-')}: the GPUs would do {hfu:.3g} times their peak; check it")
    text = read_text(a, stack.vocab)
    to_train_on = text["tokens"] if text else a["tokens"]
    costs = cost(dict(a), to_train_on, tokens_per_second)
    holds_all = any(isinstance(layer.mlp, Experts) for layer, _ in stack.layers)
    estimated = {
        f"activations: not derived ({why})": bool(why),
        "sharding": gpus > 1,
        "time of communication: left out": gpus > 1,
        "experts: all of a layer on each GPU": holds_all and gpus > 1,
        "experts: without adapters": holds_all and adapters > 0,
        "8-bit state": a["optimizer"][-4:] == "8bit",
        "offload": a["offload"] != "no" or a["optimizer"][:5] == "paged",
        "state in few bits": a["optimizer"] == "adamw-4bit" or a["optimizer"] == "adamw-fp8",
        "fp8 copies": a["matmuls"] != "as-recipe",
    }
    return (
        held
        | {
            "parameters": counts | totals(stack) | {"trained": trained},
            "trained": a["trained"],
            "gpu_bytes": gpu.memory_bytes,
            "gpu_bytes_are": capacity_source(a),
            "headroom_bytes": gpu.memory_bytes - needs_bytes,
            "cache_bytes": cache_bytes(stack, a["context"]),
            "flops_a_token": flops,
            "step_tokens": step_tokens,
            "step_seconds": step_tokens / tokens_per_second,
            "tokens_per_second": tokens_per_second,
            "mfu": mfu,
            "mfu_is_assumed": not told,
            "assumed_mfu": None if told else STEP_MFU,
            "by_mfu": [] if told else booked(dict(a), to_train_on, lambda mfu: mfu * kept * at_the_peak),
            "hfu": hfu,
            "training_flops": own["model"] * costs["tokens"] if costs["tokens"] else None,
            "currency": a["currency"],
            "estimated": [name for name, is_so in estimated.items() if is_so] + beside,
        }
        | judged(a, needs_bytes, gpu.memory_bytes)
        | {"kind": ""}  # of published readings there are none
        | ({"fits": None, "verdict": None} if why and needs_bytes <= gpu.memory_bytes else {})
        | costs
    )


# --8<-- [end:training]
