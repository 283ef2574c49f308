"""`pt2:FILE`: networks saved with `torch.export.save`, with their module tree."""

from __future__ import annotations

import json
import logging
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._python_dispatch import TorchDispatchMode

from neurotest import registry
from neurotest.errors import BadInput
from neurotest.memory import free_memory
from neurotest.reading import user_path
from neurotest.target import parts, program
from neurotest.target.archive import CONSTANTS, GRAPH, WEIGHTS, Archive, Malformed, Refused
from neurotest.target.rehearsal import rehearse_apart
from neurotest.target.target import Target

ONE_TENSOR = "neurotest tests networks that take one tensor of inputs."
DYNAMIC = "torch.export.export(model.eval(), (x,), dynamic_shapes=({0: torch.export.Dim('batch')},))"
MOST_VALUES, MOST_OPERATORS = 1 << 28, 1_000_000  # of one tensor, for two inputs; of one pass
# Operators that draw or average over the batch when a network is exported in training mode, and where they say so.
_TRAINING = {"dropout": 2, "native_dropout": 2, "batch_norm": 5, "feature_dropout": 2, "alpha_dropout": 2, "instance_norm": 5}


@registry.register(
    "target source", "pt2", paper="", cost="reads the archive; the first time, runs the network in a process of its own"
)
def _from_pt2(place: str, *, trust_pickle: bool = False) -> Target:
    """`pt2:FILE`: a network saved with `torch.export.save`, with a dynamic batch; read without running anything in it.

    Layers carry the names they had in the exported module. An archive with more than tensors and known operators is
    refused unless `--trust-pickle` says that torch may open it.
    """
    path = user_path(place, f"pt2:{place}")
    if not path.is_file():
        raise BadInput("not-found", "target", f"pt2:{place}: there is no such file.")
    try:
        network, sizes, training = _read(path)
    except program.Inputs as error:
        raise BadInput("unsupported", "inputs", f"pt2:{place} takes {error} inputs; {ONE_TENSOR}") from error
    except program.Outputs as error:
        message = f"pt2:{place} returns {error}; wrap it in a module that returns logits (n, classes)."
        raise BadInput("unsupported", "outputs", message) from error
    except (Refused, Malformed) as error:
        if not trust_pickle:
            raise BadInput("unsupported", "target", _refusal(path, error)) from error
        network, sizes, training = _trusted(path)
    shape = input_shape(f"pt2:{place}", sizes, DYNAMIC)
    if isinstance(network, parts.Exported):
        check = partial(rehearse, network, place, trusted=trust_pickle)
        if shape is not None:
            check(shape)
        network._exported_check = check
    for part in network.modules():
        part.training = False  # an exported module's flag is no more than that; what counts stands in the graph
    network.training = training
    return Target(network, shape=shape)


def _read(path: Path) -> tuple[nn.Module, tuple[int | None, ...], bool]:
    """The network, the sizes of its input, and whether it does what only training should do; nothing in the file is run."""
    try:
        with closing(Archive(path)) as archive:
            content = program.read(archive.json(GRAPH))
            tensors = archive.tensors(WEIGHTS) | archive.tensors(CONSTANTS)
        network = parts.build(content, tensors)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, json.JSONDecodeError) as error:
        raise Malformed(f"{type(error).__name__}: {_first(error)}") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"its text is no UTF-8: {_first(error)}") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError) as error:
        message = f"pt2:{path} cannot be read ({_first(error)}): damaged, or no archive of torch.export.save."
        raise BadInput("damaged", "target", message) from error
    return network, content.sizes, any(_trains(node.function, node.args, node.kwargs) for node in content.nodes)


def _refusal(path: Path, error: Exception) -> str:
    if isinstance(error, Malformed):
        return f"pt2:{path} has an unknown layout ({_first(error)}): export it again."
    return (
        f"pt2:{path} is refused because {error}; torch would have to open it, and an archive that torch opens could run code. "
        "If you made this file yourself or trust whoever did, pass --trust-pickle."
    )


