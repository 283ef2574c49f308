"""Mutation testing: change one thing in the source at a time and see whether the tests notice.

python scripts/mutate_source.py src/neurotest/stats --tests tests/unit/stats
python scripts/mutate_source.py src/neurotest/runs --tests tests/unit/runs --sample 300 --seed 1 --functions
python scripts/mutate_source.py src/neurotest/rng.py --tests tests/unit/test_rng.py --only 18,25

No file is changed. The tests are collected once; every mutant gets a process forked from there, in which the code of one
function is replaced and only the tests that call it are run, the quickest first. What lies outside functions (constants,
defaults, fields) is imported changed instead, in a process forked from before the import, and tested with the test files that
reach the module. Prints every mutant that survives (FILE:LINE, what was changed, the source) and the share that was killed; one
that runs into the time limit counts as killed. Some survivors are equivalent: nobody could see the difference.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import importlib.machinery
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Imported before anything forks: a test that imports one of them late would do it again for every mutant.
SLOW = (
    "numpy", "scipy.special", "scipy.stats", "hypothesis", "pytest", "PIL.Image", "safetensors.numpy", "torch", "sklearn",
    "kornia",
)  # fmt: skip

Change = Callable[[], object]
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
# Statements that can be left out without leaving a name undefined.
REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """The `variant`-th change of the `node`-th node of a file."""

    file: Path
    line: int
    node: int
    variant: int
    what: str

    def tree(self) -> ast.Module:
        """The file with the change in it."""
        tree = ast.parse(self.file.read_text())
        nodes = list(nodes_of(tree))
        changes(nodes[self.node])[self.variant][1]()
        return ast.fix_missing_locations(tree)

    def function(self) -> str | None:
        """The outermost function around the change, by its name with its class; None: it is outside of any, or a default."""
        tree = ast.parse(self.file.read_text())
        changed = list(nodes_of(tree))[self.node]
        classes = [(f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
        for prefix, body in [("", tree.body), *classes]:
            for item in body:
                within = [item, *(node for part in getattr(item, "body", []) for node in ast.walk(part))]
                if isinstance(item, ast.FunctionDef) and any(changed is node for node in within):
                    return f"{prefix}{item.name}"
        return None

    def __str__(self) -> str:
        source = self.file.read_text().splitlines()[self.line - 1].strip()
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.what}: {source}"


def nodes_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes worth changing: no annotations, decorators, docstrings or messages of errors."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Import, ast.ImportFrom)):
                continue
            docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if (
                docstring
                or isinstance(child, ast.Raise)
                or (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING")
            ):
                continue
            yield from nodes_of(child)


def changes(node: ast.AST) -> list[tuple[str, Change]]:
    """Everything that can be changed at this node itself, in place."""
    kinds = (_operators, _conditions, _constants, _calls, _bodies)
    return [change for kind in kinds for change in kind(node)]


def _operators(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for new in COMPARISONS[type(op)]:
                yield f"{type(op).__name__} -> {new.__name__}", partial(node.ops.__setitem__, i, new())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        other = ARITHMETIC[type(node.op)]
        yield f"{type(node.op).__name__} -> {other.__name__}", lambda: setattr(node, "op", other())
    elif isinstance(node, ast.BoolOp):
        swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"-> {swapped.__name__}", lambda: setattr(node, "op", swapped())
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield "Not removed", lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        else:
            yield "sign removed", lambda: setattr(node, "op", ast.UAdd())


def _conditions(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        test = node.test
        yield "condition negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
    elif isinstance(node, ast.comprehension):
        for i in range(len(node.ifs)):
            yield "filter removed", partial(node.ifs.pop, i)


def _constants(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield f"{value} -> {not value}", lambda: setattr(node, "value", not value)
    elif isinstance(value, (int, float)):
        yield f"{value} -> {value + 1}", lambda: setattr(node, "value", value + 1)
        if value:
            half = value // 2 if isinstance(value, int) else value / 2
            yield f"{value} -> {half}", lambda: setattr(node, "value", half)
    elif isinstance(value, str) and value:
        yield f"{value!r} changed", lambda: setattr(node, "value", f"X{value}")


def _calls(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in NAMES:
        name = node.func
        yield f"{name.id} -> {NAMES[name.id]}", lambda: setattr(name, "id", NAMES[name.id])
    elif isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        method = node.func
        yield f"{method.attr} -> {NAMES[method.attr]}", lambda: setattr(method, "attr", NAMES[method.attr])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield f"{keyword.arg}= left out", partial(node.keywords.pop, i)


def _bodies(node: ast.AST) -> Iterator[tuple[str, Change]]:
    for name in ("body", "orelse", "finalbody"):
        body: Any = getattr(node, name, [])
        if not isinstance(body, list):  # of a conditional expression or a lambda
            continue
        for i, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Constant, ast.Yield, ast.YieldFrom)):
                continue
            attribute = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], (ast.Name, ast.Tuple))
            bare = isinstance(statement, ast.Return) and statement.value is None
            where = f"line {statement.lineno}"
            if isinstance(statement, REMOVABLE) or attribute or bare:
                yield f"{where} removed: {ast.unparse(statement)[:60]}", partial(body.__setitem__, i, ast.Pass())
            elif isinstance(statement, ast.Break):
                yield f"{where}: break -> continue", partial(body.__setitem__, i, ast.Continue())
            elif isinstance(statement, ast.Continue):
                yield f"{where}: continue -> break", partial(body.__setitem__, i, ast.Break())


def mutants_of(file: Path) -> Iterator[Mutant]:
    for number, node in enumerate(nodes_of(ast.parse(file.read_text()))):
        for variant, (what, _) in enumerate(changes(node)):
            placed = node.target if isinstance(node, ast.comprehension) else node
            yield Mutant(file, getattr(placed, "lineno", 1), number, variant, what)


OUTPUT, NULL = os.dup(1), os.open(os.devnull, os.O_RDWR)  # the streams of a child are redirected
Place = tuple[str, str]  # file, qualified name of a function


@dataclass(frozen=True)
class Calls:
    """What the tests do without any change: which of them call which function, and how long each takes."""

    tests: dict[Place, list[int]]
    seconds: list[float]
    files: list[str]  # of the tests

    def of(self, mutant: Mutant, name: str) -> list[int]:
        return sorted(self.tests.get((str(mutant.file), name), []), key=self.seconds.__getitem__)

    def reaching(self, mutant: Mutant) -> list[str]:
        """Test files that call anything of the changed module, the quickest first."""
        numbers = {n for (file, _), tests in self.tests.items() if file == str(mutant.file) for n in tests}
        names = sorted({self.files[n] for n in numbers})
        return sorted(names, key=lambda name: sum(t for t, f in zip(self.seconds, self.files, strict=True) if f == name))


class Finder(importlib.machinery.PathFinder):
    """Imports one module from a changed tree, everything else as usual."""

    def __init__(self, mutant: Mutant) -> None:
        self.file, self.code = str(mutant.file), compile(mutant.tree(), str(mutant.file), "exec")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # type: ignore[override]
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin != self.file:
            return None
        code = self.code

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> types.CodeType:
                return code

        spec.loader = Loader(name, self.file)
        return spec


def replace_code(mutant: Mutant, name: str) -> None:
    """Give every function object of that name the changed code."""
    todo, code = [compile(mutant.tree(), str(mutant.file), "exec")], None
    while todo and code is None:
        inner = [c for c in todo.pop().co_consts if isinstance(c, types.CodeType)]
        code = next((c for c in inner if c.co_qualname == name), None)
        todo += inner
    assert code is not None, name
    place = (code.co_filename, code.co_qualname, code.co_firstlineno)
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType):
            old = thing.__code__
            if (old.co_filename, old.co_qualname, old.co_firstlineno) == place:
                thing.__code__ = code


def forked(work: Callable[[], bool], limit: float) -> bool:
    """What `work` gives in a process of its own; False if it takes too long or dies."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        for stream in (0, 1, 2):
            os.dup2(NULL, stream)
        good = False
        with contextlib.suppress(BaseException):
            good = work()
        os._exit(0 if good else 1)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


