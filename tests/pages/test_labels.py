"""A label of a figure or table says what its key names, in both languages: of two, neither has the other's text."""

from __future__ import annotations

import itertools
import re

import pytest

from tests import tables
from tests.pages.test_series import BLOCKS, gain

CHINESE = tables.blocks("zh")
IN_CHINESE = {"预测": "predicted", "实测": "measured", "前向": "forward", "反向": "backward", "公式": "formula"}
SAME = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}

# Pairs whose texts, right as they are, hold words of each other's keys.
CROSSED = {
    "formulas.parallel": {("stage_3", "gathered"), ("stage_3", "pipeline"), ("ring", "context")},
    "formulas.training": {("checkpoint", "file")},
    "inference#kinds": {("qwen3-30b-a3b", "kimi-linear-48b-a3b")},
    "mixed-precision#recipes": {
        ("master", "master_fp32_gradients"),
        ("fp32_moments", "bf16"),
    },
    "tensor_operations.expressions": {("measured", "ratio")},
}


def words(text: object) -> frozenset[str]:
    """Latin words and numbers, what both languages and the keys have in common, and some terms in both."""
    found = re.findall(r"[a-z]+\d*|\d+", str(text).lower().replace(",", "").replace("_", " "))
    found += [term for chinese, term in IN_CHINESE.items() if chinese in str(text)]
    return frozenset(SAME.get(word, word) for word in found)


def crossed(names: tuple[object, object], texts: tuple[object, object]) -> bool:
    """Whether two texts would fit two names better the other way round."""
    (one, other), (ones, others) = map(words, names), map(words, texts)
    return gain(one - other, [ones - others], other - one, [others - ones]) < 0


TABLES = [name for name, block in BLOCKS.items() if block.kind == "table" and not block.argument]


@pytest.mark.parametrize("table", TABLES)
def test_of_two_rows_or_columns_neither_has_the_others_name(table: str) -> None:
    english, chinese = (tables.names(blocks[table].options) for blocks in (BLOCKS, CHINESE))
    found, apart = set(), []
    for ours, theirs in zip(english, chinese, strict=True):
        for (one, its), (other, others) in itertools.combinations(zip(ours, theirs, strict=True), 2):
            found |= {(one[0], other[0])} if crossed((one[0], other[0]), (one[1], other[1])) else set()
            apart += [(its[1], others[1])] if crossed((one[1], other[1]), (its[1], others[1])) else []
    assert found == CROSSED.get(table, set())
    assert apart == []


@pytest.mark.parametrize("figure", [name for name, block in BLOCKS.items() if block.options.get("labels")])
def test_of_two_labels_neither_has_the_others_text(figure: str) -> None:
    english, chinese = (blocks[figure].options["labels"] for blocks in (BLOCKS, CHINESE))
    pairs = list(itertools.combinations(english, 2))
    assert {(a, b) for a, b in pairs if crossed((a, b), (english[a], english[b]))} == CROSSED.get(figure, set())
    assert [(a, b) for a, b in pairs if crossed((english[a], english[b]), (chinese[a], chinese[b]))] == []


def test_swapped_texts_are_found() -> None:
    assert crossed(("fp32", "bf16"), ("用 bf16", "用 fp32")) and not crossed(("fp32", "bf16"), ("用 fp32", "用 bf16"))
    assert crossed(("predicted", "measured"), ("实测值", "预测值"))
    assert crossed(("float32", "bfloat16"), ("bf16 here", "fp32 here"))
