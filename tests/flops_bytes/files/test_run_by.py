"""A question without files is answered as a software runs it: by its own words for the options, and its defaults."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from flops_bytes.files.command import main, options_in, plan_options, planned
from flops_bytes.files.interpret import Part, interpret
from flops_bytes.files.run_by import RUNNERS, run_by, software_named
from flops_bytes.files.software import softwares
from flops_bytes.files.write import sayable
from flops_bytes.plan import plan
from flops_bytes.plan.help import GROUPS

# What is given, the keys that say it, and the habits that follow, which nobody gave.
HABITS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "torchtitan": (
        "torchtitan",
        {"micro_batch": "2"},
        {"training.local_batch_size": 2},
        {"recipe": "autocast", "checkpointing": "full", "checkpoint_every": "2", "context": 2048, "update": "fused"},
    ),
    "what follows from options": (
        "llama_factory",
        {"trained": "all"},
        {"finetuning_type": "full"},
        {"recipe": "fp32", "checkpointing": "full", "context": 2048, "layers": "composed"},
    ),
    "what stands already": (
        "llama_factory",
        {"trained": "lora", "micro_batch": 8},
        {},
        {"lora": 8, "recipe": "bf16-master", "checkpointing": "full", "context": 2048},
    ),
    "a base": (
        "llama_factory",
        {"trained": "qlora-double"},
        {"quantization_bit": 4},
        {"lora": 8, "recipe": "bf16-master", "checkpointing": "full"},
    ),
    "shards": (
        "transformers",
        {"gpus": "8", "zero": "3", "recipe": "autocast"},
        {"fsdp": "full_shard", "bf16": True},
        {"micro_batch": 8, "checkpointing": "none", "layers": "composed"},
    ),
    "degrees": (
        "torchtitan",
        {"gpus": "16", "tp": "2", "checkpointing": "none"},
        {"parallelism.tensor_parallel_degree": 2, "activation_checkpoint.mode": "none"},
        {"zero": "3", "recipe": "autocast", "micro_batch": 8},
    ),
    "what follows is not undone": (
        "trl",
        {"trained": "qlora"},
        {"use_peft": True, "load_in_4bit": True, "lora_r": 16},
        {"lora_dropout": "yes", "lora_on": "query-value"},
    ),
    "what follows is as little as can be": (
        "ms_swift",
        {"zero": "3", "gpus": "8"},
        {"fsdp": "full_shard"},
        {"lora": 8, "checkpointing": "full"},
    ),
    "another format": (
        "torchtitan",
        {"recipe": "fp32"},
        {"training.mixed_precision_param": "float32"},
        {"micro_batch": 8},
    ),
}


@pytest.mark.parametrize("case", HABITS)
def test_a_software_has_habits(case: str) -> None:
    software, given, keys, habits = HABITS[case]
    run, empty = run_by(software, given)
    assert run.parts[0].held == keys and empty.parts[0].held == {}
    assert habits.items() <= run.asked.items()
    assert not given.keys() & run.asked.keys()


@pytest.mark.parametrize("software", RUNNERS)
def test_nothing_given_is_an_empty_file(software: str) -> None:
    run, _ = run_by(software, {})
    read = interpret([Part("", software, {})], softwares(), {}).options
    plain = {"zero", "sharding_by", "checkpointing", "optimizer"}  # of one GPU, and what layouts have anyhow
    assert run.asked.items() <= read.items() and {*read} - {*run.asked} <= plain


ASKED: tuple[tuple[str, ...], ...] = (
    (),
    ("--trained", "all", "--context", "1k"),
    ("--trained", "lora", "--micro-batch", "1"),
    ("--lora", "4", "--context", "512"),
    ("--trained", "qlora", "--checkpointing", "none"),
    ("--gpus", "8", "--zero", "3", "--optimizer", "adamw-8bit"),
    ("--gpus", "8", "--zero", "0", "--recipe", "bf16"),
    ("--gpus", "8", "--global-batch", "1M", "--loss", "fused"),
)


SPLITS = ("nanotron", "megatron")  # whose modules are those of layouts


@pytest.mark.parametrize("software", [name for name in RUNNERS if name not in SPLITS])
@pytest.mark.parametrize("more", ASKED, ids=" ".join)
def test_what_follows_is_planned(software: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """No default contradicts what is given."""
    monkeypatch.setattr("flops_bytes.files.command.run_plan", lambda rest: 0)
    given = options_in(["--model", "qwen3-8b", "--gpu", "H100 SXM", *more])
    run, _ = run_by(software, given)
    assert not run.reading.refused
    asked, _ = planned(run.asked, given, [], StringIO(), lambda _: "")
    assert plan(meters=False, **{**asked, **given})["memory_bytes"]["total"] > 0


LAYOUTS = {
    "nanotron": ("--recipe", "bf16-master", "--sequence", "yes", "--zero", "1"),
    "megatron": ("--recipe", "bf16-master", "--sequence", "yes", "--etp", "1", "--ep", "8", "--global-batch", "1M"),
}


@pytest.mark.parametrize("software", SPLITS)
def test_a_layout_is_answered_too(software: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = "mixtral-8x7b" if software == "megatron" else "llama-3-8b"
    asked = ("--model", model, "--gpu", "H100 SXM", "--gpus", "16", "--tp", "2", "--context", "4k")
    assert plan_options(["--run-by", software, *asked, *LAYOUTS[software]]) in (0, 3)
    told = capsys.readouterr()
    trainer = "megatron-lm" if software == "megatron" else software
    assert told.err == "" and f"--trainer {trainer}" in told.out and "no key was found" not in told.out


def test_it_says_what_it_took_and_how_a_file_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-3-8b", "--gpu", "H100 SXM", "--gpus", "8", "--micro-batch", "2", "--loss", "fused")
    assert plan_options(["--run-by=Torch-Titan", *asked]) in (0, 3)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "as read: as torchtitan runs it"
    assert "training.local_batch_size: 2 --micro-batch 2" in lines
    assert "training.seq_len: 2048 --context 2048 (torchtitan 0.2.2)" in lines
    written = lines[lines.index("the options as lines of a file of its own:") :]
    assert written[1:4] == ["in torchtitan.toml:", "[training]", "local_batch_size = 2"]
    assert written[-1] == "no key was found that says --loss fused"


REFUSED = {
    "nobody": (("--run-by", "jax"), "--run-by: 'jax' is not known; choose accelerate, deepspeed, torchtitan, llama-f"),
    "no name": (("--run-by",), "--run-by: '' is not known"),
    "no training": (("--run-by", "trl", "--task", "serve"), "--run-by: it is of trainings; leave it out"),
    "a value": (("--run-by", "trl", "--micro-batch", "x"), "--micro-batch: 'x' is not a number above 0"),
    "no model": (("--run-by", "trl", "--gpu", "T4"), "--model: give one of --model, --config, --shape, not none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_named(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, sentence = REFUSED[case]
    assert plan_options([*words]) == 2
    assert capsys.readouterr().err.startswith(f"flops-bytes plan: {sentence}")


def test_files_say_themselves_who_runs_them(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("stage: sft\nfinetuning_type: lora\nmodel_name_or_path: Qwen/Qwen3-4B\n")
    assert main([str(file), "--gpu", "T4", "--run-by", "trl"]) == 2
    assert "--run-by: the files say it; leave it out" in capsys.readouterr().err


def test_a_name_is_hyphenated_in_any_way() -> None:
    assert {software_named(name) for name in ("LLaMA-Factory", "llama_factory", "llama factory")} == {"llama_factory"}


def test_what_help_calls_habits_some_software_says() -> None:
    (habits,) = [names for title, names in GROUPS.items() if "--run-by" in title]
    parts = [Part("", name, {}) for name in RUNNERS]
    assert {*habits} <= {*sayable(parts, softwares())}
