"""The pages of docs/breaks/: one for each break code, their index, and an index by message.

In: the registry of break codes, programs with their remedies, and messages in the source text of `stator/`.
Out: Markdown files.  The index by message changes with any message; the check leaves it out.

    python -m tools.breaks_docs            writes them
    python -m tools.breaks_docs --check    exits with 1 if they are not up to date
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from stator.breaks import REGISTRY, BreakCode
from stator.report.break_pages import page, recompile_page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "breaks"
RAISING = {"Break", "declined", "refuse"}


def index(rows: list[BreakCode]) -> str:
    lines = ["# Break codes", "", "Written by `python -m tools.breaks_docs` from `stator/breaks.py`. `python -m stator "
             "code SB002` prints a page. [Messages](messages.md) lists codes by message, [recompiles](recompiles.md) "
             "causes of recompiles.", "",
             "| code | title | inherent |", "|---|---|---|"]
    lines += [f"| [{row.code}]({row.code}.md) | {row.title} | {'yes' if row.inherent else 'no'} |" for row in rows]
    return "\n".join(lines) + "\n"


def text_of(node: ast.expr) -> str | None:
    """The text of a message in the source: `...` for what is filled in; None for one that is not written there."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "..."
                       for part in node.values)
    return None


def messages() -> dict[str, set[str]]:
    """Codes by the message that breaks have in their place of the cause."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "stator").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or (
                    getattr(node.func, "id", getattr(node.func, "attr", "")) not in RAISING):
                continue
            named = [each.value for each in node.keywords if each.arg in ("code", "detail")]
            texts = [text_of(each) for each in (*node.args, *named)]
            code = next((text for text in texts if text in REGISTRY), None)
            message = next((text for text in texts if text is not None and text not in REGISTRY and " " in text), None)
            if code is not None and message is not None and message.strip(". "):
                found.setdefault(message, set()).add(code)
    return found


def message_index() -> str:
    lines = ["# Break codes by message", "", "Written by `python -m tools.breaks_docs` from the messages in the source "
             "text; `...` stands for names and values.", "", "| message | code |", "|---|---|"]
    rows = [row for row in messages().items() if re.search(r"[a-z]{3}", row[0])]  # `...: ...` would match anything
    for message, codes in sorted(rows, key=lambda row: row[0].lower().lstrip(". ")):
        links = ", ".join(f"[{code}]({code}.md)" for code in sorted(codes))
        lines.append(f"| {message.replace('|', chr(92) + '|').strip()} | {links} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name -> text."""
    rows = [REGISTRY[code] for code in sorted(REGISTRY)]
    return {"index.md": index(rows), "messages.md": message_index(), "recompiles.md": recompile_page(),
            **{f"{row.code}.md": page(row) for row in rows}}


def outdated(folder: Path) -> list[str]:
    """Files that are missing, different or left over."""
    wanted = pages()
    found = {path.name: path.read_text() for path in folder.glob("*.md")} if folder.is_dir() else {}
    return sorted(name for name in wanted.keys() | found.keys()
                  if wanted.get(name) != found.get(name) and (name != "messages.md" or name not in found))


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = outdated(FOLDER)
    if not arguments:
        stale = sorted({*stale, "messages.md"})
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
