"""The target: the network under test with everything needed to feed it and to read its answer."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from neurotest.checks import shown
from neurotest.devices import exact
from neurotest.errors import BadInput, NeurotestError
from neurotest.images import Preprocess
from neurotest.levels import levels_of
from neurotest.target import chunks
from neurotest.target.failures import ForwardError, failure, ours
from neurotest.target.layers import Survey
from neurotest.target.outputs import Outputs, as_logits, bins_of, check_end, check_values
from neurotest.target.speed import Layout, Precision, arranged, check_layout, check_precision, running
from neurotest.target.survey import survey

Reference = Callable[[Tensor, Callable[[Tensor], Any]], float]


class WeightsFile(NamedTuple):
    """The file that a target's weights were read from, and its hash at that time."""

    path: Path
    sha256: str


class Target:
    """A classifier under test.

    module: the network, in eval mode. bounds: the range its inputs live in, before preprocessing. mean, std: preprocessing,
    applied inside the target so that bounds, mutations and saved inputs never see it. shape: of one input. outputs: what
    the module returns: `logits` (n, k) or one logit (n, 1); `probs` (n, k); `sigmoid`, one probability (n, 1); `regression`, one
    value (n, 1) between the ends of `span`, whose `bins` equal parts are the classes, and that may be off by `tolerance` (a bin's
    width; 5% is of the span). layout, precision: `channels_last` and `bfloat16` may run faster, with other rounding. spec,
    weights, trust_pickle: where `load` found it. preprocess: how images of any size become its inputs. reference: for a converted
    network, compares `run(x)` with what the original answers, and refuses it if they differ.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        shape: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
        outputs: Outputs = "logits",
        span: Sequence[float] | None = None,
        bins: int | None = None,
        tolerance: float | str | None = None,
        layout: Layout | None = None,
        precision: Precision | None = None,
        spec: str = "",
        device: str | torch.device = "cpu",
        weights: WeightsFile | None = None,
        trust_pickle: bool = False,
        preprocess: Preprocess | None = None,
        reference: Reference | None = None,
    ) -> None:
        self.module = module.to(device)
        self.loaded = bool(spec)  # whether `load` can open it again by its spec
        self.weights = weights
        self.trust_pickle = trust_pickle
        self.preprocess = preprocess or Preprocess()
        self.reference = reference
        self.deviation: float | None = None  # from the reference, once it was compared with
        self.bounds = _bounds(bounds)
        self.shape = tuple(int(s) for s in shape) if shape else None
        self.classes = tuple(str(c) for c in classes) if classes else None
        self.outputs: Outputs = outputs
        self.spec = spec or f"a {type(module).__name__} in memory"
        self.device = torch.device(device)
        self.layout, self.precision = check_layout(layout), check_precision(precision, self.device)
        if self.layout is not None:
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.bins = bins_of(outputs, span, bins, tolerance)
        if self.bins is not None and self.classes is None:
            self.classes = self.bins.names
        if (mean is None) != (std is None):
            raise BadInput("conflict", "mean", "mean and std go together: give both or neither.")
        self.mean, self.std = _statistic("mean", mean, self.shape), _statistic("std", std, self.shape)
        if self.std is not None and not all(s > 0 for s in self.std):
            raise BadInput("out-of-range", "std", f"std={self.std}: expected values above 0.")
        self._shift = self._scale = None
        if self.mean is not None and self.std is not None:
            self._shift = torch.tensor(self.mean, device=self.device)
            self._scale = torch.tensor(self.std, device=self.device)
        self._surveys: dict[tuple[int, ...], Survey] = {}
        self._chunks: dict[tuple[int, ...], int] = {}
        self._replaced = False  # whether its module is another than `load` gives
        self._steady = False  # whether it was seen to answer equally to equal inputs

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape)) if self.shape else "?"
        return f"Target({self.spec}, size={size}, bounds={self.bounds}, outputs={self.outputs})"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of classes that somebody gave; those of bins follow from the span."""
        return None if self.bins is not None and self.classes == self.bins.names else self.classes

    @property
    def span(self) -> tuple[float, float] | None:
        """The range of the regression value, where it predicts one."""
        return None if self.bins is None else (self.bins.low, self.bins.high)

    @property
    def tolerance(self) -> float | None:
        """How far the regression value may be off, where it predicts one."""
        return None if self.bins is None else self.bins.tolerance

    def counted(self, logits: Tensor, expected: Tensor, truth: Tensor | None) -> Tensor:
        """(n,) the classes that answers count as beside the expected ones: the largest logit or, of a value whose truth (or
        answer for a seed) is there, the expected one as long as it is within the tolerance. -1 where a logit is no number."""
        if self.bins is not None and truth is not None:
            return self.bins.counted(logits, expected, truth)
        return torch.where(logits.isfinite().all(1), logits.argmax(1), -1)

    def holding(self, module: nn.Module) -> Target:
        """The same target around another module: weights of the same architecture."""
        twin = copy.copy(self)
        twin.module, twin._surveys, twin._chunks, twin._steady, twin.reference = module, {}, {}, False, None
        twin._replaced = True
        twin.__dict__.pop("fingerprint", None)
        return twin

    def __reduce_for_worker__(self) -> tuple[Any, ...]:
        """To a worker it travels as its description; a network that only this process has travels itself."""
        from neurotest.target.spec import reduced

        return reduced(self)

    def check_mode(self) -> None:
        """Refuse a network in training mode: dropout and batch statistics would make every number random."""
        training = next((name for name, m in self.module.named_modules() if m.training), None)
        if training is not None:
            message = (
                f"the network is in training mode{f' (module {training!r})' if training else ''}: call .eval() on it first "
                "(before it is exported, if it is a .pt2)."
            )
            raise BadInput("unsuitable", "training", message)

    # -- running it

    def prepare(self, x: np.ndarray) -> Tensor:
        """What a source gives (uint8, int16, or float in bounds) as the float tensor the target is tested on: (n, *shape)."""
        low, high = self.bounds
        tensor = torch.from_numpy(x)
        if (levels := levels_of(x.dtype)) is not None:
            tensor = levels.unit(tensor.to(self.device))
            return tensor if (low, high) == (0.0, 1.0) else tensor.mul_(high - low).add_(low)
        if tensor.numel():
            least, most = (float(v) for v in torch.aminmax(tensor))
            slack = 1e-6 * (high - low)
            if not (least >= low - slack and most <= high + slack):
                reach = f"inputs reach from {least:g} to {most:g}, outside bounds {low:g} to {high:g}"
                eight_bit = (low, high) == (0.0, 1.0) and least >= 0 and 1 < most <= 255
                hint = "8-bit values in floating point? Divide them by 255 or" if eight_bit else "rescale or"
                raise BadInput("out-of-range", "bounds", f"{reach}: {hint} pass --bounds{' 0 255' if eight_bit else ''}.")
        return tensor.float().to(self.device)

    def logits(self, x: Tensor, *, parts: bool = True) -> Tensor:
        """Forward a batch in bounds: (n, *shape) -> (n, classes), whatever the module's outputs are. parts: as `raw` may."""
        return self._as_logits(self.raw(x) if parts else self._whole(x), len(x))

    def raw(self, x: Tensor) -> Any:
        """What the module itself answers to a batch in bounds, preprocessing applied; a large batch runs in parts."""
        if x.numel() > chunks.LARGE_BATCH and not torch.is_grad_enabled() and (most := self.chunk(x)) < len(x):
            parts = [self._whole(part) for part in chunks.even(x, most)]
            if all(isinstance(part, Tensor) and part.ndim for part in parts):
                return torch.cat(parts)
        return self._whole(x)

    def chunk(self, x: Tensor) -> int:
        """How many inputs like these run at once, so that what a layer takes and gives stays small beside the memory."""
        size = tuple(x.shape[1:])
        if size not in self._chunks:
            self._chunks[size] = len(x) + 2  # while the layers are looked at
            try:
                copies = chunks.COPIES if self.layout is None else 1
                self._chunks[size] = chunks.chunk(self.survey(size).everything, copies=copies)
            except NeurotestError:
                self._chunks[size] = 1 << 62  # whoever runs it will learn why it has no layers
        return self._chunks[size]

    def graph(self, x: Tensor) -> int:
        """How many inputs like these may have their gradients taken at once; all, unless they are large."""
        if x.numel() <= chunks.LARGE_BATCH:
            return max(1, len(x))
        return chunks.graph(self.survey(tuple(x.shape[1:])).everything)

    def _whole(self, x: Tensor) -> Any:
        prepared = arranged(self._preprocessed(x), self.layout)
        try:
            if self.precision is None:
                return self.module(prepared)
            with running(self.precision, self.device):
                out = self.module(prepared)
            return out.float() if isinstance(out, Tensor) and out.is_floating_point() else out
        except (Exception, SystemExit) as error:  # a stranger's code may raise anything
            if isinstance(error, BadInput) or ours(error):
                raise
            raise ForwardError("failed", "network", failure(error, x)) from error

    def _preprocessed(self, x: Tensor) -> Tensor:
        if self._shift is None or self._scale is None:
            return x
        if len(self._shift) not in (1, x.shape[1]):  # would broadcast a grey image into a colour one
            raise BadInput("wrong-count", "mean", f"mean and std: {len(self._shift)} values for {x.shape[1]} channels.")
        places = (-1,) + (1,) * (x.ndim - 2)
        return (x - self._shift.view(places)).div_(self._scale.view(places))

    def _as_logits(self, out: Any, n: int) -> Tensor:
        return as_logits(out, n, self.outputs, self.bins)

    def check_outputs(self, x: Tensor) -> int:
        """Run a few inputs once, refuse outputs that are not what the description says; returns the number of classes."""
        self.check_mode()
        with torch.inference_mode():
            try:
                raw = self.raw(x)
            except ForwardError as error:
                raise BadInput("failed", "network", self._refusal(x, error)) from error
            logits = self._as_logits(raw, len(x))
        check_values(raw, self.outputs)
        if self.outputs == "logits" and bool(((raw >= 0) & (raw <= 1)).all()):
            check_end(lambda: self.raw(x), raw[0].numel())
        if self.classes is not None and len(self.classes) != logits.shape[1]:
            counts = f"{len(self.classes)} names for a network with {logits.shape[1]} outputs"
            message = f"classes: {counts}: --classes FILE has one line per output, in the network's order."
            raise BadInput("wrong-count", "classes", message)
        return int(logits.shape[1])

    def check_reference(self, x: Tensor) -> None:
        """Refuse a converted network that answers otherwise than its original. Looks once."""
        if self.reference is not None and self.deviation is None:
            self.deviation = self.reference(self._preprocessed(x), self.module)

    def check_steady(self, x: Tensor) -> None:
        """Refuse a network that answers differently to the same inputs: nothing measured on it would repeat. Looks once."""
        if self._steady:
            return
        with torch.inference_mode():
            one, other = exact(self.logits(x)), exact(self.logits(x))
        size = float(one.nan_to_num(0, 0, 0).abs().max()) if one.numel() else 0.0
        if not torch.allclose(one, other, rtol=0, atol=max(1e-3 * size, 1e-12), equal_nan=True):
            message = (
                "the network gives different answers to the same inputs, so nothing measured on it repeats: it draws at random "
                "or keeps a state (dropout left on? F.dropout needs training=self.training). `neurotest doctor` says where."
            )
            raise BadInput("unsuitable", "steady", message)
        self._steady = True

    def _refusal(self, x: Tensor, error: Exception) -> str:
        size = "x".join(map(str, x.shape[1:]))
        first = str(error)
        why = "channels x height x width; --size says what it takes"
        if len(x.shape) == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
            why = "the channels seem to come last: write npz:FILE#x,y,nhwc or save x.transpose(0, 3, 1, 2)"
        if any(isinstance(m, nn.Embedding) for m in self.module.modules()):
            why = (
                "it has an embedding, so it takes numbers of tokens: text models are not supported; test the part after the "
                "embedding, wrapped in a module that takes its vectors"
            )
        return f"the network does not take inputs of size {size} ({why}): {first}"

    # -- knowing it

    def survey(self, shape: Sequence[int] | None = None) -> Survey:
        """The layers that run, from one watched forward pass on noise of the given (or the target's) shape."""
        wanted = tuple(shape) if shape else self.shape
        if wanted is None:
            message = "the size of the network's inputs is unknown: pass --size, for example --size 3x32x32."
            raise BadInput("missing", "size", message)
        if wanted not in self._surveys:
            low, high = self.bounds
            noise = torch.rand((2, *wanted), generator=torch.Generator().manual_seed(0))
            x = (noise * (high - low) + low).to(self.device)
            self.check_outputs(x)
            self._surveys[wanted] = survey(self.module, lambda: self.raw(x))
        return self._surveys[wanted]

    def plain(self) -> Target:
        """The same network in float32 and the usual layout, to compare with."""
        twin = copy.copy(self)
        twin.layout = twin.precision = None
        return twin

    @cached_property
    def fingerprint(self) -> str:
        """A hash of weights, architecture and preprocessing: equal targets agree, any change differs."""
        seen = hashlib.blake2b(digest_size=16)
        # What most targets do not have is left out of theirs, so that these stay what they were.
        unusual = [one for one in (self.bins, self.precision) if one is not None]
        seen.update(repr((str(self.module), self.bounds, self.mean, self.std, self.outputs, *unusual)).encode())
        for module in {type(m): None for m in self.module.modules()}:
            if not module.__module__.startswith("torch."):
                seen.update(repr((module.__qualname__, _code_words(module.forward))).encode())
        for path, part in self.module.named_modules():
            seen.update(repr((path, _settings(part))).encode())
        both = self.module.named_parameters(remove_duplicate=False), self.module.named_buffers(remove_duplicate=False)
        for name, tensor in itertools.chain(*both):  # also buffers that are not saved
            seen.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            seen.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return seen.hexdigest()


