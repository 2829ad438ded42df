"""The iterator protocol.   the result of `__iter__`  ->  an iterator, or TypeError"""

from __future__ import annotations

from stator.host.value_kinds import name_in_errors
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.services import VM
from stator.shapes.symbolic_values import UNREAD, python_type

_mro_of = type.__dict__["__mro__"].__get__


def is_iterator(cls: type) -> bool:
    return any("__next__" in base.__dict__ for base in _mro_of(cls))


class IteratorOf(Continuation):
    """After a Python `__iter__`: refuse a result that has no `__next__`."""

    __slots__ = ("cont",)
    resumes = True

    def __init__(self, cont: Continuation | None) -> None:
        self.cont = cont

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        cls = type(value)
        if cls not in UNREAD and not is_iterator(cls) and not is_overlaid_iterator(vm, cls):
            raise Raised(TypeError(f"iter() returned non-iterator of type '{name_in_errors(python_type(value))}'"))
        vm.give(value, self.cont)


def is_overlaid_iterator(vm: VM, cls: type) -> bool:
    """Whether the trace gave the class a `__next__`; guards that it has none otherwise. False below a native frame."""
    return hasattr(vm, "mechanisms") and find(vm, cls, "__next__") is not MISSING
