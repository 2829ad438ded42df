"""Attributes of functions, their namespaces, and dir(): changes inside the call are seen inside it, and written back."""

import builtins
import sys
import types

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

STAYS = 1


def outside():
    """doc"""
    return STAYS


class Base:
    shared = 1

    def method(self):
        return 0


class Derived(Base):
    __slots__ = ("slot",)


def made(number):
    def inner(a=1, *, b=2):
        """doc"""
        return a + number
    return inner


def outcome(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error)


def assigns(x, f):
    seen = [f.__name__, f.__doc__, f.__defaults__]
    f.__name__, f.__doc__, f.__qualname__, f.__module__, f.__defaults__ = "g", "new", "a.b", "m", (5,)
    seen += [f.__name__, f.__doc__, f.__qualname__, f.__module__, f.__defaults__, f()]
    for name, value in (("__name__", 7), ("__globals__", {}), ("__qualname__", None), ("__closure__", ()),
                        ("__builtins__", {}), ("__dict__", None)):
        seen.append(outcome(lambda name=name, value=value: setattr(f, name, value)))
    del f.__doc__
    seen += [f.__doc__, outcome(lambda: delattr(f, "__name__")), outcome(lambda: delattr(f, "__dict__"))]
    return x + f(), seen, f.__name__


def assigns_to_global(x):
    before = target.__name__, target.__qualname__, target.__doc__, target.__module__, target.__defaults__  # noqa: F821
    return before, assigns(x, target)  # noqa: F821


def test_members_of_an_outside_function():
    """The second call finds what the first has assigned."""
    for number in (1, 3):
        same_as_eager(assigns_to_global, call(torch.ones(2)), call(torch.zeros(3)),
                      setup=lambda number=number: {"target": made(number)})


def test_members_of_an_argument():
    assigned, compiled = made(1), stator.compile(assigns, backend="eager", fullgraph=True)
    expected = assigns(torch.ones(2), made(1))
    for number in (1, 1, 3):
        assigned = made(number)
        found = compiled(torch.ones(2), assigned)
        assert found[1][:5] == expected[1][:5] and found[1][6:] != [] and found[2] == "g"
        assert (assigned.__name__, assigned.__qualname__, assigned.__module__) == ("g", "a.b", "m")
        assert assigned.__defaults__ == (5,) and assigned.__doc__ is None
        assert torch.equal(found[0], torch.ones(2) + 5 + number)


def renamed_in_text(x, f):
    f.__qualname__ = "other"
    return x + 1, repr(f).partition(" at ")[0], outcome(lambda: f(1, 2, 3, 4))


def test_text_of_a_renamed_function():
    same_as_eager(renamed_in_text, call(torch.ones(2), made(2)), call(torch.ones(2), made(3)), fullgraph=False)


def two_names(x, f, g):
    f.__name__ = "changed"
    return x + 1, g.__name__


def test_two_names_of_one_function():
    first, second = made(1), made(1)
    same_as_eager(two_names, call(torch.ones(2), first, second), call(torch.ones(2), first, first))


def generator_of(x, f):
    def body():
        yield x
    body.__name__ = "renamed"
    f.__name__ = "g"
    return body().__name__, body().__qualname__, f().__name__


def test_generators_take_the_names():
    def outer():
        def counting():
            yield 1
        return counting
    same_as_eager(generator_of, call(torch.ones(2), outer()), call(torch.ones(2), outer()))


def writes_through_globals(x):
    def inner():
        pass
    inner.__globals__["written_inside"] = x + 1
    seen = [written_inside, inner.__globals__ is globals(), outside.__globals__ is globals()]  # noqa: F821
    outside.__globals__["written_inside"] = x + 2
    return seen, globals().pop("written_inside")


def writes_through_builtins(x):
    def inner():
        pass
    inner.__builtins__["written_inside"] = x + 1
    seen = [written_inside, inner.__builtins__ is builtins.__dict__]  # noqa: F821
    outside.__builtins__["written_inside"] = x + 2
    seen.append(written_inside)  # noqa: F821
    return seen, builtins.__dict__.pop("written_inside")


def writes_through_exec(x):
    names = {}
    exec("z = 1", names)
    names["__builtins__"]["written_inside"] = x
    seen = written_inside + 1  # noqa: F821
    del names["__builtins__"]["written_inside"]
    return seen


@pytest.mark.parametrize("program", [writes_through_globals, writes_through_builtins, writes_through_exec])
def test_one_dict_of_names(program):
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))


def listed(x, obj):
    seen = [dir(outside), dir(obj.method)]
    outside.attr = Base.method.attr = 1
    Base.new = 1
    seen += [dir(outside), dir(obj.method), dir(obj), dir(Base), dir(Derived)]
    del Base.shared
    seen += [dir(Derived()), dir(Base)]
    module = sys.modules["listed_module"]
    module.added = 2
    seen.append(dir(module))
    Base.shared = 1
    del Base.new, outside.attr, Base.method.attr, module.added
    return x + 1, [[name for name in names if not name.startswith("__")] for names in seen], dir(module)


def test_dir_of_what_the_call_changes():
    sys.modules["listed_module"] = types.ModuleType("listed_module")
    first, second = Base(), Base()
    second.own = 1
    try:
        same_as_eager(listed, call(torch.ones(2), first), call(torch.ones(2), second))
    finally:
        del sys.modules["listed_module"]


class Names:
    def __init__(self, names):
        self.names = names

    def __getitem__(self, name):
        raise KeyError(name)

    def keys(self):
        return self.names


def test_dir_in_a_namespace_of_the_program():
    def program(x, names):
        return [outcome(lambda each=each: eval("dir()", globals(), Names(each))) for each in (names, 1, "cab", [3, "a"])]
    same_as_eager(program, call(torch.ones(2), ["x", "y", "a"]), call(torch.ones(2), ["b"]))
