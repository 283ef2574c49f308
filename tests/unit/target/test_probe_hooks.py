"""Nothing of the probe stays behind, whatever happens inside."""

from __future__ import annotations

import pytest
from tests.refusals import refused
from tests.unit.target.by_hand import ByHand, X, hooks, record
from torch import Tensor

from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want

pytestmark = pytest.mark.by_hand


def test_hooks_are_there_inside_and_gone_afterwards() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with Probe(target, Want(layers="first"), Want(layers="act*", inputs=True)):
        assert hooks(target) == 2
    assert hooks(target) == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_hooks_are_gone_after_an_exception_in_the_middle_of_a_forward_pass(error: type[BaseException]) -> None:
    class Fails(ByHand):
        armed = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.first(x))
            if self.armed:
                raise error("in the middle")
            return self.second(x)

    target = Target(Fails().eval(), shape=(2,))
    target.survey()
    Fails.armed = True
    with (
        pytest.raises(BadInput if error is RuntimeError else error, match="in the middle"),
        Probe(target, Want(layers="*")) as probe,
    ):
        probe(X)
    assert hooks(target) == 0


def test_hooks_are_gone_after_an_exception_in_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(ByHand().eval(), shape=(2,))
    with refused("unknown-name", "layers"), Probe(target, Want(layers="first"), Want(layers="thrid")):
        pass
    assert hooks(target) == 0
    probe = Probe(target, Want(layers="first,second"))
    attach = probe._attach

    def fails_on_the_second(module: str, jobs: object) -> None:
        if module == "second":
            raise RuntimeError("no room")
        attach(module, jobs)

    monkeypatch.setattr(probe, "_attach", fails_on_the_second)
    with pytest.raises(RuntimeError, match="no room"), probe:
        pass
    assert hooks(target) == 0


def test_hooks_are_gone_after_an_edit_that_fails() -> None:
    target = Target(ByHand().eval(), shape=(2,))

    def fails(layer: str, tensor: Tensor) -> Tensor:
        raise ValueError("cannot edit")

    with pytest.raises(ValueError, match="cannot edit"), Probe(target, Want(layers="first"), edit=fails) as probe:
        probe(X)
    assert hooks(target) == 0


def test_hooks_of_others_stay() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    mine = target.module.first.register_forward_hook(lambda *_: None)
    record(target, X, Want(layers="*"))
    assert hooks(target) == 1
    mine.remove()


def test_training_mode_is_refused() -> None:
    target = Target(ByHand().eval(), shape=(2,))
    target.survey()
    target.module.second.train()
    with refused("unsuitable", "training"), Probe(target, Want(layers="first")):
        pass


@pytest.mark.parametrize("setting", [{"neuron": "cell"}, {"keep": "all"}])
def test_bad_wants(setting: dict[str, str]) -> None:
    with refused("out-of-range", next(iter(setting))):
        Want(**setting)
