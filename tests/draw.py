"""What takes long is drawn: `make test` looks at a part, another each time, and `make test SLOW=1` at everything.

The seed stands above the tests' output; `make test SEED=…` draws the same again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
ALL = os.environ.get("SLOW", "0") not in ("", "0")
SEED = os.environ.setdefault("SEED", str(random.SystemRandom().randrange(10**6)))  # which other processes inherit


def drawn(cases: Iterable[T], number: int) -> list[T]:
    """So many of the cases, in their order."""
    there = list(cases)
    places = range(len(there))
    chosen = places if ALL or number >= len(there) else sorted(random.Random(SEED).sample(places, number))
    return [there[place] for place in chosen]
