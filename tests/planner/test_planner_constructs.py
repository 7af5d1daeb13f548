"""A construct of Python means on the planner's page what it means in Python, or is refused: none is silently wrong."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py_mini_racer import JSEvalException, MiniRacer

from planner import engine
from planner.translate import FUNCTIONS, METHODS, OF_MODULES, RUNTIME, TranslationError, translate

MENDED = "not translated; write it plainer"

BEFORE = r"""
import json
import re
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from collections import Counter
from functools import lru_cache, partial
from math import floor, gcd
from typing import NamedTuple


class Point(NamedTuple):
    x: int
    y: int | None = 2


@dataclass(frozen=True)
class Card:
    name: str
    size: int = 1


@dataclass(frozen=True)
class Sheet:
    address: str
    page: int


DIGITS = re.compile(r"(\d+)(x)?", re.ASCII)


@dataclass(frozen=True)
class Wide:
    inputs: int
    outputs: int = 2

    def amount(self, times=1) -> int:
        return times * self.inputs * self.outputs

    def wider(self, by):
        return replace(self, inputs=by + self.inputs)

    def twice(self):
        return (each * 2 for each in (self.inputs, self.outputs))

    @property
    def area(self):
        return self.amount()


@dataclass(frozen=True)
class Deep:
    inputs: int

    def amount(self, times=1):
        return -times


class Asked:
    def __init__(self, config, more=5):
        self.config, self.keys_asked = config, set[str]()
        self.more = more

    def get(self, *keys):
        self.keys_asked |= set(keys)
        return [self.config.get(key) for key in keys] + [self.more, keys]

    def rest(self):
        return sorted(key for key in self.config if key not in self.keys_asked)


class Empty(Exception):
    pass


class Meter:
    def __init__(self, start):
        self.start = self.read = start

    def scale(self, by):
        self.read *= by
        return self.read


class Louder(Meter):
    def __init__(self, start):
        super().__init__(start)
        self.loud = 10

    def scale(self, by):
        return super().scale(by * self.loud)


@dataclass(frozen=True)
class Checked:
    size: int

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("below 0")


class Made(NamedTuple):
    by: object = replace


@lru_cache(maxsize=8)
def remembered(n):
    return [n]


def count(low, high=3):
    for n in range(low, high):
        yield n


def both(a, *, b=2):
    return [a, b]


def rest(a, **others):
    return [a, others]
