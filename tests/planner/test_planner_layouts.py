"""Where many GPUs are asked about, the form names the command that finds layouts, and the command takes its words."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from py_mini_racer import MiniRacer

import planner
from flops_bytes.plan.options import OPTIONS
from flops_bytes.plan.rank_ways import layout_rows
from flops_bytes.plan.stacks import read_model
from planner.answer import answer
from planner.stacks import answer_any
from tests.planner.scripts import sent_script

ASKED = {"model": "llama-3-8b", "gpu": "H100 SXM", "gpus": "64", "context": "8192", "micro_batch": "1", "zero": "3"}
ASKED |= {"recipe": "bf16-master", "checkpointing": "full", "tokens": "100B", "price": "$2.5", "loss": "chunked"}


@pytest.fixture(scope="module")
def script() -> MiniRacer:
    made = MiniRacer()
    found = re.search(r"laid=(\(command.*?:null)", sent_script("planner.js"))
    assert found
    made.eval(f"var laid={found[1]}")
    return made


def named(script: MiniRacer, fields: dict[str, str]) -> str | None:
    said = (answer if fields["model"] != "deepseek-v3" else answer_any)(fields)
    found = said["found"]
    told = json.dumps([said["command"], found["fits"] and found["trained"] == "all", found["step_tokens"]])
    command = script.eval(f"laid(...{told})")
    return None if command is None else str(command)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"gpus": "512", "model": "llama-3.2-1b", "checkpointing": "none"},
        {"global_batch": "4M", "link": "400 Gb/s", "node_gpus": "4", "speed": "40%"},
        {"gpu": "other", "gpu_memory": "80GB", "gpu_peak": "989T", "link": "NVLink 4"},
        {"gpus": "2", "model": "llama-3-70b"},
        {"days": "14 days"},
        {"model": "shape", "shape": "layers=32 d_model=4096 heads=32 kv_heads=8 head_dim=128 d_ff=14336 vocab=128256"},
    ],
)
def test_the_command_that_is_named_lists_layouts(script: MiniRacer, change: dict[str, str]) -> None:
    fields = ASKED | change
    words = shlex.split(named(script, fields) or "")
    assert words[:2] == ["flops-bytes", "plan"] and words[-3] == "--global-batch" and words[-1] == "--find"
    told = {name[2:].replace("-", "_"): value for name, value in zip(words[2:-1:2], words[3:-1:2], strict=True)}
    assert set(told) <= set(OPTIONS) and "zero" not in told and "checkpointing" not in told
    assert "days" not in told  # beside tokens they are a deadline, of which layouts know nothing
    for name in ("gpus", "context", "micro_batch", "tokens", "price", "link", "node_gpus", "shape"):
        assert told.get(name) == fields.get(name), name
    rows = layout_rows(told, read_model, lives=False)
    assert rows and all(row["fits"] for row in rows)
    assert bool(rows[0]["gives_up"]) == (fields["gpus"] == "2")  # on which all weights do not fit


def test_few_gpus_that_hold_it_adapters_and_one_gpu_have_no_such_command(script: MiniRacer) -> None:
    for change in ({"gpus": "8"}, {"trained": "lora"}, {"gpus": "1"}, {"trained": "qlora", "gpus": "16"}):
        assert named(script, ASKED | change) is None


def test_models_whose_layers_differ_have_it_too(script: MiniRacer) -> None:
    command = named(script, ASKED | {"model": "deepseek-v3", "gpu": "H800 SXM", "gpus": "2048", "loss": ""})
    assert command and "--model deepseek-v3" in command


def test_both_languages_have_its_words() -> None:
    for language in ("en", "zh"):
        text, chapter = planner.words(language)["layouts"]
        assert text and chapter == "parallelism/#layouts"
