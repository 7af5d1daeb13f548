"""What is asked of the planner when it is checked: options drawn at random, each of its values as likely as another.

What is not drawn stands in two tables with its reason: options that a step without data and without a second process
has none of, and pairs of which one makes the other impossible to count. There a plan is unchecked.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from flops_bytes.model.shapes import KNOWN, SHAPES, Decoder
from flops_bytes.plan.options import OPTIONS, belongs, named_shape

SOURCES = {"model": 1, "config": 14, "shape": 12}  # of which one is given, and how often; named models are deep
COUNTS = {"accumulation": 4, "checkpoint_every": 3, "chunks": 16, "lora": 64, "micro_batch": 16}  # the most
CHOSEN = ("recipe", "attention", "layers", "checkpointing", "loss", "lora_on", "base", "optimizer", "update")
DRAWN = (*SOURCES, *COUNTS, *CHOSEN, "context", "dropout")
# Counted by tests alone, so that the draws of what is published stay as they were:
UNDRAWN = {
    "optimizer": ("muon", "adafactor", "adamw-bf16", "adamw-4bit", "adamw-fp8"),
    "update": ("in-backward",),
}
NOT_TOGETHER = {  # of which one would be refused
    "adapters": "GPT-2's one matrix of queries, keys and values; experts; --checkpointing per-op, of which they change "
    "what every second matmul is",
    "experts": "--checkpointing per-op; float32 weights, since transformers multiplies experts in 16 bits alone",
    "--layers fused": "biases of a Llama, norms of heads, experts, a GPT-2 with a head of its own: no module here",
    "a context": "fewer learned positions",
}
NOT_COUNTED = {
    "tensors without data lie on no GPU": ("gpu", "gpu_memory", "gpu_peak"),
    "one process sends nothing": (
        *("gpus", "zero", "link", "node_gpus", "network_cards", "tensor_parallel", "pipeline_parallel"),
        *("sharding_by", "reduce_bucket"),
    ),
    "accumulation by another name": ("global_batch",),
    "no optimizer runs on the host here": ("offload",),
    "a packed matrix here keeps what bitsandbytes' of today does": ("quantized_by", "reentrant"),
    "an adapter here multiplies what its matrix does, as it is": ("lora_inputs", "lora_dropout"),
    "this book's and transformers' modules make queries, keys and values apart": ("qkv_made",),
    "what an allocator does with tensors, and what lies beside it": ("allowance", "lengths", "alloc_conf"),
    "a rank and a base by another name": ("trained",),
    "time, data and money, of which a step without data has none": (
        *("tokens", "text", "language", "bytes_a_token", "days", "mfu", "tokens_per_second", "step_seconds", "price"),
    ),
    "PyTorch's counter knows no mask: all pairs": ("pairs",),
    "fp8 by tests alone, so that the draws of what is published stay as they were": ("matmuls",),
    "a step of training": ("task",),
}


def unknown_options() -> list[str]:
    """Options of training that are neither drawn nor named above."""
    named = {*DRAWN, *(name for names in NOT_COUNTED.values() for name in names)}
    return [name for name in OPTIONS if belongs(name, "train") and name not in named]


def between(chance: random.Random, low: float, high: float) -> int:
    """A whole number, each order of magnitude as likely."""
    return round(low * float((high / low) ** chance.random()))


def draw_shape(chance: random.Random, learned: bool, few: bool = False) -> Decoder:
    """GPT-2's kind with learned positions, or Llama's without: round and odd sizes, few layers, since each is alike.

    With `few` words, inner features and queries for a key, so that nothing else hides what its attention holds.
    """
    layers, vocab = chance.randint(1, 3), between(chance, 300 if few else 1_000, 3_000 if few else 200_000)
    if chance.random() < 0.3:  # the widths of a model that people train
        published = [shape for shape in SHAPES.values() if bool(shape.positions) == learned and shape.experts == 1]
        return replace(chance.choice(published), layers=layers)
    head_dim, kv_heads = chance.choice((32, 40, 64, 96, 128)), between(chance, 1, 16)
    heads = kv_heads if learned or few else kv_heads * between(chance, 1, 8)
    wide = heads * head_dim
    d_model = wide if learned else 8 * between(chance, max(wide, 256) / 16, max(wide, 256) / (8 if few else 4))
    return Decoder(
        layers=layers,
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        d_ff=between(chance, d_model, (1.5 if few else 6) * d_model),
        vocab=vocab,
        positions=2**15 if learned else 0,
        tied=learned or chance.random() < 0.5,
        gated=not learned,
        biases=learned,
        norm_shift=learned,
    )


def written(shape: Decoder) -> str:
    """A shape as --shape takes it."""
    sizes = {name: int(value) for name, value in asdict(shape).items()}
    return " ".join(f"{name}={size}" for name, size in sizes.items() if size or name == "gated")  # which is the default


def configuration(chance: random.Random, kind: str) -> dict[str, Any]:
    """A shape as transformers' config.json says it."""
    shape = draw_shape(chance, kind == "gpt2", few=kind == "qwen3" and chance.random() < 0.6)
    tied = chance.random() < 0.5
    found: dict[str, Any] = {"model_type": kind, "vocab_size": shape.vocab, "tie_word_embeddings": tied}
    if kind == "gpt2":
        sizes = {"n_embd": shape.d_model, "n_layer": shape.layers, "n_head": shape.heads, "n_inner": shape.d_ff}
        return found | sizes | {"n_positions": shape.positions}
    even = shape.heads * max(1, round(shape.d_model / shape.heads))  # as transformers' Llama wants it
    found |= {
        "hidden_size": even if kind == "llama" else shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
    }
    if kind == "llama" and chance.random() < 0.3:
        found |= {"attention_bias": True, "mlp_bias": True}
    if kind in ("mistral", "mixtral"):
        found["sliding_window"] = None
    if kind == "mixtral":
        found["intermediate_size"] += -shape.d_ff % 8  # a row of 16 bytes, as grouped products want it
        experts = chance.randint(2, 8)
        found |= {"num_local_experts": experts, "num_experts_per_tok": chance.randint(1, min(experts, 3))}
    return found


