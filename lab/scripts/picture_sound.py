"""The pictures and sounds of docs/sound.md: a fault of the swarm at 30 dB on a spoken digit, beside its seed.

python lab/scripts/picture_sound.py
"""

from __future__ import annotations

import base64
from pathlib import Path

from neurotest_lab.studies.speaker.cells import examples

PLACE = Path(__file__).parents[2] / "docs" / "img"


def main() -> None:
    row = examples("spoken-melnet", 7, 4)["examples"][0]
    for what in ("seed", "change", "result"):
        for ending in ("png", "wav"):
            if content := row.get(f"{what} {ending}"):
                (PLACE / f"sound-{what}.{ending}").write_bytes(base64.b64decode(content))
    print(f"{row['said']} taken for {row['heard']}, after {row['evaluations']} evaluations")


if __name__ == "__main__":
    main()
