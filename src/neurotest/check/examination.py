"""What an examination is: settings, how much of the time it takes, and a function of the subject."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from neurotest.check.finding import CheckItem
from neurotest.check.subject import CheckContext, Clock
from neurotest.checks import Settings


class Check(Settings, ABC):
    """Settings of an examination. A file in this package that registers one is all that a new one needs.

    order: its place, smallest first. share: of the time, in proportion to those of the others. labels: whether it needs labels.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    share: ClassVar[float] = 1.0
    labels: ClassVar[bool] = True
    fills: ClassVar[bool] = False  # it goes on until its time is over

    @abstractmethod
    def examine(self, subject: CheckContext, clock: Clock) -> CheckItem:
        """What there is to say. What does not fit raises BadInput; what takes too long stops when the clock is over."""
