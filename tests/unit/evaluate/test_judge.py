"""A suite judged as a whole, suites compared, extractors, impartiality, the class report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from neurotest.data.source import ArraySource
from neurotest.errors import BadInput
from neurotest.evaluate import Extractor, class_bias_report, compare, compare_suites, impartiality, judge
from neurotest.evaluate.bias import Sums, _evenness_interval
from neurotest.scan import scan
from neurotest.target import Target


def target(spec: str = "toy", bounds: tuple[float, float] = (0.0, 1.0)) -> Target:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():  # no class is preferred on the whole
        x = torch.rand(99, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        module[5].bias -= module(x).mean(0)
    return Target(module.eval(), shape=(1, 8, 8), spec=spec, bounds=bounds)


def clean(n: int = 60) -> ArraySource:
    x = np.random.default_rng(0).integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)
    network = target()
    return ArraySource(x, network.logits(network.prepare(x)).argmax(1).numpy(), spec="clean")


def noisy(size: int, n: int = 60) -> ArraySource:
    base = clean(n)
    x = base.read(np.arange(n)).astype(int)
    change = np.random.default_rng(1).integers(-size, size + 1, x.shape)
    return ArraySource(np.clip(x + change, 0, 255).astype(np.uint8), base.labels, originals=base, spec=f"noise {size}")


def test_the_clean_suite_itself() -> None:
    same = ArraySource(clean().read(np.arange(60)), clean().labels, originals=clean())
    content = judge(target(), same, train=noisy(9, 120)).to_dict()
    assert content["defects"]["faults"] == 0
    assert content["defects"]["success"] == 0
    assert content["naturalness"]["ssim"] == pytest.approx(1)
    assert content["naturalness"]["total_variation_ratio"] == pytest.approx(1)
    assert content["naturalness"]["linf"] == 0
    assert content["naturalness"]["fid"] == pytest.approx(0, abs=1e-9)
    assert content["naturalness"]["outside"] == content["naturalness"]["clean"]["outside"]
    assert content["diversity"]["vendi"] == pytest.approx(content["diversity"]["clean"]["vendi"])
    assert content["impartiality"]["all"] == pytest.approx(content["impartiality"]["clean"])
    assert any("no faults" in w for w in content["warnings"])
    assert "target itself" in content["extractor"]


def test_a_noisy_suite(tmp_path: Path) -> None:
    suite = noisy(200)
    judgement = judge(target(), suite)
    network = target()
    wrong = network.logits(network.prepare(suite.read(np.arange(60)))).argmax(1).numpy() != suite.labels
    assert judgement.defects["faults"] == int(wrong.sum()) > 0
    assert judgement.defects["roots"] == judgement.defects["root_label_pairs"] == int(wrong.sum())
    assert judgement.naturalness["ssim"] < 0.9
    assert judgement.naturalness["total_variation_ratio"] > 1
    assert judgement.per_input["fault"].sum() == wrong.sum()
    assert {row["part"] for row in judgement.table()} == {"defects", "diversity", "naturalness", "impartiality"}
    assert json.loads(judgement.save(tmp_path / "j.json").read_text())["outputs"] == 60


def test_small_suites_are_told_what_cannot_be_had() -> None:
    judgement = judge(target(), noisy(50).take(np.arange(4)))
    assert judgement.naturalness["fid"] is None
    assert any("singular" in w for w in judgement.warnings)
    assert any("KID" in w for w in judgement.warnings)
    single = judge(target(), noisy(50).take(np.arange(1)))
    assert single.diversity == {}


def test_suites_side_by_side() -> None:
    judged = {"little": judge(target(), noisy(5)), "much": judge(target(), noisy(200))}
    comparison = compare_suites(judged, draws=200)
    by_metric = {pair.metric: pair for pair in comparison.pairs}
    assert by_metric["ssim"].a12 == 1.0
    assert by_metric["ssim"].magnitude == "large"
    assert by_metric["linf"].a12 == 0.0
    assert by_metric["linf"].p <= by_metric["linf"].p_holm < 0.01
    assert comparison.means["ssim"]["little"].low > comparison.means["ssim"]["much"].high
    assert len(comparison.table()) == 2 * len(by_metric)
    assert json.dumps(comparison.to_dict())
    with pytest.raises(BadInput, match="different fingerprints"):
        compare_suites({"a": judged["little"], "b": judge(target(bounds=(0.0, 2.0)), noisy(5))})
    with pytest.raises(BadInput, match="different extractors"):
        compare_suites({"a": judged["little"], "b": judge(target(), noisy(5), extractor=nn.Flatten().eval())})


def test_compare_plain_samples() -> None:
    comparison = compare({"a": [1.0, 2, 3, 4, 5], "b": [1.0, 2, 3, 4, 5]}, draws=50)
    assert comparison.pairs[0].a12 == 0.5
    assert comparison.pairs[0].p == pytest.approx(1)
    paired = compare({"a": [1.0, 2, 3, 4, 5, 6], "b": [2.0, 3.1, 4.2, 5.3, 6.4, 7.5]}, paired=True, draws=50)
    assert paired.test == "wilcoxon"
    assert paired.pairs[0].p == pytest.approx(2 / 64)
    assert compare({"a": [1.0], "b": [2.0]}, draws=50).warnings
    for bad in ({"a": [1.0]}, {"a": [], "b": [1.0]}, {"a": {"x": [1.0]}, "b": {"y": [1.0]}}):
        with pytest.raises(BadInput):
            compare(bad)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="paired"):
        compare({"a": [1.0], "b": [1.0, 2.0]}, paired=True)


def test_extractors() -> None:
    network, source = target(), clean(6)
    own = Extractor.of(None, network)(network, source, batch=4)
    module = network.module
    assert isinstance(module, nn.Sequential)
    with torch.no_grad():
        expected = module[:5](network.prepare(source.read(np.arange(6))))
    assert own.values == pytest.approx(expected.numpy(), abs=1e-6)
    assert own.probs is not None
    assert own.probs.sum(1) == pytest.approx(np.ones(6))
    mine = Extractor.of(nn.Flatten().eval(), network)(network, source)
    assert mine.values.shape == (6, 64)
    assert mine.probs is None
    wide = target("wide", (0.0, 2.0))  # the same picture, in the range the extractor wants
    moved = Extractor.of(wide, network)(network, source)
    with torch.no_grad():
        assert moved.values == pytest.approx(module[:5](2 * network.prepare(source.read(np.arange(6)))).numpy(), abs=1e-5)
    with pytest.raises(BadInput, match="takes inputs of"):
        Extractor.of("zoo:mnist-lenet1", network)
    with pytest.raises(BadInput, match="no embedded network"):
        Extractor.of("reference", network)
    with pytest.raises(BadInput, match="does not take inputs"):
        Extractor.of(nn.Linear(3, 2).eval(), network)(network, source)
    with pytest.raises(BadInput, match="one row of features"):
        Extractor.of(nn.Flatten(0).eval(), network)(network, source)


def test_the_reference_network_is_another_one_for_the_same_data() -> None:
    pytest.importorskip("safetensors")
    from neurotest import zoo
    from neurotest.target.load import load

    if not zoo.find("mnist-lenet1").embedded:
        pytest.skip("the embedded networks were removed")
    extractor = Extractor.of("reference", load("zoo:mnist-lenet1"))
    assert "zoo:mnist-" in extractor.name
    assert "lenet1" not in extractor.name


def test_impartiality_in_three_numbers() -> None:
    predicted = np.array([0, 0, 1, 1, 2, -1])
    fault = np.array([True, True, False, False, False, True])
    result = impartiality(predicted, fault, 4, clean=np.array([0, 1, 2, 3]))
    assert result.faults == 0
    assert result.clean == pytest.approx(1)
    assert result.all is not None
    assert 0 < result.all < 1
    assert result.fault_count == 3
    assert "biased low" in result.warnings[0]
    corrected = impartiality(predicted, fault, 4, corrected=True)
    assert corrected.all is not None
    assert corrected.all > result.all
    with pytest.raises(BadInput):
        impartiality(predicted, fault[:2], 4)
    with pytest.raises(BadInput):
        impartiality(np.array([0, 9]), np.array([True, True]), 4)


def test_class_report_as_loops_say() -> None:
    network, source = target(), clean(60)
    labels = np.tile([0, 1, 2], 20)
    source = ArraySource(source.read(np.arange(60)), labels, spec="even")
    report = class_bias_report(network, source, per_class=12, thresholds=(0.0, 0.5), predicted=np.array([0, 0, 1]))
    for number in range(3):
        x = network.prepare(source.read(np.flatnonzero(labels == number)[:12]))
        module = network.module
        assert isinstance(module, nn.Sequential)
        above = total = 0
        with torch.no_grad():
            for layer in (module[:1], module[:4], module[:6]):
                sums = layer(x).relu().sum(0).flatten()
                scaled = (sums - sums.min()) / (sums.max() - sums.min())
                above, total = above + int((scaled > 0.5).sum()), total + scaled.numel()
        assert report.coverage[number, 1] == pytest.approx(above / total)
    assert sorted(report.rank) == pytest.approx(sorted(report.rank.tolist()))
    assert report.rank.sum() == pytest.approx(6)
    assert report.counts is not None
    assert report.counts.tolist() == [2, 1, 0]
    content = report.to_dict()
    assert content["p"] is None or 0 < content["p"] <= 1
    assert [row["rank"] for row in content["classes"]] == sorted(report.rank.tolist())


def test_sums_of_halves_are_those_of_the_whole() -> None:
    network, source = target(), clean(20)
    whole, left, right = Sums(), Sums(), Sums()
    scan(network, source, [whole])
    scan(network, source.take(np.arange(8)), [left])
    scan(network, source.take(np.arange(8, 20)), [right])
    left.merge(right)
    assert left.value((0.1, 0.6)) == pytest.approx(whole.value((0.1, 0.6)))
    flat = Sums()
    flat.sums = {"a": torch.zeros(5)}
    assert flat.value((0.0,)) == pytest.approx([0.0])


def test_bad_input() -> None:
    network = target()
    plain = ArraySource(clean(5).read(np.arange(5)))
    with pytest.raises(BadInput, match="made from"):
        judge(network, plain)
    with pytest.raises(BadInput, match="as originals"):
        judge(network, plain, originals=clean(4))
    with pytest.raises(BadInput, match="no labels"):
        class_bias_report(network, plain)
    with pytest.raises(BadInput, match="needs at least"):
        class_bias_report(network, clean(5))
    even = ArraySource(clean(60).read(np.arange(60)), np.tile([0, 1, 2], 20))
    for bad in (np.array([3]), np.array([], dtype=int), np.array([0.5])):
        with pytest.raises(BadInput, match="predicted"):
            class_bias_report(network, even, predicted=bad)
    with pytest.raises(BadInput, match="per_class"):
        class_bias_report(network, even, per_class=0)


def test_feature_distance_in_a_plain_loop() -> None:
    network, suite = target(), noisy(60, 5)
    assert suite.originals is not None
    distance = Extractor.of(None, network).distance(network, suite, suite.originals)
    module = network.module
    assert isinstance(module, nn.Sequential)
    # The whole suite in one batch, as the extractor has it: normalising small columns makes much of a kernel's last digit.
    x, before = (network.prepare(s.read(np.arange(5))) for s in (suite, suite.originals))
    for i in range(5):
        layers = []
        with torch.no_grad():
            for layer in (module[:1], module[:4], module[:6]):
                a, b = (layer(v)[i].double() for v in (x, before))
                a, b = (v.reshape(len(v), -1) for v in (a, b))  # (channels, places)
                places = []
                for p in range(a.shape[1]):
                    places.append(float(((a[:, p] / a[:, p].norm() - b[:, p] / b[:, p].norm()) ** 2).sum()))
                layers.append(np.mean(places))
        assert distance[i] == pytest.approx(np.mean(layers), rel=1e-5)
    same = suite.originals.with_originals(suite.originals)
    assert Extractor.of(None, network).distance(network, same, suite.originals) == pytest.approx(np.zeros(5))
    flat = Extractor.of(nn.Flatten().eval(), network).distance(network, suite, suite.originals)
    assert ((flat > 0) & (flat <= 4)).all()


def test_extractors_by_layer_output_and_weights(tmp_path: Path) -> None:
    network, source = target(), clean(6)
    named = Extractor.of(target("other"), network, layer="0,3")
    assert named(network, source).values.shape == (6, 4 * 36 + 5)
    assert "layers 0,3" in named.name
    whole = Extractor.of(target("other"), network, layer="output")(network, source)
    assert whole.values.shape == (6, 3)
    assert whole.probs is None
    code = "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear({n}, 4))\n"
    (tmp_path / "mine.py").write_text(code.format(n=64))
    state = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).state_dict()
    torch.save(state, tmp_path / "w.pt")
    spec = f"py:{tmp_path / 'mine.py'}:build"
    mine = Extractor.of(spec, network, layer="output", weights=tmp_path / "w.pt")
    expected = network.prepare(source.read(np.arange(6))).flatten(1) @ state["1.weight"].T + state["1.bias"]
    assert mine(network, source).values == pytest.approx(expected.numpy(), abs=1e-5)
    (tmp_path / "narrow.py").write_text(code.format(n=10))
    for layer in ("output", "last_hidden"):
        with pytest.raises(BadInput, match="does not take inputs of size 1x8x8"):
            Extractor.of(f"py:{tmp_path / 'narrow.py'}:build", network, layer=layer)(network, source)
    with pytest.raises(BadInput, match="weights="):
        Extractor.of("reference", network, weights=tmp_path / "w.pt")
    small = Target(nn.Flatten(), shape=(1, 4, 4), spec="small")
    with pytest.raises(BadInput, match="takes inputs of 1x4x4, the target of 1x8x8"):
        Extractor.of(small, network)


def test_a_suite_of_one_class() -> None:
    suite = noisy(120)
    one = suite.take(np.flatnonzero(suite.labels == 1))
    judgement = judge(target(), one)
    assert judgement.impartiality["faults"] is None
    assert any("one class only" in w for w in judgement.warnings)
    with pytest.raises(BadInput, match="one class only"):
        judge(target(), one, metrics=["impartiality"])
    with pytest.raises(BadInput, match="one input has no diversity"):
        judge(target(), suite.take(np.arange(1)), metrics=["diversity"])
    with pytest.raises(BadInput, match="operators"):
        judge(target(), suite, operators=["x"])


def test_families_count_what_the_input_was_made_by() -> None:
    suite = noisy(200)
    plain = judge(target(), suite).defects
    ways = judge(target(), suite, operators=[str(i % 2) for i in range(60)]).defects
    assert plain["families"] == plain["class_pairs"] == ways["class_pairs"]
    assert plain["families"] < ways["families"] <= 2 * plain["families"]


def test_outputs_of_one_seed_count_once_in_comparisons() -> None:
    base, many = noisy(150, 20), np.tile(np.arange(20), 10)
    repeated = base.take(many)
    judged = {"once": judge(target(), base), "ten times": judge(target(), repeated)}
    comparison = compare_suites(judged, draws=100)
    assert comparison.sizes == {"once": 20, "ten times": 20}
    assert [pair.a12 for pair in comparison.pairs] == pytest.approx([0.5] * len(comparison.pairs), abs=0.02)
    even = judged["ten times"].impartiality
    once = judged["once"].impartiality
    assert even["faults_interval"] == pytest.approx(once["faults_interval"])  # ten copies of a seed are one seed
    assert compare_suites(judged, paired=True, draws=50).test == "wilcoxon"
    other = {"a": judged["once"], "b": judge(target(), noisy(150, 40).take(np.arange(20, 40)))}
    with pytest.raises(BadInput, match="share 0 seeds"):
        compare_suites(other, paired=True)


def test_evenness_interval_holds_the_truth() -> None:
    generator = np.random.default_rng(0)
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    truth = float(-(shares * np.log(shares)).sum() / np.log(4))
    inside = 0
    for repeat in range(100):
        predicted = generator.choice(4, 80, p=shares)
        low, high = _evenness_interval(predicted, 4, np.arange(80), draws=200, seed=repeat)  # type: ignore[misc]
        inside += low <= truth <= high
    assert inside >= 85
    assert _evenness_interval(np.array([1, 1]), 4, np.array([0, 0])) is None
    assert _evenness_interval(np.array([], dtype=int), 4, np.array([])) is None
