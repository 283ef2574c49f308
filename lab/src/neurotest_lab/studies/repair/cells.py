"""The measurements of the repair study: one protocol with its controls on one network, as plain data.

Settings were chosen on test images with even numbers; everything here uses the odd ones, half of them as seeds of a campaign.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from neurotest import rng, zoo
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import Leads
from neurotest.jobs.methods import with_options
from neurotest.repair.evaluation import Judge, read_attacks
from neurotest.repair.lessons import predictions
from neurotest.repair.material import Material
from neurotest.repair.operators import Operators, unit
from neurotest.repair.plan import RepairPlan, make_plan
from neurotest.repair.protocol import CONTROLS, Protocol, control
from neurotest.repair.retrain import Repaired
from neurotest.select import select
from neurotest.target import Target
from neurotest.target.load import load
from neurotest_lab.studies.frame import Row, even, odd

TIMES = 4  # a campaign mutates every seed so often
UNSEEN = 0.3
CLEVER = Clever(norm="l2", batches=50, samples=32)


def splits(subject: str, train: int | None, parity: str = "odd") -> tuple[Source, Source]:
    """Training data, and odd (or even) test images: the embedded ones or, of CIFAR-10, of which few are embedded, the complete
    set."""
    name = zoo.find(subject).dataset
    full = "-full" if name == "cifar10" else ""
    test = data(f"zoo:{name}{full}/test")
    return data(f"zoo:{name}{full}/train", limit=train), odd(test) if parity == "odd" else even(test)


def halves(test: Source, seed: int, holdout: int) -> tuple[Source, Source]:
    """Seeds of a campaign, and what is judged by."""
    order = rng.stream("study.repair.halves", seed).permutation(len(test))
    middle = len(order) // 2
    return test.take(np.sort(order[:middle])), test.take(np.sort(order[middle:][:holdout]))


def campaign(target: Target, seeds: Source, seed: int, most: int) -> Material:
    """Faults of a mutated pool: every seed the target gets right, mutated TIMES times, each operator equally often."""
    assert seeds.labels is not None
    seeds = seeds.take(predictions(target, seeds) == seeds.labels)
    assert seeds.labels is not None
    operators, rows = Operators.of_source(seeds), np.tile(np.arange(len(seeds)), TIMES)
    pool, changes = operators.pool(seeds.take(rows), seed, target.bounds, "study")
    predicted, labels = predictions(target, pool), seeds.labels[rows]
    wrong = np.flatnonzero(predicted != labels)
    wrong = np.sort(rng.stream("study.repair.faults", seed).permutation(wrong)[:most])
    names = [operators.names[kind] for kind in changes.kind[wrong].tolist()]
    originals = ArraySource(seeds.read(rows[wrong]), labels[wrong])
    inputs = ArraySource(pool.read(wrong), labels[wrong], classes=seeds.classes, spec="campaign", originals=originals)
    families = tuple(zip(labels[wrong].tolist(), predicted[wrong].tolist(), names, strict=True))
    return Material(
        inputs, predicted[wrong], originals.ids(), tuple(frozenset({name}) for name in names), families, "faults", "fuzz",
        ArraySource(seeds.read(np.arange(len(seeds))), seeds.labels, classes=seeds.classes, spec="seeds"),
    )  # fmt: skip


def picks(target: Target, seeds: Source, seed: int, method: str, train: Source) -> tuple[Material, Source]:
    """A tenth of a mutated pool, selected by a method, and the pool."""
    operators = Operators.of_source(seeds)
    pool, changes = operators.pool(seeds, seed, target.bounds, "picks")
    chosen = select(target, pool, method, "10%", train=train, seed=seed)
    rows = np.sort(chosen.order[: max(1, len(pool) // 10)])
    assert pool.labels is not None
    predicted = predictions(target, pool)[rows]
    names = [operators.names[kind] for kind in changes.kind[rows].tolist()]
    families = tuple(zip(pool.labels[rows].tolist(), predicted.tolist(), names, strict=True))
    inputs = pool.take(rows)
    assert inputs.originals is not None
    chains = tuple(frozenset({name}) for name in names)
    return Material(inputs, predicted, inputs.originals.ids(), chains, families, "picks", "select"), pool


def planned(
    subject: str, seed: int, *, train: int | None, holdout: int = 2500, faults: int = 2000, selector: str | None = None,
    unseen: float = UNSEEN, benign: bool = True, parity: str = "odd", seeds: int | None = None,
) -> RepairPlan:  # fmt: skip
    """The faults of a campaign, or picks, on half of the test images, split, and the other half to judge by. seeds: of the
    campaign, at most."""
    target = load(f"zoo:{subject}")
    training, images = splits(subject, train or 1, parity)
    half, held = halves(images, seed, holdout)
    tested, pool = half.take(np.arange(min(len(half), seeds or len(half)))), None
    if selector is None:
        material = campaign(target, tested, seed, faults)
        material = material if benign else dataclasses.replace(material, benign=None)
    else:
        material, pool = picks(target, tested, seed, selector, training)
    classes = len(zoo.find(subject).classes)
    return make_plan(target, classes, material, training if train else None, held, unseen=unseen, seed=seed, pool=pool)


def repaired(
    subject: str, seed: int, protocol: str, *, train: int | None, holdout: int = 2500, faults: int = 2000,
    controls: tuple[str, ...] = tuple(CONTROLS), attacks: tuple[str, ...] = ("none",), victims: int = 200, distances: int = 0,
    selector: str | None = None, unseen: float = UNSEEN, benign: bool = True, seeds: int | None = None,
) -> Row:  # fmt: skip
    """One protocol and its controls. train: training inputs; 0: none at all. benign: whether all seeds of the campaign are there
    to learn from, not only those of its faults. victims: inputs that are attacked; distances: inputs of which CLEVER estimates
    how far the nearest other class is."""
    torch.set_num_threads(1)
    sizes: Row = {"train": train, "holdout": holdout, "faults": faults, "unseen": unseen, "benign": benign, "seeds": seeds}
    plan = planned(subject, seed, selector=selector, **sizes)
    method: Protocol = with_options("repair", protocol, {})
    judge = Judge(plan, read_attacks(attacks, plan.sets["clean"].shape), victims)
    ours = method.repair(plan, seed)
    arms: dict[str, Repaired | str] = {}
    for name in controls:
        try:
            arms[name] = control(name, method, plan, seed)
        except BadInput as error:
            arms[name] = str(error)
    row = _numbers(plan, judge, ours, arms)
    if distances:
        row["clever"] = _distances(plan, {"ours": ours, **arms}, distances)
    return row


def _distances(plan: RepairPlan, arms: dict[str, Repaired | str], count: int) -> dict[str, list[float]]:
    """CLEVER (L2) of the same inputs, all right before, on the old network and on every new one; 0 for one that errs."""
    clean = plan.sets["clean"]
    assert clean.labels is not None
    rows = np.flatnonzero(plan.old["clean"] == clean.labels)
    rows = np.sort(rng.stream("study.repair.clever", plan.seed).permutation(rows)[:count])
    u = unit(clean.read(rows), plan.target.bounds)
    networks = {"old": plan.target}
    networks |= {name: plan.target.holding(arm.module) for name, arm in arms.items() if isinstance(arm, Repaired)}
    return {
        name: [
            CLEVER.estimate(Leads(network), u[i], int(clean.labels[row]), position=i, seed=plan.seed).score
            for i, row in enumerate(rows.tolist())
        ]
        for name, network in networks.items()
    }


def _numbers(plan: RepairPlan, judge: Judge, ours: Repaired, arms: dict[str, Repaired | str]) -> Row:
    """Accuracies in percent by set; of each control also our gain over it, with its standard error over inputs."""
    labels, old = judge.labels, judge.old()
    right = right_answers(plan, judge, ours)
    row: Row = {
        "old": {name: 100 * float((old[name] == truth).mean()) for name, truth in labels.items()},
        "ours": {name: 100 * float(values.mean()) for name, values in right.items()},
        "gain": {name: paired(values, old[name] == labels[name]) for name, values in right.items()},
        "controls": {}, "gains": {}, "unfit": {}, "weight": ours.about.get("averaging_weight"), "learned": len(plan.learn),
    }  # fmt: skip
    for arm, result in arms.items():
        if isinstance(result, str):
            row["unfit"][arm] = result
            continue
        theirs = right_answers(plan, judge, result)
        row["controls"][arm] = {name: 100 * float(values.mean()) for name, values in theirs.items()}
        row["gains"][arm] = {name: paired(right[name], values) for name, values in theirs.items()}
    return row


def right_answers(plan: RepairPlan, judge: Judge, result: Repaired) -> dict[str, np.ndarray]:
    answers = judge.predict(plan.target.holding(result.module))
    return {name: answers[name] == truth for name, truth in judge.labels.items()}


def paired(ours: np.ndarray, theirs: np.ndarray) -> list[float]:
    """Mean difference in points, and its standard error."""
    difference = 100 * (ours.astype(np.float64) - theirs.astype(np.float64))
    return [float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else 0.0]
