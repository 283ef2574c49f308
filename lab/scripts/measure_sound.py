"""Sound: how selectors do on pools of changed takes, and how often faults fail again from their files. Prints Markdown tables.

    python lab/scripts/measure_sound.py selection    the zoo's spoken digits, two kinds of pool, five seeds each
    python lab/scripts/measure_sound.py swarm        what fails at 30 dB, swarm beside noise, on the seeds of the speaker study
    python lab/scripts/measure_sound.py reload RUN   every stored fault of a run, read by the standard library and tested again

Pools of `operators` are changed by the operators of `audio`, which adaptive selection also simulates; in pools of `voices`
another speaker talks in the background, at 0 to 12 dB, which nothing simulates.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
import torch

import neurotest
from neurotest import rng
from neurotest.data.source import ArraySource, Source
from neurotest.levels import SIXTEEN
from neurotest.mutate.audio import AudioMutations
from neurotest.runs.store import Run
from neurotest.stats.bootstrap import mean_interval, wilson
from neurotest_lab.studies.speaker import cells

TARGET, TEST, TRAIN = "zoo:spoken-melnet", "zoo:spoken-digits/test", "zoo:spoken-digits/train"
SEEDS, BUDGET = range(5), "10%"
METHODS = ("deepgini", "nss+", "adaptive", "random")


def changed(source: Source, kind: str, seed: int) -> Source:
    """The takes, each changed once."""
    x, random = source.read(np.arange(len(source))), rng.stream(f"measure.sound.{kind}", seed)
    if kind == "operators":
        mutations = AudioMutations()
        unit = SIXTEEN.unit(torch.from_numpy(x))
        x = SIXTEEN.stored(mutations.apply(unit, mutations.draw(random, len(x)), levels=SIXTEEN))
    else:
        other = x[random.permutation(len(x))].astype(np.float64)
        loud = np.sqrt((x.astype(np.float64) ** 2).mean(axis=2, keepdims=True) / (other**2).mean(axis=2, keepdims=True))
        mixed = x + other * loud * 10 ** (-random.uniform(0, 12, (len(x), 1, 1)) / 20)
        x = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
    pool = ArraySource(x, source.labels, classes=source.classes)
    pool.rate = source.rate
    return pool


def selection() -> None:
    target, test, train = neurotest.load(TARGET), neurotest.data(TEST), neurotest.data(TRAIN)
    print("| pool | faults in it | " + " | ".join(METHODS) + " | adaptive over deepgini |")
    print("|---" * (len(METHODS) + 3) + "|")
    for kind in ("operators", "voices"):
        shares: dict[str, list[float]] = {method: [] for method in METHODS}
        faulty = []
        for seed in SEEDS:
            pool = changed(test, kind, seed)
            for method in METHODS:
                result = neurotest.select(target, pool, method, BUDGET, train=train, seed=seed)
                assert result.quality is not None
                shares[method].append(100 * result.quality.fdr.value)
            faulty.append(100 * float((result.predictions != pool.labels).mean()))
            print(kind, seed, {name: values[-1] for name, values in shares.items()}, file=sys.stderr)
        gain = mean_interval(np.array(shares["adaptive"]) - np.array(shares["deepgini"]))
        parts = [f"{np.mean(shares[method]):.1f} %" for method in METHODS]
        over = f"{gain.value:+.1f} points ({gain.low:+.1f} .. {gain.high:+.1f})"
        print(f"| {kind} | {np.mean(faulty):.1f} % | {' | '.join(parts)} | {over} |")


def swarm() -> None:
    """The first two sets of seeds of `study speaker`: spoken digits with odd numbers."""
    print("| method | failed, 95 % interval | evaluations per seed | still recognised by a second network |\n|---|---|---|---|")
    for method in ("swarm", "noise"):
        rows = [cells.reach("spoken-melnet", draw, 20, (method,)) for draw in range(2)]
        seeds, failed = sum(row["seeds"] for row in rows), sum(row[method]["failed"] for row in rows)
        share = wilson(failed, seeds)
        spent = np.mean([row[method]["evaluations"] for row in rows])
        faults, heard = (sum(row[method].get(what, 0) for row in rows) for what in ("faults", "recognised"))
        listener = f"{heard} of {faults}" if method == "swarm" else ""
        print(f"| {method} | {failed} of {seeds} ({share.low:.2f} .. {share.high:.2f}) | {spent:.0f} | {listener} |", flush=True)


def reload(path: Path) -> None:
    target = neurotest.load(TARGET)
    with Run.open(path) as run:
        rows = run.rows("SELECT file, expected, predicted FROM mutant WHERE file IS NOT NULL")
    same = wrong = 0
    for name, expected, predicted in rows:
        with wave.open(str(path / name)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
        with torch.inference_mode():
            answer = int(target.logits(target.prepare(samples.reshape(1, 1, -1))).argmax())
        same, wrong = same + (answer == predicted), wrong + (answer != expected)
    print("| stored faults | fail again | with the same answer |\n|---|---|---|")
    print(f"| {len(rows)} | {wrong} | {same} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["reload"] and len(sys.argv) == 3:
        reload(Path(sys.argv[2]))
    elif sys.argv[1:] == ["selection"]:
        selection()
    elif sys.argv[1:] == ["swarm"]:
        swarm()
    else:
        sys.exit(__doc__)
