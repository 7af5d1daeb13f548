"""Tables of what a call costs that does next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CALLS = ("empty", "add", "product")


def calls(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each call: to queue it, one in a row of many, one with a wait after it."""
    columns = ("queued", "in_a_row", "waiting")
    rows = [[labels["call"], *(labels[column] for column in columns)]]
    for call in CALLS:
        cells = [f"{{{{ launch_costs.measured_{column}_seconds.{call} }}}}" for column in columns]
        rows.append([labels[call], *cells])
    return rows


def graphs(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """For each call with a kernel: in a row as predicted and measured, a node of a graph, and what a graph gains."""
    columns = {
        "predicted": "predicted_in_a_row_seconds.{}",
        "measured": "measured_in_a_row_seconds.{}",
        "ratio": "measured_in_a_row_ratio.{}",
        "start": "measured_lines.{}.start_seconds",
        "node": "measured_lines.{}.node_seconds",
        "gain": "measured_graph_ratio.{}",
    }
    rows = [[labels["call"], *(labels[column] for column in columns)]]
    for call in CALLS[1:]:
        rows.append([labels[call], *(f"{{{{ launch_costs.{value.format(call)} }}}}" for value in columns.values())])
    return rows
