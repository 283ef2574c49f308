"""The one training loop: for networks of the zoo, faulty ones and repairs. `subjects` trains what the zoo holds."""

from __future__ import annotations

from neurotest.train.loop import Checkpoint, Report, Training, TrainingStep, accuracy, mean_error, train

__all__ = ["Checkpoint", "Report", "Training", "TrainingStep", "accuracy", "mean_error", "train"]
