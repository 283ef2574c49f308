"""Families counted by the database are those of a plain loop over all faults."""

from __future__ import annotations

from pathlib import Path

from tests.refusals import refused
from tests.unit.serve.subjects import campaign

from neurotest.campaign.families import best, counted, families, grouped
from neurotest.campaign.shrink import shrink
from neurotest.campaign.store import Store
from neurotest.runs.store import Run


def test_as_by_a_loop(tmp_path: Path) -> None:
    with Run.open(campaign(tmp_path)) as run:
        groups = grouped(Store(run).faults())
        rows = counted(run)
    assert len(rows) > 5
    expected = {key: (len(faults), len({f.root for f in faults}), best(faults).number) for key, faults in groups.items()}
    assert {row.key: (row.faults, row.roots, row.representative.number) for row in rows} == expected
    assert [row.faults for row in rows] == sorted((row.faults for row in rows), reverse=True)
    assert [row["fault"] for row in families(tmp_path / "campaign").table()] == [row.representative.number for row in rows]


def test_one_family_is_shrunk_when_a_fault_is_named(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    with Run.open(path) as run:
        fault = Store(run).faults()[-1]
    (family,) = shrink(path, fault=fault.number)["families"]
    assert (family["operator"], family["l2_after"] <= family["l2_before"]) == (fault.operator, True)
    with Run.open(path) as run:
        assert [row[:3] for row in Store(run).shrunk()] == [fault.family]
    with refused("not-found", "fault"):
        shrink(path, fault=10**9)
