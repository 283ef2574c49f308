"""The target of a run: what is stored of it, and the gate in front of loading it again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from neurotest import registry
from neurotest.data.objects import AnyData
from neurotest.data.source import Source
from neurotest.data.spec import data
from neurotest.errors import BadInput
from neurotest.images import Preprocess
from neurotest.jobs.opening import AnyTarget, open_target
from neurotest.reading import untrusted_run
from neurotest.runs.store import Run
from neurotest.settings import TargetSettings, declared
from neurotest.settings.target import in_toml
from neurotest.target import Target
from neurotest.target.load import sha256
from neurotest.target.spec import TargetSpec, absolute, source_file

METHODS = ("oracle", "guide", "method", "judge")  # settings that may name a further network
# What may name anything, because nothing but the gate below opens it, or names files that are never run.
NAMES = ("target", "targets", "description", "descriptions", "code", "fingerprint", "fingerprints", "digests")


def target_config(*targets: Target) -> dict[str, Any]:
    """What a run's configuration says of its targets, the first in the singular."""
    first = targets[0]
    config: dict[str, Any] = {
        "target": first.spec, "fingerprint": first.fingerprint, "description": TargetSpec.of(first).plain(),
    }  # fmt: skip
    if len(targets) > 1:
        config |= {
            "targets": [target.spec for target in targets],
            "fingerprints": [target.fingerprint for target in targets],
            "descriptions": [TargetSpec.of(target).plain() for target in targets],
        }
    return config


def described(config: Mapping[str, Any], run: Path | None) -> list[str]:
    """The options that a target of one's own needs to be the one of this run; one of the zoo or of a repair needs none.

    run: where names of classes can be read; without one they are left out.
    """
    if str(config.get("target")).startswith(("zoo:", "run:")):
        return []
    description = vars(TargetSpec.read(config.get("description"), run or Path("the run")))
    values = {**description, "classes": str(run) if description["classes"] and run is not None else None}
    settings = declared(TargetSettings)
    return [word for name in in_toml() for word in settings[name].words(values[name])]  # --trust-pickle is for people to say


def stored_target(run: Run, target: AnyTarget | None = None) -> Target:
    """The target a run was made with, checked by its fingerprint. Of several the first, or the one that is named.

    What is said here (a spec, or a description of which only some is filled in) goes over what the run holds.
    """
    fingerprints, descriptions = _stored(run)
    named = target if isinstance(target, str) else target.spec if isinstance(target, TargetSpec) else None
    same = (one for one in descriptions if named is not None and one.spec == absolute(named))
    return _checked(run, _opened(run, next(same, descriptions[0]), target), fingerprints)


def stored_targets(run: Run, targets: Sequence[AnyTarget] = ()) -> list[Target]:
    """All targets of a run, in their order."""
    fingerprints, descriptions = _stored(run)
    if targets and len(targets) != len(descriptions):
        raise BadInput(
            "wrong-count",
            "targets",
            f"{run.path} was made with {len(descriptions)} targets, {len(targets)} were named: name all or none.",
        )
    named: Sequence[AnyTarget | None] = targets or [None] * len(descriptions)
    opened = [_opened(run, one, target) for one, target in zip(descriptions, named, strict=True)]
    return [_checked(run, target, [print_]) for target, print_ in zip(opened, fingerprints, strict=True)]


def stored_data(run: Run, source: AnyData) -> Source:
    """Data of a run, in the size and fitted as its target takes them; the target itself is not loaded."""
    _, (description, *_) = _stored(run)
    preprocess = Preprocess(**description.arguments("preprocess"))
    return data(source, shape=description.size, preprocess=preprocess)


def _stored(run: Run) -> tuple[list[Any], list[TargetSpec]]:
    """Fingerprints and descriptions; runs of the first versions hold specs only."""
    config = run["config"]
    if not isinstance(config, dict) or "target" not in config:
        raise BadInput("damaged", "target", f"{run.path} names no target: it is a run of {run['command']!r}, or damaged.")
    if not run.made_here:
        _refuse_named_code(run, config)
    elif config.get("code", {}) != (code := named_code(config)):
        raise BadInput(
            "changed",
            "code",
            f"{run.path} names code ({', '.join(sorted(code))}) that is not the file it was made with, or was made before its "
            "hash was kept: go back to the folder it was started in and bring the old file back, or start a new run.",
        )
    specs = config.get("targets") or [config["target"]]
    stored = config.get("descriptions") or [config.get("description") or {"spec": spec} for spec in specs]
    fingerprints = config.get("fingerprints") or [config.get("fingerprint")]
    if not isinstance(stored, list) or not isinstance(fingerprints, list) or len(stored) != len(fingerprints):
        raise BadInput("damaged", "target", f"{run.path} describes its targets in a way that does not fit: it is damaged.")
    return fingerprints, [TargetSpec.read(one, run.path) for one in stored]


