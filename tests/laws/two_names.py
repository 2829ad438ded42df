"""States that two names may share.   an object and a dict that may be its __dict__  ->  pairs, apart and as one

In: nothing.  Out: STATES, each with a way to make two names of two states, or of one; how to write through either name and
how to read through either; and what an observer sees afterwards.
"""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import io
import itertools
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class State:
    """`one` and `two` make the names; write and read take a name (or either of two kinds of names) and a number."""

    one: Callable[[], tuple[Any, Any]]
    two: Callable[[], tuple[Any, Any]]
    write: Callable[[Any, int], Any]
    read: Callable[[Any], Any]
    write_second: Callable[[Any, int], Any] | None = None
    read_second: Callable[[Any], Any] | None = None
    show: Callable[[Any], Any] | None = None  # by an observer, afterwards; else `read`
    put_back: Callable[[], Any] = field(default=lambda: None)

    @property
    def other_write(self) -> Callable[[Any, int], Any]:
        return self.write_second or self.write

    @property
    def other_read(self) -> Callable[[Any], Any]:
        return self.read_second or self.read


STATES: dict[str, State] = {}


def add(name: str, make: Callable[[], Any], write: Any, read: Any, first: Any = None, second: Any = None,
        **more: Any) -> None:
    """`make` gives a state; `first` and `second` a name of it."""
    first, second = first or (lambda s: s), second or first or (lambda s: s)

    def one() -> tuple[Any, Any]:
        state = make()
        return first(state), second(state)

    def two() -> tuple[Any, Any]:
        return first(make()), second(make())

    STATES[name] = State(one, two, write, read, **more)


class Plain:
    def __init__(self) -> None:
        self.n = 0
        self.items = [0]

    def bump(self, n: int) -> None:
        self.n = n

    def get(self) -> int:
        return self.n


class Slotted:
    __slots__ = ("n", "__weakref__")

    def __init__(self) -> None:
        self.n = 0


class Sub(Plain):
    pass


class ListKind(list):
    pass


class DictKind(dict):
    pass


class SetKind(set):
    pass


class DequeKind(collections.deque):
    pass


def closures() -> tuple[Any, Any]:
    n = 0

    def put(value: int) -> None:
        nonlocal n
        n = value

    def get() -> int:
        return n

    return put, get


def set_n(o: Any, n: int) -> None:
    o.n = n


def get_n(o: Any) -> Any:
    return o.n


def set_key(d: Any, n: int) -> None:
    d["n"] = n


def get_key(d: Any) -> Any:
    return d["n"]


def push(items: Any, n: int) -> None:
    items.append(n)


def listed(items: Any) -> Any:
    return list(items)


def total(items: Any) -> Any:
    return sum(items)


# ---------------------------------------------------------------- containers and objects

add("list", lambda: [0], push, listed)
add("list, length", lambda: [0], push, len)
add("list, item", lambda: [0], lambda s, n: s.__setitem__(0, n), lambda s: s[0])
add("dict", lambda: {"n": 0}, set_key, get_key)
add("dict, get", lambda: {"m": 0}, set_key, lambda d: d.get("n", -1))
add("dict, deletion", lambda: {"n": 0, "m": 1}, lambda d, n: d.pop("n", None), lambda d: "n" in d)
add("set", lambda: {0}, lambda s, n: s.add(n), lambda s: sorted(s))
add("set, membership", lambda: {0}, lambda s, n: s.add(n), lambda s: 5 in s)
add("deque", lambda: collections.deque([0]), push, listed)
add("OrderedDict", lambda: collections.OrderedDict(n=0), set_key, get_key)
add("defaultdict", lambda: collections.defaultdict(int, n=0), set_key, get_key)
add("Counter", lambda: collections.Counter("n"), set_key, get_key)
add("list subclass", lambda: ListKind([0]), push, listed)
add("dict subclass", lambda: DictKind(n=0), set_key, get_key)
add("set subclass", lambda: SetKind([0]), lambda s, n: s.add(n), lambda s: sorted(s))
add("deque subclass", lambda: DequeKind([0]), push, listed)
add("attribute of a list subclass", lambda: ListKind([0]), set_n, lambda s: getattr(s, "n", -1))
add("instance", Plain, set_n, get_n)
add("instance, setattr", Plain, lambda o, n: setattr(o, "n", n), lambda o: getattr(o, "n"))
add("instance, deletion", Plain, lambda o, n: o.__dict__.pop("n", None), lambda o: hasattr(o, "n"))
add("slots", Slotted, set_n, get_n)
add("methods of one object", Plain, lambda m, n: m(n), lambda m: m(), lambda o: o.bump, lambda o: o.get,
    write_second=lambda m, n: None, read_second=lambda m: m(), show=lambda m: m.__self__.n)