class Plugin:
    """Takes over after pytest has collected: first all tests unchanged, then the mutants inside functions, one by one."""

    def __init__(self, mutants: list[tuple[int, Mutant]], files: list[Path], scratch: Path) -> None:
        self.mutants, self.files, self.scratch = mutants, {str(file.resolve()) for file in files}, scratch

    def pytest_runtestloop(self, session: Any) -> bool:
        if not forked(lambda: self.measure(session), 3600):
            return True
        calls: Calls = pickle.loads((self.scratch / "calls").read_bytes())
        for number, mutant in self.mutants:
            name = mutant.function()
            if name is None:
                continue
            tests = calls.of(mutant, name)

            def work(mutant: Mutant = mutant, name: str = name, tests: list[int] = tests) -> bool:
                replace_code(mutant, name)
                return self.run(session, tests, calls.seconds)

            if not tests or forked(work, 1e9):
                report(number, mutant, "" if tests else " (no test calls it)", self.scratch)
        return True

    def measure(self, session: Any) -> bool:
        tests: dict[Place, list[int]] = {}
        seconds, now = [0.0] * len(session.items), 0

        def profile(frame: types.FrameType, event: str, argument: Any) -> None:
            if event == "call" and frame.f_code.co_filename in self.files:
                name = frame.f_code.co_qualname.split(".<locals>")[0]
                numbers = tests.setdefault((frame.f_code.co_filename, name), [])
                if not numbers or numbers[-1] != now:
                    numbers.append(now)

        threading.setprofile(profile)
        for number in range(len(session.items)):
            now, began = number, time.perf_counter()
            sys.setprofile(profile)
            passed = self.run(session, [number])
            sys.setprofile(None)
            seconds[number] = time.perf_counter() - began
            if not passed:
                return False
        calls = Calls(tests, seconds, [str(item.path) for item in session.items])
        (self.scratch / "calls").write_bytes(pickle.dumps(calls))
        return True

    def run(self, session: Any, numbers: list[int], seconds: list[float] | None = None) -> bool:
        """Whether these tests pass, each within a multiple of its usual seconds: the alarm ends the process."""
        for number in numbers:
            item = session.items[number]
            if seconds is not None:
                signal.alarm(20 + int(10 * seconds[number]))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.testsfailed:
                return False
        return True


