"""Networks and what belongs to them: weights, exported programs, profiles."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.harness import Read
from tests.fuzz.mutators import PAYLOADS, Rng, dump, encode, mutate_bytes, mutate_json, mutate_text, pick


class Safetensors:
    """Weights: the header is JSON with offsets into the file."""

    name, outside = "safetensors", False

    def prepare(self, folder: Path) -> None:
        from safetensors.numpy import save

        self.seed = save(
            {"a.weight": np.ones((3, 4), np.float32), "a.bias": np.zeros(3, np.float32)}, {"about": '{"accuracy": 0.9}'}
        )

    def change(self, rng: Rng, content: bytes) -> bytes:
        if rng.random() < 0.5:
            return mutate_bytes(rng, content)
        (size,) = struct.unpack("<Q", content[:8])
        header = dump(mutate_json(rng, json.loads(content[8 : 8 + size])))
        text = encode(rng, mutate_text(rng, header) if rng.random() < 0.2 else header)
        return struct.pack("<Q", len(text)) + text + content[8 + size :]

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.weights import read_state

        file = folder / "w.safetensors"
        file.write_bytes(self.change(rng, self.seed))
        return lambda: read_state(file)


class TorchWeights:
    """Weights that torch saved: pickles, which may hold anything."""

    name, outside = "torch-weights", False

    def prepare(self, folder: Path) -> None:
        import torch

        state = {"a.weight": torch.ones(3, 4), "a.bias": torch.zeros(3)}
        self.seeds = []
        for value, modern in ((state, True), (state, False), ({"state_dict": state}, True)):
            out = io.BytesIO()
            torch.save(value, out, _use_new_zipfile_serialization=modern)
            self.seeds.append(out.getvalue())

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.weights import read_state

        file = folder / "w.pt"
        content = pick(rng, self.seeds)
        if zipfile.is_zipfile(io.BytesIO(content)) and rng.random() < 0.5:
            members = unpacked(content)
            name = pick(rng, list(members))
            members[name] = mutate_bytes(rng, members[name], [p.encode() for p in PAYLOADS])
            content = packed(members)
        else:
            content = mutate_bytes(rng, content)
        file.write_bytes(content)
        return lambda: read_state(file)


def unpacked(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


class Pt2:
    """Exported programs: mostly JSON, in an archive; payloads in its texts, members changed, renamed, left out."""

    name, outside = "pt2", False

    def prepare(self, folder: Path) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3)).eval()
        batch = {0: torch.export.Dim("batch")}
        program = torch.export.export(network, (torch.zeros(2, 1, 6, 6),), dynamic_shapes=(batch,))
        out = io.BytesIO()
        torch.export.save(program, out)
        self.members = unpacked(out.getvalue())
        self.texts = {name: json.loads(content) for name, content in self.members.items() if name.endswith(".json")}

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.load import load
        from neurotest.target.rehearsal import skipped

        members = dict(self.members)
        match int(rng.integers(5)):
            case 0:
                content = mutate_bytes(rng, packed(members))
            case 1:
                name = pick(rng, list(members))
                members[name] = mutate_bytes(rng, members[name])
                content = packed(members)
            case 2:
                name = pick(rng, list(members))
                members[mutate_text(rng, name).replace("\ud800", "?").split("\0")[0][:60_000] or "x"] = members.pop(name)
                content = packed(members)
            case _:
                name = pick(rng, list(self.texts))
                value = with_payload(rng, self.texts[name]) if rng.random() < 0.5 else mutate_json(rng, self.texts[name])
                members[name] = dump(value).encode("utf-8", "surrogatepass")
                content = packed(members)
        file = folder / "n.pt2"
        file.write_bytes(content)

        def read() -> object:
            with skipped():  # a reader under watch starts no process
                return load(f"pt2:{file}")

        return read


def with_payload(rng: Rng, value: Any) -> Any:
    """A copy in which one text, or one name of a field, is code, alone or at the end of what it was."""
    places = list(_texts(value))
    way = pick(rng, places)
    payload = pick(rng, PAYLOADS)
    behind = bool(rng.integers(2))
    return _replaced(value, way, lambda text: f"{text}{payload}" if behind else payload)


def _texts(value: Any, way: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, str):
        yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(key, str):
            yield (*way, ("key", key))
        yield from _texts(inner, (*way, key))


def _replaced(value: Any, way: tuple[Any, ...], change: Any) -> Any:
    if not way:
        return change(value)
    first, rest = way[0], way[1:]
    if isinstance(first, tuple):
        return {change(key) if key == first[1] else key: inner for key, inner in value.items()}
    inner = _replaced(value[first], rest, change)
    return {**value, first: inner} if isinstance(value, dict) else [*value[:first], inner, *value[first + 1 :]]


class SavedProfile(Safetensors):
    """A profile: JSON that names layers and the hash of the numbers beside it, which the attacker computes anew."""

    name = "profile"

    def prepare(self, folder: Path) -> None:
        from neurotest.stats.moments import Moments
        from neurotest.target.probe import Want
        from neurotest.target.profile import Profile

        moments = Moments(3)
        moments.update(np.arange(12.0).reshape(4, 3))
        Profile("f" * 64, Want(), {"a": moments, "b.c": moments}).save(folder / "p")
        self.about, self.seed = json.loads((folder / "p.json").read_text()), (folder / "p.safetensors").read_bytes()

    def case(self, rng: Rng, folder: Path) -> Read:
        from neurotest.target.profile import Profile

        content = self.change(rng, self.seed) if rng.random() < 0.4 else self.seed
        about = mutate_json(rng, self.about) if rng.random() < 0.8 else self.about
        if isinstance(about, dict) and rng.random() < 0.9:
            about = {**about, "sha256": hashlib.sha256(content).hexdigest()}
        (folder / "q.safetensors").write_bytes(content)
        (folder / "q.json").write_bytes(encode(rng, dump(about)))
        self.last = about

        def read() -> None:
            profile = Profile.load(folder / "q.json")
            _ = profile.count, [moments.std for moments in profile.layers.values()]

        return read


KINDS = (Safetensors, TorchWeights, Pt2, SavedProfile)
