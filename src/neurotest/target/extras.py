"""Optional packages: looked for when a target needs them, and named with the command that installs them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neurotest.errors import BadInput

_operators: list[Any] = []  # what torch.library.Library declares is gone with it


def need(package: str, extra: str, what: str) -> Any:
    """The package, or a sentence that says how it is installed."""
    install = f"pip install 'neurotest[{extra}]'"
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            message = f"{what}: {package} lacks {error.name}: {install}"
            raise BadInput("not-installed", package, message, next=install) from error
        raise BadInput("not-installed", package, f"{what} needs {package}: {install}", next=install) from error
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        message = f"{what} needs {package}, which is installed but cannot be imported ({line:.200})."
        raise BadInput("not-installed", package, message) from error


# Where libraries keep whether they may use the network; each reads its environment variable once, when it is imported.
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_FLAGS = (("huggingface_hub.constants", "HF_HUB_OFFLINE"), ("transformers.utils.hub", "_is_offline_mode"))


@contextmanager
def offline() -> Iterator[None]:
    """Let libraries of models send nothing: their settings for that are set, and afterwards as they were."""
    before = {name: os.environ.get(name) for name in OFFLINE}
    flags = [(sys.modules[module], name) for module, name in _FLAGS if hasattr(sys.modules.get(module), name)]
    values = [getattr(module, name) for module, name in flags]
    os.environ |= dict.fromkeys(OFFLINE, "1")
    for module, name in flags:
        setattr(module, name, True)
    try:
        yield
    finally:
        for (module, name), value in zip(flags, values, strict=True):
            setattr(module, name, value)
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


def guarded_torchvision() -> None:
    """Let torchvision be imported beside a torch that it was not built for.

    Its compiled part is then missing, and with it two operators that its Python part asks for; nobody here calls them. They are
    declared only where the plain import fails: a torchvision that fits brings its own.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        import torch

        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _operators.append(library)
        importlib.import_module("torchvision")
