"""What looking inside adds to the guide `goals`: forecasts from logits, neurons or pixels, and coverage as a bonus."""

from __future__ import annotations

from neurotest.generate.fuzz import Budget, build_guide
from neurotest.measure.context import Context
from neurotest.stats.comparison import a12
from neurotest.target.load import load
from neurotest_lab.studies.frame import Groups, Row, mean, split_of, spread
from neurotest_lab.studies.fuzzing.cells import LIMITS, STARTS, drawn, fuzzer_of

VARIANTS = {
    "random": "random", "goals, logits only": "goals:features=logits", "goals, with neurons": "goals",
    "goals, with pixels (control)": "goals:features=pixels",
    "goals, logits, kmnc as a bonus": "goals:features=logits,coverage=kmnc:100",
    "goals, logits, nlc as a bonus": "goals:features=logits,coverage=nlc",
}  # fmt: skip
COUNTS = ("families", "pairs", "seeds", "faults")
CONTROL, LOGITS = "goals, with pixels (control)", "goals, logits only"


def campaign(subject: str, seed: int, variant: str, scale: str) -> Row:
    """The counts of one campaign; every fault counts, whether the guide wanted it or not."""
    context = Context(target=load(f"zoo:{subject}"), train=split_of(subject, "train[:1000]"), seed=seed, cache=True)
    source = drawn("study.fuzzing", seed, split_of(subject, "test"), STARTS[scale])
    budget = Budget(forwards=LIMITS[scale]["forwards"])
    with fuzzer_of(context, source, build_guide(VARIANTS[variant]), budget, batch=256, every_fault=True) as fuzzer:
        for _ in fuzzer.run():
            pass
        tally = fuzzer.tally
        pairs = {(true, predicted) for true, predicted, _ in tally.families}
        return {
            "families": len(tally.families), "pairs": len(pairs), "seeds": len(tally.roots), "faults": tally.faults,
            "forwards": tally.forwards,
        }  # fmt: skip


def rows(groups: Groups) -> list[Row]:
    """One row per subject and variant: means, and families over those of random, of logits only and of the control."""
    table = []
    for (subject, variant), cells in groups.items():
        row: Row = {"subject": subject, "guide": variant, **{name: mean((c[name] for c in cells), 1) for name in COUNTS}}
        for words, other in (("over random", "random"), ("over logits only", LOGITS), ("over pixels", CONTROL)):
            others = groups.get((subject, other), [])
            if variant != other and len(others) == len(cells):
                ratios = [c["families"] / o["families"] for c, o in zip(cells, others, strict=True) if o["families"]]
                row |= spread(ratios, 3, (f"families {words}", f"{words} low", f"{words} high")) if ratios else {}
        table.append(row | {"forwards": mean((c["forwards"] for c in cells), 0), "repetitions": len(cells)})
    columns = list(dict.fromkeys(name for row in table for name in row))
    return [{name: row.get(name) for name in columns} for row in table]


def checks(groups: Groups) -> dict[str, float]:
    """How likely each variant finds more families than random, over all subjects."""
    values: dict[str, float] = {}
    for variant in (name for name in VARIANTS if name != "random"):
        effects = [
            a12([c["families"] for c in cells], [c["families"] for c in groups[(subject, "random")]])
            for (subject, name), cells in groups.items() if name == variant and (subject, "random") in groups
        ]  # fmt: skip
        if (value := mean(effects, 3)) is not None:
            values[f"a12 of families, {variant} over random"] = value
    return values
