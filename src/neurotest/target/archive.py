"""Opening a `.pt2` somebody sent, without running anything that is in it.

`torch.export.load` unpickles, evaluates size expressions, looks operators up by dotted name and turns names into Python
source: a tampered archive has four ways to run code. So the archive is read here first, by an allow-list, and torch is
given a new archive made only of what was checked: raw tensors and a graph of plain operators.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from neurotest.errors import BadInput

MOST_BYTES = 8 << 30
GRAPH = "models/model.json"
CONFIGS = {"data/weights/": "model_weights_config.json", "data/constants/": "model_constants_config.json"}
SAMPLES = "data/sample_inputs/model.pt"
PLAIN = ("archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id", ".format_version")

_OPERATOR = re.compile(r"torch\.ops\.(?:aten|prims)\.(\w+)\.(\w+)")
_OTHER = re.compile(
    r"_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|torch\.sym_(int|float|max|min|sum|sqrt|not|ite)|math\.(ceil|floor|trunc)"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PATH = re.compile(r"[\w.@]*", re.ASCII)
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_SYNTAX = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Compare, ast.cmpop, ast.Load, ast.keyword)
_WORDS = {"positive", "nonnegative", "negative", "integer", "real", "zero", "nonzero"}
_SYMPY = {
    "Symbol", "Integer", "Float", "Rational", "Mul", "Add", "Pow", "Min", "Max", "Mod", "Eq", "Equality", "Ne", "Unequality",
    "Lt", "Le", "Gt", "Ge", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "And", "Or", "Not", "FloorDiv",
    "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "TruncToInt",
    "PowByNatural", "FloatPow", "ModularIndexing", "Where", "Piecewise", "Abs", "true", "false",
}  # fmt: skip


class Refused(Exception):
    """What in the archive could run code."""


def checked(path: Path) -> io.BytesIO:
    """A new archive with the checked content of `path`, ready for `torch.export.load`."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
        if GRAPH not in members or members.get("archive_format", b"").strip() != b"pt2":
            raise ValueError(f"{path.name} has no {GRAPH}")
        for folder, config in CONFIGS.items():
            _check_payloads(members, folder, config)
        _check_pickle(members.get(SAMPLES, b""))
        members[GRAPH] = _clean_graph(members[GRAPH])
    except Refused as error:
        raise BadInput(
            f"pt2:{path} is refused because {error}, which could run code. If you made this file yourself or trust whoever did, "
            "pass --trust-pickle."
        ) from error
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"pt2:{path} cannot be read ({error}): damaged, or no archive of torch.export.save.") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"pt2:{path} has an unknown layout ({type(error).__name__}: {error}): export it again.") from error
    return _packed(members)


