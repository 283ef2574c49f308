"""Sixty people who say digits (AudioMNIST): who speaks is the class. The recordings are no part of this project."""

from __future__ import annotations

NAME = "speakers"
PEOPLE = 60
CLASSES = tuple(f"{number:02}" for number in range(1, PEOPLE + 1))
RATE = 16_000
SAMPLES = 16_000
DIGITS = 10
TAKES = {"train": (0, 1, 2, 3), "test": (4,)}  # of every digit: a network is tested on takes that it never heard


def stem(person: str, digit: int, take: int) -> str:
    """The name of a recording within the folder of AudioMNIST, without its ending.

    >>> stem("07", 3, 1)
    '07/3_07_1'
    """
    return f"{person}/{digit}_{person}_{take}"
