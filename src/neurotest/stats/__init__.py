"""Fault metrics of an order, intervals, correlations, densities, mergeable moments. Nothing here knows a network."""