add("a method and its object", Plain, lambda m, n: m(n), lambda m: None, lambda o: o.bump, lambda o: o,
    write_second=set_n, read_second=get_n, show=lambda m: getattr(m, "__self__", m).n)

# ---------------------------------------------------------------- an object and its dict

for label, make in (("instance", Plain), ("SimpleNamespace", lambda: types.SimpleNamespace(n=0)),
                    ("list subclass", lambda: with_n(ListKind([1]))), ("module", lambda: with_n(types.ModuleType("m"))),
                    ("nn.Module", lambda: with_n(torch.nn.Identity())), ("function", lambda: with_n(fresh_function()))):
    add(f"{label} and its __dict__", make, set_n, get_n, lambda o: o, lambda o: o.__dict__,
        write_second=set_key, read_second=get_key, show=lambda o: (o if type(o) is dict else vars(o))["n"])
    add(f"__dict__ and its {label}", make, set_key, get_key, lambda o: o.__dict__, lambda o: o,
        write_second=set_n, read_second=get_n, show=lambda o: (o if type(o) is dict else vars(o))["n"])
    add(f"__dict__ of a {label}, twice", make, set_key, get_key, lambda o: o.__dict__)
    add(f"two {label}s with one __dict__" if label in ("instance",) else f"{label}, twice", make, set_n, get_n,
        *((lambda o: o, lambda o: with_dict(Plain(), o.__dict__)) if label == "instance" else ()))


def with_n(value: Any) -> Any:
    value.n = 0
    return value


def with_dict(value: Any, namespace: Any) -> Any:
    value.__dict__ = namespace
    return value


def fresh_function() -> Any:
    def function(x: Any) -> Any:
        return x
    return function


add("two classes' objects with one __dict__", Plain, set_n, get_n, lambda o: o, lambda o: with_dict(Sub(), o.__dict__))
add("vars() asked inside", Plain, lambda o, n: vars(o).__setitem__("n", n), get_n)
add("a list in two instances", lambda: [0], lambda o, n: o.items.append(n), lambda o: list(o.items),
    lambda s: with_items(s))
add("a list in an instance and a dict", lambda: [0], lambda o, n: o.items.append(n), lambda o: list(o.items),
    lambda s: with_items(s), lambda s: {"items": s},
    write_second=lambda d, n: d["items"].append(n), read_second=lambda d: list(d["items"]),
    show=lambda o: list(o["items"] if type(o) is dict else o.items))


def with_items(items: Any) -> Any:
    made = Plain()
    made.items = items
    return made


# ---------------------------------------------------------------- cells, functions, globals, classes

add("cell of two closures", closures, lambda f, n: f(n), lambda f: None, lambda pair: pair[0], lambda pair: pair[1],
    write_second=lambda f, n: None, read_second=lambda f: f(), show=lambda f: f.__closure__[0].cell_contents)
add("cell of two closures, the reader first", closures, lambda f, n: None, lambda f: f(), lambda pair: pair[1],
    lambda pair: pair[0], write_second=lambda f, n: f(n), read_second=lambda f: None,
    show=lambda f: f.__closure__[0].cell_contents)
add("cell_contents", closures, lambda f, n: setattr(f.__closure__[0], "cell_contents", n), lambda f: f(),
    lambda pair: pair[1])
add("cells themselves", lambda: types.CellType(0), lambda c, n: setattr(c, "cell_contents", n), lambda c: c.cell_contents)
add("a cell and a closure", closures, lambda c, n: setattr(c, "cell_contents", n), lambda c: c.cell_contents,
    lambda pair: pair[1].__closure__[0], lambda pair: pair[1], write_second=lambda f, n: None, read_second=lambda f: f(),
    show=lambda c: (c.__closure__[0] if type(c) is types.FunctionType else c).cell_contents)
