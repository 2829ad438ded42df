"""Small programs whose world changes between calls: each call beside eager's."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests import comparison
from tests.comparison import Surroundings, call, compare_worlds, require_same

World = tuple[Callable[[torch.Tensor], Any], list[Callable[[], Any]]]


def name_of_a_module_that_lacks_it() -> World:
    module = types.ModuleType("lacking")
    module.q = 3  # type: ignore[attr-defined]

    def function(x: torch.Tensor) -> Any:
        try:
            return x * module.q
        except AttributeError as error:
            return x, str(error)

    return function, [lambda: delattr(module, "q"), lambda: setattr(module, "__name__", "renamed"),
                      lambda: delattr(module, "__name__"), lambda: setattr(module, "__getattr__", lambda name: 8)]


def slot_replaced() -> World:
    class Slotted:
        __slots__ = ("a", "b")

    thing: Any = Slotted()
    thing.a = 1

    def function(x: torch.Tensor) -> Any:
        return x * thing.a + getattr(thing, "b", 10)

    return function, [lambda: setattr(thing, "b", 3), lambda: delattr(thing, "b"), lambda: setattr(Slotted, "a", 5),
                      lambda: setattr(Slotted, "b", 6), lambda: delattr(Slotted, "b")]


def digits_of_a_number() -> World:
    number = 10 ** 5000

    def function(x: torch.Tensor) -> Any:
        try:
            return x, len(str(number)), len(f"{number}")
        except ValueError as error:
            return x, str(error)

    return function, [lambda: sys.set_int_max_str_digits(0), lambda: sys.set_int_max_str_digits(4300)]


def digits_that_are_read() -> World:
    text = "1" * 3000

    def function(x: torch.Tensor) -> Any:
        try:
            return x * (int(text) % 7)
        except ValueError as error:
            return x, str(error)

    return function, [lambda: sys.set_int_max_str_digits(1000), lambda: sys.set_int_max_str_digits(4300)]


def iterator_over_a_list_of_its_own() -> World:
    class Items:
        def __init__(self) -> None:
            self.items = [1, 2]

        def __iter__(self) -> Any:
            return iter(self.items)

        def __len__(self) -> int:
            return len(self.items)

    items: Any = Items()

    def function(x: torch.Tensor) -> Any:
        return x * sum(items) + len(items) + (2 in items), sorted(items), max(items), tuple(items), list(map(str, items))

    return function, [lambda: items.items.append(5), lambda: items.items.reverse(),
                      lambda: setattr(Items, "__iter__", lambda self: zip(self.items, self.items)),
                      lambda: setattr(Items, "__iter__", lambda self: iter([9]))]


def keys_of_a_list_of_its_own() -> World:
    class Mapping:
        def __init__(self) -> None:
            self.names = ["a", "b"]

        def keys(self) -> Any:
            return self.names

        def __getitem__(self, key: str) -> int:
            return len(key) + len(self.names)

    mapping: Any = Mapping()

    def function(x: torch.Tensor) -> Any:
        return x + len(dict(mapping)), {**mapping}

    return function, [lambda: mapping.names.append("cc"), lambda: mapping.names.clear()]


def names_in_a_class() -> World:
    class Thing:
        a = 1
        b = 2

    def function(x: torch.Tensor) -> Any:
        return x + len(vars(Thing)), [name for name in vars(Thing)], [*Thing.__dict__], bool(vars(Thing))

    return function, [lambda: setattr(Thing, "c", 1), lambda: delattr(Thing, "a"), lambda: setattr(Thing, "a", 2)]


def names_in_a_class_counted() -> World:
    class Thing:
        a = 1

    def function(x: torch.Tensor) -> Any:
        return x * len(vars(Thing))

    return function, [lambda: setattr(Thing, "c", 1), lambda: setattr(Thing, "d", 1), lambda: delattr(Thing, "a")]


def proxy_of_a_dict() -> World:
    table = {"a": 1}
    proxy = types.MappingProxyType(table)

    def function(x: torch.Tensor) -> Any:
        return (x if proxy else -x) * len(proxy), [key for key in proxy]

    return function, [lambda: table.update(b=2), lambda: table.pop("a"), lambda: table.clear()]


def counted_views() -> World:
    table = {"a": 1}

    def function(x: torch.Tensor) -> Any:
        return x * len(table.keys()) + len(table.values()) + len(table.items())

    return function, [lambda: table.update(b=2), lambda: table.clear()]


def list_of_the_programs() -> World:
    class Rows(list):
        pass

    class Table(collections.OrderedDict):
        pass

    class Given(collections.UserList):
        pass

    rows, table, given = Rows([1, 2]), Table(a=1), Given([3, 4])

    def function(x: torch.Tensor) -> Any:
        return x + torch.tensor(rows).sum(), torch.tensor(given), str(table), json.dumps(table), dict(**table)

    return function, [lambda: setattr(Rows, "__iter__", lambda self: iter([8, 9])), lambda: delattr(Rows, "__iter__"),
                      lambda: setattr(Table, "items", lambda self: [("z", 1)]),
                      lambda: setattr(Table, "__getitem__", lambda self, key: 11), lambda: given.append(5)]


def missing_under_another_name() -> World:
    class Table(dict):
        pass

    def answer(self: Any, key: Any) -> int:
        return 15

    table = Table(a=1)
    Table.__missing__ = answer  # type: ignore[attr-defined]

    def function(x: torch.Tensor) -> Any:
        try:
            return x * table["q"]
        except KeyError as error:
            return x, repr(error)

    return function, [lambda: delattr(Table, "__missing__"), lambda: setattr(Table, "__missing__", answer)]


def fresh_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(f"{__name__}.{name}")
    logger.handlers, logger.filters, logger.propagate = [logging.NullHandler()], [], False
    logger.setLevel(logging.DEBUG)
    return logger


def handler_whose_list_is_read() -> World:
    logger, texts = fresh_logger("handler"), []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    def function(x: torch.Tensor) -> Any:
        before = len(texts)
        logger.info("%d", before)
        logger.debug("%s", x.shape)
        return x + len(texts) - before, list(texts)

    handler = Keeping()
    return function, [lambda: logger.addHandler(handler), lambda: None, lambda: logger.removeHandler(handler)]


def filter_whose_count_is_read() -> World:
    logger, count = fresh_logger("filter"), {"n": 0}

    def drop(record: logging.LogRecord) -> bool:
        count["n"] += 1
        return False

    def function(x: torch.Tensor) -> Any:
        logger.warning("one")
        return x * count["n"]

    return function, [lambda: logger.addFilter(drop), lambda: None, lambda: logger.removeFilter(drop)]


def replaced_showwarning_whose_list_is_read() -> World:
    texts: list[str] = []

    def show(message: Any, *rest: Any, **named: Any) -> None:
        texts.append(str(message))

    def function(x: torch.Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            warnings.warn("careful")
            return x + len(texts)

    return function, [lambda: texts.append("more")]


def stream_whose_list_is_read() -> World:
    class Kept:
        def __init__(self) -> None:
            self.texts: list[str] = []

        def write(self, text: str) -> None:
            self.texts.append(text)

        def flush(self) -> None:
            pass

    stream = Kept()

    def function(x: torch.Tensor) -> Any:
        with contextlib.redirect_stdout(stream):
            print("one", x.shape)
            return x + len(stream.texts)

    return function, [stream.texts.clear]


WORLDS = [handler_whose_list_is_read, filter_whose_count_is_read, replaced_showwarning_whose_list_is_read,
          stream_whose_list_is_read, list_of_the_programs, missing_under_another_name,
          names_in_a_class, names_in_a_class_counted, proxy_of_a_dict, counted_views,
          name_of_a_module_that_lacks_it, slot_replaced, digits_of_a_number, digits_that_are_read,
          iterator_over_a_list_of_its_own, keys_of_a_list_of_its_own]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__)
def test_each_call_is_eagers(world: Any) -> None:
    def make() -> comparison.World:
        function, changes = world()
        steps = [lambda: None, lambda: None, *changes, lambda: None]
        calls = [call(torch.arange(3.0)) for _ in steps]
        return comparison.World(function, calls, Surroundings(__name__, __file__), lambda number: steps[number]())

    require_same(compare_worlds(make))