def report(number: int, mutant: Mutant, why: str, scratch: Path) -> None:
    line = f"[{number}] {mutant}{why}\n"
    os.write(OUTPUT, line.encode())
    with open(scratch / "survivors", "a") as out:
        out.write(line)


def run_tests(arguments: list[str], scratch: Path, plugin: Plugin | None = None) -> bool:
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={scratch / 'tests'}"]
    return pytest.main([*options, *arguments], plugins=[plugin] if plugin else []) == 0


def examine(mutants: list[tuple[int, Mutant]], files: list[Path], tests: list[str], scratch: Path) -> None:
    """Report every survivor."""
    plugin = Plugin(mutants, files, scratch)
    forked(lambda: run_tests(tests, scratch, plugin), 1e9)
    if not (scratch / "calls").exists():
        raise SystemExit("the tests fail without any change: nothing can be said.")
    calls: Calls = pickle.loads((scratch / "calls").read_bytes())
    for number, mutant in mutants:
        if mutant.function() is not None:
            continue
        reaching = calls.reaching(mutant)

        def work(mutant: Mutant = mutant, reaching: list[str] = reaching) -> bool:
            sys.meta_path.insert(0, Finder(mutant))
            return run_tests(reaching, scratch)

        if not reaching or forked(work, 60 + 20 * sum(calls.seconds)):
            report(number, mutant, "", scratch)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="+", type=Path, help="modules or packages to change")
    parser.add_argument("--tests", nargs="+", required=True, help="tests that should notice")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn at random (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--functions", action="store_true", help="leave out what lies outside functions (slower to test)")
    parser.add_argument("--only", default="", help="mutants with these numbers, joined by commas")
    options = parser.parse_args()
    os.chdir(ROOT)
    files = [file for path in options.source for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    mutants = list(enumerate(mutant for file in files for mutant in mutants_of(file.resolve())))
    total = len(mutants)
    if options.only:
        mutants = [mutants[int(number)] for number in options.only.split(",")]
    elif options.sample:
        mutants = sorted(random.Random(options.seed).sample(mutants, min(options.sample, total)), key=lambda pair: pair[0])
    if options.functions:
        mutants = [(number, mutant) for number, mutant in mutants if mutant.function() is not None]
    for name in SLOW:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        examine(mutants, files, options.tests, Path(folder))
        survivors = Path(folder, "survivors")
        killed = len(mutants) - (len(survivors.read_text().splitlines()) if survivors.exists() else 0)
    print(f"{killed} of {len(mutants)} mutants killed ({killed / max(1, len(mutants)):.1%}; {total} are possible)")


if __name__ == "__main__":
    main()
