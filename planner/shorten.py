"""The planner's scripts as they are sent: what of the runtime is reached, by short names, without comments and spaces.

What an error says to whoever writes Python that is translated is left out as well; what the page says is not.
Names are shortened here because of the two minifiers with wheels for Python that could, one (tdewolff-minify 2.24.12)
changed what the planner answers, and the other (minify-html 0.18.1) keeps the long ones.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rjsmin import jsmin

NAME = re.compile(r"\$[A-Za-z_]\w*")  # of the runtime, or bound at the top of a module
STATEMENT = re.compile(r"\n(?=(?:const|let|class|function\*?) )")
BOUND = re.compile(r"^(?:const|let|class|function\*?) (\$\w+)|(?<=, )(\$\w+) = ", re.MULTILINE)
DECLARED = re.compile(BOUND.pattern + r"|(?:^let |, )\[((?:\$\w+,?)+)\] = ", re.MULTILINE)  # of translated code too
SEAM = "\n/* later */\n"
TITLE = re.compile(r'\$record\("\w+",')  # of a record, which only its text has, and no page writes one
RECORD = re.compile(r'\$record\("\w+", (\[.*\])\);')
CHANGED = re.compile(r"\.(\w{3,})(?= = )|^\[([\w.,]+)\] = ", re.MULTILINE)  # attributes of objects, alone or several
METHOD = re.compile(r"(?:(?<=\$class\(\{)|^)(\w{3,})\([\w,= ]*\) \{$", re.MULTILINE)
WORD = re.compile(r"\w+")
TAKEN = re.compile(r"\.(\w+)")  # from an object
TYPED = re.compile(r"\$(?:int|bool)\b")  # fields of which a text may ask by their names
# Of errors that no field of the form can raise, for planner.answer asks only for what belongs to what is chosen:
UNSEEN = (
    "not an option; options are",
    "it belongs to --task",
    "one GPU has none to share with",
    "what is trained cannot be frozen",
    "there are no adapters",
    "tells the speed; give one",
    "is not planned here; leave it out",
    "give it instead of --gpu, not beside it",
    "give one of --model, --config, --shape",
)
SAID = re.compile(r'(\$(?:unknown|refuse|raise|no)\()(?:"[^"\n]*"|`[^`\n]*`)(?=\))')
CAPITALS = string.ascii_uppercase
NAMES = (*CAPITALS, *(one + other for one in CAPITALS for other in string.ascii_letters))  # functions have small ones


def shortened(runtime: str, translated: str) -> str:
    """A program of translated code and what it needs."""
    return shortened_apart(runtime, translated, "").first


class Apart(NamedTuple):
    """A program, what comes to it later, and the names that this takes from it."""

    first: str
    later: str
    shared: list[str]


def shortened_apart(runtime: str, first: str, later: str, wanted: Iterable[str] = ()) -> Apart:
    """The same of code that comes in two parts; names that are wanted of the first are not shortened."""
    first, later = with_short_fields(f"{without_unseen(first)}{SEAM}{without_unseen(later)}", runtime).split(SEAM)
    needed = reached(silent(runtime), first)
    more = [statement for statement in reached(silent(runtime), first + later) if statement not in needed]
    texts = [jsmin("\n".join(parts)) for parts in ([*needed, first], [*more, later])]
    texts = [TITLE.sub("$record(0,", text) for text in texts]
    count = Counter(NAME.findall("\n".join(texts)))  # in the order of their first places, near to each other
    often = [name for name, _ in count.most_common(len(CAPITALS))]
    names = dict(zip([*often, *(name for name in count if name not in often)], NAMES, strict=False))
    known = {name for part in (*needed, first) for found in DECLARED.findall(part) for name in NAME.findall(str(found))}
    shared = [names[name] for name in dict.fromkeys(NAME.findall(texts[1])) if name in known]
    shared += [name for name in wanted if re.search(rf"\b{name}\b", texts[1])]
    sent, sent_later = (NAME.sub(lambda match: names[match[0]], text) for text in texts)
    return Apart(sent, sent_later, shared)


def reached(runtime: str, translated: str) -> list[str]:
    """The statements of the runtime that translated code needs, and those that these need, in their order."""
    statements = STATEMENT.split(runtime)
    of = {name: statement for statement in statements for name in bound(statement)}
    names, wanted = set[str](), set(NAME.findall(translated)) & of.keys()
    while wanted:
        names |= wanted
        wanted = {name for known in wanted for name in NAME.findall(of[known])} & of.keys() - names
    return [statement for statement in statements if not bound(statement) or names & set(bound(statement))]


def bound(statement: str) -> list[str]:
    return [one or other for one, other in BOUND.findall(statement)]


def with_short_fields(translated: str, runtime: str) -> str:
    """With short names for fields of records, attributes and methods that are only ever taken from an object, and that
    no text names."""
    of_runtime, count = {*WORD.findall(runtime)}, Counter(WORD.findall(translated))
    taken = Counter(TAKEN.findall(translated))
    numbers = (*string.digits, *(one + other for one in string.digits for other in string.digits))
    short = (letter + number for number in numbers for letter in string.ascii_lowercase)
    free = (name for name in short if name not in of_runtime and name not in count)
    records, methods = RECORD.findall(translated), METHOD.findall(translated)
    named = {field for fields in records if TYPED.search(fields) for field in re.findall(r'"(\w+)"', fields)}
    fields = {field for fields in records for field in re.findall(r'"(\w{3,})"', fields)} | {*methods}
    for one, several in CHANGED.findall(translated):
        fields |= {one, *re.findall(r"\.(\w{3,})", several)}
    new: dict[str, str] = {}
    for field in sorted(fields - named - of_runtime - {""}):
        defined = sum(fields.count(f'"{field}"') for fields in records) + methods.count(field)
        if count[field] == defined + taken[field]:
            new[field] = next(free)
    return WORD.sub(lambda match: new.get(match[0], match[0]), translated)


def without_unseen(translated: str) -> str:
    """Without the texts of errors that no form can raise."""
    for part in UNSEEN:
        inside = rf'(?:\$f`[^`]*{re.escape(part)}[^`]*`|"[^"]*{re.escape(part)}[^"]*")'
        translated = re.sub(rf"\$no\({inside}\)", "$no()", translated)
    return translated


def silent(runtime: str) -> str:
    """Without the texts of errors that no page shows."""
    return SAID.sub(r"\1", runtime)
