"""The pieces of the DeepSensor study: seeds with odd numbers only, because settings were chosen on the even ones."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurotest import registry, rng, zoo
from neurotest.attribute.shapley import mask_gradient
from neurotest.campaign.neurons import of_pairs
from neurotest.coverage import cover
from neurotest.data.source import ArraySource, Source
from neurotest.data.spec import data
from neurotest.files import cache_dir
from neurotest.generate.swarm import PRESETS, Ball, Flight, Scene, Settings, Swarm, controls
from neurotest.generate.swarm.settings import PAPER
from neurotest.mutate.space import from_unit
from neurotest.target import Target
from neurotest.target.load import load
from neurotest.train import train_faulty
from neurotest.zoo.faulty import CLASS, Patch

Row = dict[str, Any]
ROUNDS = 20  # the papers' iterations
CRITERIA = ("nc:0.2", "kmnc:1000", "nbc", "snac", "tknc:1", "bknc:1")


@dataclass(frozen=True, eq=False)
class Subject:
    """A network and seeds it gets right: x (n, *shape) in [0, 1], y (n,)."""

    target: Target
    x: Tensor
    y: Tensor
    positions: np.ndarray
    source: Source


@functools.lru_cache(maxsize=8)
def network(name: str, scale: str) -> Target:
    """A zoo network; a faulty one is trained once, into the study's own place in the cache."""
    base, _, wrong = name.partition("+")
    if not wrong:
        return load(f"zoo:{name}")
    from safetensors.torch import load_file

    module = zoo.find(base).build()
    module.load_state_dict(load_file(trained(name, scale)))
    found = zoo.find(base)
    return Target(module.eval(), shape=found.shape, classes=found.classes, spec=f"{name}, trained for the study")


def trained(name: str, scale: str) -> Any:
    from neurotest.zoo import faulty

    base, _, wrong = name.partition("+")
    place = cache_dir() / "studies" / f"deepsensor-{scale}-{name}.safetensors"
    if not place.is_file():
        said = faulty.read(wrong)
        train_faulty(base, said, place, **(QUICK[said.kind + "-specific" * said.specific] if scale == "quick" else {}))
    return place


# Fewer images than the recipes, so that the quick scale stays quick; a patch needs all of them, or it is not learnt.
QUICK: dict[str, dict[str, Any]] = {
    "polluted": {},
    "polluted-specific": {},
    "underfit": {"images": 30_000},
    "overfit": {"images": 3_000},
}


def about(name: str, scale: str) -> Row:
    from safetensors import safe_open

    with safe_open(trained(name, scale), framework="np") as file:
        found: Row = json.loads(file.metadata()["about"])
    return found


def subject(name: str, scale: str, draw: int, n: int, *, avoid: int | None = None) -> Subject:
    """Seeds drawn from test images with odd numbers that the network gets right; `avoid`: none of this class."""
    target = network(name, scale)
    test = data(f"zoo:{zoo.find(name.partition('+')[0]).dataset}/test")
    assert test.labels is not None
    odd = np.arange(1, len(test), 2)
    order = rng.stream("study.deepsensor", draw).permutation(odd)[: 3 * n + 50]
    x = torch.from_numpy(np.array(test.read(order))).float().div(255)
    with torch.inference_mode():
        said = torch.cat([target.logits(part).argmax(1) for part in x.split(500)])
    y = torch.from_numpy(test.labels[order])
    good = torch.nonzero((said == y) & (y != (-1 if avoid is None else avoid)))[:n, 0]
    return Subject(target, x[good], y[good], order[good.numpy()], test.take(order[good.numpy()]))


def fly(on: Subject, fitness: str, settings: Settings) -> Flight:
    ball = Ball(settings.norm, settings.radius, True)
    scene = Scene(on.target, on.x, on.y, ball, random=settings.seed)
    return Swarm(registry.build("fitness", fitness).begin(scene), settings).run()


def paper(name: str, **said: Any) -> tuple[str, Settings]:
    preset = {**PRESETS[name], **said}
    return str(preset.pop("fitness")), Settings(**preset)


def counted(flight: Flight) -> Row:
    return {"failed": len(flight.failed), "labels": len(flight.hits), "evaluations": float(flight.spent.double().mean())}


# -- what finds faults in which ball


def reach(name: str, scale: str, draw: int, n: int, norm: str, radius: float, methods: tuple[str, ...]) -> Row:
    """Seeds that fail, by method, with at most 1,000 evaluations each."""
    on = subject(name, scale, draw, n)
    said = Settings(norm=norm, radius=radius, seed=draw)  # type: ignore[arg-type]
    ball = Ball(said.norm, radius, True)
    found: Row = {"seeds": len(on.x)}
    for method in methods:
        if method == "noise":
            one = controls.noise(on.target, on.x, on.y, ball, 1000, random=draw)
        elif method == "pgd":
            one = controls.pgd(on.target, on.x, on.y, ball, random=draw)
        else:
            found[method] = counted(fly(on, method, said))
            continue
        found[method] = {"failed": one.failed, "labels": one.labels, "evaluations": one.forwards / len(on.x)}
    return found


