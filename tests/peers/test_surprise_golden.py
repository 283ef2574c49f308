"""Surprise adequacy against published scores (Weiss et al., MIT) and against NeuraL-Coverage and dnn-tip on a fixed subject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.golden import arrays
from tests.golden.subject import joined

from neurotest.coverage.adequacy import DSA, LSA, MDSA, MLSA, Adequacy
from neurotest.measure.context import Traces

pytestmark = pytest.mark.by_hand

REAL = 1e-4


def classes(kind: str) -> tuple[np.ndarray, np.ndarray]:
    if kind == "pred":
        return arrays("outputs")["pred_train"], arrays("outputs")["pred_test"]
    return arrays("inputs")["y_train"], arrays("inputs")["y_test"]


def scores(method: Adequacy, columns: Any, kind: str = "pred") -> np.ndarray:
    train, test, (train_classes, test_classes) = joined("train"), joined("test"), classes(kind)
    return method.fit(Traces(train[:, columns], train_classes)).score(test[:, columns], test_classes)


def off(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours / theirs - 1).max())


FEATURES = {"A236": slice(0, 236), "fc2_84": slice(142, 226), "logits10": slice(226, 236)}


def test_published_dsa_of_mnist() -> None:
    """1,000 test inputs; of the training inputs those that are nearest to one of them, and others that must not matter."""
    published = arrays("excerpt", "surprise")
    fitted = DSA(features=None, min_var=0).fit(Traces(published["train"], published["train_pred"]))
    assert off(fitted.score(published["dsa_test"], published["dsa_test_pred"]), published["dsa"]) < 1e-6


def test_published_lsa_of_mnist() -> None:
    """One predicted class with all its training inputs. The activations are softmax values, whose covariance is singular but for
    rounding: taken as it is, as SADL took it."""
    published = arrays("excerpt", "surprise")
    own = published["train_pred"] == 5
    fitted = LSA(features=None, min_var=0, inverse="none").fit(Traces(published["train"][own], published["train_pred"][own]))
    test = published["lsa_test"]
    assert off(fitted.score(test, np.full(len(test), 5)), published["lsa"]) < REAL


@pytest.mark.parametrize("features", FEATURES)
def test_dsa_of_dnn_tip(features: str) -> None:
    ours = scores(DSA(features=None, min_var=0), FEATURES[features])
    assert off(ours, arrays("dnn_tip")[f"SA|{features}|DSA"]) < 1e-6


@pytest.mark.parametrize("kind", ["pred", "true"])
@pytest.mark.parametrize("min_var", ["1e-05", "3"])
def test_dsa_of_neural_coverage(kind: str, min_var: str) -> None:
    """Its feature mask rests on a wrong variance, so it is taken from its results."""
    peer = arrays("neural_coverage")
    ours = scores(DSA(features=None, min_var=0, reference="test"), peer[f"SA_mask|min_var={min_var}"], kind)
    assert off(ours, peer[f"DSC|labels={kind}|min_var={min_var}|values"]) < 1e-6


@pytest.mark.parametrize("features", FEATURES)
def test_mdsa_of_dnn_tip(features: str) -> None:
    peer = arrays("dnn_tip")
    for key, per in (("MDSA", "all"), ("pc-MDSA", "class")):
        ours = scores(MDSA(features=None, min_var=0, squared=True, inverse="pinv", per=per), FEATURES[features])  # type: ignore[arg-type]
        assert off(ours, peer[f"SA|{features}|{key}"]) < REAL, key


@pytest.mark.parametrize("kind", ["pred", "true"])
@pytest.mark.parametrize(("count", "tolerance"), [(15, REAL), (40, 5e-4)])
def test_mdsa_of_neural_coverage(kind: str, count: int, tolerance: float) -> None:
    """With 40 features its own float32 inverse is right to 3e-4 only."""
    peer = arrays("neural_coverage")
    ours = scores(MDSA(features=None, min_var=0), peer[f"SA_mask|nfeat={count}"], kind)
    assert off(ours, peer[f"MDSC|labels={kind}|nfeat={count}|values"]) < tolerance


def test_lsa_of_dnn_tip_on_logits() -> None:
    peer = arrays("dnn_tip")
    for key, per in (("LSA", "all"), ("pc-LSA", "class")):
        ours = scores(LSA(features=None, min_var=0, per=per), FEATURES["logits10"])  # type: ignore[arg-type]
        assert off(ours, peer[f"SA|logits10|{key}"]) < 1e-9, key


@pytest.mark.parametrize("features", ["A236", "fc2_84"])
def test_lsa_of_dnn_tip_per_class_with_the_20_most_varying_features(features: str) -> None:
    """dnn-tip chooses the features anew for every class."""
    train, test, (train_classes, test_classes) = joined("train"), joined("test"), classes("pred")
    ours = np.empty(len(test))
    for number in np.unique(train_classes):
        fitted = LSA(per="all", features=20, min_var=0).fit(
            Traces(train[train_classes == number][:, FEATURES[features]], train_classes[train_classes == number])
        )
        here = test_classes == number
        ours[here] = fitted.score(test[here][:, FEATURES[features]], test_classes[here])
    assert off(ours, arrays("dnn_tip")[f"SA|{features}|pc-LSA(max_features=20)"]) < 1e-6


@pytest.mark.parametrize("features", ["A236", "fc2_84"])
def test_lsa_of_dnn_tip_where_its_covariance_is_singular(features: str) -> None:
    """Condition 1e15: scipy itself repeats these numbers to about 1 % only, and so do we with `inverse="none"`."""
    ours = scores(LSA(features=None, min_var=0, per="all", inverse="none"), FEATURES[features])
    assert off(ours, arrays("dnn_tip")[f"SA|{features}|LSA"]) < 0.03


def test_mlsa_of_dnn_tip() -> None:
    """Both are fitted by scikit-learn with seed 0."""
    ours = scores(MLSA(components=2, features=None, min_var=0), FEATURES["logits10"])
    assert off(ours, arrays("dnn_tip")["SA|logits10|MLSA(2),np.seed0"]) < REAL


@pytest.mark.parametrize("kind", ["pred", "true"])
@pytest.mark.parametrize("min_var", ["1e-05", "3"])
def test_lsa_of_neural_coverage_where_its_tree_is_right(kind: str, min_var: str) -> None:
    """scikit-learn's kernel density stops its tree search too early far from the data (it says 105 where the sum is 4760), so the
    peer's values are right for most inputs only; ours are compared with the plain sum for all."""
    peer = arrays("neural_coverage")
    mask = peer[f"SA_mask|min_var={min_var}"]
    ours = scores(LSA(features=None, min_var=0, bandwidth=0.2), mask, kind)
    theirs = peer[f"LSC|labels={kind}|min_var={min_var}|values"]
    right = np.abs(ours / theirs - 1) < REAL
    assert right.mean() > 0.8
    train, test, (train_classes, test_classes) = joined("train"), joined("test"), classes(kind)
    for i in [*np.flatnonzero(~right)[:10], *np.flatnonzero(right)[:5]]:
        points = train[train_classes == test_classes[i]][:, mask].astype(float)
        exponents = -0.5 * np.square((points - test[i, mask]) / 0.2).sum(axis=1)
        plain = (
            exponents.max() + np.log(np.exp(exponents - exponents.max()).mean()) - mask.sum() * np.log(0.2 * np.sqrt(2 * np.pi))
        )
        assert ours[i] == pytest.approx(-plain, rel=1e-9)
