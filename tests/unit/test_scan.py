"""One pass over a source serves any number of consumers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from tests.waiting import LIMIT
from torch import Tensor, nn

import neurotest
from neurotest.data.source import ArraySource, Skipped
from neurotest.errors import BadInput
from neurotest.scan import Batch, aligned, batches, each_batch, fit, profile, remarks, scan, wanted
from neurotest.target import Probe, Target, Trace, Want


class Counted(nn.Module):
    """Counts the inputs it is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(1, 2, 2), nn.Linear(18, 3)
        self._seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self._seen.append(len(x))
        return self.fc(self.conv(x).flatten(1))


@dataclass
class Keeps:
    """A consumer that keeps everything."""

    want: Want | None
    logits: list[Tensor] = field(default_factory=list)
    values: list[dict[str, Tensor]] = field(default_factory=list)

    def update(self, trace: Trace) -> None:
        self.logits.append(trace.logits)
        if self.want is not None:
            self.values.append(trace[self.want])


def source(n: int = 25, dtype: type = np.uint8) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 4, 4), dtype=np.uint8)
    return ArraySource(x if dtype is np.uint8 else (x / 255).astype(dtype))


def target(**description: object) -> Target:
    return Target(Counted().eval(), **description)


def test_each_input_is_forwarded_once_for_all_consumers() -> None:
    network, data = target(shape=(1, 4, 4)), source()
    consumers = [Keeps(None), Keeps(Want(layers="conv")), Keeps(Want(layers="conv")), Keeps(Want(layers="fc", inputs=True))]
    fit(network, data)
    network.survey()
    network.module._seen.clear()
    scan(network, data, consumers, batch=10)
    assert sorted(network.module._seen, reverse=True) == [10, 10, 5, 4]  # the last is the look at a few inputs first
    with torch.no_grad():
        expected = network.module(network.prepare(data.read(np.arange(25))))
    for consumer in consumers:
        assert torch.allclose(torch.cat(consumer.logits), expected, atol=1e-6)
    assert [len(v["conv"]) for v in consumers[1].values] == [10, 10, 5]
    assert consumers[3].values[0]["fc"].shape == (10, 18)


def test_equal_wants_are_recorded_once() -> None:
    assert wanted([Keeps(None), Keeps(Want()), Keeps(Want()), Keeps(Want(neuron="unit"))]) == (Want(), Want(neuron="unit"))


def test_progress_reaches_the_end() -> None:
    calls: list[tuple[int, int]] = []
    scan(target(), source(), [], batch=10, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(10, 25), (20, 25), (25, 25)]


def test_batches_cover_the_source_in_the_order_asked_for() -> None:
    network, data = target(), source()
    order = np.random.default_rng(1).permutation(25)
    parts = list(batches(network, data, batch=7, order=order))
    assert np.array_equal(np.concatenate([p.index for p in parts]), order)
    assert torch.equal(torch.cat([p.x for p in parts]), network.prepare(data.read(order)))
    with pytest.raises(BadInput, match="batch=0"):
        list(batches(network, data, batch=0))


def test_a_batch_of_large_inputs_comes_in_parts_that_end_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurotest.scan.BATCH_BYTES", 4 * 16 * 3)  # bytes of three inputs
    network, data = target(), source()
    parts = list(batches(network, data, batch=7))
    assert [len(p.index) for p in parts] == [3, 3, 1] * 3 + [3, 1]
    assert torch.equal(torch.cat([p.x for p in parts]), network.prepare(data.read(np.arange(25))))


class Decoded(ArraySource):
    """Inputs that seem to be decoded; says in which thread each part was read, and fails where it is told to."""

    @property
    def decodes(self) -> bool:
        return True

    def __init__(self, x: np.ndarray, bad: int = -1) -> None:
        super().__init__(x)
        self.bad, self.begun, self.threads = bad, threading.Condition(), list[str]()

    def wait_for(self, parts: int) -> None:
        with self.begun:
            assert self.begun.wait_for(lambda: len(self.threads) == parts, timeout=LIMIT)

    def _rows(self, index: np.ndarray) -> np.ndarray:
        with self.begun:
            self.threads.append(threading.current_thread().name)
            self.begun.notify()
        if self.bad in index:
            raise BadInput(f"input {self.bad} is damaged")
        return super()._rows(index)


def test_decoded_inputs_are_read_a_part_ahead_of_whoever_uses_them() -> None:
    network, held = target(), source()
    data = Decoded(held.read(np.arange(25)))
    got = []
    for part in batches(network, data, batch=10):
        got.append(part)
        data.wait_for(min(3, len(got) + 1))
    assert data.threads == ["MainThread", "neurotest-ahead", "neurotest-ahead"]
    plain = list(batches(network, held, batch=10))
    assert [p.index.tolist() for p in got] == [p.index.tolist() for p in plain]
    assert torch.equal(torch.cat([p.x for p in got]), torch.cat([p.x for p in plain]))


