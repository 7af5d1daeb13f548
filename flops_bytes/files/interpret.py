"""What the keys of a run's files ask of `flops-bytes plan`: one interpreter for every software's data, and its rules.

A software is a table, as NAME.toml has it (CONTRIBUTING shows one):

- `keys`: of each key the `option` that it says, `values` where its words are others, its `default` where it is not
  written (`before`, what it was before version `since`), and `not_planned`: what it changes beyond the options.
- `nothing`: keys that cost neither memory nor time; `not_planned`: keys that do, and which no option says.
  What neither names is unknown, and told.
- Rules of a key: `only_with` and `unless` say beside which values of other keys it counts, `taken_from` whose value
  stands for "auto", `same_as` of which it is another name, `times` by which other keys it is multiplied, as planners
  count tokens and trainers sequences.
- `implies`: `when` these keys have these values, `unless` those, `then` these options; the first that says an option
  stands, "$key" is the value of a key. `facts` are the same for what other rules ask: @engine, @precision.

A condition is a value or a list of them, "*" for any that is set, "~text" for one that has this text in it. An option's
value that begins with "!" is a refusal, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

Software = Mapping[str, Any]
OFF = ("", "none", "false", "no", "0", "0.0", "null", "[]", "{}")  # values with which a key asks for nothing
EMPTY = ("null", "", "{}")  # with which an unknown key asks for nothing, for a default may be on where "false" is off
AUTO = "auto"
OCTAL = re.compile(r"0[0-9]+", re.ASCII)
LARGEST = 1e18  # of a number that may be written with an exponent, 5e8


class Part(NamedTuple):
    """What one file says in the words of one software."""

    file: str
    software: str
    held: dict[str, Any]


class Said(NamedTuple):
    """A key, and what became of it.

    It says an `option`, or would by its `default`; it costs `nothing`; it has `no effect` beside the others; what it
    changes is `not planned`; or it is `unknown`, or `refused`.
    """

    file: str
    key: str
    value: Any
    kind: str
    options: Mapping[str, Any] = {}
    text: str = ""


class Reading(NamedTuple):
    """The options that a run's files ask for, and what was read, key by key."""

    options: dict[str, Any]
    said: list[Said]
    refused: list[Said]


class Written(NamedTuple):
    """A key as it is written."""

    file: str
    key: str
    value: Any


class Rule(NamedTuple):
    """A key's rules, with the software that they are of."""

    software: Software
    own: Mapping[str, Any]


def interpret(parts: list[Part], softwares: Mapping[str, Software], more: Mapping[str, Any]) -> Reading:
    """What a run's files ask for, those first whose keys take precedence; `more` are facts beside them."""
    used = with_bases(parts, softwares)
    rules = rules_of(used)
    written, twice = written_keys(parts, softwares, rules)
    facts: dict[str, Any] = dict(more)
    for key, each in written.items():
        facts[key] = each.value
    defaults: dict[str, Any] = {}
    for key, rule in rules.items():
        if "default" in rule.own and key not in written:
            defaults[key] = rule.own["default"]
            facts[key] = rule.own["default"]
    take_auto(facts, rules)
    origins: dict[str, list[str]] = {}
    for software in used:
        for each in software.get("facts", []):
            if holds(each, facts):
                for name, value in each["then"].items():
                    if facts.setdefault(f"@{name}", value) == value:
                        origins[f"@{name}"] = [*origins.get(f"@{name}", []), *each.get("when", {})]
    reading = read_keys(written, defaults, facts, rules, used, origins)
    return reading._replace(said=[*reading.said, *twice])


def with_bases(parts: list[Part], softwares: Mapping[str, Software]) -> list[Software]:
    """The softwares of a run, each before the one whose keys it takes over, which is there once."""
    names: list[str] = []
    for part in parts:
        name = part.software
        while name:
            if name in names:
                names.remove(name)
            names.append(name)
            name = softwares[name].get("extends", "")
    return [softwares[name] for name in names]


def rules_of(used: list[Software]) -> dict[str, Rule]:
    """The rules of each key, its software's prefix before it; of two softwares the first one's."""
    rules: dict[str, Rule] = {}
    for software in used:
        prefix = software.get("prefix", "")
        for key, own in software.get("keys", {}).items():
            rules.setdefault(prefix + key, Rule(software, own))
    return rules


def written_keys(
    parts: list[Part], softwares: Mapping[str, Software], rules: Mapping[str, Rule]
) -> tuple[dict[str, Written], list[Said]]:
    """By its whole name each key that is written, one that was renamed under its new name; and what is said twice."""
    written: dict[str, Written] = {}
    twice: list[Said] = []
    for part in parts:
        prefix = softwares[part.software].get("prefix", "")
        for key, value in part.held.items():
            name = prefix + key
            if name in rules and "same_as" in rules[name].own:
                name = prefix + rules[name].own["same_as"]
            if value is None and name in rules:
                twice.append(Said(part.file, key, value, "nothing"))
            elif name in written and words(written[name].value) != words(value):
                other = written[name]
                twice.append(Said(part.file, key, value, "not planned", {}, f"{other.key} in {other.file} stands"))
            else:
                written.setdefault(name, Written(part.file, key, value))
    return written, twice


