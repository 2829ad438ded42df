"""Differences of 3.14: `__exit__` beside its receiver, tagged places of errors, computed annotations, template strings.

The programs are texts, because earlier versions cannot read all of them; those that they can read run there too.
"""

from __future__ import annotations

import types

import pytest
import torch

import stator
from tests.unit.interp.test_since_312 import made, portrait, readable

PROGRAMS: dict[str, str] = {
    "with blocks that suppress": """
class Manager:
    def __init__(self, log, swallow=()):
        self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, value, tb):
        self.log.append(kind and kind.__name__)
        return kind is not None and issubclass(kind, self.swallow)

def program(x):
    log = []
    with Manager(log, ValueError) as outer, Manager(log):
        log.append(outer.swallow is ValueError)
        raise ValueError("v")
    return x + len(log), log
""",
    "no manager at all": """
class OnlyEnter:
    def __enter__(self): ...

class Awaited:
    async def __aenter__(self): ...
    async def __aexit__(self, *parts): ...

def refusal(manager):
    try:
        with manager:
            pass
    except TypeError as error:
        return str(error)

def program(x):
    return x + 1, refusal(OnlyEnter()), refusal(Awaited()), refusal(3)
""",
    "a break under a with block": """
class Manager:
    def __enter__(self):
        return 2
    def __exit__(self, kind, value, tb):
        return kind is ValueError

def program(x):
    with Manager() as two:
        y = x * two
        print("shown", y.sum().item())
        if y.sum().item() > 100:
            return y
        raise ValueError("v")
    return y + 1
""",
    "a break in a handler that raises again": """
def risky(x, log):
    try:
        try:
            raise KeyError("first")
        finally:
            log.append(float(x.sum().item()))
            print("cleaned", len(log))
    except ValueError:
        log.append("never")

def program(x):
    log = []
    try:
        risky(x, log)
    except KeyError as error:
        log.append(error.args)
    return x * 2, log
""",
    "a generator that waits in a handler, over a break": """
def steps(x):
    try:
        raise KeyError(1)
    except KeyError:
        yield x + 1
        yield x + 2
        raise
    finally:
        print("closed")

def program(x):
    g = steps(x)
    first = next(g)
    print("between", first.sum().item())
    second = next(g)
    try:
        next(g)
    except KeyError as error:
        return first + second, error.args
""",
    "loops that builtins are compiled to": """
def program(x):
    values = [1, 2, 3]
    return x + 1, any(v > 2 for v in values), all(v > 2 for v in values), tuple(v * x for v in values)
""",
    "keywords and none": """
def take(*args, **kwargs):
    return len(args), sorted(kwargs)

def program(x):
    more, named = (1, 2), {"a": 1}
    return x + 1, take(*more), take(**named), take(*more, 3, **named, b=2)
""",
    "small integers and subscripts": """
def program(x):
    items = [10, 300, -5]
    items[1] += 1
    return x[0] + items[0], x[1:][0] * items[1], items[-1], {0: 1}[0], (1, 2)[1]
""",
    "handlers without parentheses": """
def program(x):
    try:
        raise TypeError("t")
    except ValueError, TypeError:
        return x + 1
""",
    "annotations are computed": """
def program(x):
    seen = []
    def noted(value):
        seen.append(value)
        return value
    def inner(a: noted(int), *, b: noted(str) = "b") -> noted(float):
        return a
    return inner(x) + 1, len(seen)
""",
    "variables with annotations": """
def program(x):
    y: Missing = x + 1
    z: list[Missing] = [y]
    return z[0] * 2
""",
    "a class with annotations": """
def program(x):
    class Point:
        a: int = 1
        b: "Point" = None
    return x + Point().a, Point.b
""",
}


@pytest.mark.parametrize("name", [name for name, text in PROGRAMS.items() if readable(text)])
def test_as_eager(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = made(PROGRAMS[name])
    compiled = stator.compile(made(PROGRAMS[name]), backend="eager", fullgraph="break" not in name)
    for x in (torch.ones(3), torch.arange(3.0)):
        expected, printed = plain(x), capsys.readouterr().out
        result = compiled(x)
        assert capsys.readouterr().out == printed
        assert portrait(result) == portrait(expected)


TEMPLATE = '''
def program(x):
    width, name = 5, "n"
    return t"{x!r:>{width}}, {name}{x + 1} end"
'''


@pytest.mark.skipif(not readable(TEMPLATE), reason="template strings are of 3.14")
def test_template_strings_run_natively() -> None:
    plain, compiled = made(TEMPLATE), stator.compile(made(TEMPLATE), backend="eager")
    for x in (torch.ones(3), torch.arange(3.0)):
        ours, theirs = compiled(x), plain(x)
        assert ours.strings == theirs.strings and len(ours.interpolations) == 3
        for mine, other in zip(ours.interpolations, theirs.interpolations, strict=True):
            assert portrait(mine.value) == portrait(other.value)
            assert (mine.expression, mine.conversion, mine.format_spec) \
                == (other.expression, other.conversion, other.format_spec)


RETURNED = """
def program(x):
    scale = 3
    def inner(a: "word", b: int = 2) -> float:
        return a * scale
    return inner, x + 1
"""


def test_annotations_of_a_returned_function() -> None:
    inner, _ = stator.compile(made(RETURNED), backend="eager", fullgraph=True)(torch.ones(2))
    expected, _ = made(RETURNED)(torch.ones(2))
    assert isinstance(inner, types.FunctionType) and inner.__annotations__ == expected.__annotations__
    assert inner(2) == expected(2) and inner.__defaults__ == expected.__defaults__
