"""The probe: the only place that registers hooks. It runs a target on a batch and returns a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from neurotest.devices import exact
from neurotest.errors import BadInput
from neurotest.target import chunks
from neurotest.target.functions import Functions
from neurotest.target.layers import SAMPLE, mean_from_input

if TYPE_CHECKING:
    from neurotest.target.layers import Layer
    from neurotest.target.target import Target

Values = dict[str, Tensor]
Edit = Callable[[str, Tensor], Tensor]
Keep = Callable[[Tensor], Tensor]
NO_PROBABILITIES = (
    "it needs class probabilities, and the target predicts a regression value: use disagreement (with --train DATA), or another "
    "method that looks at hidden neurons, such as nearest, nss, dsa or neighbours."
)
Record = Callable[[str, Tensor], Tensor]


class _Recording(NamedTuple):
    """What to record: of which layer, for which want (by number), its input or its output, and how.

    `keep` takes what is recorded, or, for an output that is `from_input`, what the layer got.
    """

    layer: Layer
    slot: int
    inputs: bool
    keep: Keep
    from_input: bool = False


@dataclass(frozen=True, kw_only=True)
class Want:
    """What somebody wants recorded: which layers, what a neuron is, reduced values or whole maps, outputs or inputs.

    `layers` is a preset (`pre_activation`, `post_activation`, `features`, `last_hidden`) or globs over layer names. A neuron is a
    `channel`, a `unit`, or one of a `sample` of each layer's units, which bounds what is recorded of large maps.
    """

    layers: str = "pre_activation"
    neuron: Literal["channel", "unit", "sample"] = "channel"
    keep: Literal["reduced", "map"] = "reduced"
    inputs: bool = False

    def __post_init__(self) -> None:
        if self.neuron not in ("channel", "unit", "sample"):
            kinds = f"channel (one value per feature map), unit (every element) or sample ({SAMPLE:,} units of each layer)"
            raise BadInput("out-of-range", "neuron", f"neuron={self.neuron!r}: expected {kinds}.")
        if self.keep not in ("reduced", "map"):
            raise BadInput("out-of-range", "keep", f"keep={self.keep!r}: expected reduced or map.")
        object.__setattr__(self, "_hash", hash((self.layers, self.neuron, self.keep, self.inputs)))

    def __hash__(self) -> int:  # wants key every trace: hashing four fields each time would be felt at batch 1
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:  # hashes of text differ from process to process
        return partial(Want, layers=self.layers, neuron=self.neuron, keep=self.keep, inputs=self.inputs), ()


class Trace:
    """What the network did on a batch: logits and, per want, one value per neuron and layer."""

    def __init__(self, logits: Tensor, recorded: Mapping[Want, Values] | None = None, *, quantity: bool = False) -> None:
        self.logits = logits  # (n, classes)
        self.quantity = quantity  # the classes are bins of what the network predicts
        self.recorded: Mapping[Want, Values] = {} if recorded is None else recorded

    def __getitem__(self, want: Want) -> Values:
        return self.recorded[want]

    @property
    def values(self) -> Values:
        """The recorded layers when there was exactly one want."""
        (only,) = self.recorded.values()
        return only

    @cached_property
    def probs(self) -> Tensor:
        """Softmax in float64: in float32 it saturates at 1 and makes ties."""
        if self.quantity:
            raise BadInput("unsuitable", "outputs", NO_PROBABILITIES)
        return exact(self.logits).softmax(dim=1)

    @cached_property
    def predictions(self) -> Tensor:
        return self.logits.argmax(dim=1)


def reducer(want: Want, axis: int, ndim: int) -> Keep:
    """How a want turns a layer's tensor, whose channels lie on `axis`, into (n, neurons)."""
    if want.keep == "map":
        return torch.clone
    if ndim == 1:  # one number per input
        return lambda tensor: tensor.unsqueeze(1).clone()
    if want.neuron != "channel":
        return lambda tensor: tensor.flatten(1).clone()
    others = tuple(d for d in range(1, ndim) if d != axis)
    if not others:
        return torch.clone
    return lambda tensor: tensor.mean(others)


