"""What a step of a model whose layers differ takes, counted of transformers' own modules without memory, by kind.

`python -m flops_bytes.counting.check.kinds --draws 100` draws sizes and options and tells how far off the derived
bytes are, by kind and by option.
"""

import argparse
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM

from flops_bytes.counting.check.count import (
    AUTOCAST,
    BFLOAT16,
    DROPOUT_SHARE,
    Counter,
    Made,
    adapt,
    as_on_cuda,
    as_transformers,
    forget,
    go,
    multiply_in_few_bits,
)
from flops_bytes.lessons.models import again
from flops_bytes.memory.adapters import FORMATS
from flops_bytes.memory.layers import FAMILIES, Adapters, ModelFamily
from flops_bytes.memory.step import StepConfig, step_bytes
from flops_bytes.model.config import read_stack
from flops_bytes.model.stack import Stack

logging.getLogger("transformers").setLevel(logging.ERROR)  # small vocabularies lack the tokens that end a text

Config = dict[str, Any]
DROPOUT = ("attention_dropout", "residual_dropout", "resid_pdrop", "embd_pdrop")  # by which configurations say it


def any_width(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: Any) -> Tensor:
    """The kernel that takes values narrower than keys."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (k, v))
    found: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True)[0]
    return found


AttentionInterface.register("any_width", as_transformers(any_width))
AttentionInterface.register("any_width_again", as_transformers(again(any_width)))


def has_experts(config: Config) -> bool:
    return "num_experts_per_tok" in config


def made(kind: str, config: Config, asked: Config, device: str) -> Any:
    """Transformers' module, with weights of one type."""
    fused = "any_width" if "kv_lora_rank" in config else "one_kernel"
    attention = fused if asked["attention"] == "fused" else "eager"
    attention += "_again" if asked["checkpointing"] == "selective" else ""
    more = {"experts_implementation": "grouped_mm"} if has_experts(config) else {}
    known = vars(CONFIG_MAPPING[kind]()).keys()
    options: Config = {"pad_token_id": 0, **config}
    options |= {name: DROPOUT_SHARE if asked["dropout"] else 0.0 for name in DROPOUT if name in known}
    dtype = BFLOAT16 if asked["recipe"].startswith("bf16") else torch.float32
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            CONFIG_MAPPING[kind](**options), attn_implementation=attention, dtype=dtype, **more
        )
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model.train()


@contextmanager
def masked(model: Any, batch: int, tokens: int, attention: str, device: str) -> Iterator[None]:
    """As large as eager attention's own, which ask what a tensor on meta cannot answer."""
    written, dtype = sys.modules[type(model).__module__], next(model.parameters()).dtype

    def mask(**told: Any) -> Tensor | None:
        return torch.zeros(batch, 1, tokens, tokens, dtype=dtype, device=device) if attention == "eager" else None

    with ExitStack() as patches:
        for name in ("create_causal_mask", "create_sliding_window_causal_mask"):
            if hasattr(written, name):
                patches.enter_context(patch.object(written, name, mask))
        yield


