"""A snippet as text: its sections, the names it binds, what it needs, and a hash that tells when a record is stale."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard

from ledger.book import PUBLISHED, LedgerError, Problem
from ledger.units import unit_of

MARKER = re.compile(r"^\s*#\s*-+8<-+\s*\[\s*(?P<kind>start|end)\s*:\s*(?P<name>[a-z][a-z0-9_]*)\s*\]\s*$")
METADATA = re.compile(r"(?m)^# /// (?P<kind>script|ledger)$\s(?P<content>(?:^#(?:| .*)$\s)+?)^# ///$")
LIBRARY = "flops_bytes"  # the package beside snippets/ that they share
# Beside it: what pages work on, and what reads others' measurements, which is no part of a reader's installation
PACKAGES = (LIBRARY, "flops_bytes_data", "published")
SETTINGS = {"unhashed": list, "data": list}  # what [tool.ledger] may say, and as what
SLOW = "slow"  # the folder of those that take minutes
TIME_LIMIT_SECONDS = 120.0
SLOW_TIME_LIMIT_SECONDS = 600.0


@dataclass(frozen=True)
class Section:
    """A named region: the lines between its markers (first and last inclusive, counted from 1)."""

    name: str
    first_line: int
    last_line: int


@dataclass(frozen=True)
class Binding:
    """A top-level name: where it is first bound, how often, and whether inside a loop."""

    line: int
    times: int
    in_loop: bool


@dataclass(frozen=True)
class Snippet:
    """One script of `snippets/`, or a module of the library."""

    path: Path
    source: str

    @classmethod
    def read(cls, path: Path) -> Snippet:
        """The snippet at path. Raises LedgerError where no record could be made of it."""
        snippet = cls.parse(path)
        if problems := [*snippet.all_problems, *snippet._imports_to_mend()]:
            raise LedgerError(problems)
        _ = snippet.data
        return snippet

    @classmethod
    def parse(cls, path: Path) -> Snippet:
        """The script or module at path, whatever is wrong with it. Raises LedgerError if none can be read."""
        return _read(path)

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.source, filename=str(self.path))
        except SyntaxError as error:
            raise LedgerError([Problem(self.path, error.lineno or 0, f"not Python: {error.msg}")]) from None
        except (ValueError, RecursionError, MemoryError) as error:  # a null byte, or nested too deeply
            raise LedgerError([Problem(self.path, 0, f"not Python: {str(error) or 'nested too deeply'}")]) from None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What the inline script metadata (PEP 723) says, of a module the block `ledger`; empty if there is none."""
        match = METADATA.search(self.source)
        if not match:
            return {}
        toml = "".join(line.removeprefix("#").removeprefix(" ") for line in match["content"].splitlines(keepends=True))
        try:
            found = tomllib.loads(toml)
            return found if match["kind"] == "script" else {"tool": {"ledger": found}}
        except tomllib.TOMLDecodeError as error:
            line = self.source[: match.start()].count("\n") + 1
            raise LedgerError([Problem(self.path, line, f"the script metadata is not TOML: {error}")]) from None

    @property
    def settings(self) -> dict[str, Any]:
        """[tool.ledger]: `unhashed`, definitions that records do not depend on; `data`, files beside it, or published.

        A module of the library, which is no script, has the same in a block of its own: `# /// ledger`.
        """
        settings: dict[str, Any] = self.metadata.get("tool", {}).get("ledger", {})
        return settings

    @property
    def dependencies(self) -> list[str]:
        """The packages that the metadata names, as pip takes them."""
        return [str(need) for need in self.metadata.get("dependencies", [])]

    @property
    def too_old(self) -> str:
        """The first package that the metadata wants newer than it is here, as it says so; empty if there is none."""
        for need in self.dependencies:
            package, _, least = need.replace(" ", "").partition(">=")
            with suppress(PackageNotFoundError):  # whoever imports it will be told
                if least and _numbers(version(package)) < _numbers(least):
                    return need
        return ""

    @property
    def imports(self) -> set[str]:
        """The modules that it imports, each by its first name."""
        return {module.partition(".")[0] for module in self._imports}

    @property
    def is_slow(self) -> bool:
        """Whether it is run on purpose alone, and may take longer: it lies in slow/."""
        return self.path.parent.name == SLOW

    @property
    def time_limit(self) -> float:
        """Seconds after which a run is ended."""
        return SLOW_TIME_LIMIT_SECONDS if self.is_slow else TIME_LIMIT_SECONDS

    def _settings_problems(self) -> Iterator[Problem]:
        for key, value in self.settings.items():
            if key not in SETTINGS:
                message = f"[tool.ledger] knows no {key!r}; it knows {', '.join(SETTINGS)}"
            elif not isinstance(value, SETTINGS[key]):
                message = f"[tool.ledger]: {key!r} is a {type(value).__name__}, not a {SETTINGS[key].__name__}"
            elif missing := [name for name in self._data if key == "data" and not self._files(name)]:
                where = f"in the book's {PUBLISHED}" if "/" in missing[0] else "beside it"
                message = f"[tool.ledger]: there is no file {missing[0]!r} {where}"
            else:
                continue
            written = re.search(rf"^#\s*[\"']?{re.escape(key)}[\"']?\s*=", self.source, re.M)
            yield Problem(self.path, self.source.count("\n", 0, written.start()) + 1 if written else 0, message)

    @property
    def _data(self) -> list[str]:
        return [str(name) for name in self.settings.get("data", [])]

    def _files(self, name: str) -> list[Path]:
        """The file of that name beside it; for a path, a pattern too, those of published readings that match it."""
        if Path(name).name == name:
            return [path] if (path := self.path.with_name(name)).is_file() else []
        root, folder = find_root(self.path), PurePosixPath(name).parent
        return sorted(root.glob(name)) if root and folder.is_relative_to(PUBLISHED) else []

    @property
    def data(self) -> list[Path]:
        """The files that it or a module that it reaches says it reads: [tool.ledger] data.

        Each lies beside that one, or is a reading that others published.
        """
        return self._data_of(self._reached())

    @property
    def own_data(self) -> list[Path]:
        """Those that it names itself."""
        if problems := list(self._settings_problems()):
            raise LedgerError(problems)
        return [path for name in self._data for path in self._files(name)]

    def _data_of(self, modules: Iterable[Snippet]) -> list[Path]:
        return sorted(path for script in (self, *modules) for path in script.own_data)

    # Sections

    @cached_property
    def sections(self) -> dict[str, Section]:
        return {section.name: section for section in self._sections if isinstance(section, Section)}

    @cached_property
    def _sections(self) -> list[Section | Problem]:
        """Sections in order of their starts, and what is wrong with the markers."""
        found: list[Section | Problem] = []
        open_at: dict[str, int] = {}
        for number, line in enumerate(self.source.splitlines(), start=1):
            if "8<" not in line or not line.lstrip().startswith("#"):
                continue
            match = MARKER.match(line)
            if not match:
                found.append(
                    Problem(self.path, number, f"malformed marker; write # --8<-- [start:name]: {line.strip()}")
                )
                continue
            name, taken = match["name"], {s.name for s in found if isinstance(s, Section)}
            if match["kind"] == "end":
                if name in open_at:
                    found.append(Section(name, open_at.pop(name) + 1, number - 1))
                else:
                    found.append(Problem(self.path, number, f"section {name!r} ends here but was not started"))
            elif name in open_at or name in taken:
                found.append(Problem(self.path, number, f"section {name!r} is defined twice"))
            else:
                open_at[name] = number
        found += [Problem(self.path, n, f"section {name!r} is never closed") for name, n in open_at.items()]
        return found

    def section_at(self, line: int) -> str | None:
        """The innermost section that holds a line."""
        holding = [s for s in self.sections.values() if s.first_line <= line <= s.last_line]
        return min(holding, key=lambda s: s.last_line - s.first_line).name if holding else None

    # Names

    @cached_property
    def bindings(self) -> dict[str, Binding]:
        """Every top-level name that does not begin with an underscore."""
        found: dict[str, Binding] = {}
        for name, line, in_loop in (bound for _, names in self._bound for bound in names):
            before = found.get(name, Binding(line, 0, False))
            found[name] = Binding(before.line, before.times + 1, before.in_loop or in_loop)
        return {name: binding for name, binding in found.items() if not name.startswith("_")}

    def why_not_quotable(self, name: str) -> Problem | None:
        """What is wrong with quoting a name on a page; None if nothing is."""
        binding = self.bindings.get(name)
        if binding is None:
            return Problem(self.path, 0, f"binds no top-level name {name!r}")
        if binding.in_loop:
            return Problem(self.path, binding.line, f"{name!r} is bound in a loop; bind a value once, outside loops")
        if binding.times > 1:
            return Problem(self.path, binding.line, f"{name!r} is bound {binding.times} times; bind a value once")
        return None

    @cached_property
    def all_problems(self) -> list[Problem]:
        """All that keeps this snippet from being run for a record."""
        return list(self._problems())

    def _problems(self) -> Iterator[Problem]:
        try:
            _ = self.tree, self.metadata
        except LedgerError as error:
            yield from error.problems
            return
        yield from self._settings_problems()
        yield from (found for found in self._sections if isinstance(found, Problem))
        for name in self.bindings:
            if unit_of(name) and (problem := self.why_not_quotable(name)):
                yield problem

    # The hash

    @property
    def hash(self) -> str:
        """SHA-256 of what a record depends on: this source, the definitions of the library that it reaches, and the
        data that they read.

        Comments (but for section markers, which decide where output goes), docstrings (but in a module that mentions
        `__doc__`), trailing space and blank lines do not count. Text is hashed, not the syntax tree, whose dump differs
        between Python versions.

        Where a definition lies was not measured: no path of the library counts, nor which of its modules holds what.
        In place of the statements that import from the library stands each name that they bind, with what it names.
        """
        reached = self._reached()
        digests = [f"# {path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in self._data_of(reached)]
        parts = [self._told(self.tree)]
        parts += sorted({text for module, names in reached.items() for text in module.definitions(names)})
        return hashlib.sha256("\n".join([*parts, *sorted(digests)]).encode()).hexdigest()

    def _told(self, node: ast.AST) -> str:
        """The code of a statement, or of all, as it is hashed."""
        own, imports = self._parted(node)
        return "\n".join([*sorted(self._named(imports)), own])

    def _parted(self, node: ast.AST) -> tuple[str, list[ast.Import | ast.ImportFrom]]:
        """Its code but for docstrings and for what it imports from the library, and these imports."""
        if node not in self._parts:
            first_line = _first_line(node) if isinstance(node, ast.stmt) else 1
            lines = self._code[first_line - 1 : getattr(node, "end_lineno", None)]
            inside = list(ast.walk(node))
            imports = list(filter(_of_library, inside))
            docstrings = [] if "__doc__" in self.source else filter(None, map(_docstring, inside))
            for statement in (*imports, *docstrings):
                for row in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                    lines[row - first_line] = ""
            self._parts[node] = _filled(lines), imports
        return self._parts[node]

    @cached_property
    def _parts(self) -> dict[ast.AST, tuple[str, list[ast.Import | ast.ImportFrom]]]:
        """These, by statement; filled as they are asked for."""
        return {}

    def _named(self, statements: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[str]:
        """A line for each name that is bound to something of the library, or looked up in a module of it."""
        for statement in statements:
            for alias in statement.names:
                local, package = alias.asname or alias.name, getattr(statement, "module", None)
                whole = f"{package}.{alias.name}" if package else alias.name
                if package and (digest := self._digest(package, alias.name)):
                    yield f"# {local} {digest}"
                elif _module(self.path, whole):
                    yield f"# {local}"
                    yield from (f"# {local}.{name} {self._digest(whole, name)}" for name in self._imports[whole])
                else:
                    yield f"# {local} {alias.name}"  # none that there is, or one that is not hashed

    def _digest(self, place: str, name: str) -> str:
        """Of the definition of a name in a module, or where that one has it from; empty if it is not hashed."""
        module = _module(self.path, place)
        passed_on: set[tuple[str, str]] = set()
        while module and name not in module._owners:
            place, name = module._imported.get(name, ("", ""))
            if (place, name) in passed_on:  # modules that import it from each other
                return ""
            passed_on.add((place, name))
            module = _module(self.path, place)
        if module is None or name in module.settings.get("unhashed", []):
            return ""
        text = "\n".join(module._parted(node)[0] for node in module._owners[name])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def library(self) -> list[Snippet]:
        """The modules of the library without which it cannot be imported, sorted by path: not those for types alone."""
        found: dict[str, Snippet | None] = {}  # by dotted name: each is looked for once
        todo = [self]
        while todo:
            for name in todo.pop()._imports_to_run:
                for part in _with_packages(name):
                    if part not in found:
                        found[part] = module = _module(self.path, part)
                        todo += [module] if module else []
        return sorted({module for module in found.values() if module}, key=lambda module: module.path)

    def _reached(self) -> dict[Snippet, set[str]]:
        """By module of the library, as it is now, the names of it that this script uses, and that those use.

        Raises LedgerError where a module cannot be read.
        """
        reached: dict[Path, tuple[Snippet, set[str]]] = {}
        modules: dict[str, Snippet | None] = {}  # each is looked for once, not for every name that is used of it
        todo = [(module, name) for module, names in self._imports.items() for name in names]
        while todo:
            wanted, name = todo.pop()
            if wanted not in modules:
                modules[wanted] = module = _module(self.path, wanted)
                if module and (problems := list(module._imports_to_mend())):
                    raise LedgerError(problems)
            if (module := modules[wanted]) is None:
                continue
            names = reached.setdefault(module.path, (module, set()))[1]
            if name not in names:
                names.add(name)
                todo += module._uses(name)
        return dict(reached.values())

    def _uses(self, name: str) -> set[tuple[str, str]]:
        """(module, name) of all that the definition of a top-level name uses, or of what the name stands for."""
        if name in self.settings.get("unhashed", []):
            return set()
        if name not in self._owners:
            return {self._imported[name]} if name in self._imported else set()
        return set().union(*map(self._used_by, self._owners[name]))

    def _used_by(self, node: ast.stmt) -> set[tuple[str, str]]:
        """(module, name) of what a top-level statement uses, here and in the library."""
        if node not in self._used:
            nodes = list(ast.walk(node))
            plain = {used.id for used in nodes if isinstance(used, ast.Name)}
            found = {(self.module, name) for name in plain if name in self._owners}
            found |= {self._imported[name] for name in plain if name in self._imported}
            for used in nodes:
                if isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name):
                    found |= {(module, used.attr) for module in self._wholes.get(used.value.id, ())}
            self._used[node] = found
        return self._used[node]

    @cached_property
    def module(self) -> str:
        """Its name as the library's modules import it."""
        root = find_root(self.path)
        parts = self.path.relative_to(root).with_suffix("").parts if root and self.path.is_relative_to(root) else ()
        return ".".join(parts).removesuffix(".__init__")

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        return _imports(self._nodes)

    @cached_property
    def _imports_to_run(self) -> dict[str, set[str]]:
        for_types = {
            node
            for block in self._nodes
            if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
            for statement in block.body
            for node in ast.walk(statement)
        }
        return _imports(node for node in self._nodes if node not in for_types)

    @cached_property
    def _import_statements(self) -> list[ast.Import | ast.ImportFrom]:
        return [node for node in self._nodes if isinstance(node, ast.Import | ast.ImportFrom)]

    @cached_property
    def _imported(self) -> dict[str, tuple[str, str]]:
        """The module and the name there of each name that is imported from a module."""
        froms = [node for node in self._import_statements if isinstance(node, ast.ImportFrom) and node.module]
        return {alias.asname or alias.name: (node.module or "", alias.name) for node in froms for alias in node.names}

    @cached_property
    def _wholes(self) -> dict[str, list[str]]:
        """The modules that a name may be: `import m as name`, `from package import name`."""
        found = {name: [f"{module}.{of}"] for name, (module, of) in self._imported.items()}
        for node in self._import_statements:
            for alias in node.names if isinstance(node, ast.Import) else []:
                found.setdefault(alias.asname or alias.name, []).append(alias.name)
        return found

    def _imports_to_mend(self) -> Iterator[Problem]:
        """Imports of another snippet, which whoever copies this one lacks, and those that the hash cannot follow."""
        others = self._other_snippets()
        for node in self._import_statements:
            whole = isinstance(node, ast.Import)
            for name in [alias.name for alias in node.names] if whole else [getattr(node, "module", "") or ""]:
                if name.partition(".")[0] in others:
                    message = f"imports the snippet {name!r}; what several snippets need belongs in {LIBRARY}/"
                    yield Problem(self.path, node.lineno, message)
            if whole and any(alias.name.startswith(f"{LIBRARY}.") and not alias.asname for alias in node.names):
                message = f"write `from {LIBRARY} import …`, which the hash follows"
                yield Problem(self.path, node.lineno, message)
            elif getattr(node, "level", 0):
                message = f"write `from {LIBRARY}.… import …`: no hash follows a relative import"
                yield Problem(self.path, node.lineno, message)

    def _other_snippets(self) -> set[str]:
        """The names under which the other snippets could be imported: their own, and their folders'."""
        folder = next((folder for folder in self.path.parents[:2] if folder.name == "snippets"), None)
        paths = [*folder.glob("[!.]*.py"), *folder.glob("[!._]*/[!.]*.py")] if folder else []
        folders = {path.parent.name for path in paths if path.parent != folder}
        return ({path.stem for path in paths} | folders) - {self.name}

    @cached_property
    def _bound(self) -> list[tuple[ast.stmt, list[tuple[str, int, bool]]]]:
        """Each top-level statement and the names that it binds."""
        has_globals = bool(re.search(r"(^|[:;])\s*global\s", self.source, re.M))
        return [(node, list(_bound_names([node], False, has_globals))) for node in self.tree.body]

    @cached_property
    def _owners(self) -> dict[str, list[ast.stmt]]:
        """The top-level statements that bind a name, by name."""
        found: dict[str, list[ast.stmt]] = {}
        for node, names in self._bound:
            for name in {name for name, _, _ in names}:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def _used(self) -> dict[ast.stmt, set[tuple[str, str]]]:
        """What a top-level statement uses, by statement; filled as they are asked for."""
        return {}

    def definitions(self, wanted: Iterable[str]) -> set[str]:
        """The code of the top-level definitions of these names, each as it is hashed."""
        unhashed = self.settings.get("unhashed", [])
        nodes = [self._owners[name] for name in wanted if name in self._owners and name not in unhashed]
        return {"\n".join(map(self._told, binding)) for binding in nodes}

    @cached_property
    def _code(self) -> list[str]:
        """Its lines without comments (section markers stay)."""
        lines = self.source.splitlines()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type == tokenize.COMMENT and not MARKER.match(token.string):
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
        return lines


def _read(path: Path) -> Snippet:
    """The script at path as it is now. Raises LedgerError if none can be read."""
    try:
        if not path.is_file():
            path.stat()
            raise LedgerError([Problem(path, 0, "not a file; a snippet is one, so give this another name")])
        return _parse(path, path.read_bytes())
    except FileNotFoundError:
        raise LedgerError([Problem(path, 0, "there is no such snippet")]) from None
    except OSError as error:
        raise LedgerError([Problem(path, 0, f"cannot be read: {error.strerror}")]) from None


@lru_cache(maxsize=256)
def _parse(path: Path, source: bytes) -> Snippet:
    """A script, parsed once for all that look at it or import it; by its bytes, since an edit may keep its time."""
    try:
        return Snippet(path, io.TextIOWrapper(io.BytesIO(source), encoding="utf-8").read())  # any line ends become \n
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise LedgerError([Problem(path, line, "not UTF-8")]) from None


def find_root(path: Path) -> Path | None:
    """The nearest folder above a file that holds the library; None if there is none."""
    return next((folder for folder in path.parents if (folder / LIBRARY / "__init__.py").is_file()), None)


def _module(path: Path, name: str) -> Snippet | None:
    """The library's module of that dotted name, as it is now, for a file at path; None if it has none."""
    root = find_root(path) if _is_of_library(name) else None
    if root is None:
        return None
    place = root.joinpath(*name.split("."))
    files = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    file = next((file for file in files if file.is_file()), None)
    return _read(file) if file else None


def _docstring(node: ast.AST) -> ast.stmt | None:
    """The statement that is one, of what may have one."""
    match node:
        case (
            ast.Module(body=[ast.Expr(ast.Constant(str())) as first, *_])
            | ast.ClassDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
            | ast.FunctionDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
            | ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
        ):
            return first
    return None


def _of_library(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    """Whether a statement imports from the library, and nothing else."""
    match node:
        case ast.ImportFrom(module=str(module), level=0):
            return _is_of_library(module)
        case ast.Import(names=aliases):
            return all(_is_of_library(alias.name) for alias in aliases)
    return False


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _with_packages(name: str) -> Iterator[str]:
    """A module's dotted name, and those of the packages that it lies in, which are imported before it."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _numbers(text: str) -> list[int]:
    """What a version begins with: [2, 11, 0] of 2.11.0+cu130."""
    return [int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part]


def _first_line(node: ast.stmt) -> int:
    """The line a statement begins on, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _bound_names(statements: list[ast.stmt], in_loop: bool, has_globals: bool) -> Iterator[tuple[str, int, bool]]:
    """(name, line, in a loop?) for each time that statements bind a name in their own scope; imports are no values.

    Functions are searched for `global` only if has_globals: in a file without any it would be half of all work.
    """
    for statement in statements:
        loops = in_loop or isinstance(statement, ast.For | ast.AsyncFor | ast.While)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, statement.lineno, in_loop
            for inner in ast.walk(statement) if has_globals else ():
                if isinstance(inner, ast.Global):
                    yield from ((name, inner.lineno, loops) for name in inner.names)
            continue
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                continue
            nodes = list(ast.walk(child))
            comprehensions = (node for node in nodes if isinstance(node, ast.comprehension))
            inner_names = {name for comprehension in comprehensions for name in ast.walk(comprehension.target)}
            for node in nodes:
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in inner_names:
                    yield node.id, node.lineno, loops
        for block in ("body", "orelse", "finalbody"):
            yield from _bound_names(getattr(statement, block, []), loops, has_globals)
        for handler in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from _bound_names(handler.body, loops, has_globals)


def _imports(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """By imported module, the names that are used of it: `from m import a`, `import m; m.a`, `from p import m; m.a`."""
    found: dict[str, set[str]] = {}
    modules: list[tuple[str, str]] = []  # a module, and the name that it has here
    attributes: dict[str, set[str]] = {}  # by the name that they are looked up on
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
            modules += [(f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [(alias.name, alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, set()).add(node.attr)
    for module, name in modules:
        found.setdefault(module, set()).update(attributes.get(name, set()))
    return found


def _filled(lines: list[str]) -> str:
    """Lines without trailing space and without those that are blank."""
    return "\n".join(line.rstrip() for line in lines if line.strip())
