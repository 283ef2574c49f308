"""Campaigns: what is stored is true, can be replayed, resumed, merged and shrunk, and nothing is lost."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from neurotest.campaign import FuzzResult, families, fuzz, merge, replay, shrink, status
from neurotest.campaign.replay import FaultReader, check
from neurotest.campaign.store import Store
from neurotest.errors import Interrupted
from neurotest.runs import codec
from neurotest.runs.store import Run
from neurotest.target import Target
from neurotest.target.load import load

_spec = importlib.util.spec_from_file_location("campaign_conftest", Path(__file__).with_name("conftest.py"))
assert _spec is not None
assert _spec.loader is not None
_conftest = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_conftest)
run, no_labels = _conftest.run, _conftest.no_labels


def rows(path: Path | None) -> tuple[list[Any], dict[str, Any]]:
    """Everything a campaign found and counted, but the clock."""
    assert path is not None
    with Run.open(path) as opened:
        mutants = opened.rows("SELECT * FROM mutant ORDER BY number")
        return mutants, timeless(opened["progress"])


def timeless(progress: dict[str, Any]) -> dict[str, Any]:
    """Counters without the clock, the control's too."""
    rest = {key: value for key, value in progress.items() if key not in ("seconds", "control")}
    control = progress["control"]
    return {**rest, "control": control and {key: value for key, value in control.items() if key != "seconds"}}


def test_the_contract_of_the_result(campaign: FuzzResult) -> None:
    content = campaign.to_dict()
    for key in ("outputs", "faults", "families", "roots", "by_predicted", "forwards", "seconds", "run", "random"):
        assert key in content
    assert 0 < content["faults"] <= content["outputs"]
    assert sum(content["by_predicted"].values()) == content["faults"]
    assert len(campaign.table()) == content["families"]
    assert json.dumps(content)
    assert "faults" in campaign._repr_html_()


def test_every_stored_fault_replays_with_the_same_values_and_prediction(campaign: FuzzResult, target: Target) -> None:
    assert campaign.run is not None
    with Run.open(campaign.run) as opened:
        reader = FaultReader(opened, target)
        faults = reader.store.faults()
        assert len(faults) == campaign.faults
        assert all(f.expected != f.predicted for f in faults)
        for fault in faults:
            again = check(reader, fault)
            assert again.same_values
            assert again.fails
    image = next(f.file for f in faults if f.file is not None)
    assert replay(image, target).fails
    assert replay(f"{campaign.run}#{faults[-1].number}", target).fails


def test_random_stands_beside_with_as_many_forward_passes(
    campaign: FuzzResult, target: Target, seeds: str, tmp_path: Path
) -> None:
    random = campaign.to_dict()["random"]
    assert abs(random["forwards"] - campaign.tally.forwards) <= 64
    for key in ("outputs", "faults", "families", "roots", "by_predicted", "rft", "rft_interval", "faults_per_1000_forwards"):
        assert random[key], key
    assert sum(random["by_predicted"].values()) == random["faults"]
    assert "random" in campaign.headline()
    assert status(campaign.run)["random"]["faults"] == random["faults"]  # type: ignore[arg-type]
    alone = run(target, seeds, tmp_path / "alone", control=False)
    assert alone.to_dict()["random"] is None
    assert alone.families == campaign.families
    own = run(target, seeds, tmp_path / "own", guide="random")
    assert own.to_dict()["random"]["faults"] == own.faults  # it is its own control


def test_images_per_family_and_disk_are_bounded(target: Target, seeds: str, tmp_path: Path) -> None:
    few = run(target, seeds, tmp_path / "few", keep=1)
    assert len(list((tmp_path / "few" / "faults").glob("*.png"))) == len(few.families)
    none = run(target, seeds, tmp_path / "none", disk=0)
    assert none.faults == few.faults
    assert not (tmp_path / "none" / "faults").exists()
    assert "disk" in none.notes[0]


@pytest.mark.parametrize("guide", ["nlc", "random", "tensorfuzz:0.01", "kmnc:50", "goals:first_batch=16,start_random=16"])
def test_interrupted_and_resumed_is_the_same_as_in_one_go(guide: str, target: Target, seeds: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"guide": guide, "train": seeds, "batch": 16}
    whole = run(target, seeds, tmp_path / "whole", **options)
    answers = iter([False] * 3 + [True] + [False] * 2 + [True])
    with pytest.raises(Interrupted, match="--resume"):
        run(target, seeds, tmp_path / "parts", stop=lambda: next(answers), **options)
    assert status(tmp_path / "parts")["state"] == "unfinished"
    with pytest.raises(Interrupted):
        fuzz(target, resume=tmp_path / "parts", stop=lambda: next(answers))
    fuzz(target, resume=tmp_path / "parts")
    assert rows(tmp_path / "parts") == rows(whole.run)