# -- tables II, 3: errors, categories


def errors(name: str, scale: str, draw: int, n: int, method: str) -> Row:
    """Test errors, error categories and average categories of 20 opportunities per seed."""
    on = subject(name, scale, draw, n)
    began = time.process_time()
    if method in ("deepxplore", "dlfuzz"):
        wrong, kinds = _differential(on, name, method, draw)
    elif method == "deephunter":
        wrong, kinds = _deephunter(on, draw)
    elif method in ("random", "pgd"):
        wrong, kinds = _steps(on, method, draw)
    else:
        wrong, kinds = _swarm(on, method, draw)
    spent = time.process_time() - began
    return {"seeds": len(on.x), "errors": wrong, "categories": kinds, "cpu": spent}


def _swarm(on: Subject, method: str, draw: int) -> tuple[int, int]:
    if method == "swarm":  # the default, in the papers' ball, never content with one label
        flight = fly(on, "excitability", Settings(norm="l2", radius=1.0, labels=None, seed=draw))
    else:
        fitness, said = paper(method, iterations=ROUNDS, seed=draw)
        flight = fly(on, fitness, said)
    at = np.linspace(0, len(flight.course) - 1, ROUNDS).round().astype(int)
    return sum(flight.course[i].wrong for i in at), len(flight.hits)


def _steps(on: Subject, method: str, draw: int) -> tuple[int, int]:
    """Noise, or PGD: as many positions per seed as the papers' iterations, in their ball."""
    ball = Ball("l2", 1.0, True)
    wrong, kinds = 0, set()
    u = ball.noise(on.x, rng.torch_stream("study.deepsensor.start", draw))
    for step in range(ROUNDS):
        if method == "random":
            u = ball.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw, step))
        else:
            with torch.enable_grad():
                at = u.clone().requires_grad_()
                loss = torch.nn.functional.cross_entropy(on.target.logits(at).double(), on.y, reduction="sum")
                (way,) = torch.autograd.grad(loss, at)
            size = way.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
            u = Ball("l2", 1.0, False).project(u + 0.25 * way / size, on.x)
        with torch.inference_mode():
            said = on.target.logits(ball.project(u, on.x)).argmax(1)
        bad = torch.nonzero(said != on.y)[:, 0].tolist()
        wrong += len(bad)
        kinds |= {(i, int(said[i])) for i in bad}
    return wrong, len(kinds)


def _differential(on: Subject, name: str, method: str, draw: int) -> tuple[int, int]:
    from neurotest.generate.differential import diff

    others = [s.name for s in zoo.catalogue() if s.family == zoo.find(name).family and s.embedded and "lenet" in s.name]
    targets: list[Target | str] = [on.target]
    if method == "deepxplore":
        targets += [f"zoo:{one}" for one in others if one != name][:2]
    found = diff(targets, on.source, method, seed=draw, out=False)
    said = found.said[:, 0] if found.said.size else found.predicted
    wrong = found.fault & (said != found.expected)
    return int(wrong.sum()), len(set(zip(found.positions[wrong].tolist(), said[wrong].tolist(), strict=True)))


def _deephunter(on: Subject, draw: int) -> tuple[int, int]:
    from neurotest.campaign import fuzz

    kinds: set[tuple[int, int]] = set()

    def watch(fuzzer: Any, found: list[Any], new: list[Any]) -> None:
        kinds.update((m.root, m.predicted) for m in found if m.fault)

    train = f"zoo:{zoo.find(on.target.spec.removeprefix('zoo:')).dataset}/train[:1000]"
    budget: Row = {"outputs": ROUNDS * len(on.x), "forwards": 20 * ROUNDS * len(on.x)}
    found = fuzz(on.target, on.source, "deephunter:snac", train=train, seed=draw, out=False, watch=watch, **budget)
    return found.faults, len(kinds)


# -- tables III, 4 and IV, 5: faulty training


