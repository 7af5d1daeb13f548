"""The page's scripts as a reader is sent them, and the engine in them before it is shortened: each made once."""

from __future__ import annotations

import re
from functools import cache

import planner
from planner import METERS, STACKS, WANTED, engine
from planner.translate import together


@cache
def sent_script(name: str) -> str:
    """A script as the site has it; who needs the scripts first, mostly the build of the site, makes them all."""
    planner.write_scripts()
    return (planner.ASSETS / name).read_text(encoding="utf-8")


def engine_of(name: str) -> str:
    """The first statement of a script: its engine, and the names that the rest of it knows."""
    found = re.match(
        r"let \{[\w,$]+\}=\(\(\)=>\{.*?\nreturn \{[\w,$]+(,shared:\{[\w,$]*\})?\}\}\)\(\);",
        sent_script(name),
        re.DOTALL,
    )
    assert found
    return found[0]


@cache
def whole() -> str:
    """What answers for models known by name and for all others, and what reads meters, in JavaScript."""
    return engine(wanted=together(WANTED, METERS, STACKS))
