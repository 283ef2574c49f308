"""`neurotest study coverage`: does higher neuron coverage go with more faults, more natural inputs, less favoured classes?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurotest import zoo
from neurotest.registry import register
from neurotest.studies import coverage_cells as cells_
from neurotest.studies import coverage_published as paper
from neurotest.studies import coverage_tables as told
from neurotest.studies import coverage_xplore as xplore
from neurotest.studies.coverage_cells import Plan
from neurotest.studies.coverage_tables import Suite
from neurotest.studies.study import Cell

Row = dict[str, Any]
SUBJECTS = tuple(paper.OURS)
STRENGTHS = {"pgd": (0.1, 0.2, 0.3), "pgd-first": (0.1, 0.2, 0.3), "cw": (0.0, 20.0, 40.0)}
WEIGHTS = {"quick": (0.0, 1.0, 1e2, 1e4), "full": (0.0, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5)}
CLASS_WEIGHTS = {"quick": (0.0, 1.0, 1e2, 1e4), "full": (0.0, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5)}
FIGURE = "mnist-conv2d"  # the subject of table 7 and figures 2 and 8
BESIDE = ("subject", "layer", "lambda", "nc before", "nc after", "before png", "after png")  # figure 2
METRICS = ("asr", "is", "fid", "kid", "oi", "oi faults", "ssim")
HOPED = {"asr": 1, "is": 1, "fid": -1, "kid": -1, "oi": 1, "oi faults": 1, "ssim": 1}
TITLES = {
    "asr": "4: coverage and defects", "is": "5: coverage and naturalness", "fid": "5: coverage and naturalness",
    "kid": "5: coverage and naturalness", "ssim": "5: coverage and naturalness", "oi": "6: coverage and impartiality",
    "oi faults": "6: coverage and impartiality",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """How much of a subject a scale holds: suites of so many images, of which draws. asked: only when `--only` names them."""

    subject: str
    attacks: tuple[str, ...]
    images: int
    draws: tuple[int, ...]
    asked: bool = False


# Quick is bounded by about 14 minutes of one core: a suite of the ResNet costs 70 times one of FCNet5.
PARTS: dict[str, tuple[Part, ...]] = {
    "quick": (
        Part("mnist-fcnet5", ("pgd", "pgd-first", "cw"), 100, (0, 1, 2)),
        Part("mnist-fcnet10", ("pgd", "cw"), 50, (0,)),
        Part("mnist-conv1d", ("pgd", "cw"), 20, (0,)),
        Part("mnist-conv2d", ("pgd", "cw"), 50, (0,)),
        Part("cifar10-resnet20", ("pgd",), 50, (0,)),
        Part("cifar10-resnet20", ("cw",), 20, (1,), asked=True),
    ),
    "full": tuple(Part(name, ("pgd", "pgd-first", "cw"), 100, (0, 1, 2)) for name in SUBJECTS),
}
ASKED = "CW on cifar10-resnet20"
LAYERS = {"quick": 3, "full": 6}
STEPS = 40
EPS = 0.3

ABSENT = [
    ("DenseNet121, ResNet56", "too large to train here; cifar10-resnet20 stands in for the CIFAR-10 networks"),
    ("Dave2, Dave2-N (driving)", "the data set and the networks are not available here"),
    ("IS and FID by InceptionV3", "its weights are not available; the extractor is named beside every number"),
    ("figure 9 and section 5.2", "a discussion of other people's pictures of neurons, with nothing to measure"),
]
LEFT_OUT = {
    "quick": [
        (ASKED, "30 suites of 20 images take 7 minutes more: `--resume RUN --only suite/cifar10-resnet20/1/cw`"),
        ("100 images and three draws of others than FCNet5", "processor time: 50 images (20 of Conv1DNet), one draw"),
        ("lambda 10, 1e3, 1e5; layers between first, middle and last", "not part of the quick scale"),
        ("CW with five searches of 1,000 steps", "one search of 200 steps from weight 1"),
        ("regularising after success only (pgd-first), DeepXplore", "on the first subject and on the LeNets only"),
    ],
    "full": [],
}


@register(
    "study",
    "coverage",
    paper="Harel-Canada et al., Is Neuron Coverage a Meaningful Measure for Testing Deep Neural Networks?, FSE 2020",
    cost="quick: about 14 minutes on one core; full: five networks, 100 images, all layers (six of the ResNet), days; "
    "`--from-csv`: seconds",
    differs="Seeds are images the network gets right, so that a success is one. Beside the plain correlation stand the one given "
    "lambda, those within lambda and an interval over clusters of layer, strength and draw: suites that share images are not "
    "independent. A failed CW gives its last image, not the clean one. FID has shrunk covariances and named features.",
)
@dataclass(frozen=True, kw_only=True)
class CoverageStudy:
    """Correlates neuron coverage of suites with the faults they show, how natural they are and how evenly they fail.

    from_csv: the published suites; only the statistics are run on them.
    """

    from_csv: str | None = None

    def __post_init__(self) -> None:
        if self.from_csv is not None:
            told.read_csv(self.from_csv)  # a file that does not fit is told before a run is made

    def cells(self, scale: str) -> Sequence[Cell]:
        if self.from_csv is not None:
            return [Cell("published suites", functools.partial(told.from_csv, self.from_csv))]
        found = []
        for part in here(scale):
            for draw in part.draws:
                found.append(_cell(f"clean/{part.subject}/{draw}", cells_.original, part.subject, draw, part.images))
                found += [Cell(plan.key, functools.partial(cells_.suite, plan), part.asked) for plan in plans(part, draw, scale)]
        if zoo.find(FIGURE).weights is not None:
            found.append(_cell(f"classes/{FIGURE}", cells_.class_bias, FIGURE, CLASS_WEIGHTS[scale], EPS, STEPS))
            found += [
                _cell(f"figure 2/{FIGURE}/{layer}", cells_.activations, FIGURE, layer, 1e2, 50, EPS, STEPS)
                for layer in ("conv1", "fc1")
            ]
        return [*found, *(_cell(plan.key, xplore.suite, plan) for plan in xplore.plans(scale))]

    def tables(self, scale: str, done: dict[str, Any]) -> dict[str, Any]:
        if self.from_csv is not None:
            whole: dict[str, Any] = done.get("published suites", {"tables": {}, "checks": {}})
            return whole
        rows = [row for key, row in done.items() if key.startswith("suite/")]
        suites = [as_suite(row) for row in rows]
        found = told.correlations(suites, METRICS, paper.THRESHOLDS, HOPED)
        _beside_paper(found)
        column = paper.THRESHOLDS.index(told.SHOWN)
        exists = told.correlations([as_suite(r, exists=True) for r in rows], ("asr", "oi", "fid"), (cells_.EXISTS,), HOPED)
        between, across = xplore.tables(done)
        tables: dict[str, Any] = {
            "2: coverage gained": gains(done, rows),
            **{title: [r for r in found if TITLES[r["metric"]] == title] for title in dict.fromkeys(TITLES.values())},
            "verdicts": told.verdicts(found, ("metric", "attack")),
            "coverage as DeepXplore defines it (some input)": exists,
            "within lambda (t=.2)": told.within_lambda(suites, ("asr", "oi"), column),
            "by lambda (t=.2)": told.by_lambda(suites, METRICS, column),
            "lambda confounds": told.lambda_confounds(suites),
            "beside random noise of the same size": beside_random(done, rows),
            **class_tables(done.get(f"classes/{FIGURE}")),
            "figure 2: activations": [{n: row[n] for n in BESIDE} for key, row in done.items() if key.startswith("figure 2/")],
            "figures 3, 4, 7: suites": [_point(row) for row in rows],
            "figures 5, 6: suites of low and high coverage": samples(done, rows),
            "5.1: DeepXplore": between,
            "5.1: DeepXplore's suites": across,
            "budgets": budgets(scale, rows),
            "not rerun": absent(scale, done),
        }  # fmt: skip
        return {"tables": tables, "checks": checks(found, between, tables)}


def _cell(key: str, make: Callable[..., Any], *arguments: Any) -> Cell:
    return Cell(key, functools.partial(make, *arguments))


def here(scale: str) -> list[Part]:
    return [part for part in PARTS[scale] if zoo.find(part.subject).weights is not None]


@functools.cache
def layers_of(subject: str, count: int) -> tuple[str, ...]:
    """Evenly spaced convolutions and dense layers, from the first to the last."""
    names = [layer.name for layer in cells_.subject_of(subject).target.survey().find("pre_activation")]
    if subject.startswith("mnist") and count > 3:
        return tuple(names)
    return tuple(names[i] for i in np.unique(np.linspace(0, len(names) - 1, count).round().astype(int)))


def plans(part: Part, draw: int, scale: str) -> list[Plan]:
    """Every suite of a subject; without a regulariser there is no layer to choose."""
    found = []
    for attack in part.attacks:
        for strength in STRENGTHS[attack]:
            about: Row = {"subject": part.subject, "attack": attack, "strength": strength, "draw": draw, "images": part.images}
            for weight in WEIGHTS[scale]:
                layers = (None,) if weight == 0 else layers_of(part.subject, LAYERS[scale])
                found += [Plan(layer=layer, weight=weight, scale=scale, **about) for layer in layers]
    return found


def as_suite(row: Row, *, exists: bool = False) -> Suite:
    return Suite(
        model=row["subject"], attack=row["attack"], layer=str(row["layer"]), weight=row["weight"], strength=row["strength"],
        nc=(row["exists"],) if exists else tuple(row["nc"]), metrics={name: row[name] for name in METRICS}, draw=row["draw"],
    )  # fmt: skip


def _beside_paper(rows: list[Row]) -> None:
    for row in rows:
        known = row["metric"] in paper.METRICS and row["attack"] in ("cw", "pgd")
        column = paper.THRESHOLDS.index(row["t"])
        row["paper"] = paper.published(row["metric"], paper.OURS[row["model"]], row["attack"], column) if known else None


def gains(done: dict[str, Any], rows: list[Row]) -> list[Row]:
    """Table 2: coverage of the clean suite, and by how many per cent regularised suites raise it; random noise beside."""
    found = []
    for subject in dict.fromkeys(row["subject"] for row in rows):
        regularised = [r for r in rows if r["subject"] == subject and r["weight"] > 0 and r["attack"] != "pgd-first"]
        mine = [r for r in regularised if f"clean/{subject}/{r['draw']}" in done]
        for column, threshold in enumerate(paper.THRESHOLDS if mine else ()):
            before = np.array([done[f"clean/{subject}/{r['draw']}"]["nc"][column] for r in mine])
            if not before.all():
                continue
            made, noise = (100 * (np.array([r[what][column] for r in mine]) / before - 1) for what in ("nc", "random nc"))
            theirs = paper.GAINS[paper.OURS[subject]][column]
            found.append(
                {
                    "subject": subject, "t": threshold, "clean %": round(100 * float(before.mean()), 2),
                    "mean gain %": round(float(made.mean()), 2), "greatest gain %": round(float(made.max()), 2),
                    "random, mean gain %": round(float(noise.mean()), 2), "paper clean %": theirs[0],
                    "paper mean gain %": theirs[1], "paper greatest gain %": theirs[2],
                }
            )  # fmt: skip
    return found


def beside_random(done: dict[str, Any], rows: list[Row]) -> list[Row]:
    """Success and coverage at .2 of each attack and lambda beside the same changes at random places with random signs."""
    from neurotest.stats.bootstrap import mean_interval

    found = []
    for key in dict.fromkeys((r["subject"], r["attack"], r["weight"]) for r in rows):
        mine = [r for r in rows if (r["subject"], r["attack"], r["weight"]) == key]
        row: Row = dict(zip(("subject", "attack", "lambda"), key, strict=True))
        for name, values in (
            ("asr", [r["asr"] for r in mine]), ("random asr", [r["random asr"] for r in mine]),
            ("nc", [r["nc"][1] for r in mine]), ("random nc", [r["random nc"][1] for r in mine]),
        ):  # fmt: skip
            mean = mean_interval(values)
            row |= {name: round(mean.value, 4), f"{name} low": round(mean.low, 4), f"{name} high": round(mean.high, 4)}
        found.append({**row, "suites": len(mine)})
    return found


def class_tables(cell: Row | None) -> dict[str, list[Row]]:
    """Table 7, and figure 8 as its histogram and its heat map."""
    if cell is None:
        return {}
    order = np.argsort(cell["ranks"], kind="stable")
    ranks = [
        {"class": int(c), "mean rank": round(cell["ranks"][c], 2), "paper": paper.RANKS[int(c)],
         "coverage": round(cell["coverage"][c], 4)}
        for c in order
    ]  # fmt: skip
    numbers, heat = [], []
    for one in cell["attacks"]:
        counts = np.array(one["heat"]).sum(0)
        numbers.append(
            {
                "lambda": one["lambda"], "success": round(one["asr"], 4), "coverage before": round(cell["nc before"], 4),
                "coverage": round(one["nc"], 4), "favoured class": int(counts.argmax()),
                "its share": round(float(counts.max() / counts.sum()), 4), "evenness": one["oi"],
                "evenness of faults": one["oi faults"], "spearman with coverage rank": one["spearman"], "p": one["p"],
                "of faults only": one["spearman faults"], "p of faults": one["p faults"],
            }
        )  # fmt: skip
        heat += [
            {"lambda": one["lambda"], "true": true, "predicted": said, "inputs": n}
            for true, line in enumerate(one["heat"])
            for said, n in enumerate(line)
            if n
        ]
    return {
        "7: classes by the coverage of their inputs": ranks,
        "figure 8: classes favoured": numbers,
        "figure 8: from where to where": heat,
    }


def _point(row: Row) -> Row:
    names = ("subject", "attack", "layer", "weight", "strength", "draw", *METRICS)
    return {**{("lambda" if n == "weight" else n): row[n] for n in names}, "nc": row["nc"][1], "exists": row["exists"]}


def samples(done: dict[str, Any], rows: list[Row]) -> list[Row]:
    """Of each subject the clean suite and the suites of lowest and highest coverage at .2, one image per class."""
    found = []
    for subject in dict.fromkeys(row["subject"] for row in rows):
        mine = sorted((r for r in rows if r["subject"] == subject), key=lambda r: r["nc"][1])
        shown = [("lowest coverage", mine[0]), ("highest coverage", mine[-1])]
        if (first := done.get(f"clean/{subject}/0")) is not None:
            shown.insert(0, ("clean", first))
        for word, row in shown:
            found.append(
                {"subject": subject, "which": word, "nc": round(row["nc"][1], 4), "fid": row.get("fid"), "is": row.get("is"),
                 "success": row.get("asr"), "attack": row.get("attack"), "lambda": row.get("weight"), "png": row["png"]}
            )  # fmt: skip
    return found


def budgets(scale: str, rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    for part in here(scale):
        mine = [r for r in rows if r["subject"] == part.subject and r["draw"] in part.draws]
        if part.asked and not mine:
            continue
        found.append(
            {
                "subject": part.subject, "images": part.images, "draws": len(part.draws), "attacks": ", ".join(part.attacks),
                "layers": ", ".join(layers_of(part.subject, LAYERS[scale])), "suites": len(mine),
                "forwards": sum(r["forwards"] for r in mine), "backwards": sum(r["backwards"] for r in mine),
            }
        )  # fmt: skip
    return found


def absent(scale: str, done: dict[str, Any]) -> list[Row]:
    there = any(key.startswith("suite/cifar10-resnet20/1/cw") for key in done)
    rows = [{"what": what, "why": why} for what, why in (*ABSENT, *LEFT_OUT[scale]) if not (there and what == ASKED)]
    lacking = dict.fromkeys(p.subject for p in PARTS[scale] if p not in here(scale))
    rows += [{"what": name, "why": f"its weights are not here: `neurotest zoo train {name}`"} for name in lacking]
    rows += [{"what": key, "why": row["absent"]} for key, row in done.items() if isinstance(row, dict) and "absent" in row]
    return rows


def checks(found: list[Row], between: list[Row], tables: dict[str, Any]) -> dict[str, float]:
    """The study's claims as numbers."""
    held: dict[str, float] = {}
    for name, metrics in (("defects", ("asr",)), ("naturalness", ("is", "fid")), ("impartiality", ("oi",))):
        mine = [r for r in found if r["metric"] in metrics and r["attack"] in ("pgd", "cw")]
        if mine:
            held[f"correlations that support {name}"] = sum(r["supports"] for r in mine)
            held[f"correlations with {name}"] = len(mine)
    pgd = [r for r in found if r["metric"] == "asr" and r["attack"] == "pgd" and r["t"] == told.SHOWN]
    plain, given = ([r[k] for r in pgd if r[k] is not None] for k in ("r", "given lambda"))
    if plain and given:
        held["mean correlation of coverage (.2) and success, pgd"] = round(float(np.mean(plain)), 4)
        held["the same given lambda"] = round(float(np.mean(given)), 4)
    if between:
        held["DeepXplore's correlations that support a claim"] = sum(r["supports"] for r in between)
        held["DeepXplore's correlations"] = len(between)
    for row in tables.get("figure 8: classes favoured", ()):
        if row["spearman with coverage rank"] is not None:
            held[f"classes favoured and their coverage, lambda {row['lambda']:g}"] = round(row["spearman with coverage rank"], 4)
    return held
