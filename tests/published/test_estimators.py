"""What other estimators printed stands with commands that follow from the readings; a made-up one is run and read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from published.estimators import ASK, UNITS, WRITTEN, commands, estimates, read_said, run, wanted
from published.readings import GIB, Compared, Reading
from tests.conftest import ROOT
from tests.flops_bytes.plan.test_plan_evidence import of_memory

FOLDER = ROOT / "measurements" / "published" / "estimators"
SAID = read_said(FOLDER)
LLAMA: dict[str, Any] = {"model": "llama-3-8b", "gpu": "A100 80GB SXM", "checkpointing": "full", "recipe": "autocast"}
HEAD = """# Made up.
name = "Somebody's"
repository = "some/body"
commit = "{commit}"
licence = "MIT"
prints = '^Peak(?: with cache)?: (?P<gib>[\\d.]+) GiB$'
"""


def test_every_estimator_is_asked_and_says_where_it_comes_from() -> None:
    assert set(SAID) == set(ASK)
    for name, told in SAID.items():
        assert told["name"] and told["licence"] and set(re.compile(told["prints"]).groupindex) <= set(UNITS), name
        assert re.fullmatch(r"[0-9a-f]{40}", told.get("commit", "")) or re.search(r"==\d", told["package"]), name
        assert WRITTEN in (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(ASK))
def test_what_stands_is_what_the_readings_ask(name: str) -> None:
    """If not: `python -m published.estimators measurements/published CLONES` asks what is new."""
    stands = {told["command"].strip(): told["rows"] for told in SAID[name]["runs"]}
    assert stands == wanted(name, [each.reading for each in of_memory() if each.said])
    assert all(re.fullmatch(r"\d+\.\d+", literal) for told in SAID[name]["runs"] for literal in told["printed"])


def test_what_was_printed_is_what_two_of_them_compute() -> None:
    """By their own formulas, from the words of their commands."""
    for told in SAID["deepspeed"]["runs"]:
        words = {word: int(value) for word, value in re.findall(r"(\w+)=(\d+)", told["command"])}
        cards = words["num_gpus_per_node"] * words["num_nodes"]
        size = 4 * words["largest_layer_params"] + int(18 * words["total_params"] / cards)
        assert told["printed"] == [f"{size / GIB:.2f}"]
    for told in SAID["eleuther"]["runs"]:
        word = {name: float(value) for name, value in re.findall(r"--([\w-]+)=([\d.]+)", told["command"])}
        h, L, s, gpus = (word[name] for name in ("hidden-size", "num-layers", "sequence-length", "num-gpus"))
        attention, mlp = 2 * (1 + word["kv-size-ratio"]), word["num-mlp-linears"] * word["ffn-expansion-factor"]
        parameters = 2 * word["vocab-size"] * h + h * s + 8 * h * L + 2 * h + (attention + mlp) * L * h * h
        activations = s * word["batch-size-per-gpu"] * h * L * 34
        assert "--checkpoint-activations" in told["command"]
        buffers = 2 * 1.5e9 if gpus > 1 else 0
        assert told["printed"] == [f"{(18 * parameters / gpus + activations + buffers) / GIB:.2f}"]


@pytest.mark.parametrize(
    "settings,who",
    [
        ({}, {"accelerate", "deepspeed", "eleuther", "llm-analysis"}),
        ({"recipe": "bf16-master"}, set(ASK)),
        ({"recipe": "bf16"}, {"llm-analysis"}),
        ({"lora": 16}, set()),
        ({"optimizer": "adamw-8bit"}, set()),
        ({"recipe": "bf16", "update": "in-backward"}, set()),
        ({"gpus": 8, "zero": 3}, {"deepspeed", "eleuther", "llm-analysis"}),
        ({"gpus": 8, "zero": 2}, {"eleuther", "llm-analysis"}),
        ({"checkpointing": "per-op"}, {"accelerate", "deepspeed"}),
        ({"gpu": "L40S"}, {"accelerate", "deepspeed", "eleuther"}),
        ({"recipe": ["bf16", "autocast"]}, {"llm-analysis"}),
    ],
)
def test_none_is_asked_what_it_has_no_input_for(settings: dict[str, Any], who: set[str]) -> None:
    assert {name for name in ASK if commands(name, LLAMA | settings)} == who


def test_a_setting_that_is_not_known_is_asked_as_all_that_it_can_be() -> None:
    asked = commands("eleuther", LLAMA | {"context": [512, 1024]})
    assert [re.findall(r"sequence-length=(\d+)", command) for command in asked] == [["1024"], ["512"]]
    assert len(commands("deepspeed", LLAMA | {"context": [512, 1024]})) == 1  # it knows no length


def test_a_made_up_estimator_is_run_at_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "clones" / "some" / "body"
    clone.mkdir(parents=True)
    commits = []
    for peak in ("1.50", "9.99"):
        (clone / "peak.txt").write_text(f"Peak: {peak} GiB\nPeak with cache: 2.25 GiB\n", encoding="utf-8")
        commits.append(commit(clone))
    path = tmp_path / "made-up.toml"
    path.write_text(HEAD.format(commit=commits[0]), encoding="utf-8")
    monkeypatch.setitem(ASK, "made-up", lambda shape, told: f"echo asked >> ../../count; cat peak.txt # {told['gpus']}")
    readings = [reading("allocated_gib", "1.0", row=row, gpus=gpus) for row, gpus in ((0, 1), (1, 2), (2, 1))]
    assert run(path, readings, tmp_path / "clones", anew=False) == 2
    told = read_said(tmp_path)["made-up"]
    assert [each["printed"] for each in told["runs"]] == [["1.50", "2.25"]] * 2
    assert [each["rows"] for each in told["runs"]] == [[["s", "t", 0], ["s", "t", 2]], [["s", "t", 1]]]
    assert path.read_text(encoding="utf-8").startswith(HEAD.format(commit=commits[0]))
    assert run(path, readings, tmp_path / "clones", anew=False) == 0 and read_said(tmp_path)["made-up"] == told
    assert run(path, readings, tmp_path / "clones", anew=True) == 2
    assert (tmp_path / "clones" / "count").read_text(encoding="utf-8").count("asked") == 4
    path.write_text(HEAD.format(commit=commits[0]).replace("Peak", "Top"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"cat peak\.txt"):
        run(path, readings, tmp_path / "clones", anew=False)
    assert WRITTEN not in path.read_text(encoding="utf-8")  # as it was


@pytest.mark.parametrize(
    "what,about,low,high",
    [
        ("allocated_gib", {}, 1.5 * GIB, 1.5 * GIB),
        ("active_gib", {}, 1.5 * GIB, 1.5 * GIB),
        ("reserved_gib", {}, 2.25 * GIB, 2.25 * GIB),
        ("smi_mib", {}, 2.25 * GIB, 2.25 * GIB),
        ("memory_gb", {}, 1.5 * GIB, 2.25 * GIB),
        ("memory_g", {}, 1.5e9, 2.25 * GIB),  # not said whether a G is 1e9 bytes
        ("memory_gib", {"summed_gpus": 2}, 3.0 * GIB, 4.5 * GIB),
    ],
)
def test_what_an_estimator_says_is_of_the_meter(
    tmp_path: Path, what: str, about: dict[str, Any], low: float, high: float
) -> None:
    text = (
        HEAD.format(commit="0" * 40) + '\n[[runs]]\ncommand = ""\nprinted = ["1.50", "2.25"]\nrows = [["s", "t", 0]]\n'
    )
    (tmp_path / "made-up.toml").write_text(text, encoding="utf-8")
    of_row, of_another = (Compared(reading(what, "2.0", row=row, about=about), (1.0, 1.0), "") for row in (0, 1))
    assert list(estimates(tmp_path, [of_row, of_another])) == [("made-up", of_row, (low, high))]


def reading(what: str, literal: str, row: int, gpus: int = 1, about: dict[str, Any] | None = None) -> Reading:
    return Reading("s", "t", row, "", 0, what, literal, LLAMA | {"gpus": gpus}, about or {}, {}, None, None)


def commit(clone: Path) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(clone), *words], check=True)
    return subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
