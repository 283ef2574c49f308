"""A tiny finished run of every command that makes one, with class names that would break a page if they were not escaped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import torch
from torch import nn

import neurotest
from neurotest import Run, Target
from neurotest.campaign.merge import merge
from neurotest.campaign.neurons import neurons
from neurotest.cli.neurons import keep
from neurotest.data.source import ArraySource
from neurotest.select import compare
from neurotest.select.adaptive import rounds
from neurotest.semantics.describe.work import recorded

HOSTILE = ("</script><script>alert(1)</script>", "\"'><img src=x onerror=alert(2)>", "a & {{ 7007 * 9009 }} </title></style>")
TABLES = {
    f"{HOSTILE[0]}": [{"what": HOSTILE[1], "number": 0.25, "strip png": HOSTILE[1]}],
    "figure 10: gallery": [
        {"subject": HOSTILE[0], "guide": HOSTILE[1], "label": HOSTILE[2], "predicted": "b", "change": "", "png": "AA"},
    ],
    "figure 8: map": [{"subject": HOSTILE[0], "guide": HOSTILE[1], "x": 0.0, "y": 1.0, "only": True}],
}  # fmt: skip


def own_scripts(page: str) -> bool:
    """Whether a page's scripts are its own one, its charts' data and the packed library, and nothing that a run holds."""
    tags = re.findall(r"<script[^>]*>", page)
    data = {'<script type="application/json" class="spec">', '<script type="application/gzip" id="vega">'}
    return tags.count("<script>") == 1 and set(tags) <= {"<script>", *data} and page.count("</script>") == len(tags)


def network() -> Target:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
        with torch.no_grad():
            for weight in module.parameters():
                weight.mul_(3)  # so that answers depend on the input
    return Target(module.eval(), shape=(1, 8, 8), classes=HOSTILE, spec=HOSTILE[0])


def inputs(wrong: int = 0, seed: int = 0) -> ArraySource:
    """24 inputs, of which the first so many have another label than the network gives them."""
    x = np.random.default_rng(seed).integers(0, 256, (24, 1, 8, 8)).astype(np.uint8)
    with torch.inference_mode():
        predicted = network().logits(torch.from_numpy(x).float() / 255).argmax(1).numpy()
    return ArraySource(x, (predicted + (np.arange(24) < wrong)) % 3, classes=HOSTILE)


def _rounds(pool: ArraySource, place: Path) -> None:
    """Two rounds of labelling, on files with names that would break a page, too; of the second some have a label."""
    named = ArraySource(pool.read(np.arange(24)), names=[f"{HOSTILE[number % 3]}{number}.png" for number in range(24)])
    first = compare(network(), named, ["adaptive"], 6, train=pool, out=place)["adaptive"]
    assert pool.labels is not None
    with Run.open(place, write=True) as run:
        run.add_labels({p: (int(pool.labels[p]) + p) % 3 for p in first.indices.tolist()})
    second = rounds.resume(place, pool=named)
    with Run.open(place, write=True) as run:
        run.add_labels({second["indices"][0]: None, second["indices"][1]: 0})


def make(root: Path) -> None:
    pool = inputs()
    compare(network(), inputs(wrong=6), ["deepgini", "ces", "random"], 6, out=root / "select")
    compare(network(), pool.without_labels(), ["deepgini"], 6, out=root / "select-unlabelled")
    compare(network(), pool.without_labels(), ["adaptive"], 6, train=pool, out=root / "select-adaptive")
    _rounds(pool, root / "select-rounds")
    neurotest.cover(network(), pool, ["nac:0.5", "nlc"], by="class", out=root / "cover")
    for guide in ("nlc", "random", "goals"):
        neurotest.fuzz(network(), pool, guide, iterations=40, batch=32, tries=8, out=root / f"fuzz-{guide}")
    merge([root / "fuzz-nlc", root / "fuzz-random"], root / "merge")
    neurotest.swarm(network(), pool, evaluations=20, radius=0.1, beside=("noise",), out=root / "swarm")
    shutil.copytree(root / "swarm", root / "swarm-neurons")
    keep(root / "swarm-neurons", neurons(root / "swarm-neurons", network(), top=2, rounds=2).to_dict())
    neurotest.attack(network(), pool, "fgsm:eps=0.3", out=root / "attack")
    neurotest.check(network(), inputs(wrong=6), time=5, skip=["campaign"], out=root / "check")
    neurotest.suspects(network(), inputs(wrong=6), out=root / "suspects")
    neurotest.score(network(), inputs(wrong=6), ["deepgini", "margin"], budget=6, out=root / "score")
    neurotest.diff(network(), pool, "dlfuzz", out=root / "diff")
    neurotest.illuminate(network(), pool, 60, out=root / "illuminate")
    neurotest.repair(
        network(), root / "fuzz-random", inputs(seed=1), inputs(wrong=6, seed=2), protocol="default:epochs=1", repeats=1,
        controls=["schedule"], attack=["none"], out=root / "repair",
    )  # fmt: skip
    neurotest.gate(network(), network(), inputs(wrong=6), faults=root / "fuzz-random", out=root / "gate")
    neurotest.robustness(network(), pool, "clever:batches=10,samples=8", limit=4, out=root / "robustness")
    recorded(network(), pool, "class-profile", None, out=root / "describe", k=3)
    labelled = ArraySource(np.random.default_rng(1).random((60, 1, 8, 8)), np.tile([0, 1, 2], 20), classes=HOSTILE)
    neurotest.evaluate(root / "attack", root / "fuzz-nlc", target=network(), classes=labelled, out=root / "evaluate")
    for study in ("nsgen", "another"):
        config = {"study": study, "scale": HOSTILE[2], "options": {"a": HOSTILE[0]}}
        with Run.create(root / f"study-{study}", "study", config) as run:
            run.finish({"tables": TABLES, "checks": {HOSTILE[1]: 1.5}, "missing": ["cell"]})
