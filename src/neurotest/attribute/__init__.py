"""Attribution: how much each neuron contributed to what the network answered."""

from neurotest.attribute.conductance import Attribution, Conductance
from neurotest.attribute.relevance import Relevance, Relevances

__all__ = ["Attribution", "Conductance", "Relevance", "Relevances"]
