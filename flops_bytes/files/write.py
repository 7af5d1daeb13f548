"""The inverse of interpret.py: which keys to change so that a run's files ask for other options, from the same data.

A key says an option by its value, or a rule implies it of others: each way to say one is tried, and read back. The one
that comes nearest to what is wanted is written down, with what else it changes; what no way says, the software cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flops_bytes.files.formats import scalar
from flops_bytes.files.interpret import AUTO, Part, Rule, Software, holds, interpret, rules_of, with_bases, words
from flops_bytes.plan.options import BASES, OPTIONS, RANK

REMOVED = "(removed)"  # stands for the value of a key that is taken out
MOST_EDITS = 16
NOT_WRITTEN = ("model", "gpus")  # but said beside the files
ASKED = 100  # how much more an option counts that is asked for than one that follows
ASIDE = 1e-3  # how much one that is not as it was counts beside a key to write
WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/-]*", re.ASCII)  # that YAML needs no quotes for
METHOD = ("lora", "base")  # of what is trained


class Edit(NamedTuple):
    """A key of one file, by its software's name for it, and its new value; REMOVED takes it out."""

    file: str
    software: str
    key: str
    value: Any


class Change(NamedTuple):
    """What to change so that files ask for what is wanted, what of it they cannot say, and what else they say then."""

    edits: list[Edit]
    unsaid: dict[str, Any]
    beside: dict[str, Any]


class Goal(NamedTuple):
    """What files shall ask for."""

    wanted: Mapping[str, Any]
    asked: list[str]  # the options that were asked for
    is_kept: bool  # whether the others count too, as files say them that say something


Edits = dict[str, Any]  # by a key's whole name, with its software's prefix


