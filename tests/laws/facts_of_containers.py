"""Probes: facts about containers outside: keys, items, length and order, each changed between calls."""

from __future__ import annotations

import collections
import types
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import box, one


@probe()
def dict_key_added():
    table = {"a": 1}
    return Scene(lambda x: x * (table["b"] if "b" in table else 5), one(ramp()), lambda: table.update(b=3), lambda: table)


@probe()
def dict_iterated():
    table = {"a": 1}
    return Scene(lambda x: [x * v for v in table.values()], one(ramp()), lambda: table.update(b=3))


@probe()
def dict_order():
    table = {"a": 1, "b": 2}
    return Scene(lambda x: (x, list(table)), one(ramp()), lambda: table.update(a=table.pop("a")))


@probe()
def dict_length():
    table = {"a": 1}
    return Scene(lambda x: x * len(table), one(ramp()), lambda: table.update(b=3))


@probe()
def dict_get_with_default():
    table: dict[str, int] = {}
    return Scene(lambda x: x * table.get("k", 2), one(ramp()), lambda: table.update(k=3))


@probe()
def dict_default_set():
    table: dict[str, list[int]] = {"a": [1]}
    return Scene(lambda x: x * len(table.setdefault("k", [])), one(ramp()), lambda: table.update(k=[3, 4]), lambda: table)


@probe()
def dict_default_found():
    table = {"k": [1], "b": [2]}
    return Scene(lambda x: (x * table.setdefault("k", [])[0], table.setdefault("k")), one(ramp()), lambda: table.pop("k"),
                 lambda: table)


@probe()
def defaultdict_written():
    table = collections.defaultdict(lambda: 2)
    return Scene(lambda x: x * table["k"], one(ramp()), lambda: table.update(k=3), lambda: dict(table))


@probe()
def list_grown():
    ks = [1, 2]
    return Scene(lambda x: x * sum(ks), one(ramp()), lambda: ks.append(3))


@probe()
def list_item():
    ks = [1, 2]
    return Scene(lambda x: x * ks[-1], one(ramp()), lambda: ks.append(3))


@probe()
def list_truth():
    ks: list[int] = []
    return Scene(lambda x: x * 2 if ks else x * 3, one(ramp()), lambda: ks.append(3))


@probe()
def list_membership():
    ks = [1, 2]
    return Scene(lambda x: x * 2 if 3 in ks else x * 3, one(ramp()), lambda: ks.append(3))


@probe()
def tuple_replaced():
    thing = box(ks=(1, [2]))
    return Scene(lambda x: x * thing.ks[1][0], one(ramp()), lambda: setattr(thing, "ks", (1, [3])))


@probe()
def nested_container():
    tree = {"a": [{"k": 2}, (1, [5])]}
    def change():
        tree["a"][0]["k"] = 3
        tree["a"][1][1][0] = 6
    return Scene(lambda x: x * tree["a"][0]["k"] + tree["a"][1][1][0], one(ramp()), change)


@probe()
def deque_rotated():
    ks = collections.deque([2, 3])
    return Scene(lambda x: x * ks[0], one(ramp()), lambda: ks.rotate(1))


@probe()
def set_member():
    ks = {1, 2}
    return Scene(lambda x: x * 2 if 3 in ks else x * 3, one(ramp()), lambda: ks.add(3))


@probe()
def set_written():
    ks = {1, 2}

    def fn(x):
        ks.add(len(ks) + 1)
        ks.discard(1)
        return x * len(ks)

    return Scene(fn, one(ramp()), lambda: ks.add(50), lambda: sorted(ks))


@probe("raises")
def key_deleted_that_may_be_gone():
    table = {"k": 2}

    def fn(x):
        del table["k"]
        return x * 2

    return Scene(fn, one(ramp()), lambda: table.update(k=4), lambda: dict(table))


@probe("raises")
def list_popped_that_may_be_empty():
    ks = [1, 2]
    return Scene(lambda x: x * ks.pop(), one(ramp()), ks.clear, lambda: list(ks))


@probe("raises")
def set_popped_that_may_be_empty():
    ks = {1}

    def fn(x):
        ks.remove(1)
        return x * 2

    return Scene(fn, one(ramp()), lambda: ks.add(1), lambda: set(ks))


def weighed(values: Any, x: torch.Tensor) -> torch.Tensor:
    for place, value in enumerate(values):
        x = x * (place + 2) + value
    return x


def ordered() -> Any:
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("b", last=False)
    return table


@probe()
def order_of_an_ordered_dict_by_values():
    table = ordered()
    return Scene(lambda x: weighed(table.values(), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_by_items():
    table = ordered()
    return Scene(lambda x: weighed([v for _, v in table.items()], x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_by_keys():
    table = ordered()
    return Scene(lambda x: weighed(map(ord, table.keys()), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def order_of_an_ordered_dict_behind_a_proxy():
    table = ordered()
    proxy = types.MappingProxyType(table)
    return Scene(lambda x: weighed(proxy.values(), x), one(ramp()), lambda: table.move_to_end("a"))


@probe()
def keys_of_an_ordered_dict():
    table = ordered()
    return Scene(lambda x: weighed(table.values(), x), one(ramp()), lambda: table.update(d=4))


@probe()
def attributes_of_an_ordered_dict():
    world = box(table=collections.OrderedDict(a=1))
    world.table.n = 1

    def fn(x):
        table = world.table
        table.n += 1
        table.m = hasattr(table, "late")
        return x + table.n

    return Scene(fn, one(ramp()), lambda: setattr(world.table, "late", 3), lambda: dict(vars(world.table)))


@probe("SB009")
def attributes_of_an_ordered_dict_made_inside():
    def fn(x):
        table = collections.OrderedDict(a=1)
        stator.graph_break()
        table.n = 3
        stator.graph_break()
        return x + table.n, vars(table), table

    return Scene(fn, one(ramp()))
