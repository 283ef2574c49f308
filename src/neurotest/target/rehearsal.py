"""A network from a file runs first in a process of its own: a kernel of torch that crashes ends that process and not this one.

It runs forward and backward on a few batches of generated inputs. What passed is noted in the cache and not tried again: the
note is named after what was read (weights, graph, size of an input), not after the file, so nothing can change in between.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

import neurotest
from neurotest import files, interrupts
from neurotest.errors import BadInput, NeurotestError
from neurotest.memory import free_memory
from neurotest.reading import reason
from neurotest.scale.start import limit_process, start_module, wait
from neurotest.target import parts
from neurotest.target.operators import OPERATORS

BATCHES = (1, 2, 9)
SECONDS = 120  # of the processor, for all of it; the largest batch is left out if the others took a tenth of it
VERSION = 1  # of what is tried
_PASSED, _RAISED = "passed", "raised"
_RECORD = 300  # bytes that say what runs
_skipped: ContextVar[bool] = ContextVar("rehearsal_skipped", default=False)
_notes: set[str] = set()  # what passed while this process runs, should the cache not be writable


@contextmanager
def skipped() -> Iterator[None]:
    """Around opening a network that was tried already, as a worker does."""
    before = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(before)


def rehearse_apart(network: parts.Exported, what: str, shape: tuple[int, ...]) -> None:
    """Refuse a network that ends a process of its own. what: its spec, how the sentence begins."""
    if _skipped.get():
        return
    key = _key(network, shape)
    note = files.cache_dir() / "rehearsed" / key
    if key in _notes or note.exists():
        return
    code, record = _run(network, what, shape)
    if code < 0:
        raise BadInput("failed", "process", _sentence(what, -code, record))
    if code:
        why = record or f"exit code {code}"
        message = f"{what} could not be tried in a process of its own ({why}). Close other programs and try again."
        raise BadInput("failed", "process", message)
    if record == _PASSED:
        _notes.add(key)
        with suppress(NeurotestError):
            files.write_text(note, f"{what}\n")


def _sentence(what: str, number: int, record: str) -> str:
    if number == getattr(signal, "SIGXCPU", None):
        return (
            f"{what} takes more than {SECONDS} seconds of the processor for {BATCHES[-1]} inputs at most: {record} does not end."
        )
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    memory = " There may be too little memory." if number == getattr(signal, "SIGKILL", None) else ""
    return f"{what} crashes: {record or 'it'} ended a trial process with {name}. Export the network without it.{memory}"


def _key(network: parts.Exported, shape: tuple[int, ...]) -> str:
    """A digest of everything that decides whether it crashes: the program, its weights, the size, torch and the processor."""
    kernels = torch.__version__, torch.backends.cpu.get_cpu_capability(), platform.machine()
    seen = hashlib.sha256(repr((VERSION, neurotest.__version__, *kernels, sorted(OPERATORS), shape)).encode())
    for path, part in network.named_modules():
        body = part._exported_body if isinstance(part, parts.Part) else None
        seen.update(f"{path}\n{body.text if body else ''}\n".encode())
    tensors = (*network.named_parameters(remove_duplicate=False), *network.named_buffers(remove_duplicate=False))
    for path, tensor in tensors:
        about = path, str(tensor.dtype), tuple(tensor.shape), tensor.stride(), tensor.requires_grad
        seen.update(repr(about).encode())
        seen.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()


def _run(network: parts.Exported, what: str, shape: tuple[int, ...]) -> tuple[int, str]:
    """Try it in a process of its own: how that ended, and what it did last."""
    try:
        with tempfile.TemporaryFile() as content, tempfile.TemporaryFile() as record:
            torch.save((network, shape), content)
            content.seek(0)
            process = start_module(__name__, stdin=content, stdout=record)
            try:
                code = wait(process, interrupts.check)
            finally:
                process.kill()
                process.wait()
            record.seek(0)
            return code, record.read(_RECORD).decode("utf-8", "replace").strip()
    except OSError as error:
        raise BadInput("failed", "process", f"{what} could not be tried in a process of its own: {reason(error)}.") from error


# -- in the process of its own


class _Announced:
    """A function that says what it is before it runs."""

    def __init__(self, name: str, function: Callable[..., Any], announce: Callable[[str], None]) -> None:
        self.name, self.function, self.announce = name, function, announce

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        self.announce(self.name)
        return self.function(*args, **kwargs)


def main() -> None:
    """Read a network from standard input, and write what runs to standard output, over what was written before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for whoever started this
    record = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def announce(text: str) -> None:
        os.pwrite(record, text.encode("utf-8", "replace")[:_RECORD].ljust(_RECORD), 0)

    try:
        announce("reading it")
        network, shape = torch.load(sys.stdin.buffer, map_location="cpu", weights_only=False)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        limit_process(seconds=SECONDS, memory=free_memory())
        announce(_PASSED if _try(network, shape, announce) else _RAISED)
    except Exception as error:
        announce(f"{type(error).__name__}: {reason(error)}")
        raise SystemExit(1) from error


def _try(network: parts.Exported, shape: tuple[int, ...], announce: Callable[[str], None]) -> bool:
    """Run it on every batch; whether one passed. What a network raises it raises again where somebody uses it."""
    from neurotest.target.exported import rehearse_sizes

    network._exported_check = None
    for part in network.modules():
        for step in part._exported_body.steps if isinstance(part, parts.Part) and part._exported_body else ():
            if not isinstance(step.function, parts.Part):
                step.function = _Announced(step.target, step.function, announce)
    with suppress(Exception):
        rehearse_sizes(network, shape)
        torch.manual_seed(0)
        passed = []
        for batch in BATCHES:
            if batch < BATCHES[-1] or time.process_time() < SECONDS / 10:
                passed.append(_passes(network, shape, batch, announce))
        return any(passed)
    return False


def _passes(network: parts.Exported, shape: tuple[int, ...], batch: int, announce: Callable[[str], None]) -> bool:
    x = torch.rand(batch, *shape) if batch > 1 else torch.zeros(batch, *shape)
    with suppress(Exception):
        y = network(x.requires_grad_())
        if isinstance(y, Tensor) and y.requires_grad:
            announce("its gradient")
            y.sum().backward()
        return True
    return False
