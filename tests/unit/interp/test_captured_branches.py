"""options={"capture_control_flow": True}: a tensor that one way leaves as it was, seen under two names or written to."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

import stator
from stator import events

X = torch.arange(3.0)


def compiled(fn: Any) -> Any:
    return stator.compile(fn, backend="eager", options={"capture_control_flow": True, "strict": True})


def its_own(x: Any) -> Any:
    z = x if x.sum() > 0 else x * 2
    return z, x


def of_a_result(x: Any) -> Any:
    made = x * 1
    z = made if x.sum() > 0 else made * 2
    return z, made


def of_a_part(x: Any) -> Any:
    made = x * 1
    z = made[0:1] if x.sum() > 0 else made[0:1] * 2
    return z, made


@pytest.mark.parametrize("fn", [its_own, of_a_result, of_a_part])
def test_two_names_are_one_tensor_where_eager_has_one(fn: Any) -> None:
    subject = compiled(fn)
    for x in (X, -X, X):
        pairs = [each(x) for each in (fn, subject)]
        assert torch.equal(pairs[0][0], pairs[1][0])
        seen = [(a is b, a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()) for a, b in pairs]
        assert seen[0] == seen[1]


def test_a_write_to_another_tensor_is_captured_beside_it() -> None:
    def fn(x: Any, y: Any) -> Any:
        z = x if x.sum() > 0 else x * 2
        y.add_(1)
        return z + y

    subject = compiled(fn)
    with events.record() as log:
        for x in (X, -X):
            assert torch.equal(subject(x, X.clone()), fn(x, X.clone()))
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def test_a_number_that_is_not_in_the_graph_is_named() -> None:
    def fn(x: Any) -> Any:
        number = int(x.abs().sum())
        return x * number if x.sum() > 0 else x + number * 0.5

    subject = compiled(fn)
    with events.record() as log:
        for x in (X, -X):
            assert torch.equal(subject(x), fn(x))
    assert any("whose origin is not in the graph" in event.cause for event in log if isinstance(event, events.GraphBreak))


def an_item_of_a_list(x: Any) -> Any:
    held = [x, x]
    if x.sum() > 0:
        held[0] = x * 2
    return held[0] + held[1]


def an_attribute(x: Any) -> Any:
    class Holder:
        value = 0

    holder = Holder()
    holder.value = 1  # type: ignore[assignment]
    if x.sum() > 0:
        holder.value = 2  # type: ignore[assignment]
    return x * holder.value


def a_cell(x: Any) -> Any:
    factor = 1

    def times() -> Any:
        return x * factor

    def switch() -> None:
        nonlocal factor
        factor = 3

    if x.sum() > 0:
        switch()
    return times()


def a_value_of_a_dict(x: Any) -> Any:
    held = {"a": 1}
    if x.sum() > 0:
        held["a"] = 4
    return x * held["a"]


@pytest.mark.parametrize("fn", [an_item_of_a_list, an_attribute, a_cell, a_value_of_a_dict])
def test_what_one_way_puts_in_the_place_of_something_is_not_lost(fn: Any) -> None:
    """As many parts as before, and another one among them."""
    subject = compiled(fn)
    for x in (X, -X, X):
        assert torch.equal(subject(x), fn(x))


def test_a_result_of_a_branch_has_the_history_of_the_way_that_was_taken() -> None:
    def fn(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x.sin()

    subject = compiled(fn)
    with events.record() as log:
        for x in (X, -X, X):
            results = []
            for run in (fn, subject):
                leaf = x.clone().requires_grad_()
                y = run(leaf)
                y.sum().backward()
                results.append((type(y.grad_fn).__name__, y.tolist(), leaf.grad.tolist()))
            assert results[0] == results[1]
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def of_another_shape(x: Any) -> Any:
    z = torch.ones(2, 3) if x.sum() > 0 else torch.ones(3, 2)
    return z, z.shape


def of_other_strides(x: Any) -> Any:
    z = torch.ones(3, 3) if x.sum() > 0 else x.expand(3, 3)
    return z, z.stride()


@pytest.mark.parametrize("fn", [of_another_shape, of_other_strides])
def test_ways_that_lie_otherwise_are_not_one_result(fn: Any) -> None:
    subject = compiled(fn)
    for x in (X, -X, X):
        (found, told), (expected, other) = subject(x), fn(x)
        assert torch.equal(found, expected) and told == other


@pytest.mark.parametrize("base", [list, collections.deque, dict, set, int, tuple, object])
def test_an_attribute_that_one_way_sets_is_no_effect_of_the_other(base: type) -> None:
    held: Any = type("Held", (base,), {})()
    held.count = 0

    def fn(x: Any) -> Any:
        if x.sum() > 0:
            held.count += 1
            return x + 1
        return x - 1

    subject = compiled(fn)
    for x in (-X, X, -X):
        seen = []
        for each in (fn, subject):
            held.count = 0
            seen.append((each(x).tolist(), held.count))
        assert seen[0] == seen[1]
