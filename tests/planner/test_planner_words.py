"""The planner's words: each line of an answer leads to the section that explains it, and money is the reader's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from planner import form, words
from tests.conftest import ROOT

# What the section has to speak of to which a line of the answer leads; of others that is a word of the line itself.
MEANS = {
    "master": "master",
    "batch": "targets",
    "copies": "copies",
    "layer": "backward",
    "temporaries": "temporar",
    "reduced": "reduce",
    "cache": "cache",
    "kept_free": "memory",
    "allowance": "context",
    "card": "CUDA",
    "micro_batch": "batch",
    "fewest": "ZeRO|GPUs",
    "stages": "ZeRO",
    "paged": "paged",
    "step": "tokens?",
    "accumulation": "accumulat",
    "as_large": "batch",
    "beyond": "batch",
    "speed": "tokens a second",
    "assumed": "plan",
    "steps": "published",
    "time": "days",
    "sent": "sends?",
    "waits": "hide",
    "hidden_from": "tokens",
    "money": "cost",
    "gpu_hours": "GPU-hour",
    "needed": "GPUs",
    "run_needed": "0\\.3",
    "run_time": "0\\.3",
    "run_money": "0\\.3",
    "run_gpu_hours": "0\\.3",
    "host": "CPU memory",
    "active": "active",
    "trained": "adapter",
    "flops_token": "FLOPs",
    "predicting": "DeepSeek",
    "text": "bytes",
    "text_vocab": "bytes",
    "token_cache": "token",
    "user_cache": "KV cache",
    "fit": "users",
    "in_time": "users",
    "token": "bandwidth",
    "prompts": "bandwidth",
    "each": "bandwidth",
    "alone": "bandwidth",
    "all": "users",
    "first": "prefill",
    "reached": "engines?",
    "users": "users",
    "loss in 8 chunks": "chunk",
    "per-op checkpointing": "linear outputs",
    "full checkpointing": "checkpoint",
    "8-bit AdamW": "8-bit",
    "state in the host's memory": "CPU memory",
    "load": "QLoRA",
    "order": "try",
    "note": "bound",
    "recomputing": "checkpoint",
    "layouts": "layout",
    "chapter": "room",
    "instead": "your own",
    "none": "room",
}
PAGE = re.compile(r"([\w-]+)/(?:#([\w-]+))?")


def links(value: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Each link among the words of the planner: the name of its line, the page and the heading."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from links(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from links(each, name)
    elif isinstance(value, str) and (match := PAGE.fullmatch(value)):
        yield name, match[1], match[2] or ""


def section(page: str, heading: str) -> str:
    """What stands under a heading of a page, and what stands under those below it."""
    text = (ROOT / "docs" / "en" / f"{page}.md").read_text(encoding="utf-8")
    heads = [*re.finditer(r"^(#+) .*\{#([\w-]+)\}$", text, re.MULTILINE)]
    starts = {head[2]: (head.start(), len(head[1])) for head in heads}
    start, level = starts[heading]
    after = (at for at, other in starts.values() if at > start and other <= level)
    return text[start : min(after, default=len(text))]


LINKS = sorted({*links({**words("en"), "errors": [], "help": {}, "choices": {}})})


def test_lines_lead_to_the_same_sections_in_both_languages() -> None:
    chinese = {*links({**words("zh"), "errors": [], "help": {}, "choices": {}})}
    assert {*LINKS} == chinese and len(LINKS) > 50


@pytest.mark.parametrize(("name", "page", "heading"), LINKS, ids=["-".join(link) for link in LINKS])
def test_a_line_leads_to_the_section_that_explains_it(name: str, page: str, heading: str) -> None:
    assert heading, "to a page's top"
    meant = MEANS.get(name, name.split()[0].rstrip("s"))
    assert re.search(meant, section(page, heading), re.IGNORECASE), f"{page}#{heading} does not speak of {meant}"


def test_an_error_is_told_with_what_its_pattern_finds() -> None:
    english, chinese = (words(language)["errors"] for language in ("en", "zh"))
    for pattern, said in english + chinese:
        holes = re.compile(pattern.replace("[^]", r"[\s\S]")).groups
        assert all(int(hole) <= holes for hole in re.findall(r"\$(\d)", said)), pattern


def test_a_number_and_its_sign_stay_on_one_line() -> None:
    told = [text for text in texts_of(words("en")) if "%" in text]
    assert len(told) > 10 and not [text for text in told if re.search(r"[\d}] %", text)]


def test_chinese_is_spaced_from_what_is_filled_in() -> None:
    """But from an amount or a time, which end in Chinese themselves."""
    ends_in_chinese = (
        r"(?:(?:run_)?(?:amount|time|cost)|deadline|step|sent_in|waits|token|latency|first|prompts|adds|assumed|moment"
        r"|of_kind|verdict|about|place|per)"
    )
    told = [text for text in texts_of({**words("zh"), "errors": []}) if "{" in text]
    glued = rf"\{{(?!{ends_in_chinese}\}})\w+\}}%?[\u4e00-\u9fff]|[\u4e00-\u9fff]\{{(?!{ends_in_chinese}\}}|\w+\}}（)"
    assert len(told) > 50 and not [text for text in told if re.search(glued, text)]


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("module", ["training", "serving"])
def test_what_is_estimated_is_said_in_both_languages(module: str) -> None:
    """Of what the form can ask about; the reason in brackets is the terminal's."""
    tree = ast.parse((ROOT / "flops_bytes" / "plan" / f"{module}.py").read_text(encoding="utf-8"))
    named = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "estimated"
    ]
    written = [ast.unparse(key) for each in named for key in getattr(each, "keys", [])]
    keys = [re.sub("^f?['\"]|['\"]$", "", key).partition(" (")[0] for key in written]
    assert keys
    for language in ("en", "zh"):
        known = words(language)["estimates"] | words(language)["stack"]["estimates"]
        assert not {*keys} - {*known, "state in few bits", "fp8 copies"}, language


