"""What a target accepts, how it reads a network's answer, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn
from torch.nn import functional as F

from neurotest.target import Target


class Gives(nn.Module):
    """A network that answers every input with the same thing."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> object:
        return self.answer(x) if callable(self.answer) else self.answer


def gives(answer: object, **description: object) -> Target:
    return Target(Gives(answer).eval(), shape=(1, 2, 2), **description)


def images(n: int = 3) -> Tensor:
    return torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(1))


# -- reading the answer


def test_logits_pass_through() -> None:
    rows = torch.tensor([[1.0, -2.0, 3.0]] * 3)
    assert torch.equal(gives(rows).logits(images()), rows)


@pytest.mark.parametrize("shape", [(3, 1), (3,)])
def test_one_logit_becomes_two_classes(shape: tuple[int, ...]) -> None:
    logits = gives(torch.tensor([-1.0, 0.0, 2.0]).reshape(shape)).logits(images())
    expected = [1 / (1 + math.exp(-z)) for z in (-1.0, 0.0, 2.0)]
    assert logits.softmax(1)[:, 1].tolist() == pytest.approx(expected)


def test_one_probability_becomes_two_classes() -> None:
    logits = gives(torch.tensor([[0.1], [0.0], [1.0]]), outputs="sigmoid").logits(images())
    assert logits.isfinite().all()
    assert logits.softmax(1)[:, 1].tolist() == pytest.approx([0.1, 0.0, 1.0])


def test_probabilities_survive_the_way_through_logits() -> None:
    rows = torch.tensor([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    logits = gives(rows, outputs="probs").logits(images())
    assert logits.isfinite().all()
    assert torch.allclose(logits.double().softmax(1), rows.double(), atol=1e-7)


# -- refusals


def refuses(code: str, argument: str, answer: object, **description: object) -> None:
    with refused(code, argument):
        gives(answer, **description).check_outputs(images())


def test_softmax_given_as_logits_is_refused() -> None:
    refuses("conflict", "probs", lambda x: torch.rand(len(x), 5).softmax(1))


def test_logits_given_as_probabilities_are_refused() -> None:
    refuses("conflict", "outputs", lambda x: torch.linspace(-3, 3, 5).repeat(len(x), 1), outputs="probs")


def test_many_sigmoids_given_as_probabilities_are_refused() -> None:
    refuses("conflict", "outputs", lambda x: torch.full((len(x), 5), 0.5), outputs="probs")


def test_one_probability_given_as_probs_is_told_to_be_a_sigmoid() -> None:
    refuses("conflict", "sigmoid", lambda x: torch.full((len(x), 1), 0.5), outputs="probs")


def test_many_outputs_given_as_one_sigmoid_are_refused() -> None:
    refuses("wrong-count", "outputs", lambda x: torch.full((len(x), 5), 0.5), outputs="sigmoid")


def test_a_logit_given_as_sigmoid_is_refused() -> None:
    refuses("conflict", "outputs", lambda x: torch.full((len(x), 1), 3.0), outputs="sigmoid")


@pytest.mark.parametrize("width", [1, 4])
def test_a_network_that_ends_in_sigmoids_is_not_taken_for_logits(width: int) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.Sigmoid()).eval()
    with refused("conflict" if width == 1 else "unsupported", "sigmoid"):
        Target(module, shape=(1, 2, 2)).check_outputs(images())


def test_logits_that_happen_to_lie_between_0_and_1_are_accepted() -> None:
    gives(lambda x: torch.tensor([[0.2, 0.3, 0.4]]).repeat(len(x), 1)).check_outputs(images())


@pytest.mark.parametrize(
    "answer",
    [
        {"boxes": torch.zeros(3, 4), "scores": torch.zeros(3)},
        [{"boxes": torch.zeros(3, 4)}],
        (torch.zeros(3, 4), torch.zeros(3, 4)),
    ],
    ids=["dict", "list", "tuple"],
)
def test_detection_and_multi_output_networks_are_refused(answer: object) -> None:
    refuses("unsupported", "outputs", answer)


def test_segmentation_is_refused() -> None:
    refuses("wrong-shape", "outputs", lambda x: torch.zeros(len(x), 5, 2, 2))


def test_an_answer_for_another_number_of_inputs_is_refused() -> None:
    refuses("wrong-shape", "outputs", torch.zeros(1, 5))


def test_text_networks_are_refused() -> None:
    module = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(16, 3)).eval()
    with refused("failed", "network"):
        Target(module, shape=(1, 2, 2)).check_outputs(images())


