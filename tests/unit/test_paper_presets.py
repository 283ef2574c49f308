"""Every preset called `paper` against plain loops written from the papers' text; each test names the section it follows."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neurotest import registry, rng
from neurotest.campaign.plan import FuzzPlan
from neurotest.data.source import ArraySource
from neurotest.evaluate.clever import Clever
from neurotest.evaluate.leads import Leads, draw
from neurotest.generate.differential import diff
from neurotest.generate.differential.deepxplore import DeepXplore
from neurotest.generate.fuzz import Budget, Fuzzer, Settings, build_guide, choose_seeds
from neurotest.generate.fuzz.semantic import NSGen, NSGenState
from neurotest.generate.swarm import Ball, Problem
from neurotest.generate.swarm.excitability import ByShapley, Excitability
from neurotest.generate.swarm.settings import PRESETS
from neurotest.levels import EIGHT
from neurotest.measure.context import Context
from neurotest.mutate.rules import Rules95
from neurotest.mutate.validity import Validity
from neurotest.oracles import build_oracles
from neurotest.select import select
from neurotest.select.scorer import Partner
from neurotest.select.sensitivity import NSS, Sensitivity
from neurotest.semantics.describe.corpus import summed
from neurotest.semantics.descriptions import Description, Descriptions
from neurotest.semantics.threshold import every_rule, stratified
from neurotest.stats.weibull import end_point
from neurotest.studies.nss.cells import METHODS
from neurotest.target import Target, Trace
from neurotest.target.load import load

CLASSES = ["cat", "dog", "cow"]
FINE = 200  # intervals of the integrals


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))


# -- NSGen, section 4


def animals() -> tuple[Target, ArraySource, ArraySource]:
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(150, 12), nn.ReLU(), nn.Linear(12, 3))
    target = Target(nn.Sequential(*layers).eval(), shape=(1, 12, 12), mean=[0.3], std=[1.0], classes=CLASSES)
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 12, 12)).astype(np.uint8)
    x[:, :, :6] //= np.arange(1, 61, dtype=np.uint8)[:, None, None, None] % 4 + 1
    with torch.no_grad():
        logits = target.logits(target.prepare(x))
        layers[6].bias -= logits.mean(0)  # type: ignore[operator]  # so that every class is predicted
        labels = (logits - logits.mean(0)).argmax(1).numpy()
    return target, ArraySource(x[:30], labels[:30]), ArraySource(x[30:], labels[30:])


def contributions(module: nn.Sequential, x: Tensor, empty: Tensor) -> tuple[int, list[Tensor]]:
    """Equations 9 to 11 for one image: each neuron's mean contribution to the class predicted for this image, layer by layer."""
    predicted = int(module(x[None]).argmax())
    sums: list[Tensor] = []
    for number in (1, 5):  # the activations
        line = torch.linspace(0, 1, FINE + 1)[:, None, None, None] * (x - empty) + empty
        maps = module[: number + 1](line).detach().requires_grad_()
        (slopes,) = torch.autograd.grad(module[number + 1 :](maps)[:, predicted].sum(), maps)
        steps = (slopes[1:] + slopes[:-1]) / 2 * (maps[1:] - maps[:-1]).detach()  # df/df_i times df_i, summed over pixels
        whole = steps.sum(0)
        sums.append(whole.flatten(1).mean(1) if whole.ndim == 3 else whole)
    return predicted, sums


def sentence(predicted: int, sums: list[Tensor], texts: list[list[str]]) -> tuple[str, float]:
    """Section 4.3.2: the label, then the description of the first neuron of each layer, in their order, with commas. And how
    clear the choice of neurons was."""
    words = [texts[i][int(one.argmax())] for i, one in enumerate(sums)]
    gap = min(float((best[0] - best[1]) / best[0].abs()) for best in (one.topk(2).values for one in sums))
    return f"a photo of a {CLASSES[predicted]} with {', '.join(words)}", gap