def reenter(blocks: Any, every: int) -> None:
    """Reentrant checkpointing, which takes no arguments by name."""

    def entering(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def entered(x: Tensor, **named: Any) -> Tensor:
            found: Tensor = checkpoint(partial(forward, **named), x, use_reentrant=True, preserve_rng_state=False)
            return found

        return entered

    for block in blocks[::every]:
        block.forward = entering(block.forward)


DEFAULTS: Config = {
    "batch": 1,
    "attention": "fused",
    "checkpointing": "none",
    "recipe": "bf16",
    "accumulated": False,
    "adapters": None,
    "base": "as-recipe",
    "loss": "plain",
    "chunks": 1,
    "every": 1,
    "reentrant": False,
    "dropout": False,
    "matmuls": "as-recipe",
    "update": "fused",
}


def counted(kind: str, config: Config, tokens: int, trace: Counter | None = None, **told: Any) -> int:
    """The peak of a step, on tensors without data, and in a `trace` all else that it counts."""
    asked, trace = DEFAULTS | told, trace or Counter()
    adapters, recipe = asked["adapters"], asked["recipe"].replace("_", "-")
    is_cast = recipe in AUTOCAST
    device = "cpu" if is_cast else "meta"
    asked |= {"recipe": recipe, "checkpoint_every": asked["every"]}
    with FakeTensorMode() if is_cast else nullcontext():
        model = made(kind, config, asked, device)
        blocks = model.base_model.layers
        if adapters:
            named = {"lora": adapters.rank, "lora_on": adapters.target_modules}
            adapt(model, blocks, asked | named | {"checkpointing": "none"})
        if asked["matmuls"] != "as-recipe":
            multiply_in_few_bits(blocks, FORMATS[asked["matmuls"]])
        if asked["reentrant"]:
            reenter(blocks, asked["every"])
            model.enable_input_require_grads() if adapters else None
        else:
            forget(asked, blocks)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        has_masters = recipe == "bf16-master" and not adapters
        masters = [weight.detach().float() for weight in weights] if has_masters else weights
        moments = [torch.zeros_like(master) for master in masters for _ in range(2)]
        words = torch.zeros(asked["batch"], tokens, dtype=torch.int64, device=device)
        targets = torch.zeros_like(words)
        for tensor in (*model.parameters(), *model.buffers(), *masters, *moments, words, targets):
            trace.hold(tensor.untyped_storage())
        if asked["update"] == "in-backward":
            for weight in weights:
                weight.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))

        def hidden(words: Tensor) -> Tensor:
            with masked(model, asked["batch"], tokens, asked["attention"], device):
                found: Tensor = model.base_model(input_ids=words, use_cache=False).last_hidden_state
            return found

        def missed(words: Tensor, targets: Tensor) -> Tensor:
            with masked(model, asked["batch"], tokens, asked["attention"], device):
                found: Tensor = model(input_ids=words, labels=targets, use_cache=False).loss
            return found

        head = model.get_output_embeddings()
        with trace, as_on_cuda(False):
            if asked["accumulated"]:
                for weight in weights:
                    weight.grad = torch.empty_like(weight)
            go(Made(model, hidden, head, missed, head.weight), words, targets, asked)
            if has_masters:
                for weight, master in zip(weights, masters, strict=True):
                    gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad  # fused: no sinks
                    master.grad, weight.grad, gradient = gradient.float(), None, None
            if asked["update"] == "foreach":
                torch._foreach_sqrt(moments[1::2])
        return trace.peak_bytes


def derived(kind: str, config: Config, tokens: int, **told: Any) -> tuple[Stack, ModelFamily, StepConfig, str]:
    """What the engine is asked for the same step: its model, how it runs, and how frozen matrices are held."""
    asked = DEFAULTS | told
    attention, dropout, matmuls = asked.pop("attention"), asked.pop("dropout"), asked.pop("matmuls")
    asked |= {"fused": attention == "fused", "dropout": (dropout, dropout), "matmul_format": FORMATS.get(matmuls)}
    base = asked.pop("base")
    return read_stack(config | {"model_type": kind}), FAMILIES[kind], StepConfig(tokens, **asked), base


def planned(kind: str, config: Config, tokens: int, **told: Any) -> int:
    """The peak, derived."""
    at = step_bytes(*derived(kind, config, tokens, **told))
    return max(sum(lines.values()) for lines in at.values())


def ratio(kind: str, config: Config, tokens: int, **told: Any) -> float:
    return planned(kind, config, tokens, **told) / counted(kind, config, tokens, **told)


ROUTED = ("deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1")
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
WINDOWED = ("gpt_oss", "gemma3_text", "olmo3", "mistral", "phi3")
WHOLE_HEADS = ("olmo2", "olmo3", "olmoe", "phi3", "llama", "qwen2_moe")  # as wide as the model, together