def test_money_of_the_opening_example_is_in_the_readers_currency() -> None:
    for language, price, currency in (("en", "$2.5", r"\$[\d,]+"), ("zh", "¥18", r"[\d,]+ 元")):
        asked = form("short", language)
        strip = asked.partition('class="planner-strip"')[2].partition('class="planner-fields"')[0]
        assert f'value="{price}"' in asked and re.search(f"<b>{currency}</b>", strip), strip


def by_path(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each text among the words, with the keys that lead to it."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from by_path(each, (*path, str(key)))
    elif isinstance(value, str):
        yield path, value


def test_both_languages_fill_in_the_same_numbers() -> None:
    filled = [
        {path: {*re.findall(r"\{(\w+)\}", text)} for path, text in by_path({**words(language), "errors": []})}
        for language in ("en", "zh")
    ]
    english, chinese = filled
    assert sum(map(bool, english.values())) > 150
    for path in english.keys() & chinese.keys():
        assert english[path] == chinese[path], ".".join(path)


# What is counted in a refusal: behind a number in Chinese, and behind what the pattern finds in English.
COUNTED = {"键值头": "key-value heads", "头": "heads", "词元": "tokens", "位置": "positions", "特征": "features"}
COUNTED |= {"块": "parts", "层": "layers", "字节": "bytes", "倍": "times", "张": "GPUs"}


def test_a_refusal_counts_in_chinese_what_it_counts_in_english() -> None:
    compared = 0
    for pattern, said in words("zh")["errors"]:
        behind = [pattern[hole.end() :] for hole in re.finditer(r"\((?!\?)[^()]*\)", pattern)]
        for hole, noun in re.findall(rf"\$(\d) (?:个)?({'|'.join(COUNTED)})", said):
            english = next((each for each in COUNTED.values() if behind[int(hole) - 1].startswith(f" {each}")), "")
            assert english in ("", COUNTED[noun]), f"{pattern}: {said}"
            compared += bool(english)
    assert compared > 8