def wanted_options(now: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Options as files say them: these, with others of the planner, whose `trained` is a rank and a base to files."""
    wanted = {**now, **changed}
    method = changed.get("trained")
    if method == "all":
        wanted = {name: value for name, value in wanted.items() if name not in ("base", "lora", "lora_on")}
        return {name: value for name, value in wanted.items() if name != "lora_dropout"}
    if method:
        wanted = {name: value for name, value in wanted.items() if name not in ("base", "trained")}
        wanted["lora"] = wanted.get("lora", RANK)
        if method in BASES:
            wanted["base"] = BASES[method]
    return wanted


def change_of(
    parts: list[Part], data: Mapping[str, Software], more: Mapping[str, Any], changed: Mapping[str, Any]
) -> Change:
    """The edits of a run's files that ask for changed options, which are as the planner takes them. What else they say
    stays as far as it can; where they say nothing yet, it follows as their software has it."""
    now = interpret(parts, data, more).options
    asked = [*changed, *(METHOD if "trained" in changed else ())]
    goal = Goal(wanted_options(now, changed), asked, any([len(part.held) > 0 for part in parts]))
    edits: Edits = {}
    found: Mapping[str, Any] = now
    while counted(found, goal) and len(edits) < MOST_EDITS:
        better = next_edits(parts, data, more, goal, edits)
        if better is None:
            break
        edits = better
        found = read_back(parts, data, more, edits)
    missing = counted(found, goal)
    names = [name if name in changed else "trained" for name in missing if name in asked]
    beside = {name: said(found, name) for name in missing if name not in asked}
    return Change(edits_of(parts, data, edits), {name: changed[name] for name in names}, beside)


def said(options: Mapping[str, Any], name: str) -> Any:
    """What an option is where nobody says it."""
    return options.get(name, OPTIONS[name].default if name in OPTIONS else None)


def differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Options that are not as they are wanted."""
    names = list(dict.fromkeys([*wanted, *found]))
    return [name for name in names if words(said(found, name)) != words(said(wanted, name))]


def counted(found: Mapping[str, Any], goal: Goal) -> list[str]:
    """Of these the ones that matter."""
    return [name for name in differing(found, goal.wanted) if goal.is_kept or name in goal.asked]


def next_edits(
    parts: list[Part],
    data: Mapping[str, Software],
    more: Mapping[str, Any],
    goal: Goal,
    edits: Edits,
) -> Edits | None:
    """These edits and the next ones, which come nearer to what is wanted; None if there are none."""

    def distance(found: Mapping[str, Any]) -> int:
        return sum([ASKED if name in goal.asked else 1 for name in counted(found, goal)])

    written = [data[part.software].get("prefix", "") + key for part in parts for key in part.held]
    best, least, least_effort = None, distance(read_back(parts, data, more, edits)), 0.0
    for name in counted(read_back(parts, data, more, edits), goal):
        value = goal.wanted.get(name)
        values = [value]
        if value is not None and words(said({}, name)) == words(value):  # which nobody need say
            values.append(None)
        ways = [(0, each) for one in values for each in ways_to_say(parts, data, more, name, one, edits)]
        ways += [(1, each) for one in values for each in ways_to_undo(parts, data, more, name, one, edits)]
        for roundabout, each in ways:
            tried = {**edits, **each}
            found, new = read_back(parts, data, more, tried), len([key for key in tried if key not in written])
            left = distance(found)
            effort = roundabout + len(tried) + new + ASIDE * len(differing(found, goal.wanted))
            if left < least or (left == least and effort < least_effort):
                best, least, least_effort = tried, left, effort
        if best is not None:
            return best
    return best


def read_back(
    parts: list[Part], data: Mapping[str, Software], more: Mapping[str, Any], edits: Edits
) -> Mapping[str, Any]:
    """What the edited files ask for; if they would be refused, what nobody wants."""
    reading = interpret(edited(parts, data, edits), data, more)
    return {name: REMOVED for name in OPTIONS} if reading.refused else reading.options


def edited(parts: list[Part], data: Mapping[str, Software], edits: Edits) -> list[Part]:
    """The files with their edits: a key that nobody has goes to the first whose software has such keys."""
    held = [dict(part.held) for part in parts]
    for name, value in edits.items():
        place = place_of(parts, data, name)
        if place is not None:
            number, key = place
            held[number] = {each: old for each, old in held[number].items() if each != key or value != REMOVED}
            if value != REMOVED:
                held[number][key] = value
    return [part._replace(held=own) for part, own in zip(parts, held, strict=True)]


def place_of(parts: list[Part], data: Mapping[str, Software], name: str) -> tuple[int, str] | None:
    """The file in which a key stands, or may be written, and how it stands there; None where no file has such keys."""
    found: tuple[int, str] | None = None
    for number, part in enumerate(parts):
        prefix = data[part.software].get("prefix", "")
        own = data[part.software].get("keys", {})
        if not name.startswith(prefix) or (prefix == "" and ":" in name):
            continue
        for key in part.held:
            if key == name[len(prefix) :] or own.get(key, {}).get("same_as") == name[len(prefix) :]:
                return number, key
        if found is None and name in rules_of(with_bases([part], data)):
            found = number, name[len(prefix) :]
    return found


def ways_to_say(
    parts: list[Part], data: Mapping[str, Software], more: Mapping[str, Any], name: str, value: Any, edits: Edits
) -> Iterator[Edits]:
    """Edits that may lead to an option, by its keys and by rules that imply it; to none of it, if its value is None."""
    used = with_bases(parts, data)
    rules = rules_of(used)
    facts = {**facts_of(edited(parts, data, edits), data), **more}
    own = [(key, rule) for key, rule in rules.items() if rule.own.get("option") == name]
    own = [(key, rule) for key, rule in own if "taken_from" not in rule.own or words(facts.get(key)) != AUTO]
    for software in used:
        for rule in software.get("implies", []):
            if value is not None and words(rule["then"].get(name)) == words(value):
                yield from settings(rule, used, facts)
    for key, each in own:
        for text in texts_of(each, value, facts):
            for others in settings(each.own, used, facts):
                yield {**others, key: text}


def ways_to_undo(
    parts: list[Part], data: Mapping[str, Software], more: Mapping[str, Any], name: str, value: Any, edits: Edits
) -> Iterator[Edits]:
    """Edits after which what says an option now no longer does."""
    used = with_bases(parts, data)
    facts = {**facts_of(edited(parts, data, edits), data), **more}
    literals = literals_of(used)
    for rule in rules_of(used).values():
        if rule.own.get("option") == name and value is None:
            yield from undone(rule.own.get("only_with", {}), literals, facts)
    for software in used:
        for implied in software.get("implies", []):
            if name in implied["then"] and holds(implied, facts):
                yield from undone(implied.get("when", {}), literals, facts)


def undone(asked: Mapping[str, Any], literals: Mapping[str, list[Any]], facts: Mapping[str, Any]) -> Iterator[Edits]:
    """Edits after which conditions no longer hold: a key that says nothing, or another value that some rule knows."""
    for key in asked:
        if key in facts and not key.startswith("@"):
            for text in [*literals.get(key, []), REMOVED, False]:
                yield {key: text}


def literals_of(used: list[Software]) -> dict[str, list[Any]]:
    """The values of each key that rules ask for, or tell apart."""
    found: dict[str, list[Any]] = {}
    for software in used:
        prefix = software.get("prefix", "")
        for key, own in software.get("keys", {}).items():
            if str(own.get("option", "")).startswith("@"):
                kept = [text for text, option in own["values"].items() if text != "*" and option == ""]
                found[prefix + key] = [plain(text) for text in kept]
        rules = [*software.get("implies", []), *software.get("facts", []), *software.get("keys", {}).values()]
        for rule in rules:
            for part in ("when", "only_with", "unless"):
                for key, asked in rule.get(part, {}).items():
                    texts = asked if isinstance(asked, list) else [asked]
                    known = found.setdefault(key, [])
                    known += [text for text in texts if is_literal(text) and text not in known]
    return found


def facts_of(parts: list[Part], data: Mapping[str, Software]) -> dict[str, Any]:
    """What each key is that is written, or has a default, by its whole name."""
    rules = rules_of(with_bases(parts, data))
    facts = {key: rule.own["default"] for key, rule in rules.items() if "default" in rule.own}
    for part in parts:
        prefix = data[part.software].get("prefix", "")
        for key, value in part.held.items():
            own = rules[prefix + key].own if prefix + key in rules else {}
            facts[prefix + own.get("same_as", key)] = value
    return facts


def texts_of(rule: Rule, value: Any, facts: Mapping[str, Any]) -> Iterator[Any]:
    """The values with which a key says an option, or says nothing of it."""
    values = rule.own.get("values")
    if values is None:
        if value is None:
            yield REMOVED
            return
        text = divided(value, [facts.get(each) for each in rule.own.get("times", [])])
        if text is not None:
            yield text
        return
    for text, option in values.items():
        if text != "*" and (option == "" if value is None else words(option) == words(value)):
            yield plain(text)
    if value is None:
        yield REMOVED


def plain(text: str) -> Any:
    """A value of a table's key as files write it: true, 4 and 1.5 are no texts there."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if (text.isdigit() and not text.startswith("0")) or text == "0" else text


def divided(value: Any, by: list[Any]) -> Any:
    for each in by:
        if not isinstance(value, int) or not isinstance(each, int) or each < 1 or value % each:
            return None
        value = value // each
    return value


def settings(rule: Mapping[str, Any], used: list[Software], facts: Mapping[str, Any]) -> Iterator[Edits]:
    """What to set so that a rule's conditions hold: nothing where they do; keys by name, facts by what they follow."""
    made: list[Edits] = [{}]
    for key, asked in [*rule.get("when", {}).items(), *rule.get("only_with", {}).items()]:
        made = [{**one, **more} for one in made for more in ways_to_set(key, asked, used, facts)]
    for key, asked in rule.get("unless", {}).items():
        if not key.startswith("@") and not holds({"unless": {key: asked}}, facts):
            made = [{**one, key: REMOVED} for one in made]
    yield from made


def ways_to_set(key: str, asked: Any, used: list[Software], facts: Mapping[str, Any]) -> list[Edits]:
    """Edits with which a condition holds; none, where only a text that nobody can know would do."""
    if not key.startswith("@"):
        if holds({"when": {key: asked}}, facts):
            return [{}]
        texts = [text for text in (asked if isinstance(asked, list) else [asked]) if is_literal(text)]
        return [{key: plain(text) if isinstance(text, str) else text} for text in texts]
    found: list[Edits] = []
    for software in used:
        for fact in software.get("facts", []):
            value = fact["then"].get(key[1:])
            if value is not None and holds({"when": {key: asked}}, {key: value}):
                found += [each for each in settings(fact, used, facts)]
    return found[:MOST_EDITS]


def is_literal(text: Any) -> bool:
    return str(text) != "*" and not str(text).startswith("~")


def edits_of(parts: list[Part], data: Mapping[str, Software], edits: Edits) -> list[Edit]:
    """Edits by the files that they are made in; of those that change nothing none."""
    found = []
    for name, value in edits.items():
        place = place_of(parts, data, name)
        if place is not None:
            part, key = parts[place[0]], place[1]
            if (value == REMOVED) == (key not in part.held) and (
                value == REMOVED or words(part.held[key]) == words(value)
            ):
                continue
            found.append(Edit(part.file, part.software, key, value))
    return found


def sayable(parts: list[Part], data: Mapping[str, Software]) -> list[str]:
    """The options that the softwares of a run have some key for."""
    used = with_bases(parts, data)
    keys = [rule.own["option"] for rule in rules_of(used).values() if "option" in rule.own]
    implied = [name for software in used for rule in software.get("implies", []) for name in rule["then"]]
    return list(dict.fromkeys([*keys, *implied]))


# Lines of a file


def lines_of(format: str, edits: list[Edit]) -> list[str]:
    """Edits as lines in a file's own format, with the tables that keys lie in, as they may be pasted there."""
    tree: dict[str, Any] = {}
    for edit in edits:
        if edit.value != REMOVED:
            names = edit.key.split(".")
            inner = tree
            for name in names[: len(names) - 1]:
                inner = inner.setdefault(name, {})
            inner[names[-1]] = edit.value
    if format == "toml":
        return list(toml_lines(tree, ""))
    if format == "json":
        return list(json_lines(tree, ""))
    return list(yaml_lines(tree, ""))


def yaml_lines(tree: Mapping[str, Any], before: str) -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{before}{name}:"
            yield from yaml_lines(value, f"{before}  ")
        else:
            yield f"{before}{name}: {quoted(value, is_bare=True)}"


def json_lines(tree: Mapping[str, Any], before: str) -> Iterator[str]:
    for place, name in enumerate(tree):
        value, comma = tree[name], "," if place < len(tree) - 1 else ""
        if isinstance(value, Mapping):
            yield f'{before}"{name}": {{'
            yield from json_lines(value, f"{before}  ")
            yield f"{before}}}{comma}"
        else:
            yield f'{before}"{name}": {quoted(value, is_bare=False)}{comma}'


def toml_lines(tree: Mapping[str, Any], table: str) -> Iterator[str]:
    own = {name: value for name, value in tree.items() if not isinstance(value, Mapping)}
    if own and table:
        yield f"[{table}]"
    for name, value in own.items():
        yield f"{name} = {quoted(value, is_bare=False)}"
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from toml_lines(value, f"{table}.{name}" if table else name)


def quoted(value: Any, is_bare: bool) -> str:
    """A value as a file has it; a text in quotes, but a bare word of YAML that stands for nothing else."""
    if isinstance(value, str) and not (is_bare and value != "" and scalar(value) == value and is_word(value)):
        return f'"{value}"'
    return value if isinstance(value, str) else words(value)


def is_word(text: str) -> bool:
    return WORD.fullmatch(text) is not None
