"""Write the bundle of Vega, Vega-Lite and Vega-Embed that pages carry, as the installed vl-convert has it.

    python scripts/vendor_vega.py            # writes src/neurotest/report/templates/vendor/vega.js.gz

Names inside the bundle differ from one call to the next: the file changes though the versions do not.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import vl_convert

PLACE = Path(__file__).parents[1] / "src/neurotest/report/templates/vendor/vega.js.gz"


def main() -> int:
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub asks for what has a default
    if "</script" in bundle.lower():
        print("the bundle cannot stand in a page: it holds the end of a script", file=sys.stderr)
        return 1
    content = bundle.encode()
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    PLACE.write_bytes(gzip.compress(content, 9, mtime=0))
    versions = f"Vega {vl_convert.get_vega_version()}, Vega-Embed {vl_convert.get_vega_embed_version()}"
    print(
        f"{versions}, Vega-Lite {vl_convert.get_vegalite_versions()[-1]}: {len(content):,} bytes, {PLACE.stat().st_size:,} packed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
