"""Operators that torch runs without a look at their arguments: what reaches beyond a tensor, or ends the process, is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from neurotest.target.archive import Malformed
from neurotest.target.operators import lookup

X = torch.ones(2, 300, 4, 4)
NORMS = {
    "native_batch_norm.default": lambda w, b, m, v: (X, w, b, m, v, False, 0.1, 1e-5),
    "_native_batch_norm_legit.default": lambda w, b, m, v: (X, w, b, m, v, False, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training.default": lambda w, b, m, v: (X, w, b, m, v, 0.1, 1e-5),
}


@pytest.mark.parametrize("size", [0, 1, 2, 299])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("name", NORMS)
def test_batch_norm_with_too_few_numbers(name: str, place: int, size: int) -> None:
    """torch reads 300 numbers from wherever they should be."""
    tensors = [torch.ones(300) for _ in range(4)]
    norm = lookup(f"torch.ops.aten.{name}")
    assert torch.equal(norm(*NORMS[name](*tensors))[0], getattr(torch.ops.aten, name.split(".")[0])(*NORMS[name](*tensors))[0])
    tensors[place] = torch.ones(size)
    with pytest.raises(Malformed, match="for 300 channels"):
        norm(*NORMS[name](*tensors))


SMALLEST = torch.tensor([-(2**63), 5])
QUOTIENTS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("div.Tensor_mode", (SMALLEST, torch.tensor([-1])), {"rounding_mode": "trunc"}),
    ("div.Tensor_mode", (SMALLEST, torch.tensor([-1])), {"rounding_mode": "floor"}),
    ("div.Scalar_mode", (SMALLEST, -1), {"rounding_mode": "floor"}),
    ("floor_divide.default", (SMALLEST, torch.tensor([-1, 2])), {}),
    ("floor_divide_.Scalar", (SMALLEST.int() - 2**31, -1), {}),
    ("divide.Tensor_mode", (SMALLEST, torch.tensor(-1)), {"rounding_mode": "trunc"}),
]


@pytest.mark.parametrize(("name", "args", "options"), QUOTIENTS)
def test_the_smallest_integer_by_minus_one(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """The processor ends the process."""
    with pytest.raises(Malformed, match="divided by -1"):
        lookup(f"torch.ops.aten.{name}")(*args, **options)


def test_other_quotients_are_those_of_torch() -> None:
    divide = lookup("torch.ops.aten.div.Tensor_mode")
    x, y = torch.tensor([-7, 7, -(2**63)]), torch.tensor([-1, 2, 2])
    assert divide(x[:2], y[:2], rounding_mode="floor").tolist() == [7, 3]
    assert divide(x, y[1:2], rounding_mode="trunc").tolist() == [-3, 3, -(2**62)]
    assert divide(x.double(), y.double(), rounding_mode=None).tolist() == [7, 3.5, -(2.0**62)]
    assert lookup("torch.ops.aten.floor_divide.default")(x.float(), torch.tensor(-1.0)).tolist()[0] == 7
    assert copy.copy(divide)._schema.name == "aten::div"  # type: ignore[attr-defined]
