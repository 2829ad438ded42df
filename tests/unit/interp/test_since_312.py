"""Changes of 3.12 in the language: type parameters, inlined comprehensions, slices, `super().x`.

The programs are texts, because 3.11 cannot read all of them; those that it can read run there too.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import stator

PROGRAMS: dict[str, str] = {
    "generic function": """
def program(x):
    def twice[T](value: T) -> T:
        return value + value
    return twice(x), twice(3), [p.__name__ for p in twice.__type_params__]
""",
    "bounds are computed when asked": """
def program(x):
    def first[T: (int, str), U: float, *Ts, **P](value: T) -> T:
        return value
    t, u, ts, p = first.__type_params__
    return first(x) + 1, t.__constraints__, u.__bound__, type(ts).__name__, type(p).__name__
""",
    "generic class": """
class Pair[A, B]:
    def __init__(self, a: A, b: B):
        self.a, self.b = a, b
    def swapped(self) -> "Pair[B, A]":
        return Pair(self.b, self.a)

def program(x):
    pair = Pair[int, str](x, 2).swapped()
    return pair.a, pair.b + 1, Pair.__type_params__[0].__name__
""",
    "generic class made inside": """
def program(x):
    class Box[T]:
        held: T
        def put(self, value: T):
            self.held = value
            return self
    return Box().put(x).held * 2, Box[int]().put(1).held
""",
    "generic class in the body of a class": """
class Base:
    k = 3

def program(x):
    class Box:
        own = 2
        class Part[T](Base, metaclass=type):
            pass
    return x * Box.Part().k, [base.__name__ for base in Box.Part.__mro__], Box.Part.__type_params__[0].__name__
""",
    "type alias": """
type Numbers = list[int]

def program(x):
    type Local[T] = dict[str, T]
    values: Numbers = [1, 2]
    return x + sum(values), Local.__name__, Numbers.__value__ is list
""",
    "comprehension over its own outer name": """
def program(x):
    i = "outer"
    squares = [i * i for i in range(3)]
    pairs = {i: j for i in range(2) for j in [i + 1]}
    kept = {i for i in range(3)}
    return x + sum(squares), i, pairs, kept
""",
    "comprehension over an unbound name": """
def program(x):
    made = [later * 2 for later in range(2)]
    try:
        later
    except UnboundLocalError as error:
        text = str(error)
    later = 5
    return x + made[1], text, later
""",
    "comprehension with a cell": """
def program(x):
    n = 10
    makers = [lambda: n + k for k in range(3)]
    n = 20
    return x + makers[0](), [make() for make in makers], n
""",
    "comprehension that raises": """
