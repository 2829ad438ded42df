"""The names of classes in errors of attributes: C classes show their module."""

from __future__ import annotations

import collections
import functools
import re
import threading
import types
from typing import Any

import pytest
import torch

import stator

OBJECTS = [types.SimpleNamespace(a=1), threading.local(), collections.OrderedDict(), collections.deque(),
           re.compile("a"), functools.partial(int), type("Sub", (types.SimpleNamespace,), {})(), 3, "text", [1],
           type("Slotted", (), {"__slots__": ("a",)})(), type("Text", (str,), {})()]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_text_is_as_in_eager(obj: Any) -> None:
    def read(x):
        try:
            return obj.missing
        except AttributeError as error:
            return str(error), x + 1

    def delete(x):
        try:
            del obj.missing
        except (AttributeError, TypeError) as error:
            return str(error), x + 1

    for program in (read, delete):
        assert str(stator.compile(program, backend="eager")(torch.ones(1))) == str(program(torch.ones(1)))
