"""What must hold in whole jobs: no code of strangers, no fault that does not fail again, limits that survive a resume,
files that read back as they were written, profiles that are made once per network."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from torch import Tensor, nn

import neurotest
from neurotest.data.source import ArraySource, content_ids
from neurotest.errors import Interrupted
from neurotest.runs.store import Run
from neurotest.target import Target

MODEL = """
from pathlib import Path

import torch
from torch import nn

(Path(__file__).parent / "imported").touch()


def build(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()


def other():
    return build(4)
"""

Job = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A network as a file, and seeds."""
    place = tmp_path / "user"
    place.mkdir()
    (place / "model.py").write_text(MODEL)
    np.savez(place / "seeds.npz", x=np.random.default_rng(0).integers(0, 256, (40, 1, 8, 8), dtype=np.uint8))
    return place


def start_attack(folder: Path, **options: Any) -> Any:
    return neurotest.attack(f"py:{folder}/model.py:build", f"npz:{folder}/seeds.npz#x", "fgsm:0.3", batch=5, **options)


def start_diff(folder: Path, **options: Any) -> Any:
    targets = [f"py:{folder}/model.py:{name}" for name in ("build", "other")]
    return neurotest.diff(targets, f"npz:{folder}/seeds.npz#x", "deepxplore:free,step=0.1,eps=0.3", batch=5, **options)


def start_illuminate(folder: Path, **options: Any) -> Any:
    return neurotest.illuminate(f"py:{folder}/model.py:build", f"npz:{folder}/seeds.npz#x", 400, **options)


GENERATORS = {"attack": start_attack, "diff": start_diff, "illuminate": start_illuminate}


def interrupted(command: str, folder: Path) -> Path:
    """A run of this command that was stopped after its first part."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        GENERATORS[command](folder, out=folder / "run", progress=stop)
    (folder / "imported").unlink()
    return folder / "run"


def resume(command: str, run: Path, *targets: str) -> Any:
    """What `neurotest COMMAND --resume RUN` does, with targets and seeds named again or not."""
    named = {"diff": list(targets)}.get(command, targets[0] if targets else None)
    seeds = f"npz:{run.parent}/seeds.npz#x" if targets else None
    return getattr(neurotest, command)(named or None, seeds, resume=run)


# -- a stored target runs code: only if this user made the run here


@pytest.mark.parametrize("command", GENERATORS)
def test_a_run_made_here_needs_no_target(command: str, folder: Path) -> None:
    run = interrupted(command, folder)
    assert len(resume(command, run)) > 0
    assert (folder / "imported").exists()


@pytest.mark.parametrize("command", GENERATORS)
def test_a_resumed_run_stays_where_it_is(command: str, folder: Path, tmp_path: Path) -> None:
    run = interrupted(command, folder)
    with refused("conflict", "out"):
        getattr(neurotest, command)(resume=run, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("command", GENERATORS)
def test_a_run_from_elsewhere_does_not_run_its_target(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = interrupted(command, folder)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "of somebody else"))
    with refused("untrusted", "target"):
        resume(command, run)
    assert not (folder / "imported").exists()
    names = ["build", "other"] if command == "diff" else ["build"]
    assert len(resume(command, run, *(f"py:{folder}/model.py:{name}" for name in names))) > 0


@pytest.mark.parametrize("command", GENERATORS)
def test_a_run_that_came_back_changed_does_not_run_its_target(command: str, folder: Path) -> None:
    run = interrupted(command, folder)
    (folder / "evil.py").write_text(MODEL)
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("UPDATE meta SET value = replace(value, 'model.py', 'evil.py') WHERE key = 'config'")
    database.close()
    with refused("untrusted", "target"):
        resume(command, run)
    assert not (folder / "imported").exists()


@pytest.mark.parametrize("command", GENERATORS)
def test_the_command_line_refuses_it_too(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from neurotest.cli.app import main

    run = interrupted(command, folder)
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "of somebody else"))
    monkeypatch.setattr("sys.argv", ["neurotest", command, "--resume", str(run)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "untrusted run" in capsys.readouterr().err
    assert not (folder / "imported").exists()


# -- a fault fails again


class Wavering(nn.Module):
    """Answers every second image that it has not seen before with another class, and honestly from then on."""

    def __init__(self, seeds: np.ndarray) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.act, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(4 * 64, 3)
        self.seen = set(content_ids(seeds).tolist())
        self.lied: list[str] = []

    def honest(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.act(self.conv(x)).flatten(1))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        logits = self.honest(x)
        for row, content in enumerate(content_ids((x * 255).round().to(torch.uint8).numpy()).tolist()):
            if content not in self.seen and int(content, 16) % 2:
                logits[row] = logits[row].roll(1)
                self.lied.append(content)
            self.seen.add(content)
        return logits


def wavering() -> tuple[Wavering, Target, ArraySource]:
    x = np.random.default_rng(0).integers(0, 200, (30, 1, 8, 8), dtype=np.uint8)
    module = Wavering(x).eval()
    target = Target(module, shape=(1, 8, 8))
    with torch.inference_mode():
        labels = module.honest(torch.from_numpy(x).float() / 255).argmax(1).numpy()
    return module, target, ArraySource(x, labels)


@pytest.mark.parametrize("guide", ["random", "nlc"])
def test_what_fails_only_once_is_no_fault_but_counted(guide: str, tmp_path: Path) -> None:
    module, target, seeds = wavering()
    result = neurotest.fuzz(target, seeds, guide, forwards=1500, control=False, out=tmp_path / "run")
    with Run.open(tmp_path / "run") as run:
        rows = run.rows("SELECT content, expected, oracle, file FROM mutant")
    failing = [row for row in rows if row[2] is not None]
    assert len(failing) == result.faults
    files = [tmp_path / "run" / name for *_, name in failing if name is not None]
    images = np.stack([np.asarray(Image.open(file))[None] for file in files])
    with torch.inference_mode():
        predicted = module.honest(torch.from_numpy(images).float() / 255).argmax(1).tolist()
    assert all(p != expected for p, expected in zip(predicted, [row[1] for row in failing if row[3] is not None], strict=True))
    assert {content for content, _, oracle, _ in rows if oracle is None} & set(module.lied)  # output, but not as faults
    assert result.to_dict()["unstable"] > 10


def test_unstable_ones_are_exactly_those_that_failed_once() -> None:
    """Every image is either right at first, or fails twice, or is counted as unstable."""
    module, target, seeds = wavering()
    outputs: list[Any] = []
    result = neurotest.fuzz(
        target,
        seeds,
        "random",
        forwards=1500,
        control=False,
        out=False,
        watch=lambda fuzzer, mutants, new: outputs.extend(mutants),
    )
    with torch.inference_mode():
        honest = module.honest(torch.from_numpy(np.stack([m.x for m in outputs])).float() / 255).argmax(1).tolist()
    lied = set(module.lied)
    for mutant, predicted in zip(outputs, honest, strict=True):
        assert mutant.fault == (mutant.predicted != mutant.expected and predicted != mutant.expected)
    once = sum(m.content in lied and m.predicted != m.expected and not m.fault for m in outputs)
    # With random guidance all that ran is output, except what came after the first accepted one of a turn.
    assert 10 < once <= result.to_dict()["unstable"]


# -- bytes of images that were written count after a resume


def images(run: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in run.glob("faults/*")}


@pytest.mark.parametrize("ended", ["interrupted", "killed"])
def test_the_limit_of_the_disk_holds_over_a_resume(ended: str, tmp_path: Path) -> None:
    target, seeds = network(), sources()["8-bit"]
    options: dict[str, Any] = {"iterations": 400, "batch": 16, "keep": 1000, "oracle": "metamorphic", "control": False}
    every = neurotest.fuzz(target, seeds, "random", out=tmp_path / "every", **options)
    limit = sum(images(tmp_path / "every").values()) / 2
    whole = neurotest.fuzz(target, seeds, "random", out=tmp_path / "whole", disk=limit, **options)
    assert 3 < len(images(tmp_path / "whole")) < len(images(tmp_path / "every")) - 3
    assert whole.faults == every.faults

    def stop() -> bool:
        return sum(images(tmp_path / "parts").values()) > limit / 2

    def die(fuzzer: Any, mutants: Any, new: Any) -> None:
        if stop():
            raise ZeroDivisionError

    how: dict[str, Any] = {"watch": die} if ended == "killed" else {"stop": stop}
    with pytest.raises(ZeroDivisionError if ended == "killed" else Interrupted):
        neurotest.fuzz(target, seeds, "random", out=tmp_path / "parts", disk=limit, **how, **options)
    assert sum(images(tmp_path / "parts").values()) < limit
    neurotest.fuzz(target, seeds, resume=tmp_path / "parts")
    assert images(tmp_path / "parts") == images(tmp_path / "whole")


# -- what is saved is what failed


class BadDisk:
    """Files of faults come out with one value changed, and are otherwise well-formed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken: list[str] = []
        self._replace = os.replace
        monkeypatch.setattr(os, "replace", self.replace)

    def replace(self, source: Any, to: Any, **folders: int) -> None:
        name, folder = Path(to).name, folders.get("src_dir_fd")
        part = Path(source) if folder is None else Path(f"/proc/self/fd/{folder}/{source}")
        if name.startswith("fault-") and not name.endswith("view.png"):
            content = part.read_bytes()
            if name.endswith(".png"):
                pixels = np.array(Image.open(io.BytesIO(content)))
                pixels.flat[0] ^= 1
                buffer = io.BytesIO()
                Image.fromarray(pixels).save(buffer, "png")
                content = buffer.getvalue()
            else:
                content = content[:-1] + bytes([content[-1] ^ 1])
            part.write_bytes(content)
            self.broken.append(name)
        self._replace(source, to, **folders)


def sources() -> dict[str, ArraySource]:
    x = np.random.default_rng(0).integers(0, 200, (30, 1, 8, 8), dtype=np.uint8)
    return {"8-bit": ArraySource(x), "float": ArraySource((x / 255).astype(np.float32))}


def network() -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    return Target(module.eval(), shape=(1, 8, 8))


@pytest.mark.parametrize("kind", ["8-bit", "float"])
@pytest.mark.parametrize("command", ["fuzz", "attack"])
def test_a_fault_that_reads_back_otherwise_is_refused(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> Any:
        if command == "attack":
            return neurotest.attack(network(), sources()[kind], "fgsm:0.4", out=tmp_path / "run")
        options: dict[str, Any] = {"iterations": 200, "oracle": "metamorphic", "control": False}
        return neurotest.fuzz(network(), sources()[kind], "random", out=tmp_path / "run", **options)

    disk = BadDisk(monkeypatch)
    with refused("not-writable", "snapshot" if command == "fuzz" else ""):
        work()
    assert disk.broken
    with Run.open(tmp_path / "run") as run:
        assert run["state"] != "done"


# -- one profile per network and training data


class Counting(nn.Module):
    """Counts its inputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.act, self.last = nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
        self.inputs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.inputs += len(x)
        logits: Tensor = self.last(self.act(self.first(x)))
        return logits


def passes(seed: int, train: ArraySource, criterion: str = "kmnc:10") -> tuple[int, float]:
    """How many inputs a network ran for one measurement, and what came out."""
    module = Counting(seed).eval()
    tests = ArraySource(np.random.default_rng(1).random((8, 6), dtype=np.float32))
    result = neurotest.cover(Target(module, shape=(6,)), tests, [criterion], train=train)
    return module.inputs, float(result[criterion].value.value)


def test_networks_do_not_drive_each_other_out_of_the_cache() -> None:
    x = np.random.default_rng(0).random((200, 6), dtype=np.float32)
    train, other = ArraySource(x), ArraySource(x[::-1].copy())
    first = {seed: passes(seed, train) for seed in (1, 2)}
    again = {seed: passes(seed, train) for seed in (1, 2)}
    for seed in (1, 2):
        assert again[seed][1] == first[seed][1]
        assert again[seed][0] < len(train) < first[seed][0]  # the training data was not run again
    assert first[1][1] != first[2][1]
    assert passes(1, train, "kmnc:10,neuron=unit")[0] == first[1][0]  # other neurons, another profile
    assert passes(1, other)[0] == first[1][0]  # other training data, another profile
    assert passes(1, train)[0] == again[1][0]


# -- the interval beside a fault detection rate


@pytest.mark.parametrize("budget", [30, 100])
def test_select_gives_the_interval_of_a_plain_bootstrap(budget: int) -> None:
    """The pool resampled, each resample in the order of the scores, its first ones counted."""
    module, random, draws = Counting(1).eval(), np.random.default_rng(0), 20_000
    x = random.random((200, 6), dtype=np.float32)
    with torch.inference_mode():
        labels = module(torch.from_numpy(x)).argmax(1).numpy()
    labels = np.where(random.random(200) < 0.4, (labels + 1) % 3, labels)
    result = neurotest.select(Target(module, shape=(6,)), ArraySource(x, labels), "deepgini", budget).to_dict()
    order = np.array(neurotest.select(Target(module, shape=(6,)), ArraySource(x, labels), "deepgini", 200).to_dict()["indices"])
    with torch.inference_mode():
        faults = (module(torch.from_numpy(x)).argmax(1).numpy() != labels)[order]
    places = np.sort(random.integers(0, 200, (draws, 200)), axis=1)[:, :budget]
    rates = faults[places].mean(axis=1)
    assert result["fdr"] == pytest.approx(faults[:budget].mean())
    for end, share in zip(result["fdr_interval"], (0.025, 0.975), strict=True):
        # Its draws are 2000: four standard errors of a percentile, in percentiles of ours.
        error = 4 * np.sqrt(share * (1 - share) / 2000)
        low, high = np.quantile(rates, [share - error, min(1, share + error)])
        assert low - 1e-9 <= end <= high + 1e-9
