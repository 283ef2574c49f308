"""Profiles: per-neuron statistics of training data, computed once, saved, and tied to the target they came from."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from neurotest.errors import BadInput
from neurotest.files import write_bytes, write_json
from neurotest.reading import read_json, reading, regular, user_path
from neurotest.stats.moments import Moments
from neurotest.target.probe import Trace, Want
from neurotest.target.target import Target

FORMAT = 2  # 1: means of layers that widen were taken from their outputs, and differ in the last bits
KIND = "a profile"
AGAIN = "Make the profile again."
LARGEST_PROFILE = 1 << 32  # bytes


@dataclass
class Profile:
    """Range, mean and spread of every neuron of the wanted layers; `update` and `merge` accumulate."""

    fingerprint: str
    want: Want
    layers: dict[str, Moments]

    @classmethod
    def empty(cls, target: Target, want: Want) -> Profile:
        if want.keep != "reduced":
            raise BadInput("conflict", "keep", "a profile needs one value per neuron: keep='reduced'.")
        return cls(target.fingerprint, want, {})

    @property
    def count(self) -> int:
        """How many inputs were seen."""
        return next(iter(self.layers.values())).count if self.layers else 0

    def update(self, trace: Trace) -> None:
        for name, values in trace[self.want].items():
            array = values.detach().cpu().numpy()  # (n, neurons)
            if name not in self.layers:
                self.layers[name] = Moments(array.shape[1])
            self.layers[name].update(array)

    def merge(self, other: Profile) -> None:
        if (self.fingerprint, self.want) != (other.fingerprint, other.want):
            raise BadInput("conflict", "merge", "profiles of different targets, layers or neurons cannot be merged.")
        for name, moments in other.layers.items():
            self.layers.setdefault(name, Moments(moments.neurons)).merge(moments)

    def fresh(self, start: int = 0) -> Profile:
        """An empty one that can be merged into this one."""
        return Profile(self.fingerprint, self.want, {})

    def check(self, target: Target) -> None:
        """Refuse a profile of another network, or of layers that `want` no longer stands for."""
        if self.fingerprint != target.fingerprint:
            message = (
                f"the profile was made for another target ({self.fingerprint[:12]}, this one is {target.fingerprint[:12]}): "
                "make a new one from this target's training data."
            )
            raise BadInput("changed", "target", message)
        if self.layers and target.shape is not None:
            expected = {layer.name for layer in target.survey().find(self.want.layers)}
            if expected != set(self.layers):
                names = ", ".join(sorted(expected ^ set(self.layers))[:3])
                message = f"the profile has not the layers that {self.want.layers!r} stands for ({names}): make a new one."
                raise BadInput("changed", "layers", message)

    # -- files: FILE.safetensors holds the numbers; FILE.json, written last, says whose they are and what their hash is

    def save(self, path: str | Path) -> Path:
        """Write `path` (`.json`) and the `.safetensors` beside it; returns the JSON's path."""
        from safetensors.numpy import save

        base = _base(path)
        arrays = {name: moments.state_dict() for name, moments in self.layers.items()}
        content = save({f"{name}/{key}": np.ascontiguousarray(v) for name, state in arrays.items() for key, v in state.items()})
        write_bytes(_beside(base, ".safetensors"), content)
        about = {
            "format": FORMAT, "fingerprint": self.fingerprint, "want": asdict(self.want), "count": self.count,
            "layers": {name: m.neurons for name, m in self.layers.items()}, "sha256": hashlib.sha256(content).hexdigest(),
        }  # fmt: skip
        write_json(_beside(base, ".json"), about)
        return _beside(base, ".json")

    @classmethod
    def load(cls, path: str | Path, target: Target | None = None) -> Profile:
        """Read a saved profile; with `target`, refuse one that was made for another."""
        from safetensors.numpy import load

        base = _base(user_path(path))
        with reading(f"{base}.safetensors", KIND, hint=AGAIN):
            about = read_json(_beside(base, ".json"), KIND, hint=AGAIN)
            regular(_beside(base, ".safetensors"), KIND, LARGEST_PROFILE)
            content = _beside(base, ".safetensors").read_bytes()
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise BadInput("damaged", "format", f"{base}.json is no profile of format {FORMAT}: make it again.")
        if hashlib.sha256(content).hexdigest() != about.get("sha256"):
            message = f"{base}.safetensors does not belong to {base}.json (its hash differs): make the profile again."
            raise BadInput("damaged", "digest", message)
        with reading(f"{base}.json", KIND, untyped=True, hint=AGAIN):
            tensors = load(content)
            keys = list(Moments(1).state_dict())
            layers = {name: Moments.load({key: tensors[f"{name}/{key}"] for key in keys}) for name in about["layers"]}
            want = Want(**about["want"])
            if not isinstance(about["fingerprint"], str) or want.keep != "reduced":
                raise ValueError("its fingerprint or what it wants is none")
            profile = cls(about["fingerprint"], want, layers)
        if target is not None:
            profile.check(target)
        return profile


def _base(path: str | Path) -> Path:
    path = Path(path)
    return path.with_suffix("") if path.suffix in (".json", ".safetensors") else path


def _beside(base: Path, suffix: str) -> Path:
    return base.with_name(base.name + suffix)  # with_suffix would turn train.v1 into train.json