def _members(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Content by name below the archive's one root folder."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename.partition("/")[2] or info.filename for info in infos]
    if len(set(names)) != len(names):
        raise Refused("it holds two members of one name")
    if sum(info.file_size for info in infos) > MOST_BYTES or any(i.file_size > 1032 * i.compress_size + 64 for i in infos):
        raise ValueError("it unpacks to more than can be right")
    if any(name.startswith(("data/aotinductor/", "data/executorch/", "data/mtia")) for name in names):
        raise Refused("it holds compiled code")
    legacy = {"serialized_exported_program.json", "data/weights/model.pt", "data/constants/model.pt"}
    if legacy.intersection(names):
        raise Refused("it has the old layout with pickled weights")
    wanted = {*PLAIN, GRAPH, SAMPLES}  # by their exact names: torch takes whatever begins with models/ for a graph
    kept = [(n, i) for n, i in zip(names, infos, strict=True) if n in wanted or n.startswith(tuple(CONFIGS))]
    return {name: archive.read(info) for name, info in kept}


def _check_payloads(members: dict[str, bytes], folder: str, config: str) -> None:
    """Tensors must be raw bytes; scripted and other objects, and tensors that are pickled, are refused."""
    content = json.loads(members[folder + config])["config"]
    kept = {folder + config}
    for name, payload in content.items():
        if payload.get("use_pickle") is not False:
            raise Refused(f"{name!r} is pickled")
        file = payload["path_name"]
        if not re.fullmatch(r"(weight|tensor)_\d+", file) or payload.get("tensor_meta") is None:
            raise Refused(f"the constant {name!r} is no tensor")
        kept.add(folder + file)
    for name in [n for n in members if n.startswith(folder) and n not in kept]:
        del members[name]


def _check_pickle(content: bytes) -> None:
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise Refused("its sample inputs are more than tensors") from error


def _clean_graph(content: bytes) -> bytes:
    """The graph with every operator, expression and name checked, and without remarks that torch might interpret."""
    program = json.loads(content)
    program["guards_code"] = []
    if program["graph_module"].get("treespec_namedtuple_fields"):
        raise Refused("it takes or returns named tuples")
    for name in program["range_constraints"]:
        _check_expression(name)
    for key, value, owner in list(_walk(program)):
        _check_entry(key, value)
        if key == "metadata" and isinstance(value, dict):
            owner[key] = {k: v for k, v in value.items() if k == "nn_module_stack"}
    return json.dumps(program).encode()


def _walk(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every (key, value, owner) of nested JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner, value
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def _check_entry(key: str, value: Any) -> None:
    if key in ("target", "as_operator") and isinstance(value, str):
        _check_operator(value)
    elif key == "expr_str":
        _check_expression(value)
    elif key in ("as_custom_obj", "custom_obj_values", "as_opaque") and value:
        raise Refused("it holds scripted objects")
    elif key in ("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values", "forward_arg_names"):
        for name in value or ():
            _check_name(name)
    elif key in ("name", "as_name") and isinstance(value, str):
        _check_name(value)
    elif key in ("fqn", "parameter_name", "buffer_name", "tensor_constant_name") and isinstance(value, str):
        if not _PATH.fullmatch(value) or any(part.startswith("__") for part in value.split(".")):
            raise Refused(f"{value!r} is no module path")
    elif key in ("in_spec", "out_spec") and value:
        for inner, name, _ in _walk(json.loads(value)[1]):
            if inner == "type" and name not in _CONTAINERS:
                raise Refused(f"it takes or returns {name!r}")


def _check_operator(target: str) -> None:
    match = _OPERATOR.fullmatch(target)
    if match is None:
        if not _OTHER.fullmatch(target):
            raise Refused(f"its graph calls {target!r}, which is no plain operator")
        return
    operator = getattr(getattr(torch.ops.aten if ".aten." in target else torch.ops.prims, match[1], None), match[2], None)
    if not isinstance(operator, torch._ops.OpOverload):
        raise Refused(f"its graph calls {target!r}, an operator unknown here")
    if any("filename" in argument.name for argument in operator._schema.arguments):
        raise Refused(f"its graph calls {target!r}, which opens files")


def _check_name(name: str) -> None:
    """Names become Python source when torch compiles the graph."""
    if name and (not _NAME.fullmatch(name) or (keyword.iskeyword(name) and name not in ("from", "None"))):
        raise Refused(f"it has a variable called {name!r}")


def _check_expression(text: str) -> None:
    """Sizes are given as sympy expressions, and sympy evaluates them as Python: only numbers, symbols, known functions."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise Refused(f"{text!r} is no size") from error
    for node in ast.walk(tree):
        allowed = isinstance(node, _SYNTAX)
        if isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Name) and node.func.id in _SYMPY and all(k.arg in _WORDS for k in node.keywords)
        elif isinstance(node, ast.Name):
            allowed = node.id in _SYMPY or re.fullmatch(r"[su]\d+|zuf\d+", node.id) is not None
        elif isinstance(node, ast.Constant):
            allowed = not isinstance(node.value, str) or _NAME.fullmatch(node.value) is not None
        if not allowed:
            raise Refused(f"a size is given as {text[:80]!r}")


def _packed(members: dict[str, bytes]) -> io.BytesIO:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(f"checked/{name}", content)
    packed.seek(0)
    return packed
