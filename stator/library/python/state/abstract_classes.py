"""issubclass() of objects that have `__bases__` and are no classes.   issubclass(proxy, base)  ->  a walk over bases"""

from __future__ import annotations

from typing import Any

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import ancestors
from stator.interp.objects.attributes import load_attr
from stator.interp.vm import VM

DEEPEST = 100  # levels of bases, and of tuples of classes, that are walked


def is_abstract_subclass(vm: VM, derived: Any, cls: Any) -> bool:
    """type.__subclasscheck__, and issubclass() where no class has a check of its own."""
    if is_a(derived, type) and is_a(cls, type):
        return cls in ancestors(vm, derived)
    require_bases(vm, derived, "issubclass() arg 1 must be a class")
    require_bases(vm, cls, "issubclass() arg 2 must be a class, a tuple of classes, or a union")
    return has_base(vm, derived, cls)


def require_bases(vm: VM, cls: type, text: str) -> None:
    if not is_a(cls, type) and bases_of(vm, cls) is None:
        raise Raised(TypeError(text))


def has_base(vm: VM, derived: Any, cls: object, depth: int = 0) -> bool:
    if derived is cls:
        return True
    require_shallow(depth)
    return any(has_base(vm, base, cls, depth + 1) for base in bases_of(vm, derived) or ())


def bases_of(vm: VM, cls: type) -> tuple[Any, ...] | None:
    """The tuple that `cls.__bases__` gives; None for another value or none at all."""
    try:
        bases = vm.sync(lambda: load_attr(vm, cls, "__bases__"))
    except Raised as raised:
        if not is_a(raised.exc, AttributeError):
            raise
        return None
    if not is_a(bases, tuple):
        return None
    vm.heap.expose(bases)
    return bases


def require_shallow(depth: int) -> None:
    """Break at a depth at which CPython may raise RecursionError: that depends on the frames around the call."""
    if depth > DEEPEST:
        raise Break("SB011", f"classes nested {DEEPEST} levels deep in isinstance() or issubclass()")
