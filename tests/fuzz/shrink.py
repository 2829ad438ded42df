"""Make a failing program small: delete statements, and unwrap compound ones, while it still fails.

In: the text of a program and a predicate that says whether a text still fails in the same way.
Out: the text of a program from which nothing more could be deleted.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
MOST_TRIALS = 400


def lists_of(node: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.AST]]]:
    for child in ast.walk(node):
        for name in BODIES:
            items = getattr(child, name, None)
            if isinstance(items, list) and items:
                yield child, name, items


def variants(source: str, only: str | None) -> Iterator[str]:
    """Texts with one deletion each, larger deletions first. `only` names the function to work in."""
    tree = ast.parse(source)
    root: ast.AST = tree
    if only is not None:
        root = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == only)
    for _owner, name, items in list(lists_of(root)):
        for index in range(len(items) - 1, -1, -1):
            item = items[index]
            if item is root:
                continue
            for replacement in replacements(item, name, len(items)):
                items[index : index + 1] = replacement
                yield ast.unparse(tree)
                items[index : index + len(replacement)] = [item]


def replacements(item: ast.AST, name: str, siblings: int) -> Iterator[list[ast.AST]]:
    if name in ("handlers", "cases"):
        yield []
        return
    yield [] if siblings > 1 or name in ("orelse", "finalbody") else [ast.Pass()]
    for part in ("body", "orelse", "finalbody"):
        inner = getattr(item, part, None)
        if isinstance(inner, list) and inner and not isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            yield inner


def shrink(source: str, fails: Callable[[str], bool], most: int = MOST_TRIALS) -> str:
    """Greedy: the first smaller text that fails becomes the program, until none does."""
    trials = 0
    source = ast.unparse(ast.parse(source))
    for only in ("program",):
        smaller = True
        while smaller and trials < most:
            smaller = False
            for text in variants(source, only):
                trials += 1
                if len(text) < len(source) and valid(text) and fails(text):
                    source, smaller = text, True
                    break
                if trials >= most:
                    break
    return source


def save(text: str, folder: Path, name: str) -> Path:
    """The small program as a regression, which the tests run from then on: only `program`, without the prelude."""
    tree = ast.parse(text)
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "program"]
    path = folder / f"{name}.py"
    path.write_text("".join(ast.unparse(node) + "\n" for node in kept))
    return path


def valid(text: str) -> bool:
    try:
        compile(text, "<variant>", "exec")
    except SyntaxError:  # e.g. a `break` left outside its loop
        return False
    return True
