"""The settings that describe a target: how its network is fed, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurotest.settings.declared import Choice, Flag, Integer, Kind, Numbers, declared, setting
from neurotest.settings.kinds import Either, Names, Pair, Size


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """How a network is fed and read. None: as the network itself says."""

    weights: str | Path | None = setting(
        Kind(),
        "State dict for the target (safetensors, or a plain torch file).",
        toml="file of the weights; follow-up commands compare its hash",
    )
    bounds: Sequence[float] | None = setting(
        Pair(),
        "Range of the inputs, e.g. 0 1.",
        toml="the range of the inputs before mean and std",
        part="target",
        usual=[0.0, 1.0],
    )
    mean: float | Sequence[float] | None = setting(
        Numbers(),
        "Preprocessing: mean per channel, comma separated.",
        toml="subtracted per channel, inside the target: mutations and saved inputs never see it",
        part="target",
    )
    std: float | Sequence[float] | None = setting(
        Numbers(),
        "Preprocessing: standard deviation per channel, comma separated.",
        toml="divided by, per channel",
        part="target",
    )
    size: str | Sequence[int] | None = setting(
        Size(),
        "Size of one input, e.g. 1x28x28.",
        toml="channels x height x width of one input",
        part="target",
        argument="shape",
    )
    classes: str | Path | Sequence[str] | None = setting(
        Names(),
        "File with one class name per line, or a run that has them.",
        toml="names in the network's order: a file with one per line, or a list",
        part="target",
        attribute="class_names",
    )
    outputs: str | None = setting(
        Choice(among=("logits", "probs", "sigmoid", "regression")),
        "What the network returns: logits, probs, sigmoid or regression.",
        toml="what the network returns: logits, probs, sigmoid or regression",
        part="target",
        usual="logits",
    )
    span: Sequence[float] | None = setting(
        Pair(expected="two numbers, [-0.4, 0.4]"),
        "Range of the value that a regression network predicts, e.g. -0.4 0.4.",
        toml="the range of the value that a regression network predicts",
        part="target",
    )
    bins: int | None = setting(
        Integer(),
        "Equal parts of --span that count as classes (default 25).",
        toml="equal parts of it that count as classes",
        part="target",
        attribute="bins.count",
    )
    tolerance: float | str | None = setting(
        Either("a number, or a share of the span such as 5%", whole=False),
        "How far a regression value may be off: 0.05, or 5% of the span (default: a bin).",
        toml="how far it may be off before that is a fault",
        part="target",
    )
    resize: int | str | None = setting(
        Either('an integer, or text such as "224x320"'),
        "Fit images of any size: 224 or 224x320 (height x width), antialiased.",
        toml="images of other sizes: the shorter side (with crop) or the whole image",
        part="preprocess",
    )
    crop: str | None = setting(
        Choice(among=("centre",), also=("center",)),
        "centre: the middle of each image, its shorter side resized to --resize before; of long audio.",
        toml="centre: the middle of each image",
        part="preprocess",
    )
    grey: bool | None = setting(Flag(), "Read images in grey.", toml="read images in grey", part="preprocess")
    interpolation: str | None = setting(
        Choice(among=("bilinear", "bicubic", "nearest", "lanczos")),
        "Of --resize: bilinear (default), bicubic, nearest or lanczos.",
        toml="of resize: bilinear, bicubic, nearest or lanczos",
        part="preprocess",
    )
    rate: int | str | None = setting(
        Either("an integer, samples a second"),
        "Samples a second of the audio that the network takes, e.g. 16000.",
        toml="samples a second of the audio it takes",
        part="preprocess",
    )
    layout: str | None = setting(
        Choice(among=("channels_last",)),
        "channels_last: faster convolutions on some processors.",
        toml="channels_last: faster convolutions on some processors",
        part="target",
    )
    precision: str | None = setting(
        Choice(among=("bfloat16",)),
        "bfloat16: faster where the processor has it; some predictions change.",
        toml="bfloat16: faster where the processor has it; some predictions change",
        part="target",
    )
    # A file found by chance must not say these.
    device: str | None = setting(Kind(), "Where the network runs: cpu (default), cuda, mps.")
    trust_pickle: bool | None = setting(Flag(), "Open a pt2: archive even if it could run code.")

    def __post_init__(self) -> None:
        for name, one in declared(TargetSettings).items():
            if getattr(self, name) is not None:
                one.kind.check(name, getattr(self, name))

    def arguments(self, part: str) -> dict[str, Any]:
        """What is said for the target, or for its preprocessing, by the names of their arguments."""
        values = {one.argument or name: getattr(self, name) for name, one in declared(TargetSettings).items() if one.part == part}
        return {name: value for name, value in values.items() if value is not None}


def in_toml() -> list[str]:
    """The settings that may stand in `neurotest.toml`."""
    return [name for name, one in declared(TargetSettings).items() if one.toml]
