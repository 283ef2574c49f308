"""The one training loop: for networks of the zoo, faulty ones and repairs. `subjects` trains what the zoo holds."""

from __future__ import annotations

from neurotest.train.images import accuracy, mean_error
from neurotest.train.loop import Place, Report, Step, Training, train

__all__ = ["Place", "Report", "Step", "Training", "accuracy", "mean_error", "train"]
