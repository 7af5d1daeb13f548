"""Translates the Python that the library's planner is written in to JavaScript, so that a page computes what it does.

What runs beside it is planner/runtime.js: an int is a BigInt, a float a Number, a dict a Map, a list an Array, a tuple
a frozen one. Only what the wanted names need is translated. What is not known here is refused by file and line, and so
is an argument that the runtime would ignore; what only running shows (a float as a key, a step below 1) raises there.
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

RUNTIME = Path(__file__).with_name("runtime.js")
BINARY = {
    ast.Add: "$add", ast.Sub: "$sub", ast.Mult: "$mul", ast.Div: "$div", ast.FloorDiv: "$floordiv", ast.Mod: "$mod",
    ast.Pow: "$pow", ast.BitOr: "$union", ast.BitAnd: "$bitand", ast.LShift: "$shift",
}  # fmt: skip
CHAINED = (ast.Add, ast.Mult)  # of up to so many terms
MOST_TERMS = 5
IN_PLACE = {ast.Add: "$iadd", ast.Sub: "$isub", ast.BitOr: "$iunion"}
SIGNS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)  # which may be written between what they compare
COMPARED = {ast.Lt: "$lt", ast.LtE: "$le", ast.Gt: "$gt", ast.GtE: "$ge", ast.Eq: "$eq", ast.In: "$in"}
RESERVED = {  # words of JavaScript that may be names, and what runtime.js needs of it
    "Array", "BigInt", "Error", "Infinity", "JSON", "Map", "Math", "NaN", "Number", "Object", "RangeError",
    "RegExp", "Set", "String", "Symbol", "SyntaxError", "TypeError", "ValueError", "arguments", "case", "catch",
    "const", "debugger", "default", "delete", "do", "enum", "eval", "export", "extends", "false", "function",
    "if", "implements", "in", "instanceof", "interface", "let", "new", "null", "package", "private", "protected",
    "public", "static", "super", "switch", "this", "throw", "true", "typeof", "undefined", "var", "void",
}  # fmt: skip
BUILT = {"set", "dict", "list", "tuple"}  # which may say of what: set[str]()
REMEMBERED = ("cache", "lru_cache")  # decorators that change when a function runs, never what it returns
CAUGHT = {"ValueError": "ValueError", "TypeError": "TypeError", "RecursionError": "RangeError", "OSError": ""}


class Takes(NamedTuple):
    """How many arguments a function of the runtime takes, None: any number, and which names."""

    least: int
    most: int | None
    names: tuple[str, ...] = ()


FUNCTIONS = {
    "Counter": Takes(1, 1), "Decimal": Takes(1, 1), "Path": Takes(1, 1), "ValueError": Takes(1, 1),
    "abs": Takes(1, 1), "all": Takes(1, 1), "any": Takes(1, 1), "bisect_left": Takes(2, 2), "bool": Takes(1, 1),
    "dict": Takes(0, 1),
    "divmod": Takes(2, 2), "enumerate": Takes(1, 2),
    "fields": Takes(1, 1), "float": Takes(1, 1), "gcd": Takes(2, 2), "getattr": Takes(2, 2), "insort": Takes(2, 2),
    "int": Takes(1, 1),
    "isinstance": Takes(2, 2), "len": Takes(1, 1), "list": Takes(0, 1),
    "max": Takes(1, None, ("key",)), "min": Takes(1, None, ("key",)), "next": Takes(1, 2),
    "partial": Takes(1, None, ("*",)), "range": Takes(1, 2),
    "replace": Takes(1, 1, ("*",)), "repr": Takes(1, 1), "reversed": Takes(1, 1), "round": Takes(1, 1),
    "set": Takes(0, 1),
    "sorted": Takes(1, 1, ("key",)), "str": Takes(1, 1), "sum": Takes(1, 1), "tuple": Takes(0, 1),
    "zip": Takes(0, None, ("strict",)),
}  # fmt: skip
OF_MODULES = {"dict.fromkeys": Takes(1, 2), "json.loads": Takes(1, 1), "re.compile": Takes(1, 2)}
ORIGINS = {  # what a module has to import to mean it; the others are Python's own
    "Counter": "collections.Counter", "Decimal": "decimal.Decimal", "Mapping": "collections.abc.Mapping",
    "Path": "pathlib.Path", "bisect_left": "bisect.bisect_left", "insort": "bisect.insort",
    "fields": "dataclasses.fields", "gcd": "math.gcd", "partial": "functools.partial",
    "replace": "dataclasses.replace", "json": "json", "re": "re",
}  # fmt: skip
TYPES = {"Mapping", "bool", "dict", "float", "int", "list", "str", "tuple"}  # to ask for, not only to call
METHODS = {
    "_asdict": Takes(0, 0), "_replace": Takes(0, 0, ("*",)), "add": Takes(1, 1), "append": Takes(1, 1),
    "bit_length": Takes(0, 0), "endswith": Takes(1, 1),
    "format": Takes(0, None), "fullmatch": Takes(1, 1), "get": Takes(1, 2), "index": Takes(1, 1),
    "isascii": Takes(0, 0), "isdigit": Takes(0, 0), "islower": Takes(0, 0), "items": Takes(0, 0),
    "join": Takes(1, 1), "keys": Takes(0, 0),
    "lower": Takes(0, 0), "partition": Takes(1, 1),
    "pop": Takes(0, 2), "read_text": Takes(0, 0, ("encoding",)), "remove": Takes(1, 1), "replace": Takes(2, 2),
    "search": Takes(1, 1), "setdefault": Takes(2, 2), "split": Takes(0, 1), "startswith": Takes(1, 1),
    "strip": Takes(0, 0),
    "translate": Takes(1, 1), "upper": Takes(0, 0), "values": Takes(0, 0),
}  # fmt: skip
NAME = re.compile(
    r"(?!__proto__)[a-z_]\w*", re.ASCII | re.IGNORECASE
)  # a key that needs no quotes, and keeps its place
ZEROS = re.compile(r"^(\d+?)(0{3,})$")  # of a float, which JavaScript may write with an exponent
FORMAT = re.compile(r"([1-9]\d*)?,?(\.\d+)?[fgd%]?")  # as $format reads it

SPARED = ast.Name("$SPARED", ast.Load())  # what stands for a text that nothing reads; to show it is refused
LETTERS = string.ascii_lowercase
SHORT = (*LETTERS, *(one + other for one in LETTERS for other in LETTERS + string.digits))


class TranslationError(ValueError):
    """Names the file, the line and what is not known there."""


class Module:
    """One module: its top-level statements by the names that they bind, and what it imports from the others."""

    def __init__(self, path: Path, name: str, others: set[str], unasked: Mapping[str, Any]) -> None:
        self.path, self.name = path, name
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if unasked:
            Unasked(unasked).visit(self.tree)
        OfWhat().visit(self.tree)
        self.bound: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, tuple[str, str]] = {}  # a name here, the module that it is of, and its name there
        self.modules: set[str] = set()  # those that are imported whole
        self.foreign: dict[str, str] = {}  # a name, and what is imported as it from elsewhere
        for statement in self.tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.foreign |= foreign(statement, others)
            if isinstance(statement, ast.ImportFrom) and statement.module in others:
                self.imports |= {
                    each.asname or each.name: (statement.module or "", each.name) for each in statement.names
                }
            elif isinstance(statement, ast.Import):
                self.modules |= {alias.name for alias in statement.names if alias.name in others}
            for name in binds(statement):
                self.bound.setdefault(name, []).append(statement)


class OfWhat(ast.NodeTransformer):
    """Without what is said of the items of a set, list, dict or tuple that is made: set[str]()."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Subscript(ast.Name(name) as built) if name in BUILT:
                node.func = built
        return node


