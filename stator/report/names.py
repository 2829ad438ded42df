"""Names as the user writes them.   args[0] -> x;   self_2.scale -> model.layers[1].scale;   stack -> iter(model.layers)

In: the function, the resume point and the values of one call; or a root module and modules inside it.
Out: `events.Terms`, pairs of a name in guards and the user's expression; `translate` puts them into a text.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Protocol, cast

from stator import events
from stator.report.frames import is_library

ROOT = "model"


class Step(Protocol):
    """A source: where a value comes from."""

    @property
    def base(self) -> Step | None: ...


class Placed(Protocol):
    """A guard: what it is about, and the line that needed it."""

    @property
    def source(self) -> Step: ...

    @property
    def where(self) -> tuple[str, int, str] | None: ...


class State(Protocol):
    """One suspended frame."""

    @property
    def code(self) -> CodeType: ...

    def places(self) -> list[tuple[str, int]]: ...


class Point(Protocol):
    """Where a call goes on after a break."""

    @property
    def names(self) -> list[str]: ...

    @property
    def states(self) -> Sequence[State]: ...


PLUMBING = {"_wrapped_call_impl", "_call_impl"}  # methods of torch.nn.Module between a call and `forward`


def is_module(value: object) -> bool:
    """By the C type alone: nothing of the user is called or filled."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.nn.Module)


def members(root: object, path: str = ROOT, seen: set[int] | None = None) -> Iterator[tuple[object, str]]:
    """Every module inside a module, with the way to it; no code of the user is called."""
    seen = set() if seen is None else seen
    if id(root) in seen:
        return
    seen.add(id(root))
    yield root, path
    for name, child in list(object.__getattribute__(root, "__dict__").get("_modules", {}).items()):
        if child is not None:
            yield from members(child, f"{path}[{name}]" if name.isdigit() else f"{path}.{name}", seen)


def user_lines(guards: Sequence[Placed]) -> Callable[[Placed], tuple[str, int] | None]:
    """Find the user's line behind a guard: for torch's lines, the line that first read what they look into."""
    own = {each.source: each.where[:2] for each in reversed(guards) if each.where and not is_library(each.where[0])}

    def line_of(guard: Placed) -> tuple[str, int] | None:
        source = guard.source if guard.where and is_library(guard.where[0]) else None
        while source is not None and source not in own:
            source = source.base
        return own[source] if source is not None else guard.where and guard.where[:2]

    return line_of


class UserNames(events.Names):
    """Modules by the way from the compiled one, arguments by the parameters of `forward`."""

    def modules(self, root: object, wanted: Sequence[object]) -> dict[int, str]:
        sought = {id(each) for each in wanted}
        return {id(module): path for module, path in members(root) if id(module) in sought}

    def arguments(self, fn: Callable[..., object], point: object, values: Sequence[object]) -> events.Terms:
        return terms_of(fn, point, values) if events.listening() else ()  # nobody needs them

    def line(self, guard: Placed, guards: Sequence[Placed], begins: tuple[str, int]) -> tuple[str, int]:
        found = user_lines(guards)(guard)
        return begins if found is None or is_library(found[0]) and not is_library(begins[0]) else found


events.names = UserNames()


def terms_of(fn: Callable[..., object], point: object, values: Sequence[object]) -> events.Terms:
    """Names of the arguments of a call, or of what goes on at a resume point."""
    return tuple(_of_call(fn, values) if point is None else _of_point(cast("Point", point), values))


def _of_call(fn: Callable[..., object], values: Sequence[object]) -> Iterator[tuple[str, str]]:
    if not values or getattr(fn, "__name__", "") not in PLUMBING or not is_module(values[0]):
        return
    yield "self", ROOT
    for number, name in enumerate(parameters(values[0])):
        yield f"args[{number}]", name
    yield "kwargs", ""  # kwargs['mask'] -> mask


def parameters(module: object) -> list[str]:
    """Positional parameters of a module's `forward`, as far as its arguments go."""
    forward = inspect.getattr_static(module, "forward", None)
    code = getattr(inspect.unwrap(forward) if callable(forward) else forward, "__code__", None)
    return list(code.co_varnames[1:code.co_argcount]) if isinstance(code, CodeType) else []


def _of_point(point: Point, values: Sequence[object]) -> Iterator[tuple[str, str]]:
    """Values of suspended frames: modules by their way, the iterators of loops by what they go over."""
    names = iter(zip(point.names, values, strict=False))
    root = next((value for value in values if is_module(value)), None)
    ways = {} if root is None else {id(module): path for module, path in members(root)}
    for state in point.states:
        loops = enclosing_loops(state.code, state)
        for kind, _ in state.places():
            name, value = next(names, ("", None))
            if id(value) in ways:
                yield name, ways[id(value)]
            elif kind == "stack" and loops:
                yield name, f"iter({loops.pop(0)})"
            elif name.rpartition("_")[0] and kind == "local" and name.rpartition("_")[2].isdigit():
                yield name, f"{name.rpartition('_')[0]} in {state.code.co_qualname.rpartition('<locals>.')[2]}"


def enclosing_loops(code: CodeType, state: State) -> list[str]:
    """Iterables of the `for` loops around the next instruction, the outermost first; none where it is not sure."""
    stack = sum(kind == "stack" for kind, _ in state.places())
    lines = [line for *_, line in code.co_lines() if line is not None]
    if not stack or not lines:
        return []
    found = loops_in(code.co_filename, code.co_firstlineno)
    return found if len(found) == stack else []


@functools.lru_cache(maxsize=64)
def tree_of(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def loops_in(filename: str, first_line: int) -> list[str]:
    """The `for` loops of the function that begins at a line; only where they are nested in one another."""
    tree = tree_of(filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and first_line in (
                node.lineno, *(each.lineno for each in node.decorator_list)):
            return [ast.unparse(each.iter) for each in ast.walk(node) if isinstance(each, ast.For)]
    return []


def translate(text: str, terms: events.Terms) -> str:
    """A guard's text with the user's names."""
    if "kwargs" in dict(terms):
        text = re.sub(r"\bkwargs\['(\w+)'\]", r"\1", text)
    for name, meant in sorted(terms, key=lambda pair: -len(pair[0])):
        if meant:
            end = r"(?!\w)" if name[-1].isalnum() else ""
            text = re.sub(rf"(?<![\w.']){re.escape(name)}{end}", lambda _, meant=meant: meant, text)  # type: ignore[misc]
    text = re.sub(r"\bcontainer_behind\(iter\(([\w.\[\]]+)\)\)(?:\['(\d+)'\])?",
                  lambda found: f"{found[1]}[{found[2]}]" if found[2] else found[1], text)
    return re.sub(r"\bat_least\((.+?), (\d+)\) is (True|False)", _at_least, text)


def _at_least(found: re.Match[str]) -> str:
    return f"length_hint({found[1]}) {'>=' if found[3] == 'True' else '<'} {found[2]}"


def short(name: str) -> str:
    """The name of a call site without the functions around it: `f` of `main.<locals>.f`."""
    base, resumed, line = name.partition(" resumed at line ")
    base = base.rpartition("<locals>.")[2]
    return f"{base} after line {line}" if resumed else base


def short_file(filename: str) -> str:
    """`torch/nn/modules/module.py` for files of libraries; others as they are."""
    return filename.rpartition("-packages/")[2]