def cosine(one: str, other: str) -> float:
    """Equation 12 with counts of words for a text encoder."""
    small = {"a", "of", "with", "photo", "the", "and"}
    bags = [[w for w in text.replace(",", " ").split() if w not in small] for text in (one, other)]
    words = sorted({*bags[0], *bags[1]})
    a, b = ([bag.count(w) for w in words] for bag in bags)
    return sum(i * j for i, j in zip(a, b, strict=True)) / math.sqrt(sum(i * i for i in a) * sum(j * j for j in b))


def bank(target: Target) -> Descriptions:
    """A description of one word per neuron; some neurons mean the same."""
    words = ["red", "dotted", "round", "fur", "horn", "tail"]
    rows = [Description(layer, n, words[n % 6 if layer == "1" else n % 4], 1.0, "by hand") for layer, k in (("1", 6), ("5", 12))
            for n in range(k)]  # fmt: skip
    return Descriptions.of(target, {"1": 6, "5": 12}, rows, "by hand")


def test_nsgen_compares_as_algorithm_1_and_sections_4_3_1_to_4_3_3() -> None:
    """Each mutant with the seed it was sampled from, both for what they are predicted to be, the label and every description in
    the text, kept when the cosine is below tau."""
    target, source, train = animals()
    module: Any = target.module
    described = bank(target)
    texts = [[d.text for d in described.layer(name)] for name in ("1", "5")]
    guide = build_guide("nsgen:preset=paper,encoder=tokens,tau=0.7,critical=conductance:steps=50")
    guide = NSGen(**{**vars(guide), "describe": described})
    state = guide.start(Context(target=target, train=train), source)
    assert isinstance(state, NSGenState)
    seen: list[tuple[Tensor, Any, float]] = []
    prepare = state.prepare

    def watched(trace: Trace, batch: Any) -> Trace:
        result = prepare(trace, batch)
        gains = state.gain(result)
        seen.extend((x.clone(), np.array(e.x), float(g)) for x, e, g in zip(batch.x, batch.parents, gains, strict=True))
        return result

    state.prepare = watched  # type: ignore[method-assign]
    judges = build_oracles(target, "label")
    plan = FuzzPlan(guide=guide)
    settings = plan.settings(guide)
    assert (settings.tries, settings.accept, settings.reuse_failures, settings.every_fault) == (64, "first", True, False)
    assert settings.validity == registry.build("validity", "valid:preset=nsgen-paper")
    lenient = Settings(mutations=Rules95(bilateral=False), reuse_failures=True, every_fault=False, batch=16)
    with Fuzzer(
        target, choose_seeds(target, source, judges), state, judges, lenient, Budget(outputs=30, forwards=40_000)
    ) as fuzzer:
        kept = [mutant for some in fuzzer.run() for mutant in some]
    empty = torch.full((1, 12, 12), 0.3) - 0.3
    compared = grown = 0
    for x, parent, gain in seen[-100:]:
        s = target.prepare(parent[None])[0]
        (one, first), (other, second) = (sentence(*contributions(module, image - 0.3, empty), texts) for image in (s, x))
        if min(first, second) > 0.01:
            assert gain == pytest.approx(0.7 - cosine(one, other), abs=1e-5)
            compared += 1
        grown += not any(np.array_equal(parent, seed) for seed in source.read(np.arange(30)))
    assert compared > 50
    assert grown > 0  # some of the seeds were mutants themselves (line 20)
    assert kept
    assert all(m.accepted for m in kept)  # F holds what is below tau and nothing else (line 21)


