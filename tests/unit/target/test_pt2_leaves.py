"""Every leaf and key of an archive's JSON replaced by something hostile: no code runs, nothing but BadInput is raised."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.target.exportable import save
from torch import Tensor, nn
from torch.nn import functional

from neurotest.errors import BadInput
from neurotest.target import load

pytestmark = pytest.mark.plain

JSON = ("models/model.json", "data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
Place = tuple[Any, ...]


class Small(nn.Module):
    """Few nodes of many kinds: modules, functions, a size, a list, a mode, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop, self.head = nn.Conv2d(1, 2, 3), nn.Dropout(), nn.Linear(2, 3)
        self.shift = torch.tensor(0.25)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        with torch.no_grad():
            x = x * 2
        one, two = functional.relu(self.conv(x)).reshape(n * 2, 4).chunk(2, 1)
        x = torch.cat([one, two], 1).reshape(n, 2, 4).amax(2)
        return self.head(self.drop(x)) + self.shift + torch.arange(3, device=x.device)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = save(Small(), tmp_path_factory.mktemp("leaves") / "net.pt2", (1, 4, 4))
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def strings(mark: Path) -> list[str]:
    """What would leave a file behind if it were evaluated, compiled, imported or looked up."""
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    code = "".join(f"\\x{ord(letter):02x}" for letter in call)
    return [
        call,
        f'drop")\rexec("{code}")\rdef rest():\r    #(',
        f"x, _=exec({call!r})",
        f'L__self__,,a.B;k,drop")\rexec("{code}")\rdef rest():\r    #(,c.D',
        "builtins.exec",
        "torch.ops.aten.from_file.default",
        f"../../{mark}",
        "forward",
        "a" * 100_000,
    ]


NUMBERS: list[Any] = [-1, 0, 1, 7, 2**31, 2**62, 10**40, 1e308, True, None, [], {}, "builtins.exec"]


def places(value: Any, above: Place = ()) -> Iterator[tuple[Place, str]]:
    """Every leaf and every key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*above, key), "key"
            yield from places(inner, (*above, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*above, number))
    if not isinstance(value, (dict, list)) or not value:
        yield above, "string" if isinstance(value, str) else "number"


def changed(content: Any, place: Place, kind: str, payload: Any) -> Any:
    copy = json.loads(json.dumps(content))
    owner = copy
    for step in place[:-1]:
        owner = owner[step]
    if kind == "key":
        owner[payload] = owner.pop(place[-1])
    else:
        owner[place[-1]] = payload
    return copy


def attempt(members: dict[str, bytes], name: str, content: Any, path: Path, same: set[str]) -> bool:
    """Whether the archive with this content is a network that runs; anything but BadInput fails the test.

    same: fingerprints of networks that were run already.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for member, old in members.items():
            archive.writestr(member, json.dumps(content) if member == name else old)
    with suppress(BadInput):
        target = load(f"pt2:{path}", size=(1, 4, 4))
        if target.fingerprint not in same:
            target.survey()
            same.add(target.fingerprint)
        return True
    return False


def run(members: dict[str, bytes], tmp_path: Path, *, every: bool) -> tuple[int, int]:
    mark, path = tmp_path / "mark", tmp_path / "net.pt2"
    words = strings(mark)
    tried = working = 0
    same: set[str] = set()
    for member in JSON:
        name = next(n for n in members if n.endswith(member))
        content = json.loads(members[name])
        for number, (place, kind) in enumerate(places(content)):
            if not every and number % 3:
                continue
            payloads = NUMBERS if kind == "number" else words
            for payload in payloads if every else payloads[number // 3 % len(payloads) :][:1]:
                tried += 1
                working += attempt(members, name, changed(content, place, kind, payload), path, same)
                assert not mark.exists(), (name, place, kind, payload)
    return tried, working


def test_the_archive_is_a_network_as_it_is(members: dict[str, bytes], tmp_path: Path) -> None:
    name = next(n for n in members if n.endswith(JSON[0]))
    assert attempt(members, name, json.loads(members[name]), tmp_path / "net.pt2", set())


def test_a_payload_in_every_third_leaf(members: dict[str, bytes], tmp_path: Path) -> None:
    """One payload each, in turn; those in places that are not read leave the network as it is."""
    tried, working = run(members, tmp_path, every=False)
    assert tried > 260
    assert 0 < working < tried


@pytest.mark.slow
def test_every_payload_in_every_leaf(members: dict[str, bytes], tmp_path: Path) -> None:
    tried, working = run(members, tmp_path, every=True)
    assert tried > 8000
    assert 0 < working < tried
