"""The papers' claims as one table: verdicts from `claims.toml`, numbers out of stored results, with command and date."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from _results import FOLDER, Result, ResultError, load

PLACE = Path(__file__).parent / "claims.toml"
MARK = "<!-- claims -->"
VERDICTS = ("holds", "holds if", "does not hold here", "not measured here")


@dataclass(frozen=True, kw_only=True)
class Number:
    """One cell of a stored result, and what it is."""

    what: str
    result: str
    row: str  # the first cell of the row, or the first cells, joined by ` > `
    column: str

    def read(self, folder: Path = FOLDER) -> tuple[str, Result]:
        result = load(self.result, folder)
        try:
            return result.cell(self.row, self.column), result
        except ResultError as error:
            raise ResultError(f"{self.result}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a paper says, what became of it here, under which condition, and by which numbers."""

    paper: str
    claim: str
    verdict: str
    condition: str = ""
    numbers: tuple[Number, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ResultError(f"{self.claim}: verdict {self.verdict!r}, expected one of {', '.join(VERDICTS)}")
        if bool(self.numbers) == (self.verdict == "not measured here"):
            raise ResultError(f"{self.claim}: a verdict needs numbers, and what is not measured has none")
        if self.verdict in ("holds if", "not measured here") and not self.condition:
            raise ResultError(f"{self.claim}: {self.verdict!r} needs a condition or a reason")

    def row(self, folder: Path = FOLDER) -> list[str]:
        cells = [(number.what, *number.read(folder)) for number in self.numbers]
        results = {result.command: result for _, _, result in cells}
        commands = "; ".join(f"`{command}`, {result.date}, {result.version}" for command, result in results.items())
        verdict = f"**{self.verdict}**{f' {self.condition}' if self.condition else ''}"
        return [self.paper, self.claim, verdict, "; ".join(f"{what}: {value}" for what, value, _ in cells), commands]


def claims(place: Path = PLACE) -> list[Claim]:
    entries = tomllib.loads(place.read_text(encoding="utf-8"))["claim"]
    return [Claim(**{**entry, "numbers": tuple(Number(**one) for one in entry.get("numbers", ()))}) for entry in entries]


def render(markdown: str, folder: Path = FOLDER, place: Path = PLACE) -> str:
    """The page with the table in place of the mark."""
    if MARK not in markdown:
        return markdown
    columns = ["paper", "claim", "here", "numbers", "command, date, version"]
    lines = [columns, ["---"] * len(columns), *(claim.row(folder) for claim in claims(place))]
    return markdown.replace(MARK, "\n".join("| " + " | ".join(line) + " |" for line in lines))
