"""Regular expressions made inside a capture: templates, warnings, printed patterns, and the caches of `re`."""

from __future__ import annotations

import contextlib
import io
import re
import warnings

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

X = torch.ones(2)


def replaced(x, text):
    made = re.compile(text)
    return made.sub(r"<\g<0>>", "a1b22"), made.subn(r"\g<0>!", "a1b22"), re.sub(text, r"[\g<0>]", "a1b2"), x + 1


def replaced_by_a_wrong_template(x, template):
    try:
        return re.compile("(a)").sub(template, "bab"), x + 1
    except re.error as error:
        return str(error), x + 2


def warned(x, text):
    re.purge()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = re.compile(text)
        again = re.compile(text)
    return made.pattern, made is again, [str(each.message) for each in seen], x + 1


def warned_and_wrong(x, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            re.compile(text)
        except re.error as error:
            return str(error), [str(each.message) for each in seen], x + 1
    return x


def printed(x, text):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        made = re.compile(text, re.DEBUG)
    return made.pattern, shown.getvalue(), made.match("ab") is None, x + 1


def emptied(x, text):
    first = re.compile(text)
    re.purge()
    return first is re.compile(text), first == re.compile(text), x + 1


@pytest.mark.parametrize("function, first, second", [
    (replaced, r"\d", r"\d+"),
    (replaced_by_a_wrong_template, r"<\1>", r"<\2>"),
    (warned, "[a--b]", "[ab]"),
    (warned_and_wrong, "[a--b](", "(["),
    (printed, "a(b)", "[c-d]+"),
    (emptied, "a(b)", "[c-d]+"),
])
def test_patterns_are_captured_whole(function, first, second):
    same_as_eager(function, call(X, first), call(X, second), call(X, first))


def warned_of_a_flag(x, text):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        made = re.compile(text, getattr(re, "TEMPLATE", 0) | re.UNICODE)
    return [(str(each.message), each.category, each.lineno) for each in log], made.flags, x + 1


def test_a_flag_that_re_warns_of_is_a_break():
    re.purge()
    expected = warned_of_a_flag(X, "flag(a)")[0]
    assert bool(expected) == hasattr(re, "TEMPLATE")  # until 3.12
    compiled = stator.compile(warned_of_a_flag, backend="eager")
    for _ in range(2):
        re.purge()
        assert compiled(X, "flag(a)")[0] == expected
    assert compiled(X, "flag(a)")[0] == []


def count_by_place(n):
    acts = [lambda: re.sub("a", "b", "aaa", n), lambda: re.sub("a", "b", "aAa", n, re.I), lambda: re.split("a", "babab", n),
            lambda: re.split("a", "babab", n, flags=0), lambda: re.subn("a", "b", "aaa", n), lambda: re.split("a", "bab"),
            lambda: re.sub("a", "b", "aaa", n, count=1), lambda: re.sub("a", "b", "aaa", n, re.I, 3),
            lambda: re.sub("a", "b", "aaa", n, 0, flags=1), lambda: re.sub("a", "b", "aaa", count=n, flags=re.I),
            lambda: re.sub("a", "b"), lambda: re.match("a", "b", 0, 5), lambda: re.sub("a", "b", "c", repl="d")]
    found = []
    for act in acts:
        try:
            found.append(act())
        except TypeError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("fullgraph", [False, True])
def test_counts_by_place_warn_where_cpython_does(fullgraph):
    def outcomes_of(fn):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = fn(1), fn(2)
        return result, [(each.category, str(each.message), each.filename, each.lineno) for each in told]

    compiled = stator.compile(count_by_place, backend="eager", fullgraph=fullgraph)
    assert outcomes_of(compiled) == outcomes_of(compiled) == outcomes_of(count_by_place)
