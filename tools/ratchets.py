"""Hold what the code base has reached.   sizes of classes, files and of the whole; annotations of `Any`; names of files

    python tools/ratchets.py            prints broken rules, and exits with 1 if there are any
    python tools/ratchets.py --update   lowers the stored numbers to what the tree has; never raises one
    python tools/ratchets.py --rooms    prints the lines of each room of `stator/`

In: the texts of `stator/` and `csrc/`, `docs/glossary.md`, and `tools/ratchets.json` with the stored numbers.
Out: one line for each broken rule:

- a class has at most 15 attributes: names assigned on `self` in its body, and annotated fields;
- the number of annotations that are just `Any` only falls;
- a file has at most 500 lines, a function at most 60; one that is longer is stored, and only shrinks;
- every word of a file name in `stator/` is in the glossary, in torch's or CPython's vocabulary, or plain English.

How many files a folder may have is checked by `tools/layers.py`.
"""

from __future__ import annotations

import ast
import collections
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "tools" / "ratchets.json"
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
MOST_ATTRIBUTES = 15
MOST_EXCEPTIONS = 5
LARGE_CLASSES = {
    "stator/interp/frame.py:Frame": "mirrors CPython's frame, one attribute for each of its fields",
    "stator/native/rows_declare.py:Row": "every fact about a C function, one field for each",
    "stator/settings/options.py:Settings": "the options of compile(), one attribute for each that a user may give",
}

# Words of torch's and CPython's documentation.
VOCABULARY = frozenset("""dataclass fields
abstract aot api argument arithmetic array assert assertion assignment async attention attribute autograd backend
backward binding builtin cache call callable checkpoint class comparison compilation compile compiled compiler cond
constant container context copied copies copying cuda data decimal decode default delegation deprecation descriptor
device dimension dispatch distributed double dropout eager effect encode environment error exception fake file filter
flag float flow forward frame frozen func function generator global grad gradient graph guard hashing hook identity
immutable import index inductor inherited input instance instantiation instruction intrinsic introspection io item
iteration iterator joins kernel layer layout lazy leaf library list local lock logging lookup membership memory meta
metadata method mode model module mutation name namespace naming nested node noted number numpy object op opcode
operation operator optimizer option optree output package partition patch pickling pieces polyfill printing
propagation protocol random range raw recompile record recorded recurrent reference repro returned rng runtime scalar
scope set setting shape signal size stack state static statistics stream subclass subgraph sum suspended symbol
symbolic system table tensor text torch trace traceback traced transform transformed type unittest value variable
varying view vm vmap warning weak wrapper
""".split())

# Plain English, as few as there are.
PLAIN = frozenset("""
access address advance ahead algorithm allowed and asserted auditor blank bodies bookkeeping boundaries branch
building captured catcher change check config content count declare decomposed deferred demo docs dropped enclosing
event explanation exposure fail failed failing family finding follow forced form formatting full generation group
handled handler handover held hidden higher histories idle init installation installed interpreter kept keypath kind
known length lifetime line liveness llama located lower machine made main maker mark marked may miss named new open
order original overlapping own owner pattern peekable place plain policies policy probe process profile progress pure
queries quiet reach reader recorder recording refused registered registry remade render repeat replaced replayed run
running saved search semantics shared sharing shown since small stance stator step straight suspend template trial
uncertain unread verify writer
""".split())


# ---------------------------------------------------------------------- measures


