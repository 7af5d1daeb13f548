"""The planner answers what was asked in finite numbers that fit together, or says which option to mend and how."""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flops_bytes.memory.adapters import FORMATS
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import LLAMA_3_8B, LLAMA_3_70B, SHAPES, decoder_from_config, parameters
from flops_bytes.model.stack import stack_of
from flops_bytes.model.tokens import BYTES_A_TOKEN
from flops_bytes.parallel.sharding import LINK_BYTES_PER_SECOND, ring_bytes, tokens_to_hide
from flops_bytes.plan import plan as choose
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.options import OPTIONS, SERVED, SPEEDS, belongs, read_option
from flops_bytes.plan.serving import forward_bytes
from flops_bytes.plan.stacks import training_bytes_exactly
from flops_bytes.plan.table import gib
from flops_bytes.serve.inference import Server, decode_seconds, largest, plan_serving
from flops_bytes.time.gpus import GPUS, LINKS, THIRD_PARTY, TPUS, capacity_bytes
from tests.conftest import ROOT
from tests.flops_bytes.plan.printed import lines_of

SMALL = {"model": "gpt2", "gpu": "H100 SXM"}
SERVING: dict[str, Any] = {"task": "serve"}
LARGE = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": 8, "zero": 3, "context": 8192}

SHAPED = "layers=2 d_model=64 heads=32 kv_heads=8 head_dim=32 d_ff=128 vocab=5000"

REFUSED = {  # what is asked beside SMALL, and what the sentence has to say
    "empty": ({"tokens": ""}, "--tokens: '' is not a number above 0; write"),
    "an empty word": ({"gpu": " "}, "--gpu: it is empty; give it a value"),
    "zero": ({"gpus": 0}, "--gpus: '0' does not lie between"),
    "negative": ({"price": "-2"}, "--price: '-2' is not a number above 0"),
    "a float's largest": ({"tokens": "1e308"}, "--tokens: '1e308' does not lie between"),
    "the same as a float": ({"days": 1e308}, "--days: '1e+308' does not lie between"),
    "infinite": ({"days": float("inf")}, "--days: 'inf' is not a number"),
    "not a number": ({"price": float("nan")}, "--price: 'nan' is not a number"),
    "negative money": ({"price": "-$2"}, "--price: '-$2' is not a number above 0; write it like 2.5, $2.5, ¥18"),
    "minus as it is printed": ({"price": "−2"}, "--price: '−2' is not a number above 0"),
    "another currency": ({"price": "₹200"}, "--price: '₹200' is not a number above 0; write it like 2.5, $2.5"),
    "a currency alone": ({"price": "$"}, "--price: '$' is not a number above 0"),
    "a currency of tokens": ({"tokens": "$8"}, "--tokens: '$8' is not a number above 0"),
    "per cent of money": ({"price": "5%"}, "--price: the unit of '5%' is missing or not known; write it like 2.5"),
    "text": ({"micro_batch": "many"}, "--micro-batch: 'many' is not a number above 0; write it like 8"),
    "yes": ({"gpus": True}, "--gpus: 'True' is not a number"),
    "a comma": ({"price": "1,5"}, "--price: in '1,5' the comma can part decimals or thousands; write 1.5 or 1,500"),
    "groups of four": ({"tokens": "1,0000"}, "--tokens: in '1,0000' the comma can part"),
    "a comma after nothing": ({"tokens": "0,500"}, "--tokens: in '0,500' the comma can part"),
    "the commas of another country": ({"tokens": "12,34,567"}, "--tokens: in '12,34,567' the comma can part"),
    "a comma at the end": ({"tokens": "15,"}, "--tokens: in '15,' the comma can part"),
    "a full-width comma": ({"price": "1，5"}, "the comma can part"),
    "a power": ({"tokens": "10²"}, "--tokens: the unit of '10²' is missing or not known; write it like 100B"),
    "half a GPU": ({"gpus": "1.5"}, "--gpus: '1.5' is not a whole number"),
    "a context in trillions": ({"context": "8T"}, "--context: the unit of '8T' is missing or not known; write it like"),
    "half a token": ({"context": "0.5"}, "--context: '0.5' does not lie between 1 and 1e18"),
    "no micro-batch": ({"micro_batch": 0}, "--micro-batch: '0' does not lie between 1 and 1e18; write it like 8"),
    "no days": ({"days": "0"}, "--days: '0' does not lie between 0.000001 and"),
    "gigabytes or gibibytes": (
        {"allowance": "1G"},
        "--allowance: the unit of '1G' is missing or not known; write it like 80GB",
    ),
    "no unit": ({"allowance": "80"}, "--allowance: the unit of '80' is missing"),
    "gigabits": ({"allowance": "8Gb"}, "--allowance: the unit of '8Gb'"),
    "too many per cent": ({"mfu": "140%"}, "--mfu: '140%' is more than the whole; a share lies"),
    "more than the peak": ({"mfu": 0.9, "checkpointing": "full"}, "times their peak; check it"),
    "faster than the peak": ({"step_seconds": 1e-6}, "--step-seconds: the GPUs would do"),
    "an unknown GPU": ({"gpu": "B400"}, "--gpu: 'B400' is not a row of the table of peaks; choose V100"),
    "one of several GPUs": ({"gpu": "H100"}, "choose H100 SXM, H100 PCIe, H100 NVL, or give --gpu-memory"),
    "an unknown model": ({"model": "gpt-5"}, "--model: 'gpt-5' is not known; choose gpt2"),
    "two models": ({"shape": "layers=2"}, "--model: give one of --model, --config, --shape, not model and shape"),
    "no model": ({"model": None}, "--model: give one of --model, --config, --shape, not none"),
    "a field that is none": ({"model": None, "shape": "depth=2"}, "--shape: 'depth' is not a field; fields are layers"),
    "a field too few": ({"model": None, "shape": "layers=2"}, "--shape: d_model=; give a whole number"),
    "heads that do not share": (
        {"model": None, "shape": SHAPED.replace("kv_heads=8", "kv_heads=7")},
        "--shape: 7 key-value heads do not share 32 heads evenly; give a number that divides 32",
    ),
    "more key-value heads than heads": (
        {"model": None, "shape": SHAPED.replace("kv_heads=8", "kv_heads=64")},
        "--shape: 64 key-value heads do not share 32 heads evenly",
    ),
    "a peak without its unit": (
        {"gpu": None, "gpu_memory": "80GB", "gpu_peak": "989"},
        "--gpu-peak: '989' does not lie between 1e9 and 1e18; write it like 989T",
    ),
    "neither yes nor no": ({"model": None, "shape": SHAPED + " tied=32"}, "--shape: tied=32; write yes or no"),
    "a comma in a shape": (
        {"model": None, "shape": SHAPED + " experts=1,5"},
        "--shape: experts=1,5; give a whole",
    ),
    "two GPUs": ({"gpu_memory": "80GB"}, "--gpu-memory: give it instead of --gpu"),
    "a type without units": (
        {"gpu": "T4", "recipe": "autocast"},
        "--recipe: T4 multiplies no bfloat16; choose --recipe autocast-fp16, or",
    ),
    "a type without units on a TPU": ({"gpu": "TPU v5e", "recipe": "fp32"}, "no float32; choose --recipe bf16-master"),
    "an unknown word": ({"recipe": "fp8"}, "--recipe: 'fp8' is not known; choose fp32, autocast, autocast-fp16"),
    "float16 on a TPU": ({"gpu": "TPU v5e", "recipe": "autocast-fp16"}, "no float16; choose --recipe autocast, or"),
    "an unknown stage": ({"zero": 4, "gpus": 8}, "--zero: '4' is not known; choose 0, 1, 2, 3"),
    "to share with nobody": ({"zero": 3}, "--zero: one GPU has none to share with; give --gpus 2"),
    "past the positions": ({"context": 2048}, "--context: the model has 1024 positions; ask for so many"),
    "a share of less than nothing": (
        {"dropout": "-0.1"},
        "--dropout: '-0.1' is not a number above 0; write it like 40%",
    ),
    "more than all dropped": ({"dropout": "200"}, "--dropout: '200' is more than the whole"),
    "more chunks than tokens": ({"context": 4, "chunks": 8}, "--chunks: 4 tokens have no 8 parts; give 4 or fewer"),
    "a chunked loss of few tokens": ({"context": 4, "loss": "chunked"}, "--chunks: 4 tokens have no 8 parts; give"),
    "chunks of a fused loss": ({"loss": "fused", "chunks": 4}, "--chunks: --loss fused has none of its own; leave one"),
    "every second layer of none": ({"checkpoint_every": 2}, "--checkpoint-every: no whole layers are checkpointed;"),
    "adapters on nothing": ({"lora_on": "attention"}, "--lora-on: there are no adapters; give --lora a rank"),
    "4 bits that are trained": ({"base": "4bit"}, "--base: what is trained cannot be frozen in 4 bits; give --lora"),
    "two speeds": ({"mfu": 0.4, "step_seconds": 1}, "--step-seconds: --mfu tells the speed; give one"),
    "two lengths": ({"days": 1, "tokens": "1B"}, "--days: --tokens tells how long it trains; give one"),
    "two lengths, one of text": ({"text": "1TB", "tokens": "1B"}, "--text: --tokens tells how long it trains; give"),
    "text without a unit": ({"text": "60T"}, "--text: the unit of '60T' is missing"),
    "a rate of no text": ({"bytes_a_token": 4}, "--bytes-a-token: there is no text; give --text its bytes"),
    "users of a training": ({"users": 8}, "--users: it belongs to --task serve; leave it out"),
    "a stage of serving": (SERVING | {"zero": 3}, "--zero: it belongs to --task train; leave it out"),
    "heads that are not shared": (
        SERVING | {"gpus": 5},
        "--gpus: 5 do not share the heads evenly; choose 1, 2",
    ),
    "a prompt too long": (SERVING | {"prompt": 2000}, "--prompt: it is longer than the context of 1024; ask"),
    "a memory of unknown speed": (
        SERVING | {"gpu": None, "gpu_memory": "80GB", "gpu_peak": "1P"},
        "--gpu-bandwidth: serving waits for memory; give its bytes a second",
    ),
    "tensor parallelism": ({"tensor_parallel": 2}, "--tensor-parallel: tensor parallelism is not planned here"),
    "pipeline parallelism": ({"pipeline_parallel": 2}, "--pipeline-parallel: pipeline parallelism is not planned here"),
    "no option": ({"zeor": 3}, "--zeor: not an option; options are task, model"),
    "no file": ({"model": None, "config": "no/such.json"}, "--config: 'no/such.json' cannot be read as JSON"),
}


