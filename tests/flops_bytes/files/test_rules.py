"""Each rule that a software's data may use has a case: what it asks for, and what it says of a key."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from flops_bytes.files.interpret import Part, Reading, interpret
from flops_bytes.files.software import NAMES, softwares
from flops_bytes.plan.options import OPTIONS
from flops_bytes.plan.parallel import PARALLEL
from tests.conftest import ROOT

TRAINER = {"name": "Trainer", "version": "2.0", "known_by": ["batch"]}


def trainer(keys: dict[str, Any], held: dict[str, Any], **more: Any) -> Reading:
    return interpret([Part("a.yaml", "trainer", held)], {"trainer": TRAINER | more | {"keys": keys}}, {})


def kinds(reading: Reading) -> dict[str, str]:
    return {said.key: said.kind for said in reading.said}


def test_a_key_is_an_option() -> None:
    reading = trainer({"batch": {"option": "micro_batch"}}, {"batch": 4})
    assert reading.options == {"micro_batch": 4} and kinds(reading) == {"batch": "option"}
    assert trainer({"batch": {"option": "micro_batch"}}, {"batch": 5e2}).options == {"micro_batch": 500}
    assert trainer({"batch": {"option": "micro_batch"}}, {"batch": None}).options == {}


def test_its_values_are_the_softwares() -> None:
    own = {"optim": {"option": "optimizer", "values": {"adamw_torch": "adamw", "sgd": "", "*": "! not planned"}}}
    assert trainer(own, {"optim": "AdamW_Torch"}).options == {"optimizer": "adamw"}
    assert kinds(trainer(own, {"optim": "sgd"})) == {"optim": "nothing"}
    refused = trainer(own, {"optim": "lion"})
    assert (refused.options, [(each.key, each.text) for each in refused.refused]) == ({}, [("optim", "not planned")])
    kind = {"type": {"option": "@type", "values": {"lora": "", "full": ""}}}
    assert kinds(trainer(kind, {"type": "full"})) == {"type": "nothing"}
    assert [each.text for each in trainer(kind, {"type": "dora"}).refused] == ["this is not known; choose lora, full"]
    known = {"on": {"option": "lora_on", "values": {"q,v": "query-value"}}}
    assert trainer(known, {"on": ["v", "q"]}).options == {"lora_on": "query-value"}
    assert trainer(known, {"on": "v, q"}).options == {"lora_on": "query-value"}
    assert kinds(trainer(known, {"on": "k"})) == {"on": "not planned"}


def test_a_default_stands_for_what_is_not_written_and_is_told() -> None:
    own = {"batch": {"option": "micro_batch", "default": 8, "since": "2.0", "before": 1}}
    reading = trainer(own, {})
    assert reading.options == {"micro_batch": 8} and kinds(reading) == {"batch": "default"}
    assert reading.said[0].text == "Trainer 2.0; before 2.0: 1"
    assert trainer(own, {"batch": 2}).options == {"micro_batch": 2}


def test_nothing_and_not_planned_and_unknown() -> None:
    reading = trainer({}, {"seed": 1, "log_every": 2, "galore": True, "dora": False, "other": 3,
                           "off": False, "none": None},
                      nothing=["seed", "log_*"], not_planned={"galore": "an optimizer", "dora": "norms"})  # fmt: skip
    expected = {"seed": "nothing", "log_every": "nothing", "galore": "not planned", "dora": "nothing"}
    assert kinds(reading) == expected | {"other": "unknown", "off": "unknown", "none": "nothing"}


def test_only_with_and_unless() -> None:
    own = {
        "rank": {"option": "lora", "default": 8, "only_with": {"adapter": ["lora", "qlora"]}},
        "full": {"option": "checkpointing", "values": {"true": "full"}, "unless": {"engine": "*"}},
        "adapter": {},
        "engine": {},
    }
    assert trainer(own, {"adapter": "lora"}).options == {"lora": 8}
    assert trainer(own, {"adapter": "none"}).options == trainer(own, {}).options == {}
    assert trainer(own, {"full": True}).options == {"checkpointing": "full"}
    reading = trainer(own, {"full": True, "engine": "fsdp"})
    assert reading.options == {} and kinds(reading)["full"] == "no effect"


def test_taken_from_stands_for_auto() -> None:
    own = {
        "batch": {"option": "micro_batch", "taken_from": "other"},
        "bucket": {"option": "reduce_bucket", "taken_from": ["width", "width"]},
        "other": {},
        "width": {},
    }
    reading = trainer(own, {"batch": "auto", "bucket": "auto", "other": 3, "width": 10})
    assert reading.options == {"micro_batch": 3, "reduce_bucket": 100}
    assert {said.key: said.text for said in reading.said}["bucket"] == "taken from width × width"
    assert kinds(reading)["other"] == "option"
    open_ = trainer(own, {"batch": "auto", "bucket": 7})
    assert open_.options == {"reduce_bucket": 7} and kinds(open_)["batch"] == "not planned"


def test_times_counts_in_tokens() -> None:
    own = {"global": {"option": "global_batch", "times": ["length"]}, "length": {"option": "context"}}
    assert trainer(own, {"global": 16, "length": 100}).options["global_batch"] == 1_600
    assert kinds(trainer(own, {"global": 16}))["global"] == "not planned"


def test_implies_says_options_the_first_rule_of_each() -> None:
    rules = [
        {"when": {"@precision": "bf16"}, "unless": {"pure": True}, "then": {"recipe": "autocast"}},
        {"when": {"pure": True}, "then": {"recipe": "bf16"}},
        {"then": {"recipe": "fp32", "micro_batches": "$batch"}},
    ]
    facts = [{"when": {"bf16": True}, "then": {"precision": "bf16"}}]
    own: dict[str, Any] = {"bf16": {}, "pure": {}, "batch": {"default": 4}}

    def recipe(**held: Any) -> Reading:
        return trainer(own, held, facts=facts, implies=rules)

    assert recipe(bf16=True).options == {"recipe": "autocast", "micro_batches": 4}
    assert kinds(recipe(bf16=True))["bf16"] == "option", "which the fact is from"
    assert [recipe(bf16=True, pure=True).options["recipe"], recipe().options["recipe"]] == ["bf16", "fp32"]


def test_a_key_may_have_another_name_and_values_that_ask_for_nothing() -> None:
    own = {"old": {"same_as": "batch"}, "batch": {"option": "micro_batch", "off": [-1], "default": 2}}
    reading = trainer(own, {"old": 3})
    assert reading.options == {"micro_batch": 3} and kinds(reading) == {"old": "option"}
    assert trainer(own, {"batch": -1}).options == {}
    twice = trainer(own, {"batch": 4, "old": 3})
    assert twice.options == {"micro_batch": 4} and kinds(twice) == {"batch": "option", "old": "not planned"}


def test_a_number_that_two_yamls_read_differently_is_refused() -> None:
    refused = trainer({"batch": {"option": "micro_batch"}}, {"batch": "010"})
    assert refused.options == {} and [each.key for each in refused.refused] == ["batch"]


def test_two_files_that_differ_are_told() -> None:
    own: dict[str, Any] = {"batch": {"option": "micro_batch"}, "size": {"option": "micro_batch"}}
    data = {"trainer": TRAINER | {"keys": own}}
    parts = [Part("a", "trainer", {"batch": 1}), Part("b", "trainer", {"batch": 2, "size": 3})]
    reading = interpret(parts, data, {})
    assert reading.options == {"micro_batch": 1}
    told = {(said.file, said.key): said.text for said in reading.said if said.kind == "not planned"}
    assert told == {
        ("b", "batch"): "batch in a stands",
        ("b", "size"): "--micro-batch 1 stands, which another key says",
    }


FORMS = {"option", "values", "default", "since", "before", "only_with", "unless", "taken_from", "times", "off"}
FORMS |= {"same_as", "asks_for", "not_planned"}


@pytest.mark.parametrize("name", NAMES)
def test_the_data_says_what_the_planner_has(name: str) -> None:
    """Options and their values are the planner's, conditions keys that somebody says."""
    data = softwares()[name]
    assert {"name", "version", "source", "known_by"} <= {*data}
    keys = [own for own in data.get("keys", {}).values() if "option" in own]
    told = [(own["option"], value) for own in keys for value in own.get("values", {}).values()]
    told += [item for rule in data.get("implies", []) for item in rule["then"].items()]
    for option, value in told:
        if str(value).startswith(("!", "$")) or value == "" or option == "model":
            continue
        kind = (OPTIONS | PARALLEL)[option].kind
        assert not isinstance(kind, tuple) or value in kind, (option, value)
    for key, own in data.get("keys", {}).items():
        assert {*own} <= FORMS, key
        assert str(own.get("option", "@")).startswith("@") or own["option"] in OPTIONS | PARALLEL, key
        assert own.get("same_as", key) in data["keys"] or "extends" in data, key