def test_nsgen_takes_tau_as_section_4_3_4_does() -> None:
    """1 % of every class, all 95 rules, the lower quartile."""
    target, _, train = animals()
    counts = np.array([150, 80, 240])
    rows = stratified(ArraySource(np.zeros((470, 1), np.uint8)), np.repeat(np.arange(3), counts), 0.01, 0)
    assert np.bincount(np.repeat(np.arange(3), counts)[rows]).tolist() == [2, 1, 2]
    module: Any = target.module
    described = bank(target)
    texts = [[d.text for d in described.layer(name)] for name in ("1", "5")]
    guide = build_guide("nsgen:preset=paper,encoder=tokens,critical=conductance:steps=50")
    ready = NSGen(**{**vars(guide), "describe": described}).start(Context(target=target, train=train), train).ready  # type: ignore[attr-defined]
    assert train.labels is not None
    part = train.take(stratified(train, train.labels, 0.01, 0))
    assert len(part) == 3
    space = Rules95()
    draws, values = every_rule(space), []
    assert len(draws) == 95
    empty = torch.zeros(1, 12, 12)
    for i in range(3):
        x = target.prepare(part.read(np.array([i])))
        changed = space.apply(x.repeat_interleave(95, 0), draws, levels=EIGHT)
        one, _ = sentence(*contributions(module, x[0] - 0.3, empty), texts)
        values += [cosine(one, sentence(*contributions(module, m - 0.3, empty), texts)[0]) for m in changed]
    # Where images are as few as here one near tie may move the quartile to the next of its values.
    near = sorted(values)[int(0.25 * len(values)) - 12 : int(0.25 * len(values)) + 12]
    assert near[0] - 1e-5 <= ready.tau <= near[-1] + 1e-5


def test_nsgen_preset_takes_what_the_text_says() -> None:
    """Sections 4.3.1 (five layers, top-1), 4.3.2 (shuffled labels, every description), 6.4.4 (one label)."""
    guide = build_guide("nsgen:preset=paper")
    assert isinstance(guide, NSGen)
    assert (guide.depth, guide.top, guide.labels, guide.margin) == (5, 1, 1, 0)
    assert (guide.reference, guide.target, guide.mode) == ("parent", "own", "with-label")
    target, _, train = animals()
    shuffled = NSGen(**{**vars(guide), "labels": 3, "tau": 0.5, "describe": bank(target)}).start(
        Context(target=target, train=train), train
    )
    comparer = shuffled.ready.comparer  # type: ignore[attr-defined]
    texts = {comparer.text(np.array([[i], [i]]), np.array([0, 1, 2])) for i in range(6)}
    orders = {text.partition(" with ")[0] for text in texts}
    assert len(orders) > 1
    assert all(set(order.removeprefix("a photo of a ").split(" or ")) == set(CLASSES) for order in orders)
    assert comparer.text(np.array([[0], [0]]), np.array([0, 1, 2])).endswith("with red, red")


def test_validity_of_section_5_2() -> None:
    """Fewer changed pixels than alpha of all, and no value changed by more than beta of 255."""
    random = np.random.default_rng(0)
    rule = registry.build("validity", "valid:preset=nsgen-paper")
    assert isinstance(rule, Validity)
    assert rule.check_once
    for _ in range(50):
        image, mutant = random.integers(0, 256, (2, 3, 5, 5)).astype(float)
        mutant = np.where(random.random((1, 5, 5)) < random.choice([0.1, 0.3]), mutant, image)
        mutant = image + (mutant - image) * random.choice([0.2, 1.0])
        changed, largest = 0, 0.0
        for row in range(5):
            for column in range(5):
                apart = [abs(mutant[c, row, column] - image[c, row, column]) for c in range(3)]
                changed += max(apart) > 0
                largest = max(largest, *apart)
        expected = changed < 0.2 * 25 and largest <= 0.4 * 255
        one, other = (torch.from_numpy(a / 255)[None] for a in (mutant, image))
        assert bool(rule.check(one, other)) == expected


def test_pooling_of_equation_6() -> None:
    """The sum over places of the shrunk mask times the channel, and nothing else."""
    maps, masks = torch.rand(2, 3, 2, 2, dtype=torch.float64), torch.rand(2, 4, 4, dtype=torch.float64)
    result = summed(maps, masks)
    for n in range(2):
        for c in range(3):
            total = 0.0
            for i in range(2):
                for j in range(2):  # bilinear by half: the mean of the four pixels around the centre
                    small = sum(float(masks[n, 2 * i + a, 2 * j + b]) for a in range(2) for b in range(2)) / 4
                    total += small * float(maps[n, c, i, j])
            assert float(result[n, c]) == pytest.approx(total, abs=1e-12)
    milan = registry.build("describer", "milan:preset=paper")
    assert (milan.pooling, milan.temperature, milan.hidden, milan.embedding, milan.beam) == ("sum", 1.0, 512, 128, 50)


