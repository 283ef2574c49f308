"""CIFAR-10 columns of NSGen's tables 3, 4 and 12 (the other data sets cannot be rerun here)."""

from __future__ import annotations

MODELS = ("ResNet50", "VGG16_BN", "MobileNet_v2")
CRITERIA = ("nc", "kmnc", "nbc", "snac", "tknc", "tknp", "cc", "lsc", "dsc", "mdsc", "cac", "nlc", "nsgen")

# (faults, outputs) per model; None: not reported. VGG/CAC's printed RFT (0.4965) does not fit its counts.
TABLE_3: dict[str, tuple[tuple[int, int] | None, ...]] = {
    "nc": ((1252, 1897), (765, 1088), (254, 464)),
    "kmnc": ((5157, 9889), (4017, 8481), (5243, 9916)),
    "nbc": ((2297, 4918), (748, 2202), (1962, 4557)),
    "snac": ((1656, 3795), (646, 1757), (1359, 3291)),
    "tknc": ((1042, 1608), (837, 1230), (300, 546)),
    "tknp": ((0, 1), (1, 1), (0, 1)),
    "cc": ((55, 84), (106, 167), (25, 53)),
    "lsc": ((101, 117), (525, 569), (77, 82)),
    "dsc": ((877, 888), (1381, 1393), (1408, 1418)),
    "mdsc": ((5146, 5733), None, (2830, 3460)),
    "cac": ((1080, 2775), (2628, 3293), (1731, 3803)),
    "nlc": ((5010, 10000), (5344, 9979), (5418, 10000)),
    "nsgen": ((8075, 10000), (8393, 9995), (8671, 9997)),
}

# (classes, output impartiality) per model; TKNP/VGG repeats the row of KMNC in print.
TABLE_4: dict[str, tuple[tuple[int, float | None] | None, ...]] = {
    "nc": ((10, 0.9737), (10, 0.9707), (10, 0.9762)),
    "kmnc": ((10, 0.9428), (10, 0.9640), (10, 0.9400)),
    "nbc": ((10, 0.9779), (10, 0.9787), (10, 0.9762)),
    "snac": ((10, 0.9818), (10, 0.9790), (10, 0.9811)),
    "tknc": ((10, 0.9723), (10, 0.9727), (10, 0.9809)),
    "tknp": ((1, None), (10, 0.9640), (0, None)),
    "cc": ((10, 0.9869), (10, 0.9941), (10, 0.9741)),
    "lsc": ((10, 0.8477), (10, 0.7581), (10, 0.8525)),
    "dsc": ((10, 0.7813), (10, 0.8374), (9, 0.6573)),
    "mdsc": ((10, 0.8399), (10, 0.9613), (10, 0.9613)),
    "cac": ((10, 0.9610), (10, 0.9385), (10, 0.9385)),
    "nlc": ((10, 0.9226), (10, 0.8693), (10, 0.9061)),
    "nsgen": ((10, 0.8515), (10, 0.8782), (10, 0.8540)),
}

# faults of 1,000 outputs (TKNP: of 1), and output impartiality
TABLE_12: dict[str, tuple[tuple[int, float | None] | None, ...]] = {
    "nc": ((564, 0.9692), (667, 0.9731), (436, 0.9781)),
    "kmnc": ((334, 0.9667), (363, 0.9469), (362, 0.9546)),
    "nbc": ((367, 0.9640), (367, 0.9667), (400, 0.9703)),
    "snac": ((371, 0.9748), (393, 0.9642), (392, 0.9582)),
    "tknc": ((590, 0.9714), (622, 0.9669), (455, 0.9800)),
    "tknp": ((0, None), (1, None), (0, None)),
    "cc": ((662, 0.9695), (642, 0.9675), (710, 0.9667)),
    "lsc": ((754, 0.8920), (885, 0.7677), (747, 0.8944)),
    "dsc": ((957, 0.8962), (987, 0.8127), (990, 0.7500)),
    "mdsc": ((870, 0.8914), None, (826, 0.8546)),
    "cac": ((330, 0.9713), (315, 0.9592), (397, 0.9528)),
    "nlc": ((330, 0.9654), (401, 0.9352), (388, 0.9455)),
    "nsgen": ((800, 0.8601), (828, 0.7734), (861, 0.8323)),
}


def counts(protocol: str, guide: str, column: int | None) -> dict[str, object]:
    """Printed counts for a row of ours; None where there are none."""
    row = None
    if column is not None and guide in CRITERIA:
        if protocol == "iterations":
            row = TABLE_3[guide][column]
        elif protocol == "outputs" and (twelfth := TABLE_12[guide][column]):
            row = twelfth[0], 1 if guide == "tknp" else 1000
    return {"paper faults": row and row[0], "paper outputs": row and row[1]}


def classes(guide: str, column: int | None) -> dict[str, object]:
    row = TABLE_4[guide][column] if column is not None and guide in CRITERIA else None
    return {"paper classes": row and row[0], "paper oi": row and row[1]}


def rows() -> list[dict[str, object]]:
    """All three side by side, as printed."""
    return [
        {
            "model": f"{model}/CIFAR-10", "guide": criterion, "faults": third and third[0], "outputs": third and third[1],
            "rft": round(third[0] / third[1], 4) if third else None, "classes": fourth and fourth[0], "oi": fourth and fourth[1],
            "faults of 1,000 outputs": twelfth and twelfth[0], "oi of 1,000 outputs": twelfth and twelfth[1],
        }
        for column, model in enumerate(MODELS)
        for criterion in CRITERIA
        for third, fourth, twelfth in [(TABLE_3[criterion][column], TABLE_4[criterion][column], TABLE_12[criterion][column])]
    ]  # fmt: skip
