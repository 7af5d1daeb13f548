"""Files become keys and values: YAML as software reads it; no code runs, sizes are bounded, errors have lines."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from flops_bytes.files.formats import flatten, line_of
from flops_bytes.files.parse import MOST_YAML, PYYAML, NotThisFormat, parse_json, parse_toml, parse_yaml
from tests.flops_bytes.files.cases import CASES, content

TRAPS = {  # what YAML 1.1 and 1.2 read differently, or a person does not expect
    "1e-5": 1e-5, "1.0e-5": 1e-5, "5e8": 5e8, "1_000": 1000, "yes": True, "No": False, "on": True, "off": False,
    "True": True, "~": None, "": None, "null": None, "010": "010", "0x1F": "0x1F", "1:30": "1:30", "08": "08",
    "'yes'": "yes", '"010"': "010", "0": 0, "-1": -1, "+2": 2, ".5": 0.5, "5.": 5.0, "1.5": 1.5,
    "2024-01-01": "2024-01-01", "3.0": 3.0, "1.2.3": "1.2.3", ".": ".", "._": "._", "e5": "e5", "auto": "auto",
    "99999999999999999999": 10**20 - 1,
}  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TRAPS.items(), ids=[*TRAPS])
def test_a_scalar_of_yaml_is_read_by_one_table(text: str, value: Any) -> None:
    found = parse_yaml(f"key: {text}")["key"]
    assert found == value and type(found) is type(value)


OF_YAML = [case for case in CASES.values() if str(case["name"]).endswith((".yaml", ".yml"))]


@pytest.mark.parametrize("case", OF_YAML, ids=lambda case: case["name"])
def test_collected_files_are_read_as_pyyaml_reads_them(case: dict[str, Any]) -> None:
    """But for the table: what PyYAML takes for a text, 1e-5, is a number, and a word in quotes is one."""
    theirs, ours = flatten(yaml.safe_load(case["text"])), flatten(parse_yaml(case["text"]))
    assert theirs.keys() == ours.keys()
    for key, value in theirs.items():
        is_number_here = isinstance(value, str) and isinstance(ours[key], float)
        assert ours[key] == (float(value) if is_number_here else value), key


def test_anchors_and_merges_are_read() -> None:
    text = "base: &b {lr: 1, batch: 2}\nrun:\n  <<: *b\n  batch: 3\nlist: [*b, 4]\n"
    assert parse_yaml(text)["run"] == {"lr": 1, "batch": 3} and parse_yaml(text)["list"] == [{"lr": 1, "batch": 2}, 4]


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
HOSTILE = {
    "a bomb of aliases": BOMB,
    "an alias of itself": "a: &a [*a]",
    "a deep list": "[" * 2_000,
    "deep keys": "\n".join(" " * n + "a:" for n in range(200)),
    "too long": "a: " + "x" * MOST_YAML,
    "no mapping": "just words",
    "a list": "- a\n- b",
    "nothing": "",
    "a tab": "a:\n\t- b",
    "a control character": "a: \x00",
    "two documents": "a: 1\n---\nb: 2",
    "an unknown alias": "a: *b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=[*HOSTILE])
def test_hostile_yaml_ends_soon_and_named(text: str) -> None:
    before = time.process_time()
    with pytest.raises(NotThisFormat, match="not YAML"):
        parse_yaml(text)
    assert time.process_time() - before < 2


def test_no_code_of_a_tag_runs(tmp_path: Path) -> None:
    path = tmp_path / "made"
    text = f"a: !!python/object/apply:os.system ['touch {path}']\nb: !!python/name:os.getcwd ''\n"
    assert parse_yaml(text)["a"] == [f"touch {path}"] and not path.exists()


def test_the_line_is_named() -> None:
    for read, text in (
        (parse_yaml, "a: 1\nb: [1, 2\nc: 3\n"),
        (parse_json, '{\n"a": 1,\n"b": oops\n}'),
        (parse_toml, "a = 1\nb = 2\nc = = 3\n"),
    ):
        with pytest.raises(NotThisFormat, match=r"^line 3: not "):
            read(text)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "1" * 10**4, "[1]", '{"a": ' + "1" * 10**4 + "}", ""])
def test_hostile_json_is_named(text: str) -> None:
    with pytest.raises(NotThisFormat, match="not JSON"):
        parse_json(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 10**5, "a = " + "1" * 10**4, "a" + ".a" * 10**4 + "= =", "= 1"])
def test_hostile_toml_is_named(text: str) -> None:
    with pytest.raises(NotThisFormat, match="not TOML"):
        parse_toml(text)


def test_deep_and_many_keys_are_named() -> None:
    for table in (parse_toml("a" + ".a" * 500 + " = 1"), {str(n): n for n in range(30_000)}):
        with pytest.raises(ValueError):
            flatten(table)


def test_keys_have_lines() -> None:
    text = "a: 1\nfsdp_config:\n  version: 2\nother:\n  version: 3\n"
    assert [line_of(text, key) for key in ("a", "fsdp_config.version", "other.version", "none")] == [1, 3, 5, 0]
    toml = "[model]\nname = 1\n[training.data]\nname = 2\n"
    assert [line_of(toml, key) for key in ("model.name", "training.data.name")] == [2, 4]
    assert line_of('{\n "a": {"b": 1},\n "c": 2}', "c") == 3 and line_of('{"a": {"b": 1}}', "a.b") == 1


def test_without_pyyaml_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match=r"pip install 'flops-bytes\[files\]'"):
        content(tmp_path, "finetuning_type: lora\n", "a.yaml")
    with pytest.raises(ValueError) as caught:
        content(tmp_path, "finetuning_type: lora\nlora_rank: 8\n", "a")
    assert str(caught.value) == f"{tmp_path / 'a'}: {PYYAML}"
