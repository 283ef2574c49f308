"""Pages of real runs: every section on every kind of run, nothing unescaped, numbers by hand, runs of earlier versions."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from tests.refusals import refused
from tests.unit.report.subjects import HOSTILE

from neurotest import Run
from neurotest.report import write_report
from neurotest.report.campaign import _counts
from neurotest.report.section import _run_page, block_of, sections
from neurotest.report.selection import _found_curves

NAMELESS = {"describe", "select-adaptive", "select-unlabelled"}  # they show no class name


class Elements(HTMLParser):
    """The tags, attributes and texts of a page as a browser would read them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[str | None] = []  # their types
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "script":
            self.scripts.append(dict(attrs).get("type"))
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_every_section_on_every_kind_of_run(runs: dict[str, Path]) -> None:
    """A section applies or it does not; where it applies, it shows something or nothing, and never fails."""
    shown: dict[str, set[str]] = {each.name: set() for each in sections()}
    for name, path in runs.items():
        with Run.open(path) as run:
            for each in sections():
                if each.applies(run) and (block := block_of(each, run)) is not None:
                    assert block.html.strip(), (each.name, name)
                    shown[each.name].add(name)
    assert {name for name, where in shown.items() if not where} == {"validity"}  # these networks cannot be judged
    assert {name for where in shown.values() for name in where} == set(runs)  # every command has a page
    assert shown["strips"] == shown["noise"] == {"attack", "diff", "illuminate"}
    assert shown["neurons"] == {"swarm-neurons"}
    assert shown["families"] == {"fuzz-nlc", "fuzz-random", "fuzz-goals", "merge", "swarm", "swarm-neurons"}
    assert shown["beside-random"] == {"fuzz-nlc", "fuzz-goals"}
    assert shown["goals"] == {"fuzz-goals"}
    assert shown["picked-faults"] == shown["faults-per-label"] == shown["accuracy"] == {"select"}


def test_goals_stand_in_their_order_with_what_each_is(runs: dict[str, Path]) -> None:
    with Run.open(runs["fuzz-goals"]) as run:
        page = _run_page(run)
    words = [f"<td>{goal}</td>" for goal in ("family", "pair", "seed", "smaller")]
    places = [page.index(word) for word in words]
    assert places == sorted(places)
    assert "A fault with a new pair of true and predicted class" in page


def test_nothing_of_a_run_becomes_markup(runs: dict[str, Path]) -> None:
    for name in sorted(runs):
        with Run.open(runs[name]) as run:
            page = _run_page(run)
        read = Elements(page)
        assert not read.tags & {"iframe", "object", "link", "form", "base", "embed"}, name
        assert {value for tag, attribute, value in read.attributes if (tag, attribute) == ("script", "type")} <= {
            "application/json", "application/gzip",
        }, name  # fmt: skip
        assert [text for text in read.scripts if text is None] == [None], name  # ours, and nothing a run holds
        addresses = [value for tag, attribute, value in read.attributes if (tag, attribute) == ("a", "href")]
        assert all(address.startswith(("#", "data:text/csv;charset=utf-8;base64,")) for address in addresses), name
        assert not [attribute for _, attribute, _ in read.attributes if attribute.startswith("on")], name
        sources = [value for tag, attribute, value in read.attributes if (tag, attribute) == ("img", "src")]
        assert all(source.startswith("data:image/") for source in sources), name
        if name not in NAMELESS:
            text = "".join(read.texts) + "".join(value for _, _, value in read.attributes)
            assert any(hostile in text for hostile in HOSTILE), name
            assert "63126063" not in "".join(read.texts), name


def test_a_page_says_with_what_it_was_made(runs: dict[str, Path]) -> None:
    with Run.open(runs["fuzz-nlc"]) as run:
        page, config, version = _run_page(run), run["config"], run["version"]
    footer = "".join(Elements(page[page.index("<footer>") :]).texts)
    assert f"neurotest {version}" in footer
    assert "neurotest fuzz" in footer
    assert str(config["fingerprint"]) in footer


def cells(page: str) -> list[str]:
    return [text.strip().replace("\xa0", " ") for text in Elements(page).texts if text.strip()]


def test_a_selection_by_hand(tmp_path: Path) -> None:
    with Run.create(
        tmp_path / "run", "select", {"target": "t", "fingerprint": "0123456789abcdef", "pool": "p", "seed": 7}
    ) as run:
        run["classes"], run["skipped"], run["training duplicates"] = ["cat", "dog"], [{"file": "f.png", "reason": "broken"}], [3]
        rows = [{"position": i, "content": str(i), "label": i % 2, "predicted": int(i == 1)} for i in range(4)]
        run.add_inputs(rows)
        run.add_ranking("one", [3, 0, 1, 2], [4.0, 3.0, 2.0, 1.0], 2)
        for position in (3, 0):
            run.save_input(position, np.full((1, 4, 4), 9, np.uint8))
        random = {"fdr": 0.25, "fdr_interval": [0.0, 0.5], "ftcr_auc": None}
        quality = {"fdr": 0.5, "fdr_interval": [0.125, 1.0], "fdr_ceiling": 0.5, "relative_fdr": 1.0, "apfd": 0.875, "ftcr": 1.0}
        one = {**quality, "ftcr_auc": 0.75, "random": random, "notes": ["beware"], "canonical": "One()"}
        run.finish({"methods": {"one": one, "unfit": {"error": "does not fit"}}})
    text = cells(write_report(tmp_path / "run").read_text())
    assert "Target t (fingerprint 0123456789ab), pool p, random seed 7." in text
    assert any("the network gets 1 inputs wrong (25.0 %)" in line for line in text)
    table = len(text) - text[::-1].index("Share of the picked inputs that are faults")  # behind the links to it
    start = text.index("one", table)
    assert text[start : start + 7] == ["one", "50.0 %", "12.5 .. 100.0", "100.0 %", "0.875", "100 %", "0.750"]
    start = text.index("expected at random")
    assert text[start : start + 5] == ["expected at random", "25.0 %", "0.0 .. 50.0", "0.500", "-"]
    assert "beware" in text
    assert "f.png: broken" in text
    assert [line for line in text if line.startswith("#")] == ["#1, input 3", "#2, input 0"]
    assert [line for line in text if line.startswith("score")] == ["score 4", "score 3"]
    assert "Picks by one: the first 2 of 2" in text
    subject = text.index("Label these first") + 1
    first = "No method beats random here: of 2 picks the best finds 50 % faults; as many random picks hold 25 % (0 .. 50)."
    assert text[subject : subject + 2] == ["p", first]
    assert "is dog" in text


