"""The docs' own code: stored measurements become tables, and the table of packages names all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from neurotest.settings import TargetSettings, declared

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
TABLE = """what was printed before

| method | pool | value |
| --- | --- | --- |
| a | x | 1.00 |
| b | x | 2 (1 .. 3) |

| method | pool | value |
|---|---|---|
| a | y |  |
"""


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, code)
    spec.loader.exec_module(code)
    return code


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("_results", monkeypatch)


@pytest.fixture
def stored(results: ModuleType, tmp_path: Path) -> Path:
    """A folder with one stored result, `one`."""
    columns, rows = results.parse(TABLE.splitlines())
    table = results.Result(title="t", command="make it", version="0.1.0", date="2026-01-31", columns=columns, rows=rows)
    results.save("one", table, tmp_path)
    assert results.load("one", tmp_path) == table
    return tmp_path


def test_tables_with_equal_columns_become_one(stored: Path) -> None:
    content = json.loads((stored / "one.json").read_text())
    assert content["columns"] == ["method", "pool", "value"]
    assert content["rows"] == [["a", "x", "1.00"], ["b", "x", "2 (1 .. 3)"], ["a", "y", ""]]


def test_tables_with_different_columns_are_refused(results: ModuleType) -> None:
    with pytest.raises(results.ResultError, match="different columns"):
        results.parse((TABLE + "\n| other |\n|---|\n| 1 |\n").splitlines())


def test_a_link_becomes_the_table_with_its_source(results: ModuleType, stored: Path) -> None:
    shown = results.render("before\n\n[What it is](../results/one.json)\n\nafter", "methods/selector/nss.md", stored)
    assert "| b | x | 2 (1 .. 3) |" in shown
    assert "`make it`, version 0.1.0, 2026-01-31: [all of it as JSON](../../results/one.json)" in shown
    assert shown.startswith("before\n\n*What it is*\n\n| method |")


def test_rows_and_columns_can_be_chosen(results: ModuleType, stored: Path) -> None:
    shown = results.render('[x](results/one.json "only method=a|b; only pool=x; without pool; folded")', "page.md", stored)
    assert shown.startswith('??? note "x (2 rows)"\n')
    assert shown.endswith("    | method | value |\n    | --- | --- |\n    | a | 1.00 |\n    | b | 2 (1 .. 3) |")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("[x](results/two.json)", "two.json is not in docs/results"),
        ('[x](results/one.json "only method=c")', "no row has method=c"),
        ('[x](results/one.json "only where=c")', "no column where; there are method, pool, value"),
        ('[x](results/one.json "without where")', "no column where"),
        ('[x](results/one.json "sorted")', "sorted: expected folded"),
    ],
)
def test_a_wrong_link_is_an_error_that_names_the_page(results: ModuleType, stored: Path, link: str, message: str) -> None:
    with pytest.raises(results.ResultError, match=message) as raised:
        results.render(link, "page.md", stored)
    assert "page.md" in str(raised.value)


@pytest.mark.parametrize("change", [{"date": "yesterday"}, {"command": " "}, {"rows": [["a"]]}, {"extra": 1}])
def test_a_damaged_file_is_refused(results: ModuleType, stored: Path, change: dict[str, object]) -> None:
    file = stored / "one.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(results.ResultError, match=r"docs/results/one\.json"):
        results.load("one", stored)


def test_a_printed_table_is_stored_with_version_and_date(results: ModuleType, tmp_path: Path) -> None:
    code = tmp_path / "_results.py"
    code.write_text((DOCS / "_results.py").read_text())
    (tmp_path / "results").mkdir()
    command = [sys.executable, str(code), "new", "--command", "python lab/scripts/x.py", "--title", "a table"]
    subprocess.run(command, input=TABLE, text=True, check=True, cwd=ROOT / "src", capture_output=True)
    assert results.load("new", tmp_path / "results").rows[1] == ["b", "x", "2 (1 .. 3)"]


def test_every_stored_result_is_shown_and_every_link_can_be(results: ModuleType) -> None:
    shown = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        results.render(text, page.relative_to(DOCS).as_posix())
        shown |= {link["name"] for link in results.LINK.finditer(text)}
        assert text.count("results/") == len(list(results.LINK.finditer(text))), f"{page}: a link that is not a paragraph"
    assert shown == {path.stem for path in (DOCS / "results").glob("*.json")}


def test_a_cell_in_a_sentence_is_what_is_stored(results: ModuleType, stored: Path) -> None:
    text = "it is {{one | b |\nvalue}}, not {{ one |b| pool }}"
    assert results.render(text, "page.md", stored) == "it is 2 (1 .. 3), not x"
    assert results.render("{{one | a > x | value}}", "page.md", stored) == "1.00"
    for wrong in (
        "{{two | b | value}}",
        "{{one | c | value}}",
        "{{one | a | value}}",
        "{{one | b | size}}",
        "{{one | a > z | pool}}",
    ):
        with pytest.raises(results.ResultError, match=r"page\.md"):
            results.render(f"{{{{{wrong}}}}}", "page.md", stored)


# What stands before a number that is a setting and not a measurement.
SETTING = re.compile(
    r"(?:Linf|L2|eps|kappa|lambda|t =|threshold|above|at|within|weight|sections?|tables?|figures?|equations?)"
    r"\s[-+]?\.?\d[\d,.e]*(?:/255)?(?: %)?"
)


@pytest.mark.parametrize("study", ["nss", "nsgen", "deepsensor", "coverage", "fuzzing"])
def test_measured_numbers_of_studies_are_not_typed(study: str) -> None:
    """Decimals and percentages of the pages come out of stored results, by links and by cells; settings may be named."""
    text = (DOCS / "notes" / f"study-{study}.md").read_text(encoding="utf-8")
    text = re.sub(r"\{\{.*?\}\}|`[^`]*`|\[[^\]]*\]\([^)]*\)|^    .*$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"(?<![\w.])[-+]?\d*\.\d+|\d+(?:\.\d+)? %", SETTING.sub("", text))


STORED = tomllib.loads((ROOT / "lab" / "scripts" / "store_study.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STORED)
def test_stored_studies_are_what_their_script_stores(name: str, results: ModuleType) -> None:
    """Titles, commands and columns: a table that was stored before the script changed would differ."""
    specs = dict(STORED[name])
    run = specs.pop("run", name)
    for part, spec in specs.items():
        stored = results.load(f"study-{name}-{part}")
        assert stored.title == spec["title"]
        assert stored.command == f"neurotest study {run} --json > FILE; python lab/scripts/store_study.py {name} FILE"
        if "by" in spec:
            heads = list(dict.fromkeys(column.partition(": ")[2] or column for column in stored.columns))
        else:
            heads = stored.columns
        assert heads == (["claim", spec["unit"]] if "checks" in spec else list(spec["columns"]))


def test_a_run_becomes_a_stored_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: ModuleType) -> None:
    script = runpy.run_path(str(ROOT / "lab" / "scripts" / "store_study.py"))
    rows = [{"subject": s, "guide": g, "faults": 2.5 if s == "a" else None} for s in ("a", "b") for g in ("nc", "random")]
    spec = {"table": "t", "by": "subject", "columns": {"guide": "{guide}", "faults": "{faults|.2f} of 3"}}
    columns, lines = script["table"](spec, {"tables": {"t": rows}})
    assert columns == ["guide", "a: faults", "b: faults"]
    assert lines == [["nc", "2.50 of 3", ""], ["random", "2.50 of 3", ""]]
    only = {**spec, "only": {"guide": ["nc"]}}
    assert script["table"](only, {"tables": {"t": rows}})[1] == lines[:1]
    checks = {"checks": {"a b": "what"}, "unit": "points", "cell": "{value|+.1f}"}
    assert script["table"](checks, {"checks": {"a b": 3}}) == (["claim", "points"], [["what", "+3.0"]])
    (tmp_path / "run.json").write_text(json.dumps({"study": "nss", "missing": [], "tables": {}, "checks": {}}))
    monkeypatch.setattr(sys, "argv", ["store_study.py", "deepsensor", str(tmp_path / "run.json")])
    with pytest.raises(SystemExit, match="is of the study nss"):
        script["main"]()


def test_every_claim_has_a_verdict_and_numbers_of_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    module("_results", monkeypatch)
    claims = module("_claims", monkeypatch)
    every = claims.claims()
    assert {claim.paper.partition(",")[0] for claim in every} == {"NSS", "NSGen", "coverage study", "DeepSensor"}
    assert {claim.verdict for claim in every} == set(claims.VERDICTS)
    page = claims.render((DOCS / "claims.md").read_text(encoding="utf-8"))
    assert claims.MARK not in page
    for claim in every:
        assert f"| {claim.claim} |" in page
        for number in claim.numbers:  # the page has the cell as it is stored, and where it comes from
            value, result = number.read()
            assert f"{number.what}: {value}" in page
            assert f"`{result.command}`, {result.date}" in page
    # Nothing is typed: a number in a verdict would have to be a cell, too.
    assert not [claim.claim for claim in every if re.search(r"(?<![A-Za-z])[+-]\d|\d\.\d+ (?:points|%)", claim.condition)]


def test_claims_that_do_not_fit_are_refused(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = module("_claims", monkeypatch)
    number = claims.Number(what="it", result="one", row="b", column="value")
    assert number.read(stored)[0] == "2 (1 .. 3)"
    for wrong in ({"row": "a"}, {"row": "c"}, {"column": "size"}, {"result": "two"}):
        with pytest.raises(claims.ResultError):
            claims.Number(**{**vars(number), **wrong}).read(stored)
    fine = {"paper": "p", "claim": "c", "verdict": "holds", "numbers": (number,)}
    assert claims.Claim(**fine).row(stored)[-1] == "`make it`, 2026-01-31, 0.1.0"
    for bad in (
        {"verdict": "true"},
        {"numbers": ()},
        {"verdict": "holds if"},
        {"verdict": "not measured here", "condition": "x"},
    ):
        with pytest.raises(claims.ResultError):
            claims.Claim(**{**fine, **bad})


def test_the_design_page_lists_every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs", reason="the docs are built with mkdocs: pip install 'neurotest[dev]'")
    hooks = module("_hooks", monkeypatch)
    table = hooks._packages(ROOT)
    source = ROOT / "src" / "neurotest"
    names = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()} - {"__init__"}
    assert {name for name in names if f"| `{name}` |" not in table} == set()
    assert "(no docstring)" not in table
    assert hooks.SETTINGS in (DOCS / "bring-your-own-model.md").read_text(encoding="utf-8")
    settings = hooks._target_settings()
    assert all(f"`{one.option}`" in settings for one in declared(TargetSettings).values())
    assert hooks.PACKAGES in (DOCS / "design.md").read_text(encoding="utf-8")


def options(command: Any, path: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Every command with its options; a group has those of its commands, too."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    table: dict[str, set[str]] = {}
    for name, child in getattr(command, "commands", {}).items():
        table |= options(child, (*path, name))
        own |= table[" ".join((*path, name))]
    return {**table, " ".join(path): own | {"--help"}}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_on_the_pages_have_the_options_they_are_shown_with(page: Path) -> None:
    import typer

    from neurotest.cli.app import application

    table = options(typer.main.get_command(application()))
    wrong = []
    for command, rest in re.findall(
        r"(?:^ {4}|   |`|\$ )neurotest ([a-z]+)\b((?:(?!neurotest)[^\n`#])*)", page.read_text("utf-8"), re.MULTILINE
    ):
        allowed = table.get(command, set())
        wrong += [] if allowed else [command]
        wrong += [f"{command} {name}" for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", rest) if name not in allowed]
    assert wrong == []
