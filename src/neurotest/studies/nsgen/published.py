"""CIFAR-10 columns of NSGen's tables 5, 8, 9 and 11 (tables 3, 4 and 12 stand with the study fuzzing)."""

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


ABSENT = (
    ("CIFAR-100, Oxford 102 Flower, ImageNet", "not available here, and the networks need a GPU"),
    ("ResNet50", "too large for two cores; cifar10-resnet20 stands in"),
    ("BERT, Roberta-L, GPT2, FastText, GloVe, CLIP (table 5)", "their weights come with no package; any callable can be given "
     "in Python"),
    ("tables 6 and 7 with MILAN's own annotations, CLIP and mpnet", "none of them is available here; ours is trained on its own "
     "corpus"),
    ("table 13", "retraining belongs to repair"),
    ("section 7.7", "people's ratings; `neurotest describe` writes the page they would be given"),
    ("figure 5", "seconds per fault are the column `fre` of table 3"),
    ("figure 8 by UMAP", "t-SNE of the last hidden layer: it is in scikit-learn and its seed is fixed"),
)  # fmt: skip


def rows() -> list[dict[str, Any]]:
    """Everything above as one table."""
    five = [
        ("5", model, name, *numbers)
        for name, columns in TABLE_5.items()
        for model, numbers in zip(("ResNet50", "VGG16_BN", "MobileNet_v2"), columns, strict=True)
    ]
    eight = [("8", "MobileNet_v2", f"top-{k} labels", *counts, None) for k, counts in TABLE_8.items()]
    nine = [("9", "", f"tau from {share} %", None, None, tau) for share, tau in TABLE_9.items()]
    eleven = [("11", "VGG16_BN", name, *counts, None) for name, counts in TABLE_11.items()]
    columns = ("table", "model", "what", "faults", "outputs", "value")
    return [dict(zip(columns, row, strict=True)) for row in (*five, *eight, *nine, *eleven)]
