"""Print the page of a break code.   python -m stator code [SB003 | recompiles | words of a message]

In: a code, `recompiles`, or words.  Out: the page of the knowledge base, or the codes whose texts hold all the words;
without arguments, all codes.  Exit codes: 0; 2 where nothing is found.
"""

from __future__ import annotations

import sys

from stator.breaks import REGISTRY, BreakCode
from stator.report.break_pages import page, recompile_page
from stator.report.break_remedies import REMEDIES


def main(arguments: list[str]) -> None:
    if len(arguments) == 1 and arguments[0].upper() in REGISTRY:
        print(page(REGISTRY[arguments[0].upper()]), end="")
        return
    if arguments == ["recompiles"]:
        print(recompile_page(), end="")
        return
    words = " ".join(arguments).lower().split()
    found = [row for row in REGISTRY.values() if all(word in text_of(row) for word in words)]
    for row in found:
        print(f"{row.code}  {row.title}: {row.cause}")
    if not found:
        print(f"stator: no break code has {' '.join(arguments)!r}", file=sys.stderr)
        sys.exit(2)


def text_of(row: BreakCode) -> str:
    """Everything that the page of a code says."""
    causes = [each.cause for each in REMEDIES.get(row.code, [])]
    return " ".join([row.code, row.title, row.cause, row.example, row.remedy, *causes]).lower()