def test_an_input_size_the_network_does_not_take_is_named() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(9, 3)).eval()
    with refused("failed", "network"):
        Target(module).check_outputs(images())


def test_whatever_a_network_raises_is_a_sentence() -> None:
    def picky(x: Tensor) -> Tensor:
        raise AssertionError("Input height (2) doesn't match model (224).")

    refuses("failed", "network", picky)


@pytest.mark.parametrize(("part", "refusal"), [("0", ("unsuitable", "training")), ("", ("unsuitable", "training"))])
def test_training_mode_is_refused(part: str, refusal: tuple[str, str]) -> None:
    module = nn.Sequential(nn.Dropout(), nn.Flatten(), nn.Linear(4, 3)).eval()
    module.get_submodule(part).train()
    with refused(*refusal):
        Target(module, shape=(1, 2, 2)).check_outputs(images())


def test_class_names_must_fit_the_outputs() -> None:
    refuses("wrong-count", "classes", lambda x: torch.zeros(len(x), 5), classes=["a", "b", "c"])


@pytest.mark.parametrize(
    ("description", "refusal"),
    [
        ({"bounds": (1, 0)}, ("out-of-range", "bounds")),
        ({"bounds": (0, math.inf)}, ("out-of-range", "bounds")),
        ({"bounds": (0, 1, 2)}, ("out-of-range", "bounds")),
        ({"bounds": 1}, ("out-of-range", "bounds")),
        ({"mean": "0.5,0.5", "std": 1}, ("wrong-type", "mean")),
        ({"mean": 0.5, "std": [None]}, ("wrong-type", "std")),
        ({"outputs": "softmax"}, ("out-of-range", "outputs")),
        ({"mean": [0.5]}, ("conflict", "mean")),
        ({"mean": [0.5], "std": [0.0]}, ("out-of-range", "std")),
        ({"mean": [0.5, 0.5], "std": [1.0, 1.0]}, ("wrong-count", "mean")),
    ],
)
def test_bad_descriptions(description: dict[str, object], refusal: tuple[str, str]) -> None:
    with refused(*refusal):
        gives(torch.zeros(3, 5), **description)


def test_preprocessing_for_other_channels_is_refused_when_the_size_was_unknown() -> None:
    """Three means on a grey image would broadcast it into a colour image nobody gave."""
    target = Target(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten()).eval(), mean=[0.1, 0.2, 0.3], std=[1.0, 1.0, 1.0])
    with refused("wrong-count", "mean"):
        target.check_outputs(images())


# -- bounds and preprocessing


def test_eight_bit_inputs_are_scaled_into_the_bounds() -> None:
    x = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    assert gives(None).prepare(x).flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert gives(None, bounds=(-1, 3)).prepare(x).flatten().tolist() == pytest.approx([-1, -0.2, 3])


def test_float_inputs_are_taken_as_they_are() -> None:
    x = np.array([-1.0, 0.25, 1.0], np.float32).reshape(3, 1, 1, 1)
    prepared = gives(None, bounds=(-1, 1)).prepare(x)
    assert np.array_equal(prepared.numpy(), x)


@pytest.mark.parametrize("bad", [1.5, -0.1, math.nan, math.inf])
def test_values_outside_the_bounds_are_refused(bad: float) -> None:
    x = np.full((2, 1, 1, 1), 0.5, np.float32)
    x[1] = bad
    with refused("out-of-range", "inputs"):
        gives(None).prepare(x)


def test_preprocessing_happens_per_channel_inside_the_target() -> None:
    module = nn.Sequential(nn.Flatten()).eval()
    target = Target(module, shape=(2, 1, 1), mean=[0.5, 0.0], std=[0.5, 2.0])
    x = torch.tensor([[1.0, 1.0]]).view(1, 2, 1, 1)
    assert target.logits(x).tolist() == [[1.0, 0.5]]


