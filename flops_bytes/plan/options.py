"""What may be asked of the planner, and how it is read: numbers as people write them, or else what to mend."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from flops_bytes.memory.adapters import ADAPTED
from flops_bytes.memory.formulas import RECIPES
from flops_bytes.model.shapes import MOST_LAYERS, SHAPES, Decoder, abbreviated, decoder_from_config, quoted
from flops_bytes.model.tokens import BYTES_A_TOKEN, text_tokens
from flops_bytes.parallel.sharding import ring_rate
from flops_bytes.plan.software import QUANTIZERS, REDUCE_BUCKET, SHARDERS, refuse_contradictions
from flops_bytes.time.gpus import (
    GPUS,
    LINK_EFFICIENCY,
    LINKS,
    NODE_GPUS,
    REPORTED,
    THIRD_PARTY,
    TPUS,
    Gpu,
    capacity_bytes,
)


class Option(NamedTuple):
    """What may be asked: how it is read, what stands if it is not given, what it means."""

    kind: str | tuple[str, ...]  # a kind of number, or the words to choose from
    default: Any
    meaning: str


ROWS = GPUS | THIRD_PARTY | TPUS
OPTIONS = {
    "task": Option(
        ("train", "serve"), "train", "what to plan: a training, or inference for many users at once; rl: GRPO"
    ),
    "model": Option("text", None, f"one of {', '.join(SHAPES)}"),
    "config": Option("text", None, "instead: a decoder's config.json of Hugging Face, or what it holds"),
    "shape": Option("text", None, "instead: such as 'layers=32 d_model=4096 heads=32 …', the fields of Decoder"),
    "gpu": Option("text", None, f"one of {', '.join(ROWS)}"),
    "gpu_memory": Option("bytes", None, "instead, with --gpu-peak: a GPU's memory, such as 80GB"),
    "gpu_peak": Option("number", None, "FLOP/s of the type that the recipe multiplies in, dense, such as 989T"),
    "gpu_bandwidth": Option("bytes", None, "bytes a second of its memory, such as 3.35TB"),
    "gpus": Option("count", 1, "GPUs, each with sequences of its own; in serving they share each layer"),
    "link": Option(
        tuple(LINKS), None, "of a node's GPUs, or, in Gb/s, of its network cards; the card's own and 400 Gb/s"
    ),
    "node_gpus": Option("count", 8, "GPUs of a node, which its own links join; of GB200s 72, if not given"),
    "network_cards": Option("count", None, "of a node; if not given, one for each GPU"),
    "zero": Option(("0", "1", "2", "3"), "0", "ZeRO's stage; 3 is what fully_shard does"),
    "sharding_by": Option(
        SHARDERS,
        "fsdp2",
        "fsdp1: of frozen layers and their adapters each a unit, as peft's policy makes them in transformers' trainer; "
        "fsdp1-flat: both in one, as Lightning's; deepspeed-overlap: with its overlap_comm, which has two buckets",
    ),
    "reduce_bucket": Option("count", None, f"DeepSpeed's reduce_bucket_size, of numbers; {REDUCE_BUCKET // 10**6}M"),
    "context": Option(
        "length", 1_024, "tokens of a sequence, in serving those of each user: prompt and answer; 128k: 131,072"
    ),
    "micro_batch": Option("count", 1, "sequences that a GPU takes at once"),
    "accumulation": Option("count", 1, "micro-batches to a step"),
    "global_batch": Option("length", None, "instead: tokens of a step of all GPUs; 4M: 4,194,304"),
    "recipe": Option(tuple(name.replace("_", "-") for name in RECIPES), "bf16-master", "what training holds"),
    "matmuls": Option(
        ("as-recipe", "fp8", "fp8-kept", "mxfp8", "nvfp4"),
        "as-recipe",
        "of the layers; fp8: as torchao's Float8Linear, by tensor or by row, which keeps inputs in 16 bits; fp8-kept: "
        "as nanochat's, which keeps copies of 8 bits; mxfp8: torchao's, in 16 bits; nvfp4: torchao's, in 4 bits",
    ),
    "attention": Option(
        ("fused", "eager"), "fused", "fused: no scores are kept, but of fp32 where several queries share a key"
    ),
    "layers": Option(
        ("fused", "composed"), None, "composed: of PyTorch's operations, as in transformers, which --config plans"
    ),
    "dropout": Option("share", None, "0 for none; if not given, as --config says, and 0.1 for transformers' GPT-2"),
    "checkpointing": Option(
        ("none", "selective", "per-op", "full"),
        "none",
        "what is computed again instead of kept; selective: attention alone; per-op: all but every second matmul and "
        "attention, as torchtitan's selective",
    ),
    "checkpoint_every": Option("count", 1, "with --checkpointing full: of every second layer, or third"),
    "reentrant": Option(
        ("no", "yes"),
        "no",
        "with --checkpointing full: torch.utils.checkpoint's use_reentrant, the default of transformers before 5; it "
        "tells what --sharding-by fsdp1 and an older bitsandbytes hold",
    ),
    "loss": Option(
        ("plain", "logits-held", "float32-held", "shifted", "as-logits", "compiled", "chunked", "fused"),
        "plain",
        "plain: cross entropy of float32 logits; logits-held: a name still holds the model's own; float32-held: these "
        "in float32, as transformers' of 2024 made them; shifted: as transformers' 4.46 to 4.48, which copies all but "
        "the last; as-logits: in the format of the model's own; compiled: by torch.compile; chunked: "
        "head and loss in --chunks; fused: as Liger's fused linear cross entropy",
    ),
    "chunks": Option("count", 1, "parts in which head and loss are computed; 8 if --loss is chunked"),
    "trained": Option(
        ("all", "lora", "qlora", "qlora-double"),
        None,
        "all weights, or adapters beside frozen ones, in QLoRA in 4 bits; if not given, all weights where they fit",
    ),
    "lora": Option("count", None, "the rank of adapters beside frozen weights"),
    "lora_on": Option(ADAPTED, "all", "the matrices of a layer that get adapters"),
    "lora_inputs": Option(
        ("as-activations", "float32"),
        "as-activations",
        "what an adapter multiplies; float32: as peft without autocast, which casts each adapted matrix's input for it",
    ),
    "lora_dropout": Option(("no", "yes"), "no", "before adapters, whose inputs it makes anew"),
    "qkv_made": Option(
        ("apart", "one"),
        "apart",
        "queries, keys and values; one: of one matmul, whose whole result the values keep, as in LitGPT",
    ),
    "base": Option(
        ("as-recipe", "4bit", "4bit-double"),
        "as-recipe",
        "the frozen matrices; 4bit: QLoRA; double: its constants quantized too",
    ),
    "quantized_by": Option(
        QUANTIZERS,
        "bitsandbytes",
        "4 bits; bitsandbytes-0.43.1, or an older one, keeps the input of each matmul; torchao shards constants too",
    ),
    "optimizer": Option(
        (
            "adamw",
            "adamw-8bit",
            "paged-adamw",
            "paged-adamw-8bit",
            "muon",
            "adafactor",
            "adamw-bf16",
            "adamw-4bit",
            "adamw-fp8",
        ),
        "adamw",
        "8-bit: two bytes of moments a parameter; paged, as bitsandbytes': moments in the host's memory where the card "
        "has no room for them; muon: torch.optim.Muon for the matrices of dense layers, each on one of the GPUs that "
        "share weights; adafactor: torch.optim's; bf16: moments in bf16 beside wider weights; 4bit, fp8: torchao's",
    ),
    "update": Option(
        ("fused", "foreach", "in-backward"),
        "fused",
        "AdamW's implementation, but of 8 bits; foreach, PyTorch's default on GPUs, holds a temporary as large as "
        "what is trained, of Adafactor too, whose default is tensor by tensor; in-backward: each gradient's as it "
        "comes, as torchtune's optimizer_in_bwd",
    ),
    "offload": Option(
        ("no", "yes", "all"),
        "no",
        "master weights and moments in the host's memory; all: with --zero 3 weights and gradients too, as PyTorch's "
        "CPUOffloadPolicy, or DeepSpeed's offload_param",
    ),
    "allowance": Option(
        "bytes",
        None,
        "beside what PyTorch reserves: context, kernels, NCCL; if not given, as others' readings say",
    ),
    "lengths": Option(
        "text", None, "of sequences, cut at the context: packed, a range such as 64-2048, or a file of them, one a line"
    ),
    "alloc_conf": Option("text", None, "PYTORCH_ALLOC_CONF, such as expandable_segments:True"),
    "tokens": Option("count", None, "to train on, such as 15T, 15,000,000,000 or 15万亿; here 128k is 128,000"),
    "text": Option("bytes", None, "instead: bytes of text to train on, such as 60TB"),
    "language": Option(tuple(BYTES_A_TOKEN[256]), "en", "of the text"),
    "bytes_a_token": Option("number", None, "of the text, by your tokenizer; if not given, as this book measured"),
    "days": Option("number", None, "instead: how long it trains; beside them: in what time, which tells --gpus"),
    "mfu": Option("share", None, "share of the peak, 40% or 0.4; which is assumed if nothing says it"),
    "tokens_per_second": Option("number", None, "instead of --mfu: of all GPUs together"),
    "step_seconds": Option("number", None, "instead of --mfu: of a step of all GPUs"),
    "pairs": Option(("all", "causal"), "all", "attention's FLOPs: as papers count, or what the mask leaves"),
    "price": Option("money", None, "of a GPU for an hour; '$2.5' (in quotes) or ¥18 says the currency"),
    "weights": Option(("16bit", "8bit", "4bit"), "16bit", "served; 4bit: a scale of 16 bits for each 32 of them"),
    "cache": Option(("16bit", "8bit"), "16bit", "keys and values that are kept"),
    "users": Option("count", None, "served at once; as many as fit and are in time, if not given"),
    "latency": Option("number", None, "milliseconds that a token may take"),
    "prompt": Option(
        "length",
        None,
        "tokens of a prompt; the first token waits for it, and the others' tokens too; the context, if not given",
    ),
    "gpu_memory_utilization": Option(
        "share", 0.9, "of a GPU's memory, that the engine takes: vLLM's option, with vLLM's default of 0.9"
    ),
    "max_num_batched_tokens": Option(
        "length",
        None,
        "of one forward pass, for whose activations the engine keeps room: vLLM's option; if not given, as vLLM's "
        "server has it: 8k on cards from 70 GiB on but for A100s, else 2k",
    ),
    "tensor_parallel": Option("refused", None, "not planned here"),
    "pipeline_parallel": Option("refused", None, "not planned here"),
}
SHARED = ("task", "model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpus", "context", "allowance", "price")
SERVED: tuple[str, ...] = ("gpu_bandwidth", "weights", "cache", "users", "latency", "prompt")
SERVED += ("gpu_memory_utilization", "max_num_batched_tokens")
HANZI = {"千": 10**3, "万": 10**4, "百万": 10**6, "千万": 10**7, "亿": 10**8, "十亿": 10**9, "百亿": 10**10}
HANZI |= {"千亿": 10**11, "万亿": 10**12}
SPELLED = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "bn": 10**9}
SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "p": 10**15} | HANZI | SPELLED
WINDOWS = {"": 1, "k": 2**10, "m": 2**20} | HANZI | SPELLED  # of a context
BYTES = {"": 1, "B": 1, "kB": 10**3} | {f"{p}B": 10 ** (3 * n) for n, p in enumerate("KMGTP", 1)}
BYTES |= {f"{p}iB": 2 ** (10 * n) for n, p in enumerate("KMGTP", 1)}
CURRENCIES = {"$": "$", "US$": "$", "USD": "$", "美元": "$", "¥": "¥", "CNY": "¥", "RMB": "¥", "元": "¥"}
CURRENCIES |= {"DOLLARS": "$", "YUAN": "¥", "人民币": "¥"}
CURRENCIES |= {"€": "€", "EUR": "€", "欧元": "€", "£": "£", "GBP": "£"}
# What a number is of, in words that people write behind it, by the option or its kind: the longer ones first.
TOKEN_WORDS = ("tokens", "token", "个词元", "词元", "个")
GPU_WORDS = ("gpus", "gpu", "cards", "张卡", "张", "卡", "块", "x", "×")
NOUNS: dict[str, tuple[str, ...]] = {
    "gpus": GPU_WORDS,
    "node_gpus": GPU_WORDS,
    "network_cards": GPU_WORDS,
    "tokens": TOKEN_WORDS,
    "length": TOKEN_WORDS,
    "micro_batch": ("sequences", "条"),
    "users": ("users", "人", "个"),
    "days": ("days", "day", "d", "天"),
    "latency": ("ms", "毫秒"),
    "step_seconds": ("seconds", "s", "秒"),
    "tokens_per_second": ("tokens/s", "tok/s", "词元/秒", "/s"),
    "bytes_a_token": ("bytes", "字节"),
    "gpu_peak": ("flop/s", "flops/s", "flops"),
    "gpu_bandwidth": ("/s",),
    "share": ("per cent", "percent", "%"),
    "money": ("per gpu-hour", "per hour", "an hour", "/gpu-hour", "/gpu/hour", "/gpu/h", "/hour", "/hr", "/h"),
}
NOUNS["money"] += ("每卡时", "每小时", "/卡时", "/小时", "/时")
THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+", re.ASCII)
NUMBER = re.compile(  # what stands before it, its digits, its power of ten, its unit
    r"([^\d\.,+-]*)((?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,3}))?([^\d\.,]*)", re.ASCII
)
FULL_WIDTH = {0xFF01 + n: 0x21 + n for n in range(94)}  # as Chinese keyboards write ASCII
FULL_WIDTH |= {0x3000: 0x20, 0xFFE5: 0xA5, 0xFFE1: 0xA3}
EXAMPLES = {"bytes": "80GB, 80GiB", "count": "8", "length": "8192, 128k", "share": "40%, 0.4", "days": "14"}
EXAMPLES |= {"money": "2.5, $2.5, ¥18", "gpu_peak": "989T", "tokens": "100B, 15T"}
YES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
SMALLEST, LARGEST = "0.000001", "1e18"  # what lies beyond is a slip of the keyboard


def belongs(name: str, task: str) -> bool:
    """Whether an option is one of a task."""
    return name in SHARED or (name in SERVED) == (task == "serve")


def load_config(config: Any) -> Mapping[str, Any]:
    """What a config.json holds, from its path if it is one."""
    if isinstance(config, Mapping):
        return checked_config(config)
    try:
        text = Path(config).read_text(encoding="utf-8")
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(unreadable(config, error)) from None
    return parse_config(text, config)


def unreadable(config: Any, error: Any) -> str:
    return f"--config: {quoted(config)} cannot be read as JSON ({abbreviated(str(error))}); give a config.json"


def parse_config(text: str, config: Any) -> Mapping[str, Any]:
    """What a text holds, as transformers reads it: with Infinity and NaN, the last of two keys of one name."""
    text = text[1:] if text.startswith("\ufeff") else text  # with which Windows' editors begin a file
    try:
        content = json.loads(text) if text.strip() else {}
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(unreadable(config, error)) from None
    return checked_config(content)


def checked_config(config: Any) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        raise ValueError("--config: not an object in braces; give a decoder's config.json")
    if not config:
        raise ValueError("--config: it is empty; give a decoder's config.json")
    return config


def read_option(name: str, value: Any) -> Any:
    """An option as it is planned with, from a number or from what people write. Raises ValueError with the mend."""
    kind, flag = OPTIONS[name].kind, f"--{name.replace('_', '-')}"
    text = str(value).translate(FULL_WIDTH).strip()
    if kind == "refused":
        raise ValueError(f"{flag}: {name.replace('_', ' ')}ism is not planned here; leave it out, or shard with --zero")
    if kind == "text":
        if not text:
            raise ValueError(f"{flag}: it is empty; give it a value or leave it out")
        if name == "gpu":
            return row_name(text)
        return load_config(value) if name == "config" else text
    if isinstance(kind, tuple):
        if text.replace("_", "-") not in kind:
            raise ValueError(f"{flag}: {quoted(text)} is not known; choose {', '.join(kind)}")
        return text.replace("_", "-")
    mend = f"write it like {EXAMPLES.get(name, EXAMPLES.get(kind, '2.5'))}"
    match = NUMBER.fullmatch(text)
    if not match and "," in text:
        comma = f"in {quoted(text)} the comma can part decimals or thousands"
        raise ValueError(f"{flag}: {comma}; write 1.5 or 1,500")
    if not match or isinstance(value, bool):
        raise ValueError(f"{flag}: {quoted(text)} is not a number above 0; {mend}")
    before, power = match[1].strip(), int(match[3] or "0")
    unit = without_noun(match[4].strip(), NOUNS.get(name, NOUNS.get(kind, ())))
    if kind == "money" and currency(text):
        before, unit = "", unit if before else ""
    if before:
        raise ValueError(f"{flag}: {quoted(text)} is not a number above 0; {mend}")
    if kind == "bytes":
        unit = unit.upper().replace("IB", "iB") if unit.islower() else unit
        scale = BYTES.get(unit) if unit or not isinstance(value, str) else None
    else:
        scale = {"length": WINDOWS, "share": {"": 1}}.get(kind, SCALES).get(unit.lower())
    if scale is None:
        raise ValueError(f"{flag}: the unit of {quoted(text)} is missing or not known; {mend}")
    digits = match[2].replace(",", "")
    number = Decimal(f"{digits}e{power}") * scale
    if kind == "share" and (unit != match[4].strip() or number > 1):  # of a hundred, with its sign or without
        number = Decimal(f"{digits}e{power - 2}")
    if kind == "share" and number > 1:
        raise ValueError(f"{flag}: {quoted(text)} is more than the whole; a share lies between 0 and 1, {mend}")
    whole = kind in ("count", "length", "bytes")
    low = "0" if name in ("dropout", "price") else "1" if whole else "1e9" if name == "gpu_peak" else SMALLEST
    if not Decimal(low) <= number <= Decimal(LARGEST):
        raise ValueError(f"{flag}: {quoted(text)} does not lie between {low} and {LARGEST}; {mend}")
    if kind in ("count", "length") and number % 1:
        raise ValueError(f"{flag}: {quoted(text)} is not a whole number; {mend}")
    return int(number) if whole else float(number)


def without_noun(unit: str, nouns: tuple[str, ...]) -> str:
    """What stands behind a number, without the word that says of what it is."""
    noun = next((noun for noun in nouns if unit.lower().endswith(noun)), "")
    return unit[: len(unit) - len(noun)].strip()


def currency(price: Any) -> str | None:
    """The sign of the currency that a price is written in; None if it has none."""
    match = NUMBER.fullmatch(str(price).translate(FULL_WIDTH).strip())
    sign = (match[1].strip() or without_noun(match[4].strip(), NOUNS["money"])) if match else ""
    return CURRENCIES.get(sign.upper())


EXAMPLE: dict[str, Any] = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "tokens": "100B", "price": "$2.5"}
RANK = 16  # of adapters, if nobody says
BASES = {"qlora": "4bit", "qlora-double": "4bit-double"}
TRAINED = {"as-recipe": "lora", "4bit": "qlora", "4bit-double": "qlora-double"}  # by what the frozen weights are in
SPEEDS = ("mfu", "tokens_per_second", "step_seconds")  # each tells the others
LENGTHS = ("tokens", "text", "days")


def read_options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """All options, read, with what stands for those that were not given; what contradicts itself is refused."""
    if unknown := sorted(set(asked) - set(OPTIONS)):
        raise ValueError(
            f"--{abbreviated(unknown[0].replace('_', '-'))}: not an option; options are {', '.join(OPTIONS)}"
        )
    told = {name: value for name, value in asked.items() if value is not None}
    given = {name: option.default for name, option in OPTIONS.items()} | told
    a: dict[str, Any] = {name: None if value is None else read_option(name, value) for name, value in given.items()}
    a["currency"] = currency(given["price"])
    for name in told:
        if not belongs(name, a["task"]):
            other = "train" if a["task"] == "serve" else "serve"
            raise ValueError(f"--{name.replace('_', '-')}: it belongs to --task {other}; leave it out")
    if a["sharding_by"] == "fsdp2" and a["zero"] != "0" and a["gpus"] == 1:
        raise ValueError("--zero: one GPU has none to share with; give --gpus 2 or more, or --zero 0")
    read_trained(a)
    if (
        a["sharding_by"] != "fsdp2"
        or a["quantized_by"] != "bitsandbytes"
        or a["reduce_bucket"]
        or a["reentrant"] == "yes"
        or a["lora_inputs"] == "float32"
        or a["lora_dropout"] == "yes"
    ):
        refuse_contradictions(a)
    if a["base"] != "as-recipe" and not a["lora"]:
        raise ValueError("--base: what is trained cannot be frozen in 4 bits; give --lora a rank, or leave --base out")
    if a["lora_on"] != "all" and not a["lora"]:
        raise ValueError("--lora-on: there are no adapters; give --lora a rank, or leave --lora-on out")
    if a["checkpoint_every"] > 1 and a["checkpointing"] != "full":
        raise ValueError("--checkpoint-every: no whole layers are checkpointed; give --checkpointing full")
    if a["chunks"] > 1 and a["loss"] not in ("plain", "chunked"):
        raise ValueError(f"--chunks: --loss {a['loss']} has none of its own; leave one out")
    if a["loss"] == "chunked" and a["chunks"] == 1:
        a["chunks"] = 8
    if a["chunks"] > (tokens := a["micro_batch"] * a["context"]):
        raise ValueError(f"--chunks: {tokens} tokens have no {a['chunks']} parts; give {tokens} or fewer")
    a["layers"] = a["layers"] or ("composed" if a["config"] else "fused")
    if len(speeds := [name for name in SPEEDS if a[name]]) > 1:
        raise ValueError(f"--{speeds[1].replace('_', '-')}: --{speeds[0].replace('_', '-')} tells the speed; give one")
    if len(lengths := [name for name in LENGTHS if a[name]]) > 1:
        raise ValueError(f"--{lengths[1]}: --{lengths[0]} tells how long it trains; give one")
    if a["bytes_a_token"] and not a["text"]:
        raise ValueError("--bytes-a-token: there is no text; give --text its bytes")
    if "node_gpus" not in told and a["gpu"]:
        a["node_gpus"] = node_of(a["gpu"])
    if a["global_batch"]:
        if "accumulation" in told:
            raise ValueError("--global-batch: --accumulation tells the batch; give one")
        a["accumulation"] = accumulation_of_batch(a)
    return a


def node_of(gpu: str) -> int:
    """GPUs of a node of such cards, if nobody says."""
    usual: int = OPTIONS["node_gpus"].default
    return NODE_GPUS.get(gpu, usual)


def read_trained(a: dict[str, Any]) -> None:
    """What is trained by its name, its rank and its base, of which each tells the others. Raises ValueError."""
    named = a["trained"]
    if named == "all" and a["lora"]:
        raise ValueError("--lora: --trained all has no adapters; leave one out")
    if named and named != "all":
        base = BASES.get(named, "as-recipe")
        if a["base"] not in ("as-recipe", base):
            raise ValueError(f"--base: --trained {named} tells how the weights are frozen; give one")
        a["lora"] = a["lora"] or RANK
        a["base"] = base
    a["trained"] = TRAINED[a["base"]] if a["lora"] else "all"


def accumulation_of_batch(a: Mapping[str, Any]) -> int:
    """Micro-batches to a step, so that those of all GPUs are the global batch, to the nearest whole number of them."""
    batch_tokens: int = a["global_batch"]
    tokens_at_once: int = a["gpus"] * a["micro_batch"] * a["context"]
    if batch_tokens < tokens_at_once:
        fewer = "give it so many, or fewer GPUs, a smaller micro-batch or context"
        raise ValueError(f"--global-batch: a micro-batch on each GPU has {tokens_at_once} tokens already; {fewer}")
    return (2 * batch_tokens + tokens_at_once) // (2 * tokens_at_once)


def named_shape(asked: Mapping[str, Any]) -> Decoder:
    """A model by its name, by a configuration, or field by field."""
    given = [name for name in ("model", "config", "shape") if asked[name]]
    if len(given) != 1:
        raise ValueError(f"--model: give one of --model, --config, --shape, not {' and '.join(given) or 'none'}")
    return decoder_from_config(asked["config"], asked["context"]) if asked["config"] else shape_asked(asked)


def shape_asked(asked: Mapping[str, Any]) -> Decoder:
    """The same of a name, or of fields."""
    if name := asked["model"]:
        if name.lower() not in SHAPES:
            mend = f"choose {', '.join(SHAPES)}, or give --config or --shape"
            raise ValueError(f"--model: {quoted(name)} is not known; {mend}")
        return SHAPES[name.lower()]

    types = {field.name: field.type for field in fields(Decoder)}
    needed = tuple(types)[:7]
    told: dict[str, str] = dict(part.partition("=")[::2] for part in asked["shape"].replace(", ", " ").split())
    sizes: dict[str, Any] = {}
    for key in (*told, *needed):
        value, low = told.get(key, told.get("heads", "") if key == "kv_heads" else ""), 1 if key in needed else 0
        if key not in types:
            raise ValueError(f"--shape: {quoted(key)} is not a field; fields are {', '.join(types)}")
        if types[key] is bool:
            if value.lower() not in YES:
                raise ValueError(f"--shape: {key}={abbreviated(value)}; write yes or no")
            sizes[key] = YES[value.lower()]
            continue
        digits = value.replace(",", "") if THOUSANDS.fullmatch(value) else value
        if not (digits.isascii() and digits.isdigit() and low <= int(digits[:20])):
            raise ValueError(f"--shape: {key}={abbreviated(value)}; give a whole number")
        most = MOST_LAYERS if key == "layers" else 10**9 - 1
        if int(digits[:20]) > most:
            raise ValueError(f"--shape: {key}={abbreviated(value)} is more than is planned; give {most:,} or fewer")
        sizes[key] = int(digits)
    shape = Decoder(**sizes)
    if not 1 <= shape.active_experts <= shape.experts:
        raise ValueError("--shape: active_experts is more than experts, or 0")
    return shape


def has_dropout(asked: Mapping[str, Any], shape: Decoder) -> bool:
    """Whether masks are kept: as was asked, as the configuration says, as transformers' GPT-2 has it by default."""
    if asked["dropout"] is not None:
        return bool(asked["dropout"] > 0)
    config, of_gpt2 = asked["config"] or {}, shape.norm_shift and asked["layers"] == "composed"
    if of_gpt2:
        return any(config.get(key, 0.1) for key in ("attn_pdrop", "resid_pdrop", "embd_pdrop"))
    return bool(config.get("attention_dropout"))


