"""Results of every kind, rebuilt by the residual program and compared with eager Python."""

from __future__ import annotations

import array
import collections
import datetime
import functools
import io
import itertools
import operator
import re
import types
import typing
import weakref
from fractions import Fraction
from typing import Any

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager


def t() -> torch.Tensor:
    return torch.arange(3.0)


# ---------------------------------------------------------------------- cycles and aliases


def self_list(x: Any) -> Any:
    xs: list[Any] = [x + 1]
    xs.append(xs)
    return xs


def self_dict(x: Any) -> Any:
    d: dict[str, Any] = {"x": x + 1}
    d["me"] = d
    return d


def tuple_in_its_own_list(x: Any) -> Any:
    inner: list[Any] = []
    pair = (inner, x + 1)
    inner.append(pair)
    return pair, inner


def aliased(x: Any) -> Any:
    shared = [x * 2]
    return shared, {"a": shared, "b": (shared,)}, shared[0]


def recursive_closure(x: Any) -> Any:
    def countdown(n: int) -> int:
        return 0 if n == 0 else 1 + countdown(n - 1)

    return countdown, x + 1


def object_cycle(x: Any) -> Any:
    a, b = types.SimpleNamespace(v=x + 1), types.SimpleNamespace()
    a.other, b.other = b, a
    return a


def deque_in_itself(x: Any) -> Any:
    q: Any = collections.deque([x + 1], maxlen=4)
    q.append(q)
    return q


@pytest.mark.parametrize("fn", [self_list, self_dict, tuple_in_its_own_list, aliased, object_cycle, deque_in_itself])
def test_cycles_and_aliases(fn: Any) -> None:
    same_as_eager(fn, lambda: call(t()))


def test_a_recursive_closure_is_one_function() -> None:
    compiled = stator.compile(recursive_closure, backend="eager", fullgraph=True)
    function, _ = compiled(t())
    assert function(5) == 5
    assert function.__closure__[0].cell_contents is function


# ---------------------------------------------------------------------- iterators and views


def list_iterator(x: Any) -> Any:
    it = iter([x + 1, x + 2, x + 3])
    next(it)
    return it


def shared_iterator(x: Any) -> Any:
    it = iter([1, 2, 3, 4])
    return zip(it, it), it, x + 1


def chained(x: Any) -> Any:
    c = itertools.chain([x + 1], (2, 3), "ab")
    next(c), next(c)
    return c


def mapped(x: Any) -> Any:
    return map(lambda v: v * 2, [x, x + 1]), map(str, [1, 2]), filter(None, [0, 1, 2]), enumerate("ab", 3)


def getters(x: Any) -> Any:
    return operator.itemgetter(1, 2), operator.attrgetter("a.b"), operator.methodcaller("f", 1, k=2), x + 1


def exhausted_ones(x: Any) -> Any:
    a, b, c = iter([1]), iter({"k": 1}), iter((1,))
    list(a), list(b), list(c)
    return a, b, c, x + 1


def iterator_of_an_argument(items: Any) -> Any:
    it = iter(items)
    next(it)
    return it


def dict_iterators(x: Any) -> Any:
    d = {"a": x + 1, "b": 2, "c": 3}
    keys, values, items, back = iter(d), iter(d.values()), iter(d.items()), reversed(d)
    next(keys), next(values), next(back)
    return keys, values, items, back, d.keys(), d.items()


def more_itertools(x: Any) -> Any:
    made = [itertools.count(3, 2), itertools.cycle([1, 2]), itertools.repeat(4, 3), itertools.islice([1, 2, 3, 4], 1, 3),
            itertools.product([1, 2], "ab"), itertools.permutations([1, 2, 3], 2), itertools.combinations("abc", 2),
            itertools.accumulate([1, 2, 3]), itertools.starmap(pow, [(2, 3)]), itertools.zip_longest([1, 2], [3]),
            itertools.takewhile(bool, [1, 0]), itertools.dropwhile(bool, [1, 0, 2]), itertools.compress("abc", [1, 0, 1])]
    taken = [next(it) for it in made]
    return [list(itertools.islice(it, 5)) for it in made], taken, x + 1


