"""`neurotest init`: a commented neurotest.toml, after a look at the network and the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neurotest.cli import options as opt

FILE = Path("neurotest.toml")


@opt.takes_target
@opt.reports_result
def init(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf:")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a neurotest.toml that is there.")] = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Write ./neurotest.toml, so that commands in this folder need no options that describe the network."""
    from neurotest.doctor.proposal import propose
    from neurotest.errors import BadInput
    from neurotest.files import write_text

    if FILE.exists() and not force:
        raise BadInput(f"{FILE} is there already: --force writes over it.")
    proposal = propose(target, data, **description)
    text = proposal.toml(target, data)
    write_text(FILE, text)
    content = {"file": str(FILE), "target": proposal.values, "from": proposal.origins, "classes": proposal.classes}

    def print_result() -> None:
        print(text, end="")
        print(f"\nwritten to {FILE}; now: neurotest check {target} {data or 'DATA'}")

    return content, print_result
