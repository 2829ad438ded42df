"""collections: namedtuple, deque, OrderedDict, defaultdict, Counter, ChainMap."""

import collections

import torch

from curriculum import call, case, ramp

Point = collections.namedtuple("Point", ["x", "y"], defaults=[0])


class Pair(collections.namedtuple("PairBase", "first second")):
    __slots__ = ()

    def swap(self):
        return Pair(self.second, self.first)


recent = collections.deque(maxlen=2)


@case(lambda: call(Point(ramp(2), 3)), lambda: call(Point(ramp(3), 1)))
def namedtuple(p):
    a, b = p
    return Point(p.x * p.y, y=b), p._replace(y=9), p._asdict(), p[0], a is p.x, len(p), Point._fields


@case(call(ramp(2)))
def namedtuple_subclass(x):
    p = Pair(x + 1, 1).swap()
    return p, p.first, isinstance(p, tuple), type(p).__name__, Point(1), Point._make([1, 2]), repr(Point(1, 2))


@case(call(ramp(2)))
def namedtuple_made_inside(x):
    Out = collections.namedtuple("Out", "loss logits")
    out = Out(loss=x.sum(), logits=x)
    return out.loss, out._fields, Out(*[1, 2])._asdict(), type(out).__name__


@case(call(ramp(2)))
def namedtuple_errors(x):
    y = x + 1
    try:
        Point()
    except TypeError as error:
        told = str(error)
    p = Point(1)
    p.x = 3
    return y, told


@case(lambda: call(collections.deque([1, 2, 3]), ramp(2)), lambda: call(collections.deque([], maxlen=2), ramp(2)))
def deque(d, x):
    d.append(4)
    d.appendleft(0)
    d.extend([5, 6])
    d.rotate(1)
    popped = d.pop(), d.popleft()
    return list(d), popped, d.maxlen, len(d), x + len(d)


@case()
def global_deque_of_tensors(x):
    recent.append(x + 1)
    return sum(t.sum() for t in recent), len(recent)


@case(lambda: call(collections.OrderedDict(a=1, b=2, c=3), ramp(2)))
def ordered_dict(d, x):
    d.move_to_end("a")
    d["d"] = 4
    first = d.popitem(last=False)
    d.move_to_end("d", last=False)
    return list(d.items()), first, d == {"d": 4, "c": 3, "a": 1}, x + len(d)


@case(lambda: call(collections.defaultdict(list, a=[1]), ramp(2)), lambda: call(collections.defaultdict(int), ramp(2)))
def defaultdict(d, x):
    value = d["new"]
    return value, "other" in d, d.get("other"), len(d), d.default_factory.__name__, x + len(d)


@case(call(ramp(2)))
def defaultdict_made_inside(x):
    groups = collections.defaultdict(list)
    for i, word in enumerate(["a", "b", "a"]):
        groups[word].append(x * i)
    counts = collections.defaultdict(lambda: 10)
    counts["k"] += 1
    return {k: torch.stack(v) for k, v in groups.items()}, dict(counts), groups


@case((["a", "b", "a"], ramp(2)), ("hello", ramp(2)))
def counter(items, x):
    c = collections.Counter(items)
    c.update(["a"])
    other = collections.Counter(a=1, z=5)
    return c.most_common(2), c["missing"], c + other, c - other, c & other, sorted(c.elements()), c.total(), x + c["a"]


@case(call(ramp(2)))
def chain_map(x):
    base = {"a": 1, "b": 2}
    top = collections.ChainMap({"b": 3}, base)
    child = top.new_child({"c": 4})
    child["a"] = 10
    return top["b"], child["a"], base, len(child), list(child), child.parents["a"], x + child["c"]


@case(call(ramp(2)))
def user_dict_and_list(x):
    class Upper(collections.UserDict):
        def __setitem__(self, key, value):
            super().__setitem__(key.upper(), value)

    d = Upper(a=1)
    d["b"] = x
    items = collections.UserList([1, 2])
    items.append(3)
    return dict(d), items.data, items[1:].data, d["B"] + 1


@case(call(ramp(2)))
def deque_errors(x):
    d = collections.deque([1])
    d.pop()
    y = x + 1
    return y, d.pop()


@case(call(ramp(2)))
def deque_as_a_window(x):
    window = collections.deque(maxlen=2)
    out = []
    for i in range(4):
        window.append(x + i)
        out.append(sum(window))
    return out, window
