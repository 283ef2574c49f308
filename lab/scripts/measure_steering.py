"""Networks that predict a quantity, measured on drawn lanes and, where they are, on road frames. Prints Markdown tables.

    python lab/scripts/measure_steering.py errors        how far networks are off, beside always answering with the mean
    python lab/scripts/measure_steering.py angles        what the angles that come with the frames are worth
    python lab/scripts/measure_steering.py relations     how often one change of weather moves an answer beyond the tolerance
    python lab/scripts/measure_steering.py selection     selectors on pools of which half is changed
    python lab/scripts/measure_steering.py attacks       PGD and CW by bins of the coverage study, and by the tolerance
    python lab/scripts/measure_steering.py differential  DeepXplore's three constraints on the networks of each data set
    python lab/scripts/measure_steering.py picture FILE  roads, and the same under six kinds of weather

Frames of a drive resemble their neighbours: intervals on them are bootstrapped over pieces of 13 frames (4 seconds).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

import neurotest
from neurotest import rng, zoo
from neurotest.data.driving import splits
from neurotest.data.source import ArraySource, Source
from neurotest.errors import BadInput
from neurotest.mutate.chain import Mutation, draws_of
from neurotest.mutate.weather import WeatherMutations
from neurotest.select import compare
from neurotest.stats.bootstrap import Interval, wilson
from neurotest.target import Probe, Target, Want

NETWORKS = ("lanes-dave", "lanes-pooled", "driving-dave2", "driving-dave2n", "driving-dave2d")
PIECE = {"lanes": 1, "driving": 13}  # inputs that are drawn together
SEEDS, BUDGET, DRAWS = range(5), 0.1, 1000
METHODS = ("disagreement", "unsteady", "nearest", "dsa", "lsa", "mdsa", "random")
Floats = NDArray[np.float64]


def networks() -> list[tuple[str, Target, Source, Source]]:
    """Name, target, training and test data of those that are here."""
    here = []
    for name in NETWORKS:
        family = zoo.find(name).dataset
        try:
            train, test = (neurotest.data(f"zoo:{family}/{part}") for part in ("train", "test"))
            here.append((name, neurotest.load(f"zoo:{name}"), train, test))
        except BadInput as error:
            print(f"{name}: {error}", file=sys.stderr)
    return here


def mean_of(column: Floats) -> Callable[[NDArray[np.int64]], float]:
    return lambda rows: float(column[rows].mean())


def resampled(value: Callable[[NDArray[np.int64]], float], count: int, piece: int) -> Interval:
    """A statistic of rows, with its 95 % bootstrap interval over pieces of neighbouring rows."""
    starts, random = np.arange(0, count, piece), rng.stream("measure.steering", count)
    drawn = []
    for _ in range(DRAWS):
        chosen = random.choice(starts, len(starts))
        rows = (chosen[:, None] + np.arange(piece)).ravel()
        drawn.append(value(rows[rows < count]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value(np.arange(count)), float(low), float(high))


def words(one: Interval, form: str = ".3g", times: float = 1.0) -> str:
    return f"{times * one.value:{form}} ({times * one.low:{form}} .. {times * one.high:{form}})"


def quantities(target: Target, source: Source) -> Floats:
    """The answers to a source."""
    assert target.bins is not None
    with torch.inference_mode():
        parts = [target.logits(target.prepare(source.read(rows))) for rows in np.array_split(np.arange(len(source)), 10)]
    return np.asarray(target.bins.values(torch.cat(parts).double()).numpy())


def truth(source: Source) -> Floats:
    assert source.quantities is not None
    return np.asarray(source.quantities, dtype=np.float64)


def errors() -> None:
    print("| network | test inputs | off by | always the mean of training | better by | within the tolerance |")
    print("|---|---|---|---|---|---|")
    for name, target, train, test in networks():
        piece, true = PIECE[name.partition("-")[0]], truth(test)
        off, trivial = np.abs(quantities(target, test) - true), np.abs(true - truth(train).mean())
        within = (off <= (target.tolerance or 0)).astype(float)
        columns = (off, trivial, trivial - off, within)
        own, other, gain, near = (resampled(mean_of(column), len(true), piece) for column in columns)
        print(f"| {name} | {len(true)} | {words(own)} | {words(other)} | {words(gain)} | {words(near, '.0f', 100)} % |")


def angles(folder: str) -> None:
    """folder: where frames.npz is, whose angles `zoo:driving` does not use."""
    with np.load(Path(folder) / "frames.npz", allow_pickle=False) as arrays:
        x, angle = arrays["x"][:-1].transpose(0, 3, 1, 2), arrays["angle"][:-1].astype(np.float64)
    rows, target = splits(len(x)), neurotest.load("zoo:driving-dave2")
    turn = np.full(len(x), np.nan)
    for split, index in rows.items():
        turn[index] = truth(neurotest.data(f"zoo:driving/{split}"))
    want = Want(layers="encoder", neuron="unit")
    with Probe(target, want) as probe:
        parts = [probe(target.prepare(part)) for part in np.array_split(np.ascontiguousarray(x), 10)]
    values = np.concatenate([next(iter(one[want].values())).flatten(1).numpy() for one in parts])
    known = np.isfinite(turn)
    print("| | the angle that comes with the frames | the turn that is measured in them |\n|---|---|---|")
    lags = [float(np.corrcoef(one[rows["test"]][:-1], one[rows["test"]][1:])[0, 1]) for one in (angle, turn)]
    print(f"| correlation with the next frame, 0.3 s later | {lags[0]:.2f} | {lags[1]:.2f} |")
    both = float(np.corrcoef(angle[known], turn[known])[0, 1])
    print(f"| correlation of the two | {both:.2f} | {both:.2f} |")
    shares = []
    for one in (angle, turn):
        learned = Ridge(alpha=100.0).fit(values[rows["train"]], one[rows["train"]])
        off = np.abs(learned.predict(values[rows["test"]]) - one[rows["test"]]).mean()
        shares.append(float(off / np.abs(one[rows["test"]] - one[rows["train"]].mean()).mean()))
    print(f"| error on held-out frames over that of the mean, by ridge regression | {shares[0]:.2f} | {shares[1]:.2f} |")


def relations() -> None:
    mutations = WeatherMutations()
    print("| network | tolerance | " + " | ".join(mutations.names) + " |\n" + "|---" * (2 + len(mutations.names)) + "|")
    for name, target, _, test in networks():
        before, cells = quantities(target, test), []
        unit = torch.from_numpy(test.read(np.arange(len(test)))).float() / 255
        for family in mutations.families:
            random = rng.stream("measure.relations", 0)
            chosen = [family.rules[i] for i in random.integers(0, len(family.rules), len(test))]
            seeds = random.integers(1 << 50, size=len(test)).astype(float)
            steps = [
                Mutation(family.name, (*row, *([seed] if family.seeded else []))) for row, seed in zip(chosen, seeds, strict=True)
            ]
            changed = mutations.apply(unit, draws_of(mutations, steps))
            x = changed.mul(255).round().to(torch.uint8).numpy()
            moved = np.abs(quantities(target, ArraySource(x)) - before) > (target.tolerance or 0)
            cells.append(f"{words(wilson(int(moved.sum()), len(moved)), '.0f', 100)} %")
        print(f"| {name} | {target.tolerance:g} | " + " | ".join(cells) + " |")


def pool_of(source: Source, seed: int) -> Source:
    """Half of the inputs changed by two kinds of weather, one after the other."""
    mutations, random = WeatherMutations(), rng.stream("measure.steering.pool", seed)
    unit = torch.from_numpy(source.read(np.arange(len(source)))).float() / 255
    changed = random.random(len(source)) < 0.5
    some = unit[torch.from_numpy(changed)]
    for _ in range(2):
        some = mutations.apply(some, mutations.draw(random, len(some)))
    unit[torch.from_numpy(changed)] = some
    return ArraySource(unit.mul(255).round().to(torch.uint8).numpy(), truth(source))


def share_found(scores: Floats, wrong: NDArray[np.bool_], rows: NDArray[np.int64]) -> float:
    """Faults among the first of a resampled pool."""
    picked = max(1, round(BUDGET * len(rows)))
    return float(wrong[rows][np.argsort(-scores[rows], kind="stable")[:picked]].mean())


def selection() -> None:
    print("| network | pool | faults in it | " + " | ".join(METHODS[:-1]) + " | default over random |")
    print("|---" * (len(METHODS) + 3) + "|")
    for name, target, train, test in networks():
        results: dict[str, list[tuple[Floats, NDArray[np.bool_]]]] = {method: [] for method in METHODS}
        for seed in SEEDS:
            compared = compare(target, pool_of(test, seed), METHODS, BUDGET, train=train, seed=seed)
            for method, one in compared.items():
                labels = target.bins.of(truth(test))  # type: ignore[union-attr]
                results[method].append((np.asarray(one.all_scores, dtype=np.float64), np.asarray(one.predictions != labels)))
            print(name, seed, compared.errors, file=sys.stderr)

        def found(rows: NDArray[np.int64], method: str, results: Any = results) -> float:
            return float(np.mean([share_found(scores, wrong, rows) for scores, wrong in results[method]]))

        def chance(rows: NDArray[np.int64], results: Any = results) -> float:
            return float(np.mean([wrong[rows].mean() for _, wrong in results["random"]]))

        piece, count = PIECE[name.partition("-")[0]], len(test)
        gain = resampled(lambda rows: found(rows, METHODS[0]) - chance(rows), count, piece)
        cells = [f"{100 * found(np.arange(count), method):.1f} %" for method in METHODS[:-1]]
        over = words(gain, "+.1f", 100)
        print(f"| {name} | {count} | {100 * chance(np.arange(count)):.1f} % | {' | '.join(cells)} | {over} points |", flush=True)


def attacks() -> None:
    print("| network | attack | seeds | moved beyond the tolerance | noise of equal size | other bin of 25 | mean Linf |")
    print("|---|---|---|---|---|---|---|")
    for name, target, _, test in networks():
        if name not in ("lanes-dave", "driving-dave2"):
            continue
        seeds = test.take(np.arange(0, len(test), len(test) // 24)[:24])
        for text in ("pgd:eps=2/255,step=1/255,steps=10", "cw:steps=30,searches=3"):
            result = neurotest.attack(target, seeds, text, out=False)
            assert result.quantities is not None
            assert target.bins is not None
            bins = (target.bins.of(values) for values in (result.quantities.before, result.quantities.after))
            other = float(np.not_equal(*bins).mean())
            noise = float(result.control.fault.mean())
            share = wilson(result.faults, len(result))
            linf = float(result.distance[result.fault, 2].mean()) if result.faults else float("nan")
            print(
                f"| {name} | {text} | {len(result)} | {words(share, '.0f', 100)} % | {noise:.0%} | {other:.0%} | {linf:.4f} |",
                flush=True,
            )


def differential() -> None:
    print("| networks | constraint | seeds they agree on | seeds with a difference | random changes of the same size | steps |")
    print("|---|---|---|---|---|---|")
    for family in ("lanes", "driving"):
        here = [row for row in networks() if row[0].startswith(family)]
        if len(here) < 2:
            continue
        test = here[0][3]
        seeds = test.take(np.arange(0, len(test), len(test) // 40)[:40])
        for constraint in ("light", "occlusion", "blackout"):
            result = neurotest.diff([row[1] for row in here], seeds, f"deepxplore:{constraint}", out=False)
            about = result.to_dict()
            failed, noise = (len(np.unique(result.positions[mask])) for mask in (result.fault, result.control.fault))
            count = int(about["seeds"])
            steps = "" if about["mean_steps"] is None else f"{about['mean_steps']:.1f}"
            cells = [words(wilson(n, count), ".0f", 100) + " %" for n in (failed, noise)]
            print(
                f"| {len(here)} of {family} | {constraint} | {count} of {len(seeds)} | {cells[0]} | {cells[1]} | {steps} |",
                flush=True,
            )


def picture(place: str) -> None:
    """Six roads, and each of them under one kind of weather, with the answers of lanes-dave under them."""
    from PIL import Image, ImageDraw, ImageFont

    target, test, mutations = neurotest.load("zoo:lanes-dave"), neurotest.data("zoo:lanes/test"), WeatherMutations()
    rows = np.array([12, 30, 41, 77, 90, 101])
    values = ((3.0,), (45.0,), (1.3,), (4.0,), (0.02, 7.0), (0.45,))
    unit = torch.from_numpy(test.read(rows)).float() / 255
    changed = torch.cat([
        mutations.apply(unit[i : i + 1], draws_of(mutations, [Mutation(name, row)]))
        for i, (name, row) in enumerate(zip(mutations.names, values, strict=True))
    ])  # fmt: skip
    pixels = [part.mul(255).round().to(torch.uint8).numpy() for part in (unit, changed)]
    answers = [quantities(target, ArraySource(part)) for part in pixels]
    side, tall, text = 48 * 4, 32 * 4, 22
    sheet = Image.new("L", (len(rows) * (side + 8), 2 * (tall + text)), 255)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    for i in range(len(rows)):
        for line, what in enumerate((f"bend {truth(test)[rows[i]]:.2f}", mutations.names[i])):
            left, top = i * (side + 8), line * (tall + text)
            sheet.paste(Image.fromarray(pixels[line][i, 0]).resize((side, tall), Image.Resampling.NEAREST), (left, top))
            draw.text((left + 4, top + tall + 4), f"{what}: it says {answers[line][i]:.2f}", fill=0, font=font)
    sheet.save(place, optimize=True)


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["errors"]
    jobs: dict[str, Callable[..., None]] = {
        "errors": errors, "angles": angles, "relations": relations, "selection": selection, "attacks": attacks,
        "differential": differential, "picture": picture,
    }  # fmt: skip
    torch.set_num_threads(1)
    jobs[command](*rest)
