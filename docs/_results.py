"""Stored measurements: a table, the command that made it, its version and its date, in one file of `docs/results`.

A page shows one where a paragraph is nothing but a link to it, so that the page can also be read as it is:

    [Seeds that fail](results/NAME.json)
    [All rows](results/NAME.json "folded")
    [The gain](results/NAME.json "only method=gain|random; only pools=nss; without method|pools")

A single cell stands in a sentence as the file, the first cell of its row and its column:

    with the label {{study-nsgen-outputs | nsgen with-label | fashion-lenet5: over random's}} of random's

(where several rows begin alike, the first cells joined: `mnist-lenet1 > nss`).

A command that prints a Markdown table is stored with

    COMMAND | python docs/_results.py NAME --command 'COMMAND' --title 'what the table is'
"""

from __future__ import annotations

import argparse
import datetime
import json
import posixpath
import re
import sys
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
LINK = re.compile(
    r'^\[(?P<text>[^\]\n]+)\]\((?:\.\./)*results/(?P<name>[\w+-]+)\.json(?: "(?P<options>[^"\n]*)")?\)$', re.MULTILINE
)
CELL = re.compile(r"\{\{\s*(?P<name>[\w+-]+)\s*\|(?P<row>[^|{}]+)\|(?P<column>[^|{}]+)\}\}")
RULE = re.compile(r"^\|[\s:|-]*-[\s:|-]*\|$")


class ResultError(ValueError):
    """A result file or a link to one that cannot be shown."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A measured table; cells are Markdown, as they were printed."""

    title: str
    command: str
    version: str
    date: str
    columns: list[str]
    rows: list[list[str]]

    def __post_init__(self) -> None:
        for field in ("title", "command", "version", "date"):
            if not getattr(self, field).strip():
                raise ResultError(f"{field} is empty: a result says what it is, its command, its version and its date")
        datetime.date.fromisoformat(self.date)
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ResultError(f"row {number} has {len(row)} cells for {len(self.columns)} columns")

    def only(self, column: str, values: list[str]) -> Result:
        """The rows that have one of the values in the column."""
        place = self._place(column)
        rows = [row for row in self.rows if row[place] in values]
        if missing := [value for value in values if all(row[place] != value for row in rows)]:
            raise ResultError(f"no row has {column}={missing[0]}")
        return Result(**{**asdict(self), "rows": rows})

    def without(self, columns: list[str]) -> Result:
        """The table without some of its columns."""
        left_out = {self._place(column) for column in columns}
        rows = [[cell for place, cell in enumerate(row) if place not in left_out] for row in [self.columns, *self.rows]]
        return Result(**{**asdict(self), "columns": rows[0], "rows": rows[1:]})

    def cell(self, row: str, column: str) -> str:
        """The cell of the only row that begins so; several cells of its beginning are joined by ` > `."""
        place, names = self._place(column), row.split(" > ")
        rows = [cells for cells in self.rows if cells[: len(names)] == names]
        if len(rows) != 1:
            raise ResultError(f"{len(rows)} rows begin with {row!r}, expected one")
        return rows[0][place].strip("*")

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def _place(self, column: str) -> int:
        if column not in self.columns:
            raise ResultError(f"no column {column}; there are {', '.join(self.columns)}")
        return self.columns.index(column)


def load(name: str, folder: Path = FOLDER) -> Result:
    path = folder / f"{name}.json"
    if not path.is_file():
        raise ResultError(f"{path.name} is not in docs/results")
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ResultError(f"docs/results/{path.name}: {error}") from error


def save(name: str, result: Result, folder: Path = FOLDER) -> Path:
    """Write the file with one row per line, so that a changed row is one changed line."""
    fields = asdict(result)
    rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in fields.pop("rows"))
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items())
    path = folder / f"{name}.json"
    path.write_text(f'{{\n{head},\n  "rows": [\n{rows}\n  ]\n}}\n', encoding="utf-8")
    return path


def parse(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the Markdown tables among the lines; all must have the same columns."""
    rows: list[list[str]] = []
    columns: list[str] | None = None
    for place, line in enumerate(lines):
        following = lines[place + 1].strip() if place + 1 < len(lines) else ""
        if not line.strip().startswith("|") or RULE.match(line.strip()):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not RULE.match(following):
            rows.append(cells)
        elif columns not in (None, cells):
            raise ResultError(f"two tables with different columns: {columns} and {cells}")
        else:
            columns = cells
    if columns is None:
        raise ResultError("no Markdown table: expected a line of column names, a line of dashes and rows")
    return columns, rows


def render(markdown: str, page: str, folder: Path = FOLDER) -> str:
    """The page's text with every link to a result replaced by its table, and every cell that is named by what it holds."""
    return CELL.sub(lambda cell: _cell(cell, page, folder), LINK.sub(lambda link: _table(link, page, folder), markdown))


def _cell(cell: re.Match[str], page: str, folder: Path) -> str:
    try:
        text = load(cell["name"], folder).cell(" ".join(cell["row"].split()), " ".join(cell["column"].split()))
    except ResultError as error:
        raise ResultError(f"{page}, {cell[0]}: {error}") from error
    if not text:
        raise ResultError(f"{page}, {cell[0]}: the cell is empty")
    return text


def _table(link: re.Match[str], page: str, folder: Path) -> str:
    name, folded = link["name"], False
    try:
        result = load(name, folder)
        for option in filter(None, (part.strip() for part in (link["options"] or "").split(";"))):
            word, _, rest = option.partition(" ")
            column, _, values = rest.partition("=")
            if option == "folded":
                folded = True
            elif word == "only" and values:
                result = result.only(column, values.split("|"))
            elif word == "without" and rest:
                result = result.without(rest.split("|"))
            else:
                raise ResultError(f"{option}: expected folded, only COLUMN=VALUE|VALUE or without COLUMN|COLUMN")
    except ResultError as error:
        raise ResultError(f"{page}, {link[0]}: {error}") from error
    address = posixpath.relpath(f"results/{name}.json", posixpath.dirname(page) or ".")
    source = f"`{result.command}`, version {result.version}, {result.date}: [all of it as JSON]({address})"
    if not folded:
        return f"*{link['text']}*\n\n{result.markdown()}\n\n<small>{source}</small>"
    inside = textwrap.indent(f"{source}\n\n{result.markdown()}", "    ")
    return f'??? note "{link["text"]} ({len(result.rows)} rows)"\n\n{inside}'


def main() -> None:
    """Store the Markdown table on standard input."""
    import neurotest

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name")
    parser.add_argument("--command", required=True)
    parser.add_argument("--title", required=True)
    options = parser.parse_args()
    columns, rows = parse(sys.stdin.read().splitlines())
    result = Result(
        title=options.title, command=options.command, version=neurotest.__version__,
        date=datetime.date.today().isoformat(), columns=columns, rows=rows,
    )  # fmt: skip
    print(save(options.name, result))


if __name__ == "__main__":
    main()
