"""Moves what other devices gave out of a built page, into a file for each device beside it, fetched when it is chosen.

So a page weighs the same with ten devices as with one. Until it is moved, all stands in the page: the script of the
page finds it in either place.
"""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from ledger.site.elements import data_element

DATA = re.compile(r"<div hidden id='ledger-data' data-json='([^']*)'></div>")
FIRST = re.compile(r'<select[^>]*id="device-choice".*?<option value="([^"]*)"', re.DOTALL)
VARIANT = re.compile(r'(<template class="variant"[^>]*)>(.*?)</template>', re.DOTALL)
DEVICES = re.compile(r'data-devices="([^"]*)"')
ROW = re.compile(r'<tr data-device="([^"]*)">.*?</tr>\s*', re.DOTALL)


def move(page: Path) -> None:
    """Leaves in the page what its first device gave, and what its sentences show where another lacks a number; writes
    devices/<device>.json beside it for each of the others."""
    text = page.read_text(encoding="utf-8")
    found, first = DATA.search(text), FIRST.search(text)
    if not found or not first:
        return
    data = json.loads(html.unescape(found[1]))
    shown = html.unescape(first[1])
    others: dict[str, dict[str, Any]] = {}

    def of(device: str) -> dict[str, Any]:
        return others.setdefault(device, {"quotes": {}, "records": {}, "variants": {}, "rows": ""})

    kept_of: dict[str, set[str]] = defaultdict(set)  # devices, by snippet
    for key, quote in data["quotes"].items():
        kept = {shown, quote.get("instead", shown)}
        kept_of[key.partition(".")[0]] |= kept
        for device in {*quote["on"]} - kept:
            of(device)["quotes"][key] = quote["on"].pop(device)
    for snippet, records in data["records"].items():
        for device in {*records} - {shown, *kept_of[snippet]}:
            of(device)["records"][snippet] = records.pop(device)

    def move_variant(match: re.Match[str]) -> str:
        number = str(match.start())
        listed = DEVICES.search(match[2])
        for device in listed[1].split() if listed else ():
            of(device)["variants"][number] = match[2]
        return f'{match[1]} data-at="{number}"></template>'

    def move_row(match: re.Match[str]) -> str:
        of(match[1])["rows"] += match[0]
        return ""

    text = ROW.sub(move_row, VARIANT.sub(move_variant, text))
    if not others:
        return
    data["elsewhere"] = sorted(others)
    page.write_text(DATA.sub(lambda _: data_element("ledger-data", data), text), encoding="utf-8")
    folder = page.parent / "devices"
    folder.mkdir(exist_ok=True)
    for device, told in others.items():
        (folder / f"{device}.json").write_text(json.dumps(told, ensure_ascii=False, sort_keys=True), encoding="utf-8")
