"""Write docs/native.md from the native table.

    python -m tools.native_page            writes the page
    python -m tools.native_page --check    fails when the page is out of date

In: the rows. Out: one line per owner and class: which of its callables are in it. Another Python, torch or
numpy has other callables, so the page says what it was written for, and is compared only there.
"""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import fields
from pathlib import Path

import torch

from stator.native.rows_declare import ATTRIBUTE_ACCESS, C_ATTRIBUTES, NAMES, ROWS, optional_module
from stator.native.table import NativeClass, Row
from stator.native.torch_ops import leaves

PAGE = Path(__file__).resolve().parents[1] / "docs" / "native.md"

INTRODUCTION = """\
# The native table

Which C callables may run while a program is traced. This page is written by `python -m tools.native_page`.

The interpreter runs bytecode itself; C code it can only call. Calling it at trace time is right if it looks
only at what the heap has filled in and guarded, and changes only what the heap tracks. So each C callable has
a row, kept by the object itself, never by its name; a callable without a row is refused with break code SB001.

A letter after a name says more: `c` may call back into Python (a key function, `__eq__`, `__index__`), which
is then interpreted; `=` hashes or compares, so nested containers must be filled; `t` makes text of values;
`!` changes its first argument. Words in brackets say what it does with its arguments, as in `rows_declare.Row`.
Attributes of C types have rows too, since reading one runs C code. Types and modules that are refused whole
(sockets, processes, pickles, foreign code, arrays ...) are left out below.
"""

_REFUSED = (NativeClass.DENY, NativeClass.IMPURE_READ)


def written_for() -> str:
    """The versions that decide which callables exist."""
    numpy = optional_module("numpy")
    found = f"numpy {numpy.__version__}" if hasattr(numpy, "__version__") else "no numpy"
    return f"Written for CPython {platform.python_version()}, torch {torch.__version__} and {found}."


def letters(row: Row) -> str:
    """The marks behind a name: `list.sort` is `c=!`."""
    marks = (row.calls_back, "c"), (row.compares, "="), (row.formats, "t"), (row.mutates, "!")
    return "".join(letter for holds, letter in marks if holds)


def further_facts(row: Row) -> str:
    """Facts that rows_arguments adds: `list.append` has ` [stores]`."""
    held = [(each.name, getattr(row, each.name)) for each in FURTHER if getattr(row, each.name) != each.default]
    words = [name if value is True else f"{name} {value}" for name, value in held]
    return f" [{', '.join(words)}]" if words else ""


FURTHER = fields(Row)[[each.name for each in fields(Row)].index("calls_at"):]


def classes_section() -> list[str]:
    lines = ["## Classes", "", "| class | meaning |", "|---|---|"]
    lines += [f"| {cls.name} | {cls.value} |" for cls in NativeClass]
    lines += ["", f"Tensor computations are no rows: torch_ops.py lists {len(leaves())} leaves of torch; operators of "
              "`torch.ops` are leaves by their type."]
    return lines


def _may_run(row: Row) -> bool:
    """Every C type has slots for attribute access; they alone do not make a type usable."""
    return row.cls not in _REFUSED and row.why != ATTRIBUTE_ACCESS


def row_groups() -> dict[str, dict[tuple[str, str, str], list[str]]]:
    """Owner -> (class, code, why) -> names."""
    groups: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    used = {NAMES[key].rpartition(".")[0] for key, row in ROWS.items() if _may_run(row)}
    for key, row in ROWS.items():
        owner, _, name = NAMES[key].rpartition(".")
        if owner not in used or owner.partition(".")[0] == "optree":  # declared only where the program has it
            continue
        kind = " (attributes)" if isinstance(row.obj, C_ATTRIBUTES) else ""
        marks = letters(row)
        label = f"`{name}`" + (f" {marks}" if marks and not kind else "") + further_facts(row)
        groups.setdefault(owner, {}).setdefault((row.cls.name + kind, row.code, row.why), []).append(label)
    return groups


def render() -> str:
    """The whole page; the same table gives the same text."""
    lines = [INTRODUCTION, written_for(), "", *classes_section(), "", "## Rows", ""]
    for owner, classes in sorted(row_groups().items()):
        lines.append(f"**{owner}**" if owner else "**types**")
        lines.append("")
        for (cls, code, why), names in sorted(classes.items()):
            reason = " ".join(part for part in (code, why) if part)
            lines.append(f"- {cls}{f' ({reason})' if reason else ''}: {', '.join(sorted(names))}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write docs/native.md from the native table.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    options = parser.parse_args(arguments)
    text = render()
    if options.check:
        current = PAGE.read_text() if PAGE.exists() else ""
        if current and written_for() not in current:
            print("docs/native.md was written for other versions, and is not compared")
            return 0
        if current != text:
            print("docs/native.md is out of date: run python -m tools.native_page")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
