"""Views for notebooks: what they show, that nothing from outside stays markup, and that they stay small."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import neurotest
from neurotest import notebook, zoo
from neurotest.data.source import ArraySource
from neurotest.semantics.descriptions import Descriptions, NeuronDescription
from neurotest.target import Target

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
needs_zoo = pytest.mark.skipif(not zoo.find("mnist-lenet1").embedded, reason="the embedded networks were removed")


class Tags(HTMLParser):
    """The tags and addresses of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        self.sources += [value for name, value in attrs if name in ("src", "href")]


def harmless(page: str) -> Tags:
    tags = Tags(page)
    assert tags.tags <= {"p", "div", "img", "br", "table", "tr", "th", "td"}
    assert all(source.startswith("data:image/png;base64,") for source in tags.sources)
    return tags


def images(page: str) -> list[np.ndarray]:
    content = re.findall(r"base64,([^\"]+)", page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in content]


def test_by_hand() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    page = notebook.view(["a < b"], [([pixels], "x & y")], [{"n": 1, "share": 0.123456, "none": None}])
    assert "<p>a &lt; b</p>" in page
    assert "x &amp; y" in page
    assert "<tr><th>n</th><th>share</th><th>none</th></tr><tr><td>1</td><td>0.1235</td><td></td></tr>" in page
    assert np.array_equal(images(page)[0], pixels[0])


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_nothing_from_outside_is_markup(sentence: str, words: str, row: dict[str, str]) -> None:
    for text in (sentence, EVIL):
        harmless(notebook.view([text], [([np.zeros((3, 2, 2), np.uint8)], words + text)], [{text: text, **row}]))


def test_small_pictures() -> None:
    grey = np.array([[[0.0, 0.5], [1.0, 2.0]]])
    assert notebook.small(grey, (0, 2)).tolist() == [[[0, 64], [128, 255]]]  # type: ignore[union-attr]
    assert notebook.small(grey).tolist() == [[[0, 64], [128, 255]]]  # type: ignore[union-attr]
    large = notebook.small(np.zeros((3, 400, 200), np.uint8))
    assert large is not None
    assert large.shape == (3, 96, 48)
    assert notebook.small(np.zeros((2, 4, 4))) is None
    assert notebook.small(np.zeros(7)) is None
    assert notebook.small(np.full((1, 2, 2), np.nan)).tolist() == [[[0, 0], [0, 0]]]  # type: ignore[union-attr]


def test_views_are_bounded() -> None:
    rows = [{"text": "x" * 5000} for _ in range(5000)]
    pictures = [([np.random.default_rng(0).integers(0, 256, (3, 96, 96), dtype=np.uint8)] * 2, "y" * 5000)] * 500
    page = notebook.view(["z" * 5000], pictures, rows)
    assert page.count("<img") == 2 * notebook.PICTURES
    assert page.count("<tr>") == notebook.ROWS + 1
    assert "4,980 more rows" in page
    assert len(page) < 1_200_000


@pytest.fixture(scope="module")
def target() -> Target:
    return neurotest.load("zoo:mnist-lenet1", classes=[EVIL, *map(str, range(1, 10))])


@needs_zoo
def test_a_selection_shows_its_first_picks_beside_random(target: Target) -> None:
    pool = neurotest.data("zoo:mnist/test[:300]")
    pool = ArraySource(pool.read(np.arange(300)), pool.labels)
    selection = neurotest.select(target, pool, "deepgini", 20)
    page = selection._repr_html_()
    tags = harmless(page)
    assert len(tags.sources) == 12
    for shown, place in zip(images(page), selection.indices, strict=False):
        assert np.array_equal(shown, pool.read([place])[0, 0])
    assert selection.quality is not None
    assert f"{selection.quality.fdr.value:.1%}" in page
    assert f"{selection.quality.random_fdr.value:.1%}" in page
    assert "at random" in page
    unlabelled = neurotest.select(target, pool.without_labels(), "deepgini", 3)
    assert "at random" not in unlabelled._repr_html_()
    assert np.array_equal(pool.read(np.arange(300))[unlabelled], pool.read(unlabelled.indices))
    assert len(unlabelled) == 3


@needs_zoo
def test_generators_show_faults_beside_their_seeds(target: Target, tmp_path: Path) -> None:
    seeds = neurotest.data("zoo:mnist/test[:40]")
    seeds = ArraySource(seeds.read(np.arange(40)), seeds.labels)
    attack = neurotest.attack(target, seeds, "pgd:eps=0.3", out=False)
    page = attack._repr_html_()
    assert len(harmless(page).sources) == 2 * min(12, attack.faults) > 0
    first = int(np.flatnonzero(attack.fault)[0])
    assert np.array_equal(images(page)[0], attack.seeds[first, 0])
    assert np.array_equal(images(page)[1], attack.x[first, 0])
    fuzz = neurotest.fuzz(target, seeds, "random", forwards=600, out=tmp_path / "run")
    page = fuzz._repr_html_()
    assert len(harmless(page).sources) == 2 * min(12, len(fuzz.families)) > 0
    (tmp_path / "run").rename(tmp_path / "moved")
    assert not harmless(fuzz._repr_html_()).sources


@needs_zoo
def test_a_diagnosis_and_a_coverage(target: Target) -> None:
    pool = neurotest.data("zoo:mnist/test[:60]")
    diagnosis = neurotest.doctor(target, ArraySource(pool.read(np.arange(60)), pool.labels))
    page = diagnosis._repr_html_()
    harmless(page)
    assert page.count("<tr>") == min(len(diagnosis.findings), notebook.ROWS) + 1
    harmless(neurotest.cover(target, "zoo:mnist/test[:60]", ["nc"])._repr_html_())


def test_descriptions() -> None:
    rows = {("fc", n): NeuronDescription("fc", n, f"{EVIL} {n}", float(n), "csv") for n in range(40)}
    table = Descriptions("print", {"fc": 50, EVIL: 3}, rows, method=EVIL)
    page = table._repr_html_()
    harmless(page)
    assert page.index(">39<") < page.index(">38<")  # the surest first
    assert "fc 40 of 50" in page
