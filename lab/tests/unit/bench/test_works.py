"""The benchmarks run, on sets of any size, and give ratios with their spread."""

from __future__ import annotations

import pytest
from tests.refusals import refused

from neurotest import zoo
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest_lab import bench
from neurotest_lab.bench import coverage, passes, works


@pytest.fixture(autouse=True)
def _embedded() -> None:
    if not zoo.find("mnist-lenet1").embedded:
        pytest.skip("mnist-lenet1 is not embedded here")
    try:
        data("zoo:mnist/test[:1]")
    except BadInput as error:
        pytest.skip(str(error))


def test_probe_on_fewer_images_than_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "IMAGES", 20_000)  # the embedded set has 10,000
    ratios = bench.run("probe", ["mnist-lenet1"], repeats=1)
    assert set(ratios) == {"probe/mnist-lenet1/batch100", "probe/mnist-lenet1/batch1"}
    assert all(0 < ratio.low <= ratio.median <= ratio.high for ratio in ratios.values())


def test_nss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "IMAGES", 100)
    reported: list[tuple[int, int]] = []
    ratios = bench.run("nss", ["mnist-lenet1"], repeats=2, progress=lambda done, total: reported.append((done, total)))
    assert list(ratios) == ["nss/mnist-lenet1/paired"]
    assert ratios["nss/mnist-lenet1/paired"].median > 1
    assert reported == [(1, 1)]


@pytest.mark.parametrize("name", coverage.SUBJECTS)
def test_coverage_starts_on_each_of_its_subjects(name: str) -> None:
    """Embedded test sets differ in size: the one of CIFAR-10 is smaller than what the others are measured on."""
    setting, (ours, bare) = next(coverage.coverage_pairs(name))
    assert setting == "kmnc:1000/batch100"
    ours(), bare()


def test_without_names_every_embedded_subject_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(works.WORKS, "nothing", works.Work(lambda name: iter([("a", (lambda: None, lambda: None))])))
    embedded = [subject.name for subject in zoo.catalogue() if subject.embedded]
    assert list(bench.run("nothing", None, repeats=1)) == [f"nothing/{name}/a" for name in embedded]


def test_machine_facts() -> None:
    assert {"cores", "threads", "load", "processor", "system", "python", "torch"} == set(bench.machine())


def test_unknown_benchmark() -> None:
    with refused("unknown-name", "work"):
        bench.run("prob", None, repeats=1)
