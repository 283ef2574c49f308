"""Networks that predict a quantity: bins as classes, and what works on them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused
from torch import Tensor, nn

import neurotest
from neurotest.oracles import Differential, Regression, Roots, build_oracles, predicted
from neurotest.target import Target
from neurotest.target.outputs import Bins
from neurotest.target.spec import TargetSpec

pytestmark = pytest.mark.by_hand

SPAN = (-1.0, 1.0)


class Brightness(nn.Module):
    """Twice the mean of the picture, less one: the truth is known."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2 * 36, 1)
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.weight[:, 0, 1, 1] = 1
            self.conv.bias.zero_()
            self.dense.weight.fill_(2 / 72)
            self.dense.bias.fill_(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.conv(x).relu().flatten(1))


def target(**description: Any) -> Target:
    return neurotest.load(Brightness().eval(), outputs="regression", span=SPAN, size=(1, 6, 6), **description)


def frames(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    x = (draw.random((count, 1, 6, 6)) * draw.random((count, 1, 1, 1)) * 255).astype(np.uint8)
    return x, (2 * (x / 255).mean(axis=(1, 2, 3)) - 1).astype(np.float32)


# -- bins


def test_bins_by_hand() -> None:
    bins = Bins(-1.0, 1.0, 4)  # -1 .. -.5 .. 0 .. .5 .. 1
    assert bins.of(np.array([-3.0, -0.6, -0.2, 0.3, 0.9, 7.0])).tolist() == [0, 0, 1, 2, 3, 3]
    logits = bins.logits(torch.tensor([0.3], dtype=torch.float64))
    # (v c - c^2 / 2) / .25 with the middles -.75, -.25, .25, .75
    assert logits[0].tolist() == pytest.approx([-2.025, -0.425, 0.175, -0.225])
    assert float(bins.values(logits)[0]) == pytest.approx(0.3)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.integers(2, 200))
def test_bins_are_numpy_s_and_values_come_back(values: list[float], count: int) -> None:
    bins, quantities = Bins(-2.0, 3.0, count), np.array(values)
    edges = np.linspace(-2.0, 3.0, count + 1)
    expected = np.clip(np.digitize(quantities, edges) - 1, 0, count - 1)
    close = np.abs(quantities[:, None] - edges).min(axis=1) < 1e-9  # on an edge either side is right
    assert (bins.of(quantities) == expected)[~close].all()
    back = bins.values(bins.logits(torch.from_numpy(quantities)))
    assert np.allclose(back.numpy(), quantities, atol=1e-8)


def test_float32_logits_keep_the_quantity() -> None:
    bins, values = Bins(-0.4, 0.4), torch.linspace(-0.5, 0.5, 101)
    assert torch.allclose(bins.values(bins.logits(values).double()), values.double(), atol=1e-5)


# -- the target


def test_the_answer_is_the_bin_of_the_quantity() -> None:
    x, y = frames()
    ours = target()
    logits = ours.logits(ours.prepare(x))
    assert logits.shape == (40, 25)
    assert ours.classes is not None
    assert ours.classes[0] == "-1 .. -0.92"
    assert (predicted(logits) == Bins(*SPAN).of(y)).all()


def test_gradients_are_those_of_the_network() -> None:
    ours = target(bins=2)
    x = torch.full((1, 1, 6, 6), 0.3).requires_grad_()
    logits = ours.logits(x)
    (gradient,) = torch.autograd.grad(logits[0, 1] - logits[0, 0], x)  # middles -.5 and .5, a bin is 1 wide: v itself
    assert torch.allclose(gradient, torch.full_like(gradient, 2 / 36), atol=1e-6)


def test_a_description_is_stored_and_opened_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
                                      "    return nn.Sequential(nn.Flatten(), nn.Linear(36, 1))\n")  # fmt: skip
    first = neurotest.load(f"py:{tmp_path / 'mine.py'}:build", outputs="regression", span=SPAN, bins=10, size="1x6x6")
    stored = TargetSpec.read(
        {k: list(v) if isinstance(v, tuple) else v for k, v in TargetSpec.of(first).plain().items()}, tmp_path
    )
    again = stored.open()
    assert again.bins == Bins(-1.0, 1.0, 10)
    assert again.fingerprint == first.fingerprint
    assert dataclasses.replace(stored, bins=5).open().classes == Bins(-1.0, 1.0, 5).names