def test_preprocessing_of_feature_vectors() -> None:
    target = Target(nn.Identity().eval(), shape=(3,), mean=[0.0, 1.0, 2.0], std=[1.0, 2.0, 4.0])
    assert target.logits(torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 6.0]])).tolist() == [[1, 0, -0.25], [2, 1, 1]]
    one = Target(nn.Identity().eval(), shape=(3,), mean=[1.0], std=[2.0])
    assert one.logits(torch.ones(2, 3)).tolist() == [[0.0] * 3] * 2


# -- fingerprint


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x.flatten(1)))


def twin(name: str, forward: object) -> type[nn.Module]:
    """A class of the same name with another forward function."""
    return type(name, (Functional,), {"forward": forward, "__qualname__": Functional.__qualname__})


def seeded(build: object, **description: object) -> Target:
    torch.manual_seed(0)
    return Target(build().eval(), shape=(1, 2, 2), **description)  # type: ignore[operator]


def test_equal_targets_have_equal_fingerprints() -> None:
    assert seeded(Functional).fingerprint == seeded(Functional).fingerprint
    assert seeded(Functional, spec="py:a.py:build").fingerprint == seeded(Functional, spec="py:b.py:build").fingerprint


def test_using_a_target_does_not_change_its_fingerprint() -> None:
    used, fresh = seeded(Functional), seeded(Functional)
    used.survey()
    used.logits(images())
    assert used.fingerprint == fresh.fingerprint


def test_one_changed_weight_changes_the_fingerprint() -> None:
    target = seeded(Functional)
    other = seeded(Functional)
    with torch.no_grad():
        other.module.fc.weight[0, 0] += 1e-6
    assert target.fingerprint != other.fingerprint


def test_a_changed_functional_activation_changes_the_fingerprint() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return F.gelu(self.fc(x.flatten(1)))

    assert seeded(Functional).fingerprint != seeded(twin("Functional", forward)).fingerprint


def test_a_changed_constant_in_forward_changes_the_fingerprint() -> None:
    def half(self: nn.Module, x: Tensor) -> Tensor:
        return F.relu(self.fc(x.flatten(1))) * 0.5

    def third(self: nn.Module, x: Tensor) -> Tensor:
        return F.relu(self.fc(x.flatten(1))) * 0.3

    assert seeded(twin("T", half)).fingerprint != seeded(twin("T", third)).fingerprint


def test_an_activation_held_as_an_attribute_changes_the_fingerprint() -> None:
    """torch's own transformer layer keeps its activation as a function: no weight and no repr shows it."""

    def build(activation: str) -> nn.Module:
        return nn.TransformerEncoderLayer(4, 2, 4, activation=activation, batch_first=True)

    assert seeded(lambda: build("relu")).fingerprint != seeded(lambda: build("gelu")).fingerprint


def test_a_number_held_as_an_attribute_changes_the_fingerprint() -> None:
    class Scaled(Functional):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

    assert seeded(lambda: Scaled(1.0)).fingerprint != seeded(lambda: Scaled(2.0)).fingerprint


def test_a_buffer_that_is_not_saved_changes_the_fingerprint() -> None:
    class Buffered(Functional):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor(scale), persistent=False)

    assert seeded(lambda: Buffered(1.0)).fingerprint != seeded(lambda: Buffered(2.0)).fingerprint


@pytest.mark.parametrize(
    "description",
    [{"mean": [0.5], "std": [0.5]}, {"bounds": (-1, 1)}, {"outputs": "probs"}],
    ids=["mean", "bounds", "outputs"],
)
def test_preprocessing_changes_the_fingerprint(description: dict[str, object]) -> None:
    assert seeded(Functional).fingerprint != seeded(Functional, **description).fingerprint


def test_names_of_classes_do_not_change_the_fingerprint() -> None:
    assert seeded(Functional).fingerprint == seeded(Functional, classes=["a", "b", "c"]).fingerprint


def test_a_changed_module_setting_changes_the_fingerprint() -> None:
    def build(stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 1, stride=stride), nn.Flatten())

    assert seeded(lambda: build(1)).fingerprint != seeded(lambda: build(2)).fingerprint


def test_the_size_must_be_known_before_layers_can_be_listed() -> None:
    with refused("missing", "size"):
        Target(Functional().eval()).survey()