# -- DeepSensor


@pytest.mark.parametrize(("name", "neurons"), [("mnist-lenet1", 52), ("mnist-lenet4", 148), ("mnist-lenet5", 268)])
def test_sensitivity_counts_the_neurons_of_table_1_by_equations_1_and_2(name: str, neurons: int) -> None:
    target = load(f"zoo:{name}")
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(1, 1, 28, 28, generator=generator) * 255).round() / 255
    moved = torch.rand(4, 1, 28, 28, generator=generator)
    problem = Problem(target, x, torch.tensor([0]), Ball("l2", 1.0, None))
    measure: Any = registry.build("fitness", str(PRESETS["sensitivity-paper"]["fitness"])).begin(problem)
    outputs: list[Tensor] = []
    module: Any = target.module

    def run(image: Tensor) -> list[float]:
        """phi of every neuron: channel means of maps, values of dense layers, logits, class probabilities."""
        outputs.clear()
        hooks = [part.register_forward_hook(lambda _m, _i, out: outputs.append(out)) for n, part in module.named_children()
                 if n.startswith(("relu", "pool")) or n == list(dict(module.named_children()))[-1]]  # fmt: skip
        with torch.no_grad():
            logits = module(image[None])
        for hook in hooks:
            hook.remove()
        values: list[float] = []
        for out in [*outputs, logits.softmax(1)]:
            for channel in out[0]:
                values.append(float(channel.double().mean()))
        return values

    before = run(x[0])
    assert len(before) == neurons
    with measure:
        fitness, _ = measure(moved, torch.zeros(4, dtype=torch.long))
    for i in range(4):
        length = float((moved[i] - x[0]).norm())
        sensitivity = [(b - a) / length for a, b in zip(before, run(moved[i]), strict=True)]
        assert all(abs(s - 0.5) > 1e-5 for s in sensitivity)
        assert float(fitness[i]) == pytest.approx(sum(s > 0.5 for s in sensitivity) / neurons, abs=1e-6)


def test_swarms_have_the_papers_numbers() -> None:
    """Section IV-B of the first paper, 5.5 of the second."""
    for name in ("sensitivity-paper", "excitability-paper"):
        preset = PRESETS[name]
        assert (preset["particles"], preset["iterations"], preset["inertia"], preset["enough"]) == (100, 10, (0.4, 0.9), 1.0)
        assert (preset.get("own", 2.0), preset.get("shared", 2.0), preset.get("start", "random")) == (2.0, 2.0, "random")


