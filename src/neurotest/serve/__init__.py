"""Pages that answer: a campaign while it runs (`neurotest serve`), and labelling (`neurotest label`), on this machine only."""
