"""pytest plug-in: every fault family of a campaign as a test, and assertions for tests of your own.

    pytest --neurotest-faults RUN_OR_FILE --neurotest-target zoo:mnist-lenet5

Nothing slow is imported until a fault is run: pytest starts as quickly as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from neurotest.settings import TargetSettings, declared

if TYPE_CHECKING:
    from pathlib import Path

    from neurotest.campaign.faults import FaultSet

SHOWN = 3  # faults named in a failure
SETTINGS = declared(TargetSettings)  # each as --neurotest-NAME


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("neurotest", "neurotest: faults of neural networks as tests")
    group.addoption(
        "--neurotest-faults",
        metavar="RUN",
        help="A run of fuzz, swarm, attack, diff or illuminate, or a file of `neurotest export --format faults`.",
    )
    group.addoption("--neurotest-target", metavar="SPEC", help="The network to test: zoo:NAME, py:FILE:CALLABLE, pt2:FILE, ...")
    group.addoption("--neurotest-data", metavar="DATA", help="The data that the seeds of a faults file come from.")
    group.addoption("--neurotest-budget", type=int, metavar="N", help="Forward passes at most; families take turns.")
    group.addoption("--neurotest-allow", type=float, default=0.0, metavar="SHARE", help="Share of a family that may fail (0).")
    for name, one in SETTINGS.items():
        text = one.help.replace("%", "%%")  # argparse formats it
        group.addoption(f"--neurotest-{one.option[2:]}", dest=f"neurotest_{name}", metavar=name.upper(), help=text)


class Families(pytest.Collector):
    """All families of a run or a file."""

    def collect(self) -> Iterator[pytest.Item]:
        faults, target = _opened(self.config)
        for family in faults.families:
            yield Family.from_parent(self, name=faults.name(family), faults=faults, target=target, family=family)


class Family(pytest.Item):
    """One family: passes when the target gets its faults right, but for the share that is allowed."""

    def __init__(self, *, faults: FaultSet, target: Any, family: Any, **about: Any) -> None:
        super().__init__(**about)
        self.faults, self.target, self.family = faults, target, family

    def runtest(self) -> None:
        rows = self.faults.families[self.family]
        bad = self.faults.fails(self.target, rows)
        if bad.mean() > self.config.getoption("neurotest_allow"):
            raise AssertionError(_sentence(self.faults, [row for row, wrong in zip(rows, bad, strict=True) if wrong], len(rows)))

    def repr_failure(self, excinfo: Any, style: Any = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("neurotest_faults"):
        return
    node = Families.from_parent(session, name="neurotest", path=config.rootpath, nodeid="neurotest")
    new = list(node.collect())
    items[:] = [*items, *new]


def pytest_configure(config: pytest.Config) -> None:
    faults, target = config.getoption("neurotest_faults"), config.getoption("neurotest_target")
    if bool(faults) != bool(target):
        missing = "--neurotest-target" if faults else "--neurotest-faults"
        raise pytest.UsageError(f"neurotest: {missing} is missing: both say which faults are run on which network.")


def _opened(config: pytest.Config) -> tuple[FaultSet, Any]:
    """The faults and the target that the command line names; what is wrong with them is one sentence."""
    from neurotest.errors import NeurotestError

    described = {name: value for name in SETTINGS if (value := config.getoption(f"neurotest_{name}")) is not None}
    try:
        target = _target(config.getoption("neurotest_target"), described)
        faults = _faults(
            config.getoption("neurotest_faults"), target, config.getoption("neurotest_data"), config.getoption("neurotest_budget")
        )
    except (NeurotestError, OSError) as error:
        raise pytest.UsageError(f"neurotest: {error}") from None
    return faults, target


def _target(target: Any, described: dict[str, Any]) -> Any:
    from neurotest.jobs.opening import open_target
    from neurotest.target.load import load

    kinds = {name: SETTINGS[name].kind for name, value in described.items() if name in SETTINGS and value is not None}
    values = {name: kinds[name].parse(name, value) if name in kinds else value for name, value in described.items()}
    return load(target, **values) if isinstance(target, str) and values else open_target(target)


def _faults(faults: Any, target: Any, data: Any, budget: int | None) -> FaultSet:
    from neurotest.campaign.faults import FaultSet, load_faults

    return faults if isinstance(faults, FaultSet) else load_faults(faults, target, data, budget=budget)


def _sentence(faults: FaultSet, rows: Sequence[int], of: int) -> str:
    examples = "; ".join(f"input {faults.kept[row].position} ({faults.kept[row].change})" for row in rows[:SHOWN])
    return f"{len(rows)} of {of} faults still fail: {examples}{', ...' if len(rows) > SHOWN else ''}"


def assert_fault_rate(
    target: Any, faults: Any, most: float = 0.0, *, data: Any = None, budget: int | None = None, **description: Any
) -> float:
    """At most this share of the kept faults may still fail; returns the share.

    target: a network, a spec with its description (weights=, mean=, ...) or a `neurotest.Target`. faults: a run of `fuzz`, a
    faults file (data: where its seeds are) or a `FaultSet`. budget: forward passes at most.
    """
    __tracebackhide__ = True
    opened = _target(target, description)
    chosen = _faults(faults, opened, data, budget)
    bad = chosen.fails(opened)
    rate = float(bad.mean())
    if rate > most:
        raise AssertionError(
            f"fault rate {rate:.3f} is above {most:g}: {_sentence(chosen, bad.nonzero()[0].tolist(), len(chosen))}"
        )
    return rate


def assert_fixed(target: Any, faults: Any, *, data: Any = None, budget: int | None = None, **description: Any) -> None:
    """None of the kept faults may still fail; the failure names the families that do."""
    __tracebackhide__ = True
    opened = _target(target, description)
    chosen = _faults(faults, opened, data, budget)
    bad = chosen.fails(opened)
    if bad.any():
        names = [chosen.name(family) for family, rows in chosen.families.items() if bad[rows].any()]
        raise AssertionError(f"{_sentence(chosen, bad.nonzero()[0].tolist(), len(chosen))}. Families: {', '.join(names)}")


def assert_coverage(target: Any, data: Any, criterion: str, least: float, *, train: Any = None, **description: Any) -> float:
    """The data must cover at least so much by one criterion (`kmnc:100`); returns the value."""
    __tracebackhide__ = True
    from neurotest.coverage import cover

    content = cover(_target(target, description), data, criterion, train=train).to_dict()
    ((_, one),) = content["criteria"].items()
    value = float(one["value"])
    if value < least:
        raise AssertionError(f"{criterion} covers {value:.4g}, below {least:g}")
    return value
