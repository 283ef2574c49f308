"""Studies: a paper's tables rerun, our numbers beside theirs."""
