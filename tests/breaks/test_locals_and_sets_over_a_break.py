"""State that a break must not change: the dict that locals() has given, and the order of sets hashed by address."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


class K:
    pass


def locals_held(x: torch.Tensor, n: int) -> Any:
    a = 1
    d = locals()
    stator.graph_break()
    a = 2
    b = x * a
    keys = sorted(d)
    e = locals()
    return b, d is e, sorted(d), d.get("a"), keys


def locals_before(x: torch.Tensor, n: int) -> Any:
    a = n
    d = locals()
    a = a + 1
    stator.graph_break()
    before = d["a"]
    locals()
    return x * a, before, d["a"], sorted(d)


def locals_mut(x: torch.Tensor, n: int) -> Any:
    a = n
    d = locals()
    d["zz"] = 5
    stator.graph_break()
    return x, sorted(d), "zz" in locals(), locals() is d, locals().get("zz")


def locals_loop(x: torch.Tensor, n: int) -> Any:
    out = []
    for i in range(3):
        d = locals()
        stator.graph_break()
        out.append((i, d["i"], sorted(d), d is locals()))
    return x, out


def locals_inner(x: torch.Tensor, n: int) -> Any:
    def inner(q: torch.Tensor) -> Any:
        d = locals()
        stator.graph_break()
        w = q * 2
        return d is locals(), sorted(d), d["q"] is q
    return inner(x), x + 1


def locals_cell(x: torch.Tensor, n: int) -> Any:
    a = n
    def g() -> int:
        return a
    d = locals()
    stator.graph_break()
    a = 7
    return x, sorted(d), d["a"], g(), locals()["a"], d["a"]


def locals_twice(x: torch.Tensor, n: int) -> Any:
    d = locals()
    y = x + 1
    e = locals()
    stator.graph_break()
    z = y + 1
    return d is e, sorted(d), sorted(locals()), d is locals()


def sets_loop(x: torch.Tensor, n: int) -> Any:
    ks = [K() for _ in range(6)]
    s = set(ks)
    seen = []
    for k in s:
        stator.graph_break()
        seen.append(k)
    return x, seen == list(s)


def sets_zip(x: torch.Tensor, n: int) -> Any:
    ks = [K() for _ in range(6)]
    s = set(ks)
    l = list(s)
    y = x + len(l)
    stator.graph_break()
    return y, l == list(s), [a is b for a, b in zip(s, l)]


def sets_tensors(x: torch.Tensor, n: int) -> Any:
    s = {x * i for i in range(5)}
    l = list(s)
    stator.graph_break()
    return all(a is b for a, b in zip(s, l)), x


def sets_frozen(x: torch.Tensor, n: int) -> Any:
    s = frozenset(K() for i in range(6))
    l = [*s]
    stator.graph_break()
    return all(a is b for a, b in zip(s, l)), x


def listed_twice(x: torch.Tensor, n: int) -> Any:
    """Without a break of the program's own; the set itself leaves."""
    members = {K() for _ in range(7)}
    return x + n, members, list(members)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return tuple(map(shown, value)) if isinstance(value, (tuple, list)) else value


FUNCTIONS = [locals_held, locals_before, locals_mut, locals_loop, locals_inner, locals_cell, locals_twice, sets_loop, sets_zip, sets_tensors, sets_frozen]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_break_changes_nothing(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(function, backend="eager")
    for n in (1, 2, 3):
        x = torch.full((2,), float(n))
        assert shown(compiled(x, n)) == shown(function(x, n))


def test_a_set_and_a_list_of_it_have_one_order() -> None:
    compiled = stator.compile(listed_twice, backend="eager")
    for n in (1, 2):
        _, members, items = compiled(torch.ones(2), n)
        assert list(members) == items


def test_locals_that_nobody_keeps_are_captured() -> None:
    def text(x: torch.Tensor, n: int) -> Any:
        said = "%(n)d" % locals()
        stator.graph_break()
        return x * n, said

    compiled = stator.compile(text, backend="eager")
    with stator.events.record() as log:
        assert compiled(torch.ones(2), 3)[1] == "3"
    assert sum(isinstance(event, stator.events.CaptureFinished) for event in log) == 2


def test_locals_are_captured_whole() -> None:
    def kept(x: torch.Tensor) -> Any:
        names = locals()
        y = x + 1
        return y, sorted(names), locals() is names, sorted(names)

    found = stator.compile(kept, backend="eager", fullgraph=True)(torch.ones(2))
    assert found[1:] == kept(torch.ones(2))[1:]


def test_equal_texts_and_numbers_stay_two_objects() -> None:
    def two(x: torch.Tensor) -> Any:
        text, number = "xyzpdq", 123456789
        other, another, same = text[:3] + text[3:], int(str(number)), text
        stator.graph_break()
        return text is other, number is another, text is same, x + 1

    compiled = stator.compile(two, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[:3] == two(torch.ones(2))[:3] == (False, False, True)
