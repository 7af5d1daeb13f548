"""The figure and tables of inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log

CACHES = ("gpt2", "llama_8b", "llama_70b", "deepseek")
BITS = ("bf16", "int8", "int4")
SPEEDS = (
    "fast_7b",
    "fast_7b_int8",
    "fast_7b_int4",
    "fast_8b",
    "fast_8b_int8",
    "fast_mixtral_int8",
    "fast_70b_int8",
    "fast_70b_int4",
    "cpp_7b",
    "cpp_7b_int8",
)
REPORTED = ("vllm_20k", "vllm_29k", "deepseek")


def latency(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Tokens a second of all users over the time of a step, measured and by the bound, from one user to many."""
    language = labels["language"]
    axes = Axes(Log(labels["latency"], unit="seconds", language=language), Log(labels["throughput"]))
    measured, predicted = (values[f"decode_speed.{name}sweep_seconds"] or {} for name in ("", "predicted_"))
    users = sorted(map(int, predicted))
    for colour, (found, label) in enumerate(((predicted, labels["bound"]), (measured, labels["measured"]))):
        seconds = [found.get(str(b)) for b in users]
        rates = [taken and b / taken for b, taken in zip(users, seconds, strict=True)]
        axes.plot(seconds, rates, colour, label, dashed=not colour)
        axes.scatter(seconds, rates, colour)
        for b, taken, rate in zip(users, seconds, rates, strict=True):
            if colour and taken and rate:
                axes.annotate(str(b), taken, rate, dx=8, dy=14)
    return str(axes)


def caches(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Bytes of a token by the formula and counted."""
    rows = [[labels[column] for column in ("model", "formula", "bytes", "counted")]]
    for name in CACHES:
        cells = (f"{{{{ inference.{kind}_bytes.{name}:full }}}}" for kind in ("token", "counted"))
        rows.append([labels[name], f"${labels[name + '_formula']}$", *cells])
    return rows


def bits(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Bytes of the weights and the bound of one user, by bits a weight."""
    rows = [[labels[column] for column in ("weights", "bits", "bytes", "short", "long")]]
    for name in BITS:
        cells = (
            f"BITS.{name}",
            f"quantized_bytes.{name}:gb",
            f"one_user.{name}.1:.0f",
            f"one_user.{name}.131072:.0f",
        )
        rows.append([labels[name], *(f"{{{{ inference.{cell} }}}}" for cell in cells)])
    return rows


def speeds(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Tokens a second that others report, under our bound."""
    return _rows("others", SPEEDS, (".0f", ".1f", ".2f"), labels)


def reported(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """GiB of caches that others report, beside our formula."""
    return _rows("caches", REPORTED, (".2f", ".2f", ".4f"), labels)


def _rows(name: str, cases: tuple[str, ...], formats: tuple[str, ...], labels: Mapping[str, str]) -> list[list[str]]:
    columns = ("bound" if name == "others" else "formula", "reported", "ratio")
    rows = [[labels[column] for column in ("case", *columns)]]
    for case in cases:
        cells = (f"{{{{ inference.{name}.{case}.{c}:{form} }}}}" for c, form in zip(columns, formats, strict=True))
        rows.append([labels[case], *cells])
    return rows


def graphs(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """A step by Python and from a graph, over its bound."""
    rows = [[labels[column] for column in ("model", "bound", "eager", "eager_ratio", "graph", "graph_ratio")]]
    for model in ("gpt2", "llama"):
        cells = ("bound_seconds", "eager_seconds", "eager_ratio", "graph_seconds", "graph_ratio")
        rows.append([labels[model], *(f"{{{{ decode_speed.measured_graphs.{model}.{cell} }}}}" for cell in cells)])
    return rows
