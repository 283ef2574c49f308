"""More than one worker: processes of this machine, or a Ray cluster."""
