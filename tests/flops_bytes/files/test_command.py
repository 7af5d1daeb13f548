"""Files in a terminal: several are one run, it says what it read, then plans; others go to their own commands."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.files.command import main, options_in
from flops_bytes.files.content import content_of
from flops_bytes.files.out_of_memory import decode
from flops_bytes.files.run import asked_of, card_of
from flops_bytes.model.presets import PRESETS
from tests.conftest import ROOT
from tests.flops_bytes.files.cases import CASES, name_of, read, warned

LORA = "llama_factory: hiyouga/LLaMA-Factory/qwen3_lora_sft.yaml"
FULL = "llama_factory: hiyouga/LLaMA-Factory/qwen3_full_sft.yaml"
OFFLOAD = "deepspeed: hiyouga/LLaMA-Factory/ds_z3_offload_config.json"
FSDP = "accelerate: hiyouga/LLaMA-Factory/fsdp_config.yaml"
ZEPHYR = "trl: huggingface/alignment-handbook/config_full.yaml"
ZERO3 = "accelerate: huggingface/alignment-handbook/zero3.yaml"
TITAN = "torchtitan: pytorch/torchtitan/llama3_8b.toml"
MESSAGE = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of
23.64 GiB of which 1.07 GiB is free. Including non-PyTorch memory, this process has 22.40 GiB memory in use. Of the
allocated memory 21.90 GiB is allocated by PyTorch, and 120.54 MiB is reserved by PyTorch but unallocated."""


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str, name: str = "") -> str:
        case = CASES.get(text)
        path = tmp_path / (name or (name_of(case) if case else "file"))
        path.write_text(case["text"] if case else text, encoding="utf-8")
        return str(path)

    return write


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main([*arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_it_says_what_it_read_and_plans(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(LORA)
    status, out, err = run(capsys, path, "--gpu", "RTX 4090")
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f"as read: {path}: LLaMA-Factory" in lines
    assert "per_device_train_batch_size: 1 --micro-batch 1" in lines and "lora_rank: 8 --lora 8" in lines
    assert "disable_gradient_checkpointing: false --checkpointing full (LLaMA-Factory 0.9.5)" in lines
    assert any(line.startswith("Fits with room: LoRA of qwen3-4b on RTX 4090") for line in lines)
    assert any(line.startswith("costs neither memory nor time: trust_remote_code, ") for line in lines)


def test_several_files_are_one_run(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = file(json.dumps(PRESETS["qwen2.5-7b"].config), "config.json")
    status, out, _ = run(capsys, file(FULL), model, file(OFFLOAD), "--gpu", "H100 SXM", "--gpus", "8")
    assert status == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "train_micro_batch_size_per_gpu: auto --micro-batch 1, taken from per_device_train_batch_size" in lines
    bucket = "zero_optimization.reduce_bucket_size: auto --reduce-bucket 12845056, taken from hidden_size × hidden_size"
    assert bucket in lines and 3_584**2 == 12_845_056, "the width is the config.json's"
    assert f"model_name_or_path: Qwen/Qwen3-4B-Instruct-2507 as {model} has it" in lines
    assert any(line.startswith("Fits with room: all weights of this model on 8 × H100 SXM") for line in lines)


def asked(*paths: str, rest: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the planner is asked of files, and of options behind them."""
    given = options_in([*rest])
    return asked_of(read(*(content_of(path) for path in paths)), None, [], given) | given


NANOTRON = "nanotron: swiss-ai/nanotron-multilingual/config_multilingual_nanoset.yaml"
SIZES = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
SIZES |= {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 4096, "tie_word_embeddings": False}


def test_a_model_that_stands_in_a_file_is_read(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path, more = file(NANOTRON), ("--gpu", "H100 SXM", "--json")
    _, out, told = run(capsys, path, *more)
    beside = file(json.dumps(SIZES | {"model_type": "llama"}), "config.json")
    assert f"as read: {path}, model.model_config: the model's config.json, which is planned" in told
    answers = [json.loads(text)["found"] for text in (out, run(capsys, path, beside, *more)[1])]
    assert answers[0] == answers[1] and answers[0]["parameters"]["total"] == 8_030_261_248
    one = json.dumps(SIZES | {"model_type": "llama", "num_hidden_layers": 16})
    fewer = run(capsys, path, file(one, "config.json"), *more)  # a file of its own stands
    assert json.loads(fewer[1])["found"]["parameters"]["total"] < 5e9 and "model.model_config" not in fewer[2]
    other = Path(path).read_text().replace("is_llama_config", "is_qwen2_config")
    status, _, err = run(capsys, file(other, "qwen.yaml"), "--gpu", "H100 SXM")
    assert status == 2 and "the files name no model" in err


def test_the_order_of_files_is_none(file: Any) -> None:
    one, other = file(ZEPHYR), file(ZERO3)
    found = asked(one, other)
    assert found == asked(other, one)
    assert (found["gpus"], found["zero"], found["recipe"], found["micro_batch"]) == (8, "3", "bf16-master", 16)
    assert found["sharding_by"] == "deepspeed-overlap"
    ours, theirs = file(OWN + "per_device_train_batch_size: 1\n", "own.yaml"), file(DIFFERS, "ds.json")
    assert asked(ours, theirs) == asked(theirs, ours) and asked(ours, theirs)["micro_batch"] == 2
    sharded = asked(file(LORA), file(FSDP))
    assert (sharded["gpus"], sharded["zero"], sharded["sharding_by"], sharded["reentrant"]) == (2, "3", "fsdp1", "yes")


def test_options_behind_the_files_stand(file: Any) -> None:
    found = asked(file(LORA), rest=("--gpu=H100 SXM", "--context", "512", "--micro-batch", "2"))
    assert (found["gpu"], found["context"], found["micro_batch"], found["lora"]) == ("H100 SXM", "512", "2", 8)
    assert "context" not in asked_of(read(content_of(file(LORA))), None, [], {"context": "512"})
    shaped = asked(file(LORA), rest=("--shape", "layers=2"))
    assert "model" not in shaped and shaped["shape"] == "layers=2"
    assert not {"lora", "lora_on"} & asked(file(LORA), rest=("--trained", "all")).keys()
    assert "trained" not in asked(file(FULL), rest=("--lora", "4")), "which a rank tells"
    assert "zero" not in asked(file(FSDP), rest=("--gpus", "1")), "with nobody to share"
    assert asked(file(TITAN), rest=("--tensor-parallel", "2"))["tp"] == "2"
    assert "accumulation" not in asked(file(LORA), rest=("--global-batch", "1M"))


def test_for_programs_the_answer_alone_is_printed(
    file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def plan(arguments: list[str]) -> int:
        ran.append(arguments)
        return 3

    monkeypatch.setattr("flops_bytes.files.command.run_plan", plan)
    status, out, err = run(capsys, file(LORA), "--gpu", "H100 SXM", "--json")
    assert (status, out) == (3, "") and "as read: " in err
    assert ran[0][-3:] == ["--gpu", "H100 SXM", "--json"] and "--lora=8" in ran[0] and "--model=qwen3-4b" in ran[0]


def test_an_option_that_is_not_derived_is_left_out_and_told(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    titan = file(TITAN)
    text = Path(titan).read_text().replace("tensor_parallel_degree = 1", "tensor_parallel_degree = 2")
    Path(titan).write_text(text.replace("[optimizer]", '[optimizer]\nimplementation = "foreach"'))
    status, out, err = run(capsys, titan, "--gpu", "H100 SXM", "--gpus", "8")
    assert (status, err) == (0, "") and "left out: --update foreach; it is not derived for tensor" in out
    assert "layout                          TP 2 DP 4, ZeRO 3" in out


def test_a_message_beside_it_says_the_card(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (cuda,) = decode(MESSAGE)
    assert card_of(cuda) == {"gpu": "RTX 4090"}
    (none,) = decode(MESSAGE.replace("23.64", "50.01"))
    assert card_of(none) == {}
    npu = MESSAGE.replace("CUDA out", "NPU out").replace("GPU 0", "NPU 0")
    status, _, err = run(capsys, file(LORA), file(npu, "error.log"))
    assert status == 2 and "the files do not say on which card" in err
    given = {"gpus": "2"}
    assert asked_of(read(content_of(file(LORA))), None, [cuda], given)["gpu"] == "RTX 4090"
    assert "gpu" not in asked_of(read(content_of(file(LORA))), None, [cuda], given | {"gpu": "T4"})
    (radeon,) = decode(MESSAGE.replace("CUDA out", "HIP out"))
    assert card_of(radeon) == {}, "which is no RTX 4090"
    (hip,) = decode(MESSAGE.replace("CUDA out", "HIP out").replace("23.64", "191.98"))
    assert card_of(hip) == {"gpu": "MI300X"}


SAID = {
    "CUDA": (MESSAGE, "Try first: hold less."),
    "HIP": (MESSAGE.replace("CUDA out", "HIP out").replace("21.90", "11.90").replace("120.54 MiB", "10.1 GiB"),
            "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True"),
    "XPU": (MESSAGE.replace("CUDA out", "XPU out").replace("21.90", "11.90").replace("120.54 MiB", "10.1 GiB"),
            "PYTORCH_XPU_ALLOC_CONF=expandable_segments:True"),
    "Ascend": (MESSAGE.replace("CUDA out", "NPU out").replace("21.90", "11.90").replace("120.54 MiB", "10.1 GiB"),
               "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"),
    "cudaMallocAsync": ("""torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 15.20 GiB
Requested               : 512.00 MiB
Device limit            : 15.99 GiB
Free (according to CUDA): 0 bytes
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB""", "held by tensors of this process"),
    "shortened": ("CUDA out of memory. Tried to allocate 1.96 GiB. GPU 4 has a total capacity of 79.11 GiB of which "
                  "1.07 GiB is free. ... 73.15 GiB is allocated by PyTorch ...", "all else: this message does not say"),
    "bare": ("RuntimeError: CUDA error: out of memory\n", "outside of PyTorch's allocator"),
    "vLLM": ("ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
             "needed, which is larger than the available KV cache memory (0.71 GiB). Based on the available memory, "
             "the estimated maximum model length is 5808.", "--task serve --model … --gpu … --context 5808"),
    "SGLang": ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
               "flops-bytes plan --task serve --model … --gpu …"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "mark"), SAID.values(), ids=[*SAID])
def test_a_message_is_read(file: Any, capsys: pytest.CaptureFixture[str], text: str, mark: str) -> None:
    log = f"step: 1\nloss = 2.5\n[rank0] Traceback (most recent call last):\n  {text}\nmore: words\n"
    for written in (text, log):
        status, out, err = run(capsys, file(written, "train.log"))
        assert (status, err) == (0, "") and mark in " ".join(out.split())


def test_files_of_other_commands_go_there(tmp_path: Path, file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = tmp_path / "memory"
    snapshot.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    assert "flops-bytes snapshot" in run(capsys, str(snapshot))[1]
    trace = tmp_path / "trace"
    trace.write_bytes(gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}'))
    assert "flops-bytes trace" in run(capsys, str(trace))[1]
    status, _, err = run(capsys, str(snapshot), file(LORA))
    assert status == 2 and "flops-bytes snapshot reads it alone" in err
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(snapshot.read_bytes()))
    assert run(capsys, str(packed))[2] == f"flops-bytes: {packed}: it is a compressed snapshot; unzip it first\n"


def test_a_script_is_counted(file: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[list[str]] = []

    def count(arguments: list[str]) -> int:
        counted.append(arguments)
        return 0

    monkeypatch.setattr("flops_bytes.counting.command.main", count)
    for name in ("train.py", "train"):
        path = file("import torch\n\nprint(torch.ones(2))\n", name)
        assert run(capsys, path, "--gpu", "RTX 4090")[0] == 0
    assert [each[1:] for each in counted] == [["--gpu", "RTX 4090"]] * 2


def wrong(text: str, name: str, mark: str, *more: str) -> tuple[str, str, str, tuple[str, ...]]:
    return text, name, mark, more


OWN = "stage: sft\nfinetuning_type: lora\nmodel_name_or_path: Qwen/Qwen3-4B\n"
DIFFERS = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
DEEP = "[training]\nsteps = 1\n[model]\nname" + ".a" * 100 + " = 1\n"
WRONG = {
    "too deep": wrong(DEEP, "a.toml", "a.toml: its keys are nested too deep"),
    "no such file": wrong("", "", ": it cannot be read: there is no such file"),
    "empty": wrong("", "a.yaml", "it is empty"),
    "broken": wrong("a: [1\nb: 2\n", "a.yaml", "a.yaml: line 2: not YAML: "),
    "not text": wrong("", "binary", "it is no text"),
    "of nobody": wrong("name: llama_factory\nchannels: [defaults]\nprefix: /home\n", "a.yaml", "of no software"),
    "prose": wrong("Just a few words.\n", "a.txt", "it is no configuration, message, snapshot, trace or script"),
    "of a Mac": wrong("RuntimeError: MPS backend out of memory (…)\n", "a.txt", "from a Mac's GPU"),
    "no card": wrong(LORA, "", "the files do not say on which card; add --gpu"),
    "no model": wrong("transformers: thavananh/opensloth/training_args.yaml", "", "name no model", "--gpu", "T4"),
    "unknown model": wrong("finetuning_type: lora\nstage: sft\nmodel_name_or_path: ./mine\n", "a.yaml",
                           "the model './mine' is not known by its name; give its config.json", "--gpu", "T4"),
    "no GPUs": wrong(FULL, "", "over how many GPUs ZeRO shards; add --gpus", "--gpu", "T4"),
    "a file that it names": wrong("transformers: ServiceNow/picard/train.json", "",
                                  "deepspeed: configs/ds_config_zero2.json: give that file too", "--gpu", "T4"),
    "refused": wrong("llama_factory: hiyouga/LLaMA-Factory/qwen3_lora_dpo.yaml", "",
                     "line 3, stage: dpo: DPO has a second model", "--gpu", "T4"),
    "a value": wrong(f"{OWN}lora_rank: many\n", "a.yaml",
                     "a.yaml, line 4, lora_rank: many: --lora: 'many' is not a number above 0", "--gpu", "T4"),
    "in eights": wrong(f"{OWN}lora_rank: 010\n", "a.yaml",
                       "line 4, lora_rank: 010: YAML 1.1 reads 010 in eights", "--gpu", "T4"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name", "mark", "more"), WRONG.values(), ids=[*WRONG])
def test_a_mistake_is_named(
    tmp_path: Path,
    file: Any,
    capsys: pytest.CaptureFixture[str],
    text: str,
    name: str,
    mark: str,
    more: tuple[str, ...],
) -> None:
    path = file(text, name) if text or name else str(tmp_path / "nothing.yaml")
    if name == "binary":
        Path(path).write_bytes(b"\xff\xfe\xfa\x00\xd8" * 9)
    status, _, err = run(capsys, path, *more)
    assert status == 2 and mark in err and err.startswith("flops-bytes: ") and err.count("flops-bytes: ") == 1


def test_two_configs_and_too_many_files_are_refused(file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = json.dumps(PRESETS["qwen2.5-7b"].config)
    status, _, err = run(capsys, file(model, "a.json"), file(model, "b.json"))
    assert status == 2 and "a.json is a model's config.json too" in err
    assert "give 20 or fewer" in run(capsys, *[file(LORA)] * 21)[2]


def test_a_pipe_and_a_fifo_are_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flops_bytes"]
    done = subprocess.run([*command, "/dev/stdin"], input=MESSAGE, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "Try first: hold less." in done.stdout
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "is no command" in done.stderr


def test_keys_in_tables_of_a_scripts_own_are_read(tmp_path: Path, file: Any) -> None:
    """https://github.com/salimsetiawan-oss/indo-rocm-ai/blob/60a42bd4dabe2dd1ee2342bff8861e95bb0247a8/configs/training_args.yaml"""
    text = """training:
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 4
  num_train_epochs: 3
precision:
  bf16: true
memory_optimization:
  gradient_checkpointing: true
  optim: "paged_adamw_8bit"
  max_seq_length: 2048
data:
  max_train_samples: null
"""
    reading = read(content_of(file(text, "a.yaml")))
    assert warned(reading) == []
    asked = {"micro_batch": 4, "accumulation": 4, "checkpointing": "full", "context": 2048}
    assert asked.items() <= reading.options.items() and reading.options["optimizer"] == "paged-adamw-8bit"
