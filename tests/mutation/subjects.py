"""Mechanisms that can be switched off in Stator, one at a time.

In: the modules of `stator`, all but those that ASIDE names.  Out: `Mutant`s: each replaces the code of one function, the
class of one row of the native table or one kind of guard, in this very process, and says so in words.

A function's code object is replaced, not its name, so that everybody who has imported the function gets the mutant.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import inspect
import json
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stator
from stator.guards.guard import Kind
from stator.guards.guard_set import GuardSet
from stator.native import rows_declare
from tests.mutation.core_faults import numbered
from tests.mutation.switch import has_faults, turn_on

STATOR = Path(stator.__file__).parent
# Modules that are no subjects, and why.
ASIDE = {
    "__main__": "what is run from a shell",
    "cli": "what is run from a shell",
    "report": "text made from events; nothing is computed from it",
}
# What describes, counts or lets go changes no result; what it writes has tests of its own.
NOT_LAWS = ("__init__", "__repr__", "__str__", "text", "describe", "release", "render")
RESULTS: dict[str, tuple[str, ...]] = {
    "bool": ("True", "False"), "TypeGuard": ("True", "False"), "int": ("0",), "str": ("''",), "None": ("None",),
    "list": ("[]",), "dict": ("{}",), "set": ("set()",), "tuple": ("()",), "Iterator": ("iter(())",),
}  # fmt: skip


WRITTEN = (types.FunctionType, functools._lru_cache_wrapper)
CONTEXT = contextlib.contextmanager(iter).__code__  # of every function that contextmanager() makes


@dataclass(frozen=True)
class Mutant:
    """One thing switched off."""

    name: str
    apply: Callable[[], None]
    function: str
    entered: types.CodeType | None  # tests that never enter this code cannot notice

    def __repr__(self) -> str:
        return self.name


def module_files() -> Iterator[Path]:
    """The modules that are subjects."""
    aside = {STATOR / name for name in ASIDE} | {STATOR / f"{name}.py" for name in ASIDE}
    for file in sorted(STATOR.rglob("*.py")):
        if not aside & {file, *file.parents}:
            yield file


def modules(about: str = "") -> Iterator[types.ModuleType]:
    """The subjects, or those of them that a text names: `graph.record`."""
    for file in module_files():
        parts = file.relative_to(STATOR.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name.partition(".")[2] in about or not about:
            yield importlib.import_module(name)


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """Functions and methods that the module itself defines, by qualified name."""
    for name, value in sorted(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            for attribute, member in vars(value).items():
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, types.FunctionType) and member.__module__ == module.__name__:
                    yield f"{name}.{attribute}", member
        elif isinstance(value, WRITTEN) and value.__module__ == module.__name__:
            yield name, value


def is_trivial(code: types.CodeType) -> bool:
    """A body that already does nothing, or only raises."""
    names = [i.opname for i in dis.get_instructions(code) if i.opname not in ("RESUME", "CACHE", "COPY_FREE_VARS")]
    return names[:2] == ["LOAD_CONST", "RETURN_VALUE"] or names[:1] == ["RETURN_CONST"] or len(names) < 4


def bodies_of(function: types.FunctionType, is_context: bool) -> tuple[tuple[str, str], ...]:
    """Bodies of mutants of the function, in words and as a statement, from the annotation of the result."""
    if is_context:
        return (("does nothing around the block", "yield None"),)
    if function.__code__.co_flags & inspect.CO_GENERATOR:
        return (("yields nothing", "yield from ()"),)
    annotation = str(function.__annotations__.get("return", "None"))
    results = RESULTS.get(annotation.partition("[")[0], ("None",))
    return tuple((f"returns {result}", f"return {result}") for result in results)


@functools.cache
def doing(free: tuple[str, ...], statement: str) -> types.CodeType:
    """Code that takes any arguments and does only the statement."""
    names = ", ".join(free)  # a function keeps its cells: the new code must name as many
    kept = f"    {names.replace(',', ' =')} = None\n" if free else ""
    used = f"        if 0: {names}\n" if free else ""
    source = f"def outer():\n{kept}    def mutant(*a, **k):\n{used}        {statement}\n    return mutant\n"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["outer"]().__code__


def of_functions(about: str = "") -> Iterator[Mutant]:
    for module in modules(about):
        for name, outer in functions_of(module):
            function = inspect.unwrap(outer)
            if function.__code__.co_filename != module.__file__:  # a dataclass's own
                continue
            if name.rpartition(".")[2] in NOT_LAWS or is_trivial(function.__code__):
                continue
            short = f"{module.__name__.removeprefix('stator.')}.{name}"
            for does, statement in bodies_of(function, getattr(outer, "__code__", None) is CONTEXT):
                changed = doing(function.__code__.co_freevars, statement)

                def apply(function: types.FunctionType = function, changed: types.CodeType = changed) -> None:
                    function.__code__ = changed

                yield Mutant(f"{short} {does}", apply, short, function.__code__)


def of_guard_kinds() -> Iterator[Mutant]:
    for kind in Kind:
        def apply(kind: Kind = kind) -> None:
            keep = GuardSet.add
            GuardSet.add = lambda self, guard: guard.kind is not kind and keep(self, guard)  # type: ignore[method-assign]

        yield Mutant(f"no guards of kind {kind.name}", apply, "guards.guard_set.GuardSet.add", GuardSet.add.__code__)


def of_rows() -> Iterator[Mutant]:
    """Each class of the native table, treated as if its rows were pure; and pure rows unknown."""
    pure = rows_declare.NativeClass.PURE
    for cls in rows_declare.NativeClass:
        def apply(cls: Any = cls) -> None:
            for key, row in list(rows_declare.ROWS.items()):
                if row.cls is cls:
                    if cls is pure:
                        del rows_declare.ROWS[key]
                    else:
                        object.__setattr__(row, "cls", pure)

        yield Mutant(f"rows of class {cls.name} {'are unknown' if cls is pure else 'are pure'}", apply, "native.rows", None)


def of_core() -> Iterator[Mutant]:
    """The faults of a core that was built with them (see faulty_core)."""
    if has_faults():
        for number, fault in numbered():
            yield Mutant(fault.mutant, functools.partial(turn_on, number), fault.mutant, None)


_IMPORTING = """
import json, sys
seen = set()
def see(frame, event, argument):
    if event == "call":
        seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
sys.setprofile(see)
from tests.mutation.subjects import modules
list(modules())
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""


def run_at_import(mutants: list[Mutant]) -> set[str]:
    """Those whose function runs while Stator is imported: switched off later, it shows nothing."""
    said = subprocess.run([sys.executable, "-c", _IMPORTING], check=True, capture_output=True, text=True).stdout
    seen = {tuple(place) for place in json.loads(said.splitlines()[-1])}
    return {each.name for each in mutants
            if each.entered is not None and (each.entered.co_filename, each.entered.co_firstlineno) in seen}


def all_mutants() -> list[Mutant]:
    assert stator.__file__ is not None
    return [*of_guard_kinds(), *of_rows(), *of_core(), *of_functions()]
