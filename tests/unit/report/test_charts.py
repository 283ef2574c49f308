"""Charts on a page: drawn without a script, what they show in words, their data as a file that no spreadsheet runs."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re

import numpy as np
import pytest
from tests.unit.report.subjects import HOSTILE

from neurotest.report import charts
from neurotest.report.pool import _balance, _histogram
from neurotest.report.rendering import _asset, bundle, policy, script

pytestmark = pytest.mark.plain
POINTS = [{"a": 1, "b": 2.5, "c": "x"}, {"a": 2, "b": -1.0, "c": HOSTILE[0]}]


def read(address: str) -> list[list[str]]:
    head, _, content = address.partition(",")
    assert head == "data:text/csv;charset=utf-8;base64"
    return list(csv.reader(io.StringIO(base64.b64decode(content).decode())))


def test_data_as_csv_by_hand() -> None:
    rows = [{"name": "=1+1", "n": 1}, {"name": "@a", "n": -2.5, "more": None}, {"name": "-x", "n": None}, {"name": "+y\udcff"}]
    assert read(charts.csv_link(rows)) == [
        ["name", "n", "more"], ["'=1+1", "1", ""], ["'@a", "-2.5", ""], ["'-x", "", ""], ["'+y\\udcff", "", ""],
    ]  # fmt: skip
    assert read(charts.csv_link([{"=a": 1}])) == [["'=a"], ["1"]]


def test_a_chart_says_what_it_shows_and_gives_its_data() -> None:
    spec = {"data": {"values": POINTS}, **charts.line(charts.number("a"), charts.number("b"), 100, 50)}
    html = charts.Chart(name="n", spec=spec, shows=f"Shows {HOSTILE[1]}.", hides="the rest.").__html__()
    assert html.count("<svg") == 1
    assert 'download="n.csv"' in html
    assert "It does not show: the rest." in html
    assert HOSTILE[1] not in html
    address = re.search(r'href="([^"]+)"', html)
    assert address is not None
    assert read(address[1]) == [["a", "b", "c"], ["1", "2.5", "x"], ["2", "-1.0", HOSTILE[0]]]
    embedded = re.search(r'class="spec">(.*?)</script>', html, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1])["data"]["values"] == POINTS
    assert html.count("</script>") == 1  # nothing of the data ends it
    still = charts.Chart(name="n", spec=spec, shows="", live=False).__html__()
    assert "<script" not in still


def test_lines_get_points_to_hover_over() -> None:
    inner = {"mark": {"type": "line", "color": "red"}}
    spec = {"facet": {}, "spec": {"layer": [inner, {"mark": "bar"}]}}
    line, bar = charts._hoverable(spec)["spec"]["layer"]
    assert line["mark"] == {"tooltip": True, "type": "line", "color": "red", "point": {"opacity": 0, "size": 60, "filled": True}}
    assert bar["mark"] == {"tooltip": True, "type": "bar"}
    assert inner == {"mark": {"type": "line", "color": "red"}}  # what is drawn stays as it was


def test_the_policy_allows_our_two_scripts_and_nothing_else() -> None:
    texts = (str(script()).encode(), gzip.decompress(_asset("vendor/vega.js.gz")))
    hashes = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts]
    assert re.findall(r"'sha256-([^']+)'", policy()) == hashes
    assert "unsafe-eval" not in policy()
    assert policy().startswith("default-src 'none';")
    scripts = re.search(r"script-src ([^;]+);", policy())
    assert scripts is not None
    assert "unsafe-inline" not in scripts[1]
    assert gzip.decompress(base64.b64decode(bundle())) == texts[1]
    assert not any(b"</script" in text.lower() for text in texts)


def test_bars_of_scores_and_classes_can_be_drawn() -> None:
    rows = [
        {"method": "m", "from": 0.0, "to": 0.5, "inputs": 3, "what": "fault"},
        {"method": "m", "from": 0.5, "to": 1.0, "inputs": 1, "what": "right"},
    ]
    assert "<svg" in charts.svg(_histogram(rows, [{"method": "m", "limit": 0.5}]))
    shares = [{"class": "a", "of": of, "share": 0.5, "inputs": 1} for of in ("the pool", "the picks")]
    drawn = charts.svg(_balance(shares))
    assert np.char.count(drawn, "the picks") >= 1
