"""Formulas are set while a page is built, and the process that set them ends."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown import markdown

from ledger.site.math import FormulaExtension, typeset
from tests.conftest import ROOT

AT_ONCE = 4  # without its mend, two of three such processes never ended on a busy machine


def test_a_formula_is_set() -> None:
    assert "<msup>" in typeset("x^2", display=False)
    assert ['display="block"' in typeset("x^2", display=display) for display in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("tex", "shown"),
    [
        (r"\mathrm{MFU}", "<mi>MFU</mi>"),  # not a letter each
        (r"\mathbb{R} \mathbb{E} \mathsf{T}", "<mi>ℝ</mi><mi>𝔼</mi><mi>𝖳</mi>"),
        (r"\hat{m}", "<mo>ˆ</mo>"),
        (r"\min x", '<mi>min</mi><mspace width="0.17em"></mspace><mi>x</mi>'),
    ],
)
def test_a_formula_is_written_as_browsers_draw_it(tex: str, shown: str) -> None:
    assert shown in typeset(tex, display=False)


@pytest.mark.parametrize(("behind", "kept"), [(", the", ","), ("，即", "，"), (").", ")."), (" is", ""), ("。", "。")])
def test_no_line_begins_with_the_comma_behind_a_formula(behind: str, kept: str) -> None:
    options = {"pymdownx.arithmatex": {"generic": True}}
    found = markdown(
        f"It is $x${behind}", extensions=["pymdownx.arithmatex", FormulaExtension()], extension_configs=options
    )
    assert f"</math>{kept}</span>{behind.removeprefix(kept)}</p>" in found


def test_no_formula_carries_what_no_browser_shows() -> None:
    assert not {"annotation", "semantics", "xmlns", "span"} & set(re.findall(r"\w+", typeset("x^2", display=False)))


def test_an_alphabet_that_no_browser_draws_is_named() -> None:
    with pytest.raises(ValueError, match="no letters in fraktur"):
        typeset(r"\mathfrak{g}", display=False)


def test_the_font_has_every_character_of_the_formulas(site: Path) -> None:
    """Upright letters are the text's own; `ledger/site/font/make.py` cuts the font to characters.txt."""
    had = set((ROOT / "ledger/site/font/characters.txt").read_text(encoding="utf-8").split())
    used = set()
    for path in site.rglob("*.html"):
        for formula in re.findall(r"<math.*?</math>", path.read_text(encoding="utf-8"), re.DOTALL):
            shown = re.sub(r"<mtext.*?</mtext>|<mi>\w{2,}</mi>|<[^>]*>", "", formula, flags=re.DOTALL)
            used |= set(html.unescape(shown))
    assert len(used) > 80 and "".join(sorted(used - had)).strip() == ""


def test_what_is_no_formula_is_named() -> None:
    with pytest.raises(ValueError, match=r"KaTeX cannot set \$\\nosuch\$: .*Undefined control sequence"):
        typeset(r"\nosuch", display=False)


def test_a_process_that_set_a_formula_ends() -> None:
    code = "from ledger.site.math import typeset; typeset('x^2', display=False)"
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(AT_ONCE)]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * AT_ONCE
    finally:
        for process in processes:
            process.kill()
            process.wait()
