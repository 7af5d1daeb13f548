"""Warns of tools that end soon or have ended, as .github/ends.toml says: every night, as annotations on GitHub."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

ENDS = Path(__file__).parent.parent / ".github" / "ends.toml"
NOTICE = timedelta(days=180)


def told() -> dict[str, dict[str, Any]]:
    """What is said of each tool, by its name, but for those that go on."""
    return {name: entry for name, entry in tomllib.loads(ENDS.read_text()).items() if name != "alive"}


def warnings(today: date) -> Iterator[str]:
    ending = [(entry["ends"], name, entry) for name, entry in told().items() if "ends" in entry]
    for end, name, entry in sorted(ending, key=lambda each: each[:2]):
        days = (end - today).days
        if days <= NOTICE.days:
            when = f"ends in {days} days" if days > 0 else "has ended"
            yield f"{name} {when} ({end}, {entry['source']}). {entry['then']}"


def main() -> None:
    for line in warnings(datetime.now(UTC).date()):
        print(f"::warning::{line}")


if __name__ == "__main__":
    main()
