"""Every option of the planner is in one group of its help, and those that most people need are in the short one."""

from __future__ import annotations

from collections import Counter

import pytest

from flops_bytes.plan import help as plan_help
from flops_bytes.plan.__main__ import main
from flops_bytes.plan.help import GROUPS, SHORT, known, parser


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_every_option_is_in_one_group() -> None:
    assert Counter(name for names in GROUPS.values() for name in names) == Counter([*known()])


def test_the_short_help_has_a_line_for_each_of_few_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = shown(capsys, monkeypatch, "--help")
    lines = told.partition("options:\n")[2].partition("\n\n")[0].splitlines()
    assert len(SHORT) <= 15 and len(lines) <= 16  # help itself takes two
    assert {name for name in known() if f"  --{name.replace('_', '-')} " in told} == {*SHORT} - {"help"}
    assert "--help all" in told or "all: every option" in told


def test_all_of_it_has_each_option_under_its_group(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = shown(capsys, monkeypatch, "--help", "all")
    for title, names in GROUPS.items():
        group = told.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert all(f"--{name.replace('_', '-')}" in group for name in names), title
    assert "vLLM's option, with vLLM's default of 0.9" in " ".join(told.split())


def test_what_the_short_help_leaves_out_can_be_given_too() -> None:
    for name, option in known().items():
        if name not in plan_help.OWN:
            assert getattr(parser(False).parse_args([f"--{name.replace('_', '-')}", "1"]), name) == "1", option
    with pytest.raises(SystemExit):
        parser(False).parse_args(["--help", "nosuch"])
