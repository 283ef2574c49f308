"""The NSS paper's preset and its DSA against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neurotest import registry, rng
from neurotest.select import select
from neurotest.select.scorer import Partner
from neurotest.select.sensitivity import NSS, _Sensitivity
from neurotest.target import Trace
from neurotest_lab.studies.nss.cells import METHODS

from .subjects import animals


def test_nss_is_algorithms_1_and_2() -> None:
    random = np.random.default_rng(0)
    here, first, second = random.random((3, 50, 20)).astype(np.float32)
    method = registry.build("selector", "nss:preset=paper")
    assert isinstance(method, NSS)
    assert method.partner == Partner("remutate", 2)  # a fresh mutation in each algorithm
    changes = [0.0] * 20  # algorithm 1, lines 4 to 7
    for x in range(50):
        for i in range(20):
            changes[i] += abs(float(first[x, i]) - float(here[x, i]))
    chosen = np.argsort(changes)[-int(0.1 * 20) :]
    scores = []  # algorithm 2, lines 5 to 10
    for x in range(50):
        scores.append(sum(abs(float(second[x, i]) - float(here[x, i])) for i in chosen))
    state = _Sensitivity(method, 50)

    def trace(values: np.ndarray) -> Trace:
        return Trace(torch.zeros(len(values), 2), {method.want: {"layer": torch.from_numpy(values)}})

    for start in range(0, 50, 7):
        part = slice(start, start + 7)
        state.update(np.arange(50)[part], trace(here[part]), [trace(first[part]), trace(second[part])])
    assert state.value().tolist() == pytest.approx(scores, abs=1e-5)


def test_dsa_of_table_4_takes_a_thousand_training_inputs() -> None:
    assert METHODS["dsa"] == "dsa:inputs=1000"
    target, pool, train = animals()
    few = select(target, pool, "dsa:inputs=12", 30, train=train, seed=4)
    rows = np.sort(rng.stream("select.surprise", 4).permutation(30)[:12])
    plain = select(target, pool, "dsa", 30, train=train.take(rows), seed=4)
    assert few.order.tolist() == plain.order.tolist()