def _code_words(function: Any) -> tuple[Any, ...]:
    """Names and constants of a function, those of functions inside it too: they tell F.relu from F.gelu."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    return () if code is None else _words(code, function.__doc__)


def _words(code: CodeType, doc: str | None = None) -> tuple[Any, ...]:
    plain = (c for c in code.co_consts if isinstance(c, (int, float, str, tuple)) and c != doc)
    inner = (_words(c) for c in code.co_consts if isinstance(c, CodeType))
    return (code.co_names, *plain, *inner)


def _settings(module: nn.Module) -> list[Any]:
    """What a module keeps beside weights, and its repr need not show: numbers, words, and functions such as its activation."""
    settings: list[Any] = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, (bool, int, float, str)):
            settings.append((name, value))
        elif inspect.isroutine(value):
            settings.append((name, value.__qualname__, _code_words(value)))
        elif isinstance(value, torch.fx.Graph):  # an exported module's code
            settings.append((name, str(value)))
    return settings


def _bounds(bounds: Sequence[float]) -> tuple[float, float]:
    try:
        values = tuple(float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        values = ()
    if len(values) != 2 or not values[0] < values[1] or not np.isfinite(values).all():
        message = f"bounds={shown(bounds)}: expected two finite numbers, the lower first, for example 0 1."
        raise BadInput("out-of-range", "bounds", message)
    return values[0], values[1]


def _statistic(name: str, values: float | Sequence[float] | None, shape: tuple[int, ...] | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    try:
        numbers = tuple(float(v) for v in ([values] if isinstance(values, (str, int, float)) else values))
    except (TypeError, ValueError, OverflowError):
        message = f"{name}={shown(values)}: expected a number for all channels, or one for each."
        raise BadInput("wrong-type", name, message) from None
    if shape is not None and len(numbers) not in (1, shape[0]):
        raise BadInput("wrong-count", name, f"{name}: {len(numbers)} values for {shape[0]} channels.")
    return numbers