add("function attribute", fresh_function, set_n, lambda f: getattr(f, "n", -1))


def with_default() -> Any:
    def function(n: int | None = None, items: Any = [0]) -> Any:  # noqa: B006 - the default is the state
        if n is not None:
            items.append(n)
        return list(items)
    return types.FunctionType(function.__code__, function.__globals__, "function", (None, [0]))


add("default argument and its list", with_default, lambda f, n: f(n), lambda f: f(), lambda f: f,
    lambda f: f.__defaults__[1], write_second=push, read_second=listed,
    show=lambda f: list(f.__defaults__[1] if type(f) is types.FunctionType else f))
add("partials that share a list", lambda: [0], lambda p, n: p(n), lambda p: list(p.func.__self__),
    lambda s: functools.partial(s.append))
add("partials of a function with a list", lambda: [0], lambda p, n: p(n), lambda p: list(p.args[0]),
    lambda s: functools.partial(push, s))
for _make in (lambda: functools.partial(len), lambda: staticmethod(len), lambda: classmethod(len)):
    add(f"attribute of a {type(_make()).__name__}", _make, set_n, lambda p: getattr(p, "n", -1))
add("cache and its counters", lambda: functools.lru_cache(None)(abs), lambda c, n: c(n), lambda c: c.cache_info().misses)
add("class of an object", lambda: Plain(), lambda o, n: setattr(o, "__class__", Sub), lambda o: type(o).__name__)


def fresh_scope() -> Any:
    scope: dict[str, Any] = {"n": 0}
    exec("def put(v):\n    global n\n    n = v\ndef get():\n    return n\n", scope)
    return scope


add("globals of two functions", fresh_scope, lambda f, n: f(n), lambda f: None, lambda s: s["put"], lambda s: s["get"],
    write_second=lambda f, n: None, read_second=lambda f: f(), show=lambda f: f.__globals__["n"])
add("globals and a function", fresh_scope, set_key, get_key, lambda s: s, lambda s: s["get"],
    write_second=lambda f, n: None, read_second=lambda f: f(),
    show=lambda s: (s.__globals__ if type(s) is types.FunctionType else s)["n"])
add("function and its globals", fresh_scope, lambda f, n: f(n), lambda f: None, lambda s: s["put"], lambda s: s,
    write_second=set_key, read_second=get_key,
    show=lambda s: (s.__globals__ if type(s) is types.FunctionType else s)["n"])
add("__globals__ of functions", fresh_scope, lambda f, n: f.__globals__.__setitem__("n", n), lambda f: f.__globals__["n"],
    lambda s: s["get"], lambda s: s["put"])
add("__globals__ and a reader", fresh_scope, lambda f, n: f.__globals__.__setitem__("n", n), lambda f: f(),
    lambda s: s["get"])
COUNT = 0


def read_count(_: Any = None) -> int:
    return COUNT


def write_count(_: Any, n: int) -> None:
    global COUNT
    COUNT = n


def clear_count() -> None:
    globals()["COUNT"] = 0


STATES["globals() as a dict"] = State(
    lambda: (globals(), None), lambda: ({"COUNT": 0}, None), lambda d, n: d.__setitem__("COUNT", n), lambda d: d["COUNT"],
    write_second=write_count, read_second=read_count, show=lambda d: COUNT if d is None else d["COUNT"],
    put_back=clear_count)
STATES["__globals__ of a function"] = State(
    lambda: (read_count, None), lambda: (fresh_scope_with_count(), None),
    lambda f, n: f.__globals__.__setitem__("COUNT", n), lambda f: f.__globals__["COUNT"],
    write_second=write_count, read_second=read_count, show=lambda f: COUNT if f is None else f.__globals__["COUNT"],
    put_back=clear_count)
STATES["module as an argument"] = State(
    lambda: (sys.modules[__name__], None), lambda: (module_with_count(), None), lambda m, n: setattr(m, "COUNT", n),
    lambda m: m.COUNT, write_second=write_count, read_second=read_count,
    show=lambda m: COUNT if m is None else m.COUNT, put_back=clear_count)
