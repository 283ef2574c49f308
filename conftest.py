"""Settings that have to be made before torch is imported, for those who start pytest without make; and the count of peers.

With NEUROTEST_PEERS=required a test that compares with somebody else's package must run: a skip is a failure, and so is a run in
which one of the packages was compared with by no test. NEUROTEST_MODELS=required is the same for libraries of networks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# How long anything takes says something about the machine only.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests themselves run in parallel

PEERS = ("captum", "cleanlab", "foolbox", "torchmetrics", "dnn_tip", "art", "onnxruntime", "mlflow", "wandb")
MODELS = ("timm", "torchvision", "transformers")
REQUIRED = {
    marker: names
    for marker, names in (("peer", PEERS), ("models", MODELS))
    if os.environ.get({"peer": "NEUROTEST_PEERS", "models": "NEUROTEST_MODELS"}[marker]) == "required"
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-case", action="store_true", help="the first case of every test, for each package: a sample")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--one-case"):
        return
    first: dict[tuple[object, ...], pytest.Item] = {}
    for item in items:
        packages = [marker.args for name in ("peer", "models") for marker in item.iter_markers(name)]
        first.setdefault((item.parent, getattr(item, "originalname", item.name), *packages), item)
    chosen = set(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def pytest_configure(config: pytest.Config) -> None:
    if REQUIRED and not hasattr(config, "workerinput"):  # not in a worker of pytest-xdist
        config.pluginmanager.register(Compared())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("ray") and report.skipped and os.environ.get("NEUROTEST_RAY") == "required":
        report.outcome, report.longrepr = "failed", f"a skip, although tests with Ray are required: {reason(report)}"
    for name in ("peer", "models"):
        marker = item.get_closest_marker(name)
        if marker is None:
            continue
        report.user_properties.append((name, marker.args[0]))
        if name in REQUIRED and report.skipped:
            report.outcome, report.longrepr = "failed", f"a skip, although every {name} test is required: {reason(report)}"
    return report


def reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


class Compared:
    """Counts the tests passed by peer; with pytest-xdist the reports of the workers arrive here too."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.update({str(name) for key, name in report.user_properties if key in REQUIRED})

    def missing(self) -> list[str]:
        return [name for names in REQUIRED.values() for name in names if not self.passed[name]]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.missing():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = ", ".join(f"{name} {self.passed[name]}" for names in REQUIRED.values() for name in names)
        terminalreporter.write_line(f"tests passed by package: {counts}")
        if self.missing():
            terminalreporter.write_line(f"compared with no test: {', '.join(self.missing())}. The run counts as failed.")
