"""Numbers about numbers: fault metrics of an order, intervals, mergeable moments. Numpy only; nothing here knows a network."""
