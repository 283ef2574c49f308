"""The guide goals in campaigns: it plans, learns, repeats itself, and works with any mutations, oracles and number of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.generate.subjects import fuzzer, images, outputs
from torch import Tensor, nn

from neurotest import registry
from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.goals import Goals
from neurotest.generate.fuzz.goals.state import TOP_CLASSES, GoalsState
from neurotest.measure.context import Context
from neurotest.mutate.rules import DeepHunterMutations, Rules98, TensorFuzzMutations
from neurotest.oracles import build_oracles
from neurotest.target import Target


def guide_of(loop: Fuzzer) -> GoalsState:
    assert isinstance(loop.guide, GoalsState)
    return loop.guide


def test_what_was_reached_is_what_was_output() -> None:
    loop = fuzzer("goals", Budget(forwards=900))
    faults = [m for m in outputs(loop) if m.fault]
    counts = guide_of(loop).details()["goals"]
    assert counts["family"] == len({m.family for m in faults}) == len(loop.tally.families)
    assert counts["pair"] == len({(m.expected, m.predicted) for m in faults})
    assert counts["seed"] == len({m.root for m in faults})
    first = [m for i, m in enumerate(faults) if m.root not in {other.root for other in faults[:i]}]
    assert all(m.accepted for m in first)  # a fault that reaches a goal is one the guide wanted
    assert loop.tally.forwards == guide_of(loop).passes


def test_elites_are_the_closest_right_mutants() -> None:
    """Against a list of everything that was run: per seed, class and use, the least margin that was not a fault."""
    loop = fuzzer("goals", Budget(forwards=700), max_depth=3)
    guide, least = guide_of(loop), dict[Any, float]()
    prepare = guide.prepare

    def noted(trace: Any, batch: Any) -> Any:
        z = trace.logits.double().numpy()
        for i, parent in enumerate(batch.parents):
            true, draws = int(loop.seeds.expected[parent.root]), batch.proposals.draws
            once = parent.used or bool(loop.settings.mutations.once[draws.kind[i]])
            for p in range(3):
                if batch.verdicts[i] < 0 and p != true and parent.depth + 1 < 3:
                    key = (parent.root, p, once)
                    least[key] = min(least.get(key, np.inf), (z[i, true] - z[i, p]) / guide.features.sigma)
        return prepare(trace, batch)

    guide.prepare = noted  # type: ignore[method-assign]
    outputs(loop)
    assert {cell: margin for cell, (margin, _) in guide.parents.elites.items()} == pytest.approx(least, abs=1e-4)
    numbers = {entry.number: entry for entry in loop.corpus.entries}
    for (root, _, used), (_, number) in guide.parents.elites.items():
        assert (numbers[number].root, numbers[number].used) == (root, used)
    assert len(numbers) == guide.parents.alive.sum()


def test_a_rule_is_tried_once_on_each_parent_and_a_batch_ramps_up() -> None:
    loop = fuzzer("goals:first_batch=8,batch=24,start_random=16", Budget(forwards=500))
    sizes, pairs = [], set()
    plan = guide_of(loop).plan

    def noted(*args: Any) -> Any:
        made = plan(*args)
        sizes.append(len(made.entries))
        for entry, rule in zip(made.entries, made.draws.rule.tolist(), strict=True):
            assert (entry.number, rule) not in pairs
            pairs.add((entry.number, rule))
        return made

    guide_of(loop).plan = noted  # type: ignore[method-assign]
    outputs(loop)
    assert sizes[0] == 8
    assert max(sizes) == 24
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    "mutations", [Rules98(bilateral=False), DeepHunterMutations(), TensorFuzzMutations(sigma=0.3)], ids=lambda m: type(m).__name__
)
def test_noise_is_learned_by_family(mutations: Any) -> None:
    loop = fuzzer("goals", Budget(forwards=400), mutations=mutations)
    faults = [m for m in outputs(loop) if m.fault]
    assert faults
    assert guide_of(loop).change.squares[:, 0, 0].sum() == loop.tally.tested


@pytest.mark.parametrize("oracle", ["metamorphic", "quantised:int8", "regression:0.3", "differential"])
def test_other_oracles(oracle: str) -> None:
    """The expected class is the seed's prediction; how often mutants fail whose prediction stays is learned."""
    loop = fuzzer("goals", Budget(forwards=300))
    other = Target(nn.Sequential(loop.target.module, nn.Linear(3, 3)), shape=(1, 8, 8))
    torch.nn.init.eye_(other.module[1].weight)
    with torch.no_grad():
        other.module[1].bias.copy_(torch.tensor([0.4, 0.0, 0.0]))
    from neurotest.oracles import Differential

    target, data = loop.target, ArraySource(images(40))
    judges = build_oracles(target, Differential(other=other) if oracle == "differential" else oracle)
    chosen = choose_seeds(target, data, judges)
    state = build_guide("goals").start(Context(target=target), data)
    campaign = Fuzzer(target, chosen, state, judges, Settings(), Budget(forwards=900))
    faults = [m for m in outputs(campaign) if m.fault]
    assert all(m.expected == chosen.roots.predicted[m.root] for m in faults)
    assert len(faults) == campaign.tally.faults
    changed, same = (float(a / b) for a, b in guide_of(campaign).rates)
    if oracle == "metamorphic":
        assert (changed, same) == (1.0, 0.0)
    else:
        assert 0 < same < 1 or not any(m.predicted == m.expected for m in faults)