@pytest.mark.parametrize(("asked", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_with_the_mend(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        plan(**(SMALL | asked))
    assert sentence in str(caught.value)


WRITTEN: dict[str, list[tuple[Any, Any]]] = {
    "tokens": [("15T", 15 * 10**12), ("70b", 70 * 10**9), ("１５Ｔ", 15 * 10**12), ("1.5e3", 1500), (2.0, 2)],
    "context": [("128k", 131_072), ("128K", 131_072), ("1M", 2**20), ("8,192", 8_192), ("12.8万", 128_000)],
    "prompt": [("2k", 2_048)],  # as contexts are
    "mfu": [("40%", 0.4), ("40 %", 0.4), ("４０％", 0.4), ("38.3%", 0.383), ("100%", 1.0), ("0.4", 0.4)],
    "price": [("2.5", 2.5), (".5", 0.5), ("２．５", 2.5), (3, 3.0), ("$2.5", 2.5), ("¥18", 18.0), ("￥１８", 18.0)],
    "allowance": [
        ("80GB", 80 * 10**9),
        ("80 GiB", 80 * 2**30),
        ("512mib", 2**29),
        (7, 7),
        ("1,000MB", 10**9),
        ("5kB", 5000),
    ],
    "recipe": [("bf16_master", "bf16-master")],
}
WRITTEN["tokens"] += [("15,000,000,000", 15 * 10**9), ("１５，０００", 15_000), ("1,234.5k", 1_234_500)]
WRITTEN["tokens"] += [("15万亿", 15 * 10**12), ("1.5 万亿", 15 * 10**11), ("70亿", 7 * 10**9), ("3千亿", 3 * 10**11)]
WRITTEN["tokens"] += [
    ("1.5e12", 15 * 10**11),
    ("7B", 7 * 10**9),
    ("128k", 128_000),
    ("128K", 128_000),
]  # as data is counted
WRITTEN["price"] += [("€2", 2.0), ("£1.5", 1.5), ("$1,250.50", 1250.5), ("US$ 2.5", 2.5), ("2.5 usd", 2.5)]
WRITTEN["price"] += [("18元", 18.0), ("$2k", 2e3), ("2.5$", 2.5)]


LONG = "[" * 100_000


@pytest.mark.parametrize("name", [name for name in OPTIONS if OPTIONS[name].kind != "refused"])
def test_a_sentence_repeats_the_beginning_of_what_was_asked(name: str) -> None:
    task = SERVING if name in SERVED else {}
    for asked in (LONG, "9" * 100_000, LONG + ",", f"{LONG}=1", "layers=" + LONG, "1" + "x" * 100_000):
        with pytest.raises(ValueError) as caught:
            plan(**({"model": None if name in ("config", "shape") else "gpt2", "gpu": "L4"} | task | {name: asked}))
        assert str(caught.value).startswith("--") and len(str(caught.value)) < 1_200


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": LONG},
        {"hidden_size": LONG},
        {"quantization_config": {"bits": LONG}},
        {"tie_word_embeddings": LONG},
    ],
)
def test_a_sentence_repeats_the_beginning_of_a_configuration(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        decoder_from_config(CONFIG | change, context=1024)
    assert str(caught.value).startswith("--config: ") and len(str(caught.value)) < 400


def test_a_name_that_is_no_option_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match=r"^--\[{60}…\[: not an option"):
        plan(**{LONG: 1})


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(LONG)
    with pytest.raises(
        ValueError, match=r"--config: '.*' cannot be read as JSON \(maximum recursion.*give a config.json"
    ):
        plan(config=str(path), gpu="L4")


def test_next_to_nothing_has_no_sign() -> None:
    assert [gib(size) for size in (-1, 0, 1, -(2**30), 2**40)] == ["0.00 GiB"] * 3 + ["-1.00 GiB", "1,024.00 GiB"]


def test_numbers_are_read_as_people_write_them() -> None:
    for name, pairs in WRITTEN.items():
        for written, number in pairs:
            assert read_option(name, written) == number, written


WRITTEN |= {  # as datasheets have it
    "gpu_peak": [("989T", 989e12), ("989 TFLOPS", 989e12), ("989.4 TFLOP/s", 989.4e12), ("2.25 pflops", 2.25e15)],
    "gpu_bandwidth": [("3.35TB/s", 335 * 10**10), ("864 GB/s", 864 * 10**9)],
}
SIGNS = {"$2.5": "$", "¥18": "¥", "￥18": "¥", "18元": "¥", "€2": "€", "2 EUR": "€", "2.5": None, 2.5: None}


@pytest.mark.parametrize("price", SIGNS)
def test_the_currency_of_the_price_is_that_of_the_answer(price: Any) -> None:
    number = read_option("price", price)
    for task, money in (({"tokens": "1B"}, "money"), (SERVING, "money_a_million")):
        found, without = plan(**SMALL, **task, price=price), plan(**SMALL, **task, price=number)
        assert (found["currency"], without["currency"]) == (SIGNS[price], None)
        assert found[money] == without[money] > 0
    assert plan(**SMALL)["currency"] is None


def test_a_shape_says_yes_and_no_and_thousands() -> None:
    tied, untied = (plan(gpu="L4", shape=f"{SHAPED} tied={word}") for word in ("yes", "no"))
    assert tied["parameters"]["head"] == 0 < untied["parameters"]["head"]
    for word, same in {"True": tied, "1": tied, "YES": tied, "false": untied, "0": untied}.items():
        assert plan(gpu="L4", shape=f"{SHAPED} tied={word}") == same
    with_commas = SHAPED.replace("vocab=5000", "vocab=5,000").replace(" ", ", ")
    assert plan(gpu="L4", shape=with_commas) == untied
    without = SHAPED.replace(" kv_heads=8", "")  # then each query head has its own
    assert plan(gpu="L4", shape=without) == plan(gpu="L4", shape=without + " kv_heads=32")


def test_key_value_heads_of_a_configuration_share_its_heads() -> None:
    with pytest.raises(ValueError, match="--config: 3 key-value heads do not share 4 heads evenly"):
        plan(config=CONFIG | {"num_key_value_heads": 3}, gpu="L4")


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not known; not understood: the kind"),
        ({"hidden_size": None}, "hidden_size = None; a llama needs a whole number above 0"),
        ({"hidden_size": True}, "hidden_size = True"),
        ({"hidden_size": 66}, "4 heads do not share 66 features evenly"),
        ({"attention_bias": True}, "attention_bias = true is counted here for a llama with mlp_bias"),
        ({"mlp_bias": True}, "mlp_bias = true is counted here with attention_bias"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'; write true or false"),
        ({"quantization_config": {"bits": 4}}, "quantization_config = {'bits': 4} is not counted here"),
        ({"model_type": "qwen3", "num_key_value_heads": 2}, "head_dim = None; a qwen3 needs"),
        ({"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 512}, "--context 512 or less"),
        ({"model_type": "mixtral", "num_key_value_heads": 2}, "num_local_experts = None; a mixtral needs"),
    ],
)
def test_a_configuration_that_is_another_model_is_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    assert decoder_from_config(CONFIG, context=1024).kv_heads == 4
    with pytest.raises(ValueError) as caught:
        decoder_from_config(CONFIG | change, context=1024)
    assert str(caught.value).startswith("--config: ")
    assert sentence in str(caught.value)


def test_the_command_takes_what_a_configuration_holds_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    told = []
    for config in (str(path), json.dumps(CONFIG), f" {json.dumps(CONFIG)}"):
        assert main(["--config", config, "--gpu", "L4", "--json"]) in (0, 3)
        told.append(json.loads(capsys.readouterr().out)["found"])
    assert told[0] == told[1] == told[2]
    assert main(["--config", '{"model_type": ', "--gpu", "L4"]) == 2
    assert "cannot be read as JSON" in capsys.readouterr().err


def test_a_configuration_is_read_from_its_file_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    assert plan(config=str(path), gpu="L4") == plan(config=CONFIG, gpu="L4")
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="--config: not an object in braces"):
        plan(config=path, gpu="L4")
    for nothing in ("", " \n", "{}"):
        path.write_text(nothing, encoding="utf-8")
        with pytest.raises(ValueError, match="--config: it is empty; give a decoder"):
            plan(config=path, gpu="L4")


def test_a_window_ends_no_context() -> None:
    """A token attends to fewer, and a fused kernel keeps no scores: as much fits as without one."""
    windowed = CONFIG | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 2048}
    found, without = (plan(config=windowed | {"sliding_window": size}, gpu="H100 SXM") for size in (2_048, None))
    assert found["longest_context"] == without["longest_context"] > 2048


