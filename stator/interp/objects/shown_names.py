"""Names of classes and functions in text.   repr(K), "'K' object is not callable"  ->  guards: K is still called so

In: what a text shows by its name, or an error that the program may catch.  Out: guards on `__name__`, `__qualname__`
and `__module__`, which a program can assign.
"""

from __future__ import annotations

import types
from typing import Any

from stator.host.value_kinds import is_a
from stator.interp.lookup import is_mutable_class
from stator.interp.objects.class_attributes import guard_member
from stator.interp.services import VM
from stator.source import Attr

_NAMES = ("__name__", "__qualname__", "__module__")
_name_of = type.__dict__["__name__"].__get__
_qualified_name_of = type.__dict__["__qualname__"].__get__


def guard_names(vm: VM, value: Any) -> None:
    """A class or a function is called by its name."""
    if is_a(value, type):
        if value not in vm.classes.named and is_mutable_class(value) and id(value) not in vm.fresh:
            vm.classes.named.add(value)
            for name in _NAMES:
                guard_member(vm, value, name)
    elif type(value) is types.FunctionType and id(value) not in vm.fresh:
        vm.heap.adopt(value.__qualname__, Attr(vm.heap.source_of(value), "__qualname__"))


def guard_names_in(vm: VM, error: BaseException) -> None:
    """The program may read the words of an error: classes of its own that occur in them, or might, keep their names."""
    text = " ".join([part for part in error.args if type(part) is str])
    if not text:
        return
    for cls in {cls for cls, _ in vm.classes.lookups} | {type(tracker.original) for tracker in vm.heap.trackers}:
        if cls not in vm.classes.named and is_mutable_class(cls) \
                and (_name_of(cls) in text or _qualified_name_of(cls) in text):
            guard_names(vm, cls)
