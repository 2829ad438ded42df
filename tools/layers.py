"""Find imports that point the wrong way.

In: the source text of every module of the package, by dotted name.  Out: one `Violation` for each rule that a
line breaks.

    python tools/layers.py        prints them, and exits with 1 if there are any

Sources are parsed, never imported: a wrong import must be found on a machine where it happens to work.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = "stator"

# Highest first. A layer may import every layer below it; layers on one line may not import one another,
# save in FOUNDATION, where only cycles are forbidden.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("__init__",),
    ("installation",),
    ("contracts", "dumps"),
    ("api",),
    ("remedies",),
    ("audit",),
    ("capture",),
    ("artifacts",),
    ("emit", "cache", "backends"),
    ("library",),
    ("interp",),
    ("native",),
    ("heap",),
    ("graph",),
    ("shapes",),
    ("guards",),
    ("source",),
    ("code",),
    ("ranks",),
    ("events", "errors", "breaks", "settings", "host"),
    ("_core", "_hook"),
)
FOUNDATION = {"events", "errors", "breaks", "settings", "host"}
LARGEST_ROOM = 25  # files in one folder
LONGEST_SUMMARY = 5  # lines that state the input and the output of a folder
RANK = {layer: len(LAYERS) - row for row, layers in enumerate(LAYERS) for layer in layers}

REPORT = "report"
REPORT_READS = FOUNDATION | {REPORT}  # what happened, from events; how to say it, from the rest
REPORT_READERS = {"__main__", "cli", "__init__", "installation", "contracts", "dumps", "api", "remedies"}

PEER = ("torch._dynamo", "torch._C._dynamo")
PEER_ALLOWED = {"backends"}
VERSION_FACTS = {"sys.version_info", "sys.hexversion"}
VERSION_ALLOWED = {"code"}
IMPORTERS = ("import_module", "__import__")
VAGUE_NAMES = {"utils", "util", "misc", "common", "helpers"}


class Violation(NamedTuple):
    module: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.rule}"


class Import(NamedTuple):
    """`target` is the module that gets loaded: a submodule where the name is one, else the package."""

    target: str
    line: int
    local: bool
    typing_only: bool  # under `if TYPE_CHECKING:`, which nothing loads


def read_package(root: Path) -> dict[str, str]:
    """Source text by dotted module name; a package's own text is under `<package>.__init__`."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sorted((root / PACKAGE).rglob("*.py"))
    }


def layer_of(module: str) -> str:
    """`stator.heap.tracker` -> `heap`; the package itself -> `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_of(module: str, tree: ast.Module, known: frozenset[str]) -> Iterator[Import]:
    """Every import of a module of the package, at the top of a module or inside a function."""
    unloaded = typing_only_nodes(tree)
    for node, local in walk_with_scope(tree, False):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(module, node)
            names = [f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names]
        else:
            continue
        for name in names:
            if name == PACKAGE or name.startswith(PACKAGE + "."):
                yield Import(loaded_module(name, known), node.lineno, local, node in unloaded)


def typing_only_nodes(tree: ast.Module) -> set[ast.AST]:
    """The statements in the bodies of `if TYPE_CHECKING:`."""
    return {
        child
        for node in tree.body
        if isinstance(node, ast.If) and (dotted_name(node.test) or "").endswith("TYPE_CHECKING")
        for child in node.body
    }


def absolute_base(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    base = module.split(".")[: -node.level]
    return ".".join([*base, *([node.module] if node.module else [])])


def loaded_module(name: str, known: frozenset[str]) -> str:
    """The module behind an imported name: drop what follows it (a function, a class)."""
    parts = name.split(".")
    while len(parts) > 1:
        dotted = ".".join(parts)
        if dotted in known:
            return dotted
        if dotted + ".__init__" in known:
            return dotted + ".__init__"
        if len(parts) == 2 and parts[1] in RANK:  # the extension modules have no Python source
            return dotted
        parts.pop()
    return PACKAGE + ".__init__"


def walk_with_scope(node: ast.AST, local: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, local
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk_with_scope(child, local or inside)


def direction_problem(importer: str, target: str) -> str | None:
    """Why the layer `importer` may not import the layer `target`, or None."""
    if importer == REPORT:
        return None if target in REPORT_READS else f"report reads events alone, and imports {target}"
    if target == REPORT:
        readers = ", ".join(sorted(REPORT_READERS))
        return None if importer in REPORT_READERS else f"{importer} imports report: only these may: {readers}"
    for layer in (importer, target):
        if layer not in RANK:
            return f"{PACKAGE}.{layer} is in no layer of tools/layers.py"
    if importer == target or RANK[importer] > RANK[target]:
        return None
    if importer in FOUNDATION and target in FOUNDATION:
        return None
    place = "beside" if RANK[importer] == RANK[target] else "above"
    return f"{importer} imports {target}, which is {place} it"


def dotted_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def mentioned_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Dotted names that are read or imported, and strings that are handed to an import function.

    An object in a list of objects, `(sys.version_info, sys.flags)`, is not read for what it says.
    """
    listed = {
        element
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple | ast.List | ast.Set)
        for element in node.elts
        if dotted_name(element) in VERSION_FACTS
    }
    for node in ast.walk(tree):
        if node in listed:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            name = dotted_name(node)
            if name is not None:
                yield name, node.lineno
        elif isinstance(node, ast.Call) and (dotted_name(node.func) or "").endswith(IMPORTERS):
            yield from (
                (argument.value, node.lineno)
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )


