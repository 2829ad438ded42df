"""Warnings of the compiler about code made at run time, and filters that make errors of recorded warnings."""

from __future__ import annotations

import warnings

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

X = torch.ones(2)


def recorded(x, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = eval(text)
        code = compile(text + "\n", "<here>", "eval")
    return found, eval(code), [(str(each.message), each.category, each.filename, each.lineno) for each in seen], x + 1


def warned_and_wrong(x, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = eval(text)
        except SyntaxError as error:
            found = str(error)
    return found, [(str(each.message), each.lineno) for each in seen], x + 1


def ignored(x, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=SyntaxWarning)
        found = eval(text)
    return found, len(seen), x + 1


def made_errors(x, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error", category=DeprecationWarning)
        warnings.simplefilter("error", category=SyntaxWarning)
        try:
            found = eval(text)
        except SyntaxError as error:
            found = str(error), error.filename, error.lineno, error.offset
    return found, seen, x + 1


def raised(x, message):
    found = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.simplefilter("error", category=UserWarning)
        for category in (UserWarning, DeprecationWarning):
            try:
                warnings.warn(message, category)
                found.append("told")
            except UserWarning as error:
                found.append(repr(error))
    return found, [str(each.message) for each in seen], x + 1


def test_warnings_before_a_syntax_error():
    same_as_eager(warned_and_wrong, call(X, r"'\e' $"), call(X, r"'e' $"), call(X, r"'\e'"), call(X, r"'\e' '\q' $"))


@pytest.mark.parametrize("function", [recorded, ignored, made_errors])
def test_warnings_of_the_compiler(function):
    same_as_eager(function, call(X, r"'\z'"), call(X, "'z'"), call(X, "1 is 1"), call(X, r"'''\n\z'''"))


def test_filters_that_raise():
    same_as_eager(raised, call(X, "first"), call(X, "second"))


def test_a_warning_is_shown_at_each_call():
    compiled = stator.compile(lambda x, text: (eval(text), x + 1), backend="eager", fullgraph=True)
    for text in (r"'\z'", r"'\q'", r"'\z'", "'z'"):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.showwarning = lambda *args, **kwargs: seen.append(args)
            compiled(X, text)
        assert len(seen) == ("\\" in text)
