"""Rules for builtins that ask about attributes and identity."""

from __future__ import annotations

import collections
import sys
import types
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.code.opcodes import ONE_DICT_OF_LOCALS
from stator.guards.guard import Kind
from stator.heap.box import Box
from stator.heap.tracker import Shape
from stator.host.value_kinds import is_a, name_in_errors
from stator.interp.frame import UNBOUND, Continuation, Frame, Raised
from stator.interp.lookup import MISSING, ancestors, find, is_mutable_class
from stator.interp.objects.assignment import GiveNone, delete_attr, delete_generic, store_attr, store_generic
from stator.interp.objects.attributes import load_attr, load_generic, load_tensor_member, tensor_class
from stator.interp.objects.class_attributes import load_type_attr
from stator.interp.opcodes.data_opcodes import read_cell
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import DictOf, Pinned
from stator.strategy import Strategy

# ---------------------------------------------------------------------- attributes


class OrDefault(Continuation):
    """getattr with a default, hasattr: AttributeError is an answer."""

    __slots__ = ("cont", "found", "default")
    takes_absence = True

    def __init__(self, cont: Any, found: Any, default: Any) -> None:
        self.cont, self.found, self.default = cont, found, default

    def returned(self, vm: VM, frame: Frame, value: Any) -> None:
        vm.give(value if self.found is MISSING else self.found, self.cont)

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if not is_a(exc, AttributeError):
            return False
        self.absent(vm)
        return True

    def absent(self, vm: VM) -> None:
        vm.give(self.default, self.cont)


class OfVars(OrDefault):
    """vars(): its own words where there is no `__dict__`."""

    __slots__ = ()

    def raised(self, vm: VM, frame: Frame, exc: BaseException) -> bool:
        if is_a(exc, AttributeError):
            raise Raised(TypeError("vars() argument must have __dict__ attribute"))
        return False


def _try_load(vm: VM, obj: Any, name: Any, cont: Any) -> None:
    frame = vm.frame
    try:
        load_attr(vm, obj, name, cont)
    except Raised as raised:
        if vm.frame is not frame or not cont.raised(vm, frame, raised.exc):
            raise


@rule(getattr)
def _getattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if len(args) not in (2, 3) or kwargs:
        return vm.give(vm.native_unhooked(getattr, args, kwargs), cont)
    if not is_a(args[1], str):
        raise Raised(TypeError("attribute name must be string, not " f"'{name_in_errors(type(args[1]))}'"))
    if len(args) == 2:
        return load_attr(vm, args[0], args[1], cont)
    _try_load(vm, args[0], args[1], OrDefault(cont, MISSING, args[2]))


@rule(hasattr, arity=(2,))
def _hasattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    obj, name = args
    require_name(name)
    _try_load(vm, obj, name, OrDefault(cont, True, False))


def require_name(name: Any) -> None:
    if not is_a(name, str):
        raise Raised(TypeError(f"attribute name must be string, not '{name_in_errors(type(name))}'"))


@rule(setattr, arity=(3,))
def _setattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    obj, name, value = args
    require_name(name)
    store_attr(vm, obj, name, value, GiveNone(cont))


@rule(delattr, arity=(2,))
def _delattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    obj, name = args
    require_name(name)
    delete_attr(vm, obj, name, GiveNone(cont))


