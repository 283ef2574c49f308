"""Layers of a network and how they are chosen: by preset or by globs over their names."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as every

from neurotest import rng
from neurotest.errors import BadInput, near

SAMPLE = 1000  # units of a layer in a sample: a share among them is known to 3 points
KINDS = {"pre_activation": ("convolution", "dense"), "post_activation": ("activation",)}
PRESETS = (*KINDS, "features", "last_hidden", "every", "encoder")


@dataclass
class Layer:
    """One call of a module, or of a torch function inside a module's forward.

    A module's `name` is its path, with `#2` for the second call; a function's is the module call in which it runs, the
    function and its number there: `block1.relu_1`, `block1#2.relu_1`.
    """

    name: str
    module: str  # path of the module; of a function: the module in which it runs
    call: int
    made_by: str  # convolution, dense, activation or other
    shape: tuple[int, ...]  # of one item's output
    axis: int  # of the channels in the batched output
    input_shape: tuple[int, ...]
    input_axis: int
    time: int  # how many operators had run
    overwritten: bool = False  # an in-place operator writes into the output later
    input_overwritten: bool = False
    function: str = ""  # empty: a module
    in_place: bool = False  # the function writes its result into its input
    alias: str | None = None  # the module whose output this function's is: that layer stands for it
    apply: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)  # the function with its settings

    def neurons(self, neuron: str = "channel", *, inputs: bool = False) -> int:
        shape, axis = (self.input_shape, self.input_axis) if inputs else (self.shape, self.axis)
        if neuron == "sample":
            return min(SAMPLE, math.prod(shape))
        return math.prod(shape) if neuron == "unit" or not shape else shape[axis - 1]

    def sample(self, *, inputs: bool = False) -> NDArray[np.int64] | None:
        """Which units `sample` means, in their order; None for all. They depend on the layer's name and size only."""
        units = self.neurons("unit", inputs=inputs)
        if units <= SAMPLE:
            return None
        return np.sort(rng.stream(f"target.sample.{self.name}", units).choice(units, SAMPLE, replace=False))

    @property
    def operation(self) -> bool:
        """Whether it is a function that no preset means: an addition, attention, a pooling."""
        return bool(self.function) and self.made_by == "other"

    @property
    def pools(self) -> bool:
        """Whether it shrinks maps and leaves their channels alone."""
        if self.made_by != "other" or len(self.shape) != len(self.input_shape) or len(self.shape) < 2:
            return False
        channels, places = self.axis - 1, [i for i in range(len(self.shape)) if i != self.axis - 1]
        smaller = all(self.shape[i] <= self.input_shape[i] for i in places) and self.shape != self.input_shape
        return self.axis == self.input_axis and self.shape[channels] == self.input_shape[channels] and smaller

    def matches(self, glob: str) -> bool:
        """An operation is meant only where the glob spells its function: `block.*` is not about it, `block.*add*` is."""
        if not fnmatch.fnmatchcase(self.name, glob):
            return False
        own, last = self.name.rpartition(".")[2], glob.rpartition(".")[2]
        return not self.operation or (re.search("[a-z]{3}", last) is not None and fnmatch.fnmatchcase(own, last))


