"""CIFAR-10 columns of NSGen's tables 5, 8, 9 and 11 (tables 3, 4 and 12 stand in fuzzing_published.py)."""

from __future__ import annotations

from typing import Any

# encoder -> (faults, outputs, output impartiality) of ResNet50, VGG16_BN, MobileNet_v2. BERT on ResNet50 prints more faults
# than outputs.
TABLE_5: dict[str, tuple[tuple[int, int, float], ...]] = {
    "BERT": ((3490, 3449, 0.86), (9009, 9915, 0.78), (1297, 1417, 0.81)),
    "Roberta-L": ((1882, 2069, 0.86), (7865, 8636, 0.80), (822, 879, 0.79)),
    "GPT2": ((4947, 5543, 0.87), (8880, 9952, 0.77), (1944, 2150, 0.79)),
    "FastText": ((8369, 10000, 0.84), (8112, 10000, 0.77), (8748, 9990, 0.83)),
    "GloVe": ((6809, 7579, 0.87), (9018, 9943, 0.79), (2415, 2626, 0.81)),
    "CLIP": ((8075, 10000, 0.85), (8393, 9995, 0.80), (8671, 9997, 0.86)),
}
# labels in the path -> (faults, outputs), MobileNet_v2
TABLE_8 = {1: (8671, 9997), 2: (8594, 9967), 3: (4189, 4810)}
# share of the training data in per cent -> tau
TABLE_9 = {1: 0.8097, 2: 0.8059, 3: 0.8042, 4: 0.8063, 5: 0.8142}
# variant -> (faults, outputs), VGG16_BN
TABLE_11 = {"w/o CNS": (0, 0), "w/o NLDG": (4923, 9999), "NSGen": (8393, 9995)}


def rows() -> list[dict[str, Any]]:
    """Everything above as one table."""
    models = ("ResNet50", "VGG16_BN", "MobileNet_v2")
    found: list[dict[str, Any]] = [
        {"table": "5", "model": model, "what": name, "faults": f, "outputs": o, "value": oi}
        for name, columns in TABLE_5.items()
        for model, (f, o, oi) in zip(models, columns, strict=True)
    ]
    for k, (f, o) in TABLE_8.items():
        found.append({"table": "8", "model": "MobileNet_v2", "what": f"top-{k} labels", "faults": f, "outputs": o, "value": None})
    for share, tau in TABLE_9.items():
        found.append({"table": "9", "model": "", "what": f"tau from {share} %", "faults": None, "outputs": None, "value": tau})
    for name, (f, o) in TABLE_11.items():
        found.append({"table": "11", "model": "VGG16_BN", "what": name, "faults": f, "outputs": o, "value": None})
    return found
