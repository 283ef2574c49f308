"""Charts of a study's page."""

from __future__ import annotations

from markupsafe import Markup

from neurotest_lab.report import study
from neurotest_lab.report.study import drawing, drawn


def test_charts_of_tables_come_from_their_study() -> None:
    drawing("throwaway", "a", "b")(lambda rows: Markup(len(rows)) if len(rows) > 1 else None)
    try:
        assert drawn("throwaway", {"a": [{}, {}], "b": [{}], "c": [{}, {}]}) == {"a": "2"}
        assert drawn("another", {"a": [{}, {}]}) == {}
    finally:
        del study._drawings["throwaway", "a"], study._drawings["throwaway", "b"]
