"""Nothing is forgotten: every C callable of each covered module and hidden type has a row."""

from __future__ import annotations

import collections
import importlib
import re
import types

import pytest
import torch

from stator.native.rows_declare import is_c_type, optional_module
from stator.native.torch_ops import torch_leaf
from tests.unit.native.row_coverage import unlisted

MODULES = """
    builtins types _operator operator math cmath itertools _functools functools _collections collections _bisect _heapq
    _sre re _string string _struct struct _json _codecs binascii zlib _hashlib hashlib unicodedata _datetime datetime
    _decimal array time _random random sys gc _weakref _contextvars contextvars _abc abc _typing _warnings warnings
    posix os _io io _stat _thread threading _queue marshal _pickle copy copyreg _locale _socket select
    _posixsubprocess _signal atexit _imp _ctypes _statistics numpy enum fractions inspect textwrap dataclasses errno
    """.split()


@pytest.mark.parametrize("name", MODULES)
def test_every_c_callable_of_the_module_has_a_row(name: str):
    module = optional_module(name)
    assert not vars(module).get("__path__") or name in {"re", "collections", "numpy"}
    assert unlisted(module) == []


def hidden_examples() -> list[object]:
    """Objects of C types that no module exports."""
    ordered = collections.OrderedDict()
    return [
        *map(iter, ([], (), {}, set(), "", "\u0100", b"", bytearray(), range(1), range(1 << 70), memoryview(b""))),
        *map(iter, ({}.values(), {}.items(), ordered, zip(), collections.deque())),
        *map(reversed, ([], {}, {}.values(), {}.items())),
        iter(int, 0), {}.keys(), {}.values(), {}.items(), ordered.keys(), ordered.items(), ordered.values(),
        re.compile(""), re.match("", ""), types.SimpleNamespace(), types.MappingProxyType({}), list[int], int | str,
        torch.float32, torch.device("cpu"), torch.finfo(torch.float32), torch.iinfo(torch.int8), torch.strided,
        torch.contiguous_format, torch.Size(), torch.default_generator, (1).__add__, len, lambda: 1, None, ..., 1j,
        slice(1), (i for i in ()),
    ]  # fmt: skip


@pytest.mark.parametrize("example", hidden_examples(), ids=lambda example: type(example).__name__)
def test_every_method_of_the_type_has_a_row(example: object):
    assert is_c_type(type(example))
    assert unlisted(type(example)) == []


def test_tensor_members_are_leaves_or_have_rows():
    members = vars(torch._C.TensorBase)
    missing = [name.rpartition(".")[2] for name in unlisted(torch._C.TensorBase)]
    assert [name for name in missing if not torch_leaf(members[name])] == []


def test_modules_were_really_read():
    assert len(vars(importlib.import_module("_operator"))) > 50