def polluted(name: str, scale: str, draw: int, n: int) -> Row:
    """How often the swarm's faults are of the polluted class, beside noise of equal norm; and which neurons carry the patch."""
    label = CLASS["mnist"]
    on = subject(name, scale, draw, n, avoid=label)
    flight = fly(on, "excitability", Settings(seed=draw))
    towards = sum(hit.predicted == label for hit in flight.hits)
    ball = Ball("linf", 0.1, True)
    with torch.inference_mode():
        u = ball.noise(on.x, rng.torch_stream("study.deepsensor.noise", draw))
        noisy = on.target.logits(u).argmax(1)
    found: Row = {
        "seeds": len(on.x), "failed": len(flight.failed), "towards": towards, "faults": len(flight.hits),
        "noise towards": int((noisy == label).sum()), "noise failed": int((noisy != on.y).sum()),
    }  # fmt: skip
    if "+" in name:
        found["about"] = {
            key: value for key, value in about(name, scale).items() if key in ("accuracy", "triggers", "class", "recipe")
        }
        if draw == 0:
            found["carriers"] = carriers(on, flight, name, scale)
    return found


def carriers(on: Subject, flight: Flight, name: str, scale: str) -> Row:
    """The neurons that owe most when the patch is stamped, and how many of the swarm's own are among them."""
    told = about(name, scale)
    patch = Patch(np.array(told["patch"], dtype=np.uint8), 5)  # shown nearly whole: small parts trigger little
    few = on.x[:20]
    stamped = patch.stamp((few * 255).round().byte().numpy(), rng.stream("study.deepsensor.patch", 0))
    moved = torch.from_numpy(np.ascontiguousarray(stamped)).float().div(255)
    by_patch = of_pairs(on.target, few, moved, on.y[:20], top=10, rounds=12)
    hits = [hit for hit in flight.hits if hit.predicted == told["class"]][:20] or flight.hits[:20]
    rows = torch.tensor([hit.row for hit in hits])
    by_swarm = of_pairs(on.target, on.x[rows], torch.stack([hit.x for hit in hits]), on.y[rows], top=10, rounds=12)
    ours, theirs = ({(n.layer, n.index) for n in one.neurons} for one in (by_swarm, by_patch))
    players = sum(row["neurons"] for row in by_patch.layers)
    return {
        "patch": [vars(n) for n in by_patch.neurons], "swarm": [vars(n) for n in by_swarm.neurons],
        "shared": len(ours & theirs), "chance": 100 / players,
    }  # fmt: skip


def incomplete(name: str, scale: str, draw: int, n: int) -> Row:
    on = subject(name, scale, draw, n)
    flight = fly(on, "excitability", Settings(seed=draw))
    ball = Ball("linf", 0.1, True)
    noise, pgd = (
        controls.noise(on.target, on.x, on.y, ball, 100, random=draw),
        controls.pgd(on.target, on.x, on.y, ball, random=draw),
    )
    found: Row = {"seeds": len(on.x), "swarm": len(flight.failed), "noise": noise.failed, "pgd": pgd.failed}
    if "+" in name:
        found["about"] = {
            key: value for key, value in about(name, scale).items() if key in ("accuracy", "train_accuracy", "recipe")
        }
    return found


# -- figures