@rule(object.__getattribute__, arity=(2,))
def _object_getattribute(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_name(args[1])
    if type(args[0]) is FakeTensor:
        return load_tensor_member(vm, args[0], args[1], tensor_class(vm, args[0]), cont)
    if is_a(args[0], type):
        raise Break("SB005", "a class, read as an ordinary object is")
    load_generic(vm, args[0], args[1], cont, fallback=False)


def require_instance(obj: Any, method: str) -> None:
    """Classes have setters of their own, which object's must not pass by."""
    if is_a(obj, type):
        raise Raised(TypeError(f"can't apply this {method} to {type(obj).__name__} object"))


@rule(object.__setattr__, arity=(3,))
def _object_setattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_instance(args[0], "__setattr__")
    _type_setattr(vm, args, kwargs, cont)


@rule(type.__setattr__, arity=(3,))
def _type_setattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_name(args[1])
    store_generic(vm, args[0], args[1], args[2], GiveNone(cont))


@rule(object.__delattr__, arity=(2,))
def _object_delattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_instance(args[0], "__delattr__")
    _type_delattr(vm, args, kwargs, cont)


@rule(type.__delattr__, arity=(2,))
def _type_delattr(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_name(args[1])
    delete_generic(vm, args[0], args[1], GiveNone(cont))


def _as_object_does(base: type, slot: Any, act: Any) -> Any:
    """The slot of a base whose attributes are found and set as object does it."""
    def on_instance(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
        if not is_a(args[0], base):
            vm.native_unhooked(slot, args, kwargs)  # raises what eager raises
        act(vm, args, kwargs, cont)
    return on_instance


for _base in (list, dict, set, frozenset, tuple, int, float, complex, str, bytes, bytearray, collections.deque,
              collections.defaultdict, BaseException):
    for _name, _arity, _act in (("__getattribute__", 2, _object_getattribute), ("__setattr__", 3, _object_setattr),
                                ("__delattr__", 2, _object_delattr)):
        if _name in _base.__dict__:
            rule(_base.__dict__[_name], arity=(_arity,))(_as_object_does(_base, _base.__dict__[_name], _act))


@rule(type.__getattribute__, arity=(2,))
def _type_getattribute(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    require_name(args[1])
    load_type_attr(vm, args[0], args[1], cont, fallback=False)


@rule(vars)
def _vars(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if not args:
        return _locals(vm, args, kwargs, cont)
    _try_load(vm, args[0], "__dict__", OfVars(cont, MISSING, None))




@rule(locals)
def _locals(vm: VM, args: Any, kwargs: Any, cont: Any) -> None:
    if Strategy.KEPT_LOCALS in vm.turned_off:
        raise Break("SB020", f"{Strategy.KEPT_LOCALS} over a break", whole_frame=True)
    vm.give(names_in(vm.frame), cont)


def names_in(frame: Frame) -> Any:
    """The namespace that locals() gives in a frame."""
    if frame.names is not None:
        return frame.names
    found: dict[str, Any] = {} if frame.shown_locals is None else frame.shown_locals
    for slot, name in enumerate(frame.unit.local_names):
        value = frame.locals[slot]
        if slot in frame.unit.cell_slots or slot in frame.unit.free_slots:
            value = read_cell(frame, slot) if type(value) is types.CellType else value
        if type(value) is Box:
            value = value.force()
        if value is not UNBOUND:
            found[name] = value
        else:
            found.pop(name, None)
    if ONE_DICT_OF_LOCALS:
        frame.shown_locals = found
    return found


def locals_are_kept(vm: VM) -> bool:
    """Whether somebody holds the dict of a frame that is to be left: the next locals() there would fill it again."""
    frame = vm.frame
    while frame is not None:
        if type(frame) is Frame and frame.shown_locals is not None and sys.getrefcount(frame.shown_locals) > 2:
            return True
        frame = frame.caller()
    return False


@rule(globals)
def _globals(vm: VM, args: Any, kwargs: Any) -> Any:
    return vm.frame.scope.view()


@rule(eval, exec)
def _eval(vm: VM, args: Any, kwargs: Any) -> Any:
    # Names and the `from __future__` flags are those of the frame that asks.
    raise Break("SB001", "eval() or exec() of code made at run time", whole_frame=True)


@rule(compile)
def _compile(vm: VM, args: Any, kwargs: Any) -> Any:
    raise Break("SB001", "builtins.compile: runs or makes code that no source file shows", whole_frame=True)


@rule(dir)
def _dir(vm: VM, args: Any, kwargs: Any) -> Any:
    if not args:
        return sorted(names_in(vm.frame))
    tracker = vm.heap.tracker_of(args[0])
    if tracker is not None:
        if tracker.shape in (Shape.OPAQUE, Shape.TENSOR):
            raise Break("SB005", f"dir() of a {type(args[0]).__name__} from outside")
        vm.heap.expose_attributes(tracker)
    elif is_a(args[0], (type, types.ModuleType)) and id(args[0]) not in vm.fresh:
        raise Break("SB005", "dir() of a class or module")
    if find(vm, type(args[0]), "__dir__") is object.__dir__:
        _guard_names_of_class(vm, type(args[0]))
    return vm.native(dir, args)


def _guard_names_of_class(vm: VM, cls: type) -> None:
    for base in ancestors(vm, cls):
        if is_mutable_class(base) and id(base) not in vm.fresh:
            vm.heap.guard(DictOf(Pinned(base)), Kind.KEYS, tuple(type.__dict__["__dict__"].__get__(base)))


# ---------------------------------------------------------------------- identity


@rule(id, arity=(1,))
def _id(vm: VM, args: Any, kwargs: Any) -> Any:
    number = id(vm.guard_identity(args[0]))
    if type(args[0]) is tuple and id(args[0]) not in vm.heap.by_standin:
        vm.identity.addresses.add(number)  # and not held: iterators fill a tuple again that nobody else holds
    elif id(args[0]) not in vm.heap.by_standin and find(vm, type(args[0]), "__del__") is MISSING:
        vm.identity.ids[number] = args[0]
    return number
