"""Tables of campaigns: means over sets of seeds, random and the paper beside them. The study of NSGen has the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neurotest.stats.comparison import a12
from neurotest_lab.studies.frame import Groups, Row, mean, spread
from neurotest_lab.studies.fuzzing import published
from neurotest_lab.studies.fuzzing.cells import GUIDES, PROTOCOLS

Column = Callable[[str, str], tuple[str, int | None]]  # subject, guide -> the paper's name and column


def column(subject: str, guide: str) -> tuple[str, int | None]:
    """ResNet50's numbers stand beside those of our ResNet."""
    return guide, 0 if subject == "cifar10-resnet20" else None


def means(cells: list[Row], protocol: str, names: Iterable[str]) -> Row:
    return {name: mean(cell[protocol][name] for cell in cells) for name in names}


def effect(cells: list[Row], random: list[Row], protocol: str) -> float | None:
    """A12 of the faults; None where a campaign ended before the limit, because then they are not equal in anything."""
    if not cells or not random or not all(c[protocol]["reached"] for c in (*cells, *random)):
        return None
    return a12([c[protocol]["faults"] for c in cells], [c[protocol]["faults"] for c in random])


def last_columns(groups: Groups, key: tuple[str, str], protocol: str) -> Row:
    """Over random, how many campaigns reached the limit, and how many there are."""
    cells, random = groups[key], groups.get((key[0], "random"), [])
    row: Row = {"a12 over random": effect(cells, random, protocol) if key[1] != "random" else None}
    row["reached"] = sum(c[protocol]["reached"] for c in cells)
    if "resets" in cells[0][protocol] and protocol == "outputs":
        row |= means(cells, protocol, ["resets"])
    return {**row, "repetitions": len(cells)}


def equal(groups: Groups, protocol: str) -> list[Row]:
    """One row per subject and guide at one protocol's limit."""
    rows = []
    for (subject, guide), cells in groups.items():
        row: Row = {"subject": subject, "guide": guide}
        row |= means(cells, protocol, ("faults", "outputs", "rft", "fre", "families", "faults per 1,000 forwards", "coverage"))
        ends = spread([c[protocol]["faults"] for c in cells], 2)
        row |= {"faults low": ends["low"], "faults high": ends["high"], **last_columns(groups, (subject, guide), protocol)}
        rows.append(row | published.counts(protocol, *column(subject, guide)))
    return rows


def diversity(groups: Groups, column: Column = column) -> list[Row]:
    """Means over sets of seeds with their bootstrap intervals."""
    rows = []
    for (subject, guide), cells in groups.items():
        row: Row = {"subject": subject, "guide": guide, "repetitions": len(cells)}
        for name in ("true classes", "predicted classes", "oi", "families"):
            values = [cell["iterations"][name] for cell in cells if cell["iterations"][name] is not None]
            names = (name, f"{name} low", f"{name} high")
            row |= spread(values, 4, names) if values else dict.fromkeys(names)
        rows.append(row | published.classes(*column(subject, guide)))
    return rows


def gallery(groups: Groups) -> list[Row]:
    return [{"subject": s, "guide": g, **image} for (s, g), cells in groups.items() for image in cells[0]["gallery"]]


def checks(groups: Groups) -> dict[str, float]:
    """How likely each guide finds more faults than random with the same number of forward passes, over all subjects."""
    rows = {}
    for guide in (name for name in GUIDES if name != "random"):
        for protocol in PROTOCOLS:
            effects = (effect(cells, groups.get((s, "random"), []), protocol) for (s, g), cells in groups.items() if g == guide)
            if (value := mean(effects, 3)) is not None:
                rows[f"a12 of {guide} over random, equal {protocol}"] = value
    return rows