def test_another_span_is_another_target() -> None:
    assert target(bins=10).fingerprint != target().fingerprint
    assert neurotest.load(target(), span=(0, 1)).classes == Bins(0, 1).names


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"outputs": "regression"}, ("missing", "span")),
        ({"outputs": "regression", "span": (1, 1)}, ("out-of-range", "span")),
        ({"outputs": "regression", "span": (0, 1), "bins": 1}, ("out-of-range", "bins")),
        ({"span": (0, 1)}, ("conflict", "span")),
        ({"outputs": "angle"}, ("out-of-range", "outputs")),
    ],
)
def test_descriptions_that_do_not_fit(options: dict[str, Any], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        neurotest.load(Brightness().eval(), size=(1, 6, 6), **options)


def test_several_quantities_are_refused() -> None:
    two = neurotest.load(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).eval(), outputs="regression", span=SPAN, size=(1, 6, 6))
    with refused("wrong-count", "outputs"):
        neurotest.cover(two, frames()[0], "nlc", cache=False)


def test_quantities_are_no_labels_of_a_classifier() -> None:
    x, y = frames()
    classifier = neurotest.load(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval(), size=(1, 6, 6))
    with refused("wrong-type", "labels"):
        neurotest.select(classifier, (x, y), "deepgini", 5)
    with refused("wrong-type", "labels"):
        neurotest.select(classifier, (x, np.ones(40)), "deepgini", 5)
    with refused("not-finite", "labels"):
        neurotest.data((x, np.where(np.arange(40) == 3, np.nan, y)))


# -- the oracle


def test_tolerance_by_hand() -> None:
    ours = target()
    before, after = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.09, 0.11, -0.3])
    bins = Bins(*SPAN)
    roots = Roots(np.zeros(3, int), np.zeros(3, int), bins.logits(before).numpy())
    x = torch.zeros(3, 1, 6, 6)
    assert (build_oracles(ours, "regression:0.1")(x, bins.logits(after), roots) >= 0).tolist() == [False, True, True]
    default = build_oracles(ours, Regression())  # a bin is .08 wide
    assert default.tolerance == pytest.approx(0.08)
    assert (default(x, bins.logits(after), roots) >= 0).tolist() == [True, True, True]


# -- commands


def test_doctor_says_how_far_off_it_is() -> None:
    x, y = frames()
    diagnosis = neurotest.doctor(target(), (x, y))
    assert diagnosis["accuracy"].level == "ok"
    assert diagnosis.facts["mean_error"] < 1e-5
    assert diagnosis.facts["within_a_bin"] == 1
    far = neurotest.doctor(target(), (x, y + 0.5))
    assert far.facts["mean_error"] == pytest.approx(0.5, abs=1e-5)
    assert far["accuracy"].level == "warning"
    narrow = neurotest.doctor(neurotest.load(target(), span=(0.5, 1)), (x, y))
    assert "outside" in narrow["outputs"].sentence
    assert narrow["outputs"].level == "warning"


@pytest.mark.parametrize("method", ["nss", "dsa", "mdsa", "nearest", "random"])
def test_methods_that_look_inside_order_a_pool(method: str) -> None:
    x, y = frames()
    wrong = y.copy()
    wrong[::4] += 0.3  # labels that the network does not give: faults
    order = neurotest.select(target(), (x, wrong), method, 10, train=(x, y))
    assert len(order.indices) == 10
    assert order.quality is not None
    assert order.quality.random_fdr.value == pytest.approx(0.25)


def test_neighbours_learn_from_quantities() -> None:
    x, y = frames()
    labels = {i: f"{y[i] + (0.5 if i < 5 else 0):.4f}" for i in range(10)}
    order = neurotest.select(target(), x, "neighbours:3", 5, labels=labels)
    assert "5 of them faults" in order.notes[-1]


@pytest.mark.parametrize("method", ["deepgini", "maxp", "margin", "entropy", "ats", "adaptive", "prior-only"])
def test_methods_of_probabilities_refuse_in_one_sentence(method: str) -> None:
    x, y = frames()
    with refused("unsuitable", "outputs"):
        neurotest.select(target(), (x, y), method, 5, train=(x, y))


