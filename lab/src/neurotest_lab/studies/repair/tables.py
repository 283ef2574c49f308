"""The tables of the repair study, from its finished cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neurotest import rng
from neurotest.repair.work import WORDS
from neurotest_lab.studies.frame import Row, mean, rounded, spread
from neurotest_lab.studies.repair.published import PAPER

DRAWS = 4000
Cells = Sequence[Row]


def interval(pairs: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The mean over seeds of differences with standard errors; seeds are resampled, inputs vary by their standard error."""
    values, errors = np.array(pairs, dtype=np.float64).T
    random = rng.stream("study.repair.interval", len(values))
    which = random.integers(0, len(values), (DRAWS, len(values)))
    means = (values[which] + errors[which] * random.standard_normal(which.shape)).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def beside_controls(groups: Mapping[str, Cells]) -> list[Row]:
    """A row per network and set: before, after, every control, and the gain over mutated training images."""
    rows = []
    for subject, cells in groups.items():
        order = [*WORDS, *cells[0]["ours"]]  # a run stores keys by the alphabet
        for name in sorted(cells[0]["ours"], key=order.index):
            having = [cell for cell in cells if name in cell["ours"]]
            gains = [cell["gains"]["mutated"][name] for cell in having if "mutated" in cell["gains"]]
            gain = interval(gains) if gains else (None, None, None)
            arms = {arm: mean([c["controls"].get(arm, {}).get(name) for c in having], 1) for arm in cells[0]["controls"]}
            rows.append(
                {
                    "subject": subject, "set": WORDS.get(name, name), "seeds": len(having),
                    "before": mean([c["old"][name] for c in having], 1), "after": mean([c["ours"][name] for c in having], 1),
                    **arms,
                    "gain over mutated": rounded(gain[0], 2), "low": rounded(gain[1], 2), "high": rounded(gain[2], 2),
                }
            )  # fmt: skip
    return rows


def without_data(groups: Mapping[tuple[str, str], Cells]) -> list[Row]:
    """Faults fixed and clean accuracy lost, without training data, and the same of every control."""
    rows = []
    for (subject, protocol), cells in groups.items():
        fixed = interval([cell["gain"]["faults-seen"] for cell in cells if "faults-seen" in cell["gain"]])
        clean = interval([cell["gain"]["clean"] for cell in cells])
        arms = {
            f"{arm}: {word}": mean([_gain(cell, arm, name) for cell in cells], 1)
            for arm in cells[0]["controls"]
            for word, name in (("fixed", "faults-seen"), ("clean", "clean"))
        }
        rows.append(
            {
                "subject": subject, "protocol": protocol, "seeds": len(cells),
                "faults learned": mean([c["learned"] for c in cells], 0),
                "held-out faults fixed": rounded(fixed[0], 1), "low": rounded(fixed[1], 1), "high": rounded(fixed[2], 1),
                "clean": rounded(clean[0], 2), "clean low": rounded(clean[1], 2), "clean high": rounded(clean[2], 2),
                "averaging weight": mean([c["weight"] for c in cells], 2), **arms,
            }
        )  # fmt: skip
    return rows


def selected(groups: Mapping[tuple[str, str], Cells]) -> list[Row]:
    """NSS table VIII: increase in accuracy on the held-out mutated pool and on clean data, with a tenth of a pool."""
    rows = []
    for (subject, word), cells in groups.items():
        pool, clean = (interval([cell["gain"][name] for cell in cells]) for name in ("mutated", "clean"))
        printed = PAPER["table_8"].get(subject)
        controls = {arm: mean([_gain(c, arm, "mutated") for c in cells], 2) for arm in cells[0]["controls"]}
        rows.append(
            {
                "subject": subject, "selector": word, "seeds": len(cells), "mutated pool": rounded(pool[0], 2),
                "low": rounded(pool[1], 2), "high": rounded(pool[2], 2), "clean": rounded(clean[0], 2), **controls,
                "paper": None if printed is None else printed[("nss", "deepgini", "random").index(word)],
            }
        )  # fmt: skip
    return rows


def _gain(cell: Row, arm: str, name: str) -> float | None:
    """Of a control over the old network."""
    return cell["controls"][arm][name] - cell["old"][name] if arm in cell["controls"] else None


def attacked(groups: Mapping[tuple[str, str], Cells]) -> list[Row]:
    """NSGen table 13 and DeepSensor's figures: change of accuracy under attacks, transferred and made anew."""
    rows = []
    for (subject, protocol), cells in groups.items():
        for name in cells[0]["gain"]:
            if not name.endswith(("adaptive", "transferred")) and name != "clean":
                continue
            change = interval([cell["gain"][name] for cell in cells])
            controls: dict[str, Any] = {arm: mean([_gain(c, arm, name) for c in cells], 1) for arm in cells[0]["controls"]}
            rows.append(
                {
                    "subject": subject, "protocol": protocol, "attack": name, "seeds": len(cells),
                    "before": mean([c["old"][name] for c in cells], 1), "after": mean([c["ours"][name] for c in cells], 1),
                    "change": rounded(change[0], 1),
                    "low": rounded(change[1], 1), "high": rounded(change[2], 1), **controls,
                }
            )  # fmt: skip
    return rows


def distances(groups: Mapping[tuple[str, str], Cells]) -> list[Row]:
    """DeepSensor figure 6: the mean CLEVER score before and after, its change beside that of every control."""
    rows = []
    for (subject, protocol), cells in groups.items():
        having = [cell["clever"] for cell in cells if "clever" in cell]
        if not having:
            continue
        changes = np.concatenate([np.subtract(one["ours"], one["old"]) for one in having])
        arms = [arm for arm in having[0] if arm not in ("old", "ours")]
        gains = {arm: [float(np.subtract(one[arm], one["old"]).mean()) for one in having if arm in one] for arm in arms}
        before, after = (mean([value for one in having for value in one[name]], 3) for name in ("old", "ours"))
        rows.append(
            {
                "subject": subject, "protocol": protocol, "inputs": len(changes),
                "before": before, "after": after, **spread(changes.tolist(), 3, ("change", "low", "high")),
                **{arm: mean(values, 3) for arm, values in gains.items()},
            }
        )  # fmt: skip
    return rows


def printed_13() -> list[Row]:
    return [
        {"model": model, "set": name, "before": before, "after": after}
        for model, sets in PAPER["table_13"].items()
        for name, (before, after) in zip(("S2", "PGD of S2", "BIM of S2"), sets, strict=True)
    ]