def test_batches_after_the_snapshot_are_repeated_exactly(
    target: Target, seeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill leaves: rows and counters of every batch, a snapshot of an earlier one or none."""
    monkeypatch.setattr("neurotest.campaign.driver.PAUSE", 1e9)
    whole = run(target, seeds, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        run(target, seeds, tmp_path / "killed", watch=_explode(4))
    stored, counted = rows(tmp_path / "killed")
    assert stored
    assert counted["batches"] == 4
    with Run.open(tmp_path / "killed") as opened:
        assert not opened.rows("SELECT * FROM snapshot")
    fuzz(target, resume=tmp_path / "killed")
    assert rows(tmp_path / "killed") == rows(whole.run)


def _explode(after: int) -> Any:
    seen: list[int] = []

    def watch(fuzzer: Any, outputs: Any, new: Any) -> None:
        seen.append(1)
        if len(seen) >= after:
            raise ZeroDivisionError

    return watch


def test_a_finished_campaign_goes_on_with_a_larger_budget(
    campaign: FuzzResult, target: Target, seeds: str, tmp_path: Path
) -> None:
    longer = fuzz(target, resume=campaign.run, iterations=200)
    assert longer.tally.iterations == 200
    assert longer.faults >= campaign.faults
    assert campaign.run is not None
    assert status(campaign.run)["state"] == "done"


def test_orphan_images_go_on_resume(campaign: FuzzResult, target: Target) -> None:
    assert campaign.run is not None
    orphan = codec.encode(np.zeros((1, 8, 8), np.uint8), campaign.run / "faults" / "fault-999999")
    fuzz(target, resume=campaign.run, iterations=121)
    assert not orphan.exists()


def test_two_processes_cannot_write_one_campaign(campaign: FuzzResult, target: Target) -> None:
    with Run.open(campaign.run, write=True), refused("busy"):  # type: ignore[arg-type]
        fuzz(target, resume=campaign.run, iterations=200)


def test_families_have_a_representative_and_merging_keeps_them_all(target: Target, seeds: str, tmp_path: Path) -> None:
    paths = []
    for number, guide in enumerate(("nlc", "random", "cc:0.5")):
        paths.append(run(target, seeds, tmp_path / f"run{number}", guide=guide, seed=number).run)
    every = {f.key for path in paths for f in families(path).families}  # type: ignore[arg-type]
    merged = merge(paths, tmp_path / "merged")  # type: ignore[arg-type]
    rows = families(tmp_path / "merged").families
    assert {f.key for f in rows} == every
    assert merged["families"] == len(every)
    assert status(tmp_path / "merged")["guide"] == "nlc + random + cc:0.5"
    assert all(f.representative.file is not None and f.representative.file.exists() for f in rows)
    with refused("wrong-run", "merged"):
        fuzz(target, resume=tmp_path / "merged", iterations=5)
    with Run.open(tmp_path / "merged") as opened:
        reader = FaultReader(opened, target)
        assert all(check(reader, fault).same_values for fault in reader.store.faults()[::5])


def test_merging_refuses_other_targets_and_other_mutations(model: str, target: Target, seeds: str, tmp_path: Path) -> None:
    first = run(target, seeds, tmp_path / "a", iterations=20)
    noise = run(target, seeds, tmp_path / "b", iterations=20, mutations="tensorfuzz")
    with refused("changed", "mutations"):
        merge([first.run, noise.run], tmp_path / "m")  # type: ignore[list-item]
    other = load(model.replace("build", "other"), size="1x8x8")
    second = run(other, seeds, tmp_path / "c", iterations=20)
    with refused("changed", "target"):
        merge([first.run, second.run], tmp_path / "m")  # type: ignore[list-item]
    with refused("too-few", "runs"):
        merge([first.run], tmp_path / "m")  # type: ignore[list-item]


def test_shrinking_never_makes_a_change_larger_and_still_fails(campaign: FuzzResult, target: Target) -> None:
    assert campaign.run is not None
    rows = shrink(campaign.run, target)["families"]
    assert len(rows) == len(campaign.families)
    assert all(len(row["after"].split(",")) <= len(row["before"].split(",")) + 1 for row in rows)
    assert np.mean([row["l2_after"] < row["l2_before"] for row in rows]) > 0.3
    with Run.open(campaign.run) as opened:
        reader = FaultReader(opened, target)
        for row in rows:
            x = codec.decode(campaign.run / row["file"])
            classes = dict(zip(map(str, range(3)), range(3), strict=True))
            assert reader.predict(x[None])[0] == classes[row["predicted"]]


def test_shrinking_a_live_campaign_leaves_a_job_that_its_owner_takes_in(campaign: FuzzResult, target: Target) -> None:
    assert campaign.run is not None
    with Run.open(campaign.run, write=True):
        shrink(campaign.run, target)
    assert list(campaign.run.glob("jobs/*/shrunk.json"))
    fuzz(target, resume=campaign.run, iterations=125)
    with Run.open(campaign.run) as opened:
        assert len(opened.rows("SELECT * FROM shrunk")) == len(campaign.families)
    assert not list(campaign.run.glob("jobs/*/shrunk.json"))


def test_unlabelled_seeds_with_other_oracles(target: Target, seeds: str, tmp_path: Path) -> None:
    for oracle in ("metamorphic", "quantised:bf16", ["metamorphic", "regression:0.9"]):
        result = fuzz(target, no_labels(seeds), "random", iterations=40, oracle=oracle, out=False)
        assert result.tally.tested > 0
    assert result.faults > 0


# -- bad input


def test_a_changed_target_is_refused(campaign: FuzzResult, model: str) -> None:
    with refused("changed", "target"):
        fuzz(load(model.replace("build", "other"), size="1x8x8"), resume=campaign.run)


def test_other_seeds_are_refused_on_resume(campaign: FuzzResult, target: Target, seeds: str) -> None:
    with refused("changed", "seeds"):
        fuzz(target, seeds + "[:20]", resume=campaign.run)


def test_a_run_from_elsewhere_does_not_run_code(campaign: FuzzResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another"))
    with refused("untrusted", "target"):
        fuzz(resume=campaign.run)


def test_existing_runs_options_and_missing_things(campaign: FuzzResult, target: Target, seeds: str, tmp_path: Path) -> None:
    with refused("exists", "run"):
        run(target, seeds, campaign.run)  # type: ignore[arg-type]
    with refused("unknown-option", "colour"):
        run(target, seeds, tmp_path / "x", colour="red")
    with refused("missing", "budget"):
        fuzz(target, seeds, out=False)
    with refused("missing", "target"):
        fuzz(target)
    with refused("missing", "train"):
        run(target, seeds, tmp_path / "x", guide="kmnc:10")
    assert not (tmp_path / "x").exists()
    with refused("syntax", "fault"):
        replay(tmp_path / "picture.png")
    with refused("not-found", "fault"):
        replay(f"{campaign.run}#99999", target)


def test_a_corrupt_database_says_so_and_a_corrupt_snapshot_leaves_the_faults(
    campaign: FuzzResult, target: Target, tmp_path: Path
) -> None:
    assert campaign.run is not None
    broken = tmp_path / "broken"
    shutil.copytree(campaign.run, broken)
    with sqlite3.connect(broken / "run.sqlite") as db:
        db.execute("UPDATE snapshot SET content = x'00'")
    with refused("damaged", "snapshot", match="faults are safe"):
        fuzz(target, resume=broken, iterations=200)
    assert len(families(broken).families) == len(campaign.families)
    content = bytearray((broken / "run.sqlite").read_bytes())
    content[4096 : len(content) : 7] = b"\x55" * len(content[4096 : len(content) : 7])
    (broken / "run.sqlite").write_bytes(content)
    with refused("damaged", "database"):
        families(broken)


def test_damaged_chains_and_seeds(campaign: FuzzResult, target: Target) -> None:
    assert campaign.run is not None
    with sqlite3.connect(campaign.run / "run.sqlite") as db:
        db.execute("UPDATE mutant SET chain = '[{}]' WHERE number = 0")
    with Run.open(campaign.run) as opened, refused("damaged", "mutation"):
        Store(opened).mutants()
    (campaign.run / "seeds.npy").write_bytes(b"junk")
    with refused("unsupported"):
        replay(f"{campaign.run}#1", target)
