"""`neurotest init`: a commented neurotest.toml, after a look at the network and the data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neurotest.cli import options as opt
from neurotest.cli.settings_file import FILE, expected, names_files
from neurotest.errors import command


@opt.takes_target
@opt.reports_result
def init(
    target: Annotated[str, typer.Argument(help="zoo:NAME, py:FILE_OR_MODULE:CALLABLE, pt2:, onnx:, timm:, torchvision:, hf:")],
    data: Annotated[str | None, typer.Argument(help="Inputs it should work on.")] = None,
    train: Annotated[str | None, typer.Option("--train", help="Its training data, for every command that takes them.")] = None,
    holdout: Annotated[str | None, typer.Option("--holdout", help="Labelled inputs to judge repairs by.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a neurotest.toml that is there.")] = False,
    *,
    description: dict[str, Any],
) -> opt.Result:
    """Write ./neurotest.toml, so that commands in this folder know the network and its data."""
    from neurotest.doctor.proposal import propose
    from neurotest.errors import BadInput
    from neurotest.files import write_text

    if FILE.exists() and not force:
        raise BadInput("exists", "", f"{FILE} is there already: --force writes over it.")
    others = {name: spec for name, spec in (("train", train), ("holdout", holdout)) if spec is not None}
    for name, spec in others.items():
        if not names_files(spec):
            raise BadInput("wrong-type", name, f"--{name} {spec}: in {FILE} there may be {expected(name)}.")
    proposal = propose(target, data, others=others, **description)
    text = proposal.toml(target, data)
    write_text(FILE, text)
    content = {"file": str(FILE), "target": proposal.values, "from": proposal.origins, "classes": proposal.classes,
               "data": others}  # fmt: skip

    def print_result() -> None:
        print(text, end="")
        print(f"\nwritten to {FILE}; now: {command('check', target, data or 'DATA')}")

    return content, print_result
