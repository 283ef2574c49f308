"""The pytest plug-in: families as tests, assertions, the faults file, and what goes wrong, each in a pytest of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from torch import nn

import neurotest
from neurotest.campaign.faults import export_faults, load_faults
from neurotest_pytest import SETTINGS, assert_coverage, assert_fault_rate, assert_fixed

pytest_plugins = ["pytester"]

NETWORK = '''
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """Dark or bright, by the mean; a bias that the weights bring along."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(1, 2)

    def forward(self, x):
        return functional.relu6(6 + self.fc(x.mean(dim=(1, 2, 3))[:, None]))


def build():
    return Net()
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's network with its weights, a folder of photographs and a campaign on them."""
    root = tmp_path_factory.mktemp("stranger")
    (root / "net.py").write_text(NETWORK)
    (root / "classes.txt").write_text("dark\nbright\n")
    random = np.random.default_rng(0)
    for name, level in (("dark", 90), ("bright", 160)):
        (root / "photos" / name).mkdir(parents=True)
        for i in range(6):
            x = np.clip(random.normal(level, 20, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(x).save(root / "photos" / name / f"{i}.png")
    torch.save({"fc.weight": torch.tensor([[-1.0], [1.0]]), "fc.bias": torch.zeros(2)}, root / "old.pt")
    target = neurotest.load(f"py:{root / 'net.py'}:build", **about(root))
    neurotest.fuzz(target, f"dir:{root / 'photos'}", "random", forwards=300, control=False, out=root / "run")
    export_faults(root / "run", root / "faults.json")
    return root


def about(root: Path) -> dict[str, object]:
    return {"weights": root / "old.pt", "mean": [0.5], "std": [0.25], "classes": root / "classes.txt"}


def arguments(root: Path, faults: Path | str, *more: str) -> list[str]:
    described = ["--neurotest-weights", str(root / "old.pt"), "--neurotest-mean", "0.5", "--neurotest-std", "0.25",
                 "--neurotest-classes", str(root / "classes.txt")]  # fmt: skip
    target = ["--neurotest-target", f"py:{root / 'net.py'}:build"]
    return ["-p", "neurotest_pytest", "-p", "no:cacheprovider", "--neurotest-faults", str(faults), *target, *described, *more]


def test_every_family_is_a_test(place: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*arguments(place, place / "run", "--junitxml", "junit.xml"))
    target = neurotest.load(f"py:{place / 'net.py'}:build", **about(place))
    families = load_faults(place / "run", target).families
    assert len(families) > 1
    result.assert_outcomes(failed=len(families))  # the very network they were found on
    result.stdout.fnmatch_lines(["*dark taken for bright after *", "*of * faults still fail: input *"])
    cases = list(ElementTree.parse(pytester.path / "junit.xml").iter("testcase"))
    assert len(cases) == len(families)
    assert all(case.find("failure") is not None for case in cases)
    allowed = pytester.runpytest_inprocess(*arguments(place, place / "run", "--neurotest-allow", "1"))
    allowed.assert_outcomes(passed=len(families))
    few = pytester.runpytest_inprocess(*arguments(place, place / "run", "--neurotest-budget", "2"))
    few.assert_outcomes(failed=2)


def test_a_faults_file_is_replayed_from_the_data(place: Path, pytester: pytest.Pytester) -> None:
    data = ["--neurotest-data", f"dir:{place / 'photos'}"]
    result = pytester.runpytest_inprocess(*arguments(place, place / "faults.json", *data))
    target = neurotest.load(f"py:{place / 'net.py'}:build", **about(place))
    from_run, from_file = (load_faults(one, target, f"dir:{place / 'photos'}") for one in (place / "run", place / "faults.json"))
    assert np.array_equal(from_run.x, from_file.x)
    assert (from_run.changed, from_file.changed) == (0, 0)
    result.assert_outcomes(failed=len(from_file.families))
    content = json.loads((place / "faults.json").read_text())
    assert not {"images", "x"} & content.keys()
    assert str(place) not in (place / "faults.json").read_text()  # nothing of this machine but the network's name
    # The same photographs under other names: they are found by their content.
    other = pytester.mkdir("other")
    for number, file in enumerate(sorted((place / "photos").rglob("*.png"), reverse=True)):
        (other / file.parent.name).mkdir(exist_ok=True)
        (other / file.parent.name / f"z{number:03d}.png").write_bytes(file.read_bytes())
    assert np.array_equal(load_faults(place / "faults.json", target, f"dir:{other}").x, from_run.x)


@pytest.fixture(scope="module")
def others(place: Path) -> Path:
    """An attack and a swarm on the same photographs."""
    target = neurotest.load(f"py:{place / 'net.py'}:build", **about(place))
    photos = f"dir:{place / 'photos'}"
    neurotest.attack(target, photos, "fgsm:eps=0.3", out=place / "attack")
    neurotest.swarm(target, photos, norm="linf", radius=0.3, out=place / "swarm")
    return place


@pytest.mark.parametrize("command", ["attack", "swarm"])
def test_faults_that_follow_no_rule_are_kept_as_what_was_added(others: Path, command: str, pytester: pytest.Pytester) -> None:
    target, photos = neurotest.load(f"py:{others / 'net.py'}:build", **about(others)), f"dir:{others / 'photos'}"
    file = pytester.path / "faults.json"
    result = export_faults(others / command, file)
    from_run, from_file = load_faults(others / command, target), load_faults(file, target, photos)
    assert result["exported"] == len(from_run) > 0
    assert result["left_out"] == 0
    assert np.array_equal(from_run.x, from_file.x)
    assert (from_run.changed, from_file.changed) == (0, 0)
    assert from_file.fails(target).all()
    assert all(not {"x", "image"} & fault.keys() for fault in json.loads(file.read_text())["faults"])
    outcome = pytester.runpytest_inprocess(*arguments(others, file, "--neurotest-data", photos))
    outcome.assert_outcomes(failed=len(from_file.families))


@pytest.mark.parametrize("text", ["", "no base85 \x00", "c$@)x", "x" * 5000])
def test_a_damaged_difference_is_one_sentence(others: Path, text: str, tmp_path: Path) -> None:
    target, file = neurotest.load(f"py:{others / 'net.py'}:build", **about(others)), tmp_path / "faults.json"
    export_faults(others / "attack", file)
    content = json.loads(file.read_text())
    content["faults"][0]["difference"] = text
    file.write_text(json.dumps(content))
    with refused("unreadable"):
        load_faults(file, target, f"dir:{others / 'photos'}")


def test_mistakes_are_one_sentence(place: Path, pytester: pytest.Pytester) -> None:
    damaged = pytester.path / "damaged.json"
    damaged.write_text((place / "faults.json").read_text()[:300])
    strange = pytester.path / "strange.json"
    strange.write_text(json.dumps({"format": "neurotest faults", "version": 1, "faults": [3], "classes": [], "mutations": "x"}))
    code = pytester.path / "code.json"
    code.write_text((place / "faults.json").read_text().replace('"rules95(', '"rules95(judge=py:evil.py:build, '))
    photos = ["--neurotest-data", f"dir:{place / 'photos'}"]
    other = pytester.mkdir("photos")
    (other / "dark").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(other / "dark" / "0.png")
    for faults, more, message in (
        (damaged, photos, "cannot be read as a faults file"),
        (code, photos, "which could run code"),
        (strange, photos, "cannot be read as a faults file"),
        (place / "faults.json", [], "name the data its seeds come from"),
        (place / "faults.json", ["--neurotest-data", f"dir:{other}"], "are not in"),
        (place / "faults.json", ["--neurotest-data", "dir:nowhere"], "nowhere"),
        (place / "nothing", photos, "nothing"),
        (place / "photos", photos, "photos"),
    ):
        result = pytester.runpytest_inprocess(*arguments(place, faults, *more))
        assert result.ret == pytest.ExitCode.USAGE_ERROR, message
        assert message in result.stderr.str(), (message, result.stderr.str(), result.stdout.str())
        assert "Traceback" not in result.stdout.str() + result.stderr.str()
    alone = pytester.runpytest_inprocess("-p", "neurotest_pytest", "--neurotest-faults", "x")
    assert alone.ret == pytest.ExitCode.USAGE_ERROR
    assert "--neurotest-target is missing" in alone.stderr.str()


def test_assertions(place: Path) -> None:
    spec, described = f"py:{place / 'net.py'}:build", about(place)
    assert assert_fault_rate(spec, place / "run", 1.0, **described) == 1.0
    with pytest.raises(AssertionError, match=r"fault rate 1\.000 is above 0.5: .* still fail: input"):
        assert_fault_rate(spec, place / "run", 0.5, **described)
    with pytest.raises(AssertionError, match=r"Families: .*taken for"):
        assert_fixed(spec, place / "faults.json", data=f"dir:{place / 'photos'}", **described)

    class Right(nn.Module):
        """Knows the answers."""

        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.from_numpy(faults.expected[: len(x)])
            return nn.functional.one_hot(y, 2).float() + self.unused

    target = neurotest.load(spec, **described)
    faults = load_faults(place / "run", target)
    assert_fixed(neurotest.Target(Right().eval(), shape=(3, 8, 8)), faults)
    value = assert_coverage(target, f"dir:{place / 'photos'}", "nc:0.5", 0.0)
    with pytest.raises(AssertionError, match="covers"):
        assert_coverage(target, f"dir:{place / 'photos'}", "nc:0.5", value + 1)


def test_gate_by_family(place: Path) -> None:
    target = neurotest.load(f"py:{place / 'net.py'}:build", **about(place))
    result = neurotest.gate(target, target, f"dir:{place / 'photos'}", faults=place / "faults.json")
    assert result.faults is not None
    assert (result.faults.old_right, result.faults.fixed) == (0, 0)
    assert len(result.by_family) == len(load_faults(place / "run", target).families)
    asked = neurotest.gate(target, target, f"dir:{place / 'photos'}", faults=place / "faults.json", min_fixed=0.5)
    assert "are asked for" in asked.headline()
    neurotest.gate(target, target, f"dir:{place / 'photos'}", out=place / "gate")
    with refused("wrong-run"):
        load_faults(place / "gate", target)


def test_the_help_names_every_option(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "neurotest_pytest", "--help")
    assert result.ret == pytest.ExitCode.OK
    assert {f"--neurotest-{one.option[2:]}" for one in SETTINGS.values()} <= set(result.stdout.str().replace("=", " ").split())


def test_starting_pytest_imports_no_torch() -> None:
    code = "import sys, neurotest_pytest; print(sorted({'torch', 'numpy', 'typer', 'rich'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(Path(neurotest.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"