def test_a_step_on_one_gpu_takes_what_the_formulas_say() -> None:
    for checkpointing in ("none", "selective", "full"):
        found = plan(**SMALL, context=512, micro_batch=4, recipe="autocast", checkpointing=checkpointing, chunks=2)
        at = decoder_moments(SHAPES["gpt2"], 512, 4, "autocast", True, checkpointing, chunks=2)
        assert (
            found["memory_bytes"]["total"]
            == max(sum(lines.values()) for lines in at.values()) + found["memory_bytes"]["allowance"]
        )
        assert found["memory_bytes"]["total"] == sum(found["memory_bytes"].values()) / 2
        assert found["parameters"]["total"] == sum(parameters(SHAPES["gpt2"]).values())


def test_zero_splits_what_its_stage_says() -> None:
    total = sum(parameters(LLAMA_3_8B).values())
    whole, eighth = {"weights": 2 * total, "master": 4 * total, "optimizer": 8 * total}, -(-total // 8)
    split = [(), ("master", "optimizer"), ("master", "optimizer"), ("weights", "master", "optimizer")]
    for stage, lines in enumerate(split):
        found = plan(**(LARGE | {"zero": stage}))["memory_bytes"]
        each = {"weights": 2 * eighth, "master": 4 * eighth, "optimizer": 8 * eighth}
        expected = {line: each[line] if line in lines else size for line, size in whole.items()}
        assert {line: found[line] for line in whole} == pytest.approx(expected, rel=1e-8)
        assert (found["gathered"] > 0) == (stage == 3)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_wider_layer_takes_no_less_where_its_gradients_are_shared(zero: int) -> None:
    """Whether the last layer or the norm above it holds more is known when each GPU has its share."""
    needs = [
        plan(
            gpu="H100 SXM",
            gpus=24,
            zero=zero,
            context=8_192,
            shape=f"layers=1 d_model={width} heads=2 kv_heads=1 head_dim=32 d_ff=4096 vocab=1000",
        )["memory_bytes"]["total"]
        for width in (8_192, 8_225)
    ]
    assert needs == sorted(needs)


def test_a_text_is_as_many_tokens_as_its_rate_says() -> None:
    for language in ("en", "zh"):
        found = plan(**LARGE, text="6TB", language=language)
        assert found["tokens"] == found["text"]["tokens"] == int(6e12 / BYTES_A_TOKEN[8192][language])
        assert (found["text"]["language"], found["text"]["vocab"]) == (language, 8192)
    own = plan(**LARGE, text="6TB", bytes_a_token=4)
    assert own["tokens"] == plan(**LARGE, tokens="1.5T")["tokens"] and own["text"]["vocab"] is None
    small = plan(gpu="L4", shape="layers=2 d_model=64 heads=2 kv_heads=2 head_dim=32 d_ff=128 vocab=5000", text="1GB")
    assert small["text"]["vocab"] == 4096  # of the measured ones, the largest that is not larger


def sent(**asked: Any) -> float:
    return float(plan(**(LARGE | asked))["wire"]["bytes"])


def test_a_stage_sends_what_its_paper_says() -> None:
    counts = parameters(LLAMA_3_8B)
    total, ends = sum(counts.values()), counts["embedding"] + counts["head"]
    psi = 2 * total * 7 / 8  # of bf16, once round a ring of 8
    assert sent(zero=0) == ring_bytes(2 * total, 8, "allreduce") == pytest.approx(2 * psi)
    assert sent(zero=1) == sent(zero=2) == pytest.approx(2 * psi)
    assert sent(zero=3) == pytest.approx(3 * psi - 2 * ends * 7 / 8)  # embedding and head are gathered once
    assert sent(zero=0, recipe="fp32") == pytest.approx(4 * psi)
    for stage, times in ((0, 2), (1, 2), (2, 1 + 3)):
        assert sent(zero=stage, accumulation=3) == pytest.approx(times * psi)
    assert sent(zero=3, accumulation=3) == pytest.approx(3 * sent(zero=3))
    adapters = plan(**LARGE, lora=16)["parameters"]["trained"]
    assert sent(zero=0, lora=16) == pytest.approx(2 * 4 * adapters * 7 / 8)
    assert plan(**SMALL)["wire"] is None


def test_products_hide_the_wire_from_as_many_tokens_as_they_say() -> None:
    found = plan(**LARGE)["wire"]
    assert (found["link"], found["seconds"]) == ("NVLink 4", found["bytes"] / (0.8 * 450e9))
    assert plan(**(LARGE | {"gpus": 64}))["wire"]["link"] == "400 Gb/s"
    assert plan(**LARGE, link="PCIe 5")["wire"]["seconds"] == found["bytes"] / (0.8 * 64e9)
    for stage, link in ((0, "100 Gb/s"), (3, "PCIe 3")):
        asked: dict[str, Any] = LARGE | {"zero": stage, "link": link, "context": 1000}
        tokens = plan(**asked)["wire"]["tokens"]
        fewer, more = (plan(**(asked | {"micro_batch": int(tokens / 1000) + one}))["wire"] for one in (0, 1))
        assert not fewer["hidden"] and more["hidden"]
    # the chapter's formula leaves attention's products out, and gathers the embedding and the head twice
    simple = tokens_to_hide(0.4 * 989.4e12, 0.8 * 450e9, 8)
    assert plan(**(LARGE | {"context": 128}))["wire"]["tokens"] == pytest.approx(simple, rel=0.1)
    assert LINKS["NVLink 4"].bytes_per_second == LINK_BYTES_PER_SECOND["NVLink"]
    assert LINKS["400 Gb/s"].bytes_per_second == LINK_BYTES_PER_SECOND["400 Gb/s"]
    assert {card for link in LINKS.values() for card in link.cards} == set(GPUS | THIRD_PARTY)


TWO: dict[str, Any] = SERVING | {"model": "llama-3-70b", "gpu": "H100 SXM", "gpus": 2, "context": 8192}


def test_serving_is_what_its_formulas_say() -> None:
    found = plan(**TWO, weights="8bit", price=2.5, allowance="2GB")
    server = Server(2 * 3.35e12, 2 * 989.4e12, weight_bits=8, end_bits=16)
    room = int(0.9 * found["gpu_bytes"]) - 2e9 - forward_bytes(stack_of(LLAMA_3_70B), 8192, 2)
    expected = plan_serving(LLAMA_3_70B, 2 * room, server, 8192)
    users = expected["users"]
    assert found["users"] == found["users_that_fit"] == users > 20 and found["users_in_time"] is None
    assert found["token_seconds"] == decode_seconds(LLAMA_3_70B, found["users"], 8192, server)
    assert found["tokens_per_second"] == expected["tokens_per_second"]
    assert found["tokens_per_second"] == pytest.approx(found["users"] * found["each_per_second"], rel=1e-12)
    assert found["first_token_seconds"] == expected["prefill_seconds"]
    assert found["money_a_million"] == pytest.approx(2 * 2.5 / 3600 / found["tokens_per_second"] * 1e6)
    one_more = plan(**TWO, weights="8bit", allowance="2GB", users=found["users"] + 1)
    assert found["fits"] and not one_more["fits"] and one_more["headroom_bytes"] < 0
    slower = plan(**TWO, weights="8bit", allowance="2GB", latency=15)
    assert slower["in_time"] and slower["users"] == slower["users_in_time"] < found["users"]
    late = plan(**TWO, weights="8bit", latency=1)
    assert late["fits"] and not late["in_time"] and late["users_in_time"] == 0
    assert plan(**TWO, prompt=1024)["first_token_seconds"] < found["first_token_seconds"]


def test_gpus_that_serve_hold_a_share_each_and_a_head_at_least() -> None:
    shares = [plan(**(TWO | {"gpus": gpus, "users": 1}))["memory_bytes"] for gpus in (1, 8, 16)]
    assert shares[0]["cache"] == 8 * shares[1]["cache"] == 8 * shares[2]["cache"]  # of 8 key-value heads
    assert shares[0]["weights"] == pytest.approx(8 * shares[1]["weights"], rel=1e-9)
    fewest = plan(**TWO)["fewest_gpus"]
    assert fewest == 2 and not plan(**(TWO | {"gpus": 1}))["fits"] and plan(**TWO)["fits"]
    rows = {(row["weights"], row["cache"]): row for row in plan(**TWO)["formats"]}
    for (weights, cache), row in rows.items():
        found = plan(**TWO, weights=weights, cache=cache)
        assert (row["users"], row["tokens_per_second"]) == (found["users_that_fit"], found["tokens_per_second"])
        assert row["alone_per_second"] == found["alone_per_second"]


def test_the_largest_is_the_last_that_holds() -> None:
    for last in range(40):
        assert largest(last.__rsub__, 30) == min(last, 30)


OVER: dict[str, tuple[Callable[[int], float], int]] = {  # and how often that may be asked
    "a line": (lambda x: x - 1e6, 4),
    "a square": (lambda x: x * x - 1e9, 15),
    "a root": (lambda x: x**0.5 - 1e3, 12),
    "stairs": (lambda x: x // 4096 - 9, 20),
}


@pytest.mark.parametrize("kind", OVER)
def test_the_largest_takes_few_steps_also_along_a_curve(kind: str) -> None:
    over, times = OVER[kind]
    asked = []

    def counted(number: int) -> float:
        asked.append(number)
        return over(number)

    last = largest(counted, 2**40)
    assert over(last) <= 0 < over(last + 1)
    assert len(asked) <= times, asked


def test_the_limits_fit_and_the_next_do_not() -> None:
    asked = LARGE | {"gpus": 4, "recipe": "bf16", "checkpointing": "full"}
    found = plan(**asked)
    for option, limit in (("micro_batch", "largest_micro_batch"), ("context", "longest_context")):
        assert plan(**(asked | {option: found[limit]}))["fits"]
        assert not plan(**(asked | {option: found[limit] + 1}))["fits"]
    larger = LARGE | {"model": "llama-3-70b", "checkpointing": "full"}
    fewest = plan(**larger)["fewest_gpus"]
    assert fewest > 8
    assert [plan(**(larger | {"gpus": gpus}))["fits"] for gpus in (fewest - 1, fewest)] == [False, True]
    assert plan(**(LARGE | {"model": "llama-3.1-405b", "zero": 0}))["fewest_gpus"] is None


@pytest.mark.parametrize("pairs", ["all", "causal"])
def test_what_is_computed_again_is_counted_by_kind(pairs: str) -> None:
    every_second = {"checkpointing": "full", "checkpoint_every": 2}
    kinds: dict[str, dict[str, Any]] = {kind: {"checkpointing": kind} for kind in ("none", "per-op", "full")}
    asked = LARGE | {"pairs": pairs}
    again = {kind: plan(**asked, **told)["flops_a_token"][pairs]["again"] for kind, told in kinds.items()}
    assert 0 == again["none"] < again["per-op"] < again["full"]
    assert again["full"] == 2 * plan(**asked, **every_second)["flops_a_token"][pairs]["again"]


NOT_IN_FP8: dict[str, tuple[dict[str, Any], str]] = {
    "a card without": ({"gpu": "A100 80GB SXM"}, "--matmuls: A100 80GB SXM multiplies no float8"),
    "weights in float32": ({"recipe": "autocast", "gpus": 1, "zero": 0}, "--matmuls: fp8 is counted for"),
    "adapters": ({"lora": 8}, "--matmuls: fp8 is counted for"),
    "what is kept": ({"checkpointing": "per-op", "matmuls": "fp8-kept"}, "--checkpointing: per-op is counted for"),
    "no gate": ({"model": "gpt2", "context": 512}, "--matmuls: fp8 is counted for"),
    "a card without scales of blocks": ({"matmuls": "mxfp8"}, "--matmuls: H100 SXM multiplies no mxfp8"),
    "a card without 4 bits": ({"matmuls": "nvfp4"}, "--matmuls: H100 SXM multiplies no nvfp4"),
}


@pytest.mark.parametrize("case", NOT_IN_FP8)
def test_what_is_not_counted_in_fp8_is_refused(case: str) -> None:
    change, sentence = NOT_IN_FP8[case]
    with pytest.raises(ValueError) as caught:
        plan(**LARGE | {"matmuls": "fp8"} | change)
    assert str(caught.value).startswith(sentence)


def test_layers_in_fp8_are_as_much_faster_as_their_share_of_the_flops() -> None:
    asked: dict[str, Any] = LARGE | {"checkpointing": "none"}
    forward = forward_flops(LLAMA_3_8B, 8192)
    share = sum(forward[part] for part in ("qkv", "out", "mlp")) / sum(forward.values())
    before, after = plan(**asked, mfu=0.4), plan(**asked, mfu=0.4, matmuls="fp8")
    assert after["fp8"]["share"] == share and "fp8" not in before
    faster = after["tokens_per_second"] / before["tokens_per_second"]
    assert faster == pytest.approx(1 / (1 - share * (1 - 989.4 / 1978.9)))
    assert after["mfu"] == pytest.approx(0.4) and after["fp8"]["mfu_of_16_bits"] == pytest.approx(0.4 * faster)
    again = plan(**asked, matmuls="fp8", tokens_per_second=after["tokens_per_second"])
    assert again["mfu"] == pytest.approx(0.4) and again["published_mfu"] is None


def test_each_format_multiplies_at_its_own_peak() -> None:
    asked: dict[str, Any] = LARGE | {"gpu": "B200", "checkpointing": "none"}
    peaks = GPUS["B200"].peak_flop_per_second
    for low, name, peak in (("mxfp8", "fp8", "float8"), ("fp8-kept", "fp8", "float8"), ("nvfp4", "fp4", "float4")):
        found = plan(**asked, matmuls=low)["fp8"]
        slow = found["share"] / peaks[peak] + (1 - found["share"]) / peaks["bfloat16"]
        assert found["format"] == name and found["flop_per_second"] == pytest.approx(1 / slow)


def test_a_formats_bits_are_its_numbers_and_its_scales() -> None:
    """A byte and a byte for 32, half a byte and a byte for 16; those of a tensor or row are not counted."""
    by_hand = {"fp8": 1.0, "fp8-kept": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
    assert {name: form.bits / 32 for name, form in FORMATS.items()} == by_hand
    assert {"as-recipe", *FORMATS} == {*OPTIONS["matmuls"].kind}


def test_speed_time_and_money_tell_each_other() -> None:
    found = plan(**LARGE, mfu=0.5, tokens="1T", price=2)
    flops = 3 * sum(forward_flops(LLAMA_3_8B, 8192).values()) / 8192
    assert found["flops_a_token"]["all"]["model"] == flops
    assert found["tokens_per_second"] == pytest.approx(8 * 989.4e12 * 0.5 / flops)
    assert found["days"] == pytest.approx(1e12 / found["tokens_per_second"] / 86_400)
    assert found["money"] == pytest.approx(2 * 8 * 24 * found["days"])
    assert found["training_flops"] == pytest.approx(flops * 1e12)
    causal = plan(**LARGE, mfu=0.5, tokens="1T", pairs="causal")
    assert causal["training_flops"] == pytest.approx(1e12 * causal["flops_a_token"]["causal"]["model"])
    assert plan(**LARGE)["training_flops"] is None
    for told in ("tokens_per_second", "step_seconds"):
        assert plan(**LARGE, **{told: found[told]})["mfu"] == pytest.approx(0.5)
    assert plan(**LARGE, mfu=0.5, days=found["days"])["tokens"] == pytest.approx(10**12)
    assert plan(**LARGE)["mfu_is_assumed"] and not found["mfu_is_assumed"]
    assert found["checkpoint_bytes"] == 14 * found["parameters"]["total"]  # bf16, its master and two moments


def test_a_tpu_is_planned_with_but_not_looked_for() -> None:
    found = plan(**(SMALL | {"gpu": "tpu v5e"}), mfu=0.5)
    assert found["gpu_bytes"] == 16e9
    assert found["tokens_per_second"] == pytest.approx(0.5 * 197e12 / found["flops_a_token"]["all"]["model"])
    assert not any(tpu.device_names for tpu in TPUS.values())
    assert not set(TPUS) & set(GPUS)
    for tpu in TPUS.values():
        assert 10e9 < tpu.memory_bytes < 1e12 and 0.1e12 < tpu.bandwidth_bytes_per_second < 10e12
        assert 100e12 < tpu.peak_flop_per_second["bfloat16"] < 1e15
        assert tpu.source.startswith("https://docs.cloud.google.com/tpu/")


def test_a_card_of_which_third_parties_speak_is_planned_with_too() -> None:
    assert not set(THIRD_PARTY) & set(GPUS | TPUS)
    for name, card in THIRD_PARTY.items():
        assert plan(**(SMALL | {"gpu": name}))["gpu_bytes"] == capacity_bytes(name, card)
        assert not card.device_names, "no measurement is held against such a peak"
        assert 20e9 < card.memory_bytes < 300e9 and 0.5e12 < card.bandwidth_bytes_per_second <= 8e12
        kinds = ("tf32", "bfloat16", "float8")
        peaks = [peak for dtype, peak in card.peak_flop_per_second.items() if dtype in kinds]
        assert all(wide == pytest.approx(narrow / 2, rel=0.03) for wide, narrow in pairwise(peaks))
        assert card.source.startswith("https://")


def test_adapters_train_little_and_hold_less() -> None:
    all_weights = plan(**LARGE)
    adapters = plan(**LARGE, lora=16)
    four_bit = plan(**LARGE, lora=16, base="4bit")
    assert adapters["parameters"]["trained"] == 41_943_040  # 16 × 32 × the sums of inputs and outputs
    needs = [found["memory_bytes"]["total"] for found in (all_weights, adapters, four_bit)]
    assert needs == sorted(needs, reverse=True)
    double = plan(**LARGE, lora=16, base="4bit-double")
    matrices = sum(four_bit["parameters"][part] for part in ("attention", "mlp"))
    others = four_bit["parameters"]["total"] - matrices  # embedding, head and norms, at 16 bits
    for found, constants in ((four_bit, matrices * 4 // 64), (double, int(matrices * (1 + 4 / 256) / 64))):
        # bitsandbytes' constants are no parameters: nobody splits or gathers them
        assert found["memory_bytes"]["weights"] == pytest.approx((2 * others + matrices / 2) / 8 + constants, rel=1e-6)
        assert found["memory_bytes"]["gathered"] == pytest.approx(2 * others + matrices / 32, rel=0.001)
    blocks = matrices + four_bit["parameters"]["norms"]
    less = adapters["wire"]["bytes"] - four_bit["wire"]["bytes"]
    assert less == pytest.approx(2 * (2 - 0.5) * blocks * 7 / 8), "gathered twice"
    forward = forward_flops(LLAMA_3_8B, 8192)
    attention = forward["scores"] + forward["values"]
    frozen = sum(forward.values()) - attention  # once forward, once backward: no gradients of weights
    below = 2 * 4096 * (6144 + 3 * 16)  # of the first layer's queries, keys and values: nobody asks for their input's
    expected = (2 * frozen + 3 * attention) / 8192 + 6 * 41_943_040 - below
    assert adapters["flops_a_token"]["all"]["model"] == pytest.approx(expected)


def test_adapters_stand_beside_the_matrices_that_were_asked_for() -> None:
    trained = {"query-value": 6_815_744, "attention": 13_631_488, "all": 41_943_040}  # of Llama 3 8B at rank 16
    needs = []
    for lora_on, expected in trained.items():
        found = plan(**LARGE, lora=16, lora_on=lora_on)
        assert found["parameters"]["trained"] == expected
        needs.append(found["memory_bytes"]["total"])
    assert needs == sorted(needs) and len(set(needs)) == 3


def test_a_configuration_is_planned_as_transformers_has_it() -> None:
    for kind, sizes in (("llama", {}), ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 1024})):
        config = CONFIG | sizes | {"model_type": kind}
        found = {layers: plan(gpu="L4", config=config, layers=layers) for layers in ("fused", "composed", None)}
        assert found[None] == found["composed"] != found["fused"]
    config |= {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": None}
    without = plan(gpu="L4", config=config)
    assert without == plan(gpu="L4", config=config, dropout=0) != plan(gpu="L4", config=config, dropout="10%")
    assert plan(gpu="L4", config=config | {"attn_pdrop": 0.1}) == plan(gpu="L4", config=config, dropout=0.1)
    assert plan(**SMALL) == plan(**SMALL, dropout=0) and plan(**SMALL, layers="composed") == plan(
        **SMALL, layers="composed", dropout=0.1
    )
    dropped = CONFIG | {"attention_dropout": 0.1}
    kept = [plan(gpu="L4", attention="eager", config=asked)["memory_bytes"]["total"] for asked in (CONFIG, dropped)]
    assert kept[0] < kept[1]


def test_the_loss_is_one_of_five() -> None:
    plain, tokens = plan(**SMALL, recipe="bf16", micro_batch=8), 8 * 1024
    logits = tokens * SHAPES["gpt2"].vocab
    for loss, each in (("plain", 12), ("logits-held", 14), ("compiled", 4)):
        held = plan(**SMALL, recipe="bf16", micro_batch=8, loss=loss)["memory_bytes"]["logits"]
        assert held == pytest.approx(each * logits, rel=1e-4)  # a compiled loss keeps two numbers a row
    assert plan(**SMALL, micro_batch=8, chunks=8) == plan(**SMALL, micro_batch=8, loss="chunked")
    assert plan(**SMALL, loss="chunked", chunks=4) == plan(**SMALL, loss="plain", chunks=4) != plan(**SMALL)
    fused = plan(**SMALL, recipe="bf16", micro_batch=8, loss="fused")
    assert fused["memory_bytes"]["total"] < plain["memory_bytes"]["total"] - 8 * logits


def test_composed_layers_keep_four_bytes_a_feature_more() -> None:
    asked = LARGE | {"recipe": "bf16", "micro_batch": 2, "chunks": 1}
    fused, composed = (plan(**asked, layers=layers)["memory_bytes"] for layers in ("fused", "composed"))
    norms = 2 * LLAMA_3_8B.layers + 1
    assert composed["activations"] - fused["activations"] == 4 * norms * 2 * 8192 * LLAMA_3_8B.d_model
    asked |= {"attention": "eager", "context": 1_024}  # which peak at the loss too
    fused, composed = (plan(**asked, layers=layers)["memory_bytes"] for layers in ("fused", "composed"))
    scores = LLAMA_3_8B.layers * LLAMA_3_8B.heads * 2 * 1_024**2
    more = 4 * norms * 2 * 1_024 * LLAMA_3_8B.d_model + 4 * scores
    assert composed["activations"] - fused["activations"] == more


NUMBERS = ("1", "2", "7", "1e18", "1e-6", 1e18, "999P", "0.3", "1kB", "64GB", "", "-1", 0, "1e400", None, None)


def question(drawn: random.Random, serving: bool) -> dict[str, Any]:
    """A model, a card and two other options with whatever comes."""
    asked: dict[str, Any] = {"model": drawn.choice(list(SHAPES)), "gpu": drawn.choice(["H100 SXM", "T4", "L4"])}
    names = [name for name in list(OPTIONS)[7:] if belongs(name, "serve" if serving else "train")]
    asked |= SERVING if serving else {}
    for name in drawn.sample(names, 2):
        kind = OPTIONS[name].kind
        asked[name] = drawn.choice(kind if isinstance(kind, tuple) else NUMBERS)
    return asked


def test_whatever_is_asked_the_answer_is_finite_or_a_sentence() -> None:
    drawn = random.Random(14)
    refused = answered = 0
    for turn in range(1500):
        asked = question(drawn, serving=turn % 3 == 0)
        try:
            found = plan(**asked)
        except ValueError as error:
            assert str(error).startswith("--"), (asked, error)
            refused += 1
            if not {*asked} & {"task", "text", "lengths", "alloc_conf", *SPEEDS}:
                with pytest.raises(ValueError, match=re.escape(str(error))):
                    training_bytes_exactly(**asked)
            continue
        assert "nfinity" not in json.dumps(found, allow_nan=False)
        answered += 1
        if "peaks_at" in found:
            assert training_bytes_exactly(**asked) == found["memory_bytes"], asked
    assert min(refused, answered) > 100


def flops_bytes(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """What the command says, from a checkout."""
    return subprocess.run(
        [sys.executable, *python, "-m", "flops_bytes", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def words(asked: Mapping[str, Any]) -> list[str]:
    return [part for name, value in asked.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def test_it_needs_python_alone_and_answers_at_once() -> None:
    seconds = []
    for _ in range(5):  # of the processor, since other programs run too; the least, since its caches may be cold
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = flops_bytes("plan", python=("-S",))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.stdout.startswith("Fits with room: all weights of llama-3-8b on 8 × H100 SXM; each needs ")
    assert "100B tokens in " in done.stdout
    assert min(seconds) < 0.8  # half of it goes through the allocator


def test_a_word_that_is_no_command_is_named() -> None:
    for word in ("", "shape"):
        done = flops_bytes(word)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"flops-bytes: '{word}' is no command; choose plan, count, ")


@pytest.mark.parametrize("word", ["plan", "count", "snapshot", "trace"])
def test_an_empty_first_word_is_named(word: str) -> None:
    """It would be this folder, or a file without a name."""
    done = flops_bytes(word, "")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"flops-bytes {word}: what follows it is empty; give it a value or leave it out\n"


def test_the_command_line_answers_serving() -> None:
    done = flops_bytes("plan", *words(TWO), "--explain")
    assert done.returncode == 0, done.stderr
    assert f"users that fit                  {plan(**TWO)['users_that_fit']}\n" in done.stdout


def test_the_command_line_writes_money_in_its_currency() -> None:
    asked = LARGE | {"gpus": 64, "tokens": "15万亿", "mfu": "40%", "trained": "all"}
    for price, text in (("¥18", "costs ¥{:,.0f}\n"), ("18", "costs {:,.0f} in the currency of the price\n")):
        told = lines_of(**asked, price=price)
        assert text.format(plan(**asked, price=18)["money"]) in told
        assert f"FLOPs of the training           {plan(**asked)['training_flops']:.4g}\n" in told
    done = flops_bytes("plan", *words(TWO | {"price": "€2"}), "--explain")
    assert f"at least €{plan(**TWO, price=2)['money_a_million']:,.3g}\n" in done.stdout


def test_help_says_what_a_k_is() -> None:
    told = " ".join(flops_bytes("plan", "--help", "all").stdout.split())
    assert "128k: 131,072" in told and "here 128k is 128,000" in told


def test_a_mistake_on_the_command_line_is_one_sentence() -> None:
    for as_json in ([], ["--json"]):
        done = flops_bytes("plan", *words(SMALL | {"tokens": "1,5"}), *as_json)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("flops-bytes plan: --tokens: in '1,5'") and done.stderr.count("\n") == 1
    for unknown in (["plan", "--nosuch", "1"], ["nosuch"], []):
        assert flops_bytes(*unknown).returncode == 2


STATUS: dict[str, tuple[dict[str, Any], int]] = {
    "a training that fits": (SMALL, 0),
    "a training that does not": (LARGE | {"gpus": 1, "zero": 0, "trained": "all"}, 3),
    "users that fit": (TWO, 0),
    "users that do not": (TWO | {"users": 10_000}, 3),
    "users who wait too long": (TWO | {"users": 30, "latency": 10}, 3),
}


@pytest.mark.parametrize("case", STATUS)
def test_the_exit_status_says_whether_it_fits(case: str) -> None:
    asked, status = STATUS[case]
    done = flops_bytes("plan", "--json", *words(asked))
    assert done.returncode == status, done.stderr
    answer = json.loads(done.stdout)
    assert answer["asked"] == {name: str(value) for name, value in asked.items()}
    assert answer["found"] == json.loads(json.dumps(choose(**asked)))


def test_the_schema_names_every_field_of_an_answer() -> None:
    schema = json.loads(flops_bytes("plan", "--schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    seen: set[str] = set()
    drawn = random.Random(7)
    for turn in range(600):
        asked = question(drawn, serving=turn % 3 == 0) | ({"tokens": "1B", "days": 3} if turn % 50 == 1 else {})
        try:
            few = SHAPES[asked["model"]].layers < 17  # of more the allocator takes longer
            found = choose(meters=few, find=turn % 50 == 2, **asked)
        except ValueError:
            continue
        check.validate(json.loads(json.dumps({"asked": asked, "found": found})))
        seen |= set(found)
    described = {name for kind in ("training", "serving") for name in schema["$defs"][kind]["properties"]}
    assert seen == described


def test_the_schema_is_strict() -> None:
    check = jsonschema.Draft202012Validator(json.loads(flops_bytes("plan", "--schema").stdout))
    for asked in (LARGE, TWO):
        found = json.loads(json.dumps(choose(**asked)))
        assert check.is_valid({"asked": {}, "found": found})
        for name in found:
            assert not check.is_valid({"asked": {}, "found": {key: found[key] for key in found if key != name}}), name
        assert not check.is_valid({"asked": {}, "found": found | {"another": 1}})
        assert not check.is_valid({"asked": {}, "found": found | {"gpu_bytes": "80 GB"}})
