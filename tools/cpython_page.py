"""Count CPython's tests that are captured whole.   records of `python -m tests.cpython`  ->  docs/cpython-tests.md

    python tools/cpython_page.py record 3.11 FILE...   replace the modules of these records in the store
    python tools/cpython_page.py page                  write the table of docs/cpython-tests.md; the text above it stays

A module counts once all its tests are in the files: of a test with several records, the last one counts.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
STORE, PAGE = DOCS / "cpython-tests.json", DOCS / "cpython-tests.md"
COUNTED = ("timeout", "different")
Counts = dict[str, dict[str, int]]


def counted(lines: list[str]) -> Counts:
    """Counts of each module: tests that pass in eager, and verdicts of their compiled runs."""
    last: dict[tuple[str, str], str] = {}
    for line in lines:
        record: dict[str, Any] = json.loads(line)
        if record["compiled"] is not None:
            last[record["module"], record["test"]] = record["verdict"]
    verdicts: dict[str, collections.Counter[str]] = {}
    for (module, _), verdict in last.items():
        verdicts.setdefault(module, collections.Counter())[verdict] += 1
    return {module: {"plain": found.total(), "whole": found["whole"], **{name: found[name] for name in COUNTED}}
            for module, found in sorted(verdicts.items())}


def table(store: dict[str, Counts]) -> str:
    versions = sorted(store, key=lambda version: tuple(map(int, version.split("."))))
    lines = ["| module | " + " | ".join(f"{version} whole | of" for version in versions) + " |",
             "|---" * (1 + 2 * len(versions)) + "|"]
    for module in sorted({module for counts in store.values() for module in counts}):
        cells = [(counts["whole"], counts["plain"]) if (counts := store[version].get(module)) else ("", "")
                 for version in versions]
        shown = " | ".join(f"{whole} | {of}" for whole, of in cells)
        lines.append(f"| {module.removeprefix('test_')} | {shown} |")
    return "\n".join(lines) + "\n"


def totals(counts: Counts) -> str:
    whole, plain = (sum(each[name] for each in counts.values()) for name in ("whole", "plain"))
    return f"{whole:,} of {plain:,} ({100 * whole / plain:.1f}%) in {len(counts)} modules"


def main(arguments: list[str]) -> int:
    store: dict[str, Counts] = json.loads(STORE.read_text())
    if arguments[:1] == ["record"] and len(arguments) > 2:
        lines = [line for path in arguments[2:] for line in Path(path).read_text().splitlines()]
        store.setdefault(arguments[1], {}).update(counted(lines))
        STORE.write_text(json.dumps(store, indent=1) + "\n")
    elif arguments != ["page"]:
        print(__doc__)
        return 2
    text = PAGE.read_text()
    PAGE.write_text(text[:text.index("| module |")] + table(store))
    for version, counts in store.items():
        print(version, totals(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