@dataclass(frozen=True)
class Survey:
    """What one watched forward pass showed: all calls in the order in which they finished."""

    everything: tuple[Layer, ...]  # modules and functions
    calls: dict[str, int]  # module path -> calls per forward pass
    functions: dict[str, int]  # module call and function, `block1.relu` -> calls per forward pass
    hidden: int  # activations that can be read neither as a module's nor as a function's output
    last_spatial: int  # when the last convolution or pooling ran
    apart: tuple[str, ...] = ()  # names of what ran on rows that are not the inputs, such as the windows of a Swin

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Modules, and functions that are convolutions, dense layers or activations."""
        return tuple(layer for layer in self.everything if layer.alias is None and not layer.operation)

    @property
    def functional(self) -> int:
        """How many activations are functions that no module stands for."""
        return sum(bool(layer.function) and layer.made_by == "activation" for layer in self.layers)

    def find(self, layers: str) -> tuple[Layer, ...]:
        """The layers a preset or comma-separated globs stand for."""
        if layers in ("features", "last_hidden"):
            return (self._features(last=layers == "last_hidden"),)
        if layers in KINDS:
            return self._preset(layers)
        if layers == "every":
            return self._every()
        if layers == "encoder":
            return (self._encoder(),)
        candidates = [layer for layer in self.everything if layer.alias is None]
        names: set[str] = set()
        for glob in (part.strip() for part in layers.split(",")):
            matching = {layer.name for layer in candidates if layer.matches(glob)}
            if not matching:
                raise self._unmatched(glob, [layer.name for layer in candidates if layer.name])
            names |= matching
        return tuple(layer for layer in candidates if layer.name in names)

    def _unmatched(self, glob: str, names: list[str]) -> BadInput:
        """Why a glob stands for nothing, and what to write instead."""
        apart = next((name for name in self.apart if fnmatch.fnmatchcase(name, glob)), None)
        if apart is None:
            return BadInput("unknown-name", "layers", f"layers={glob!r} matches no layer. {near(glob, [*names, *PRESETS])}")
        around = (apart[:i] for i in range(len(apart) - 1, 0, -1) if apart[i] == ".")
        block = next((name for name in around if name in names), None)
        preset = next((p for p, kinds in KINDS.items() if any(layer.made_by in kinds for layer in self.layers)), None)
        instead = [f"{block!r}, the block around it" if block else "", f"--layers {preset}" if preset else "", "--layers encoder"]
        return BadInput(
            "unsuitable",
            "layers",
            f"layers={glob!r}: the rows of {apart!r} are not the inputs (they are windows, or tokens come first), so it has no "
            f"value for each input; use {' or '.join([one for one in instead if one][:2])}.",
        )

    def _preset(self, preset: str) -> tuple[Layer, ...]:
        layers = tuple(layer for layer in self.layers if layer.made_by in KINDS[preset])
        if layers:
            return layers
        works = next((p for p, kinds in KINDS.items() if any(layer.made_by in kinds for layer in self.layers)), None)
        unread = ""
        if preset == "post_activation" and self.hidden:
            unread = f" ({self.hidden} run where they cannot be read: in scripted or custom code, or not one row per input)"
        named = [layer.name for layer in self.everything if layer.name and layer.alias is None]
        glob = f"name layers with --layers GLOB, for example {named[-1]!r}" if named else "it has no layer that can be named"
        message = (
            f"layers={preset!r}: no module or function of this network gives such an output{unread}; "
            f"{f'use --layers {works}' if works else glob}. Methods that look only at inputs and outputs need no layers."
        )
        raise BadInput("empty", "layers", message)

    def _every(self) -> tuple[Layer, ...]:
        """What DeepXplore and DeepSensor count: convolutions and dense layers (with their activation where that follows at once),
        activations, poolings and additions; no flattening, no normalisation."""
        activated = {layer.time - 1 for layer in self.layers if layer.made_by == "activation"}
        chosen: dict[int, Layer] = {}
        for layer in self.everything:
            if layer.alias is not None or not layer.name or layer.time in chosen:  # what hands on another's output
                continue
            alone = layer.made_by in KINDS["pre_activation"] and layer.time not in activated
            if alone or layer.made_by == "activation" or layer.function == "add" or layer.pools:
                chosen[layer.time] = layer
        return tuple(chosen.values()) or self._preset("pre_activation")

    def _encoder(self) -> Layer:
        """The last layer that still has places: of a ResNet what its global pooling gets. Without maps the last hidden layer."""
        named = [layer for layer in self.everything if layer.alias is None and layer.name]
        maps = [layer for layer in named if len(layer.shape) > 1 and math.prod(layer.shape) > layer.shape[layer.axis - 1]]
        if maps:
            return min((layer for layer in maps if layer.time == maps[-1].time), key=lambda layer: len(layer.name))
        last = self._features(last=True)
        weighted = [layer.time for layer in self.layers if layer.made_by in KINDS["pre_activation"]]
        before = [layer for layer in self.layers if min(weighted) <= layer.time < last.time and layer.name]
        if not before:
            message = "layers='encoder': this network has no hidden layer; name a layer with --layers GLOB."
            raise BadInput("empty", "layers", message)
        return before[-1]

    def _features(self, *, last: bool = False) -> Layer:
        """The dense layer whose input are the features: the first on vectors after the last convolution or pooling;
        with `last`, the one whose input is the last hidden layer."""
        vectors = [layer for layer in self.everything if layer.made_by == "dense" and len(layer.input_shape) == 1]
        names = {layer.name for layer in vectors}
        # A module that flattens maps first does not stand for its dense function: only the function's inputs are the features.
        dense = [layer for layer in vectors if layer.alias not in names]
        if not dense:
            preset = "last_hidden" if last else "features"
            message = f"layers={preset!r}: this network has no dense layer on vectors; name a layer with --layers GLOB."
            raise BadInput("empty", "layers", message)
        after = [layer for layer in dense if layer.time > self.last_spatial]
        return after[0] if after and self.last_spatial and not last else dense[-1]


# -- the mean of a layer's maps over their places, taken from its input where that is smaller to read

Widening = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear


def mean_from_input(module: nn.Module, layer: Layer) -> Callable[[Tensor], Tensor] | None:
    """From a layer's input (n, *input_shape) the means of its output's channels (n, channels); None: the output has to be read.

    A convolution with a kernel of one and a dense layer on tokens treat every place alike: the mean of what they give is what
    they make of the mean of what they get. A layer that widens six times is recorded by reading a sixth. Reading whole maps once
    more is most of what coverage costs on photographs. The numbers are the same but for rounding. It depends on the layer alone,
    never on the batch, so that a profile and what is compared with it are computed in one way.
    """
    if math.prod(layer.shape) <= math.prod(layer.input_shape) or not isinstance(module, Widening):
        return None
    if not _as_torch_made_it(module) or not _one_place(module):
        return None
    channels = len(layer.shape) if isinstance(module, nn.Linear) else 1
    places = tuple(axis for axis in range(1, len(layer.shape) + 1) if axis != channels)
    if layer.axis != channels or not places:
        return None
    # The weight is looked up in every pass: somebody may have put another in its place.
    return lambda x: F.linear(x.mean(places), module.weight.flatten(1), module.bias)


def _as_torch_made_it(module: Widening) -> bool:
    """Whether nothing but the class's own code runs: a subclass or a hook of the user's may change what the layer gives."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    if every._global_forward_hooks or every._global_forward_pre_hooks:
        return False
    changed = type(module) not in get_args(Widening) or "forward" in vars(module)
    reads = all(getattr(hook, "only_reads", False) for hook in hooks)
    return reads and not changed and module.weight.dtype in (torch.float32, torch.float64)


def _one_place(module: Widening) -> bool:
    """Whether every place of the output is made of the same place of the input, of all its channels."""
    if isinstance(module, nn.Linear):
        return True
    ones = all(size == 1 for size in (*module.kernel_size, *module.stride))
    return ones and module.groups == 1 and all(size == 0 for size in module.padding)
