"""Attribution: how much each neuron contributed to what the network answered."""

from neurotest.attribute.relevance import Relevance, Relevances

__all__ = ["Relevance", "Relevances"]
