"""No module that knows runs opens a file by itself: `runs/folder.py` does it, where links, pipes and sizes are checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[3] / "src" / "neurotest"
# What opens, makes, moves or removes files, by the last name of the call.
CALLS = {
    "open", "load", "loadtxt", "fromfile", "memmap", "safe_open", "load_file", "read_text", "read_bytes", "write_text",
    "write_bytes", "unlink", "rmdir", "rmtree", "mkdir", "makedirs", "rename", "replace", "glob", "rglob", "iterdir", "scandir",
    "listdir", "walk", "copy", "copyfile", "copytree", "move", "remove", "touch", "symlink_to", "write_json", "to_csv",
    "is_file", "exists", "atomic_write",
}  # fmt: skip
# Objects whose methods of these names touch no file of a run by path.
HARMLESS = {
    "Run", "RunFile", "json", "dataclasses", "registry", "re", "text", "torch", "tomllib", "target", "description",
}  # fmt: skip
# Modules that are the door themselves.
DOOR = {"runs/folder.py", "runs/handles.py", "runs/places.py", "runs/lock.py", "runs/schema.py", "runs/listing.py"}
# Where a path that the user named is opened, never one out of a run: (module, function) and why.
NAMED_BY_USERS = {
    ("semantics/descriptions.py", "to_csv"): "a table is written where its user says",
    ("semantics/descriptions.py", "read_rows"): "a table that the user names; those of a run are read by rows_of",
    ("campaign/faults.py", "export_faults"): "the place for a faults file, named by the user",
    ("semantics/describe/record.py", "read_rating"): "sheets that raters filled in, named by the user",
    ("select/suspects.py", "save"): "a result is written where its user says",
    ("select/selection.py", "save"): "a result is written where its user says",
    ("select/large.py", "save"): "a result is written where its user says",
    ("select/exchange.py", "export"): "the place for an export, named by the user",
    ("select/exchange.py", "_write_csv"): "the place for an export, named by the user",
    ("select/exchange.py", "_write_folder"): "the place for an export, named by the user",
    ("select/exchange.py", "_write_tasks"): "the place for an export, named by the user",
    ("target/class_names.py", "read_classes"): "a file or a run that the user names",
    ("cli/settings_file.py", "read_toml"): "neurotest.toml in the current folder",
    ("report/section.py", "write_report"): "--out, named by the user; RUN/report.html is a file of the run",
    ("report/rendering.py", "_source"): "templates of the package",
    ("report/section.py", "load"): "modules of the package",
    ("runs/store.py", "create"): "asks whether there is a run already",
    ("runs/store.py", "_remove_dead"): "asks whether there is a run already",
    ("runs/seal.py", "_read"): "the record in the cache, outside every run",
    ("runs/seal.py", "_write"): "the record in the cache, outside every run",
    ("runs/seal.py", "forget"): "the record in the cache, outside every run",
}


def knows_runs(tree: ast.Module) -> bool:
    """Whether the module imports something of `neurotest.runs`, at its top or in a function."""
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return any(module == "neurotest.runs" or module.startswith("neurotest.runs.") for module in modules)


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call that may open a file, with the function it stands in."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) else function
            if isinstance(child, ast.Call) and suspicious(child):
                yield inner, child
            yield from visit(child, inner)

    return visit(tree, "")


def suspicious(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in CALLS - AMBIGUOUS
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in CALLS:
        return False
    owner = call.func.value
    if call.func.attr in AMBIGUOUS and not is_os(owner):
        return False
    if isinstance(owner, ast.Call):  # run.file(NAME).open(), self.file(NAME).remove()
        return ast.unparse(owner.func).rpartition(".")[2] not in ("file", "beside", "_opened")
    if ast.unparse(call.func) == "Image.open":  # of bytes or of an open file
        return ast.unparse(call.args[0]) != "stream" and not ast.unparse(call.args[0]).startswith("io.BytesIO(")
    if isinstance(owner, ast.Name) and (owner.id in HARMLESS or owner.id in RUN_FILES):
        return False
    return not (isinstance(owner, ast.Attribute) and owner.attr in ("picture", "folder"))


AMBIGUOUS = {"replace", "load", "copy", "remove", "move", "walk", "exists"}  # of a text, a set, a tensor, ...: only those of os
RUN_FILES = {"file", "sheet", "shown", "stream", "archive"}  # names that modules give to a RunFile


def is_os(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Name) and owner.id in ("os", "shutil", "np", "numpy", "Path")


def modules() -> list[str]:
    names = sorted(str(file.relative_to(SRC)) for file in SRC.rglob("*.py"))
    return [name for name in names if name not in DOOR and knows_runs(ast.parse((SRC / name).read_text(encoding="utf-8")))]


def opened_by_hand(source: str) -> list[tuple[str, int, str]]:
    return [(function, call.lineno, ast.unparse(call)[:100]) for function, call in calls(ast.parse(source))]


@pytest.mark.parametrize("name", modules())
def test_no_module_opens_a_file_of_a_run_by_itself(name: str) -> None:
    found = opened_by_hand((SRC / name).read_text(encoding="utf-8"))
    left = [entry for entry in found if (name, entry[0]) not in NAMED_BY_USERS]
    assert left == [], f"{name}: open it as run.file(NAME), or add the function and the reason to NAMED_BY_USERS"


@pytest.mark.parametrize("name", [name for name in modules() if not name.startswith("runs/")])
def test_no_module_joins_the_path_of_a_run(name: str) -> None:
    """`run.path / NAME` is how it begins; a name inside a run is `run.file(NAME)`."""
    tree = ast.parse((SRC / name).read_text(encoding="utf-8"))
    joined = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and any(isinstance(part, ast.Attribute) and part.attr == "path" for part in ast.walk(node.left))
    ]
    assert joined == []


def test_every_exception_is_still_needed() -> None:
    by_hand = {
        (name, entry[0])
        for name in {name for name, _ in NAMED_BY_USERS}
        for entry in opened_by_hand((SRC / name).read_text(encoding="utf-8"))
    }
    assert NAMED_BY_USERS.keys() - by_hand == set()


@pytest.mark.parametrize(
    "line",
    [
        "open(run.path / 'x')", "np.load(path)", "Image.open(path)", "path.read_text()", "shutil.copyfile(a, b)",
        "os.replace(a, b)",
        "(run.path / 'x').unlink()", "shutil.rmtree(run.path)", "folder.glob('*')", "files.atomic_write(path)", "np.memmap(path)",
    ],
)  # fmt: skip
def test_such_a_line_would_be_noticed(line: str) -> None:
    assert len(opened_by_hand(f"def f():\n    {line}\n")) >= 1


@pytest.mark.parametrize("line", ["run.file('x').open()", "Run.open(p)", "dataclasses.replace(a, b=1)", "text.replace('a', 'b')"])
def test_such_a_line_is_fine(line: str) -> None:
    assert opened_by_hand(f"def f():\n    {line}\n") == []
