"""Pages of the knowledge base, as Markdown.   SB003  ->  cause, example, remedy, programs before and after

In: a row of the registry of break codes.  Out: text, for docs/breaks and for `python -m stator code`.
"""

from __future__ import annotations

from stator.breaks import BreakCode
from stator.report.break_remedies import REMEDIES
from stator.report.recompile_remedies import RECOMPILES


def page(row: BreakCode) -> str:
    """One code, explained."""
    kind = ("Inherent: the value exists only at run time, or the program requested the break."
            if row.inherent else "A limit of Stator. A later version may remove it.")
    programs = "".join(f"## Program: {each.cause}\n\n{block(each.broken)}\n\nWith the remedy nothing breaks:\n\n"
                       f"{block(each.mended)}\n\n" for each in REMEDIES.get(row.code, []))
    return (f"# {row.code}: {row.title}\n\n{sentence(row.cause)}\n\n## Example\n\n{block(row.example)}\n\n"
            f"## What to do\n\n{sentence(row.remedy)}\n\n{programs}## Kind\n\n{kind}\n\n"
            f"{row.native} ([graph breaks](../graph-breaks.md)).\n")


def recompile_page() -> str:
    """Causes of recompiles, explained."""
    programs = "".join(f"## {each.cause}\n\n{block(each.broken)}\n\nCompiled once:\n\n{block(each.mended)}\n\n"
                       for each in RECOMPILES)
    return ("# Recompiles\n\nA guard of every entry failed, and the call was captured again. The message names the "
            "guard of the nearest entry, with the value before and now. Sizes and numbers become symbols at their "
            "second value; other values are compiled each, up to recompile_limit ([SB021](SB021.md)). "
            "[stator.contract](../contract.md) refuses calls that would be compiled again.\n\n"
            f"{programs.rstrip()}\n")


def block(source: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in source.strip().splitlines())


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
