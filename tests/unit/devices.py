"""A device that is not there: tensors that are marked count as on the device, all others as on the host.

Under `Detector` a computation that mixes the two, or hands a tensor of the device to numpy, fails as it would on a GPU, with the
name of the function. Moves (`to`, `cpu`) copy, as they do between real devices, and are counted. `Detector(APPLE)` is a device
that calls itself `mps` and, as those do, has no float64.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("cpu", 0)
APPLE = torch.device("mps", 0)
HOST = torch.device("cpu")
FACTORIES = {
    "zeros", "ones", "full", "empty", "arange", "tensor", "rand", "randn", "randint", "randperm", "linspace", "eye", "as_tensor",
    "from_numpy", "asarray", "frombuffer", "scalar_tensor", "tril_indices", "triu_indices",
}  # fmt: skip
MOVES = {"to", "cpu", "cuda", "copy_", "type_as"}
INDEXING = {"__getitem__", "__setitem__", "index_put_", "index_put"}  # take indices of the host on any device
TO_HOST = {"numpy", "__array__"}  # refuse tensors of a device
NO_TENSORS = {"__set__", "_has_compatible_shallow_copy_type", "_parse_to"}
LONG = (torch.float64, torch.complex128)  # what Apple's GPUs do not have
READS = {"item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__repr__", "__format__"}


class WrongDevice(AssertionError):
    """A tensor that is not where the others are."""


class NoFloat64(AssertionError):
    """A tensor of a type that the device does not have."""


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
    def __init__(self, device: torch.device = DEVICE) -> None:
        super().__init__()
        self.device, self.float64 = device, device.type != "mps"
        self.to_host: Counter[str] = Counter()  # copies to the host, by what asked for them

    def __enter__(self) -> Detector:
        self._copied = nn.Parameter.__deepcopy__  # of the weights of a module; the only function that no mode is told of
        nn.Parameter.__deepcopy__ = lambda one, memo: mark(self._copied(one, memo), on_device(one))  # type: ignore[method-assign]
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        nn.Parameter.__deepcopy__ = self._copied  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        devices = [on_device(one) for one in tensors]
        if name == "__get__":
            return self._read(function, args)
        if function is torch.device or name in NO_TENSORS:
            if function == Tensor.data.__set__:  # type: ignore[attr-defined]  # moving a module gives its weights other data
                mark(args[0], on_device(args[1]))
            return function(*args, **kwargs)
        real = tuple(map(self._real, args)), {key: self._real(value) for key, value in kwargs.items()}
        if name in TO_HOST and any(devices):
            raise TypeError(f"{name}() of a tensor that is on the device: .cpu() comes first")  # as torch does
        if name in MOVES:
            there = self._moved_to(name, args, kwargs, tensors)
            return self._move(name, function(*real[0], **real[1]), args, tensors, there)
        if name in READS:
            self.to_host[name] += any(devices)
            return function(*args, **kwargs)
        device = self._where(name, function, tensors, devices, kwargs)
        return self._checked(name, function(*real[0], **real[1]), device)

    def _real(self, value: Any) -> Any:
        """The host, where the device that is not there is named."""
        named = isinstance(value, torch.device) or (isinstance(value, str) and value == str(self.device))
        return HOST if named and torch.device(value) == self.device else value

    def _checked(self, name: str, value: Any, device: bool) -> Any:
        if device and not self.float64:
            for one in tree_flatten(value)[0]:
                if isinstance(one, Tensor) and one.dtype in LONG:
                    raise NoFloat64(f"{name}: makes a tensor of {one.dtype} on a device that has none")
        return mark(value, device)

    def _read(self, function: Any, args: tuple[Any, ...]) -> Any:
        """A property: `device` says where the tensor counts as lying; a view such as `T` or `grad` lies where it does."""
        value = function(*args)
        if isinstance(value, torch.device):
            return self.device if on_device(args[0]) else HOST
        return mark(value, on_device(args[0])) if isinstance(value, Tensor) else value

    def _move(self, name: str, out: Tensor, args: tuple[Any, ...], tensors: list[Tensor], there: bool) -> Any:
        before = on_device(tensors[0])
        if name == "copy_":  # copies between devices
            return mark(out, before)
        self.to_host[name] += before and not there
        if before and not there and not self.float64 and out.dtype in LONG and tensors[0].dtype not in LONG:
            raise NoFloat64(f"{name}: the type may change before the copy; .cpu() comes first")
        return self._checked(name, out.clone() if out is args[0] and there != before else out, there)

    def _moved_to(self, name: str, args: tuple[Any, ...], kwargs: Any, tensors: list[Tensor]) -> bool:
        """Whether a move ends on the device."""
        if name == "cpu":
            return False
        wanted = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, (torch.device, str, Tensor))]
        if not wanted:
            return on_device(tensors[0])  # another type
        return on_device(wanted[0]) if isinstance(wanted[0], Tensor) else torch.device(wanted[0]) == self.device

    def _where(self, name: str, function: Any, tensors: list[Tensor], devices: list[bool], kwargs: Any) -> bool:
        """Where the result lies; tensors of the host that are single numbers go with any device."""
        if "device" in kwargs and kwargs["device"] is not None:
            return torch.device(kwargs["device"]) == self.device
        if name in FACTORIES:
            return False
        if name in INDEXING or name == "__deepcopy__":  # which is handed whatever else has been copied
            return devices[0] if devices else False
        several = [there for one, there in zip(tensors, devices, strict=True) if there or one.ndim]
        if len(set(several)) > 1:
            raise WrongDevice(f"{resolve_name(function) or name}: some tensors are on the device and some are not")
        return any(devices)
