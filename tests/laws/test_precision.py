"""Facts that do not matter: changing them must not compile anything again."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from probing import Scene, judge, ramp
from scenery import box, namespace_function
from torch import nn

from stator import events

PROGRAMS: dict[str, Callable[[], Scene]] = {}


def program(make: Callable[[], Scene]) -> Callable[[], Scene]:
    PROGRAMS[make.__name__] = make
    return make


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_not_compiled_again(name: str) -> None:
    report = judge(PROGRAMS[name])
    assert not report.differences
    assert len(report.of(events.CaptureStarted)) == 1, [event.reason for event in report.of(events.Recompile)]
    assert not report.breaks


def test_there_are_thirty() -> None:
    assert len(PROGRAMS) >= 30


def changing(fn: Callable[..., Any], first: Any, second: Any) -> Scene:
    """A scene whose second argument changes."""
    slot = [first]
    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, second))


def leave(x, ignored):
    return x * 2


def through(x, ignored):
    return leave(x, ignored)


def by_keyword(x, ignored):
    return leave(x, ignored=ignored)


def renamed(x, ignored):
    other = ignored
    return leave(x, other)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.k, self.note, self.table = 2, "a", {"k": 2, "other": 1}

    def scale(self, x, ignored=None):
        return x * self.k

    def forward(self, x):
        return self.scale(x)


@program
def unused_number():
    return changing(leave, 1, 2)


@program
def unused_text():
    return changing(leave, "a", "b")


@program
def unused_argument_of_another_type():
    return changing(leave, 1, [None])


@program
def unused_tensor_of_another_shape():
    return changing(leave, ramp(2), ramp(5))


@program
def number_passed_through():
    return changing(through, 1, 2)


@program
def text_passed_through():
    return changing(through, "a", "b")


@program
def argument_passed_by_keyword():
    return changing(by_keyword, 1, "b")


@program
def argument_passed_under_another_name():
    return changing(renamed, 1, "b")


@program
def argument_passed_to_a_method():
    model = Model()
    return changing(lambda x, ignored: model.scale(x, ignored), 1, "b")


@program
def argument_returned_as_it_came():
    return changing(lambda x, given: given, 1, 1)


@program
def list_returned_as_it_came():
    items = [1]
    return Scene(lambda x, given: given, lambda: (ramp(), items), lambda: items.append(2))


@program
def unrelated_attribute():
    thing = box(k=2, other=1)
    return Scene(lambda x: x * thing.k, lambda: (ramp(),), lambda: setattr(thing, "other", 5))


@program
def attribute_that_appears_unread():
    thing = box(k=2)
    return Scene(lambda x: x * thing.k, lambda: (ramp(),), lambda: setattr(thing, "other", 5))


@program
def unrelated_slot():
    class Config:
        __slots__ = ("k", "other")

    config = Config()
    config.k = 2
    return Scene(lambda x: x * config.k, lambda: (ramp(),), lambda: setattr(config, "other", 5))


@program
def unrelated_key():
    table = {"k": 2, "other": 1}
    return Scene(lambda x: x * table["k"], lambda: (ramp(),), lambda: table.update(other=7))


@program
def keys_beside_a_default():
    table = {"k": [2], "other": 1}
    return Scene(lambda x: x * table.setdefault("k", [3])[0], lambda: (ramp(),), lambda: table.update(other=7, third=8))


@program
def keys_beside_a_default_that_is_set():
    table = {"other": 1}
    return Scene(lambda x, table: table.setdefault("k", [x])[0] * 2, lambda: (ramp(), dict(table)),
                 lambda: table.update(other=7, third=8))


@program
def key_that_appears_unread():
    table = {"k": 2}
    return Scene(lambda x: x * table["k"], lambda: (ramp(),), lambda: table.update(other=7))


@program
def order_of_keys_unread():
    table = {"k": 2, "other": 1}
    return Scene(lambda x: x * table["k"], lambda: (ramp(),), lambda: table.update(k=table.pop("k")))


@program
def key_of_an_ordered_dict():
    table = collections.OrderedDict(k=2, other=1)
    return Scene(lambda x: x * table["k"], lambda: (ramp(),), lambda: table.update(more=7))


@program
def longer_list_where_the_first_is_read():
    ks = [2, 3]
    return Scene(lambda x: x * ks[0], lambda: (ramp(),), lambda: ks.append(4))


@program
def other_item_of_a_list():
    ks = [2, 3]
    return Scene(lambda x: x * ks[0], lambda: (ramp(),), lambda: ks.__setitem__(1, 9))


@program
def other_item_of_a_tuple():
    return changing(lambda x, pair: x * pair[0][0], ([2], [3]), ([2], [4]))


@program
def unread_global():
    fn, names = namespace_function("def fn(x): return x * K", K=2, OTHER=1)
    return Scene(fn, lambda: (ramp(),), lambda: names.update(OTHER=5, MORE=6))


@program
def unread_cell():
    k, other = 2, 1

    def fn(x):
        return x * k

    def also():
        nonlocal other
        other = 5

    return Scene(fn, lambda: (ramp(),), also)


@program
def other_class_attribute():
    class Config:
        k, other = 2, 1

    return Scene(lambda x: x * Config.k, lambda: (ramp(),), lambda: setattr(Config, "other", 5))


@program
def other_attribute_of_a_module():
    model = Model()
    return Scene(lambda x: model(x), lambda: (ramp(),), lambda: setattr(model, "note", "b"))


@program
def other_field_of_a_dataclass():
    @dataclasses.dataclass
    class Config:
        k: int = 2
        other: int = 1

    config = Config()
    return Scene(lambda x: x * config.k, lambda: (ramp(),), lambda: setattr(config, "other", 5))


@program
def another_instance_alike():
    return changing(lambda x, thing: x * thing.k, box(k=2, other=1), box(k=2, other=5))


@program
def another_list_alike():
    return changing(lambda x, ks: x * ks[0], [2, 3], [2, 9, 9])


@program
def another_dict_alike():
    return changing(lambda x, table: x * table["k"], {"k": 2}, {"other": 1, "k": 2})


@program
def values_of_a_tensor():
    xs = [ramp()]
    return Scene(lambda x: x * 2, lambda: (xs[0],), lambda: xs.__setitem__(0, ramp() + 5))


@program
def values_of_a_parameter():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.zero_(), model.bias.zero_()
    return Scene(lambda x: model(x), lambda: (ramp(),), lambda: model.weight.data.fill_(1))


@program
def attribute_of_a_tensor_unread():
    x = ramp()
    return Scene(lambda x: x * 2, lambda: (x,), lambda: setattr(x, "note", "b"))


@program
def other_attribute_of_a_namespace_module():
    module = types.ModuleType("made_up")
    module.k, module.other = 2, 1
    return Scene(lambda x: x * module.k, lambda: (ramp(),), lambda: setattr(module, "other", 5))


@program
def branch_not_taken():
    thing = box(flag=False, k=2)
    return Scene(lambda x: x * thing.k if thing.flag else x * 3, lambda: (ramp(),), lambda: setattr(thing, "k", 5))


@program
def short_circuit():
    thing = box(a=True, b=1)
    return Scene(lambda x: x * 2 if thing.a or thing.b else x, lambda: (ramp(),), lambda: setattr(thing, "b", 0))


@program
def overridden_default():
    def scale(x, k=2, other=1):
        return x * k

    thing = box(other=1)
    return Scene(lambda x: scale(x, 3, thing.other), lambda: (ramp(),), lambda: None)


@program
def one_object_in_two_places_that_compares_by_value():
    pair = collections.namedtuple("pair", "a b")
    held = [pair(1, 2), pair(1, 2), pair(3, 4)]

    def fn(x):
        first, second, third = held
        return x * 2, first in [third, second], len({first, second})

    return Scene(fn, lambda: (ramp(),), lambda: held.__setitem__(1, held[0]))


@program
def one_decimal_in_two_places():
    held = [decimal.Decimal("1.5"), decimal.Decimal("1.5")]
    return Scene(lambda x: (x * 2, held[0] in [held[1]]), lambda: (ramp(),), lambda: held.__setitem__(1, held[0]))