def test_a_damaged_input_is_told_after_the_parts_before_it() -> None:
    data = Decoded(source().read(np.arange(25)), bad=15)
    got: list[int] = []
    with pytest.raises(BadInput, match="input 15 is damaged"):
        got.extend(len(part.index) for part in batches(target(), data, batch=10))
    assert got == [10]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_pass_that_ends_early_leaves_no_thread(error: type[BaseException]) -> None:
    def step(part: Batch, trace: Trace, probe: Probe) -> None:
        raise error

    with pytest.raises(error) as caught:
        each_batch(target(shape=(1, 4, 4)), Decoded(source().read(np.arange(25))), step, batch=10)
    assert caught.tb is not None  # its frames still hold what they held
    assert "neurotest-ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_target_of_unknown_size_learns_it() -> None:
    network = target()
    assert fit(network, source()) == 3
    assert network.shape == (1, 4, 4)


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="1x4x4, the target expects 1x5x5"):
        fit(target(shape=(1, 5, 5)), source())
    with pytest.raises(BadInput, match="channels come last"):
        fit(target(shape=(1, 4, 4)), ArraySource(np.zeros((2, 4, 4, 1), np.uint8)))
    with pytest.raises(BadInput, match="outside bounds"):
        fit(target(), ArraySource(np.full((2, 1, 4, 4), 7.0, np.float32)))
    with pytest.raises(BadInput, match="does not take inputs of size 1x6x6"):
        fit(target(), ArraySource(np.zeros((2, 1, 6, 6), np.uint8)))


def test_values_out_of_bounds_are_found_wherever_they_are() -> None:
    x = np.zeros((25, 1, 4, 4), np.float32)
    x[24] = 2
    with pytest.raises(BadInput, match="outside bounds"):
        scan(target(), ArraySource(x), [], batch=10)


def test_hooks_are_gone_after_a_consumer_fails() -> None:
    class Fails(Keeps):
        def update(self, trace: Trace) -> None:
            raise RuntimeError("full")

    network = target()
    with pytest.raises(RuntimeError, match="full"):
        scan(network, source(), [Fails(Want(layers="conv"))])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.module.modules())


def test_eight_bit_and_float_data_give_the_same_trace() -> None:
    network = target()
    kept = [Keeps(None), Keeps(None)]
    scan(network, source(), [kept[0]])
    scan(network, source(dtype=np.float32), [kept[1]])
    assert torch.allclose(torch.cat(kept[0].logits), torch.cat(kept[1].logits), atol=1e-6)


def test_a_profile_of_a_source() -> None:
    network, data = target(), source()
    ranges = profile(network, data, layers="fc", batch=10)
    with torch.no_grad():
        values = network.module(network.prepare(data.read(np.arange(25)))).double().numpy()
    assert ranges.count == 25
    assert np.allclose(ranges.layers["fc"].mean, values.mean(0), atol=1e-6)
    assert np.allclose(ranges.layers["fc"].high, values.max(0), atol=1e-6)
    ranges.check(network)


def test_the_package_and_its_functions_share_names() -> None:
    assert neurotest.profile is profile
    assert neurotest.scan.scan is scan  # type: ignore[attr-defined]
    neurotest.scan(target(), source(), [])


# -- labels


def folders(*names: str) -> ArraySource:
    labels = np.arange(len(names))
    return ArraySource(np.zeros((len(names), 1, 4, 4), np.uint8), labels=labels, classes=names, spec="dir:photos", names=names)


def named(*classes: str) -> Target:
    return Target(nn.Sequential(nn.Flatten(), nn.Linear(16, len(classes) or 3)).eval(), shape=(1, 4, 4), classes=classes or None)


def test_class_folders_are_numbered_as_the_target_numbers_its_classes() -> None:
    renumbered = aligned(named("shirt", "bag", "boot"), folders("bag", "boot", "shirt"))
    assert renumbered.labels.tolist() == [1, 2, 0]
    assert renumbered.classes == ("shirt", "bag", "boot")


def test_a_subset_of_the_classes_will_do_and_an_unknown_folder_will_not() -> None:
    assert aligned(named("shirt", "bag", "boot"), folders("boot")).labels.tolist() == [2]
    with pytest.raises(BadInput, match=r"'bagg' is not a class of the target\. Did you mean bag"):
        aligned(named("shirt", "bag", "boot"), folders("bagg", "boot"))


def test_folders_named_by_number_are_class_numbers() -> None:
    assert aligned(named("shirt", "bag", "boot"), folders("0", "2")).labels.tolist() == [0, 2]
    with pytest.raises(BadInput, match="not a class"):
        aligned(named("shirt", "bag", "boot"), folders("0", "3"))


def test_without_class_names_the_numbering_is_said() -> None:
    (sentence,) = remarks(named(), folders("bag", "boot", "shirt"))
    assert "0 = bag, 1 = boot" in sentence
    assert remarks(named("bag", "boot", "shirt"), folders("bag", "boot", "shirt")) == ()


def test_skipped_files_are_said() -> None:
    source = folders("bag")
    source.skipped = (Skipped("a.png", "damaged"), Skipped("b.png", "odd size"))
    (sentence,) = remarks(named("bag"), source)
    assert "2 files skipped (first: a.png, damaged)" in sentence


def test_two_classes_may_share_a_name() -> None:
    """ImageNet has two missiles; labels that are numbers still mean the classes in their order."""
    named = neurotest.load(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval(), size=(1, 2, 2), classes=["missile", "owl", "missile"]
    )
    source = ArraySource(np.zeros((3, 1, 2, 2), np.uint8), np.array([2, 0, 1]), classes=["0", "1", "2"])
    lined_up = aligned(named, source)
    assert lined_up.labels is not None
    assert lined_up.labels.tolist() == [2, 0, 1]