@pytest.mark.parametrize("oracle", [None, "regression:0.2", "metamorphic", "label"])
def test_fuzzing_moves_the_quantity(oracle: str | None) -> None:
    x, y = frames()
    run = neurotest.fuzz(target(), (x, y), "random", forwards=200, batch=50, oracle=oracle, out=False)
    assert run.to_dict()["faults"] > 0  # brightness is among the mutations, and the network measures it
    assert run.set_aside == 0


def test_seeds_that_are_off_are_set_aside() -> None:
    x, y = frames()
    y[:7] += 0.3
    run = neurotest.fuzz(target(), (x, y), "random", forwards=60, batch=30, oracle="regression:0.1", out=False)
    assert run.set_aside == 7


def test_coverage_needs_no_classes() -> None:
    x, y = frames()
    measured = neurotest.cover(target(), (x, y), ["kmnc:10", "nlc", "nc"], train=(x, y), by="class", cache=False)
    assert 0 < measured["kmnc:10"].value.value <= 1
    assert not measured.errors
    assert set(measured["nc"].by_class) <= set(Bins(*SPAN).names)


# -- tolerance


def test_what_answers_count_as_by_hand() -> None:
    bins = Bins(-1.0, 1.0, 4, 0.3)  # -1 .. -.5 .. 0 .. .5 .. 1
    values = torch.tensor([0.1, 0.35, 0.45, -0.45, 0.9, 2.0, -2.0, float("nan")], dtype=torch.float64)
    truth = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.9, 0.9, -0.9, 0.1], dtype=torch.float64)
    expected = torch.tensor([2, 2, 2, 2, 3, 3, 0, 2])
    # at the truth; within .3; beyond it but in the same bin: the next; two bins away; beyond the ends: the one before
    assert bins.counted(bins.logits(values), expected, truth).tolist() == [2, 2, 3, 1, 3, 2, 1, -1]
    assert bins.counted(bins.logits(values), expected, truth, 5.0).tolist() == [2, 2, 2, 2, 3, 3, 0, -1]


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-1, 1)), min_size=1, max_size=20), st.integers(2, 40), st.floats(0.01, 1))
def test_what_answers_count_as_against_a_plain_loop(pairs: list[tuple[float, float]], count: int, tolerance: float) -> None:
    bins = Bins(-1.0, 1.0, count, tolerance)
    values, truth = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    expected = torch.from_numpy(bins.of(truth.numpy()))
    counted = bins.counted(bins.logits(values), expected, truth).tolist()
    for (value, true), own, one in zip(pairs, expected.tolist(), counted, strict=True):
        if abs(abs(value - true) - tolerance) > 1e-9:  # on the border rounding decides
            assert (one == own) == (abs(value - true) <= tolerance)
        assert 0 <= one < count


@pytest.mark.parametrize(("text", "value"), [("5%", 0.1), ("0.3", 0.3), (0.3, 0.3), (None, 0.08)])
def test_a_tolerance_is_a_number_or_a_share_of_the_span(text: Any, value: float) -> None:
    assert target(tolerance=text).tolerance == pytest.approx(value)
    assert target(tolerance=text).fingerprint == target().fingerprint  # it changes no answer


@pytest.mark.parametrize("text", ["0", "-1", "5 %%", "inf", "", True])
def test_tolerances_that_are_refused(text: Any) -> None:
    with refused("out-of-range", "tolerance"):
        target(tolerance=text)


def test_a_tolerance_is_stored_and_opened_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
                                      "    return nn.Sequential(nn.Flatten(), nn.Linear(36, 1))\n")  # fmt: skip
    first = neurotest.load(f"py:{tmp_path / 'mine.py'}:build", outputs="regression", span=SPAN, size="1x6x6", tolerance="5%")
    stored = TargetSpec.of(first).plain()
    assert stored["tolerance"] == pytest.approx(0.1)
    again = TargetSpec.read({k: list(v) if isinstance(v, tuple) else v for k, v in stored.items()}, tmp_path).open()
    assert again.tolerance == pytest.approx(0.1)
    with refused("damaged", "tolerance"):
        TargetSpec.read({**stored, "span": [-1.0, 1.0], "tolerance": "many"}, tmp_path)
    assert neurotest.load(first, tolerance=0.4).tolerance == 0.4
    assert neurotest.load(first, bins=10).tolerance == pytest.approx(0.1)