def more_itertools_returned(x: Any) -> Any:
    made = (itertools.repeat(4, 3), itertools.islice([1, 2, 3, 4], 1, 3), itertools.product([1, 2], "ab"),
            itertools.permutations([1, 2, 3], 2), itertools.combinations("abc", 2), itertools.starmap(pow, [(2, 3)]),
            itertools.zip_longest([1, 2], [3]), itertools.compress("abc", [1, 0, 1]))
    next(made[0]), next(made[2]), next(made[3])
    return made, x + 1


@pytest.mark.parametrize("fn", [list_iterator, shared_iterator, chained, mapped, exhausted_ones, dict_iterators,
                                more_itertools, more_itertools_returned])
def test_iterators_as_results(fn: Any) -> None:
    same_as_eager(fn, lambda: call(t()))


def test_an_iterator_over_an_argument_is_live() -> None:
    same_as_eager(iterator_of_an_argument, lambda: call([1, 2, 3]))
    items = [1, 2, 3]
    it = stator.compile(iterator_of_an_argument, backend="eager", fullgraph=True)(items)
    items.append(4)
    assert list(it) == [2, 3, 4]


def test_getters_work() -> None:
    item, attr, method, _ = stator.compile(getters, backend="eager", fullgraph=True)(t())
    assert item([0, 1, 2]) == (1, 2)
    assert attr(types.SimpleNamespace(a=types.SimpleNamespace(b=7))) == 7
    assert method(types.SimpleNamespace(f=lambda a, k: (a, k))) == (1, 2)


# ---------------------------------------------------------------------- values of C types


def buffers(x: Any) -> Any:
    b = bytearray(b"ab")
    b.append(3)
    a = array.array("d", [1.5, 2.5])
    a.append(3.5)
    return b, a, memoryview(b"xyz"), x + 1


def streams(x: Any) -> Any:
    s = io.StringIO()
    s.write("some text")
    s.seek(4)
    return s.read(2), s.getvalue(), x + 1


def returned_stream(x: Any) -> Any:
    s = io.StringIO()
    s.write("abc")
    return s, x + 1


def immutable(x: Any) -> Any:
    return (Fraction(1, 3) + 1, datetime.timedelta(days=1) + datetime.timedelta(hours=2),
            datetime.date(2020, 1, 2), re.match("a(b)", "ab").group(1), x + 1)


def proxies(x: Any) -> Any:
    d = {"a": x + 1}
    proxy = types.MappingProxyType(d)
    d["b"] = 2
    return proxy, proxy["b"], "a" in proxy, list(proxy), len(proxy), proxy.get("zz")


def bound_c_method(x: Any) -> Any:
    xs: list[Any] = [x + 1]
    return xs.append, xs


def descriptors(x: Any) -> Any:
    return property(lambda self: 3), staticmethod(len), x + 1


class Meters(float):
    pass


class Name(str):
    unit = "m"


def number_subclasses(x: Any) -> Any:
    m, n = Meters(2.5), Name("abc")
    m.note = "made"  # type: ignore[attr-defined]
    return m, n, m + 1, n.upper(), x * m


@pytest.mark.parametrize("fn", [buffers, streams, immutable, proxies, number_subclasses])
def test_values_of_c_types(fn: Any) -> None:
    same_as_eager(fn, lambda: call(t()))


def test_a_stream_keeps_its_position() -> None:
    stream, _ = stator.compile(returned_stream, backend="eager", fullgraph=True)(t())
    assert (stream.getvalue(), stream.tell()) == ("abc", 3)


def test_a_bound_c_method_reaches_the_rebuilt_list() -> None:
    append, xs = stator.compile(bound_c_method, backend="eager", fullgraph=True)(t())
    append(5)
    assert xs[1] == 5


