"""Probes: one object in several places, objects that move between places, tensors changed under other names."""

from __future__ import annotations

import collections
import math
from typing import Any

import torch
from probing import Scene, probe, ramp
from scenery import box, one
from torch import nn


@probe()
def old_item_changed_after_it_was_replaced():
    inner = [1]
    items = [inner, 2]

    def fn(x):
        old = items[0]
        items[0] = 5
        old.append(x.shape[0])
        return x * len(old)

    return Scene(fn, one(ramp()), lambda: items.__setitem__(0, inner), lambda: (items, inner))


@probe()
def attributes_swapped():
    left, right = box(k=[1]), box(k=[2])

    def fn(x):
        left.k, right.k = right.k, left.k
        left.k.append(0)
        return x * left.k[0]

    return Scene(fn, one(ramp()), lambda: setattr(left, "k", right.k), lambda: (left, right))


@probe()
def argument_that_is_also_captured():
    shared, other = [1], [1]
    slot = [other]

    def fn(x, given):
        given.append(2)
        return x * len(shared)

    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, shared), lambda: (shared, other))


@probe()
def argument_that_was_captured_too():
    shared, other = [1], [1]
    slot = [shared]

    def fn(x, given):
        given.append(2)
        return x * len(shared)

    return Scene(fn, lambda: (ramp(), slot[0]), lambda: slot.__setitem__(0, other), lambda: (shared, other))


@probe()
def same_list_in_two_arguments():
    first, second = [1], [1]
    pair = [first, second]

    def fn(a, b, x):
        a.append(x.shape[0])
        b.append(0)
        return x * len(a), a is b

    return Scene(fn, lambda: (*pair, ramp()), lambda: pair.__setitem__(1, first), lambda: (first, second))


@probe()
def list_that_holds_itself():
    items: list[Any] = [1]
    items.append(items)

    def fn(x):
        items[1][0] += 1
        return x * items[0]

    return Scene(fn, one(ramp()), lambda: items.__setitem__(0, 9), lambda: items)


@probe()
def closure_that_escapes():
    kept: list[Any] = []

    def fn(x):
        count = 0

        def bump():
            nonlocal count
            count += 1
            return count

        bump()
        kept.append(bump)
        return x * count, bump

    return Scene(fn, one(ramp()), lambda: kept[0](), lambda: [f() for f in kept])


@probe()
def tensor_kept_in_a_global_list():
    kept: list[Any] = []

    def fn(x):
        y = x * 2
        kept.append(y)
        y.add_(1)
        return y, kept[0] + 1

    return Scene(fn, one(ramp()), kept.clear, lambda: list(kept))


@probe()
def tensor_of_the_last_call():
    state = box(last=torch.zeros(4))

    def fn(x):
        y = x + state.last
        state.last = y
        return y * 1

    return Scene(fn, one(ramp()), lambda: setattr(state, "last", torch.ones(4)), lambda: state.last)


@probe()
def buffer_assigned_inside():
    model = nn.Module()
    model.register_buffer("total", torch.zeros(4))

    def fn(x):
        model.total = model.total + x
        return model.total * 2

    return Scene(fn, one(ramp()), lambda: model.total.zero_(), lambda: dict(model.named_buffers()))


@probe("SB016")
def parameter_assigned_inside():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.zero_()

    def fn(x):
        model.weight = nn.Parameter(torch.ones(4, 4))
        return model.weight.sum() * x

    return Scene(fn, one(ramp()), look=lambda: [p.detach().clone() for p in model.parameters()][:1])


@probe()
def module_list_changed_inside():
    model = nn.ModuleList([nn.ReLU(), nn.Tanh()])

    def fn(x):
        model[0], model[1] = model[1], model[0]
        return model[0](x)

    return Scene(fn, one(ramp()), lambda: model.__setitem__(0, nn.Sigmoid()), lambda: [type(m).__name__ for m in model])


@probe()
def output_argument():
    out = torch.zeros(4)
    return Scene(lambda x: torch.add(x, 1, out=out) is out, one(ramp()), lambda: out.zero_(), lambda: out)


@probe()
def items_assigned():
    x = ramp(6)

    def fn(x):
        x[1:3] = 7
        x[0] = x[5]
        return x * 2

    return Scene(fn, one(x), lambda: x.zero_())


@probe()
def shape_changed_in_place():
    x = ramp(6).reshape(2, 3)

    def fn(x):
        x.t_()
        return x * x.shape[0]

    return Scene(fn, one(x), look=lambda: x)