STATES["__dict__ of a module"] = State(
    lambda: (sys.modules[__name__].__dict__, None), lambda: (module_with_count().__dict__, None),
    lambda d, n: d.__setitem__("COUNT", n), lambda d: d["COUNT"], write_second=write_count, read_second=read_count,
    show=lambda d: COUNT if d is None else d["COUNT"], put_back=clear_count)


def fresh_scope_with_count() -> Any:
    return types.FunctionType(read_count.__code__, {"COUNT": 0}, "read_count")


def module_with_count() -> Any:
    made = types.ModuleType("module_with_count")
    made.COUNT = 0  # type: ignore[attr-defined]
    return made


def fresh_class() -> Any:
    return type("Fresh", (), {"n": 0})


add("class", fresh_class, set_n, get_n)
add("class and its __dict__", fresh_class, set_n, get_n, lambda c: c, lambda c: c.__dict__,
    write_second=lambda d, n: None, read_second=get_key, show=lambda c: c["n"] if isinstance(c, types.MappingProxyType) else c.n)
add("class and its instance", fresh_class, set_n, get_n, lambda c: c, lambda c: c(), write_second=lambda o, n: None,
    read_second=get_n)

# ---------------------------------------------------------------- views, proxies, iterators

add("dict view and dict", lambda: {"n": 0}, set_key, get_key, lambda d: d, lambda d: d.items(),
    write_second=lambda v, n: None, read_second=lambda v: list(v), show=lambda d: dict(d)["n"])
add("dict keys and dict", lambda: {"n": 0}, lambda d, n: d.__setitem__(n, 1), len, lambda d: d, lambda d: d.keys(),
    write_second=lambda v, n: None, read_second=lambda v: list(v), show=lambda d: list(d))
add("mappingproxy and dict", lambda: {"n": 0}, set_key, get_key, lambda d: d, types.MappingProxyType,
    write_second=lambda v, n: None, read_second=get_key)
add("ChainMap", lambda: {"n": 0}, set_key, get_key, lambda d: d, lambda d: collections.ChainMap({}, d),
    write_second=lambda c, n: c.maps[1].__setitem__("n", n), read_second=get_key)
add("UserDict", lambda: {"n": 0}, set_key, get_key, lambda d: d, lambda d: user_dict(d))
add("UserDict and its data", lambda: collections.UserDict(n=0), set_key, get_key, lambda d: d, lambda d: d.data)
add("UserList and its data", lambda: collections.UserList([0]), push, listed, lambda d: d, lambda d: d.data)
add("weakref", Plain, set_n, get_n, lambda o: KEPT.append(o) or o, weakref.ref, write_second=lambda r, n: set_n(r(), n),
    read_second=lambda r: r().n, show=lambda o: (o() if type(o) is weakref.ref else o).n)
add("two weakrefs", Slotted, lambda r, n: set_n(r(), n), lambda r: r().n, lambda o: weakref.ref(KEPT.append(o) or o))
KEPT: list[Any] = []


def user_dict(data: Any) -> Any:
    made: Any = collections.UserDict()
    made.data = data
    return made


def take(iterator: Any) -> Any:
    return next(iterator, -1)


def counted() -> Any:
    yield from range(10)


for label, make in (("list", lambda: iter([1, 2, 3])), ("tuple", lambda: iter((1, 2, 3))), ("range", lambda: iter(range(5))),
                    ("dict", lambda: iter({1: 1, 2: 2})), ("set", lambda: iter({1, 2, 3})), ("string", lambda: iter("abc")),
                    ("count", lambda: itertools.count()), ("cycle", lambda: itertools.cycle([1, 2])),
                    ("zip", lambda: zip([1, 2], [3, 4])), ("enumerate", lambda: enumerate([5, 6, 7])),  # noqa: B905
                    ("map", lambda: map(abs, [1, 2, 3])), ("reversed", lambda: reversed([1, 2, 3])),
                    ("chain", lambda: itertools.chain([1, 2], [3])), ("generator", counted)):
    add(f"iterator: {label}", make, lambda i, n: take(i), take, show=lambda i: take(i))
add("iterator and its list", lambda: [1, 2, 3], push, listed, lambda s: s, iter, write_second=lambda i, n: take(i),
    read_second=lambda i: list(i), show=lambda s: list(s))