def test_subclasses_of_numbers_from_outside() -> None:
    def fn(m: Any, n: Any, x: Any) -> Any:
        return m, n, m * 2, n + "d", type(m) is Meters, x + m

    same_as_eager(fn, lambda: call(Meters(1.5), Name("x"), t()), lambda: call(Meters(2.5), Name("x"), t()))


# ---------------------------------------------------------------------- references, partials, typing


def weak(x: Any) -> Any:
    class Thing:
        pass

    thing = Thing()
    ref = weakref.ref(thing)
    return ref() is thing, ref is weakref.ref(thing), thing, ref, x + 1


def test_weak_references_made_inside() -> None:
    same, once, thing, ref, _ = stator.compile(weak, backend="eager", fullgraph=True)(t())
    assert same and once and ref() is thing


def weak_dicts(x: Any) -> Any:
    class Key:
        pass

    key, other = Key(), Key()
    by_key: Any = weakref.WeakKeyDictionary({key: 1})
    by_value: Any = weakref.WeakValueDictionary({"a": key})
    return by_key[key], other in by_key, by_value["a"] is key, len(by_value), x + 1


def test_weak_dictionaries() -> None:
    same_as_eager(weak_dicts, lambda: call(t()))


def partials(f: Any, x: Any) -> Any:
    g = functools.partial(f, 2)
    return g, g(x), functools.partial(g, 3)


def test_partials() -> None:
    same_as_eager(partials, lambda: call(operator.mul, t()))


def aliases(x: Any) -> Any:
    return list[int], dict[str, list[int]], typing.Optional[int], int | None, x + 1


def test_aliases() -> None:
    same_as_eager(aliases, lambda: call(t()))


def made_anew(x: Any) -> Any:
    class Kind:
        pass

    seen = [x + 1]
    return property(lambda self: seen), staticmethod(lambda: seen), classmethod(lambda cls: seen), list[Kind], Kind, seen


def test_descriptors_and_aliases_hold_what_this_call_made() -> None:
    """A second call has others: none of them may be an object that the trace made."""
    compiled = stator.compile(made_anew, backend="eager", fullgraph=True)
    first, second = compiled(t()), compiled(t())
    assert not any(mine is other for mine, other in zip(first, second, strict=True))
    for shown, static, of_class, alias, kind, seen in (first, second):
        assert shown.fget(None) is seen and static.__func__() is seen and of_class.__func__(None) is seen
        assert alias.__args__[0] is kind


def test_what_typing_keeps_is_the_same_object_every_time() -> None:
    compiled = stator.compile(lambda x: (typing.Optional[int], x + 1), backend="eager", fullgraph=True)
    assert compiled(t())[0] is typing.Optional[int]


def test_a_context_that_nobody_has_entered_is_a_new_one() -> None:
    compiled = stator.compile(lambda x: (torch._C.DisableTorchFunction(), x + 1), backend="eager", fullgraph=True)
    first, second = compiled(t())[0], compiled(t())[0]
    assert type(first) is torch._C.DisableTorchFunction and first is not second


def test_a_module_made_inside_is_a_new_one() -> None:
    def fn(x: Any) -> Any:
        made = types.ModuleType("made")
        made.seen = [x + 1]  # type: ignore[attr-defined]
        return made

    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    first, second = compiled(t()), compiled(t())
    assert first is not second and first.seen is not second.seen and first.__name__ == "made"


@pytest.mark.parametrize("fn", [lambda x: x.max(0), lambda x: torch.sort(x, descending=True), lambda x: (x.topk(1), x)])
def test_structured_results_of_torch_leave_the_graph(fn) -> None:
    """They are of torch.return_types, and are made anew from their fields."""
    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    for x in (torch.tensor([1.0, 3.0]), torch.tensor([4.0, 2.0])):
        expected, found = fn(x), compiled(x)
        assert type(found) is type(expected) and str(found) == str(expected)