def test_the_curve_counts_faults() -> None:
    spec = _found_curves({"m": np.array([1, 1, 2])}, total=2, picked=1)
    assert [(row["labels"], row["faults"]) for row in spec["layer"][-1]["data"]["values"]] == [(0, 0), (1, 1), (2, 1), (3, 2)]
    assert [tuple(row.values()) for row in spec["layer"][0]["data"]["values"]] == [(0, 0), (2, 2), (3, 2)]
    assert [tuple(row.values()) for row in spec["layer"][1]["data"]["values"]] == [(0, 0), (3, 2)]


def test_the_curve_ends_a_bit_beyond_the_budget() -> None:
    """1,000 candidates of which every other one is a fault: random finds half of what is labelled."""
    spec = _found_curves({"m": np.cumsum(np.arange(1000) % 2)}, total=500, picked=100)
    drawn = spec["layer"][-1]["data"]["values"]
    assert (drawn[-1]["labels"], drawn[-1]["faults"]) == (125, 62)
    assert [tuple(row.values()) for row in spec["layer"][0]["data"]["values"]][-1] == (125, 125)
    assert [tuple(row.values()) for row in spec["layer"][1]["data"]["values"]][-1] == (125, 62.5)


def test_the_first_thing_on_a_page_is_its_conclusion(runs: dict[str, Path]) -> None:
    for name in sorted(runs):
        with Run.open(runs[name]) as run:
            page = _run_page(run)
        body = page[page.index("</h1>") + 5 :].lstrip()
        assert body.startswith('<p class="verdict'), name


def test_a_campaigns_curve_ends_at_its_counts(runs: dict[str, Path]) -> None:
    for name in ("fuzz-nlc", "fuzz-random", "merge"):
        with Run.open(runs[name]) as run:
            points, summary = _counts(run), run["summary"]
        assert points[-1] == (summary["outputs"], summary["faults"], summary["families"])
        assert (np.diff(points, axis=0) >= 0).all()


def changed(path: Path, out: Path, **changes: Any) -> Path:
    """A copy of a run with another summary."""
    shutil.copytree(path, out)
    with Run.open(out, write=True) as run:
        run.finish({key: value for key, value in {**run["summary"], **changes}.items() if value is not ...})
    return out


def test_campaigns_of_earlier_versions(tmp_path: Path, runs: dict[str, Path]) -> None:
    """Their control had fewer numbers, and there were no notes."""
    random = {"outputs": 40, "faults": 3, "rft": 0.075, "rft_interval": [None, None]}
    path = changed(runs["fuzz-nlc"], tmp_path / "old", random=random, notes=...)
    text = cells(write_report(path).read_text())
    start = text.index("random")
    assert text[start : start + 3] == ["random", "3", "7.5 %"]


def test_a_swarm_without_neurons_says_how_to_get_them(runs: dict[str, Path]) -> None:
    pages = {}
    for name in ("swarm", "swarm-neurons"):
        with Run.open(runs[name]) as run:
            pages[name] = _run_page(run)
    hint = "Which neurons cause them: <code>neurotest neurons"
    assert (hint in pages["swarm"], hint in pages["swarm-neurons"]) == (True, False)
    assert "Neurons the faults are caused by" in pages["swarm-neurons"]


def test_a_criterion_that_did_not_fit_has_a_row(tmp_path: Path, runs: dict[str, Path]) -> None:
    with Run.open(runs["cover"]) as run:
        criteria = run["summary"]["criteria"]
    path = changed(runs["cover"], tmp_path / "run", criteria={**criteria, "npc": {"error": "no <activations>"}})
    page = write_report(path).read_text()
    assert '<td>npc</td><td class="text" colspan="6">no &lt;activations&gt;</td>' in page


def test_damage_is_named(tmp_path: Path, runs: dict[str, Path]) -> None:
    sections = ("evaluation", "study", "swarm", "coverage")
    damaged = (("evaluate", "suites"), ("study-nsgen", "tables"), ("swarm", "controls"), ("cover", "criteria"))
    for section, (name, key) in zip(sections, damaged, strict=True):
        with refused("damaged", section):
            write_report(changed(runs[name], tmp_path / name, **{key: ...}))
