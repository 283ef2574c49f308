"""A device that is not there: tensors on `cpu:0` count as on the device, all others as on the host.

Under `Detector` a computation that mixes the two, or hands a tensor of the device to numpy, fails as it would on a GPU, with the
name of the function. Moves (`to`, `cpu`) copy, as they do between real devices, and are counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("cpu", 0)
HOST = torch.device("cpu")
FACTORIES = {
    "zeros", "ones", "full", "empty", "arange", "tensor", "rand", "randn", "randint", "randperm", "linspace", "eye", "as_tensor",
    "from_numpy", "asarray", "frombuffer", "scalar_tensor", "tril_indices", "triu_indices",
}  # fmt: skip
MOVES = {"to", "cpu", "cuda", "copy_", "type_as"}
INDEXING = {"__getitem__", "__setitem__", "index_put_", "index_put"}  # take indices of the host on any device
TO_HOST = {"numpy", "__array__"}  # refuse tensors of a device
READS = {"item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__repr__", "__format__"}


class WrongDevice(AssertionError):
    """A tensor that is not where the others are."""


def on_device(tensor: Tensor) -> bool:
    return getattr(tensor, "_on_device", False)


def mark(value: Any, device: bool) -> Any:
    def one(tensor: Tensor) -> Tensor:
        tensor._on_device = device  # type: ignore[attr-defined]
        return tensor

    return tree_map_only(Tensor, one, value)


def moved(module: nn.Module) -> nn.Module:
    """A module whose weights are on the device."""
    for tensor in (*module.parameters(), *module.buffers()):
        mark(tensor, True)
    return module


class Detector(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.to_host: Counter[str] = Counter()  # copies to the host, by what asked for them

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        devices = [on_device(one) for one in tensors]
        if name == "__get__":
            return self._read(function, args)
        if name in ("__set__", "_has_compatible_shallow_copy_type"):  # moving a module: its weights get other data
            return function(*args, **kwargs)
        if name in TO_HOST and any(devices):
            raise TypeError(f"{name}() of a tensor that is on the device: .cpu() comes first")  # as torch does
        if name in MOVES:
            return self._move(name, function, args, kwargs, tensors)
        if name in READS:
            self.to_host[name] += any(devices)
            return function(*args, **kwargs)
        device = self._where(name, function, tensors, devices, kwargs)
        return mark(function(*args, **kwargs), device)

    def _read(self, function: Any, args: tuple[Any, ...]) -> Any:
        """A property: `device` says where the tensor counts as lying; a view such as `T` or `grad` lies where it does."""
        value = function(*args)
        if isinstance(value, torch.device):
            return DEVICE if on_device(args[0]) else HOST
        return mark(value, on_device(args[0])) if isinstance(value, Tensor) else value

    def _move(self, name: str, function: Any, args: tuple[Any, ...], kwargs: Any, tensors: list[Tensor]) -> Any:
        if name == "copy_":  # copies between devices
            return mark(function(*args, **kwargs), on_device(tensors[0]))
        out = function(*args, **kwargs)
        if name == "cpu":
            self.to_host[name] += on_device(tensors[0])
            return mark(out.clone() if out is args[0] else out, False)
        wanted = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, (torch.device, str, Tensor))]
        if not wanted:
            return mark(out, on_device(tensors[0]))  # another type
        there = on_device(wanted[0]) if isinstance(wanted[0], Tensor) else torch.device(wanted[0]) == DEVICE
        self.to_host[name] += on_device(tensors[0]) and not there
        return mark(out.clone() if out is args[0] and there != on_device(tensors[0]) else out, there)

    def _where(self, name: str, function: Any, tensors: list[Tensor], devices: list[bool], kwargs: Any) -> bool:
        """Where the result lies; tensors of the host that are single numbers go with any device."""
        if "device" in kwargs and kwargs["device"] is not None:
            return torch.device(kwargs["device"]) == DEVICE
        if name in FACTORIES:
            return False
        if name in INDEXING:
            return devices[0] if devices else False
        several = [there for one, there in zip(tensors, devices, strict=True) if there or one.ndim]
        if len(set(several)) > 1:
            raise WrongDevice(f"{resolve_name(function) or name}: some tensors are on the device and some are not")
        return any(devices)
