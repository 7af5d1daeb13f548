"""Translates the Python that the library's planner is written in to JavaScript, so that a page computes what it does.

What runs beside it is planner/runtime.js: an int is a BigInt, a float a Number, a dict a Map, a tuple an Array.
Only what the wanted names need is translated; a construct that is not known here is refused by file and line.
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

RUNTIME = Path(__file__).with_name("runtime.js")
BINARY = {
    ast.Add: "$add", ast.Sub: "$sub", ast.Mult: "$mul", ast.Div: "$div", ast.FloorDiv: "$floordiv", ast.Mod: "$mod",
    ast.Pow: "$pow", ast.BitOr: "$union",
}  # fmt: skip
COMPARED = {ast.Lt: "$lt", ast.LtE: "$le", ast.Gt: "$gt", ast.GtE: "$ge", ast.Eq: "$eq", ast.In: "$in"}
RESERVED = {  # words of JavaScript that are names in Python
    "arguments", "case", "catch", "const", "debugger", "default", "delete", "do", "enum", "eval", "export", "extends",
    "function", "instanceof", "let", "new", "null", "package", "private", "protected", "public", "static", "super",
    "switch", "this", "throw", "typeof", "var", "void",
}  # fmt: skip


LETTERS = string.ascii_letters
SHORT = (*LETTERS, *(one + other for one in LETTERS for other in LETTERS + string.digits))


class TranslationError(ValueError):
    """Names the file, the line and what is not known there."""


class Module:
    """One module: its top-level statements by the names that they bind, and what it imports from the others."""

    def __init__(self, path: Path, name: str, others: set[str]) -> None:
        self.path, self.name = path, name
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        self.bound: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, str] = {}  # a name of ours, the module that it is of
        self.modules: set[str] = set()  # those that are imported whole
        for statement in self.tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module in others:
                self.imports |= {alias.name: statement.module or "" for alias in statement.names}
            elif isinstance(statement, ast.Import):
                self.modules |= {alias.name for alias in statement.names if alias.name in others}
            for name in binds(statement):
                self.bound.setdefault(name, []).append(statement)


def binds(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def used(statement: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """The names that a statement reads, but for annotations, which are not run in a browser."""
    for field, value in ast.iter_fields(statement):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Name | ast.Attribute):
                yield child
            if isinstance(child, ast.AST):
                yield from used(child)


def translate(folders: list[Path], wanted: dict[str, Iterable[str]]) -> str:
    """JavaScript for the wanted names of modules in the folders, and for all that these need, module by module.

    A folder that is a package gives its modules by their dotted names.
    """
    paths = {name: path for folder in folders for name, path in modules_in(folder)}
    modules: dict[str, Module] = {}
    needed: dict[str, set[str]] = {}
    order: list[str] = []

    def module(name: str) -> Module:
        if name not in modules:
            modules[name] = Module(paths[name], name, set(paths))
            for other in (*modules[name].imports.values(), *sorted(modules[name].modules)):
                module(other)
            order.append(name)
        return modules[name]

    def need(place: str, name: str) -> None:
        of = module(place)
        if name in of.imports:
            need(of.imports[name], name)
        elif name in of.bound and name not in needed.setdefault(place, set()):
            needed[place].add(name)
            for statement in of.bound[name]:
                for node in used(statement):
                    if isinstance(node, ast.Name):
                        need(place, node.id)
                    elif isinstance(node.value, ast.Name) and node.value.id in of.modules:
                        need(node.value.id, node.attr)

    def need_all() -> None:
        needed.clear()
        for place, names in wanted.items():
            for name in names:
                if name not in module(place).bound:
                    raise TranslationError(f"{place}.py: there is no {name}")
                need(place, name)

    need_all()
    kept = [s for place, names in needed.items() for name in names for s in modules[place].bound[name]]
    unread = unread_fields(kept)
    for statement in kept:
        spare(statement, unread)
    need_all()  # without what only those texts were made of
    known = {name for names in needed.values() for name in names}
    if len(known) < sum(map(len, needed.values())):
        twice = sorted(name for name in known if sum(name in names for names in needed.values()) > 1)
        raise TranslationError(f"{', '.join(order)}: more than one binds {', '.join(twice)}; rename one")
    signatures = {s.name: list(parameters(s)) for s in kept if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    named = {name for statement in kept for name in called_by_name(statement, signatures)}
    whole = {name for of in modules.values() for name in of.modules}
    writers = [
        Writer(modules[place], needed.get(place, set()), known, named, signatures, place in whole) for place in order
    ]
    return "\n".join(writer.module() for writer in writers)


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
    """Empties texts that a record is made with and nothing reads: sources, explanations."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            for n in unread.get(call.func.id, set()) & set(range(len(call.args))):
                value = call.args[n]
                if isinstance(value, ast.JoinedStr | ast.Subscript | ast.Tuple) or (
                    isinstance(value, ast.Constant) and isinstance(value.value, str)
                ):
                    call.args[n] = ast.copy_location(ast.Constant(""), value)


