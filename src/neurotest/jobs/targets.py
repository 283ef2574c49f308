"""Networks that a run holds: `run:RUN` is the target of a repair with its new weights, and nothing has to be said again."""

from __future__ import annotations

import hashlib

import torch

from neurotest.errors import BadInput, shell
from neurotest.jobs.stored import stored_target
from neurotest.registry import register
from neurotest.runs.folder import declare
from neurotest.runs.store import Run
from neurotest.target.target import Target, WeightsFile

WEIGHTS = "weights.safetensors"
declare(r"weights\.safetensors")


@register("target source", "run", paper="", cost="loads the network and reads one file")
def from_run(path: str) -> Target:
    """`run:RUN`: the repaired network of a run of `neurotest repair`."""
    from neurotest.reading import user_path

    with Run.open(user_path(path, f"run:{path:.200}")) as run:
        if run["command"] != "repair":
            raise BadInput("wrong-run", "", f"run:{path} is a run of {run['command']!r}: only runs of repair hold a network.")
        file = run.file(WEIGHTS)
        if run["state"] != "done" or not file.exists():
            raise BadInput(
                "unfinished",
                "weights",
                f"run:{path} holds no weights: the repair is not finished ({shell('--resume', path)}), or --no-regression "
                "refused them.",
            )
        return with_weights(stored_target(run), file.read(), WeightsFile(file.path.resolve(), ""))


def with_weights(target: Target, content: bytes, file: WeightsFile | None = None) -> Target:
    """The target with a state dict as safetensors holds it."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        target.module.load_state_dict(load(content))
    except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise BadInput(
            "damaged", "weights", f"the weights of the run do not fit its network ({reason}): the run is damaged."
        ) from error
    target.__dict__.pop("fingerprint", None)
    target.reference = None  # another network now
    if file is not None:
        target.weights = file._replace(sha256=hashlib.sha256(content).hexdigest())
    return target


def weights_of(module: torch.nn.Module) -> bytes:
    """A network's state dict as the content of a safetensors file."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()})
