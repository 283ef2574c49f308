"""Torch functions called inside a module's forward, each named by where it runs: `block1.relu_2` is block1's second relu."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode

Run = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], Any]


def function_name(function: Any) -> str:
    """`relu` for F.relu, torch.relu, Tensor.relu_ and aten.relu.default, which is what exported graphs call."""
    schema = getattr(function, "_schema", None)
    name: str = schema.name.rpartition("::")[2] if schema is not None else getattr(function, "__name__", "")
    return name.strip("_")


class Functions(TorchFunctionMode):
    """While active, hands calls of torch functions (those in `names`, or all) to `run(name, function, args, kwargs)`.

    `enter` and `leave` have to be called around every module's forward. Functions that call others are
    seen as one, and what runs outside of all modules is not seen.
    """

    def __init__(self, module: nn.Module, run: Run, names: Collection[str] | None = None) -> None:
        super().__init__()
        self.run, self.names = run, names
        self.taken = {path for path, _ in module.named_modules()}
        self.paused = False
        self.begin()

    def begin(self) -> None:
        """Forget what was counted: a forward pass begins."""
        self.stack: list[str] = []  # the module calls that are running
        self.calls: dict[str, int] = {}  # module path -> calls
        self.counts: dict[str, int] = {}  # module call and function -> calls

    def enter(self, path: str) -> None:
        call = self.calls.get(path, 0)
        self.calls[path] = call + 1
        self.stack.append(path if call == 0 else f"{path}#{call + 1}")

    def leave(self) -> None:
        self.stack.pop()

    def unseen(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """The same hook; what it computes is no part of the network."""

        def quiet(*args: Any) -> Any:
            before, self.paused = self.paused, True
            try:
                return hook(*args)
            finally:
                self.paused = before

        return quiet

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function_name(function)
        if self.paused or not self.stack or (self.names is not None and name not in self.names):
            return function(*args, **kwargs)
        place = f"{self.stack[-1]}.{name}" if self.stack[-1] else name
        self.counts[place] = number = self.counts.get(place, 0) + 1
        layer = f"{place}_{number}"
        return self.run(f"{layer}()" if layer in self.taken else layer, function, args, kwargs)
