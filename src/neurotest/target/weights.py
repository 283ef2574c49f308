"""Weights in a file: read without running code, under the names the network has, or a sentence that says what the file is."""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurotest.errors import BadInput
from neurotest.reading import check_unpacked, on_disk, reason

# Names under which training scripts keep the state dict in a checkpoint, the usual ones first.
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "weights", "params")
PREFIXES = re.compile(r"(?:(?:module|_orig_mod|model|net|network)\.)+")  # of DataParallel, torch.compile, Lightning and others
COUNTER = "num_batches_tracked"  # of batch norm in training; files of old versions of torch lack it
SAVE = "save its state dict, torch.save(model.state_dict(), FILE)"
START = 4096  # bytes that tell what a file is
# What torch lets a pickle call beside what makes tensors, and what makes any amount of bytes of a few.
MAKERS = (b"builtins\nbytearray\n", b"__builtin__\nbytearray\n", b"_codecs\nencode\n")


def load_weights(module: nn.Module, file: Path) -> None:
    """Put a state dict into `module`: safetensors, or a torch file that `weights_only=True` accepts."""
    expected = module.state_dict()
    state = _renamed(read_state(file), expected)
    missing = [name for name in expected if name not in state]
    unknown = [name for name in state if name not in expected]
    lists = [("missing", missing), ("unknown", unknown)]
    if any(names for _, names in lists):
        named = [f"{what}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}" for what, names in lists if names]
        message = f"weights {file} do not fit the network ({'; '.join(named)}): are they of another network?"
        raise BadInput("conflict", "weights", message)
    other = [name for name in expected if isinstance(expected[name], Tensor) and expected[name].shape != state[name].shape]
    if other:
        there, here = ("x".join(map(str, one[other[0]].shape)) or "one number" for one in (state, expected))
        more = f" ({len(other)} of {len(expected)} differ)" if len(other) > 1 else ""
        message = (
            f"weights {file} do not fit the network: {other[0]} has shape {there} in the file and {here} in the network{more}: "
            "build it as it was trained, with as many classes and channels."
        )
        raise BadInput("wrong-shape", "weights", message)
    try:
        module.load_state_dict(state)
    except Exception as error:  # modules may read their state in a way of their own
        message = f"weights {file} do not fit the network: {str(error).splitlines()[-1].strip()}"
        raise BadInput("conflict", "weights", message) from error


def _renamed(state: dict[str, Tensor], expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """The state under the network's names, where only a wrapper around one of them, or counters, make the difference."""
    counters = {name: value for name, value in expected.items() if name.endswith(COUNTER)}
    ways = [
        counters | {added + name.removeprefix(removed): tensor for name, tensor in state.items()}
        for removed in _prefixes(state)
        for added in _prefixes(expected)
    ]
    return max(ways, key=lambda renamed: len(renamed.keys() & expected.keys()))  # of equal ones the plainest, which comes first


def _prefixes(names: Mapping[str, Any]) -> list[str]:
    """What all names begin with, of what wrappers put in front: `module.`, `module.model.`, and nothing at all."""
    first = next(iter(names), "")
    match = PREFIXES.match(first)
    ends = [at + 1 for at, sign in enumerate(match[0]) if sign == "."] if match else []
    return ["", *(first[:end] for end in ends if all(name.startswith(first[:end]) for name in names))]


def read_state(file: Path) -> dict[str, Tensor]:
    """A state dict from a file, never running code from it."""
    if file.is_dir():
        raise BadInput("not-a-file", "weights", f"weights {file} is a folder: name the file in it.")
    if not file.is_file():
        raise BadInput("not-found", "weights", f"weights: no file {file}.")
    try:
        with open(file, "rb") as content:
            start = content.read(START)
    except OSError as error:
        raise BadInput("unreadable", "weights", f"weights {file} cannot be read: {reason(error)}.") from error
    if (kind := _other_kind(file, start)) is not None:
        raise BadInput("unsupported", "weights", f"weights {file}: {kind}.")
    _check_size(file, packed=start.startswith(b"PK\x03\x04"))
    try:
        if file.suffix == ".safetensors" or start[8:10] == b'{"':
            from safetensors.torch import load_file

            return load_file(file)
        # A pickle that stands alone may promise any length: of bytes in memory no more is read than there are.
        source = file if start.startswith(b"PK\x03\x04") else io.BytesIO(file.read_bytes())  # torch goes by these bytes, too
        saved = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise whatever their parser meets
        if "weights_only" in str(error).lower() or "WeightsUnpickler" in str(error):
            raise BadInput("untrusted", "weights", _pickled(file, str(error))) from error
        message = f"weights {file} cannot be read (truncated, or no weights): {reason(error)}"
        raise BadInput("damaged", "weights", message) from error
    return _state(saved, file)


def _check_size(file: Path, *, packed: bool) -> None:
    """Refuse what would take much more memory than on the disk: what is deflated, has holes, or makes bytes by itself."""
    try:
        if packed:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
                check_unpacked(f"weights {file}", sum(info.file_size for info in infos), on_disk(file))
                pickles = [archive.read(info) for info in infos if info.filename.endswith(".pkl")]
        else:
            check_unpacked(f"weights {file}", file.stat().st_size, on_disk(file))
            pickles = [] if file.suffix == ".safetensors" else [file.read_bytes()]
    except BadInput:
        raise
    except Exception as error:  # damaged: zipfile may raise anything
        message = f"weights {file} cannot be read (truncated, or no weights): {reason(error)}"
        raise BadInput("damaged", "weights", message) from error
    for call in MAKERS:
        if any(call in content for content in pickles):
            raise BadInput("untrusted", "weights", _pickled(file, f"GLOBAL {call.decode().replace(chr(10), '.', 1)}"))


def _state(saved: Any, file: Path) -> dict[str, Tensor]:
    """The state dict itself or, in a checkpoint, the entry that is one."""
    if _is_state(saved):
        return dict(saved)
    if not isinstance(saved, Mapping):
        message = f"weights {file} hold no state dict (a mapping of names to tensors) but a {type(saved).__name__}: {SAVE}."
        raise BadInput("wrong-type", "weights", message)
    inside = {key: value for key, value in saved.items() if _is_state(value) and value}
    for name in [*WRAPPERS, *(inside if len(inside) == 1 else ())]:
        if name in inside:
            return dict(inside[name])
    for name in WRAPPERS:
        if isinstance(saved.get(name), Mapping) and saved[name] is not saved:
            return _state(saved[name], file)
    keys = f"{', '.join(map(str, saved))[:200] or 'nothing'}"
    message = f"weights {file} hold no state dict (a mapping of names to tensors), only {keys}: {SAVE}."
    raise BadInput("wrong-type", "weights", message)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in value.items())


