"""The pages of docs/breaks/, one for each break code, and their index.

In: the registry of break codes, and programs with their remedies.  Out: Markdown files.

    python -m tools.breaks_docs            writes them
    python -m tools.breaks_docs --check    exits with 1 if they are not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from stator.breaks import REGISTRY, BreakCode
from tools.break_remedies import REMEDIES

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "breaks"


def page(row: BreakCode) -> str:
    """One code, explained."""
    kind = ("Inherent: the value exists only at run time, or the program requested the break."
            if row.inherent else "A limit of Stator. A later version may remove it.")
    example = "\n".join(f"    {line}" for line in row.example.splitlines())
    programs = "".join(f"## Program: {each.cause}\n\n{block(each.broken)}\n\nWith the remedy it is one graph:\n\n"
                       f"{block(each.mended)}\n\n" for each in REMEDIES.get(row.code, []))
    return (f"# {row.code}: {row.title}\n\n{sentence(row.cause)}\n\n## Example\n\n{example}\n\n"
            f"## What to do\n\n{sentence(row.remedy)}\n\n{programs}## Kind\n\n{kind}\n\n"
            f"This one instruction runs natively. Stator captures the code before and after it "
            f"([graph breaks](../graph-breaks.md)).\n")


def block(source: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in source.strip().splitlines())


def sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def index(rows: list[BreakCode]) -> str:
    lines = ["# Break codes", "", "Written by `python -m tools.breaks_docs` from `stator/breaks.py`.", "",
             "| code | title | inherent |", "|---|---|---|"]
    lines += [f"| [{row.code}]({row.code}.md) | {row.title} | {'yes' if row.inherent else 'no'} |" for row in rows]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name -> text."""
    rows = [REGISTRY[code] for code in sorted(REGISTRY)]
    return {"index.md": index(rows), **{f"{row.code}.md": page(row) for row in rows}}


def outdated(folder: Path) -> list[str]:
    """Files that are missing, different or left over."""
    wanted = pages()
    found = {path.name: path.read_text() for path in folder.glob("*.md")} if folder.is_dir() else {}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = outdated(FOLDER)
    if arguments:
        print("\n".join(f"docs/breaks/{name} is not up to date" for name in stale), file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in pages():
            (FOLDER / name).write_text(pages()[name])
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
