"""What the package promises before anything is loaded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import neurotest

ROOT = Path(__file__).parents[2]
SLOW = ("torch", "kornia", "sklearn")
LIGHT = (
    "neurotest",
    "neurotest.errors",
    "neurotest.registry",
    "neurotest.rng",
    "neurotest.files",
    "neurotest.stats",
    "neurotest.runs",
)


def in_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("module", LIGHT)
def test_the_ground_floor_imports_nothing_slow(module: str) -> None:
    loaded = json.loads(in_new_process(f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"))
    assert not set(SLOW) & set(loaded)


def test_every_public_name_can_be_reached_from_the_package() -> None:
    missing = in_new_process("import neurotest; print([n for n in neurotest.__all__ if not hasattr(neurotest, n)])")
    assert missing.strip() == "[]"


@pytest.mark.parametrize("first", ["neurotest.scan", "neurotest.select", "neurotest.data.spec"])
def test_functions_that_share_a_name_with_a_package_stay_callable(first: str) -> None:
    """Importing a subpackage sets it as an attribute of neurotest: that must not hide the function of the same name."""
    code = f"import {first}, neurotest; print([n for n in ('data', 'scan', 'select') if not callable(getattr(neurotest, n))])"
    assert in_new_process(code).strip() == "[]"


COUNTED = """
import sys
from neurotest.cli.app import main
main()
print(sum(name.partition(".")[0] == "neurotest" for name in sys.modules))
"""


@pytest.mark.parametrize(("page", "most"), [("--no-report", 120), (None, 200)])
def test_a_selection_imports_what_it_needs(page: str | None, most: int, tmp_path: Path) -> None:
    """One method of all, and of the sections those of its page."""
    words = ["zoo:fashion-lenet5", "zoo:fashion-mnist/test[:100]", "--method", "deepgini", "--budget", "5", "--out", "run"]
    command = [sys.executable, "-c", COUNTED, "select", *words, *([page] if page else [])]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").exists() == (page is None)
    assert int(ended.stdout.split()[-1]) <= most


def test_embedded_data_weights_and_scripts_of_others_are_named_in_the_notice() -> None:
    root = Path(__file__).parents[2]
    notice = (root / "NOTICE").read_text()
    embedded = [
        file.relative_to(root).as_posix()
        for place in ("src/neurotest/zoo", "lab/src/neurotest_lab/zoo", "src/neurotest/report/templates/vendor")
        for file in (root / place).rglob("*")
        if file.suffix not in (".py", ".pyc") and file.is_file()
    ]
    assert len(embedded) > 20
    families = {name.rsplit("/", 1)[1].split("-")[0] + "-" for name in embedded if "/weights/" in name}
    assert [name for name in embedded if "/weights/" not in name and name not in notice] == []
    assert [family for family in families if family not in notice] == []


def test_every_file_of_a_release_has_the_same_version() -> None:
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lab["version"] == neurotest.__version__
    assert f"neurotest>={neurotest.__version__.rpartition('.')[0]}" in lab["dependencies"]
    assert f"\nversion: {neurotest.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {neurotest.__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_lines_for_the_next_version_are_named_as_the_changelog_needs_them() -> None:
    names = [file.name for file in (ROOT / "changes").iterdir() if file.name != "README.md"]
    assert [name for name in names if not re.fullmatch(r"[0-9]+\.(added|changed|fixed|removed)(\.[0-9]+)?\.md", name)] == []


def test_the_workflow_tries_every_system_and_version_of_python() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs: pip install 'neurotest[dev]'")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    checks, package = workflow["jobs"]["checks"], workflow["jobs"]["package"]
    assert ".ci/run" in [step.get("run") for step in checks["steps"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.[0-9]+$", text)]
    assert package["strategy"]["matrix"]["python"] == versions
    assert package["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest", "windows-latest"]


def lock(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parents[2] / "scripts" / "lock.py"
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)


def test_the_lock_has_the_pinned_versions() -> None:
    checked = lock("check")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("changed", [False, True])
def test_an_installed_file_with_another_hash_is_named(tmp_path: Path, changed: bool) -> None:
    text = (Path(__file__).parents[2] / "constraints.lock").read_text()
    match = re.search(r"^numpy==(\S+) [^=]+--hash=sha256:(\w{64})", text, re.M)
    assert match
    digest = "0" * 64 if changed else match[2]
    download = {"archive_info": {"hashes": {"sha256": digest}}}
    report = {"install": [{"metadata": {"name": "NumPy", "version": match[1]}, "download_info": download}]}
    (tmp_path / "report.json").write_text(json.dumps(report))
    checked = lock("check", str(tmp_path / "report.json"))
    assert checked.returncode == int(changed)
    assert ("numpy" in checked.stdout) == changed


def test_a_program_of_ones_own_that_is_started_by_python_m_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__init__.py").write_text("import neurotest")
    (tmp_path / "program" / "run.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("print('found')")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-m", "program.run", "-m", "neurotest"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "found\n", done.stderr


def test_a_package_that_brings_no_folder_to_the_zoo_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("")
    about = tmp_path / "plain-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[neurotest.zoo]\nplain = plain\n")
    code = "from neurotest import zoo; print(zoo.find('fashion-lenet5').embedded)"
    assert in_new_process(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}").strip() == "True"
