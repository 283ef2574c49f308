"""Networks that raise, exit, detach, give integers, draw at random or are enormous: one sentence, and never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest import memory, registry
from neurotest.coverage import cover
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.measure.context import Context
from neurotest.scan import fit
from neurotest.select import select
from neurotest.target import Probe, Target, Want
from neurotest.target.failures import gradient, gradients

pytestmark = pytest.mark.plain

SHAPE = (1, 4, 4)


class Net(nn.Module):
    """A dense network with something odd in front or behind."""

    def __init__(self, before: Callable[[Tensor], Tensor] | None = None, after: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.head = nn.Linear(16, 8), nn.Linear(8, 3)
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.before is None else self.before(x)
        y = self.head(functional.relu(self.hidden(x.flatten(1))))
        return y if self.after is None else self.after(y)


def target(**settings: Callable[[Tensor], Tensor]) -> Target:
    return Target(Net(**settings).eval(), shape=SHAPE)


def source(tmp_path_factory: pytest.TempPathFactory, n: int = 20) -> Source:
    file = tmp_path_factory.mktemp("odd") / "x.npz"
    rng = np.random.default_rng(0)
    np.savez(file, x=rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), y=rng.integers(0, 3, n))
    return data(f"npz:{file}#x,y")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return source(tmp_path_factory)


def leave(_: Tensor) -> Tensor:
    sys.exit(0)


def fail(_: Tensor) -> Tensor:
    raise KeyError("weights")


def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (target(before=leave), "does not take inputs of size 1x4x4 .*the network raised SystemExit: 0 on a batch"),
        (target(before=fail), "does not take inputs of size 1x4x4 .*the network raised KeyError: 'weights' on a batch"),
        (target(after=lambda y: y.argmax(1)), "returns int64 values, not scores"),
        (target(after=lambda y: (100 * y).int()), "returns int32 values, not scores"),
        (target(after=lambda y: y > 0), "returns bool values, not scores"),
        (target(before=noise), "different answers to the same inputs.*neurotest doctor"),
    ],
)
def test_every_job_refuses_them_when_it_opens_its_data(odd: Target, message: str, inputs: Source) -> None:
    with pytest.raises(BadInput, match=message):
        fit(odd, inputs)
    with pytest.raises(BadInput, match=message):
        cover(odd, inputs, ["nc"], out=False)


@pytest.mark.parametrize(("kind", "name"), [(sys.exit, "SystemExit"), (lambda: 1 / 0, "ZeroDivisionError: division by zero")])
def test_one_that_fails_later(kind: Callable[[], object], name: str) -> None:
    def sometimes(x: Tensor) -> Tensor:
        if len(x) == 5:
            kind()
        return x

    odd = target(before=sometimes)
    with Probe(odd, Want()) as probe:
        probe(torch.rand(4, *SHAPE))
        with pytest.raises(BadInput, match=rf"the network raised {name} on a batch of shape \(5, 1, 4, 4\)"):
            probe(torch.rand(5, *SHAPE))


def test_a_bug_of_ours_is_not_blamed_on_the_network() -> None:
    """Our hooks run inside the network's forward: what they raise stays what it is."""
    from neurotest.attribute import shapley

    wrong = compile("def record(name, tensor): return tensor.no_such_attribute", shapley.__file__, "exec")
    code: dict[str, Callable[..., Tensor]] = {}
    exec(wrong, code)
    with Probe(target(), Want(keep="map"), record=code["record"]) as probe, pytest.raises(AttributeError, match="no_such"):
        probe(torch.rand(2, *SHAPE))


def test_answers_that_differ_by_rounding_are_the_same() -> None:
    x = torch.rand(4, *SHAPE)
    target(after=lambda y: y + 1e-7 * torch.rand_like(y)).check_steady(x)
    target(after=lambda y: y * torch.nan).check_steady(x)
    with pytest.raises(BadInput, match="different answers"):
        target(after=lambda y: y + 0.5 * torch.rand_like(y)).check_steady(x)


