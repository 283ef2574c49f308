"""A learner of the seeds' mutants: it recognises what is still there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from neurotest.mutate import recognition
from neurotest.mutate.chain import Mutation, replay
from neurotest.mutate.recognition import Recognition, _moves, _Recogniser, _undone
from neurotest.mutate.rules import Rules95

pytestmark = pytest.mark.by_hand

RULES = Rules95(units="image", contrast=1.0, bilateral=False)


def figures(n: int, size: int = 20, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """Crosses, rings and bars, each a little different."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    images, classes = [], np.arange(n) % 3
    for kind in classes:
        a, b = size / 2 - 0.5 + random.uniform(-1, 1, 2)
        radius = np.hypot(y - a, x - b)
        shape = [
            (np.abs(y - a) < 2) | (np.abs(x - b) < 2),
            np.abs(radius - size / 4) < 1.5,
            (np.abs(y - a - 4) < 1.5) | (np.abs(y - a + 4) < 1.5),
        ][kind] & (radius < size / 2.5)
        images.append(np.clip(shape * random.uniform(0.6, 1.0) + random.normal(0, 0.03, (size, size)), 0, 1))
    return torch.from_numpy(np.stack(images)[:, None]).float(), classes


@pytest.fixture(scope="module")
def learned() -> Recognition:
    x, classes = figures(60)
    return Recognition.of(x, classes, 3, RULES)


def test_mutants_are_recognised_and_ruins_are_not(learned: Recognition) -> None:
    x, classes = figures(60)
    roots = np.arange(60)
    assert float((learned.classes(x, [()] * 60, roots) == classes).mean()) > 0.9
    chains = [(Mutation("rotation", (20.0,)), Mutation("brightness", (60.0,)))] * 60
    assert float((learned.classes(replay(RULES, x, chains), chains, roots) == classes).mean()) > 0.85
    for ruin in (torch.zeros_like(x), torch.rand(x.shape, generator=torch.Generator().manual_seed(0))):
        assert float((learned.classes(ruin, [()] * 60, roots) == classes).mean()) < 0.6  # a third by luck


def test_no_mutant_is_judged_by_a_learner_that_knows_its_seed() -> None:
    """Seeds of the even half have wrong classes: only mutants of odd ones, judged by what the even half taught, suffer."""
    x, classes = figures(60)
    wrong = np.where(np.arange(60) % 2 == 0, (classes + 1) % 3, classes)
    learned = Recognition.of(x, wrong, 3, RULES)
    right = learned.classes(x, [()] * 60, np.arange(60)) == classes
    assert right[::2].mean() > 0.9
    assert right[1::2].mean() < 0.1


def test_ridge_regression_against_the_normal_equations() -> None:
    x, classes = figures(30)
    one = _Recogniser.fit(recognition._looked_at(x), classes, 3, np.random.default_rng(0))
    features = recognition._features(x, one.filters).double().numpy()
    centred = features - features.mean(0)
    y = np.eye(3)[classes]
    gram = centred.T @ centred
    gram += np.eye(len(gram)) * (recognition.RIDGE * np.diag(gram).mean())
    weights = np.linalg.solve(gram, centred.T @ (y - y.mean(0)))
    assert (centred @ weights + y.mean(0)).argmax(1).tolist() == one.classes(x).tolist()


def test_moves_are_undone_by_hand() -> None:
    """Three pixels to the right and back: the last three columns had left the image."""
    x = torch.rand(1, 1, 20, 20, generator=torch.Generator().manual_seed(1))
    chain = (Mutation("translation", (0.15, 0.0)), Mutation("contrast", (1.0,)))
    back = _undone(replay(RULES, x, [chain], levels=None), _moves(RULES, [chain], 20, 20))
    assert torch.allclose(back[..., :17], x[..., :17], atol=1e-5)
    assert float(back[..., 17:].abs().max()) < 1e-5


@given(angle=st.integers(-30, 29), scale=st.sampled_from([0.8, 0.9, 0.95]))
@settings(max_examples=15, deadline=None)
def test_undoing_gives_every_point_back(angle: int, scale: float) -> None:
    chain = (Mutation("rotation", (float(angle),)), Mutation("blur", (1.0,)), Mutation("scale", (scale,)))
    matrix = _moves(RULES, [chain, ()], 28, 28)
    assert torch.equal(matrix[1], torch.eye(3, dtype=torch.float64))
    middle = torch.tensor([13.5, 13.5, 1.0], dtype=torch.float64)
    assert torch.allclose(matrix[0] @ middle, middle)
    assert float(torch.linalg.det(matrix[0])) == pytest.approx(scale**2)
