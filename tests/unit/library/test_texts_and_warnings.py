"""Texts of tracebacks, annotations and patterns, and warnings that C code gives."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import pickle
import re
import traceback
import typing
import warnings

import torch

import stator
from tests.comparison import call, same_as_eager


def test_annotations_made_inside() -> None:
    def program(x):
        alias = typing.Union[typing.List[int], typing.Optional[typing.Dict[str, int]]]  # noqa: UP006, UP007, UP045
        return x + len(typing.get_args(alias)), str(alias)
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(3)))


def test_update_without_an_instance() -> None:
    def program(x):
        try:
            dict.update()
        except TypeError as error:
            return x + 1, str(error)
    same_as_eager(program, call(torch.ones(2)))


def test_deprecated_copies_of_iterators_warn() -> None:
    def program(x):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            copy.copy(itertools.count(3))
            pickle.dumps(itertools.repeat(3, 2))
            itertools.chain([1], [2]).__reduce__()
            return x + len(heard), [str(each.message) for each in heard]
    same_as_eager(program, call(torch.ones(2)), call(torch.zeros(2)))


def raises(x):
    raise ValueError(f"size {x.shape[0]}")


def test_text_of_a_traceback() -> None:
    def program(x):
        try:
            raises(x)
        except ValueError as error:
            entries = [(each.name, each.line) for each in traceback.extract_tb(error.__traceback__)]
            return x + len(entries), entries, traceback.format_exception_only(error)

    def name_not_found(x):
        try:
            return x + torhc  # noqa: F821
        except NameError as error:
            return x + 1, str(error)
    for each in (program, name_not_found):
        same_as_eager(each, call(torch.ones(2)), call(torch.zeros(3)))


def test_lines_of_a_file_that_changes(tmp_path) -> None:
    source = tmp_path / "failing.py"
    source.write_text("def fail(x):\n    raise ValueError  # first\n")
    namespace: dict = {}
    exec(compile(source.read_text(), str(source), "exec"), namespace)

    def program(x):
        try:
            namespace["fail"](x)
        except ValueError as error:
            return traceback.extract_tb(error.__traceback__)[-1].line
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)) == "raise ValueError  # first"
    source.write_text("def fail(x):\n    raise ValueError  # another\n")
    assert compiled(torch.ones(2)) == "raise ValueError  # another"


def test_patterns_that_print_or_warn() -> None:
    def debugged(x):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            re.compile("a+", re.DEBUG)
        return x + 1, text.getvalue()

    def warned(x):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            re.compile("[a||b]")
            re.purge()
        return x + len(heard), [str(each.message) for each in heard]

    def named(x):
        match = re.compile("b").match
        return x + 1, match.__name__, match.__qualname__
    re.purge()
    same_as_eager(debugged, call(torch.ones(2)), fullgraph=False)
    same_as_eager(warned, call(torch.ones(2)), fullgraph=False)
    same_as_eager(named, call(torch.ones(2)), call(torch.zeros(2)))