def batched_tokens(asked: Mapping[str, Any], memory_bytes: float) -> int:
    """Tokens of whose forward pass an engine keeps room for activations: as was asked, or as vLLM's server does.

    https://github.com/vllm-project/vllm, vllm/engine/arg_utils.py, get_batch_defaults.
    """
    asked_tokens: int | None = asked["max_num_batched_tokens"]
    is_large = memory_bytes >= 70 * 2**30 and not (asked["gpu"] or "").lower().startswith("a100")
    return asked_tokens or (8_192 if is_large else 2_048)


READ_AS = {  # An option of this table is read as one of another table that has such a kind.
    "bandwidth": "gpu_bandwidth",
    "bytes": "allowance",
    "count": "accumulation",
    "length": "context",
    "share": "mfu",
}


def read_other(options: Mapping[str, Option], name: str, value: Any) -> Any:
    """An option of another table than OPTIONS, as it is planned with. Raises ValueError with the mend."""
    kind, flag = options[name].kind, f"--{name.replace('_', '-')}"
    if isinstance(kind, tuple):
        if value not in kind:
            raise ValueError(f"{flag}: {quoted(value)} is not known; choose {', '.join(kind)}")
        return value
    try:
        return read_option(READ_AS[kind], value)
    except ValueError as error:
        read_as = READ_AS[kind].replace("_", "-")
        raise ValueError(str(error).replace(f"--{read_as}", flag, 1)) from None