def first_tensor(value: Any) -> Tensor | None:
    """The tensor of a call's arguments or output; modules such as attention give tuples, the first is meant."""
    while isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, Tensor) else None


class Probe:
    """Runs a target with the wanted layers recorded (none: logits only); a context manager, every hook is gone afterwards.

    Modules are recorded by hooks, functions by a torch-function mode that is active only if a wanted layer is a function.
    Five switches: `keep` and `inputs` (in each `Want`), `grad=True` keeps the graph (recorded maps are part of it),
    `edit(layer, tensor)` replaces a recorded layer's output before the network goes on, `record(layer, tensor)` says what is
    recorded in place of the tensor (of maps only; it must not keep the tensor, which may be overwritten).
    """

    def __init__(
        self, target: Target, *wants: Want, grad: bool = False, edit: Edit | None = None, record: Record | None = None
    ) -> None:
        self.target, self.wants = target, tuple(dict.fromkeys(wants))
        self.grad, self.edit, self.record = grad, edit, record
        if edit is not None and all(want.inputs for want in self.wants):
            message = "edit replaces outputs of recorded layers, but no want records outputs: add one with inputs=False."
            raise BadInput("missing", "edit", message)
        self._attached = ExitStack()  # every hook
        self._slots: list[Values] = [{} for _ in self.wants]  # new for every batch
        self._mode = torch.enable_grad() if grad else torch.inference_mode()
        self._calls: dict[str, int] = {}
        self._recordings: dict[str, list[_Recording]] = {}  # of functions, by layer
        self._functions: Functions | None = None

    def __enter__(self) -> Probe:
        self.target.check_mode()
        with ExitStack() as attached:
            self._attached = attached
            modules, self._recordings = self._plan()
            self._functions = self._watch_functions() if self._recordings else None
            for module, recordings in modules.items():
                self._attach(module, recordings)
            self._attached = attached.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._attached.close()

    def layers(self, want: Want) -> tuple[Layer, ...]:
        """The layers a want stands for, in the order in which they run."""
        return self.target.survey().find(want.layers)

    def _plan(self) -> tuple[dict[str, list[_Recording]], dict[str, list[_Recording]]]:
        """The recordings by module, and those of functions by layer."""
        modules: dict[str, list[_Recording]] = {}
        functions: dict[str, list[_Recording]] = {}
        for slot, want in enumerate(self.wants):
            for layer in self.layers(want):
                shape, axis = (layer.input_shape, layer.input_axis) if want.inputs else (layer.shape, layer.axis)
                mean = self._mean_from_input(want, layer)
                keep = mean or self._keep(want, layer, axis, len(shape) + 1)
                recording = _Recording(layer, slot, want.inputs, keep, from_input=mean is not None)
                recordings = functions.setdefault(layer.name, []) if layer.function else modules.setdefault(layer.module, [])
                recordings.append(recording)
        return modules, functions

    def _mean_from_input(self, want: Want, layer: Layer) -> Keep | None:
        """How the means of a layer's maps follow from its input, if they may be taken from there."""
        means = want.neuron == "channel" and want.keep == "reduced" and not want.inputs and not layer.function
        changed = self.grad or self.edit is not None or self.record is not None or self.target.precision is not None
        if not means or changed:
            return None
        return mean_from_input(self.target.module.get_submodule(layer.module), layer)

    def _keep(self, want: Want, layer: Layer, axis: int, ndim: int) -> Keep:
        if self.record is not None:
            return partial(self.record, layer.name)
        reduce = self._reducer(want, layer, axis, ndim)
        if self.target.precision is not None:
            return lambda tensor: reduce(tensor.float())  # read in the usual precision: nobody else has to know
        overwritten = layer.input_overwritten if want.inputs else layer.overwritten
        if self.grad and want.keep == "map" and not (want.inputs and overwritten):
            return _same  # the tensor of the graph itself, so that gradients of the logits towards it can be taken
        if overwritten or self.grad or self.edit is not None:
            return reduce
        # Nobody writes into this tensor after the hook, so a view will do: half the cost of the hook at batch 1.
        if reduce is torch.clone:
            return _same
        if want.keep == "reduced" and want.neuron == "unit" and ndim > 1:
            return _flat
        return reduce

    def _reducer(self, want: Want, layer: Layer, axis: int, ndim: int) -> Keep:
        units = layer.sample(inputs=want.inputs) if want.neuron == "sample" and want.keep == "reduced" else None
        if units is None:
            return reducer(want, axis, ndim)
        chosen = torch.from_numpy(units).to(self.target.device)
        return lambda tensor: tensor.flatten(1).index_select(1, chosen)

    def _attach(self, module: str, recordings: list[_Recording]) -> None:
        """Inputs are recorded before the module runs, because it may overwrite them; outputs after."""
        hooked = self.target.module.get_submodule(module)
        before, after = ([recording for recording in recordings if recording.inputs is side] for side in (True, False))
        once = self.target.survey().calls[module] == 1
        if before:
            hook = self._simple_before(before[0]) if once and len(before) == 1 else self._before(module, before)
            self._attached.callback(hooked.register_forward_pre_hook(self._unseen(hook)).remove)
        if after:
            simple = once and len(after) == 1 and self.edit is None and not self._copied(after[0])
            record = self._simple_after(after[0]) if simple else self._after(module, after)
            self._attached.callback(hooked.register_forward_hook(self._unseen(record)).remove)

    def _unseen(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        hook = hook if self._functions is None else self._functions.unseen(hook)
        hook.only_reads = self.edit is None  # type: ignore[attr-defined]  # for another probe on the same layer
        return hook

    def _watch_functions(self) -> Functions:
        """The mode that runs wanted functions through `_function`; hooks keep count of the running modules."""
        names = {recordings[0].layer.function for recordings in self._recordings.values()}
        functions = Functions(self.target.module, self._function, names)
        hooks = watched(self.target.module, lambda path, _: functions.enter(path), lambda *_: functions.leave())
        self._attached.enter_context(hooks)
        return functions

    def _function(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of the network, recorded and edited as its recordings ask."""
        recordings = self._recordings.get(name, [])
        source = first_tensor(args or tuple(kwargs.values()))
        for recording in recordings:
            if recording.inputs:
                self._slots[recording.slot][name] = recording.keep(_need(source, name))
        after = [recording for recording in recordings if not recording.inputs]
        if not after or source is None or not after[0].layer.in_place or not (self.grad or self.edit is not None):
            return self._outputs(name, after, function(*args, **kwargs))
        # The network may go on with the tensor that the function writes into and not with what it returns: so it runs on a copy,
        # which also keeps the graph's own values from being overwritten, and the tensor gets the result.
        args, kwargs = ((source.clone(), *args[1:]), kwargs) if args else ((), {**kwargs, next(iter(kwargs)): source.clone()})
        return source.copy_(self._outputs(name, after, function(*args, **kwargs)))

    # The simple hooks serve the usual case, one want and one call per forward pass, at half the cost of the general ones.

    def _simple_before(self, recording: _Recording) -> Callable[[nn.Module, Any], None]:
        slots, slot, name, keep = self._slots, recording.slot, recording.layer.name, recording.keep

        def hook(_: nn.Module, args: Any) -> None:
            slots[slot][name] = keep(_need(args, name))

        return hook

    def _simple_after(self, recording: _Recording) -> Callable[[nn.Module, Any, Any], None]:
        slots, slot, name, keep = self._slots, recording.slot, recording.layer.name, recording.keep

        def hook(_: nn.Module, args: Any, output: Any) -> None:
            slots[slot][name] = keep(output if type(output) is Tensor else _need(output, name))

        def hook_from_input(_: nn.Module, args: Any, output: Any) -> None:
            slots[slot][name] = keep(args[0])

        return hook_from_input if recording.from_input else hook

    def _before(self, module: str, recordings: list[_Recording]) -> Callable[[nn.Module, Any], None]:
        def hook(_: nn.Module, args: Any) -> None:
            for recording in self._due(f"{module}<", recordings):
                self._slots[recording.slot][recording.layer.name] = recording.keep(_need(args, recording.layer.name))

        return hook

    def _after(self, module: str, recordings: list[_Recording]) -> Callable[[nn.Module, Any, Any], Any]:
        return lambda _, args, output: self._outputs(module, self._due(module, recordings), output, args)

    def _outputs(self, name: str, recordings: list[_Recording], output: Any, args: Any = ()) -> Any:
        """Edit and record the output of a module or function; what the network goes on with."""
        if self.edit is not None and recordings:
            output = _replace(output, self.edit(recordings[0].layer.name, _need(output, name)))
        for recording in recordings:
            self._slots[recording.slot][recording.layer.name] = recording.keep(
                _need(args if recording.from_input else output, recording.layer.name)
            )
        if recordings and self._copied(recordings[0]):
            return _replace(output, _need(output, name).clone())  # what follows may overwrite this one, not the recorded
        return output

    def _copied(self, recording: _Recording) -> bool:
        """Whether the network goes on with a copy: it overwrites what is recorded, and gradients of that are wanted."""
        return self.grad and self.record is None and recording.layer.overwritten

    def _due(self, counter: str, recordings: list[_Recording]) -> list[_Recording]:
        """The recordings that ask for this call of the module."""
        call = self._calls.get(counter, 0)
        self._calls[counter] = call + 1
        return [recording for recording in recordings if recording.layer.call == call]

    def __call__(self, x: Tensor) -> Trace:
        """Forward a batch that lies in the target's bounds, a large one in parts: (n, *shape) -> trace."""
        if x.numel() <= chunks.LARGE_BATCH or self.grad or self.edit is not None or self.record is not None:
            return self._forward(x)
        parts = [self._forward(part) for part in chunks.even(x, self.target.chunk(x))]
        if len(parts) == 1:
            return parts[0]
        recorded = {
            want: {layer: torch.cat([part[want][layer] for part in parts]) for layer in parts[0][want]} for want in self.wants
        }
        return Trace(torch.cat([part.logits for part in parts]), recorded, quantity=parts[0].quantity)

    def _forward(self, x: Tensor) -> Trace:
        self._calls.clear()
        if self._functions is None:
            with self._mode:
                logits = self.target.logits(x, parts=False)
        else:
            self._functions.begin()
            with self._mode, self._functions:
                logits = self.target.logits(x, parts=False)
            self._check_counts(self._functions.counts)
        recorded = dict(zip(self.wants, self._slots, strict=True))
        self._slots[:] = [{} for _ in self.wants]  # should somebody else run the network now, this trace stays what it is
        return Trace(logits, recorded, quantity=self.target.bins is not None)

    def _check_counts(self, counts: Mapping[str, int]) -> None:
        """Refuse a pass in which other functions ran than in the survey: their layers would be mixed up."""
        for name in self._recordings:
            place = name.removesuffix("()").rpartition("_")[0]
            ran, expected = counts.get(place, 0), self.target.survey().functions[place]
            if ran != expected:
                message = (
                    f"layer {name!r}: {place!r} ran {ran} times for this batch and {expected} times when the network was "
                    "surveyed, so the layer is not the same for every input: choose others with --layers."
                )
                raise BadInput("changed", "layer", message)


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _flat(tensor: Tensor) -> Tensor:
    return tensor.flatten(1)


def _need(value: Any, layer: str) -> Tensor:
    tensor = first_tensor(value)
    if tensor is None:
        message = f"layer {layer!r} gives a {type(value).__name__}, not a tensor: choose other layers with --layers."
        raise BadInput("wrong-type", "layer", message)
    return tensor


def _replace(output: Any, tensor: Tensor) -> Any:
    if isinstance(output, Tensor):
        return tensor
    return type(output)((_replace(output[0], tensor), *output[1:]))


@contextmanager
def watched(module: nn.Module, before: Callable[[str, Any], None], after: Callable[[str, Any, Any], None]) -> Iterator[None]:
    """Call `before(path, args)` and `after(path, args, output)` around every module's forward (for the survey)."""
    with ExitStack() as hooks:
        for path, child in module.named_modules():
            pre = child.register_forward_pre_hook(lambda _, args, path=path: before(path, args))
            post = child.register_forward_hook(lambda _, args, output, path=path: after(path, args, output))
            hooks.callback(pre.remove)
            hooks.callback(post.remove)
        yield
