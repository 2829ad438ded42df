"""State of the process inside a capture: files that are imported, limits of conversions."""

from __future__ import annotations

import decimal
import importlib
import sys
from decimal import Decimal

import pytest
import torch

import stator
from stator import events
from tests.comparison import call, same_as_eager


def test_a_module_that_the_call_has_written_breaks(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def written_and_imported(x, name, value):
        path = f"{tmp_path}/{name}.py"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"VALUE = {value}\n")
        importlib.invalidate_caches()
        try:
            return __import__(name).VALUE, x + 1
        finally:
            del sys.modules[name]

    compiled = stator.compile(written_and_imported, backend="eager")
    with events.record() as log:
        for name, value in (("written_first", 3), ("written_second", 4), ("written_first", 3)):
            found, total = compiled(torch.ones(2), name, value)
            assert found == value and torch.equal(total, torch.ones(2) + 1)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]


def limited(x, digits, text):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(digits)
    try:
        found = int(text)
    except ValueError as error:
        found = str(error)
    try:
        shown = len(str(10 ** 800))
    except ValueError as error:
        shown = str(error)
    between = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(before)
    return x + 1, found, shown, between, len(str(10 ** 900))


def left_limited(x, digits):
    try:
        sys.set_int_max_str_digits(digits)
    except ValueError as error:
        return x, str(error), sys.get_int_max_str_digits()
    return x + 1, sys.get_int_max_str_digits()


def test_the_limit_of_digits_is_set_inside() -> None:
    x, text = torch.ones(2), "1" * 700
    same_as_eager(limited, call(x, 640, text), call(x, 1000, text), call(x, 0, text), call(x, 640, "12"))


@pytest.fixture
def limit_restored():
    before = sys.get_int_max_str_digits()
    yield
    sys.set_int_max_str_digits(before)


def test_a_limit_that_stays(limit_restored) -> None:
    compiled = stator.compile(left_limited, backend="eager", fullgraph=True)
    for digits in (5000, 6000, 100, 6000, 5000):
        total, *found = compiled(torch.ones(2), digits)
        after = sys.get_int_max_str_digits()
        expected, *wanted = left_limited(torch.ones(2), digits)
        assert found == wanted and torch.equal(total, expected) and after == sys.get_int_max_str_digits()


def text_length(x, number):
    try:
        return x + 1, len(str(number))
    except ValueError as error:
        return x, str(error)


def test_the_limit_is_guarded(limit_restored) -> None:
    compiled = stator.compile(text_length, backend="eager", fullgraph=True)
    for limit in (4300, 640, 4300, 0):
        sys.set_int_max_str_digits(limit)
        assert compiled(torch.ones(2), 10 ** 800)[1] == text_length(torch.ones(2), 10 ** 800)[1]


class Whole(int):
    def __str__(self):
        return "not asked"


class Money(Decimal):
    def __add__(self, other):
        return "money", Decimal.__add__(self, other)


def computed(x, n):
    return (Decimal(n).sqrt(), Decimal("1.23456").quantize(Decimal("0.01")), Decimal(2).max(n), Decimal(Whole(n)),
            Decimal(2).fma(n, 4), Decimal(n).quantize(exp=Decimal("0.1"), rounding="ROUND_UP"), Decimal(n).ln(),
            Decimal(n).compare(Decimal("NaN")), x + n)


def of_a_subclass(x, n):
    made = Money(n)
    return made + 1, made - 1, type(made).__name__, made == n, x + n


def wrong(x, n):
    found = []
    for compute in (lambda: Decimal(2).max("a"), lambda: Decimal(n).sqrt(), lambda: Decimal("1e9").quantize(Decimal("1e-99"))):
        try:
            found.append(compute())
        except (TypeError, decimal.DecimalException) as error:
            found.append(type(error).__name__)
    return found, x + n


@pytest.mark.parametrize("function, first, second", [(computed, 5, 7), (of_a_subclass, 5, 7), (wrong, -2, 4)])
def test_decimals_are_computed_inside(function, first, second):
    x = torch.ones(2)
    same_as_eager(function, call(x, first), call(x, second))


def test_the_precision_of_methods_is_guarded():
    compiled = stator.compile(lambda x, n: (Decimal(n).sqrt(), x + 1), backend="eager", fullgraph=True)
    for digits in (28, 5, 28):
        with decimal.localcontext() as context:
            context.prec = digits
            context.clear_flags()
            found, flag = compiled(torch.ones(2), 2)[0], context.flags[decimal.Inexact]
            assert found == Decimal(2).sqrt() and flag
