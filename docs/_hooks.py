"""Pages made from what is registered: one per method, an index of them, the zoo's table, and the navigation.

Nothing is described here by hand, so the docs cannot advertise what does not exist. Links to stored measurements become
tables, and the design page gets its table of packages from their docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _claims
import _notebook
import _results
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from neurotest import errors, registry, zoo
from neurotest.settings import TargetSettings, declared

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

FIXED: list[dict[str, str]] = [
    {"Home": "index.md"},
    {"Quick start": "quickstart.md"},
    {"In a notebook": "in-a-notebook.md"},
    {"Bring your own model": "bring-your-own-model.md"},
    {"Networks that predict a quantity": "regression.md"},
    {"Steering": "steering.md"},
    {"Large networks": "large-networks.md"},
    {"Large data, many workers": "scale.md"},
    {"Transformers": "transformers.md"},
    {"Check": "check.md"},
    {"Doctor": "doctor.md"},
    {"Selecting": "selecting.md"},
    {"Labelling page": "label.md"},
    {"Labels that look wrong": "suspects.md"},
    {"Coverage": "coverage.md"},
    {"What neurons mean": "describe.md"},
    {"Fuzzing": "fuzzing.md"},
    {"Explaining faults": "explain.md"},
    {"Attacks": "attacks.md"},
    {"Differential testing": "differential.md"},
    {"Illumination": "illumination.md"},
    {"Swarms": "swarm.md"},
    {"Judging a suite": "evaluate.md"},
    {"Repair": "repair.md"},
    {"Robustness": "robustness.md"},
    {"Gate": "gate.md"},
    {"In pytest and CI": "pytest.md"},
    {"Sound": "sound.md"},
    {"Pages": "reports.md"},
    {"Live page": "serve.md"},
    {"The papers' claims": "claims.md"},
    {"Promises": "promises.md"},
    {"Design": "design.md"},
]
PACKAGES, SETTINGS, CODES = "<!-- packages -->", "<!-- target settings -->", "<!-- error codes -->"
HEADINGS = {
    "attack": "Attacks",
    "criterion": "Coverage criteria",
    "differential": "Differential testing",
    "generator": "Quality-diversity generation",
    "check": "Checks of `neurotest check`",
    "critical": "Choices of critical neurons",
    "selector": "Selectors",
    "repair": "Protocols of repair",
    "study": "Studies",
    "robustness": "Measures of robustness",
    "suite": "Runs that can be judged",
    "estimator": "Estimators of accuracy",
    "fitness": "Fitness of swarms",
    "goal": "Goals of fuzzing",
    "mutation": "Mutations",
    "validity": "Validity of mutants",
    "split": "Generated pools",
    "target source": "Where a target comes from",
    "data source": "Where data comes from",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to what lies in docs/ and set the navigation accordingly."""
    docs = Path(config.docs_dir)
    pages = {"methods/index.md": _methods_index(), "in-a-notebook.md": _notebook.markdown(docs / "notebook.ipynb")}
    for kind in registry.kinds():
        for entry in registry.entries(kind).values():
            pages[_address(entry)] = _method_page(entry, docs)
    catalogue = getattr(zoo, "catalogue", None)
    if catalogue is not None:
        pages["zoo.md"] = _zoo_page(list(catalogue()), docs)
    for address, text in pages.items():
        files.append(File.generated(config, address, content=text))
    config.nav = _navigation(files, pages)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put stored measurements and the tables of packages, settings and error codes into the page."""
    try:
        text = _results.render(_claims.render(markdown), page.file.src_uri)
    except _results.ResultError as error:
        raise PluginError(str(error)) from error
    if PACKAGES in text:
        text = text.replace(PACKAGES, _packages(Path(config.config_file_path).parent))
    if CODES in text:
        text = text.replace(CODES, _table(["code", "says"], [[f"`{code}`", _prose(says)] for code, says in errors.CODES.items()]))
    return text.replace(SETTINGS, _target_settings()) if SETTINGS in text else text


def _target_settings() -> str:
    """Every setting that describes a target, as it is declared."""
    rows = [
        [f"`{one.option}`", f"`{name}=`", _prose(one.help), "yes" if one.toml else "no"]
        for name, one in declared(TargetSettings).items()
    ]
    return _table(["option", "Python", "says", "`neurotest.toml`"], rows)


def _packages(root: Path) -> str:
    """What each package is for, in the order in which imports may point: the contract's layers, the packages' docstrings."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    rows = []
    for floor, layer in enumerate(reversed(layers)):
        names = re.findall(r"\w+", layer)
        rows += [[str(floor), f"`{name}`", _prose(summary)] for name in names if (summary := _docstring(root, name))]
    return _table(["floor", "package", "what it is for"], rows[::-1])


def _docstring(root: Path, name: str) -> str:
    """The first paragraph of a module's docstring, read without importing it; nothing for a module that is not there."""
    place = root / "src" / "neurotest" / name
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "(no docstring)").split("\n\n")[0]
    return ""


def _navigation(files: Files, pages: dict[str, str]) -> list[Any]:
    nav: list[Any] = list(FIXED)
    methods: list[Any] = ["methods/index.md"]
    for kind in registry.kinds():
        links = [{e.name: _address(e)} for e in registry.entries(kind).values()]
        if links:
            methods.append({_heading(kind): links})
    nav.append({"Methods": methods})
    if "zoo.md" in pages:
        nav.append({"Zoo": "zoo.md"})
    for title, folder in (("Data", "data/"), ("Decisions", "decisions/")):
        addresses = sorted(f.src_uri for f in files.documentation_pages() if f.src_uri.startswith(folder))
        if addresses:
            nav.append({title: addresses})
    return nav


