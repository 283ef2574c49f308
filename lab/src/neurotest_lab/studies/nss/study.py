"""`neurotest study nss`: the tables and figures of the NSS paper, ours beside theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurotest.registry import register
from neurotest_lab.studies.frame import Cell, Reason, Results, Study, Subjects, cell, grouped, repeated
from neurotest_lab.studies.nss import cells, published, tables

QUICK = ("mnist-lenet1", "fashion-lenet1")
FULL = (
    *QUICK, "mnist-lenet5", "fashion-resnet20", "cifar10-resnet20", "mnist-lenet4", "fashion-lenet5",
    "mnist-fcnet5", "mnist-fcnet10", "mnist-conv1d", "mnist-conv2d",
)  # fmt: skip
SEEDS = {"quick": 3, "full": 5}
LIMIT = {"quick": 5000, "full": None}
ONE_MUTATION = Subjects(("mnist-lenet1",), ("cifar10-resnet20", "mnist-lenet1", "fashion-lenet1"))


@register(
    "study",
    "nss",
    paper="NSS: neuron sensitivity guided test case selection, tables V, VI, VII, IX, X and figures 3, 4, 5",
    cost="quick: two subjects, three pools of 5,000, under 15 minutes on two cores; full: every zoo subject whose weights are "
    "here, five pools of 10,000",
    differs="NSS compares with originals (`nss`) or with a fresh mutation (`nss, unpaired`); the two never share a row.",
)
class NssStudy(Study):
    """Which method finds most faults, and most kinds of them, among mutated test images."""

    subjects = Subjects(QUICK, FULL)
    absent = published.PAPER["absent"]

    def each_cell(self, scale: str) -> Iterator[Cell]:
        limit = LIMIT[scale]
        for subject in self.subjects.here(scale):
            for seed in range(SEEDS[scale]):
                for word in cells.METHODS:
                    yield cell(f"select/{subject}/{seed}/{word}", cells.selection, subject, seed, word, limit)
                yield cell(f"shares/{subject}/{seed}", cells.shares, subject, seed, limit)
                yield cell(f"layers/{subject}/{seed}", cells.layers, subject, seed, limit)
            yield cell(f"sensitivity/{subject}", cells.sensitivity, subject, limit)
            for word in cells.TIMED:
                yield cell(f"overhead/{subject}/{word}", cells.overhead, subject, word, limit)
        for subject in ONE_MUTATION.here(scale):
            for name in cells.FIXED:
                yield cell(f"fixed/{subject}/{name}", cells.fixed, subject, name, limit)

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        subjects, seeds = self.subjects.here(scale), SEEDS[scale]
        picked = grouped(done, "select/{s}/{}/{m}", seeds, dict.fromkeys(subjects, cells.METHODS))
        shares, layers = (
            {s: pools for s in subjects if (pools := repeated(done, f"{kind}/{s}/{{}}", seeds))} for kind in ("shares", "layers")
        )
        return {
            "V: fault detection rate": tables.rates(picked),
            "VI: one mutation for all": tables.one_mutation(done),
            "VII: area under the fault-type curve": tables.areas(picked),
            "IX: share of sensitive neurons": tables.by_share(shares),
            "X: layer": tables.by_layer(layers),
            "figure 3: sensitivity and strength": tables.sensitivity(done),
            "figure 4: fault-type curves": tables.curves(picked),
            "figure 5: overhead": tables.overhead(done),
        }, tables.checks(picked, done)

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        if scale == "quick":
            yield "table VI on CIFAR-10 with ResNet-20", "only with --scale full; here on other subjects"

    def absent_name(self, key: str) -> str:
        return f"method {key.rsplit('/', 1)[1]}" if key.startswith(("select/", "overhead/")) else key
