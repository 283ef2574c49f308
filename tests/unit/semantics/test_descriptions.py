"""The table of descriptions: looked up, written, read back, refused where it does not belong, kept by content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semantics.subjects import CLASSES, source, target

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.semantics.describe.material import Material
from neurotest.semantics.descriptions import DEAD, UNKNOWN, Descriptions, NeuronDescription, describe, plain

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def table(*texts: str) -> Descriptions:
    rows = [NeuronDescription("relu", n, text, 0.5, "by hand") for n, text in enumerate(texts)]
    return Descriptions.of(target(), {"relu": 5, "fc": 4}, rows, "by hand")


def test_lookup() -> None:
    descriptions = table("red", UNKNOWN, DEAD)
    assert descriptions["relu", 0].text == "red"
    assert [descriptions["relu", n].known for n in range(3)] == [True, False, False]
    assert descriptions["relu", 4] == NeuronDescription("relu", 4, UNKNOWN, 0.0, "by hand")
    assert len(list(descriptions)) == len(descriptions) == 9
    with pytest.raises(BadInput, match="'conv' has no descriptions"):
        descriptions["conv", 0]
    with pytest.raises(BadInput, match=r"no neuron 4: its neurons are 0\.\.3"):
        descriptions["fc", 4]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=12), max_size=5))
def test_a_table_reads_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("t") / "t.csv"
    descriptions = table(*texts)
    descriptions.to_csv(path)
    back = Descriptions.from_csv(path, target())
    assert [r.text for r in back] == [r.text or UNKNOWN for r in descriptions]
    assert back.fingerprint == descriptions.fingerprint
    assert dict(back.layers) == {"relu": 5, "fc": 4}


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    lines = table("=1+1", "'quoted").to_csv(tmp_path / "t.csv").read_text().splitlines()
    assert lines[1].split(",")[2] == "'=1+1"
    assert plain("'=1+1") == "=1+1"
    assert plain("'quoted") == "'quoted"


def test_another_network_or_layer_is_refused(tmp_path: Path) -> None:
    path = table("red").to_csv(tmp_path / "t.csv")
    other = target()
    other.module.fc.bias.data += 1
    with pytest.raises(BadInput, match="describes another target"):
        Descriptions.from_csv(path, other)
    with pytest.raises(BadInput, match="made for another target"):
        table("red").check(other)
    text = path.read_text()
    path.write_text(text.replace("fc,3", "fc,9"))
    with pytest.raises(BadInput, match="no neuron 9"):
        Descriptions.from_csv(path, target())
    path.write_text(text.replace("fc,", "conv7,"))
    with pytest.raises(BadInput, match="no layer 'conv7'"):
        Descriptions.from_csv(path, target())
    path.write_text(text.replace("layer,", "place,"))
    with pytest.raises(BadInput, match="lacks the column 'layer'"):
        Descriptions.from_csv(path, target())
    path.write_text(text.replace(",0.5,", ",much,"))
    with pytest.raises(BadInput, match="must be numbers"):
        Descriptions.from_csv(path, target())


def test_what_was_described_is_kept_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    first = describe(target(), source(), "class-profile")
    passes = []
    monkeypatch.setattr(Material, "exemplars", property(lambda self: passes.append(1)))
    again = describe(target(), source(), "class-profile")  # neither pass nor exemplars
    assert list(again) == list(first)
    assert not passes
    other = target()
    other.module.fc.bias.data += 1
    changed = ArraySource(source().read(np.arange(40)), (source().labels + 1) % 4, classes=CLASSES, spec="quadrants")  # type: ignore[operator]
    for subject, data, method in [
        (other, source(), "class-profile"),
        (target(), source(seed=1), "class-profile"),
        (target(), changed, "class-profile"),
        (target(), source(), "class-profile:lift=2"),
        (target(("a", "b", "c", "d")), source(), "class-profile"),
    ]:
        with pytest.raises((AttributeError, BadInput)):  # it is made anew, which the missing exemplars stop
            describe(subject, data, method)


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    first = describe(target(), source(), "class-profile")
    for file in (tmp_path / "cache").rglob("*.*"):
        file.write_bytes(b"{")
    assert list(describe(target(), source(), "class-profile")) == list(first)


def test_default_layers_are_activations_and_the_output() -> None:
    assert dict(describe(target(), source(), "class-profile").layers) == {"relu": 5, "fc": 4}


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"k": 0}, "k=0"),
        ({"quantile": 0}, "quantile=0"),
        ({"method": "nobody"}, "unknown describer"),
        ({"layers": "x"}, "matches no"),
    ],
)
def test_bad_settings(settings_: dict[str, object], word: str) -> None:
    with pytest.raises(BadInput, match=word):
        describe(target(), source(), **{"method": "class-profile", **settings_})  # type: ignore[arg-type]
