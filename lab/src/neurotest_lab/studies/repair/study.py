"""`neurotest study repair`: NSS table VIII, NSGen table 13, DeepSensor's change under attacks, and what our default adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from neurotest.generate.gradient.toolbox import installed
from neurotest.registry import register
from neurotest.repair.protocol import CONTROLS
from neurotest_lab.studies.frame import Cell, Reason, Results, Study, Subjects, cell, repeated
from neurotest_lab.studies.repair import cells, published, tables

QUICK = ("mnist-lenet1", "fashion-lenet5")
FULL = (*QUICK, "cifar10-resnet20", "fashion-resnet20", "mnist-lenet5", "fashion-lenet1")
SEEDS = {"quick": 3, "full": 5}
MORE = 8  # seeds of default beside mutated training images; those beyond SEEDS without the other controls
FIRST = 10  # seeds below were used to choose settings
ALONE, ALONE_SEEDS = 20, 8  # of repair without training data; those before were looked at when its greatest weight was chosen
SELECTORS = {"nss": "nss:reference=original", "deepgini": "deepgini", "random": "random"}
# Training images, images to judge by and, where an epoch costs minutes, seeds of the campaign.
SMALL: dict[bool, Any] = {
    False: {"train": 2500, "holdout": 2500},
    True: {"train": 1000, "holdout": 2500, "seeds": 1000},
}
LABELS = 300  # faults to learn from without training data
EPOCHS = {"quick": 5, "full": 10}
LONG = {"quick": 8, "full": 40}  # of the NSS protocol
DEEP = ("cifar10-resnet20", "fashion-resnet20")  # whose epochs cost minutes
ATTACKS = ("fgsm:eps=0.1", "pgd:eps=0.1,step=0.02,steps=10", "bim:eps=0.1,step=0.02,steps=10")
TOOLBOX = ("deepfool", "jsma:gamma=0.05")  # where the adversarial-robustness-toolbox is installed
VICTIMS, DISTANCES = 50, 8  # inputs that are attacked, and whose distance to another class is estimated


@register(
    "study",
    "repair",
    paper="NSS table VIII; NSGen table 13; DeepSensor, robustness after retraining",
    cost="quick: two LeNets, three seeds, under 15 minutes on two cores; full: six networks, five seeds, hours",
    differs="Judged on what nobody trained on, with four controls in every row. Faults come from a mutated pool.",
)
class RepairStudy(Study):
    """What retraining on faults, or on selected inputs, is worth beside controls."""

    subjects = Subjects(QUICK, FULL)
    absent = published.PAPER["absent"]

    def each_cell(self, scale: str) -> Iterator[Cell]:
        subjects = self.subjects.here(scale)
        for subject in self.subjects.here("full"):
            if subject in subjects or subject in DEEP:
                yield from self._default(subject, scale, optional=subject not in subjects)
        for subject in subjects:
            yield from self._alone(subject, scale)
            yield from self._papers(subject, scale)

    def _default(self, subject: str, scale: str, optional: bool) -> Iterator[Cell]:
        """Those that the quick scale has no time for are there where they are asked for."""
        deep = subject in DEEP
        protocol = "default:epochs=4" if deep else "default"
        for seed in range(FIRST, FIRST + MORE):
            further = seed >= FIRST + SEEDS[scale]
            controls = ("mutated",) if further else ("schedule", "mutated") if deep else tuple(CONTROLS)
            one = cell(f"default/{subject}/{seed}", cells.repaired, subject, seed, protocol, controls=controls, **SMALL[deep])
            yield dataclasses.replace(one, optional=optional or (further and scale == "quick"))

    def _alone(self, subject: str, scale: str) -> Iterator[Cell]:
        alone = {"train": 0, "holdout": 2500, "faults": 2 * LABELS, "unseen": 0.0, "benign": False}
        for seed in range(ALONE, ALONE + ALONE_SEEDS):
            further = seed >= ALONE + SEEDS[scale]
            for protocol in ("interpolated", "head"):
                controls = ("mutated",) if protocol == "interpolated" and not further else ()
                key = f"alone/{subject}/{protocol}/{seed}"
                one = cell(key, cells.repaired, subject, seed, protocol, controls=controls, **alone)
                yield dataclasses.replace(one, optional=further)

    def _papers(self, subject: str, scale: str) -> Iterator[Cell]:
        """NSS table VIII; NSGen table 13 and DeepSensor's figures 4 to 6. The quick scale has one seed of them, and more where
        they are asked for."""
        for seed in range(FIRST, FIRST + SEEDS[scale]):
            yield from (
                dataclasses.replace(one, optional=scale == "quick" and seed > FIRST)
                for one in (*self._selected(subject, scale, seed), *self._attacked(subject, scale, seed))
            )

    def _selected(self, subject: str, scale: str, seed: int) -> Iterator[Cell]:
        for word, method in SELECTORS.items():
            yield cell(
                f"select/{subject}/{word}/{seed}", cells.repaired, subject, seed, f"nss:epochs={LONG[scale]}",
                selector=method, **SMALL[subject in DEEP],
            )  # fmt: skip

    def _attacked(self, subject: str, scale: str, seed: int) -> Iterator[Cell]:
        deep = subject in DEEP
        for protocol in (f"nsgen:epochs={1 if deep else EPOCHS[scale]}", "deepsensor", "static-adv:eps=0.1"):
            name = protocol.partition(":")[0]
            yield cell(
                f"attacks/{subject}/{name}/{seed}", cells.repaired, subject, seed, protocol, victims=VICTIMS,
                attacks=(*ATTACKS, *(TOOLBOX if installed() else ())), distances=DISTANCES, **SMALL[deep],
            )  # fmt: skip

    def results(self, scale: str, done: dict[str, Any]) -> Results:
        subjects, seeds = self.subjects.here(scale), ALONE + ALONE_SEEDS
        default = {s: trainings for s in self.subjects.here("full") if (trainings := repeated(done, f"default/{s}/{{}}", seeds))}
        kinds = {"alone": ("interpolated", "head"), "select": tuple(SELECTORS), "attacks": ("nsgen", "deepsensor", "static-adv")}
        groups: dict[str, dict[tuple[str, str], list[Any]]] = {kind: {} for kind in kinds}
        for kind, names in kinds.items():
            for subject, name in ((s, n) for s in subjects for n in names):
                if trainings := repeated(done, f"{kind}/{subject}/{name}/{{}}", seeds):
                    groups[kind][(subject, name)] = trainings
        results = {
            "default beside its controls": tables.beside_controls(default),
            "without training data": tables.without_data(groups["alone"]),
            "NSS VIII: a tenth of a mutated pool": tables.selected(groups["select"]),
            "NSGen 13, DeepSensor 4 and 5: under attack": tables.attacked(groups["attacks"]),
            "DeepSensor 6: estimated distance to another class (CLEVER, L2)": tables.distances(groups["attacks"]),
            "NSGen 13 as printed, CIFAR-10": tables.printed_13(),
        }
        return results, self._checks(results)

    def _checks(self, results: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
        rows = results["default beside its controls"]
        checks = {}
        for row in rows:
            if row["gain over mutated"] is not None and row["set"].startswith("holdout"):
                checks[f"{row['subject']}: gain over mutated, {row['set']}"] = row["gain over mutated"]
        return checks

    def left_out(self, scale: str, done: dict[str, Any]) -> Iterator[Reason]:
        if not any("deepfool-adaptive" in one["ours"] for key, one in done.items() if key.startswith("attacks/")):
            yield "change of accuracy under DeepFool and JSMA", "they need the extra `attacks`: pip install 'neurotest[attacks]'"
        if scale == "quick":
            yield "default on the ResNet-20s", "only with --scale full, or --only default/"
            yield "more than one seed for table VIII and for attacks", "only with --scale full, or --only select/ or attacks/"
