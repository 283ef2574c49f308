"""Campaigns: fuzzing that can be interrupted, killed, resumed, merged, replayed and shrunk, and loses nothing."""

from neurotest.campaign.api import fuzz
from neurotest.campaign.explain import Explanation, Patterns, explain
from neurotest.campaign.families import Families, families
from neurotest.campaign.merge import merge
from neurotest.campaign.replay import Replayed, replay
from neurotest.campaign.result import FuzzResult
from neurotest.campaign.shrink import shrink
from neurotest.campaign.status import status
from neurotest.campaign.swarm import swarm

__all__ = [
    "Explanation",
    "Families",
    "FuzzResult",
    "Patterns",
    "Replayed",
    "explain",
    "families",
    "fuzz",
    "merge",
    "replay",
    "shrink",
    "status",
    "swarm",
]