def _trains(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call in an exported graph does what only training should do."""
    schema = getattr(function, "_schema", None)
    place = _TRAINING.get(schema.name.split("::")[-1].rstrip("_")) if schema is not None else None
    if schema is None or place is None:
        return False
    if "instance_norm" in schema.name and (len(args) < 4 or args[3] is None):
        return False  # statistics of each input by itself, in eval mode too
    return bool(args[place] if len(args) > place else kwargs.get(schema.arguments[place].name, True))


def _trusted(path: Path) -> tuple[nn.Module, tuple[int | None, ...], bool]:
    """The same by torch's own loader, which runs what is in the file."""
    try:
        with _quiet():
            exported = torch.export.load(path)
            network = torch.export.unflatten(exported)
    except Exception as error:  # a graph from another torch fails wherever its meaning changed
        message = f"pt2:{path} cannot be loaded by torch {torch.__version__}: {_first(error)}. Export it again with this version."
        raise BadInput("unreadable", "target", message) from error
    training = any(_trains(node.target, node.args, node.kwargs) for node in exported.graph.nodes)
    return network, _sizes(exported, path), training


def _sizes(exported: ExportedProgram, path: Path) -> tuple[int | None, ...]:
    names = exported.graph_signature.user_inputs
    values = [node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(values) != 1 or not isinstance(values[0], Tensor):
        raise BadInput("unsupported", "inputs", f"pt2:{path} takes {len(values)} inputs; {ONE_TENSOR}")
    return tuple(size if isinstance(size, int) else None for size in values[0].shape)  # a size that may vary is a SymInt


def input_shape(spec: str, sizes: Sequence[int | None], export: str) -> tuple[int, ...] | None:
    """The size of one input; None where it may vary. export: what exports the network with a dynamic batch."""
    if not sizes:
        raise BadInput("unsupported", "shape", f"{spec} takes a single number; {ONE_TENSOR}")
    batch, *rest = sizes
    if batch is not None:
        message = f"{spec} was exported for batches of exactly {batch}: export it again with a dynamic batch: {export}"
        raise BadInput("unsupported", "batch", message)
    fixed = tuple(size for size in rest if size is not None)
    return fixed if len(fixed) == len(rest) else None


class _Sizes(TorchDispatchMode):
    """Stops a rehearsal that would need more memory or time than any classifier does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.bytes, self.most = 0, 0, free_memory()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.count += 1
        if func._schema.name.startswith(("aten::split", "aten::unbind", "aten::unsafe_split")) and _pieces(*args) > 100_000:
            raise Malformed("it cuts a tensor into more pieces than can be right")
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self.bytes += 0 if tensor._is_view() else tensor.numel() * tensor.element_size()
                if tensor.numel() > MOST_VALUES or self.bytes > self.most:
                    raise Malformed(f"{func} gives a tensor of {tuple(tensor.shape)} for two inputs: more than can be right")
        if self.count > MOST_OPERATORS:
            raise Malformed(f"it runs more than {MOST_OPERATORS} operators")
        return result


def _pieces(tensor: Any, size: Any = 0, dim: int = 0, *_: Any) -> float:
    """How many tensors a split or unbind returns, at most."""
    if isinstance(size, (list, tuple)):
        return len(size)
    return float(max(tensor.shape, default=0) / max(1, size if isinstance(dim, int) else 1))


def rehearse(network: parts.Exported, place: str, shape: tuple[int, ...], source: str = "pt2", *, trusted: bool = False) -> None:
    """Run the network before it is used: if nobody trusts the file, in a process of its own; then here, without values.

    What would end the process, sizes that do not fit, and those that no memory holds, are noticed before anything is at stake.
    """
    try:
        if math.prod(shape) > MOST_VALUES:
            raise Malformed(f"it takes inputs of size {shape}")
        if not trusted:
            rehearse_apart(network, f"{source}:{place}", shape)
        rehearse_sizes(network, shape)
    except BadInput:
        raise
    except Exception as error:  # an operator may complain in any way about what it is given
        message = f"{source}:{place} does not run on inputs of size {'x'.join(map(str, shape))}: {_first(error)}"
        raise BadInput("failed", "size", message) from error


def rehearse_sizes(network: parts.Exported, shape: tuple[int, ...]) -> None:
    """Run the network without values."""
    with _Sizes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.rehearse(torch.empty((2, *shape), device="meta"))


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


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