def name_problems(module: str, tree: ast.Module) -> Iterator[Violation]:
    layer = layer_of(module)
    seen: set[tuple[str, int]] = set()
    for name, line in mentioned_names(tree):
        for forbidden, allowed in ((PEER, PEER_ALLOWED), (tuple(VERSION_FACTS), VERSION_ALLOWED)):
            for prefix in forbidden:
                if layer in allowed or (prefix, line) in seen:
                    continue
                if name == prefix or name.startswith(prefix + "."):
                    seen.add((prefix, line))
                    yield Violation(module, line, f"{prefix} outside {PACKAGE}/{'|'.join(sorted(allowed))}")


def cycles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Each import cycle once, as the path that closes it (depth first)."""
    finished: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        if module in path:
            yield [*path[path.index(module) :], module]
            return
        if module in finished:
            return
        path.append(module)
        for target in sorted(graph.get(module, ())):
            yield from visit(target)
        path.pop()
        finished.add(module)

    for module in sorted(graph):
        yield from visit(module)


def room_of(module: str, known: frozenset[str]) -> str:
    """The room of a module: its folder.  A module beside sub-folders is a room of its own.

        stator.graph.fx.nodes -> graph.fx;   stator.interp.frame, beside interp/objects -> interp.frame
    """
    folder, _, name = module.rpartition(".")
    depth = folder.count(".") + 2
    divided = any(other.startswith(folder + ".") and other.count(".") >= depth for other in known)
    return (f"{folder}.{name}" if divided and name != "__init__" else folder).partition(".")[2]


def room_problems(graph: Mapping[str, set[str]], known: frozenset[str]) -> Iterator[Violation]:
    """Folders that are too large, and rooms that import one another in a circle."""
    files: dict[str, int] = {}
    for module in known:
        folder = module.rpartition(".")[0]
        files[folder] = files.get(folder, 0) + 1
    for folder, count in sorted(files.items()):
        if count > LARGEST_ROOM:
            yield Violation(folder, 1, f"{count} files in one folder, more than {LARGEST_ROOM}")
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if module.endswith(".__init__"):  # a folder's own file names what is in it
            continue
        here = room_of(module, known)
        there = {room_of(target, known) for target in targets if not target.endswith(".__init__")}
        rooms.setdefault(here, set()).update(there - {here})
    for path in cycles(rooms):
        yield Violation(path[0], 1, "rooms import one another: " + " -> ".join(path))


def folder_problems(sources: Mapping[str, str]) -> Iterator[Violation]:
    """Folders whose `__init__.py` does not state their input and their output in a few lines."""
    for folder in sorted({module.rpartition(".")[0] for module in sources}):
        text = sources.get(f"{folder}.__init__")
        summary = ast.get_docstring(ast.parse(text)) if text is not None else None
        if text is None:
            yield Violation(folder, 1, "a folder without __init__.py")
        elif summary is None or not ("->" in summary or "In:" in summary and "Out:" in summary):
            yield Violation(folder, 1, "__init__.py states no input and output")
        elif summary.count("\n") >= LONGEST_SUMMARY:
            yield Violation(folder, 1, f"__init__.py states input and output in more than {LONGEST_SUMMARY} lines")


def violations(sources: Mapping[str, str]) -> list[Violation]:
    """All broken rules, in the order of the modules."""
    known = frozenset(sources)
    found: list[Violation] = []
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        tree = ast.parse(text)
        if set(module.split(".")) & VAGUE_NAMES:
            found.append(Violation(module, 1, "a module's name says what it owns"))
        found.extend(name_problems(module, tree))
        for target, line, local, typing_only in imports_of(module, tree, known):
            if local:
                found.append(Violation(module, line, f"imports {target} inside a function"))
            problem = direction_problem(layer_of(module), layer_of(target))
            if problem:
                found.append(Violation(module, line, problem))
            if not typing_only:  # such an import points down as others do, and closes no cycle
                graph.setdefault(module, set()).add(target)
    found.extend(Violation(path[0], 1, "import cycle: " + " -> ".join(path)) for path in cycles(graph))
    found.extend(room_problems(graph, known))
    return found


if __name__ == "__main__":
    package = read_package(Path(__file__).resolve().parent.parent)
    problems = [*violations(package), *folder_problems(package)]
    sys.exit("\n".join(map(str, problems)) if problems else 0)