# -- metamorphic bounds


def test_metamorphic_bounds_by_hand() -> None:
    ours = target(tolerance=0.2)
    assert ours.bins is not None
    x = torch.zeros(4, 1, 6, 6)
    before = ours.bins.logits(torch.zeros(4))
    roots = Roots(np.full(4, -1), predicted(before), before.numpy())
    after = ours.bins.logits(torch.tensor([0.05, 0.15, 0.25, -0.5]))
    verdicts = {
        text: (build_oracles(ours, text)(x, after, roots) >= 0).tolist()
        for text in ("metamorphic", "metamorphic:5%", "metamorphic:0.4", "regression:5%", "regression:0.4")
    }
    assert verdicts == {
        "metamorphic": [False, False, True, True],
        "metamorphic:5%": [False, True, True, True],
        "metamorphic:0.4": [False, False, False, True],
        "regression:5%": [False, True, True, True],
        "regression:0.4": [False, False, False, True],
    }
    assert build_oracles(ours, "metamorphic:5%").tolerance == pytest.approx(0.1)


def test_bounds_are_for_quantities() -> None:
    classifier = neurotest.load(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).eval(), size=(1, 6, 6))
    with refused("unsuitable", "bound"):
        build_oracles(classifier, "metamorphic:5%")
    with refused("unsuitable", "tolerance"):
        build_oracles(classifier, "regression:5%")
    with refused("conflict", "outputs"):
        Differential(other=classifier).begin(target())


def test_labels_of_a_quantity_are_judged_by_the_tolerance() -> None:
    ours = target(tolerance=0.2)
    assert ours.bins is not None
    logits = ours.bins.logits(torch.tensor([0.1, 0.1]))
    truth = np.array([0.25, 0.35])
    roots = Roots(ours.bins.of(truth), predicted(logits), logits.numpy(), truth)
    assert (build_oracles(ours, "label")(torch.zeros(2, 1, 6, 6), logits, roots) >= 0).tolist() == [False, True]


# -- attacks and estimates whose answer is known: the quantity is linear in the pixels


@pytest.mark.parametrize("kappa", [0.0, 0.1])
def test_cw_changes_no_more_than_it_has_to(kappa: float) -> None:
    """The quantity is twice the mean of the picture: to move it by .3 and kappa every pixel has to move by half of that."""
    x = np.full((2, 1, 6, 6), 128, dtype=np.uint8)
    result = neurotest.attack(target(tolerance=0.3), x, f"cw:kappa={kappa},steps=150,rate=0.02", out=False)
    assert result.faults == 2
    assert result.quantities is not None
    assert (np.abs(result.quantities.after - result.quantities.before) > 0.3 + kappa - 1e-6).all()
    needed = np.ceil(255 * (0.3 + kappa) / 2) / 255
    assert result.distance[:, 2] == pytest.approx([needed] * 2, abs=0.03)


def test_pgd_goes_where_there_is_more_room_and_noise_does_not() -> None:
    x = np.concatenate([np.full((1, 1, 6, 6), 40, dtype=np.uint8), np.full((1, 1, 6, 6), 215, dtype=np.uint8)])
    result = neurotest.attack(target(tolerance=0.3), x, "bim:eps=0.2,step=0.05,steps=8", out=False)
    assert result.quantities is not None
    moved = result.quantities.after - result.quantities.before
    assert moved.tolist() == pytest.approx([0.4, -0.4], abs=0.02)  # eps x 2, towards the middle
    assert result.faults == 2


def test_clever_is_the_tolerance_over_the_gradient() -> None:
    x = np.full((1, 1, 6, 6), 128, dtype=np.uint8)
    result = neurotest.robustness(target(tolerance=0.1), x, "clever:samples=16,pool=3", norm="l2", radius=1.0, out=False)
    gradient = 2 / 36 * 6  # of length 2 / 36 in each of 36 pixels
    assert result.score[0] == pytest.approx(0.1 / gradient, rel=1e-3)
    assert result.upper[0] == pytest.approx(0.1 / gradient, rel=0.05)
