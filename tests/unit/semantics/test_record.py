"""The rating sheet, and the run of a description."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.unit.semantics.subjects import source, target

from neurotest.errors import BadInput
from neurotest.report import write_report
from neurotest.semantics.describe.api import material, output_layer
from neurotest.semantics.describe.record import LEFT, _tiles, read_rating
from neurotest.semantics.describe.work import recorded
from neurotest.semantics.descriptions import Descriptions

pytestmark = pytest.mark.plain


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


def test_the_output_layer() -> None:
    assert output_layer(target()).name == "fc"


def test_a_run_has_table_exemplars_sheets_and_page(tmp_path: Path) -> None:
    table, place, summary = recorded(target(), source(), "class-profile", None, out=tmp_path / "run", k=4)
    assert summary["dead"] == 1
    assert summary["layers"]["relu"]["dead"] == [4]
    back = Descriptions.from_csv(place / "descriptions.csv", target())
    assert [r.text for r in back] == [r.text for r in table]
    with open(place / "exemplars.csv", newline="") as text:
        rows = list(csv.DictReader(text))
    first = [int(r["position"]) % 4 for r in rows if r["layer"] == "fc" and r["neuron"] == "2"]
    assert first == [2, 2, 2, 2]  # the class of that neuron, four times
    assert not [r for r in rows if r["layer"] == "relu" and r["neuron"] == "4"]  # dead
    sheet = Image.open(place / "sheets" / "01-fc-0000.png")
    assert sheet.size == (LEFT + 4 * (48 + 2) + 6, 4 * (48 + 6))
    page = write_report(place).read_text()
    assert "upper left" in page
    assert page.count("data:image/jpeg") == 9
    assert page.index("<h2>relu</h2>") < page.index("<h2>fc</h2>")


def test_sheets_are_dim_outside_the_mask() -> None:
    """A neuron of the pooled layer sees one quadrant: its tile is as it was there and dark elsewhere."""
    work = material(target(), source(), "pool", k=2)
    strip = next(_tiles(work, "pool", np.array([0])))
    x = source().read([int(work.exemplars.top("pool")[0][0, 0])])[0, 0]
    tile = strip[:48, :48].astype(float)
    scale = 48 // 8
    bright = np.rint(x.clip(0, 1) * 255).repeat(scale, 0).repeat(scale, 1)
    kept = np.abs(tile[..., 0] - bright) < 1.5
    assert kept.mean() > 0.02
    assert (tile[~kept].mean()) < tile[kept].mean()


def rate(file: Path, own: set[int], *, good: str, bad: str, out: Path) -> Path:
    with open(file, newline="") as text:
        rows = list(csv.DictReader(text))
    with open(out, "w", newline="") as text:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "answer": good if int(row["item"]) in own else bad, "rater": out.stem})
    return out


def test_rating_counts_yes_maybe_no_and_has_decoys(tmp_path: Path) -> None:
    _, place, _ = recorded(target(), source(), "class-profile", None, out=tmp_path / "run", k=4)
    key = place / "rating-key.json"
    own = set(json.loads(key.read_text())["own"])
    with open(place / "rating.csv", newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 16  # eight neurons with words, and as many decoys
    assert len(own) == 8
    texts = {(r["layer"], r["neuron"]): r["description"] for r in rows if int(r["item"]) in own}
    assert all(r["description"] != texts[r["layer"], r["neuron"]] for r in rows if int(r["item"]) not in own)
    files = [
        rate(place / "rating.csv", own, good=a, bad=b, out=tmp_path / f"{a}.csv") for a, b in (("yes", "no"), ("maybe", "No "))
    ]
    rated = read_rating(files, key)
    assert rated.own[0] == pytest.approx(0.75)
    assert rated.decoys[0] == 0
    assert (rated.answers, rated.raters) == (32, 2)
    with pytest.raises(BadInput, match="expected yes, maybe or no"):
        read_rating([rate(place / "rating.csv", own, good="perhaps", bad="no", out=tmp_path / "p.csv")], key)
    with pytest.raises(BadInput, match="no row with a neuron's own description"):
        read_rating([place / "rating.csv"], key)
    with pytest.raises(BadInput, match="cannot read the key"):
        read_rating(files, tmp_path / "none.json")