def python_sources(root: Path) -> dict[str, str]:
    """The package's modules, by path."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "stator").rglob("*.py"))}


def native_sources(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "csrc").rglob("*.c*"))}


@functools.lru_cache(maxsize=None)
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text)))


def attributes_of(cls: ast.ClassDef) -> set[str]:
    """Names assigned on `self`, and annotated fields."""
    fields = [each.target for each in cls.body if isinstance(each, ast.AnnAssign)]
    found = {target.id for target in fields if isinstance(target, ast.Name)}
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) \
                and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def annotations(text: str) -> Iterator[ast.expr | None]:
    for node in nodes_of(text):
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.returns


def count_any(sources: Mapping[str, str]) -> int:
    """Annotations that are just `Any`."""
    return sum(isinstance(each, ast.Name) and each.id == "Any"
               for text in sources.values() for each in annotations(text))


def lines_of_rooms(sources: Mapping[str, str]) -> dict[str, int]:
    """Lines of each room, the largest first."""
    found: collections.Counter[str] = collections.Counter()
    for path, text in sources.items():
        found["/".join(path.split("/")[:-1][:3])] += text.count("\n")
    return dict(found.most_common())


def long_files(sources: Mapping[str, str]) -> dict[str, int]:
    return {path: text.count("\n") for path, text in sources.items() if text.count("\n") > LONGEST_FILE}


def functions_of(text: str) -> Iterator[tuple[str, int]]:
    """Qualified name and lines of each function."""
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{prefix}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    yield name[:-1], (child.end_lineno or child.lineno) - child.lineno + 1
            yield from walk(child, name)

    return walk(ast.parse(text), "")


def long_functions(sources: Mapping[str, str]) -> dict[str, int]:
    return {f"{path}:{name}": lines for path, text in sources.items() for name, lines in functions_of(text)
            if lines > LONGEST_FUNCTION}


def glossary_words(text: str) -> set[str]:
    """Words that the table of the glossary defines."""
    rows = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.split(r"[\s-]+", row.lower().strip("` "))}


# ---------------------------------------------------------------------- rules


def large_classes(sources: Mapping[str, str], exceptions: Mapping[str, str]) -> Iterator[str]:
    if len(exceptions) > MOST_EXCEPTIONS:
        yield f"{len(exceptions)} classes are excepted, more than {MOST_EXCEPTIONS}"
    large = set()
    for path, text in sources.items():
        for node in nodes_of(text):
            if isinstance(node, ast.ClassDef) and len(attributes_of(node)) > MOST_ATTRIBUTES:
                large.add(name := f"{path}:{node.name}")
                if not exceptions.get(name):
                    yield f"{name} has {len(attributes_of(node))} attributes, more than {MOST_ATTRIBUTES}"
    for name in sorted(set(exceptions) - large):
        yield f"{name} is no exception any more"


def too_many_any(sources: Mapping[str, str], stored: int) -> Iterator[str]:
    if (count := count_any(sources)) > stored:
        yield f"{count} annotations are Any, more than the {stored} that there were"


def too_long(measured: Mapping[str, int], stored: Mapping[str, int], most: int) -> Iterator[str]:
    for name, count in measured.items():
        if count > stored.get(name, most):
            yield f"{name} has {count} lines, more than {stored.get(name, most)}"


def unknown_words(paths: Iterator[str] | list[str], glossary: set[str]) -> Iterator[str]:
    known = glossary | VOCABULARY | PLAIN
    for path in paths:
        for word in re.findall(r"[a-z]+", Path(path).stem):
            if not {word, word.removesuffix("s"), word.removesuffix("es")} & known:
                yield f"{path}: `{word}` is in no list of words; define it in docs/glossary.md or use the field's word"


def problems(root: Path, stored: Mapping[str, Any]) -> list[str]:
    """All broken rules of a tree."""
    sources = python_sources(root)
    return [*large_classes(sources, LARGE_CLASSES), *too_many_any(sources, stored["any"]),
            *too_long(long_files({**sources, **native_sources(root)}), stored["long_files"], LONGEST_FILE),
            *too_long(long_functions(sources), stored["long_functions"], LONGEST_FUNCTION),
            *unknown_words(list(sources), glossary_words((root / "docs" / "glossary.md").read_text()))]


def lowered(stored: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """The stored numbers, each replaced by a smaller measured one; what is short enough is dropped."""
    def shrunk(kind: str) -> dict[str, int]:
        lengths, now = stored[kind], measured[kind]
        return {name: min(lengths[name], now[name]) for name in lengths if name in now}

    return {"any": min(stored["any"], measured["any"]), "long_files": shrunk("long_files"),
            "long_functions": shrunk("long_functions")}


def measure(root: Path) -> dict[str, Any]:
    sources = python_sources(root)
    return {"any": count_any(sources), "long_files": long_files({**sources, **native_sources(root)}),
            "long_functions": long_functions(sources)}


def main(arguments: list[str]) -> int:
    stored = json.loads(STORE.read_text())
    if "--rooms" in arguments:
        rooms = lines_of_rooms(python_sources(ROOT))
        print("\n".join(f"{lines:7,} {room}" for room, lines in [*rooms.items(), ("all", sum(rooms.values()))]))
        return 0
    if "--update" in arguments:
        stored = lowered(stored, measure(ROOT))
        STORE.write_text(json.dumps(stored, indent=2) + "\n")
    found = problems(ROOT, stored)
    print("\n".join(found) or f"{stored['any']} annotations of Any, {len(LARGE_CLASSES)} large classes, "
          f"{len(stored['long_files'])} long files, {len(stored['long_functions'])} long functions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
