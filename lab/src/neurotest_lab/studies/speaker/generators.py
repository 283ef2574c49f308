"""How test inputs are made in the speaker study."""

from __future__ import annotations

from neurotest import zoo
from neurotest.errors import BadInput
from neurotest.target import Target
from neurotest_lab.studies.frame import split_of
from neurotest_lab.studies.speaker.subjects import BALL, SECOND
from neurotest_lab.studies.suites import ROUNDS, Ways

TRIES = 3  # forward passes of DeepHunter for each output


def others(name: str) -> list[Target | str]:
    """The second network for the same sounds, for DeepXplore to compare with."""
    second = SECOND[name.partition("+")[0]]
    if zoo.find(second).weights is None:
        raise BadInput(
            "missing", "target", f"DeepXplore compares networks: train the second one, `neurotest zoo train {second}`."
        )
    return [f"zoo:{second}"]


WAYS = Ways(
    purpose="study.speaker",
    ball=BALL,
    evaluations=ROUNDS,
    # Small steps: samples of speech are some hundredths of the range. Away from the network under test: only its errors count.
    deepxplore=f"deepxplore:constraint=free,push=0,step=0.001,steps={ROUNDS}",
    dlfuzz=f"dlfuzz:step=0.001,steps={ROUNDS}",
    others=others,
    train=lambda name: split_of(name, "train[:600]"),
)
