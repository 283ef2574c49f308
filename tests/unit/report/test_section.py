"""How sections are registered, ordered and rendered."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest import Run, report
from neurotest.report import section as registry
from neurotest.report import write_report
from neurotest.report.rendering import _as_json, _interval, _number, _percent, _thousands, environment, render
from neurotest.report.section import section, sections

FOLDER = Path(report.__file__).parent


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    sections()
    monkeypatch.setattr(registry, "_sections", dict(registry._sections))


def tiny(path: Path, command: str = "cover", **meta: str) -> Path:
    with Run.create(path, command, {"note": "a"}) as run:
        for key, value in meta.items():
            run[key] = value
        run.finish({"number": 3})
    return path


@pytest.mark.usefixtures("registered")
def test_a_section_is_a_file_and_a_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "throwaway"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "extra.py").write_text(
        "from neurotest.report.section import section\n\n\n"
        "@section('extra', title='Something else', order=5, commands=('throwaway',), requires=('extra',))\n"
        "def extra(run):\n    return {'text': run['extra'], 'subject': 'of ' + run['extra']}\n"
    )
    (package / "templates" / "extra.html.j2").write_text(
        "{% from 'macros.html.j2' import notes %}{{ notes([text]) }}{{ summary.number }} {{ config.note }}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "throwaway", raising=False)
    __import__("throwaway.extra")
    page = write_report(tiny(tmp_path / "run", "throwaway", extra="<b>")).read_text()
    assert '<h1>Something else <span class="subject">of &lt;b&gt;</span></h1>' in page
    assert "<title>Something else: of &lt;b&gt;</title>" in page
    assert '<p class="note">&lt;b&gt;</p>\n3 a' in page
    with refused("wrong-run"):
        write_report(tiny(tmp_path / "without", "throwaway"))


@pytest.mark.usefixtures("registered")
def test_order_titles_and_sections_with_nothing_to_show(tmp_path: Path) -> None:
    for name, order in (("last", 9), ("first", 1), ("middle", 5)):
        section(name, title=name.upper(), order=order, commands=("throwaway",), template="chart.html.j2")(
            lambda run, name=name: None if name == "middle" else {"charts": [name], "title": f"{name} & co"}
        )
    page = write_report(tiny(tmp_path / "run", "throwaway")).read_text()
    assert page.index("<h1>first &amp; co</h1>") < page.index("<h2>last &amp; co</h2>")
    assert 'id="middle"' not in page
    with pytest.raises(ValueError, match="registered twice"):
        section("last", title="", order=0)(test_order_titles_and_sections_with_nothing_to_show)


@pytest.mark.usefixtures("registered")
def test_sections_without_anything_to_show_are_no_report(tmp_path: Path) -> None:
    section("nothing", title="", order=0, commands=("throwaway",), template="chart.html.j2")(lambda run: None)
    with refused("wrong-run"):
        write_report(tiny(tmp_path / "run", "throwaway"))


def test_a_damaged_run_names_the_section(tmp_path: Path) -> None:
    with refused("damaged", "coverage"):
        write_report(tiny(tmp_path / "run"))


def test_an_unfinished_run_has_no_report_yet(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "cover", {}):
        pass
    with refused("unfinished"):
        write_report(tmp_path / "run")


def test_every_page_has_one_first_section_with_a_title() -> None:
    heads = [each for each in sections() if each.order == 0]
    assert all(each.title for each in heads)
    headed = Counter(command for each in heads for command in each.commands)
    assert set(headed.values()) == {1}
    assert {command for each in sections() for command in each.commands} == set(headed)


def test_no_section_takes_the_name_of_another() -> None:
    """The name of a function is not enough: `scores` of one module hid `scores` of another."""
    written = [
        name for file in FOLDER.glob("*.py") for name in re.findall(r'^@section\(\s*"([^"]+)"', file.read_text(), re.MULTILINE)
    ]
    assert sorted(written) == sorted(one.name for one in sections() if one.content.__module__.startswith("neurotest."))


def test_a_page_imports_the_modules_of_its_command_only() -> None:
    """Whatever applies to a command is found by the text of its module; that of other modules is not imported."""
    texts = {file.stem: file.read_text() for file in FOLDER.glob("*.py")}
    commands = {command for each in sections() for command in each.commands}
    for each in sections():
        package, _, module = each.content.__module__.rpartition(".")
        for command in (each.commands or commands) if package == report.__name__ else ():
            assert registry._may_apply(texts[module], command), (each.name, command)
    assert {stem for stem, text in texts.items() if registry._may_apply(text, "select")} == {"pool", "selection"}
    assert {stem for stem, text in texts.items() if registry._may_apply(text, "gate")} == {"check"}


@pytest.mark.parametrize(
    ("commands", "applies"),
    [
        ('commands=("fuzz",), requires=("select",)', False),
        ('commands=("fuzz", "select")', True),
        ("commands=COMMANDS", False),
        ("commands=OTHERS", True),
        ('commands=(*COMMANDS, "merge")', True),
        ("", True),
    ],
)
def test_where_the_commands_of_a_section_are_not_spelled_out_it_may_apply(commands: str, applies: bool) -> None:
    text = f'COMMANDS = ("fuzz", "merge")\n\n\n@section("one", title="select", {commands})\ndef one(run):\n    return "select"\n'
    assert registry._may_apply(text, "select") == applies
    assert registry._may_apply(text, None)
    assert not registry._may_apply("def none(run):\n", None)


@pytest.mark.usefixtures("registered")
def test_two_modules_cannot_have_a_section_of_one_name() -> None:
    def suspects(run: Run) -> None:
        return None

    suspects.__qualname__ = "suspects"
    with pytest.raises(ValueError, match="'suspects' is registered twice"):
        section("suspects", title="", order=0)(suspects)


def test_fragments_are_there_and_mark_nothing_as_safe() -> None:
    for each in sections():
        environment().get_template(each.template)
    for file in (FOLDER / "templates").glob("*.j2"):
        assert not re.search(r"\|\s*safe|autoescape", file.read_text()), file


def test_one_environment_and_no_sql() -> None:
    sources = {file.name: file.read_text() for file in FOLDER.glob("*.py")}
    assert [name for name, text in sources.items() if re.search(r"\bEnvironment\(", text)] == ["rendering.py"]
    assert not [name for name, text in sources.items() if re.search(r"\bSELECT\b|\.rows\(", text)]


def test_a_missing_name_is_an_error() -> None:
    from jinja2 import UndefinedError

    assert environment().autoescape is True
    with pytest.raises(UndefinedError):
        environment().from_string("{{ absent }}").render()


def test_numbers_by_hand() -> None:
    assert [_thousands(1234567), _thousands(None)] == ["1,234,567", ""]
    assert [_number(0.123456), _number(2.5, ".1f"), _number(None, ".1f", "-")] == ["0.1235", "2.5", "-"]
    assert [_percent(0.1234), _percent(0.1234, 0), _percent(None, 1, "-")] == ["12.3 %", "12 %", "-"]
    assert [_interval([0.1, 0.25], ".1f", 100), _interval(None), _interval([None, 1.0])] == ["10.0 .. 25.0", "", ""]
    assert _as_json({"ü": "</pre>"}) == '{\n "ü": "</pre>"\n}'


def test_embedded_json_cannot_leave_its_script() -> None:
    text = environment().from_string('<script type="application/json">{{ x | tojson }}</script>').render(x={"a": "</script><b>"})
    assert text.count("</script>") == 1
    assert "\\u003c/script\\u003e\\u003cb\\u003e" in text


@pytest.mark.usefixtures("registered")
def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    section("odd", title="Odd", order=0, commands=("throwaway",), template="chart.html.j2")(lambda run: {"charts": ["a\udcffb"]})
    assert "a\\udcffb" in write_report(tiny(tmp_path / "run", "throwaway")).read_text()


def test_the_report_is_written_where_it_is_wanted(tmp_path: Path, runs: dict[str, Path]) -> None:
    moved = shutil.copytree(runs["select"], tmp_path / "elsewhere")
    assert write_report(moved) == moved / "report.html"
    assert write_report(moved, tmp_path / "page.html").read_text() == (moved / "report.html").read_text()


def test_a_plain_text_among_charts_is_escaped() -> None:
    assert render("chart.html.j2", charts=["<"]).strip() == "&lt;"
