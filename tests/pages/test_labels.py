"""A label of a figure, a table or the planner says what its key names, in both languages: none has another's text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from planner import words as words_of
from tests import tables
from tests.pages.test_series import BLOCKS, gain

CHINESE = tables.blocks("zh")
# What a thing is called: a text that has the one word should not stand where the other does.
IN_CHINESE = {
    **{"预测": "predicted", "实测": "measured", "公开": "published", "假定": "assumed", "公式": "formula"},
    **{"前向": "forward", "反向": "backward", "更新": "update", "首": "first", "第一": "first", "后面": "later"},
    **{"激活": "activation", "梯度": "gradient", "优化器": "optimizer", "权重": "weight", "主权重": "master"},
    **{
        "适配器": "adapter",
        "词元": "token",
        "临时": "temporary",
        "缓存": "cache",
        "输出头": "head",
        "嵌入": "embedding",
    },
    **{"注意力": "attention", "查询": "query", "键": "key", "值": "value", "专家": "expert", "张量": "tensor"},
    **{
        "预留": "reserved",
        "分配": "allocated",
        "空闲": "free",
        "显存": "memory",
        "内存": "memory",
        "带宽": "bandwidth",
    },
    **{
        "峰值": "peak",
        "通信": "communication",
        "流水线": "pipeline",
        "微批": "batch",
        "序列": "context",
        "损失": "loss",
    },
    **{"读": "read", "写": "write", "启动": "launch", "等待": "wait", "中位数": "median", "平均": "mean"},
    **{"速度": "speed", "单价": "price", "天": "day", "用户": "user", "并发": "user", "提示": "prompt", "节点": "node"},
    **{
        "最多": "most",
        "最大": "most",
        "最少": "fewest",
        "至少": "least",
        "融合": "fused",
        "随机": "random",
        "行": "row",
    },
    **{
        "列": "column",
        "层": "layer",
        "步": "step",
        "链路": "link",
        "网卡": "network",
        "时延": "latency",
        "矩阵": "matrix",
    },
}
SAME = {"queries": "query", "matrices": "matrix", "reads": "read", "largest": "most", "longest": "most"}
SAME |= {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}

# Pairs whose texts, right as they are, hold words of each other's keys.
CROSSED = {
    "formulas.parallel": {
        ("stage_3", "gathered"),
        ("stage_3", "pipeline"),
        ("ring", "context"),
        ("sharded", "gathered"),
    },
    ".placeholders": {("bytes_a_token", "allowance")},
    "gpt2-parameters#letters 2": {("A", "dY")},
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
    return frozenset(SAME.get(word, word if word[-2:] == "ss" else word.removesuffix("s")) for word in found)


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


def beside(value: object, path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """The planner's words that stand beside each other, by where they do."""
    if isinstance(value, dict):
        texts = {str(key): each for key, each in value.items() if isinstance(each, str | list)}
        yield path, {key: " ".join(map(str, each)) if isinstance(each, list) else each for key, each in texts.items()}
        for key, each in value.items():
            yield from beside(each, f"{path}.{key}")


ENGLISH_WORDS, CHINESE_WORDS = (dict(beside({**words_of(language), "errors": {}})) for language in ("en", "zh"))


@pytest.mark.parametrize("group", ENGLISH_WORDS)
def test_of_two_of_the_planners_words_neither_has_the_others_text(group: str) -> None:
    ours, theirs = ENGLISH_WORDS[group], {k: told for k, told in CHINESE_WORDS[group].items() if k != "patterns"}
    assert sorted(ours) == sorted(theirs)
    pairs = itertools.combinations(ours, 2)
    found = {(a, b) for a, b in pairs if crossed((ours[a], ours[b]), (theirs[a], theirs[b]))}
    assert found == CROSSED.get(group, set())


OTHER_WORDS = {"active", "allowance"}  # whose Chinese has other terms
SHORT = [
    group
    for group in ENGLISH_WORDS
    if re.match(r"\.(?:serving\.)?(?:fields|lines|part_names|moments|details)\b", group)
]


@pytest.mark.parametrize("group", SHORT)
def test_a_label_of_the_planner_is_called_as_the_thing_is_and_as_no_other(group: str) -> None:
    ours, theirs = (
        {key: re.sub(r" [\w-]+/#[\w-]+", "", text) for key, text in of[group].items()}
        for of in (ENGLISH_WORDS, CHINESE_WORDS)
    )
    terms = {key: words(text) & {*IN_CHINESE.values()} for key, text in ours.items() if key not in OTHER_WORDS}
    assert [key for key, found in terms.items() if found and not found & words(theirs[key])] == []
    assert len({*theirs.values()}) == len({*ours.values()})
