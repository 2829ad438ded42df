"""Special methods that raise, give NotImplemented or a wrong type, or are patched between two calls: as in eager."""

from __future__ import annotations

import warnings
from collections import defaultdict

import pytest

import stator
from tests.laws.slot_programs import Program, programs, results

BY_METHOD: defaultdict[str, list[Program]] = defaultdict(list)
for _each in programs():
    BY_METHOD[_each.method].append(_each)


@pytest.mark.parametrize("method", BY_METHOD)
def test_a_special_method_is_that_of_eager(method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of conversions that give a subclass, and of the truth of NotImplemented
        for program in BY_METHOD[method]:
            expected = results(program, lambda function: function)
            found = results(program, lambda function: stator.compile(function, backend="eager", options={"strict": True}))
            assert found == expected, program.name
