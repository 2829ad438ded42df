"""Names as the user writes them.   args[0] -> x;   self_2.scale -> model.layers[1].scale;   stack -> iter(model.layers)

In: the function, the resume point and the values of one call; or a root module and modules inside it.
Out: `events.Terms`, pairs of a name in guards and the user's expression; `translate` puts them into a text.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Protocol, cast

from stator import events
from stator.report.expressions import expression_at, line_at
from stator.report.frames import PLUMBING, is_library

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

    def text(self) -> str: ...


class State(Protocol):
    """One suspended frame."""

    @property
    def code(self) -> CodeType: ...

    @property
    def kinds(self) -> Sequence[str]: ...

    def places(self) -> list[tuple[str, int]]: ...

    def maker(self, depth: int) -> tuple[int, str]: ...


class Point(Protocol):
    """Where a call goes on after a break."""

    @property
    def names(self) -> list[str]: ...

    @property
    def states(self) -> Sequence[State]: ...

    @property
    def pushes(self) -> Sequence[str]: ...


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
    """Values of suspended frames: modules by their way, values of the stack by the expressions that made them."""
    names = iter(zip(point.names, values, strict=False))
    root = next((value for value in values if is_module(value)), None)
    ways = {} if root is None else {id(module): path for module, path in members(root)}
    own = "self"
    for state in point.states:
        own = "self"
        for kind, number in state.places():
            name, value = next(names, ("", None))
            if id(value) in ways:
                own = ways[id(value)] if kind == "local" and name.partition("_")[0] == "self" else own
                yield name, ways[id(value)]
            elif kind == "stack":
                yield name, re.sub(r"\bself\b", own, made_by(state.code, *state.maker(number)))
            elif name.rpartition("_")[0] and kind == "local" and name.rpartition("_")[2].isdigit():
                yield name, f"{name.rpartition('_')[0]} in {state.code.co_qualname.rpartition('<locals>.')[2]}"
    for number, (name, _) in enumerate(names):
        made = pushed_by(point.states[-1], number) if number < len(point.pushes) else "the exception being handled"
        yield name, re.sub(r"\bself\b", own, made)


def loop_of(point: Point, text: str) -> tuple[str, int] | None:
    """The line of the loop whose iterator a guard behind a break is about."""
    names = iter(point.names)
    for state in point.states:
        for kind, number in state.places():
            name = next(names, "")
            offset, wrapped = state.maker(number) if kind == "stack" else (-1, "")
            if wrapped == "GET_ITER" and offset >= 0 and re.search(rf"(?<![\w.]){re.escape(name)}\b", text):
                return state.code.co_filename, line_at(state.code, offset)
    return None


def pushed_by(state: State, number: int) -> str:
    """A value that the instruction before the next one has pushed, as an expression."""
    (offset, wrapped), depth = state.maker(len(state.kinds)), len(state.kinds) - 1
    if offset >= 0 and depth >= 0 and dis.opname[state.code.co_code[offset]] == "FOR_ITER":
        return f"next({made_by(state.code, *state.maker(depth))})"
    return made_by(state.code, offset, "" if number else wrapped)  # of `with`, the second one is what `as` names


def made_by(code: CodeType, offset: int, wrapped: str = "") -> str:
    """The value that an instruction pushes, as an expression; by its line where there is none."""
    text = expression_at(code, offset) if offset >= 0 else ""
    if not text:
        return f"a value of line {line_at(code, offset)}"
    if wrapped:
        return f"iter({text})" if wrapped == "GET_ITER" else f"{text}.__exit__"
    return f"an item of {text}" if dis.opname[code.co_code[offset]].startswith("UNPACK_") else text


def translate(text: str, terms: events.Terms) -> str:
    """A guard's text with the user's names."""
    if "kwargs" in dict(terms):
        text = re.sub(r"\bkwargs\['(\w+)'\]", r"\1", text)
    meanings = {name: meant for name, meant in terms if meant}
    if meanings:  # in one pass: an expression may contain names that have a meaning elsewhere
        ways = "|".join(re.escape(name) + (r"(?!\w)" if name[-1].isalnum() else "")
                        for name in sorted(meanings, key=len, reverse=True))
        text = re.sub(rf"(?<![\w.'])(?:{ways})(?P<member>[.\[]?)",
                      lambda found: _meant(meanings, found[0], found["member"]), text)
    text = re.sub(r"\bcontainer_behind\(iter\(([\w.\[\]]+)\)\)(?:\['(\d+)'\])?",
                  lambda found: f"{found[1]}[{found[2]}]" if found[2] else found[1], text)
    text = re.sub(r"\bpeek\((.+), 0\)", r"next(\1)", text)
    text = re.sub(r"\bpeek\((.+), (\d+)\)", r"list(\1)[\2]", text)
    text = re.sub(r"\benviron\._data\[b('[^']*')\]", r"os.environ[\1]", text)
    text = re.sub(r"\bb('[^']*') ((?:not )?in) environ\._data\b", r"\1 \2 os.environ", text)
    text = re.sub(r"\.\w+\.__self__\b", "", text)  # of a bound method
    text = re.sub(r"\b[\w.]+\.<locals>\.", "", text)
    return re.sub(r"\bat_least\((.+?), (\d+)\) is (True|False)", _at_least, text)


def _meant(meanings: dict[str, str], found: str, member: str) -> str:
    """A meaning in place of its name; in brackets where a member follows an operation: `(a + b).shape`."""
    meant = meanings[found.removesuffix(member)]
    return f"({meant}){member}" if member and re.search(r" (?![^(\[]*[)\]])", meant) else f"{meant}{member}"


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