class Renamed(ast.NodeTransformer):
    """With other names for what a module binds or imports, but where a function has its own by that name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.own: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names and not any(node.id in own for own in self.own):
            return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        of_module = not self.own
        if of_module:
            node.name = self.names.get(node.name, node.name)
        return self.inside(node, {*given(node.args), *(name for s in node.body for name in assigned(s))})

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self.inside(node, {*given(node.args)})

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Whose fields and methods keep their names."""
        node.name = self.names.get(node.name, node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.inside(statement, {*given(statement.args), *(n for s in statement.body for n in assigned(s))})
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                statement.value = self.visit(statement.value)
        return node

    def of_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        return self.inside(node, targets)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = of_comprehension

    def inside(self, node: ast.AST, own: set[str]) -> ast.AST:
        self.own.append(own)
        self.generic_visit(node)
        self.own.pop()
        return node


def given(arguments: ast.arguments) -> Iterator[str]:
    """The names of all parameters."""
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield parameter.arg
    yield from (rest.arg for rest in (arguments.vararg, arguments.kwarg) if rest)


def told_apart(modules: Mapping[str, Module], wanted: Mapping[str, Iterable[str]]) -> None:
    """Gives what several modules bind by one name a name of its own in each, and imports what they stand for."""
    binding = Counter(name for module in modules.values() for name in module.bound)
    kept = {(place, name) for place, names in wanted.items() for name in names}
    new = {
        (place, name): name if binding[name] == 1 or (place, name) in kept else f"{name}_{place.replace('.', '_')}"
        for place, module in modules.items()
        for name in module.bound
    }
    origins = {
        place: {name: whence(modules, place, name) for name in module.imports} for place, module in modules.items()
    }
    for place, module in modules.items():
        imported = {name: origin for name, origin in origins[place].items() if origin in new}
        names = {name: new[origin] for name, origin in imported.items()}
        names |= {name: new[place, name] for name in module.bound}
        if any(name != other for name, other in names.items()):
            Renamed(names).visit(module.tree)
        module.bound = {names[name]: statements for name, statements in module.bound.items()}
        module.imports = {new[origin]: (origin[0], new[origin]) for origin in imported.values()}


def whence(modules: Mapping[str, Module], place: str, name: str) -> tuple[str, str]:
    """Where a name is bound that is imported from somewhere."""
    module = modules[place]
    return whence(modules, *module.imports[name]) if name in module.imports else (place, name)


class Folded(ast.NodeTransformer):
    """Without what a constant decides."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Compare(ast.Constant(one), [ast.Eq() | ast.NotEq() as sign], [ast.Constant(other)]):
                return ast.copy_location(ast.Constant((one == other) == isinstance(sign, ast.Eq)), node)
            case ast.Compare(ast.Constant(int() as one), [ast.Gt()], [ast.Constant(int() as other)]):
                return ast.copy_location(ast.Constant(one > other), node)
            case ast.Compare(ast.Constant(int() as one), [ast.Lt()], [ast.Constant(int() as other)]):
                return ast.copy_location(ast.Constant(one < other), node)
            case ast.Compare(ast.Constant(one), [ast.Is() | ast.IsNot() as sign], [ast.Constant(None)]):
                return ast.copy_location(ast.Constant((one is None) == isinstance(sign, ast.Is)), node)
            case ast.Compare(ast.Constant(one), [ast.In() | ast.NotIn() as sign], [ast.Tuple(several)]):
                if all(isinstance(other, ast.Constant) for other in several):
                    is_one = one in [other.value for other in several if isinstance(other, ast.Constant)]
                    return ast.copy_location(ast.Constant(is_one == isinstance(sign, ast.In)), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        match node:  # the beginning of a text
            case ast.Subscript(ast.Constant(str() as text), ast.Slice(None, ast.Constant(int() as end), None)):
                return ast.copy_location(ast.Constant(text[:end]), node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.copy_location(ast.Constant(not node.operand.value), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Of `and` and `or` with texts, numbers or truths: without what cannot decide, up to what decides."""
        self.generic_visit(node)
        ends = isinstance(node.op, ast.Or)
        values: list[ast.expr] = []
        for value in node.values:
            values.append(value)
            if isinstance(value, ast.Constant):
                if bool(value.value) == ends:
                    break
                if value is not node.values[-1]:
                    values.pop()
        return values[0] if len(values) == 1 else ast.copy_location(ast.BoolOp(node.op, values), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        is_one = isinstance(node.body, ast.Constant) and ast.dump(node.body) == ast.dump(node.orelse)
        return node.body if is_one else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return (node.body if node.test.value else node.orelse) or ast.copy_location(ast.Pass(), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Without what stands behind its end."""
        self.generic_visit(node)
        ends = [at for at, statement in enumerate(node.body) if isinstance(statement, ast.Return)]
        node.body = node.body[: ends[0] + 1] if ends else node.body
        return node


class Unasked(Folded):
    """Options that nobody asks about on a page, at their defaults; and without values of others that nobody chooses."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(ast.Name("a"), ast.Constant(str() as name), ast.Load()) if name in self.defaults:
                return ast.copy_location(ast.Constant(self.defaults[name]), node)
        return super().visit_Subscript(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(asked, [ast.Eq() | ast.NotEq() as sign], [ast.Constant(str() as value)]) if (
                f"{option_of(asked)}={value}" in self.defaults
            ):
                return ast.copy_location(ast.Constant(isinstance(sign, ast.NotEq)), node)
        return super().visit_Compare(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        for name, value in zip(node.keys, node.values, strict=True):
            match name, value:
                case ast.Constant(option), ast.Call(ast.Name("Option"), [ast.Tuple() as words, *_]):
                    words.elts = [
                        word
                        for word in words.elts
                        if not (isinstance(word, ast.Constant) and f"{option!s}={word.value!s}" in self.defaults)
                    ]
        pairs = [pair for pair in zip(node.keys, node.values, strict=True) if not self.is_option(*pair)]
        node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        """A list of options."""
        self.generic_visit(node)
        names = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        if len(names) == len(node.elts) and len(self.defaults.keys() & names) > 1:
            node.elts = [each for each, name in zip(node.elts, names, strict=True) if name not in self.defaults]
        return node

    def is_option(self, key: ast.expr | None, value: ast.expr) -> bool:
        match key, value:
            case ast.Constant(name), ast.Call(ast.Name("Option")):
                return name in self.defaults
        return False


def option_of(node: ast.expr) -> str:
    """The name of the option whose value this is: of the question, of a record, or of a function."""
    match node:
        case ast.Subscript(ast.Name("a"), ast.Constant(str() as name)):
            return name
        case ast.Call(ast.Attribute(_, "get"), [ast.Constant(str() as name)]):
            return name
        case ast.Attribute(_, name) | ast.Name(name):
            return name
    return ""


class Fields(Folded):
    """Records' fields that are one value wherever the record is made: they have none, and this stands where it was."""

    def __init__(self, values: Mapping[str, ast.Constant]) -> None:
        self.values = values  # by the field's name, which one record alone has

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in self.values:
            return ast.copy_location(ast.Constant(self.values[node.attr].value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in self.values]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [s for s in node.body if not (isinstance(s, ast.AnnAssign) and field_of(s) in self.values)]
        return self.generic_visit(node)


class Unmade(Folded):
    """Nothing is a record that nothing makes."""

    def __init__(self, records: Container[str]) -> None:
        self.records = records

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("isinstance"), [_, ast.Name(record)]) if record in self.records:
                return ast.copy_location(ast.Constant(False), node)
        return node


def fold_unmade(statements: list[ast.stmt], taken: Container[str]) -> bool:
    """Answers whether something is a record that nothing makes; if there is such a question."""
    names = [node for s in statements for node in used(s, taken) if isinstance(node, ast.Name)]
    asked = [
        node.args[1]
        for s in statements
        for node in ast.walk(s)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and isinstance(node.args[1], ast.Name)
    ]
    asking = {id(node) for node in asked}
    made = {node.id for node in names if id(node) not in asking}
    records = {s.name for s in statements if isinstance(s, ast.ClassDef)} - made
    unmade = records & {ast.unparse(node) for node in asked}
    for statement in statements if unmade else ():
        Unmade(unmade).visit(statement)
    return bool(unmade)


def field_of(statement: ast.AnnAssign) -> str:
    """The name of a record's field."""
    return ast.unparse(statement.target)


class Names(NamedTuple):
    """What is said of records and their fields."""

    records: list[ast.ClassDef]
    owning: Counter[str]  # how many records have a field of that name
    written: Counter[str]  # how often a name stands there as text
    keywords: dict[str | None, list[ast.keyword]]
    calls: dict[str, list[ast.Call]]


def quoted(text: str) -> str:
    """A text of JavaScript, without a backtick, which would begin or end a template for what makes scripts short."""
    return json.dumps(text, ensure_ascii=False).replace("`", "\\x60")


def names_of(statements: list[ast.stmt]) -> Names:
    """What statements say of records and their fields, by name."""
    records = [s for s in statements if isinstance(s, ast.ClassDef)]
    owning = Counter(name for record in records for name in parameters(record))
    found = Names(records, owning, Counter(), {}, {})
    for node in (node for s in statements for node in ast.walk(s)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.written[node.value] += 1
        elif isinstance(node, ast.keyword):
            found.keywords.setdefault(node.arg, []).append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.calls.setdefault(node.func.id, []).append(node)
    return found


def make_constant(statements: list[ast.stmt]) -> bool:
    """Puts its value in the place of each field that is always made with one constant, by its name; if there is one."""
    records, owning, written, named, calls = names_of(statements)
    constant: dict[str, ast.Constant] = {}
    for record in records:
        for name in parameters(record):
            given, made = named.get(name, []), calls.get(record.name, [])
            values = {ast.dump(each.value) for each in given}  # where it is made, and where it is replaced
            alone = (
                len(values) == len(made) == owning[name] == 1
                and not written[name]
                and any(each in made[0].keywords for each in given)
            )
            if alone and isinstance(value := given[0].value, ast.Constant):
                constant[name] = value
            elif (
                owning[name] == 1 and not (given or written[name]) and (default := left_at_default(record, name, made))
            ):
                constant[name] = default
    for statement in statements if constant else ():
        Fields(constant).visit(statement)
    return bool(constant)


class Chosen(Folded):
    """Whether a record's field is one of some constants, where whoever makes the record gives it none of them, or no
    other."""

    def __init__(self, given: Mapping[str, set[Any]]) -> None:
        self.given, self.found = given, False  # by the field's name, which one record alone has

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(ast.Attribute(_, name), [ast.Eq()], [ast.Constant(value)]) if name in self.given:
                asked = {value}
            case ast.Compare(ast.Attribute(_, name), [ast.In()], [ast.Tuple(several)]) if name in self.given and all(
                isinstance(each, ast.Constant) for each in several
            ):
                asked = {each.value for each in several if isinstance(each, ast.Constant)}
            case _:
                return super().visit_Compare(node)
        if not (self.given[name] & asked and self.given[name] - asked):
            self.found = True
            return ast.copy_location(ast.Constant(bool(self.given[name] & asked)), node)
        return node


def make_chosen(statements: list[ast.stmt]) -> bool:
    """Answers what is asked of a field that is always made with constants; if there is such a question."""
    records, owning, written, named, made = names_of(statements)
    given: dict[str, set[Any]] = {}
    for record in records:
        for name in parameters(record):
            default, values = left_at_default(record, name, made.get(record.name, [])), named.get(name, [])
            of_all = [default, *(each.value for each in values)]
            if owning[name] == 1 and not written[name] and all(isinstance(each, ast.Constant) for each in of_all):
                given[name] = {each.value for each in of_all if isinstance(each, ast.Constant)}
    chosen = Chosen(given)
    for statement in statements if given else ():
        chosen.visit(statement)
    return chosen.found


def left_at_default(record: ast.ClassDef, name: str, made: list[ast.Call]) -> ast.Constant | None:
    """The default of a field, if that is a constant, and whoever makes the record leaves it, and all behind it."""
    fields = [s for s in record.body if isinstance(s, ast.AnnAssign)]
    at = next((n for n, field in enumerate(fields) if field_of(field) == name), len(fields))
    if at == len(fields) or any(
        len(call.args) > at or any(isinstance(e, ast.Starred) for e in call.args) for call in made
    ):
        return None
    default = fields[at].value
    return default if isinstance(default, ast.Constant) else None


class Parameter(Folded):
    """A parameter that is one value wherever its function is called: this stands where it was."""

    def __init__(self, name: str, value: ast.Constant) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Constant(self.value.value), node) if node.id == self.name else node


def make_default(statements: list[ast.stmt], given: Container[str]) -> bool:
    """Puts its default in the place of each parameter that each call leaves at it; if there is one.

    Of functions that are only ever called, and not from outside, where names are `given`.
    """
    found = False
    nodes = [node for s in statements for node in ast.walk(s)]
    read = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    read.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
    calls: dict[str, list[ast.Call]] = {}
    for call in (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        calls.setdefault(ast.unparse(call.func), []).append(call)
    for function in (s for s in statements if isinstance(s, ast.FunctionDef) and s.name not in given):
        made, arguments = calls.get(function.name, []), function.args.args
        open_ended = any(isinstance(each, ast.Starred) for call in made for each in call.args)
        if open_ended or read[function.name] != len(made) or any(k.arg is None for call in made for k in call.keywords):
            continue
        first = len(arguments) - len(function.args.defaults)
        for at, default in reversed([*enumerate(function.args.defaults)]):  # of the last one first: it may go too
            name = arguments[first + at].arg
            said = [keyword.value for call in made for keyword in call.keywords if keyword.arg == name]
            said += [call.args[first + at] for call in made if len(call.args) > first + at]
            later = any(len(call.args) > first + at + 1 for call in made)
            again = sum(isinstance(n, ast.Name | ast.arg) and name == bound_by(n) for n in ast.walk(function)) > 1
            if not isinstance(default, ast.Constant) or any(ast.dump(each) != ast.dump(default) for each in said):
                continue
            if later or again:
                continue
            del arguments[first + at], function.args.defaults[at]
            for call in made:
                call.args = call.args[: first + at]
                call.keywords = [keyword for keyword in call.keywords if keyword.arg != name]
            Parameter(name, default).generic_visit(function)
            found = True
    return found


class Locals(Folded):
    """Names of a function that stand for one constant each: this stands where they were."""

    def __init__(self, values: Mapping[str, ast.Constant]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return ast.copy_location(ast.Constant(self.values[node.id].value), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        names, values = pairs_of(node)
        kept = [(n, v) for n, v in zip(names, values, strict=True) if ast.unparse(n) not in self.values]
        if len(kept) == len(names):
            return node
        if not kept:
            return ast.copy_location(ast.Pass(), node)
        (node.targets[0], node.value), *more = kept
        if more:
            node.targets[0] = ast.Tuple([name for name, _ in kept], ast.Store())
            node.value = ast.Tuple([value for _, value in kept], ast.Load())
        return node


def pairs_of(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr]]:
    """The names that an assignment binds, each to a value of its own."""
    match node:
        case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
            return names, values
        case ast.Assign([name], value):
            return [name], [value]
    return [], []


def make_local(statements: list[ast.stmt]) -> bool:
    """Puts its value in the place of each name that a function binds once, to a number, a truth or None; if there is
    one."""
    found = False
    functions = [n for s in statements for n in (s, *getattr(s, "body", ())) if isinstance(n, ast.FunctionDef)]
    for function in functions:
        nodes = [*ast.walk(function)]
        binding = Counter(bound_by(node) for node in nodes if isinstance(node, ast.Name | ast.arg))
        constant = {
            name.id: value
            for node in nodes
            if isinstance(node, ast.Assign)
            for name, value in zip(*pairs_of(node), strict=True)
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and not isinstance(value.value, str)
            if binding[name.id] == 1
        }
        if constant:
            Locals(constant).visit(function)
            found = True
    return found


def bound_by(node: ast.Name | ast.arg) -> str | None:
    """The name that is bound here, if one is."""
    if isinstance(node, ast.arg):
        return node.arg
    return None if isinstance(node.ctx, ast.Load) else node.id


def foreign(statement: ast.Import | ast.ImportFrom, ours: set[str]) -> dict[str, str]:
    """What an import binds, but for our own names as they are."""
    of = statement.module if isinstance(statement, ast.ImportFrom) else ""
    names = {alias.asname or alias.name: f"{of}.{alias.name}".lstrip(".") for alias in statement.names}
    same = {alias.name for alias in statement.names if not alias.asname and (of or alias.name) in ours}
    return {name: origin for name, origin in names.items() if name not in same}


def binds(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def used(statement: ast.AST, taken: Container[str]) -> Iterator[ast.Name | ast.Attribute]:
    """The names that a statement reads, but for annotations, which are not run in a browser; and for those that are
    read in methods whose names are not `taken` from anything.
    """
    nodes = [statement]
    while nodes:  # from the first to the last, each before what is in it
        node = nodes.pop()
        if node is not statement and isinstance(node, ast.Name | ast.Attribute):
            yield node
        inside: list[ast.AST] = []
        for field in node._fields:
            if field in ("annotation", "returns", "decorator_list"):
                continue
            value = getattr(node, field, None)
            if isinstance(value, list):
                inside += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                inside.append(value)
        if isinstance(node, ast.ClassDef):
            inside = [child for child in inside if not isinstance(child, ast.FunctionDef) or child.name in taken]
        nodes += reversed(inside)


def translate(
    folders: list[Path],
    wanted: Mapping[str, Iterable[str]],
    unasked: Mapping[str, Any] | None = None,
    elsewhere: Container[str] = (),
) -> str:
    """JavaScript for the wanted names of modules in the folders, and for all that these need, module by module.

    A folder that is a package gives its modules by their dotted names. Options that are `unasked` have one value each.
    Functions of which another script does what they do `elsewhere` give an empty text.
    """
    return translate_apart(folders, wanted, {}, unasked, elsewhere)[0]


def together(*wanted: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Names of modules that are wanted here and there."""
    places = dict.fromkeys(place for each in wanted for place in each)
    return {place: [name for each in wanted for name in each.get(place, ())] for place in places}


def translate_apart(
    folders: list[Path],
    first: Mapping[str, Iterable[str]],
    later: Mapping[str, Iterable[str]],
    unasked: Mapping[str, Any] | None = None,
    elsewhere: Container[str] = (),
) -> tuple[str, str]:
    """The same of names that are wanted first, and what names that are wanted later need beside it."""
    wanted = together(first, later)
    paths = {name: path for folder in folders for name, path in modules_in(folder)}
    modules: dict[str, Module] = {}
    needed: dict[str, set[str]] = {}
    order: list[str] = []
    taken = {"__init__", "__post_init__"}  # names that are read of anything

    def module(name: str) -> Module:
        if name not in modules:
            modules[name] = Module(paths[name], name, set(paths), unasked or {})
            for other in (*(of for of, _ in modules[name].imports.values()), *sorted(modules[name].modules)):
                module(other)
            order.append(name)
        return modules[name]

    def need(place: str, name: str) -> None:
        of = module(place)
        if name in of.imports:
            need(*of.imports[name])
        elif name in of.bound and name not in needed.setdefault(place, set()):
            needed[place].add(name)
            for statement in of.bound[name]:
                for node in used(statement, taken):
                    if isinstance(node, ast.Name):
                        need(place, node.id)
                    elif isinstance(node.value, ast.Name) and node.value.id in of.modules:
                        need(node.value.id, node.attr)

    def need_all(asked: Mapping[str, Iterable[str]] = wanted) -> list[ast.stmt]:
        needed.clear()
        for place, names in asked.items():
            for name in names:
                if name not in module(place).bound:
                    raise TranslationError(f"{place}.py: there is no {name}")
                need(place, name)
        return [s for place, names in needed.items() for name in names for s in modules[place].bound[name]]

    for place in wanted:
        module(place)
    told_apart(modules, wanted)
    for function in (s for of in modules.values() for s in of.tree.body if isinstance(s, ast.FunctionDef)):
        if function.name in elsewhere:
            function.body = [ast.copy_location(ast.Return(ast.Constant("")), function)]
    while more := {n.attr for s in need_all() for n in used(s, taken) if isinstance(n, ast.Attribute)} - taken:
        taken |= more
    for statement in need_all():
        if isinstance(statement, ast.ClassDef):
            statement.body = [s for s in statement.body if not isinstance(s, ast.FunctionDef) or s.name in taken]
    given = {name for names in wanted.values() for name in names}
    while any(
        [
            fold_unmade(kept := need_all(), taken),
            make_constant(kept),
            make_default(kept, given),
            make_chosen(kept),
            make_local(kept),
        ]
    ):
        pass
    unread = unread_fields(kept)
    for statement in kept:
        spare(statement, unread)
    need_all(first)
    at_first = {place: {*names} for place, names in needed.items()}
    need_all()  # without what only those texts were made of
    known = {name for names in needed.values() for name in names}
    definitions = {s.name: s for s in kept if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    signatures = {name: list(parameters(definition)) for name, definition in definitions.items()}
    named = {name for statement in kept for name in called_by_name(statement, signatures)}
    whole = {name for of in modules.values() for name in of.modules}
    writers = [
        Writer(modules[place], needed.get(place, set()), known, named, signatures, definitions, place in whole, given)
        for place in order
    ]
    described = {ast.unparse(call.args[0]) for s in kept for call in ast.walk(s) if asks_fields(call)}
    for writer in writers:
        writer.described = described
    rest = {place: names - at_first.get(place, set()) for place, names in needed.items()}
    texts = []
    for some in (at_first, rest):
        for place, writer in zip(order, writers, strict=True):
            writer.needed = some.get(place, set())
        texts.append("\n".join(writer.module() for writer in writers))
    return texts[0], texts[1]


def narrows(test: ast.expr) -> bool:
    """Whether an assertion only tells a type checker what something is."""
    match test:
        case ast.BoolOp(ast.And(), values):
            return all(narrows(value) for value in values)
        case ast.Compare(_, [ast.IsNot()], [ast.Constant(None)]) | ast.Call(ast.Name("isinstance")):
            return True
    return False


def is_of_errors(statement: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """Whether it defines an error that says no more than its text."""
    return isinstance(statement, ast.ClassDef) and [ast.unparse(base) for base in statement.bases] == ["Exception"]


def asks_fields(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a record's fields are asked for, and so their types."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "fields" and len(node.args) == 1


def modules_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each module in a folder, or in a package and those inside it."""
    if not (folder / "__init__.py").is_file():
        yield from ((path.stem, path) for path in folder.glob("*.py"))
        return
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), path


def unread_fields(statements: list[ast.stmt]) -> dict[str, set[int]]:
    """Of each record the positions of fields that nothing reads."""
    read = {node.attr for s in statements for node in ast.walk(s) if isinstance(node, ast.Attribute)}
    found = {}
    for record in statements:
        if isinstance(record, ast.ClassDef):
            found[record.name] = {n for n, field in enumerate(parameters(record)) if field not in read}
    return found


def spare(statement: ast.stmt, unread: dict[str, set[int]]) -> None:
    """Leaves out texts that a record is made with and nothing reads: sources, explanations."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            for n in unread.get(call.func.id, set()) & set(range(len(call.args))):
                value = call.args[n]
                if isinstance(value, ast.JoinedStr | ast.Subscript | ast.Tuple) or (
                    isinstance(value, ast.Constant) and isinstance(value.value, str)
                ):
                    call.args[n] = ast.copy_location(SPARED, value)


def parameters(statement: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """The names of a function's parameters, or of a record's fields."""
    if isinstance(statement, ast.FunctionDef):
        variable = statement.args.kwarg or statement.args.vararg
        yield from (p.arg for p in (*statement.args.args, *statement.args.kwonlyargs) if not variable)
    elif init := methods_of(statement).get("__init__"):
        yield from [*parameters(init)][1:]
    else:
        yield from (field_of(field) for field in statement.body if isinstance(field, ast.AnnAssign))


def methods_of(record: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {statement.name: statement for statement in record.body if isinstance(statement, ast.FunctionDef)}


def called_by_name(tree: ast.AST, signatures: dict[str, list[str]]) -> Iterator[str]:
    """Functions whose keywords find their places only when they are called: of these the parameters' names are kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.keywords:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            unpacked = any(isinstance(argument, ast.Starred) for argument in node.args)
            if unpacked or any(keyword.arg not in signatures.get(name, []) for keyword in node.keywords):
                yield name
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    own_names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own_names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):  # and of those that are handed on, which are called by another name
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            yield from {node.id} - own_names


class Writer:
    def __init__(
        self,
        module: Module,
        needed: set[str],
        known: set[str],
        named: set[str],
        signatures: dict[str, list[str]],
        definitions: dict[str, ast.FunctionDef | ast.ClassDef],
        whole: bool,
        wanted: set[str],
    ) -> None:
        self.of, self.needed, self.known, self.named, self.signatures = module, needed, known, named, signatures
        self.definitions, self.wanted = definitions, wanted
        self.described: set[str] = set()  # records of whose fields the types are asked for
        classes = [each for each in definitions.values() if isinstance(each, ast.ClassDef)]
        self.methods: dict[str, list[ast.FunctionDef]] = {}  # by name, of all classes
        for each in classes:
            for name, method in methods_of(each).items():
                self.methods.setdefault(name, []).append(method)
        self.fields = {name for each in classes if "__init__" not in methods_of(each) for name in parameters(each)}
        inits = [init for each in classes if (init := methods_of(each).get("__init__"))]
        self.attributes = {  # of objects that are no records
            node.attr
            for init in inits
            for node in ast.walk(init)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        here = {*module.bound, *module.imports}
        self.seen = {name for each in classes if each.name in here for name in methods_of(each)}
        self.whole = whole  # whether another module imports it as one
        self.parents: Mapping[str, ast.FunctionDef] = {}  # in a class that is made of another, the methods of that
        self.self_of_class = ""  # in a method of a class that is no record: by which name it has what it is called of
        self.scopes: list[dict[str, str]] = []  # of each function, inwards: a name and the short one that it gets
        self.functions: list[dict[str, ast.FunctionDef]] = []  # of each as well, the functions that it defines

    def refuse(self, node: ast.AST, what: str = "") -> TranslationError:
        line = getattr(node, "lineno", 0)
        return TranslationError(
            f"{self.of.path}:{line}: {what or type(node).__name__} is not translated; write it plainer"
        )

    def module(self) -> str:
        lines = []
        for statement in self.of.tree.body:
            if self.needed & set(binds(statement)):
                if isinstance(statement, ast.Assign):
                    each = [ast.Assign([target], statement.value) for target in statement.targets]
                    texts = [self.statement(ast.copy_location(one, statement)) for one in each]
                    lines += [text if text.startswith("$put(") else f"let {text}" for text in texts]
                elif isinstance(statement, ast.AnnAssign):
                    lines.append("let " + self.statement(statement))
                else:
                    lines.append(self.statement(statement))
        if self.needed and self.whole:
            held = (f"{name}: {self.local(name)}" for name in sorted(self.needed))
            lines.append(f"const ${self.of.name} = {{ {', '.join(held)} }};")
        text = ""
        for line in lines:  # one word before values that follow each other
            follows = line.startswith("let ") and text.rpartition("\n")[2].startswith("let ")
            text = f"{text[:-1]}, {line.removeprefix('let ')}" if follows else f"{text}\n{line}"
        return text.lstrip()

    # Statements

    def block(self, statements: list[ast.stmt]) -> str:
        return "{\n" + "".join(self.statement(statement) + "\n" for statement in statements) + "}"

    def statement(self, s: ast.stmt) -> str:
        match s:
            case ast.FunctionDef():
                return self.function(s)
            case ast.ClassDef():
                return self.record(s)
            case ast.Assign(targets=[ast.Subscript() as place], value=value):
                if isinstance(place.slice, ast.Slice):
                    raise self.refuse(s, "a slice that is assigned to")
                return f"$put({self.expr(place.value)},{self.expr(place.slice)},{self.alone(value)});"
            case ast.Assign(targets=[ast.Tuple(elts=[*first, ast.Starred(value=ast.Name() as rest)])], value=value):
                names = ast.Tuple(first, ast.Store())
                texts = [*map(self.target, first), f"...{self.target(rest)}"]
                return f"[{','.join(texts)}] = $unpack_first({self.alone(value)},{self.shape(names)});"
            case ast.Assign(targets=targets, value=value):
                text = self.alone(value)
                for target in reversed(targets):
                    beside = self.side_by_side(target, value) if len(targets) == 1 else None
                    text = f"{self.target(target)} = {beside or self.unpacked(target, text)}"
                return f"{text};"
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                return f"{self.name(target.id)}{f' = {self.alone(value)}' if value else ''};"
            case ast.AnnAssign(target=ast.Attribute() as target, value=ast.expr() as value):
                return f"{self.target(target)} = {self.alone(value)};"
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                name = self.name(target.id)
                return f"{name} = {self.in_place_of(s, op)}({name},{self.expr(value)});"
            case ast.AugAssign(
                target=ast.Subscript(
                    value=(ast.Name() | ast.Attribute(value=ast.Name())) as whole,
                    slice=(ast.Constant() | ast.Name() | ast.Attribute(value=ast.Name())) as at,
                ),
                op=op,
            ):
                holder, key = self.expr(whole), self.expr(at)
                return f"$put({holder},{key},{self.in_place_of(s, op)}($item({holder},{key}), {self.expr(s.value)}));"
            case ast.AugAssign(target=ast.Attribute() as target, op=op, value=value):
                owned = self.target(target)
                return f"{owned} = {self.in_place_of(s, op)}({owned},{self.expr(value)});"
            case ast.Expr(value=ast.Constant()):
                return ""
            case ast.Expr(value=ast.Yield(value=value)):
                return f"yield {self.expr(value) if value else 'null'};"
            case ast.Expr(value=ast.YieldFrom(value=value)):
                return f"yield* $each({self.expr(value)});"
            case ast.Expr(value=value):
                return f"{self.expr(value)};"
            case ast.Return(value=value):
                return f"return {self.alone(value) if value else 'null'};"
            case ast.If():
                other = f" else {self.block(s.orelse)}" if s.orelse else ""
                return f"if ({self.condition(s.test)}) {self.block(s.body)}{other}"
            case ast.While(orelse=[]):
                return f"while ({self.condition(s.test)}) {self.block(s.body)}"
            case ast.For(orelse=[]):
                return f"{self.loop(s.target, self.expr(s.iter), self.block(s.body)[1:-1])}"
            case ast.Try(body=[ast.Assign(value=ast.Call(ast.Attribute(attr="read_text"))) as read]):
                return self.statement(read)  # a file is the text that was pasted, which can be read
            case ast.Try(handlers=[handler], orelse=[], finalbody=[]):
                error = self.local(handler.name or "$error")
                other = f"if (!({self.caught(handler, error)})) throw {error};"
                return f"try {self.block(s.body)} catch ({error}) {{ {other} {self.block(handler.body)[1:]}"
            case ast.Raise(exc=ast.Call(func=ast.Name(id="ValueError"), args=[text], keywords=[])):
                return f"$no({self.expr(text)});"
            case ast.Raise(
                exc=ast.Call(func=ast.Name(id="KeyError"), args=[key], keywords=[])
            ):  # which nothing catches
                return f"$raise({self.expr(key)});"
            case ast.Assert(test=test, msg=None) if narrows(test):
                return ""
            case ast.Assert(test=test, msg=message):
                what = self.expr(message) if message else json.dumps(ast.unparse(test))
                return f"if ({self.test(ast.UnaryOp(ast.Not(), test))}) $raise({what});"
            case ast.Delete(targets=[ast.Subscript(value=whole, slice=at)]) if not isinstance(at, ast.Slice):
                return f"$m_pop({self.expr(whole)},{self.alone(at)});"
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=[text], keywords=[])) if self.is_error(name):
                return f"throw new {self.name(name)}({self.expr(text)});"
            case ast.Continue() | ast.Break():
                return f"{type(s).__name__.lower()};"
            case ast.Pass() | ast.Nonlocal():
                return ""
        raise self.refuse(s)

    def is_error(self, name: str) -> bool:
        """Whether it is an error that a module here defines."""
        return any(is_of_errors(each) and each.name == name for each in self.definitions.values())

    def function(self, s: ast.FunctionDef, is_method: bool = False) -> str:
        a = s.args
        decorators = [
            text for each in s.decorator_list if (text := ast.unparse(each)).partition("(")[0] not in REMEMBERED
        ]
        is_property = is_method and decorators == ["property"]
        starred = a.vararg and not is_method
        if starred or (a.vararg and a.kwarg) or a.posonlyargs or (decorators and not is_property):
            raise self.refuse(s, "a function with *arguments, / or a decorator")
        if is_method and (a.kwonlyargs or a.kwarg or not a.args):
            raise self.refuse(s, "a method with keywords alone, or of no object")
        for default in (*a.defaults, *a.kw_defaults):
            is_empty = isinstance(default, ast.Tuple) and not default.elts  # which nothing can change
            if (
                default
                and not is_empty
                and not isinstance(default, ast.Constant | ast.Name | ast.Attribute | ast.UnaryOp)
            ):
                raise self.refuse(default, "a default that is made anew at each call")
        parameters = [*a.args, *a.kwonlyargs, *(rest for rest in (a.vararg, a.kwarg) if rest)]
        defaults = [None] * (len(a.args) - len(a.defaults)) + a.defaults + a.kw_defaults + [None]
        body = s.body
        inner = set(name for statement in body for name in assigned(statement)) - {p.arg for p in parameters}
        inner -= {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        inner -= {name for node in own(s) if isinstance(node, ast.Nonlocal) for name in node.names}
        values = [f" = {self.expr(default)}" if default else "" for default in defaults]
        if a.kwarg:
            values[len(parameters) - 1] = " = new Map()"
        nested = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        nested |= {node.name for node in ast.walk(s) if isinstance(node, ast.ExceptHandler) and node.name}
        seen = [n.id for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in inner]
        self.enter([*(p.arg for p in parameters), *seen, *sorted(inner | nested)])
        self.functions[-1] |= {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
        given = [self.local(p.arg) + value for p, value in zip(parameters, values, strict=False)]
        lets = f"let {','.join(sorted(map(self.local, inner)))};\n" if inner else ""
        if is_method:
            lets = f"let {given.pop(0)} = this;\n{lets}"
        if a.vararg:
            lets += f"{given[-1]} = $tupled({given[-1]});\n"
            given[-1] = f"...{given[-1]}"
        star = "*" if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own(s)) else ""
        start = f"{'get ' * is_property}{star}{s.name}" if is_method else f"function{star} {self.local(s.name)}"
        text = f"{start}({','.join(given)}) {{\n{lets}{self.block(body)[2:]}"
        self.leave()
        if is_method:
            return text
        if any(ast.unparse(each).startswith("lru_cache") for each in s.decorator_list):
            text += f"\n{self.local(s.name)} = $remembered({self.local(s.name)});"
        if s.name in self.named:
            names = [p.arg for p in parameters]
            text += f"\n$named({self.local(s.name)},{json.dumps(names)},{len(a.args)}{', true' if a.kwarg else ''});"
        return text

    def record(self, s: ast.ClassDef) -> str:
        """A NamedTuple or a frozen dataclass of fields and methods; or a class of methods alone."""
        if is_of_errors(s):
            return f"class {self.local(s.name)} extends Error {{}}"
        kinds = [ast.unparse(base) for base in s.bases] or [ast.unparse(each) for each in s.decorator_list]
        fields = [field for field in s.body if isinstance(field, ast.AnnAssign)]
        own = methods_of(s)
        others = [
            o
            for o in s.body
            if o not in fields
            and o not in own.values()
            and not (isinstance(o, ast.Expr) and isinstance(o.value, ast.Constant))
        ]
        is_record = kinds in (["NamedTuple"], ["dataclass(frozen=True)"]) and not (s.bases and s.decorator_list)
        parent = s.bases[0] if len(s.bases) == 1 and kinds[0] in self.definitions else None
        is_plain = (not kinds or parent is not None) and not fields and "__init__" in own
        begins = "__init__" if is_plain else "__post_init__"
        special = [name for name in own if name.startswith("__") and name != begins]
        if others or special or not (is_record or is_plain):
            raise self.refuse(s, "a class that is more than fields and methods of a NamedTuple or a frozen dataclass")
        above = self.called(parent) if parent else None
        self.parents = methods_of(above) if isinstance(above, ast.ClassDef) else {}
        methods = self.own_methods(s, own, is_plain)
        if is_plain:
            return f"const {self.local(s.name)} = $class({methods}{f',{self.expr(parent)}' if parent else ''});"
        parts = []
        for field in fields:
            kind = field.annotation.id if isinstance(field.annotation, ast.Name) else ""
            kind = f"${kind}" if kind in ("int", "bool", "float", "str") and s.name in self.described else "null"
            default = f", {self.expr(field.value)}" if field.value else ""
            name = json.dumps(ast.unparse(field.target))
            parts.append(name if kind == "null" and not default else f"[{name},{kind}{default}]")
        text = f"const {self.local(s.name)} = $record({json.dumps(s.name)}, [{','.join(parts)}]);"
        return text + (f"\n$methods({self.local(s.name)}, {methods});" if own else "")

    def own_methods(self, s: ast.ClassDef, own: Mapping[str, ast.FunctionDef], is_plain: bool) -> str:
        texts = []
        for method in own.values():
            if method.name in self.fields:
                raise self.refuse(method, f"the method {method.name}, which is a field of a record")
            self.self_of_class = method.args.args[0].arg if is_plain and method.args.args else ""
            texts.append(self.function(method, is_method=True))
        self.self_of_class = ""
        return "{" + ",\n".join(texts) + "}"

    # Expressions

    def enter(self, names: Iterable[str]) -> None:
        """Into a function, whose own names become short ones: no page reads them."""
        taken = self.known | RESERVED | {short for scope in self.scopes for short in scope.values()}
        shorts = (short for short in SHORT if short not in taken)
        self.scopes.append(dict(zip(dict.fromkeys(names), shorts, strict=False)))
        self.functions.append({})

    def leave(self) -> None:
        self.scopes.pop()
        self.functions.pop()

    def local(self, name: str) -> str:
        found = next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
        if found is None and name not in self.wanted:
            return f"$_{name}"  # which no name of a function is, and the script that is sent shortens
        return f"{found or name}$" if (found or name) in RESERVED else found or name

    def name(self, name: str) -> str:
        if any(name in scope for scope in self.scopes) or name in self.known:
            return self.local(name)
        return f"${name}"

    def target(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return f"[{','.join(map(self.target, node.elts))}]"
        if isinstance(node, ast.Name):
            return self.local(node.id)
        if isinstance(node, ast.Attribute) and self.may_change(node):
            return f"{self.expr(node.value)}.{node.attr}"
        raise self.refuse(node)

    def may_change(self, node: ast.Attribute) -> bool:
        """Whether it belongs to an object of a class with `__init__`; a record stays as it is made."""
        of_own = isinstance(node.value, ast.Name) and node.value.id == self.self_of_class
        return of_own or (node.attr in self.attributes and node.attr not in self.fields)

    def unpacked(self, target: ast.expr, value: str) -> str:
        """What is assigned, looked at first: as many values as names."""

        return f"$unpack({value},{self.shape(target)})" if isinstance(target, ast.Tuple) else value

    def shape(self, node: ast.Tuple) -> str:
        """How many names, or which of them are several again."""
        if not any(isinstance(each, ast.Tuple) for each in node.elts):
            return str(len(node.elts))
        return f"[{','.join(self.shape(each) if isinstance(each, ast.Tuple) else '0' for each in node.elts)}]"

    def side_by_side(self, target: ast.expr, value: ast.expr) -> str | None:
        """As many values as names, which the source shows: nothing is left to look at."""
        if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
            return None
        if any(isinstance(each, ast.Tuple) for each in target.elts) or any(
            isinstance(v, ast.Starred) for v in value.elts
        ):
            return None
        return f"[{','.join(map(self.expr, value.elts))}]"

    def loop(self, target: ast.expr, iterated: str, body: str) -> str:
        if not isinstance(target, ast.Tuple):
            return f"for ({self.target(target)} of {self.each(iterated)}) {{{body}}}"
        parts, whole = self.in_parts(iterated, target), "$unpack_each("
        if not parts.startswith(whole):
            return f"for ({self.target(target)} of {parts}) {{{body}}}"
        shape, values = self.shape(target), iterated  # without a generator between
        return f"for (let $x of {self.each(values)}) {{{self.target(target)} = $unpack($x,{shape});{body}}}"

    def in_parts(self, iterated: str, target: ast.Tuple) -> str:
        """What goes through it, in parts; a dict's items are pairs."""
        shape = self.shape(target)
        items = "$m_items("
        if shape == "2" and iterated.startswith(items):
            return f"$of_map({iterated[len(items) :]}"
        return f"$unpack_each({iterated},{shape})"

    @staticmethod
    def at_once(comprehension: str, called: str, other: str) -> str:
        """What is all wanted is not made lazily, where each turn is a call."""
        lazily = "$map("
        return (
            called + comprehension[len(lazily) - 1 :]
            if comprehension.startswith(lazily)
            else other.format(comprehension)
        )

    @staticmethod
    def each(iterated: str, other: str = "$each({})") -> str:
        """What goes through it; a tuple that stands there needs no more."""
        if iterated.startswith("$tupled([") and iterated.find(")") == len(iterated) - 1:
            return iterated[len("$tupled(") : -1]
        return other.format(iterated)

    def caught(self, handler: ast.ExceptHandler, error: str) -> str:
        """Whether an error is one of those that are named."""
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = [kind.id if isinstance(kind, ast.Name) else "" for kind in kinds]
        if any(name not in CAUGHT and not self.is_error(name) for name in names):
            raise self.refuse(handler, f"an except of other errors than {', '.join(CAUGHT)} and those that are ours")
        caught = [CAUGHT[name] if name in CAUGHT else self.name(name) for name in names]
        return " || ".join(f"{error} instanceof {name}" for name in caught if name) or "false"

    def in_place_of(self, node: ast.AST, op: ast.operator) -> str:
        return IN_PLACE.get(type(op)) or self.binary(node, op)

    def binary(self, node: ast.AST, op: ast.operator) -> str:
        if type(op) not in BINARY:
            raise self.refuse(node, type(op).__name__)
        return BINARY[type(op)]

    def test(self, node: ast.expr) -> str:
        """As a condition: what is true in Python."""
        match node:
            case ast.BoolOp(op=op, values=values):
                return f"({(' && ' if isinstance(op, ast.And) else ' || ').join(map(self.test, values))})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                text = self.test(operand)
                signs = operand.ops if isinstance(operand, ast.Compare) else []
                return f"!({text})" if any(isinstance(op, SIGNS) for op in signs) else f"!{text}"
            case ast.Compare():
                return self.expr(node)
        return f"$t({self.alone(node)})"

    def expr(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=None | bool() as value):
                return json.dumps(value)
            case ast.Constant(value=str() as value):
                return quoted(value)
            case ast.Constant(value=int() as value):
                return f"{value}n"
            case ast.Constant(value=float() as value):
                return ZEROS.sub(lambda match: f"{match[1]}e{len(match[2])}", repr(value).removesuffix(".0"))
            case ast.JoinedStr(values=[]):
                return '""'
            case ast.JoinedStr(values=[ast.Constant(value=str() as text)]):
                return quoted(text)
            case ast.JoinedStr(values=values):
                return f"$f`{''.join(map(self.piece, values))}`"
            case ast.Name(id=name):
                if name == SPARED.id:
                    return name
                if not self.is_ours(name) and not (name in TYPES | FUNCTIONS.keys() and self.is_meant(name)):
                    raise self.refuse(node, name)
                return self.name(name)
            case ast.Attribute(value=ast.Name(id=module), attr=attr) if module in self.of.modules:
                return f"${module}.{attr}"
            case ast.Attribute(value=value, attr=attr):
                others = [each for each in self.methods.get(attr, []) if not each.decorator_list]
                if attr in METHODS or others or attr.startswith("__"):
                    raise self.refuse(node, f"the method {attr} that is not called")
                return f"{self.expr(value)}.{attr}"
            case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high, step=step)):
                bounds = [self.expr(bound) if bound else "null" for bound in (low, high, step)]
                while bounds and bounds[-1] == "null":
                    bounds.pop()
                return f"$slice({','.join([self.expr(value), *bounds])})"
            case ast.Subscript(value=value, slice=at):
                return f"$item({self.expr(value)},{self.alone(at)})"
            case ast.BinOp(left=ast.List() as items, op=ast.Mult(), right=times):
                return f"$repeat({self.expr(items)},{self.alone(times)})"
            case ast.BinOp(left=left, op=op, right=right):
                terms = [right]
                while (
                    type(op) in CHAINED
                    and isinstance(left, ast.BinOp)
                    and type(left.op) is type(op)
                    and len(terms) < MOST_TERMS - 1
                ):
                    terms.append(left.right)
                    left = left.left
                return f"{self.binary(node, op)}({','.join(map(self.alone, [left, *reversed(terms)]))})"
            case ast.UnaryOp(op=ast.Not()):
                return self.test(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"$neg({self.expr(operand)})"
            case ast.BoolOp(op=op, values=[*rest, last]):
                text = self.expr(last)
                for value in reversed(rest):
                    text = f"{'$and' if isinstance(op, ast.And) else '$or'}({self.expr(value)}, () => {text})"
                return text
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                if any(isinstance(node, ast.NamedExpr) for each in comparators[:-1] for node in ast.walk(each)):
                    raise self.refuse(node, "a name that is bound between two comparisons")
                pairs = zip([left, *comparators[:-1]], ops, comparators, strict=True)
                texts = [self.compared(*pair) for pair in pairs]
                return texts[0] if len(texts) == 1 else f"({' && '.join(texts)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self.condition(test)} ? {self.alone(body)} : {self.alone(orelse)})"
            case ast.NamedExpr(target=target, value=value):
                return f"({self.local(target.id)} = {self.expr(value)})"
            case ast.Tuple(elts=elts):
                return f"$tupled([{','.join(map(self.element, elts))}])"
            case ast.List(elts=elts):
                return f"[{','.join(map(self.element, elts))}]"
            case ast.Set(elts=elts):
                return f"$set([{','.join(map(self.element, elts))}])"
            case ast.Dict(keys=keys, values=values):
                names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                if keys and len(names) == len(keys) and all(map(NAME.fullmatch, names)):
                    named = [f"{name}:{self.alone(value)}" for name, value in zip(names, values, strict=True)]
                    return f"$d({{{','.join(named)}}})"
                entries = [
                    f"[{self.expr(key)},{self.expr(value)}]" if key else f"...$m_items({self.expr(value)})"
                    for key, value in zip(keys, values, strict=True)
                ]
                plain = all(
                    key is None or (isinstance(key, ast.Constant) and isinstance(key.value, str)) for key in keys
                )
                return f"{'new Map' if plain else '$dict'}([{','.join(entries)}])"
            case ast.GeneratorExp(elt=elt, generators=generators):
                return self.comprehension(elt, generators)
            case ast.ListComp(elt=elt, generators=generators):
                return self.at_once(self.comprehension(elt, generators), "$listed", "[...{}]")
            case ast.DictComp(key=key, value=value, generators=generators):
                lazy = self.comprehension(ast.List([key, value], ast.Load()), generators)
                return self.at_once(lazy, "$mapped", "$dict({})")
            case ast.SetComp(elt=elt, generators=generators):
                return f"$set({self.comprehension(elt, generators)})"
            case ast.Lambda(args=args, body=body):
                if ast.unparse(args) != ", ".join(p.arg for p in args.args):
                    raise self.refuse(node, "a lambda with defaults, * or /")
                self.enter([p.arg for p in args.args])
                text = f"({','.join(self.local(p.arg) for p in args.args)}) => {self.expr(body)}"
                self.leave()
                return f"({text})"
            case ast.Call():
                return self.call(node)
        raise self.refuse(node)

    def piece(self, node: ast.expr) -> str:
        """Of an f-string."""
        if isinstance(node, ast.Constant):
            return json.dumps(node.value, ensure_ascii=False)[1:-1].replace("`", "\\`").replace("${", "\\${")
        if not isinstance(node, ast.FormattedValue):
            raise self.refuse(node)
        value = self.expr(node.value)
        if "`" in value:  # rjsmin takes what stands in a template within a template for code
            raise self.refuse(node, "a text with values inside of another; give it a name first")
        if node.conversion == ord("a") or (node.conversion != -1 and node.format_spec):
            raise self.refuse(node.value, "!a, or a conversion and a format")
        if node.conversion == ord("r"):
            return f"${{$repr({value})}}"
        match node.format_spec:
            case None:
                return f"${{{value}}}"
            case ast.JoinedStr(values=[ast.Constant(value=str() as spec)]) if FORMAT.fullmatch(spec):
                return f"${{$format({value},{quoted(spec)})}}"
        raise self.refuse(node.value, f"the format {ast.unparse(node.format_spec)}")

    def compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        """Without parentheses: only what is negated needs them, and what is compared itself."""
        a, b = (
            f"({self.expr(each)})" if isinstance(each, ast.Compare | ast.UnaryOp) else self.expr(each)
            for each in (left, right)
        )
        if isinstance(op, ast.Is | ast.IsNot):
            names_a_type = isinstance(right, ast.Name) and right.id in TYPES and not self.is_ours(right.id)
            if not names_a_type and not (isinstance(right, ast.Constant) and isinstance(right.value, bool | None)):
                raise self.refuse(left, "is with anything but None, True, False or a type")
            equals = "==" if b == "null" else "==="
            return f"{a}{equals if isinstance(op, ast.Is) else '!' + equals[1:]}{b}"
        if isinstance(op, ast.Eq | ast.NotEq) and any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (left, right)
        ):
            return f"{a}{'!' if isinstance(op, ast.NotEq) else '='}=={b}"  # a text equals itself alone
        if isinstance(op, ast.In | ast.NotIn):
            b = self.each(b, "{}")
        if isinstance(op, ast.NotEq | ast.NotIn):
            return f"!{'$eq' if isinstance(op, ast.NotEq) else '$in'}({a},{b})"
        return f"{COMPARED[type(op)]}({a},{b})"

    def element(self, node: ast.expr) -> str:
        return f"...$each({self.expr(node.value)})" if isinstance(node, ast.Starred) else self.alone(node)

    def alone(self, node: ast.expr) -> str:
        """An expression with nothing beside it, which needs no parentheses."""
        text = self.expr(node)
        return text[1:-1] if isinstance(node, ast.IfExp | ast.Lambda) else text

    def condition(self, node: ast.expr) -> str:
        """A condition with nothing beside it that binds more tightly than `and` and `or`."""
        text = self.test(node)
        return text[1:-1] if isinstance(node, ast.BoolOp) else text

    def comprehension(self, elt: ast.expr, generators: list[ast.comprehension]) -> str:
        """A generator, as lazy as Python's; what it runs over first is known before it starts."""
        first = self.expr(generators[0].iter)  # outside the scope of its own names
        names = {node.id for g in generators for node in ast.walk(g.target) if isinstance(node, ast.Name)}
        self.enter(sorted(names))
        if len(generators) == 1 and not any(isinstance(node, ast.Lambda) for node in ast.walk(elt)):
            text = self.mapped(elt, generators[0], first)
            self.leave()
            return text
        text = f"yield {self.expr(elt)};"
        for generator in reversed(generators):
            if generator.is_async:
                raise self.refuse(elt, "async for")
            tests = "".join(f"if ({self.test(test)}) " for test in generator.ifs)
            iterated = "$of" if generator is generators[0] else self.expr(generator.iter)
            text = self.loop(generator.target, iterated, tests + text)
        lets = ",".join(sorted(map(self.local, names)))
        self.leave()
        return f"(function* ($of) {{let {lets};{text}}})($each({first}))"

    def mapped(self, elt: ast.expr, of: ast.comprehension, first: str) -> str:
        """A generator with one for, each turn of which is a call."""
        if of.is_async:
            raise self.refuse(elt, "async for")
        names, iterated = self.target(of.target), self.each(first)
        if isinstance(of.target, ast.Tuple):
            iterated = self.in_parts(first, of.target)
            names = f"({names})"
        tests = "".join(f",{names}=>{test}" for test in [" && ".join(map(self.test, of.ifs))] if test)
        return f"$map({iterated},{names}=>{self.alone(elt)}{tests})"

    def is_ours(self, name: str) -> bool:
        return name in self.known or any(name in scope for scope in self.scopes)

    def is_meant(self, name: str) -> bool:
        """Whether a name that is not ours is what the runtime has by it."""
        return self.of.foreign.get(name, name) == ORIGINS.get(name, name)

    def call(self, node: ast.Call) -> str:
        flags = "re.ASCII" if ast.unparse(node.func) == "re.compile" else None
        arguments = ["true" if ast.unparse(each) == flags else self.element(each) for each in node.args]
        named = ", ".join(
            f"{k.arg}: {self.alone(k.value)}" if k.arg else f"...$own({self.expr(k.value)})" for k in node.keywords
        )
        both = [*arguments, *([f"{{ {named} }}"] if named else [])]
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "super()":
            return self.call_of_own(node, node.func.attr, "super", arguments, self.parents)
        if isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id in self.of.modules
        ):
            whole, method = node.func.value, node.func.attr
            owner = whole.id if isinstance(whole, ast.Name) and not self.is_ours(whole.id) else ""
            if takes := OF_MODULES.get(f"{owner}.{method}"):
                if not self.is_meant(owner):
                    raise self.refuse(node, f"this {owner}")
                self.taken(node, f"{owner}.{method}", takes)
                if owner == "re" and arguments[1:] not in ([], ["true"]):
                    raise self.refuse(node, "another flag than re.ASCII")
                return f"${owner}_{method}({','.join(arguments)})"
            if method in self.methods and (method not in METHODS or method in self.seen):
                return self.call_of_own(node, method, self.expr(whole), arguments)
            if method in self.fields | self.attributes and method not in METHODS:
                return f"$call({self.expr(node.func)}, [{','.join(arguments)}]{f', {{ {named} }}' if named else ''})"
            if method not in METHODS:
                raise self.refuse(node, f"the method {method}")
            self.taken(node, f".{method}()", METHODS[method])
            return f"$m_{method}({','.join([self.expr(whole), *both])})"
        if isinstance(node.func, ast.Name) and not self.is_ours(name := node.func.id) and name in FUNCTIONS:
            self.taken(node, f"{name}()", FUNCTIONS[name])
            if name == "isinstance" and isinstance(self.called(node.args[1]), ast.ClassDef):
                return f"$instance({','.join(arguments)})"
            if name == "partial":
                return f"$partial({arguments[0]}, [{','.join(arguments[1:])}]{f', {{ {named} }}' if named else ''})"
            return f"{self.expr(node.func)}({','.join(both)})"
        function, known = self.expr(node.func), self.called(node.func)
        if known is None:
            return f"$call({function}, [{','.join(arguments)}]{f', {{ {named} }}' if named else ''})"
        self.fits(node, known)
        if not named and not any(isinstance(argument, ast.Starred) for argument in node.args):
            return f"{function}({','.join(arguments)})"
        if where := self.in_place(node):
            return f"{function}({','.join(arguments + where)})"
        return f"$call({function}, [{','.join(arguments)}], {{ {named} }})"

    def call_of_own(
        self, node: ast.Call, name: str, whole: str, arguments: list[str], methods: Mapping[str, ast.FunctionDef] = {}
    ) -> str:
        """Of a method of a class here; where it is asked for, also of what has one by this name in Python. With
        `methods` of one class it is of that."""
        starred = any(isinstance(each, ast.Starred) for each in node.args)
        for method in [methods[name]] if methods else self.methods[name]:
            names = [p.arg for p in method.args.args[1:]]
            least = len(names) - len(method.args.defaults)
            fits = least <= len(arguments) and (method.args.vararg or len(arguments) <= len(names))
            if node.keywords or method.decorator_list or not (method.args.vararg if starred else fits):
                raise self.refuse(node, f"a call of .{name}() with other arguments than it takes, or with names")
        if name not in METHODS or methods:
            return f"{whole}.{name}({','.join(arguments)})"
        takes = METHODS[name]
        fits = not starred and takes.least <= len(arguments) and (takes.most is None or len(arguments) <= takes.most)
        return f"$method({','.join([whole, json.dumps(name), f'$m_{name}' if fits else 'null', *arguments])})"

    def called(self, function: ast.expr) -> ast.FunctionDef | ast.ClassDef | None:
        """The function or record that a call names; None if that is known only when it runs."""
        if not isinstance(function, ast.Name):
            return self.definitions.get(function.attr) if isinstance(function, ast.Attribute) else None
        for scope, inner in zip(reversed(self.scopes), reversed(self.functions), strict=True):
            if function.id in inner:
                return inner[function.id]
            if function.id in scope:
                return None
        return self.definitions.get(function.id)

    def taken(self, node: ast.Call, function: str, takes: Takes) -> None:
        """Refuses what the runtime would ignore."""
        starred = any(isinstance(argument, ast.Starred) for argument in node.args) and takes.most is not None
        count = len(node.args)
        if starred or count < takes.least or (takes.most is not None and count > takes.most):
            raise self.refuse(node, f"{function} with {'*arguments' if starred else f'{count} arguments'}")
        for keyword in node.keywords:
            if "*" not in takes.names and keyword.arg not in takes.names:
                raise self.refuse(node, f"{function} with {keyword.arg or '**'}{'=' * bool(keyword.arg)}")

    def fits(self, node: ast.Call, called: ast.FunctionDef | ast.ClassDef) -> None:
        """Refuses a call that Python would refuse when it runs: too many arguments, a name twice, one missing."""
        init = methods_of(called).get("__init__") if isinstance(called, ast.ClassDef) else None
        if isinstance(called, ast.ClassDef) and not init:
            fields = [field for field in called.body if isinstance(field, ast.AnnAssign)]
            names = [ast.unparse(field.target) for field in fields]
            needed, rest, most = (
                {n for n, field in zip(names, fields, strict=True) if not field.value},
                False,
                len(names),
            )
        else:
            a = init.args if init else called.args  # type: ignore[union-attr]
            own = a.args[1:] if init else a.args
            names = [p.arg for p in (*own, *a.kwonlyargs)]
            needed = set(names[: len(own) - len(a.defaults)])
            needed |= {p.arg for p, default in zip(a.kwonlyargs, a.kw_defaults, strict=True) if default is None}
            rest, most = a.kwarg is not None, len(own)
        given = {keyword.arg for keyword in node.keywords}
        placed = set(names[: len(node.args)])
        if any(isinstance(argument, ast.Starred) for argument in node.args) or None in given:
            return
        if len(node.args) > most or given & placed or (given - set(names) and not rest) or needed - given - placed:
            raise self.refuse(node, f"a call of {called.name} with other arguments than it takes")

    def in_place(self, node: ast.Call) -> list[str]:
        """What is given by name, at its place; nothing if that is known only when it runs."""
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        names = [] if any(name in scope for scope in self.scopes) else self.signatures.get(name, [])
        given = {k.arg: k.value for k in node.keywords}
        if not set(given) <= set(names) or any(isinstance(argument, ast.Starred) for argument in node.args):
            return []
        last = max(names.index(str(name)) for name in given)
        return [self.expr(given[n]) if n in given else "undefined" for n in names[len(node.args) : last + 1]]


def own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, those of functions inside it left out."""
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))


def assigned(statement: ast.stmt) -> Iterator[str]:
    """The names that a function's statement assigns, those of functions inside it left out."""
    if isinstance(statement, ast.FunctionDef):
        yield statement.name
        return
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.comprehension):
            nodes.extend([node.iter, *node.ifs])
            continue
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        nodes.extend(ast.iter_child_nodes(node))