def named_code(config: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """The further networks that oracles and other methods name, each with what it means here: the file and its hash."""
    sources = "|".join(sorted(registry.names("target source") - {"zoo", "timm", "torchvision"}))
    stored = [config.get(key) for key in METHODS] if isinstance(config, Mapping) else []
    specs = [spec.strip() for text in _texts(stored) for spec in text.split("+")]
    code: dict[str, list[str | None]] = {}
    for spec in specs:
        if re.fullmatch(rf"({sources}):.+", spec, re.DOTALL):
            file = source_file(spec)
            code[spec] = [absolute(spec), sha256(file) if file is not None and file.is_file() else None]
    return code


def _texts(value: Any) -> Iterator[str]:
    """Every text in a stored setting, also as a method's reader sees it: quotes and escapes taken off, options of options too."""
    if isinstance(value, str):
        yield value
        try:
            _, bare, options = registry.parse(value)
        except BadInput:
            return
        yield from _texts([*bare, *options.values()])
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _texts(one)
    elif dataclasses.is_dataclass(value):
        yield from _texts([getattr(value, field.name) for field in dataclasses.fields(value)])


def _refuse_named_code(run: Run, config: dict[str, Any]) -> None:
    """An oracle or another method may name a further network: in a run from elsewhere it must be one of the zoo."""
    sources = "|".join(sorted(registry.names("target source") - {"zoo"}))
    for key, value in config.items():
        if key not in NAMES and any(re.search(rf"\b({sources})\s*:", text) for text in _texts(value)):
            raise BadInput(
                "untrusted",
                key,
                f"{run.path} was made elsewhere and names the {key} {str(value)[:300]}, which could run code: start a new run.",
            )


def guarded(run: Run) -> AbstractContextManager[None]:
    """Around work with what a run holds: of what the methods of one from elsewhere name, only the zoo is opened."""
    return untrusted_run(None if run.made_here else str(run.path))


def _opened(run: Run, stored: TargetSpec, target: AnyTarget | None) -> Target:
    """A stored zoo: network is used; anything else could run code, and needs this user's own run or this user's word."""
    if isinstance(target, str):
        target = TargetSpec(spec=target)
    if target is not None and not isinstance(target, TargetSpec):
        return open_target(target)
    named = target or TargetSpec()
    _same_classes(run, stored, named)
    description = named.over(stored)
    if not run.made_here:
        if named.spec is None and not str(stored.spec).startswith("zoo:"):
            raise BadInput(
                "untrusted",
                "target",
                f"{run.path} was made elsewhere and names the target {stored.spec!r}, which could run code: name the target "
                "yourself with --target.",
            )
        if named.weights is None and stored.weights is not None:
            raise BadInput(
                "untrusted",
                "weights",
                f"{run.path} was made elsewhere, with the weights {stored.weights} (sha256 {str(stored.sha256)[:16]}): name "
                "the file yourself with --weights.",
            )
        description = TargetSpec(**{**vars(description), "code": None, "imports": None, "trust_pickle": named.trust_pickle})
    elif named.spec is None and stored.code is None and str(stored.spec).startswith("py:"):
        raise BadInput(
            "untrusted",
            "code",
            f"{run.path} was made before the hash of the code it runs was kept ({stored.spec}): name the target yourself with "
            "--target.",
        )
    with nullcontext() if named.spec is None else untrusted_run(None):  # what the user names may load what it likes
        return description.open()


def _same_classes(run: Run, stored: TargetSpec, named: TargetSpec) -> None:
    """Class names are no part of a fingerprint, but stored labels are numbers: other names would make them other classes."""
    names = stored.classes or (tuple(run["classes"] or ()) if "classes" in run else ())
    if named.classes is None or not names or named.classes == names:
        return
    pairs = list(zip(named.classes, names, strict=False))
    first = next((number for number, (ours, theirs) in enumerate(pairs) if ours != theirs), len(pairs))
    here, there = (f"{classes[first]!r}" if first < len(classes) else "missing" for classes in (named.classes, names))
    raise BadInput(
        "changed",
        "classes",
        f"--classes: class {first} is {here}, but {there} in {run.path}, which stays with its {len(names)} classes: "
        "leave it out.",
    )


def _checked(run: Run, target: Target, fingerprints: Sequence[Any]) -> Target:
    if target.fingerprint not in fingerprints:
        raise BadInput(
            "changed",
            "target",
            f"the target is not the one {run.path} was made with (fingerprint {target.fingerprint[:12]}, the run's is "
            f"{str(fingerprints[0])[:12]}): everything about a run is done on one and the same target. Say --weights, "
            "--mean, --std, --bounds or --outputs as they were, or start a new run for a changed network.",
        )
    return target
