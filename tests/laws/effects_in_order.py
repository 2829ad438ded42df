"""Probes: what the program does to the world: mutations and their order, exceptions, copies."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from typing import Any

import torch
from probing import RAISES, Scene, probe, ramp
from scenery import one
from torch import nn


@probe(RAISES)
def exception_after_effects():
    seen: list[Any] = []

    def fn(x):
        seen.append(x.shape[0])
        print("about to fail")
        raise ValueError(f"after {len(seen)}")

    return Scene(fn, one(ramp()), seen.clear, lambda: list(seen))


@probe()
def exception_caught_after_effects():
    seen: list[Any] = []

    def fn(x):
        try:
            seen.append(1)
            x.add_(1)
            raise KeyError("k")
        except KeyError as error:
            seen.append(error.args[0])
        finally:
            seen.append("finally")
        return x * 2

    return Scene(fn, one(ramp()), seen.clear, lambda: list(seen))


@probe(RAISES)
def exception_of_a_tensor_operation():
    seen: list[Any] = []

    def fn(x):
        seen.append(1)
        x.add_(1)
        return x @ torch.ones(7)

    return Scene(fn, one(ramp()), look=lambda: list(seen))


@probe("SB019")
def finalizer():
    log: list[Any] = []

    class Resource:
        def __init__(self, n):
            self.n = n

        def __del__(self):
            log.append(self.n)

    def fn(x):
        resource = Resource(x.shape[0])
        k = resource.n
        del resource
        log.append("after")
        return x * k

    return Scene(fn, one(ramp()), log.clear, lambda: list(log))


@probe("SB019")
def finalizer_of_an_outside_object():
    log: list[Any] = []

    class Resource:
        k = 2

        def __del__(self):
            log.append("gone")

    holder = {"resource": Resource()}

    def fn(x):
        k = holder.pop("resource").k if "resource" in holder else 5
        log.append("after")
        return x * k

    return Scene(fn, one(ramp()), log.clear, lambda: list(log))


@probe()
def recursion():
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1)

    depth = [3]
    return Scene(lambda x: power(x, depth[0]), one(ramp()), lambda: depth.__setitem__(0, 70))


@probe("SB011")
def recursion_without_end():
    def forever(x, n):
        return forever(x, n + 1)

    return Scene(lambda x: forever(x, 0), one(ramp()))


@probe()
def list_changed_while_iterated():
    ks = [1, 2, 3, 4]

    def fn(x):
        for k in ks:
            if k % 2 == 0 and len(ks) < 9:
                ks.append(k + 3)
            if k == 1:
                ks.remove(k)
            x = x + k
        return x

    return Scene(fn, one(ramp()), lambda: ks.__setitem__(slice(None), [1, 2]), lambda: list(ks))


@probe(RAISES)
def dict_changed_while_iterated():
    table = {"a": 1}

    def fn(x):
        for key in table:
            table[key + "b"] = 2
        return x * 2

    return Scene(fn, one(ramp()), table.clear, lambda: dict(table))


@probe()
def dict_values_changed_while_iterated():
    table = {"a": 1, "b": 2}

    def fn(x):
        for key in table:
            table[key] += 1
            x = x * table[key]
        return x

    return Scene(fn, one(ramp()), lambda: table.update(c=5), lambda: dict(table))


@probe()
def types_mapped_over_tensors():
    xs = [ramp(), nn.Parameter(ramp())]
    return Scene(lambda ts: (list(map(type, ts)), [type(t) is torch.Tensor for t in ts], ts[0] * 2), lambda: (list(xs),),
                 lambda: xs.reverse())


@probe()
def attrgetter_of_a_path():
    class Node:
        def __init__(self, **held):
            self.__dict__.update(held)

    root = Node(b=Node(c=2))
    get = operator.attrgetter("b.c")
    return Scene(lambda x: x * get(root), one(ramp()), lambda: setattr(root.b, "c", 3))


@probe()
def itemgetter_and_methodcaller():
    table = {"a": 2, "b": [1, 2]}
    get, ask = operator.itemgetter("a", "b"), operator.methodcaller("get", "c", 7)
    return Scene(lambda x: (x * get(table)[0] + ask(table), get(table)[1] is table["b"]), one(ramp()), lambda: table.update(a=3, c=1))


@probe()
def sorted_by_shapes():
    xs = [ramp(4), ramp(2), ramp(3)]
    return Scene(lambda: [t * 2 for t in sorted(xs, key=lambda t: t.shape[0])], tuple, lambda: xs.append(ramp(1)))


@probe("SB002 SB003 SB012")
def sorted_by_values():
    xs = [ramp(4), ramp(2) + 5, ramp(3) - 5]
    return Scene(lambda: sorted(xs, key=lambda t: t.sum().item()), tuple, lambda: xs.append(ramp(1) - 9))


@probe()
def list_sorted_in_place():
    ks = [3, 1, 2]

    def fn(x):
        ks.sort(key=lambda k: -k)
        return x * ks[0]

    return Scene(fn, one(ramp()), lambda: ks.append(9), lambda: list(ks))


@dataclasses.dataclass
class Config:
    k: int = 2
    layers: list[Any] = dataclasses.field(default_factory=lambda: [{"n": 1}])


@probe()
def config_copied():
    config = Config()

    def fn(x):
        own = copy.deepcopy(config)
        own.k += 1
        own.layers[0]["n"] += 5
        shallow = copy.copy(config)
        shallow.layers.append(x.shape[0])
        return x * own.k + own.layers[0]["n"], own, shallow

    return Scene(fn, one(ramp()), lambda: setattr(config, "k", 7), lambda: config)


@probe("SB001 SB005 SB006 SB007 SB012 SB014 SB016")
def module_copied():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def fn(x):
        own = copy.deepcopy(model)
        with torch.no_grad():
            own[0].weight.mul_(2)
        return own(x) + model(x)

    return Scene(fn, one(ramp()), lambda: model[0].weight.data.fill_(1), lambda: list(model.parameters()))


@probe("SB001 SB005 SB015")
def pickled_inside():
    config = Config()
    return Scene(lambda x: x * pickle.loads(pickle.dumps(config)).k, one(ramp()), lambda: setattr(config, "k", 7))


@probe()
def list_written_back():
    class Model:
        def __init__(self):
            self.steps, self.log, self.table = 0, [], {"a": [1]}

    model = Model()

    def fn(x):
        model.steps += 1
        model.log.append((model.steps, x))
        model.table["a"].append(model.log)
        model.table.setdefault("b", set()).add(model.steps)
        return x * model.steps

    return Scene(fn, one(ramp()), lambda: setattr(model, "steps", 10), lambda: vars(model))


@probe()
def order_of_keys_written_back():
    table = {"a": 1, "b": 2, "c": 3}

    def fn(x):
        table["a"] = table.pop("a") + 1
        table["d"] = 4
        del table["b"]
        table.pop("z", None)
        return x * table["a"]

    return Scene(fn, one(ramp()), lambda: table.update(b=5), lambda: list(table.items()))


@probe()
def attribute_order_written_back():
    class Model:
        pass

    model = Model()
    model.a, model.b = 1, 2

    def fn(x):
        del model.a
        model.a = 5
        model.c = model.b
        return x * model.c

    return Scene(fn, one(ramp()), lambda: setattr(model, "b", 6), lambda: list(vars(model).items()))


@probe()
def cycle_and_alias_in_a_result():
    shared = [1]

    def fn(x):
        node = {"me": None, "shared": shared, "again": [shared, x, x]}
        node["me"] = node
        return node

    return Scene(fn, one(ramp()), lambda: shared.append(2), lambda: shared)


@probe()
def moved_between_containers():
    left, right = [[1], [2]], []

    def fn(x):
        while left:
            right.append(left.pop())
        right[0].append(x.shape[0])
        return x * len(right)

    return Scene(fn, one(ramp()), lambda: left.extend([right[0], [9]]), lambda: (left, right))


@probe()
def setter_with_an_effect():
    class Model:
        def __init__(self):
            self.log = []

        def __setattr__(self, name, value):
            if name != "log":
                self.log.append((name, value))
            object.__setattr__(self, name, value)

    model = Model()

    def fn(x):
        model.k = 2
        model.k = 3
        return x * model.k

    return Scene(fn, one(ramp()), lambda: model.log.clear(), lambda: vars(model))


@probe()
def subclass_of_dict_with_setitem():
    class Noting(dict):
        def __setitem__(self, key, value):
            notes.append(key)
            super().__setitem__(key, value)

    notes: list[Any] = []
    table = Noting(a=1)

    def fn(x):
        table["b"] = table["a"] + 1
        return x * table["b"]

    return Scene(fn, one(ramp()), lambda: table.update(a=6), lambda: (dict(table), list(notes)))


@probe()
def exception_object_kept():
    kept: list[Any] = []

    def fn(x):
        try:
            raise ValueError("kept", 3)
        except ValueError as error:
            kept.append(error)
        return x * kept[-1].args[1]

    return Scene(fn, one(ramp()), kept.clear, lambda: [(type(e), e.args) for e in kept])


@probe("SB005")
def outside_exception_raised():
    error = ValueError("made outside")
    seen: list[Any] = []

    def fn(x):
        seen.append(error.args)
        raise error

    return Scene(fn, one(ramp()), lambda: setattr(error, "args", ("changed",)), lambda: (list(seen), error.args))
