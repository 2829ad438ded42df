"""Pages of the knowledge base, as Markdown.   SB003  ->  cause, example, remedy, programs before and after

In: a row of the registry of break codes.  Out: text, for docs/breaks and for `python -m stator code`.
"""

from __future__ import annotations

from stator.breaks import BreakCode
from stator.report.break_remedies import REMEDIES


def page(row: BreakCode) -> str:
    """One code, explained."""
    kind = ("Inherent: the value exists only at run time, or the program requested the break."
            if row.inherent else "A limit of Stator. A later version may remove it.")
    programs = "".join(f"## Program: {each.cause}\n\n{block(each.broken)}\n\nWith the remedy nothing breaks:\n\n"
                       f"{block(each.mended)}\n\n" for each in REMEDIES.get(row.code, []))
    return (f"# {row.code}: {row.title}\n\n{sentence(row.cause)}\n\n## Example\n\n{block(row.example)}\n\n"
            f"## What to do\n\n{sentence(row.remedy)}\n\n{programs}## Kind\n\n{kind}\n\n"
            f"This one instruction runs natively. Stator captures the code before and after it "
            f"([graph breaks](../graph-breaks.md)).\n")


def block(source: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in source.strip().splitlines())


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