def parameters(statement: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """The names of a function's parameters, or of a record's fields."""
    if isinstance(statement, ast.FunctionDef):
        yield from (p.arg for p in (*statement.args.args, *statement.args.kwonlyargs) if not statement.args.kwarg)
    else:
        yield from (ast.unparse(field.target) for field in statement.body if isinstance(field, ast.AnnAssign))


def called_by_name(tree: ast.AST, signatures: dict[str, list[str]]) -> Iterator[str]:
    """Functions whose keywords find their places only when they are called: of these the parameters' names are kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.keywords:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            unpacked = any(isinstance(argument, ast.Starred) for argument in node.args)
            if unpacked or any(keyword.arg not in signatures.get(name, []) for keyword in node.keywords):
                yield name


class Writer:
    def __init__(
        self,
        module: Module,
        needed: set[str],
        known: set[str],
        named: set[str],
        signatures: dict[str, list[str]],
        whole: bool,
    ) -> None:
        self.of, self.needed, self.known, self.named, self.signatures = module, needed, known, named, signatures
        self.whole = whole  # whether another module imports it as one
        runtime = RUNTIME.read_text(encoding="utf-8")
        self.runtime = set(re.findall(r"^(?:const|class|function) \$(\w+)", runtime, re.MULTILINE))
        self.methods = set(re.findall(r"^  (\w+)[:(]", runtime.partition("const $m = {")[2], re.MULTILINE))
        self.scopes: list[dict[str, str]] = []  # of each function, inwards: a name and the short one that it gets

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
                    lines += ["let " + self.statement(ast.copy_location(one, statement)) for one in each]
                elif isinstance(statement, ast.AnnAssign):
                    lines.append("let " + self.statement(statement))
                else:
                    lines.append(self.statement(statement))
        if self.needed and self.whole:
            lines.append(f"const ${self.of.name} = {{ {','.join(sorted(self.needed))} }};")
        return "\n".join(lines)

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
                return f"$set({self.expr(place.value)},{self.expr(place.slice)},{self.expr(value)});"
            case ast.Assign(targets=targets, value=value):
                return f"{' = '.join(map(self.target, targets))} = {self.expr(value)};"
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                return f"{self.name(target.id)}{f' = {self.expr(value)}' if value else ''};"
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                name = self.name(target.id)
                return f"{name} = {self.binary(s, op)}({name},{self.expr(value)});"
            case ast.AugAssign(target=ast.Subscript(value=ast.Name() as whole, slice=ast.Constant() as at), op=op):
                holder, key = self.name(whole.id), self.expr(at)
                return f"$set({holder},{key},{self.binary(s, op)}($item({holder},{key}), {self.expr(s.value)}));"
            case ast.Expr(value=ast.Constant()):
                return ""
            case ast.Expr(value=ast.Yield(value=value)):
                return f"yield {self.expr(value) if value else 'null'};"
            case ast.Expr(value=ast.YieldFrom(value=value)):
                return f"yield* $list({self.expr(value)});"
            case ast.Expr(value=value):
                return f"{self.expr(value)};"
            case ast.Return(value=value):
                return f"return {self.expr(value) if value else 'null'};"
            case ast.If():
                other = f" else {self.block(s.orelse)}" if s.orelse else ""
                return f"if ({self.test(s.test)}) {self.block(s.body)}{other}"
            case ast.While(orelse=[]):
                return f"while ({self.test(s.test)}) {self.block(s.body)}"
            case ast.For(orelse=[]):
                return f"for ({self.target(s.target)} of $list({self.expr(s.iter)})) {self.block(s.body)}"
            case ast.Try(handlers=[handler], orelse=[], finalbody=[]):
                error = self.local(handler.name or "$error")
                return f"try {self.block(s.body)} catch ({error}) {self.block(handler.body)}"
            case ast.Raise(exc=ast.Call() as error):
                return f"throw {self.expr(error)};"
            case ast.Continue() | ast.Break():
                return f"{type(s).__name__.lower()};"
            case ast.Pass():
                return ""
        raise self.refuse(s)

    def function(self, s: ast.FunctionDef) -> str:
        a = s.args
        if a.vararg or a.posonlyargs or s.decorator_list:
            raise self.refuse(s, "a function with *arguments, / or a decorator")
        parameters = [*a.args, *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]
        defaults = [None] * (len(a.args) - len(a.defaults)) + a.defaults + a.kw_defaults + [None]
        body = s.body
        inner = {name for statement in body for name in assigned(statement)} - {p.arg for p in parameters}
        inner -= {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        values = [f" = {self.expr(default)}" if default else "" for default in defaults]
        nested = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        nested |= {node.name for node in ast.walk(s) if isinstance(node, ast.ExceptHandler) and node.name}
        self.enter(inner | nested | {p.arg for p in parameters})
        given = [self.local(p.arg) + value for p, value in zip(parameters, values, strict=False)]
        lets = f"let {','.join(sorted(map(self.local, inner)))};\n" if inner else ""
        star = "*" if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(s)) else ""
        text = f"function{star} {self.local(s.name)}({','.join(given)}) {{\n{lets}{self.block(body)[2:]}"
        self.scopes.pop()
        if s.name in self.named:
            names = [p.arg for p in parameters]
            text += f"\n$named({self.local(s.name)},{json.dumps(names)}{', true' if a.kwarg else ''});"
        return text

    def record(self, s: ast.ClassDef) -> str:
        """A NamedTuple or a frozen dataclass of fields alone."""
        kinds = {node.id for node in ast.walk(s) if isinstance(node, ast.Name)}
        fields = [field for field in s.body if isinstance(field, ast.AnnAssign)]
        others = [
            o for o in s.body if o not in fields and not (isinstance(o, ast.Expr) and isinstance(o.value, ast.Constant))
        ]
        if not kinds & {"NamedTuple", "dataclass"} or others:
            raise self.refuse(s, "a class that is more than fields")
        parts = []
        for field in fields:
            kind = field.annotation.id if isinstance(field.annotation, ast.Name) else ""
            kind = f"${kind}" if kind in ("int", "bool", "float", "str") else "null"
            default = f", {self.expr(field.value)}" if field.value else ""
            parts.append(f"[{json.dumps(ast.unparse(field.target))},{kind}{default}]")
        return f"const {s.name} = $record({json.dumps(s.name)}, [{','.join(parts)}]);"

    # Expressions

    def enter(self, names: set[str]) -> None:
        """Into a function, whose own names become short ones: no page reads them."""
        taken = self.known | RESERVED | {short for scope in self.scopes for short in scope.values()}
        shorts = (short for short in SHORT if short not in taken)
        self.scopes.append(dict(zip(sorted(names), shorts, strict=False)))

    def local(self, name: str) -> str:
        found = next((scope[name] for scope in reversed(self.scopes) if name in scope), name)
        return f"{found}$" if found in RESERVED else found

    def name(self, name: str) -> str:
        if any(name in scope for scope in self.scopes) or name in self.known:
            return self.local(name)
        return f"${name}"

    def target(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple):
            return f"[{','.join(map(self.target, node.elts))}]"
        if isinstance(node, ast.Name):
            return self.local(node.id)
        raise self.refuse(node)

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
                return f"!{self.test(operand)}"
            case ast.Compare():
                return self.expr(node)
        return f"$t({self.expr(node)})"

    def expr(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=None | bool() | str() as value):
                return json.dumps(value, ensure_ascii=False)
            case ast.Constant(value=int() as value):
                return f"{value}n"
            case ast.Constant(value=float() as value):
                return repr(value)
            case ast.JoinedStr(values=values):
                return f"`{''.join(map(self.piece, values))}`"
            case ast.Name(id=name):
                if not any(name in scope for scope in self.scopes) and name not in self.known | self.runtime:
                    raise self.refuse(node, name)
                return self.name(name)
            case ast.Attribute(value=ast.Name(id=module), attr=attr) if module in self.of.modules:
                return f"${module}.{attr}"
            case ast.Attribute(value=value, attr=attr):
                if attr in self.methods:
                    raise self.refuse(node, f"the method {attr} that is not called")
                return f"{self.expr(value)}.{attr}"
            case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high, step=step)):
                bounds = ", ".join(self.expr(bound) if bound else "null" for bound in (low, high, step))
                return f"$slice({self.expr(value)},{bounds})"
            case ast.Subscript(value=value, slice=at):
                return f"$item({self.expr(value)},{self.expr(at)})"
            case ast.BinOp(left=left, op=op, right=right):
                return f"{self.binary(node, op)}({self.expr(left)},{self.expr(right)})"
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
                pairs = zip([left, *comparators[:-1]], ops, comparators, strict=True)
                texts = [self.compared(*pair) for pair in pairs]
                return texts[0] if len(texts) == 1 else f"({' && '.join(texts)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self.test(test)} ? {self.expr(body)} : {self.expr(orelse)})"
            case ast.NamedExpr(target=target, value=value):
                return f"({self.local(target.id)} = {self.expr(value)})"
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return f"[{','.join(map(self.element, elts))}]"
            case ast.Set(elts=elts):
                return f"new Set([{','.join(map(self.element, elts))}])"
            case ast.Dict(keys=keys, values=values):
                entries = [
                    f"[{self.expr(key)},{self.expr(value)}]" if key else f"...{self.expr(value)}"
                    for key, value in zip(keys, values, strict=True)
                ]
                return f"new Map([{','.join(entries)}])"
            case ast.ListComp(elt=elt, generators=generators) | ast.GeneratorExp(elt=elt, generators=generators):
                return self.comprehension(elt, generators)
            case ast.DictComp(key=key, value=value, generators=generators):
                return f"new Map({self.comprehension(ast.Tuple([key, value], ast.Load()), generators)})"
            case ast.SetComp(elt=elt, generators=generators):
                return f"new Set({self.comprehension(elt, generators)})"
            case ast.Lambda(args=args, body=body):
                names = {p.arg for p in args.args}
                self.enter(names)
                text = f"({','.join(self.local(p.arg) for p in args.args)}) => {self.expr(body)}"
                self.scopes.pop()
                return f"({text})"
            case ast.Call():
                return self.call(node)
        raise self.refuse(node)

    def piece(self, node: ast.expr) -> str:
        """Of an f-string."""
        if isinstance(node, ast.Constant):
            return str(node.value).replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${").replace("\n", "\\n")
        if not isinstance(node, ast.FormattedValue):
            raise self.refuse(node)
        value = self.expr(node.value)
        if node.conversion == ord("r"):
            return f"${{$repr({value})}}"
        return f"${{$format({value},{self.expr(node.format_spec)})}}" if node.format_spec else f"${{$str({value})}}"

    def compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        a, b = self.expr(left), self.expr(right)
        if isinstance(op, ast.Is | ast.IsNot):
            equals = "==" if b == "null" else "==="
            return f"({a} {equals if isinstance(op, ast.Is) else '!' + equals[1:]} {b})"
        if isinstance(op, ast.NotEq | ast.NotIn):
            return f"!{'$eq' if isinstance(op, ast.NotEq) else '$in'}({a},{b})"
        return f"{COMPARED[type(op)]}({a},{b})"

    def element(self, node: ast.expr) -> str:
        return f"...$list({self.expr(node.value)})" if isinstance(node, ast.Starred) else self.expr(node)

    def comprehension(self, elt: ast.expr, generators: list[ast.comprehension]) -> str:
        first, *rest = generators
        iterated = self.expr(first.iter)  # outside the scope of its own names
        self.enter({node.id for node in ast.walk(first.target) if isinstance(node, ast.Name)})
        target = f"({self.target(first.target)})"
        kept = "".join(f".filter({target} => {self.test(test)})" for test in first.ifs)
        if rest:
            text = f"$list({iterated}){kept}.flatMap({target} => {self.comprehension(elt, rest)})"
        else:
            text = f"$list({iterated}){kept}.map({target} => {self.expr(elt)})"
        self.scopes.pop()
        return text

    def call(self, node: ast.Call) -> str:
        arguments = [self.element(argument) for argument in node.args]
        named = ", ".join(
            f"{k.arg}: {self.expr(k.value)}" if k.arg else f"...$own({self.expr(k.value)})" for k in node.keywords
        )
        if isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id in self.of.modules
        ):
            whole, method = node.func.value, node.func.attr
            owner = whole.id if isinstance(whole, ast.Name) else ""
            if f"{owner}_{method}" in self.runtime:  # dict.fromkeys, json.loads, re.compile
                return f"${owner}_{method}({','.join(arguments)})"
            if method not in self.methods:
                raise self.refuse(node, f"the method {method}")
            return f"$m.{method}({','.join([self.expr(whole), *arguments, *([f'{{ {named} }}'] if named else [])])})"
        function = self.expr(node.func)
        if not named:
            return f"{function}({','.join(arguments)})"
        if where := self.in_place(node):
            return f"{function}({','.join(arguments + where)})"
        if function.startswith("$") and "." not in function:  # of the runtime: it takes what is named as an object
            return f"{function}({','.join([*arguments, f'{{ {named} }}'])})"
        return f"$call({function}, [{','.join(arguments)}], {{ {named} }})"

    def in_place(self, node: ast.Call) -> list[str]:
        """What is given by name, at its place; nothing if that is known only when it runs."""
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        names = [] if any(name in scope for scope in self.scopes) else self.signatures.get(name, [])
        given = {k.arg: k.value for k in node.keywords}
        if not set(given) <= set(names) or any(isinstance(argument, ast.Starred) for argument in node.args):
            return []
        last = max(names.index(str(name)) for name in given)
        return [self.expr(given[n]) if n in given else "undefined" for n in names[len(node.args) : last + 1]]


def assigned(statement: ast.stmt) -> Iterator[str]:
    """The names that a function's statement assigns, those of functions inside it left out."""
    if isinstance(statement, ast.FunctionDef):
        yield statement.name
        return
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.comprehension):
            nodes.append(node.iter)
            continue
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        nodes.extend(ast.iter_child_nodes(node))
