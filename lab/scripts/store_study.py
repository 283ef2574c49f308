"""The tables of docs/notes/study-*.md, out of one run of a study, into docs/results.

neurotest study NAME --json > FILE
python lab/scripts/store_study.py NAME FILE

What is stored, of which cells, and which of a table's columns, stands in store_study.toml beside this script; numbers come from
FILE alone, and nothing is stored while cells that belong to it are missing. Where a part of a study has a command of its own
(`run`), its NAME is `STUDY-PART`.
"""

from __future__ import annotations

import datetime
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "docs"))

Row = dict[str, Any]


def cell(template: str, row: Row) -> str:
    """A row's values in a template such as `{rate|.1%} ({low|.1%} .. {high|.1%})`; empty where one of them is not known.

    >>> cell("{a|.1f} of {b c}", {"a": 1.25, "b c": 3}), cell("{a} of {b}", {"a": None, "b": 2}), cell("{a|,}", {"a": 18349})
    ('1.2 of 3', '', '18,349')
    """
    parts, rest = [], template
    while "{" in rest:
        before, _, rest = rest.partition("{")
        field, _, rest = rest.partition("}")
        name, _, form = field.partition("|")
        if row.get(name) is None:
            return ""
        parts += [before, format(row[name], form)]
    return "".join([*parts, rest])


def chosen(rows: list[Row], only: dict[str, list[Any]]) -> list[Row]:
    return [row for row in rows if all(row.get(name) in values for name, values in only.items())]


def table(spec: Row, content: Row) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: of a table of the study, or (`checks`) of its numbers, named one by one."""
    if "checks" in spec:
        numbers = {text: {"value": content["checks"].get(name)} for name, text in spec["checks"].items()}
        return ["claim", spec["unit"]], [[text, cell(spec["cell"], number)] for text, number in numbers.items()]
    rows = chosen(content["tables"][spec["table"]], spec.get("only", {}))
    heads = list(spec["columns"])
    if "by" not in spec:
        return heads, [[cell(template, row) for template in spec["columns"].values()] for row in rows]
    # One row per value of the first column's template, and the other columns once per value of `by`.
    groups = list(dict.fromkeys(row[spec["by"]] for row in rows))
    first, *others = heads
    columns = [first, *(f"{group}: {head}" for group in groups for head in others)]
    keys = list(dict.fromkeys(cell(spec["columns"][first], row) for row in rows))
    lines = []
    for key in keys:
        mine = {row[spec["by"]]: row for row in rows if cell(spec["columns"][first], row) == key}
        lines.append([key, *(cell(spec["columns"][head], mine.get(group, {})) for group in groups for head in others)])
    return columns, lines


def main() -> None:
    from _results import Result, save

    from neurotest import __version__

    name, file = sys.argv[1:]
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    specs = tomllib.loads((HERE / "store_study.toml").read_text(encoding="utf-8"))[name]
    study, *arguments = specs.pop("run", name).split()
    if content["study"] != study:
        sys.exit(f"{file} is of the study {content['study']}, not of {study}.")
    command = f"neurotest study {' '.join((study, *arguments))} --json > FILE; python lab/scripts/store_study.py {name} FILE"
    for result, spec in specs.items():
        if missing := [key for key in content["missing"] if key.startswith(tuple(spec.get("cells", ("",))))]:
            print(f"{result} is not stored: {len(missing)} of its cells are missing, such as {missing[0]}.", file=sys.stderr)
            continue
        columns, rows = table(spec, content)
        today = datetime.date.today().isoformat()
        stored = Result(title=spec["title"], command=command, version=__version__, date=today, columns=columns, rows=rows)
        print(save(f"study-{name}-{result}", stored))


if __name__ == "__main__":
    main()