@probe()
def dimension_added_in_place():
    x = ramp(4)

    def fn(x):
        x.unsqueeze_(0)
        return x.dim()

    return Scene(fn, one(x), look=lambda: x)


@probe()
def storage_set_in_place():
    x, other = ramp(4), torch.ones(4)

    def fn(x):
        x.set_(other)
        return x * 2

    return Scene(fn, one(x), lambda: other.fill_(3), lambda: x)


@probe()
def resized_in_place():
    x = ramp(4)

    def fn(x):
        x.resize_(2)
        return x * 2

    return Scene(fn, one(x), look=lambda: x)


@probe("SB002")
def membership_by_identity():
    x = ramp(1)
    items = [x, ramp(1) + 5]
    return Scene(lambda x: x * 2 if x in items else x * 3, one(x), lambda: items.reverse())


@probe()
def dict_keyed_by_tensors():
    x, y = ramp(), ramp()
    table = {x: 2, y: 3}
    slot = [x]
    return Scene(lambda: slot[0] * table[slot[0]], tuple, lambda: slot.__setitem__(0, y))


@probe()
def not_a_number():
    thing = box(k=math.nan)
    return Scene(lambda x: x * thing.k, one(ramp()), lambda: setattr(thing, "k", -math.nan))


@probe()
def subclass_of_int():
    class Count(int):
        def __mul__(self, other):
            return other * 100

    thing = box(k=2)
    return Scene(lambda x: thing.k * x, one(ramp()), lambda: setattr(thing, "k", Count(2)))


@probe()
def subclass_of_str():
    class Name(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    thing = box(name="a")
    return Scene(lambda x: x * 2 if thing.name == "b" else x * 3, one(ramp()), lambda: setattr(thing, "name", Name("a")))


@probe()
def equality_that_is_not_a_bool():
    class Odd:
        def __eq__(self, other):
            return answers

    answers: list[Any] = []
    odd = Odd()
    return Scene(lambda x: x * 2 if odd == 1 else x * 3, one(ramp()), lambda: answers.append(1))


@probe()
def counter_updated():
    seen: collections.Counter[Any] = collections.Counter()

    def fn(x):
        seen[x.shape[0]] += 1
        seen.update(["a", "b"])
        return x * seen["a"]

    return Scene(fn, one(ramp()), lambda: seen.clear(), lambda: dict(seen))


@probe()
def deque_full():
    seen: collections.deque[Any] = collections.deque(maxlen=2)

    def fn(x):
        seen.append(x)
        return x * len(seen)

    return Scene(fn, one(ramp()), lambda: seen.clear(), lambda: list(seen))


@probe()
def defaults_that_share():
    def gather(x, into=[]):
        into.append(x.shape[0])
        return into

    def fn(x):
        return gather(x) is gather(x), x * len(gather(x))

    return Scene(fn, one(ramp()), lambda: gather.__defaults__[0].clear(), lambda: gather.__defaults__)


@probe()
def object_made_inside_and_kept():
    class Node:
        def __init__(self, value, parent):
            self.value, self.parent, self.children = value, parent, []
            if parent is not None:
                parent.children.append(self)

    root = Node(0, None)

    def fn(x):
        node = Node(x * 2, root)
        Node(node.value + 1, node)
        return node.children[0].value

    return Scene(fn, one(ramp()), lambda: root.children.clear(), lambda: root)


@probe()
def slice_assigned():
    items = [1, 2, 3, 4]

    def fn(x):
        items[1:3] = [items[0]]
        del items[-1]
        return x * len(items)

    return Scene(fn, one(ramp()), lambda: items.extend([5, 6, 7]), lambda: list(items))


@probe()
def view_kept_between_calls():
    base = ramp(6)
    kept: list[Any] = []

    def fn(x):
        kept.append(x[1:3])
        x.add_(1)
        return kept[0] * 1

    return Scene(fn, one(base), lambda: base.zero_(), lambda: (base, list(kept)))


@probe()
def input_returned_twice():
    x = ramp()
    return Scene(lambda x: (x, [x, x.detach()], x.view(2, 2)), one(x))


@probe()
def gradient_flows_to_a_parameter():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)

    def look():
        grads = torch.autograd.grad(compute(ramp()), list(model.parameters()))
        return [g.clone() for g in grads]

    def compute(x):
        return (model(x) * 2).sum()

    return Scene(compute, one(ramp()), lambda: model.weight.data.fill_(2), look)
