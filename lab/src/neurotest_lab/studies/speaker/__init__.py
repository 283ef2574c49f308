"""Speaker recognition: tables 6 and 7 of the excitability paper."""