def _heading(kind: str) -> str:
    return HEADINGS.get(kind, f"{kind.capitalize()}s")


def _folder(kind: str) -> str:
    return kind.replace(" ", "-")


def _address(entry: registry.Entry) -> str:
    return f"methods/{_folder(entry.kind)}/{entry.name}.md"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _outside_code(text: str, pattern: str, change: Callable[[re.Match[str]], str]) -> str:
    pieces = re.split(r"(`+[^`]*`+)", text)
    return "".join(p if p.startswith("`") else re.sub(pattern, change, p) for p in pieces)


def _cell(text: str) -> str:
    return _outside_code(" ".join(text.split()), r"\|", lambda m: "\\|")


def _prose(text: str) -> str:
    """A docstring as Markdown: a formula's * and < stay what they are, code spans and lists stay code and lists."""
    return _outside_code(inspect.cleandoc(text), r"(?<=\S)\*|\*(?=\S)|<", lambda m: "&lt;" if m[0] == "<" else "\\*")


def _summary(entry: registry.Entry) -> str:
    return _prose(entry.summary) if _documented(entry) else ""


def _documented(entry: registry.Entry) -> bool:
    """Whether somebody wrote the docstring: a dataclass without one is given its signature."""
    text = entry.make.__doc__ or ""
    return bool(text.strip()) and not text.startswith(f"{entry.make.__name__}(")


def _methods_index() -> str:
    parts = [
        "# Methods",
        "Made from the registry: what stands here can be used by name on the command line and in Python, and "
        "`neurotest list KIND` prints the same. A method is written `name`, "
        "`name:value`, `name:option=value,option=value` or `name(option=value)`.",
    ]
    for kind in registry.kinds():
        entries = registry.entries(kind).values()
        if entries:
            rows = [[f"[{e.name}]({_folder(kind)}/{e.name}.md)", _summary(e), _prose(e.paper), _prose(e.cost)] for e in entries]
            parts += [f"## {_heading(kind)}", _table(["name", "what it does", "from", "cost"], rows)]
    return "\n\n".join(parts) + "\n"


def _method_page(entry: registry.Entry, docs: Path) -> str:
    parts = [f"# {entry.name}", f"*{entry.kind}* · [all methods](../index.md)"]
    if _documented(entry):
        parts.append(_prose(entry.make.__doc__ or ""))
    parts += [f"**{title}:** {_prose(text)}" for title, text in (("From", entry.paper), ("Cost", entry.cost)) if text]
    if entry.options:
        parts += ["## Options", _options(entry)]
    if entry.presets:
        parts += ["## Presets", f"Chosen with `{entry.name}:preset=NAME`; an option given beside it wins.", _presets(entry)]
    if entry.differs:
        parts += ["## How ours differs", _prose(entry.differs)]
    note = docs / "notes" / f"{_folder(entry.kind)}-{entry.name}.md"
    if note.is_file():
        parts.append(note.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def _options(entry: registry.Entry) -> str:
    rows = []
    for name, option in entry.options.items():
        kind = option.type if isinstance(option.type, str) else getattr(option.type, "__name__", str(option.type))
        remarks = [_prose(option.metadata.get("help", "")), f"also `{entry.name}:VALUE`" if name == entry.main else ""]
        rows.append([f"`{name}`", f"`{kind}`", _default(option), "; ".join(filter(None, remarks))])
    return _table(["option", "type", "default", ""], rows)


def _presets(entry: registry.Entry) -> str:
    rows = [[f"`{name}`", ", ".join(f"`{k}={v!r}`" for k, v in values.items())] for name, values in entry.presets.items()]
    return _table(["preset", "sets"], rows)


def _default(option: dataclasses.Field[Any]) -> str:
    if option.default is not dataclasses.MISSING:
        return f"`{option.default!r}`"
    if option.default_factory is not dataclasses.MISSING:
        return f"`{option.default_factory()!r}`"
    return "none: must be given"


def _zoo_page(subjects: list[Any], docs: Path) -> str:
    table = _table(
        ["target", "data", "architecture", "parameters", "test accuracy", "recipe", "trained in", "weights"],
        [_zoo_row(subject) for subject in subjects],
    )
    head = """# Zoo

Networks trained by this project. `neurotest zoo train NAME` repeats a recipe from its seed; the accuracy is that of the
shipped weights on the whole test set."""
    return "\n\n".join([head, table, (docs / "notes" / "zoo.md").read_text(encoding="utf-8")])


def _quality(about: dict[str, Any]) -> str:
    """The share of right answers; of a quantity how far answers are off, beside the mean of training."""
    return f"{about['accuracy']:.2%}" if "accuracy" in about else f"{about['error']:.3g} off (the mean: {about['trivial']:.3g})"


def _zoo_row(subject: Any) -> list[str]:
    parameters = sum(p.numel() for p in subject.build().parameters())
    # Only what is shipped: the page must not depend on what somebody trained into the cache of this machine.
    accuracy = _quality(subject.about) if subject.embedded else ""
    place = "in the package" if subject.embedded else "trained on demand"
    recipe = subject.recipe.describe()
    about = subject.about if subject.embedded else {}
    time = f"{max(1, round(about['seconds'] / 60))} min, {about['threads']} threads" if about else ""
    return [f"`zoo:{subject.name}`", subject.dataset, subject.architecture, f"{parameters:,}", accuracy, recipe, time, place]