def excited(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 1: excitable neurons of pairs that fail, and of the same seeds with noise of equal norm that does not."""
    on = subject(name, scale, draw, n)
    flight = fly(on, "excitability", Settings(seed=draw))
    rows = torch.tensor(sorted(flight.failed), dtype=torch.long)
    first = {hit.row: hit.x for hit in reversed(flight.hits)}
    corner = torch.stack([first[int(row)] for row in rows])
    benign = Ball("linf", 0.1, True).noise(on.x[rows], rng.torch_stream("study.deepsensor.benign", draw))
    with torch.inference_mode():
        calm = on.target.logits(benign).argmax(1) == on.y[rows]
    found: Row = {"pairs": int(calm.sum())}
    for kind, moved in (("corner", corner), ("benign", benign)):
        values = mask_gradient(on.target, on.x[rows][calm], moved[calm], on.y[rows][calm])
        even = 2 * values.sum(1, keepdim=True).clamp_min(0) / values.shape[1]
        found[kind] = {
            **{f"above {limit:g}": (values > limit).sum(1).tolist() for limit in (0.5, 0.02)},
            "above twice the mean": ((values > even) & (values > 0)).sum(1).tolist(),
            "loss change": values.sum(1).tolist(),
        }  # fmt: skip
    return found


def course(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 3 of the second paper: fitness per iteration of both papers' swarms; and what 100 examples cost."""
    on = subject(name, scale, draw, n)
    found: Row = {"seeds": len(on.x)}
    for preset in ("sensitivity-paper", "excitability-paper"):
        fitness, said = paper(preset, seed=draw)
        fly(Subject(on.target, on.x[:1], on.y[:1], on.positions[:1], on.source), fitness, said)  # what is loaded on first use
        began = time.process_time()
        flight = fly(on, fitness, said)
        spent = time.process_time() - began
        found[preset] = {"fitness": [m.fitness for m in flight.course], "cpu per 100": 100 * spent / len(on.x)}
    return found


def coverage(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 3 (first paper) and 6: what suites in the papers' ball add to the seeds' coverage, and errors of both starts."""
    on = subject(name, scale, draw, n)
    train = data(f"zoo:{zoo.find(name).dataset}/train[:1000]")
    ball = Ball("l2", 1.0, True)
    suites: dict[str, Tensor] = {"random": ball.noise(on.x, rng.torch_stream("study.deepsensor.suite", draw))}
    found: Row = {"errors": {}}
    for start in ("random", "fixed"):
        fitness, said = paper("sensitivity-paper", particles=20, start=start, seed=draw)
        flight = fly(on, fitness, said)
        suites[f"deepsensor, {start} start"] = flight.best
        found["errors"][start] = len(flight.failed)
    suites["swarm, excitability"] = fly(on, "excitability", Settings(norm="l2", radius=1.0, evaluations=300, seed=draw)).best
    base = _covered(on.target, on.x, train)
    for suite, images in suites.items():
        now = _covered(on.target, torch.cat([on.x, images]), train)
        found[suite] = {criterion: 100 * (now[criterion] - base[criterion]) for criterion in CRITERIA}
    return found


def _covered(target: Target, x: Tensor, train: Source) -> dict[str, float]:
    images = (x * 255).round().byte().numpy()
    found = cover(target, ArraySource(images), list(CRITERIA), train=train)
    return {name: float(found[name].value.value) for name in CRITERIA}


def sweep(name: str, scale: str, draw: int, n: int) -> Row:
    """Figures 5 and 10: errors by lambda and by epsilon, sensitivity swarm in the papers' ball."""
    on = subject(name, scale, draw, n)
    few: Row = {**PAPER, "particles": 20, "seed": draw}
    found: Row = {"seeds": len(on.x), "lambda": {}, "epsilon": {}}
    for lam in (0.1, 0.3, 0.5, 0.7, 0.9):
        flight = fly(on, f"sensitivity:scale=raw,signed=true,lam={lam}", Settings(**few))
        found["lambda"][str(lam)] = [len(flight.failed), float(flight.fitness.mean())]
    for quantile in ("q0.5", "q0.8", "q0.95"):
        flight = fly(on, f"sensitivity:lam={quantile}", Settings(**few))
        found["lambda"][quantile] = [len(flight.failed), float(flight.fitness.mean())]
    for enough in (0.05, 0.1, 0.2, 1.0):
        flight = fly(on, "sensitivity", Settings(**{**few, "enough": enough}))
        found["epsilon"][str(enough)] = [len(flight.failed), float(flight.spent.double().mean())]
    return found


def overlap(name: str, scale: str, draw: int, n: int) -> Row:
    """Figure 7: the ten most excitable neurons per method, by mask gradients over its failing pairs, and how many are shared."""
    on = subject(name, scale, draw, n)
    ball = Ball("linf", 0.1, True)
    pairs: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for method in ("excitability", "margin", "sensitivity"):
        flight = fly(on, method, Settings(seed=draw, evaluations=600 if method != "sensitivity" else 200))
        first = {hit.row: hit.x for hit in reversed(flight.hits)}
        if len(first) >= 3:
            rows = torch.tensor(sorted(first))
            pairs[method] = (on.x[rows], torch.stack([first[int(r)] for r in rows]), on.y[rows])
    noisy = ball.noise(on.x, rng.torch_stream("study.deepsensor.overlap", draw))
    pairs["noise"] = (on.x, noisy, on.y)
    pairs["pgd"] = _by_gradient(on, ball)
    tops = {}
    for method, (x, moved, y) in pairs.items():
        values = mask_gradient(on.target, x, moved, y).mean(0)
        tops[method] = set(values.topk(10).indices.tolist())
        players = len(values)
    names = list(tops)
    shared = {f"{a} / {b}": len(tops[a] & tops[b]) for i, a in enumerate(names) for b in names[i + 1 :]}
    return {"shared": shared, "chance": 100 / players, "pairs": {method: len(one[0]) for method, one in pairs.items()}}


def _by_gradient(on: Subject, ball: Ball) -> tuple[Tensor, Tensor, Tensor]:
    u = on.x.clone()
    for _ in range(10):
        with torch.enable_grad():
            at = u.clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy(
                on.target.logits(from_unit(at, on.target.bounds)).double(), on.y, reduction="sum"
            )
            (way,) = torch.autograd.grad(loss, at)
        u = ball.project(u + 0.025 * way.sign(), on.x)
    with torch.inference_mode():
        wrong = on.target.logits(u).argmax(1) != on.y
    keep = wrong if bool(wrong.any()) else torch.ones_like(wrong)
    return on.x[keep], u[keep], on.y[keep]
