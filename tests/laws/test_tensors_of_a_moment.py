"""Tensors from outside that get other memory or another flag: text, views and flags of each moment are eager's."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.interp.tensors import leaf_flags

ONE = TWO = torch.ones(4)
KEPT: list[str] = []


def shown_after(v: Any) -> Any:
    ONE.data = v.detach().clone()
    print(TWO)


def text_before(v: Any) -> Any:
    text = str(ONE)
    ONE.data = v.detach().clone()
    return text


def shown_between(v: Any) -> Any:
    print(ONE)
    ONE.data = v.detach().clone()
    print(ONE)
    ONE.data = v + 3
    print(TWO, [ONE])
    return f"{ONE} {TWO.sum()}"


def shown_and_written(v: Any) -> Any:
    ONE.data = v
    ONE.add_(1)
    print(ONE)
    v.mul_(2)
    print(ONE)


def texts_around_writes(v: Any) -> Any:
    first = f"{ONE}"
    ONE.data = v
    second = f"{ONE}"
    v.add_(1)
    return first, second, f"{ONE}"


def text_kept(v: Any) -> Any:
    KEPT.append("first")
    ONE.data = v.detach().clone()
    KEPT.append(f"{ONE}")


def other_sizes(v: Any) -> Any:
    ONE.data = v[:2]
    print(ONE, TWO.shape)
    return TWO


def flag_for_a_while(v: Any) -> Any:
    ONE.requires_grad_()
    print(ONE)
    ONE.requires_grad_(False)
    print(ONE)


def flag_between(v: Any) -> Any:
    print(ONE)
    y = ONE * 2
    ONE.requires_grad_()
    print(ONE)
    return y


def flag_and_memory(v: Any) -> Any:
    ONE.data = v
    ONE.requires_grad_()
    print(ONE)


def flag_of_another_name(v: Any) -> Any:
    ONE.requires_grad_()
    print(TWO.requires_grad)


def use_of_another_name(v: Any) -> Any:
    y = TWO * 2
    ONE.requires_grad_()
    return y, TWO.requires_grad, TWO.is_leaf, TWO


def use_after_the_flag(v: Any) -> Any:
    ONE.requires_grad_()
    return TWO * 2


def both_flags(v: Any) -> Any:
    ONE.requires_grad_()
    TWO.requires_grad_(False)
    return TWO


def view_of_the_call(v: Any) -> Any:
    y = ONE[1:]
    ONE.requires_grad_()
    return y.requires_grad, y * 2


def view_without_grad(v: Any) -> Any:
    with torch.no_grad():
        y, _ = ONE.split(2)
    ONE.requires_grad_()
    return y * 2


def detached(v: Any) -> Any:
    y = ONE.detach()
    ONE.requires_grad_()
    return y.requires_grad, y * 2


MEMORY = [shown_after, text_before, shown_between, shown_and_written, texts_around_writes, text_kept,
          other_sizes]
FLAGS = [flag_for_a_while, flag_between, flag_and_memory, flag_of_another_name, use_of_another_name, use_after_the_flag,
         both_flags, view_of_the_call, view_without_grad, detached]
SECOND: dict[str, Callable[[Any], Any]] = {
    "other": lambda t: t + 1, "itself": lambda t: t, "view": lambda t: t.view(2, 2).view(4), "part": lambda t: t[:2],
    "detached": lambda t: t.detach(),
}


def described(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(described, value))
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.requires_grad, value.is_leaf, type(value.grad_fn).__name__, value._is_view()
    return repr(value)


def seen(function: Any, second: str, number: int) -> Any:
    global ONE, TWO
    ONE = torch.tensor([2.0, 1.0, -1.0, number])
    TWO = SECOND[second](ONE)
    KEPT.clear()
    given, printed = torch.arange(4.0) * (number + 1), io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = function(given)
    return described(result), printed.getvalue(), described((ONE, TWO, given, *KEPT))


def differences(function: Any) -> list[str]:
    """Calls that are not eager's, in two orders of the second name."""
    found = []
    for order in (list(SECOND), list(SECOND)[::-1]):
        stator.reset()
        compiled = stator.compile(function, backend="eager")
        for number, second in enumerate(order):
            if seen(function, second, number) != seen(compiled, second, number):
                found.append(f"{second} of {order}")
    return found


@pytest.mark.parametrize("function", MEMORY + FLAGS, ids=lambda each: each.__name__)
def test_is_eager(function: Any) -> None:
    assert not differences(function)


def test_bases_are_noticed(monkeypatch: Any) -> None:
    monkeypatch.setattr(leaf_flags, "guard_bases", lambda vm: None)
    assert differences(use_of_another_name)
