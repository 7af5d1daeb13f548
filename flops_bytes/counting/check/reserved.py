"""What PyTorch's own allocator reserves for a step that is drawn: run on this machine's card, as people run it.

`python -m flops_bytes.counting.check.reserved --draws 10 --seed 1` prints a line of JSON a step: what is asked of the
planner, the lengths of its micro-batches if they differ, and the highest counts of the allocator in a process of its
own. It needs peft beside what the checkout has. Models have the widths of ones that people train, and few layers.
"""

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

from flops_bytes.counting.check.count import ADAPTED, BFLOAT16, IN_FLOAT32, Made, Uncountable, go, ours, theirs
from flops_bytes.counting.check.draw import between, written
from flops_bytes.model.presets import PRESETS
from flops_bytes.model.shapes import SHAPES, Decoder
from flops_bytes.plan import plan_exactly
from flops_bytes.plan.options import has_dropout, named_shape, read_options

STEPS = 3  # where all are alike: the second is the first that finds AdamW's state
LIMIT_SECONDS = 300  # of a process
NEAR = 1.01  # the least capacity that does, over one that does not
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


CONFIGS = (  # which transformers' modules run
    *("smollm2-360m", "smollm2-1.7b", "tinyllama-1.1b", "llama-3.2-3b", "llama-2-7b", "yi-6b", "mistral-7b-v0.3"),
    *("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b"),
)
NAMED = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "llama-3.2-1b", "llama-3-8b", "mistral-7b")  # which both do
MOST_LAYERS, MOST_TOKENS, MOST_SCORES = 32, 2**14, 2**11  # of a model, a micro-batch, and a context with scores
LOSSES = ("plain", "logits-held", "float32-held", "shifted", "as-logits", "chunked")
MICRO_BATCHES = (12, 24)  # the fewest and the most, where lengths differ


class Question(NamedTuple):
    """What is asked of the planner, and of what length each micro-batch is."""

    asked: dict[str, Any]
    lengths: list[int]


def draw_model(chance: random.Random) -> tuple[dict[str, Any], int]:
    """One of transformers' configurations, or a shape for either's modules; and its learned positions, if any."""
    if chance.random() < 0.5:
        config = PRESETS[chance.choice(CONFIGS)].config
        layers = min(between(chance, 2, MOST_LAYERS), config["num_hidden_layers"])
        return {"config": {**config, "num_hidden_layers": layers}, "layers": "composed"}, 0
    name = chance.choice(NAMED)
    shape, layers = SHAPES[name], between(chance, 2, MOST_LAYERS)
    whole = shape.layers <= MOST_LAYERS // 2 and chance.random() < 0.5
    model = {"model": name} if whole else {"shape": written(replace(shape, layers=min(layers, shape.layers)))}
    return model | {"layers": chance.choice(("fused", "fused", "composed"))}, shape.positions