def read_gpu(asked: Mapping[str, Any]) -> Gpu:
    """The row of the table of peaks, or one made of the memory and the peak that were given instead.

    Its memory is what CUDA reports, where that is known.
    """
    own = [name for name in ("gpu_memory", "gpu_peak", "gpu_bandwidth") if asked[name]]
    if own and asked["gpu"]:
        raise ValueError(f"--{own[0].replace('_', '-')}: give it instead of --gpu, not beside it")
    if asked["gpu_memory"] and asked["gpu_peak"]:
        peaks = dict.fromkeys(("float32", "bfloat16", "float16"), asked["gpu_peak"])
        return Gpu((), asked["gpu_memory"], asked["gpu_bandwidth"] or 0, peaks, "")
    name = row_name(asked["gpu"] or "")
    return ROWS[name]._replace(memory_bytes=capacity_bytes(name, ROWS[name]))


def capacity_source(asked: Mapping[str, Any]) -> str:
    """Who says how much memory the card has: CUDA, its label, or who asks."""
    if not asked["gpu"]:
        return "asked"
    return "reported" if asked["gpu"] in REPORTED else "label"


def row_name(written: str) -> str:
    """A card as the table of peaks writes it."""
    rows = {name.lower().replace(" ", ""): name for name in ROWS}
    name = written.lower().replace(" ", "")
    if name not in rows:
        near = [row for short, row in rows.items() if name and name in short] or rows.values()
        ask = f"choose {', '.join(near)}, or give --gpu-memory and --gpu-peak"
        raise ValueError(f"--gpu: {quoted(written)} is not a row of the table of peaks; {ask}")
    return rows[name]