class Wide(nn.Module):
    """Forty classes out of eight features, and no dense layer that could be looked into."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.randn(40, 64, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T


def test_many_classes_and_no_hidden_layer() -> None:
    """Only the top classes of a parent are forecast, the expected one among them."""
    target, data = Target(Wide().eval(), shape=(1, 8, 8)), ArraySource(images(40))
    judges = build_oracles(target, "metamorphic")
    chosen = choose_seeds(target, data, judges)
    loop = Fuzzer(
        target,
        chosen,
        build_guide("goals:parents=16").start(Context(target=target), data),
        judges,
        Settings(),
        Budget(forwards=500),
    )
    outputs(loop)
    guide = guide_of(loop)
    rows = guide.parents[guide.parents.rows]
    assert rows.classes.shape[1] == TOP_CLASSES
    assert (rows.classes == chosen.expected[rows.root][:, None]).sum(1).tolist() == [1] * len(rows)
    assert guide.features.outputs == 32
    assert guide.details()["features"] == "logits"
    assert loop.tally.families


def test_it_ends_when_little_new_is_expected() -> None:
    loop = fuzzer("goals", Budget(until_dry=3, forwards=50_000), n=6)
    outputs(loop)
    assert loop.spent() == "new goals"
    assert loop.tally.forwards < 50_000
    expected = loop.guide.expected()
    assert expected is not None
    assert expected < 3
    assert guide_of(loop).passes >= 1000


def test_only_a_guide_that_expects_something_can_run_dry() -> None:
    with pytest.raises(BadInput, match="until_dry: this guide does not say what it expects"):
        fuzzer("nlc", Budget(until_dry=3))
    with pytest.raises(BadInput, match="until_dry=0"):
        Budget(until_dry=0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"goals": ()}, "name at least one"),
        ({"goals": "speed"}, "unknown goal 'speed'"),
        ({"features": "edges"}, "features='edges'"),
        ({"first_batch": 0}, "first_batch=0"),
        ({"batch": 0}, "batch=0"),
        ({"explore": 2}, "explore=2"),
        ({"parents": 0}, "parents=0"),
    ],
)
def test_bad_settings(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Goals(**options)


@pytest.mark.parametrize("goals", ["seed:2", ("family", "seed(weight=2.0)"), ("aim(at='* -> 2')",)])
def test_goals_can_be_written_as_text(goals: Any) -> None:
    guide = Goals(goals=goals)
    assert registry.build("guide", registry.text(guide)) == guide


def test_an_aim_is_hit_more_often() -> None:
    """Twelve runs of each: with the aim, more seeds are taken for class 2."""
    hits = []
    for goals in (("family", "seed"), ("family", "seed", "aim(at='* -> 2')")):
        hit = 0
        for seed in range(3):
            loop = fuzzer(registry.text(Goals(goals=goals)), Budget(forwards=500), n=60, seed=seed)
            hit += len({m.root for m in outputs(loop) if m.fault and m.predicted == 2})
        hits.append(hit)
    assert hits[1] > hits[0]
