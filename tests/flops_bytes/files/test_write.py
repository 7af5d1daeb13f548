"""What is written down for a software asks, read back, for the same plan; what no key says is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flops_bytes.files.command import main
from flops_bytes.files.content import FORMATS
from flops_bytes.files.formats import flatten
from flops_bytes.files.interpret import Part, interpret, words
from flops_bytes.files.run import facts_beside, parts_of
from flops_bytes.files.software import NAMES, softwares
from flops_bytes.files.write import METHOD, REMOVED, Edit, change_of, lines_of, said, sayable, wanted_options
from tests.flops_bytes.files.cases import CASES, content, name_of

CHANGES: tuple[dict[str, Any], ...] = (
    {"trained": "all"},
    {"trained": "lora"},
    {"trained": "qlora-double", "checkpointing": "full"},
    {"checkpointing": "none"},
    {"micro_batch": 2, "accumulation": 4},
    {"optimizer": "adamw-8bit"},
    {"loss": "fused"},
    {"zero": "3"},
    {"zero": "2", "offload": "yes"},
    {"context": 1_024},
)


@pytest.mark.parametrize("case", CASES.values(), ids=[*CASES])
def test_lines_of_a_collected_file_read_back_as_they_are_wanted(tmp_path: Path, case: dict[str, Any]) -> None:
    one, data = content(tmp_path, case["text"], name_of(case)), softwares()
    parts, config = parts_of([one], data)
    more = facts_beside(parts, config)
    reading = interpret(parts, data, more)
    for changed in CHANGES:
        change = change_of(parts, data, more, changed)
        held = [dict(part.held) for part in parts]
        for n, part in enumerate(parts):
            mine = [edit for edit in change.edits if (edit.file, edit.software) == (part.file, part.software)]
            text = "\n".join(lines_of(one.written_in, mine))
            if text:
                text = f"{{{text}}}" if one.written_in == "json" else text
                held[n] |= flatten(FORMATS[one.written_in](text))
            for edit in mine:
                if edit.value == REMOVED:
                    del held[n][edit.key]
        back = interpret([part._replace(held=own) for part, own in zip(parts, held, strict=True)], data, more)
        told = {**change.unsaid, **change.beside, **(dict.fromkeys(METHOD) if "trained" in change.unsaid else {})}
        wanted = wanted_options(reading.options, changed)
        if change.edits:
            assert not back.refused
        for name in {*wanted, *back.options} - {*told}:
            assert words(said(back.options, name)) == words(said(wanted, name)), (changed, name)
        for name, value in change.beside.items():
            assert words(said(back.options, name)) == words(value)
        assert change.unsaid.items() <= changed.items()


SAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what each software of the first four can be asked for
    "llama_factory": (
        {"trained": "qlora-double", "optimizer": "adamw-8bit"},
        {"quantization_bit": 4, "optim": "adamw_bnb_8bit"},
    ),
    "torchtitan": (
        {"checkpointing": "full", "micro_batch": 2},
        {"activation_checkpoint.mode": "full", "training.local_batch_size": 2},
    ),
    "deepspeed": ({"zero": "2"}, {"zero_optimization.stage": 2, "zero_optimization.overlap_comm": True}),
    "transformers": (
        {"loss": "fused", "checkpointing": "full"},
        {"use_liger_kernel": True, "gradient_checkpointing": True},
    ),
}
HELD: dict[str, dict[str, Any]] = {
    "llama_factory": {"finetuning_type": "lora", "stage": "sft", "bf16": True},
    "torchtitan": {"model.name": "llama3", "model.flavor": "8B", "activation_checkpoint.selective_ac_option": "op"},
    "deepspeed": {"zero_optimization.stage": 3},
    "transformers": {"per_device_train_batch_size": 1, "output_dir": "x"},
}


@pytest.mark.parametrize("software", SAYS)
def test_a_software_says_it_by_its_own_keys(software: str) -> None:
    changed, keys = SAYS[software]
    change = change_of([Part("a", software, HELD[software])], softwares(), {}, changed)
    assert {edit.key: edit.value for edit in change.edits} == keys and not change.unsaid


def test_what_a_software_cannot_say_is_told() -> None:
    change = change_of([Part("a", "llama_factory", HELD["llama_factory"])], softwares(), {}, {"offload": "yes"})
    assert (change.edits, change.unsaid) == ([], {"offload": "yes"})
    follows = change_of([Part("a", "llama_factory", HELD["llama_factory"])], softwares(), {}, {"trained": "all"})
    assert [edit.value for edit in follows.edits] == ["full"] and follows.beside == {"recipe": "autocast"}
    assert [name for name in NAMES if "chunks" in sayable([Part("a", name, {})], softwares())] == [
        "axolotl",
        "torchtune",
    ]


def test_what_stands_if_nobody_says_it_is_asked_by_taking_a_key_out() -> None:
    held = {**HELD["transformers"], "use_liger_kernel": True}
    change = change_of([Part("a", "transformers", held)], softwares(), {}, {"loss": "plain"})
    assert [(edit.key, edit.value) for edit in change.edits] == [("use_liger_kernel", False)] and not change.unsaid


def test_each_format_has_its_own_lines() -> None:
    keys = {"a.b": True, "a.c": "yes", "d": 1.5, "e.f.g": "x: y"}
    assert lines_of("yaml", []) == []
    some = [Edit("", "", key, value) for key, value in keys.items()]
    for format in ("yaml", "toml", "json"):
        text = "\n".join(lines_of(format, some))
        assert flatten(FORMATS[format](f"{{{text}}}" if format == "json" else text)) == keys, text


def test_find_proposes_what_the_files_can_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(CASES["llama_factory: hiyouga/LLaMA-Factory/qwen3_full_sft.yaml"]["text"].replace("4B", "8B"))
    assert main([str(path), "--gpu", "RTX 4090", "--gpus", "1", "--zero", "0", "--find"]) == 3
    out = capsys.readouterr().out
    ways = out.partition("what fits, the fastest first, and the lines that ask for it:")[2]
    assert "--trained qlora-double" in ways and "\n     finetuning_type: lora\n" in ways
    assert "\n     quantization_bit: 4\n" in ways and "--chunks" not in ways


def test_options_behind_a_file_are_written_as_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "llama3_8b.toml"
    path.write_text(CASES["torchtitan: pytorch/torchtitan/llama3_8b.toml"]["text"])
    main([str(path), "--gpu", "H100 SXM", "--gpus", "8", "--micro-batch", "2", "--checkpointing", "full"])
    told = capsys.readouterr().out.partition("the options behind the files, as their own lines:\n")[2]
    assert told.splitlines()[1:] == [
        "     [training]",
        "     local_batch_size = 2",
        "     [activation_checkpoint]",
        '     mode = "full"',
    ]