add("iterator and its reversed list", lambda: [1, 2, 3], lambda s, n: s.__setitem__(1, n), listed, lambda s: s, reversed,
    write_second=lambda i, n: take(i), read_second=lambda i: list(i), show=lambda s: list(s))
add("two iterators of one list", lambda: [1, 2, 3], lambda i, n: take(i), take, iter, show=take)
add("two zips of one iterator", lambda: iter([1, 2, 3, 4]), lambda i, n: take(i), take, lambda i: zip(i),  # noqa: B905
    show=take)

# ---------------------------------------------------------------- locks, streams, files, buffers

add("Lock", threading.Lock, lambda s, n: s.acquire(blocking=False), lambda s: s.locked())
add("RLock", threading.RLock, lambda s, n: s.acquire(blocking=False), lambda s: s._is_owned())
add("Semaphore", lambda: threading.Semaphore(3), lambda s, n: s.acquire(blocking=False), lambda s: s._value)
add("Event", threading.Event, lambda s, n: s.set(), lambda s: s.is_set())
add("random.Random", lambda: random.Random(3), lambda s, n: s.random(), lambda s: s.random())
add("random.Random, seeded", lambda: random.Random(3), lambda s, n: s.seed(n), lambda s: s.random())
add("random.Random, integers", lambda: random.Random(3), lambda s, n: s.randint(0, 100), lambda s: s.randint(0, 100))
add("torch.Generator", lambda: torch.Generator().manual_seed(3), lambda s, n: torch.rand(2, generator=s),
    lambda s: torch.rand(2, generator=s))
add("torch.Generator, seeded", lambda: torch.Generator().manual_seed(3), lambda s, n: s.manual_seed(n),
    lambda s: torch.rand(2, generator=s))
add("numpy Generator", lambda: np.random.default_rng(3), lambda s, n: s.random(), lambda s: s.random())
add("numpy Generator, array", lambda: np.random.default_rng(3), lambda s, n: s.random(2), lambda s: s.random(2).tolist())
add("numpy RandomState", lambda: np.random.RandomState(3), lambda s, n: s.rand(), lambda s: s.rand())
add("StringIO", lambda: io.StringIO("abcdef"), lambda s, n: s.read(1), lambda s: s.read(1), show=lambda s: s.tell())
add("StringIO, written", io.StringIO, lambda s, n: s.write(str(n)), lambda s: s.getvalue())
add("BytesIO", lambda: io.BytesIO(b"abcdef"), lambda s, n: s.read(1), lambda s: s.read(1), show=lambda s: s.tell())
add("bytearray", lambda: bytearray(b"abc"), lambda s, n: s.__setitem__(0, n), lambda s: s[0])
add("bytearray, length", lambda: bytearray(b"abc"), lambda s, n: s.append(n), len)
add("memoryviews of one bytearray", lambda: bytearray(b"abc"), lambda s, n: s.__setitem__(0, n), lambda s: s[0], memoryview)
add("bytearray and memoryview", lambda: bytearray(b"abc"), lambda s, n: s.__setitem__(0, n), lambda s: s[0], lambda s: s,
    memoryview)
add("memoryview, twice", lambda: memoryview(bytearray(b"abc")), lambda s, n: s.__setitem__(0, n), lambda s: s[0])
add("array.array", lambda: array.array("i", [0, 1]), lambda s, n: s.__setitem__(0, n), lambda s: s[0])
add("array.array and memoryview", lambda: array.array("i", [0, 1]), lambda s, n: s.__setitem__(0, n), lambda s: s[0],
    lambda s: s, memoryview)
add("numpy array", lambda: np.zeros(3), lambda s, n: s.__setitem__(0, n), lambda s: float(s[0]))
add("numpy array and view", lambda: np.zeros(3), lambda s, n: s.__setitem__(0, n), lambda s: float(s[0]), lambda s: s,
    lambda s: s[:2])
add("ContextVar", lambda: contextvars.ContextVar("n", default=0), lambda s, n: s.set(n), lambda s: s.get())
add("lru_cache", lambda: functools.lru_cache(lambda v: [v]), lambda s, n: s(1).append(n), lambda s: list(s(1)))