def links_of(asked: Mapping[str, Any]) -> tuple[str | None, str]:
    """The link inside a node, if it is known, and the one between nodes: as asked for, or else the card's own, and 400
    Gb/s. A --link in Gb/s is of the network cards if there are several nodes."""
    card, link = asked["gpu"] or "", asked["link"]
    own = next((name for name, row in LINKS.items() if card in row.cards), None)
    if link and link.endswith("Gb/s") and asked["gpus"] > asked["node_gpus"]:
        return own, link
    return link or own, "400 Gb/s"


def read_network(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The link that sets the pace between GPUs, the nodes, and bytes a second that each GPU sends in a collective."""
    gpus, node_gpus = asked["gpus"], asked["node_gpus"]
    nodes = -(-gpus // node_gpus)
    node_link, network_link = links_of(asked)
    if gpus == 1 or (nodes == 1 and not node_link):
        return None
    node_bytes_per_second = LINKS[node_link].bytes_per_second if node_link else 1e18
    bytes_per_second = ring_rate(
        gpus,
        node_bytes_per_second,
        LINKS[network_link].bytes_per_second,
        node_gpus,
        asked["network_cards"] or node_gpus,
    )
    return {
        "link": node_link if node_link and bytes_per_second == node_bytes_per_second else network_link,
        "nodes": nodes,
        "bytes_per_second": LINK_EFFICIENCY * bytes_per_second,
    }


def read_text(asked: Mapping[str, Any], vocab: int) -> dict[str, Any] | None:
    """The tokens of a text, and the rate that says so: the given one, or what this book's prose has.

    Of the measured vocabularies, that of the largest which is not larger than the model's. Raises ValueError if the
    text holds less than a token.
    """
    if not asked["text"]:
        return None
    measured = max(size for size in BYTES_A_TOKEN if size <= max(vocab, 256))
    bytes_a_token = asked["bytes_a_token"] or BYTES_A_TOKEN[measured][asked["language"]]
    tokens = int(text_tokens(asked["text"], bytes_a_token))
    if not tokens:
        raise ValueError(f"--text: at {bytes_a_token:.3g} bytes a token it holds less than a token; give more of it")
    return {
        "bytes": asked["text"],
        "language": asked["language"],
        "bytes_a_token": bytes_a_token,
        "vocab": None if asked["bytes_a_token"] else measured,
        "tokens": tokens,
    }