def test_excitability_is_equations_3_to_6() -> None:
    """Shapley values by enumeration of every set: marginal contributions with the printed weights; then the share above .5."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    with torch.no_grad():
        for weight in (module[0].weight, module[2].weight, module[4].weight):
            weight.mul_(4)
        for bias in (module[0].bias, module[2].bias):
            bias.abs_()
    target = Target(module.eval(), shape=(3,))
    x, moved = torch.rand(1, 3), torch.rand(3, 3)
    y = torch.tensor([0])

    def loss(image: Tensor, playing: set[int]) -> float:
        """Cross-entropy while neurons that do not play are set to zero."""
        with torch.no_grad():
            first = module[1](module[0](image)) * torch.tensor([float(n in playing) for n in (0, 1)])
            second = module[3](module[2](first)) * torch.tensor([float(n in playing) for n in (2, 3)])
            return float(torch.nn.functional.cross_entropy(module[4](second)[None].double(), y))

    def values(image: Tensor) -> list[float]:
        def worth(playing: set[int]) -> float:
            return loss(image, playing) - loss(x[0], playing)  # equation 3, first line

        every = []
        for n in range(4):
            total = 0.0
            for size in range(1, 5):
                weight = math.factorial(size - 1) * math.factorial(4 - size) / math.factorial(4)
                for s in itertools.combinations(range(4), size):
                    if n in s:
                        total += weight * (worth(set(s)) - worth(set(s) - {n}))  # equations 4 and 5
            every.append(total)
        return every

    problem = Problem(target, x, y, Ball("l2", 1.0, None))
    preset = registry.build("fitness", str(PRESETS["excitability-paper"]["fitness"]))
    assert (preset.estimate, preset.value, preset.lam, preset.layers) == ("shapley", "count", 0.5, "every")
    measure = Excitability(**{**vars(preset), "orders": 400}).begin(problem)
    assert isinstance(measure, ByShapley)
    assert len(measure.players) == 4
    with measure:
        fitness, _ = measure(moved, torch.zeros(3, dtype=torch.long))
    shares = set()
    for i in range(3):
        exact = values(moved[i])
        assert sum(exact) == pytest.approx(loss(moved[i], {0, 1, 2, 3}) - loss(x[0], {0, 1, 2, 3}), abs=1e-9)
        if all(abs(v - 0.5) > 0.1 for v in exact):
            assert float(fitness[i]) == sum(v > 0.5 for v in exact) / 4  # equation 6
            shares.add(float(fitness[i]))
    assert len(shares) > 1
    assert measure.cost == 1 + 2 * 4 * 400


# -- NSS


def test_nss_is_algorithms_1_and_2() -> None:
    random = np.random.default_rng(0)
    here, first, second = random.random((3, 50, 20)).astype(np.float32)
    method = registry.build("selector", "nss:preset=paper")
    assert isinstance(method, NSS)
    assert method.partner == Partner("remutate", 2)  # a fresh mutation in each algorithm
    changes = [0.0] * 20  # algorithm 1, lines 4 to 7
    for x in range(50):
        for i in range(20):
            changes[i] += abs(float(first[x, i]) - float(here[x, i]))
    chosen = np.argsort(changes)[-int(0.1 * 20) :]
    scores = []  # algorithm 2, lines 5 to 10
    for x in range(50):
        scores.append(sum(abs(float(second[x, i]) - float(here[x, i])) for i in chosen))
    state = Sensitivity(method, 50)

    def trace(values: np.ndarray) -> Trace:
        return Trace(torch.zeros(len(values), 2), {method.want: {"layer": torch.from_numpy(values)}})

    for start in range(0, 50, 7):
        part = slice(start, start + 7)
        state.update(np.arange(50)[part], trace(here[part]), [trace(first[part]), trace(second[part])])
    assert state.value().tolist() == pytest.approx(scores, abs=1e-5)


def test_dsa_of_table_4_takes_a_thousand_training_inputs() -> None:
    assert METHODS["dsa"] == "dsa:inputs=1000"
    target, pool, train = animals()
    few = select(target, pool, "dsa:inputs=12", 30, train=train, seed=4)
    rows = np.sort(rng.stream("select.surprise", 4).permutation(30)[:12])
    plain = select(target, pool, "dsa", 30, train=train.take(rows), seed=4)
    assert few.order.tolist() == plain.order.tolist()


# -- DeepXplore, whose settings the papers quote


def test_deepxplore_has_the_settings_quoted_for_mnist() -> None:
    method = registry.build("differential", "deepxplore:preset=mnist-paper")
    assert isinstance(method, DeepXplore)
    assert (method.class_weight, method.neuron_weight, method.step, method.steps, method.threshold) == (1.0, 0.1, 10.0, 20, 0.0)


def test_deepxplore_climbs_as_its_algorithm_1_says() -> None:
    """Section 4.2 and algorithm 1 with the settings quoted for MNIST, light: the gradient of the joint objective, replaced by
    its mean over the image, times the step, until the networks differ; one image at a time. The neuron term is left out: which
    neuron is drawn is random."""
    preset = vars(registry.build("differential", "deepxplore:preset=mnist-paper"))
    method = DeepXplore(**{**preset, "constraint": "light", "push": 0, "neuron_weight": 0.0})
    targets = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()
        targets.append(Target(module, shape=(1, 6, 6)))
    x = np.random.default_rng(0).integers(0, 256, (120, 1, 6, 6), dtype=np.uint8)
    result = diff(targets, ArraySource(x), method, out=False)
    assert len(result.x) > 5
    assert result.faults
    for i in range(len(result.x)):
        u = torch.from_numpy(result.seeds[i : i + 1].astype(np.float32) / 255)
        y = int(result.expected[i])
        for _ in range(20):
            free = u.clone().requires_grad_()
            aim = targets[1].logits(free)[0, y] - targets[0].logits(free)[0, y]
            (slope,) = torch.autograd.grad(aim, free)
            slope = slope / (slope.square().mean().sqrt() + 1e-5)
            u = (u + 10.0 * slope.mean()).clamp(0, 1)
            saved = (u * 255).round() / 255
            if all(len({int(t.logits(image).argmax()) for t in targets}) > 1 for image in (saved, u)):
                break
        assert np.abs(result.x[i].astype(int) - (u[0] * 255).round().numpy().astype(int)).max() <= 1


# -- CLEVER, whose settings the DeepSensor papers quote


def test_clever_is_section_iv_d_with_fresh_points_for_every_batch() -> None:
    """500 batches of 1,024 points; for every other class the lead over the end of the distribution of the batches' largest
    gradients. Here with fewer batches and points, which are drawn once for the method and once for the loop."""
    preset = registry.build("robustness", "clever:preset=paper")
    assert (preset.batches, preset.samples, preset.fresh) == (500, 1024, True)
    torch.manual_seed(0)
    target = Target(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), shape=(1, 4, 4))
    u = torch.rand(1, 4, 4, generator=torch.Generator().manual_seed(3))
    own = int(target.logits(u[None]).argmax())
    method = Clever(**{**vars(preset), "norm": "l2", "radius": 0.5, "batches": 10, "samples": 8, "screen": 0})
    ours = method.estimate(Leads(target), u, own, position=1, seed=2)
    logits = target.logits(u[None])[0].detach()
    for place, rival in enumerate(ours.rivals.tolist()):
        maxima = []
        for batch in range(10):
            norms = []
            for point in (u + 0.5 * draw(8, (1, 4, 4), "l2", rng.torch_stream("clever.points", 2, 1, batch))).clamp(0, 1):
                x = point[None].clone().requires_grad_()
                out = target.logits(x)[0]
                (slope,) = torch.autograd.grad(out[own] - out[rival], x)
                norms.append(math.sqrt(sum(float(v) ** 2 for v in slope.flatten())))
            maxima.append(max(norms))
        end = end_point(maxima, largest=max(maxima)).value
        assert ours.scores[place] == pytest.approx(min(float(logits[own] - logits[rival]) / end, 0.5), rel=1e-3)


# -- all of them

TESTED = {
    ("guide", "nsgen", "paper"): test_nsgen_compares_as_algorithm_1_and_sections_4_3_1_to_4_3_3,
    ("describer", "milan", "paper"): test_pooling_of_equation_6,
    ("validity", "valid", "nsgen-paper"): test_validity_of_section_5_2,
    ("fitness", "sensitivity", "paper"): test_sensitivity_counts_the_neurons_of_table_1_by_equations_1_and_2,
    ("fitness", "excitability", "paper"): test_excitability_is_equations_3_to_6,
    ("selector", "nss", "paper"): test_nss_is_algorithms_1_and_2,
    ("differential", "deepxplore", "mnist-paper"): test_deepxplore_climbs_as_its_algorithm_1_says,
    ("robustness", "clever", "paper"): test_clever_is_section_iv_d_with_fresh_points_for_every_batch,
}


def test_no_preset_of_a_paper_is_without_a_loop() -> None:
    """Every method that has a preset called after a paper stands in the table above; and so do both swarms' fitnesses."""
    presets = {
        (kind, name, preset)
        for kind in registry.KINDS
        for name, entry in registry.entries(kind).items()
        for preset in entry.presets
        if preset == "paper" or preset.endswith("-paper")
    }
    assert presets == set(TESTED)
    assert {str(one["fitness"]) for name, one in PRESETS.items() if name.endswith("-paper")} == {
        "sensitivity:preset=paper",
        "excitability:preset=paper",
    }
    for test in TESTED.values():
        text = f"{test.__name__} {test.__doc__}".lower()
        assert any(word in text for word in ("section", "algorithm", "equation")), test.__name__
