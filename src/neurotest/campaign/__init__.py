"""Campaigns: fuzzing that can be interrupted, killed, resumed, merged, replayed and shrunk, and loses nothing."""

from neurotest.campaign.api import fuzz
from neurotest.campaign.families import Families, families
from neurotest.campaign.merge import merge
from neurotest.campaign.replay import Replayed, replay
from neurotest.campaign.result import FuzzResult
from neurotest.campaign.shrink import shrink
from neurotest.campaign.status import status

__all__ = ["Families", "FuzzResult", "Replayed", "families", "fuzz", "merge", "replay", "shrink", "status"]