def program(x):
    i = 7
    try:
        [1 // i for i in (2, 1, 0)]
    except ZeroDivisionError:
        return x + i
""",
    "nested comprehensions in a class body": """
def program(x):
    class Table:
        rows = 2
        cells = [[r * c for c in range(3)] for r in range(2)]
    return x + Table.cells[1][2], Table.rows
""",
    "comprehension around a break": """
import torch
def program(x):
    i = 100
    found = [float((x * i).sum()) for i in range(3)]
    torch.manual_seed(0)
    more = [print("at", i) or torch.manual_seed(i).initial_seed() for i in range(2)]
    return x + i, found, more
""",
    "assertions below a comprehension and in a generator": """
def checked(value):
    assert value.sum() > -100, "too small"
    return value * 2

def items(x):
    assert x.sum() > -100
    yield x + 1

def program(x):
    return [checked(part) for part in (x, x + 1)], [item for item in items(x)]
""",
    "slices": """
def program(x):
    items = [0, 1, 2, 3]
    items[1:3] = [9]
    y = x.clone()
    y[0:1] = 5.0
    return items[1:], items[:-1], y[0:2], "text"[1:3], items[:]
""",
    "super": """
class Base:
    size = 3
    def scale(self, x):
        return x * 2
    @property
    def name(self):
        return "base"
    @classmethod
    def make(cls):
        return cls()

class Child(Base):
    def scale(self, x):
        return super().scale(x) + super(Child, self).size
    @property
    def name(self):
        return "child of " + super().name
    @classmethod
    def make(cls):
        return super().make()

def program(x):
    child = Child.make()
    return child.scale(x), child.name
""",
    "another super": """
class Other:
    def __init__(self, *args):
        self.count = len(args)

class Plain:
    def ask(self):
        return super().count

super = Other

def program(x):
    return x + Plain().ask()
""",
    "f-strings of any depth": """
def program(x):
    names = ["a", "b"]
    return x + 1, f"{', '.join(f'{n!r:>{4}}' for n in names)} {f'{f"{1 + 1}"}'}"
""",
    "delegation ends in a handler": """
def inner():
    try:
        yield 1
    except ValueError:
        return "thrown"

def outer():
    result = yield from inner()
    yield result

def program(x):
    g = outer()
    next(g)
    return x + 1, g.throw(ValueError("v")), next(g, None)
""",
    "a StopIteration inside a generator": """
def broken():
    yield 1
    raise StopIteration("inside")

def program(x):
    g = broken()
    next(g)
    try:
        next(g)
    except RuntimeError as error:
        return x + 1, str(error), type(error.__cause__).__name__
""",
    "except star": """
def program(x):
    seen = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* (TypeError, KeyError) as group:
        seen.append(len(group.exceptions))
    return x + 1, seen
""",
}


def readable(text: str) -> bool:
    try:
        compile(text, "<program>", "exec")
    except SyntaxError:
        return False
    return True


def made(text: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "programs"}
    exec(compile(text, "<program>", "exec"), namespace)  # noqa: S102  the texts above
    return namespace["program"]


@pytest.mark.parametrize("name", [name for name, text in PROGRAMS.items() if readable(text)])
def test_as_eager(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = made(PROGRAMS[name])
    breaks = "break" in name
    compiled = stator.compile(made(PROGRAMS[name]), backend="eager", fullgraph=not breaks, options={"strict": True})
    for x in (torch.ones(3), torch.arange(3.0)):
        expected, printed = plain(x), capsys.readouterr().out
        result = compiled(x)
        assert capsys.readouterr().out == printed
        assert portrait(result) == portrait(expected)


def portrait(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value)(portrait(item) for item in value)
    return value


def test_a_tool_of_sys_monitoring_sees_no_interpreted_line() -> None:
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        pytest.skip("sys.monitoring is of 3.12")
    program = made(PROGRAMS["comprehension over its own outer name"])
    lines: list[int] = []
    monitoring.use_tool_id(4, "stator test")
    try:
        monitoring.register_callback(4, monitoring.events.LINE, lambda code, line: lines.append(line))
        monitoring.set_local_events(4, program.__code__, monitoring.events.LINE)
        assert torch.equal(program(torch.ones(2))[0], torch.ones(2) + 5)
        seen = len(lines)
        compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
        for _ in range(2):  # the instrumented code object is read as it was compiled
            assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2) + 5)
        assert seen and len(lines) == seen
    finally:
        monitoring.set_local_events(4, program.__code__, 0)
        monitoring.register_callback(4, monitoring.events.LINE, None)
        monitoring.free_tool_id(4)


LEAVING = """
def bounded(x, n):
    class Local:
        size = n
    def inner[T: Local](value: T) -> T:
        return value
    return inner, x + 1

def alias(x, n):
    k = n + 1
    type Many[T] = tuple[k, T, "Many"]
    return Many, x + 1
"""


@pytest.mark.skipif(not readable(LEAVING), reason="type parameters are of 3.12")
def test_type_parameters_that_leave_the_call() -> None:
    namespace: dict[str, Any] = {"__name__": "programs"}
    exec(compile(LEAVING, "<program>", "exec"), namespace)  # noqa: S102  the text above
    bounded = stator.compile(namespace["bounded"], backend="eager", options={"strict": True})
    alias = stator.compile(namespace["alias"], backend="eager", options={"strict": True})
    seen = []
    for n in (3, 3, 4):
        (parameter,) = bounded(torch.ones(1), n)[0].__type_params__
        assert parameter.__bound__.size == n and parameter.__name__ == "T"
        seen.append(parameter)
        made = alias(torch.ones(1), n)[0]
        assert made.__value__.__args__[0] == n + 1 and made.__value__.__args__[1] is made.__type_params__[0]
    assert len(set(seen)) == 3  # each call makes its own
