"""Exceptions as values.   except E as e: return e  ->  an equal exception, with its cause, context, notes and traceback

The parts are put in through the C descriptors of the exception's bases: neither `__init__` nor a Python `__new__` or
`__setattr__` of the program runs again.
"""

from __future__ import annotations

import traceback
import types
from collections.abc import Callable
from typing import Any

from stator.emit.services import Rebuilder
from stator.host.value_kinds import is_a

_HEAP_TYPE = 1 << 9
_LINKS = ("__cause__", "__context__")


def rebuild_exception(build: Rebuilder, value: BaseException) -> str:
    cls = type(value)
    make, kind = build.writer.constant(_c_new(cls), "new_exception"), build.value(cls)
    if is_a(value, BaseExceptionGroup):
        message, parts = (BaseExceptionGroup.__dict__[name].__get__(value) for name in ("message", "exceptions"))
        inner = [build.value(part) for part in parts]
        if id(value) in build.memo:
            return build.memo[id(value)]
        items = "".join(f"{part}, " for part in inner)
        given = f"({items})" if type(value.args[1]) is tuple else f"[{items}]"  # shown by repr()
        name = build.variable(value, "exc", f"{make}({kind}, {build.value(message)}, {given})")
    else:
        name = build.variable(value, "exc", f"{make}({kind})")
        _put(build, name, BaseException, "args", value.args)
        _put_members(build, name, value, cls)
    for link in _LINKS:
        other = BaseException.__dict__[link].__get__(value)
        if other is not None:
            _put(build, name, BaseException, link, other)
    _put(build, name, BaseException, "__suppress_context__", value.__suppress_context__)
    if value.__traceback__ is not None:
        frames = [frame for frame, _ in traceback.walk_tb(value.__traceback__)]
        held = {number: build.vm.frame_objects.held.get(id(frame)) for number, frame in enumerate(frames)}
        build.raised[name] = {number: values for number, values in held.items() if values}
        trace = build.writer.constant(value.__traceback__, "traceback")
        build.writer.line(f"{build.writer.constant(put_part)}({name}, "
                          f"{build.writer.constant(BaseException)}, '__traceback__', {trace})")
    build.attributes(value, name)
    return name


def _c_new(cls: type) -> Callable[..., Any]:
    """The `__new__` that C code gave the exception's builtin base."""
    return next(base.__new__ for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)


def _put_members(build: Rebuilder, name: str, value: BaseException, cls: type) -> None:
    """What OSError, UnicodeError, StopIteration, ... keep beside their arguments."""
    for base in cls.__mro__:
        if base.__flags__ & _HEAP_TYPE or base in (BaseException, object):
            continue
        for key, member in base.__dict__.items():
            if type(member) is types.MemberDescriptorType:
                item = member.__get__(value)
                if item is not None:
                    _put(build, name, base, key, item)


def _put(build: Rebuilder, name: str, owner: type, key: str, item: object) -> None:
    put = build.writer.constant(put_part)
    build.writer.line(f"{put}({name}, {build.writer.constant(owner)}, {key!r}, {build.value(item)})")


def put_part(exc: BaseException, owner: type, name: str, value: object) -> None:
    """Set one C-level attribute of an exception."""
    owner.__dict__[name].__set__(exc, value)