"""

# Each line is an expression, or the lines of a function, with ⏎ between them.
RIGHT = r"""
1 & 3
3 << 40
[(1).bit_length(), (2**70).bit_length()]
[{"a": 1}.pop("a"), {"a": 1}.pop("b", 5), {}.pop("b", None)]
a = [3, 4, 5]; b = [a.pop(1), a.pop()]; return a + b
a = {}; a.setdefault("x", []).append(1); a.setdefault("x", []).append(2); return a
a = {"x": 1, "y": 2}; del a["x"]; return a
a = {1, 2}; a.add(3); a.remove(1); return sorted(a)
a = [5, 4, 5]; a.remove(5); return a
[bisect_left([1, 3, 3, 5], x) for x in range(7)]
a = [(1, 2), (3, 1)]; insort(a, (2, 9)); insort(a, (3, 0)); return [a, bisect_left(a, (3, 1)), bisect_left(a, (3, 2))]
a = {Point(1): "a", Card("x"): "b"}; a[Point(1, 2)] = "c"; return [len(a), a[Point(1)], Card("x") in a, Card("y") in a]
a = Louder(2); return [a.scale(3), a.scale(1), a.read, Meter(5).scale(4)]
a = 1⏎def more():⏎    nonlocal a⏎    a += 1⏎    return a⏎more()⏎return [more(), a]
try:⏎    raise Empty("x")⏎except Empty:⏎    return "caught"
try:⏎    Checked(-1)⏎except ValueError:⏎    return Checked(3).size
a = {"x": 1}; b = Meter(a); b.start["x"] += 2; return a
[7 // 2, -7 // 2, 7 // -2, -7 // -2, 7 % 3, -7 % 3, 7 % -3, -7 % -3]
[7 / 2, 2**70, 2**70 / 3, 10**20 // 7, -(10**20) % 7, True + 1, -True]
[round(2.5), round(3.5), round(-2.5), round(7), round(True), abs(-2.5), int(-2.7), int(" 12 "), int("+5"), int("-0")]
[float("1.5"), float(" 2 "), float("1e3"), float(".5"), float("5."), float(True), float(2**60)]
[1 < 2.5, 1 == 1.0, True == 1, "a" < "b", None == 0, "1" == 1, 2**53 + 1 == float(2**53), Decimal("1.0") == 1]
[sum([1, 2]), sum([]), sum([0.1, 0.2]), sum(x for x in (1, 2)), max(3, 1), max([1, 3, 2]), min("b", "a"), max([(1, 2), (1, 3)])]
sorted([(10, "a"), (9, "b"), (10, "A"), (9,)])
sorted([[10], [9, 1], [9]])
sorted(["b", "a", "\U0001d11e", "\uff01"])
sorted([3, 1, 2], key=lambda n: -n)
[(1, 10) < (1, 9), (2,) > (10,), (1, "a") < (1, "b"), [1] < [1, 2], (1, 2) == (1, 2), (1,) == [1], [1, [2]] == [1, [2]]]
[(1, 2), (1,), (), [1, (2, "x")], {"a": (1,)}, {(1, "a"): 2}, {1: [None, True, 1.0]}, "it's", 'a"b', "a\nb"]
[str((1, 2)), f"{(1,)}", f"{[1, 'a']}", f"{Point(1)}", str(Card("a")), repr(Point(1, None))]
[{(1, 2): "a"}[(1, 2)], (1, 2) in {(1, 2)}, (1, 2) in {(1, 2): 0}, (1, 3) in {(1, 2)}, {(1, 2): 3}.get((1, 2)), len({(1, 2), (1, 2)})]
[{1, 2} == {2, 1}, {1} == {2}, {"a": 1, "b": 2} == {"b": 2, "a": 1}, {"a": 1} == {"a": 2}, len({1, 1, 2})]
[[1, 2, 3][-1], (1, 2, 3)[0], "abc"[1], "abc"[-1], [1, 2, 3][1:], (1, 2, 3)[:2], "abcd"[1:3], [1, 2, 3, 4][::2], [1, 2][5:], [1, 2][-9:]]
[len("\U0001d11e"), "a\U0001d11eb"[1], "a\U0001d11eb"[2:], [c for c in "a\U0001d11e"], f"{'𝄞':3}|"]
[list(enumerate("ab", 1)), list(enumerate(["a"])), list(zip([1, 2], "ab")), list(zip([1, 2], [3]))]
[list(range(3)), len(range(2, 5)), 3 in range(5), [*range(2)], tuple(range(2)), list(range(3, 1))]
["a b  c".split(), "a,,b".split(","), "".split(), " x ".split(None), "a=b=c".partition("="), "ab".partition("=")]
["\x1c a\x85".strip(), "\ufeffa".strip(), "a\x1cb".split(), "aXbX".replace("X", "$&"), "a.b".replace(".", "")]
["1".isdigit(), "\u0661".isdigit(), "".isdigit(), "a".isdigit(), "\u00e4".islower(), "aB".islower(), "1".islower(), "\u00c4b".lower()]
["{} {}".format(1, "a"), "-".join(["a", "b"]), "ab".startswith("a"), "ab".endswith("b"), "abc".translate({97: "x", 98: None, 99: 100})]
[f"{3:5}|", f"{'a':3}|", f"{1234567:,}", f"{0.5:.0f}", f"{1.5:.0f}", f"{2.675:.2f}", f"{1e-7}", f"{1e16}", f"{0.25:.1%}", f"{12345.678:,.1f}"]
[f"{7:d}", f"{True}", f"{None}", f"{'a'!r}", f"{1e5:.3g}", f"{-0.0:.0f}", f"{float('1e999'):.1f}", f"{1:.1f}", f"a\r`${{b}}\\", f"{'`'}`"]
[any(x > 1 for x in [1, 2]), all([]), any([]), next((x for x in [1, 2] if x > 1), None), next(x for x in [3]), next(iter_one for iter_one in (5,))]
[x * y for x in range(3) for y in range(x) if x + y]
[y for x in [1, 2, 3] if (y := x * 2) > 2]
{k: v for k, v in [("a", 1), ("b", 2)]}
[f() for f in [lambda: x for x in range(3)]]
[a + b + c for a, (b, c) in [(1, (2, 3))]]
[both(1), both(1, b=3), rest(1), rest(1, z=2), rest(1, **{"q": 3}), Point(1), Point(y=1, x=2), Point(1, None), Card("a", size=0)]
[Card("a").name, Point(1) == Point(1), Point(1) == Point(2), Card("a") == Card("a"), Point(1)._replace(y=None), replace(Card("a"), size=5), Point(1)._asdict()]
[isinstance(1, int), isinstance(True, int), isinstance(1, bool), isinstance((1,), tuple), isinstance([1], tuple), isinstance((1,), list), isinstance({}, Mapping), isinstance(1.0, int)]
[json.loads('{"2": 1, "1": [1.5, 12345678901234567890, null]}'), [field.type is int for field in fields(Card)], dict.fromkeys("ab", 0)]
[bool([]), bool({}), bool(set()), bool(""), bool(0.0), bool((0,)), not None, [] or 1, [1] and 2, bool({}.items()), bool(range(0))]
[DIGITS.fullmatch("12x")[1], DIGITS.fullmatch("12")[2], DIGITS.search("a1")[0], DIGITS.fullmatch("\u0661"), DIGITS.fullmatch("1\n")]
[{"a": 1} | {"a": 2, "b": 3}, {**{"a": 1}, "b": 2}, list({"a": 1}), list({"a": 1}.items()), {"a": 1}.get("b"), {"a": None}.get("a", 5)]
a = [1]; b = a; b += [2]; return [a, b, a == b]
a = (1,); b = a; b += (2,); return [a, b]
a = {"x": 1}; b = a; b |= {"y": 2}; return [a, b]
a = [1]; b = list(a); b.append(2); return [a, b]
a = {"x": [1]}; b = a["x"]; a["x"] += [2]; return [a, b]
a = [1, 2]; a[-1] = 5; return a
a = b = [1]; a.append(2); return b
a, (b, c) = 1, (2, 3); a, b = b, a; return [a, b, c]
g = (x for x in [1, 2]); return [list(g), list(g)]
z = zip([1], [2]); return [list(z), list(z)]
g = count(0); first = next(g); return [first, list(g), list(count(1, high=2))]
d = {"a": 1}; view = d.values(); d["b"] = 2; return list(view)
assert 1; return 1
[list(reversed([1, 2, 3])), list(reversed((1, 2))), [n for n in reversed([1, 2])]]
a = [1, 2]⏎b = a.pop()⏎return [a, b]
a = Asked({})⏎a.more = 7⏎a.more += 1⏎return a.get()
[remembered(2), remembered(2)]
try:⏎    return float("abc")⏎except ValueError:⏎    return "caught"
try:⏎    return int("")⏎except (OSError, ValueError):⏎    return "caught"
try:⏎    return int("0x10")⏎except ValueError:⏎    return "caught"
try:⏎    return "a" < 1⏎except TypeError:⏎    return "caught"
try:⏎    a, b = [1, 2, 3]⏎    return a⏎except ValueError:⏎    return "caught"
try:⏎    return [1].index(2)⏎except ValueError:⏎    return "caught"
try:⏎    return max([])⏎except ValueError:⏎    return "caught"
def inner(n, other=1):⏎    return n * other⏎return [inner(2), inner(2, other=3), max([1, 2], key=inner)]
def inner():⏎    yield 1⏎return [inner() is None, list(inner())]
a, *b = [1, 2, 3]; return [a, b]
(a, b), *c = [(1, 2)]; return [a, b, c]
[w.amount(), w.amount(3), w.wider(4).amount(), list(w.twice()), w.area] if (w := Wide(3)) else 0
[each.amount(2) for each in (Wide(3), Deep(5))]
[isinstance(Wide(1), Wide), isinstance(Deep(1), Wide), isinstance(1, Deep), isinstance(None, Deep)]
a = Asked({"x": 1, "y": 2, "z": 3}); b = a.get("x", "q", "z"); return [b, a.rest(), a.more, Asked({}, 1).more, {"x": 4}.get("x")]
a = Asked({"x": 1}); b = ["x"]; return [a.get(*b), a.get()]
[(each.inputs, times) for each, times in Counter([Wide(1), Deep(1), Wide(1), Wide(1, 3), Deep(1)]).items()]
[divmod(17, 5), divmod(-17, 5), gcd(12, 18), gcd(0, 5), gcd(-4, 6), 0.5**3, 2.5**0, 0.25**10]
[[1, 2] * 2, [0] * 3, ["a"] * 0, [1] * -1, len([0] * 200_000)]
[partial(both, 1)(b=3), partial(both, b=4)(1), partial(partial(both, b=4), 7)(), partial(rest, z=1)(2, y=3)]
[Made(partial(both, 5)).by(b=1), Made(both).by(2)]
[getattr(Wide(4), name) for name in ("inputs", "outputs")]
a = {"x": 1}; k = "x"; a[k] += 2; a[Wide(3).outputs and "x"]; return a
n = 0⏎while True:⏎    n += 1⏎    if n > 3:⏎        break⏎return n
"""  # noqa: E501

# What Python raises is raised there, and no except for another error catches it.
RAISES = r"""
assert 0, f"{1}"
assert [] and 1
[].pop()
[1, 2][5]
"ab"[7]
{"a": 1}["b"]
"a" < 1
None < 1
(1,) < [1]
[1] + (2,)
"a" + 1
1 + "a"
[1] + [2] + "ab" + 1
1 / 0
1 // 0
float("abc")
float(None)
float("")
int("0x10")
"".join([1])
sum(["a"])
max([])
next(x for x in [])
{[1]: 2}
[1] in {(1,): 2}
len(5)
1.0 in "abc"
[1, 2][1.0]
[1, 2][:1.5]
10**400 * 1.0
2**2000 / 3
[both][0](1, 2)
[both][0](1, c=2)
[Point][0](1, 2, 3)
[Point][0]()
(lambda a: a)(1, 2)
[x for x, y in [(1, 2, 3)]]
list(zip([1], [], strict=True))
"{} {}".format(1)
"a".startswith(5)
(1, 2).append(3)
raise KeyError("a")
raise Empty("a")
{}.pop("a")
[].pop()
[1].pop(3)
{1}.remove(2)
[1].remove(2)
a = {}; del a["x"]; return a
1 << -1
Checked(-1)
a, b = [1]; return a
a = [1]; a[3] = 2; return a
a = (1,); a[0] = 2; return a
try:⏎    return [1][5]⏎except ValueError:⏎    return "caught"
try:⏎    return {}["a"]⏎except (TypeError, ValueError):⏎    return "caught"
try:⏎    return 1 / 0⏎except ValueError:⏎    return "caught"
"""

# Refused by file and line.
REFUSED = r"""
a = Point(1); a.x = 2; return a
round(2.345, 2)
sorted([1, 2], reverse=True)
sum([1], 10)
"a b c".split(" ", 1)
"xax".strip("x")
"aaa".replace("a", "b", 1)
enumerate(["a"], start=1)
max([], default=0)
min([1], default=0)
int("12", 16)
range(0, 9, 2)
print("a")
open("x")
"x".swapcase()
[1, 2].index(1, 1)
next([1], 2, 3)
str(1, 2)
both(1, 2)
both(1, 2, 3)
both()
both(1, a=1)
both(1, c=2)
Point(1, 2, 3)
Point()
Card()
max(*[1], *[2], default=1)
len(*[[1]])
floor(1.5)
1 is 1
"a" is "a"
1 @ 2
1 >> 2
a = [1, 2]; del a[0:1]; return a
Louder(1).scale(2, 3)
~1
1 + 2j
b"a"
...
f"{1:05d}"
f"{1:>5}"
f"{'a':.1}{1:e}"
f"{'a'!a}"
f"{'a'!r:5}"
f"{f'{1}'}"
f"{1:{2}}"
[1 < (x := 2) < 3, x]
[lambda x=1: x]
[lambda *x: x]
"a".lower
re.compile("a", re.IGNORECASE)
json.dumps({})
[3, 1].sort()
*a, b = [1, 2]; return a
[a, b] = [1, 2]; return a
a = [1, 2]; a[0:1] = [3]; return a
try:⏎    return 1⏎except:⏎    return 2
try:⏎    return 1⏎except Exception:⏎    return 2
try:⏎    return 1⏎except KeyError:⏎    return 2
try:⏎    return 1⏎except ValueError:⏎    return 2⏎finally:⏎    print(1)
raise ValueError("a", "b")
for x in [1]:⏎    pass⏎else:⏎    return 2
with open("x"):⏎    pass
global y⏎y = 1
def inner(a=[]):⏎    return a⏎return inner()
def inner(*a):⏎    return a⏎return inner()
def inner(a):⏎    return a⏎return inner(1, 2)
match 1:⏎    case 1:⏎        return 2
"""

# What only running shows: an error that no except catches, where Python would answer.
REFUSED_WHEN_RUN = r"""
[1, 2, 3][::-1]
"abc"[::2]
sum([0.1, 0.2, 0.3])
float("inf")
float("1_000")
int("\u0661")
{1.0: "a"}[1]
{True: "a"}[1]
Point(1) == (1, 2)
[f"{x:.2}" for x in (1.5,)]
[f"{x:.1}" for x in ("ab",)]
"{0}".format(1)
2**-1
str({1})
str(Sheet("a", 1))
Sheet("a", 1) == Sheet("b", 1)
"\u00b2".isdigit()
Decimal(0.1)
re.compile("a$") is None
re.compile("\\d") is None
isinstance(Point(1), tuple)
try:⏎    return [1][::-1]⏎except (OSError, RecursionError, TypeError, ValueError):⏎    return "caught"
"""


def body(construct: str) -> str:
    """The lines of a function that does it."""
    try:
        ast.parse(construct, mode="eval")
        return f"    return {construct}"
    except SyntaxError:
        return "\n".join(f"    {line}" for line in re.split("⏎|; ", construct))


TABLES = {"right": RIGHT, "raises": RAISES, "refused": REFUSED, "refused when run": REFUSED_WHEN_RUN}
CONSTRUCTS = [(kind, construct) for kind, table in TABLES.items() for construct in table.strip().splitlines()]
MODULE = BEFORE + "".join(f"\n\ndef f{n}():\n{body(construct)}\n" for n, (_, construct) in enumerate(CONSTRUCTS))
CASES = [pytest.param(n, *case, id=f"{case[0]}: {case[1]}") for n, case in enumerate(CONSTRUCTS)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any], MiniRacer]]:
    """The folder with the module, its names in Python, and those that are translated in an engine."""
    folder = tmp_path_factory.mktemp("constructs")
    (folder / "it.py").write_text(MODULE, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": __name__}  # where dataclass looks for types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "a" is "a"
        exec(compile(MODULE, "it", "exec", dont_inherit=True), namespace)
    context = MiniRacer()
    context.eval(engine([folder], {"it": [f"f{n}" for n, (kind, _) in enumerate(CONSTRUCTS) if kind != "refused"]}))
    yield folder, namespace, context
    context.close()


@pytest.mark.parametrize(("n", "kind", "construct"), CASES)
def test_a_construct_is_right_or_refused(
    both: tuple[Path, dict[str, Any], MiniRacer], n: int, kind: str, construct: str
) -> None:
    folder, namespace, context = both
    if kind == "refused":
        with pytest.raises(TranslationError, match=rf"it\.py:\d+: [^\n]*{MENDED}") as refused:
            translate([folder], {"it": [f"f{n}"]})
        first = MODULE.splitlines().index(f"def f{n}():") + 1
        assert first < int(str(refused.value).split(":")[1]) <= first + len(body(construct).splitlines())
        return
    if kind == "right":
        assert context.eval(f"$repr(f{n}())") == repr(namespace[f"f{n}"]())
        return
    with pytest.raises(JSEvalException) as raised:
        context.eval(f"$repr(f{n}())")
    assert bool(re.search(MENDED, str(raised.value))) == (kind == "refused when run")
    if kind == "raises":
        with pytest.raises(Exception):  # noqa: B017 (which one is Python's affair)
            repr(namespace[f"f{n}"]())


def test_what_is_said_to_be_there_is_in_the_runtime() -> None:
    runtime = RUNTIME.read_text(encoding="utf-8")
    defined = set(re.findall(r"^(?:const|class|function\*?) \$(\w+)", runtime, re.MULTILINE))
    methods = {name.removeprefix("m_") for name in defined if name.startswith("m_")}
    assert {name.replace(".", "_") for name in (*FUNCTIONS, *OF_MODULES)} <= defined and METHODS.keys() == methods