def draw(chance: random.Random, differ: bool | None = None) -> Question:
    """A step that a card can run; of many lengths if they `differ`, a third of all if nothing says it."""
    asked, positions = draw_model(chance)
    asked["recipe"] = chance.choice(("bf16", "autocast", "fp32", "bf16-master"))
    asked["attention"] = "eager" if chance.random() < 0.125 else "fused"
    asked["dropout"] = chance.choice((0, 0, 0.1)) if asked["layers"] == "composed" else 0
    asked["checkpointing"] = chance.choice(("none", "none", "full", "full", "per-op"))
    if not positions and chance.random() < 0.4:
        asked |= {"lora": chance.choice((8, 16, 64)), "lora_on": chance.choice(("all", "attention", "query-value"))}
        asked |= {"lora_inputs": inputs_of_adapters(asked["recipe"]), "lora_dropout": chance.choice(("no", "yes"))}
        asked["checkpointing"] = asked["checkpointing"].replace("per-op", "full")
    if asked["checkpointing"] == "full":
        asked["checkpoint_every"] = chance.choice((1, 1, 1, 2))
    asked["loss"] = chance.choice((*LOSSES, "plain", "plain", "plain", "chunked"))
    if asked["loss"] == "chunked":
        asked["chunks"] = chance.choice((4, 8, 16))
    asked |= {"optimizer": "adamw", "update": chance.choice(("fused", "foreach"))}
    has_scores = asked["attention"] == "eager" or asked["recipe"] == "fp32"
    context = between(chance, 256, 8_192) if chance.random() < 0.5 else 2 ** chance.randint(8, 13)
    asked["context"] = min(context, positions or context, MOST_SCORES if has_scores else context)
    asked["micro_batch"] = min(chance.choice((1, 1, 2, 3, 4, 8)), MOST_TOKENS // asked["context"])
    asked["accumulation"] = chance.choice((1, 4))
    differs = chance.random() < 1 / 3
    if not (differs if differ is None else differ):
        return Question(asked, [asked["context"]] * STEPS * asked["accumulation"])
    steps = chance.randint(*(most // asked["accumulation"] for most in MICRO_BATCHES))
    sizes = (chance.randint(asked["context"] // 8, asked["context"]) for _ in range(steps * asked["accumulation"]))
    return Question(asked, list(sizes))


def inputs_of_adapters(recipe: str) -> str:
    """What peft's adapters, which are in float32, multiply beside frozen weights of 16 bits and of 32."""
    return "as-activations" if recipe in IN_FLOAT32 else "float32"


RUNS: dict[str, tuple[tuple[Any, ...], str]] = {  # by option the values that run here, and what else would need
    "gpus": ((1,), "other cards"),
    "recipe": (("bf16", "autocast", "fp32", "bf16-master"), "a loss scaler, which asks for numbers"),
    "matmuls": (("as-recipe",), "torchao"),
    "checkpointing": (("none", "full", "per-op"), "an attention that transformers has no name for"),
    "reentrant": (("no",), "reentrant checkpoints"),
    "loss": (LOSSES, "a compiler, or Liger's kernel"),
    "base": (("as-recipe",), "bitsandbytes"),
    "optimizer": (("adamw",), "another optimizer"),
    "update": (("fused", "foreach"), "hooks of each gradient"),
    "offload": (("no",), "an optimizer on the host"),
    "qkv_made": (("apart",), "LitGPT's modules"),
}


def refuse(asked: dict[str, Any], shape: Decoder) -> None:
    """Raises Uncountable for a question, whose options are read, that does not run here."""
    for name, (values, needed) in RUNS.items():
        if asked[name] not in values:
            raise Uncountable(f"--{name.replace('_', '-')} {asked[name]} needs {needed}")
    if shape.experts > 1:
        raise Uncountable("a router's choices depend on numbers")
    if asked["layers"] == "fused" and has_dropout(asked, shape):
        raise Uncountable("this book's modules have no dropout")
    if asked["lora"]:
        if not find_spec("peft"):
            raise Uncountable("adapters need peft; install it")
        if shape.positions:
            raise Uncountable("GPT-2 makes queries, keys and values with one matrix")
        if asked["checkpointing"] == "per-op":
            raise Uncountable("adapters' matmuls change which of them is every second")
        if asked["lora_inputs"] != (inputs := inputs_of_adapters(asked["recipe"])):
            raise Uncountable(f"peft's adapters multiply {inputs}; give --lora-inputs {inputs}")


def make(asked: dict[str, Any], shape: Decoder) -> Made:
    """A model on the card, each weight in its format from the start; adapters are peft's."""
    torch.set_default_dtype(torch.float32 if asked["recipe"] in IN_FLOAT32 else BFLOAT16)
    builder = theirs if asked["layers"] == "composed" else ours
    made = builder(asked | {"lora": None}, shape, "cuda")
    torch.set_default_dtype(torch.float32)
    if asked["lora"]:
        from peft import LoraConfig, get_peft_model

        dropout = 0.05 if asked["lora_dropout"] == "yes" else 0.0
        names = list(ADAPTED[asked["lora_on"]])
        get_peft_model(made.model, LoraConfig(r=asked["lora"], lora_dropout=dropout, target_modules=names))
    return made


def words(asked: dict[str, Any], shape: Decoder, length: int) -> Tensor:
    """As a loader brings them."""
    return torch.randint(shape.vocab, (asked["micro_batch"], length)).to("cuda")


def train(asked: dict[str, Any], shape: Decoder, lengths: list[int]) -> Iterator[int]:
    """Steps of a trainer; yields the bytes that are reserved after each."""
    made = make(asked, shape)
    torch.cuda.empty_cache()  # a checkpoint's weights come one by one, and leave no holes
    weights = [weight for weight in made.model.parameters() if weight.requires_grad]
    has_masters = asked["recipe"] == "bf16-master" and not asked["lora"]
    masters = [weight.detach().float() for weight in weights] if has_masters else weights
    is_fused = asked["update"] == "fused"
    optimizer = torch.optim.AdamW(masters, fused=is_fused, foreach=not is_fused)
    for first in range(0, len(lengths), asked["accumulation"]):
        for length in lengths[first : first + asked["accumulation"]]:
            go(made, words(asked, shape, length), words(asked, shape, length), asked)
        if has_masters:
            for weight, master in zip(weights, masters, strict=True):
                master.grad, weight.grad = weight.grad.float(), None  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if has_masters:
            with torch.no_grad():
                for weight, master in zip(weights, masters, strict=True):
                    weight.copy_(master)
        yield torch.cuda.memory_reserved()


def run(question: Question, capacity: int | None = None) -> dict[str, Any]:
    """The highest counts of this process's allocator, whose `capacity` may be less than the card's; or why not."""
    try:
        asked = read_options(question.asked)
        shape = named_shape(asked)
        refuse(asked, shape)
        plan_exactly(**{"gpu": "H100 SXM"} | question.asked)
    except (Uncountable, ValueError) as refusal:
        return {"refused": str(refusal)}
    if not torch.cuda.is_available():
        return {"refused": "this machine has no CUDA device"}
    if capacity:
        torch.cuda.set_per_process_memory_fraction(capacity / torch.cuda.get_device_properties(0).total_memory)
    after, told = list[int](), {}
    try:
        for reserved in train(asked, shape, question.lengths):
            after.append(reserved)
    except Uncountable as refusal:
        return {"refused": str(refusal)}
    except torch.OutOfMemoryError as error:
        told = {"message": str(error)}
    stats = torch.cuda.memory_stats()
    found = {name: stats[f"{name}.all.peak"] for name in COUNTS}
    found |= {name: stats[name] for name in ("num_alloc_retries", "num_ooms")} | {"reserved_after_steps": after}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return found | told | versions | {"device": torch.cuda.get_device_name()}


def in_a_process(question: Question, capacity: int | None = None) -> dict[str, Any]:
    """The same in a process of its own, whose allocator is empty."""
    kind = multiprocessing.get_context("fork")  # what is imported already need not be once more
    here, there = kind.Pipe()
    process = kind.Process(target=lambda: there.send(run(question, capacity)), daemon=True)
    began = time.perf_counter()
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv() if here.poll(LIMIT_SECONDS) else {"refused": f"takes {LIMIT_SECONDS} s"}
    except EOFError:
        process.join()
        found = {"refused": f"its process ended with {process.exitcode}"}
    process.kill()
    process.join()
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def least(question: Question) -> dict[str, Any]:
    """The counts of the run with the least capacity that does, within NEAR, and the most that does not.

    Reserved bytes do, and fewer than the allocated ones do not; between them it is bisected.
    """
    found = in_a_process(question)
    if "refused" in found or "message" in found:
        return found
    dies, lives = found["allocated_bytes"], found["reserved_bytes"]
    more = {"whole_card": {name: found[name] for name in COUNTS}}
    while lives / dies > NEAR:
        middle = (dies + lives) // 2
        tried = in_a_process(question, middle)
        if "refused" in tried:
            return tried
        dies, lives, found = (middle, lives, found) if "message" in tried else (dies, middle, tried)
    return found | more | {"capacity": lives, "too_small_capacity": dies}


def main(arguments: list[str]) -> int:
    """Draws, runs, and prints a line each."""
    parser = argparse.ArgumentParser(prog="python -m flops_bytes.counting.check.reserved")
    parser.add_argument("--seed", type=int, default=0, help="of the draws: the same seed draws the same")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--lengths", action="store_true", help="all have sequences of many lengths, not a third")
    parser.add_argument("--least", action="store_true", help="with the least capacity that does, by bisection")
    asked = parser.parse_args(arguments)
    chance = random.Random(asked.seed)
    for turn in range(asked.draws):
        question = draw(chance, True if asked.lengths else None)
        differ = {"lengths": question.lengths} if len(set(question.lengths)) > 1 else {}
        steps = len(question.lengths) // question.asked["accumulation"]
        told = {"seed": asked.seed, "turn": turn, "asked": question.asked, "steps": steps} | differ
        print(json.dumps(told | (least if asked.least else in_a_process)(question)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
