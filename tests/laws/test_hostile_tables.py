"""Compare programs whose hashes, caches and iterators have effects with eager: the effects come once."""

from __future__ import annotations

import bisect
import builtins
import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from stator import events

X = torch.arange(3.0)
LOG: list[Any] = []


class Key:
    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        LOG.append(("hash", self.number))
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        LOG.append(("eq", self.number))
        return self.number == getattr(other, "number", None)

    def __repr__(self) -> str:
        return f"Key({self.number})"


class Counting(dict):
    pass


KEYS = [Key(1), Key(2), Key(1)]
TABLE: dict[Any, int] = {}


def updated(x):
    TABLE.update({KEYS[0]: 1})
    return x + len(TABLE)


def made_dict(x):
    table = {KEYS[0]: 5, (KEYS[1], "a"): x}
    table.update({KEYS[2]: 7})
    return table


def made_subclass(x):
    return Counting({Key(3): x, Key(4): 2}), dict.fromkeys(KEYS)


def made_sets(x):
    return {Key(1), Key(2)}, frozenset(KEYS), {(Key(5), 1)}, {Key(number) for number in range(7)}


def looked_for(x):
    members = {Key(1), Key(2)}
    members.discard(Key(1))
    return Key(1) in members, members, x


def numbers_of(x):
    return {each.number for each in {Key(x.shape[0] * 2), Key(1)}}


class Steps:
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        LOG.append("iter")
        return self

    def __next__(self):
        LOG.append(self.count)
        if not self.count:
            raise StopIteration
        self.count -= 1
        stator.graph_break()
        return self.count


def pairs(x):
    return dict(zip(Steps(3), Steps(2))), x + 1  # noqa: B905


def joined(x):
    return ",".join(map(str, Steps(2))), list(enumerate(Steps(2))), [*filter(None, Steps(3))], x + 1


def left(x):
    rest = zip(Steps(3), [1, 2, 3])  # noqa: B905
    return next(rest), rest, map(str, Steps(1)), x + 1


def cached_twice(x):
    @functools.lru_cache
    @functools.cache
    def append(value):
        LOG.append(value)

    append(3)
    stator.graph_break()
    append(3)
    return x + len(LOG), append.cache_info(), append.__wrapped__.cache_info()


@functools.lru_cache(None)
def remembered(value=0, *rest):
    LOG.append(value)
    return value


def caches_that_c_code_calls(x):
    return list(map(remembered, [1, 2])), list(map(types.MethodType(remembered, 3), [4])), sorted([6, 5], key=remembered), x


def cache_that_searches(x):
    return bisect.bisect([1, 2, 3], 2, key=remembered), x


def cache_that_makes_values(x):
    return collections.defaultdict(remembered)[3], x


def cache_of_a_class(x):
    return list(map(type("Called", (), {"__call__": staticmethod(remembered)})(), [1])), x


PROGRAMS = (updated, made_dict, made_subclass, made_sets, looked_for, numbers_of, pairs, joined, left, cached_twice,
            caches_that_c_code_calls, cache_that_searches, cache_that_makes_values, cache_of_a_class)


def outcomes(program: Callable[[torch.Tensor], Any]) -> Iterator[str]:
    for x in (X, X + 1, torch.ones(4), torch.ones(5)):
        LOG.clear()
        remembered.cache_clear()
        TABLE.clear()
        result = program(x)
        asked = str(LOG) + str(remembered.cache_info())
        yield asked + "".join([str(list(part)) if hasattr(part, "__next__") else str(part) for part in result])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_is_as_in_eager(program: Callable[[torch.Tensor], Any]) -> None:
    expected = list(outcomes(program))
    with events.record() as log:
        assert list(outcomes(stator.compile(program, backend="eager"))) == expected
    assert not [event for event in log if isinstance(event, events.InternalFailure)]


class Meta(type):
    scale = 2

    def __call__(cls, *args: object) -> Any:
        return "made"


class OtherMeta(type):
    scale = 5

    def __len__(cls) -> int:
        return 3


def test_the_metaclass_of_a_class_is_a_fact() -> None:
    made = Meta("Made", (), {})

    def program(x: torch.Tensor) -> Any:
        return x * made.scale, bool(made), str(made()) == "made"

    compiled = stator.compile(program, backend="eager")
    for metaclass in (Meta, OtherMeta, Meta):
        made.__class__ = metaclass  # type: ignore[assignment]
        assert str(compiled(X)) == str(program(X))


def test_a_replaced_builder_of_classes_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    built, known = [], builtins.__build_class__

    def program(x: torch.Tensor) -> Any:
        class Inner:
            scale = 3
        return x * Inner.scale

    def build(body: Any, name: str, *args: Any, **keywords: Any) -> Any:
        built.append(name)
        return known(body, name, *args, **keywords)

    compiled = stator.compile(program, backend="eager")
    compiled(X)
    monkeypatch.setattr(builtins, "__build_class__", build)
    assert torch.equal(compiled(X), X * 3)
    monkeypatch.undo()
    assert built == ["Inner"]


def test_a_graph_that_a_backend_returns_has_no_hooks_of_the_program() -> None:
    layer, log = torch.nn.Linear(3, 3), []  # type: ignore[var-annotated]
    compiled = stator.compile(lambda x: layer(x), backend=lambda graph, inputs: graph)
    compiled(X)
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, args: log.append(type(module)))
    try:
        compiled(X)
        compiled(X)
    finally:
        handle.remove()
    assert log == [torch.nn.Linear] * 2


def test_the_class_of_a_module_is_a_fact() -> None:
    module = types.ModuleType("module")
    module.__getattr__ = lambda name: 2  # type: ignore[method-assign]

    class Changed(types.ModuleType):
        scale = property(lambda self: 5)

    compiled = stator.compile(lambda x: x * module.scale, backend="eager")
    assert torch.equal(compiled(X), X * 2)
    module.__class__ = Changed
    assert torch.equal(compiled(X), X * 5)