def configuration(chance: random.Random, kind: str) -> Config:
    """Sizes of a model of a kind: few layers, odd widths."""
    kv_heads, groups = chance.choice((1, 2, 3, 4)), chance.choice((1, 2, 4))
    head_dim = chance.choice((32, 48, 64, 96))
    heads = kv_heads * groups
    of_heads = heads * head_dim if kind in WHOLE_HEADS else heads * 16 if kind == "gemma3_text" else 16
    d_model = of_heads * (1 if kind in WHOLE_HEADS else -(-16 * chance.randint(8, 64) // of_heads))
    found: Config = {
        "hidden_size": d_model,
        "intermediate_size": 16 * chance.randint(8, 160),
        "num_hidden_layers": chance.randint(2 if kind == "glm4_moe_lite" else 1, 6),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": round(100 * 300 ** chance.random()),
        "tie_word_embeddings": chance.random() < 0.5,
    }
    found |= {} if kind in WHOLE_HEADS else {"head_dim": head_dim}
    found |= {"sliding_window": 64} if kind in WINDOWED else {}
    active = chance.randint(1, 3)
    experts: Config = {"num_experts_per_tok": active, "moe_intermediate_size": 16 * chance.randint(4, 48)}
    if kind in ("qwen3_moe", "qwen2_moe"):
        found |= experts | {"num_experts": 8}
        found |= {"shared_expert_intermediate_size": 16 * chance.randint(4, 48)} if kind == "qwen2_moe" else {}
    if kind == "olmoe":
        found |= {"num_experts_per_tok": active, "num_experts": 8}
    if kind in ("gpt_oss", "minimax_m2", "mixtral"):
        found |= {"num_experts_per_tok": active, "num_local_experts": 8}
    if kind == "minimax_m2":
        found |= {"rotary_dim": head_dim // 2}
    if kind in ROUTED:
        found |= experts | {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
        first = 1 if kind == "glm4_moe_lite" else chance.randint(0, found["num_hidden_layers"] - 1)
        found |= {"first_k_dense_replace": first}
        found |= {"sliding_window": None} if kind == "dots1" else {}
    if kind == "glm4_moe":
        found |= {"use_qk_norm": chance.random() < 0.5, "attention_bias": chance.random() < 0.5}
    if kind == "llama":
        found |= {"attention_bias": chance.random() < 0.5, "mlp_bias": chance.random() < 0.5}
    if kind in LATENT:
        found |= {"num_key_value_heads": heads, "q_lora_rank": chance.choice((None, 96)), "kv_lora_rank": 64}
        found |= {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": chance.choice((32, 48))}
        found.pop("head_dim", None)
    return found


LOSSES = ("plain", "compiled", "fused", "logits-held", "float32-held", "shifted", "as-logits")


def options(chance: random.Random, config: Config) -> Config:
    """How it is run: options that do not exclude each other."""
    experts = has_experts(config)
    found: Config = {
        "batch": chance.choice((1, 1, 2, 3)),
        "attention": chance.choice(("fused", "fused", "eager")),
        "checkpointing": chance.choice(("none", "selective", "per-op", "full", "full")),
        "recipe": chance.choice(("bf16", "bf16_master") if experts else ("bf16", "bf16_master", "fp32", "autocast")),
        "accumulated": chance.random() < 0.3,
        "loss": chance.choice((*LOSSES, "plain", "chunked")),
        "dropout": chance.random() < 0.3,
        "update": chance.choice(("fused", "foreach", "in-backward")),
    }
    if found["loss"] == "chunked":
        found |= {"loss": "plain", "chunks": chance.randint(2, 9)}
    if found["checkpointing"] == "full":
        found |= {"every": chance.choice((1, 1, 2, 3)), "reentrant": chance.random() < 0.25}
    if chance.random() < 0.35:
        four_bit = not experts and chance.random() < 0.5  # in the counter, experts are packed by nobody
        beside = chance.choice(("all", "attention", "query-value"))
        found |= {"adapters": Adapters(chance.choice((4, 8, 32)), beside, four_bit)}
        found |= {"base": chance.choice(("4bit", "4bit-double")) if four_bit else "as-recipe"}
    elif found["recipe"] in ("bf16", "bf16_master") and not experts and chance.random() < 0.3:
        found |= {"matmuls": chance.choice([*FORMATS])}
    if found["accumulated"] or found.get("chunks", 1) > 1 or found["recipe"] == "bf16_master" or "adapters" in found:
        found["update"] = "fused" if found["update"] == "in-backward" else found["update"]
    return found


def main(arguments: list[str]) -> int:
    """Draws, and prints how far off each is, and a table by kind and by option."""
    from flops_bytes.memory.step import SUPPORTED

    parser = argparse.ArgumentParser(prog="python -m flops_bytes.counting.check.kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--kind", choices=SUPPORTED, default=None)
    asked = parser.parse_args(arguments)
    chance = random.Random(asked.seed)
    kinds = [asked.kind] if asked.kind else [kind for kind in SUPPORTED if kind != "kimi_k2"]
    groups: dict[str, list[float]] = {}
    for _ in range(asked.draws):
        kind = chance.choice(kinds)
        config = configuration(chance, kind)
        told, tokens = options(chance, config), 32 * chance.randint(1, 24)
        off = ratio(kind, config, tokens, **told)
        print(f"{off:.5f} {kind} {tokens} {told} {config}", flush=True)
        values = [
            kind,
            *(f"{name} {value if name != 'adapters' else value.target_modules}" for name, value in told.items()),
        ]
        for value in ["all", *values]:
            groups.setdefault(value, []).append(abs(off - 1))
    for value, found in sorted(groups.items()):
        near, close = (sum(off <= limit for off in found) for limit in (0.0005, 0.01))
        print(f"{value:32} {len(found):5} {near:5} {close:5} {max(found):.4%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
