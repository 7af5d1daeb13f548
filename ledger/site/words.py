"""What the ledger itself says on a page, in the page's language."""

from __future__ import annotations

from typing import Any

from ledger.record import LOCAL
from ledger.site.quote import Source

WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "printed": "Printed on {devices}",
        "stale": "the code has changed since",
        "aside": "{text} ({aside})",
        "comma": ", ",
        "and": ", ",
        "none": "not measured yet",
        "absent": "not measured on this device",
        "elsewhere": "Numbers marked ‡ come from another device.",
        "waiting": "Not measured on any device so far: {names}.",
        "separator": "; ",
        "figure": "Figure: {alt}",
        "device": "Numbers from",
        "default": "The text describes the numbers from {device}.",
        "provenance": "Where these numbers come from",
        "repeat": "Measure them again with ",
        "local": "this machine, {name}",
        "columns": ["Snippet", "Device", "Measured on", "Software", "Largest spread"],
        "line": "line {line}",
        "trials": "{spread} ({trials} trials)",
        "exact": "the same on every device",
    },
    "zh": {
        "printed": "{devices} 上的输出",
        "stale": "此后代码有改动",
        "aside": "{text}（{aside}）",
        "comma": "，",
        "and": "、",
        "none": "尚未实测",
        "absent": "未在此设备上实测",
        "elsewhere": "带 ‡ 的数字来自其他设备。",
        "waiting": "以下各项尚无实测记录：{names}。",
        "separator": "；",
        "figure": "图：{alt}",
        "device": "数字来自",
        "default": "正文说的是 {device} 上的数字。",
        "provenance": "本页数字的来源",
        "repeat": "重新测量的命令：",
        "local": "本机，{name}",
        "columns": ["脚本", "设备", "测量日期", "软件版本", "最大波动幅度"],
        "line": "第 {line} 行",
        "trials": "{spread}（共 {trials} 次）",
        "exact": "在所有设备上相同",
    },
}


def say(language: str, what: str, **names: object) -> str:
    return str(WORDS[language][what]).format(**names)


def perhaps_stale(language: str, text: str, is_stale: bool) -> str:
    return say(language, "aside", text=text, aside=say(language, "stale")) if is_stale else text


def printed_on(source: Source, language: str, devices: list[str], is_alone: bool, is_stale: bool) -> str:
    """Whose output it is: devices by what stands before a comma in their names, which would read like more devices;
    nothing where all that have printed, and more than one, print the same (`is_alone`)."""
    if len(devices) > 1 and is_alone and not is_stale:
        return ""
    names = say(language, "and").join(dict.fromkeys(source.name(device).split(",")[0] for device in devices))
    return perhaps_stale(language, say(language, "printed", devices=names), is_stale)


def label(source: Source, language: str, device: str) -> str:
    """A device's name where readers choose among devices."""
    name = source.name(device)
    return say(language, "local", name=name) if device == LOCAL else name
