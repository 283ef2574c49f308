"""One table of what `neurotest study NAME --json` measured, as Markdown.

neurotest study NAME --json | python lab/scripts/study_tables.py WORD [COLUMN ...]

WORD: how the table's title begins. COLUMN: only these columns, in this order; without any all of them. Rows that have none of a
column's values leave its cells empty.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    word, *wanted = sys.argv[1:]
    tables = json.load(sys.stdin)["tables"]
    titles = [title for title in tables if title.startswith(word)]
    if len(titles) != 1:
        sys.exit(f"{word}: expected the beginning of one title of {', '.join(tables)}")
    rows = tables[titles[0]]
    columns = wanted or list(dict.fromkeys(name for row in rows for name in row))
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(shown(row.get(name)) for name in columns)} |")


if __name__ == "__main__":
    main()
