"""Figure and tables of the chapter on how far off the planner is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from figures.axes import Axes, Log, Names
from ledger.text import link


def strip(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Planned over published of each reading, a row for each source that can be asked: at first above, today below."""
    rows = [source for source in values["published_meters.sources"] or [] if source["asked"]]
    short = [source["name"].rpartition("/")[2] for source in rows]
    names = [name if short.count(name) == 1 else source["file"] for name, source in zip(short, rows, strict=True)]
    ticks = (0.25, 0.5, 0.75, 1, 1.5, 2)
    axes = Axes(Log(labels["axis"], ticks=ticks), Names(names), height=40 * len(names) + 60)
    axes.axvline(1)
    for colour, (when, shift) in enumerate((("first", -0.17), ("today", 0.17))):
        points = [
            (ratio, row + shift + 0.03 * (number % 5 - 2))
            for row, source in enumerate(rows)
            for number, ratio in enumerate(source.get(f"{when}_ratios", []))
        ]
        axes.scatter([x for x, _ in points], [y for _, y in points], colour, labels[when], marker="ring", size=3)
    return str(axes)


def sources(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """Each source, the worst first: where it stands, its cards and meters, how many readings, how far off."""
    rows = [[labels[key] for key in ("source", "card", "meter", "readings", "asked", "error", "ratios")]]
    for n, source in enumerate(values["published_meters.sources"] or []):
        quote = f"published_meters.sources.{n}"
        meters = labels["separator"].join(labels[meter] for meter in source["meters"])
        file = f"[{labels['file']}](measurements/published/{source['file']}.toml)"
        row = [f"{source['name']} {link(source['at'], source['link'])}, {file}", source["card"], meters]
        row += [f"{{{{ {quote}.{name} }}}}" for name in ("readings", "asked")]
        low, high = (f"{{{{ {quote}.{end}_ratio:.2f }}}}" for end in ("low", "high"))
        known = [f"{{{{ {quote}.error_share:.0f% }}}}", f"{low}{labels['to']}{high}"]
        rows.append([*row, *(known if source["asked"] else ["", ""])])
    return rows


def far(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """What is known of the readings that are far off, the largest group first."""
    rows = [[labels[key] for key in ("of", "readings", "ratios", "why")]]
    for group in values["published_meters.far"] or []:
        low, high = (f"{group[f'{end}_ratio']:.2f}" for end in ("low", "high"))
        ratios = low if low == high else f"{low}{labels['to']}{high}"
        said = labels[group["why"]] + group[labels["language"]]
        rows.append([group["source"].rpartition("/")[2], str(group["readings"]), ratios, said])
    return rows
