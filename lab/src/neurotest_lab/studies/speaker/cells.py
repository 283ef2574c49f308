"""The speaker study cell by cell: networks, what fails at 30 dB, test errors, networks trained wrongly, examples."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from neurotest import audio, zoo
from neurotest.evaluate.verification import verify
from neurotest.generate.swarm import Hit, Settings, Trajectory, controls
from neurotest.generate.swarm.measure import Problem
from neurotest.generate.swarm.settings import PAPER
from neurotest.levels import SIXTEEN
from neurotest.scan import batches
from neurotest.target import Target
from neurotest_lab.studies import excitable
from neurotest_lab.studies.frame import Row, split_of
from neurotest_lab.studies.pictures import png
from neurotest_lab.studies.speaker.generators import TRIES, WAYS
from neurotest_lab.studies.speaker.subjects import BALL, BELOW, SECOND, about, network, subject
from neurotest_lab.studies.suites import ROUNDS
from neurotest_lab.studies.swarms import Subject, answers, paper_search, search

METHODS = ("swarm", "tones", "tiles", "margin", "noise", "pgd")
EVALUATIONS = 1000
EXAMPLES = 3
LAMBDAS = ("0.001", "0.1", "0.5", "0.9")  # the paper goes from 0.1 to 0.9


def quality(name: str) -> Row:
    """How many held-out sounds the network gets right; of speakers, also verification."""
    target, test = network(name), split_of(name, "test")
    assert test.labels is not None
    predicted = np.concatenate([target.logits(part.x).argmax(1).numpy() for part in batches(target, test, batch=100)])
    row: Row = {"right": int((predicted == test.labels).sum()), "of": len(test), "parameters": _parameters(name)}
    if zoo.find(name).family != "speakers":
        return row
    result = verify(target, split_of(name, "train"), test)
    return row | {
        "eer": result.eer, "threshold": result.threshold, "rejected": result.rejected, "genuine": result.genuine,
        "accepted": result.accepted, "impostors": result.impostors,
    }  # fmt: skip


def _parameters(name: str) -> int:
    return sum(weights.numel() for weights in network(name).module.parameters())


def reach(name: str, draw: int, n: int, methods: tuple[str, ...]) -> Row:
    """Seeds that fail at 30 dB, by method; and of the faults of each, how many the second network still gets right."""
    on = subject(name, draw, n)
    settings = Settings(norm="snr", radius=BELOW, evaluations=EVALUATIONS, seed=draw)
    problem = Problem(on.target, on.x, on.y, BALL)
    runs: dict[str, Callable[[], Row]] = {
        "swarm": lambda: _searched(on, search(on, "excitability", settings)),
        "tones": lambda: _searched(on, search(on, "excitability", dataclasses.replace(settings, moves="tones"))),
        "tiles": lambda: _searched(on, search(on, "excitability", dataclasses.replace(settings, moves="tiles"))),
        "margin": lambda: _searched(on, search(on, "margin", settings)),
        "noise": lambda: _control(on, controls.noise(problem, EVALUATIONS, random=draw)),
        "pgd": lambda: _control(on, controls.pgd(problem, random=draw)),
    }
    second = _second(name)
    heard = {} if second is None else {"heard": int((answers(second, on.x) == on.y).sum())}
    return {"seeds": len(on.x), **heard, **{method: runs[method]() for method in methods}}


def _second(name: str) -> Target | None:
    second = SECOND[name]
    return network(second) if zoo.find(second).weights is not None else None


def _searched(on: Subject, trajectory: Trajectory) -> Row:
    row: Row = {"failed": len(trajectory.failed), "evaluations": float(trajectory.spent.double().mean())}
    return row | listened(on, trajectory.hits)


def listened(on: Subject, hits: list[Hit]) -> Row:
    """Of faults whose seed the second network gets right, how many it still gets right."""
    second = _second(on.name.partition("+")[0])
    if second is None or not hits:
        return {}
    rows = torch.tensor([hit.row for hit in hits])
    before = answers(second, on.x[rows]) == on.y[rows]
    after = answers(second, torch.stack([hit.x for hit in hits])) == on.y[rows]
    return {"faults": int(before.sum()), "recognised": int((before & after).sum())}


def _control(on: Subject, control: controls.SwarmControl) -> Row:
    return {"failed": control.failed, "evaluations": control.forwards / len(on.x)}


def errors(name: str, draw: int, n: int, method: str, particles: int) -> Row:
    """Table 6: test errors and error categories; how far, in decibels, the last inputs lie below their seeds; and how many of
    these still fail when they are brought into the ball of 30 dB."""
    on = subject(name, draw, n)
    suite = WAYS.generate(on, method, draw, particles, TRIES)
    inside = on.predicted(BALL.project(suite.x, on.x)) != on.y
    return {
        "seeds": len(on.x), "errors": suite.errors, "categories": suite.categories, "of": suite.chances,
        "decibels": decibels(on, suite.x), "inside": int(inside.sum()),
    }  # fmt: skip


def decibels(on: Subject, x: Tensor) -> float | None:
    """The median of how far what was added lies below the seed."""
    added = (x - on.x).flatten(1).norm(dim=1)
    loud = (on.x - 0.5).flatten(1).norm(dim=1)
    changed = added > 0
    return float((20 * torch.log10(loud[changed] / added[changed])).median()) if bool(changed.any()) else None


def faulty(name: str, draw: int, n: int, method: str, particles: int) -> Row:
    """Table 7: one test input per seed, and how many the network gets wrong, as it is and brought into the ball."""
    on = subject(name, draw, n)
    suite = WAYS.generate(on, method, draw, particles, TRIES)
    inside = on.predicted(BALL.project(suite.x, on.x)) != on.y
    wrong = int((suite.predicted != on.y).sum())
    return {"seeds": len(on.x), "errors": wrong, "inside": int(inside.sum()), "about": about(name)}


def excited(name: str, draw: int, n: int, sampled: int) -> Row:
    """Figure 1 of the paper, on sound."""
    return excitable.excited(subject(name, draw, n), BALL, "study.speaker.benign", draw, pairs=n, sampled=sampled)


def course(name: str, draw: int, n: int, particles: int) -> Row:
    """Figure 3 of the paper, on sound."""
    ball = {"norm": BALL.norm, "radius": BALL.radius, "iterations": ROUNDS}
    return excitable.course(subject(name, draw, n), draw, particles=particles, **ball)


def sweep(name: str, draw: int, n: int, particles: int) -> Row:
    """Figures 10 and 11 of the paper, on sound: seeds that fail by lambda, and by where particles begin."""
    on = subject(name, draw, n)
    ball: Row = {"norm": BALL.norm, "radius": BALL.radius, "particles": particles, "seed": draw}
    row: Row = {"seeds": len(on.x), "lambda": {}, "start": {}}
    for lam in LAMBDAS:
        few = {**PAPER, **ball}
        trajectory = search(on, f"excitability:preset=gradient,lam={lam}", Settings(**few))
        row["lambda"][lam] = {"failed": len(trajectory.failed), "fitness": float(trajectory.fitness.mean())}
    for begin in ("random", "fixed"):
        trajectory = paper_search(on, "excitability-sound-gradient", **{**ball, "start": begin, "iterations": 10})
        row["start"][begin] = {"failed": len(trajectory.failed), "fitness": float(trajectory.fitness.mean())}
    return row


def examples(name: str, draw: int, n: int) -> Row:
    """The first faults of the swarm: seed, what was added, result, as pictures and as files that play."""
    on = subject(name, draw, n)
    trajectory = search(on, "excitability", Settings(norm="snr", radius=BELOW, evaluations=EVALUATIONS, seed=draw))
    classes = zoo.find(name).classes
    rate = zoo.find(name).rate or audio.NOMINAL
    rows = []
    for hit in trajectory.hits[:EXAMPLES]:
        seed, result = (SIXTEEN.stored(x) for x in (on.x[hit.row], hit.x))
        row: Row = {"said": classes[int(on.y[hit.row])], "heard": classes[hit.predicted], "evaluations": hit.spent}
        pictures = {"seed": audio.spectrogram(seed, rate), "change": audio.difference(result, seed, rate),
                    "result": audio.spectrogram(result, rate)}  # fmt: skip
        row |= {f"{what} png": png(np.ascontiguousarray(x.transpose(1, 2, 0))) for what, x in pictures.items()}
        row |= {f"{what} wav": _wav(x, rate) for what, x in (("seed", seed), ("result", result))}
        rows.append(row)
    return {"examples": rows}


def _wav(x: np.ndarray, rate: int) -> str:
    return base64.b64encode(audio.wav(x, rate)).decode()