def take_auto(facts: dict[str, Any], rules: Mapping[str, Rule]) -> None:
    """Gives what is "auto" the value that it is taken from, where that is known."""
    for key, rule in rules.items():
        if "taken_from" in rule.own and words(facts.get(key)) == AUTO:
            value = product(rule.own["taken_from"], facts)
            if value is not None:
                facts[key] = value


def product(names: str | list[str], facts: Mapping[str, Any]) -> Any:
    """The value of a key, or of several multiplied; None where one is not known."""
    values = [facts.get(name) for name in sources(names)]
    if len(values) == 1:
        return values[0]
    return multiplied(1, values)


def sources(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def multiplied(first: Any, others: list[Any]) -> Any:
    result = first
    for value in others:
        if not is_count(value) or not is_count(result):
            return None
        result = result * value
    return result


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def words(value: Any) -> str:
    """A value as it is compared: a list, and a text with commas, in one order, without quotes, in small letters."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return ",".join(sorted([words(each) for each in value]))
    text = str(value).strip().lower()
    if "," in text:
        return ",".join(sorted([each.strip() for each in text.split(",")]))
    return text


def is_on(value: Any) -> bool:
    return words(value) not in OFF


def agrees(value: Any, wanted: Any) -> bool:
    """Whether a value is as a condition wants it."""
    if isinstance(wanted, list):
        return any(agrees(value, each) for each in wanted)
    text, asked = words(value), words(wanted)
    if asked == "*":
        return text not in OFF
    if asked.startswith("~"):
        return asked[1:] in text
    return text == asked or (asked == "false" and text in OFF)


def holds(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a rule's conditions hold: all of `when` and `only_with`, none of `unless`."""
    needed = [*rule.get("when", {}).items(), *rule.get("only_with", {}).items()]
    if not all(agrees(facts.get(key), wanted) for key, wanted in needed):
        return False
    return not any(agrees(facts.get(key), wanted) for key, wanted in rule.get("unless", {}).items())


def options_of(value: Any, own: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a key with a value says: none if it says nothing there, None if its rules do not know the value."""
    if "option" not in own:
        return {}
    values = own.get("values")
    if values is None:
        if OCTAL.fullmatch(str(value)):
            return {own["option"]: f"! YAML 1.1 reads {value} in eights, 1.2 in tens; write it without the first 0"}
        whole = int(value) if isinstance(value, float) and abs(value) < LARGEST and value == int(value) else value
        asked = multiplied(whole, [facts.get(name) for name in own["times"]]) if "times" in own else whole
        return None if asked is None or not is_plain(asked) else {own["option"]: asked}
    found = {words(each): option for each, option in values.items()}
    text = words(value)
    if text not in found and "*" not in found:
        return None
    option = found.get(text, found.get("*"))
    return {} if option == "" else {own["option"]: option}


def is_plain(value: Any) -> bool:
    """Whether an option may have this value: a number or a text."""
    return not isinstance(value, list) and words(value) not in ("", "true", "false", "null", "{}")


def read_keys(
    written: Mapping[str, Written],
    defaults: Mapping[str, Any],
    facts: Mapping[str, Any],
    rules: Mapping[str, Rule],
    used: list[Software],
    origins: Mapping[str, list[str]],
) -> Reading:
    """The options, by the keys that are written first, then by those that are not, and by the rules that they imply."""
    options: dict[str, Any] = {}
    led_to: dict[str, dict[str, Any]] = {}
    unread: dict[str, str] = {}
    ask(written, facts, rules, options, led_to, unread)
    imply(used, facts, origins, options, led_to)
    ask(defaults, facts, rules, options, led_to, unread)
    for key, each in written.items():
        if key in led_to and key in rules and words(each.value) == AUTO and "taken_from" in rules[key].own:
            for source in sources(rules[key].own["taken_from"]):
                led_to[source] = led_to.get(source, {}) | led_to[key]
    said = [of_written(key, each, facts, rules, used, led_to, unread) for key, each in written.items()]
    said += [of_default(key, defaults[key], rules[key], led_to[key]) for key in defaults if led_to.get(key)]
    refused = [refusal(name, str(options[name]), written, led_to) for name in options if is_refusal(options[name])]
    options = {name: value for name, value in options.items() if not is_refusal(value)}
    return Reading(options, [each for each in said if not any(is_refusal(v) for v in each.options.values())], refused)


def imply(
    used: list[Software],
    facts: Mapping[str, Any],
    origins: Mapping[str, list[str]],
    options: dict[str, Any],
    led_to: dict[str, dict[str, Any]],
) -> None:
    """Adds the options that rules imply, where none stands yet; the keys that they ask for led to these."""
    for software in used:
        for rule in software.get("implies", []):
            if holds(rule, facts):
                for name, text in rule["then"].items():
                    value = facts[text[1:]] if str(text).startswith("$") else text
                    if options.setdefault(name, value) == value:
                        for asked in rule.get("when", {}):
                            for key in origins.get(asked, [asked]):
                                led_to.setdefault(key, {})[name] = value


def of_default(key: str, value: Any, rule: Rule, options: dict[str, Any]) -> Said:
    """What stands for a key that is not written, with the version that has it."""
    text = f"{rule.software['name']} {rule.software['version']}"
    if "since" in rule.own:
        text = f"{text}; before {rule.own['since']}: {rule.own['before']}"
    return Said("", bare(key), value, "default", options, text)


def is_refusal(value: Any) -> bool:
    return str(value).startswith("!")


def refusal(name: str, text: str, written: Mapping[str, Written], led_to: Mapping[str, Mapping[str, Any]]) -> Said:
    """What is refused, with the key that asks for it."""
    key = next((key for key, options in led_to.items() if name in options and key in written), name)
    each = written[key] if key in written else Written("", name, "")
    return Said(each.file, each.key, each.value, "refused", {name: ""}, text[1:].strip())


def bare(key: str) -> str:
    """A key without its software's prefix."""
    return key.partition(":")[2] or key


def ask(
    keys: Mapping[str, Any],
    facts: Mapping[str, Any],
    rules: Mapping[str, Rule],
    options: dict[str, Any],
    led_to: dict[str, dict[str, Any]],
    unread: dict[str, str],
) -> None:
    """Adds the options that keys say by themselves, where none stands yet; of a key that has no effect, why."""
    for key in keys:
        if key not in rules or not holds(rules[key].own, facts) or is_off_here(facts[key], rules[key].own):
            continue
        own = rules[key].own
        if "taken_from" in own and words(facts[key]) == AUTO:
            unread[key] = f"taken from {listed(own['taken_from'])}, which these files do not say"
            continue
        found = options_of(facts[key], own, facts)
        if found is None and own["option"].startswith("@"):  # without it another question would be answered
            found = {own["option"]: f"! this is not known; choose {', '.join(own['values'])}"}
        if found is None:
            unread[key] = "its value is not known here"
            continue
        for name, value in found.items():
            if name in options and options[name] != value:
                unread[key] = f"--{name.replace('_', '-')} {options[name]} stands, which another key says"
            else:
                options[name] = value
                led_to.setdefault(key, {})[name] = value


def is_off_here(value: Any, own: Mapping[str, Any]) -> bool:
    """Whether a value is one with which the key says nothing."""
    return any(agrees(value, each) for each in own.get("off", []))


def of_written(
    key: str,
    each: Written,
    facts: Mapping[str, Any],
    rules: Mapping[str, Rule],
    used: list[Software],
    led_to: Mapping[str, dict[str, Any]],
    unread: Mapping[str, str],
) -> Said:
    """What became of a key that is written."""

    def said(kind: str, text: str = "") -> Said:
        return Said(each.file, each.key, each.value, kind, {}, text)

    value = each.value
    if key in unread:
        return said("not planned" if is_on(value) else "nothing", unread[key])
    if key in rules and "asks_for" in rules[key].own and "zero" not in led_to.get(key, {}) and is_on(value):
        return said("option", "the file that it names")
    if led_to.get(key):
        source = rules[key].own.get("taken_from") if key in rules and words(value) == AUTO else None
        taken = f"taken from {listed(source)}" if source else ""
        return Said(each.file, each.key, value, "option", led_to[key], taken)
    if key in rules:
        own = rules[key].own
        if is_on(value) and not is_off_here(value, own):
            if "not_planned" in own:
                return said("not planned", own["not_planned"])
            says_nothing = own == {} or (holds(own, facts) and options_of(value, own, facts) == {} and "option" in own)
            return said("nothing" if says_nothing else "no effect")
        return said("nothing")
    for software in used:
        prefix = software.get("prefix", "")
        if key.startswith(prefix):
            own_key = key[len(prefix) :]
            if any(covers(name, own_key) for name in software.get("nothing", [])):
                return said("nothing")
            text = next((why for name, why in software.get("not_planned", {}).items() if covers(name, own_key)), "")
            if text:
                return said("not planned" if is_on(value) else "nothing", text)
    return said("nothing" if words(value) in EMPTY else "unknown")


def covers(named: str, key: str) -> bool:
    """Whether a key is the one that is named, or lies in the table that `table.*` names."""
    return key == named or (named.endswith("*") and key.startswith(named[: len(named) - 1]))


def listed(names: str | list[str]) -> str:
    return " × ".join([each.replace("@", "") for each in sources(names)])