def _pickled(file: Path, error: str) -> str:
    """What a pickle holds beside tensors: a whole network, or objects in a checkpoint."""
    name = re.search(r"GLOBAL ([\w.]+)", error)
    what = f" ({name[1][:100]})" if name else ""
    refused = "which could run code: refused"
    if _begins_with_an_object(file):
        return (
            f"weights {file} hold a whole pickled network{what}, {refused}. Where its code is, save a plain state dict: "
            f"torch.save(torch.load({file.name!r}, weights_only=False).state_dict(), 'weights.pt')."
        )
    return (
        f"weights {file} hold pickled objects{what}, {refused}. Save a plain state dict (torch.save(model.state_dict(), ...), of "
        f"a checkpoint torch.load({file.name!r}, weights_only=False)['state_dict']) or safetensors."
    )


def _begins_with_an_object(file: Path) -> bool:
    """Whether what was saved is an instance of a class that is no dictionary."""
    try:
        with zipfile.ZipFile(file) as archive:
            name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            with archive.open(name) as content:
                start = content.read(START)
        for code, value, _ in pickletools.genops(start):
            if code.name == "EMPTY_DICT":
                return False
            if code.name == "GLOBAL":
                return value != "collections OrderedDict"
    except Exception:  # of an old format, or damaged
        return False
    return False


def _other_kind(file: Path, start: bytes) -> str | None:
    """What a file is, if it cannot be weights of torch."""
    if not start:
        return "the file is empty; copy it again"
    if start.startswith(b"\x89HDF"):
        return f"an HDF5 file, as Keras writes; rebuild the network in PyTorch, copy its weights and {SAVE}"
    if start.startswith(b"\x1f\x8b"):
        return "compressed by gzip; unpack it first (gunzip)"
    if file.suffix == ".onnx":
        return f"an ONNX file holds a whole network; write onnx:{file} as the target"
    if start.startswith(b"PK") and (kind := _archive_kind(file)) is not None:
        return kind
    return _text_kind(file, start)


def _archive_kind(file: Path) -> str | None:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except Exception:  # damaged: zipfile may raise anything
        return None
    if any("/code/" in name or name.startswith("code/") for name in names):
        return "a TorchScript archive (torch.jit.save) holds a whole network; in Python, where it is defined, " + SAVE
    if any(name.endswith("archive_format") for name in names):
        return f"an exported program holds network and weights; write pt2:{file} as the target, without --weights"
    if any(name.endswith("model.weights.h5") for name in names):
        return f"a network of Keras; rebuild it in PyTorch, copy its weights and {SAVE}"
    if names and all(name.endswith(".npy") for name in names):
        return f"arrays of numpy, no weights of torch; if they are inputs, write npz:{file} as the data"
    return None


def _text_kind(file: Path, start: bytes) -> str | None:
    try:
        text = start.decode("ascii")
    except UnicodeDecodeError:
        return None
    if any(ord(sign) < 32 and sign not in "\t\n\r\f" for sign in text):
        return None
    if text.startswith("version https://git-lfs"):
        return "a pointer of Git LFS, not the file itself; fetch it with `git lfs pull`"
    if file.suffix == ".py":
        return f"Python source; write py:{file}:build as the target, and the file of trained weights here"
    if text.lstrip().lower().startswith(("<!doctype", "<html")):
        return "a web page, not weights; the download asked for a login or went wrong"
    return f"text (it begins {text.strip()[:40]!r}), not weights; {SAVE}"
