"""What a page says in bold, or of a number in words, holds on every device that has the values (claims.toml)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledger.site.chapter import Chapter
from ledger.site.check import configured_device
from ledger.site.quote import QuoteError, Values, open_source
from tests.tables import BOOK

FILE = Path(__file__).with_name("claims.toml")
SOURCE = open_source(BOOK, configured_device(BOOK), local=False)
KNOWN = {"abs": abs, "all": all, "len": len, "max": max, "min": min, "set": set, "sorted": sorted, "sum": sum}


class Claim(NamedTuple):
    page: str
    values: list[str]
    holds: str
    said: dict[str, str]  # by language
    is_bold: bool = True

    def pattern(self, language: str) -> re.Pattern[str]:
        """What finds the sentence in a page: its words, its quotes in their order, anything for …; spaces aside."""
        parts = re.split(r"(@\d+|…)", self.said[language])
        found = [self._part(part) for part in parts]
        return re.compile("".join(found))

    def _part(self, part: str) -> str:
        if part == "…":
            return ".*?"
        if number := re.fullmatch(r"@(\d+)", part):
            return r"\{\{" + re.escape(unspaced(self.values[int(number[1]) - 1])) + r"(?::[^{}]*)?\}\}"
        return re.escape(unspaced(part))

    def is_true(self, found: list[Any]) -> bool:
        code = re.sub(r"@(\d+)", lambda match: f"v[{int(match[1]) - 1}]", self.holds)
        return bool(eval(code, {"__builtins__": KNOWN, "v": found}))


CLAIMS = [
    Claim(page, claim["values"], claim["holds"], {"en": claim["en"], "zh": claim["zh"]}, claim.get("bold", True))
    for page, claims in tomllib.loads(FILE.read_text(encoding="utf-8")).items()
    for claim in claims
]
NAMES = [f"{claim.page}: {claim.said['en'][:40]}" for claim in CLAIMS]


def unspaced(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_a_claim_holds_on_every_device_that_has_its_values(claim: Claim) -> None:
    for device in SOURCE.devices:
        values = Values(SOURCE, device)
        try:
            found = [values[name] for name in claim.values]
        except QuoteError as error:
            pytest.fail(f"{FILE.name}, {claim.said['en']!r}: {error}")
        if None not in found:
            assert claim.is_true(found), f"on {device}, {claim.page} says {claim.said['en']!r}; {claim.holds}: {found}"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_a_claim_is_on_its_page(claim: Claim, language: str) -> None:
    path = BOOK.docs / language / f"{claim.page}.md"
    paragraphs = [text for _, text in Chapter.read(path).paragraphs]
    if claim.is_bold:
        paragraphs = [part for text in paragraphs for part in re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)]
    assert any(claim.pattern(language).search(unspaced(text)) for text in paragraphs), (
        f"{path} says{' in bold' * claim.is_bold} nothing like {claim.said[language]!r}; if it says it "
        f"otherwise, look whether {claim.holds!r} still is what it says, and change {FILE.name}"
    )


def test_a_false_claim_is_found() -> None:
    claim = Claim("page", ["a.b", "a.c"], "@1 < @2", {"en": "@1 … less than @2"})
    assert claim.is_true([1, 2]) and not claim.is_true([2, 1])
    pattern = claim.pattern("en")
    assert pattern.search("{{a.b:.2f}}is" + "lessthan{{a.c}}")
    assert not pattern.search("{{a.c}}islessthan{{a.b}}") and not pattern.search("{{a.b}}ismorethan{{a.c}}")