def test_networks_without_gradients() -> None:
    x = torch.rand(2, *SHAPE, requires_grad=True)
    for odd in (target(before=torch.detach), target(after=torch.detach), target(before=torch.round)):
        answer = odd.logits(x).sum()
        if odd.module.before is torch.round:  # zero, not absent: attacks say so by themselves
            assert not gradient(answer, x).any()
            continue
        with pytest.raises(BadInput, match="no gradient towards its input: it detaches"):
            gradient(answer, x)
    y = torch.rand(3, requires_grad=True)
    assert [g is None for g in gradients(x.sum(), [x, y])] == [False, True]
    with pytest.raises(RuntimeError, match="scalar outputs"):  # what is wrong with us stays what it is
        gradient(x * 2, x)


# -- memory


class Wide(nn.Module):
    """A layer of 100,000 neurons: its covariance has 80 GB."""

    def __init__(self, width: int = 100_000) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.head = nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.relu(self.wide(x.flatten(1))))


@pytest.fixture(scope="module")
def wide() -> Target:
    return Target(Wide().eval(), shape=SHAPE)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10**9)


@pytest.mark.usefixtures("small_memory")
def test_a_covariance_is_refused_before_it_is_asked_for(wide: Target, inputs: Source) -> None:
    with pytest.raises(BadInput, match=r"nlc.* would need 240 GB of memory, and 1\.0 GB are free: use --neuron channel"):
        cover(wide, inputs, ["nlc:neurons=0"], out=False, memory=1e15)
    nlc, context = registry.build("criterion", "nlc:neurons=0"), Context(target=wide)
    with pytest.raises(BadInput, match=r"nlc on 2 layers \(the widest, 'wide', has 100,000 neurons\) would need 240 GB"):
        nlc.start(context)
    with pytest.raises(BadInput, match=r"the covariance of 100,0\d\d neurons would need 240 GB of memory.*--layers"):
        select(wide, inputs, "mdsa:features=none,min_var=0", 5, train=inputs, out=False)
    assert "neurons were drawn" in cover(wide, inputs, ["nlc"], out=False).criteria["nlc"].value.notes[0]


@pytest.mark.usefixtures("small_memory")
def test_adaptive_needs_no_square_of_a_wide_layer(wide: Target, inputs: Source) -> None:
    assert len(select(wide, inputs, "adaptive", 5, out=False).indices) == 5


def test_a_batch_that_is_too_large_to_record(wide: Target, inputs: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 5_000_000)
    with pytest.raises(BadInput, match=r"recording 2 layers of 20 inputs \(the widest, 'wide', .* 8\.0 MB .* a smaller --batch"):
        cover(wide, inputs, ["nc"], out=False)
    assert cover(wide, inputs, ["nc"], out=False, batch=2).criteria


def test_kept_training_data_is_estimated(inputs: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1500)
    with pytest.raises(BadInput, match=r"keeping 11 neurons of 20 training inputs .* 1\.8 kB .* less --train"):
        select(target(), inputs, "dsa", 5, train=inputs, out=False)


def test_free_memory_is_a_number_of_this_machine() -> None:
    assert 1 << 20 < memory.free_memory() < 1 << 50


# -- tiny images


@pytest.mark.parametrize("side", [1, 2])
def test_images_of_one_and_four_pixels(side: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * side * side, 3)).eval()
    tiny = Target(module, shape=(1, side, side))
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("tiny") / "x.npz"
    np.savez(file, x=rng.integers(0, 256, (20, 1, side, side), dtype=np.uint8), y=rng.integers(0, 3, 20))
    inputs = data(f"npz:{file}#x,y")
    assert not cover(tiny, inputs, ["nc", "nlc", "kmnc:10", "tknc"], train=inputs, out=False).errors
    for method in ("deepgini", "nss", "lsa", "adaptive"):
        assert len(select(tiny, inputs, method, 5, train=inputs, out=False).indices) == 5
