"""The Python interface: whole signatures, docstrings, and what a misspelt option is answered with."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc

import pytest

import neurotest
from neurotest.errors import BadInput, Remark
from neurotest.public import public
from neurotest.semantics.guidance import Guidance, GuidanceOptions

FUNCTIONS = [
    "attack", "check", "cover", "data", "describe", "diff", "doctor", "evaluate", "explain", "fuzz", "gate", "illuminate", "load",
    "profile", "robustness", "scan", "select", "suspects", "swarm",
]  # fmt: skip
OPEN_ENDED = {"attack", "diff", "robustness"}  # their **options are those of the method that is chosen


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_and_docstrings_are_real(name: str) -> None:
    function = getattr(neurotest, name)
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    assert (inspect.Parameter.VAR_POSITIONAL in kinds) == (name == "evaluate")  # which takes any number of runs
    assert (inspect.Parameter.VAR_KEYWORD in kinds) == (name in OPEN_ENDED)
    assert len(inspect.getdoc(function) or "") > 60


def test_help_begins_with_the_function() -> None:
    text = pydoc.plain(pydoc.render_doc(neurotest.select))
    assert text.index("select(target:") < text.index("CONTENTS")
    assert "the inputs to label first" in text


@pytest.mark.parametrize(("name", "option"), [("select", "bugdet"), ("cover", "trian"), ("load", "weigths"), ("doctor", "meen")])
def test_a_misspelt_option_is_named_with_the_nearest_in_the_words_of_python(name: str, option: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option '{option}'\. Did you mean ") as error:
        getattr(neurotest, name)("zoo:fashion-lenet5", "zoo:fashion-mnist/test[:2]", **{option: 1})
    assert isinstance(error.value, BadInput)
    assert "--" not in str(error.value)


def test_keywords_of_another_function_are_shown_and_checked() -> None:
    def base(*, mean: float = 0.0) -> float:
        return mean

    @public(base)
    def outer(x: float, **options: float) -> float:
        return x + base(**options)

    assert list(inspect.signature(outer).parameters) == ["x", "mean"]
    assert outer(1, mean=2) == 3
    with pytest.raises(BadInput, match="Did you mean mean"):
        outer(1, maen=2)


@pytest.mark.parametrize(
    ("options", "settings", "without"),
    [
        (GuidanceOptions, (Guidance,), ("target",)),
    ],
)
def test_what_a_type_checker_knows_is_what_there_is(options: type, settings: tuple[type, ...], without: tuple[str, ...]) -> None:
    fields = {field.name for one in settings for field in dataclasses.fields(one)}
    assert set(options.__annotations__) == fields - set(without)


def test_an_automatic_batch_is_none_at_all() -> None:
    @public()
    def work(*, batch: int = 250) -> int:
        return batch

    assert [work(), work(batch="auto"), work(batch=7)] == [250, 250, 7]  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="batch='many': expected an integer >= 1, or 'auto'"):
        work(batch="many")  # type: ignore[arg-type]


def test_a_former_name_works_with_a_note() -> None:
    with pytest.warns(Remark, match="neurotest.Description is now neurotest.NeuronDescription"):
        assert neurotest.Description is neurotest.NeuronDescription
