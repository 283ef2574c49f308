"""What exists by name, and how a method is written."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.refusals import refused

from neurotest import registry
from neurotest.errors import Remark


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> str:
    """A kind of its own, gone afterwards."""
    monkeypatch.setitem(registry.KINDS, "toy", ())
    monkeypatch.setitem(registry._entries, "toy", {})

    @registry.register(
        "toy", "wheel", paper="Wheel et al.", cost="nothing", main="spokes", presets={"cart": {"spokes": 8, "layer": "rim"}}
    )
    @dataclass(frozen=True, kw_only=True)
    class Wheel:
        """Turns.

        And turns.
        """

        spokes: int = 12
        layer: str | None = None
        name: str = "w"

    @registry.register("toy", "plain", paper="", cost="")
    @dataclass(frozen=True, kw_only=True)
    class Plain:
        """Does nothing."""

    return "toy"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nss", ("nss", [], {})),
        ("kmnc:1000", ("kmnc", [1000], {})),
        ("kmnc: 1000 ", ("kmnc", [1000], {})),
        ("nss:reference=original,k=0.1", ("nss", [], {"reference": "original", "k": 0.1})),
        ("nss(reference=original, k=0.1)", ("nss", [], {"reference": "original", "k": 0.1})),
        ("nss()", ("nss", [], {})),
        ("a-b.c:x=true,y=None,z='1'", ("a-b.c", [], {"x": True, "y": None, "z": "1"})),
        ("a:x=(", ("a", [], {"x": "("})),
    ],
)
def test_how_a_method_is_written(text: str, expected: tuple[object, ...]) -> None:
    assert registry.parse(text) == expected


@pytest.mark.parametrize("text", ["", " ", "(k=1)", "nss(k=1", "nss k=1", ":5", "nss)"])
def test_what_cannot_be_read(text: str) -> None:
    with refused("syntax", "method"):
        registry.parse(text)


def test_values_are_never_evaluated(kind: str) -> None:
    assert registry.build(kind, "wheel:name=__import__('os').getcwd()").name == "__import__('os').getcwd()"


def test_building(kind: str) -> None:
    assert registry.build(kind, "wheel").spokes == 12
    assert registry.build(kind, "wheel:6").spokes == 6
    assert registry.build(kind, "wheel:spokes=7").spokes == 7
    wheel = registry.build(kind, "wheel:preset=cart,spokes=9")
    assert (wheel.spokes, wheel.layer) == (9, "rim")
    assert registry.build(kind, wheel) is wheel


@pytest.mark.parametrize(
    ("text", "layer"), [("3", "3"), ("1.10", "1.10"), ("'3'", "3"), ("none", None), ("features.0", "features.0")]
)
def test_an_option_that_is_a_word_stays_one(kind: str, text: str, layer: str | None) -> None:
    """Layers of a Sequential are called 0, 1, 2; nested ones 1.10, which is not 1.1."""
    assert registry.build(kind, f"wheel:layer={text}").layer == layer


@pytest.mark.parametrize(
    ("text", "code", "argument", "match"),
    [
        ("whel", "unknown-name", "toy", "Did you mean wheel"),
        ("wheel:spoke=1", "unknown-option", "spoke", "Did you mean spokes"),
        ("wheel:1,2", "unknown-option", "wheel", "no bare value"),
        ("plain:1", "unknown-option", "plain", "it has no options"),
        ("wheel:preset=car", "unknown-name", "preset", "Did you mean cart"),
    ],
)
def test_bad_methods_are_told_near_misses(kind: str, text: str, code: str, argument: str, match: str) -> None:
    with refused(code, argument, match=match):
        registry.build(kind, text)


def test_unknown_kind() -> None:
    with refused("unknown-name", "kind"):
        registry.entries("selectors")


def test_an_entry_describes_itself(kind: str) -> None:
    entry = registry.find(kind, "wheel")
    assert entry.summary == "Turns."
    assert list(entry.options) == ["spokes", "layer", "name"]


def test_a_name_is_given_once(kind: str) -> None:
    class Other: ...

    with pytest.raises(ValueError, match="registered twice"):
        registry.register(kind, "wheel", paper="", cost="")(Other)


def test_another_package_does_not_take_a_name_of_ours(kind: str) -> None:
    """Whether it is imported before ours or after, and whatever its class is called."""

    def named(module: str) -> type:
        return type("Spoke", (), {"__doc__": "Holds.", "__module__": module, "__qualname__": "Spoke"})

    ours, other = named("neurotest.wheels"), named("another.wheels")
    registry.register(kind, "spoke", paper="", cost="")(other)
    with pytest.warns(Remark, match=r"'spoke' of another.wheels is not used"):
        registry.register(kind, "spoke", paper="", cost="")(ours)
    with pytest.raises(ValueError, match="registered twice"):
        registry.register(kind, "spoke", paper="", cost="")(other)
    assert registry.find(kind, "spoke").make is ours


def test_which_module_registers_what_is_read_from_its_text() -> None:
    """A name that is not written beside its kind could not be found without importing everything."""
    for kind in registry.kinds():
        own = {
            name: e.make.__module__ for name, e in registry.entries(kind).items() if e.make.__module__.startswith("neurotest.")
        }
        assert registry.modules(kind) == own, kind
        assert registry.names(kind) == set(registry.entries(kind)), kind
    source = Path(registry.__file__).parent
    files = [file for file in source.rglob("*.py") if file != Path(registry.__file__)]
    named = sum(len(re.findall(r'register\(\s*"[a-z ]+",\s*"', file.read_text())) for file in files)
    assert named == sum(len(re.findall(r"\bregister\(", file.read_text())) for file in files)
    assert named == sum(len(registry.modules(kind)) for kind in registry.kinds())


@pytest.mark.parametrize(
    ("ask", "imported"),
    [
        ("registry.build('selector', 'maxp')", {"uncertainty"}),
        ("registry.find('selector', 'bald')", {"dropout"}),
        ("registry.names('selector')", set()),
        ("registry.find('selector', 'MaxP')", {"uncertainty", "dropout", "ats", "greedy"}),  # by class: of all of them
    ],
)
def test_asking_for_one_method_imports_one(ask: str, imported: set[str]) -> None:
    code = f"import sys; from neurotest import registry; {ask}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    selectors = {"uncertainty", "dropout", "ats", "greedy"}
    assert {name for name in selectors if f"neurotest.select.{name}" in modules} == imported


def test_methods_of_another_package_are_found_and_do_not_replace_ours(tmp_path: Path) -> None:
    """One that cannot be loaded is named."""
    (tmp_path / "theirs.py").write_text(
        "from neurotest import registry\nfrom neurotest.select.scorer import OutputScorer\n\n\n"
        "@registry.register('selector', 'further', paper='', cost='')\nclass Further(OutputScorer):\n    'Theirs.'\n\n\n"
        "@registry.register('selector', 'maxp', paper='', cost='')\nclass MaxP(OutputScorer):\n    'Theirs, too.'\n"
    )
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such device')")
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[neurotest.selector]\nany = theirs\nsquare = broken\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from neurotest import registry\n"
        "print(*(registry.find('selector', name).make.__module__ for name in ('maxp', 'further', 'deepgini')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["neurotest.select.uncertainty", "theirs", "neurotest.select.uncertainty"]
    assert "the selector 'square' of the package theirs cannot be loaded" in ended.stderr


def test_everything_registered_can_be_described() -> None:
    """The docs are made from this: no summary or cost may be missing."""
    for kind in registry.kinds():
        for entry in registry.entries(kind).values():
            assert entry.summary, (kind, entry.name)
            assert entry.cost, (kind, entry.name)
            assert entry.main is None or entry.main in entry.options, (kind, entry.name)
            for preset in entry.presets.values():
                assert set(preset) <= set(entry.options), (kind, entry.name)


@pytest.mark.parametrize(
    ("kind", "text", "refusal"),
    [
        ("describer", "attributes(quantile=..)", ("wrong-type", "quantile")),
        ("guide", "goals:goals=0.5", ("wrong-type", "goals")),
        ("guide", "goals:7", ("wrong-type", "goals")),
        ("selector", "ctm:criterion=3", ("unsuitable", "criterion")),
    ],
)
def test_values_of_another_kind_are_refused(kind: str, text: str, refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        registry.build(kind, text)


def test_a_package_that_cannot_be_loaded_is_named_and_the_others_stay(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such device')")
    about = tmp_path / "broken_wheels-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-wheels\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[neurotest.toy]\nsquare = broken\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._load.cache_clear()
    with pytest.warns(Remark, match=r"the toy 'square' of the package broken-wheels .*RuntimeError: no such device"):
        assert "wheel" in registry.entries(kind)
