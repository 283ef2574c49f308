"""What goes over the wire, checked on the way in and documented by OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from neurotest.errors import BadInput, spelled


class Taken(BadInput):
    """Somebody else has, or had, this input."""


class Missing(BadInput):
    """The run has no such thing."""


Holder = Annotated[str, Field(pattern=r"^[0-9a-f]{8,32}$", description="One tab of a browser; it makes up its own name.")]
Position = Annotated[int, Field(ge=0, le=2**53 - 1, description="Where the input stands in the pool.")]
Class = Annotated[int, Field(ge=0, le=2**31 - 1, description="The number of a class.")]
Who = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Who labels.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Answer(BaseModel):
    """What is answered; names in it need not be UTF-8, and are spelled out."""

    @model_validator(mode="before")
    @classmethod
    def _spell(cls, value: Any) -> Any:
        return spelled(value)


class Problem(_Answer):
    """Why a request was refused, in a sentence."""

    detail: str


class Asking(_Body):
    holder: Holder


class Answering(_Body):
    """label null: cannot tell or, with valid false, no valid input. value, mark: of a quantity, in place of a label."""

    holder: Holder
    position: Position
    label: Class | None = None
    value: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    mark: Literal["right", "off"] | None = None
    valid: bool = True
    by: Who = ""


class Skipping(_Body):
    holder: Holder
    position: Position


class Undoing(_Body):
    holder: Holder
    by: Who = ""


class GridAsking(_Body):
    holder: Holder
    predicted: Class | None = None


class GridAnswering(_Body):
    """right: inputs the network is right about; wrong: inputs it is wrong about."""

    holder: Holder
    right: list[Position] = Field(max_length=200)
    wrong: list[Position] = Field(max_length=200)
    by: Who = ""


class ShownInput(_Answer):
    position: int
    name: str | None
    picture: str


class Next(_Answer):
    """state: `show`, `choosing` (ask again in a moment) or `done` (nothing is left that could be shown)."""

    state: Literal["show", "choosing", "done"]
    input: ShownInput | None


class Stored(_Answer):
    """fault: whether the network says something else; null where there is no class."""

    position: int
    fault: bool | None
    labels: int


class Skipped(_Answer):
    position: int


class Undone(_Answer):
    undone: list[int]
    labels: int


class Held(_Answer):
    held: list[int]


class Grid(_Answer):
    predicted: int
    name: str
    inputs: list[ShownInput]


class GridStored(_Answer):
    """to_name: how many of the wrong ones wait to be named, one by one."""

    stored: int
    to_name: int
    labels: int


class Guess(_Answer):
    """chance: how probable the selector thinks it is that the network is wrong here."""

    predicted: int
    name: str
    chance: float
    answer: float | None = None


class Quantity(_Answer):
    """The range that the quantity lies in, how far an answer may be off, and the method whose order inputs come in."""

    low: float
    high: float
    tolerance: float
    order: str


class About(_Answer):
    """quantity: what is asked for in place of a class."""

    run: str
    target: str
    pool: int
    classes: list[str]
    media: str
    quantity: Quantity | None
    by: str
    version: str
    note: str


class Progress(_Answer):
    """fault_at: which labels, counted from 1 in the order they came, showed a fault. standing: what the selector says."""

    labels: int
    judged: int
    faults: int
    unclear: int
    invalid: int
    fault_at: list[int]
    pool: int
    round: int
    round_size: int
    round_spent: int
    choosing: bool
    problem: str
    standing: dict[str, Any] | None
    can_stop: bool
    people: list[str]
    looking: int


class NextStep(_Answer):
    """What to do next, and the command that does it."""

    purpose: str
    command: str


class Number(_Answer):
    name: str
    value: str


class State(_Answer):
    """How a run stands. changed: differs from the last answer's when there is something new to fetch."""

    run: str
    command: str
    target: str
    state: Literal["running", "done", "unfinished"]
    changed: str
    sentence: str
    bad: bool
    steps: list[NextStep]
    numbers: list[Number]
    browsable: bool
    note: str
    caution: str


class ReportSection(_Answer):
    """A section of the report."""

    name: str
    title: str
    html: str


class ReportSections(_Answer):
    """changed: what the state said when they were drawn."""

    changed: str
    parts: list[ReportSection]


class FamilyRow(_Answer):
    true: str
    predicted: str
    operator: str
    key: str
    faults: int
    seeds: int
    fault: int
    change: str
    linf: float
    picture: bool
    shrunk: bool


class FamilyList(_Answer):
    """total: how many fit; the lists are what there is to filter by."""

    total: int
    families: list[FamilyRow]
    true: list[str]
    predicted: list[str]
    operators: list[str]


class FaultRow(_Answer):
    number: int
    root: int
    change: str
    linf: float
    l2: float
    picture: bool


class FaultList(_Answer):
    total: int
    faults: list[FaultRow]


class Fault(_Answer):
    """judged: what the oracle compared. times: how many times as large the difference is drawn."""

    number: int
    true: str
    predicted: str
    operator: str
    key: str
    change: str
    oracle: str
    judged: str
    times: int | None
    seed: str
    l0: float
    l2: float
    linf: float
    pictures: list[str]
    sounds: list[str]
    shrunk: str | None


class Starting(_Body):
    kind: Literal["explain", "shrink"]
    fault: Position


class JobStatus(_Answer):
    id: str
    kind: Literal["explain", "shrink"]
    fault: int
    state: Literal["waiting", "running", "done", "failed"]
    message: str
    page: str | None


class JobList(_Answer):
    jobs: list[JobStatus]
