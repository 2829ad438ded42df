"""Sets of objects made inside, views of changed classes, exceptions from outside, collections after changes."""

from __future__ import annotations

import abc
import collections.abc
import contextlib
import gc
import importlib
import importlib.util
import sys
import traceback
import weakref

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager


class Node:
    pass


class Plain:
    x = 1


ERROR = RuntimeError("made beforehand")


def counts(x):
    first, second = Node(), Node()
    return sum(1 for _ in {first, second, None, 3}), x + len(list(frozenset((first, second))))


def dies(x):
    node = Node()
    reference, members = weakref.ref(node), {node, 1}
    node.x = iter(members)
    del node, members
    gc.collect()
    return reference() is None, x + 1


def orders_constants(x):
    return [str(each) for each in {None, "a", 0, ...}], x + 1


@pytest.mark.parametrize("program", [counts, dies, orders_constants])
def test_sets_of_objects_made_inside(program) -> None:
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))


def test_a_member_that_leaves_breaks() -> None:
    def program(x):
        members = {Node(), Node()}
        return list(members), members, x + 1

    reason = stator.explain(program, backend="eager")(torch.ones(1)).break_reasons[0]
    assert reason.code == "SB013"
    listed, members, _ = stator.compile(program, backend="eager")(torch.ones(1))
    assert listed == list(members)  # the order that was read is that of the set


def test_members_from_outside_break() -> None:
    compiled = stator.compile(lambda a, b: list({a, b}), backend="eager", fullgraph=True)
    with pytest.raises(stator.Unsupported):
        compiled(Node(), Node())


def own_names(cls):
    return {name: value for name, value in vars(cls).items() if not name.startswith("__")}


def assigns(cls):
    view = cls.__dict__
    before = list(view)
    cls.z = 5
    cls.x = 7
    middle = [name for name in view if not name.startswith("__")], view["z"], view["x"], "z" in view, len(view)
    del cls.z
    return before, middle, list(view), "z" in view


def leaves(cls):
    view = cls.__dict__
    cls.new = 3
    cls.x += 1
    return view["new"], view["x"], list(view)


def views_later(cls):
    cls.late = [1]
    cls.__dict__["late"].append(2)
    return "late" in cls.__dict__, list(cls.__dict__.items())[-1]


def reads_annotations(cls):
    return [*cls.__dict__, *getattr(cls, "__annotations__", {})], len(cls.__dict__)


@pytest.mark.parametrize("program", [assigns, leaves, views_later, reads_annotations])
def test_views_of_classes_show_changes(program) -> None:
    found = []
    for compiled in (False, True):
        cls = type("Changed", (), {"x": 1})
        run = stator.compile(program, backend="eager", fullgraph=True) if compiled else program
        found.append([run(cls), run(cls), own_names(cls), "__annotations__" in vars(cls)])
    assert found[0] == found[1]


@contextlib.contextmanager
def passed_through():
    try:
        yield 1
    finally:
        pass


def raises():
    with passed_through():
        raise ERROR


def caught(x):
    with contextlib.suppress(RuntimeError):
        raises()
    return x + 1


def cleared(x):
    try:
        raises()
    except RuntimeError as error:
        error.with_traceback(None)
    return x + 1


@pytest.mark.parametrize("program", [caught, cleared])
def test_tracebacks_of_exceptions_from_outside(program) -> None:
    found = []
    for run in (program, stator.compile(program, backend="eager", fullgraph=True)):
        ERROR.__traceback__ = None
        run(torch.ones(1))
        found.append([(entry.name, entry.lineno) for entry in traceback.extract_tb(ERROR.__traceback__)])
    assert found[0] == found[1]


class Tracked:
    """Its finalizer reads what the call has changed."""

    seen: list[int] = []  # noqa: RUF012

    def __init__(self, owner):
        self.owner, self.cycle = owner, self

    def __del__(self):
        Tracked.seen.append(self.owner.n)


def collects_last(owner):
    owner.n = 1
    gc.collect()
    return owner.n


def collects_between(owner):
    owner.n = 1
    gc.collect()
    owner.n = 2
    return owner.n


@pytest.mark.parametrize("program", [collects_last, collects_between])
def test_finalizers_see_changes_before_a_collection(program) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=program is collects_last)
    owner = Node()
    owner.n = 0
    compiled(owner)
    Tracked.seen.clear()
    owner.n = 0
    Tracked(owner)
    compiled(owner)
    assert Tracked.seen == [1]


def test_an_object_let_go_before_a_collection() -> None:
    def program(owner, reference):
        owner.node = None
        gc.collect()
        return reference() is None

    owner = Node()
    compiled = stator.compile(program, backend="eager")
    for _ in range(2):
        owner.node = Node()
        is_gone = compiled(owner, weakref.ref(owner.node))  # a rewritten assertion would hold the object
        assert is_gone


def registers(x):
    class Made:
        __hash__ = None  # type: ignore[assignment]

    class Derived(Made):
        pass

    before = isinstance(Made(), collections.abc.Sized), issubclass(Derived, collections.abc.Sequence)
    collections.abc.Sized.register(Made)
    collections.abc.Sequence.register(Made)
    match Derived():
        case [*_]:
            kind = "sequence"
        case _:
            kind = "other"
    return before, isinstance(Made(), collections.abc.Sized), issubclass(Derived, collections.abc.Sequence), kind, x + 1


def test_classes_made_inside_are_registered() -> None:
    compiled = stator.compile(registers, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(1))[:-1] == registers(torch.ones(1))[:-1]


def test_registrations_of_bases_are_facts() -> None:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    def program(x):
        class Made(Plain):
            pass
        return issubclass(Made, Abstract), x + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert not compiled(torch.ones(1))[0]
    Abstract.register(Plain)
    assert compiled(torch.ones(1))[0]


def test_generators_beside_sets() -> None:
    def program(members, items):
        found = []
        for operation in (lambda: members - items, lambda: items | members):
            try:
                operation()
            except TypeError as error:
                found.append(str(error))
        return found

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert compiled({1}, (each for each in ())) == program({1}, (each for each in ()))


def test_methods_of_none() -> None:
    same_as_eager(lambda x: (None.__ne__(None), None.__eq__(0), None.__bool__(), x + 1), call(torch.ones(1)))


def test_breakpoint_without_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x):
        try:
            breakpoint()  # noqa: T100
        except RuntimeError as error:
            return str(error)

    monkeypatch.delattr(sys, "breakpointhook")
    assert stator.compile(program, backend="eager", fullgraph=True)(torch.ones(1)) == program(torch.ones(1))


@pytest.mark.skipif(importlib.util.find_spec("_pylong") is None, reason="int() asks _pylong since 3.12")
def test_functions_that_int_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("_pylong")

    def program(text, answer):
        module.int_from_string = answer
        return int(text)

    monkeypatch.setattr(module, "int_from_string", module.int_from_string)
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(20_000)
    try:
        assert stator.compile(program, backend="eager")("7" * 19_999, lambda text: 5) == 5
    finally:
        sys.set_int_max_str_digits(before)
