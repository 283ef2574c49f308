"""Pictures of a suite: original, test, and what was changed, ten times as strong."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from neurotest.data.source import Source
from neurotest.evaluate.judge import Judgement
from neurotest.mutate.space import to_unit
from neurotest.target import Target

TIMES = 10


def sheet(suite: Source, judgement: Judgement, target: Target, most: int) -> list[dict[str, Any]]:
    """Faults of as many different (true, predicted) pairs as fit, each as one strip of three pictures."""
    assert suite.originals is not None
    if len(suite.shape) != 3 or suite.shape[0] not in (1, 3):
        return []
    wrong = np.flatnonzero(judgement.per_input["fault"] > 0)
    _, first = np.unique(np.stack([judgement.expected[wrong], judgement.predicted[wrong]]), axis=1, return_index=True)
    rows = wrong[np.sort(first)][:most]
    if not len(rows):
        return []
    x, before = (to_unit(target.prepare(s.read(rows)), target.bounds).cpu().numpy() for s in (suite, suite.originals))
    change = np.clip(0.5 + TIMES * (x - before), 0, 1)
    return [
        {
            "png": _png(np.concatenate([before[i], x[i], change[i]], axis=2)),
            "true": int(judgement.expected[row]),
            "predicted": int(judgement.predicted[row]),
            "linf": float(judgement.per_input["linf"][row]),
        }
        for i, row in enumerate(rows)
    ]


def _png(image: np.ndarray) -> str:
    from PIL import Image

    pixels = np.round(255 * image).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(out, format="PNG")
    return base64.b64encode(out.getvalue()).decode()
