"""The training loop on tiny data: resuming changes nothing, another recipe starts anew."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from neurotest import zoo
from neurotest.data import ArraySource
from neurotest.errors import BadInput
from neurotest.train import Report, Training, TrainingStep, accuracy, subjects, train
from neurotest.train.loop import augment_audio
from neurotest.zoo.recipes import Recipe

RECIPE = Recipe(epochs=3, batch=8, rate=0.01, flip=True, crop=1)


def source(n: int = 40) -> ArraySource:
    """Images that are bright on the left or on the right."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, n)
    x = random.integers(0, 100, (n, 1, 6, 6)).astype(np.uint8)
    x[labels == 1, :, :3] += 120
    return ArraySource(x, labels, spec="two halves")


def network() -> nn.Module:
    """With dropout and batch normalisation: both carry state that a careless resume loses."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 2))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


class Killed(Exception):
    pass


def stop_in(epoch: int) -> Report:
    def report(step: TrainingStep) -> None:
        if step.epoch == epoch:
            raise Killed

    return report


@pytest.mark.parametrize("epoch", [2, 3])
def test_killed_and_resumed_gives_the_same_weights(tmp_path: Path, epoch: int) -> None:
    whole = train(network(), source(), RECIPE)
    with pytest.raises(Killed):
        train(network(), source(), RECIPE, checkpoint=tmp_path / "c", report=stop_in(epoch))
    steps: list[TrainingStep] = []
    resumed = train(network(), source(), RECIPE, checkpoint=tmp_path / "c", report=steps.append)
    assert steps[0].epoch == epoch
    assert same(whole, resumed)


def test_equal_seeds_give_equal_weights() -> None:
    first = train(network(), source(), RECIPE)
    assert same(first, train(network(), source(), RECIPE))
    assert not same(first, train(network(), source(), dataclasses.replace(RECIPE, seed=1)))


def test_the_global_generator_is_left_alone() -> None:
    training = Training(network(), RECIPE)
    state = torch.get_rng_state()
    training.run(source())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_of_another_recipe_starts_anew(tmp_path: Path) -> None:
    train(network(), source(), dataclasses.replace(RECIPE, rate=0.5), checkpoint=tmp_path / "c")
    steps: list[TrainingStep] = []
    trained = train(network(), source(), RECIPE, checkpoint=tmp_path / "c", report=steps.append)
    assert steps[0].epoch == 1
    assert same(trained, train(network(), source(), RECIPE))


def test_a_damaged_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"no checkpoint")
    with pytest.raises(BadInput, match="delete it to start again"):
        train(network(), source(), RECIPE, checkpoint=tmp_path / "c")


def test_progress_ends_at_the_end() -> None:
    steps: list[TrainingStep] = []
    training = Training(network(), RECIPE)
    training.run(source(), steps.append)
    assert [step.epoch for step in steps] == [1, 1, 2, 2, 3, 3]
    assert steps[-1].done == 1
    assert steps[-1].left == 0
    assert all(step.left > 0 for step in steps[:-1])
    assert training.seconds > 0


def test_it_learns() -> None:
    assert accuracy(train(network(), source(200), dataclasses.replace(RECIPE, epochs=6)), source(200)) > 0.9


def test_a_subject_is_trained_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    digits = ArraySource(random.integers(0, 256, (40, 1, 28, 28)).astype(np.uint8), np.arange(40) % 10, spec="digits")
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    monkeypatch.setattr(subjects, "data", lambda spec: digits)
    monkeypatch.setattr(zoo, "folders", lambda: (tmp_path / "nothing embedded",))
    monkeypatch.setitem(zoo.RECIPES, "mnist-lenet1", Recipe(epochs=2, batch=16, stored="float16"))  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        subjects.train_subject("mnist-lenet1", report=stop_in(2))
    assert [file.name for file in (tmp_path / "zoo").iterdir()] == ["mnist-lenet1.checkpoint"]
    path, about = subjects.train_subject("mnist-lenet1")
    assert [file.name for file in (tmp_path / "zoo").iterdir()] == [path.name]
    subject = zoo.find("mnist-lenet1")
    assert subject.about == about
    assert about["recipe"] == "2 epochs, batch 16, adam OneCycle up to 0.001, rounded to float16, seed 0"
    module = subject.load()
    assert next(module.parameters()).dtype == torch.float32
    assert round(accuracy(module, digits), 4) == about["accuracy"]


def test_labels_are_needed() -> None:
    bare = ArraySource(np.zeros((2, 1, 6, 6), np.uint8), None, spec="bare")
    with pytest.raises(BadInput, match="bare has no labels"):
        train(network(), bare, RECIPE)


def test_unknown_optimiser() -> None:
    with pytest.raises(BadInput, match="expected adam or sgd"):
        train(network(), source(), dataclasses.replace(RECIPE, optimiser="lion"))


def test_what_is_judged_is_what_is_stored() -> None:
    module = network().eval()
    rounded = subjects._rounded(module, "float16")
    stored = subjects._stored(rounded, "float16")
    assert stored["0.weight"].dtype == torch.float16
    assert stored["1.num_batches_tracked"].dtype == torch.int64
    assert torch.equal(stored["0.weight"].float(), rounded.state_dict()["0.weight"])


class Steps:
    """A lesson without data: the one weight is drawn towards 1."""

    def __len__(self) -> int:
        return 8

    def start(self, epoch: int) -> None:
        pass

    def ahead(self, module: nn.Module, rows: torch.Tensor) -> None:
        pass

    def loss(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return (module(torch.ones(1, 1)) - 1).square().sum()


def one_weight() -> nn.Module:
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def test_mean_weights_by_hand() -> None:
    """Plain gradient descent with rate 0.1: w = 1 - 0.8^k after k steps; the mean starts with the first, keeps a
    quarter of it at the second step, then (1 + k) / (10 + k), and never more than it shall."""
    recipe = Recipe(epochs=1, batch=2, optimiser="sgd", momentum=0.0, rate=0.1, schedule="constant", average=0.3)
    with pytest.raises(ValueError, match="Nesterov"):
        Training(one_weight(), recipe).fit(Steps())
    recipe = dataclasses.replace(recipe, momentum=1e-12)
    mean = 0.2
    for k in (2, 3, 4):
        keep = {2: 3 / 12, 3: 0.3, 4: 0.3}[k]  # 4 / 13 and 5 / 14 would be more
        mean = keep * mean + (1 - keep) * (1 - 0.8**k)
    module = Training(one_weight(), recipe).fit(Steps())
    assert float(module.weight.detach()) == pytest.approx(mean, abs=1e-5)


def test_the_rate_falls_to_a_tenth_at_each_drop() -> None:
    recipe = Recipe(epochs=4, batch=2, optimiser="sgd", rate=0.1, schedule="steps", drops=(0.5, 0.75))
    rates: list[float] = []
    training_ = Training(one_weight(), recipe)

    class Noted(Steps):
        def start(self, epoch: int) -> None:
            rates.append(training_.optimiser.param_groups[0]["lr"])

    training_.fit(Noted())
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001])


def test_training_stops_when_nothing_gets_better_and_keeps_the_best() -> None:
    judged = iter([0.1, 0.5, 0.4, 0.5, 0.3])
    seen: list[float] = []

    def judge(module: nn.Module) -> float:
        seen.append(float(module.weight.detach()))
        return next(judged)

    recipe = Recipe(epochs=9, batch=8, optimiser="sgd", rate=0.01, schedule="constant", patience=2)
    training_ = Training(one_weight(), recipe, judge=judge)
    module = training_.fit(Steps())
    assert training_.epoch == 4  # neither the third nor the fourth is better than the second
    assert float(module.weight.detach()) == seen[3]  # of equal ones the latest


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(BadInput, match="schedule='cosine'"):
        Training(one_weight(), Recipe(epochs=1, schedule="cosine")).fit(Steps())


@pytest.mark.parametrize("epoch", [2, 3])
def test_mean_and_best_weights_survive_a_kill(tmp_path: Path, epoch: int) -> None:
    recipe = dataclasses.replace(RECIPE, average=0.9, patience=5)

    def judged(checkpoint: Path | None = None, report: Report | None = None) -> nn.Module:
        judge = lambda module: accuracy(module, source())  # noqa: E731
        return Training(network(), recipe, checkpoint=checkpoint, judge=judge).run(source(), report)

    whole = judged()
    with pytest.raises(Killed):
        judged(tmp_path / "c", stop_in(epoch))
    assert same(whole, judged(tmp_path / "c"))


def test_sounds_are_shifted_amplified_and_get_noise() -> None:
    x = torch.zeros(50, 1, 100)
    x[:, :, 50] = 0.25
    random = np.random.default_rng(0)
    shifted = augment_audio(x, Recipe(epochs=1, crop=10), random)
    places = shifted.argmax(2)[:, 0]
    assert (shifted.sum(2) == 0.25).all()
    assert places.min() >= 40
    assert places.max() <= 60
    assert len(places.unique()) > 10
    louder = augment_audio(x, Recipe(epochs=1, gain=6.0), random).amax(2) / 0.25
    assert louder.min() >= 10 ** (-6 / 20) - 1e-4
    assert louder.max() <= 10 ** (6 / 20) + 1e-4
    assert len(louder.unique()) > 40
    tone = 0.5 * torch.sin(torch.arange(4000) / 3).expand(50, 1, 4000)
    noise = augment_audio(tone, Recipe(epochs=1, noise=10.0), random) - tone
    below = 10 * torch.log10(tone.square().mean(2) / noise.square().mean(2))
    assert below.min() > 9
    assert below.max() < 41
    assert below.max() - below.min() > 20


def test_a_network_learns_sounds() -> None:
    """Low against high tones, through the same loop as images."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 64)
    phase = random.uniform(0, 6, (64, 1))
    x = 9000 * np.sin(np.where(labels, 0.9, 0.2)[:, None] * np.arange(256) + phase) + random.normal(0, 300, (64, 256))
    sounds = ArraySource(x[:, None].round().astype(np.int16), labels, spec="tones")
    from neurotest.zoo.audio import LogMel

    torch.manual_seed(0)
    front = LogMel(8000, window=64, hop=32, bands=8)
    module = nn.Sequential(front, nn.Flatten(), nn.Linear(8 * 7, 2))
    trained = train(module, sounds, Recipe(epochs=8, batch=16, rate=0.02, crop=8, gain=3.0, noise=10.0))
    assert accuracy(trained, sounds) > 0.95