# ---------------------------------------------------------------- tensors


def leaf() -> Any:
    return torch.ones(3)


def trained() -> Any:
    made = torch.ones(3, requires_grad=True)
    made.grad = torch.zeros(3)
    return made


def of_tensor(value: Any) -> Any:
    return None if value is None else (value.tolist(), value.requires_grad)


add("tensor values", leaf, lambda t, n: t.add_(n), lambda t: t * 2, show=of_tensor)
add("tensor values, item", leaf, lambda t, n: t.add_(n), lambda t: 1 if t[0].item() > 3 else 2, show=of_tensor)
add("tensor and view", leaf, lambda t, n: t.add_(n), lambda t: t * 2, lambda t: t, lambda t: t[:2], show=of_tensor)
add("tensor and detached", leaf, lambda t, n: t.add_(n), lambda t: t * 2, lambda t: t, lambda t: t.detach(), show=of_tensor)
add("requires_grad_", leaf, lambda t, n: t.requires_grad_(), lambda t: t.requires_grad)
add("requires_grad", leaf, lambda t, n: setattr(t, "requires_grad", True), lambda t: (t * 2).requires_grad)
add("grad", trained, lambda t, n: setattr(t, "grad", torch.full((3,), float(n))), lambda t: t.grad * 1,
    show=lambda t: of_tensor(t.grad))
add("grad to None", trained, lambda t, n: setattr(t, "grad", None), lambda t: t.grad is None,
    show=lambda t: of_tensor(t.grad))
add("grad in place", trained, lambda t, n: t.grad.add_(n), lambda t: t.grad * 1, show=lambda t: of_tensor(t.grad))
add("a tensor and its grad", trained, lambda t, n: t.grad.add_(n), lambda t: t.grad * 1, lambda t: t, lambda t: t.grad,
    write_second=lambda g, n: g.add_(n), read_second=lambda g: g * 1,
    show=lambda t: of_tensor(t.grad if t.requires_grad else t))
add("data set", leaf, lambda t, n: setattr(t, "data", torch.full((3,), float(n))), lambda t: t * 1, show=of_tensor)
add("data of another shape", leaf, lambda t, n: setattr(t, "data", torch.full((n,), 1.0)), lambda t: t.shape[0], show=of_tensor)
add("attribute of a tensor", leaf, set_n, lambda t: getattr(t, "n", -1))
add("tensor and its __dict__", lambda: with_n(leaf()), set_n, get_n, lambda t: t, lambda t: t.__dict__,
    write_second=set_key, read_second=get_key, show=lambda t: (t if type(t) is dict else t.__dict__)["n"])
add("data_ptr faces", lambda: np.ones(3, np.float32), lambda t, n: t.add_(n), lambda t: t * 1, torch.from_numpy,
    show=of_tensor)
add("tensor and its array", lambda: np.ones(3, np.float32), lambda t, n: t.add_(n), lambda t: t * 1, torch.from_numpy,
    lambda a: a, write_second=lambda a, n: a.__setitem__(0, n), read_second=lambda a: float(a[0]),
    show=lambda t: t.tolist())
add("parameter of two modules", lambda: torch.nn.Parameter(torch.ones(3)), lambda m, n: add_to(m, n), lambda m: m.p * 2,
    lambda p: module_with(p), show=lambda m: m.p.tolist())
add("buffer and argument", leaf, lambda m, n: m.p.add_(n), lambda m: m.p * 2, lambda p: module_with(p), lambda p: p,
    write_second=lambda t, n: t.add_(n), read_second=lambda t: 1 if t[0].item() > 3 else 2,
    show=lambda m: (m if isinstance(m, torch.Tensor) else m.p).tolist())
add("module", lambda: with_n(torch.nn.Identity()), set_n, get_n)
add("training flag", lambda: torch.nn.Dropout(0.0), lambda m, n: m.eval(), lambda m: m.training)


def add_to(module: Any, n: int) -> None:
    with torch.no_grad():
        module.p.add_(n)


def module_with(p: Any) -> Any:
    made = torch.nn.Module()
    if isinstance(p, torch.nn.Parameter):
        made.p = p
    else:
        made.register_buffer("p", p)
    return made
