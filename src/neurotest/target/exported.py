"""`pt2:FILE`: networks saved with `torch.export.save`, with their module tree."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.reading import user_path
from neurotest.target.archive import checked
from neurotest.target.target import Target

DYNAMIC = "torch.export.export(model.eval(), (x,), dynamic_shapes=({0: torch.export.Dim('batch')},))"
# Operators that draw or average over the batch when a network is exported in training mode, and where they say so.
_TRAINING = {"dropout": 2, "native_dropout": 2, "batch_norm": 5, "feature_dropout": 2, "alpha_dropout": 2, "instance_norm": 5}


@registry.register("target source", "pt2", paper="", cost="reads the archive twice: once to check it, once to load it")
def from_pt2(place: str, *, trust_pickle: bool = False) -> Target:
    """`pt2:FILE`: a network saved with `torch.export.save`, with a dynamic batch; checked before it is opened.

    Layers carry the names they had in the exported module. An archive that could run code is refused unless
    `--trust-pickle` says that it may.
    """
    path = user_path(place, f"pt2:{place}")
    if not path.is_file():
        raise BadInput(f"pt2:{place}: there is no such file.")
    program, module = _open(path, path if trust_pickle else checked(path))
    shape = _shape(program, place)
    for part in module.modules():
        part.training = False  # an exported module's flag is no more than that; what counts stands in the graph
    module.training = any(trains(node) for node in program.graph.nodes)
    return Target(module, shape=shape)


def trains(node: Any) -> bool:
    """Whether a node of an exported graph does what only training should do."""
    name = getattr(getattr(node.target, "_schema", None), "name", "").split("::")[-1].rstrip("_")
    place = _TRAINING.get(name)
    if place is None:
        return False
    schema = node.target._schema.arguments[place].name
    flag = node.args[place] if len(node.args) > place else node.kwargs.get(schema, True)
    return bool(flag)


def _open(path: Path, archive: Path | io.BytesIO) -> tuple[ExportedProgram, nn.Module]:
    try:
        with _quiet():
            program = torch.export.load(archive)
            return program, torch.export.unflatten(program)
    except Exception as error:  # a graph from another torch fails wherever its meaning changed
        first = str(error).strip().splitlines()
        raise BadInput(
            f"pt2:{path} cannot be loaded by torch {torch.__version__}: {first[0] if first else type(error).__name__}. "
            "Export it again with this version."
        ) from error


def _shape(program: ExportedProgram, place: str) -> tuple[int, ...] | None:
    """The size of one input; None where it may vary. Refuses what cannot be fed one batch of images."""
    names = program.graph_signature.user_inputs
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(values) != 1 or not isinstance(values[0], Tensor) or not values[0].ndim:
        raise BadInput(f"pt2:{place} takes {len(values)} inputs; neurotest tests networks that take one tensor of inputs.")
    sizes: tuple[Any, ...] = tuple(values[0].shape)  # a size that may vary is a SymInt
    batch, *rest = sizes
    if isinstance(batch, int):
        raise BadInput(
            f"pt2:{place} was exported for batches of exactly {batch}: export it again with a dynamic batch: {DYNAMIC}"
        )
    return tuple(rest) if all(isinstance(size, int) for size in rest) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns and logs about its own internals here."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
