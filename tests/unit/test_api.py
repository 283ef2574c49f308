"""The public Python interface changes only together with a line for its users."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import neurotest

pytestmark = pytest.mark.plain
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def api() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api", ROOT / "scripts" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_signatures_are_those_of_the_release_or_noted_as_changed(api: ModuleType) -> None:
    stored = api.stored()
    changed = api.changes(stored["released"], api.current())
    different = [name for name in {**changed, **stored["changed"]} if changed.get(name) != stored["changed"].get(name)]
    assert different == [], (
        f"the signature of {', '.join(different)} has changed: run `python scripts/api.py`, which updates tests/golden/api.json, "
        "and add a line to changes/ that names it"
    )


def test_every_changed_signature_has_a_line_in_changes(api: ModuleType) -> None:
    missing = api.without_a_line(api.stored()["changed"])
    assert missing == [], f"the signature of {', '.join(missing)} has changed: add a line to changes/ that names it"


def test_the_released_interface_is_that_of_this_version(api: ModuleType) -> None:
    assert api.stored()["version"] == neurotest.__version__, "a new version: run `python scripts/api.py --release`"


def test_signatures_hold_nothing_of_this_machine_or_process(api: ModuleType) -> None:
    texts = [f"{name}{text}" for name, text in api.current().items()]
    assert [text for text in texts if " at 0x" in text or str(Path.home()) in text or sys.prefix in text] == []


def test_what_counts_as_a_change_and_as_a_line(api: ModuleType, tmp_path: Path) -> None:
    changed = api.changes(
        {"select": "(a)", "Run.open": "(b)", "gone": "()"}, {"select": "(a, c)", "Run.open": "(b)", "new": "()"}
    )
    assert changed == {"gone": None, "new": "()", "select": "(a, c)"}
    (tmp_path / "README.md").write_text("`select`, `new`, `gone`")  # no line for users
    (tmp_path / "7.changed.md").write_text("`neurotest.select_all` is `new`. `gone` went.")
    assert api.without_a_line(changed, tmp_path) == ["select"]
    (tmp_path / "7.changed.1.md").write_text("`select(target, pool)` takes `c`; so does `Run.open`.")
    assert api.without_a_line({**changed, "Run": "", "Run.open": ""}, tmp_path) == ["Run"]