def mend(chance: random.Random, asked: dict[str, Any]) -> None:
    """What nothing here can count becomes what can be: see NOT_TOGETHER."""
    shape = named_shape({"model": None, "config": None, "shape": None} | asked)
    gpt2, experts = shape.norm_shift, shape.experts > 1
    asked["context"] = min(asked["context"], shape.positions or asked["context"])
    if shape.qkv_biases or shape.head_norms or experts or shape.biases != gpt2 or (gpt2 and not shape.tied):
        asked["layers"] = "composed"
    if gpt2 or experts or asked["checkpointing"] == "per-op":
        asked.pop("lora", None)
    if experts and asked["checkpointing"] == "per-op":
        asked["checkpointing"] = chance.choice(("none", "selective", "full"))
    if experts and asked["recipe"] not in ("bf16", "bf16-master"):
        asked["recipe"] = chance.choice(("bf16", "bf16-master"))


def draw(chance: random.Random) -> dict[str, Any]:
    """What is asked: one model, and a value of each option that is drawn."""
    asked: dict[str, Any] = {}
    (source,) = chance.choices(list(SOURCES), list(SOURCES.values()))
    if source == "model":
        asked["model"] = chance.choice([name for name, shape in SHAPES.items() if shape.layers <= 16])
    elif source == "config":
        asked["config"] = configuration(chance, chance.choice((*KNOWN, "qwen3")))
    else:
        asked["shape"] = written(draw_shape(chance, chance.random() < 0.5))
    for name in DRAWN:
        kind = OPTIONS[name].kind
        if isinstance(kind, tuple):
            asked[name] = chance.choice([value for value in kind if value not in UNDRAWN.get(name, ())])
        elif name in COUNTS and chance.random() < 0.5:  # else its default: 1, or none
            asked[name] = between(chance, 1, COUNTS[name])
    longest = 8_192 if asked["attention"] == "eager" else 32_768
    if source == "model":
        longest = min(longest, SHAPES[asked["model"]].positions or longest)
    asked["context"] = between(chance, 32, longest)
    asked["dropout"] = chance.choice((None, 0, 0.1))
    mend(chance, asked)
    if "lora" not in asked:
        del asked["lora_on"], asked["base"]  # there is nothing that they would change
    if asked["checkpointing"] != "full":
        asked.pop("checkpoint_every", None)
    if asked["loss"] not in ("plain", "chunked"):
        asked.pop("chunks", None)
    return asked


def values(asked: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Of each option the value that was drawn, a number as one or many."""
    for name in DRAWN:
        if name in SOURCES:
            if name in asked:
                yield "kind", asked["config"]["model_type"] if name == "config" else name
        elif name in COUNTS:
            yield name, "none" if name not in asked else "1" if asked[name] == 1 else "more"
        elif name in asked and name != "context":
            yield name, str(asked[name])


def all_values() -> set[tuple[str, str]]:
    """What has to occur if enough is drawn."""
    found = {("kind", kind) for kind in (*KNOWN, "model", "shape")}
    for name in DRAWN:
        kind = OPTIONS[name].kind
        if isinstance(kind, tuple):
            found |= {(name, value) for value in kind if value not in UNDRAWN.get(name, ())}
        elif name in COUNTS:
            found |= {(name, "none"), (name, "more")}
    return found | {("dropout", value) for value in ("None", "0", "0.1")}