def every_key() -> set[str]:
    return {data.get("prefix", "") + key for data in softwares().values() for key in data.get("keys", {})}


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_asks_for_what_somebody_says(name: str) -> None:
    facts = {f"@{each}" for data in softwares().values() for rule in data.get("facts", []) for each in rule["then"]}
    known = every_key() | facts | {"@hidden_size"}
    data = softwares()[name]
    rules = [*data.get("keys", {}).values(), *data.get("implies", []), *data.get("facts", [])]
    asked = {key for rule in rules for part in ("when", "unless", "only_with") for key in rule.get(part, {})}
    taken = [rule["taken_from"] for rule in rules if "taken_from" in rule]
    asked |= {key for each in taken for key in ([each] if isinstance(each, str) else each)}
    assert asked <= known


def test_the_example_of_contributing_is_one() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    data = {**softwares(), "mine": tomllib.loads(block)}
    held = {"tuner": "lora", "rank": 4, "bits": 4, "deepspeed": "zero3", "wandb_name": "x", "use_galore": True}
    reading = interpret([Part("a.yaml", "mine", held)], data, {})
    asked = {"lora": 4, "base": "4bit", "zero": "3", "context": 2048, "sharding_by": "deepspeed", "micro_batch": 8}
    assert asked.items() <= reading.options.items()
    told = {said.key: said.kind for said in reading.said if said.file}
    assert told == dict.fromkeys(("tuner", "rank", "bits", "deepspeed"), "option") | {
        "wandb_name": "nothing",
        "use_galore": "not planned",
    }


OTHER_NAMES = {"16b": "deepseek-v2-lite", "671b": "deepseek-v3"}  # of models that are called by no size here


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_size_that_a_file_names(name: str) -> None:
    for rule in softwares()[name].get("implies", []):
        model, asked = str(rule["then"].get("model", "")), rule.get("when", {}).values()
        said = " ".join(str(text) for each in asked for text in (each if isinstance(each, list) else [each]))
        sizes = re.findall(r"(?<![\d.])a?\d+(?:\.\d+)?b(?![a-z0-9])", said.lower().replace("_", " "))
        for size in sizes if model else []:
            assert f"-{size}" in model or OTHER_NAMES.get(size) == model, rule
